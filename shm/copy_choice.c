/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file is lines: what it is, the library's version, the CPU, and a routine
 * a size. It counts only if it is exactly that, of this version and CPU, and of
 * a user whom the folder's rules trust: a routine that was measured elsewhere
 * is no better than a default.
 */
#include "shm/copy_choice.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "base/cause.h"
#include "base/fd.h"

#define MAGIC "kvpull copy routines: 1, 4, 16, 64 KiB, longer"
#define CPU_BYTES 96u

enum file_line {
	LINE_MAGIC = 0,
	LINE_VERSION,
	LINE_CPU,
	LINE_ROUTINES,
	LINES = LINE_ROUTINES + KVPULL_COPY_CLASSES
};

static const uint32_t class_kib[KVPULL_COPY_CLASSES] = {
	[KVPULL_COPY_1K] = 1,     [KVPULL_COPY_4K] = 4,
	[KVPULL_COPY_16K] = 16,   [KVPULL_COPY_64K] = 64,
	[KVPULL_COPY_LONG] = 256,
};

const struct kvpull_copy_routine *kvpull_copy_routine_named(const char *name)
{
	uint32_t count;
	const struct kvpull_copy_routine *all = kvpull_copy_routines(&count);
	uint32_t i;

	for (i = 0; i < count; i++)
		if (!strcmp(all[i].name, name) && kvpull_copy_usable(&all[i]))
			return &all[i];
	return NULL;
}

void kvpull_copy_choices_print(const struct kvpull_copy_choices *choices,
			       char *text, size_t capacity)
{
	size_t used = 0;
	uint32_t class;

	text[0] = '\0';
	for (class = 0; class < KVPULL_COPY_CLASSES && used < capacity;
	     class ++)
		used += (size_t)snprintf(text + used, capacity - used,
					 "%s%u KiB %s", class ? ", " : "",
					 class_kib[class],
					 choices->routines[class]->name);
}

/* The model, and its number: hypervisors shorten the name. */
static void cpu_name(char text[CPU_BYTES])
{
#if defined(__x86_64__)
	uint32_t words[13] = { 0 }; /* 48 bytes of name, NUL */
	uint32_t number = 0;
	uint32_t part, rest[3];

	(void)__get_cpuid(1, &number, &rest[0], &rest[1], &rest[2]);
	for (part = 0; part < 3; part++)
		(void)__get_cpuid(0x80000002u + part, &words[4 * part],
				  &words[4 * part + 1], &words[4 * part + 2],
				  &words[4 * part + 3]);
	(void)snprintf(text, CPU_BYTES, "cpu %08x %s", number,
		       (const char *)words);
#else
	struct utsname name = { .machine = "unknown" };

	(void)uname(&name);
	(void)snprintf(text, CPU_BYTES, "cpu %.64s", name.machine);
#endif
}

/*
 * Choices measured by hand for known CPUs; the first that this CPU can run
 * counts.
 */
static void choose_default(struct kvpull_copy_choices *choices)
{
	static const struct {
		const char *short_spans, *others;
	} names[] = { { "avx512-nt-next", "avx512-nt-4" },
		      { "avx2-nt-next", "avx2-nt-4" },
		      { "memcpy", "memcpy" } };
	uint32_t i = 0;

	while (!kvpull_copy_routine_named(names[i].others))
		i++;
	kvpull_copy_choices_set(choices,
				kvpull_copy_routine_named(names[i].others));
	choices->routines[KVPULL_COPY_1K] =
		kvpull_copy_routine_named(names[i].short_spans);
}

static int choose_named(const char *name, struct kvpull_copy_choices *choices,
			const struct kvpull_log *log)
{
	const struct kvpull_copy_routine *routine =
		kvpull_copy_routine_named(name);

	if (!routine) {
		kvpull_error(
			log,
			"copy_routine %s: this CPU has none of that name: use memcpy, avx2-nt-4, avx512-nt-4 or (aarch64) neon-nt-4, or leave it empty",
			name);
		return KVPULL_EINVAL;
	}
	kvpull_copy_choices_set(choices, routine);
	return 0;
}

int kvpull_copy_choose(const char *routine, const struct kvpull_folder *folder,
		       struct kvpull_copy_choices *choices,
		       const struct kvpull_log *log)
{
	const char *why = "by default, kvpull_doctor --calibrate measures";
	char text[KVPULL_COPY_CHOICE_BYTES_MAX];
	int code = 0;

	if (routine && routine[0]) {
		why = "as copy_routine says";
		code = choose_named(routine, choices, log);
	} else if (folder && !kvpull_copy_choice_load(folder, choices, log)) {
		why = "remembered in the socket folder";
	} else {
		choose_default(choices);
	}
	if (code)
		return code;
	kvpull_copy_choices_print(choices, text, sizeof(text));
	kvpull_info(log, "copy routines: %s; %s", text, why);
	return 0;
}

/* Reads the file. Returns NULL, or why not. */
static const char *file_read(int fd, const struct kvpull_folder *folder,
			     char text[KVPULL_COPY_CHOICE_BYTES_MAX + 1],
			     size_t *byte_count)
{
	struct stat status;
	ssize_t got;

	if (fstat(fd, &status))
		return "it cannot be looked at";
	if (!S_ISREG(status.st_mode))
		return "it is no plain file";
	if (!kvpull_folder_trusts(folder, status.st_uid))
		return "it belongs to another user";
	if (status.st_mode & (S_IWGRP | S_IWOTH))
		return "others may write it";
	got = read(fd, text, KVPULL_COPY_CHOICE_BYTES_MAX + 1);
	if (got < 0)
		return "it cannot be read";
	if (got > (ssize_t)KVPULL_COPY_CHOICE_BYTES_MAX)
		return "it is too large";
	*byte_count = (size_t)got;
	return NULL;
}

/* 0: exactly that many lines, which end with a newline each. */
static int lines_split(char *text, size_t byte_count, const char *lines[LINES])
{
	char *at = text;
	uint32_t line;

	for (line = 0; line < LINES; line++) {
		char *end = memchr(at, '\n', (size_t)(text + byte_count - at));

		if (!end)
			return -1;
		*end = '\0';
		lines[line] = at;
		at = end + 1;
	}
	return at == text + byte_count ? 0 : -1;
}

/* NULL, or why not. */
static const char *choice_decode(char *text, size_t byte_count,
				 struct kvpull_copy_choices *choices)
{
	struct kvpull_copy_choices read;
	const char *lines[LINES];
	char cpu[CPU_BYTES];
	uint32_t class;

	if (lines_split(text, byte_count, lines) ||
	    strcmp(lines[LINE_MAGIC], MAGIC) != 0)
		return "it is damaged, or of a version that has other sizes";
	if (strcmp(lines[LINE_VERSION], "version " KVPULL_VERSION) != 0)
		return "another version of kvpull measured it";
	cpu_name(cpu);
	if (strcmp(lines[LINE_CPU], cpu) != 0)
		return "it was measured on another CPU";
	for (class = 0; class < KVPULL_COPY_CLASSES; class ++) {
		read.routines[class] =
			kvpull_copy_routine_named(lines[LINE_ROUTINES + class]);
		if (!read.routines[class])
			return "it names a routine that there is not";
	}
	*choices = read;
	return NULL;
}

int kvpull_copy_choice_load(const struct kvpull_folder *folder,
			    struct kvpull_copy_choices *choices,
			    const struct kvpull_log *log)
{
	char text[KVPULL_COPY_CHOICE_BYTES_MAX + 1];
	size_t byte_count = 0;
	const char *why;
	/* An open of a pipe must not wait. */
	int fd = openat(folder->fd, KVPULL_COPY_CHOICE_FILE,
			O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);

	if (fd < 0 && errno == ENOENT)
		return KVPULL_EROUTE;
	why = fd < 0 ? kvpull_why(FOLDER, errno) :
		       file_read(fd, folder, text, &byte_count);
	kvpull_fd_close(&fd);
	if (!why)
		why = choice_decode(text, byte_count, choices);
	if (!why)
		return 0;
	kvpull_warn(
		log,
		"%s/" KVPULL_COPY_CHOICE_FILE
		" is ignored: %s: remove it, or let kvpull_doctor --calibrate write it anew",
		folder->path, why);
	return KVPULL_EROUTE;
}

static size_t choice_encode(const struct kvpull_copy_choices *choices,
			    char text[KVPULL_COPY_CHOICE_BYTES_MAX])
{
	char cpu[CPU_BYTES];
	size_t used;
	uint32_t class;

	cpu_name(cpu);
	used = (size_t)snprintf(text, KVPULL_COPY_CHOICE_BYTES_MAX,
				MAGIC "\nversion " KVPULL_VERSION "\n%s\n",
				cpu);
	for (class = 0; class < KVPULL_COPY_CLASSES; class ++)
		used += (size_t)snprintf(
			text + used, KVPULL_COPY_CHOICE_BYTES_MAX - used,
			"%s\n", choices->routines[class]->name);
	return used;
}

/* 0; -1 with errno: not all of it was written. */
static int text_write(int fd, const char *text, size_t byte_count)
{
	const ssize_t written = write(fd, text, byte_count);

	if (written == (ssize_t)byte_count)
		return 0;
	/* A part is written where the disk is full. */
	if (written >= 0)
		errno = ENOSPC;
	return -1;
}

int kvpull_copy_choice_save(const struct kvpull_folder *folder,
			    const struct kvpull_copy_choices *choices,
			    const struct kvpull_log *log)
{
	char text[KVPULL_COPY_CHOICE_BYTES_MAX];
	const size_t byte_count = choice_encode(choices, text);
	char name[64];
	int failed;
	int fd;

	(void)snprintf(name, sizeof(name), KVPULL_COPY_CHOICE_FILE ".%d",
		       (int)getpid());
	/* Left by one that was killed: its number is ours now. */
	(void)unlinkat(folder->fd, name, 0);
	fd = openat(folder->fd, name,
		    O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
	failed =
		fd < 0 || text_write(fd, text, byte_count) ||
		fchmod(fd, 0644) ||
		renameat(folder->fd, name, folder->fd, KVPULL_COPY_CHOICE_FILE);
	if (failed) {
		kvpull_error(log, "%s/" KVPULL_COPY_CHOICE_FILE ": %s",
			     folder->path, kvpull_why(FOLDER, errno));
		(void)unlinkat(folder->fd, name, 0);
	}
	kvpull_fd_close(&fd);
	return failed ? KVPULL_EDEVICE : 0;
}
