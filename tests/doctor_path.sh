#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# kvpull_doctor, and an ib_pull on another machine behind a switch that drops
# large frames without a word: three network namespaces and a bridge. Run it by
# `unshare -rn`. Arguments: the build folder, a scratch folder with the machine
# of the doctor, the MTUs of the switch towards the other machine and back, and
# of the other machine.
set -u
build=$1
work=$2
towards=$3
back=$4
there=$5
unshare -n sleep 60 &
producer=$!
unshare -n sleep 60 &
consumer=$!
trap 'kill $producer $consumer ${server:-} 2>/dev/null; wait' EXIT
# Until then what is meant for it would be put here.
for child in $producer $consumer; do
	until [ "$(readlink "/proc/$child/ns/net")" != "$(readlink /proc/self/ns/net)" ]; do
		sleep 0.05
	done
done
in_consumer() { nsenter -t $consumer -n "$@"; }

wire() { # namespace, port of the switch and its MTU, address, MTU there
	until ip link add "$2" type veth peer name end netns "$1"; do sleep 0.1; done
	ip link set "$2" master switch mtu "$3" up
	nsenter -t "$1" -n ip addr add "$4" dev end
	# No frame is larger than it will be on the wire.
	nsenter -t "$1" -n ip link set end mtu "$5" gso_max_segs 1 up
}

ip link add switch type bridge || exit 125
ip link set switch up
wire $producer to "$towards" 10.66.0.1/24 "$there"
wire $consumer from "$back" 10.66.0.2/24 9000
mkdir -m 700 "$work/served"
# Remove the log of the server before: its "serving" is not this one's.
rm -f "$work/server"
# Not by a function: the shell's child would be killed, and not the server.
nsenter -t $producer -n env KVPULL_ROUTE=shm "$build/ib_pull" --dir "$work/served" \
	--blocks 64 --count 16 --port 18515 2>"$work/server" &
server=$!
until grep -q '^serving' "$work/server" || ! kill -0 $server 2>/dev/null; do
	sleep 0.05
done
in_consumer timeout $((20 * ${TEST_PATIENCE:-1})) "$build/kvpull_doctor" --no-probe \
	--root "$work/machine" --peer 10.66.0.1
code=$?
rm -rf "$work/served"
exit $code
