#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# uml.sh FOLDER: build FOLDER/linux.uml, a user-mode Linux with soft RDMA, from
# Debian's kernel source (140 MB to download, 2 GB of temporary files, some ten
# minutes on 2 cores). Guests of it boot in a second, and run several times as
# fast as qemu's. run.sh takes it where it lies.
# FABRIC_SOURCE_DEB names a linux-source package to take instead.
set -eu
folder=${1:?folder}
here=$(cd "$(dirname "$0")" && pwd)

package_set=fabric-uml
# shellcheck source=tests/fabric/package.sh
. "$here/package.sh"

for tool in flex bison bc xz tar dpkg; do
	command -v $tool >/dev/null || lacks "$tool is not installed"
done
mkdir -p "$folder"
work=$(mktemp -d "$folder/uml.XXXXXX")
trap 'rm -rf "$work"' EXIT
deb=${FABRIC_SOURCE_DEB:-}
if [ -z "$deb" ]; then
	package_get linux-source "$work"
fi
dpkg -x "$deb" "$work/unpacked"
rm -f "$work"/*.deb
mkdir "$work/linux"
tar -xf "$work"/unpacked/usr/src/linux-source-*.tar.xz -C "$work/linux" \
	--strip-components=1
rm -rf "$work/unpacked"
"$here/uml_xstate.sh" "$work/linux" || lacks "this kernel has another HOST_FP_SIZE"

# Not our parent's: the kernel's make is another project's.
unset MAKEFLAGS MFLAGS MAKELEVEL MAKEOVERRIDES
kernel_make() {
	make -s -C "$work/linux" ARCH=um "$@"
}
echo "fabric: building user-mode Linux"
kernel_make defconfig >/dev/null
(cd "$work/linux" && ARCH=um scripts/kconfig/merge_config.sh -m .config \
	"$here/uml.config" >/dev/null)
kernel_make olddefconfig >/dev/null
# The options that an option needs may have other names in another version.
for option in INFINIBAND_USER_ACCESS INFINIBAND_ADDR_TRANS RDMA_RXE HOSTFS \
	UML_NET_VECTOR; do
	grep -q "^CONFIG_$option=y" "$work/linux/.config" ||
		lacks "this kernel does not take CONFIG_$option"
done
grep -q '^CONFIG_KERNEL_STACK_ORDER=3$' "$work/linux/.config" ||
	lacks "this kernel does not take CONFIG_KERNEL_STACK_ORDER=3"
kernel_make -j"$(nproc)" linux >"$folder/uml.log" 2>&1 || {
	tail -20 "$folder/uml.log"
	exit 1
}
cp "$work/linux/linux" "$folder/linux.uml.new"
strip "$folder/linux.uml.new"
mv "$folder/linux.uml.new" "$folder/linux.uml"
ls -l "$folder/linux.uml"
