/* SPDX-License-Identifier: Apache-2.0 */
/* The thread of a device: rings both ways, calls that hang, its end. */
#include "base/device_thread.h"

#include <fcntl.h>
#include <sched.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/device_feed.h"
#include "tests/lib/lines.h"
#include "tests/lib/patience.h"
#include "tests/lib/refuse.h"
#include "tests/lib/unit.h"
#include "tests/unit/device/reads.h"
#include "tests/unit/device/table.h"

#define MIB ((uint64_t)1 << 20)
#define JOBS 4u
#define MAPPINGS 2u
/* The thread has so long to end; where nothing hangs it is over at once. */
#define CLOSE_NS (KVPULL_NS_PER_S / 5)
#define HANG_NS (KVPULL_DEVICE_HANG_NS + KVPULL_NS_PER_S)

static struct {
	struct kvpull_device_thread *thread;
	struct reads_read reads[JOBS];
	struct kvpull_device_job jobs[JOBS];
	struct kvpull_device_region region;
	int wake_fd;
} world;

/* The library's clock, by so much later than this machine's. */
static _Atomic uint64_t later_ns;

int __real_clock_gettime(clockid_t clock, struct timespec *now);
int __wrap_clock_gettime(clockid_t clock, struct timespec *now);
int __wrap_clock_gettime(clockid_t clock, struct timespec *now)
{
	const int failed = __real_clock_gettime(clock, now);

	now->tv_sec +=
		(time_t)(atomic_load_explicit(&later_ns, memory_order_relaxed) /
			 KVPULL_NS_PER_S);
	return failed;
}

static int thread_open(int index)
{
	const struct kvpull_device_thread_params params = {
		.open = table_open,
		.index = index,
		.wake_fd = world.wake_fd,
		.limits = { .job_max = JOBS,
			    .mapping_max = MAPPINGS,
			    .mark_max = 2,
			    .bytes_per_ms = MIB },
	};

	return kvpull_device_thread_open(&world.thread, &params, &lines_log);
}

/* 1: a call hangs, and each look is a second after the one before. */
static _Atomic uint32_t is_hanging;

static uint64_t look_ns(void)
{
	if (atomic_load_explicit(&is_hanging, memory_order_relaxed))
		(void)atomic_fetch_add_explicit(&later_ns, KVPULL_NS_PER_S,
						memory_order_relaxed);
	return kvpull_clock_ns();
}

static void begin(void)
{
	atomic_store_explicit(&is_hanging, 0, memory_order_relaxed);
	table_clear();
	memset(&world, 0, sizeof(world));
	lines_forget();
	world.wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	assert_int_equal(thread_open(0), 0);
}

static uint32_t end(void)
{
	const uint32_t is_left = kvpull_device_thread_close(
		world.thread, kvpull_clock_ns() + CLOSE_NS);

	(void)close(world.wake_fd);
	return is_left;
}

/* The next end, waited for. */
static struct kvpull_device_end end_await(void)
{
	struct kvpull_device_end next;

	while (!kvpull_device_thread_poll(world.thread, &next, 1, look_ns()))
		(void)sched_yield();
	return next;
}

/* Return: the index of what ends. */
static uint32_t ends_as(uint32_t kind, int code)
{
	const struct kvpull_device_end next = end_await();

	assert_int_equal(next.kind, kind);
	assert_int_equal(next.code, code);
	return next.index;
}

static int no_end(void)
{
	struct kvpull_device_end next;

	return !kvpull_device_thread_poll(world.thread, &next, 1, look_ns());
}

static void mapping_order(uint32_t mapping)
{
	kvpull_device_thread_import(world.thread, mapping,
				    open("/dev/null", O_RDWR | O_CLOEXEC),
				    4096 * MIB, table.device.uuid);
}

/* With the first mapping, whose end was taken. */
static void begin_mapped(void)
{
	begin();
	mapping_order(0);
	(void)end_await();
}

static struct kvpull_device_job *job_make(uint32_t index, uint32_t blocks)
{
	struct kvpull_device_job *const job = &world.jobs[index];

	reads_make(&world.reads[index], index, blocks, MIB);
	*job = (struct kvpull_device_job){ .read = &world.reads[index].read,
					   .regions = &world.region,
					   .region_count = 1 };
	return job;
}

static struct kvpull_device_job *job_order(uint32_t index, uint32_t blocks)
{
	struct kvpull_device_job *const job = job_make(index, blocks);

	assert_int_equal(kvpull_device_thread_start(world.thread, job), 0);
	return job;
}

/* Until the thread has queued so many copies and records. */
static void queued_await(uint64_t entries)
{
	while (atomic_load_explicit(&table.queued, memory_order_relaxed) <
	       entries)
		(void)sched_yield();
}

static void time_passes(void)
{
	atomic_store_explicit(&is_hanging, 1, memory_order_relaxed);
	(void)atomic_fetch_add_explicit(&later_ns, HANG_NS,
					memory_order_relaxed);
}

/* From this call on a thread is in it for longer than a call may take. */
static void hang(enum table_call call, uint32_t how)
{
	table.hanging = time_passes;
	atomic_store_explicit(&table.hangs[call], how, memory_order_release);
}

static void hang_end(enum table_call call)
{
	atomic_store_explicit(&table.hangs[call], 0, memory_order_release);
}

/* ---- orders and ends ---- */

UNIT_TEST(import_copy_and_unmap_are_ordered_in_a_row)
{
	begin();
	mapping_order(0);
	(void)job_order(0, 8);
	kvpull_device_thread_unmap(world.thread, 0);
	(void)ends_as(KVPULL_DEVICE_IMPORT, 0);
	while (no_end())
		table_reach_all();
	assert_int_equal(world.jobs[0].code, 0);
	assert_int_equal(end_await().kind, KVPULL_DEVICE_UNMAP);
	assert_int_equal(end(), 0);
	assert_true(table.is_closed);
	assert_int_equal(lines.counts[KVPULL_LOG_WARN], 0);
}

static uint32_t ended_count;

/* The first time: it is started again, in the call. */
static void job_ended(struct kvpull_device_job *job)
{
	assert_int_equal(job->code, 0);
	if (!ended_count++)
		assert_int_equal(kvpull_device_thread_start(world.thread, job),
				 0);
}

UNIT_TEST(job_of_another_route_ends_by_its_function)
{
	struct kvpull_device_job *job;

	begin();
	assert_int_equal(kvpull_device_thread_pending(world.thread), 0);
	mapping_order(0);
	(void)end_await();
	assert_int_equal(kvpull_device_thread_pending(world.thread), 0);
	job = job_make(0, 1);
	job->ended = job_ended;
	ended_count = 0;
	assert_int_equal(kvpull_device_thread_start(world.thread, job), 0);
	while (ended_count < 2) {
		assert_int_equal(kvpull_device_thread_pending(world.thread), 1);
		table_reach_all();
		assert_true(no_end());
	}
	assert_int_equal(kvpull_device_thread_pending(world.thread), 0);
	assert_int_equal(end(), 0);
}

UNIT_TEST(index_in_flight_is_refused)
{
	begin();
	mapping_order(0);
	(void)job_order(0, 1);
	assert_int_equal(
		kvpull_device_thread_start(world.thread, &world.jobs[0]),
		KVPULL_EAGAIN);
	(void)end_await();
	while (no_end())
		table_reach_all();
	assert_int_equal(
		kvpull_device_thread_start(world.thread, &world.jobs[0]), 0);
	while (no_end())
		table_reach_all();
	assert_int_equal(end(), 0);
}

/* All indices at once, twice: no ring is too small. */
UNIT_TEST(all_orders_and_ends_have_room)
{
	uint32_t left = 2 * (JOBS + 2 * MAPPINGS);
	uint32_t times;
	uint32_t turn;
	uint32_t at;

	begin();
	hang(TABLE_IMPORT, TABLE_HANGS_SHORTLY);
	table.hanging = NULL;
	for (turn = 0; turn < 2; turn++) {
		for (at = 0; at < MAPPINGS; at++)
			mapping_order(at);
		for (at = 0; at < JOBS; at++) {
			(void)job_order(at, 8);
			for (times = 0; times < 3; times++)
				kvpull_device_thread_cancel(world.thread,
							    &world.jobs[at]);
		}
		for (at = 0; at < MAPPINGS; at++)
			kvpull_device_thread_unmap(world.thread, at);
		hang_end(TABLE_IMPORT);
		for (; left > JOBS + 2 * MAPPINGS || (turn && left); left--)
			while (no_end())
				table_reach_all();
	}
	assert_int_equal(end(), 0);
}

UNIT_TEST(end_wakes_an_owner_that_sleeps)
{
	eventfd_t woken;

	begin();
	assert_int_equal(kvpull_device_thread_arm(world.thread), 0);
	mapping_order(0);
	while (eventfd_read(world.wake_fd, &woken))
		(void)sched_yield();
	assert_false(no_end());
	/* Awake: no more. */
	kvpull_device_thread_disarm(world.thread);
	kvpull_device_thread_unmap(world.thread, 0);
	(void)end_await();
	assert_int_not_equal(eventfd_read(world.wake_fd, &woken), 0);
	assert_int_equal(end(), 0);
}

/* An engine's marks could be thousands; those of a step or two are in use. */
UNIT_TEST(event_of_a_mark_is_opened_when_it_is_first_used)
{
	struct kvpull_device_event *event;

	begin();
	assert_int_equal(table.open_events, KVPULL_DEVICE_SLICES_MAX);
	assert_null(kvpull_device_thread_mark(world.thread, 1));
	assert_int_equal(kvpull_device_thread_mark_open(world.thread, 1), 0);
	event = kvpull_device_thread_mark(world.thread, 1);
	assert_non_null(event);
	assert_int_equal(kvpull_device_thread_mark_open(world.thread, 1), 0);
	assert_ptr_equal(kvpull_device_thread_mark(world.thread, 1), event);
	table_refuses_event = 1;
	assert_int_equal(kvpull_device_thread_mark_open(world.thread, 0),
			 KVPULL_ENOMEM);
	table_refuses_event = 0;
	assert_null(kvpull_device_thread_mark(world.thread, 0));
	assert_int_equal(table.open_events, KVPULL_DEVICE_SLICES_MAX + 1);
	assert_int_equal(end(), 0);
	assert_int_equal(table.open_events, 0);
}

/* Beside a code of each kind: none, a positive one, an error. */
UNIT_TEST(end_of_an_import_says_the_rate)
{
	struct kvpull_device_end next;

	begin();
	table.bytes_per_us = 371000;
	mapping_order(0);
	next = end_await();
	assert_int_equal(next.code, 0);
	assert_int_equal(next.bytes_per_us, 371000);
	table.access = KVPULL_DEVICE_READ_WRITE;
	table.bytes_per_us = INT32_MAX;
	mapping_order(1);
	next = end_await();
	assert_int_equal(next.code, 0);
	assert_int_equal(next.bytes_per_us, INT32_MAX);
	assert_int_equal(kvpull_device_thread_mapped(world.thread)->stores, 1);
	kvpull_device_thread_unmap(world.thread, 0);
	next = end_await();
	assert_int_equal(next.bytes_per_us, 0);
	table.codes[TABLE_IMPORT] = KVPULL_EROUTE;
	mapping_order(0);
	next = end_await();
	assert_int_equal(next.code, KVPULL_EROUTE);
	assert_int_equal(next.bytes_per_us, 0);
	kvpull_device_thread_unmap(world.thread, 0);
	(void)end_await();
	assert_int_equal(end(), 0);
}

UNIT_TEST(own_memory_is_unmapped_at_close)
{
	const struct kvpull_device_memory own = { .address = 4096,
						  .bytes = TABLE_GRANULARITY };

	begin();
	table.mapped = 1;
	kvpull_device_thread_adopt(world.thread, &own);
	assert_int_equal(end(), 0);
	assert_int_equal(table.mapped, 0);
}

/* ---- errors ---- */

/* clang-format off */
REFUSABLE(int, eventfd, -1, (unsigned int count, int flags), (count, flags))
#ifdef REFUSE_IS_PLAIN
REFUSABLE(void *, mmap, MAP_FAILED,
	  (void *at, size_t bytes, int protection, int flags, int fd, off_t offset),
	  (at, bytes, protection, flags, fd, offset))
REFUSABLE(int, pthread_create, errno, (pthread_t *thread, const pthread_attr_t *how, void *(*run)(void *), void *argument), (thread, how, run, argument))
#endif
/* clang-format on */

static void refused(const char *call, uint32_t skip)
{
	const uint32_t fds = fds_open();
	const uint64_t before = refuse_mapped();

	table_clear();
	lines_forget();
	world.wake_fd = -1;
	refuse(call, skip, EAGAIN);
	assert_int_equal(thread_open(0), KVPULL_ENOMEM);
	assert_int_equal(refuse_end(), 1);
	assert_int_equal(lines.counts[KVPULL_LOG_WARN] +
				 lines.counts[KVPULL_LOG_ERROR],
			 1);
	assert_int_equal(fds_open(), fds);
	assert_int_equal(refuse_mapped(), before);
}

UNIT_TEST(host_without_room_is_said_in_one_line)
{
	refused("eventfd", 0);
#ifdef REFUSE_IS_PLAIN
	refused("mmap", 0);
	refused("mmap", 1);
	refused("pthread_create", 0);
#endif
}

UNIT_TEST(open_that_fails_leaves_nothing)
{
	const uint32_t fds = fds_open();

	table_clear();
	world.wake_fd = -1;
	assert_int_equal(thread_open(-1), KVPULL_EUNSUPPORTED);
	table_refuses_event = 1;
	assert_int_equal(thread_open(0), KVPULL_ENOMEM);
	table_refuses_event = 0;
	assert_true(table.is_closed);
	assert_int_equal(fds_open(), fds);
}

/* ---- calls that hang ---- */

/* A call has begun to hang. */
static _Atomic uint32_t hangs;

UNIT_TEST(driver_that_does_not_begin_is_left_behind)
{
	table_clear();
	lines_forget();
	hang(TABLE_OPEN, TABLE_HANGS_FOR_EVER);
	world.wake_fd = -1;
	assert_int_equal(thread_open(0), KVPULL_EDEVICE);
	assert_int_equal(lines.counts[KVPULL_LOG_ERROR], 1);
}

/* Ends of a device whose driver hangs: all but those of jobs 0 and 1. */
static void others_end(uint32_t others)
{
	uint32_t at;

	for (at = 0; at < others; at++) {
		assert_true(ends_as(KVPULL_DEVICE_COPY, KVPULL_EDEVICE) > 1);
	}
	assert_true(no_end());
	assert_int_equal(lines.counts[KVPULL_LOG_ERROR], 1);
}

static void hang_said(void)
{
	atomic_store_explicit(&hangs, 1, memory_order_relaxed);
}

static void hang_await(void)
{
	while (!atomic_load_explicit(&hangs, memory_order_relaxed))
		(void)sched_yield();
	atomic_store_explicit(&hangs, 0, memory_order_relaxed);
}

/* An import's call has begun, and does not return yet. */
static void import_hangs(uint32_t how)
{
	hang(TABLE_IMPORT, how);
	table.hanging = hang_said;
	atomic_store_explicit(&hangs, 0, memory_order_relaxed);
	mapping_order(0);
	hang_await();
}

static void looks_pass(uint32_t looks)
{
	atomic_store_explicit(&is_hanging, 1, memory_order_relaxed);
	for (; looks; looks--)
		assert_true(no_end());
	atomic_store_explicit(&is_hanging, 0, memory_order_relaxed);
}

UNIT_TEST(call_of_eight_seconds_is_waited_for)
{
	begin();
	import_hangs(TABLE_HANGS_SHORTLY);
	looks_pass(8);
	hang_end(TABLE_IMPORT);
	assert_int_equal(end_await().code, 0);
	assert_int_equal(lines.counts[KVPULL_LOG_ERROR], 0);
	assert_int_equal(end(), 0);
}

/* A copy hangs right behind an import that did, and nobody looked between them. */
UNIT_TEST(each_call_has_its_own_time)
{
	begin();
	hang(TABLE_COPY, TABLE_HANGS_SHORTLY);
	import_hangs(TABLE_HANGS_SHORTLY);
	(void)job_order(0, 1);
	looks_pass(6);
	atomic_store_explicit(&hangs, 0, memory_order_relaxed);
	hang_end(TABLE_IMPORT);
	hang_await();
	assert_int_equal(end_await().kind, KVPULL_DEVICE_IMPORT);
	looks_pass(6);
	hang_end(TABLE_COPY);
	queued_await(2);
	table_reach_all();
	assert_int_equal(end_await().code, 0);
	assert_int_equal(lines.counts[KVPULL_LOG_ERROR], 0);
	assert_int_equal(end(), 0);
}

/* A process that was stopped finds its driver's call as far as it was before. */
UNIT_TEST(time_in_which_nobody_polled_is_not_the_calls)
{
	uint32_t stops;

	begin();
	import_hangs(TABLE_HANGS_SHORTLY);
	for (stops = 0; stops < 5; stops++) {
		time_passes();
		atomic_store_explicit(&is_hanging, 0, memory_order_relaxed);
		assert_true(no_end());
	}
	hang_end(TABLE_IMPORT);
	assert_int_equal(end_await().code, 0);
	assert_int_equal(lines.counts[KVPULL_LOG_ERROR], 0);
	assert_int_equal(end(), 0);
}

UNIT_TEST(copy_that_hangs_ends_all_other_jobs)
{
	struct kvpull_device_end next;

	begin_mapped();
	hang(TABLE_COPY, TABLE_HANGS_FOR_EVER);
	(void)job_order(0, 8);
	(void)job_order(2, 8);
	others_end(1);
	/* And all that is ordered later. */
	(void)job_order(3, 8);
	kvpull_device_thread_cancel(world.thread, &world.jobs[3]);
	others_end(1);
	mapping_order(1);
	(void)ends_as(KVPULL_DEVICE_IMPORT, KVPULL_EDEVICE);
	kvpull_device_thread_unmap(world.thread, 0);
	kvpull_device_thread_unmap(world.thread, 1);
	next = end_await();
	assert_int_equal(next.kind, KVPULL_DEVICE_UNMAP);
	assert_int_equal(next.index, 1);
	/* A copy may still read what is mapped at 0. */
	assert_true(no_end());
	assert_int_equal(end(), 1);
}

UNIT_TEST(query_that_hangs_keeps_the_jobs_that_are_queued)
{
	begin_mapped();
	(void)job_order(0, 1);
	(void)job_order(1, 1);
	queued_await(4);
	(void)job_order(2, 8);
	(void)job_order(3, 8);
	hang(TABLE_QUERY, TABLE_HANGS_FOR_EVER);
	others_end(2);
	assert_int_equal(end(), 1);
}

UNIT_TEST(mark_that_hangs_ends_its_job)
{
	begin_mapped();
	hang(TABLE_WAIT, TABLE_HANGS_FOR_EVER);
	job_make(2, 8)->after = table_mark();
	assert_int_equal(
		kvpull_device_thread_start(world.thread, &world.jobs[2]), 0);
	others_end(1);
	assert_int_equal(end(), 1);
}

UNIT_TEST(import_that_hangs_ends_with_the_device)
{
	begin();
	hang(TABLE_IMPORT, TABLE_HANGS_FOR_EVER);
	mapping_order(0);
	(void)ends_as(KVPULL_DEVICE_IMPORT, KVPULL_EDEVICE);
	assert_int_equal(end(), 1);
}

UNIT_TEST(unmap_that_hangs_ends_with_the_device)
{
	begin_mapped();
	hang(TABLE_UNMAP, TABLE_HANGS_FOR_EVER);
	kvpull_device_thread_unmap(world.thread, 0);
	assert_int_equal(end_await().kind, KVPULL_DEVICE_UNMAP);
	assert_int_equal(end(), 1);
}

/* Time stands still here: close() gives a call up before it counts as a hang. */
UNIT_TEST(close_gives_up_a_call_that_hangs)
{
	uint64_t began_ns;

	begin();
	import_hangs(TABLE_HANGS_FOR_EVER);
	began_ns = kvpull_clock_ns();
	assert_int_equal(end(), 1);
	assert_in_range(kvpull_clock_ns() - began_ns, CLOSE_NS,
			KVPULL_NS_PER_S * patience());
	assert_int_equal(lines.counts[KVPULL_LOG_ERROR], 0);
}

UNIT_TEST(close_gives_up_copies_that_do_not_end)
{
	uint64_t began_ns;

	begin_mapped();
	(void)job_order(0, 8);
	queued_await(4);
	began_ns = kvpull_clock_ns();
	assert_int_equal(end(), 1);
	assert_in_range(kvpull_clock_ns() - began_ns, CLOSE_NS,
			KVPULL_NS_PER_S * patience());
	assert_int_equal(table.mapped, 1);
}

/* Last in the file: its thread goes on for a moment. */
UNIT_TEST(call_that_returns_too_late_touches_nothing)
{
	struct kvpull_device_job *job;
	uint32_t left = 1000;

	begin_mapped();
	hang(TABLE_COPY, TABLE_HANGS_SHORTLY);
	job = job_order(0, 8);
	while (!lines.counts[KVPULL_LOG_ERROR])
		assert_true(no_end());
	mapping_order(1);
	assert_int_equal(end_await().code, KVPULL_EDEVICE);
	assert_int_equal(end(), 1);
	/* The owner's job is other memory by now: the thread must not read it. */
	*job = (struct kvpull_device_job){ .region_count = 1 };
	hang_end(TABLE_COPY);
	for (; left; left--) {
		(void)sched_yield();
		table_reach_all();
	}
	assert_int_equal(table.made[TABLE_RECORD], 0);
	/* Nor is its line the owner's, who has closed. */
	assert_int_equal(lines.counts[KVPULL_LOG_WARN], 0);
}
