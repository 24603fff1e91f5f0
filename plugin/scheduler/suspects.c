/* SPDX-License-Identifier: Apache-2.0 */
/* Adapters whose cached KV may be of before their last change. */
#include "plugin/scheduler/suspects.h"

int kvpull_suspects_has(const struct kvpull_suspects *suspects,
			uint64_t adapter)
{
	uint32_t i;

	if (suspects->all)
		return 1;
	for (i = 0; i < suspects->count; i++)
		if (suspects->adapters[i] == adapter)
			return 1;
	return 0;
}

void kvpull_suspects_add(struct kvpull_suspects *suspects, uint64_t adapter)
{
	if (kvpull_suspects_has(suspects, adapter))
		return;
	if (!adapter || suspects->count == KVPULL_SUSPECTS_MAX)
		suspects->all = 1;
	else
		suspects->adapters[suspects->count++] = adapter;
}

void kvpull_suspects_clear(struct kvpull_suspects *suspects)
{
	suspects->count = 0;
	suspects->all = 0;
}
