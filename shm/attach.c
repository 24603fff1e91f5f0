/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory that a peer hands over, checked before it is used: descriptors by
 * kvpull_segment_map() (seals, size), the doorbell by its kind, foreign memory
 * by reading from it once.
 *
 * The peer also controls the flags of its descriptors, so no call may block on
 * one without O_NONBLOCK.
 */
#include "shm/attach.h"

#include <errno.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "base/cause.h"
#include "base/device_name.h"
#include "base/fd.h"
#include "shm/segment.h"

/* Descriptors of a welcome, in this order; then one a region. */
enum welcome_fd {
	FD_ENTRIES = 0,
	FD_RING,
	FD_DOORBELL,
	FD_REGIONS
};

static void devices_detach(struct kvpull_shm_memory *memory,
			   struct kvpull_shm_device *device)
{
	/* A closed one has unmapped all of it. */
	if (!device->thread)
		memory->device_count = 0;
	for (; memory->device_count; memory->device_count--) {
		kvpull_device_thread_unmap(device->thread,
					   memory->device_first +
						   memory->device_count - 1);
		memory->device_leaving++;
	}
}

void kvpull_shm_detach(struct kvpull_shm_memory *memory,
		       struct kvpull_unmaps *unmaps,
		       struct kvpull_shm_device *device)
{
	const struct kvpull_shm_tables *tables = &memory->tables;
	uint32_t i;

	devices_detach(memory, device);
	kvpull_unmap(unmaps, tables->mappings, memory->region_count);
	for (i = 0; i < memory->region_count; i++) {
		tables->mappings[i] = (struct kvpull_shm_mapping){ 0 };
		tables->regions[i] = NULL;
		kvpull_file_close(&tables->files[i]);
	}
	memory->region_count = 0;
	if (memory->entries_memory)
		kvpull_segment_unmap(
			memory->entries_memory,
			(size_t)memory->slot_count *
				sizeof(struct kvpull_revocation_entry));
	if (memory->ring_memory)
		kvpull_segment_unmap(memory->ring_memory, memory->ring_bytes);
	kvpull_fd_close(&memory->doorbell);
	memory->entries_memory = NULL;
	memory->ring_memory = NULL;
}

/* Why memory of a device is not read into ours; NULL: it is. */
static const char *device_doubt(const struct kvpull_shm_handed *handed,
				const struct kvpull_device_view *view)
{
	if (!handed->device->thread)
		return "this worker has no device that reads it";
	if (!kvpull_serve_has_devices(handed->own))
		return "this worker's blocks are in host memory, and this version does not copy between the two";
	if (view->part_count > 1)
		return "it comes in parts, and this version reads one";
	return NULL;
}

static int device_check(const struct kvpull_shm_handed *handed,
			const struct kvpull_serve *remote, uint32_t index)
{
	const struct kvpull_device_view *view =
		kvpull_device_view_of(remote->devices, remote->device_count,
				      remote->regions[index].fd_index);
	char name[KVPULL_DEVICE_NAME_BYTES];
	const char *doubt;

	if (!view)
		return KVPULL_EPROTO;
	doubt = device_doubt(handed, view);
	if (!doubt)
		return 0;
	kvpull_device_name(name, view->uuid);
	kvpull_warn(handed->log, "peer's region %u is memory of %s: %s", index,
		    name, doubt);
	return KVPULL_EUNSUPPORTED;
}

/* Is the region read into blocks such as ours? 0; an error, with a line. */
static int kind_check(const struct kvpull_shm_handed *handed,
		      const struct kvpull_serve *remote, uint32_t index)
{
	const struct kvpull_region_view *region = &remote->regions[index];

	if (region->kind == KVPULL_REGION_DEVICE)
		return device_check(handed, remote, index);
	if (kvpull_serve_has_devices(handed->own)) {
		kvpull_warn(
			handed->log,
			"peer's region %u is in host memory: this worker's blocks are a device's, and this version does not copy between the two",
			index);
		return KVPULL_EUNSUPPORTED;
	}
	if (region->kind == KVPULL_REGION_FOREIGN ||
	    kvpull_region_has_fd(region))
		return 0;
	kvpull_warn(
		handed->log,
		"peer's region %u is of kind %u: this version cannot read it",
		index, region->kind);
	return KVPULL_EUNSUPPORTED;
}

/* Kinds, sizes and the number of descriptors, before anything is mapped. */
static int remote_check(const struct kvpull_shm_handed *handed,
			const struct kvpull_serve *remote)
{
	uint32_t fd_count = FD_REGIONS;
	uint32_t i;
	int code;

	if (!remote->region_count ||
	    remote->region_count > KVPULL_REGIONS_MAX || !remote->slot_count)
		return KVPULL_EPROTO;
	for (i = 0; i < remote->region_count; i++) {
		const struct kvpull_region_view *region = &remote->regions[i];

		if (!region->bytes || region->bytes > SIZE_MAX / 2 ||
		    region->fd_offset > SIZE_MAX / 2 ||
		    region->fd_index >= remote->region_count)
			return KVPULL_EPROTO;
		code = kind_check(handed, remote, i);
		if (code)
			return code;
		if (kvpull_region_has_fd(region) &&
		    fd_count <= FD_REGIONS + region->fd_index)
			fd_count = FD_REGIONS + region->fd_index + 1;
	}
	if (fd_count != handed->welcome->fd_count) {
		kvpull_warn(handed->log,
			    "welcome came with %u descriptors, %u expected",
			    handed->welcome->fd_count, fd_count);
		return KVPULL_EPROTO;
	}
	for (i = 0; i < remote->device_count; i++)
		if (remote->devices[i].fd_index >= fd_count - FD_REGIONS)
			return KVPULL_EPROTO;
	return 0;
}

/* Bytes that one peer's memory cannot exceed; *what: the bound they are. */
static uint64_t mapped_max(const char **what)
{
	uint64_t bytes = UINT64_MAX;
	struct sysinfo node;
	struct rlimit space;

	*what = "RAM and swap of this node";
	if (!sysinfo(&node))
		bytes = ((uint64_t)node.totalram + node.totalswap) *
			node.mem_unit;
	if (!getrlimit(RLIMIT_AS, &space) && space.rlim_cur < bytes) {
		*what = "ulimit -v of this process";
		bytes = space.rlim_cur;
	}
	return bytes;
}

/*
 * A sealed memfd may be sparse: two of 64 TiB would fill the address space of the
 * engine. More than the bound can never be mapped, so it is refused for good; the
 * caller tries any other failure of mmap() again. (A revocation table has 64 GiB
 * at most.)
 */
static int extents_check(const struct kvpull_shm_mapping *mappings,
			 uint32_t count, const struct kvpull_log *log)
{
	const char *what;
	const uint64_t bytes_max = mapped_max(&what);
	uint64_t left = bytes_max;
	uint32_t i;

	for (i = 0; i < count && mappings[i].bytes <= left; i++)
		left -= mappings[i].bytes;
	if (i == count)
		return 0;
	kvpull_warn(
		log,
		"a producer's memory is refused: it is more than %s, %llu bytes",
		what, (unsigned long long)bytes_max);
	return KVPULL_EUNSUPPORTED;
}

/* Each descriptor of memory once, as far as its regions go. */
static int memory_map(const struct kvpull_shm_memory *memory,
		      const struct kvpull_shm_handed *handed,
		      const struct kvpull_serve *remote)
{
	struct kvpull_shm_mapping *mappings = memory->tables.mappings;
	uint32_t i;
	int code;

	for (i = 0; i < remote->region_count; i++) {
		const struct kvpull_region_view *region = &remote->regions[i];
		uint64_t *bytes = &mappings[region->fd_index].bytes;

		if (region->kind == KVPULL_REGION_PROVIDED &&
		    *bytes < region->fd_offset + region->bytes)
			*bytes = region->fd_offset + region->bytes;
	}
	code = extents_check(mappings, remote->region_count, handed->log);
	for (i = 0; !code && i < remote->region_count; i++)
		if (mappings[i].bytes)
			code = kvpull_segment_map(
				handed->welcome->fds[FD_REGIONS + i],
				mappings[i].bytes, KVPULL_SEGMENT_READ_ONLY,
				handed->log, &mappings[i].base);
	return code;
}

/* The number of the peer's memory of a device, counted from 0. */
static uint32_t device_at(const struct kvpull_serve *remote, uint32_t fd_index)
{
	return (uint32_t)(kvpull_device_view_of(remote->devices,
						remote->device_count,
						fd_index) -
			  remote->devices);
}

/* Maps a region's memory, or takes its file. */
static int region_take(struct kvpull_shm_memory *memory,
		       const struct kvpull_shm_handed *handed, uint32_t index,
		       const struct kvpull_serve *remote)
{
	const struct kvpull_region_view *region = &remote->regions[index];
	const struct kvpull_shm_tables *tables = &memory->tables;
	const uint32_t is_unsealed = region->kind == KVPULL_REGION_UNSEALED;

	if (region->kind == KVPULL_REGION_PROVIDED) {
		tables->regions[index] =
			tables->mappings[region->fd_index].base +
			region->fd_offset;
		return 0;
	}
	if (region->kind == KVPULL_REGION_DEVICE) {
		tables->devices[index] = (struct kvpull_device_region){
			.mapping = handed->device_first +
				   device_at(remote, region->fd_index),
			.offset = region->fd_offset,
		};
		return 0;
	}
	if (region->kind == KVPULL_REGION_FOREIGN) {
		tables->remote_address[index] = (uintptr_t)region->base;
		memory->foreign_count++;
		memory->must_live = 1;
		return 0;
	}
	tables->files[index] =
		(struct kvpull_file){ .bytes = region->bytes,
				      .offset = region->fd_offset };
	memory->file_count++;
	memory->must_live |= is_unsealed;
	return kvpull_file_open(
		&tables->files[index],
		handed->welcome->fds[FD_REGIONS + region->fd_index],
		/* The owner writes unsealed memory through the page cache. */
		is_unsealed ? KVPULL_FILE_DIRECT_NO :
		region->kind == KVPULL_REGION_SLOTS ?
			      KVPULL_FILE_DIRECT_STRICT :
			      handed->file_direct,
		handed->log);
}

static int regions_take(struct kvpull_shm_memory *memory,
			const struct kvpull_shm_handed *handed,
			const struct kvpull_serve *remote)
{
	uint32_t i;
	int code;

	memory->region_count = remote->region_count;
	memory->foreign_count = 0;
	memory->file_count = 0;
	memory->must_live = 0;
	code = memory_map(memory, handed, remote);
	for (i = 0; !code && i < remote->region_count; i++)
		code = region_take(memory, handed, i, remote);
	if (code)
		return code;
	memory->slot_count = remote->slot_count;
	memory->entries_remote = (uintptr_t)remote->entries;
	return kvpull_segment_map(
		handed->welcome->fds[FD_ENTRIES],
		(size_t)remote->slot_count *
			sizeof(struct kvpull_revocation_entry),
		KVPULL_SEGMENT_READ_ONLY, handed->log, &memory->entries_memory);
}

/* A stream socket of this node: shutting it down does not block. */
static int doorbell_take(struct kvpull_shm_memory *memory,
			 const struct kvpull_shm_handed *handed)
{
	int *fd = &handed->welcome->fds[FD_DOORBELL];
	socklen_t option_bytes = sizeof(int);
	int domain = 0;
	int type = 0;

	if (getsockopt(*fd, SOL_SOCKET, SO_DOMAIN, &domain, &option_bytes) ||
	    getsockopt(*fd, SOL_SOCKET, SO_TYPE, &type, &option_bytes) ||
	    domain != AF_UNIX || type != SOCK_STREAM)
		return KVPULL_EPROTO;
	memory->doorbell = *fd;
	*fd = -1;
	return 0;
}

static int ring_attach(struct kvpull_shm_memory *memory,
		       const struct kvpull_shm_handed *handed)
{
	uint64_t bytes;
	const int fd = handed->welcome->fds[FD_RING];
	int code = kvpull_segment_bytes(fd, &bytes);

	if (code || !bytes ||
	    bytes > kvpull_ring_bytes(KVPULL_RING_RECORDS_MAX) +
			    KVPULL_HUGE_BYTES)
		return KVPULL_EPROTO;
	memory->ring_bytes = (size_t)bytes;
	code = kvpull_segment_map(fd, memory->ring_bytes, KVPULL_SEGMENT_SHARED,
				  handed->log, &memory->ring_memory);
	if (!code)
		code = kvpull_ring_writer_init(&memory->writer,
					       memory->ring_memory,
					       memory->ring_bytes);
	return code ? code : doorbell_take(memory, handed);
}

/*
 * Memory that is its own only while it lives: can that be seen? Of foreign
 * memory the pid is the kernel's word, not the welcome's. That it is the
 * process of the revocation table is seen by reading the table both ways.
 */
static int life_probe(const struct kvpull_shm_memory *memory,
		      const struct kvpull_shm_handed *handed)
{
	const struct kvpull_revocation_entry *entries =
		(const void *)memory->entries_memory;
	struct kvpull_revocation_value value;
	struct kvpull_cause cause;
	const char *why = NULL;

	if (!memory->must_live)
		return 0;
	if (handed->identity->pidfd < 0)
		why = "the peer's death could not be seen (no pidfd)";
	else if (!memory->foreign_count)
		return 0;
	else if (handed->identity->pid <= 0)
		why = "the peer is in another PID namespace";
	else if (kvpull_foreign_entry(handed->identity->pid,
				      memory->entries_remote, &value))
		why = kvpull_cause_of(&cause, KVPULL_CALL_PROCESS, errno);
	else if (value.incarnation !=
		 kvpull_revocation_read(&entries[0]).incarnation)
		why = "another process answers at that address";
	if (!why)
		return 0;
	kvpull_warn(handed->log,
		    "peer's own memory cannot be read from pid %d: %s",
		    handed->identity->pid, why);
	return KVPULL_EROUTE;
}

/* Nothing is waited for: an import that fails ends the peer. */
static void devices_import(struct kvpull_shm_memory *memory,
			   const struct kvpull_shm_handed *handed,
			   const struct kvpull_serve *remote)
{
	uint32_t at;

	memory->device_first = handed->device_first;
	for (at = 0; at < remote->device_count; at++) {
		const struct kvpull_device_view *view = &remote->devices[at];
		int *fd = &handed->welcome->fds[FD_REGIONS + view->fd_index];

		kvpull_device_thread_import(handed->device->thread,
					    handed->device_first + at, *fd,
					    view->part_bytes, view->uuid);
		*fd = -1;
		memory->device_count++;
	}
}

int kvpull_shm_attach(struct kvpull_shm_memory *memory,
		      const struct kvpull_shm_handed *handed,
		      const struct kvpull_serve *remote)
{
	int code = remote_check(handed, remote);

	if (!code)
		code = regions_take(memory, handed, remote);
	if (!code)
		code = ring_attach(memory, handed);
	if (!code)
		code = life_probe(memory, handed);
	if (!code)
		devices_import(memory, handed, remote);
	return code;
}
