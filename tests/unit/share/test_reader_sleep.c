/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owner and reader that sleep on event_fd(): a handle is polled only while its
 * descriptor is readable, so whatever is slept over shows as a sleep that does
 * not end. And what a handle counts.
 */
#include <poll.h>

#include "tests/lib/gate.h"
#include "tests/unit/share/handle.h"

#define CHUNKS 4u
#define CHUNK_BYTES (UINT64_C(8) << 20)
#define BLOCKS 32u
#define COPY_THREADS 2u /* one of each handle */
#define SLEEP_MS 60000
#define IDLE_MS 50
#define PATIENT_MS 60000u /* to connect; a machine may stand still */
#define IMPATIENT_MS 100u
#define COUNTERS_MAX 64u

uint32_t world_blocks = HANDLE_CHUNKS;

static struct handle_world world;
static uint8_t *blocks; /* [BLOCKS], all of them the same memory */
static uint32_t polls;  /* since slept() */
static int32_t codes[BLOCKS];

/* Many blocks of little memory: a read of them takes long. */
static void blocks_map(void)
{
	const int fd = memfd_create("blocks", MFD_CLOEXEC);
	uint32_t at;

	assert_int_equal(ftruncate(fd, (off_t)CHUNK_BYTES), 0);
	blocks = mmap(NULL, BLOCKS * CHUNK_BYTES, PROT_NONE,
		      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_true(blocks != MAP_FAILED);
	for (at = 0; at < BLOCKS; at++)
		assert_true(mmap(blocks + at * CHUNK_BYTES, CHUNK_BYTES,
				 PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
				 fd, 0) != MAP_FAILED);
	(void)close(fd);
}

static void setup_as(uint32_t patience_ms)
{
	handle_begin(&world, "");
	(void)snprintf(
		world.config, sizeof(world.config),
		"{\"socket_dir\":\"%s\",\"status\":\"off\",\"copy_threads\":1,\"connect_ms\":%u}",
		world.world.folder, patience_ms);
	world.chunk_bytes = CHUNK_BYTES;
	world.chunk_count = CHUNKS;
	handle_owner(&world);
	world.reader = handle_open(&world, 1, NULL);
	/*
	 * The reader asks for it before there is anything to wait for, the
	 * owner after.
	 */
	assert_true(world.ops->event_fd(world.reader) >= 0);
	handle_add(&world, NULL);
	assert_true(world.ops->event_fd(world.owner) >= 0);
	assert_int_equal(world.ops->event_fd(world.owner),
			 world.ops->event_fd(world.owner));
	blocks_map();
	assert_int_equal(world.ops->local_add(world.reader, blocks, CHUNK_BYTES,
					      BLOCKS, &world.local),
			 0);
}

UNIT_FIXTURE(setup)
{
	setup_as(PATIENT_MS);
}

UNIT_FIXTURE(setup_impatient)
{
	setup_as(IMPATIENT_MS);
}

UNIT_FIXTURE(teardown)
{
	gate_open();
	handle_end(&world);
	(void)munmap(blocks, BLOCKS * CHUNK_BYTES);
}

/* Sleeps, then polls whom it woke. Return: records of the reader; -1: idle. */
static int slept(struct kvpull_reader_record *record, int ms, int with_owner)
{
	struct pollfd fds[2] = { { .fd = world.ops->event_fd(world.reader),
				   .events = POLLIN },
				 { .fd = -1, .events = POLLIN } };

	if (with_owner)
		fds[1].fd = world.ops->event_fd(world.owner);
	if (poll(fds, 2, ms) == 0)
		return -1;
	polls++;
	if (fds[1].revents)
		assert_int_equal(
			world.ops->poll(world.owner, NULL, 0, sizeof(*record)),
			0);
	return fds[0].revents ? world.ops->poll(world.reader, record, 1,
						sizeof(*record)) :
				0;
}

static int32_t peer_code(void)
{
	return handle_peer(&world, world.peer).code;
}

static void settle(int with_owner)
{
	struct kvpull_reader_record record;

	while (peer_code() == KVPULL_EAGAIN)
		assert_int_equal(slept(&record, SLEEP_MS, with_owner), 0);
}

/* Runs both until all that was in flight has come; then both sleep. */
static void idle(int with_owner)
{
	struct kvpull_reader_record record;
	int count;

	polls = 0;
	do {
		count = slept(&record, IDLE_MS, with_owner);
		assert_true(count <= 0 && polls < 1000);
	} while (count == 0);
}

/* Asks for two keys of which one is there. */
static void probe(struct kvpull_reader_place *place,
		  struct kvpull_reader_record *record)
{
	struct kvpull_reader_place places[2] = { { 0 } };
	uint64_t id;
	int count;

	assert_int_equal(handle_probe(&world, 2, places, &id), 0);
	while ((count = slept(record, SLEEP_MS, 1)) == 0)
		;
	assert_int_equal(count, 1);
	assert_int_equal(record->id, id);
	assert_int_equal(record->count, 1);
	*place = places[0];
}

/* Reads a place into all blocks, by as many pieces as there are. */
static uint64_t read_begin(const struct kvpull_reader_place *place,
			   uint64_t incarnation, uint64_t deadline_ns)
{
	struct kvpull_reader_place places[BLOCKS];
	uint64_t id;
	uint32_t at;

	for (at = 0; at < BLOCKS; at++)
		places[at] = *place;
	assert_int_equal(handle_read_into(&world, 0, places, BLOCKS,
					  incarnation, deadline_ns, codes, &id),
			 0);
	return id;
}

static int32_t read_end(uint64_t id)
{
	struct kvpull_reader_record record;
	int count;

	polls = 0;
	while ((count = slept(&record, SLEEP_MS, 1)) == 0)
		;
	assert_int_equal(count, 1);
	assert_int_equal(record.id, id);
	return record.code;
}

static uint64_t counter(struct kvpull_reader *handle, const char *name)
{
	struct kvpull_counter all[COUNTERS_MAX];
	const int count =
		world.ops->counters(handle, all, COUNTERS_MAX, sizeof(all[0]));
	int at = 0;

	assert_in_range(count, 1, COUNTERS_MAX);
	while (at < count && strcmp(all[at].name, name) != 0)
		at++;
	if (at == count)
		fail_msg("no counter %s", name);
	return all[at].value;
}

UNIT_TEST_WITH(sleepers_are_woken_by_a_welcome, setup, teardown)
{
	settle(1);
	assert_int_equal(peer_code(), 0);
	idle(1);
	assert_int_equal(counter(world.owner, "readers_live"), 1);
	assert_int_equal(counter(world.reader, "peers_live"), 1);
	assert_int_equal(counter(world.reader, "peer_connects"), 1);
	assert_int_equal(counter(NULL, "peer_connects"), 0);
}

UNIT_TEST_WITH(a_sleeper_is_woken_by_the_end_of_a_large_read, setup, teardown)
{
	const struct kvpull_reader_put late = { .struct_size = sizeof(late),
						.key = { "k", 1 },
						.generation = 1,
						.epoch = 1 };
	struct kvpull_reader_record record;
	struct kvpull_reader_place place;
	uint64_t id;

	settle(1);
	(void)handle_fill(&world, 1, 1);
	probe(&place, &record);
	/* Both sleep before it begins. */
	gate_close(COPY_THREADS);
	id = read_begin(&place, record.incarnation, 0);
	idle(1);
	gate_open();
	assert_int_equal(read_end(id), 0);
	assert_true(polls < 100);
	assert_int_equal(blocks[0], 1);
	(void)handle_fill(&world, 1, 2);
	id = read_begin(&place, record.incarnation, 0);
	assert_int_equal(read_end(id), KVPULL_ESTALE);
	idle(1);
	assert_int_equal(world.ops->guard_bump_all(world.owner, NULL, NULL), 0);
	assert_int_equal(world.ops->put(world.owner, &late), KVPULL_ESTALE);
	assert_int_equal(counter(world.owner, "puts"), 2);
	assert_int_equal(counter(world.owner, "puts_stale"), 1);
	assert_int_equal(counter(world.owner, "bumps"), 2 + CHUNKS);
	assert_int_equal(counter(world.reader, "probes"), 1);
	assert_int_equal(counter(world.reader, "keys_found"), 1);
	assert_int_equal(counter(world.reader, "keys_missed"), 1);
	assert_int_equal(counter(world.reader, "reads"), 2);
	assert_int_equal(counter(world.reader, "pieces_good"), BLOCKS);
	assert_int_equal(counter(world.reader, "pieces_stale"), BLOCKS);
	assert_int_equal(counter(world.reader, "pieces_failed"), 0);
	assert_int_equal(counter(world.reader, "asks_live"), 0);
	assert_int_equal(counter(world.reader, "bytes_read"),
			 BLOCKS * CHUNK_BYTES);
}

UNIT_TEST_WITH(a_sleeper_is_woken_by_a_deadline, setup, teardown)
{
	struct kvpull_reader_record record;
	struct kvpull_reader_place place;
	uint64_t id;
	int32_t code;

	settle(1);
	(void)handle_fill(&world, 1, 1);
	probe(&place, &record);
	idle(1);
	gate_close(COPY_THREADS);
	id = read_begin(&place, record.incarnation,
			kvpull_clock_ns() + 2 * KVPULL_NS_PER_MS);
	assert_int_equal(read_end(id), KVPULL_EDEADLINE);
	assert_int_equal(counter(world.reader, "pieces_failed"), BLOCKS);
	gate_open();
	/* In the middle, or when all has come. */
	id = read_begin(&place, record.incarnation,
			kvpull_clock_ns() + 2 * KVPULL_NS_PER_MS);
	code = read_end(id);
	assert_true(!code || code == KVPULL_EDEADLINE);
	idle(1);
}

UNIT_TEST_WITH(a_sleeper_is_woken_by_a_lost_peer_and_to_call_again, setup,
	       teardown)
{
	settle(1);
	idle(1);
	world.ops->close(world.owner);
	world.owner = NULL;
	while (peer_code() == 0)
		assert_int_equal(
			slept(&(struct kvpull_reader_record){ 0 }, SLEEP_MS, 0),
			0);
	settle(0); /* calls again, and at last no more */
	assert_int_equal(peer_code(), KVPULL_EPEER);
	idle(0);
	assert_int_equal(counter(world.reader, "peers_live"), 0);
	assert_true(counter(world.reader, "peer_failures") > 1);
}

UNIT_TEST_WITH(a_sleeper_gives_up_an_owner_that_is_silent, setup_impatient,
	       teardown)
{
	settle(0); /* the owner is never polled: connect_ms, six times */
	assert_true(peer_code() < 0);
	assert_int_equal(counter(world.reader, "peers_live"), 0);
}

UNIT_TEST_WITH(what_the_engine_does_to_its_peers_wakes_it, setup, teardown)
{
	struct kvpull_reader_record record;
	struct kvpull_reader_peer is;

	settle(1);
	idle(1);
	handle_remove(&world);
	assert_int_equal(world.ops->peers(world.reader, &is, 1, sizeof(is)), 0);
	assert_int_equal(slept(&record, 0, 0), 0); /* readable at once */
	idle(1);
	assert_int_equal(counter(world.owner, "readers_live"), 0);
	assert_int_equal(counter(world.reader, "peer_failures"), 0);
	handle_add(&world, NULL);
	settle(1);
	assert_int_equal(peer_code(), 0);
	assert_int_equal(counter(world.reader, "peer_connects"), 2);
}

UNIT_TEST_WITH(no_handle_has_no_descriptor, setup, teardown)
{
	struct kvpull_counter one;

	assert_int_equal(world.ops->event_fd(NULL), KVPULL_EINVAL);
	assert_int_equal(
		world.ops->counters(world.reader, NULL, 1, sizeof(one)),
		KVPULL_EINVAL);
	assert_int_equal(world.ops->counters(NULL, &one, 1, 8), KVPULL_EINVAL);
}
