/* SPDX-License-Identifier: Apache-2.0 */
/* Where callers find us: one listener a rail, and the text that tickets carry. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/cause.h"

#include "verbs/endpoint.h"
#include "verbs/listen.h"

static int rail_listen(struct kvpull_verbs_connect *connect, uint32_t rail)
{
	const struct kvpull_verbs_shared *shared = connect->shared;
	const struct kvpull_fabric *fabric = shared->fabric;
	struct rdma_cm_id **listener = &connect->listeners[rail];
	struct kvpull_verbs_address address = shared->devices[rail].address;

	if (fabric->cm.create_id(connect->channel, listener, NULL,
				 RDMA_PS_TCP)) {
		*listener = NULL;
		return KVPULL_EDEVICE;
	}
	kvpull_verbs_address_set_port(
		&address, connect->ports[rail] ?
				  connect->ports[rail] :
				  (uint16_t)shared->params.listen_port);
	if (fabric->cm.bind_addr(*listener, &address.socket.any) ||
	    fabric->cm.listen(*listener, KVPULL_VERBS_LISTEN_BACKLOG))
		return KVPULL_EDEVICE;
	/* Tickets name it: it is taken again when the device comes back. */
	connect->ports[rail] = ntohs(fabric->cm.get_src_port(*listener));
	return 0;
}

/*
 * Joins the address that tickets carry: all rails, also those that are away
 * now.
 */
static void address_join(struct kvpull_verbs_connect *connect)
{
	const struct kvpull_verbs_shared *shared = connect->shared;
	char text[KVPULL_VERBS_RAILS_MAX * KVPULL_ADDRESS_BYTES_MAX];
	char one[KVPULL_ADDRESS_BYTES_MAX];
	struct kvpull_verbs_address address;
	size_t used = 0;
	uint32_t rail;

	for (rail = 0; rail < shared->rail_count; rail++) {
		/* A rail that was away at serve() has no port yet. */
		if (!connect->ports[rail])
			continue;
		address = shared->devices[rail].address;
		kvpull_verbs_address_set_port(&address, connect->ports[rail]);
		kvpull_verbs_address_print(&address, one);
		used += (size_t)snprintf(text + used, sizeof(text) - used,
					 "%s%s", used ? "," : "", one);
		/* Consumers find as many rails as a ticket has room to name. */
		if (used < sizeof(connect->address))
			memcpy(connect->address, text, used + 1);
		else
			kvpull_warn(
				shared->log,
				"verbs: rail %u has no room in tickets: only %s go there",
				rail, connect->address);
	}
	if (used)
		kvpull_info(shared->log, "verbs: listening at %s", text);
}

int kvpull_verbs_connect_listen(struct kvpull_verbs_connect *connect)
{
	const struct kvpull_verbs_shared *shared = connect->shared;
	uint32_t rail;

	for (rail = 0; rail < shared->rail_count; rail++) {
		if (!shared->devices[rail].gone && rail_listen(connect, rail)) {
			kvpull_error(shared->log,
				     "verbs: listening on port %u: %s",
				     shared->params.listen_port,
				     kvpull_why(LISTEN, errno));
			return KVPULL_EDEVICE;
		}
	}
	address_join(connect);
	return 0;
}

/*
 * Another process may have the old port by now. Unless the configuration fixes
 * the port, any other port will do.
 */
static int rail_listen_again(struct kvpull_verbs_connect *connect,
			     uint32_t rail)
{
	int code = rail_listen(connect, rail);
	int error = errno;

	if (code && error == EADDRINUSE &&
	    !connect->shared->params.listen_port) {
		kvpull_verbs_connect_hush(connect, rail);
		connect->ports[rail] = 0;
		code = rail_listen(connect, rail);
		error = errno;
	}
	if (code)
		kvpull_verbs_connect_hush(connect, rail);
	errno = error;
	return code;
}

int kvpull_verbs_connect_listen_again(struct kvpull_verbs_connect *connect,
				      uint32_t rail)
{
	struct kvpull_verbs_shared *shared = connect->shared;
	char before[KVPULL_ADDRESS_BYTES_MAX];

	if (rail_listen_again(connect, rail)) {
		kvpull_log(shared->log,
			   shared->listen_said >> rail & 1 ? KVPULL_LOG_DEBUG :
							     KVPULL_LOG_WARN,
			   "verbs: listening on port %u again: %s",
			   connect->ports[rail], kvpull_why(LISTEN, errno));
		shared->listen_said |= 1u << rail;
		return KVPULL_EDEVICE;
	}
	shared->listen_said &= ~(1u << rail);
	memcpy(before, connect->address, sizeof(before));
	address_join(connect);
	if (strcmp(before, connect->address) == 0)
		return 0;
	connect->address_is_new = 1;
	if (before[0])
		kvpull_warn(
			shared->log,
			"verbs: our address was %s: tickets from now on name %s",
			before, connect->address);
	return 0;
}

void kvpull_verbs_connect_hush(struct kvpull_verbs_connect *connect,
			       uint32_t rail)
{
	kvpull_verbs_id_destroy(connect->shared, connect->listeners[rail]);
	connect->listeners[rail] = NULL;
}
