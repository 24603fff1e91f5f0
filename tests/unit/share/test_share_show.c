/* SPDX-License-Identifier: Apache-2.0 */
/* The status file of a handle, as other processes read it. */
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/unit/share/handle.h"

/* A file, whole. */
struct shown {
	struct kvpull_status_header header;
	uint8_t *bytes;
};

static struct handle_world world;
static struct shown shown; /* what was looked at last */

/* status: its value in the configuration, and rows behind it. */
static void begin(const char *status)
{
	handle_begin(&world, "");
	(void)snprintf(world.config, sizeof(world.config),
		       "{\"socket_dir\":\"%s\",\"copy_threads\":0,"
		       "\"status\":%s}",
		       world.world.folder, status);
}

/* The status is on, and there is no owner yet. */
UNIT_FIXTURE(setup_alone)
{
	begin("\"on\"");
}

/* Likewise, with an owner. */
UNIT_FIXTURE(setup)
{
	begin("\"on\"");
	handle_owner(&world);
}

UNIT_FIXTURE(setup_by_route)
{
	begin("\"on\",\"inline_bytes\":0");
	handle_owner(&world);
}

UNIT_FIXTURE(setup_off)
{
	begin("\"off\"");
	handle_owner(&world);
}

/* Nothing of it is left. */
UNIT_FIXTURE(teardown)
{
	char paths[2][sizeof(world.owner->status.path)] = { "", "" };
	uint32_t at;

	if (world.owner)
		memcpy(paths[0], world.owner->status.path, sizeof(paths[0]));
	if (world.reader)
		memcpy(paths[1], world.reader->status.path, sizeof(paths[1]));
	world.ops->close(world.owner);
	world.ops->close(world.reader);
	world.owner = world.reader = NULL;
	for (at = 0; at < 2; at++)
		assert_true(!paths[at][0] || !unlink(paths[at]));
	free(shown.bytes);
	shown.bytes = NULL;
	handle_end(&world);
}

static void look(const char *path)
{
	const int fd = open(path, O_RDONLY | O_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(
		kvpull_status_header_read(fd, geteuid(), &shown.header), 0);
	free(shown.bytes);
	shown.bytes = malloc(shown.header.file_bytes);
	assert_non_null(shown.bytes);
	assert_int_equal(pread(fd, shown.bytes, shown.header.file_bytes, 0),
			 shown.header.file_bytes);
	(void)close(fd);
}

static void *part(enum kvpull_status_part which)
{
	return shown.bytes + shown.header.places[which].offset;
}

static uint64_t counter(const char *name)
{
	const struct kvpull_status_counter *rows = part(KVPULL_STATUS_COUNTERS);
	const struct kvpull_status_thread *thread = part(KVPULL_STATUS_ENGINE);
	uint32_t at;

	for (at = 0; at < shown.header.places[KVPULL_STATUS_COUNTERS].row_count;
	     at++)
		if (!strcmp(rows[at].name, name)) {
			assert_int_equal(rows[at].in_progress, 0);
			return thread->counters[rows[at].index];
		}
	fail_msg("no counter %s", name);
	return 0;
}

static uint64_t times(void)
{
	const struct kvpull_status_thread *thread = part(KVPULL_STATUS_ENGINE);
	uint64_t count = 0;
	uint32_t at;

	for (at = 0; at < KVPULL_STATUS_BUCKETS; at++)
		count += thread->times[KVPULL_TIMES_READ][at];
	return count;
}

UNIT_TEST_WITH(a_handle_is_shown_as_a_pools_and_with_its_own_counters, setup,
	       teardown)
{
	struct kvpull_status_pool *pool;
	uint32_t at;

	look(world.owner->status.path);
	pool = part(KVPULL_STATUS_POOL);
	assert_int_equal(shown.header.kind, KVPULL_STATUS_OF_POOL);
	assert_int_equal(shown.header.pid, getpid());
	assert_int_equal(shown.header.incarnation, world.owner->incarnation);
	assert_string_equal(shown.header.engine_id, "owner");
	assert_int_equal(shown.header.places[KVPULL_STATUS_HOLDS].row_count, 0);
	assert_int_equal(pool->state, KVPULL_SHOWN_HERE);
	assert_int_equal(pool->chunk_count, HANDLE_CHUNKS);
	assert_int_equal(pool->chunk_bytes, HANDLE_CHUNK_BYTES);
	for (at = 0; at < kvpull_reader_counters.row_count; at++)
		(void)counter(kvpull_reader_counters.rows[at].name);
	assert_int_equal(world.ops->unshare(world.owner), 0);
	look(world.owner->status.path);
	pool = part(KVPULL_STATUS_POOL);
	assert_int_equal(pool->state, KVPULL_SHOWN_GONE);
}

/* Reads three keys, one of which is bumped after the probe. */
static void read_three(void)
{
	struct kvpull_reader_place places[3];
	struct kvpull_reader_record record;
	int32_t codes[3];
	uint64_t id;

	handle_fill_first(&world, 3);
	assert_int_equal(handle_probed(&world, 3, places, &record), 3);
	handle_bump(&world, 1);
	assert_int_equal(
		handle_read(&world, places, 3, record.incarnation, codes, &id),
		0);
	/* Before any poll: one that hangs now is seen to wait. */
	look(world.reader->status.path);
	assert_int_equal(counter("asks_live"), 1);
	assert_int_equal(times(), 0);
	handle_await(&world, id, &record);
	assert_int_equal(record.code, KVPULL_ESTALE);
	assert_int_equal(record.count, 2);
	assert_int_equal(handle_turn(&world, NULL), 0);
}

UNIT_TEST_WITH(what_was_read_of_whom_is_shown, setup, teardown)
{
	const struct kvpull_status_thread *thread;
	const struct kvpull_status_consumer *caller;
	const struct kvpull_status_peer *peer;
	uint64_t added_ns;
	uint64_t ran_ns;

	handle_reader(&world);
	added_ns = kvpull_clock_ns();
	handle_add(&world, NULL);
	assert_int_equal(handle_settle(&world), 0);
	read_three();
	look(world.reader->status.path);
	thread = part(KVPULL_STATUS_ENGINE);
	peer = part(KVPULL_STATUS_PEERS);
	assert_int_equal(counter("pieces_good"), 2);
	assert_int_equal(counter("pieces_stale"), 1);
	assert_int_equal(counter("asks_live"), 0);
	assert_int_equal(thread->failures[-KVPULL_ESTALE], 1);
	assert_int_equal(times(), 1);
	assert_int_equal(peer->state, KVPULL_SHOWN_PEER_UP);
	assert_int_equal(peer->incarnation, world.owner->incarnation);
	assert_int_equal(peer->pid, getpid());
	assert_string_equal(peer->engine_id, "owner");
	assert_string_equal(peer->route, "shm");
	assert_true(peer->address[0] && peer->why[0]);
	assert_int_equal(peer->pulls, 1);
	assert_int_equal(peer->failures, 0);
	assert_int_equal(peer->bytes, 2 * HANDLE_CHUNK_BYTES);
	assert_true(peer->since_ns >= added_ns && peer->up_ns >= added_ns);
	ran_ns = thread->ran_ns;
	assert_true(ran_ns <= kvpull_clock_ns() &&
		    ran_ns + HANDLE_WAIT_NS > kvpull_clock_ns());
	look(world.owner->status.path);
	caller = part(KVPULL_STATUS_CONSUMERS);
	while (!caller->state)
		caller++;
	assert_int_equal(caller->state, KVPULL_SHOWN_HERE);
	assert_int_equal(caller->pid, getpid());
	assert_int_equal(caller->uid, geteuid());
	assert_string_equal(caller->engine_id, "reader");
	assert_true(caller->since_ns >= added_ns);
	assert_int_equal(counter("puts"), 3);
	assert_int_equal(counter("readers_live"), 1);
}

UNIT_TEST_WITH(a_read_that_failed_is_shown_with_its_owner, setup_by_route,
	       teardown)
{
	const struct kvpull_status_thread *thread;
	const struct kvpull_status_event *event;
	const struct kvpull_status_peer *peer;
	struct kvpull_reader_place places[2];
	struct kvpull_reader_record record;
	int32_t codes[2];
	uint64_t id;

	handle_connect(&world);
	handle_fill_first(&world, 2);
	(void)handle_probed(&world, 2, places, &record);
	assert_int_equal(
		handle_read(&world, places, 2, record.incarnation, codes, &id),
		0);
	assert_int_equal(world.ops->cancel(world.reader, id), 0);
	handle_await(&world, id, &record);
	assert_int_equal(record.code, KVPULL_EABORTED);
	look(world.reader->status.path);
	thread = part(KVPULL_STATUS_ENGINE);
	peer = part(KVPULL_STATUS_PEERS);
	event = part(KVPULL_STATUS_ENGINE_EVENTS);
	/* A read that failed is one, of two pieces that failed. */
	assert_int_equal(peer->failures, 1);
	assert_int_equal(peer->pulls, 1);
	assert_int_equal(peer->bytes, 0);
	assert_int_equal(thread->failures[-KVPULL_EABORTED], 2);
	assert_int_equal(thread->event_count, 2);
	assert_int_equal(event[1].what >> 32 & 0xffff, KVPULL_DID_FAILED);
	assert_int_equal(event[1].what >> 48, -KVPULL_EABORTED);
	assert_int_equal(event[1].what & 0xffffffff, world.peer);
	assert_int_equal(event[1].who, world.owner->incarnation);
}

/* The only row of a consumer that was shown, and its number. */
static const struct kvpull_status_consumer *only_consumer(uint32_t *number)
{
	const struct kvpull_status_consumer *rows =
		part(KVPULL_STATUS_CONSUMERS);

	*number = 0;
	while (!rows[*number].state)
		*number += 1;
	return &rows[*number];
}

UNIT_TEST_WITH(a_reader_that_left_is_shown_as_gone_and_since_when, setup,
	       teardown)
{
	const struct kvpull_status_consumer *caller;
	const struct kvpull_status_event *event;
	char path[sizeof(((struct kvpull_status *)NULL)->path)];
	uint64_t incarnation;
	uint64_t left_ns;
	uint32_t number;

	handle_connect(&world);
	incarnation = world.reader->incarnation;
	memcpy(path, world.reader->status.path, sizeof(path));
	left_ns = kvpull_clock_ns();
	world.ops->close(world.reader);
	world.reader = NULL;
	while (world.owner->callers.in_count)
		(void)world.ops->poll(world.owner, NULL, 0, 24);
	look(world.owner->status.path);
	caller = only_consumer(&number);
	event = part(KVPULL_STATUS_ENGINE_EVENTS);
	assert_int_equal(caller->state, KVPULL_SHOWN_GONE);
	assert_int_equal(caller->instance, incarnation);
	assert_true(caller->since_ns >= left_ns);
	assert_int_equal(event[1].what >> 32, KVPULL_DID_LEAVE);
	assert_int_equal(event[1].what & 0xffffffff, number);
	assert_int_equal(event[1].who, incarnation);
	assert_true(event[1].at_ns >= left_ns);
	assert_int_equal(counter("readers_live"), 0);
	assert_int_equal(unlink(path), 0);
}

UNIT_TEST_WITH(slots_of_a_pool_are_shown, setup_alone, teardown)
{
	const struct kvpull_reader_share share = handle_slots("/dev/shm", 3);
	struct kvpull_status_pool *pool;

	handle_share(&world, &share);
	look(world.owner->status.path);
	pool = part(KVPULL_STATUS_POOL);
	assert_int_equal(pool->slot_count, 3);
	assert_int_equal(pool->chunk_count, HANDLE_CHUNKS);
}

/* Before the handle's first poll, the time of its open stands for it. */
UNIT_TEST_WITH(an_owner_is_shown_from_the_call_that_adds_it, setup, teardown)
{
	const uint64_t begun_ns = kvpull_clock_ns();
	const struct kvpull_status_peer *peer;

	handle_reader(&world);
	handle_add(&world, NULL);
	look(world.reader->status.path);
	peer = part(KVPULL_STATUS_PEERS);
	assert_int_equal(peer->state, KVPULL_SHOWN_PEER_WAIT);
	assert_true(peer->since_ns >= begun_ns);
}

UNIT_TEST_WITH(a_refusal_is_shown_with_what_differs, setup, teardown)
{
	const struct kvpull_status_peer *peer;

	world.reader = handle_open(&world, 1, "other-weights");
	handle_add(&world, NULL);
	assert_int_equal(handle_settle(&world), KVPULL_EREJECTED);
	look(world.reader->status.path);
	peer = part(KVPULL_STATUS_PEERS);
	assert_int_equal(peer->state, KVPULL_SHOWN_PEER_GONE);
	assert_int_equal(peer->error, KVPULL_EREJECTED);
	assert_true(peer->since_ns > 0);
	assert_memory_equal(peer->why, "weights is ", 11);
	assert_non_null(strstr(peer->why, "other-weights here"));
	handle_remove(&world);
	look(world.reader->status.path);
	peer = part(KVPULL_STATUS_PEERS);
	assert_int_equal(peer->state, KVPULL_SHOWN_PEER_FREE);
	assert_int_equal(peer->incarnation, 0);
}

UNIT_TEST_WITH(an_owner_that_left_is_shown_with_the_last_error, setup, teardown)
{
	const struct kvpull_status_peer *peer;
	const struct kvpull_status_thread *thread;
	const struct kvpull_status_event *event;
	char path[160];

	handle_connect(&world);
	memcpy(path, world.owner->status.path, sizeof(path));
	world.ops->close(world.owner);
	world.owner = NULL;
	handle_until(&world, KVPULL_PEER_WAIT);
	look(world.reader->status.path);
	peer = part(KVPULL_STATUS_PEERS);
	thread = part(KVPULL_STATUS_ENGINE);
	event = part(KVPULL_STATUS_ENGINE_EVENTS);
	assert_int_equal(peer->state, KVPULL_SHOWN_PEER_WAIT);
	assert_true(peer->error < 0);
	assert_true(peer->retries > 0);
	assert_true(thread->event_count >= 2);
	assert_int_equal(event[0].what >> 32, KVPULL_DID_UP);
	assert_int_equal(event[1].what >> 32 & 0xffff, KVPULL_DID_DOWN);
	assert_int_equal(event[1].who, peer->incarnation);
	/* The file of a closed handle says so, with all its counters. */
	look(path);
	assert_int_equal(shown.header.closed, 1);
	event = part(KVPULL_STATUS_ENGINE_EVENTS);
	assert_int_equal(event[0].what >> 32 & 0xffff, KVPULL_DID_JOIN);
	assert_int_equal(event[0].who, world.reader->hello->incarnation);
	assert_int_equal(counter("readers_refused"), 0);
	assert_int_equal(unlink(path), 0);
}

UNIT_TEST_WITH(where_status_is_off_nothing_is_stored, setup_off, teardown)
{
	handle_connect(&world);
	assert_null(world.owner->status.base);
	assert_null(world.reader->status.base);
	assert_string_equal(world.reader->status.path, "");
}
