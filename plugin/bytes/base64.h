/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Base64url without padding. Pure.
 *
 * Of our own: sodium's encoder wants room for a NUL, which the caller need not
 * have, and its decoder (1.0.18) takes any byte above 0x7f for a '_', so that
 * one body would have many texts.
 */
#ifndef KVPULL_PLUGIN_BASE64_H
#define KVPULL_PLUGIN_BASE64_H

#include <stddef.h>
#include <stdint.h>

/* Into text[(byte_count * 4 + 2) / 3], without a NUL. */
void kvpull_base64_put(const uint8_t *bytes, size_t byte_count, char *text);

/*
 * Into bytes[text_bytes * 3 / 4]. Bytes written; 0: a byte that is no digit, or
 * bits set that no byte has.
 */
size_t kvpull_base64_get(const char *text, size_t text_bytes, uint8_t *bytes);

#endif /* KVPULL_PLUGIN_BASE64_H */
