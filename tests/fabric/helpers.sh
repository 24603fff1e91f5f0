# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
# What each script in a guest can use besides FABRIC_*.

# The address of a guest on a rail.
address() { # guest, rail
	echo "10.66.${2:-0}.$1"
}

# Wait until a program in this guest listens on a TCP port.
listens() { # port, seconds
	hex=$(printf ':%04X' "$1")
	tries=$((${2:-10} * 10))
	until cat /proc/net/tcp /proc/net/tcp6 |
		awk -v hex="$hex" '$4 == "0A" && $2 ~ hex "$" { found = 1 }
			END { exit !found }'; do
		tries=$((tries - 1))
		[ "$tries" -gt 0 ] || return 1
		sleep 0.1
	done
}

# Wait until a program in this guest listens on a port of rdma_cm's.
listens_rdma() { # port, seconds
	tries=$((${2:-10} * 10))
	until rdma resource show cm_id 2>/dev/null |
		grep -q "state LISTEN .*:$1\b"; do
		tries=$((tries - 1))
		[ "$tries" -gt 0 ] || return 1
		sleep 0.1
	done
}
