/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Unix SEQPACKET sockets in a folder: names, who is at the other end, messages
 * with descriptors. Nothing here blocks.
 */
#ifndef KVPULL_SHM_ENDPOINT_H
#define KVPULL_SHM_ENDPOINT_H

#include <stddef.h>
#include <stdint.h>

#include "base/log.h"
#include "base/transport.h"

/* A name, and a dot, must fit sun_path (108) behind "/proc/self/fd/N/". */
#define KVPULL_ENDPOINT_NAME_BYTES_MAX 80u /* with NUL */
/*
 * The only message of a producer whose table of callers is full, before it
 * closes. The owners' messages are longer.
 */
#define KVPULL_ENDPOINT_FULL "KVPfull"
/* Likewise, to a process whose user it does not let in. */
#define KVPULL_ENDPOINT_USER "KVPuser"
/* Revocation table, ring, doorbell; then one a mapping or file of regions. */
#define KVPULL_ENDPOINT_FDS_OWN 3u
#define KVPULL_ENDPOINT_FDS_MAX (KVPULL_ENDPOINT_FDS_OWN + KVPULL_REGIONS_MAX)
/* Largest packet; a larger message goes in parts: parts.h. */
#define KVPULL_PACKET_BYTES_MAX 65536u
#define KVPULL_PACKET_FDS_MAX 253u /* the kernel's SCM_MAX_FD */

struct kvpull_folder; /* folder.h */

struct kvpull_listener {
	int fd; /* -1: none */
	int folder_fd;
	uint64_t inode; /* of the socket's file, so that only ours is removed */
	uint64_t young_ns; /* when its times were set; 0: as it was made */
	char name[KVPULL_ENDPOINT_NAME_BYTES_MAX];
};

/* Identity of the process at the other end, as the kernel says. */
struct kvpull_identity {
	uint32_t uid;  /* 65534 across a user namespace */
	int32_t pid;   /* 0: in another PID namespace */
	int32_t pidfd; /* readable once it died; -1: the socket alone tells */
};

struct kvpull_message {
	const char *word; /* sent ahead of the bytes, without its NUL; or NULL */
	const void *bytes;
	size_t byte_count;
	const int *fds; /* [fd_count], stay the caller's */
	uint32_t fd_count;
};

/*
 * Is there a socket of that (good) name in the folder? 0; KVPULL_EROUTE:
 * another node's, or gone; KVPULL_EAGAIN: out of memory.
 */
int KVPULL_MUST_CHECK kvpull_endpoint_find(int folder_fd, const char *name);

/**
 * Listen in the folder, which is open. A stale socket of that name is removed, and so are
 * those that other workers of ours left when they were killed.
 *
 * @mode  of the socket's file; 0 leaves it to the umask
 * Return: 0, KVPULL_EINVAL (name), KVPULL_EDEVICE (logged).
 */
int KVPULL_MUST_CHECK kvpull_listener_open(struct kvpull_listener *listener,
					   const struct kvpull_folder *folder,
					   const char *name, uint32_t mode,
					   const struct kvpull_log *log);
void kvpull_listener_close(struct kvpull_listener *listener);
/*
 * 1: the folder has our socket by its name, and it is young again for whoever
 * cleans the folder of what is old; 0: it was removed, or the folder was.
 */
int kvpull_listener_is_named(struct kvpull_listener *listener,
			     struct kvpull_folder *folder, uint64_t now_ns);
/* 0; KVPULL_EAGAIN: nobody waits; KVPULL_EFULL: out of descriptors. */
int KVPULL_MUST_CHECK kvpull_listener_accept(struct kvpull_listener *listener,
					     int *fd);

/*
 * 0; KVPULL_EROUTE (bad name), KVPULL_EPEER (nobody listens), KVPULL_EAGAIN
 * (its backlog is full, or we are out of descriptors or memory: errno says
 * which), KVPULL_EAUTH (not allowed to connect). It takes no descriptors.
 */
int KVPULL_MUST_CHECK kvpull_endpoint_connect(int folder_fd, const char *name,
					      const struct kvpull_log *log,
					      int *fd);
/* From now on its other end may hand over descriptors. */
void kvpull_endpoint_trust(int fd);

/* uid and pid, no pidfd yet. 0; KVPULL_EPEER: the kernel does not say who. */
int KVPULL_MUST_CHECK kvpull_identity_get(struct kvpull_identity *identity,
					  int fd);
/*
 * Opens the process's pidfd, which the caller closes, where there is one; else
 * -1. 0; KVPULL_EAGAIN: out of descriptors or memory.
 */
int KVPULL_MUST_CHECK kvpull_identity_watch(struct kvpull_identity *identity,
					    int fd);
/* 1: it died; 0: it lives, or there is no pidfd to ask. */
int kvpull_identity_is_dead(const struct kvpull_identity *identity);

/*
 * Sends a packet. 0; KVPULL_EAGAIN: the other end does not read, or the kernel
 * has no room for its descriptors or bytes (kvpull_errno_is_shortage(errno));
 * KVPULL_EPROTO: it is too large (logged); KVPULL_EPEER.
 */
int KVPULL_MUST_CHECK kvpull_endpoint_send(int fd,
					   const struct kvpull_message *message,
					   const struct kvpull_log *log);

/**
 * Receive one packet.
 *
 * @bytes     out; [KVPULL_PACKET_BYTES_MAX]
 * @fds       out; [fd_count], or NULL: none are wanted
 * @fd_count  in: room, at most KVPULL_PACKET_FDS_MAX; out: received
 * Return: bytes > 0; 0: nothing there; KVPULL_EPEER: the end; KVPULL_EPROTO:
 * too long or with descriptors beyond the room; KVPULL_EAGAIN: its descriptors
 * could not be taken, for want of our own. In both cases none is left open.
 */
int KVPULL_MUST_CHECK kvpull_endpoint_receive(int fd, uint8_t *bytes, int *fds,
					      uint32_t *fd_count);

/*
 * After we sent our last message; what comes from the other end is dropped. 1:
 * it is open; 0: the other end has read all and closed; KVPULL_EAGAIN: it closed
 * before it read our message; KVPULL_EPEER.
 */
int KVPULL_MUST_CHECK kvpull_endpoint_closed(int fd);

#endif /* KVPULL_SHM_ENDPOINT_H */
