/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The probe of another machine: pulls from an `ib_pull --port` that serves
 * there, by RDMA, each byte compared, and how much of this side's link that
 * takes. ib_pull itself does it, so what is seen is what it sees.
 */
#include "tools/kvpull_doctor_parts.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define OUTPUT_BYTES_MAX 65536
#define GOOD_PERCENT 60.0

/* In the child: the tool beside this one, by RDMA alone. */
static void pull_exec(const struct doctor *doctor, int to)
{
	char path[PATH_MAX + 16];
	const ssize_t used = readlink("/proc/self/exe", path, PATH_MAX);
	/* clang-format off */
	const char *words[] = {
		"ib_pull", "--json", "--verify", "--thread", "--contiguous",
		"--count", "512", "--blocks", "1024", "--requests", "4", "--port",
		doctor->port, doctor->peer,
		/* The last two if there is one. */
		doctor->device[0] ? "--device" : NULL, doctor->device, NULL,
	};
	/* clang-format on */

	if (used < 0)
		_exit(1);
	path[used] = '\0';
	(void)snprintf(strrchr(path, '/') + 1, 16, "ib_pull");
	(void)setenv("KVPULL_ROUTE", "verbs", 1);
	(void)dup2(to, STDOUT_FILENO);
	(void)dup2(to, STDERR_FILENO);
	(void)execv(path, (char *const *)(const void *)words);
	printf("%s: %s\n", path, strerror(errno));
	(void)fflush(stdout);
	_exit(1);
}

/* Reads everything that ib_pull prints. Returns its exit status, or -1. */
static int pull_run(const struct doctor *doctor, char *output)
{
	size_t used = 0;
	ssize_t got;
	int pipes[2];
	int status;
	pid_t child;

	if (pipe(pipes))
		return -1;
	(void)fflush(stdout);
	child = fork();
	if (child == 0)
		pull_exec(doctor, pipes[1]);
	(void)close(pipes[1]);
	while (child > 0 && used < OUTPUT_BYTES_MAX - 1 &&
	       (got = read(pipes[0], output + used,
			   OUTPUT_BYTES_MAX - 1 - used)) > 0)
		used += (size_t)got;
	output[used] = '\0';
	(void)close(pipes[0]);
	if (child < 0 || waitpid(child, &status, 0) != child)
		return -1;
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static double number_of(const json_t *report, const char *key)
{
	return json_number_value(json_object_get(report, key));
}

/* The last line of a text, which loses the newlines behind it. */
static char *last_line(char *text)
{
	char *end = text + strlen(text);
	char *line;

	while (end > text && end[-1] == '\n')
		*--end = '\0';
	line = strrchr(text, '\n');
	return line ? line + 1 : text;
}

/* Lines that follow from a reason in an earlier line. */
static int is_sequel(const char *line)
{
	return strncmp(line, "nothing was pulled", 18) == 0 ||
	       strstr(line, "route verbs is pinned");
}

/* Finds the last line before the report that gives a reason. */
static const char *complaint_of(char *output)
{
	char *line = last_line(output);

	while (line > output && is_sequel(line)) {
		*line = '\0';
		line = last_line(output);
	}
	return line;
}

static void failure_say(struct doctor *doctor, char *output)
{
	const int is_here = strstr(output, "route verbs is pinned") != NULL;

	doctor_say(doctor, DOCTOR_FAIL, "peer", "no pull from %s: %.200s",
		   doctor->peer, complaint_of(output));
	if (is_here)
		doctor_advise(
			doctor,
			"here: what the lines on rdma and memlock above say; %s was not called",
			doctor->peer);
	else
		doctor_advise(
			doctor,
			"there: ib_pull --port %s, and its address in networks of both; is the port open?",
			doctor->port);
}

static double connect_ms_of(const json_t *report)
{
	return number_of(report, "first_connect_us") / 1e3;
}

static void speed_say(struct doctor *doctor, const json_t *report)
{
	const double gb_s = number_of(report, "one_pull_gb_s");
	const double percent =
		doctor->link_gbps > 0 ? 800 * gb_s / doctor->link_gbps : 0;
	const double connect_ms = connect_ms_of(report);

	if (doctor->link_is_soft || !(doctor->link_gbps > 0)) {
		doctor_say(
			doctor, DOCTOR_OK, "peer",
			"%s: every byte right, %.2f GB/s, connected in %.0f ms; the link is software: its rate says nothing",
			doctor->peer, gb_s, connect_ms);
		return;
	}
	doctor_say(
		doctor, percent < GOOD_PERCENT ? DOCTOR_WARN : DOCTOR_OK,
		"peer",
		"%s: every byte right, %.2f GB/s, %.0f %% of this link's %.0f Gb/s, connected in %.0f ms",
		doctor->peer, gb_s, percent, doctor->link_gbps, connect_ms);
	if (percent < GOOD_PERCENT)
		doctor_advise(
			doctor,
			"compare with ib_read_bw; then MTU, NUMA node, the peer's link, other traffic");
}

void doctor_peer(struct doctor *doctor)
{
	static char output[OUTPUT_BYTES_MAX];
	json_error_t error;
	json_t *report;
	char *begin;
	int status;

	if (doctor_path(doctor))
		return;
	status = pull_run(doctor, output);
	begin = strstr(output, "{\n");
	report = begin ? json_loads(begin, 0, &error) : NULL;

	if (status || !report || number_of(report, "bytes_wrong") > 0) {
		if (begin)
			*begin = '\0';
		failure_say(doctor, output);
		json_decref(report);
		return;
	}
	speed_say(doctor, report);
	json_decref(doctor->peer_probe);
	doctor->peer_probe = json_pack(
		"{s:s, s:f, s:f, s:f, s:b}", "address", doctor->peer, "gb_s",
		number_of(report, "one_pull_gb_s"), "connect_ms",
		connect_ms_of(report), "link_gbps", doctor->link_gbps,
		"link_is_soft", (int)doctor->link_is_soft);
	json_decref(report);
}
