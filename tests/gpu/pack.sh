#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Fill a folder with what a machine with a GPU is given: the probe, its kernels
# as PTX, card.sh, and the probe's source, for a machine whose libc is older. For
# the model engine: its programs, the modules of kvpull_vllm that it needs, the
# library, and the libraries that this one needs.
# pack.sh <build folder> <folder> [--cffi]
# --cffi: also the binding's cffi for the Python $GPU_PYTHON_VERSION, by pip.
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
package=$folder/python/kvpull_vllm
mkdir -p "$package" "$folder/engine" "$folder/lib"
for module in __init__ abi halves logs memory; do
	cp "plugin/vllm/kvpull_vllm/$module.py" "$package"
done
cp include/kvpull/common.h include/kvpull/connector.h include/kvpull/reader.h "$package"
cp -L "$build/libkvpull.so.1" "$package"
ldd "$build/libkvpull.so.1" | awk '/lib(jansson|sodium|uring)\.so/ { print $3 }' |
	while read -r library; do cp -L "$library" "$folder/lib"; done
cp tests/engine/gpu_model.py tests/engine/gpu_engine.py tests/engine/runner.py "$folder/engine"
if [ "${3:-}" = --cffi ]; then
	# shellcheck disable=SC2046 # two requirements
	${PYTHON:-python3} -m pip install --quiet --disable-pip-version-check --no-deps \
		--only-binary=:all: --implementation cp --python-version "${GPU_PYTHON_VERSION:-3.12}" \
		--platform "manylinux2014_$(uname -m)" --target "$folder/python" \
		$(grep -E '^(cffi|pycparser)==' tests/engine/requirements.txt) ||
		echo "  PACK	no cffi: the machine's Python has to have it"
fi
git describe --always --dirty --abbrev=12 --match=none >"$folder/commit" 2>/dev/null ||
	echo unknown >"$folder/commit"
du -sm "$folder" | awk '{ print "  PACK	" $2 ", " $1 " MiB"; exit $1 > 40 }'
