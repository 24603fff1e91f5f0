#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Install the engine if need be, test the package, then run the scenarios; the
# last line adds both up. check.sh BUILD [--smoke] [--only NAME]...
set -u
here=$(cd "$(dirname "$0")" && pwd)
build=$(realpath "$1")
shift
began=$(date +%s)
: "${TEST_PATIENCE:=$("$here/../patience.sh")}"
export TEST_PATIENCE
venv=$("$here/setup.sh" --folder)
# To the end: another tree's run would put its own package there meanwhile.
exec 9>"$venv.lock"
flock -n 9 || {
	echo "  engine: another run uses $venv: waiting"
	flock 9
}
export ENGINE_LOCK=held
venv=$("$here/setup.sh" "$build/libkvpull.so.1" | tail -n 1)
SGLANG=$("$here/setup.sh" --sglang | tail -n 1)
export SGLANG
nixl=$venv
case " $* " in
*" --smoke "*) ;;
*)
	nixl=$("$here/setup.sh" --nixl | tail -n 1)
	set -- --nixl "$nixl" "$@"
	;;
esac
if [ ! -x "$venv/bin/python" ] || [ ! -d "$nixl" ] || [ ! -d "$SGLANG" ]; then
	echo "engine: the environment could not be made"
	echo "0 passed, 1 failed, 0 skipped"
	exit 1
fi
echo "  engine installed after $(($(date +%s) - began)) s"
log=$(mktemp) || exit 1
trap 'rm -f "$log"' EXIT

# Not from the source tree: what is tested is what was installed. The lock is
# this script's alone: an engine that stays behind must not keep it.
cd "$build" || exit 1
tests='signatures package device identity files router answers tier tier_changes race hicache
core states drafts first policy changes adapters'
for test in $tests; do
	"$venv/bin/python" "$here/test_$test.py" 2>&1 9>&- | tee -a "$log"
done
"$venv/bin/python" "$here/gpu_model.py" --device cpu cuda/libcuda.so.1 2>&1 9>&- | tee -a "$log"
# Figures for whoever reads the output; none of them fails.
"$venv/bin/python" "$here/micro.py" 2>&1 9>&- | grep ' us: '
nice -n 5 "$venv/bin/python" "$here/run.py" "$build/engine" "$@" 2>&1 9>&- |
	tee -a "$log"
echo "  engine: $(($(date +%s) - began)) s in all"
# A program that did not come to its result line has failed.
awk -v programs="$(($(echo "$tests" | wc -w) + 2))" \
	'/^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$/ {
	n++; p += $1; f += $3; s += $5 }
	END { if (n < programs) f++
	print p + 0 " passed, " f + 0 " failed, " s + 0 " skipped"
	exit f || !p }' "$log"
