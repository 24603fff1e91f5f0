/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A pool: the owner lists chunks of memory under keys, and the reader looks a key
 * up and reads its chunk. Nobody asks the owner's process, and nothing is held:
 * a read that comes too late fails with ESTALE. The pipe carries the address.
 *
 *   cc pool.c $(pkg-config --cflags --libs kvpull) -o pool
 *   ./pool owner | ./pool reader
 */
#include <kvpull/reader.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#define CHUNK_BYTES 4096
#define KEY                                                                    \
	{                                                                      \
		"sha256 of the tokens", 20                                     \
	}

static const struct kvpull_reader_ops *ops;
static struct kvpull_reader *pool;

/* Until a probe or a read has ended. Returns 0, or why it failed. */
static int ended(struct kvpull_reader_record *end)
{
	while (!ops->poll(pool, end, 1, sizeof(*end)))
		poll(&(struct pollfd){ ops->event_fd(pool), POLLIN, 0 }, 1,
		     100);
	return end->code;
}

static int own(void)
{
	struct kvpull_reader_share share = { .struct_size = sizeof(share),
					     .chunk_bytes = CHUNK_BYTES,
					     .chunk_count = 8 };
	struct kvpull_memory memory = { .struct_size = sizeof(memory) };
	struct kvpull_reader_put put = { .struct_size = sizeof(put),
					 .key = KEY,
					 .chunk = 3 };
	struct pollfd ready[2] = {
		{ .fd = ops->event_fd(pool), .events = POLLIN }, { .fd = 1 }
	};
	struct kvpull_reader_record none;
	char address[4096];
	size_t bytes;

	if (ops->share(pool, &share, &memory, NULL) ||
	    ops->address(pool, address, sizeof(address), &bytes) ||
	    ops->epoch(pool, &put.epoch) ||
	    ops->guard_bump(pool, &put.chunk, 1, &put.generation) ||
	    ops->write_begin(pool, put.chunk))
		return 1;
	snprintf((char *)memory.base + put.chunk * CHUNK_BYTES, CHUNK_BYTES,
		 "hello from chunk 3");
	if (ops->write_end(pool, put.chunk) || ops->put(pool, &put))
		return 1;
	puts(address);
	fflush(stdout);
	/* Until the reader has closed the pipe. */
	while (!ready[1].revents) {
		/* Lets readers in. */
		ops->poll(pool, &none, 1, sizeof(none));
		poll(ready, 2, 100);
	}
	return 0;
}

static int look_up(void)
{
	static char block[CHUNK_BYTES];
	struct kvpull_reader_place place = { .chunk = KVPULL_READER_NONE };
	struct kvpull_reader_key key = KEY;
	struct kvpull_reader_probe probe = { .struct_size = sizeof(probe),
					     .keys = &key,
					     .key_count = 1,
					     .key_bytes = sizeof(key),
					     .places = &place,
					     .place_bytes = sizeof(place) };
	struct kvpull_reader_piece piece = { .block = 0 };
	int32_t code;
	struct kvpull_reader_read read = { .struct_size = sizeof(read),
					   .pieces = &piece,
					   .piece_count = 1,
					   .piece_bytes = sizeof(piece),
					   .codes = &code };
	struct kvpull_reader_record end;
	char address[4096];
	uint64_t id;
	int state;

	if (scanf("%4095s", address) != 1 ||
	    ops->peer_add(pool, address, &probe.peer) ||
	    ops->local_add(pool, block, CHUNK_BYTES, 1, &read.local))
		return 1;
	while ((state = ops->probe(pool, &probe, &id)) == KVPULL_EAGAIN) {
		/* The peer is not connected yet. */
		ops->poll(pool, &end, 1, sizeof(end));
		poll(&(struct pollfd){ ops->event_fd(pool), POLLIN, 0 }, 1,
		     100);
	}
	if (state || ended(&end) || place.chunk == KVPULL_READER_NONE)
		return 1;
	piece.chunk = place.chunk;
	piece.generation = place.generation;
	read.peer = probe.peer;
	read.incarnation = end.incarnation;
	if (ops->read(pool, &read, &id) || ended(&end))
		return 1;
	/* The key's bytes, or the read had failed. */
	printf("reader: %s\n", block);
	return 0;
}

int main(int argc, char **argv)
{
	struct kvpull_model model = { .struct_size = sizeof(model),
				      .model = "hello",
				      .weights = "1",
				      .dtype = "u8",
				      .layout = "chunks" };
	struct kvpull_reader_naming naming = { .struct_size = sizeof(naming),
					       .model = &model,
					       .hash = "sha256" };
	struct kvpull_reader_params params = { .struct_size = sizeof(params),
					       .naming = &naming,
					       .engine_id = argv[argc - 1] };
	struct kvpull_error_detail why = { .struct_size = sizeof(why) };
	int failed;

	ops = kvpull_reader_v1();
	if (ops->open(&params, &pool, &why))
		return fprintf(stderr, "%s: %s\n", why.field, why.message), 1;
	failed = strcmp(params.engine_id, "owner") ? look_up() : own();
	ops->close(pool);
	return failed;
}
