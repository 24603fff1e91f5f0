/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls of librdmacm, libibverbs and the kernel that are refused, each in turn:
 * what it costs, what the log says of it, and that all works afterwards.
 */
#include <errno.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/fake/verbs_state.h"
#include "tests/lib/refuse.h"
#include "tests/unit/verbs/world.h"
#include "verbs/endpoint.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define EIO_TEXT "Input/output error"

static struct kvpull_fabric real; /* as the fake has it */
static struct ibv_context_ops real_ops;

/* clang-format off */
REFUSABLE(int, epoll_create1, -1, (int flags), (flags))
REFUSABLE(int, timerfd_create, -1, (int clock, int flags), (clock, flags))
/* clang-format on */

/* In the place of libc's, for the library that is linked to this program. */
int epoll_ctl(int epoll_fd, int op, int fd, struct epoll_event *event)
{
	if (op == EPOLL_CTL_ADD && refuse_takes("epoll_add"))
		return -1;
	return (int)syscall(SYS_epoll_ctl, epoll_fd, op, fd, event);
}

/* A descriptor that nothing can be asked of. */
static void spoil(int *fd)
{
	(void)close(*fd);
	*fd = -1;
}

static struct rdma_event_channel *create_event_channel(void)
{
	struct rdma_event_channel *channel;

	if (refuse_takes("create_event_channel"))
		return NULL;
	channel = real.cm.create_event_channel();
	if (refuse_takes("event_channel_fd"))
		spoil(&channel->fd);
	return channel;
}

static struct ibv_comp_channel *create_comp_channel(struct ibv_context *context)
{
	struct ibv_comp_channel *channel =
		real.ibv.create_comp_channel(context);

	if (refuse_takes("comp_channel_fd"))
		spoil(&channel->fd);
	return channel;
}

/* NOLINTBEGIN(bugprone-macro-parentheses): names, lists and a type. */
/*
 * In the place of a function of the fabric's or of a device's, which returns
 * `refused`.
 */
#define FABRIC_REFUSABLE(table, name, refused, parameters, arguments)          \
	static int refusable_##name parameters                                 \
	{                                                                      \
		return refuse_takes(#name) ? (refused) : table.name arguments; \
	}
/* Likewise; the object is gone, and the library complains of it. */
#define FABRIC_REFUSABLE_END(table, name, refused, object_type)                \
	static int refusable_##name(object_type *object)                       \
	{                                                                      \
		const int code = table.name(object);                           \
                                                                               \
		return refuse_takes(#name) ? (refused) : code;                 \
	}
/* NOLINTEND(bugprone-macro-parentheses) */

/* clang-format off */
FABRIC_REFUSABLE(real.cm, create_id, -1,
		 (struct rdma_event_channel *channel, struct rdma_cm_id **id,
		  void *context, enum rdma_port_space space),
		 (channel, id, context, space))
FABRIC_REFUSABLE(real.cm, bind_addr, -1,
		 (struct rdma_cm_id *id, struct sockaddr *address), (id, address))
FABRIC_REFUSABLE(real.cm, listen, -1, (struct rdma_cm_id *id, int backlog),
		 (id, backlog))
FABRIC_REFUSABLE(real.cm, resolve_addr, -1,
		 (struct rdma_cm_id *id, struct sockaddr *from,
		  struct sockaddr *to, int ms),
		 (id, from, to, ms))
FABRIC_REFUSABLE(real.cm, resolve_route, -1, (struct rdma_cm_id *id, int ms),
		 (id, ms))
FABRIC_REFUSABLE(real.cm, init_qp_attr, -1,
		 (struct rdma_cm_id *id, struct ibv_qp_attr *attr, int *mask),
		 (id, attr, mask))
FABRIC_REFUSABLE(real.cm, connect, -1,
		 (struct rdma_cm_id *id, struct rdma_conn_param *param),
		 (id, param))
FABRIC_REFUSABLE(real.cm, accept, -1,
		 (struct rdma_cm_id *id, struct rdma_conn_param *param),
		 (id, param))
FABRIC_REFUSABLE(real.cm, establish, -1, (struct rdma_cm_id *id), (id))
FABRIC_REFUSABLE(real.ibv, query_device, EIO,
		 (struct ibv_context *context, struct ibv_device_attr *attr),
		 (context, attr))
FABRIC_REFUSABLE(real.ibv, query_port, EIO,
		 (struct ibv_context *context, uint8_t port,
		  struct _compat_ibv_port_attr *attr),
		 (context, port, attr))
FABRIC_REFUSABLE(real.ibv, modify_qp, EIO,
		 (struct ibv_qp *pair, struct ibv_qp_attr *attr, int mask),
		 (pair, attr, mask))
FABRIC_REFUSABLE(real_ops, post_recv, EIO,
		 (struct ibv_qp *pair, struct ibv_recv_wr *request,
		  struct ibv_recv_wr **bad),
		 (pair, request, bad))
FABRIC_REFUSABLE(real_ops, req_notify_cq, EIO,
		 (struct ibv_cq *queue, int solicited), (queue, solicited))
FABRIC_REFUSABLE_END(real.cm, destroy_id, -1, struct rdma_cm_id)
FABRIC_REFUSABLE_END(real.ibv, dealloc_pd, EIO, struct ibv_pd)
FABRIC_REFUSABLE_END(real.ibv, dereg_mr, EIO, struct ibv_mr)
FABRIC_REFUSABLE_END(real.ibv, destroy_comp_channel, EIO,
		     struct ibv_comp_channel)
FABRIC_REFUSABLE_END(real.ibv, destroy_cq, EIO, struct ibv_cq)
FABRIC_REFUSABLE_END(real.ibv, destroy_qp, EIO, struct ibv_qp)
/* clang-format on */

static struct ibv_context **get_devices(int *count)
{
	return refuse_takes("get_devices") ? NULL : real.cm.get_devices(count);
}

static int poll_cq(struct ibv_cq *queue, int count, struct ibv_wc *completions)
{
	const struct kvpull_verbs_end *end = queue->cq_context;

	/* The first one that was not posted yet. */
	if (refuse_takes("complete")) {
		*completions = (struct ibv_wc){ .wr_id = end->posted };
		return 1;
	}
	return refuse_takes("poll_cq") ?
		       -1 :
		       real_ops.poll_cq(queue, count, completions);
}

/* Options that were set, in their order. */
static struct {
	int name, level;
	uint8_t value;
} options[16];
static uint32_t option_count;

static int set_option(struct rdma_cm_id *id, int level, int name, void *value,
		      size_t bytes)
{
	assert_int_equal(bytes, 1);
	assert_in_range(option_count, 0, COUNT(options) - 1);
	options[option_count].level = level;
	options[option_count].name = name;
	options[option_count++].value = *(const uint8_t *)value;
	return refuse_takes("set_option") ?
		       -1 :
		       real.cm.set_option(id, level, name, value, bytes);
}

static void cm_wrap(struct kvpull_fabric *table)
{
	table->cm.create_event_channel = create_event_channel;
	table->cm.create_id = refusable_create_id;
	table->cm.bind_addr = refusable_bind_addr;
	table->cm.listen = refusable_listen;
	table->cm.resolve_addr = refusable_resolve_addr;
	table->cm.resolve_route = refusable_resolve_route;
	table->cm.init_qp_attr = refusable_init_qp_attr;
	table->cm.connect = refusable_connect;
	table->cm.accept = refusable_accept;
	table->cm.establish = refusable_establish;
	table->cm.set_option = set_option;
	table->cm.get_devices = get_devices;
	table->cm.destroy_id = refusable_destroy_id;
}

/* A world in which all can be refused, by one device. */
static void begin(void)
{
	struct kvpull_fabric *table = fake_verbs_fabric();
	struct ibv_context_ops *ops = &fake_verbs_state.contexts[0].ops;

	(void)refuse_end();
	option_count = 0;
	world_init();
	real = *table;
	real_ops = *ops;
	cm_wrap(table);
	table->ibv.create_comp_channel = create_comp_channel;
	table->ibv.dealloc_pd = refusable_dealloc_pd;
	table->ibv.dereg_mr = refusable_dereg_mr;
	table->ibv.destroy_comp_channel = refusable_destroy_comp_channel;
	table->ibv.destroy_cq = refusable_destroy_cq;
	table->ibv.destroy_qp = refusable_destroy_qp;
	table->ibv.query_device = refusable_query_device;
	table->ibv.query_port = refusable_query_port;
	table->ibv.modify_qp = refusable_modify_qp;
	ops->post_recv = refusable_post_recv;
	ops->poll_cq = poll_cq;
	ops->req_notify_cq = refusable_req_notify_cq;
}

static void both_hear(uint32_t level)
{
	side_hear(&world.p, level);
	side_hear(&world.d, level);
}

/* A call that fails, and what the log says of it. */
struct refusal {
	const char *call;
	uint32_t skip; /* calls that pass before */
	int code;      /* of D's end, or of the call itself */
	const char *says;
};

/* P and D are open, and the call will be refused. Return: the objects by then. */
static uint32_t begin_refused(const struct refusal *row)
{
	begin();
	assert_int_equal(world_open(), 0);
	both_hear(KVPULL_LOG_WARN);
	refuse(row->call, row->skip, EIO);
	return fake_verbs_live();
}

/* And all works. */
static void pulls_and_ends(void)
{
	void *none = NULL;

	world_pulls();
	assert_int_equal(world_down(&none), 0);
}

UNIT_TEST(connection_ends_by_a_call_that_is_refused)
{
	static const struct refusal rows[] = {
		{ "resolve_route", 0, KVPULL_EPEER, "lost: " EIO_TEXT },
		{ "connect", 0, KVPULL_EPEER, "lost: " EIO_TEXT },
		{ "accept", 0, KVPULL_EPEER, "verbs: accepting 10.66.0.1" },
		{ "establish", 0, KVPULL_EPEER, "lost: " EIO_TEXT },
		{ "init_qp_attr", 0, KVPULL_ENOMEM,
		  "queue pair, to take receives" },
		{ "init_qp_attr", 1, KVPULL_EPEER,
		  "queue pair, to take receives" },
		{ "init_qp_attr", 2, KVPULL_EPEER, "queue pair, to receive: " },
		{ "init_qp_attr", 3, KVPULL_EPEER, "queue pair, to send: " },
		{ "init_qp_attr", 4, KVPULL_EPEER, "queue pair, to receive: " },
		{ "init_qp_attr", 5, KVPULL_EPEER, "queue pair, to send: " },
		{ "modify_qp", 6, KVPULL_EPEER, "queue pair, to be read: " },
		{ "post_recv", 0, KVPULL_EDEVICE, "" },
		{ "post_recv", 8, KVPULL_EPEER, "lost: accepting" },
		{ "post_recv", 16, KVPULL_EPEER, "lost: post of a receive" },
		{ "poll_cq", 0, KVPULL_EPEER,
		  "lost: poll of the completion queue" },
		{ "complete", 0, KVPULL_EPEER,
		  "lost: the device completed what was not posted" },
		{ "complete", 8, KVPULL_EPEER,
		  "lost: the device completed what was not posted" },
	};
	size_t i;

	for (i = 0; i < COUNT(rows); i++) {
		const uint32_t live = begin_refused(&rows[i]);

		world_connect_run(6000);
		assert_int_equal(refuse_end(), 1);
		assert_int_equal(world.d.downs, 1);
		assert_int_equal(world.d.down_code, rows[i].code);
		assert_true(lines_said(rows[i].says));
		assert_int_equal(fake_verbs_live(), live);
		world.d.ups = 0;
		pulls_and_ends();
	}
}

UNIT_TEST(call_that_cannot_begin_takes_no_place)
{
	static const struct refusal rows[] = {
		{ "create_id", 0, KVPULL_EPEER,
		  "verbs: connecting to 10.66.0.1:" },
		{ "resolve_addr", 0, KVPULL_EPEER,
		  "verbs: connecting to 10.66.0.1:" },
	};
	size_t i;

	for (i = 0; i < COUNT(rows); i++) {
		const uint32_t live = begin_refused(&rows[i]);

		assert_int_equal(world_connect(), rows[i].code);
		assert_true(lines_said(rows[i].says));
		assert_true(lines_said(EIO_TEXT));
		assert_int_equal(fake_verbs_live(), live);
		world_run(10);
		assert_int_equal(world.d.downs, 0);
		pulls_and_ends();
	}
}

/* The host may be told of it; pulls go on, and nothing is left. */
UNIT_TEST(object_that_is_not_destroyed_is_said_once)
{
	static const struct refusal rows[] = {
		{ NULL, 0, 0, NULL },
		{ "destroy_id", 0, 0, "verbs: id: " EIO_TEXT "\n" },
		{ "dealloc_pd", 0, 0, "verbs: protection domain: " },
		{ "dereg_mr", 0, 0, "verbs: deregistering: " },
		{ "destroy_comp_channel", 0, 0, "verbs: completion channel: " },
		{ "destroy_cq", 0, 0, "verbs: completion queue: " },
		{ "destroy_qp", 0, 0, ": queue pair: " },
	};
	size_t i;

	for (i = 0; i < COUNT(rows); i++) {
		begin();
		assert_int_equal(world_open(), 0);
		world_pulls();
		both_hear(KVPULL_LOG_WARN);
		refuse(rows[i].call, rows[i].skip, EIO);
		assert_int_equal(world_down(state), 0);
		assert_int_equal(refuse_end(), rows[i].call != NULL);
		assert_int_equal(lines.bad_count, rows[i].call != NULL);
		if (rows[i].says)
			assert_true(lines_said(rows[i].says));
	}
}

static void option_is(uint32_t at, int name, uint32_t value)
{
	assert_int_equal(options[at].level, RDMA_OPTION_ID);
	assert_int_equal(options[at].name, name);
	assert_int_equal(options[at].value, value);
}

UNIT_TEST(both_sides_set_the_options_of_their_connection)
{
	begin();
	assert_int_equal(world_open(), 0);
	world_pulls();
	assert_int_equal(option_count, 2);
	option_is(0, RDMA_OPTION_ID_ACK_TIMEOUT, 14);
	option_is(1, RDMA_OPTION_ID_ACK_TIMEOUT, 14);
	assert_int_equal(world_down(state), 0);
	begin();
	world.traffic_class = 106;
	world.ack_timeout = 17;
	assert_int_equal(world_open(), 0);
	world_pulls();
	assert_int_equal(option_count, 4);
	option_is(0, RDMA_OPTION_ID_ACK_TIMEOUT, 17);
	option_is(1, RDMA_OPTION_ID_TOS, 106);
	option_is(2, RDMA_OPTION_ID_ACK_TIMEOUT, 17);
	option_is(3, RDMA_OPTION_ID_TOS, 106);
	assert_int_equal(world_down(state), 0);
}

UNIT_TEST(option_that_a_host_lacks_costs_no_pull)
{
	static const struct refusal rows[] = {
		{ "set_option", 0, 0, "verbs: ack time-out: " EIO_TEXT },
		{ "set_option", 1, 0, "verbs: traffic class 106: " EIO_TEXT },
		{ "set_option", 2, 0, "verbs: ack time-out: " EIO_TEXT },
		{ "set_option", 3, 0, "verbs: traffic class 106: " EIO_TEXT },
	};
	size_t i;

	for (i = 0; i < COUNT(rows); i++) {
		begin();
		world.traffic_class = 106;
		assert_int_equal(world_open(), 0);
		both_hear(KVPULL_LOG_DEBUG);
		refuse(rows[i].call, rows[i].skip, EIO);
		world_pulls();
		assert_true(lines_said(rows[i].says));
		assert_int_equal(option_count, 4);
		assert_int_equal(world_down(state), 0);
	}
}

UNIT_TEST(sleeper_that_cannot_be_woken_loses_its_peer)
{
	begin();
	assert_int_equal(world_open(), 0);
	world_pulls();
	both_hear(KVPULL_LOG_WARN);
	refuse("req_notify_cq", 0, EIO);
	assert_int_equal(world.d.route->ops->arm(world.d.route), 1);
	assert_true(lines_said("lost: arming the completion queue"));
	world.d.route->ops->disarm(world.d.route);
	world_run(WORLD_MS_FLUSHED);
	side_is_down(&world.d, KVPULL_EPEER);
	world.d.ups = world.d.reads_done = 0;
	pulls_and_ends();
}

/* The device that was passed over is found by the first poll. */
static void used_at_once(void)
{
	assert_string_equal(side_address(&world.d), "");
	assert_int_equal(side_serve(&world.d), 0);
	assert_memory_equal(side_address(&world.d), FAKE_VERBS_ADDRESS,
			    strlen(FAKE_VERBS_ADDRESS));
}

UNIT_TEST(open_fails_by_a_call_that_is_refused)
{
	static const struct refusal rows[] = {
		/* A device that says nothing of itself may come later. */
		{ "get_devices", 0, 0, NULL },
		{ "query_device", 0, 0, NULL },
		{ "query_device", 1, KVPULL_EDEVICE, "MTU 4096: " EIO_TEXT },
		{ "query_port", 0, 0, NULL },
		{ "create_id", 0, KVPULL_EDEVICE,
		  "asking rdma_cm for the addresses of devices: " EIO_TEXT },
		{ "create_event_channel", 0, KVPULL_EDEVICE,
		  "asking rdma_cm for the addresses of devices: " EIO_TEXT },
		{ "comp_channel_fd", 0, KVPULL_EDEVICE,
		  "MTU 4096: Bad file descriptor" },
		{ "event_channel_fd", 2, KVPULL_EDEVICE,
		  "verbs: CM event channel: Bad file descriptor" },
		{ "epoll_create1", 0, KVPULL_EDEVICE,
		  "verbs: epoll: " EIO_TEXT },
		{ "timerfd_create", 0, KVPULL_EDEVICE,
		  "verbs: epoll: " EIO_TEXT },
		{ "epoll_add", 0, KVPULL_EDEVICE, "verbs: epoll: " EIO_TEXT },
		{ "epoll_add", 1, KVPULL_EDEVICE, "verbs: epoll: " EIO_TEXT },
		{ "epoll_add", 2, KVPULL_EDEVICE, "verbs: epoll: " EIO_TEXT },
		{ "epoll_add", 3, KVPULL_EDEVICE, "verbs: epoll: " EIO_TEXT },
	};
	size_t i;

	for (i = 0; i < COUNT(rows); i++) {
		begin();
		both_hear(KVPULL_LOG_WARN);
		refuse(rows[i].call, rows[i].skip, EIO);
		assert_int_equal(side_open(&world.d), rows[i].code);
		assert_int_equal(refuse_end(), 1);
		if (rows[i].says)
			assert_true(lines_said(rows[i].says));
		if (rows[i].code)
			assert_int_equal(fake_verbs_live(), 0);
		else
			used_at_once();
		side_close(&world.d);
		assert_int_equal(fake_verbs_live(), 0);
		assert_int_equal(world_open(), 0);
		pulls_and_ends();
	}
}

UNIT_TEST(device_whose_events_may_stop_the_thread_fails_open)
{
	int async_fd;

	begin();
	async_fd = fake_verbs_state.contexts[0].async_fd;
	fake_verbs_state.contexts[0].async_fd = -1;
	side_hear(&world.d, KVPULL_LOG_ERROR);
	assert_int_equal(side_open(&world.d), KVPULL_EDEVICE);
	assert_true(lines_said("MTU 4096: Bad file descriptor"));
	assert_int_equal(fake_verbs_live(), 0);
	side_close(&world.d);
	fake_verbs_state.contexts[0].async_fd = async_fd;
	assert_int_equal(world_open(), 0);
	pulls_and_ends();
}

UNIT_TEST(serve_that_cannot_listen_serves_nothing)
{
	static const struct refusal rows[] = {
		{ "create_id", 0, KVPULL_EDEVICE, NULL },
		{ "bind_addr", 0, KVPULL_EDEVICE, NULL },
		{ "listen", 0, KVPULL_EDEVICE, NULL },
	};
	size_t i;

	for (i = 0; i < COUNT(rows); i++) {
		uint32_t live;

		begin();
		world.listen_port = 7471;
		assert_int_equal(side_open(&world.p), 0);
		side_hear(&world.p, KVPULL_LOG_WARN);
		live = fake_verbs_live();
		refuse(rows[i].call, rows[i].skip, EIO);
		assert_int_equal(side_serve(&world.p), rows[i].code);
		assert_true(
			lines_said("verbs: listening on port 7471: " EIO_TEXT));
		assert_int_equal(fake_verbs_live(), live);
		assert_string_equal(side_address(&world.p), "");
		side_close(&world.p);
		assert_int_equal(world_open(), 0);
		pulls_and_ends();
	}
}
