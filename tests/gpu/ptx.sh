#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# gather.ptx from gather.cu, where nvcc is. nvcc names the newest version of PTX,
# which older drivers refuse; 7.0 has all that is used, and is taken from 11.0 on.
# ptx.sh write | compare | assemble
set -eu
cd "$(dirname "$0")"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

case ${1:-} in
write | compare)
	nvcc -arch=compute_80 -ptx -O3 gather.cu -o "$work/new"
	{
		echo '// SPDX-License-Identifier: Apache-2.0'
		echo '// From gather.cu, by make gpu-ptx.'
		grep -v '^//' "$work/new" | sed 's/^\.version .*/.version 7.0/' | cat -s
	} >"$work/ptx"
	[ "$1" = compare ] || cp "$work/ptx" gather.ptx
	diff gather.ptx "$work/ptx"
	;;
assemble)
	for chip in 80 90 100 120; do
		ptxas -arch=sm_$chip -v gather.ptx -o "$work/cubin" >"$work/said" 2>&1 ||
			{ cat "$work/said"; exit 1; }
		cat "$work/said"
		if grep -q '[1-9][0-9]* bytes spill' "$work/said"; then
			exit 1
		fi
	done
	;;
*)
	echo 'usage: ptx.sh write | compare | assemble' >&2
	exit 2
	;;
esac
