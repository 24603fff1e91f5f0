// SPDX-License-Identifier: Apache-2.0
/*
 * A half pair, as an engine opens and steps it. What is timed is in
 * consumer_pull(): between its two ends there is nothing but calls of the ABI.
 */
#include "tests/bench/node.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/pause.h"
#include "tests/lib/counts.h"
#include "tests/lib/host.h"

#define STEP_BYTES (8u << 20)
#define HEADS 4u
#define PACE_PAUSES 100u
#define RECORDS 256
#define WAIT_NS (20 * KVPULL_NS_PER_S)

static void log_line(void *context, uint32_t level, const char *message)
{
	(void)context;
	(void)level;
	fprintf(stderr, "kvpull: %s\n", message);
}

static const struct kvpull_host host = { .struct_size = sizeof(host),
					 .log = log_line,
					 .log_level = KVPULL_LOG_WARN };

static int said(const char *what, const struct kvpull_error_detail *detail,
		int code)
{
	fprintf(stderr, "bench: %s: %s %s (%d)\n", what, detail->field,
		detail->message, code);
	return code;
}

static int memory_take(struct halves *halves, const struct node_params *params)
{
	struct kvpull_memory memory = { .struct_size = sizeof(memory) };
	int code;

	halves->memory_bytes =
		(uint64_t)params->block_bytes * params->block_count;
	halves->memory = params->memory;
	if (params->memory)
		return 0;
	code = halves->ops->worker->memory_alloc(halves->worker,
						 halves->memory_bytes,
						 KVPULL_MEMORY_HUGE, &memory);
	if (code)
		return code;
	halves->memory = memory.base;
	halves->memory_fd = memory.fd;
	halves->huge_bytes = memory.huge_bytes;
	halves->provider_ns = memory.took_ns;
	return 0;
}

static int regions_register(struct halves *halves,
			    const struct node_params *params,
			    struct kvpull_error_detail *detail)
{
	const struct kvpull_region region = {
		.struct_size = sizeof(region),
		.kind = params->memory ? KVPULL_REGION_FOREIGN :
					 KVPULL_REGION_PROVIDED,
		.fd = -1,
		.base = halves->memory,
		.bytes = halves->memory_bytes,
	};
	const struct kvpull_cache cache = {
		.struct_size = sizeof(cache),
		.layer_count = 1,
		.layer_stride = halves->memory_bytes,
		.block_stride = params->block_bytes,
		.head_stride = params->block_bytes / HEADS,
		.block_count = params->block_count,
		.row_count = 1,
		.head_count = HEADS,
		.head_bytes = params->block_bytes / HEADS,
	};
	const struct kvpull_regions regions = host_regions(&region, &cache);

	return halves->ops->worker->regions_register(halves->worker, &regions,
						     detail);
}

int halves_open(struct halves *halves, const struct node_params *params)
{
	static uint32_t opened;
	struct kvpull_error_detail detail = { .struct_size = sizeof(detail) };
	const struct kvpull_group group = { .block_tokens = 1 };
	const struct kvpull_model model = {
		.struct_size = sizeof(model),
		.model = "bench",
		.dtype = "bytes",
		.layout = "LBHNC",
		.layer_count = 1,
		.head_count = HEADS,
		.head_bytes = params->block_bytes / HEADS,
	};
	char config[512];
	char engine_id[32];
	struct kvpull_open_params open =
		host_params(engine_id, config, &model, &group);
	int code;

	open.host = &host;
	*halves = (struct halves){ .ops = kvpull_connector_v1(),
				   .memory_fd = -1,
				   .event_fd = -1,
				   .next_key = 1 };
	(void)snprintf(config, sizeof(config), "{\"socket_dir\":\"%s\"%s}",
		       params->dir, params->more ? params->more : "");
	(void)snprintf(engine_id, sizeof(engine_id), "bench-%u", ++opened);
	halves->bytes = malloc(STEP_BYTES);
	if (!halves->bytes)
		return said("open", &detail, KVPULL_ENOMEM);
	code = halves->ops->scheduler->open(&open, &halves->scheduler, &detail);
	if (!code)
		code = halves->ops->worker->open(&open, &halves->worker,
						 &detail);
	if (!code)
		code = memory_take(halves, params);
	if (!code)
		code = regions_register(halves, params, &detail);
	if (!code)
		code = host_introduce(halves->worker, halves->scheduler);
	return code ? said("open", &detail, code) : 0;
}

void halves_close(struct halves *halves)
{
	if (halves->worker)
		halves->ops->worker->close(halves->worker);
	if (halves->scheduler)
		halves->ops->scheduler->close(halves->scheduler);
	free(halves->bytes);
	*halves = (struct halves){ .event_fd = -1 };
}

void halves_sleep(struct halves *halves)
{
	halves->event_fd = halves->ops->worker->event_fd(halves->worker);
}

int halves_step_build(struct halves *halves, size_t *byte_count)
{
	return halves->ops->scheduler->step_build(
		halves->scheduler, halves->bytes, STEP_BYTES, byte_count);
}

static int step_apply(struct halves *halves, size_t byte_count)
{
	const int code = halves->ops->worker->step(halves->worker,
						   halves->bytes, byte_count);

	return code ? code :
		      halves->ops->worker->start_loads(halves->worker, NULL);
}

int halves_step(struct halves *halves)
{
	size_t byte_count = 0;
	const int code = halves_step_build(halves, &byte_count);

	return code || !byte_count ? code : step_apply(halves, byte_count);
}

int halves_result(struct halves *halves)
{
	size_t byte_count = 0;
	int code;

	code = halves->ops->worker->result_build(halves->worker, halves->bytes,
						 STEP_BYTES, &byte_count);
	if (!code && byte_count)
		code = halves->ops->scheduler->result_take(
			halves->scheduler, halves->bytes, byte_count);
	return code;
}

int ticket_open(struct ticket *ticket)
{
	*ticket = (struct ticket){ .text = malloc(KVPULL_TICKET_BYTES_MAX) };
	return ticket->text ? 0 : KVPULL_ENOMEM;
}

void ticket_close(struct ticket *ticket)
{
	free(ticket->text);
	ticket->text = NULL;
}

int consumer_show(struct halves *consumer, const struct ticket *ticket,
		  struct admission *admission)
{
	const struct kvpull_request request = {
		.struct_size = sizeof(request),
		.key = consumer->next_key++,
		.ticket = ticket->text,
		.ticket_bytes = ticket->byte_count,
		.prompt_tokens = ticket->block_count,
		.flags = KVPULL_REQUEST_PULL,
	};
	const uint64_t start_ns = kvpull_clock_ns();
	uint32_t tokens = 0;
	int code;

	admission->key = request.key;
	code = consumer->ops->scheduler->request_new(consumer->scheduler,
						     &request);
	if (!code)
		code = halves_step(consumer);
	if (!code && consumer->ops->scheduler->matched_tokens(
			     consumer->scheduler, request.key, 0, &tokens) !=
			     KVPULL_MATCH_LOAD)
		code = KVPULL_EMISMATCH;
	admission->took_ns = kvpull_clock_ns() - start_ns;
	return code;
}

int consumer_claim(struct halves *consumer)
{
	struct kvpull_poll_record record;

	return consumer->ops->worker->poll(consumer->worker, &record, 1,
					   sizeof(record)) ?
		       KVPULL_EREAD :
		       0;
}

int consumer_admit(struct halves *consumer, const struct ticket *ticket,
		   struct admission *admission)
{
	const int code = consumer_show(consumer, ticket, admission);

	return code ? code : consumer_claim(consumer);
}

int consumer_allocate(struct halves *consumer, uint64_t key,
		      const uint32_t *ids, uint32_t block_count)
{
	const struct kvpull_blocks blocks = { .block_count = block_count,
					      .block_ids = ids };
	const struct kvpull_allocation allocation = {
		.struct_size = sizeof(allocation),
		.key = key,
		.external_tokens = block_count,
		.group_count = 1,
		.groups = &blocks,
		.group_bytes = sizeof(blocks),
	};

	return consumer->ops->scheduler->allocated(consumer->scheduler,
						   &allocation);
}

void bench_pace(void)
{
	uint32_t left;

	for (left = PACE_PAUSES; left; left--)
		kvpull_pause();
}

static void wait_event(const struct halves *halves)
{
	struct pollfd waited = { .fd = halves->event_fd, .events = POLLIN };

	if (halves->event_fd >= 0)
		(void)poll(&waited, 1, 1000);
	else if (halves->paces)
		bench_pace();
}

int consumer_wait_loaded(struct halves *consumer, uint32_t count,
			 uint64_t *first_ns)
{
	const uint64_t until = kvpull_clock_ns() + WAIT_NS;
	struct kvpull_poll_record records[RECORDS];
	int code = 0;

	while (count) {
		const int polled = consumer->ops->worker->poll(
			consumer->worker, records, RECORDS, sizeof(*records));
		int at;

		if (polled > 0 && first_ns && !*first_ns)
			*first_ns = kvpull_clock_ns();
		for (at = 0; at < polled; at++, count--)
			if (records[at].kind != KVPULL_POLL_LOADED)
				code = records[at].reason;
		if (polled > 0)
			continue;
		if (polled < 0 || kvpull_clock_ns() > until)
			return polled < 0 ? polled : KVPULL_EDEADLINE;
		wait_event(consumer);
	}
	return code;
}

void consumer_wait_notified(struct halves *consumer)
{
	const uint64_t until = kvpull_clock_ns() + KVPULL_NS_PER_S;

	while (worker_counts(consumer->ops->worker, consumer->worker)
		       .releases_queued &&
	       kvpull_clock_ns() < until)
		(void)consumer->ops->worker->progress(consumer->worker, 64);
}

int consumer_finish(struct halves *consumer, uint64_t key)
{
	struct kvpull_finish finish = {
		.struct_size = sizeof(finish),
		.key = key,
	};
	int code = halves_result(consumer);

	if (!code)
		code = consumer->ops->scheduler->request_finished(
			consumer->scheduler, &finish);
	return code ? code : halves_step(consumer);
}

int consumer_pull(struct halves *consumer, const struct ticket *ticket,
		  const uint32_t *ids, struct pull_times *times)
{
	struct admission admission;
	size_t byte_count = 0;
	int code;

	code = consumer_admit(consumer, ticket, &admission);
	if (code)
		return code;
	times->admit_ns = admission.took_ns;
	times->begin_ns = kvpull_clock_ns();
	code = consumer_allocate(consumer, admission.key, ids,
				 ticket->block_count);
	if (!code)
		code = halves_step_build(consumer, &byte_count);
	times->built_ns = kvpull_clock_ns();
	if (!code)
		code = step_apply(consumer, byte_count);
	times->posted_ns = kvpull_clock_ns();
	if (!code)
		code = consumer_wait_loaded(consumer, 1, NULL);
	times->loaded_ns = kvpull_clock_ns();
	consumer_wait_notified(consumer);
	return code ? code : consumer_finish(consumer, admission.key);
}
