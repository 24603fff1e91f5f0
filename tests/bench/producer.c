// SPDX-License-Identifier: Apache-2.0
/*
 * The producer's process: holds what it is told to and polls, with or without
 * a pause. Commands come through shared memory, so that one that spins makes
 * no system calls.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "shm/segment.h"
#include "tests/bench/node.h"

#define RECORDS 256
#define WAIT_NS (30 * KVPULL_NS_PER_S)

/* Calls in the process of the producer. */

static int hold(struct halves *halves, struct mail *mail)
{
	const struct kvpull_blocks blocks = { .block_count = mail->block_count,
					      .block_ids = mail->ids };
	const struct kvpull_request request = {
		.struct_size = sizeof(request),
		.key = halves->next_key++,
		.prompt_tokens = mail->block_count,
		.flags = KVPULL_REQUEST_WANTS_HOLD | KVPULL_REQUEST_ALONE,
	};
	struct kvpull_finish finish = {
		.struct_size = sizeof(finish),
		.key = request.key,
		.computed_tokens = mail->block_count,
		.group_count = 1,
		.groups = &blocks,
		.group_bytes = sizeof(blocks),
		.ticket = mail->ticket,
		.ticket_capacity = sizeof(mail->ticket),
	};
	int code;

	code = halves->ops->scheduler->request_new(halves->scheduler, &request);
	if (!code)
		code = halves->ops->scheduler->request_finished(
			halves->scheduler, &finish);
	if (code != KVPULL_FINISH_HELD)
		return code ? code : KVPULL_EFULL;
	mail->ticket_bytes = finish.ticket_bytes;
	return halves_step(halves);
}

static void reports_take(struct halves *halves, struct mail *mail)
{
	struct kvpull_poll_record records[RECORDS];
	const int count = halves->ops->worker->poll(halves->worker, records,
						    RECORDS, sizeof(*records));

	if (count <= 0)
		return;
	/* Ordered by the release of `sent`. */
	atomic_store_explicit(&mail->sent_ns, kvpull_clock_ns(),
			      memory_order_relaxed);
	atomic_fetch_add_explicit(&mail->sent, (uint64_t)count,
				  memory_order_release);
	(void)halves_result(halves);
	(void)halves_step(halves);
}

/* Every word of it tells where it is. */
static void memory_fill(const struct halves *halves)
{
	uint64_t *words = (uint64_t *)(void *)halves->memory;
	uint64_t at;

	for (at = 0; at < halves->memory_bytes / sizeof(*words); at++)
		words[at] = at * UINT64_C(0x9e3779b97f4a7c15);
}

static void producer_wait(const struct halves *halves, int wake_fd)
{
	struct pollfd waited[2] = {
		{ .fd = halves->event_fd, .events = POLLIN },
		{ .fd = wake_fd, .events = POLLIN },
	};
	eventfd_t ignored;

	(void)poll(waited, 2, 100);
	(void)eventfd_read(wake_fd, &ignored);
}

/* Spinning and sleeping differ in event_fd: one asks for doorbells. */
static void serve(struct halves *halves, struct mail *mail, int wake_fd)
{
	uint64_t seen = 1;
	enum mail_kind mode = MAIL_SPIN;

	for (;;) {
		if (atomic_load_explicit(&mail->asked, memory_order_acquire) !=
		    seen) {
			if (mail->kind == MAIL_END)
				return;
			mail->code = 0;
			if (mail->kind == MAIL_MARK)
				mail->marked_ns = kvpull_clock_ns();
			if (mail->kind == MAIL_HOLD)
				mail->code = hold(halves, mail);
			if (mail->kind == MAIL_SLEEP && halves->event_fd < 0)
				halves_sleep(halves);
			if (mail->kind != MAIL_HOLD && mail->kind != MAIL_MARK)
				mode = mail->kind;
			atomic_store_explicit(&mail->answered, ++seen,
					      memory_order_release);
		}
		reports_take(halves, mail);
		if (mode == MAIL_SLEEP)
			producer_wait(halves, wake_fd);
		if (mode == MAIL_PACE)
			bench_pace();
	}
}

static void producer_main(struct producer *producer,
			  const struct node_params *params, pid_t parent)
{
	struct mail *mail = producer->mail;
	struct halves halves;
	int code;

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
	code = halves_open(&halves, params);
	if (!code) {
		memory_fill(&halves);
		mail->memory_bytes = halves.memory_bytes;
		mail->huge_bytes = halves.huge_bytes;
		mail->provider_ns = halves.provider_ns;
		mail->memory_fd = halves.memory_fd;
	}
	mail->code = code;
	/* To the first thing asked, which is to open. */
	atomic_store_explicit(&mail->answered, 1, memory_order_release);
	if (!code)
		serve(&halves, mail, producer->wake_fd);
	halves_close(&halves);
	_exit(0);
}

/* Calls in the process of the bench. */

static int answer_wait(const struct producer *producer, uint64_t asked)
{
	struct mail *mail = producer->mail;
	const uint64_t until = kvpull_clock_ns() + WAIT_NS;

	while (atomic_load_explicit(&mail->answered, memory_order_acquire) !=
	       asked) {
		if (kvpull_clock_ns() > until) {
			fprintf(stderr, "bench: the producer is silent\n");
			return KVPULL_EDEADLINE;
		}
		(void)sched_yield();
	}
	return mail->code;
}

/* Returns the number that the answer will have. */
static uint64_t tell(struct producer *producer, enum mail_kind kind)
{
	uint64_t asked;

	producer->mail->kind = kind;
	asked = atomic_fetch_add_explicit(&producer->mail->asked, 1,
					  memory_order_release);
	(void)eventfd_write(producer->wake_fd, 1);
	return asked + 1;
}

static int ask(struct producer *producer, enum mail_kind kind)
{
	const uint64_t asked = tell(producer, kind);

	return kind == MAIL_END ? 0 : answer_wait(producer, asked);
}

int producer_open(struct producer *producer, const struct node_params *params)
{
	const pid_t parent = getpid();

	*producer = (struct producer){ .wake_fd = -1 };
	producer->mail =
		mmap(NULL, sizeof(*producer->mail), PROT_READ | PROT_WRITE,
		     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (producer->mail == MAP_FAILED)
		producer->mail = NULL;
	producer->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (!producer->mail || producer->wake_fd < 0)
		return KVPULL_ENOMEM;
	atomic_store_explicit(&producer->mail->asked, 1, memory_order_relaxed);
	producer->pid = fork();
	if (producer->pid < 0) {
		producer->pid = 0;
		return KVPULL_ENOMEM;
	}
	if (!producer->pid)
		producer_main(producer, params, parent);
	return answer_wait(producer, 1);
}

void producer_close(struct producer *producer)
{
	if (!producer->mail) /* never opened */
		return;
	if (producer->pid) {
		(void)ask(producer, MAIL_END);
		(void)waitpid(producer->pid, NULL, 0);
	}
	(void)munmap(producer->mail, sizeof(*producer->mail));
	if (producer->wake_fd >= 0)
		(void)close(producer->wake_fd);
	*producer = (struct producer){ .wake_fd = -1 };
}

int producer_mode(struct producer *producer, enum mail_kind kind)
{
	return ask(producer, kind);
}

int producer_hold(struct producer *producer, const uint32_t *ids,
		  uint32_t block_count, struct ticket *ticket)
{
	struct mail *mail = producer->mail;
	int code;

	if (block_count > NODE_BLOCKS_MAX)
		return KVPULL_EINVAL;
	memcpy(mail->ids, ids, block_count * sizeof(*ids));
	mail->block_count = block_count;
	code = ask(producer, MAIL_HOLD);
	if (code)
		return code;
	producer->held++;
	ticket->byte_count = mail->ticket_bytes;
	ticket->block_count = block_count;
	memcpy(ticket->text, mail->ticket, mail->ticket_bytes);
	return 0;
}

void producer_mark(struct producer *producer)
{
	(void)tell(producer, MAIL_MARK);
}

int producer_wait_marked(const struct producer *producer, uint64_t *marked_ns)
{
	const struct mail *mail = producer->mail;
	/* Told by another thread, which woke us after it. */
	const int code = answer_wait(
		producer,
		atomic_load_explicit(&mail->asked, memory_order_relaxed));

	*marked_ns = code ? 0 : mail->marked_ns;
	return code;
}

int producer_wait_sent(const struct producer *producer)
{
	const uint64_t until = kvpull_clock_ns() + WAIT_NS;

	while (atomic_load_explicit(&producer->mail->sent,
				    memory_order_acquire) < producer->held) {
		if (kvpull_clock_ns() > until) {
			fprintf(stderr, "bench: a hold does not end\n");
			return KVPULL_EDEADLINE;
		}
		(void)sched_yield();
	}
	return 0;
}

uint8_t *producer_map(const struct producer *producer)
{
	const struct mail *mail = producer->mail;
	uint8_t *base = NULL;
	char path[64];
	int fd;

	(void)snprintf(path, sizeof(path), "/proc/%d/fd/%d", producer->pid,
		       mail->memory_fd);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || kvpull_segment_map(fd, mail->memory_bytes,
					 KVPULL_SEGMENT_READ_ONLY, NULL, &base))
		fprintf(stderr, "bench: cannot map the producer's memory: %s\n",
			strerror(errno));
	if (fd >= 0)
		(void)close(fd);
	return base;
}
