/* SPDX-License-Identifier: Apache-2.0 */
/* The port of a host that a rail goes by, and in which respect it is the best. */
#include "tests/lib/unit.h"
#include "verbs/pick.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define PORTS_MAX 4u

/* Ports by kind, speed, distance, and whether another rail has them. */
struct row {
	struct kvpull_verbs_port ports[PORTS_MAX];
	uint32_t port_count, turn;
	uint32_t picked; /* index; PORTS_MAX: none */
	uint32_t free_count, equal_count;
	enum kvpull_verbs_respect respect;
};

#define PORT(kind, mbps, far, taken)                                           \
	{                                                                      \
		.rank = KVPULL_GID_##kind, .link_mbps = (mbps),                \
		.distance = (far), .is_taken = (taken),                        \
	}
#define FAST PORT(IPV4, 400, 10, 0)
#define FAST_TAKEN PORT(IPV4, 400, 10, 1)
#define FAST_FAR PORT(IPV4, 400, 20, 0)
#define FAST_FAR_TAKEN PORT(IPV4, 400, 20, 1)
#define SLOW PORT(IPV4, 100, 10, 0)
#define LOCAL PORT(LINK_LOCAL, 800, 10, 0)
#define NONE PORTS_MAX
#define KIND KVPULL_VERBS_BY_KIND
#define SPEED KVPULL_VERBS_BY_SPEED
#define NEARNESS KVPULL_VERBS_BY_NEARNESS

static const struct row rows[] = {
	{ { FAST }, 1, 0, 0, 1, 1, KIND },
	{ { FAST }, 1, 5, 0, 1, 1, KIND },
	{ { FAST_TAKEN, FAST_TAKEN }, 2, 0, NONE, 0, 0, KIND },
	{ { LOCAL, FAST }, 2, 0, 1, 2, 1, KIND },
	{ { SLOW, FAST_FAR }, 2, 0, 1, 2, 1, SPEED },
	{ { FAST_FAR, FAST }, 2, 0, 1, 2, 1, NEARNESS },
	{ { FAST, FAST_FAR, SLOW, LOCAL }, 4, 0, 0, 4, 1, NEARNESS },
	{ { LOCAL, SLOW, FAST_FAR, FAST }, 4, 0, 3, 4, 1, NEARNESS },
	/* Ports of other rails decide nothing. */
	{ { FAST, FAST_FAR_TAKEN, SLOW }, 3, 0, 0, 2, 1, SPEED },
	{ { FAST_FAR_TAKEN, FAST, SLOW }, 3, 0, 1, 2, 1, SPEED },
	/* Equal ones take turns, with those of other rails. */
	{ { FAST, FAST, FAST }, 3, 0, 0, 3, 3, KIND },
	{ { FAST, FAST, FAST }, 3, 1, 1, 3, 3, KIND },
	{ { FAST, FAST, FAST }, 3, 5, 2, 3, 3, KIND },
	{ { FAST_TAKEN, FAST, FAST }, 3, 0, 1, 2, 3, KIND },
	{ { FAST_TAKEN, FAST, FAST }, 3, 1, 1, 2, 3, KIND },
	{ { FAST_TAKEN, FAST, FAST }, 3, 2, 2, 2, 3, KIND },
	{ { FAST, FAST_TAKEN, FAST_TAKEN }, 3, 1, 0, 1, 3, KIND },
	{ { FAST, FAST_TAKEN, FAST_TAKEN }, 3, 2, 0, 1, 3, KIND },
	{ { SLOW, FAST, SLOW, FAST }, 4, 1, 3, 4, 2, SPEED },
	{ { SLOW, FAST, SLOW, FAST_TAKEN }, 4, 1, 1, 3, 2, SPEED },
};

UNIT_TEST(best_port_that_is_free_is_picked)
{
	size_t i;

	for (i = 0; i < COUNT(rows); i++) {
		const struct row *row = &rows[i];
		struct kvpull_verbs_choice choice;

		kvpull_verbs_pick(row->ports, row->port_count, row->turn,
				  &choice);
		if (row->picked == NONE) {
			assert_null(choice.port);
			continue;
		}
		assert_int_equal(choice.port - row->ports, row->picked);
		assert_int_equal(choice.free_count, row->free_count);
		assert_int_equal(choice.equal_count, row->equal_count);
		assert_int_equal(choice.respect, row->respect);
	}
}
