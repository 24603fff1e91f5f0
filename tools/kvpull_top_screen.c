/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tables for people. A screen is lines of a colour each, cut at the terminal's
 * width; what does not fit below is counted. What is wrong comes first.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tools/kvpull_top_parts.h"

#define COLUMNS_MAX 400u
#define COLUMNS_MIN 20u
#define NAME_BYTES 14u    /* of an engine, and its zero */
#define NAME_END_BYTES 4u /* that stay of one that is longer */

enum colour {
	PLAIN,
	HEAD,
	GOOD,
	BAD,
	FAINT
};

struct page {
	uint32_t columns;
	uint32_t left; /* lines; UINT32_MAX: a file, all of it */
	uint32_t cut;  /* that had no room */
	int coloured;
};

static void __attribute__((format(printf, 3, 4)))
line(struct page *page, enum colour colour, const char *format, ...)
{
	static const char *const codes[] = { "", "\033[1m", "\033[32m",
					     "\033[1;31m", "\033[2m" };
	char text[COLUMNS_MAX + 1];
	va_list arguments;

	if (!page->left) {
		page->cut++;
		return;
	}
	va_start(arguments, format);
	(void)vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	if (page->columns < sizeof(text))
		text[page->columns] = '\0';
	if (page->coloured)
		(void)printf("%s%s\033[0m\033[K\r\n", codes[colour], text);
	else
		(void)printf("%s\n", text);
	if (page->left != UINT32_MAX)
		page->left--;
}

/* "431 us", "2.5 s", "3 min", "2.1 h": at most six places; "-": never. */
static const char *age(uint64_t ns, char text[16])
{
	const double s = (double)ns / (double)KVPULL_NS_PER_S;

	if (!ns)
		(void)snprintf(text, 16, "-");
	else if (s < 0.001)
		(void)snprintf(text, 16, "%.0f us", s * 1e6);
	else if (s < 1)
		(void)snprintf(text, 16, "%.0f ms", s * 1e3);
	else if (s < 100)
		(void)snprintf(text, 16, "%.1f s", s);
	else if (s < 6000)
		(void)snprintf(text, 16, "%.0f min", s / 60);
	else
		(void)snprintf(text, 16, "%.1f h", s / 3600);
	return text;
}

static const struct top_worker *same_in(const struct top *top,
					const struct top_worker *worker)
{
	uint32_t at;

	for (at = 0; top && at < top->worker_count; at++)
		if (top->workers[at].header.incarnation ==
		    worker->header.incarnation)
			return &top->workers[at];
	return NULL;
}

/* MiB a second since the snapshot before; without one what came in all. */
static void throughput(const struct top *before,
		       const struct top_worker *worker, char text[16])
{
	const struct top_worker *then = same_in(before, worker);
	const char *name = top_pool(worker) ? "bytes_read" : "bytes_pulled";
	const uint64_t bytes = top_counter_named(worker, name);
	double mib = (double)bytes / 1048576;

	if (!then || worker->now_ns <= then->now_ns) {
		(void)snprintf(text, 16, "%.0f M", mib);
		return;
	}
	mib = (double)(bytes - top_counter_named(then, name)) / 1048576;
	(void)snprintf(text, 16, "%.1f/s",
		       mib / ((double)(worker->now_ns - then->now_ns) / 1e9));
}

/*
 * An engine's name in its column. Where it is longer its end stays: ranks of one
 * engine differ there, as "..._dp0" and "..._dp1".
 */
static const char *short_of(const char *name, char text[NAME_BYTES])
{
	const size_t bytes = strlen(name);

	if (bytes < NAME_BYTES)
		return name;
	(void)snprintf(text, NAME_BYTES, "%.*s~%s",
		       (int)(NAME_BYTES - 2 - NAME_END_BYTES), name,
		       name + bytes - NAME_END_BYTES);
	return text;
}

static void workers_show(struct page *page, const struct top *top,
			 const struct top *before)
{
	uint32_t at;

	line(page, HEAD,
	     "ENGINE        RANK     PID STATE   POLLED HOLDS BLOCKS OLDEST PULLS      MiB ERR TICKETS SENDING");
	for (at = 0; at < top->worker_count; at++) {
		const struct top_worker *worker = &top->workers[at];
		const uint64_t errors = top_errors(worker);
		struct top_holds holds;
		char name[NAME_BYTES];
		char polled[16];
		char oldest[16];
		char pulled[16];

		if (top_pool(worker))
			continue;
		top_holds(worker, &holds);
		throughput(before, worker, pulled);
		line(page,
		     worker->state != TOP_RUNNING ? BAD :
		     errors                       ? PLAIN :
						    GOOD,
		     "%-13.13s %4u %7u %-7s %6s %5" PRIu64 " %6" PRIu64
		     " %6s %5" PRIu64 " %8s %3" PRIu64 " %7" PRIu64
		     " %7" PRIu64,
		     short_of(worker->header.engine_id, name),
		     worker->header.tp_rank, worker->header.pid,
		     top_state_name(worker->state),
		     age(top_ran(worker, KVPULL_STATUS_ENGINE), polled),
		     holds.held, holds.blocks, age(holds.oldest_ns, oldest),
		     top_counter_named(worker, "pulls_live"), pulled, errors,
		     top_counter_named(worker, "claims_live"),
		     top_counter_named(worker, "releases_queued"));
	}
}

static void ages_show(struct page *page, const struct top *top)
{
	struct top_holds sum = { 0 };
	uint32_t at;
	uint32_t row;

	for (at = 0; at < top->worker_count; at++) {
		struct top_holds holds;

		if (top_pool(&top->workers[at]))
			continue;
		top_holds(&top->workers[at], &holds);
		sum.held += holds.held;
		sum.claimed += holds.claimed;
		for (row = 0; row < 4; row++)
			sum.ages[row] += holds.ages[row];
	}
	line(page, PLAIN, "%s", "");
	line(page, HEAD,
	     "HOLDS BY AGE  < 1 s   < 10 s   < 1 min   older   unclaimed");
	line(page, sum.ages[3] ? BAD : PLAIN,
	     "%18" PRIu64 " %8" PRIu64 " %9" PRIu64 " %7" PRIu64 " %11" PRIu64,
	     sum.ages[0], sum.ages[1], sum.ages[2], sum.ages[3],
	     sum.held - sum.claimed);
}

static void consumers_show(struct page *page, const struct top *top)
{
	uint32_t index;
	uint32_t at;

	line(page, PLAIN, "%s", "");
	line(page, HEAD,
	     "CONSUMER      RANK     PID ROUTE  HEARD HOLDS BLOCKS OLDEST EXPIRED OF           CLAIMS RELEASES");
	for (index = 0; index < top->worker_count; index++) {
		const struct top_worker *worker = &top->workers[index];
		uint32_t count;
		const struct top_consumer *all = top_consumers(worker, &count);

		for (at = 0; at + 1 < count; at++) {
			const struct top_consumer *one = &all[at];
			const int is_here =
				kvpull_status_get(&one->row->state) ==
				KVPULL_SHOWN_HERE;
			char name[64];
			char brief[NAME_BYTES];
			char route[16];
			char heard[16];
			char oldest[16];

			if (!is_here && !one->holds)
				continue;
			top_text(name, sizeof(name), one->row->engine_id,
				 KVPULL_STATUS_NAME_BYTES);
			top_text(route, sizeof(route), one->row->route,
				 sizeof(one->row->route));
			line(page,
			     one->holds && one->heard_ns >
						     worker->header.lease_ns /
							     2 ?
				     BAD :
			     is_here ? PLAIN :
				       FAINT,
			     "%-13.13s %4u %7u %-5.5s %6s %5" PRIu64
			     " %6" PRIu64 " %6s %7" PRIu64 " %-10.10s %8" PRIu64
			     " %8" PRIu64,
			     short_of(name, brief), one->row->rank,
			     one->row->pid, is_here ? route : "left",
			     age(one->heard_ns, heard), one->holds, one->blocks,
			     age(one->oldest_ns, oldest),
			     kvpull_status_get(&one->words->expired),
			     worker->header.engine_id,
			     kvpull_status_get(&one->words->claims),
			     kvpull_status_get(&one->words->releases));
		}
	}
}

/* Shows the readers of each pool, but not those that left. */
static void readers_show(struct page *page, const struct top *top)
{
	uint32_t index;
	uint32_t at;

	line(page, PLAIN, "%s", "");
	line(page, HEAD, "READER            PID        UID ROUTE  SINCE OF");
	for (index = 0; index < top->worker_count; index++) {
		const struct top_worker *worker = &top->workers[index];
		uint32_t count;
		const struct kvpull_status_consumer *rows =
			top_rows(worker, KVPULL_STATUS_CONSUMERS, &count);

		for (at = 0; top_pool(worker) && at < count; at++) {
			char name[64];
			char brief[NAME_BYTES];
			char route[16];
			char since[16];

			if (kvpull_status_get(&rows[at].state) !=
			    KVPULL_SHOWN_HERE)
				continue;
			top_text(name, sizeof(name), rows[at].engine_id,
				 sizeof(rows[at].engine_id));
			top_text(route, sizeof(route), rows[at].route,
				 sizeof(rows[at].route));
			line(page, PLAIN,
			     "%-13.13s %7u %10u %-5.5s %6s %s pid %u",
			     short_of(name, brief), rows[at].pid, rows[at].uid,
			     route,
			     age(top_ago(worker,
					 kvpull_status_get(&rows[at].since_ns)),
				 since),
			     worker->header.engine_id, worker->header.pid);
		}
	}
}

static void pools_show(struct page *page, const struct top *top,
		       const struct top *before)
{
	uint32_t at;

	line(page, HEAD,
	     "POOL              PID STATE   POLLED ROLE    CHUNKS READERS PEERS      MiB ERR ASKS     GOOD  STALE FAILED");
	for (at = 0; at < top->worker_count; at++) {
		const struct top_worker *worker = &top->workers[at];
		const struct kvpull_status_pool *pool = top_pool(worker);
		const uint64_t errors = top_errors(worker);
		char brief[NAME_BYTES];
		char polled[16];
		char read[16];

		if (!pool)
			continue;
		throughput(before, worker, read);
		line(page,
		     worker->state != TOP_RUNNING ? BAD :
		     errors                       ? PLAIN :
						    GOOD,
		     "%-13.13s %7u %-7s %6s %-6s %7u %7" PRIu64 " %5" PRIu64
		     " %8s %3" PRIu64 " %4" PRIu64 " %8" PRIu64 " %6" PRIu64
		     " %6" PRIu64,
		     short_of(worker->header.engine_id, brief),
		     worker->header.pid, top_state_name(worker->state),
		     age(top_ran(worker, KVPULL_STATUS_ENGINE), polled),
		     top_role(worker), kvpull_status_get(&pool->chunk_count),
		     top_counter_named(worker, "readers_live"),
		     top_counter_named(worker, "peers_live"), read, errors,
		     top_counter_named(worker, "asks_live"),
		     top_counter_named(worker, "pieces_good"),
		     top_counter_named(worker, "pieces_stale"),
		     top_counter_named(worker, "pieces_failed"));
	}
	readers_show(page, top);
}

static void peers_show(struct page *page, const struct top *top)
{
	uint32_t index;
	uint32_t at;

	line(page, PLAIN, "%s", "");
	line(page, HEAD,
	     "PEER              PID ROUTE STATE      ERROR     CLAIMS     MiB BY            RETRY FAILED ADDRESS, WHY THAT ROUTE");
	for (index = 0; index < top->worker_count; index++) {
		const struct top_worker *worker = &top->workers[index];
		uint32_t count;
		const struct kvpull_status_peer *rows =
			top_rows(worker, KVPULL_STATUS_PEERS, &count);

		for (at = 0; at < count; at++) {
			const struct kvpull_status_peer *row = &rows[at];
			const int32_t error = kvpull_status_get(&row->error);
			const uint32_t state = kvpull_status_get(&row->state);
			char name[64];
			char brief[NAME_BYTES];
			char own[NAME_BYTES];
			char route[16];
			char address[128];
			char why[128];

			if (!top_peer_is_shown(row))
				continue;
			top_text(name, sizeof(name), row->engine_id,
				 sizeof(row->engine_id));
			top_text(route, sizeof(route), row->route,
				 sizeof(row->route));
			top_text(address, sizeof(address), row->address,
				 sizeof(row->address));
			top_text(why, sizeof(why), row->why, sizeof(row->why));
			line(page, error ? BAD : PLAIN,
			     "%-13.13s %7u %-5.5s %-10s %-9s %6u %7" PRIu64
			     " %-13.13s %5u %6" PRIu64 " %s, %s",
			     short_of(name, brief), row->pid, route,
			     top_peer_state(state),
			     error ? kvpull_error_name(error) : "-",
			     kvpull_status_get(&row->claims),
			     top_peer_bytes(row) >> 20,
			     short_of(worker->header.engine_id, own),
			     kvpull_status_get(&row->retries),
			     kvpull_status_get(&row->failures), address, why);
		}
	}
}

static void holds_show(struct page *page, const struct top *top)
{
	uint32_t index;
	uint32_t at;

	line(page, HEAD,
	     "OLDEST HOLDS             KEY  BLOCKS     AGE   HEARD    SLOT   GENERATION CLAIMED BY     OF");
	for (index = 0; index < top->worker_count; index++) {
		const struct top_worker *worker = &top->workers[index];
		uint32_t consumers;
		struct top_consumer *all = top_consumers(worker, &consumers);
		uint32_t slots[TOP_ROWS_MAX];
		const uint32_t used = top_oldest(worker, slots, TOP_ROWS_MAX);
		uint32_t count;
		const struct kvpull_status_hold *rows =
			top_rows(worker, KVPULL_STATUS_HOLDS, &count);

		for (at = 0; at < used; at++) {
			const struct kvpull_status_hold *row = &rows[slots[at]];
			const struct kvpull_status_hold_now *now =
				&top_holds_now(worker)[slots[at]];
			char label[KVPULL_STATUS_LABEL_BYTES];
			char taken[16];
			char heard[16];
			char who[64];

			kvpull_status_label_get(row->label, label);
			kvpull_text_clean(label);
			top_claimant(now, all, consumers, who, sizeof(who));
			line(page, PLAIN,
			     "%-18.18s %9" PRIu64 " %7" PRIu64
			     " %7s %7s %7u %12" PRIu64 " %-14.14s %s",
			     label, kvpull_status_get(&row->key),
			     (uint64_t)kvpull_status_get(&now->blocks),
			     age(top_ago(worker,
					 kvpull_status_get(&row->taken_ns)),
				 taken),
			     age(top_ago(worker,
					 kvpull_status_get(&now->word_ns)),
				 heard),
			     slots[at], kvpull_status_get(&row->generation),
			     who, worker->header.engine_id);
		}
	}
}

static void pulls_show(struct page *page, const struct top *top)
{
	uint32_t index;
	uint32_t at;

	line(page, HEAD,
	     "PULLS NOW                KEY  BLOCKS     AGE STATE         SLOT   GENERATION BY");
	for (index = 0; index < top->worker_count; index++) {
		const struct top_worker *worker = &top->workers[index];
		uint32_t count;
		const struct kvpull_status_pull *rows =
			top_rows(worker, KVPULL_STATUS_PULLS, &count);

		for (at = 0; at < count; at++) {
			const uint32_t state =
				(uint32_t)kvpull_status_get(&rows[at].state);
			const uint64_t place =
				kvpull_status_get(&rows[at].slot_blocks);
			char label[KVPULL_STATUS_LABEL_BYTES];
			char text[16];

			if (!state)
				continue;
			kvpull_status_label_get(rows[at].label, label);
			kvpull_text_clean(label);
			line(page, PLAIN,
			     "%-18.18s %9" PRIu64 " %7" PRIu64
			     " %7s %-10s %7u %12" PRIu64 " %s",
			     label, kvpull_status_get(&rows[at].key),
			     place >> 32,
			     age(top_ago(worker, kvpull_status_get(
							 &rows[at].started_ns)),
				 text),
			     top_pull_state(state), (uint32_t)place,
			     kvpull_status_get(&rows[at].generation),
			     worker->header.engine_id);
		}
	}
}

static void unread_show(struct page *page, const struct top *top)
{
	uint32_t at;

	for (at = 0; at < top->unread_count && at < TOP_UNREAD_MAX; at++)
		line(page, FAINT, "not read: %s: %s", top->unread[at].path,
		     top->unread[at].why);
	if (at < top->unread_count)
		line(page, FAINT, "... %u more are not read",
		     top->unread_count - at);
	if (top->workers_more)
		line(page, FAINT,
		     "... %u more workers: only %u are read at once",
		     top->workers_more, TOP_WORKERS_MAX);
}

static void findings_show(struct page *page, const struct top *top)
{
	/* Half of a screen: the tables below are where one looks next. */
	const uint32_t least =
		page->left == UINT32_MAX ? 0 : page->left - page->left / 2;
	uint32_t at;
	uint32_t more;

	for (at = 0; at < top->finding_count && page->left > least; at++) {
		char text[320];
		size_t from;

		(void)snprintf(text, sizeof(text), "%s: %s",
			       top->findings[at].what, top->findings[at].text);
		for (from = 0; from < strlen(text); from += page->columns - 2)
			line(page, BAD, "%s%.*s", from ? "  " : "! ",
			     (int)page->columns - 2, text + from);
	}
	more = top->finding_count - at + top->findings_more;
	if (more)
		line(page, BAD, "! ... %u more findings", more);
	if (!top->worker_count) {
		line(page, BAD,
		     "no status files: is an engine with kvpull running here?");
		line(page, BAD,
		     "name its user with --uid, its socket_dir with --folder");
	}
	unread_show(page, top);
}

/* Omit empty tables, unless all are empty. */
static void overview_show(struct page *page, const struct top *top,
			  const struct top *before)
{
	const int has_workers =
		!top->pool_count || top->pool_count < top->worker_count;

	if (has_workers) {
		workers_show(page, top, before);
		ages_show(page, top);
		consumers_show(page, top);
	}
	if (has_workers && top->pool_count)
		line(page, PLAIN, "%s", "");
	if (top->pool_count)
		pools_show(page, top, before);
	peers_show(page, top);
}

void top_screen(const struct top *top, const struct top *before,
		const struct top_options *options, uint32_t columns,
		uint32_t lines)
{
	struct page page = { .columns = !columns              ? COLUMNS_MAX :
					columns < COLUMNS_MIN ? COLUMNS_MIN :
								columns,
			     .left = lines ? lines - 2 : UINT32_MAX,
			     .coloured = lines && isatty(STDOUT_FILENO) };
	const time_t now = (time_t)(top->utc_ns / KVPULL_NS_PER_S);
	struct tm utc = { 0 };
	char when[32];
	char pools[32] = "";

	(void)gmtime_r(&now, &utc);
	(void)strftime(when, sizeof(when), "%H:%M:%S UTC", &utc);
	if (top->pool_count)
		(void)snprintf(pools, sizeof(pools), "%u pools, ",
			       top->pool_count);
	line(&page, HEAD, "kvpull_top  %s  %u workers, %s%u findings", when,
	     top->worker_count - top->pool_count, pools,
	     top->finding_count + top->findings_more);
	findings_show(&page, top);
	if (options->view && !strcmp(options->view, "holds"))
		holds_show(&page, top);
	else if (options->view && !strcmp(options->view, "pulls"))
		pulls_show(&page, top);
	else if (options->view && !strcmp(options->view, "peers"))
		peers_show(&page, top);
	else if (options->view && !strcmp(options->view, "consumers"))
		consumers_show(&page, top);
	else if (options->view && !strcmp(options->view, "pools"))
		pools_show(&page, top, before);
	else
		overview_show(&page, top, before);
	if (page.cut) {
		page.left = 1;
		line(&page, FAINT, "... %u more lines", page.cut);
	}
}

/* An instance, or an incarnation, by its engine's name where one is known. */
static void who_name(const struct top_worker *worker,
		     const struct kvpull_status_note *note, char text[64])
{
	uint32_t count;
	uint32_t at;
	const struct kvpull_status_consumer *consumers =
		top_rows(worker, KVPULL_STATUS_CONSUMERS, &count);
	const struct kvpull_status_peer *peers;

	if (note->what == KVPULL_DID_TAKE || note->what == KVPULL_DID_SENT) {
		(void)snprintf(text, 64, "key %" PRIu64, note->who);
		return;
	}
	(void)snprintf(text, 64, note->who ? "%016" PRIx64 : "nobody",
		       note->who);
	for (at = 0; note->who && at < count; at++)
		if (kvpull_status_get(&consumers[at].instance) == note->who)
			top_text(text, 64, consumers[at].engine_id,
				 KVPULL_STATUS_NAME_BYTES);
	peers = top_rows(worker, KVPULL_STATUS_PEERS, &count);
	for (at = 0; note->who && at < count; at++)
		if (kvpull_status_get(&peers[at].incarnation) == note->who)
			top_text(text, 64, peers[at].engine_id,
				 sizeof(peers[at].engine_id));
}

/* The outcome of an event, or the peer's rank. */
static void outcome_of(const struct kvpull_status_note *note, char text[32])
{
	text[0] = '\0';
	switch (note->what) {
	case KVPULL_DID_END:
		(void)snprintf(text, 32, ", %s", top_end_reason(note->arg));
		break;
	case KVPULL_DID_FAILED:
	case KVPULL_DID_DOWN:
		(void)snprintf(text, 32, ", %s", kvpull_error_name(-note->arg));
		break;
	case KVPULL_DID_CLAIM:
	case KVPULL_DID_RELEASE:
	case KVPULL_DID_JOIN:
	case KVPULL_DID_LEAVE:
	case KVPULL_DID_CLAIM_TICKET:
		(void)snprintf(text, 32, " rank %d", note->arg);
		break;
	default:
		break;
	}
}

static void event_show(struct page *page, const struct top_worker *worker,
		       const struct kvpull_status_note *note)
{
	static const char *const names[KVPULL_DID_COUNT] = { "-",
							     "take",
							     "claim",
							     "release",
							     "end",
							     "sent",
							     "join",
							     "leave",
							     "claim ticket",
							     "release ticket",
							     "pull",
							     "read",
							     "came",
							     "loaded",
							     "failed",
							     "peer up",
							     "peer down" };
	char outcome[32];
	char text[16];
	char who[64];

	who_name(worker, note, who);
	outcome_of(note, outcome);
	line(page, PLAIN, "%9s ago  %-14s slot %u generation %" PRIu64 "  %s%s",
	     age(top_ago(worker, note->at_ns), text),
	     note->what < KVPULL_DID_COUNT ? names[note->what] : "?",
	     note->slot, note->generation, who, outcome);
}

/* All of one that is gone: as the screen, and its last events. */
void top_after(const struct top *top)
{
	static const enum kvpull_status_part parts[] = {
		KVPULL_STATUS_ENGINE_EVENTS, KVPULL_STATUS_PROGRESS_EVENTS
	};
	struct page page = { .columns = COLUMNS_MAX, .left = UINT32_MAX };
	struct kvpull_status_note note;
	uint32_t index;
	uint32_t part;
	uint64_t at;

	if (top->pool_count < top->worker_count) {
		holds_show(&page, top);
		pulls_show(&page, top);
	}
	for (index = 0; index < top->worker_count; index++)
		for (part = 0; part < 2; part++) {
			const struct top_worker *worker = &top->workers[index];
			uint64_t count = 0;

			if (part && top_pool(worker))
				continue;
			while (top_event(worker, parts[part], count, &note))
				count++;
			line(&page, HEAD, "LAST OF %" PRIu64 " EVENTS, %s",
			     count,
			     part ? "progress thread" : "engine's thread");
			for (at = count > 40 ? count - 40 : 0; at < count; at++)
				if (top_event(worker, parts[part], at, &note))
					event_show(&page, worker, &note);
		}
}
