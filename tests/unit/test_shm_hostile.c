/* SPDX-License-Identifier: Apache-2.0 */
/* The same-node route against bad names, folders, callers and producers. */
#define WORLD_BLOCKS 64u /* nobody reads much here */

#include "tests/unit/shm_world.h"

#include <sys/resource.h>

/* A raw caller of P's socket. */
static int raw_connect(const struct world *world, const char *name)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	(void)snprintf(address.sun_path, sizeof(address.sun_path), "%s/%s",
		       world->folder, name);
	assert_int_equal(
		connect(fd, (const struct sockaddr *)&address, sizeof(address)),
		0);
	return fd;
}

static int raw_listen(const struct world *world, const char *name)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	(void)snprintf(address.sun_path, sizeof(address.sun_path), "%s/%s",
		       world->folder, name);
	assert_int_equal(
		bind(fd, (const struct sockaddr *)&address, sizeof(address)),
		0);
	assert_int_equal(listen(fd, 4), 0);
	return fd;
}

static void raw_unlink(const struct world *world, const char *name)
{
	char path[128];

	(void)snprintf(path, sizeof(path), "%s/%s", world->folder, name);
	(void)unlink(path);
}

/* One message with those descriptors, which stay open here. */
static void raw_send(int fd, const int *fds, uint32_t fd_count)
{
	char byte = 'w';
	struct iovec part = { .iov_base = &byte, .iov_len = 1 };
	struct msghdr header = { .msg_iov = &part, .msg_iovlen = 1 };
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(253 * sizeof(int))];
	} control;

	memset(&control, 0, sizeof(control));
	if (fd_count) {
		header.msg_control = control.bytes;
		header.msg_controllen = CMSG_SPACE(fd_count * sizeof(int));
		control.align.cmsg_level = SOL_SOCKET;
		control.align.cmsg_type = SCM_RIGHTS;
		control.align.cmsg_len = CMSG_LEN(fd_count * sizeof(int));
		memcpy(CMSG_DATA(&control.align), fds, fd_count * sizeof(int));
	}
	assert_int_equal(sendmsg(fd, &header, MSG_NOSIGNAL), 1);
}

/* D connected to a raw producer. */
struct imposter {
	struct world world;
	int listener;
	int socket;
};

static void imposter_begin(struct imposter *imposter)
{
	struct world *world = &imposter->world;
	struct kvpull_shm_params params;

	world_begin(world);
	world_memory_make(world);
	params = world_params(world, "d");
	side_open(&world->d, &params);
	imposter->listener = raw_listen(world, "imposter");
}

static void imposter_connect(struct imposter *imposter)
{
	struct world *world = &imposter->world;
	struct kvpull_transport *d = world->d.transport;

	assert_int_equal(d->ops->connect(d, "imposter", &world->peer), 0);
	imposter->socket =
		accept4(imposter->listener, NULL, NULL, SOCK_CLOEXEC);
	assert_true(imposter->socket >= 0);
}

static void imposter_end(struct imposter *imposter)
{
	(void)close(imposter->listener);
	raw_unlink(&imposter->world, "imposter");
	world_close(&imposter->world);
}

static void names_outside_the_folder_are_refused(void **state)
{
	static const char *const bad[] = {
		"",
		"..",
		"../p",
		".p",
		"/p",
		"a/b",
		"a b",
		"a;b",
		"p\n",
		"\xc3\xa4",
		"p/../p",
		"./p",
		("12345678901234567890123456789012345678901234567890"
		 "123456789012345678901234567890"),
	};
	struct world world;
	struct kvpull_transport *d;
	uint32_t peer;
	uint32_t i;

	(void)state;
	world_open(&world);
	d = world.d.transport;
	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		assert_int_equal(d->ops->reachable(d, bad[i]), KVPULL_EROUTE);
		assert_int_equal(d->ops->connect(d, bad[i], &peer),
				 KVPULL_EROUTE);
	}
	assert_int_equal(d->ops->reachable(d, "not-there"), KVPULL_EROUTE);
	assert_int_equal(d->ops->connect(d, "not-there", &peer), KVPULL_EPEER);
	assert_int_equal(d->ops->reachable(d, "p"), 0);
	world_close(&world);
}

static void link_to_a_socket_elsewhere_is_refused(void **state)
{
	struct world world;
	struct kvpull_transport *d;
	char path[128];
	uint32_t peer;

	(void)state;
	world_open(&world);
	d = world.d.transport;
	(void)snprintf(path, sizeof(path), "%s/link", world.folder);
	assert_int_equal(symlink("p", path), 0);
	assert_int_equal(d->ops->reachable(d, "link"), KVPULL_EROUTE);
	assert_int_equal(d->ops->connect(d, "link", &peer), KVPULL_EPEER);
	raw_unlink(&world, "link");
	world_close(&world);
}

static void peers_beyond_the_table_are_refused(void **state)
{
	struct world world;
	struct kvpull_transport *d;
	uint32_t peer;
	uint32_t i;

	(void)state;
	world_open(&world);
	d = world.d.transport;
	for (i = 0; i < 4; i++)
		assert_int_equal(d->ops->connect(d, "p", &peer), 0);
	assert_int_equal(d->ops->connect(d, "p", &peer), KVPULL_EFULL);
	d->ops->disconnect(d, peer);
	(void)world_expect(&world, &world.d, KVPULL_EVENT_PEER_DOWN);
	assert_int_equal(d->ops->connect(d, "p", &peer), 0);
	world_close(&world);
}

static int serve_in(struct world *world, const char *folder, const char *name)
{
	struct kvpull_shm_params params = world_params(world, name);
	struct kvpull_transport *p;
	int code;

	params.socket_dir = folder;
	side_open(&world->p, &params);
	p = world->p.transport;
	code = p->ops->serve(p, &world->serve);
	side_close(&world->p);
	return code;
}

static void unsafe_folders_are_refused(void **state)
{
	struct world world;
	struct stat stat;
	char folder[128];
	char other[128];

	(void)state;
	world_begin(&world);
	world_memory_make(&world);
	(void)snprintf(folder, sizeof(folder), "%s/made", world.folder);
	(void)snprintf(other, sizeof(other), "%s/link", world.folder);
	assert_int_equal(serve_in(&world, folder, "p"), 0);
	assert_int_equal(lstat(folder, &stat), 0);
	assert_int_equal(stat.st_mode & 07777, 0700);
	assert_int_equal(symlink(folder, other), 0);
	assert_int_equal(serve_in(&world, other, "p"), KVPULL_EDEVICE);
	assert_int_equal(chmod(folder, 0777), 0);
	assert_int_equal(serve_in(&world, folder, "p"), KVPULL_EDEVICE);
	assert_int_equal(chmod(folder, 01777), 0);
	assert_int_equal(serve_in(&world, folder, "p"), 0);
	assert_int_equal(unlink(other), 0);
	/* A name that a file has: not ours to remove. */
	(void)snprintf(other, sizeof(other), "%s/made/p", world.folder);
	assert_int_equal(mkdir(other, 0700), 0);
	assert_int_equal(serve_in(&world, folder, "p"), KVPULL_EDEVICE);
	assert_int_equal(rmdir(other), 0);
	assert_int_equal(rmdir(folder), 0);
	world_close(&world);
}

static void long_folder_names_are_no_limit(void **state)
{
	struct world world;
	char folder[256];

	(void)state;
	world_begin(&world);
	world_memory_make(&world);
	(void)snprintf(folder, sizeof(folder), "%s/%0150d", world.folder, 0);
	assert_int_equal(serve_in(&world, folder, "p"), 0);
	assert_int_equal(rmdir(folder), 0);
	world_close(&world);
}

static void name_in_use_is_not_taken_over(void **state)
{
	struct world world;
	struct kvpull_shm_params params;
	struct side second;

	(void)state;
	world_open(&world);
	params = world_params(&world, "p");
	side_open(&second, &params);
	assert_int_equal(
		second.transport->ops->serve(second.transport, &world.serve),
		KVPULL_EDEVICE);
	side_close(&second);
	assert_int_equal(
		world.d.transport->ops->reachable(world.d.transport, "p"), 0);
	world_close(&world);
}

static void socket_leave(const char *folder, const char *name)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	(void)snprintf(address.sun_path, sizeof(address.sun_path), "%s/%s",
		       folder, name);
	assert_int_equal(
		bind(fd, (const struct sockaddr *)&address, sizeof(address)),
		0);
	(void)close(fd);
}

static int is_left(const char *folder, const char *name)
{
	char path[128];

	(void)snprintf(path, sizeof(path), "%s/%s", folder, name);
	return !access(path, F_OK);
}

static void sockets_of_the_dead_are_removed(void **state)
{
	const struct timespec old[2] = { { 0 } };
	char folder[] = "/tmp/kvpull-unit-XXXXXX";
	struct kvpull_listener listener;
	char path[128];

	(void)state;
	assert_non_null(mkdtemp(folder));
	socket_leave(folder, "kvpull-dead");
	socket_leave(folder, ".kvpull-opening");
	socket_leave(folder, ".kvpull-dead-in-open");
	socket_leave(folder, "stranger");
	(void)snprintf(path, sizeof(path), "%s/.kvpull-dead-in-open", folder);
	assert_int_equal(utimensat(AT_FDCWD, path, old, 0), 0);
	assert_int_equal(
		kvpull_listener_open(&listener, folder, "kvpull-me", 0, NULL),
		0);
	assert_false(is_left(folder, "kvpull-dead"));
	assert_false(is_left(folder, ".kvpull-dead-in-open"));
	assert_true(is_left(folder, ".kvpull-opening"));
	assert_true(is_left(folder, "stranger"));
	assert_true(is_left(folder, "kvpull-me"));
	kvpull_listener_close(&listener);
	assert_false(is_left(folder, "kvpull-me"));
	(void)snprintf(path, sizeof(path), "rm -rf '%s'", folder);
	assert_int_equal(system(path), 0);
}

static void regions_of_other_kinds_are_not_served(void **state)
{
	struct world world;
	struct kvpull_transport *p;
	struct kvpull_serve serve;

	(void)state;
	world_open(&world);
	p = world.p.transport;
	assert_int_equal(p->ops->serve(p, &world.serve), KVPULL_EINVAL);
	serve = world.serve;
	serve.regions[0].kind = KVPULL_REGION_DMABUF;
	assert_int_equal(p->ops->serve(p, &serve), KVPULL_EUNSUPPORTED);
	serve = world.serve;
	serve.entries_fd = -1;
	assert_int_equal(p->ops->serve(p, &serve), KVPULL_EUNSUPPORTED);
	serve = world.serve;
	serve.regions[0].fd = -1;
	assert_int_equal(p->ops->serve(p, &serve), KVPULL_EINVAL);
	world_close(&world);
}

static void flood_of_callers_is_bounded(void **state)
{
	struct world world;
	int fds[20];
	uint32_t closed = 0;
	uint32_t ups = 0;
	uint32_t i;
	char byte;

	(void)state;
	world_open(&world);
	for (i = 0; i < 20; i++)
		fds[i] = raw_connect(&world, "p");
	for (i = 0; i < 20; i++)
		side_look(&world, &world.p);
	while (world.p.queue_count) {
		(void)world_expect(&world, &world.p, KVPULL_EVENT_CALLER_UP);
		ups++;
	}
	assert_int_equal(ups, WORLD_CALLERS_MAX);
	for (i = 0; i < 20; i++)
		closed += recv(fds[i], &byte, 1, MSG_DONTWAIT) == 0;
	assert_int_equal(closed, 20 - WORLD_CALLERS_MAX);
	for (i = 0; i < 20; i++)
		(void)close(fds[i]);
	for (i = 0; i < WORLD_CALLERS_MAX; i++)
		(void)world_expect(&world, &world.p, KVPULL_EVENT_CALLER_DOWN);
	/* None of them was forgotten, and yet there is room again. */
	world_connect(&world);
	world_close(&world);
}

static void silent_caller_is_closed_in_time(void **state)
{
	struct world world;
	char byte;
	int fd;

	(void)state;
	world_open(&world);
	world_connect(&world);
	fd = raw_connect(&world, "p");
	(void)world_expect(&world, &world.p, KVPULL_EVENT_CALLER_UP);
	world.now_ns += UINT64_C(998000000);
	side_look(&world, &world.p);
	assert_int_equal(world.p.queue_count, 0);
	assert_int_equal(recv(fd, &byte, 1, MSG_DONTWAIT), -1);
	world.now_ns += UINT64_C(2000000);
	(void)world_expect(&world, &world.p, KVPULL_EVENT_CALLER_DOWN);
	assert_int_equal(recv(fd, &byte, 1, MSG_DONTWAIT), 0);
	(void)close(fd);
	/* The admitted one has no such deadline; nothing was logged. */
	side_look(&world, &world.p);
	assert_int_equal(world.p.queue_count, 0);
	assert_int_equal(world.warnings, 0);
	world_close(&world);
}

static void silent_producer_is_given_up_in_time(void **state)
{
	struct imposter imposter;
	struct world *world = &imposter.world;

	(void)state;
	imposter_begin(&imposter);
	imposter_connect(&imposter);
	side_look(world, &world->d);
	world->now_ns += UINT64_C(1100000000);
	(void)world_expect(world, &world->d, KVPULL_EVENT_PEER_DOWN);
	(void)close(imposter.socket);
	imposter_end(&imposter);
}

static void descriptors_from_a_caller_end_it(void **state)
{
	struct world world;
	int fds[30];
	uint32_t before;
	uint32_t i;
	int fd;

	(void)state;
	world_open(&world);
	fd = raw_connect(&world, "p");
	(void)world_expect(&world, &world.p, KVPULL_EVENT_CALLER_UP);
	for (i = 0; i < 30; i++)
		fds[i] = STDERR_FILENO;
	before = fds_open();
	raw_send(fd, fds, 30);
	(void)world_expect(&world, &world.p, KVPULL_EVENT_CALLER_DOWN);
	/* Its socket and pidfd are closed, and nothing came instead. */
	assert_int_equal(fds_open(), before - 2);
	(void)close(fd);
	world_close(&world);
}

static void descriptors_are_taken_once_and_counted(void **state)
{
	struct imposter imposter;
	struct world *world = &imposter.world;
	struct kvpull_event event;
	uint32_t count;
	int fds[30];
	uint32_t i;

	(void)state;
	imposter_begin(&imposter);
	for (i = 0; i < 30; i++)
		fds[i] = STDERR_FILENO;
	/* One more than a welcome can have, up to what a message can. */
	for (count = KVPULL_ENDPOINT_FDS_MAX + 1; count <= 30; count++) {
		imposter_connect(&imposter);
		raw_send(imposter.socket, fds, count);
		event = world_expect(world, &world->d, KVPULL_EVENT_PEER_DOWN);
		assert_int_equal(event.code, KVPULL_EPROTO);
		(void)close(imposter.socket);
	}
	/* Twice; world_close() sees that the first ones are closed too. */
	imposter_connect(&imposter);
	raw_send(imposter.socket, fds, KVPULL_ENDPOINT_FDS_MAX);
	(void)world_expect(world, &world->d, KVPULL_EVENT_PEER_MESSAGE);
	raw_send(imposter.socket, fds, 1);
	event = world_expect(world, &world->d, KVPULL_EVENT_PEER_DOWN);
	assert_int_equal(event.code, KVPULL_EPROTO);
	(void)close(imposter.socket);
	imposter_end(&imposter);
}

/* A welcome with these descriptors, then attach. */
static int attach_with(struct imposter *imposter, const int *fds,
		       uint32_t fd_count)
{
	struct world *world = &imposter->world;
	struct kvpull_transport *d = world->d.transport;
	int code;

	imposter_connect(imposter);
	raw_send(imposter->socket, fds, fd_count);
	(void)world_expect(world, &world->d, KVPULL_EVENT_PEER_MESSAGE);
	code = world_attach(world, &world->serve);
	d->ops->disconnect(d, world->peer);
	(void)world_expect(world, &world->d, KVPULL_EVENT_PEER_DOWN);
	(void)close(imposter->socket);
	return code;
}

static void welcome_with_wrong_descriptors_is_refused(void **state)
{
	struct imposter imposter;
	struct world *world = &imposter.world;
	struct kvpull_shared ring_memory;
	struct kvpull_ring ring;
	int good[5];
	int bad[4];
	int pipes[2];
	uint32_t i;

	(void)state;
	imposter_begin(&imposter);
	assert_int_equal(kvpull_segment_make(&ring_memory, "test-ring",
					     kvpull_ring_bytes(16),
					     KVPULL_SEGMENT_SHARED, 0,
					     &world->log),
			 0);
	assert_int_equal(kvpull_ring_init(&ring, ring_memory.base, 16), 0);
	assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
	good[0] = world->entries_memory.fd;
	good[1] = ring_memory.fd;
	good[2] = eventfd(0, EFD_CLOEXEC);
	good[3] = world->kv.fd;
	good[4] = world->kv.fd;
	assert_int_equal(attach_with(&imposter, good, 4), 0);
	assert_int_equal(attach_with(&imposter, good, 3), KVPULL_EPROTO);
	assert_int_equal(attach_with(&imposter, good, 0), KVPULL_EPROTO);
	assert_int_equal(attach_with(&imposter, good, 5), KVPULL_EPROTO);
	/* Each in turn another thing: a pipe that a write would block on. */
	for (i = 0; i < 4; i++) {
		memcpy(bad, good, sizeof(bad));
		bad[i] = pipes[1];
		assert_int_equal(attach_with(&imposter, bad, 4), KVPULL_EPROTO);
	}
	/* Memory that its owner could cut short below our feet. */
	memcpy(bad, good, sizeof(bad));
	bad[3] = memfd_create("test", MFD_CLOEXEC);
	assert_int_equal(ftruncate(bad[3], WORLD_BLOCKS * WORLD_BLOCK_BYTES),
			 0);
	assert_int_equal(attach_with(&imposter, bad, 4), KVPULL_EPROTO);
	(void)close(bad[3]);
	/* Shorter than the welcome says. */
	world->serve.regions[0].bytes += 1 << 21;
	assert_int_equal(attach_with(&imposter, good, 4), KVPULL_EPROTO);
	world->serve.regions[0].bytes -= 1 << 21;
	world->serve.slot_count = UINT32_MAX;
	assert_int_equal(attach_with(&imposter, good, 4), KVPULL_EPROTO);
	world->serve.slot_count = WORLD_SLOTS;
	world->serve.regions[0].kind = KVPULL_REGION_STAGED;
	assert_int_equal(attach_with(&imposter, good, 4), KVPULL_EUNSUPPORTED);
	/* A file is read, and a read of a pipe would never end. */
	world->serve.regions[0].kind = KVPULL_REGION_FILE;
	memcpy(bad, good, sizeof(bad));
	bad[3] = pipes[0];
	assert_int_equal(attach_with(&imposter, bad, 4), KVPULL_EPROTO);
	(void)close(good[2]);
	(void)close(pipes[0]);
	(void)close(pipes[1]);
	kvpull_segment_unmake(&ring_memory);
	imposter_end(&imposter);
}

static void foreign_memory_that_cannot_be_read_is_refused(void **state)
{
	struct world world;
	struct kvpull_serve remote;

	(void)state;
	world_open(&world);
	side_close(&world.p);
	world.serve.regions[0].kind = KVPULL_REGION_FOREIGN;
	world.serve.regions[0].fd = -1;
	world_serve(&world, "p");
	world_welcome(&world);
	remote = world.serve;
	remote.entries = NULL;
	assert_int_equal(world_attach(&world, &remote), KVPULL_EROUTE);
	assert_non_null(strstr(world.warning, "cannot be read"));
	world_close(&world);
}

static void table_of_another_process_is_refused(void **state)
{
	static struct kvpull_revocation_entry other[WORLD_SLOTS];
	struct world world;
	struct kvpull_serve remote;

	(void)state;
	world_open(&world);
	side_close(&world.p);
	world.serve.regions[0].kind = KVPULL_REGION_FOREIGN;
	world.serve.regions[0].fd = -1;
	world_serve(&world, "p");
	world_welcome(&world);
	remote = world.serve;
	remote.entries = other;
	assert_int_equal(world_attach(&world, &remote), KVPULL_EROUTE);
	assert_non_null(strstr(world.warning, "another process"));
	world_close(&world);
}

static void flood_of_messages_costs_at_most_eight_a_poll(void **state)
{
	struct world world;
	int fds[WORLD_CALLERS_MAX];
	uint32_t seen[WORLD_CALLERS_MAX] = { 0 };
	uint32_t turn;
	uint32_t i;

	(void)state;
	world_open(&world);
	for (i = 0; i < WORLD_CALLERS_MAX; i++) {
		fds[i] = raw_connect(&world, "p");
		(void)world_expect(&world, &world.p, KVPULL_EVENT_CALLER_UP);
	}
	for (turn = 0; turn < 5; turn++)
		for (i = 0; i < WORLD_CALLERS_MAX; i++)
			raw_send(fds[i], NULL, 0);
	for (turn = 0; turn < 5; turn++) {
		side_look(&world, &world.p);
		assert_in_range(world.p.queue_count, 1, 8);
		while (world.p.queue_count) {
			const struct kvpull_event event = world_expect(
				&world, &world.p, KVPULL_EVENT_CALLER_MESSAGE);

			assert_int_equal(event.data_bytes, 1);
			seen[event.index]++;
		}
		/* And each gets its turn. */
		for (i = 0; i < WORLD_CALLERS_MAX; i++)
			assert_int_equal(seen[i], turn + 1);
	}
	for (i = 0; i < WORLD_CALLERS_MAX; i++)
		(void)close(fds[i]);
	world_close(&world);
}

static void events_beyond_the_capacity_wait(void **state)
{
	struct world world;
	struct kvpull_event event;
	struct kvpull_transport *p;
	int fds[WORLD_CALLERS_MAX];
	uint32_t kinds[KVPULL_EVENT_NOTE + 1] = { 0 };
	uint32_t i;

	(void)state;
	world_open(&world);
	p = world.p.transport;
	for (i = 0; i < WORLD_CALLERS_MAX; i++) {
		fds[i] = raw_connect(&world, "p");
		raw_send(fds[i], NULL, 0);
		(void)shutdown(fds[i], SHUT_WR);
	}
	for (i = 0; i < 100; i++) {
		p->ops->disarm(p);
		if (p->ops->poll(p, world.now_ns + i, &event, 1) == 1)
			kinds[event.kind]++;
	}
	assert_int_equal(kinds[KVPULL_EVENT_CALLER_UP], WORLD_CALLERS_MAX);
	assert_int_equal(kinds[KVPULL_EVENT_CALLER_MESSAGE], WORLD_CALLERS_MAX);
	assert_int_equal(kinds[KVPULL_EVENT_CALLER_DOWN], WORLD_CALLERS_MAX);
	assert_int_equal(p->ops->poll(p, world.now_ns, &event, 0), 0);
	for (i = 0; i < WORLD_CALLERS_MAX; i++)
		(void)close(fds[i]);
	world_close(&world);
}

static void new_callers_leave_room_for_the_messages_of_old_ones(void **state)
{
	struct world world;
	struct kvpull_event events[16];
	struct kvpull_transport *p;
	int fds[3];
	uint32_t total = 0;
	uint32_t i;

	(void)state;
	world_open(&world);
	p = world.p.transport;
	fds[0] = raw_connect(&world, "p");
	(void)world_expect(&world, &world.p, KVPULL_EVENT_CALLER_UP);
	/* The listener is ready first, then the caller. */
	fds[1] = raw_connect(&world, "p");
	fds[2] = raw_connect(&world, "p");
	raw_send(fds[0], NULL, 0);
	for (i = 0; i < 4; i++) {
		int count;

		p->ops->disarm(p);
		count = p->ops->poll(p, world.now_ns, events, 2);
		assert_in_range(count, 0, 2);
		total += (uint32_t)count;
	}
	assert_int_equal(total, 3);
	for (i = 0; i < 3; i++)
		(void)close(fds[i]);
	world_close(&world);
}

static void messages_beyond_the_limit_are_refused(void **state)
{
	static uint8_t bytes[KVPULL_MESSAGE_BYTES_MAX + 1];
	struct world world;
	struct kvpull_transport *p;
	struct kvpull_event event;

	(void)state;
	world_open(&world);
	world_greet(&world);
	p = world.p.transport;
	assert_int_equal(
		p->ops->caller_send(p, world.caller, bytes, sizeof(bytes)),
		KVPULL_EPROTO);
	assert_int_equal(p->ops->admit(p, world.caller, bytes, sizeof(bytes),
				       &world.ring),
			 KVPULL_EPROTO);
	/* Nothing happened: it can be told why not, or get a smaller one. */
	assert_int_equal(p->ops->admit(p, world.caller, bytes,
				       KVPULL_MESSAGE_BYTES_MAX, &world.ring),
			 0);
	event = world_expect(&world, &world.d, KVPULL_EVENT_PEER_MESSAGE);
	assert_int_equal(event.data_bytes, KVPULL_MESSAGE_BYTES_MAX);
	assert_int_equal(world_attach(&world, &world.serve), 0);
	assert_int_equal(p->ops->admit(p, world.caller, bytes, 1, &world.ring),
			 KVPULL_EPEER);
	world_close(&world);
}

static void admit_of_a_caller_that_left_fails(void **state)
{
	struct world world;
	struct kvpull_transport *p;

	(void)state;
	world_open(&world);
	world_greet(&world);
	p = world.p.transport;
	side_close(&world.d);
	assert_int_equal(
		p->ops->admit(p, world.caller, "welcome", 7, &world.ring),
		KVPULL_EPEER);
	(void)world_expect(&world, &world.p, KVPULL_EVENT_CALLER_DOWN);
	assert_int_equal(
		p->ops->admit(p, world.caller, "welcome", 7, &world.ring),
		KVPULL_EPEER);
	world_close(&world);
}

static void out_of_descriptors_rests_the_listener(void **state)
{
	struct world world;
	struct kvpull_transport *p;
	int fds[512];
	uint32_t fd_count = 0;
	int caller;

	(void)state;
	world_open(&world);
	p = world.p.transport;
	caller = raw_connect(&world, "p");
	while (fd_count < 512) {
		fds[fd_count] = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0);
		if (fds[fd_count] < 0)
			break;
		fd_count++;
	}
	assert_true(fd_count < 512);
	side_look(&world, &world.p);
	side_look(&world, &world.p);
	assert_int_equal(world.p.queue_count, 0);
	assert_int_equal(world.warnings, 1);
	/* Its owner can sleep: the waiting caller does not keep it awake. */
	assert_int_equal(
		poll(&(struct pollfd){ .fd = p->ops->fd(p), .events = POLLIN },
		     1, 0),
		0);
	while (fd_count)
		(void)close(fds[--fd_count]);
	world.now_ns += UINT64_C(200000000);
	(void)world_expect(&world, &world.p, KVPULL_EVENT_CALLER_UP);
	(void)close(caller);
	world_close(&world);
}

int main(void)
{
	const struct rlimit limit = { .rlim_cur = 256, .rlim_max = 256 };
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(names_outside_the_folder_are_refused),
		cmocka_unit_test(link_to_a_socket_elsewhere_is_refused),
		cmocka_unit_test(peers_beyond_the_table_are_refused),
		cmocka_unit_test(unsafe_folders_are_refused),
		cmocka_unit_test(long_folder_names_are_no_limit),
		cmocka_unit_test(name_in_use_is_not_taken_over),
		cmocka_unit_test(sockets_of_the_dead_are_removed),
		cmocka_unit_test(regions_of_other_kinds_are_not_served),
		cmocka_unit_test(flood_of_callers_is_bounded),
		cmocka_unit_test(silent_caller_is_closed_in_time),
		cmocka_unit_test(silent_producer_is_given_up_in_time),
		cmocka_unit_test(descriptors_from_a_caller_end_it),
		cmocka_unit_test(descriptors_are_taken_once_and_counted),
		cmocka_unit_test(welcome_with_wrong_descriptors_is_refused),
		cmocka_unit_test(foreign_memory_that_cannot_be_read_is_refused),
		cmocka_unit_test(table_of_another_process_is_refused),
		cmocka_unit_test(flood_of_messages_costs_at_most_eight_a_poll),
		cmocka_unit_test(events_beyond_the_capacity_wait),
		cmocka_unit_test(
			new_callers_leave_room_for_the_messages_of_old_ones),
		cmocka_unit_test(messages_beyond_the_limit_are_refused),
		cmocka_unit_test(admit_of_a_caller_that_left_fails),
		cmocka_unit_test(out_of_descriptors_rests_the_listener),
	};

	/* So that running out of descriptors is near. */
	(void)setrlimit(RLIMIT_NOFILE, &limit);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
