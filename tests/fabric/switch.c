// SPDX-License-Identifier: Apache-2.0
/*
 * The switch between the guests of the fabric. It joins the ports of one rail
 * into one Ethernet and treats their frames as the control socket says.
 *
 *   fabric_switch SOCKET SEED       be the switch, with no port yet
 *   fabric_switch SOCKET COMMAND... have one command done, print its answer
 *
 * Commands (a percentage is of RoCE frames; GUEST and RAIL are numbers):
 *   port GUEST RAIL stream OURS         listen for user-mode Linux
 *   port GUEST RAIL datagram OURS PEER  exchange datagrams with qemu
 *   loss|duplicate|reorder|corrupt WHERE PERCENT
 *   drop WHERE COUNT                    the next COUNT RoCE frames
 *   delay WHERE MILLISECONDS
 *   hole WHERE BYTES                    RoCE frames that are longer
 *   link WHERE on|off                   all frames
 *   clear WHERE                         no fault any more
 *   stats                               counters of each port, both ways
 *   quit
 * WHERE is GUEST.RAIL, either may be `all`, with /tx (what the guest sends) or
 * /rx (what it is to get) behind; without, both. Plain `all` is all/tx: each
 * frame then meets the fault once.
 *
 * A port's address is in its number: 02:66:00:00:RAIL:GUEST, so nothing has to
 * be learned, and a guest that is booted anew is known at once.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "tests/fabric/switch.h"

/* Frames of one port in a row, before the others have their turn. */
#define BURST_FRAMES 32u
#define WORDS_MAX 8u

/* Why a port has no peer to send to is of no interest: the frame is lost. */
enum port_kind {
	PORT_NONE,
	PORT_STREAM,
	PORT_DATAGRAM
};

struct port {
	enum port_kind kind;
	int listen_fd; /* PORT_STREAM */
	int fd;
	int connected;
	struct sockaddr_un peer; /* PORT_DATAGRAM */
	struct frame *first;
	struct frame *last;
	uint32_t queued;
	uint64_t overflowed;
	struct fault tx;
	struct fault rx;
};

struct fabric {
	struct port ports[SWITCH_PORTS_MAX];
	struct late late;
	uint64_t now_ns;
	int control_fd;
	int quit;
};

static uint32_t guest_of(uint32_t port)
{
	return port / SWITCH_RAILS_MAX + 1;
}

static uint32_t rail_of(uint32_t port)
{
	return port % SWITCH_RAILS_MAX;
}

/* ---- sockets ---- */

static int address_set(struct sockaddr_un *address, const char *path)
{
	size_t path_bytes = strlen(path) + 1;

	memset(address, 0, sizeof(*address));
	address->sun_family = AF_UNIX;
	if (path_bytes > sizeof(address->sun_path))
		return -1;
	memcpy(address->sun_path, path, path_bytes);
	return 0;
}

static int socket_bind(int type, const char *path)
{
	struct sockaddr_un address;
	int fd;

	if (address_set(&address, path) != 0)
		return -1;
	fd = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -1;
	(void)unlink(path);
	if (bind(fd, (struct sockaddr *)&address, sizeof(address)) != 0 ||
	    (type != SOCK_DGRAM && listen(fd, 8) != 0)) {
		(void)close(fd);
		return -1;
	}
	return fd;
}

static void port_hang_up(struct port *port)
{
	struct frame *frame;

	if (port->fd >= 0)
		(void)close(port->fd);
	port->fd = -1;
	port->connected = 0;
	while ((frame = port->first) != NULL) {
		port->first = frame->next;
		free(frame);
	}
	port->last = NULL;
	port->queued = 0;
}

static void port_accept(struct port *port)
{
	int fd = accept4(port->listen_fd, NULL, NULL,
			 SOCK_CLOEXEC | SOCK_NONBLOCK);

	if (fd < 0)
		return;
	/* The guest was booted anew, or its link was taken down and up. */
	port_hang_up(port);
	port->fd = fd;
	port->connected = 1;
}

/* ---- frames on their way ---- */

/* 1: gone or given up, 0: the peer is full, try again when it is not. */
static int port_send(struct port *port, const uint8_t *bytes,
		     uint32_t frame_bytes)
{
	if (port->kind == PORT_DATAGRAM && !port->connected) {
		if (connect(port->fd, (struct sockaddr *)&port->peer,
			    sizeof(port->peer)) != 0)
			return 1;
		port->connected = 1;
	}
	if (port->fd < 0)
		return 1;
	if (send(port->fd, bytes, frame_bytes, MSG_NOSIGNAL) >= 0)
		return 1;
	if (errno == EAGAIN || errno == ENOBUFS)
		return 0;
	port->connected = 0;
	return 1;
}

static struct frame *frame_new(const uint8_t *bytes, uint32_t frame_bytes)
{
	struct frame *frame = malloc(sizeof(*frame) + frame_bytes);

	if (frame == NULL)
		return NULL;
	frame->next = NULL;
	frame->frame_bytes = frame_bytes;
	memcpy(frame->bytes, bytes, frame_bytes);
	return frame;
}

static void port_queue(struct port *port, struct frame *frame)
{
	if (port->queued == SWITCH_QUEUE_FRAMES_MAX) {
		port->overflowed++;
		free(frame);
		return;
	}
	frame->next = NULL;
	if (port->last == NULL)
		port->first = frame;
	else
		port->last->next = frame;
	port->last = frame;
	port->queued++;
}

static void port_flush(struct port *port)
{
	struct frame *frame;

	while ((frame = port->first) != NULL) {
		if (!port_send(port, frame->bytes, frame->frame_bytes))
			return;
		port->first = frame->next;
		if (port->first == NULL)
			port->last = NULL;
		port->queued--;
		free(frame);
	}
}

static void deliver(struct fabric *fabric, uint32_t to, const uint8_t *bytes,
		    uint32_t frame_bytes)
{
	struct port *port = &fabric->ports[to];
	struct frame *frame;

	if (port->first == NULL && port_send(port, bytes, frame_bytes))
		return;
	frame = frame_new(bytes, frame_bytes);
	if (frame != NULL)
		port_queue(port, frame);
}

static void deliver_late(struct fabric *fabric, uint32_t to,
			 struct frame *frame, const struct fate *fate)
{
	if (frame == NULL)
		return;
	frame->due_ns = fabric->now_ns + fate->delay_ns;
	frame->port = to;
	if (fate->corrupt_offset != 0)
		frame->bytes[fate->corrupt_offset] ^= 0x5a;
	(void)late_push(&fabric->late, frame);
}

static void forward(struct fabric *fabric, uint32_t to, const struct fate *sent,
		    const uint8_t *bytes, uint32_t frame_bytes)
{
	struct fate fate = *sent;

	fault_decide(&fabric->ports[to].rx, bytes, frame_bytes, &fate);
	for (; fate.copies > 0; fate.copies--) {
		if (fate.delay_ns == 0 && fate.corrupt_offset == 0)
			deliver(fabric, to, bytes, frame_bytes);
		else
			deliver_late(fabric, to, frame_new(bytes, frame_bytes),
				     &fate);
	}
}

static int is_for(const uint8_t *bytes, uint32_t port)
{
	static const uint8_t prefix[4] = { 0x02, 0x66, 0, 0 };

	if ((bytes[0] & 1) != 0)
		return 1; /* broadcast and multicast */
	return memcmp(bytes, prefix, sizeof(prefix)) == 0 &&
	       bytes[4] == rail_of(port) && bytes[5] == guest_of(port);
}

static void route(struct fabric *fabric, uint32_t from, const uint8_t *bytes,
		  uint32_t frame_bytes)
{
	struct fate fate = { .copies = 1 };
	uint32_t to;

	fault_decide(&fabric->ports[from].tx, bytes, frame_bytes, &fate);
	if (fate.copies == 0)
		return;
	for (to = 0; to < SWITCH_PORTS_MAX; to++) {
		if (to != from && rail_of(to) == rail_of(from) &&
		    fabric->ports[to].kind != PORT_NONE && is_for(bytes, to))
			forward(fabric, to, &fate, bytes, frame_bytes);
	}
}

static void port_receive(struct fabric *fabric, uint32_t from)
{
	struct port *port = &fabric->ports[from];
	uint8_t bytes[SWITCH_FRAME_BYTES_MAX];
	uint32_t burst;
	ssize_t got;

	for (burst = 0; burst < BURST_FRAMES; burst++) {
		got = recv(port->fd, bytes, sizeof(bytes), MSG_DONTWAIT);
		if (got < 0 && (errno == EAGAIN || errno == EINTR))
			return;
		if (got <= 0) {
			/* A datagram socket tells of its peer's death once. */
			if (port->kind == PORT_STREAM)
				port_hang_up(port);
			port->connected = 0;
			return;
		}
		if (got >= 14)
			route(fabric, from, bytes, (uint32_t)got);
	}
}

static void release_late(struct fabric *fabric)
{
	struct frame *frame;

	while ((frame = late_pop(&fabric->late, fabric->now_ns)) != NULL) {
		deliver(fabric, frame->port, frame->bytes, frame->frame_bytes);
		free(frame);
	}
}

/* ---- commands ---- */

struct answer {
	char text[SWITCH_ANSWER_BYTES_MAX];
	size_t text_bytes;
};

static void answer_add(struct answer *answer, const char *line)
{
	size_t line_bytes = strlen(line);

	if (answer->text_bytes + line_bytes >= sizeof(answer->text))
		return;
	memcpy(answer->text + answer->text_bytes, line, line_bytes + 1);
	answer->text_bytes += line_bytes;
}

/* 0 and the number, or ~0 for "all"; -1 if it is neither. */
static int parse_part(const char *text, size_t text_bytes, uint32_t *number)
{
	if (text_bytes == 3 && memcmp(text, "all", 3) == 0) {
		*number = UINT32_MAX;
		return 0;
	}
	if (text_bytes != 1 || text[0] < '0' || text[0] > '9')
		return -1;
	*number = (uint32_t)(text[0] - '0');
	return 0;
}

struct where {
	uint32_t guest;
	uint32_t rail;
	int tx;
	int rx;
};

static int parse_where(const char *text, struct where *where)
{
	const char *slash = strchr(text, '/');
	size_t text_bytes = slash ? (size_t)(slash - text) : strlen(text);
	const char *dot = memchr(text, '.', text_bytes);
	size_t guest_bytes = dot ? (size_t)(dot - text) : text_bytes;

	where->rail = UINT32_MAX;
	if (parse_part(text, guest_bytes, &where->guest) != 0)
		return -1;
	if (dot && parse_part(dot + 1, text_bytes - guest_bytes - 1,
			      &where->rail) != 0)
		return -1;
	where->tx = slash == NULL || strcmp(slash, "/tx") == 0;
	where->rx =
		slash ? strcmp(slash, "/rx") == 0 : where->guest != UINT32_MAX;
	return where->tx || where->rx ? 0 : -1;
}

static int fault_command(struct fault *fault, char *const *words,
			 uint32_t word_count)
{
	if (word_count == 2 && strcmp(words[0], "clear") == 0) {
		fault_clear(fault);
		return 0;
	}
	return word_count == 3 ? fault_set(fault, words[0], words[2]) : -1;
}

static int faults_command(struct fabric *fabric, char *const *words,
			  uint32_t word_count)
{
	struct where where;
	uint32_t port;
	int matched = 0;

	if (word_count < 2 || parse_where(words[1], &where) != 0)
		return -1;
	for (port = 0; port < SWITCH_PORTS_MAX; port++) {
		if (fabric->ports[port].kind == PORT_NONE ||
		    (where.guest != UINT32_MAX &&
		     where.guest != guest_of(port)) ||
		    (where.rail != UINT32_MAX && where.rail != rail_of(port)))
			continue;
		matched = 1;
		if (where.tx && fault_command(&fabric->ports[port].tx, words,
					      word_count) != 0)
			return -1;
		if (where.rx && fault_command(&fabric->ports[port].rx, words,
					      word_count) != 0)
			return -1;
	}
	return matched ? 0 : -1;
}

static int port_command(struct fabric *fabric, char *const *words,
			uint32_t word_count)
{
	uint32_t guest;
	uint32_t rail;
	struct port *port;

	if (word_count < 5 ||
	    parse_part(words[1], strlen(words[1]), &guest) != 0 ||
	    parse_part(words[2], strlen(words[2]), &rail) != 0 || guest < 1 ||
	    guest > SWITCH_GUESTS_MAX || rail >= SWITCH_RAILS_MAX)
		return -1;
	port = &fabric->ports[(guest - 1) * SWITCH_RAILS_MAX + rail];
	port_hang_up(port);
	if (port->listen_fd >= 0)
		(void)close(port->listen_fd);
	port->listen_fd = -1;
	port->kind = PORT_NONE;
	if (strcmp(words[3], "stream") == 0 && word_count == 5) {
		port->listen_fd = socket_bind(SOCK_SEQPACKET, words[4]);
		port->kind = port->listen_fd < 0 ? PORT_NONE : PORT_STREAM;
	} else if (strcmp(words[3], "datagram") == 0 && word_count == 6 &&
		   address_set(&port->peer, words[5]) == 0) {
		port->fd = socket_bind(SOCK_DGRAM, words[4]);
		port->kind = port->fd < 0 ? PORT_NONE : PORT_DATAGRAM;
	}
	return port->kind == PORT_NONE ? -1 : 0;
}

static void stats_line(struct answer *answer, uint32_t port, const char *way,
		       const struct fault *fault)
{
	char line[256];

	(void)snprintf(line, sizeof(line),
		       "%u.%u/%s frames %llu lost %llu dropped %llu cut %llu"
		       " duplicated %llu reordered %llu corrupted %llu\n",
		       guest_of(port), rail_of(port), way,
		       (unsigned long long)fault->frames,
		       (unsigned long long)fault->lost,
		       (unsigned long long)fault->dropped,
		       (unsigned long long)fault->cut,
		       (unsigned long long)fault->duplicated,
		       (unsigned long long)fault->reordered,
		       (unsigned long long)fault->corrupted);
	answer_add(answer, line);
}

static void stats_command(const struct fabric *fabric, struct answer *answer)
{
	uint32_t at;
	char line[64];

	for (at = 0; at < SWITCH_PORTS_MAX; at++) {
		const struct port *port = &fabric->ports[at];

		if (port->kind == PORT_NONE)
			continue;
		stats_line(answer, at, "tx", &port->tx);
		stats_line(answer, at, "rx", &port->rx);
		if (port->overflowed == 0)
			continue;
		(void)snprintf(line, sizeof(line), "%u.%u overflowed %llu\n",
			       guest_of(at), rail_of(at),
			       (unsigned long long)port->overflowed);
		answer_add(answer, line);
	}
}

static int command(struct fabric *fabric, char *line, struct answer *answer)
{
	char *words[WORDS_MAX];
	uint32_t word_count = 0;
	char *rest = line;
	char *word;

	while (word_count < WORDS_MAX &&
	       (word = strtok_r(word_count ? NULL : line, " \n", &rest)))
		words[word_count++] = word;
	if (word_count == 0)
		return -1;
	if (strcmp(words[0], "quit") == 0) {
		fabric->quit = 1;
		return 0;
	}
	if (strcmp(words[0], "stats") == 0) {
		stats_command(fabric, answer);
		return 0;
	}
	if (strcmp(words[0], "port") == 0)
		return port_command(fabric, words, word_count);
	return faults_command(fabric, words, word_count);
}

/*
 * Takes one connection with one packet each way: the runner is the only client.
 */
static void control_accept(struct fabric *fabric)
{
	char line[SWITCH_COMMAND_BYTES_MAX];
	struct answer answer = { .text_bytes = 0 };
	int fd = accept4(fabric->control_fd, NULL, NULL, SOCK_CLOEXEC);
	struct timeval limit = { .tv_sec = 1 };
	ssize_t got;

	if (fd < 0)
		return;
	(void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	got = recv(fd, line, sizeof(line) - 1, 0);
	if (got > 0) {
		line[got] = '\0';
		answer_add(&answer, "");
		if (command(fabric, line, &answer) == 0)
			answer_add(&answer, "ok\n");
		else
			answer_add(&answer, "refused\n");
		(void)send(fd, answer.text, answer.text_bytes, MSG_NOSIGNAL);
	}
	(void)close(fd);
}

/* ---- the loop ---- */

/* How long until the next late frame; NULL: as long as it takes. */
static const struct timespec *patience(const struct fabric *fabric,
				       struct timespec *span)
{
	uint64_t due_ns;
	uint64_t span_ns = 0;

	if (fabric->late.frame_count == 0)
		return NULL;
	due_ns = fabric->late.frames[0]->due_ns;
	if (due_ns > fabric->now_ns)
		span_ns = due_ns - fabric->now_ns;
	span->tv_sec = (time_t)(span_ns / KVPULL_NS_PER_S);
	span->tv_nsec = (long)(span_ns % KVPULL_NS_PER_S);
	return span;
}

static void step(struct fabric *fabric)
{
	struct pollfd polled[1 + 2 * SWITCH_PORTS_MAX];
	struct timespec span;
	uint32_t at;

	polled[0] = (struct pollfd){ fabric->control_fd, POLLIN, 0 };
	for (at = 0; at < SWITCH_PORTS_MAX; at++) {
		const struct port *port = &fabric->ports[at];

		polled[1 + 2 * at] =
			(struct pollfd){ port->listen_fd, POLLIN, 0 };
		polled[2 + 2 * at] = (struct pollfd){
			port->fd, (short)(POLLIN | (port->first ? POLLOUT : 0)),
			0
		};
	}
	if (ppoll(polled, 1 + 2 * SWITCH_PORTS_MAX, patience(fabric, &span),
		  NULL) < 0)
		return;
	fabric->now_ns = kvpull_clock_ns();
	release_late(fabric);
	for (at = 0; at < SWITCH_PORTS_MAX; at++) {
		if (polled[2 + 2 * at].revents & POLLOUT)
			port_flush(&fabric->ports[at]);
		if (polled[2 + 2 * at].revents & (POLLIN | POLLERR | POLLHUP))
			port_receive(fabric, at);
		if (polled[1 + 2 * at].revents & POLLIN)
			port_accept(&fabric->ports[at]);
	}
	/* Last: a command may close what was polled. */
	if (polled[0].revents & POLLIN)
		control_accept(fabric);
}

static int serve(const char *path, uint64_t seed)
{
	static struct fabric fabric;
	uint32_t at;

	for (at = 0; at < SWITCH_PORTS_MAX; at++) {
		fabric.ports[at].listen_fd = -1;
		fabric.ports[at].fd = -1;
		/* Seeds far apart: splitmix64 steps through them all. */
		fault_init(&fabric.ports[at].tx, seed ^ (UINT64_C(2) * at + 1)
								 << 40);
		fault_init(&fabric.ports[at].rx, seed ^ (UINT64_C(2) * at + 2)
								 << 40);
	}
	fabric.control_fd = socket_bind(SOCK_SEQPACKET, path);
	if (fabric.control_fd < 0) {
		perror(path);
		return 1;
	}
	while (!fabric.quit)
		step(&fabric);
	return 0;
}

static int ask(const char *path, char **words, int word_count)
{
	char text[SWITCH_ANSWER_BYTES_MAX] = "";
	struct sockaddr_un address;
	size_t used = 0;
	ssize_t got;
	int fd;
	int i;

	for (i = 0; i < word_count && used < SWITCH_COMMAND_BYTES_MAX; i++)
		used += (size_t)snprintf(text + used, sizeof(text) - used,
					 "%s%s", i ? " " : "", words[i]);
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (fd < 0 || used >= SWITCH_COMMAND_BYTES_MAX ||
	    address_set(&address, path) != 0 ||
	    connect(fd, (struct sockaddr *)&address, sizeof(address)) != 0 ||
	    send(fd, text, used, MSG_NOSIGNAL) < 0) {
		perror(path);
		return 2;
	}
	got = recv(fd, text, sizeof(text) - 1, 0);
	(void)close(fd);
	if (got <= 0)
		return 2;
	text[got] = '\0';
	(void)fputs(text, stdout);
	return strcmp(text + got - 3, "ok\n") == 0 ? 0 : 1;
}

int main(int argc, char **argv)
{
	char *end;
	unsigned long long seed;

	if (argc < 3) {
		(void)fprintf(stderr, "usage: %s SOCKET SEED | COMMAND...\n",
			      argv[0]);
		return 2;
	}
	seed = strtoull(argv[2], &end, 10);
	if (argc == 3 && end != argv[2] && *end == '\0')
		return serve(argv[1], seed);
	return ask(argv[1], argv + 2, argc - 2);
}
