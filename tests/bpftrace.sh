#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The scripts of bpftrace on engines that run: holds that are claimed, released
# and expire, pulls that end and one that is slow. Root, and a kernel that lets
# it look at programs. bpftrace.sh BUILD
set -u
cd "$(dirname "$0")/.." || exit 1
build=$(cd "$1" && pwd)
refuse() {
	echo "refused: $1"
	echo "0 passed, 0 failed, 1 skipped"
	exit 0
}

command -v bpftrace >/dev/null || refuse "bpftrace is not here (make deps WITH=probes)"
# The namespace takes its mounts with it.
if [ "${TEST_MOUNTS:-}" != own ]; then
	unshare --mount true 2>/dev/null || refuse "no namespace: bpftrace needs root"
	TEST_MOUNTS=own exec unshare --mount "$0" "$@"
fi
[ -e /sys/kernel/tracing/events ] || mount -t tracefs none /sys/kernel/tracing ||
	refuse "this kernel traces nothing"
probe=$(timeout 60 bpftrace -e "usdt:$build/libkvpull.so.1:kvpull:hold { exit(); } BEGIN { exit(); }" 2>&1) ||
	refuse "bpftrace cannot look at programs here: $(echo "$probe" | tail -n 1)"

work=$(mktemp -d -p /dev/shm) || exit 1
server=
puller=
holds=
pulls=
trap 'kill -9 $server $puller $holds $pulls 2>/dev/null; rm -rf "$work"' EXIT
. tests/claim.sh
mkdir -m 700 "$work/s"
sockets=$work/s/

until_said() { # file, pattern, what to do meanwhile
	for _ in $(seq 100); do
		grep -qE "$2" "$1" && return
		$3
	done
}

"$build/ib_pull" --dir "$sockets" --blocks 1024 --lease 1000 >"$work/serve" 2>&1 &
server=$!
until_said "$work/serve" '^serving' 'sleep 0.1'
"$build/ib_pull" --count 16 --depth 4 --blocks 1024 --lease 1000 --duration 600 "$sockets" >"$work/pulled" 2>&1 &
puller=$!
bpftrace -p $server tools/kvpull_holds.bt >"$work/holds" 2>&1 &
holds=$!
bpftrace -p $puller tools/kvpull_pulls.bt >"$work/pulls" 2>&1 &
pulls=$!

# Each prints a line of its own accord as soon as it looks.
expire() {
	"$build/ib_pull" --count 16 --ticket "$sockets" >/dev/null 2>&1
	sleep 0.3
}
be_slow() {
	kill -STOP $puller
	sleep 0.2
	kill -CONT $puller
	sleep 0.1
}
until_said "$work/holds" ' expired after ' expire
until_said "$work/pulls" 'code 0: [0-9]+ bytes in [0-9]{6,} us' be_slow
kill -INT $holds $pulls
wait $holds
claim 'holds ends' 0 -- test $? -eq 0
wait $pulls
claim 'pulls ends' 0 -- test $? -eq 0
holds=
pulls=
claim 'holds' 0 ' expired after [0-9]+ ms, claimed last by pid 0$' \
	'^@blocks: ' '^@claimed_after_us: ' '^@released_after_us: ' -- cat "$work/holds"
claim 'pulls' 0 'code 0: [1-9][0-9]* bytes in [0-9]{6,7} us, asked for after ' \
	'^@blocks: ' '^@until_asked_us: ' '^@took_us: ' '^@bytes: [1-9]' -- cat "$work/pulls"
echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
