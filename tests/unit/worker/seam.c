/* SPDX-License-Identifier: Apache-2.0 */
/* The transport of a world: it keeps what it is asked, and answers as told. */
#include "tests/unit/worker/world.h"

struct world *world_of(struct kvpull_transport *transport)
{
	return (struct world *)(void *)transport;
}

struct kvpull_event *world_event(struct world *world,
				 enum kvpull_event_kind kind, uint32_t index)
{
	struct kvpull_event *event = &world->queue[world->queue_count];

	assert_in_range(world->queue_count, 0, WORLD_QUEUE - 1);
	*event = (struct kvpull_event){ .kind = kind,
					.index = index,
					.uid = world->peer_uid };
	event->data = world->data[world->queue_count++];
	return event;
}

static int fake_serve(struct kvpull_transport *transport,
		      const struct kvpull_serve *serve)
{
	(void)transport;
	(void)serve;
	return 0;
}

static const char *fake_address(const struct kvpull_transport *transport)
{
	const struct world *world =
		(const struct world *)(const void *)transport;

	return world->address ? world->address : "self";
}

static int fake_reachable(const struct kvpull_transport *transport,
			  const char *address)
{
	const struct world *world = (const void *)transport;

	/* As verbs: nobody is, before our own memory is known. */
	if (!world->worker->progress->serving)
		return KVPULL_EROUTE;
	return strcmp(address, "nowhere") == 0 ? KVPULL_EROUTE :
						 world->reachable_code;
}

static int fake_connect(struct kvpull_transport *transport, const char *address,
			uint32_t *peer)
{
	struct world *world = world_of(transport);
	uint32_t index = 0;

	world->connects++;
	if (world->connect_code)
		return world->connect_code;
	while (index < WORLD_PEERS && world->peers[index].used)
		index++;
	if (index == WORLD_PEERS)
		return KVPULL_EFULL;
	world->peers[index] = (struct world_peer){ .used = 1 };
	(void)snprintf(world->peers[index].address,
		       sizeof(world->peers[index].address), "%s", address);
	*peer = index;
	return 0;
}

static int fake_peer_send(struct kvpull_transport *transport, uint32_t index,
			  const void *bytes, size_t byte_count)
{
	struct world_peer *peer = &world_of(transport)->peers[index];

	/* Or why it does not take our welcome. */
	if (kvpull_handshake_kind(bytes, byte_count) == KVPULL_MESSAGE_REFUSAL)
		return kvpull_handshake_get_refusal(bytes, byte_count,
						    &peer->refusal);
	assert_int_equal(kvpull_handshake_get_hello(bytes, byte_count, NULL,
						    peer->nonce, &peer->hello),
			 0);
	return 0;
}

static int fake_give(struct kvpull_transport *transport, const char *address,
		     const void *bytes, size_t byte_count, uint32_t *peer)
{
	struct world *world = world_of(transport);
	struct kvpull_give *give = &world->give;

	world->gives++;
	if (world->give_code)
		return world->give_code;
	assert_int_equal(kvpull_give_get(bytes, byte_count, give), 0);
	world->connects--;
	return fake_connect(transport, address, peer);
}

static int fake_attach(struct kvpull_transport *transport, uint32_t index,
		       const struct kvpull_serve *remote)
{
	struct world *world = world_of(transport);

	(void)remote;
	if (world->attach_code)
		return world->attach_code;
	world->peers[index].attached = 1;
	return 0;
}

/* The connection's end comes when the test says so: world_down(). */
static void fake_disconnect(struct kvpull_transport *transport, uint32_t index)
{
	world_of(transport)->peers[index].disconnected++;
}

static int fake_read_start(struct kvpull_transport *transport, uint32_t peer,
			   struct kvpull_read *read)
{
	struct world *world = world_of(transport);

	assert_true(world->peers[peer].attached);
	world->read_starts++;
	if (world->read_code)
		return world->read_code;
	assert_in_range(read->index, 0, WORLD_READS - 1);
	assert_null(world->reads[read->index].read);
	world->reads[read->index] =
		(struct world_read){ .read = read, .peer = peer };
	return 0;
}

static void fake_read_cancel(struct kvpull_transport *transport, uint32_t peer,
			     struct kvpull_read *read)
{
	struct world_read *mine = &world_of(transport)->reads[read->index];

	assert_ptr_equal(mine->read, read);
	assert_int_equal(mine->peer, peer);
	mine->cancelled = 1;
}

void world_entry(const struct world *world, uint32_t peer,
		 struct kvpull_read *read)
{
	read->entries[0] = world->entry;
	if (!read->entries[0].incarnation)
		read->entries[0].incarnation = world->peers[peer].hello.wanted;
}

static int fake_check_start(struct kvpull_transport *transport, uint32_t peer,
			    struct kvpull_read *read)
{
	struct world *world = world_of(transport);

	assert_true(world->peers[peer].attached);
	world_entry(world, peer, read);
	if (world->check_code)
		return world->check_code;
	world->reads[read->index] = (struct world_read){ .read = read,
							 .peer = peer,
							 .checking = 1 };
	return 0;
}

int fake_notify(struct kvpull_transport *transport, uint32_t peer,
		const struct kvpull_record *record)
{
	struct world *world = world_of(transport);

	assert_true(world->peers[peer].attached);
	if (world->notify_code)
		return world->notify_code;
	assert_in_range(world->note_count, 0, WORLD_NOTES - 1);
	world->notes[world->note_count] = *record;
	world->notes[world->note_count++].extra = peer;
	return 0;
}

uint32_t fake_notes_open(const struct kvpull_transport *transport,
			 uint32_t peer)
{
	(void)peer;
	return ((const struct world *)(const void *)transport)->notes_open;
}

static void fake_beat(struct kvpull_transport *transport, uint32_t peer)
{
	world_of(transport)->peers[peer].beats++;
}

static int fake_caller_send(struct kvpull_transport *transport, uint32_t index,
			    const void *bytes, size_t byte_count)
{
	struct world_caller *caller = &world_of(transport)->callers[index];

	return kvpull_handshake_get_challenge(bytes, byte_count, caller->nonce);
}

static int fake_admit(struct kvpull_transport *transport, uint32_t index,
		      const void *welcome, size_t welcome_bytes,
		      struct kvpull_ring **ring)
{
	struct world_caller *caller = &world_of(transport)->callers[index];
	const size_t bytes = kvpull_ring_bytes(16);

	(void)welcome;
	(void)welcome_bytes;
	if (caller->admit_code)
		return caller->admit_code;
	caller->memory = aligned_alloc(64, bytes);
	assert_non_null(caller->memory);
	memset(caller->memory, 0, bytes);
	assert_int_equal(kvpull_ring_init(&caller->ring, caller->memory, 16),
			 0);
	assert_int_equal(
		kvpull_ring_writer_init(&caller->writer, caller->memory, bytes),
		0);
	caller->state = 2;
	*ring = &caller->ring;
	return 0;
}

static void fake_refuse(struct kvpull_transport *transport, uint32_t index,
			const void *refusal, size_t refusal_bytes)
{
	struct world_caller *caller = &world_of(transport)->callers[index];

	/* A call that gives tickets back is not answered. */
	if (!refusal_bytes) {
		caller->closed++;
		caller->state = 0;
		return;
	}
	/* The consumer gets the refusal, whatever the reason. */
	assert_int_equal(kvpull_handshake_get_refusal(refusal, refusal_bytes,
						      &caller->refusal),
			 0);
	caller->refused++;
	caller->state = 0;
}

static void fake_drop(struct kvpull_transport *transport, uint32_t index)
{
	world_of(transport)->callers[index].dropped = 1;
}

static void fake_forget(struct kvpull_transport *transport, uint32_t index)
{
	struct world_caller *caller = &world_of(transport)->callers[index];

	free(caller->memory);
	caller->memory = NULL;
	caller->forgotten++;
	caller->state = 0;
}

static int fake_poll(struct kvpull_transport *transport, uint64_t now_ns,
		     struct kvpull_event *events, uint32_t capacity)
{
	struct world *world = world_of(transport);
	const uint32_t count = world->queue_count;

	(void)now_ns;
	assert_in_range(count, 0, capacity);
	memcpy(events, world->queue, count * sizeof(*events));
	world->queue_count = 0;
	return (int)count;
}

static int fake_arm(struct kvpull_transport *transport)
{
	return world_of(transport)->queue_count > 0;
}

static void fake_disarm(struct kvpull_transport *transport)
{
	(void)transport;
}

static int fake_rings(const struct kvpull_transport *transport)
{
	(void)transport;
	return 0;
}

static int fake_fd(const struct kvpull_transport *transport)
{
	(void)transport;
	return -1;
}

static void fake_close(struct kvpull_transport *transport, uint64_t close_by_ns)
{
	struct world *world = world_of(transport);
	uint32_t index;

	(void)close_by_ns;
	for (index = 0; index < WORLD_CALLERS; index++)
		free(world->callers[index].memory);
}

const struct kvpull_transport_ops fake_ops = {
	.name = "fake",
	.vouches = 1,
	.serve = fake_serve,
	.address = fake_address,
	.reachable = fake_reachable,
	.connect = fake_connect,
	.peer_send = fake_peer_send,
	.give_bytes_max =
		KVPULL_GIVE_HEAD_BYTES + WORLD_GIVES * KVPULL_GIVE_WORD_BYTES,
	.give = fake_give,
	.attach = fake_attach,
	.disconnect = fake_disconnect,
	.read_start = fake_read_start,
	.read_cancel = fake_read_cancel,
	.check_start = fake_check_start,
	.notify = fake_notify,
	.notes_open = fake_notes_open,
	.beat = fake_beat,
	.caller_send = fake_caller_send,
	.admit = fake_admit,
	.refuse = fake_refuse,
	.drop = fake_drop,
	.forget = fake_forget,
	.poll = fake_poll,
	.arm = fake_arm,
	.disarm = fake_disarm,
	.rings = fake_rings,
	.fd = fake_fd,
	.doorbell_fd = fake_fd,
	.close = fake_close,
};
