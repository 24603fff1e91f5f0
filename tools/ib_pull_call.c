/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A consumer's call to its producer: who serves there, whether its blocks are
 * like ours, what it answers, and what to do while it is gone or has no room.
 */
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "tools/ib_pull_parts.h"

#define NS_PER_S UINT64_C(1000000000)
#define AGAIN_NS 5000000 /* between two calls of one that is gone */
/* Between two asks of one that has no room; longer, once that lasts. */
#define FULL_NS 200000
#define FULL_LONG_NS 10000000

int ib_call_ask(struct ib_call *call, const struct ib_ask *what,
		struct ib_answer *answer)
{
	if (!ib_control_send(call->control, what, sizeof(*what)) &&
	    !ib_control_answer_take(call->control, call->message, answer,
				    call->options->stop))
		return 0;
	if (!*call->options->stop)
		fprintf(stderr, "the producer is gone\n");
	return 1;
}

void ib_call_give(struct ib_call *call)
{
	const struct ib_ask what = { .kind = IB_ASK_GIVE };
	struct ib_answer answer;

	/* A producer that is gone is said by the next ask. */
	if (call->control >= 0 &&
	    !ib_control_send(call->control, &what, sizeof(what)))
		(void)ib_control_answer_take(call->control, call->message,
					     &answer, call->options->stop);
}

static int message_make(struct ib_call *call)
{
	call->message = malloc(IB_TICKET_BYTES_MAX + sizeof(struct ib_answer));
	if (call->message)
		return 0;
	fprintf(stderr, "out of memory\n");
	return 1;
}

enum likeness {
	LIKE_US,
	LIKE_NOBODY, /* it did not answer */
	UNLIKE_US
};

/* Tickets of other shapes are refused, each after its blocks were held. */
static enum likeness producer_look(struct ib_call *call)
{
	const struct engine_shape *shape = &call->options->shape;
	const struct ib_ask what = { .kind = IB_ASK_STATS };
	struct ib_answer answer;

	if (ib_call_ask(call, &what, &answer))
		return LIKE_NOBODY;
	call->pool_blocks = answer.blocks_all;
	if (answer.block_bytes == shape->block_bytes &&
	    answer.layer_count == shape->layer_count &&
	    answer.group_count == shape->group_count)
		return LIKE_US;
	fprintf(stderr,
		"the producer has --size %u --layers %u --groups %u: give the same here\n",
		answer.block_bytes, answer.layer_count, answer.group_count);
	return UNLIKE_US;
}

int ib_call_open(struct ib_call *call, const struct ib_options *options)
{
	call->options = options;
	call->pool_blocks = UINT64_MAX;
	if (message_make(call))
		return 1;
	call->control = ib_control_connect(options);
	if (call->control < 0)
		return 1;
	switch (producer_look(call)) {
	case LIKE_US:
		return 0;
	case LIKE_NOBODY:
		return ib_call_again(call);
	default:
		return 1;
	}
}

void ib_call_close(struct ib_call *call)
{
	kvpull_fd_close(&call->control);
	free(call->message);
	call->message = NULL;
}

int ib_call_again(struct ib_call *call)
{
	const uint64_t now_ns = engine_now_ns();
	enum likeness likeness = LIKE_NOBODY;

	if (!call->lost_ns)
		call->lost_ns = now_ns;
	if (now_ns - call->lost_ns >= call->options->retry_s * NS_PER_S)
		return 1;
	kvpull_fd_close(&call->control);
	call->control = ib_control_try(call->options);
	if (call->control >= 0)
		likeness = producer_look(call);
	if (likeness == LIKE_US) {
		call->lost_ns = 0;
		return 0;
	}
	kvpull_fd_close(&call->control);
	ib_nap(AGAIN_NS);
	return likeness == UNLIKE_US;
}

void ib_call_full(struct ib_call *call)
{
	const uint64_t now_ns = engine_now_ns();
	uint32_t is_long;

	if (!call->full_ns)
		call->full_ns = now_ns;
	is_long = now_ns - call->full_ns >= NS_PER_S;
	if (is_long && !call->full_is_said) {
		call->full_is_said = 1;
		fprintf(stderr,
			"the producer has no room: waiting until its holds end\n");
	}
	ib_nap(is_long ? FULL_LONG_NS : FULL_NS);
}

int ib_ask_stats(const struct ib_options *options, struct ib_answer *answer)
{
	const struct ib_ask what = { .kind = IB_ASK_STATS };
	struct ib_call call = { .options = options, .control = -1 };
	int failed = 1;

	call.control = ib_control_connect(options);
	if (call.control >= 0 && !message_make(&call))
		failed = ib_call_ask(&call, &what, answer);
	ib_call_close(&call);
	return failed;
}
