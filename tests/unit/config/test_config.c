/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every key by a table that repeats the promise of config.h, not config.c's.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/lib/unit.h"
#include "tests/unit/config/world.h"
#include "verbs/setup.h"

struct number {
	const char *name;
	size_t offset;
	size_t bytes;
	uint64_t value;
	uint64_t min;
	uint64_t max;
};

#define NUMBER(member, value, min, max)                                        \
	{                                                                      \
#member, offsetof(struct kvpull_config, member),               \
			sizeof(((struct kvpull_config *)0)->member), value,    \
			min, max                                               \
	}

/* clang-format off */
static const struct number numbers[] = {
	NUMBER(lease_ms, 30000, 10, 3600000),
	NUMBER(hold_max_ms, 480000, 10, 86400000),
	NUMBER(max_holds, 65536, 1, 1048576),
	NUMBER(families_max, 8192, 1, 1048576),
	NUMBER(tickets_max, 4096, 1, 65536),
	NUMBER(requests_max, 16384, 1, 1048576),
	NUMBER(step_log_mib, 64, 1, 4096),
	NUMBER(copy_threads, 1, 0, 16),
	NUMBER(inline_bytes, 65536, 0, 131072),
	NUMBER(pulls_max, 512, 1, 65536),
	NUMBER(pull_blocks_max, 32768, 1, 65536),
	NUMBER(peers_max, 64, 1, 4096),
	NUMBER(consumers_max, 64, 1, 4096),
	NUMBER(ring_records, 4096, 16, 1048576),
	NUMBER(deadline_ms, 0, 0, 3600000),
	NUMBER(flush_after_ms, 100, 1, 60000),
	NUMBER(grace_ms, 0, 0, 3600000),
	NUMBER(connect_ms, 5000, 10, 600000),
	NUMBER(verbs_rails, 0, 0, 8),
	NUMBER(verbs_qps, 1, 1, 4),
	NUMBER(verbs_port, 0, 0, 255),
	NUMBER(verbs_gid_index, 65535, 0, 65535),
	NUMBER(verbs_listen_port, 0, 0, 65535),
	NUMBER(verbs_depth, 256, 4, 16384),
	NUMBER(verbs_batch, 128, 1, 128),
	NUMBER(verbs_rd_atomic, 16, 1, 255),
	NUMBER(verbs_credits, 32, 4, 4096),
	NUMBER(verbs_retry_count, 6, 1, 6),
	NUMBER(verbs_ack_timeout, 14, 8, 21),
	NUMBER(verbs_traffic_class, 0, 0, 255),
	NUMBER(verbs_slice_bytes, 1048576, 4096, 1073741824),
	NUMBER(verbs_window_bytes, 16777216, 65536, 4294967296),
};
/* clang-format on */

#define NUMBERS (sizeof(numbers) / sizeof(numbers[0]))

static uint32_t word_at(size_t offset)
{
	uint32_t word;

	memcpy(&word, (const uint8_t *)&config + offset, sizeof(word));
	return word;
}

static uint64_t number_of(const struct number *number)
{
	const uint8_t *member = (const uint8_t *)&config + number->offset;
	uint64_t wide;

	if (number->bytes == sizeof(wide)) {
		memcpy(&wide, member, sizeof(wide));
		return wide;
	}
	return word_at(number->offset);
}

static void variable_of(const char *name, char *variable, size_t capacity)
{
	size_t i;

	(void)snprintf(variable, capacity, "KVPULL_%s", name);
	for (i = 0; variable[i]; i++)
		if (variable[i] >= 'a' && variable[i] <= 'z')
			variable[i] = (char)(variable[i] - 'a' + 'A');
}

UNIT_TEST(defaults_are_as_promised)
{
	char folder[64];
	size_t i;

	loads(NULL);
	for (i = 0; i < NUMBERS; i++)
		assert_int_equal(number_of(&numbers[i]), numbers[i].value);
	assert_int_equal(config.key_set, 0);
	assert_int_equal(config.log_level, KVPULL_LOG_INFO);
	assert_int_equal(config.share_prefix, 1);
	assert_int_equal(config.siblings_alone, 0);
	assert_int_equal(config.abort_revokes, 0);
	assert_int_equal(config.progress, KVPULL_PROGRESS_THREAD);
	assert_int_equal(config.route, KVPULL_ROUTE_AUTO);
	assert_int_equal(config.uring, KVPULL_AUTO);
	assert_int_equal(config.huge, KVPULL_AUTO);
	assert_int_equal(config.uid_count, 1);
	assert_int_equal(config.uids[0], geteuid());
	(void)snprintf(folder, sizeof(folder), "/tmp/kvpull-%u", geteuid());
	assert_string_equal(config.socket_dir, folder);
}

/* Tests that open the route alone get the values of the keys. */
UNIT_TEST(defaults_of_verbs_are_those_of_its_keys)
{
	struct kvpull_verbs_params params = { .rails = 0 };

	loads(NULL);
	kvpull_verbs_setup_defaults(&params);
	assert_int_equal(params.notify_credits, config.verbs_credits);
	assert_int_equal(params.qps, config.verbs_qps);
	assert_int_equal(params.depth, config.verbs_depth);
	assert_int_equal(params.batch, config.verbs_batch);
	assert_int_equal(params.rd_atomic, config.verbs_rd_atomic);
	assert_int_equal(params.retry_count, config.verbs_retry_count);
	assert_int_equal(params.ack_timeout, config.verbs_ack_timeout);
	assert_int_equal(params.slice_bytes, config.verbs_slice_bytes);
	assert_int_equal(params.window_bytes, config.verbs_window_bytes);
	assert_int_equal(params.connect_ns, config.connect_ms * 1000000);
	assert_int_equal(params.flush_ns, config.flush_after_ms * 1000000);
	/* 1 GiB: a larger one is slower to read into. */
	assert_int_equal(params.mr_shift, 30);
}

/* Set one number by either way; hold_max_ms never stands in the way. */
static int number_load(const struct number *number, uint64_t value,
		       const char *variable)
{
	const char *with = strcmp(number->name, "lease_ms") ?
				   "\"lease_ms\": 10" :
				   "\"hold_max_ms\": 86400000";
	char text[32];
	char json[128];
	int rc;

	(void)snprintf(text, sizeof(text), "%" PRIu64, value);
	if (!variable) {
		(void)snprintf(json, sizeof(json), "{%s, \"%s\": %s}", with,
			       number->name, text);
		return load(json);
	}
	(void)snprintf(json, sizeof(json), "{%s}", with);
	assert_int_equal(setenv(variable, text, 1), 0);
	rc = load(json);
	assert_int_equal(unsetenv(variable), 0);
	return rc;
}

static void number_is_bounded(const struct number *number, const char *variable)
{
	char range[64];

	assert_int_equal(number_load(number, number->min, variable), 0);
	assert_int_equal(number_of(number), number->min);
	assert_int_equal(number_load(number, number->max, variable), 0);
	assert_int_equal(number_of(number), number->max);
	(void)snprintf(range, sizeof(range), "%" PRIu64 " .. %" PRIu64,
		       number->min, number->max);
	if (number->min)
		assert_refused(number_load(number, number->min - 1, variable),
			       number->name, range);
	assert_refused(number_load(number, number->max + 1, variable),
		       number->name, range);
	(void)snprintf(range, sizeof(range), "%s %" PRIu64, number->name,
		       number->max + 1);
	assert_non_null(strstr(detail.message, range));
	assert_refused(number_load(number, INT64_MAX, variable), number->name,
		       "9223372036854775807");
}

UNIT_TEST(numbers_take_min_and_max_and_nothing_beyond)
{
	char variable[64];
	size_t i;

	for (i = 0; i < NUMBERS; i++) {
		variable_of(numbers[i].name, variable, sizeof(variable));
		number_is_bounded(&numbers[i], NULL);
		number_is_bounded(&numbers[i], variable);
	}
}

UNIT_TEST(numbers_of_another_type_are_refused)
{
	static const char *const json[] = { "-1",   "1.0",   "\"100\"", "true",
					    "null", "[100]", "{}",      "1e3" };
	static const char *const text[] = { "",
					    "-1",
					    "+1",
					    " 1",
					    "1 ",
					    "0x10",
					    "1.0",
					    "1e3",
					    "one",
					    "18446744073709551616",
					    "18446744073709551716",
					    "99999999999999999999999" };
	char variable[64];
	size_t i;
	size_t k;

	for (i = 0; i < NUMBERS; i++) {
		variable_of(numbers[i].name, variable, sizeof(variable));
		for (k = 0; k < sizeof(json) / sizeof(json[0]); k++)
			refused_one(numbers[i].name, json[k], "JSON");
		for (k = 0; k < sizeof(text) / sizeof(text[0]); k++)
			refused_variable(variable, text[k], numbers[i].name,
					 variable);
	}
}

UNIT_TEST(ring_records_are_a_power_of_two)
{
	loads_one("ring_records", "32");
	assert_int_equal(config.ring_records, 32);
	refused_one("ring_records", "48", "power of two");
	refused_one("ring_records", "31", "power of two");
}

UNIT_TEST(hold_max_below_the_lease_is_refused)
{
	loads("{\"lease_ms\": 900, \"hold_max_ms\": 900}");
	assert_refused(load("{\"lease_ms\": 900, \"hold_max_ms\": 899}"),
		       "hold_max_ms", "900");
	assert_non_null(strstr(detail.message, "899"));
	assert_refused(load_one("lease_ms", "480001"), "hold_max_ms", "480000");
}

static const struct {
	const char *name;
	size_t offset;
	const char *word;
	uint32_t value;
} choices[] = {
#define CHOICE(member, word, value)                                            \
	{                                                                      \
#member, offsetof(struct kvpull_config, member), word, value   \
	}
	CHOICE(log_level, "error", KVPULL_LOG_ERROR),
	CHOICE(log_level, "warn", KVPULL_LOG_WARN),
	CHOICE(log_level, "info", KVPULL_LOG_INFO),
	CHOICE(log_level, "debug", KVPULL_LOG_DEBUG),
	CHOICE(progress, "thread", KVPULL_PROGRESS_THREAD),
	CHOICE(progress, "caller", KVPULL_PROGRESS_CALLER),
	CHOICE(progress_copies, "auto", KVPULL_AUTO),
	CHOICE(progress_copies, "no", KVPULL_OFF),
	CHOICE(progress_copies, "yes", KVPULL_ON),
	CHOICE(route, "auto", KVPULL_ROUTE_AUTO),
	CHOICE(route, "shm", KVPULL_ROUTE_PIN_SHM),
	CHOICE(route, "verbs", KVPULL_ROUTE_PIN_VERBS),
	CHOICE(uring, "auto", KVPULL_AUTO),
	CHOICE(uring, "no", KVPULL_OFF),
	CHOICE(device_flush, "always", KVPULL_DEVICE_FLUSH_ALWAYS),
	CHOICE(device_flush, "auto", KVPULL_DEVICE_FLUSH_AUTO),
	CHOICE(device_flush, "driver", KVPULL_DEVICE_FLUSH_DRIVER),
	CHOICE(device, "off", KVPULL_DEVICE_OFF),
	CHOICE(device, "auto", KVPULL_DEVICE_AUTO),
	CHOICE(device, "required", KVPULL_DEVICE_REQUIRED),
	CHOICE(huge, "auto", KVPULL_AUTO),
	CHOICE(huge, "no", KVPULL_OFF),
#undef CHOICE
};

UNIT_TEST(choices_take_their_words_and_no_others)
{
	static const char *const bad[] = { "",    "AUTO",    "auto ",
					   "inf", "auto no", "1" };
	char variable[64];
	char quoted[64];
	size_t i;
	size_t k;

	for (i = 0; i < sizeof(choices) / sizeof(choices[0]); i++) {
		(void)snprintf(quoted, sizeof(quoted), "\"%s\"",
			       choices[i].word);
		variable_of(choices[i].name, variable, sizeof(variable));
		loads_one(choices[i].name, quoted);
		assert_int_equal(word_at(choices[i].offset), choices[i].value);
		loads_variable(variable, choices[i].word);
		assert_int_equal(word_at(choices[i].offset), choices[i].value);
		refused_one(choices[i].name, "1", choices[i].word);
		for (k = 0; k < sizeof(bad) / sizeof(bad[0]); k++)
			refused_variable(variable, bad[k], choices[i].name,
					 choices[i].word);
	}
}

#define SWITCH(member)                                                         \
	{                                                                      \
#member, offsetof(struct kvpull_config, member)                \
	}

UNIT_TEST(switches_are_booleans)
{
	static const struct {
		const char *name;
		size_t offset;
	} switches[] = {
		SWITCH(share_prefix),
		SWITCH(siblings_alone),
		SWITCH(abort_revokes),
	};
	static const char *const words[] = { "false", "true", "0", "1" };
	char variable[64];
	size_t i;
	uint32_t k;

	for (i = 0; i < 3; i++) {
		variable_of(switches[i].name, variable, sizeof(variable));
		for (k = 0; k < 4; k++) {
			loads_variable(variable, words[k]);
			assert_int_equal(word_at(switches[i].offset), k % 2);
			if (k > 1) {
				refused_one(switches[i].name, words[k],
					    "true or false");
				continue;
			}
			loads_one(switches[i].name, words[k]);
			assert_int_equal(word_at(switches[i].offset), k % 2);
		}
		refused_variable(variable, "yes", switches[i].name,
				 "true or false");
	}
}

UNIT_TEST(json_wins_over_the_environment)
{
	assert_int_equal(setenv("KVPULL_LEASE_MS", "2000", 1), 0);
	assert_int_equal(setenv("KVPULL_PULLS_MAX", "7", 1), 0);
	assert_int_equal(setenv("KVPULL_UIDS", "1,2,3", 1), 0);
	loads("{\"lease_ms\": 3000, \"uids\": [9]}");
	assert_int_equal(config.lease_ms, 3000);
	assert_int_equal(config.pulls_max, 7);
	assert_int_equal(config.uid_count, 1);
	assert_int_equal(config.uids[0], 9);
	loads(NULL);
	assert_int_equal(config.lease_ms, 2000);
	assert_int_equal(config.uid_count, 3);
	assert_int_equal(unsetenv("KVPULL_LEASE_MS"), 0);
	assert_int_equal(unsetenv("KVPULL_PULLS_MAX"), 0);
	assert_int_equal(unsetenv("KVPULL_UIDS"), 0);
}

UNIT_TEST(unknown_keys_name_the_nearest)
{
	static const char *const pairs[][2] = {
		{ "lease", "lease_ms" },       { "leese_ms", "lease_ms" },
		{ "Lease_MS", "lease_ms" },    { "hold_max", "hold_max_ms" },
		{ "routes", "route" },         { "max_hold", "max_holds" },
		{ "hugepages", "huge" },       { "log_levl", "log_level" },
		{ "socketdir", "socket_dir" }, { "keyfile", "key_file" },
	};
	char words[64];
	size_t i;

	for (i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
		(void)snprintf(words, sizeof(words), "did you mean %s",
			       pairs[i][1]);
		refused_one(pairs[i][0], "1", words);
		assert_non_null(strstr(detail.message, pairs[i][0]));
	}
}

UNIT_TEST(unknown_variables_name_the_nearest)
{
	char name[300];

	refused_variable("KVPULL_LEASE", "1", "KVPULL_LEASE",
			 "did you mean KVPULL_LEASE_MS");
	refused_variable("KVPULL_lease_ms", "1", "KVPULL_lease_ms",
			 "did you mean KVPULL_LEASE_MS");
	refused_variable("KVPULL_", "1", "KVPULL_", "did you mean KVPULL_");
	memset(name, 'X', sizeof(name));
	memcpy(name, "KVPULL_", 7);
	name[sizeof(name) - 1] = '\0';
	assert_int_equal(load_variable(name, "1"), KVPULL_ECONFIG);
}

UNIT_TEST(other_variables_are_not_ours)
{
	loads_variable("KVPULL_TEST_SEED", "1");
	loads_variable("KVPULLER", "1");
	loads_variable("MY_KVPULL_LEASE", "1");
}

UNIT_TEST(bad_json_tells_its_position)
{
	assert_refused(load("{\n  \"lease_ms\": 10,\n}"), "config_json",
		       "line 3 column 1");
	assert_refused(load(""), "config_json", "line 1");
	assert_refused(load("{} {}"), "config_json", "line 1");
	assert_refused(load("[1]"), "config_json", "object");
	assert_refused(load("{\"lease_ms\": 10, \"lease_ms\": 20}"),
		       "config_json", "duplicate");
	assert_refused(load_one("lease_ms", "99999999999999999999"),
		       "config_json", "big");
}

UNIT_TEST(nothing_is_written_on_error)
{
	struct kvpull_config before;

	memset(&config, 0x5a, sizeof(config));
	memcpy(&before, &config, sizeof(config));
	assert_int_equal(load_one("lease_ms", "1"), KVPULL_ECONFIG);
	assert_memory_equal(&config, &before, sizeof(config));
	assert_int_equal(kvpull_config_load(&config, "{", NULL),
			 KVPULL_ECONFIG);
	assert_memory_equal(&config, &before, sizeof(config));
}

UNIT_TEST(uids_are_a_list_of_one_to_eight)
{
	static const char *const bad_json[] = {
		"[]",    "1000",         "\"1000\"", "[-1]",
		"[1.5]", "[4294967295]", "[\"1\"]",  "[1,2,3,4,5,6,7,8,9]"
	};
	static const char *const bad_text[] = {
		"",     ",", "1,",         ",1",
		"1 ,2", "a", "4294967295", "1,2,3,4,5,6,7,8,9"
	};
	size_t i;

	loads_one("uids", "[0, 4294967294]");
	assert_int_equal(config.uid_count, 2);
	assert_int_equal(config.uids[0], 0);
	assert_int_equal(config.uids[1], 4294967294);
	loads_one("uids", "[1,2,3,4,5,6,7,8]");
	assert_int_equal(config.uid_count, 8);
	loads_variable("KVPULL_UIDS", "1,2,3,4,5,6,7,8");
	assert_int_equal(config.uid_count, 8);
	assert_int_equal(config.uids[7], 8);
	for (i = 0; i < sizeof(bad_json) / sizeof(bad_json[0]); i++)
		refused_one("uids", bad_json[i], "1 .. 8 numbers");
	for (i = 0; i < sizeof(bad_text) / sizeof(bad_text[0]); i++)
		refused_variable("KVPULL_UIDS", bad_text[i], "uids",
				 "1 .. 8 numbers");
}

UNIT_TEST(folders_are_absolute_and_fit)
{
	static const char *const bad[] = { "", "relative", "/a;b", "/a\nb" };
	char folder[97];
	char quoted[128];
	size_t i;

	memset(folder, 'x', sizeof(folder));
	folder[0] = '/';
	folder[96] = '\0';
	refused_variable("KVPULL_SOCKET_DIR", folder, "socket_dir", "95 bytes");
	folder[95] = '\0';
	loads_variable("KVPULL_SOCKET_DIR", folder);
	assert_string_equal(config.socket_dir, folder);
	(void)snprintf(quoted, sizeof(quoted), "\"%s\"", folder);
	loads_one("socket_dir", quoted);
	assert_string_equal(config.socket_dir, folder);
	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		refused_variable("KVPULL_SOCKET_DIR", bad[i], "socket_dir",
				 "absolute path");
	assert_null(strchr(detail.message, '\n'));
	refused_one("socket_dir", "7", "absolute path");
}

/* A file of byte_count bytes 0, 1, 2 ... and its path. */
static void key_write(char *path, size_t byte_count, mode_t mode)
{
	uint8_t bytes[64];
	size_t i;
	int fd;

	(void)snprintf(path, 64, "/tmp/kvpull-test-key-XXXXXX");
	fd = mkstemp(path);
	assert_true(fd >= 0);
	for (i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)i;
	assert_int_equal(write(fd, bytes, byte_count), byte_count);
	assert_int_equal(fchmod(fd, mode), 0);
	assert_int_equal(close(fd), 0);
}

static int load_key(const char *path)
{
	char quoted[256];

	(void)snprintf(quoted, sizeof(quoted), "\"%s\"", path);
	return load_one("key_file", quoted);
}

UNIT_TEST(key_file_is_read)
{
	char path[64];
	char link[80];
	uint32_t i;

	key_write(path, 32, 0600);
	(void)snprintf(link, sizeof(link), "%s-link", path);
	assert_int_equal(symlink(path, link), 0);
	assert_int_equal(load_key(path), 0);
	assert_int_equal(config.key_set, 1);
	for (i = 0; i < 32; i++)
		assert_int_equal(config.key[i], i);
	assert_int_equal(load_key(link), 0);
	loads_variable("KVPULL_KEY_FILE", path);
	assert_int_equal(config.key_set, 1);
	assert_int_equal(chmod(path, 0400), 0);
	assert_int_equal(load_key(path), 0);
	loads_variable("KVPULL_KEY_FILE", "");
	assert_int_equal(config.key_set, 0);
	assert_int_equal(unlink(link), 0);
	assert_int_equal(unlink(path), 0);
}

UNIT_TEST(json_key_file_hides_a_bad_one_of_the_environment)
{
	char path[64];

	key_write(path, 32, 0600);
	assert_int_equal(setenv("KVPULL_KEY_FILE", "/nowhere/key", 1), 0);
	assert_int_equal(load_key(path), 0);
	assert_refused(load(NULL), "key_file", "/nowhere/key");
	assert_int_equal(unsetenv("KVPULL_KEY_FILE"), 0);
	assert_int_equal(unlink(path), 0);
}

UNIT_TEST(key_file_with_descriptor_0_is_read)
{
	char path[64];
	int input;
	int rc;

	key_write(path, 32, 0600);
	input = input_close();
	rc = load_key(path);
	input_open(input);
	assert_int_equal(rc, 0);
	assert_int_equal(unlink(path), 0);
}

/* execve() passes any text on. */
UNIT_TEST(variable_without_a_value_is_refused)
{
	static char nothing[] = "KVPULL_ROUTE\0shm";
	char *variables[] = { nothing, NULL };
	char **before = environ;
	int rc;

	environ = variables;
	rc = load(NULL);
	environ = before;
	assert_refused(rc, "KVPULL_ROUTE", "unknown variable");
}

UNIT_TEST(key_file_open_to_others_is_refused)
{
	static const mode_t modes[] = { 0640, 0604, 0620, 0602,
					0610, 0601, 0644, 0666 };
	char path[64];
	char line[128];
	size_t i;

	for (i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
		key_write(path, 32, modes[i]);
		(void)snprintf(line, sizeof(line),
			       "key_file %s is open to group or others", path);
		assert_refused(load_key(path), "key_file", line);
		assert_int_equal(unlink(path), 0);
	}
}

UNIT_TEST(key_file_of_another_size_or_kind_is_refused)
{
	static const size_t sizes[] = { 0, 31, 33, 64 };
	char path[64];
	size_t i;

	for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		key_write(path, sizes[i], 0600);
		assert_refused(load_key(path), "key_file", "exactly 32 bytes");
		assert_int_equal(unlink(path), 0);
	}
	assert_int_equal(mkfifo(path, 0600), 0);
	assert_refused(load_key(path), "key_file", "regular file");
	assert_int_equal(unlink(path), 0);
	assert_refused(load_key(path), "key_file", "No such file");
	assert_refused(load_key("/tmp"), "key_file", "regular file");
	refused_one("key_file", "7", "path");
}

UNIT_TEST(texts_are_bounded_and_networks_must_be_some)
{
	char text[515] = "\"";

	loads_one("verbs_device", "\"mlx5_0,mlx5_1\"");
	assert_string_equal(config.verbs_device, "mlx5_0,mlx5_1");
	assert_string_equal(config.networks, "");
	memset(text + 1, 'x', 512);
	text[513] = '"';
	refused_one("verbs_device", text, "at most 511 bytes");
	loads_one("networks", "\"10.0.0.0/8,fd00::/8\"");
	assert_string_equal(config.networks, "10.0.0.0/8,fd00::/8");
	refused_one("networks", "\"10.0.0.0\"", "10.0.0.0/8");
	loads_one("verbs_device", "\"mlx5_0,mlx5_1;mlx5_*\"");
	assert_string_equal(config.verbs_device, "mlx5_0,mlx5_1;mlx5_*");
	refused_one("verbs_device", "\"mlx5_0\\nx\"", "no control characters");
}

int main(void)
{
	return unit_run(environment_clear, NULL);
}
