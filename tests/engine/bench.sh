#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Compare connectors on real engines; JSON into OUT. bench.sh BUILD OUT [NAME
# [ARGUMENT...]]: NAME is one of the programs below, which gets the arguments.
# nixl's wheel comes from PyPI; where it does not, kvpull is measured alone.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
build=$(realpath "$1")
mkdir -p "$2"
out=$(realpath "$2")
only=${3-}
case $only in
'' | bench | first_token | pool_beside | busy) ;;
*)
	echo "bench.sh: $only: no such program; there are bench, first_token, pool_beside and busy" >&2
	exit 2
	;;
esac
shift $(($# < 3 ? $# : 3))
venv=$("$here/setup.sh" --folder)
exec 9>"$venv.lock" # to the end, as in check.sh
flock 9
export ENGINE_LOCK=held
venv=$("$here/setup.sh" "$build/libkvpull.so.1" | tail -n 1)
nixl=$("$here/setup.sh" --nixl | tail -n 1)
cd "$build"

measure() { # program, name of its folder and its JSON, arguments
	program=$1 name=$2
	shift 2
	[ -z "$only" ] || [ "$only" = "$program" ] || return 0
	nice -n 5 "$venv/bin/python" "$here/$program.py" "$build/$name" \
		"$out/$name.json" "$@" 9>&-
}

measure first_token engine-first "$@"
[ -d "$nixl" ] && set -- "$@" --nixl "$nixl"
measure bench engine "$@"
if [ ! -d "$nixl" ]; then
	case $only in
	pool_beside | busy)
		echo "bench.sh: $only needs nixl's wheel, and there is none" >&2
		exit 1
		;;
	esac
	exit 0
fi
measure pool_beside engine-pool "$@"
measure busy engine-busy "$@"
