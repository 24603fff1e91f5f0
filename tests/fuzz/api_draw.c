/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where chance and time come from. The library's calls of clock_gettime() and
 * nanosleep() come here (the linker's --wrap), and libsodium's random numbers,
 * too; so nothing differs between two runs of one seed but addresses.
 */
#include "tests/fuzz/api.h"

#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <sodium.h>

#include "tests/lib/patience.h"

#define TRACE_LINES 64u
#define TRACE_BYTES 160u
#define HANG_S (60u * patience())

int __real_clock_gettime(clockid_t id, struct timespec *now);
int __wrap_clock_gettime(clockid_t id, struct timespec *now);
int __real_nanosleep(const struct timespec *wait, struct timespec *left);
int __wrap_nanosleep(const struct timespec *wait, struct timespec *left);
/* The sanitizers' callback, in builds with them. */
void __attribute__((weak))
__sanitizer_set_death_callback(void (*callback)(void));

static const uint8_t *draw_data; /* NULL: from the seed */
static size_t draw_left;
static uint64_t draw_state;
static uint64_t key_state; /* of the library's own random numbers */

static int clock_fake;
static uint64_t clock_ns;
static uint64_t clock_cost_ns;

static uint64_t call_count;
static const char *call_name = "";
static const char *call_replay = "";
static int call_verbose;
static char traces[TRACE_LINES][TRACE_BYTES];
static uint32_t trace_count;

uint64_t api_mix(uint64_t value)
{
	value = (value ^ value >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	value = (value ^ value >> 27) * UINT64_C(0x94d049bb133111eb);
	return value ^ value >> 31;
}

static uint32_t key_word(void)
{
	key_state += UINT64_C(0x9e3779b97f4a7c15);
	return (uint32_t)api_mix(key_state);
}

static void key_fill(void *bytes, size_t byte_count)
{
	uint8_t *to = bytes;
	size_t at;

	for (at = 0; at < byte_count; at++)
		to[at] = (uint8_t)key_word();
}

static const char *key_name(void)
{
	return "api fuzz";
}

static struct randombytes_implementation keys = {
	.implementation_name = key_name, .random = key_word, .buf = key_fill
};

static void draw_init(uint64_t seed)
{
	(void)randombytes_set_implementation(&keys);
	draw_state = seed;
	key_state = ~seed;
}

void api_draw_bytes(const uint8_t *data, size_t data_bytes)
{
	static const uint8_t none[1];

	draw_init(0);
	draw_data = data_bytes ? data : none;
	draw_left = data_bytes;
}

void api_draw_seed(uint64_t seed)
{
	draw_init(seed);
	draw_data = NULL;
}

int api_draw_over(void)
{
	return draw_data && !draw_left;
}

static uint64_t draw_word(uint32_t byte_count)
{
	uint64_t word = 0;

	if (!draw_data) {
		draw_state += UINT64_C(0x9e3779b97f4a7c15);
		return api_mix(draw_state);
	}
	for (; byte_count && draw_left; byte_count--, draw_left--)
		word = word << 8 | *draw_data++;
	return word;
}

uint64_t api_below(uint64_t bound)
{
	if (bound < 2)
		return 0;
	return draw_word(bound <= 256 ? 1 : bound <= 65536 ? 2 : 8) % bound;
}

int api_chance(uint32_t per_mille)
{
	/* A byte is enough: the least chance that is drawn is 4 of 1000. */
	return draw_word(1) % 256 * 1000 / 256 < per_mille;
}

int __wrap_clock_gettime(clockid_t id, struct timespec *now)
{
	if (!clock_fake || (id != CLOCK_MONOTONIC && id != CLOCK_REALTIME))
		return __real_clock_gettime(id, now);
	/*
	 * A half asks for the date when it opens, which takes some
	 * milliseconds.
	 */
	clock_ns += id == CLOCK_REALTIME ? 2 * API_NS_PER_MS : clock_cost_ns;
	now->tv_sec = (time_t)(clock_ns / (1000 * API_NS_PER_MS));
	now->tv_nsec = (long)(clock_ns % (1000 * API_NS_PER_MS));
	return 0;
}

int __wrap_nanosleep(const struct timespec *wait, struct timespec *left)
{
	if (!clock_fake)
		return __real_nanosleep(wait, left);
	clock_ns += (uint64_t)wait->tv_nsec;
	return 0;
}

void api_clock_init(int fake)
{
	clock_fake = fake;
	clock_ns = 1000 * API_NS_PER_MS;
	clock_cost_ns = 1000;
}

void api_clock_cost(uint64_t ns)
{
	clock_cost_ns = ns;
}

void api_clock_back(uint64_t ns)
{
	if (clock_fake)
		clock_ns = ns;
}

uint64_t api_now_ns(void)
{
	struct timespec now;

	if (clock_fake)
		return clock_ns;
	(void)__real_clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 * API_NS_PER_MS +
	       (uint64_t)now.tv_nsec;
}

void api_sleep_ns(uint64_t ns)
{
	const struct timespec wait = { .tv_nsec = (long)(ns % 1000000000) };

	if (clock_fake)
		clock_ns += ns;
	else
		(void)__real_nanosleep(&wait, NULL);
}

/* Prints the last calls, the oldest first; not async-signal-safe. */
static void traces_print(void)
{
	uint32_t count = trace_count < TRACE_LINES ? trace_count : TRACE_LINES;

	for (; count; count--)
		fprintf(stderr, "  %s\n",
			traces[(trace_count - count) % TRACE_LINES]);
}

static void on_death(void)
{
	if (!call_verbose)
		traces_print();
	fprintf(stderr, "api fuzz: failed in call %" PRIu64 " (%s); %s\n",
		call_count, call_name, call_replay);
}

static void on_alarm(int number)
{
	(void)number;
	api_fail("nothing for %u s", HANG_S);
}

void api_calls_init(const char *how_to_replay, int verbose)
{
	call_count = 0;
	call_name = "open";
	call_replay = how_to_replay;
	call_verbose = verbose;
	trace_count = 0;
	if (__sanitizer_set_death_callback)
		__sanitizer_set_death_callback(on_death);
	(void)signal(SIGALRM, on_alarm);
}

void api_call(const char *name)
{
	call_name = name;
	if (call_count++ % 256 == 0)
		(void)alarm(HANG_S);
}

uint64_t api_calls(void)
{
	return call_count;
}

void api_trace(const char *format, ...)
{
	char *line = traces[trace_count++ % TRACE_LINES];
	va_list arguments;
	int used = snprintf(line, TRACE_BYTES, "%" PRIu64 " ", call_count);

	va_start(arguments, format);
	(void)vsnprintf(line + used, TRACE_BYTES - (size_t)used, format,
			arguments);
	va_end(arguments);
	if (call_verbose)
		fprintf(stderr, "  %s\n", line);
}

void api_fail(const char *format, ...)
{
	va_list arguments;

	on_death();
	va_start(arguments, format);
	fprintf(stderr, "api fuzz: ");
	vfprintf(stderr, format, arguments);
	fprintf(stderr, "\n");
	va_end(arguments);
	if (__sanitizer_set_death_callback)
		__sanitizer_set_death_callback(NULL);
	abort();
}
