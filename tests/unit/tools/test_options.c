/* SPDX-License-Identifier: Apache-2.0 */
/* Command lines of the tools: values, suffixes, and what a wrong one is told. */
#include <getopt.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/lib/unit.h"
#include "tools/cli/options.h"

struct toy {
	uint32_t flag;
	uint32_t count;
	uint32_t size;
	uint64_t memory;
	uint32_t lease_ms;
	uint32_t route;
	double speed;
	const char *file;
};

static const char *const routes[] = { "auto", "shm", "verbs", NULL };

#define AT(member) CLI_MEMBER(struct toy, member)

/* clang-format off */
static const struct cli_option rows[] = {
	{ .help = "Toys" },
	{ .name = "flag", .letter = 'f', AT(flag), .help = "a flag" },
	{ .name = "count", .letter = 'c', .argument = "N", .kind = CLI_NUMBER, AT(count),
	  .least = 1, .most = 4096, .help = "a number" },
	{ .name = "size", .argument = "BYTES", .kind = CLI_SIZE, .unit = "", AT(size),
	  .least = 64, .most = 1 << 30, .help = "a size" },
	{ .name = "memory", .argument = "GIB", .kind = CLI_SIZE, .unit = "G", AT(memory),
	  .least = 1 << 20, .most = 1125899906842624, .help = "a size in GiB" },
	{ .name = "lease", .argument = "MS", .kind = CLI_TIME, .unit = "ms", AT(lease_ms),
	  .least = 10, .most = 3600000, .help = "a time" },
	{ .name = "route", .argument = "ROUTE", .kind = CLI_WORD, .words = routes, AT(route),
	  .help = "a word" },
	{ .name = "speed", .argument = "X", .kind = CLI_REAL, AT(speed), .least = 0.5,
	  .most = 10, .help = "a real number" },
	{ .name = "file", .argument = "FILE", .kind = CLI_TEXT, AT(file), .help = "a text" },
};
/* clang-format on */

static const struct cli toy_cli = {
	.name = "toy",
	.usage = (const struct cli_row[]){ { "[options]", "play" },
					   { NULL, NULL } },
	.options = rows,
	.option_count = sizeof(rows) / sizeof(rows[0]),
	.exits = (const struct cli_row[]){ { "0", "good" }, { NULL, NULL } },
};

static struct toy toy;
static char said[512]; /* on standard error, by the last parse() */

/* Parses words, up to a NULL; what the parser says is kept. */
static int parse(const char *first, const char *second)
{
	char words[3][64] = { "toy" };
	char *pointers[] = { words[0], words[1], words[2], NULL };
	FILE *file = tmpfile();
	const int error = dup(STDERR_FILENO);
	size_t bytes;
	int code;

	assert_non_null(file);
	(void)snprintf(words[1], sizeof(words[1]), "%s", first);
	if (second)
		(void)snprintf(words[2], sizeof(words[2]), "%s", second);
	else
		pointers[2] = NULL;
	memset(&toy, 0, sizeof(toy));
	optind = 0; /* getopt_long() begins anew */
	(void)dup2(fileno(file), STDERR_FILENO);
	code = cli_parse(&toy_cli, second ? 3 : 2, pointers, &toy);
	(void)dup2(error, STDERR_FILENO);
	(void)close(error);
	rewind(file);
	bytes = fread(said, 1, sizeof(said) - 1, file);
	said[bytes] = '\0';
	(void)fclose(file);
	return code;
}

static void wrong(const char *first, const char *second, const char *text)
{
	assert_int_equal(parse(first, second), 2);
	assert_string_equal(said, text);
}

#define TAKES(option, text, member, value)                                     \
	do {                                                                   \
		assert_int_equal(parse(option, text), CLI_GO);                 \
		assert_int_equal(toy.member, value);                           \
	} while (0)

UNIT_TEST(values_of_each_kind_are_taken)
{
	TAKES("--flag", "--count=7", flag, 1);
	assert_int_equal(toy.count, 7);
	assert_int_equal(parse("-fc", "9"), CLI_GO);
	assert_int_equal(toy.flag, 1);
	assert_int_equal(toy.count, 9);
	TAKES("--route", "verbs", route, 2);
	assert_int_equal(parse("--speed", "0.5"), CLI_GO);
	assert_true(toy.speed >= 0.5 && toy.speed <= 0.5);
	assert_int_equal(parse("--file", "-"), CLI_GO);
	assert_string_equal(toy.file, "-");
}

UNIT_TEST(sizes_take_suffixes)
{
	TAKES("--size", "65536", size, 65536);
	TAKES("--size", "64K", size, 65536);
	TAKES("--size", "1.5m", size, 3 << 19);
	TAKES("--size", "1GiB", size, 1 << 30);
	TAKES("--memory", "0.5", memory, 1 << 29);
	TAKES("--memory", "512M", memory, 1 << 29);
	TAKES("--memory", "8", memory, UINT64_C(8) << 30);
}

UNIT_TEST(times_take_suffixes)
{
	TAKES("--lease", "250", lease_ms, 250);
	TAKES("--lease", "30s", lease_ms, 30000);
	TAKES("--lease", "20000us", lease_ms, 20);
	TAKES("--lease", "1h", lease_ms, 3600000);
}

static void out_of(const char *option, const char *value, const char *bounds)
{
	char text[128];

	(void)snprintf(text, sizeof(text),
		       "toy: %s %s: %s is needed; see --help\n", option, value,
		       bounds);
	wrong(option, value, text);
}

UNIT_TEST(values_out_of_bounds_are_refused)
{
	size_t at;
	static const char *const bad[] = { "0",   "4097", "-1",  "x",
					   "7x",  "7K",   "1.5", "nan",
					   "inf", "",     "+7",  " 7" };

	for (at = 0; at < sizeof(bad) / sizeof(bad[0]); at++)
		out_of("--count", bad[at], "a number from 1 to 4096");
	out_of("--size", "63", "a size from 64 to 1G");
	out_of("--size", "2G", "a size from 64 to 1G");
	out_of("--size", "64s", "a size from 64 to 1G");
	out_of("--memory", "0", "a size from 1M to 1024T");
	/* A part of a millisecond is not dropped. */
	out_of("--lease", "10500us", "a time from 10ms to 3600000ms");
}

UNIT_TEST(wrong_words_name_the_closest)
{
	wrong("--cuont", NULL,
	      "toy: --cuont is no option; did you mean --count?\n");
	wrong("--sized=4", NULL,
	      "toy: --sized=4 is no option; did you mean --size?\n");
	wrong("--hlep", NULL,
	      "toy: --hlep is no option; did you mean --help?\n");
	wrong("--route", "verb",
	      "toy: --route is auto, shm or verbs, not verb; did you mean verbs?\n");
}

/* A guess that is far off misleads, and a hidden option is none. */
UNIT_TEST(far_words_get_no_guess)
{
	wrong("--bandwidth", NULL,
	      "toy: --bandwidth is no option; see --help\n");
	wrong("--completions", NULL,
	      "toy: --completions is no option; see --help\n");
	wrong("--route", "rdma",
	      "toy: --route is auto, shm or verbs, not rdma; see --help\n");
	wrong("-z", NULL, "toy: -z is no option; see --help\n");
}

UNIT_TEST(values_that_lack_or_are_too_many_are_said)
{
	wrong("--flag=1", NULL, "toy: --flag=1 takes no value; see --help\n");
	wrong("--count", NULL, "toy: --count needs a value; see --help\n");
	wrong("-c", NULL, "toy: -c needs a value; see --help\n");
}
