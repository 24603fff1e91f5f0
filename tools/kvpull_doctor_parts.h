/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvpull_doctor's parts: what was asked, the findings, and what finds them.
 * Everything of the machine is read below a root folder, so that a test can
 * show another machine.
 */
#ifndef KVPULL_TOOLS_KVPULL_DOCTOR_PARTS_H
#define KVPULL_TOOLS_KVPULL_DOCTOR_PARTS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <jansson.h>

#include "plugin/config/config.h"
#include "tools/kvpull_doctor_texts.h"

#define DOCTOR_FINDINGS_MAX 128u
#define DOCTOR_TEXT_BYTES_MAX 320u
#define DOCTOR_PATH_BYTES_MAX 512u
#define DOCTOR_NAME_BYTES 256u         /* of an entry of a folder */
#define DOCTOR_NETWORKS_BYTES_MAX 256u /* as the key has it */

struct ib_answer;

struct doctor_finding {
	enum doctor_level level;
	const char *name;
	char text[DOCTOR_TEXT_BYTES_MAX];
	char advice[DOCTOR_TEXT_BYTES_MAX]; /* "": nothing to do */
};

struct doctor {
	const char *root;       /* "" or a folder without a slash behind */
	const char *socket_dir; /* asked for, or as the library takes it */
	const char *device;     /* "": any */
	const char *peer;       /* host to pull from; NULL: none */
	const char *port;       /* of ib_pull there */
	const char *peer_port;  /* behind the address in peer; "": none */
	const struct kvpull_config *config; /* NULL: no worker opens by it */
	enum kvpull_route_mode route;
	uint64_t memory_bytes; /* KV cache that a worker would register */
	uint32_t no_probe;
	uint32_t calibrate;
	uint32_t json;
	uint32_t usable_ports;
	uint32_t link_is_soft;   /* of the chosen port */
	double link_gbps;        /* 0: no port */
	uint32_t link_mtu_bytes; /* payload of a packet; 0: not told */
	char link_address[64];   /* "": none */
	char link_netdev[64];    /* likewise */

	struct doctor_finding findings[DOCTOR_FINDINGS_MAX];
	uint32_t finding_count;
	uint32_t counts[DOCTOR_FAIL + 1]; /* of findings, by level */
	json_t *ports;                    /* array */
	json_t *gpus;                     /* array */
	json_t *chosen; /* these three: NULL until there is an object */
	json_t *probe;
	json_t *peer_probe;
};

/* A child process. The socket connects both: each has its own end. */
struct doctor_child {
	pid_t pid;
	int socket;
};

/* Add a finding, a line of kvpull_doctor_texts.h, with the values of its text. */
__attribute__((format(printf, 4, 5))) void doctor_say(struct doctor *doctor,
						      enum doctor_level level,
						      const char *name,
						      const char *format, ...);

/* A log of the library's warnings, the last of which is kept in line. */
struct kvpull_log doctor_log(char line[DOCTOR_TEXT_BYTES_MAX]);

/* A file or folder of the machine, below root; for a few calls, a pattern. */
struct doctor_file {
	char text[2 * DOCTOR_PATH_BYTES_MAX];
};

__attribute__((format(printf, 2, 3))) struct doctor_file
doctor_at(const struct doctor *doctor, const char *format, ...);
/*
 * The first line of a file, without its newline. Return: its length; 0 and an
 * empty line where it cannot be read.
 */
size_t doctor_read(struct doctor_file file, char *line, size_t line_bytes);
/* The number that a file begins with; `otherwise` if there is none. */
long long doctor_number(struct doctor_file file, long long otherwise);
/* 1 if there is such a file or folder; a link to nothing is none. */
int doctor_exists(struct doctor_file file);
/* 1 if there is a file or folder that this path, a pattern of the shell's, names. */
int doctor_matches(struct doctor_file pattern);
/*
 * 1 if there is such a folder below root with something in it: what is not
 * listed there is not there. An empty one is where something is to be mounted.
 */
int doctor_sees(const struct doctor *doctor, const char *folder);
/*
 * Entry @index of a folder, of those whose names begin with @prefix, uverbs2
 * before uverbs10. 0, or -1: it has no more.
 */
int doctor_entry(struct doctor_file folder, const char *prefix, uint32_t index,
		 char name[DOCTOR_NAME_BYTES]);
/* 1 if a kernel's release is older than that version. */
int doctor_is_older(const char *release, unsigned long major,
		    unsigned long minor);
/*
 * The next item of a key's list "a,b;c", of whichever rail and local rank. 1, or
 * 0: there is none. One that is too long is cut: it names nothing.
 */
int doctor_item_next(const char **list, char *item, size_t item_bytes);

/* Checks: each adds its findings. */
void doctor_config(struct doctor *doctor);
void doctor_kernel(struct doctor *doctor);
void doctor_devices(struct doctor *doctor);
void doctor_host(struct doctor *doctor); /* after doctor_devices() */
void doctor_sockets(struct doctor *doctor);
void doctor_users(struct doctor *doctor);  /* after doctor_config() */
void doctor_status(struct doctor *doctor); /* after doctor_config() */
void doctor_copy(struct doctor *doctor);   /* after doctor_config() */
void doctor_numa(struct doctor *doctor);
/*
 * 1 if this node has a CPU that a process begun as this one may use, as the
 * library has it.
 */
int doctor_is_near(const struct doctor *doctor, int node);
void doctor_foreign(struct doctor *doctor);
void doctor_networks(struct doctor *doctor); /* after doctor_devices() */
/* A value of networks that has this host's address and the peer's. */
void doctor_networks_propose(const struct doctor *doctor, const char *peer,
			     char text[DOCTOR_NETWORKS_BYTES_MAX]);
void doctor_probe(struct doctor *doctor);
void doctor_gpus(struct doctor *doctor);
void doctor_peer(struct doctor *doctor);
/*
 * 1: the descriptor has one of those events, or its end; 0: it had none until
 * then.
 */
int doctor_await(int fd, short events, uint64_t until_ns);
/*
 * Starts a process that is killed when this one ends, and a socket of that type
 * between the two. In it the pid is 0. 0, or -1: there is none.
 */
int doctor_child_start(struct doctor_child *child, int type);
/* For a child that only has to notice that its socket was closed. */
#define DOCTOR_END_NS KVPULL_NS_PER_S
/*
 * Hangs up, and kills what has not ended wait_ns later: within a driver of the
 * kernel's it may not end even a second after that, and is left behind. Its
 * status, or -1.
 */
int doctor_child_end(const struct doctor_child *child, uint64_t wait_ns);
/* 1: it is said why nothing can be pulled from there; 0: its numbers. */
int doctor_reach(struct doctor *doctor, struct ib_answer *answer);
/* 1: what a failed pull printed has a known cause, which is said. */
int doctor_causes(struct doctor *doctor, const char *output);

#endif /* KVPULL_TOOLS_KVPULL_DOCTOR_PARTS_H */
