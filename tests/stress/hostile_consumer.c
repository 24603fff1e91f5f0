/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A hostile consumer that was let in: what it does with the descriptors of a
 * real welcome, with its ring, its doorbell and its socket, as our own uid and,
 * where we are root, as another one that the producer lets in. It may spoil
 * only itself: an honest consumer pulls from the same producer all the while,
 * every byte is compared, and no pull may fail. Then hellos that must be
 * refused, and forged tickets that lead outside the socket folder.
 *
 * Prints a row an attack and `N passed, N failed, N skipped`. Exit 0 or 1.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "base/ring.h"
#include "shm/endpoint.h"
#include "tests/stress/hostile_world.h"

#define RING_BATCH 512u

/* ---- the hostile one ---- */

struct hello_change {
	const char *name;
	uint64_t other_layout; /* not 0: of the version's bytes */
	uint32_t other_wanted; /* 1: another incarnation of P */
	uint32_t is_keyed;     /* 1: with a key that P has not */
	int32_t code;          /* of the refusal */
	const char *field;
};

struct attached {
	struct kvpull_ticket ticket;
	struct kvpull_welcome welcome;
	struct kvpull_refusal refusal;
	int socket;
	int fds[KVPULL_PACKET_FDS_MAX];
	uint32_t fd_count;
	uint64_t instance;
	size_t ring_bytes;
	uint8_t *ring;
	struct kvpull_ring_writer writer;
};

static struct attached hostile;
static uint8_t message[KVPULL_MESSAGE_BYTES_MAX];

static int receive(void)
{
	const uint64_t until = kvpull_clock_ns() + LIMIT_NS;
	int got = 0;

	while (!got && kvpull_clock_ns() < until) {
		struct pollfd ready = { .fd = hostile.socket,
					.events = POLLIN };

		(void)poll(&ready, 1, 100);
		hostile.fd_count = KVPULL_PACKET_FDS_MAX;
		got = kvpull_endpoint_receive(hostile.socket, message,
					      hostile.fds, &hostile.fd_count);
	}
	return got;
}

static int send_bytes(size_t byte_count)
{
	const struct kvpull_message bytes = { .bytes = message,
					      .byte_count = byte_count };

	return kvpull_endpoint_send(hostile.socket, &bytes, NULL);
}

static size_t hello_put(const struct hello_change *change,
			const uint8_t *challenge, uint8_t *own_nonce)
{
	static const uint8_t wrong_key[KVPULL_KEY_BYTES] = { 1, 2, 3 };
	static struct kvpull_hello hello;
	struct kvpull_open_params params;
	size_t byte_count;

	params_fill(&params, "hostile", NULL);
	if (kvpull_compat_init(&hello.compat, &params))
		die("compat");
	hello.instance = hostile.instance;
	hello.incarnation = random_any() | 1;
	hello.wanted =
		hostile.ticket.ranks[0].incarnation + change->other_wanted;
	hello.rank_count = 1;
	/* A layout with other bytes at the same version, or ours. */
	hello.wire_layout = change->other_layout;
	(void)snprintf(hello.engine_id, sizeof(hello.engine_id), "hostile");
	memcpy(hello.nonce, own_nonce, sizeof(hello.nonce));
	byte_count = kvpull_handshake_put_hello(
		message, sizeof(message), &hello,
		change->is_keyed ? wrong_key : NULL, challenge);
	return byte_count;
}

/*
 * 0: let in; 1: refused, and why is in hostile.refusal; 2: turned away before
 * it was asked anything; else no answer.
 */
static int attach(const struct ticket *bait, const struct hello_change *change)
{
	uint8_t challenge[KVPULL_NONCE_BYTES];
	uint8_t nonce[KVPULL_NONCE_BYTES] = { 9 };
	char name[KVPULL_ADDRESS_BYTES_MAX];
	const int folder_fd = open(folder, O_PATH | O_CLOEXEC);
	int got;

	ticket_open(bait, &hostile.ticket);
	got = kvpull_ticket_address(hostile.ticket.ranks[0].address, "shm",
				    name);
	if (!got)
		got = kvpull_endpoint_connect(folder_fd, name, NULL,
					      &hostile.socket);
	(void)close(folder_fd);
	if (got)
		return -1;
	kvpull_endpoint_trust(hostile.socket);
	got = receive();
	if (got == (int)sizeof(KVPULL_ENDPOINT_USER) &&
	    !memcmp(message, KVPULL_ENDPOINT_USER, (size_t)got))
		return receive() == KVPULL_EPEER ? 2 : -1;
	if (got <= 0 ||
	    kvpull_handshake_get_challenge(message, (size_t)got, challenge) ||
	    send_bytes(hello_put(change, challenge, nonce)))
		return -1;
	got = receive();
	if (got <= 0)
		return -1;
	if (kvpull_handshake_kind(message, (size_t)got) ==
	    KVPULL_MESSAGE_REFUSAL)
		return kvpull_handshake_get_refusal(message, (size_t)got,
						    &hostile.refusal) ?
			       -1 :
			       1;
	return kvpull_handshake_get_welcome(message, (size_t)got, NULL, nonce,
					    &hostile.welcome) ?
		       -1 :
		       0;
}

static void ring_map(void)
{
	struct stat status;

	/* Descriptors of a welcome: revocation table, ring, doorbell, KV. */
	if (hostile.fd_count != 4 || fstat(hostile.fds[1], &status))
		die("another welcome than expected");
	hostile.ring_bytes = (size_t)status.st_size;
	hostile.ring = mmap(NULL, hostile.ring_bytes, PROT_READ | PROT_WRITE,
			    MAP_SHARED, hostile.fds[1], 0);
	if (hostile.ring == MAP_FAILED ||
	    kvpull_ring_writer_init(&hostile.writer, hostile.ring,
				    hostile.ring_bytes))
		die("the ring cannot be mapped");
}

static void doorbell_ring(void)
{
	if (shutdown(hostile.fds[2], SHUT_WR))
		die("doorbell");
}

/* ---- attacks: 0 when it came out as it must ---- */

static int is_writable(int fd, size_t bytes)
{
	static const uint8_t zeros[64];
	void *base =
		mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (base != MAP_FAILED || pwrite(fd, zeros, sizeof(zeros), 0) >= 0 ||
	    !fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
		       (off_t)bytes) ||
	    !ftruncate(fd, 0) || !ftruncate(fd, (off_t)bytes + 4096) ||
	    !fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE))
		return 1;
	base = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
	if (base == MAP_FAILED) /* opened for writing alone */
		return 0;
	return !mprotect(base, bytes, PROT_READ | PROT_WRITE) ||
	       !madvise(base, bytes, MADV_REMOVE) || munmap(base, bytes);
}

static int fd_gives_way(int fd)
{
	static const int modes[] = { O_RDWR, O_WRONLY, O_RDWR | O_TRUNC };
	struct stat status;
	char path[64];
	uint32_t index;

	if (fstat(fd, &status) || is_writable(fd, (size_t)status.st_size))
		return 1;
	(void)fchmod(fd, 0777);
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	for (index = 0; index < 3; index++) {
		const int again = open(path, modes[index] | O_CLOEXEC);

		if (again >= 0 && is_writable(again, (size_t)status.st_size))
			return 1;
	}
	return fstat(fd, &status) || !status.st_size;
}

static int descriptors(void)
{
	struct stat status;

	return fd_gives_way(hostile.fds[0]) || fd_gives_way(hostile.fds[3]) ||
	       fstat(hostile.fds[1], &status) ||
	       !ftruncate(hostile.fds[1], 0) ||
	       !ftruncate(hostile.fds[1], status.st_size + 4096) ||
	       !fcntl(hostile.fds[1], F_ADD_SEALS, F_SEAL_WRITE);
}

/* Returns 1 if P has not counted more than `before` in time. */
static int grows_not(_Atomic uint64_t *counter, uint64_t before)
{
	const uint64_t until = kvpull_clock_ns() + LIMIT_NS;

	while (get(counter) <= before)
		if (kvpull_clock_ns() >= until)
			return 1;
	return 0;
}

/* P hangs up on us. */
static int hung_up(void)
{
	return receive() != KVPULL_EPEER;
}

static int tail_set(uint64_t more)
{
	_Atomic uint64_t *tail =
		(void *)(hostile.ring + KVPULL_RING_TAIL_OFFSET);
	const uint64_t broken = get(&arena->rings_broken);

	atomic_fetch_add_explicit(tail, more, memory_order_relaxed);
	doorbell_ring();
	return hung_up() || grows_not(&arena->rings_broken, broken);
}

static int tail_too_far(void)
{
	return tail_set(hostile.writer.record_count + 1);
}

static int tail_back(void)
{
	return tail_set(UINT64_MAX);
}

/* Pushes a record when the ring takes it; 0: P is not interested. */
static int push(const struct kvpull_record *record)
{
	const uint64_t until = kvpull_clock_ns() + LIMIT_NS;

	while (kvpull_clock_ns() < until) {
		const int code = kvpull_ring_push(&hostile.writer, record);

		if (code == 1)
			doorbell_ring();
		if (code >= 0)
			return 0;
	}
	return -1;
}

static int garbage_records(void)
{
	const uint64_t dropped = get(&arena->dropped);
	struct kvpull_record record;
	uint32_t index;

	for (index = 0; index < 8 * RING_BATCH; index++) {
		record = (struct kvpull_record){
			.kind = (uint32_t)random_any() % 4,
			.slot = (uint32_t)random_any() % (index % 2 ? 64 : ~0u),
			.generation = random_any() % (index % 3 ? 1000 : ~0u),
			.tag = random_any(),
			.extra = random_any(),
		};
		if (push(&record))
			return 1;
	}
	return grows_not(&arena->dropped, dropped);
}

/* Claims and releases of holds that others were given, without their tags. */
static int others_holds(void)
{
	struct kvpull_record record = { 0 };
	uint32_t slot;
	uint64_t generation;

	for (slot = 0; slot < SLOTS; slot++) {
		for (generation = 1; generation < 200; generation++) {
			record.kind = 1 + generation % 2;
			record.slot = slot;
			record.generation = generation;
			record.tag = hostile.ticket.ranks[0].tag;
			/* A consumer may end the hold of its own ticket. */
			if (slot != hostile.ticket.slot && push(&record))
				return 1;
		}
	}
	return 0;
}

static int replays(void)
{
	const struct kvpull_record claim = {
		.kind = KVPULL_NOTE_CLAIM,
		.slot = hostile.ticket.slot,
		.generation = hostile.ticket.generation,
		.tag = hostile.ticket.ranks[0].tag,
	};
	struct kvpull_record release = claim;
	uint32_t index;

	release.kind = KVPULL_NOTE_RELEASE;
	for (index = 0; index < RING_BATCH; index++)
		if (push(index % 3 ? &release : &claim))
			return 1;
	return 0;
}

/* All of the ring's memory, while P reads it. */
static int scribbles(void)
{
	const uint64_t ms =
		getenv("TEST_QUICK") && *getenv("TEST_QUICK") ? 200 : 5000;
	const uint64_t until = kvpull_clock_ns() + ms * KVPULL_NS_PER_MS;
	uint64_t *words = (void *)hostile.ring;

	while (kvpull_clock_ns() < until) {
		words[random_any() % (hostile.ring_bytes / 8)] = random_any();
		doorbell_ring();
	}
	return 0;
}

static int doorbell(void)
{
	uint32_t index;

	/* Nothing can be put into it, neither bytes nor descriptors. */
	if (send(hostile.fds[2], message, 1, MSG_NOSIGNAL) >= 0)
		return 1;
	for (index = 0; index < 20000; index++)
		doorbell_ring();
	(void)fcntl(hostile.fds[2], F_SETFL, 0);
	(void)shutdown(hostile.fds[2], SHUT_RDWR);
	return 0;
}

static int chatter(void)
{
	uint32_t index;

	for (index = 0; index < 2000; index++) {
		randombytes_buf(message, 4096);
		if (send_bytes(4096) == KVPULL_EPEER)
			break;
	}
	return 0;
}

static const struct attack {
	const char *name;
	int (*run)(void);
} attacks[] = {
	{ "write, map, reopen, fchmod, punch, seal what was handed over",
	  descriptors },
	{ "a tail beyond the ring", tail_too_far },
	{ "a tail that goes back", tail_back },
	{ "garbage records", garbage_records },
	{ "others' holds, without their tags", others_holds },
	{ "claims and releases again and again", replays },
	{ "garbage over the whole ring", scribbles },
	{ "a doorbell that rings and rings", doorbell },
	{ "messages after the welcome", chatter },
};
#define ATTACKS (sizeof(attacks) / sizeof(attacks[0]))

static const struct hello_change hellos[] = {
	{ .name = "another key",
	  .is_keyed = 1,
	  .code = KVPULL_EAUTH,
	  .field = "key_file" },
	{ .name = "another layout",
	  .other_layout = 2,
	  .code = KVPULL_EVERSION,
	  .field = "wire layout" },
	{ .name = "another incarnation of the producer",
	  .other_wanted = 1,
	  .code = KVPULL_EPEER,
	  .field = "incarnation" },
};
#define HELLOS (sizeof(hellos) / sizeof(hellos[0]))

/* ---- the parent ---- */

static void attack_run(const struct attack *attack, uint32_t bait, uid_t uid)
{
	static const struct hello_change honest;
	pid_t pid;

	(void)fflush(NULL);
	pid = child_start();
	if (!pid) {
		become(uid);
		hostile.instance = random_any() | 1;
		if (attach(&arena->baits[bait], &honest))
			die("the hostile consumer is not let in");
		ring_map();
		_exit(attack->run() ? 1 : 0);
	}
	row(attack->name, uid, child_failed(pid));
}

static void hello_run(const struct hello_change *change, uid_t uid)
{
	pid_t pid;

	(void)fflush(NULL);
	pid = child_start();
	if (!pid) {
		become(uid);
		hostile.instance = random_any() | 1;
		if (attach(&arena->baits[0], change) != 1)
			die("not refused");
		if (hostile.refusal.code != change->code ||
		    strcmp(hostile.refusal.field, change->field) != 0) {
			fprintf(stderr, "refused: %s, error %d\n",
				hostile.refusal.field, hostile.refusal.code);
			_exit(1);
		}
		_exit(0);
	}
	row(change->name, uid, child_failed(pid));
}

static void stranger_run(void)
{
	static const struct hello_change honest;
	pid_t pid;

	(void)fflush(NULL);
	pid = child_start();
	if (!pid) {
		become(STRANGER_UID);
		_exit(attach(&arena->baits[0], &honest) != 2);
	}
	row("another uid is turned away", STRANGER_UID, child_failed(pid));
}

static void rows_run(void)
{
	const uid_t uids[] = { getuid(), OTHER_UID };
	const uint32_t uid_count = getuid() ? 1 : 2;
	uint32_t index;
	uint32_t uid;

	row("tickets that lead elsewhere", getuid(),
	    get(&arena->forged_refused) != FORGED);
	for (uid = 0; uid < uid_count; uid++)
		for (index = 0; index < ATTACKS; index++)
			attack_run(&attacks[index],
				   1 + uid * (uint32_t)ATTACKS + index,
				   uids[uid]);
	for (index = 0; index < HELLOS; index++)
		hello_run(&hellos[index], getuid());
	if (uid_count == 2)
		stranger_run();
	else
		printf("refused: all as another uid: it needs root\n");
	skipped = uid_count == 2 ? 0 : (uint32_t)ATTACKS + 1;
}

int main(void)
{
	hostile_begin(0);
	rows_run();
	return hostile_end();
}
