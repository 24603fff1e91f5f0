# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh disable=SC2154
# The scenarios of one node, the same program unchanged, over RDMA: producers
# and consumers in one guest, their ways through its rxe device. $job is
# fabric.sh's.
#
# Not here: F4b, F6b to F6e and F7 measure what one node promises (a reject
# seen in 20 ms, a death in 100 ms, hold_max kept, a pull in microseconds beside a
# hold of 10 ms). Between machines these are pull_consumer_killed, whose grace is a
# lease, pull_overwritten and pull_unchecked.

FABRIC_SCENARIOS="${FABRIC_SCENARIOS:-}
	1:1:full:engine_f1 1:1:full:engine_f2 1:1:full:engine_f3
	1:1:full:engine_f4 1:1:full:engine_f5 1:1:full:engine_f6
	1:1:full:engine_f8 1:1:full:engine_device_memory"

# A stalled host must cut no queue pair: what that costs others is no failure,
# but these count every one.
engine_run() { # cases
	fabric_run 1 900 "cd /tmp; export KVPULL_VERBS_ACK_TIMEOUT=16 KVPULL_FLUSH_AFTER_MS=5000
		exec \$FABRIC_BUILD/kvpull_scenarios --quick --route verbs --patience 20 --only $1"
	engine_code=$?
	sed 's/^/fabric: /' "$(fabric_output "$job")"
	return $engine_code
}

scenario_engine_f1() {
	engine_run F1
}

scenario_engine_f2() {
	engine_run F2
}

scenario_engine_f3() {
	engine_run F3
}

scenario_engine_f4() {
	engine_run F4a
}

scenario_engine_f5() {
	engine_run F5
}

scenario_engine_f6() {
	engine_run F6a
}

scenario_engine_f8() {
	engine_run F8
}

# soft-RoCE registers no dmabuf: that is said, with what to do.
scenario_engine_device_memory() {
	engine_run X2i
}
