/* SPDX-License-Identifier: Apache-2.0 */
/* Output of ib_pull: a table for people, one JSON object for programs. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tools/ib_pull_parts.h"
#include "tools/json.h"

#define HISTOGRAM_BAR "##############################"
#define NOISE_ROUNDS 8u
#define NOISE_PULLS 5u /* of a round, at least */
#define NOISE_RATIO 1.3

static int compare(const void *left, const void *right)
{
	const uint64_t a = *(const uint64_t *)left;
	const uint64_t b = *(const uint64_t *)right;

	return (a > b) - (a < b);
}

/* The last `room` of them are there. */
static void times_sort(uint64_t *times, uint32_t *count, uint32_t room)
{
	if (*count > room)
		*count = room;
	if (*count)
		qsort(times, *count, sizeof(*times), compare);
}

double ib_percentile_us(const uint64_t *sorted, uint32_t count, double part)
{
	uint32_t at;

	if (!count)
		return 0;
	at = (uint32_t)(part * (double)(count - 1) + 0.5);
	return (double)sorted[at] / 1e3;
}

static double latency_us(const struct ib_result *result, double part)
{
	return ib_percentile_us(result->latencies, result->latency_count, part);
}

static double ratio(uint64_t part, uint64_t whole)
{
	return whole ? (double)part / (double)whole : 0;
}

double ib_pull_gb_s(const struct ib_result *result)
{
	return ratio(result->bytes_timed, result->elapsed_ns);
}

double ib_copy_gb_s(const struct ib_result *result)
{
	return ratio(result->copy_bytes, result->copy_ns);
}

static double copy_ratio(const struct ib_result *result)
{
	const double copy_gb_s = ib_copy_gb_s(result);

	return copy_gb_s > 0 ? ib_pull_gb_s(result) / copy_gb_s : 0;
}

unsigned long long ib_request_bytes(const struct ib_options *options)
{
	return (unsigned long long)options->request_blocks *
	       options->shape.layer_count * options->shape.block_bytes;
}

/* Lines of at most 80 columns. */
void ib_print_header(const struct ib_options *options)
{
	const struct engine_shape *shape = &options->shape;
	const struct kvpull_connector_ops *ops = engine_library();

	printf("kvpull ib_pull %s: memory %s, progress %s, copy threads %u, depth %u\n",
	       ops ? ops->version : "",
	       options->foreign ? "foreign" : "provided",
	       options->thread ? "thread" : "caller", options->copy_threads,
	       options->depth);
	printf("block %u bytes x %u layers", shape->block_bytes,
	       shape->layer_count / shape->group_count);
	if (!options->trace)
		printf(", %u blocks (%.1f MB) a request",
		       options->request_blocks * shape->group_count,
		       (double)ib_request_bytes(options) / 1e6);
	printf("\ntensor parallel %u, siblings %u, lease %u ms, verify %s\n",
	       options->tp_size, options->siblings, options->lease_ms,
	       options->verify ? "every byte" : "no");
}

/* Null: did not happen, or cannot be told from here. */
static void set_known(json_t *object, const char *key, double value)
{
	set_value(object, key, value > 0 ? json_real(value) : json_null());
}

/* Block-seconds that a request held of the producer; what it has not said: 0. */
static double held_block_s(const struct ib_result *result)
{
	return ratio(result->held_block_us, result->holds_ended) / 1e6;
}

static double hit_ratio(const struct ib_result *result)
{
	return ratio(result->local_tokens, result->prompt_tokens);
}

static void print_trace(const struct ib_options *options,
			const struct ib_result *result)
{
	printf("trace at %g x: late p50 %.0f us, p99 %.0f us\nprefix hit ratio %.3f, held %.3f block-seconds a request\n",
	       options->speed,
	       ib_percentile_us(result->late, result->late_count, 0.5),
	       ib_percentile_us(result->late, result->late_count, 0.99),
	       hit_ratio(result), held_block_s(result));
}

/* NAME_us_p50 and NAME_us_p99 of the sorted times. */
static void percentiles_add(json_t *object, const char *name,
			    const uint64_t *times, uint32_t count)
{
	char key[32];

	(void)snprintf(key, sizeof(key), "%s_us_p50", name);
	set_real(object, key, ib_percentile_us(times, count, 0.5));
	(void)snprintf(key, sizeof(key), "%s_us_p99", name);
	set_real(object, key, ib_percentile_us(times, count, 0.99));
}

static void trace_add(json_t *object, const struct ib_options *options,
		      const struct ib_result *result)
{
	set_real(object, "trace_speed", options->speed);
	set(object, "trace_requests", result->late_count);
	percentiles_add(object, "late", result->late, result->late_count);
	set_real(object, "prefix_hit_ratio", hit_ratio(result));
	set_known(object, "held_block_s_a_request", held_block_s(result));
}

void ib_bars_count(const struct ib_result *result, uint32_t bars[IB_BARS_MAX])
{
	uint32_t at;

	memset(bars, 0, IB_BARS_MAX * sizeof(*bars));
	for (at = 0; at < result->latency_count; at++)
		bars[64 - __builtin_clzll(result->latencies[at] | 1)]++;
}

static void print_histogram(const struct ib_result *result)
{
	uint32_t bars[IB_BARS_MAX];
	int at;

	ib_bars_count(result, bars);
	for (at = 1; at < (int)IB_BARS_MAX; at++)
		if (bars[at])
			printf("%10.1f us .. %10.1f us %9u  %.*s\n",
			       ldexp(1, at - 1) / 1e3, ldexp(1, at) / 1e3,
			       bars[at],
			       (int)((sizeof(HISTOGRAM_BAR) - 1) * bars[at] /
				     result->latency_count),
			       HISTOGRAM_BAR);
}

/*
 * The run's eighths, one after another: where their medians differ by much, a
 * figure of the whole run says more of the machine's other work than of ours.
 * Their latencies are in the order in which the pulls ended.
 */
static void print_noise(const struct ib_options *options,
			const struct ib_result *result)
{
	const uint32_t each = result->latency_count / NOISE_ROUNDS;
	double least = HUGE_VAL;
	double most = 0;
	uint32_t round;

	if (options->trace || each < NOISE_PULLS ||
	    result->latency_count > options->request_count)
		return;
	for (round = 0; round < NOISE_ROUNDS; round++) {
		uint64_t *times = result->latencies + round * each;
		double us;

		qsort(times, each, sizeof(*times), compare);
		us = ib_percentile_us(times, each, 0.5);
		least = fmin(least, us);
		most = fmax(most, us);
	}
	if (most > NOISE_RATIO * least)
		fprintf(stderr,
			"noisy: medians of this run's eighths go from %.1f to %.1f us; compare runs in turns, or on a quiet machine\n",
			least, most);
}

void ib_print_interval(const struct ib_options *options,
		       const struct ib_result *result, uint64_t begun_ns,
		       struct ib_interval *printed)
{
	const uint64_t now_ns = engine_now_ns();
	const uint64_t since_ns = printed->at_ns ? printed->at_ns : begun_ns;
	const struct ib_result *before = &printed->result;
	const uint64_t bytes = result->bytes - before->bytes;
	FILE *const to = options->json ? stderr : stdout;

	if (now_ns - since_ns < options->interval_s * UINT64_C(1000000000))
		return;
	if (!printed->at_ns)
		fprintf(to, "      s   pulls failed        MB   GB/s\n");
	fprintf(to, "%7.1f %7llu %6llu %9.1f %6.2f\n",
		(double)(now_ns - begun_ns) / 1e9,
		result->loaded - before->loaded,
		result->failed - before->failed, (double)bytes / 1e6,
		ratio(bytes, now_ns - since_ns));
	(void)fflush(to);
	*printed = (struct ib_interval){ now_ns, *result };
}

void ib_print_sweep_begin(const struct ib_options *options)
{
	if (options->json)
		printf("[\n");
	else
		printf(" blocks      bytes   pulls failed    p50 us    p99 us   GB/s copy GB/s  ratio\n");
}

void ib_print_sweep_end(const struct ib_options *options)
{
	if (options->json)
		printf("]\n");
}

/* The end of a row. */
static void print_speeds(const struct ib_result *result)
{
	printf(" %6.2f %9.2f %6.2f\n", ib_pull_gb_s(result),
	       ib_copy_gb_s(result), copy_ratio(result));
}

static void print_row(const struct ib_options *options,
		      const struct ib_result *result)
{
	printf("%7u %10llu %7llu %6llu %9.1f %9.1f", options->request_blocks,
	       ib_request_bytes(options), result->loaded, result->failed,
	       latency_us(result, 0.5), latency_us(result, 0.99));
	print_speeds(result);
}

static const char *const phase_names[ENGINE_PHASES] = { "queue", "connect",
							"read", "check" };

static const uint64_t *phase_of(const struct ib_options *options,
				const struct ib_result *result, uint32_t phase)
{
	return result->phases + phase * options->request_count;
}

static void print_phases(const struct ib_options *options,
			 const struct ib_result *result)
{
	uint32_t phase;

	printf("p50/p99 us:");
	for (phase = 0; phase < ENGINE_PHASES; phase++) {
		const uint64_t *times = phase_of(options, result, phase);

		printf(" %s %.1f/%.1f", phase_names[phase],
		       ib_percentile_us(times, result->latency_count, 0.5),
		       ib_percentile_us(times, result->latency_count, 0.99));
	}
	printf("\n");
}

static void print_table(const struct ib_options *options,
			const struct ib_result *result)
{
	printf("  pulls failed        MB    p50 us    p99 us  p99.9 us   GB/s copy GB/s  ratio\n"
	       "%7llu %6llu %9.1f %9.1f %9.1f %9.1f",
	       result->loaded, result->failed, (double)result->bytes / 1e6,
	       latency_us(result, 0.5), latency_us(result, 0.99),
	       latency_us(result, 0.999));
	print_speeds(result);
	print_phases(options, result);
	printf("route %s, rejected %llu, aborted %llu, served by a sibling's pull %llu, expired %llu\n"
	       "bytes checked %llu, bytes wrong %llu, left in tables %llu, double reports %llu\n",
	       result->routes[0] ? result->routes : "none", result->rejected,
	       result->aborted, result->served, result->expired,
	       result->bytes_checked, result->bytes_wrong, result->tables_left,
	       result->double_reports);
}

static void print_json(const struct ib_options *options,
		       const struct ib_result *result)
{
	const uint32_t count = result->latency_count;
	json_t *object = json_object();
	uint32_t phase;

	set(object, "block_bytes", options->shape.block_bytes);
	set(object, "blocks_a_request", options->request_blocks);
	set(object, "layers", options->shape.layer_count);
	set(object, "groups", options->shape.group_count);
	set(object, "depth", options->depth);
	set(object, "siblings", options->siblings);
	set(object, "tensor_parallel", options->tp_size);
	set(object, "copy_threads", options->copy_threads);
	set(object, "pulls", result->loaded);
	set(object, "failed", result->failed);
	set(object, "expired", result->expired);
	set(object, "rejected", result->rejected);
	set(object, "aborted", result->aborted);
	set(object, "served_by_sibling", result->served);
	set(object, "bytes", result->bytes);
	set(object, "bytes_checked", result->bytes_checked);
	set(object, "bytes_wrong", result->bytes_wrong);
	set(object, "tables_left", result->tables_left);
	set(object, "double_reports", result->double_reports);
	set_value(object, "route",
		  result->routes[0] ? json_string(result->routes) :
				      json_null());
	set_value(object, "complete", json_boolean(result->done));
	set_value(object, "progress",
		  json_string(options->thread ? "thread" : "caller"));
	percentiles_add(object, "latency", result->latencies, count);
	set_real(object, "latency_us_p99_9", latency_us(result, 0.999));
	for (phase = 0; phase < ENGINE_PHASES; phase++)
		percentiles_add(object, phase_names[phase],
				phase_of(options, result, phase), count);
	set_known(object, "first_connect_us", (double)result->connect_ns / 1e3);
	set_known(object, "reconnect_us", (double)result->reconnect_ns / 1e3);
	set_known(
		object, "release_us_p50",
		ib_percentile_us(result->releases, result->release_count, 0.5));
	if (options->trace)
		trace_add(object, options, result);
	set_real(object, "one_pull_gb_s",
		 ratio(result->bytes_timed, result->took_ns));
	set_real(object, "bandwidth_gb_s", ib_pull_gb_s(result));
	set_real(object, "memcpy_gb_s", ib_copy_gb_s(result));
	set_real(object, "ratio_to_memcpy", copy_ratio(result));
	(void)json_show(object, 2);
}

void ib_print_result(const struct ib_options *options, struct ib_result *result)
{
	const uint32_t room = options->request_count;
	uint32_t phase;

	print_noise(options, result);
	times_sort(result->latencies, &result->latency_count, room);
	for (phase = 0; phase < ENGINE_PHASES; phase++)
		times_sort(result->phases + phase * room,
			   &result->latency_count, room);
	times_sort(result->releases, &result->release_count, room);
	times_sort(result->late, &result->late_count, room);
	if (options->json)
		print_json(options, result);
	else if (options->sweep)
		print_row(options, result);
	else
		print_table(options, result);
	if (options->trace && !options->json)
		print_trace(options, result);
	if (options->histogram && !options->json)
		print_histogram(result);
	if (options->sweep)
		(void)fflush(stdout);
}

int ib_print_stats(const struct ib_options *options)
{
	json_t *object;
	struct ib_answer answer;

	if (ib_ask_stats(options, &answer))
		return 1;
	object = json_object();
	set(object, "holds_live", answer.holds_live);
	set(object, "holds_released", answer.holds_released);
	set(object, "holds_expired", answer.holds_expired);
	set(object, "holds_revoked", answer.holds_revoked);
	set(object, "blocks_free", answer.blocks_free);
	set(object, "blocks", answer.blocks_all);
	set(object, "consumers_died", answer.consumers_died);
	set(object, "double_reports", answer.double_reports);
	return json_show(object, 0) != 0;
}
