/* SPDX-License-Identifier: Apache-2.0 */
/*
 * RDMA devices as the kernel shows them in /sys/class/infiniband, without any
 * library: a host that lacks the libraries is told so. The order of choice is
 * that of verbs/device.h.
 */
#include "tools/kvpull_doctor_port.h"

#include <arpa/inet.h>
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "plugin/config/config.h"
#include "verbs/place.h"

#define GIDS_MAX 1024u
/*
 * RoCE's headers take at most this many bytes; the kernel computes with the
 * same sum.
 */
#define ROCE_HEADER_BYTES 96

/* ---- reading a port ---- */

/* "fe80:0000:0000:..." as bytes; 0, or -1: empty or no GID. */
static int gid_parse(const char *text, uint8_t gid[16])
{
	static const uint8_t none[16];

	return inet_pton(AF_INET6, text, gid) == 1 &&
			       memcmp(gid, none, sizeof(none)) ?
		       0 :
		       -1;
}

static enum kvpull_gid_rank gid_rank(const uint8_t gid[16], const char *type)
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };

	if (strncmp(type, "IB/RoCE v1", 10) == 0)
		return KVPULL_GID_V1;
	if (gid[0] == 0xfe && (gid[1] & 0xc0) == 0x80)
		return KVPULL_GID_LINK_LOCAL;
	return memcmp(gid, mapped, sizeof(mapped)) ? KVPULL_GID_IPV6 :
						     KVPULL_GID_IPV4;
}

static void gid_print(const uint8_t gid[16], enum kvpull_gid_rank rank,
		      char text[INET6_ADDRSTRLEN])
{
	if (rank == KVPULL_GID_IPV4)
		(void)inet_ntop(AF_INET, gid + 12, text, INET6_ADDRSTRLEN);
	else
		(void)inet_ntop(AF_INET6, gid, text, INET6_ADDRSTRLEN);
}

static void gids_read(const struct doctor *doctor, struct doctor_port *port,
		      json_t *list)
{
	const char *name = port->device;
	char text[64];
	char type[32];
	uint32_t index;

	for (index = 0; index < GIDS_MAX; index++) {
		char address[INET6_ADDRSTRLEN];
		uint8_t gid[16];
		enum kvpull_gid_rank rank;

		if (doctor_read(doctor, text, sizeof(text),
				CLASS "/%s/ports/%u/gids/%u", name,
				port->number, index) < 0)
			return;
		if (gid_parse(text, gid))
			continue;
		(void)doctor_read(doctor, type, sizeof(type),
				  CLASS "/%s/ports/%u/gid_attrs/types/%u", name,
				  port->number, index);
		rank = port->is_infiniband ? KVPULL_GID_INFINIBAND :
					     gid_rank(gid, type);
		gid_print(gid, rank, address);
		port->gid_count++;
		(void)json_array_append_new(
			list, json_pack("{s:i, s:s, s:s}", "index", (int)index,
					"kind", kvpull_gid_rank_name(rank),
					"address", address));
		if (rank <= port->rank)
			continue;
		port->rank = rank;
		port->gid_index = index;
		memcpy(port->address, address, sizeof(address));
		(void)doctor_read(doctor, port->netdev, sizeof(port->netdev),
				  CLASS "/%s/ports/%u/gid_attrs/ndevs/%u", name,
				  port->number, index);
	}
}

static void mtu_read(const struct doctor *doctor, struct doctor_port *port)
{
	uint32_t mtu_bytes;

	port->netdev_mtu_bytes =
		doctor_number(doctor, 0, "/sys/class/net/%s/mtu", port->netdev);
	if (port->is_infiniband || !port->netdev[0])
		return;
	for (mtu_bytes = 4096; mtu_bytes >= 256; mtu_bytes /= 2) {
		if (port->netdev_mtu_bytes - ROCE_HEADER_BYTES < mtu_bytes)
			continue;
		port->mtu_bytes = mtu_bytes;
		return;
	}
}

/* To any CPU that a process begun as this one may use, as the library has it. */
static int is_near(const struct doctor *doctor, const struct doctor_port *port)
{
	char list[512];
	cpu_set_t cpus;

	(void)doctor_read(doctor, list, sizeof(list),
			  "/sys/devices/system/node/node%d/cpulist",
			  port->numa_node);
	return !sched_getaffinity(getpid(), sizeof(cpus), &cpus) &&
	       kvpull_place_is_among(list, &cpus);
}

static void port_read(struct doctor *doctor, struct doctor_port *port)
{
	const char *name = port->device;
	json_t *gids = json_array();
	char text[64];

	(void)doctor_read(doctor, text, sizeof(text),
			  CLASS "/%s/ports/%u/state", name, port->number);
	port->is_active = strncmp(text, "4:", 2) == 0;
	(void)doctor_read(doctor, text, sizeof(text),
			  CLASS "/%s/ports/%u/link_layer", name, port->number);
	port->is_infiniband = strcmp(text, "InfiniBand") == 0;
	(void)doctor_read(doctor, port->rate, sizeof(port->rate),
			  CLASS "/%s/ports/%u/rate", name, port->number);
	port->gbps = strtod(port->rate, NULL);
	port->numa_node = (int)doctor_number(
		doctor, -1, CLASS "/%s/device/numa_node", name);
	port->is_near = (uint32_t)is_near(doctor, port);
	(void)doctor_read(doctor, text, sizeof(text), CLASS "/%s/node_type",
			  name);
	port->is_iwarp = strncmp(text, "4:", 2) == 0;
	gids_read(doctor, port, gids);
	port->gids = gids;
	mtu_read(doctor, port);
	(void)json_array_append_new(
		doctor->ports,
		json_pack("{s:s, s:i, s:b, s:s, s:f, s:i, s:i, s:s, s:o}",
			  "device", name, "port", (int)port->number, "active",
			  (int)port->is_active, "link_layer",
			  port->is_infiniband ? "InfiniBand" : "Ethernet",
			  "link_gbps", port->gbps, "mtu_bytes",
			  (int)port->mtu_bytes, "numa_node", port->numa_node,
			  "netdev", port->netdev, "gids", gids));
}

/* ---- judging it ---- */

static void mtu_judge(struct doctor *doctor, const struct doctor_port *port)
{
	if (!port->mtu_bytes || port->mtu_bytes == 4096)
		return;
	doctor_say(doctor, SAY_MTU_IS_SMALL, port->device, port->mtu_bytes,
		   port->netdev, port->netdev_mtu_bytes);
	doctor_advise(
		doctor,
		"if the network carries it: ip link set %s mtu 4200, or 9000, on all hosts",
		port->netdev);
}

static void port_judge(struct doctor *doctor, const struct doctor_port *port)
{
	/* Another port may do: only the choice can fail. */
	const enum doctor_level level = doctor->route == KVPULL_ROUTE_PIN_SHM ?
						DOCTOR_NOTE :
						DOCTOR_WARN;
	char mtu[32] = "";

	if (port->is_absent) {
		doctor_say(doctor, SAY_PORT_IS_ABSENT, port->device);
		return;
	}
	if (port->is_iwarp) {
		doctor_say(doctor, SAY_PORT_IS_IWARP(level), port->device);
		return;
	}
	if (!port->is_active) {
		doctor_say(doctor, SAY_PORT_IS_DOWN(level), port->device,
			   port->number);
		doctor_advise(
			doctor,
			port->is_infiniband ?
				"check the cable and that a subnet manager runs" :
				"check the cable, and that its network device is up: ip link");
		return;
	}
	if (port->rank <= KVPULL_GID_V1) {
		doctor_say(doctor, SAY_PORT_HAS_NO_GID(level), port->device,
			   port->number, port->gid_count);
		return;
	}
	doctor->usable_ports++;
	if (port->mtu_bytes)
		(void)snprintf(mtu, sizeof(mtu), ", MTU %u", port->mtu_bytes);
	doctor_say(doctor, SAY_PORT, port->device, port->number, port->rate,
		   mtu, port->gid_count, port->gid_index,
		   kvpull_gid_rank_name(port->rank), port->address);
	mtu_judge(doctor, port);
}

static void device_read(struct doctor *doctor, const char *name,
			struct doctor_ports *ports)
{
	const uint32_t absent = (uint32_t)doctor_is_absent(doctor, name);
	uint32_t number;

	for (number = 1; ports->count < DOCTOR_PORTS_MAX; number++) {
		struct doctor_port *port = &ports->list[ports->count];

		if (!doctor_exists(doctor, CLASS "/%s/ports/%u", name, number))
			return;
		*port = (struct doctor_port){ .number = number,
					      .is_absent = absent };
		(void)snprintf(port->device, sizeof(port->device), "%.63s",
			       name);
		port_read(doctor, port);
		port_judge(doctor, port);
		ports->count++;
	}
}

/*
 * Finds a device that is asked for, of any rail, and is not there: a mistake,
 * whichever route is taken.
 */
static int unknown_find(const struct doctor *doctor, char name[64])
{
	const char *list = doctor->config ? doctor->config->verbs_device : "";

	if (doctor->device[0])
		list = doctor->device;
	while (doctor_item_next(&list, name, 64))
		if (!doctor_matches(doctor, CLASS "/%s", name))
			return 1;
	return 0;
}

static void none_judge(struct doctor *doctor)
{
	const int is_wanted = doctor->route == KVPULL_ROUTE_PIN_VERBS;
	char name[64];

	if (!doctor_sees(doctor, "/sys/class"))
		doctor_say_unknown(doctor,
				   is_wanted ? DOCTOR_FAIL : DOCTOR_UNKNOWN,
				   "rdma", "/sys/class");
	else if (unknown_find(doctor, name))
		doctor_say(doctor, SAY_RDMA_NO_SUCH, name);
	else
		doctor_say(doctor, SAY_RDMA_NONE(is_wanted ? DOCTOR_FAIL :
							     DOCTOR_NOTE));
}

void doctor_devices(struct doctor *doctor)
{
	static struct doctor_ports ports;
	char name[DOCTOR_NAME_BYTES];
	uint32_t index;

	for (index = 0; !doctor_entry(doctor, CLASS, "", index, name); index++)
		device_read(doctor, name, &ports);
	if (!index || unknown_find(doctor, name)) {
		none_judge(doctor);
		return;
	}
	doctor_choose(doctor, &ports);
	doctor_rights(doctor);
}
