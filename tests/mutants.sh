#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Is each promise of the core watched by a test? Each patch of tests/mutants/
# breaks one on purpose, in a copy of the tree. The unit tests that the patch
# names must fail, or else the simulation, within 200 seeds. What does not
# apply, does not compile or is not caught has failed; tests/mutants/survivors
# has those whose survival is accepted, with the reason. At least 98 of 100 must
# be caught.
#
# tests/mutants.sh                     the ring's orderings, violations planted
#                                      for lint, then every patch
# tests/mutants.sh --quarter N         the ring's, and each fourth patch from the
#                                      N-th on (0 .. 3)
# tests/mutants.sh [--sim] NAME...     these patches; --sim: no unit tests, so
# tests/mutants.sh --sim               that the simulation alone must catch it
#
# Logs and the copies: build/mutants/.
set -u
cd "$(dirname "$0")/.." || exit 1
SEEDS=${MUTANT_SEEDS:-200}
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
quarter=
if [ "${1:-}" = --quarter ]; then
	quarter=$2
	shift 2
	case $quarter in
	[0-3]) ;;
	*)
		echo "mutants: --quarter is 0 .. 3" >&2
		exit 2
		;;
	esac
fi
names=()
number=0
for patch in tests/mutants/*.patch; do
	if [ -z "$quarter" ] || [ $((number % 4)) -eq "$quarter" ]; then
		names+=("$(basename "$patch" .patch)")
	fi
	number=$((number + 1))
done
if [ $# -gt 0 ]; then
	ring=0
	names=("$@")
fi

now() { # seconds, with a point
	echo "${EPOCHREALTIME/,/.}"
}

field() { # of a patch: Broken or Tests
	sed -n "s/^# $2: //p" "$root/tests/mutants/$1.patch"
}

# In a copy: one build folder, no optimization that costs time.
build() { # target...
	make --no-print-directory VARIANT=debug B=out "$@"
}

unit_caught() { # name, log: by which test; fails if by none
	local test by
	local tests
	tests=$(field "$1" Tests)

	for test in $tests; do
		timeout -k 5 20 "out/unit/$test" >"$2" 2>&1 && continue
		by=$(sed -n 's/^\[  FAILED  \] \([A-Za-z_][A-Za-z_0-9]*\)$/\1/p' \
			"$2" | head -n 1)
		# It did not come to an end: the last that began.
		[ -n "$by" ] || by=$(sed -n 's/^\[ RUN      \] //p' "$2" |
			tail -n 1)
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

# Prints the verdict; 0: caught, 77: it survives, which is accepted.
judge() { # name, log
	local targets=() test

	for test in $(field "$1" Tests); do
		targets+=("out/unit/$test")
	done
	if ! git apply --whitespace=nowarn "$root/tests/mutants/$1.patch" \
		>"$2" 2>&1; then
		echo "does not apply"
		return 1
	fi
	if [ $sim_only -eq 0 ]; then
		if ! build "${targets[@]}" >"$2" 2>&1; then
			echo "does not compile"
			return 1
		fi
		unit_caught "$1" "$2" && return 0
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
	echo "survives: $(field "$1" Broken)"
	return 1
}

# As it is the tree must pass what the mutants have to fail.
as_it_is() { # log
	local targets=() test
	local tests

	tests=$(for test in "${names[@]}"; do field "$test" Tests; done |
		tr ' ' '\n' | sort -u)
	[ $sim_only -eq 0 ] || tests=
	for test in $tests; do
		targets+=("out/unit/$test")
	done
	if ! build "-j$workers" "${targets[@]}" out/kvpull_sim \
		>"$1" 2>&1; then
		tail -n 40 "$1"
		echo "the tree does not compile"
		return 1
	fi
	for test in $tests; do
		if ! timeout -k 5 180 "out/unit/$test" >"$1" 2>&1; then
			tail -n 40 "$1"
			echo "$test fails without a mutant"
			return 1
		fi
	done
	if by=$(sim_caught "$1"); then
		tail -n 60 "$1"
		echo "$by, without a mutant"
		return 1
	fi
}

mutate() { # name
	local began status verdict word=FAILED

	began=$(now)
	verdict=$(judge "$1" "$work/$1.log")
	status=$?
	[ $status -eq 0 ] && word=caught
	[ $status -eq 77 ] && word=skipped
	if [ $status -eq 0 ] && [ $sim_only -eq 0 ] && [ -n "$(accepted "$1")" ]; then
		word=FAILED
		verdict="is caught, take it out of tests/mutants/survivors: $verdict"
	fi
	printf '%s: %-26s %s (%.1f s)\n' "$word" "$1" "$verdict" \
		"$(awk "BEGIN { print $(now) - $began }")"
	echo "$word" >"$work/$1.verdict"
	# Whatever the patch did to it, or did not.
	git apply -R --whitespace=nowarn "$root/tests/mutants/$1.patch" \
		>/dev/null 2>&1
}

worker() { # which: every so-many-th mutant, in a copy of its own
	local at

	cd "$work/tree$1" || exit 1
	for ((at = $1; at < ${#names[@]}; at += workers)); do
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
# The routes, as the Makefile finds them.
for file in */*.c; do
	folder=${file%/*}
	[ "$folder" = tools ] || [ -d "$work/tree0/$folder" ] ||
		cp -R "$folder" "$work/tree0" || exit 1
done
if ! (cd "$work/tree0" && as_it_is "$work/as_it_is.log"); then
	echo "$passed passed, $((failed + 1)) failed, $skipped skipped"
	exit 1
fi
for ((at = 1; at < workers; at++)); do
	cp -a "$work/tree0" "$work/tree$at" || exit 1
done
for ((at = 0; at < workers; at++)); do
	worker $at &
done
wait
caught=0
for name in "${names[@]}"; do
	case $(cat "$work/$name.verdict" 2>/dev/null) in
	caught) caught=$((caught + 1)) ;;
	skipped) skipped=$((skipped + 1)) ;;
	*) failed=$((failed + 1)) ;;
	esac
done
passed=$((passed + caught))
if [ $# -eq 0 ] && [ $((caught * 100)) -lt $((${#names[@]} * 98)) ]; then
	echo "only $caught of ${#names[@]} mutants are caught, 98 of 100 must be"
	failed=$((failed + 1))
fi
rm -rf "$work"/tree*
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ] && [ $((passed + skipped)) -gt 0 ]
