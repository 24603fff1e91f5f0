/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a device sits, as the kernel's files say it: how fast its link is, and
 * whether a process that may run on these CPUs is near it. The route chooses by
 * it, and kvpull_doctor says which that would be. Pure.
 */
#ifndef KVPULL_VERBS_PLACE_H
#define KVPULL_VERBS_PLACE_H

#include <sched.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/*
 * "800 Gb/sec (4X XDR)" in Mb/s; 0: no rate. In libibverbs a speed has eight
 * bits, and XDR is the ninth.
 */
static inline uint32_t kvpull_place_rate_mbps(const char *rate)
{
	const double gbps = strtod(rate, NULL);

	return gbps > 0 && gbps < 1e6 ? (uint32_t)(gbps * 1000 + 0.5) : 0;
}

/* Is any of these CPUs in a node's list like "0-15,32-47"? */
static inline int kvpull_place_is_among(const char *list, const cpu_set_t *cpus)
{
	char *end;

	while (*list >= '0' && *list <= '9') {
		size_t first = strtoul(list, &end, 10);
		const size_t last =
			*end == '-' ? strtoul(end + 1, &end, 10) : first;

		for (; first <= last && first < CPU_SETSIZE; first++)
			if (CPU_ISSET(first, cpus))
				return 1;
		list = *end == ',' ? end + 1 : "";
	}
	return 0;
}

/*
 * PCI bridges, the host's among them, that both links into the kernel's tree of
 * devices are below; 0: none.
 */
static inline uint32_t kvpull_place_bridges(const char *one, const char *other)
{
	static const char root[] = "devices/pci";
	uint32_t count = 0;

	one = strstr(one, root);
	other = strstr(other, root);
	for (; one && other && *one && *one == *other; one++, other++)
		count += *one == '/';
	/* The first slash stands behind "devices". */
	return count ? count - 1 : 0;
}

/*
 * The nth number of a node's list "10 21 21": how far from it node n is. 0: the
 * list does not say.
 */
static inline uint32_t kvpull_place_distance(const char *list, uint32_t node)
{
	unsigned long distance = 0;
	char *end;

	for (node++; node; node--) {
		distance = strtoul(list, &end, 10);
		if (end == list || distance > UINT16_MAX)
			return 0;
		list = end;
	}
	return (uint32_t)distance;
}

#endif /* KVPULL_VERBS_PLACE_H */
