#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# ib_pull as its manual says: a table, one JSON object, a trace replayed and
# traces refused, wrong options, producers that do not answer, are unlike or
# have no room. And `make install`: a host that knows the header and the library
# by pkg-config alone is built and runs from there, stripped, with debug files.
# Argument: the build folder.
# shellcheck disable=SC2086 # $small is words
set -u
cd "$(dirname "$0")/.." || exit 1
build=$(cd "$1" && pwd)
tool=$build/ib_pull
small='--blocks 256 --requests 5'
work=$(mktemp -d) || exit 1
sockets=$work/s
mkdir -m 700 "$sockets"
"$tool" --dir "$sockets" --blocks 1024 >"$work/serve" 2>&1 &
server=$!
silent=
ported=
others=
trap 'kill "$server" $silent $ported $others 2>/dev/null; rm -rf "$work"' EXIT
. tests/claim.sh
claim_limit='within 30'

await_serving() { # its output, its process
	until grep -q '^serving' "$1" || ! kill -0 "$2"; do
		sleep 0.1
	done
}

# A command that a signal ends when its output has that: after a second, or longer
# on a busy machine. A program, since claims run under a limit.
cat >"$work/interrupted" <<'END'
#!/bin/sh
signal=$1 sign=$2
shift 2
for seconds in 1 3 10; do
	timeout -s "$signal" --preserve-status $seconds "$@" >"$0.out" 2>"$0.error"
	code=$?
	! grep -qE -- "$sign" "$0.out" || break
done
cat "$0.out"
cat "$0.error" >&2
exit $code
END
chmod +x "$work/interrupted"

trace() { # lines of a trace
	printf '%s\n' "$@" >"$work/trace"
}

# Checks one object: every key names its unit or is a plain count.
json() {
	cat >"$work/json.c" <<'END'
#include <jansson.h>
int main(void)
{
	json_t *object = json_loadf(stdin, JSON_REJECT_DUPLICATES, NULL);
	const char *keys[] = { "latency_us_p50", "latency_us_p99", "latency_us_p99_9",
			       "queue_us_p50", "queue_us_p99", "connect_us_p50", "connect_us_p99",
			       "read_us_p50", "read_us_p99", "check_us_p50", "check_us_p99",
			       "bandwidth_gb_s", "memcpy_gb_s", "ratio_to_memcpy" };
	size_t i;
	for (i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
		if (json_real_value(json_object_get(object, keys[i])) <= 0)
			return 1;
	return json_integer_value(json_object_get(object, "pulls")) != 5;
}
END
	"${CC:-gcc}" "$work/json.c" -ljansson -o "$work/json" &&
		"$tool" $small --json "$sockets" | "$work/json"
}

cat >"$work/object.c" <<'END'
#include <jansson.h>
int main(void)
{
	json_t *object = json_loadf(stdin, JSON_REJECT_DUPLICATES, NULL);
	return !json_is_object(object);
}
END

# The last claim printed one JSON object, whatever it complained of.
one_object() {
	cp "$work/out" "$work/last"
	check is_one_object
}

is_one_object() {
	cat "$work/last"
	[ -x "$work/object" ] ||
		"${CC:-gcc}" "$work/object.c" -ljansson -o "$work/object" &&
		"$work/object" <"$work/last"
}

# A port of this host that drops who calls it: its queue is full.
cat >"$work/silent.c" <<'END'
#include <netinet/in.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>
int main(void)
{
	struct sockaddr_in at = { .sin_family = AF_INET };
	socklen_t bytes = sizeof(at);
	int listener = socket(AF_INET, SOCK_STREAM, 0);
	int i;
	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (bind(listener, (void *)&at, bytes) || listen(listener, 0) ||
	    getsockname(listener, (void *)&at, &bytes))
		return 1;
	for (i = 0; i < 4; i++)
		connect(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), (void *)&at, bytes);
	printf("%d\n", ntohs(at.sin_port));
	fflush(stdout);
	return pause();
}
END

# Beside the other tests: it takes ten seconds.
silence_begin() {
	"${CC:-gcc}" -D_GNU_SOURCE "$work/silent.c" -o "$work/silent" || return 1
	"$work/silent" >"$work/silent.port" &
	silent=$!
	until [ -s "$work/silent.port" ] || ! kill -0 $silent; do
		sleep 0.1
	done
	{
		within 20 "$tool" --port "$(cat "$work/silent.port")" 127.0.0.1 2>&1
		echo "status $?"
	} >"$work/silence" &
	silence=$!
}

silent_host() {
	wait "$silence"
	cat "$work/silence"
	grep -q '^status 1$' "$work/silence" &&
		grep -q '^no producer serves at 127\.0\.0\.1 port .*: Connection timed out; ' "$work/silence"
}

silence_begin
await_serving "$work/serve" "$server"
claim table 0 '^kvpull ib_pull [0-9]+\.[0-9]+\.[0-9]+: memory provided' '^route shm, ' \
	'^p50/p99 us: queue [0-9.]+/[0-9.]+ connect [0-9./]+ read [0-9]+\.[0-9]/[0-9.]+ check [0-9./]+$' 'p50 us +p99 us +p99.9 us +GB/s copy GB/s +ratio' \
	'^ +5 +0 ' 'bytes checked 41943040, bytes wrong 0' -- \
	"$tool" $small --verify "$sockets"
# Each quantity has one unit: times are microseconds, speeds GB/s.
units() {
	trace '{"arrival_s": 0, "prompt_tokens": 512}' &&
		"$tool" $small --json "$sockets" >"$work/report" &&
		"$tool" $small --json --trace "$work/trace" "$sockets" >>"$work/report" &&
		"$tool" $small -a --json --count 2 "$sockets" >>"$work/report" &&
		! grep -o '"[a-z_0-9]*":' "$work/report" |
		sed 's/_p[0-9_]*":$/":/' | sort -u |
		grep -E '_(ns|ms|s|min|kb|mb|kib|mib)":' | grep -v '_gb_s":'
}

check json
check units
claim demo 0 ' 0 rejected before admission, [0-9]+ aborted' 'demo: ok' -- \
	"$tool" --demo --requests 60 --blocks 1024 --count 16 --rejects 0 --aborts 20 --dir "$work/demo\"s"
# No option that was given is another one.
claim 'demo as told' 0 '"ok": true' '"pulls": 20,' '"served_by_sibling": 0,' \
	'"rejected": 0,' '"aborted": 0,' -- "$tool" --demo --json --requests 20 \
	--blocks 256 --count 16 --siblings 1 --depth 1 --rejects 0 --aborts 0
one_object
# The killed one's socket as well.
demo_leaves_nothing() {
	"$tool" --demo --requests 20 --blocks 256 --count 16 --lease 1000 &
	demo=$!
	wait $demo && [ -z "$(find /tmp -maxdepth 1 -name "kvpull-demo-$demo-*")" ]
}

check demo_leaves_nothing
# A pool whose chunks are used again while they are read.
busy_pool='--pool --verify --json --blocks 256 --count 64 --keys 1000 --zipf 0.5 --rate 3000'
claim 'a pool, chunks used again' 0 '"ok": true' '"readers": 2,' '"bytes_wrong": 0,' \
	'"probes": 2000,' '"bytes_checked": [1-9]' '"pieces_stale": [1-9]' '"keys_missed": [1-9]' -- \
	"$tool" $busy_pool --requests 1000 --consumers 2
one_object
# The owner computes nothing more, and every key has a chunk.
claim 'a pool at rest, two owners' 0 '^ +3 +60 +.* 100\.00 +0\.0000 ' 'bytes wrong 0$' 'pool: ok' -- \
	"$tool" --pool --owners 2 --rate 0 --keys 100 --blocks 1024 --requests 20 --verify
# Control: a library that believes every piece shows wrong bytes.
wrong_is_seen() {
	unchecked=$(tests/scenario/mutant.sh "$build" noguard_pool plugin/reads/judge.c \
		's/KVPULL_ESTALE/0/') || return 1
	KVPULL_TEST_LIBRARY=$unchecked "$tool" $busy_pool --duration 2
	[ $? -eq 1 ] || return 1
	KVPULL_TEST_LIBRARY=$unchecked "$tool" $busy_pool --duration 2 |
		grep '"ok": false,.*"bytes_wrong": [1-9]'
}

check wrong_is_seen
trace '{"timestamp": 0, "input_length": 1024, "hash_ids": [7, 8]}' \
	'{"timestamp": 1, "input_length": 100}' \
	'{"timestamp": 2, "input_length": 1024, "hash_ids": [7, 9]}'
claim 'a pool of a trace' 0 '"hit_ratio": 1\.0,' '"keys_found": 30,' '"puts": 3,' -- \
	"$tool" --pool --json --trace "$work/trace" --consumers 1 --requests 15
trace "$(printf '{"timestamp": 1, "input_length": 100}')"
claim 'a pool of a trace without prefixes' 1 'no request has hash_ids' -- \
	"$tool" --pool --trace "$work/trace"
claim 'Ctrl-C of a pool' 130 '"ok": true' '"bytes_wrong": 0,' '"probes": [1-9]' -- \
	"$work/interrupted" INT '"probes": [1-9]' "$tool" --pool --verify --json --duration 60
# A terminal that is closed: what it has made goes, too.
for mode in --pool --demo; do
	claim "hangup of $mode" 129 'bytes wrong' -- \
		timeout -s HUP --preserve-status "${TEST_PATIENCE:-1}" "$tool" $mode --duration 60
done
hangup_leaves_nothing() {
	"$tool" --pool --duration 20 &
	pool=$!
	sleep 0.5
	kill -HUP $pool
	wait $pool
	[ -z "$(find /tmp -maxdepth 1 -name "kvpull-pool-$pool-*")" ]
}
check hangup_leaves_nothing
pool_leaves_nothing() {
	"$tool" --pool --requests 5 &
	pool=$!
	wait $pool && [ -z "$(find /tmp -maxdepth 1 -name "kvpull-pool-$pool-*")" ]
}

check pool_leaves_nothing
# The pool has its sockets in the named folder, and leaves the folder.
pool_uses_its_folder() {
	"$tool" --pool --requests 5 --dir "$work/a \"pool\"" &
	pool=$!
	wait $pool && [ -d "$work/a \"pool\"" ]
}

check pool_uses_its_folder
trace '{"arrival_s": 0, "prompt_tokens": 512, "output_tokens": 10, "n": 2}' '' \
	'{"arrival_s": 0.1, "prompt_tokens": 100, "abort": true}' \
	'{"arrival_s": 0.2, "prompt_tokens": 2048, "abort": false}'
claim trace 0 '^ +2 +0 ' 'bytes wrong 0' -- \
	"$tool" $small --verify --trace "$work/trace" --token-us 100 "$sockets"
good='{"arrival_s": 0, "prompt_tokens": 16}'
for bad in '{"arrival_s": 0, "prompt_tokens": 16' '[0, 16]' \
	'{"prompt_tokens": 16}' '{"arrival_s": -1, "prompt_tokens": 16}' \
	'{"arrival_s": 1e300, "prompt_tokens": 16}' \
	'{"arrival_s": 0, "prompt_tokens": 0}' \
	'{"arrival_s": 0, "prompt_tokens": 99999999999}' \
	'{"arrival_s": 0, "prompt_tokens": 16, "n": 0}' \
	'{"arrival_s": 0, "prompt_tokens": 16, "n": 65}' \
	'{"arrival_s": 0, "prompt_tokens": 16, "output_tokens": -1}' \
	'{"arrival_s": 0, "prompt_tokens": 16, "abort": 1}'; do
	trace "$good" "$bad" "$good"
	claim "trace $bad" 1 '^trace: line 2: ..' -- \
		"$tool" $small --trace "$work/trace" "$sockets"
done
# Mooncake's: the second prompt begins with two chunks that the first brought,
# the third with its own; 2 of 6.5 chunks of 512 tokens were here before.
chat() { # milliseconds, tokens, hashes
	echo "{\"timestamp\": $1, \"input_length\": $2, \"output_length\": 1, \"hash_ids\": [$3]}"
}

trace "$(chat 3000 1536 '0, 1, 2')" "$(chat 13000 1280 '0, 1, 7')" \
	"$(chat 23000 512 9)"
claim "Mooncake's trace" 0 '^ +3 +0 ' 'bytes wrong 0' \
	'^trace at 100 x: late p50 ' '^prefix hit ratio 0\.308, held [0-9.]+ block-seconds a request$' -- \
	"$tool" $small --verify --trace "$work/trace" --speed 100 "$sockets"
claim "Mooncake's trace, JSON" 0 '"prefix_hit_ratio": 0\.3076' '"trace_requests": 3,' \
	'"held_block_s_a_request": [0-9.e-]+,' -- \
	"$tool" $small --json --trace "$work/trace" --speed 100 "$sockets"
# Another prompt needs all of a pool of 100, so the first one's chunks are gone.
trace "$(chat 0 1536 '0, 1, 2')" "$(chat 10000 1536 '5, 6, 7')" \
	"$(chat 20000 1280 '0, 1, 7')"
claim 'prefixes make room' 0 '^ +3 +0 ' 'prefix hit ratio 0\.000' -- \
	"$tool" $small --blocks 100 --trace "$work/trace" --speed 100 "$sockets"
claim sweep 0 '^ +blocks +bytes +pulls +failed' '^ +1 +65536 +5 +0 ' '^ +4 +262144 +5 +0 ' -- \
	"$tool" $small -a --count 4 "$sockets"
sweep_is_json() {
	"$tool" $small -a --json --count 2 "$sockets" >"$work/sweep" &&
		cat "$work/sweep" && head -n 1 "$work/sweep" | grep -qx '\[' &&
		[ "$(grep -c '"blocks_a_request": [12],' "$work/sweep")" -eq 2 ]
}

check sweep_is_json
# A page of HTML that loads nothing, whatever is in its facts; a point of the curve
# for each run.
page_is_whole() {
	python3 - "$work/report.html" <<'END'
import sys
from html.parser import HTMLParser

class Page(HTMLParser):
    def __init__(self):
        super().__init__()
        self.open, self.texts, self.points, self.rects = [], [], [], 0

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        assert tag not in ("script", "link", "img", "iframe"), tag
        assert not {"src", "href", "onload"} & set(attrs), attrs
        if tag not in ("meta", "path", "polyline"):
            self.open.append(tag)
        if tag == "polyline":
            self.points.append(len(attrs["points"].split()))
        self.rects += tag == "rect"

    def handle_startendtag(self, tag, attrs):
        if tag == "polyline":
            self.points.append(len(dict(attrs)["points"].split()))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, tag

    def handle_data(self, data):
        self.texts.append(data)

page = Page()
page.feed(open(sys.argv[1]).read())
assert not page.open, page.open
assert page.points == [6, 6], page.points
assert page.rects >= 1
for text in ("p99.9 us", "kernel", "libkvpull", "shm", "5"):
    assert text in page.texts, text
assert "nan" not in "".join(page.texts).split()
END
}
claim report 0 '^ +32 +[0-9]+ +5 +0 ' -- "$tool" --blocks 256 --requests 5 --count 32 \
	--sweep --report "$work/report.html" "$sockets"
check page_is_whole
claim 'a report nowhere' 1 "^--report $work/none/r: cannot write: No such file or directory\$" -- \
	"$tool" $small --report "$work/none/r" "$sockets"
claim 'a report of a server' 2 '^ib_pull: --report pulls from a FOLDER or HOST; ' -- "$tool" --report "$work/r"
claim histogram 0 '^ +[0-9.]+ us \.\. +[0-9.]+ us +[1-5]  #+$' -- \
	"$tool" $small --histogram "$sockets"
for option in --foreign '--copy-threads 2' '-d no_such_device'; do
	claim "$option" 0 '^ +5 +0 ' 'bytes wrong 0' -- \
		"$tool" $small --verify $option "$sockets"
done
claim duration 0 '^ +[0-9]+ +0 ' -- "$tool" $small -D 1 "$sockets"
claim 'short help' 0 '^usage: ib_pull ' -- "$tool" -h
claim consumers 0 '0 bytes wrong, 0 holds left' 'demo: ok' -- "$tool" --demo \
	--consumers 3 --requests 20 --blocks 256 --count 16 --rejects 0 --aborts 0
# A machine that stands still tells a second late: up to three times.
cat >"$work/in_time" <<'end'
for _ in 1 2 3; do
	"$@" >"$0.out" || exit
	grep -qE '^ +1\.[0-9] ' "$0.out" && break
done
cat "$0.out"
end
claim interval 0 '^ +s +pulls +failed +MB +GB/s$' '^ +1\.[0-9] +[0-9]+ +0 ' -- \
	sh "$work/in_time" "$tool" $small --duration 2 --interval 1 "$sockets"
trace TIMESTAMP,ContextTokens,GeneratedTokens \
	'2023-11-16 18:15:46.6805900,374,44' '2023-11-16 18:16:06.9951690,396,109'
claim "Azure's trace" 0 '^ +2 +0 ' 'late p50' -- \
	"$tool" $small --verify --trace "$work/trace" --speed 100 "$sockets"
trace 'Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type' \
	'5,ChatGPT,472,18,490,Conversation log' '45,GPT-4,1087,0,1087,API log'
claim "BurstGPT's trace" 0 '^ +2 +0 ' 'late p50' -- \
	"$tool" $small --verify --trace "$work/trace" --speed 1000 "$sockets"
for bad in '5,ChatGPT,0,18,18,log' 'x,ChatGPT,1,18,19,log' '5,ChatGPT,1'; do
	trace 'Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type' "$bad"
	claim "CSV $bad" 1 '^trace: line 2: ..' -- \
		"$tool" $small --trace "$work/trace" "$sockets"
done
trace "$(chat 5 16 1)" "$(chat 4 16 1)"
claim 'trace out of order' 1 '^trace: line 2: comes before ' -- \
	"$tool" $small --trace "$work/trace" "$sockets"
for bad in "$(chat 5 16 '1, 2')" "$(chat 5 0 '')" "$(chat -5 16 1)" "$(chat 5 16 -1)" time,tokens; do
	trace "$bad"
	claim "trace $bad" 1 '^trace: line 1: ..' -- \
		"$tool" $small --trace "$work/trace" "$sockets"
done
trace "$(chat 0 16 1)" "$(chat 0 99999 1)"
claim 'prompt that no pool holds' 1 '^trace: line 2: a request needs 6250 blocks, the pool has 256: ' -- \
	"$tool" $small --trace "$work/trace" "$sockets"
trace '{"arrival_s": 0, "prompt_tokens": 16}' '{"arrival_s": 1e10, "prompt_tokens": 16}'
claim 'a request that comes in 300,000 years' 130 '^ +1 +0 ' -- \
	"$work/interrupted" INT '^ +1 +0 ' "$tool" $small --trace "$work/trace" --speed 0.001 "$sockets"
trace ''
claim 'trace of nothing' 1 'nothing was pulled: the trace has no request' -- \
	"$tool" $small --json --trace "$work/trace" "$sockets"
one_object
claim 'no producer' 1 'no producer serves in' -- "$tool" --json "$work/none/"
one_object
no_folder_was_made() {
	! ls -d "$work/none"
}

check no_folder_was_made
# A folder of another user; root may enter every folder, and drops that right.
mkdir -m 0 "$work/theirs"
may_not=
[ "$(id -u)" -ne 0 ] ||
	may_not='setpriv --bounding-set=-dac_override,-dac_read_search'
claim 'folder of another user' 1 \
	"^socket folder $work/theirs: Permission denied; run as the user who serves there\$" -- \
	$may_not "$tool" $small "$work/theirs"
claim 'pinned route that cannot be' 1 \
	'^route verbs is pinned, and cannot be opened \(E[A-Z]+\): .*; route auto goes on without it$' -- \
	env KVPULL_ROUTE=verbs KVPULL_VERBS_DEVICE=none0 "$tool" $small --dir "$work/pinned"
claim 'folder in none' 1 \
	"socket folder $work/none/new cannot be made: No such file or directory: the folder above is missing: make it, or name another by socket_dir" -- \
	"$tool" $small --dir "$work/none/new"
claim 'more memory than there is' 1 '^producer: no [0-9]+ MiB of memory for the blocks \(out of memory' -- \
	sh -c "ulimit -v 2000000; exec \"$tool\" --blocks 65536 --dir \"$work/much\""
mkdir "$work/lonely"
cp "$tool" "$work/lonely"
claim 'tool without its library' 1 'libkvpull\.so\.1: cannot open .*; after make install run ldconfig, or set LD_' -- \
	env LD_LIBRARY_PATH= "$work/lonely/ib_pull" $small --dir "$work/lonely"
mkdir "$work/open"
chmod 777 "$work/open"
claim 'folder of anybody' 1 "^socket folder $work/open: anybody may replace sockets in it" -- \
	"$tool" $small --dir "$work/open"
is_said_once() {
	[ "$(cat "$work/out" "$work/error" | grep -c 'anybody may replace')" -eq 1 ]
}
check is_said_once
check silent_host
# ib_pull does not wait for a producer whose name has no address.
claim_limit='within 5'
claim 'unknown host' 1 '^no address of a\.\.b: .+; give a ' -- \
	"$tool" $small a..b
claim_limit='within 30'
# A consumer that asks for nothing takes none of its producer's blocks.
for unlike in '--size 8192' '--layers 2' '--layers 8 --groups 2 --count 32'; do
	claim "another shape: $unlike" 1 \
		'^the producer has --size 16384 --layers 4 --groups 1: ' -- \
		"$tool" $small $unlike --json "$sockets"
	one_object
done
claim 'more than the producer has' 1 \
	"^a request needs 2000 blocks, the producer's pool has 1024: " -- \
	"$tool" --count 2000 --blocks 4096 --requests 1 "$sockets"
claim 'no block is held' 0 '"holds_live": 0, .*"blocks_free": 1024,' -- \
	"$tool" --stats "$sockets"
claim 'second producer' 1 'an ib_pull serves there already$' -- \
	"$tool" --dir "$sockets"
claim 'the first one serves on' 0 '"blocks": 1024,' -- "$tool" --stats "$sockets"
claim 'device that is not there' 0 'device none_"0' '^ +5 +0 ' -- \
	"$tool" $small --device 'none_"0' "$sockets"
claim 'GID that is not there' 0 'no RDMA device can be used here' '^ +5 +0 ' -- \
	"$tool" $small --gid-index 60000 "$sockets"
claim 'long device' 1 'verbs_device .*at most 511 bytes' -- \
	"$tool" $small --device "$(printf '%0512d' 0)" "$sockets"
claim 'long lease' 0 '^ +5 +0 ' -- "$tool" $small --lease 600000 "$sockets"
claim 'log level' 0 'connected by shm' -- \
	env KVPULL_LOG_LEVEL=info "$tool" $small "$sockets"
# A wrong command line is one line, that begins with the tool's name.
is_one_line() { # program, its options
	echo "$@"
	"$@" 2>"$work/wrong" >/dev/null
	got=$?
	cat "$work/wrong"
	[ $got -eq 2 ] && [ "$(wc -l <"$work/wrong")" -eq 1 ] &&
		grep -q "^$(basename "$1"): " "$work/wrong"
}

errors_are_one_line() {
	for wrong in --none '--size' '--size 0' '--json=1' '-z' 'a b' '--demo a' \
		'--gid-index x' '--tp 3' '--trace x' '--pool a' '--pool --demo' '--pool --count 257' '--pool --size 1000' '--zipf 11' '--sweep' '--speed 0' '--speed 1x /' \
		'--model none'; do
		# shellcheck disable=SC2086 # words
		is_one_line "$tool" $wrong || return 1
	done
	for wrong in --none --root '--json=1' -z a '--route x' '--memory x'; do
		# shellcheck disable=SC2086 # words
		is_one_line "$build/kvpull_doctor" $wrong || return 1
	done
}

check errors_are_one_line

# Microseconds have three digits behind the point: nanoseconds are measured.
reals_are_short() {
	grep -E '"(latency|queue|connect|read|check)_us' "$work/out" >"$work/reals"
	[ "$(wc -l <"$work/reals")" -ge 7 ] && ! grep -E '\.[0-9]{4}' "$work/reals"
}
claim 'reals of JSON' 0 '"latency_us_p50": ' -- "$tool" $small --requests 50 --json "$sockets"
check reals_are_short
# Progress is for terminals: one line for all consumers there, nothing elsewhere.
demo_shows_its_progress() {
	on_a_terminal "$tool" --demo --duration 1 --blocks 256 --count 16 </dev/null >"$work/seen"
	tr '\r' '\n' <"$work/seen" >"$work/lines"
	cat "$work/lines"
	[ "$(grep -cE '^demo: 4 consumers, [0-9]+ pulls, [0-9]+ failed $' "$work/lines")" -ge 3 ] &&
		! grep -E '^consumer-[0-9x]: ' "$work/lines" && grep -q '^demo: ok$' "$work/lines"
}
check demo_shows_its_progress
# shellcheck disable=SC2086 # words
sweep_shows_its_progress() {
	sweep="$tool --sweep --duration 2 --blocks 256 --count 1 $sockets"
	$sweep >"$work/lines" 2>&1 && ! grep ' requests, ' "$work/lines" || return 1
	on_a_terminal $sweep </dev/null >"$work/seen"
	tr '\r' '\n' <"$work/seen" >"$work/lines"
	cat "$work/lines"
	grep -qE '^consumer: [0-9]+ requests, [0-9]+ pulls, 0 failed $' "$work/lines"
}
check sweep_shows_its_progress
claim 'progress elsewhere' 0 'demo: ok' -- "$tool" --demo --requests 20 --blocks 256 --count 16
shows_no_progress() { ! grep 'consumers, ' "$work/error"; }
check shows_no_progress

# A process of the demo that is killed is told with its signal, not as a status.
death_is_told_in_words() {
	"$tool" --demo --duration 1 --blocks 256 --count 16 >"$work/told" 2>"$work/said" &
	others=$!
	until victim=$(pgrep -P $others | sed -n 2p) && [ -n "$victim" ] ||
		! kill -0 $others; do
		sleep 0.1
	done
	kill -KILL "$victim"
	wait $others
	got=$?
	cat "$work/said"
	[ $got -eq 1 ] &&
		grep -qE '^(consumer|producer) [0-9] was ended by signal 9 \(Killed\)$' "$work/said"
}
check death_is_told_in_words
for wrong in --none '--size 0' '--size 15' '--tp 3' '--depth 0' '--rejects 101' \
	'--count 5000' '--gid-index x' '--requests -18446744073709551611' \
	'a b' '--demo a' '--demo --stats'; do
	claim "options $wrong" 2 '^ib_pull: ' -- "$tool" $wrong
done
spinning() {
	mkdir -m 700 "$work/spin" || return 1
	"$tool" --spin --dir "$work/spin" --blocks 256 2>"$work/spinning" &
	spinner=$!
	await_serving "$work/spinning" $spinner
	within 30 "$tool" $small --verify --json "$work/spin" |
		grep '"bytes_wrong": 0,'
	found=$?
	kill $spinner && wait $spinner && return $found
}

check spinning

# Output that could not be written is an error.
for what in --help "--stats $sockets" "$small --json $sockets" "$small $sockets"; do
	claim "full disk: $what" 1 '^standard output: No space left on device' -- \
		sh -c '"$@" >/dev/full' sh "$tool" $what
done
# shellcheck disable=SC2016 # the inner shell's
claim 'the doctor on a full disk' 1 '^standard output: No space left' -- \
	sh -c '"$0" --no-probe --json >/dev/full' "$build/kvpull_doctor"
# shellcheck disable=SC2016 # the inner shell's
claim 'too long a file' 1 '^standard output: File too large' -- \
	sh -c 'prlimit --fsize=200 "$1" --help >"$0"' "$work/short" "$tool"
# A signal ends the run, not what is known of it. It comes when something was
# pulled, which takes a while on a busy machine.
claim Ctrl-C 130 '"complete": false,' '"pulls": [1-9]' '"bytes_wrong": 0,' -- \
	"$work/interrupted" INT '"pulls": [1-9]' "$tool" $small --duration 60 --json "$sockets"
one_object
claim 'SIGTERM, a table' 143 '^ +[1-9][0-9]* +0 ' '^ended by a signal' -- \
	"$work/interrupted" TERM '^ +[1-9][0-9]* +0 ' "$tool" $small --duration 60 "$sockets"
# Where it pulls by then: five processes take a while to begin on a busy machine.
interrupted_demo() {
	for seconds in 3 10 30; do
		timeout -s INT --preserve-status $seconds "$tool" --demo \
			--requests 1000000 --blocks 1024 --count 16 >"$work/demo" 2>&1
		got=$?
		cat "$work/demo"
		[ $got -eq 130 ] && grep -q '^demo: FAILED' "$work/demo" || return 1
		! grep -q 'consumer [0-2]: [1-9][0-9]* pulls' "$work/demo" || return 0
	done
	return 1
}

check interrupted_demo

# As many holds in all as no table of its own has places.
many_holds() {
	tiny='--size 512 --layers 1 --count 1 --blocks 256'
	"$tool" $tiny --dir "$work/many-holds" 2>"$work/holding" &
	others=$!
	await_serving "$work/holding" $others
	within 60 "$tool" $tiny --requests 66000 --depth 64 --json "$work/many-holds" |
		grep '"pulls": 66000,'
	got=$?
	within 5 "$tool" --stats "$work/many-holds" |
		grep '"holds_live": 0, "holds_released": 66000,' || got=1
	kill -KILL $others
	wait $others
	return $got
}

check many_holds

# A consumer that is stopped and goes on, as by Ctrl-Z, asks on.
goes_on_after_stop() {
	"$tool" --blocks 256 --dir "$work/stopped" 2>"$work/stopping" &
	others=$!
	await_serving "$work/stopping" $others
	"$tool" $small --duration 2 --json "$work/stopped" >"$work/stops" 2>&1 &
	first=$!
	sleep 0.7
	kill -STOP $others
	sleep 0.2
	kill -STOP $first
	sleep 0.1
	kill -CONT $first
	sleep 0.1
	kill -CONT $others
	wait $first
	got=$?
	kill $others && wait $others
	cat "$work/stops"
	[ $got -eq 0 ] && grep -q '"complete": true,' "$work/stops"
}

check goes_on_after_stop

# A ticket that reaches no consumer, given back: as text, from a file, from a
# pipe; by every rank of its producer, long before its lease of an hour.
held() { # folder, holds: as many are live
	within 10 "$tool" --stats "$1" | grep "\"holds_live\": $2,"
}

tickets_given_back() {
	for ranks in 1 4; do
		folder=$work/back$ranks
		"$tool" --blocks 256 --tp $ranks --lease 3600000 --dir "$folder" \
			2>"$work/backs$ranks" &
		others=$!
		await_serving "$work/backs$ranks" $others
		for how in text file pipe; do
			"$tool" $small --ticket "$folder" >"$work/ticket" || return 1
			held "$folder" $ranks || return 1
			case $how in
			text) "$tool" --release "$(cat "$work/ticket")" "$folder/" ;;
			file) "$tool" --release "@$work/ticket" --dir "$folder" ;;
			pipe) "$tool" --release - "$folder" <"$work/ticket" ;;
			esac >"$work/back" 2>&1
			got=$?
			cat "$work/back"
			[ $got -eq 0 ] && held "$folder" 0 &&
				grep -q "^given back to $ranks of $ranks ranks$" "$work/back" ||
				return 1
		done
		within 10 "$tool" --stats "$folder" |
			grep "\"holds_released\": $((3 * ranks)), \"holds_expired\": 0," ||
			return 1
		kill $others && wait $others
	done
}

check tickets_given_back
"$tool" $small --ticket "$sockets" >"$work/ticket"
claim 'ticket of another shape' 1 '^given back to 0 of 1 ranks: .* --size' -- \
	"$tool" --size 8192 --release "@$work/ticket" "$sockets/"
claim 'ticket given back' 0 '^given back to 1 of 1 ranks$' -- \
	"$tool" --release "@$work/ticket" "$sockets/"
claim 'ticket given back twice' 0 '^given back to 1 of 1 ranks$' -- \
	"$tool" --release "@$work/ticket" "$sockets/"

# A client that was interrupted above may have asked for a ticket that it did
# not read: that one's hold ends at its lease of 30 s.
none_is_held() {
	for _ in $(seq $((45 * TEST_PATIENCE))); do
		held "$sockets" 0 && return
		sleep 1
	done
	return 1
}

check none_is_held
claim 'ticket of one that is gone' 1 '^given back to 0 of 1 ranks: ' -- \
	"$tool" --release "@$work/ticket" "$work/nowhere/"
for bad in x kvp2.x "$(cut -c 1-80 "$work/ticket")" '@/nonexistent' '@/dev/null'; do
	claim "no ticket: $bad" 1 '^(ticket|/nonexistent): ' -- \
		"$tool" --release "$bad" "$sockets/"
done

# Pulls from before the producer's death are in the report.
results_after_death() {
	"$tool" --blocks 256 --dir "$work/dies" 2>"$work/dying" &
	others=$!
	await_serving "$work/dying" $others
	"$tool" $small --duration 20 --json "$work/dies" >"$work/told" 2>"$work/said" &
	first=$!
	until within 5 "$tool" --stats "$work/dies" | grep '"holds_released": [1-9]' ||
		! kill -0 $first; do
		sleep 0.1
	done
	kill -KILL $others
	wait $others
	wait $first
	got=$?
	cat "$work/told" "$work/said"
	[ $got -eq 1 ] && grep -q '^the producer is gone$' "$work/said" &&
		grep -q '"complete": false,' "$work/told" &&
		grep -q '"pulls": [1-9]' "$work/told"
}

check results_after_death

# The socket of one that was killed is in nobody's way.
taken_over() {
	"$tool" --dir "$work/killed" --blocks 256 2>"$work/killing" &
	others=$!
	await_serving "$work/killing" $others
	kill -KILL $others
	wait $others
	"$tool" --dir "$work/killed" --blocks 256 2>"$work/again" &
	others=$!
	await_serving "$work/again" $others
	cat "$work/again"
	within 30 "$tool" --stats "$work/killed" && kill $others && wait $others
}

check taken_over

# Another consumer has the only blocks: a newcomer waits, says so, and gets them
# when that consumer is dead.
little_room() {
	"$tool" --dir "$work/room" --blocks 32 --count 16 --lease 2000 2>"$work/rooms" &
	others=$!
	await_serving "$work/rooms" $others
	"$tool" --blocks 64 --count 32 --requests 1 --lead 60000 "$work/room" &
	first=$!
	until "$tool" --stats "$work/room" | grep '"blocks_free": 0,' ||
		! kill -0 $first; do
		sleep 0.1
	done
	within 60 "$tool" --blocks 64 --count 32 --requests 1 "$work/room" \
		2>"$work/waits" &
	second=$!
	until grep 'the producer has no room: ' "$work/waits" ||
		! kill -0 $second; do
		sleep 0.1
	done
	kill -KILL $first
	wait $second
	got=$?
	kill $others && wait $others && [ $got -eq 0 ] &&
		grep -q '^the producer has no room: ' "$work/waits"
}

check little_room

# Clients over TCP that are no good. Each says whether the producer let go.
cat >"$work/client.c" <<'END'
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
static const unsigned ask[4] = { 2 }; /* its counters */
static struct sockaddr_in at = { .sin_family = AF_INET };
static int is_ready(int fd, short events, int ms)
{
	struct pollfd wait = { .fd = fd, .events = events };
	return poll(&wait, 1, ms) == 1;
}
static int large(int fd)
{
	const unsigned more[4] = { 1, 1025, 1 }; /* blocks, siblings */
	int code;
	send(fd, more, sizeof(more), 0);
	return recv(fd, &code, sizeof(code), MSG_WAITALL) != sizeof(code) || code != -2;
}
static int call(void)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	return connect(fd, (void *)&at, sizeof(at)) ? -1 : fd;
}
static int free_port(void)
{
	socklen_t bytes = sizeof(at);
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	if (bind(fd, (void *)&at, bytes) || getsockname(fd, (void *)&at, &bytes))
		return 1;
	return printf("%d\n", ntohs(at.sin_port)) < 0;
}
static int deaf(int fd)
{
	while (is_ready(fd, POLLOUT, 10000))
		if (send(fd, ask, sizeof(ask), MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
			return 0;
	return 1;
}
static int part(int fd)
{
	char byte;
	return send(fd, ask, 8, 0) != 8 || !is_ready(fd, POLLIN, 5000) ||
	       recv(fd, &byte, 1, 0) > 0;
}
static int halves(int fd)
{
	char byte;
	send(fd, ask, 8, 0);
	is_ready(fd, POLLIN, 200);
	send(fd, ask, 8, 0);
	return !is_ready(fd, POLLIN, 5000) || recv(fd, &byte, 1, 0) != 1;
}
int main(int argc, char **argv)
{
	int fd, i;
	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	at.sin_port = htons(atoi(argv[argc - 1]));
	if (!strcmp(argv[1], "port"))
		return free_port();
	fd = call();
	if (!strcmp(argv[1], "deaf"))
		return deaf(fd);
	if (!strcmp(argv[1], "large"))
		return large(fd);
	if (!strcmp(argv[1], "part"))
		return part(fd);
	if (!strcmp(argv[1], "halves"))
		return halves(fd);
	for (i = 0; i < 79; i++)
		call();
	puts("connected");
	fflush(stdout);
	return pause();
}
END

ticks() { # process: its processor time, user and system
	echo $(($(sed 's/.*) //' "/proc/$1/stat" | cut -d ' ' -f 12,13 | tr ' ' +)))
}

serving_clients() {
	"${CC:-gcc}" -D_GNU_SOURCE "$work/client.c" -o "$work/client" &&
		mkdir -m 700 "$work/p" || return 1
	port=$("$work/client" port 0)
	"$tool" --port "$port" --dir "$work/p" --blocks 1024 2>"$work/ported" &
	ported=$!
	await_serving "$work/ported" $ported
}

deaf_client() {
	within 30 "$work/client" deaf "$port" &&
		within 5 "$tool" --stats "$work/p/"
}

part_of_an_ask() {
	within 30 "$work/client" part "$port"
}

# An ask for more blocks than the pool has never passes.
too_large_an_ask() {
	within 30 "$work/client" large "$port"
}

ask_in_halves() {
	within 30 "$work/client" halves "$port"
}

# More than it takes: it sleeps, and who comes later is served.
many_clients() {
	"$work/client" many "$port" >"$work/many" &
	many=$!
	until [ -s "$work/many" ] || ! kill -0 $many; do
		sleep 0.1
	done
	before=$(ticks $ported)
	within 30 "$tool" --stats "$work/p/"
	served=$?
	used=$(($(ticks $ported) - before))
	kill $many
	echo "status $served, $used hundredths of a second"
	[ $served -eq 0 ] && [ $used -lt 200 ]
}

# Over TCP, but on this machine and in one socket folder.
route_used() {
	set -- within 30 "$tool" $small --port "$port" --dir "$work/p"
	within 30 "$tool" $small -p "$port" --dir "$work/p" 127.0.0.1 || return 1
	"$@" --json 127.0.0.1 | grep '"route": "shm"' &&
		"$@" 127.0.0.1 | grep '^route shm, '
}

# IPv6 loopback, where this machine has it.
host_in_brackets() {
	set -- within 30 "$tool" $small --dir "$work/p" --json
	"$@" --port "$port" '[::1]' | grep '"bytes_wrong": 0,' &&
		"$@" --port 1 "[::1]:$port" | grep '"bytes_wrong": 0,'
}

serving_ends() {
	kill $ported && wait $ported
}

check serving_clients
check deaf_client
check part_of_an_ask
check ask_in_halves
check too_large_an_ask
check many_clients
check route_used
if may 1 'IPv6' -- grep -q '^0\{31\}1 ' /proc/net/if_inet6; then
	check host_in_brackets
fi
claim 'brackets hold an address' 2 'ib_pull: \[node\]:1: brackets hold one IPv6 address' -- \
	"$tool" '[node]:1'
check serving_ends
# Three of a family in each round, of eight; the last round is not full.
claim 'one by one' 0 '"bytes_wrong": 0,' '"pulls": 7,' -- "$tool" $small \
	--count 8 --requests 7 --depth 8 --siblings 3 --one-by-one --verify --json "$sockets"
# The producer has room for four of a round's eight.
claim 'one by one, little room' 0 '"bytes_wrong": 0,' '"pulls": 20,' -- \
	"$tool" $small --blocks 1024 --count 64 --requests 20 --depth 8 \
	--one-by-one --verify --json "$sockets"

# A function that is no public symbol: its name and line are in the debug file alone.
is_stripped_and_has_debug_file() { # installed file, the one that was built, function
	address=$(nm "$2" | awk -v name="$3" '$3 == name { print $1 }') &&
		! readelf -SW "$1" | grep -E ' \.(symtab|debug_info) ' &&
		[ "$(addr2line -f -e "$1" "$address" | head -n 1)" = "$3" ]
}

installed() {
	root=$work/root/usr
	make --no-print-directory B="$build" DESTDIR="$work/root" PREFIX=/usr \
		install || return 1
	PKG_CONFIG_PATH=$root/lib/pkgconfig PKG_CONFIG_SYSROOT_DIR=$work/root \
		pkg-config --cflags --libs kvpull >"$work/flags" || return 1
	# shellcheck disable=SC2046 # flags are words
	"${CC:-gcc}" -std=c11 -D_GNU_SOURCE examples/host.c $(cat "$work/flags") -o "$work/host" || return 1
	{
		KVPULL_SOCKET_DIR=$sockets LD_LIBRARY_PATH=$root/lib "$work/host" prefill 20 |
			KVPULL_SOCKET_DIR=$sockets LD_LIBRARY_PATH=$root/lib "$work/host" decode
	} 2>&1 | grep -q '^decode: 14 pulled, 0 computed, 2 rejected, 2 aborted, 0 wrong$' &&
		readelf -d "$work/host" | grep -q 'NEEDED.*\[libkvpull\.so\.1\]' &&
		"$root/bin/ib_pull" --version &&
		is_stripped_and_has_debug_file "$root/bin/ib_pull" "$tool" main &&
		is_stripped_and_has_debug_file "$root/lib/libkvpull.so.1" \
			"$build/libkvpull.so.1" kvpull_shm_open &&
		tests/lint/probes.sh "$root/lib/libkvpull.so.1" &&
		[ -s "$root/share/man/man1/ib_pull.1" ] &&
		[ -s "$root/share/bash-completion/completions/kvpull_top" ] &&
		[ -s "$root/share/zsh/site-functions/_kvpull_top" ] &&
		[ -s "$root/share/fish/vendor_completions.d/kvpull_top.fish" ] &&
		[ -s "$root/share/man/man3/kvpull_connector.3" ] &&
		[ -s "$root/share/man/man3/kvpull_reader.3" ] || return 1
	make --no-print-directory B="$build" DESTDIR="$work/root" PREFIX=/usr \
		uninstall && [ -z "$(find "$work/root" ! -type d)" ]
}

check installed

echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
