/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/worker/peer.h"

uint32_t world_peer_at(const struct world *world, const char *address)
{
	uint32_t index;

	for (index = 0; index < WORLD_PEERS; index++)
		if (world->peers[index].used &&
		    strcmp(world->peers[index].address, address) == 0)
			return index;
	fail_msg("no connection to %s", address);
	return KVPULL_NONE;
}

int world_is_connected(const struct world *world, const char *address)
{
	uint32_t index;

	for (index = 0; index < WORLD_PEERS; index++)
		if (world->peers[index].used &&
		    strcmp(world->peers[index].address, address) == 0)
			return 1;
	return 0;
}

void world_challenge(struct world *world, uint32_t peer)
{
	struct kvpull_event *event =
		world_event(world, KVPULL_EVENT_PEER_MESSAGE, peer);

	memset(world->peers[peer].nonce, 7, KVPULL_NONCE_BYTES);
	event->data_bytes = kvpull_handshake_put_challenge(
		world->data[world->queue_count - 1], 8192,
		world->peers[peer].nonce);
	world_poll(world, 1);
}

void world_welcome_fill(const struct world *world, uint32_t peer, uint32_t rank,
			uint32_t size, struct kvpull_welcome *welcome)
{
	memset(welcome, 0, sizeof(*welcome));
	welcome->incarnation = world->peers[peer].hello.wanted;
	welcome->lease_ns = 3000 * WORLD_MS;
	welcome->slot_count = 100;
	welcome->pid = 77;
	welcome->tp_rank = rank;
	welcome->tp_size = size;
	welcome->region_count = welcome->cache_count = 1;
	(void)snprintf(welcome->engine_id, sizeof(welcome->engine_id), "P");
	welcome->regions[0].address = 0x10000;
	welcome->regions[0].bytes =
		(uint64_t)WORLD_BLOCKS * WORLD_BLOCK_BYTES / size;
	welcome->caches[0] = world_cache(rank, size);
}

void world_welcome_send(struct world *world, uint32_t peer,
			const struct kvpull_welcome *welcome)
{
	struct kvpull_event *event =
		world_event(world, KVPULL_EVENT_PEER_MESSAGE, peer);

	event->data_bytes = kvpull_handshake_put_welcome(
		world->data[world->queue_count - 1], 8192, welcome, NULL,
		world->peers[peer].hello.nonce);
	assert_int_not_equal(event->data_bytes, 0);
	world_poll(world, 1);
}

void world_refuse(struct world *world, uint32_t peer, int code)
{
	struct kvpull_event *event =
		world_event(world, KVPULL_EVENT_PEER_MESSAGE, peer);
	struct kvpull_refusal refusal = {
		.code = code, .field = "field", .ours = "1", .theirs = "2"
	};

	event->data_bytes = kvpull_handshake_put_refusal(
		world->data[world->queue_count - 1], 8192, &refusal);
	assert_int_not_equal(event->data_bytes, 0);
	world_poll(world, 1);
}

uint32_t world_up(struct world *world, const char *address, uint32_t rank,
		  uint32_t size)
{
	struct kvpull_welcome welcome;
	const uint32_t peer = greeted(world, address, rank, size, &welcome);

	world_welcome_send(world, peer, &welcome);
	assert_true(world->peers[peer].attached);
	return peer;
}

void world_done_queue(struct world *world, uint32_t index, int code)
{
	struct world_read *mine = &world->reads[index];
	struct kvpull_event *event;

	assert_non_null(mine->read);
	event = world_event(world,
			    mine->checking ? KVPULL_EVENT_CHECK_DONE :
					     KVPULL_EVENT_READ_DONE,
			    mine->peer);
	event->read = mine->read;
	event->code = code;
	if (mine->checking)
		world_entry(world, mine->peer, mine->read);
	mine->read = NULL;
}

void world_done(struct world *world, uint32_t index, int code)
{
	world_done_queue(world, index, code);
	world_poll(world, 1);
}

void world_lost_queue(struct world *world, uint32_t peer, int code)
{
	uint32_t index;

	for (index = 0; index < WORLD_READS; index++)
		if (world->reads[index].read &&
		    world->reads[index].peer == peer)
			world_done_queue(world, index, code);
	world_event(world, KVPULL_EVENT_PEER_DOWN, peer)->code = code;
	world->peers[peer].used = world->peers[peer].attached = 0;
}

void world_lost(struct world *world, uint32_t peer, int code)
{
	world_lost_queue(world, peer, code);
	world_poll(world, 1);
}

void world_down(struct world *world, uint32_t peer)
{
	world_lost(world, peer, KVPULL_EPEER);
}

struct kvpull_event *world_word(struct world *world, uint32_t index)
{
	struct kvpull_event *event;

	(void)world_event(world, KVPULL_EVENT_CALLER_UP, index);
	world_poll(world, 1);
	event = world_event(world, KVPULL_EVENT_CALLER_MESSAGE, index);
	event->uid = world->config.uids[0];
	return event;
}

void caller_down(struct world *world, uint32_t index, uint32_t polls)
{
	(void)world_event(world, KVPULL_EVENT_CALLER_DOWN, index);
	world_poll(world, polls);
}

struct world_caller *world_hello_put(struct world *world, uint32_t index,
				     const struct world_hello *who)
{
	struct world_caller *caller = &world->callers[index];
	struct kvpull_hello hello = {
		.compat = who->compat ? *who->compat :
					world->worker->facts.compat,
		.instance = who->instance,
		.incarnation = who->incarnation,
		.wanted = who->wanted ? who->wanted :
					world->worker->facts.incarnation,
		.rank = who->rank,
		.rank_count = who->rank_count ? who->rank_count : 1,
		.wire_layout = who->wire_layout,
		.engine_id = "consumer",
	};
	struct kvpull_event *event;

	event = world_word(world, index);
	if (who->uid)
		event->uid = who->uid;
	event->data_bytes =
		kvpull_handshake_put_hello(world->data[world->queue_count - 1],
					   8192, &hello, NULL, caller->nonce);
	assert_int_not_equal(event->data_bytes, 0);
	return caller;
}

struct world_caller *world_hello(struct world *world, uint32_t index,
				 const struct world_hello *who)
{
	struct world_caller *caller = world_hello_put(world, index, who);

	world_poll(world, 1);
	return caller;
}

struct world_caller *world_let_in(struct world *world, uint32_t index,
				  const struct world_hello *who)
{
	struct world_caller *caller = world_hello(world, index, who);

	assert_int_equal(caller->state, 2);
	return caller;
}

void world_hold(struct world *world, uint64_t key, uint32_t slot,
		uint64_t generation)
{
	const struct kvpull_command command = {
		.kind = KVPULL_COMMAND_HOLD,
		.slot = slot,
		.key = key,
		.generation = generation,
	};

	world_send(world, &command, 1);
}

void world_say(struct world *world, struct world_caller *caller, uint32_t kind,
	       uint32_t slot, uint64_t generation)
{
	const struct kvpull_record record = {
		.kind = kind,
		.slot = slot,
		.generation = generation,
		.tag = kvpull_ticket_tag(world->worker->secret, slot,
					 generation),
	};

	assert_in_range(kvpull_ring_push(&caller->writer, &record), 0, 1);
}

void claim(struct world *world, uint64_t serial, uint32_t ranks)
{
	world_claim(world, serial, ranks);
	world_poll(world, 1);
}

uint32_t claim_up(struct world *world, uint64_t serial)
{
	char address[16];

	claim(world, serial, 1);
	(void)snprintf(address, sizeof(address), "%u-0",
		       (uint32_t)(serial / 100));
	return world_up(world, address, 0, 1);
}

void pull(struct world *world, uint64_t key, uint64_t serial, uint32_t flags)
{
	world_pull(world, key, serial, flags);
	world_poll(world, 1);
}

void claim_pull(struct world *world, uint64_t key, uint64_t serial,
		uint32_t ranks, uint32_t flags)
{
	world_claim(world, serial, ranks);
	pull(world, key, serial, flags);
}

void release(struct world *world, uint64_t serial)
{
	world_command(world, KVPULL_COMMAND_RELEASE, 0, serial);
	world_poll(world, 2);
}

void abort_pull(struct world *world, uint64_t key)
{
	world_command(world, KVPULL_COMMAND_ABORT, key, 0);
	world_poll(world, 1);
}

uint32_t greeted(struct world *world, const char *address, uint32_t rank,
		 uint32_t size, struct kvpull_welcome *welcome)
{
	const uint32_t peer = world_peer_at(world, address);

	world_challenge(world, peer);
	world_welcome_fill(world, peer, rank, size, welcome);
	return peer;
}

void both_done(struct world *world)
{
	world_done(world, 0, 0);
	world_done(world, 1, 0);
}

void loaded(const struct world *world, uint64_t key)
{
	world_reported(world, key, KVPULL_POLL_LOADED, 0);
}

void failed(const struct world *world, uint64_t key, int32_t reason)
{
	world_reported(world, key, KVPULL_POLL_FAILED, reason);
}

void sent(const struct world *world, uint64_t key, int32_t reason)
{
	world_reported(world, key, KVPULL_POLL_SENT, reason);
}

void warned(const struct world *world, const char *text)
{
	if (!strstr(world->lines.of[KVPULL_LOG_WARN], text))
		fail_msg("no \"%s\" in \"%s\"", text,
			 world->lines.of[KVPULL_LOG_WARN]);
}
