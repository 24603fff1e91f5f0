/* SPDX-License-Identifier: Apache-2.0 */
/* State that the parts of the fabric's switch share: frames, faults, ports. */
#ifndef KVPULL_TESTS_FABRIC_SWITCH_H
#define KVPULL_TESTS_FABRIC_SWITCH_H

#include <stddef.h>
#include <stdint.h>

#define SWITCH_GUESTS_MAX 4u
#define SWITCH_RAILS_MAX 4u
#define SWITCH_PORTS_MAX (SWITCH_GUESTS_MAX * SWITCH_RAILS_MAX)
/* An Ethernet frame of MTU 9000 with its header, and then some. */
#define SWITCH_FRAME_BYTES_MAX 9216u
/*
 * Frames that wait for one guest. A guest that runs never has so many (rxe
 * sends 64 a queue pair before it waits); a paused one has, and loses the rest.
 */
#define SWITCH_QUEUE_FRAMES_MAX 8192u
/* Longest command line and longest answer of the control socket. */
#define SWITCH_COMMAND_BYTES_MAX 512u
#define SWITCH_ANSWER_BYTES_MAX 8192u

#define FAULT_PPM_MAX 1000000u

enum fault_link {
	FAULT_LINK_ON,
	FAULT_LINK_OFF
};

/*
 * Faults of one port in one direction. Every direction has its own generator,
 * so its faults depend on the seed and on its own frames. All but the link
 * touch RoCE frames only: ARP and TCP are not under test.
 */
struct fault {
	uint64_t state;
	uint32_t loss_ppm;
	uint32_t duplicate_ppm;
	uint32_t reorder_ppm;
	uint32_t corrupt_ppm;
	uint64_t drop_count; /* RoCE frames yet to drop */
	uint64_t delay_ns;
	uint32_t hole_bytes; /* longer RoCE frames are dropped; 0: none */
	enum fault_link link;

	uint64_t frames;
	uint64_t lost;
	uint64_t dropped;
	uint64_t cut;
	uint64_t duplicated;
	uint64_t reordered;
	uint64_t corrupted;
};

/* The faults' decision for one frame on its way to one port. */
struct fate {
	uint32_t copies; /* 0: lost */
	uint64_t delay_ns;
	uint32_t corrupt_offset; /* 0: as it came */
};

void fault_init(struct fault *fault, uint64_t seed);
/* Take every fault off; the generator and the counters go on. */
void fault_clear(struct fault *fault);
/* Let the fault change the fate of this frame. */
void fault_decide(struct fault *fault, const uint8_t *frame,
		  uint32_t frame_bytes, struct fate *fate);
/* "loss", "0.2": set one fault. 0, or -1 if it is no fault or no such value. */
int fault_set(struct fault *fault, const char *name, const char *value);

struct frame {
	struct frame *next;
	uint64_t due_ns;
	uint64_t sequence; /* equal due_ns: first come, first out */
	uint32_t port;
	uint32_t frame_bytes;
	uint8_t bytes[];
};

/* Frames that are late on purpose: a heap, the next one due is at [0]. */
struct late {
	struct frame **frames;
	uint32_t frame_count;
	uint32_t frame_count_max;
	uint64_t sequence;
};

/* Take the frame; 0, or -1 without memory (the frame is then freed). */
int late_push(struct late *late, struct frame *frame);
/* The next frame that is due at now_ns, or NULL. */
struct frame *late_pop(struct late *late, uint64_t now_ns);

#endif /* KVPULL_TESTS_FABRIC_SWITCH_H */
