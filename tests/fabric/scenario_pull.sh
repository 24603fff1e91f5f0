# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh disable=SC2016,SC2154
# F9: pulls over RDMA between guests, every byte compared, and what goes wrong
# between them. Guest 1 is the producer, the others are consumers. Code in
# single quotes is for a guest; $job is fabric.sh's.

FABRIC_SCENARIOS="${FABRIC_SCENARIOS:-}
	2:1:smoke:pull_verified 2:1:full:pull_siblings 2:1:smoke:pull_loss
	2:1:full:pull_reorder 2:1:full:pull_pause 2:1:full:pull_link
	2:1:full:pull_cut 2:1:full:pull_hole
	2:1:full:pull_consumer_killed 2:1:full:pull_consumer_lost
	2:1:smoke:pull_producer_killed 2:1:smoke:pull_overwritten
	2:1:smoke:pull_unchecked
	2:1:full:pull_mtu 2:1:full:pull_address 2:1:full:pull_memlock
	2:1:full:pull_doctor 4:1:full:pull_four 4:1:full:pull_chaos"

# 1 MiB a request: 16 blocks of 16 KiB in each of 4 layers. An acknowledgement
# may take 268 ms: guests share the processors of a busy host.
pull_tool='export KVPULL_ROUTE=verbs KVPULL_VERBS_ACK_TIMEOUT=16
	exec $FABRIC_BUILD/ib_pull --blocks 512 --count 16'

pull_says() { # what went wrong
	echo "fabric: $*"
	return 1
}

# Start a producer; its job is in $pull_producer.
pull_serve() { # further words
	fabric_start 1 "$pull_tool --port 18515 --dir /tmp/p $1" || return
	pull_producer=$job
	fabric_run 1 60 'listens 18515 60' || pull_says "no producer: $?"
}

pull_start() { # guest, requests, further words
	fabric_start "$1" "$pull_tool --verify --json --requests $2 $3 \$(address 1)" ||
		return
	pull_consumer=$job
}

# A number of the consumer's report.
pull_number() { # key
	awk -v key="\"$1\":" '$1 == key { sub(",", "", $2); print $2 }' \
		"$(fabric_output "$pull_consumer")"
}

# Checks the end of every run, whatever happened on the way. The exit status
# says that no byte was wrong and nothing is left.
pull_ends() { # seconds, least that was pulled, most that failed
	if ! fabric_wait "$pull_consumer" "$1"; then
		grep -E '"(pulls|failed|bytes_wrong|tables_left|double_reports)"' \
			"$(fabric_output "$pull_consumer")"
		pull_says "the consumer was wrong, or not done in $1 s"
		return
	fi
	pull_loaded=$(pull_number pulls)
	pull_failed=$(pull_number failed)
	echo "fabric: $pull_loaded pulled, $pull_failed failed, $(pull_number expired) of them expired; $(pull_number bytes_wrong) bytes wrong of $(pull_number bytes_checked); p50 $(pull_number latency_us_p50 | cut -d. -f1) us"
	[ "$(pull_number bytes_wrong)" -eq 0 ] ||
		pull_says "wrong bytes were accepted" || return
	if [ "$pull_loaded" -lt "$2" ] || [ "$pull_failed" -gt "$3" ]; then
		pull_says "at least $2 pulled and at most $3 failed was expected"
	fi
}

# How long until the producer has no hold and all its blocks.
pull_settles() { # milliseconds at the most, guest of the producer
	pull_began_ms=$(fabric_now_ms)
	fabric_run "${2:-1}" $(($1 / 1000 + 60)) "n=0
		until \$FABRIC_BUILD/ib_pull --stats --dir /tmp/p |
			grep -q '\"holds_live\": 0,.*\"blocks_free\": 512,'; do
			n=\$((n + 1)); [ \$n -lt 1200 ] || exit 1; sleep 0.05
		done; \$FABRIC_BUILD/ib_pull --stats --dir /tmp/p" ||
		pull_says "holds or blocks are left at the producer" || return
	pull_took_ms=$(($(fabric_now_ms) - pull_began_ms))
	echo "fabric: all holds ended and all blocks free after $pull_took_ms ms"
	[ "$pull_took_ms" -le "$1" ] ||
		pull_says "that was to take $1 ms at the most"
}

pull_stop() {
	fabric_signal "$pull_producer" TERM
	fabric_wait "$pull_producer" 20 || pull_says "the producer ended with $?"
}

scenario_pull_verified() {
	pull_serve && pull_start 2 60 && pull_ends 90 60 0 &&
		pull_settles 10000 && pull_stop
}

# Siblings, rejects before admission, aborts, several in flight.
scenario_pull_siblings() {
	pull_serve && pull_start 2 100 \
		'--siblings 4 --depth 6 --rejects 20 --aborts 10 --thread' &&
		pull_ends 90 20 0 && pull_settles 10000 && pull_stop
}

scenario_pull_loss() {
	pull_serve && fabric_switch loss all 0.2 >/dev/null &&
		pull_start 2 50 && pull_ends 120 45 5 && pull_settles 10000 &&
		pull_stop
}

scenario_pull_reorder() {
	pull_serve && fabric_switch reorder all 0.5 >/dev/null &&
		pull_start 2 100 && pull_ends 120 95 5 && pull_settles 10000 &&
		pull_stop
}

# Wait until pulls are on their way: so many frames more through the switch,
# and some just now.
pull_flows() { # frames
	pull_frames=$(($(pull_frames_now) + $1))
	if ! fabric_until 60 pull_flowed "$pull_frames" ||
		! fabric_until 60 pull_flows_now; then
		pull_says "nothing flows"
	fi
}

pull_flows_now() {
	pull_frames=$(pull_frames_now)
	sleep 0.02
	pull_flowed $((pull_frames + 20))
}

pull_frames_now() {
	fabric_switch stats | awk '$1 == "1.0/tx" { print $3 }'
}

pull_flowed() { # frames
	[ "$(pull_frames_now)" -ge "$1" ]
}

# The producer's machine stands still for 3 s, with pulls on their way.
scenario_pull_pause() {
	pull_serve && pull_start 2 300 '--thread --retry 20' &&
		pull_flows 2000 || return
	fabric_pause 1
	sleep 3
	fabric_continue 1
	pull_ends 120 250 50 && pull_settles 40000 && pull_stop
}

scenario_pull_link() {
	pull_serve && pull_start 2 300 '--thread --retry 20' &&
		pull_flows 2000 || return
	fabric_switch link 2.0 off >/dev/null || return
	sleep 2
	fabric_switch link 2.0 on >/dev/null || return
	pull_ends 120 250 50 && pull_settles 40000 && pull_stop
}

# A switch between drops what is longer than 1,500 bytes: connections come up and
# no READ is answered. The log names the MTU.
scenario_pull_hole() {
	fabric_switch hole all 1500 >/dev/null && pull_serve &&
		pull_start 2 100000 '--thread --duration 20 --verbose' || return
	sleep 20
	fabric_switch hole all 0 >/dev/null || return
	fabric_wait "$pull_consumer" 60
	pull_calls=$(grep -c 'qp 0x[0-9a-f]* lost: ' "$(fabric_output "$pull_consumer")")
	echo "fabric: $pull_calls connections were lost in 20 s"
	grep -m 1 'MTU 4096, do not' "$(fabric_output "$pull_consumer")" ||
		pull_says "no line has the MTU" || return
	pull_start 2 20 && pull_ends 60 20 0 && pull_settles 40000 && pull_stop
}

# Clients leave while the link is off: their pulls do not end by themselves, and
# the queue pair is cut. The other pulls of the one rail begin again.
scenario_pull_cut() {
	pull_serve && pull_start 2 100000 \
		'--depth 6 --aborts 40 --thread --duration 40 --verbose' ||
		return
	pull_flaps=0
	until [ "$(pull_cuts)" -ge 2 ]; do
		pull_flaps=$((pull_flaps + 1))
		[ $pull_flaps -le 20 ] || pull_says "nothing is cut" || return
		pull_flows 1000 || return
		fabric_switch link 2.0 off >/dev/null || return
		sleep 0.6
		fabric_switch link 2.0 on >/dev/null || return
	done
	echo "fabric: the queue pair was cut in $pull_flaps flaps of the link"
	pull_ends 240 500 0 && pull_settles 40000 && pull_stop
}

pull_cuts() {
	sed -n '/lost: cut to end a cancelled read/p' \
		"$(fabric_output "$pull_consumer")" 2>/dev/null | wc -l
}

# kill -9 of the process: its machine says so. Within a lease, as the grace.
scenario_pull_consumer_killed() {
	pull_serve '--lease 3000' &&
		pull_start 2 100000 '--depth 8 --lease 3000' &&
		pull_flows 2000 || return
	fabric_signal "$pull_consumer" KILL
	pull_settles 8000 && pull_start 2 20 && pull_ends 90 20 0 &&
		pull_settles 10000 && pull_stop
}

# The machine of the consumer dies: nobody says anything.
scenario_pull_consumer_lost() {
	pull_serve '--lease 3000' &&
		pull_start 2 100000 '--depth 8 --lease 3000' &&
		pull_flows 2000 || return
	fabric_kill 2
	pull_settles 8000 && pull_stop
}

# kill -9 of the producer in mid-pull: what was on its way fails, in time, and
# pulls from the one that comes after it work.
scenario_pull_producer_killed() {
	pull_serve '--lease 3000' && pull_start 2 120 \
		'--thread --depth 4 --retry 60 --lease 3000' &&
		pull_flows 2000 || return
	fabric_signal "$pull_producer" KILL
	fabric_wait "$pull_producer" 10
	[ $? -eq 137 ] || pull_says "the producer is not dead" || return
	pull_serve '--lease 3000' && pull_ends 120 80 40 || return
	# The peer may have died between two pulls: busy hosts stall anywhere.
	[ "$pull_failed" -gt 0 ] || echo "fabric: no pull was on its way then"
	pull_settles 10000 && pull_stop
}

# Holds end at about the time that a pull takes, whatever the consumer does,
# and the producer overwrites the blocks at once. Pulls of 256 KiB: many tries.
pull_hurried='--size 8192 --layers 2 --depth 6'

pull_hurry() { # code that comes first at the consumer, tries
	fabric_start 1 "export KVPULL_HOLD_MAX_MS=$pull_ms; $pull_tool --port 18515 --dir /tmp/p $pull_hurried --lease $pull_ms" ||
		return
	pull_producer=$job
	fabric_run 1 60 'listens 18515 60' || return
	# The pull's own deadline is not what is tested.
	fabric_start 2 "export KVPULL_DEADLINE_MS=20000; $1 $pull_tool --verify --json --requests $2 $pull_hurried --lease $pull_ms \$(address 1)" ||
		return
	pull_consumer=$job
}

# How long holds live, so that some pulls come too late and some do not.
pull_hurry_measure() {
	pull_serve "$pull_hurried" && pull_start 2 100 "$pull_hurried" &&
		pull_ends 90 100 0 && pull_stop || return
	pull_ms=$(($(pull_number latency_us_p50 | cut -d. -f1) / 1000 + 10))
}

# A lease has 10 ms at the least.
pull_sooner() {
	pull_ms=$((pull_ms - 1 - pull_ms / 8))
	[ "$pull_ms" -ge 10 ] || pull_ms=10
}

pull_hurry_is_done() {
	[ "$pull_all" -ge "$pull_tries" ] &&
		[ $((pull_late * 100)) -ge "$pull_all" ] &&
		[ $(((pull_all - pull_late) * 100)) -ge "$pull_all" ]
}

scenario_pull_overwritten() {
	pull_tries=${PULL_TRIES:-10000}
	pull_step=1000
	if [ -n "${smoke:-}" ]; then
		pull_tries=500
		pull_step=250
	fi
	pull_hurry_measure || return
	pull_round=0
	pull_all=0
	pull_late=0
	# In rounds: what is a close call changes with what else a host does.
	until pull_hurry_is_done; do
		pull_round=$((pull_round + 1))
		[ $pull_round -le $((pull_tries / pull_step + 20)) ] ||
			pull_says "too few pulls came too late, or in time" ||
			return
		pull_hurry '' $pull_step || return
		pull_ends 300 0 "$pull_step" || return
		pull_stop || return
		pull_all=$((pull_all + pull_loaded + pull_failed))
		pull_expired=$(pull_number expired)
		pull_late=$((pull_late + pull_expired))
		# A quarter to three quarters too late is what is looked for.
		if [ $((pull_expired * 4)) -lt "$pull_step" ]; then
			pull_sooner
		elif [ $((pull_expired * 4)) -gt $((pull_step * 3)) ]; then
			pull_ms=$((pull_ms + 1 + pull_ms / 8))
		fi
	done
	echo "fabric: $pull_all tries, $pull_late too late, 0 bytes wrong"
}

# In $pull_library: it believes every read.
pull_unchecked_build() {
	pull_library=$("$FABRIC_TREE/tests/scenario/mutant.sh" "$FABRIC_BUILD" \
		nocheck plugin/reads/judge.c 's/return KVPULL_EEXPIRED/return 0/') ||
		pull_says "no library without the check"
}

# The same with a library that believes every read: wrong bytes must be
# accepted, or the scenario above shows nothing.
scenario_pull_unchecked() {
	pull_unchecked_build || return
	pull_hurry_measure || return
	pull_round=0
	while [ $pull_round -lt 20 ]; do
		pull_round=$((pull_round + 1))
		pull_hurry "export KVPULL_TEST_LIBRARY=$pull_library;" 300 ||
			return
		fabric_wait "$pull_consumer" 300
		pull_code=$?
		pull_wrong=$(pull_number bytes_wrong)
		echo "fabric: without the check: ${pull_wrong:-no} bytes wrong of $(pull_number bytes_checked), exit status $pull_code"
		pull_stop || return
		[ "${pull_wrong:-0}" -eq 0 ] || break
		# Nothing came too late.
		pull_sooner
	done
	if [ "${pull_wrong:-0}" -eq 0 ] || [ "$pull_code" -ne 1 ]; then
		pull_says "no wrong byte was accepted: the check is not tested"
	fi
}

# The consumer's address is taken away for 2 s of 20 and given back: the same
# process pulls on, some ten a second. The device itself cannot be taken: the
# kernel waits for who has rxe open, and tells them nothing.
scenario_pull_address() {
	pull_serve && pull_start 2 100000 '--duration 20 --retry 30' || return
	fabric_run 2 20 'sleep 2; ip -4 addr flush dev rail0; sleep 2
		ip addr add $(address 2)/24 dev rail0' ||
		pull_says "guest 2: $?" || return
	pull_ends 90 80 1000000 && pull_settles 70000 && pull_stop
}

# kvpull_doctor looks at another machine.
scenario_pull_doctor() {
	fabric_start 1 'export KVPULL_ROUTE=verbs KVPULL_VERBS_ACK_TIMEOUT=16
		exec $FABRIC_BUILD/ib_pull --port 18515 --dir /tmp/p --thread' ||
		return
	pull_producer=$job
	fabric_run 1 60 'listens 18515 60' || return
	fabric_run 2 120 'export KVPULL_VERBS_ACK_TIMEOUT=16
		$FABRIC_BUILD/kvpull_doctor --no-probe --memory 256M --route verbs \
			--peer $(address 1) >/tmp/page; code=$?
		grep -A1 -E "FAIL|peer" /tmp/page; exit $code' ||
		pull_says "the doctor found a failure" || return
	cat "$(fabric_output "$job")"
	grep -q "every byte right.* connected in [1-9]" "$(fabric_output "$job")" ||
		return
	pull_stop || return
	fabric_run 2 60 '$FABRIC_BUILD/kvpull_doctor --no-probe \
		--peer $(address 1)'
	[ $? -eq 1 ] || pull_says "a peer that is gone was no failure" || return
	grep "no pull from" "$(fabric_output "$job")"
}

# A producer and three consumers, each on a machine of its own.
scenario_pull_four() {
	pull_serve || return
	pull_jobs=
	for pull_guest in 2 3 4; do
		pull_start $pull_guest 50 '--siblings 2 --depth 4' || return
		pull_jobs="$pull_jobs $pull_consumer"
	done
	for pull_consumer in $pull_jobs; do
		pull_ends 120 25 0 || return
	done
	pull_settles 10000 && pull_stop
}

# Two producers, and on two machines a consumer of each: processes are killed
# and stopped for longer than a lease, a machine stands still, another one dies,
# links are cut and lose frames, one after the other. Pulls of 256 KiB: many.
pull_chaos_words='--size 8192 --layers 2 --lease 3000'

pull_chaos_serve() { # guest
	fabric_start "$1" "$pull_tool --port 18515 --dir /tmp/p $pull_chaos_words" ||
		return
	eval "pull_producer_$1=$job"
	fabric_run "$1" 60 'listens 18515 60' || pull_says "no producer: $?"
}

pull_chaos_pull() { # guest, of producer
	fabric_start "$1" "$pull_tool --verify --json --thread --requests 1000000 --duration 60 --retry 60 --depth 4 --siblings 2 --rejects 5 --aborts 5 $pull_chaos_words \$(address $2)" ||
		return
	eval "pull_consumer_$1_$2=$job"
}

# Something happens, lasts, and is over.
pull_chaos_turn() { # seconds, command, command
	echo "fabric: $2"
	$2 >/dev/null || return
	sleep "$1"
	$3 >/dev/null || return
	sleep 2
}

pull_chaos_turns() {
	pull_chaos_turn 4 "fabric_signal $pull_consumer_4_2 STOP" \
		"fabric_signal $pull_consumer_4_2 CONT" &&
		pull_chaos_turn 2 "fabric_switch link 3.0 off" \
			"fabric_switch link 3.0 on" &&
		pull_chaos_turn 4 "fabric_signal $pull_producer_2 STOP" \
			"fabric_signal $pull_producer_2 CONT" &&
		pull_chaos_turn 1 "fabric_signal $pull_consumer_3_1 KILL" \
			"pull_chaos_pull 3 1" &&
		pull_chaos_turn 3 "fabric_switch loss all 0.2" \
			"fabric_switch loss all 0" &&
		pull_chaos_turn 1 "fabric_signal $pull_producer_1 KILL" \
			"pull_chaos_serve 1" &&
		pull_chaos_turn 3 "fabric_pause 2" "fabric_continue 2" &&
		pull_chaos_turn 1 "fabric_kill 4" "fabric_boot 4" &&
		pull_chaos_pull 4 1 && pull_chaos_pull 4 2
}

scenario_pull_chaos() {
	for pull_guest in 1 2; do
		pull_chaos_serve $pull_guest || return
	done
	for pull_guest in 3 4; do
		pull_chaos_pull $pull_guest 1 && pull_chaos_pull $pull_guest 2 ||
			return
	done
	pull_chaos_turns || pull_says "a turn failed" || return
	pull_all=0
	for pull_consumer in $pull_consumer_3_1 $pull_consumer_3_2 \
		$pull_consumer_4_1 $pull_consumer_4_2; do
		pull_ends 180 1 1000000 || return
		pull_all=$((pull_all + pull_loaded))
	done
	echo "fabric: $pull_all pulled by who was not killed, 0 bytes wrong"
	# An emulated processor is several times as slow.
	pull_least=2000
	[ "$FABRIC_KIND" != uml ] || pull_least=5000
	[ "$pull_all" -ge $pull_least ] ||
		pull_says "fewer than $pull_least" || return
	for pull_guest in 2 1; do
		pull_settles 15000 $pull_guest || return
		eval "pull_producer=\$pull_producer_$pull_guest"
		pull_stop || return
	done
}

# The port of one guest carries 1024 bytes a packet, that of the other 4096,
# and the other way round.
scenario_pull_mtu() {
	for pull_small in 1 2; do
		fabric_run $pull_small 20 'ip link set rail0 mtu 1500; sleep 1
			rdma link show' &&
			pull_serve && pull_start 2 20 && pull_ends 60 20 0 &&
			pull_settles 10000 && pull_stop || return
		fabric_run $pull_small 20 'ip link set rail0 mtu 4200; sleep 1' ||
			return
	done
}

# A user who may lock less than the KV memory: said, with what to do; nothing
# hangs, and where the route may be another one the program goes on without.
scenario_pull_memlock() {
	pull_as_nobody='chmod 666 /dev/infiniband/*; ulimit -l 1024
		export KVPULL_SOCKET_DIR=/tmp/nobody
		exec setpriv --reuid 65534 --regid 65534 --clear-groups --inh-caps -all \
			--bounding-set -all timeout 60 $FABRIC_BUILD/ib_pull --blocks 512 --count 16'
	pull_serve || return
	for pull_route in verbs auto; do
		fabric_run 2 90 "export KVPULL_ROUTE=$pull_route; $pull_as_nobody --dir /tmp/n --requests 3 \$(address 1)"
		pull_code=$?
		sed 's/^/fabric: /' "$(fabric_output "$job")" | tail -n 6
		[ $pull_code -ne 0 ] && [ $pull_code -ne 124 ] ||
			pull_says "ended with $pull_code" || return
		grep -q 'memlock must hold' "$(fabric_output "$job")" ||
			pull_says "no word of memlock" || return
	done
	pull_stop
}
