/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One struct = one namespace: JSON keys and environment KVPULL_<KEY>. JSON
 * wins over the environment. Unknown keys are errors that name the nearest
 * known one; so are values out of range. The table in config_table.c is the
 * documentation: key, unit, default, range, meaning.
 */
#ifndef KVPULL_PLUGIN_CONFIG_H
#define KVPULL_PLUGIN_CONFIG_H

#include "base/log.h"
#include "plugin/bytes/handshake.h"

#define KVPULL_UIDS_MAX 8u

enum kvpull_progress_mode {
	KVPULL_PROGRESS_THREAD = 0,
	KVPULL_PROGRESS_CALLER
};
enum kvpull_route_mode {
	KVPULL_ROUTE_AUTO = 0,
	KVPULL_ROUTE_PIN_SHM,
	KVPULL_ROUTE_PIN_VERBS
};
enum kvpull_switch {
	KVPULL_AUTO = 0,
	KVPULL_OFF,
	KVPULL_ON
};

struct kvpull_config {
	/* both halves */
	uint64_t lease_ms;    /* lease_ms: 30000; 10 .. 3600000 */
	uint64_t hold_max_ms; /* hold_max_ms: 480000; >= lease_ms .. 86400000 */
	uint32_t max_holds;   /* max_holds: 65536; 1 .. 1048576 */
	uint32_t key_set;     /* key_file: path of 32 bytes; "" = no key */
	uint8_t key[KVPULL_KEY_BYTES];
	uint32_t log_level;     /* log_level: "error" "warn" "info" "debug" */
	uint32_t log_level_set; /* not the default: over the engine's own */
	/* Variables that were passed over as links to a Service; the first one */
	uint32_t service_link_count;
	char service_link[64];
	/* scheduler half */
	uint32_t families_max; /* families_max: 8192; 1 .. 1048576 */
	uint32_t tickets_max; /* tickets_max: 4096; 1 .. 65536 (consumer side) */
	uint32_t requests_max; /* requests_max: 16384; 1 .. 1048576 */
	uint32_t step_log_mib; /* step_log_mib: 64; 1 .. 4096 */
	uint32_t share_prefix; /* share_prefix: true; D's prefix cache serves siblings */
	uint32_t siblings_alone; /* siblings_alone: false; a hold each */
	uint32_t abort_revokes; /* abort_revokes: false; abort after finish revokes */
	/* worker half */
	enum kvpull_progress_mode progress; /* progress: "thread" "caller" */
	enum kvpull_route_mode route;       /* route: "auto" "shm" "verbs" */
	enum kvpull_switch uring;           /* uring: "auto" "no" */
	enum kvpull_switch huge;            /* huge: "auto" "no" */
	uint32_t copy_threads;              /* copy_threads: 1; 0 .. 16 */
	enum kvpull_switch
		progress_copies;  /* progress_copies: "auto" "no" "yes" */
	uint32_t inline_bytes;    /* inline_bytes: 65536; 0 .. 16777216 */
	uint32_t pulls_max;       /* pulls_max: 512; 1 .. 65536 */
	uint32_t pull_blocks_max; /* pull_blocks_max: 32768; 1 .. 65536 */
	uint32_t peers_max; /* peers_max: 64; 1 .. 4096 (producers we read) */
	uint32_t consumers_max; /* consumers_max: 64; 1 .. 4096 */
	uint32_t ring_records; /* ring_records: 4096; 16 .. 1048576, power of two */
	uint64_t deadline_ms;    /* deadline_ms: 0 = the lease; 0 .. 3600000 */
	uint64_t flush_after_ms; /* flush_after_ms: 100; 1 .. 60000 */
	uint64_t grace_ms;       /* grace_ms: 0; 0 .. 3600000 */
	uint64_t connect_ms;     /* connect_ms: 5000; 10 .. 600000 */
	uint32_t uid_count;
	uint32_t uids[KVPULL_UIDS_MAX]; /* uids: [own]; who may read */
	char socket_dir[96];            /* socket_dir: "/tmp/kvpull-<uid>" */
	/* the route between machines */
	char networks[256];       /* networks: "" = the own subnet */
	char verbs_device[192];   /* verbs_device: "" = chosen; "a,b": rails */
	char verbs_address[192];  /* verbs_address: "" = chosen; likewise */
	uint32_t verbs_rails;     /* verbs_rails: 0 = named ones or 1; 0 .. 4 */
	uint32_t verbs_port;      /* verbs_port: 0 = chosen; 0 .. 255 */
	uint32_t verbs_gid_index; /* verbs_gid_index: 65535 = chosen */
	uint32_t verbs_listen_port; /* verbs_listen_port: 0 = any; 0 .. 65535 */
	uint32_t verbs_depth;       /* verbs_depth: 256; 4 .. 16384 */
	uint32_t verbs_batch;       /* verbs_batch: 64; 1 .. 64 */
	uint32_t verbs_rd_atomic;   /* verbs_rd_atomic: 16; 1 .. 255 */
	uint32_t verbs_credits;     /* verbs_credits: 32; 4 .. 4096 */
	uint32_t verbs_retry_count; /* verbs_retry_count: 6; 1 .. 6 */
	uint32_t verbs_ack_timeout; /* verbs_ack_timeout: 14; 8 .. 21 */
	uint32_t verbs_traffic_class; /* verbs_traffic_class: 0; 0 .. 255 */
	uint64_t verbs_slice_bytes; /* verbs_slice_bytes: 1 MiB; 4096 .. 1 GiB */
	uint64_t verbs_window_bytes; /* verbs_window_bytes: 16 MiB; 64 KiB .. */
};

/**
 * Defaults, then the environment, then JSON. Variables KVPULL_TEST_* are not
 * looked at. A variable must be right even where JSON overrides it; the key
 * file is opened only once it is known which.
 *
 * @config  written only on success.
 * @json    object text, or NULL for environment and defaults alone.
 * Return: 0 or KVPULL_ECONFIG; detail (may be NULL) names key and range.
 */
int KVPULL_MUST_CHECK kvpull_config_load(struct kvpull_config *config,
					 const char *json,
					 struct kvpull_error_detail *detail);

/*
 * The table as Markdown for --help and the README, cut at capacity as snprintf
 * does; returns the bytes of all of it, without the NUL.
 */
size_t kvpull_config_describe(char *text, size_t capacity);

/*
 * 1: a process of this user, or one over the network, for whose uid nobody
 * vouches (networks and key decide there), is let in.
 */
int kvpull_config_allows_uid(const struct kvpull_config *config, uint32_t uid);

#endif /* KVPULL_PLUGIN_CONFIG_H */
