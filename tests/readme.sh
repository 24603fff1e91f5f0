#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# README.md holds: every command in it is run, here as it stands there, by a stage
# of .ci/run, or (vLLM's lines) by tests/engine/readme.py; its links lead somewhere;
# it stays short. The manual's tables are the library's. Argument: the build folder
# with libkvpull.a and the tools.
set -u -o pipefail
cd "$(dirname "$0")/.." || exit 1
build=$1
out=$build/readme
mkdir -p "$out"
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
. tests/claim.sh

# The n-th block of commands: what stands in the fences of sh.
block() {
	awk -v wanted="$1" '/^```sh$/ { on = ++count == wanted; next }
		/^```$/ { on = 0 } on' README.md
}

is_short() {
	[ "$(wc -l <README.md)" -le 250 ] && ! LC_ALL=C.UTF-8 grep -nE '^.{121}' README.md
}

links_lead() {
	local bad=0 link
	for link in $(grep -oE '\]\([^)]*\)' README.md | tr -d '])('); do
		[ -e "$link" ] || {
			echo "$link is not there"
			bad=1
		}
	done
	return $bad
}

# The two commands are whole stages of CI: name | ... | command.
are_stages() {
	local line bad=0
	while read -r line; do
		line=${line%%#*}
		line=${line%"${line##*[! ]}"}
		grep -q "| $line\"$" .ci/run || {
			echo "$line is no stage of .ci/run"
			bad=1
		}
	done
	return $bad
}

# In a folder of this run: others may work in /tmp.
run() {
	{
		echo "set -e -o pipefail; trap 'kill \$(jobs -p) 2>/dev/null || :' EXIT"
		sed "s|/tmp/|$work/|g"
	} >"$work/commands"
	KVPULL_SOCKET_DIR="$work/sockets" within 60 bash "$work/commands" >"$work/said" 2>&1
	local status=$?
	cat "$work/said"
	return $status
}

claim "README.md: it has more than 250 lines, or one of more than 120 columns" 0 -- is_short
claim "README.md: a link leads nowhere" 0 -- links_lead
claim "README.md: it has other blocks of commands than the three that are looked at" 0 -- \
	[ "$(grep -c '^```sh$' README.md)" -eq 3 ]
claim "README.md: a command that no stage of CI runs" 0 -- are_stages <<<"$(block 1)"
mkdir -m 700 "$work/sockets"
claim "README.md: the tools fail" 0 -- run <<<"$(block 2)"
claim "README.md: the host fails" 0 -- run <<<"$(block 3)"
claim "README.md: the host does not pull" 0 -- grep -q '^decode: 700 pulled, 0 computed' "$work/said"

tests/pages.sh check "$build" >"$out/pages.log" 2>&1
result_read "$out/pages.log" $?
[ "$bad" -eq 0 ] || failed_show pages "$bad failed" "$out/pages.log"
passed=$((passed + ok))
failed=$((failed + bad))
echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
