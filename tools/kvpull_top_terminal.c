/* SPDX-License-Identifier: Apache-2.0 */
/* The screen of a terminal: drawn each interval and at each key, until q. */
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "tools/kvpull_top_parts.h"

#define ESCAPE '\033'
#define BACKSPACE '\177'
#define END_SCROLL INT64_C(0x7fffffff) /* beyond any line */

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

static void scroll_by(struct top_view *view, int64_t lines)
{
	const int64_t scroll = (int64_t)view->scroll + lines;

	view->scroll = scroll < 0          ? 0 :
		       scroll > END_SCROLL ? END_SCROLL :
					     (uint32_t)scroll;
}

/* Keys that send more than a character, and how far they scroll. */
static size_t sequence_take(struct top_view *view, const char *text)
{
	const int64_t page = view->lines / 2;
	const struct {
		const char *sent;
		int64_t lines;
	} sequences[] = {
		{ "\033[A", -1 },          { "\033OA", -1 },
		{ "\033[B", 1 },           { "\033OB", 1 },
		{ "\033[5~", -page },      { "\033[6~", page },
		{ "\033[H", -END_SCROLL }, { "\033[1~", -END_SCROLL },
		{ "\033[F", END_SCROLL },  { "\033[4~", END_SCROLL },
	};
	uint32_t at;

	for (at = 0; at < sizeof(sequences) / sizeof(sequences[0]); at++) {
		const size_t bytes = strlen(sequences[at].sent);

		if (strncmp(text, sequences[at].sent, bytes) != 0)
			continue;
		scroll_by(view, sequences[at].lines);
		return bytes;
	}
	/* Another escape sequence, or the Esc key alone. */
	view->filter[0] = '\0';
	view->is_typing = 0;
	return strlen(text);
}

static void filter_type(struct top_view *view, char key)
{
	const size_t used = strlen(view->filter);

	if (key == '\n' || key == '\r') {
		view->is_typing = 0;
	} else if (key == BACKSPACE || key == '\b') {
		view->filter[used ? used - 1 : 0] = '\0';
	} else if (key >= ' ' && used + 1 < sizeof(view->filter)) {
		view->filter[used] = key;
		view->filter[used + 1] = '\0';
	}
}

/* Return: 1 to end. */
static int key_take(struct top_view *view, const struct top *top, char key)
{
	static const char views[] = "ohcpulf"; /* as enum top_shown */
	const char *at = key ? strchr(views, key) : NULL;

	if (at) {
		view->shown = (enum top_shown)(at - views);
		view->scroll = 0;
		view->sort_head = NULL;
	}
	view->is_help = key == '?' && !view->is_help;
	switch (key) {
	case 'q':
		return 1;
	case '/':
		view->filter[0] = '\0';
		view->is_typing = 1;
		return 0;
	case '<':
	case '>':
		view->sort_head = top_sort_next(top, view, key == '>' ? 1 : -1);
		return 0;
	case 'r':
		view->is_reversed = !view->is_reversed;
		return 0;
	default:
		return 0;
	}
}

/*
 * Keys, the interval's end, or one of the signals, which come nowhere else.
 * Return: 1 to end.
 */
static int keys_take(struct top_view *view, const struct top *top,
		     uint32_t interval_ms, const sigset_t *signals)
{
	const struct timespec interval =
		kvpull_clock_timespec(interval_ms * KVPULL_NS_PER_MS);
	struct pollfd ready = { .fd = STDIN_FILENO, .events = POLLIN };
	char text[64];
	ssize_t got;
	size_t at;

	if (ppoll(&ready, 1, &interval, signals) <= 0)
		return 0;
	got = read(STDIN_FILENO, text, sizeof(text) - 1);
	if (got <= 0)
		return 1;
	text[got] = '\0';
	for (at = 0; at < (size_t)got;) {
		if (text[at] == ESCAPE)
			at += sequence_take(view, text + at);
		else if (view->is_typing)
			filter_type(view, text[at++]);
		else if (key_take(view, top, text[at++]))
			return 1;
	}
	return 0;
}

static void loop(const struct top_options *options, const sigset_t *signals)
{
	static struct top tops[2];
	struct top_view view = { .shown = options->shown,
				 .is_coloured = isatty(STDOUT_FILENO) };
	struct winsize size = { .ws_row = 24, .ws_col = 80 };
	uint32_t at = 1;

	do {
		at = !at;
		top_free(&tops[at]);
		top_look(&tops[at], &tops[!at], options);
		(void)ioctl(STDOUT_FILENO, TIOCGWINSZ, &size);
		view.columns = size.ws_col ? size.ws_col : 80;
		view.lines = size.ws_row > 3 ? size.ws_row : 24;
		(void)fputs(resized ? "\033[2J\033[H" : "\033[H", stdout);
		resized = 0;
		top_screen(&tops[at], &view, stdout);
		(void)fputs("\033[J", stdout);
		(void)fflush(stdout);
	} while (!keys_take(&view, &tops[at], options->interval_ms, signals) &&
		 !ended);
	top_free(&tops[0]);
	top_free(&tops[1]);
}

int top_terminal(const struct top_options *options)
{
	static const int ends[] = { SIGINT, SIGTERM, SIGHUP };
	const struct sigaction resize = { .sa_handler = on_resize };
	const struct sigaction end = { .sa_handler = on_end };
	uint32_t at;
	sigset_t held;
	sigset_t signals;
	struct termios before;
	struct termios raw;

	if (tcgetattr(STDIN_FILENO, &before)) {
		(void)fputs(
			"kvpull_top: no terminal: --once, --json or --prometheus; see --help\n",
			stderr);
		return 2;
	}
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
