#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A runner that is killed leaves no guest behind: neither the guest's own process
# nor what that has started. The guest here is a shell with a child.
# shellcheck source=tests/fabric/fabric.sh
. "$(dirname "$0")/fabric.sh"

if [ "${1:-}" = runner ]; then
	# shellcheck disable=SC2016 # for the shell that it starts
	$fabric_child sh -c 'sleep 60 & echo $$ $! >"$0"; wait' "$2" &
	fabric_guard $!
	wait
	exit
fi

told=$(mktemp) || exit 1
"$0" runner "$told" &
runner=$!
trap 'rm -f "$told"' EXIT
tries=0
while [ ! -s "$told" ] && [ "$tries" -lt $((100 * ${TEST_PATIENCE:-1})) ]; do
	sleep 0.1
	tries=$((tries + 1))
done
sleep 0.3
read -r guest child <"$told"
kill -0 "$guest" && kill -0 "$child" || exit 1
kill -KILL "$runner"
wait "$runner" 2>/dev/null
tries=0
while kill -0 "$guest" 2>/dev/null || kill -0 "$child" 2>/dev/null; do
	tries=$((tries + 1))
	if [ "$tries" -gt $((100 * ${TEST_PATIENCE:-1})) ]; then
		echo "a guest runs on: $guest or its child $child"
		kill -KILL "$guest" "$child" 2>/dev/null
		echo "0 passed, 1 failed, 0 skipped"
		exit 1
	fi
	sleep 0.1
done
echo "1 passed, 0 failed, 0 skipped"
