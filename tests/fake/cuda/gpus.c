/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fake/cuda/gpus.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fake/cuda/cuda.h"

#define UUID_BEGIN "fake device "
#define UUID_END_BYTES 4u

/* The word of that number, of words with blanks between them; NULL: it is none. */
static const char *word_of(const char *text, uint32_t number, size_t *bytes)
{
	for (;;) {
		text += strspn(text, " ");
		*bytes = strcspn(text, " ");
		if (!*bytes)
			return NULL;
		if (!number--)
			return text;
		text += *bytes;
	}
}

static const char *node_text(void)
{
	const char *text = getenv("FAKE_CUDA_GPUS");

	return text ? text : "0000";
}

/* How many GPUs the node has. */
static uint32_t node_count(void)
{
	uint32_t count = 0;
	size_t bytes;

	while (count < FAKE_GPUS_MAX && word_of(node_text(), count, &bytes))
		count++;
	return count;
}

int fake_gpus_find(void)
{
	const char *text = getenv("CUDA_VISIBLE_DEVICES");
	const uint32_t count = node_count();
	uint32_t place = 0;
	char *end;

	fake.gpu_count = 0;
	if (!text)
		for (; place < count; place++)
			fake.gpus[fake.gpu_count++].place = place;
	/* A place that is none hides all that come behind it. */
	while (text && *text && fake.gpu_count < FAKE_GPUS_MAX) {
		const unsigned long number = strtoul(text, &end, 10);

		if (end == text || number >= count)
			break;
		fake.gpus[fake.gpu_count++].place = (uint32_t)number;
		text = end + (*end == ',');
	}
	return fake.gpu_count ? GPU_OK : FAKE_ENO_DEVICE;
}

uint32_t fake_gpu_at(uint32_t place)
{
	uint32_t gpu;

	for (gpu = 0; gpu < fake.gpu_count; gpu++)
		if (fake.gpus[gpu].place == place)
			return gpu;
	return FAKE_ANY;
}

int fake_reaches(uint32_t from, uint32_t to)
{
	const char *text = getenv("FAKE_CUDA_P2P");
	size_t bytes = 0;

	if (from == to || !text)
		return 1;
	text = word_of(text, from, &bytes);
	return text && to < bytes && text[to] == '1';
}

void fake_uuid(uint32_t place, uint8_t *uuid)
{
	char text[sizeof(UUID_BEGIN) + UUID_END_BYTES];
	size_t bytes = 0;
	const char *end = word_of(node_text(), place, &bytes);

	if (bytes > UUID_END_BYTES)
		bytes = UUID_END_BYTES;
	(void)snprintf(text, sizeof(text), UUID_BEGIN "%-*.*s",
		       (int)UUID_END_BYTES, (int)bytes, end ? end : "");
	memcpy(uuid, text, sizeof(text) - 1);
}

int fake_gpu_number(const char *name, uint32_t place, int otherwise)
{
	const char *text = getenv(name);
	int number = otherwise;
	uint32_t at;

	for (at = 0; text && at <= place; at++) {
		size_t bytes;
		const char *word = word_of(text, at, &bytes);

		if (!word)
			break;
		number = (int)strtol(word, NULL, 10);
	}
	return number;
}

uint32_t fake_retains(int device)
{
	return atomic_load_explicit(&fake.gpus[device].retains,
				    memory_order_relaxed);
}

static int sticky_of(const struct fake_gpu *gpu)
{
	return atomic_load_explicit(&gpu->sticky, memory_order_relaxed);
}

int fake_sticky(uint32_t gpu)
{
	int code = 0;
	uint32_t at;

	if (gpu != FAKE_ANY)
		return sticky_of(&fake.gpus[gpu]);
	for (at = 0; at < FAKE_GPUS_MAX && !code; at++)
		code = sticky_of(&fake.gpus[at]);
	return code;
}

void fake_lose(uint32_t gpu, int code)
{
	uint32_t at;

	for (at = 0; at < FAKE_GPUS_MAX; at++)
		if (gpu == FAKE_ANY || gpu == at)
			atomic_store_explicit(&fake.gpus[at].sticky, code,
					      memory_order_relaxed);
}
