/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/hold/lives.h"

#include "kvpull/common.h"

static int life_has(const struct life *life, enum rank_state state)
{
	uint32_t r;

	for (r = 0; r < life->rank_count; r++)
		if (life->ranks[r] == state)
			return 1;
	return 0;
}

int life_is_served(const struct life *life)
{
	return life_has(life, HERE) || life_has(life, GRACE) ||
	       life_has(life, CALLED);
}

int rank_speaks(const struct life *life, uint32_t rank)
{
	return life &&
	       (life->ranks[rank] == HERE || life->ranks[rank] == GRACE);
}

int rank_is_absent(const struct life *life, uint32_t rank)
{
	return life->ranks[rank] == DEAD || life->ranks[rank] == CALLED;
}

/* The row of the rank's state in the columns of joins and calls. */
int life_enter(struct life *life, uint32_t rank, uint32_t worker)
{
	const int is_same = !worker || !life->workers[rank] ||
			    life->workers[rank] == worker;

	switch (life->ranks[rank]) {
	case HERE:
		return KVPULL_EREJECTED;
	case GRACE:
	case AWAY:
		if (is_same)
			break;
		life->ranks[rank] = CALLED;
		life->is_judged[rank] = life->is_forsaken[rank] = 0;
		return KVPULL_EAGAIN;
	case CALLED:
		if (is_same)
			return KVPULL_EAGAIN;
		if (life->is_judged[rank] && !life->is_forsaken[rank])
			break;
		life->is_judged[rank] = life->is_forsaken[rank] = 0;
		return KVPULL_EAGAIN;
	case NEVER:
	case DEAD:
		break;
	}
	life->is_back[rank] |= (uint32_t)rank_is_absent(life, rank);
	life->ranks[rank] = HERE;
	life->parts[rank] = 0;
	life->workers[rank] = worker;
	return 0;
}

/* A sweep makes ranks dead or called. Return: is one of them a death? */
static int life_deaths(struct life *life, uint64_t now_ns, int judged[RANKS])
{
	int is_death = 0;
	uint32_t r;

	for (r = 0; r < life->rank_count; r++) {
		const int dies =
			(life->ranks[r] == GRACE &&
			 life->due_ns[r] <= now_ns) ||
			(life->ranks[r] == CALLED && life->is_forsaken[r]);

		judged[r] = dies ||
			    (life->ranks[r] == CALLED && !life->is_judged[r]);
		if (dies)
			life->ranks[r] = DEAD;
		else if (judged[r])
			life->is_judged[r] = 1;
		is_death |= dies;
	}
	return is_death;
}

void life_judge(struct life *life, uint64_t now_ns, int judged[RANKS])
{
	uint32_t r;

	if (!life_deaths(life, now_ns, judged) || life_is_served(life))
		return;
	life->is_dead = 1;
	for (r = 0; r < life->rank_count; r++) {
		judged[r] |= life->ranks[r] == AWAY;
		life->ranks[r] = DEAD;
	}
}
