/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The revocation table: what makes a read that came too late visible.
 *
 * One entry a hold slot, in memory that the producer writes and every consumer
 * can only read. A ticket's generation g is live while the entry's incarnation
 * is the ticket's and g > revoked.
 *
 * field        written by  order    read by   order    why
 * incarnation  producer    relaxed  consumer  relaxed  set once, before serving
 * revoked      producer    relaxed  consumer  relaxed  ordered by the two fences below
 * ready        producer    release  consumer  acquire  blocks are written before they are ready
 *
 * The three functions below hold the only stand-alone fences of the project. The
 * argument assumes multi-copy atomic memory (x86, ARMv8, RISC-V; not POWER).
 */
#ifndef KVPULL_BASE_REVOCATION_H
#define KVPULL_BASE_REVOCATION_H

#include <stdatomic.h>
#include <stdint.h>

struct kvpull_revocation_entry {
	_Atomic uint64_t incarnation;
	_Atomic uint64_t revoked; /* generations up to this one are dead */
	_Atomic uint64_t ready;   /* generations up to this one are written */
	uint64_t reserved;
};

/* A copy of an entry, as a consumer read it. */
struct kvpull_revocation_value {
	uint64_t incarnation;
	uint64_t revoked;
	uint64_t ready;
};

_Static_assert(sizeof(struct kvpull_revocation_entry) == 32,
	       "shared between processes and over the fabric");
_Static_assert(ATOMIC_LLONG_LOCK_FREE == 2, "entries are shared memory");

/*
 * Fences leave no trace: in debug builds a test may look on as entries are
 * written and fenced, and so see that each report comes after both.
 */
enum kvpull_revocation_act {
	KVPULL_REVOCATION_WRITTEN,
	KVPULL_REVOCATION_FENCED
};

#ifdef KVPULL_DEBUG
__attribute__((weak)) void (*kvpull_revocation_hook)(
	enum kvpull_revocation_act act);
#endif

static inline void kvpull_revocation_tell(enum kvpull_revocation_act act)
{
#ifdef KVPULL_DEBUG
	if (kvpull_revocation_hook)
		kvpull_revocation_hook(act);
#else
	(void)act;
#endif
}

/* Producer: this generation is dead. Nothing is promised before the fence. */
static inline void
kvpull_revocation_write(struct kvpull_revocation_entry *entry,
			uint64_t generation)
{
	atomic_store_explicit(&entry->revoked, generation,
			      memory_order_relaxed);
	kvpull_revocation_tell(KVPULL_REVOCATION_WRITTEN);
}

/* Producer: this slot is dead, with each generation to come. Likewise. */
static inline void
kvpull_revocation_close(struct kvpull_revocation_entry *entry)
{
	atomic_store_explicit(&entry->incarnation, 0, memory_order_relaxed);
	kvpull_revocation_tell(KVPULL_REVOCATION_WRITTEN);
}

/*
 * Producer: between the writes above and the first report of their end. Full:
 * a release fence lets a later non-temporal store into a reused block pass the
 * entry (seen). Once a poll, for all of its entries.
 */
static inline void kvpull_revocation_fence(void)
{
	atomic_thread_fence(memory_order_seq_cst);
	kvpull_revocation_tell(KVPULL_REVOCATION_FENCED);
}

/*
 * Consumer: after the last byte was copied. The fence keeps the loads of the
 * data above the loads of the entry.
 */
static inline struct kvpull_revocation_value
kvpull_revocation_read(const struct kvpull_revocation_entry *entry)
{
	struct kvpull_revocation_value value;

	atomic_thread_fence(memory_order_acquire);
	value.incarnation =
		atomic_load_explicit(&entry->incarnation, memory_order_relaxed);
	value.revoked =
		atomic_load_explicit(&entry->revoked, memory_order_relaxed);
	value.ready = atomic_load_explicit(&entry->ready, memory_order_acquire);
	return value;
}

/*
 * Reader of a directory: after an entry of it was read. What is read from here
 * on is not older than the entry.
 */
static inline void kvpull_revocation_seen(void)
{
	atomic_thread_fence(memory_order_acquire);
}

#endif /* KVPULL_BASE_REVOCATION_H */
