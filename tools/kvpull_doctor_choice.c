/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The port that a worker would open: what its configuration names, and of that
 * the best one. The order is that of verbs/device.h.
 */
#include "tools/kvpull_doctor_port.h"

#include <stdio.h>
#include <string.h>

#include "plugin/config/config.h"
#include "verbs/address.h"

#define CLASS "/sys/class/infiniband"
#define GID_ANY 65535u /* as the key has it */

/* ---- what is asked for ---- */

struct wanted {
	char device[64]; /* of the first rail; "": any */
	char address[INET6_ADDRSTRLEN];
	uint32_t port;
	uint32_t gid_index; /* GID_ANY: any */
};

static void wanted_take(const struct doctor *doctor, struct wanted *wanted)
{
	const struct kvpull_config *config = doctor->config;
	const char *devices = config ? config->verbs_device : "";
	const char *addresses = config ? config->verbs_address : "";

	if (doctor->device[0])
		devices = doctor->device;
	*wanted = (struct wanted){ .gid_index = GID_ANY };
	/* The library refuses a name that is longer. */
	if (kvpull_verbs_item_next(&devices, wanted->device,
				   sizeof(wanted->device)) < 0 ||
	    kvpull_verbs_item_next(&addresses, wanted->address,
				   sizeof(wanted->address)) < 0)
		wanted->device[0] = '\0';
	if (!config)
		return;
	wanted->port = config->verbs_port;
	wanted->gid_index = config->verbs_gid_index;
}

static int is_narrow(const struct wanted *wanted)
{
	return wanted->address[0] || wanted->port ||
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
		    (wanted->address[0] && !port->is_infiniband &&
		     !is_same(address, wanted->address)) ||
		    rank <= best)
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
	    (wanted->device[0] && strcmp(wanted->device, port->device) != 0) ||
	    (wanted->port && wanted->port != port->number))
		return 0;
	if (wanted->gid_index == GID_ANY && !wanted->address[0])
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

static void choice_judge(struct doctor *doctor, const struct doctor_port *best)
{
	if (best->rank == KVPULL_GID_V1) {
		doctor_say(
			doctor, DOCTOR_WARN, "choice",
			"GID %u of %s is RoCE v1: no router carries it, and the peer's may be v2",
			best->gid_index, best->device);
		doctor_advise(doctor, "verbs_gid_index of a RoCE v2 GID");
	}
	if (best->rank == KVPULL_GID_LINK_LOCAL) {
		doctor_say(
			doctor, DOCTOR_WARN, "choice",
			"%s has a link-local address only: hosts of other links are out of reach",
			best->device);
		doctor_advise(doctor, "give %s an IP address", best->netdev);
	}
	if (best->rank == KVPULL_GID_INFINIBAND &&
	    !(doctor->config && doctor->config->verbs_address[0])) {
		doctor_say(doctor, doctor_verbs_level(doctor, DOCTOR_WARN),
			   "choice",
			   "%s is InfiniBand: it is found by its IP address",
			   best->device);
		doctor_advise(
			doctor,
			"configure IPoIB on it and set verbs_address to that address");
	}
	if (best->numa_node >= 0 && !best->is_near) {
		doctor_say(
			doctor, DOCTOR_WARN, "choice",
			"%s is on NUMA node %d, none of whose CPUs this process may use",
			best->device, best->numa_node);
		doctor_advise(doctor,
			      "start the engine with numactl --cpunodebind=%d",
			      best->numa_node);
	}
}

/* A device of the kernel's own making has nothing behind it. */
static void link_remember(struct doctor *doctor, const struct doctor_port *port)
{
	char path[DOCTOR_PATH_BYTES_MAX];

	(void)snprintf(path, sizeof(path), CLASS "/%s/device", port->device);
	doctor->link_is_soft = (uint32_t)!doctor_exists(doctor, path);
	doctor->link_gbps = port->gbps;
	doctor->link_mtu_bytes = port->mtu_bytes;
	memcpy(doctor->link_address, port->address, sizeof(port->address));
	memcpy(doctor->link_netdev, port->netdev, sizeof(port->netdev));
}

/* What there is, for who has asked for something else. */
static void ports_print(const struct doctor_port *ports, uint32_t port_count,
			char text[DOCTOR_TEXT_BYTES_MAX])
{
	size_t used = 0;
	uint32_t at;

	text[0] = '\0';
	for (at = 0; at < port_count && used < DOCTOR_TEXT_BYTES_MAX; at++)
		used += (size_t)snprintf(
			text + used, DOCTOR_TEXT_BYTES_MAX - used,
			"%s%s port %u GID %u %s%s", used ? ", " : "",
			ports[at].device, ports[at].number, ports[at].gid_index,
			ports[at].address[0] ? ports[at].address : "no address",
			ports[at].is_active ? "" : " (not active)");
}

/* A value that nothing has is a mistake, whichever route is taken. */
static void miss_say(struct doctor *doctor, const struct wanted *wanted,
		     const struct doctor_port *ports, uint32_t port_count)
{
	char there[DOCTOR_TEXT_BYTES_MAX];
	char gid[32] = "any";
	char port[32] = "any";

	if (wanted->gid_index != GID_ANY)
		(void)snprintf(gid, sizeof(gid), "%u", wanted->gid_index);
	if (wanted->port)
		(void)snprintf(port, sizeof(port), "%u", wanted->port);
	ports_print(ports, port_count, there);
	doctor_say(
		doctor, DOCTOR_FAIL, "choice",
		"nothing has what is configured: verbs_device %s, verbs_port %s, verbs_gid_index %s, verbs_address %s",
		wanted->device[0] ? wanted->device : "any", port, gid,
		wanted->address[0] ? wanted->address : "any");
	doctor_advise(doctor, "correct or unset them; there is %s", there);
}

static void none_say(struct doctor *doctor, const struct wanted *wanted,
		     const struct doctor_port *ports, uint32_t port_count)
{
	if (is_narrow(wanted)) {
		miss_say(doctor, wanted, ports, port_count);
		return;
	}
	doctor_say(doctor, doctor_verbs_level(doctor, DOCTOR_WARN), "choice",
		   "no port%s%s can be used between machines",
		   wanted->device[0] ? " of " : "", wanted->device);
}

static void best_say(struct doctor *doctor, const struct doctor_port *best,
		     const char *why)
{
	doctor_say(doctor, DOCTOR_OK, "choice",
		   "%s port %u, GID %u (%s %s), %s: %s", best->device,
		   best->number, best->gid_index,
		   kvpull_gid_rank_name(best->rank), best->address, best->rate,
		   why);
	json_decref(doctor->chosen);
	doctor->chosen = json_pack("{s:s, s:i, s:i, s:s, s:s, s:s}", "device",
				   best->device, "port", (int)best->number,
				   "gid_index", (int)best->gid_index, "kind",
				   kvpull_gid_rank_name(best->rank), "address",
				   best->address, "why", why);
}

static int is_among(const char *address, const struct doctor_port *ports,
		    uint32_t port_count)
{
	struct wanted one = { .gid_index = GID_ANY };
	uint32_t at;

	(void)snprintf(one.address, sizeof(one.address), "%s", address);
	for (at = 0; at < port_count; at++) {
		struct doctor_port port = ports[at];

		if (port_fits(&port, &one))
			return 1;
	}
	return 0;
}

/* Those of further rails, too: the first one's is that of the choice. */
static void addresses_judge(struct doctor *doctor,
			    const struct doctor_port *ports,
			    uint32_t port_count)
{
	const char *list = doctor->config ? doctor->config->verbs_address : "";
	char address[INET6_ADDRSTRLEN];

	while (list && *list &&
	       kvpull_verbs_item_next(&list, address, sizeof(address)) > 0) {
		if (is_among(address, ports, port_count))
			continue;
		doctor_say(doctor, DOCTOR_FAIL, "choice",
			   "no port has the address %s of verbs_address",
			   address);
		doctor_advise(
			doctor,
			"correct or unset it: that rail would be missing");
	}
}

void doctor_choose(struct doctor *doctor, struct doctor_port *ports,
		   uint32_t port_count)
{
	const struct doctor_port *best = NULL;
	const struct doctor_port *next = NULL;
	struct wanted wanted;
	uint32_t i;
	int is_asked;

	wanted_take(doctor, &wanted);
	is_asked = wanted.device[0] || is_narrow(&wanted);
	for (i = 0; i < port_count; i++) {
		if (!port_fits(&ports[i], &wanted))
			continue;
		if (!best || is_better(&ports[i], best)) {
			next = best;
			best = &ports[i];
		} else if (!next || is_better(&ports[i], next)) {
			next = &ports[i];
		}
	}
	if (!best) {
		none_say(doctor, &wanted, ports, port_count);
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
	addresses_judge(doctor, ports, port_count);
}
