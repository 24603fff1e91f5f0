/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The main job in one command: a producer and three consumers as processes of
 * their own, siblings, rejects, aborts, and a consumer killed with -9 while it
 * pulls. Says what happened, and fails unless 0 bytes were wrong, 0 holds are
 * left and every block came back.
 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tools/ib_pull.h"

#define CONSUMERS_MAX 16u
#define SETTLE_NS UINT64_C(10000000000)

static int demo_stop;

static void stop_serving(int number)
{
	(void)number;
	demo_stop = 1;
}

static pid_t child_start(void)
{
	const pid_t pid = fork();

	if (pid == 0)
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	return pid;
}

static pid_t producer_start(const struct ib_options *options)
{
	struct ib_options own = *options;
	const struct sigaction action = { .sa_handler = stop_serving };
	const pid_t pid = child_start();

	if (pid)
		return pid;
	(void)sigaction(SIGTERM, &action, NULL);
	own.name = "producer";
	own.quiet = 1;
	_exit(ib_serve(&own, &demo_stop));
}

static pid_t consumer_start(const struct ib_options *options, uint32_t index,
			    struct ib_result *results)
{
	static const char *const names[] = { "consumer-0", "consumer-1",
					     "consumer-2", "consumer-x" };
	struct ib_options own = *options;
	const pid_t pid = child_start();

	if (pid)
		return pid;
	own.name = names[index < 3 ? index : 3];
	own.seed += 77 * (index + 1);
	if (index == options->consumers) {
		/* The one that dies, with tickets claimed and a pull running. */
		own.kill_after = 1 + own.request_count / 4;
		own.reject_percent = own.abort_percent = 0;
		own.siblings = 1;
	}
	_exit(ib_pull(&own, &results[index]));
}

static int wait_all(const pid_t *pids, uint32_t count, const char *who)
{
	int failed = 0;
	uint32_t index;

	for (index = 0; index < count; index++) {
		int status = 0;

		if (waitpid(pids[index], &status, 0) < 0 ||
		    !WIFEXITED(status) || WEXITSTATUS(status)) {
			printf("%s %u failed: status %#x\n", who, index,
			       (unsigned int)status);
			failed = 1;
		}
	}
	return failed;
}

/* Until every hold ended; then it is what a pool without a leak looks like. */
static int settle(const struct ib_options *options, struct ib_answer *answer)
{
	const struct timespec pause = { .tv_nsec = 5000000 };
	const uint64_t until_ns = engine_now_ns() + SETTLE_NS;

	do {
		if (ib_ask_stats(options, answer))
			return 1;
		if (!answer->holds_live &&
		    answer->blocks_free == answer->blocks_all)
			return 0;
		(void)nanosleep(&pause, NULL);
	} while (engine_now_ns() < until_ns);
	return 1;
}

static void say(const struct ib_options *options,
		const struct ib_result *results, const struct ib_answer *answer)
{
	uint32_t index;

	for (index = 0; index < options->consumers; index++)
		printf("consumer %u: %llu pulls read and verified, %llu served by a sibling's pull, %llu rejected before admission, %llu aborted while loading, %llu failed\n",
		       index, (unsigned long long)results[index].loaded,
		       (unsigned long long)results[index].served,
		       (unsigned long long)results[index].rejected,
		       (unsigned long long)results[index].aborted,
		       (unsigned long long)results[index].failed);
	printf("consumer %u: killed with -9 after %llu pulls were claimed\n",
	       options->consumers,
	       (unsigned long long)results[options->consumers].pulls);
	printf("producer: %llu holds released, %llu ended by lease (tickets that the killed one had but had not claimed), %llu of %llu blocks free, %llu double reports\n",
	       (unsigned long long)answer->holds_released,
	       (unsigned long long)answer->holds_expired,
	       (unsigned long long)answer->blocks_free,
	       (unsigned long long)answer->blocks_all,
	       (unsigned long long)answer->double_reports);
}

static int judge(const struct ib_options *options,
		 const struct ib_result *results,
		 const struct ib_answer *answer)
{
	uint64_t checked = 0, wrong = 0, left = answer->holds_live;
	uint64_t loaded = 0, doubles = answer->double_reports;
	uint32_t index;

	for (index = 0; index <= options->consumers; index++) {
		checked += results[index].bytes_checked;
		wrong += results[index].bytes_wrong;
		loaded += results[index].loaded;
		doubles += results[index].double_reports;
	}
	printf("%llu bytes checked, %llu bytes wrong, %llu holds left\n",
	       (unsigned long long)checked, (unsigned long long)wrong,
	       (unsigned long long)left);
	return wrong || left || !checked || !loaded || doubles ||
	       answer->blocks_free != answer->blocks_all ||
	       answer->holds_expired > options->depth;
}

int ib_demo(const struct ib_options *options)
{
	struct ib_result *results;
	struct ib_answer answer = { 0 };
	struct ib_options own = *options;
	char dir[] = "/tmp/kvpull-demo-XXXXXX";
	pid_t consumers[CONSUMERS_MAX + 1];
	pid_t producer;
	uint32_t index;
	int failed = 0;
	int settled;

	if (!options->dir && !mkdtemp(dir)) {
		fprintf(stderr, "%s: %s\n", dir, strerror(errno));
		return 1;
	}
	own.dir = options->dir ? options->dir : dir;
	own.verify = 1;
	if (own.consumers > CONSUMERS_MAX - 1)
		own.consumers = CONSUMERS_MAX - 1;
	results =
		mmap(NULL, (own.consumers + 1) * sizeof(*results),
		     PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (results == MAP_FAILED)
		return 1;
	(void)fflush(stdout);
	producer = producer_start(&own);
	for (index = 0; index <= own.consumers; index++)
		consumers[index] = consumer_start(&own, index, results);
	(void)waitpid(consumers[own.consumers], NULL, 0);
	failed = wait_all(consumers, own.consumers, "consumer");
	settled = settle(&own, &answer);
	say(&own, results, &answer);
	failed |= judge(&own, results, &answer) || settled;
	(void)kill(producer, SIGTERM);
	failed |= wait_all(&producer, 1, "producer");
	(void)munmap(results, (own.consumers + 1) * sizeof(*results));
	if (!options->dir) {
		char control[64];

		(void)snprintf(control, sizeof(control), "%s/ib_pull.control",
			       dir);
		(void)unlink(control);
		(void)rmdir(dir);
	}
	printf("demo: %s\n", failed ? "FAILED" : "ok");
	return failed;
}
