/* SPDX-License-Identifier: Apache-2.0 */
#include "base/text_file.h"

#include <fcntl.h>
#include <unistd.h>

#include "base/fd.h"

void kvpull_text_read(const char *path, char *text, size_t text_bytes)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	const ssize_t got = fd < 0 ? -1 : read(fd, text, text_bytes - 1);

	text[got > 0 ? got : 0] = '\0';
	kvpull_fd_close(&fd);
}
