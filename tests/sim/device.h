/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Devices with memory of their own. Each process of some worlds has one, with three
 * streams: two of its engine's and the library's. Work is queued on them, and done
 * later: in its order on one stream, in any order between streams but for events.
 *
 * device.c         the table of base/device.h
 * device_work.c    streams, and what is queued on them
 * device_thread.c  the library's own thread, as steps that the world makes
 * device_read.c    reads of the simulated network by it
 * kernels.c        what engines queue, and their marks
 * controls.c       worlds that are wrong on purpose
 */
#ifndef KVPULL_SIM_DEVICE_H
#define KVPULL_SIM_DEVICE_H

#include "base/device_thread.h"
#include "tests/sim/sim.h"

#define SIM_STREAMS 3u
#define SIM_STREAM_OWN 2u /* the library's; the others are the engine's */
#define SIM_SHARES (SIM_PEERS + 1u)
#define SIM_DEVICE_GRANULARITY 4096u

enum sim_mapping {
	SIM_UNMAPPED,
	SIM_MAPPED,
	SIM_LEAVING /* its unmap was ordered */
};

enum sim_control {
	SIM_CONTROL_NONE,
	SIM_CONTROL_EVENTS, /* an event is reached before the copies before it */
	SIM_CONTROL_MARKS,  /* a mark is reached before the engine's work */
	SIM_CONTROL_ENTRY,  /* an entry never says that its hold has ended */
	SIM_CONTROL_ZEROES, /* engines zero new blocks behind their marks */
	SIM_CONTROLS
};

struct kvpull_device_event {
	uint64_t recorded; /* how often */
	uint64_t reached;  /* the last of these that was */
	uint32_t is_open;
	struct kvpull_device_event *next; /* of the device */
};

/* Words of a block, or a copy. Those of one piece of work have no order. */
struct sim_piece {
	uint8_t *to;
	const uint8_t *from; /* of a copy */
	uint64_t content;    /* else of a request; 0: zeroes */
	uint32_t index;
	uint32_t row;
	uint32_t bytes;
	uint32_t block; /* of a copy: that it writes, and whose that was */
	uint64_t key;
};

enum sim_work_kind {
	SIM_WORK_WRITE, /* an engine's kernel */
	SIM_WORK_USE,   /* one that reads what was loaded */
	SIM_WORK_COPY,
	SIM_WORK_RECORD,
	SIM_WORK_WAIT
};

struct sim_work {
	struct sim_work *next;
	enum sim_work_kind kind;
	uint64_t at_ns; /* it is not done before */
	struct kvpull_device_event *event;
	uint64_t number; /* of its records, this one or that is waited for */
	uint64_t key;    /* USE: the request */
	uint32_t piece_count;
	uint32_t capacity;
	struct sim_piece pieces[];
};

struct sim_stream {
	struct sim_work *first;
	struct sim_work *last;
	uint64_t last_ns;
	uint64_t queued; /* pieces of work so far */
	uint64_t done;   /* of these */
};

/* Memory that is mapped here, by a descriptor of our own or of another's. */
struct sim_share {
	uint8_t *base;
	size_t bytes;
	int fd; /* own; -1: of another process */
};

struct sim_device {
	struct kvpull_device base;
	struct sim_proc *proc;
	struct sim_stream streams[SIM_STREAMS];
	uint32_t stream; /* on which its engine's kernels are */
	uint32_t is_lost;
	uint32_t is_gone; /* with its process */
	struct sim_share shares[SIM_SHARES];
	struct kvpull_device_event *events; /* closed ones, too */
};

/* device.c */
int sim_device_open(struct kvpull_arena *arena, const struct kvpull_log *log,
		    int index, struct kvpull_device **device);
/* The process died: its work is never done, what it mapped is unmapped. */
void sim_device_kill(struct sim_proc *proc);
/* Frees the device, and unmaps what it still has. */
void sim_device_free(struct sim_proc *proc);
/* Takes the memory that the process registers next. */
uint8_t *sim_device_memory(struct sim_proc *proc, uint64_t bytes);
/* A worker says in its next poll that it has lost its device. */
void sim_device_polled(const struct sim_proc *proc);
/* Some device fails: nothing more is done by it. */
void sim_device_lose(struct sim_world *world);

/* device_work.c */
/* NULL: the device does nothing any more. */
struct sim_work *sim_work_queue(struct sim_device *device, uint32_t stream,
				enum sim_work_kind kind, uint32_t capacity);
void sim_work_drop(struct sim_device *device);
/* Does some of the work that is due by now. */
void sim_streams_run(struct sim_device *device, uint64_t now_ns);
/* Does all work that can be done, due or not. */
void sim_streams_flush(struct sim_device *device);

/* device_thread.c */
/* A step of the thread, whose slices have so many bytes. 1: it did something. */
int sim_thread_step(struct kvpull_device_thread *thread, uint64_t slice_bytes,
		    uint64_t now_ns);
/* Makes the last steps: kvpull_device_thread_close() waits for nothing then. */
void sim_thread_end(struct kvpull_device_thread *thread, uint32_t is_gone,
		    uint64_t now_ns);

/* device_read.c */
void sim_device_start(struct sim_proc *proc);
int sim_device_attach(struct sim_conn *conn, const struct kvpull_serve *remote);
/* 1: nothing of the server's memory is mapped any more; else its unmap goes on. */
int sim_device_detach(struct sim_conn *conn);
int sim_device_read(struct sim_transport *own, struct sim_read *mine);
void sim_device_cancel(struct sim_proc *proc, struct sim_read *mine,
		       int32_t code);
/* Ends of reads, of imports and of unmaps. */
void sim_device_poll(struct sim_transport *own, uint64_t now_ns);
/* The device and its thread go on for a while. */
void sim_device_run(struct sim_proc *proc);
void sim_device_close(struct sim_proc *proc);

/* kernels.c */
/* A kernel of the engine's, to be given pieces. NULL: there is no such device. */
struct sim_work *sim_kernel(struct sim_proc *proc, enum sim_work_kind kind,
			    uint32_t pieces);
/* Words of a block, from that row on. */
void sim_kernel_words(struct sim_work *kernel, uint8_t *to, uint32_t words,
		      uint64_t content, uint32_t index, uint32_t row);
/* The kernels that write a request's blocks were queued just now. */
void sim_kernels_note(struct sim_instance *instance,
		      struct sim_request *request);
/* Are they all done? */
int sim_kernels_are_done(const struct sim_instance *instance,
			 const struct sim_request *request);
/* READY_NEEDED: they are queued on this rank. 1: the worker knows when to offer. */
int sim_kernels_ready(struct sim_proc *proc, struct sim_request *request);
/* A consumer's engine, before its worker's step and after. */
void sim_kernels_before(struct sim_proc *proc);
void sim_kernels_after(struct sim_proc *proc);

/* controls.c: seeds of each, until it is found out. Return: how many are not. */
extern uint32_t sim_control; /* of the seeds that are run, enum sim_control */
int sim_controls_run(uint64_t seeds, void (*run)(uint64_t seed));

#endif /* KVPULL_SIM_DEVICE_H */
