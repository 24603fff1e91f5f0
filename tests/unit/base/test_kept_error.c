/* SPDX-License-Identifier: Apache-2.0 */
/* The last error of an open() is its caller's detail, beside the log. */
#include <string.h>

#include "base/kept_error.h"
#include "base/params.h"
#include "tests/lib/unit.h"

static char written[256];
static uint32_t written_level;
static uint32_t lines;
static char fatal[256];
static int here; /* its address is the log's context */

static void host_write(void *context, uint32_t level, const char *message)
{
	assert_ptr_equal(context, &here);
	written_level = level;
	lines++;
	(void)snprintf(written, sizeof(written), "%s", message);
}

static void host_fatal(void *context, const char *message)
{
	assert_ptr_equal(context, &here);
	(void)snprintf(fatal, sizeof(fatal), "%s", message);
}

static struct kvpull_log log_of(uint32_t level)
{
	lines = 0;
	return (struct kvpull_log){ .write = host_write,
				    .fatal = host_fatal,
				    .context = &here,
				    .level = level };
}

UNIT_TEST(last_error_is_kept_and_still_logged)
{
	struct kvpull_log log = log_of(KVPULL_LOG_WARN);
	const struct kvpull_log before = log;
	struct kvpull_error_detail detail = { .struct_size = sizeof(detail) };
	struct kvpull_kept_error kept;

	kvpull_kept_begin(&log, &kept);
	kvpull_error(&log, "first %d", 1);
	kvpull_error(&log, "second %d", 2);
	kvpull_warn(&log, "a warning is no cause");
	kvpull_info(&log, "nobody asked for this");
	assert_int_equal(lines, 3);
	assert_int_equal(written_level, KVPULL_LOG_WARN);
	assert_string_equal(written, "a warning is no cause");
	assert_int_equal(kvpull_kept_end(&log, &kept, KVPULL_EDEVICE, &detail),
			 KVPULL_EDEVICE);
	assert_int_equal(detail.code, KVPULL_EDEVICE);
	assert_string_equal(detail.message, "second 2");
	assert_memory_equal(&log, &before, sizeof(log));
}

UNIT_TEST(error_without_a_line_says_where_to_look)
{
	struct kvpull_log log = log_of(KVPULL_LOG_ERROR);
	struct kvpull_error_detail detail = { .struct_size = sizeof(detail) };
	struct kvpull_kept_error kept;

	kvpull_kept_begin(&log, &kept);
	assert_int_equal(kvpull_kept_end(&log, &kept, 0, &detail), 0);
	assert_string_equal(detail.message, "");
	kvpull_kept_begin(&log, &kept);
	assert_int_equal(kvpull_kept_end(&log, &kept, KVPULL_ENOMEM, &detail),
			 KVPULL_ENOMEM);
	assert_string_equal(detail.message,
			    "an operation of this host failed: see the log");
}

/* A host without a log is told why in the detail. */
UNIT_TEST(error_is_kept_where_nothing_is_logged)
{
	struct kvpull_log log = { .level = KVPULL_LOG_ERROR - 1 };
	struct kvpull_error_detail detail = { .struct_size = sizeof(detail) };
	struct kvpull_kept_error kept;

	kvpull_kept_begin(&log, &kept);
	kvpull_error(&log, "nobody reads this line");
	kvpull_warn(&log, "nor this one");
	assert_int_equal(kvpull_kept_end(&log, &kept, KVPULL_EDEVICE, &detail),
			 KVPULL_EDEVICE);
	assert_string_equal(detail.message, "nobody reads this line");
	assert_null(log.write);
}

UNIT_TEST(failed_check_of_an_open_goes_to_the_host)
{
	struct kvpull_log log = log_of(KVPULL_LOG_ERROR);
	struct kvpull_kept_error kept;

	kvpull_kept_begin(&log, &kept);
	assert_non_null(log.fatal);
	log.fatal(log.context, "a block in use");
	assert_string_equal(fatal, "a block in use");
	(void)kvpull_kept_end(&log, &kept, 0, NULL);
	/* Without a callback of the host's nothing is called. */
	log.fatal = NULL;
	kvpull_kept_begin(&log, &kept);
	log.fatal(log.context, "another one");
	assert_string_equal(fatal, "a block in use");
}
