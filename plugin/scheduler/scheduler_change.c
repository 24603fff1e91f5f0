/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The scheduler half: weights and adapters that change while requests run.
 *
 * A request that ran over a change has KV of both, so it is never held. Neither
 * is a request that hits the prefix cache before that was cleared: judged at the
 * hit, since the cache may be clean again at the finish. A ticket names what its
 * bytes were computed with; the consumer computes with something else now.
 */
#include "plugin/scheduler/scheduler_state.h"

int kvpull_scheduler_changed(struct kvpull_scheduler *scheduler,
			     uint64_t adapter, uint64_t now_ns)
{
	uint32_t index;

	kvpull_scheduler_tick(scheduler, now_ns);
	kvpull_suspects_add(&scheduler->suspects, adapter);
	for (index = 0; index < scheduler->request_pool.touched; index++) {
		struct kvpull_scheduler_request *request =
			&scheduler->requests[index];

		if (!request->key || (adapter && request->adapter != adapter))
			continue;
		request->changed = 1;
		kvpull_demand_change(&scheduler->demand, &request->user,
				     request->key);
	}
	return 0;
}

int kvpull_scheduler_loaded(struct kvpull_scheduler *scheduler, uint64_t key)
{
	struct kvpull_scheduler_request *request =
		kvpull_scheduler_find(scheduler, key);

	if (!request || request->finished)
		return KVPULL_ENOKEY;
	return kvpull_demand_use(&request->user);
}
