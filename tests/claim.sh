# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
# Claims about a program's output and exit status, as a shell function. Sourced,
# at the top of the tree, with $work, a folder: the last command's streams are in
# out and error there. $claim_limit, if set, is a command that runs them, as
# timeout. $passed, $failed and $skipped count.
: "${work:?}"
. tests/result.sh
passed=0
failed=0
skipped=0
claim_limit=

claim() { # name, exit status, patterns that its output must have -- command
	claim_name=$1
	claim_status=$2
	shift 2
	: >"$work/patterns"
	while [ "$1" != -- ]; do
		echo "$1" >>"$work/patterns"
		shift
	done
	shift
	$claim_limit "$@" >"$work/out" 2>"$work/error"
	claim_got=$?
	: >"$work/missing"
	while IFS= read -r claim_pattern; do
		grep -qE -- "$claim_pattern" "$work/out" "$work/error" ||
			echo "no line like: $claim_pattern" >>"$work/missing"
	done <"$work/patterns"
	if [ $claim_got -eq "$claim_status" ] && [ ! -s "$work/missing" ]; then
		passed=$((passed + 1))
		return
	fi
	failed=$((failed + 1))
	cat "$work/missing" "$work/out" "$work/error" |
		failed_say "$claim_name: exit status $claim_got, expected $claim_status"
}

# Asked before claims that need a right which containers, chroots and kernels
# refuse: they are skipped then, each with a line that says why.
may() { # how many claims, right -- a command that uses it
	claim_count=$1
	claim_name=$2
	shift 3
	"$@" >"$work/may" 2>&1 && return
	skipped=$((skipped + claim_count))
	for claim_number in $(seq "$claim_count"); do
		echo "refused: $claim_name ($claim_number of $claim_count): $(tail -n 1 "$work/may")"
	done
	return 1
}

# A function of the suite's own, whose name says what is so. It needs no limit,
# and may look at what the last command said.
check() { # function and its arguments
	if "$@" >"$work/checked" 2>&1; then
		passed=$((passed + 1))
		return
	fi
	failed=$((failed + 1))
	failed_say "$*" <"$work/checked"
}

# A terminal adds carriage returns to what the command prints.
on_a_terminal() { # command
	python3 -c 'import pty, sys
sys.exit(pty.spawn(sys.argv[1:]) >> 8)' "$@"
}
