/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The keys of the configuration: a row each. From a row come the member of
 * struct kvpull_config, its default, what is refused and why, and the reference
 * pages (make pages). Pure.
 *
 * X(name, type, default, min, max, unit, meaning)
 *   name     in JSON, of the member, and in capitals of the variable KVPULL_*
 *   type     U32, U64
 *            POWER   u32, a power of two
 *            SWITCH  u32, true or false
 *            CHOICE  u32: min and the place of the word in unit
 *            FOLDER  char[max], an absolute path; may be "" where min is 0
 *            TEXT    char[max], may be ""
 *            SECRET  char[max], path of a file that is read, or ""
 *            UIDS    u32[KVPULL_UIDS_MAX], uid_count of them
 *   default  as the environment would have it; UID is the process's
 *   unit     of a number; the words of a choice, "a, b, c"
 *
 * A new key is a row, and the line that reads its member.
 */
#ifndef KVPULL_PLUGIN_CONFIG_KEYS_H
#define KVPULL_PLUGIN_CONFIG_KEYS_H

#include <limits.h>
#include <stdint.h>

/* The words of the key `route`, beside auto. */
/* clang-format off */
#define KVPULL_ROUTE_PINS(X) \
	X(SHM, "shm") \
	X(VERBS, "verbs")
/* clang-format on */
#define KVPULL_ROUTE_PIN(name, word) KVPULL_ROUTE_PIN_##name,
#define KVPULL_ROUTE_WORD(name, word) ", " word
#define KVPULL_ROUTE_NAMES "auto" KVPULL_ROUTE_PINS(KVPULL_ROUTE_WORD)

enum kvpull_route_mode {
	KVPULL_ROUTE_AUTO = 0,
	KVPULL_ROUTE_PINS(KVPULL_ROUTE_PIN) KVPULL_ROUTE_MODES
};

/* clang-format off */
#define KVPULL_CONFIG_KEYS(X) \
	/* both halves */ \
	X(lease_ms, U64, "30000", KVPULL_LEASE_MS_MIN, 3600000, "ms", \
	  "how long a hold outlives the last sign of life of its consumers, which send a heartbeat every third of it") \
	X(hold_max_ms, U64, "480000", 10, 86400000, "ms", \
	  "longest life of a hold, whatever its consumers do; at least lease_ms") \
	X(max_holds, U32, "65536", 1, 1048576, "holds", \
	  "holds at once; a request that finishes beyond the limit gets no ticket") \
	X(key_file, SECRET, "", 0, PATH_MAX, "", \
	  "file of 32 bytes, mode 600, that authenticates tickets and handshakes; empty: no key") \
	X(log_level, CHOICE, "info", KVPULL_LOG_ERROR, KVPULL_LOG_DEBUG, "error, warn, info, debug", \
	  "least important lines that are logged; overrides the engine's own level") \
	X(wire_emit, U32, "1", 1, KVPULL_WIRE_VERSION, "version", \
	  "version that tickets and handshakes are written in; keep the old one until every engine reads the new") \
	/* scheduler half */ \
	X(families_max, U32, "8192", 1, 1048576, "families", \
	  "parents of siblings that are remembered; for a further one kvpull forgets the parent that ended first") \
	X(tickets_max, U32, "4096", 1, 65536, "tickets", \
	  "tickets known at once as a consumer; a request beyond the limit is served locally") \
	X(requests_max, U32, "16384", 1, 1048576, "requests", \
	  "requests known at once; a request beyond the limit is neither held nor pulled") \
	X(step_log_mib, U32, "64", 1, 4096, "MiB", \
	  "memory for commands that not every worker has acknowledged") \
	X(share_prefix, SWITCH, "true", 0, 1, "", \
	  "whether the consumer's prefix cache serves siblings, so that a ticket needs one pull") \
	X(siblings_alone, SWITCH, "false", 0, 1, "", \
	  "whether each sibling gets a hold of its own") \
	X(abort_revokes, SWITCH, "false", 0, 1, "", \
	  "whether an abort after the finish ends the hold at once") \
	/* worker half */ \
	X(progress, CHOICE, "thread", KVPULL_PROGRESS_THREAD, KVPULL_PROGRESS_CALLER, "thread, caller", \
	  "where I/O runs: on a thread of the worker, or in calls of poll() and progress()") \
	X(route, CHOICE, "auto", KVPULL_ROUTE_AUTO, KVPULL_ROUTE_MODES - 1, KVPULL_ROUTE_NAMES, \
	  "route to peers; a peer that the named route does not reach is refused") \
	X(uring, CHOICE, "auto", KVPULL_AUTO, KVPULL_OFF, "auto, no", \
	  "io_uring where the kernel allows it") \
	X(huge, CHOICE, "auto", KVPULL_AUTO, KVPULL_OFF, "auto, no", \
	  "huge pages where the kernel grants them") \
	X(device, CHOICE, "off", KVPULL_DEVICE_OFF, KVPULL_DEVICE_REQUIRED, "off, auto, required", \
	  "whether a thread of the worker calls the driver of the GPU that the engine names, to share its memory. auto goes on where there is none, required does not. Built against a fake driver, never run on a GPU") \
	X(device_flush, CHOICE, "always", KVPULL_DEVICE_FLUSH_ALWAYS, KVPULL_DEVICE_FLUSH_DRIVER, "always, auto, driver", \
	  "who flushes what RDMA devices wrote into memory of a GPU before a pull is LOADED. always: each RDMA device itself, by a READ of that memory; auto: likewise, unless the driver says that such writes are in order; driver: the driver of the GPU") \
	X(copy_threads, U32, "1", 0, 16, "threads", \
	  "threads that copy from peers on this node, beside the progress thread") \
	X(copy_routine, TEXT, "", 0, 32, "", \
	  "routine that copies all sizes, such as memcpy or avx2-nt-4; empty: the result of kvpull_doctor --calibrate, or the default of this CPU") \
	X(progress_copies, CHOICE, "auto", KVPULL_AUTO, KVPULL_ON, "auto, no, yes", \
	  "whether the progress thread copies too, up to 2 MiB at a time; auto: yes with progress=thread; without copy_threads it always does") \
	X(inline_bytes, U32, "65536", 0, 131072, "bytes", \
	  "poll() copies pulls up to this size from memory of this node itself, in order, 256 KiB a poll. A poll without records helps with larger pulls whose blocks are short powers of two, 256 KiB a poll, unless the engine took event_fd(). 0: with progress=thread, poll() copies nothing") \
	X(pulls_max, U32, "512", 1, 65536, "pulls", \
	  "pulls at once; further pulls wait") \
	X(pull_blocks_max, U32, "32768", 1, 65536, "blocks", \
	  "blocks of one pull, over all groups") \
	X(peers_max, U32, "64", 1, 4096, "peers", \
	  "producer ranks with tickets that wait for blocks. Pulls may use as many connections again, up to 64. For a further one kvpull closes the connection unused for longest, and makes it again when it is wanted") \
	X(consumers_max, U32, "64", 1, 4096, "consumers", \
	  "consumer ranks that P serves at once; when all places are taken, one without a claim makes room") \
	X(ring_records, POWER, "4096", 16, 1048576, "records", \
	  "notifications that fit into a consumer's ring; a power of two") \
	X(deadline_ms, U64, "0", 0, 3600000, "ms", \
	  "time after which a pull fails; 0: lease_ms") \
	X(flush_after_ms, U64, "100", 1, 60000, "ms", \
	  "a pull beyond its deadline is cut off after this time without progress, or after ten times this time") \
	X(grace_ms, U64, "0", 0, 3600000, "ms", \
	  "time between the death of a consumer and the end of its holds; over a network at least a lease") \
	X(connect_ms, U64, "5000", 10, 600000, "ms", \
	  "time that a peer has to answer, before it counts as gone") \
	X(uids, UIDS, "own", 0, UINT32_MAX - 1, "user ids", \
	  "users of this node whose processes may read this worker's blocks, and are read from; at most 8. In a user namespace 65534 is every user that it does not map: such peers need key_file, too") \
	X(socket_dir, FOLDER, "/tmp/kvpull-UID", 1, 96, "", \
	  "folder of the sockets that consumers on this node connect to") \
	X(status, CHOICE, "on", KVPULL_STATUS_ON, KVPULL_STATUS_OFF, "on, off", \
	  "whether to keep the file that kvpull_top reads: in socket_dir if that is in memory, else in /dev/shm/kvpull-UID") \
	X(status_group, U32, "0", 0, UINT32_MAX - 1, "group id", \
	  "group that may read the status file (mode 440); 0: only its owner may (mode 400)") \
	/* the route between machines */ \
	X(networks, TEXT, "", 0, 256, "", \
	  "networks of peers on other machines, such as 10.0.0.0/8,fd00::/8; empty: the subnet of the own address") \
	X(verbs_device, TEXT, "", 0, 512, "", \
	  "RDMA devices, such as mlx5_0,mlx5_1, one a rail, or a pattern, such as mlx5_*. Local ranks may have a list each, with ; between them; with fewer lists they begin again. Empty: kvpull chooses, and logs the choice") \
	X(verbs_address, TEXT, "", 0, 512, "", \
	  "own IP addresses on those devices, one a rail, and a list a local rank likewise; empty: kvpull chooses") \
	X(verbs_rails, U32, "0", 0, 8, "rails", \
	  "devices or ports that a peer is read by at once; 0: as many as are named above, or 1") \
	X(verbs_qps, U32, "1", 1, 4, "queue pairs", \
	  "queue pairs to a peer by each rail, so that one pull spreads over the links of a bond or the paths of a routed fabric; the lesser of both ends' values counts") \
	X(verbs_port, U32, "0", 0, 255, "port", \
	  "port of the device, from 1; 0: kvpull chooses") \
	X(verbs_gid_index, U32, "65535", 0, 65535, "index", \
	  "GID of the port; 65535: kvpull chooses") \
	X(verbs_listen_port, U32, "0", 0, 65535, "port", \
	  "port that consumers on other machines connect to, plus the worker's verbs_local_rank; 0: any free port") \
	X(verbs_local_rank, U32, "65535", 0, 65535, "rank", \
	  "place of the worker among those of its node, from 0: it decides which of equal devices the worker takes, and is added to verbs_listen_port; 65535: its tensor-parallel rank") \
	X(verbs_depth, U32, "256", 4, 16384, "work requests", \
	  "READs in flight to a peer, a queue pair") \
	X(verbs_batch, U32, "128", 1, 128, "work requests", \
	  "READs a doorbell; the last one is signalled") \
	X(verbs_rd_atomic, U32, "16", 1, 255, "READs", \
	  "READs that the wire carries at once") \
	X(verbs_credits, U32, "32", 4, 4096, "frames", \
	  "messages to a peer that are not acknowledged yet") \
	X(verbs_retry_count, U32, "6", 1, 6, "retries", \
	  "retransmissions of a lost packet before the peer counts as lost; 7 would mean unlimited on some devices") \
	X(verbs_ack_timeout, U32, "14", 8, 21, "exponent", \
	  "how long a packet waits for its acknowledgement: 4.096 us times 2 to the power of this; 14 is 67 ms") \
	X(verbs_traffic_class, U32, "0", 0, 255, "class", \
	  "traffic class of packets to peers; 0: the system's default") \
	X(verbs_slice_bytes, U64, "1048576", 4096, 1073741824, "bytes", \
	  "largest READ") \
	X(verbs_window_bytes, U64, "16777216", 65536, 4294967296, "bytes", \
	  "bytes in flight to a peer, a queue pair, in four batches")
/* clang-format on */

#define KVPULL_KEY_MEMBER_U32(name, max) uint32_t name;
#define KVPULL_KEY_MEMBER_U64(name, max) uint64_t name;
#define KVPULL_KEY_MEMBER_POWER(name, max) uint32_t name;
#define KVPULL_KEY_MEMBER_SWITCH(name, max) uint32_t name;
#define KVPULL_KEY_MEMBER_CHOICE(name, max) uint32_t name;
#define KVPULL_KEY_MEMBER_FOLDER(name, max) char name[max];
#define KVPULL_KEY_MEMBER_TEXT(name, max) char name[max];
#define KVPULL_KEY_MEMBER_SECRET(name, max) char name[max];
#define KVPULL_KEY_MEMBER_UIDS(name, max) uint32_t name[KVPULL_UIDS_MAX];
#define KVPULL_KEY_MEMBER(name, type, value, min, max, unit, meaning)          \
	KVPULL_KEY_MEMBER_##type(name, max)

#endif /* KVPULL_PLUGIN_CONFIG_KEYS_H */
