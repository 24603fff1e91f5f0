#!/bin/busybox sh
# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=dash
# The first process of a qemu guest: load the modules, mount the host's tree
# read-only over 9p, and go on there as a user-mode Linux guest begins.
/bin/busybox mkdir -p /proc /host
while read -r module; do
	/bin/busybox insmod "/modules/$module" || echo "no module $module"
done </modules/order
/bin/busybox mount -t 9p \
	-o ro,trans=virtio,version=9p2000.L,cache=loose,msize=262144 root /host ||
	exec /bin/busybox poweroff -f
exec /bin/busybox switch_root /host "$FABRIC_TREE/tests/fabric/guest.sh"
