#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# fabric.sh BUILD [SCENARIO...]: real engines in guests that RDMA joins. Installs
# the engine if need be, makes the models and what vLLM remembers of them, then
# has tests/fabric/run.sh boot two guests a scenario. Needs user-mode Linux
# (FABRIC_UML): qemu is too slow for an engine.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
build=$(realpath "$1")
shift
venv=$("$here/setup.sh" --folder)
exec 9>"$venv.lock"
flock 9
ENGINE_LOCK=held
export ENGINE_LOCK
venv=$("$here/setup.sh" "$build/libkvpull.so.1" | tail -n 1)
FABRIC_PYTHON=$venv/bin/python
FABRIC_ENGINE=$build/engine-fabric
FABRIC_KIND=uml
# Two ranks of one engine need over 5000 MiB: half of what there is, less 1 GiB.
room=$(awk '/^MemAvailable/ { print int($2 / 2048) - 1024 }' /proc/meminfo)
room=$((room > 8000 ? 8000 : room < 5000 ? 5000 : room))
FABRIC_MEMORY_MIB=${FABRIC_MEMORY_MIB:-$room}
# A guest's memory is a file.
FABRIC_TMPDIR=${FABRIC_TMPDIR:-/dev/shm}
export FABRIC_PYTHON FABRIC_ENGINE FABRIC_KIND FABRIC_MEMORY_MIB FABRIC_TMPDIR
rm -rf "$FABRIC_ENGINE"
mkdir -p "$FABRIC_ENGINE/cache"
"$FABRIC_PYTHON" "$here/model.py" "$FABRIC_ENGINE/model" 1
"$FABRIC_PYTHON" "$here/model.py" "$FABRIC_ENGINE/other" 2
for model in states recurrent; do
	"$FABRIC_PYTHON" "$here/model.py" "$FABRIC_ENGINE/$model" 1 $model
done
# vLLM starts a second Python to look at a model's class, and keeps the answer.
for model in model states recurrent; do
	VLLM_CACHE_ROOT=$FABRIC_ENGINE/cache "$FABRIC_PYTHON" "$here/modelinfo.py" \
		"$FABRIC_ENGINE/$model" >"$FABRIC_ENGINE/modelinfo.log" 2>&1 || {
		tail -20 "$FABRIC_ENGINE/modelinfo.log"
		exit 1
	}
done
exec "$here/../fabric/run.sh" --engines "$build" "$@" 9>&-
