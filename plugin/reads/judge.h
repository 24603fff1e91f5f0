/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The judge of every read: are bytes that were copied from another process to be
 * believed? A guard is the entry of a hold, or of a pool's chunk, in the owner's
 * revocation table. The caller read it after the last byte of all data that it
 * guards, by the same route and from the same peer; only then is the answer true.
 *
 * Pure, and of any thread: the progress thread judges tickets, the engine's thread
 * small pulls, and the thread that polls a pool its chunks.
 */
#ifndef KVPULL_PLUGIN_READS_JUDGE_H
#define KVPULL_PLUGIN_READS_JUDGE_H

#include "base/log.h"
#include "base/revocation.h"

enum kvpull_guard_kind {
	KVPULL_GUARD_HOLD,    /* the hold of this generation has not ended */
	KVPULL_GUARD_WRITTEN, /* likewise, and its blocks are written */
	KVPULL_GUARD_CHUNK    /* the chunk has this generation, and no other */
};

/*
 * Judge data of this generation, of the owner with this incarnation.
 * Return: 0: they are believed.
 *   KVPULL_EEXPIRED  the hold has ended, or its worker is another
 *   KVPULL_EAGAIN    _WRITTEN: the hold lives, and its blocks are not written yet
 *   KVPULL_ESTALE    _CHUNK: it was bumped since, has not begun that generation, or
 *                    is of another owner
 */
int KVPULL_MUST_CHECK
kvpull_guard_judge(enum kvpull_guard_kind kind,
		   const struct kvpull_revocation_value *guard,
		   uint64_t incarnation, uint64_t generation);

#endif /* KVPULL_PLUGIN_READS_JUDGE_H */
