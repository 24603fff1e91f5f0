/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Worlds that are wrong on purpose, each in one way: that the oracle finds that
 * out says that it would find the same in the product.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/sim/device.h"

uint32_t sim_control;

static const struct {
	const char *name;
	const char *found; /* in what the oracle says */
} controls[SIM_CONTROLS] = {
	[SIM_CONTROL_EVENTS] = { "an event is reached before the copies before it",
				 "LOADED" },
	[SIM_CONTROL_MARKS] = { "a mark is reached before the engine's work",
				"LOADED" },
	[SIM_CONTROL_ENTRY] = { "an entry never says that its hold has ended",
				"is LOADED with wrong bytes" },
	[SIM_CONTROL_ZEROES] = { "engines zero new blocks behind their marks",
				 "LOADED" },
};

/* In a process of its own, which the first violation ends. */
static FILE *begin(uint32_t control, uint64_t seeds, void (*run)(uint64_t seed),
		   pid_t *pid)
{
	uint64_t seed;
	int ends[2];

	(void)fflush(stdout);
	if (pipe(ends))
		abort();
	*pid = fork();
	if (*pid < 0)
		abort();
	if (*pid) {
		(void)close(ends[1]);
		return fdopen(ends[0], "r");
	}
	(void)dup2(ends[1], STDOUT_FILENO);
	(void)close(ends[0]);
	(void)close(ends[1]);
	sim_control = control;
	for (seed = 1; seed <= seeds; seed++)
		run(seed);
	_exit(0);
}

/* The violation is the first line. 1: it is another one, or there is none. */
static int judge(uint32_t control, FILE *output, pid_t pid)
{
	char line[512];
	char rest[512];
	int status = 0;
	int is_found;

	if (!fgets(line, sizeof(line), output))
		(void)snprintf(line, sizeof(line), "no violation\n");
	while (fgets(rest, sizeof(rest), output))
		;
	(void)fclose(output);
	(void)waitpid(pid, &status, 0);
	is_found = status && strstr(line, controls[control].found);
	printf("control, %s: %s%s", controls[control].name,
	       is_found ? "" : "NOT FOUND OUT: ", line);
	return !is_found;
}

int sim_controls_run(uint64_t seeds, void (*run)(uint64_t seed))
{
	uint32_t control;
	int failed = 0;

	for (control = SIM_CONTROL_NONE + 1; control < SIM_CONTROLS;
	     control++) {
		pid_t pid;
		FILE *output = begin(control, seeds, run, &pid);

		if (!output)
			abort();
		failed += judge(control, output, pid);
	}
	return failed;
}
