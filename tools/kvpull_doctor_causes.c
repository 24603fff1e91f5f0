/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Why a pull from a peer failed, from the lines of ib_pull and the library: a
 * table of signs, what they mean, and what to do.
 */
#include "tools/kvpull_doctor_parts.h"

#include <stdio.h>
#include <string.h>

#define ADDRESS_BYTES_MAX 64

#define NO_ANSWER                                                              \
	"TCP arrives there, and no answer of RDMA's connection manager comes"
#define LET_UDP_THROUGH                                                        \
	"let UDP port 4791 (RoCE v2) through both ways: firewalls and security groups of both hosts, and what is between; InfiniBand: is there a subnet manager?"
#define NO_WAY                                                                 \
	"the RDMA device here finds no way to the address of the one there"
#define MAKE_A_WAY                                                             \
	"both in one network, or a route by this device: ip route, ip neigh"

struct cause {
	const char *sign;   /* in a line */
	const char *text;   /* NULL: that line */
	const char *advice; /* "there" is the peer */
	uint32_t proposes;  /* networks that have both hosts follow */
	uint32_t reserved;
};

/* The first row whose sign is in the output counts: causes before effects. */
/* clang-format off */
static const struct cause causes[] = {
	{ .sign = "is in none of its networks", .advice = "there and here: networks=", .proposes = 1 },
	{ .sign = "it speaks another version", .advice = "install one version of kvpull on both hosts" },
	{ .sign = "it is no kvpull", .text = "another program has the RDMA port that the ticket names", .advice = "start ib_pull there again" },
	{ .sign = "not made with our key", .advice = "key_file: the same 32 bytes on both hosts, or on neither" },
	{ .sign = "made with a key_file, which this side lacks", .advice = "key_file: a copy of the peer's, mode 600, here as well" },
	{ .sign = " refused us: ", .advice = "make equal on both hosts what that line names" },
	{ .sign = "the handshake took too long", .text = NO_ANSWER, .advice = LET_UDP_THROUGH },
	{ .sign = "RDMA_CM_EVENT_UNREACHABLE", .text = NO_ANSWER, .advice = LET_UDP_THROUGH },
	{ .sign = "RDMA_CM_EVENT_ADDR_ERROR", .text = NO_WAY, .advice = MAKE_A_WAY },
	{ .sign = "RDMA_CM_EVENT_ROUTE_ERROR", .text = NO_WAY, .advice = MAKE_A_WAY },
	{ .sign = "RDMA_CM_EVENT_REJECTED", .text = "nobody listens at the RDMA port that the ticket names", .advice = "start ib_pull there again; a port that firewalls know: verbs_listen_port" },
	{ .sign = "waiting for the bytes: E", .text = "connected, messages arrive there, and READs of whole blocks are lost", .advice = "one MTU on both hosts and on every switch between, for UDP port 4791 as well; a lossless class (PFC) on all of them, or none" },
	{ .sign = "memlock must hold all of it", .text = "memory cannot be registered here: memlock is too small", .advice = "here: ulimit -l unlimited; systemd: LimitMEMLOCK=infinity; docker: --ulimit memlock=-1" },
};
/* clang-format on */

/* The line of the output with this word in it, without its newline. */
static int line_find(const char *output, const char *word,
		     char line[DOCTOR_TEXT_BYTES_MAX])
{
	const char *at = strstr(output, word);

	if (!at)
		return 0;
	while (at > output && at[-1] != '\n')
		at--;
	(void)snprintf(line, DOCTOR_TEXT_BYTES_MAX, "%.*s",
		       (int)strcspn(at, "\n"), at);
	return 1;
}

/* The IP address of "WORD ADDRESS:PORT", "" where there is none. */
static void address_find(const char *line, const char *word,
			 char address[ADDRESS_BYTES_MAX])
{
	const char *at = strstr(line, word);

	address[0] = '\0';
	if (at && sscanf(at + strlen(word), "[%63[^]]", address) != 1)
		(void)sscanf(at + strlen(word), "%63[^:]", address);
}

/* The ticket's addresses are all that is known of a peer without a route. */
static int routes_judge(struct doctor *doctor, const char *output)
{
	char line[DOCTOR_TEXT_BYTES_MAX];
	char address[ADDRESS_BYTES_MAX];
	char networks[DOCTOR_NETWORKS_BYTES_MAX];

	if (!line_find(output, "no allowed route to ", line))
		return 0;
	address_find(line, "verbs:", address);
	if (address[0]) {
		doctor_networks_propose(doctor, address, networks);
		doctor_say(doctor, SAY_PEER_IS_OUTSIDE, doctor->peer, address,
			   networks);
	} else {
		doctor_say(doctor, SAY_PEER_HAS_NO_RDMA, doctor->peer);
	}
	return 1;
}

int doctor_causes(struct doctor *doctor, const char *output)
{
	char line[DOCTOR_TEXT_BYTES_MAX];
	char address[ADDRESS_BYTES_MAX];
	char networks[DOCTOR_NETWORKS_BYTES_MAX] = "";
	size_t at;

	if (routes_judge(doctor, output))
		return 1;
	for (at = 0; at < sizeof(causes) / sizeof(causes[0]); at++) {
		const struct cause *cause = &causes[at];

		if (!line_find(output, cause->sign, line))
			continue;
		address_find(line, "peer ", address);
		if (cause->proposes)
			doctor_networks_propose(doctor, address, networks);
		doctor_say(doctor, SAY_PEER_FAILED_BY, doctor->peer,
			   cause->text ? cause->text : line, cause->advice,
			   networks);
		return 1;
	}
	return 0;
}
