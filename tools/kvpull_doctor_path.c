/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Does the way to another machine carry frames as large as RDMA will send? A
 * switch that drops them says nothing, and all that is small gets through. So
 * the ib_pull there is asked for its numbers, many times at once, by TCP in
 * frames of that size, both ways; then in smaller ones.
 */
#include "tools/kvpull_doctor_parts.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "tools/ib_pull_parts.h"

/*
 * More than a frame of them, whose answers are more than the window here: so
 * they wait there, and come in whole frames.
 */
#define ASKS 400u
#define WINDOW_BYTES 16384
/* RoCE's headers take 20 bytes more than TCP's. */
#define ROCE_MORE_BYTES 20
#define TCP_OPTION_BYTES 12
#define TCP_HEADER_BYTES 40 /* and IP's */
/* A network device's MTU over RoCE's: vendors name 4200 for 4096. */
#define NETDEV_MORE_BYTES 104
#define TRY_NS KVPULL_NS_PER_S
#define FILL_NS 100000000L

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

/* Connected in frames that carry so much; -1: it is not. */
static int path_connect(const struct doctor *doctor, const struct addrinfo *to,
			uint32_t payload_bytes)
{
	const int segment_bytes = (int)payload_bytes + ROCE_MORE_BYTES;
	const int window_bytes = WINDOW_BYTES;
	const int control =
		socket(to->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (control < 0)
		return -1;
	if (!setsockopt(control, SOL_SOCKET, SO_RCVBUF, &window_bytes,
			sizeof(window_bytes)) &&
	    !setsockopt(control, IPPROTO_TCP, TCP_MAXSEG, &segment_bytes,
			sizeof(segment_bytes)) &&
	    !doctor_connect(control, to, kvpull_clock_ns() + TRY_NS) &&
	    is_of_link(doctor, control))
		return control;
	(void)close(control);
	return -1;
}

/* All answers, until then. Return: 0, or -1: some are missing. */
static int answers_take(int control, uint64_t until_ns)
{
	size_t left = ASKS * sizeof(struct ib_answer);
	char bytes[4096];

	while (left) {
		ssize_t got;

		if (!doctor_await(control, until_ns))
			return -1;
		got = recv(control, bytes,
			   left < sizeof(bytes) ? left : sizeof(bytes), 0);
		if (got <= 0)
			return -1;
		left -= (size_t)got;
	}
	return 0;
}

static enum arrival path_try(const struct doctor *doctor,
			     const struct addrinfo *to, uint32_t payload_bytes)
{
	const struct timespec fill = { .tv_nsec = FILL_NS };
	static struct ib_ask asks[ASKS];
	enum arrival arrival = ARRIVED;
	const int control = path_connect(doctor, to, payload_bytes);
	uint32_t i;

	if (control < 0)
		return NOT_TRIED;
	for (i = 0; i < ASKS; i++)
		asks[i].kind = IB_ASK_STATS;
	if (send(control, asks, sizeof(asks), MSG_NOSIGNAL) !=
	    (ssize_t)sizeof(asks))
		arrival = NOT_TRIED;
	(void)nanosleep(&fill, NULL);
	if (arrival == ARRIVED &&
	    answers_take(control, kvpull_clock_ns() + TRY_NS))
		arrival = LOST;
	(void)close(control);
	return arrival;
}

/* Says which RDMA payload the other side's TCP segment size allows. */
static void small_there_say(struct doctor *doctor, const struct addrinfo *to)
{
	const int control = path_connect(doctor, to, doctor->link_mtu_bytes);
	int segment_bytes = 0;
	socklen_t option_bytes = sizeof(segment_bytes);

	if (control < 0)
		return;
	(void)getsockopt(control, IPPROTO_TCP, TCP_MAXSEG, &segment_bytes,
			 &option_bytes);
	(void)close(control);
	if (segment_bytes + TCP_OPTION_BYTES >=
	    (int)doctor->link_mtu_bytes + ROCE_MORE_BYTES)
		return;
	doctor_say(doctor, SAY_MTU_DIFFERS, doctor->peer,
		   segment_bytes + TCP_OPTION_BYTES + TCP_HEADER_BYTES,
		   doctor->link_mtu_bytes);
}

/* 1: it is said why nothing can be pulled. */
static int path_judge(struct doctor *doctor, const struct addrinfo *to)
{
	const enum arrival arrival =
		path_try(doctor, to, doctor->link_mtu_bytes);
	uint32_t fits_bytes = doctor->link_mtu_bytes / 2;

	if (arrival == ARRIVED)
		small_there_say(doctor, to);
	if (arrival == ARRIVED || arrival == NOT_TRIED)
		return 0;
	/* Two more at the most: all this takes less than 5 s. */
	while (fits_bytes >= 1024 && path_try(doctor, to, fits_bytes))
		fits_bytes /= 2;
	/* A small question was answered a moment ago. */
	if (fits_bytes < 1024) {
		doctor_say(doctor, SAY_MTU_NONE_ARRIVES, doctor->link_mtu_bytes,
			   doctor->peer);
		return 1;
	}
	doctor_say(doctor, SAY_MTU_LOST, doctor->link_mtu_bytes, doctor->peer,
		   fits_bytes);
	doctor_advise(
		doctor,
		"let every switch between carry %u bytes and more, or on both hosts: ip link set DEV mtu %u",
		doctor->link_mtu_bytes + NETDEV_MORE_BYTES,
		fits_bytes == 1024 ? 1500 : fits_bytes + NETDEV_MORE_BYTES);
	return 1;
}

int doctor_path(struct doctor *doctor)
{
	const struct addrinfo hints = { .ai_socktype = SOCK_STREAM };
	struct addrinfo *to = NULL;
	int is_said;

	if (doctor->link_mtu_bytes < 1024 ||
	    getaddrinfo(doctor->peer, doctor->port, &hints, &to))
		return 0;
	is_said = path_judge(doctor, to);
	freeaddrinfo(to);
	return is_said;
}
