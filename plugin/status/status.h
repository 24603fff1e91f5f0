/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The status file of a worker, or of a pool's handle: what its threads write
 * down, where whoever may look finds it. README.md says where it lies and for
 * how long.
 */
#ifndef KVPULL_PLUGIN_STATUS_H
#define KVPULL_PLUGIN_STATUS_H

#include "plugin/config/config.h"
#include "plugin/counters/counters.h"
#include "plugin/shown/record.h"

#define KVPULL_STATUS_KEPT 8u                /* files of the dead */
#define KVPULL_STATUS_KEPT_S UINT64_C(86400) /* and for so long */
#define KVPULL_STATUS_FOLDER                                                   \
	"/dev/shm/kvpull-%u"          /* where socket_dir is on disk */
#define KVPULL_STATUS_FILES_MAX 4096u /* that a sweep looks at */
#define KVPULL_STATUS_BYTES_MAX (UINT64_C(1) << 28) /* that a reader believes */

struct kvpull_status_params {
	const struct kvpull_log *log;
	const struct kvpull_config *config;
	const char *engine_id;
	uint64_t incarnation;
	uint64_t now_ns;
	uint32_t rank;
	uint32_t rank_count;
	uint32_t caller_count_max;
	uint32_t peer_count_max;
	uint32_t is_private; /* no file, whatever the configuration says */
	enum kvpull_status_kind kind;
};

struct kvpull_status {
	uint8_t *base; /* NULL: not open */
	size_t bytes;
	struct kvpull_status_header *header;
	struct kvpull_status_side engine;
	struct kvpull_status_side progress;
	struct kvpull_progress_counts *counts;
	struct kvpull_status_consumer *consumers; /* [caller_count_max] */
	struct kvpull_status_words *words;        /* likewise */
	struct kvpull_status_peer *peers;         /* [peer_count_max] */
	struct kvpull_status_pull *pulls;         /* [pulls_max] */
	struct kvpull_status_pool *pool;          /* a pool's */
	struct kvpull_status_holds holds;
	uint64_t young_ns; /* the next time it is kept young */
	char path[160];    /* "": there is no file */
};

/*
 * Make the file, or private memory where it is off or cannot be made (a line
 * says why): the worker goes on. A pool then has neither, and no rows: nothing
 * of it counts there. Sweeps what others have left.
 * Return: 0; KVPULL_ENOMEM.
 */
int KVPULL_MUST_CHECK
kvpull_status_open(struct kvpull_status *status,
		   const struct kvpull_status_params *params);
/*
 * Now and then, by one thread: an engine runs for weeks, and /tmp is cleaned of
 * what is ten days old by its times, which a page's first store alone changes.
 */
void kvpull_status_keep_young(struct kvpull_status *status, uint64_t now_ns);
/* The file stays, and says that it was closed. */
void kvpull_status_close(struct kvpull_status *status);
/* CLOCK_MONOTONIC here less that of the machine: a time namespace shifts it. */
int64_t kvpull_status_clock_offset(void);
/*
 * Fields 22 and 3 of /proc/PID/stat, which path names: when the process started,
 * which names it with its pid in this boot, and a letter, 'T' if it is stopped.
 * 0 and '\0': not known.
 */
uint64_t kvpull_status_start_ticks(const char *path, char *state);

/* status_folder.c */
/*
 * The folder of the files, open: socket_dir if that is in memory, else one of
 * our own in /dev/shm. path: [path_bytes]. Return: a descriptor, or -1 and why
 * in *why.
 */
int kvpull_status_folder(const struct kvpull_config *config, char *path,
			 size_t path_bytes, const char **why);
/* 1: a file there, or where it would be made, is in memory and not on a disk. */
int kvpull_status_is_in_memory(const char *path);
/*
 * Remove what the dead have left, but for the newest of the last
 * KVPULL_STATUS_KEPT_S: kept of them, KVPULL_STATUS_KEPT at most.
 */
void kvpull_status_sweep(int folder_fd, uint64_t now_ns, uint32_t kept);
/*
 * Read the header of a file and believe it: owner, sizes, places.
 * 0; KVPULL_EPROTO: it is none; KVPULL_EVERSION: of another version;
 * KVPULL_EAUTH: somebody else's.
 */
int KVPULL_MUST_CHECK
kvpull_status_header_read(int fd, uint32_t owner,
			  struct kvpull_status_header *header);

#endif /* KVPULL_PLUGIN_STATUS_H */
