#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Tables of README.md and of the manual are compared with the library's. Argument:
# the build folder with libkvpull.a.
set -u
cd "$(dirname "$0")/.." || exit 1
build=$1
out=$build/readme
passed=0
failed=0
mkdir -p "$out"

# Tables of the pages are the library's own, word for word.
tests/pages.sh check "$build" >"$out/pages.log" 2>&1
grep -v ' skipped$' "$out/pages.log"
line=$(tail -n 1 "$out/pages.log")
case $line in
*" passed, "*" failed, 0 skipped")
	passed=$((passed + ${line%% passed*}))
	line=${line#* passed, }
	failed=$((failed + ${line%% failed*}))
	;;
*) failed=$((failed + 1)) ;;
esac
echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
