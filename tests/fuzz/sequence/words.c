/* SPDX-License-Identifier: Apache-2.0 */
/* Messages of strangers: right ones, with a key or without, and wrong ones. */
#include <stdio.h>
#include <string.h>

#include "tests/fuzz/sequence/sequence.h"

uint32_t seq_below(struct seq_dice *dice, uint32_t bound)
{
	uint32_t value = 0;
	uint32_t wide = 1;

	for (; wide < bound; wide *= 256) {
		value = value * 256 +
			(dice->at < dice->count ? dice->bytes[dice->at++] : 0);
		if (wide > UINT32_MAX / 256)
			break;
	}
	return bound ? value % bound : 0;
}

int seq_one_in(struct seq_dice *dice, uint32_t many)
{
	/* Not with 0: who has no bytes left does the plain thing. */
	return seq_below(dice, many) == 1;
}

uint64_t seq_u64(struct seq_dice *dice)
{
	static const uint64_t edges[] = { 0,          1,          2,
					  UINT32_MAX, UINT64_MAX, 1u << 16 };

	if (seq_one_in(dice, 2))
		return edges[seq_below(dice, 6)];
	return (uint64_t)seq_below(dice, 65536) << 32 | seq_below(dice, 65536)
								<< 8;
}

const uint8_t *seq_key(const struct seq_world *world)
{
	static const uint8_t key[KVPULL_KEY_BYTES] =
		"a key that strangers may know";

	return world->options.key ? key : NULL;
}

/* Most callers know the key. */
static const uint8_t *key_shown(struct seq_world *world)
{
	static const uint8_t other[KVPULL_KEY_BYTES] = "another key";

	if (!seq_one_in(world->dice, 4))
		return seq_key(world);
	return seq_one_in(world->dice, 2) ? other : NULL;
}

size_t seq_garbage(struct seq_world *world, uint8_t *bytes)
{
	static const uint32_t sizes[] = { 1, 4, 16, 17, 32, 300, 1024, 4000 };
	const size_t count = sizes[seq_below(world->dice, 8)];
	const uint32_t first = seq_below(world->dice, 256);
	size_t at;

	for (at = 0; at < count; at++)
		bytes[at] = (uint8_t)(first + at * 37);
	return count;
}

size_t seq_mutate(struct seq_world *world, uint8_t *bytes, size_t byte_count)
{
	struct seq_dice *dice = world->dice;
	uint32_t left;

	if (!seq_one_in(dice, 4) || !byte_count)
		return byte_count;
	for (left = seq_below(dice, 3); left; left--)
		bytes[seq_below(dice, 65536) % byte_count] ^=
			(uint8_t)(1u << seq_below(dice, 8));
	switch (seq_below(dice, 6)) {
	case 1:
		return seq_below(dice, 65536) % byte_count;
	case 2:
		memset(bytes + byte_count, 0, 16);
		return byte_count + 1 + seq_below(dice, 16);
	default:
		return byte_count;
	}
}

/* A hello of one of D's workers, or of a stranger. */
size_t seq_hello(struct seq_world *world, const struct seq_engine *to,
		 const uint8_t *nonce, uint8_t *bytes)
{
	struct seq_dice *dice = world->dice;
	struct kvpull_hello hello = {
		.compat = to->worker->facts.compat,
		.instance = 0x9000 + seq_below(dice, 3),
		.incarnation = 0xa0000000 + seq_below(dice, 4) * 0x8000,
		.wanted = to->worker->facts.incarnation,
		.rank_count = 1,
		.engine_id = "stranger",
	};

	switch (seq_below(dice, 12)) {
	case 1:
		hello.rank_count = seq_below(dice, 70);
		hello.rank = seq_below(dice, 70);
		break;
	case 2:
		hello.wanted ^= 1;
		break;
	case 3:
		hello.compat.model[0] ^= 1;
		break;
	case 4: /* somebody else's */
		hello.instance = world->engines[SEQ_D].incarnation + 1;
		hello.incarnation = world->engines[SEQ_D].incarnation;
		break;
	case 5:
		hello.instance = seq_u64(dice);
		hello.incarnation = seq_u64(dice);
		break;
	case 6:
		hello.rank_count = 2;
		hello.rank = seq_below(dice, 2);
		break;
	default:
		break;
	}
	return kvpull_handshake_put_hello(bytes, KVPULL_MESSAGE_BYTES_MAX,
					  &hello, key_shown(world), nonce);
}

size_t seq_challenge(struct seq_world *world, uint8_t *nonce, uint8_t *bytes)
{
	memset(nonce, (int)seq_below(world->dice, 256), KVPULL_NONCE_BYTES);
	return kvpull_handshake_put_challenge(bytes, KVPULL_MESSAGE_BYTES_MAX,
					      nonce);
}

/* Changes the facts of a stranger's region. */
static void region_bend(struct seq_world *world, struct kvpull_welcome *welcome)
{
	struct seq_dice *dice = world->dice;
	struct kvpull_cache *cache = &welcome->caches[0];

	switch (seq_below(dice, 10)) {
	case 1:
		welcome->regions[0].kind = seq_below(dice, 6);
		break;
	case 2:
		welcome->regions[0].bytes = seq_u64(dice);
		break;
	case 3:
		welcome->regions[0].address = seq_u64(dice);
		welcome->regions[0].kind = KVPULL_REGION_FOREIGN;
		break;
	case 4:
		welcome->slot_count = seq_below(dice, 65536);
		break;
	case 5:
		cache->block_stride = seq_u64(dice);
		cache->block_count = seq_below(dice, 65536);
		break;
	case 6:
		cache->offset = seq_u64(dice);
		cache->head_stride = seq_u64(dice);
		break;
	case 7:
		welcome->lease_ns = seq_u64(dice);
		welcome->pid = seq_below(dice, 65536);
		break;
	case 8:
		welcome->tp_size = seq_below(dice, 66);
		welcome->tp_rank = seq_below(dice, 66);
		welcome->pp_size = seq_below(dice, 3);
		welcome->pp_rank = seq_below(dice, 3);
		break;
	default:
		break;
	}
}

size_t seq_welcome(struct seq_world *world, const struct seq_engine *to,
		   const uint8_t *nonce, uint8_t *bytes, uint32_t *kind)
{
	static struct kvpull_welcome welcome;

	memset(&welcome, 0, sizeof(welcome));
	welcome.incarnation =
		SEQ_STRANGE_INCARNATION + (uint64_t)seq_one_in(world->dice, 16);
	welcome.lease_ns = 60 * KVPULL_NS_PER_MS;
	welcome.slot_count = 8;
	welcome.tp_size = 1;
	welcome.pid = (uint32_t)to->worker->pid;
	welcome.region_count = welcome.cache_count = 1;
	(void)snprintf(welcome.engine_id, sizeof(welcome.engine_id),
		       "stranger");
	welcome.regions[0].kind = KVPULL_REGION_PROVIDED;
	welcome.regions[0].address =
		(uint64_t)(uintptr_t)world->engines[SEQ_P].memory;
	welcome.regions[0].bytes = SEQ_BLOCKS * SEQ_BLOCK_BYTES;
	/* An address of P, so that reads of foreign memory find something. */
	welcome.entries_address =
		(uint64_t)(uintptr_t)world->engines[SEQ_P].worker->entries.base;
	welcome.caches[0] = seq_cache();
	region_bend(world, &welcome);
	*kind = welcome.regions[0].kind;
	return kvpull_handshake_put_welcome(bytes, KVPULL_MESSAGE_BYTES_MAX,
					    &welcome, key_shown(world), nonce);
}

size_t seq_refusal(struct seq_world *world, uint8_t *bytes)
{
	static const int32_t codes[] = { KVPULL_EREJECTED,
					 KVPULL_EAGAIN,
					 KVPULL_EFULL,
					 KVPULL_EPEER,
					 KVPULL_EAUTH,
					 0,
					 1,
					 INT32_MIN };
	struct kvpull_refusal refusal = {
		.code = codes[seq_below(world->dice, 8)],
		.field = "field",
		.ours = "ours",
		.theirs = "theirs",
	};

	return kvpull_handshake_put_refusal(bytes, KVPULL_MESSAGE_BYTES_MAX,
					    &refusal);
}

/*
 * The tag is right, mostly: a stranger may have seen a ticket, but none that is
 * still to be made.
 */
void seq_record(struct seq_world *world, const struct seq_engine *to,
		struct kvpull_record *record)
{
	struct seq_dice *dice = world->dice;
	const struct seq_ticket *seen =
		&world->tickets[seq_below(dice, SEQ_TICKETS)];

	*record = (struct kvpull_record){
		.kind = seq_one_in(dice, 2) ? KVPULL_NOTE_CLAIM :
					      KVPULL_NOTE_RELEASE,
		.slot = seen->slot,
		.generation = seen->generation,
	};
	record->tag = kvpull_ticket_tag(to->worker->secret, record->slot,
					record->generation);
	switch (seq_below(dice, 8)) {
	case 1:
		record->tag ^= 1;
		break;
	case 2:
		record->kind = seq_below(dice, 256);
		break;
	case 3:
		record->slot = seq_below(dice, 65536);
		break;
	case 4: /* with the tag of another one */
		record->generation = seq_u64(dice);
		break;
	case 5:
		record->extra = 1;
		break;
	default:
		break;
	}
}

/* Where the stranger of a ticket is to be found. */
static void address_put(const struct seq_world *world,
			const struct seq_engine *of, char *text, size_t bytes)
{
	const uint16_t port =
		ntohs(world->listener->route.addr.src_sin.sin_port);

	switch (seq_below(world->dice, of->who == SEQ_V ? 3 : 6)) {
	case 1:
		(void)snprintf(text, bytes, "verbs:10.66.0.1:%u,10.66.1.1:%u",
			       port, port);
		break;
	case 2:
		(void)snprintf(text, bytes, "verbs:10.66.0.9:99");
		break;
	case 3:
	case 4:
		(void)snprintf(text, bytes, "shm:raw;verbs:10.66.0.1:%u", port);
		break;
	default:
		(void)snprintf(text, bytes, "verbs:10.66.0.1:%u", port);
	}
}

void seq_ticket_forge(struct seq_world *world, const struct seq_engine *of)
{
	static uint8_t scratch[KVPULL_TICKET_BYTES_MAX];
	static struct kvpull_ticket ticket;
	static uint32_t ids[SEQ_REQUEST_BLOCKS_MAX] = { 1, 3, 9 };
	struct seq_ticket *into =
		&world->tickets[world->ticket_next % SEQ_TICKETS];
	struct seq_dice *dice = world->dice;

	memset(&ticket, 0, sizeof(ticket));
	ticket.generation = 1 + seq_below(dice, 3);
	ticket.slot = seq_below(dice, 12);
	ticket.prompt_tokens = 1 + seq_below(dice, SEQ_REQUEST_BLOCKS_MAX);
	ticket.rank_count = ticket.group_count = 1;
	(void)snprintf(ticket.engine_id, sizeof(ticket.engine_id), "stranger");
	memcpy(ticket.compat, of->worker->compat_digest, sizeof(ticket.compat));
	memset(ticket.digest, 0x5a, sizeof(ticket.digest));
	memset(ticket.digest, 0, sizeof(uint64_t));
	ticket.groups[0].block_tokens = 1;
	ticket.groups[0].block_count = ticket.prompt_tokens;
	ticket.block_ids = ids;
	ids[2] = seq_one_in(dice, 4) ? 5000 : 9;
	ticket.ranks[0].incarnation = SEQ_STRANGE_INCARNATION;
	ticket.ranks[0].tag = 7;
	address_put(world, of, ticket.ranks[0].address,
		    sizeof(ticket.ranks[0].address));
	into->bytes = 0;
	if (kvpull_ticket_encode(&ticket, seq_key(world), scratch, into->text,
				 sizeof(into->text), &into->bytes))
		seq_fail("a stranger's ticket cannot be made");
	into->content = 0;
	into->block_count = ticket.prompt_tokens;
	world->ticket_next++;
}
