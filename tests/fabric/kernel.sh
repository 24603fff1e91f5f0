#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# kernel.sh FOLDER: make there what qemu boots: vmlinuz and initrd.gz, from
# Debian's stock kernel, which is downloaded (70 MB) and unpacked, not
# installed. Done already: nothing happens. A tool that is missing fails.
# FABRIC_KERNEL_DEB names a linux-image package to take instead.
folder=${1:?folder}
here=$(cd "$(dirname "$0")" && pwd)

package_set=fabric
# shellcheck source=tests/fabric/package.sh
. "$here/package.sh"

for tool in qemu-system-x86_64 cpio dpkg depmod modprobe; do
	# The last two are not in the path of everyone.
	PATH=$PATH:/usr/sbin:/sbin
	command -v $tool >/dev/null || lacks "$tool is not installed"
done
[ -x /bin/busybox ] || lacks "busybox-static is not installed"
is_newer() { # file, than file
	[ -n "$(find "$1" -newer "$2" 2>/dev/null)" ]
}
is_newer "$folder/initrd.gz" "$here/initramfs.sh" &&
	is_newer "$folder/initrd.gz" "$here/kernel.sh" && exit 0

work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
mkdir -p "$folder" "$work/deb" "$work/root/bin" "$work/root/modules"
deb=${FABRIC_KERNEL_DEB:-}
if [ -z "$deb" ]; then
	package_get linux-image-amd64 "$work/deb"
fi
dpkg -x "$deb" "$work/unpacked" || exit 1
version=$(ls "$work/unpacked/lib/modules") || exit 1
depmod -b "$work/unpacked" "$version" || exit 1

# crc32_generic: rxe asks for it by name when a device is added.
for module in virtio_pci 9pnet_virtio 9p virtio_net virtio_rng crc32_generic \
	rdma_rxe rdma_ucm; do
	modprobe -d "$work/unpacked" -S "$version" --show-depends "$module" ||
		lacks "the kernel $version has no $module"
done | awk '$1 == "insmod" && !seen[$2]++ { print $2 }' >"$work/order"
while read -r module; do
	cp "$module" "$work/root/modules/" || exit 1
	basename "$module"
done <"$work/order" >"$work/root/modules/order"
cp /bin/busybox "$work/root/bin/busybox"
cp "$here/initramfs.sh" "$work/root/init"
cp "$work/unpacked/boot/vmlinuz-$version" "$folder/vmlinuz" || exit 1
(cd "$work/root" && find . | cpio --quiet -o -H newc) | gzip -1 \
	>"$folder/initrd.new" && mv "$folder/initrd.new" "$folder/initrd.gz"
