/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sockets are named below /proc/self/fd/N, N being the folder's descriptor: the
 * folder that was checked is the one that is used, and its name, however long,
 * does not hit the 108 bytes of sun_path.
 */
#include "shm/endpoint.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/cause.h"
#include "base/clock.h"
#include "base/fd.h"
#include "shm/folder.h"
#include "shm/mount.h"
#include "shm/shortage.h"

/* More than a step's worth of consumers; the rest see EAGAIN and come again. */
#define SWEEP_MAX 4096u /* names looked at */
#define SWEEP_PREFIX "kvpull-"
#define SWEEP_HIDDEN_S 60
#define BACKLOG 64
#define YOUNG_NS (24 * 3600 * KVPULL_NS_PER_S) /* cleaners go by days */

/* Linux 6.5; the value of asm-generic, so of x86, arm64 and riscv. */
#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif
/* Linux has this since 6.16; older headers lack it. */
#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83
#endif

/*
 * Names reach us in tickets, through clients: [A-Za-z0-9._-]+, not beginning
 * with a dot, so nothing outside the folder can be named. 1 if good.
 */
static int name_is_good(const char *name)
{
	static const char good[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
				   "abcdefghijklmnopqrstuvwxyz"
				   "0123456789._-";
	const size_t name_bytes = strlen(name);

	return name_bytes > 0 && name[0] != '.' &&
	       name_bytes < KVPULL_ENDPOINT_NAME_BYTES_MAX &&
	       strspn(name, good) == name_bytes;
}

static int socket_stat(int folder_fd, const char *name, struct stat *stat)
{
	return fstatat(folder_fd, name, stat, AT_SYMLINK_NOFOLLOW);
}

static void address_fill(struct sockaddr_un *address, int folder_fd,
			 const char *name)
{
	memset(address, 0, sizeof(*address));
	address->sun_family = AF_UNIX;
	/* 79 characters and the dot of a hidden one: it fits. */
	(void)snprintf(address->sun_path, sizeof(address->sun_path),
		       "/proc/self/fd/%d/%.80s", folder_fd, name);
}

static int socket_make(int *fd)
{
	*fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	return *fd < 0 ? KVPULL_EDEVICE : 0;
}

/*
 * SO_PASSRIGHTS=0: neither callers nor untrusted peers may send us descriptors.
 * Otherwise the kernel installs and closes them for us, and closing the last
 * reference to a lingering socket can block this thread. Accepted sockets
 * inherit the option from the listener. A called peer's user is known only
 * after the call. Older kernels ignore the option.
 */
static void rights_refuse(int fd)
{
	const int no = 0;

	(void)setsockopt(fd, SOL_SOCKET, SO_PASSRIGHTS, &no, sizeof(no));
}

void kvpull_endpoint_trust(int fd)
{
	const int yes = 1;

	(void)setsockopt(fd, SOL_SOCKET, SO_PASSRIGHTS, &yes, sizeof(yes));
}

/* 0: connected; else errno. */
static int socket_connect(int fd, int folder_fd, const char *name)
{
	struct sockaddr_un address;

	address_fill(&address, folder_fd, name);
	/* AF_UNIX connects at once or not at all. */
	return connect(fd, (const struct sockaddr *)&address, sizeof(address)) ?
		       errno :
		       0;
}

int kvpull_endpoint_find(int folder_fd, const char *name)
{
	struct stat stat;

	if (!name_is_good(name))
		return KVPULL_EROUTE;
	if (socket_stat(folder_fd, name, &stat))
		return kvpull_errno_is_shortage(errno) ? KVPULL_EAGAIN :
							 KVPULL_EROUTE;
	return S_ISSOCK(stat.st_mode) ? 0 : KVPULL_EROUTE;
}

/*
 * 1: a process has that socket open; 0: it is a dead one's. The probe is of
 * another type, which the kernel refuses only after it has found somebody: a
 * call of the right type would take a place among a live one's callers.
 */
static int socket_lives(int folder_fd, const char *name)
{
	const int probe = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	int why;

	if (probe < 0)
		return 1;
	why = socket_connect(probe, folder_fd, name);
	(void)close(probe);
	return why != ECONNREFUSED && why != ENOENT;
}

/* Remove what a dead predecessor left; refuse what is not ours to remove. */
static int stale_remove(int folder_fd, const char *name,
			const struct kvpull_log *log)
{
	struct stat stat;

	if (socket_stat(folder_fd, name, &stat))
		return 0;
	if (!S_ISSOCK(stat.st_mode)) {
		kvpull_error(log, "socket name %s: a file that is no socket",
			     name);
		return KVPULL_EDEVICE;
	}
	if (socket_lives(folder_fd, name)) {
		kvpull_error(log, "socket name %s: in use by a live process",
			     name);
		return KVPULL_EDEVICE;
	}
	(void)unlinkat(folder_fd, name, 0);
	return 0;
}

/*
 * Removes sockets of killed workers: names die with their incarnation, so no
 * successor removes them. A name in the folder was listening when it got that
 * name, so one that refuses is dead. A hidden name may be about to listen: it
 * is dead when it is much older than ours.
 */
static void left_remove(int folder_fd, const char *name, time_t now_s)
{
	const int is_hidden = name[0] == '.';
	struct stat stat;

	if (strncmp(name + is_hidden, SWEEP_PREFIX, sizeof(SWEEP_PREFIX) - 1) ||
	    !name_is_good(name + is_hidden) ||
	    socket_stat(folder_fd, name, &stat) || !S_ISSOCK(stat.st_mode) ||
	    stat.st_uid != geteuid())
		return;
	if (!is_hidden)
		(void)stale_remove(folder_fd, name, NULL);
	else if (stat.st_mtime < now_s - SWEEP_HIDDEN_S)
		(void)unlinkat(folder_fd, name, 0);
}

/* Not where another machine's sockets lie, too: here nobody answers for them. */
static void folder_sweep(int folder_fd, time_t now_s)
{
	int copy = openat(folder_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	const int is_local = copy >= 0 && kvpull_mount_fd_is_local(copy);
	DIR *folder = is_local ? fdopendir(copy) : NULL;
	uint32_t left = SWEEP_MAX;
	const struct dirent *entry;

	if (!folder) {
		kvpull_fd_close(&copy);
		return;
	}
	while (left-- && (entry = readdir(folder)) != NULL)
		left_remove(folder_fd, entry->d_name, now_s);
	(void)closedir(folder);
}

/* Under another name until it listens: see folder_sweep(). */
static int listener_bind(struct kvpull_listener *listener,
			 const struct kvpull_folder *folder, uint32_t mode,
			 const struct kvpull_log *log)
{
	char hidden[KVPULL_ENDPOINT_NAME_BYTES_MAX + 2];
	struct sockaddr_un address;
	struct stat stat;

	(void)snprintf(hidden, sizeof(hidden), ".%s", listener->name);
	(void)unlinkat(listener->folder_fd, hidden, 0);
	address_fill(&address, listener->folder_fd, hidden);
	if (bind(listener->fd, (const struct sockaddr *)&address,
		 sizeof(address))) {
		kvpull_error(log, "socket %s/%s cannot be made: %s",
			     folder->path, listener->name,
			     kvpull_why(FOLDER, errno));
		return KVPULL_EDEVICE;
	}
	if (socket_stat(listener->folder_fd, hidden, &stat) ||
	    (mode && fchmodat(listener->folder_fd, hidden, (mode_t)mode, 0)) ||
	    listen(listener->fd, BACKLOG) ||
	    renameat(listener->folder_fd, hidden, listener->folder_fd,
		     listener->name)) {
		kvpull_error(log, "socket %s/%s cannot be listened at: %s",
			     folder->path, listener->name,
			     kvpull_why(FOLDER, errno));
		(void)unlinkat(listener->folder_fd, hidden, 0);
		return KVPULL_EDEVICE;
	}
	listener->inode = stat.st_ino;
	/* The socket is new: its time is the folder's present. */
	folder_sweep(listener->folder_fd, stat.st_mtime);
	return 0;
}

int kvpull_listener_open(struct kvpull_listener *listener,
			 const struct kvpull_folder *folder, const char *name,
			 uint32_t mode, const struct kvpull_log *log)
{
	int code = KVPULL_EDEVICE;

	if (!name_is_good(name))
		return KVPULL_EINVAL;
	(void)snprintf(listener->name, sizeof(listener->name), "%s", name);
	/*
	 * The listener keeps the folder open: it removes its socket from where
	 * it put it.
	 */
	listener->folder_fd = fcntl(folder->fd, F_DUPFD_CLOEXEC, 0);
	if (listener->folder_fd < 0 || socket_make(&listener->fd)) {
		kvpull_error(log, "socket %s/%s: %s", folder->path, name,
			     kvpull_why(OTHER, errno));
		goto err_folder;
	}
	rights_refuse(listener->fd);
	code = stale_remove(listener->folder_fd, name, log);
	if (!code)
		code = listener_bind(listener, folder, mode, log);
	if (code)
		goto err_socket;
	return 0;
err_socket:
	(void)close(listener->fd);
err_folder:
	kvpull_fd_close(&listener->folder_fd);
	listener->fd = -1;
	return code;
}

void kvpull_listener_close(struct kvpull_listener *listener)
{
	struct stat stat;

	if (listener->fd < 0)
		return;
	/* A successor may have bound the name since: its file stays. */
	if (!socket_stat(listener->folder_fd, listener->name, &stat) &&
	    stat.st_ino == listener->inode)
		(void)unlinkat(listener->folder_fd, listener->name, 0);
	kvpull_fd_close(&listener->fd);
	kvpull_fd_close(&listener->folder_fd);
}

int kvpull_listener_is_named(struct kvpull_listener *listener,
			     struct kvpull_folder *folder, uint64_t now_ns)
{
	struct stat stat;

	if (kvpull_folder_open(folder, NULL) ||
	    socket_stat(folder->fd, listener->name, &stat) ||
	    stat.st_ino != listener->inode)
		return 0;
	/* Rarely: a write waits for a journal, or for a file system that is frozen. */
	if (!listener->young_ns)
		listener->young_ns = now_ns;
	if (now_ns - listener->young_ns >= YOUNG_NS) {
		listener->young_ns = now_ns;
		(void)utimensat(folder->fd, listener->name, NULL,
				AT_SYMLINK_NOFOLLOW);
	}
	return 1;
}

int kvpull_listener_accept(struct kvpull_listener *listener, int *fd)
{
	*fd = accept4(listener->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (*fd >= 0)
		return 0;
	return kvpull_errno_is_shortage(errno) ? KVPULL_EFULL : KVPULL_EAGAIN;
}

static int connect_failed(int why, const char *name,
			  const struct kvpull_log *log)
{
	/* A peer that is gone or busy is normal; the rest is for a person. */
	if (why == ECONNREFUSED || why == ENOENT)
		return KVPULL_EPEER;
	if (why == EAGAIN || kvpull_errno_is_shortage(why))
		return KVPULL_EAGAIN;
	kvpull_warn(log, "connect to %s: %s", name, kvpull_why(CONNECT, why));
	return why == EACCES || why == EPERM ? KVPULL_EAUTH : KVPULL_EPEER;
}

int kvpull_endpoint_connect(int folder_fd, const char *name,
			    const struct kvpull_log *log, int *fd)
{
	struct stat stat;
	int made;
	int why;

	if (!name_is_good(name))
		return KVPULL_EROUTE;
	if (socket_stat(folder_fd, name, &stat))
		return connect_failed(errno, name, log);
	/* A symlink to a socket elsewhere is refused, too. */
	if (!S_ISSOCK(stat.st_mode))
		return KVPULL_EPEER;
	if (socket_make(&made))
		return connect_failed(errno, name, log);
	rights_refuse(made);
	why = socket_connect(made, folder_fd, name);
	if (why) {
		(void)close(made);
		errno = why;
		return connect_failed(why, name, log);
	}
	*fd = made;
	return 0;
}

/* 0 and its pidfd, or -1 where there is none to have; else KVPULL_EAGAIN. */
static int pidfd_get(int fd, int32_t pid, int32_t *pidfd)
{
	struct pollfd socket_poll = { .fd = fd, .events = 0 };
	socklen_t option_bytes = sizeof(*pidfd);

	*pidfd = -1;
	/*
	 * SO_PEERPIDFD names the connected process even if its pid was reused
	 * or lies in another pid namespace.
	 */
	if (!getsockopt(fd, SOL_SOCKET, SO_PEERPIDFD, pidfd, &option_bytes))
		return 0;
	if (kvpull_errno_is_shortage(errno))
		return KVPULL_EAGAIN;
	if (pid <= 0)
		return 0;
	*pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	if (*pidfd < 0)
		return kvpull_errno_is_shortage(errno) ? KVPULL_EAGAIN : 0;
	/* The socket is connected after the open: the pid was the peer's. */
	if (poll(&socket_poll, 1, 0) != 0)
		kvpull_fd_close(pidfd);
	return 0;
}

int kvpull_identity_get(struct kvpull_identity *identity, int fd)
{
	struct ucred credentials = { .pid = 0, .uid = KVPULL_UID_NONE };
	socklen_t option_bytes = sizeof(credentials);

	identity->pidfd = -1;
	/* A process of an unknown user is neither let in nor believed. */
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials,
		       &option_bytes) ||
	    credentials.uid == KVPULL_UID_NONE)
		return KVPULL_EPEER;
	identity->uid = credentials.uid;
	identity->pid = credentials.pid;
	return 0;
}

int kvpull_identity_watch(struct kvpull_identity *identity, int fd)
{
	return pidfd_get(fd, identity->pid, &identity->pidfd);
}

int kvpull_identity_is_dead(const struct kvpull_identity *identity)
{
	struct pollfd pidfd_poll = { .fd = identity->pidfd, .events = POLLIN };
	int count;

	if (identity->pidfd < 0)
		return 0;
	/* A signal of the engine's is no death, though it waits for nothing. */
	do
		count = poll(&pidfd_poll, 1, 0);
	while (count < 0 && errno == EINTR);
	return count != 0;
}

union control {
	struct cmsghdr align;
	char bytes[CMSG_SPACE(KVPULL_PACKET_FDS_MAX * sizeof(int))];
};

/* The padding of the control buffer has room for one more than we want. */
#define FDS_TAKEN_MAX ((sizeof(union control) - CMSG_LEN(0)) / sizeof(int))

static int send_failed(const struct kvpull_message *message,
		       const struct kvpull_log *log)
{
	switch (errno) {
	case EAGAIN:
		return KVPULL_EAGAIN;
	case EMSGSIZE:
		kvpull_error(log, "handshake message of %zu bytes: %s",
			     message->byte_count, kvpull_why(OTHER, errno));
		return KVPULL_EPROTO;
	case EPIPE:
	case ECONNRESET:
	case ENOTCONN:
		return KVPULL_EPEER;
	default:
		/*
		 * The other end may read and close: then there is room again.
		 */
		if (kvpull_errno_is_shortage(errno))
			return KVPULL_EAGAIN;
		kvpull_warn(log, "handshake message: %s",
			    kvpull_why(OTHER, errno));
		return KVPULL_EPEER;
	}
}

int kvpull_endpoint_send(int fd, const struct kvpull_message *message,
			 const struct kvpull_log *log)
{
	const size_t fds_bytes = message->fd_count * sizeof(int);
	const size_t word_bytes = message->word ? strlen(message->word) : 0;
	/* sendmsg() reads them only, but its structs are not const. */
	struct iovec parts[2] = { { .iov_len = word_bytes },
				  { .iov_len = message->byte_count } };
	struct msghdr header = { .msg_iov = parts, .msg_iovlen = 2 };
	union control control;

	if (!(word_bytes + message->byte_count) ||
	    word_bytes + message->byte_count > KVPULL_PACKET_BYTES_MAX ||
	    message->fd_count > KVPULL_PACKET_FDS_MAX) {
		kvpull_error(log, "handshake message of %zu bytes: limit %u",
			     message->byte_count, KVPULL_PACKET_BYTES_MAX);
		return KVPULL_EPROTO;
	}
	memcpy(&parts[0].iov_base, &message->word, sizeof(parts[0].iov_base));
	memcpy(&parts[1].iov_base, &message->bytes, sizeof(parts[1].iov_base));
	if (fds_bytes) {
		memset(&control, 0, sizeof(control));
		header.msg_control = control.bytes;
		header.msg_controllen = CMSG_SPACE(fds_bytes);
		control.align.cmsg_level = SOL_SOCKET;
		control.align.cmsg_type = SCM_RIGHTS;
		control.align.cmsg_len = CMSG_LEN(fds_bytes);
		memcpy(CMSG_DATA(&control.align), message->fds, fds_bytes);
	}
	while (sendmsg(fd, &header, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
		if (errno != EINTR)
			return send_failed(message, log);
	return 0;
}

/* Descriptors of a message: at most FDS_TAKEN_MAX, what the buffer can hold. */
static uint32_t fds_take(struct msghdr *header, int *fds)
{
	struct cmsghdr *control;
	uint32_t count = 0;
	size_t fds_bytes;

	for (control = CMSG_FIRSTHDR(header); control;
	     control = CMSG_NXTHDR(header, control)) {
		if (control->cmsg_level != SOL_SOCKET ||
		    control->cmsg_type != SCM_RIGHTS)
			continue;
		fds_bytes = control->cmsg_len - CMSG_LEN(0);
		memcpy(fds + count, CMSG_DATA(control), fds_bytes);
		count += (uint32_t)(fds_bytes / sizeof(int));
	}
	return count;
}

static ssize_t message_receive(int fd, struct msghdr *header)
{
	const size_t control_bytes = header->msg_controllen;
	uint32_t resets = 0;

	for (;;) {
		ssize_t received;

		header->msg_controllen = control_bytes;
		received = recvmsg(fd, header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
		/*
		 * A peer that closed with our bytes unread shows as a reset,
		 * once, ahead of its own last message, which says why.
		 */
		if (received < 0 &&
		    (errno == EINTR || (errno == ECONNRESET && !resets++)))
			continue;
		return received;
	}
}

int kvpull_endpoint_receive(int fd, uint8_t *bytes, int *fds,
			    uint32_t *fd_count)
{
	struct iovec part = { .iov_base = bytes,
			      .iov_len = KVPULL_PACKET_BYTES_MAX };
	struct msghdr header = { .msg_iov = &part, .msg_iovlen = 1 };
	int taken[FDS_TAKEN_MAX];
	uint32_t taken_count;
	union control control;
	ssize_t received;
	int code = KVPULL_EPROTO;

	/* Without a buffer for descriptors the kernel installs none. */
	if (fds) {
		header.msg_control = control.bytes;
		header.msg_controllen = sizeof(control.bytes);
	}
	received = message_receive(fd, &header);
	if (received < 0)
		return errno == EAGAIN ? 0 : KVPULL_EPEER;
	taken_count = fds ? fds_take(&header, taken) : 0;
	/* Cut short though there was room: we are out of descriptors. */
	if (fds && received && (header.msg_flags & MSG_CTRUNC) &&
	    taken_count < FDS_TAKEN_MAX)
		code = KVPULL_EAGAIN;
	if ((header.msg_flags & (MSG_CTRUNC | MSG_TRUNC)) || !received ||
	    (fds && taken_count > *fd_count)) {
		while (taken_count)
			(void)close(taken[--taken_count]);
		return received ? code : KVPULL_EPEER;
	}
	if (fds) {
		memcpy(fds, taken, taken_count * sizeof(int));
		*fd_count = taken_count;
	}
	return (int)received;
}

int kvpull_endpoint_closed(int fd)
{
	uint8_t ignored[16];
	const ssize_t received =
		recv(fd, ignored, sizeof(ignored), MSG_DONTWAIT);

	if (!received)
		return 0;
	if (received > 0 || errno == EAGAIN || errno == EINTR)
		return 1;
	/* The kernel reports a reset where bytes of ours were left unread. */
	return errno == ECONNRESET ? KVPULL_EAGAIN : KVPULL_EPEER;
}
