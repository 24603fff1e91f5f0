/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The port that a worker would open: what its configuration names, and of that
 * the best one. The order is that of verbs/device.h.
 */
#include "tools/kvpull_doctor_port.h"

#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plugin/config/config.h"
#include "verbs/address.h"
#include "verbs/pick.h"
#include "verbs/place.h"

#define GID_ANY 65535u /* as the key has it */

/* ---- what is asked for ---- */

/* Rails and local ranks have items of their own: any of them will do here. */
struct wanted {
	const char *devices;   /* names or patterns; "": any */
	const char *addresses; /* likewise */
	uint32_t port;         /* 0: any */
	uint32_t gid_index;    /* GID_ANY: any */
};

const char *doctor_devices_wanted(const struct doctor *doctor)
{
	return !doctor->device[0] && doctor->config ?
		       doctor->config->verbs_device :
		       doctor->device;
}

static struct wanted wanted_of(const struct doctor *doctor)
{
	const struct kvpull_config *config = doctor->config;

	return (struct wanted){
		.devices = doctor_devices_wanted(doctor),
		.addresses = config ? config->verbs_address : "",
		.port = config ? config->verbs_port : 0,
		.gid_index = config ? config->verbs_gid_index : GID_ANY,
	};
}

static int is_narrow(const struct wanted *wanted)
{
	return wanted->addresses[0] || wanted->port ||
	       wanted->gid_index != GID_ANY;
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

static int is_among(const char *text, const char *list)
{
	struct kvpull_verbs_address address;
	struct kvpull_verbs_address other;
	char item[INET6_ADDRSTRLEN];

	while (doctor_item_next(&list, item, sizeof(item)))
		if (!kvpull_verbs_address_parse_ip(item, &other) &&
		    !kvpull_verbs_address_parse_ip(text, &address) &&
		    kvpull_verbs_address_is(&address, &other))
			return 1;
	return 0;
}

/* The best GID that is asked for; NULL: there is none. */
static const struct doctor_gid *gid_best(const struct doctor_port *port,
					 const struct wanted *wanted)
{
	/* InfiniBand GIDs are no IP addresses: they prove nothing here. */
	const char *addresses = port->is_infiniband ? "" : wanted->addresses;
	const struct doctor_gid *best = NULL;
	uint32_t at;

	for (at = 0; at < port->gid_count; at++) {
		const struct doctor_gid *gid = &port->gids[at];

		if ((wanted->gid_index == GID_ANY ||
		     wanted->gid_index == gid->index) &&
		    (!addresses[0] || is_among(gid->address, addresses)) &&
		    (!best || gid->rank > best->rank))
			best = gid;
	}
	return best;
}

/* The GID that a worker would take; NULL: not this port. */
static const struct doctor_gid *port_fits(const struct doctor_port *port,
					  const struct wanted *wanted)
{
	const int is_named =
		wanted->gid_index != GID_ANY || wanted->addresses[0];
	const struct doctor_gid *gid = gid_best(port, wanted);

	if (!port->is_active || port->is_absent || port->is_iwarp ||
	    !device_fits(port, wanted) ||
	    (wanted->port && wanted->port != port->number))
		return NULL;
	/* RoCE v1 only where its GID or address is named. */
	return gid && (is_named || gid->rank > KVPULL_GID_V1) ? gid : NULL;
}

/* ---- the best of it ---- */

/* A worker asks the connection manager which IP address leads to the port. */
static void infiniband_judge(struct doctor *doctor,
			     const struct doctor_port *best)
{
	if (doctor->config && doctor->config->verbs_address[0])
		return;
	if (doctor_matches(
		    doctor_at(doctor, CLASS "/%s/device/net/*", best->device)))
		doctor_say(doctor, SAY_IB_BY_IP, best->device);
	else
		doctor_say(doctor, SAY_IB_HAS_NO_IP, best->device);
}

static void choice_judge(struct doctor *doctor, const struct doctor_port *best)
{
	if (best->gid.rank == KVPULL_GID_V1 && doctor_cm_is_v1(doctor, best))
		doctor_say(doctor, SAY_GID_IS_V1, best->gid.index,
			   best->device);
	if (best->gid.rank == KVPULL_GID_LINK_LOCAL)
		doctor_say(doctor, SAY_GID_IS_LINK_LOCAL, best->device,
			   best->netdev);
	if (best->gid.rank == KVPULL_GID_INFINIBAND)
		infiniband_judge(doctor, best);
	if (best->numa_node >= 0 && !best->is_near)
		doctor_say(doctor, SAY_DEVICE_IS_FAR, best->device,
			   best->numa_node, best->numa_node);
}

/* A device of the kernel's own making has nothing behind it. */
static void link_remember(struct doctor *doctor, const struct doctor_port *port)
{
	doctor->link_is_soft = !doctor_exists(
		doctor_at(doctor, CLASS "/%s/device", port->device));
	doctor->link_gbps = strtod(port->rate, NULL);
	doctor->link_mtu_bytes = port->mtu_bytes;
	memcpy(doctor->link_address, port->gid.address,
	       sizeof(port->gid.address));
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
			port->device, port->number, port->gid.index,
			port->gid.address[0] ? port->gid.address : "no address",
			port->is_active ? "" : " (not active)");
	}
}

static void none_say(struct doctor *doctor, const struct wanted *wanted,
		     const struct doctor_ports *ports)
{
	char there[DOCTOR_TEXT_BYTES_MAX];
	char gid[32] = "any";
	char port[32] = "any";

	if (!is_narrow(wanted)) {
		doctor_say(doctor, SAY_CHOICE_NONE,
			   wanted->devices[0] ? " of " : "", wanted->devices);
		return;
	}
	/* A value that nothing has is a mistake, whichever route is taken. */
	if (wanted->gid_index != GID_ANY)
		(void)snprintf(gid, sizeof(gid), "%u", wanted->gid_index);
	if (wanted->port)
		(void)snprintf(port, sizeof(port), "%u", wanted->port);
	ports_print(ports, there);
	doctor_say(doctor, SAY_CHOICE_IS_NOT_THERE,
		   wanted->devices[0] ? wanted->devices : "any", port, gid,
		   wanted->addresses[0] ? wanted->addresses : "any", there);
}

static int is_asked(const struct wanted *wanted)
{
	return wanted->devices[0] || is_narrow(wanted);
}

static const char *why_of(const struct kvpull_verbs_choice *choice,
			  const struct wanted *wanted)
{
	static const char *const respects[] = {
		[KVPULL_VERBS_BY_KIND] = "better kind of address",
		[KVPULL_VERBS_BY_SPEED] = "faster link",
		[KVPULL_VERBS_BY_NEARNESS] =
			"nearer to the CPUs of this process",
	};

	if (is_asked(wanted))
		return "asked for";
	if (choice->free_count == 1)
		return "the only one";
	return choice->equal_count > 1 ? "the first of equals" :
					 respects[choice->respect];
}

static void best_say(struct doctor *doctor, const struct doctor_port *best,
		     const struct kvpull_verbs_choice *choice,
		     const struct wanted *wanted)
{
	const char *kind = kvpull_gid_rank_name(best->gid.rank);
	const char *why = why_of(choice, wanted);

	doctor_say(
		doctor, SAY_CHOICE, best->device, best->number, best->gid.index,
		kind, best->gid.address, best->rate, why,
		choice->free_count > 1 && !is_asked(wanted) ?
			"another: verbs_device, verbs_port, verbs_gid_index" :
			"");
	doctor->chosen = json_pack(
		"{s:s, s:i, s:i, s:s, s:s, s:s}", "device", best->device,
		"port", (int)best->number, "gid_index", (int)best->gid.index,
		"kind", kind, "address", best->gid.address, "why", why);
}

/* A wrong address is named, though others are right. */
static void addresses_judge(struct doctor *doctor, const char *list,
			    const struct doctor_ports *ports)
{
	char address[INET6_ADDRSTRLEN];
	const struct wanted wanted = { .devices = "",
				       .addresses = address,
				       .gid_index = GID_ANY };

	while (doctor_item_next(&list, address, sizeof(address))) {
		uint32_t at = 0;

		while (at < ports->count &&
		       !port_fits(&ports->list[at], &wanted))
			at++;
		if (at == ports->count)
			doctor_say(doctor, SAY_ADDRESS_IS_NOT_THERE, address);
	}
}

const struct doctor_port *doctor_choose(struct doctor *doctor,
					struct doctor_ports *ports)
{
	const struct wanted wanted = wanted_of(doctor);
	struct kvpull_verbs_port fitting[DOCTOR_PORTS_MAX];
	struct kvpull_verbs_choice choice;
	const struct doctor_port *best;
	uint32_t i;

	for (i = 0; i < ports->count; i++) {
		struct doctor_port *port = &ports->list[i];
		const struct doctor_gid *gid = port_fits(port, &wanted);

		if (gid)
			port->gid = *gid;
		fitting[i] = (struct kvpull_verbs_port){
			.rank = gid ? gid->rank : KVPULL_GID_NONE,
			.link_mbps = kvpull_place_rate_mbps(port->rate),
			.distance = !port->is_near,
			.is_taken = !gid,
		};
	}
	kvpull_verbs_pick(fitting, ports->count, 0, &choice);
	if (!choice.port) {
		none_say(doctor, &wanted, ports);
		return NULL;
	}
	best = &ports->list[choice.port - fitting];
	best_say(doctor, best, &choice, &wanted);
	link_remember(doctor, best);
	choice_judge(doctor, best);
	doctor_cm_mode(doctor, best);
	doctor_fork(doctor);
	addresses_judge(doctor, wanted.addresses, ports);
	return best;
}
