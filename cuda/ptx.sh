#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The kernels' PTX from their source, where nvcc is: the library's and the probe's.
# nvcc names the newest version of PTX, which older drivers refuse; 7.0 has all
# that is used, and is taken from 11.0 on.
# ptx.sh write | compare | assemble
set -eu
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

kernels='cuda/gather tests/gpu/kernels'
made() { # the kernels' path without a suffix
	nvcc -arch=compute_80 -ptx -O3 -I. "$1.cu" -o "$work/new"
	{
		echo '// SPDX-License-Identifier: Apache-2.0'
		echo "// From $(basename "$1").cu, by make gpu-ptx."
		grep -v '^//' "$work/new" | sed 's/^\.version .*/.version 7.0/' | cat -s
	} >"$work/ptx"
}

case ${1:-} in
write | compare)
	for kernel in $kernels; do
		made "$kernel"
		[ "$1" = compare ] || cp "$work/ptx" "$kernel.ptx"
		diff "$kernel.ptx" "$work/ptx"
	done
	;;
assemble)
	for chip in 80 90 100 120; do
		for kernel in $kernels; do
			ptxas -arch=sm_$chip -v "$kernel.ptx" -o "$work/cubin" >"$work/said" 2>&1 ||
				{ cat "$work/said"; exit 1; }
			cat "$work/said"
			if grep -q '[1-9][0-9]* bytes spill' "$work/said"; then
				exit 1
			fi
		done
	done
	;;
*)
	echo 'usage: ptx.sh write | compare | assemble' >&2
	exit 2
	;;
esac
