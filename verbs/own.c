/* SPDX-License-Identifier: Apache-2.0 */
#include "verbs/own.h"

#include <errno.h>
#include <ifaddrs.h>
#include <string.h>

static int bind_ask(const struct kvpull_fabric *fabric,
		    struct rdma_event_channel *channel,
		    struct kvpull_verbs_own *own)
{
	struct rdma_cm_id *id;

	if (fabric->cm.create_id(channel, &id, NULL, RDMA_PS_TCP))
		return KVPULL_EDEVICE;
	if (!fabric->cm.bind_addr(id, &own->address.socket.any)) {
		own->context = id->verbs;
		own->port = id->port_num;
	}
	(void)fabric->cm.destroy_id(id);
	return 0;
}

int kvpull_verbs_own_find(const struct kvpull_fabric *fabric,
			  const struct kvpull_verbs_address *address,
			  struct kvpull_verbs_own *own)
{
	struct rdma_event_channel *channel = fabric->cm.create_event_channel();
	int code;
	int why;

	*own = (struct kvpull_verbs_own){ .address = *address };
	kvpull_verbs_address_set_port(&own->address, 0);
	if (!channel)
		return KVPULL_EDEVICE;
	code = bind_ask(fabric, channel, own);
	why = errno;
	fabric->cm.destroy_event_channel(channel);
	errno = why;
	return code;
}

static int is_loopback(const struct kvpull_verbs_address *address)
{
	return address->socket.any.sa_family == AF_INET ?
		       (ntohl(address->socket.v4.sin_addr.s_addr) >> 24) ==
			       127 :
		       IN6_IS_ADDR_LOOPBACK(&address->socket.v6.sin6_addr);
}

/*
 * An address of an interface. Return: 1 if it leads to an RDMA device, 0 if
 * not, or KVPULL_EDEVICE.
 */
static int own_take(const struct kvpull_fabric *fabric,
		    const struct sockaddr *from, struct kvpull_verbs_own *own)
{
	struct kvpull_verbs_address address;
	int code;

	if (!from || kvpull_verbs_address_take(from, &address) ||
	    is_loopback(&address))
		return 0;
	code = kvpull_verbs_own_find(fabric, &address, own);
	return code ? code : own->context != NULL;
}

int kvpull_verbs_own_list(const struct kvpull_fabric *fabric,
			  struct kvpull_verbs_own own[KVPULL_VERBS_OWN_MAX])
{
	struct ifaddrs *list = NULL;
	const struct ifaddrs *at;
	uint32_t count = 0;
	int found = 0;
	int why;

	if (getifaddrs(&list))
		return KVPULL_EDEVICE;
	for (at = list; at && found >= 0 && count < KVPULL_VERBS_OWN_MAX;
	     at = at->ifa_next) {
		found = own_take(fabric, at->ifa_addr, &own[count]);
		count += found > 0;
	}
	why = errno;
	freeifaddrs(list);
	errno = why;
	return found < 0 ? found : (int)count;
}
