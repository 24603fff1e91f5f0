/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reader's table between machines: an owner and a reader in one process, by
 * queue pairs of the fake fabric, which the library takes for the host's.
 */
#include <poll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "tests/fake/verbs.h"
#include "tests/lib/unit.h"
#include "tests/unit/share/handle.h"

#define CHUNKS 256u
#define CHUNK_BYTES 512u

/* After two seconds of silence a peer is asked whether it lives. */
uint64_t handle_look_ns = 10000;

int __wrap_kvpull_fabric_load(struct kvpull_fabric *fabric,
			      const struct kvpull_log *log, uint32_t level);

uint32_t world_blocks = HANDLE_CHUNKS;

static struct handle_world world;

/* Results of a probe or a read of all chunks. */
static struct kvpull_reader_place places[CHUNKS];
static int32_t codes[CHUNKS];

int __wrap_kvpull_fabric_load(struct kvpull_fabric *fabric,
			      const struct kvpull_log *log, uint32_t level)
{
	(void)log;
	(void)level;
	*fabric = *fake_verbs_fabric();
	return 0;
}

/* The configuration of who is opened next. */
static void route_is(const char *route)
{
	(void)snprintf(
		world.config, sizeof(world.config),
		"{\"socket_dir\":\"%s\",\"status\":\"off\",\"route\":\"%s\",\"networks\":\"10.66.0.0/16\",\"copy_threads\":0,\"flush_after_ms\":10}",
		world.world.folder, route);
}

static int owner_share(const struct kvpull_reader_share *share)
{
	world.owner = handle_open(&world, 0, NULL);
	return handle_share_as(&world, share);
}

static struct kvpull_reader_share share_params(void)
{
	return (struct kvpull_reader_share){
		.struct_size = sizeof(struct kvpull_reader_share),
		.chunk_bytes = CHUNK_BYTES,
		.chunk_count = CHUNKS
	};
}

UNIT_FIXTURE(setup)
{
	handle_begin(&world, "");
	world.chunk_bytes = CHUNK_BYTES;
	world.chunk_count = CHUNKS;
	route_is("verbs");
	fake_verbs_reset();
}

UNIT_FIXTURE(teardown)
{
	fake_verbs_knobs.held = 0;
	world.ops->close(world.reader);
	world.ops->close(world.owner);
	world.reader = world.owner = NULL;
	assert_int_equal(fake_verbs_live(), 0);
	/* The fake keeps its devices' descriptors. */
	world.world.fds_at_start = fds_open();
	handle_end(&world);
}

static struct kvpull_reader_peer settle(void)
{
	(void)handle_settle(&world);
	return handle_peer(&world, world.peer);
}

/* Key n is in chunk n - 1, and all its bytes are n. */
static void fill_and_connect(void)
{
	uint32_t chunk;

	for (chunk = 0; chunk < CHUNKS; chunk++)
		(void)handle_fill(&world, chunk, chunk + 1);
	handle_connect(&world);
}

static void connected(void)
{
	handle_owner(&world);
	fill_and_connect();
}

/* Ask for the keys of the first chunks; `found` of them are there. */
static uint64_t probe_found(uint32_t count, uint32_t found)
{
	struct kvpull_reader_record record;

	assert_int_equal(handle_probed(&world, count, places, &record), found);
	assert_int_equal(record.code, 0);
	return record.incarnation;
}

static uint64_t probe(uint32_t count)
{
	return probe_found(count, count);
}

/* Begin to read the places from `first` on into blocks of the same numbers. */
static int read_begin(uint64_t incarnation, uint32_t first, uint32_t count,
		      uint64_t *id)
{
	return handle_read_into(&world, first, places + first, count,
				incarnation, 0, codes + first, id);
}

static void expect_all_read(void)
{
	struct kvpull_reader_record record;
	struct kvpull_reader_peer is;
	uint64_t incarnation;
	uint64_t id;
	uint32_t at;

	fill_and_connect();
	is = settle();
	assert_string_equal(is.route, "verbs");
	assert_string_equal(is.engine_id, "owner");
	assert_int_equal(is.chunk_count, CHUNKS);
	incarnation = probe(CHUNKS);
	assert_int_equal(read_begin(incarnation, 0, CHUNKS, &id), 0);
	handle_await(&world, id, &record);
	assert_int_equal(record.code, 0);
	assert_int_equal(record.count, CHUNKS);
	assert_int_equal(fake_verbs_count(FAKE_VERBS_CHECK), CHUNKS);
	for (at = 0; at < CHUNKS; at++)
		assert_int_equal(world.blocks[(at + 1) * CHUNK_BYTES - 1],
				 (at + 1) & UINT8_MAX);
}

UNIT_TEST_WITH(keys_are_found_and_their_bytes_read, setup, teardown)
{
	handle_owner(&world);
	expect_all_read();
}

/* The memory is registered where the engine has mapped it. */
UNIT_TEST_WITH(an_engines_own_memory_is_read, setup, teardown)
{
	struct kvpull_reader_share share = share_params();
	const size_t bytes = (size_t)CHUNKS * CHUNK_BYTES;

	share.flags = KVPULL_READER_SHARE_FD;
	share.fd = memfd_create("test-own", MFD_CLOEXEC);
	assert_int_equal(fchmod(share.fd, 0600), 0);
	assert_int_equal(ftruncate(share.fd, (off_t)bytes), 0);
	assert_int_equal(owner_share(&share), KVPULL_EUNSUPPORTED);
	world.ops->close(world.owner);
	share.base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
			  share.fd, 0);
	assert_true(share.base != MAP_FAILED);
	assert_int_equal(owner_share(&share), 0);
	(void)close(share.fd);
	expect_all_read();
	world.ops->close(world.reader);
	world.ops->close(world.owner);
	world.reader = world.owner = NULL;
	(void)munmap(share.base, bytes);
}

/* Where there is a file of slots: no key of it is in memory, or read here. */
UNIT_TEST_WITH(what_is_in_a_file_alone_is_told_and_not_read, setup, teardown)
{
	struct kvpull_reader_share share = share_params();
	int32_t code = 1;
	struct kvpull_reader_record record;
	struct kvpull_reader_peer is;
	uint64_t id;

	share.slot_folder = "/var/tmp";
	share.slot_count = 2;
	if (owner_share(&share))
		skip(); /* its O_DIRECT asks for more than a chunk's bytes */
	expect_all_read();
	is = settle();
	assert_int_equal(is.slot_count, 0);
	assert_int_equal(handle_spill(&world, 0, 1, 0, 0, &code, &id), 0);
	handle_spilled(&world, id, &record);
	assert_int_equal(code, 0);
	(void)probe(1);
	assert_int_equal(places[0].chunk, 0);
	assert_int_equal(places[0].in_file, 0);
	handle_bump(&world, 0);
	(void)probe_found(1, 0);
	assert_int_equal(places[0].chunk, KVPULL_READER_NONE);
	assert_int_equal(places[0].in_file, 1);
	places[0].chunk = CHUNKS;
	assert_int_equal(read_begin(is.incarnation, 0, 1, &id), KVPULL_EINVAL);
}

UNIT_TEST_WITH(a_probe_of_100_keys_rings_once, setup, teardown)
{
	uint32_t doorbells;

	connected();
	doorbells = fake_verbs_doorbells();
	(void)probe(100);
	assert_int_equal(fake_verbs_doorbells(), doorbells + 1);
}

/* All data has come, and no guard: then every other chunk is filled again. */
UNIT_TEST_WITH(chunks_that_are_reused_before_the_check_are_stale, setup,
	       teardown)
{
	struct kvpull_reader_record record;
	uint64_t incarnation;
	uint64_t id;
	uint32_t at;

	connected();
	incarnation = probe(CHUNKS);
	fake_verbs_knobs.held = 1;
	assert_int_equal(read_begin(incarnation, 0, CHUNKS, &id), 0);
	while (!world.blocks[(CHUNKS - 1) * CHUNK_BYTES - 1]) {
		fake_verbs_knobs.held = 0;
		fake_verbs_knobs.budget = 1;
		assert_int_equal(handle_turn(&world, &record), 0);
	}
	assert_int_equal(fake_verbs_count(FAKE_VERBS_CHECK), 0);
	for (at = 0; at < CHUNKS; at += 2)
		(void)handle_fill(&world, at, at + 1);
	fake_verbs_knobs.held = fake_verbs_knobs.budget = 0;
	handle_await(&world, id, &record);
	assert_int_equal(record.code, KVPULL_ESTALE);
	assert_int_equal(record.count, CHUNKS / 2);
	for (at = 0; at < CHUNKS; at++)
		assert_int_equal(codes[at], at % 2 ? 0 : KVPULL_ESTALE);
}

UNIT_TEST_WITH(after_unshare_nothing_is_believed, setup, teardown)
{
	struct kvpull_reader_record record;
	uint64_t incarnation;
	uint64_t id;

	connected();
	incarnation = probe(CHUNKS);
	assert_int_equal(world.ops->unshare(world.owner), 0);
	assert_int_equal(read_begin(incarnation, 0, CHUNKS, &id), 0);
	handle_await(&world, id, &record);
	/*
	 * The code is the guard's, or that of the queue pair, which goes with
	 * its reader.
	 */
	assert_true(record.code == KVPULL_ESTALE ||
		    record.code == KVPULL_EPEER);
	assert_int_equal(record.count, 0);
}

UNIT_TEST_WITH(an_owner_that_is_gone_ends_reads, setup, teardown)
{
	struct kvpull_reader_record record;
	uint64_t incarnation;
	uint64_t id;

	connected();
	incarnation = probe(CHUNKS);
	fake_verbs_knobs.held = 1;
	assert_int_equal(read_begin(incarnation, 0, CHUNKS, &id), 0);
	fake_verbs_knobs.held = 0;
	world.ops->close(world.owner);
	world.owner = NULL;
	handle_await(&world, id, &record);
	assert_int_equal(record.code, KVPULL_EPEER);
	assert_int_equal(record.count, 0);
	assert_int_equal(settle().code, KVPULL_EPEER);
}

/* The queue pair is cut: that is no fault of the peer, however often. */
UNIT_TEST_WITH(what_was_cut_for_another_read_may_be_read_again, setup, teardown)
{
	struct kvpull_reader_record records[2];
	uint64_t incarnation;
	uint64_t ids[2];
	uint32_t round;
	uint32_t at;

	connected();
	incarnation = probe(CHUNKS);
	for (round = 0; round < 10; round++) {
		fake_verbs_knobs.held = 1;
		assert_int_equal(read_begin(incarnation, 0, 8, &ids[0]), 0);
		assert_int_equal(read_begin(incarnation, 8, 8, &ids[1]), 0);
		assert_int_equal(world.ops->cancel(world.reader, ids[0]), 0);
		for (at = 0; at < 2;)
			at += (uint32_t)handle_turn(&world, &records[at]);
		for (at = 0; at < 2; at++)
			assert_int_equal(records[at].code,
					 records[at].id == ids[0] ?
						 KVPULL_EABORTED :
						 KVPULL_EAGAIN);
		fake_verbs_knobs.held = 0;
		assert_int_equal(settle().code, 0);
	}
	assert_int_equal(read_begin(incarnation, 0, CHUNKS, &ids[0]), 0);
	handle_await(&world, ids[0], &records[0]);
	assert_int_equal(records[0].code, 0);
}

UNIT_TEST_WITH(memory_is_added_at_any_time_and_for_us_alone, setup, teardown)
{
	static uint8_t more[CHUNK_BYTES];
	struct kvpull_reader_record record;
	uint64_t incarnation;
	uint32_t objects;
	uint64_t id;

	connected();
	incarnation = probe(1);
	objects = fake_verbs_live();
	fake_verbs_knobs.make_at = 1;
	assert_int_equal(world.ops->local_add(world.reader, more, CHUNK_BYTES,
					      1, &world.local),
			 KVPULL_ENOMEM);
	assert_int_equal(fake_verbs_live(), objects);
	assert_int_equal(world.ops->local_add(world.reader, more, CHUNK_BYTES,
					      1, &world.local),
			 0);
	assert_int_equal(fake_verbs_memory_access(more) &
				 (IBV_ACCESS_REMOTE_READ |
				  IBV_ACCESS_REMOTE_WRITE |
				  IBV_ACCESS_REMOTE_ATOMIC),
			 0);
	assert_int_equal(fake_verbs_memory_access(world.memory.base) &
				 IBV_ACCESS_REMOTE_READ,
			 IBV_ACCESS_REMOTE_READ);
	assert_int_equal(read_begin(incarnation, 0, 1, &id), 0);
	handle_await(&world, id, &record);
	assert_int_equal(record.code, 0);
	assert_int_equal(more[0], 1);
}

/*
 * The reader polls only when its descriptor is readable, and sleeps when
 * nothing is left.
 */
UNIT_TEST_WITH(a_reader_that_sleeps_is_woken, setup, teardown)
{
	const uint64_t until = kvpull_clock_ns() + 20 * KVPULL_NS_PER_S;
	struct kvpull_reader_record record;
	struct pollfd ready = { .events = POLLIN };
	uint64_t incarnation;
	uint32_t woken = 0;
	uint64_t id;

	connected();
	incarnation = probe(CHUNKS);
	ready.fd = world.ops->event_fd(world.reader);
	assert_true(ready.fd >= 0);
	while (poll(&ready, 1, 0))
		assert_int_equal(handle_turn(&world, &record), 0);
	assert_int_equal(read_begin(incarnation, 0, CHUNKS, &id), 0);
	do {
		assert_true(kvpull_clock_ns() < until);
		woken += poll(&ready, 1, 1000) == 1;
	} while (world.ops->poll(world.reader, &record, 1, sizeof(record)) ==
		 0);
	assert_int_equal(record.code, 0);
	assert_true(woken > 0);
}

/*
 * The memory cannot be registered, or nobody can call: the handle is as before.
 */
UNIT_TEST_WITH(a_share_that_failed_may_be_tried_again, setup, teardown)
{
	const struct kvpull_reader_share share = { .struct_size = sizeof(share),
						   .chunk_bytes = CHUNK_BYTES,
						   .chunk_count = CHUNKS };
	const uint32_t none = fake_verbs_live();
	uint32_t objects;
	uint32_t at;

	world.owner = handle_open(&world, 0, NULL);
	objects = fake_verbs_live();
	world.memory =
		(struct kvpull_memory){ .struct_size = sizeof(world.memory) };
	for (at = 1;; at++) {
		fake_verbs_knobs.make_at = at;
		if (!world.ops->share(world.owner, &share, &world.memory, NULL))
			break;
		assert_int_equal(fake_verbs_live(), objects);
	}
	/* Three segments and a listener. */
	assert_int_equal(at, 5);
	fake_verbs_knobs.make_at = 0;
	world.ops->close(world.owner);
	assert_int_equal(fake_verbs_live(), none);
	connected();
}

/* As a tier does: what it reads of others goes into chunks of its own. */
UNIT_TEST_WITH(an_owner_reads_into_its_own_chunks, setup, teardown)
{
	const struct kvpull_reader_share share = { .struct_size = sizeof(share),
						   .chunk_bytes = CHUNK_BYTES,
						   .chunk_count = CHUNKS };
	struct kvpull_memory own = { .struct_size = sizeof(own) };
	struct kvpull_reader_record record;
	uint64_t incarnation;
	uint64_t id;

	connected();
	assert_int_equal(world.ops->share(world.reader, &share, &own, NULL), 0);
	assert_int_equal(world.ops->local_add(world.reader, own.base,
					      CHUNK_BYTES, CHUNKS,
					      &world.local),
			 0);
	incarnation = probe(CHUNKS);
	assert_int_equal(read_begin(incarnation, 0, CHUNKS, &id), 0);
	handle_await(&world, id, &record);
	assert_int_equal(record.count, CHUNKS);
	assert_memory_equal(own.base, world.memory.base, CHUNKS * CHUNK_BYTES);
}

UNIT_TEST_WITH(an_owner_of_this_node_is_not_read_by_the_network, setup,
	       teardown)
{
	char address[HANDLE_ADDRESS_BYTES];

	route_is("auto");
	connected();
	(void)handle_address(&world, address);
	assert_non_null(strstr(address, "shm:"));
	assert_non_null(strstr(address, ";verbs:10.66.0.1:"));
	assert_string_equal(settle().route, "shm");
}

/* Memory that may not be locked: nobody is read over the network. */
UNIT_TEST_WITH(a_route_without_memory_for_probes_leads_nowhere, setup, teardown)
{
	char address[HANDLE_ADDRESS_BYTES];
	uint32_t objects;

	handle_owner(&world);
	(void)handle_address(&world, address);
	route_is("auto");
	objects = fake_verbs_made();
	world.reader = handle_open(&world, 1, NULL);
	objects = fake_verbs_made() - objects;
	world.ops->close(world.reader);
	fake_verbs_knobs.make_at = objects; /* the last one that it makes */
	world.reader = handle_open(&world, 1, NULL);
	assert_int_equal(fake_verbs_knobs.make_at, 0);
	assert_int_equal(
		world.ops->peer_add(world.reader, address, &world.peer),
		KVPULL_EROUTE);
	assert_int_equal(world.ops->local_add(world.reader, world.memory.base,
					      CHUNK_BYTES, CHUNKS,
					      &world.local),
			 0);
}
