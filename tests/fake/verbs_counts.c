/* SPDX-License-Identifier: Apache-2.0 */
/* Counts of work done so far, and devices that leave and come back. */
#include "tests/fake/verbs_state.h"

#define fake fake_verbs_state

#define COUNTED(name)                                                          \
	uint32_t fake_verbs_##name(void)                                       \
	{                                                                      \
		return fake.name;                                              \
	}

COUNTED(live)
COUNTED(made)
COUNTED(registrations)
COUNTED(deregistrations)
COUNTED(calls)
COUNTED(listings)
COUNTED(doorbells)
COUNTED(vectors)
COUNTED(openings)
COUNTED(event_reads)

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
