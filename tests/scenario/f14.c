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
 *
 * F14e stalls where it knows that it does: f14_stalls.c.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/lib/host_reader.h"
#include "tests/scenario/f14.h"
#include "tests/scenario/mutant.h"

#define ITEMS 16u /* of a probe */
#define ALARM_US 400
#define REMOTE_ALARM_US 24000 /* a guest's naps are some 20 ms */
#define QUICK_TRIES 4000u
#define FULL_TRIES 100000u
#define REMOTE_TRIES 10000u /* over RDMA, and as many pieces in stalls */
#define SEEN_MIN 20u
#define GOOD_OF 20u /* one of so many pieces is to be good */
#define SLOWER_MAX 100u
#define QUICK_STALLS 400u
#define REMOTE_STALLS 250u
#define FULL_STALLS 10000u

uint32_t f14_readers_max = 64;

static void log_line(void *context, uint32_t level, const char *message)
{
	if (level == KVPULL_LOG_WARN && strstr(message, " refused"))
		(void)snprintf(context, 512, "%s", message);
}

struct kvpull_reader *f14_handle_open(const struct scenario *scenario,
				      const struct kvpull_reader_ops **ops,
				      const char *weights, char *said)
{
	char config[256];
	kvpull_reader_v1_fn table;
	const struct kvpull_host host = { .struct_size = sizeof(host),
					  .context = said,
					  .log = log_line };
	const struct host_reader reader = { .engine_id = "pool",
					    .config = config,
					    .weights = weights,
					    .host = &host };
	struct kvpull_error_detail detail = { .struct_size = sizeof(detail) };
	struct kvpull_reader *handle;

	scenario_check(!engine_library_find("kvpull_reader_v1", &table),
		       "no kvpull_reader_v1");
	*ops = table();
	(void)snprintf(
		config, sizeof(config),
		"{\"socket_dir\":\"%s\",\"copy_threads\":0,\"consumers_max\":%u}",
		scenario->folder, f14_readers_max);
	scenario_check(!host_reader_open(*ops, &reader, &handle, &detail),
		       "open: %s", detail.message);
	return handle;
}

/* ---- the owner ---- */

uint64_t f14_word_of(uint64_t key, uint32_t at)
{
	return key * UINT64_C(0x9e3779b97f4a7c15) + at;
}

static void chunk_reuse(const struct kvpull_reader_ops *ops,
			struct kvpull_reader *handle, uint64_t *words,
			uint64_t key)
{
	const uint32_t chunk = (uint32_t)(key % F14_CHUNKS);
	struct kvpull_reader_put put = {
		.struct_size = sizeof(put),
		.key = { &key, sizeof(key) },
		.chunk = chunk,
	};
	uint32_t at;
	int code;

	if (ops->guard_bump(handle, &chunk, 1, &put.generation) ||
	    ops->write_begin(handle, chunk))
		scenario_fail("owner: bump");
	words += (size_t)chunk * (F14_CHUNK_BYTES / sizeof(*words));
	for (at = 0; at < F14_CHUNK_BYTES / sizeof(*words); at++)
		words[at] = f14_word_of(key, at);
	if (ops->write_end(handle, chunk) || ops->epoch(handle, &put.epoch))
		scenario_fail("owner: write");
	/* Once in some 10,000 keys no entry is free: this one is missed. */
	code = ops->put(handle, &put);
	if (code && code != KVPULL_EFULL)
		scenario_fail("owner: put says %d", code);
}

static void owner_main(const struct scenario *scenario, struct f14_arena *arena)
{
	struct kvpull_reader_share share = { .struct_size = sizeof(share),
					     .chunk_bytes = F14_CHUNK_BYTES,
					     .chunk_count = F14_CHUNKS };
	struct kvpull_memory memory = { .struct_size = sizeof(memory) };
	const struct kvpull_reader_ops *ops;
	struct kvpull_reader *handle =
		f14_handle_open(scenario, &ops, "w1", arena->said);
	struct kvpull_reader_record record;
	size_t byte_count;
	uint64_t key = 0;

	if (arena->path[0])
		f14_file_make(arena->path, &share);
	if (arena->slots[0]) {
		share.slot_folder = arena->slots;
		share.slot_count = F14_SLOTS;
	}
	if (ops->share(handle, &share, &memory, NULL) ||
	    ops->address(handle, arena->address, sizeof(arena->address),
			 &byte_count))
		scenario_fail("owner: share");
	/* Pairs with the acquire in f14_owner_start(). */
	atomic_store_explicit(&arena->is_up, 1, memory_order_release);
	while (!atomic_load_explicit(&arena->stop, memory_order_relaxed)) {
		uint32_t asked = F14_REST_ASKED;

		/* Pairs with the acquire in owner_rests(). */
		(void)atomic_compare_exchange_strong_explicit(
			&arena->rest, &asked, F14_REST_TAKEN,
			memory_order_release, memory_order_relaxed);
		if (asked == F14_REST_ASKED || asked == F14_REST_TAKEN) {
			(void)ops->poll(handle, &record, 1, sizeof(record));
			scenario_sleep_ns(F14_NAP_NS_MAX);
			continue;
		}
		chunk_reuse(ops, handle, memory.base, ++key);
		if (arena->slots[0])
			f14_slots_reuse(ops, handle, arena, key);
		/* Pairs with the acquire in stall_wait(). */
		atomic_store_explicit(&arena->newest, key,
				      memory_order_release);
		(void)ops->poll(handle, &record, 1, sizeof(record));
		/* So that what is young lives for about F14_NAP_NS_MAX. */
		scenario_sleep_ns(
			F14_NAP_NS_MAX / F14_CHUNKS *
			(1 + atomic_load_explicit(&arena->slower,
						  memory_order_relaxed)));
	}
	ops->close(handle);
	_exit(0);
}

pid_t f14_owner_start(const struct scenario *scenario, struct f14_arena *arena)
{
	const uint64_t until = engine_now_ns() + F14_LIMIT_NS;
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

void f14_owner_stop(struct f14_arena *arena, pid_t pid)
{
	int status = -1;

	atomic_store_explicit(&arena->stop, 1, memory_order_relaxed);
	(void)waitpid(pid, &status, 0);
	scenario_check(!status, "the owner ended with status 0x%x",
		       (unsigned)status);
}

struct f14_arena *f14_arena_make(void)
{
	struct f14_arena *arena =
		mmap(NULL, sizeof(*arena), PROT_READ | PROT_WRITE,
		     MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	scenario_check(arena != MAP_FAILED, "out of memory");
	return arena;
}

/* ---- the reader ---- */

/* Until it is connected or given up. Return: its code. */
static int32_t settle(struct f14_reader *reader)
{
	const uint64_t until = engine_now_ns() + F14_LIMIT_NS;
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

int32_t f14_reader_start(struct f14_reader *reader,
			 const struct scenario *scenario,
			 const struct f14_arena *arena, const char *weights)
{
	memset(reader, 0, sizeof(*reader));
	reader->random = engine_now_ns() | 1;
	reader->handle =
		f14_handle_open(scenario, &reader->ops, weights, reader->said);
	reader->blocks = calloc(F14_PIECES, F14_CHUNK_BYTES);
	scenario_check(
		reader->blocks &&
			!reader->ops->local_add(reader->handle, reader->blocks,
						F14_CHUNK_BYTES, F14_PIECES,
						&reader->local) &&
			!reader->ops->peer_add(reader->handle, arena->address,
					       &reader->peer),
		"peer");
	return settle(reader);
}

void f14_reader_stop(struct f14_reader *reader)
{
	reader->ops->close(reader->handle);
	free(reader->blocks);
}

/* A guest's device works when its one processor is free. */
static void rest(const struct f14_reader *reader)
{
	struct pollfd ready = { .events = POLLIN };

	if (!scenario_is_remote())
		return;
	ready.fd = reader->ops->event_fd(reader->handle);
	(void)poll(&ready, 1, 100);
}

/* Waits for the record of a probe or read that was begun. */
void f14_await(struct f14_reader *reader, struct kvpull_reader_record *record)
{
	const uint64_t until = engine_now_ns() + F14_LIMIT_NS;

	while (reader->ops->poll(reader->handle, record, 1, sizeof(*record)) !=
	       1) {
		scenario_check(engine_now_ns() < until, "no end came");
		rest(reader);
	}
}

/* Return: 0, or why nothing was begun. */
int f14_probe(struct f14_reader *reader, const uint64_t *keys, uint32_t count,
	      struct kvpull_reader_place *places,
	      struct kvpull_reader_record *record)
{
	struct kvpull_reader_key own[F14_CHUNKS];
	const struct kvpull_reader_probe params = {
		.struct_size = sizeof(params),
		.peer = reader->peer,
		.key_count = count,
		.keys = own,
		.key_bytes = sizeof(own[0]),
		.places = places,
		.place_bytes = sizeof(places[0]),
	};
	uint64_t id;
	uint32_t at;
	int code;

	for (at = 0; at < count; at++)
		own[at] = (struct kvpull_reader_key){ &keys[at],
						      sizeof(keys[at]) };
	code = reader->ops->probe(reader->handle, &params, &id);
	if (code)
		return code;
	f14_await(reader, record);
	return record->code;
}

static void piece_judge(struct f14_reader *reader, uint64_t key, uint32_t block,
			int32_t code)
{
	const uint64_t *words =
		(const uint64_t *)(const void *)(reader->blocks +
						 (size_t)block *
							 F14_CHUNK_BYTES);
	const uint32_t count = F14_CHUNK_BYTES / sizeof(*words);
	uint32_t right = 0;
	uint32_t at;

	reader->tries++;
	reader->stale += code == KVPULL_ESTALE;
	if (code)
		return;
	for (at = 0; at < count; at++)
		right += words[at] == f14_word_of(key, at);
	reader->good += right == count;
	reader->wrong += right != count;
	reader->torn += right && right != count;
}

static void nap(struct f14_reader *reader)
{
	if (random_next(&reader->random) % 2)
		scenario_sleep_ns(random_next(&reader->random) %
				  F14_NAP_NS_MAX);
}

int f14_try(struct f14_reader *reader, const struct f14_arena *arena)
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
		if (arena->slots[0])
			f14_slots_key(arena, at, &keys[at]);
		else
			/* From the youngest to one that is reused soon. */
			keys[at] = newest - at * (F14_CHUNKS / ITEMS);
	code = f14_probe(reader, keys, ITEMS, places, &record);
	if (code)
		return code;
	for (at = 0; at < ITEMS; at++)
		if (places[at].chunk != KVPULL_READER_NONE &&
		    places[at].in_file == (arena->slots[0] != '\0')) {
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
	f14_await(reader, &record);
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
		.tv_nsec = (long)(random_next(&random) % F14_NAP_NS_MAX)
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

/* A slow reader finds little that is good yet: the owner waits for it. */
static void owner_paces(const struct f14_reader *reader,
			struct f14_arena *arena)
{
	const uint32_t slower =
		atomic_load_explicit(&arena->slower, memory_order_relaxed);
	const uint32_t is_fast = reader->good * GOOD_OF < reader->tries;

	if (slower + is_fast > 0 && slower < SLOWER_MAX)
		atomic_store_explicit(&arena->slower,
				      is_fast ? slower + 1 : slower - 1,
				      memory_order_relaxed);
}

static void race(const struct scenario *scenario, struct f14_reader *reader,
		 struct f14_arena *arena, uint64_t tries, uint64_t until_wrong)
{
	const pid_t pid = f14_owner_start(scenario, arena);
	const uint64_t until = engine_now_ns() + (scenario->full ? 200 : 40) *
							 SCENARIO_NS_PER_S *
							 patience();

	scenario_check(!f14_reader_start(reader, scenario, arena, "w1"),
		       "not connected");
	alarms(scenario_is_remote() ? REMOTE_ALARM_US : ALARM_US);
	/* In a guest the device reads a chunk in one go: none is torn. */
	while (reader->tries < tries &&
	       (scenario_is_remote() ? reader->wrong : reader->torn) <
		       until_wrong &&
	       engine_now_ns() < until) {
		const int code = f14_try(reader, arena);

		scenario_check(!code, "a probe or a read failed: %d", code);
		owner_paces(reader, arena);
	}
	alarms(0);
	f14_reader_stop(reader);
	f14_owner_stop(arena, pid);
	scenario_say(
		"%llu pieces, %llu good, %llu stale, %llu wrong (%llu torn)",
		(unsigned long long)reader->tries,
		(unsigned long long)reader->good,
		(unsigned long long)reader->stale,
		(unsigned long long)reader->wrong,
		(unsigned long long)reader->torn);
}

static void reuse(const struct scenario *scenario, struct f14_arena *arena)
{
	const uint64_t tries = scenario->full       ? FULL_TRIES :
			       scenario_is_remote() ? REMOTE_TRIES :
						      QUICK_TRIES;
	struct f14_reader reader;

	race(scenario, &reader, arena, tries, UINT64_MAX);
	scenario_check(!reader.wrong, "wrong bytes were believed");
	scenario_check(reader.tries >= tries, "too few tries in the time");
	/* A count and not a share: a slow machine reads few in time. */
	scenario_check(reader.good >= SEEN_MIN, "too few were good");
	scenario_check(reader.stale >= SEEN_MIN, "too few were stale");
}

SCENARIO_RUN(f14_reuse, reuse(scenario, f14_arena_make()))

static void f14_reuse_file(const struct scenario *scenario)
{
	struct f14_arena *arena = f14_arena_of_file();

	reuse(scenario, arena);
	(void)unlink(arena->path);
}

/* The file of slots is opened with O_DIRECT, if it can be. */
static void f14_reuse_slots(const struct scenario *scenario)
{
	reuse(scenario, f14_arena_of_slots("/var/tmp"));
}

static void f14_slots_unchecked(const struct scenario *scenario)
{
	struct f14_reader reader;

	mutant_use("noguard", "plugin/reads/judge.c", "s/KVPULL_ESTALE/0/");
	race(scenario, &reader, f14_arena_of_slots("/var/tmp"), QUICK_TRIES, 1);
	scenario_check(reader.wrong > 0,
		       "no wrong bytes: the check is not tested");
}

static void f14_unchecked(const struct scenario *scenario)
{
	struct f14_stall_counts counts;
	struct f14_reader reader;

	mutant_use("noguard", "plugin/reads/judge.c", "s/KVPULL_ESTALE/0/");
	race(scenario, &reader, f14_arena_make(), QUICK_TRIES,
	     scenario->full ? 10 : 1);
	scenario_check(reader.wrong > 0,
		       "no wrong bytes: the check is not tested");
	/* A check before the read would believe a torn one. */
	scenario_check(reader.torn > 0 || !scenario->full ||
			       scenario_is_remote(),
		       "no torn reads: the race is not tested");
	/* Another owner would be forked from a device that is open. */
	if (scenario_is_remote())
		return;
	scenario_say("; ");
	f14_stalls(scenario, QUICK_STALLS / 10, 20 * SCENARIO_NS_PER_S,
		   &counts);
	scenario_check(counts.wrong > 0 &&
			       counts.believed >
				       counts.uncopied + counts.in_part,
		       "stalls before and after a copy are not tested");
}

static void f14_stalled(const struct scenario *scenario)
{
	const uint64_t wanted = scenario_is_remote() ? REMOTE_STALLS :
				scenario->full       ? FULL_STALLS :
						       QUICK_STALLS;
	struct f14_stall_counts counts;

	f14_stalls(scenario, wanted,
		   (scenario->full ? 270 : 50) * SCENARIO_NS_PER_S, &counts);
	scenario_check(!counts.wrong && !counts.believed,
		       "what was reused is believed");
	scenario_check(counts.stalls >= wanted, "too few stalls in the time");
	/* In a guest each piece is reused before it is copied: F14a has the good. */
	scenario_check(counts.uncopied >= wanted && (scenario_is_remote() ||
						     (counts.good >= wanted &&
						      counts.copied >= wanted)),
		       "too few pieces of a kind");
	scenario_check(!scenario_is_remote() || counts.uncopied >= REMOTE_TRIES,
		       "too few pieces that were reused in a stall");
}

/* The reader sleeps when the last byte has come, and before it asks for guards. */
static void f14_before_the_check(const struct scenario *scenario)
{
	mutant_use("slowguard", "plugin/reads/reads.c",
		   "s/request->state = request->phases\\[request->phase++\\];/&"
		   "if (request->state == KVPULL_READS_GUARDS) "
		   "{extern int usleep(unsigned); (void)usleep(2000);}/");
	reuse(scenario, f14_arena_make());
}

static void killed_round(const struct scenario *scenario,
			 struct f14_arena *arena)
{
	const pid_t pid = f14_owner_start(scenario, arena);
	struct f14_reader reader;
	uint64_t killed_ns = 0;
	int code = 0;

	scenario_check(!f14_reader_start(&reader, scenario, arena, "w1"),
		       "not connected");
	while (!code || code == KVPULL_EAGAIN || !killed_ns) {
		if (!killed_ns && reader.good >= 4 * ITEMS) {
			(void)kill(pid, SIGKILL);
			killed_ns = engine_now_ns();
		}
		scenario_check(!killed_ns || engine_now_ns() - killed_ns <
						     F14_LIMIT_NS,
			       "a dead owner is asked on");
		code = f14_try(&reader, arena);
		if (code == KVPULL_EAGAIN)
			(void)settle(&reader);
	}
	killed_ns = engine_now_ns() - killed_ns;
	scenario_check(code == KVPULL_EPEER, "ended with %d", code);
	scenario_check(!reader.wrong, "wrong bytes were believed");
	f14_reader_stop(&reader);
	(void)waitpid(pid, NULL, 0);
	arena->good += reader.good;
	if (killed_ns > arena->longest_ns)
		arena->longest_ns = killed_ns;
	_exit(0);
}

/*
 * The owner is killed at any moment: the reader gets an error in time, and then
 * meets another owner. Rounds are processes: a device that was open before a
 * fork is of no use in the next owner.
 */
static void f14_killed(const struct scenario *scenario)
{
	const uint32_t rounds = scenario->full ? 50 : 5;
	struct f14_arena *arena = f14_arena_make();
	uint32_t round;

	for (round = 0; round < rounds; round++) {
		const pid_t pid = fork();
		int status = -1;

		scenario_check(pid >= 0, "fork");
		if (!pid)
			killed_round(scenario, arena);
		(void)waitpid(pid, &status, 0);
		scenario_check(!status, "a round ended with status 0x%x",
			       (unsigned)status);
	}
	scenario_say(
		"%u kills, %llu good pieces, given up in %llu ms at most",
		rounds, (unsigned long long)arena->good,
		(unsigned long long)(arena->longest_ns / SCENARIO_NS_PER_MS));
}

static void f14_namespace(const struct scenario *scenario)
{
	struct f14_arena *arena = f14_arena_make();
	const pid_t pid = f14_owner_start(scenario, arena);
	struct f14_reader reader;

	scenario_check(f14_reader_start(&reader, scenario, arena, "w2") ==
			       KVPULL_EREJECTED,
		       "other weights are not refused");
	f14_reader_stop(&reader);
	f14_owner_stop(arena, pid);
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
	{ "F14e",
	  "nothing is believed that was reused in a stall before or after its copy",
	  f14_stalled, 90, 300 },
	{ "F14f", "as F14a, of chunks that are a file of the owner's own",
	  f14_reuse_file, 60, 300 },
	{ "F14g", "a file has one owner, and who shortens it ends no reader",
	  f14_shortened, 20, 20 },
	{ "F14h",
	  "what a successor writes in a killed owner's file is not believed",
	  f14_successor, 60, 300 },
	{ "F14i", "as F14a, of slots in a file that are reused",
	  f14_reuse_slots, 60, 300 },
	{ "F14j", "slots without a look at guards are wrong bytes",
	  f14_slots_unchecked, 120, 300 },
	{ "F14k", "as F14a, with a stall between copy and check in each read",
	  f14_before_the_check, 120, 300 },
	{ "F14l", "a reader waits for a full owner until there is room",
	  f14_full, 20, 20 },
	{ "F14m",
	  "an owner of more memory than the node has is refused by name",
	  f14_sparse, 20, 20 },
	{ 0 },
};
