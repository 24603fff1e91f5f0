/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A log callback that does not wait for Python. The library's own thread moves
 * the blocks and sends the heartbeats: in line for the interpreter's lock,
 * behind an engine that steps without a pause, it would stand for seconds. A
 * line is one write to a pipe that a thread of Python reads; what does not fit
 * into the pipe is lost.
 */
#include <stdint.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LINE_BYTES 512 /* as the library cuts them */

struct line {
	uint64_t time_ns;
	uint32_t level;
	uint32_t bytes;
	char text[LINE_BYTES];
};

void kvpull_vllm_log(void *context, uint32_t level, const char *text);

/* The context is the pipe's descriptor. */
void kvpull_vllm_log(void *context, uint32_t level, const char *text)
{
	const size_t bytes = strnlen(text, LINE_BYTES);
	struct line line = { .level = level, .bytes = (uint32_t)bytes };
	struct timespec now = { 0 };
	ssize_t written;

	/* The wall's time, as Python's log has it. */
	(void)timespec_get(&now, TIME_UTC);
	line.time_ns =
		(uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
	memcpy(line.text, text, bytes);
	/* Less than PIPE_BUF: whole or not at all, whoever else writes. */
	written = write((int)(intptr_t)context, &line, sizeof(line));
	(void)written;
}
