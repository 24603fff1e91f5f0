/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tables of the manual as the library has them: pages keys|counters|errors|
 * limits. pages.sh puts them between their marks. pages json FILE: it is JSON.
 */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "plugin/config/config_table.h"
#include "plugin/counters/counters.h"
#include "plugin/hold/hold.h"
#include "plugin/progress/progress_state.h"
#include "shm/gate.h"
#include "verbs/gate.h"

/* Prints text with each sentence on a line of its own, as mdoc wants it. */
static void sentences_print(const char *text)
{
	const char *end;

	for (end = strstr(text, ". "); end; end = strstr(text, ". ")) {
		printf("%.*s.\n", (int)(end - text), text);
		text = end + 2;
	}
	printf("%s.\n", text);
}

static void keys_print(void)
{
	char range[128];
	size_t i;

	for (i = 0; i < kvpull_config_key_count; i++) {
		const struct kvpull_config_key *key = &kvpull_config_keys[i];
		/* JSON quotes texts. */
		const char *quote =
			key->type >= KVPULL_KEY_CHOICE &&
					key->type < KVPULL_KEY_UIDS ?
				"\"" :
				"";

		kvpull_config_key_range(key, range, sizeof(range));
		printf(".It Cm %s\n", key->name);
		sentences_print(key->meaning);
		printf("Default %s%s%s; %s.\n", quote, key->value, quote,
		       range);
	}
}

static void half_print(const struct kvpull_counter_table *table)
{
	static const char *const kinds[] = { "total", "live", "peak" };
	uint32_t i;

	printf(".Ss Of a %s\n.Bl -tag -width Ds\n", table->half);
	for (i = 0; i < table->row_count; i++) {
		printf(".It Cm %s Pq %s\n", table->rows[i].name,
		       kinds[table->rows[i].kind]);
		sentences_print(table->rows[i].help);
	}
	puts(".El");
}

static void counters_print(void)
{
	half_print(&kvpull_worker_counters);
	half_print(&kvpull_scheduler_counters);
	half_print(&kvpull_reader_counters);
}

static void errors_print(void)
{
#define PRINT(name, value, text)                                               \
	printf(".It Er %s Pq %d\n%s.\n", #name, value, text);
	KVPULL_ERRORS(PRINT)
#undef PRINT
}

/* Bounds that no key sets; those of tables that one does are with the key. */
static void limits_print(void)
{
	static const struct {
		const char *what;
		unsigned int count;
		const char *then;
	} limits[] = {
		{ "instances of consumers that a hold counts",
		  KVPULL_CLAIMS_MAX,
		  "one more is not counted: its pull may end in EEXPIRED" },
		{ "tensor parallel ranks of an instance", KVPULL_RANKS_MAX,
		  "refused at open" },
		{ "block groups", KVPULL_GROUPS_MAX, "refused at open" },
		{ "caches of a worker", KVPULL_CACHES_MAX,
		  "refused at registration" },
		{ "regions of a worker", KVPULL_REGIONS_MAX,
		  "refused at registration" },
		{ "block ids in a ticket", KVPULL_TICKET_BLOCKS_MAX,
		  "the request is freed and has no ticket" },
		{ "bytes of a ticket", KVPULL_TICKET_BYTES_MAX,
		  "the request is freed and has no ticket" },
		{ "bytes of the engine's payload in a ticket",
		  KVPULL_PAYLOAD_BYTES_MAX,
		  "the request is freed and has no ticket" },
		{ "strips of a peer: layers x groups x head slices",
		  KVPULL_STRIPS_MAX, "the peer is refused: EUNSUPPORTED" },
		{ "holds ended by time in one poll", KVPULL_EXPIRE_MAX,
		  "the rest in the next polls" },
		{ "holds scanned for a dead consumer in one poll",
		  KVPULL_SCAN_MAX, "the rest in the next polls" },
		{ "reconnects to a lost peer", KVPULL_RETRY_ATTEMPTS_MAX,
		  "then its claims are given up. The first comes after 10 ms, each later one after twice as long. A passing error (EAGAIN, EFULL, ENOMEM) does not count: the call is repeated, at last each 160 ms, as long as the peer is wanted" },
		{ "callers on this node that were not let in yet",
		  KVPULL_GATE_WAITING_MAX,
		  "the caller that waited longest is disconnected if it had 50 ms; otherwise the new caller is told to call again" },
		{ "such callers of one user", KVPULL_GATE_USER_MAX,
		  "as above" },
		{ "such callers of one process", KVPULL_GATE_PROCESS_MAX,
		  "as above" },
		{ "callers over the network that were not let in yet",
		  KVPULL_VERBS_WAITING_MAX, "as above" },
		{ "such callers of one address",
		  KVPULL_VERBS_WAITING_ADDRESS_MAX, "as above" },
		{ "descriptors kept for the engine; at most a quarter of the soft limit",
		  KVPULL_GATE_RESERVE_MAX,
		  "no consumer on this node is let in: EFULL, and it calls again; raise ulimit -n" },
		{ "log lines a second", KVPULL_LOG_LINES_MAX,
		  "errors are still written; other lines are only counted (log_suppressed)" },
	};
	size_t i;

	for (i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
		printf(".It %u %s\n", limits[i].count, limits[i].what);
		sentences_print(limits[i].then);
	}
}

static int json_check(const char *path)
{
	json_error_t error;
	json_t *json = json_load_file(path, JSON_REJECT_DUPLICATES, &error);

	if (!json)
		fprintf(stderr, "pages: %s:%d: %s\n", path, error.line,
			error.text);
	json_decref(json);
	return json == NULL;
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*print)(void);
	} tables[] = {
		{ "keys", keys_print },
		{ "counters", counters_print },
		{ "errors", errors_print },
		{ "limits", limits_print },
	};
	size_t i;

	for (i = 0; argc == 2 && i < sizeof(tables) / sizeof(tables[0]); i++) {
		if (strcmp(argv[1], tables[i].name) != 0)
			continue;
		tables[i].print();
		return ferror(stdout) != 0;
	}
	if (argc == 3 && !strcmp(argv[1], "json"))
		return json_check(argv[2]);
	fprintf(stderr, "pages: keys|counters|errors|limits, json FILE\n");
	return 2;
}
