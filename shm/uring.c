/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Invariant: in_flight counts reads that were queued and whose result was not
 * polled, and is at most depth; so the completion queue, twice as large, never
 * overflows. What the kernel may refuse is found at open, by trying.
 */
#include "shm/uring.h"

#include <errno.h>
#include <poll.h>
#include <string.h>

#include "base/cause.h"

/* By number where liburing is older than the kernel. */
#ifndef IORING_SETUP_COOP_TASKRUN
#define IORING_SETUP_COOP_TASKRUN (1U << 8) /* Linux 5.19 */
#endif
#ifndef IORING_SETUP_TASKRUN_FLAG
#define IORING_SETUP_TASKRUN_FLAG (1U << 9) /* Linux 5.19 */
#endif
#ifndef IORING_SETUP_SINGLE_ISSUER
#define IORING_SETUP_SINGLE_ISSUER (1U << 12) /* Linux 6.0 */
#endif
#ifndef IORING_SETUP_DEFER_TASKRUN
#define IORING_SETUP_DEFER_TASKRUN (1U << 13) /* Linux 6.1 */
#endif

#define PROBE_OPS 64u

/* Open with the best flags that the kernel knows: 0 or -errno. */
static int ring_open(struct kvpull_uring *uring, enum kvpull_uring_mode mode)
{
	static const unsigned int flags[] = {
		IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN |
			IORING_SETUP_TASKRUN_FLAG,
		IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG,
		0,
	};
	uint32_t try = mode == KVPULL_URING_ONE_THREAD ? 0 : 1;
	int error = -EINVAL;

	for (; try < 3 && error == -EINVAL; try++)
		error = io_uring_queue_init(uring->depth, &uring->ring,
					    flags[try]);
	return error;
}

/* NULL, or what this kernel lacks. */
static const char *ring_lacks(struct io_uring *ring)
{
	union {
		struct io_uring_probe probe;
		uint8_t bytes[sizeof(struct io_uring_probe) +
			      PROBE_OPS * sizeof(struct io_uring_probe_op)];
	} known;

	memset(&known, 0, sizeof(known));
	if (io_uring_register_probe(ring, &known.probe, PROBE_OPS))
		return "no probe (Linux 5.6 has it)";
	if (!io_uring_opcode_supported(&known.probe, IORING_OP_READ) ||
	    !io_uring_opcode_supported(&known.probe, IORING_OP_WRITE))
		return "no reads and writes (Linux 5.6 has them)";
	return NULL;
}

int kvpull_uring_open(struct kvpull_uring *uring, enum kvpull_uring_mode mode,
		      uint32_t depth, int wake_fd, const struct kvpull_log *log)
{
	const char *why;
	int error;

	*uring = (struct kvpull_uring){ .log = log, .depth = depth };
	if (mode == KVPULL_URING_NO) {
		kvpull_info(
			log,
			"no io_uring: switched off; reads wait for each other");
		return KVPULL_EUNSUPPORTED;
	}
	error = ring_open(uring, mode);
	why = error ? kvpull_why(URING, -error) : ring_lacks(&uring->ring);
	if (!why && io_uring_register_eventfd(&uring->ring, wake_fd))
		why = "its eventfd is refused";
	if (why) {
		kvpull_warn(log, "no io_uring: %s; reads wait for each other",
			    why);
		if (!error)
			io_uring_queue_exit(&uring->ring);
		return KVPULL_EUNSUPPORTED;
	}
	/* A child of the engine must not share the queues. */
	(void)io_uring_ring_dontfork(&uring->ring);
	uring->is_open = 1;
	return 0;
}

int kvpull_uring_register(struct kvpull_uring *uring, uint8_t *base,
			  size_t bytes)
{
	const struct iovec buffer = { .iov_base = base, .iov_len = bytes };
	const int error = io_uring_register_buffers(&uring->ring, &buffer, 1);

	if (error) {
		kvpull_info(uring->log,
			    "io_uring: %zu bytes of buffers not registered: %s",
			    bytes, kvpull_why(LOCK, -error));
		return KVPULL_ENOMEM;
	}
	uring->is_fixed = 1;
	return 0;
}

uint32_t kvpull_uring_poll(struct kvpull_uring *uring,
			   struct kvpull_uring_result *results,
			   uint32_t capacity)
{
	struct io_uring_cqe *cqe;
	uint32_t count = 0;

	/* Peeking enters the kernel only if a flag says that it has work. */
	while (uring->in_flight && count < capacity &&
	       !io_uring_peek_cqe(&uring->ring, &cqe)) {
		results[count].tag = cqe->user_data;
		results[count].code = cqe->res;
		count++;
		io_uring_cqe_seen(&uring->ring, cqe);
		uring->in_flight--;
	}
	return count;
}

/*
 * Wait until nothing is in flight. Of a ring with SINGLE_ISSUER only the
 * thread that submitted can: for another, results never come.
 */
static void drain(struct kvpull_uring *uring, uint64_t close_by_ns)
{
	struct kvpull_uring_result result;

	while (uring->in_flight) {
		if (io_uring_get_events(&uring->ring) == -EEXIST)
			return;
		if (kvpull_uring_poll(uring, &result, 1))
			continue;
		if (kvpull_clock_ns() >= close_by_ns)
			return;
		kvpull_clock_nap();
	}
}

uint32_t kvpull_uring_close(struct kvpull_uring *uring, uint64_t close_by_ns)
{
	if (!uring->is_open)
		return 0;
	/* Entries that were queued and not flushed are lost with the queue. */
	uring->in_flight -= io_uring_sq_ready(&uring->ring);
	drain(uring, close_by_ns);
	io_uring_queue_exit(&uring->ring);
	uring->is_open = 0;
	/* The kernel itself holds the pages of registered buffers. */
	return uring->is_fixed ? 0 : uring->in_flight;
}

int kvpull_uring_queue(struct kvpull_uring *uring,
		       const struct kvpull_uring_io *io)
{
	struct io_uring_sqe *sqe = NULL;

	if (uring->in_flight < uring->depth)
		sqe = io_uring_get_sqe(&uring->ring);
	if (!sqe)
		return KVPULL_EAGAIN;
	if (io->is_write) {
		io_uring_prep_write(sqe, io->fd, io->memory, io->bytes,
				    io->offset);
		/*
		 * Without IOSQE_ASYNC the flush may write, and wait, by itself.
		 */
		sqe->flags |= IOSQE_ASYNC;
	} else if (uring->is_fixed) {
		io_uring_prep_read_fixed(sqe, io->fd, io->memory, io->bytes,
					 io->offset, 0);
	} else {
		io_uring_prep_read(sqe, io->fd, io->memory, io->bytes,
				   io->offset);
	}
	sqe->user_data = io->tag;
	uring->in_flight++;
	return 0;
}

void kvpull_uring_flush(struct kvpull_uring *uring)
{
	/*
	 * Entries that are not taken now (EAGAIN, EBUSY) stay queued for the
	 * next flush.
	 */
	if (uring->is_open && io_uring_sq_ready(&uring->ring))
		(void)io_uring_submit(&uring->ring);
}

void kvpull_uring_drop(struct kvpull_uring *uring, uint64_t tag)
{
	struct io_uring_sq *queue = &uring->ring.sq;
	unsigned int left;

	if (!uring->is_open)
		return;
	/* The last ones of the queue: what flush() could not hand over too. */
	for (left = io_uring_sq_ready(&uring->ring); left; left--) {
		struct io_uring_sqe *sqe =
			&queue->sqes[(queue->sqe_tail - left) &
				     queue->ring_mask];

		if (sqe->user_data != tag)
			continue;
		io_uring_prep_nop(sqe);
		sqe->user_data = tag;
	}
}

int kvpull_uring_arm(struct kvpull_uring *uring)
{
	struct io_uring_cqe *cqe;

	if (!uring->is_open || !uring->in_flight)
		return 0;
	return io_uring_sq_ready(&uring->ring) ||
	       !io_uring_peek_cqe(&uring->ring, &cqe);
}
