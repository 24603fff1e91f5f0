/* SPDX-License-Identifier: Apache-2.0 */
/* The devices, memory, and the thread that takes what arrives. */
#include "tests/fake/rdma/rdma.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>

#define LOOK_MS 20

struct rdma fake_rdma = { .lock = PTHREAD_MUTEX_INITIALIZER };

int fake_rdma_has(const char *fault)
{
	return fake_rdma.fault && strcmp(fake_rdma.fault, fault) == 0;
}

/* An id may have been destroyed since the kernel told of it. */
static struct end *end_of(const void *address)
{
	struct end *end = fake_rdma.ends;

	while (end && end != address)
		end = end->next;
	return end;
}

static void socket_look(struct end *end)
{
	static struct packet packet;
	ssize_t got;

	if (end->is_listener) {
		fake_rdma_called(end);
		return;
	}
	got = recv(end->socket, &packet, sizeof(packet), MSG_DONTWAIT);
	if (got < 0 && errno == EAGAIN)
		return;
	fake_rdma_arrived(end, got > 0 ? &packet : NULL);
}

static void *thread_run(void *unused)
{
	(void)unused;
	for (;;) {
		struct epoll_event event;
		const int count =
			epoll_wait(fake_rdma.epoll, &event, 1, LOOK_MS);
		struct end *end;

		(void)pthread_mutex_lock(&fake_rdma.lock);
		end = count == 1 ? end_of(event.data.ptr) : NULL;
		if (end)
			socket_look(end);
		fake_rdma_lost();
		(void)pthread_mutex_unlock(&fake_rdma.lock);
	}
	return NULL;
}

static void devices_take(const char *addresses)
{
	char text[256];
	char *rest = NULL;
	char *one;

	(void)snprintf(text, sizeof(text), "%s", addresses ? addresses : "");
	for (one = strtok_r(text, ",", &rest);
	     one && fake_rdma.device_count < DEVICES_MAX;
	     one = strtok_r(NULL, ",", &rest)) {
		const uint32_t at = fake_rdma.device_count++;
		struct ibv_context *context = &fake_rdma.contexts[at];

		(void)inet_pton(AF_INET, one, &fake_rdma.addresses[at]);
		(void)snprintf(fake_rdma.devices[at].name,
			       sizeof(fake_rdma.devices[at].name), "fake%u",
			       at);
		context->device = &fake_rdma.devices[at];
		context->async_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
		context->num_comp_vectors = 1;
		fake_rdma_ops(context);
	}
}

static void begin(void)
{
	pthread_t thread;

	fake_rdma.folder = getenv("FAKE_RDMA");
	fake_rdma.fault = getenv("FAKE_RDMA_FAULT");
	if (!fake_rdma.folder)
		return;
	/* A NIC of another machine reads what is registered here. */
	(void)prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
	devices_take(getenv("FAKE_RDMA_ADDRESSES"));
	fake_rdma.epoll = epoll_create1(EPOLL_CLOEXEC);
	(void)pthread_create(&thread, NULL, thread_run, NULL);
}

void fake_rdma_begin(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	(void)pthread_once(&once, begin);
}

/* ---- what devices say of themselves ---- */

struct ibv_context **rdma_get_devices(int *count)
{
	struct ibv_context **list;
	uint32_t at;

	fake_rdma_begin();
	*count = (int)fake_rdma.device_count;
	list = calloc(DEVICES_MAX + 1, sizeof(struct ibv_context *));
	for (at = 0; list && at < fake_rdma.device_count; at++)
		list[at] = &fake_rdma.contexts[at];
	return list;
}

void rdma_free_devices(struct ibv_context **list)
{
	free(list);
}

const char *ibv_get_device_name(struct ibv_device *device)
{
	return device->name;
}

int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
	(void)context;
	*attr = (struct ibv_device_attr){ .phys_port_cnt = 1,
					  .max_qp_wr = QUEUE_MAX,
					  .max_cqe = 4 * QUEUE_MAX,
					  .max_sge = PARTS_MAX,
					  .max_sge_rd = PARTS_MAX,
					  .max_qp_rd_atom = 16,
					  .max_qp_init_rd_atom = 16,
					  .max_mr_size = UINT64_MAX };
	return 0;
}

#undef ibv_query_port
int ibv_query_port(struct ibv_context *context, uint8_t port,
		   struct _compat_ibv_port_attr *compat)
{
	struct ibv_port_attr *attr = (struct ibv_port_attr *)(void *)compat;

	(void)context;
	(void)port;
	attr->state = IBV_PORT_ACTIVE;
	attr->active_mtu = IBV_MTU_4096;
	attr->gid_tbl_len = 2;
	attr->active_width = 1;
	attr->active_speed = 32;
	return 0;
}

int _ibv_query_gid_ex(struct ibv_context *context, uint32_t port,
		      uint32_t gid_index, struct ibv_gid_entry *entry,
		      uint32_t flags, size_t entry_bytes)
{
	const uint64_t at = (uint64_t)(context - fake_rdma.contexts);

	(void)port;
	(void)flags;
	(void)entry_bytes;
	memset(&entry->gid, 0, sizeof(entry->gid));
	if (gid_index == 0) {
		entry->gid.raw[0] = 0xfe;
		entry->gid.raw[1] = 0x80;
		entry->gid.raw[15] = (uint8_t)(1 + at);
	} else {
		entry->gid.raw[10] = entry->gid.raw[11] = 0xff;
		memcpy(entry->gid.raw + 12, &fake_rdma.addresses[at], 4);
	}
	entry->gid_type = IBV_GID_TYPE_ROCE_V2;
	return 0;
}

int ibv_get_async_event(struct ibv_context *context,
			struct ibv_async_event *event)
{
	(void)context;
	(void)event;
	errno = EAGAIN;
	return -1;
}

void ibv_ack_async_event(struct ibv_async_event *event)
{
	(void)event;
}

const char *ibv_wc_status_str(enum ibv_wc_status status)
{
	return status == IBV_WC_RETRY_EXC_ERR ?
		       "transport retry counter exceeded" :
	       status == IBV_WC_WR_FLUSH_ERR ? "flushed" :
					       "failed";
}
