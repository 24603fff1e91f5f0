#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# guests.sh [-r RAILS] [-t SECONDS] CODE...: boot a guest for each piece of
# shell code (1 to 4), run them at the same time, print what each has printed.
# To try things: guest 1 is at $(address 1). The exit status is the first that
# is not 0. FABRIC_*: see fabric.sh.
rails=1
seconds=60
while getopts r:t: option; do
	case $option in
	r) rails=$OPTARG ;;
	t) seconds=$OPTARG ;;
	*) exit 2 ;;
	esac
done
shift $((OPTIND - 1))
if [ $# -lt 1 ] || [ $# -gt 4 ]; then
	echo "usage: guests.sh [-r RAILS] [-t SECONDS] CODE..." >&2
	exit 2
fi
# shellcheck source=tests/fabric/fabric.sh
. "$(dirname "$0")/fabric.sh"
FABRIC_OUT=$FABRIC_OUT/guests.$$
trap 'fabric_close; rm -rf "$FABRIC_OUT"' EXIT
trap 'exit 130' INT TERM

fabric_open $# "$rails" || exit
jobs=
guest=0
for code in "$@"; do
	guest=$((guest + 1))
	fabric_start $guest "$code" || exit
	jobs="$jobs $job"
done
first=0
for job in $jobs; do
	fabric_wait "$job" "$seconds"
	status=$?
	echo "--- guest ${job%.*}: exit status $status"
	cat "$(fabric_output "$job")"
	[ $first -ne 0 ] || first=$status
done
exit $first
