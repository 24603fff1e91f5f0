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
claim_limit='within 10'
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
claim 'a folder that is named twice' 0 "$one" -- "$top" -1 -f "$work/s" -f "$work/s/"
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
for option in --help --version; do
	claim "$option on a full disk" 1 'No space left on device' -- sh -c "\"$top\" $option >/dev/full"
done
# shellcheck disable=SC2016 # the inner shell's
claim 'too long a file' 1 'File too large' -- \
	sh -c 'prlimit --fsize=200 "$1" --help >"$0"' "$work/short" "$top"
for interval in -i --interval; do
	claim "$interval" 2 '^kvpull_top: --interval is 100 \.\. 60000 ms, not no' -- "$top" "$interval" no -f "$work/s"
done
# Files that cannot be read are named, and why.
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
claim_limit='within 3'
for listen in -l --listen; do
	claim "$listen" 124 '^listening on port [0-9]+$' -- "$top" "$listen" 127.0.0.1:0 -f "$work/s"
done
if [ -s /proc/net/if_inet6 ]; then
	claim 'IPv6' 124 '^listening on port [0-9]+$' -- "$top" --listen '[::1]:0' -f "$work/s"
fi
claim_limit='within 10'
for bad in '[::1]' '[::1:9400' '[127.0.0.1]:9400' '::1:9400' '127.0.0.1' 'localhost:9400' '127.0.0.1:65536'; do
	claim "--listen $bad" 2 'say ADDRESS:PORT, as 127.0.0.1:9400 or \[::1\]:9400$' -- "$top" --listen "$bad" -f "$work/s"
done
# Callers that say nothing hold up nobody, and a request may come in pieces.
cat >"$work/callers.c" <<'END'
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
static int call(int port)
{
	struct sockaddr_in at = { .sin_family = AF_INET };
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	at.sin_port = htons(port);
	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	return connect(fd, (void *)&at, sizeof(at)) ? -1 : fd;
}
int main(int count, char **words)
{
	char answer[16] = "";
	int fd, i;
	alarm(count > 1 ? 3 : 0);
	for (i = 0; i < 8; i++)
		call(atoi(words[1]));
	fd = call(atoi(words[1]));
	send(fd, "GET /met", 8, 0);
	usleep(100000);
	send(fd, "rics?job=kv HTTP/1.0\r\n\r\n", 24, 0);
	recv(fd, answer, 15, MSG_WAITALL);
	puts(answer);
	return 0;
}
END
"$top" --listen 127.0.0.1:0 -f "$work/s" >"$work/port" &
listener=$!
until [ -s "$work/port" ] || ! kill -0 "$listener"; do
	sleep 0.1
done
claim 'silent callers' 0 '^HTTP/1.0 200 OK$' -- sh -c \
	"${CC:-gcc} -D_GNU_SOURCE \"$work/callers.c\" -o \"$work/callers\" && \"$work/callers\" $(grep -o '[0-9]*$' "$work/port")"
kill "$listener"
wait "$listener" 2>/dev/null
listener=
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
