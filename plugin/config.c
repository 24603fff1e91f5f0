/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Configuration: defaults, then the environment, then JSON; one table says all
 * that is known of a key, to the loader, to the messages and to the README.
 *
 * Nothing is guessed: an unknown key, a value of another type or out of range
 * refuses the whole. A value that JSON overrides must be right all the same.
 */
#include "plugin/config.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "plugin/params.h"
#include "verbs/address.h"

#define ENVIRONMENT_PREFIX "KVPULL_"
#define TEST_PREFIX "KVPULL_TEST_"
#define KEY_NAME_BYTES 32u /* longest key, with NUL and room */

enum key_type {
	KEY_U32,
	KEY_U64,
	KEY_POWER,  /* u32, a power of two */
	KEY_SWITCH, /* u32, true or false */
	KEY_CHOICE, /* u32 or enum: min + index of the word */
	KEY_FOLDER, /* char[] of max bytes with NUL; "" where min is 0 */
	KEY_TEXT,   /* char[] of max bytes with NUL; "" is the default */
	KEY_SECRET, /* path of a file with the key */
	KEY_UIDS
};

struct key {
	const char *name;
	enum key_type type;
	size_t offset;
	uint64_t value; /* default */
	uint64_t min;
	uint64_t max;
	const char *unit; /* of a number; words of a choice, "a b c" */
	const char *meaning;
};

/* Where a value came from, and for whom an error is. */
struct origin {
	const struct key *key;
	const char *label; /* "JSON", or the variable's name */
	struct kvpull_error_detail *detail;
};

/* What is loaded: *config of the caller is written on success only. */
struct loading {
	struct kvpull_config config;
	char key_path[PATH_MAX];
};

_Static_assert(sizeof(enum kvpull_progress_mode) == sizeof(uint32_t) &&
		       sizeof(enum kvpull_route_mode) == sizeof(uint32_t) &&
		       sizeof(enum kvpull_switch) == sizeof(uint32_t),
	       "choices are written as u32");

#define AT(member) offsetof(struct kvpull_config, member)
#define BYTES(member) sizeof(((struct kvpull_config *)0)->member)

/* clang-format off */
static const struct key keys[] = {
	{ "lease_ms", KEY_U64, AT(lease_ms), 30000, 10, 3600000, "ms",
	  "a hold ends when its consumers were silent that long; they beat every third of it" },
	{ "hold_max_ms", KEY_U64, AT(hold_max_ms), 480000, 10, 86400000, "ms",
	  "a hold ends then whatever its consumers do; at least lease_ms" },
	{ "max_holds", KEY_U32, AT(max_holds), 65536, 1, 1048576, "holds",
	  "holds at once; beyond it a finished request gets no ticket" },
	{ "key_file", KEY_SECRET, 0, 0, 0, PATH_MAX, "",
	  "file of 32 bytes, mode 600, that authenticates tickets and handshakes; empty: no key" },
	{ "log_level", KEY_CHOICE, AT(log_level), KVPULL_LOG_INFO, KVPULL_LOG_ERROR, KVPULL_LOG_DEBUG, "error warn info debug",
	  "the least important lines that are logged" },
	{ "families_max", KEY_U32, AT(families_max), 8192, 1, 1048576, "families",
	  "parents of siblings that are remembered; beyond it the oldest ended one is forgotten" },
	{ "tickets_max", KEY_U32, AT(tickets_max), 4096, 1, 65536, "tickets",
	  "tickets known at once as a consumer; beyond it a request is served locally" },
	{ "requests_max", KEY_U32, AT(requests_max), 16384, 1, 1048576, "requests",
	  "requests known at once" },
	{ "step_log_mib", KEY_U32, AT(step_log_mib), 64, 1, 4096, "MiB",
	  "commands kept until every worker acknowledged them" },
	{ "share_prefix", KEY_SWITCH, AT(share_prefix), 1, 0, 1, "",
	  "the consumer's prefix cache serves siblings: one pull a ticket" },
	{ "siblings_alone", KEY_SWITCH, AT(siblings_alone), 0, 0, 1, "",
	  "each sibling gets a hold of its own" },
	{ "abort_revokes", KEY_SWITCH, AT(abort_revokes), 0, 0, 1, "",
	  "an abort after the finish ends the hold at once" },
	{ "progress", KEY_CHOICE, AT(progress), KVPULL_PROGRESS_THREAD, KVPULL_PROGRESS_THREAD, KVPULL_PROGRESS_CALLER, "thread caller",
	  "who does the I/O: a thread of the worker, or calls of progress()" },
	{ "route", KEY_CHOICE, AT(route), KVPULL_ROUTE_AUTO, KVPULL_ROUTE_AUTO, KVPULL_ROUTE_PIN_VERBS, "auto shm verbs",
	  "route to peers; a pinned one is used or the peer is refused" },
	{ "uring", KEY_CHOICE, AT(uring), KVPULL_AUTO, KVPULL_AUTO, KVPULL_OFF, "auto no",
	  "io_uring where the kernel allows it" },
	{ "huge", KEY_CHOICE, AT(huge), KVPULL_AUTO, KVPULL_AUTO, KVPULL_OFF, "auto no",
	  "huge pages where the kernel grants them" },
	{ "copy_threads", KEY_U32, AT(copy_threads), 1, 0, 16, "threads",
	  "threads that copy from peers on this node, beside progress" },
	{ "progress_copies", KEY_CHOICE, AT(progress_copies), KVPULL_AUTO, KVPULL_AUTO, KVPULL_ON, "auto no yes",
	  "progress copies too, up to 2 MiB at a time; auto: its own thread does; always without copy_threads" },
	{ "inline_bytes", KEY_U32, AT(inline_bytes), 65536, 0, 16777216, "bytes",
	  "pulls up to this size are copied at once, without a copy thread" },
	{ "pulls_max", KEY_U32, AT(pulls_max), 512, 1, 65536, "pulls",
	  "pulls at once; more wait" },
	{ "pull_blocks_max", KEY_U32, AT(pull_blocks_max), 32768, 1, 65536, "blocks",
	  "blocks of one pull, all groups" },
	{ "peers_max", KEY_U32, AT(peers_max), 64, 1, 4096, "peers",
	  "producer ranks read from at once" },
	{ "consumers_max", KEY_U32, AT(consumers_max), 64, 1, 4096, "consumers",
	  "consumer ranks served at once; more are refused" },
	{ "ring_records", KEY_POWER, AT(ring_records), 4096, 16, 1048576, "records",
	  "notifications that a consumer's ring takes; a power of two" },
	{ "deadline_ms", KEY_U64, AT(deadline_ms), 0, 0, 3600000, "ms",
	  "a pull fails then; 0: after lease_ms" },
	{ "flush_after_ms", KEY_U64, AT(flush_after_ms), 100, 1, 60000, "ms",
	  "without progress, or ten times it: so late a pull over its deadline is cut off" },
	{ "grace_ms", KEY_U64, AT(grace_ms), 0, 0, 3600000, "ms",
	  "between the death of a consumer and the end of its holds; over a network a lease at least" },
	{ "connect_ms", KEY_U64, AT(connect_ms), 5000, 10, 600000, "ms",
	  "a peer that did not answer by then is gone" },
	{ "uids", KEY_UIDS, 0, 0, 0, UINT32_MAX - 1, "user ids",
	  "users whose processes may read; at most 8" },
	{ "socket_dir", KEY_FOLDER, AT(socket_dir), 0, 1, BYTES(socket_dir), "",
	  "folder of the sockets that consumers on this node connect to" },
	{ "networks", KEY_TEXT, AT(networks), 0, 0, BYTES(networks), "",
	  "networks of peers on other machines, as 10.0.0.0/8,fd00::/8; empty: the subnet of the own address" },
	{ "verbs_device", KEY_TEXT, AT(verbs_device), 0, 0, BYTES(verbs_device), "",
	  "RDMA devices, as mlx5_0,mlx5_1, one a rail; empty: chosen, and said in the log" },
	{ "verbs_address", KEY_TEXT, AT(verbs_address), 0, 0, BYTES(verbs_address), "",
	  "own IP addresses on those devices, one a rail; empty: chosen" },
	{ "verbs_rails", KEY_U32, AT(verbs_rails), 0, 0, 4, "rails",
	  "devices or ports that a peer is read by at once; 0: as many as are named above, or 1" },
	{ "verbs_port", KEY_U32, AT(verbs_port), 0, 0, 255, "port",
	  "port of the device, from 1; 0: chosen" },
	{ "verbs_gid_index", KEY_U32, AT(verbs_gid_index), 65535, 0, 65535, "index",
	  "GID of the port; 65535: chosen" },
	{ "verbs_listen_port", KEY_U32, AT(verbs_listen_port), 0, 0, 65535, "port",
	  "where consumers on other machines connect; 0: any free one" },
	{ "verbs_depth", KEY_U32, AT(verbs_depth), 256, 4, 16384, "work requests",
	  "READs in flight to a peer, a rail" },
	{ "verbs_batch", KEY_U32, AT(verbs_batch), 64, 1, 64, "work requests",
	  "READs a doorbell; the last one is signalled" },
	{ "verbs_rd_atomic", KEY_U32, AT(verbs_rd_atomic), 16, 1, 255, "READs",
	  "READs that the wire carries at once" },
	{ "verbs_credits", KEY_U32, AT(verbs_credits), 32, 4, 4096, "frames",
	  "messages to a peer that are not acknowledged yet" },
	{ "verbs_retry_count", KEY_U32, AT(verbs_retry_count), 6, 1, 6, "retries",
	  "of a lost packet before the peer is given up; 7 would be for ever on some devices" },
	{ "verbs_ack_timeout", KEY_U32, AT(verbs_ack_timeout), 14, 8, 21, "exponent",
	  "of a packet: 4.096 us times 2 to this; 14: 67 ms" },
	{ "verbs_traffic_class", KEY_U32, AT(verbs_traffic_class), 0, 0, 255, "class",
	  "of packets to peers; 0: the system's" },
	{ "verbs_slice_bytes", KEY_U64, AT(verbs_slice_bytes), 1048576, 4096, 1073741824, "bytes",
	  "of one READ, at most" },
	{ "verbs_window_bytes", KEY_U64, AT(verbs_window_bytes), 16777216, 65536, 4294967296, "bytes",
	  "in flight to a peer, a rail, in four batches" },
};
/* clang-format on */

#define KEYS (sizeof(keys) / sizeof(keys[0]))

/* The range as people read it: "10 .. 3600000 ms", "one of auto, no". */
static void range_describe(const struct key *key, char *text, size_t capacity)
{
	const char *word;
	size_t used;

	switch (key->type) {
	case KEY_U32:
	case KEY_U64:
	case KEY_POWER:
		(void)snprintf(text, capacity,
			       "%s%" PRIu64 " .. %" PRIu64 " %s",
			       key->type == KEY_POWER ? "power of two, " : "",
			       key->min, key->max, key->unit);
		return;
	case KEY_SWITCH:
		(void)snprintf(text, capacity, "true or false");
		return;
	case KEY_CHOICE:
		used = (size_t)snprintf(text, capacity, "one of ");
		for (word = key->unit; *word && used + 3 < capacity; word++) {
			if (*word == ' ')
				text[used++] = ',';
			text[used++] = *word;
		}
		text[used] = '\0';
		return;
	case KEY_FOLDER:
		(void)snprintf(text, capacity,
			       "absolute path, at most %" PRIu64
			       " bytes, no ;%s",
			       key->max - 1, key->min ? "" : ", or empty");
		return;
	case KEY_SECRET:
		(void)snprintf(text, capacity, "path without ;, or empty");
		return;
	case KEY_TEXT:
		(void)snprintf(text, capacity,
			       "text, at most %" PRIu64 " bytes", key->max - 1);
		return;
	case KEY_UIDS:
		(void)snprintf(text, capacity,
			       "1 .. %u numbers, each 0 .. %" PRIu64,
			       KVPULL_UIDS_MAX, key->max);
		return;
	}
}

/* "lease_ms 5 is refused: 10 .. 3600000 ms (from KVPULL_LEASE_MS)" */
static int value_refuse(const struct origin *origin, const char *value)
{
	char range[128];

	range_describe(origin->key, range, sizeof(range));
	kvpull_detail_set(origin->detail, KVPULL_ECONFIG, origin->key->name,
			  "%s %.60s is refused: must be %s (from %.60s)",
			  origin->key->name, value, range, origin->label);
	return KVPULL_ECONFIG;
}

static void *member_of(struct loading *loading, const struct key *key)
{
	return (uint8_t *)&loading->config + key->offset;
}

/* A number of any type of key but text; value is how the user wrote it. */
static int number_set(struct loading *loading, const struct origin *origin,
		      uint64_t number, const char *value)
{
	const struct key *key = origin->key;
	const uint32_t narrow = (uint32_t)number;

	if (number < key->min || number > key->max)
		return value_refuse(origin, value);
	if (key->type == KEY_POWER && (number & (number - 1)))
		return value_refuse(origin, value);
	if (key->type == KEY_UIDS) {
		if (loading->config.uid_count == KVPULL_UIDS_MAX)
			return value_refuse(origin, value);
		loading->config.uids[loading->config.uid_count++] = narrow;
	} else if (key->type == KEY_U64) {
		memcpy(member_of(loading, key), &number, sizeof(number));
	} else {
		memcpy(member_of(loading, key), &narrow, sizeof(narrow));
	}
	return 0;
}

/* Copy word number index of "a b c"; 0 if there is none. */
static int word_get(const char *words, uint64_t index, char *word,
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

static int choice_set(struct loading *loading, const struct origin *origin,
		      const char *value)
{
	const struct key *key = origin->key;
	char word[KEY_NAME_BYTES];
	uint64_t i;

	for (i = 0; word_get(key->unit, i, word, sizeof(word)); i++)
		if (!strcmp(word, value))
			return number_set(loading, origin, key->min + i, value);
	return value_refuse(origin, value);
}

/*
 * A path. Addresses of routes are joined by ';' and log lines end with a
 * newline, so neither may be in a folder's name.
 */
static int path_set(struct loading *loading, const struct origin *origin,
		    const char *value)
{
	const struct key *key = origin->key;
	const size_t bytes = strlen(value);
	const char *c;
	char *member = loading->key_path;

	if (bytes >= key->max || (!bytes && key->min))
		return value_refuse(origin, value);
	if (key->type != KEY_SECRET)
		member = (char *)member_of(loading, key);
	if (key->type == KEY_FOLDER && bytes && value[0] != '/')
		return value_refuse(origin, value);
	for (c = value; *c; c++)
		if (*c == ';' || iscntrl((unsigned char)*c))
			return value_refuse(origin, value);
	memcpy(member, value, bytes + 1);
	return 0;
}

/* Decimal digits and nothing else; 0 if they are not, or too many. */
static int digits_parse(const char *text, size_t bytes, uint64_t *number)
{
	size_t i;

	*number = 0;
	for (i = 0; i < bytes; i++) {
		const unsigned digit = (unsigned)(text[i] - '0');

		if (digit > 9 || __builtin_mul_overflow(*number, 10, number) ||
		    __builtin_add_overflow(*number, digit, number))
			return 0;
	}
	return bytes > 0;
}

/* "1000,1001" */
static int uids_set_text(struct loading *loading, const struct origin *origin,
			 const char *value)
{
	const char *at = value;
	uint64_t number;
	int rc;

	loading->config.uid_count = 0;
	for (;;) {
		const size_t bytes = strcspn(at, ",");

		if (!digits_parse(at, bytes, &number))
			return value_refuse(origin, value);
		rc = number_set(loading, origin, number, value);
		if (rc || !at[bytes])
			return rc;
		at += bytes + 1;
	}
}

/* A value of the environment. */
static int text_set(struct loading *loading, const struct origin *origin,
		    const char *value)
{
	uint64_t number;

	switch (origin->key->type) {
	case KEY_U32:
	case KEY_U64:
	case KEY_POWER:
		if (!digits_parse(value, strlen(value), &number))
			return value_refuse(origin, value);
		return number_set(loading, origin, number, value);
	case KEY_SWITCH:
		if (!strcmp(value, "true") || !strcmp(value, "1"))
			return number_set(loading, origin, 1, value);
		if (!strcmp(value, "false") || !strcmp(value, "0"))
			return number_set(loading, origin, 0, value);
		return value_refuse(origin, value);
	case KEY_CHOICE:
		return choice_set(loading, origin, value);
	case KEY_FOLDER:
	case KEY_SECRET:
	case KEY_TEXT:
		return path_set(loading, origin, value);
	case KEY_UIDS:
		return uids_set_text(loading, origin, value);
	}
	return KVPULL_ECONFIG;
}

static int integer_set(struct loading *loading, const struct origin *origin,
		       const json_t *value, const char *text)
{
	if (!json_is_integer(value) || json_integer_value(value) < 0)
		return value_refuse(origin, text);
	return number_set(loading, origin, (uint64_t)json_integer_value(value),
			  text);
}

static int uids_set(struct loading *loading, const struct origin *origin,
		    const json_t *value, const char *text)
{
	size_t i;
	int rc = 0;

	if (!json_is_array(value) || !json_array_size(value))
		return value_refuse(origin, text);
	loading->config.uid_count = 0;
	for (i = 0; !rc && i < json_array_size(value); i++)
		rc = integer_set(loading, origin, json_array_get(value, i),
				 text);
	return rc;
}

/* A value of the JSON object; text is the same, for messages. */
static int json_set(struct loading *loading, const struct origin *origin,
		    const json_t *value, const char *text)
{
	const char *string = json_string_value(value);

	switch (origin->key->type) {
	case KEY_U32:
	case KEY_U64:
	case KEY_POWER:
		return integer_set(loading, origin, value, text);
	case KEY_SWITCH:
		if (!json_is_boolean(value))
			return value_refuse(origin, text);
		return number_set(loading, origin,
				  (uint64_t)json_is_true(value), text);
	case KEY_CHOICE:
		return string ? choice_set(loading, origin, string) :
				value_refuse(origin, text);
	case KEY_FOLDER:
	case KEY_SECRET:
	case KEY_TEXT:
		return string ? path_set(loading, origin, string) :
				value_refuse(origin, text);
	case KEY_UIDS:
		return uids_set(loading, origin, value, text);
	}
	return KVPULL_ECONFIG;
}

/* Edits (insert, remove, replace) from a known key to what was written. */
static size_t edit_distance(const char *known, const char *written)
{
	size_t row[KEY_NAME_BYTES + 1];
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

static const struct key *key_nearest(const char *name)
{
	const struct key *nearest = &keys[0];
	size_t least = SIZE_MAX;
	size_t i;

	for (i = 0; i < KEYS; i++) {
		const size_t distance = edit_distance(keys[i].name, name);

		if (distance < least) {
			least = distance;
			nearest = &keys[i];
		}
	}
	return nearest;
}

static void variable_name(const struct key *key, char *name, size_t capacity)
{
	size_t i;

	(void)snprintf(name, capacity, ENVIRONMENT_PREFIX "%s", key->name);
	for (i = 0; name[i]; i++)
		name[i] = (char)toupper((unsigned char)name[i]);
}

static int variable_unknown(const char *name, size_t bytes,
			    struct kvpull_error_detail *detail)
{
	char written[64];
	char nearest[64];

	if (bytes >= sizeof(written))
		bytes = sizeof(written) - 1;
	memcpy(written, name, bytes);
	written[bytes] = '\0';
	variable_name(key_nearest(written + strlen(ENVIRONMENT_PREFIX)),
		      nearest, sizeof(nearest));
	kvpull_detail_set(
		detail, KVPULL_ECONFIG, written,
		"unknown variable %s in the environment: did you mean %s",
		written, nearest);
	return KVPULL_ECONFIG;
}

/* One "NAME=value" of the environment that begins with KVPULL_. */
static int variable_load(struct loading *loading, const char *variable,
			 struct kvpull_error_detail *detail)
{
	const size_t bytes = strcspn(variable, "=");
	char name[64];
	size_t i;

	for (i = 0; i < KEYS; i++) {
		const struct origin origin = { &keys[i], name, detail };

		variable_name(&keys[i], name, sizeof(name));
		if (strlen(name) == bytes && variable[bytes] == '=' &&
		    strncmp(name, variable, bytes) == 0)
			return text_set(loading, &origin, variable + bytes + 1);
	}
	return variable_unknown(variable, bytes, detail);
}

static int environment_load(struct loading *loading,
			    struct kvpull_error_detail *detail)
{
	char **variable;
	int rc = 0;

	for (variable = environ; !rc && variable && *variable; variable++) {
		if (strncmp(*variable, ENVIRONMENT_PREFIX,
			    strlen(ENVIRONMENT_PREFIX)) != 0 ||
		    strncmp(*variable, TEST_PREFIX, strlen(TEST_PREFIX)) == 0)
			continue;
		rc = variable_load(loading, *variable, detail);
	}
	return rc;
}

static int member_load(struct loading *loading, const char *name,
		       const json_t *value, struct kvpull_error_detail *detail)
{
	struct origin origin = { NULL, "JSON", detail };
	char *text;
	size_t i;
	int rc;

	for (i = 0; i < KEYS && !origin.key; i++)
		if (!strcmp(keys[i].name, name))
			origin.key = &keys[i];
	if (!origin.key) {
		kvpull_detail_set(detail, KVPULL_ECONFIG, name,
				  "unknown key %.60s: did you mean %s", name,
				  key_nearest(name)->name);
		return KVPULL_ECONFIG;
	}
	text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
	rc = json_set(loading, &origin, value, text ? text : "value");
	free(text);
	return rc;
}

static int object_load(struct loading *loading, const char *text,
		       struct kvpull_error_detail *detail)
{
	json_error_t error;
	json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, &error);
	json_t *value;
	const char *name;
	int rc = 0;

	if (!root) {
		kvpull_detail_set(detail, KVPULL_ECONFIG, "config_json",
				  "bad JSON in line %d column %d: %s",
				  error.line, error.column, error.text);
		return KVPULL_ECONFIG;
	}
	if (!json_is_object(root)) {
		kvpull_detail_set(detail, KVPULL_ECONFIG, "config_json",
				  "the configuration must be a JSON object");
		rc = KVPULL_ECONFIG;
	}
	json_object_foreach(root, name, value)
	{
		rc = member_load(loading, name, value, detail);
		if (rc)
			break;
	}
	json_decref(root);
	return rc;
}

static int key_refuse(struct kvpull_error_detail *detail, const char *path,
		      const char *why)
{
	kvpull_detail_set(detail, KVPULL_ECONFIG, "key_file",
			  "key_file %.120s %s", path, why);
	return KVPULL_ECONFIG;
}

/* Exactly 32 bytes, and then the end of the file. */
static int key_read(int fd, uint8_t key[KVPULL_KEY_BYTES])
{
	uint8_t bytes[KVPULL_KEY_BYTES + 1];
	size_t used = 0;
	ssize_t got = 1;

	while (got > 0 && used < sizeof(bytes)) {
		got = read(fd, bytes + used, sizeof(bytes) - used);
		if (got > 0)
			used += (size_t)got;
		else if (got < 0 && errno == EINTR)
			got = 1;
	}
	if (got == 0 && used == KVPULL_KEY_BYTES)
		memcpy(key, bytes, KVPULL_KEY_BYTES);
	explicit_bzero(bytes, sizeof(bytes));
	return got == 0 && used == KVPULL_KEY_BYTES;
}

static int key_check(int fd, struct kvpull_config *config, const char *path,
		     struct kvpull_error_detail *detail)
{
	struct stat status;

	if (fstat(fd, &status) || !S_ISREG(status.st_mode))
		return key_refuse(detail, path, "is not a regular file");
	if (status.st_mode & (S_IRWXG | S_IRWXO))
		return key_refuse(detail, path,
				  "is open to group or others: chmod 600");
	if (!key_read(fd, config->key))
		return key_refuse(
			detail, path,
			"must have exactly 32 bytes: head -c 32 /dev/urandom makes them");
	config->key_set = 1;
	return 0;
}

/* A symbolic link is followed: that is how secrets are mounted in containers. */
static int key_load(struct loading *loading, struct kvpull_error_detail *detail)
{
	const char *path = loading->key_path;
	char reason[64];
	char why[96];
	int fd;
	int rc;

	if (!path[0])
		return 0;
	/* Non-blocking: a fifo must not hang us before it is refused. */
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (fd < 0) {
		(void)snprintf(why, sizeof(why), "cannot be opened: %s",
			       strerror_r(errno, reason, sizeof(reason)));
		return key_refuse(detail, path, why);
	}
	rc = key_check(fd, &loading->config, path, detail);
	(void)close(fd);
	return rc;
}

static void defaults_set(struct loading *loading)
{
	struct kvpull_config *config = &loading->config;
	size_t i;

	memset(loading, 0, sizeof(*loading));
	for (i = 0; i < KEYS; i++) {
		const uint32_t narrow = (uint32_t)keys[i].value;
		void *member = member_of(loading, &keys[i]);

		if (keys[i].type == KEY_U64)
			memcpy(member, &keys[i].value, sizeof(keys[i].value));
		else if (keys[i].type < KEY_FOLDER)
			memcpy(member, &narrow, sizeof(narrow));
	}
	config->uid_count = 1;
	config->uids[0] = (uint32_t)geteuid();
	(void)snprintf(config->socket_dir, sizeof(config->socket_dir),
		       "/tmp/kvpull-%u", config->uids[0]);
}

int kvpull_config_load(struct kvpull_config *config, const char *json,
		       struct kvpull_error_detail *detail)
{
	struct kvpull_networks networks;
	struct loading loading;
	int rc;

	defaults_set(&loading);
	rc = environment_load(&loading, detail);
	if (!rc && json)
		rc = object_load(&loading, json, detail);
	if (!rc && loading.config.hold_max_ms < loading.config.lease_ms) {
		kvpull_detail_set(
			detail, KVPULL_ECONFIG, "hold_max_ms",
			"hold_max_ms %" PRIu64
			" is refused: must be at least lease_ms %" PRIu64,
			loading.config.hold_max_ms, loading.config.lease_ms);
		rc = KVPULL_ECONFIG;
	}
	if (!rc &&
	    kvpull_verbs_networks_parse(loading.config.networks, &networks)) {
		kvpull_detail_set(
			detail, KVPULL_ECONFIG, "networks",
			"networks %.60s is refused: must be like 10.0.0.0/8,fd00::/8",
			loading.config.networks);
		rc = KVPULL_ECONFIG;
	}
	if (!rc)
		rc = key_load(&loading, detail);
	if (!rc)
		*config = loading.config;
	explicit_bzero(loading.config.key, sizeof(loading.config.key));
	return rc;
}

static void default_describe(const struct key *key, char *text, size_t capacity)
{
	char word[KEY_NAME_BYTES] = "";

	switch (key->type) {
	case KEY_U32:
	case KEY_U64:
	case KEY_POWER:
		(void)snprintf(text, capacity, "%" PRIu64, key->value);
		return;
	case KEY_SWITCH:
		(void)snprintf(text, capacity, "%s",
			       key->value ? "true" : "false");
		return;
	case KEY_CHOICE:
		(void)word_get(key->unit, key->value - key->min, word,
			       sizeof(word));
		(void)snprintf(text, capacity, "\"%s\"", word);
		return;
	case KEY_FOLDER:
		(void)snprintf(text, capacity, "%s",
			       key->min ? "\"/tmp/kvpull-UID\"" : "\"\"");
		return;
	case KEY_SECRET:
	case KEY_TEXT:
		(void)snprintf(text, capacity, "\"\"");
		return;
	case KEY_UIDS:
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
	for (i = 0; i < KEYS; i++) {
		default_describe(&keys[i], value, sizeof(value));
		range_describe(&keys[i], range, sizeof(range));
		text_append(text, capacity, &used, "| `%s` | %s | %s | %s |\n",
			    keys[i].name, value, range, keys[i].meaning);
	}
	return used;
}
