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

# ---- GPUs whose driver hangs ----

# The doctor ends the processes that wait for it after 15 s each. They are judged
# below: other causes are staged meanwhile.
hung() { # the call that does not return
	env LD_LIBRARY_PATH="$build/cuda" FAKE_CUDA_SLOW="$1 never" HUNG="$work" \
		timeout -s KILL $((60 * ${TEST_PATIENCE:-1})) "$build/kvpull_doctor" \
		--socket-dir "$work/here" >"$work/hung.$1" 2>&1 &
}
hung cuInit
hung_asked=$!
hung cuMemImportFromShareableHandle
hung_mapped=$!
hung_end() { # its process, the call
	wait "$1"
	hung_code=$?
	cat "$work/hung.$2"
	return $hung_code
}
# Neither the doctors, which have ended, nor their children are there.
hung_left_nothing() {
	! grep -l "HUNG=$work" /proc/[0-9]*/environ 2>/dev/null
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

calls() { # environment, options
	calls_environment=$1
	shift
	env LD_LIBRARY_PATH="$build/rdma" FAKE_RDMA="$work/fabric" \
		FAKE_RDMA_ADDRESSES=10.66.0.2 KVPULL_NETWORKS=10.66.0.0/16 \
		KVPULL_SOCKET_DIR="$work/here" "$calls_environment" \
		timeout $SECONDS_MAX "$build/kvpull_doctor" --no-probe \
		--root "$work/wired" --peer 127.0.0.1 --port $port "$@"
}

# The peer's pool has all of its blocks again.
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
if may 1 'IPv6' -- grep -q '^0\{31\}1 ' /proc/net/if_inet6; then
	claim peer_in_brackets_with_its_port 0 '^ok +peer +::1: every byte right' -- \
		calls A= --port 1 --peer "[::1]:$port"
fi
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

peer versions_are_unlike A= FAKE_RDMA_FAULT=version \
	'it speaks another version of kvpull -> install one version of kvpull'
peer rdma_port_is_anothers FAKE_RDMA_FAULT=foreign A= \
	'another program has the RDMA port .* -> start ib_pull there again'
peer address_is_not_resolved A= FAKE_RDMA_FAULT=no-address \
	'finds no way to the address of the one there -> both in one network'
peer route_is_not_resolved A= FAKE_RDMA_FAULT=no-route \
	'finds no way to the address of the one there -> both in one network'
peer peer_is_unreachable A= FAKE_RDMA_FAULT=unreachable \
	"no answer of RDMA's connection manager comes -> let UDP port 4791"
peer rdma_port_is_nobodys A= FAKE_RDMA="$work/here" \
	'nobody listens at the RDMA port .* -> start ib_pull there again'

# All blocks are held by tickets of others: the doctor takes none.
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

# A network of its own, whose device sends everything to nobody.
alone() { # own address; "": there is none
	# shellcheck disable=SC2016 # the inner shell's
	unshare -rn sh -c '[ -z "$0" ] || {
			ip link add eth0 type veth peer name eth1 && ip addr add "$0" dev eth0 &&
				ip link set eth1 up && ip link set eth0 up || exit
		}
		exec "$@"' "$1" timeout $SECONDS_MAX "$build/kvpull_doctor" --no-probe \
		--root "$work/wired" --peer 10.66.0.1 --port $port
}
if may 2 'a network of its own' -- unshare -rn ip link add eth0 type veth peer name eth1; then
	cause host_is_silent 1 "port $port: Connection timed out -> the host is down, or a firewall drops TCP port $port" -- \
		alone 10.66.0.2/24
	cause no_way_to_the_host 1 "port $port: Network is unreachable -> no way leads there: ip route get" -- alone ''
fi

# A network that drops large frames, where namespaces can make one.
path() { # name, MTUs of the switch each way and of the peer, pattern
	# shellcheck disable=SC2086 # three of them
	cause "$1" 1 "$3" -- unshare -rn tests/doctor_path.sh "$build" "$work/wired" $2
}
if may 4 'a network of its own' -- unshare -rn ip link add switch type bridge; then
	mkdir -p "$work/wired"
	ln -s . "$work/wired/machine"
	path large_frames_lost_on_the_way '2300 9000 9000' \
		'^FAIL +mtu +frames of MTU 4096 are lost .*those of 2048 arrive.* -> '
	path large_frames_lost_on_the_way_back '9000 1500 9000' \
		'those of 1024 arrive.* -> .*carry 4200 bytes.* ip link set DEV mtu 1500'
	path unlike_mtus '9000 9000 1500' \
		'10\.66\.0\.1 takes frames of 1500 bytes, this side sends MTU 4096.* -> '
	path frames_of_all_sizes_are_lost '600 600 9000' \
		'frames of MTU 4096 are lost .* and so are those of 1024.* -> let every switch'
fi

# ---- this machine ----

machine_new() {
	rm -rf "$work/machine"
	for at in 0 1; do
		device mlx5_$at '4: ACTIVE' '100 Gb/sec (4X EDR)' -1
		gid mlx5_$at 0 fe80:0000:0000:0000:0266:00ff:fe00:000$at 'IB/RoCE v1' eth$at
		gid mlx5_$at 3 0000:0000:0000:0000:0000:ffff:0a42:0${at}01 'RoCE v2' eth$at
		gid mlx5_$at 1 0000:0000:0000:0000:0000:0000:0000:0000 '' eth$at
		gid mlx5_$at 2 0000:0000:0000:0000:0000:0000:0000:0000 '' eth$at
		put sys/class/net/eth$at/mtu 9000
	done
}

# A container may lock 8 MiB, and a worker's 1 GiB is not the matter here.
looks() { # environment, options
	looks_environment=$1
	shift
	env "$looks_environment" KVPULL_SOCKET_DIR="$work/here" timeout $SECONDS_MAX \
		"$build/kvpull_doctor" --no-probe --route verbs --root "$work/machine" --memory 1M "$@"
}

there_is='there is mlx5_0 port 1 GID 3 10\.66\.0\.1, mlx5_1 port 1 GID 3 10\.66\.1\.1$'
configured() { # name, environment, what is said of it
	cause "$1" 1 "nothing has what is configured: .*$3.* -> .*$there_is" -- looks "$2"
}

machine_new
claim values_that_are_right_are_taken 1 '^ok +choice +mlx5_1 port 1, GID 3 .*: asked for' -- \
	looks KVPULL_VERBS_ADDRESS=10.66.1.1
configured gid_index_is_wrong KVPULL_VERBS_GID_INDEX=9 'verbs_gid_index 9'
configured address_is_wrong KVPULL_VERBS_ADDRESS=10.66.0.9 'verbs_address 10\.66\.0\.9'
configured port_is_wrong KVPULL_VERBS_PORT=2 'verbs_port 2'
cause address_is_another_devices 1 "verbs_device mlx5_0, .*verbs_address 10\.66\.1\.1 -> .*$there_is" -- \
	looks KVPULL_VERBS_ADDRESS=10.66.1.1 --device mlx5_0
cause device_is_wrong 1 'no device is named mlx5_9 -> --device and verbs_device' -- \
	looks KVPULL_VERBS_DEVICE=mlx5_9
cause device_of_a_second_rail_is_wrong 1 'no device is named mlx5_9 -> ' -- \
	looks KVPULL_VERBS_DEVICE=mlx5_1,mlx5_9
cause address_of_a_second_rail_is_wrong 1 'no port has the address 10\.66\.9\.9 .*-> correct or unset it' -- \
	looks KVPULL_VERBS_ADDRESS=10.66.0.1,10.66.9.9
gid mlx5_0 2 0000:0000:0000:0000:0000:ffff:0a42:0001 'IB/RoCE v1' eth0
cause gid_of_version_1_is_not_connected_by 1 'mlx5_0 connects by RoCE v2 .*: by GID 3, not 2 -> unset verbs_gid_index' -- \
	looks KVPULL_VERBS_GID_INDEX=2
cause gid_has_no_twin_to_connect_by 1 'connects by RoCE v2 .* none has the address fe80::266:ff:fe00:0 of GID 0 -> unset' -- \
	looks KVPULL_VERBS_GID_INDEX=0
put sys/kernel/config/rdma_cm/mlx5_0/ports/1/default_roce_mode 'IB/RoCE v1'
cause gid_is_of_version_1 1 'GID 0 of mlx5_0 is RoCE v1.* -> verbs_gid_index of a RoCE v2' -- \
	looks KVPULL_VERBS_GID_INDEX=0
cause default_mode_is_version_1 1 'mlx5_0 connects by RoCE v1 .*: by GID 2, not 3 -> no router carries RoCE v1; .*/mlx5_0/ports/1/default_roce_mode$' -- \
	looks KVPULL_VERBS_GID_INDEX=3
machine_new
put proc/sys/kernel/osrelease 5.11.22-generic
cause fork_may_take_pinned_pages 1 'fork +Linux 5\.11\.22-generic may give pinned pages to a child .* -> Linux 5\.12; or RDMAV_FORK_SAFE=1' -- looks A=
for at in 0 1; do
	put sys/class/infiniband/mlx5_$at/node_type '4: RNIC'
done
cause cards_are_iwarp 1 'mlx5_0 is iWARP, which kvpull does not use -> .*needs RoCE v2 or InfiniBand' -- looks A=
machine_new
put sys/class/infiniband/mlx5_0/ports/1/state '1: DOWN'
cause port_is_down 1 'mlx5_0 port 1 is not active -> check the cable' -- looks A= --device mlx5_0
machine_new
rm -r "$work/machine/sys/class/infiniband/mlx5_0/ports/1/gids/3"
cause port_has_no_address 1 'mlx5_0 port 1 has no GID that is used .* -> give its network device an IP' -- \
	looks A= --device mlx5_0
gid mlx5_0 3 fe80:0000:0000:0000:0266:00ff:fe00:0000 'RoCE v2' eth0
cause address_is_link_local 1 'mlx5_0 has a link-local address only.* -> give eth0 an IP address' -- \
	looks A= --device mlx5_0
put sys/class/infiniband/mlx5_0/ports/1/link_layer InfiniBand
cause infiniband_without_an_address 1 'is found by its IP address, and has no IPoIB device here -> configure IPoIB' -- \
	looks A= --device mlx5_0
put dev/infiniband/rdma_cm ''
put dev/infiniband/uverbs0 ''
put sys/class/infiniband/mlx5_0/device/net/ib0/type 32
cause infiniband_with_ipoib_is_a_note 0 '^note +choice +mlx5_0 is InfiniBand: .* -> .ip addr. shows' -- \
	looks A= --device mlx5_0
machine_new
put sys/class/net/eth0/mtu 1500
cause netdev_has_a_small_mtu 1 'MTU 1024, as eth0 has 1500.* -> if the network carries it' -- looks A=
rm -rf "$work/machine" && mkdir -p "$work/machine/sys/class/net"
cause no_device 1 'no RDMA device: .* -> between machines: an RDMA card' -- looks A=

# /dev/infiniband of a container.
machine_new
cause no_character_devices 1 '/dev/infiniband/rdma_cm: No such file.* -> modprobe ib_uverbs rdma_ucm' -- looks A=
put dev/infiniband/rdma_cm ''
put dev/infiniband/uverbs0 ''
claim character_devices_are_enough 0 ' 0 failures$' -- looks A=
as_nobody() {
	setpriv --reuid=65534 --regid=65534 --clear-groups "$@"
}
chmod 711 "$work"
chmod 666 "$work/machine/dev/infiniband/rdma_cm"
chmod 600 "$work/machine/dev/infiniband/uverbs0"
if may 1 'another user' -- as_nobody test -x "$build/kvpull_doctor"; then
	cause no_rights_to_a_device 1 '/dev/infiniband/uverbs0: Permission denied -> add the user to the group' -- \
		as_nobody env KVPULL_SOCKET_DIR=/tmp timeout $SECONDS_MAX "$build/kvpull_doctor" --no-probe \
		--route verbs --root "$work/machine" --memory 1M
fi

# Libraries that are missing, old, or know no device.
mkdir "$work/without" "$work/old"
: >"$work/without/librdmacm.so.1"
echo 'int rdma_create_id;' | "${CC:-gcc}" -shared -fPIC -x c - -o "$work/old/librdmacm.so.1"
cause library_is_missing 1 'no RDMA on this host: .*librdmacm.so.1.* -> apt-get install libibverbs1' -- \
	looks LD_LIBRARY_PATH="$work/without"
cause library_is_old 1 'too old: they have no rdma_create_event_channel -> rdma-core 24 or later' -- \
	looks LD_LIBRARY_PATH="$work/old"
mkdir -p "$work/machine/etc/libibverbs.d"
cause provider_list_is_empty 1 'does not list mlx5_0: /etc/libibverbs.d names no provider -> apt-get install ibverbs-providers' -- \
	looks A=
put etc/libibverbs.d/mlx5.driver 'driver mlx5'
cause provider_library_is_missing 1 "does not list mlx5_0: there is no provider's library.* -> apt-get" -- looks A=
put usr/lib/x86_64-linux-gnu/libibverbs/libmlx5-rdmav34.so ''
claim provider_is_enough 0 ' 0 failures$' -- looks A=
# The machine as it is, but for /sys and /dev/infiniband.
in_the_machine() { # command
	# shellcheck disable=SC2016 # the inner shell's
	unshare -rm sh -c 'for node in null urandom shm; do
			mkdir -p "$0/dev" && { [ -d /dev/$node ] && mkdir -p "$0/dev/$node" || : >"$0/dev/$node"; }
			mount --rbind /dev/$node "$0/dev/$node" || exit
		done
		mount --bind "$0/sys" /sys && mount --rbind "$0/dev" /dev && exec "$@"' \
		"$work/machine" "$@"
}
if may 1 'mounts of its own' -- in_the_machine true; then
	cause provider_does_not_know_the_device 1 'libibverbs does not list mlx5_0: its provider is missing or of another version -> ' -- \
		in_the_machine env LD_LIBRARY_PATH="$build/rdma" FAKE_RDMA="$work/fabric" FAKE_RDMA_ADDRESSES= \
		timeout $SECONDS_MAX "$build/kvpull_doctor" --no-probe --route verbs
fi

# Limits of the process.
small() { # limit, options
	small_limit=$1
	shift
	if [ "$(id -u)" -eq 0 ]; then
		set -- setpriv --bounding-set=-ipc_lock prlimit "$small_limit" "$@"
	else
		set -- prlimit "$small_limit" "$@"
	fi
	timeout $SECONDS_MAX "$@"
}
cause memlock_is_small 1 '0\.000 GiB; .*needs 8\.000 GiB.* -> ulimit -l unlimited' -- \
	small --memlock=65536 "$build/kvpull_doctor" --no-probe --route verbs --root "$work/machine" --memory 8
cause files_are_few 1 'only 16 files may be open.* -> ulimit -n 4096' -- small --nofile=16 "$build/kvpull_doctor"
grep -qE 'probe .*raise ulimit -n -> ulimit -n 4096' "$work/out"
check [ $? -eq 0 ]
cause files_are_short 1 'file size +0\.001 GiB.* -> ulimit -f unlimited' -- \
	small --fsize=1048576 "$build/kvpull_doctor" --no-probe

# GPUs: the fake driver.
gpus() { # environment
	env LD_LIBRARY_PATH="$build/cuda" "$@" "$build/kvpull_doctor" \
		--socket-dir "$work/here"
}
rate='[0-9]+\.[0-9]+ GB/s'
claim gpu_is_shared 0 \
	"^ok +gpu +GPU 0: its memory can be shared with processes of this node: one mapped it for reads and copied 64 MiB at $rate by the kernel, the median of [1-5]\$" \
	'^note +gpu +GPU 0: GPU-66616b65-2064-6576-6963-652030303030 at 0000:3d:00\.0, driver of CUDA 13\.0, which says: VMM yes, descriptors yes; MIG not known, BAR1 not known$' \
	'^note +gpu +GPU 0 and NICs, .*: GPUDirect RDMA no, of VMM no, dmabuf no, flush by the host no, order of writes for none$' -- gpus A=
claim gpu_has_a_kernel_or_copies_by_calls 0 "one mapped it for reads and copied 64 MiB at $rate by the driver's calls" -- \
	gpus 'FAKE_CUDA_REFUSE=cuModuleLoadData 221'
claim gpu_and_nics_are_told 0 'GPUDirect RDMA yes, of VMM yes, dmabuf yes, flush by the host yes, order of writes for all GPUs$' -- \
	gpus FAKE_CUDA_RDMA=2 FAKE_CUDA_FLUSH=1 FAKE_CUDA_ORDERING=200
gpus_in_json() { # environment
	env LD_LIBRARY_PATH="$build/cuda" "$@" "$build/kvpull_doctor" --json --root "$work/gpus" \
		--socket-dir "$work/here" | tr -d '\n' | tr -s ' ' && echo
}
# A rate that is not 0.
above_0='"gbps": ([1-9]|0\.0*[1-9]|[1-9]\.[0-9]+e)'
mkdir -p "$work/gpus/sys/bus/pci/devices/0000:3d:00.0" "$work/gpus/proc/driver/nvidia/gpus/0000:3d:00.0"
printf '%s\n' '0x0000000041000000 0x0000000041ffffff 0x0000000000040200' \
	'0x0000380000000000 0x0000380fffffffff 0x000000000014220c' \
	>"$work/gpus/sys/bus/pci/devices/0000:3d:00.0/resource"
echo 'GPU UUID: 	 GPU-66616b65-2064-6576-6963-652030303030' \
	>"$work/gpus/proc/driver/nvidia/gpus/0000:3d:00.0/information"
claim gpu_is_in_json 0 '"uuid": "GPU-66616b65-2064-6576-6963-652030303030"' '"vmm": true' '"mig": false' \
	'"bar1_bytes": 68719476736' '"access": "read"' "$above_0" '"peers": \[\]' -- gpus_in_json A=
claim gpu_that_is_mapped_for_stores_is_in_json 0 '"access": "read-write"' "$above_0" -- gpus_in_json FAKE_CUDA_READ=801
claim gpu_that_nobody_maps_is_in_json 0 '"access": null' '"gbps": null' -- \
	gpus_in_json 'FAKE_CUDA_REFUSE=cuMemMap 1'
gpus_apart() { # the driver's matrix, environment
	gpus_matrix=$1
	shift
	gpus FAKE_CUDA_GPUS='0000 beef' FAKE_CUDA_P2P="$gpus_matrix" "$@"
}
claim gpus_that_reach_each_other_are_named 0 '^note +gpu +GPU 0 reads memory of these GPUs, as its driver says: 1 \(rank 0\)$' \
	'^note +gpu +GPU 1 reads no memory of these GPUs, as its driver says: 0$' \
	"^ok +gpu +GPU 1: its memory can be shared .* at $rate" -- gpus_apart '11 01'
claim gpu_behind_a_refused_one_is_tried 0 '^warn +gpu +cuda: device 0 cannot share its memory' \
	"^ok +gpu +GPU 1: its memory can be shared .* at $rate" -- gpus_apart '11 11' FAKE_CUDA_POSIX_FD='0 1'
claim host_without_a_driver_has_no_gpu 0 ' 0 warnings' -- \
	"$build/kvpull_doctor" --socket-dir "$work/here"
cause gpu_is_not_visible 0 'gpu +cuda: the driver does not start: 100 .* -> nvidia-smi; in a container: --gpus all' -- \
	gpus 'FAKE_CUDA_REFUSE=cuInit 100'
cause gpu_driver_is_old 0 'gpu +cuda: libcuda\.so\.1 has no cu.* -> a driver of CUDA 12\.0 or newer$' -- \
	gpus FAKE_CUDA_VERSION=11000
cause gpu_hands_nothing_out 0 'gpu +cuda: device 0 cannot share its memory.* -> KV caches in host memory' -- \
	gpus FAKE_CUDA_POSIX_FD=0
cause gpu_refuses_mappings_for_reads 0 'gpu +cuda: device 0: .* for reads alone: 801 -> a newer driver; .* may write into the cache$' -- \
	gpus FAKE_CUDA_READ=801
cause gpu_is_full 0 'gpu +cuda: device 0: cuMemCreate: 2 .* -> stop what has .*: nvidia-smi$' -- \
	gpus 'FAKE_CUDA_REFUSE=cuMemCreate 2'
cause gpu_is_not_mapped_elsewhere 0 'gpu +GPU 0: no other process copies from it: .*cuMemImportFromShareableHandle: 801.* -> KV caches in host' -- \
	gpus 'FAKE_CUDA_REFUSE=cuMemImportFromShareableHandle 801'
cause gpu_does_not_copy 0 'gpu +GPU 0: no other process copies from it: .*cuLaunchKernel: 801.* -> KV caches in host' -- \
	gpus 'FAKE_CUDA_REFUSE=cuLaunchKernel 801'
cause gpu_refuses_a_question 0 'gpu +GPU 0: its driver does not answer all: cuDeviceGetPCIBusId: 101 .* -> nvidia-smi; dmesg' -- \
	gpus 'FAKE_CUDA_REFUSE=cuDeviceGetPCIBusId 101'
cause gpus_do_not_reach_each_other 0 'gpu +GPU 0 reads no memory of these GPUs, .*: 1 -> P and D on GPUs that reach each other: nvidia-smi topo' -- \
	gpus_apart '10 01'
cause gpu_is_shared_by_mps 0 'gpu +GPU 0 is shared by MPS \(its driver says so\).* -> P and D without MPS' -- gpus FAKE_CUDA_MPS=1
echo 'GPU UUID: 	 GPU-41616b65-2064-6576-6963-652030303030' \
	>"$work/gpus/proc/driver/nvidia/gpus/0000:3d:00.0/information"
cause gpu_is_an_instance_of_mig 0 'gpu +GPU 0 is an instance of MIG.* -> P and D in one instance' -- \
	env LD_LIBRARY_PATH="$build/cuda" "$build/kvpull_doctor" --root "$work/gpus" --socket-dir "$work/here"
mkdir "$work/crashes"
echo 'void cuGetProcAddress_v2(void) { __builtin_trap(); }' |
	"${CC:-gcc}" -shared -fPIC -x c - -o "$work/crashes/libcuda.so.1"
cause gpu_driver_crashes 0 'gpu +GPU 0: its driver ended the process that asked it -> nvidia-smi; dmesg' -- \
	env LD_LIBRARY_PATH="$work/crashes" "$build/kvpull_doctor" --socket-dir "$work/here"
cause gpu_driver_hangs 0 'gpu +GPU 0: its driver does not answer in 15 s -> nvidia-smi; dmesg' -- hung_end $hung_asked cuInit
cause gpu_hangs_where_it_is_mapped 0 'GPU 0: a process that maps its memory is not done in 15 s, and was ended -> nvidia-smi; dmesg' -- \
	hung_end $hung_mapped cuMemImportFromShareableHandle
check hung_left_nothing
cause gpu_refuses_to_hand_out 0 'gpu +cuda: device 0: cuMemExportToShareableHandle: 801.* -> KV caches in host' -- \
	gpus 'FAKE_CUDA_REFUSE=cuMemExportToShareableHandle 801'

# Networks that the default leaves out.
machine_new
put dev/infiniband/rdma_cm ''
put dev/infiniband/uverbs0 ''
cp -r "$work/wired/proc" "$work/machine"
sed -i 's/^eth0 0000420A 00000000/eth0 0100420A 00000000/' "$work/machine/proc/net/route"
cause networks_are_routed 0 'not set: .*eth0 is routed to more -> on all hosts: networks=10\.66\.0\.0/16$' -- looks A=
claim networks_that_are_set_are_no_note 0 -- looks KVPULL_NETWORKS=10.0.0.0/8

cat "$work/table"
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
