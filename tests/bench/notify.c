// SPDX-License-Identifier: Apache-2.0
/*
 * Measures a notification from one process to another: through the ring alone
 * (half of a ping-pong, as the bar was set), and a release through both
 * workers, from the call that sends it to the producer's poll that reported the
 * hold ended.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/ring.h"
#include "tests/bench/bench.h"
#include "tests/bench/node.h"

#define RING_RECORDS 64u
#define ROUNDS_A_REPETITION 1000u
#define RELEASES_A_REPETITION 100u
#define REST_NS 300000 /* the producer is asleep by then */
#define BLOCK_BYTES 4096u
#define BLOCKS 4096u

/* Each end waits for the other's record: 0, or the ring broke. */
static int record_wait(struct kvpull_ring *ring)
{
	struct kvpull_record record;
	int ready;

	do
		ready = kvpull_ring_ready(ring);
	while (!ready);
	if (ready < 0)
		return ready;
	kvpull_ring_pop(ring, &record);
	kvpull_ring_pop_end(ring);
	return 0;
}

static void echo(struct kvpull_ring *ring, struct kvpull_ring_writer *writer,
		 uint32_t rounds)
{
	const struct kvpull_record record = { .kind = KVPULL_NOTE_RELEASE };

	while (rounds-- && !record_wait(ring))
		if (kvpull_ring_push(writer, &record) < 0)
			return;
}

static int ping(struct kvpull_ring *ring, struct kvpull_ring_writer *writer,
		uint32_t rounds, struct samples *one_way_us)
{
	const struct kvpull_record record = { .kind = KVPULL_NOTE_RELEASE };

	while (rounds--) {
		const uint64_t start_ns = kvpull_clock_ns();

		if (kvpull_ring_push(writer, &record) < 0 || record_wait(ring))
			return KVPULL_EPROTO;
		samples_add(one_way_us,
			    (double)(kvpull_clock_ns() - start_ns) / 2e3);
	}
	return 0;
}

static void ring_run(const struct bench *bench)
{
	const uint32_t rounds =
		ROUNDS_A_REPETITION *
		(bench->repetitions < 8 ? bench->repetitions : 8);
	const size_t bytes = (kvpull_ring_bytes(RING_RECORDS) + 4095) & ~4095ul;
	struct samples *one_way_us = calloc(1, sizeof(*one_way_us));
	uint8_t *memory = mmap(NULL, 2 * bytes, PROT_READ | PROT_WRITE,
			       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct kvpull_ring rings[2];
	struct kvpull_ring_writer writers[2];
	pid_t child = -1;
	int index;
	int code = one_way_us && memory != MAP_FAILED ? 0 : KVPULL_ENOMEM;

	for (index = 0; !code && index < 2; index++) {
		uint8_t *at = memory + (size_t)index * bytes;

		code = kvpull_ring_init(&rings[index], at, RING_RECORDS);
		if (!code)
			code = kvpull_ring_writer_init(&writers[index], at,
						       bytes);
	}
	if (!code)
		child = fork();
	if (!child) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		echo(&rings[0], &writers[1], rounds);
		_exit(0);
	}
	if (child > 0) {
		code = ping(&rings[1], &writers[0], rounds, one_way_us);
		(void)waitpid(child, NULL, 0);
	}
	if (!code && child > 0) {
		results_put(bench->results, samples_at(one_way_us, 0.5),
			    "notify.ring_one_way_median_us");
		results_put(bench->results, samples_at(one_way_us, 0.99),
			    "notify.ring_one_way_p99_us");
	}
	if (memory != MAP_FAILED)
		(void)munmap(memory, 2 * bytes);
	free(one_way_us);
}

struct line {
	struct producer producer;
	struct halves consumer;
	struct ticket ticket;
	struct samples one_way_us;
};

/* The claim is there before; what travels is the release. */
static int release_once(struct line *line, long rest_ns)
{
	struct kvpull_finish finish = { .struct_size = sizeof(finish),
					.reason = KVPULL_FINISH_ABORT };
	const struct timespec rest = { .tv_nsec = rest_ns };
	const uint32_t id = bench_random() % BLOCKS;
	struct halves *consumer = &line->consumer;
	struct admission admission = { 0 };
	uint64_t start_ns;
	int code;

	code = producer_hold(&line->producer, &id, 1, &line->ticket);
	if (!code)
		code = consumer_admit(consumer, &line->ticket, &admission);
	finish.key = admission.key;
	if (!code)
		code = consumer->ops->scheduler->request_finished(
			consumer->scheduler, &finish);
	if (!code)
		code = halves_step(consumer);
	if (code)
		return code;
	if (rest_ns)
		(void)nanosleep(&rest, NULL);
	start_ns = kvpull_clock_ns();
	(void)consumer->ops->worker->progress(consumer->worker, 1);
	code = producer_wait_sent(&line->producer);
	if (!code)
		code = halves_result(consumer);
	if (!code)
		samples_add(&line->one_way_us,
			    (double)(atomic_load_explicit(
					     &line->producer.mail->sent_ns,
					     memory_order_relaxed) -
				     start_ns) /
				    1e3);
	return code;
}

static int line_run(struct line *line, const struct bench *bench,
		    enum mail_kind mode)
{
	struct node_params params = { .dir = bench->dir,
				      .block_bytes = BLOCK_BYTES,
				      .block_count = BLOCKS };
	uint32_t left = RELEASES_A_REPETITION * bench->repetitions;
	int code = ticket_open(&line->ticket);

	if (!code)
		code = producer_open(&line->producer, &params);
	params.more = ",\"progress\":\"caller\"";
	if (!code)
		code = halves_open(&line->consumer, &params);
	if (!code)
		code = producer_mode(&line->producer, mode);
	/* The first one connects. */
	if (!code) {
		struct pull_times times;
		const uint32_t id = 0;

		code = producer_hold(&line->producer, &id, 1, &line->ticket);
		if (!code)
			code = consumer_pull(&line->consumer, &line->ticket,
					     &id, &times);
	}
	while (!code && left--)
		code = release_once(line, mode == MAIL_SLEEP ? REST_NS : 0);
	return code;
}

static void line_case(const struct bench *bench, enum mail_kind mode,
		      const char *name)
{
	struct line *line = calloc(1, sizeof(*line));
	int code;

	if (!line)
		return;
	code = line_run(line, bench, mode);
	if (!code) {
		results_put(bench->results, samples_at(&line->one_way_us, 0.5),
			    "notify.release_to_report_%s_median_us", name);
		results_put(bench->results, samples_at(&line->one_way_us, 0.99),
			    "notify.release_to_report_%s_p99_us", name);
	} else {
		fprintf(stderr, "bench: notification: error %d\n", code);
	}
	halves_close(&line->consumer);
	producer_close(&line->producer);
	ticket_close(&line->ticket);
	free(line);
}

void bench_notify(const struct bench *bench)
{
	struct results *results = bench->results;

	ring_run(bench);
	line_case(bench, MAIL_SPIN, "polling");
	line_case(bench, MAIL_SLEEP, "asleep");
	results_put(results,
		    results_get(results,
				"notify.release_to_report_polling_median_us"),
		    "bars.samenode.notify_poll_us");
	results_put(results,
		    results_get(results, "notify.ring_one_way_median_us"),
		    "bars.samenode.ring_us");
	results_put(results,
		    results_get(results,
				"notify.release_to_report_asleep_median_us"),
		    "bars.samenode.notify_sleep_us");
}
