/* SPDX-License-Identifier: Apache-2.0 */
/* A port of an RDMA device, as the kernel's files describe it. */
#ifndef KVPULL_TOOLS_KVPULL_DOCTOR_PORT_H
#define KVPULL_TOOLS_KVPULL_DOCTOR_PORT_H

#include <arpa/inet.h>

#include "tools/kvpull_doctor_parts.h"
#include "verbs/gid.h"

#define CLASS "/sys/class/infiniband"
#define DOCTOR_PORTS_MAX 32u
#define DOCTOR_GIDS_MAX 1024u

struct doctor_gid {
	uint32_t index;
	enum kvpull_gid_rank rank;
	char address[INET6_ADDRSTRLEN];
};

struct doctor_port {
	char device[64];
	char folder[DOCTOR_PATH_BYTES_MAX]; /* of the port, below root */
	char netdev[64];
	char rate[64];
	uint32_t number;
	uint32_t is_active;
	uint32_t is_infiniband;
	uint32_t is_iwarp;
	uint32_t is_near;
	uint32_t is_absent; /* its node is: a container was not given it */
	int numa_node;
	uint32_t mtu_bytes; /* 0: not told */
	long long netdev_mtu_bytes;
	uint32_t gid_count;
	struct doctor_gid gids[DOCTOR_GIDS_MAX];
	struct doctor_gid gid; /* the best that is asked for; rank NONE: none */
};

struct doctor_ports {
	struct doctor_port list[DOCTOR_PORTS_MAX];
	uint32_t count;
};

/* Devices that are asked for, names or patterns; "": any. */
const char *doctor_devices_wanted(const struct doctor *doctor);
/*
 * Says which port a worker would open, by its configuration, and why. NULL: it
 * would open none.
 */
const struct doctor_port *doctor_choose(struct doctor *doctor,
					struct doctor_ports *ports);
/* 1: connections of the port go by GIDs of RoCE v1, as the kernel is set. */
int doctor_cm_is_v1(const struct doctor *doctor,
		    const struct doctor_port *port);
/* Says where connections go by another GID than the chosen one. */
void doctor_cm_mode(struct doctor *doctor, const struct doctor_port *port);
/* Says what a fork() does to memory that a device has registered. */
void doctor_fork(struct doctor *doctor);
/* 1: a container was not given the device: libibverbs does not list it. */
int doctor_is_absent(const struct doctor *doctor, const char *device);
/* Libraries, providers and rights that a device needs; NULL: none is chosen. */
void doctor_rights(struct doctor *doctor, const char *device);

#endif /* KVPULL_TOOLS_KVPULL_DOCTOR_PORT_H */
