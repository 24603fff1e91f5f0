/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Libraries, providers and rights that an RDMA device needs of a process
 * besides itself: what containers lack.
 */
#include "tools/kvpull_doctor_port.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "verbs/fabric.h"

#define NODES "/sys/class/infiniband_verbs"

/* ---- libraries ---- */

/* Loads them as the library does: 0, or it is said what is missing. */
static int libraries(struct doctor *doctor, struct kvpull_fabric *fabric)
{
	char why[DOCTOR_TEXT_BYTES_MAX] = "";
	const struct kvpull_log log = doctor_log(why);

	if (!kvpull_fabric_load(fabric, &log, KVPULL_LOG_WARN)) {
		doctor_say(doctor, SAY_LIBRARIES);
		return 0;
	}
	doctor_say(
		doctor, SAY_LIBRARIES_NOT, why,
		strstr(why, "too old") ?
			"rdma-core 24 or later: libibverbs1, librdmacm1 and ibverbs-providers, all of one version" :
			"apt-get install libibverbs1 librdmacm1 ibverbs-providers");
	return -1;
}

/* ---- providers ---- */

/* Why libibverbs may know no device though the kernel has one; NULL: it may. */
static const char *providers_lack(const struct doctor *doctor)
{
	if (!doctor_matches(doctor_at(doctor, "/etc/libibverbs.d/*.driver")))
		return "/etc/libibverbs.d names no provider";
	if (!doctor_matches(
		    doctor_at(doctor, "/usr/lib*/libibverbs/*-rdmav*.so")) &&
	    !doctor_matches(
		    doctor_at(doctor, "/usr/lib*/*/libibverbs/*-rdmav*.so")))
		return "there is no provider's library, libibverbs/*-rdmav*.so";
	return NULL;
}

static int is_listed(const struct kvpull_fabric *fabric, const char *device)
{
	int count = 0;
	struct ibv_context **list = fabric->cm.get_devices(&count);
	int found = 0;

	while (list && count--)
		found |=
			strcmp(fabric->ibv.get_device_name(list[count]->device),
			       device) == 0;
	if (list)
		fabric->cm.free_devices(list);
	return found;
}

/* The library itself is asked where it sees the same machine as we do. */
static void providers(struct doctor *doctor, const struct kvpull_fabric *fabric,
		      const char *device)
{
	const char *lack = providers_lack(doctor);

	if (doctor->root[0] ? !lack || !doctor_sees(doctor, "/etc") :
			      is_listed(fabric, device))
		return;
	doctor_say(doctor, SAY_PROVIDERS_NOT, device,
		   lack ? lack :
			  "its provider is missing or of another version");
}

/* ---- rights ---- */

/*
 * Finds a device's ib_uverbs node, "uverbs3"; 0, or -1: the kernel does not
 * say.
 */
static int node_find(const struct doctor *doctor, const char *device,
		     char node[DOCTOR_NAME_BYTES])
{
	char owner[64];
	uint32_t index;

	for (index = 0;
	     !doctor_entry(doctor_at(doctor, NODES), "", index, node);
	     index++) {
		(void)doctor_read(doctor_at(doctor, NODES "/%s/ibdev", node),
				  owner, sizeof(owner));
		if (strcmp(owner, device) == 0)
			return 0;
	}
	return -1;
}

/* 0, or it is said what cannot be opened. */
static int character_devices(struct doctor *doctor, const char *device)
{
	char node[DOCTOR_NAME_BYTES];
	const char *const names[] = { "rdma_cm", node };
	uint32_t i;

	/* Any one, where the kernel does not say whose it is. */
	if ((!device || node_find(doctor, device, node)) &&
	    doctor_entry(doctor_at(doctor, "/dev/infiniband"), "uverbs", 0,
			 node))
		(void)snprintf(node, sizeof(node), "uverbs0");
	for (i = 0; i < 2; i++) {
		const struct doctor_file path =
			doctor_at(doctor, "/dev/infiniband/%s", names[i]);

		if (access(path.text, R_OK | W_OK) == 0)
			continue;
		doctor_say(
			doctor, SAY_RIGHTS_NOT, names[i], strerror(errno),
			errno == ENOENT ?
				"modprobe ib_uverbs rdma_ucm; in a container: --device /dev/infiniband" :
				"add the user to the group of that file");
		return -1;
	}
	doctor_say(doctor, SAY_RIGHTS);
	return 0;
}

int doctor_is_absent(const struct doctor *doctor, const char *device)
{
	char node[DOCTOR_NAME_BYTES];

	return !node_find(doctor, device, node) &&
	       !doctor_exists(doctor_at(doctor, "/dev/infiniband/%s", node));
}

void doctor_rights(struct doctor *doctor, const char *device)
{
	static struct kvpull_fabric fabric;
	const int lacks_libraries = libraries(doctor, &fabric);
	const int lacks_rights = character_devices(doctor, device);

	if (device && !lacks_libraries && (doctor->root[0] || !lacks_rights))
		providers(doctor, &fabric, device);
}
