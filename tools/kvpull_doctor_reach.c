/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Does an ib_pull answer at the peer's port? Asked before anything large is, so
 * that a host, a name or a port that is wrong is said within seconds.
 */
#include "tools/kvpull_doctor_parts.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "tools/ib_pull_parts.h"

#define CONNECT_S 2 /* for all addresses of a host together */
#define ANSWER_NS (2 * KVPULL_NS_PER_S)
#define WAIT_MS 20 /* between two looks at the clock */

/*
 * Not by a blocking connect(): with SO_SNDTIMEO a signal, or work that io_uring
 * left, ends that with EINTR.
 */
int doctor_connect(int control, const struct addrinfo *to, uint64_t until_ns)
{
	struct pollfd waits = { .fd = control, .events = POLLOUT };
	const int flags = fcntl(control, F_GETFL);
	socklen_t why_bytes = sizeof(int);
	int why = 0;
	int count = 0;

	if (flags < 0 || fcntl(control, F_SETFL, flags | O_NONBLOCK))
		return -1;
	if (connect(control, to->ai_addr, to->ai_addrlen)) {
		if (errno != EINPROGRESS)
			return -1;
		while (count < 1 && kvpull_clock_ns() < until_ns)
			count = poll(&waits, 1, WAIT_MS);
		if (count < 1)
			why = ETIMEDOUT;
		else
			(void)getsockopt(control, SOL_SOCKET, SO_ERROR, &why,
					 &why_bytes);
	}
	errno = why;
	return why || fcntl(control, F_SETFL, flags) ? -1 : 0;
}

int doctor_await(int from, uint64_t until_ns)
{
	struct pollfd waits = { .fd = from, .events = POLLIN };
	const uint64_t now_ns = kvpull_clock_ns();

	return now_ns < until_ns &&
	       poll(&waits, 1,
		    (int)((until_ns - now_ns) / KVPULL_NS_PER_MS) + 1) > 0;
}

/* Connected, or -1 and errno. */
static int address_call(const struct addrinfo *to, uint64_t until_ns)
{
	const int control =
		socket(to->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int why;

	if (control < 0 || !doctor_connect(control, to, until_ns))
		return control;
	why = errno;
	(void)close(control);
	errno = why;
	return -1;
}

static void nobody_say(struct doctor *doctor, int why)
{
	doctor_say(doctor, SAY_PEER_NOBODY, doctor->peer, doctor->port,
		   strerror(why));
	if (why == ECONNREFUSED)
		doctor_advise(doctor, "nobody serves there: ib_pull --port %s",
			      doctor->port);
	else if (why == ETIMEDOUT)
		doctor_advise(
			doctor,
			"the host is down, or a firewall drops TCP port %s",
			doctor->port);
	else
		doctor_advise(doctor, "no way leads there: ip route get %s",
			      doctor->peer);
}

static int host_call(struct doctor *doctor, const struct addrinfo *to)
{
	const uint64_t until_ns =
		kvpull_clock_ns() + CONNECT_S * KVPULL_NS_PER_S;
	int control = -1;

	for (; to && control < 0; to = to->ai_next)
		control = address_call(to, until_ns);
	if (control < 0)
		nobody_say(doctor, errno);
	return control;
}

/* Any program may listen there: its bytes are no numbers of an ib_pull. */
static int is_numbers(const struct ib_answer *answer)
{
	return !answer->code && !answer->ticket_bytes && answer->block_bytes &&
	       answer->layer_count && answer->group_count &&
	       answer->group_count <= KVPULL_GROUPS_MAX &&
	       answer->blocks_free <= answer->blocks_all;
}

/* 0, or -1: no ib_pull says that. */
static int numbers_ask(int control, struct ib_answer *answer)
{
	const struct ib_ask what = { .kind = IB_ASK_STATS };

	if (send(control, &what, sizeof(what), MSG_NOSIGNAL) !=
		    (ssize_t)sizeof(what) ||
	    !doctor_await(control, kvpull_clock_ns() + ANSWER_NS) ||
	    recv(control, answer, sizeof(*answer), MSG_DONTWAIT) !=
		    (ssize_t)sizeof(*answer))
		return -1;
	return is_numbers(answer) ? 0 : -1;
}

static int peer_ask(struct doctor *doctor, const struct addrinfo *to,
		    struct ib_answer *answer)
{
	const int control = host_call(doctor, to);
	int code;

	if (control < 0)
		return 1;
	code = numbers_ask(control, answer);
	(void)close(control);
	if (!code)
		return 0;
	doctor_say(doctor, SAY_PEER_IS_OTHER, doctor->peer, doctor->port);
	return 1;
}

int doctor_reach(struct doctor *doctor, struct ib_answer *answer)
{
	const struct addrinfo hints = { .ai_socktype = SOCK_STREAM };
	struct addrinfo *to = NULL;
	const int code = getaddrinfo(doctor->peer, doctor->port, &hints, &to);
	int is_said;

	if (code) {
		doctor_say(doctor, SAY_PEER_NO_ADDRESS, doctor->peer,
			   doctor->peer,
			   code == EAI_SYSTEM ? strerror(errno) :
						gai_strerror(code));
		return 1;
	}
	is_said = peer_ask(doctor, to, answer);
	freeaddrinfo(to);
	return is_said;
}
