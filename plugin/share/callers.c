/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Readers of our share. A caller sees nothing of the share before its hello was
 * checked: user, key, version, and by name every part of the namespace. Then it
 * gets read-only descriptors, and no further message goes either way.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/params.h"
#include "plugin/share/share_state.h"

static int hello_check(void *own, struct kvpull_caller *caller,
		       const struct kvpull_event *event,
		       struct kvpull_refusal *refusal)
{
	struct kvpull_reader *share = own;
	const struct kvpull_config *config = &share->config;
	const uint32_t in_count = share->callers.in_count;
	struct kvpull_reader_hello *hello = share->hello;
	int code;

	code = kvpull_share_get_hello(event->data, event->data_bytes,
				      kvpull_config_key(config), caller->nonce,
				      hello);
	if (code) {
		kvpull_refusal_hello(refusal, code, &hello->sealed);
		return code;
	}
	(void)snprintf(caller->name, sizeof(caller->name), "%s pid %u",
		       hello->engine_id, hello->pid);
	if (share->is_ended) {
		kvpull_refusal_texts(refusal, KVPULL_EPEER, "share", "ended",
				     "wanted");
		return KVPULL_EPEER;
	}
	code = kvpull_share_naming_compare(&share->naming, &hello->naming,
					   refusal);
	if (!code && in_count >= config->consumers_max) {
		kvpull_refusal_numbers(refusal, KVPULL_EFULL, "consumers_max",
				       in_count, in_count + 1);
		code = KVPULL_EFULL;
	}
	return code;
}

static size_t welcome_put(void *own, const struct kvpull_caller *caller,
			  uint8_t *bytes)
{
	struct kvpull_reader *share = own;
	struct kvpull_share_welcome *welcome = share->welcome;

	memset(welcome, 0, sizeof(*welcome));
	welcome->sealed.version = share->config.wire_emit;
	welcome->incarnation = share->incarnation;
	welcome->chunk_bytes = share->chunk_bytes;
	welcome->guards_address = (uint64_t)(uintptr_t)share->guards.base;
	welcome->entry_count = share->terms.entry_count;
	welcome->chunk_count = share->terms.chunk_count;
	welcome->slot_count = share->terms.slot_count;
	welcome->pid = (uint32_t)share->pid;
	welcome->region_count = caller->route->transport->ops->reads_files ?
					share->serve->region_count :
					kvpull_serve_memory_count(share->serve);
	memcpy(welcome->namespace_digest, share->namespace_digest.bytes,
	       sizeof(welcome->namespace_digest));
	memcpy(welcome->secret, share->terms.secret, sizeof(welcome->secret));
	memcpy(welcome->engine_id, share->engine_id,
	       sizeof(welcome->engine_id));
	kvpull_welcome_regions_put(welcome->regions, share->serve);
	return kvpull_share_put_welcome(
		bytes, KVPULL_MESSAGE_BYTES_MAX, welcome,
		kvpull_config_key(&share->config), share->hello->nonce);
}

/* A reader has nothing to say by its ring. */
static void reader_came(void *own, struct kvpull_caller *caller,
			struct kvpull_ring *ring, uint32_t uid)
{
	struct kvpull_reader *share = own;

	(void)ring;
	kvpull_share_show_caller(share, caller, uid);
	kvpull_info(&share->log, "reader %s connected by %s", caller->name,
		    caller->route->transport->ops->name);
}

static int reader_went(void *own, struct kvpull_caller *caller)
{
	struct kvpull_reader *share = own;

	kvpull_share_show_caller_gone(share, caller);
	kvpull_info(&share->log, "reader %s is gone", caller->name);
	return 0;
}

const struct kvpull_callers_owner kvpull_share_callers_owner = {
	.role = "reader",
	.hello_check = hello_check,
	.welcome_put = welcome_put,
	.came = reader_came,
	.went = reader_went,
};

void kvpull_share_callers_drop(struct kvpull_reader *share)
{
	uint32_t at;

	for (at = 0; share->callers.in_count && at < share->routes.caller_count;
	     at++)
		if (share->callers.all[at].state == KVPULL_CALLER_IN)
			kvpull_callers_drop(&share->callers, at);
}
