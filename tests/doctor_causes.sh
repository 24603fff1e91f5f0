#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Each cause that keeps kvpull from pulling, staged: kvpull_doctor must name it in
# a line, with the advice below it, within 5 s, and leave nothing held at the
# peer. Machines are folders; RDMA between processes is tests/fake/rdma. Prints
# the table of causes. Argument: the build folder.
set -u
cd "$(dirname "$0")/.." || exit 1
build=$(cd "$1" && pwd)
work=$(mktemp -d /var/tmp/kvpull-causes-XXXXXX) || exit 1
server=
trap 'kill $server 2>/dev/null; rm -rf "$work"' EXIT
. tests/claim.sh
. tests/doctor_machine.sh
port=$((21000 + $$ % 9000))
SECONDS_MAX=$((5 * ${TEST_PATIENCE:-1}))
mkdir -m 700 "$work/fabric" "$work/here" "$work/there"
head -c 32 /dev/urandom >"$work/key"
head -c 32 /dev/urandom >"$work/other"
chmod 600 "$work/key" "$work/other"

# The page, with each advice in the line of its finding.
judged() { # command
	"$@" >"$work/page" 2>&1
	judged_code=$?
	awk 'sub(/^ +-> /, " -> ") { printf "%s", $0; next }
		NR > 1 { print "" }
		{ printf "%s", $0 }
		END { print "" }' "$work/page"
	return $judged_code
}

cause() { # name, exit status, pattern of the line with its advice -- command
	cause_name=$1
	cause_status=$2
	cause_pattern=$3
	cause_began=$(date +%s%N)
	shift 4
	claim "$cause_name" "$cause_status" "$cause_pattern" -- judged "$@"
	cause_ms=$((($(date +%s%N) - cause_began) / 1000000))
	printf '%5d ms  %-40s %s\n' $cause_ms "$cause_name" \
		"$(grep -E -m 1 -- "$cause_pattern" "$work/out")" >>"$work/table"
}

# ---- another machine ----

device fake0 '4: ACTIVE' '25 Gb/sec (1X EDR)' -1
gid fake0 0 0000:0000:0000:0000:0000:ffff:0a42:0002 'RoCE v2' eth0
put sys/class/net/eth0/mtu 9000
# 10.66.0.0/24 by eth0; 10.66.0.0/16 by a router there; a default route.
put proc/net/route "$(printf '%s\n' 'Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT' \
	'eth0 0000420A 00000000 0001 0 0 0 00FFFFFF 0 0 0' \
	'eth0 0000420A 0100420A 0003 0 0 0 0000FFFF 0 0 0' \
	'eth1 00000000 0100000A 0003 0 0 0 00000000 0 0 0')"
rm -r "$work/machine/sys/class/infiniband/fake0/device"
mv "$work/machine" "$work/wired"

serve() { # environment
	: >"$work/server"
	env LD_LIBRARY_PATH="$build/rdma" FAKE_RDMA="$work/fabric" \
		FAKE_RDMA_ADDRESSES=10.66.0.1 KVPULL_NETWORKS=10.66.0.0/16 "$@" \
		"$build/ib_pull" --dir "$work/there" --blocks 256 --count 16 \
		--port $port 2>"$work/server" &
	server=$!
	until grep -q '^serving' "$work/server"; do
		kill -0 $server 2>/dev/null || return
		sleep 0.05
	done
}

serve_end() {
	kill $server 2>/dev/null
	wait $server 2>/dev/null
	server=
}

calls() { # environment
	env LD_LIBRARY_PATH="$build/rdma" FAKE_RDMA="$work/fabric" \
		FAKE_RDMA_ADDRESSES=10.66.0.2 KVPULL_NETWORKS=10.66.0.0/16 \
		KVPULL_SOCKET_DIR="$work/here" "$@" timeout $SECONDS_MAX \
		"$build/kvpull_doctor" --no-probe \
		--root "$work/wired" --peer 127.0.0.1 --port $port
}

# Of the pool there nothing is held any more.
nothing_is_held() { # name of the cause
	for _ in 1 2 3 4 5 6 7 8 9 10; do
		"$build/ib_pull" --stats --port $port 127.0.0.1 >"$work/stats" 2>&1
		grep -q '"holds_live": 0,.*"blocks_free": 256,' "$work/stats" && return
		sleep 0.1
	done
	cat "$work/stats" "$work/server"
	return 1
}

peer() { # name, environment there, environment here, pattern
	serve "$2"
	cause "$1" 1 "$4" -- calls "$3"
	check nothing_is_held "$1"
	serve_end
}

serve A=
claim peer_that_serves_is_right 0 '^ok +peer +127.0.0.1: every byte right' -- calls A=
check nothing_is_held peer_that_serves_is_right
serve_end
peer networks_there_lack_us KVPULL_NETWORKS=10.99.0.0/16 A= \
	'our address 10\.66\.0\.2 is in none of its networks -> there and here: networks=10\.66\.0\.0/24$'
peer networks_here_lack_the_peer A= KVPULL_NETWORKS=10.99.0.0/16 \
	'its address 10\.66\.0\.1 is in none of our networks -> here and there: networks=10\.66\.0\.0/24$'
peer peer_beyond_a_router_is_proposed FAKE_RDMA_ADDRESSES=10.66.7.1 KVPULL_NETWORKS=10.66.0.0/24 \
	'its address 10\.66\.7\.1 is in none of our networks -> here and there: networks=10\.66\.0\.0/16$'
peer peer_beyond_the_default_route_is_proposed FAKE_RDMA_ADDRESSES=10.7.7.1 A= \
	'its address 10\.7\.7\.1 is in none .* networks=10\.66\.0\.0/24,10\.7\.7\.1/32$'
peer route_there_is_shm KVPULL_ROUTE=shm A= \
	'it offers no RDMA address -> there: .*route must not be shm'
peer no_device_there FAKE_RDMA_ADDRESSES= A= \
	'it offers no RDMA address -> there: kvpull_doctor --route verbs'
peer another_key KVPULL_KEY_FILE="$work/key" KVPULL_KEY_FILE="$work/other" \
	'not made with our key -> key_file: the same 32 bytes'
peer no_key_there A= KVPULL_KEY_FILE="$work/key" \
	'not made with our key -> key_file: the same 32 bytes'
peer no_key_here KVPULL_KEY_FILE="$work/key" A= \
	"which this side lacks -> key_file: a copy of the peer's"
peer udp_port_is_blocked A= FAKE_RDMA_FAULT=silent \
	"no answer of RDMA's connection manager comes -> let UDP port 4791"
peer large_reads_are_lost A= FAKE_RDMA_FAULT=hole \
	'READs of whole blocks are lost -> one MTU on both hosts'
peer memory_cannot_be_registered A= FAKE_RDMA_FAULT=no-memory \
	'memlock is too small -> here: ulimit -l unlimited'
peer no_device_here A= FAKE_RDMA_ADDRESSES= \
	'no RDMA device on this host.* -> here: .*127\.0\.0\.1 was not called'

peer rdma_port_is_nobodys A= FAKE_RDMA="$work/here" \
	'nobody listens at the RDMA port .* -> start ib_pull there again'

# Whoever holds its blocks: the doctor goes again, and takes none.
pool_there_is_full() {
	serve A=
	until "$build/ib_pull" --ticket --count 16 --port $port 127.0.0.1 \
		>/dev/null 2>"$work/error" </dev/null; do
		:
	done
	for _ in $(seq 15); do
		"$build/ib_pull" --ticket --count 16 --port $port 127.0.0.1 >/dev/null
	done
	cause pool_there_is_full 1 '0 of its 256 blocks are free -> wait until' -- calls A=
	serve_end
}
pool_there_is_full
cause nobody_serves 1 'port [0-9]*: Connection refused -> nobody serves there: ib_pull --port' -- calls A=
cause host_has_no_address 1 'no address of a\.\.b: .* -> give a host' -- timeout $SECONDS_MAX \
	"$build/kvpull_doctor" --no-probe --root "$work/wired" --peer a..b
listens() { # what it answers
	python3 -c '
import socket, sys
server = socket.socket(); server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
server.bind(("127.0.0.1", int(sys.argv[1]))); server.listen(8)
kept = []
while True:
    client, _ = server.accept(); client.send(sys.argv[2].encode()); kept.append(client)
' $port "$1" &
	server=$!
	until grep -q ":$(printf '%04X' $port) 00000000:0000 0A" /proc/net/tcp; do sleep 0.05; done
}
listens ''
cause stopped_program_at_the_port 1 'is no ib_pull -> another program has that port' -- calls A=
serve_end
listens "$(printf '%0200d' 0)"
cause another_program_at_the_port 1 'is no ib_pull -> another program has that port' -- calls A=
serve_end

cat "$work/table"
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
