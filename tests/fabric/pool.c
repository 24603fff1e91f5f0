/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fabric_pool owner | reader ADDRESS READS
 *
 * An owner of chunks and of slots in a file, and a reader on another machine. The
 * owner prints its address and spills: half of its keys are in the file alone,
 * which that reader is told, and cannot read. Told by SIGUSR1 it reads its slots
 * back into chunks, as any reader does, and lists them. From then on it evicts,
 * fills and spills all the time, until it is told SIGTERM.
 *
 * The reader waits for the keys of the file to be in memory, and reads: every
 * byte of what it believes is compared. Exit status 1: something was wrong.
 */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "kvpull/reader.h"

#define KEYS 32u   /* of the first half there are only slots at the start */
#define CHUNKS 64u /* twice as many: one is filled while another is read */
#define BYTES 16384u
#define WORDS (BYTES / sizeof(uint64_t))
#define WAIT_NS (60 * KVPULL_NS_PER_S)

static const struct kvpull_reader_ops *ops;
static struct kvpull_reader *handle;
static volatile sig_atomic_t told; /* 1: promote; 2: end */

static void __attribute__((noreturn)) fail(const char *what, int code)
{
	printf("fabric_pool: %s: %d\n", what, code);
	exit(1);
}

static void expect(const char *what, int code)
{
	if (code)
		fail(what, code);
}

static void tell(int number)
{
	told = number == SIGUSR1 ? 1 : 2;
}

static uint64_t word_of(uint64_t key, size_t at)
{
	return (key + 1) * UINT64_C(0x9e3779b97f4a7c15) ^ at;
}

static void handle_make(const char *engine_id)
{
	const struct kvpull_model model = { .struct_size = sizeof(model),
					    .model = "m",
					    .weights = "w",
					    .dtype = "bytes",
					    .layout = "chunks" };
	const struct kvpull_reader_naming naming = {
		.struct_size = sizeof(naming),
		.model = &model,
		.hash = "number",
	};
	const struct kvpull_reader_params params = {
		.struct_size = sizeof(params),
		.naming = &naming,
		.engine_id = engine_id,
	};
	struct kvpull_error_detail detail = { .struct_size = sizeof(detail) };

	ops = kvpull_reader_v1();
	if (ops->open(&params, &handle, &detail))
		fail(detail.message, 0);
}

/* Until this one has ended; others are not begun. */
static struct kvpull_reader_record await(uint64_t id)
{
	const uint64_t until = kvpull_clock_ns() + WAIT_NS;
	struct kvpull_reader_record record;

	while (!ops->poll(handle, &record, 1, sizeof(record))) {
		struct pollfd wait = { .fd = ops->event_fd(handle),
				       .events = POLLIN };

		(void)poll(&wait, 1, 20);
		if (kvpull_clock_ns() > until)
			fail("nothing ends", 0);
	}
	if (record.id != id)
		fail("another's end", 0);
	return record;
}

static uint32_t peer_make(const char *address)
{
	const uint64_t until = kvpull_clock_ns() + WAIT_NS;
	struct kvpull_reader_peer is = { .code = KVPULL_EAGAIN };
	uint32_t peer;

	expect("peer_add", ops->peer_add(handle, address, &peer));
	while (is.code && kvpull_clock_ns() < until) {
		(void)ops->poll(handle, NULL, 0,
				sizeof(struct kvpull_reader_record));
		(void)poll(NULL, 0, 5);
		if (ops->peers(handle, &is, 1, sizeof(is)) != 1)
			fail("peers", 0);
	}
	expect("the peer", is.code);
	return peer;
}

static uint64_t probe(uint32_t peer, struct kvpull_reader_place *places)
{
	uint64_t numbers[KEYS];
	struct kvpull_reader_key keys[KEYS];
	const struct kvpull_reader_probe params = {
		.struct_size = sizeof(params),
		.peer = peer,
		.key_count = KEYS,
		.keys = keys,
		.key_bytes = sizeof(keys[0]),
		.places = places,
		.place_bytes = sizeof(places[0]),
	};
	struct kvpull_reader_record record;
	uint64_t id;
	uint32_t at;

	for (at = 0; at < KEYS; at++) {
		numbers[at] = at;
		keys[at] = (struct kvpull_reader_key){ &numbers[at], 8 };
	}
	expect("probe", ops->probe(handle, &params, &id));
	record = await(id);
	expect("a probe's end", record.code);
	return record.incarnation;
}

/* Place at goes to block at + first, where the place is of this kind. */
static int read_kind(uint32_t peer, uint32_t local, uint32_t first,
		     uint32_t in_file, const struct kvpull_reader_place *places,
		     uint64_t incarnation, int32_t codes[KEYS], uint64_t *id)
{
	struct kvpull_reader_piece pieces[KEYS];
	struct kvpull_reader_read read = {
		.struct_size = sizeof(read),
		.peer = peer,
		.local = local,
		.pieces = pieces,
		.piece_bytes = sizeof(pieces[0]),
		.codes = codes,
		.incarnation = incarnation,
	};
	uint32_t at;

	for (at = 0; at < KEYS; at++)
		if (places[at].chunk != KVPULL_READER_NONE &&
		    places[at].in_file == in_file)
			pieces[read.piece_count++] =
				(struct kvpull_reader_piece){
					.chunk = places[at].chunk,
					.block = first + at,
					.generation = places[at].generation,
				};
	return read.piece_count ? ops->read(handle, &read, id) : 1;
}

/* ---- the owner ---- */

static uint8_t *chunks;

static struct kvpull_reader_put put_of(const uint64_t *key, uint32_t chunk)
{
	struct kvpull_reader_put put = { .struct_size = sizeof(put),
					 .key = { key, sizeof(*key) },
					 .chunk = chunk };

	expect("epoch", ops->epoch(handle, &put.epoch));
	expect("generation", ops->generation(handle, chunk, &put.generation));
	return put;
}

static void fill(uint64_t key, uint32_t chunk)
{
	uint64_t *words = (uint64_t *)(void *)(chunks + (size_t)chunk * BYTES);
	struct kvpull_reader_put put;
	size_t at;

	expect("bump", ops->guard_bump(handle, &chunk, 1, NULL));
	expect("write_begin", ops->write_begin(handle, chunk));
	for (at = 0; at < WORDS; at++)
		words[at] = word_of(key, at);
	expect("write_end", ops->write_end(handle, chunk));
	put = put_of(&key, chunk);
	expect("put", ops->put(handle, &put));
}

static void spill(uint64_t key, uint32_t chunk)
{
	const struct kvpull_reader_put put = put_of(&key, chunk);
	int32_t code = 0;
	const struct kvpull_reader_spill params = {
		.struct_size = sizeof(params),
		.puts = &put,
		.put_bytes = sizeof(put),
		.codes = &code,
		.put_count = 1,
	};
	uint64_t id;

	expect("spill", ops->spill(handle, &params, &id));
	expect("a spill's end", await(id).code);
}

/* Reads keys that are in the file into the chunks behind the first KEYS. */
static void promote(uint32_t peer, uint32_t local)
{
	struct kvpull_reader_place places[KEYS];
	int32_t codes[KEYS];
	struct kvpull_reader_record record;
	const uint64_t incarnation = probe(peer, places);
	uint64_t key;
	uint64_t id;

	for (key = 0; key < KEYS / 2; key++) {
		const uint32_t chunk = KEYS + (uint32_t)key;

		if (!places[key].in_file)
			fail("a key is not in the file", (int)key);
		expect("bump", ops->guard_bump(handle, &chunk, 1, NULL));
		expect("write_begin", ops->write_begin(handle, chunk));
	}
	expect("read of slots", read_kind(peer, local, KEYS, 1, places,
					  incarnation, codes, &id));
	record = await(id);
	expect("promotion", record.code);
	for (key = 0; key < KEYS / 2; key++) {
		const uint32_t chunk = KEYS + (uint32_t)key;
		struct kvpull_reader_put put;

		expect("write_end", ops->write_end(handle, chunk));
		put = put_of(&key, chunk);
		expect("put", ops->put(handle, &put));
	}
	printf("promoted %u\n", record.count);
	(void)fflush(stdout);
}

static void nap(int ms)
{
	(void)ops->poll(handle, NULL, 0, sizeof(struct kvpull_reader_record));
	(void)poll(NULL, 0, ms);
}

static int owner(void)
{
	const struct kvpull_reader_share share = {
		.struct_size = sizeof(share),
		.chunk_bytes = BYTES,
		.chunk_count = CHUNKS,
		.slot_folder = "/var/tmp",
		.slot_count = KEYS,
	};
	struct kvpull_memory memory = { .struct_size = sizeof(memory) };
	struct kvpull_error_detail detail = { .struct_size = sizeof(detail) };
	char address[512];
	size_t byte_count;
	uint64_t turn;
	uint32_t local;
	uint32_t peer;
	uint32_t at;

	handle_make("owner");
	if (ops->share(handle, &share, &memory, &detail)) {
		(void)fprintf(stderr, "fabric_pool: %s: %s\n", detail.field,
			      detail.message);
		return 1;
	}
	chunks = memory.base;
	expect("address",
	       ops->address(handle, address, sizeof(address), &byte_count));
	for (at = 0; at < KEYS; at++) {
		fill(at, at);
		spill(at, at);
	}
	for (at = 0; at < KEYS / 2; at++)
		expect("bump", ops->guard_bump(handle, &at, 1, NULL));
	expect("local_add",
	       ops->local_add(handle, chunks, BYTES, CHUNKS, &local));
	peer = peer_make(address);
	printf("address %s\n", address);
	(void)fflush(stdout);
	while (!told)
		nap(1);
	promote(peer, local);
	/* Each key has two chunks that it is in by turns. */
	for (turn = 0; told != 2; turn++) {
		const uint32_t key = (uint32_t)(turn * 7 % KEYS);
		const uint32_t chunk = key + (turn / KEYS % 2 ? KEYS : 0);

		fill(key, chunk);
		spill(key, chunk);
		nap(turn % 4 ? 0 : 1);
	}
	printf("turns %llu\n", (unsigned long long)turn);
	ops->close(handle);
	return 0;
}

/* ---- the reader ---- */

struct seen {
	uint64_t good, stale, in_file, wrong;
};

static void judge(const uint8_t *blocks, uint32_t key, int32_t code,
		  struct seen *seen)
{
	const uint64_t *words =
		(const uint64_t *)(const void *)(blocks + (size_t)key * BYTES);
	size_t at = 0;

	if (code && code != KVPULL_ESTALE)
		fail("a piece", code);
	while (!code && at < WORDS && words[at] == word_of(key, at))
		at++;
	seen->good += !code;
	seen->stale += code != 0;
	seen->wrong += !code && at < WORDS;
}

/* Slots are on the owner's node: it is told that there is one, and not which. */
static void slot_is_refused(uint32_t peer, uint32_t local,
			    const struct kvpull_reader_place *place,
			    uint64_t incarnation, struct seen *seen)
{
	struct kvpull_reader_place guessed[KEYS];
	int32_t codes[KEYS];
	uint64_t id;
	uint32_t at;
	int code;

	if (place->chunk != KVPULL_READER_NONE)
		fail("a slot is told to another machine", (int)place->chunk);
	for (at = 0; at < KEYS; at++)
		guessed[at].chunk = KVPULL_READER_NONE;
	guessed[0] = *place;
	guessed[0].chunk = CHUNKS;
	code = read_kind(peer, local, 0, 1, guessed, incarnation, codes, &id);
	if (code != KVPULL_EINVAL)
		fail("a slot is read from afar", code);
	seen->in_file++;
}

static void read_once(uint32_t peer, uint32_t local, const uint8_t *blocks,
		      struct seen *seen)
{
	struct kvpull_reader_place places[KEYS];
	const uint64_t incarnation = probe(peer, places);
	int32_t codes[KEYS];
	uint32_t piece = 0;
	uint32_t key;
	uint64_t id;
	int code;

	for (key = 0; key < KEYS; key++)
		if (places[key].in_file)
			slot_is_refused(peer, local, &places[key], incarnation,
					seen);
	code = read_kind(peer, local, 0, 0, places, incarnation, codes, &id);
	if (code == 1)
		return;
	expect("read", code);
	(void)await(id);
	for (key = 0; key < KEYS; key++)
		if (places[key].chunk != KVPULL_READER_NONE &&
		    !places[key].in_file)
			judge(blocks, key, codes[piece++], seen);
}

static int reader(const char *address, uint64_t reads)
{
	struct seen seen = { 0 };
	uint8_t *blocks = calloc(KEYS, BYTES);
	uint64_t before;
	uint32_t local;
	uint32_t peer;

	handle_make("reader");
	expect("local_add",
	       ops->local_add(handle, blocks, BYTES, KEYS, &local));
	peer = peer_make(address);
	read_once(peer, local, blocks, &seen);
	if (!seen.in_file || seen.good != KEYS / 2)
		fail("not half of the keys are in the file", (int)seen.good);
	printf("half\n");
	(void)fflush(stdout);
	do {
		before = seen.good;
		read_once(peer, local, blocks, &seen);
	} while (seen.good - before < KEYS / 2 + 1);
	printf("promoted keys are read\n");
	while (seen.good + seen.stale < reads && !seen.wrong)
		read_once(peer, local, blocks, &seen);
	printf("%llu pieces good, %llu stale, %llu wrong; %llu refused reads of slots\n",
	       (unsigned long long)seen.good, (unsigned long long)seen.stale,
	       (unsigned long long)seen.wrong,
	       (unsigned long long)seen.in_file);
	ops->close(handle);
	return seen.wrong || seen.good < reads / 100 || !seen.stale;
}

int main(int argc, char **argv)
{
	(void)signal(SIGUSR1, tell);
	(void)signal(SIGTERM, tell);
	if (argc == 2 && !strcmp(argv[1], "owner"))
		return owner();
	if (argc == 4 && !strcmp(argv[1], "reader"))
		return reader(argv[2], strtoull(argv[3], NULL, 10));
	fail("owner | reader ADDRESS READS", argc);
}
