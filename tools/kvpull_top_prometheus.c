/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Metrics: the counters under the names that counters_text() gives them, and
 * what only the status file knows. As text for a collector of files, or served
 * on an address of this machine, one request after the other.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tools/json.h"
#include "tools/kvpull_top_parts.h"

#define BUCKET_FIRST 10u /* 1 us */
#define BUCKET_LAST 40u  /* 18 minutes */
#define REQUEST_BYTES 4096u
#define CALLER_S 2 /* to say what it wants, and to take it */
#define CALLERS_MAX 16u

/*
 * A label's value: what it must not have is escaped. A collector that meets what
 * is no UTF-8 throws all engines of the node away, so it is "?", as in JSON.
 */
static void put_value(FILE *out, const char *from, size_t bytes)
{
	char text[256];
	json_t *string;
	const char *at;

	top_text(text, sizeof(text), from, bytes);
	string = json_string(text);
	if (!string)
		(void)snprintf(text, sizeof(text), "?");
	json_decref(string);
	for (at = text; *at; at++) {
		if (*at == '"' || *at == '\\')
			(void)fputc('\\', out);
		(void)fputc(*at, out);
	}
}

/*
 * A container's processes have one number at each of its starts, and a file is
 * shown for a while after its process: the incarnation tells them apart.
 */
static void put_who(FILE *out, const struct top_worker *worker)
{
	(void)fputs("{engine=\"", out);
	put_value(out, worker->header.engine_id,
		  sizeof(worker->header.engine_id));
	(void)fprintf(
		out, "\",rank=\"%u\",pid=\"%u\",incarnation=\"%016" PRIx64 "\"",
		worker->header.tp_rank, worker->header.pid,
		worker->header.incarnation);
}

static void put_head(FILE *out, const char *name, const char *type,
		     const char *help)
{
	(void)fprintf(out, "# HELP %s %s.\n# TYPE %s %s\n", name, help, name,
		      type);
}

/* A name is of one kind of file. */
static int is_of(const struct top_worker *worker, enum kvpull_status_kind kind)
{
	return worker->header.kind == kind;
}

static void put_counters(FILE *out, const struct top *top,
			 const struct kvpull_counter_table *table,
			 enum kvpull_status_kind kind)
{
	uint32_t row;
	uint32_t at;

	for (row = 0; row < table->row_count; row++) {
		const int is_total =
			table->rows[row].kind == KVPULL_COUNTER_TOTAL;
		char name[80];

		(void)snprintf(name, sizeof(name), "kvpull_%s_%s%s",
			       table->half, table->rows[row].name,
			       is_total ? "_total" : "");
		put_head(out, name, is_total ? "counter" : "gauge",
			 table->rows[row].help);
		for (at = 0; at < top->worker_count; at++) {
			if (!is_of(&top->workers[at], kind))
				continue;
			(void)fputs(name, out);
			put_who(out, &top->workers[at]);
			(void)fprintf(out, "} %" PRIu64 "\n",
				      top_counter_named(&top->workers[at],
							table->rows[row].name));
		}
	}
}

static void put_times(FILE *out, const struct top *top, uint32_t which,
		      const char *name, const char *help)
{
	const enum kvpull_status_kind kind = which == KVPULL_TIMES_READ ?
						     KVPULL_STATUS_OF_POOL :
						     KVPULL_STATUS_OF_WORKER;
	uint32_t index;
	uint32_t at;

	put_head(out, name, "histogram", help);
	for (index = 0; index < top->worker_count; index++) {
		const struct top_worker *worker = &top->workers[index];
		uint64_t buckets[KVPULL_STATUS_BUCKETS];
		const uint64_t times = top_times(worker, which, buckets);
		uint64_t below = 0;

		if (!is_of(worker, kind))
			continue;
		for (at = 0; at <= BUCKET_LAST; at++) {
			below += buckets[at];
			if (at < BUCKET_FIRST || at % 2)
				continue;
			(void)fprintf(out, "%s_bucket", name);
			put_who(out, worker);
			(void)fprintf(out, ",le=\"%.9g\"} %" PRIu64 "\n",
				      (double)(UINT64_C(2) << at) / 1e9, below);
		}
		(void)fprintf(out, "%s_bucket", name);
		put_who(out, worker);
		(void)fprintf(out, ",le=\"+Inf\"} %" PRIu64 "\n%s_sum", times,
			      name);
		put_who(out, worker);
		(void)fprintf(out, "} %.9g\n%s_count",
			      (double)top_time_sum(worker, which) / 1e9, name);
		put_who(out, worker);
		(void)fprintf(out, "} %" PRIu64 "\n", times);
	}
}

#define GAUGES 6u

struct gauges {
	enum kvpull_status_kind kind;
	void (*values)(const struct top_worker *worker, double value[GAUGES]);
	struct {
		const char *name;
		const char *help;
	} rows[GAUGES];
};

static void worker_values(const struct top_worker *worker, double value[GAUGES])
{
	struct top_holds holds;

	top_holds(worker, &holds);
	value[0] = worker->state == TOP_RUNNING;
	value[1] = (double)top_ran(worker, KVPULL_STATUS_ENGINE) / 1e9;
	value[2] = (double)top_ran(worker, KVPULL_STATUS_PROGRESS) / 1e9;
	value[3] = (double)holds.blocks;
	value[4] = (double)holds.oldest_ns / 1e9;
	value[5] = worker->header.max_holds;
}

static void pool_values(const struct top_worker *worker, double value[GAUGES])
{
	const struct kvpull_status_pool *pool = top_pool(worker);
	const uint64_t shared =
		kvpull_status_get(&pool->state) == KVPULL_SHOWN_HERE;

	value[0] = worker->state == TOP_RUNNING;
	value[1] = (double)top_ran(worker, KVPULL_STATUS_ENGINE) / 1e9;
	value[2] = (double)(shared * kvpull_status_get(&pool->chunk_count));
	value[3] = (double)(shared * kvpull_status_get(&pool->chunk_bytes));
	value[4] = (double)(shared * kvpull_status_get(&pool->slot_count));
	value[5] = top_given_up(worker);
}

static const struct gauges worker_gauges = {
	KVPULL_STATUS_OF_WORKER,
	worker_values,
	{
		{ "kvpull_worker_up",
		  "1: its process lives and is not stopped" },
		{ "kvpull_worker_engine_silent_seconds",
		  "Since the engine's last poll" },
		{ "kvpull_worker_progress_silent_seconds",
		  "Since the progress thread's last run" },
		{ "kvpull_worker_hold_blocks", "Blocks held now" },
		{ "kvpull_worker_hold_oldest_seconds",
		  "Age of the oldest hold" },
		{ "kvpull_worker_holds_max", "Holds that there is room for" },
	},
};

static const struct gauges pool_gauges = {
	KVPULL_STATUS_OF_POOL,
	pool_values,
	{
		{ "kvpull_reader_up",
		  "1: its process lives and is not stopped" },
		{ "kvpull_reader_silent_seconds",
		  "Since its thread's last poll" },
		{ "kvpull_reader_chunks", "Chunks that it shares" },
		{ "kvpull_reader_chunk_bytes", "Bytes of such a chunk" },
		{ "kvpull_reader_slots", "Slots of its file" },
		{ "kvpull_reader_peers_given_up",
		  "Owners that it does not read any more" },
	},
};

static void put_gauges(FILE *out, const struct top *top,
		       const struct gauges *gauges)
{
	uint32_t row;
	uint32_t at;

	for (row = 0; row < GAUGES; row++) {
		put_head(out, gauges->rows[row].name, "gauge",
			 gauges->rows[row].help);
		for (at = 0; at < top->worker_count; at++) {
			const struct top_worker *worker = &top->workers[at];
			double value[GAUGES];

			if (!is_of(worker, gauges->kind))
				continue;
			gauges->values(worker, value);
			(void)fputs(gauges->rows[row].name, out);
			put_who(out, worker);
			(void)fprintf(out, "} %.9g\n", value[row]);
		}
	}
}

static void put_failures(FILE *out, const struct top *top, const char *name,
			 const char *help, enum kvpull_status_kind kind)
{
	uint32_t at;
	int code;

	put_head(out, name, "counter", help);
	for (at = 0; at < top->worker_count; at++)
		for (code = 1; code < (int)KVPULL_STATUS_CODES; code++) {
			const struct top_worker *worker = &top->workers[at];
			const uint64_t failures = top_failures(worker, code);

			if (!failures || !is_of(worker, kind))
				continue;
			(void)fputs(name, out);
			put_who(out, worker);
			(void)fprintf(out, ",code=\"%s\"} %" PRIu64 "\n",
				      kvpull_error_name(-code), failures);
		}
}

static void put_consumers(FILE *out, const struct top *top)
{
	static const char *const names[] = { "kvpull_consumer_silent_seconds",
					     "kvpull_consumer_hold_blocks",
					     "kvpull_consumer_oldest_seconds" };
	static const char *const helps[] = {
		"Since a consumer was last heard of",
		"Blocks that a consumer keeps",
		"Age of a consumer's oldest hold"
	};
	uint32_t which;
	uint32_t index;
	uint32_t at;

	for (which = 0; which < 3; which++) {
		put_head(out, names[which], "gauge", helps[which]);
		for (index = 0; index < top->worker_count; index++) {
			uint32_t count;
			const struct top_consumer *all =
				top_consumers(&top->workers[index], &count);

			for (at = 0; at + 1 < count; at++) {
				const double value[] = {
					(double)all[at].heard_ns / 1e9,
					(double)all[at].blocks,
					(double)all[at].oldest_ns / 1e9
				};

				if (kvpull_status_get(&all[at].row->state) !=
				    KVPULL_SHOWN_HERE)
					continue;
				(void)fputs(names[which], out);
				put_who(out, &top->workers[index]);
				(void)fputs(",consumer=\"", out);
				put_value(out, all[at].row->engine_id,
					  KVPULL_STATUS_NAME_BYTES);
				(void)fprintf(
					out,
					"\",consumer_rank=\"%u\",consumer_pid=\"%u\",consumer_incarnation=\"%016" PRIx64
					"\"} %.9g\n",
					all[at].row->rank, all[at].row->pid,
					kvpull_status_get(
						&all[at].row->incarnation),
					value[which]);
			}
		}
	}
}

int top_prometheus(const struct top *top, FILE *out)
{
	put_counters(out, top, &kvpull_worker_counters,
		     KVPULL_STATUS_OF_WORKER);
	put_gauges(out, top, &worker_gauges);
	put_failures(out, top, "kvpull_worker_failures_total",
		     "Pulls that failed, by their error",
		     KVPULL_STATUS_OF_WORKER);
	put_consumers(out, top);
	put_times(out, top, KVPULL_TIMES_HOLD, "kvpull_worker_hold_seconds",
		  "From a hold's take to its end");
	put_times(out, top, KVPULL_TIMES_SENT,
		  "kvpull_worker_release_to_sent_seconds",
		  "From the poll that took the last release to SENT");
	put_times(out, top, KVPULL_TIMES_STEP, "kvpull_worker_step_seconds",
		  "A step");
	put_times(out, top, KVPULL_TIMES_PULL, "kvpull_worker_pull_seconds",
		  "From a pull's command to its outcome");
	put_times(out, top, KVPULL_TIMES_FIRST,
		  "kvpull_worker_claim_to_first_seconds",
		  "From a claim to the first bytes of its pull");
	put_times(out, top, KVPULL_TIMES_CHECK, "kvpull_worker_check_seconds",
		  "From a pull's last bytes to its outcome");
	put_counters(out, top, &kvpull_reader_counters, KVPULL_STATUS_OF_POOL);
	put_gauges(out, top, &pool_gauges);
	put_failures(out, top, "kvpull_reader_failures_total",
		     "Pieces that were not good, by their error",
		     KVPULL_STATUS_OF_POOL);
	put_times(out, top, KVPULL_TIMES_READ, "kvpull_reader_read_seconds",
		  "From a read's beginning to its end");
	put_head(
		out, "kvpull_top_unread", "gauge",
		"Status files and folders that could not be read or are not believed");
	(void)fprintf(out, "kvpull_top_unread %u\n", top->unread_count);
	return ferror(out) != 0;
}

/*
 * An HTTP caller. It holds up no other until its request's first line is there.
 */
struct caller {
	int fd;
	uint32_t bytes;
	uint64_t since_ns;
	char request[REQUEST_BYTES];
};

struct callers {
	struct caller callers[CALLERS_MAX]; /* the oldest first */
	uint32_t count;
};

/* A collector's job may have parameters. */
static int is_asked(const char *request)
{
	static const char wanted[] = "GET /metrics";
	const size_t bytes = sizeof(wanted) - 1;

	return !strncmp(request, wanted, bytes) &&
	       (request[bytes] == ' ' || request[bytes] == '?');
}

static void reply(const struct caller *caller,
		  const struct top_options *options)
{
	static struct top top;
	FILE *out = fdopen(caller->fd, "w");

	if (!out) {
		(void)close(caller->fd);
		return;
	}
	if (!is_asked(caller->request)) {
		(void)fputs(
			"HTTP/1.0 404 Not Found\r\nContent-Type: text/plain\r\n\r\nask for /metrics\n",
			out);
	} else {
		(void)fputs(
			"HTTP/1.0 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\n\r\n",
			out);
		top_look(&top, options);
		(void)top_prometheus(&top, out);
		top_free(&top);
	}
	(void)fflush(out);
	(void)shutdown(caller->fd, SHUT_WR);
	(void)fclose(out);
}

static void caller_remove(struct callers *callers, uint32_t at)
{
	callers->count--;
	memmove(&callers->callers[at], &callers->callers[at + 1],
		(callers->count - at) * sizeof(callers->callers[0]));
}

static void caller_take(struct callers *callers, int listener)
{
	const struct timeval limit = { .tv_sec = CALLER_S };
	const int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	struct caller *caller;

	if (fd < 0)
		return;
	(void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
	if (callers->count == CALLERS_MAX) {
		(void)close(callers->callers[0].fd);
		caller_remove(callers, 0);
	}
	caller = &callers->callers[callers->count++];
	caller->fd = fd;
	caller->bytes = 0;
	caller->since_ns = kvpull_clock_ns();
}

/* 1: it has been answered, or is gone. */
static int caller_hear(struct caller *caller, const struct top_options *options)
{
	const ssize_t bytes =
		recv(caller->fd, caller->request + caller->bytes,
		     sizeof(caller->request) - 1 - caller->bytes, MSG_DONTWAIT);

	if (bytes < 0 && (errno == EAGAIN || errno == EINTR))
		return 0;
	caller->bytes += bytes > 0 ? (uint32_t)bytes : 0;
	caller->request[caller->bytes] = '\0';
	if (bytes > 0 && !strchr(caller->request, '\n') &&
	    caller->bytes < sizeof(caller->request) - 1)
		return 0;
	reply(caller, options);
	return 1;
}

static void callers_serve(struct callers *callers, int listener,
			  const struct top_options *options)
{
	struct pollfd fds[CALLERS_MAX + 1];
	const uint32_t count = callers->count;
	uint32_t at;

	for (at = 0; at < count; at++)
		fds[at] = (struct pollfd){ .fd = callers->callers[at].fd,
					   .events = POLLIN };
	fds[at] = (struct pollfd){ .fd = listener, .events = POLLIN };
	if (poll(fds, count + 1, count ? CALLER_S * 1000 / 4 : -1) < 0)
		return;
	for (at = count; at-- > 0;) {
		struct caller *caller = &callers->callers[at];

		if (fds[at].revents) {
			if (caller_hear(caller, options))
				caller_remove(callers, at);
		} else if (kvpull_clock_ns() - caller->since_ns >
			   CALLER_S * KVPULL_NS_PER_S) {
			(void)close(caller->fd);
			caller_remove(callers, at);
		}
	}
	if (fds[count].revents)
		caller_take(callers, listener);
}

/* Room for either family. */
union listen_address {
	struct sockaddr any;
	struct sockaddr_in four;
	struct sockaddr_in6 six;
};

/* "127.0.0.1:9400" or "[::1]:9400": of this machine's own, in digits. 0 or -1. */
static int address_of(const char *text, union listen_address *address)
{
	const char *colon = strrchr(text, ':');
	char host[64];
	char *end;
	unsigned long port;

	if (!colon || (size_t)(colon - text) >= sizeof(host))
		return -1;
	(void)snprintf(host, sizeof(host), "%.*s", (int)(colon - text), text);
	errno = 0;
	port = strtoul(colon + 1, &end, 10);
	if (errno || *end || end == colon + 1 || port > UINT16_MAX)
		return -1;
	memset(address, 0, sizeof(*address));
	if (host[0] == '[' && host[strlen(host) - 1] == ']') {
		host[strlen(host) - 1] = '\0';
		address->six.sin6_family = AF_INET6;
		address->six.sin6_port = htons((uint16_t)port);
		return inet_pton(AF_INET6, host + 1, &address->six.sin6_addr) ==
				       1 ?
			       0 :
			       -1;
	}
	address->four.sin_family = AF_INET;
	address->four.sin_port = htons((uint16_t)port);
	return inet_pton(AF_INET, host, &address->four.sin_addr) == 1 ? 0 : -1;
}

int top_serve(const struct top_options *options)
{
	static struct callers callers;
	union listen_address address;
	const int on = 1;
	socklen_t bytes = sizeof(address);
	int fd;

	if (address_of(options->listen, &address)) {
		(void)fprintf(
			stderr,
			"kvpull_top: --listen %s: say ADDRESS:PORT, as 127.0.0.1:9400 or [::1]:9400\n",
			options->listen);
		return 2;
	}
	fd = socket(address.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0 ||
	    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) ||
	    bind(fd, &address.any, sizeof(address)) || listen(fd, 16) ||
	    getsockname(fd, &address.any, &bytes)) {
		(void)fprintf(stderr, "kvpull_top: --listen %s: %s\n",
			      options->listen, strerror(errno));
		return 1;
	}
	(void)printf("listening on port %u\n", ntohs(address.four.sin_port));
	(void)fflush(stdout);
	for (;;)
		callers_serve(&callers, fd, options);
}
