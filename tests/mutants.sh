#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Does a test notice each promise of the core that is broken? Each row of
# tests/mutants/*.txt (tests/mutants.py has the format) breaks one, in a copy of
# the tree. A unit test that the row names must fail, or else the simulation,
# within 200 seeds. A mutant that does not apply, does not compile or is not caught
# has failed; tests/mutants/survivors lists those whose survival is accepted, with
# the reason. At least 98 of 100 must be caught.
#
# tests/mutants.sh                     the ring's orderings, violations planted
#                                      for lint, then every row
# tests/mutants.sh --half N            the same, and each second row from the
#                                      N-th on (0, 1)
# tests/mutants.sh --table FILE        the rows of another table: those that
#                                      tests/mutants/draw.py drew
# tests/mutants.sh [--sim] NAME...     these rows; --sim: no unit tests, so that
# tests/mutants.sh --sim               the simulation alone must catch them
#
# Logs and the copies: build/mutants/.
set -u
cd "$(dirname "$0")/.." || exit 1
SEEDS=${MUTANT_SEEDS:-200}
LIMIT=5 # seconds of a test, beside five times what it took without a mutant
# Tests that the Makefile links with --wrap.
WRAPPED='^out/unit/(test_device_thread|test_route_keys|test_route_ports|test_share_verbs|test_slots)$'
root=$PWD
work=$root/build/mutants
workers=$(nproc 2>/dev/null || echo 2)
[ "$workers" -gt 4 ] && workers=4
sim_only=0
ring=1

# Not our parent's: its jobserver is not for what runs in the background, and
# variables of its command line are not for the copies.
unset MAKEFLAGS MFLAGS MAKELEVEL MAKEOVERRIDES
# The copies lie in a working tree of git, and are not of it.
export GIT_CEILING_DIRECTORIES=$work
export CMOCKA_MESSAGE_OUTPUT=stdout

if [ "${1:-}" = --sim ]; then
	sim_only=1
	ring=0
	shift
fi
half=
if [ "${1:-}" = --half ]; then
	half=${2:-}
	case $half in
	[01]) ;;
	*)
		echo "mutants: --half is 0 or 1" >&2
		exit 2
		;;
	esac
	shift 2
fi
tables=()
if [ "${1:-}" = --table ]; then
	tables=(--table "$(realpath "$2")")
	ring=0
	shift 2
fi
[ $# -eq 0 ] || ring=0
table=$(tests/mutants.py "${tables[@]}" list "$@") || {
	echo "$table"
	exit 1
}
declare -A tests_of broken_of
names=()
number=0
while IFS=$'\t' read -r name tests broken; do
	if [ -z "$half" ] || [ $((number % 2)) -eq "$half" ]; then
		names+=("$name")
		tests_of[$name]=$tests
		broken_of[$name]=$broken
	fi
	number=$((number + 1))
done <<<"$table"

now() { # seconds, with a point
	echo "${EPOCHREALTIME/,/.}"
}

# In a copy: one build folder, no optimization that costs time. A drawn mutant asks
# all tests: these are linked once, to a library that is made anew. A test that
# wraps a function of the library is linked to the archive, with each mutant.
build() { # target...
	local libs=libtested.so shared=()

	[[ $1 =~ $WRAPPED ]] && libs=libkvpull.a
	[ ${#tables[@]} -eq 0 ] ||
		shared=(CFLAGS=-fvisibility=default LDFLAGS="-Wl,-rpath,$PWD/out"
			TEST_LIBS="out/libfake.a out/$libs")
	make --no-print-directory VARIANT=debug B=out "${shared[@]}" "$@"
}

# A test that its limit ended may have hung, or the machine is busier than when
# the limit was made: it runs again, with as many times the limit.
unit_run() { # test, log: its status, 124 where it does not end
	local limit times status

	limit=$((LIMIT + 5 * $(cat "$work/$1.took")))
	timeout -k 5 "$limit" "out/unit/$1" >"$2" 2>&1
	status=$?
	[ $status -eq 124 ] || return $status
	times=$(tests/patience.sh)
	[ "$times" -gt 1 ] || return $status
	timeout -k 5 $((limit * times)) "out/unit/$1" >"$2" 2>&1
}

unit_caught() { # name, log: by which test; 1: by none, 2: it does not compile
	local test by status wanted built=

	for test in ${tests_of[$1]}; do
		wanted=out/unit/$test
		[ ${#tables[@]} -eq 0 ] || [[ $wanted =~ $WRAPPED ]] ||
			wanted=out/libtested.so
		if [ "$wanted" != "$built" ] && ! build "$wanted" >"$2" 2>&1; then
			echo "does not compile"
			return 2
		fi
		built=$wanted
		unit_run "$test" "$2" && continue
		status=$?
		by=$(sed -n 's/^\[  FAILED  \] \([A-Za-z_][A-Za-z_0-9]*\)$/\1/p' \
			"$2" | head -n 1)
		# The test program did not end: the last test that began.
		[ -n "$by" ] || by=$(sed -n 's/^\[ RUN      \] //p' "$2" |
			tail -n 1)
		[ $status -lt 124 ] || by="${by:-} (ends with status $status)"
		echo "$test: ${by:-does not run}"
		return 0
	done
	return 1
}

sim_caught() { # log
	local status by

	timeout -k 5 300 out/kvpull_sim --seeds "$SEEDS" >"$1" 2>&1
	status=$?
	[ $status -eq 0 ] && return 1
	by=$(sed -n 's/^\(seed [0-9]*\) turn [0-9]* at [0-9.]* ms: /\1: /p' \
		"$1" | head -n 1)
	echo "sim ${by:-ends with status $status}"
}

accepted() { # name: the reason why it may survive
	sed -n "s/^$1 //p" "$root/tests/mutants/survivors"
}

# Prints the verdict on the tree, which is changed; 0: caught, 77: it survives,
# which is accepted.
judge() { # name, log
	if [ $sim_only -eq 0 ]; then
		unit_caught "$1" "$2"
		case $? in
		0) return 0 ;;
		2) return 1 ;;
		esac
	fi
	if ! build out/kvpull_sim >"$2" 2>&1; then
		echo "does not compile"
		return 1
	fi
	sim_caught "$2" && return 0
	if [ $sim_only -eq 0 ] && [ -n "$(accepted "$1")" ]; then
		echo "survives, accepted: $(accepted "$1")"
		return 77
	fi
	echo "survives: ${broken_of[$1]}"
	return 1
}

# As it is the tree must pass what the mutants have to fail.
as_it_is() { # log
	local targets=() wrapped=() test
	local tests

	tests=$(printf '%s\n' "${tests_of[@]}" | tr ' ' '\n' | sort -u)
	[ $sim_only -eq 0 ] || tests=
	for test in $tests; do
		if [[ out/unit/$test =~ $WRAPPED ]]; then
			wrapped+=("out/unit/$test")
		else
			targets+=("out/unit/$test")
		fi
	done
	if ! build out/kvpull_sim "-j$workers" "${targets[@]}" >"$1" 2>&1 ||
		! build "${wrapped[@]:-out/kvpull_sim}" "-j$workers" >>"$1" 2>&1; then
		tail -n 40 "$1"
		echo "the tree does not compile"
		return 1
	fi
	if by=$(sim_caught "$1"); then
		tail -n 60 "$1"
		echo "$by, without a mutant"
		return 1
	fi
	# Names without blanks; single quotes are for the shell of each test.
	# shellcheck disable=SC2086,SC2016
	printf '%s\n' $tests | xargs -r -P "$workers" -I '{}' bash -c '
		began=$SECONDS
		if timeout -k 5 180 "out/unit/$0" >"$0.log" 2>&1; then
			echo $((SECONDS - began)) >"../$0.took"
			exit
		fi
		tail -n 40 "$0.log"
		echo "$0 fails without a mutant"
		exit 1' '{}'
}

mutate() { # name
	local began status verdict word=FAILED file files

	began=$(now)
	if files=$("$root/tests/mutants.py" "${tables[@]}" apply "$1" .); then
		verdict=$(judge "$1" "$work/$1.log")
		status=$?
		for file in $files; do
			cp "$work/clean/$file" "$file"
		done
	else
		verdict=$files
		status=1
	fi
	[ $status -eq 0 ] && word=caught
	[ $status -eq 77 ] && word=skipped
	if [ $status -eq 0 ] && [ $sim_only -eq 0 ] && [ -n "$(accepted "$1")" ]; then
		word=FAILED
		verdict="is caught, take it out of tests/mutants/survivors: $verdict"
	fi
	printf '%s: %-26s %s (%.1f s)\n' "$word" "$1" "$verdict" \
		"$(awk "BEGIN { print $(now) - $began }")"
	echo "$word" >"$work/$1.verdict"
}

take() { # print the index of the next mutant; fails when all are taken
	local at

	exec {lock}<>"$work/next"
	flock "$lock"
	at=$(cat "$work/next")
	echo $((at + 1)) >"$work/next"
	exec {lock}>&-
	echo "$at"
	[ "$at" -lt ${#names[@]} ]
}

# Mutants of one file follow one another, so that little is compiled twice.
worker() { # which: in a copy of its own
	local at

	cd "$work/tree$1" || exit 1
	while at=$(take); do
		mutate "${names[at]}"
	done
}

passed=0
failed=0
skipped=0
if [ $ring -eq 1 ]; then
	for suite in tests/ring-mutants.sh tests/lint/planted.sh; do
		line=$($suite | tee /dev/stderr | tail -n 1)
		if [[ $line =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed,\ ([0-9]+)\ skipped$ ]]; then
			passed=$((passed + BASH_REMATCH[1]))
			failed=$((failed + BASH_REMATCH[2]))
			skipped=$((skipped + BASH_REMATCH[3]))
		else
			failed=$((failed + 1))
		fi
	done
fi

rm -rf "$work"
mkdir -p "$work/tree0" || exit 1
cp -R Makefile include plugin tests "$work/tree0" || exit 1
# The routes and the tools, as the Makefile finds them.
for file in */*.c; do
	folder=${file%/*}
	[ "$folder" = examples ] || [ -d "$work/tree0/$folder" ] ||
		cp -R "$folder" "$work/tree0" || exit 1
done
cp -R "$work/tree0" "$work/clean" || exit 1
began=$SECONDS
if ! (cd "$work/tree0" && as_it_is "$work/as_it_is.log"); then
	echo "$passed passed, $((failed + 1)) failed, $skipped skipped"
	exit 1
fi
echo "built, and passed as it is: $((SECONDS - began)) s"
began=$SECONDS
echo 0 >"$work/next"
for ((at = 1; at < workers; at++)); do
	cp -a "$work/tree0" "$work/tree$at" || exit 1
done
for ((at = 0; at < workers; at++)); do
	worker $at &
done
wait
echo "${#names[@]} mutants: $((SECONDS - began)) s"
caught=0
for name in "${names[@]}"; do
	case $(cat "$work/$name.verdict" 2>/dev/null) in
	caught) caught=$((caught + 1)) ;;
	skipped) skipped=$((skipped + 1)) ;;
	*) failed=$((failed + 1)) ;;
	esac
done
passed=$((passed + caught))
if [ $# -eq 0 ] && [ ${#tables[@]} -eq 0 ] && [ $((caught * 100)) -lt $((${#names[@]} * 98)) ]; then
	echo "only $caught of ${#names[@]} mutants are caught, 98 of 100 must be"
	failed=$((failed + 1))
fi
rm -rf "$work"/tree* "$work/clean"
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ] && [ $((passed + skipped)) -gt 0 ]
