/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shm/ring under load: what the unit tests of one thread cannot see.
 *
 *   threads N    two threads on one mapping: for ThreadSanitizer, which sees
 *                nothing across processes
 *   processes N  two processes on a memfd
 *   wake N       the reader sleeps on an eventfd, the writer rings only when
 *                push() says so: a sleep over a record is a lost wake-up
 *   kill N       N writers are killed -9 one after the other on one ring
 *
 * A record's bytes follow from its number, so a record that is torn, lost,
 * repeated or read before it was written is seen. The counters start just
 * below their wrap. processes and wake run on all cores, then on one. No
 * arguments: each mode, shortly. Exit 0 or 1.
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/pause.h"
#include "base/ring.h"
#include "tests/lib/patience.h"
#include "tests/lib/random.h"

#define RING_RECORDS 16u
#define RING_BYTES (KVPULL_RING_SLOTS_OFFSET + RING_RECORDS * 32u)
/* A mode that hangs fails by SIGALRM. */
#define HANG_SECONDS (120u * patience())
/* A writer that is merely off its core rings long before this. */
#define LOST_WAKE_MS 1000
/* In wake: both sides wait up to so many pauses before they step. */
#define JITTER_PAUSES 64u

struct run {
	uint8_t *memory;
	struct kvpull_ring ring;
	uint64_t start; /* first record's number */
	uint64_t count;
	int doorbell;
	uint64_t sleep_count;
	_Atomic int failed; /* threads: tells the writer to give up */
};

/*
 * Wait a little, then let the other side have the core: at once where there is
 * only one; late where there are two, since a stranger may take the core for
 * milliseconds.
 */
static uint32_t spin_count_max = 500;

static void wait_turn(uint32_t *spin_count)
{
	if (++*spin_count < spin_count_max)
		kvpull_pause();
	else
		(void)sched_yield();
}

static void jitter(uint64_t *random)
{
	uint64_t pauses = random_next(random) % JITTER_PAUSES;

	while (pauses--)
		kvpull_pause();
}

static struct kvpull_record record_of(uint64_t number)
{
	const uint64_t mixed = number * UINT64_C(0x9e3779b97f4a7c15);

	return (struct kvpull_record){
		.kind = (uint32_t)(mixed >> 40),
		.slot = (uint32_t)mixed,
		.generation = number,
		.tag = mixed ^ (mixed >> 29),
		.extra = ~mixed,
	};
}

static int run_open(struct run *run, uint64_t count)
{
	_Atomic uint64_t *tail;
	_Atomic uint64_t *head;
	int fd;
	void *memory;

	*run = (struct run){ .count = count, .doorbell = -1 };
	fd = memfd_create("ring_stress", MFD_CLOEXEC);
	if (fd < 0 || ftruncate(fd, RING_BYTES) != 0) {
		perror("memfd");
		return -1;
	}
	memory = mmap(NULL, RING_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
		      0);
	(void)close(fd);
	if (memory == MAP_FAILED ||
	    kvpull_ring_init(&run->ring, memory, RING_RECORDS) != 0) {
		perror("mmap");
		return -1;
	}
	run->memory = memory;
	run->start = 0 - count / 2;
	/* As if start records had passed: the wrap comes in the middle. */
	tail = (void *)(run->memory + KVPULL_RING_TAIL_OFFSET);
	head = (void *)(run->memory + KVPULL_RING_HEAD_OFFSET);
	atomic_store_explicit(tail, run->start, memory_order_relaxed);
	atomic_store_explicit(head, run->start, memory_order_relaxed);
	run->ring.head = run->start;
	return 0;
}

static void run_close(struct run *run)
{
	(void)munmap(run->memory, RING_BYTES);
	if (run->doorbell >= 0)
		(void)close(run->doorbell);
}

static void writer_open(struct run *run, struct kvpull_ring_writer *writer)
{
	if (kvpull_ring_writer_init(writer, run->memory, RING_BYTES) != 0) {
		fprintf(stderr, "the writer cannot open its ring\n");
		_exit(1);
	}
}

/* Push all records as fast as the ring takes them. */
static void *write_all(void *argument)
{
	struct run *run = argument;
	struct kvpull_ring_writer writer;
	uint64_t done = 0;
	uint32_t spin_count = 0;

	writer_open(run, &writer);
	while (done < run->count &&
	       !atomic_load_explicit(&run->failed, memory_order_relaxed)) {
		const struct kvpull_record record = record_of(writer.tail);

		if (kvpull_ring_push(&writer, &record) == KVPULL_EAGAIN) {
			wait_turn(&spin_count);
			continue;
		}
		spin_count = 0;
		done++;
	}
	return NULL;
}

/* Take what is there; how many, or -1. */
static int take_batch(struct kvpull_ring *ring)
{
	const int ready = kvpull_ring_ready(ring);
	int index;

	if (ready < 0) {
		fprintf(stderr, "ready: %d at record %#llx\n", ready,
			(unsigned long long)ring->head);
		return -1;
	}
	for (index = 0; index < ready; index++) {
		const struct kvpull_record expected = record_of(ring->head);
		struct kvpull_record record;

		kvpull_ring_pop(ring, &record);
		if (memcmp(&record, &expected, sizeof(record)) != 0) {
			fprintf(stderr,
				"record %#llx is wrong: generation %#llx\n",
				(unsigned long long)expected.generation,
				(unsigned long long)record.generation);
			return -1;
		}
	}
	if (ready)
		kvpull_ring_pop_end(ring);
	return ready;
}

static int read_all(struct run *run)
{
	uint64_t taken = 0;
	uint32_t spin_count = 0;

	while (taken < run->count) {
		const int ready = take_batch(&run->ring);

		if (ready < 0)
			return -1;
		if (!ready) {
			wait_turn(&spin_count);
			continue;
		}
		spin_count = 0;
		taken += (uint64_t)ready;
	}
	return 0;
}

/* A child that dies with its parent; 0 in the child. */
static pid_t fork_child(void)
{
	const pid_t parent = getpid();
	pid_t child;

	(void)fflush(NULL);
	child = fork();
	if (child == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			_exit(1);
	}
	if (child < 0)
		perror("fork");
	return child;
}

static int reap(pid_t child)
{
	int status = -1;

	while (waitpid(child, &status, 0) < 0 && errno == EINTR)
		continue;
	return status;
}

/* CPUs that the two processes of a run may use. */
enum cores {
	CORES_ALL, /* unpinned: on a loaded machine a pinned one crawls */
	CORES_ONE
};

/* Put the caller, and the children it will have, on its first core alone. */
static int use_one_core(const cpu_set_t *allowed)
{
	cpu_set_t one;
	size_t core;

	for (core = 0; core < CPU_SETSIZE; core++) {
		if (!CPU_ISSET(core, allowed))
			continue;
		CPU_ZERO(&one);
		CPU_SET(core, &one);
		return sched_setaffinity(0, sizeof(one), &one);
	}
	return -1;
}

static int run_threads(uint64_t count)
{
	struct run run;
	pthread_t writer;
	int failed;

	if (run_open(&run, count) != 0)
		return -1;
	if (pthread_create(&writer, NULL, write_all, &run) != 0)
		return -1;
	failed = read_all(&run);
	if (failed)
		atomic_store_explicit(&run.failed, 1, memory_order_relaxed);
	(void)pthread_join(writer, NULL);
	run_close(&run);
	printf("threads: %llu records: %s\n", (unsigned long long)count,
	       failed ? "FAILED" : "ok");
	return failed;
}

static int run_processes(uint64_t count, enum cores cores)
{
	struct run run;
	pid_t child;
	int failed;

	if (run_open(&run, count) != 0)
		return -1;
	child = fork_child();
	if (child < 0)
		return -1;
	if (child == 0) {
		(void)write_all(&run);
		_exit(0);
	}
	failed = read_all(&run);
	if (failed)
		(void)kill(child, SIGKILL);
	failed |= reap(child) != 0;
	run_close(&run);
	printf("processes: %llu records, %s: %s\n", (unsigned long long)count,
	       cores == CORES_ALL ? "all cores" : "one core",
	       failed ? "FAILED" : "ok");
	return failed ? -1 : 0;
}

/*
 * Sends one record at a time: the next comes about when the reader, which has
 * taken the last one, arms itself. There a wake-up can be lost.
 */
static void write_wakes(struct run *run)
{
	struct kvpull_ring_writer writer;
	const uint64_t one = 1;
	uint64_t random = 88172645463325252u;
	uint64_t done;
	uint32_t spin_count;

	writer_open(run, &writer);
	for (done = 0; done < run->count; done++) {
		const struct kvpull_record record = record_of(writer.tail);

		spin_count = 0;
		while (kvpull_ring_open_count(&writer))
			wait_turn(&spin_count);
		jitter(&random);
		if (kvpull_ring_push(&writer, &record) == 1 &&
		    write(run->doorbell, &one, sizeof(one)) != sizeof(one))
			_exit(1);
	}
}

/* Sleep until the doorbell; -1: it did not come though there is a record. */
static int sleep_once(struct run *run)
{
	struct pollfd doorbell = { .fd = run->doorbell, .events = POLLIN };
	uint64_t rings;
	int woken;

	if (kvpull_ring_arm(&run->ring))
		return 0;
	run->sleep_count++;
	woken = poll(&doorbell, 1, LOST_WAKE_MS);
	if (woken == 0 && kvpull_ring_ready(&run->ring) != 0) {
		fprintf(stderr,
			"lost wake-up after %llu records, %llu sleeps\n",
			(unsigned long long)(run->ring.head - run->start),
			(unsigned long long)run->sleep_count);
		return -1;
	}
	if (woken == 1 && read(run->doorbell, &rings, sizeof(rings)) < 0) {
		perror("doorbell");
		return -1;
	}
	kvpull_ring_disarm(&run->ring);
	return 0;
}

static int read_wakes(struct run *run)
{
	uint64_t random = 1442695040888963407u;
	uint64_t taken = 0;

	while (taken < run->count) {
		const int ready = take_batch(&run->ring);

		if (ready < 0)
			return -1;
		taken += (uint64_t)ready;
		if (ready)
			continue;
		jitter(&random);
		if (sleep_once(run) != 0)
			return -1;
	}
	return 0;
}

static int run_wake(uint64_t count, enum cores cores)
{
	struct run run;
	pid_t child;
	int failed;

	if (run_open(&run, count) != 0)
		return -1;
	run.doorbell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	child = fork_child();
	if (child < 0)
		return -1;
	if (child == 0) {
		write_wakes(&run);
		_exit(0);
	}
	failed = read_wakes(&run);
	if (failed)
		(void)kill(child, SIGKILL);
	failed |= reap(child) != 0;
	run_close(&run);
	printf("wake: %llu records, %llu sleeps, %s: %s\n",
	       (unsigned long long)count, (unsigned long long)run.sleep_count,
	       cores == CORES_ALL ? "all cores" : "one core",
	       failed ? "FAILED" : "ok");
	return failed ? -1 : 0;
}

/* Writers in a row: each goes on at the tail where the last one was killed. */
static int run_kill(uint64_t count)
{
	struct run run;
	uint64_t random = 2685821657736338717u;
	uint32_t spin_count = 0;
	uint64_t round;
	int failed = 0;

	if (run_open(&run, 1u << 20) != 0)
		return -1;
	for (round = 0; round < count && !failed; round++) {
		const uint64_t stop =
			run.ring.head + random_next(&random) % 512;
		pid_t child = fork_child();

		/* Each has that long: on a busy machine they take turns. */
		(void)alarm(HANG_SECONDS);
		if (child < 0)
			return -1;
		if (child == 0) {
			run.count = UINT64_MAX;
			(void)write_all(&run);
			_exit(0);
		}
		while (!failed && (int64_t)(stop - run.ring.head) > 0) {
			const int ready = take_batch(&run.ring);

			failed = ready < 0;
			if (ready == 0)
				wait_turn(&spin_count);
			else
				spin_count = 0;
		}
		/* Anywhere in a push, not only where the ring was full. */
		jitter(&random);
		(void)kill(child, SIGKILL);
		(void)reap(child);
		/* Twice: all that it announced, then nothing. */
		failed |= take_batch(&run.ring) < 0;
		failed |= take_batch(&run.ring) != 0;
	}
	printf("kill: %llu writers, %llu records: %s\n",
	       (unsigned long long)round,
	       (unsigned long long)(run.ring.head - run.start),
	       failed ? "FAILED" : "ok");
	run_close(&run);
	return failed ? -1 : 0;
}

/* On all cores, then, a tenth as much, on one. */
static int on_cores(int (*run)(uint64_t, enum cores), uint64_t count)
{
	const uint32_t spin_count_before = spin_count_max;
	cpu_set_t allowed;
	int failed = 0;

	if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0)
		return -1;
	if (CPU_COUNT(&allowed) > 1)
		failed = run(count, CORES_ALL);
	else
		printf("only one core: nothing was run on two\n");
	if (failed || use_one_core(&allowed) != 0)
		return -1;
	(void)alarm(HANG_SECONDS);
	spin_count_max = 1;
	failed = run((count + 9) / 10, CORES_ONE);
	spin_count_max = spin_count_before;
	(void)sched_setaffinity(0, sizeof(allowed), &allowed);
	return failed;
}

static int run_mode(const char *mode, uint64_t count)
{
	(void)alarm(HANG_SECONDS);
	if (!strcmp(mode, "threads"))
		return run_threads(count);
	if (!strcmp(mode, "processes"))
		return on_cores(run_processes, count);
	if (!strcmp(mode, "wake"))
		return on_cores(run_wake, count);
	if (!strcmp(mode, "kill"))
		return run_kill(count);
	return -2;
}

int main(int argc, char **argv)
{
	static const struct {
		const char *mode;
		uint64_t count;
	} defaults[] = { { "threads", 1000000 },
			 { "processes", 1000000 },
			 { "wake", 50000 },
			 { "kill", 1000 } };
	size_t index;
	int failed = 0;

	if (argc == 3) {
		failed = run_mode(argv[1], strtoull(argv[2], NULL, 0));
	} else if (argc == 1) {
		for (index = 0; index < 4; index++)
			failed |= run_mode(defaults[index].mode,
					   defaults[index].count);
	}
	if ((argc != 1 && argc != 3) || failed == -2) {
		fprintf(stderr,
			"usage: ring_stress [threads|processes|wake|kill N]\n");
		return 2;
	}
	return failed ? 1 : 0;
}
