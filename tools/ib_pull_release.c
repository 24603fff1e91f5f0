/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A router's other uses of a ticket: takes one from a producer, and gives one
 * back that will reach no consumer. Giving back is the connector's call for a
 * request that was refused before admission: a release to every rank of the
 * ticket, without a read.
 */
#include <errno.h>
#include <poll.h>
#include <string.h>

#include "tools/ib_pull_parts.h"

#define RELEASE_NS UINT64_C(10000000000) /* then its lease ends it */
#define SETTLE_NS UINT64_C(300000000)    /* from a refusal to our giving up */
#define STEP_MS 5                        /* between two looks at the peers */
#define PEERS_MAX KVPULL_RANKS_MAX

struct release {
	struct ib_options options;
	struct engine engine;
	struct kvpull_ticket_info info;
	size_t text_bytes;
	char text[KVPULL_TICKET_BYTES_MAX +
		  1]; /* a text that fills it is too long */
};

int ib_ticket(const struct ib_options *options)
{
	const struct ib_ask what = {
		.kind = IB_ASK_PREFILL,
		.blocks = options->request_blocks,
		.siblings = options->siblings,
	};
	struct ib_call call = { .control = -1 };
	const int failed =
		ib_call_open(&call, options) || ib_call_ask(&call, &what);
	const int code = call.message.answer.code;

	if (!failed && code)
		fprintf(stderr, "no prefill: %s\n",
			code == KVPULL_EFULL ?
				"the producer has no room now" :
				"the producer has no such blocks");
	else if (!failed)
		printf("%.*s\n", (int)call.message.answer.ticket_bytes,
		       call.message.ticket);
	ib_call_close(&call);
	return failed || code;
}

/* The argument itself, or what the file that it names holds. */
static int text_take(struct release *release)
{
	const char *named = release->options.release;
	const size_t room = sizeof(release->text);
	FILE *file;

	if (strcmp(named, "-") != 0 && *named != '@') {
		release->text_bytes = strnlen(named, room);
		memcpy(release->text, named, release->text_bytes);
		return 0;
	}
	file = *named == '@' ? fopen(named + 1, "re") : stdin;
	if (!file) {
		fprintf(stderr, "%s: %s\n", named + 1, strerror(errno));
		return 1;
	}
	release->text_bytes = fread(release->text, 1, room, file);
	if (file != stdin)
		(void)fclose(file);
	while (release->text_bytes &&
	       strchr(" \t\r\n", release->text[release->text_bytes - 1]))
		release->text_bytes--;
	return 0;
}

/* Is there a rank that was not told yet? */
static int is_owed(const struct release *release)
{
	return engine_count(&release->engine, "releases_queued") ||
	       engine_has_step(&release->engine);
}

/* How many ranks are connected; why others are not, if that is to be said. */
static uint32_t told_count(const struct release *release, int is_said)
{
	struct kvpull_peer_info peers[PEERS_MAX];
	const struct engine *engine = &release->engine;
	uint32_t told = 0;
	uint32_t count = engine_peers(engine, 0, peers, PEERS_MAX);

	while (count-- > 0) {
		if (!peers[count].state_error)
			told++;
		else if (is_said)
			fprintf(stderr, "%s: %s\n", peers[count].address,
				engine->ops->error_text(
					peers[count].state_error));
	}
	return told;
}

/*
 * Until each rank is connected and has all that was said; or nothing is owed
 * any more and they are not: who refused us, or is gone, is not asked again.
 */
static int ranks_tell(struct release *release)
{
	struct engine *engine = &release->engine;
	const uint64_t until_ns = engine_now_ns() + RELEASE_NS;
	struct pollfd waits[ENGINE_RANKS_MAX] = { 0 };
	uint64_t owed_ns = engine_now_ns();
	int code;

	for (;;) {
		const uint64_t now_ns = engine_now_ns();

		code = engine_step(engine);
		if (code || *release->options.stop || now_ns >= until_ns)
			return code;
		if (is_owed(release))
			owed_ns = now_ns;
		else if (told_count(release, 0) == release->info.rank_count ||
			 now_ns - owed_ns >= SETTLE_NS)
			return 0;
		(void)poll(waits, engine_waits(engine, waits), STEP_MS);
	}
}

static int release_run(struct release *release)
{
	struct engine *engine = &release->engine;
	const uint32_t rank_count = release->info.rank_count;
	uint32_t told;
	int is_done;
	int code = engine->ops->scheduler->request_rejected(
		engine->scheduler, release->text, release->text_bytes);

	if (!code)
		code = ranks_tell(release);
	if (code) {
		fprintf(stderr, "ticket: %s\n", engine->ops->error_text(code));
		return 1;
	}
	told = told_count(release, 1);
	is_done = told == rank_count && !is_owed(release);
	fprintf(is_done ? stdout : stderr, "given back to %u of %u ranks%s\n",
		told, rank_count,
		is_done ?
			"" :
			": the lease ends what is left; --dir, --size, --layers and --groups must be the producer's");
	return !is_done;
}

/* Before anything is opened: what is no ticket never is one. */
static int ticket_look(struct release *release)
{
	const struct kvpull_connector_ops *ops = engine_library();
	int code;

	if (!ops || text_take(release))
		return 1;
	release->info.struct_size = sizeof(release->info);
	code = ops->ticket_peek(release->text, release->text_bytes,
				&release->info);
	if (code)
		fprintf(stderr, "ticket: %s\n", ops->error_text(code));
	return code != 0;
}

int ib_release(const struct ib_options *options)
{
	static struct release release;
	int failed;

	release.options = *options;
	/* Nothing is read: one block is enough to be of the same model. */
	release.options.shape.block_count = 1;
	release.options.tp_size = 1;
	release.options.thread = 1;
	failed = ticket_look(&release) ||
		 ib_engine_open(&release.options, &release.engine) ||
		 release_run(&release);
	if (release.engine.ops)
		engine_close(&release.engine);
	return failed;
}
