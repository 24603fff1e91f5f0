/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls of librdmacm, libibverbs and the kernel that are refused, each in turn:
 * what it costs, what the log says of it, and that all works afterwards.
 */
#include <errno.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "tests/fake/verbs_state.h"
#include "tests/unit/verbs/world.h"
#include "verbs/endpoint.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define EIO_TEXT "Input/output error"

enum call {
	NO_CALL = 0,
	CM_CHANNEL,
	CM_CHANNEL_FD,
	CHANNEL_FD,
	CREATE_ID,
	BIND,
	LISTEN,
	RESOLVE_ADDR,
	RESOLVE_ROUTE,
	INIT_QP,
	CONNECT,
	ACCEPT,
	ESTABLISH,
	OPTION,
	DEVICES,
	DESTROY_ID,
	DEALLOC_PD,
	DEREG_MR,
	DESTROY_CHANNEL,
	DESTROY_CQ,
	DESTROY_QP,
	QUERY_DEVICE,
	QUERY_PORT,
	MODIFY,
	POST_RECEIVE,
	POLL_QUEUE,
	COMPLETE,
	ARM_QUEUE,
	EPOLL,
	EPOLL_ADD,
	TIMER,
};

/* The nth of these calls from now on is refused with this errno. */
static struct {
	enum call call;
	uint32_t at;
	int error;
} refused;

static struct kvpull_fabric real; /* as the fake has it */
static struct ibv_context_ops real_ops;

static int is_refused(enum call call)
{
	if (refused.call != call || !refused.at || --refused.at)
		return 0;
	errno = refused.error;
	return 1;
}

static void refuse(enum call call, uint32_t at)
{
	refused.call = call;
	refused.at = at;
	refused.error = EIO;
}

/* In the place of libc's, for the library that is linked to this program. */
int epoll_create1(int flags)
{
	return is_refused(EPOLL) ? -1 : (int)syscall(SYS_epoll_create1, flags);
}

/* Likewise. */
int epoll_ctl(int epoll_fd, int op, int fd, struct epoll_event *event)
{
	if (op == EPOLL_CTL_ADD && is_refused(EPOLL_ADD))
		return -1;
	return (int)syscall(SYS_epoll_ctl, epoll_fd, op, fd, event);
}

/* Likewise. */
int timerfd_create(int clock, int flags)
{
	return is_refused(TIMER) ?
		       -1 :
		       (int)syscall(SYS_timerfd_create, clock, flags);
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

	if (is_refused(CM_CHANNEL))
		return NULL;
	channel = real.cm.create_event_channel();
	if (is_refused(CM_CHANNEL_FD))
		spoil(&channel->fd);
	return channel;
}

static struct ibv_comp_channel *create_comp_channel(struct ibv_context *context)
{
	struct ibv_comp_channel *channel =
		real.ibv.create_comp_channel(context);

	if (is_refused(CHANNEL_FD))
		spoil(&channel->fd);
	return channel;
}

static int create_id(struct rdma_event_channel *channel, struct rdma_cm_id **id,
		     void *context, enum rdma_port_space space)
{
	return is_refused(CREATE_ID) ?
		       -1 :
		       real.cm.create_id(channel, id, context, space);
}

static int bind_addr(struct rdma_cm_id *id, struct sockaddr *address)
{
	return is_refused(BIND) ? -1 : real.cm.bind_addr(id, address);
}

static int cm_listen(struct rdma_cm_id *id, int backlog)
{
	return is_refused(LISTEN) ? -1 : real.cm.listen(id, backlog);
}

static int resolve_addr(struct rdma_cm_id *id, struct sockaddr *from,
			struct sockaddr *to, int ms)
{
	return is_refused(RESOLVE_ADDR) ?
		       -1 :
		       real.cm.resolve_addr(id, from, to, ms);
}

static int resolve_route(struct rdma_cm_id *id, int ms)
{
	return is_refused(RESOLVE_ROUTE) ? -1 : real.cm.resolve_route(id, ms);
}

static int init_qp_attr(struct rdma_cm_id *id, struct ibv_qp_attr *attr,
			int *mask)
{
	return is_refused(INIT_QP) ? -1 : real.cm.init_qp_attr(id, attr, mask);
}

static int cm_connect(struct rdma_cm_id *id, struct rdma_conn_param *param)
{
	return is_refused(CONNECT) ? -1 : real.cm.connect(id, param);
}

static int cm_accept(struct rdma_cm_id *id, struct rdma_conn_param *param)
{
	return is_refused(ACCEPT) ? -1 : real.cm.accept(id, param);
}

static int establish(struct rdma_cm_id *id)
{
	return is_refused(ESTABLISH) ? -1 : real.cm.establish(id);
}

static struct ibv_context **get_devices(int *count)
{
	return is_refused(DEVICES) ? NULL : real.cm.get_devices(count);
}

/* The object is gone, and the library complains of it. */
static int destroy_id(struct rdma_cm_id *id)
{
	const int code = real.cm.destroy_id(id);

	return is_refused(DESTROY_ID) ? -1 : code;
}

static int dealloc_pd(struct ibv_pd *pd)
{
	const int code = real.ibv.dealloc_pd(pd);

	return is_refused(DEALLOC_PD) ? EIO : code;
}

static int dereg_mr(struct ibv_mr *memory)
{
	const int code = real.ibv.dereg_mr(memory);

	return is_refused(DEREG_MR) ? EIO : code;
}

static int destroy_channel(struct ibv_comp_channel *channel)
{
	const int code = real.ibv.destroy_comp_channel(channel);

	return is_refused(DESTROY_CHANNEL) ? EIO : code;
}

static int destroy_cq(struct ibv_cq *queue)
{
	const int code = real.ibv.destroy_cq(queue);

	return is_refused(DESTROY_CQ) ? EIO : code;
}

static int destroy_qp(struct ibv_qp *pair)
{
	const int code = real.ibv.destroy_qp(pair);

	return is_refused(DESTROY_QP) ? EIO : code;
}

static int query_device(struct ibv_context *context,
			struct ibv_device_attr *attr)
{
	return is_refused(QUERY_DEVICE) ? EIO :
					  real.ibv.query_device(context, attr);
}

static int query_port(struct ibv_context *context, uint8_t port,
		      struct _compat_ibv_port_attr *attr)
{
	return is_refused(QUERY_PORT) ?
		       EIO :
		       real.ibv.query_port(context, port, attr);
}

static int modify_qp(struct ibv_qp *pair, struct ibv_qp_attr *attr, int mask)
{
	return is_refused(MODIFY) ? EIO : real.ibv.modify_qp(pair, attr, mask);
}

static int post_recv(struct ibv_qp *pair, struct ibv_recv_wr *request,
		     struct ibv_recv_wr **bad)
{
	return is_refused(POST_RECEIVE) ?
		       EIO :
		       real_ops.post_recv(pair, request, bad);
}

static int poll_cq(struct ibv_cq *queue, int count, struct ibv_wc *completions)
{
	const struct kvpull_verbs_end *end = queue->cq_context;

	/* The first one that was not posted yet. */
	if (is_refused(COMPLETE)) {
		*completions = (struct ibv_wc){ .wr_id = end->posted };
		return 1;
	}
	return is_refused(POLL_QUEUE) ?
		       -1 :
		       real_ops.poll_cq(queue, count, completions);
}

static int req_notify_cq(struct ibv_cq *queue, int solicited)
{
	return is_refused(ARM_QUEUE) ? EIO :
				       real_ops.req_notify_cq(queue, solicited);
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
	return is_refused(OPTION) ?
		       -1 :
		       real.cm.set_option(id, level, name, value, bytes);
}

static void cm_wrap(struct kvpull_fabric *table)
{
	table->cm.create_event_channel = create_event_channel;
	table->cm.create_id = create_id;
	table->cm.bind_addr = bind_addr;
	table->cm.listen = cm_listen;
	table->cm.resolve_addr = resolve_addr;
	table->cm.resolve_route = resolve_route;
	table->cm.init_qp_attr = init_qp_attr;
	table->cm.connect = cm_connect;
	table->cm.accept = cm_accept;
	table->cm.establish = establish;
	table->cm.set_option = set_option;
	table->cm.get_devices = get_devices;
	table->cm.destroy_id = destroy_id;
}

/* A world in which all can be refused, by one device. */
static void begin(void)
{
	struct kvpull_fabric *table = fake_verbs_fabric();
	struct ibv_context_ops *ops = &fake_verbs_state.contexts[0].ops;

	refuse(NO_CALL, 0);
	option_count = 0;
	world_init();
	real = *table;
	real_ops = *ops;
	cm_wrap(table);
	table->ibv.create_comp_channel = create_comp_channel;
	table->ibv.dealloc_pd = dealloc_pd;
	table->ibv.dereg_mr = dereg_mr;
	table->ibv.destroy_comp_channel = destroy_channel;
	table->ibv.destroy_cq = destroy_cq;
	table->ibv.destroy_qp = destroy_qp;
	table->ibv.query_device = query_device;
	table->ibv.query_port = query_port;
	table->ibv.modify_qp = modify_qp;
	ops->post_recv = post_recv;
	ops->poll_cq = poll_cq;
	ops->req_notify_cq = req_notify_cq;
}

static void both_hear(uint32_t level)
{
	side_hear(&world.p, level);
	side_hear(&world.d, level);
}

/* A call that fails, and what the log says of it. */
struct refusal {
	enum call call;
	uint32_t at;
	int code; /* of D's end, or of the call itself */
	const char *says;
};

UNIT_TEST(connection_ends_by_a_call_that_is_refused)
{
	static const struct refusal rows[] = {
		{ RESOLVE_ROUTE, 1, KVPULL_EPEER, "lost: " EIO_TEXT },
		{ CONNECT, 1, KVPULL_EPEER, "lost: " EIO_TEXT },
		{ ACCEPT, 1, KVPULL_EPEER, "verbs: accepting 10.66.0.1" },
		{ ESTABLISH, 1, KVPULL_EPEER, "lost: " EIO_TEXT },
		{ INIT_QP, 1, KVPULL_ENOMEM, "queue pair, to take receives" },
		{ INIT_QP, 2, KVPULL_EPEER, "queue pair, to take receives" },
		{ INIT_QP, 3, KVPULL_EPEER, "queue pair, to receive: " },
		{ INIT_QP, 4, KVPULL_EPEER, "queue pair, to send: " },
		{ INIT_QP, 5, KVPULL_EPEER, "queue pair, to receive: " },
		{ INIT_QP, 6, KVPULL_EPEER, "queue pair, to send: " },
		{ MODIFY, 7, KVPULL_EPEER, "queue pair, to be read: " },
		{ POST_RECEIVE, 1, KVPULL_EDEVICE, "" },
		{ POST_RECEIVE, 9, KVPULL_EPEER, "lost: accepting" },
		{ POST_RECEIVE, 17, KVPULL_EPEER, "lost: post of a receive" },
		{ POLL_QUEUE, 1, KVPULL_EPEER,
		  "lost: poll of the completion queue" },
		{ COMPLETE, 1, KVPULL_EPEER,
		  "lost: the device completed what was not posted" },
		{ COMPLETE, 9, KVPULL_EPEER,
		  "lost: the device completed what was not posted" },
	};
	size_t i;

	for (i = 0; i < COUNT(rows); i++) {
		uint32_t live;

		begin();
		assert_int_equal(world_open(), 0);
		both_hear(KVPULL_LOG_WARN);
		live = fake_verbs_live();
		refuse(rows[i].call, rows[i].at);
		world_connect_run(6000);
		assert_int_equal(refused.at, 0);
		assert_int_equal(world.d.downs, 1);
		assert_int_equal(world.d.down_code, rows[i].code);
		assert_true(lines_said(rows[i].says));
		assert_int_equal(fake_verbs_live(), live);
		world.d.ups = 0;
		world_pulls();
		assert_int_equal(world_down(state), 0);
	}
}

UNIT_TEST(call_that_cannot_begin_takes_no_place)
{
	static const struct refusal rows[] = {
		{ CREATE_ID, 1, KVPULL_EPEER,
		  "verbs: connecting to 10.66.0.1:" },
		{ RESOLVE_ADDR, 1, KVPULL_EPEER,
		  "verbs: connecting to 10.66.0.1:" },
	};
	size_t i;

	for (i = 0; i < COUNT(rows); i++) {
		uint32_t live;

		begin();
		assert_int_equal(world_open(), 0);
		both_hear(KVPULL_LOG_WARN);
		live = fake_verbs_live();
		refuse(rows[i].call, rows[i].at);
		assert_int_equal(world_connect(), rows[i].code);
		assert_true(lines_said(rows[i].says));
		assert_true(lines_said(EIO_TEXT));
		assert_int_equal(fake_verbs_live(), live);
		world_run(10);
		assert_int_equal(world.d.downs, 0);
		world_pulls();
		assert_int_equal(world_down(state), 0);
	}
}

/* The host may be told of it; pulls go on, and nothing is left. */
UNIT_TEST(object_that_is_not_destroyed_is_said_once)
{
	static const struct refusal rows[] = {
		{ NO_CALL, 0, 0, NULL },
		{ DESTROY_ID, 1, 0, "verbs: id: " EIO_TEXT "\n" },
		{ DEALLOC_PD, 1, 0, "verbs: protection domain: " },
		{ DEREG_MR, 1, 0, "verbs: deregistering: " },
		{ DESTROY_CHANNEL, 1, 0, "verbs: completion channel: " },
		{ DESTROY_CQ, 1, 0, "verbs: completion queue: " },
		{ DESTROY_QP, 1, 0, ": queue pair: " },
	};
	size_t i;

	for (i = 0; i < COUNT(rows); i++) {
		begin();
		assert_int_equal(world_open(), 0);
		world_pulls();
		both_hear(KVPULL_LOG_WARN);
		refuse(rows[i].call, rows[i].at);
		assert_int_equal(world_down(state), 0);
		assert_int_equal(refused.at, 0);
		assert_int_equal(lines.bad_count, rows[i].call != NO_CALL);
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
		{ OPTION, 1, 0, "verbs: ack time-out: " EIO_TEXT },
		{ OPTION, 2, 0, "verbs: traffic class 106: " EIO_TEXT },
		{ OPTION, 3, 0, "verbs: ack time-out: " EIO_TEXT },
		{ OPTION, 4, 0, "verbs: traffic class 106: " EIO_TEXT },
	};
	size_t i;

	for (i = 0; i < COUNT(rows); i++) {
		begin();
		world.traffic_class = 106;
		assert_int_equal(world_open(), 0);
		both_hear(KVPULL_LOG_DEBUG);
		refuse(rows[i].call, rows[i].at);
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
	refuse(ARM_QUEUE, 1);
	assert_int_equal(world.d.route->ops->arm(world.d.route), 1);
	assert_true(lines_said("lost: arming the completion queue"));
	world.d.route->ops->disarm(world.d.route);
	world_run(WORLD_MS_FLUSHED);
	side_is_down(&world.d, KVPULL_EPEER);
	world.d.ups = world.d.reads_done = 0;
	world_pulls();
	assert_int_equal(world_down(state), 0);
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
		{ DEVICES, 1, 0, NULL },
		{ QUERY_DEVICE, 1, 0, NULL },
		{ QUERY_DEVICE, 2, KVPULL_EDEVICE, "MTU 4096: " EIO_TEXT },
		{ QUERY_PORT, 1, 0, NULL },
		{ CREATE_ID, 1, KVPULL_EDEVICE,
		  "asking rdma_cm for the addresses of devices: " EIO_TEXT },
		{ CM_CHANNEL, 1, KVPULL_EDEVICE,
		  "asking rdma_cm for the addresses of devices: " EIO_TEXT },
		{ CHANNEL_FD, 1, KVPULL_EDEVICE,
		  "MTU 4096: Bad file descriptor" },
		{ CM_CHANNEL_FD, 3, KVPULL_EDEVICE,
		  "verbs: CM event channel: Bad file descriptor" },
		{ EPOLL, 1, KVPULL_EDEVICE, "verbs: epoll: " EIO_TEXT },
		{ TIMER, 1, KVPULL_EDEVICE, "verbs: epoll: " EIO_TEXT },
		{ EPOLL_ADD, 1, KVPULL_EDEVICE, "verbs: epoll: " EIO_TEXT },
		{ EPOLL_ADD, 2, KVPULL_EDEVICE, "verbs: epoll: " EIO_TEXT },
		{ EPOLL_ADD, 3, KVPULL_EDEVICE, "verbs: epoll: " EIO_TEXT },
		{ EPOLL_ADD, 4, KVPULL_EDEVICE, "verbs: epoll: " EIO_TEXT },
	};
	size_t i;

	for (i = 0; i < COUNT(rows); i++) {
		begin();
		both_hear(KVPULL_LOG_WARN);
		refuse(rows[i].call, rows[i].at);
		assert_int_equal(side_open(&world.d), rows[i].code);
		assert_int_equal(refused.at, 0);
		if (rows[i].says)
			assert_true(lines_said(rows[i].says));
		if (rows[i].code)
			assert_int_equal(fake_verbs_live(), 0);
		else
			used_at_once();
		side_close(&world.d);
		assert_int_equal(fake_verbs_live(), 0);
		assert_int_equal(world_open(), 0);
		world_pulls();
		assert_int_equal(world_down(state), 0);
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
	world_pulls();
	assert_int_equal(world_down(state), 0);
}

UNIT_TEST(serve_that_cannot_listen_serves_nothing)
{
	static const struct refusal rows[] = {
		{ CREATE_ID, 1, KVPULL_EDEVICE, NULL },
		{ BIND, 1, KVPULL_EDEVICE, NULL },
		{ LISTEN, 1, KVPULL_EDEVICE, NULL },
	};
	size_t i;

	for (i = 0; i < COUNT(rows); i++) {
		uint32_t live;

		begin();
		world.listen_port = 7471;
		assert_int_equal(side_open(&world.p), 0);
		side_hear(&world.p, KVPULL_LOG_WARN);
		live = fake_verbs_live();
		refuse(rows[i].call, rows[i].at);
		assert_int_equal(side_serve(&world.p), rows[i].code);
		assert_true(
			lines_said("verbs: listening on port 7471: " EIO_TEXT));
		assert_int_equal(fake_verbs_live(), live);
		assert_string_equal(side_address(&world.p), "");
		side_close(&world.p);
		assert_int_equal(world_open(), 0);
		world_pulls();
		assert_int_equal(world_down(state), 0);
	}
}
