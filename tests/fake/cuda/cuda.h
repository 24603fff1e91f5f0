/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A libcuda.so.1 without a GPU, for programs that find it by LD_LIBRARY_PATH.
 *
 * Device memory is a memfd, so that its descriptor can be handed to another
 * process. Addresses that a program gets lie in ranges that nobody may touch:
 * a load or store by the CPU is a SIGSEGV. The fake has a mapping of its own
 * beside each (`view`). A stream is a thread; kernels are the C of tests/gpu/kernels.cu.
 *
 * A call that the driver would refuse gets the driver's code. A program that
 * does what no driver reports, but loses data or memory, is ended with a line
 * "fake cuda: ...", exit status 99: see fake_wrong().
 *
 * Environment: FAKE_CUDA_VERSION (13000; 12080 and 12000 have fewer calls),
 * FAKE_CUDA_LATE_US (each piece of a stream's work begins so late),
 * FAKE_CUDA_INSIDE_US (copies, fills and kernels pause so long in their middle, and
 * others go on meanwhile),
 * FAKE_CUDA_SLOW ("cuMemSetAccess 50000": each such call takes so many us more;
 * "cuMemMap never": it does not return),
 * FAKE_CUDA_POSIX_FD (0: memory cannot be handed out),
 * FAKE_CUDA_RDMA (1: promises memory for NICs, and refuses it all the same; 2:
 * gives it, by dmabufs),
 * FAKE_CUDA_FLUSH, FAKE_CUDA_ORDERING, FAKE_CUDA_MPS (attributes 117, 118 and 133; 0),
 * FAKE_CUDA_READ ("801": to map for reads alone has that code),
 * FAKE_CUDA_REFUSE ("cuMemCreate 2": each such call has that code; "#7 801": the
 * seventh call has it, of whatever name; "#7 700": and so has each later one).
 * FAKE_CUDA_LEDGER (a file in which all processes of a run note what they have: see
 * ledger.h). How many GPUs there are, and which of them a process sees: see gpus.h.
 */
#ifndef KVPULL_TESTS_FAKE_CUDA_H
#define KVPULL_TESTS_FAKE_CUDA_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/types.h>

#include "tests/fake/cuda/gpus.h"
#include "tests/gpu/driver.h"

#define FAKE_HANDLES_MAX 256u
#define FAKE_RANGES_MAX 256u
#define FAKE_HOSTS_MAX 64u
#define FAKE_QUEUE_MAX 1024u /* as a stream of the driver has */
#define FAKE_SPANS_MAX 4u
#define FAKE_WHOLE_BYTES 4096u /* a copy of no more has no middle */
#define FAKE_FORMER_BYTE                                                       \
	0xa5 /* left by the program that had the memory before */
#define FAKE_MEMORY_NAME "fake gpu" /* of its memfds */
#define FAKE_GRANULARITY ((size_t)2 << 20)
#define FAKE_EXPORT __attribute__((visibility("default")))

/*
 * For programs that look these up: how many calls were made, and kernels were
 * launched; how many calls this thread made that a driver may answer late;
 * @stream captures a graph from here on, or no more.
 */
FAKE_EXPORT uint64_t fake_calls(void);
FAKE_EXPORT uint64_t fake_waits(void);
FAKE_EXPORT uint64_t fake_launches(void);
FAKE_EXPORT int fake_capture(struct gpu_stream *stream, int is_capturing);
/*
 * The program's end, for one that ends by _exit(): what is left ends it, as at exit().
 */
FAKE_EXPORT void fake_end(void);
/*
 * Queue a kernel that is a function of the program's. The stream's thread calls it
 * without the lock, and calls of the driver are not allowed in it.
 */
FAKE_EXPORT int fake_run(struct gpu_stream *stream,
			 void (*kernel)(void *context), void *context);
/* Such a kernel finds @bytes of the device from @address on here, or NULL. */
FAKE_EXPORT void *fake_view(uint64_t address, uint64_t bytes);

#define FAKE_DECLARE(name, version, arguments) FAKE_EXPORT int name arguments;
GPU_ALL_CALLS(FAKE_DECLARE)
FAKE_EXPORT int cuGetProcAddress_v2(const char *symbol, void **function,
				    int version, uint64_t flags, int *status);

/* cuMemcpyBatchAsync() of 12.8 and of 13.0. */
FAKE_EXPORT int fake_batch_12(uint64_t *targets, uint64_t *sources,
			      size_t *bytes, size_t count,
			      struct gpu_copy_attributes *attributes,
			      size_t *attribute_from, size_t attribute_count,
			      size_t *failed, struct gpu_stream *stream);
FAKE_EXPORT int fake_batch_13(uint64_t *targets, uint64_t *sources,
			      size_t *bytes, size_t count,
			      struct gpu_copy_attributes *attributes,
			      size_t *attribute_from, size_t attribute_count,
			      struct gpu_stream *stream);

/* Memory of a device, by the number that cuMemCreate() gave out. */
struct fake_handle {
	int fd; /* -1: not in use */
	size_t bytes;
	uint32_t place;  /* of the GPU */
	uint32_t owner;  /* the process that took it */
	uint32_t users;  /* the number itself, and each mapping */
	int is_released; /* the number is not valid any more */
	int is_fresh;    /* was never mapped: it holds no zeros */
};

/* Addresses that were reserved, and what is mapped there. */
struct fake_range {
	uint64_t address; /* 0: not in use */
	size_t bytes;
	size_t mapped_bytes; /* 0: nothing */
	uint64_t handle;
	uint8_t access[FAKE_GPUS_MAX]; /* of each GPU here; 0: none yet */
	uint8_t *view;
};

/* Addresses that an entry of a queue will read or write. */
struct fake_span {
	uint64_t address;
	uint64_t bytes;
};

enum fake_kind {
	FAKE_COPY = 0,
	FAKE_COPY_TO_HOST,
	FAKE_COPY_FROM_HOST,
	FAKE_FILL,
	FAKE_LAUNCH,
	FAKE_RUN,
	FAKE_RECORD,
	FAKE_WAIT
};

struct fake_entry {
	enum fake_kind kind;
	uint32_t gpu; /* that does it: the stream's */
	uint64_t target;
	uint64_t source;
	uint64_t bytes; /* of a launch: how many blocks */
	uint8_t fill;
	struct gpu_event *event;
	uint64_t event_turn; /* the record that is waited for */
	struct gpu_function *function;
	void (*kernel)(void *context); /* of FAKE_RUN */
	void *context;
	_Alignas(8) uint8_t arguments[96];
	uint64_t sum; /* of a launch: what its strips and ids say */
	struct fake_span spans[FAKE_SPANS_MAX];
};

struct gpu_event {
	uint32_t gpu;
	uint32_t flags;
	uint64_t recorded; /* records that were queued */
	uint64_t done;     /* and that were reached */
	uint64_t done_ns;
};

struct gpu_stream {
	pthread_t thread;
	uint32_t gpu;
	struct fake_entry queue[FAKE_QUEUE_MAX];
	uint64_t head; /* entries that are done */
	uint64_t tail; /* and that were queued */
	int is_ending;
	int is_capturing; /* all that is queued becomes part of a graph */
	struct gpu_stream *next;
};

/* All of the fake, under one lock; every change wakes all that wait. */
struct fake {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	pid_t pid; /* that called cuInit(); 0: nobody yet */
	uint32_t late_us;
	uint32_t inside_us;
	uint64_t random; /* of the order inside a batch */
	uint32_t gpu_count;
	struct fake_gpu gpus[FAKE_GPUS_MAX];
	_Atomic uint64_t calls;
	_Atomic uint64_t launches;
	int is_capturing; /* some stream is */
	uint32_t events;
	uint32_t modules;
	struct fake_handle handles[FAKE_HANDLES_MAX];
	struct fake_range ranges[FAKE_RANGES_MAX];
	struct fake_span hosts[FAKE_HOSTS_MAX];
	struct gpu_stream *streams;
};

extern struct fake fake;

/* The program does what would lose data: say it and end the process. */
__attribute__((noreturn, format(printf, 1, 2))) void
fake_wrong(const char *format, ...);

/*
 * 0, or why this call is not made: forked, not begun, no context, a lost one, or
 * the environment refuses it.
 */
int fake_call(const char *name);
#define FAKE_READY()                                                           \
	do {                                                                   \
		const int refused = fake_call(__func__);                       \
                                                                               \
		if (refused)                                                   \
			return refused;                                        \
	} while (0)

/* The GPU of this thread's current context; only where fake_call() returned 0. */
uint32_t fake_current(void);

/*
 * Count this call, which takes as long as the environment says. Return: the code
 * that it gives it, or 0.
 */
int fake_refusal(const char *name);

/* Sleep for so long, without the lock. */
void fake_nap(uint32_t us);

/* 1: the environment says that RDMA devices can have memory of the GPU. */
int fake_has_nics(uint32_t place);

/*
 * With the lock held. Where @gpu (FAKE_ANY: some GPU) sees @bytes from @address on,
 * or NULL: not mapped, beyond a mapping, or a store into memory that is mapped for
 * loads.
 */
void *fake_memory(uint32_t gpu, uint64_t address, uint64_t bytes, int is_store);

/* With the lock held: does work that is queued touch the range? */
int fake_is_used(uint64_t address, uint64_t bytes);

/* Queue a copy of @entry; waits while the queue is full. */
int fake_queue(struct gpu_stream *stream, const struct fake_entry *entry);

/* With the lock held: is it memory of the host's that is pinned? */
int fake_is_host(uint64_t address);

/* Is it a launch of a kernel of that module? */
int fake_is_of(const struct fake_entry *entry, const struct gpu_module *module);

/* Is a kernel of that module queued, or running? Without the lock. */
int fake_is_launched(const struct gpu_module *module);

/*
 * Run a kernel, with the lock held, but between its blocks. 0, or the code that
 * ends the context.
 */
int fake_kernel_run(const struct fake_entry *entry);

/* Note what a launch will read on the host, and what that says. */
void fake_kernel_spans(struct fake_entry *entry);

/* With the lock held: a pause without it, if the environment wants one. */
void fake_inside(uint64_t bytes);

/* With the lock held: will the launch touch the range? */
int fake_kernel_uses(const struct fake_entry *entry, uint64_t address,
		     uint64_t bytes);

#endif
