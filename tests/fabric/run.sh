#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# run.sh [--smoke] [--engines] [--list] BUILD [SCENARIO...]: boot guests with rxe
# devices and run the scenarios in them, with what lies in the folder BUILD
# (ib_pull, libkvpull.so). Each prints its wall time; the last line is
# "N passed, N failed, N skipped". A name may end in *. --engines: those of real
# engines, and no others (tests/engine/fabric.sh).
#
# Scenarios of the same number of guests and rails share one boot: faults are
# cleared and dead guests booted in between, and after a failure all is new.
# FABRIC_KIND, FABRIC_UML, FABRIC_SEED: see fabric.sh.
smoke=
engines=
list=
while :; do
	case ${1:-} in
	--smoke) smoke=1 ;;
	--engines) engines=1 ;;
	--list) list=1 ;;
	*) break ;;
	esac
	shift
done
build=${1:?folder of the build}
shift
# shellcheck source=tests/fabric/fabric.sh
. "$(dirname "$0")/fabric.sh"
FABRIC_BUILD=$(cd "$build" && pwd) || exit 2
for file in "$FABRIC_TREE"/tests/fabric/scenario_*.sh; do
	# shellcheck disable=SC1090 # found by name
	. "$file"
done
outputs=$FABRIC_OUT
passed=0
failed=0
skipped=0
opened=
trap 'fabric_close' EXIT
trap 'exit 130' INT TERM

# Prints the scenarios that scenario_*.sh declare, one a line: guests rails
# smoke name.
table() {
	for declared in $FABRIC_SCENARIOS; do
		echo "$declared" | tr ':' ' '
	done | sort -s -k 1,2
}

wanted() { # name, smoke, names that were asked for
	wanted_name=$1
	[ -z "$smoke" ] || [ "$2" = smoke ] || return
	case $2 in
	vllm) [ -n "$engines" ] || return ;;
	*) [ -z "$engines" ] || return ;;
	esac
	shift 2
	[ $# -gt 0 ] || return 0
	for pattern in "$@"; do
		# shellcheck disable=SC2254 # a pattern
		case $wanted_name in
		$pattern) return 0 ;;
		esac
	done
	return 1
}

prepare() { # guests, rails
	if [ "$opened" != "$1x$2" ]; then
		fabric_close
		opened=
		FABRIC_OUT=$outputs/$1x$2
		fabric_open "$1" "$2" || return
		opened=$1x$2
		return
	fi
	fabric_switch clear all/tx >/dev/null &&
		fabric_switch clear all/rx >/dev/null || return
	prepare_guest=1
	while [ "$prepare_guest" -le "$1" ]; do
		fabric_alive "$prepare_guest" ||
			fabric_boot "$prepare_guest" || return
		prepare_guest=$((prepare_guest + 1))
	done
}

one() { # guests, rails, name
	prepare "$1" "$2"
	status=$?
	began_ms=$(fabric_now_ms)
	first_job=$fabric_jobs
	if [ "$status" -eq 0 ]; then
		"scenario_$3"
		status=$?
	fi
	took_ms=$(($(fabric_now_ms) - began_ms))
	case $status in
	0)
		word=ok
		passed=$((passed + 1))
		;;
	77)
		word=skipped
		skipped=$((skipped + 1))
		;;
	*)
		word=FAILED
		failed=$((failed + 1))
		;;
	esac
	printf '%-8s %-34s %d guests, %d rails, %5d.%d s\n' "$word" "$3" \
		"$1" "$2" $((took_ms / 1000)) $((took_ms % 1000 / 100))
	if [ $word = FAILED ]; then
		[ -z "$opened" ] || fabric_last_words "$first_job" | sed 's/^/\t/'
		fabric_close
		opened=
	fi
}

began_s=$(date +%s)
while read -r guests rails class name <&3; do
	wanted "$name" "$class" "$@" || continue
	if [ -n "$list" ]; then
		echo "$name: $guests guests, $rails rails, $class"
	else
		# Guests are not to inherit the list: one has read from it.
		one "$guests" "$rails" "$name" 3<&-
	fi
done 3<<EOF
$(table)
EOF
[ -z "$list" ] || exit 0
echo "fabric: $FABRIC_KIND, $(($(date +%s) - began_s)) s"
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ] && [ $((passed + skipped)) -gt 0 ]
