/* SPDX-License-Identifier: Apache-2.0 */
/* A device's UUID as its driver's tools write it, for log lines. */
#ifndef KVPULL_BASE_DEVICE_NAME_H
#define KVPULL_BASE_DEVICE_NAME_H

#include <stdint.h>

#define KVPULL_DEVICE_NAME_BYTES 41u /* "GPU-", 32 digits, 4 dashes, NUL */

static inline void kvpull_device_name(char name[KVPULL_DEVICE_NAME_BYTES],
				      const uint8_t *uuid)
{
	static const char digits[] = "0123456789abcdef";
	uint32_t to = 0;
	uint32_t at;

	name[to++] = 'G';
	name[to++] = 'P';
	name[to++] = 'U';
	for (at = 0; at < 16; at++) {
		/* Groups of 4, 2, 2, 2 and 6 bytes. */
		if (!at || at == 4 || at == 6 || at == 8 || at == 10)
			name[to++] = '-';
		name[to++] = digits[uuid[at] >> 4];
		name[to++] = digits[uuid[at] & 15];
	}
	name[to] = '\0';
}

#endif /* KVPULL_BASE_DEVICE_NAME_H */
