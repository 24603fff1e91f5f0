/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Configuration: defaults, then the environment, then JSON. A row of keys.h says
 * all that is known of a key; a value of any source goes the way of a text.
 *
 * Nothing is guessed: an unknown key, a value of another type or out of range
 * refuses the whole. A value that JSON overrides must be right all the same.
 */
#include "plugin/config/config.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cause.h"
#include "base/params.h"
#include "base/transport.h"
#include "plugin/config/config_table.h"
#include "verbs/address.h"

#define TEST_PREFIX "KVPULL_TEST_"
#define RAIL_NAME_BYTES 64u /* as verbs/device.c takes them */

/* A value that somebody wrote: where, how, and for whom an error is. */
struct origin {
	const struct kvpull_config_key *key;
	const char *label;   /* "JSON", or the variable's name */
	const char *written; /* the value */
	struct kvpull_error_detail *detail;
};

/*
 * "lease_ms 5 is refused: must be 10 .. 3600000 ms (from KVPULL_LEASE_MS)"; also
 * is what else it must be, before the range, or "".
 */
static int value_refuse_as(const struct origin *origin, const char *also)
{
	char range[128];

	kvpull_config_key_range(origin->key, range, sizeof(range));
	return kvpull_detail_set(
		origin->detail, KVPULL_ECONFIG, origin->key->name,
		"%s %.60s is refused: must be %s%s%s (from %.60s)",
		origin->key->name, origin->written, also, *also ? ", " : "",
		range, origin->label);
}

static int value_refuse(const struct origin *origin)
{
	return value_refuse_as(origin, "");
}

/* A number of any type of key. */
static int number_set(struct kvpull_config *config, const struct origin *origin,
		      uint64_t number)
{
	const struct kvpull_config_key *key = origin->key;
	const uint32_t narrow = (uint32_t)number;
	uint8_t *member = (uint8_t *)config + key->offset;

	if (number < key->min || number > key->max)
		return value_refuse(origin);
	if (key->type == KVPULL_KEY_POWER && (number & (number - 1)))
		return value_refuse(origin);
	if (key->type == KVPULL_KEY_UIDS) {
		if (config->uid_count == KVPULL_UIDS_MAX)
			return value_refuse(origin);
		member += sizeof(narrow) * config->uid_count++;
	}
	if (key->type == KVPULL_KEY_U64)
		memcpy(member, &number, sizeof(number));
	else
		memcpy(member, &narrow, sizeof(narrow));
	if (key->offset == offsetof(struct kvpull_config, log_level))
		config->log_level_set = 1;
	return 0;
}

static int choice_set(struct kvpull_config *config, const struct origin *origin,
		      const char *value)
{
	const struct kvpull_config_key *key = origin->key;
	const size_t bytes = strlen(value);
	const char *word = key->unit;
	uint64_t number;

	for (number = key->min; *word; number++) {
		if (strcspn(word, ",") == bytes && !strncmp(word, value, bytes))
			return number_set(config, origin, number);
		word += strcspn(word, ",");
		word += strspn(word, ", ");
	}
	return value_refuse(origin);
}

/*
 * A path. Addresses of routes are joined by ';' and log lines end with a
 * newline, so neither may be in a folder's name.
 */
static int path_set(struct kvpull_config *config, const struct origin *origin,
		    const char *value)
{
	const struct kvpull_config_key *key = origin->key;
	const size_t bytes = strlen(value);
	const char *c;

	if (bytes >= key->max || (!bytes && key->min))
		return value_refuse(origin);
	if (key->type == KVPULL_KEY_FOLDER && bytes && value[0] != '/')
		return value_refuse(origin);
	for (c = value; *c; c++)
		if ((*c == ';' && key->type != KVPULL_KEY_TEXT) ||
		    iscntrl((unsigned char)*c))
			return value_refuse_as(
				origin,
				*c == ';' ? "" : "no control characters");
	memcpy((uint8_t *)config + key->offset, value, bytes + 1);
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
static int uids_set(struct kvpull_config *config, const struct origin *origin,
		    const char *value)
{
	const char *at = value;
	uint64_t number;
	int rc;

	config->uid_count = 0;
	for (;;) {
		const size_t bytes = strcspn(at, ",");

		if (!digits_parse(at, bytes, &number))
			return value_refuse(origin);
		rc = number_set(config, origin, number);
		if (rc || !at[bytes])
			return rc;
		at += bytes + 1;
	}
}

/* Takes a value as the environment has it. */
static int text_set(struct kvpull_config *config, const struct origin *origin,
		    const char *value)
{
	uint64_t number;

	switch (origin->key->type) {
	case KVPULL_KEY_U32:
	case KVPULL_KEY_U64:
	case KVPULL_KEY_POWER:
		if (!digits_parse(value, strlen(value), &number))
			return value_refuse_as(origin, "a whole number");
		return number_set(config, origin, number);
	case KVPULL_KEY_SWITCH:
		if (!strcmp(value, "true") || !strcmp(value, "1"))
			return number_set(config, origin, 1);
		if (!strcmp(value, "false") || !strcmp(value, "0"))
			return number_set(config, origin, 0);
		return value_refuse(origin);
	case KVPULL_KEY_CHOICE:
		return choice_set(config, origin, value);
	case KVPULL_KEY_FOLDER:
	case KVPULL_KEY_SECRET:
	case KVPULL_KEY_TEXT:
		return path_set(config, origin, value);
	case KVPULL_KEY_UIDS:
		return uids_set(config, origin, value);
	}
	return KVPULL_ECONFIG;
}

static int integer_set(struct kvpull_config *config,
		       const struct origin *origin, const json_t *value)
{
	if (!json_is_integer(value))
		return value_refuse_as(
			origin, "a whole number without quotes or a point");
	if (json_integer_value(value) < 0)
		return value_refuse(origin);
	return number_set(config, origin, (uint64_t)json_integer_value(value));
}

static int integers_set(struct kvpull_config *config,
			const struct origin *origin, const json_t *value)
{
	size_t i;
	int rc = 0;

	if (!json_array_size(value)) /* 0 of what is no array */
		return value_refuse(origin);
	config->uid_count = 0;
	for (i = 0; !rc && i < json_array_size(value); i++)
		rc = integer_set(config, origin, json_array_get(value, i));
	return rc;
}

/* A value of the JSON object; its type must be the key's. */
static int json_set(struct kvpull_config *config, const struct origin *origin,
		    const json_t *value)
{
	const enum kvpull_config_key_type type = origin->key->type;
	const char *text = json_string_value(value);

	if (type == KVPULL_KEY_UIDS)
		return integers_set(config, origin, value);
	if (type < KVPULL_KEY_SWITCH)
		return integer_set(config, origin, value);
	if (type == KVPULL_KEY_SWITCH)
		text = json_is_boolean(value) ? origin->written : NULL;
	return text ? text_set(config, origin, text) : value_refuse(origin);
}

static int variable_unknown(const char *name, size_t bytes,
			    struct kvpull_error_detail *detail)
{
	char written[64];
	char nearest[64];

	(void)snprintf(written, sizeof(written), "%.*s", (int)bytes, name);
	kvpull_config_key_variable(
		kvpull_config_key_nearest(written +
					  strlen(KVPULL_ENVIRONMENT_PREFIX)),
		nearest, sizeof(nearest));
	return kvpull_detail_set(
		detail, KVPULL_ECONFIG, written,
		"unknown variable %s in the environment: did you mean %s",
		written, nearest);
}

/* A key's name ends here, or goes on with a further part. */
static int is_part(const char *at, size_t part_bytes)
{
	return at[part_bytes] == '=' || at[part_bytes] == '_';
}

/* "_PORT_80_TCP" */
static int is_port_part(const char *at)
{
	static const char *const protocols[] = { "_TCP", "_UDP", "_SCTP" };
	size_t digits;
	size_t i;

	if (strncmp(at, "_PORT_", strlen("_PORT_")) != 0)
		return 0;
	at += strlen("_PORT_");
	digits = strspn(at, "0123456789");
	at += digits;
	for (i = 0; i < sizeof(protocols) / sizeof(protocols[0]); i++)
		if (digits && !strncmp(at, protocols[i], strlen(protocols[i])))
			return is_part(at, strlen(protocols[i]));
	return 0;
}

/*
 * Kubernetes tells each pod the Services of its namespace so: of one with the
 * name kvpull, KVPULL_SERVICE_HOST, KVPULL_SERVICE_PORT (and _<name>),
 * KVPULL_PORT_80_TCP (and _ADDR, ...), and KVPULL_PORT, whose value is an
 * address: without that it may be a key that was written wrong.
 */
static int is_service_link(const char *variable)
{
	const size_t bytes = strcspn(variable, "=");
	const char *at;

	if (!variable[bytes])
		return 0;
	for (at = variable; at < variable + bytes; at++) {
		if (is_port_part(at))
			return 1;
		if (!strncmp(at, "_SERVICE_PORT", strlen("_SERVICE_PORT")) &&
		    is_part(at, strlen("_SERVICE_PORT")))
			return 1;
		if (!strncmp(at, "_SERVICE_HOST=", strlen("_SERVICE_HOST=")))
			return 1;
	}
	return bytes > strlen("_PORT") &&
	       !strncmp(at - strlen("_PORT"), "_PORT", strlen("_PORT")) &&
	       strstr(at, "://");
}

/* Told once, by who opens: they may be many, and none is an error of ours. */
static void service_link_take(struct kvpull_config *config,
			      const char *variable)
{
	if (!config->service_link_count++)
		(void)snprintf(config->service_link,
			       sizeof(config->service_link), "%.*s",
			       (int)strcspn(variable, "="), variable);
}

/* Loads one "NAME=value" of the environment that begins with KVPULL_. */
static int variable_load(struct kvpull_config *config, const char *variable,
			 struct kvpull_error_detail *detail)
{
	const size_t bytes = strcspn(variable, "=");
	char name[64];
	size_t i;

	for (i = 0; i < kvpull_config_key_count; i++) {
		const struct origin origin = { &kvpull_config_keys[i], name,
					       variable + bytes + 1, detail };

		kvpull_config_key_variable(&kvpull_config_keys[i], name,
					   sizeof(name));
		if (strlen(name) == bytes && variable[bytes] == '=' &&
		    strncmp(name, variable, bytes) == 0)
			return text_set(config, &origin, origin.written);
	}
	return variable_unknown(variable, bytes, detail);
}

static int environment_load(struct kvpull_config *config,
			    struct kvpull_error_detail *detail)
{
	char **variable;
	int rc = 0;

	for (variable = environ; !rc && variable && *variable; variable++) {
		if (strncmp(*variable, KVPULL_ENVIRONMENT_PREFIX,
			    strlen(KVPULL_ENVIRONMENT_PREFIX)) != 0 ||
		    strncmp(*variable, TEST_PREFIX, strlen(TEST_PREFIX)) == 0)
			continue;
		if (is_service_link(*variable))
			service_link_take(config, *variable);
		else
			rc = variable_load(config, *variable, detail);
	}
	return rc;
}

static int member_load(struct kvpull_config *config, const char *name,
		       const json_t *value, struct kvpull_error_detail *detail)
{
	struct origin origin = { NULL, "JSON", "value", detail };
	char *text;
	size_t i;
	int rc;

	for (i = 0; i < kvpull_config_key_count && !origin.key; i++)
		if (!strcmp(kvpull_config_keys[i].name, name))
			origin.key = &kvpull_config_keys[i];
	if (!origin.key)
		return kvpull_detail_set(detail, KVPULL_ECONFIG, name,
					 "unknown key %.60s: did you mean %s",
					 name,
					 kvpull_config_key_nearest(name)->name);
	text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
	if (text)
		origin.written = text;
	rc = json_set(config, &origin, value);
	free(text);
	return rc;
}

static int object_load(struct kvpull_config *config, const char *text,
		       struct kvpull_error_detail *detail)
{
	json_error_t error;
	json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, &error);
	json_t *value;
	const char *name;
	int rc = 0;

	if (!root)
		return kvpull_detail_set(detail, KVPULL_ECONFIG, "config_json",
					 "bad JSON in line %d column %d: %s",
					 error.line, error.column, error.text);
	if (!json_is_object(root)) {
		kvpull_detail_set(detail, KVPULL_ECONFIG, "config_json",
				  "the configuration must be a JSON object");
		rc = KVPULL_ECONFIG;
	}
	json_object_foreach(root, name, value)
	{
		rc = member_load(config, name, value, detail);
		if (rc)
			break;
	}
	json_decref(root);
	return rc;
}

static int key_refuse(struct kvpull_error_detail *detail, const char *path,
		      const char *why)
{
	return kvpull_detail_set(detail, KVPULL_ECONFIG, "key_file",
				 "key_file %.120s %s", path, why);
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
static int key_load(struct kvpull_config *config,
		    struct kvpull_error_detail *detail)
{
	const char *path = config->key_file;
	char why[96 + KVPULL_CAUSE_BYTES];
	int fd;
	int rc;

	if (!path[0])
		return 0;
	/* Non-blocking: a fifo must not hang us before it is refused. */
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (fd < 0) {
		(void)snprintf(why, sizeof(why), "cannot be opened: %s",
			       kvpull_why(OTHER, errno));
		return key_refuse(detail, path, why);
	}
	rc = key_check(fd, config, path, detail);
	(void)close(fd);
	return rc;
}

/* A row whose default is refused is a mistake of ours that open() tells. */
static int defaults_set(struct kvpull_config *config,
			struct kvpull_error_detail *detail)
{
	struct origin origin = { .label = "keys.h", .detail = detail };
	struct kvpull_users users;
	size_t i;
	int rc = 0;

	memset(config, 0, sizeof(*config));
	for (i = 0; !rc && i < kvpull_config_key_count; i++) {
		origin.key = &kvpull_config_keys[i];
		origin.written = origin.key->value;
		if (origin.key->type != KVPULL_KEY_UIDS)
			rc = text_set(config, &origin, origin.written);
	}
	config->log_level_set = 0;
	kvpull_users_look(&users);
	config->has_unknown_users = users.has_unknown;
	config->unknown_uid = users.unknown;
	config->uid_count = 1;
	config->uids[0] = (uint32_t)geteuid();
	(void)snprintf(config->socket_dir, sizeof(config->socket_dir),
		       "/tmp/kvpull-%u", config->uids[0]);
	return rc;
}

static int is_device(const char *name)
{
	return name[0] != '\0';
}

static int is_address(const char *text)
{
	struct kvpull_verbs_address address;

	return !kvpull_verbs_address_parse_ip(text, &address);
}

/* Takes "a,b;c,d" and "": is each item one? */
static int is_list(const char *list, int (*is_one)(const char *item))
{
	char item[RAIL_NAME_BYTES];
	size_t bytes;

	for (; *list; list += bytes + (list[bytes] != '\0')) {
		list += strspn(list, " ");
		bytes = strcspn(list, ",;");
		if (bytes >= sizeof(item) || (list[bytes] && !list[bytes + 1]))
			return 0;
		memcpy(item, list, bytes);
		item[bytes] = '\0';
		if (!is_one(item))
			return 0;
	}
	return 1;
}

static int text_refuse(struct kvpull_error_detail *detail, const char *name,
		       const char *value, const char *like)
{
	return kvpull_detail_set(detail, KVPULL_ECONFIG, name,
				 "%s %.60s is refused: must be like %s", name,
				 value, like);
}

/* Checks keys whose values depend on each other. */
static int together_check(const struct kvpull_config *config,
			  struct kvpull_error_detail *detail)
{
	struct kvpull_networks networks;

	if (config->hold_max_ms < config->lease_ms)
		return kvpull_detail_set(
			detail, KVPULL_ECONFIG, "hold_max_ms",
			"hold_max_ms %" PRIu64
			" is refused: must be at least lease_ms %" PRIu64,
			config->hold_max_ms, config->lease_ms);
	if (config->device == KVPULL_DEVICE_REQUIRED &&
	    config->route == KVPULL_ROUTE_PIN_VERBS)
		return kvpull_detail_set(
			detail, KVPULL_ECONFIG, "device",
			"device required is refused: route verbs shares no memory of a device: route must be auto or shm");
	if (kvpull_verbs_networks_parse(config->networks, &networks))
		return text_refuse(detail, "networks", config->networks,
				   "10.0.0.0/8,fd00::/8");
	if (!is_list(config->verbs_device, is_device))
		return text_refuse(detail, "verbs_device", config->verbs_device,
				   "mlx5_0,mlx5_1;mlx5_2,mlx5_3 or mlx5_*");
	if (!is_list(config->verbs_address, is_address))
		return text_refuse(detail, "verbs_address",
				   config->verbs_address,
				   "10.0.0.1,10.0.1.1;10.0.2.1,10.0.3.1");
	return 0;
}

int kvpull_config_load(struct kvpull_config *config, const char *json,
		       struct kvpull_error_detail *detail)
{
	struct kvpull_config loaded;
	int rc = defaults_set(&loaded, detail);

	if (!rc)
		rc = environment_load(&loaded, detail);
	if (!rc && json)
		rc = object_load(&loaded, json, detail);
	if (!rc)
		rc = together_check(&loaded, detail);
	if (!rc)
		rc = key_load(&loaded, detail);
	if (!rc)
		*config = loaded;
	explicit_bzero(loaded.key, sizeof(loaded.key));
	return rc;
}
