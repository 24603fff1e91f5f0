/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A welcome that is too large for one packet: in parts, from a producer of ours
 * and from one that breaks the rules.
 */

#include "tests/unit/shm/raw.h"

#include <sys/syscall.h>

#include "shm/parts.h"
#include "shm/state.h"

uint32_t world_blocks = 64u; /* nobody reads much here */

#define REGIONS 300u /* more than one packet's worth of descriptors */

static uint8_t sent[KVPULL_MESSAGE_BYTES_MAX];
static uint32_t refused_early; /* sockets, before they were connected */

/* In the place of libc's: a kernel that lacks the option tells nobody. */
int setsockopt(int fd, int level, int option, const void *value,
	       socklen_t bytes)
{
	struct sockaddr_un peer;
	socklen_t peer_bytes = sizeof(peer);

	if (level == SOL_SOCKET && option == SO_PASSRIGHTS &&
	    !*(const int *)value)
		refused_early += getpeername(fd, (struct sockaddr *)&peer,
					     &peer_bytes) != 0;
	return (int)syscall(SYS_setsockopt, fd, level, option, value, bytes);
}

static void sent_fill(void)
{
	uint32_t i;

	for (i = 0; i < sizeof(sent); i++)
		sent[i] = (uint8_t)(i * 7 + i / 256);
}

/* Each with a descriptor of its own, of the same memory a page further on. */
static void regions_fill(struct kvpull_serve *serve)
{
	const struct kvpull_region_view first = serve->regions[0];
	uint32_t i;

	for (i = 1; i < REGIONS; i++) {
		serve->regions[i] = first;
		serve->regions[i].fd = fcntl(first.fd, F_DUPFD_CLOEXEC, 0);
		serve->regions[i].bytes = WORLD_BLOCK_BYTES;
		serve->regions[i].fd_offset =
			(uint64_t)(i % world_blocks) * WORLD_BLOCK_BYTES;
		assert_true(serve->regions[i].fd >= 0);
	}
	serve->region_count = REGIONS;
}

static void regions_close(struct kvpull_serve *serve)
{
	while (serve->region_count > 1)
		(void)close(serve->regions[--serve->region_count].fd);
}

/* The next message of P, whole. */
static void message_is_what_was_sent(struct world *world)
{
	struct kvpull_transport *d = world->d.transport;
	struct kvpull_event event = { .kind = KVPULL_EVENT_NONE };
	uint32_t turn;

	for (turn = 0; turn < WORLD_TURNS_MAX && !event.data; turn++) {
		d->ops->disarm(d);
		if (!d->ops->poll(d, world->now_ns, &event, 1))
			event.data = NULL;
	}
	assert_int_equal(event.kind, KVPULL_EVENT_PEER_MESSAGE);
	assert_int_equal(event.data_bytes, sizeof(sent));
	assert_memory_equal(event.data, sent, sizeof(sent));
}

UNIT_TEST(large_welcome_comes_whole)
{
	struct world world;
	struct kvpull_transport *p;
	struct kvpull_transport *d;
	struct kvpull_read read;
	const int small = 4096;

	sent_fill();
	world_open(&world);
	side_close(&world.p);
	regions_fill(&world.serve);
	world_serve(&world, "p");
	world_greet(&world);
	p = world.p.transport;
	d = world.d.transport;
	/* A node may have given its sockets less than all parts take. */
	assert_int_equal(
		setsockopt(
			kvpull_shm_of(p)->callers.callers[world.caller].socket,
			SOL_SOCKET, SO_SNDBUF, &small, sizeof(small)),
		0);
	assert_int_equal(
		p->ops->admit(p, world.caller, sent, sizeof(sent), &world.ring),
		0);
	message_is_what_was_sent(&world);
	assert_int_equal(world_attach(&world, &world.serve), 0);
	/* The read is of the last region: block 299 % 64 of the memory. */
	read = world_read(&world, 1);
	world.ids[0] = 0;
	world.strip.region_index = REGIONS - 1;
	assert_int_equal(d->ops->read_start(d, world.peer, &read), 1);
	assert_memory_equal(world.local,
			    world.kv.base +
				    (size_t)((REGIONS - 1) % world_blocks) *
					    WORLD_BLOCK_BYTES,
			    WORLD_BLOCK_BYTES);
	side_close(&world.d);
	regions_close(&world.serve);
	world_close(&world);
}

static void part_send(const struct imposter *imposter, const char *word,
		      size_t byte_count, uint32_t fd_count)
{
	int fds[KVPULL_PACKET_FDS_MAX];
	const struct kvpull_message part = { .word = word,
					     .bytes = sent,
					     .byte_count = byte_count,
					     .fds = fds,
					     .fd_count = fd_count };
	uint32_t i;

	for (i = 0; i < fd_count; i++)
		fds[i] = STDERR_FILENO;
	assert_int_equal(kvpull_endpoint_send(imposter->socket, &part, NULL),
			 0);
}

/*
 * Sends D parts of that size, one more each time, until D hangs up. Returns how
 * many.
 */
static uint32_t parts_until_refused(struct imposter *imposter,
				    size_t byte_count, uint32_t fd_count)
{
	struct world *world = &imposter->world;
	uint32_t count = 0;

	imposter_connect(imposter);
	while (!world->d.queue_count && count < 9) {
		part_send(imposter, KVPULL_PARTS_MORE, byte_count, fd_count);
		count++;
		side_look(world, &world->d);
		side_look(world, &world->d);
	}
	(void)world_peer_down(world, KVPULL_EPROTO);
	(void)close(imposter->socket);
	return count;
}

UNIT_TEST_IN(parts_without_end_are_refused, imposter)
{
	/* None that is full neither of bytes nor of descriptors. */
	assert_int_equal(parts_until_refused(imposter, 0, 0), 1);
	assert_int_equal(parts_until_refused(imposter, 1000, 252), 1);
	assert_int_equal(
		parts_until_refused(imposter, KVPULL_PARTS_PIECE_BYTES - 1, 0),
		1);
	/* And the others up to the largest message: three of bytes ... */
	assert_int_equal(
		parts_until_refused(imposter, KVPULL_PARTS_PIECE_BYTES, 0), 4);
	/* ... or four of descriptors. */
	assert_int_equal(parts_until_refused(imposter, 0, 253), 5);
	assert_int_equal(
		parts_until_refused(imposter, KVPULL_PARTS_PIECE_BYTES, 253),
		4);
}

UNIT_TEST_IN(last_part_comes_once, imposter)
{
	struct world *world = &imposter->world;
	struct kvpull_event event;

	imposter_connect(imposter);
	part_send(imposter, KVPULL_PARTS_MORE, KVPULL_PARTS_PIECE_BYTES, 1);
	part_send(imposter, KVPULL_PARTS_LAST, 10, 1);
	event = world_expect(world, &world->d, KVPULL_EVENT_PEER_MESSAGE);
	assert_int_equal(event.data_bytes, KVPULL_PARTS_PIECE_BYTES + 10);
	/* Bytes are a message like another now; descriptors end it. */
	part_send(imposter, KVPULL_PARTS_MORE, 10, 0);
	event = world_expect(world, &world->d, KVPULL_EVENT_PEER_MESSAGE);
	assert_int_equal(event.data_bytes, KVPULL_PARTS_WORD_BYTES + 10);
	part_send(imposter, KVPULL_PARTS_LAST, 10, 1);
	(void)world_peer_down(world, KVPULL_EPROTO);
	(void)close(imposter->socket);
	/* An empty part is no message. */
	imposter_connect(imposter);
	part_send(imposter, KVPULL_PARTS_LAST, 0, 3);
	(void)world_peer_down(world, KVPULL_EPROTO);
	(void)close(imposter->socket);
}

UNIT_TEST_IN(half_a_welcome_ends_with_its_time, imposter)
{
	struct world *world = &imposter->world;
	struct kvpull_event event;

	imposter_connect(imposter);
	part_send(imposter, KVPULL_PARTS_MORE, 0, KVPULL_PACKET_FDS_MAX);
	side_look(world, &world->d);
	world->now_ns += UINT64_C(2000000000);
	side_look(world, &world->d);
	(void)world_peer_down(world, KVPULL_EPEER);
	(void)close(imposter->socket);
	/* A producer that had to give up says why, as one message. */
	imposter_connect(imposter);
	part_send(imposter, KVPULL_PARTS_MORE, 0, KVPULL_PACKET_FDS_MAX);
	part_send(imposter, NULL, 20, 0);
	event = world_expect(world, &world->d, KVPULL_EVENT_PEER_MESSAGE);
	assert_int_equal(event.data_bytes, 20);
	(void)close(imposter->socket);
	(void)world_peer_down(world, KVPULL_EPEER);
}

/*
 * The sender's user is known afterwards: until then no descriptor is let
 * through.
 */
UNIT_TEST_IN(descriptors_are_refused_before_the_call, imposter)
{
	struct world *world = &imposter->world;

	refused_early = 0;
	imposter_connect(imposter);
	assert_int_equal(refused_early, 1);
	(void)close(imposter->socket);
	(void)world_expect(world, &world->d, KVPULL_EVENT_PEER_DOWN);
}

/* Anybody can take a dead producer's name in a folder that is shared. */
UNIT_TEST(descriptors_of_another_user_are_not_taken)
{
	struct imposter imposter;
	struct world *world = &imposter.world;
	struct kvpull_event event;
	const int one = STDERR_FILENO;

	if (geteuid())
		skip();
	imposter_begin(&imposter);
	/* The kernel says who listened last. */
	assert_int_equal(seteuid(12345), 0);
	assert_int_equal(listen(imposter.listener, 4), 0);
	assert_int_equal(seteuid(0), 0);
	imposter_connect(&imposter);
	part_send(&imposter, NULL, 10, 0);
	event = world_expect(world, &world->d, KVPULL_EVENT_PEER_MESSAGE);
	assert_int_equal(event.uid, 12345);
	if (has_passrights()) {
		/* The descriptors do not even leave. */
		assert_int_equal(raw_try_send(imposter.socket, &one, 1), EPERM);
		(void)close(imposter.socket);
		(void)world_expect(world, &world->d, KVPULL_EVENT_PEER_DOWN);
		imposter_end(&imposter);
		return;
	}
	part_send(&imposter, KVPULL_PARTS_MORE, 0, KVPULL_PACKET_FDS_MAX);
	(void)world_peer_down(world, KVPULL_EPROTO);
	(void)close(imposter.socket);
	imposter_end(&imposter);
}

int main(void)
{
	struct rlimit limit;

	/* P and D are one process here. */
	if (!getrlimit(RLIMIT_NOFILE, &limit) && limit.rlim_cur < 2048) {
		limit.rlim_cur = limit.rlim_max < 2048 ? limit.rlim_max : 2048;
		(void)setrlimit(RLIMIT_NOFILE, &limit);
	}
	return unit_run(NULL, NULL);
}
