/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A toy engine, as P (prefill) or as D (decode). The pipe is the router: a line
 * is the number of a prompt and its ticket.
 *
 *   cc host.c $(pkg-config --cflags --libs kvpull) -o host
 *   ./host prefill 1000 | ./host decode
 */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kvpull/connector.h>

#define BLOCKS 64u
#define BLOCK_BYTES 4096u
#define BLOCK_TOKENS 16u
#define PROMPT_BLOCKS 2u
#define PROMPT_TOKENS (PROMPT_BLOCKS * BLOCK_TOKENS)
#define SLOTS (BLOCKS / PROMPT_BLOCKS)
#define LINE_BYTES 4096u

/* A request. Slot i has the blocks from i * PROMPT_BLOCKS while it is used. */
struct slot {
	enum {
		FREE,
		HELD,
		WAITING,
		LOADING,
		LOADED,
		FAILED
	} state;
	uint32_t prompt;
	uint64_t key;
	int is_aborted;
};

static const struct kvpull_connector_ops *ops;
static struct kvpull_scheduler *scheduler;
static struct kvpull_worker *worker;
static unsigned char *kv;
static struct slot slots[SLOTS];
static uint32_t used;     /* slots that are not FREE */
static uint64_t last_key; /* no key is used twice */
static uint32_t released, expired, pulled, computed, rejected, aborted, wrong;

/* For what fails only if this program is wrong, or the machine. */
static int must(int code, const char *call)
{
	if (code >= 0)
		return code;
	fprintf(stderr, "%s: %s\n", call, ops->error_text(code));
	exit(1);
}
#define MUST(call) must(call, #call)

static void log_line(void *context, uint32_t level, const char *message)
{
	(void)level;
	fprintf(stderr, "%s: %s\n", (const char *)context, message);
}

/* clang-format off */
static void engine_open(char *id)
{
	struct kvpull_model model = { .struct_size = sizeof(model), .model = "toy",
		.dtype = "u8", .layout = "LBHNC", .layer_count = 1,
		.head_count = 1, .head_bytes = BLOCK_BYTES / BLOCK_TOKENS };
	struct kvpull_group group = { .block_tokens = BLOCK_TOKENS };
	struct kvpull_host host = { .struct_size = sizeof(host), .context = id,
		.log = log_line, .log_level = KVPULL_LOG_WARN };
	struct kvpull_open_params params = { .struct_size = sizeof(params),
		.host = &host, .model = &model, .engine_id = id, .tp_size = 1,
		.groups = &group, .group_bytes = sizeof(group), .group_count = 1 };
	struct kvpull_memory memory = { .struct_size = sizeof(memory) };
	struct kvpull_region region = { .struct_size = sizeof(region), .fd = -1,
		.bytes = BLOCKS * BLOCK_BYTES };
	struct kvpull_cache cache = { .struct_size = sizeof(cache),
		.layer_count = 1, .block_stride = BLOCK_BYTES,
		.block_count = BLOCKS, .row_count = 1, .head_count = 1,
		.head_stride = BLOCK_BYTES, .head_bytes = BLOCK_BYTES };
	struct kvpull_regions regions = { .struct_size = sizeof(regions),
		.regions = &region, .region_count = 1,
		.caches = &cache, .cache_count = 1 };
	struct kvpull_error_detail why = { .struct_size = sizeof(why) };
	char info[1024];
	size_t info_bytes;

	if (ops->scheduler->open(&params, &scheduler, &why) < 0 ||
	    ops->worker->open(&params, &worker, &why) < 0) {
		fprintf(stderr, "%s: %s\n", why.field, why.message);
		exit(1);
	}
	MUST(ops->worker->memory_alloc(worker, region.bytes, 0, &memory));
	region.base = kv = memory.base;
	MUST(ops->worker->regions_register(worker, &regions, &why));
	MUST(ops->worker->rank_info(worker, info, sizeof(info), &info_bytes));
	MUST(ops->scheduler->rank_info(scheduler, info, info_bytes));
}
/* clang-format on */

static struct slot *slot_take(uint32_t prompt)
{
	struct slot *slot = slots;

	while (slot->state != FREE)
		slot++; /* who calls has looked that one is */
	*slot = (struct slot){ WAITING, prompt, ++last_key, 0 };
	used++;
	return slot;
}

static void slot_free(struct slot *slot)
{
	slot->state = FREE;
	used--;
}

static struct kvpull_blocks blocks_of(const struct slot *slot,
				      uint32_t ids[PROMPT_BLOCKS])
{
	uint32_t i;

	for (i = 0; i < PROMPT_BLOCKS; i++)
		ids[i] = (uint32_t)(slot - slots) * PROMPT_BLOCKS + i;
	return (struct kvpull_blocks){ 0, PROMPT_BLOCKS, ids };
}

/* The model: the KV of a prompt is its number, again and again. */
static void compute(const struct slot *slot)
{
	uint32_t ids[PROMPT_BLOCKS];
	uint32_t at;

	blocks_of(slot, ids);
	for (at = 0; at < PROMPT_BLOCKS * BLOCK_BYTES; at += 4)
		memcpy(kv + ids[0] * BLOCK_BYTES + at, &slot->prompt, 4);
}

static int is_right(const struct slot *slot)
{
	static unsigned char found[PROMPT_BLOCKS * BLOCK_BYTES];
	uint32_t ids[PROMPT_BLOCKS];

	blocks_of(slot, ids);
	memcpy(found, kv + ids[0] * BLOCK_BYTES, sizeof(found));
	compute(slot);
	return !memcmp(found, kv + ids[0] * BLOCK_BYTES, sizeof(found));
}

static int request_new(const struct slot *slot, uint32_t flags,
		       const char *ticket)
{
	struct kvpull_request request = { .struct_size = sizeof(request) };

	request.key = slot->key;
	request.prompt_tokens = PROMPT_TOKENS;
	request.flags = flags;
	request.ticket = ticket;
	request.ticket_bytes = ticket ? strlen(ticket) : 0;
	/* A real digest is of the token ids; both ends make it alike. */
	memcpy(request.prompt_digest, &slot->prompt, sizeof(slot->prompt));
	return ops->scheduler->request_new(scheduler, &request);
}

/* Each request is finished once, whatever became of it. */
static void request_finish(const struct slot *slot, uint32_t reason)
{
	struct kvpull_finish finish = { .struct_size = sizeof(finish) };

	finish.key = slot->key;
	finish.reason = reason;
	MUST(ops->scheduler->request_finished(scheduler, &finish));
}

static void record_take(const struct kvpull_poll_record *record)
{
	struct slot *slot = slots;

	if (record->kind > KVPULL_POLL_FAILED)
		return; /* of a later version */
	while (slot->state == FREE || slot->key != record->key)
		slot++; /* records are of requests that still have blocks */
	if (record->kind == KVPULL_POLL_SENT) {
		if (record->reason == KVPULL_END_RELEASED)
			released++;
		else
			expired++;
		slot_free(slot);
	} else if (record->kind == KVPULL_POLL_LOADED) {
		slot->state = LOADED;
	} else {
		if (!slot->is_aborted)
			fprintf(stderr, "prompt %u: %s\n", slot->prompt,
				ops->error_text(record->reason));
		slot->state = FAILED;
	}
}

/* Makes a step: bytes of the scheduler half to the worker half, and back. */
static void step(void)
{
	static char bytes[1 << 20];
	struct kvpull_poll_record record;
	size_t n;

	MUST(ops->scheduler->step_build(scheduler, bytes, sizeof(bytes), &n));
	MUST(ops->worker->step(worker, bytes, n));
	MUST(ops->worker->start_loads(worker, NULL));
	while (MUST(ops->worker->poll(worker, &record, 1, sizeof(record))))
		record_take(&record);
	MUST(ops->worker->result_build(worker, bytes, sizeof(bytes), &n));
	if (n)
		MUST(ops->scheduler->result_take(scheduler, bytes, n));
}

/* Until the worker has something to tell, or input is there: returns that. */
static int sleep_until(int input)
{
	struct pollfd ready[2] = {
		{ ops->worker->event_fd(worker), POLLIN, 0 },
		{ input, POLLIN, 0 },
	};

	poll(ready, 2, 100); /* less than a third of lease_ms */
	return ready[1].revents;
}

/* P computes a prompt. If it is held, its blocks are kept until SENT. */
static void prefill(uint32_t prompt)
{
	static char ticket[LINE_BYTES];
	struct slot *slot = slot_take(prompt);
	uint32_t ids[PROMPT_BLOCKS];
	struct kvpull_blocks blocks = blocks_of(slot, ids);
	struct kvpull_finish finish = { .struct_size = sizeof(finish) };

	/* Where it is refused, its finish answers FREE and has no ticket. */
	request_new(slot, KVPULL_REQUEST_WANTS_HOLD, NULL);
	if (prompt % 10 == 9) { /* its client left */
		request_finish(slot, KVPULL_FINISH_ABORT);
		slot_free(slot);
		aborted++;
		return;
	}
	compute(slot);
	finish.key = slot->key;
	finish.computed_tokens = PROMPT_TOKENS;
	finish.groups = &blocks;
	finish.group_bytes = sizeof(blocks);
	finish.group_count = 1;
	finish.ticket = ticket;
	finish.ticket_capacity = sizeof(ticket);
	slot->state = HELD;
	if (MUST(ops->scheduler->request_finished(scheduler, &finish)) ==
	    KVPULL_FINISH_FREE)
		slot_free(slot);
	printf("%u %.*s\n", prompt, (int)finish.ticket_bytes, ticket);
}

static void serve(uint32_t prompt_count)
{
	uint32_t prompt = 0;

	signal(SIGPIPE, SIG_IGN);
	while (prompt < prompt_count || used) {
		while (prompt < prompt_count && used < SLOTS)
			prefill(++prompt);
		if (fflush(stdout) == EOF)
			prompt = prompt_count; /* what nobody got expires */
		step();
		sleep_until(-1);
	}
	fprintf(stderr, "prefill: %u released, %u expired, %u aborted\n",
		released, expired, aborted);
}

/* D takes one line. Returns 0 when there are no more. */
static int line_take(void)
{
	static char line[LINE_BYTES];
	struct slot *slot;
	char *ticket;
	uint32_t prompt;
	int code;

	if (!fgets(line, sizeof(line), stdin))
		return 0;
	line[strcspn(line, "\n")] = '\0';
	prompt = (uint32_t)strtoul(line, &ticket, 10);
	ticket += *ticket == ' ';
	if (prompt % 10 == 3) { /* refused before it became a request */
		code = ops->scheduler->request_rejected(scheduler, ticket,
							strlen(ticket));
		rejected++;
	} else {
		slot = slot_take(prompt);
		code = request_new(slot, KVPULL_REQUEST_PULL, ticket);
	}
	if (code) /* then matched_tokens() finds nothing */
		fprintf(stderr, "prompt %u: %s\n", prompt,
			ops->error_text(code));
	return 1;
}

static void load(struct slot *slot, uint32_t tokens)
{
	uint32_t ids[PROMPT_BLOCKS];
	struct kvpull_blocks blocks = blocks_of(slot, ids);
	struct kvpull_allocation allocation = { 0 };
	int code;

	allocation.struct_size = sizeof(allocation);
	allocation.key = slot->key;
	allocation.external_tokens = tokens;
	allocation.groups = &blocks;
	allocation.group_bytes = sizeof(blocks);
	allocation.group_count = 1;
	code = ops->scheduler->allocated(scheduler, &allocation);
	if (code != KVPULL_ETRUNCATED && code != KVPULL_EFULL)
		must(code, "allocated"); /* those two come as FAILED */
	slot->state = LOADING;
	if (slot->prompt % 10 == 7) { /* its client left: the blocks stay */
		request_finish(slot, KVPULL_FINISH_ABORT);
		slot->is_aborted = 1;
	}
}

static void loaded(struct slot *slot)
{
	if (slot->is_aborted) {
		aborted++; /* finished before; now its blocks are free, too */
		slot_free(slot);
		return;
	}
	if (slot->state == FAILED) {
		compute(slot);
		computed++;
	} else if (is_right(slot)) {
		pulled++;
	} else {
		wrong++;
	}
	request_finish(slot, KVPULL_FINISH_STOP);
	slot_free(slot);
}

/* D takes one request further. */
static void advance(struct slot *slot)
{
	uint32_t tokens = 0;

	if (slot->state == WAITING) {
		switch (MUST(ops->scheduler->matched_tokens(
			scheduler, slot->key, 0, &tokens))) {
		case KVPULL_MATCH_LOAD:
			load(slot, tokens);
			break;
		case KVPULL_MATCH_NOTHING:
			slot->state = FAILED;
			break;
		default: /* KVPULL_MATCH_WAIT: asked again in the next turn */
			break;
		}
	}
	if (slot->state == LOADED || slot->state == FAILED)
		loaded(slot);
}

static void decode(void)
{
	int more = 1;
	uint32_t i;

	setvbuf(stdin, NULL, _IONBF, 0); /* else poll() misses what was read */
	while (more || used) {
		if (sleep_until(more && used < SLOTS ? 0 : -1))
			more = line_take();
		for (i = 0; i < SLOTS; i++)
			advance(&slots[i]);
		step();
	}
	/* A release that no step has taken is not on its way yet. */
	while (MUST(ops->scheduler->has_pending(scheduler)) &
	       (int)KVPULL_PENDING_STEP)
		step();
	fprintf(stderr,
		"decode: %u pulled, %u computed, %u rejected, "
		"%u aborted, %u wrong\n",
		pulled, computed, rejected, aborted, wrong);
}

int main(int argc, char **argv)
{
	if (argc < 2) {
		fprintf(stderr, "host prefill COUNT | host decode\n");
		return 2;
	}
	ops = kvpull_connector_v1();
	engine_open(argv[1]);
	if (argc > 2)
		serve((uint32_t)strtoul(argv[2], NULL, 10));
	else
		decode();
	ops->worker->close(worker);
	ops->scheduler->close(scheduler);
	return wrong != 0;
}
