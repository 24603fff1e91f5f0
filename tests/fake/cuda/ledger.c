/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fake/cuda/ledger.h"

#include <unistd.h>

#include "tests/fake/cuda/cuda.h"
#include "tests/lib/gpu_ledger.h"

static struct gpu_ledger *ledger;
static struct gpu_ledger_row *process;
static struct gpu_ledger_row *rows[FAKE_HANDLES_MAX]; /* of each allocation */

/* A row that no process has; another one may take the same at once. */
static struct gpu_ledger_row *row_take(void)
{
	uint32_t at;

	for (at = 0; at < GPU_LEDGER_ROWS_MAX; at++) {
		uint32_t nobody = 0;

		if (atomic_compare_exchange_strong_explicit(
			    &ledger->rows[at].pid, &nobody, (uint32_t)getpid(),
			    memory_order_relaxed, memory_order_relaxed))
			return &ledger->rows[at];
	}
	fake_wrong("%u rows of the ledger are in use", GPU_LEDGER_ROWS_MAX);
}

static struct gpu_ledger_row *row_make(uint32_t owner, uint64_t bytes)
{
	struct gpu_ledger_row *const row = row_take();

	GPU_LEDGER_SET(row->parent, (uint32_t)getppid());
	GPU_LEDGER_SET(row->owner, owner);
	GPU_LEDGER_SET(row->bytes, bytes);
	return row;
}

static void row_clear(struct gpu_ledger_row **row)
{
	if (*row) {
		GPU_LEDGER_SET((*row)->owner, 0);
		GPU_LEDGER_SET((*row)->pid, 0);
	}
	*row = NULL;
}

void fake_ledger_open(void)
{
	if (!getenv(GPU_LEDGER))
		return;
	ledger = gpu_ledger_open(1);
	if (!ledger)
		fake_wrong("the ledger %s cannot be opened",
			   getenv(GPU_LEDGER));
	process = row_make(0, 0);
}

void fake_ledger_take(uint64_t number)
{
	const struct fake_handle *handle = &fake.handles[number - 1];

	if (ledger)
		rows[number - 1] = row_make(handle->owner, handle->bytes);
}

void fake_ledger_give(uint64_t number)
{
	row_clear(&rows[number - 1]);
}

void fake_ledger_end(void)
{
	uint32_t at;

	for (at = 0; at < FAKE_HANDLES_MAX; at++)
		row_clear(&rows[at]);
	row_clear(&process);
}
