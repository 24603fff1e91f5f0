/* SPDX-License-Identifier: Apache-2.0 */
/*
 * F14: a pool's owner reuses every chunk while others read it.
 *
 * The owner fills one chunk after the other, each time with another key. The
 * reader asks for young keys, stalls, reads what was found, and is stopped by a
 * signal at any moment: before the copy, in it, and between copy and check. The
 * bytes of a key are made from it, so a piece that is believed and has others
 * is wrong. With a library that does not look at the guards the same tries must
 * find wrong ones.
 */
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "kvpull/reader.h"
#include "tests/scenario/mutant.h"
#include "tests/scenario/scenario.h"

#define CHUNKS 64u
#define CHUNK_BYTES 32768u
#define ITEMS 16u /* of a probe */
#define NAP_NS_MAX 1000000u
#define ALARM_US 400
#define QUICK_TRIES 10000u
#define FULL_TRIES 100000u
#define LIMIT_NS (5 * SCENARIO_NS_PER_S)

/* Shared by the case and the owner. */
struct arena {
	_Atomic uint64_t newest; /* key that was put last */
	_Atomic uint32_t stop;
	_Atomic uint32_t is_up;
	char address[256];
	char said[512]; /* by the owner, when it refused */
};

struct reader {
	const struct kvpull_reader_ops *ops;
	struct kvpull_reader *handle;
	uint8_t *blocks; /* [ITEMS][CHUNK_BYTES] */
	uint32_t local;
	uint32_t peer;
	uint64_t random;
	uint64_t tries, good, stale, missed, wrong, torn;
	char said[512];
};

static void log_line(void *context, uint32_t level, const char *message)
{
	if (level == KVPULL_LOG_WARN && strstr(message, " refused"))
		(void)snprintf(context, 512, "%s", message);
}

static struct kvpull_reader *handle_open(const struct scenario *scenario,
					 const struct kvpull_reader_ops **ops,
					 const char *weights, char *said)
{
	void *symbol = engine_library_symbol("kvpull_reader_v1");
	char config[256];
	kvpull_reader_v1_fn table;
	const struct kvpull_host host = { .struct_size = sizeof(host),
					  .context = said,
					  .log = log_line };
	const struct kvpull_model model = { .struct_size = sizeof(model),
					    .model = "m",
					    .weights = weights,
					    .dtype = "float16",
					    .layout = "LBHNC" };
	const struct kvpull_reader_naming naming = {
		.struct_size = sizeof(naming), .model = &model, .hash = "sha256"
	};
	const struct kvpull_reader_params params = {
		.struct_size = sizeof(params),
		.host = &host,
		.config_json = config,
		.naming = &naming,
		.engine_id = "pool",
	};
	struct kvpull_error_detail detail = { .struct_size = sizeof(detail) };
	struct kvpull_reader *handle;

	scenario_check(symbol != NULL, "no kvpull_reader_v1");
	memcpy(&table, &symbol, sizeof(table));
	*ops = table();
	(void)snprintf(config, sizeof(config),
		       "{\"socket_dir\":\"%s\",\"copy_threads\":0}",
		       scenario->folder);
	scenario_check(!(*ops)->open(&params, &handle, &detail), "open: %s",
		       detail.message);
	return handle;
}

/* ---- the owner ---- */

static uint64_t word_of(uint64_t key, uint32_t at)
{
	return key * UINT64_C(0x9e3779b97f4a7c15) + at;
}

static void chunk_reuse(const struct kvpull_reader_ops *ops,
			struct kvpull_reader *handle, uint64_t *words,
			uint64_t key)
{
	const uint32_t chunk = (uint32_t)(key % CHUNKS);
	struct kvpull_reader_put put = {
		.struct_size = sizeof(put),
		.key = { &key, sizeof(key) },
		.chunk = chunk,
	};
	uint32_t at;

	if (ops->guard_bump(handle, &chunk, 1, &put.generation) ||
	    ops->write_begin(handle, chunk))
		scenario_fail("owner: bump");
	words += (size_t)chunk * (CHUNK_BYTES / sizeof(*words));
	for (at = 0; at < CHUNK_BYTES / sizeof(*words); at++)
		words[at] = word_of(key, at);
	if (ops->write_end(handle, chunk) || ops->epoch(handle, &put.epoch) ||
	    ops->put(handle, &put))
		scenario_fail("owner: put");
}

static void owner_main(const struct scenario *scenario, struct arena *arena)
{
	const struct kvpull_reader_share share = { .struct_size = sizeof(share),
						   .chunk_bytes = CHUNK_BYTES,
						   .chunk_count = CHUNKS };
	struct kvpull_memory memory = { .struct_size = sizeof(memory) };
	const struct kvpull_reader_ops *ops;
	struct kvpull_reader *handle =
		handle_open(scenario, &ops, "w1", arena->said);
	struct kvpull_reader_record record;
	size_t byte_count;
	uint64_t key = 0;

	if (ops->share(handle, &share, &memory, NULL) ||
	    ops->address(handle, arena->address, sizeof(arena->address),
			 &byte_count))
		scenario_fail("owner: share");
	/* Pairs with the acquire in owner_start(). */
	atomic_store_explicit(&arena->is_up, 1, memory_order_release);
	while (!atomic_load_explicit(&arena->stop, memory_order_relaxed)) {
		chunk_reuse(ops, handle, memory.base, ++key);
		atomic_store_explicit(&arena->newest, key,
				      memory_order_relaxed);
		(void)ops->poll(handle, &record, 1, sizeof(record));
		/* So that what is young lives for about NAP_NS_MAX. */
		scenario_sleep_ns(NAP_NS_MAX / CHUNKS);
	}
	ops->close(handle);
	_exit(0);
}

static pid_t owner_start(const struct scenario *scenario, struct arena *arena)
{
	const uint64_t until = engine_now_ns() + LIMIT_NS * scenario->patience;
	pid_t pid;

	atomic_store_explicit(&arena->is_up, 0, memory_order_relaxed);
	pid = fork();
	scenario_check(pid >= 0, "fork");
	if (!pid) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		owner_main(scenario, arena);
	}
	/* Pairs with the release in owner_main(). */
	while (!atomic_load_explicit(&arena->is_up, memory_order_acquire)) {
		scenario_check(engine_now_ns() < until, "the owner is not up");
		scenario_sleep_ns(SCENARIO_NS_PER_MS);
	}
	return pid;
}

static struct arena *arena_make(void)
{
	struct arena *arena = mmap(NULL, sizeof(*arena), PROT_READ | PROT_WRITE,
				   MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (scenario_is_remote())
		scenario_refuse("a pool is read on its own node");
	scenario_check(arena != MAP_FAILED, "out of memory");
	return arena;
}

/* ---- the reader ---- */

/* Until it is connected or given up. Return: its code. */
static int32_t settle(struct reader *reader, const struct scenario *scenario)
{
	const uint64_t until = engine_now_ns() + LIMIT_NS * scenario->patience;
	struct kvpull_reader_peer is = { .code = KVPULL_EAGAIN };
	struct kvpull_reader_record record;

	while (is.code == KVPULL_EAGAIN) {
		scenario_check(engine_now_ns() < until, "not connected");
		(void)reader->ops->poll(reader->handle, &record, 1,
					sizeof(record));
		(void)reader->ops->peers(reader->handle, &is, 1, sizeof(is));
	}
	return is.code;
}

static int32_t reader_start(struct reader *reader,
			    const struct scenario *scenario,
			    const struct arena *arena, const char *weights)
{
	memset(reader, 0, sizeof(*reader));
	reader->random = engine_now_ns() | 1;
	reader->handle =
		handle_open(scenario, &reader->ops, weights, reader->said);
	reader->blocks = calloc(ITEMS, CHUNK_BYTES);
	scenario_check(
		reader->blocks &&
			!reader->ops->local_add(reader->handle, reader->blocks,
						CHUNK_BYTES, ITEMS,
						&reader->local) &&
			!reader->ops->peer_add(reader->handle, arena->address,
					       &reader->peer),
		"peer");
	return settle(reader, scenario);
}

static void reader_stop(struct reader *reader)
{
	reader->ops->close(reader->handle);
	free(reader->blocks);
}

/* What was begun ends in time. */
static void await(struct reader *reader, const struct scenario *scenario,
		  struct kvpull_reader_record *record)
{
	const uint64_t until = engine_now_ns() + LIMIT_NS * scenario->patience;

	while (reader->ops->poll(reader->handle, record, 1, sizeof(*record)) !=
	       1)
		scenario_check(engine_now_ns() < until, "no end came");
}

/* Return: 0, or why nothing was begun. */
static int probe(struct reader *reader, const struct scenario *scenario,
		 const uint64_t keys[ITEMS],
		 struct kvpull_reader_place places[ITEMS],
		 struct kvpull_reader_record *record)
{
	struct kvpull_reader_key own[ITEMS];
	const struct kvpull_reader_probe params = {
		.struct_size = sizeof(params),
		.peer = reader->peer,
		.key_count = ITEMS,
		.keys = own,
		.key_bytes = sizeof(own[0]),
		.places = places,
		.place_bytes = sizeof(places[0]),
	};
	uint64_t id;
	uint32_t at;
	int code;

	for (at = 0; at < ITEMS; at++)
		own[at] = (struct kvpull_reader_key){ &keys[at],
						      sizeof(keys[at]) };
	code = reader->ops->probe(reader->handle, &params, &id);
	if (code)
		return code;
	await(reader, scenario, record);
	return record->code;
}

static void piece_judge(struct reader *reader, uint64_t key, uint32_t block,
			int32_t code)
{
	const uint64_t *words =
		(const uint64_t *)(const void *)(reader->blocks +
						 (size_t)block * CHUNK_BYTES);
	const uint32_t count = CHUNK_BYTES / sizeof(*words);
	uint32_t right = 0;
	uint32_t at;

	reader->tries++;
	reader->stale += code == KVPULL_ESTALE;
	if (code)
		return;
	for (at = 0; at < count; at++)
		right += words[at] == word_of(key, at);
	reader->good += right == count;
	reader->wrong += right != count;
	reader->torn += right && right != count;
}

static void nap(struct reader *reader)
{
	if (random_next(&reader->random) % 2)
		scenario_sleep_ns(random_next(&reader->random) % NAP_NS_MAX);
}

/* One probe of young keys and one read. Return: 0, or why it could not. */
static int reader_try(struct reader *reader, const struct scenario *scenario,
		      const struct arena *arena)
{
	const uint64_t newest =
		atomic_load_explicit(&arena->newest, memory_order_relaxed);
	struct kvpull_reader_place places[ITEMS];
	struct kvpull_reader_piece pieces[ITEMS];
	struct kvpull_reader_record record;
	uint64_t keys[ITEMS];
	int32_t codes[ITEMS];
	struct kvpull_reader_read read = {
		.struct_size = sizeof(read),
		.peer = reader->peer,
		.local = reader->local,
		.pieces = pieces,
		.piece_bytes = sizeof(pieces[0]),
		.codes = codes,
	};
	uint32_t asked[ITEMS];
	uint64_t id;
	uint32_t at;
	int code;

	for (at = 0; at < ITEMS; at++)
		/* From the youngest one to one that is reused soon. */
		keys[at] = newest - at * (CHUNKS / ITEMS);
	code = probe(reader, scenario, keys, places, &record);
	if (code)
		return code;
	for (at = 0; at < ITEMS; at++)
		if (places[at].chunk != KVPULL_READER_NONE) {
			asked[read.piece_count] = at;
			pieces[read.piece_count++] =
				(struct kvpull_reader_piece){
					places[at].chunk, at,
					places[at].generation
				};
		}
	reader->missed += ITEMS - read.piece_count;
	if (!read.piece_count)
		return 0;
	nap(reader);
	read.incarnation = record.incarnation;
	code = reader->ops->read(reader->handle, &read, &id);
	if (code)
		return code;
	await(reader, scenario, &record);
	for (at = 0; at < read.piece_count; at++)
		piece_judge(reader, keys[asked[at]], asked[at], codes[at]);
	return record.code == KVPULL_ESTALE ? 0 : record.code;
}

/* Stalls the reader wherever it is, also in the library. */
static void on_alarm(int signal_number)
{
	static uint64_t random = 88172645463325252;
	const int kept = errno;
	const struct timespec nap_time = {
		.tv_nsec = (long)(random_next(&random) % NAP_NS_MAX)
	};

	(void)signal_number;
	(void)nanosleep(&nap_time, NULL);
	errno = kept;
}

static void alarms(long period_us)
{
	const struct itimerval timer = { .it_interval.tv_usec = period_us,
					 .it_value.tv_usec = period_us };
	const struct sigaction action = { .sa_handler = on_alarm,
					  .sa_flags = SA_RESTART };

	(void)sigaction(SIGALRM, &action, NULL);
	(void)setitimer(ITIMER_REAL, &timer, NULL);
}

static void race(const struct scenario *scenario, struct reader *reader,
		 uint64_t tries, uint64_t until_torn)
{
	struct arena *arena = arena_make();
	const pid_t pid = owner_start(scenario, arena);
	const uint64_t until = engine_now_ns() + (scenario->full ? 200 : 40) *
							 SCENARIO_NS_PER_S *
							 scenario->patience;
	int status = -1;

	scenario_check(!reader_start(reader, scenario, arena, "w1"),
		       "not connected");
	alarms(ALARM_US);
	while (reader->tries < tries && reader->torn < until_torn &&
	       engine_now_ns() < until)
		scenario_check(!reader_try(reader, scenario, arena),
			       "a probe or a read failed");
	alarms(0);
	reader_stop(reader);
	atomic_store_explicit(&arena->stop, 1, memory_order_relaxed);
	(void)waitpid(pid, &status, 0);
	scenario_check(!status, "the owner ended with status 0x%x",
		       (unsigned)status);
	scenario_say(
		"%llu pieces, %llu good, %llu stale, %llu wrong (%llu torn)",
		(unsigned long long)reader->tries,
		(unsigned long long)reader->good,
		(unsigned long long)reader->stale,
		(unsigned long long)reader->wrong,
		(unsigned long long)reader->torn);
}

static void f14_reuse(const struct scenario *scenario)
{
	const uint64_t tries = scenario->full ? FULL_TRIES : QUICK_TRIES;
	struct reader reader;

	race(scenario, &reader, tries, UINT64_MAX);
	scenario_check(!reader.wrong, "wrong bytes were believed");
	scenario_check(reader.tries >= tries, "too few tries in the time");
	scenario_check(reader.good * 100 >= reader.tries,
		       "less than 1 %% were good");
	scenario_check(reader.stale * 100 >= reader.tries,
		       "less than 1 %% were stale");
}

static void f14_unchecked(const struct scenario *scenario)
{
	struct reader reader;

	mutant_use("noguard", "plugin/share/reader.c",
		   "s/if (!kvpull_pool_is_unchanged(/if (0 \\&\\& "
		   "!kvpull_pool_is_unchanged(/");
	race(scenario, &reader, QUICK_TRIES, scenario->full ? 10 : 1);
	scenario_check(reader.wrong > 0,
		       "no wrong bytes: the check is not tested");
	/* A check before the read would believe a torn one. */
	scenario_check(reader.torn > 0 || !scenario->full,
		       "no torn reads: the race is not tested");
}

/* Its owner is killed at any moment: an error in time, and then another one. */
static void f14_killed(const struct scenario *scenario)
{
	const uint32_t rounds = scenario->full ? 50 : 5;
	struct arena *arena = arena_make();
	uint64_t longest_ns = 0;
	uint64_t good = 0;
	uint32_t round;

	for (round = 0; round < rounds; round++) {
		const pid_t pid = owner_start(scenario, arena);
		struct reader reader;
		uint64_t killed_ns = 0;
		int code = 0;

		scenario_check(!reader_start(&reader, scenario, arena, "w1"),
			       "not connected");
		while (!code || code == KVPULL_EAGAIN || !killed_ns) {
			if (!killed_ns && reader.good >= 4 * ITEMS) {
				(void)kill(pid, SIGKILL);
				killed_ns = engine_now_ns();
			}
			scenario_check(
				!killed_ns ||
					engine_now_ns() - killed_ns <
						LIMIT_NS * scenario->patience,
				"a dead owner is asked on");
			code = reader_try(&reader, scenario, arena);
			if (code == KVPULL_EAGAIN)
				(void)settle(&reader, scenario);
		}
		scenario_check(code == KVPULL_EPEER, "ended with %d", code);
		scenario_check(!reader.wrong, "wrong bytes were believed");
		good += reader.good;
		if (engine_now_ns() - killed_ns > longest_ns)
			longest_ns = engine_now_ns() - killed_ns;
		reader_stop(&reader);
		(void)waitpid(pid, NULL, 0);
	}
	scenario_say("%u kills, %llu good pieces, given up in %llu ms at most",
		     rounds, (unsigned long long)good,
		     (unsigned long long)(longest_ns / SCENARIO_NS_PER_MS));
}

static void f14_namespace(const struct scenario *scenario)
{
	struct arena *arena = arena_make();
	const pid_t pid = owner_start(scenario, arena);
	struct reader reader;

	scenario_check(reader_start(&reader, scenario, arena, "w2") ==
			       KVPULL_EREJECTED,
		       "other weights are not refused");
	reader_stop(&reader);
	atomic_store_explicit(&arena->stop, 1, memory_order_relaxed);
	(void)waitpid(pid, NULL, 0);
	scenario_say("%s; %s", reader.said, arena->said);
	scenario_check(strstr(reader.said, "weights is w1 there and w2 here"),
		       "the reader does not say why");
	scenario_check(strstr(arena->said, "weights is w1 here and w2 there"),
		       "the owner does not say why");
}

const struct scenario_case scenario_f14[] = {
	{ "F14a",
	  "no wrong byte of a pool is believed while its owner reuses it",
	  f14_reuse, 60, 300 },
	{ "F14b", "a library that does not look at guards believes wrong bytes",
	  f14_unchecked, 120, 300 },
	{ "F14c", "a pool whose owner is killed is given up in time",
	  f14_killed, 60, 300 },
	{ "F14d", "a pool of other weights is refused by name", f14_namespace,
	  20, 20 },
	{ 0 },
};
