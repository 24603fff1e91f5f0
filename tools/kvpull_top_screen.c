/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tables for people: the columns that the terminal has room for, by their
 * priority, as wide as their rows need. Findings stand above, keys below; what
 * is between them scrolls.
 */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/least.h"
#include "tools/kvpull_top_parts.h"

#define COLUMNS_ALL 400u /* of a file: as many as any line has */
#define COLUMNS_MIN 20u
#define CELL_SHOWN 24u /* of a text, while others are left out for it */
#define CELL_WHOLE 40u /* likewise, of priority 0: vLLM's ids are as long */
#define NAME_END 4     /* bytes that stay of a longer one's end */
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

/* A line; of a table's row also what it is sorted by. */
struct line {
	enum top_mark mark;
	uint32_t order; /* as it came */
	uint64_t number;
	char key[KVPULL_STATUS_ADDRESS_BYTES]; /* no cell has a longer text */
	char text[COLUMNS_ALL + 1];
};

struct page {
	const struct top_view *view;
	uint32_t columns;
	uint32_t count;
	uint32_t head; /* lines above those that scroll */
	struct line *lines;
	/* Columns of the table that is added. */
	uint32_t needs[TOP_COLUMNS_MAX];  /* the longest text */
	uint32_t widths[TOP_COLUMNS_MAX]; /* 0: it is left out */
};

static struct page page_of(const struct top_view *view)
{
	uint32_t columns = kvpull_least_u32(view->columns, COLUMNS_ALL);

	if (!columns)
		columns = COLUMNS_ALL;
	else if (columns < COLUMNS_MIN)
		columns = COLUMNS_MIN;
	return (struct page){ .view = view, .columns = columns };
}

/* A line for which there is no memory is left out. */
static struct line *line_add(struct page *page, enum top_mark mark)
{
	static struct line lost;
	struct line *lines = reallocarray(page->lines, page->count + 1,
					  sizeof(*page->lines));
	struct line *line = &lost;

	if (lines) {
		page->lines = lines;
		line = &lines[page->count++];
	}
	line->mark = mark;
	line->text[0] = '\0';
	return line;
}

/* Appends to the line what there is room for. */
static void __attribute__((format(printf, 2, 3)))
put(struct line *line, const char *format, ...)
{
	const size_t used = strlen(line->text);
	va_list arguments;

	va_start(arguments, format);
	(void)vsnprintf(line->text + used, sizeof(line->text) - used, format,
			arguments);
	va_end(arguments);
}

size_t top_wrap(const char *text, size_t columns)
{
	const size_t bytes = strnlen(text, columns + 1);
	const char *blank = memrchr(text, ' ', bytes);

	if (bytes <= columns)
		return bytes;
	return blank && blank > text ? (size_t)(blank - text) : columns;
}

/* The first line begins with lead, the others with as many blanks. */
static void wrapped_add(struct page *page, enum top_mark mark, const char *lead,
			const char *subject, const char *words)
{
	const size_t indent = strlen(lead);
	char all[400];
	const char *text = all;
	size_t bytes;

	(void)snprintf(all, sizeof(all), "%s: %s", subject, words);
	do {
		bytes = top_wrap(text, page->columns - indent);
		put(line_add(page, mark), "%-*s%.*s", (int)indent, lead,
		    (int)bytes, text);
		text += bytes;
		text += strspn(text, " ");
		lead = "";
	} while (*text);
}

static int is_sorted_by(const struct top_view *view,
			const struct top_column *column)
{
	return view->sort_head && column->head &&
	       !strcmp(view->sort_head, column->head);
}

/* Is it an engine that a finding names? */
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

/* Also of a row that the filter leaves out: columns stay where they are. */
static void row_measure(const struct top_row *row)
{
	struct page *page = row->context;
	uint32_t at;

	for (at = 0; at < row->table->column_count; at++) {
		const uint32_t bytes = (uint32_t)strlen(row->cells[at].text);

		if (row->mark != TOP_HIDDEN && page->needs[at] < bytes)
			page->needs[at] = bytes;
	}
}

/*
 * Appends a cell and a blank. Of a longer text the end stays: ranks of one
 * engine differ there, as "..._dp0" and "..._dp1".
 */
static void cell_put(struct line *line, const char *text, int width,
		     int is_left)
{
	const int bytes = (int)strlen(text);

	if (bytes > width && width > NAME_END + 1)
		put(line, "%.*s~%s ", width - NAME_END - 1, text,
		    text + bytes - NAME_END);
	else
		put(line, is_left ? "%-*.*s " : "%*.*s ", width, width, text);
}

/* cells: NULL: the heads. */
static struct line *cells_add(struct page *page, const struct top_table *table,
			      enum top_mark mark, const struct top_cell *cells)
{
	struct line *line = line_add(page, mark);
	size_t used;
	uint32_t at;

	for (at = 0; at < table->column_count; at++)
		if (page->widths[at])
			cell_put(line,
				 cells ? cells[at].text :
					 table->columns[at].head,
				 (int)page->widths[at],
				 table->columns[at].width < 0);
	for (used = strlen(line->text); used && line->text[used - 1] == ' ';)
		line->text[--used] = '\0';
	return line;
}

/* A row without the filter's text is not shown. */
static void row_add(const struct top_row *row)
{
	struct page *page = row->context;
	const struct top_view *view = page->view;
	const struct top_cell *key = NULL;
	struct line *line;
	int is_found = 0;
	uint32_t at;

	for (at = 0; at < row->table->column_count; at++) {
		const struct top_column *column = &row->table->columns[at];
		const struct top_cell *cell = &row->cells[at];

		is_found |= column->head &&
			    strcasestr(cell->text, view->filter) != NULL;
		if (!key && is_sorted_by(view, column))
			key = cell;
	}
	if (!is_found || row->mark == TOP_HIDDEN)
		return;
	line = cells_add(page, row->table, row->mark, row->cells);
	line->order = page->count;
	line->number = !view->sort_head && is_culprit(row);
	/* A table without that column stays as it comes. */
	line->key[0] = '\0';
	if (key) {
		line->number = key->number;
		(void)snprintf(line->key, sizeof(line->key), "%.*s",
			       (int)sizeof(line->key) - 1, key->text);
	}
}

/*
 * The largest number first, then texts from a to z. Without a column to sort by
 * the number is 1 of culprits: these come first, then rows as they came.
 */
static int by_key(const void *left, const void *right, void *context)
{
	const struct line *one = left;
	const struct line *other = right;
	const struct page *page = context;
	int order =
		(one->number < other->number) - (one->number > other->number);

	if (!order)
		order = strcmp(one->key, other->key);
	if (!order)
		order = one->order < other->order ? -1 : 1;
	return page->view->is_reversed ? -order : order;
}

/* The width of a column that has so many places; 0: it is left out. */
static uint32_t width_in(const struct top_column *column, uint32_t need,
			 uint32_t places)
{
	const uint32_t most = column->priority ? CELL_SHOWN : CELL_WHOLE;
	const uint32_t least = (uint32_t)abs(column->width);

	if (places < least)
		return 0;
	need = kvpull_least_u32(need, most);
	return kvpull_least_u32(need < least ? least : need, places);
}

/*
 * By priority each column takes what its rows need; a long text gets the rest
 * of it from what is left in the end.
 */
static void widths_choose(struct page *page, const struct top_table *table)
{
	/* A blank is behind each column, but for the last. */
	uint32_t left = page->columns + 1;
	uint32_t priority;
	uint32_t at;

	for (priority = 0; priority < PRIORITIES; priority++)
		for (at = 0; at < table->column_count; at++) {
			const struct top_column *column = &table->columns[at];
			uint32_t *width = &page->widths[at];

			if (!column->head || column->priority != priority ||
			    !left)
				continue;
			*width = width_in(column, page->needs[at], left - 1);
			left -= *width ? *width + 1 : 0;
		}
	for (at = 0; at < table->column_count; at++) {
		uint32_t *width = &page->widths[at];
		uint32_t more;

		if (!*width || *width >= page->needs[at])
			continue;
		more = kvpull_least_u32(page->needs[at] - *width, left);
		*width += more;
		left -= more;
	}
}

/* An empty table is left out of the overview. */
static void table_add(struct page *page, const struct top *top,
		      const struct top_table *table)
{
	const uint32_t before = page->count;
	uint32_t first;

	memset(page->needs, 0, sizeof(page->needs));
	memset(page->widths, 0, sizeof(page->widths));
	top_each(table, top, row_measure, page);
	widths_choose(page, table);
	if (page->count > page->head)
		(void)line_add(page, TOP_PLAIN);
	(void)cells_add(page, table, TOP_HEAD, NULL);
	first = page->count;
	top_each(table, top, row_add, page);
	if (page->count > first)
		qsort_r(page->lines + first, page->count - first,
			sizeof(*page->lines), by_key, page);
	else if (page->view->shown == TOP_OVERVIEW)
		page->count = before;
}

static void unread_add(struct page *page, const struct top *top)
{
	uint32_t at;

	if (!top->worker_count) {
		put(line_add(page, TOP_BAD),
		    top->options->folders_are_usual ?
			    "no status files: is an engine with kvpull running here?" :
			    "no status files in the folders that --folder names");
		put(line_add(page, TOP_BAD),
		    top->options->folders_are_usual ?
			    "name its user with --uid, its socket_dir with --folder" :
			    "name the engine's user with --uid, if it is not yours");
	}
	for (at = 0; at < top->unread_count && at < TOP_UNREAD_MAX; at++)
		wrapped_add(page, TOP_FAINT, "not read: ", top->unread[at].path,
			    top->unread[at].why);
	if (at < top->unread_count)
		put(line_add(page, TOP_FAINT), "... %u more are not read",
		    top->unread_count - at);
	if (top->workers_more)
		put(line_add(page, TOP_FAINT),
		    "... %u more workers: only %u are read at once",
		    top->workers_more, TOP_WORKERS_MAX);
}

/* lines: at most so many, since the tables are where one looks next. */
static void findings_add(struct page *page, const struct top *top,
			 uint32_t lines)
{
	uint32_t at;
	uint32_t more;

	for (at = 0; at < top->finding_count && page->count < lines; at++)
		wrapped_add(page, TOP_BAD, "! ", top->findings[at].what,
			    top->findings[at].text);
	more = top->finding_count - at + top->findings_more;
	if (more)
		put(line_add(page, TOP_BAD),
		    "! ... %u more findings: f shows them", more);
}

static void title_add(struct page *page, const struct top *top)
{
	const time_t now = (time_t)(top->utc_ns / KVPULL_NS_PER_S);
	struct line *line = line_add(page, TOP_HEAD);
	char when[32];

	(void)strftime(when, sizeof(when), "%H:%M:%S UTC", gmtime(&now));
	put(line, "kvpull_top  %s  %u workers, ", when,
	    top->worker_count - top->pool_count);
	if (top->pool_count)
		put(line, "%u pools, ", top->pool_count);
	put(line, "%u findings", top->finding_count + top->findings_more);
}

static void line_put(const struct page *page, const struct line *line,
		     const char *end, FILE *out)
{
	static const char *const codes[] = { "",         "\033[1m",
					     "\033[32m", "\033[1;31m",
					     "\033[2m",  "" };
	const int is_coloured = page->view->is_coloured;

	(void)fprintf(out, "%s%.*s%s%s", is_coloured ? codes[line->mark] : "",
		      (int)page->columns, line->text,
		      is_coloured ? "\033[0m\033[K" : "", end);
}

/* Where the view stands, how it is sorted and filtered, and the keys. */
static void keys_put(struct page *page, uint32_t shown, FILE *out)
{
	const struct top_view *view = page->view;
	const uint32_t count = page->count - page->head;
	struct line *line = line_add(page, TOP_HEAD);

	if (shown < count)
		put(line, "%u-%u of %u  ", view->scroll + 1,
		    view->scroll + shown, count);
	if (view->sort_head)
		put(line, "by %s  ", view->sort_head);
	if (*view->filter || view->is_typing)
		put(line, "/%s%s  ", view->filter, view->is_typing ? "_" : "");
	put(line, "%s", keys);
	line_put(page, line, "", out);
}

/* tables ends with NULL. If it is empty, the help or the findings are added. */
static void body_add(struct page *page, const struct top *top,
		     const struct top_table *const *tables)
{
	uint32_t at;

	if (page->view->is_help)
		for (at = 0; at < sizeof(help) / sizeof(help[0]); at++)
			put(line_add(page, TOP_PLAIN), "%s", help[at]);
	else if (!*tables)
		findings_add(page, top, UINT32_MAX);
	for (; *tables; tables++)
		table_add(page, top, *tables);
}

void top_screen(const struct top *top, struct top_view *view, FILE *out)
{
	/* Help is without tables, as the findings are. */
	const struct top_table *const *tables =
		views[view->is_help ? TOP_FINDINGS : view->shown];
	const char *end = view->lines ? "\r\n" : "\n";
	/* The last line shows the keys. */
	const uint32_t lines = view->lines ? view->lines - 1 : UINT32_MAX;
	struct page page = page_of(view);
	uint32_t room;
	uint32_t last;
	uint32_t at;

	title_add(&page, top);
	if (*tables)
		findings_add(&page, top,
			     view->lines ? view->lines / 2 : UINT32_MAX);
	unread_add(&page, top);
	page.head = page.count;
	body_add(&page, top, tables);
	/* The heads of an only table stay where they are. */
	if (tables[0] && !tables[1] && page.head < page.count)
		page.head++;
	room = kvpull_least_u32(page.head < lines ? lines - page.head : 0,
				page.count - page.head);
	view->scroll =
		kvpull_least_u32(view->scroll, page.count - page.head - room);
	for (at = 0; at < page.head && at + 1 < lines; at++)
		line_put(&page, &page.lines[at], end, out);
	at = page.head + view->scroll;
	for (last = at + room; at < last; at++)
		line_put(&page, &page.lines[at], end, out);
	if (view->lines)
		keys_put(&page, room, out);
	free(page.lines);
}

void top_after(const struct top *top, uint32_t columns, FILE *out)
{
	static const struct top_table *const tables[] = {
		&top_holds_table, &top_pulls_table, &top_events_table, NULL
	};
	const struct top_view view = { .columns = columns };
	struct page page = page_of(&view);
	uint32_t at;

	body_add(&page, top, tables);
	for (at = 0; at < page.count; at++)
		line_put(&page, &page.lines[at], "\n", out);
	free(page.lines);
}

const char *top_sort_next(const struct top *top, const struct top_view *view,
			  int step)
{
	const struct top_table *table = views[view->shown][0];
	int at;
	int next;

	if (view->shown == TOP_OVERVIEW && top->pool_count == top->worker_count)
		table = &top_pools_table;
	if (!table)
		return NULL;
	next = step > 0 ? -1 : (int)table->column_count;
	for (at = 0; at < (int)table->column_count; at++)
		if (is_sorted_by(view, &table->columns[at]))
			next = at;
	for (next += step; next >= 0 && next < (int)table->column_count;
	     next += step)
		if (table->columns[next].head)
			return table->columns[next].head;
	return NULL;
}
