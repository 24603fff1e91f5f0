#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Fill a folder with what a machine with a GPU is given: the probe, its kernels
# as PTX, card.sh, and the probe's source, for a machine whose libc is older.
# pack.sh <build folder> <folder>
set -eu
cd "$(dirname "$0")/../.."
build=$1
folder=$2
rm -rf "$folder"
mkdir -p "$folder/source/tests/gpu" "$folder/source/base" "$folder/source/cuda"
cp "$build/gpu_probe" "$folder/probe"
cp tests/gpu/card.sh tests/gpu/kernels.ptx "$folder"
cp include/base/clock.h "$folder/source/base"
cp cuda/driver.h cuda/gather.h cuda/gather.cu "$folder/source/cuda"
cp tests/gpu/*.c tests/gpu/*.h tests/gpu/kernels.cu "$folder/source/tests/gpu"
git describe --always --dirty --abbrev=12 --match=none >"$folder/commit" 2>/dev/null ||
	echo unknown >"$folder/commit"
du -sm "$folder" | awk '{ print "  PACK	" $2 ", " $1 " MiB"; exit $1 > 40 }'
