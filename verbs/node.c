/* SPDX-License-Identifier: Apache-2.0 */
#include "verbs/node.h"

#include <sys/syscall.h>
#include <unistd.h>

static uint64_t bytes_of(const struct kvpull_serve *serve)
{
	uint64_t bytes = 0;
	uint32_t i;

	for (i = 0; i < serve->region_count; i++)
		if (serve->regions[i].kind != KVPULL_REGION_DEVICE)
			bytes += serve->regions[i].bytes;
	return bytes;
}

/* The byte at this place of all host memory, one region after the other. */
static void *byte_at(const struct kvpull_serve *serve, uint64_t at)
{
	uint32_t i;

	for (i = 0; i < serve->region_count; i++) {
		const struct kvpull_region_view *view = &serve->regions[i];

		if (view->kind == KVPULL_REGION_DEVICE)
			continue;
		if (at < view->bytes)
			return view->base ? view->base + at : NULL;
		at -= view->bytes;
	}
	return NULL;
}

/* Counts the pages on the node of page `of`. */
static uint32_t alike(const int nodes[KVPULL_VERBS_NODE_PAGES], uint32_t of)
{
	uint32_t count = 0;
	uint32_t i;

	for (i = 0; i < KVPULL_VERBS_NODE_PAGES; i++)
		count += nodes[i] == nodes[of];
	return count;
}

int32_t kvpull_verbs_node_of(const struct kvpull_serve *serve)
{
	const uint64_t step = bytes_of(serve) / KVPULL_VERBS_NODE_PAGES;
	void *pages[KVPULL_VERBS_NODE_PAGES];
	int nodes[KVPULL_VERBS_NODE_PAGES];
	uint32_t there = 0;
	uint32_t i;

	for (i = 0; i < KVPULL_VERBS_NODE_PAGES; i++)
		pages[i] = byte_at(serve, i * step);
	/* Without nodes to move to it only says where they are. */
	if (syscall(SYS_move_pages, 0, (unsigned long)KVPULL_VERBS_NODE_PAGES,
		    pages, NULL, nodes, 0))
		return -1;
	for (i = 0; i < KVPULL_VERBS_NODE_PAGES; i++)
		there += nodes[i] >= 0;
	for (i = 0; i < KVPULL_VERBS_NODE_PAGES; i++)
		if (nodes[i] >= 0 && 2 * alike(nodes, i) > there)
			return nodes[i];
	return -1;
}
