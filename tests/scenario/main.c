/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs the scenarios, each case in a process group of its own, under a time
 * limit and in a folder of its own. A case that hangs, or leaves a process
 * behind, has failed. Prints one line a case and the sum in the last line.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/lib/folder.h"
#include "tests/lib/gpu_ledger.h"
#include "tests/scenario/fabric.h"

#define VERDICT_BYTES 2048u
#define LOOK_MS 100

enum verdict {
	VERDICT_OK = 0,
	VERDICT_FAILED = 1,
	VERDICT_REFUSED = SCENARIO_REFUSED
};

static const struct scenario_case *const groups[] = {
	scenario_f1,  scenario_f2, scenario_f3, scenario_f4, scenario_f5,
	scenario_f6,  scenario_f7, scenario_f8, scenario_f9, scenario_f14,
	scenario_f17, scenario_k1, scenario_l1, scenario_s1, scenario_x1,
	scenario_x2,  scenario_x3, scenario_x4,
};

/* Verdict of the process that runs the case. */
static int verdict_fd = -1;
static pid_t case_pid;

static void verdict_write(const char *format, va_list arguments)
{
	char text[512];
	int used = vsnprintf(text, sizeof(text), format, arguments);

	if (used < 0)
		return;
	if (used >= (int)sizeof(text))
		used = (int)sizeof(text) - 1;
	if (write(verdict_fd, text, (size_t)used) < 0)
		perror("verdict");
}

/* A child of the case's process ends the case too, by a signal that says how. */
static void verdict_exit(int verdict)
{
	if (getpid() != case_pid)
		(void)kill(case_pid,
			   verdict == VERDICT_REFUSED ? SIGUSR1 : SIGTERM);
	_exit(verdict);
}

void scenario_say(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	verdict_write(format, arguments);
	va_end(arguments);
}

void scenario_fail(const char *format, ...)
{
	va_list arguments;

	scenario_say(" *** ");
	va_start(arguments, format);
	verdict_write(format, arguments);
	va_end(arguments);
	verdict_exit(VERDICT_FAILED);
	abort();
}

void scenario_refuse(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	verdict_write(format, arguments);
	va_end(arguments);
	verdict_exit(VERDICT_REFUSED);
	abort();
}

void scenario_sleep_ns(uint64_t ns)
{
	struct timespec left = {
		.tv_sec = (time_t)(ns / SCENARIO_NS_PER_S),
		.tv_nsec = (long)(ns % SCENARIO_NS_PER_S),
	};

	while (nanosleep(&left, &left) && errno == EINTR)
		;
}

int scenario_compare_u64(const void *a, const void *b)
{
	const uint64_t *left = a;
	const uint64_t *right = b;

	return (*left > *right) - (*left < *right);
}

/* Killed with what it started; processes that outlive it come to us. */
static int group_end(pid_t pid)
{
	int status = 0;
	int left = 0;
	int i;

	(void)kill(-pid, SIGKILL);
	(void)waitpid(pid, &status, 0);
	for (i = 0; i < 500 && waitpid(-1, NULL, WNOHANG) >= 0; i++) {
		(void)kill(-pid, SIGKILL);
		scenario_sleep_ns(10 * SCENARIO_NS_PER_MS);
		left = i == 499;
	}
	return left ? -1 : status;
}

/* The case's process; one that it left behind may keep the pipe open. */
static int has_ended(pid_t pid)
{
	siginfo_t info = { 0 };

	return !waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) &&
	       info.si_pid == pid;
}

/* Read the verdict until the case ends or its time is up. */
static int verdict_read(int fd, pid_t pid, char *text, uint32_t limit_s)
{
	const uint64_t until = engine_now_ns() + limit_s * SCENARIO_NS_PER_S;
	size_t used = 0;

	while (engine_now_ns() < until) {
		struct pollfd ready = { .fd = fd, .events = POLLIN };
		const int ended = has_ended(pid);
		ssize_t got;

		if (poll(&ready, 1, ended ? 0 : LOOK_MS) <= 0) {
			if (ended)
				return 0;
			continue;
		}
		got = read(fd, text + used, VERDICT_BYTES - 1 - used);
		if (got <= 0)
			return 0;
		used += (size_t)got;
		if (used == VERDICT_BYTES - 1)
			used--;
		text[used] = '\0';
	}
	return -1;
}

static void case_main(const struct scenario_case *test,
		      const struct scenario *scenario, int fd)
{
	char ledger[64];
	char left[128];

	(void)setpgid(0, 0);
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	(void)prctl(PR_SET_CHILD_SUBREAPER, 1);
	(void)signal(SIGPIPE, SIG_IGN);
	verdict_fd = fd;
	case_pid = getpid();
	if (scenario->fabric)
		fabric_use(scenario, 1);
	(void)snprintf(ledger, sizeof(ledger), "%s.ledger", scenario->folder);
	(void)setenv(GPU_LEDGER, ledger, 1);
	gpu_ledger_close(gpu_ledger_open(1));
	test->run(scenario);
	if (gpu_ledger_judge(left, sizeof(left)))
		scenario_fail("%s", left);
	_exit(VERDICT_OK);
}

static int case_verdict(int timed_out, int status, char *text)
{
	size_t used = strlen(text);

	if (timed_out) {
		(void)snprintf(text + used, VERDICT_BYTES - used,
			       " *** hangs: its time is up");
		return VERDICT_FAILED;
	}
	if (status == -1) {
		(void)snprintf(text + used, VERDICT_BYTES - used,
			       " *** a process was left behind");
		return VERDICT_FAILED;
	}
	if (WIFEXITED(status))
		return WEXITSTATUS(status);
	if (WTERMSIG(status) == SIGUSR1)
		return VERDICT_REFUSED;
	if (WTERMSIG(status) != SIGTERM)
		(void)snprintf(text + used, VERDICT_BYTES - used,
			       " *** ended by signal %d", WTERMSIG(status));
	return VERDICT_FAILED;
}

static int case_run(const struct scenario_case *test,
		    const struct scenario *options)
{
	char folder[] = "/tmp/kvpull-scenario-XXXXXX";
	char ledger[sizeof(folder) + sizeof(".ledger")];
	char text[VERDICT_BYTES] = "";
	struct scenario scenario = *options;
	const uint64_t start_ns = engine_now_ns();
	int pipes[2];
	int timed_out;
	int verdict;
	pid_t pid;

	if (!mkdtemp(folder) || pipe2(pipes, O_CLOEXEC)) {
		perror("scenario");
		return VERDICT_FAILED;
	}
	scenario.folder = folder;
	(void)fflush(stdout);
	pid = fork();
	if (!pid) {
		(void)close(pipes[0]);
		case_main(test, &scenario, pipes[1]);
	}
	(void)setpgid(pid, pid);
	(void)close(pipes[1]);
	timed_out = verdict_read(
		pipes[0], pid, text,
		(scenario.full ? test->full_limit_s : test->quick_limit_s) *
			patience());
	verdict = case_verdict(timed_out, group_end(pid), text);
	(void)close(pipes[0]);
	(void)folder_remove_all(folder);
	(void)snprintf(ledger, sizeof(ledger), "%s.ledger", folder);
	(void)unlink(ledger);
	if (verdict == VERDICT_REFUSED)
		printf("refused: %s: %s: %s\n", test->name, test->claim, text);
	else
		printf("%s %s: %s (%s%s%.1f s)\n", verdict ? "FAILED" : "ok",
		       test->name, test->claim, text, text[0] ? ", " : "",
		       (double)(engine_now_ns() - start_ns) / 1e9);
	return verdict;
}

/*
 * Cases that the thread sanitizer cannot run: its own thread keeps a process from
 * entering a user namespace, and it does not map as much memory as F14m wants.
 */
#ifdef __SANITIZE_THREAD__
#define LACKING "X1b,X1c,X1f,X1g,X1h,F14m"
#else
#define LACKING ""
#endif

/* "F7,F3" or "F7a": a name, or the group's. */
static int is_wanted(const char *only, const char *name)
{
	const char *at = only;

	while (at && *at) {
		const size_t bytes = strcspn(at, ",");

		if (bytes && !strncmp(at, name, bytes) &&
		    (name[bytes] < '0' || name[bytes] > '9'))
			return 1;
		at += bytes + (at[bytes] == ',');
	}
	return !only;
}

/*
 * The library measures its copy routines once a process, at the first open:
 * done here, all engines are forked with the choice. Not between machines:
 * an RDMA device that was opened before a fork is of no use behind it.
 */
static void library_warm(void)
{
	char folder[] = "/tmp/kvpull-scenario-XXXXXX";
	char config[128];
	static struct engine engine;
	const char *route = getenv("KVPULL_ROUTE");
	char kept[32] = "";
	const struct engine_params params = {
		.ops = engine_library(),
		.config_json = config,
		.engine_id = "warm",
		.shape = scenario_shape(4096, 1, 1),
		.tp_size = 1,
	};

	if (!params.ops || !mkdtemp(folder))
		return;
	(void)snprintf(config, sizeof(config),
		       "{\"socket_dir\":\"%s\",\"route\":\"shm\"}", folder);
	(void)snprintf(kept, sizeof(kept), "%s", route ? route : "");
	(void)unsetenv("KVPULL_ROUTE");
	if (!engine_open(&engine, &params))
		engine_close(&engine);
	if (route)
		(void)setenv("KVPULL_ROUTE", kept, 1);
	(void)folder_remove_all(folder);
}

static int is_remote;

static void route_look(void)
{
	const char *route = getenv("KVPULL_ROUTE");

	is_remote = route && strcmp(route, "verbs") == 0;
}

void scenario_be_remote(void)
{
	is_remote = 1;
}

int scenario_is_remote(void)
{
	return is_remote;
}

/*
 * The cases that --memory device leaves out, each with its reason. Named here are
 * groups and cases as --only has them; a group that is not named runs.
 */
static const struct {
	const char *names;
	const char *why;
} left_out[] = {
	{ "F1c,F8b,X1d,X4b,X4f",
	  "the memory is the engine's own, which no driver exports" },
	{ "F5,F7,F14", "it opens its engines itself, in host memory" },
	{ "F9,F17", "it is on a device without this option" },
	{ "X2i", "the region is a dmabuf of the engine's own" },
	{ "X3", "a file's bytes are read into host memory alone" },
	{ "X4g", "the fake driver cannot do without a thread of its own" },
};

/* Says why a case has no meaning on a device's memory; NULL: it has one. */
static const char *left_out_why(const char *name)
{
	size_t row;

	for (row = 0; row < sizeof(left_out) / sizeof(left_out[0]); row++)
		if (is_wanted(left_out[row].names, name))
			return left_out[row].why;
	return NULL;
}

/* Whether the case is to run; says so where the memory leaves it out. */
static int is_due(const struct scenario *options, const char *only,
		  const char *name)
{
	const char *why = options->device ? left_out_why(name) : NULL;

	if (!is_wanted(only, name) || is_wanted(LACKING, name))
		return 0;
	if (why)
		printf("left out: %s: %s\n", name, why);
	return !why;
}

static int usage(const char *why)
{
	fprintf(stderr,
		"%s\nusage: kvpull_scenarios [--quick|--full] [--only F7,F3b] [--route shm|verbs|fake] [--memory device] [--verbose]\n",
		why);
	return 2;
}

/* 0, or usage()'s status. */
static int options_read(int argc, char **argv, struct scenario *options,
			const char **only)
{
	int at;

	for (at = 1; at < argc; at++) {
		if (!strcmp(argv[at], "--full"))
			options->full = 1;
		else if (!strcmp(argv[at], "--verbose"))
			options->verbose = 1;
		else if (!strcmp(argv[at], "--only") && at + 1 < argc)
			*only = argv[++at];
		else if (!strcmp(argv[at], "--memory") && at + 1 < argc &&
			 !strcmp(argv[at + 1], "device"))
			options->device = (uint32_t) !!argv[++at];
		else if (!strcmp(argv[at], "--route") && at + 1 < argc &&
			 !strcmp(argv[at + 1], "fake"))
			options->fabric = (uint32_t) !!argv[++at];
		else if (!strcmp(argv[at], "--route") && at + 1 < argc)
			(void)setenv("KVPULL_ROUTE", argv[++at], 1);
		else if (strcmp(argv[at], "--quick") != 0)
			return usage(argv[at]);
	}
	return 0;
}

int main(int argc, char **argv)
{
	struct scenario options = { 0 };
	uint32_t counts[3] = { 0 };
	const char *only = NULL;
	size_t group;

	if (options_read(argc, argv, &options, &only))
		return 2;
	route_look();
	(void)prctl(PR_SET_CHILD_SUBREAPER, 1);
	library_warm();
	for (group = 0; group < sizeof(groups) / sizeof(groups[0]); group++) {
		const struct scenario_case *test;

		for (test = groups[group]; test->name; test++) {
			int verdict;

			if (!is_due(&options, only, test->name))
				continue;
			verdict = case_run(test, &options);
			counts[verdict == VERDICT_OK      ? 0 :
			       verdict == VERDICT_REFUSED ? 2 :
							    1]++;
		}
	}
	printf("%u passed, %u failed, %u skipped\n", counts[0], counts[1],
	       counts[2]);
	return counts[1] || !(counts[0] + counts[2]);
}
