/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvpull_top on status files of workers that live in this process: whom its
 * findings name, and what its screens show.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "plugin/counters/counters.h"
#include "tests/lib/unit.h"
#include "tools/kvpull_top_parts.h"

#define LONG_ID "0af3b2d4-5c6e-47f8-9a0b-1c2d3e4f5a6b_dp0"
#define DAY_NS (86400 * KVPULL_NS_PER_S)

struct world {
	char folder[64];
	struct kvpull_config config;
	struct kvpull_status p;
	struct top_options options;
	struct top top;
	char *screen;
	size_t screen_bytes;
};

static int up(void **state)
{
	struct world *world = calloc(1, sizeof(*world));
	char text[160];

	(void)snprintf(world->folder, sizeof(world->folder),
		       "/dev/shm/test-top-XXXXXX");
	if (!mkdtemp(world->folder))
		return -1;
	(void)snprintf(text, sizeof(text),
		       "{\"socket_dir\":\"%s\",\"max_holds\":100}",
		       world->folder);
	world->options.uid = -1;
	world->options.folders[world->options.folder_count++] = world->folder;
	*state = world;
	return kvpull_config_load(&world->config, text, NULL);
}

static int down(void **state)
{
	struct world *world = *state;
	char command[128];

	top_free(&world->top);
	kvpull_status_close(&world->p);
	free(world->screen);
	(void)snprintf(command, sizeof(command), "rm -rf %s", world->folder);
	free(world);
	/* NOLINTNEXTLINE(cert-env33-c): a folder that mkdtemp() named. */
	return system(command);
}

/* A worker that polled just now. */
static void open_as(struct world *world, struct kvpull_status *status,
		    const char *engine, uint64_t incarnation)
{
	const struct kvpull_status_params params = {
		.config = &world->config,
		.engine_id = engine,
		.incarnation = incarnation,
		.now_ns = kvpull_clock_ns(),
		.rank_count = 1,
		.caller_count_max = 8,
		.peer_count_max = 8,
		.kind = KVPULL_STATUS_OF_WORKER,
	};

	assert_int_equal(kvpull_status_open(status, &params), 0);
	assert_string_not_equal(status->path, "");
	kvpull_status_ran(&status->engine, kvpull_clock_ns());
	kvpull_status_ran(&status->progress, kvpull_clock_ns());
}

#define TEST(name) UNIT_TEST_OF(name, struct world, world, up, down)

static int up_with_p(void **state)
{
	const int code = up(state);
	struct world *world = *state;

	open_as(world, &world->p, "prefill", 1);
	return code;
}

/* Likewise, beside a worker P. */
#define P_TEST(name) UNIT_TEST_OF(name, struct world, world, up_with_p, down)

/* A consumer in row 0 of P's file, whose place in P's table is 1. */
static void consumer_joins(struct world *world, const char *engine)
{
	struct kvpull_status_consumer *row = &world->p.consumers[0];

	kvpull_status_text(row->engine_id, sizeof(row->engine_id), engine);
	kvpull_status_text(row->route, sizeof(row->route), "shm");
	row->pid = 4711;
	row->rank_count = 1;
	kvpull_status_set(&row->since_ns, kvpull_clock_ns());
	kvpull_status_set(&row->state, KVPULL_SHOWN_HERE);
	kvpull_status_set(&world->p.words[0].joined, 1);
	kvpull_status_set(&world->p.words[0].heard_ns, kvpull_clock_ns());
}

/* P takes a hold of that age, with slot + 1 blocks. */
static void hold_take(struct world *world, uint32_t slot, uint64_t age_ns,
		      uint16_t joined)
{
	struct kvpull_status_holds *holds = &world->p.holds;
	char label[KVPULL_STATUS_LABEL_BYTES];

	(void)snprintf(label, sizeof(label), "request-%u", slot);
	kvpull_status_label(holds->rows[slot].label, label);
	kvpull_status_set(&holds->rows[slot].taken_ns,
			  kvpull_clock_ns() - age_ns);
	kvpull_status_set(&holds->rows[slot].key, 1000 + slot);
	kvpull_status_set(&holds->now[slot].blocks, slot + 1);
	kvpull_status_set(&holds->now[slot].joined, joined);
	kvpull_status_set(&holds->held[slot / 64],
			  kvpull_status_get(&holds->held[slot / 64]) |
				  UINT64_C(1) << slot % 64);
	kvpull_status_set(&world->p.engine.thread->holds_high, slot + 1);
}

/* As after a kill -9: the file stays, and no lock lies on it. */
static void process_ends(struct kvpull_status *status)
{
	(void)munmap(status->base, status->bytes);
	memset(status, 0, sizeof(*status));
}

static void look(struct world *world)
{
	top_free(&world->top);
	top_look(&world->top, NULL, &world->options);
}

static void p_is_gone(struct world *world)
{
	process_ends(&world->p);
	look(world);
}

static const struct top_finding *finding(const struct world *world,
					 const char *what)
{
	uint32_t at;

	for (at = 0; at < world->top.finding_count; at++)
		if (!strcmp(world->top.findings[at].what, what))
			return &world->top.findings[at];
	return NULL;
}

/* The screen as text; its lines are in the view's size. */
static const char *draw(struct world *world, struct top_view *view)
{
	FILE *out;

	free(world->screen);
	out = open_memstream(&world->screen, &world->screen_bytes);
	assert_non_null(out);
	top_screen(&world->top, view, out);
	(void)fclose(out);
	return world->screen;
}

static void has(const char *text, const char *words)
{
	if (!strstr(text, words))
		fail_msg("no \"%s\" in\n%s", words, text);
}

static void lacks(const char *text, const char *words)
{
	if (strstr(text, words))
		fail_msg("\"%s\" in\n%s", words, text);
}

/* Looked at anew. */
static void shows(struct world *world, struct top_view *view, const char *words)
{
	look(world);
	has(draw(world, view), words);
}

static void stands_before(const char *text, const char *first,
			  const char *second)
{
	assert_true(strstr(text, first) < strstr(text, second));
}

UNIT_TEST(long_text_is_broken_between_words)
{
	assert_int_equal(top_wrap("one two three", 13), 13);
	assert_int_equal(top_wrap("one two three", 12), 7);
	assert_int_equal(top_wrap("one two three", 7), 7);
	assert_int_equal(top_wrap("one two three", 6), 3);
	/* A word that is longer than the line. */
	assert_int_equal(top_wrap("abcdefgh ij", 5), 5);
}

P_TEST(claimant_is_whole_at_80_columns)
{
	struct top_view view = { .shown = TOP_HOLDS,
				 .columns = 80,
				 .lines = 24 };

	consumer_joins(world, LONG_ID);
	hold_take(world, 0, KVPULL_NS_PER_S, 1);
	shows(world, &view, " " LONG_ID "    4711");
	has(world->screen, "request-0 ");
	lacks(world->screen, "KEY");
	view.columns = 200;
	has(draw(world, &view), "KEY");
	/* In a narrow one its end stays. */
	view.columns = 60;
	has(draw(world, &view), "~_dp0\r\n");
}

P_TEST(keys_stand_below_and_lines_scroll)
{
	struct top_view view = { .shown = TOP_HOLDS,
				 .columns = 80,
				 .lines = 12 };
	uint32_t slot;

	for (slot = 0; slot < 40; slot++)
		hold_take(world, slot, (40 - slot) * KVPULL_NS_PER_S / 2, 0);
	shows(world, &view, "\r\n1-9 of 40  q end  ? help ");
	has(world->screen, "request-0 ");
	lacks(world->screen, "request-9 ");
	view.scroll = 10;
	has(draw(world, &view), "11-19 of 40  ");
	has(world->screen, "OLDEST HOLDS ");
	has(world->screen, "request-10 ");
	lacks(world->screen, "request-0 ");
	view.scroll = 1000;
	has(draw(world, &view), "32-40 of 40  ");
	assert_int_equal(view.scroll, 31);
}

P_TEST(rows_are_filtered_and_sorted)
{
	struct top_view view = { .shown = TOP_HOLDS,
				 .columns = 80,
				 .lines = 24 };
	const char *screen;
	uint32_t slot;

	for (slot = 0; slot < 3; slot++)
		hold_take(world, slot, (3 - slot) * KVPULL_NS_PER_S, 0);
	look(world);
	screen = draw(world, &view);
	stands_before(screen, "request-0", "request-2");
	while (!view.sort_head || strcmp(view.sort_head, "BLOCKS") != 0)
		view.sort_head = top_sort_next(&world->top, &view, 1);
	screen = draw(world, &view);
	has(screen, "by BLOCKS  ");
	stands_before(screen, "request-2", "request-0");
	view.is_reversed = 1;
	screen = draw(world, &view);
	stands_before(screen, "request-0", "request-2");
	view.sort_head = top_sort_next(&world->top, &view, -1);
	assert_string_equal(view.sort_head, "AGE");
	(void)snprintf(view.filter, sizeof(view.filter), "QUEST-1");
	screen = draw(world, &view);
	has(screen, "request-1");
	lacks(screen, "request-0");
	has(screen, "/QUEST-1  ");
}

P_TEST(table_without_the_sorted_column_stays_as_it_comes)
{
	struct top_view view = { .columns = 120, .sort_head = "TICKETS" };
	const char *screen;

	consumer_joins(world, "zeta");
	world->p.consumers[1] = world->p.consumers[0];
	kvpull_status_text(world->p.consumers[1].engine_id, 64, "alpha");
	look(world);
	screen = draw(world, &view);
	has(screen, "alpha");
	stands_before(screen, "zeta", "alpha");
}

/* A file that was copied from a machine whose clock is another. */
P_TEST(end_elsewhere_is_dated_by_the_clock_there)
{
	struct top_view view = { .columns = 80 };
	char path[160];

	(void)snprintf(world->p.header->host, sizeof(world->p.header->host),
		       "elsewhere");
	world->p.header->opened_utc = 10 * DAY_NS;
	(void)snprintf(path, sizeof(path), "%s", world->p.path);
	process_ends(&world->p);
	world->options.after = path;
	world->options.folder_count = 0;
	shows(world, &view, " gone 01-11 00:00 ");
}

TEST(help_lists_the_keys)
{
	struct top_view view = { .columns = 80, .lines = 24, .is_help = 1 };

	shows(world, &view, "/ TEXT Enter");
	has(world->screen, "q             end\r\n");
}

P_TEST(gone_process_that_kept_nothing_is_no_finding)
{
	struct top_view view = { .columns = 80, .lines = 24 };

	p_is_gone(world);
	assert_int_equal(world->top.worker_count, 1);
	assert_int_equal(world->top.finding_count, 0);
	/* Its row is grey and dated. */
	view.is_coloured = 1;
	has(draw(world, &view), "\033[2mprefill ");
	has(world->screen, " gone ");
}

P_TEST(gone_process_is_named_by_what_it_kept)
{
	const struct top_finding *gone;

	hold_take(world, 1, KVPULL_NS_PER_S, 0);
	p_is_gone(world);
	gone = finding(world, "process-gone");
	assert_non_null(gone);
	has(gone->text, "it had 1 holds, 2 blocks");
	lacks(gone->text, " 0 ");
}

/* Engines of one name differ by their pids, those of one process by their names. */
TEST(engine_that_a_finding_names_comes_first)
{
	struct top_view view = { .columns = 120 };
	struct kvpull_status first = { 0 };
	struct kvpull_status second = { 0 };
	const char *table;

	open_as(world, &first, "alpha", 1);
	open_as(world, &second, "zeta", 2);
	second.header->pid = 1;
	open_as(world, &world->p, "zeta", 3);
	hold_take(world, 1, KVPULL_NS_PER_S, 0);
	p_is_gone(world);
	table = strstr(draw(world, &view), "ENGINE ");
	assert_non_null(table);
	has(table, " gone ");
	stands_before(table, " gone ", "alpha");
	has(table, " 1 running ");
	stands_before(table, "alpha", " 1 running ");
	view.sort_head = "ENGINE";
	table = strstr(draw(world, &view), "ENGINE ");
	stands_before(table, "alpha", " gone ");
	kvpull_status_close(&second);
	kvpull_status_close(&first);
}

static void counter_set(struct kvpull_status *status, const char *name)
{
	const struct kvpull_counter_table *const table =
		&kvpull_worker_counters;
	uint32_t at = 0;

	while (strcmp(table->rows[at].name, name) != 0)
		assert_true(++at < table->row_count);
	kvpull_status_set(&status->engine.thread->counters[at], 1);
}

/* "GPU-6f1c2b3a-4d5e-6071-8293-a4b5c6d7e8f9" */
static const uint8_t gpu[16] = {
	0x6f, 0x1c, 0x2b, 0x3a, 0x4d, 0x5e, 0x60, 0x71,
	0x82, 0x93, 0xa4, 0xb5, 0xc6, 0xd7, 0xe8, 0xf9
};

TEST(gpu_of_a_worker_has_its_row)
{
	struct top_view view = { .columns = 120 };
	uint64_t words[2];

	memcpy(words, gpu, sizeof(words));
	open_as(world, &world->p, "zeta", 1);
	look(world);
	lacks(draw(world, &view), "MAPPED MiB");
	kvpull_status_set(&world->p.header->device[0], words[0]);
	kvpull_status_set(&world->p.header->device[1], words[1]);
	kvpull_status_set(&world->p.counts->device_mapped_bytes, 48u << 20);
	kvpull_status_set(&world->p.counts->device_stores, 7);
	shows(world, &view,
	      "GPU                                      STATE OF         RANK     PID MAPPED MiB STORES");
	has(world->screen,
	    "GPU-6f1c2b3a-4d5e-6071-8293-a4b5c6d7e8f9 up    zeta          0 ");
	has(world->screen, "         48      7");
	counter_set(&world->p, "devices_lost");
	shows(world, &view, "GPU-6f1c2b3a-4d5e-6071-8293-a4b5c6d7e8f9 LOST ");
}

P_TEST(ages_go_on_after_the_end)
{
	struct top_view view = { .shown = TOP_CONSUMERS, .columns = 120 };

	consumer_joins(world, "decode");
	hold_take(world, 0, 0, 1);
	/* Seen last a minute ago, with all that it wrote. */
	world->p.header->opened_ns -= KVPULL_NS_PER_S * 60;
	kvpull_status_set(&world->p.engine.thread->ran_ns,
			  kvpull_clock_ns() - KVPULL_NS_PER_S * 60);
	kvpull_status_set(&world->p.progress.thread->ran_ns, 1);
	kvpull_status_set(&world->p.words[0].heard_ns,
			  kvpull_clock_ns() - KVPULL_NS_PER_S * 61);
	kvpull_status_set(&world->p.holds.rows[0].taken_ns,
			  kvpull_clock_ns() - KVPULL_NS_PER_S * 100);
	process_ends(&world->p);
	world->options.all = 1;
	shows(world, &view, " P gone ");
	has(world->screen, " 61.0 s     1      1  2 min ");
	/* What is judged is what was so when it ended. */
	assert_null(finding(world, "holds-kept"));
	assert_null(finding(world, "consumer-silent"));
}

static void count_nothing(const struct top_row *row)
{
	uint32_t *count = row->context;
	uint32_t at;

	for (at = 0; at < row->table->column_count; at++)
		if (row->table->columns[at].name &&
		    (!strcmp(row->table->columns[at].name, "engine") ||
		     !strcmp(row->table->columns[at].name, "pid") ||
		     !strcmp(row->table->columns[at].name, "claimed_by")))
			*count += row->cells[at].kind == TOP_NOTHING;
}

P_TEST(nobody_has_neither_a_name_nor_a_pid)
{
	uint32_t count = 0;

	hold_take(world, 0, KVPULL_NS_PER_S, 0);
	kvpull_status_set(&world->p.engine.thread->expired, 3);
	kvpull_status_set(&world->p.engine.thread->expired_blocks, 9);
	kvpull_status_set(&world->p.engine.thread->expired_ns,
			  kvpull_clock_ns());
	look(world);
	assert_non_null(finding(world, "holds-expire"));
	has(finding(world, "holds-expire")->text,
	    "nobody claimed 3 holds, 9 blocks of prefill, ");
	top_each(&top_findings_table, &world->top, count_nothing, &count);
	assert_int_equal(count, 2);
	count = 0;
	top_each(&top_holds_table, &world->top, count_nothing, &count);
	assert_int_equal(count, 1);
}

P_TEST(file_of_two_names_counts_once)
{
	char path[256];

	(void)snprintf(path, sizeof(path), "%s/1-1" KVPULL_STATUS_SUFFIX,
		       world->folder);
	assert_int_equal(link(world->p.path, path), 0);
	world->options.folders[world->options.folder_count++] = world->folder;
	look(world);
	assert_int_equal(world->top.worker_count, 1);
}

P_TEST(living_file_hides_its_copy)
{
	char command[320];

	(void)snprintf(command, sizeof(command),
		       "for i in 0 1 2 3 4 5; do cp %s %s/$i-1.status; done",
		       world->p.path, world->folder);
	/* NOLINTNEXTLINE(cert-env33-c): a folder that mkdtemp() named. */
	assert_int_equal(system(command), 0);
	look(world);
	assert_int_equal(world->top.worker_count, 1);
	assert_int_equal(world->top.workers[0].state, TOP_RUNNING);
	/* A folder in memory lists the newest name first: now the living one. */
	(void)snprintf(command, sizeof(command), "%s/9-1.status",
		       world->folder);
	assert_int_equal(rename(world->p.path, command), 0);
	look(world);
	assert_int_equal(world->top.worker_count, 1);
	assert_int_equal(world->top.workers[0].state, TOP_RUNNING);
}

P_TEST(engine_in_another_time_namespace_is_not_silent)
{
	const uint64_t there_ns = kvpull_clock_ns() - DAY_NS / 48;

	hold_take(world, 0, 0, 0);
	/* Its clock is half an hour behind. */
	world->p.header->clock_offset_ns -= (int64_t)(DAY_NS / 48);
	world->p.header->opened_ns = there_ns;
	kvpull_status_set(&world->p.engine.thread->ran_ns, there_ns);
	kvpull_status_set(&world->p.progress.thread->ran_ns, there_ns);
	kvpull_status_set(&world->p.holds.rows[0].taken_ns, there_ns);
	look(world);
	assert_null(finding(world, "engine-silent"));
	assert_true(top_ran(&world->top.workers[0], KVPULL_STATUS_ENGINE) <
		    60 * KVPULL_NS_PER_S);
}
