/* SPDX-License-Identifier: Apache-2.0 */
/* The frozen layout of the reader's header, as test_abi.c has the connector's. */
#include "kvpull/reader.h"
#include "tests/abi/frozen.h"
#include "tests/lib/unit.h"

/* clang-format off */
VALUE(KVPULL_READER_ABI_MAJOR, 1);

STRUCT(kvpull_reader_naming, 40);
MEMBER(kvpull_reader_naming, struct_size, 0, 8);
MEMBER(kvpull_reader_naming, model, 8, 8);
MEMBER(kvpull_reader_naming, hash, 16, 8);
MEMBER(kvpull_reader_naming, seed, 24, 8);
MEMBER(kvpull_reader_naming, tp_size, 32, 4);
MEMBER(kvpull_reader_naming, reserved, 36, 4);

STRUCT(kvpull_reader_params, 40);
MEMBER(kvpull_reader_params, struct_size, 0, 8);
MEMBER(kvpull_reader_params, host, 8, 8);
MEMBER(kvpull_reader_params, config_json, 16, 8);
MEMBER(kvpull_reader_params, naming, 24, 8);
MEMBER(kvpull_reader_params, engine_id, 32, 8);

STRUCT(kvpull_reader_share, 64);
MEMBER(kvpull_reader_share, struct_size, 0, 8);
MEMBER(kvpull_reader_share, chunk_bytes, 8, 8);
MEMBER(kvpull_reader_share, chunk_count, 16, 4);
MEMBER(kvpull_reader_share, entry_count, 20, 4);
MEMBER(kvpull_reader_share, flags, 24, 4);
MEMBER(kvpull_reader_share, fd, 28, 4);
MEMBER(kvpull_reader_share, fd_offset, 32, 8);
MEMBER(kvpull_reader_share, base, 40, 8);
MEMBER(kvpull_reader_share, slot_folder, 48, 8);
MEMBER(kvpull_reader_share, slot_count, 56, 4);
MEMBER(kvpull_reader_share, reserved, 60, 4);

STRUCT(kvpull_reader_key, 16);
MEMBER(kvpull_reader_key, bytes, 0, 8);
MEMBER(kvpull_reader_key, byte_count, 8, 8);

STRUCT(kvpull_reader_put, 48);
MEMBER(kvpull_reader_put, struct_size, 0, 8);
MEMBER(kvpull_reader_put, key, 8, 16);
MEMBER(kvpull_reader_put, chunk, 24, 4);
MEMBER(kvpull_reader_put, reserved, 28, 4);
MEMBER(kvpull_reader_put, generation, 32, 8);
MEMBER(kvpull_reader_put, epoch, 40, 8);

STRUCT(kvpull_reader_spill, 48);
MEMBER(kvpull_reader_spill, struct_size, 0, 8);
MEMBER(kvpull_reader_spill, puts, 8, 8);
MEMBER(kvpull_reader_spill, put_bytes, 16, 8);
MEMBER(kvpull_reader_spill, codes, 24, 8);
MEMBER(kvpull_reader_spill, put_count, 32, 4);
MEMBER(kvpull_reader_spill, reserved, 36, 4);
MEMBER(kvpull_reader_spill, deadline_ns, 40, 8);

STRUCT(kvpull_reader_place, 16);
MEMBER(kvpull_reader_place, chunk, 0, 4);
MEMBER(kvpull_reader_place, in_file, 4, 4);
MEMBER(kvpull_reader_place, generation, 8, 8);

STRUCT(kvpull_reader_probe, 56);
MEMBER(kvpull_reader_probe, struct_size, 0, 8);
MEMBER(kvpull_reader_probe, peer, 8, 4);
MEMBER(kvpull_reader_probe, key_count, 12, 4);
MEMBER(kvpull_reader_probe, keys, 16, 8);
MEMBER(kvpull_reader_probe, key_bytes, 24, 8);
MEMBER(kvpull_reader_probe, places, 32, 8);
MEMBER(kvpull_reader_probe, place_bytes, 40, 8);
MEMBER(kvpull_reader_probe, deadline_ns, 48, 8);

STRUCT(kvpull_reader_piece, 16);
MEMBER(kvpull_reader_piece, chunk, 0, 4);
MEMBER(kvpull_reader_piece, block, 4, 4);
MEMBER(kvpull_reader_piece, generation, 8, 8);

STRUCT(kvpull_reader_read, 64);
MEMBER(kvpull_reader_read, struct_size, 0, 8);
MEMBER(kvpull_reader_read, peer, 8, 4);
MEMBER(kvpull_reader_read, local, 12, 4);
MEMBER(kvpull_reader_read, pieces, 16, 8);
MEMBER(kvpull_reader_read, piece_bytes, 24, 8);
MEMBER(kvpull_reader_read, codes, 32, 8);
MEMBER(kvpull_reader_read, piece_count, 40, 4);
MEMBER(kvpull_reader_read, reserved, 44, 4);
MEMBER(kvpull_reader_read, incarnation, 48, 8);
MEMBER(kvpull_reader_read, deadline_ns, 56, 8);

STRUCT(kvpull_reader_record, 24);
MEMBER(kvpull_reader_record, id, 0, 8);
MEMBER(kvpull_reader_record, incarnation, 8, 8);
MEMBER(kvpull_reader_record, code, 16, 4);
MEMBER(kvpull_reader_record, count, 20, 4);

STRUCT(kvpull_reader_peer, 240);
MEMBER(kvpull_reader_peer, peer, 0, 4);
MEMBER(kvpull_reader_peer, code, 4, 4);
MEMBER(kvpull_reader_peer, incarnation, 8, 8);
MEMBER(kvpull_reader_peer, chunk_bytes, 16, 8);
MEMBER(kvpull_reader_peer, chunk_count, 24, 4);
MEMBER(kvpull_reader_peer, slot_count, 28, 4);
MEMBER(kvpull_reader_peer, engine_id, 32, 64);
MEMBER(kvpull_reader_peer, route, 96, 16);
MEMBER(kvpull_reader_peer, address, 112, 128);

STRUCT(kvpull_reader_ops, 216);
MEMBER(kvpull_reader_ops, struct_size, 0, 8);
MEMBER(kvpull_reader_ops, abi_major, 8, 4);
MEMBER(kvpull_reader_ops, abi_minor, 12, 4);
MEMBER(kvpull_reader_ops, version, 16, 8);
MEMBER(kvpull_reader_ops, error_text, 24, 8);
MEMBER(kvpull_reader_ops, open, 32, 8);
MEMBER(kvpull_reader_ops, close, 40, 8);
MEMBER(kvpull_reader_ops, share, 48, 8);
MEMBER(kvpull_reader_ops, unshare, 56, 8);
MEMBER(kvpull_reader_ops, address, 64, 8);
MEMBER(kvpull_reader_ops, guard_bump, 72, 8);
MEMBER(kvpull_reader_ops, guard_bump_all, 80, 8);
MEMBER(kvpull_reader_ops, generation, 88, 8);
MEMBER(kvpull_reader_ops, epoch, 96, 8);
MEMBER(kvpull_reader_ops, write_begin, 104, 8);
MEMBER(kvpull_reader_ops, write_end, 112, 8);
MEMBER(kvpull_reader_ops, put, 120, 8);
MEMBER(kvpull_reader_ops, spill, 128, 8);
MEMBER(kvpull_reader_ops, local_add, 136, 8);
MEMBER(kvpull_reader_ops, peer_add, 144, 8);
MEMBER(kvpull_reader_ops, peer_remove, 152, 8);
MEMBER(kvpull_reader_ops, peers, 160, 8);
MEMBER(kvpull_reader_ops, probe, 168, 8);
MEMBER(kvpull_reader_ops, read, 176, 8);
MEMBER(kvpull_reader_ops, cancel, 184, 8);
MEMBER(kvpull_reader_ops, poll, 192, 8);
MEMBER(kvpull_reader_ops, event_fd, 200, 8);
MEMBER(kvpull_reader_ops, counters, 208, 8);

VALUE(KVPULL_READER_NONE, UINT32_MAX);
VALUE(KVPULL_READER_SHARE_FD, 256);
VALUE(KVPULL_READER_ITEMS_MAX, 256);
VALUE(KVPULL_READER_OPEN_MAX, 64);
VALUE(KVPULL_READER_SPILLS_MAX, 16);
VALUE(KVPULL_READER_PEERS_MAX, 64);
VALUE(KVPULL_READER_LOCALS_MAX, 8);
VALUE(KVPULL_READER_BLOCKS_MAX, 4194304);
VALUE(KVPULL_READER_CHUNKS_MAX, 1048576);
VALUE(KVPULL_READER_KEY_BYTES_MAX, 224);
/* clang-format on */

/* The library's table is as long as the header says, and has no hole. */
UNIT_TEST(table_has_every_call)
{
	const struct kvpull_reader_ops *ops = kvpull_reader_v1();
	void *const *calls = (void *const *)(const void *)&ops->version;
	const void *const *end = (const void *const *)(const void *)(ops + 1);

	assert_int_equal(ops->struct_size, sizeof(*ops));
	assert_int_equal(ops->abi_major, KVPULL_READER_ABI_MAJOR);
	for (; (const void *const *)calls < end; calls++)
		assert_non_null(*calls);
}
