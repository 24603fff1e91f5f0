# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh disable=SC2154
# The scenarios of one node, the same program unchanged, over RDMA: producers
# and consumers in one guest, their ways through its rxe device. $job is
# fabric.sh's. Uses scenario_pull.sh.
#
# Where two machines are promised something else the cases say so: the dead have
# a lease of grace (F6b to F6d), a hold that ends around a pull has 200 ms for 10
# (F7). Not here: F7e, in which two threads copy, which nobody does over RDMA.

FABRIC_SCENARIOS="${FABRIC_SCENARIOS:-}
	1:1:full:engine_f1 1:1:full:engine_f2 1:1:full:engine_f3
	1:1:full:engine_f4 1:1:full:engine_f5 1:1:full:engine_f6
	1:1:full:engine_f7 1:1:full:engine_f8 1:1:full:engine_device_memory"

# A stalled host must cut no queue pair: what that costs others is no failure,
# but these count every one.
engine_run() { # cases
	fabric_run 1 900 "cd /tmp; export KVPULL_VERBS_ACK_TIMEOUT=16 KVPULL_FLUSH_AFTER_MS=5000
		export KVPULL_TEST_MUTANT=${KVPULL_TEST_MUTANT:-}
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
	engine_run F4
}

scenario_engine_f5() {
	engine_run F5
}

scenario_engine_f6() {
	engine_run F6
}

# No wrong byte is believed, however P overwrites; without the check some are.
scenario_engine_f7() {
	engine_run F7a,F7b,F7c && pull_unchecked_build &&
		KVPULL_TEST_MUTANT=$pull_library engine_run F7d
}

scenario_engine_f8() {
	engine_run F8
}

# soft-RoCE registers no dmabuf: that is said, with what to do.
scenario_engine_device_memory() {
	engine_run X2i
}
