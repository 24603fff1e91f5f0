/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Worker half, progress side, consumer's role: what a producer says when it is
 * met, and what we answer. Nothing here ends a connection: its caller does, of
 * whoever is no good.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <sodium.h>

#include "base/params.h"
#include "plugin/progress/progress_state.h"

static int is_allowed(struct kvpull_progress *progress,
		      const struct kvpull_remote *remote, uint32_t uid)
{
	struct kvpull_users users;

	if (kvpull_route_trusts(remote->route, &progress->facts->config, uid))
		return 1;
	users = kvpull_config_users(&progress->facts->config);
	kvpull_warn(progress->log, "peer %s is not asked: its user %u %s",
		    remote->address, uid, kvpull_users_doubt(&users, uid));
	return 0;
}

int kvpull_remote_greet(struct kvpull_progress *progress,
			struct kvpull_remote *remote,
			const struct kvpull_event *event)
{
	struct kvpull_transport *transport = remote->route->transport;
	const uint8_t *key = kvpull_config_key(&progress->facts->config);
	struct kvpull_hello *hello = progress->hello;
	uint8_t nonce[KVPULL_NONCE_BYTES];
	size_t byte_count;

	remote->code = is_allowed(progress, remote, event->uid) ?
			       kvpull_handshake_get_challenge(
				       event->data, event->data_bytes, nonce) :
			       KVPULL_EAUTH;
	if (remote->code)
		return remote->code;
	memset(hello, 0, sizeof(*hello));
	hello->sealed.version = progress->facts->config.wire_emit;
	hello->compat = progress->facts->compat;
	hello->instance = progress->instance_id;
	hello->incarnation = remote->self;
	hello->wanted = remote->incarnation;
	hello->rank = progress->facts->tp_rank;
	hello->rank_count = progress->facts->tp_size;
	hello->pid = (uint32_t)getpid();
	memcpy(hello->engine_id, progress->facts->engine_id,
	       sizeof(hello->engine_id));
	randombytes_buf(remote->nonce, sizeof(remote->nonce));
	memcpy(hello->nonce, remote->nonce, sizeof(hello->nonce));
	byte_count = kvpull_handshake_put_hello(
		progress->message, KVPULL_MESSAGE_BYTES_MAX, hello, key, nonce);
	remote->state = KVPULL_REMOTE_GREETED;
	return transport->ops->peer_send(transport, remote->handle,
					 progress->message, byte_count);
}

static void side_fill(const struct kvpull_progress *progress,
		      const struct kvpull_welcome *welcome,
		      const struct kvpull_serve *view,
		      struct kvpull_plan_side *side)
{
	memset(side, 0, sizeof(*side));
	side->replicated = progress->facts->compat.replicated;
	side->head_total = progress->facts->compat.head_count;
	side->caches = welcome ? welcome->caches : progress->facts->caches;
	side->cache_count =
		welcome ? welcome->cache_count : progress->facts->cache_count;
	side->region_count = welcome ? welcome->region_count :
				       progress->facts->serve.region_count;
	side->regions = view->regions;
	side->tp_rank = welcome ? welcome->tp_rank : progress->facts->tp_rank;
	side->tp_size = welcome ? welcome->tp_size : progress->facts->tp_size;
}

/* The producer is told why we do not read it. */
static void refusal_send(struct kvpull_progress *progress,
			 const struct kvpull_remote *remote,
			 const struct kvpull_refusal *refusal)
{
	struct kvpull_transport *transport = remote->route->transport;

	(void)transport->ops->peer_send(
		transport, remote->handle, progress->message,
		kvpull_handshake_put_refusal(
			progress->message, KVPULL_MESSAGE_BYTES_MAX, refusal));
}

/* A welcome that says more than we know: both sides are told. */
static void version_refuse(struct kvpull_progress *progress,
			   const struct kvpull_remote *remote)
{
	struct kvpull_refusal refusal;

	kvpull_refusal_version(&refusal, &progress->welcome->sealed);
	kvpull_warn(
		progress->log, "peer %s refused: %s is %s here and %s there",
		remote->address, refusal.field, refusal.ours, refusal.theirs);
	refusal_send(progress, remote, &refusal);
}

/* Memory that does not fit ours, or that cannot be read: likewise. */
static int memory_refuse(struct kvpull_progress *progress,
			 const struct kvpull_remote *remote, int code,
			 const struct kvpull_error_detail *detail)
{
	struct kvpull_refusal refusal;

	kvpull_error(progress->log, "peer %s refused: %s: %s", remote->address,
		     detail->field, detail->message);
	kvpull_refusal_texts(&refusal, KVPULL_EREJECTED, "", detail->message,
			     "registered");
	(void)snprintf(refusal.field, sizeof(refusal.field), "memory (%.40s)",
		       detail->field);
	refusal_send(progress, remote, &refusal);
	/* EFULL, more strips than a plan has, never passes. */
	return code == KVPULL_EINVAL ? KVPULL_EPROTO :
	       code == KVPULL_EFULL  ? KVPULL_EUNSUPPORTED :
				       code;
}

/* What the peer said of its memory is hostile until the plan checked it. */
int kvpull_remote_welcome(struct kvpull_progress *progress,
			  struct kvpull_remote *remote,
			  const struct kvpull_event *event)
{
	struct kvpull_welcome *welcome = progress->welcome;
	const uint8_t *key = kvpull_config_key(&progress->facts->config);
	struct kvpull_error_detail detail = { .struct_size = sizeof(detail) };
	struct kvpull_plan_side local;
	struct kvpull_plan_side theirs;
	struct kvpull_transport *transport = remote->route->transport;
	struct kvpull_serve *view = progress->view;
	int code;

	code = kvpull_handshake_get_welcome(event->data, event->data_bytes, key,
					    remote->nonce, welcome);
	if (code == KVPULL_EVERSION)
		version_refuse(progress, remote);
	if (code)
		return code;
	if (welcome->incarnation != remote->incarnation)
		return KVPULL_EPEER;
	kvpull_welcome_view(welcome->regions, welcome->region_count,
			    welcome->entries_address, welcome->slot_count,
			    view);
	side_fill(progress, welcome, view, &theirs);
	side_fill(progress, NULL, &progress->facts->serve, &local);
	code = kvpull_plan_check(&theirs, &detail);
	if (!code)
		code = kvpull_plan_make(&remote->plan, &local, &theirs,
					&detail);
	if (code)
		return memory_refuse(progress, remote, code, &detail);
	remote->tp_rank = welcome->tp_rank;
	remote->tp_size = welcome->tp_size;
	remote->beat_every_ns = welcome->lease_ns / KVPULL_BEATS_A_LEASE;
	code = transport->ops->attach(transport, remote->handle, view);
	/* The connection was lost meanwhile, which is no refusal. */
	if (code == KVPULL_EPEER)
		return KVPULL_EAGAIN;
	if (!code || code == KVPULL_EAGAIN)
		return code;
	kvpull_detail_set(&detail, code, "attach", "%s",
			  kvpull_error_text(code));
	return memory_refuse(progress, remote, code, &detail);
}

void kvpull_remote_refused(struct kvpull_progress *progress,
			   struct kvpull_remote *remote,
			   const struct kvpull_event *event)
{
	struct kvpull_refusal refusal;

	remote->code = kvpull_handshake_get_refusal(
		event->data, event->data_bytes, &refusal);
	if (remote->code)
		return;
	remote->code = refusal.code < 0 ? refusal.code : KVPULL_EPROTO;
	/* What passes is tried again: a pull that is late by it has a line. */
	if (remote->code == KVPULL_EAGAIN)
		kvpull_info(progress->log,
			    "peer %s is called again: %s is %s there (%s)",
			    remote->address, refusal.field, refusal.ours,
			    kvpull_error_name(remote->code));
	else if (!kvpull_retry_is_shortage(remote->code) ||
		 !remote->retry.wait_ns)
		kvpull_warn(
			progress->log,
			"peer %s refused us: %s is %s there and %s here (%s)",
			remote->address, refusal.field, refusal.ours,
			refusal.theirs, kvpull_error_name(remote->code));
}
