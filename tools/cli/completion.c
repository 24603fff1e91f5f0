/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tool's table of options as a completion for bash, zsh and fish, and its
 * exit statuses as part of a manual page. make install and make pages ask.
 */
#include <stdio.h>
#include <string.h>

#include "tools/cli/options.h"

const char *const cli_shells[] = { "bash", "zsh", "fish", "mdoc", NULL };

/* Values that shells know by themselves, by the option's argument. */
static const struct known {
	const char *argument; /* a part of it; NULL: all others */
	const char *bash, *zsh, *fish;
} known[] = {
	{ "FILE", "compgen -f", "_files", "-r -F" },
	{ "FOLDER", "compgen -d", "_files -/",
	  "-x -a '(__fish_complete_directories)'" },
	{ "HOST", "compgen -A hostname", "_hosts",
	  "-x -a '(__fish_print_hostnames)'" },
	{ "USER", "compgen -u", "_users", "-x -a '(__fish_complete_users)'" },
	{ NULL, ":", " ", "-x" },
};

static const struct known *known_of(const struct cli_option *option)
{
	const struct known *found = known;

	while (found->argument && !strstr(option->argument, found->argument))
		found++;
	return found;
}

/* All values between before and after; otherwise: they are not known. */
static void values_print(const struct cli_option *option, const char *before,
			 const char *after, const char *otherwise)
{
	size_t at;

	for (at = 0; option->words && option->words[at]; at++)
		printf("%s%s", at ? " " : before, option->words[at]);
	printf("%s", at ? after : otherwise);
}

/* A text inside single quotes; zsh has a meaning of its own for some letters. */
static void quoted_print(const char *text, const char *escaped)
{
	for (; *text; text++)
		if (*text == '\'')
			printf("'\\''");
		else
			printf("%s%c", strchr(escaped, *text) ? "\\" : "",
			       *text);
}

/* ---- bash ---- */

static void bash_values(const struct cli_option *option)
{
	printf("mapfile -t COMPREPLY < <(");
	values_print(option, "compgen -W '", "'", known_of(option)->bash);
	printf(" -- \"$cur\")\n");
}

static void bash_print(const struct cli *cli)
{
	const struct cli_option *option;
	size_t at;

	printf("_%s()\n{\n"
	       "\tlocal cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]}\n\n"
	       "\t# bash makes three words of --name=value.\n"
	       "\t[ \"$prev\" != = ] || prev=${COMP_WORDS[COMP_CWORD - 2]}\n"
	       "\t[ \"$cur\" != = ] || cur=\n"
	       "\tcase $prev in\n",
	       cli->name);
	for (at = 0; (option = cli_option_next(cli, &at));)
		if (option->argument) {
			printf("\t--%s", option->name);
			if (option->letter)
				printf(" | -%c", option->letter);
			printf(") ");
			bash_values(option);
			printf("\t\treturn ;;\n");
		}
	printf("\tesac\n\tcase $cur in\n\t-*) mapfile -t COMPREPLY < <(compgen -W '");
	for (at = 0; (option = cli_option_next(cli, &at));)
		printf("--%s ", option->name);
	printf("' -- \"$cur\") ;;\n");
	if (cli->operand) {
		printf("\t*) ");
		bash_values(cli->operand);
		printf("\t\t;;\n");
	}
	printf("\tesac\n}\ncomplete -o filenames -F _%s %s\n", cli->name,
	       cli->name);
}

/* ---- zsh ---- */

static void zsh_values(const struct cli_option *option)
{
	printf(":%s:", option->argument);
	values_print(option, "(", ")", known_of(option)->zsh);
}

static void zsh_print(const struct cli *cli)
{
	const struct cli_option *option;
	size_t at;

	printf("#compdef %s\n_arguments -s -S", cli->name);
	for (at = 0; (option = cli_option_next(cli, &at));) {
		const char *equals = option->argument ? "=" : "";

		if (option->letter)
			printf(" \\\n\t'(-%c --%s)'{-%c%s,--%s%s}'[",
			       option->letter, option->name, option->letter,
			       option->argument ? "+" : "", option->name,
			       equals);
		else
			printf(" \\\n\t'--%s%s[", option->name, equals);
		quoted_print(option->help, "[]:\\");
		printf("]");
		if (option->argument)
			zsh_values(option);
		printf("'");
	}
	if (cli->operand) {
		printf(" \\\n\t'*");
		zsh_values(cli->operand);
		printf("'");
	}
	printf("\n");
}

/* ---- fish ---- */

static void fish_values(const struct cli_option *option)
{
	printf(" ");
	values_print(option, "-x -a '", "'", known_of(option)->fish);
}

static void fish_print(const struct cli *cli)
{
	const struct cli_option *option;
	size_t at;

	printf("complete -c %s", cli->name);
	if (cli->operand)
		fish_values(cli->operand);
	else
		printf(" -f");
	printf("\n");
	for (at = 0; (option = cli_option_next(cli, &at));) {
		printf("complete -c %s -l %s", cli->name, option->name);
		if (option->letter)
			printf(" -s %c", option->letter);
		if (option->argument)
			fish_values(option);
		printf(" -d '");
		quoted_print(option->help, "\\");
		printf("'\n");
	}
}

/* ---- the manual page ---- */

static void mdoc_print(const struct cli *cli)
{
	const struct cli_row *row;

	printf(".Bl -tag -width \"128 + n\" -compact\n");
	for (row = cli->exits; row->left; row++)
		printf(".It %s\n%s\n", row->left, row->right);
	printf(".El\n");
}

void cli_complete(const struct cli *cli, int shell)
{
	static void (*const prints[])(const struct cli *) = {
		bash_print, zsh_print, fish_print, mdoc_print
	};

	prints[shell](cli);
}
