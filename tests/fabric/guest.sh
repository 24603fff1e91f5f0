#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The first process of a guest, of either kind: mount what a program needs on
# top of the host's read-only tree, bring up the rails and their rxe devices,
# then do what the runner says on the control line:
#   run N           run the script $FABRIC_SHARE/N/command in the background
#   signal N NAME   send a signal to that script and what it has started
# The kernel hands over FABRIC_* from its command line as the environment.
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
HOME=/tmp
export PATH HOME
unset TERM

mount -t proc proc /proc
mount -t sysfs sysfs /sys
mountpoint -q /dev || mount -t devtmpfs devtmpfs /dev
mkdir -p /dev/shm /dev/pts
mount -t tmpfs tmpfs /dev/shm
mount -t tmpfs tmpfs /run
mkdir /run/tree /run/build /run/share /run/pids
mount --bind "$FABRIC_TREE" /run/tree
mount --bind "$FABRIC_BUILD" /run/build
case $FABRIC_KIND in
uml)
	# The runner reads the share's files while they grow: write through.
	mount -t hostfs -o "sync,$FABRIC_SHARE" none /run/share
	# Perftest needs a clock rate, which the kernel's own file lacks.
	mount --bind /run/share/cpuinfo /proc/cpuinfo
	line=/dev/tty1
	# The guest has one processor and no preemption: rxe's workers go before
	# the programs.
	idle="chrt --idle 0"
	;;
qemu)
	mount -t 9p -o trans=virtio,version=9p2000.L,cache=none,msize=262144 \
		share /run/share
	line=/dev/ttyS1
	idle=
	;;
esac
mount -t tmpfs tmpfs /tmp
mount -t tmpfs tmpfs /var/tmp
# Mounts a folder at its old place: tmpfs hides everything under /tmp now.
show() { # where it is, where it was
	[ ! -d "$2" ] || return 0
	mkdir -p "$2"
	mount --bind "$1" "$2"
}
show /run/tree "$FABRIC_TREE"
show /run/build "$FABRIC_BUILD"
mkdir -p "$FABRIC_SHARE"
mount --bind /run/share "$FABRIC_SHARE"

hostname "guest$FABRIC_GUEST" 2>/dev/null ||
	echo "guest$FABRIC_GUEST" >/proc/sys/kernel/hostname
prlimit --pid $$ --memlock=unlimited --core=0
# Addresses count at once; no second of duplicate detection.
echo 0 >/proc/sys/net/ipv6/conf/all/accept_dad
echo 0 >/proc/sys/net/ipv6/conf/default/accept_dad
ip link set lo up

rail=0
while [ "$rail" -lt "$FABRIC_RAILS" ]; do
	address=$(printf '02:66:00:00:%02x:%02x' "$rail" "$FABRIC_GUEST")
	for device in /sys/class/net/*; do
		[ "$(cat "$device/address")" = "$address" ] && break
	done
	device=${device##*/}
	ip link set "$device" name "rail$rail"
	device=rail$rail
	ip link set "$device" mtu "$FABRIC_MTU"
	echo 0 >"/proc/sys/net/ipv6/conf/$device/accept_dad"
	ip addr add "10.66.$rail.$FABRIC_GUEST/24" dev "$device"
	ip link set "$device" up
	rdma link add "rxe$rail" type rxe netdev "$device"
	rail=$((rail + 1))
done
cd "$FABRIC_TREE" || exit 1

run() { # job
	folder=$FABRIC_SHARE/$1
	# A session of its own: a signal reaches all of it.
	# shellcheck disable=SC2086 # a command and its arguments, or none
	setsid $idle sh "$folder/command" >"$folder/output" 2>&1 </dev/null 3<&- &
	child=$!
	echo "$child" >"/run/pids/$1"
	wait "$child"
	echo $? >"$folder/status.new"
	mv "$folder/status.new" "$folder/status"
}

exec 3<"$line"
stty -echo <&3
cat /proc/uptime >"$FABRIC_SHARE/ready"
echo "guest $FABRIC_GUEST is ready"
while :; do
	read -r verb job name <&3
	case $verb in
	run) run "$job" & ;;
	signal) kill -"$name" "-$(cat "/run/pids/$job")" ;;
	esac
done
