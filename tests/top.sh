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
"$build/ib_pull" --dir "$work/s" --blocks 256 >"$work/serve" 2>&1 &
server=$!
listener=
pool=
trap 'kill -9 "$server" $listener 2>/dev/null; [ -z "$pool" ] || kill "$pool" 2>/dev/null; rm -rf "$work"' EXIT
. tests/claim.sh
claim_limit='timeout 10'
until grep -q '^serving' "$work/serve" || ! kill -0 "$server"; do
	sleep 0.1
done
"$build/ib_pull" --requests 3 "$work/s" >"$work/pull" 2>&1
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
# What it cannot read is named, and why.
claim 'no such folder' 1 "^not read: $work/none: No such file or directory\$" -- "$top" -1 -f "$work/none"
claim 'no such folder, for a program' 1 '"why": "No such file or directory"' \
	"^kvpull_top: not read: $work/none: " -- "$top" -j -f "$work/none"
claim 'nobody at all' 0 "$none" '^name its user with --uid, its socket_dir with --folder$' -- \
	"$top" -1 -f "$work"
# Where the sockets are on a disk the files are not beside them. /proc is none in memory.
claim 'a folder on a disk' 0 '^not read: /proc/self/fdinfo: is on a disk: look in /dev/shm/kvpull-[0-9]+$' -- \
	"$top" -1 -f /proc/self/fdinfo
claim 'a trace nowhere' 1 "^kvpull_top: --trace $work/none/t: cannot write: No such file or directory\$" -- \
	"$top" -t "$work/none/t" -f "$work/s"
mkdir "$work/odd"
cp "$work/s/$server"-*.status "$work/odd/1-1.status"
truncate -s 5000 "$work/odd/1-1.status"
cp "$work/s/$server"-*.status "$work/odd/2-2.status"
chmod 600 "$work/odd/2-2.status"
printf '\377\377' | dd of="$work/odd/2-2.status" bs=1 seek=8 conv=notrunc 2>/dev/null
ln -s /dev/null "$work/odd/3-3.status"
claim 'odd files' 0 "not read: $work/odd/1-1.status: is cut, or no status file" \
	"not read: $work/odd/2-2.status: is of another version" \
	"not read: $work/odd/3-3.status: Too many levels" -- "$top" -1 -f "$work/odd"
claim 'odd files, as a metric' 0 '^kvpull_top_unread 3$' -- "$top" -p -f "$work/odd"
claim 'a full disk' 1 '^kvpull_top: cannot write: No space left on device$' -- \
	sh -c "\"$top\" -j -f \"$work/s\" >/dev/full"
claim 'after nobody' 1 '^kvpull_top: no status file of 1; kvpull_top --all --once lists ' -- "$top" -a 1 -f "$work/s"
[ -s "$work/out" ] && echo "tables of nobody" && failed=$((failed + 1))
claim_limit='timeout 1'
for listen in -l --listen; do
	claim "$listen" 124 '^listening on port [0-9]+$' -- "$top" "$listen" 127.0.0.1:0 -f "$work/s"
done
claim_limit='timeout 10'
# A pool's files lie in its own folder if that is in memory.
"$build/ib_pull" --pool --owners 1 --consumers 2 --duration 20 --blocks 256 --size 4096 >"$work/pool" 2>&1 &
pool=$!
tries=100
shown=/dev/shm/kvpull-$(id -u)
until [ "$("$top" -j -f "$shown" 2>/dev/null | grep -c "\"readers_live\": 2,")" -ge 1 ] || [ $((tries -= 1)) -eq 0 ]; do
	[ "$(stat -f -c %T /tmp)" != tmpfs ] || shown=$(echo "/tmp/kvpull-pool-$pool"-*)
	sleep 0.1
done
claim 'a pool' 0 '^kvpull_top +[0-9:]+ UTC +[0-9]+ workers, [0-9]+ pools, ' \
	'^owner +[0-9]+ running .* owner +256 +2 +0 ' '^reader +[0-9]+ running .* reader +0 +0 +1 ' \
	'^READER +PID' '^owner +[0-9]+ shm +up ' -- "$top" -1 -f "$shown"
claim 'its view' 0 '^POOL +PID STATE ' '^owner +[0-9]+ running .* owner +256 +2 +0 ' -- "$top" -1 -f "$shown" pools
claim 'its metrics' 0 '^kvpull_reader_chunks\{engine="owner",rank="0",pid="[0-9]+"\} 256$' -- "$top" -p -f "$shown"
kill "$pool" 2>/dev/null
wait "$pool" 2>/dev/null
kill -9 "$server"
wait "$server" 2>/dev/null
claim 'one that is gone' 0 "process-gone: producer pid $server " -- "$top" -1 -f "$work/s"
claim all 0 '^kvpull_top .* 2 workers, ' " $server gone " -- "$top" --all --once -f "$work/s"
claim 'its last events' 0 'ago  take +slot 0 generation [0-9]+  key ' \
	'ago  claim +slot 0 generation [0-9]+  consumer rank 0$' \
	'ago  end +slot 0 generation [0-9]+  consumer, released$' -- "$top" -a "$server" -f "$work/s"
for after in -a --after; do
	claim "$after" 0 "\"pid\": $server," -- "$top" "$after" "$server" -j -f "$work/s"
done
echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
