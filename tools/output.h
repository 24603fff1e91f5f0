/* SPDX-License-Identifier: Apache-2.0 */
/* The end of what a tool says on standard output. */
#ifndef KVPULL_TOOLS_OUTPUT_H
#define KVPULL_TOOLS_OUTPUT_H

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* What could not be written was not said, whatever came of the run. */
static inline int output_end(int code)
{
	errno = 0;
	if (!fflush(stdout) && !ferror(stdout))
		return code;
	fprintf(stderr, "standard output: %s\n",
		errno ? strerror(errno) : "not all could be written");
	return code ? code : 1;
}

#endif /* KVPULL_TOOLS_OUTPUT_H */
