/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks a worker's configuration and socket folder with the library's own
 * functions, and tries a socket there. Finds where its status file would lie,
 * and which copy routines the folder remembers.
 */
#include "tools/kvpull_doctor_parts.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "plugin/config/config.h"
#include "plugin/status/status.h"
#include "shm/copy_choice.h"
#include "shm/folder.h"
#include "tools/kvpull_doctor_calibrate.h"

/* ---- the configuration ---- */

static struct kvpull_config config;

/* Loads the environment, as workers do, and --socket-dir. */
void doctor_config(struct doctor *doctor)
{
	struct kvpull_error_detail detail = { .struct_size = sizeof(detail) };
	json_t *object = json_pack("{s:s*}", "socket_dir", doctor->socket_dir);
	char *json = json_dumps(object, 0);

	if (!json) {
		doctor_say(doctor, SAY_CONFIG_NOT_UTF8);
	} else if (kvpull_config_load(&config, json, &detail)) {
		doctor_say(doctor, SAY_CONFIG_REFUSED, detail.message);
	} else {
		doctor->socket_dir = config.socket_dir;
		doctor->config = &config;
	}
	free(json);
	json_decref(object);
}

/* ---- the folder of the sockets ---- */

static struct kvpull_folder folder_of_config(void)
{
	return (struct kvpull_folder){
		.path = config.socket_dir,
		.users = kvpull_config_users(&config),
		.fd = -1,
	};
}

/* By the folder's descriptor, as workers do: its name may be long. 0 or errno. */
static int socket_try(int folder_fd)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	int why = 0;

	if (fd < 0)
		return errno;
	(void)snprintf(address.sun_path, sizeof(address.sun_path),
		       "/proc/self/fd/%d/doctor-%u", folder_fd,
		       (unsigned int)getpid());
	if (bind(fd, (struct sockaddr *)&address, sizeof(address)))
		why = errno;
	else
		(void)unlink(address.sun_path);
	(void)close(fd);
	return why;
}

/* A worker makes the last folder of the path, and none above it. */
static void missing_judge(struct doctor *doctor)
{
	char parent[sizeof(config.socket_dir)];
	const char *folder = doctor->socket_dir;

	(void)snprintf(parent, sizeof(parent), "%s", folder);
	while (strlen(parent) > 1 && parent[strlen(parent) - 1] == '/')
		parent[strlen(parent) - 1] = '\0';
	strrchr(parent, '/')[1] = '\0';
	if (faccessat(AT_FDCWD, parent, W_OK | X_OK, AT_EACCESS))
		doctor_say(doctor, SAY_SOCKETS_NO_PARENT, folder, parent,
			   strerror(errno));
	else
		doctor_say(doctor, SAY_SOCKETS_TO_MAKE, folder);
}

void doctor_sockets(struct doctor *doctor)
{
	const char *path = config.socket_dir;
	struct kvpull_folder folder = folder_of_config();
	char line[DOCTOR_TEXT_BYTES_MAX] = "";
	const struct kvpull_log log = doctor_log(line);
	struct stat info = { 0 };
	int refused;
	int why;

	if (lstat(path, &info) && errno == ENOENT) {
		missing_judge(doctor);
		return;
	}
	refused = kvpull_folder_open(&folder, &log);
	why = refused ? 0 : socket_try(folder.fd);
	kvpull_folder_close(&folder);
	if (refused) {
		doctor_say(doctor, SAY_SOCKETS_REFUSED, line,
			   S_ISLNK(info.st_mode) ? " (a symbolic link)" : "");
		return;
	}
	if (*line)
		doctor_say(doctor, SAY_SOCKETS_DOUBT, line);
	if (why) {
		doctor_say(doctor, SAY_SOCKETS_NO_SOCKET, path, strerror(why));
		return;
	}
	if (info.st_mode & S_IWOTH) {
		doctor_say(doctor, SAY_SOCKETS_OF_MANY, path,
			   info.st_mode & 07777);
	} else if (info.st_mode & S_IWGRP) {
		doctor_say(doctor, SAY_SOCKETS_OF_GROUP, path,
			   info.st_mode & 07777, path);
	}
	doctor_say(doctor, SAY_SOCKETS, path);
}

/* ---- users of other user namespaces ---- */

void doctor_users(struct doctor *doctor)
{
	struct kvpull_users users = kvpull_config_users(&config);
	char uid_map[64];
	char overflow_uid[32];

	if (doctor->root[0]) { /* a machine that is a folder */
		const struct doctor_file map =
			doctor_at(doctor, "/proc/self/uid_map");

		(void)doctor_read(map, uid_map, sizeof(uid_map));
		if (!doctor_exists(map) ||
		    !doctor_read(
			    doctor_at(doctor, "/proc/sys/kernel/overflowuid"),
			    overflow_uid, sizeof(overflow_uid))) {
			doctor_say(doctor,
				   SAY_NOT_SEEN(DOCTOR_UNKNOWN, "users"),
				   doctor->root, "/proc/self/uid_map");
			return;
		}
		kvpull_users_parse(&users, uid_map, overflow_uid);
	}
	if (kvpull_users_lack_key(&users))
		doctor_say(doctor, SAY_USERS_LACK_KEY, users.unknown,
			   users.unknown,
			   kvpull_users_doubt(&users, users.unknown));
	else if (users.has_unknown)
		doctor_say(doctor, SAY_USERS_UNKNOWN, users.unknown,
			   users.unknown);
}

/* ---- the status file ---- */

/* Makes a status file, as a worker does, and removes it. */
void doctor_status(struct doctor *doctor)
{
	char why[DOCTOR_TEXT_BYTES_MAX] = "";
	const struct kvpull_log log = doctor_log(why);
	const struct kvpull_status_params params = {
		.log = &log,
		.config = &config,
		.engine_id = "kvpull_doctor",
		.incarnation = kvpull_clock_ns(),
		.now_ns = kvpull_clock_ns(),
		.rank_count = 1,
		.caller_count_max = config.consumers_max,
	};
	struct kvpull_status status;
	struct stat info;

	/* A worker would make the folder, and it would be the worker's. */
	if (lstat(config.socket_dir, &info))
		return;
	if (config.status == KVPULL_STATUS_OFF) {
		doctor_say(doctor, SAY_STATUS_OFF);
		return;
	}
	if (kvpull_status_open(&status, &params) || !status.path[0]) {
		doctor_say(doctor, SAY_STATUS_NOT, why);
	} else {
		(void)unlink(status.path);
		*strrchr(status.path, '/') = '\0';
		doctor_say(doctor, SAY_STATUS, (double)status.bytes / (1 << 20),
			   status.path);
	}
	kvpull_status_close(&status);
}

/* ---- the copy routines ---- */

/* Log lines of the library on its choice, and on a file that it ignores. */
struct copy_lines {
	char chosen[DOCTOR_TEXT_BYTES_MAX];
	char wrong[DOCTOR_TEXT_BYTES_MAX];
};

static void keep_copy_line(void *context, uint32_t level, const char *message)
{
	struct copy_lines *lines = context;

	(void)snprintf(level == KVPULL_LOG_INFO ? lines->chosen : lines->wrong,
		       DOCTOR_TEXT_BYTES_MAX, "%s", message);
}

static void calibrate(struct doctor *doctor, struct kvpull_folder *folder,
		      const struct kvpull_log *log)
{
	const struct copy_lines *lines = log->context;
	struct kvpull_copy_choices choices;
	int code = doctor_calibrate(&choices);

	if (code) {
		doctor_say(
			doctor, SAY_CALIBRATION_NOT,
			code == KVPULL_EAGAIN ?
				"this machine is too busy" :
				"there are no 256 MiB of memory for it",
			code == KVPULL_EDEVICE ?
				"see huge pages and file size, and try again" :
				"try again later");
		return;
	}
	if (kvpull_folder_make(folder, log) ||
	    kvpull_copy_choice_save(folder, &choices, log))
		doctor_say(doctor, SAY_CALIBRATION_LOST, lines->wrong);
}

void doctor_copy(struct doctor *doctor)
{
	static struct copy_lines lines;
	const struct kvpull_log log = { .write = keep_copy_line,
					.context = &lines,
					.level = KVPULL_LOG_INFO };
	struct kvpull_folder folder = folder_of_config();
	struct kvpull_copy_choices choices;
	int is_open;

	if (doctor->calibrate)
		calibrate(doctor, &folder, &log);
	/* A folder that is not safe was told already. */
	is_open = !kvpull_folder_open(&folder, &log);
	lines = (struct copy_lines){ 0 };
	if (kvpull_copy_choose(config.copy_routine, is_open ? &folder : NULL,
			       &choices, &log))
		doctor_say(doctor, SAY_COPY_NOT, lines.wrong, lines.wrong);
	else
		doctor_say(doctor,
			   SAY_COPY(lines.wrong[0] ? DOCTOR_WARN : DOCTOR_OK),
			   lines.chosen, lines.wrong);
	kvpull_folder_close(&folder);
}
