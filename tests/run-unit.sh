#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Run each unit test binary; print the failing output, then one summary line.
passed=0
failed=0
skipped=0
for binary in "$@"; do
	output=$(CMOCKA_MESSAGE_OUTPUT=stdout timeout 300 "$binary" 2>&1)
	status=$?
	ok=$(printf '%s\n' "$output" | grep -c '^\[       OK \]')
	bad=$(printf '%s\n' "$output" | grep '^\[  FAILED  \] [a-z]' | sort -u | wc -l)
	skip=$(printf '%s\n' "$output" | grep '^\[  SKIPPED \] [a-z]' | sort -u | wc -l)
	if [ "$status" -ne 0 ] && [ "$bad" -eq 0 ]; then
		bad=1
	fi
	if [ "$status" -ne 0 ] || [ "$ok" -eq 0 ] && [ "$skip" -eq 0 ]; then
		printf '%s\n' "$output"
		echo "$binary: exit status $status, $ok ok, $bad failed"
		[ "$bad" -eq 0 ] && bad=1
	fi
	passed=$((passed + ok))
	failed=$((failed + bad))
	skipped=$((skipped + skip))
done
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
