/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The frozen layout of the public header: size of each struct, offset and size
 * of each member, value of each error and constant. Engines that were built
 * against an older minor rely on them. A failure here is a change that needs a
 * new major; appending a member changes a size, and adds a line: that is a new
 * minor (make abi-bless).
 *
 * The layout is checked by the compiler. The test program walks the error list,
 * whose renumbering abidiff does not see.
 */
#include "kvpull/connector.h"
#include "tests/abi/frozen.h"
#include "tests/lib/unit.h"

/* clang-format off */
VALUE(KVPULL_ABI_MAJOR, 1);

STRUCT(kvpull_host, 40);
MEMBER(kvpull_host, struct_size, 0, 8);
MEMBER(kvpull_host, context, 8, 8);
MEMBER(kvpull_host, log, 16, 8);
MEMBER(kvpull_host, fatal, 24, 8);
MEMBER(kvpull_host, log_level, 32, 4);
MEMBER(kvpull_host, reserved, 36, 4);

STRUCT(kvpull_error_detail, 336);
MEMBER(kvpull_error_detail, struct_size, 0, 8);
MEMBER(kvpull_error_detail, code, 8, 4);
MEMBER(kvpull_error_detail, reserved, 12, 4);
MEMBER(kvpull_error_detail, field, 16, 64);
MEMBER(kvpull_error_detail, message, 80, 256);

STRUCT(kvpull_model, 88);
MEMBER(kvpull_model, struct_size, 0, 8);
MEMBER(kvpull_model, model, 8, 8);
MEMBER(kvpull_model, revision, 16, 8);
MEMBER(kvpull_model, weights, 24, 8);
MEMBER(kvpull_model, dtype, 32, 8);
MEMBER(kvpull_model, layout, 40, 8);
MEMBER(kvpull_model, attention, 48, 8);
MEMBER(kvpull_model, layer_count, 56, 4);
MEMBER(kvpull_model, head_count, 60, 4);
MEMBER(kvpull_model, head_bytes, 64, 4);
MEMBER(kvpull_model, replicated, 68, 4);
MEMBER(kvpull_model, config, 72, 8);
MEMBER(kvpull_model, engine, 80, 8);

STRUCT(kvpull_group, 16);
MEMBER(kvpull_group, block_tokens, 0, 4);
MEMBER(kvpull_group, kind, 4, 4);
MEMBER(kvpull_group, head_count, 8, 4);
MEMBER(kvpull_group, reserved, 12, 4);

STRUCT(kvpull_open_params, 104);
MEMBER(kvpull_open_params, struct_size, 0, 8);
MEMBER(kvpull_open_params, host, 8, 8);
MEMBER(kvpull_open_params, config_json, 16, 8);
MEMBER(kvpull_open_params, model, 24, 8);
MEMBER(kvpull_open_params, engine_id, 32, 8);
MEMBER(kvpull_open_params, tp_size, 40, 4);
MEMBER(kvpull_open_params, tp_rank, 44, 4);
MEMBER(kvpull_open_params, pp_size, 48, 4);
MEMBER(kvpull_open_params, dcp_size, 52, 4);
MEMBER(kvpull_open_params, dp_rank, 56, 4);
MEMBER(kvpull_open_params, push_mode, 60, 4);
MEMBER(kvpull_open_params, groups, 64, 8);
MEMBER(kvpull_open_params, group_bytes, 72, 8);
MEMBER(kvpull_open_params, group_count, 80, 4);
MEMBER(kvpull_open_params, reserved, 84, 4);
MEMBER(kvpull_open_params, device_kind, 88, 4);
MEMBER(kvpull_open_params, device_index, 92, 4);
MEMBER(kvpull_open_params, pp_rank, 96, 4);
MEMBER(kvpull_open_params, reserved2, 100, 4);

STRUCT(kvpull_ticket_info, 72);
MEMBER(kvpull_ticket_info, struct_size, 0, 8);
MEMBER(kvpull_ticket_info, version, 8, 4);
MEMBER(kvpull_ticket_info, rank_count, 12, 4);
MEMBER(kvpull_ticket_info, prompt_tokens, 16, 4);
MEMBER(kvpull_ticket_info, block_count, 20, 4);
MEMBER(kvpull_ticket_info, payload_bytes, 24, 4);
MEMBER(kvpull_ticket_info, reserved, 28, 4);
MEMBER(kvpull_ticket_info, generation, 32, 8);
MEMBER(kvpull_ticket_info, slot, 40, 4);
MEMBER(kvpull_ticket_info, reserved2, 44, 4);
MEMBER(kvpull_ticket_info, trace, 48, 24);

STRUCT(kvpull_request, 112);
MEMBER(kvpull_request, struct_size, 0, 8);
MEMBER(kvpull_request, key, 8, 8);
MEMBER(kvpull_request, parent_key, 16, 8);
MEMBER(kvpull_request, ticket, 24, 8);
MEMBER(kvpull_request, ticket_bytes, 32, 8);
MEMBER(kvpull_request, prompt_tokens, 40, 4);
MEMBER(kvpull_request, flags, 44, 4);
MEMBER(kvpull_request, prompt_digest, 48, 16);
MEMBER(kvpull_request, label, 64, 8);
MEMBER(kvpull_request, trace, 72, 24);
MEMBER(kvpull_request, adapter, 96, 8);
MEMBER(kvpull_request, priority, 104, 4);
MEMBER(kvpull_request, reserved, 108, 4);

STRUCT(kvpull_blocks, 16);
MEMBER(kvpull_blocks, first_index, 0, 4);
MEMBER(kvpull_blocks, block_count, 4, 4);
MEMBER(kvpull_blocks, block_ids, 8, 8);

STRUCT(kvpull_allocation, 40);
MEMBER(kvpull_allocation, struct_size, 0, 8);
MEMBER(kvpull_allocation, key, 8, 8);
MEMBER(kvpull_allocation, external_tokens, 16, 4);
MEMBER(kvpull_allocation, group_count, 20, 4);
MEMBER(kvpull_allocation, groups, 24, 8);
MEMBER(kvpull_allocation, group_bytes, 32, 8);

STRUCT(kvpull_finish, 88);
MEMBER(kvpull_finish, struct_size, 0, 8);
MEMBER(kvpull_finish, key, 8, 8);
MEMBER(kvpull_finish, reason, 16, 4);
MEMBER(kvpull_finish, flags, 20, 4);
MEMBER(kvpull_finish, computed_tokens, 24, 4);
MEMBER(kvpull_finish, last_block_bytes, 28, 4);
MEMBER(kvpull_finish, group_count, 32, 4);
MEMBER(kvpull_finish, payload_bytes, 36, 4);
MEMBER(kvpull_finish, groups, 40, 8);
MEMBER(kvpull_finish, group_bytes, 48, 8);
MEMBER(kvpull_finish, payload, 56, 8);
MEMBER(kvpull_finish, ticket, 64, 8);
MEMBER(kvpull_finish, ticket_capacity, 72, 8);
MEMBER(kvpull_finish, ticket_bytes, 80, 8);

STRUCT(kvpull_counter, 32);
MEMBER(kvpull_counter, name, 0, 8);
MEMBER(kvpull_counter, help, 8, 8);
MEMBER(kvpull_counter, value, 16, 8);
MEMBER(kvpull_counter, kind, 24, 4);
MEMBER(kvpull_counter, reserved, 28, 4);

STRUCT(kvpull_scheduler_ops, 176);
MEMBER(kvpull_scheduler_ops, struct_size, 0, 8);
MEMBER(kvpull_scheduler_ops, open, 8, 8);
MEMBER(kvpull_scheduler_ops, close, 16, 8);
MEMBER(kvpull_scheduler_ops, rank_info, 24, 8);
MEMBER(kvpull_scheduler_ops, ranks_missing, 32, 8);
MEMBER(kvpull_scheduler_ops, request_new, 40, 8);
MEMBER(kvpull_scheduler_ops, matched_tokens, 48, 8);
MEMBER(kvpull_scheduler_ops, allocated, 56, 8);
MEMBER(kvpull_scheduler_ops, request_finished, 64, 8);
MEMBER(kvpull_scheduler_ops, request_rejected, 72, 8);
MEMBER(kvpull_scheduler_ops, ticket_get, 80, 8);
MEMBER(kvpull_scheduler_ops, step_build, 88, 8);
MEMBER(kvpull_scheduler_ops, result_take, 96, 8);
MEMBER(kvpull_scheduler_ops, has_pending, 104, 8);
MEMBER(kvpull_scheduler_ops, reset, 112, 8);
MEMBER(kvpull_scheduler_ops, drain, 120, 8);
MEMBER(kvpull_scheduler_ops, counters, 128, 8);
MEMBER(kvpull_scheduler_ops, worker_attach, 136, 8);
MEMBER(kvpull_scheduler_ops, changed, 144, 8);
MEMBER(kvpull_scheduler_ops, loaded, 152, 8);
MEMBER(kvpull_scheduler_ops, match_failure, 160, 8);
MEMBER(kvpull_scheduler_ops, payload_get, 168, 8);

STRUCT(kvpull_region, 48);
MEMBER(kvpull_region, struct_size, 0, 8);
MEMBER(kvpull_region, kind, 8, 4);
MEMBER(kvpull_region, fd, 12, 4);
MEMBER(kvpull_region, base, 16, 8);
MEMBER(kvpull_region, fd_offset, 24, 8);
MEMBER(kvpull_region, bytes, 32, 8);
MEMBER(kvpull_region, device, 40, 4);
MEMBER(kvpull_region, reserved, 44, 4);

STRUCT(kvpull_cache, 88);
MEMBER(kvpull_cache, struct_size, 0, 8);
MEMBER(kvpull_cache, region_index, 8, 4);
MEMBER(kvpull_cache, group_index, 12, 4);
MEMBER(kvpull_cache, layer_first, 16, 4);
MEMBER(kvpull_cache, layer_count, 20, 4);
MEMBER(kvpull_cache, offset, 24, 8);
MEMBER(kvpull_cache, layer_stride, 32, 8);
MEMBER(kvpull_cache, block_stride, 40, 8);
MEMBER(kvpull_cache, row_stride, 48, 8);
MEMBER(kvpull_cache, head_stride, 56, 8);
MEMBER(kvpull_cache, block_count, 64, 4);
MEMBER(kvpull_cache, row_count, 68, 4);
MEMBER(kvpull_cache, head_first, 72, 4);
MEMBER(kvpull_cache, head_count, 76, 4);
MEMBER(kvpull_cache, head_bytes, 80, 4);
MEMBER(kvpull_cache, token_bytes, 84, 4);

STRUCT(kvpull_regions, 32);
MEMBER(kvpull_regions, struct_size, 0, 8);
MEMBER(kvpull_regions, regions, 8, 8);
MEMBER(kvpull_regions, caches, 16, 8);
MEMBER(kvpull_regions, region_count, 24, 4);
MEMBER(kvpull_regions, cache_count, 28, 4);

STRUCT(kvpull_memory, 48);
MEMBER(kvpull_memory, struct_size, 0, 8);
MEMBER(kvpull_memory, base, 8, 8);
MEMBER(kvpull_memory, bytes, 16, 8);
MEMBER(kvpull_memory, huge_bytes, 24, 8);
MEMBER(kvpull_memory, took_ns, 32, 8);
MEMBER(kvpull_memory, fd, 40, 4);
MEMBER(kvpull_memory, reserved, 44, 4);

STRUCT(kvpull_poll_record, 64);
MEMBER(kvpull_poll_record, key, 0, 8);
MEMBER(kvpull_poll_record, kind, 8, 4);
MEMBER(kvpull_poll_record, reason, 12, 4);
MEMBER(kvpull_poll_record, bytes, 16, 8);
MEMBER(kvpull_poll_record, took_ns, 24, 8);
MEMBER(kvpull_poll_record, begun_ns, 32, 8);
MEMBER(kvpull_poll_record, connected_ns, 40, 8);
MEMBER(kvpull_poll_record, asked_ns, 48, 8);
MEMBER(kvpull_poll_record, came_ns, 56, 8);

STRUCT(kvpull_peer_info, 288);
MEMBER(kvpull_peer_info, incarnation, 0, 8);
MEMBER(kvpull_peer_info, state_error, 8, 4);
MEMBER(kvpull_peer_info, reserved, 12, 4);
MEMBER(kvpull_peer_info, route, 16, 16);
MEMBER(kvpull_peer_info, address, 32, 128);
MEMBER(kvpull_peer_info, why, 160, 128);

STRUCT(kvpull_worker_ops, 160);
MEMBER(kvpull_worker_ops, struct_size, 0, 8);
MEMBER(kvpull_worker_ops, open, 8, 8);
MEMBER(kvpull_worker_ops, close, 16, 8);
MEMBER(kvpull_worker_ops, memory_alloc, 24, 8);
MEMBER(kvpull_worker_ops, memory_free, 32, 8);
MEMBER(kvpull_worker_ops, regions_register, 40, 8);
MEMBER(kvpull_worker_ops, rank_info, 48, 8);
MEMBER(kvpull_worker_ops, step, 56, 8);
MEMBER(kvpull_worker_ops, start_loads, 64, 8);
MEMBER(kvpull_worker_ops, hold_ready, 72, 8);
MEMBER(kvpull_worker_ops, poll, 80, 8);
MEMBER(kvpull_worker_ops, failed_blocks, 88, 8);
MEMBER(kvpull_worker_ops, result_build, 96, 8);
MEMBER(kvpull_worker_ops, revoke_all, 104, 8);
MEMBER(kvpull_worker_ops, event_fd, 112, 8);
MEMBER(kvpull_worker_ops, progress, 120, 8);
MEMBER(kvpull_worker_ops, peers, 128, 8);
MEMBER(kvpull_worker_ops, counters, 136, 8);
MEMBER(kvpull_worker_ops, engine_mark, 144, 8);
MEMBER(kvpull_worker_ops, hold_ready_after, 152, 8);

STRUCT(kvpull_connector_ops, 72);
MEMBER(kvpull_connector_ops, struct_size, 0, 8);
MEMBER(kvpull_connector_ops, abi_major, 8, 4);
MEMBER(kvpull_connector_ops, abi_minor, 12, 4);
MEMBER(kvpull_connector_ops, version, 16, 8);
MEMBER(kvpull_connector_ops, caps, 24, 8);
MEMBER(kvpull_connector_ops, error_text, 32, 8);
MEMBER(kvpull_connector_ops, config_check, 40, 8);
MEMBER(kvpull_connector_ops, ticket_peek, 48, 8);
MEMBER(kvpull_connector_ops, scheduler, 56, 8);
MEMBER(kvpull_connector_ops, worker, 64, 8);

VALUE(KVPULL_RANKS_MAX, 64);
VALUE(KVPULL_GROUPS_MAX, 8);
VALUE(KVPULL_CACHES_MAX, 2048);
VALUE(KVPULL_REGIONS_MAX, 1024);
VALUE(KVPULL_TICKET_BLOCKS_MAX, 65536);
VALUE(KVPULL_TICKET_BYTES_MAX, 786432);
VALUE(KVPULL_PAYLOAD_BYTES_MAX, 4096);
VALUE(KVPULL_TEXT_BYTES_MAX, 128);
VALUE(KVPULL_DIGEST_BYTES, 16);
VALUE(KVPULL_LOG_ERROR, 1);
VALUE(KVPULL_LOG_WARN, 2);
VALUE(KVPULL_LOG_INFO, 3);
VALUE(KVPULL_LOG_DEBUG, 4);
VALUE(KVPULL_GROUP_FULL, 0);
VALUE(KVPULL_GROUP_SLIDING, 1);
VALUE(KVPULL_GROUP_STATE, 2);
VALUE(KVPULL_REQUEST_WANTS_HOLD, 1);
VALUE(KVPULL_REQUEST_PULL, 2);
VALUE(KVPULL_REQUEST_ALONE, 4);
VALUE(KVPULL_MATCH_NOTHING, 0);
VALUE(KVPULL_MATCH_LOAD, 1);
VALUE(KVPULL_MATCH_WAIT, 2);
VALUE(KVPULL_FINISH_LENGTH, 0);
VALUE(KVPULL_FINISH_STOP, 1);
VALUE(KVPULL_FINISH_ABORT, 2);
VALUE(KVPULL_FINISH_ERROR, 3);
VALUE(KVPULL_FINISH_REJECT, 4);
VALUE(KVPULL_FINISH_FREE, 0);
VALUE(KVPULL_FINISH_HELD, 1);
VALUE(KVPULL_FINISH_READY_NEEDED, 1);
VALUE(KVPULL_PENDING_STEP, 1);
VALUE(KVPULL_PENDING_HOLDS, 2);
VALUE(KVPULL_PENDING_PULLS, 4);
VALUE(KVPULL_RESET_FORGET, 1);
VALUE(KVPULL_RESET_REVOKE, 2);
VALUE(KVPULL_RESET_CLEARED, 4);
VALUE(KVPULL_COUNTER_TOTAL, 0);
VALUE(KVPULL_COUNTER_LIVE, 1);
VALUE(KVPULL_COUNTER_PEAK, 2);
VALUE(KVPULL_REGION_PROVIDED, 0);
VALUE(KVPULL_REGION_FOREIGN, 1);
VALUE(KVPULL_REGION_STAGED, 2);
VALUE(KVPULL_REGION_DMABUF, 3);
VALUE(KVPULL_REGION_FILE, 4);
VALUE(KVPULL_REGION_DEVICE, 7);
VALUE(KVPULL_MEMORY_HUGE, 1);
VALUE(KVPULL_MEMORY_DEVICE, 2);
VALUE(KVPULL_DEVICE_NONE, 0);
VALUE(KVPULL_DEVICE_CUDA, 1);
VALUE(KVPULL_POLL_SENT, 1);
VALUE(KVPULL_POLL_LOADED, 2);
VALUE(KVPULL_POLL_FAILED, 3);
VALUE(KVPULL_END_RELEASED, 0);
VALUE(KVPULL_END_EXPIRED, 1);
VALUE(KVPULL_END_ABORTED, 2);
VALUE(KVPULL_END_REVOKED, 3);
VALUE(KVPULL_END_RANK, 4);
VALUE(KVPULL_END_GIVEN_BACK, 5);
VALUE(KVPULL_CAP_SHM, 1);
VALUE(KVPULL_CAP_FOREIGN, 2);
VALUE(KVPULL_CAP_FILE, 4);
VALUE(KVPULL_CAP_VERBS, 8);
VALUE(KVPULL_CAP_KEY, 16);
VALUE(KVPULL_CAP_CUDA, 32);

VALUE(KVPULL_OK, 0);
VALUE(KVPULL_EAGAIN, -1);
VALUE(KVPULL_EINVAL, -2);
VALUE(KVPULL_ENOMEM, -3);
VALUE(KVPULL_EFULL, -4);
VALUE(KVPULL_ETOOSMALL, -5);
VALUE(KVPULL_ENOTICKET, -6);
VALUE(KVPULL_ENOTMINE, -7);
VALUE(KVPULL_EUNSUPPORTED, -8);
VALUE(KVPULL_ECONFIG, -9);
VALUE(KVPULL_ENOKEY, -10);
VALUE(KVPULL_ESTALE, -11);
VALUE(KVPULL_EEXPIRED, -20);
VALUE(KVPULL_EABORTED, -21);
VALUE(KVPULL_ETRUNCATED, -22);
VALUE(KVPULL_EMISMATCH, -23);
VALUE(KVPULL_EDEADLINE, -24);
VALUE(KVPULL_EREAD, -25);
VALUE(KVPULL_EPEER, -40);
VALUE(KVPULL_EPROTO, -41);
VALUE(KVPULL_EREJECTED, -42);
VALUE(KVPULL_EVERSION, -43);
VALUE(KVPULL_EROUTE, -44);
VALUE(KVPULL_EAUTH, -45);
VALUE(KVPULL_EDEVICE, -60);
VALUE(KVPULL_ERANK, -61);
VALUE(KVPULL_ECLOSED, -62);
/* clang-format on */

#define ERROR_COUNT_FROZEN 26u

struct error_row {
	const char *name;
	int value;
	const char *text;
};

#define ERROR_ROW(name, value, text) { "KVPULL_" #name, value, text },
static const struct error_row error_rows[] = { KVPULL_ERRORS(ERROR_ROW) };
#define ERROR_COUNT (sizeof(error_rows) / sizeof(error_rows[0]))

/* An error that is added is added here too, by its VALUE line and this. */
UNIT_TEST(error_list_has_no_error_that_is_not_frozen)
{
	assert_int_equal(ERROR_COUNT, ERROR_COUNT_FROZEN);
}

UNIT_TEST(error_values_are_used_once)
{
	size_t i, j;

	for (i = 0; i < ERROR_COUNT; i++)
		for (j = i + 1; j < ERROR_COUNT; j++)
			assert_int_not_equal(error_rows[i].value,
					     error_rows[j].value);
}

UNIT_TEST(error_values_lie_in_a_range_of_the_header)
{
	size_t i;

	for (i = 0; i < ERROR_COUNT; i++)
		assert_in_range(-error_rows[i].value, 1, 79);
}

UNIT_TEST(error_texts_say_something)
{
	size_t i;

	for (i = 0; i < ERROR_COUNT; i++)
		assert_true(error_rows[i].text[0] != '\0');
}
