/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The contexts are those that rdma_cm opened: a queue pair made through it can
 * use no other. The GID is chosen by binding to its address.
 */
#include "verbs/device.h"

#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <stdio.h>
#include <string.h>

#include "base/cause.h"

static int given(const char *text)
{
	return text && text[0];
}

static void choice_say(struct kvpull_verbs_device *device,
		       const struct kvpull_verbs_params *params,
		       const struct kvpull_verbs_port *port)
{
	char address[KVPULL_VERBS_IP_BYTES];

	kvpull_verbs_address_print_ip(&port->address, address);
	(void)snprintf(
		device->choice, sizeof(device->choice),
		"%s port %u gid %u, %s %s, %u Mb/s, MTU %u",
		device->fabric->ibv.get_device_name(port->context->device),
		port->port, port->gid_index, kvpull_gid_rank_name(port->rank),
		address, port->link_mbps, port->mtu_bytes);
	kvpull_info(device->log, "verbs: rail %u of %u: %s: %s", device->rail,
		    kvpull_verbs_rails_wanted(params), device->choice,
		    device->why);
	if (port->rank == KVPULL_GID_LINK_LOCAL)
		kvpull_warn(
			device->log,
			"verbs: only a link-local address: peers on other links cannot be reached");
}

static int choose(struct kvpull_verbs_device *device,
		  struct kvpull_verbs_seek *seek)
{
	const struct kvpull_verbs_params *params = seek->params;
	struct kvpull_verbs_port port;
	int device_count = 0;
	int code;

	errno = 0;
	device->list = device->fabric->cm.get_devices(&device_count);
	if (!device->list && errno == ENOMEM)
		return KVPULL_ENOMEM;
	if (!device->list || !device_count) {
		kvpull_log(
			device->log,
			kvpull_verbs_absence_level(params, KVPULL_LOG_DEBUG),
			"verbs: no RDMA device on this host, asked for is device %s, address %s: peers on other machines are not reached",
			given(params->device) ? params->device : "any",
			given(params->address) ? params->address : "any");
		return KVPULL_EUNSUPPORTED;
	}
	seek->list = device->list;
	seek->list_count = (uint32_t)device_count;
	code = kvpull_verbs_search(seek, &port, device->why);
	if (code)
		return code;
	device->context = port.context;
	device->address = port.address;
	device->port = port.port;
	device->gid_index = port.gid_index;
	device->rank = (uint32_t)port.rank;
	choice_say(device, params, &port);
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
		       struct kvpull_verbs_seek *seek)
{
	int code;

	memset(device, 0, sizeof(*device));
	device->fabric = seek->fabric;
	device->log = seek->params->log;
	device->rail = seek->rail;
	code = choose(device, seek);
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

/* A closed one takes no place: it may be what is looked for. */
static void taken_list(struct kvpull_verbs_seek *seek,
		       const struct kvpull_verbs_device *devices,
		       uint32_t device_count)
{
	uint32_t at;

	for (at = 0; at < device_count; at++)
		if (devices[at].context)
			seek->taken[seek->taken_count++] =
				(struct kvpull_verbs_own){
					.address = devices[at].address,
					.context = devices[at].context,
					.port = devices[at].port,
				};
}

int kvpull_verbs_device_open(struct kvpull_verbs_device *devices,
			     uint32_t device_count, uint32_t rail,
			     const struct kvpull_fabric *fabric,
			     const struct kvpull_verbs_params *params)
{
	struct kvpull_verbs_seek seek = { .fabric = fabric,
					  .params = params,
					  .rail = rail };

	taken_list(&seek, devices, device_count);
	return device_open(&devices[device_count], &seek);
}

int kvpull_verbs_device_open_again(struct kvpull_verbs_device *devices,
				   uint32_t device_count, uint32_t index,
				   const struct kvpull_verbs_params *params,
				   uint32_t rank_least)
{
	struct kvpull_verbs_device *device = &devices[index];
	const struct kvpull_verbs_device old = *device;
	const struct kvpull_log silent = { 0 };
	struct kvpull_verbs_params quiet = *params;
	struct kvpull_verbs_seek seek = { .fabric = old.fabric,
					  .params = &quiet,
					  .rail = old.rail };
	int code;

	taken_list(&seek, devices, device_count);
	quiet.log = &silent;
	code = device_open(device, &seek);
	if (!code && device->rank < rank_least) {
		kvpull_verbs_device_close(device);
		code = KVPULL_EUNSUPPORTED;
	}
	if (code)
		*device = old;
	device->is_late = !old.rank;
	device->gone = KVPULL_VERBS_DEVICE_CLOSED;
	device->log = params->log;
	return code;
}

/* The port that the rail would go by, had it to choose now. 0, or why none. */
static int choose_anew(const struct kvpull_verbs_device *devices,
		       uint32_t device_count, uint32_t index,
		       const struct kvpull_verbs_params *params,
		       struct kvpull_verbs_port *port)
{
	const struct kvpull_verbs_device *device = &devices[index];
	const struct kvpull_log silent = { 0 };
	struct kvpull_verbs_params quiet = *params;
	struct kvpull_verbs_seek seek = { .fabric = device->fabric,
					  .params = &quiet,
					  .rail = device->rail };
	char why[KVPULL_VERBS_WHY_BYTES];
	int count = 0;
	int code;

	quiet.log = &silent;
	taken_list(&seek, devices, index);
	taken_list(&seek, device + 1, device_count - index - 1);
	seek.list = device->fabric->cm.get_devices(&count);
	if (!seek.list)
		return KVPULL_EUNSUPPORTED;
	seek.list_count = (uint32_t)count;
	code = kvpull_verbs_search(&seek, port, why);
	device->fabric->cm.free_devices(seek.list);
	return code;
}

int kvpull_verbs_device_is_outdone(const struct kvpull_verbs_device *devices,
				   uint32_t device_count, uint32_t index,
				   const struct kvpull_verbs_params *params)
{
	struct kvpull_verbs_port port;

	return devices[index].rank == KVPULL_GID_LINK_LOCAL &&
	       !choose_anew(devices, device_count, index, params, &port) &&
	       port.rank > KVPULL_GID_LINK_LOCAL;
}

int kvpull_verbs_device_is_elsewhere(const struct kvpull_verbs_device *devices,
				     uint32_t device_count, uint32_t index,
				     const struct kvpull_verbs_params *params)
{
	struct kvpull_verbs_port port;

	return !choose_anew(devices, device_count, index, params, &port) &&
	       (port.context != devices[index].context ||
		port.port != devices[index].port);
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
	struct kvpull_verbs_address address;
	struct kvpull_verbs_address mask = { 0 };

	if (!interface->ifa_addr || !interface->ifa_netmask ||
	    kvpull_verbs_address_take(interface->ifa_addr, &address))
		return;
	memcpy(&mask.socket, interface->ifa_netmask,
	       address.socket.any.sa_family == AF_INET ?
		       sizeof(mask.socket.v4) :
		       sizeof(mask.socket.v6));
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
