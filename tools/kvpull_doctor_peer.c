/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The probe of another machine: pulls from an `ib_pull --port` that serves
 * there, by RDMA, each byte compared, and how much of this side's link that
 * takes. ib_pull itself does it, so what is seen is what it sees.
 */
#include "tools/kvpull_doctor_parts.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "tools/ib_pull_parts.h"

#define OUTPUT_BYTES_MAX 65536
#define GOOD_PERCENT 60.0
#define TERM_MS 500 /* from a signal to the end of all output */
/* From the end of output to that of the process, which gives memory back. */
#define EXIT_NS (10 * KVPULL_NS_PER_S)
#define NUMBER_BYTES 16

/* A run of ib_pull. The first is small: it holds few of P's blocks. */
struct pull {
	uint32_t blocks; /* of a request */
	uint32_t requests;
	uint32_t limit_ms;
	const char *connect_ms;  /* NULL: the library's own */
	const char *deadline_ms; /* likewise */
};

static const struct pull small_pull = { .blocks = 16,
					.requests = 1,
					.limit_ms = 4500,
					.connect_ms = "2000",
					.deadline_ms = "3000" };
static const struct pull large_pull = { .blocks = 512,
					.requests = 4,
					.limit_ms = 30000 };

static const char *number(uint32_t value, char text[NUMBER_BYTES])
{
	(void)snprintf(text, NUMBER_BYTES, "%u", value);
	return text;
}

/* In the child: the tool beside this one, by RDMA alone, in P's shape. */
static void pull_exec(const struct doctor *doctor, const struct pull *pull,
		      const struct ib_answer *shape, int to)
{
	char path[PATH_MAX + 16];
	const ssize_t used = readlink("/proc/self/exe", path, PATH_MAX);
	const uint32_t blocks = 2 * pull->blocks * shape->group_count;
	char numbers[6][NUMBER_BYTES];
	/* clang-format off */
	const char *words[] = {
		"ib_pull", "--json", "--verify", "--thread", "--contiguous",
		"--count", number(pull->blocks, numbers[0]),
		"--blocks", number(blocks, numbers[1]),
		"--requests", number(pull->requests, numbers[2]),
		"--size", number(shape->block_bytes, numbers[3]),
		"--layers", number(shape->layer_count, numbers[4]),
		"--groups", number(shape->group_count, numbers[5]),
		"--depth", "1", "--port", doctor->port, doctor->peer,
		/* The last two if there is one. */
		doctor->device[0] ? "--device" : NULL, doctor->device, NULL,
	};
	/* clang-format on */

	if (used < 0)
		_exit(1);
	path[used] = '\0';
	(void)snprintf(strrchr(path, '/') + 1, 16, "ib_pull");
	/* SIGTERM lets ib_pull give its holds back, where this process dies. */
	(void)prctl(PR_SET_PDEATHSIG, SIGTERM);
	(void)setenv("KVPULL_ROUTE", "verbs", 1);
	if (pull->connect_ms)
		(void)setenv("KVPULL_CONNECT_MS", pull->connect_ms, 1);
	if (pull->deadline_ms)
		(void)setenv("KVPULL_DEADLINE_MS", pull->deadline_ms, 1);
	(void)dup2(to, STDOUT_FILENO);
	(void)dup2(to, STDERR_FILENO);
	/* dup2() leaves CLOEXEC where the socket already has that number. */
	(void)fcntl(STDOUT_FILENO, F_SETFD, 0);
	(void)fcntl(STDERR_FILENO, F_SETFD, 0);
	(void)execv(path, (char *const *)(const void *)words);
	(void)dprintf(to, "%s: %s\n", path, strerror(errno));
	_exit(1);
}

/* Reads what the child prints until its end, or until the time is up: 1. */
static int output_read(int from, char *output, uint32_t limit_ms)
{
	const uint64_t until_ns =
		kvpull_clock_ns() + limit_ms * KVPULL_NS_PER_MS;
	size_t used = strlen(output);

	while (used < OUTPUT_BYTES_MAX - 1) {
		char *form;
		ssize_t got;

		if (!doctor_await(from, POLLIN, until_ns))
			return 1;
		got = read(from, output + used, OUTPUT_BYTES_MAX - 1 - used);
		if (got <= 0)
			return 0;
		used += (size_t)got;
		output[used] = '\0';
		/* A peer's word may be in it, and must not begin an advice. */
		for (form = strchr(output, '\f'); form;
		     form = strchr(form, '\f'))
			*form = ' ';
	}
	return 0;
}

/* Reads everything that ib_pull prints. Returns its exit status, or -1. */
static int pull_run(const struct doctor *doctor, const struct pull *pull,
		    const struct ib_answer *shape, char *output)
{
	struct doctor_child child;
	int is_killed;
	int status;

	output[0] = '\0';
	if (doctor_child_start(&child, SOCK_STREAM))
		return -1;
	if (!child.pid)
		pull_exec(doctor, pull, shape, child.socket);
	is_killed = output_read(child.socket, output, pull->limit_ms);
	if (is_killed) {
		/* SIGTERM lets ib_pull give its holds back. */
		(void)kill(child.pid, SIGTERM);
		(void)output_read(child.socket, output, TERM_MS);
	}
	status = doctor_child_end(&child, is_killed ? 0 : EXIT_NS);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static double number_of(const json_t *report, const char *key)
{
	return json_number_value(json_object_get(report, key));
}

/* Lines that follow from a reason in an earlier line. */
static int is_sequel(const char *line)
{
	return strncmp(line, "nothing was pulled", 18) == 0 ||
	       strstr(line, "route verbs is pinned");
}

/* Finds the last line that gives a reason; the first one if none does. */
static const char *complaint_of(char *output)
{
	const char *found = output;
	char *line;

	while ((line = strsep(&output, "\n")))
		if (*line && !is_sequel(line))
			found = line;
	return found;
}

static void failure_say(struct doctor *doctor, char *output)
{
	const int is_here = strstr(output, "route verbs is pinned") != NULL;

	if (doctor_causes(doctor, output))
		return;
	if (is_here)
		doctor_say(doctor, SAY_PEER_NOT_CALLED, doctor->peer,
			   complaint_of(output), doctor->peer);
	else
		doctor_say(doctor, SAY_PEER_FAILED, doctor->peer,
			   complaint_of(output), doctor->port);
}

static void speed_say(struct doctor *doctor, const json_t *report)
{
	const double gb_s = number_of(report, "one_pull_gb_s");
	const double connect_ms = number_of(report, "first_connect_us") / 1e3;
	const double gbps = doctor->link_gbps;
	const int is_soft = doctor->link_is_soft || !(gbps > 0);
	const double percent = is_soft ? 100 : 800 * gb_s / gbps;
	const int is_slow = percent < GOOD_PERCENT;

	if (is_soft)
		doctor_say(doctor, SAY_PEER_BY_SOFTWARE, doctor->peer, gb_s,
			   connect_ms);
	else
		doctor_say(
			doctor,
			SAY_PEER_SPEED(is_slow ? DOCTOR_WARN : DOCTOR_OK),
			doctor->peer, gb_s, percent, gbps, connect_ms,
			is_slow ?
				"compare with ib_read_bw; then MTU, NUMA node, the peer's link, other traffic" :
				"");
	doctor->peer_probe =
		json_pack("{s:s, s:f, s:f, s:f, s:b}", "address", doctor->peer,
			  "gb_s", gb_s, "connect_ms", connect_ms, "link_gbps",
			  gbps, "link_is_soft", (int)doctor->link_is_soft);
}

/*
 * A report, or NULL: it is said why the pull failed. A request takes half of
 * P's pool at the most, so that others are served, too.
 */
static json_t *pull_judge(struct doctor *doctor, struct pull pull,
			  const struct ib_answer *shape)
{
	const uint64_t half = shape->blocks_all / 2 / shape->group_count;
	static char output[OUTPUT_BYTES_MAX];
	json_t *report;
	char *begin;
	int status;

	if (pull.blocks > half)
		pull.blocks = half ? (uint32_t)half : 1;
	status = pull_run(doctor, &pull, shape, output);
	begin = strstr(output, "{\n");
	report = begin ? json_loads(begin, 0, NULL) : NULL;
	if (!status && report && !(number_of(report, "bytes_wrong") > 0))
		return report;
	if (begin)
		*begin = '\0';
	failure_say(doctor, output);
	json_decref(report);
	return NULL;
}

/* 1: it is said that others have all of its blocks; 0: there is room. */
static int full_judge(struct doctor *doctor, const struct ib_answer *shape)
{
	if (shape->blocks_free / shape->group_count >= small_pull.blocks ||
	    shape->blocks_free == shape->blocks_all)
		return 0;
	doctor_say(doctor, SAY_PEER_IS_FULL, doctor->peer,
		   (unsigned long long)shape->blocks_free,
		   (unsigned long long)shape->blocks_all);
	return 1;
}

void doctor_peer(struct doctor *doctor)
{
	struct ib_answer shape = { 0 };
	json_t *report;

	if (doctor_reach(doctor, &shape) || full_judge(doctor, &shape))
		return;
	report = pull_judge(doctor, small_pull, &shape);
	if (!report)
		return;
	json_decref(report);
	report = pull_judge(doctor, large_pull, &shape);
	if (report)
		speed_say(doctor, report);
	json_decref(report);
}
