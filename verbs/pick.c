/* SPDX-License-Identifier: Apache-2.0 */
#include "verbs/pick.h"

static enum kvpull_verbs_respect compare(const struct kvpull_verbs_port *one,
					 const struct kvpull_verbs_port *other,
					 int *is_better)
{
	*is_better = 1;
	if (one->rank != other->rank) {
		*is_better = one->rank > other->rank;
		return KVPULL_VERBS_BY_KIND;
	}
	if (one->link_mbps != other->link_mbps) {
		*is_better = one->link_mbps > other->link_mbps;
		return KVPULL_VERBS_BY_SPEED;
	}
	if (one->bridges != other->bridges) {
		*is_better = one->bridges > other->bridges;
		return KVPULL_VERBS_BY_BRIDGES;
	}
	*is_better = one->distance < other->distance;
	return one->distance != other->distance ? KVPULL_VERBS_BY_NEARNESS :
						  KVPULL_VERBS_EQUAL;
}

/* The first of the best that are free; NULL: there is none. */
static const struct kvpull_verbs_port *
best_find(const struct kvpull_verbs_port *ports, uint32_t port_count)
{
	const struct kvpull_verbs_port *best = NULL;
	int is_better = 1;
	uint32_t at;

	for (at = 0; at < port_count; at++) {
		if (ports[at].is_taken)
			continue;
		if (best)
			(void)compare(&ports[at], best, &is_better);
		if (is_better)
			best = &ports[at];
	}
	return best;
}

static void count(const struct kvpull_verbs_port *ports, uint32_t port_count,
		  struct kvpull_verbs_choice *choice)
{
	uint32_t at;

	for (at = 0; at < port_count; at++) {
		int ignored;
		const enum kvpull_verbs_respect respect =
			compare(choice->port, &ports[at], &ignored);

		choice->free_count += !ports[at].is_taken;
		choice->equal_count += respect == KVPULL_VERBS_EQUAL;
		if (!ports[at].is_taken && respect != KVPULL_VERBS_EQUAL &&
		    respect > choice->respect)
			choice->respect = respect;
	}
}

/* The free one whose turn it is among those that equal `first`, or the next. */
static const struct kvpull_verbs_port *
turn_take(const struct kvpull_verbs_port *ports, uint32_t port_count,
	  const struct kvpull_verbs_port *first, uint32_t skip)
{
	int ignored;
	uint32_t at;

	/* Twice around: those from its turn on may all be taken. */
	for (at = 0; at < 2 * port_count; at++) {
		const struct kvpull_verbs_port *port = &ports[at % port_count];

		if (compare(first, port, &ignored) != KVPULL_VERBS_EQUAL)
			continue;
		if (!skip && !port->is_taken)
			return port;
		skip -= skip > 0;
	}
	return first;
}

void kvpull_verbs_pick(const struct kvpull_verbs_port *ports,
		       uint32_t port_count, uint32_t turn,
		       struct kvpull_verbs_choice *choice)
{
	*choice = (struct kvpull_verbs_choice){
		.port = best_find(ports, port_count),
	};
	if (!choice->port)
		return;
	count(ports, port_count, choice);
	choice->port = turn_take(ports, port_count, choice->port,
				 turn % choice->equal_count);
}
