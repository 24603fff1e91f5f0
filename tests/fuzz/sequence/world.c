/* SPDX-License-Identifier: Apache-2.0 */
/* Opens and closes a world, and counts what is open. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sodium.h>

#include "shm/shm.h"
#include "tests/fuzz/sequence/sequence.h"
#include "tests/lib/folder.h"

/* Later than the kernel's clock gets: its timers are never due. */
#define BEGAN_NS (UINT64_C(400) * 24 * 3600 * KVPULL_NS_PER_S)

static DIR *fds_open(void)
{
	DIR *folder = opendir("/proc/self/fd");

	if (!folder)
		seq_fail("/proc/self/fd cannot be read");
	return folder;
}

/* All but pipes: nobody here makes one, but a sanitizer's symbolizer does. */
static uint32_t fds_count(DIR *folder)
{
	const struct dirent *entry;
	uint32_t count = 0;

	while ((entry = readdir(folder)) != NULL) {
		char target[8] = { 0 };

		(void)!readlinkat(dirfd(folder), entry->d_name, target,
				  sizeof(target) - 1);
		count += strncmp(target, "pipe:", 5) != 0;
	}
	return count;
}

uint32_t seq_fds(void)
{
	static uint32_t all_last, last;
	DIR *folder = fds_open();
	uint32_t all = 0;

	while (readdir(folder))
		all++;
	/* As many as the last time: of the same kinds. */
	if (all != all_last) {
		rewinddir(folder);
		last = fds_count(folder);
		all_last = all;
	}
	(void)closedir(folder);
	return last;
}

uint64_t seq_world_now(void *context)
{
	struct seq_world *world = context;

	return world->now_ns += world->pace_ns;
}

int seq_has_verbs(const struct seq_world *world)
{
	return !world->worn;
}

/* As in plugin/route: the socket is named after the incarnation. */
static struct kvpull_transport *shm_make(struct seq_engine *engine,
					 const struct kvpull_log *log)
{
	const struct kvpull_config *config = &engine->config;
	char name[64];
	const struct kvpull_shm_params params = {
		.log = log,
		.socket_dir = config->socket_dir,
		.name = name,
		.peers_max = kvpull_config_peer_entries(config),
		.callers_max = config->consumers_max,
		.ring_records = config->ring_records,
		.reads_max = SEQ_READS,
		.poll_copies = 1,
		.inline_bytes = config->inline_bytes,
		.connect_ns = config->connect_ms * KVPULL_NS_PER_MS,
		.uring = KVPULL_URING_NO,
		.users = kvpull_config_users(config),
	};
	struct kvpull_transport *shm;

	(void)snprintf(name, sizeof(name), "kvpull-%016llx.sock",
		       (unsigned long long)engine->incarnation);
	if (kvpull_shm_open(&params, &engine->arena, &shm))
		seq_fail("engine %u: no route shm", engine->who);
	seq_audit_begin(&engine->shm, engine->world, "shm", shm);
	return shm;
}

static struct kvpull_transport *verbs_make(struct seq_engine *engine,
					   const struct kvpull_log *log)
{
	const struct kvpull_config *config = &engine->config;
	const struct kvpull_verbs_params params = {
		.log = log,
		.fabric = fake_verbs_fabric(),
		.networks = "10.66.0.0/16",
		.rails = engine->world->options.rails,
		.peers_max = kvpull_config_peer_entries(config),
		.callers_max = config->consumers_max,
		.ring_records = config->ring_records,
		.reads_max = SEQ_READS,
		.engine_wake_fd = -1,
		.notify_credits = config->verbs_credits,
		.depth = config->verbs_depth,
		.batch = config->verbs_batch,
		.connect_ns = config->connect_ms * KVPULL_NS_PER_MS,
		.flush_ns = config->flush_after_ms * KVPULL_NS_PER_MS,
	};
	struct kvpull_transport *verbs;

	if (kvpull_verbs_open(&params, &engine->arena, &verbs))
		seq_fail("engine %u: no route verbs", engine->who);
	seq_audit_begin(&engine->verbs, engine->world, "verbs", verbs);
	seq_audit_keeps_rings(&engine->verbs);
	return verbs;
}

/* Both routes, audited; V has no shm. */
struct kvpull_transport *
seq_world_transport(void *context, const struct kvpull_log *log, uint32_t at)
{
	struct seq_engine *engine = context;

	if (!at)
		kvpull_arena_init(&engine->arena, log);
	at += engine->who == SEQ_V;
	if (at == 0)
		return shm_make(engine, log);
	return at == 1 ? verbs_make(engine, log) : NULL;
}

/* Nonces and names, the same for a seed each time. */
static uint64_t noise_state;

static const char *noise_name(void)
{
	return "sequence";
}

static uint32_t noise_next(void)
{
	noise_state = noise_state * UINT64_C(6364136223846793005) + 1442695041;
	return (uint32_t)(noise_state >> 32);
}

static void noise_fill(void *const bytes, const size_t byte_count)
{
	uint8_t *at = bytes;
	size_t left;

	for (left = byte_count; left; left--)
		*at++ = (uint8_t)noise_next();
}

static struct randombytes_implementation noise = {
	.implementation_name = noise_name,
	.random = noise_next,
	.buf = noise_fill,
};

static void noise_begin(uint64_t seed)
{
	noise_state = seed;
	(void)randombytes_set_implementation(&noise);
}

void seq_world_open(struct seq_world *world, const struct seq_options *options)
{
	uint32_t who;

	memset(world, 0, sizeof(*world));
	fake_verbs_reset();
	noise_begin(options->seed);
	world->options = *options;
	world->now_ns = BEGAN_NS;
	world->pace_ns = 100;
	world->open_fds = seq_fds();
	world->open_objects = fake_verbs_live();
	fake_verbs_devices(options->rails);
	(void)snprintf(world->folder, sizeof(world->folder),
		       "/tmp/kvpull-sequence-XXXXXX");
	if (!mkdtemp(world->folder))
		seq_fail("no folder for sockets");
	for (who = 0; who < SEQ_ENGINES; who++) {
		world->engines[who].world = world;
		world->engines[who].who = (enum seq_who)who;
		world->engines[who].incarnation = (options->seed << 20) +
						  ((uint64_t)who << 17) +
						  (1u << 16);
		seq_engine_open(&world->engines[who]);
	}
	seq_strangers_open(world);
	seq_raws_open(world);
}

void seq_world_close(struct seq_world *world)
{
	uint32_t who;

	fake_verbs_knobs = (struct fake_verbs_knobs){ 0 };
	seq_strangers_close(world);
	seq_raws_close(world);
	/* close() waits by this clock for peers that do not answer any more. */
	world->pace_ns = KVPULL_NS_PER_MS;
	for (who = SEQ_ENGINES; who-- > 0;)
		seq_engine_close(&world->engines[who]);
	if (folder_remove(world->folder))
		seq_fail("the folder of the sockets is not empty");
	if (fake_verbs_live() != world->open_objects)
		seq_fail("%u objects of the fabric are left after close()",
			 fake_verbs_live() - world->open_objects);
	/* Less: who runs this had a file open then. */
	if (seq_fds() > world->open_fds)
		seq_fail("%d descriptors are left after close()",
			 (int)(seq_fds() - world->open_fds));
}
