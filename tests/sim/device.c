/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of base/device.h for simulated devices. Memory is a memfd, which each
 * process maps for itself. What the table's caller must not do ends the seed.
 */
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/sim/device.h"

extern struct sim_world *sim_current;

static struct sim_device *of(struct kvpull_device *device)
{
	return (struct sim_device *)device;
}

/* The code of a call that begins. */
static int begun(const struct sim_device *device)
{
	return device->is_lost || device->is_gone ? KVPULL_EDEVICE : 0;
}

static struct sim_share *share_at(struct sim_device *device,
				  const uint8_t *base)
{
	uint32_t at = 0;

	while (device->shares[at].base != base)
		if (++at == SIM_SHARES)
			sim_fail(device->proc->world,
				 "process %u: no such memory is mapped",
				 device->proc->index);
	return &device->shares[at];
}

static int share_map(struct sim_device *device, int fd, uint64_t bytes,
		     int is_own)
{
	struct sim_share *share = share_at(device, NULL);
	void *base = mmap(NULL, bytes, PROT_READ | (is_own ? PROT_WRITE : 0),
			  MAP_SHARED, fd, 0);

	if (base == MAP_FAILED)
		abort();
	*share = (struct sim_share){ .base = base,
				     .bytes = bytes,
				     .fd = is_own ? fd : -1 };
	return (int)(share - device->shares);
}

static void share_unmap(struct sim_share *share)
{
	if (!share->base)
		return;
	(void)munmap(share->base, share->bytes);
	if (share->fd >= 0)
		(void)close(share->fd);
	*share = (struct sim_share){ .fd = -1 };
}

static int device_alloc(struct kvpull_device *device, uint64_t bytes,
			struct kvpull_device_memory *memory)
{
	const uint64_t whole =
		(bytes + device->granularity - 1) & ~(device->granularity - 1);
	int fd;
	int at;

	if (begun(of(device)))
		return KVPULL_EDEVICE;
	fd = memfd_create("sim-device", MFD_CLOEXEC);
	if (fd < 0 || ftruncate(fd, (off_t)whole))
		abort();
	at = share_map(of(device), fd, whole, 1);
	*memory = (struct kvpull_device_memory){
		.address = (uint64_t)(uintptr_t)of(device)->shares[at].base,
		.bytes = whole,
		.handle = 1,
		.access = KVPULL_DEVICE_READ_WRITE,
	};
	return 0;
}

static int device_export(struct kvpull_device *device,
			 const struct kvpull_device_memory *memory, int *fd)
{
	if (begun(of(device)))
		return KVPULL_EDEVICE;
	*fd = dup(share_at(of(device),
			   (const uint8_t *)(uintptr_t)memory->address)
			  ->fd);
	return *fd < 0 ? KVPULL_ENOMEM : 0;
}

static int device_import(struct kvpull_device *device, int fd, uint64_t bytes,
			 const uint8_t *uuid,
			 struct kvpull_device_memory *memory)
{
	struct stat status;
	int at;

	(void)uuid;
	if (begun(of(device)))
		return KVPULL_EDEVICE;
	if (fstat(fd, &status) || bytes > (uint64_t)status.st_size)
		return KVPULL_EROUTE;
	at = share_map(of(device), fd, bytes, 0);
	*memory = (struct kvpull_device_memory){
		.address = (uint64_t)(uintptr_t)of(device)->shares[at].base,
		.bytes = bytes,
		.access = KVPULL_DEVICE_READ,
	};
	return 0;
}

/* Nothing is queued that reads or writes there. */
static void unmap_check(const struct sim_device *device,
			const struct sim_share *share)
{
	const uint8_t *end = share->base + share->bytes;
	const struct sim_work *work = device->streams[SIM_STREAM_OWN].first;
	uint32_t at;

	for (; work; work = work->next)
		for (at = 0; at < work->piece_count; at++) {
			const struct sim_piece *piece = &work->pieces[at];

			if ((piece->from >= share->base && piece->from < end) ||
			    (piece->to >= share->base && piece->to < end))
				sim_fail(
					device->proc->world,
					"process %u unmaps memory of which a copy is queued",
					device->proc->index);
		}
}

static void device_unmap(struct kvpull_device *device,
			 struct kvpull_device_memory *memory)
{
	struct sim_device *own = of(device);
	struct sim_share *share;

	if (begun(own))
		return;
	share = share_at(own, (const uint8_t *)(uintptr_t)memory->address);
	unmap_check(own, share);
	own->proc->world->counts.unmaps += share->fd < 0;
	share_unmap(share);
	*memory = (struct kvpull_device_memory){ 0 };
}

static int event_open(struct kvpull_device *device,
		      struct kvpull_device_event **event)
{
	if (begun(of(device)))
		return KVPULL_EDEVICE;
	*event = calloc(1, sizeof(**event));
	if (!*event)
		abort();
	(*event)->is_open = 1;
	(*event)->next = of(device)->events;
	of(device)->events = *event;
	return 0;
}

static void event_check(const struct sim_device *device,
			const struct kvpull_device_event *event)
{
	if (!event->is_open)
		sim_fail(device->proc->world,
			 "process %u uses an event that is closed",
			 device->proc->index);
}

static void event_close(struct kvpull_device *device,
			struct kvpull_device_event *event)
{
	struct sim_device *own = of(device);

	if (begun(own))
		return;
	event_check(own, event);
	if (event->reached != event->recorded)
		sim_fail(own->proc->world,
			 "process %u closes an event before it was reached",
			 own->proc->index);
	event->is_open = 0;
}

/* The process's block of that address, of any layer. */
static uint32_t block_of(const struct sim_proc *proc, const uint8_t *to)
{
	return (uint32_t)((size_t)(to - proc->memory) / proc->block_bytes %
			  proc->instance->block_count);
}

/* Blocks lie side by side, so that a piece may have several. */
static void pieces_add(struct sim_work *work, struct sim_proc *proc,
		       uint8_t *to, const uint8_t *from, size_t bytes)
{
	while (bytes) {
		const size_t room =
			proc->block_bytes -
			(size_t)(to - proc->memory) % proc->block_bytes;
		const uint32_t part = (uint32_t)(bytes < room ? bytes : room);
		const uint32_t block = block_of(proc, to);

		if (!proc->block_key[block])
			sim_fail(
				proc->world,
				"process %u: a copy into block %u is queued, for nobody",
				proc->index, block);
		work->pieces[work->piece_count++] = (struct sim_piece){
			.to = to,
			.from = from,
			.bytes = part,
			.block = block,
			.key = proc->block_key[block],
		};
		to += part;
		from += part;
		bytes -= part;
	}
}

static int device_copy(struct kvpull_device *device,
		       const struct kvpull_device_pieces *pieces)
{
	struct sim_device *own = of(device);
	struct sim_proc *proc = own->proc;
	uint64_t capacity = 0;
	struct sim_work *work;
	uint32_t at;

	if (begun(own))
		return KVPULL_EDEVICE;
	for (at = 0; at < pieces->count; at++)
		capacity += pieces->bytes[at] / proc->block_bytes + 2;
	work = sim_work_queue(own, SIM_STREAM_OWN, SIM_WORK_COPY,
			      (uint32_t)capacity);
	for (at = 0; at < pieces->count; at++)
		pieces_add(work, proc,
			   (uint8_t *)(uintptr_t)pieces->targets[at],
			   (const uint8_t *)(uintptr_t)pieces->sources[at],
			   pieces->bytes[at]);
	proc->world->counts.slices++;
	return 0;
}

static void record(struct sim_device *device, uint32_t stream,
		   struct kvpull_device_event *event)
{
	const uint32_t wrong = stream == SIM_STREAM_OWN ? SIM_CONTROL_EVENTS :
							  SIM_CONTROL_MARKS;
	struct sim_work *work;

	event_check(device, event);
	event->recorded++;
	if (sim_control == wrong) {
		event->reached = event->recorded;
		return;
	}
	work = sim_work_queue(device, stream, SIM_WORK_RECORD, 0);
	work->event = event;
	work->number = event->recorded;
}

static int device_record(struct kvpull_device *device,
			 struct kvpull_device_event *event)
{
	if (begun(of(device)))
		return KVPULL_EDEVICE;
	record(of(device), SIM_STREAM_OWN, event);
	return 0;
}

static int device_query(struct kvpull_device *device,
			struct kvpull_device_event *event)
{
	if (begun(of(device)))
		return KVPULL_EDEVICE;
	event_check(of(device), event);
	return event->reached == event->recorded;
}

/* Sometimes the engine's stream captures a graph. */
static int device_mark(struct kvpull_device *device, uint64_t stream,
		       struct kvpull_device_event *event)
{
	struct sim_world *world = of(device)->proc->world;

	if (begun(of(device)))
		return KVPULL_EDEVICE;
	if (stream >= SIM_STREAM_OWN)
		sim_fail(world, "a mark is of stream %llu",
			 (unsigned long long)stream);
	if (sim_chance(world, 30)) {
		world->counts.captures++;
		return 0;
	}
	record(of(device), (uint32_t)stream, event);
	world->counts.marks++;
	return 1;
}

static int device_wait(struct kvpull_device *device,
		       struct kvpull_device_event *event)
{
	struct sim_device *own = of(device);
	struct sim_work *work;

	if (begun(own))
		return KVPULL_EDEVICE;
	event_check(own, event);
	work = sim_work_queue(own, SIM_STREAM_OWN, SIM_WORK_WAIT, 0);
	work->event = event;
	work->number = event->recorded;
	own->proc->world->counts.waits += event->reached != event->recorded;
	return 0;
}

static int is_lost(const struct kvpull_device *device)
{
	return begun((const struct sim_device *)device) != 0;
}

static void device_close(struct kvpull_device *device)
{
	struct sim_device *own = of(device);
	uint32_t at;

	for (at = 0; at < SIM_SHARES && !begun(own); at++)
		if (own->shares[at].base)
			sim_fail(
				own->proc->world,
				"process %u closes its device, and memory is mapped",
				own->proc->index);
	own->is_gone = 1;
}

static const struct kvpull_device_ops ops = {
	.alloc = device_alloc,
	.export_fd = device_export,
	.import_fd = device_import,
	.unmap = device_unmap,
	.event_open = event_open,
	.event_close = event_close,
	.copy = device_copy,
	.record = device_record,
	.query = device_query,
	.mark = device_mark,
	.wait = device_wait,
	.is_lost = is_lost,
	.close = device_close,
};

int sim_device_open(struct kvpull_arena *arena, const struct kvpull_log *log,
		    int index, struct kvpull_device **device)
{
	struct sim_proc *proc = &sim_current->procs[index];
	struct sim_device *own = calloc(1, sizeof(*own));
	uint32_t at;

	(void)arena;
	if (!own)
		abort();
	own->base = (struct kvpull_device){
		.ops = &ops,
		.log = log,
		.granularity = SIM_DEVICE_GRANULARITY,
		.uuid = { (uint8_t)proc->instance->index, (uint8_t)proc->rank },
	};
	own->proc = proc;
	own->stream = (uint32_t)sim_below(proc->world, SIM_STREAM_OWN);
	for (at = 0; at < SIM_SHARES; at++)
		own->shares[at].fd = -1;
	proc->device = own;
	*device = &own->base;
	return 0;
}

uint8_t *sim_device_memory(struct sim_proc *proc, uint64_t bytes)
{
	struct kvpull_memory memory = { .struct_size = sizeof(memory) };

	if (kvpull_worker_memory_alloc(proc->worker, bytes,
				       KVPULL_MEMORY_DEVICE, &memory))
		sim_fail(proc->world, "process %u has no memory of its device",
			 proc->index);
	return memory.base;
}

void sim_device_kill(struct sim_proc *proc)
{
	struct sim_device *device = proc->device;
	uint32_t at;

	if (!device)
		return;
	device->is_gone = 1;
	sim_work_drop(device);
	for (at = 0; at < SIM_SHARES; at++)
		if (device->shares[at].fd < 0)
			share_unmap(&device->shares[at]);
}

void sim_device_free(struct sim_proc *proc)
{
	uint32_t at;

	if (!proc->device)
		return;
	sim_work_drop(proc->device);
	for (at = 0; at < SIM_SHARES; at++)
		share_unmap(&proc->device->shares[at]);
	while (proc->device->events) {
		struct kvpull_device_event *event = proc->device->events;

		proc->device->events = event->next;
		free(event);
	}
	free(proc->device);
	proc->device = NULL;
	proc->memory = NULL;
}

void sim_device_lose(struct sim_world *world)
{
	struct sim_instance *instance =
		&world->instances[sim_below(world, world->instance_count)];
	struct sim_proc *proc =
		instance->procs[sim_below(world, instance->ranks)];

	if (!instance->alive || instance->abandoned || !proc->alive ||
	    proc->device->is_lost ||
	    world->proc_count + SIM_RANKS_MAX > world->shape.procs)
		return;
	sim_trace(world, "process %lu loses its device", proc->index, 0, 0);
	proc->device->is_lost = 1;
	sim_work_drop(proc->device);
	/* The worker ends all holds. */
	instance->revoked = 1;
	world->counts.lost_devices++;
}

void sim_device_polled(const struct sim_proc *proc)
{
	if (proc->device && proc->device->is_lost &&
	    !proc->worker->stream.retired)
		sim_fail(proc->world,
			 "process %u goes on, and its device is lost",
			 proc->index);
}
