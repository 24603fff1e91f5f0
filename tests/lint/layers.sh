#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Includes go one way: include <- routes <- plugin <- tools. The routes are the
# folders that route/ways.c opens; they and cuda never see each other. Tests see
# all; examples see the public headers. Likewise between the rooms of plugin/: the
# table below is the map that plugin/README.md draws, and a room that is not in
# it is an error. A file of ours is included by its path from the root or from
# include/, so that this script can see it.
cd "$(dirname "$0")/../.." || exit 1

routes=$(sed -n 's|^#include "\([a-z]*\)/\1\.h"$|\1|p' plugin/route/ways.c | grep -vx cuda | tr '\n' ' ')
# shellcheck disable=SC2016 # $0 is awk's
tests/lint/files.sh c h | xargs awk -v routes="$routes" '
BEGIN {
	sees["include"] = " include "
	count = split(routes, names, " ")
	for (at = 1; at <= count; at++)
		sees[names[at]] = " include " names[at] " "
	sees["cuda"] = " include cuda "
	sees["examples"] = " include "
	sees["tools"] = " include " routes "plugin tools "
	sees["tests"] = " include " routes "cuda plugin tools tests "
	room("bytes", "")
	room("counters", "")
	room("config", "bytes verbs")
	room("shown", "")
	room("status", "bytes config counters shm shown")
	room("pool", "")
	room("session", "bytes config route")
	room("reads", "")
	room("share", "bytes config counters pool reads route session shm status")
	room("hold", "bytes counters shown")
	room("scheduler", "bytes config counters")
	room("handover", "bytes config status")
	room("route", "bytes config " routes)
	room("progress", "bytes config counters handover reads route session status")
	room("worker", "bytes config counters handover hold progress reads shm status")
	room("abi", "bytes config counters pool scheduler share worker")
	room("vllm", "")
	# A device is opened there alone: cuda/ is behind the table of base/device.h.
	sees["plugin/route/ways.c"] = sees["plugin/route"] "cuda "
	# The doctor asks the driver by itself: these make calls of it, in children.
	sees["tools/kvpull_doctor_gpu.c"] = sees["tools"] "cuda "
	sees["tools/kvpull_doctor_gpu_facts.h"] = sees["tools"] "cuda "
	sees["tools/kvpull_doctor_gpu_import.c"] = sees["tools"] "cuda "
}
# room(NAME, OTHERS): plugin/NAME may include OTHERS beside include/ and itself.
function room(name, others,    list, n, i)
{
	sees["plugin/" name] = " include plugin/" name " "
	n = split(others, list, " ")
	for (i = 1; i <= n; i++)
		sees["plugin/" name] = sees["plugin/" name] \
			(list[i] in sees ? "" : "plugin/") list[i] " "
}
# The folder of a path: of plugin/ the room, but for those who may see all of it.
function folder_of(path, part, all)
{
	split(path, part, "/")
	if (part[1] == "base" || part[1] == "kvpull")
		return "include"
	return part[1] == "plugin" && !all ? "plugin/" part[2] : part[1]
}
FNR == 1 {
	files++
	folder = FILENAME in sees ? FILENAME : folder_of(FILENAME)
	if (!(folder in sees))
		complain("is in no known folder")
}
/^[ \t]*#[ \t]*include[ \t]*"/ {
	path = $0
	sub(/^[^"]*"/, "", path)
	sub(/".*/, "", path)
	to = folder_of(path, part, folder !~ /^plugin/)
	if (folder == "tests" && path !~ /\//)
		next # a helper beside the test
	if (path !~ /\// || path ~ /\.\./)
		complain("includes \"" path "\": write the path from the root")
	else if (index(sees[folder], " " to " ") == 0)
		complain("includes \"" path "\": " folder " may include" sees[folder] "only")
}
function complain(text)
{
	printf "layers: %s:%d %s\n", FILENAME, FNR, text
	if (!(FILENAME in bad)) {
		bad[FILENAME] = 1
		failed++
	}
}
END {
	printf "%d passed, %d failed, 0 skipped\n", files - failed, failed
	exit failed > 0
}'
