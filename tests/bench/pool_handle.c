/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/pool_handle.h"

#include <stdio.h>

#include "tests/lib/host_reader.h"

struct kvpull_reader *pool_handle_open(const struct bench *bench)
{
	char config[256];
	const struct host_reader reader = { .engine_id = "bench",
					    .config = config };
	struct kvpull_reader *handle = NULL;

	(void)snprintf(config, sizeof(config),
		       "{\"socket_dir\":\"%s\",\"copy_threads\":0}",
		       bench->dir);
	return host_reader_open(kvpull_reader_v1(), &reader, &handle, NULL) ?
		       NULL :
		       handle;
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
