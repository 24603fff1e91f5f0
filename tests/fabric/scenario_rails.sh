# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh disable=SC2016,SC2154
# Two rails in each of two guests: pulls use both, and go on by the other while
# one is cut, late, or being rebuilt. Every byte is compared, in blocks that
# the next pulls take again at once: what a rail wrote late would show.
# Control goes over rail 1 where rail 0 is cut. Uses scenario_pull.sh.

FABRIC_SCENARIOS="${FABRIC_SCENARIOS:-}
	2:2:full:rails_both 2:2:full:rails_cut 2:2:full:rails_cut_first
	2:2:full:rails_late 2:2:full:rails_restarted
	2:2:smoke:rails_named 2:2:full:rails_new 2:2:full:rails_down
	2:2:full:rails_slow 2:2:full:rails_qps"

# 4 MiB a request; blocks come back last in, first out.
rails_tool='export KVPULL_ROUTE=verbs KVPULL_VERBS_DEVICE=rxe0,rxe1
	export KVPULL_VERBS_ACK_TIMEOUT=15
	exec $FABRIC_BUILD/ib_pull --blocks 512 --count 64 --verbose'

rails_serve() { # further words
	fabric_start 1 "$rails_tool --port 18515 --dir /tmp/p $1" || return
	pull_producer=$job
	fabric_run 1 60 'listens 18515 60' || pull_says "no producer: $?"
}

rails_start() { # requests, rail of the control, further words
	fabric_start 2 "$rails_tool --verify --json --thread --depth 3 --requests $1 $3 \$(address 1 $2)" ||
		return
	pull_consumer=$job
}

rails_frames() { # rail: what the producer has sent on it
	fabric_switch stats | awk -v port="1.$1/tx" '$1 == port { print $3 }'
}

rails_up_count() { # how often the consumer had rail 1 up, or rail 0 again
	sed -n '/rail [01] is up/p' "$(fabric_output "$pull_consumer")" \
		2>/dev/null | wc -l
}

rails_is_up() { # times
	[ "$(rails_up_count)" -ge "$1" ]
}

rails_is_lost() {
	grep -q 'qp 0x[0-9a-f]* lost: ' "$(fabric_output "$pull_consumer")"
}

# Work requests that went by another queue pair than at first.
rails_moved() {
	sed -n 's/.* \([0-9]*\) work requests moved to another queue pair.*/\1/p' \
		"$(fabric_output "$pull_consumer")"
}

# Data comes by that rail just now.
rails_flows() { # rail, frames
	rails_until=$(($(rails_frames "$1") + $2))
	fabric_until 60 rails_flowed "$1" "$rails_until" ||
		pull_says "nothing flows on rail $1"
}

rails_flowed() { # rail, frames
	[ "$(rails_frames "$1")" -ge "$2" ]
}

scenario_rails_both() {
	rails_serve && rails_start 100 0 && pull_ends 120 95 5 || return
	for rails_rail in 0 1; do
		rails_sent=$(rails_frames $rails_rail)
		echo "fabric: $rails_sent frames from the producer on rail $rails_rail"
		# A tenth of the data at the least.
		[ "$rails_sent" -gt 10000 ] ||
			pull_says "rail $rails_rail was not used" || return
	done
	pull_settles 10000 && pull_stop
}

# Cut in mid-pull, and back after a while: nothing fails, what was on its way
# goes by the other rail, and the rail that was cut is used again.
rails_cut() { # rail, rail of the control, times that a queue pair joined; 2
	rails_serve && rails_start 100000 "$2" '--duration 25' || return
	fabric_until 60 rails_is_up 1 || pull_says "no second rail" || return
	rails_flows "$1" 2000 || return
	fabric_switch link "2.$1" off >/dev/null || return
	# Shorter than its retries, and nobody would have seen it.
	fabric_until 60 rails_is_lost || pull_says "no rail was lost" || return
	rails_flows "$2" 4000 || return
	fabric_switch link "2.$1" on >/dev/null || return
	fabric_until 60 rails_is_up "${3:-2}" ||
		pull_says "no rail came back" || return
	rails_flows "$1" 2000 || return
	pull_ends 120 10 0 || return
	echo "fabric: $(rails_moved) work requests moved to another queue pair"
	[ "$(rails_moved)" -gt 0 ] || pull_says "nothing was moved" || return
	pull_settles 10000 && pull_stop
}

scenario_rails_cut() {
	rails_cut 1 0
}

# The one that claims and releases go by.
scenario_rails_cut_first() {
	rails_cut 0 1
}

# Two queue pairs by each rail: both of the rail that was cut are built again.
scenario_rails_qps() {
	rails_tool_one=$rails_tool
	rails_tool="export KVPULL_VERBS_QPS=2
		$rails_tool"
	rails_cut 1 0 5
	rails_code=$?
	rails_tool=$rails_tool_one
	[ $rails_code -eq 0 ] || return
	for rails_words in 'queue pair 1 of rail 0' 'rail 1' \
		'queue pair 1 of rail 1'; do
		rails_count=$(grep -c ": $rails_words is up" \
			"$(fabric_output "$pull_consumer")")
		echo "fabric: $rails_words was up $rails_count times"
		[ "$rails_count" -gt 0 ] ||
			pull_says "$rails_words was never up" || return
	done
}

# Rail 1 is as late as retries wait, so it is given up while its READs' answers
# are on their way: they arrive when its pulls have been done by rail 0 and
# their blocks belong to others.
scenario_rails_late() {
	rails_serve && rails_start 100000 0 '--duration 25' || return
	fabric_until 60 rails_is_up 1 || pull_says "no second rail" || return
	for rails_ms in 400 900 2500; do
		rails_flows 1 500 || return
		fabric_switch delay 1.1/tx $rails_ms >/dev/null || return
		sleep 4
		fabric_switch clear 1.1/tx >/dev/null || return
	done
	pull_ends 120 10 0 || return
	echo "fabric: $(rails_moved) work requests moved to another queue pair, rails up $(rails_up_count) times"
	pull_settles 10000 && pull_stop
}

# Rail 1 is cut when the producer dies, and comes back to the one after it.
scenario_rails_restarted() {
	rails_serve '--lease 3000' &&
		rails_start 100000 0 '--duration 30 --retry 60 --lease 3000' ||
		return
	fabric_until 60 rails_is_up 1 || pull_says "no second rail" || return
	rails_flows 1 1000 || return
	fabric_switch link 2.1 off >/dev/null || return
	fabric_signal "$pull_producer" KILL
	fabric_wait "$pull_producer" 10
	[ $? -eq 137 ] || pull_says "the producer is not dead" || return
	rails_serve '--lease 3000' || return
	rails_flows 0 2000 || return
	fabric_switch link 2.1 on >/dev/null || return
	rails_flows 1 2000 || return
	pull_ends 120 10 40 && pull_settles 10000 && pull_stop
}

# Pulls by the address of a rail. "": with its line; else what is refused.
rails_pulls() { # environment of the consumer
	fabric_run 2 60 "export KVPULL_ROUTE=verbs $1
		exec \$FABRIC_BUILD/ib_pull --blocks 512 --count 64 --verbose --verify --requests 5 \$(address 1 1)"
}

# An own address opens the device that has it: rdma_bind_addr() gives an id its
# device and port at once. A name that contradicts the address is refused.
scenario_rails_named() {
	rails_serve || return
	for rails_rail in 0 1; do
		rails_pulls "KVPULL_VERBS_ADDRESS=\$(address 2 $rails_rail)" ||
			pull_says "no pull by rail $rails_rail" || return
		grep "rail 0 of 1: rxe$rails_rail port 1 .*: the only port" \
			"$(fabric_output "$job")" || return
	done
	if rails_pulls 'KVPULL_VERBS_DEVICE=rxe0 KVPULL_VERBS_ADDRESS=$(address 2 1)'; then
		pull_says "an address of another device was taken"
		return
	fi
	grep 'is refused: the address is on rxe1 port 1' \
		"$(fabric_output "$job")" && pull_stop
}

# The consumer's device of rail 1 comes after the connection of rail 0.
scenario_rails_new() {
	fabric_run 2 20 'rdma link delete rxe1' && rails_serve &&
		rails_start 100000 0 '--duration 20' && rails_flows 0 2000 ||
		return
	rails_came_ms=$(fabric_now_ms)
	fabric_run 2 20 'rdma link add rxe1 type rxe netdev rail1' || return
	fabric_until 20 rails_is_up 1 || pull_says "rail 1 is not used" || return
	rails_lasted_ms=$(($(fabric_now_ms) - rails_came_ms))
	echo "fabric: rail 1 was used $rails_lasted_ms ms after its device came"
	grep -h 'rail 1 goes by' "$(fabric_output "$pull_consumer")" || return
	rails_flows 1 2000 && pull_ends 120 10 0 && pull_settles 10000 &&
		pull_stop || return
	[ "$rails_lasted_ms" -le 4000 ] ||
		pull_says "that was to take 2 s, and as long on a busy host"
}

# Under route auto both sides open while their port has no link: pulls fail, and
# go on soon after the link is up. Control goes over rail 1.
scenario_rails_down() {
	rails_auto='export KVPULL_ROUTE=auto KVPULL_VERBS_DEVICE=rxe0
		exec $FABRIC_BUILD/ib_pull --blocks 512 --count 64 --verbose'
	for rails_guest in 1 2; do
		fabric_run $rails_guest 20 'ip link set rail0 down' || return
	done
	fabric_start 1 "$rails_auto --port 18515 --dir /tmp/p" || return
	pull_producer=$job
	fabric_run 1 60 'listens 18515 60' || pull_says "no producer: $?" ||
		return
	fabric_start 2 "$rails_auto --verify --json --thread --requests 1000000 --duration 20 \$(address 1 1)" ||
		return
	pull_consumer=$job
	sleep 4
	for rails_guest in 1 2; do
		fabric_run $rails_guest 20 'ip link set rail0 up' || return
	done
	rails_came_ms=$(fabric_now_ms)
	rails_flows 0 2000 || return
	echo "fabric: pulls went on within $(($(fabric_now_ms) - rails_came_ms)) ms of the link"
	pull_ends 120 10 1000000 && pull_settles 70000 && pull_stop
}

# Median of pulls of 1 MiB, one after the other, in microseconds: $rails_p50.
rails_median() { # devices of the consumer
	fabric_run 2 120 "export KVPULL_ROUTE=verbs KVPULL_VERBS_DEVICE=$1
		exec \$FABRIC_BUILD/ib_pull $rails_small --thread --verify --json --verbose --depth 1 --requests 60 \$(address 1 0)" ||
		return
	rails_p50=$(awk '$1 == "\"latency_us_p50\":" { printf "%d\n", $2 }' \
		"$(fabric_output "$job")")
}

# Pulls by rail 0 alone and, by turns, by both rails while rail 1 has the fault:
# the median of each three, and $rails_ratio of them, in percent.
rails_beside() { # fault, its number; none: two good rails
	rails_of_one=
	rails_of_two=
	for _ in 1 2 3; do
		rails_median rxe0 || return
		rails_of_one="$rails_of_one $rails_p50"
		[ $# -eq 0 ] || fabric_switch "$1" 1.1/tx "$2" >/dev/null ||
			return
		rails_median rxe0,rxe1 || return
		rails_of_two="$rails_of_two $rails_p50"
		[ $# -eq 0 ] || fabric_switch clear 1.1/tx >/dev/null || return
	done
	rails_of_one=$(rails_middle "$rails_of_one")
	rails_of_two=$(rails_middle "$rails_of_two")
	rails_ratio=$((rails_of_two * 100 / rails_of_one))
	echo "fabric: rails: one $rails_of_one us, two $rails_of_two us ($rails_ratio %) with ${*:-no fault}"
}

rails_middle() { # three numbers
	echo "$1" | tr ' ' '\n' | sed '/^$/d' | sort -n | sed -n 2p
}

rails_serve_small() {
	rails_small='--blocks 64 --count 16 --size 65536 --layers 1'
	fabric_start 1 "export KVPULL_ROUTE=verbs KVPULL_VERBS_DEVICE=rxe0,rxe1
		exec \$FABRIC_BUILD/ib_pull $rails_small --thread --port 18515 --dir /tmp/p" ||
		return
	pull_producer=$job
	fabric_run 1 60 'listens 18515 60' || pull_says "no producer: $?"
}

# With rail 1 late or lossy a pull takes no longer than by rail 0 alone. 15 % are
# for the pulls that try the slow rail again; 10 more for a host that is busy.
scenario_rails_slow() {
	rails_worse=
	rails_serve_small && rails_beside || return
	for rails_fault in 'delay 30' 'delay 150' 'loss 10'; do
		rails_beside "${rails_fault% *}" "${rails_fault#* }" || return
		[ "$rails_ratio" -le 125 ] ||
			rails_worse="$rails_worse, $rails_fault"
	done
	pull_stop || return
	[ -z "$rails_worse" ] ||
		pull_says "slower than one rail alone$rails_worse"
}
