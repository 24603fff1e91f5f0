/* SPDX-License-Identifier: Apache-2.0 */
/* Huge pages: asked of the kernel for memory that wants them, where they are allowed. */
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "kvpull/reader.h"
#include "tests/lib/host_reader.h"
#include "tests/unit/abi/world.h"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

#define BYTES (UINT64_C(8) << 20)

static _Atomic uint32_t asked;

/* Before libc's, for the library that is linked to this program. */
int madvise(void *at, size_t bytes, int advice)
{
	asked += advice == MADV_COLLAPSE;
	return (int)syscall(SYS_madvise, at, bytes, advice);
}

static const struct {
	const char *config;
	uint32_t flags;
	uint32_t is_asked;
} rows[] = {
	{ "{\"copy_threads\":0,\"status\":\"off\"}", KVPULL_MEMORY_HUGE, 1 },
	{ "{\"copy_threads\":0,\"status\":\"off\"}", 0, 0 },
	{ "{\"copy_threads\":0,\"status\":\"off\",\"huge\":\"no\"}",
	  KVPULL_MEMORY_HUGE, 0 },
};

#define ROWS (sizeof(rows) / sizeof(rows[0]))

UNIT_TEST(memory_of_a_worker_is_huge_where_it_asks_and_may)
{
	const struct kvpull_worker_ops *ops = kvpull_connector_v1()->worker;
	uint32_t at;

	for (at = 0; at < ROWS; at++) {
		struct kvpull_memory memory = { .struct_size = sizeof(memory) };
		struct kvpull_open_params params = open_params("engine");
		struct kvpull_worker *worker;

		params.config_json = rows[at].config;
		assert_int_equal(ops->open(&params, &worker, NULL), 0);
		asked = 0;
		assert_int_equal(ops->memory_alloc(worker, BYTES,
						   rows[at].flags, &memory),
				 0);
		assert_int_equal(asked > 0, rows[at].is_asked);
		assert_true(rows[at].is_asked || !memory.huge_bytes);
		assert_true(memory.bytes >= BYTES);
		/* Another flag is none of ours. */
		assert_int_equal(ops->memory_alloc(worker, BYTES,
						   rows[at].flags | 4, &memory),
				 KVPULL_EINVAL);
		assert_int_equal(
			ops->memory_alloc(worker, 0, rows[at].flags, &memory),
			KVPULL_EINVAL);
		ops->close(worker);
	}
}

UNIT_TEST(chunks_of_a_share_are_huge_where_it_asks_and_may)
{
	const struct kvpull_reader_ops *ops = kvpull_reader_v1();
	uint32_t at;

	for (at = 0; at < ROWS; at++) {
		const struct host_reader own = { .engine_id = "reader",
						 .config = rows[at].config };
		const struct kvpull_reader_share share = {
			.struct_size = sizeof(share),
			.chunk_bytes = BYTES / 2,
			.chunk_count = 2,
			.flags = rows[at].flags,
		};
		struct kvpull_memory memory = { .struct_size = sizeof(memory) };
		struct kvpull_reader *reader;

		assert_int_equal(host_reader_open(ops, &own, &reader, NULL), 0);
		asked = 0;
		assert_int_equal(ops->share(reader, &share, &memory, NULL), 0);
		assert_int_equal(asked > 0, rows[at].is_asked);
		assert_true(rows[at].is_asked || !memory.huge_bytes);
		ops->close(reader);
	}
}
