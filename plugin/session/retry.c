/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/session/retry.h"

int kvpull_retry_is_shortage(int32_t code)
{
	return code == KVPULL_EAGAIN || code == KVPULL_EFULL ||
	       code == KVPULL_ENOMEM;
}

int kvpull_retry_failed(struct kvpull_retry *retry, int32_t code,
			uint64_t now_ns)
{
	if (kvpull_retry_is_shortage(code)) {
		retry->wait_ns = !retry->wait_ns ? KVPULL_RETRY_NS :
				 retry->wait_ns < KVPULL_RETRY_WAIT_NS_MAX ?
						   2 * retry->wait_ns :
						   KVPULL_RETRY_WAIT_NS_MAX;
		retry->at_ns = now_ns + retry->wait_ns;
		return 0;
	}
	if (retry->attempts == KVPULL_RETRY_ATTEMPTS_MAX)
		return KVPULL_EPEER;
	retry->at_ns = now_ns + (KVPULL_RETRY_NS << retry->attempts++);
	return 0;
}

int kvpull_retry_lost(struct kvpull_retry *retry, int32_t code,
		      uint64_t connect_ns, uint64_t now_ns)
{
	uint64_t again_ns;
	int failed;

	if (now_ns - retry->up_ns >= connect_ns) {
		*retry = (struct kvpull_retry){ .at_ns = now_ns };
		return 0;
	}
	if (code == KVPULL_EABORTED) {
		retry->at_ns = now_ns;
		return 0;
	}
	again_ns = now_ns + (KVPULL_RETRY_NS << retry->breaks);
	retry->breaks += retry->breaks < KVPULL_RETRY_BREAKS_MAX;
	failed = kvpull_retry_failed(retry, code, now_ns);
	if (!failed && retry->at_ns < again_ns)
		retry->at_ns = again_ns;
	return failed;
}
