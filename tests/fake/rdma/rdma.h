/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A librdmacm.so.1 without a device: processes that load it are machines of one
 * fabric. Connections are Unix sockets in a folder, SENDs are packets there,
 * and an RDMA READ is process_vm_readv() from the process at the other end, of
 * memory whose key a table in the folder tells. One thread a process takes what
 * arrives.
 *
 * Memory of a GPU is registered by a dmabuf of tests/fake/cuda. Bytes that a device
 * writes there are kept, and nobody sees them, until a queue pair of that device
 * which is connected to itself reads such memory.
 *
 * The environment says what the machine is like:
 *   FAKE_RDMA            folder of the fabric; unset: there is no device
 *   FAKE_RDMA_ADDRESSES  an IPv4 address a device, "10.66.0.1,10.66.1.1"
 *   FAKE_RDMA_FAULT      of who calls: no-address, no-route, unreachable: that
 *                        event; silent: no answer arrives, as where UDP 4791
 *                        is blocked; version: its greeting is of another one;
 *                        hole: READs of more than 1,024 bytes are lost;
 *                        no-memory: no memory can be registered; breaks: each
 *                        so many READs of the last device one is lost, those
 *                        of a queue pair to itself among them; of who is
 *                        called: foreign: rejected in nobody's words
 */
#ifndef KVPULL_TESTS_FAKE_RDMA_H
#define KVPULL_TESTS_FAKE_RDMA_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

/* The two libraries' calls are this one's: they are seen from outside. */
#pragma GCC visibility push(default)
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#pragma GCC visibility pop

#define DEVICES_MAX 4u
#define PRIVATE_BYTES_MAX 196u
#define PACKET_BYTES_MAX 4096u
#define QUEUE_MAX 2048u
#define PARTS_MAX 32
#define EVENTS_MAX 64u
#define TOLD_MAX 1024u

enum packet_kind {
	PACKET_CALL = 1,
	PACKET_ANSWER,
	PACKET_READY,
	PACKET_REJECT,
	PACKET_BYE,
	PACKET_SEND
};

struct packet {
	uint32_t kind;
	uint32_t byte_count;
	uint32_t domain; /* PACKET_ANSWER: of the queue pair */
	uint32_t reserved;
	struct sockaddr_in from; /* PACKET_CALL */
	uint8_t bytes[PACKET_BYTES_MAX];
};

/* Memory that peers may read, as the process that has it tells the others. */
struct told {
	_Atomic uint32_t key; /* 0: none; written last */
	uint32_t domain;
	uint64_t begin; /* as peers name it */
	uint64_t bytes;
	uint64_t view; /* where the bytes are */
};

struct memory {
	struct ibv_mr mr; /* first */
	struct memory *next;
	struct told *told; /* NULL: peers may not read it */
	uint8_t *view;     /* where its bytes are */
	void *mapping;     /* of a dmabuf; NULL: memory of the host */
	size_t map_bytes;
	int access;
};

/* Bytes that a device has written into memory of a GPU, and nobody sees. */
struct write {
	struct write *next;
	const struct ibv_context *device;
	uint8_t *to;
	uint64_t bytes;
	uint8_t data[];
};

struct queue {
	struct ibv_cq cq;    /* first */
	struct ibv_wc *ring; /* [ring_max] */
	uint32_t ring_max, first, count;
	uint32_t is_armed;
	uint32_t is_told; /* an event waits in the channel */
};

struct channel {
	struct ibv_comp_channel channel; /* first */
	struct queue *told[EVENTS_MAX];
	uint32_t count;
};

struct end;

struct pair {
	struct ibv_qp qp; /* first */
	struct end *end;  /* NULL: not connected */
	struct pair *next;
	struct {
		uint64_t wr_id;
		struct ibv_sge part;
	} * receives;
	uint32_t receive_first, receive_count, receive_max;
	uint32_t is_broken;
	uint32_t is_loop;    /* it is connected to itself */
	uint64_t lost_wr_id; /* a READ that is lost */
	uint64_t lost_ns;    /* when that is seen; 0: none is */
};

/* A connection's end, or a listener. */
struct end {
	struct rdma_cm_id id; /* first */
	struct end *next;
	struct pair *pair;
	const struct told *told; /* by the other side; NULL: not looked at */
	int socket;              /* -1: none */
	uint32_t domain;         /* of the other side's queue pair */
	uint32_t is_listener;
	uint32_t is_up;
};

struct cm_event {
	struct rdma_cm_event event; /* first */
	uint8_t bytes[PRIVATE_BYTES_MAX];
	struct cm_event *next;
};

struct cm_channel {
	struct rdma_event_channel channel; /* first */
	struct cm_event *oldest, *newest;
};

struct rdma {
	pthread_mutex_t lock; /* of all that is here, but in calls that open */
	struct ibv_device devices[DEVICES_MAX];
	struct ibv_context contexts[DEVICES_MAX];
	struct in_addr addresses[DEVICES_MAX];
	uint32_t device_count;
	const char *folder;
	const char *fault;
	int epoll;
	struct end *ends;
	struct pair *pairs;
	struct memory *memories;
	struct write *writes, **writes_end; /* NULL: &writes */
	struct told *told;                  /* NULL: no memory was told */
	uint32_t next_number;
	uint32_t reads; /* by the last device */
	uint32_t loops; /* likewise, by queue pairs to themselves */
};

extern struct rdma fake_rdma;

/* Reads the environment and starts the thread; once. */
void fake_rdma_begin(void);
int fake_rdma_has(const char *fault);
/* The lock is held in these. */
void fake_rdma_tell(struct end *end, enum rdma_cm_event_type type, int status,
		    const struct packet *packet);
/* A packet came for this end; NULL: the other side is gone. */
void fake_rdma_arrived(struct end *end, const struct packet *packet);
void fake_rdma_called(struct end *listener);
int fake_rdma_send(const struct end *end, uint32_t kind, const void *bytes,
		   uint32_t byte_count);
void fake_rdma_receive(struct pair *pair, const struct packet *packet);
/* A READ by that queue pair. */
enum ibv_wc_status fake_rdma_read(struct pair *pair,
				  const struct ibv_send_wr *request);
/* Forget what the other side has told. */
void fake_rdma_untold(struct end *end);
/* Completes READs that were lost long enough. */
void fake_rdma_lost(void);
void fake_rdma_ops(struct ibv_context *context);

#endif /* KVPULL_TESTS_FAKE_RDMA_H */
