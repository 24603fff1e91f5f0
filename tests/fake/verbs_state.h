/* SPDX-License-Identifier: Apache-2.0 */
/* State that the parts of the fake fabric share: devices, queues, the CM. */
#ifndef KVPULL_TESTS_FAKE_VERBS_STATE_H
#define KVPULL_TESTS_FAKE_VERBS_STATE_H

#include "tests/fake/verbs.h"
#include "tests/fake/verbs_shape.h"

#define QUEUE_MAX 2048u /* what a device says that it can */
#define PARTS_MAX 32
#define IDS_MAX 256u
#define REGIONS_MAX 8192u
#define EVENTS_MAX 64u

struct fake_send {
	struct ibv_send_wr request;
	struct ibv_sge parts[PARTS_MAX];
};

struct fake_receive {
	uint64_t wr_id;
	struct ibv_sge part;
};

struct fake_cq {
	struct ibv_cq cq;    /* first */
	struct ibv_wc *ring; /* [ring_max] */
	uint32_t ring_max;
	uint32_t first, count;
	uint32_t armed;
	uint32_t told; /* an event waits in the channel */
};

struct fake_id;

struct fake_qp {
	struct ibv_qp qp;   /* first */
	struct fake_id *id; /* NULL: not connected by one yet, or any more */
	struct fake_send *sends; /* [send_max] */
	struct fake_receive *receives;
	uint32_t send_first, send_count;
	uint32_t receive_first, receive_count;
	uint32_t send_max, receive_max;
	enum ibv_qp_state state;
	enum ibv_mtu mtu; /* that it was told its path has */
	uint32_t access;
	uint32_t retry_count, rnr_retry_count;
	uint32_t reads_sent, reads_answered; /* at once */
	uint32_t broken;
	uint32_t number_there; /* that it was told to be connected to */
};

struct fake_event {
	struct rdma_cm_event event;
	uint8_t private_data[56];
};

struct fake_channel {
	struct rdma_event_channel channel; /* first */
	struct fake_event events[EVENTS_MAX];
	uint32_t first, count;
};

struct fake_id {
	struct rdma_cm_id id; /* first */
	struct fake_id *other;
	struct fake_qp *qp; /* that it was connected for */
	uint32_t initiator;
	uint32_t listening;
	uint32_t connected;
	uint32_t stranger; /* no route's: it takes all, and says nothing */
};

struct fake_comp_channel {
	struct ibv_comp_channel channel; /* first */
	struct fake_cq *cqs[IDS_MAX];
	uint32_t count;
};

struct fake_region {
	struct ibv_mr mr;
	int access;
	uint32_t is_gpu; /* by a dmabuf */
};

/* Bytes that a device wrote into memory of a GPU, and nobody sees yet. */
struct fake_write {
	struct fake_write *next;
	void *to;
	uint64_t bytes;
	uint8_t data[];
};

struct fake_verbs {
	struct ibv_device devices[FAKE_VERBS_DEVICES_MAX];
	struct ibv_context contexts[FAKE_VERBS_DEVICES_MAX];
	uint32_t device_count;
	const struct fake_verbs_shape *shapes; /* NULL: the fake's own */
	struct ibv_async_event asyncs[FAKE_VERBS_DEVICES_MAX];
	struct fake_id *ids[IDS_MAX];
	struct fake_qp *qps[IDS_MAX];
	struct fake_region *regions[REGIONS_MAX]; /* by key, modulo */
	uint32_t live;
	uint32_t made;
	uint32_t registrations;
	uint32_t deregistrations;
	uint32_t counts[FAKE_VERBS_DEVICES_MAX][FAKE_VERBS_KINDS];
	uint32_t doorbells;
	uint32_t listings;
	uint32_t event_reads;
	uint32_t openings;
	uint32_t vectors;
	uint32_t calls;
	uint32_t next_key;
	struct fake_verbs_dmabuf dmabuf; /* the last one */
	/* By device, the oldest first. */
	struct fake_write *writes[FAKE_VERBS_DEVICES_MAX];
	uint32_t removed;                      /* not listed, by bit */
	uint32_t absent;                       /* its address is, by bit */
	uint8_t moved[FAKE_VERBS_DEVICES_MAX]; /* its address: so much higher */
	uint16_t next_port;
};

extern struct fake_verbs fake_verbs_state;

uint32_t fake_verbs_index(const struct ibv_context *context);
enum ibv_mtu fake_verbs_mtu(const struct ibv_context *context);
/* By the address that an id is bound to. */
struct ibv_context *fake_verbs_context(const struct sockaddr_in *address);
/* Counted, and failed when the test wants that. */
void *fake_verbs_make(size_t bytes);
int fake_verbs_unmake(void *object);
/* Each part's own calls. */
void fake_verbs_queue_ops(struct ibv_context *context);
/* Bytes that were not seen in this memory never are: it may be another's next. */
void fake_verbs_writes_drop(const void *base, uint64_t bytes);
void fake_verbs_queue_fill(struct kvpull_fabric *table);
void fake_verbs_cm_fill(struct kvpull_fabric *table);
/* Ports of a machine that a test describes. */
uint8_t fake_verbs_shape_ports(uint32_t device);
void fake_verbs_shape_port(uint32_t device, uint32_t port,
			   struct ibv_port_attr *attr);
int fake_verbs_shape_gid(uint32_t device, uint32_t port, uint32_t index,
			 struct ibv_gid_entry *entry);
int fake_verbs_shape_bind(struct rdma_cm_id *id,
			  const struct sockaddr *address);

#endif /* KVPULL_TESTS_FAKE_VERBS_STATE_H */
