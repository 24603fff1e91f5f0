# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
# How a suite says what failed and how much, and how its log is read. Sourced.
# A failed test is a line "FAILED name: why" at the left margin, then the test's
# own output, each line after a tab. A test that this machine does not allow is a
# line "refused: test: why" and counts as skipped; where all has to run, it has
# failed. The sum is a line "N passed, N failed, N skipped".

# Limits hold on a quiet machine. On one that is not, they are longer by a factor:
# measured once a stage, or here, for all that the stage starts.
: "${TEST_PATIENCE:=$(tests/patience.sh)}"
export TEST_PATIENCE

# As timeout, of so many seconds on a quiet machine.
within() { # seconds, command
	within_seconds=$(($1 * TEST_PATIENCE))
	shift
	timeout -k 10 "$within_seconds" "$@"
}

# Enough of a test's output to see why, and not all of one that prints for ever.
failed_lines_max=200

failed_say() { # name and why; the test's output on standard input
	echo "FAILED $*"
	tail -n $failed_lines_max | sed 's/^/\t/'
}

# All failed tests of a stage's log, with their output. A log that names none, as
# a compiler's, is shown by its end.
failed_show() { # stage, exit status, log
	failed_names='^FAILED:? '
	[ -z "${TEST_MUST_RUN:-}" ] || failed_names='^(FAILED:?|refused:) '
	if grep -qE "$failed_names" "$3"; then
		awk -v names="$failed_names" '
			$0 ~ names { on = 1; print $1 == "refused:" ? "FAILED " $0 : $0; next }
			!/^\t/ { on = 0 }
			on' "$3"
	else
		failed_say "$1: exit status $2" <"$3"
	fi
}

# The sum of a suite: sets ok, bad and skip. A suite without a sum is one test: it
# passed, or was refused, or exits with 77 (skipped), or has failed. A suite that
# exits otherwise has a failed test whatever its sum says.
# shellcheck disable=SC2034 # for who sources this
result_read() { # log, exit status
	result=$(grep -E '^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$' "$1" | tail -n 1)
	refused=$(grep -c '^refused: ' "$1")
	ok=0 bad=0 skip=0
	if [ -n "$result" ]; then
		ok=${result%% passed*}
		bad=${result#* passed, }
		bad=${bad%% failed*}
		skip=${result#* failed, }
		skip=${skip%% skipped*}
	elif [ "$2" -eq 77 ] || { [ "$2" -eq 0 ] && [ "$refused" -gt 0 ]; }; then
		skip=1
	elif [ "$2" -eq 0 ]; then
		ok=1
	fi
	if [ "$bad" -eq 0 ] && [ "$2" -ne 0 ] && [ "$2" -ne 77 ]; then
		bad=1
	fi
	refused_fail
}

# Where all has to run, the tests that the machine refused have failed.
refused_fail() { # of the sums ok, bad and skip, and refused
	[ -n "${TEST_MUST_RUN:-}" ] || return 0
	bad=$((bad + refused))
	skip=$((skip > refused ? skip - refused : 0))
}
