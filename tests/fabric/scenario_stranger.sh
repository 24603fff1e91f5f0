# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh disable=SC2016,SC2154
# F11: strangers. Guest 1 is a producer, guest 2 has who was not let in
# (stranger.c says what it does), and honest consumers beside it.

FABRIC_SCENARIOS="${FABRIC_SCENARIOS:-}
	2:1:smoke:stranger_reads 2:1:full:stranger_flood"

# The honest peers have a key, and strangers do not. The key must keep nothing
# open that would be closed without one.
stranger_keyed() { # function
	stranger_tool=$pull_tool
	pull_tool="head -c 32 /dev/zero >/tmp/key && chmod 600 /tmp/key
		export KVPULL_KEY_FILE=/tmp/key
		$pull_tool"
	"$1"
	stranger_status=$?
	pull_tool=$stranger_tool
	return $stranger_status
}

# A producer that strangers know where to call.
# shellcheck disable=SC2120 # further words may be given
stranger_serve() { # further words
	fabric_start 1 "export KVPULL_VERBS_LISTEN_PORT=18600
		$pull_tool --port 18515 --dir /tmp/p ${1:-}" || return
	# shellcheck disable=SC2034 # read by the helpers of pulls
	pull_producer=$job
	fabric_run 1 60 'listens 18515 60 && listens_rdma 18600' ||
		pull_says "no producer: $?"
}

# Finds the blocks' address and memory key, which a stranger needs to read. The
# producer's own machine tells it, for the test, once the blocks are registered.
stranger_memory() {
	fabric_run 1 30 'key= tries=0
		while [ -z "$key" ] && [ $((tries += 1)) -le 15 ]; do
			[ "$tries" -eq 1 ] || sleep 0.25
			kv=$(awk "/memfd:kvpull-kv/ { print \$1; exit }" \
				/proc/$(pidof ib_pull)/maps)
			# An MR ends where the address is a multiple of 1 GiB.
			first=$((0x${kv%-*}))
			bytes=$((0x${kv#*-} - first))
			left=$((0x40000000 - first % 0x40000000))
			[ "$left" -gt "$bytes" ] || bytes=$left
			key=$(rdma -d resource show mr | awk -v bytes="$bytes" "
				{
					for (i = 1; i < NF; i++) {
						if (\$i == \"rkey\")
							key = \$(i + 1)
						if (\$i == \"mrlen\" && \$(i + 1) == bytes)
							print key
					}
				}" | head -n 1)
		done
		[ -n "$key" ] || {
			grep memfd /proc/$(pidof ib_pull)/maps
			rdma -d resource show mr
		}
		echo "${kv%-*} ${key:?no region of these blocks is registered}"' ||
		pull_says "no memory to read" || return
	stranger_memory=$(tail -n 1 "$(fabric_output "$job")")
	echo "fabric: blocks and their key: $stranger_memory"
}

stranger_start() { # mode, dials, at once, seconds, further words
	fabric_start 2 "exec \$FABRIC_BUILD/fabric_stranger $1 \$(address 1) 18600 $2 $3 $4 ${5:-}"
	stranger=$job
}

stranger_ends() { # seconds
	fabric_wait "$stranger" "$1"
	stranger_code=$?
	cat "$(fabric_output "$stranger")"
	[ "$stranger_code" -eq 0 ] ||
		pull_says "the stranger ended with $stranger_code"
}

# The stranger knows address and key, and reads before it was let in: 20 READs a
# dial. Some dials are turned away because others wait.
stranger_reads() {
	stranger_dials=5500
	stranger_least=100000
	if [ -n "${smoke:-}" ]; then
		stranger_dials=200
		stranger_least=2000
	fi
	# shellcheck disable=SC2119 # none here
	stranger_serve && stranger_memory &&
		stranger_start reads "$stranger_dials" 4 240 "$stranger_memory" &&
		stranger_ends 300 || return
	stranger_posted=$(sed -n 's/.*; \([0-9]*\) READs, .*/\1/p' "$(fabric_output "$stranger")")
	[ "${stranger_posted:-0}" -ge "$stranger_least" ] ||
		pull_says "it read too little to show anything" || return
	pull_start 2 20 && pull_ends 90 20 0 && pull_settles 10000 && pull_stop
}

# Queue pairs, ids and descriptors of the producer, in one line.
stranger_resources() {
	fabric_run 1 20 'echo "$(rdma resource show |
		grep -o "qp [0-9]* cm_id [0-9]*") fds $(ls /proc/$(pidof ib_pull)/fd | wc -l)"' ||
		return
	stranger_resources=$(tail -n 1 "$(fabric_output "$job")")
	echo "fabric: the producer has $stranger_resources"
}

# A newcomer calls now: measures the time until its first blocks are there.
stranger_newcomer() { # milliseconds at the most
	pull_start 2 1 && pull_ends 30 1 0 || return
	stranger_us=$(pull_number latency_us_p50 | cut -d. -f1)
	[ "$stranger_us" -le $(($1 * 1000)) ] ||
		pull_says "a newcomer waited $stranger_us us"
}

stranger_flood() { # mode, dials, at once, seconds
	stranger_start "$1" "$2" "$3" "$4" && stranger_now=$stranger || return
	sleep 2
	stranger_newcomer $((stranger_alone_ms + 1000)) || return
	stranger=$stranger_now
	stranger_ends 120
}

# Garbage, silence, and who never reads: pulls on their way go on, a newcomer of
# the strangers' own address is in within a second more than alone, and nothing stays behind.
stranger_floods() {
	# shellcheck disable=SC2119 # none here
	stranger_serve && stranger_newcomer 10000 || return
	# On a busy host a first pull takes most of a second by itself.
	stranger_alone_ms=$((stranger_us / 1000))
	sleep 1
	stranger_resources || return
	stranger_before=$stranger_resources
	pull_start 2 2000 '--thread --depth 2 --duration 60' || return
	stranger_honest=$pull_consumer
	stranger_flood garbage 200 50 20 &&
		stranger_flood silent 1000 1000 8 &&
		stranger_flood mute 2000 500 12 || return
	pull_consumer=$stranger_honest
	pull_ends 120 100 0 && pull_settles 10000 || return
	sleep 8
	stranger_resources || return
	[ "$stranger_resources" = "$stranger_before" ] ||
		pull_says "it had $stranger_before before" || return
	pull_stop
}

scenario_stranger_reads() { stranger_keyed stranger_reads; }
scenario_stranger_flood() { stranger_keyed stranger_floods; }
