/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A consumer's call to its producer: who serves there, whether its blocks are
 * like ours, what it answers, and what to do while it is gone or has no room.
 */
#include "base/fd.h"
#include "tools/ib_pull_parts.h"

#define AGAIN_NS 5000000 /* between two calls of one that is gone */
/* Between two asks of one that has no room; longer, once that lasts. */
#define FULL_NS 200000
#define FULL_LONG_NS 10000000

/* 0, or -1: the producer is gone. */
static int ask_quietly(struct ib_call *call, const struct ib_ask *what)
{
	if (call->control < 0 ||
	    ib_control_send(call->control, what, sizeof(*what)))
		return -1;
	return ib_control_answer_take(call->control, &call->message,
				      call->options->stop);
}

int ib_call_ask(struct ib_call *call, const struct ib_ask *what)
{
	if (!ask_quietly(call, what))
		return 0;
	if (!*call->options->stop)
		fprintf(stderr, "the producer is gone\n");
	return 1;
}

void ib_call_give(struct ib_call *call)
{
	const struct ib_ask what = { .kind = IB_ASK_GIVE };

	/* A producer that is gone is said by the next ask. */
	(void)ask_quietly(call, &what);
}

/*
 * Tickets of other shapes are refused, each after its blocks were held. 0; 1: the
 * producer is unlike us, which was said; -1: it did not answer.
 */
static int producer_look(struct ib_call *call)
{
	const struct engine_shape *shape = &call->options->shape;
	const struct ib_ask what = { .kind = IB_ASK_STATS };
	const struct ib_answer *answer = &call->message.answer;

	if (ib_call_ask(call, &what))
		return -1;
	call->pool_blocks = answer->blocks_all;
	if (answer->block_bytes == shape->block_bytes &&
	    answer->layer_count == shape->layer_count &&
	    answer->group_count == shape->group_count)
		return 0;
	fprintf(stderr,
		"the producer has --size %u --layers %u --groups %u: give the same here\n",
		answer->block_bytes, answer->layer_count, answer->group_count);
	return 1;
}

int ib_call_open(struct ib_call *call, const struct ib_options *options)
{
	int code;

	call->options = options;
	call->pool_blocks = UINT64_MAX;
	call->control = ib_control_connect(options, IB_CALL_FIRST);
	if (call->control < 0)
		return 1;
	code = producer_look(call);
	return code < 0 ? ib_call_again(call) : code;
}

void ib_call_close(struct ib_call *call)
{
	kvpull_fd_close(&call->control);
}

int ib_call_again(struct ib_call *call)
{
	const uint64_t now_ns = engine_now_ns();
	int code = -1;

	if (!call->lost_ns)
		call->lost_ns = now_ns;
	if (now_ns - call->lost_ns >= call->options->retry_s * KVPULL_NS_PER_S)
		return 1;
	kvpull_fd_close(&call->control);
	call->control = ib_control_connect(call->options, IB_CALL_AGAIN);
	if (call->control >= 0)
		code = producer_look(call);
	if (!code) {
		call->lost_ns = 0;
		return 0;
	}
	kvpull_fd_close(&call->control);
	ib_nap(AGAIN_NS);
	return code > 0;
}

void ib_call_full(struct ib_call *call)
{
	const uint64_t now_ns = engine_now_ns();
	uint32_t is_long;

	if (!call->full_ns)
		call->full_ns = now_ns;
	is_long = now_ns - call->full_ns >= KVPULL_NS_PER_S;
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
	struct ib_call call = { .options = options,
				.control = ib_control_connect(options,
							      IB_CALL_FIRST) };
	const int failed = call.control < 0 || ib_call_ask(&call, &what);

	if (!failed)
		*answer = call.message.answer;
	ib_call_close(&call);
	return failed;
}
