/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The gate around each call of a device's table: a call of a driver may never
 * return. The owner can abandon a thread that is in such a call, and only then;
 * all that the thread has is the owner's from there on. If the call returns after
 * all, its thread touches nothing and sleeps until the process ends.
 *
 * field       written by     order    read by  order    pair   why
 * in_call_ns  thread, owner  release  owner    acquire  G0/G1  the thread's state is whole before the owner takes it
 */
#ifndef KVPULL_DEVICE_GATE_H
#define KVPULL_DEVICE_GATE_H

#include <stdatomic.h>
#include <stdint.h>
#include <unistd.h>

#define KVPULL_DEVICE_ABANDONED UINT64_MAX

struct kvpull_device_gate {
	/* When the call began; 0: there is none; or _ABANDONED. */
	_Atomic uint64_t in_call_ns;
};

/* Thread: before a call; now_ns is not 0. */
static inline void kvpull_device_gate_enter(struct kvpull_device_gate *gate,
					    uint64_t now_ns)
{
	/* G0: pairs with G1 in kvpull_device_gate_abandon(). */
	atomic_store_explicit(&gate->in_call_ns, now_ns, memory_order_release);
}

/* Thread: after the call that began at now_ns. Does not return if abandoned. */
static inline void kvpull_device_gate_leave(struct kvpull_device_gate *gate,
					    uint64_t now_ns)
{
	uint64_t expected = now_ns;

	if (atomic_compare_exchange_strong_explicit(
		    &gate->in_call_ns, &expected, 0, memory_order_relaxed,
		    memory_order_relaxed))
		return;
	/* All signals are blocked. No pthread_exit(): that loads a library. */
	for (;;)
		(void)pause();
}

/* Owner: when the call that goes on began; 0: there is none, or it is abandoned. */
static inline uint64_t
kvpull_device_gate_call(const struct kvpull_device_gate *gate)
{
	const uint64_t began_ns =
		atomic_load_explicit(&gate->in_call_ns, memory_order_relaxed);

	return began_ns == KVPULL_DEVICE_ABANDONED ? 0 : began_ns;
}

/* Owner: 1: a call that began at or before since_ns goes on, and is abandoned. */
static inline int kvpull_device_gate_abandon(struct kvpull_device_gate *gate,
					     uint64_t since_ns)
{
	/* G1: pairs with G0; of this very call, or of none. */
	uint64_t began_ns =
		atomic_load_explicit(&gate->in_call_ns, memory_order_relaxed);

	return began_ns && began_ns <= since_ns &&
	       atomic_compare_exchange_strong_explicit(
		       &gate->in_call_ns, &began_ns, KVPULL_DEVICE_ABANDONED,
		       memory_order_acquire, memory_order_relaxed);
}

#endif /* KVPULL_DEVICE_GATE_H */
