/* SPDX-License-Identifier: Apache-2.0 */
/* See top.h. */
#include "tests/scenario/top.h"

#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include "tests/lib/folder.h"

#define SCREEN_BYTES 65536u
#define SCREEN_MS 20000
#define METRICS_BYTES (1u << 20)

void top_folder_open(struct top_folder *folder)
{
	(void)snprintf(folder->path, sizeof(folder->path),
		       "/dev/shm/kvpull-scenario-XXXXXX");
	/* A fork below must not print buffered output twice. */
	(void)setvbuf(stdout, NULL, _IOLBF, 0);
	scenario_check(mkdtemp(folder->path) != NULL, "no folder in memory");
}

void top_folder_close(struct top_folder *folder)
{
	(void)folder_remove_all(folder->path);
}

/* The tool is built beside this program. */
static void tool_path(char *path, size_t bytes)
{
	char own[400];
	const ssize_t got = readlink("/proc/self/exe", own, sizeof(own) - 1);

	scenario_check(got > 0, "/proc/self/exe");
	own[got] = '\0';
	*strrchr(own, '/') = '\0';
	(void)snprintf(path, bytes, "%s/kvpull_top", own);
}

json_t *top_json(const struct top_folder *folder)
{
	char tool[512];
	char command[640];
	FILE *out;
	json_t *top;

	tool_path(tool, sizeof(tool));
	(void)snprintf(command, sizeof(command), "%s --json --folder %s", tool,
		       folder->path);
	/* NOLINTNEXTLINE(cert-env33-c): a tool and a folder of our own. */
	out = popen(command, "r");
	scenario_check(out != NULL, "kvpull_top does not start");
	top = json_loadf(out, 0, NULL);
	scenario_check(!pclose(out) && top, "kvpull_top --json failed");
	return top;
}

int top_run(const struct top_folder *folder, const char *first,
	    const char *second, const char *third)
{
	char tool[512];
	int status = 0;
	pid_t child;

	tool_path(tool, sizeof(tool));
	child = fork();
	if (!child) {
		if (freopen("/dev/null", "w", stdout))
			(void)execl(tool, tool, "--folder", folder->path, first,
				    second, third, (char *)NULL);
		_exit(127);
	}
	scenario_check(child > 0 && waitpid(child, &status, 0) == child,
		       "kvpull_top does not start");
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

void top_print(const json_t *top, const char *key)
{
	(void)json_dumpf(json_object_get(top, key), stdout, JSON_INDENT(1));
	(void)putchar('\n');
}

/*
 * Prints one screen and checks its size. Return: whether a line of it has the
 * words in its first 80 columns.
 */
static int screen_check(const char *text, uint32_t columns, uint32_t lines,
			const char *words)
{
	char shown[512];
	uint32_t used = 0;
	uint32_t line = 0;
	int is_found = 0;

	(void)printf("    %u x %u\n", columns, lines);
	for (;; text++) {
		if (*text == '\033') {
			while (*text && (*text < '@' || *text == '['))
				text++;
			continue;
		}
		if (*text == '\r')
			continue;
		if (*text && *text != '\n') {
			scenario_check(used < columns, "line %u is over %u",
				       line + 1, columns);
			shown[used++] = *text;
			continue;
		}
		shown[used] = '\0';
		(void)printf("    |%-*s|\n", (int)columns, shown);
		shown[used < 80 ? used : 80] = '\0';
		is_found |= strstr(shown, words) != NULL;
		scenario_check(++line <= lines, "more than %u lines", lines);
		used = 0;
		if (!*text)
			return is_found;
	}
}

/* The tool on a terminal of its own, whose descriptor is in *fd. */
static pid_t screen_start(const struct top_folder *folder, uint32_t columns,
			  uint32_t lines, int *fd)
{
	const struct winsize size = { .ws_col = (unsigned short)columns,
				      .ws_row = (unsigned short)lines };
	char tool[512];
	pid_t child;

	tool_path(tool, sizeof(tool));
	child = forkpty(fd, NULL, NULL, &size);
	if (!child) {
		(void)execl(tool, tool, "--interval", "300", "--folder",
			    folder->path, (char *)NULL);
		_exit(127);
	}
	scenario_check(child > 0, "no terminal");
	return child;
}

void top_interrupt(const struct top_folder *folder)
{
	struct pollfd ready = { .events = POLLIN };
	const uint64_t until = engine_now_ns() + 10 * SCENARIO_NS_PER_S;
	const char key = '\003';
	char text[4096];
	struct termios terminal;
	int status = 0;
	pid_t ended;
	const pid_t child = screen_start(folder, 200, 50, &ready.fd);

	/* The terminal is its own: it reads what to show, and waits for no key. */
	do
		scenario_check(!tcgetattr(ready.fd, &terminal) &&
				       engine_now_ns() < until,
			       "it does not take the terminal");
	while (terminal.c_lflag & ICANON);
	scenario_check(write(ready.fd, &key, 1) == 1, "no key");
	while (poll(&ready, 1, SCREEN_MS) == 1 &&
	       read(ready.fd, text, sizeof(text)) > 0)
		;
	scenario_check(terminal.c_lflag & NOFLSH,
		       "Ctrl-C drops what gives the screen back");
	while ((ended = waitpid(child, &status, WNOHANG)) == 0 &&
	       engine_now_ns() < until)
		scenario_sleep_ns(SCENARIO_NS_PER_MS);
	scenario_check(ended == child, "Ctrl-C waits for the interval's end");
	scenario_check(!status, "Ctrl-C: status %#x", (unsigned int)status);
	(void)close(ready.fd);
}

/* A whole screen ends where the rest of the terminal is cleared. */
static char *screen_read(int fd, char *text)
{
	struct pollfd ready = { .fd = fd, .events = POLLIN };
	size_t used = 0;
	char *end;

	memset(text, 0, SCREEN_BYTES);
	while (!(end = strstr(text, "\033[J")) && used < SCREEN_BYTES - 1 &&
	       poll(&ready, 1, SCREEN_MS) == 1) {
		/* A byte a time: the rest is the next screen's. */
		if (read(fd, text + used, 1) != 1)
			break;
		used++;
	}
	scenario_check(end != NULL, "no screen within %d ms", SCREEN_MS);
	*end = '\0';
	text = strstr(text, "kvpull_top");
	scenario_check(text != NULL, "the screen does not say what it is");
	return text;
}

/* q ends it, and the terminal is given back. */
static void screen_end(int fd, pid_t child, char *text)
{
	size_t used = 0;
	ssize_t got;
	int status = 0;

	scenario_check(write(fd, "q", 1) == 1, "no key");
	memset(text, 0, SCREEN_BYTES);
	for (; used < SCREEN_BYTES - 1; used += (size_t)got) {
		got = read(fd, text + used, SCREEN_BYTES - 1 - used);
		if (got <= 0)
			break;
	}
	scenario_check(waitpid(child, &status, 0) == child && !status,
		       "q does not end it");
	scenario_check(strstr(text, "\033[?25h\033[?1049l") != NULL,
		       "the terminal is not given back");
	(void)close(fd);
}

void top_capture(const struct top_folder *folder, uint32_t columns,
		 uint32_t lines, const char *keys, const char *words)
{
	static char text[SCREEN_BYTES];
	const uint64_t until = engine_now_ns() + 10 * SCENARIO_NS_PER_S;
	const size_t bytes = strlen(keys);
	int fd;
	const pid_t child = screen_start(folder, columns, lines, &fd);
	char *screen = screen_read(fd, text);

	scenario_check(write(fd, keys, bytes) == (ssize_t)bytes, "no keys");
	/* The next screen may have been drawn before the keys were read. */
	while (*keys && !strstr(screen, words) && engine_now_ns() < until)
		screen = screen_read(fd, text);
	scenario_check(screen_check(screen, columns, lines, words),
		       "no line begins with 80 columns that have \"%s\"",
		       words);
	screen_end(fd, child, text);
}

void top_captures(const struct top_folder *folder, const char *words)
{
	top_capture(folder, 80, 24, "", words);
	top_capture(folder, 120, 40, "", words);
	top_capture(folder, 200, 50, "", words);
}

/* "# ...", "name number" or "name{label="value",...} number". */
static void metric_check(const char *line)
{
	const size_t name = strspn(line, "abcdefghijklmnopqrstuvwxyz_");
	const char *end =
		line[name] == '{' ? strstr(line, "\"} ") : line + name - 2;
	char *rest;

	if (!strncmp(line, "# HELP kvpull_", 14) ||
	    !strncmp(line, "# TYPE kvpull_", 14))
		return;
	scenario_check(!strncmp(line, "kvpull_", 7) && end && end[2] == ' ',
		       "no metric: %s", line);
	(void)strtod(end + 3, &rest);
	scenario_check(!*rest, "no number: %s", line);
}

static uint32_t metrics_check(char *text, const char *has)
{
	uint32_t found = 0;
	uint32_t count = 0;
	char *line;
	char *next;

	for (line = text; *line; line = next + 1, count++) {
		next = strchr(line, '\n');
		scenario_check(next != NULL, "the last line has no end");
		*next = '\0';
		metric_check(line);
		found += !strncmp(line, has, strlen(has));
	}
	scenario_check(found, "no %s", has);
	return count;
}

void top_metrics_check(const struct top_folder *folder, const char *has)
{
	static char text[METRICS_BYTES];
	char path[128];
	FILE *file;

	(void)snprintf(path, sizeof(path), "%s/kvpull.prom", folder->path);
	scenario_check(!top_run(folder, "--once", "--prometheus-file", path),
		       "kvpull_top --prometheus-file failed");
	file = fopen(path, "re");
	scenario_check(file != NULL, "no %s", path);
	text[fread(text, 1, sizeof(text) - 1, file)] = '\0';
	(void)fclose(file);
	scenario_say(", %u lines of metrics", metrics_check(text, has));
}

static const char *text_of(const json_t *object, const char *key)
{
	const char *text = json_string_value(json_object_get(object, key));

	return text ? text : "";
}

static double real_of(const json_t *object, const char *key)
{
	return json_number_value(json_object_get(object, key));
}

/* The members that the format wants of each phase that we write. */
static void event_check(const json_t *event)
{
	const char *phase = text_of(event, "ph");

	scenario_check(strlen(phase) == 1 && strchr("XMisf", *phase),
		       "phase %s", phase);
	scenario_check(*text_of(event, "name") &&
			       json_is_integer(json_object_get(event, "pid")) &&
			       json_is_integer(json_object_get(event, "tid")) &&
			       json_is_number(json_object_get(event, "ts")) &&
			       real_of(event, "ts") >= 0,
		       "an event without name, pid, tid or ts");
	if (*phase == 'X')
		scenario_check(json_is_number(json_object_get(event, "dur")) &&
				       real_of(event, "dur") >= 0,
			       "a span without its time");
	if (*phase == 's' || *phase == 'f')
		scenario_check(*text_of(event, "id"), "an arrow without id");
	if (*phase == 'i')
		scenario_check(strchr("gpt", *text_of(event, "s")) != NULL,
			       "an instant without scope");
	if (*phase == 'M')
		scenario_check(json_is_object(json_object_get(event, "args")),
			       "metadata without args");
}

static int is_same_request(const json_t *one, const json_t *other)
{
	return json_equal(json_object_get(json_object_get(one, "args"),
					  "incarnation"),
			  json_object_get(json_object_get(other, "args"),
					  "incarnation")) &&
	       json_equal(json_object_get(json_object_get(one, "args"), "slot"),
			  json_object_get(json_object_get(other, "args"),
					  "slot")) &&
	       json_equal(json_object_get(json_object_get(one, "args"),
					  "generation"),
			  json_object_get(json_object_get(other, "args"),
					  "generation"));
}

/*
 * 1: the hold that it read is over there, and the pull lies within it: to the
 * microsecond, since a double does not hold the nanoseconds of today.
 */
static int has_hold(const json_t *events, const json_t *pull)
{
	const json_t *event;
	size_t at;

	json_array_foreach(events, at, event)
	{
		if (strcmp(text_of(event, "name"), "hold") != 0 ||
		    !is_same_request(event, pull))
			continue;
		return real_of(event, "pid") != real_of(pull, "pid") &&
		       real_of(event, "ts") + real_of(event, "dur") + 1 >=
			       real_of(pull, "ts") + real_of(pull, "dur") &&
		       real_of(event, "ts") - 1 <= real_of(pull, "ts");
	}
	return 0;
}

static uint32_t arrows(const json_t *events, const char *phase)
{
	const json_t *event;
	uint32_t count = 0;
	size_t at;

	json_array_foreach(events, at, event) count +=
		!strcmp(text_of(event, "ph"), phase);
	return count;
}

uint32_t top_trace_check(const json_t *trace, uint32_t pulls)
{
	const json_t *events = json_object_get(trace, "traceEvents");
	const json_t *event;
	uint32_t joined = 0;
	size_t at;

	scenario_check(json_is_array(events), "no traceEvents");
	json_array_foreach(events, at, event)
	{
		event_check(event);
		if (!strcmp(text_of(event, "ph"), "X") &&
		    !strcmp(text_of(event, "name"), "pull"))
			joined += (uint32_t)has_hold(events, event);
	}
	scenario_check(joined == pulls, "%u of %u pulls lie within their holds",
		       joined, pulls);
	scenario_check(arrows(events, "s") == pulls &&
			       arrows(events, "f") == pulls,
		       "%u arrows begin, %u end", arrows(events, "s"),
		       arrows(events, "f"));
	return (uint32_t)json_array_size(events);
}
