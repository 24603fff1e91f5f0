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
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#define LISTEN_BACKLOG 16
/* In all: the other end may just have begun. */
#define CALL_NS (10 * KVPULL_NS_PER_S)
/* A host that is gone without a word must not hold us for minutes. */
#define CONNECT_S 1
#define SEND_S 1
#define ANSWER_S 60
#define ANSWER_RETRY_S 5

/* A control socket's address in the socket folder; NULL: it is too long, said. */
static struct addrinfo *folder_address(const struct ib_options *options)
{
	static struct sockaddr_un path = { .sun_family = AF_UNIX };
	static struct addrinfo address = {
		.ai_family = AF_UNIX,
		.ai_socktype = SOCK_SEQPACKET,
		.ai_addr = (struct sockaddr *)&path,
		.ai_addrlen = sizeof(path),
	};

	if (snprintf(path.sun_path, sizeof(path.sun_path), "%s/ib_pull.control",
		     options->dir) < (int)sizeof(path.sun_path))
		return &address;
	fprintf(stderr, "the socket folder's name is too long\n");
	return NULL;
}

static void limit_set(int control, int option, time_t limit_s)
{
	const struct timeval limit = { .tv_sec = limit_s };

	(void)setsockopt(control, SOL_SOCKET, option, &limit, sizeof(limit));
}

void ib_control_limit(int control)
{
	limit_set(control, SO_SNDTIMEO, SEND_S);
}

/* errno says why not. */
static int address_connect(const struct addrinfo *at)
{
	const int control =
		socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC, 0);
	int why;

	if (control < 0)
		return -1;
	limit_set(control, SO_SNDTIMEO, CONNECT_S);
	if (!connect(control, at->ai_addr, at->ai_addrlen)) {
		ib_control_limit(control);
		return control;
	}
	why = errno;
	(void)close(control);
	/* A socket's send time-out is reported as EINPROGRESS or EAGAIN. */
	errno = why == EINPROGRESS || why == EAGAIN ? ETIMEDOUT : why;
	return -1;
}

/* name: of the address, in a line that says why nothing can listen there. */
static int address_listen(const struct addrinfo *at, const char *name)
{
	const int one = 1;
	const int zero = 0;
	int listener = socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC, 0);

	if (listener >= 0) {
		(void)setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one,
				 sizeof(one));
		/* Only sockets of IPv6 have this option. */
		(void)setsockopt(listener, IPPROTO_IPV6, IPV6_V6ONLY, &zero,
				 sizeof(zero));
	}
	if (listener >= 0 && !bind(listener, at->ai_addr, at->ai_addrlen) &&
	    !listen(listener, LISTEN_BACKLOG))
		return listener;
	fprintf(stderr, "%s: %s\n", name, strerror(errno));
	kvpull_fd_close(&listener);
	return -1;
}

static int folder_listen(const struct ib_options *options)
{
	const struct addrinfo *address = folder_address(options);
	const char *path;
	int other;

	if (!address)
		return -1;
	path = ((const struct sockaddr_un *)address->ai_addr)->sun_path;
	/* The library makes it for sockets of its own, which it may not have. */
	(void)mkdir(options->dir, 0700);
	other = address_connect(address);
	if (other >= 0 || errno == ETIMEDOUT) {
		fprintf(stderr, "%s: an ib_pull serves there already\n",
			options->dir);
		kvpull_fd_close(&other);
		return -1;
	}
	/* A killed process left its socket: nothing listens there. */
	if (errno == ECONNREFUSED)
		(void)unlink(path);
	return address_listen(address, path);
}

/* The addresses of who is called; NULL: there is none, and the first call says why. */
static struct addrinfo *addresses_find(const struct ib_options *options,
				       enum ib_call_kind kind)
{
	const struct addrinfo hints = { .ai_socktype = SOCK_STREAM };
	struct addrinfo *found = NULL;
	char port[16];
	int code;

	if (!options->host)
		return folder_address(options);
	(void)snprintf(port, sizeof(port), "%u", options->port);
	/* The resolver tries again and again by itself: see resolv.conf(5). */
	code = getaddrinfo(options->host, port, &hints, &found);
	if (code && kind == IB_CALL_FIRST)
		fprintf(stderr,
			"no address of %s: %s; give a host's name or address, or a folder with a slash\n",
			options->host,
			code == EAI_SYSTEM ? strerror(errno) :
					     gai_strerror(code));
	return code ? NULL : found;
}

static int port_listen(const struct ib_options *options)
{
	struct ib_options all = *options;
	struct addrinfo *address;
	char name[16];
	int listener;

	all.host = "::";
	address = addresses_find(&all, IB_CALL_FIRST);
	if (!address)
		return -1;
	(void)snprintf(name, sizeof(name), "port %u", options->port);
	listener = address_listen(address, name);
	freeaddrinfo(address);
	return listener;
}

int ib_control_listen(const struct ib_options *options,
		      int listeners[IB_LISTENERS])
{
	listeners[0] = folder_listen(options);
	if (listeners[0] >= 0 && options->port)
		listeners[1] = port_listen(options);
	return listeners[0] < 0 || (options->port && listeners[1] < 0);
}

static void no_producer_say(const struct ib_options *options, int why)
{
	if (options->host)
		fprintf(stderr,
			"no producer serves at %s port %u: %s; start `ib_pull --port %u` there, or open that port\n",
			options->host, options->port, strerror(why),
			options->port);
	else if (why == EACCES || why == EPERM)
		fprintf(stderr,
			"socket folder %s: %s; run as the user who serves there\n",
			options->dir, strerror(why));
	else
		fprintf(stderr,
			"no producer serves in %s: %s; start `ib_pull --dir %s` first\n",
			options->dir, strerror(why), options->dir);
}

/* Each address once, in turn; errno says why the last one does not answer. */
static int addresses_connect(const struct addrinfo *at, uint64_t until_ns)
{
	int control = -1;

	for (; at && control < 0 && engine_now_ns() < until_ns;
	     at = at->ai_next)
		control = address_connect(at);
	return control;
}

int ib_control_connect(const struct ib_options *options, enum ib_call_kind kind)
{
	struct addrinfo *addresses = addresses_find(options, kind);
	const uint64_t until_ns = engine_now_ns() + CALL_NS;
	int control = addresses_connect(addresses, until_ns);

	if (!addresses)
		return -1;
	while (control < 0 && kind == IB_CALL_FIRST && !*options->stop &&
	       engine_now_ns() < until_ns) {
		ib_nap(10000000);
		control = addresses_connect(addresses, until_ns);
	}
	if (control >= 0)
		limit_set(control, SO_RCVTIMEO,
			  options->retry_s ? ANSWER_RETRY_S : ANSWER_S);
	else if (kind == IB_CALL_FIRST && !*options->stop)
		no_producer_say(options, errno);
	if (options->host)
		freeaddrinfo(addresses);
	return control;
}

/* In all, too: who reads a byte a second would hold us as well. */
int ib_control_send(int control, const void *bytes, size_t byte_count)
{
	const uint64_t until_ns = engine_now_ns() + SEND_S * KVPULL_NS_PER_S;
	const char *at = bytes;

	while (byte_count && engine_now_ns() < until_ns) {
		const ssize_t sent =
			send(control, at, byte_count, MSG_NOSIGNAL);

		if (sent < 0 && errno != EINTR)
			break;
		if (sent > 0) {
			at += sent;
			byte_count -= (size_t)sent;
		}
	}
	return byte_count ? -1 : 0;
}

/*
 * An ask is smaller than a packet, but TCP promises nothing of that. What came
 * is taken: poll() would tell of it again and again.
 */
int ib_control_ask_take(int control, struct ib_ask *ask, uint32_t *ask_bytes)
{
	const ssize_t got = recv(control, (char *)ask + *ask_bytes,
				 sizeof(*ask) - *ask_bytes, MSG_DONTWAIT);

	if (got <= 0)
		return got && (errno == EAGAIN || errno == EINTR) ? 0 : -1;
	*ask_bytes += (uint32_t)got;
	if (*ask_bytes < sizeof(*ask))
		return 0;
	*ask_bytes = 0;
	return 1;
}

/*
 * A packet has the whole answer, a stream may bring it in pieces. A process that was
 * stopped and goes on is interrupted, too, where a socket has a limit.
 */
int ib_control_answer_take(int control, struct ib_message *message,
			   const int *stop)
{
	const uint64_t until_ns = engine_now_ns() + ANSWER_S * KVPULL_NS_PER_S;
	const struct ib_answer *answer = &message->answer;
	size_t want = sizeof(*answer);
	size_t have = 0;

	while (have < want && engine_now_ns() < until_ns) {
		const ssize_t got = recv(control, (char *)message + have,
					 sizeof(*message) - have, 0);

		if (got < 0 && errno == EINTR && !*stop)
			continue;
		if (got <= 0)
			return -1;
		have += (size_t)got;
		if (have >= sizeof(*answer))
			want = sizeof(*answer) + answer->ticket_bytes;
		if (want > sizeof(*message))
			return -1;
	}
	return have == want ? 0 : -1;
}
