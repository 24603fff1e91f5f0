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
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <linux/magic.h>

#include "base/text_file.h"
#include "tools/kvpull_top_parts.h"

/* Names that are read of a folder; few of them are status files. */
#define NAMES_MAX (64 * KVPULL_STATUS_FILES_MAX)

void top_text(char *to, size_t bytes, const char *from, size_t from_bytes)
{
	(void)snprintf(to, bytes, "%.*s", (int)from_bytes, from);
	kvpull_text_clean(to);
}

static uint64_t last_seen(const struct top_worker *worker)
{
	const uint64_t engine = kvpull_status_get(
		&top_thread(worker, KVPULL_STATUS_ENGINE)->ran_ns);
	const uint64_t progress = kvpull_status_get(
		&top_thread(worker, KVPULL_STATUS_PROGRESS)->ran_ns);
	const uint64_t last = engine > progress ? engine : progress;

	return last > worker->header.opened_ns ? last :
						 worker->header.opened_ns;
}

/* As its own pid namespace has it: only the same process counts. */
static int is_stopped(const struct kvpull_status_header *header)
{
	char path[40];
	char text[1024];
	const char *at;
	char state;
	int field;

	(void)snprintf(path, sizeof(path), "/proc/%u/stat", header->pid);
	kvpull_text_read(path, text, sizeof(text));
	at = strrchr(text, ')');
	state = at && at[1] ? at[2] : '\0';
	for (field = 2; at && field < 22; field++)
		at = strchr(at + 1, ' ');
	return at && strtoull(at, NULL, 10) == header->start_ticks &&
	       (state == 'T' || state == 't');
}

/*
 * Reads the used part of a file: holds above the highest slot were never
 * written.
 */
static int bytes_read(struct top_worker *worker, int fd)
{
	const struct kvpull_status_header *header = &worker->header;
	const struct kvpull_status_place *holds =
		&header->places[KVPULL_STATUS_HOLDS];
	const struct kvpull_status_thread *engine;
	uint64_t high;
	ssize_t got;

	worker->bytes = calloc(1, header->file_bytes);
	if (!worker->bytes)
		return -1;
	got = pread(fd, worker->bytes, holds->offset, 0);
	if (got < 0 || (uint64_t)got != holds->offset)
		return -1;
	worker->held_bytes = holds->offset;
	engine = top_thread(worker, KVPULL_STATUS_ENGINE);
	if (!engine)
		return -1;
	high = kvpull_status_get(&engine->holds_high);
	if (high > holds->row_count)
		high = holds->row_count;
	got = pread(fd, worker->bytes + holds->offset, high * holds->row_bytes,
		    (off_t)holds->offset);
	if (got < 0 || (uint64_t)got != high * holds->row_bytes)
		return -1;
	worker->held_bytes += (uint64_t)got;
	return 0;
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

	if (kvpull_status_get(&worker->header.closed))
		worker->state = TOP_CLOSED;
	else if (!is_alive)
		worker->state = TOP_GONE;
	else
		worker->state =
			is_stopped(&worker->header) ? TOP_STOPPED : TOP_RUNNING;
	worker->now_ns = is_alive ? clock_ns : last_seen(worker);
	worker->is_here =
		(!is_copied || !strcmp(worker->header.host, top->host)) &&
		worker->now_ns <= clock_ns;
	worker->gone_ns = worker->is_here ? clock_ns - worker->now_ns : 0;
}

static int header_read(int fd, const struct top_options *options,
		       uint32_t folder_uid, struct kvpull_status_header *header)
{
	int code;

	if (options->uid >= 0)
		return kvpull_status_header_read(fd, (uint32_t)options->uid,
						 header);
	code = kvpull_status_header_read(fd, geteuid(), header);
	return code == KVPULL_EAUTH ?
		       kvpull_status_header_read(fd, folder_uid, header) :
		       code;
}

/* Skips a worker that is closed or long gone, unless it is asked for. */
static int is_wanted(const struct top_worker *worker,
		     const struct top_options *options)
{
	if (options->after || options->all)
		return 1;
	if (worker->state == TOP_CLOSED)
		return 0;
	return worker->state != TOP_GONE || worker->gone_ns < TOP_GONE_NS;
}

static void unread_add(struct top *top, const char *path, const char *name,
		       const char *why)
{
	struct top_unread *unread;

	if (top->unread_count++ >= TOP_UNREAD_MAX)
		return;
	unread = &top->unread[top->unread_count - 1];
	(void)snprintf(unread->path, sizeof(unread->path), "%s%s%s", path,
		       *path && *name ? "/" : "", name);
	kvpull_text_clean(unread->path);
	(void)snprintf(unread->why, sizeof(unread->why), "%s", why);
}

static const char *why_not_believed(int code)
{
	switch (code) {
	case KVPULL_EAUTH:
		return "is another user's: --uid names whose are believed";
	case KVPULL_EVERSION:
		return "is of another version: use the kvpull_top of its library";
	default:
		return "is cut, or no status file";
	}
}

/*
 * Under another name, or copied: each worker counts once. Return: the place of
 * the next file, or of the same worker's, as the living one has it.
 */
static struct top_worker *place_of(struct top *top,
				   const struct top_worker *found)
{
	struct top_worker *worker;
	uint32_t at;

	for (at = 0; at < top->worker_count; at++) {
		worker = &top->workers[at];
		if (worker->header.incarnation != found->header.incarnation)
			continue;
		if (found->state > worker->state)
			return NULL;
		top->pool_count -= top_pool(worker) != NULL;
		free(worker->bytes);
		return worker;
	}
	top->worker_count++;
	return &top->workers[at];
}

static void worker_add(struct top *top, const struct top_worker *found)
{
	struct top_worker *worker = place_of(top, found);

	if (!worker) {
		free(found->bytes);
		return;
	}
	*worker = *found;
	top->pool_count += top_pool(worker) != NULL;
}

static void file_read(struct top *top, const struct top_options *options,
		      int folder_fd, uint32_t folder_uid, const char *path,
		      const char *name)
{
	static struct top_worker found;
	struct top_worker *worker = &found;
	int code;
	int fd;

	if (top->worker_count == TOP_WORKERS_MAX) {
		top->workers_more++;
		return;
	}
	fd = openat(folder_fd, name,
		    O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0) {
		/* A file that was swept meanwhile is no news. */
		if (errno != ENOENT)
			unread_add(top, path, name, strerror(errno));
		return;
	}
	memset(worker, 0, sizeof(*worker));
	code = header_read(fd, options, folder_uid, &worker->header);
	if (code || bytes_read(worker, fd)) {
		unread_add(top, path, name, why_not_believed(code));
		free(worker->bytes);
		(void)close(fd);
		return;
	}
	kvpull_text_clean(worker->header.library);
	kvpull_text_clean(worker->header.engine_id);
	kvpull_text_clean(worker->header.host);
	(void)snprintf(worker->path, sizeof(worker->path), "%s%s%s", path,
		       *path ? "/" : "", name);
	state_find(top, worker, fd, folder_fd == AT_FDCWD);
	(void)close(fd);
	if (is_wanted(worker, options))
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
static void disk_say(struct top *top, const char *path, int fd,
		     uint32_t folder_uid)
{
	struct statfs system;
	char why[sizeof(top->unread[0].why)];

	if (fstatfs(fd, &system) || system.f_type == TMPFS_MAGIC ||
	    system.f_type == RAMFS_MAGIC)
		return;
	(void)snprintf(
		why, sizeof(why),
		"is on a disk: its engines' status files lie in " KVPULL_STATUS_FOLDER
		", name that folder",
		folder_uid);
	unread_add(top, path, "", why);
}

static void folder_read(struct top *top, const struct top_options *options,
			const char *path)
{
	const size_t suffix = sizeof(KVPULL_STATUS_SUFFIX) - 1;
	const int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *folder = fd < 0 ? NULL : fdopendir(fd);
	uint32_t left = KVPULL_STATUS_FILES_MAX;
	uint32_t names_left = NAMES_MAX;
	const struct dirent *entry = NULL;
	struct stat status;
	int has_any = 0;

	if (!folder || fstat(fd, &status)) {
		const int error = errno;

		if (folder)
			(void)closedir(folder);
		else if (fd >= 0)
			(void)close(fd);
		if (options->folders_are_usual && error == ENOENT)
			return;
		top->named_unread += !options->folders_are_usual;
		unread_add(top, path, "", strerror(error));
		return;
	}
	while ((entry = readdir(folder)) && names_left--) {
		const size_t bytes = strlen(entry->d_name);

		if (bytes <= suffix || strcmp(entry->d_name + bytes - suffix,
					      KVPULL_STATUS_SUFFIX))
			continue;
		has_any = 1;
		if (!left--)
			break;
		if (!options->after || is_after(options->after, entry->d_name))
			file_read(top, options, fd, status.st_uid, path,
				  entry->d_name);
	}
	/* Anybody's, in a folder of many: who is not seen is not absent. */
	if (entry)
		unread_add(top, path, "",
			   "has more files than are looked at: remove some");
	if (!has_any && !options->folders_are_usual)
		disk_say(top, path, fd, status.st_uid);
	(void)closedir(folder);
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

void top_read(struct top *top, const struct top_options *options)
{
	uint32_t at;

	top->worker_count = top->pool_count = 0;
	top->finding_count = top->unread_count = 0;
	top->workers_more = top->findings_more = top->named_unread = 0;
	top->folders_are_usual = options->folders_are_usual;
	top->offset_ns = kvpull_status_clock_offset();
	top->now_ns = kvpull_clock_ns();
	top->utc_ns = kvpull_clock_utc_ns();
	if (gethostname(top->host, sizeof(top->host) - 1))
		top->host[0] = '\0';
	if (options->after && strchr(options->after, '/'))
		file_read(top, options, AT_FDCWD, geteuid(), "",
			  options->after);
	for (at = 0; at < options->folder_count; at++)
		folder_read(top, options, options->folders[at]);
	qsort(top->workers, top->worker_count, sizeof(*top->workers),
	      by_engine);
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
	uint64_t rows = place->row_count;

	if (part == KVPULL_STATUS_HOLDS)
		rows = (worker->held_bytes - place->offset) / place->row_bytes;
	if (count)
		*count = (uint32_t)rows;
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

uint64_t top_counter(const struct top_worker *worker, uint32_t at)
{
	uint32_t count;
	const struct kvpull_status_counter *rows =
		top_rows(worker, KVPULL_STATUS_COUNTERS, &count);
	const _Atomic uint64_t *progress;
	uint32_t progress_count;

	if (at >= count)
		return UINT64_MAX;
	progress = top_rows(worker, KVPULL_STATUS_PROGRESS_COUNTS,
			    &progress_count);
	if (rows[at].in_progress)
		return rows[at].index < progress_count ?
			       kvpull_status_get(&progress[rows[at].index]) :
			       0;
	return rows[at].index < KVPULL_STATUS_COUNTERS_MAX ?
		       kvpull_status_get(
			       &top_thread(worker, KVPULL_STATUS_ENGINE)
					->counters[rows[at].index]) :
		       0;
}

uint64_t top_counter_named(const struct top_worker *worker, const char *name)
{
	uint32_t count;
	const struct kvpull_status_counter *rows =
		top_rows(worker, KVPULL_STATUS_COUNTERS, &count);
	uint32_t at;

	for (at = 0; at < count; at++)
		if (!strncmp(rows[at].name, name, sizeof(rows[at].name)))
			return top_counter(worker, at);
	return 0;
}

int top_event(const struct top_worker *worker, enum kvpull_status_part part,
	      uint64_t at, struct kvpull_status_note *note)
{
	const uint64_t written = kvpull_status_get(
		&top_thread(worker, part == KVPULL_STATUS_ENGINE_EVENTS ?
					    KVPULL_STATUS_ENGINE :
					    KVPULL_STATUS_PROGRESS)
			 ->event_count);
	const uint64_t kept =
		written < KVPULL_STATUS_EVENTS ? written : KVPULL_STATUS_EVENTS;
	const struct kvpull_status_event *event;
	uint32_t count;
	uint64_t what;

	event = top_rows(worker, part, &count);
	/* A pool has no events of a progress thread, whatever it counts. */
	if (at >= kept || count < KVPULL_STATUS_EVENTS)
		return 0;
	event += (written - kept + at) % KVPULL_STATUS_EVENTS;
	what = kvpull_status_get(&event->what);
	*note = (struct kvpull_status_note){
		.at_ns = kvpull_status_get(&event->at_ns),
		.generation = kvpull_status_get(&event->generation),
		.who = kvpull_status_get(&event->who),
		.slot = (uint32_t)what,
		.what = (enum kvpull_status_what)(what >> 32 & 0xffff),
		.arg = (int32_t)(what >> 48),
	};
	return 1;
}

uint64_t top_ago(const struct top_worker *worker, uint64_t then_ns)
{
	return then_ns && worker->now_ns > then_ns ? worker->now_ns - then_ns :
						     0;
}
