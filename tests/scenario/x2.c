/* SPDX-License-Identifier: Apache-2.0 */
/*
 * X2: consumers and tickets that must not be let in, and what each is told. P
 * and the honest pulls beside them go on. What a consumer can do with the
 * descriptors that it was handed is tests/stress/hostile_consumer.c.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/scenario/logs.h"
#include "tests/scenario/mutant.h"
#include "tests/scenario/node.h"
#include "tests/scenario/sandbox.h"

#define BLOCKS 8u
#define LIMIT_NS (10 * SCENARIO_NS_PER_S * patience())
/* After a refusal, at a lease of 30 s: a second of a machine at rest. */
#define GIVEN_NS (SCENARIO_NS_PER_S * patience())
#define KEY_BYTES 32u

static void params_fill(const struct scenario *scenario, const char *id,
			const char *config, struct node_params *params)
{
	*params = (struct node_params){
		.scenario = scenario,
		.id = id,
		.config = config,
		.shape = scenario_shape(4096, BLOCKS * 8, 2),
		.tp_size = 1,
		.scribble = *id == 'p',
		.weights = "v1",
		.revision = "main",
		.log_path = log_path(id),
	};
}

static void start(const struct scenario *scenario, struct node *node,
		  const char *id, const char *config)
{
	struct node_params params;

	params_fill(scenario, id, config, &params);
	node_open(node, &params);
}

/* A pair that goes on beside whoever is refused. */
static void honest_start(const struct scenario *scenario, struct node *p,
			 struct node *d)
{
	logs_open(scenario);
	start(scenario, p, "producer", "");
	start(scenario, d, "consumer", "");
}

/* Checks the end of D's pull of this ticket. */
static void pull_ends(struct node *d, const struct node_message *ticket,
		      uint32_t kind, int32_t reason)
{
	struct node_message event;

	node_await(d, node_pull(d, ticket), &event, LIMIT_NS);
	scenario_check(
		event.kind == kind && event.reason == reason && !event.wrong,
		"%s: the pull ended as %u, error %d, %llu wrong bytes", d->id,
		event.kind, event.reason, (unsigned long long)event.wrong);
}

/* P's blocks are free soon after D was refused, and P says whose. */
static void given_back(struct node *p, uint64_t held, const char *d)
{
	struct node_message event;
	struct node_stats stats;

	node_await(p, held, &event, GIVEN_NS);
	scenario_check(event.reason == KVPULL_END_GIVEN_BACK,
		       "a hold ended by %d", event.reason);
	node_stats_get(p, &stats);
	scenario_check(!stats.scheduler.holds_live, "%llu holds are left",
		       (unsigned long long)stats.scheduler.holds_live);
	log_has(p->id, "gave back the ticket of request");
	if (d)
		log_has(d, "given back");
}

/* An honest request from end to end. */
static void works(struct node *p, struct node *d)
{
	static struct node_message message;
	struct node_message event;
	uint64_t held;

	held = node_prefill(p, &message, BLOCKS, 77);
	pull_ends(d, &message, KVPULL_POLL_LOADED, 0);
	node_await(p, held, &event, LIMIT_NS);
	scenario_check(event.reason == KVPULL_END_RELEASED,
		       "a hold ended by %d", event.reason);
}

/* ---- models ---- */

static const char lease[] = "\"lease_ms\":1000";

/* A pull that is refused; D gives the ticket back. */
static void other_model(const struct scenario *scenario, struct node *p,
			uint32_t field, const char *name)
{
	static struct node_message message;
	struct node_params params = { 0 };
	struct node d;
	char words[128];
	const char *ours[] = { "ib_pull", "main", "v1", "bytes", "LBHNC" };
	const char **fields[] = { &params.model, &params.revision,
				  &params.weights, &params.dtype,
				  &params.layout };
	uint64_t held;

	params_fill(scenario, name, "", &params);
	*fields[field] = "another";
	node_open(&d, &params);
	held = node_prefill(p, &message, BLOCKS, field + 1);
	pull_ends(&d, &message, NODE_EVENT_NOTHING, 0);
	(void)snprintf(words, sizeof(words), "%s is %s here and another there",
		       name, ours[field]);
	log_has("producer", words);
	(void)snprintf(words, sizeof(words), "%s is %s there and another here",
		       name, ours[field]);
	log_has(name, words);
	given_back(p, held, name);
	node_close(&d);
}

static void x2_models(const struct scenario *scenario)
{
	static const char *const names[] = { "model", "revision", "weights",
					     "dtype", "layout" };
	struct node p, d;
	uint32_t field;

	honest_start(scenario, &p, &d);
	for (field = 0; field < 5; field++)
		other_model(scenario, &p, field, names[field]);
	works(&p, &d);
	node_check_empty(&p);
	node_close(&d);
	node_close(&p);
}

/*
 * A hello of version 2 with a required field is refused by name, on both sides.
 */
static void x2_version(const struct scenario *scenario)
{
	static struct node_message message;
	struct node p, d, other;
	uint64_t held;

	honest_start(scenario, &p, &d);
	mutant_use("wire2", "plugin/bytes/handshake.c",
		   "s/return wanted ? wanted : KVPULL_WIRE_VERSION;/return 2;/;"
		   "s/^.*FIELD_OF(BYTES, struct kvpull_hello, nonce.*/&\\n"
		   "{ .name = \"colour\", .type = KVPULL_FIELD_U32, .size = 4, "
		   ".since = 2, .id = 1, .is_required = 1, "
		   ".offset = offsetof(struct kvpull_hello, pid) },/;"
		   "/struct kvpull_welcome, pp_size, .id = 3/{n;s/$/\\n"
		   "{ .name = \"colour\", .type = KVPULL_FIELD_U32, .size = 4, "
		   ".since = 2, .id = 4, .is_required = 1, "
		   ".offset = offsetof(struct kvpull_welcome, tp_size) },/;}");
	start(scenario, &other, "newer", "");
	held = node_prefill(&p, &message, BLOCKS, 1);
	pull_ends(&other, &message, KVPULL_POLL_FAILED, KVPULL_EVERSION);
	log_has("producer", "wire version (by colour) is 1 here and 2 there");
	log_has("newer", "wire version (by colour) is 1 there and 2 here");
	given_back(&p, held, "newer");
	/* As a producer it welcomes with what D does not know. */
	held = node_prefill(&other, &message, BLOCKS, 1);
	pull_ends(&d, &message, KVPULL_POLL_FAILED, KVPULL_EVERSION);
	log_has("consumer", "wire version (by colour) is 1 here and 2 there");
	log_has("newer", "refused us: wire version (by colour) is 1 there");
	given_back(&other, held, "consumer");
	works(&p, &d);
	node_kill(&other);
	node_check_empty(&p);
	node_close(&d);
	node_close(&p);
}

/* ---- users and keys ---- */

static void x2_uid(const struct scenario *scenario)
{
	static struct node_message message;
	struct node_params params;
	struct node p, d, closed, stranger;
	uint64_t held;

	if (geteuid())
		scenario_refuse("users other than our own need root");
	logs_open(scenario);
	scenario_check(!chmod(scenario->folder, 01777), "chmod");
	/* Uid 1 may read, so that its socket is open to all: 65534 may not. */
	start(scenario, &p, "producer", "\"uids\":[0,1]");
	start(scenario, &closed, "private", lease);
	start(scenario, &d, "consumer", "");
	/* The stranger would read from root, which does not know it. */
	params_fill(scenario, "stranger", "\"uids\":[0]", &params);
	params.before_open = sandbox_nobody;
	node_open(&stranger, &params);
	held = node_prefill(&p, &message, BLOCKS, 1);
	pull_ends(&stranger, &message, KVPULL_POLL_FAILED, KVPULL_EAUTH);
	log_has("producer", "user 65534 is not one of uids");
	log_has("stranger", "does not let our user in: add it to its uids");
	given_back(&p, held, "stranger");
	/* Root refuses the stranger's memory, for its user. */
	held = node_prefill(&stranger, &message, BLOCKS, 1);
	pull_ends(&d, &message, KVPULL_POLL_FAILED, KVPULL_EAUTH);
	given_back(&stranger, held, "consumer");
	(void)node_prefill(&closed, &message, BLOCKS, 1);
	pull_ends(&stranger, &message, KVPULL_POLL_FAILED, KVPULL_EAUTH);
	log_has("stranger", "Permission denied");
	works(&p, &d);
	node_kill(&stranger);
	node_check_empty(&p);
	node_close(&d);
	node_close(&closed);
	node_close(&p);
}

static void key_make(const struct scenario *scenario, const char *name,
		     uint8_t byte, char *config, size_t config_bytes)
{
	uint8_t key[KEY_BYTES];
	char path[256];
	int fd;

	memset(key, byte, sizeof(key));
	(void)snprintf(path, sizeof(path), "%s/.%s", scenario->folder, name);
	fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	scenario_check(fd >= 0 && write(fd, key, sizeof(key)) == KEY_BYTES,
		       "key file");
	(void)close(fd);
	(void)snprintf(config, config_bytes, "\"key_file\":\"%s\"", path);
}

/* The scheduler half does not take the ticket: nothing is pulled. */
static void ticket_refused(struct node *d, const struct node_message *ticket)
{
	static struct node_message message;
	struct node_message event;

	memcpy(&message, ticket, sizeof(message));
	message.op = NODE_PULL;
	node_call(d, &message);
	scenario_check(message.code == KVPULL_ENOTICKET,
		       "%s: a ticket was taken: %d", d->id, message.code);
	node_await(d, message.key, &event, LIMIT_NS);
	scenario_check(event.kind == NODE_EVENT_NOTHING, "%s: it loads", d->id);
}

/* D shares no key with P: it does not read, and P's blocks are free. */
static void other_key(struct node *p, struct node *d, const char *why)
{
	static struct node_message message;
	uint64_t held;

	held = node_prefill(p, &message, BLOCKS, 1);
	ticket_refused(d, &message);
	log_has(d->id, why);
	given_back(p, held, d->id);
}

static void x2_key(const struct scenario *scenario)
{
	struct node p, d, other, keyless;
	char ours[320], theirs[320];

	logs_open(scenario);
	key_make(scenario, "ours", 1, ours, sizeof(ours));
	key_make(scenario, "theirs", 2, theirs, sizeof(theirs));
	start(scenario, &p, "producer", ours);
	start(scenario, &d, "consumer", ours);
	start(scenario, &other, "other", theirs);
	start(scenario, &keyless, "keyless", "");
	other_key(&p, &other, "not made with our key");
	other_key(&p, &keyless, "made with a key_file, which this side lacks");
	other_key(&keyless, &d, "not made with our key");
	works(&p, &d);
	node_check_empty(&p);
	node_close(&keyless);
	node_close(&other);
	node_close(&d);
	node_close(&p);
}

/* ---- tickets ---- */

static void x2_prompt(const struct scenario *scenario)
{
	static struct node_message message;
	struct node_message event;
	struct node_stats stats;
	struct node p, d;
	uint64_t held;

	honest_start(scenario, &p, &d);
	held = node_prefill(&p, &message, BLOCKS, 1);
	message.seed++; /* D's own view of the prompt */
	pull_ends(&d, &message, NODE_EVENT_NOTHING, 0);
	log_has("consumer", "is for another prompt");
	node_stats_get(&d, &stats);
	scenario_check(stats.scheduler.mismatches == 1 &&
			       !stats.scheduler.pulls_commanded,
		       "%llu mismatches, %llu pulls",
		       (unsigned long long)stats.scheduler.mismatches,
		       (unsigned long long)stats.scheduler.pulls_commanded);
	/* P is freed all the same. */
	node_await(&p, held, &event, LIMIT_NS);
	scenario_check(event.reason == KVPULL_END_RELEASED,
		       "a hold ended by %d", event.reason);
	works(&p, &d);
	node_pair_close(&p, &d);
}

/* Any cut and any changed byte: refused twice over, nothing else happens. */
static void damage(struct node *d, const struct node_message *ticket,
		   uint32_t at, uint32_t is_cut)
{
	static struct node_message message;

	memcpy(&message, ticket, sizeof(message));
	if (is_cut)
		message.ticket_bytes = at;
	else
		message.ticket[at] ^= 1;
	ticket_refused(d, &message);
	memcpy(&message.ticket, ticket->ticket, sizeof(message.ticket));
	message.ticket_bytes = is_cut ? at : ticket->ticket_bytes;
	if (!is_cut)
		message.ticket[at] ^= 1;
	message.op = NODE_REJECT;
	message.siblings = 1;
	node_call(d, &message);
	scenario_check(message.code == KVPULL_ENOTICKET,
		       "a damaged ticket was rejected: %d", message.code);
}

static void x2_incomplete(const struct scenario *scenario)
{
	const uint32_t step = scenario->full ? 1 : 37;
	static struct node_message message;
	struct node_stats before, after;
	struct node_message event;
	struct node p, d;
	uint32_t count = 0;
	uint32_t at;

	honest_start(scenario, &p, &d);
	(void)node_prefill(&p, &message, BLOCKS, 1);
	node_stats_get(&d, &before);
	/* From beyond "kvp2.": what lacks that is not ours. */
	for (at = 5; at < message.ticket_bytes; at += step, count++) {
		damage(&d, &message, at, 0);
		damage(&d, &message, at, 1);
	}
	node_stats_get(&d, &after);
	scenario_check(
		after.scheduler.bad_tickets ==
				before.scheduler.bad_tickets + 4ull * count &&
			!after.scheduler.tickets_live &&
			!after.scheduler.rejects &&
			!after.ranks[0].peer_connects && !after.requests_open,
		"damaged tickets left something behind");
	/* The hold never learned of the damaged tickets. */
	pull_ends(&d, &message, KVPULL_POLL_LOADED, 0);
	node_await(&p, message.key, &event, LIMIT_NS);
	scenario_check(event.reason == KVPULL_END_RELEASED,
		       "a hold ended by %d", event.reason);
	scenario_say("%u cuts, %u changed bytes", count, count);
	node_check_empty(&p);
	node_close(&d);
	node_close(&p);
}

static void x2_elsewhere(const struct scenario *scenario)
{
	static struct node_message message;
	struct node_params params;
	struct node p, d, elsewhere;
	char folder[256];

	logs_open(scenario);
	(void)snprintf(folder, sizeof(folder), "%s/.elsewhere",
		       scenario->folder);
	start(scenario, &p, "producer", lease);
	start(scenario, &d, "consumer", lease);
	params_fill(scenario, "outside", lease, &params);
	params.socket_dir = folder;
	params.scribble = 1;
	node_open(&elsewhere, &params);
	/* A good ticket of a live P, whose socket lies in another folder. */
	(void)node_prefill(&elsewhere, &message, BLOCKS, 1);
	pull_ends(&d, &message, KVPULL_POLL_FAILED, KVPULL_EROUTE);
	log_has("consumer", "no allowed route to shm:");
	works(&p, &d);
	node_check_empty(&d);
	node_close(&elsewhere);
	node_close(&d);
	node_close(&p);
}

/* ---- configuration ---- */

static void variable_set(void)
{
	(void)setenv("KVPULL_LEASEMS", "10", 1);
}

static void x2_config(const struct scenario *scenario)
{
	static const char *const keys[][2] = {
		{ "leese_ms", "lease_ms" },
		{ "socketdir", "socket_dir" },
		{ "max_hold", "max_holds" },
		{ "copy_thread", "copy_threads" },
		{ "uid", "uids" },
		{ "progres", "progress" },
		{ "hold_max_s", "hold_max_ms" },
	};
	const struct kvpull_connector_ops *ops = engine_library();
	struct kvpull_error_detail detail = { .struct_size = sizeof(detail) };
	struct node_params params;
	struct node node;
	char config[64];
	uint32_t index;

	logs_open(scenario);
	scenario_check(ops != NULL, "no library");
	for (index = 0; index < sizeof(keys) / sizeof(keys[0]); index++) {
		(void)snprintf(config, sizeof(config), "{\"%s\":1}",
			       keys[index][0]);
		scenario_check(ops->config_check(config, &detail) ==
					       KVPULL_ECONFIG &&
				       !strcmp(detail.field, keys[index][0]) &&
				       strstr(detail.message, keys[index][1]),
			       "%s: %s", config, detail.message);
	}
	params_fill(scenario, "producer", "\"leese_ms\":10", &params);
	scenario_check(node_try(&node, &params) == KVPULL_ECONFIG,
		       "an unknown key is taken");
	node_kill(&node);
	params_fill(scenario, "producer", "", &params);
	params.before_open = variable_set;
	scenario_check(node_try(&node, &params) == KVPULL_ECONFIG,
		       "an unknown variable is taken");
	node_kill(&node);
}

/* ---- memory ---- */

/* A dmabuf that the engine made itself: nothing orders pulls into it. */
static void x2_device(const struct scenario *scenario)
{
	struct node_params params;
	struct node node;

	logs_open(scenario);
	params_fill(scenario, "producer", "", &params);
	params.device = 1;
	scenario_check(node_try(&node, &params) == KVPULL_EUNSUPPORTED,
		       "a dmabuf of the engine's is taken");
	node_kill(&node);
}

/*
 * Two consumers that have pulled once, and say nothing more, fill consumers_max.
 * A third one pulls all the same, and so do they again.
 */
static void x2_crowd(const struct scenario *scenario)
{
	static const char *const ids[] = { "first", "second", "third" };
	struct node p;
	struct node d[3];
	uint64_t longest_ns = 0;
	uint32_t turn;

	logs_open(scenario);
	start(scenario, &p, "producer", "\"consumers_max\":2");
	for (turn = 0; turn < 3; turn++)
		start(scenario, &d[turn], ids[turn], "\"deadline_ms\":3000");
	for (turn = 0; turn < 6; turn++) {
		const uint64_t begun_ns = engine_now_ns();
		uint64_t took_ns;

		works(&p, &d[turn % 3]);
		took_ns = engine_now_ns() - begun_ns;
		longest_ns = took_ns > longest_ns ? took_ns : longest_ns;
	}
	log_has("producer", "make room for a new one");
	for (turn = 0; turn < 3; turn++)
		node_close(&d[turn]);
	node_check_empty(&p);
	node_close(&p);
	scenario_say("a pull took %llu ms at most",
		     (unsigned long long)(longest_ns / SCENARIO_NS_PER_MS));
	scenario_check(longest_ns <= patience() * SCENARIO_NS_PER_S,
		       "it is not in within a second");
}

const struct scenario_case scenario_x2[] = {
	{ "X2a", "another model, revision, weights, dtype, layout: named",
	  x2_models, 30, 30 },
	{ "X2b", "another wire version is refused", x2_version, 120, 120 },
	{ "X2c", "another user is refused, and named", x2_uid, 30, 30 },
	{ "X2d", "another key, or none, is refused", x2_key, 30, 30 },
	{ "X2e", "a ticket of another prompt loads nothing and frees P",
	  x2_prompt, 30, 30 },
	{ "X2f", "an incomplete ticket changes nothing", x2_incomplete, 30,
	  120 },
	{ "X2g", "a ticket that names a peer elsewhere is refused",
	  x2_elsewhere, 30, 30 },
	{ "X2h", "unknown config keys name the nearest", x2_config, 30, 30 },
	{ "X2i", "a dmabuf of the engine's own is refused", x2_device, 30, 30 },
	{ "X2j", "consumers that claim nothing make room for one that pulls",
	  x2_crowd, 30, 30 },
	{ 0 },
};
