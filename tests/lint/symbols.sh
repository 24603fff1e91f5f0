#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The library exports exactly the names between global: and local: of its map,
# with its version node.
# symbols.sh <libkvpull.so> <kvpull.map>
library=$1
map=$2
want=$(awk '/global:/ { on = 1; next } /local:/ { on = 0 }
	on { gsub(/[ \t;]/, ""); if ($0 != "") print }' "$map" | sort)
node=$(awk 'NR == 1 { print $1 }' "$map")
have=$(nm -D --defined-only "$library" | awk '{ print $NF }' |
	sed 's/@.*//' | grep -vx "$node" | sort)
if [ -n "$want" ] && [ "$want" = "$have" ]; then
	echo "1 passed, 0 failed, 0 skipped"
	exit 0
fi
echo "symbols: $map wants:"
echo "$want" | sed 's/^/	/'
echo "symbols: $library exports:"
echo "$have" | sed 's/^/	/'
echo "0 passed, 1 failed, 0 skipped"
exit 1
