#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# kvpull_doctor on this machine, with a small memlock, and on machines that are
# folders: what it finds, what it would choose, its exit status, its JSON.
# Argument: the build folder.
set -u
cd "$(dirname "$0")/.." || exit 1
doctor=$(cd "$1" && pwd)/kvpull_doctor
# On a disk, as most are: /tmp may be memory, and status files would lie there.
work=$(mktemp -d /var/tmp/kvpull-doctor-XXXXXX) || exit 1
trap 'rm -rf "$work"' EXIT
. tests/claim.sh
. tests/doctor_machine.sh

# Without CAP_IPC_LOCK a limit holds for root too.
small_memlock() {
	if [ "$(id -u)" -eq 0 ]; then
		setpriv --bounding-set=-ipc_lock prlimit --memlock=65536 "$@"
	else
		prlimit --memlock=65536 "$@"
	fi
}

link_local=fe80:0000:0000:0000:0266:00ff:fe00:0001
mapped=0000:0000:0000:0000:0000:ffff:0a42
device mlx5_0 '4: ACTIVE' '100 Gb/sec (4X EDR)' -1
gid mlx5_0 0 $link_local 'IB/RoCE v1' eth0
gid mlx5_0 1 $link_local 'RoCE v2' eth0
gid mlx5_0 2 $mapped:0001 'IB/RoCE v1' eth0
gid mlx5_0 3 $mapped:0001 'RoCE v2' eth0
put sys/class/net/eth0/mtu 1500
device mlx5_1 '4: ACTIVE' '200 Gb/sec (4X HDR)' -1
gid mlx5_1 0 $link_local 'RoCE v2' eth1
put sys/class/net/eth1/mtu 9000
device mlx5_2 '1: DOWN' '40 Gb/sec (4X QDR)' -1
gid mlx5_2 0 0000:0000:0000:0000:0000:0000:0000:0000 'RoCE v2' eth2

# Two equals on nodes of their own; the second one's has all CPUs there are.
mv "$work/machine" "$work/kept"
device mlx5_0 '4: ACTIVE' '800 Gb/sec (4X XDR)' 0
gid mlx5_0 0 $mapped:0001 'RoCE v2' eth0
device mlx5_1 '4: ACTIVE' '800 Gb/sec (4X XDR)' 7
gid mlx5_1 0 $mapped:0002 'RoCE v2' eth1
put sys/devices/system/node/node0/cpulist 1022-1023
put sys/devices/system/node/node7/cpulist 0-511,512-1021
mv "$work/machine" "$work/nodes"
mv "$work/kept" "$work/machine"

claim near_is_where_the_process_may_run 0 '^ok +choice +mlx5_1 .*nearer to the CPUs' -- \
	"$doctor" --no-probe --root "$work/nodes"
claim far_is_where_it_may_not 0 \
	'^warn +choice +mlx5_0 is on NUMA node 0, none of whose CPUs' \
	'numactl --cpunodebind=0' -- \
	"$doctor" --no-probe --root "$work/nodes" --device mlx5_0
claim this_machine_pulls 0 '^ok +probe +16 MiB' ' 0 failures$' -- "$doctor"
mkdir -p "$work/bare/sys/class/net" "$work/bare/sys/module/core" \
	"$work/bare/sys/devices/system/cpu/cpu0" "$work/bare/proc/self"
claim no_device_is_no_failure 0 '^note +rdma +no RDMA device' \
	'^note +device memory +no GPU driver' '^ok +numa +one node' -- \
	"$doctor" --no-probe --root "$work/bare"
claim no_device_fails_who_wants_verbs 1 '^FAIL +rdma +no RDMA device' -- \
	"$doctor" --no-probe --root "$work/bare" --route verbs
# The doctor does not judge a folder that is missing or not mounted yet.
mkdir -p "$work/unmounted/sys" "$work/unmounted/proc"
for root in "$work/nonexistent" "$work/unmounted"; do
	claim "what_cannot_be_seen_is_unknown in ${root##*/}" 0 \
		'^unknown +rdma +.*/sys/class cannot be seen' \
		'^unknown +device memory ' '^unknown +numa ' ', 0 failures$' \
		'[1-9] unknown, ' -- "$doctor" --no-probe --root "$root"
	claim "verbs_must_be_seen in ${root##*/}" 1 '^FAIL +rdma +.* cannot be seen' -- \
		"$doctor" --no-probe --root "$root" --route verbs
	claim "unknown_in_json in ${root##*/}" 0 '"level": "unknown"' '"unknown": [1-9]' -- \
		"$doctor" --no-probe --root "$root" --json
done
if [ "$(id -u)" -ne 0 ]; then
	claim unseen_foreign_memory_is_unknown 0 '^unknown +foreign memory ' -- \
		"$doctor" --no-probe --root "$work/nonexistent"
elif may 1 CAP_IPC_LOCK -- setpriv --inh-caps=+ipc_lock --ambient-caps=+ipc_lock true; then
	claim unseen_namespace_is_unknown 0 '^unknown +memlock ' -- \
		prlimit --memlock=65536 "$doctor" --no-probe --root "$work/nonexistent"
fi
claim unknown_device_is_an_error 1 '^FAIL +rdma +no device is named mlx5_9' -- \
	"$doctor" --no-probe --root "$work/machine" --device mlx5_9
claim unknown_device_is_an_error_where_is_none 1 \
	'^FAIL +rdma +no device is named mlx5_9' -- \
	"$doctor" --no-probe --root "$work/bare" --device mlx5_9
claim routable_goes_before_faster 0 \
	'^ok +choice +mlx5_0 port 1, GID 3 \(RoCE v2 IPv4 10\.66\.0\.1\).*better kind' \
	'MTU 1024, as eth0 has 1500' 'mlx5_2 port 1 is not active' -- \
	"$doctor" --no-probe --root "$work/machine"
claim device_can_be_named 0 'choice +mlx5_1 .*asked for' 'link-local address only' -- \
	"$doctor" --no-probe --root "$work/machine" --device mlx5_1
claim named_device_must_be_usable 1 'no port of mlx5_2 can be used' -- \
	"$doctor" --no-probe --root "$work/machine" --device mlx5_2 --route verbs
claim small_memlock_fails_verbs 1 '^FAIL +memlock +0\.000 GiB; .* 8\.000 GiB' \
	'ulimit -l unlimited' -- small_memlock \
	"$doctor" --no-probe --root "$work/machine" --route verbs --memory 8
claim small_memlock_is_enough_on_one_node 0 '^note +memlock' '^ok +probe' -- \
	small_memlock "$doctor" --route shm
claim short_files_fail 1 '^FAIL +file size +0\.001 GiB, .* 1\.000 GiB' \
	'ulimit -f unlimited' '^FAIL +calibration +there are no 256 MiB' \
	-- prlimit --fsize=1048576 "$doctor" --no-probe --calibrate
claim long_socket_folder_fails 1 'at most 95 bytes' -- "$doctor" --no-probe \
	--socket-dir "/tmp/$(printf '%0100d' 0)"
mkdir -m 700 "$work/own"
mkdir "$work/open" "$work/shared"
chmod 777 "$work/open"
chmod 1777 "$work/shared"
ln -s own "$work/link"
# ib_pull's own socket is to fit beside it.
long=$work/$(printf "%0$((90 - ${#work}))d" 0)
mkdir -m 700 "$long"
in_folder() { # name, status, pattern, folder
	claim "$1" "$2" "$3" -- "$doctor" --no-probe --socket-dir "$4"
}

in_folder own_folder_is_taken 0 '^ok +sockets ' "$work/own"
in_folder folder_of_anybody_fails 1 'anybody may replace sockets' "$work/open"
in_folder shared_folder_is_no_warning 0 '^note +sockets .*several users' "$work/shared"
in_folder link_fails 1 'a symbolic link' "$work/link"
mkdir -p "$work/pod"
mv "$work/machine" "$work/kept"
put proc/self/uid_map '         0     100000      65536'
put proc/sys/kernel/overflowuid 65534
mv "$work/machine" "$work/pod/machine"
mv "$work/kept" "$work/machine"
claim users_that_are_not_mapped_are_a_note 0 \
	'^note +users +this user namespace does not map all users' -- \
	env KVPULL_UIDS=7 "$doctor" --no-probe --root "$work/pod/machine"
claim nobody_needs_a_key_in_a_user_namespace 0 \
	'^warn +users +no process of user 65534 pulls' 'one key_file for all' -- \
	env KVPULL_UIDS=65534 "$doctor" --no-probe --root "$work/pod/machine"
in_folder long_folder_is_taken 0 '^ok +sockets ' "$long"
in_folder missing_folder_is_made 0 'the first worker makes it' "$work/new/"
# As in JSON, which the configuration is: never another folder in its place.
in_folder folder_that_is_no_text_fails 1 'socket-dir must be text in UTF-8' "$work/$(printf '\377')"
claim finding_that_is_no_text_is_in_the_object 1 '"level": "fail"' '"failures": 1' -- \
	"$doctor" --no-probe --root "$work/machine" --json --device "$(printf '\377')"
in_folder missing_parent_fails 1 'no worker can make it: .*No such file' "$work/no/new"
mkdir -m 700 "$work/nobody"
if may 2 'a folder of another user' -- chown 65534 "$work/nobody"; then
	in_folder folder_of_another_fails 1 'belongs to user 65534' "$work/nobody"
	claim folder_of_a_listed_user_is_taken 0 '^ok +sockets ' -- \
		env KVPULL_UIDS=0,65534 "$doctor" --no-probe --socket-dir "$work/nobody"
fi
# The folder answers now; on a day when it does not, heartbeats wait for it.
mkdir "$work/network"
in_fuse() { # command
	unshare -rm python3 tests/fake/fuse.py "$work/network" "$@"
}
if may 1 'a FUSE file system' -- in_fuse true; then
	claim folder_of_a_network_is_a_warning 1 '^warn +sockets .*of another program or machine' -- \
		in_fuse "$doctor" --no-probe --socket-dir "$work/network"
fi
# Where a worker's status file would lie, and what keeps it from being there.
in_folder status_file_is_in_memory 0 '^ok +status +[0-9.]+ MiB a worker, /dev/shm/kvpull-' "$work/own"
claim status_that_is_off_is_a_note 0 '^note +status +off' -- \
	env KVPULL_STATUS=off "$doctor" --no-probe --socket-dir "$work/own"
small_shm() { # command...
	# shellcheck disable=SC2016 # the inner shell's
	unshare -rm sh -c 'mount -t tmpfs -o size=128k tmpfs /dev/shm && exec "$@"' sh "$@"
}
if may 1 'a mount of its own' -- small_shm true; then
	claim small_shm_is_a_warning 0 '^warn +status .*No space left' '--shm-size' -- \
		small_shm "$doctor" --no-probe --socket-dir "$work/own"
fi

# A worker says the same of each.
worker_takes() { # folder
	: >"$work/worker"
	"$(dirname "$doctor")/ib_pull" --dir "$1" --blocks 64 --count 16 2>"$work/worker" &
	worker=$!
	until grep -q '^serving' "$work/worker" || ! kill -0 $worker 2>/dev/null; do
		sleep 0.05
	done
	kill $worker 2>/dev/null
	wait $worker
}

for folder in own open shared link "$(basename "$long")" new no/new; do
	taken=0
	worker_takes "$work/$folder" || taken=1
	rm -rf "$work/new"
	claim "worker_agrees_on_$folder" $taken -- \
		"$doctor" --no-probe --socket-dir "$work/$folder"
done
# It changes nothing, also where it is ended in the middle of its probe.
probe_that_is_ended_leaves_nothing() {
	for late in 02 04 06 08 10 12; do
		"$doctor" >/dev/null 2>&1 &
		doctored=$!
		sleep 0.$late
		kill $doctored 2>/dev/null
		wait $doctored
	done
	# The processes of the probe see their parent's end by themselves.
	sleep "$TEST_PATIENCE"
	[ -z "$(find /tmp -maxdepth 1 -name 'kvpull-doctor-*' -newer "$work/before" 2>/dev/null)" ]
}
touch "$work/before"
check probe_that_is_ended_leaves_nothing
# A device or a folder that hangs is what it is asked about.
probe_is_stopped() {
	"$doctor" >/dev/null 2>&1 &
	doctored=$!
	producer=
	until [ -n "$producer" ] && grep -q doctor "/proc/$producer/cmdline" 2>/dev/null; do
		# It may be done; a shell may have waited for it already.
		grep -q '^State:.[^Z]' "/proc/$doctored/status" || return 1
		read -r producer _ <"/proc/$doctored/task/$doctored/children"
	done
	kill -STOP "$producer" && kill -0 $doctored && ! grep -q ' Z ' "/proc/$doctored/stat"
}
probe_that_hangs_can_be_ended() {
	tries=0
	# It has done in a tenth of a second, and may be done before the stop.
	until probe_is_stopped 2>/dev/null; do
		tries=$((tries + 1))
		[ $tries -lt $((50 * TEST_PATIENCE)) ] || return 1
		wait $doctored
	done
	kill $doctored
	(sleep $((15 * TEST_PATIENCE)) && kill -9 $doctored) 2>/dev/null &
	guard=$!
	wait $doctored
	ended=$?
	kill $guard "$producer" 2>/dev/null
	kill -9 "$producer" 2>/dev/null
	[ $ended -eq 143 ]
}
check probe_that_hangs_can_be_ended
claim wrong_variable_is_said 1 \
	'^FAIL +configuration +lease_ms 5 is refused: .*KVPULL_LEASE_MS' -- \
	env KVPULL_LEASE_MS=5 "$doctor"
claim absent_peer_fails 1 '^FAIL +peer +no pull from 127\.0\.0\.1: ' -- \
	"$doctor" --no-probe --peer 127.0.0.1 --port 1
peer_port=$((20000 + $$ % 10000))
mkdir -m 700 "$work/peer"
: >"$work/peer/said"
"$(dirname "$doctor")/ib_pull" --dir "$work/peer" --blocks 1024 --port $peer_port \
	>"$work/peer/said" 2>&1 &
peer=$!
until grep -q '^serving' "$work/peer/said" || ! kill -0 $peer; do
	sleep 0.1
done
claim no_device_here_is_not_put_down_to_the_peer 1 \
	'^FAIL +peer +no pull from 127\.0\.0\.1: verbs: .*device none0' \
	'^ +-> here: .*; 127\.0\.0\.1 was not called$' -- \
	"$doctor" --no-probe --peer 127.0.0.1 --port $peer_port --device none0
kill $peer
wait $peer 2>/dev/null
claim unknown_peer_fails_at_once 1 '^FAIL +peer +no pull from a\.\.b: no address of a\.\.b: ' -- \
	within 5 "$doctor" --no-probe --peer a..b

mkdir -m 700 "$work/copy"
claim unmeasured_cpu_has_a_default 0 '^ok +copy +.*by default' -- \
	"$doctor" --no-probe --socket-dir "$work/copy"
claim calibration_is_remembered 0 '^ok +copy +.*remembered' -- \
	"$doctor" --no-probe --socket-dir "$work/copy" --calibrate
# Some seconds, of which a person at a terminal sees the rounds.
rounds='calibrating: [1-9][0-9]* of at most 63 rounds'
claim calibration_shows_its_progress 0 "$rounds" '^ok +copy +.*remembered' -- \
	on_a_terminal "$doctor" --no-probe --socket-dir "$work/copy" --calibrate
calibration_is_silent_elsewhere() {
	"$doctor" --no-probe --socket-dir "$work/copy" --calibrate >"$work/out" 2>&1 && ! grep "$rounds" "$work/out"
}
check calibration_is_silent_elsewhere
claim later_ones_use_what_is_remembered 0 '^ok +copy +.*remembered' -- \
	"$doctor" --no-probe --socket-dir "$work/copy"
chmod 666 "$work/copy/copy-routines"
claim file_that_others_may_write_is_told 0 '^warn +copy +.*by default' \
	'-> .*copy-routines is ignored: others may write it' -- \
	"$doctor" --no-probe --socket-dir "$work/copy"
claim unknown_copy_routine_fails 1 '^FAIL +copy +copy_routine nothing' -- \
	env KVPULL_COPY_ROUTINE=nothing "$doctor" --no-probe --socket-dir "$work/copy"
claim memory_beyond_the_machine_fails 1 '^FAIL +memory +this machine has [0-9.]+ GiB; a worker needs 99999\.000 GiB ' -- \
	"$doctor" --no-probe --memory 99999
put proc/meminfo 'MemTotal:       33554432 kB
MemFree:         1048576 kB
MemAvailable:    2097152 kB'
claim memory_that_is_taken_is_a_warning 0 '^warn +memory +2\.000 GiB are free here; a worker needs 8\.000 GiB ' -- \
	"$doctor" --no-probe --root "$work/machine" --memory 8192M
claim memory_that_is_free_is_ok 0 '^ok +memory +2\.0 GiB free, of which a worker needs 1\.000 GiB$' -- \
	"$doctor" --no-probe --root "$work/machine"
claim wrong_option_is_usage 2 '^kvpull_doctor: --route is auto, shm(, [a-z]+)* or [a-z]+, not ether; ' -- "$doctor" --route ether
claim json_has_the_choice 0 '"gid_index": 3' '"device": "mlx5_0"' '"failures": 0' -- \
	"$doctor" --json --no-probe --root "$work/machine"
cp "$work/out" "$work/json"
# A container that was given the second device alone.
for i in 0 1; do
	put sys/class/infiniband_verbs/uverbs$((i + 2))/ibdev mlx5_$i
done
put dev/infiniband/rdma_cm ''
put dev/infiniband/uverbs3 ''
claim given_device_is_chosen 0 '^ok +choice +mlx5_1 ' '^ok +rights ' \
	'mlx5_0 is not in /dev/infiniband here' -- \
	"$doctor" --no-probe --root "$work/machine"
rm -r "$work/machine/sys/class/infiniband_verbs"
claim any_node_will_do 0 '^ok +rights ' -- "$doctor" --no-probe --root "$work/machine"
cat >"$work/json.c" <<'END'
#include <jansson.h>
#include <string.h>
int main(int argc, char **argv)
{
	json_t *report = json_load_file(argv[argc - 1], JSON_REJECT_DUPLICATES, NULL);
	json_t *ports = json_object_get(report, "ports");
	const size_t gids[] = { 4, 1, 0 };
	const char *level, *address = NULL;
	size_t i;
	json_t *finding;
	(void)json_unpack(report, "{s:{s:s}}", "chosen", "address", &address);
	if (!address || strcmp(address, "10.66.0.1") || json_array_size(ports) != 3)
		return 1;
	for (i = 0; i < 3; i++)
		if (json_array_size(json_object_get(json_array_get(ports, i), "gids")) != gids[i])
			return 1;
	json_array_foreach(json_object_get(report, "findings"), i, finding) {
		level = json_string_value(json_object_get(finding, "level"));
		if (!level || !strstr(" ok note unknown warn fail ", level))
			return 1;
	}
	return i == 0;
}
END
claim json_builds 0 -- "${CC:-gcc}" "$work/json.c" -ljansson -o "$work/parse"
claim json_is_valid 0 -- "$work/parse" "$work/json"
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
