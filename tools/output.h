/* SPDX-License-Identifier: Apache-2.0 */
/* The end of what a tool says on standard output, and wrong options. */
#ifndef KVPULL_TOOLS_OUTPUT_H
#define KVPULL_TOOLS_OUTPUT_H

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* First of all: what is longer than ulimit -f is an error of writing. */
static inline void output_begin(void)
{
	(void)signal(SIGXFSZ, SIG_IGN);
}

/* Output that could not be written is an error, whatever came of the run. */
static inline int output_end(int code)
{
	errno = 0;
	if (!fflush(stdout) && !ferror(stdout))
		return code;
	fprintf(stderr, "standard output: %s\n",
		errno ? strerror(errno) : "not all could be written");
	return code ? code : 1;
}

/*
 * Wrong options: two lines, the last one says what is wrong. The list would
 * push it out of a small window. Return: the exit status.
 */
__attribute__((format(printf, 2, 3))) static inline int
output_wrong(const char *usage, const char *format, ...)
{
	va_list words;

	fprintf(stderr, "usage: %s; --help lists them\n", usage);
	va_start(words, format);
	(void)vfprintf(stderr, format, words);
	va_end(words);
	(void)fputc('\n', stderr);
	return 2;
}

#endif /* KVPULL_TOOLS_OUTPUT_H */
