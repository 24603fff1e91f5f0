# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
# A machine that is a folder, $work/machine, as shell functions. Sourced.
: "${work:?}"

put() { # path below the machine, its one line
	mkdir -p "$work/machine/$(dirname "$1")"
	echo "$2" >"$work/machine/$1"
}

device() { # name, state, rate, NUMA node
	class=sys/class/infiniband/$1
	put "$class/ports/1/state" "$2"
	put "$class/ports/1/link_layer" Ethernet
	put "$class/ports/1/rate" "$3"
	put "$class/device/numa_node" "$4"
}

gid() { # device, index, GID, type, network device
	class=sys/class/infiniband/$1/ports/1
	put "$class/gids/$2" "$3"
	put "$class/gid_attrs/types/$2" "$4"
	put "$class/gid_attrs/ndevs/$2" "$5"
}
