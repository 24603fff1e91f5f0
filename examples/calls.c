/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The calls that host.c and pool.c do without, each where an engine makes it: P and
 * D in one process, and a pool. The manuals show these lines.
 *
 *   cc calls.c $(pkg-config --cflags --libs kvpull) -o calls && ./calls
 * A folder of a local disk may be named, for the pool's file.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kvpull/connector.h>
#include <kvpull/reader.h>

#define BYTES 4096u /* of a block, and of a chunk */
#define TOKENS 16u
#define COUNTERS_MAX 128

static const struct kvpull_connector_ops *ops;
static const struct kvpull_reader_ops *pool_ops;

struct engine {
	struct kvpull_scheduler *scheduler;
	struct kvpull_worker *worker;
	uint32_t kind; /* of the last record */
};

static int must(int code, const char *call)
{
	if (code >= 0)
		return code;
	fprintf(stderr, "%s: %s\n", call, ops->error_text(code));
	exit(1);
}
#define MUST(call) must(call, #call)

/* ---- open ---- */

/* clang-format off */
static void engine_open(struct engine *e, const char *id)
{
	struct kvpull_model model = { .struct_size = sizeof(model), .model = "calls",
		.dtype = "u8", .layout = "LBHNC", .layer_count = 1,
		.head_count = 1, .head_bytes = BYTES / TOKENS };
	struct kvpull_group group = { .block_tokens = TOKENS };
	struct kvpull_open_params params = { .struct_size = sizeof(params),
		.config_json = "{\"progress\": \"caller\"}", .model = &model,
		.engine_id = id, .tp_size = 1, .groups = &group,
		.group_bytes = sizeof(group), .group_count = 1 };
	struct kvpull_memory memory = { .struct_size = sizeof(memory) };
	struct kvpull_memory spare = { .struct_size = sizeof(spare) };
	struct kvpull_region region = { .struct_size = sizeof(region), .fd = -1, .bytes = BYTES };
	struct kvpull_cache cache = { .struct_size = sizeof(cache), .layer_count = 1,
		.block_stride = BYTES, .block_count = 1, .row_count = 1,
		.head_count = 1, .head_stride = BYTES, .head_bytes = BYTES };
	struct kvpull_regions regions = { sizeof(regions), &region, &cache, 1, 1 };
	char info[1024];
	size_t n;
	/* clang-format on */
	struct kvpull_error_detail why = { .struct_size = sizeof(why) };

	if (ops->config_check(params.config_json, &why) < 0)
		fprintf(stderr, "%s: %s\n", why.field, why.message);
	MUST(ops->scheduler->open(&params, &e->scheduler, NULL));
	MUST(ops->worker->open(&params, &e->worker, NULL));
	MUST(ops->worker->memory_alloc(e->worker, BYTES, 0, &memory));
	MUST(ops->worker->memory_alloc(e->worker, BYTES, 0, &spare));
	/* The engine has found out that it needs less. */
	MUST(ops->worker->memory_free(e->worker, spare.base));
	region.base = memory.base;
	MUST(ops->worker->regions_register(e->worker, &regions, NULL));
	MUST(ops->worker->rank_info(e->worker, info, sizeof(info), &n));
	MUST(ops->scheduler->rank_info(e->scheduler, info, n));
	/* Requests wait until each rank has said who it is. */
	if (ops->scheduler->ranks_missing(e->scheduler) > 0)
		exit(1);
	/* Both halves are in this process, so no step has to carry commands. */
	MUST(ops->scheduler->worker_attach(e->scheduler, e->worker));
}

static void turn(struct engine *e)
{
	struct kvpull_poll_record record;
	char bytes[8192];
	size_t n;

	MUST(ops->scheduler->step_build(e->scheduler, bytes, sizeof(bytes),
					&n));
	MUST(ops->worker->start_loads(e->worker, NULL));
	/* progress=caller: the engine's thread does the I/O. */
	while (ops->worker->progress(e->worker, 0) > 0)
		;
	while (MUST(ops->worker->poll(e->worker, &record, 1, sizeof(record))))
		e->kind = record.kind;
	MUST(ops->worker->result_build(e->worker, bytes, sizeof(bytes), &n));
	if (n)
		MUST(ops->scheduler->result_take(e->scheduler, bytes, n));
}

/* ---- a request ---- */

static size_t hold(struct engine *p, uint64_t key, char *ticket, size_t room)
{
	struct kvpull_request request = { .struct_size = sizeof(request),
					  .key = key,
					  .prompt_tokens = TOKENS,
					  .flags = KVPULL_REQUEST_WANTS_HOLD };
	/* The payload is for the consumer's engine: here its first token. */
	const uint32_t first_token = 42;
	uint32_t block = 0;
	struct kvpull_blocks blocks = { 0, 1, &block };
	struct kvpull_finish finish = { .struct_size = sizeof(finish),
					.key = key,
					.flags = KVPULL_FINISH_READY_NEEDED,
					.computed_tokens = TOKENS,
					.groups = &blocks,
					.group_bytes = sizeof(blocks),
					.group_count = 1,
					.payload = &first_token,
					.payload_bytes = sizeof(first_token),
					.ticket = ticket,
					.ticket_capacity = room };
	struct kvpull_ticket_info info = { .struct_size = sizeof(info) };
	int64_t mark;
	size_t n;

	MUST(ops->scheduler->request_new(p->scheduler, &request));
	if (MUST(ops->scheduler->request_finished(p->scheduler, &finish)) !=
	    KVPULL_FINISH_HELD)
		exit(1);
	turn(p);
	/* With a KV cache on a GPU: behind all that the GPU has to do by now. */
	mark = ops->worker->engine_mark(p->worker, KVPULL_STREAM_NONE);
	if (mark > 0)
		MUST(ops->worker->hold_ready_after(p->worker, key, mark));
	else /* The last byte of the request's blocks is written. */
		MUST(ops->worker->hold_ready(p->worker, key));
	/* The answer goes out later than the finish. */
	MUST(ops->scheduler->ticket_get(p->scheduler, key, ticket, room, &n));
	/* A router looks for the ticket's size, without a handle. */
	if (ops->ticket_peek(ticket, n, &info) == 0)
		printf("a ticket of %u tokens\n", info.prompt_tokens);
	return n;
}

static uint32_t pull(struct engine *d, uint64_t key, const char *ticket,
		     size_t ticket_bytes)
{
	struct kvpull_request request = { .struct_size = sizeof(request),
					  .key = key,
					  .prompt_tokens = TOKENS,
					  .flags = KVPULL_REQUEST_PULL,
					  .ticket = ticket,
					  .ticket_bytes = ticket_bytes };
	uint32_t block = 0;
	struct kvpull_blocks blocks = { 0, 1, &block };
	struct kvpull_allocation room = { .struct_size = sizeof(room),
					  .key = key,
					  .groups = &blocks,
					  .group_bytes = sizeof(blocks),
					  .group_count = 1 };

	ops->scheduler->request_new(d->scheduler, &request);
	if (ops->scheduler->matched_tokens(d->scheduler, key, 0,
					   &room.external_tokens) !=
	    KVPULL_MATCH_LOAD) {
		int why = ops->scheduler->match_failure(d->scheduler, key);

		printf("computed: %s\n", ops->error_text(why));
		return KVPULL_POLL_FAILED;
	}
	d->kind = 0;
	MUST(ops->scheduler->allocated(d->scheduler, &room));
	return 0;
}

/* After LOADED or FAILED: which blocks have to be computed. */
static int is_loaded(struct engine *d, uint64_t key)
{
	uint32_t blocks[64];
	uint32_t count;

	if (d->kind == KVPULL_POLL_FAILED) {
		/* The blocks of a pull that failed, until the next poll. */
		if (ops->worker->failed_blocks(d->worker, key, blocks, 64,
					       &count) == 0)
			printf("compute %u blocks\n", count);
		return 0;
	}
	/* Weights that changed meanwhile make the blocks useless. */
	return ops->scheduler->loaded(d->scheduler, key) == 0;
}

static void first_token_show(struct engine *d, uint64_t key)
{
	uint32_t token = 0;
	size_t n;

	if (ops->scheduler->payload_get(d->scheduler, key, &token,
					sizeof(token), &n) == 0 &&
	    n == sizeof(token))
		printf("the first token is %u\n", token);
}

static void requests(struct engine *p, struct engine *d)
{
	char ticket[4096];
	size_t n = hold(p, 1, ticket, sizeof(ticket));

	pull(d, 1, ticket, n);
	while (!d->kind) {
		turn(d);
		turn(p);
	}
	printf(is_loaded(d, 1) ? "pulled\n" : "not pulled\n");
	first_token_show(d, 1);
	pull(d, 2, "no ticket", 9);
}

/* ---- what an operator sees, and what ends holds ---- */

static void figures(struct engine *e)
{
	struct kvpull_counter rows[COUNTERS_MAX];
	struct kvpull_peer_info peers[4];
	int count;

	count = ops->scheduler->counters(e->scheduler, rows, COUNTERS_MAX,
					 sizeof(rows[0]));
	printf("%d counters, the first is %s\n", count, rows[0].name);
	count = ops->worker->counters(e->worker, rows, COUNTERS_MAX,
				      sizeof(rows[0]));
	printf("%d counters, the first is %s\n", count, rows[0].name);
	count = ops->worker->peers(e->worker, peers, 4, sizeof(peers[0]));
	if (count > 0)
		printf("%d peers, the first by %s\n", count, peers[0].route);
}

static void ends(struct engine *e)
{
	/* Before the first byte of new weights, at both ends. */
	MUST(ops->scheduler->changed(e->scheduler, 0));
	/* The prefix cache was cleared. */
	MUST(ops->scheduler->reset(e->scheduler, KVPULL_RESET_FORGET));
	/* Before this engine is stopped: how many holds are left? */
	printf("%d holds left\n", ops->scheduler->drain(e->scheduler, 1));
	/* Memory is remapped next: no read of it is believed from here on. */
	MUST(ops->worker->revoke_all(e->worker));
}

/* ---- a pool ---- */

static struct kvpull_reader *pool_open(const char *slot_folder)
{
	struct kvpull_model model = { .struct_size = sizeof(model),
				      .model = "calls",
				      .weights = "1",
				      .dtype = "u8",
				      .layout = "chunks" };
	struct kvpull_reader_naming naming = { .struct_size = sizeof(naming),
					       .model = &model,
					       .hash = "sha256" };
	struct kvpull_reader_params params = { .struct_size = sizeof(params),
					       .naming = &naming,
					       .engine_id = "pool" };
	struct kvpull_reader_share share = { .struct_size = sizeof(share),
					     .chunk_bytes = BYTES,
					     .chunk_count = 4,
					     .slot_folder = slot_folder,
					     .slot_count = 4 };
	struct kvpull_memory memory = { .struct_size = sizeof(memory) };
	struct kvpull_error_detail why = { .struct_size = sizeof(why) };
	struct kvpull_reader *pool;

	if (pool_ops->open(&params, &pool, &why) < 0 ||
	    pool_ops->share(pool, &share, &memory, &why) < 0) {
		fprintf(stderr, "%s: %s\n", why.field, why.message);
		exit(1);
	}
	return pool;
}

/* The owner reads its own file: a chunk goes to the disk, and its end comes. */
static void pool_spill(struct kvpull_reader *pool)
{
	struct kvpull_reader_put put = { .struct_size = sizeof(put),
					 .key = { "key", 3 } };
	int32_t code = 0;
	struct kvpull_reader_spill spill = { .struct_size = sizeof(spill),
					     .puts = &put,
					     .put_bytes = sizeof(put),
					     .codes = &code,
					     .put_count = 1 };
	struct kvpull_reader_record record;
	uint64_t id;

	MUST(pool_ops->epoch(pool, &put.epoch));
	/* The generation that the bytes were written under. */
	MUST(pool_ops->generation(pool, put.chunk, &put.generation));
	MUST(pool_ops->put(pool, &put));
	MUST(pool_ops->spill(pool, &spill, &id));
	/* Not needed any more; its record comes all the same. */
	if (pool_ops->cancel(pool, id) == KVPULL_EINVAL)
		printf("the spill had ended\n");
	while (!pool_ops->poll(pool, &record, 1, sizeof(record)))
		;
}

static void pool_ends(struct kvpull_reader *pool)
{
	struct kvpull_reader_peer peers[4];
	struct kvpull_counter rows[COUNTERS_MAX];
	char address[4096];
	uint32_t peer;
	size_t n;
	int count;

	MUST(pool_ops->address(pool, address, sizeof(address), &n));
	MUST(pool_ops->peer_add(pool, address, &peer));
	count = pool_ops->peers(pool, peers, 4, sizeof(peers[0]));
	if (count == 1 && peers[0].code != 0)
		printf("peer: %s\n", pool_ops->error_text(peers[0].code));
	MUST(pool_ops->peer_remove(pool, peer));
	count = pool_ops->counters(pool, rows, COUNTERS_MAX, sizeof(rows[0]));
	printf("%d counters, the first is %s\n", count, rows[0].name);
	/* A reset: no key is listed any more, nothing computed before is put. */
	MUST(pool_ops->guard_bump_all(pool, NULL, NULL));
	MUST(pool_ops->unshare(pool));
}

int main(int argc, char **argv)
{
	struct kvpull_reader *pool;
	struct engine p = { .kind = 0 };
	struct engine d = { .kind = 0 };

	ops = kvpull_connector_v1();
	pool_ops = kvpull_reader_v1();
	engine_open(&p, "P");
	engine_open(&d, "D");
	requests(&p, &d);
	figures(&d);
	ends(&p);
	pool = pool_open(argc > 1 ? argv[1] : "/var/tmp");
	pool_spill(pool);
	pool_ends(pool);
	pool_ops->close(pool);
	ops->worker->close(d.worker);
	ops->scheduler->close(d.scheduler);
	ops->worker->close(p.worker);
	ops->scheduler->close(p.scheduler);
	printf("done\n");
	return 0;
}
