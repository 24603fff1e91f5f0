#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The two hosts of kvpull_connector(3), as P and D in two processes with a pipe
# between them: every byte is compared, every request and hold ends, and small
# tables do not fill. Argument: the build folder with libkvpull.so.
set -u
cd "$(dirname "$0")/.." || exit 1
build=$(cd "$1" && pwd)
out=$build/host
mkdir -p "$out"
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
. tests/claim.sh
# Not shared with others of this user; more prompts than any table has places.
export KVPULL_SOCKET_DIR="$work/s" KVPULL_REQUESTS_MAX=64 KVPULL_TICKETS_MAX=40 \
	KVPULL_MAX_HOLDS=64 KVPULL_FAMILIES_MAX=64 KVPULL_STEP_LOG_MIB=1
mkdir -m 700 "$KVPULL_SOCKET_DIR"

compile() { # name, compiler and flags
	name=$1
	shift
	"$@" -Wall -Wextra -Werror -Iinclude -L"$build" -lkvpull \
		-Wl,-rpath,"$build" -o "$out/$name"
}

# P, D and how many prompts: of ten one is refused, one aborted while it loads,
# and one aborted at P before it is held.
pull() {
	within 30 "$out/$1" prefill "$3" 2>"$work/p" |
		within 30 "$out/$2" decode 2>"$work/d"
	cat "$work/p" "$work/d"
	tenth=$(($3 / 10))
	grep -qx "prefill: $((9 * tenth)) released, 0 expired, $tenth aborted" "$work/p" &&
		grep -qx "decode: $((7 * tenth)) pulled, 0 computed, $tenth rejected, $tenth aborted, 0 wrong" "$work/d"
}

# A router that loses a ticket, sends one that is not ours, a damaged one, an
# empty one, and the first one again when its hold has ended long ago.
bad_router() {
	while read -r prompt ticket; do
		case $prompt in
		1) first=$ticket ;;
		11) continue ;;
		12) ticket=hello ;;
		14) ticket=${ticket%??????????}AAAAAAAAAA ;;
		15) ticket= ;;
		81) echo "1 $first" ;;
		esac
		echo "$prompt $ticket"
	done
}

# Four holds expire, four prompts are computed at D, no byte is wrong.
misled() {
	KVPULL_LEASE_MS=4000 within 40 "$out/$1" prefill 100 2>"$work/p" |
		bad_router | within 30 "$out/$1" decode 2>"$work/d"
	cat "$work/p" "$work/d"
	grep -qx "prefill: 86 released, 4 expired, 10 aborted" "$work/p" &&
		grep -qx "decode: 66 pulled, 4 computed, 10 rejected, 10 aborted, 0 wrong" "$work/d"
}

# D is killed: P ends, its holds with it.
killed() {
	mkfifo "$work/$1.pipe" || return 1
	"$out/$1" decode <"$work/$1.pipe" &
	consumer=$!
	(sleep 0.3 && kill -9 "$consumer") &
	KVPULL_LEASE_MS=1000 within 20 "$out/$1" prefill 1000000 >"$work/$1.pipe"
	status=$?
	wait
	[ "$status" -eq 0 ]
}

# shellcheck disable=SC2086 # "ccache gcc"
claim "compiling host.c" 0 -- compile c ${CC:-gcc} -std=c11 -D_GNU_SOURCE examples/host.c
# shellcheck disable=SC2086
claim "compiling host.cpp" 0 -- compile cpp ${CXX:-g++} -std=c++17 examples/host.cpp
for p in c cpp; do
	for d in c cpp; do
		claim "$p to $d" 0 -- pull $p $d 1000
	done
	claim "$p with a bad router" 0 -- misled $p
	claim "$p with a killed consumer" 0 -- killed $p
done
echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
