#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Make the tests' Python environment, once for each requirements.txt, and put
# this tree's package into it. Prints the environment's folder as its last line.
# setup.sh LIBRARY; ENGINE_CACHE is where environments are kept.
# setup.sh --nixl: the folder of nixl's wheel, beside which kvpull is tested.
# setup.sh --sglang: that of SGLang's, whose class examples/hicache.py fills.
# setup.sh --folder: the environment's folder, made or not. One run at a time
# uses it, who has the lock FOLDER.lock; ENGINE_LOCK=held: the caller has it.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
python=${PYTHON:-python3}
cache=${ENGINE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/kvpull}
version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
name=$(sha256sum "$here/requirements.txt" | cut -c1-12)
venv=$cache/engine-$version-$name
# The list of pinned packages is complete, so nothing has to be resolved.
pip="$venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps"

mkdir -p "$cache"
if [ "$1" = --folder ]; then
	echo "$venv"
	exit
fi
if [ "${ENGINE_LOCK:-}" != held ]; then
	exec 9>"$venv.lock"
	flock 9
fi
beside() { # folder in the cache, packages
	folder=$cache/$1-$version
	shift
	if [ ! -f "$folder/ready" ]; then
		rm -rf "$folder"
		$pip --target "$folder" "$@" 1>&2
		touch "$folder/ready"
	fi
	echo "$folder"
	exit
}

case $1 in
--nixl) beside nixl-1.5.1 nixl==1.5.1 nixl-cu12==1.5.1 ;;
--sglang) beside sglang-0.5.23 --no-compile sglang==0.5.23 ;;
esac
library=$(realpath "$1")
if [ ! -f "$venv/ready" ]; then
	rm -rf "$venv"
	echo "engine: installing vLLM into $venv" >&2
	"$python" -m venv "$venv" >&2
	$pip --prefer-binary -r "$here/requirements.txt" 1>&2
	# Without a CPU build on offer torch needs what its own build names.
	"$venv/bin/python" -c 'import torch' ||
		"$venv/bin/python" -m pip install --quiet torch==2.13.0 1>&2
	touch "$venv/ready"
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# Built from a copy: pip leaves its own files beside the sources.
mkdir -p "$work/plugin"
cp -r "$here/../../plugin/vllm" "$work/plugin/"
rm -rf "$work/plugin/vllm/build"
include=$(cd "$here/../../include/kvpull" && pwd)
LIBKVPULL=$library KVPULL_INCLUDE=$include $pip --no-build-isolation --force-reinstall \
	"$work/plugin/vllm" 1>&2
echo "$venv"
