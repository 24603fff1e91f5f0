/* SPDX-License-Identifier: Apache-2.0 */
/* What a consumer keeps of a ticket. */
#include "plugin/scheduler/kept.h"

#include <string.h>

#define RUN_WORDS 2u

/* Runs of the ids; 0: there are so many that the ids are shorter. */
static uint32_t run_count(const uint32_t *ids, uint32_t count)
{
	uint32_t runs = 0;
	uint32_t at;

	for (at = 0; at < count; at += kvpull_ids_run(ids, at, count))
		if (++runs > count / RUN_WORDS)
			return 0;
	return runs;
}

static void put_runs(const uint32_t *ids, uint32_t count, uint32_t *words)
{
	uint32_t at = 0;

	while (at < count) {
		const uint32_t run = kvpull_ids_run(ids, at, count);

		*words++ = ids[at];
		*words++ = run;
		at += run;
	}
}

size_t kvpull_kept_make(const struct kvpull_ticket *ticket, void *bytes)
{
	struct kvpull_kept *kept = bytes;
	uint32_t *words = (uint32_t *)(void *)(kept + 1);
	uint32_t used = 0;
	uint32_t i;

	*kept = (struct kvpull_kept){ .group_count = ticket->group_count };
	for (i = 0; i < ticket->group_count; i++) {
		const struct kvpull_ticket_group *from = &ticket->groups[i];
		const uint32_t *ids = ticket->block_ids + from->first_id;
		struct kvpull_kept_group *to = &kept->groups[i];

		to->first_index = from->first_index;
		to->block_count = from->block_count;
		to->first_word = used;
		to->run_count = run_count(ids, from->block_count);
		if (to->run_count) {
			put_runs(ids, from->block_count, words + used);
			used += to->run_count * RUN_WORDS;
			continue;
		}
		memcpy(words + used, ids, from->block_count * sizeof(*ids));
		used += from->block_count;
	}
	return sizeof(*kept) + used * sizeof(*words);
}

void kvpull_kept_get(const struct kvpull_texts *texts, uint32_t index,
		     struct kvpull_kept *kept)
{
	struct kvpull_text_place place;

	kvpull_texts_seek(texts, index, 0, &place);
	kvpull_texts_read(texts, &place, kept, sizeof(*kept));
}

/* `count` ids after the first `skip`, out of runs. */
static void ids_of_runs(const struct kvpull_texts *texts,
			struct kvpull_text_place *place, uint32_t skip,
			uint32_t *ids, uint32_t count)
{
	while (count) {
		uint32_t run[RUN_WORDS];
		uint32_t i;

		kvpull_texts_read(texts, place, run, sizeof(run));
		if (run[1] <= skip) {
			skip -= run[1];
			continue;
		}
		for (i = skip; i < run[1] && count; i++, count--)
			*ids++ = run[0] + i;
		skip = 0;
	}
}

int kvpull_kept_ids(const struct kvpull_texts *texts, uint32_t index,
		    const struct kvpull_kept_group *group,
		    const struct kvpull_blocks *wanted, uint32_t *ids)
{
	const uint32_t count = wanted->block_count;
	struct kvpull_text_place place;
	uint64_t first_word = group->first_word;
	uint32_t skip;

	if (!count)
		return 0;
	if (wanted->first_index < group->first_index ||
	    (uint64_t)wanted->first_index + count >
		    (uint64_t)group->first_index + group->block_count)
		return KVPULL_ETRUNCATED;
	skip = wanted->first_index - group->first_index;
	if (!group->run_count)
		first_word += skip;
	kvpull_texts_seek(
		texts, index,
		sizeof(struct kvpull_kept) + first_word * sizeof(*ids), &place);
	if (group->run_count)
		ids_of_runs(texts, &place, skip, ids, count);
	else
		kvpull_texts_read(texts, &place, ids, count * sizeof(*ids));
	return 0;
}
