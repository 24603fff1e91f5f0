/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owner and reader that sleep on event_fd(): a handle is polled only while its
 * descriptor is readable, so whatever is slept over shows as a sleep that does
 * not end. And what a handle counts.
 */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "kvpull/reader.h"
#include "tests/lib/gate.h"
#include "tests/lib/unit.h"

#define CHUNKS 4u
#define CHUNK_BYTES (UINT64_C(8) << 20)
#define BLOCKS 32u
#define COPY_THREADS 2u /* one of each handle */
#define SLEEP_MS 60000
#define IDLE_MS 50
#define PATIENT_MS 60000u /* to connect; a machine may stand still */
#define IMPATIENT_MS 100u
#define COUNTERS_MAX 64u

static const struct kvpull_reader_ops *ops;
static char folder[64];
static struct kvpull_reader *owner;
static struct kvpull_reader *reader;
static struct kvpull_memory memory;
static uint8_t *blocks; /* [BLOCKS], all of them the same memory */
static uint32_t peer;
static uint32_t local;
static uint32_t polls; /* since slept() */
static uint32_t connect_ms;
static int32_t codes[BLOCKS];

static struct kvpull_reader *open_one(const char *engine_id)
{
	const struct kvpull_model model = {
		.struct_size = sizeof(model),
		.model = "m",
		.weights = "w",
		.dtype = "float16",
		.layout = "LBHNC",
	};
	const struct kvpull_reader_naming naming = {
		.struct_size = sizeof(naming), .model = &model, .hash = "sha256"
	};
	char config[256];
	const struct kvpull_reader_params params = {
		.struct_size = sizeof(params),
		.config_json = config,
		.naming = &naming,
		.engine_id = engine_id,
	};
	struct kvpull_reader *opened = NULL;

	(void)snprintf(
		config, sizeof(config),
		"{\"socket_dir\":\"%s\",\"status\":\"off\",\"copy_threads\":1,\"connect_ms\":%u}",
		folder, connect_ms);
	assert_int_equal(ops->open(&params, &opened, NULL), 0);
	return opened;
}

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
	const struct kvpull_reader_share share = { .struct_size = sizeof(share),
						   .chunk_bytes = CHUNK_BYTES,
						   .chunk_count = CHUNKS };
	char address[512];
	size_t byte_count;

	connect_ms = patience_ms;
	ops = kvpull_reader_v1();
	(void)snprintf(folder, sizeof(folder), "/tmp/kvpull-test-XXXXXX");
	assert_non_null(mkdtemp(folder));
	owner = open_one("owner");
	reader = open_one("reader");
	memory = (struct kvpull_memory){ .struct_size = sizeof(memory) };
	assert_int_equal(ops->share(owner, &share, &memory, NULL), 0);
	assert_int_equal(
		ops->address(owner, address, sizeof(address), &byte_count), 0);
	/*
	 * The reader asks for it before there is anything to wait for, the
	 * owner after.
	 */
	assert_true(ops->event_fd(reader) >= 0);
	assert_int_equal(ops->peer_add(reader, address, &peer), 0);
	assert_true(ops->event_fd(owner) >= 0);
	assert_int_equal(ops->event_fd(owner), ops->event_fd(owner));
	blocks_map();
	assert_int_equal(
		ops->local_add(reader, blocks, CHUNK_BYTES, BLOCKS, &local), 0);
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
	ops->close(reader);
	ops->close(owner);
	reader = owner = NULL;
	(void)munmap(blocks, BLOCKS * CHUNK_BYTES);
	assert_int_equal(rmdir(folder), 0);
}

/* Sleeps, then polls whom it woke. Return: records of the reader; -1: idle. */
static int slept(struct kvpull_reader_record *record, int ms, int with_owner)
{
	struct pollfd fds[2] = { { .fd = ops->event_fd(reader),
				   .events = POLLIN },
				 { .fd = -1, .events = POLLIN } };

	if (with_owner)
		fds[1].fd = ops->event_fd(owner);
	if (poll(fds, 2, ms) == 0)
		return -1;
	polls++;
	if (fds[1].revents)
		assert_int_equal(ops->poll(owner, NULL, 0, sizeof(*record)), 0);
	return fds[0].revents ? ops->poll(reader, record, 1, sizeof(*record)) :
				0;
}

static int32_t peer_code(void)
{
	struct kvpull_reader_peer is;

	assert_int_equal(ops->peers(reader, &is, 1, sizeof(is)), 1);
	return is.code;
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

static void fill(uint32_t chunk, uint64_t key)
{
	struct kvpull_reader_put put = { .struct_size = sizeof(put),
					 .key = { &key, sizeof(key) },
					 .chunk = chunk };

	assert_int_equal(ops->guard_bump(owner, &chunk, 1, &put.generation), 0);
	assert_int_equal(ops->epoch(owner, &put.epoch), 0);
	memset((uint8_t *)memory.base + chunk * CHUNK_BYTES, (int)key, 4096);
	assert_int_equal(ops->put(owner, &put), 0);
}

/* Asks for two keys of which one is there. */
static void probe(struct kvpull_reader_place *place, uint64_t key,
		  struct kvpull_reader_record *record)
{
	const uint64_t none = 99;
	const struct kvpull_reader_key keys[2] = { { &key, sizeof(key) },
						   { &none, sizeof(none) } };
	struct kvpull_reader_place places[2] = { { 0 } };
	const struct kvpull_reader_probe params = {
		.struct_size = sizeof(params),
		.peer = peer,
		.key_count = 2,
		.keys = keys,
		.key_bytes = sizeof(keys[0]),
		.places = places,
		.place_bytes = sizeof(places[0]),
	};
	uint64_t id;
	int count;

	assert_int_equal(ops->probe(reader, &params, &id), 0);
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
	struct kvpull_reader_piece pieces[BLOCKS];
	const struct kvpull_reader_read read = {
		.struct_size = sizeof(read),
		.peer = peer,
		.local = local,
		.pieces = pieces,
		.piece_bytes = sizeof(pieces[0]),
		.codes = codes,
		.piece_count = BLOCKS,
		.incarnation = incarnation,
		.deadline_ns = deadline_ns,
	};
	uint64_t id;
	uint32_t at;

	for (at = 0; at < BLOCKS; at++)
		pieces[at] = (struct kvpull_reader_piece){ place->chunk, at,
							   place->generation };
	assert_int_equal(ops->read(reader, &read, &id), 0);
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
		ops->counters(handle, all, COUNTERS_MAX, sizeof(all[0]));
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
	assert_int_equal(counter(owner, "readers_live"), 1);
	assert_int_equal(counter(reader, "peers_live"), 1);
	assert_int_equal(counter(reader, "peer_connects"), 1);
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
	fill(1, 7);
	probe(&place, 7, &record);
	/* Both sleep before it begins. */
	gate_close(COPY_THREADS);
	id = read_begin(&place, record.incarnation, 0);
	idle(1);
	gate_open();
	assert_int_equal(read_end(id), 0);
	assert_true(polls < 100);
	assert_int_equal(blocks[0], 7);
	fill(1, 8);
	id = read_begin(&place, record.incarnation, 0);
	assert_int_equal(read_end(id), KVPULL_ESTALE);
	idle(1);
	assert_int_equal(ops->guard_bump_all(owner, NULL, NULL), 0);
	assert_int_equal(ops->put(owner, &late), KVPULL_ESTALE);
	assert_int_equal(counter(owner, "puts"), 2);
	assert_int_equal(counter(owner, "puts_stale"), 1);
	assert_int_equal(counter(owner, "bumps"), 2 + CHUNKS);
	assert_int_equal(counter(reader, "probes"), 1);
	assert_int_equal(counter(reader, "keys_found"), 1);
	assert_int_equal(counter(reader, "keys_missed"), 1);
	assert_int_equal(counter(reader, "reads"), 2);
	assert_int_equal(counter(reader, "pieces_good"), BLOCKS);
	assert_int_equal(counter(reader, "pieces_stale"), BLOCKS);
	assert_int_equal(counter(reader, "pieces_failed"), 0);
	assert_int_equal(counter(reader, "asks_live"), 0);
	assert_int_equal(counter(reader, "bytes_read"), BLOCKS * CHUNK_BYTES);
}

UNIT_TEST_WITH(a_sleeper_is_woken_by_a_deadline, setup, teardown)
{
	struct kvpull_reader_record record;
	struct kvpull_reader_place place;
	uint64_t id;
	int32_t code;

	settle(1);
	fill(1, 7);
	probe(&place, 7, &record);
	idle(1);
	gate_close(COPY_THREADS);
	id = read_begin(&place, record.incarnation,
			kvpull_clock_ns() + 2 * KVPULL_NS_PER_MS);
	assert_int_equal(read_end(id), KVPULL_EDEADLINE);
	assert_int_equal(counter(reader, "pieces_failed"), BLOCKS);
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
	ops->close(owner);
	owner = NULL;
	while (peer_code() == 0)
		assert_int_equal(
			slept(&(struct kvpull_reader_record){ 0 }, SLEEP_MS, 0),
			0);
	settle(0); /* calls again, and at last no more */
	assert_int_equal(peer_code(), KVPULL_EPEER);
	idle(0);
	assert_int_equal(counter(reader, "peers_live"), 0);
	assert_true(counter(reader, "peer_failures") > 1);
}

UNIT_TEST_WITH(a_sleeper_gives_up_an_owner_that_is_silent, setup_impatient,
	       teardown)
{
	settle(0); /* the owner is never polled: connect_ms, six times */
	assert_true(peer_code() < 0);
	assert_int_equal(counter(reader, "peers_live"), 0);
}

UNIT_TEST_WITH(what_the_engine_does_to_its_peers_wakes_it, setup, teardown)
{
	struct kvpull_reader_record record;
	struct kvpull_reader_peer is;
	char address[512];
	size_t byte_count;

	settle(1);
	idle(1);
	assert_int_equal(ops->peer_remove(reader, peer), 0);
	assert_int_equal(ops->peers(reader, &is, 1, sizeof(is)), 0);
	assert_int_equal(slept(&record, 0, 0), 0); /* readable at once */
	idle(1);
	assert_int_equal(counter(owner, "readers_live"), 0);
	assert_int_equal(counter(reader, "peer_failures"), 0);
	assert_int_equal(
		ops->address(owner, address, sizeof(address), &byte_count), 0);
	assert_int_equal(ops->peer_add(reader, address, &peer), 0);
	settle(1);
	assert_int_equal(peer_code(), 0);
	assert_int_equal(counter(reader, "peer_connects"), 2);
}

UNIT_TEST_WITH(no_handle_has_no_descriptor, setup, teardown)
{
	struct kvpull_counter one;

	assert_int_equal(ops->event_fd(NULL), KVPULL_EINVAL);
	assert_int_equal(ops->counters(reader, NULL, 1, sizeof(one)),
			 KVPULL_EINVAL);
	assert_int_equal(ops->counters(NULL, &one, 1, 8), KVPULL_EINVAL);
}
