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

static void up(struct handle_world *world, const char *more)
{
	handle_begin(world, "");
	(void)snprintf(world->config, sizeof(world->config),
		       "{\"socket_dir\":\"%s\",\"copy_threads\":0,"
		       "\"status\":\"on\"%s}",
		       world->world.folder, more);
}

/* Nothing of it is left. */
static void end(struct handle_world *world)
{
	char paths[2][sizeof(world->owner->status.path)] = { "", "" };
	uint32_t at;

	if (world->owner)
		memcpy(paths[0], world->owner->status.path, sizeof(paths[0]));
	if (world->reader)
		memcpy(paths[1], world->reader->status.path, sizeof(paths[1]));
	world->ops->close(world->owner);
	world->ops->close(world->reader);
	world->owner = world->reader = NULL;
	for (at = 0; at < 2; at++)
		assert_true(!paths[at][0] || !unlink(paths[at]));
	handle_end(world);
}

static void look(const char *path, struct shown *shown)
{
	const int fd = open(path, O_RDONLY | O_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(
		kvpull_status_header_read(fd, geteuid(), &shown->header), 0);
	shown->bytes = malloc(shown->header.file_bytes);
	assert_non_null(shown->bytes);
	assert_int_equal(pread(fd, shown->bytes, shown->header.file_bytes, 0),
			 shown->header.file_bytes);
	(void)close(fd);
}

static void *part(const struct shown *shown, enum kvpull_status_part which)
{
	return shown->bytes + shown->header.places[which].offset;
}

static uint64_t counter(const struct shown *shown, const char *name)
{
	const struct kvpull_status_counter *rows =
		part(shown, KVPULL_STATUS_COUNTERS);
	const struct kvpull_status_thread *thread =
		part(shown, KVPULL_STATUS_ENGINE);
	uint32_t at;

	for (at = 0;
	     at < shown->header.places[KVPULL_STATUS_COUNTERS].row_count; at++)
		if (!strcmp(rows[at].name, name)) {
			assert_int_equal(rows[at].in_progress, 0);
			return thread->counters[rows[at].index];
		}
	fail_msg("no counter %s", name);
	return 0;
}

static uint64_t times(const struct shown *shown)
{
	const struct kvpull_status_thread *thread =
		part(shown, KVPULL_STATUS_ENGINE);
	uint64_t count = 0;
	uint32_t at;

	for (at = 0; at < KVPULL_STATUS_BUCKETS; at++)
		count += thread->times[KVPULL_TIMES_READ][at];
	return count;
}

UNIT_TEST(a_handle_is_shown_as_a_pools_and_with_its_own_counters)
{
	struct handle_world world;
	struct shown shown;
	struct kvpull_status_pool *pool;
	uint32_t at;

	up(&world, "");
	handle_owner(&world);
	look(world.owner->status.path, &shown);
	pool = part(&shown, KVPULL_STATUS_POOL);
	assert_int_equal(shown.header.kind, KVPULL_STATUS_OF_POOL);
	assert_int_equal(shown.header.pid, getpid());
	assert_int_equal(shown.header.incarnation, world.owner->incarnation);
	assert_string_equal(shown.header.engine_id, "owner");
	assert_int_equal(shown.header.places[KVPULL_STATUS_HOLDS].row_count, 0);
	assert_int_equal(pool->state, KVPULL_SHOWN_HERE);
	assert_int_equal(pool->chunk_count, HANDLE_CHUNKS);
	assert_int_equal(pool->chunk_bytes, HANDLE_CHUNK_BYTES);
	for (at = 0; at < kvpull_reader_counters.row_count; at++)
		(void)counter(&shown, kvpull_reader_counters.rows[at].name);
	free(shown.bytes);
	assert_int_equal(world.ops->unshare(world.owner), 0);
	look(world.owner->status.path, &shown);
	pool = part(&shown, KVPULL_STATUS_POOL);
	assert_int_equal(pool->state, KVPULL_SHOWN_GONE);
	free(shown.bytes);
	end(&world);
}

/* Reads three keys, one of which is bumped after the probe. */
static void read_three(struct handle_world *world)
{
	struct kvpull_reader_place places[3];
	struct kvpull_reader_record record;
	int32_t codes[3];
	struct shown shown;
	uint64_t id;

	handle_fill_first(world, 3);
	assert_int_equal(handle_probed(world, 3, places, &record), 3);
	handle_bump(world, 1);
	assert_int_equal(
		handle_read(world, places, 3, record.incarnation, codes, &id),
		0);
	/* Before any poll: one that hangs now is seen to wait. */
	look(world->reader->status.path, &shown);
	assert_int_equal(counter(&shown, "asks_live"), 1);
	assert_int_equal(times(&shown), 0);
	free(shown.bytes);
	handle_await(world, id, &record);
	assert_int_equal(record.code, KVPULL_ESTALE);
	assert_int_equal(record.count, 2);
	assert_int_equal(handle_turn(world, NULL), 0);
}

UNIT_TEST(what_was_read_of_whom_is_shown)
{
	const struct kvpull_status_thread *thread;
	const struct kvpull_status_consumer *caller;
	const struct kvpull_status_peer *peer;
	struct handle_world world;
	struct shown shown;
	uint64_t added_ns;
	uint64_t ran_ns;

	up(&world, "");
	handle_owner(&world);
	handle_reader(&world);
	added_ns = kvpull_clock_ns();
	handle_add(&world, NULL);
	assert_int_equal(handle_settle(&world), 0);
	read_three(&world);
	look(world.reader->status.path, &shown);
	thread = part(&shown, KVPULL_STATUS_ENGINE);
	peer = part(&shown, KVPULL_STATUS_PEERS);
	assert_int_equal(counter(&shown, "pieces_good"), 2);
	assert_int_equal(counter(&shown, "pieces_stale"), 1);
	assert_int_equal(counter(&shown, "asks_live"), 0);
	assert_int_equal(thread->failures[-KVPULL_ESTALE], 1);
	assert_int_equal(times(&shown), 1);
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
	free(shown.bytes);
	look(world.owner->status.path, &shown);
	caller = part(&shown, KVPULL_STATUS_CONSUMERS);
	while (!caller->state)
		caller++;
	assert_int_equal(caller->state, KVPULL_SHOWN_HERE);
	assert_int_equal(caller->pid, getpid());
	assert_int_equal(caller->uid, geteuid());
	assert_string_equal(caller->engine_id, "reader");
	assert_true(caller->since_ns >= added_ns);
	assert_int_equal(counter(&shown, "puts"), 3);
	assert_int_equal(counter(&shown, "readers_live"), 1);
	free(shown.bytes);
	end(&world);
}

UNIT_TEST(a_read_that_failed_is_shown_with_its_owner)
{
	const struct kvpull_status_thread *thread;
	const struct kvpull_status_event *event;
	const struct kvpull_status_peer *peer;
	struct kvpull_reader_place places[2];
	struct kvpull_reader_record record;
	struct handle_world world;
	struct shown shown;
	int32_t codes[2];
	uint64_t id;

	up(&world, ",\"inline_bytes\":0");
	handle_owner(&world);
	handle_connect(&world);
	handle_fill_first(&world, 2);
	(void)handle_probed(&world, 2, places, &record);
	assert_int_equal(
		handle_read(&world, places, 2, record.incarnation, codes, &id),
		0);
	assert_int_equal(world.ops->cancel(world.reader, id), 0);
	handle_await(&world, id, &record);
	assert_int_equal(record.code, KVPULL_EABORTED);
	look(world.reader->status.path, &shown);
	thread = part(&shown, KVPULL_STATUS_ENGINE);
	peer = part(&shown, KVPULL_STATUS_PEERS);
	event = part(&shown, KVPULL_STATUS_ENGINE_EVENTS);
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
	free(shown.bytes);
	end(&world);
}

/* The only row of a consumer that was shown, and its number. */
static const struct kvpull_status_consumer *
only_consumer(const struct shown *shown, uint32_t *number)
{
	const struct kvpull_status_consumer *rows =
		part(shown, KVPULL_STATUS_CONSUMERS);

	*number = 0;
	while (!rows[*number].state)
		*number += 1;
	return &rows[*number];
}

UNIT_TEST(a_reader_that_left_is_shown_as_gone_and_since_when)
{
	const struct kvpull_status_consumer *caller;
	const struct kvpull_status_event *event;
	char path[sizeof(((struct kvpull_status *)NULL)->path)];
	struct handle_world world;
	struct shown shown;
	uint64_t incarnation;
	uint64_t left_ns;
	uint32_t number;

	up(&world, "");
	handle_owner(&world);
	handle_connect(&world);
	incarnation = world.reader->incarnation;
	memcpy(path, world.reader->status.path, sizeof(path));
	left_ns = kvpull_clock_ns();
	world.ops->close(world.reader);
	world.reader = NULL;
	while (world.owner->callers.in_count)
		(void)world.ops->poll(world.owner, NULL, 0, 24);
	look(world.owner->status.path, &shown);
	caller = only_consumer(&shown, &number);
	event = part(&shown, KVPULL_STATUS_ENGINE_EVENTS);
	assert_int_equal(caller->state, KVPULL_SHOWN_GONE);
	assert_int_equal(caller->instance, incarnation);
	assert_true(caller->since_ns >= left_ns);
	assert_int_equal(event[1].what >> 32, KVPULL_DID_LEAVE);
	assert_int_equal(event[1].what & 0xffffffff, number);
	assert_int_equal(event[1].who, incarnation);
	assert_true(event[1].at_ns >= left_ns);
	assert_int_equal(counter(&shown, "readers_live"), 0);
	free(shown.bytes);
	assert_int_equal(unlink(path), 0);
	end(&world);
}

UNIT_TEST(slots_of_a_pool_are_shown)
{
	const struct kvpull_reader_share share = handle_slots("/dev/shm", 3);
	struct kvpull_status_pool *pool;
	struct handle_world world;
	struct shown shown;

	up(&world, "");
	handle_share(&world, &share);
	look(world.owner->status.path, &shown);
	pool = part(&shown, KVPULL_STATUS_POOL);
	assert_int_equal(pool->slot_count, 3);
	assert_int_equal(pool->chunk_count, HANDLE_CHUNKS);
	free(shown.bytes);
	end(&world);
}

/* Before the handle's first poll, the time of its open stands for it. */
UNIT_TEST(an_owner_is_shown_from_the_call_that_adds_it)
{
	const uint64_t begun_ns = kvpull_clock_ns();
	const struct kvpull_status_peer *peer;
	struct handle_world world;
	struct shown shown;

	up(&world, "");
	handle_owner(&world);
	handle_reader(&world);
	handle_add(&world, NULL);
	look(world.reader->status.path, &shown);
	peer = part(&shown, KVPULL_STATUS_PEERS);
	assert_int_equal(peer->state, KVPULL_SHOWN_PEER_WAIT);
	assert_true(peer->since_ns >= begun_ns);
	free(shown.bytes);
	end(&world);
}

UNIT_TEST(a_refusal_is_shown_with_what_differs)
{
	const struct kvpull_status_peer *peer;
	struct handle_world world;
	struct shown shown;

	up(&world, "");
	handle_owner(&world);
	world.reader = handle_open(&world, 1, "other-weights");
	handle_add(&world, NULL);
	assert_int_equal(handle_settle(&world), KVPULL_EREJECTED);
	look(world.reader->status.path, &shown);
	peer = part(&shown, KVPULL_STATUS_PEERS);
	assert_int_equal(peer->state, KVPULL_SHOWN_PEER_GONE);
	assert_int_equal(peer->error, KVPULL_EREJECTED);
	assert_true(peer->since_ns > 0);
	assert_memory_equal(peer->why, "weights is ", 11);
	assert_non_null(strstr(peer->why, "other-weights here"));
	free(shown.bytes);
	handle_remove(&world);
	look(world.reader->status.path, &shown);
	peer = part(&shown, KVPULL_STATUS_PEERS);
	assert_int_equal(peer->state, KVPULL_SHOWN_PEER_FREE);
	assert_int_equal(peer->incarnation, 0);
	free(shown.bytes);
	end(&world);
}

UNIT_TEST(an_owner_that_left_is_shown_with_the_last_error)
{
	const struct kvpull_status_peer *peer;
	const struct kvpull_status_thread *thread;
	const struct kvpull_status_event *event;
	struct handle_world world;
	struct shown shown;
	char path[160];

	up(&world, "");
	handle_owner(&world);
	handle_connect(&world);
	memcpy(path, world.owner->status.path, sizeof(path));
	world.ops->close(world.owner);
	world.owner = NULL;
	handle_until(&world, KVPULL_PEER_WAIT);
	look(world.reader->status.path, &shown);
	peer = part(&shown, KVPULL_STATUS_PEERS);
	thread = part(&shown, KVPULL_STATUS_ENGINE);
	event = part(&shown, KVPULL_STATUS_ENGINE_EVENTS);
	assert_int_equal(peer->state, KVPULL_SHOWN_PEER_WAIT);
	assert_true(peer->error < 0);
	assert_true(peer->retries > 0);
	assert_true(thread->event_count >= 2);
	assert_int_equal(event[0].what >> 32, KVPULL_DID_UP);
	assert_int_equal(event[1].what >> 32 & 0xffff, KVPULL_DID_DOWN);
	assert_int_equal(event[1].who, peer->incarnation);
	free(shown.bytes);
	/* The file of a closed handle says so, with all its counters. */
	look(path, &shown);
	assert_int_equal(shown.header.closed, 1);
	event = part(&shown, KVPULL_STATUS_ENGINE_EVENTS);
	assert_int_equal(event[0].what >> 32 & 0xffff, KVPULL_DID_JOIN);
	assert_int_equal(event[0].who, world.reader->hello->incarnation);
	assert_int_equal(counter(&shown, "readers_refused"), 0);
	free(shown.bytes);
	assert_int_equal(unlink(path), 0);
	end(&world);
}

UNIT_TEST(where_status_is_off_nothing_is_stored)
{
	struct handle_world world;

	up(&world, ",\"status_group\":0");
	(void)snprintf(world.config, sizeof(world.config),
		       "{\"socket_dir\":\"%s\",\"copy_threads\":0,"
		       "\"status\":\"off\"}",
		       world.world.folder);
	handle_owner(&world);
	handle_connect(&world);
	assert_null(world.owner->status.base);
	assert_null(world.reader->status.base);
	assert_string_equal(world.reader->status.path, "");
	end(&world);
}
