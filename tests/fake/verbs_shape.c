/* SPDX-License-Identifier: Apache-2.0 */
/* Machines that tests describe: see verbs_shape.h. */
#include "tests/fake/verbs_shape.h"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>

#include "tests/fake/verbs_state.h"

#define fake fake_verbs_state
#define INTERFACES_MAX (FAKE_VERBS_DEVICES_MAX * FAKE_VERBS_PLACES_MAX)

struct interface {
	struct ifaddrs entry;
	struct sockaddr_storage address;
	struct sockaddr_storage mask;
};

void fake_verbs_shapes(const struct fake_verbs_shape *shapes, uint32_t count)
{
	uint32_t at;

	fake.shapes = shapes;
	fake_verbs_devices(count);
	for (at = 0; at < count; at++) {
		struct ibv_device *device = &fake.devices[at];

		memset(device->name, 0, sizeof(device->name));
		memcpy(device->name, shapes[at].name, strlen(shapes[at].name));
		device->transport_type = shapes[at].link == FAKE_VERBS_IWARP ?
						 IBV_TRANSPORT_IWARP :
						 IBV_TRANSPORT_IB;
	}
}

static uint32_t port_of(const struct fake_verbs_place *place)
{
	return place->port ? place->port : 1;
}

uint8_t fake_verbs_shape_ports(uint32_t device)
{
	const uint32_t count = fake.shapes[device].port_count;

	return (uint8_t)(count ? count : 1);
}

/* The nth place of a port; NULL: there are fewer. */
static const struct fake_verbs_place *
place_at(const struct fake_verbs_shape *shape, uint32_t port, uint32_t index)
{
	uint32_t at;

	for (at = 0; at < FAKE_VERBS_PLACES_MAX && shape->places[at].ip; at++)
		if (port_of(&shape->places[at]) == port && !index--)
			return &shape->places[at];
	return NULL;
}

static int gid_count(const struct fake_verbs_shape *shape, uint32_t port)
{
	int count = 0;

	while (place_at(shape, port, (uint32_t)count))
		count++;
	return shape->link == FAKE_VERBS_ROCE ? count : 1;
}

void fake_verbs_shape_port(uint32_t device, uint32_t port,
			   struct ibv_port_attr *attr)
{
	const struct fake_verbs_shape *shape = &fake.shapes[device];

	attr->state =
		shape->down >> (port - 1) & 1 ? IBV_PORT_DOWN : IBV_PORT_ACTIVE;
	attr->gid_tbl_len = gid_count(shape, port);
	attr->link_layer = shape->link == FAKE_VERBS_INFINIBAND ?
				   IBV_LINK_LAYER_INFINIBAND :
				   IBV_LINK_LAYER_ETHERNET;
}

int fake_verbs_shape_gid(uint32_t device, uint32_t port, uint32_t index,
			 struct ibv_gid_entry *entry)
{
	const struct fake_verbs_shape *shape = &fake.shapes[device];
	const struct fake_verbs_place *place = place_at(shape, port, index);

	memset(&entry->gid, 0, sizeof(entry->gid));
	entry->gid_type = IBV_GID_TYPE_IB;
	if (shape->link != FAKE_VERBS_ROCE) {
		/* The subnet's prefix and a GUID; of iWARP a MAC. */
		entry->gid.raw[0] =
			shape->link == FAKE_VERBS_INFINIBAND ? 0xfe : 0x02;
		entry->gid.raw[15] = (uint8_t)(device << 4 | port);
		return index ? ENOENT : 0;
	}
	if (!place)
		return ENOENT;
	entry->gid_type =
		place->v1 ? IBV_GID_TYPE_ROCE_V1 : IBV_GID_TYPE_ROCE_V2;
	entry->ndev_ifindex = 1 + device;
	if (inet_pton(AF_INET6, place->ip, entry->gid.raw) == 1)
		return 0;
	entry->gid.raw[10] = entry->gid.raw[11] = 0xff;
	return inet_pton(AF_INET, place->ip, entry->gid.raw + 12) == 1 ? 0 :
									 EINVAL;
}

static int is_ip(const struct sockaddr *address, const char *ip)
{
	uint8_t bytes[16];

	if (inet_pton(address->sa_family, ip, bytes) != 1)
		return 0;
	return address->sa_family == AF_INET ?
		       !memcmp(&((const struct sockaddr_in *)(const void *)
					 address)
					->sin_addr,
			       bytes, 4) :
		       !memcmp(&((const struct sockaddr_in6 *)(const void *)
					 address)
					->sin6_addr,
			       bytes, 16);
}

int fake_verbs_shape_bind(struct rdma_cm_id *id, const struct sockaddr *address)
{
	uint32_t device;
	uint32_t at;

	for (device = 0; device < fake.device_count; device++)
		for (at = 0; at < FAKE_VERBS_PLACES_MAX; at++) {
			const struct fake_verbs_place *place =
				&fake.shapes[device].places[at];

			if (!place->ip || place->away ||
			    fake.shapes[device].hidden ||
			    !is_ip(address, place->ip))
				continue;
			id->verbs = &fake.contexts[device];
			id->port_num = (uint8_t)port_of(place);
			return 0;
		}
	errno = EADDRNOTAVAIL;
	return -1;
}

static void interface_fill(struct interface *to, const char *ip)
{
	struct sockaddr_in *v4 = (struct sockaddr_in *)(void *)&to->address;
	struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)(void *)&to->address;

	memset(to, 0, sizeof(*to));
	to->entry.ifa_addr = (struct sockaddr *)(void *)&to->address;
	to->entry.ifa_netmask = (struct sockaddr *)(void *)&to->mask;
	if (inet_pton(AF_INET, ip, &v4->sin_addr) == 1) {
		v4->sin_family = AF_INET;
		v4 = (struct sockaddr_in *)(void *)&to->mask;
		v4->sin_addr.s_addr = htonl(0xffffff00);
	} else {
		(void)inet_pton(AF_INET6, ip, &v6->sin6_addr);
		v6->sin6_family = AF_INET6;
		v6 = (struct sockaddr_in6 *)(void *)&to->mask;
		memset(&v6->sin6_addr, 0xff, 8);
	}
}

/* As any host has them: without an address, of another family, without a mask. */
static struct ifaddrs *others_list(void)
{
	static struct interface others[3];

	interface_fill(&others[0], "192.0.2.1");
	interface_fill(&others[1], "192.0.2.2");
	interface_fill(&others[2], "192.0.2.3");
	others[0].entry.ifa_addr = NULL;
	others[1].address.ss_family = AF_PACKET;
	others[2].entry.ifa_netmask = NULL;
	others[0].entry.ifa_next = &others[1].entry;
	others[1].entry.ifa_next = &others[2].entry;
	return &others[0].entry;
}

struct ifaddrs *fake_verbs_interfaces(void)
{
	static struct interface interfaces[INTERFACES_MAX];
	struct ifaddrs *first = fake.shapes ? others_list() : NULL;
	uint32_t device;
	uint32_t at;

	/* From the end, so that the list has their order. */
	for (device = fake.shapes ? fake.device_count : 0; device-- > 0;)
		for (at = FAKE_VERBS_PLACES_MAX; at-- > 0;) {
			const struct fake_verbs_place *place =
				&fake.shapes[device].places[at];
			struct interface *to =
				&interfaces[device * FAKE_VERBS_PLACES_MAX + at];

			if (!place->ip || place->away ||
			    fake.shapes[device].hidden)
				continue;
			interface_fill(to, place->ip);
			to->entry.ifa_next = first;
			first = &to->entry;
		}
	return first;
}
