/* SPDX-License-Identifier: Apache-2.0 */
/*
 * RDMA devices as the kernel shows them in /sys/class/infiniband, without any
 * library: a host that lacks the libraries is told so. The order of choice is
 * that of verbs/device.h.
 */
#include "tools/kvpull_doctor_port.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * RoCE's headers take at most this many bytes; the kernel computes with the
 * same sum.
 */
#define ROCE_HEADER_BYTES 96

/* ---- reading a port ---- */

static enum kvpull_gid_rank gid_rank(const struct doctor_port *port,
				     const struct in6_addr *gid,
				     const char *type)
{
	if (port->is_infiniband)
		return KVPULL_GID_INFINIBAND;
	if (strncmp(type, "IB/RoCE v1", 10) == 0)
		return KVPULL_GID_V1;
	if (IN6_IS_ADDR_LINKLOCAL(gid))
		return KVPULL_GID_LINK_LOCAL;
	return IN6_IS_ADDR_V4MAPPED(gid) ? KVPULL_GID_IPV4 : KVPULL_GID_IPV6;
}

static void gids_read(const struct doctor *doctor, struct doctor_port *port)
{
	struct doctor_gid gid = { .index = 0 };
	struct in6_addr bytes;
	char text[64];

	for (; gid.index < DOCTOR_GIDS_MAX; gid.index++) {
		if (!doctor_read(doctor_at(doctor, "%s/gids/%u", port->folder,
					   gid.index),
				 text, sizeof(text)))
			break;
		if (inet_pton(AF_INET6, text, &bytes) != 1 ||
		    IN6_IS_ADDR_UNSPECIFIED(&bytes))
			continue;
		(void)doctor_read(doctor_at(doctor, "%s/gid_attrs/types/%u",
					    port->folder, gid.index),
				  text, sizeof(text));
		gid.rank = gid_rank(port, &bytes, text);
		if (gid.rank == KVPULL_GID_IPV4)
			(void)inet_ntop(AF_INET, &bytes.s6_addr32[3],
					gid.address, sizeof(gid.address));
		else
			(void)inet_ntop(AF_INET6, &bytes, gid.address,
					sizeof(gid.address));
		port->gids[port->gid_count++] = gid;
		if (gid.rank > port->gid.rank)
			port->gid = gid;
	}
	if (port->gid_count)
		(void)doctor_read(doctor_at(doctor, "%s/gid_attrs/ndevs/%u",
					    port->folder, port->gid.index),
				  port->netdev, sizeof(port->netdev));
}

static void mtu_read(const struct doctor *doctor, struct doctor_port *port)
{
	uint32_t mtu_bytes = 4096;

	port->netdev_mtu_bytes = doctor_number(
		doctor_at(doctor, "/sys/class/net/%s/mtu", port->netdev), 0);
	if (port->is_infiniband || !port->netdev[0])
		return;
	while (mtu_bytes >= 256 &&
	       port->netdev_mtu_bytes - ROCE_HEADER_BYTES < mtu_bytes)
		mtu_bytes /= 2;
	if (mtu_bytes >= 256)
		port->mtu_bytes = mtu_bytes;
}

static void port_read(const struct doctor *doctor, struct doctor_port *port)
{
	char text[64];

	(void)doctor_read(doctor_at(doctor, "%s/state", port->folder), text,
			  sizeof(text));
	port->is_active = strncmp(text, "4:", 2) == 0;
	(void)doctor_read(doctor_at(doctor, "%s/link_layer", port->folder),
			  text, sizeof(text));
	port->is_infiniband = strcmp(text, "InfiniBand") == 0;
	(void)doctor_read(doctor_at(doctor, "%s/rate", port->folder),
			  port->rate, sizeof(port->rate));
	(void)doctor_read(
		doctor_at(doctor, CLASS "/%s/node_type", port->device), text,
		sizeof(text));
	port->is_iwarp = strncmp(text, "4:", 2) == 0;
	port->numa_node = (int)doctor_number(
		doctor_at(doctor, CLASS "/%s/device/numa_node", port->device),
		-1);
	port->is_near = (uint32_t)doctor_is_near(doctor, port->numa_node);
	gids_read(doctor, port);
	mtu_read(doctor, port);
}

static json_t *port_json(const struct doctor_port *port)
{
	json_t *gids = json_array();
	uint32_t at;

	for (at = 0; at < port->gid_count; at++) {
		const struct doctor_gid *gid = &port->gids[at];

		(void)json_array_append_new(
			gids,
			json_pack("{s:i, s:s, s:s}", "index", (int)gid->index,
				  "kind", kvpull_gid_rank_name(gid->rank),
				  "address", gid->address));
	}
	return json_pack("{s:s, s:i, s:b, s:s, s:f, s:i, s:i, s:s, s:o}",
			 "device", port->device, "port", (int)port->number,
			 "active", (int)port->is_active, "link_layer",
			 port->is_infiniband ? "InfiniBand" : "Ethernet",
			 "link_gbps", strtod(port->rate, NULL), "mtu_bytes",
			 (int)port->mtu_bytes, "numa_node", port->numa_node,
			 "netdev", port->netdev, "gids", gids);
}

/* ---- judging it ---- */

static void port_judge(struct doctor *doctor, const struct doctor_port *port)
{
	char mtu[32] = "";

	if (port->is_absent) {
		doctor_say(doctor, SAY_PORT_IS_ABSENT, port->device);
	} else if (port->is_iwarp) {
		doctor_say(doctor, SAY_PORT_IS_IWARP, port->device);
	} else if (!port->is_active) {
		doctor_say(
			doctor, SAY_PORT_IS_DOWN, port->device, port->number,
			port->is_infiniband ?
				"check the cable and that a subnet manager runs" :
				"check the cable, and that its network device is up: ip link");
	} else if (port->gid.rank <= KVPULL_GID_V1) {
		doctor_say(doctor, SAY_PORT_HAS_NO_GID, port->device,
			   port->number, port->gid_count);
	} else {
		doctor->usable_ports++;
		if (port->mtu_bytes)
			(void)snprintf(mtu, sizeof(mtu), ", MTU %u",
				       port->mtu_bytes);
		doctor_say(doctor, SAY_PORT, port->device, port->number,
			   port->rate, mtu, port->gid_count, port->gid.index,
			   kvpull_gid_rank_name(port->gid.rank),
			   port->gid.address);
		if (port->mtu_bytes && port->mtu_bytes != 4096)
			doctor_say(doctor, SAY_MTU_IS_SMALL, port->device,
				   port->mtu_bytes, port->netdev,
				   port->netdev_mtu_bytes, port->netdev);
	}
}

static void device_read(struct doctor *doctor, const char *name,
			struct doctor_ports *ports)
{
	uint32_t number;

	for (number = 1; ports->count < DOCTOR_PORTS_MAX; number++) {
		struct doctor_port *port = &ports->list[ports->count];

		(void)snprintf(port->device, sizeof(port->device), "%.63s",
			       name);
		(void)snprintf(port->folder, sizeof(port->folder),
			       CLASS "/%s/ports/%u", name, number);
		if (!doctor_exists(doctor_at(doctor, "%s", port->folder)))
			return;
		port->number = number;
		port->is_absent = (uint32_t)doctor_is_absent(doctor, name);
		port_read(doctor, port);
		port_judge(doctor, port);
		(void)json_array_append_new(doctor->ports, port_json(port));
		ports->count++;
	}
}

/*
 * Finds a device that is asked for, of any rail, and is not there: a mistake,
 * whichever route is taken.
 */
static int unknown_find(const struct doctor *doctor,
			char name[DOCTOR_NAME_BYTES])
{
	const char *list = doctor_devices_wanted(doctor);

	while (doctor_item_next(&list, name, 64))
		if (!doctor_matches(doctor_at(doctor, CLASS "/%s", name)))
			return 1;
	return 0;
}

void doctor_devices(struct doctor *doctor)
{
	static struct doctor_ports ports;
	const int is_wanted = doctor->route == KVPULL_ROUTE_PIN_VERBS;
	const struct doctor_port *best;
	char name[DOCTOR_NAME_BYTES];
	uint32_t index;

	for (index = 0;
	     !doctor_entry(doctor_at(doctor, CLASS), "", index, name); index++)
		device_read(doctor, name, &ports);
	if (!doctor_sees(doctor, "/sys/class")) {
		doctor_say(
			doctor,
			SAY_NOT_SEEN(is_wanted ? DOCTOR_FAIL : DOCTOR_UNKNOWN,
				     "rdma"),
			doctor->root, "/sys/class");
	} else if (unknown_find(doctor, name)) {
		doctor_say(doctor, SAY_RDMA_NO_SUCH, name);
	} else if (!index) {
		doctor_say(doctor, SAY_RDMA_NONE(is_wanted ? DOCTOR_FAIL :
							     DOCTOR_NOTE));
	} else {
		best = doctor_choose(doctor, &ports);
		doctor_rights(doctor, best ? best->device : NULL);
	}
}
