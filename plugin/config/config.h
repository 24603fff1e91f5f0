/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The configuration: one struct, filled from JSON keys and from environment
 * variables KVPULL_<KEY>. JSON wins over the environment. Unknown keys are errors
 * that name the nearest known one; so are values out of range. keys.h has a row
 * for each.
 */
#ifndef KVPULL_PLUGIN_CONFIG_H
#define KVPULL_PLUGIN_CONFIG_H

#include "base/device.h"
#include "base/log.h"
#include "base/users.h"
#include "plugin/bytes/handshake.h"
#include "plugin/config/keys.h"

#define KVPULL_UIDS_MAX 8u

enum kvpull_progress_mode {
	KVPULL_PROGRESS_THREAD = 0,
	KVPULL_PROGRESS_CALLER
};
enum kvpull_switch {
	KVPULL_AUTO = 0,
	KVPULL_OFF,
	KVPULL_ON
};

enum kvpull_status_mode {
	KVPULL_STATUS_ON = 0,
	KVPULL_STATUS_OFF
};

enum kvpull_device_mode {
	KVPULL_DEVICE_OFF = 0,
	KVPULL_DEVICE_AUTO,
	KVPULL_DEVICE_REQUIRED
};

struct kvpull_config {
	KVPULL_CONFIG_KEYS(KVPULL_KEY_MEMBER)
	uint32_t key_set; /* there is a key_file, and this is in it */
	uint8_t key[KVPULL_KEY_BYTES];
	uint32_t log_level_set; /* not the default: over the engine's own */
	uint32_t uid_count;
	uint32_t has_unknown_users; /* see struct kvpull_users */
	uint32_t unknown_uid;
	/* Variables that were passed over as links to a Service; the first one */
	uint32_t service_link_count;
	char service_link[64];
};

/**
 * Defaults, then the environment, then JSON. Variables KVPULL_TEST_* are not
 * looked at. A variable must be right even where JSON overrides it; the key
 * file is opened only once it is known which.
 *
 * @config  written only on success.
 * @json    object text, or NULL for environment and defaults alone.
 * Return: 0 or KVPULL_ECONFIG; detail (may be NULL) names key and range.
 */
int KVPULL_MUST_CHECK kvpull_config_load(struct kvpull_config *config,
					 const char *json,
					 struct kvpull_error_detail *detail);

/*
 * A worker's places for tickets: for those that its scheduler half knows, and
 * for as many, up to RELEASING_MAX, that it knows no more, whose release was
 * taken by its peer and not looked for yet, or is on its way.
 */
#define KVPULL_RELEASING_MAX 256u

static inline uint32_t
kvpull_config_claims_max(const struct kvpull_config *config)
{
	return config->tickets_max +
	       (config->tickets_max < KVPULL_RELEASING_MAX ?
			config->tickets_max :
			KVPULL_RELEASING_MAX);
}

/*
 * A worker's entries for producer ranks: those that claims which wait may keep,
 * and as many again for pulls, enough for each producer that fits peers_max.
 */
static inline uint32_t
kvpull_config_peer_entries(const struct kvpull_config *config)
{
	return config->peers_max + (config->peers_max < KVPULL_RANKS_MAX ?
					    config->peers_max :
					    KVPULL_RANKS_MAX);
}

/*
 * Users whose processes are let in, and believed, on this node. They refer to the
 * config. A peer over a network has no user here: networks and key decide.
 */
static inline struct kvpull_users
kvpull_config_users(const struct kvpull_config *config)
{
	return (struct kvpull_users){
		.uids = config->uids,
		.uid_count = config->uid_count,
		.has_unknown = config->has_unknown_users,
		.unknown = config->unknown_uid,
		.is_keyed = config->key_set,
	};
}

/* The key that key_file holds; NULL without one. */
static inline const uint8_t *
kvpull_config_key(const struct kvpull_config *config)
{
	return config->key_set ? config->key : NULL;
}

#endif /* KVPULL_PLUGIN_CONFIG_H */
