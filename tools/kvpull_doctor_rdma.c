/* SPDX-License-Identifier: Apache-2.0 */
/*
 * RDMA devices as the kernel shows them in /sys/class/infiniband, without any
 * library: a host that lacks the libraries is told so. The order of choice is
 * that of verbs/device.h.
 */
#include "tools/kvpull_doctor_parts.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "verbs/gid.h"
#include "verbs/place.h"

#define CLASS "/sys/class/infiniband"
#define NODES "/sys/class/infiniband_verbs"
#define PORTS_MAX 32u
#define GIDS_MAX 1024u
/*
 * RoCE's headers take at most this many bytes; the kernel computes with the
 * same sum.
 */
#define ROCE_HEADER_BYTES 96

struct port {
	char device[64];
	char netdev[64];
	char address[INET6_ADDRSTRLEN];
	char rate[64];
	uint32_t number;
	uint32_t is_active;
	uint32_t is_infiniband;
	uint32_t is_near;
	uint32_t is_absent; /* its node is: a container was not given it */
	uint32_t gid_index; /* the best one */
	uint32_t gid_count;
	enum kvpull_gid_rank rank;
	double gbps;
	int numa_node;
	uint32_t mtu_bytes; /* 0: not told */
	long long netdev_mtu_bytes;
};

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

static void gids_read(const struct doctor *doctor, struct port *port,
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

static void mtu_read(const struct doctor *doctor, struct port *port)
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
static int is_near(const struct doctor *doctor, const struct port *port)
{
	char list[512];
	cpu_set_t cpus;

	(void)doctor_read(doctor, list, sizeof(list),
			  "/sys/devices/system/node/node%d/cpulist",
			  port->numa_node);
	return !sched_getaffinity(getpid(), sizeof(cpus), &cpus) &&
	       kvpull_place_is_among(list, &cpus);
}

static void port_read(struct doctor *doctor, struct port *port)
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
	gids_read(doctor, port, gids);
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

static void mtu_judge(struct doctor *doctor, const struct port *port)
{
	if (!port->mtu_bytes || port->mtu_bytes == 4096)
		return;
	doctor_say(doctor, DOCTOR_WARN, "mtu",
		   "%s: MTU %u, as %s has %lld; 4096 sends fewer packets",
		   port->device, port->mtu_bytes, port->netdev,
		   port->netdev_mtu_bytes);
	doctor_advise(
		doctor,
		"if the network carries it: ip link set %s mtu 4200, or 9000, on all hosts",
		port->netdev);
}

static void port_judge(struct doctor *doctor, const struct port *port)
{
	/* Another port may do: only the choice can fail. */
	const enum doctor_level level =
		doctor->route == DOCTOR_ROUTE_SHM ? DOCTOR_NOTE : DOCTOR_WARN;
	char mtu[32] = "";

	if (port->is_absent) {
		doctor_say(doctor, DOCTOR_NOTE, "port",
			   "%s is not in /dev/infiniband here: left out",
			   port->device);
		return;
	}
	if (!port->is_active) {
		doctor_say(doctor, level, "port", "%s port %u is not active",
			   port->device, port->number);
		doctor_advise(
			doctor,
			port->is_infiniband ?
				"check the cable and that a subnet manager runs" :
				"check the cable, and that its network device is up: ip link");
		return;
	}
	if (port->rank <= KVPULL_GID_V1) {
		doctor_say(doctor, level, "port",
			   "%s port %u has no GID that is used (%u in all)",
			   port->device, port->number, port->gid_count);
		doctor_advise(
			doctor,
			"give its network device an IP address, and RoCE v2");
		return;
	}
	doctor->usable_ports++;
	if (port->mtu_bytes)
		(void)snprintf(mtu, sizeof(mtu), ", MTU %u", port->mtu_bytes);
	doctor_say(doctor, DOCTOR_OK, "port",
		   "%s port %u active, %s%s, GIDs %u, best %u: %s %s",
		   port->device, port->number, port->rate, mtu, port->gid_count,
		   port->gid_index, kvpull_gid_rank_name(port->rank),
		   port->address);
	mtu_judge(doctor, port);
}

static int is_better(const struct port *one, const struct port *other)
{
	if (one->rank != other->rank)
		return one->rank > other->rank;
	if (one->gbps > other->gbps || one->gbps < other->gbps)
		return one->gbps > other->gbps;
	return one->is_near > other->is_near;
}

static const char *why_better(const struct port *one, const struct port *other)
{
	if (one->rank != other->rank)
		return "better kind of address";
	if (one->gbps > other->gbps)
		return "faster link";
	if (one->is_near != other->is_near)
		return "nearer to the CPUs of this process";
	return "the first of equals";
}

static void choice_judge(struct doctor *doctor, const struct port *best)
{
	if (best->rank == KVPULL_GID_LINK_LOCAL) {
		doctor_say(
			doctor, DOCTOR_WARN, "choice",
			"%s has a link-local address only: hosts of other links are out of reach",
			best->device);
		doctor_advise(doctor, "give %s an IP address", best->netdev);
	}
	if (best->rank == KVPULL_GID_INFINIBAND) {
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
static void link_remember(struct doctor *doctor, const struct port *port)
{
	char path[DOCTOR_PATH_BYTES_MAX];

	(void)snprintf(path, sizeof(path), CLASS "/%s/device", port->device);
	doctor->link_is_soft = (uint32_t)!doctor_exists(doctor, path);
	doctor->link_gbps = port->gbps;
	doctor->link_mtu_bytes = port->mtu_bytes;
	memcpy(doctor->link_address, port->address, sizeof(port->address));
	memcpy(doctor->link_netdev, port->netdev, sizeof(port->netdev));
}

static void choose(struct doctor *doctor, const struct port *ports,
		   uint32_t port_count)
{
	const struct port *best = NULL;
	const struct port *next = NULL;
	const char *why = "the only one";
	uint32_t i;

	for (i = 0; i < port_count; i++) {
		const struct port *port = &ports[i];

		if (!port->is_active || port->is_absent ||
		    port->rank <= KVPULL_GID_V1 ||
		    (doctor->device[0] &&
		     strcmp(doctor->device, port->device) != 0))
			continue;
		if (!best || is_better(port, best)) {
			next = best;
			best = port;
		} else if (!next || is_better(port, next)) {
			next = port;
		}
	}
	if (!best) {
		doctor_say(doctor, doctor_verbs_level(doctor, DOCTOR_WARN),
			   "choice", "no port%s%s can be used between machines",
			   doctor->device[0] ? " of " : "", doctor->device);
		return;
	}
	if (next)
		why = why_better(best, next);
	if (doctor->device[0])
		why = "asked for";
	doctor_say(doctor, DOCTOR_OK, "choice",
		   "%s port %u, GID %u (%s %s), %s: %s", best->device,
		   best->number, best->gid_index,
		   kvpull_gid_rank_name(best->rank), best->address, best->rate,
		   why);
	if (next && !doctor->device[0])
		doctor_advise(
			doctor,
			"another: verbs_device, verbs_port, verbs_gid_index");
	link_remember(doctor, best);
	json_decref(doctor->chosen);
	doctor->chosen = json_pack("{s:s, s:i, s:i, s:s, s:s, s:s}", "device",
				   best->device, "port", (int)best->number,
				   "gid_index", (int)best->gid_index, "kind",
				   kvpull_gid_rank_name(best->rank), "address",
				   best->address, "why", why);
	choice_judge(doctor, best);
}

/* ---- what a user's process needs besides ---- */

static void libraries(struct doctor *doctor)
{
	static const char *const names[] = { "libibverbs.so.1",
					     "librdmacm.so.1" };
	uint32_t i;

	for (i = 0; i < 2; i++) {
		void *library = dlopen(names[i], RTLD_LAZY | RTLD_LOCAL);

		if (library) {
			(void)dlclose(library);
			continue;
		}
		doctor_say(doctor, doctor_verbs_level(doctor, DOCTOR_WARN),
			   "libraries", "%s is not installed", names[i]);
		doctor_advise(
			doctor,
			"apt-get install libibverbs1 librdmacm1 ibverbs-providers");
		return;
	}
	doctor_say(doctor, DOCTOR_OK, "libraries", "libibverbs and librdmacm");
}

static int is_name(const struct dirent *entry)
{
	return entry->d_name[0] != '.';
}

/*
 * Finds a device's ib_uverbs node, "uverbs3"; 0, or -1: the kernel does not
 * say.
 */
static int node_find(const struct doctor *doctor, const char *device,
		     char node[64])
{
	char path[2 * DOCTOR_PATH_BYTES_MAX];
	char owner[64];
	struct dirent **names = NULL;
	int count;
	int found = -1;

	(void)snprintf(path, sizeof(path), "%s" NODES, doctor->root);
	count = scandir(path, &names, is_name, versionsort);
	while (count > 0) {
		struct dirent *name = names[--count];

		(void)doctor_read(doctor, owner, sizeof(owner),
				  NODES "/%s/ibdev", name->d_name);
		if (strcmp(owner, device) == 0) {
			(void)snprintf(node, 64, "%.63s", name->d_name);
			found = 0;
		}
		free(name);
	}
	free(names);
	return found;
}

static int is_uverbs(const struct dirent *entry)
{
	return strncmp(entry->d_name, "uverbs", 6) == 0;
}

/* Any one, where the kernel does not say whose it is. */
static void node_any(const struct doctor *doctor, char node[64])
{
	char path[2 * DOCTOR_PATH_BYTES_MAX];
	struct dirent **names = NULL;
	int count;

	(void)snprintf(node, 64, "uverbs0");
	(void)snprintf(path, sizeof(path), "%s/dev/infiniband", doctor->root);
	count = scandir(path, &names, is_uverbs, versionsort);
	if (count > 0)
		(void)snprintf(node, 64, "%.63s", names[0]->d_name);
	while (count > 0)
		free(names[--count]);
	free(names);
}

static void character_devices(struct doctor *doctor)
{
	const char *device =
		json_string_value(json_object_get(doctor->chosen, "device"));
	char node[64];
	const char *const names[] = { "rdma_cm", node };
	char path[2 * DOCTOR_PATH_BYTES_MAX];
	uint32_t i;

	if (!device || node_find(doctor, device, node))
		node_any(doctor, node);
	for (i = 0; i < 2; i++) {
		int why;

		(void)snprintf(path, sizeof(path), "%s/dev/infiniband/%s",
			       doctor->root, names[i]);
		if (access(path, R_OK | W_OK) == 0)
			continue;
		why = errno;
		doctor_say(doctor, doctor_verbs_level(doctor, DOCTOR_WARN),
			   "rights", "/dev/infiniband/%s: %s", names[i],
			   strerror(why));
		doctor_advise(
			doctor,
			why == ENOENT ?
				"modprobe ib_uverbs rdma_ucm; in a container: --device /dev/infiniband" :
				"add the user to the group of that file");
		return;
	}
	doctor_say(doctor, DOCTOR_OK, "rights",
		   "/dev/infiniband can be opened");
}

/* libibverbs does not list a device whose node is not there. */
static int is_absent(const struct doctor *doctor, const char *device)
{
	char path[DOCTOR_PATH_BYTES_MAX];
	char node[64];

	if (node_find(doctor, device, node))
		return 0;
	(void)snprintf(path, sizeof(path), "/dev/infiniband/%s", node);
	return !doctor_exists(doctor, path);
}

static void device_read(struct doctor *doctor, const char *name,
			struct port *ports, uint32_t *port_count)
{
	const uint32_t absent = (uint32_t)is_absent(doctor, name);
	char path[DOCTOR_PATH_BYTES_MAX];
	uint32_t number;

	for (number = 1; *port_count < PORTS_MAX; number++) {
		struct port *port = &ports[*port_count];

		(void)snprintf(path, sizeof(path), CLASS "/%s/ports/%u", name,
			       number);
		if (!doctor_exists(doctor, path))
			return;
		*port = (struct port){ .number = number, .is_absent = absent };
		(void)snprintf(port->device, sizeof(port->device), "%.63s",
			       name);
		port_read(doctor, port);
		port_judge(doctor, port);
		(*port_count)++;
	}
}

/* A name that nothing has is a mistake, whichever route is taken. */
static void unknown_name_say(struct doctor *doctor)
{
	doctor_say(doctor, DOCTOR_FAIL, "rdma", "no device is named %s",
		   doctor->device);
	doctor_advise(doctor,
		      "its name is one of those that `rdma link` lists");
}

static void none_judge(struct doctor *doctor)
{
	if (!doctor_sees(doctor, "/sys/class")) {
		doctor_say_unknown(doctor,
				   doctor->route == DOCTOR_ROUTE_VERBS ?
					   DOCTOR_FAIL :
					   DOCTOR_UNKNOWN,
				   "rdma", "/sys/class");
		return;
	}
	if (doctor->device[0]) {
		unknown_name_say(doctor);
		return;
	}
	doctor_say(doctor, doctor_verbs_level(doctor, DOCTOR_NOTE), "rdma",
		   "no RDMA device: peers on this node only");
	doctor_advise(
		doctor,
		"between machines: an RDMA card, or for tests soft-RoCE: rdma link add rxe0 type rxe netdev DEV");
}

void doctor_devices(struct doctor *doctor)
{
	static struct port ports[PORTS_MAX];
	char path[DOCTOR_PATH_BYTES_MAX + sizeof(CLASS)];
	struct dirent **names = NULL;
	uint32_t port_count = 0;
	int is_known = 0;
	int name_count;
	int i;

	(void)snprintf(path, sizeof(path), "%s" CLASS, doctor->root);
	name_count = scandir(path, &names, is_name, versionsort);
	if (name_count <= 0) {
		free(names);
		none_judge(doctor);
		return;
	}
	for (i = 0; i < name_count; i++) {
		device_read(doctor, names[i]->d_name, ports, &port_count);
		is_known |= strcmp(names[i]->d_name, doctor->device) == 0;
		free(names[i]);
	}
	free(names);
	if (doctor->device[0] && !is_known) {
		unknown_name_say(doctor);
		return;
	}
	choose(doctor, ports, port_count);
	libraries(doctor);
	character_devices(doctor);
}
