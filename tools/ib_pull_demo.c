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
#include <unistd.h>

#include "tools/ib_pull_parts.h"
#include "tools/json.h"

#define CONSUMERS_MAX 16u
#define PROGRESS_NS 200000000
#define PROGRESS_COLUMNS 70
#define SETTLE_NS UINT64_C(10000000000) /* beside the lease */

pid_t ib_child_start(int serves)
{
	const pid_t pid = fork();

	if (!pid)
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (!pid && serves) {
		(void)signal(SIGINT, SIG_IGN);
		(void)signal(SIGHUP, SIG_IGN);
	}
	return pid;
}

/* A killed one's socket is left, and where it is in memory status files. */
static void folder_remove(const char *path)
{
	DIR *folder = opendir(path);
	const struct dirent *entry;

	while (folder && (entry = readdir(folder)) != NULL)
		(void)unlinkat(dirfd(folder), entry->d_name, 0);
	if (folder)
		(void)closedir(folder);
	(void)rmdir(path);
}

int ib_together(const struct ib_options *options, const char *name,
		size_t shared_bytes,
		int (*play)(struct ib_options *own, void *shared))
{
	struct ib_options own = *options;
	char dir[64];
	void *shared = mmap(NULL, shared_bytes, PROT_READ | PROT_WRITE,
			    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int failed;

	(void)snprintf(dir, sizeof(dir), "/tmp/kvpull-%s-%u-XXXXXX", name,
		       (unsigned int)getpid());
	if (!own.dir)
		own.dir = dir;
	if (shared == MAP_FAILED || (!options->dir && !mkdtemp(dir))) {
		fprintf(stderr, "%s: %s\n", own.dir, strerror(errno));
		return 1;
	}
	(void)fflush(stdout);
	failed = play(&own, shared);
	(void)munmap(shared, shared_bytes);
	if (!options->dir)
		folder_remove(dir);
	return failed;
}

/* result: of a consumer; NULL: the producer. */
static pid_t process_start(const struct ib_options *options, const char *name,
			   struct ib_result *result)
{
	struct ib_options own = *options;
	const pid_t pid = ib_child_start(!result);

	if (pid)
		return pid;
	own.name = name;
	own.quiet = 1;
	_exit(result ? ib_pull(&own, result) : ib_serve(&own));
}

static pid_t consumer_start(const struct ib_options *options, uint32_t index,
			    struct ib_result *results)
{
	static const char *const names[] = { "consumer-0", "consumer-1",
					     "consumer-2", "consumer-x" };
	struct ib_options own = *options;

	own.seed += 77 * (index + 1);
	if (index == options->consumers) {
		/* The one that dies, with tickets claimed and a pull running. */
		own.kill_after = own.trace ? 1 : 1 + own.request_count / 4;
		own.reject_percent = own.abort_percent = 0;
		own.siblings = 1;
	}
	return process_start(&own, names[index < 3 ? index : 3],
			     &results[index]);
}

/* Sums over all consumers, as far as the demo asks for them. */
static struct ib_result sum_up(const struct ib_options *options,
			       const struct ib_result *results)
{
	struct ib_result sum = { 0 };
	uint32_t index;

	for (index = 0; index <= options->consumers; index++) {
		sum.loaded += results[index].loaded;
		sum.failed += results[index].failed;
		sum.bytes_checked += results[index].bytes_checked;
		sum.bytes_wrong += results[index].bytes_wrong;
		sum.double_reports += results[index].double_reports;
	}
	return sum;
}

/* A line of what all consumers did so far, over the one before. */
static void progress_show(const struct ib_options *options,
			  const struct ib_result *results)
{
	const struct ib_result sum = sum_up(options, results);

	fprintf(stderr, "\rdemo: %u consumers, %llu pulls, %llu failed ",
		options->consumers + 1, sum.loaded, sum.failed);
}

/* A child that could not be started has -1, which kill() takes for everybody. */
static void child_end(pid_t pid)
{
	if (pid > 0)
		(void)kill(pid, SIGTERM);
}

int ib_child_wait(const struct ib_options *options, const pid_t *pids,
		  uint32_t count, const struct ib_result *results)
{
	const int is_shown = results && isatty(STDERR_FILENO);
	int status = -1;
	pid_t got;
	uint32_t index;

	while (pids[count - 1] > 0 &&
	       (got = waitpid(pids[count - 1], &status,
			      is_shown ? WNOHANG : 0)) <= 0) {
		if (got < 0 && errno != EINTR)
			break;
		for (index = 0; *options->stop && index < count; index++)
			child_end(pids[index]);
		if (is_shown) {
			progress_show(options, results);
			ib_nap(PROGRESS_NS);
		}
	}
	if (is_shown)
		fprintf(stderr, "\r%*s\r", PROGRESS_COLUMNS, "");
	return status;
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

static int is_right(const struct ib_options *options,
		    const struct ib_result *sum, const struct ib_answer *answer)
{
	return !sum->bytes_wrong && sum->bytes_checked && sum->loaded &&
	       !sum->double_reports && !answer->double_reports &&
	       !answer->holds_live &&
	       answer->blocks_free == answer->blocks_all &&
	       answer->holds_expired <= options->depth;
}

static void say_text(const struct ib_options *options,
		     const struct ib_result *results,
		     const struct ib_result *sum,
		     const struct ib_answer *answer)
{
	const uint32_t consumers = options->consumers;
	uint32_t index;

	for (index = 0; index < consumers; index++)
		printf("consumer %u: %llu pulls read and verified, %llu served by a sibling's pull, %llu rejected before admission, %llu aborted while loading, %llu failed\n",
		       index, results[index].loaded, results[index].served,
		       results[index].rejected, results[index].aborted,
		       results[index].failed);
	printf("consumer %u: killed with -9 after %llu pulls were claimed\n",
	       consumers, results[consumers].pulls);
	printf("producer: %llu holds released, %llu ended by lease (tickets that the killed one had but had not claimed), %llu of %llu blocks free, %llu double reports\n",
	       (unsigned long long)answer->holds_released,
	       (unsigned long long)answer->holds_expired,
	       (unsigned long long)answer->blocks_free,
	       (unsigned long long)answer->blocks_all,
	       (unsigned long long)answer->double_reports);
	printf("%llu bytes checked, %llu bytes wrong, %llu holds left\n",
	       sum->bytes_checked, sum->bytes_wrong,
	       (unsigned long long)answer->holds_live);
}

static void say_json(const struct ib_options *options,
		     const struct ib_result *results,
		     const struct ib_result *sum,
		     const struct ib_answer *answer, int is_ok)
{
	json_t *object = json_object();
	json_t *each = json_array();
	uint32_t index;

	set_value(object, "consumers", each);
	for (index = 0; index < options->consumers; index++) {
		json_t *one = json_object();

		set(one, "pulls", results[index].loaded);
		set(one, "served_by_sibling", results[index].served);
		set(one, "rejected", results[index].rejected);
		set(one, "aborted", results[index].aborted);
		set(one, "failed", results[index].failed);
		(void)json_array_append_new(each, one);
	}
	set(object, "killed_after_pulls", results[index].pulls);
	set(object, "bytes_checked", sum->bytes_checked);
	set(object, "bytes_wrong", sum->bytes_wrong);
	set(object, "holds_released", answer->holds_released);
	set(object, "holds_expired", answer->holds_expired);
	set(object, "holds_left", answer->holds_live);
	set(object, "blocks_free", answer->blocks_free);
	set(object, "blocks", answer->blocks_all);
	set(object, "double_reports",
	    sum->double_reports + answer->double_reports);
	set_value(object, "ok", json_boolean(is_ok));
	(void)json_show(object, 2);
}

/* Until the one that is to be killed was, and the others are done; 0 or 1. */
static int consumers_wait(const struct ib_options *options, const pid_t *pids,
			  const struct ib_result *results)
{
	const uint32_t killed = options->consumers;
	int failed = 0;
	uint32_t index = killed + 1;

	while (index--) {
		const int status =
			ib_child_wait(options, pids, index + 1, results);

		if (index == killed ? WIFSIGNALED(status) : !status)
			continue;
		failed = 1;
		if (!*options->stop)
			end_say(index == killed ? "consumer to be killed," :
						  "consumer",
				index, status);
	}
	return failed;
}

/* In own's folder. 0, or 1 if something was wrong. */
static int play(struct ib_options *own, void *shared)
{
	struct ib_result *results = shared; /* [consumers + 1] */
	struct ib_result sum;
	struct ib_answer answer = { 0 };
	pid_t consumers[CONSUMERS_MAX + 1];
	pid_t producer;
	uint32_t index;
	int status;
	int failed;

	own->verify = 1;
	producer = process_start(own, "producer", NULL);
	for (index = 0; index <= own->consumers; index++)
		consumers[index] = consumer_start(own, index, results);
	failed = consumers_wait(own, consumers, results);
	failed |= settle(own, &answer);
	child_end(producer);
	status = ib_child_wait(own, &producer, 1, NULL);
	if (status && !*own->stop)
		end_say("producer", 0, status);
	sum = sum_up(own, results);
	failed = failed || status || !is_right(own, &sum, &answer);
	if (own->json) {
		say_json(own, results, &sum, &answer, !failed);
	} else {
		say_text(own, results, &sum, &answer);
		printf("demo: %s\n", failed ? "FAILED" : "ok");
	}
	return failed;
}

int ib_demo(const struct ib_options *options)
{
	return ib_together(options, "demo",
			   (options->consumers + 1) * sizeof(struct ib_result),
			   play);
}
