// SPDX-License-Identifier: Apache-2.0
/*
 * Decides which frames are lost, doubled, damaged or late. No clock and no
 * socket here: a seed and the frames decide.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fabric/switch.h"

#define NS_PER_MS 1000000.0
/* A reordered frame is late by 0.2 to 2 ms: tens of frames pass it by. */
#define REORDER_NS_MIN 200000u
#define REORDER_NS_RANGE 1800000u
#define DELAY_MS_MAX 60000.0
#define DROP_COUNT_MAX 1e12
#define ROCE_UDP_PORT 4791u
#define UDP 17u

/* splitmix64: any seed is good, and one word of state. */
static uint64_t next(uint64_t *state)
{
	uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return z ^ (z >> 31);
}

/* Draws even at 0, so that one fault does not shift the draws of another. */
static int happens(struct fault *fault, uint32_t ppm)
{
	return next(&fault->state) % FAULT_PPM_MAX < ppm;
}

static uint32_t big16(const uint8_t *bytes)
{
	return (uint32_t)bytes[0] << 8 | bytes[1];
}

static int is_roce(const uint8_t *frame, uint32_t frame_bytes)
{
	uint32_t ip = 14;
	uint32_t udp;

	if (frame_bytes < ip + 48)
		return 0;
	if (big16(frame + 12) == 0x0800 && frame[ip + 9] == UDP)
		udp = ip + 4u * (frame[ip] & 15u);
	else if (big16(frame + 12) == 0x86dd && frame[ip + 6] == UDP)
		udp = ip + 40;
	else
		return 0;
	return udp + 4 <= frame_bytes &&
	       big16(frame + udp + 2) == ROCE_UDP_PORT;
}

void fault_init(struct fault *fault, uint64_t seed)
{
	memset(fault, 0, sizeof(*fault));
	fault->state = seed;
}

void fault_clear(struct fault *fault)
{
	fault->loss_ppm = 0;
	fault->duplicate_ppm = 0;
	fault->reorder_ppm = 0;
	fault->corrupt_ppm = 0;
	fault->drop_count = 0;
	fault->delay_ns = 0;
	fault->hole_bytes = 0;
	fault->link = FAULT_LINK_ON;
}

static void lose(struct fate *fate, uint64_t *counter)
{
	fate->copies = 0;
	(*counter)++;
}

void fault_decide(struct fault *fault, const uint8_t *frame,
		  uint32_t frame_bytes, struct fate *fate)
{
	uint64_t draw;

	fault->frames++;
	if (fault->link == FAULT_LINK_OFF) {
		lose(fate, &fault->cut);
		return;
	}
	if (!is_roce(frame, frame_bytes))
		return;
	if (fault->hole_bytes && frame_bytes > fault->hole_bytes) {
		lose(fate, &fault->dropped);
		return;
	}
	if (fault->drop_count > 0) {
		fault->drop_count--;
		lose(fate, &fault->dropped);
		return;
	}
	if (happens(fault, fault->loss_ppm)) {
		lose(fate, &fault->lost);
		return;
	}
	if (happens(fault, fault->duplicate_ppm)) {
		fate->copies++;
		fault->duplicated++;
	}
	fate->delay_ns += fault->delay_ns;
	draw = next(&fault->state);
	if (happens(fault, fault->reorder_ppm)) {
		fate->delay_ns += REORDER_NS_MIN + draw % REORDER_NS_RANGE;
		fault->reordered++;
	}
	if (happens(fault, fault->corrupt_ppm)) {
		/* Behind the UDP header: what RoCE's own check must find. */
		fate->corrupt_offset =
			42 + (uint32_t)(draw >> 32) % (frame_bytes - 42);
		fault->corrupted++;
	}
}

static int parse_number(const char *text, double number_max, double *number)
{
	char *end;

	errno = 0;
	*number = strtod(text, &end);
	if (errno != 0 || end == text || *end != '\0')
		return -1;
	return *number >= 0 && *number <= number_max ? 0 : -1;
}

static int set_link(struct fault *fault, const char *value)
{
	if (strcmp(value, "off") == 0)
		fault->link = FAULT_LINK_OFF;
	else if (strcmp(value, "on") == 0)
		fault->link = FAULT_LINK_ON;
	else
		return -1;
	return 0;
}

static uint32_t *percentage(struct fault *fault, const char *name)
{
	if (strcmp(name, "loss") == 0)
		return &fault->loss_ppm;
	if (strcmp(name, "duplicate") == 0)
		return &fault->duplicate_ppm;
	if (strcmp(name, "reorder") == 0)
		return &fault->reorder_ppm;
	if (strcmp(name, "corrupt") == 0)
		return &fault->corrupt_ppm;
	return NULL;
}

int fault_set(struct fault *fault, const char *name, const char *value)
{
	uint32_t *ppm = percentage(fault, name);
	double number;

	if (fault == NULL)
		return -1;
	if (strcmp(name, "link") == 0)
		return set_link(fault, value);
	if (ppm != NULL) {
		if (parse_number(value, 100, &number) != 0)
			return -1;
		*ppm = (uint32_t)(number * (FAULT_PPM_MAX / 100.0) + 0.5);
		return 0;
	}
	if (strcmp(name, "drop") == 0) {
		if (parse_number(value, DROP_COUNT_MAX, &number) != 0)
			return -1;
		fault->drop_count = (uint64_t)number;
		return 0;
	}
	if (strcmp(name, "hole") == 0) {
		if (parse_number(value, UINT16_MAX, &number) != 0)
			return -1;
		fault->hole_bytes = (uint32_t)number;
		return 0;
	}
	if (strcmp(name, "delay") == 0) {
		if (parse_number(value, DELAY_MS_MAX, &number) != 0)
			return -1;
		fault->delay_ns = (uint64_t)(number * NS_PER_MS);
		return 0;
	}
	return -1;
}

static int is_before(const struct frame *a, const struct frame *b)
{
	if (a->due_ns != b->due_ns)
		return a->due_ns < b->due_ns;
	return a->sequence < b->sequence;
}

static int late_grow(struct late *late)
{
	uint32_t count_max =
		late->frame_count_max == 0 ? 256 : late->frame_count_max * 2;
	struct frame **frames =
		realloc(late->frames, count_max * sizeof(struct frame *));

	if (frames == NULL)
		return -1;
	late->frames = frames;
	late->frame_count_max = count_max;
	return 0;
}

int late_push(struct late *late, struct frame *frame)
{
	uint32_t at = late->frame_count;

	if (at == late->frame_count_max && late_grow(late) != 0) {
		free(frame);
		return -1;
	}
	frame->sequence = late->sequence++;
	late->frame_count++;
	while (at > 0 && is_before(frame, late->frames[(at - 1) / 2])) {
		late->frames[at] = late->frames[(at - 1) / 2];
		at = (at - 1) / 2;
	}
	late->frames[at] = frame;
	return 0;
}

struct frame *late_pop(struct late *late, uint64_t now_ns)
{
	struct frame *first;
	struct frame *last;
	uint32_t at = 0;
	uint32_t child = 1;

	if (late->frame_count == 0 || late->frames[0]->due_ns > now_ns)
		return NULL;
	first = late->frames[0];
	last = late->frames[--late->frame_count];
	for (; child < late->frame_count; child = at * 2 + 1) {
		if (child + 1 < late->frame_count &&
		    is_before(late->frames[child + 1], late->frames[child]))
			child++;
		if (!is_before(late->frames[child], last))
			break;
		late->frames[at] = late->frames[child];
		at = child;
	}
	late->frames[at] = last;
	return first;
}
