/* SPDX-License-Identifier: Apache-2.0 */
/* What ib_pull prints: a table for people, one JSON object for programs. */
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "tools/ib_pull.h"

static int compare(const void *left, const void *right)
{
	const uint64_t a = *(const uint64_t *)left;
	const uint64_t b = *(const uint64_t *)right;

	return (a > b) - (a < b);
}

static double percentile_us(const uint64_t *sorted, uint32_t count, double part)
{
	uint32_t at;

	if (!count)
		return 0;
	at = (uint32_t)(part * (double)(count - 1) + 0.5);
	return (double)sorted[at] / 1e3;
}

static double latency_us(const struct ib_result *result, double part)
{
	return percentile_us(result->latencies, result->latency_count, part);
}

static double gigabytes_s(uint64_t bytes, uint64_t ns)
{
	return ns ? (double)bytes / (double)ns : 0;
}

static uint64_t request_bytes(const struct ib_options *options)
{
	return (uint64_t)options->request_blocks * options->shape.layer_count *
	       options->shape.block_bytes;
}

void ib_print_header(const struct ib_options *options)
{
	const struct engine_shape *shape = &options->shape;
	const struct kvpull_connector_ops *ops = engine_library();

	printf("kvpull ib_pull %s: memory %s, %u x %u layers x %u bytes (%.1f MB) a request, depth %u\n"
	       "progress %s, copy threads %u, tensor parallel %u, siblings %u, lease %u ms, verify %s\n",
	       ops ? ops->version : "",
	       options->foreign ? "foreign" : "provided",
	       options->request_blocks * shape->group_count,
	       shape->layer_count / shape->group_count, shape->block_bytes,
	       (double)request_bytes(options) / 1e6, options->depth,
	       options->thread ? "thread" : "caller", options->copy_threads,
	       options->tp_size, options->siblings, options->lease_ms,
	       options->verify ? "every byte" : "no");
}

static void print_table(const struct ib_result *result, double pull_gb_s,
			double copy_gb_s)
{
	printf("%8s %8s %8s %10s %10s %10s %9s %9s %7s\n", "pulls", "failed",
	       "MB", "p50 us", "p99 us", "p99.9 us", "GB/s", "copy GB/s",
	       "ratio");
	printf("%8llu %8llu %8.1f %10.1f %10.1f %10.1f %9.2f %9.2f %7.2f\n",
	       (unsigned long long)result->loaded,
	       (unsigned long long)result->failed, (double)result->bytes / 1e6,
	       latency_us(result, 0.5), latency_us(result, 0.99),
	       latency_us(result, 0.999), pull_gb_s, copy_gb_s,
	       copy_gb_s > 0 ? pull_gb_s / copy_gb_s : 0);
	printf("route %s, rejected %llu, aborted %llu, served by a sibling's pull %llu, expired %llu\n"
	       "bytes checked %llu, bytes wrong %llu, left in tables %llu, double reports %llu\n",
	       result->routes[0] ? result->routes : "none",
	       (unsigned long long)result->rejected,
	       (unsigned long long)result->aborted,
	       (unsigned long long)result->served,
	       (unsigned long long)result->expired,
	       (unsigned long long)result->bytes_checked,
	       (unsigned long long)result->bytes_wrong,
	       (unsigned long long)result->tables_left,
	       (unsigned long long)result->double_reports);
}

/* Null: did not happen, or cannot be told from here. */
static json_t *time_json(uint64_t is_known, double time)
{
	return is_known ? json_real(time) : json_null();
}

static void times_add(json_t *object, const struct ib_result *result)
{
	json_object_set_new(object, "connect_ms",
			    time_json(result->connect_ns,
				      (double)result->connect_ns / 1e6));
	json_object_set_new(object, "reconnect_ms",
			    time_json(result->reconnect_ns,
				      (double)result->reconnect_ns / 1e6));
	json_object_set_new(
		object, "release_us_p50",
		time_json(result->release_count,
			  percentile_us(result->releases, result->release_count,
					0.5)));
}

static void print_json(const struct ib_options *options,
		       const struct ib_result *result, double pull_gb_s,
		       double copy_gb_s)
{
	json_t *object = json_object();
	const struct {
		const char *key;
		uint64_t value;
	} counts[] = {
		{ "block_bytes", options->shape.block_bytes },
		{ "blocks_a_request", options->request_blocks },
		{ "layers", options->shape.layer_count },
		{ "groups", options->shape.group_count },
		{ "depth", options->depth },
		{ "siblings", options->siblings },
		{ "tensor_parallel", options->tp_size },
		{ "copy_threads", options->copy_threads },
		{ "pulls", result->loaded },
		{ "failed", result->failed },
		{ "expired", result->expired },
		{ "rejected", result->rejected },
		{ "aborted", result->aborted },
		{ "served_by_sibling", result->served },
		{ "bytes", result->bytes },
		{ "bytes_checked", result->bytes_checked },
		{ "bytes_wrong", result->bytes_wrong },
		{ "tables_left", result->tables_left },
		{ "double_reports", result->double_reports },
	};
	size_t index;

	for (index = 0; index < sizeof(counts) / sizeof(counts[0]); index++)
		json_object_set_new(
			object, counts[index].key,
			json_integer((json_int_t)counts[index].value));
	json_object_set_new(object, "route",
			    result->routes[0] ? json_string(result->routes) :
						json_null());
	json_object_set_new(object, "complete", json_boolean(result->done));
	json_object_set_new(object, "progress",
			    json_string(options->thread ? "thread" : "caller"));
	json_object_set_new(object, "latency_us_p50",
			    json_real(latency_us(result, 0.5)));
	json_object_set_new(object, "latency_us_p99",
			    json_real(latency_us(result, 0.99)));
	json_object_set_new(object, "latency_us_p99_9",
			    json_real(latency_us(result, 0.999)));
	times_add(object, result);
	json_object_set_new(
		object, "one_pull_gb_s",
		json_real(gigabytes_s(result->bytes_timed, result->took_ns)));
	json_object_set_new(object, "bandwidth_gb_s", json_real(pull_gb_s));
	json_object_set_new(object, "memcpy_gb_s", json_real(copy_gb_s));
	json_object_set_new(
		object, "ratio_to_memcpy",
		json_real(copy_gb_s > 0 ? pull_gb_s / copy_gb_s : 0));
	json_dumpf(object, stdout, JSON_INDENT(2));
	printf("\n");
	json_decref(object);
}

void ib_print_result(const struct ib_options *options, struct ib_result *result)
{
	const double pull_gb_s =
		gigabytes_s(result->bytes_timed, result->elapsed_ns);
	const double copy_gb_s =
		gigabytes_s(result->copy_bytes, result->copy_ns);

	if (result->latency_count > options->request_count)
		result->latency_count = options->request_count;
	if (result->release_count > options->request_count)
		result->release_count = options->request_count;
	if (result->latency_count)
		qsort(result->latencies, result->latency_count,
		      sizeof(uint64_t), compare);
	if (result->release_count)
		qsort(result->releases, result->release_count, sizeof(uint64_t),
		      compare);
	if (options->json)
		print_json(options, result, pull_gb_s, copy_gb_s);
	else
		print_table(result, pull_gb_s, copy_gb_s);
}

int ib_print_stats(const struct ib_options *options)
{
	struct ib_answer answer;

	if (ib_ask_stats(options, &answer))
		return 1;
	printf("{\"holds_live\": %llu, \"holds_released\": %llu, \"holds_expired\": %llu, \"holds_revoked\": %llu, \"blocks_free\": %llu, \"blocks\": %llu, \"consumers_died\": %llu, \"double_reports\": %llu}\n",
	       (unsigned long long)answer.holds_live,
	       (unsigned long long)answer.holds_released,
	       (unsigned long long)answer.holds_expired,
	       (unsigned long long)answer.holds_revoked,
	       (unsigned long long)answer.blocks_free,
	       (unsigned long long)answer.blocks_all,
	       (unsigned long long)answer.consumers_died,
	       (unsigned long long)answer.double_reports);
	return 0;
}
