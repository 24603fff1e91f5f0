/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opening and closing of the status file. Invariants: whoever sees its name
 * sees a whole header; while its writer lives a lock lies on it, which the
 * mapping keeps and the kernel takes away with the process, however that ends.
 */
#include "plugin/status/status.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <linux/magic.h>

#include "base/cause.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/fsize.h"
#include "base/text_file.h"

#define YOUNG_NS (3600 * KVPULL_NS_PER_S)

#define PLACE(name, kind, from, help) WHERE_##from,
#define WHERE_OWN(member) (-1)
#define WHERE_HOLDS(member) (-1)
#define WHERE_WORKER(member) (-1)
#define WHERE_LOG(member) (-1)
#define WHERE_PROGRESS(member)                                                 \
	(int)(offsetof(struct kvpull_progress_counts, member) /                \
	      sizeof(uint64_t))

/* In the progress counts; -1: in the engine's, by the counter's row. */
/* clang-format off */
static const int worker_places[] = {
	KVPULL_WORKER_COUNTERS(PLACE)
};
/* clang-format on */

_Static_assert((uint32_t)KVPULL_WORKER_COUNTER_COUNT <=
			       KVPULL_STATUS_COUNTERS_MAX &&
		       (uint32_t)KVPULL_READER_COUNTER_COUNT <=
			       KVPULL_STATUS_COUNTERS_MAX,
	       "every counter has its place in the file");
_Static_assert(KVPULL_ENGINE_ID_BYTES_MAX <= KVPULL_STATUS_NAME_BYTES,
	       "an engine's id has room");

uint64_t kvpull_status_start_ticks(const char *path, char *state)
{
	char text[1024];
	const char *at;
	int field;

	kvpull_text_read(path, text, sizeof(text));
	/* The second field, the command, ends at the last bracket. */
	at = strrchr(text, ')');
	*state = '\0';
	if (at && at[1])
		*state = at[2];
	for (field = 2; at && field < 22; field++)
		at = strchr(at + 1, ' ');
	return at ? strtoull(at, NULL, 10) : 0;
}

int64_t kvpull_status_clock_offset(void)
{
	static const char clock[] = "monotonic";
	char text[256];
	char *rest;
	int64_t s;

	/* "monotonic  86400  0", and another clock's line; not in old kernels. */
	kvpull_text_read("/proc/self/timens_offsets", text, sizeof(text));
	if (strncmp(text, clock, sizeof(clock) - 1) != 0)
		return 0;
	s = strtoll(text + sizeof(clock) - 1, &rest, 10);
	return s * (int64_t)KVPULL_NS_PER_S + strtoll(rest, NULL, 10);
}

#define ROW_BYTES(name, row, worker_min, pool_min) sizeof(row),

/* A pool has no rows of the kinds that it lacks, but rows for each thread. */
static void places_make(struct kvpull_status_header *header,
			const struct kvpull_status_params *params)
{
	static const uint32_t row_bytes[] = { KVPULL_STATUS_TABLE(ROW_BYTES) };
	const int is_worker = params->kind == KVPULL_STATUS_OF_WORKER;
	const uint32_t counts[KVPULL_STATUS_PARTS] = {
		[KVPULL_STATUS_COUNTERS] = is_worker ?
						   KVPULL_WORKER_COUNTER_COUNT :
						   KVPULL_READER_COUNTER_COUNT,
		[KVPULL_STATUS_ENGINE] = 1,
		[KVPULL_STATUS_PROGRESS] = 1,
		[KVPULL_STATUS_PROGRESS_COUNTS] =
			is_worker ? sizeof(struct kvpull_progress_counts) /
					    sizeof(uint64_t) :
				    0,
		[KVPULL_STATUS_ENGINE_EVENTS] = KVPULL_STATUS_EVENTS,
		[KVPULL_STATUS_PROGRESS_EVENTS] =
			is_worker ? KVPULL_STATUS_EVENTS : 0,
		[KVPULL_STATUS_CONSUMERS] = params->caller_count_max,
		[KVPULL_STATUS_WORDS] = params->caller_count_max,
		[KVPULL_STATUS_PEERS] = params->peer_count_max,
		[KVPULL_STATUS_PULLS] = header->pulls_max,
		[KVPULL_STATUS_POOL] = !is_worker,
		[KVPULL_STATUS_HELD] = header->max_holds / 64 + 1,
		[KVPULL_STATUS_HOLDS_NOW] = header->max_holds,
		[KVPULL_STATUS_HOLDS] = header->max_holds,
	};
	uint32_t part;

	header->file_bytes = (sizeof(*header) + 63) & ~(size_t)63;
	for (part = 0; part < KVPULL_STATUS_PARTS; part++) {
		header->places[part] = (struct kvpull_status_place){
			.offset = header->file_bytes,
			.row_bytes = row_bytes[part],
			.row_count = counts[part],
		};
		header->file_bytes +=
			((uint64_t)row_bytes[part] * counts[part] + 63) &
			~UINT64_C(63);
	}
}

static void limits_fill(struct kvpull_status_header *header,
			const struct kvpull_config *config)
{
	header->hold_max_ns = config->hold_max_ms * KVPULL_NS_PER_MS;
	header->max_holds = config->max_holds;
	header->tickets_max = config->tickets_max;
	header->requests_max = config->requests_max;
	header->pulls_max = config->pulls_max;
}

static void header_fill(struct kvpull_status_header *header,
			const struct kvpull_status_params *params)
{
	const struct kvpull_config *config = params->config;
	char state;

	*header = (struct kvpull_status_header){
		.magic = KVPULL_STATUS_MAGIC,
		.version = KVPULL_STATUS_VERSION,
		.part_count = KVPULL_STATUS_PARTS,
		.incarnation = params->incarnation,
		.clock_offset_ns = kvpull_status_clock_offset(),
		.opened_ns = params->now_ns,
		.opened_utc = kvpull_clock_utc_ns(),
		.start_ticks =
			kvpull_status_start_ticks("/proc/self/stat", &state),
		.lease_ns = config->lease_ms * KVPULL_NS_PER_MS,
		.pid = (uint32_t)getpid(),
		.uid = (uint32_t)geteuid(),
		.rank = params->rank,
		.rank_count = params->rank_count,
		.wire_version = config->wire_emit,
		.progress = config->progress,
		.consumers_max = config->consumers_max,
		.peers_max = params->peer_count_max,
		.kind = params->kind,
		.library = KVPULL_VERSION,
	};
	if (params->kind == KVPULL_STATUS_OF_WORKER)
		limits_fill(header, config);
	(void)snprintf(header->engine_id, sizeof(header->engine_id), "%s",
		       params->engine_id);
	if (gethostname(header->host, sizeof(header->host) - 1))
		header->host[0] = '\0';
	places_make(header, params);
}

/* A name is given last, to a file that is locked and whole. 0 or -1, errno. */
static int file_name(struct kvpull_status *status, int folder_fd, int fd)
{
	const struct kvpull_status_header *header = status->header;
	char name[64];
	char proc[40];

	(void)snprintf(name, sizeof(name),
		       "%" PRIu32 "-%016" PRIx64 KVPULL_STATUS_SUFFIX,
		       header->pid, header->incarnation);
	(void)snprintf(proc, sizeof(proc), "/proc/self/fd/%d", fd);
	if (linkat(AT_FDCWD, proc, folder_fd, name, AT_SYMLINK_FOLLOW))
		return -1;
	(void)snprintf(status->path + strlen(status->path),
		       sizeof(status->path) - strlen(status->path), "/%s",
		       name);
	return 0;
}

#define FALLOCATE_TRIES 8u

/*
 * All its pages now: who stores into a page that a full file system cannot give
 * is killed (SIGBUS). ENOSPC, too, where it would take more than a quarter of
 * what is free: a container's /dev/shm is small, and others live from it.
 */
static int pages_take(int fd, uint64_t file_bytes)
{
	struct statfs system;
	uint32_t tries = FALLOCATE_TRIES;
	int failed;

	if (fstatfs(fd, &system) || kvpull_fsize_check(file_bytes))
		return -1;
	if (system.f_type == RAMFS_MAGIC) /* it has no limit to run into */
		return ftruncate(fd, (off_t)file_bytes);
	if (system.f_blocks &&
	    (uint64_t)system.f_bavail * (uint64_t)system.f_bsize <
		    file_bytes * 4) {
		errno = ENOSPC;
		return -1;
	}
	/* A signal interrupts the call, which has then done nothing. */
	do
		failed = fallocate(fd, 0, 0, (off_t)file_bytes);
	while (failed && errno == EINTR && --tries);
	return failed;
}

/* Mapped, locked, with its header in it. 0 or -1 with errno. */
static int file_map(struct kvpull_status *status, int fd,
		    const struct kvpull_config *config,
		    const struct kvpull_status_header *header)
{
	void *base;

	if (config->status_group && fchown(fd, (uid_t)-1, config->status_group))
		return -1;
	/*
	 * Readers may not write or truncate the file: a shorter file would kill
	 * the worker.
	 */
	if (fchmod(fd, config->status_group ? 0440 : 0400) ||
	    flock(fd, LOCK_EX | LOCK_NB) || pages_take(fd, header->file_bytes))
		return -1;
	base = mmap(NULL, header->file_bytes, PROT_READ | PROT_WRITE,
		    MAP_SHARED, fd, 0);
	if (base == MAP_FAILED)
		return -1;
	status->base = base;
	status->bytes = header->file_bytes;
	memcpy(base, header, sizeof(*header));
	return 0;
}

static void unmap(struct kvpull_status *status)
{
	if (status->base)
		(void)munmap(status->base, status->bytes);
	status->base = NULL;
	status->header = NULL;
	status->path[0] = '\0';
}

/* An unnamed file that is mapped: its descriptor, or -1 with errno. */
static int file_open(struct kvpull_status *status, int folder_fd,
		     const struct kvpull_config *config,
		     const struct kvpull_status_header *header)
{
	const int fd =
		openat(folder_fd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	int saved;

	if (fd < 0 || !file_map(status, fd, config, header))
		return fd;
	saved = errno;
	(void)close(fd);
	errno = saved;
	return -1;
}

/* 0; -1: there is none, and why was said. */
static int file_make(struct kvpull_status *status,
		     const struct kvpull_status_params *params,
		     const struct kvpull_status_header *header)
{
	const char *why = NULL;
	int folder_fd = kvpull_status_folder(params->config, status->path,
					     sizeof(status->path) - 64, &why);
	int fd = -1;
	int failed = folder_fd < 0;

	if (!failed) {
		kvpull_status_sweep(folder_fd, params->now_ns,
				    KVPULL_STATUS_KEPT);
		fd = file_open(status, folder_fd, params->config, header);
		/* The dead give way to the living. */
		if (fd < 0 && errno == ENOSPC) {
			kvpull_status_sweep(folder_fd, params->now_ns, 0);
			fd = file_open(status, folder_fd, params->config,
				       header);
		}
		failed = fd < 0;
	}
	if (!failed) {
		status->header =
			(struct kvpull_status_header *)(void *)status->base;
		failed = file_name(status, folder_fd, fd);
	}
	if (failed) {
		kvpull_warn(
			params->log,
			"no status file in %s: %s; kvpull_top will not see this %s",
			status->path[0] ? status->path :
					  params->config->socket_dir,
			why ? why : kvpull_why(SIZE, errno),
			params->kind == KVPULL_STATUS_OF_WORKER ? "worker" :
								  "pool");
		unmap(status);
	}
	/* The lock stays with the mapping, which no child inherits. */
	kvpull_fd_close(&fd);
	kvpull_fd_close(&folder_fd);
	return failed ? -1 : 0;
}

static void *part(const struct kvpull_status *status,
		  enum kvpull_status_part which)
{
	return status->base + status->header->places[which].offset;
}

/* Where nobody can look there are no events: nothing is noted. */
static void parts_find(struct kvpull_status *status, int is_on)
{
	status->engine.thread = part(status, KVPULL_STATUS_ENGINE);
	status->progress.thread = part(status, KVPULL_STATUS_PROGRESS);
	status->counts = part(status, KVPULL_STATUS_PROGRESS_COUNTS);
	status->consumers = part(status, KVPULL_STATUS_CONSUMERS);
	status->words = part(status, KVPULL_STATUS_WORDS);
	status->peers = part(status, KVPULL_STATUS_PEERS);
	status->pulls = part(status, KVPULL_STATUS_PULLS);
	status->pool = part(status, KVPULL_STATUS_POOL);
	status->holds.rows = part(status, KVPULL_STATUS_HOLDS);
	status->holds.held = part(status, KVPULL_STATUS_HELD);
	status->holds.now = part(status, KVPULL_STATUS_HOLDS_NOW);
	if (!is_on)
		return;
	status->engine.events = part(status, KVPULL_STATUS_ENGINE_EVENTS);
	status->progress.events = part(status, KVPULL_STATUS_PROGRESS_EVENTS);
	status->holds.side = &status->engine;
}

/* places NULL: one thread counts all of them. */
static void counters_name(const struct kvpull_status *status,
			  const struct kvpull_counter_table *table,
			  const int *places)
{
	struct kvpull_status_counter *rows =
		part(status, KVPULL_STATUS_COUNTERS);
	uint32_t at;

	for (at = 0; at < table->row_count; at++) {
		const int place = places ? places[at] : -1;

		(void)snprintf(rows[at].name, sizeof(rows[at].name), "%s",
			       table->rows[at].name);
		rows[at].kind = table->rows[at].kind;
		rows[at].in_progress = place >= 0;
		rows[at].index = place >= 0 ? (uint32_t)place : at;
	}
}

int kvpull_status_open(struct kvpull_status *status,
		       const struct kvpull_status_params *params)
{
	struct kvpull_status_header header;
	int is_on = params->config->status == KVPULL_STATUS_ON;

	*status = (struct kvpull_status){ .base = NULL };
	header_fill(&header, params);
	if (is_on && !params->is_private)
		is_on = !file_make(status, params, &header);
	if (!status->base && params->kind == KVPULL_STATUS_OF_POOL)
		return 0;
	if (!status->base) {
		void *base =
			mmap(NULL, header.file_bytes, PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		if (base == MAP_FAILED)
			return KVPULL_ENOMEM;
		status->base = base;
		status->bytes = header.file_bytes;
		memcpy(base, &header, sizeof(header));
	}
	status->header = (struct kvpull_status_header *)(void *)status->base;
	(void)madvise(status->base, status->bytes, MADV_DONTFORK);
	(void)madvise(status->base, status->bytes, MADV_DONTDUMP);
	parts_find(status, is_on);
	if (params->kind == KVPULL_STATUS_OF_POOL)
		counters_name(status, &kvpull_reader_counters, NULL);
	else
		counters_name(status, &kvpull_worker_counters, worker_places);
	return 0;
}

void kvpull_status_keep_young(struct kvpull_status *status, uint64_t now_ns)
{
	if (now_ns < status->young_ns || !status->path[0])
		return;
	status->young_ns = now_ns + YOUNG_NS;
	(void)utimensat(AT_FDCWD, status->path, NULL, AT_SYMLINK_NOFOLLOW);
}

void kvpull_status_close(struct kvpull_status *status)
{
	if (status->base)
		kvpull_status_set(&status->header->closed, 1);
	unmap(status);
}
