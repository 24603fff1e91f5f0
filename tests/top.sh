#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# kvpull_top's options as its manual says them, each in both spellings, on a
# producer that lives and after it was killed. Argument: the build folder.
set -u
cd "$(dirname "$0")/.." || exit 1
build=$(cd "$1" && pwd)
top=$build/kvpull_top
# In memory, where status files lie in the folder of the sockets.
work=$(mktemp -d -p /dev/shm) || exit 1
mkdir -m 700 "$work/s"
"$build/ib_pull" --dir "$work/s" --pool 256 >"$work/serve" 2>&1 &
server=$!
listener=
trap 'kill -9 "$server" $listener 2>/dev/null; rm -rf "$work"' EXIT
. tests/claim.sh
claim_limit='timeout 10'
until grep -q '^serving' "$work/serve" || ! kill -0 "$server"; do
	sleep 0.1
done
one='^kvpull_top +[0-9:]+ UTC +1 workers, '
none='^kvpull_top +[0-9:]+ UTC +0 workers, '

claim once 0 "$one" " $server running " -- "$top" -1 -f "$work/s"
claim 'once, in words' 0 "$one" -- "$top" --once --folder "$work/s"
claim oldest 0 "$one" -- "$top" -o -1 -f "$work/s"
claim 'oldest, in words' 0 "$one" -- "$top" --oldest --once -f "$work/s"
for json in -j --json; do
	claim "$json" 0 "\"pid\": $server," -- "$top" "$json" -f "$work/s"
done
for text in -p --prometheus; do
	claim "$text" 0 '^# TYPE kvpull_worker_holds_taken_total counter$' \
		'^kvpull_worker_holds_taken_total\{' -- "$top" "$text" -f "$work/s"
done
claim uid 0 "$one" -- "$top" -u "$(id -u)" -1 -f "$work/s"
claim 'uid of nobody' 0 "$none" -- "$top" --uid 65533 --once
for trace in -t --trace; do
	claim "$trace" 0 -- "$top" "$trace" "$work/trace" -f "$work/s"
	claim "its file" 0 '"traceEvents"' -- cat "$work/trace"
	rm -f "$work/trace"
done
for help in -h --help; do
	claim "$help" 0 '^usage: kvpull_top ' -- "$top" "$help"
done
for version in -V --version; do
	claim "$version" 0 '^kvpull_top [0-9]+\.[0-9]+\.[0-9]+$' -- "$top" "$version"
done
for interval in -i --interval; do
	claim "$interval" 2 '^kvpull_top: --interval is 100 \.\. 60000 ms, not no' -- "$top" "$interval" no -f "$work/s"
done
claim_limit='timeout 1'
for listen in -l --listen; do
	claim "$listen" 124 '^listening on port [0-9]+$' -- "$top" "$listen" 127.0.0.1:0 -f "$work/s"
done
claim_limit='timeout 10'
kill -9 "$server"
wait "$server" 2>/dev/null
claim 'one that is gone' 0 "process-gone: producer pid $server " -- "$top" -1 -f "$work/s"
claim all 0 "$one" " $server gone " -- "$top" --all --once -f "$work/s"
for after in -a --after; do
	claim "$after" 0 "\"pid\": $server," -- "$top" "$after" "$server" -j -f "$work/s"
done
echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
