/* SPDX-License-Identifier: Apache-2.0 */
#include "verbs/gate.h"

struct waiting {
	uint32_t count;
	struct kvpull_verbs_bundle *oldest;
};

static void waiting_add(struct waiting *waiting,
			struct kvpull_verbs_bundle *bundle)
{
	waiting->count++;
	if (!waiting->oldest || bundle->since_ns < waiting->oldest->since_ns)
		waiting->oldest = bundle;
}

static int is_waiting(const struct kvpull_verbs_bundle *bundle)
{
	return bundle->role == KVPULL_VERBS_CALLER &&
	       bundle->state == KVPULL_BUNDLE_MEETING;
}

int kvpull_verbs_gate_is_full(const struct kvpull_verbs_connect *connect)
{
	uint32_t admitted = 0;
	uint32_t at;

	for (at = 0; at < connect->active_count; at++)
		admitted +=
			kvpull_verbs_connect_bundle(connect, at)->ring != NULL;
	return admitted >= connect->shared->params.callers_max;
}

int kvpull_verbs_gate_pass(const struct kvpull_verbs_connect *connect,
			   const struct kvpull_verbs_address *from)
{
	const struct kvpull_verbs_shared *shared = connect->shared;
	struct waiting all = { 0 };
	struct waiting near = { 0 };
	struct kvpull_verbs_bundle *goes;
	uint32_t at;

	for (at = 0; at < connect->active_count; at++) {
		struct kvpull_verbs_bundle *bundle =
			kvpull_verbs_connect_bundle(connect, at);

		if (!is_waiting(bundle))
			continue;
		waiting_add(&all, bundle);
		if (kvpull_verbs_address_is(&bundle->from, from))
			waiting_add(&near, bundle);
	}
	if (near.count >= KVPULL_VERBS_WAITING_ADDRESS_MAX)
		goes = near.oldest;
	else if (all.count >= KVPULL_VERBS_WAITING_MAX)
		goes = all.oldest;
	else
		return 0;
	if (shared->now_ns - goes->since_ns < KVPULL_VERBS_WAITING_NS)
		return KVPULL_EFULL;
	/* Not logged: of a flood the refusals are, once a second. */
	kvpull_verbs_bundle_lose(goes, KVPULL_EPEER, NULL);
	return 0;
}
