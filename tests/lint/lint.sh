#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Everything that reads the code without running it. lint.sh [check...]: some
# of them only. A tool that is missing is a failure (make deps WITH=lint).
# FLAGS and STRICT_FLAGS come from the Makefile.
# shellcheck disable=SC2016 # single quotes are for the shells that each starts
cd "$(dirname "$0")/../.." || exit 1
FLAGS=${FLAGS:--std=c11 -D_GNU_SOURCE -Iinclude -I. -DKVPULL_VERSION=\'\"0\"\'}
STRICT_FLAGS=${STRICT_FLAGS:--Wall -Wextra}
CHECKS=${*:-banned language layers rooms sizes mutants format shellcheck codespell mandoc cppcheck analyzer tidy}
jobs=$(nproc 2>/dev/null || echo 2)
log=$(mktemp) || exit 1
trap 'rm -f "$log"' EXIT
export FLAGS STRICT_FLAGS
. tests/result.sh
passed=0
failed=0
skipped=0

files() { tests/lint/files.sh "$@"; }
library() { files c | grep -vE '^(examples|include|tests|tools)/'; }
scripts() { # by name or by first line
	files sh
	files | grep -v '\.sh$' | while IFS= read -r file; do
		head -n 1 "$file" | grep -qE '^#!.*[/ ](ba)?sh' && echo "$file"
	done
}
each() { # command line with $0 for the file; files on standard input
	xargs -r -P "$jobs" -I '{}' sh -c "$1" '{}'
}

check_banned() { tests/lint/banned.sh; }
check_language() { python3 tests/lint/language.py; }
check_layers() {
	python3 tests/lint/floors.py "${B:-build/release}" && tests/lint/layers.sh
}
check_rooms() { tests/lint/rooms.sh "${B:-build/release}"; }
check_sizes() { tests/lint/sizes.sh; }
check_mutants() { tests/mutants.py check; }
check_format() {
	clang-format --version | grep -q 'version 14\.' ||
		{ echo "refused: clang-format 14 is pinned, this is another"; return 77; }
	# Print a line for each file that differs; `make format` shows the rest.
	files c h | each 'clang-format "$0" | cmp -s - "$0" ||
		{ echo "format: $0: make format"; exit 1; }'
}
check_shellcheck() { scripts | xargs shellcheck -x; }
check_codespell() {
	files | grep -vE '^tests/fuzz/corpus/|\.abi$|^LICENSE$' |
		xargs codespell --ignore-words tests/lint/codespell.txt
}
check_mandoc() {
	files 1 3 5 7 | xargs -r mandoc -T lint -W warning || return 1
	# A page fits a terminal of 80 columns, lines that are shown as they stand, too.
	files 1 3 5 7 | each 'mandoc -T ascii -O width=78 "$0" | col -b | awk -v page="$0" "
		length > 80 { print page \": \" length \" columns: \" \$0; bad = 1 }
		END { exit bad }"'
}
# Calls that one macro declares in one line are one function to cppcheck.
check_cppcheck() {
	files c | cppcheck --quiet --std=c11 --enable=warning,performance,portability \
		--inline-suppr --suppress='ctunullpointer:tests/fake/cuda/*' --suppress=incorrectStringBooleanError --suppress=missingIncludeSystem --error-exitcode=1 \
		-j "$jobs" -D_GNU_SOURCE -Iinclude -I. --file-list=/dev/stdin
}
check_analyzer() {
	library | each 'eval "gcc $FLAGS $STRICT_FLAGS -O1 -fanalyzer -Werror -c" \
		-o /dev/null "$0"'
}
# The paths of tests are run under the sanitizers: to search them by clang's
# analyzer, too, took a third of all of lint.
check_tidy() {
	files c | each 'case $0 in tests/*) paths=--checks=-clang-analyzer-* ;; *) paths= ;; esac
		eval "clang-tidy --quiet $paths \"\$0\" -- $FLAGS" 2>/dev/null'
}

for check in $CHECKS; do
	case $check in
	format) tool=clang-format ;;
	analyzer) tool=gcc ;;
	tidy) tool=clang-tidy ;;
	language | mutants) tool=python3 ;;
	banned | layers | sizes) tool="awk" ;;
	rooms) tool="nm" ;;
	*) tool=$check ;;
	esac
	if ! command -v "$tool" >/dev/null; then
		echo "lint: $tool is missing: make deps WITH=lint"
		failed=$((failed + 1))
		continue
	fi
	began=$(date +%s)
	"check_$check" >"$log" 2>&1
	status=$?
	took=$(($(date +%s) - began))
	case $status in
	0)
		passed=$((passed + 1))
		printf '  LINT	%-12s ok, %d s\n' "$check" "$took"
		;;
	77)
		skipped=$((skipped + 1))
		cat "$log"
		;;
	*)
		failed=$((failed + 1))
		failed_say "lint $check: $took s" <"$log"
		;;
	esac
done
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
