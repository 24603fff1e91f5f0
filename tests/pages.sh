#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The reference pages come from the library itself: what is between
#   .\" table: keys    and    .\" end
# is written by tests/pages/pages.c; what is between .\" header: types and such an
# end by header.awk, from the public headers, and after .\" calls: connector by
# calls.py, an entry for each call. After .\" exits: TOOL are the tool's exit
# statuses, from its own table. Pages have 80 columns. check compares, write renews. check also holds what tools/pages and
# tools/boards name against what is there (pages/words.sh).
# pages.sh check|write <build folder with libkvpull.a and the tools>
cd "$(dirname "$0")/.." || exit 1
action=$1
build=$2
out=$build/pages
mkdir -p "$out"
passed=0
failed=0

# shellcheck disable=SC2086 # "ccache gcc"
${CC:-gcc} -std=c11 -D_GNU_SOURCE -Iinclude -I. tests/pages/pages.c \
	"$build/libkvpull.a" -ljansson -lsodium -luring -lpthread -ldl \
	-o "$out/pages" || exit 1

for page in tools/kvpull.conf.5 tools/kvpull.7 tools/kvpull_connector.3 tools/kvpull_reader.3 tools/*.1; do
	new=$out/$(basename "$page")
	headers="include/kvpull/common.h include/kvpull/connector.h"
	[ "$page" != tools/kvpull_reader.3 ] || headers=include/kvpull/reader.h
	awk -v pages="$out/pages" -v build="$build" \
		-v headers="$headers" '
		/^\.\\" end/ { inside = 0; ends++ }
		!inside
		/^\.\\" (table|header|calls|exits): / {
			if ($2 == "table:")
				command = pages " " $3
			else if ($2 == "header:")
				command = "awk -v what=" $3 " -f tests/pages/header.awk " headers
			else if ($2 == "exits:")
				command = build "/" $3 " --completion mdoc"
			else
				command = "tests/pages/calls.py " $3
			while ((command | getline line) > 0)
				print line
			if (close(command) != 0)
				bad = 1
			inside = 1
			begins++
		}
		END { exit bad || inside || !begins || begins != ends }' "$page" >"$new" || {
		echo "pages: the marks of $page do not pair, or name no table"
		failed=$((failed + 1))
		continue
	}
	[ "$action" != write ] || cmp -s "$new" "$page" || cp "$new" "$page"
	if diff "$page" "$new"; then
		passed=$((passed + 1))
	else
		echo "pages: $page is not what the library says: make pages"
		failed=$((failed + 1))
	fi
done
if [ "$action" = check ]; then
	if tests/pages/words.sh "$build" && "$out/pages" json tools/boards/kvpull.json; then
		passed=$((passed + 1))
	else
		failed=$((failed + 1))
	fi
fi
echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
