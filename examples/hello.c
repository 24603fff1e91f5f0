/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two processes: P holds a block of KV memory, and D pulls it. The pipe has the
 * router's place: it carries the ticket, a text that says where the block is.
 *
 *   cc hello.c $(pkg-config --cflags --libs kvpull) -o hello
 *   ./hello P | ./hello D
 */
#include <kvpull/connector.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

/* clang-format off */
/* The KV cache, alike at both ends: a layer with one head, and one block of 16 tokens. */
static struct kvpull_model model = { sizeof(model), .model = "hello", .dtype = "u8",
	.layout = "LBHNC", .layer_count = 1, .head_count = 1, .head_bytes = 4096 / 16 };
static struct kvpull_group group = { .block_tokens = 16 };
static struct kvpull_region region = { sizeof(region), .fd = -1, .bytes = 4096 };
static struct kvpull_cache cache = { sizeof(cache), .layer_count = 1, .block_count = 1,
	.block_stride = 4096, .row_count = 1, .head_count = 1, .head_stride = 4096, .head_bytes = 4096 };
static struct kvpull_regions regions = { sizeof(regions), &region, &cache, 1, 1 };
static struct kvpull_blocks block = { .block_count = 1, .block_ids = (uint32_t[]){ 0 } };
#define BLOCK .groups = &block, .group_bytes = sizeof(block), .group_count = 1

int main(int argc, char **argv)
{
	const struct kvpull_scheduler_ops *s = kvpull_connector_v1()->scheduler; /* keeps the books */
	const struct kvpull_worker_ops *w = kvpull_connector_v1()->worker; /* has memory and peers */
	static char ticket[4096], info[1024];
	struct kvpull_open_params params = { sizeof(params), .engine_id = argv[argc - 1], .model = &model,
		.tp_size = 1, .groups = &group, .group_bytes = sizeof(group), .group_count = 1 };
	struct kvpull_error_detail why = { .struct_size = sizeof(why) };
	struct kvpull_memory memory = { .struct_size = sizeof(memory) };
	struct kvpull_request request = { sizeof(request), .key = 1, .prompt_tokens = 16, .ticket = ticket };
	struct kvpull_finish finish = { sizeof(finish), .key = 1, .computed_tokens = 16, BLOCK,
		.ticket = ticket, .ticket_capacity = sizeof(ticket) };
	struct kvpull_allocation room = { sizeof(room), .key = 1, BLOCK };
	struct kvpull_poll_record end;
	struct kvpull_scheduler *scheduler;
	struct kvpull_worker *worker;
	size_t n;

	if (s->open(&params, &scheduler, &why) || w->open(&params, &worker, &why) ||
	    w->memory_alloc(worker, 4096, 0, &memory) || !(region.base = memory.base) ||
	    w->regions_register(worker, &regions, &why) || s->worker_attach(scheduler, worker) ||
	    w->rank_info(worker, info, sizeof(info), &n) || s->rank_info(scheduler, info, n))
		return fprintf(stderr, "%s: %s\n", why.field, why.message), 1;

	if (*params.engine_id == 'P') { /* computes the block, and keeps it for who has the ticket */
		snprintf(memory.base, region.bytes, "hello from the memory of P");
		request.flags = KVPULL_REQUEST_WANTS_HOLD;
		if (s->request_new(scheduler, &request) ||
		    s->request_finished(scheduler, &finish) != KVPULL_FINISH_HELD)
			return fprintf(stderr, "P holds nothing\n"), 1;
		dprintf(1, "%s\n", ticket); /* standard output: the pipe */
	} else { /* takes the ticket, and a block of its own that the bytes land in */
		request.ticket_bytes = scanf("%4095s", ticket) == 1 ? strlen(ticket) : 0;
		request.flags = KVPULL_REQUEST_PULL;
		if (s->request_new(scheduler, &request) ||
		    s->matched_tokens(scheduler, 1, 0, &room.external_tokens) != KVPULL_MATCH_LOAD ||
		    s->allocated(scheduler, &room) ||
		    s->step_build(scheduler, info, sizeof(info), &n) || w->start_loads(worker, NULL))
			return fprintf(stderr, "D has no ticket of P's\n"), 1;
	}

	while (!w->poll(worker, &end, 1, sizeof(end))) /* SENT at P, LOADED or FAILED at D */
		poll(&(struct pollfd){ w->event_fd(worker), POLLIN, 0 }, 1, 100);
	fprintf(stderr, "%s: %s\n", params.engine_id, end.kind == KVPULL_POLL_LOADED ?
		(char *)memory.base : kvpull_connector_v1()->error_text(end.reason));
	w->close(worker); /* at D that releases the ticket: P's hold ends */
	s->close(scheduler);
	return end.reason;
}
