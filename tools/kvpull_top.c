/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvpull_top: options, and output that is made once. All that it knows comes
 * from status files; it asks nothing of the engines.
 */
#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <pwd.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/cli/options.h"
#include "tools/kvpull_top_parts.h"

/* As enum top_shown, from TOP_HOLDS on. */
static const char *const views[] = { "holds", "consumers", "peers", "pulls",
				     "pools", "findings",  NULL };

static int folder_take(const struct cli *cli, const struct cli_option *option,
		       void *to, const char *text)
{
	struct top_options *options = to;

	(void)option;
	if (options->folder_count == TOP_FOLDERS_MAX)
		return cli_wrong(cli, "too many folders");
	options->folders[options->folder_count++] = text;
	return 0;
}

/* The kinds of output exclude each other. */
static int mode_take(const struct cli *cli, const struct cli_option *option,
		     void *to, const char *text)
{
	static const struct cli_option *named;
	struct top_options *options = to;

	if (named && named != option)
		return cli_wrong(cli, "--%s and --%s: one of them", named->name,
				 option->name);
	named = option;
	options->mode = (enum top_mode)option->letter;
	options->path = text;
	return 0;
}

static int uid_take(const struct cli *cli, const struct cli_option *option,
		    void *to, const char *text)
{
	struct top_options *options = to;
	const struct passwd *user = getpwnam(text);
	char *end;
	const unsigned long number = strtoul(text, &end, 10);

	(void)option;
	if (!user &&
	    (!isdigit((unsigned char)*text) || *end || number >= UINT32_MAX))
		return cli_wrong(
			cli, "--uid is a user's name or number, not %s", text);
	options->uid = user ? (int64_t)user->pw_uid : (int64_t)number;
	return 0;
}

#define AT(member) CLI_MEMBER(struct top_options, member)

/* clang-format off */
static const struct cli_option rows[] = {
	{ .help = "Output, in place of the screen: one of" },
	{ .name = "once", .letter = '1', AT(once), .help = "print once, without colours" },
	{ .name = "json", .letter = 'j', .take = mode_take,
	  .help = "one JSON object, with findings: who, how long, how many" },
	{ .name = "prometheus", .letter = 'p', .take = mode_take, .help = "metrics" },
	{ .name = "prometheus-file", .letter = 'P', .argument = "FILE", .take = mode_take,
	  .help = "write them each --interval for node_exporter's collector of text files, which sees FILE whole; with --once once" },
	{ .name = "trace", .letter = 't', .argument = "FILE", .take = mode_take,
	  .help = "the last requests as a trace for ui.perfetto.dev" },
	{ .help = "Which processes" },
	{ .name = "folder", .letter = 'f', .argument = "FOLDER", .take = folder_take,
	  .help = "look there; may be repeated ($KVPULL_SOCKET_DIR, /tmp/kvpull-UID and /dev/shm/kvpull-UID)" },
	{ .name = "uid", .letter = 'u', .argument = "USER", .take = uid_take,
	  .help = "whose files and folders, a name or a number (yours, and files of the folder's owner and root)" },
	{ .name = "after", .letter = 'a', .argument = "PID|FILE", .kind = CLI_TEXT, AT(after),
	  .help = "one that is gone: all that its file says" },
	{ .name = "all", AT(all), .help = "also who closed, or is gone for over ten minutes" },
	{ .name = "interval", .letter = 'i', .argument = "MS", .kind = CLI_TIME, AT(interval_ms),
	  .unit = "ms", .least = 100, .most = 60000, .help = "between screens (1s)" },
};

static const struct cli_row usage[] = {
	{ "[options]", "workers and pools here, from their status files" },
	{ "[options] VIEW", "holds, consumers, peers, pulls, pools or findings" },
	{ NULL, NULL },
};

static const struct cli_row exits[] = {
	{ "0", "printed, or the screen was left" },
	{ "1", "something failed, or a folder of --folder cannot be read" },
	{ "2", "wrong options" },
	{ NULL, NULL },
};
/* clang-format on */

static const struct cli top_cli = {
	.name = "kvpull_top",
	.usage = usage,
	.options = rows,
	.option_count = sizeof(rows) / sizeof(rows[0]),
	.operand = &(const struct cli_option){ .argument = "VIEW",
					       .words = views },
	.exits = exits,
};

static void folders_default(struct top_options *options)
{
	static char socket_dir[64];
	static char in_memory[64];
	const uint32_t uid =
		options->uid >= 0 ? (uint32_t)options->uid : geteuid();
	const char *named = getenv("KVPULL_SOCKET_DIR");

	if (options->folder_count)
		return;
	options->folders_are_usual = 1;
	(void)snprintf(socket_dir, sizeof(socket_dir), "/tmp/kvpull-%u", uid);
	(void)snprintf(in_memory, sizeof(in_memory), KVPULL_STATUS_FOLDER, uid);
	options->folders[options->folder_count++] = named ? named : socket_dir;
	if (!named || strcmp(named, in_memory) != 0)
		options->folders[options->folder_count++] = in_memory;
}

/* CLI_GO, or the exit status. */
static int options_take(struct top_options *options, int argc, char **argv)
{
	const int code = cli_parse(&top_cli, argc, argv, options);
	int view;

	folders_default(options);
	if (code != CLI_GO || optind == argc)
		return code;
	view = cli_word(views, argv[optind]);
	if (view < 0)
		return cli_wrong_word(&top_cli, "a view", argv[optind], views);
	if (optind + 1 < argc)
		return cli_wrong(&top_cli, "%s: one view is enough",
				 argv[optind + 1]);
	options->shown = (enum top_shown)(TOP_HOLDS + view);
	return CLI_GO;
}

static uint32_t columns_of(void)
{
	const char *text = getenv("COLUMNS");
	const unsigned long columns = text ? strtoul(text, NULL, 10) : 0;

	return columns >= 20 && columns <= 400 ? (uint32_t)columns : 0;
}

/* Prints the answer once. Returns the exit status. */
static int once_show(const struct top *top, const struct top_options *options)
{
	struct top_view view = { .shown = options->shown,
				 .columns = columns_of() };
	int code = 0;

	if (options->after && !top->worker_count) {
		(void)fprintf(
			stderr,
			"kvpull_top: no status file of %s; kvpull_top --all --once lists those that there are\n",
			options->after);
		return 1;
	}
	if (options->mode == TOP_TRACE)
		return top_trace(top, options->path);
	if (options->mode == TOP_JSON)
		code = top_json(top);
	else if (options->mode == TOP_PROMETHEUS)
		code = top_prometheus(top, stdout);
	else
		top_screen(top, &view, stdout);
	if (options->after && options->mode == TOP_SCREEN)
		top_after(top, view.columns, stdout);
	if ((fflush(stdout) || ferror(stdout)) && errno != EPIPE)
		(void)fprintf(stderr, "kvpull_top: cannot write: %s\n",
			      strerror(errno));
	return code || ferror(stdout) ? 1 : 0;
}

int main(int argc, char **argv)
{
	static struct top top;
	struct top_options options = { .uid = -1, .interval_ms = 1000 };
	uint32_t at;
	int code;

	output_begin();
	code = options_take(&options, argc, argv);
	if (code != CLI_GO)
		return code;
	(void)signal(SIGPIPE, SIG_IGN);
	if (options.mode == TOP_PROMETHEUS_FILE)
		return top_prometheus_file(&options);
	if (options.mode == TOP_SCREEN && !options.once && !options.after &&
	    isatty(STDOUT_FILENO))
		return top_terminal(&options);
	top_look(&top, NULL, &options);
	code = once_show(&top, &options);
	/* Tables show these files themselves. */
	for (at = 0; options.mode != TOP_SCREEN && at < top.unread_count &&
		     at < TOP_UNREAD_MAX;
	     at++)
		(void)fprintf(stderr, "kvpull_top: not read: %s: %s\n",
			      top.unread[at].path, top.unread[at].why);
	if (top.named_unread)
		code = 1;
	top_free(&top);
	return code;
}
