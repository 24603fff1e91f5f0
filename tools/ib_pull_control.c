/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The control socket: a SEQPACKET socket in the socket folder on one machine,
 * TCP between machines. It stands for the router: nothing else goes over it.
 */
#include "tools/ib_pull.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define CONNECT_TRIES 1000 /* 10 s: the other end may just have begun */
#define LISTEN_BACKLOG 16
/* A host that is gone without a word must not hold us for minutes. */
#define CONNECT_S 1
#define ANSWER_S 60
#define ANSWER_RETRY_S 5

static int folder_address(const struct ib_options *options,
			  struct sockaddr_un *address)
{
	memset(address, 0, sizeof(*address));
	address->sun_family = AF_UNIX;
	if (snprintf(address->sun_path, sizeof(address->sun_path),
		     "%s/ib_pull.control",
		     options->dir) < (int)sizeof(address->sun_path))
		return 0;
	fprintf(stderr, "the socket folder's name is too long\n");
	return -1;
}

int ib_control_listen(const struct ib_options *options)
{
	struct sockaddr_un address;
	int listener;

	if (folder_address(options, &address))
		return -1;
	(void)unlink(address.sun_path);
	listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (listener >= 0 &&
	    !bind(listener, (struct sockaddr *)&address, sizeof(address)) &&
	    !listen(listener, LISTEN_BACKLOG))
		return listener;
	fprintf(stderr, "%s: %s\n", address.sun_path, strerror(errno));
	if (listener >= 0)
		(void)close(listener);
	return -1;
}

int ib_control_listen_port(const struct ib_options *options)
{
	const struct sockaddr_in6 address = {
		.sin6_family = AF_INET6,
		.sin6_addr = IN6ADDR_ANY_INIT,
		.sin6_port = htons((uint16_t)options->port),
	};
	const int one = 1;
	const int zero = 0;
	const int listener = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (listener >= 0 &&
	    !setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one,
			sizeof(one)) &&
	    !setsockopt(listener, IPPROTO_IPV6, IPV6_V6ONLY, &zero,
			sizeof(zero)) &&
	    !bind(listener, (const struct sockaddr *)&address,
		  sizeof(address)) &&
	    !listen(listener, LISTEN_BACKLOG))
		return listener;
	fprintf(stderr, "port %u: %s\n", options->port, strerror(errno));
	if (listener >= 0)
		(void)close(listener);
	return -1;
}

static void limits_set(int control, const struct ib_options *options)
{
	const struct timeval connect_limit = { .tv_sec = CONNECT_S };
	const struct timeval answer_limit = { .tv_sec = options->retry_s ?
								ANSWER_RETRY_S :
								ANSWER_S };

	(void)setsockopt(control, SOL_SOCKET, SO_SNDTIMEO, &connect_limit,
			 sizeof(connect_limit));
	(void)setsockopt(control, SOL_SOCKET, SO_RCVTIMEO, &answer_limit,
			 sizeof(answer_limit));
}

static int host_connect(const struct ib_options *options)
{
	const struct addrinfo hints = { .ai_socktype = SOCK_STREAM };
	struct addrinfo *list;
	const struct addrinfo *at;
	char port[16];
	int control = -1;

	(void)snprintf(port, sizeof(port), "%u",
		       options->port ? options->port : IB_PORT);
	if (getaddrinfo(options->host, port, &hints, &list))
		return -1;
	for (at = list; at && control < 0; at = at->ai_next) {
		control = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
		if (control < 0)
			continue;
		limits_set(control, options);
		if (!connect(control, at->ai_addr, at->ai_addrlen))
			continue;
		(void)close(control);
		control = -1;
	}
	freeaddrinfo(list);
	return control;
}

static int folder_connect(const struct ib_options *options)
{
	struct sockaddr_un address;
	int control;

	if (folder_address(options, &address))
		return -1;
	control = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (control < 0 ||
	    !connect(control, (struct sockaddr *)&address, sizeof(address)))
		return control;
	(void)close(control);
	return -1;
}

int ib_control_try(const struct ib_options *options)
{
	return options->host ? host_connect(options) : folder_connect(options);
}

int ib_control_connect(const struct ib_options *options)
{
	const struct timespec pause = { .tv_nsec = 10000000 };
	int tries;

	for (tries = 0; tries < CONNECT_TRIES; tries++) {
		const int control = ib_control_try(options);

		if (control >= 0)
			return control;
		(void)nanosleep(&pause, NULL);
	}
	if (options->host)
		fprintf(stderr,
			"no producer serves at %s: start `ib_pull --port %u` there first\n",
			options->host, options->port ? options->port : IB_PORT);
	else
		fprintf(stderr,
			"no producer serves in %s: start `ib_pull` there first\n",
			options->dir);
	return -1;
}

int ib_control_send(int control, const void *bytes, size_t byte_count)
{
	const char *at = bytes;

	while (byte_count) {
		const ssize_t sent =
			send(control, at, byte_count, MSG_NOSIGNAL);

		if (sent < 0 && errno == EINTR)
			continue;
		if (sent <= 0)
			return -1;
		at += sent;
		byte_count -= (size_t)sent;
	}
	return 0;
}

static int is_stream(int control)
{
	socklen_t type_bytes = sizeof(int);
	int type = 0;

	return !getsockopt(control, SOL_SOCKET, SO_TYPE, &type, &type_bytes) &&
	       type == SOCK_STREAM;
}

/* An ask is smaller than a packet, but TCP promises nothing of that. */
int ib_control_ask_take(int control, struct ib_ask *ask)
{
	ssize_t got = recv(control, ask, sizeof(*ask), MSG_DONTWAIT | MSG_PEEK);

	if (got < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -1;
	if (got > 0 && got < (ssize_t)sizeof(*ask) && is_stream(control))
		return 0;
	got = recv(control, ask, sizeof(*ask), MSG_DONTWAIT);
	return got == (ssize_t)sizeof(*ask) ? 1 : -1;
}

int ib_control_answer_take(int control, void *message, struct ib_answer *answer)
{
	char *ticket = (char *)message + sizeof(*answer);
	const int stream = is_stream(control);
	ssize_t got;

	got = stream ? recv(control, message, sizeof(*answer), MSG_WAITALL) :
		       recv(control, message,
			    IB_TICKET_BYTES_MAX + sizeof(*answer), 0);
	if (got < (ssize_t)sizeof(*answer))
		return -1;
	memcpy(answer, message, sizeof(*answer));
	if (answer->ticket_bytes > IB_TICKET_BYTES_MAX)
		return -1;
	if (!stream || !answer->ticket_bytes)
		return 0;
	got = recv(control, ticket, answer->ticket_bytes, MSG_WAITALL);
	return got == (ssize_t)answer->ticket_bytes ? 0 : -1;
}
