/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tables of keys, counters and errors, as pages have them:
 * pages keys|counters|errors md|mdoc. pages.sh puts them between their marks.
 */
#include <stdio.h>
#include <string.h>

#include "plugin/config/config_table.h"
#include "plugin/counters/counters.h"

static void keys_print(int is_mdoc)
{
	const char *quote;
	char range[128];
	size_t i;

	if (!is_mdoc)
		puts("| key | default | range | meaning |\n|---|---|---|---|");
	for (i = 0; i < kvpull_config_key_count; i++) {
		const struct kvpull_config_key *key = &kvpull_config_keys[i];

		/* As JSON has them. */
		quote = key->type >= KVPULL_KEY_CHOICE &&
					key->type < KVPULL_KEY_UIDS ?
				"\"" :
				"";
		kvpull_config_key_range(key, range, sizeof(range));
		if (is_mdoc)
			printf(".It Cm %s\n%s.\nDefault %s%s%s; %s.\n",
			       key->name, key->meaning, quote, key->value,
			       quote, range);
		else
			printf("| `%s` | %s%s%s | %s | %s |\n", key->name,
			       quote, key->value, quote, range, key->meaning);
	}
}

static void half_print(const struct kvpull_counter_table *table, int is_mdoc)
{
	static const char *const kinds[] = { "total", "live", "peak" };
	uint32_t i;

	if (is_mdoc)
		printf(".Ss Of a %s\n.Bl -tag -width Ds\n", table->half);
	for (i = 0; i < table->row_count; i++) {
		const struct kvpull_counter_row *row = &table->rows[i];

		if (is_mdoc)
			printf(".It Cm %s Pq %s\n%s.\n", row->name,
			       kinds[row->kind], row->help);
		else
			printf("| `%s` | %s | %s | %s |\n", row->name,
			       table->half, kinds[row->kind], row->help);
	}
	if (is_mdoc)
		puts(".El");
}

static void counters_print(int is_mdoc)
{
	if (!is_mdoc)
		puts("| counter | half | kind | meaning |\n|---|---|---|---|");
	half_print(&kvpull_worker_counters, is_mdoc);
	half_print(&kvpull_scheduler_counters, is_mdoc);
}

static void errors_print(int is_mdoc)
{
	if (!is_mdoc)
		puts("| error | value | what it means and what to do |\n|---|---|---|");
#define PRINT(name, value, text)                                               \
	printf(is_mdoc ? ".It Er %s Pq %d\n%s.\n" : "| `%s` | %d | %s |\n",    \
	       #name, value, text);
	KVPULL_ERRORS(PRINT)
#undef PRINT
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*print)(int is_mdoc);
	} tables[] = {
		{ "keys", keys_print },
		{ "counters", counters_print },
		{ "errors", errors_print },
	};
	size_t i;

	for (i = 0; argc == 3 && i < sizeof(tables) / sizeof(tables[0]); i++) {
		if (strcmp(argv[1], tables[i].name) != 0)
			continue;
		tables[i].print(!strcmp(argv[2], "mdoc"));
		return ferror(stdout) != 0;
	}
	fprintf(stderr, "pages: keys|counters|errors md|mdoc\n");
	return 2;
}
