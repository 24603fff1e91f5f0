/* SPDX-License-Identifier: Apache-2.0 */
/* How the same-node route is to be opened: see shm.h. */
#ifndef KVPULL_SHM_PARAMS_H
#define KVPULL_SHM_PARAMS_H

#include "base/device.h"
#include "base/transport.h"
#include "base/users.h"
#include "shm/file.h"
#include "shm/uring.h"

struct kvpull_shm_params {
	const struct kvpull_log *log;
	const char *socket_dir; /* made with mode 0700 if missing */
	const char *name;       /* own socket's file name; [A-Za-z0-9._-]+ */
	uint32_t peers_max;
	uint32_t callers_max; /* let in at once; others wait beside them */
	uint32_t ring_records;
	uint32_t reads_max; /* read->index is below it */
	uint32_t copy_threads;
	const char *copy_routine; /* its name; NULL or "": chosen at open */
	uint32_t poll_copies; /* poll() copies too; without threads, always */
	/* Reads up to this, at most 128 KiB, are copied by the owner's thread. */
	uint32_t inline_bytes;
	uint64_t connect_ns;  /* handshake must end within this */
	uint32_t socket_mode; /* of the socket's file; 0: as the umask says */
	/*
	 * Users who are let in; they may own the folder, too, beside root and
	 * our own. None: our own alone.
	 */
	struct kvpull_users users;
	_Atomic uint64_t *refused;     /* counts callers turned away; or NULL */
	struct kvpull_give_sink given; /* what those give back */
	enum kvpull_uring_mode uring;  /* reads of file regions */
	enum kvpull_file_thread file_thread; /* where there is no io_uring */
	enum kvpull_file_direct file_direct; /* DIRECT_NO: for tests */
	kvpull_device_open_fn device_open;   /* NULL: no device is opened */
	int device_index;                    /* for it */
	uint32_t device_required; /* 0: the route opens without one, too */
};

#endif /* KVPULL_SHM_PARAMS_H */
