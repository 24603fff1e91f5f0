/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ib_pull's parts: options, the control socket between producer and consumer,
 * the two roles, and what is printed.
 *
 * The control socket stands for the router: a consumer asks the producer for a
 * prefill and gets a ticket. It is a SEQPACKET socket in the socket folder, or
 * TCP between machines.
 */
#ifndef KVPULL_TOOLS_IB_PULL_PARTS_H
#define KVPULL_TOOLS_IB_PULL_PARTS_H

#include <stdint.h>
#include <stdio.h>

#include "base/clock.h"
#include "tools/ib_pull_engine.h"

#define IB_TICKET_BYTES_MAX 131072u
#define IB_BLOCKS_MAX 16384u /* of a request, all groups */
#define IB_SIBLINGS_MAX 64u
#define IB_PROBE_MAX 256u /* keys of a request of --pool */
#define IB_DEPTH_MAX 1024u
#define IB_PORT 18515u       /* as perftest's */
#define IB_CHUNK_TOKENS 512u /* that a trace's hash stands for */
#define IB_DEPTH_TRACE 64u   /* without --depth */
#define IB_BARS_MAX 65u      /* lengths of a number of 64 bits, in bits */

struct ib_options {
	struct engine_shape shape;
	uint32_t request_blocks; /* a group */
	uint32_t request_count;  /* a consumer */
	uint32_t depth;          /* requests in flight */
	uint32_t siblings;
	uint32_t consumers; /* --demo, and readers of --pool */
	uint32_t demo;
	uint32_t pool;   /* owners and readers of chunks */
	uint32_t owners; /* these four: of --pool */
	uint32_t keys;
	uint32_t rate; /* requests that an owner computes in a second */
	double zipf;
	uint32_t copy_threads;
	uint32_t lease_ms;
	uint32_t reject_percent;
	uint32_t abort_percent;
	uint32_t token_us; /* of a trace's output token */
	uint32_t tp_size;
	uint32_t verify;
	uint32_t json;
	uint32_t thread;     /* progress=thread */
	uint32_t one_by_one; /* --depth are admitted, then pulled in turn */
	uint32_t spin;       /* producers: poll, and never sleep */
	uint32_t foreign;
	uint32_t verbose;
	uint32_t quiet;
	uint32_t sweep;      /* one run for each count of blocks, doubled */
	uint32_t histogram;  /* of latencies */
	uint32_t interval_s; /* a line each time; 0: none */
	uint32_t kill_after; /* raise SIGKILL when so many pulls are claimed */
	uint64_t seed;
	uint32_t port;       /* 0: no network, when serving */
	uint32_t retry_s;    /* a producer that is gone is called so long */
	uint32_t stats;      /* ask for the producer's counters, no pull */
	uint32_t ticket;     /* ask for one prefill, print its ticket */
	uint32_t duration_s; /* 0: request_count requests */
	uint32_t contiguous; /* blocks of a request lie side by side */
	uint32_t lead_ms;    /* from a request's admission to its pull */
	uint32_t gid_index;  /* + 1; 0: chosen */
	const char *device;  /* NULL: chosen */
	const char *dir;
	const char *peer; /* the operand; NULL: there is none */
	const char *host; /* NULL: the producer is on this machine */
	const char *trace;
	const char *report;  /* HTML page to write; NULL: none */
	double speed;        /* the trace's seconds in one of ours */
	const char *release; /* a ticket, @file or -; NULL: none */
	const char *name;    /* engine id */
	const int *stop;     /* the signal that ends this; 0: none came */
};

enum ib_ask_kind {
	IB_ASK_PREFILL = 1,
	IB_ASK_STATS,
	IB_ASK_GIVE /* the last ticket of this connection is given back */
};

struct ib_ask {
	uint32_t kind;
	uint32_t blocks; /* a group; <= IB_BLOCKS_MAX / groups */
	uint32_t siblings;
	uint32_t reserved;
};

struct ib_answer {
	int32_t code;
	uint32_t ticket_bytes; /* text follows */
	union {
		uint64_t seed; /* of the blocks' pattern */
		/* IB_ASK_STATS: of ended holds; 0 from an older producer. */
		uint64_t held_block_us;
	};
	uint64_t holds_live, holds_released, holds_expired, holds_revoked;
	uint64_t blocks_free, blocks_all, double_reports, consumers_died;
	uint32_t block_bytes, layer_count, group_count,
		reserved;  /* its shape */
	uint64_t host;     /* of the producer: whose clock it is */
	uint64_t ended_ns; /* when a hold was reported ended last */
};

/* An answer as it is sent; no byte follows its ticket. */
struct ib_message {
	struct ib_answer answer;
	char ticket[IB_TICKET_BYTES_MAX];
};

/* Results of a consumer; --demo keeps them in shared memory. */
struct ib_result {
	/* Counts, of the type that printf() takes. */
	unsigned long long pulls, loaded, failed, expired, rejected, aborted,
		served;
	unsigned long long bytes, bytes_checked, bytes_wrong, double_reports;
	unsigned long long tables_left; /* pulls, tickets open at the end */
	uint64_t bytes_timed;
	uint64_t took_ns;    /* sum over pulls, for bytes_timed */
	uint64_t elapsed_ns; /* in pulls only, for bytes_timed */
	uint64_t copy_ns;    /* memory copy of the same bytes, interleaved */
	uint64_t copy_bytes;
	uint64_t prompt_tokens, local_tokens; /* of a trace; here before */
	uint64_t held_block_us, holds_ended;  /* of the producer, meanwhile */
	uint64_t connect_ns;   /* first call to a peer, until it is up */
	uint64_t reconnect_ns; /* the last one after a loss; 0: none */
	uint32_t latency_count;
	uint32_t done; /* to its end, and not cut short */
	uint32_t release_count;
	char routes[64];     /* of peers, "shm+verbs"; "": none */
	uint64_t *latencies; /* ns; not shared; to be freed, with these: */
	uint64_t *phases;    /* [ENGINE_PHASES][request_count] of the same */
	uint64_t *releases;  /* the same: end of a pull to that of its hold */
	uint64_t *late;      /* of a trace's requests; the same */
	uint32_t late_count;
};

struct ib_interval {
	uint64_t at_ns; /* 0: nothing was printed */
	struct ib_result result;
};

/* Serve until *options->stop; 0 or 1. */
int ib_serve(const struct ib_options *options);
/* Pull; 0, or 1 if something was wrong. */
int ib_pull(const struct ib_options *options, struct ib_result *result);
int ib_demo(const struct ib_options *options);
/*
 * fork(): the child ends with us. It leaves a Ctrl-C, which is everybody's, to
 * those that it serves.
 */
pid_t ib_child_start(int serves);
/*
 * Wait for the last of these children: its status as of waitpid(). A signal that
 * was for us alone goes to all of them: they end, and say what they did. On a
 * terminal the progress of a demo's results is shown, if there are any.
 */
int ib_child_wait(const struct ib_options *options, const pid_t *pids,
		  uint32_t count, const struct ib_result *results);
/*
 * Play with several processes: in a folder of their own where --dir names none,
 * and with memory that they share, 0 at first. Returns what play() returns, or 1:
 * why not was said.
 */
int ib_together(const struct ib_options *options, const char *name,
		size_t shared_bytes,
		int (*play)(struct ib_options *own, void *shared));
/* A pause that a signal may end. */
static inline void ib_nap(uint64_t ns)
{
	const struct timespec nap = kvpull_clock_timespec(ns);

	(void)nanosleep(&nap, NULL);
}

/* A worker's configuration, or a pool's, to be freed; NULL: said. */
char *ib_config_make(const struct ib_options *options);
/* ib_pull_release.c: a ticket, as a router has it; 0 or 1. */
int ib_ticket(const struct ib_options *options);
/* Takes a ticket, and gives it back unread. */
int ib_release(const struct ib_options *options);
int ib_ask_stats(const struct ib_options *options, struct ib_answer *answer);

void ib_print_header(const struct ib_options *options);
int ib_print_stats(const struct ib_options *options);
/* Prints the result of a run, alone or in a sweep. */
void ib_print_result(const struct ib_options *options,
		     struct ib_result *result);
/* ib_pull_html.c: a run goes into the page of --report; ib_print_result() sorted its times. */
void ib_html_add(const struct ib_options *options,
		 const struct ib_result *result);
/* 0, or 1: it cannot be written, and that was said. */
int ib_html_write(const struct ib_options *options);
/* @part of the sorted times, 0 to 1, in microseconds. */
double ib_percentile_us(const uint64_t *sorted, uint32_t count, double part);
double ib_pull_gb_s(const struct ib_result *result);
double ib_copy_gb_s(const struct ib_result *result);
/* Pulls by the bits of their ns: powers of two. */
void ib_bars_count(const struct ib_result *result, uint32_t bars[IB_BARS_MAX]);
/* Bytes that a request of --count blocks a group pulls. */
unsigned long long ib_request_bytes(const struct ib_options *options);
/* Print what stands before and after the runs of a sweep. */
void ib_print_sweep_begin(const struct ib_options *options);
void ib_print_sweep_end(const struct ib_options *options);
/*
 * Prints the result since the last line; *printed is the state at that line, 0
 * at first.
 */
void ib_print_interval(const struct ib_options *options,
		       const struct ib_result *result, uint64_t begun_ns,
		       struct ib_interval *printed);

/* Shared by the roles; 0, or why not was said. */
int ib_engine_open(const struct ib_options *options, struct engine *engine);
/* Polls the engine @polls times, or until an event came. 0 or an error. */
int ib_engine_spin(struct engine *engine, uint32_t polls);

/* ib_pull_times.c: how long connections and releases take. */
struct ib_times {
	uint32_t wanted;      /* the next ticket is of a new producer */
	uint32_t is_again;    /* not the first one */
	uint64_t asked_ns;    /* its connection is awaited since; 0: not */
	uint64_t incarnation; /* connected last */
	uint64_t host;
	uint64_t load_ns;  /* a pull was about to start */
	uint64_t ended_ns; /* and ended; 0: its release is not awaited */
};
/* Identifies the host and boot that this process's clock belongs to. */
uint64_t ib_times_host(void);
void ib_times_ticket(struct ib_times *times);
void ib_times_look(struct ib_times *times, struct engine *engine,
		   struct ib_result *result);
/*
 * Adds the routes of the present peers; ib_times_look() has added earlier ones.
 */
void ib_times_routes(const struct engine *engine, struct ib_result *result);
/* The producer said when it saw a hold end. */
void ib_times_answer(struct ib_times *times, const struct ib_answer *answer,
		     struct ib_result *result, uint32_t count_max);

/* ib_pull_control.c */
#define IB_LISTENERS 2 /* in the socket folder, and at --port if there is one */

enum ib_call_kind {
	IB_CALL_FIRST, /* its producer may begin later: ten seconds */
	IB_CALL_AGAIN  /* one try, and nothing is said */
};
/* 0, or why not was said. Listeners other than -1 are open either way. */
int ib_control_listen(const struct ib_options *options,
		      int listeners[IB_LISTENERS]);
/* A descriptor, or -1 and why was said. */
int ib_control_connect(const struct ib_options *options,
		       enum ib_call_kind kind);
/* A client that does not read must not hold its producer. */
void ib_control_limit(int control);
/* 0 or -1. */
int ib_control_send(int control, const void *bytes, size_t byte_count);
/*
 * 1; 0: not there yet, of it are *ask_bytes, 0 at first; -1: the other side is
 * gone.
 */
int ib_control_ask_take(int control, struct ib_ask *ask, uint32_t *ask_bytes);
/*
 * 0 or -1. Signals do not end it, but the one that ends this process: *stop.
 */
int ib_control_answer_take(int control, struct ib_message *message,
			   const int *stop);

/* ib_pull_call.c: a consumer's call to its producer. */
struct ib_call {
	const struct ib_options *options;
	int control;          /* -1: nobody is called */
	uint64_t pool_blocks; /* of the producer */
	uint64_t lost_ns; /* since then the producer is gone; 0: it is not */
	uint64_t full_ns; /* since then it has no room; 0: it has */
	uint32_t full_is_said;
	/* The last answer, and its ticket's text. */
	struct ib_message message;
};
/* 0, or why not was said. Closed either way. */
int ib_call_open(struct ib_call *call, const struct ib_options *options);
void ib_call_close(struct ib_call *call);
/* 0: its message is the answer; or 1: the producer is gone, which was said. */
int ib_call_ask(struct ib_call *call, const struct ib_ask *what);
/*
 * Gives the last ticket back: its pull failed, and may have reached nobody who
 * ends its hold.
 */
void ib_call_give(struct ib_call *call);
/* The producer is gone: 0: called again, or soon; 1: given up. */
int ib_call_again(struct ib_call *call);
/*
 * The producer has no room, and no request of ours will end: wait before asking
 * again.
 */
void ib_call_full(struct ib_call *call);

/* A request that arrives. */
struct ib_arrival {
	double at_s; /* after the first one */
	uint32_t prompt_tokens;
	uint32_t output_tokens;
	uint32_t siblings;
	uint32_t abort;
	uint32_t line; /* of the file */
	uint32_t hash_count;
	uint64_t hash_first; /* in the trace's hashes */
};

struct ib_trace {
	struct ib_arrival *arrivals; /* in the order of their time */
	uint64_t *hashes;            /* a chunk and all before it, each */
	uint32_t count;
	uint64_t hash_count;
	uint32_t prompt_tokens_max; /* and its line */
	uint32_t prompt_line;
};
/* The whole file; 0, or -1: said why, with the number of the line. */
int ib_trace_read(const char *path, struct ib_trace *trace);
void ib_trace_free(struct ib_trace *trace);

/* ib_pull_keys.c: what requests of --pool ask for. */
struct ib_keys {
	const struct ib_options *options;
	struct ib_trace trace; /* of requests with hash_ids */
	double *summed;        /* [keys]: the weights up to each, or NULL */
};
/* 0, or -1: said why. Closed either way. */
int ib_keys_open(struct ib_keys *keys, const struct ib_options *options);
void ib_keys_close(struct ib_keys *keys);
/*
 * Writes a request's keys to [request_blocks]. number: the request's in the
 * trace, which begins again at its end; *random: state of Zipf's draws. Returns
 * how many.
 */
uint32_t ib_keys_of(const struct ib_keys *keys, uint64_t number,
		    uint64_t *random, uint64_t *to);
/* ib_pull_pool.c: --pool; 0, or 1 if something was wrong. */
int ib_pool(const struct ib_options *options);

#endif /* KVPULL_TOOLS_IB_PULL_PARTS_H */
