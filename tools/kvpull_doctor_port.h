/* SPDX-License-Identifier: Apache-2.0 */
/* A port of an RDMA device, as the kernel's files describe it. */
#ifndef KVPULL_TOOLS_KVPULL_DOCTOR_PORT_H
#define KVPULL_TOOLS_KVPULL_DOCTOR_PORT_H

#include <arpa/inet.h>

#include "tools/kvpull_doctor_parts.h"
#include "verbs/gid.h"

#define CLASS "/sys/class/infiniband"
#define DOCTOR_PORTS_MAX 32u

struct doctor_port {
	char device[64];
	char netdev[64];
	char address[INET6_ADDRSTRLEN];
	char rate[64];
	uint32_t number;
	uint32_t is_active;
	uint32_t is_infiniband;
	uint32_t is_iwarp;
	uint32_t is_near;
	uint32_t is_absent; /* its node is: a container was not given it */
	uint32_t gid_index; /* the best one */
	uint32_t gid_count;
	enum kvpull_gid_rank rank;
	double gbps;
	int numa_node;
	uint32_t mtu_bytes; /* 0: not told */
	long long netdev_mtu_bytes;
	const json_t *gids; /* of doctor->ports: index, kind, address */
};

struct doctor_ports {
	struct doctor_port list[DOCTOR_PORTS_MAX];
	uint32_t count;
};

/* Says which port a worker would open, by its configuration, and why. */
void doctor_choose(struct doctor *doctor, struct doctor_ports *ports);
/* 1: connections of the port go by GIDs of RoCE v1, as the kernel is set. */
int doctor_cm_is_v1(const struct doctor *doctor,
		    const struct doctor_port *port);
/* Says where connections go by another GID than the chosen one. */
void doctor_cm_mode(struct doctor *doctor, const struct doctor_port *port);
/* Says what a fork() does to memory that a device has registered. */
void doctor_fork(struct doctor *doctor);
/* 1: a container was not given the device: libibverbs does not list it. */
int doctor_is_absent(const struct doctor *doctor, const char *device);
/* Libraries, providers and rights that the chosen device needs. */
void doctor_rights(struct doctor *doctor);

#endif /* KVPULL_TOOLS_KVPULL_DOCTOR_PORT_H */
