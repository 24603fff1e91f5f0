/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Protection domains, memory, and READs of it. A process tells the others in a file
 * of the fabric's folder which of its memory they may read, by which key, and in
 * which domain: a queue pair of another one gets an error.
 */
#include "tests/fake/rdma/rdma.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define TABLE_BYTES (TOLD_MAX * sizeof(struct told))
/* A dmabuf of tests/fake/cuda has its bytes behind a page that says what it is. */
#define HEAD_BYTES 4096u

struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
	struct ibv_pd *pd = calloc(1, sizeof(*pd));

	if (!pd)
		return NULL;
	pd->context = context;
	(void)pthread_mutex_lock(&fake_rdma.lock);
	pd->handle = ++fake_rdma.next_number;
	(void)pthread_mutex_unlock(&fake_rdma.lock);
	return pd;
}

int ibv_dealloc_pd(struct ibv_pd *pd)
{
	free(pd);
	return 0;
}

/* ---- what is told to other processes ---- */

/* The table of a process; made where that is this one. NULL: there is none. */
static struct told *table_map(pid_t pid)
{
	const int is_own = pid == getpid();
	char path[PATH_MAX];
	void *table = MAP_FAILED;
	int fd;

	(void)snprintf(path, sizeof(path), "%s/memory-%d", fake_rdma.folder,
		       (int)pid);
	fd = open(path,
		  is_own ? O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC :
			   O_RDONLY | O_CLOEXEC,
		  0600);
	if (fd < 0)
		return NULL;
	if (!is_own || !ftruncate(fd, (off_t)TABLE_BYTES))
		table = mmap(NULL, TABLE_BYTES,
			     is_own ? PROT_READ | PROT_WRITE : PROT_READ,
			     MAP_SHARED, fd, 0);
	(void)close(fd);
	return table == MAP_FAILED ? NULL : table;
}

/* Where the key is, or, for 0, room for one: next to its own place. */
static struct told *told_find(const struct told *table, uint32_t key,
			      uint32_t wanted)
{
	uint32_t at;

	for (at = 0; at < TOLD_MAX; at++) {
		const struct told *told = &table[(key + at) % TOLD_MAX];

		/* Pairs with the release in memory_tell(). */
		if (atomic_load_explicit(&told->key, memory_order_acquire) ==
		    wanted)
			return (struct told *)(uintptr_t)told;
	}
	return NULL;
}

static int memory_tell(struct memory *memory)
{
	struct told *told;

	if (!(memory->access & IBV_ACCESS_REMOTE_READ))
		return 0;
	if (!fake_rdma.told)
		fake_rdma.told = table_map(getpid());
	told = fake_rdma.told ? told_find(fake_rdma.told, memory->mr.rkey, 0) :
				NULL;
	if (!told)
		return -1;
	told->domain = memory->mr.pd->handle;
	told->begin = (uintptr_t)memory->mr.addr;
	told->bytes = memory->mr.length;
	told->view = (uintptr_t)memory->view;
	/* Pairs with the acquire in told_find(). */
	atomic_store_explicit(&told->key, memory->mr.rkey,
			      memory_order_release);
	memory->told = told;
	return 0;
}

void fake_rdma_untold(struct end *end)
{
	if (end->told)
		(void)munmap((void *)(uintptr_t)end->told, TABLE_BYTES);
	end->told = NULL;
}

/* ---- memory ---- */

/* Takes what is filled in: by the key, the domain and the view. NULL: errno. */
static struct ibv_mr *memory_add(const struct memory *filled)
{
	struct memory *memory = malloc(sizeof(*memory));
	int code = memory ? 0 : -1;

	if (memory) {
		*memory = *filled;
		(void)pthread_mutex_lock(&fake_rdma.lock);
		memory->mr.lkey = memory->mr.rkey = ++fake_rdma.next_number;
		code = memory_tell(memory);
		memory->next = fake_rdma.memories;
		if (!code)
			fake_rdma.memories = memory;
		(void)pthread_mutex_unlock(&fake_rdma.lock);
	}
	if (!code)
		return &memory->mr;
	free(memory);
	errno = ENOMEM;
	return NULL;
}

static struct memory memory_of(struct ibv_pd *pd, void *begin, size_t bytes,
			       int access)
{
	return (struct memory){ .mr = { .context = pd->context,
					.pd = pd,
					.addr = begin,
					.length = bytes },
				.access = access };
}

#undef ibv_reg_mr
struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *base, size_t bytes,
			  int access)
{
	struct memory memory = memory_of(pd, base, bytes, access);

	if (fake_rdma_has("no-memory")) {
		errno = ENOMEM;
		return NULL;
	}
	memory.view = base;
	return memory_add(&memory);
}

struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset,
				 size_t bytes, uint64_t begin, int fd,
				 int access)
{
	struct memory memory =
		memory_of(pd, (void *)(uintptr_t)begin, bytes, access);
	const uint64_t inside = offset % HEAD_BYTES;
	struct ibv_mr *mr;
	struct stat status;

	if (fstat(fd, &status) || !S_ISREG(status.st_mode) ||
	    HEAD_BYTES + offset + bytes > (uint64_t)status.st_size) {
		errno = EINVAL;
		return NULL;
	}
	memory.map_bytes = inside + bytes;
	memory.mapping =
		mmap(NULL, memory.map_bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
		     fd, (off_t)(HEAD_BYTES + offset - inside));
	if (memory.mapping == MAP_FAILED)
		return NULL;
	memory.view = (uint8_t *)memory.mapping + inside;
	mr = memory_add(&memory);
	if (!mr)
		(void)munmap(memory.mapping, memory.map_bytes);
	return mr;
}

/* Bytes that wait for memory which goes are lost. */
static void writes_drop(const struct memory *memory)
{
	struct write **at = &fake_rdma.writes;

	while (*at) {
		struct write *write = *at;

		if (write->to < memory->view ||
		    write->to >= memory->view + memory->mr.length) {
			at = &write->next;
			continue;
		}
		*at = write->next;
		free(write);
	}
	fake_rdma.writes_end = at;
}

int ibv_dereg_mr(struct ibv_mr *mr)
{
	struct memory *memory = (struct memory *)(void *)mr;
	struct memory **at = &fake_rdma.memories;

	(void)pthread_mutex_lock(&fake_rdma.lock);
	while (*at != memory)
		at = &(*at)->next;
	*at = memory->next;
	/* Nothing is read behind it: relaxed. */
	if (memory->told)
		atomic_store_explicit(&memory->told->key, 0,
				      memory_order_relaxed);
	if (memory->mapping) {
		writes_drop(memory);
		(void)munmap(memory->mapping, memory->map_bytes);
	}
	(void)pthread_mutex_unlock(&fake_rdma.lock);
	free(memory);
	return 0;
}

/* ---- READs ---- */

/* The memory of that key, if it is all there and in the queue pair's domain. */
static const struct memory *memory_find(const struct pair *pair, uint32_t key,
					uint64_t begin, uint64_t bytes,
					int access)
{
	const struct memory *memory = fake_rdma.memories;
	uint64_t at;

	while (memory && memory->mr.lkey != key)
		memory = memory->next;
	if (!memory || memory->mr.pd != pair->qp.pd ||
	    !(memory->access & access))
		return NULL;
	at = begin - (uintptr_t)memory->mr.addr;
	return at <= memory->mr.length && bytes <= memory->mr.length - at ?
		       memory :
		       NULL;
}

/* Show all that the device has written so far. */
static void writes_land(const struct ibv_context *device)
{
	struct write **at = &fake_rdma.writes;

	while (*at) {
		struct write *write = *at;

		if (write->device != device) {
			at = &write->next;
			continue;
		}
		memcpy(write->to, write->data, write->bytes);
		*at = write->next;
		free(write);
	}
	fake_rdma.writes_end = at;
}

static enum ibv_wc_status loop_read(const struct pair *pair,
				    const struct ibv_send_wr *request)
{
	const struct ibv_sge *part = request->sg_list;
	const uint64_t from = request->wr.rdma.remote_addr;
	const struct memory *memory =
		memory_find(pair, request->wr.rdma.rkey, from, part->length,
			    IBV_ACCESS_REMOTE_READ);

	if (!memory)
		return IBV_WC_REM_ACCESS_ERR;
	if (!memory_find(pair, part->lkey, part->addr, part->length,
			 IBV_ACCESS_LOCAL_WRITE))
		return IBV_WC_LOC_PROT_ERR;
	if (memory->mapping)
		writes_land(pair->qp.context);
	memcpy((void *)(uintptr_t)part->addr,
	       memory->view + (from - (uintptr_t)memory->mr.addr),
	       part->length);
	return IBV_WC_SUCCESS;
}

/* Where the bytes of a part go first: into a write, where it is the GPU's. */
static enum ibv_wc_status part_open(const struct pair *pair,
				    const struct ibv_sge *part,
				    struct iovec *to, struct write **write)
{
	const struct memory *memory =
		memory_find(pair, part->lkey, part->addr, part->length,
			    IBV_ACCESS_LOCAL_WRITE);
	uint8_t *at;

	if (!memory)
		return IBV_WC_LOC_PROT_ERR;
	at = memory->view + (part->addr - (uintptr_t)memory->mr.addr);
	*to = (struct iovec){ at, part->length };
	if (!memory->mapping)
		return IBV_WC_SUCCESS;
	*write = malloc(sizeof(**write) + part->length);
	if (!*write)
		return IBV_WC_GENERAL_ERR;
	**write = (struct write){ .device = pair->qp.context,
				  .to = at,
				  .bytes = part->length };
	to->iov_base = (*write)->data;
	return IBV_WC_SUCCESS;
}

static void write_keep(struct write *write)
{
	if (!fake_rdma.writes_end)
		fake_rdma.writes_end = &fake_rdma.writes;
	*fake_rdma.writes_end = write;
	fake_rdma.writes_end = &write->next;
}

/* Where those bytes are in the other process; NULL: it does not let us. */
static void *remote_view(struct end *end, pid_t pid, uint32_t key,
			 uint64_t begin, uint64_t bytes)
{
	const struct told *told;
	uint64_t at;

	if (!end->told)
		end->told = table_map(pid);
	told = end->told ? told_find(end->told, key, key) : NULL;
	if (!told || told->domain != end->domain)
		return NULL;
	at = begin - told->begin;
	return at <= told->bytes && bytes <= told->bytes - at ?
		       (void *)(uintptr_t)(told->view + at) :
		       NULL;
}

static enum ibv_wc_status bytes_fetch(struct end *end,
				      const struct ibv_send_wr *request,
				      const struct iovec *to, uint64_t bytes)
{
	struct iovec from = { NULL, bytes };
	struct ucred other;
	socklen_t other_bytes = sizeof(other);

	if (getsockopt(end->socket, SOL_SOCKET, SO_PEERCRED, &other,
		       &other_bytes))
		return IBV_WC_RETRY_EXC_ERR;
	from.iov_base = remote_view(end, other.pid, request->wr.rdma.rkey,
				    request->wr.rdma.remote_addr, bytes);
	if (!from.iov_base)
		return IBV_WC_REM_ACCESS_ERR;
	if (process_vm_readv(other.pid, to, (unsigned long)request->num_sge,
			     &from, 1, 0) == (ssize_t)bytes)
		return IBV_WC_SUCCESS;
	return errno == ESRCH ? IBV_WC_RETRY_EXC_ERR : IBV_WC_REM_ACCESS_ERR;
}

static enum ibv_wc_status peer_read(const struct pair *pair,
				    const struct ibv_send_wr *request)
{
	struct write *writes[PARTS_MAX] = { NULL };
	struct iovec to[PARTS_MAX];
	enum ibv_wc_status status = IBV_WC_SUCCESS;
	uint64_t bytes = 0;
	int at;

	for (at = 0; !status && at < request->num_sge; at++) {
		status = part_open(pair, &request->sg_list[at], &to[at],
				   &writes[at]);
		bytes += request->sg_list[at].length;
	}
	if (!status)
		status = bytes_fetch(pair->end, request, to, bytes);
	for (at = 0; at < request->num_sge; at++) {
		if (writes[at] && !status)
			write_keep(writes[at]);
		else
			free(writes[at]);
	}
	return status;
}

enum ibv_wc_status fake_rdma_read(struct pair *pair,
				  const struct ibv_send_wr *request)
{
	if (pair->is_loop)
		return loop_read(pair, request);
	return pair->end ? peer_read(pair, request) : IBV_WC_RETRY_EXC_ERR;
}
