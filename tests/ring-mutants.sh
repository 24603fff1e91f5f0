#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Does the stress test notice when an ordering of include/base/ring.c is missing?
#
# R0, A0, R1, A1 are each made relaxed: ThreadSanitizer must report a race in
# `ring_stress threads`. The store-load pairs (S0: tail then sleeping, in the
# writer; S1: sleeping then tail, in the reader) are made release and acquire:
# ThreadSanitizer is silent about those, `ring_stress wake` must lose a
# wake-up. The ring as it is must pass both. Nothing is skipped: what cannot be
# built or run has failed, and one core is not enough: both sides of a
# store-load pair must run at once.
#
# RING_MUTANT_RUNS: wake runs a mutant at the most (20), until one loses a
# wake-up; on two idle cores each does, within some thousand records, on a loaded
# machine about half. The ring as it is runs five times.
cd "$(dirname "$0")/.." || exit 1
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
runs=${RING_MUTANT_RUNS:-20}
threads_count=200000
wake_count=100000
passed=0
failed=0
sources='include/base/ring.c tests/stress/ring_stress.c'
flags='-std=c11 -D_GNU_SOURCE -g -pthread -Iinclude -I.'

# Both ThreadSanitizers of Debian 12 die under a large vm.mmap_rnd_bits.
fixed=
if setarch -R true 2>/dev/null; then
	fixed='setarch -R'
fi

# gcc inlines memset and memcpy without telling ThreadSanitizer.
for compiler in "${CLANG:-clang}" "${CC:-gcc} -fno-builtin"; do
	tsan="$compiler -O1 -fsanitize=thread -fno-omit-frame-pointer"
	echo 'int main(void) { return 0; }' >"$work/probe.c"
	# shellcheck disable=SC2086 # commands with arguments
	if $tsan -o "$work/probe" "$work/probe.c" 2>/dev/null &&
		$fixed "$work/probe" 2>/dev/null; then
		break
	fi
	tsan=false
done

# verdict WORD TEXT
verdict() {
	if [ "$1" = passed ]; then
		passed=$((passed + 1))
	else
		failed=$((failed + 1))
	fi
	echo "$1: $2"
}

# race NAME EXPECTED(race|none) DEFINITION...
race() {
	name=$1
	expected=$2
	shift 2
	# shellcheck disable=SC2086
	if ! $tsan $flags "$@" -o "$work/$name" $sources \
		>"$work/$name.log" 2>&1; then
		cat "$work/$name.log"
		verdict failed "$name: does not build with ThreadSanitizer"
		return
	fi
	# shellcheck disable=SC2086
	TSAN_OPTIONS='halt_on_error=1 exitcode=66' timeout 20 \
		$fixed "$work/$name" threads $threads_count \
		>"$work/$name.log" 2>&1
	status=$?
	if grep -q 'ThreadSanitizer: data race' "$work/$name.log"; then
		found=race
	elif [ $status -eq 0 ]; then
		found=none
	else
		found="exit status $status"
		tail -n 5 "$work/$name.log"
	fi
	if [ "$found" = "$expected" ]; then
		verdict passed "$name: ThreadSanitizer: $found"
	else
		verdict failed "$name: ThreadSanitizer: $found, not $expected"
	fi
}

# wake NAME EXPECTED(lost|none) DEFINITION...
wake() {
	name=$1
	expected=$2
	shift 2
	# shellcheck disable=SC2086
	if ! ${CC:-gcc} -O2 $flags "$@" -o "$work/$name" $sources \
		>"$work/$name.log" 2>&1; then
		cat "$work/$name.log"
		verdict failed "$name: does not build"
		return
	fi
	lost=0
	first=
	run=0
	most=5
	[ "$expected" = none ] || most=$runs
	while [ $run -lt "$most" ] && [ $lost -eq 0 ]; do
		run=$((run + 1))
		timeout 60 "$work/$name" wake $wake_count \
			>"$work/$name.log" 2>&1
		status=$?
		after=$(sed -n 's/^lost wake-up after \([0-9]*\) .*/\1/p' \
			"$work/$name.log")
		if [ -n "$after" ]; then
			lost=$((lost + 1))
			first="$first $after"
		elif [ $status -ne 0 ]; then
			cat "$work/$name.log"
			verdict failed "$name: exit status $status"
			return
		fi
	done
	told="$lost of $run runs of $wake_count records lost a wake-up"
	if [ -n "$first" ]; then
		told="$told (after$first records)"
	fi
	found=none
	if [ $lost -gt 0 ]; then
		found=lost
	fi
	if [ $found = "$expected" ]; then
		verdict passed "$name: $told"
	else
		verdict failed "$name: $told"
	fi
}

relaxed=memory_order_relaxed
release=memory_order_release
acquire=memory_order_acquire
race as_it_is none
race r0_relaxed race -DKVPULL_RING_R0=$relaxed
race a0_relaxed race -DKVPULL_RING_A0=$relaxed
race r1_relaxed race -DKVPULL_RING_R1=$relaxed
race a1_relaxed race -DKVPULL_RING_A1=$relaxed
wake as_it_is none
wake s0_weakened lost \
	-DKVPULL_RING_R0=$release -DKVPULL_RING_S0=$acquire
wake s1_weakened lost \
	-DKVPULL_RING_S1=$release -DKVPULL_RING_S1_LOAD=$acquire
echo "$passed passed, $failed failed, 0 skipped"
[ $failed -eq 0 ]
