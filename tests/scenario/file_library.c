/* SPDX-License-Identifier: Apache-2.0 */
/*
 * P's engine is the model engine over a library whose memory_alloc() and
 * regions_register() are replaced: the last groups' blocks are a shared mapping
 * of a file, and that file is the region. So P writes its blocks as ever, and
 * overwrites them the moment they come back. D's may hang in its disk.
 */
#undef _FORTIFY_SOURCE /* whose pread() is inline, and cannot be replaced */
#include "tests/scenario/file_library.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "tests/scenario/node.h"

#define FILE_OFFSET 12288u

/* ---- P's library ---- */

static struct {
	const struct kvpull_connector_ops *real;
	struct kvpull_connector_ops ops;
	struct kvpull_worker_ops worker;
	uint64_t memory_bytes; /* before the file's */
	uint64_t file_bytes;
	uint32_t file_only;
	int fd;
} spill;

static int spill_file(void)
{
	const char *folder = getenv("TMPDIR");
	char path[] = "/tmp/kvpull-spill-XXXXXX";
	int fd = open(folder ? folder : "/tmp",
		      O_TMPFILE | O_EXCL | O_RDWR | O_CLOEXEC, 0600);

	if (fd >= 0)
		return fd;
	/* A file system without O_TMPFILE. */
	fd = mkstemp(path);
	if (fd >= 0)
		(void)unlink(path);
	return fd;
}

/* The provider's memory; its second half is the file's. */
static int spill_alloc(struct kvpull_worker *worker, uint64_t bytes,
		       uint32_t flags, struct kvpull_memory *memory)
{
	int code;

	(void)flags;
	code = spill.real->worker->memory_alloc(worker, bytes, 0, memory);
	if (code)
		return code;
	spill.memory_bytes = spill.file_only ? 0 : bytes / 2;
	spill.file_bytes = bytes - spill.memory_bytes;
	spill.fd = spill_file();
	if (spill.fd < 0 ||
	    ftruncate(spill.fd, (off_t)(FILE_OFFSET + spill.file_bytes)) ||
	    mmap((uint8_t *)memory->base + spill.memory_bytes, spill.file_bytes,
		 PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, spill.fd,
		 FILE_OFFSET) == MAP_FAILED) {
		fprintf(stderr, "spill file: %s\n", strerror(errno));
		return KVPULL_ENOMEM;
	}
	return 0;
}

static int spill_register(struct kvpull_worker *worker,
			  const struct kvpull_regions *given,
			  struct kvpull_error_detail *detail)
{
	struct kvpull_cache caches[KVPULL_GROUPS_MAX];
	struct kvpull_region both[2] = { given->regions[0] };
	struct kvpull_regions regions = *given;
	uint32_t group;

	both[1] = (struct kvpull_region){
		.struct_size = sizeof(both[1]),
		.kind = KVPULL_REGION_FILE,
		.fd = spill.fd,
		.fd_offset = FILE_OFFSET,
		.bytes = spill.file_bytes,
	};
	for (group = 0; group < given->cache_count; group++) {
		caches[group] = given->caches[group];
		if (caches[group].offset < spill.memory_bytes)
			continue;
		caches[group].offset -= spill.memory_bytes;
		caches[group].region_index = spill.file_only ? 0 : 1;
	}
	regions.regions = spill.file_only ? &both[1] : both;
	regions.region_count = spill.file_only ? 1 : 2;
	regions.caches = caches;
	return spill.real->worker->regions_register(worker, &regions, detail);
}

static const struct kvpull_connector_ops *library_spill(uint32_t file_only)
{
	spill.real = engine_library();
	if (!spill.real)
		return NULL;
	spill.file_only = file_only;
	spill.worker = *spill.real->worker;
	spill.worker.memory_alloc = spill_alloc;
	spill.worker.regions_register = spill_register;
	spill.ops = *spill.real;
	spill.ops.worker = &spill.worker;
	return &spill.ops;
}

const struct kvpull_connector_ops *file_library_mixed(void)
{
	return library_spill(0);
}

const struct kvpull_connector_ops *file_library_only(void)
{
	return library_spill(1);
}

/* ---- D's disk and library, where the disk hangs ---- */

static _Atomic uint32_t hangs; /* 1: pread() of unnamed files does not return */
static struct kvpull_scheduler_ops unloading;

/* In the place of libc's, for the library, too. */
__attribute__((visibility("default"))) ssize_t
pread(int fd, void *bytes, size_t byte_count, off_t offset)
{
	const struct iovec part = { .iov_base = bytes, .iov_len = byte_count };
	struct stat file;

	while (!fstat(fd, &file) && !file.st_nlink &&
	       atomic_load_explicit(&hangs, memory_order_acquire))
		(void)poll(NULL, 0, 1);
	return preadv(fd, &part, 1, offset);
}

/* There, as of many file systems: they do not say how to align. */
__attribute__((visibility("default"))) int statx(int folder, const char *path,
						 int flags, unsigned int mask,
						 struct statx *status)
{
	return (int)syscall(SYS_statx, folder, path, flags,
			    atomic_load_explicit(&hangs, memory_order_acquire) ?
				    mask & ~STATX_DIOALIGN :
				    mask,
			    status);
}

void file_disk_hangs(void)
{
	atomic_store_explicit(&hangs, 1, memory_order_release);
}

/*
 * The last call of an engine: then it unloads the library, and only after that
 * the disk goes on. Who hung in it has to find its code.
 */
static void close_and_unload(struct kvpull_scheduler *scheduler)
{
	const struct kvpull_connector_ops *ops = spill.real;
	void *library;
	uint32_t turn;
	Dl_info info;

	ops->scheduler->close(scheduler);
	if (!dladdr(ops, &info))
		abort();
	/* More often than it was opened: what is to stay takes no count. */
	for (turn = 0; turn < 8; turn++) {
		library = dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD);
		if (!library || dlclose(library) || dlclose(library))
			break;
	}
	atomic_store_explicit(&hangs, 0, memory_order_release);
	scenario_sleep_ns(100 * SCENARIO_NS_PER_MS);
}

const struct kvpull_connector_ops *file_library_unloading(void)
{
	spill.real = engine_library();
	if (!spill.real)
		return NULL;
	unloading = *spill.real->scheduler;
	unloading.close = close_and_unload;
	spill.ops = *spill.real;
	spill.ops.scheduler = &unloading;
	return &spill.ops;
}
