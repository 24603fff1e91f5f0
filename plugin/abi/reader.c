/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reader's table, and its open(). The calls of the handle are share/'s own:
 * each takes structs of any size and refuses pointers that are not there.
 */
#include "kvpull/reader.h"
#include "base/params.h"
#include "plugin/abi/opening.h"
#include "plugin/share/share.h"

static int reader_open(const struct kvpull_reader_params *params,
		       struct kvpull_reader **reader,
		       struct kvpull_error_detail *detail)
{
	struct kvpull_share_setup setup = { .log = { 0 } };
	struct kvpull_reader_params own;
	struct kvpull_config config;
	struct kvpull_host host;
	int code;

	code = kvpull_params_take_named(&own, sizeof(own), params, "params",
					detail);
	if (!code)
		code = kvpull_opening_host(&host, own.host, reader, detail);
	if (!code)
		code = kvpull_opening_config(&config, &setup.log, &host,
					     own.config_json, detail);
	if (code)
		return code;
	setup.config = &config;
	setup.naming = own.naming;
	setup.engine_id = own.engine_id;
	return kvpull_share_open(&setup, reader, detail);
}

static const struct kvpull_reader_ops reader_ops = {
	.struct_size = sizeof(reader_ops),
	.abi_major = KVPULL_READER_ABI_MAJOR,
	.abi_minor = KVPULL_READER_ABI_MINOR,
	.version = KVPULL_VERSION,
	.error_text = kvpull_error_text,
	.open = reader_open,
	.close = kvpull_share_close,
	.share = kvpull_share_begin,
	.unshare = kvpull_share_end,
	.address = kvpull_share_address,
	.guard_bump = kvpull_share_bump,
	.guard_bump_all = kvpull_share_bump_all,
	.generation = kvpull_share_generation,
	.epoch = kvpull_share_epoch,
	.write_begin = kvpull_share_write_begin,
	.write_end = kvpull_share_write_end,
	.put = kvpull_share_put,
	.spill = kvpull_share_spill,
	.local_add = kvpull_share_local_add,
	.peer_add = kvpull_share_peer_add,
	.peer_remove = kvpull_share_peer_remove,
	.peers = kvpull_share_peers,
	.probe = kvpull_share_probe,
	.read = kvpull_share_read,
	.cancel = kvpull_share_cancel,
	.poll = kvpull_share_poll,
	.event_fd = kvpull_share_event_fd,
	.counters = kvpull_share_counters,
};

__attribute__((visibility("default"))) const struct kvpull_reader_ops *
kvpull_reader_v1(void)
{
	return &reader_ops;
}
