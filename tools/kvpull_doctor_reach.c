/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Does an ib_pull answer at the peer's port? Asked before anything large is, so
 * that a host, a name or a port that is wrong is said within seconds.
 *
 * Does the way there carry frames as large as RDMA will send? A switch that drops
 * them says nothing, and all that is small gets through. So that ib_pull is asked
 * for its numbers, many times at once, by TCP in frames of that size, both ways;
 * then in smaller ones.
 */
#include "tools/kvpull_doctor_parts.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "tools/ib_pull_parts.h"

#define CONNECT_S 2 /* for all addresses of a host together */
#define ANSWER_NS (2 * KVPULL_NS_PER_S)
/* More than a frame of them; their answers fill more than a window. */
#define ASKS 400u
/* RoCE's headers take 20 bytes more than TCP's. */
#define ROCE_MORE_BYTES 20
#define TCP_OPTION_BYTES 12
#define TCP_HEADER_BYTES 40 /* and IP's */
/* A network device's MTU over RoCE's: vendors name 4200 for 4096. */
#define NETDEV_MORE_BYTES 104
#define TRY_NS KVPULL_NS_PER_S
#define FILL_NS 100000000L
/*
 * The receive buffer of a connection in segments of a given size: it is so small
 * that answers wait in it, and come in whole segments.
 */
#define WINDOW_BYTES 16384

/* ---- who answers there ---- */

/*
 * Connects until then, in segments of so many bytes; 0: as it gets them. A socket
 * that does not block, or -1 and errno. A blocking connect() with SO_SNDTIMEO
 * ends with EINTR at a signal, or at work that io_uring left.
 */
static int call(const struct addrinfo *to, int segment_bytes, uint64_t until_ns)
{
	const int control = socket(
		to->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	const int window_bytes = WINDOW_BYTES;
	socklen_t why_bytes = sizeof(int);
	int why = 0;

	if (control < 0)
		return -1;
	if (segment_bytes &&
	    (setsockopt(control, SOL_SOCKET, SO_RCVBUF, &window_bytes,
			sizeof(window_bytes)) ||
	     setsockopt(control, IPPROTO_TCP, TCP_MAXSEG, &segment_bytes,
			sizeof(segment_bytes))))
		why = errno;
	if (!why && connect(control, to->ai_addr, to->ai_addrlen) &&
	    errno != EINPROGRESS)
		why = errno;
	if (!why && !doctor_await(control, POLLOUT, until_ns))
		why = ETIMEDOUT;
	if (!why)
		(void)getsockopt(control, SOL_SOCKET, SO_ERROR, &why,
				 &why_bytes);
	if (!why)
		return control;
	(void)close(control);
	errno = why;
	return -1;
}

static void nobody_say(struct doctor *doctor, int why)
{
	const int is_answer = why == ECONNREFUSED;
	const int is_silence = why == ETIMEDOUT;

	doctor_say(
		doctor, SAY_PEER_NOBODY, doctor->peer, doctor->port,
		strerror(why),
		is_answer  ? "nobody serves there: ib_pull --port" :
		is_silence ? "the host is down, or a firewall drops TCP port" :
			     "no way leads there: ip route get",
		is_answer || is_silence ? doctor->port : doctor->peer);
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
	    !doctor_await(control, POLLIN, kvpull_clock_ns() + ANSWER_NS) ||
	    recv(control, answer, sizeof(*answer), 0) !=
		    (ssize_t)sizeof(*answer))
		return -1;
	return is_numbers(answer) ? 0 : -1;
}

static int peer_ask(struct doctor *doctor, const struct addrinfo *to,
		    struct ib_answer *answer)
{
	const uint64_t until_ns =
		kvpull_clock_ns() + CONNECT_S * KVPULL_NS_PER_S;
	int control = -1;
	int code;

	for (; to && control < 0; to = to->ai_next)
		control = call(to, 0, until_ns);
	if (control < 0) {
		nobody_say(doctor, errno);
		return 1;
	}
	code = numbers_ask(control, answer);
	(void)close(control);
	if (code)
		doctor_say(doctor, SAY_PEER_IS_OTHER, doctor->peer,
			   doctor->port);
	return code;
}

/* ---- frames of that size ---- */

enum arrival {
	ARRIVED,
	LOST,
	NOT_TRIED /* nobody is there, or the way is not RDMA's */
};

/* The own address that it goes by is the chosen port's. */
static int is_of_link(const struct doctor *doctor, int control)
{
	struct sockaddr_storage own;
	socklen_t own_bytes = sizeof(own);
	char address[INET6_ADDRSTRLEN];

	return !getsockname(control, (struct sockaddr *)&own, &own_bytes) &&
	       !getnameinfo((struct sockaddr *)&own, own_bytes, address,
			    sizeof(address), NULL, 0, NI_NUMERICHOST) &&
	       strcmp(address, doctor->link_address) == 0;
}

/* All answers, until then. Return: 0, or -1: some are missing. */
static int answers_take(int control, uint64_t until_ns)
{
	size_t left = ASKS * sizeof(struct ib_answer);
	char bytes[4096];

	while (left) {
		ssize_t got;

		if (!doctor_await(control, POLLIN, until_ns))
			return -1;
		got = recv(control, bytes,
			   left < sizeof(bytes) ? left : sizeof(bytes), 0);
		if (got <= 0)
			return -1;
		left -= (size_t)got;
	}
	return 0;
}

/* *segment_bytes: out, the size of TCP's segments after the exchange. */
static enum arrival path_try(const struct doctor *doctor,
			     const struct addrinfo *to, uint32_t payload_bytes,
			     int *segment_bytes)
{
	const struct timespec fill = { .tv_nsec = FILL_NS };
	static struct ib_ask asks[ASKS];
	socklen_t option_bytes = sizeof(*segment_bytes);
	enum arrival arrival = NOT_TRIED;
	const int control = call(to, (int)payload_bytes + ROCE_MORE_BYTES,
				 kvpull_clock_ns() + TRY_NS);
	uint32_t i;

	if (control < 0)
		return NOT_TRIED;
	for (i = 0; i < ASKS; i++)
		asks[i].kind = IB_ASK_STATS;
	if (is_of_link(doctor, control) &&
	    send(control, asks, sizeof(asks), MSG_NOSIGNAL) ==
		    (ssize_t)sizeof(asks)) {
		(void)nanosleep(&fill, NULL);
		arrival = answers_take(control, kvpull_clock_ns() + TRY_NS) ?
				  LOST :
				  ARRIVED;
	}
	(void)getsockopt(control, IPPROTO_TCP, TCP_MAXSEG, segment_bytes,
			 &option_bytes);
	(void)close(control);
	return arrival;
}

static int path_judge(struct doctor *doctor, const struct addrinfo *to)
{
	const uint32_t link_bytes = doctor->link_mtu_bytes;
	uint32_t fits_bytes = link_bytes / 2;
	int segment_bytes = 0;
	int other_bytes;
	enum arrival arrival;

	if (link_bytes < 1024)
		return 0;
	arrival = path_try(doctor, to, link_bytes, &segment_bytes);
	segment_bytes += TCP_OPTION_BYTES;
	/* The other side's TCP allows less than RDMA's payload. */
	if (arrival == ARRIVED &&
	    segment_bytes < (int)link_bytes + ROCE_MORE_BYTES)
		doctor_say(doctor, SAY_MTU_DIFFERS, doctor->peer,
			   segment_bytes + TCP_HEADER_BYTES, link_bytes);
	if (arrival != LOST)
		return 0;
	/* Two more at the most: all this takes less than 5 s. */
	while (fits_bytes >= 1024 &&
	       path_try(doctor, to, fits_bytes, &other_bytes))
		fits_bytes /= 2;
	/* A small question was answered a moment ago. */
	if (fits_bytes < 1024) {
		doctor_say(doctor, SAY_MTU_NONE_ARRIVES, link_bytes,
			   doctor->peer);
		return 1;
	}
	doctor_say(doctor, SAY_MTU_LOST, link_bytes, doctor->peer, fits_bytes,
		   link_bytes + NETDEV_MORE_BYTES,
		   fits_bytes == 1024 ? 1500 : fits_bytes + NETDEV_MORE_BYTES);
	return 1;
}

/* ---- both ---- */

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
	is_said = peer_ask(doctor, to, answer) || path_judge(doctor, to);
	freeaddrinfo(to);
	return is_said;
}
