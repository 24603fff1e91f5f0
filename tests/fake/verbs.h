/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A fake RDMA fabric in this process: the table of verbs/fabric.h over one
 * device or up to ten whose queue pairs read each other's memory with memcpy. It delays,
 * fails and counts as a test says. Every object is counted, so that a test can
 * see that none is left.
 */
#ifndef KVPULL_TESTS_FAKE_VERBS_H
#define KVPULL_TESTS_FAKE_VERBS_H

#include "verbs/fabric.h"

#define FAKE_VERBS_ADDRESS "10.66.0.1" /* the second: 10.66.1.1 */
#define FAKE_VERBS_DEVICES_MAX 10u

enum fake_verbs_kind {
	FAKE_VERBS_READ = 0, /* RDMA READ of more than an entry's bytes */
	FAKE_VERBS_CHECK,    /* of at most 32 bytes */
	FAKE_VERBS_SEND,
	FAKE_VERBS_RECEIVE,
	FAKE_VERBS_LOOP, /* RDMA READ by a queue pair from itself */
	FAKE_VERBS_KINDS
};

enum fake_verbs_answer {
	FAKE_VERBS_ACCEPT = 0,
	FAKE_VERBS_ADDR_ERROR,
	FAKE_VERBS_ROUTE_ERROR,
	FAKE_VERBS_UNREACHABLE,
	FAKE_VERBS_CONNECT_ERROR,
	FAKE_VERBS_REJECTED,
	FAKE_VERBS_REJECTED_SAID, /* by a program, with knobs.rejection */
	FAKE_VERBS_SILENCE,       /* no answer, ever */
	FAKE_VERBS_ANSWERS
};

struct fake_verbs_knobs {
	/* The nth work request of a kind (from 1) completes so; 0: none. */
	uint32_t fail_at[FAKE_VERBS_KINDS];
	enum ibv_wc_status fail_status;
	uint32_t fail_device; /* only of this one, from 1; 0: of any */
	/* The nth work request of a post from now on is refused so; 0: none. */
	uint32_t post_at;
	int post_error;
	uint32_t post_times; /* so many posts in a row */
	/* The nth object from now on cannot be made; 0: none. */
	uint32_t make_at;
	int access_unknown; /* a library that does not know this flag */
	/* MTU of each device's port; 0: 4096. */
	enum ibv_mtu mtu[FAKE_VERBS_DEVICES_MAX];
	/* The nth transition of a queue pair from now on fails; 0: none. */
	uint32_t modify_at;
	uint32_t held;   /* work requests are taken, and not carried out */
	uint32_t budget; /* of them, so many more are; then held is set */
	uint32_t held_devices;  /* held, by bit */
	uint32_t held_loops;    /* queue pairs that read from themselves */
	const void *held_owner; /* whose queue pair is held; NULL: nobody's */
	enum fake_verbs_answer answer;
	uint8_t rejection[30];  /* private data of FAKE_VERBS_REJECTED_SAID */
	uint32_t answer_device; /* of calls by this one, from 1; 0: of any */
	uint32_t mute;          /* nobody is told that the other side ended */
	uint32_t in_order; /* what is written into memory of a GPU is seen at once */
	int dmabuf_error; /* errno of registering device memory; 0: none */
	uint32_t eager; /* what was posted before is carried out in accept() */
	/* The only device has a second address, that of a second one; 0: no. */
	uint32_t second_address;
	/* A port where another process listens, in network order; 0: none. */
	uint32_t port_taken;
	/* Limits of the devices: parts of a work request; 0: PARTS_MAX. */
	int parts_max;
	int queue_max; /* likewise, work requests of a queue; 0: QUEUE_MAX */
	int own_reads_max;   /* likewise, READs of ours on the wire; 0: 16 */
	int memory_error;    /* errno of registering any memory; 0: none */
	int gid_error;       /* errno of asking for any GID; 0: none */
	uint32_t ports_down; /* devices whose port has no link, by bit */
};

/* Arguments of a dmabuf's registration. */
struct fake_verbs_dmabuf {
	uint64_t offset;
	uint64_t bytes;
	uint64_t iova;
	int fd;
	int access;
};

extern struct fake_verbs_knobs fake_verbs_knobs;

void fake_verbs_reset(void);
/* How many devices there are; after reset: one. */
void fake_verbs_devices(uint32_t count);
/* The table, in which a test may replace calls until the next reset. */
struct kvpull_fabric *fake_verbs_fabric(void);
/* The last one since reset. */
struct fake_verbs_dmabuf fake_verbs_dmabuf(void);
/*
 * What a device wrote into memory that was registered by a dmabuf is kept, and not
 * there, until a loop of that device reads such memory, or this call.
 */
void fake_verbs_land(uint32_t device);
/* Bytes of all devices that are kept so. */
uint64_t fake_verbs_unseen(void);
/* Protection domains in which this memory is registered. */
uint32_t fake_verbs_domains(const void *base);
/* Access with which this memory was last registered; -1: it is not. */
int fake_verbs_memory_access(const void *base);
/* Memory regions that were registered so far, and not any more. */
uint32_t fake_verbs_registrations(void);
uint32_t fake_verbs_deregistrations(void);
/* Objects that were made and not destroyed. */
uint32_t fake_verbs_live(void);
/* Objects that were made since the reset. */
uint32_t fake_verbs_made(void);
/* Work requests of a kind that were carried out since the reset. */
uint32_t fake_verbs_count(enum fake_verbs_kind kind);
/* Likewise, by one device. */
uint32_t fake_verbs_device_count(uint32_t device, enum fake_verbs_kind kind);
uint32_t fake_verbs_doorbells(void);
/* How often the devices were listed. */
uint32_t fake_verbs_listings(void);
/* Reads of completion channels, empty or not. */
uint32_t fake_verbs_event_reads(void);
/* Connections that were asked for. */
uint32_t fake_verbs_calls(void);
/* Carry out all that is posted, as polls do. */
void fake_verbs_run(void);
/*
 * Access that the queue pair of a side gives the other; 0: none, or no queue
 * pair.
 */
uint32_t fake_verbs_access(int initiator);
/* How often the queue pair of a side retries: what is lost, and a full peer. */
void fake_verbs_retries(int initiator, uint32_t *lost, uint32_t *full);
/* READs that the queue pair of a side sends at once, and answers at once. */
void fake_verbs_reads(int initiator, uint32_t *sent, uint32_t *answered);
/* Transitions of queue pairs so far that let the other side read or write. */
uint32_t fake_verbs_openings(void);
#define FAKE_VERBS_VECTORS 4 /* completion vectors of a device */
/* Bits of the vectors that completion queues had so far. */
uint32_t fake_verbs_vectors(void);
/* Owner of the queue pair of a side; NULL: none. */
void *fake_verbs_owner(int initiator);
/* The device comes back, with an address that is higher by `moved`. */
void fake_verbs_return(uint32_t device, uint32_t moved);
/* Takes the device's address away; everyone who has it open gets an event. */
void fake_verbs_unaddress(uint32_t device);
/* All ids get the event, and no device is listed until it returns. */
void fake_verbs_remove_device(void);
/*
 * The device says so to who has it open: of port 1, or of the queue pair of who
 * connected by it.
 */
void fake_verbs_async(uint32_t device, enum ibv_event_type type);
/*
 * A stranger with this address, in no process, calls the first listener, takes
 * what it is sent and sends nothing. 0; -1: no room in the fake.
 */
int fake_verbs_stranger(const char *address, const void *private_data,
			uint8_t private_bytes);
/* Strangers that are connected. */
uint32_t fake_verbs_strangers(void);
/* Gives an id an event, unless too many wait. */
void fake_verbs_tell(struct rdma_cm_id *id, enum rdma_cm_event_type type,
		     const void *private_data, uint8_t private_bytes);
/* Each connected id is told that the other side is gone. */
void fake_verbs_cut(void);
/* Likewise, of one device. */
void fake_verbs_cut_device(uint32_t device);
/* Likewise, of both ends of the owner's queue pair. */
void fake_verbs_cut_owner(const void *owner);
/*
 * As if the other side had sent these bytes on every queue pair of a peer
 * (initiator 0: to who accepted, 1: to who connected). Returns how many.
 */
uint32_t fake_verbs_inject(int initiator, const void *bytes,
			   uint32_t byte_count);

#endif /* KVPULL_TESTS_FAKE_VERBS_H */
