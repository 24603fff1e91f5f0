/* SPDX-License-Identifier: Apache-2.0 */
#include "shm/gate.h"

#include <stdatomic.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"
#include "shm/shortage.h"

static void refused_add(const struct kvpull_gate *gate)
{
	if (gate->refused)
		atomic_fetch_add_explicit(gate->refused, 1,
					  memory_order_relaxed);
}

int kvpull_gate_knows(struct kvpull_gate *gate, uint32_t uid, uint64_t now_ns)
{
	if (kvpull_users_believe(&gate->users, uid))
		return 1;
	refused_add(gate);
	gate->strangers++;
	if (kvpull_second_passed(&gate->stranger_said_ns, now_ns)) {
		kvpull_warn(
			gate->log,
			"consumer refused: user %u %s (%u calls of strangers)",
			uid, kvpull_users_doubt(&gate->users, uid),
			gate->strangers);
		gate->strangers = 0;
	}
	return 0;
}

void kvpull_gate_crowd(struct kvpull_gate *gate, uint32_t uid, uint64_t now_ns)
{
	refused_add(gate);
	if (kvpull_second_passed(&gate->crowd_said_ns, now_ns))
		kvpull_warn(
			gate->log,
			"too many callers have not said who they are: one of user %u is to call again",
			uid);
}

int kvpull_gate_reserves(struct kvpull_gate *gate, int fd, uint64_t now_ns)
{
	struct rlimit limit;
	rlim_t reserve;

	if (fd < 0 || getrlimit(RLIMIT_NOFILE, &limit))
		return 0;
	reserve = limit.rlim_cur / 4;
	if (reserve > KVPULL_GATE_RESERVE_MAX)
		reserve = KVPULL_GATE_RESERVE_MAX;
	if ((rlim_t)fd < limit.rlim_cur - reserve)
		return 0;
	if (kvpull_second_passed(&gate->reserve_said_ns, now_ns))
		kvpull_warn(
			gate->log,
			"a consumer waits: the last %llu of %llu descriptors are the engine's: raise ulimit -n",
			(unsigned long long)reserve,
			(unsigned long long)limit.rlim_cur);
	return 1;
}
