/* SPDX-License-Identifier: Apache-2.0 */
/* Reads small files of the kernel as text. */
#ifndef KVPULL_BASE_TEXT_FILE_H
#define KVPULL_BASE_TEXT_FILE_H

#include <stddef.h>

/* text: the file, "" if it cannot be read. A single read() has all of it. */
void kvpull_text_read(const char *path, char *text, size_t text_bytes);

#endif /* KVPULL_BASE_TEXT_FILE_H */
