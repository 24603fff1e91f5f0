/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The control socket: a SEQPACKET socket in the socket folder on one machine,
 * TCP between machines. It stands for the router: nothing else goes over it.
 */
#include "base/fd.h"
#include "tools/ib_pull_parts.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define LISTEN_BACKLOG 16
#define NS_PER_S UINT64_C(1000000000)
/* In all: the other end may just have begun. */
#define CALL_NS (10 * NS_PER_S)
/* A host that is gone without a word must not hold us for minutes. */
#define CONNECT_NS NS_PER_S
#define SEND_NS NS_PER_S
#define ANSWER_NS (60 * NS_PER_S)
#define ANSWER_RETRY_NS (5 * NS_PER_S)

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

static struct addrinfo folder_info(struct sockaddr_un *address)
{
	return (struct addrinfo){
		.ai_family = AF_UNIX,
		.ai_socktype = SOCK_SEQPACKET,
		.ai_addr = (struct sockaddr *)address,
		.ai_addrlen = sizeof(*address),
	};
}

static void limit_set(int control, int option, uint64_t limit_ns)
{
	const struct timeval limit = {
		.tv_sec = (time_t)(limit_ns / NS_PER_S),
		.tv_usec = (suseconds_t)(limit_ns % NS_PER_S / 1000),
	};

	(void)setsockopt(control, SOL_SOCKET, option, &limit, sizeof(limit));
}

/* errno says why not. */
static int address_connect(const struct addrinfo *at, uint64_t limit_ns)
{
	const int control =
		socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC, 0);
	int why;

	if (control < 0)
		return -1;
	limit_set(control, SO_SNDTIMEO, limit_ns);
	if (!connect(control, at->ai_addr, at->ai_addrlen))
		return control;
	why = errno;
	(void)close(control);
	/* A socket's send time-out is reported as EINPROGRESS or EAGAIN. */
	errno = why == EINPROGRESS || why == EAGAIN ? ETIMEDOUT : why;
	return -1;
}

/* name: of the address, in a line that says why nothing can listen there. */
static int listener_begin(int listener, const void *address,
			  socklen_t address_bytes, const char *name)
{
	if (listener >= 0 && !bind(listener, address, address_bytes) &&
	    !listen(listener, LISTEN_BACKLOG))
		return listener;
	fprintf(stderr, "%s: %s\n", name, strerror(errno));
	kvpull_fd_close(&listener);
	return -1;
}

int ib_control_listen(const struct ib_options *options)
{
	struct sockaddr_un address;
	const struct addrinfo folder = folder_info(&address);
	int listener;

	if (folder_address(options, &address))
		return -1;
	/* The library makes it for sockets of its own, which it may not have. */
	(void)mkdir(options->dir, 0700);
	listener = address_connect(&folder, CONNECT_NS);
	if (listener >= 0 || errno == ETIMEDOUT) {
		fprintf(stderr, "%s: an ib_pull serves there already\n",
			options->dir);
		kvpull_fd_close(&listener);
		return -1;
	}
	/* A killed process left its socket: nothing listens there. */
	if (errno == ECONNREFUSED)
		(void)unlink(address.sun_path);
	return listener_begin(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0),
			      &address, sizeof(address), address.sun_path);
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
	char name[16];

	(void)snprintf(name, sizeof(name), "port %u", options->port);
	if (listener >= 0) {
		(void)setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one,
				 sizeof(one));
		(void)setsockopt(listener, IPPROTO_IPV6, IPV6_V6ONLY, &zero,
				 sizeof(zero));
	}
	return listener_begin(listener, &address, sizeof(address), name);
}

/* Each address once, in turn. */
static int addresses_connect(const struct addrinfo *at,
			     const struct ib_options *options,
			     uint64_t until_ns)
{
	int control = -1;

	for (; at && control < 0; at = at->ai_next) {
		const uint64_t now_ns = engine_now_ns();

		/* A limit of less than a microsecond would be none. */
		if (until_ns < now_ns + 1000)
			break;
		control = address_connect(at, until_ns - now_ns < CONNECT_NS ?
						      until_ns - now_ns :
						      CONNECT_NS);
	}
	if (control < 0)
		return -1;
	limit_set(control, SO_SNDTIMEO, SEND_NS);
	limit_set(control, SO_RCVTIMEO,
		  options->retry_s ? ANSWER_RETRY_NS : ANSWER_NS);
	return control;
}

/* hosts: of who is called by name, else NULL. */
static int producer_connect(const struct ib_options *options,
			    const struct addrinfo *hosts, uint64_t until_ns)
{
	struct sockaddr_un address;
	const struct addrinfo folder = folder_info(&address);

	if (hosts)
		return addresses_connect(hosts, options, until_ns);
	if (folder_address(options, &address))
		return -1;
	return addresses_connect(&folder, options, until_ns);
}

static uint32_t port_called(const struct ib_options *options)
{
	return options->port ? options->port : IB_PORT;
}

/* 0, or getaddrinfo's error. */
static int hosts_find(const struct ib_options *options, struct addrinfo **hosts)
{
	const struct addrinfo hints = { .ai_socktype = SOCK_STREAM };
	char port[16];

	*hosts = NULL;
	if (!options->host)
		return 0;
	(void)snprintf(port, sizeof(port), "%u", port_called(options));
	return getaddrinfo(options->host, port, &hints, hosts);
}

static void hosts_free(struct addrinfo *hosts)
{
	if (hosts)
		freeaddrinfo(hosts);
}

int ib_control_try(const struct ib_options *options)
{
	struct addrinfo *hosts;
	int control;

	if (hosts_find(options, &hosts))
		return -1;
	control = producer_connect(options, hosts, engine_now_ns() + CALL_NS);
	hosts_free(hosts);
	return control;
}

static void no_producer_say(const struct ib_options *options, int why)
{
	if (options->host)
		fprintf(stderr,
			"no producer serves at %s port %u: %s; start `ib_pull --port %u` there, or open that port\n",
			options->host, port_called(options), strerror(why),
			port_called(options));
	else if (why == EACCES || why == EPERM)
		fprintf(stderr,
			"socket folder %s: %s; run as the user who serves there\n",
			options->dir, strerror(why));
	else
		fprintf(stderr,
			"no producer serves in %s: %s; start `ib_pull --dir %s` first\n",
			options->dir, strerror(why), options->dir);
}

/* The resolver has tried again and again already: see resolv.conf(5). */
static void no_host_say(const struct ib_options *options, int code)
{
	fprintf(stderr,
		"no address of %s: %s; give a host's name or address, or a folder with a slash\n",
		options->host,
		code == EAI_SYSTEM ? strerror(errno) : gai_strerror(code));
}

int ib_control_connect(const struct ib_options *options)
{
	struct addrinfo *hosts;
	uint64_t until_ns;
	int control;
	int why;
	const int code = hosts_find(options, &hosts);

	if (code) {
		no_host_say(options, code);
		return -1;
	}
	until_ns = engine_now_ns() + CALL_NS;
	for (;;) {
		control = producer_connect(options, hosts, until_ns);
		why = errno;
		if (control >= 0 || engine_now_ns() >= until_ns ||
		    *options->stop)
			break;
		ib_nap(10000000);
	}
	hosts_free(hosts);
	if (control < 0 && !*options->stop)
		no_producer_say(options, why);
	return control;
}

void ib_control_limit(int control)
{
	limit_set(control, SO_SNDTIMEO, SEND_NS);
}

/* In all, too: who reads a byte a second would hold us as well. */
int ib_control_send(int control, const void *bytes, size_t byte_count)
{
	const uint64_t until_ns = engine_now_ns() + SEND_NS;
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
		if (byte_count && engine_now_ns() >= until_ns)
			return -1;
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

/*
 * An ask is smaller than a packet, but TCP promises nothing of that. What came
 * is taken: poll() would tell of it again and again.
 */
int ib_control_ask_take(int control, struct ib_ask *ask, uint32_t *ask_bytes)
{
	const ssize_t got = recv(control, (char *)ask + *ask_bytes,
				 sizeof(*ask) - *ask_bytes, MSG_DONTWAIT);

	if (got < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -1;
	*ask_bytes += (uint32_t)got;
	if (*ask_bytes == sizeof(*ask)) {
		*ask_bytes = 0;
		return 1;
	}
	return got && is_stream(control) ? 0 : -1;
}

/*
 * All bytes of a stream, or one packet: how many came. A process that was
 * stopped and goes on is interrupted, too, where a socket has a limit.
 */
static size_t receive(int control, void *to, size_t byte_count, int stream,
		      const int *stop)
{
	const uint64_t until_ns = engine_now_ns() + ANSWER_NS;
	size_t have = 0;

	while (have < byte_count && engine_now_ns() < until_ns) {
		const ssize_t got =
			recv(control, (char *)to + have, byte_count - have, 0);

		if (got < 0 && errno == EINTR && !*stop)
			continue;
		if (got <= 0)
			break;
		have += (size_t)got;
		if (!stream)
			break;
	}
	return have;
}

int ib_control_answer_take(int control, void *message, struct ib_answer *answer,
			   const int *stop)
{
	char *ticket = (char *)message + sizeof(*answer);
	const int stream = is_stream(control);
	size_t got =
		receive(control, message,
			sizeof(*answer) + (stream ? 0 : IB_TICKET_BYTES_MAX),
			stream, stop);

	if (got < sizeof(*answer))
		return -1;
	memcpy(answer, message, sizeof(*answer));
	if (answer->ticket_bytes > IB_TICKET_BYTES_MAX)
		return -1;
	got -= sizeof(*answer);
	if (stream)
		got = receive(control, ticket, answer->ticket_bytes, stream,
			      stop);
	return got == answer->ticket_bytes ? 0 : -1;
}
