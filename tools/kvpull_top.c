/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvpull_top: options, and the loop of the screen. All that it knows comes from
 * status files; it asks nothing of the engines.
 */
#include <errno.h>
#include <getopt.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "tools/kvpull_top_parts.h"
#include "tools/output.h"

static const char help[] =
	"usage: kvpull_top [options] [VIEW]\n"
	"What the kvpull workers and pools of this machine do, from their status files.\n"
	"\n"
	"VIEW       holds, consumers, peers, pulls or pools: that table alone, all of it\n"
	"  -f, --folder PATH      look there; may be repeated; default: $KVPULL_SOCKET_DIR,\n"
	"                         /tmp/kvpull-UID and /dev/shm/kvpull-UID\n"
	"  -1, --once             print once, without colours\n"
	"  -j, --json             one JSON object, with findings: who, how long, how many\n"
	"  -p, --prometheus       metrics, for a collector of text files\n"
	"  -l, --listen ADDR:PORT serve /metrics, as 127.0.0.1:9400\n"
	"  -t, --trace FILE       the last requests as a trace for ui.perfetto.dev\n"
	"  -a, --after PID|FILE   one that is gone: all that its file says\n"
	"      --all              also who closed, or is gone for over ten minutes\n"
	"  -o, --oldest           with holds: the oldest first, as they always are\n"
	"  -i, --interval MS      between screens, 100 .. 60000; default 1000\n"
	"  -u, --uid UID          whose files and folders; default: yours, and files of\n"
	"                         the folder's owner and root\n"
	"  -h, --help   -V, --version\n"
	"\n"
	"Keys: q ends; o overview, h holds, c consumers, p peers, u pulls, l pools.\n"
	"Exit status: 0; 1 failed; 2 usage.\n";

static volatile sig_atomic_t resized;
static volatile sig_atomic_t ended;

static void on_resize(int signal)
{
	(void)signal;
	resized = 1;
}

/* The terminal is given back as it was. */
static void on_end(int signal)
{
	(void)signal;
	ended = 1;
}

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
	const char *named = getenv("KVPULL_SOCKET_DIR");

	if (!options->folder_count) {
		options->folders_are_usual = 1;
		(void)snprintf(socket_dir, sizeof(socket_dir), "/tmp/kvpull-%u",
			       options->uid >= 0 ? (uint32_t)options->uid :
						   geteuid());
		(void)folder_add(options, named ? named : socket_dir);
		(void)snprintf(
			in_memory, sizeof(in_memory), KVPULL_STATUS_FOLDER,
			options->uid >= 0 ? (uint32_t)options->uid : geteuid());
		(void)folder_add(options, in_memory);
	}
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
		options->json = 1;
		return 0;
	case 'p':
		options->prometheus = 1;
		return 0;
	case 'l':
		options->listen = optarg;
		return 0;
	case 't':
		options->trace = optarg;
		return 0;
	case 'a':
		options->after = optarg;
		return 0;
	case 'A':
		options->all = 1;
		return 0;
	case 'o':
		return 0;
	case 'i':
		if (number_take(optarg, 100, 60000, &number))
			return usage("--interval is 100 .. 60000 ms, not ",
				     optarg);
		options->interval_ms = (uint32_t)number;
		return 0;
	case 'u':
		if (number_take(optarg, 0, UINT32_MAX - 1, &number))
			return usage("--uid is a number, not ", optarg);
		options->uid = number;
		return 0;
	default:
		return usage("that is no option", "");
	}
}

/* 0: go on; else the exit status plus one. */
static int options_take(struct top_options *options, int argc, char **argv)
{
	static const struct option longs[] = {
		{ "folder", required_argument, NULL, 'f' },
		{ "once", no_argument, NULL, '1' },
		{ "json", no_argument, NULL, 'j' },
		{ "prometheus", no_argument, NULL, 'p' },
		{ "listen", required_argument, NULL, 'l' },
		{ "trace", required_argument, NULL, 't' },
		{ "after", required_argument, NULL, 'a' },
		{ "all", no_argument, NULL, 'A' },
		{ "oldest", no_argument, NULL, 'o' },
		{ "interval", required_argument, NULL, 'i' },
		{ "uid", required_argument, NULL, 'u' },
		{ "help", no_argument, NULL, 'h' },
		{ "version", no_argument, NULL, 'V' },
		{ NULL, 0, NULL, 0 }
	};
	static const char *const views[] = { "holds", "consumers", "peers",
					     "pulls", "pools" };
	const uint32_t view_count = sizeof(views) / sizeof(views[0]);
	int option;
	int code;
	uint32_t at;

	while ((option = getopt_long(argc, argv, "f:1jpl:t:a:oi:u:hV", longs,
				     NULL)) != -1) {
		if (option == 'h' || option == 'V') {
			(void)fputs(option == 'h' ? help :
						    "kvpull_top " KVPULL_VERSION
						    "\n",
				    stdout);
			return 1;
		}
		code = option_take(options, option);
		if (code)
			return code + 1;
	}
	for (; optind < argc; optind++) {
		for (at = 0;
		     at < view_count && strcmp(argv[optind], views[at]) != 0;)
			at++;
		if (at == view_count || options->view)
			return usage("a view is holds, consumers, peers, pulls or pools, not ",
				     argv[optind]) +
			       1;
		options->view = views[at];
	}
	folders_default(options);
	return 0;
}

/*
 * A key, the interval's end, or one of the signals, which come nowhere else.
 * Return: 1 to end.
 */
static int key_take(struct top_options *options, const sigset_t *signals)
{
	const struct timespec interval = {
		.tv_sec = (time_t)(options->interval_ms / 1000),
		.tv_nsec = (long)(options->interval_ms % 1000) * 1000000,
	};
	struct pollfd key = { .fd = STDIN_FILENO, .events = POLLIN };
	char pressed = 0;

	if (ppoll(&key, 1, &interval, signals) <= 0)
		return 0;
	if (read(STDIN_FILENO, &pressed, 1) != 1)
		return 1;
	switch (pressed) {
	case 'q':
		return 1;
	case 'h':
		options->view = "holds";
		return 0;
	case 'c':
		options->view = "consumers";
		return 0;
	case 'p':
		options->view = "peers";
		return 0;
	case 'u':
		options->view = "pulls";
		return 0;
	case 'l':
		options->view = "pools";
		return 0;
	case 'o':
		options->view = NULL;
		return 0;
	default:
		return 0;
	}
}

static void loop(struct top_options *options, const sigset_t *signals)
{
	static struct top tops[2];
	struct winsize size = { .ws_row = 24, .ws_col = 80 };
	uint32_t at = 0;

	do {
		top_look(&tops[at], options);
		(void)ioctl(STDOUT_FILENO, TIOCGWINSZ, &size);
		(void)fputs(resized ? "\033[2J\033[H" : "\033[H", stdout);
		resized = 0;
		top_screen(&tops[at],
			   tops[!at].worker_count ? &tops[!at] : NULL, options,
			   size.ws_col ? size.ws_col : 80,
			   size.ws_row > 3 ? size.ws_row : 24);
		(void)fputs("\033[J", stdout);
		(void)fflush(stdout);
		at = !at;
		top_free(&tops[at]);
	} while (!key_take(options, signals) && !ended);
	top_free(&tops[!at]);
}

static int screen_run(struct top_options *options)
{
	static const int ends[] = { SIGINT, SIGTERM, SIGHUP };
	const struct sigaction resize = { .sa_handler = on_resize };
	const struct sigaction end = { .sa_handler = on_end };
	uint32_t at;
	sigset_t held;
	sigset_t signals;
	struct termios before;
	struct termios raw;

	if (tcgetattr(STDIN_FILENO, &before))
		return usage("no terminal: --once, --json or --prometheus", "");
	raw = before;
	raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
	/* Ctrl-C would drop what is written last: that the screen is given back. */
	raw.c_lflag |= NOFLSH;
	(void)sigemptyset(&held);
	(void)sigaddset(&held, SIGWINCH);
	(void)sigaction(SIGWINCH, &resize, NULL);
	for (at = 0; at < sizeof(ends) / sizeof(ends[0]); at++) {
		(void)sigaddset(&held, ends[at]);
		(void)sigaction(ends[at], &end, NULL);
	}
	/*
	 * Block signals first: one that came before the wait would be seen only
	 * when the wait ends.
	 */
	(void)sigprocmask(SIG_BLOCK, &held, &signals);
	(void)tcsetattr(STDIN_FILENO, TCSANOW, &raw);
	(void)fputs("\033[?1049h\033[?25l\033[2J", stdout);
	loop(options, &signals);
	(void)fputs("\033[?25h\033[?1049l", stdout);
	(void)fflush(stdout);
	(void)tcsetattr(STDIN_FILENO, TCSANOW, &before);
	return 0;
}

static uint32_t columns_of(void)
{
	const char *text = getenv("COLUMNS");
	long columns = 0;

	return text && !number_take(text, 20, 400, &columns) ?
		       (uint32_t)columns :
		       0;
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
	if (options->trace)
		return top_trace(top, options->trace);
	if (options->json)
		code = top_json(top);
	else if (options->prometheus)
		code = top_prometheus(top, stdout);
	else
		top_screen(top, NULL, options, columns_of(), 0);
	if (options->after && !options->json && !options->prometheus)
		top_after(top);
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
	if (options.listen)
		return top_serve(&options);
	if (!options.once && !options.json && !options.prometheus &&
	    !options.trace && !options.after && isatty(STDOUT_FILENO))
		return screen_run(&options);
	top_look(&top, &options);
	code = once_show(&top, &options);
	/* Tables say it themselves. */
	for (at = 0; (options.json || options.prometheus || options.trace) &&
		     at < top.unread_count && at < TOP_UNREAD_MAX;
	     at++)
		(void)fprintf(stderr, "kvpull_top: not read: %s: %s\n",
			      top.unread[at].path, top.unread[at].why);
	if (top.named_unread)
		code = 1;
	top_free(&top);
	return code;
}
