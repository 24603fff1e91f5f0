/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The choice of copy routines: named, remembered in the socket folder, or by
 * default.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kvpull/connector.h"
#include "shm/copy_choice.h"
#include "tests/lib/host.h"
#include "tests/lib/lines.h"
#include "tests/lib/unit.h"

#define STRANGER 12345u

struct world {
	char dir[64];
	char path[96];
	struct kvpull_folder folder;
	struct kvpull_log log;
};

static int up(void **state)
{
	static struct world world;

	world = (struct world){ .dir = "/tmp/kvpull-test-XXXXXX",
				.folder = { .path = world.dir, .fd = -1 },
				.log = lines_from(KVPULL_LOG_INFO) };
	lines_forget();
	/* The mode is then the one that a test gives its file. */
	(void)umask(022);
	if (!mkdtemp(world.dir))
		return -1;
	(void)snprintf(world.path, sizeof(world.path),
		       "%s/" KVPULL_COPY_CHOICE_FILE, world.dir);
	*state = &world;
	return kvpull_folder_open(&world.folder, &world.log);
}

static int down(void **state)
{
	struct world *world = *state;

	kvpull_folder_close(&world->folder);
	(void)unlink(world->path);
	(void)rmdir(world->path);
	return rmdir(world->dir);
}

/* No default has these. */
static struct kvpull_copy_choices unusual(void)
{
	struct kvpull_copy_choices choices;
	uint32_t count, class;
	const struct kvpull_copy_routine *all = kvpull_copy_routines(&count);

	for (class = 0; class < KVPULL_COPY_CLASSES; class ++)
		choices.routines[class] = &all[class % 2 && count > 1 ? 1 : 0];
	return choices;
}

static void remember(struct world *world)
{
	const struct kvpull_copy_choices choices = unusual();

	assert_int_equal(
		kvpull_copy_choice_save(&world->folder, &choices, &world->log),
		0);
}

static struct kvpull_copy_choices choose(struct world *world)
{
	struct kvpull_copy_choices choices;

	lines_forget();
	assert_int_equal(
		kvpull_copy_choose(NULL, &world->folder, &choices, &world->log),
		0);
	assert_int_equal(lines.counts[KVPULL_LOG_INFO], 1);
	assert_int_equal(lines.counts[KVPULL_LOG_ERROR], 0);
	return choices;
}

static void is_remembered(struct world *world)
{
	const struct kvpull_copy_choices wanted = unusual();
	const struct kvpull_copy_choices choices = choose(world);

	assert_memory_equal(&choices, &wanted, sizeof(wanted));
	assert_int_equal(lines.counts[KVPULL_LOG_WARN], 0);
	assert_non_null(strstr(lines.last, "remembered"));
}

/* A log line has the path and this reason, and then the default is used. */
static void is_ignored(struct world *world, const char *why)
{
	struct kvpull_copy_choices choices = unusual();

	lines_forget();
	assert_int_equal(
		kvpull_copy_choice_load(&world->folder, &choices, &world->log),
		KVPULL_EROUTE);
	assert_int_equal(lines.counts[KVPULL_LOG_WARN], 1);
	if (!strstr(lines.last, why) || !strstr(lines.last, world->path))
		fail_msg("\"%s\" does not say \"%s\"", lines.last, why);
	(void)choose(world);
	assert_int_equal(lines.counts[KVPULL_LOG_WARN], 1);
	assert_non_null(strstr(lines.last, "by default"));
}

static size_t file_get(const struct world *world, char *text, size_t capacity)
{
	FILE *file = fopen(world->path, "re");
	size_t bytes;

	assert_non_null(file);
	bytes = fread(text, 1, capacity, file);
	(void)fclose(file);
	return bytes;
}

static void file_put(const struct world *world, const char *text, size_t bytes)
{
	FILE *file = fopen(world->path, "we");

	assert_non_null(file);
	assert_int_equal(fwrite(text, 1, bytes, file), bytes);
	assert_int_equal(fclose(file), 0);
}

/* The file as it is written, but for one word in it. */
static void file_change(struct world *world, const char *from, const char *to)
{
	char text[1024] = "";
	char changed[2048];
	char *at;

	remember(world);
	(void)file_get(world, text, sizeof(text) - 1);
	at = strstr(text, from);
	assert_non_null(at);
	(void)snprintf(changed, sizeof(changed), "%.*s%s%s", (int)(at - text),
		       text, to, at + strlen(from));
	file_put(world, changed, strlen(changed));
}

#define TEST(name) UNIT_TEST_WITH(name, up, down)

TEST(without_a_file_the_default_is_used)
{
	struct world *world = *state;
	const struct kvpull_copy_choices choices = choose(world);

	assert_int_equal(lines.counts[KVPULL_LOG_WARN], 0);
	assert_non_null(strstr(lines.last, "by default"));
	assert_non_null(strstr(lines.last, choices.routines[0]->name));
	/* Where others are copied in lanes, short spans are not. */
	assert_int_equal(strstr(choices.routines[KVPULL_COPY_1K]->name,
				"-nt-next") != NULL,
			 strstr(choices.routines[KVPULL_COPY_4K]->name,
				"-nt-4") != NULL);
}

TEST(what_was_saved_is_used)
{
	struct world *world = *state;
	struct stat status;

	remember(world);
	is_remembered(world);
	assert_int_equal(stat(world->path, &status), 0);
	assert_int_equal(status.st_mode & 07777, 0644);
	/* Once more, over the first. */
	remember(world);
	is_remembered(world);
}

TEST(file_of_another_user_is_ignored)
{
	static const uint32_t friends[] = { STRANGER };
	struct world *world = *state;

	remember(world);
	if (chown(world->path, STRANGER, (gid_t)-1))
		skip(); /* root alone can give files away */
	is_ignored(world, "another user");
	/* A user that is believed as a peer is believed here. */
	world->folder.users.uids = friends;
	world->folder.users.uid_count = 1;
	is_remembered(world);
}

TEST(file_that_others_may_write_is_ignored)
{
	struct world *world = *state;

	remember(world);
	assert_int_equal(chmod(world->path, 0664), 0);
	is_ignored(world, "others may write");
	assert_int_equal(chmod(world->path, 0646), 0);
	is_ignored(world, "others may write");
	assert_int_equal(chmod(world->path, 0600), 0);
	is_remembered(world);
}

TEST(file_of_another_cpu_or_version_is_ignored)
{
	struct world *world = *state;

	file_change(world, "\ncpu ", "\ncpu x");
	is_ignored(world, "another CPU");
	file_change(world, "\nversion ", "\nversion 9");
	is_ignored(world, "another version");
}

/* As it was written when 4 KiB was the least size. */
TEST(file_with_other_sizes_is_ignored)
{
	struct world *world = *state;

	file_change(world, "routines: 1, 4,", "routines: 4,");
	is_ignored(world, "other sizes");
	file_change(world, "\nmemcpy", "");
	is_ignored(world, "other sizes");
}

TEST(garbage_is_ignored)
{
	struct world *world = *state;
	char text[1024] = "";
	size_t bytes;
	size_t cut;

	remember(world);
	bytes = file_get(world, text, sizeof(text));
	for (cut = 0; cut < bytes; cut++) {
		file_put(world, text, cut);
		is_ignored(world, "damaged");
	}
	text[bytes] = 'x';
	file_put(world, text, bytes + 1);
	is_ignored(world, "damaged");
	for (cut = 0; cut < bytes; cut++) {
		text[cut] = (char)(text[cut] ^ 0x20);
		file_put(world, text, bytes);
		is_ignored(world, "is ignored");
		text[cut] = (char)(text[cut] ^ 0x20);
	}
	text[bytes - 2] = '\0';
	file_put(world, text, bytes);
	is_ignored(world, "a routine that there is not");
	file_change(world, "memcpy", "memmove");
	is_ignored(world, "a routine that there is not");
}

TEST(what_is_no_small_plain_file_is_ignored)
{
	struct world *world = *state;
	char large[KVPULL_COPY_CHOICE_BYTES_MAX + 1];

	memset(large, '\n', sizeof(large));
	file_put(world, large, sizeof(large));
	is_ignored(world, "too large");
	(void)unlink(world->path);
	/* An open() would wait for a writer. */
	assert_int_equal(mkfifo(world->path, 0600), 0);
	(void)alarm(5);
	is_ignored(world, "no plain file");
	(void)alarm(0);
	(void)unlink(world->path);
	assert_int_equal(mkdir(world->path, 0700), 0);
	is_ignored(world, "no plain file");
	(void)rmdir(world->path);
	assert_int_equal(symlink("/etc/passwd", world->path), 0);
	is_ignored(world, strerror(ELOOP));
}

TEST(save_that_fails_leaves_nothing)
{
	struct world *world = *state;
	const struct kvpull_copy_choices choices = unusual();

	assert_int_equal(mkdir(world->path, 0700), 0);
	assert_int_equal(
		kvpull_copy_choice_save(&world->folder, &choices, &world->log),
		KVPULL_EDEVICE);
	assert_int_equal(lines.counts[KVPULL_LOG_ERROR], 1);
	assert_non_null(strstr(lines.last, world->path));
	/* down() finds an empty folder. */
}

TEST(routine_can_be_named)
{
	struct world *world = *state;
	struct kvpull_copy_choices choices;
	uint32_t class;

	remember(world);
	assert_int_equal(kvpull_copy_choose("memcpy", &world->folder, &choices,
					    &world->log),
			 0);
	for (class = 0; class < KVPULL_COPY_CLASSES; class ++)
		assert_string_equal(choices.routines[class]->name, "memcpy");
	assert_non_null(strstr(lines.last, "as copy_routine says"));
	assert_int_equal(kvpull_copy_choose("no-such", &world->folder, &choices,
					    &world->log),
			 KVPULL_EINVAL);
	assert_int_equal(lines.counts[KVPULL_LOG_ERROR], 1);
	assert_non_null(strstr(lines.last, "no-such"));
}

/* Through the ABI: what the key says, and what the folder remembers. */
static int worker_open(struct world *world, const char *routine,
		       struct kvpull_error_detail *detail)
{
	static const struct kvpull_group group = { .block_tokens = 16 };
	static const struct kvpull_model model = { .struct_size = sizeof(model),
						   .model = "m",
						   .dtype = "u8",
						   .layout = "LBHNC",
						   .layer_count = 1,
						   .head_count = 1,
						   .head_bytes = 64 };
	const struct kvpull_host host = { .struct_size = sizeof(host),
					  .log = lines_keep,
					  .log_level = KVPULL_LOG_INFO };
	char config[256];
	struct kvpull_open_params params =
		host_params("engine", config, &model, &group);
	const struct kvpull_worker_ops *ops = kvpull_connector_v1()->worker;
	struct kvpull_worker *worker = NULL;
	int code;

	params.host = &host;
	(void)snprintf(config, sizeof(config),
		       "{\"route\":\"shm\",\"max_holds\":64,\"status\":\"off\","
		       "\"socket_dir\":\"%s\",\"copy_routine\":\"%s\"}",
		       world->dir, routine);
	*detail =
		(struct kvpull_error_detail){ .struct_size = sizeof(*detail) };
	lines_forget();
	code = ops->open(&params, &worker, detail);
	ops->close(worker);
	return code;
}

TEST(open_says_what_it_uses)
{
	struct world *world = *state;
	struct kvpull_error_detail detail;

	assert_int_equal(worker_open(world, "no-such", &detail), KVPULL_EINVAL);
	assert_non_null(strstr(detail.message, "no-such"));
	assert_int_equal(worker_open(world, "memcpy", &detail), 0);
	assert_true(lines_said("as copy_routine says"));
	assert_int_equal(worker_open(world, "", &detail), 0);
	assert_true(lines_said("by default"));
	remember(world);
	assert_int_equal(worker_open(world, "", &detail), 0);
	assert_true(lines_said("remembered"));
	/* No folder, no memory: the first worker makes it later. */
	down(state);
	assert_int_equal(worker_open(world, "", &detail), 0);
	assert_true(lines_said("by default"));
	assert_int_equal(mkdir(world->dir, 0700), 0);
}
