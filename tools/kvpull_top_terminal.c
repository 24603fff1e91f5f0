/* SPDX-License-Identifier: Apache-2.0 */
/* The screen of a terminal: drawn each interval and at each key, until q. */
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <termios.h>
#include <unistd.h>

#include "tools/kvpull_top_parts.h"

#define ESCAPE '\033'
#define BACKSPACE '\177'
#define END_SCROLL (1 << 24) /* beyond any line, also as often as it is added */

/* Keys that send more than a character, and how far they scroll. */
static size_t sequence_take(struct top_view *view, const char *text)
{
	const int page = (int)view->lines / 2;
	const struct {
		const char *sent;
		int lines;
	} sequences[] = {
		{ "\033[A", -1 },          { "\033OA", -1 },
		{ "\033[B", 1 },           { "\033OB", 1 },
		{ "\033[5~", -page },      { "\033[6~", page },
		{ "\033[H", -END_SCROLL }, { "\033[1~", -END_SCROLL },
		{ "\033[F", END_SCROLL },  { "\033[4~", END_SCROLL },
	};
	int64_t scroll;
	uint32_t at;

	for (at = 0; at < sizeof(sequences) / sizeof(sequences[0]); at++) {
		const size_t bytes = strlen(sequences[at].sent);

		if (strncmp(text, sequences[at].sent, bytes) != 0)
			continue;
		scroll = (int64_t)view->scroll + sequences[at].lines;
		view->scroll = scroll < 0 ? 0 : (uint32_t)scroll;
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

	view->is_help = key == '?' && !view->is_help;
	if (at) {
		view->shown = (enum top_shown)(at - views);
		view->scroll = 0;
		view->sort_head = NULL;
	} else if (key == '/') {
		view->filter[0] = '\0';
		view->is_typing = 1;
	} else if (key == '<' || key == '>') {
		view->sort_head = top_sort_next(top, view, key == '>' ? 1 : -1);
	} else if (key == 'r') {
		view->is_reversed = !view->is_reversed;
	}
	return key == 'q';
}

/* Waits for keys, a signal or the interval's end. Return: 1 to end. */
static int keys_take(struct top_view *view, const struct top *top,
		     uint32_t interval_ms, int signals)
{
	struct pollfd ready[] = { { .fd = STDIN_FILENO, .events = POLLIN },
				  { .fd = signals, .events = POLLIN } };
	struct signalfd_siginfo signal;
	char text[64];
	ssize_t got;
	size_t at;

	if (poll(ready, 2, (int)interval_ms) <= 0)
		return 0;
	if (ready[1].revents)
		return read(signals, &signal, sizeof(signal)) < 0 ||
		       signal.ssi_signo != SIGWINCH;
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

static void loop(const struct top_options *options, int signals)
{
	static struct top tops[2];
	struct top_view view = { .shown = options->shown, .is_coloured = 1 };
	struct winsize size = { .ws_row = 24, .ws_col = 80 };
	uint32_t at = 1;

	do {
		at = !at;
		top_free(&tops[at]);
		top_look(&tops[at], &tops[!at], options);
		(void)ioctl(STDOUT_FILENO, TIOCGWINSZ, &size);
		view.columns = size.ws_col ? size.ws_col : 80;
		view.lines = size.ws_row > 3 ? size.ws_row : 24;
		(void)fputs("\033[H", stdout);
		top_screen(&tops[at], &view, stdout);
		(void)fputs("\033[J", stdout);
		(void)fflush(stdout);
	} while (!keys_take(&view, &tops[at], options->interval_ms, signals));
	top_free(&tops[0]);
	top_free(&tops[1]);
}

int top_terminal(const struct top_options *options)
{
	sigset_t held;
	int signals;
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
	/* A signal that ends us has to wait until the screen is given back. */
	(void)sigemptyset(&held);
	(void)sigaddset(&held, SIGWINCH);
	(void)sigaddset(&held, SIGINT);
	(void)sigaddset(&held, SIGTERM);
	(void)sigaddset(&held, SIGHUP);
	signals = signalfd(-1, &held, SFD_CLOEXEC);
	if (signals < 0) {
		perror("kvpull_top: signalfd");
		return 1;
	}
	(void)sigprocmask(SIG_BLOCK, &held, NULL);
	(void)tcsetattr(STDIN_FILENO, TCSANOW, &raw);
	(void)fputs("\033[?1049h\033[?25l\033[2J", stdout);
	loop(options, signals);
	(void)fputs("\033[?25h\033[?1049l", stdout);
	(void)fflush(stdout);
	(void)tcsetattr(STDIN_FILENO, TCSANOW, &before);
	return 0;
}
