# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
# Claims about a program's output and exit status, as a shell function. Sourced
# with $work, a folder: the last command's streams are in out and error there.
# $claim_limit, if set, is a command that runs them, as timeout. $passed
# and $failed count.
: "${work:?}"
passed=0
failed=0
claim_limit=

claim() { # name, exit status, patterns that its output must have -- command
	name=$1
	status=$2
	shift 2
	: >"$work/patterns"
	while [ "$1" != -- ]; do
		echo "$1" >>"$work/patterns"
		shift
	done
	shift
	$claim_limit "$@" >"$work/out" 2>"$work/error"
	got=$?
	right=1
	[ $got -eq "$status" ] || right=0
	while IFS= read -r pattern; do
		cat "$work/out" "$work/error" | grep -qE -- "$pattern" || {
			echo "no line like: $pattern"
			right=0
		}
	done <"$work/patterns"
	if [ $right -eq 1 ]; then
		passed=$((passed + 1))
		return
	fi
	failed=$((failed + 1))
	echo "FAILED $name: exit status $got, expected $status"
	cat "$work/out" "$work/error"
}
