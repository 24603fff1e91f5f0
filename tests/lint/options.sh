#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Each option of a tool's page is used by a test: as a word, long ones in a file
# that names the tool, short ones in a command of the tool or of its
# variable, or in a loop over spellings.
set -u
cd "$(dirname "$0")/../.." || exit 1
passed=0
failed=0
# Names of variables in scripts, and options, which have no blanks.
# shellcheck disable=SC2016,SC2013
for tool in ib_pull kvpull_top kvpull_doctor; do
	case $tool in
	ib_pull) called='ib_pull|\$tool' ;;
	kvpull_top) called='kvpull_top|\$top' ;;
	*) called='kvpull_doctor|\$tool|\$doctor' ;;
	esac
	files=$(git grep -lE "$tool" -- tests ':!tests/lint/options.sh' | grep -vE '\.(md|txt)$')
	# A command goes on behind a backslash at its line's end.
	commands=$(for file in $files; do sed -e ':a' -e '/\\$/N; s/\\\n//; ta' "$file"; done |
		grep -E "$called|^for ")
	for option in $(grep '^\.It Fl ' "tools/$tool.1" |
		sed 's/^\.It //; s/ Ar [^ ]*//g; s/ ,//g; s/Fl //g; s/[^ ]*/-&/g'); do
		pattern="(^|[^[:alnum:]-])$option([^[:alnum:]-]|\$)"
		# shellcheck disable=SC2086 # names without blanks
		if case $option in --*) cat $files ;; *) echo "$commands" ;; esac |
			grep -qE -e "$pattern"; then
			passed=$((passed + 1))
			continue
		fi
		echo "options: no test uses $option of $tool(1)"
		failed=$((failed + 1))
	done
done
echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
