/* SPDX-License-Identifier: Apache-2.0 */
/* Counts of work done so far, and devices that leave and come back. */
#include "tests/fake/verbs_state.h"

#define fake fake_verbs_state

uint32_t fake_verbs_live(void)
{
	return fake.live;
}

uint32_t fake_verbs_made(void)
{
	return fake.made;
}

uint32_t fake_verbs_registrations(void)
{
	return fake.registrations;
}

uint32_t fake_verbs_deregistrations(void)
{
	return fake.deregistrations;
}

uint32_t fake_verbs_device_count(uint32_t device, enum fake_verbs_kind kind)
{
	return fake.counts[device][kind];
}

uint32_t fake_verbs_count(enum fake_verbs_kind kind)
{
	uint32_t count = 0;
	uint32_t device;

	for (device = 0; device < FAKE_VERBS_DEVICES_MAX; device++)
		count += fake.counts[device][kind];
	return count;
}

uint32_t fake_verbs_calls(void)
{
	return fake.calls;
}

uint32_t fake_verbs_listings(void)
{
	return fake.listings;
}

uint32_t fake_verbs_doorbells(void)
{
	return fake.doorbells;
}

uint32_t fake_verbs_vectors(void)
{
	return fake.vectors;
}

uint32_t fake_verbs_openings(void)
{
	return fake.openings;
}

uint32_t fake_verbs_event_reads(void)
{
	return fake.event_reads;
}

void fake_verbs_return(uint32_t device, uint32_t moved)
{
	fake.removed &= ~(1u << device);
	fake.absent &= ~(1u << device);
	fake.moved[device] = (uint8_t)moved;
}

void fake_verbs_unaddress(uint32_t device)
{
	fake.absent |= 1u << device;
	fake_verbs_async(device, IBV_EVENT_GID_CHANGE);
}
