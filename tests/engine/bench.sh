#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Compare connectors on real engines; JSON into OUT. bench.sh BUILD OUT
# nixl's wheel comes from PyPI; where it does not, kvpull is measured alone.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
build=$(realpath "$1")
mkdir -p "$2"
out=$(realpath "$2")
venv=$("$here/setup.sh" --folder)
exec 9>"$venv.lock" # to the end, as in check.sh
flock 9
export ENGINE_LOCK=held
venv=$("$here/setup.sh" "$build/libkvpull.so.1" | tail -n 1)
nixl=$("$here/setup.sh" --nixl | tail -n 1)
cd "$build"
set -- "$build/engine-bench" "$out/engine.json"
[ -d "$nixl" ] && set -- "$@" --nixl "$nixl"
nice -n 5 "$venv/bin/python" "$here/bench.py" "$@" 9>&-
[ -d "$nixl" ] || exit 0
nice -n 5 "$venv/bin/python" "$here/pool_beside.py" "$build/engine-pool" \
	"$out/engine-pool.json" --nixl "$nixl" 9>&-
nice -n 5 "$venv/bin/python" "$here/busy.py" "$build/engine-busy" \
	"$out/engine-busy.json" --nixl "$nixl" 9>&-
