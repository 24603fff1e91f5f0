#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The hosts of README.md, compiled as they stand there and run: they load the
# library and pull. The table of keys is compared with the library's. Argument:
# the build folder with libkvpull.so.1.
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

# The table of section 6 is the library's own, word for word.
config_table() {
	cat >"$out/config.c" <<'END'
#include <stdio.h>
#include "plugin/config/config.h"
int main(void)
{
	static char text[65536];
	return kvpull_config_describe(text, sizeof(text)) >= sizeof(text) ||
	       fputs(text, stdout) < 0;
}
END
	"${CC:-gcc}" -std=c11 -D_GNU_SOURCE -Iinclude -I. "$out/config.c" \
		"$build/libkvpull.a" -ljansson -lsodium -luring -lpthread -ldl \
		-o "$out/config" &&
		"$out/config" | grep '^|' >"$out/config.library" &&
		sed -n '/^## 6\./,/^## 7\./p' README.md | grep '^|' >"$out/config.readme" &&
		diff "$out/config.readme" "$out/config.library"
}

if config_table; then
	passed=$((passed + 1))
else
	echo "README.md: section 6 is not what the library describes"
	failed=$((failed + 1))
fi
echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
