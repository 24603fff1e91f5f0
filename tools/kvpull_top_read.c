/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Status files to snapshots. A file may be anybody's who can write into its
 * folder: its owner is looked at, links are not followed, what its header says
 * is checked against its size, and it is read, never mapped, so that one that is
 * cut meanwhile is a short read. Texts lose what a terminal would obey.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/least.h"
#include "tools/kvpull_top_parts.h"

/* Names that are read of a folder; few of them are status files. */
#define NAMES_MAX (64 * KVPULL_STATUS_FILES_MAX)

/* A folder that is open; path "" and AT_FDCWD: a file is named by its path. */
struct folder {
	const char *path;
	int fd;
	uint32_t owner;
};

void top_text(char *to, size_t bytes, const char *from, size_t from_bytes)
{
	(void)snprintf(to, bytes, "%.*s", (int)from_bytes, from);
	kvpull_text_clean(to);
}

static uint64_t last_seen(const struct top_worker *worker)
{
	uint64_t last_ns = worker->header.opened_ns;
	uint32_t part = KVPULL_STATUS_ENGINE;

	for (; part <= KVPULL_STATUS_PROGRESS; part++)
		if (GET(&top_thread(worker, part)->ran_ns) > last_ns)
			last_ns = GET(&top_thread(worker, part)->ran_ns);
	return last_ns;
}

/* As its own pid namespace has it: only the same process counts. */
static int is_stopped(const struct kvpull_status_header *header)
{
	char path[40];
	char state;

	(void)snprintf(path, sizeof(path), "/proc/%u/stat", header->pid);
	return kvpull_status_start_ticks(path, &state) == header->start_ticks &&
	       (state == 'T' || state == 't');
}

/*
 * Reads the used part of a file: holds above the highest slot were never
 * written, and count as rows no more.
 */
static int bytes_read(struct top_worker *worker, int fd)
{
	struct kvpull_status_place *holds =
		&worker->header.places[KVPULL_STATUS_HOLDS];
	const ssize_t before = (ssize_t)holds->offset;
	ssize_t used;

	worker->bytes = calloc(1, worker->header.file_bytes);
	if (!worker->bytes ||
	    pread(fd, worker->bytes, holds->offset, 0) != before)
		return -1;
	holds->row_count = (uint32_t)kvpull_least(
		holds->row_count,
		GET(&top_thread(worker, KVPULL_STATUS_ENGINE)->holds_high));
	used = (ssize_t)holds->row_count * holds->row_bytes;
	return pread(fd, worker->bytes + before, (size_t)used, before) == used ?
		       0 :
		       -1;
}

/*
 * CLOCK_MONOTONIC of the file's writer, now: with another offset in another time
 * namespace. A file that was copied here from another machine has another clock.
 */
static void state_find(const struct top *top, struct top_worker *worker, int fd,
		       int is_copied)
{
	const int is_alive = flock(fd, LOCK_SH | LOCK_NB) != 0;
	const uint64_t clock_ns =
		kvpull_clock_ns() +
		(uint64_t)(worker->header.clock_offset_ns - top->offset_ns);

	worker->state = GET(&worker->header.closed) ? TOP_CLOSED :
			!is_alive                   ? TOP_GONE :
			is_stopped(&worker->header) ? TOP_STOPPED :
						      TOP_RUNNING;
	worker->now_ns = is_alive ? clock_ns : last_seen(worker);
	worker->is_here =
		(!is_copied || !strcmp(worker->header.host, top->host)) &&
		worker->now_ns <= clock_ns;
	worker->gone_ns = worker->is_here ? clock_ns - worker->now_ns : 0;
}

/* 0, or why the file is not believed. */
static int worker_read(struct top_worker *worker, int fd, int64_t uid,
		       const struct folder *folder)
{
	struct kvpull_status_header *header = &worker->header;
	int code = kvpull_status_header_read(
		fd, uid < 0 ? geteuid() : (uint32_t)uid, header);

	if (code == KVPULL_EAUTH && uid < 0)
		code = kvpull_status_header_read(fd, folder->owner, header);
	if (code)
		return code;
	kvpull_text_clean(header->library);
	kvpull_text_clean(header->engine_id);
	kvpull_text_clean(header->host);
	return bytes_read(worker, fd) ? KVPULL_EPROTO : 0;
}

/* Skips a worker that is closed or long gone, unless it is asked for. */
static int is_wanted(const struct top_worker *worker,
		     const struct top_options *options)
{
	return options->after || options->all || worker->state < TOP_GONE ||
	       (worker->state == TOP_GONE && worker->gone_ns < TOP_GONE_NS);
}

static void unread_add(struct top *top, const char *path, const char *why)
{
	struct top_unread *unread;

	if (top->unread_count++ >= TOP_UNREAD_MAX)
		return;
	unread = &top->unread[top->unread_count - 1];
	(void)snprintf(unread->path, sizeof(unread->path), "%s", path);
	kvpull_text_clean(unread->path);
	(void)snprintf(unread->why, sizeof(unread->why), "%s", why);
}

/* The worker of that incarnation; NULL: it is not among them. */
static struct top_worker *worker_of(struct top *top, uint64_t incarnation)
{
	uint32_t at;

	for (at = 0; at < top->worker_count; at++)
		if (top->workers[at].header.incarnation == incarnation)
			return &top->workers[at];
	return NULL;
}

/*
 * Counts a file that was read behind the others, unless it is the same worker's
 * under another name, or copied: then the one that lives stays.
 */
static void worker_add(struct top *top, struct top_worker *found)
{
	struct top_worker *same = worker_of(top, found->header.incarnation);

	if (!same) {
		top->worker_count++;
	} else if (found->state > same->state) {
		free(found->bytes);
	} else {
		free(same->bytes);
		*same = *found;
	}
}

static void file_read(struct top *top, const struct folder *folder,
		      const char *name)
{
	struct top_worker *worker = &top->workers[top->worker_count];
	int code;
	int fd;

	if (top->worker_count == TOP_WORKERS_MAX) {
		top->workers_more++;
		return;
	}
	memset(worker, 0, sizeof(*worker));
	(void)snprintf(worker->path, sizeof(worker->path), "%s%s%s",
		       folder->path, *folder->path ? "/" : "", name);
	fd = openat(folder->fd, name,
		    O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0) {
		/* A file that was swept meanwhile is no news. */
		if (errno != ENOENT)
			unread_add(top, worker->path, strerror(errno));
		return;
	}
	code = worker_read(worker, fd, top->options->uid, folder);
	if (code)
		unread_add(
			top, worker->path,
			code == KVPULL_EAUTH ?
				"is another user's: --uid names whose are believed" :
			code == KVPULL_EVERSION ?
				"is of another version: use the kvpull_top of its library" :
				"is cut, or no status file");
	else
		state_find(top, worker, fd, folder->fd == AT_FDCWD);
	(void)close(fd);
	if (!code && is_wanted(worker, top->options))
		worker_add(top, worker);
	else
		free(worker->bytes);
}

static int is_after(const char *after, const char *name)
{
	const size_t bytes = strlen(after);

	return !strncmp(name, after, bytes) && name[bytes] == '-';
}

/* Where socket_dir is on a disk no status file lies there. */
static void disk_say(struct top *top, const struct folder *folder)
{
	char why[sizeof(top->unread[0].why)];

	if (kvpull_status_is_in_memory(folder->path))
		return;
	(void)snprintf(
		why, sizeof(why),
		"is on a disk: its engines' status files lie in " KVPULL_STATUS_FOLDER
		", name that folder",
		folder->owner);
	unread_add(top, folder->path, why);
}

static void folder_read(struct top *top, const char *path)
{
	const struct top_options *options = top->options;
	DIR *names = opendir(path);
	struct folder folder = { .path = path };
	uint32_t left = KVPULL_STATUS_FILES_MAX;
	uint32_t names_left = NAMES_MAX;
	const struct dirent *entry = NULL;
	struct stat status;
	int has_any = 0;

	if (!names || fstat(dirfd(names), &status)) {
		if (!options->folders_are_usual || errno != ENOENT) {
			top->named_unread += !options->folders_are_usual;
			unread_add(top, path, strerror(errno));
		}
		if (names)
			(void)closedir(names);
		return;
	}
	folder.fd = dirfd(names);
	folder.owner = status.st_uid;
	while ((entry = readdir(names)) && names_left--) {
		if (fnmatch("?*" KVPULL_STATUS_SUFFIX, entry->d_name, 0) != 0)
			continue;
		has_any = 1;
		if (!left--)
			break;
		if (!options->after || is_after(options->after, entry->d_name))
			file_read(top, &folder, entry->d_name);
	}
	/* Anybody's, in a folder of many: who is not seen is not absent. */
	if (entry)
		unread_add(top, path,
			   "has more files than are looked at: remove some");
	if (!has_any && !options->folders_are_usual)
		disk_say(top, &folder);
	(void)closedir(names);
}

static int by_engine(const void *left, const void *right)
{
	const struct kvpull_status_header *one =
		&((const struct top_worker *)left)->header;
	const struct kvpull_status_header *other =
		&((const struct top_worker *)right)->header;
	const int order = strcmp(one->engine_id, other->engine_id);

	if (order)
		return order;
	if (one->rank != other->rank)
		return one->rank < other->rank ? -1 : 1;
	return (one->opened_ns > other->opened_ns) -
	       (one->opened_ns < other->opened_ns);
}

/* Throughputs are differences to the snapshot before. */
static void workers_finish(struct top *top, struct top *before)
{
	uint32_t at;

	qsort(top->workers, top->worker_count, sizeof(*top->workers),
	      by_engine);
	for (at = 0; at < top->worker_count; at++) {
		struct top_worker *worker = &top->workers[at];

		top->pool_count += top_pool(worker) != NULL;
		if (before)
			worker->before =
				worker_of(before, worker->header.incarnation);
	}
}

void top_read(struct top *top, struct top *before,
	      const struct top_options *options)
{
	const struct folder here = { "", AT_FDCWD, geteuid() };
	uint32_t at;

	memset(top, 0, sizeof(*top));
	top->options = options;
	top->offset_ns = kvpull_status_clock_offset();
	top->now_ns = kvpull_clock_ns();
	top->utc_ns = kvpull_clock_utc_ns();
	if (gethostname(top->host, sizeof(top->host) - 1))
		top->host[0] = '\0';
	if (options->after && strchr(options->after, '/'))
		file_read(top, &here, options->after);
	for (at = 0; at < options->folder_count; at++)
		folder_read(top, options->folders[at]);
	workers_finish(top, before);
}

void top_free(struct top *top)
{
	while (top->worker_count)
		free(top->workers[--top->worker_count].bytes);
}

const void *top_rows(const struct top_worker *worker,
		     enum kvpull_status_part part, uint32_t *count)
{
	const struct kvpull_status_place *place = &worker->header.places[part];

	if (count)
		*count = place->row_count;
	return worker->bytes + place->offset;
}

const struct kvpull_status_thread *top_thread(const struct top_worker *worker,
					      enum kvpull_status_part part)
{
	return top_rows(worker, part, NULL);
}

const struct kvpull_status_pool *top_pool(const struct top_worker *worker)
{
	return worker->header.kind == KVPULL_STATUS_OF_POOL ?
		       top_rows(worker, KVPULL_STATUS_POOL, NULL) :
		       NULL;
}

uint64_t top_counter(const struct top_worker *worker,
		     const struct kvpull_status_counter *row)
{
	uint32_t count = KVPULL_STATUS_COUNTERS_MAX;
	const _Atomic uint64_t *counts =
		row->in_progress ?
			top_rows(worker, KVPULL_STATUS_PROGRESS_COUNTS,
				 &count) :
			top_thread(worker, KVPULL_STATUS_ENGINE)->counters;

	return row->index < count ? GET(&counts[row->index]) : 0;
}

uint64_t top_counter_named(const struct top_worker *worker, const char *name)
{
	uint32_t count;
	const struct kvpull_status_counter *row =
		top_rows(worker, KVPULL_STATUS_COUNTERS, &count);

	for (; count--; row++)
		if (!strncmp(row->name, name, sizeof(row->name)))
			return top_counter(worker, row);
	return 0;
}

/* In the file the parts of the progress thread follow those of the engine's. */
int top_event_next(struct top_events *events)
{
	const struct kvpull_status_event *event;
	uint32_t count;
	uint64_t written;
	uint64_t kept;
	uint64_t what;

	for (; events->thread < 2; events->thread++, events->at = 0) {
		event = top_rows(events->worker,
				 KVPULL_STATUS_ENGINE_EVENTS + events->thread,
				 &count);
		written = GET(&top_thread(events->worker,
					  KVPULL_STATUS_ENGINE + events->thread)
				       ->event_count);
		/* A pool has no events of a progress thread, whatever it counts. */
		kept = count < KVPULL_STATUS_EVENTS ?
			       0 :
			       kvpull_least(written, KVPULL_STATUS_EVENTS);
		if (events->at == kept)
			continue;
		event += (written - kept + events->at++) % KVPULL_STATUS_EVENTS;
		events->left = kept - events->at;
		what = GET(&event->what);
		events->note = (struct kvpull_status_note){
			.at_ns = GET(&event->at_ns),
			.generation = GET(&event->generation),
			.who = GET(&event->who),
			.slot = (uint32_t)what,
			.what = (enum kvpull_status_what)(what >> 32 & 0xffff),
			.arg = (int32_t)(what >> 48),
		};
		return 1;
	}
	return 0;
}

uint64_t top_ago(const struct top_worker *worker, uint64_t then_ns)
{
	return then_ns && worker->now_ns > then_ns ? worker->now_ns - then_ns :
						     0;
}
