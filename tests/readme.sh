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
passed=0
failed=0
mkdir -p "$out"
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

check() { # what, command
	local what=$1
	shift
	if "$@" >"$out/log" 2>&1; then
		passed=$((passed + 1))
	else
		echo "README.md: $what"
		tail -n 20 "$out/log"
		failed=$((failed + 1))
	fi
}

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
	KVPULL_SOCKET_DIR="$work/sockets" timeout 60 bash "$work/commands" >"$work/said" 2>&1
	local status=$?
	cat "$work/said"
	return $status
}

check "it has more than 250 lines, or one of more than 120 columns" is_short
check "a link leads nowhere" links_lead
check "it has other blocks of commands than the three that are looked at" \
	[ "$(grep -c '^```sh$' README.md)" -eq 3 ]
check "a command that no stage of CI runs" are_stages <<<"$(block 1)"
mkdir -m 700 "$work/sockets"
check "the tools fail" run <<<"$(block 2)"
check "the host fails" run <<<"$(block 3)"
check "the host does not pull" grep -q '^decode: 700 pulled, 0 computed' "$work/said"

tests/pages.sh check "$build" >"$out/pages.log" 2>&1
grep -v ' skipped$' "$out/pages.log"
line=$(tail -n 1 "$out/pages.log")
case $line in
*" passed, "*" failed, 0 skipped")
	passed=$((passed + ${line%% passed*}))
	line=${line#* passed, }
	failed=$((failed + ${line%% failed*}))
	;;
*) failed=$((failed + 1)) ;;
esac
echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
