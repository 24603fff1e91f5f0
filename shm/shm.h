/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The same-node route: implements the seam (base/transport.h) over Unix
 * SEQPACKET sockets in a folder, memfds handed over with SCM_RIGHTS, rings and
 * the fast copy.
 */
#ifndef KVPULL_SHM_SHM_H
#define KVPULL_SHM_SHM_H

#include "base/arena.h"
#include "shm/params.h"

/*
 * 0, KVPULL_ENOMEM, KVPULL_EDEVICE; that of a device which is required. Waits for
 * its driver, KVPULL_DEVICE_HANG_NS at most.
 */
int KVPULL_MUST_CHECK kvpull_shm_open(const struct kvpull_shm_params *params,
				      struct kvpull_arena *arena,
				      struct kvpull_transport **transport);

#endif /* KVPULL_SHM_SHM_H */
