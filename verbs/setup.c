/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All rails have the same bounds, the least of their devices': a slice that
 * one rail had posted is posted by another one as it was.
 */
#include "verbs/setup.h"

#include "base/clock.h"
#include "base/least.h"
#include "base/params.h"
#include "verbs/reads.h"

/* Every device takes 2 GiB a message, soft-RoCE of 6.1 takes 8 MiB. */
#define MESSAGE_BYTES_MAX (UINT64_C(8) << 20)

static void set_u32(uint32_t *member, uint32_t value)
{
	if (!*member)
		*member = value;
}

static void set_u64(uint64_t *member, uint64_t value)
{
	if (!*member)
		*member = value;
}

static void bound(uint32_t *member, uint32_t most)
{
	*member = kvpull_least_u32(*member, most);
}

void kvpull_verbs_setup_defaults(struct kvpull_verbs_params *params)
{
	set_u32(&params->notify_credits, KVPULL_VERBS_CREDITS_DEFAULT);
	set_u32(&params->slots_max, 1);
	set_u32(&params->qps, 1);
	bound(&params->qps, KVPULL_VERBS_QPS_MAX);
	set_u32(&params->depth, 256);
	set_u32(&params->batch, KVPULL_VERBS_BATCH_MAX);
	set_u32(&params->rd_atomic, 16);
	bound(&params->rd_atomic, UINT8_MAX);
	set_u32(&params->parts_max, 16);
	set_u32(&params->retry_count, 6);
	set_u32(&params->ack_timeout, 14);
	set_u32(&params->mr_shift, 30);
	set_u64(&params->slice_bytes, UINT64_C(1) << 20);
	set_u64(&params->window_bytes, UINT64_C(16) << 20);
	set_u64(&params->connect_ns, 5 * KVPULL_NS_PER_S);
	set_u64(&params->flush_ns, KVPULL_NS_PER_S / 10);
	bound(&params->batch, KVPULL_VERBS_BATCH_MAX);
	bound(&params->parts_max, KVPULL_SLICE_PARTS_MAX);
	params->slice_bytes = kvpull_least(
		params->slice_bytes,
		kvpull_least(MESSAGE_BYTES_MAX, params->window_bytes / 4));
}

static int names_take(struct kvpull_verbs_shared *shared, const char **list,
		      char names[KVPULL_VERBS_NAMES_BYTES])
{
	if (!*list)
		return 0;
	if (kvpull_verbs_rank_list(*list, shared->params.local_rank, names,
				   KVPULL_VERBS_NAMES_BYTES)) {
		kvpull_error(shared->log,
			     "verbs: %.60s...: more than %u bytes for a rank",
			     *list, KVPULL_VERBS_NAMES_BYTES - 1);
		return KVPULL_ECONFIG;
	}
	*list = names;
	return 0;
}

int kvpull_verbs_setup_names(struct kvpull_verbs_shared *shared)
{
	const int code = names_take(shared, &shared->params.device,
				    shared->devices_named);

	return code ? code :
		      names_take(shared, &shared->params.address,
				 shared->addresses_named);
}

/* The device's limits bound every parameter. */
static void limits_apply(struct kvpull_verbs_params *params,
			 const struct kvpull_verbs_device *device)
{
	const struct ibv_device_attr *limits = &device->limits;
	const uint32_t frames = 2 * params->notify_credits;
	const uint32_t requests_max = (uint32_t)limits->max_qp_wr;
	const uint32_t completions_max = (uint32_t)limits->max_cqe;

	bound(&params->parts_max,
	      (uint32_t)(limits->max_sge_rd > 0 ? limits->max_sge_rd :
						  limits->max_sge));
	if (requests_max > frames)
		bound(&params->depth, requests_max - frames);
	if (completions_max > 2 * frames)
		bound(&params->depth, completions_max - 2 * frames);
}

/* The first device that is there: who may read, and within which bounds. */
static void first_say(struct kvpull_verbs_shared *shared)
{
	if (!shared->was_there++ && shared->params.keyless)
		kvpull_warn(
			shared->log,
			"verbs without a key_file: every host of the networks may read all KV memory");
}

/* Can this host have a device later? Where rdma_cm is not loaded it cannot. */
static int can_come(const struct kvpull_verbs_shared *shared)
{
	struct rdma_event_channel *channel =
		shared->fabric->cm.create_event_channel();

	if (channel)
		shared->fabric->cm.destroy_event_channel(channel);
	return channel != NULL;
}

int kvpull_verbs_setup_devices(struct kvpull_verbs_shared *shared)
{
	const uint32_t wanted = kvpull_verbs_rails_wanted(&shared->params);
	int first_code = 0;
	uint32_t rail;

	for (rail = 0; rail < wanted; rail++) {
		struct kvpull_verbs_device *device = &shared->devices[rail];
		const int code = kvpull_verbs_device_open(
			shared->devices, shared->rail_count, rail,
			shared->fabric, &shared->params);

		if (code == KVPULL_ECONFIG)
			return code;
		/* A rail that is missing has its place, and is looked for. */
		shared->rail_count++;
		if (!code) {
			limits_apply(&shared->params, device);
			first_say(shared);
			continue;
		}
		device->gone = KVPULL_VERBS_DEVICE_CLOSED;
		if (!first_code)
			first_code = code;
		if (wanted > 1)
			kvpull_warn(
				shared->log,
				"verbs: rail %u of %u is missing (%s), and used when it comes",
				rail, wanted, kvpull_error_name(code));
	}
	if (shared->was_there)
		return 0;
	return first_code != KVPULL_EUNSUPPORTED || shared->params.required ||
			       !can_come(shared) ?
		       first_code :
		       0;
}

int kvpull_verbs_setup_networks(struct kvpull_verbs_shared *shared,
				const char *text)
{
	struct kvpull_networks *networks = &shared->networks;
	const int given = text && text[0];
	uint32_t at;
	uint32_t i;

	if (kvpull_verbs_networks_parse(text, networks)) {
		kvpull_error(
			shared->log,
			"verbs: networks %s: must be like 10.0.0.0/8,fd00::/8",
			text);
		return KVPULL_ECONFIG;
	}
	for (at = 0; at < shared->rail_count; at++) {
		struct kvpull_verbs_device *device = &shared->devices[at];

		if (!device->context)
			continue;
		kvpull_verbs_device_subnets(device, given ? KVPULL_LOG_DEBUG :
							    KVPULL_LOG_WARN);
		for (i = 0; !given && i < device->subnets.count &&
			    networks->count < KVPULL_NETWORKS_MAX;
		     i++)
			networks->list[networks->count++] =
				device->subnets.list[i];
	}
	return 0;
}

/*
 * The bounds of a device that comes late are those of all, if it is the first;
 * queues are as deep as they were made. 0 or KVPULL_EUNSUPPORTED.
 */
static int bounds_take(struct kvpull_verbs_shared *shared,
		       const struct kvpull_verbs_device *device)
{
	struct kvpull_verbs_params *params = &shared->params;
	struct kvpull_verbs_params bounds = *params;

	limits_apply(&bounds, device);
	if (bounds.depth < params->depth)
		return KVPULL_EUNSUPPORTED;
	if (!shared->was_there)
		params->parts_max = bounds.parts_max;
	return bounds.parts_max < params->parts_max ? KVPULL_EUNSUPPORTED : 0;
}

int kvpull_verbs_setup_again(struct kvpull_verbs_shared *shared, uint32_t index,
			     uint32_t rank_least)
{
	struct kvpull_verbs_device *device = &shared->devices[index];
	int code = kvpull_verbs_device_open_again(shared->devices,
						  shared->rail_count, index,
						  &shared->params, rank_least);

	if (code)
		return code;
	code = bounds_take(shared, device);
	if (!code)
		code = kvpull_verbs_setup_networks(shared,
						   shared->params.networks);
	if (!code) {
		first_say(shared);
		shared->less_said &= ~(1u << index);
		return 0;
	}
	kvpull_log(shared->log,
		   shared->less_said >> index & 1 ? KVPULL_LOG_DEBUG :
						    KVPULL_LOG_WARN,
		   "verbs: %s takes less than before: restart to use it",
		   device->choice);
	shared->less_said |= 1u << index;
	kvpull_verbs_device_close(device);
	return code;
}
