// SPDX-License-Identifier: Apache-2.0
/*
 * Readers of a pool whose owner is another process, stopped by a signal all the
 * while: what a probe of 100 keys takes, what reads cost beside plain copies of
 * the same memory, and that four readers at once have it run not once.
 */
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shm/copy.h"
#include "shm/segment.h"
#include "tests/bench/pool_handle.h"

#define REGION_BYTES (UINT64_C(512) << 20)
#define PROBE_CHUNKS 32768u
#define PROBE_BYTES 4096u
#define PROBE_KEYS 100u
#define PROBES 400u /* a repetition */
#define PIECES_MAX 1024u
#define READ_PIECES 250u /* of one read; as many reads as it takes at once */
#define ROUTINES_MAX 24u
#define GLIBC ROUTINES_MAX
#define PULL (GLIBC + 1)
#define WAYS (PULL + 1)
/* So many rounds of all ways, and then of those near the best. */
#define ROUNDS_ALL 2u /* a repetition */
#define ROUNDS_NEAR 8u
#define NEAR 1.05 /* times the best median */
#define READERS 4u
#define READS_EACH 40u
#define LIMIT_NS (20 * KVPULL_NS_PER_S)

/* Shared with the owner, and with the four readers. */
struct mail {
	_Atomic uint32_t is_up;
	_Atomic uint32_t stop;
	_Atomic uint32_t ready; /* readers */
	_Atomic uint32_t go;
	int memory_fd; /* in the owner's process */
	uint64_t memory_bytes;
	char address[512];
};

struct node {
	const struct bench *bench;
	const struct kvpull_reader_ops *ops;
	struct mail *mail;
	pid_t owner;
	uint32_t chunk_bytes;
	uint32_t chunk_count;
	/* The reader. */
	struct kvpull_reader *handle;
	uint8_t *from; /* the owner's chunks, for plain copies */
	uint8_t *to;
	uint32_t peer;
	uint32_t local;
	uint64_t incarnation;
	uint32_t ids[2][PIECES_MAX];
	struct kvpull_span spans[PIECES_MAX];
	struct kvpull_reader_place places[PIECES_MAX];
	struct samples took[WAYS];
	uint32_t is_out[WAYS]; /* far behind the best after the first rounds */
	uint32_t wrong;
};

/* ---- the owner: chunk c has the key c ---- */

static int chunks_put(const struct node *node, struct kvpull_reader *owner,
		      uint8_t *base)
{
	struct kvpull_reader_put put = { .struct_size = sizeof(put) };
	uint64_t key;
	int code = node->ops->epoch(owner, &put.epoch);

	for (key = 0; !code && key < node->chunk_count; key++) {
		memset(base + key * node->chunk_bytes, (int)key + 1,
		       node->chunk_bytes);
		put.key = (struct kvpull_reader_key){ &key, sizeof(key) };
		put.chunk = (uint32_t)key;
		code = node->ops->generation(owner, put.chunk, &put.generation);
		if (!code)
			code = node->ops->put(owner, &put);
		/* A key in thousands may find no entry: it is missed. */
		if (code == KVPULL_EFULL)
			code = 0;
	}
	return code;
}

static int owner_main(const struct node *node)
{
	const struct kvpull_reader_share share = {
		.struct_size = sizeof(share),
		.chunk_bytes = node->chunk_bytes,
		.chunk_count = node->chunk_count,
		.flags = KVPULL_MEMORY_HUGE,
	};
	struct kvpull_memory memory = { .struct_size = sizeof(memory) };
	struct kvpull_reader *owner = pool_handle_open(node->bench);
	struct kvpull_reader_record record;
	struct mail *mail = node->mail;
	size_t byte_count;
	struct pollfd wait = { .events = POLLIN };

	if (!owner || node->ops->share(owner, &share, &memory, NULL) ||
	    node->ops->address(owner, mail->address, sizeof(mail->address),
			       &byte_count) ||
	    chunks_put(node, owner, memory.base))
		return 1;
	mail->memory_fd = memory.fd;
	mail->memory_bytes = memory.bytes;
	wait.fd = node->ops->event_fd(owner);
	/* Pairs with the acquire in owner_start(). */
	atomic_store_explicit(&mail->is_up, 1, memory_order_release);
	while (!atomic_load_explicit(&mail->stop, memory_order_relaxed)) {
		(void)node->ops->poll(owner, NULL, 0, sizeof(record));
		(void)poll(&wait, 1, 10);
	}
	node->ops->close(owner);
	return 0;
}

static int owner_start(struct node *node)
{
	const uint64_t until_ns = kvpull_clock_ns() + LIMIT_NS;

	node->owner = fork();
	if (!node->owner) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		_exit(owner_main(node));
	}
	/* Pairs with the release in owner_main(). */
	while (node->owner > 0 && !atomic_load_explicit(&node->mail->is_up,
							memory_order_acquire)) {
		if (waitpid(node->owner, NULL, WNOHANG) ||
		    kvpull_clock_ns() > until_ns)
			return -1;
		(void)poll(NULL, 0, 1);
	}
	return node->owner > 0 ? 0 : -1;
}

/* How often it was taken from a processor: no system call is made without. */
static double owner_runs(const struct node *node)
{
	unsigned long long voluntary = 0;
	unsigned long long other = 0;
	char path[64];
	char line[256];
	FILE *file;

	(void)snprintf(path, sizeof(path), "/proc/%d/status", node->owner);
	file = fopen(path, "re");
	while (file && fgets(line, sizeof(line), file)) {
		(void)sscanf(line, "voluntary_ctxt_switches: %llu", &voluntary);
		(void)sscanf(line, "nonvoluntary_ctxt_switches: %llu", &other);
	}
	if (file)
		(void)fclose(file);
	return (double)(voluntary + other);
}

static void owner_halt(const struct node *node)
{
	(void)kill(node->owner, SIGSTOP);
	(void)waitpid(node->owner, NULL, WUNTRACED);
}

/* ---- a reader ---- */

static int reader_open(struct node *node)
{
	const uint64_t bytes = (uint64_t)node->chunk_bytes * node->chunk_count;

	node->handle = pool_handle_open(node->bench);
	node->to = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (!node->handle || node->to == MAP_FAILED)
		return KVPULL_ENOMEM;
	(void)madvise(node->to, bytes, MADV_HUGEPAGE);
	(void)madvise(node->to, bytes, MADV_POPULATE_WRITE);
	return node->ops->local_add(node->handle, node->to, node->chunk_bytes,
				    node->chunk_count, &node->local) ||
	       pool_handle_connect(node->handle, node->mail->address,
				   kvpull_clock_ns() + LIMIT_NS, &node->peer);
}

/* Until so many probes and reads have ended; 0 or the code of one. */
static int ends_wait(struct node *node, uint32_t count)
{
	struct kvpull_reader_record record;
	int code = 0;

	while (count) {
		const int came = node->ops->poll(node->handle, &record, 1,
						 sizeof(record));

		if (came < 0)
			return came;
		count -= (uint32_t)came;
		if (came && record.code)
			code = record.code;
		if (came)
			node->incarnation = record.incarnation;
	}
	return code;
}

/* Where ids[0] lie: a probe for each 256 of them. 0 or an error. */
static int probe(struct node *node, uint32_t first, uint32_t count)
{
	struct kvpull_reader_key keys[KVPULL_READER_ITEMS_MAX];
	uint64_t numbers[KVPULL_READER_ITEMS_MAX];
	const struct kvpull_reader_probe params = {
		.struct_size = sizeof(params),
		.peer = node->peer,
		.key_count = count,
		.keys = keys,
		.key_bytes = sizeof(keys[0]),
		.places = node->places + first,
		.place_bytes = sizeof(node->places[0]),
	};
	uint64_t id;
	uint32_t at;
	int code;

	for (at = 0; at < count; at++) {
		numbers[at] = node->ids[0][first + at];
		keys[at] = (struct kvpull_reader_key){ &numbers[at],
						       sizeof(numbers[at]) };
	}
	code = node->ops->probe(node->handle, &params, &id);
	return code ? code : ends_wait(node, 1);
}

/*
 * Reads the pieces that were found into the blocks ids[1], by several reads in
 * flight at once.
 */
static int pieces_read(struct node *node, uint32_t count)
{
	static struct kvpull_reader_piece pieces[PIECES_MAX];
	static int32_t codes[PIECES_MAX];
	struct kvpull_reader_read read = {
		.struct_size = sizeof(read),
		.peer = node->peer,
		.local = node->local,
		.piece_bytes = sizeof(pieces[0]),
		.incarnation = node->incarnation,
	};
	uint32_t reads = 0;
	uint32_t first;
	uint64_t id;
	int code = 0;

	for (first = 0; first < count; first++)
		pieces[first] = (struct kvpull_reader_piece){
			node->places[first].chunk, node->ids[1][first],
			node->places[first].generation
		};
	for (first = 0; !code && first < count; first += READ_PIECES, reads++) {
		read.pieces = pieces + first;
		read.codes = codes + first;
		read.piece_count = count - first < READ_PIECES ? count - first :
								 READ_PIECES;
		code = node->ops->read(node->handle, &read, &id);
	}
	return code ? code : ends_wait(node, reads);
}

static void scatter(const struct node *node, uint32_t *ids, uint32_t count)
{
	static uint32_t all[PROBE_CHUNKS];
	uint32_t at;

	for (at = 0; at < node->chunk_count; at++)
		all[at] = at;
	for (at = 0; at < count; at++) {
		const uint32_t other =
			at + bench_random() % (node->chunk_count - at);

		ids[at] = all[other];
		all[other] = all[at];
	}
}

/* ---- what is measured ---- */

static void probes_run(struct node *node)
{
	uint32_t left = PROBES * node->bench->repetitions;
	uint32_t found = 0;

	while (left--) {
		uint64_t start_ns;
		uint32_t at;

		scatter(node, node->ids[0], PROBE_KEYS);
		start_ns = kvpull_clock_ns();
		if (probe(node, 0, PROBE_KEYS)) {
			fprintf(stderr, "bench: a probe failed\n");
			return;
		}
		samples_add(&node->took[0],
			    (double)(kvpull_clock_ns() - start_ns) / 1e3);
		for (at = 0; at < PROBE_KEYS; at++)
			found += node->places[at].chunk == node->ids[0][at];
	}
	results_put(node->bench->results,
		    (double)found / PROBES / node->bench->repetitions,
		    "pool.probe_keys_found_of_100");
	results_put(node->bench->results, samples_at(&node->took[0], 0.5),
		    "bars.pool.probe_100_keys_us");
}

static int way_is_there(uint32_t way)
{
	uint32_t count;
	const struct kvpull_copy_routine *all = kvpull_copy_routines(&count);

	return way >= ROUTINES_MAX ||
	       (way < count && kvpull_copy_usable(&all[way]));
}

static int way_run(struct node *node, uint32_t way, uint32_t count)
{
	uint32_t routines;
	const struct kvpull_copy_routine *all = kvpull_copy_routines(&routines);
	const uint32_t bytes = node->chunk_bytes;
	/* The thread never sleeps: what else ran on its core is not its. */
	const uint64_t start_ns = kvpull_clock_thread_ns();
	uint32_t at;
	int code = 0;

	if (way == PULL)
		code = pieces_read(node, count);
	else if (way == GLIBC)
		for (at = 0; at < count; at++)
			memcpy(node->spans[at].to, node->spans[at].from, bytes);
	else
		all[way].copy(node->spans, count, bytes);
	samples_add(&node->took[way],
		    (double)(kvpull_clock_thread_ns() - start_ns) / 1e6);
	return code;
}

/* New ids for each way, in turns: none is always after the same. */
static int repetition(struct node *node, uint32_t number, uint32_t count)
{
	uint32_t step;
	uint32_t at;
	int code = 0;

	for (step = 0; !code && step < WAYS; step++) {
		const uint32_t way = (step + number * 7) % WAYS;
		const size_t bytes = node->chunk_bytes;

		if (!way_is_there(way) || node->is_out[way])
			continue;
		scatter(node, node->ids[0], count);
		scatter(node, node->ids[1], count);
		for (at = 0; at < count; at++)
			node->spans[at] = (struct kvpull_span){
				.to = node->to + node->ids[1][at] * bytes,
				.from = node->from + node->ids[0][at] * bytes
			};
		for (at = 0; !code && at < count; at += READ_PIECES)
			code = probe(node, at,
				     count - at < READ_PIECES ? count - at :
								READ_PIECES);
		if (!code)
			code = way_run(node, way, count);
		for (at = 0; !number && at < count; at++)
			node->wrong += memcmp(node->spans[at].to,
					      node->spans[at].from, bytes) != 0;
	}
	return code;
}

/* The best median of a plain copy. */
static double limit_of(struct node *node)
{
	double limit_ms = (double)NAN;
	uint32_t way;

	for (way = 0; way < PULL; way++) {
		const double median = samples_at(&node->took[way], 0.5);

		if (!isnan(median) && !(median >= limit_ms))
			limit_ms = median;
	}
	return limit_ms;
}

/*
 * The least of many medians of few samples is less than any of them is in truth:
 * those that may be the limit, and the pull, go on for long enough.
 */
static void far_ones_out(struct node *node)
{
	const double limit_ms = limit_of(node);
	uint32_t way;

	for (way = 0; way < PULL; way++)
		node->is_out[way] =
			samples_at(&node->took[way], 0.5) > NEAR * limit_ms;
}

static void pulls_run(struct node *node, uint32_t count, const char *name)
{
	struct results *results = node->bench->results;
	const uint32_t all = ROUNDS_ALL * node->bench->repetitions;
	const uint32_t near = ROUNDS_NEAR * node->bench->repetitions;
	double limit_ms;
	uint32_t number;
	uint32_t way;
	int code = 0;

	/* The first one touches the pages, and is verified. */
	for (number = 0; !code && number <= all + near; number++) {
		code = repetition(node, number, count);
		for (way = 0; !number && way < WAYS; way++)
			node->took[way].count = 0;
		if (number == all)
			far_ones_out(node);
	}
	if (code || node->wrong) {
		fprintf(stderr, "bench: pool: error %d, %u wrong\n", code,
			node->wrong);
		return;
	}
	limit_ms = limit_of(node);
	results_put(results, limit_ms, "pool.%s.limit_median_ms", name);
	results_put(results, samples_at(&node->took[PULL], 0.5),
		    "pool.%s.pull_median_ms", name);
	results_put(results, samples_at(&node->took[PULL], 0.5) / limit_ms,
		    "bars.pool.pull_ratio.%s", name);
}

/* A reader of four: connects, and reads when the owner is stopped. */
static int fourth_main(struct node *node)
{
	struct mail *mail = node->mail;
	uint32_t left = READS_EACH;
	int code = reader_open(node);

	if (code)
		return 1;
	atomic_fetch_add_explicit(&mail->ready, 1, memory_order_release);
	while (!atomic_load_explicit(&mail->go, memory_order_acquire))
		(void)poll(NULL, 0, 1);
	while (!code && left--) {
		scatter(node, node->ids[0], READ_PIECES);
		scatter(node, node->ids[1], READ_PIECES);
		code = probe(node, 0, READ_PIECES);
		if (!code)
			code = pieces_read(node, READ_PIECES);
	}
	node->ops->close(node->handle);
	return code != 0;
}

static void four_run(struct node *node)
{
	const uint64_t until_ns = kvpull_clock_ns() + LIMIT_NS;
	pid_t pids[READERS];
	double before;
	int failed = 0;
	uint32_t at;

	for (at = 0; at < READERS; at++) {
		pids[at] = fork();
		if (!pids[at]) {
			(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
			_exit(fourth_main(node));
		}
	}
	while (atomic_load_explicit(&node->mail->ready, memory_order_acquire) <
		       READERS &&
	       kvpull_clock_ns() < until_ns)
		(void)poll(NULL, 0, 1);
	owner_halt(node);
	before = owner_runs(node);
	atomic_store_explicit(&node->mail->go, 1, memory_order_release);
	for (at = 0; at < READERS; at++) {
		int status = 1;

		(void)waitpid(pids[at], &status, 0);
		failed |= status != 0;
	}
	if (failed)
		fprintf(stderr, "bench: pool: one of four readers failed\n");
	else
		results_put(node->bench->results, owner_runs(node) - before,
			    "bars.pool.owner_runs_while_4_read");
}

static int node_open(struct node *node)
{
	char path[64];
	int fd;

	node->mail = mmap(NULL, sizeof(*node->mail), PROT_READ | PROT_WRITE,
			  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (node->mail == MAP_FAILED || owner_start(node))
		return -1;
	if (reader_open(node))
		return -1;
	(void)snprintf(path, sizeof(path), "/proc/%d/fd/%d", node->owner,
		       node->mail->memory_fd);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 ||
	    kvpull_segment_map(fd, node->mail->memory_bytes,
			       KVPULL_SEGMENT_READ_ONLY, NULL, &node->from))
		return -1;
	(void)close(fd);
	(void)madvise(node->from, node->mail->memory_bytes, MADV_POPULATE_READ);
	return 0;
}

static void node_close(struct node *node)
{
	if (node->from)
		kvpull_segment_unmap(node->from, node->mail->memory_bytes);
	if (node->owner > 0) {
		atomic_store_explicit(&node->mail->stop, 1,
				      memory_order_relaxed);
		(void)kill(node->owner, SIGCONT);
		(void)waitpid(node->owner, NULL, 0);
	}
	node->ops->close(node->handle);
	if (node->to && node->to != MAP_FAILED)
		(void)munmap(node->to,
			     (size_t)node->chunk_bytes * node->chunk_count);
	if (node->mail != MAP_FAILED)
		(void)munmap(node->mail, sizeof(*node->mail));
}

static void one_run(const struct bench *bench, uint32_t count,
		    uint32_t chunk_bytes, uint32_t chunk_count,
		    const char *name)
{
	struct node *node = calloc(1, sizeof(*node));

	if (!node)
		return;
	node->bench = bench;
	node->ops = kvpull_reader_v1();
	node->chunk_bytes = chunk_bytes;
	node->chunk_count = chunk_count;
	if (node_open(node)) {
		fprintf(stderr, "bench: pool: no owner or no reader\n");
	} else if (count == READERS) {
		four_run(node);
	} else {
		owner_halt(node);
		if (name)
			pulls_run(node, count, name);
		else
			probes_run(node);
	}
	node_close(node);
	free(node);
}

void bench_pool_node(const struct bench *bench)
{
	one_run(bench, PROBE_KEYS, PROBE_BYTES, PROBE_CHUNKS, NULL);
	one_run(bench, 64, 2u << 20, REGION_BYTES >> 21, "64x2m");
	one_run(bench, 1000, 64u << 10, REGION_BYTES >> 16, "1000x64k");
	one_run(bench, READERS, 64u << 10, REGION_BYTES >> 16, NULL);
}
