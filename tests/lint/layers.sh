#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Includes go one way: include <- shm, verbs <- plugin <- tools; shm and verbs
# never see each other; tests see all. A file of ours is included by its path
# from the root or from include/, so that this script can see it.
cd "$(dirname "$0")/../.." || exit 1

# shellcheck disable=SC2016 # $0 is awk's
tests/lint/files.sh c h | xargs awk '
BEGIN {
	sees["include"] = " include "
	sees["shm"] = " include shm "
	sees["verbs"] = " include verbs "
	sees["plugin"] = " include shm verbs plugin "
	sees["tools"] = " include shm verbs plugin tools "
	sees["tests"] = " include shm verbs plugin tools tests "
}
FNR == 1 {
	files++
	split(FILENAME, part, "/")
	folder = part[1]
	if (!(folder in sees))
		complain("is in no known folder")
}
/^[ \t]*#[ \t]*include[ \t]*"/ {
	path = $0
	sub(/^[^"]*"/, "", path)
	sub(/".*/, "", path)
	split(path, part, "/")
	to = part[1]
	if (to == "base" || to == "kvpull")
		to = "include"
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
