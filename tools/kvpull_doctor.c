/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvpull_doctor: what this machine offers to kvpull, what is in the way, and
 * what to do about it. Reads files of the kernel's and tries things out; it
 * changes nothing, but that --calibrate remembers what it measured.
 */
#include "tools/cli/host.h"
#include "tools/cli/options.h"
#include "tools/json.h"
#include "tools/kvpull_doctor_parts.h"

#include <getopt.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char *const level_names[] = { "ok", "note", "unknown", "warn",
					   "FAIL" };

static void print_page(const struct doctor *doctor)
{
	const uint32_t *counts = doctor->counts;
	uint32_t i;

	for (i = 0; i < doctor->finding_count; i++) {
		const struct doctor_finding *finding = &doctor->findings[i];

		printf("%-7s  %-14s %s\n", level_names[finding->level],
		       finding->name, finding->text);
		if (finding->advice[0])
			printf("%-7s  %-14s -> %s\n", "", "", finding->advice);
	}
	printf("%u ok, %u to know, %u unknown, %u warnings, %u failures\n",
	       counts[DOCTOR_OK], counts[DOCTOR_NOTE], counts[DOCTOR_UNKNOWN],
	       counts[DOCTOR_WARN], counts[DOCTOR_FAIL]);
}

/* Names are anybody's bytes, and a cut text may end in half a letter. */
static json_t *text_of(const char *text)
{
	char plain[DOCTOR_TEXT_BYTES_MAX];
	json_t *value = json_string(text);
	char *at;

	if (value)
		return value;
	(void)snprintf(plain, sizeof(plain), "%s", text);
	for (at = plain; *at; at++)
		if ((unsigned char)*at > 0x7e)
			*at = '?';
	return json_string(plain);
}

static void print_json(const struct doctor *doctor)
{
	json_t *findings = json_array();
	json_t *report;
	uint32_t i;

	for (i = 0; i < doctor->finding_count; i++) {
		const struct doctor_finding *finding = &doctor->findings[i];

		(void)json_array_append_new(
			findings, json_pack("{s:s, s:s, s:o, s:o}", "level",
					    finding->level == DOCTOR_FAIL ?
						    "fail" :
						    level_names[finding->level],
					    "name", finding->name, "text",
					    text_of(finding->text), "advice",
					    text_of(finding->advice)));
	}
	report = json_pack(
		"{s:s, s:o, s:o, s:o?, s:o, s:o?, s:o?, s:i, s:i, s:i}",
		"version", KVPULL_VERSION, "findings", findings, "ports",
		doctor->ports, "chosen", doctor->chosen, "gpus", doctor->gpus,
		"probe", doctor->probe, "peer", doctor->peer_probe, "unknown",
		(int)doctor->counts[DOCTOR_UNKNOWN], "warnings",
		(int)doctor->counts[DOCTOR_WARN], "failures",
		(int)doctor->counts[DOCTOR_FAIL]);
	(void)json_show(report, 2);
}

/* ---- options ---- */

static int peer_take(const struct cli *cli, const struct cli_option *option,
		     void *options, const char *text)
{
	static struct cli_host host;
	struct doctor *doctor = options;

	(void)option;
	if (cli_host_parse(text, &host))
		return cli_wrong(cli, CLI_HOST_WRONG, text);
	doctor->peer = host.name;
	doctor->peer_port = host.port;
	return 0;
}

#define WORD(name, word) word,
static const char *const routes[] = { "auto", KVPULL_ROUTE_PINS(WORD) NULL };

#define AT(member) CLI_MEMBER(struct doctor, member)

/* clang-format off */
static const struct cli_option rows[] = {
	{ .help = "Engine" },
	{ .name = "route", .argument = "ROUTE", .kind = CLI_WORD, .words = routes, AT(route),
	  .help = "that it will use: " KVPULL_ROUTE_NAMES " (auto)" },
	{ .name = "device", .argument = "NAME", .kind = CLI_TEXT, AT(device),
	  .help = "the RDMA device that it will use (chosen)" },
	{ .name = "memory", .argument = "GIB", .kind = CLI_SIZE, .unit = "G", AT(memory_bytes),
	  .least = 1 << 20, .most = 1125899906842624, .help = "KV cache that a worker registers (1)" },
	{ .name = "socket-dir", .argument = "FOLDER", .kind = CLI_TEXT, AT(socket_dir),
	  .help = "folder of the sockets ($KVPULL_SOCKET_DIR, /tmp/kvpull-UID)" },
	{ .help = "Trials" },
	{ .name = "calibrate", AT(calibrate), .help = "measure the copy routines, remember the best there" },
	{ .name = "no-probe", AT(no_probe), .help = "do not pull on this machine" },
	{ .name = "peer", .argument = "HOST", .take = peer_take,
	  .help = "pull from `ib_pull --port` there, by RDMA" },
	{ .name = "port", .argument = "PORT", .kind = CLI_TEXT, AT(port), .help = "its port (18515)" },
	{ .help = "Output" },
	{ .name = "json", AT(json), .help = "one JSON object instead of the page" },
	{ .name = "root", .argument = "FOLDER", .kind = CLI_TEXT, AT(root),
	  .help = "read /sys, /proc and /dev below it" },
};

static const struct cli_row usage[] = {
	{ "[options]", "what this machine offers, what is in the way" },
	{ NULL, NULL },
};

static const struct cli_row exits[] = {
	{ "0", "what is needed works, warnings or not" },
	{ "1", "something that is needed does not, or the output could not be written" },
	{ "2", "wrong options" },
	{ NULL, NULL },
};
/* clang-format on */

static const struct cli cli = {
	.name = "kvpull_doctor",
	.usage = usage,
	.options = rows,
	.option_count = sizeof(rows) / sizeof(rows[0]),
	.exits = exits,
};

int main(int count, char **words)
{
	static struct doctor doctor = { .root = "",
					.device = "",
					.port = "18515",
					.memory_bytes = 1 << 30 };
	int code;

	output_begin();
	code = cli_parse(&cli, count, words, &doctor);
	if (code == CLI_GO && optind < count)
		code = cli_wrong(&cli, "%s is no option", words[optind]);
	if (code != CLI_GO)
		return code;
	if (!strcmp(doctor.root, "/"))
		doctor.root = "";
	if (doctor.peer && doctor.peer_port[0])
		doctor.port = doctor.peer_port;
	doctor.ports = json_array();
	doctor.gpus = json_array();
	doctor_config(&doctor);
	doctor_kernel(&doctor);
	doctor_devices(&doctor);
	doctor_host(&doctor);
	if (doctor.config) {
		doctor_networks(&doctor);
		doctor_sockets(&doctor);
		doctor_users(&doctor);
		doctor_status(&doctor);
		doctor_copy(&doctor);
	}
	doctor_numa(&doctor);
	doctor_foreign(&doctor);
	if (doctor.config && !doctor.no_probe) {
		doctor_gpus(&doctor);
		doctor_probe(&doctor);
	}
	if (doctor.peer)
		doctor_peer(&doctor);
	if (doctor.json)
		print_json(&doctor);
	else
		print_page(&doctor);
	return output_end(doctor.counts[DOCTOR_FAIL] != 0);
}
