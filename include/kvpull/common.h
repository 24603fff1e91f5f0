/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Types that every public table of kvpull shares: errors, limits, the engine as
 * a host, the parameters of an open, memory for blocks, and counters.
 *
 * Conventions
 * - Every params struct starts with struct_size, filled in by the caller with
 *   its own sizeof. Shorter: the missing members are zero, their default.
 *   Longer: accepted only if the extra bytes are zero, else KVPULL_EINVAL.
 *   A size that cuts a member is KVPULL_EINVAL; sizes are multiples of 8.
 * - Array elements without struct_size have the size that the call or struct
 *   names in its *_bytes member: the caller's own sizeof, never less than in the
 *   first version. The library reads them as params structs. In elements that the
 *   library writes, members beyond the caller's size are left out, and members
 *   that the library does not know are zero.
 * - Return: 0 or a positive answer, or a negative enum kvpull_error. Out
 *   parameters are written only on success, except where said.
 * - A child made by fork() has neither the memory nor the threads of a handle.
 *   In the child, close() leaves the parent's handle alone, and any other call
 *   may end the child. The child calls exec(), or opens handles of its own.
 */
#ifndef KVPULL_COMMON_H
#define KVPULL_COMMON_H

#if defined(__SIZEOF_POINTER__) && __SIZEOF_POINTER__ != 8
#error "kvpull is for 64-bit processors: words of 64 bits in shared memory are read and written whole"
#endif

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Errors: name, value, text. The range says what is broken: -1..-19 this call
 * (nothing happened), -20..-39 this pull or hold, -40..-59 this peer,
 * -60..-79 the connector. Values are never reused.
 */
#define KVPULL_ERRORS(X)                                                       \
	X(EAGAIN, -1, "busy: call again after the next poll")                  \
	X(EINVAL, -2, "invalid argument: see the call's bounds")               \
	X(ENOMEM, -3, "out of memory or over memlock: lower the limits")       \
	X(EFULL, -4, "a table is full: raise the limit that the log names")    \
	X(ETOOSMALL, -5, "buffer too small: retry with the size returned")     \
	X(ENOTICKET, -6, "no complete ticket: serve the request locally")      \
	X(ENOTMINE, -7, "not a kvpull ticket: leave it to another connector")  \
	X(EUNSUPPORTED, -8, "not supported by this version: see the log")      \
	X(ECONFIG, -9, "configuration error: see the detail")                  \
	X(ENOKEY, -10, "unknown request key: ignored")                         \
	X(ESTALE, -11, "the chunk was overwritten: probe or write it again")   \
	X(EEXPIRED, -20, "the hold ended before the read was over: recompute") \
	X(EABORTED, -21, "the pull was aborted by its engine")                 \
	X(ETRUNCATED, -22, "the ticket lacks the blocks asked for: recompute") \
	X(EMISMATCH, -23,                                                      \
	  "the ticket is for another prompt or weights: recompute")            \
	X(EDEADLINE, -24, "the pull missed its deadline: recompute")           \
	X(EREAD, -25, "the read failed: recompute")                            \
	X(EPEER, -40, "the peer is gone: recompute, later pulls reconnect")    \
	X(EPROTO, -41, "the peer broke the protocol: check its version")       \
	X(EREJECTED, -42, "the peer refused the handshake: see the log")       \
	X(EVERSION, -43, "another wire version: upgrade the older side")       \
	X(EROUTE, -44, "no allowed route to the peer: see the log")            \
	X(EAUTH, -45, "the peer's key or uid is not accepted")                 \
	X(EDEVICE, -60, "a device or kernel service failed: close and reopen") \
	X(ERANK, -61, "a rank is silent: restart the engine")                  \
	X(ECLOSED, -62, "the connector is shutting down")

enum kvpull_error {
#define KVPULL_ERROR_ENUM(name, value, text) KVPULL_##name = (value),
	KVPULL_ERRORS(KVPULL_ERROR_ENUM)
#undef KVPULL_ERROR_ENUM
	KVPULL_OK = 0
};

/* Bounds of the ABI; those that a config key sets are in kvpull.conf(5). */
#define KVPULL_RANKS_MAX 64u            /* ranks an instance, TP x PP */
#define KVPULL_GROUPS_MAX 8u            /* block groups */
#define KVPULL_CACHES_MAX 2048u         /* cache entries a worker registers */
#define KVPULL_REGIONS_MAX 1024u        /* memory regions a worker registers */
#define KVPULL_TICKET_BLOCKS_MAX 65536u /* block ids in a ticket */
#define KVPULL_TICKET_BYTES_MAX 786432u /* text bytes of the largest ticket */
#define KVPULL_PAYLOAD_BYTES_MAX 4096u  /* engine's own bytes in a ticket */
#define KVPULL_TEXT_BYTES_MAX 128u /* names in the model record, with NUL */
#define KVPULL_DIGEST_BYTES 16u
#define KVPULL_TRACE_BYTES 24u /* W3C: id of the trace, id of the parent */

/* Log levels. */
#define KVPULL_LOG_ERROR 1u
#define KVPULL_LOG_WARN 2u
#define KVPULL_LOG_INFO 3u
#define KVPULL_LOG_DEBUG 4u

/* Parameter message: one line, no newline; valid during the call only. */
typedef void (*kvpull_log_fn)(void *context, uint32_t level,
			      const char *message);
/* The library calls fatal once, before it would free or overwrite a block in use. */
typedef void (*kvpull_fatal_fn)(void *context, const char *message);

/** Callbacks that the engine provides. All members may be 0. */
struct kvpull_host {
	size_t struct_size;
	void *context;
	kvpull_log_fn log;     /* NULL: silent */
	kvpull_fatal_fn fatal; /* NULL: abort() */
	uint32_t log_level;    /* where the key log_level is not set; 0: info */
	uint32_t reserved;
};

/** Why an open or a registration was refused. */
struct kvpull_error_detail {
	size_t struct_size;
	int32_t code;
	uint32_t reserved;
	char field[64];    /* config key or struct member, "" if none */
	char message[256]; /* one line: what, both values, what to do */
};

/**
 * The model record: members that must be equal at both ends, or KV bytes would
 * mean something else. Texts are NUL-terminated, at most KVPULL_TEXT_BYTES_MAX
 * bytes with the NUL; NULL means "". model, dtype, layout, layer_count and
 * head_count are required: zeros at both ends would be equal, too.
 */
struct kvpull_model {
	size_t struct_size;
	const char *model;     /* name or path as served */
	const char *revision;  /* of the weights' repository */
	const char *weights;   /* version of the weights now loaded */
	const char *dtype;     /* of the cache, e.g. "float16" */
	const char *layout;    /* e.g. "LBHNC" */
	const char *attention; /* backend, if its layout is its own */
	uint32_t layer_count;
	uint32_t head_count; /* KV heads of the whole model */
	/*
	 * Bytes of a head of a token in a layer, K and V together. 0: layers
	 * are unlike, and each struct kvpull_cache says its token_bytes.
	 */
	uint32_t head_bytes;
	uint32_t replicated; /* 1: each rank has all heads (MLA) */
	const char *config; /* digest of the model's configuration as it runs */
	const char *engine; /* what computes the KV, e.g. "vllm 0.32" */
};

#define KVPULL_GROUP_FULL 0u    /* full attention */
#define KVPULL_GROUP_SLIDING 1u /* sliding window: trailing blocks only */
#define KVPULL_GROUP_STATE 2u   /* recurrent state: a slot, not a token's KV */

/**
 * Layers whose blocks are named together.
 *
 * A block of a STATE group is a slot. It has what a recurrent layer keeps of all
 * tokens so far (of a convolution, a state space model, linear attention), and
 * it is right for one number of tokens alone. A ticket names one slot of such a
 * group, with the state after all tokens that the ticket has. The engine writes
 * the slot no more before the hold has ended: it goes on in another one. So a
 * request loads all tokens of a ticket and the state after them, or nothing.
 */
struct kvpull_group {
	uint32_t block_tokens; /* tokens a block, 1.. */
	uint32_t kind;
	/*
	 * Heads of the whole model in this group's layers, split over ranks as
	 * KV heads are; 0: the model's head_count. Where a state cannot be
	 * split by heads it is tp_size, one head a rank: then both ends need as
	 * many ranks.
	 */
	uint32_t head_count;
	uint32_t reserved;
};

/** Parameters of an open. The library copies strings and arrays. */
struct kvpull_open_params {
	size_t struct_size;
	const struct kvpull_host *host;
	const char *config_json; /* NULL: environment KVPULL_* and defaults */
	const struct kvpull_model *model;
	const char *engine_id; /* unique among engines; names the peer in logs */
	uint32_t tp_size;      /* 1 .. KVPULL_RANKS_MAX */
	uint32_t tp_rank;      /* worker: 0-based; scheduler: 0 */
	uint32_t pp_size;      /* pipeline stages; 0: 1 */
	uint32_t dcp_size;     /* 0 or 1; more is refused */
	uint32_t dp_rank;      /* for logs */
	uint32_t push_mode;    /* 0; else refused */
	const struct kvpull_group *groups; /* [group_count] */
	size_t group_bytes;                /* sizeof(*groups) */
	uint32_t group_count;              /* 1 .. KVPULL_GROUPS_MAX */
	uint32_t reserved;
	/*
	 * Worker: KVPULL_DEVICE_*, where the engine computes, and which one: the
	 * driver's number in this process, 0... The device is opened if the key
	 * `device` says so. Without one memory_alloc() gives host memory alone.
	 */
	uint32_t device_kind;
	int32_t device_index;
	/*
	 * Worker: its pipeline stage, 0-based; scheduler: 0. There are tp_size *
	 * pp_size ranks, at most KVPULL_RANKS_MAX. All calls that number ranks
	 * number them pp_rank * tp_size + tp_rank. The ranks of a pp_rank
	 * register the same layers, a range of the model's; ranges follow one
	 * another in the order of pp_rank, and may be of unlike lengths. The
	 * peer's engine may have other sizes.
	 */
	uint32_t pp_rank;
	uint32_t reserved2; /* 0 */
};

/* Kinds of a device. */
#define KVPULL_DEVICE_NONE 0u
#define KVPULL_DEVICE_CUDA 1u

/* Region kinds. */
#define KVPULL_REGION_PROVIDED 0u /* in memory of one memory_alloc() */
#define KVPULL_REGION_FOREIGN 1u  /* host memory of the engine's own */
#define KVPULL_REGION_STAGED 2u   /* refused in this minor */
#define KVPULL_REGION_DMABUF 3u   /* refused in this minor */
#define KVPULL_REGION_FILE 4u     /* an unnamed file of this incarnation */
/* 5 and 6 are the library's own. */
#define KVPULL_REGION_DEVICE 7u /* in one memory_alloc() of DEVICE memory */

/**
 * Memory for blocks, or a file that consumers on this node read.
 *
 * DEVICE memory is memory_alloc()'s, and the device copies from the peer's into
 * it; a region of it lies in one such memory, and the other regions are DEVICE
 * regions, too. Pulls are made from peers on this node whose memory is of a
 * device that this one can reach, and by RDMA from any peer on other nodes.
 *
 * The worker's process makes the file for itself: with O_TMPFILE, by open() and
 * unlink(), or as a memfd. The file belongs to the process's uid, is open for
 * reading, and is at least fd_offset + bytes long when it is registered. Its
 * mode becomes 0444. The engine owns fd and may close it. The engine writes
 * blocks to the file, by pwrite() or a shared mapping, before
 * request_finished() answers HELD (or before hold_ready()). From then on the
 * blocks stay as they are until the hold has ended. The file is never made
 * shorter. A consumer never pulls into a file.
 *
 * A dmabuf of the engine's own is refused (KVPULL_EUNSUPPORTED): nothing would
 * order pulls into it against its device's work. DEVICE memory has one, which the
 * worker makes for its RDMA devices.
 */
struct kvpull_region {
	size_t struct_size;
	uint32_t kind;
	int32_t fd; /* file, dmabuf; else -1 or 0 */
	void *base; /* memory; dmabuf: the device's address; NULL for a file */
	uint64_t fd_offset; /* file, dmabuf: where the region begins in it */
	uint64_t bytes;
	uint32_t device; /* dmabuf: index of the device */
	uint32_t reserved;
};

#define KVPULL_MEMORY_HUGE 1u   /* huge pages if the kernel grants them */
#define KVPULL_MEMORY_DEVICE 2u /* of the worker's device; not with HUGE */

/**
 * Memory that the worker has taken. base of DEVICE memory is an address of the
 * device: the CPU must not touch it, and the driver's calls and kernels of this
 * process may, in the device's primary context. Consumers on this node get its
 * descriptor once they were let in, and map it for reads; one that means harm
 * could map it for stores.
 */
struct kvpull_memory {
	size_t struct_size;
	void *base; /* zeroed; from 2 MiB on aligned to 2 MiB, else to a page */
	uint64_t bytes;
	uint64_t huge_bytes; /* of these, on huge pages */
	uint64_t took_ns;
	int32_t fd; /* owned by the worker: do not close */
	uint32_t reserved;
};

/**
 * Where the blocks of one group's layers lie in a region. Byte b of row w of
 * head h of block k of layer l is at
 *   offset + l * layer_stride + k * block_stride + w * row_stride
 *          + h * head_stride + b
 * Layout [block][head][token][K|V]: one row, head_stride = tokens * head bytes.
 * Layout [block][token][head][K|V]: a row a token, row_stride = heads *
 * head_stride.
 *
 * K and V in planes of their own are two caches with the same layers, K first.
 * A buffer a layer is a cache a layer (layer_count 1), each with its region or
 * its offset in one. Both engines list caches in the same order: the n-th cache
 * of a layer is read into the n-th.
 * With T tokens a block, H heads of this rank, and E bytes of a head of a token
 * for K or V alone, engines lay out their caches as follows.
 *   vLLM 0.32, a view [blocks][H][T][2 * E] of each layer, K beside V: a cache
 *     a layer, W = 2 * E. LBHNC: block_stride H * T * W, row_count 1,
 *     head_bytes and head_stride T * W. LBNHC: row_count T, row_stride H * W,
 *     head_bytes and head_stride W. Any other layout is given by the strides of
 *     its view.
 *   vLLM 0.10, [2][blocks][T][H][E] a layer: two caches, V's offset behind K's
 *     by blocks * T * H * E; block_stride T * H * E, row_count T, row_stride H
 *     * E, head_bytes and head_stride E. FlashInfer's [blocks][2][T][H][E]:
 *     V's offset T * H * E behind K's, and twice the block_stride.
 *   SGLang 0.5, k_buffer and v_buffer [page + tokens][H][E] a layer: a cache
 *     each, as the planes of vLLM 0.10; its page is the block, and block 0
 *     padding.
 *   TensorRT-LLM 1.2, a pool [blocks][layers][2][H][T][E]: two caches of all
 *     layers, layer_stride 2 * H * T * E, block_stride layers times that, V's
 *     offset H * T * E; row_count 1, head_bytes and head_stride T * E.
 *   llama.cpp (unified cache, flash attention), cache_k and cache_v
 *     [cells][H][E] a layer: as SGLang's, T cells that belong to one sequence
 *     are a block. A quantized head has as many bytes as ggml_row_size() says.
 *     V without flash attention is transposed: no head is contiguous, it
 *     cannot be described.
 *
 * Two engines that describe themselves wrongly in the same way would believe each
 * other. So regions_register() adds up row_count * head_bytes of a layer's caches
 * and compares the sum with block_tokens * the model's head_bytes, and refuses two
 * caches of a group that share a byte. Caches of different groups may share their
 * memory: such an engine gives a block to one group at a time.
 */
struct kvpull_cache {
	size_t struct_size;
	uint32_t region_index;
	uint32_t group_index;
	uint32_t layer_first; /* index in the model of the first layer */
	uint32_t layer_count;
	uint64_t offset;
	uint64_t layer_stride; /* bytes; ignored with one layer */
	uint64_t block_stride; /* bytes, >= the block's extent */
	uint64_t row_stride;   /* bytes; 0 with one row */
	uint64_t head_stride;  /* bytes */
	uint32_t block_count;
	uint32_t row_count;  /* 1.. */
	uint32_t head_first; /* first KV head of this rank in the model */
	uint32_t head_count; /* KV heads of this rank in a block */
	uint32_t head_bytes; /* contiguous bytes of a head in a row */
	/*
	 * Bytes of one head of one token in this cache: row_count * head_bytes
	 * is block_tokens * token_bytes. 0: not said; then the model's
	 * head_bytes is not 0.
	 */
	uint32_t token_bytes;
};

struct kvpull_regions {
	size_t struct_size;
	const struct kvpull_region *regions; /* [region_count] */
	const struct kvpull_cache *caches;   /* [cache_count] */
	uint32_t region_count;               /* 1 .. KVPULL_REGIONS_MAX */
	uint32_t cache_count;                /* 1 .. KVPULL_CACHES_MAX */
};

/* Kinds of a counter. */
#define KVPULL_COUNTER_TOTAL 0u /* what happened; ranks add up */
#define KVPULL_COUNTER_LIVE 1u  /* what is now; ranks add up */
#define KVPULL_COUNTER_PEAK 2u  /* the most since the last reset */

/** A counter of a half. Texts live as long as the library. */
struct kvpull_counter {
	const char *name; /* "holds_taken"; never another in a later minor */
	const char *help; /* one line */
	uint64_t value;
	uint32_t kind; /* KVPULL_COUNTER_* */
	uint32_t reserved;
};

#ifdef __cplusplus
}
#endif

#endif /* KVPULL_COMMON_H */
