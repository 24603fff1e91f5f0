/* SPDX-License-Identifier: Apache-2.0 */
/* The devices, what they say of themselves, and memory regions. */
#include "tests/fake/verbs_state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct fake_verbs_knobs fake_verbs_knobs;

struct fake_verbs fake_verbs_state;
#define fake fake_verbs_state

static struct kvpull_fabric fabric; /* filled in at reset */

/* Return: 1 if this one may be made. */
static int may_make(void)
{
	if (fake_verbs_knobs.make_at && !--fake_verbs_knobs.make_at) {
		errno = ENOMEM;
		return 0;
	}
	fake.live++;
	fake.made++;
	return 1;
}

void *fake_verbs_make(size_t bytes)
{
	return may_make() ? calloc(1, bytes) : NULL;
}

int fake_verbs_unmake(void *object)
{
	fake.live--;
	free(object);
	return 0;
}

uint32_t fake_verbs_index(const struct ibv_context *context)
{
	return (uint32_t)(context - fake.contexts);
}

enum ibv_mtu fake_verbs_mtu(const struct ibv_context *context)
{
	const enum ibv_mtu mtu =
		fake_verbs_knobs.mtu[fake_verbs_index(context)];

	return mtu ? mtu : IBV_MTU_4096;
}

struct ibv_context *fake_verbs_context(const struct sockaddr_in *address)
{
	const uint32_t index = ntohl(address->sin_addr.s_addr) >> 8 & 0xff;

	return &fake.contexts[index < fake.device_count ? index : 0];
}

static const char *get_device_name(struct ibv_device *device)
{
	return device->name;
}

static int query_device(struct ibv_context *context,
			struct ibv_device_attr *attr)
{
	const uint32_t index = fake_verbs_index(context);

	*attr = (struct ibv_device_attr){
		.phys_port_cnt =
			fake.shapes ? fake_verbs_shape_ports(index) : 1,
		.max_qp_wr = fake_verbs_knobs.queue_max ?
				     fake_verbs_knobs.queue_max :
				     (int)QUEUE_MAX,
		.max_cqe = 4 * QUEUE_MAX,
		.max_sge = PARTS_MAX,
		.max_sge_rd = fake_verbs_knobs.parts_max ?
				      fake_verbs_knobs.parts_max :
				      PARTS_MAX,
		.max_qp_rd_atom = 16,
		.max_qp_init_rd_atom = fake_verbs_knobs.own_reads_max ?
					       fake_verbs_knobs.own_reads_max :
					       16,
		.max_mr_size = UINT64_MAX
	};
	return 0;
}

static int query_port(struct ibv_context *context, uint8_t port,
		      struct _compat_ibv_port_attr *compat)
{
	struct ibv_port_attr *attr = (struct ibv_port_attr *)(void *)compat;

	attr->state =
		fake_verbs_knobs.ports_down >> fake_verbs_index(context) & 1 ?
			IBV_PORT_DOWN :
			IBV_PORT_ACTIVE;
	attr->active_mtu = fake_verbs_mtu(context);
	attr->gid_tbl_len = fake_verbs_knobs.second_address ? 3 : 2;
	attr->active_width = 1;
	attr->active_speed = 32;
	if (fake.shapes)
		fake_verbs_shape_port(fake_verbs_index(context), port, attr);
	return 0;
}

static int query_gid(struct ibv_context *context, uint32_t port,
		     uint32_t gid_index, struct ibv_gid_entry *entry,
		     uint32_t flags, size_t bytes)
{
	uint8_t gids[3][16] = {
		{ 0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1 },
		{ 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 66, 0, 1 },
		{ 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 66, 1, 1 },
	};

	(void)flags;
	(void)bytes;
	if (fake_verbs_knobs.gid_error)
		return fake_verbs_knobs.gid_error;
	if (fake.shapes)
		return fake_verbs_shape_gid(fake_verbs_index(context), port,
					    gid_index, entry);
	if (gid_index == 1 && fake.absent >> fake_verbs_index(context) & 1)
		return ENOENT;
	if (gid_index == 2 && !fake_verbs_knobs.second_address)
		return ENOENT;
	gids[0][15] += (uint8_t)fake_verbs_index(context);
	gids[1][15] += fake.moved[fake_verbs_index(context)];
	gids[1][14] = (uint8_t)fake_verbs_index(context);
	memcpy(entry->gid.raw, gids[gid_index], 16);
	entry->gid_type = IBV_GID_TYPE_ROCE_V2;
	return 0;
}

static struct ibv_pd *alloc_pd(struct ibv_context *context)
{
	struct ibv_pd *pd = fake_verbs_make(sizeof(*pd));

	if (pd)
		pd->context = context;
	return pd;
}

static int dealloc_pd(struct ibv_pd *pd)
{
	uint32_t i;

	for (i = 0; i < IDS_MAX; i++)
		if (fake.qps[i] && fake.qps[i]->qp.pd == pd)
			return EBUSY;
	for (i = 0; i < REGIONS_MAX; i++)
		if (fake.regions[i] && fake.regions[i]->mr.pd == pd)
			return EBUSY;
	return fake_verbs_unmake(pd);
}

static struct ibv_mr *reg_mr(struct ibv_pd *pd, void *base, size_t bytes,
			     int access)
{
	struct fake_region *region;
	uint32_t i;

	if (access & fake_verbs_knobs.access_unknown) {
		errno = EINVAL;
		return NULL;
	}
	if (fake_verbs_knobs.memory_error) {
		errno = fake_verbs_knobs.memory_error;
		return NULL;
	}
	region = fake_verbs_make(sizeof(*region));
	for (i = 0; region && i < REGIONS_MAX; i++) {
		const uint32_t key = ++fake.next_key;

		if (fake.regions[key % REGIONS_MAX])
			continue;
		fake.regions[key % REGIONS_MAX] = region;
		fake.registrations++;
		region->access = access;
		region->mr.context = pd->context;
		region->mr.pd = pd;
		region->mr.addr = base;
		region->mr.length = bytes;
		region->mr.lkey = region->mr.rkey = key;
		return &region->mr;
	}
	return NULL;
}

/* Memory like any other here; that it came so is remembered. */
static struct ibv_mr *reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset,
				    size_t bytes, uint64_t iova, int fd,
				    int access)
{
	struct ibv_mr *mr;

	if (fake_verbs_knobs.dmabuf_error) {
		errno = fake_verbs_knobs.dmabuf_error;
		return NULL;
	}
	mr = reg_mr(pd, (void *)(uintptr_t)iova, bytes, access);
	if (!mr)
		return NULL;
	((struct fake_region *)(void *)mr)->is_gpu = 1;
	fake.dmabuf =
		(struct fake_verbs_dmabuf){ offset, bytes, iova, fd, access };
	return mr;
}

uint32_t fake_verbs_domains(const void *base)
{
	const struct ibv_pd *seen[FAKE_VERBS_DEVICES_MAX] = { NULL };
	uint32_t count = 0;
	uint32_t at;
	uint32_t i;

	for (i = 0; i < REGIONS_MAX; i++) {
		const struct fake_region *region = fake.regions[i];

		if (!region || region->mr.addr != base)
			continue;
		for (at = 0; at < count && seen[at] != region->mr.pd;)
			at++;
		seen[at] = region->mr.pd;
		count += at == count;
	}
	return count;
}

struct fake_verbs_dmabuf fake_verbs_dmabuf(void)
{
	return fake.dmabuf;
}

int fake_verbs_memory_access(const void *base)
{
	uint32_t i;

	for (i = 0; i < REGIONS_MAX; i++)
		if (fake.regions[i] && fake.regions[i]->mr.addr == base)
			return fake.regions[i]->access;
	return -1;
}

static int dereg_mr(struct ibv_mr *mr)
{
	uint32_t i;

	fake.deregistrations++;
	fake_verbs_writes_drop(mr->addr, mr->length);
	for (i = 0; i < REGIONS_MAX; i++)
		if (fake.regions[i] && &fake.regions[i]->mr == mr)
			fake.regions[i] = NULL;
	return fake_verbs_unmake(mr);
}

static int get_async_event(struct ibv_context *context,
			   struct ibv_async_event *event)
{
	eventfd_t ignored;

	if (eventfd_read(context->async_fd, &ignored))
		return -1;
	*event = fake.asyncs[fake_verbs_index(context)];
	return 0;
}

static void ack_async_event(struct ibv_async_event *event)
{
	(void)event;
}

void fake_verbs_async(uint32_t device, enum ibv_event_type type)
{
	struct ibv_async_event *event = &fake.asyncs[device];
	uint32_t i;

	event->event_type = type;
	event->element.port_num = 1;
	if (type == IBV_EVENT_DEVICE_FATAL)
		fake.removed |= 1u << device;
	for (i = 0; type <= IBV_EVENT_QP_ACCESS_ERR && i < IDS_MAX; i++) {
		const struct fake_id *id = fake.ids[i];

		if (!id || !id->qp || !id->initiator ||
		    id->id.verbs != &fake.contexts[device])
			continue;
		if (type == IBV_EVENT_CQ_ERR)
			event->element.cq = id->qp->qp.send_cq;
		else
			event->element.qp = &id->qp->qp;
	}
	(void)eventfd_write(fake.contexts[device].async_fd, 1);
}

static const char *wc_status_str(enum ibv_wc_status status)
{
	return status == IBV_WC_WR_FLUSH_ERR ? "flushed" : "failed";
}

static void device_fill(struct kvpull_fabric *table)
{
	table->ibv.get_device_name = get_device_name;
	table->ibv.query_device = query_device;
	table->ibv.query_port = query_port;
	table->ibv.query_gid = query_gid;
	table->ibv.alloc_pd = alloc_pd;
	table->ibv.dealloc_pd = dealloc_pd;
	table->ibv.reg_mr = reg_mr;
	table->ibv.reg_dmabuf_mr = reg_dmabuf_mr;
	table->ibv.dereg_mr = dereg_mr;
	table->ibv.get_async_event = get_async_event;
	table->ibv.ack_async_event = ack_async_event;
	table->ibv.wc_status_str = wc_status_str;
}

/*
 * A descriptor for the program's life: tests do not look at the closing of
 * devices. It blocks, as the kernel's does.
 */
static int async_fd_of(uint32_t device)
{
	static int fds[FAKE_VERBS_DEVICES_MAX]; /* 0: not made yet */

	if (fds[device] > 0)
		(void)close(fds[device]);
	fds[device] = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
	return fds[device];
}

void fake_verbs_reset(void)
{
	uint32_t i;

	fake_verbs_writes_drop(NULL, UINT64_MAX);
	memset(&fake, 0, sizeof(fake));
	memset(&fake_verbs_knobs, 0, sizeof(fake_verbs_knobs));
	for (i = 0; i < FAKE_VERBS_DEVICES_MAX; i++) {
		struct ibv_context *context = &fake.contexts[i];

		memcpy(fake.devices[i].name, "fake0", sizeof("fake0"));
		fake.devices[i].name[4] = (char)('0' + i);
		context->device = &fake.devices[i];
		context->async_fd = async_fd_of(i);
		context->num_comp_vectors = FAKE_VERBS_VECTORS;
		fake_verbs_queue_ops(context);
	}
	fake.next_port = 1000;
	fake_verbs_devices(1);
	device_fill(&fabric);
	fake_verbs_queue_fill(&fabric);
	fake_verbs_cm_fill(&fabric);
}

void fake_verbs_devices(uint32_t count)
{
	fake.device_count = count;
}

struct kvpull_fabric *fake_verbs_fabric(void)
{
	return &fabric;
}
