/* SPDX-License-Identifier: Apache-2.0 */
/*
 * X3: blocks of P in an unnamed file, which D reads from the disk.
 *
 * P's engine is the model engine over a library whose memory_alloc() and
 * regions_register() are replaced: the last groups' blocks are a shared mapping
 * of a file, and that file is the region. So P writes its blocks as ever, and
 * overwrites them the moment they come back.
 */
#undef _FORTIFY_SOURCE /* whose pread() is inline, and cannot be replaced */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "tests/scenario/logs.h"
#include "tests/scenario/node.h"
#include "tests/scenario/sandbox.h"

#define LIMIT_NS (20 * SCENARIO_NS_PER_S)
#define BLOCK_BYTES 16384u
#define POOL_BLOCKS 384u /* a group */
#define LAYERS 2u        /* a group */
#define BLOCKS_MAX 64u
#define LARGE_BLOCKS 320u /* 10 MiB of a group: some milliseconds */
#define FILE_OFFSET 12288u

struct x3_setup {
	const char *config;
	uint32_t file_only;
	uint32_t spin;
	void (*before_open)(void); /* D */
	const char *log;           /* what D's log says */
	uint32_t disk_hangs;       /* 1: none of D's reads comes back */
	uint32_t no_files;         /* 1: D reads none */
};

struct pair {
	const struct scenario *scenario;
	const struct x3_setup *setup;
	struct node p, d;
	uint64_t seed;
};

/* ---- P's library ---- */

static struct {
	const struct kvpull_connector_ops *real;
	struct kvpull_connector_ops ops;
	struct kvpull_worker_ops worker;
	uint64_t memory_bytes; /* before the file's */
	uint64_t file_bytes;
	uint32_t file_only;
	int fd;
} spill;

static int spill_file(void)
{
	const char *folder = getenv("TMPDIR");
	char path[] = "/tmp/kvpull-spill-XXXXXX";
	int fd = open(folder ? folder : "/tmp",
		      O_TMPFILE | O_EXCL | O_RDWR | O_CLOEXEC, 0600);

	if (fd >= 0)
		return fd;
	/* A file system without O_TMPFILE. */
	fd = mkstemp(path);
	if (fd >= 0)
		(void)unlink(path);
	return fd;
}

/* The provider's memory; its second half is the file's. */
static int spill_alloc(struct kvpull_worker *worker, uint64_t bytes,
		       uint32_t flags, struct kvpull_memory *memory)
{
	int code;

	(void)flags;
	code = spill.real->worker->memory_alloc(worker, bytes, 0, memory);
	if (code)
		return code;
	spill.memory_bytes = spill.file_only ? 0 : bytes / 2;
	spill.file_bytes = bytes - spill.memory_bytes;
	spill.fd = spill_file();
	if (spill.fd < 0 ||
	    ftruncate(spill.fd, (off_t)(FILE_OFFSET + spill.file_bytes)) ||
	    mmap((uint8_t *)memory->base + spill.memory_bytes, spill.file_bytes,
		 PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, spill.fd,
		 FILE_OFFSET) == MAP_FAILED) {
		fprintf(stderr, "spill file: %s\n", strerror(errno));
		return KVPULL_ENOMEM;
	}
	return 0;
}

static int spill_register(struct kvpull_worker *worker,
			  const struct kvpull_regions *given,
			  struct kvpull_error_detail *detail)
{
	struct kvpull_cache caches[KVPULL_GROUPS_MAX];
	struct kvpull_region both[2] = { given->regions[0] };
	struct kvpull_regions regions = *given;
	uint32_t group;

	both[1] = (struct kvpull_region){
		.struct_size = sizeof(both[1]),
		.kind = KVPULL_REGION_FILE,
		.fd = spill.fd,
		.fd_offset = FILE_OFFSET,
		.bytes = spill.file_bytes,
	};
	for (group = 0; group < given->cache_count; group++) {
		caches[group] = given->caches[group];
		if (caches[group].offset < spill.memory_bytes)
			continue;
		caches[group].offset -= spill.memory_bytes;
		caches[group].region_index = spill.file_only ? 0 : 1;
	}
	regions.regions = spill.file_only ? &both[1] : both;
	regions.region_count = spill.file_only ? 1 : 2;
	regions.caches = caches;
	return spill.real->worker->regions_register(worker, &regions, detail);
}

static const struct kvpull_connector_ops *library_spill(uint32_t file_only)
{
	spill.real = engine_library();
	if (!spill.real)
		return NULL;
	spill.file_only = file_only;
	spill.worker = *spill.real->worker;
	spill.worker.memory_alloc = spill_alloc;
	spill.worker.regions_register = spill_register;
	spill.ops = *spill.real;
	spill.ops.worker = &spill.worker;
	return &spill.ops;
}

static const struct kvpull_connector_ops *library_mixed(void)
{
	return library_spill(0);
}

static const struct kvpull_connector_ops *library_file_only(void)
{
	return library_spill(1);
}

/* ---- D's disk and library, where the disk hangs ---- */

static _Atomic uint32_t hangs; /* 1: pread() of unnamed files does not return */
static struct kvpull_scheduler_ops unloading;

/* In the place of libc's, for the library, too. */
__attribute__((visibility("default"))) ssize_t
pread(int fd, void *bytes, size_t byte_count, off_t offset)
{
	const struct iovec part = { .iov_base = bytes, .iov_len = byte_count };
	struct stat file;

	while (!fstat(fd, &file) && !file.st_nlink &&
	       atomic_load_explicit(&hangs, memory_order_acquire))
		(void)poll(NULL, 0, 1);
	return preadv(fd, &part, 1, offset);
}

/* There, as of many file systems: they do not say how to align. */
__attribute__((visibility("default"))) int statx(int folder, const char *path,
						 int flags, unsigned int mask,
						 struct statx *status)
{
	return (int)syscall(SYS_statx, folder, path, flags,
			    atomic_load_explicit(&hangs, memory_order_acquire) ?
				    mask & ~STATX_DIOALIGN :
				    mask,
			    status);
}

static void disk_hangs(void)
{
	atomic_store_explicit(&hangs, 1, memory_order_release);
}

/*
 * The last call of an engine: then it unloads the library, and only after that
 * the disk goes on. Who hung in it has to find its code.
 */
static void close_and_unload(struct kvpull_scheduler *scheduler)
{
	const struct kvpull_connector_ops *ops = spill.real;
	void *library;
	uint32_t turn;
	Dl_info info;

	ops->scheduler->close(scheduler);
	if (!dladdr(ops, &info))
		abort();
	/* More often than it was opened: what is to stay takes no count. */
	for (turn = 0; turn < 8; turn++) {
		library = dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD);
		if (!library || dlclose(library) || dlclose(library))
			break;
	}
	atomic_store_explicit(&hangs, 0, memory_order_release);
	scenario_sleep_ns(100 * SCENARIO_NS_PER_MS);
}

static const struct kvpull_connector_ops *library_unloading(void)
{
	spill.real = engine_library();
	if (!spill.real)
		return NULL;
	unloading = *spill.real->scheduler;
	unloading.close = close_and_unload;
	spill.ops = *spill.real;
	spill.ops.scheduler = &unloading;
	return &spill.ops;
}

/* ---- the pair ---- */

static void side_open(struct pair *pair, struct node *node, const char *id)
{
	const struct x3_setup *setup = pair->setup;
	const uint32_t is_producer = *id == 'p';
	const uint32_t groups = setup->file_only ? 1 : 2;
	const struct node_params params = {
		.scenario = pair->scenario,
		.id = id,
		.config = setup->config,
		.shape = { .block_bytes = BLOCK_BYTES,
			   .block_count = POOL_BLOCKS * groups,
			   .layer_count = LAYERS * groups,
			   .group_count = groups,
			   .block_tokens = 16 },
		.tp_size = 1,
		.spin = setup->spin,
		.scribble = is_producer,
		.before_open = is_producer ? NULL : setup->before_open,
		.log_path = log_path(id),
		.library = is_producer ? (setup->file_only ? library_file_only :
							     library_mixed) :
			   setup->disk_hangs && *id == 'c' ? library_unloading :
							     NULL,
	};

	node_open(node, &params);
}

static void pair_open(struct pair *pair, const struct scenario *scenario,
		      const struct x3_setup *setup)
{
	*pair = (struct pair){ .scenario = scenario, .setup = setup };
	logs_open(scenario);
	side_open(pair, &pair->p, "producer");
	side_open(pair, &pair->d, "consumer");
}

static void pair_close(struct pair *pair)
{
	node_check_empty(&pair->p);
	node_check_empty(&pair->d);
	if (!pair->setup->no_files)
		log_has("consumer", "a peer's file is read with");
	if (pair->setup->log)
		log_has("consumer", pair->setup->log);
	node_close(&pair->d);
	node_close(&pair->p);
}

/* From prefill to the hold's end; every byte compared. */
static uint64_t works_from(struct pair *pair, struct node *p, uint32_t blocks)
{
	static struct node_message message;
	struct node_message event;
	uint64_t held;

	node_prefill(p, &message, blocks, pair->seed += 1000003);
	held = message.key;
	node_await(&pair->d, node_pull(&pair->d, &message), &event, LIMIT_NS);
	scenario_check(event.kind == KVPULL_POLL_LOADED, "a pull: error %d",
		       event.reason);
	scenario_check(!event.wrong, "%llu wrong bytes",
		       (unsigned long long)event.wrong);
	node_await(p, held, &message, LIMIT_NS);
	scenario_check(message.reason == KVPULL_END_RELEASED,
		       "a hold ended by %d", message.reason);
	return event.bytes;
}

static uint64_t works(struct pair *pair, uint32_t blocks)
{
	return works_from(pair, &pair->p, blocks);
}

static void pulls_run(const struct scenario *scenario,
		      const struct x3_setup *setup)
{
	const uint32_t rounds = scenario->full ? 200 : 8;
	static struct pair pair;
	uint64_t random = 7;
	uint64_t bytes = 0;
	uint32_t round;

	pair_open(&pair, scenario, setup);
	for (round = 0; round < rounds; round++)
		bytes += works(&pair, 1 + (uint32_t)(random_next(&random) %
						     BLOCKS_MAX));
	bytes += works(&pair, LARGE_BLOCKS);
	pair_close(&pair);
	scenario_say("%u pulls, %llu KiB equal", rounds + 1,
		     (unsigned long long)(bytes / 1024));
}

static void x3_mixed(const struct scenario *scenario)
{
	const struct x3_setup setup = { .config = "" };

	pulls_run(scenario, &setup);
}

static void x3_file(const struct scenario *scenario)
{
	const struct x3_setup setup = { .config = "", .file_only = 1 };

	pulls_run(scenario, &setup);
}

static void x3_caller(const struct scenario *scenario)
{
	const struct x3_setup setup = {
		.config = "\"progress\":\"caller\",\"copy_threads\":0",
		.spin = 1,
	};

	pulls_run(scenario, &setup);
}

static void x3_sleeping_caller(const struct scenario *scenario)
{
	const struct x3_setup setup = { .config = "\"progress\":\"caller\"",
					.file_only = 1 };

	pulls_run(scenario, &setup);
}

static void x3_switched_off(const struct scenario *scenario)
{
	const struct x3_setup setup = { .config = "\"uring\":\"no\"",
					.log = "no io_uring: switched off" };

	pulls_run(scenario, &setup);
}

static void x3_eperm(const struct scenario *scenario)
{
	const struct x3_setup setup = {
		.config = "",
		.before_open = sandbox_uring_eperm,
		.log = "no io_uring: Operation not permitted",
	};

	pulls_run(scenario, &setup);
}

static void x3_enosys(const struct scenario *scenario)
{
	const struct x3_setup setup = {
		.config = "",
		.before_open = sandbox_uring_enosys,
		.log = "no io_uring: Function not implemented",
	};

	pulls_run(scenario, &setup);
}

/* D's one thread may wait for no disk. */
static void x3_caller_refused(const struct scenario *scenario)
{
	const struct x3_setup setup = {
		.config = "\"progress\":\"caller\",\"copy_threads\":0,"
			  "\"lease_ms\":1000",
		.spin = 1,
		.before_open = sandbox_uring_eperm,
		.log = "progress caller needs io_uring",
		.no_files = 1,
	};
	static struct node_message message;
	struct node_message event;
	struct node other;
	struct pair pair;
	uint64_t bytes = 0;
	uint64_t held;
	uint32_t round;

	pair_open(&pair, scenario, &setup);
	side_open(&pair, &other, "other"); /* all of its blocks are memory */
	for (round = 0; round < 3; round++) {
		node_prefill(&pair.p, &message, BLOCKS_MAX, pair.seed++);
		held = message.key;
		node_await(&pair.d, node_pull(&pair.d, &message), &event,
			   LIMIT_NS);
		scenario_check(event.kind == KVPULL_POLL_FAILED &&
				       event.reason == KVPULL_EUNSUPPORTED,
			       "a pull ended as %u, error %d", event.kind,
			       event.reason);
		/* Who reads nothing of P has no ring there: its lease ends it. */
		node_await(&pair.p, held, &event, LIMIT_NS);
		scenario_check(event.reason == KVPULL_END_EXPIRED,
			       "a hold ended by %d", event.reason);
		bytes += works_from(&pair, &other, BLOCKS_MAX);
	}
	pair_close(&pair);
	node_check_empty(&other);
	node_close(&other);
	scenario_say("%u refused, %llu KiB equal", round, bytes / 1024ull);
}

/* D can read P's file, and has what a container gives it. */
static void x3_another_uid(const struct scenario *scenario)
{
	const struct x3_setup setup = {
		.config = "\"uids\":[0,65534]",
		.before_open = sandbox_nobody,
	};

	if (geteuid())
		scenario_refuse("users other than our own need root");
	scenario_check(!chmod(scenario->folder, 01777), "chmod");
	pulls_run(scenario, &setup);
}

/* ---- ends in the middle ---- */

/* How long after a pull's command its middle is; found by trying. */
struct moment {
	uint64_t delay_ns;
	uint32_t early; /* it was too early or just right: the pull failed */
	uint32_t late;  /* the pull was over */
};

static void moment_learn(struct moment *moment, uint32_t was_late)
{
	moment->early += !was_late;
	moment->late += was_late;
	moment->delay_ns =
		was_late ? moment->delay_ns / 2 :
			   moment->delay_ns + moment->delay_ns / 4 + 100000;
}

/* Some rounds; more while the machine is too slow to meet the middle. */
static int moment_goes_on(const struct moment *moment, uint32_t rounds)
{
	const uint32_t done = moment->early + moment->late;

	return done < rounds || (!moment->early && done < rounds * 20);
}

/* A large pull that something is about to happen to. */
static uint64_t large_start(struct pair *pair, struct node_message *message)
{
	node_prefill(&pair->p, message, LARGE_BLOCKS, pair->seed += 1000003);
	return node_pull(&pair->d, message);
}

/* What became of it: right, or that error. */
static void large_end(struct pair *pair, uint64_t key, int32_t reason,
		      struct moment *moment)
{
	struct node_message event;

	node_await(&pair->d, key, &event, LIMIT_NS);
	scenario_check(
		event.kind == KVPULL_POLL_LOADED || event.reason == reason,
		"a pull ended as %u, error %d", event.kind, event.reason);
	scenario_check(!event.wrong, "%llu wrong bytes were believed",
		       (unsigned long long)event.wrong);
	moment_learn(moment, event.kind == KVPULL_POLL_LOADED);
}

static void moment_check(const struct moment *moment)
{
	scenario_check(moment->early, "no pull was cut short: %u were over",
		       moment->late);
	scenario_say("%u pulls cut short, %u over before", moment->early,
		     moment->late);
}

static void x3_revoked(const struct scenario *scenario)
{
	const uint32_t rounds = scenario->full ? 200 : 8;
	const struct x3_setup setup = { .config = "" };
	static struct node_message message;
	struct moment moment = { .delay_ns = 1000000 };
	static struct pair pair;

	pair_open(&pair, scenario, &setup);
	(void)works(&pair, 1);
	while (moment_goes_on(&moment, rounds)) {
		const uint64_t key = large_start(&pair, &message);
		struct node_message revoke = { .op = NODE_REVOKE };

		scenario_sleep_ns(moment.delay_ns);
		/* P overwrites them all at once. */
		node_call(&pair.p, &revoke);
		node_await(&pair.p, message.key, &revoke, LIMIT_NS);
		large_end(&pair, key, KVPULL_EEXPIRED, &moment);
	}
	(void)works(&pair, BLOCKS_MAX);
	pair_close(&pair);
	moment_check(&moment);
}

/* The same by time: hold_max ends the hold, though D lives. */
static void x3_expired(const struct scenario *scenario)
{
	const uint32_t rounds = scenario->full ? 100 : 6;
	const struct x3_setup setup = {
		.config = "\"lease_ms\":40,\"hold_max_ms\":40,"
			  "\"deadline_ms\":5000",
		.file_only = 1,
	};
	static struct node_message message;
	struct moment moment = { .delay_ns = 30000000 };
	static struct pair pair;
	uint32_t round = 0;

	pair_open(&pair, scenario, &setup);
	while (moment_goes_on(&moment, rounds)) {
		uint64_t held;

		node_prefill(&pair.p, &message, LARGE_BLOCKS,
			     pair.seed += 1000003);
		held = message.key;
		scenario_sleep_ns(moment.delay_ns);
		large_end(&pair, node_pull(&pair.d, &message), KVPULL_EEXPIRED,
			  &moment);
		node_await(&pair.p, held, &message, LIMIT_NS);
		/* An early start is a late end. */
		moment.delay_ns = 10000000 + ++round % 4 * 8000000;
	}
	pair_close(&pair);
	moment_check(&moment);
}

static void x3_aborted(const struct scenario *scenario)
{
	const uint32_t rounds = scenario->full ? 200 : 8;
	const struct x3_setup setup = { .config = "" };
	static struct node_message message;
	struct moment moment = { .delay_ns = 1000000 };
	static struct pair pair;
	uint32_t none = 0;

	pair_open(&pair, scenario, &setup);
	while (moment_goes_on(&moment, rounds)) {
		const uint64_t key = large_start(&pair, &message);
		struct node_message abort = { .op = NODE_ABORT, .key = key };

		scenario_sleep_ns(moment.delay_ns);
		node_call(&pair.d, &abort);
		/* A busy machine has not begun the pull yet. */
		if (abort.kind == NODE_EVENT_NOTHING) {
			scenario_check(++none < 1000, "no pull begins");
			moment.delay_ns += 100000;
		} else {
			large_end(&pair, key, KVPULL_EABORTED, &moment);
		}
		node_await(&pair.p, message.key, &abort, LIMIT_NS);
	}
	(void)works(&pair, BLOCKS_MAX);
	pair_close(&pair);
	moment_check(&moment);
}

static void x3_killed(const struct scenario *scenario)
{
	const uint32_t rounds = scenario->full ? 50 : 3;
	const struct x3_setup setup = { .config = "" };
	static struct node_message message;
	struct moment moment = { .delay_ns = 500000 };
	struct node_stats before, after;
	static struct pair pair;

	pair_open(&pair, scenario, &setup);
	(void)works(&pair, 1);
	node_stats_get(&pair.d, &before);
	while (moment_goes_on(&moment, rounds)) {
		const uint64_t key = large_start(&pair, &message);

		scenario_sleep_ns(moment.delay_ns);
		node_kill(&pair.p);
		large_end(&pair, key, KVPULL_EPEER, &moment);
		side_open(&pair, &pair.p, "producer");
		(void)works(&pair, BLOCKS_MAX);
	}
	node_stats_get(&pair.d, &after);
	scenario_check(after.fds == before.fds && after.maps == before.maps,
		       "%u descriptors, %u before; %u mappings, %u before",
		       after.fds, before.fds, after.maps, before.maps);
	pair_close(&pair);
	moment_check(&moment);
}

/*
 * Semantics E.2, E.4 and B.8: D beats on, so that P's hold outlives its lease;
 * what it has from others is pulled; the pull ends at its deadline and D's close
 * in its time; and what still hangs there harms nobody.
 */
static void x3_hangs(const struct scenario *scenario)
{
	const struct x3_setup setup = {
		.config = "\"uring\":\"no\",\"lease_ms\":1000,"
			  "\"deadline_ms\":3000",
		.before_open = disk_hangs,
		.disk_hangs = 1,
	};
	static struct node_message message, event;
	static struct pair pair;
	static struct node other;
	struct node_stats stats;
	uint64_t held, hanging, others, start_ns, took_ns;

	pair_open(&pair, scenario, &setup);
	side_open(&pair, &other, "other"); /* all of its blocks are memory */
	node_prefill(&pair.p, &message, BLOCKS_MAX, 1);
	held = message.key;
	start_ns = engine_now_ns();
	hanging = node_pull(&pair.d, &message);
	for (others = 0; engine_now_ns() - start_ns < 2 * SCENARIO_NS_PER_S;
	     others++)
		(void)works_from(&pair, &other, BLOCKS_MAX);
	node_stats_get(&pair.p, &stats);
	scenario_check(stats.ranks[0].holds_live == 1 &&
			       !stats.ranks[0].holds_expired,
		       "the hold ended while D lived");
	node_await(&pair.d, hanging, &event, LIMIT_NS);
	took_ns = engine_now_ns() - start_ns;
	scenario_check(event.kind == KVPULL_POLL_FAILED &&
			       event.reason == KVPULL_EDEADLINE,
		       "a pull that hangs ended as %u, error %d", event.kind,
		       event.reason);
	scenario_check(took_ns <= (3000 + 500 * scenario->patience) *
					  SCENARIO_NS_PER_MS,
		       "only after %llu ms",
		       (unsigned long long)(took_ns / SCENARIO_NS_PER_MS));
	node_await(&pair.p, held, &event, LIMIT_NS);
	scenario_check(event.reason == KVPULL_END_RELEASED,
		       "a hold ended by %d", event.reason);
	start_ns = engine_now_ns();
	pair_close(&pair);
	took_ns = engine_now_ns() - start_ns;
	scenario_check(took_ns <= 3 * scenario->patience * SCENARIO_NS_PER_S,
		       "it closed in %llu ms",
		       (unsigned long long)(took_ns / SCENARIO_NS_PER_MS));
	node_check_empty(&other);
	node_close(&other);
	log_has("consumer", "reads are still under way");
	scenario_say("%llu other pulls in 2 s, closed after %llu ms",
		     (unsigned long long)others,
		     (unsigned long long)(took_ns / SCENARIO_NS_PER_MS));
}

const struct scenario_case scenario_x3[] = {
	{ "X3a", "memory and file come in one pull, bytes equal", x3_mixed, 30,
	  120 },
	{ "X3b", "a producer with a file alone", x3_file, 30, 120 },
	{ "X3c", "memory and file with progress=caller", x3_caller, 30, 120 },
	{ "X3d", "a file wakes a caller that sleeps", x3_sleeping_caller, 30,
	  120 },
	{ "X3e", "with uring=no files are read by pread", x3_switched_off, 30,
	  120 },
	{ "X3f", "io_uring forbidden with EPERM: pread, and the log says why",
	  x3_eperm, 30, 120 },
	{ "X3g", "io_uring forbidden with ENOSYS: pread, and the log says why",
	  x3_enosys, 30, 120 },
	{ "X3h", "hold revoked and blocks overwritten while D reads: EEXPIRED",
	  x3_revoked, 30, 300 },
	{ "X3i", "hold expired while D reads: EEXPIRED", x3_expired, 30, 120 },
	{ "X3j", "pull aborted while it reads: told once, files go on",
	  x3_aborted, 30, 300 },
	{ "X3k", "P killed while D reads its file: EPEER; P comes back",
	  x3_killed, 60, 300 },
	{ "X3l", "a consumer of another uid, without rights, 8 MiB of memlock",
	  x3_another_uid, 30, 120 },
	{ "X3m", "a disk that hangs for ever stops nothing but its pull",
	  x3_hangs, 30, 30 },
	{ "X3n", "files are refused by name where D may not wait for them",
	  x3_caller_refused, 30, 30 },
	{ 0 },
};
