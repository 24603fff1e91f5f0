/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tables for people: the columns that the terminal has room for, by their
 * priority, as wide as their rows need. Findings stand above, keys below; what
 * is between them scrolls.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tools/kvpull_top_parts.h"

#define COLUMNS_ALL 400u /* of a file: as many as any line has */
#define COLUMNS_MIN 20u
#define CELL_SHOWN 24u /* of a text, while others are left out for it */
#define CELL_WHOLE 40u /* likewise, of priority 0: vLLM's ids are as long */
#define NAME_END 4u    /* bytes that stay of a longer one's end */
#define PRIORITIES 10u
#define TABLES_MAX 8u /* of a view */

static const char keys[] =
	"q end  ? help  ohcpulf views  / filter  <>r sort  arrows scroll";

static const char *const help[] = {
	"q             end",
	"o             overview: engines, holds by age, consumers, pools, peers, GPUs",
	"h             holds, the oldest first: whose request, and who claimed it",
	"c             consumers: who reads here, and what each keeps",
	"p             peers: whom engines here read, by which route, and errors",
	"u             pulls now",
	"l             pools, and their readers",
	"f             findings: all that is wrong, the culprit first",
	"/ TEXT Enter  show the rows with TEXT alone; Esc shows all again",
	"< >           sort by the column to the left, to the right; the largest first",
	"r             reverse the order",
	"arrows, PgUp, PgDn, Home, End  scroll",
	"",
	"Green is well, red needs somebody, grey is gone since the time (UTC) that",
	"its row says. HEARD, POLLED and AGE are since then; OF is whose blocks they",
	"are. kvpull_top(1) has each finding, and --json each number.",
};

static const struct top_table *const views[][TABLES_MAX] = {
	[TOP_OVERVIEW] = { &top_workers_table, &top_ages_table,
			   &top_consumers_table, &top_pools_table,
			   &top_readers_table, &top_peers_table,
			   &top_gpus_table },
	[TOP_HOLDS] = { &top_holds_table },
	[TOP_CONSUMERS] = { &top_consumers_table },
	[TOP_PEERS] = { &top_peers_table },
	[TOP_PULLS] = { &top_pulls_table },
	[TOP_POOLS] = { &top_pools_table, &top_readers_table },
	[TOP_FINDINGS] = { NULL },
};

struct line {
	enum top_mark mark;
	char *text;
};

/* A line for which there is no memory is left out. */
struct page {
	struct line *lines;
	uint32_t count;
	uint32_t room;
	uint32_t columns;
};

/* Return: the array, with room for a place more; NULL: no memory. */
static void *grown(void *array, uint32_t count, uint32_t *room, size_t bytes)
{
	const uint32_t more = *room ? *room * 2 : 64;

	if (count < *room)
		return array;
	array = reallocarray(array, more, bytes);
	if (array)
		*room = more;
	return array;
}

static void line_add(struct page *page, enum top_mark mark, const char *text)
{
	struct line *lines =
		grown(page->lines, page->count, &page->room, sizeof(*lines));
	char *copy = lines ? strndup(text, page->columns) : NULL;

	if (lines)
		page->lines = lines;
	if (copy)
		page->lines[page->count++] = (struct line){ mark, copy };
}

static void page_free(struct page *page)
{
	while (page->count)
		free(page->lines[--page->count].text);
	free(page->lines);
}

size_t top_wrap(const char *text, size_t columns)
{
	size_t bytes = strlen(text);

	if (bytes <= columns)
		return bytes;
	for (bytes = columns; bytes && text[bytes] != ' ';)
		bytes--;
	return bytes ? bytes : columns;
}

/* The first line begins with lead, the others with as many blanks. */
static void wrapped_add(struct page *page, enum top_mark mark, const char *lead,
			const char *text)
{
	const size_t indent = strlen(lead);
	char line[COLUMNS_ALL + 1];
	size_t bytes;

	do {
		bytes = top_wrap(text, page->columns - indent);
		(void)snprintf(line, sizeof(line), "%-*s%.*s", (int)indent,
			       lead, (int)bytes, text);
		line_add(page, mark, line);
		text += bytes;
		text += strspn(text, " ");
		lead = "";
	} while (*text);
}

/* A row of a table as it is shown: its texts lie one behind the other. */
struct shown {
	enum top_mark mark;
	uint32_t order;  /* as it came */
	int is_culprit;  /* of the table of engines: a finding names it */
	uint64_t number; /* of the cell that is sorted by, and its text */
	const char *key;
	char *texts;
};

struct sheet {
	const struct top_view *view;
	struct shown *rows;
	uint32_t count;
	uint32_t room;
	uint32_t needs[TOP_COLUMNS_MAX]; /* the longest text of the column */
};

static void cell_text(const struct top_cell *cell, char *text, size_t bytes)
{
	char age[16];

	switch (cell->kind) {
	case TOP_NUMBER:
	case TOP_FLAG:
		(void)snprintf(text, bytes, "%" PRIu64, cell->number);
		return;
	case TOP_AGE:
		(void)snprintf(text, bytes, "%s", top_age(cell->number, age));
		return;
	case TOP_NOTHING:
	case TOP_TEXT:
		(void)snprintf(text, bytes, "%s", cell->text);
		return;
	}
}

static int is_sorted_by(const struct top_view *view,
			const struct top_column *column)
{
	return view->sort_head && column->head &&
	       !strcmp(view->sort_head, column->head);
}

static int is_culprit(const struct top_row *row)
{
	const struct top *top = row->top;
	uint32_t at;

	if (row->table != &top_workers_table)
		return 0;
	for (at = 0; at < top->finding_count; at++) {
		const struct top_finding *finding = &top->findings[at];

		if (finding->pid == row->worker->header.pid &&
		    !strncmp(finding->engine, row->worker->header.engine_id,
			     sizeof(finding->engine)))
			return 1;
	}
	return 0;
}

/* Copies the texts; those that lack the filter's word are no row. */
static void row_collect(const struct top_row *row)
{
	const struct top_table *table = row->table;
	struct sheet *sheet = row->context;
	const char *filter = sheet->view->filter;
	struct shown shown = { .mark = row->mark,
			       .order = sheet->count,
			       .is_culprit = is_culprit(row) };
	struct shown *rows =
		grown(sheet->rows, sheet->count, &sheet->room, sizeof(*rows));
	char texts[TOP_COLUMNS_MAX * 160 + 1];
	size_t used = 0;
	const char *key = NULL;
	int is_found = !*filter;
	uint32_t at;

	if (rows)
		sheet->rows = rows;
	if (!rows || row->mark == TOP_HIDDEN)
		return;
	for (at = 0; at < table->column_count; at++) {
		const struct top_column *column = &table->columns[at];
		char *text = texts + used;

		if (!column->head)
			continue;
		cell_text(&row->cells[at], text, 160);
		is_found |= strcasestr(text, filter) != NULL;
		if (!key && is_sorted_by(sheet->view, column)) {
			shown.number = row->cells[at].number;
			key = text;
		}
		if (strlen(text) > sheet->needs[at])
			sheet->needs[at] = (uint32_t)strlen(text);
		used += strlen(text) + 1;
	}
	texts[used] = '\0';
	shown.texts = is_found ? malloc(used + 1) : NULL;
	if (!shown.texts)
		return;
	memcpy(shown.texts, texts, used + 1);
	/* A table without that column stays as it comes. */
	shown.key = shown.texts + (key ? (size_t)(key - texts) : used);
	sheet->rows[sheet->count++] = shown;
}

/*
 * The largest number first, then texts from a to z. Without a column to sort by
 * the culprits come first, then rows as they came.
 */
static int by_key(const void *left, const void *right, void *context)
{
	const struct shown *one = left;
	const struct shown *other = right;
	const struct top_view *view = context;
	int order =
		(one->number < other->number) - (one->number > other->number);

	if (!view->sort_head)
		order = other->is_culprit - one->is_culprit;
	else if (!order)
		order = strcmp(one->key, other->key);
	if (!order)
		order = one->order < other->order ? -1 : 1;
	return view->is_reversed ? -order : order;
}

/* The width of a column that has so many places; 0: it is left out. */
static uint32_t width_in(const struct top_column *column, uint32_t need,
			 uint32_t places)
{
	const uint32_t most = column->priority ? CELL_SHOWN : CELL_WHOLE;
	const uint32_t head = (uint32_t)strlen(column->head);
	uint32_t least = (uint32_t)abs(column->width);

	if (least < head)
		least = head;
	if (need > most)
		need = most;
	if (need < least)
		need = least;
	return places < least ? 0 : need < places ? need : places;
}

/*
 * widths: out, 0 for a column that is left out. By priority each takes what its
 * rows need; a long text gets the rest of it from what is left in the end.
 */
static void widths_choose(const struct top_table *table, const uint32_t *needs,
			  uint32_t columns, uint32_t *widths)
{
	uint32_t left = columns + 1; /* a blank behind each, but for the last */
	uint32_t priority;
	uint32_t at;

	for (priority = 0; priority < PRIORITIES; priority++)
		for (at = 0; at < table->column_count; at++) {
			const struct top_column *column = &table->columns[at];

			if (!column->head || column->priority != priority ||
			    !left)
				continue;
			widths[at] = width_in(column, needs[at], left - 1);
			left -= widths[at] ? widths[at] + 1 : 0;
		}
	for (at = 0; at < table->column_count; at++) {
		uint32_t more =
			needs[at] > widths[at] ? needs[at] - widths[at] : 0;

		if (!widths[at])
			continue;
		more = more < left ? more : left;
		widths[at] += more;
		left -= more;
	}
}

/*
 * Appends a cell and a blank. Of a longer text the end stays: ranks of one
 * engine differ there, as "..._dp0" and "..._dp1".
 */
static size_t cell_put(char *to, const char *text, uint32_t width, int is_left)
{
	const size_t bytes = strlen(text);
	int used;

	if (bytes > width && width > NAME_END + 1)
		used = snprintf(to, COLUMNS_ALL, "%.*s~%s ",
				(int)(width - NAME_END - 1), text,
				text + bytes - NAME_END);
	else
		used = snprintf(to, COLUMNS_ALL, is_left ? "%-*.*s " : "%*.*s ",
				(int)width, (int)width, text);
	return (size_t)used;
}

/* texts: a row's, one behind the other; NULL: the heads. */
static void row_add(struct page *page, const struct top_table *table,
		    const uint32_t *widths, enum top_mark mark,
		    const char *texts)
{
	char line[2 * COLUMNS_ALL] = "";
	size_t used = 0;
	uint32_t at;

	for (at = 0; at < table->column_count; at++) {
		const struct top_column *column = &table->columns[at];
		const char *text = texts ? texts : column->head;

		if (!column->head)
			continue;
		if (widths[at])
			used += cell_put(line + used, text, widths[at],
					 column->width < 0);
		if (texts)
			texts += strlen(texts) + 1;
	}
	while (used && line[used - 1] == ' ')
		line[--used] = '\0';
	line_add(page, mark, line);
}

static void sheet_free(struct sheet *sheet)
{
	while (sheet->count)
		free(sheet->rows[--sheet->count].texts);
	free(sheet->rows);
}

/* An empty table is left out of the overview. */
static void table_add(struct page *page, const struct top *top,
		      const struct top_table *table,
		      const struct top_view *view)
{
	struct sheet sheet = { .view = view };
	uint32_t widths[TOP_COLUMNS_MAX] = { 0 };
	uint32_t at;

	top_each(table, top, row_collect, &sheet);
	if (sheet.count || view->shown != TOP_OVERVIEW) {
		if (page->count)
			line_add(page, TOP_PLAIN, "");
		if (sheet.count)
			qsort_r(sheet.rows, sheet.count, sizeof(*sheet.rows),
				by_key, (void *)(uintptr_t)view);
		widths_choose(table, sheet.needs, page->columns, widths);
		row_add(page, table, widths, TOP_HEAD, NULL);
	}
	for (at = 0; at < sheet.count; at++)
		row_add(page, table, widths, sheet.rows[at].mark,
			sheet.rows[at].texts);
	sheet_free(&sheet);
}

static void unread_add(struct page *page, const struct top *top)
{
	char text[sizeof(top->unread[0]) + 32];
	uint32_t at;

	if (!top->worker_count) {
		line_add(
			page, TOP_BAD,
			top->folders_are_usual ?
				"no status files: is an engine with kvpull running here?" :
				"no status files in the folders that --folder names");
		line_add(
			page, TOP_BAD,
			top->folders_are_usual ?
				"name its user with --uid, its socket_dir with --folder" :
				"name the engine's user with --uid, if it is not yours");
	}
	for (at = 0; at < top->unread_count && at < TOP_UNREAD_MAX; at++) {
		(void)snprintf(text, sizeof(text), "%s: %s",
			       top->unread[at].path, top->unread[at].why);
		wrapped_add(page, TOP_FAINT, "not read: ", text);
	}
	if (at < top->unread_count) {
		(void)snprintf(text, sizeof(text), "... %u more are not read",
			       top->unread_count - at);
		line_add(page, TOP_FAINT, text);
	}
	if (top->workers_more) {
		(void)snprintf(text, sizeof(text),
			       "... %u more workers: only %u are read at once",
			       top->workers_more, TOP_WORKERS_MAX);
		line_add(page, TOP_FAINT, text);
	}
}

/* lines: at most so many, since the tables are where one looks next. */
static void findings_add(struct page *page, const struct top *top,
			 uint32_t lines)
{
	uint32_t at;
	uint32_t more;
	char text[400];

	for (at = 0; at < top->finding_count && page->count < lines; at++) {
		(void)snprintf(text, sizeof(text), "%s: %s",
			       top->findings[at].what, top->findings[at].text);
		wrapped_add(page, TOP_BAD, "! ", text);
	}
	more = top->finding_count - at + top->findings_more;
	if (more) {
		(void)snprintf(text, sizeof(text),
			       "! ... %u more findings: f shows them", more);
		line_add(page, TOP_BAD, text);
	}
}

static void title_add(struct page *page, const struct top *top)
{
	const time_t now = (time_t)(top->utc_ns / KVPULL_NS_PER_S);
	struct tm utc = { 0 };
	char when[32];
	char pools[32] = "";
	char text[128];

	(void)gmtime_r(&now, &utc);
	(void)strftime(when, sizeof(when), "%H:%M:%S UTC", &utc);
	if (top->pool_count)
		(void)snprintf(pools, sizeof(pools), "%u pools, ",
			       top->pool_count);
	(void)snprintf(text, sizeof(text),
		       "kvpull_top  %s  %u workers, %s%u findings", when,
		       top->worker_count - top->pool_count, pools,
		       top->finding_count + top->findings_more);
	line_add(page, TOP_HEAD, text);
}

static void line_put(const struct top_view *view, const struct line *line,
		     const char *end, FILE *out)
{
	static const char *const codes[] = { "",         "\033[1m",
					     "\033[32m", "\033[1;31m",
					     "\033[2m",  "" };

	if (!view->lines)
		(void)fprintf(out, "%s\n", line->text);
	else if (view->is_coloured)
		(void)fprintf(out, "%s%s\033[0m\033[K%s", codes[line->mark],
			      line->text, end);
	else
		(void)fprintf(out, "%s%s", line->text, end);
}

/* Where the view stands, how it is sorted and filtered, and the keys. */
static void keys_put(const struct top_view *view, uint32_t shown,
		     uint32_t count, FILE *out)
{
	char text[256];
	struct line line = { TOP_HEAD, text };
	size_t used = 0;

	text[0] = '\0';
	if (shown < count)
		used += (size_t)snprintf(text, 64, "%u-%u of %u  ",
					 view->scroll + 1, view->scroll + shown,
					 count);
	if (view->sort_head)
		used += (size_t)snprintf(text + used, 64, "by %s  ",
					 view->sort_head);
	if (*view->filter || view->is_typing)
		used += (size_t)snprintf(text + used, 64, "/%s%s  ",
					 view->filter,
					 view->is_typing ? "_" : "");
	(void)snprintf(text + used, sizeof(text) - used, "%s", keys);
	if (view->columns < sizeof(text))
		text[view->columns] = '\0';
	line_put(view, &line, "", out);
}

static void body_add(struct page *body, const struct top *top,
		     const struct top_view *view)
{
	const struct top_table *const *tables = views[view->shown];
	uint32_t at;

	for (at = 0; view->is_help && at < sizeof(help) / sizeof(help[0]); at++)
		line_add(body, TOP_PLAIN, help[at]);
	for (at = 0; !view->is_help && tables[at]; at++)
		table_add(body, top, tables[at], view);
	if (!view->is_help && !tables[0])
		findings_add(body, top, UINT32_MAX);
}

static void head_take(struct page *head, struct page *body)
{
	if (!body->count)
		return;
	line_add(head, TOP_HEAD, body->lines[0].text);
	free(body->lines[0].text);
	body->count--;
	memmove(body->lines, body->lines + 1,
		body->count * sizeof(*body->lines));
}

void top_screen(const struct top *top, struct top_view *view, FILE *out)
{
	const uint32_t columns = !view->columns              ? COLUMNS_ALL :
				 view->columns < COLUMNS_MIN ? COLUMNS_MIN :
				 view->columns > COLUMNS_ALL ? COLUMNS_ALL :
							       view->columns;
	struct page head = { .columns = columns };
	struct page body = { .columns = columns };
	uint32_t room;
	uint32_t at;

	title_add(&head, top);
	if (views[view->shown][0] && !view->is_help)
		findings_add(&head, top,
			     view->lines ? view->lines / 2 : UINT32_MAX);
	unread_add(&head, top);
	body_add(&body, top, view);
	/* The heads of an only table stay where they are. */
	if (views[view->shown][0] && !views[view->shown][1] && !view->is_help)
		head_take(&head, &body);
	/* The last line shows the keys. */
	room = !view->lines                 ? body.count :
	       head.count + 1 < view->lines ? view->lines - head.count - 1 :
					      0;
	if (room > body.count)
		room = body.count;
	if (view->scroll > body.count - room)
		view->scroll = body.count - room;
	for (at = 0; at < head.count && at + 1 < view->lines - 1; at++)
		line_put(view, &head.lines[at], "\r\n", out);
	for (at = 0; at < room; at++)
		line_put(view, &body.lines[view->scroll + at], "\r\n", out);
	if (view->lines)
		keys_put(view, room, body.count, out);
	page_free(&head);
	page_free(&body);
}

void top_after(const struct top *top, uint32_t columns, FILE *out)
{
	static const struct top_table *const tables[] = { &top_holds_table,
							  &top_pulls_table,
							  &top_events_table };
	const struct top_view view = { .columns = columns };
	struct page page = { .columns = columns ? columns : COLUMNS_ALL };
	uint32_t at;

	for (at = 0; at < sizeof(tables) / sizeof(tables[0]); at++)
		table_add(&page, top, tables[at], &view);
	for (at = 0; at < page.count; at++)
		line_put(&view, &page.lines[at], "", out);
	page_free(&page);
}

const char *top_sort_next(const struct top *top, const struct top_view *view,
			  int step)
{
	const struct top_table *table = views[view->shown][0];
	const char *last = NULL;
	int is_next = !view->sort_head;
	uint32_t at;

	if (view->shown == TOP_OVERVIEW && top->pool_count == top->worker_count)
		table = &top_pools_table;
	for (at = 0; table && at < table->column_count; at++) {
		const struct top_column *column = &table->columns[at];

		if (!column->head)
			continue;
		if (is_next && step > 0)
			return column->head;
		is_next = is_sorted_by(view, column);
		if (is_next && step < 0)
			return last;
		last = column->head;
	}
	return step < 0 && !view->sort_head ? last : NULL;
}
