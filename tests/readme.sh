#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The hosts of README.md, compiled as they stand there and run: they load the
# library and pull. Tables of the pages are compared with the library's. Argument:
# the build folder with libkvpull.so.1 and libkvpull.a.
set -u
cd "$(dirname "$0")/.." || exit 1
build=$1
out=$build/readme
passed=0
failed=0
mkdir -p "$out"
sockets=$(mktemp -d) || exit 1
trap 'rm -rf "$sockets"' EXIT

extract() { # language of the fence
	awk -v fence="^\`\`\`$1\$" '$0 ~ fence { on = 1; next }
		/^```/ { on = 0 } on' README.md
}

host() { # name, file, compiler and flags
	name=$1
	file=$2
	shift 2
	if "$@" -Wall -Wextra -Iinclude "$file" -o "$out/$name" -ldl &&
		env KVPULL_SOCKET_DIR="$sockets" LD_LIBRARY_PATH="$build" \
			timeout 20 "$out/$name"; then
		passed=$((passed + 1))
	else
		echo "README.md: the host in $name failed"
		failed=$((failed + 1))
	fi
}

extract c >"$out/host.c"
extract cpp >"$out/host.cpp"
host c "$out/host.c" "${CC:-gcc}" -std=c11
host cpp "$out/host.cpp" "${CXX:-g++}" -std=c++17

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
