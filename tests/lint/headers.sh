#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Each header compiles alone; the public ones in C++17 and strict C11 as well.
# CC, CXX, FLAGS and STRICT_FLAGS come from the Makefile.
cd "$(dirname "$0")/../.." || exit 1
CC=${CC:-gcc}
CXX=${CXX:-g++}
FLAGS=${FLAGS:--std=c11 -D_GNU_SOURCE -Iinclude -I.}
STRICT_FLAGS=${STRICT_FLAGS:--Wall -Wextra}
passed=0
failed=0

try() { # name, compiler and flags
	name=$1
	shift
	# The second inclusion tests the guard.
	if printf '#include "%s"\n#include "%s"\n' "$header" "$header" |
		"$@" -fsyntax-only -; then
		passed=$((passed + 1))
	else
		echo "headers: $header does not compile alone ($name)"
		failed=$((failed + 1))
	fi
}

for header in $(tests/lint/files.sh h); do
	eval "try C11 $CC $FLAGS $STRICT_FLAGS -Werror -x c"
done
public="-Wall -Wextra -Wpedantic -Werror -Iinclude -I."
for header in include/kvpull/*.h; do
	# shellcheck disable=SC2086 # CC may be two words
	try "C11, no extensions" $CC -std=c11 $public -x c
	# shellcheck disable=SC2086
	try "C++17" "$CXX" -std=c++17 $public -x c++
done
echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
