/* SPDX-License-Identifier: Apache-2.0 */
/* Worker half, progress side: our hello to a producer, and its welcome. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/params.h"
#include "plugin/progress/progress_state.h"

size_t kvpull_remote_hello(void *own, const struct kvpull_peer *peer,
			   const uint8_t theirs[KVPULL_NONCE_BYTES],
			   uint8_t *bytes)
{
	const struct kvpull_progress *progress = own;
	const struct kvpull_remote *remote = (const struct kvpull_remote *)peer;
	struct kvpull_hello *hello = progress->scratch.hello;

	memset(hello, 0, sizeof(*hello));
	hello->sealed.version = progress->facts->config.wire_emit;
	hello->compat = progress->facts->compat;
	hello->instance = progress->claims.instance_id;
	hello->incarnation = remote->self;
	hello->wanted = remote->incarnation;
	hello->rank = progress->facts->stage.rank;
	hello->rank_count = progress->facts->stage.rank_count;
	hello->pid = (uint32_t)getpid();
	memcpy(hello->engine_id, progress->facts->engine_id,
	       sizeof(hello->engine_id));
	memcpy(hello->nonce, peer->nonce, sizeof(hello->nonce));
	return kvpull_handshake_put_hello(
		bytes, KVPULL_MESSAGE_BYTES_MAX, hello,
		kvpull_config_key(&progress->facts->config), theirs);
}

static void side_fill(const struct kvpull_facts *facts,
		      const struct kvpull_stage *stage,
		      const struct kvpull_welcome *welcome,
		      const struct kvpull_serve *view,
		      struct kvpull_plan_side *side)
{
	memset(side, 0, sizeof(*side));
	side->replicated = facts->compat.replicated;
	side->head_total = facts->compat.head_count;
	side->group_count = facts->compat.group_count;
	side->groups = facts->compat.groups;
	side->caches = welcome ? welcome->caches : facts->caches;
	side->cache_count = welcome ? welcome->cache_count : facts->cache_count;
	side->region_count =
		welcome ? welcome->region_count : facts->serve.region_count;
	side->regions = view->regions;
	side->tp_rank = kvpull_stage_tp_rank(stage);
	side->tp_size = kvpull_stage_tp_size(stage);
}

/* The peer's memory does not fit ours, or cannot be read. Return: the code. */
static int memory_refuse(struct kvpull_refusal *refusal, int code,
			 const char *field, const char *why)
{
	kvpull_refusal_texts(refusal, KVPULL_EREJECTED, "", why, "registered");
	(void)snprintf(refusal->field, sizeof(refusal->field), "memory (%.40s)",
		       field);
	/* EFULL, more strips than a plan has, never passes. */
	return code == KVPULL_EINVAL ? KVPULL_EPROTO :
	       code == KVPULL_EFULL  ? KVPULL_EUNSUPPORTED :
				       code;
}

/* What the peer said of its memory is hostile until the plan checked it. */
static int memory_check(struct kvpull_progress *progress,
			struct kvpull_remote *remote,
			struct kvpull_refusal *refusal)
{
	const struct kvpull_facts *facts = progress->facts;
	const struct kvpull_welcome *welcome = progress->scratch.welcome;
	struct kvpull_error_detail detail = { .struct_size = sizeof(detail) };
	struct kvpull_serve *view = progress->scratch.view;
	struct kvpull_plan_side local;
	struct kvpull_plan_side theirs;
	int code;

	kvpull_welcome_view(welcome->regions, welcome->region_count,
			    welcome->entries_address, welcome->slot_count,
			    view);
	view->device_count = welcome->device_count;
	memcpy(view->devices, welcome->devices, sizeof(view->devices));
	side_fill(facts, &remote->stage, welcome, view, &theirs);
	side_fill(facts, &facts->stage, NULL, &facts->serve, &local);
	code = kvpull_plan_check(&theirs, &detail);
	if (!code)
		kvpull_plan_layers(&theirs, &remote->stage);
	if (!code)
		code = kvpull_stage_check(&remote->stage,
					  facts->compat.layer_count, &detail);
	if (!code)
		code = kvpull_plan_make(&remote->plan, &local, &theirs,
					&detail);
	return code ? memory_refuse(refusal, code, detail.field,
				    detail.message) :
		      0;
}

/* The numbers of a welcome, which are in their bounds; layers come later. */
static void stage_take(struct kvpull_stage *stage,
		       const struct kvpull_welcome *welcome)
{
	*stage = (struct kvpull_stage){
		.rank = welcome->pp_rank * welcome->tp_size + welcome->tp_rank,
		.pp_size = welcome->pp_size ? welcome->pp_size : 1,
	};
	stage->rank_count = stage->pp_size * welcome->tp_size;
}

static int attach(const struct kvpull_peer *peer,
		  const struct kvpull_serve *view,
		  struct kvpull_refusal *refusal)
{
	struct kvpull_transport *transport = peer->route->transport;
	const int code = transport->ops->attach(transport, peer->handle, view);

	if (code == KVPULL_EPEER)
		return KVPULL_PEER_LOST;
	if (!code || code == KVPULL_EAGAIN)
		return code;
	return memory_refuse(refusal, code, "attach", kvpull_error_text(code));
}

/* A GPU's engines are told whose memory theirs is pulled from. */
static void device_say(const struct kvpull_serve *own,
		       const struct kvpull_serve *theirs,
		       struct kvpull_peer *peer)
{
	if (!own->device_count || !theirs->device_count)
		return;
	peer->why = memcmp(own->devices[0].uuid, theirs->devices[0].uuid,
			   sizeof(own->devices[0].uuid)) ?
			    KVPULL_DEVICE_WHY_OTHER :
			    "device: the same GPU";
}

int kvpull_remote_welcome(void *own, struct kvpull_peer *peer,
			  const struct kvpull_event *event,
			  struct kvpull_refusal *refusal)
{
	struct kvpull_progress *progress = own;
	struct kvpull_remote *remote = (struct kvpull_remote *)peer;
	struct kvpull_welcome *welcome = progress->scratch.welcome;
	int code;

	code = kvpull_handshake_get_welcome(
		event->data, event->data_bytes,
		kvpull_config_key(&progress->facts->config), peer->nonce,
		welcome);
	if (code == KVPULL_EVERSION)
		kvpull_refusal_version(refusal, &welcome->sealed);
	if (code)
		return code;
	/* Another incarnation has nothing of ours. */
	if (welcome->incarnation != remote->incarnation)
		return KVPULL_EPEER;
	stage_take(&remote->stage, welcome);
	remote->beat_every_ns = welcome->lease_ns / KVPULL_BEATS_A_LEASE;
	code = memory_check(progress, remote, refusal);
	if (!code)
		code = attach(peer, progress->scratch.view, refusal);
	if (!code)
		device_say(&progress->facts->serve, progress->scratch.view,
			   peer);
	return code;
}
