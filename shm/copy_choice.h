/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chooses which routine copies which size on this CPU: the configured one, else
 * the one that was measured and is remembered in the socket folder, else a
 * default by CPU. Nothing is measured here: kvpull_doctor_calibrate.c does.
 *
 * All workers of a node share the folder, also from containers. The file in it
 * is data: its author can at most choose a slower routine.
 */
#ifndef KVPULL_SHM_COPY_CHOICE_H
#define KVPULL_SHM_COPY_CHOICE_H

#include "shm/copy_plan.h"
#include "shm/folder.h"

#define KVPULL_COPY_CHOICE_FILE "copy-routines"
#define KVPULL_COPY_CHOICE_BYTES_MAX 512u

/*
 * Chooses, and says in one line what and why. routine: its name; NULL or "": not
 * configured; folder: open, NULL: nothing is remembered. 0, KVPULL_EINVAL (the
 * name).
 */
int KVPULL_MUST_CHECK kvpull_copy_choose(const char *routine,
					 const struct kvpull_folder *folder,
					 struct kvpull_copy_choices *choices,
					 const struct kvpull_log *log);

/*
 * Loads the remembered choices from an open folder. Returns 0, or
 * KVPULL_EROUTE: the folder has none, or none that can be used, which is
 * logged.
 */
int KVPULL_MUST_CHECK
kvpull_copy_choice_load(const struct kvpull_folder *folder,
			struct kvpull_copy_choices *choices,
			const struct kvpull_log *log);

/* In its place, whole or not at all. 0; KVPULL_EDEVICE (logged). */
int KVPULL_MUST_CHECK
kvpull_copy_choice_save(const struct kvpull_folder *folder,
			const struct kvpull_copy_choices *choices,
			const struct kvpull_log *log);

/* "1 KiB avx2-nt-next, 4 KiB avx2-nt-8, ..." */
void kvpull_copy_choices_print(const struct kvpull_copy_choices *choices,
			       char *text, size_t capacity);

/* Returns a routine that this CPU can run, or NULL. */
const struct kvpull_copy_routine *kvpull_copy_routine_named(const char *name);

#endif /* KVPULL_SHM_COPY_CHOICE_H */
