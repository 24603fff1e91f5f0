/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is known of each key: to the loader, to the messages and to the README.
 */
#include "plugin/config/config_table.h"

#include <ctype.h>
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define AT(member) offsetof(struct kvpull_config, member)
#define BYTES(member) sizeof(((struct kvpull_config *)0)->member)

/* clang-format off */
const struct kvpull_config_key kvpull_config_keys[] = {
	{ "lease_ms", KVPULL_KEY_U64, AT(lease_ms), 30000, KVPULL_LEASE_MS_MIN, 3600000, "ms",
	  "a hold ends when its consumers were silent that long; they beat every third of it" },
	{ "hold_max_ms", KVPULL_KEY_U64, AT(hold_max_ms), 480000, 10, 86400000, "ms",
	  "a hold ends then whatever its consumers do; at least lease_ms" },
	{ "max_holds", KVPULL_KEY_U32, AT(max_holds), 65536, 1, 1048576, "holds",
	  "holds at once; beyond it a finished request gets no ticket" },
	{ "key_file", KVPULL_KEY_SECRET, 0, 0, 0, PATH_MAX, "",
	  "file of 32 bytes, mode 600, that authenticates tickets and handshakes; empty: no key" },
	{ "log_level", KVPULL_KEY_CHOICE, AT(log_level), KVPULL_LOG_INFO, KVPULL_LOG_ERROR, KVPULL_LOG_DEBUG, "error warn info debug",
	  "the least important lines that are logged; where it is set, over the engine's own level" },
	{ "families_max", KVPULL_KEY_U32, AT(families_max), 8192, 1, 1048576, "families",
	  "parents of siblings that are remembered; beyond it the oldest ended one is forgotten" },
	{ "tickets_max", KVPULL_KEY_U32, AT(tickets_max), 4096, 1, 65536, "tickets",
	  "tickets known at once as a consumer; beyond it a request is served locally" },
	{ "requests_max", KVPULL_KEY_U32, AT(requests_max), 16384, 1, 1048576, "requests",
	  "requests known at once" },
	{ "step_log_mib", KVPULL_KEY_U32, AT(step_log_mib), 64, 1, 4096, "MiB",
	  "commands kept until every worker acknowledged them" },
	{ "share_prefix", KVPULL_KEY_SWITCH, AT(share_prefix), 1, 0, 1, "",
	  "the consumer's prefix cache serves siblings: one pull a ticket" },
	{ "siblings_alone", KVPULL_KEY_SWITCH, AT(siblings_alone), 0, 0, 1, "",
	  "each sibling gets a hold of its own" },
	{ "abort_revokes", KVPULL_KEY_SWITCH, AT(abort_revokes), 0, 0, 1, "",
	  "an abort after the finish ends the hold at once" },
	{ "progress", KVPULL_KEY_CHOICE, AT(progress), KVPULL_PROGRESS_THREAD, KVPULL_PROGRESS_THREAD, KVPULL_PROGRESS_CALLER, "thread caller",
	  "who does the I/O: a thread of the worker, or calls of poll() and progress()" },
	{ "route", KVPULL_KEY_CHOICE, AT(route), KVPULL_ROUTE_AUTO, KVPULL_ROUTE_AUTO, KVPULL_ROUTE_PIN_VERBS, "auto shm verbs",
	  "route to peers; a pinned one is used or the peer is refused" },
	{ "uring", KVPULL_KEY_CHOICE, AT(uring), KVPULL_AUTO, KVPULL_AUTO, KVPULL_OFF, "auto no",
	  "io_uring where the kernel allows it" },
	{ "huge", KVPULL_KEY_CHOICE, AT(huge), KVPULL_AUTO, KVPULL_AUTO, KVPULL_OFF, "auto no",
	  "huge pages where the kernel grants them" },
	{ "copy_threads", KVPULL_KEY_U32, AT(copy_threads), 1, 0, 16, "threads",
	  "threads that copy from peers on this node, beside progress" },
	{ "progress_copies", KVPULL_KEY_CHOICE, AT(progress_copies), KVPULL_AUTO, KVPULL_AUTO, KVPULL_ON, "auto no yes",
	  "progress copies too, up to 2 MiB at a time; auto: its own thread does; always without copy_threads" },
	{ "inline_bytes", KVPULL_KEY_U32, AT(inline_bytes), 65536, 0, 16777216, "bytes",
	  "pulls up to this size are copied at once, without a copy thread" },
	{ "pulls_max", KVPULL_KEY_U32, AT(pulls_max), 512, 1, 65536, "pulls",
	  "pulls at once; more wait" },
	{ "pull_blocks_max", KVPULL_KEY_U32, AT(pull_blocks_max), 32768, 1, 65536, "blocks",
	  "blocks of one pull, all groups" },
	{ "peers_max", KVPULL_KEY_U32, AT(peers_max), 64, 1, 4096, "peers",
	  "producer ranks read from at once" },
	{ "consumers_max", KVPULL_KEY_U32, AT(consumers_max), 64, 1, 4096, "consumers",
	  "consumer ranks served at once; more are refused" },
	{ "ring_records", KVPULL_KEY_POWER, AT(ring_records), 4096, 16, 1048576, "records",
	  "notifications that a consumer's ring takes; a power of two" },
	{ "deadline_ms", KVPULL_KEY_U64, AT(deadline_ms), 0, 0, 3600000, "ms",
	  "a pull fails then; 0: after lease_ms" },
	{ "flush_after_ms", KVPULL_KEY_U64, AT(flush_after_ms), 100, 1, 60000, "ms",
	  "without progress, or ten times it: so late a pull over its deadline is cut off" },
	{ "grace_ms", KVPULL_KEY_U64, AT(grace_ms), 0, 0, 3600000, "ms",
	  "between the death of a consumer and the end of its holds; over a network a lease at least" },
	{ "connect_ms", KVPULL_KEY_U64, AT(connect_ms), 5000, 10, 600000, "ms",
	  "a peer that did not answer by then is gone" },
	{ "uids", KVPULL_KEY_UIDS, 0, 0, 0, UINT32_MAX - 1, "user ids",
	  "users of this node whose processes may read, and are read from; at most 8" },
	{ "socket_dir", KVPULL_KEY_FOLDER, AT(socket_dir), 0, 1, BYTES(socket_dir), "",
	  "folder of the sockets that consumers on this node connect to" },
	{ "networks", KVPULL_KEY_TEXT, AT(networks), 0, 0, BYTES(networks), "",
	  "networks of peers on other machines, as 10.0.0.0/8,fd00::/8; empty: the subnet of the own address" },
	{ "verbs_device", KVPULL_KEY_TEXT, AT(verbs_device), 0, 0, BYTES(verbs_device), "",
	  "RDMA devices, as mlx5_0,mlx5_1, one a rail; empty: chosen, and said in the log" },
	{ "verbs_address", KVPULL_KEY_TEXT, AT(verbs_address), 0, 0, BYTES(verbs_address), "",
	  "own IP addresses on those devices, one a rail; empty: chosen" },
	{ "verbs_rails", KVPULL_KEY_U32, AT(verbs_rails), 0, 0, 4, "rails",
	  "devices or ports that a peer is read by at once; 0: as many as are named above, or 1" },
	{ "verbs_port", KVPULL_KEY_U32, AT(verbs_port), 0, 0, 255, "port",
	  "port of the device, from 1; 0: chosen" },
	{ "verbs_gid_index", KVPULL_KEY_U32, AT(verbs_gid_index), 65535, 0, 65535, "index",
	  "GID of the port; 65535: chosen" },
	{ "verbs_listen_port", KVPULL_KEY_U32, AT(verbs_listen_port), 0, 0, 65535, "port",
	  "where consumers on other machines connect; 0: any free one" },
	{ "verbs_depth", KVPULL_KEY_U32, AT(verbs_depth), 256, 4, 16384, "work requests",
	  "READs in flight to a peer, a rail" },
	{ "verbs_batch", KVPULL_KEY_U32, AT(verbs_batch), 64, 1, 64, "work requests",
	  "READs a doorbell; the last one is signalled" },
	{ "verbs_rd_atomic", KVPULL_KEY_U32, AT(verbs_rd_atomic), 16, 1, 255, "READs",
	  "READs that the wire carries at once" },
	{ "verbs_credits", KVPULL_KEY_U32, AT(verbs_credits), 32, 4, 4096, "frames",
	  "messages to a peer that are not acknowledged yet" },
	{ "verbs_retry_count", KVPULL_KEY_U32, AT(verbs_retry_count), 6, 1, 6, "retries",
	  "of a lost packet before the peer is given up; 7 would be for ever on some devices" },
	{ "verbs_ack_timeout", KVPULL_KEY_U32, AT(verbs_ack_timeout), 14, 8, 21, "exponent",
	  "of a packet: 4.096 us times 2 to this; 14: 67 ms" },
	{ "verbs_traffic_class", KVPULL_KEY_U32, AT(verbs_traffic_class), 0, 0, 255, "class",
	  "of packets to peers; 0: the system's" },
	{ "verbs_slice_bytes", KVPULL_KEY_U64, AT(verbs_slice_bytes), 1048576, 4096, 1073741824, "bytes",
	  "of one READ, at most" },
	{ "verbs_window_bytes", KVPULL_KEY_U64, AT(verbs_window_bytes), 16777216, 65536, 4294967296, "bytes",
	  "in flight to a peer, a rail, in four batches" },
};
/* clang-format on */

const size_t kvpull_config_key_count =
	sizeof(kvpull_config_keys) / sizeof(kvpull_config_keys[0]);

/* The range as people read it: "10 .. 3600000 ms", "one of auto, no". */
void kvpull_config_key_range(const struct kvpull_config_key *key, char *text,
			     size_t capacity)
{
	const char *word;
	size_t used;

	switch (key->type) {
	case KVPULL_KEY_U32:
	case KVPULL_KEY_U64:
	case KVPULL_KEY_POWER:
		(void)snprintf(
			text, capacity, "%s%" PRIu64 " .. %" PRIu64 " %s",
			key->type == KVPULL_KEY_POWER ? "power of two, " : "",
			key->min, key->max, key->unit);
		return;
	case KVPULL_KEY_SWITCH:
		(void)snprintf(text, capacity, "true or false");
		return;
	case KVPULL_KEY_CHOICE:
		used = (size_t)snprintf(text, capacity, "one of ");
		for (word = key->unit; *word && used + 3 < capacity; word++) {
			if (*word == ' ')
				text[used++] = ',';
			text[used++] = *word;
		}
		text[used] = '\0';
		return;
	case KVPULL_KEY_FOLDER:
		(void)snprintf(text, capacity,
			       "absolute path, at most %" PRIu64
			       " bytes, no ;%s",
			       key->max - 1, key->min ? "" : ", or empty");
		return;
	case KVPULL_KEY_SECRET:
		(void)snprintf(text, capacity, "path without ;, or empty");
		return;
	case KVPULL_KEY_TEXT:
		(void)snprintf(text, capacity,
			       "text, at most %" PRIu64 " bytes, no ;",
			       key->max - 1);
		return;
	case KVPULL_KEY_UIDS:
		(void)snprintf(text, capacity,
			       "1 .. %u numbers, each 0 .. %" PRIu64,
			       KVPULL_UIDS_MAX, key->max);
		return;
	}
}

/* Copy word number index of "a b c"; 0 if there is none. */
int kvpull_config_key_word(const char *words, uint64_t index, char *word,
			   size_t capacity)
{
	size_t bytes;

	for (; index; index--) {
		words = strchr(words, ' ');
		if (!words)
			return 0;
		words++;
	}
	bytes = strcspn(words, " ");
	if (bytes >= capacity)
		return 0;
	memcpy(word, words, bytes);
	word[bytes] = '\0';
	return 1;
}

/* Edits (insert, remove, replace) from a known key to what was written. */
static size_t edit_distance(const char *known, const char *written)
{
	size_t row[KVPULL_KEY_NAME_BYTES + 1];
	const size_t known_bytes = strlen(known);
	size_t i;
	size_t k;

	for (i = 0; i <= known_bytes; i++)
		row[i] = i;
	for (k = 1; written[k - 1]; k++) {
		size_t diagonal = row[0];

		row[0] = k;
		for (i = 1; i <= known_bytes; i++) {
			const size_t replaced =
				diagonal +
				(known[i - 1] !=
				 tolower((unsigned char)written[k - 1]));

			diagonal = row[i];
			if (row[i - 1] < row[i])
				row[i] = row[i - 1];
			row[i]++;
			if (replaced < row[i])
				row[i] = replaced;
		}
	}
	return row[known_bytes];
}

const struct kvpull_config_key *kvpull_config_key_nearest(const char *name)
{
	const struct kvpull_config_key *nearest = &kvpull_config_keys[0];
	size_t least = SIZE_MAX;
	size_t i;

	for (i = 0; i < kvpull_config_key_count; i++) {
		const size_t distance =
			edit_distance(kvpull_config_keys[i].name, name);

		if (distance < least) {
			least = distance;
			nearest = &kvpull_config_keys[i];
		}
	}
	return nearest;
}

void kvpull_config_key_variable(const struct kvpull_config_key *key, char *name,
				size_t capacity)
{
	size_t i;

	(void)snprintf(name, capacity, KVPULL_ENVIRONMENT_PREFIX "%s",
		       key->name);
	for (i = 0; name[i]; i++)
		name[i] = (char)toupper((unsigned char)name[i]);
}

static void default_describe(const struct kvpull_config_key *key, char *text,
			     size_t capacity)
{
	char word[KVPULL_KEY_NAME_BYTES] = "";

	switch (key->type) {
	case KVPULL_KEY_U32:
	case KVPULL_KEY_U64:
	case KVPULL_KEY_POWER:
		(void)snprintf(text, capacity, "%" PRIu64, key->value);
		return;
	case KVPULL_KEY_SWITCH:
		(void)snprintf(text, capacity, "%s",
			       key->value ? "true" : "false");
		return;
	case KVPULL_KEY_CHOICE:
		(void)kvpull_config_key_word(key->unit, key->value - key->min,
					     word, sizeof(word));
		(void)snprintf(text, capacity, "\"%s\"", word);
		return;
	case KVPULL_KEY_FOLDER:
		(void)snprintf(text, capacity, "%s",
			       key->min ? "\"/tmp/kvpull-UID\"" : "\"\"");
		return;
	case KVPULL_KEY_SECRET:
	case KVPULL_KEY_TEXT:
		(void)snprintf(text, capacity, "\"\"");
		return;
	case KVPULL_KEY_UIDS:
		(void)snprintf(text, capacity, "own");
		return;
	}
}

/* Append as far as there is room, and count on; as snprintf does. */
static void __attribute__((format(printf, 4, 5)))
text_append(char *text, size_t capacity, size_t *used, const char *format, ...)
{
	const size_t room = *used < capacity ? capacity - *used : 0;
	va_list arguments;
	int bytes;

	va_start(arguments, format);
	bytes = vsnprintf(room ? text + *used : NULL, room, format, arguments);
	va_end(arguments);
	if (bytes > 0)
		*used += (size_t)bytes;
}

size_t kvpull_config_describe(char *text, size_t capacity)
{
	char value[64];
	char range[128];
	size_t used = 0;
	size_t i;

	text_append(text, capacity, &used,
		    "| key | default | range | meaning |\n|---|---|---|---|\n");
	for (i = 0; i < kvpull_config_key_count; i++) {
		default_describe(&kvpull_config_keys[i], value, sizeof(value));
		kvpull_config_key_range(&kvpull_config_keys[i], range,
					sizeof(range));
		text_append(text, capacity, &used, "| `%s` | %s | %s | %s |\n",
			    kvpull_config_keys[i].name, value, range,
			    kvpull_config_keys[i].meaning);
	}
	return used;
}
