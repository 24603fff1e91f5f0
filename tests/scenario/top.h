/* SPDX-License-Identifier: Apache-2.0 */
/* kvpull_top as people and programs run it, on the files of one folder. */
#ifndef KVPULL_TESTS_TOP_H
#define KVPULL_TESTS_TOP_H

#include <jansson.h>

#include "tests/scenario/scenario.h"

/* In memory, so that status files lie there. */
struct top_folder {
	char path[64];
};

void top_folder_open(struct top_folder *folder);
void top_folder_close(struct top_folder *folder);
/* The one object of --json; the caller frees it. */
json_t *top_json(const struct top_folder *folder);
/* Runs kvpull_top with these words, NULL: none; returns the exit status. */
int top_run(const struct top_folder *folder, const char *first,
	    const char *second, const char *third);
/*
 * On a terminal of that size: printed, and no line or column too many. After
 * the keys a line has the words in its first 80 columns. q ends it, and gives
 * the terminal back.
 */
void top_capture(const struct top_folder *folder, uint32_t columns,
		 uint32_t lines, const char *keys, const char *words);
/* Likewise at 80 x 24, 120 x 40 and 200 x 50, without keys. */
void top_captures(const struct top_folder *folder, const char *words);
/* Ctrl-C ends it at once, also while it does not wait yet. */
void top_interrupt(const struct top_folder *folder);
/* Metrics in a file, as Prometheus reads them. */
void top_metrics_check(const struct top_folder *folder, const char *has);
/*
 * Every event is as the Trace Event Format has it; so many pulls overlap the
 * hold that they read, on another process. Return: how many events.
 */
uint32_t top_trace_check(const json_t *trace, uint32_t pulls);
void top_print(const json_t *top, const char *key);

#endif /* KVPULL_TESTS_TOP_H */
