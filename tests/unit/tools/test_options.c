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

UNIT_TEST(values_of_each_kind_are_taken)
{
	assert_int_equal(parse("--flag", "--count=7"), CLI_GO);
	assert_int_equal(toy.flag, 1);
	assert_int_equal(toy.count, 7);
	assert_int_equal(parse("-fc", "9"), CLI_GO);
	assert_int_equal(toy.flag, 1);
	assert_int_equal(toy.count, 9);
	assert_int_equal(parse("--route", "verbs"), CLI_GO);
	assert_int_equal(toy.route, 2);
	assert_int_equal(parse("--speed", "0.5"), CLI_GO);
	assert_true(toy.speed >= 0.5 && toy.speed <= 0.5);
	assert_int_equal(parse("--file", "-"), CLI_GO);
	assert_string_equal(toy.file, "-");
}

UNIT_TEST(sizes_take_suffixes)
{
	assert_int_equal(parse("--size", "65536"), CLI_GO);
	assert_int_equal(toy.size, 65536);
	assert_int_equal(parse("--size", "64K"), CLI_GO);
	assert_int_equal(toy.size, 65536);
	assert_int_equal(parse("--size", "1.5m"), CLI_GO);
	assert_int_equal(toy.size, 3 << 19);
	assert_int_equal(parse("--size", "1GiB"), CLI_GO);
	assert_int_equal(toy.size, 1 << 30);
	assert_int_equal(parse("--memory", "0.5"), CLI_GO);
	assert_int_equal(toy.memory, 1 << 29);
	assert_int_equal(parse("--memory", "512M"), CLI_GO);
	assert_int_equal(toy.memory, 1 << 29);
	assert_int_equal(parse("--memory", "8"), CLI_GO);
	assert_int_equal(toy.memory, UINT64_C(8) << 30);
}

UNIT_TEST(times_take_suffixes)
{
	assert_int_equal(parse("--lease", "250"), CLI_GO);
	assert_int_equal(toy.lease_ms, 250);
	assert_int_equal(parse("--lease", "30s"), CLI_GO);
	assert_int_equal(toy.lease_ms, 30000);
	assert_int_equal(parse("--lease", "20000us"), CLI_GO);
	assert_int_equal(toy.lease_ms, 20);
	assert_int_equal(parse("--lease", "1h"), CLI_GO);
	assert_int_equal(toy.lease_ms, 3600000);
}

UNIT_TEST(values_out_of_bounds_are_refused)
{
	const char *number = "a number from 1 to 4096 is needed; see --help\n";
	char text[128];
	size_t at;
	static const char *const bad[] = { "0",   "4097", "-1",  "x",
					   "7x",  "7K",   "1.5", "nan",
					   "inf", "",     "+7",  " 7" };

	for (at = 0; at < sizeof(bad) / sizeof(bad[0]); at++) {
		(void)snprintf(text, sizeof(text), "toy: --count %s: %s",
			       bad[at], number);
		wrong("--count", bad[at], text);
	}
	wrong("--size", "63",
	      "toy: --size 63: a size from 64 to 1G is needed; see --help\n");
	wrong("--size", "2G",
	      "toy: --size 2G: a size from 64 to 1G is needed; see --help\n");
	wrong("--size", "64s",
	      "toy: --size 64s: a size from 64 to 1G is needed; see --help\n");
	wrong("--memory", "0",
	      "toy: --memory 0: a size from 1M to 1024T is needed; see --help\n");
	/* A part of a millisecond is not dropped. */
	wrong("--lease", "10500us",
	      "toy: --lease 10500us: a time from 10ms to 3600000ms is needed; see --help\n");
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
