/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opens in a process that has as many mappings as vm.max_map_count allows: each
 * says so. Smaller tables and more threads would not help.
 */
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/lib/lines.h"
#include "tests/lib/maps.h"
#include "tests/unit/abi/world.h"

#define LIMIT "as many mappings as vm.max_map_count allows ("

static int worker_try(struct kvpull_error_detail *detail)
{
	const struct kvpull_open_params params = open_params("engine");
	struct kvpull_worker *worker;

	return kvpull_connector_v1()->worker->open(&params, &worker, detail);
}

static int scheduler_try(struct kvpull_error_detail *detail)
{
	const struct kvpull_open_params params = open_params("engine");
	struct kvpull_scheduler *scheduler;

	return kvpull_connector_v1()->scheduler->open(&params, &scheduler,
						      detail);
}

/* Memory of a worker that is open. */
static int memory_try(struct kvpull_worker *worker, char *line)
{
	struct kvpull_memory memory = { .struct_size = sizeof(memory) };
	const int code = kvpull_connector_v1()->worker->memory_alloc(
		worker, MAPS_PAGE, 0, &memory);

	return code == KVPULL_ENOMEM && strstr(line, LIMIT);
}

/* Return 0: each opening names the limit; 77: it cannot be tried; else which does not. */
static int openings_look(void)
{
	static const struct kvpull_host host = { .struct_size = sizeof(host),
						 .log = lines_keep };
	struct kvpull_error_detail detail = { .struct_size = sizeof(detail) };
	struct kvpull_open_params params = open_params("engine");
	struct kvpull_worker *worker;
	struct maps maps;

	params.host = &host;
	if (kvpull_connector_v1()->worker->open(&params, &worker, NULL))
		return 1;
	if (!maps_exhaust(&maps, 0))
		return 77;
	if (!memory_try(worker, lines.of[KVPULL_LOG_ERROR]))
		return 2;
	if (worker_try(&detail) != KVPULL_ENOMEM ||
	    !strstr(detail.message, LIMIT))
		return 3;
	if (scheduler_try(&detail) != KVPULL_ENOMEM ||
	    !strstr(detail.message, LIMIT))
		return 4;
	maps_restore(&maps);
	return worker_try(&detail) ? 5 : 0;
}

UNIT_TEST(open_without_mappings_names_their_limit)
{
	int status = 0;
	const pid_t child = fork();

	assert_true(child >= 0);
	if (!child)
		_exit(openings_look());
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status));
	if (WEXITSTATUS(status) == 77)
		skip();
	assert_int_equal(WEXITSTATUS(status), 0);
}
