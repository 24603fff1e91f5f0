/* SPDX-License-Identifier: Apache-2.0 */
/* Finds this host's ports, with the best GID of each; pick.h chooses. */
#include "verbs/search.h"

#include <errno.h>
#include <fnmatch.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cause.h"
#include "base/least.h"
#include "base/text_file.h"
#include "verbs/place.h"

#define NAME_BYTES 64u
#define LINE_BYTES 512u /* of a CPU list */
#define HAS_BYTES 512u  /* addresses of all devices, in a line of the log */

struct search {
	const struct kvpull_verbs_seek *seek;
	char device[NAME_BYTES];            /* named for this rail; "": any */
	char address[NAME_BYTES];           /* likewise */
	struct kvpull_verbs_address wanted; /* family 0: any */
	struct kvpull_verbs_port ports[KVPULL_VERBS_PORTS_MAX]; /* that fit */
	uint32_t port_count;
	uint32_t down_count;  /* ports that are not active */
	uint32_t iwarp_count; /* devices of a kind that is not supported */
	uint32_t away_count;  /* GIDs whose address nobody binds here */
	struct kvpull_verbs_own own[KVPULL_VERBS_OWN_MAX]; /* of interfaces */
	uint32_t own_count;
	uint32_t own_known; /* they were looked for */
	int why_failed;     /* errno: rdma_cm could not be asked; 0: it could */
};

/* Text that is cut where it is full. */
struct text {
	char *bytes;
	size_t capacity;
	size_t used;
};

__attribute__((format(printf, 2, 3))) static void
text_add(struct text *text, const char *format, ...)
{
	va_list words;
	int bytes;

	va_start(words, format);
	bytes = vsnprintf(text->bytes + text->used, text->capacity - text->used,
			  format, words);
	va_end(words);
	if (bytes > 0)
		text->used += (size_t)bytes;
	if (text->used >= text->capacity)
		text->used = text->capacity - 1;
}

static int given(const char *text)
{
	return text && text[0];
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
	return kvpull_least_u32(count ? count : 1, KVPULL_VERBS_RAILS_MAX);
}

static const char *name_of(const struct search *search,
			   const struct ibv_context *context)
{
	return search->seek->fabric->ibv.get_device_name(context->device);
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

/* A file of the kernel's; "" where there is none. */
__attribute__((format(printf, 2, 3))) static void
line_read(char line[LINE_BYTES], const char *format, ...)
{
	char path[128];
	va_list words;

	va_start(words, format);
	(void)vsnprintf(path, sizeof(path), format, words);
	va_end(words);
	kvpull_text_read(path, line, LINE_BYTES);
}

/* A link of the kernel's; "" where there is none. */
__attribute__((format(printf, 2, 3))) static void
link_read(char link[LINE_BYTES], const char *format, ...)
{
	char path[128];
	va_list words;
	ssize_t bytes;

	va_start(words, format);
	(void)vsnprintf(path, sizeof(path), format, words);
	va_end(words);
	bytes = readlink(path, link, LINE_BYTES - 1);
	link[bytes > 0 ? bytes : 0] = '\0';
}

/* PCI bridges that the device and the GPU are below. */
static uint32_t bridges_of(const struct kvpull_verbs_params *params,
			   const char *name)
{
	char device[LINE_BYTES];
	char gpu[LINE_BYTES];

	if (!given(params->gpu_pci))
		return 0;
	link_read(device, "/sys/class/infiniband/%s", name);
	link_read(gpu, "/sys/bus/pci/devices/%s", params->gpu_pci);
	return kvpull_place_bridges(device, gpu);
}

/* Node of a device's memory bus; -1: this machine has no nodes. */
static int32_t node_of(const char *name)
{
	char line[LINE_BYTES];
	char *end;
	long node;

	line_read(line, "/sys/class/infiniband/%s/device/numa_node", name);
	node = strtol(line, &end, 10);
	return end == line || node < 0 || node > INT32_MAX ? -1 : (int32_t)node;
}

/*
 * To any CPU that the process may use: the thread that opens may be anywhere at
 * the moment.
 */
static int is_near(int32_t node)
{
	char line[LINE_BYTES];
	cpu_set_t cpus;

	if (node < 0 || sched_getaffinity(getpid(), sizeof(cpus), &cpus))
		return 0;
	line_read(line, "/sys/devices/system/node/node%d/cpulist", (int)node);
	return kvpull_place_is_among(line, &cpus);
}

/* As the kernel counts: 10 is the node itself. */
#define DISTANCE_NEAR 10u
#define DISTANCE_FAR UINT16_MAX

static uint32_t distance_of(const struct kvpull_verbs_params *params,
			    int32_t node)
{
	char line[LINE_BYTES];
	uint32_t distance;

	if (!params->memory_node)
		return is_near(node) ? DISTANCE_NEAR : DISTANCE_FAR;
	if (node < 0)
		return DISTANCE_FAR;
	line_read(line, "/sys/devices/system/node/node%u/distance",
		  params->memory_node - 1);
	distance = kvpull_place_distance(line, (uint32_t)node);
	if (!distance)
		distance = (uint32_t)node == params->memory_node - 1 ?
				   DISTANCE_NEAR :
				   DISTANCE_FAR;
	return distance;
}

static const struct kvpull_verbs_own *own_at(struct search *search, uint32_t at)
{
	int count;

	if (!search->own_known) {
		search->own_known = 1;
		count = kvpull_verbs_own_list(search->seek->fabric,
					      search->own);
		search->own_count = count > 0 ? (uint32_t)count : 0;
		if (count < 0)
			search->why_failed = errno;
	}
	return at < search->own_count ? &search->own[at] : NULL;
}

static enum kvpull_gid_rank kind_of(const struct kvpull_verbs_address *address)
{
	if (kvpull_verbs_address_is_link_local(address))
		return KVPULL_GID_LINK_LOCAL;
	return address->socket.any.sa_family == AF_INET ? KVPULL_GID_IPV4 :
							  KVPULL_GID_IPV6;
}

static int is_wanted(const struct search *search,
		     const struct kvpull_verbs_address *address)
{
	return !search->address[0] ||
	       kvpull_verbs_address_is(address, &search->wanted);
}

/* InfiniBand: the address of an interface over the port, the best kind first. */
static int interface_find(struct search *search, struct kvpull_verbs_port *port)
{
	const struct kvpull_verbs_own *own;
	enum kvpull_gid_rank best = KVPULL_GID_NONE;
	uint32_t at;

	for (at = 0; (own = own_at(search, at)) != NULL; at++)
		if (own->context == port->context && own->port == port->port &&
		    is_wanted(search, &own->address) &&
		    kind_of(&own->address) > best) {
			best = kind_of(&own->address);
			port->address = own->address;
		}
	port->rank = KVPULL_GID_INFINIBAND;
	return best != KVPULL_GID_NONE;
}

/* Does the address lead to the port whose GID says so? */
static int is_bound(struct search *search, const struct kvpull_verbs_port *port)
{
	struct kvpull_verbs_own own;

	if (kvpull_verbs_own_find(search->seek->fabric, &port->address, &own)) {
		search->why_failed = errno;
		return 0;
	}
	if (own.context == port->context && own.port == port->port)
		return 1;
	/* A port has a link-local GID whether its interface has that or not. */
	search->away_count += port->rank > KVPULL_GID_LINK_LOCAL;
	return 0;
}

static int roce_find(struct search *search, const struct ibv_gid_entry *entry,
		     struct kvpull_verbs_port *port)
{
	kvpull_verbs_address_of_gid(entry->gid.raw, &port->address);
	port->rank = entry->gid_type == IBV_GID_TYPE_ROCE_V1 ?
			     KVPULL_GID_V1 :
			     kind_of(&port->address);
	if (port->address.socket.any.sa_family == AF_INET6 &&
	    kvpull_verbs_address_is_link_local(&port->address))
		port->address.socket.v6.sin6_scope_id = entry->ndev_ifindex;
	if (port->rank == KVPULL_GID_V1 && !search->seek->params->gid_index)
		return 0;
	return is_wanted(search, &port->address);
}

/* A port goes by this GID of its own if it is a better one. */
static void gid_look(struct search *search, struct kvpull_verbs_port *port,
		     uint32_t gid_index)
{
	const struct kvpull_verbs_seek *seek = search->seek;
	struct kvpull_verbs_port found = *port;
	struct ibv_gid_entry entry;

	if (seek->params->gid_index && seek->params->gid_index - 1 != gid_index)
		return;
	memset(&entry, 0, sizeof(entry));
	if (seek->fabric->ibv.query_gid(port->context, port->port, gid_index,
					&entry, 0, sizeof(entry)))
		return;
	found.gid_index = gid_index;
	if (entry.gid_type == IBV_GID_TYPE_IB) {
		if (!port->rank && interface_find(search, &found))
			*port = found;
		return;
	}
	if (roce_find(search, &entry, &found) && found.rank > port->rank &&
	    is_bound(search, &found))
		*port = found;
}

/* By another rail: its port, or its address if this one's is named. */
static uint32_t is_taken(const struct search *search,
			 const struct kvpull_verbs_port *port)
{
	const struct kvpull_verbs_seek *seek = search->seek;
	uint32_t at;

	for (at = 0; at < seek->taken_count; at++) {
		const struct kvpull_verbs_own *other = &seek->taken[at];

		if (search->address[0] ?
			    kvpull_verbs_address_is(&other->address,
						    &port->address) :
			    other->context == port->context &&
				    other->port == port->port)
			return 1;
	}
	return 0;
}

static void port_look(struct search *search, struct kvpull_verbs_port *port)
{
	const struct kvpull_fabric *fabric = search->seek->fabric;
	struct ibv_port_attr attr;
	char line[LINE_BYTES];
	int gid_index;

	if (kvpull_fabric_port(fabric, port->context, (uint8_t)port->port,
			       &attr))
		return;
	if (attr.state != IBV_PORT_ACTIVE) {
		search->down_count++;
		return;
	}
	line_read(line, "/sys/class/infiniband/%s/ports/%u/rate",
		  name_of(search, port->context), port->port);
	port->link_mbps = kvpull_place_rate_mbps(line);
	if (!port->link_mbps)
		port->link_mbps = link_mbps(&attr);
	port->mtu_bytes = 128u << attr.active_mtu;
	for (gid_index = 0; gid_index < attr.gid_tbl_len; gid_index++)
		gid_look(search, port, (uint32_t)gid_index);
	if (port->rank && search->port_count < KVPULL_VERBS_PORTS_MAX) {
		port->is_taken = is_taken(search, port);
		search->ports[search->port_count++] = *port;
	}
}

static int is_iwarp(const struct ibv_context *context)
{
	return context->device->transport_type == IBV_TRANSPORT_IWARP;
}

static void device_look(struct search *search, struct ibv_context *context)
{
	const struct kvpull_verbs_seek *seek = search->seek;
	const char *name = name_of(search, context);
	struct kvpull_verbs_port empty = { .context = context };
	struct ibv_device_attr attr;
	uint32_t port;

	if (search->device[0] && fnmatch(search->device, name, 0))
		return;
	if (is_iwarp(context)) {
		search->iwarp_count++;
		return;
	}
	if (seek->fabric->ibv.query_device(context, &attr))
		return;
	empty.bridges = bridges_of(seek->params, name);
	empty.distance = distance_of(seek->params, node_of(name));
	for (port = 1; port <= attr.phys_port_cnt; port++) {
		struct kvpull_verbs_port found = empty;

		if (seek->params->port && seek->params->port != port)
			continue;
		found.port = port;
		port_look(search, &found);
	}
}

static int is_narrowed(const struct search *search)
{
	return search->device[0] || search->address[0] ||
	       search->seek->params->port || search->seek->params->gid_index;
}

static void gpu_print(const struct search *search,
		      const struct kvpull_verbs_port *port, struct text *why)
{
	const char *gpu = search->seek->params->gpu_pci;

	if (port->bridges)
		text_add(why, " for the GPU at %s: PCI bridges of both: %u",
			 gpu, port->bridges);
	else if (given(gpu))
		text_add(why, "; no PCI bridge is that of the GPU at %s, too",
			 gpu);
}

static void why_print(const struct search *search,
		      const struct kvpull_verbs_choice *choice,
		      struct text *why)
{
	static const char *const respects[] = {
		[KVPULL_VERBS_BY_KIND] = "the best kind of address of",
		[KVPULL_VERBS_BY_SPEED] = "the fastest of",
		[KVPULL_VERBS_BY_BRIDGES] = "the nearest of",
		[KVPULL_VERBS_BY_NEARNESS] = "the nearest of",
	};

	if (choice->free_count == 1)
		text_add(why, "the only port");
	else if (choice->equal_count > 1)
		text_add(why, "for local rank %u one of %u equal ports of %u",
			 search->seek->params->local_rank, choice->equal_count,
			 search->port_count);
	else
		text_add(why, "%s %u", respects[choice->respect],
			 choice->free_count);
	gpu_print(search, choice->port, why);
	if (search->seek->params->memory_node)
		text_add(why, " for memory on node %u",
			 search->seek->params->memory_node - 1);
	if (is_narrowed(search))
		text_add(why, " that the configuration leaves");
	if (search->down_count)
		text_add(why, "; ports without a link: %u", search->down_count);
	if (search->iwarp_count)
		text_add(why, "; devices of iWARP, which is not supported: %u",
			 search->iwarp_count);
	if (search->away_count)
		text_add(why, "; GIDs whose address leads elsewhere: %u",
			 search->away_count);
}

/* Addresses of a port, for a line of the log. */
static void port_print(struct search *search, struct ibv_context *context,
		       uint32_t port, struct text *text)
{
	const size_t before = text->used;
	const struct kvpull_verbs_own *own;
	char address[KVPULL_VERBS_IP_BYTES];
	struct ibv_port_attr attr;
	uint32_t at;

	if (kvpull_fabric_port(search->seek->fabric, context, (uint8_t)port,
			       &attr) ||
	    attr.state != IBV_PORT_ACTIVE) {
		text_add(text, " no link");
		return;
	}
	for (at = 0; (own = own_at(search, at)) != NULL; at++)
		if (own->context == context && own->port == port) {
			kvpull_verbs_address_print_ip(&own->address, address);
			text_add(text, " %s", address);
		}
	if (text->used == before)
		text_add(text, " no address");
}

/* Addresses of each device of this host. */
static void host_print(struct search *search, struct text *text)
{
	const struct kvpull_verbs_seek *seek = search->seek;
	struct ibv_device_attr attr;
	uint32_t port;
	uint32_t at;

	for (at = 0; at < seek->list_count; at++) {
		struct ibv_context *context = seek->list[at];
		const char *name = name_of(search, context);

		if (is_iwarp(context)) {
			text_add(text, "%s%s iWARP, which is not supported",
				 text->used ? "; " : "", name);
			continue;
		}
		if (seek->fabric->ibv.query_device(context, &attr))
			continue;
		for (port = 1; port <= attr.phys_port_cnt; port++) {
			text_add(text, "%s%s port %u", text->used ? "; " : "",
				 name, port);
			port_print(search, context, port, text);
		}
	}
}

/* The configuration's names for this rail. */
static void names_print(const struct search *search, struct text *text)
{
	const struct kvpull_verbs_params *params = search->seek->params;

	if (search->device[0])
		text_add(text, " device %s", search->device);
	if (params->port)
		text_add(text, " port %u", params->port);
	if (params->gid_index)
		text_add(text, " gid %u", params->gid_index - 1);
	if (search->address[0])
		text_add(text, " address %s", search->address);
}

/* The named address is here, at a port that the other names exclude. */
static int is_elsewhere(const struct search *search,
			struct kvpull_verbs_own *own)
{
	const struct kvpull_verbs_seek *seek = search->seek;

	if (!search->address[0] ||
	    kvpull_verbs_own_find(seek->fabric, &search->wanted, own) ||
	    !own->context)
		return 0;
	return (search->device[0] &&
		fnmatch(search->device, name_of(search, own->context), 0)) ||
	       (seek->params->port && seek->params->port != own->port);
}

static int nothing_say(struct search *search)
{
	const struct kvpull_verbs_params *params = search->seek->params;
	const uint32_t rail = search->seek->rail;
	char bytes[2][HAS_BYTES] = { "", "" };
	struct text has = { .bytes = bytes[0], .capacity = HAS_BYTES };
	struct text names = { .bytes = bytes[1], .capacity = HAS_BYTES };
	struct kvpull_verbs_own own;

	/* A search that is repeated is silent, and nobody reads the list. */
	if (params->log->write)
		host_print(search, &has);
	names_print(search, &names);
	if (is_elsewhere(search, &own)) {
		kvpull_error(
			params->log,
			"verbs: rail %u:%s is refused: the address is on %s port %u; this host has %s",
			rail, bytes[1], name_of(search, own.context), own.port,
			bytes[0]);
		return KVPULL_ECONFIG;
	}
	kvpull_log(
		params->log,
		kvpull_verbs_absence_level(params, KVPULL_LOG_INFO),
		"verbs: rail %u: no port that can be used%s%s; this host has %s",
		rail, names.used ? " is" : "", bytes[1], bytes[0]);
	return KVPULL_EUNSUPPORTED;
}

/*
 * The nth of a list "a,b,c"; behind its end the last one if it is a pattern,
 * else "". 0 or KVPULL_ECONFIG.
 */
static int item_take(const char *list, uint32_t index, char item[NAME_BYTES])
{
	int more = given(list);

	item[0] = '\0';
	for (index++; index && more > 0; index--) {
		more = kvpull_verbs_item_next(&list, item, NAME_BYTES);
		if (more && !item[0])
			return KVPULL_ECONFIG;
	}
	if (!more && !strpbrk(item, "*?["))
		item[0] = '\0';
	return more < 0 ? KVPULL_ECONFIG : 0;
}

/*
 * Reads which device or address the configuration asks for on this rail. 0 or
 * KVPULL_ECONFIG.
 */
static int wanted_take(struct search *search)
{
	const struct kvpull_verbs_params *params = search->seek->params;
	const uint32_t rail = search->seek->rail;

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

int kvpull_verbs_search(const struct kvpull_verbs_seek *seek,
			struct kvpull_verbs_port *found,
			char why[KVPULL_VERBS_WHY_BYTES])
{
	struct text text = { .bytes = why, .capacity = KVPULL_VERBS_WHY_BYTES };
	struct kvpull_verbs_choice choice;
	struct search search;
	uint32_t at;
	int code;

	memset(&search, 0, sizeof(search));
	search.seek = seek;
	why[0] = '\0';
	code = wanted_take(&search);
	if (code)
		return code;
	for (at = 0; at < seek->list_count; at++)
		device_look(&search, seek->list[at]);
	/* A device that could not be judged might be the better one. */
	if (search.why_failed) {
		kvpull_error(
			seek->params->log,
			"verbs: asking rdma_cm for the addresses of devices: %s",
			kvpull_why(OTHER, search.why_failed));
		return KVPULL_EDEVICE;
	}
	kvpull_verbs_pick(search.ports, search.port_count,
			  seek->params->local_rank * kvpull_verbs_rails_wanted(
							     seek->params) +
				  seek->rail,
			  &choice);
	if (!choice.port)
		return nothing_say(&search);
	why_print(&search, &choice, &text);
	*found = *choice.port;
	return 0;
}
