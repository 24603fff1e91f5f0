/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Facts of the kernel about the chosen port that no key decides: which kind of
 * GID connections go by, and what becomes of pinned pages at fork().
 */
#include "tools/kvpull_doctor_port.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MODE "/sys/kernel/config/rdma_cm/%s/ports/%u/default_roce_mode"

/* ---- RoCE v1 or v2 ---- */

/* GIDs of RoCE v1 are read as IPv6 addresses, IPv4 ones as well. */
static const char *plain(const char *address)
{
	return strncmp(address, "::ffff:", 7) == 0 ? address + 7 : address;
}

int doctor_cm_is_v1(const struct doctor *doctor, const struct doctor_port *port)
{
	char mode[32];
	uint32_t at;

	if (port->is_infiniband)
		return 0;
	/*
	 * The file appears once somebody makes the device's folder in configfs.
	 * Until then the kernel takes RoCE v2 where the port has such GIDs.
	 */
	if (doctor_read(doctor_at(doctor, MODE, port->device, port->number),
			mode, sizeof(mode)))
		return strncmp(mode, "RoCE v2", 7) != 0;
	for (at = 0; at < port->gid_count; at++)
		if (port->gids[at].rank != KVPULL_GID_V1)
			return 0;
	return 1;
}

/* The GID of that kind with the port's address; NULL: there is none. */
static const struct doctor_gid *twin_of(const struct doctor_port *port,
					int cm_is_v1)
{
	uint32_t at;

	for (at = 0; at < port->gid_count; at++) {
		const struct doctor_gid *gid = &port->gids[at];

		if ((gid->rank == KVPULL_GID_V1) == cm_is_v1 &&
		    strcmp(plain(gid->address), plain(port->gid.address)) == 0)
			return gid;
	}
	return NULL;
}

void doctor_cm_mode(struct doctor *doctor, const struct doctor_port *port)
{
	const int cm_is_v1 = doctor_cm_is_v1(doctor, port);
	const char *kind = cm_is_v1 ? "RoCE v1" : "RoCE v2";
	const struct doctor_gid *twin = twin_of(port, cm_is_v1);
	char advice[DOCTOR_TEXT_BYTES_MAX] =
		"unset verbs_gid_index: verbs_address names the address, and its RoCE v2 GID follows";

	if (port->is_infiniband ||
	    cm_is_v1 == (port->gid.rank == KVPULL_GID_V1))
		return;
	if (cm_is_v1)
		(void)snprintf(
			advice, sizeof(advice),
			"no router carries RoCE v1; on all hosts: echo 'RoCE v2' >" MODE,
			port->device, port->number);
	if (!twin)
		doctor_say(doctor, SAY_CM_HAS_NO_GID, port->device, kind,
			   port->gid.address, port->gid.index, advice);
	else
		doctor_say(doctor,
			   SAY_CM_BY_OTHER_GID(cm_is_v1 ? DOCTOR_WARN :
							  DOCTOR_NOTE),
			   port->device, kind, twin->index, port->gid.index,
			   advice);
}

/* ---- fork() ---- */

/*
 * Since 5.12 a child's copy of a pinned page is made at fork(). kvpull's own KV
 * memory is shared: there a fork() copies nothing.
 */
void doctor_fork(struct doctor *doctor)
{
	char release[64];

	if (doctor->route == KVPULL_ROUTE_PIN_SHM ||
	    !doctor_read(doctor_at(doctor, "/proc/sys/kernel/osrelease"),
			 release, sizeof(release)) ||
	    !doctor_is_older(release, 5, 12))
		return;
	if (getenv("RDMAV_FORK_SAFE") || getenv("IBV_FORK_SAFE"))
		doctor_say(doctor, SAY_FORK_SAFE, release);
	else
		doctor_say(doctor, SAY_FORK_UNSAFE, release);
}
