/* SPDX-License-Identifier: Apache-2.0 */
/* Options are parsed from a tool's table, and --help lists it. */
#include "tools/cli/options.h"

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/least.h"

#define OPTION_FIRST 256 /* row 0 for getopt_long(), above all letters */
#define WORD_BYTES_MAX 32u
#define HELP_COLUMN 25
#define USAGE_COLUMNS 18 /* of "[options] FOLDER" */
#define HELP_COLUMNS 80

void output_begin(void)
{
	(void)signal(SIGXFSZ, SIG_IGN);
}

int output_end(int code)
{
	errno = 0;
	if (!fflush(stdout) && !ferror(stdout))
		return code;
	fprintf(stderr, "standard output: %s\n",
		errno ? strerror(errno) : "not all could be written");
	return code ? code : 1;
}

/* Ends what is said of a wrong word. Return: exit status 2. */
static int wrong_end(const char *dashes, const char *guess)
{
	if (guess)
		fprintf(stderr, "; did you mean %s%s?\n", dashes, guess);
	else
		fprintf(stderr, "; see --help\n");
	return 2;
}

int cli_wrong(const struct cli *cli, const char *format, ...)
{
	va_list words;

	fprintf(stderr, "%s: ", cli->name);
	va_start(words, format);
	(void)vfprintf(stderr, format, words);
	va_end(words);
	return wrong_end("", NULL);
}

/* ---- the closest word ---- */

/* Letters to insert, to delete or to change (Levenshtein). */
static size_t changes_count(const char *text, size_t bytes, const char *word)
{
	const size_t word_bytes = strnlen(word, WORD_BYTES_MAX);
	size_t row[WORD_BYTES_MAX + 1];
	size_t i, j;

	for (j = 0; j <= word_bytes; j++)
		row[j] = j;
	for (i = 0; i < bytes; i++) {
		size_t diagonal = row[0]++;

		for (j = 0; j < word_bytes; j++) {
			const size_t change = diagonal + (text[i] != word[j]);

			diagonal = row[j + 1];
			row[j + 1] = kvpull_least(
				change, kvpull_least(diagonal, row[j]) + 1);
		}
	}
	return row[word_bytes];
}

/*
 * The word that the text, up to a =, is nearest to. Nearly every letter must be
 * the same: a guess that is far off misleads. NULL: none is so near.
 */
static const char *closest_of(const char *const *words, const char *text)
{
	const size_t bytes = strcspn(text, "=");
	size_t fewest = bytes / 4 + 2;
	const char *closest = NULL;

	for (; *words; words++) {
		const size_t changes = changes_count(text, bytes, *words);

		if (changes < fewest) {
			fewest = changes;
			closest = *words;
		}
	}
	return closest;
}

int cli_word(const char *const *words, const char *text)
{
	int at;

	for (at = 0; words[at]; at++)
		if (!strcmp(words[at], text))
			return at;
	return -1;
}

int cli_wrong_word(const struct cli *cli, const char *what, const char *text,
		   const char *const *words)
{
	size_t at;

	fprintf(stderr, "%s: %s is %s", cli->name, what, words[0]);
	for (at = 1; words[at]; at++)
		fprintf(stderr, words[at + 1] ? ", %s" : " or %s", words[at]);
	fprintf(stderr, ", not %s", text);
	return wrong_end("", closest_of(words, text));
}

/* ---- values ---- */

struct suffix {
	const char *text;
	double factor;
};

static const struct suffix bare[] = { { "", 1 }, { NULL, 0 } };

/* The last one that divides a bound is the shortest to write it. */
static const struct suffix sizes[] = {
	{ "", 1 },          { "KiB", 1024 },          { "K", 1024 },
	{ "MiB", 1048576 }, { "M", 1048576 },         { "GiB", 1 << 30 },
	{ "G", 1 << 30 },   { "TiB", 1099511627776 }, { "T", 1099511627776 },
	{ NULL, 0 },
};

/* Suffixes of a time, in microseconds. */
static const struct suffix times[] = {
	{ "us", 1 },     { "ms", 1e3 },    { "s", 1e6 }, { "m", 60e6 },
	{ "h", 3600e6 }, { "d", 86400e6 }, { NULL, 0 },
};

static const struct {
	const char *noun;
	const struct suffix *suffixes;
} kinds[] = {
	[CLI_NUMBER] = { "number", bare },
	[CLI_SIZE] = { "size", sizes },
	[CLI_TIME] = { "time", times },
	[CLI_REAL] = { "number", bare },
};

/* NAN, which is in no bounds: there is no such suffix. */
static double factor_of(enum cli_kind kind, const char *text)
{
	const struct suffix *suffix = kinds[kind].suffixes;

	while (suffix->text && strcasecmp(suffix->text, text) != 0)
		suffix++;
	return suffix->text ? suffix->factor : (double)NAN;
}

/* The factor of a value with that suffix; NAN: the option has none such. */
static double scale_of(const struct cli_option *option, const char *suffix)
{
	const char *unit = option->unit ? option->unit : "";
	const double factor = factor_of(option->kind, *suffix ? suffix : unit);

	/* Sizes are bytes whatever their unit is, times are whole units. */
	return option->kind == CLI_TIME ? factor / factor_of(CLI_TIME, unit) :
					  factor;
}

/* A bound as a user would write it. */
static const char *bound_text(const struct cli_option *option, double bound,
			      char text[WORD_BYTES_MAX])
{
	const struct suffix *suffix = kinds[option->kind].suffixes;
	struct suffix unit = { "", 1 };

	if (option->kind == CLI_TIME)
		unit.text = option->unit;
	for (; option->kind != CLI_TIME && suffix->text; suffix++)
		if (bound >= suffix->factor &&
		    !(fmod(bound, suffix->factor) > 0))
			unit = *suffix;
	(void)snprintf(text, WORD_BYTES_MAX, "%.10g%s", bound / unit.factor,
		       unit.text);
	return text;
}

static int value_wrong(const struct cli *cli, const struct cli_option *option,
		       const char *text)
{
	char least[WORD_BYTES_MAX];
	char most[WORD_BYTES_MAX];

	return cli_wrong(cli, "--%s %s: a %s from %s to %s is needed",
			 option->name, text, kinds[option->kind].noun,
			 bound_text(option, option->least, least),
			 bound_text(option, option->most, most));
}

static int value_take(const struct cli *cli, const struct cli_option *option,
		      void *to, const char *text)
{
	char *end;
	double value;

	errno = 0;
	value = strtod(text, &end);
	value *= scale_of(option, end);
	/* strtod() takes signs, inf and nan as well. */
	if (errno || !isdigit((unsigned char)*text) ||
	    !(value >= option->least && value <= option->most) ||
	    (option->kind != CLI_REAL && fmod(value, 1) > 0))
		return value_wrong(cli, option, text);
	if (option->kind == CLI_REAL)
		*(double *)to = value;
	else if (option->bytes == sizeof(uint64_t))
		*(uint64_t *)to = (uint64_t)value;
	else
		*(uint32_t *)to = (uint32_t)value;
	return CLI_GO;
}

/* ---- the options that all tools have ---- */

static const struct cli_option own[] = {
	{ .help = "About" },
	{ .name = "help", .letter = 'h', .help = "this text" },
	{ .name = "version", .letter = 'V', .help = "the version" },
	{ .name = "completion", .argument = "SHELL", .words = cli_shells },
};
#define OWN (sizeof(own) / sizeof(own[0]))

/* Row at of the tool's table, then of all tools'; NULL: past the end. */
static const struct cli_option *option_at(const struct cli *cli, size_t at)
{
	if (at >= CLI_OPTIONS_MAX)
		return NULL;
	if (at < cli->option_count)
		return &cli->options[at];
	at -= cli->option_count;
	return at < OWN ? &own[at] : NULL;
}

const struct cli_option *cli_option_next(const struct cli *cli, size_t *at)
{
	const struct cli_option *option;

	while ((option = option_at(cli, (*at)++)) &&
	       !(option->name && option->help))
		;
	return option;
}

/* Text from a column on, in lines of 80. */
static void wrapped_print(const char *text, int column)
{
	int used = column;

	while (*text) {
		const int bytes = (int)strcspn(text, " ");

		if (used > column && used + 1 + bytes > HELP_COLUMNS) {
			printf("\n%*s", column, "");
			used = column;
		}
		used += printf("%s%.*s", used > column ? " " : "", bytes, text);
		text += bytes + (text[bytes] == ' ');
	}
	printf("\n");
}

static void row_print(const char *left, const char *right)
{
	/* Two blanks at least stand between the two. */
	if (strlen(left) + 4 > HELP_COLUMN)
		printf("  %s\n%*s", left, HELP_COLUMN, "");
	else
		printf("  %-*s", HELP_COLUMN - 2, left);
	wrapped_print(right, HELP_COLUMN);
}

static void option_print(const struct cli_option *option)
{
	char left[2 * WORD_BYTES_MAX];

	if (!option->name) {
		printf("\n%s\n", option->help);
		return;
	}
	(void)snprintf(left, sizeof(left), "%c%c%s --%s%s%s",
		       option->letter ? '-' : ' ',
		       option->letter ? option->letter : ' ',
		       option->letter ? "," : " ", option->name,
		       option->argument ? " " : "",
		       option->argument ? option->argument : "");
	row_print(left, option->help);
}

static void help_print(const struct cli *cli)
{
	const struct cli_option *option;
	const struct cli_row *row;
	size_t at;

	for (row = cli->usage; row->left; row++)
		wrapped_print(row->right,
			      printf("%s %s %-*s",
				     row == cli->usage ? "usage:" : "      ",
				     cli->name, USAGE_COLUMNS, row->left));
	for (at = 0; (option = option_at(cli, at)); at++)
		if (option->help)
			option_print(option);
	printf("\nExit status\n");
	for (row = cli->exits; row->left; row++)
		row_print(row->left, row->right);
	printf("\nSizes may end in K, M, G or T, times in us, ms, s, m, h or d.\n");
}

/* The exit status. */
static int own_take(const struct cli *cli, const struct cli_option *option,
		    const char *text)
{
	if (option->words)
		cli_complete(cli, cli_word(option->words, text));
	else if (option->letter == 'h')
		help_print(cli);
	else
		printf("%s %s\n", cli->name, KVPULL_VERSION);
	return output_end(0);
}

/* ---- a command line ---- */

/* CLI_GO, or the exit status. */
static int option_take(const struct cli *cli, const struct cli_option *option,
		       void *options, const char *text)
{
	void *to = (char *)options + option->offset;
	char what[WORD_BYTES_MAX];
	int word = 1; /* of a flag */

	if (option->words && (word = cli_word(option->words, text)) < 0) {
		(void)snprintf(what, sizeof(what), "--%s", option->name);
		return cli_wrong_word(cli, what, text, option->words);
	}
	if (option >= own && option < own + OWN)
		return own_take(cli, option, text);
	if (option->take)
		return option->take(cli, option, options, text) ? 2 : CLI_GO;
	switch (option->kind) {
	case CLI_FLAG:
	case CLI_WORD:
		*(uint32_t *)to = (uint32_t)word;
		return CLI_GO;
	case CLI_TEXT:
		*(const char **)to = text;
		return CLI_GO;
	default:
		return value_take(cli, option, to, text);
	}
}

/* Says in our words what getopt refused. */
static int unknown_say(const struct cli *cli, const char *word, int found)
{
	const char *what = found == ':'           ? "needs a value" :
			   optopt >= OPTION_FIRST ? "takes no value" :
						    "is no option";
	const char *names[CLI_OPTIONS_MAX + 1] = { NULL };
	const struct cli_option *option;
	size_t count = 0;
	size_t at = 0;

	if (optopt && optopt < OPTION_FIRST)
		return cli_wrong(cli, "-%c %s", optopt, what);
	while (!optopt && (option = cli_option_next(cli, &at)))
		names[count++] = option->name;
	fprintf(stderr, "%s: %s %s", cli->name, word, what);
	return wrong_end("--", closest_of(names, word + 2));
}

int cli_parse(const struct cli *cli, int count, char **words, void *options)
{
	/* By what getopt_long() returns: a letter, or a row's number. */
	const struct cli_option *rows[OPTION_FIRST + CLI_OPTIONS_MAX] = { 0 };
	struct option longs[CLI_OPTIONS_MAX + 1] = { { 0 } };
	char letters[2 * CLI_OPTIONS_MAX + 2] = ":";
	size_t used = 0;
	size_t letter = 1;
	const struct cli_option *option;
	size_t at;
	int found;
	int code = CLI_GO;

	for (at = 0; (option = option_at(cli, at)); at++) {
		const int has_value = option->argument != NULL;

		rows[OPTION_FIRST + at] = option;
		rows[(unsigned char)option->letter] = option;
		if (option->name)
			longs[used++] =
				(struct option){ option->name, has_value, NULL,
						 OPTION_FIRST + (int)at };
		if (option->letter)
			letter += (size_t)snprintf(
				letters + letter, sizeof(letters) - letter,
				"%c%s", option->letter, has_value ? ":" : "");
	}
	opterr = 0;
	while (code == CLI_GO &&
	       (found = getopt_long(count, words, letters, longs, NULL)) != -1)
		code = rows[found] ?
			       option_take(cli, rows[found], options, optarg) :
			       unknown_say(cli, words[optind - 1], found);
	return code;
}
