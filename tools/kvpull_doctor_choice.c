/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The port that a worker would open: what its configuration names, and of that
 * the best one. The order is that of verbs/device.h.
 */
#include "tools/kvpull_doctor_port.h"

#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

#include "plugin/config/config.h"
#include "verbs/address.h"

#define GID_ANY 65535u /* as the key has it */

/* ---- what is asked for ---- */

/* Rails and local ranks have items of their own: any of them will do here. */
struct wanted {
	const char *devices;   /* names or patterns; "": any */
	const char *addresses; /* likewise */
	uint32_t port;         /* 0: any */
	uint32_t gid_index;    /* GID_ANY: any */
};

static struct wanted wanted_of(const struct doctor *doctor)
{
	const struct kvpull_config *config = doctor->config;
	struct wanted wanted = { .devices = doctor->device,
				 .addresses = "",
				 .gid_index = GID_ANY };

	if (!config)
		return wanted;
	if (!doctor->device[0])
		wanted.devices = config->verbs_device;
	wanted.addresses = config->verbs_address;
	wanted.port = config->verbs_port;
	wanted.gid_index = config->verbs_gid_index;
	return wanted;
}

static int is_narrow(const struct wanted *wanted)
{
	return wanted->addresses[0] || wanted->port ||
	       wanted->gid_index != GID_ANY;
}

static int is_same(const char *one, const char *other)
{
	struct kvpull_verbs_address first;
	struct kvpull_verbs_address second;

	return !kvpull_verbs_address_parse_ip(one, &first) &&
	       !kvpull_verbs_address_parse_ip(other, &second) &&
	       kvpull_verbs_address_is(&first, &second);
}

static int device_fits(const struct doctor_port *port,
		       const struct wanted *wanted)
{
	const char *list = wanted->devices;
	char name[64];

	while (doctor_item_next(&list, name, sizeof(name)))
		if (fnmatch(name, port->device, 0) == 0)
			return 1;
	return !wanted->devices[0];
}

/* InfiniBand GIDs are no IP addresses: they prove nothing here. */
static int address_fits(const struct doctor_port *port,
			const struct wanted *wanted, const char *address)
{
	const char *list = wanted->addresses;
	char one[INET6_ADDRSTRLEN];

	while (doctor_item_next(&list, one, sizeof(one)))
		if (is_same(one, address))
			return 1;
	return !wanted->addresses[0] || port->is_infiniband;
}

static enum kvpull_gid_rank rank_named(const char *kind)
{
	enum kvpull_gid_rank rank = KVPULL_GID_NONE;

	while (rank < KVPULL_GID_RANKS - 1 &&
	       strcmp(kvpull_gid_rank_name(rank), kind) != 0)
		rank++;
	return rank;
}

/* Takes the GID that is asked for as the port's; 1: it has one. */
static int gid_fits(struct doctor_port *port, const struct wanted *wanted)
{
	enum kvpull_gid_rank best = KVPULL_GID_NONE;
	const json_t *gid;
	size_t at;

	json_array_foreach(port->gids, at, gid)
	{
		const char *address =
			json_string_value(json_object_get(gid, "address"));
		const uint32_t index = (uint32_t)json_integer_value(
			json_object_get(gid, "index"));
		const enum kvpull_gid_rank rank = rank_named(
			json_string_value(json_object_get(gid, "kind")));

		if ((wanted->gid_index != GID_ANY &&
		     wanted->gid_index != index) ||
		    !address_fits(port, wanted, address) || rank <= best)
			continue;
		best = rank;
		port->rank = rank;
		port->gid_index = index;
		(void)snprintf(port->address, sizeof(port->address), "%s",
			       address);
	}
	return best != KVPULL_GID_NONE;
}

static int port_fits(struct doctor_port *port, const struct wanted *wanted)
{
	if (!port->is_active || port->is_absent || port->is_iwarp ||
	    !device_fits(port, wanted) ||
	    (wanted->port && wanted->port != port->number))
		return 0;
	if (wanted->gid_index == GID_ANY && !wanted->addresses[0])
		return port->rank > KVPULL_GID_V1;
	return gid_fits(port, wanted);
}

/* ---- the best of it ---- */

static int is_better(const struct doctor_port *one,
		     const struct doctor_port *other)
{
	if (one->rank != other->rank)
		return one->rank > other->rank;
	if (one->gbps > other->gbps || one->gbps < other->gbps)
		return one->gbps > other->gbps;
	return one->is_near > other->is_near;
}

static const char *why_better(const struct doctor_port *one,
			      const struct doctor_port *other)
{
	if (one->rank != other->rank)
		return "better kind of address";
	if (one->gbps > other->gbps)
		return "faster link";
	if (one->is_near != other->is_near)
		return "nearer to the CPUs of this process";
	return "the first of equals";
}

/* A worker asks the connection manager which IP address leads to the port. */
static void infiniband_judge(struct doctor *doctor,
			     const struct doctor_port *best)
{
	if (doctor->config && doctor->config->verbs_address[0])
		return;
	if (doctor_matches(doctor, CLASS "/%s/device/net/*", best->device))
		doctor_say(doctor, SAY_IB_BY_IP, best->device);
	else
		doctor_say(doctor, SAY_IB_HAS_NO_IP(doctor_verbs_level(doctor)),
			   best->device);
}

static void choice_judge(struct doctor *doctor, const struct doctor_port *best)
{
	if (best->rank == KVPULL_GID_V1 && doctor_cm_is_v1(doctor, best))
		doctor_say(doctor, SAY_GID_IS_V1, best->gid_index,
			   best->device);
	if (best->rank == KVPULL_GID_LINK_LOCAL) {
		doctor_say(doctor, SAY_GID_IS_LINK_LOCAL, best->device);
		doctor_advise(doctor, "give %s an IP address", best->netdev);
	}
	if (best->rank == KVPULL_GID_INFINIBAND)
		infiniband_judge(doctor, best);
	if (best->numa_node >= 0 && !best->is_near) {
		doctor_say(doctor, SAY_DEVICE_IS_FAR, best->device,
			   best->numa_node);
		doctor_advise(doctor,
			      "start the engine with numactl --cpunodebind=%d",
			      best->numa_node);
	}
}

/* A device of the kernel's own making has nothing behind it. */
static void link_remember(struct doctor *doctor, const struct doctor_port *port)
{
	doctor->link_is_soft =
		!doctor_exists(doctor, CLASS "/%s/device", port->device);
	doctor->link_gbps = port->gbps;
	doctor->link_mtu_bytes = port->mtu_bytes;
	memcpy(doctor->link_address, port->address, sizeof(port->address));
	memcpy(doctor->link_netdev, port->netdev, sizeof(port->netdev));
}

/* The ports of this host, for who has asked for another. */
static void ports_print(const struct doctor_ports *ports,
			char text[DOCTOR_TEXT_BYTES_MAX])
{
	size_t used = 0;
	uint32_t at;

	text[0] = '\0';
	for (at = 0; at < ports->count && used < DOCTOR_TEXT_BYTES_MAX; at++) {
		const struct doctor_port *port = &ports->list[at];

		used += (size_t)snprintf(
			text + used, DOCTOR_TEXT_BYTES_MAX - used,
			"%s%s port %u GID %u %s%s", used ? ", " : "",
			port->device, port->number, port->gid_index,
			port->address[0] ? port->address : "no address",
			port->is_active ? "" : " (not active)");
	}
}

/* A value that nothing has is a mistake, whichever route is taken. */
static void miss_say(struct doctor *doctor, const struct wanted *wanted,
		     const struct doctor_ports *ports)
{
	char there[DOCTOR_TEXT_BYTES_MAX];
	char gid[32] = "any";
	char port[32] = "any";

	if (wanted->gid_index != GID_ANY)
		(void)snprintf(gid, sizeof(gid), "%u", wanted->gid_index);
	if (wanted->port)
		(void)snprintf(port, sizeof(port), "%u", wanted->port);
	ports_print(ports, there);
	doctor_say(doctor, SAY_CHOICE_IS_NOT_THERE,
		   wanted->devices[0] ? wanted->devices : "any", port, gid,
		   wanted->addresses[0] ? wanted->addresses : "any");
	doctor_advise(doctor, "correct or unset them; there is %s", there);
}

static void none_say(struct doctor *doctor, const struct wanted *wanted,
		     const struct doctor_ports *ports)
{
	if (is_narrow(wanted))
		miss_say(doctor, wanted, ports);
	else
		doctor_say(doctor, SAY_CHOICE_NONE(doctor_verbs_level(doctor)),
			   wanted->devices[0] ? " of " : "", wanted->devices);
}

static void best_say(struct doctor *doctor, const struct doctor_port *best,
		     const char *why)
{
	doctor_say(doctor, SAY_CHOICE, best->device, best->number,
		   best->gid_index, kvpull_gid_rank_name(best->rank),
		   best->address, best->rate, why);
	doctor->chosen = json_pack("{s:s, s:i, s:i, s:s, s:s, s:s}", "device",
				   best->device, "port", (int)best->number,
				   "gid_index", (int)best->gid_index, "kind",
				   kvpull_gid_rank_name(best->rank), "address",
				   best->address, "why", why);
}

static int is_among(const char *address, const struct doctor_ports *ports)
{
	const struct wanted wanted = { .devices = "",
				       .addresses = address,
				       .gid_index = GID_ANY };
	uint32_t at;

	for (at = 0; at < ports->count; at++) {
		struct doctor_port port = ports->list[at];

		if (port_fits(&port, &wanted))
			return 1;
	}
	return 0;
}

/* A wrong address is named, though others are right. */
static void addresses_judge(struct doctor *doctor, const struct wanted *wanted,
			    const struct doctor_ports *ports)
{
	const char *list = wanted->addresses;
	char address[INET6_ADDRSTRLEN];

	while (doctor_item_next(&list, address, sizeof(address)))
		if (!is_among(address, ports))
			doctor_say(doctor, SAY_ADDRESS_IS_NOT_THERE, address);
}

void doctor_choose(struct doctor *doctor, struct doctor_ports *ports)
{
	const struct doctor_port *best = NULL;
	const struct doctor_port *next = NULL;
	const struct wanted wanted = wanted_of(doctor);
	const int is_asked = wanted.devices[0] || is_narrow(&wanted);
	uint32_t i;

	for (i = 0; i < ports->count; i++) {
		struct doctor_port *port = &ports->list[i];

		if (!port_fits(port, &wanted))
			continue;
		if (!best || is_better(port, best)) {
			next = best;
			best = port;
		} else if (!next || is_better(port, next)) {
			next = port;
		}
	}
	if (!best) {
		none_say(doctor, &wanted, ports);
		return;
	}
	best_say(doctor, best,
		 is_asked ? "asked for" :
		 next     ? why_better(best, next) :
			    "the only one");
	if (next && !is_asked)
		doctor_advise(
			doctor,
			"another: verbs_device, verbs_port, verbs_gid_index");
	link_remember(doctor, best);
	choice_judge(doctor, best);
	doctor_cm_mode(doctor, best);
	doctor_fork(doctor);
	addresses_judge(doctor, &wanted, ports);
}
