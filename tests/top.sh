#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# kvpull_top's options as its manual says them, each in both spellings, on a
# producer that lives and after it was killed. Argument: the build folder.
set -u
cd "$(dirname "$0")/.." || exit 1
build=$(cd "$1" && pwd)
top=$build/kvpull_top
# A status file takes 0.5 MiB then, not 4.5: a container's /dev/shm has 64.
export KVPULL_MAX_HOLDS=256
# In memory, where status files lie in the folder of the sockets.
work=$(mktemp -d -p /dev/shm) || exit 1
mkdir -m 700 "$work/s"
"$build/ib_pull" --dir "$work/s" --blocks 256 >"$work/serve" 2>&1 &
server=$!
writer=
pool=
trap 'kill -9 "$server" $writer 2>/dev/null; [ -z "$pool" ] || kill "$pool" 2>/dev/null; rm -rf "$work"' EXIT
. tests/claim.sh
claim_limit='within 10'
until grep -q '^serving' "$work/serve" || ! kill -0 "$server"; do
	sleep 0.1
done
"$build/ib_pull" --requests 3 "$work/s" >"$work/pull" 2>&1
one='^kvpull_top +[0-9:]+ UTC +1 workers, '
none='^kvpull_top +[0-9:]+ UTC +0 workers, '

claim once 0 "$one" " $server running " -- "$top" -1 -f "$work/s"
claim 'once, in words' 0 "$one" -- "$top" --once --folder "$work/s"
claim 'a folder that is named twice' 0 "$one" -- "$top" -1 -f "$work/s" -f "$work/s/"
for json in -j --json; do
	claim "$json" 0 "\"pid\": $server," '"gpus": \[\]' -- "$top" "$json" -f "$work/s"
done
for text in -p --prometheus; do
	claim "$text" 0 '^# TYPE kvpull_worker_holds_taken_total counter$' \
		'^kvpull_worker_holds_taken_total\{' -- "$top" "$text" -f "$work/s"
done
# A counter, and nothing else, ends in _total; a help ends in a full stop.
types_are_right() {
	awk '/^# HELP/ && !/\.$/ { print; bad = 1 }
		/^# TYPE/ && ($4 == "counter") != ($3 ~ /_total$/) { print; bad = 1 }
		END { exit bad }' "$work/out"
}
check types_are_right
claim uid 0 "$one" -- "$top" -u "$(id -u)" -1 -f "$work/s"
claim 'uid by name' 0 "$one" -- "$top" -u "$(id -un)" -1 -f "$work/s"
claim 'uid of nobody' 0 "$none" -- "$top" --uid 65533 --once
claim 'uid of no user' 2 "^kvpull_top: --uid is a user's name or number, not no-such-user; " -- "$top" -u no-such-user
for two in '--json --prometheus' '--prometheus --json' "--trace $work/F --json" "--prometheus-file $work/F --prometheus"; do
	# shellcheck disable=SC2086 # words
	claim "$two" 2 "^kvpull_top: --[a-z-]+ and --[a-z-]+: one of them; see --help\$" -- "$top" $two -f "$work/s"
done
for file in -P --prometheus-file; do
	claim "$file" 0 -- "$top" "$file" "$work/kvpull.prom" -1 -f "$work/s"
	claim 'its file' 0 '^kvpull_worker_up\{.*\} 1$' -- cat "$work/kvpull.prom"
	rm -f "$work/kvpull.prom"
done
# A file is replaced each interval, and whole: its draft goes, and its number is another.
"$top" -P "$work/kvpull.prom" -i 100 -f "$work/s" &
writer=$!
file_is_replaced() {
	until [ -s "$work/kvpull.prom" ] || ! kill -0 "$writer"; do sleep 0.1; done
	first=$(stat -c %i "$work/kvpull.prom")
	tries=$((50 * TEST_PATIENCE))
	until [ "$(stat -c %i "$work/kvpull.prom")" != "$first" ] || [ $((tries -= 1)) -eq 0 ]; do sleep 0.1; done
	[ $tries -gt 0 ] && [ "$(tail -n 1 "$work/kvpull.prom")" = 'kvpull_top_unread 0' ]
}
check file_is_replaced
kill "$writer"
wait "$writer" 2>/dev/null
writer=
claim 'metrics of no folder' 1 -- "$top" -P "$work/kvpull.prom" -1 -f "$work/none"
claim 'a file nowhere' 1 "^kvpull_top: --prometheus-file $work/none/f: cannot write: No such file or directory\$" -- \
	"$top" -P "$work/none/f" -f "$work/s"
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
for option in --help --version; do
	claim "$option on a full disk" 1 'No space left on device' -- sh -c "\"$top\" $option >/dev/full"
done
# shellcheck disable=SC2016 # the inner shell's
claim 'too long a file' 1 'File too large' -- \
	sh -c 'prlimit --fsize=200 "$1" --help >"$0"' "$work/short" "$top"
for interval in -i --interval; do
	claim "$interval" 2 '^kvpull_top: --interval no: a time from 100ms to 60000ms is needed; ' -- "$top" "$interval" no -f "$work/s"
done
# Files that cannot be read are named, and why.
claim 'no such folder' 1 "^not read: $work/none: No such file or directory\$" -- "$top" -1 -f "$work/none"
claim 'no such folder, for a program' 1 '"why": "No such file or directory"' \
	"^kvpull_top: not read: $work/none: " -- "$top" -j -f "$work/none"
claim 'nobody at all' 0 "$none" '^no status files in the folders that --folder names$' -- "$top" -1 -f "$work"
mkdir "$work/empty"
claim 'nobody, and no folder named' 0 "$none" '^name its user with --uid, its socket_dir with --folder$' -- \
	env KVPULL_SOCKET_DIR="$work/empty" "$top" -1 --uid 65533
# Where the sockets are on a disk the files are not beside them. /proc is none in memory.
claim 'a folder on a disk' 0 \
	"^not read: /proc/self/fdinfo: is on a disk: its engines' status files lie in /dev/shm/kvpull-[0-9]+, name that folder\$" -- \
	"$top" -1 -f /proc/self/fdinfo
says_not_what_was_done() { ! grep 'its socket_dir with --folder' "$work/out"; }
check says_not_what_was_done
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
# A file that has two names is one worker's.
mkdir "$work/linked"
cp "$work/s/$server"-*.status "$work/linked/1-1.status"
ln "$work/linked/1-1.status" "$work/linked/1-2.status"
claim 'a file of two names' 0 "$one" -- "$top" -1 --all -f "$work/linked"
# In a folder of several users another one's files hide nobody.
mkdir "$work/many"
cp "$work/s/$server"-*.status "$work/many"
(cd "$work/many" && seq -f 'x%g' 5000 | xargs touch)
claim 'many files' 0 "^producer +0 +$server " -- "$top" -1 --all -f "$work/many"
# As many as are looked at are not more; 4,096 is KVPULL_STATUS_FILES_MAX.
mkdir "$work/full"
(cd "$work/full" && seq -f '%g-1.status' 4096 | xargs touch)
claim 'as many files as are read' 0 '^kvpull_top_unread 4096$' -- "$top" -p --all -f "$work/full"
touch "$work/full/4097-1.status"
claim 'one file more' 0 '^kvpull_top_unread 4097$' -- "$top" -p --all -f "$work/full"
# Forty engines: what does not fit is said, and findings come first.
mkdir "$work/forty"
for number in $(seq 40); do
	# Pages of zeros take no room.
	cp --sparse=always "$work/s/$server"-*.status "$work/forty/$number-1.status"
	chmod 600 "$work/forty/$number-1.status"
	# Each has an incarnation of its own.
	printf '%b' "\\0$(printf %o "$number")" | dd of="$work/forty/$number-1.status" bs=1 seek=24 conv=notrunc 2>/dev/null
done
claim 'forty engines' 0 '^kvpull_top +[0-9:]+ UTC +40 workers, ' -- "$top" -1 --all -f "$work/forty"
claim 'forty engines at 80 x 24' 0 '1-[0-9]+ of [0-9]+  q end  \? help ' 'ENGINE +RANK +PID ' -- \
	sh -c "(sleep 1; printf q) | TERM=xterm script -qec 'stty rows 24 cols 80; \"$top\" --all -f \"$work/forty\"' /dev/null"
sed 's/\x1b\[[0-9;?]*[A-Za-z]//g' "$work/out" | sed -n '/q end/q; p'
# The first line that is shown: at first, at most, at last.
claim 'End and Home' 0 '^1 [1-9][0-9]+ 1$' -- sh -c \
	"(for key in '' '\\033[F' '\\033[H' q; do sleep 1; printf \"\$key\"; done) |
	TERM=xterm script -qec 'stty rows 24 cols 80; \"$top\" --all -f \"$work/forty\"' /dev/null |
	grep -oE '[0-9]+-[0-9]+ of' | awk -F- '!n++ { first = \$1 } \$1 > most { most = \$1 } { last = \$1 }
		END { print first, most + 0, last }'"
rm -r "$work/forty"
# A container that was started again has the pid that it had: two files of one name.
mkdir "$work/twice"
cp "$work/s/$server"-*.status "$work/twice/1-1.status"
cp "$work/s/$server"-*.status "$work/twice/1-2.status"
chmod 600 "$work/twice/1-2.status"
printf '\001' | dd of="$work/twice/1-2.status" bs=1 seek=24 conv=notrunc 2>/dev/null
claim 'no metric twice' 0 '^none twice$' -- sh -c \
	"\"$top\" -p --all -f \"$work/twice\" | grep -v '^#' | sed 's/ [^ ]*$//' | sort | uniq -d | grep . || echo none twice"
claim 'a full disk' 1 '^kvpull_top: cannot write: No space left on device$' -- \
	sh -c "\"$top\" -j -f \"$work/s\" >/dev/full"
claim 'after nobody' 1 '^kvpull_top: no status file of 1; kvpull_top --all --once lists ' -- "$top" -a 1 -f "$work/s"
no_table_is_of_nobody() { [ ! -s "$work/out" ]; }
check no_table_is_of_nobody
# A name that is no UTF-8 would hide all engines of the node from a collector.
cp -r "$work/s" "$work/bytes"
name=$("$top" -p -f "$work/s" | sed -n 's/.*{engine="\([^"]*\)".*/\1/p' | head -n 1)
LC_ALL=C find "$work/bytes" -type f -exec sed -i "s/$name/$(printf '\377')${name#?}/g" {} +
claim 'a name that is no UTF-8' 0 '\{engine="\?",rank="0"' -- "$top" -p --all -f "$work/bytes"
check iconv -f UTF-8 -t UTF-8 "$work/out"
# A pool's files lie in its own folder if that is in memory.
"$build/ib_pull" --pool --owners 1 --consumers 2 --duration 20 --blocks 256 --size 4096 >"$work/pool" 2>&1 &
pool=$!
tries=$((100 * TEST_PATIENCE))
shown=/dev/shm/kvpull-$(id -u)
until [ "$("$top" -j -f "$shown" 2>/dev/null | grep -c "\"readers_live\": 2,")" -ge 1 ] || [ $((tries -= 1)) -eq 0 ]; do
	[ "$(stat -f -c %T /tmp)" != tmpfs ] || shown=$(echo "/tmp/kvpull-pool-$pool"-*)
	sleep 0.1
done
claim 'a pool' 0 '^kvpull_top +[0-9:]+ UTC +[0-9]+ workers, [0-9]+ pools, ' \
	'^owner +[0-9]+ running .* owner +256 +2 +0 ' '^reader +[0-9]+ running .* reader +0 +0 +1 ' \
	'^READER +PID' '^owner +[0-9]+ shm +up ' -- "$top" -1 -f "$shown"
claim 'its view' 0 '^POOL +PID STATE ' '^owner +[0-9]+ running .* owner +256 +2 +0 ' -- "$top" -1 -f "$shown" pools
claim 'its metrics' 0 '^kvpull_reader_chunks\{engine="owner",rank="0",pid="[0-9]+",incarnation="[0-9a-f]{16}"\} 256$' -- "$top" -p -f "$shown"
kill "$pool" 2>/dev/null
wait "$pool" 2>/dev/null
# A time namespace shifts the clock of who is in it, the reader here: nobody is silent for a day.
may 1 'a time namespace' -- unshare -T --monotonic 86400 --fork true &&
	claim 'in another time namespace' 0 '^   "engine_thread_s": [0-9]{1,2}\.[0-9]+,$' -- \
		unshare -T --monotonic 86400 --fork "$top" -j -f "$work/s"
kill -9 "$server"
wait "$server" 2>/dev/null
# A process that held nothing is no finding; its row has the time of its end.
claim 'one that is gone' 0 ' UTC +1 workers, 0 findings$' "^producer +0 +$server gone [0-9:]{8} " -- "$top" -1 -f "$work/s"
claim all 0 '^kvpull_top .* 2 workers, ' " $server gone " -- "$top" --all --once -f "$work/s"
claim 'its last events' 0 '^ +[0-9.]+ [a-z]+ take +0 +[0-9]+ key [0-9]+ +engine$' \
	'^ +[0-9.]+ [a-z]+ claim +0 +[0-9]+ consumer +rank 0 +engine$' \
	'^ +[0-9.]+ [a-z]+ end +0 +[0-9]+ consumer +released +engine$' -- "$top" -a "$server" -f "$work/s"
for after in -a --after; do
	claim "$after" 0 "\"pid\": $server," -- "$top" "$after" "$server" -j -f "$work/s"
done
# A ticket that nobody claims: no engine, and no pid.
mkdir -m 700 "$work/n"
"$build/ib_pull" --dir "$work/n" --blocks 256 --lease 300 >"$work/nobody" 2>&1 &
server=$!
until grep -q '^serving' "$work/nobody" || ! kill -0 "$server"; do
	sleep 0.1
done
"$build/ib_pull" --ticket "$work/n" >"$work/ticket" 2>&1
tries=$((100 * TEST_PATIENCE))
until "$top" -j -f "$work/n" | grep -q '"what": "holds-expire"' || [ $((tries -= 1)) -eq 0 ]; do
	sleep 0.1
done
claim 'a finding of nobody' 0 '^   "engine": null,$' '^   "pid": null,$' '"text": "nobody claimed 1 holds, ' -- "$top" -j -f "$work/n"
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
