/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The contexts are those that rdma_cm opened: a queue pair made through it can
 * use no other. The GID is chosen by binding to its address.
 */
#include "verbs/device.h"

#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cause.h"
#include "verbs/gid.h"
#include "verbs/place.h"

#define NAME_BYTES 64u
#define LINE_BYTES 512u /* of a CPU list */

struct candidate {
	struct ibv_context *context;
	struct kvpull_verbs_address address;
	uint32_t port;
	uint32_t gid_index;
	enum kvpull_gid_rank rank;
	uint32_t near; /* to CPUs that the process may use */
	uint32_t link_mbps;
	uint32_t mtu_bytes;
};

struct search {
	const struct kvpull_fabric *fabric;
	const struct kvpull_verbs_params *params;
	const struct kvpull_verbs_device *taken; /* of other rails */
	uint32_t taken_count;
	uint32_t reserved;
	char device[NAME_BYTES];            /* named for this rail; "": any */
	char address[NAME_BYTES];           /* likewise */
	struct kvpull_verbs_address wanted; /* family 0: any */
	struct candidate best;
	uint32_t seen_count; /* ports and GIDs that would do */
	uint32_t down_count; /* ports that are not active */
};

static int given(const char *text)
{
	return text && text[0];
}

/* Where the kernel's files are not to be seen. */
static uint32_t link_mbps(const struct ibv_port_attr *attr)
{
	uint32_t lane = attr->active_speed >= 32 ? 25000 :
			attr->active_speed >= 16 ? 14000 :
			attr->active_speed >= 4  ? 10000 :
			attr->active_speed == 2  ? 5000 :
						   2500;
	uint32_t lanes = attr->active_width == 16 ? 2 :
			 attr->active_width == 8  ? 12 :
			 attr->active_width == 4  ? 8 :
			 attr->active_width == 2  ? 4 :
						    1;

	if (attr->active_speed >= 64)
		lane = attr->active_speed >= 128 ? 100000 : 50000;
	return lane * lanes;
}

/* The first line of a file of the kernel's; "" where there is none. */
__attribute__((format(printf, 2, 3))) static void
line_read(char line[LINE_BYTES], const char *format, ...)
{
	char path[128];
	va_list words;
	ssize_t got;
	int fd;

	line[0] = '\0';
	va_start(words, format);
	(void)vsnprintf(path, sizeof(path), format, words);
	va_end(words);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return;
	got = read(fd, line, LINE_BYTES - 1);
	(void)close(fd);
	line[got > 0 ? got : 0] = '\0';
}

/*
 * To any CPU that the process may use: the thread that opens may be anywhere at
 * the moment, and the memory is where the engine took it.
 */
static uint32_t is_near(const char *name)
{
	char line[LINE_BYTES];
	cpu_set_t cpus;
	char *end;
	long node;

	line_read(line, "/sys/class/infiniband/%s/device/numa_node", name);
	node = strtol(line, &end, 10);
	if (end == line || node < 0 ||
	    sched_getaffinity(getpid(), sizeof(cpus), &cpus))
		return 0;
	line_read(line, "/sys/devices/system/node/node%ld/cpulist", node);
	return (uint32_t)kvpull_place_is_among(line, &cpus);
}

static enum kvpull_gid_rank rank_of(const struct ibv_gid_entry *entry,
				    const struct kvpull_verbs_address *address)
{
	if (entry->gid_type == IBV_GID_TYPE_IB)
		return KVPULL_GID_INFINIBAND;
	if (entry->gid_type == IBV_GID_TYPE_ROCE_V1)
		return KVPULL_GID_V1;
	if (kvpull_verbs_address_is_link_local(address))
		return KVPULL_GID_LINK_LOCAL;
	return address->socket.any.sa_family == AF_INET ? KVPULL_GID_IPV4 :
							  KVPULL_GID_IPV6;
}

static int is_better(const struct candidate *one, const struct candidate *other)
{
	if (one->rank != other->rank)
		return one->rank > other->rank;
	if (one->link_mbps != other->link_mbps)
		return one->link_mbps > other->link_mbps;
	return one->near > other->near;
}

/* By another rail: its port, or its address if this one's is named. */
static int is_taken(const struct search *search, const struct candidate *found)
{
	uint32_t i;

	for (i = 0; i < search->taken_count; i++) {
		const struct kvpull_verbs_device *other = &search->taken[i];

		/* A closed one takes no place: it may be what is looked for. */
		if (!other->context)
			continue;
		if (search->address[0] ?
			    kvpull_verbs_address_is(&other->address,
						    &found->address) :
			    other->context == found->context &&
				    other->port == found->port)
			return 1;
	}
	return 0;
}

static void gid_look(struct search *search, const struct candidate *port,
		     uint32_t gid_index)
{
	const struct kvpull_verbs_params *params = search->params;
	const int addressed = search->address[0] != '\0';
	struct candidate found = *port;
	struct ibv_gid_entry entry;

	if (params->gid_index && params->gid_index - 1 != gid_index)
		return;
	memset(&entry, 0, sizeof(entry));
	if (search->fabric->ibv.query_gid(port->context, port->port, gid_index,
					  &entry, 0, sizeof(entry)))
		return;
	kvpull_verbs_address_of_gid(entry.gid.raw, &found.address);
	if (found.address.socket.any.sa_family == AF_INET6)
		found.address.socket.v6.sin6_scope_id =
			kvpull_verbs_address_is_link_local(&found.address) ?
				entry.ndev_ifindex :
				0;
	found.gid_index = gid_index;
	found.rank = rank_of(&entry, &found.address);
	if (found.rank == KVPULL_GID_V1 && !params->gid_index)
		return;
	if (found.rank == KVPULL_GID_INFINIBAND) {
		/* InfiniBand GIDs are no IP addresses. */
		if (!addressed)
			return;
		found.address = search->wanted;
	} else if (addressed &&
		   !kvpull_verbs_address_is(&found.address, &search->wanted)) {
		return;
	}
	if (is_taken(search, &found))
		return;
	search->seen_count++;
	if (is_better(&found, &search->best))
		search->best = found;
}

static void port_look(struct search *search, struct candidate *candidate)
{
	struct ibv_port_attr attr;
	char line[LINE_BYTES];
	int gid_index;

	if (kvpull_fabric_port(search->fabric, candidate->context,
			       (uint8_t)candidate->port, &attr))
		return;
	if (attr.state != IBV_PORT_ACTIVE) {
		search->down_count++;
		return;
	}
	line_read(
		line, "/sys/class/infiniband/%s/ports/%u/rate",
		search->fabric->ibv.get_device_name(candidate->context->device),
		candidate->port);
	candidate->link_mbps = kvpull_place_rate_mbps(line);
	if (!candidate->link_mbps)
		candidate->link_mbps = link_mbps(&attr);
	candidate->mtu_bytes = 128u << attr.active_mtu;
	for (gid_index = 0; gid_index < attr.gid_tbl_len; gid_index++)
		gid_look(search, candidate, (uint32_t)gid_index);
}

static void device_look(struct search *search, struct ibv_context *context)
{
	const char *name = search->fabric->ibv.get_device_name(context->device);
	struct candidate candidate = { .context = context };
	struct ibv_device_attr attr;
	uint32_t port;

	if (search->device[0] && strcmp(search->device, name) != 0)
		return;
	if (search->fabric->ibv.query_device(context, &attr))
		return;
	candidate.near = is_near(name);
	for (port = 1; port <= attr.phys_port_cnt; port++) {
		if (search->params->port && search->params->port != port)
			continue;
		candidate.port = port;
		port_look(search, &candidate);
	}
}

static void choice_say(struct kvpull_verbs_device *device,
		       const struct search *search, int device_count)
{
	const struct candidate *best = &search->best;
	const struct kvpull_verbs_params *params = search->params;
	char address[KVPULL_ADDRESS_BYTES_MAX];
	const char *why =
		"RoCE v2 before v1, routable before link-local, then the faster and nearer";

	if (search->device[0] || search->address[0] || params->port ||
	    params->gid_index)
		why = "the configuration narrows the choice";
	else if (search->seen_count == 1)
		why = "the only one";
	kvpull_verbs_address_print(&best->address, address);
	*strrchr(address, ':') = '\0';
	(void)snprintf(
		device->choice, sizeof(device->choice),
		"%s port %u gid %u, %s %s, %u Mb/s, MTU %u",
		device->fabric->ibv.get_device_name(best->context->device),
		best->port, best->gid_index, kvpull_gid_rank_name(best->rank),
		address, best->link_mbps, best->mtu_bytes);
	kvpull_info(
		device->log,
		"verbs: %s; one of %u GIDs on %d devices, %u ports down: %s",
		device->choice, search->seen_count, device_count,
		search->down_count, why);
	if (best->rank == KVPULL_GID_LINK_LOCAL)
		kvpull_warn(
			device->log,
			"verbs: only a link-local address: peers on other links cannot be reached");
}

uint32_t kvpull_verbs_absence_level(const struct kvpull_verbs_params *params,
				    uint32_t otherwise)
{
	if (params->required)
		return KVPULL_LOG_ERROR;
	return given(params->device) || given(params->address) ?
		       KVPULL_LOG_WARN :
		       otherwise;
}

static uint32_t items_count(const char *list)
{
	uint32_t count = given(list) ? 1 : 0;

	for (; count && *list; list++)
		count += *list == ',';
	return count;
}

uint32_t kvpull_verbs_rails_wanted(const struct kvpull_verbs_params *params)
{
	const uint32_t devices = items_count(params->device);
	const uint32_t addresses = items_count(params->address);
	uint32_t count = devices > addresses ? devices : addresses;

	if (params->rails)
		count = params->rails;
	if (!count)
		count = 1;
	return count < KVPULL_VERBS_RAILS_MAX ? count : KVPULL_VERBS_RAILS_MAX;
}

/* The nth of a list "a,b,c"; "" behind its end. 0 or KVPULL_ECONFIG. */
static int item_take(const char *list, uint32_t index, char item[NAME_BYTES])
{
	item[0] = '\0';
	if (index >= items_count(list))
		return 0;
	for (; index; index--)
		list = strchr(list, ',') + 1;
	return kvpull_verbs_item_next(&list, item, NAME_BYTES) > 0 && item[0] ?
		       0 :
		       KVPULL_ECONFIG;
}

/*
 * Reads which device or address the configuration asks for on this rail. 0 or
 * KVPULL_ECONFIG.
 */
static int wanted_take(struct search *search, uint32_t rail)
{
	const struct kvpull_verbs_params *params = search->params;

	if (item_take(params->device, rail, search->device)) {
		kvpull_error(params->log, "verbs: device %s names no devices",
			     params->device);
		return KVPULL_ECONFIG;
	}
	if (item_take(params->address, rail, search->address) ||
	    (search->address[0] &&
	     kvpull_verbs_address_parse_ip(search->address, &search->wanted))) {
		kvpull_error(params->log, "verbs: address %s is no IP address",
			     params->address);
		return KVPULL_ECONFIG;
	}
	return 0;
}

static int choose(struct kvpull_verbs_device *device, struct search *search)
{
	const struct kvpull_verbs_params *params = search->params;
	int device_count = 0;
	int i;

	device->list = device->fabric->cm.get_devices(&device_count);
	if (!device->list || !device_count) {
		kvpull_log(
			device->log,
			kvpull_verbs_absence_level(params, KVPULL_LOG_DEBUG),
			"verbs: no RDMA device on this host, asked for is device %s, address %s: peers on other machines are not reached",
			search->device[0] ? search->device : "any",
			search->address[0] ? search->address : "any");
		return KVPULL_EUNSUPPORTED;
	}
	for (i = 0; i < device_count; i++)
		device_look(search, device->list[i]);
	if (!search->best.rank) {
		kvpull_log(
			device->log,
			kvpull_verbs_absence_level(params, KVPULL_LOG_INFO),
			"verbs: %d devices, %u ports down, and none of the rest has what is asked for: device %s, port %u, gid %d, address %s",
			device_count, search->down_count,
			search->device[0] ? search->device : "any",
			params->port, (int)params->gid_index - 1,
			search->address[0] ? search->address : "any");
		return KVPULL_EUNSUPPORTED;
	}
	device->context = search->best.context;
	device->address = search->best.address;
	device->port = search->best.port;
	device->gid_index = search->best.gid_index;
	device->rank = (uint32_t)search->best.rank;
	choice_say(device, search, device_count);
	return 0;
}

int kvpull_verbs_unblock(int fd)
{
	const int flags = fcntl(fd, F_GETFL);

	if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK))
		return KVPULL_EDEVICE;
	return 0;
}

static int objects_make(struct kvpull_verbs_device *device)
{
	device->pd = device->fabric->ibv.alloc_pd(device->context);
	if (!device->pd)
		return KVPULL_EDEVICE;
	device->channel =
		device->fabric->ibv.create_comp_channel(device->context);
	if (!device->channel)
		return KVPULL_EDEVICE;
	if (kvpull_verbs_unblock(device->channel->fd) ||
	    kvpull_verbs_unblock(device->context->async_fd) ||
	    device->fabric->ibv.query_device(device->context, &device->limits))
		return KVPULL_EDEVICE;
	return 0;
}

static int device_open(struct kvpull_verbs_device *device,
		       struct search *search, uint32_t rail)
{
	int code;

	memset(device, 0, sizeof(*device));
	device->fabric = search->fabric;
	device->log = search->params->log;
	device->rail = rail;
	code = wanted_take(search, rail);
	if (!code)
		code = choose(device, search);
	if (!code) {
		code = objects_make(device);
		if (code)
			kvpull_error(device->log, "verbs: %s: %s",
				     device->choice, kvpull_why(LOCK, errno));
	}
	if (code)
		kvpull_verbs_device_close(device);
	return code;
}

int kvpull_verbs_device_open(struct kvpull_verbs_device *devices,
			     uint32_t device_count, uint32_t rail,
			     const struct kvpull_fabric *fabric,
			     const struct kvpull_verbs_params *params)
{
	struct search search = { .fabric = fabric,
				 .params = params,
				 .taken = devices,
				 .taken_count = device_count };

	return device_open(&devices[device_count], &search, rail);
}

int kvpull_verbs_device_open_again(struct kvpull_verbs_device *devices,
				   uint32_t device_count, uint32_t index,
				   const struct kvpull_verbs_params *params)
{
	struct kvpull_verbs_device *device = &devices[index];
	const struct kvpull_verbs_device old = *device;
	const struct kvpull_log silent = { 0 };
	struct kvpull_verbs_params quiet = *params;
	struct search search = { .fabric = old.fabric,
				 .params = &quiet,
				 .taken = devices,
				 .taken_count = device_count };
	int code;

	quiet.log = &silent;
	code = device_open(device, &search, old.rail);
	/* While its address is missing the port has a lesser GID only. */
	if (!code && device->rank < old.rank) {
		kvpull_verbs_device_close(device);
		code = KVPULL_EUNSUPPORTED;
	}
	if (code)
		*device = old;
	device->gone = KVPULL_VERBS_DEVICE_CLOSED;
	device->log = params->log;
	return code;
}

int kvpull_verbs_device_has_address(const struct kvpull_verbs_device *device)
{
	struct kvpull_verbs_address address;
	struct ibv_gid_entry entry;
	int code;

	memset(&entry, 0, sizeof(entry));
	if (device->rank == KVPULL_GID_INFINIBAND)
		return 1;
	code = device->fabric->ibv.query_gid(device->context, device->port,
					     device->gid_index, &entry, 0,
					     sizeof(entry));
	/* The host's shortage says nothing of it: it is asked again. */
	if (code)
		return code == ENOMEM || code == EMFILE || code == ENFILE ||
		       code == EINTR || code == EAGAIN;
	kvpull_verbs_address_of_gid(entry.gid.raw, &address);
	return kvpull_verbs_address_is(&address, &device->address);
}

uint32_t kvpull_verbs_device_mtu(const struct kvpull_verbs_device *device)
{
	struct ibv_port_attr attr;

	if (!device->context ||
	    kvpull_fabric_port(device->fabric, device->context,
			       (uint8_t)device->port, &attr) ||
	    attr.active_mtu < IBV_MTU_256)
		return IBV_MTU_256;
	return attr.active_mtu;
}

static void subnet_add(const struct kvpull_verbs_device *device,
		       const struct ifaddrs *interface,
		       struct kvpull_networks *networks)
{
	struct kvpull_verbs_address address = { 0 };
	struct kvpull_verbs_address mask = { 0 };
	const size_t bytes = interface->ifa_addr->sa_family == AF_INET ?
				     sizeof(address.socket.v4) :
				     sizeof(address.socket.v6);

	memcpy(&address.socket, interface->ifa_addr, bytes);
	memcpy(&mask.socket, interface->ifa_netmask, bytes);
	if (kvpull_verbs_address_is(&address, &device->address) &&
	    networks->count < KVPULL_NETWORKS_MAX)
		kvpull_verbs_network_of(&address, &mask,
					&networks->list[networks->count++]);
}

void kvpull_verbs_device_subnets(struct kvpull_verbs_device *device,
				 uint32_t level)
{
	struct ifaddrs *list = NULL;
	const struct ifaddrs *at;

	memset(&device->subnets, 0, sizeof(device->subnets));
	if (getifaddrs(&list))
		return;
	for (at = list; at; at = at->ifa_next)
		if (at->ifa_addr && at->ifa_netmask &&
		    (at->ifa_addr->sa_family == AF_INET ||
		     at->ifa_addr->sa_family == AF_INET6))
			subnet_add(device, at, &device->subnets);
	freeifaddrs(list);
	if (!device->subnets.count)
		kvpull_log(
			device->log, level,
			"verbs: no interface has the chosen address: name the networks of peers");
}

struct ibv_mr *
kvpull_verbs_device_register(const struct kvpull_verbs_device *device,
			     void *base, uint64_t bytes, int access)
{
	const struct kvpull_fabric *fabric = device->fabric;
	struct ibv_mr *memory =
		fabric->ibv.reg_mr(device->pd, base, bytes, access);

	/* Libraries before rdma-core 28 hand the flag on, and it is refused. */
	if (!memory && errno == EINVAL && access & IBV_ACCESS_RELAXED_ORDERING)
		memory = fabric->ibv.reg_mr(
			device->pd, base, bytes,
			access & ~IBV_ACCESS_RELAXED_ORDERING);
	if (!memory)
		kvpull_error(device->log, "verbs: registering %llu bytes: %s",
			     (unsigned long long)bytes,
			     kvpull_why(LOCK, errno));
	return memory;
}

void kvpull_verbs_device_deregister(const struct kvpull_verbs_device *device,
				    struct ibv_mr *memory)
{
	if (memory && device->fabric->ibv.dereg_mr(memory))
		kvpull_warn(device->log, "verbs: deregistering: %s",
			    kvpull_why(OTHER, errno));
}

void kvpull_verbs_device_close(struct kvpull_verbs_device *device)
{
	const struct kvpull_fabric *fabric = device->fabric;

	if (device->channel &&
	    fabric->ibv.destroy_comp_channel(device->channel))
		kvpull_warn(device->log, "verbs: completion channel: %s",
			    kvpull_why(OTHER, errno));
	if (device->pd && fabric->ibv.dealloc_pd(device->pd))
		kvpull_warn(device->log, "verbs: protection domain: %s",
			    kvpull_why(OTHER, errno));
	if (device->list)
		fabric->cm.free_devices(device->list);
	device->channel = NULL;
	device->pd = NULL;
	device->list = NULL;
	device->context = NULL;
}
