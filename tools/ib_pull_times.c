/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long it took to connect, to connect again to a producer that was started
 * anew, and from the end of a pull until its producer had its blocks back. The
 * last one compares clocks of two processes: on one machine only. And by which
 * routes the producers were connected.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text_file.h"
#include "tools/ib_pull_parts.h"

#define PEERS_MAX 64
/* More is not a release, but a producer that did something else. */
#define RELEASE_NS_MAX UINT64_C(10000000000)

/*
 * Two processes share a monotonic clock if they run on one boot of one kernel.
 */
uint64_t ib_times_host(void)
{
	static uint64_t host;
	char text[64] = "";

	if (host)
		return host;
	kvpull_text_read("/proc/sys/kernel/random/boot_id", text, sizeof(text));
	/* 01234567-89ab-...: its first two fields. */
	host = strtoull(text, NULL, 16) << 16 | strtoull(text + 9, NULL, 16);
	return host;
}

void ib_times_ticket(struct ib_times *times)
{
	if (!times->wanted)
		return;
	times->wanted = 0;
	times->asked_ns = engine_now_ns();
}

/* Adds the routes that are used, which may differ from the wanted one. */
void ib_times_routes(const struct engine *engine, struct ib_result *result)
{
	struct kvpull_peer_info peers[PEERS_MAX];
	uint32_t rank;

	for (rank = 0; rank < engine->rank_count; rank++) {
		uint32_t count = engine_peers(engine, rank, peers, PEERS_MAX);

		while (count-- > 0) {
			const size_t used = strlen(result->routes);

			if (!peers[count].state_error &&
			    !strstr(result->routes, peers[count].route))
				(void)snprintf(result->routes + used,
					       sizeof(result->routes) - used,
					       "%s%s", used ? "+" : "",
					       peers[count].route);
		}
	}
}

void ib_times_look(struct ib_times *times, struct engine *engine,
		   struct ib_result *result)
{
	struct kvpull_peer_info peers[PEERS_MAX];
	uint64_t took_ns;
	uint32_t count;
	uint32_t at = 0;

	if (!times->asked_ns)
		return;
	count = engine_peers(engine, 0, peers, PEERS_MAX);
	while (at < count && (peers[at].state_error ||
			      peers[at].incarnation == times->incarnation))
		at++;
	if (at >= count)
		return;
	took_ns = engine_now_ns() - times->asked_ns;
	if (times->is_again)
		result->reconnect_ns = took_ns;
	else
		result->connect_ns = took_ns;
	times->is_again = 1;
	times->incarnation = peers[at].incarnation;
	ib_times_routes(engine, result);
	times->asked_ns = 0;
}

void ib_times_answer(struct ib_times *times, const struct ib_answer *answer,
		     struct ib_result *result, uint32_t count_max)
{
	const uint64_t took_ns = answer->ended_ns - times->ended_ns;

	if (times->ended_ns && times->host && answer->host == times->host &&
	    answer->ended_ns > times->ended_ns && took_ns < RELEASE_NS_MAX)
		result->releases[result->release_count++ % count_max] = took_ns;
	times->ended_ns = 0;
}
