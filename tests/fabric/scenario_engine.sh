# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh disable=SC2016,SC2154
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
	1:1:full:engine_f7 1:1:full:engine_f8 1:1:full:engine_l1 1:1:smoke:engine_flush
	1:1:smoke:engine_f14 1:1:smoke:engine_pool"

# A stalled host must cut no queue pair: what that costs others is no failure,
# but these count every one.
engine_run() { # cases
	fabric_run 1 900 "cd /tmp; export KVPULL_VERBS_ACK_TIMEOUT=16 KVPULL_FLUSH_AFTER_MS=5000
		export KVPULL_TEST_MUTANT=${KVPULL_TEST_MUTANT:-} TEST_PATIENCE=20
		exec \$FABRIC_BUILD/kvpull_scenarios --quick --route verbs --only $1"
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

scenario_engine_l1() {
	engine_run L1
}

# The queue pair to itself that flushes a GPU's memory, over a device: with memory
# of the host, by a library that flushes each second pull of a pair as if that were
# a GPU's. The same case on this machine builds it, over a fake device.
scenario_engine_flush() {
	"$FABRIC_BUILD/kvpull_scenarios" --quick --only F9j >"$FABRIC_OUT/flush" ||
		pull_says "no library that flushes: $(cat "$FABRIC_OUT/flush")" ||
		return
	engine_library=$FABRIC_BUILD/mutants/flushed/obj/libkvpull.so.1
	KVPULL_TEST_MUTANT=$engine_library engine_run F9j
}

# Pools: the same, with guards in place of the revocation entry.
scenario_engine_f14() {
	engine_run F14a,F14c,F14d,F14e || return
	engine_library=$("$FABRIC_TREE/tests/scenario/mutant.sh" \
		"$FABRIC_BUILD" slowguard plugin/reads/reads.c \
		's/request->state = request->phases\[request->phase++\];/&if (request->state == KVPULL_READS_GUARDS) {extern int usleep(unsigned); (void)usleep(2000);}/') ||
		pull_says "no library that sleeps" || return
	KVPULL_TEST_MUTANT=$engine_library engine_run F14k || return
	engine_library=$("$FABRIC_TREE/tests/scenario/mutant.sh" \
		"$FABRIC_BUILD" noguard plugin/reads/judge.c 's/KVPULL_ESTALE/0/') ||
		pull_says "no library without the guards" || return
	KVPULL_TEST_MUTANT=$engine_library engine_run F14b
}

# Two owners that evict, three readers, every byte that is believed compared.
scenario_engine_pool() {
	fabric_run 1 300 'cd /tmp; export KVPULL_ROUTE=verbs
		exec $FABRIC_BUILD/ib_pull --pool --verify --json --owners 2 --consumers 3 --blocks 256 --keys 1024 --count 64 --requests 50 --rate 50'
	engine_code=$?
	sed 's/^/fabric: /' "$(fabric_output "$job")"
	return $engine_code
}
