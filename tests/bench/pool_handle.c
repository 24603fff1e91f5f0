/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/pool_handle.h"

#include <stdio.h>

struct kvpull_reader *pool_handle_open(const struct bench *bench)
{
	const struct kvpull_model model = {
		.struct_size = sizeof(model),
		.model = "m",
		.weights = "w",
		.dtype = "float16",
		.layout = "LBHNC",
	};
	const struct kvpull_reader_naming naming = {
		.struct_size = sizeof(naming), .model = &model, .hash = "sha256"
	};
	char config[256];
	const struct kvpull_reader_params params = {
		.struct_size = sizeof(params),
		.config_json = config,
		.naming = &naming,
		.engine_id = "bench",
	};
	struct kvpull_reader *handle = NULL;

	(void)snprintf(config, sizeof(config),
		       "{\"socket_dir\":\"%s\",\"copy_threads\":0}",
		       bench->dir);
	return kvpull_reader_v1()->open(&params, &handle, NULL) ? NULL : handle;
}

int pool_handle_connect(struct kvpull_reader *handle, const char *address,
			uint64_t until_ns, uint32_t *peer)
{
	const struct kvpull_reader_ops *ops = kvpull_reader_v1();
	struct kvpull_reader_peer is = { .code = KVPULL_EAGAIN };
	struct kvpull_reader_record record;
	int code = ops->peer_add(handle, address, peer);

	while (!code && is.code && kvpull_clock_ns() < until_ns) {
		(void)ops->poll(handle, NULL, 0, sizeof(record));
		(void)ops->peers(handle, &is, 1, sizeof(is));
	}
	return code ? code : is.code;
}
