/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvpull_doctor: what this machine offers to kvpull, what is in the way, and
 * what to do about it. Reads files of the kernel's and tries things out; it
 * changes nothing, but that --calibrate remembers what it measured.
 */
#include "tools/kvpull_doctor_parts.h"
#include "tools/output.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define wrong(...) output_wrong("kvpull_doctor [options]", __VA_ARGS__)

static const char *const level_names[] = { "ok", "note", "unknown", "warn",
					   "FAIL" };

static uint32_t count_of(const struct doctor *doctor, enum doctor_level level)
{
	uint32_t count = 0;
	uint32_t i;

	for (i = 0; i < doctor->finding_count; i++)
		count += doctor->findings[i].level == level;
	return count;
}

static void print_page(const struct doctor *doctor)
{
	uint32_t i;

	for (i = 0; i < doctor->finding_count; i++) {
		const struct doctor_finding *finding = &doctor->findings[i];

		printf("%-7s  %-14s %s\n", level_names[finding->level],
		       finding->name, finding->text);
		if (finding->advice[0])
			printf("%-7s  %-14s -> %s\n", "", "", finding->advice);
	}
	printf("%u ok, %u to know, %u unknown, %u warnings, %u failures\n",
	       count_of(doctor, DOCTOR_OK), count_of(doctor, DOCTOR_NOTE),
	       count_of(doctor, DOCTOR_UNKNOWN), count_of(doctor, DOCTOR_WARN),
	       count_of(doctor, DOCTOR_FAIL));
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
	report = json_pack("{s:s, s:o, s:O, s:O, s:O, s:O, s:i, s:i, s:i}",
			   "version", KVPULL_VERSION, "findings", findings,
			   "ports", doctor->ports, "chosen", doctor->chosen,
			   "probe", doctor->probe, "peer", doctor->peer_probe,
			   "unknown", (int)count_of(doctor, DOCTOR_UNKNOWN),
			   "warnings", (int)count_of(doctor, DOCTOR_WARN),
			   "failures", (int)count_of(doctor, DOCTOR_FAIL));
	if (report)
		(void)json_dumpf(report, stdout, JSON_INDENT(2));
	(void)putchar('\n');
	json_decref(report);
}

/* ---- options ---- */

static void usage(void)
{
	printf("usage: kvpull_doctor [options]\n"
	       "  --json          one JSON object instead of the page\n"
	       "  --route ROUTE   what the engine will use: auto, shm, verbs (auto)\n"
	       "  --device NAME   the RDMA device that it will use (chosen)\n"
	       "  --memory GIB    KV cache that a worker registers, GiB (1)\n"
	       "  --socket-dir D  folder of the sockets (KVPULL_SOCKET_DIR, /tmp/kvpull-UID)\n"
	       "  --calibrate     measure the copy routines, remember the best there\n"
	       "  --no-probe      do not pull on this machine\n"
	       "  --peer HOST     pull from `ib_pull --port` there, by RDMA\n"
	       "  --port PORT     its port (18515)\n"
	       "  --root FOLDER   read /sys, /proc and /dev below it\n"
	       "  --help          this text\n"
	       "  --version       version\n"
	       "exit: 0 works, 1 something that is needed does not, 2 usage\n");
}

static int take_route(struct doctor *doctor, const char *text)
{
	static const char *const names[] = { "auto", "shm", "verbs" };
	unsigned int i;

	for (i = 0; i < 3; i++) {
		if (strcmp(names[i], text) == 0) {
			doctor->route = (enum doctor_route)i;
			return 0;
		}
	}
	return wrong("--route %s: auto, shm or verbs is needed", text);
}

static int take_memory(struct doctor *doctor, const char *text)
{
	char *end;
	double gib;

	errno = 0;
	gib = strtod(text, &end);
	if (errno || end == text || *end || !(gib > 0) || gib > 1e6)
		return wrong("--memory %s: GiB are needed, above 0", text);
	doctor->memory_bytes = (uint64_t)(gib * (double)(UINT64_C(1) << 30));
	return 0;
}

/* getopt's: in our words, and below our line. */
static int unknown_say(char *const *words, int option)
{
	/* A letter that is no option; else the long one's value, or 0. */
	if (option == '?' && optopt && !strncmp(words[optind - 1], "--", 2))
		return wrong("%s takes no value", words[optind - 1]);
	if (option == '?' && optopt)
		return wrong("-%c is no option", optopt);
	return wrong("%s %s", words[optind - 1],
		     option == ':' ? "needs a value" : "is no option");
}

/* 0: go on, 1: done, 2: wrong. */
static int take(struct doctor *doctor, int option, int *json)
{
	switch (option) {
	case 'j':
		*json = 1;
		return 0;
	case 'r':
		return take_route(doctor, optarg);
	case 'd':
		doctor->device = optarg;
		return 0;
	case 'm':
		return take_memory(doctor, optarg);
	case 's':
		doctor->socket_dir = optarg;
		return 0;
	case 'c':
		doctor->calibrate = 1;
		return 0;
	case 'n':
		doctor->no_probe = 1;
		return 0;
	case 'p':
		doctor->peer = optarg;
		return 0;
	case 'P':
		doctor->port = optarg;
		return 0;
	case 'R':
		doctor->root = strcmp(optarg, "/") ? optarg : "";
		return 0;
	case 'h':
		usage();
		return 1;
	case 'v':
		printf("kvpull_doctor %s\n", KVPULL_VERSION);
		return 1;
	default:
		return 2;
	}
}

static int parse(int count, char **words, struct doctor *doctor, int *json)
{
	static const struct option longs[] = {
		{ "json", 0, NULL, 'j' },       { "route", 1, NULL, 'r' },
		{ "device", 1, NULL, 'd' },     { "memory", 1, NULL, 'm' },
		{ "socket-dir", 1, NULL, 's' }, { "no-probe", 0, NULL, 'n' },
		{ "peer", 1, NULL, 'p' },       { "port", 1, NULL, 'P' },
		{ "root", 1, NULL, 'R' },       { "help", 0, NULL, 'h' },
		{ "version", 0, NULL, 'v' },    { "calibrate", 0, NULL, 'c' },
		{ NULL, 0, NULL, 0 },
	};
	int option;
	int code = 0;

	opterr = 0;
	while (!code &&
	       (option = getopt_long(count, words, ":", longs, NULL)) != -1)
		code = option == '?' || option == ':' ?
			       unknown_say(words, option) :
			       take(doctor, option, json);
	if (!code && optind < count)
		return wrong("%s is no option", words[optind]);
	return code;
}

int main(int count, char **words)
{
	static struct doctor doctor = { .root = "",
					.device = "",
					.port = "18515" };
	int json = 0;
	int code;

	output_begin();
	doctor.memory_bytes = UINT64_C(1) << 30;
	code = parse(count, words, &doctor, &json);
	if (code)
		return code == 2 ? 2 : output_end(0);
	doctor.ports = json_array();
	doctor.chosen = json_null();
	doctor.probe = json_null();
	doctor.peer_probe = json_null();
	doctor_config(&doctor);
	doctor_kernel(&doctor);
	doctor_devices(&doctor);
	doctor_file_size(&doctor);
	doctor_memlock(&doctor);
	doctor_device_memory(&doctor);
	doctor_uring(&doctor);
	doctor_huge_pages(&doctor);
	if (!doctor.is_misconfigured) {
		doctor_networks(&doctor);
		doctor_sockets(&doctor);
		doctor_users(&doctor);
		doctor_status(&doctor);
		doctor_copy(&doctor);
	}
	doctor_numa(&doctor);
	doctor_foreign(&doctor);
	if (!doctor.no_probe && !doctor.is_misconfigured)
		doctor_probe(&doctor);
	if (doctor.peer)
		doctor_peer(&doctor);
	if (json)
		print_json(&doctor);
	else
		print_page(&doctor);
	json_decref(doctor.ports);
	json_decref(doctor.chosen);
	json_decref(doctor.probe);
	json_decref(doctor.peer_probe);
	return output_end(count_of(&doctor, DOCTOR_FAIL) ? 1 : 0);
}
