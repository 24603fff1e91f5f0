/* SPDX-License-Identifier: Apache-2.0 */
/* An engine that leaves out what it says is there: an answer, never a crash. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/counts.h"
#include "tests/lib/lines.h"
#include "tests/unit/abi/world.h"

UNIT_TEST(both_halves_refuse_an_engine_id_that_no_ticket_may_have)
{
	static const char *const ids[] = {
		NULL,
		"",
		"a\nb",
		"0123456789012345678901234567890123456789012345678901234567890123",
	};
	size_t i;

	for (i = 0; i < sizeof(ids) / sizeof(ids[0]); i++) {
		const struct kvpull_open_params params = open_params(ids[i]);

		refused_with(&params, "engine_id", "");
	}
}

/* Half a configuration is none: a worker would run by keys that nobody set. */
UNIT_TEST(both_halves_refuse_a_configuration_that_is_wrong)
{
	static const struct {
		const char *json;
		const char *field;
	} cases[] = {
		{ "{", "config_json" },
		{ "[]", "config_json" },
		{ "{\"max_holds\":8,\"no_such_key\":1}", "no_such_key" },
		{ "{\"max_holds\":8,\"lease_ms\":0}", "lease_ms" },
	};
	struct kvpull_open_params params = open_params("engine");
	size_t i;

	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		params.config_json = cases[i].json;
		both_refuse(&params, KVPULL_ECONFIG, cases[i].field, "");
	}
}

UNIT_TEST(blocks_that_are_not_there_are_refused)
{
	const struct kvpull_connector_ops *ops = kvpull_connector_v1();
	const struct kvpull_open_params params = open_params("engine");
	const struct kvpull_blocks nothing = { .block_count = 3 };
	/* Far more than any table of groups has room for. */
	static const struct kvpull_blocks many[4096];
	struct kvpull_allocation allocation = {
		.struct_size = sizeof(allocation),
		.key = 1,
		.external_tokens = 16,
		.group_bytes = sizeof(nothing),
		.group_count = 1,
	};
	const struct kvpull_request request = { .struct_size = sizeof(request),
						.key = 1,
						.prompt_tokens = 16 };
	struct kvpull_scheduler *scheduler;

	assert_int_equal(ops->scheduler->open(&params, &scheduler, NULL), 0);
	assert_int_equal(ops->scheduler->request_new(scheduler, &request), 0);
	assert_int_equal(ops->scheduler->allocated(scheduler, &allocation),
			 KVPULL_EINVAL);
	allocation.groups = &nothing;
	assert_int_equal(ops->scheduler->allocated(scheduler, &allocation),
			 KVPULL_EINVAL);
	allocation.groups = many;
	allocation.group_count = 4096;
	assert_int_equal(ops->scheduler->allocated(scheduler, &allocation),
			 KVPULL_EINVAL);
	ops->scheduler->close(scheduler);
}

/* Half of a digest is another prompt's, and half of a trace another trace. */
UNIT_TEST(request_that_ends_in_its_digest_is_refused)
{
	const struct kvpull_connector_ops *ops = kvpull_connector_v1();
	const struct kvpull_open_params params = open_params("engine");
	const size_t digest = offsetof(struct kvpull_request, prompt_digest);
	struct kvpull_request request = { .key = 1, .prompt_tokens = 16 };
	struct kvpull_scheduler *scheduler;

	assert_int_equal(ops->scheduler->open(&params, &scheduler, NULL), 0);
	request.struct_size = digest + KVPULL_DIGEST_BYTES / 2;
	assert_int_equal(ops->scheduler->request_new(scheduler, &request),
			 KVPULL_EINVAL);
	request.struct_size = digest;
	assert_int_equal(ops->scheduler->request_new(scheduler, &request), 0);
	request.struct_size = digest + KVPULL_DIGEST_BYTES;
	assert_int_equal(ops->scheduler->request_new(scheduler, &request), 0);
	request.struct_size = offsetof(struct kvpull_request, trace) + 16;
	assert_int_equal(ops->scheduler->request_new(scheduler, &request),
			 KVPULL_EINVAL);
	request.struct_size = offsetof(struct kvpull_request, trace);
	assert_int_equal(ops->scheduler->request_new(scheduler, &request), 0);
	ops->scheduler->close(scheduler);
}

UNIT_TEST(regions_that_are_not_there_are_refused)
{
	const struct kvpull_connector_ops *ops = kvpull_connector_v1();
	const struct kvpull_open_params params = open_params("engine");
	const struct kvpull_regions regions = { .struct_size = sizeof(regions),
						.region_count = 1,
						.cache_count = 1 };
	struct kvpull_worker *worker;

	assert_int_equal(ops->worker->open(&params, &worker, NULL), 0);
	assert_int_equal(ops->worker->regions_register(worker, &regions, NULL),
			 KVPULL_EINVAL);
	ops->worker->close(worker);
}

static void unsupported(const struct kvpull_open_params *params,
			const char *field)
{
	struct kvpull_error_detail detail = { .struct_size = sizeof(detail) };
	struct kvpull_worker *worker;

	assert_int_equal(
		kvpull_connector_v1()->worker->open(params, &worker, &detail),
		KVPULL_EUNSUPPORTED);
	assert_string_equal(detail.field, field);
}

UNIT_TEST(features_that_are_not_there_yet_are_refused_by_name)
{
	static const struct kvpull_group groups[3] = {
		{ 16, KVPULL_GROUP_FULL, 0, 0 },
		{ 16, KVPULL_GROUP_SLIDING, 0, 0 },
		{ 16, KVPULL_GROUP_STATE + 1, 0, 0 },
	};
	struct kvpull_open_params params = open_params("engine");

	params.dcp_size = 2;
	unsupported(&params, "dcp_size");
	params = open_params("engine");
	params.push_mode = 1;
	unsupported(&params, "push_mode");
	params = open_params("engine");
	params.groups = groups;
	params.group_count = 3;
	unsupported(&params, "groups");
}

UNIT_TEST(more_regions_or_caches_than_there_can_be_are_refused)
{
	static struct kvpull_region region[KVPULL_REGIONS_MAX + 1];
	static struct kvpull_cache caches[KVPULL_CACHES_MAX + 1];
	static uint8_t memory[4096];
	const struct kvpull_worker_ops *ops = kvpull_connector_v1()->worker;
	struct kvpull_error_detail detail = { .struct_size = sizeof(detail) };
	struct kvpull_regions regions = four_blocks_in(region);
	struct kvpull_worker *worker = worker_open();
	uint32_t at;

	for (at = 0; at <= KVPULL_REGIONS_MAX; at++)
		region[at] = (struct kvpull_region){
			.struct_size = sizeof(region[at]),
			.kind = KVPULL_REGION_FOREIGN,
			.fd = -1,
			.base = memory,
			.bytes = sizeof(memory),
		};
	for (at = 0; at <= KVPULL_CACHES_MAX; at++)
		caches[at] = four_blocks;
	regions.caches = caches;
	regions.cache_count = KVPULL_CACHES_MAX + 1;
	regions_refused(worker, &regions, "register once");
	regions.cache_count = 1;
	regions.region_count = KVPULL_REGIONS_MAX + 1;
	regions_refused(worker, &regions, "register once");
	ops->close(worker);
}

UNIT_TEST(struct_that_cannot_be_read_is_named)
{
	struct {
		struct kvpull_host host;
		uint64_t more;
	} newer = { { .struct_size = sizeof(newer) }, 1 };
	static const struct kvpull_group many[4096];
	struct kvpull_host host = { .struct_size = sizeof(host) };
	struct kvpull_open_params params = open_params("engine");
	struct kvpull_model own_model = *params.model;

	refused_with(NULL, "params", "params is NULL");
	params.struct_size = 0;
	refused_with(&params, "struct_size", "params has a struct_size of 0");
	params = open_params("engine");
	params.host = &newer.host;
	refused_with(&params, "struct_size", "needs a newer library");
	host.reserved = 1;
	params.host = &host;
	refused_with(&params, "reserved", "reserved");
	params.host = NULL;
	params.model = NULL;
	refused_with(&params, "model", "model is NULL");
	own_model.struct_size = 0;
	params.model = &own_model;
	refused_with(&params, "struct_size", "model has a struct_size of 0");
	params = open_params("engine");
	params.groups = NULL;
	refused_with(&params, "groups", "1 .. 8 groups");
	params.groups = many;
	params.group_count = 4096;
	refused_with(&params, "groups", "1 .. 8 groups");
	params.group_count = KVPULL_GROUPS_MAX + 1;
	refused_with(&params, "groups", "1 .. 8 groups");
	params.group_count = 0;
	refused_with(&params, "groups", "1 .. 8 groups");
	params = open_params("engine");
	params.reserved = 1;
	refused_with(&params, "reserved", "a reserved member is not 0");
}

UNIT_TEST(record_that_is_refused_is_named)
{
	static const struct kvpull_group groups[2] = { { 16, 0, 0, 0 },
						       { 0, 0, 0, 0 } };
	struct kvpull_open_params params = open_params("engine");
	struct kvpull_model own_model = *params.model;
	char text[KVPULL_TEXT_BYTES_MAX + 1];

	memset(text, 'a', sizeof(text));
	text[KVPULL_TEXT_BYTES_MAX] = '\0';
	params.model = &own_model;
	own_model.model = text;
	refused_with(&params, "model", "at most 127 bytes");
	own_model.model = "m";
	own_model.dtype = "float16\n";
	refused_with(&params, "dtype", "control characters");
	own_model.dtype = "u8";
	own_model.replicated = 7;
	refused_with(&params, "replicated", "replicated is 7");
	own_model.replicated = 0;
	params.groups = groups;
	params.group_count = 2;
	refused_with(&params, "groups", "groups[1].block_tokens is 0");
}

/* Two engines that say nothing would find themselves equal. */
UNIT_TEST(record_without_a_required_member_is_named)
{
	struct kvpull_open_params params = open_params("engine");
	const struct kvpull_model whole = *params.model;
	struct kvpull_model own_model = { .struct_size = sizeof(own_model) };

	params.model = &own_model;
	refused_with(&params, "model", "the model's model is not set");
	own_model = whole;
	own_model.model = "";
	refused_with(&params, "model", "is not set");
	own_model = whole;
	own_model.dtype = NULL;
	refused_with(&params, "dtype", "the model's dtype is not set");
	own_model = whole;
	own_model.layout = "";
	refused_with(&params, "layout", "the model's layout is not set");
	own_model = whole;
	own_model.layer_count = 0;
	refused_with(&params, "layer_count", "layer_count is not set");
	own_model = whole;
	own_model.head_count = 0;
	refused_with(&params, "head_count", "head_count is not set");
}

UNIT_TEST(region_struct_that_cannot_be_read_is_named)
{
	const struct kvpull_worker_ops *ops = kvpull_connector_v1()->worker;
	struct kvpull_error_detail detail = { .struct_size = sizeof(detail) };
	static uint8_t memory[4096];
	struct kvpull_region region = { .struct_size = sizeof(region),
					.kind = KVPULL_REGION_FOREIGN,
					.fd = -1,
					.base = memory,
					.bytes = sizeof(memory) };
	struct kvpull_cache cache = { 0 };
	struct kvpull_regions regions = { .regions = &region,
					  .caches = &cache,
					  .region_count = 1,
					  .cache_count = 1 };
	struct kvpull_worker *worker = worker_open();

	regions_refused(worker, &regions, "regions has a struct_size");
	regions.struct_size = sizeof(regions);
	regions_refused(worker, &regions, "caches[0] has a struct_size");
	region.struct_size = 0;
	regions_refused(worker, &regions, "regions[0] has a struct_size");
	ops->close(worker);
}

/* Also where the engine takes no log: the line that says it is the detail. */
UNIT_TEST(reason_of_the_host_is_in_the_detail)
{
	const struct kvpull_worker_ops *ops = kvpull_connector_v1()->worker;
	struct kvpull_error_detail detail = { .struct_size = sizeof(detail) };
	struct kvpull_open_params params = open_params("engine");
	struct kvpull_region region = { 0 };
	const struct kvpull_regions regions = four_blocks_in(&region);
	struct kvpull_worker *worker;
	int code;

	params.config_json =
		"{\"route\":\"shm\",\"socket_dir\":\"/dev/null/kvpull\"}";
	assert_int_equal(ops->open(&params, &worker, &detail), 0);
	region = region_alloc(worker);
	code = ops->regions_register(worker, &regions, &detail);
	assert_true(code < 0);
	assert_int_equal(detail.code, code);
	assert_non_null(strstr(detail.message, "/dev/null/kvpull"));
	ops->close(worker);
}

UNIT_TEST(dmabuf_of_the_engines_own_is_refused)
{
	const struct kvpull_worker_ops *ops = kvpull_connector_v1()->worker;
	struct kvpull_open_params params = open_params("engine");
	struct kvpull_error_detail detail = { .struct_size = sizeof(detail) };
	static uint8_t memory[4096];
	const struct kvpull_region region = { .struct_size = sizeof(region),
					      .kind = KVPULL_REGION_DMABUF,
					      .fd = 2,
					      .base = memory,
					      .bytes = sizeof(memory) };
	const struct kvpull_regions regions = four_blocks_in(&region);
	struct kvpull_worker *worker;

	params.config_json = "{\"route\":\"shm\"}";
	assert_int_equal(ops->open(&params, &worker, NULL), 0);
	assert_int_equal(ops->regions_register(worker, &regions, &detail),
			 KVPULL_EUNSUPPORTED);
	assert_string_equal(detail.field, "regions");
	assert_non_null(strstr(detail.message, "memory_alloc(DEVICE)"));
	ops->close(worker);
}

/* Blocks of 16 tokens of one head: K and V as the header's recipes say. */
UNIT_TEST(recipes_of_the_header_are_taken)
{
	static const struct {
		uint64_t second_offset, block_stride, row_stride, head_stride;
		uint32_t row_count, head_bytes;
	} recipes[] = {
		{ 2048, 512, 32, 32, 16, 32 }, /* [2][blocks][T][H][E] */
		{ 512, 1024, 32, 32, 16, 32 }, /* [blocks][2][T][H][E] */
		{ 512, 1024, 0, 512, 1, 512 }, /* [blocks][2][H][T][E] */
	};
	const struct kvpull_worker_ops *ops = kvpull_connector_v1()->worker;
	size_t i;

	for (i = 0; i < sizeof(recipes) / sizeof(recipes[0]); i++) {
		struct kvpull_error_detail detail = { .struct_size =
							      sizeof(detail) };
		struct kvpull_worker *worker = worker_open();
		const struct kvpull_region region = region_alloc(worker);
		struct kvpull_cache caches[2];
		const struct kvpull_regions regions = { .struct_size =
								sizeof(regions),
							.regions = &region,
							.caches = caches,
							.region_count = 1,
							.cache_count = 2 };

		caches[0] = (struct kvpull_cache){
			.struct_size = sizeof(caches[0]),
			.layer_count = 1,
			.block_stride = recipes[i].block_stride,
			.row_stride = recipes[i].row_stride,
			.head_stride = recipes[i].head_stride,
			.block_count = 4,
			.row_count = recipes[i].row_count,
			.head_count = 1,
			.head_bytes = recipes[i].head_bytes,
		};
		caches[1] = caches[0];
		caches[1].offset = recipes[i].second_offset;
		if (ops->regions_register(worker, &regions, &detail))
			fail_msg("recipe %zu: %s", i, detail.message);
		ops->close(worker);
	}
}

UNIT_TEST(memory_that_is_freed_gives_its_place_back)
{
	const struct kvpull_worker_ops *ops = kvpull_connector_v1()->worker;
	struct kvpull_memory memory = { .struct_size = sizeof(memory) };
	struct kvpull_worker *worker = worker_open();
	void *bases[KVPULL_REGIONS_MAX];
	uint32_t i;

	for (i = 0; i < 3 * KVPULL_REGIONS_MAX; i++) {
		assert_int_equal(ops->memory_alloc(worker, 4096, 0, &memory),
				 0);
		assert_int_equal(ops->memory_free(worker, memory.base), 0);
		assert_int_equal(ops->memory_free(worker, memory.base),
				 KVPULL_EINVAL);
	}
	for (i = 0; i < KVPULL_REGIONS_MAX; i++) {
		assert_int_equal(ops->memory_alloc(worker, 4096, 0, &memory),
				 0);
		bases[i] = memory.base;
	}
	assert_int_equal(ops->memory_alloc(worker, 4096, 0, &memory),
			 KVPULL_EFULL);
	assert_int_equal(ops->memory_free(worker, bases[7]), 0);
	assert_int_equal(ops->memory_alloc(worker, 4096, 0, &memory), 0);
	ops->close(worker);
}

/* -1 .. -19: nothing happened. */
UNIT_TEST(call_without_an_output_changes_nothing)
{
	const struct kvpull_connector_ops *ops = kvpull_connector_v1();
	const struct kvpull_open_params params = open_params("engine");
	struct kvpull_memory memory = { .struct_size = 0 };
	struct kvpull_scheduler *scheduler;
	struct kvpull_worker *worker = worker_open();
	static uint8_t bad[4];
	uint32_t i;

	for (i = 0; i < 2 * KVPULL_REGIONS_MAX; i++)
		assert_int_equal(
			ops->worker->memory_alloc(worker, 4096, 0,
						  i & 1 ? &memory : NULL),
			KVPULL_EINVAL);
	memory.struct_size = sizeof(memory);
	assert_int_equal(ops->worker->memory_alloc(worker, 4096, 0, &memory),
			 0);
	assert_true(ops->worker->step(worker, bad, sizeof(bad)) < 0);
	assert_int_equal(ops->worker->counters(worker, NULL, 1, 32),
			 KVPULL_EINVAL);
	assert_int_equal(worker_counts(ops->worker, worker).step_bad, 1);
	ops->worker->close(worker);

	assert_int_equal(ops->scheduler->open(&params, &scheduler, NULL), 0);
	assert_true(ops->scheduler->result_take(scheduler, bad, sizeof(bad)) <
		    0);
	assert_int_equal(ops->scheduler->counters(scheduler, NULL, 1, 32),
			 KVPULL_EINVAL);
	assert_int_equal(
		scheduler_counts(ops->scheduler, scheduler).results_bad, 1);
	ops->scheduler->close(scheduler);
}

UNIT_TEST(every_route_that_is_built_is_a_cap)
{
	assert_int_equal(kvpull_connector_v1()->caps,
			 KVPULL_CAP_SHM | KVPULL_CAP_FOREIGN | KVPULL_CAP_FILE |
				 KVPULL_CAP_VERBS | KVPULL_CAP_KEY |
				 KVPULL_CAP_CUDA);
}

/* Lines of a worker's open and close: some at INFO, more at DEBUG. */
static void worker_lines(uint32_t host_level, const char *config_json)
{
	const struct kvpull_connector_ops *ops = kvpull_connector_v1();
	const struct kvpull_host host = { .struct_size = sizeof(host),
					  .log = lines_keep,
					  .log_level = host_level };
	struct kvpull_open_params params = open_params("engine");
	struct kvpull_worker *worker;

	lines_forget();
	params.host = &host;
	params.config_json = config_json;
	assert_int_equal(ops->worker->open(&params, &worker, NULL), 0);
	ops->worker->close(worker);
}

UNIT_TEST(key_log_level_goes_before_the_engines_own)
{
	worker_lines(KVPULL_LOG_INFO, "{}");
	assert_true(lines.counts[KVPULL_LOG_INFO] > 0);
	assert_int_equal(lines.counts[KVPULL_LOG_DEBUG], 0);
	worker_lines(KVPULL_LOG_INFO, "{\"log_level\":\"warn\"}");
	assert_int_equal(lines.counts[KVPULL_LOG_INFO], 0);
	worker_lines(KVPULL_LOG_WARN, "{\"log_level\":\"info\"}");
	assert_true(lines.counts[KVPULL_LOG_INFO] > 0);
	worker_lines(KVPULL_LOG_WARN, "{}");
	assert_int_equal(lines.counts[KVPULL_LOG_INFO], 0);
	worker_lines(0, "{}");
	assert_true(lines.counts[KVPULL_LOG_INFO] > 0);
}

UNIT_TEST(links_to_a_service_are_told_once_an_open)
{
	const char *said;

	assert_int_equal(setenv("KVPULL_PORT", "tcp://10.96.0.7:80", 1), 0);
	assert_int_equal(setenv("KVPULL_SERVICE_HOST", "10.96.0.7", 1), 0);
	worker_lines(KVPULL_LOG_WARN, "{\"route\":\"shm\"}");
	assert_int_equal(unsetenv("KVPULL_PORT"), 0);
	assert_int_equal(unsetenv("KVPULL_SERVICE_HOST"), 0);
	said = strstr(lines.all, "enableServiceLinks");
	assert_non_null(said);
	assert_null(strstr(said + 1, "enableServiceLinks"));
	assert_true(lines_said("2 variables"));
}

/* A stream is not waited for, and a thread is alone with what it does. */
UNIT_TEST(what_a_worker_cannot_do_is_refused)
{
	const struct kvpull_worker_ops *ops = kvpull_connector_v1()->worker;
	struct kvpull_open_params params = open_params("engine");
	struct kvpull_worker *worker = worker_open();

	assert_int_equal(ops->start_loads(worker, &params),
			 KVPULL_EUNSUPPORTED);
	assert_int_equal(ops->start_loads(worker, NULL), 0);
	assert_true(ops->progress(worker, 1) >= 0);
	ops->close(worker);
	params.config_json = "{\"progress\":\"thread\",\"copy_threads\":0}";
	assert_int_equal(ops->open(&params, &worker, NULL), 0);
	assert_int_equal(ops->progress(worker, 1), KVPULL_EINVAL);
	ops->close(worker);
}

/* Or consumers would map what is not there. */
UNIT_TEST(region_that_ends_after_its_memory_is_refused)
{
	const struct kvpull_worker_ops *ops = kvpull_connector_v1()->worker;
	struct kvpull_error_detail detail = { .struct_size = sizeof(detail) };
	struct kvpull_memory memory = { .struct_size = sizeof(memory) };
	struct kvpull_region region = { .struct_size = sizeof(region),
					.fd = -1 };
	const struct kvpull_regions regions = four_blocks_in(&region);
	struct kvpull_worker *worker = worker_open();

	assert_int_equal(ops->memory_alloc(worker, 8192, 0, &memory), 0);
	region.base = (uint8_t *)memory.base + 64;
	region.bytes = memory.bytes - 63;
	regions_refused(worker, &regions, "from one memory_alloc()");
	region.bytes = memory.bytes - 64;
	assert_int_equal(ops->regions_register(worker, &regions, &detail), 0);
	ops->close(worker);
}

/* Memory behind the caller's struct is the engine's. */
UNIT_TEST(finish_without_a_place_for_the_size_is_not_written)
{
	const struct kvpull_scheduler_ops *ops =
		kvpull_connector_v1()->scheduler;
	const struct kvpull_open_params params = open_params("engine");
	struct kvpull_finish finish = {
		.struct_size = offsetof(struct kvpull_finish, ticket_bytes),
		.key = 1,
		.ticket_bytes = 77,
	};
	struct kvpull_scheduler *scheduler;

	assert_int_equal(ops->open(&params, &scheduler, NULL), 0);
	assert_int_equal(ops->request_finished(scheduler, &finish),
			 KVPULL_FINISH_FREE);
	assert_int_equal(finish.ticket_bytes, 77);
	ops->close(scheduler);
}
