#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The commit that tests/compat/previous names, and this tree: ib_pull of each
# reads from the other's, on this node. It works, or both refuse by name: a line
# of each that says "version" or "layout".
# Argument: the build folder of this tree. Exit status 77: no such commit here.
set -u
cd "$(dirname "$0")/.." || exit 1
build=$(cd "$1" && pwd)
previous=$(cut -d ' ' -f 1 tests/compat/previous)
tree=$PWD/build/compat/$previous
work=$(mktemp -d) || exit 1
server=
trap '[ -z "$server" ] || kill "$server" 2>/dev/null; rm -rf "$work"' EXIT
passed=0
failed=0

if ! git cat-file -e "$previous^{commit}" 2>/dev/null; then
	echo "compat: commit $previous is not here (a shallow clone?)"
	echo "0 passed, 0 failed, 1 skipped"
	exit 77
fi

# Not our parent's variables and jobs.
build_previous() {
	[ -x "$tree/build/release/ib_pull" ] && return
	rm -rf "$tree"
	mkdir -p "$tree"
	git archive "$previous" | tar -x -C "$tree" &&
		env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL -u MAKEOVERRIDES \
			make -s -C "$tree" -j"$(nproc)" CC="${CC:-gcc}" all
}

# A ticket of another version reaches no producer that could say so, too.
refused_by_name() {
	grep -q 'ticket of .* refused: another version' "$work/pull" ||
		{ grep -q 'version\|layout' "$work/serve" &&
			grep -q 'version\|layout' "$work/pull"; }
}

talk() { # what, producer's build, consumer's build
	local sockets=$work/s status word=works

	rm -rf "$sockets" "$work/serve"
	mkdir -m 700 "$sockets"
	"$2/ib_pull" --dir "$sockets" >"$work/serve" 2>&1 &
	server=$!
	for _ in $(seq 100); do
		grep -qs '^serving' "$work/serve" && break
		sleep 0.1
	done
	timeout 60 "$3/ib_pull" --requests 5 --verify "$sockets" \
		>"$work/pull" 2>&1
	status=$?
	kill "$server" 2>/dev/null
	wait "$server" 2>/dev/null
	server=
	[ "$status" -eq 0 ] || word='refused by name'
	if [ "$status" -eq 0 ] || refused_by_name; then
		echo "compat: $1: $word"
		passed=$((passed + 1))
		return
	fi
	echo "compat: $1: exit status $status, and no line of both says why"
	tail -n 20 "$work/serve" "$work/pull"
	failed=$((failed + 1))
}

if ! build_previous; then
	echo "compat: $previous cannot be built"
	failed=1
else
	talk "the previous commit reads from this tree" \
		"$build" "$tree/build/release"
	talk "this tree reads from the previous commit" \
		"$tree/build/release" "$build"
fi
echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
