# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh disable=SC2016,SC2154
# F11: strangers. Guest 1 is a producer, guest 2 has who was not let in
# (stranger.c says what it does), and honest consumers beside it.

FABRIC_SCENARIOS="${FABRIC_SCENARIOS:-}
	2:1:smoke:stranger_reads"

# A producer that strangers know where to call.
stranger_serve() { # further words
	fabric_start 1 "export KVPULL_VERBS_LISTEN_PORT=18600
		$pull_tool --port 18515 --dir /tmp/p ${1:-}" || return
	pull_producer=$job
	fabric_run 1 60 'listens 18515 60 && listens_rdma 18600' ||
		pull_says "no producer: $?"
}

# What a stranger needs to know to read: where the blocks lie, and their key.
# Nobody tells it: the producer's own machine does, for the test.
stranger_memory() {
	fabric_run 1 20 'kv=$(awk "/memfd:kvpull-kv/ { print \$1; exit }" \
			/proc/$(pidof ib_pull)/maps)
		echo "$(echo ${kv%-*}) $(rdma -d resource show mr |
			awk -v bytes=$((0x${kv#*-} - 0x${kv%-*})) "
				{
					for (i = 1; i < NF; i++) {
						if (\$i == \"rkey\")
							key = \$(i + 1)
						if (\$i == \"mrlen\" && \$(i + 1) == bytes)
							print key
					}
				}")"' || pull_says "no memory to read" || return
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

# It knows address and key, and reads before it was let in.
scenario_stranger_reads() {
	stranger_dials=5000
	[ -z "${smoke:-}" ] || stranger_dials=200
	stranger_serve && stranger_memory &&
		stranger_start reads "$stranger_dials" 4 240 "$stranger_memory" &&
		stranger_ends 300 && pull_start 2 20 && pull_ends 90 20 0 &&
		pull_settles 10000 && pull_stop
}
