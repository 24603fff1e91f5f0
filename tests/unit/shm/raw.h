/* SPDX-License-Identifier: Apache-2.0 */
/* Raw ends of the same-node route's sockets, for tests of what they may do. */
#ifndef KVPULL_TESTS_UNIT_SHM_RAW
#define KVPULL_TESTS_UNIT_SHM_RAW

#include "tests/unit/shm/world.h"

#include <sys/resource.h>

/* Linux 6.16. */
#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83
#endif

/* A socket can refuse descriptors before they come: Linux 6.16. */
int has_passrights(void);

/* A raw caller of P's socket. */
int raw_connect(const struct world *world, const char *name);
int raw_listen(const struct world *world, const char *name);
void raw_unlink(const struct world *world, const char *name);

/* A socket that nobody listens at any more. */
void socket_leave(const char *folder, const char *name);

/* Sends a message with these descriptors, which stay open here. 0, or errno. */
int raw_try_send(int fd, const int *fds, uint32_t fd_count);
void raw_send(int fd, const int *fds, uint32_t fd_count);

/* All descriptors that this process may still open, but for so many. */
uint32_t fds_fill(int *fds, uint32_t left);
void fds_empty(const int *fds, uint32_t count);

/* The next caller is let in, whatever it is. */
uint32_t raw_admit(struct world *world);

/* D connected to a raw producer. */
struct imposter {
	struct world world;
	int listener;
	int socket;
};

void imposter_begin(struct imposter *imposter);
void imposter_connect(struct imposter *imposter);
/* D connects, and is welcomed with these descriptors. */
void imposter_welcome(struct imposter *imposter, const int *fds,
		      uint32_t fd_count);
void imposter_end(struct imposter *imposter);
/* A welcome with these descriptors, then attach. */
int attach_with(struct imposter *imposter, const int *fds, uint32_t fd_count);

/* A producer whose descriptors are good; its memory is what a test makes it. */
struct good {
	struct kvpull_shared ring_memory;
	struct kvpull_ring ring;
	int bells[2];
	int fds[5];
};

void good_begin(struct good *good, const struct world *world);
void good_end(struct good *good);

#endif /* KVPULL_TESTS_UNIT_SHM_RAW */
