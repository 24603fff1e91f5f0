/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Worker half, progress side, consumer's role: peers' memory that the engine's
 * thread may copy small pulls from.
 *
 * The route closes a mapping when it loses the peer, and tells so (PEER_DOWN)
 * when no pin is left: what a mapping names, this peer's plan among it, changes
 * only between kvpull_lend_end() and the next kvpull_lend().
 */
#include "plugin/progress/progress_state.h"

void kvpull_lend(struct kvpull_progress *progress, uint32_t peer)
{
	const struct kvpull_remote *remote = &progress->remotes.all[peer];
	struct kvpull_transport *transport = remote->peer.route->transport;
	struct kvpull_lent *lent = &progress->handover->lent[peer];

	if (!transport->ops->lend ||
	    transport->ops->lend(transport, remote->peer.handle,
				 &lent->mapping))
		return;
	lent->plan = &remote->plan;
	lent->stage = remote->stage;
	/* These order nothing: the mapping's pin does. */
	if (peer >= atomic_load_explicit(&progress->handover->lent_end,
					 memory_order_relaxed))
		atomic_store_explicit(&progress->handover->lent_end, peer + 1,
				      memory_order_relaxed);
	atomic_store_explicit(&lent->incarnation, remote->incarnation,
			      memory_order_relaxed);
	kvpull_mapping_open(&lent->mapping);
}

void kvpull_lend_end(struct kvpull_progress *progress, uint32_t peer)
{
	struct kvpull_lent *lent = &progress->handover->lent[peer];

	kvpull_check(progress->log, kvpull_mapping_is_free(&lent->mapping));
	atomic_store_explicit(&lent->incarnation, 0, memory_order_relaxed);
}
