/* SPDX-License-Identifier: Apache-2.0 */
/*
 * X1: P and D in containers that share nothing but the socket folder, and that
 * under paths of their own: no /dev/shm, no /tmp, no PID, IPC, network or user
 * namespace in common.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/scenario/logs.h"
#include "tests/scenario/node.h"
#include "tests/scenario/sandbox.h"

#define BLOCKS 16u
#define PULLS 20u
#define LIMIT_NS (10 * SCENARIO_NS_PER_S * patience())

struct x1_setup {
	const char *config;
	const char *consumer; /* its config, if it is another one */
	void (*first)(void);
	void (*second)(void);
	const char *socket_dir; /* NULL: SANDBOX_FOLDER */
	uint32_t consumer_uid;  /* not 0: D is this user */
	uint32_t foreign;
};

static void container_open(const struct scenario *scenario, struct node *node,
			   const char *id, const struct x1_setup *setup)
{
	const uint32_t is_producer = *id == 'p';
	const struct node_params params = {
		.scenario = scenario,
		.id = id,
		.config = is_producer || !setup->consumer ? setup->config :
							    setup->consumer,
		.shape = scenario_shape(16384, BLOCKS * 4, 2),
		.tp_size = 2,
		.foreign = is_producer && setup->foreign,
		.scribble = is_producer,
		.socket_dir =
			setup->socket_dir ? setup->socket_dir : SANDBOX_FOLDER,
		.uid = is_producer ? 0 : setup->consumer_uid,
		.before_open = is_producer ? setup->first : setup->second,
		.log_path = log_path(id),
	};

	node_open(node, &params);
}

static void pair_open(const struct scenario *scenario, struct node *p,
		      struct node *d, const struct x1_setup *setup)
{
	/* Strangers make their sockets in it. */
	scenario_check(!chmod(scenario->folder, 01777), "chmod");
	sandbox_folder_set(scenario->folder);
	logs_open(scenario);
	container_open(scenario, p, "producer", setup);
	container_open(scenario, d, "consumer", setup);
}

static void pair_close(struct node *p, struct node *d)
{
	node_close(d);
	node_close(p);
}

static void containers_run(const struct scenario *scenario,
			   const struct x1_setup *setup)
{
	struct node p, d;

	pair_open(scenario, &p, &d, setup);
	node_pulls(&p, &d, BLOCKS, PULLS);
	pair_close(&p, &d);
}

static void x1_containers(const struct scenario *scenario)
{
	const struct x1_setup setup = { .config = "",
					.first = sandbox_container,
					.second = sandbox_container };

	containers_run(scenario, &setup);
}

/* D's next pull fails, or loads nothing, and both ends' words are as given. */
static void pull_refused(struct node *p, struct node *d, int32_t reason)
{
	static struct node_message message;
	struct node_message event;

	(void)node_prefill(p, &message, BLOCKS, 1);
	node_await(d, node_pull(d, &message), &event, LIMIT_NS);
	scenario_check(
		event.kind == KVPULL_POLL_FAILED && event.reason == reason,
		"the pull ended as %u, error %d", event.kind, event.reason);
}

/* ---- users of other user namespaces ---- */

struct keyed {
	char config[256];
};

/* The same key in a file of this user's own; in: how its engine calls the folder. */
static struct keyed keyed_config(const struct scenario *scenario, uint32_t uid,
				 const char *in, const char *uids)
{
	char path[256];
	struct keyed keyed;
	int fd;

	(void)snprintf(path, sizeof(path), "%s/.key-%u", scenario->folder, uid);
	fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	scenario_check(fd >= 0 && write(fd, "01234567890123456789012345678901",
					32) == 32,
		       "key file");
	if (fchown(fd, uid, (gid_t)-1))
		scenario_refuse("users other than our own need root");
	(void)close(fd);
	(void)snprintf(
		keyed.config, sizeof(keyed.config),
		"\"lease_ms\":1000,\"uids\":%s,\"key_file\":\"%s/.key-%u\"",
		uids, in, uid);
	return keyed;
}

static void x1_users(const struct scenario *scenario)
{
	/* Uids of another user namespace look like the overflow uid. */
	const struct keyed first = keyed_config(scenario, SANDBOX_FIRST_UID,
						SANDBOX_FOLDER, "[65534]");
	const struct keyed second = keyed_config(scenario, SANDBOX_SECOND_UID,
						 SANDBOX_FOLDER, "[65534]");
	const struct x1_setup setup = { .config = first.config,
					.consumer = second.config,
					.first = sandbox_container_first,
					.second = sandbox_container_second };

	containers_run(scenario, &setup);
}

static void x1_keyless(const struct scenario *scenario)
{
	const struct x1_setup setup = { .config = "\"uids\":[65534]",
					.first = sandbox_container_first,
					.second = sandbox_container_second };
	struct node p, d;

	pair_open(scenario, &p, &d, &setup);
	log_has("producer", "no process of user 65534 pulls or is pulled from");
	log_has("consumer", "no process of user 65534 pulls or is pulled from");
	pull_refused(&p, &d, KVPULL_EAUTH);
	log_has("producer",
		"user 65534 is any user that this user namespace does not map: set key_file at both ends");
	log_has("consumer",
		"from another user namespace, set key_file at both ends");
	pair_close(&p, &d);
}

/*
 * P is nobody in a pod, where the host's user 300000 is nobody, too; D sees P as
 * whom it is.
 */
static void x1_pod(const struct scenario *scenario)
{
	const struct x1_setup setup = { .config = "\"uids\":[65534,1]",
					.consumer = "\"uids\":[165534]",
					.first = sandbox_pod,
					.socket_dir = scenario->folder,
					.consumer_uid = 300000 };
	struct node p, d;

	pair_open(scenario, &p, &d, &setup);
	pull_refused(&p, &d, KVPULL_EAUTH);
	log_has("producer",
		"consumer refused: user 65534 is any user that this user namespace does not map");
	pair_close(&p, &d);
}

static void x1_pod_keyed(const struct scenario *scenario)
{
	const struct keyed first =
		keyed_config(scenario, SANDBOX_POD_FIRST + SANDBOX_UID,
			     scenario->folder, "[65534,1]");
	const struct keyed second =
		keyed_config(scenario, 300000, scenario->folder, "[165534]");
	const struct x1_setup setup = { .config = first.config,
					.consumer = second.config,
					.first = sandbox_pod,
					.socket_dir = scenario->folder,
					.consumer_uid = 300000 };

	containers_run(scenario, &setup);
}

static void x1_stranger(const struct scenario *scenario)
{
	/*
	 * The consumer would read there, but the producer does not know its
	 * user.
	 */
	const struct x1_setup setup = { .config = "\"uids\":[0,1]",
					.consumer = "\"uids\":[65534]",
					.first = sandbox_container_first,
					.second = sandbox_container_second };
	struct node p, d;

	pair_open(scenario, &p, &d, &setup);
	pull_refused(&p, &d, KVPULL_EAUTH);
	log_has("producer",
		"user 65534 is any user that this user namespace does not map: list it in uids");
	log_has("consumer", "does not let our user in: add it to its uids");
	pair_close(&p, &d);
}

static void x1_foreign(const struct scenario *scenario)
{
	const struct x1_setup setup = { .config = "\"lease_ms\":500",
					.first = sandbox_container,
					.second = sandbox_container,
					.foreign = 1 };
	struct node p, d;

	pair_open(scenario, &p, &d, &setup);
	pull_refused(&p, &d, KVPULL_EROUTE);
	log_has("consumer", "the peer is in another PID namespace");
	pair_close(&p, &d);
}

/* A store into a page that it cannot give would kill the engine (SIGBUS). */
static void x1_full(const struct scenario *scenario)
{
	const struct x1_setup setup = { .config = "",
					.first = sandbox_container_full,
					.second = sandbox_container_full };
	struct node p, d;

	pair_open(scenario, &p, &d, &setup);
	node_pulls(&p, &d, BLOCKS, 10 * PULLS);
	log_has("producer", "no status file in /dev/shm/kvpull-");
	log_has("consumer", "No space left on device");
	pair_close(&p, &d);
}

const struct scenario_case scenario_x1[] = {
	{ "X1a", "containers that share a socket folder alone pull",
	  x1_containers, 30, 30 },
	{ "X1b", "also from one user namespace to another, with a key",
	  x1_users, 30, 30 },
	{ "X1c", "a stranger of another user namespace is refused", x1_stranger,
	  30, 30 },
	{ "X1d", "an engine's own memory is refused there, with the reason",
	  x1_foreign, 30, 30 },
	{ "X1e", "where /dev/shm is full they pull, without a status file",
	  x1_full, 30, 30 },
	{ "X1f", "without a key the uid that all others have proves nothing",
	  x1_keyless, 30, 30 },
	{ "X1g", "a user of the host is none of a pod that is nobody", x1_pod,
	  30, 30 },
	{ "X1h", "with a key they pull", x1_pod_keyed, 30, 30 },
	{ 0 },
};
