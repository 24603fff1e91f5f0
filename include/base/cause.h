/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernel refused a call: this names the cause and the remedy. One table of
 * errno and call serves every line of the log. An errno alone sends people the
 * wrong way: ENOMEM of mmap() is vm.max_map_count, ulimit -v, ulimit -d,
 * overcommit or memory, and EAGAIN of pthread_create() is each of these or the
 * number of processes.
 */
#ifndef KVPULL_BASE_CAUSE_H
#define KVPULL_BASE_CAUSE_H

#include <stddef.h>

#include "base/cause.h"

/* Calls that are refused for different causes with one errno. */
enum kvpull_call {
	KVPULL_CALL_OTHER,
	KVPULL_CALL_WATCH, /* epoll_ctl() */
	KVPULL_CALL_MAP,   /* mmap() of private memory; what splits a mapping */
	KVPULL_CALL_SHARE, /* mmap() of a file or memfd */
	KVPULL_CALL_THREAD, /* pthread_create() */
	KVPULL_CALL_SIZE,   /* ftruncate(), fallocate() */
	KVPULL_CALL_LOCK, /* memory that a device or io_uring reads and writes */
	KVPULL_CALL_FOLDER,  /* mkdir(), bind(), open() in socket_dir */
	KVPULL_CALL_CONNECT, /* connect() to a socket in socket_dir */
	KVPULL_CALL_URING,   /* io_uring_setup() */
	KVPULL_CALL_PROCESS, /* process_vm_readv() */
	KVPULL_CALL_LISTEN   /* rdma_listen(), rdma_bind_addr() */
};

#define KVPULL_CAUSE_BYTES 256u

struct kvpull_cause {
	char text[KVPULL_CAUSE_BYTES];
};

/*
 * The errno in words, the cause where it can be told, and what to do:
 * "Too many open files: every descriptor of this process is in use: raise ulimit
 * -n". Return: cause->text. errno stays as it is.
 */
const char *kvpull_cause_of(struct kvpull_cause *cause, enum kvpull_call call,
			    int error);
/* As kvpull_cause_of() of KVPULL_CALL_MAP or _SHARE; bytes: that were asked for. */
const char *kvpull_cause_of_map(struct kvpull_cause *cause,
				enum kvpull_call call, int error, size_t bytes);

/* The text where it is needed: kvpull_why(FOLDER, errno). */
#define kvpull_why(call, error)                                                \
	kvpull_cause_of(&(struct kvpull_cause){ { 0 } }, KVPULL_CALL_##call,   \
			error)

#endif /* KVPULL_BASE_CAUSE_H */
