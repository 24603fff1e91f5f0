#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Compare connectors on real engines; JSON into OUT. bench.sh BUILD OUT
# nixl's wheel comes from PyPI; where it does not, kvpull is measured alone.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
build=$(realpath "$1")
mkdir -p "$2"
out=$(realpath "$2")
venv=$("$here/setup.sh" "$build/libkvpull.so.1" | tail -n 1)
nixl=$build/engine-nixl
if [ ! -f "$nixl/ready" ]; then
	"$venv/bin/python" -m pip install --quiet --no-deps --target "$nixl" \
		nixl==1.5.1 nixl-cu12==1.5.1 && touch "$nixl/ready"
fi
cd "$build"
set -- "$build/engine-bench" "$out/engine.json"
[ -f "$nixl/ready" ] && set -- "$@" --nixl "$nixl"
exec nice -n 5 "$venv/bin/python" "$here/bench.py" "$@"
