/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Waits for descriptors with tokens, by epoll; an io_uring loop can replace it
 * behind these calls.
 *
 * A token names a thing and its generation, so an event of a closed thing
 * cannot be taken for its successor's in the same batch.
 */
#ifndef KVPULL_SHM_WAIT_H
#define KVPULL_SHM_WAIT_H

#include <stdint.h>

#include "base/log.h"

#define KVPULL_WAIT_BATCH_MAX 8u

enum kvpull_wait_kind {
	KVPULL_WAIT_COPY = 1, /* a copy ended while the owner slept */
	KVPULL_WAIT_TIMER,
	KVPULL_WAIT_LISTENER,
	KVPULL_WAIT_CALLER_SOCKET,
	KVPULL_WAIT_CALLER_DEATH,
	KVPULL_WAIT_PEER_SOCKET,
	KVPULL_WAIT_PEER_DEATH
};

struct kvpull_wait_token {
	enum kvpull_wait_kind kind;
	uint32_t index;
	uint32_t generation; /* low 24 bits count */
};

struct kvpull_wait {
	int fd;
};

/* 0, or KVPULL_EDEVICE (logged). */
int KVPULL_MUST_CHECK kvpull_wait_open(struct kvpull_wait *wait,
				       const struct kvpull_log *log);
void kvpull_wait_close(struct kvpull_wait *wait);

/* Told as long as fd is readable, hung up or broken. 0 or KVPULL_EDEVICE. */
int KVPULL_MUST_CHECK kvpull_wait_add(struct kvpull_wait *wait, int fd,
				      struct kvpull_wait_token token);
/*
 * Before close(fd): a copy of it in a fork()ed child would keep it here.
 */
void kvpull_wait_remove(struct kvpull_wait *wait, int fd);
/* Remove and close it, if there is one; *fd is -1 after. */
void kvpull_wait_end(struct kvpull_wait *wait, int *fd);

/*
 * Returns the ready tokens, at most `capacity` <= KVPULL_WAIT_BATCH_MAX. Tokens
 * that were returned go to the end of the queue, so a busy descriptor does not
 * starve the others.
 */
uint32_t kvpull_wait_poll(struct kvpull_wait *wait,
			  struct kvpull_wait_token *tokens, uint32_t capacity);

#endif /* KVPULL_SHM_WAIT_H */
