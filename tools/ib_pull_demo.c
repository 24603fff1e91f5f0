/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The main job in one command: a producer and three consumers as processes of
 * their own, siblings, rejects, aborts, and a consumer killed with -9 while it
 * pulls. Says what happened, and fails unless 0 bytes were wrong, 0 holds are
 * left and every block came back.
 */
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tools/ib_pull_parts.h"
#include "tools/json.h"

#define CONSUMERS_MAX 16u
#define PROGRESS_NS 200000000
#define PROGRESS_COLUMNS 70
#define SETTLE_NS UINT64_C(10000000000) /* beside the lease */

struct demo {
	const struct ib_options *options;
	const struct ib_result
		*results; /* [consumers + 1], shown while they pull; or NULL */
};

pid_t ib_child_start(int serves)
{
	const struct sigaction passed = { .sa_handler = SIG_IGN };
	const pid_t pid = fork();

	if (pid)
		return pid;
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (serves) {
		(void)sigaction(SIGINT, &passed, NULL);
		(void)sigaction(SIGHUP, &passed, NULL);
	}
	return 0;
}

static pid_t producer_start(const struct ib_options *options)
{
	struct ib_options own = *options;
	const pid_t pid = ib_child_start(1);

	if (pid)
		return pid;
	own.name = "producer";
	own.quiet = 1;
	_exit(ib_serve(&own));
}

static pid_t consumer_start(const struct ib_options *options, uint32_t index,
			    struct ib_result *results)
{
	static const char *const names[] = { "consumer-0", "consumer-1",
					     "consumer-2", "consumer-x" };
	struct ib_options own = *options;
	const pid_t pid = ib_child_start(0);

	if (pid)
		return pid;
	own.name = names[index < 3 ? index : 3];
	own.quiet = 1;
	own.seed += 77 * (index + 1);
	if (index == options->consumers) {
		/* The one that dies, with tickets claimed and a pull running. */
		own.kill_after = own.trace ? 1 : 1 + own.request_count / 4;
		own.reject_percent = own.abort_percent = 0;
		own.siblings = 1;
	}
	_exit(ib_pull(&own, &results[index]));
}

/* A line of what all consumers did so far, over the one before. */
static void progress_show(const struct ib_options *options,
			  const struct ib_result *results)
{
	unsigned long long pulls = 0;
	unsigned long long failed = 0;
	uint32_t index;

	for (index = 0; index <= options->consumers; index++) {
		pulls += results[index].loaded;
		failed += results[index].failed;
	}
	fprintf(stderr, "\rdemo: %u consumers, %llu pulls, %llu failed ",
		options->consumers + 1, pulls, failed);
}

/*
 * The last of these processes. A signal that was for us alone goes to all of
 * them: they end, and say what they did. On a terminal their progress is shown.
 */
static pid_t last_wait(const struct demo *demo, const pid_t *pids,
		       uint32_t count, int *status)
{
	const int is_shown = demo->results && isatty(STDERR_FILENO);
	pid_t got;
	uint32_t index;

	while ((got = waitpid(pids[count - 1], status,
			      is_shown ? WNOHANG : 0)) <= 0) {
		if (got < 0 && errno != EINTR)
			break;
		for (index = 0; *demo->options->stop && index < count; index++)
			(void)kill(pids[index], SIGTERM);
		if (is_shown) {
			progress_show(demo->options, demo->results);
			ib_nap(PROGRESS_NS);
		}
	}
	if (is_shown)
		fprintf(stderr, "\r%*s\r", PROGRESS_COLUMNS, "");
	return got;
}

/* How a process ended that should have ended otherwise. */
static void end_say(const char *who, uint32_t index, int status)
{
	if (WIFSIGNALED(status))
		fprintf(stderr, "%s %u was ended by signal %d (%s)\n", who,
			index, WTERMSIG(status), strsignal(WTERMSIG(status)));
	else
		fprintf(stderr, "%s %u ended with exit status %d\n", who, index,
			WEXITSTATUS(status));
}

static int wait_all(const struct demo *demo, const pid_t *pids, uint32_t count,
		    const char *who)
{
	int failed = 0;

	for (; count; count--) {
		int status = 0;

		if (last_wait(demo, pids, count, &status) > 0 &&
		    WIFEXITED(status) && !WEXITSTATUS(status))
			continue;
		failed = 1;
		if (!*demo->options->stop)
			end_say(who, count - 1, status);
	}
	return failed;
}

/* Until every hold ended; then it is what a pool without a leak looks like. */
static int settle(const struct ib_options *options, struct ib_answer *answer)
{
	const uint64_t until_ns = engine_now_ns() + SETTLE_NS +
				  options->lease_ms * UINT64_C(1000000);

	do {
		if (ib_ask_stats(options, answer))
			return 1;
		if (!answer->holds_live &&
		    answer->blocks_free == answer->blocks_all)
			return 0;
		ib_nap(5000000);
	} while (engine_now_ns() < until_ns && !*options->stop);
	return 1;
}

/* Sums of a demo over all of its consumers. */
struct outcome {
	const struct ib_options *options;
	const struct ib_result
		*results;        /* [consumers + 1], the last was killed */
	struct ib_answer answer; /* of the producer, at the end */
	uint64_t loaded, checked, wrong, doubles;
	uint32_t is_right;
};

static void judge(struct outcome *outcome)
{
	const struct ib_options *options = outcome->options;
	const struct ib_answer *answer = &outcome->answer;
	uint32_t index;

	outcome->doubles = answer->double_reports;
	for (index = 0; index <= options->consumers; index++) {
		const struct ib_result *result = &outcome->results[index];

		outcome->loaded += result->loaded;
		outcome->checked += result->bytes_checked;
		outcome->wrong += result->bytes_wrong;
		outcome->doubles += result->double_reports;
	}
	outcome->is_right = !outcome->wrong && !answer->holds_live &&
			    outcome->checked && outcome->loaded &&
			    !outcome->doubles &&
			    answer->blocks_free == answer->blocks_all &&
			    answer->holds_expired <= options->depth;
}

static void say_text(const struct outcome *outcome)
{
	const struct ib_result *results = outcome->results;
	const struct ib_answer *answer = &outcome->answer;
	const uint32_t consumers = outcome->options->consumers;
	uint32_t index;

	for (index = 0; index < consumers; index++)
		printf("consumer %u: %llu pulls read and verified, %llu served by a sibling's pull, %llu rejected before admission, %llu aborted while loading, %llu failed\n",
		       index, (unsigned long long)results[index].loaded,
		       (unsigned long long)results[index].served,
		       (unsigned long long)results[index].rejected,
		       (unsigned long long)results[index].aborted,
		       (unsigned long long)results[index].failed);
	printf("consumer %u: killed with -9 after %llu pulls were claimed\n",
	       consumers, (unsigned long long)results[consumers].pulls);
	printf("producer: %llu holds released, %llu ended by lease (tickets that the killed one had but had not claimed), %llu of %llu blocks free, %llu double reports\n",
	       (unsigned long long)answer->holds_released,
	       (unsigned long long)answer->holds_expired,
	       (unsigned long long)answer->blocks_free,
	       (unsigned long long)answer->blocks_all,
	       (unsigned long long)answer->double_reports);
	printf("%llu bytes checked, %llu bytes wrong, %llu holds left\n",
	       (unsigned long long)outcome->checked,
	       (unsigned long long)outcome->wrong,
	       (unsigned long long)answer->holds_live);
	printf("demo: %s\n", outcome->is_right ? "ok" : "FAILED");
}

static json_t *consumer_json(const struct ib_result *result)
{
	return json_pack("{s:I, s:I, s:I, s:I, s:I}", "pulls",
			 (json_int_t)result->loaded, "served_by_sibling",
			 (json_int_t)result->served, "rejected",
			 (json_int_t)result->rejected, "aborted",
			 (json_int_t)result->aborted, "failed",
			 (json_int_t)result->failed);
}

static void say_json(const struct outcome *outcome)
{
	const struct ib_answer *answer = &outcome->answer;
	const uint32_t consumers = outcome->options->consumers;
	json_t *each = json_array();
	json_t *object;
	uint32_t index;

	for (index = 0; index < consumers; index++)
		(void)json_array_append_new(
			each, consumer_json(&outcome->results[index]));
	object = json_pack(
		"{s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:b}",
		"consumers", each, "killed_after_pulls",
		(json_int_t)outcome->results[consumers].pulls, "bytes_checked",
		(json_int_t)outcome->checked, "bytes_wrong",
		(json_int_t)outcome->wrong, "holds_released",
		(json_int_t)answer->holds_released, "holds_expired",
		(json_int_t)answer->holds_expired, "holds_left",
		(json_int_t)answer->holds_live, "blocks_free",
		(json_int_t)answer->blocks_free, "blocks",
		(json_int_t)answer->blocks_all, "double_reports",
		(json_int_t)outcome->doubles, "ok", (int)outcome->is_right);
	(void)json_show(object, 2);
}

/* A killed one's socket is left, and where it is in memory status files. */
void ib_folder_remove(const char *path)
{
	DIR *folder = opendir(path);
	const struct dirent *entry;

	while (folder && (entry = readdir(folder)) != NULL)
		(void)unlinkat(dirfd(folder), entry->d_name, 0);
	if (folder)
		(void)closedir(folder);
	(void)rmdir(path);
}

/* Until the one that is to be killed was, and the others are done. */
static int consumers_wait(const struct demo *demo, const pid_t *pids)
{
	const uint32_t killed = demo->options->consumers;
	int status = 0;

	if (last_wait(demo, pids, killed + 1, &status) > 0 &&
	    WIFSIGNALED(status))
		return wait_all(demo, pids, killed, "consumer");
	if (!*demo->options->stop)
		end_say("consumer to be killed,", killed, status);
	(void)wait_all(demo, pids, killed, "consumer");
	return 1;
}

/* In own's folder. 0, or 1 if something was wrong. */
static int play(const struct ib_options *own, struct ib_result *results)
{
	struct outcome outcome = { .options = own, .results = results };
	struct demo demo = { .options = own, .results = results };
	pid_t consumers[CONSUMERS_MAX + 1];
	pid_t producer;
	uint32_t index;
	int failed;

	(void)fflush(stdout);
	producer = producer_start(own);
	for (index = 0; index <= own->consumers; index++)
		consumers[index] = consumer_start(own, index, results);
	failed = consumers_wait(&demo, consumers);
	failed |= settle(own, &outcome.answer);
	(void)kill(producer, SIGTERM);
	demo.results = NULL;
	failed |= wait_all(&demo, &producer, 1, "producer");
	judge(&outcome);
	outcome.is_right &= !failed;
	if (own->json)
		say_json(&outcome);
	else
		say_text(&outcome);
	return !outcome.is_right;
}

int ib_demo(const struct ib_options *options)
{
	struct ib_options own = *options;
	char dir[64];
	struct ib_result *results;
	int failed;

	own.verify = 1;
	results =
		mmap(NULL, (own.consumers + 1) * sizeof(*results),
		     PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	(void)snprintf(dir, sizeof(dir), "/tmp/kvpull-demo-%u-XXXXXX",
		       (unsigned int)getpid());
	if (results == MAP_FAILED || (!options->dir && !mkdtemp(dir))) {
		fprintf(stderr, "%s: %s\n", dir, strerror(errno));
		return 1;
	}
	if (!options->dir)
		own.dir = dir;
	failed = play(&own, results);
	(void)munmap(results, (own.consumers + 1) * sizeof(*results));
	if (!options->dir)
		ib_folder_remove(dir);
	return failed;
}
