/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/verbs/world.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "plugin/reads/judge.h"
#include "tests/fake/verbs_shape.h"

struct world world;
uint64_t world_began_ns;
int (*world_node)(const void *page);

/*
 * In the place of libc's, for the library that is linked to this program: no
 * interface has an address of the fake devices, but of those that a test
 * describes, whatever this machine's have.
 */
int getifaddrs(struct ifaddrs **list)
{
	errno = world.interfaces_error;
	if (errno)
		return -1;
	*list = fake_verbs_interfaces();
	return 0;
}

void freeifaddrs(struct ifaddrs *list)
{
	(void)list;
}

/*
 * Likewise: the kernel says where pages lie only if the test says it; it may not
 * be asked as in a container. Other system calls are the kernel's.
 */
long syscall(long number, ...)
{
	static long (*next)(long, long, long, long, long, long, long);
	long given[6];
	va_list more;
	uint32_t i;

	va_start(more, number);
	for (i = 0; i < 6; i++)
		given[i] = va_arg(more, long);
	va_end(more);
	if (number == SYS_move_pages) {
		for (i = 0; world_node && i < (uint32_t)given[1]; i++)
			((int *)given[4])[i] =
				world_node(((void **)given[2])[i]);
		errno = EPERM;
		return world_node ? 0 : -1;
	}
	if (!next) {
		void *found = dlsym(RTLD_NEXT, "syscall");

		memcpy(&next, &found, sizeof(next));
	}
	return next(number, given[0], given[1], given[2], given[3], given[4],
		    given[5]);
}

/* As the engine's thread does. */
static void ring_drain(struct kvpull_ring *ring)
{
	struct kvpull_record record;
	int left = kvpull_ring_ready(ring);

	assert_true(left >= 0);
	for (; left > 0; left--) {
		kvpull_ring_pop(ring, &record);
		if (record.kind == WORLD_FILLER)
			continue;
		assert_true(world.note_count < WORLD_NOTES);
		world.notes[world.note_count++] = record;
	}
	kvpull_ring_pop_end(ring);
	world.beat_count += (uint32_t)kvpull_ring_beat_seen(ring);
}

void side_drain(struct world_side *side)
{
	uint32_t at;

	for (at = 0; !world.keeps_rings && at < WORLD_CALLERS; at++)
		if (side->rings[at])
			ring_drain(side->rings[at]);
}

void side_hear(struct world_side *side, uint32_t level)
{
	lines_forget();
	side->log = lines_from(level);
}

void side_count_lines(struct world_side *side)
{
	side->log = lines_from(KVPULL_LOG_WARN);
}

static void give_keep(void *context, const void *bytes, size_t byte_count)
{
	struct world_side *side = context;

	assert_in_range(byte_count, 1, sizeof(side->given));
	memcpy(side->given, bytes, byte_count);
	side->given_bytes = (uint32_t)byte_count;
	side->given_count++;
}

struct kvpull_verbs_params world_params(struct world_side *side)
{
	return (struct kvpull_verbs_params){
		.log = &side->log,
		.fabric = fake_verbs_fabric(),
		.networks = world.networks,
		.peers_max = 4,
		.callers_max = world.callers_max ? world.callers_max : 4,
		.ring_records = WORLD_RING_RECORDS,
		.reads_max = 8,
		.slots_max = WORLD_SLOTS,
		.engine_wake_fd = -1,
		.notify_credits = world.credits ? world.credits : 4,
		.batch = world.batch,
		.rails = world.rails,
		.qps = world.qps,
		.depth = world.depth,
		.window_bytes = world.window_bytes,
		.device = world.device,
		.address = world.address,
		.listen_port = world.listen_port,
		.port = world.device_port,
		.gid_index = world.gid_index,
		.local_rank = world.local_rank,
		.gpu_pci = world.gpu_pci,
		.mr_shift = world.mr_shift,
		.traffic_class = world.traffic_class,
		.ack_timeout = world.ack_timeout,
		.gpu = world.gpu,
		.device_flush = world.device_flush,
		.given = { .take = give_keep, .context = side },
	};
}

int side_open(struct world_side *side)
{
	const struct kvpull_verbs_params params = world_params(side);
	int code;

	kvpull_arena_init(&side->arena, &side->log);
	side->memory = kvpull_arena_take(&side->arena, 1, WORLD_BYTES);
	side->entries = kvpull_arena_take(&side->arena, WORLD_SLOTS,
					  sizeof(*side->entries));
	code = kvpull_verbs_open(&params, &side->arena, &side->route);
	assert_true(kvpull_arena_ok(&side->arena));
	if (code)
		side->route = NULL;
	return code;
}

void side_fill(struct world_side *side)
{
	side->serve.region_count = 1;
	side->serve.regions[0] =
		(struct kvpull_region_view){ .kind = KVPULL_REGION_PROVIDED,
					     .fd = -1,
					     .base = side->memory,
					     .bytes = WORLD_BYTES };
	side->serve.slot_count = WORLD_SLOTS;
	side->serve.entries = side->entries;
	side->serve.entries_fd = -1;
}

void route_begin(struct kvpull_transport *route)
{
	struct kvpull_event events[8];

	assert_int_equal(route->ops->poll(route, world.now_ns, events, 8), 0);
}

int side_serve(struct world_side *side)
{
	side_fill(side);
	route_begin(side->route);
	return side->route->ops->serve(side->route, &side->serve);
}

void side_begin(struct world_side *side)
{
	assert_int_equal(side_open(side), 0);
	assert_int_equal(side_serve(side), 0);
}

const char *side_address(const struct world_side *side)
{
	return side->route->ops->address(side->route);
}

const struct kvpull_verbs_counts *side_counts(const struct world_side *side)
{
	return kvpull_verbs_counts(side->route);
}

void side_is_down(const struct world_side *side, int32_t code)
{
	assert_int_equal(side->downs, 1);
	assert_int_equal(side->down_code, code);
}

void side_close(struct world_side *side)
{
	if (side->route)
		side->route->ops->close(side->route, kvpull_clock_close_by());
	memset(side->rings, 0, sizeof(side->rings));
	kvpull_arena_fini(&side->arena);
	side->route = NULL;
}

void world_consumer_again(void)
{
	side_close(&world.d);
	side_begin(&world.d);
	world.strip.local = world.d.memory;
}

void world_stranger_calls(const char *address,
			  struct kvpull_verbs_greeting greeting)
{
	uint8_t bytes[KVPULL_VERBS_PRIVATE_BYTES];

	greeting.credits = 4;
	greeting.mtu = IBV_MTU_4096;
	kvpull_verbs_greeting_put(bytes, &greeting);
	assert_int_equal(fake_verbs_stranger(address, bytes, sizeof(bytes)), 0);
}

void world_init(void)
{
	memset(&world, 0, sizeof(world));
	lines_forget();
	fake_verbs_reset();
	/*
	 * The route's timers are not due by the kernel's clock, unless a test
	 * says so.
	 */
	world.now_ns = world_began_ns ?
			       world_began_ns :
			       kvpull_clock_ns() + 3600 * KVPULL_NS_PER_S;
	world.peer = KVPULL_NONE;
	world.networks = "10.66.0.0/24";
}

void world_fill(void)
{
	uint32_t i;

	for (i = 0; i < WORLD_BYTES; i++)
		world.p.memory[i] = (uint8_t)(i * 31 + i / 256 + 1);
	for (i = 0; i < WORLD_SLOTS; i++)
		atomic_store_explicit(&world.p.entries[i].incarnation,
				      WORLD_INCARNATION, memory_order_relaxed);
}

/* The other side may have been lost in the poll that told of it. */
static void was_said(int code)
{
	if (code != KVPULL_EPEER)
		assert_int_equal(code, 0);
}

static void caller_event(struct world_side *side,
			 const struct kvpull_event *event)
{
	const struct kvpull_transport_ops *ops = side->route->ops;
	struct kvpull_ring **ring = &side->rings[event->index];

	side->handle = event->index;
	if (event->kind == KVPULL_EVENT_CALLER_UP) {
		side->ups++;
		if (!world.silent)
			was_said(ops->caller_send(side->route, event->index,
						  "challenge", 10));
	} else if (event->kind == KVPULL_EVENT_CALLER_MESSAGE) {
		side->messages++;
		memcpy(side->message, event->data, event->data_bytes);
		if (strcmp(side->message, "hello") != 0)
			ops->drop(side->route, event->index);
		else if (world.refuses)
			ops->refuse(side->route, event->index, "no", 3);
		else
			(void)ops->admit(side->route, event->index, "welcome",
					 8, ring);
	} else {
		side->downs++;
		side->down_code = event->code;
		side_drain(side);
		*ring = NULL;
		ops->forget(side->route, event->index);
	}
}

static void peer_message(struct world_side *side,
			 const struct kvpull_event *event)
{
	const struct kvpull_transport_ops *ops = side->route->ops;

	side->messages++;
	assert_true(event->data_bytes <= sizeof(side->message));
	memcpy(side->message, event->data, event->data_bytes);
	if (strcmp(side->message, "challenge") == 0) {
		was_said(ops->peer_send(side->route, event->index, "hello", 6));
	} else if (strcmp(side->message, "welcome") == 0 && world.leaves) {
		assert_int_equal(ops->peer_send(side->route, event->index,
						"farewell", 9),
				 0);
		ops->disconnect(side->route, event->index);
	} else if (strcmp(side->message, "welcome") == 0) {
		side->ups++;
		world.attach_code = (uint32_t)ops->attach(
			side->route, event->index, &world.p.serve);
	} else {
		ops->disconnect(side->route, event->index);
	}
}

void side_event(struct world_side *side, const struct kvpull_event *event)
{
	switch (event->kind) {
	case KVPULL_EVENT_PEER_MESSAGE:
		peer_message(side, event);
		break;
	case KVPULL_EVENT_PEER_DOWN:
		side->downs++;
		side->down_code = event->code;
		break;
	case KVPULL_EVENT_READ_DONE:
		side->reads_done++;
		side->read_code = event->code;
		break;
	case KVPULL_EVENT_CHECK_DONE:
		side->checks_done++;
		side->check_code = event->code;
		break;
	case KVPULL_EVENT_CALLER_UP:
	case KVPULL_EVENT_CALLER_MESSAGE:
	case KVPULL_EVENT_CALLER_DOWN:
		caller_event(side, event);
		break;
	case KVPULL_EVENT_ADDRESS:
		side->addresses++;
		break;
	case KVPULL_EVENT_PEER_RATE: /* of devices alone */
	case KVPULL_EVENT_NONE:
		break;
	}
}

int side_would_wake(const struct world_side *side)
{
	struct pollfd waits = { .fd = side->route->ops->fd(side->route),
				.events = POLLIN };

	return poll(&waits, 1, 0);
}

void side_poll(struct world_side *side)
{
	struct kvpull_event events[8];
	int count;
	int i;

	if (!side->route)
		return;
	count = side->route->ops->poll(side->route, world.now_ns, events, 8);
	if (side->route->ops->rings(side->route))
		assert_int_equal(side_would_wake(side), 1);
	for (i = 0; i < count; i++)
		side_event(side, &events[i]);
	side_drain(side);
}

void side_step(struct world_side *side)
{
	world.now_ns += WORLD_STEP_NS;
	side_poll(side);
}

void side_sleep(struct world_side *side)
{
	const struct kvpull_transport_ops *ops = side->route->ops;
	uint32_t tries = 0;

	while (ops->arm(side->route) || side_would_wake(side)) {
		assert_true(++tries < 100);
		ops->disarm(side->route);
		side_poll(side);
	}
}

void world_run(uint32_t steps)
{
	for (; steps; steps--) {
		side_step(&world.p);
		side_poll(&world.d);
	}
}

int world_connect(void)
{
	return world.d.route->ops->connect(world.d.route,
					   side_address(&world.p), &world.peer);
}

void world_connect_run(uint32_t steps)
{
	assert_int_equal(world_connect(), 0);
	world_run(steps);
}

void world_comes_up(uint32_t steps)
{
	world_connect_run(steps);
	assert_int_equal(world.d.ups, 1);
}

void world_disconnect(void)
{
	world.d.route->ops->disconnect(world.d.route, world.peer);
}

void world_read_make(uint32_t index)
{
	uint32_t i;

	for (i = 0; i < WORLD_BLOCKS; i++) {
		world.remote_ids[i] = i;
		world.local_ids[i] = i * 7 % WORLD_BLOCKS;
	}
	for (i = 1; i <= KVPULL_GROUPS_MAX; i++)
		world.group_first[i] = WORLD_BLOCKS;
	world.strip = (struct kvpull_strip){
		.remote_block_stride = WORLD_BLOCK_BYTES,
		.remote_row_stride = WORLD_BLOCK_BYTES,
		.local = world.d.memory,
		.local_block_stride = WORLD_BLOCK_BYTES,
		.local_row_stride = WORLD_BLOCK_BYTES,
		.row_bytes = WORLD_BLOCK_BYTES,
		.row_count = 1,
	};
	world.read = (struct kvpull_read){
		.index = index,
		.strip_count = 1,
		.strips = &world.strip,
		.remote_ids = world.remote_ids,
		.local_ids = world.local_ids,
		.group_first = world.group_first,
		.byte_count = WORLD_BYTES,
		.slots = world.slots,
		.entries = world.checked,
		.slot_count = 1,
	};
	world.slots[0] = 3;
}

int world_start(struct kvpull_read *read)
{
	return world.d.route->ops->read_start(world.d.route, world.peer, read);
}

int world_read_start(void)
{
	return world_start(&world.read);
}

void world_read_run(uint32_t steps)
{
	assert_int_equal(world_read_start(), 0);
	world_run(steps);
}

void world_read_held(uint32_t steps)
{
	fake_verbs_knobs.held = 1;
	world_read_run(steps);
}

void world_read_held_by(uint32_t devices, uint32_t steps)
{
	fake_verbs_knobs.held_devices = devices;
	world_read_run(steps);
}

void world_read_ended(int32_t code)
{
	assert_int_equal(world.d.reads_done, 1);
	assert_int_equal(world.d.read_code, code);
}

void world_cancel(struct kvpull_read *read)
{
	world.d.route->ops->read_cancel(world.d.route, world.peer, read);
}

void world_read_cancel(void)
{
	world_cancel(&world.read);
}

int world_read_is_right(void)
{
	uint32_t i;

	for (i = 0; i < WORLD_BLOCKS; i++)
		if (memcmp(world.p.memory + i * WORLD_BLOCK_BYTES,
			   world.d.memory +
				   world.local_ids[i] * WORLD_BLOCK_BYTES,
			   WORLD_BLOCK_BYTES) != 0)
			return 0;
	return 1;
}

int world_check_start(void)
{
	return world.d.route->ops->check_start(world.d.route, world.peer,
					       &world.read);
}

void world_entry_judges(int code)
{
	assert_int_equal(kvpull_guard_judge(KVPULL_GUARD_HOLD,
					    &world.checked[0],
					    WORLD_INCARNATION, UINT64_MAX),
			 code);
}

void world_check_is_good(void)
{
	assert_int_equal(world_check_start(), 0);
	world_run(5);
	assert_int_equal(world.d.checks_done, 1);
	assert_int_equal(world.d.check_code, 0);
	assert_int_equal(world.checked[0].incarnation, WORLD_INCARNATION);
}

int world_note_send(uint64_t generation)
{
	const struct kvpull_record record = { .kind = KVPULL_NOTE_CLAIM,
					      .slot = 1,
					      .generation = generation,
					      .tag = 9 };

	return world.d.route->ops->notify(world.d.route, world.peer, &record);
}

void world_inject(int initiator, const struct kvpull_frame *frame)
{
	uint8_t bytes[KVPULL_FRAME_BYTES];

	assert_int_equal(fake_verbs_inject(initiator, bytes,
					   kvpull_frame_put(bytes, frame)),
			 1);
}

void world_ring_fill(void)
{
	const struct kvpull_record filler = { .kind = WORLD_FILLER };
	const struct kvpull_transport_ops *ops = world.d.route->ops;
	uint32_t said = 0;
	uint32_t tries;

	world.keeps_rings = 1;
	for (tries = 0; said < WORLD_RING_RECORDS && tries < 100; tries++) {
		while (said < WORLD_RING_RECORDS &&
		       !ops->notify(world.d.route, world.peer, &filler))
			said++;
		world_run(1);
	}
	world_run(5);
	assert_int_equal(said, WORLD_RING_RECORDS);
	assert_int_equal(kvpull_ring_ready(world.p.rings[world.p.handle]),
			 WORLD_RING_RECORDS);
}

void world_reads(uint32_t steps)
{
	const uint32_t before = world.d.reads_done;

	world_read_run(steps);
	assert_int_equal(world.d.reads_done, before + 1);
	assert_int_equal(world.d.read_code, 0);
	assert_true(world_read_is_right());
}

void world_pulls(void)
{
	world_comes_up(20);
	world_reads(5);
	assert_int_equal(world.d.reads_done, 1);
}

void world_serve(void)
{
	assert_int_equal(side_serve(&world.p), 0);
	assert_int_equal(side_serve(&world.d), 0);
	world_fill();
	world_read_make(0);
}

int world_open(void)
{
	assert_int_equal(side_open(&world.p), 0);
	assert_int_equal(side_open(&world.d), 0);
	world_serve();
	return 0;
}

void world_machines_open(void)
{
	fake_verbs_devices(2);
	world.networks = "10.66.0.0/16";
	world.device = "fake0";
	assert_int_equal(side_open(&world.p), 0);
	world.device = "fake1";
	assert_int_equal(side_open(&world.d), 0);
	world_serve();
}

int world_up_batch(uint32_t batch)
{
	world_init();
	world.batch = batch;
	return world_open();
}

int world_up(void **state)
{
	(void)state;
	return world_up_batch(0);
}

int world_attached(void **state)
{
	(void)world_up(state);
	world_comes_up(10);
	assert_int_equal(world.attach_code, 0);
	return 0;
}

int world_down(void **state)
{
	(void)state;
	fake_verbs_knobs.held = fake_verbs_knobs.held_devices = 0;
	side_close(&world.d);
	side_close(&world.p);
	return fake_verbs_live() ? -1 : 0;
}
