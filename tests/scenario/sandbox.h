/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Restrictions that an engine's process puts on itself before it opens, each
 * for node_params.before_open. Where this machine forbids a restriction, the
 * case ends as refused.
 */
#ifndef KVPULL_TESTS_SCENARIO_SANDBOX_H
#define KVPULL_TESTS_SCENARIO_SANDBOX_H

/*
 * Mount, IPC, PID, network and host-name namespaces of its own, an empty
 * /dev/shm and /tmp. The socket folder is bound to SANDBOX_FOLDER: the case
 * names it by sandbox_folder_set() before.
 */
#define SANDBOX_UID 65534u
#define SANDBOX_FOLDER "/mnt/kvpull"
void sandbox_folder_set(const char *folder);
void sandbox_container(void);
/* The same, and /dev/shm has 128 KiB. */
void sandbox_container_full(void);
/* The same, and a user namespace where it is root; outside it is no one. */
void sandbox_container_first(void);
void sandbox_container_second(void);
/* Host uids of the two, which own their key files. */
#define SANDBOX_FIRST_UID (SANDBOX_UID - 1)
#define SANDBOX_SECOND_UID (SANDBOX_UID - 2)
/*
 * User SANDBOX_UID of a user namespace that maps 0 .. 65535 to 100000 and on, as a
 * pod's with hostUsers: false. It shares the mounts.
 */
#define SANDBOX_POD_FIRST 100000u
void sandbox_pod(void);

/* Another uid, no rights at all, 8 MiB of memlock. */
void sandbox_nobody(void);

/* io_uring fails with that errno for good. */
void sandbox_uring_eperm(void);
void sandbox_uring_enosys(void);
/* No thread or process can be started. */
void sandbox_no_threads(void);
/* No io_uring, it may not read other processes, and it is nobody. */
void sandbox_strict(void);

#endif /* KVPULL_TESTS_SCENARIO_SANDBOX_H */
