#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Everything that a machine with a GPU is asked, in one command. It runs from the
# folder that `make gpu-pack` fills, .gpu/, or from a copy of it. Each step has a
# limit of its own, and all steps run, whatever became of those before. Their
# answers go into the folder $OUT as JSON, a line each; a table is printed last.
#
#   card.sh [MIB]   P's memory; else a quarter of the device's, 8 GiB at most
#
# Exit status: 0 all steps are right, 1 one is not, 77 there is no driver, or a
# gVisor, which forwards too little of it to prove anything.
set -u
here=$(cd "$(dirname "$0")" && pwd)
probe=$here/probe
ptx=$here/kernels.ptx
out=${OUT:-$PWD/gpu-out}
mkdir -p "$out" || exit 1
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
bad=0
# A probe of a CPU is as slow as one.
repeats=${GPU_REPEATS:-9}

case $(uname -r) in
4.4.0*)
	echo "card: this is gVisor, which forwards descriptors in part: nothing is proved here"
	exit 77
	;;
esac
# Another libc than that of the machine that built it.
"$probe" >/dev/null 2>&1
runs=$?
if [ $runs -gt 2 ] && [ $runs -ne 77 ]; then
	probe=$work/probe
	cc -std=c11 -D_GNU_SOURCE -O2 -I"$here/source" "$here"/source/tests/gpu/*.c -o "$probe" -ldl || exit 1
fi

step() { # name, seconds, command
	[ -z "${GPU_STEPS:-}" ] || [ "$GPU_STEPS" = "$1" ] || return 0
	name=$1
	limit=$2
	shift 2
	echo "card: $name"
	began=$(date +%s)
	timeout -k 5 "$limit" "$@" >"$out/$name.json" 2>"$out/$name.log"
	status=$?
	took=$(($(date +%s) - began))
	word=ok
	if [ $status -ne 0 ]; then
		word="FAILED (exit status $status): $(tail -n 1 "$out/$name.log")"
		bad=1
	fi
	echo "step $name: $word, $took s" >>"$work/steps"
	return $status
}

# P serves beside a step of D.
with_p() { # MiB, command before both processes; D's command
	mib=$1
	before=$2
	shift 2
	# shellcheck disable=SC2086 # a command and its options, or none
	$before "$probe" serve "$work/s" "$mib" "$ptx" 2>"$work/p" &
	server=$!
	# shellcheck disable=SC2086
	$before "$probe" "$@"
	with_status=$?
	# P ends with its caller, or is killed by its order.
	wait "$server"
	[ $with_status -eq 0 ] || cat "$work/p" >&2
	return $with_status
}

# Steps that are functions need a shell of their own under a limit.
if [ "${1:-}" = --with-p ]; then
	shift
	work=$1
	shift
	trap - EXIT
	with_p "$@"
	exit
fi

step facts 60 "$probe" facts
case $? in
0) ;;
77)
	echo "card: $(tail -n 1 "$out/facts.log")"
	exit 77
	;;
esac
value() { sed -n "s/^{\"name\": \"$1\", \"value\": \"\\(.*\\)\"}\$/\\1/p" "$out/facts.json"; }
mib=${1:-$(($(value device.mib) / 4))}
[ "$mib" -le 8192 ] || mib=8192
step share 90 "$0" --with-p "$work" "$mib" '' share "$work/s" "$ptx"
# Two pods that have nothing in common but the folder of the socket.
apart='unshare --pid --ipc --mount --fork --mount-proc --kill-child'
if $apart true 2>"$work/apart"; then
	step share_apart 90 "$0" --with-p "$work" "$mib" "$apart" share "$work/s" "$ptx"
else
	echo "step share_apart: not possible here: $(tail -n 1 "$work/apart")" >>"$work/steps"
fi
step copy 300 "$0" --with-p "$work" "$mib" '' copy "$work/s" "$ptx" "$repeats"

# The model engine needs torch and cffi, and a libc that the library was built for.
PYTHONPATH=$here/python
LD_LIBRARY_PATH=$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export PYTHONPATH LD_LIBRARY_PATH
python=${GPU_PYTHON:-python3}
if [ "${GPU_STEPS:-engine}" != engine ]; then
	:
elif "$python" -c 'import torch; from kvpull_vllm.abi import Library; Library()' 2>"$work/import"; then
	step engine 150 "$python" "$here/engine/gpu_model.py" --device cuda --json
else
	echo "step engine: not possible here: $(tail -n 1 "$work/import")" >>"$work/steps"
fi

commit=$(cat "$here/commit" 2>/dev/null)
echo
echo "card $(value device.name), $(value device.mib) MiB, driver $(value driver.version), Linux $(uname -r), kvpull ${commit:-unknown}"
cat "$work/steps"
for file in facts share share_apart copy engine; do
	[ -s "$out/$file.json" ] || continue
	awk -F '"' -v step=$file '
		/"value"/ { printf "%-12s %-44s %s\n", step, $4, $8; next }
		$4 !~ /\.wall$/ {
			split($0, at, /"(median|low|high|count)": /)
			for (i = 2; i <= 4; i++)
				sub(/[,}].*/, "", at[i])
			printf "%-12s %-44s %10.2f %-5s %10.2f .. %.2f\n",
				step, $4, at[2], $8, at[3], at[4]
		}' "$out/$file.json"
done
exit $bad
