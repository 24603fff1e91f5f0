/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvpull_top: options, and output that is made once. All that it knows comes
 * from status files; it asks nothing of the engines.
 */
#include <errno.h>
#include <getopt.h>
#include <pwd.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/kvpull_top_parts.h"
#include "tools/output.h"

static const char help[] =
	"usage: kvpull_top [options] [VIEW]\n"
	"What the kvpull workers and pools of this machine do, from their status files.\n"
	"\n"
	"VIEW       holds, consumers, peers, pulls, pools or findings: that alone, all of it\n"
	"One of\n"
	"  -1, --once             print once, without colours\n"
	"  -j, --json             one JSON object, with findings: who, how long, how many\n"
	"  -p, --prometheus       metrics\n"
	"  -P, --prometheus-file FILE\n"
	"                         write them each --interval for node_exporter's collector of\n"
	"                         text files, which sees FILE whole; with --once once\n"
	"  -t, --trace FILE       the last requests as a trace for ui.perfetto.dev\n"
	"Which\n"
	"  -f, --folder PATH      look there; may be repeated; default: $KVPULL_SOCKET_DIR,\n"
	"                         /tmp/kvpull-UID and /dev/shm/kvpull-UID\n"
	"  -u, --uid USER         whose files and folders, a name or a number; default:\n"
	"                         yours, and files of the folder's owner and root\n"
	"  -a, --after PID|FILE   one that is gone: all that its file says\n"
	"      --all              also who closed, or is gone for over ten minutes\n"
	"  -i, --interval MS      between screens, 100 .. 60000; default 1000\n"
	"  -h, --help   -V, --version\n"
	"\n"
	"On the screen ? lists the keys, q ends.\n"
	"Exit status: 0; 1 failed; 2 usage.\n";

static int usage(const char *text, const char *what)
{
	(void)fprintf(stderr, "kvpull_top: %s%s; see --help\n", text, what);
	return 2;
}

static int number_take(const char *text, long min, long max, long *number)
{
	char *end;

	errno = 0;
	*number = strtol(text, &end, 10);
	return errno || *end || end == text || *number < min || *number > max ?
		       -1 :
		       0;
}

static int folder_add(struct top_options *options, const char *path)
{
	if (options->folder_count == TOP_FOLDERS_MAX)
		return -1;
	options->folders[options->folder_count++] = path;
	return 0;
}

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
	(void)folder_add(options, named ? named : socket_dir);
	if (!named || strcmp(named, in_memory) != 0)
		(void)folder_add(options, in_memory);
}

/* The kinds of output exclude each other. */
static int mode_take(struct top_options *options, enum top_mode mode,
		     const char *name, const char *path)
{
	if (options->mode != TOP_SCREEN && options->mode != mode) {
		(void)fprintf(
			stderr,
			"kvpull_top: %s and %s: one of them; see --help\n",
			options->mode_name, name);
		return 2;
	}
	options->mode = mode;
	options->mode_name = name;
	options->path = path;
	return 0;
}

static int uid_take(struct top_options *options, const char *text)
{
	const struct passwd *user = getpwnam(text);
	long number = 0;

	if (!user && number_take(text, 0, UINT32_MAX - 1, &number))
		return usage("--uid is a user's name or number, not ", text);
	options->uid = user ? (int64_t)user->pw_uid : number;
	return 0;
}

static int option_take(struct top_options *options, int option)
{
	long number = 0;

	switch (option) {
	case 'f':
		return folder_add(options, optarg) ?
			       usage("too many folders", "") :
			       0;
	case '1':
		options->once = 1;
		return 0;
	case 'j':
		return mode_take(options, TOP_JSON, "--json", NULL);
	case 'p':
		return mode_take(options, TOP_PROMETHEUS, "--prometheus", NULL);
	case 'P':
		return mode_take(options, TOP_PROMETHEUS_FILE,
				 "--prometheus-file", optarg);
	case 't':
		return mode_take(options, TOP_TRACE, "--trace", optarg);
	case 'a':
		options->after = optarg;
		return 0;
	case 'A':
		options->all = 1;
		return 0;
	case 'i':
		if (number_take(optarg, 100, 60000, &number))
			return usage("--interval is 100 .. 60000 ms, not ",
				     optarg);
		options->interval_ms = (uint32_t)number;
		return 0;
	case 'u':
		return uid_take(options, optarg);
	default:
		return usage("that is no option", "");
	}
}

static int view_take(struct top_options *options, const char *word)
{
	static const char *const views[] = { "holds", "consumers", "peers",
					     "pulls", "pools",     "findings" };
	uint32_t at;

	for (at = 0; at < sizeof(views) / sizeof(views[0]); at++)
		if (!options->view && !strcmp(word, views[at])) {
			options->view = views[at];
			return 0;
		}
	return usage(
		"a view is holds, consumers, peers, pulls, pools or findings, not ",
		word);
}

/* 0: go on; else the exit status plus one. */
static int options_take(struct top_options *options, int argc, char **argv)
{
	static const struct option longs[] = {
		{ "folder", required_argument, NULL, 'f' },
		{ "once", no_argument, NULL, '1' },
		{ "json", no_argument, NULL, 'j' },
		{ "prometheus", no_argument, NULL, 'p' },
		{ "prometheus-file", required_argument, NULL, 'P' },
		{ "trace", required_argument, NULL, 't' },
		{ "after", required_argument, NULL, 'a' },
		{ "all", no_argument, NULL, 'A' },
		{ "interval", required_argument, NULL, 'i' },
		{ "uid", required_argument, NULL, 'u' },
		{ "help", no_argument, NULL, 'h' },
		{ "version", no_argument, NULL, 'V' },
		{ NULL, 0, NULL, 0 }
	};
	int option;
	int code = 0;

	while (!code && (option = getopt_long(argc, argv, "f:1jpP:t:a:i:u:hV",
					      longs, NULL)) != -1) {
		if (option == 'h' || option == 'V') {
			(void)fputs(option == 'h' ? help :
						    "kvpull_top " KVPULL_VERSION
						    "\n",
				    stdout);
			return 1;
		}
		code = option_take(options, option);
	}
	for (; !code && optind < argc; optind++)
		code = view_take(options, argv[optind]);
	folders_default(options);
	return code ? code + 1 : 0;
}

static uint32_t columns_of(void)
{
	const char *text = getenv("COLUMNS");
	long columns = 0;

	return text && !number_take(text, 20, 400, &columns) ?
		       (uint32_t)columns :
		       0;
}

static void tables_print(const struct top *top,
			 const struct top_options *options)
{
	struct top_view view = { .name = options->view,
				 .columns = columns_of() };

	top_screen(top, &view, stdout);
	if (options->after)
		top_after(top, view.columns, stdout);
}

/* Prints the answer once. Returns the exit status. */
static int once_show(const struct top *top, const struct top_options *options)
{
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
		tables_print(top, options);
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
	/* Output that could not be written is an error. */
	if (code == 1)
		return output_end(0);
	if (code)
		return code - 1;
	(void)signal(SIGPIPE, SIG_IGN);
	if (options.mode == TOP_PROMETHEUS_FILE)
		return top_prometheus_file(&options);
	if (options.mode == TOP_SCREEN && !options.once && !options.after &&
	    isatty(STDOUT_FILENO))
		return top_terminal(&options);
	top_look(&top, NULL, &options);
	code = once_show(&top, &options);
	/* Tables say it themselves. */
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
