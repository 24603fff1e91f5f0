/* SPDX-License-Identifier: Apache-2.0 */
/* An engine that leaves out what it says is there: an answer, never a crash. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kvpull/connector.h"

static const struct kvpull_group group = { .block_tokens = 16 };

static const struct kvpull_model model = { .struct_size = sizeof(model),
					   .model = "m",
					   .layer_count = 1,
					   .head_count = 1,
					   .head_bytes = 64 };

static uint32_t lines[KVPULL_LOG_DEBUG + 1];
static char last_warning[512];

static void log_line(void *context, uint32_t level, const char *message)
{
	(void)context;
	lines[level]++;
	if (level == KVPULL_LOG_WARN)
		(void)snprintf(last_warning, sizeof(last_warning), "%s",
			       message);
}

static struct kvpull_open_params open_params(const char *engine_id)
{
	return (struct kvpull_open_params){
		.struct_size = sizeof(struct kvpull_open_params),
		.config_json = "{\"progress\":\"caller\",\"copy_threads\":0}",
		.model = &model,
		.engine_id = engine_id,
		.tp_size = 1,
		.groups = &group,
		.group_count = 1,
	};
}

static void
both_halves_refuse_an_engine_id_that_no_ticket_may_have(void **state)
{
	static const char *const ids[] = {
		NULL,
		"",
		"a\nb",
		"0123456789012345678901234567890123456789012345678901234567890123",
	};
	const struct kvpull_connector_ops *ops = kvpull_connector_v1();
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(ids) / sizeof(ids[0]); i++) {
		const struct kvpull_open_params params = open_params(ids[i]);
		struct kvpull_error_detail detail = { .struct_size =
							      sizeof(detail) };
		struct kvpull_scheduler *scheduler = NULL;
		struct kvpull_worker *worker = NULL;

		assert_int_equal(
			ops->scheduler->open(&params, &scheduler, &detail),
			KVPULL_EINVAL);
		assert_string_equal(detail.field, "engine_id");
		assert_int_equal(ops->worker->open(&params, &worker, &detail),
				 KVPULL_EINVAL);
		assert_null(scheduler);
		assert_null(worker);
	}
}

static void blocks_that_are_not_there_are_refused(void **state)
{
	const struct kvpull_connector_ops *ops = kvpull_connector_v1();
	const struct kvpull_open_params params = open_params("engine");
	const struct kvpull_blocks nothing = { .block_count = 3 };
	struct kvpull_allocation allocation = {
		.struct_size = sizeof(allocation),
		.key = 1,
		.external_tokens = 16,
		.group_count = 1,
	};
	const struct kvpull_request request = { .struct_size = sizeof(request),
						.key = 1,
						.prompt_tokens = 16 };
	struct kvpull_scheduler *scheduler;

	(void)state;
	assert_int_equal(ops->scheduler->open(&params, &scheduler, NULL), 0);
	assert_int_equal(ops->scheduler->request_new(scheduler, &request), 0);
	assert_int_equal(ops->scheduler->allocated(scheduler, &allocation),
			 KVPULL_EINVAL);
	allocation.groups = &nothing;
	assert_int_equal(ops->scheduler->allocated(scheduler, &allocation),
			 KVPULL_EINVAL);
	ops->scheduler->close(scheduler);
}

static void regions_that_are_not_there_are_refused(void **state)
{
	const struct kvpull_connector_ops *ops = kvpull_connector_v1();
	const struct kvpull_open_params params = open_params("engine");
	const struct kvpull_regions regions = { .struct_size = sizeof(regions),
						.region_count = 1,
						.cache_count = 1 };
	struct kvpull_worker *worker;

	(void)state;
	assert_int_equal(ops->worker->open(&params, &worker, NULL), 0);
	assert_int_equal(ops->worker->regions_register(worker, &regions, NULL),
			 KVPULL_EINVAL);
	ops->worker->close(worker);
}

/* Lines of a worker's open and close: some at INFO, more at DEBUG. */
static void worker_lines(uint32_t host_level, const char *config_json)
{
	const struct kvpull_connector_ops *ops = kvpull_connector_v1();
	const struct kvpull_host host = { .struct_size = sizeof(host),
					  .log = log_line,
					  .log_level = host_level };
	struct kvpull_open_params params = open_params("engine");
	struct kvpull_worker *worker;

	memset(lines, 0, sizeof(lines));
	params.host = &host;
	params.config_json = config_json;
	assert_int_equal(ops->worker->open(&params, &worker, NULL), 0);
	ops->worker->close(worker);
}

static void key_log_level_goes_before_the_engines_own(void **state)
{
	(void)state;
	worker_lines(KVPULL_LOG_INFO, "{}");
	assert_true(lines[KVPULL_LOG_INFO] > 0);
	assert_int_equal(lines[KVPULL_LOG_DEBUG], 0);
	worker_lines(KVPULL_LOG_INFO, "{\"log_level\":\"warn\"}");
	assert_int_equal(lines[KVPULL_LOG_INFO], 0);
	worker_lines(KVPULL_LOG_WARN, "{\"log_level\":\"info\"}");
	assert_true(lines[KVPULL_LOG_INFO] > 0);
	worker_lines(KVPULL_LOG_WARN, "{}");
	assert_int_equal(lines[KVPULL_LOG_INFO], 0);
	worker_lines(0, "{}");
	assert_true(lines[KVPULL_LOG_INFO] > 0);
}

static void links_to_a_service_are_told_once_an_open(void **state)
{
	(void)state;
	assert_int_equal(setenv("KVPULL_PORT", "tcp://10.96.0.7:80", 1), 0);
	assert_int_equal(setenv("KVPULL_SERVICE_HOST", "10.96.0.7", 1), 0);
	last_warning[0] = '\0';
	worker_lines(KVPULL_LOG_WARN, "{\"route\":\"shm\"}");
	assert_int_equal(unsetenv("KVPULL_PORT"), 0);
	assert_int_equal(unsetenv("KVPULL_SERVICE_HOST"), 0);
	assert_int_equal(lines[KVPULL_LOG_WARN], 1);
	assert_non_null(strstr(last_warning, "2 variables"));
	assert_non_null(strstr(last_warning, "enableServiceLinks"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
			both_halves_refuse_an_engine_id_that_no_ticket_may_have),
		cmocka_unit_test(blocks_that_are_not_there_are_refused),
		cmocka_unit_test(regions_that_are_not_there_are_refused),
		cmocka_unit_test(key_log_level_goes_before_the_engines_own),
		cmocka_unit_test(links_to_a_service_are_told_once_an_open),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
