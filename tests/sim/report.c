/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The report of a failed seed: the violation, the last events, how to replay.
 */
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/sim/sim.h"

#define EVENTS_KEPT 64u
#define EVENTS_TOLD 40u

extern struct sim_world *sim_current;
extern uint64_t sim_passed;

static void print_event(const struct sim_event *event)
{
	printf("  %9.3f ms  ", (double)event->at_ns / 1e6);
	/* The formats are ours and take up to three numbers. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
	printf(event->format, event->values[0], event->values[1],
	       event->values[2]);
#pragma GCC diagnostic pop
	printf("\n");
}

void sim_trace(struct sim_world *world, const char *format, uint64_t a,
	       uint64_t b, uint64_t c)
{
	struct sim_event *event =
		&world->events[world->event_count++ % EVENTS_KEPT];

	event->at_ns = world->now_ns;
	event->format = format;
	event->values[0] = a;
	event->values[1] = b;
	event->values[2] = c;
	sim_story_add(world, &event->at_ns, sizeof(event->at_ns));
	sim_story_add(world, event->values, sizeof(event->values));
	if (world->verbose)
		print_event(event);
}

static void __attribute__((noreturn)) finish(const struct sim_world *world)
{
	uint64_t at = world->event_count > EVENTS_TOLD ?
			      world->event_count - EVENTS_TOLD :
			      0;

	printf("last events:\n");
	for (; at < world->event_count; at++)
		print_event(&world->events[at % EVENTS_KEPT]);
	if (world->pool_chunks)
		printf("replay: kvpull_sim --seed %" PRIu64 " --steps %" PRIu64
		       " --chunks %u\n",
		       world->seed, world->steps, world->pool_chunks);
	else if (world->pool)
		printf("replay: make sim POOL=1 SEED=%" PRIu64 " STEPS=%" PRIu64
		       "\n",
		       world->seed, world->steps);
	else if (world->big)
		printf("replay: kvpull_sim --seed %" PRIu64
		       " --instances %u --holds %u\n",
		       world->seed, world->big_instances, world->big);
	else
		printf("replay: make sim SEED=%" PRIu64 " STEPS=%" PRIu64 "\n",
		       world->seed, world->steps);
	printf("%" PRIu64 " passed, 1 failed, 0 skipped\n", sim_passed);
	(void)fflush(stdout);
	_exit(1);
}

void sim_fail(struct sim_world *world, const char *format, ...)
{
	va_list arguments;

	printf("seed %" PRIu64 " turn %" PRIu64 " at %.3f ms: ", world->seed,
	       world->turn, (double)world->now_ns / 1e6);
	va_start(arguments, format);
	(void)vprintf(format, arguments);
	va_end(arguments);
	printf("\n");
	finish(world);
}

/* A check of the code itself failed, or it crashed. */
static void on_signal(int signal_number)
{
	(void)signal(signal_number, SIG_DFL);
	if (sim_current)
		sim_fail(sim_current, "the code died of signal %d",
			 signal_number);
	_exit(1);
}

void sim_report_open(void)
{
	(void)signal(SIGABRT, on_signal);
	(void)signal(SIGSEGV, on_signal);
	(void)signal(SIGBUS, on_signal);
}
