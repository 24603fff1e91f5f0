# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh disable=SC2016,SC2154
# The fabric itself: that guests are reached, that verbs work between them, and
# that each fault does what it says. No code of kvpull's runs here, so what
# fails here is the fabric's. Code in single quotes is for a guest; $job is
# fabric.sh's.

FABRIC_SCENARIOS="${FABRIC_SCENARIOS:-}
	2:1:smoke:wire_ping 2:1:smoke:wire_status 2:1:smoke:wire_read_bw
	2:1:full:wire_verified
	2:1:smoke:wire_loss 2:1:full:wire_drop 2:1:full:wire_reorder
	2:1:full:wire_pause 2:1:full:wire_link 2:1:full:wire_kill
	2:2:full:wire_rails 4:1:full:wire_four"

wire_says() { # what went wrong
	echo "fabric: $*"
	return 1
}

# The sum of a counter of the switch over all ports, one way.
wire_count() { # counter, tx or rx
	fabric_switch stats | awk -v name="$1" -v way="/$2" '
		index($1, way) {
			for (i = 2; i < NF; i += 2)
				if ($i == name)
					sum += $(i + 1)
		}
		END { print sum + 0 }'
}

# ib_read_bw from guest 1 to guest 2 on a rail. -u 14: a lost frame is missed
# after 67 ms; -F: a clock that it cannot measure is no failure.
wire_try() { # rail, seconds, further words, shell code to run meanwhile
	wire_words="-F -d rxe$1 -x 1 -s 65536 -u 14 -p 1851$1 $3"
	fabric_start 1 "exec ib_read_bw $wire_words" || return
	wire_server=$job
	fabric_run 1 10 "listens 1851$1" || return
	fabric_start 2 "exec ib_read_bw $wire_words \$(address 1 $1)" || return
	wire_client=$job
	if [ -n "${4:-}" ]; then
		$4 || return
	fi
	fabric_wait "$wire_client" "$2" || wire_says "ib_read_bw: $?" || return
	awk '$1 == 65536 { print "fabric: ib_read_bw 64 KiB " $4 " MiB/s" }' \
		"$(fabric_output "$wire_client")"
	fabric_wait "$wire_server" 10
}

# Where guests wait for a processor perftest now and then ends before its first
# READ, without a word: it is asked again, where nothing else is done meanwhile.
# In guests that have had thousands of queue pairs it ends so each time: they are
# booted anew for the last two tries.
wire_read() { # as above
	for wire_left in 5 4 3 2 1 0; do
		wire_try "$@" && return
		[ $wire_left -gt 0 ] && [ -z "${4:-}" ] || return
		fabric_signal "$wire_server" KILL
		fabric_wait "$wire_server" 10
		[ $wire_left -ne 2 ] || wire_boot || return
		echo "fabric: once more"
	done
}

wire_boot() {
	for wire_guest in 1 2; do
		fabric_kill $wire_guest && fabric_boot $wire_guest || return
	done
}

scenario_wire_ping() {
	for wire_guest in 1 2; do
		# A single frame of nearly the whole MTU.
		fabric_run $wire_guest 15 "busybox ping -c 2 -s 4100 \$(address $((3 - wire_guest)))" ||
			return
	done
}

scenario_wire_status() {
	fabric_run 1 10 'exit 3'
	[ $? -eq 3 ] || wire_says "a job's exit status is lost" || return
	fabric_start 2 'exec sleep 60' && fabric_run 2 10 'sleep 0.2' || return
	fabric_signal "${job%.*}.$((${job#*.} - 1))" TERM
	fabric_wait "${job%.*}.$((${job#*.} - 1))" 10
	[ $? -eq 143 ] || wire_says "a signal did not reach its job" || return
	fabric_run 1 1 'sleep 30' >/dev/null
	[ $? -eq 124 ] || wire_says "a job's time-out was not seen" || return
	fabric_signal "$job" KILL
}

scenario_wire_read_bw() {
	wire_read 0 30 '-n 128'
}

# Reads and writes of both guests, every byte compared, by librdmacm's rping.
scenario_wire_verified() {
	fabric_start 1 'exec rping -s -a $(address 1) -C 50 -S 16384' || return
	wire_server=$job
	fabric_run 1 10 'listens_rdma 7174' || return
	fabric_run 2 30 'exec rping -c -a $(address 1) -C 50 -S 16384 -V' ||
		wire_says "rping: $?" || return
	fabric_wait "$wire_server" 10
}

scenario_wire_loss() {
	fabric_switch loss all 1 >/dev/null || return
	wire_read 0 60 '-n 128' || return
	wire_lost=$(wire_count lost tx)
	echo "fabric: lost $wire_lost frames"
	[ "$wire_lost" -gt 0 ]
}

scenario_wire_drop() {
	wire_before=$(wire_count dropped tx)
	fabric_switch drop 1.0/tx 7 >/dev/null || return
	wire_read 0 60 '-n 128' || return
	[ $(($(wire_count dropped tx) - wire_before)) -eq 7 ] ||
		wire_says "not 7 frames were dropped"
}

scenario_wire_reorder() {
	fabric_switch reorder all 0.5 >/dev/null || return
	wire_read 0 60 '-n 128' || return
	[ "$(wire_count reordered tx)" -gt 0 ]
}

wire_in_the_middle() { # how to begin a fault, how to end it
	sleep 1
	$1 || return
	sleep 1
	[ ! -e "$(fabric_folder "$wire_client")/status" ] ||
		wire_says "ib_read_bw ended before the fault" || return
	$2
}

wire_pause() {
	wire_in_the_middle 'fabric_pause 1' 'fabric_continue 1'
}

scenario_wire_pause() {
	wire_read 0 60 '-D 5' wire_pause
}

wire_cut() {
	wire_in_the_middle 'fabric_switch link 2.0 off' \
		'fabric_switch link 2.0 on' >/dev/null
}

scenario_wire_link() {
	wire_read 0 60 '-D 5' wire_cut || return
	[ "$(wire_count cut tx)" -gt 0 ] || [ "$(wire_count cut rx)" -gt 0 ]
}

scenario_wire_kill() {
	fabric_start 1 'sleep 60' || return
	wire_job=$job
	fabric_run 1 10 true || return
	fabric_kill 1
	fabric_wait "$wire_job" 5
	[ $? -eq 137 ] || wire_says "the dead guest's job did not end" || return
	fabric_run 2 20 '! busybox ping -c 1 -W 1 $(address 1)' ||
		wire_says "a dead guest answers" || return
	fabric_boot 1 || return
	wire_read 0 30 '-n 128'
}

# A cut rail leaves the other as it was.
scenario_wire_rails() {
	wire_read 0 30 '-n 128' && wire_read 1 30 '-n 128' || return
	fabric_switch link all.0 off >/dev/null || return
	fabric_run 2 20 '! busybox ping -c 1 -W 1 $(address 1)' ||
		wire_says "the cut rail works" || return
	wire_read 1 30 '-n 128' ||
		wire_says "rail 1 does not work without rail 0"
}

scenario_wire_four() {
	for wire_guest in 2 3 4; do
		fabric_run $wire_guest 15 'busybox ping -c 1 -s 4100 $(address 1)' ||
			return
	done
}
