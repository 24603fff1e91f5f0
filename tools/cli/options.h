/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Command lines of all tools. A tool has a table of its options; they are
 * parsed from it, --help lists it in groups, and shells complete words from it.
 */
#ifndef KVPULL_TOOLS_CLI_OPTIONS_H
#define KVPULL_TOOLS_CLI_OPTIONS_H

#include <stddef.h>
#include <stdint.h>

#define CLI_OPTIONS_MAX 128u /* rows of a tool, with those of all tools */
#define CLI_GO (-1)          /* not an exit status: the options are good */

enum cli_kind {
	CLI_FLAG,   /* sets a uint32_t to 1 */
	CLI_NUMBER, /* a whole number */
	CLI_SIZE,   /* bytes; 64K, 2M, 1G; without a suffix in units */
	CLI_TIME,   /* whole units; 500us, 20ms, 30s, 5m, 1h, 1d */
	CLI_REAL,   /* a double */
	CLI_TEXT,   /* a const char * */
	CLI_WORD    /* the index in words, as a uint32_t */
};

struct cli;

struct cli_option {
	const char *name;         /* NULL: the row begins a group */
	const char *argument;     /* as --help names it; NULL: none */
	const char *help;         /* or the group's head; NULL: hidden */
	const char *unit;         /* of a bare size or time: "G", "ms" */
	const char *const *words; /* all values, NULL at the end; NULL: any */
	/* Takes a value that no kind describes. 0, or 2: said why not. */
	int (*take)(const struct cli *cli, const struct cli_option *option,
		    void *options, const char *text);
	size_t offset; /* of the member in the tool's struct of options */
	size_t bytes;  /* of the member */
	double least, most;
	enum cli_kind kind;
	char letter; /* 0: none */
};

#define CLI_MEMBER(type, member)                                               \
	.offset = offsetof(type, member),                                      \
	.bytes = sizeof(((type *)NULL)->member)

struct cli_row {
	const char *left; /* NULL: the end */
	const char *right;
};

struct cli {
	const char *name;
	const struct cli_row *usage; /* forms of the command line */
	const struct cli_option *options;
	size_t option_count;
	const struct cli_option *operand; /* argument, words; NULL: none */
	const struct cli_row *exits;      /* statuses and their meaning */
};

/*
 * Take the options of a command line; operands are from optind on. Return:
 * CLI_GO, or the exit status: --help was printed, or it is said what is wrong.
 */
int cli_parse(const struct cli *cli, int count, char **words, void *options);
/* The index of @text in @words, or -1. */
int cli_word(const char *const *words, const char *text);
/* Say what is wrong with the command line, in one line. Return: exit status 2. */
__attribute__((format(printf, 2, 3))) int cli_wrong(const struct cli *cli,
						    const char *format, ...);
/* Likewise of an operand that is none of @words: with the closest of them. */
int cli_wrong_word(const struct cli *cli, const char *what, const char *text,
		   const char *const *words);

/*
 * The next option from row *at on of the tool's table, then of all tools', but
 * heads of groups and hidden ones. NULL: there is no more.
 */
const struct cli_option *cli_option_next(const struct cli *cli, size_t *at);
/* completion.c: the table for bash, zsh, fish, or the manual page (mdoc). */
extern const char *const cli_shells[];
void cli_complete(const struct cli *cli, int shell);

/* First of all: a file over ulimit -f is an error of writing, not a signal. */
void output_begin(void);
/* Output that could not be written is an error, whatever came of the run. */
int output_end(int code);

#endif /* KVPULL_TOOLS_CLI_OPTIONS_H */
