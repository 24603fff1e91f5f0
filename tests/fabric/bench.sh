#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# bench.sh BUILD FOLDER: pulls beside ib_read_bw -e and ib_read_lat in one
# guest and one run, interleaved, then between two guests; JSON into
# FOLDER/fabric.json, and a line "bar NAME VALUE" for each. Only ratios and
# counts mean something on soft RDMA.
# FABRIC_KIND, FABRIC_UML: see fabric.sh; FABRIC_ROUNDS. A benchmark is no
# test: exit 0, but for 77 where this machine lacks something.
#
# Like with like: one queue pair, one MTU, reliable connections, both sides
# asleep until a completion wakes them (latencies: D and ib_read_lat spin), as
# many bytes from each, and the mean of both: perftest has no other figure.
# ib_read_bw reads one buffer over and over, which stays in the cache; a pull
# reads and writes 4 to 64 MiB, and in soft RDMA the processor copies them. So
# pulls of 64 blocks of 1 MiB are beside messages of 64 MiB, which pass over the
# same bytes: read_bw_1m; read_bw_1m_one_buffer reads 1 MiB over and over.
# ib_read_bw -q 16 has a buffer for each queue pair, 16 MiB on each side, and reads
# one at a time by each: read_bw_1m_16_buffers. read_bw_16m is for pulls of 256
# blocks of 64 KiB.
#
# A bar is the median of the rounds; "interval" says between which two rounds the
# true median lies with 95 of 100 (order statistics, no shape assumed).
#
# Perftest reads the processor's counter, and so does the monotonic clock of
# other machines; in user-mode Linux that is a system call, of which a pull makes
# four. There pulls get a clock like others' (clock.c); *_kernel_clock are
# without.
#
# Pulls of 4 KiB follow one another as the reads of ib_read_lat do: a hundred are
# admitted and claimed, then pulled one by one. Whatever comes after a pause takes
# longer, by what the processor has forgotten: pulls and reads 2 ms after the last
# one are *_gap, pulls after 20 ms *_20ms.
#
# A release is timed from the end of D's pull, when its check was judged, until
# P's engine was told; from D's last byte it is a check longer, which is no more
# than half a pull of 4 KiB. In one guest P and D share a processor, and each
# waits for what the other does besides. Two guests have one each, and one clock
# (clock.c): fabric.release_us is theirs, beside a round trip between them: of
# ib_read_lat -e, and of a pull itself, which is two of them. P's engine polls for
# itself there (progress=caller), since it has one processor; *_thread is with the
# library's thread and an engine that runs as soon as it is woken, as if it had
# another processor (SCHED_FIFO), *_shared with one that runs when that thread
# sleeps again. Not measured: a P that spins, since user-mode Linux hears of
# frames late then (28 ms).
#
# The READ that flushes a GPU's memory is timed with memory of the host, pull by
# pull: F9j of tests/scenario flushes one of each pair. flush_ratio is the median of
# its pairs, of 256 blocks of 64 KiB each.
#
# A probe of 100 keys of a pool, beside a bare list of as many READs of a window's
# 512 bytes: ib_read_bw with lists of 100 behind one doorbell, one completion a
# list and one list in flight. Both spin. A probe digests its keys and judges
# what it found besides, and its list reads 100 places where ib_read_bw's has one.
build=${1:?folder of the build}
folder=${2:?folder for the results}
# shellcheck source=tests/fabric/fabric.sh
. "$(dirname "$0")/fabric.sh"
FABRIC_BUILD=$(cd "$build" && pwd) || exit 2
FABRIC_OUT=$FABRIC_OUT/bench
FABRIC_MEMORY_MIB=2048
FABRIC_PIN=1
rounds=${FABRIC_ROUNDS:-9}
# Builds the library that flushes, over a fake device.
"$FABRIC_BUILD/kvpull_scenarios" --quick --only F9j >/dev/null || exit 2
trap 'fabric_close' EXIT
trap 'exit 130' INT TERM
mkdir -p "$folder"
fabric_open 1 1
status=$?
[ $status -eq 0 ] || exit $status

give_up() {
	echo "bench: $*" >&2
	fabric_last_words $((fabric_jobs - 1)) >&2
	exit 0
}

# The library that pulls are preloaded with.
clock=
if [ "$FABRIC_KIND" = uml ]; then
	clock=$FABRIC_CACHE/fabric_clock.so
	# shellcheck disable=SC2086 # a compiler and its options
	${CC:-cc} -std=c11 -D_GNU_SOURCE -O2 -fPIC -shared \
		"$FABRIC_TREE/tests/fabric/clock.c" -o "$clock" || exit 2
	FABRIC_COUNTER=$(LD_PRELOAD=$clock /bin/true)
fi
# The environment of a pull, with a clock; without, it has the kernel's.
pull_environment() {
	echo "export KVPULL_ROUTE=verbs FABRIC_COUNTER=${FABRIC_COUNTER:-} LD_PRELOAD=$clock"
}
kept_clock=$clock

perftest='-F -d rxe0 -x 1 -u 14 -p 18511'

# Runs a tool of perftest once, in one guest or from guest 2 to guest 1.
peer_once() { # tool, words
	fabric_run 1 180 "$1 $perftest $2 >/dev/null 2>&1 &
		listens 18511 20
		$1 $perftest $2 \$(address 1); code=\$?
		wait; exit \$code"
}

peer_once_between() { # tool, words
	fabric_start 1 "exec $1 $perftest $2" || return
	server=$job
	fabric_run 1 30 'listens 18511 20' &&
		fabric_run 2 180 "exec $1 $perftest $2 \$(address 1)" &&
		fabric_wait "$server" 20
}

# In $peer: of ib_read_bw -e the average MiB/s, of ib_read_lat the typical
# microseconds. Perftest prints 0 where it could not tell, and inf where a busy
# host kept it from measuring its clock: once more.
peer_run() { # tool, words, bytes, column, where: nothing, or "_between"
	for _ in 1 2 3 4 5; do
		"peer_once${5:-}" "$1" "$2 -s $3" || give_up "$1 failed"
		peer=$(awk -v size="$3" -v column="$4" \
			'$1 == size { print $column }' \
			"$(fabric_output "$job")")
		case $peer in
		0 | 0.00 | inf | *nan | '') continue ;;
		esac
		return
	done
	give_up "$1 -s $3 printed 0 or inf five times"
}

peer_bandwidth() { # bytes, reads
	peer_run ib_read_bw "-e -n $2" "$1" 4
}

# Pulls of one shape; report and counters are in the job's output.
pull() { # block bytes, blocks, requests, words for both, words for D
	words="--size $1 --count $2 --blocks $(($2 * 2)) --layers 1 $4"
	fabric_run 1 240 "$(pull_environment)
		\$FABRIC_BUILD/ib_pull $words --thread --port 18515 \
			--dir /tmp/p 2>/dev/null &
		server=\$!
		listens 18515 60
		\$FABRIC_BUILD/ib_pull $words --requests $3 --dir /tmp/c --json \
			--verbose $5 \$(address 1); code=\$?
		kill \$server; wait \$server; exit \$code" ||
		give_up "ib_pull failed"
}

# Pulls of 4 KiB from guest 1 to guest 2, whose clocks are one.
pull_between() { # words for P, words for D, scheduling of P's engine
	words='--size 4096 --count 1 --blocks 2 --layers 1'
	one_clock="$(pull_environment)
		mount --bind \$FABRIC_SHARE/boot_id /proc/sys/kernel/random/boot_id"
	fabric_start 1 "$one_clock
		exec \$FABRIC_BUILD/ib_pull $words $1 --port 18515 \
			--dir /tmp/p 2>/dev/null" || give_up "no producer"
	server=$job
	# Changes the server's first thread, which is the engine's.
	fabric_run 1 60 "listens 18515 60 &&
		chrt ${3:---idle --pid 0} \$(pidof ib_pull)" ||
		give_up "no producer"
	fabric_run 2 120 "$one_clock
		exec \$FABRIC_BUILD/ib_pull $words --dir /tmp/c --json \
			$2 \$(address 1)" ||
		give_up "ib_pull failed"
	fabric_signal "$server" TERM
	consumer=$job
	fabric_wait "$server" 20
	job=$consumer
}

# Mean time of a probe, by the reader of a pool whose owner is all but idle.
pool_probe() {
	fabric_run 1 60 "$(pull_environment)
		exec \$FABRIC_BUILD/ib_pull --pool --owners 1 --consumers 1 \
			--count 100 --size 512 --rate 1 --keys 200 --blocks 400 \
			--duration 3 --dir /tmp/p --json" ||
		give_up "ib_pull --pool failed"
	note pool_probe_us "$(tr ',' '\n' <"$(fabric_output "$job")" |
		awk '$1 == "\"probe_us\":" { print $2 }')"
}

read_list() {
	peer_run ib_read_bw '-l 100 -t 100 -Q 100 -n 10000' 512 5
	note read_list_us "$(awk -v rate="$peer" 'BEGIN { print 100 / rate }')"
}

flush_ratio() {
	fabric_run 1 180 "cd /tmp; export TEST_PATIENCE=20 \
		KVPULL_TEST_MUTANT=\$FABRIC_BUILD/mutants/flushed/obj/libkvpull.so.1
		exec \$FABRIC_BUILD/kvpull_scenarios --quick --route verbs --only F9j" ||
		give_up "F9j failed"
	note flush_ratio_64k "$(sed -n 's/.*a flush costs \(-*[0-9]*\) thousandths.*/\1/p' \
		"$(fabric_output "$job")" | awk '{ print 1 + $1 / 1000 }')"
}

# The producer is killed in mid-pull and started again at once.
pull_reconnect() {
	words='--size 65536 --count 64 --blocks 256 --layers 1'
	fabric_run 1 120 "export KVPULL_ROUTE=verbs
		serve() {
			\$FABRIC_BUILD/ib_pull $words --thread --port 18515 \
				--dir /tmp/p 2>/dev/null &
			server=\$!
			listens 18515 60
		}
		serve
		\$FABRIC_BUILD/ib_pull $words --duration 8 --requests 4096 \
			--retry 60 --dir /tmp/c --json --verify --thread \
			\$(address 1) &
		client=\$!
		until \$FABRIC_BUILD/ib_pull --stats --dir /tmp/p |
			grep -q 'released\": [1-9][0-9]'; do
			sleep 0.2
		done
		kill -KILL \$server
		serve
		wait \$client; code=\$?
		kill \$server; wait \$server; exit \$code" ||
		give_up "ib_pull failed"
}

number() { # key of the pull's report
	awk -v key="\"$1\":" '$1 == key { sub(",", "", $2); print $2 }' \
		"$(fabric_output "$job")"
}

milliseconds() { # key, of microseconds
	number "$1" | awk '$1 > 0 { print $1 / 1000 }'
}

# Count of the verbs route, a MiB: a word of its line at close.
counted() { # word
	tr ',;' '[\n*]' <"$(fabric_output "$job")" |
		awk -v word="$1" '
		/verbs: read/ { bytes = $3; n["requests"] = $6 }
		$2 == "doorbells" || $2 == "completions" { n[$2] = $1 }
		END { if (bytes) printf "%.4f\n", n[word] / (bytes / 1048576) }'
}

results=$FABRIC_CACHE/bench_results
: >"$results"
note() { # name, value
	case $2 in
	'' | *[!0-9.e+-]*) give_up "no value of $1: $2" ;;
	esac
	echo "$1 $2" >>"$results"
	echo "fabric: $1 $2"
}

# MiB/s of all pulls but the first, which connects, each from its start to its
# end in the library. Between pulls P writes and D copies: what a busy host takes
# from us for that is not the pulls'.
speed() {
	number one_pull_gb_s | awk '{ if ($1) print $1 * 1000 / 1.048576 }'
}

ratio() { # MiB/s, two of perftest's
	awk -v pull="$1" -v a="$2" -v b="$3" \
		'BEGIN { print pull * 2 / (a + b) }'
}

# Pulls between two runs of ib_read_bw: their ratio to the mean of both.
beside() { # name, read bytes, reads, block bytes, blocks, requests
	peer_bandwidth "$2" "$3"
	before=$peer
	pull "$4" "$5" "$6" --contiguous --thread
	contiguous=$(speed)
	note "pull_mib_s_$1" "$contiguous"
	note "doorbells_$1" "$(counted doorbells)"
	note "completions_$1" "$(counted completions)"
	note "work_requests_$1" "$(counted requests)"
	pull "$4" "$5" "$6" '' --thread
	scattered=$(speed)
	note "pull_mib_s_$1_scattered" "$scattered"
	note "work_requests_$1_scattered" "$(counted requests)"
	note connect_ms "$(milliseconds first_connect_us)"
	note "doorbells_$1_scattered" "$(counted doorbells)"
	peer_bandwidth "$2" "$3"
	note "read_bw_$1" "$before"
	note "read_bw_$1" "$peer"
	note "ratio_$1" "$(ratio "$contiguous" "$before" "$peer")"
	note "ratio_$1_scattered" "$(ratio "$scattered" "$before" "$peer")"
}

one_by_one='--depth 100 --one-by-one --lead 2'
round=0
while [ $round -lt "$rounds" ]; do
	round=$((round + 1))
	flush_ratio
	beside 64k 65536 2048 65536 256 33
	beside 4k 4096 8192 4096 1024 33
	peer_run ib_read_bw '-e -q 16 -t 1 -n 16' 1048576 4
	before_16=$peer
	beside 1m 67108864 6 1048576 64 17
	peer_run ib_read_bw '-e -q 16 -t 1 -n 16' 1048576 4
	note read_bw_1m_16_buffers "$before_16"
	note read_bw_1m_16_buffers "$peer"
	note ratio_1m_16_buffers "$(ratio "$contiguous" "$before_16" "$peer")"
	peer_bandwidth 16777216 8
	note read_bw_16m "$peer"
	peer_bandwidth 1048576 256
	note read_bw_1m_one_buffer "$peer"
	peer_run ib_read_lat '-n 1000' 4096 5
	note read_lat_4k "$peer"
	pull 4096 1 1000 '--blocks 256' "$one_by_one"
	note pull_us_4k "$(number latency_us_p50)"
	# A while after the claim: its word to P is not what is timed.
	pull 4096 1 200 '' '--lead 2'
	note pull_us_4k_gap "$(number latency_us_p50)"
	# The tool's time includes the pause.
	peer_run ib_read_lat '-n 300 --latency_gap=2000' 4096 5
	note read_lat_4k_gap "$(awk -v us="$peer" 'BEGIN { print us - 2000 }')"
	peer_run ib_read_lat '-e -n 1000' 4096 5
	note read_lat_4k_asleep "$peer"
	pull 4096 1 1000 '--blocks 256' "--thread $one_by_one"
	note pull_us_4k_asleep "$(number latency_us_p50)"
	pull 4096 1 200 '' '--thread --lead 2'
	note release_us_one_guest "$(number release_us_p50)"
	pull 4096 1 100 '' '--lead 20'
	note pull_us_4k_20ms "$(number latency_us_p50)"
	pull 4096 1 100 '' '--thread --lead 20'
	note release_us_20ms "$(number release_us_p50)"
	clock=
	pull 4096 1 200 '' '--lead 2'
	note pull_us_4k_kernel_clock "$(number latency_us_p50)"
	pull 4096 1 200 '' '--thread --lead 2'
	note release_us_kernel_clock "$(number release_us_p50)"
	clock=$kept_clock
	for _ in 1 2 3; do
		read_list
		pool_probe
	done
	pull_reconnect
	note reconnect_ms "$(milliseconds reconnect_us)"
done

# Between two guests; other kernels have no clock in common. Both sides sleep:
# guests that spin wait for each other's time slice (perftest: 10 ms a READ).
between() {
	trap 'fabric_close' EXIT
	fabric_open 2 1 || give_up "no two guests"
	for guest in 1 2; do
		cp /proc/sys/kernel/random/boot_id "$FABRIC_OUT/guest$guest/"
	done
	round=0
	while [ $round -lt $((2 * rounds)) ]; do
		round=$((round + 1))
		peer_run ib_read_lat '-e -n 1000' 4096 5 _between
		note read_lat_4k_two_guests_asleep "$peer"
		late='--requests 200 --lead 2 --thread'
		pull_between '' "$late"
		note pull_us_4k_two_guests_asleep "$(number latency_us_p50)"
		note release_us "$(number release_us_p50)"
		pull_between --thread "$late" '--fifo --pid 1'
		note release_us_thread "$(number release_us_p50)"
		pull_between --thread "$late"
		note release_us_shared "$(number release_us_p50)"
	done
}

# Pulls by two rails, good ones and with one of them late or lossy, beside pulls by
# the good one alone. Each of the two guests has a processor for both rails.
slow_rails() {
	# shellcheck source=tests/fabric/scenario_pull.sh
	. "$FABRIC_TREE/tests/fabric/scenario_pull.sh"
	# shellcheck source=tests/fabric/scenario_rails.sh
	. "$FABRIC_TREE/tests/fabric/scenario_rails.sh"
	trap 'fabric_close' EXIT
	fabric_open 2 2 || give_up "no two rails"
	rails_serve_small || give_up "no producer"
	rails_beside || give_up "ib_pull failed"
	note rails2_ratio "$(awk -v percent="$rails_ratio" \
		'BEGIN { print 100 / percent }')"
	for slow in 30ms:delay:30 150ms:delay:150 loss:loss:10; do
		fault=${slow#*:}
		rails_beside "${fault%:*}" "${fault#*:}" ||
			give_up "ib_pull failed"
		note "slow_rail_ratio_${slow%%:*}" "$(awk -v percent="$rails_ratio" \
			'BEGIN { print percent / 100 }')"
	done
}

fabric_close
# A failure between guests ends that part alone.
[ "$FABRIC_KIND" != uml ] || (between)
(slow_rails)

# Bars: medians over the rounds.
awk -v json="$folder/fabric.json" -v kind="$FABRIC_KIND" '
function median(name,  i, j, t, n) {
	n = count[name]
	for (i = 1; i <= n; i++)
		for (j = i; j > 1 && value[name, j - 1] > value[name, j]; j--) {
			t = value[name, j]
			value[name, j] = value[name, j - 1]
			value[name, j - 1] = t
		}
	return value[name, int((n + 1) / 2)]
}
function bar(name, number) {
	printf "bar %s %.4f\n", name, number
	bars = bars sprintf("%s\n    \"%s\": %.4f", bars == "" ? "" : ",", name, number)
}
# With so many values the true median lies between the k-th from below and the
# k-th from above, in 95 of 100 cases; fewer than six values have no such
# interval.
function rank_of_interval(n,  k, i, chance, sum) {
	chance = 0.5 ^ n
	for (k = 0; k < n / 2; k++) {
		sum += chance
		if (2 * sum > 0.05)
			break
		chance *= (n - k) / (k + 1)
	}
	return k
}
function ratio(name,  n, k) {
	bar("fabric.bw_ratio." name, median("ratio_" name))
	n = count["ratio_" name]
	k = rank_of_interval(n)
	if (k)
		printf "interval fabric.bw_ratio.%s %.4f .. %.4f of %d\n", name, \
			value["ratio_" name, k], value["ratio_" name, n + 1 - k], n
}
function between(  release, trip, pull) {
	release = median("release_us")
	trip = median("read_lat_4k_two_guests_asleep")
	pull = median("pull_us_4k_two_guests_asleep")
	bar("fabric.release_us", release)
	bar("fabric.release_round_trip_us", trip)
	bar("fabric.release_round_trips", release / trip)
	bar("fabric.release_pulls_round_trips", 2 * release / pull)
	bar("fabric.release_us_thread", median("release_us_thread"))
	bar("fabric.release_us_shared", median("release_us_shared"))
	bar("fabric.release_us_last_byte", release + pull / 2)
	bar("fabric.lat_ratio.4k_two_guests_asleep_gap", pull / trip)
}
function slow_rail(name) {
	if (count["slow_rail_ratio_" name])
		bar("fabric.slow_rail_ratio." name, \
			median("slow_rail_ratio_" name))
}
{ value[$1, ++count[$1]] = $2 + 0; names[$1] }
END {
	ratio("4k")
	ratio("64k")
	ratio("1m")
	ratio("64k_scattered")
	ratio("4k_scattered")
	ratio("1m_scattered")
	ratio("1m_16_buffers")
	bar("fabric.bw_ratio.1m_16_buffers_to_one", \
		median("read_bw_1m_16_buffers") / \
		median("read_bw_1m_one_buffer"))
	bar("fabric.bw_ratio.64k_to_16m", \
		median("pull_mib_s_64k") / median("read_bw_16m"))
	bar("fabric.bw_ratio.1m_to_one_buffer", \
		median("pull_mib_s_1m") / median("read_bw_1m_one_buffer"))
	bar("fabric.doorbells_per_mib.64k", median("doorbells_64k_scattered"))
	bar("fabric.completions_per_mib.64k", median("completions_64k"))
	bar("fabric.lat_ratio.4k", median("pull_us_4k") / median("read_lat_4k"))
	bar("fabric.lat_ratio.4k_gap", \
		median("pull_us_4k_gap") / median("read_lat_4k_gap"))
	bar("fabric.lat_ratio.4k_asleep", \
		median("pull_us_4k_asleep") / median("read_lat_4k_asleep"))
	if (count["release_us"])
		between()
	if (count["rails2_ratio"])
		bar("fabric.rails2_ratio", median("rails2_ratio"))
	slow_rail("30ms")
	slow_rail("150ms")
	slow_rail("loss")
	bar("fabric.flush_ratio.64k", median("flush_ratio_64k"))
	bar("fabric.pool_probe_to_read_list", \
		median("pool_probe_us") / median("read_list_us"))
	bar("fabric.connect_ms", median("connect_ms"))
	bar("fabric.release_us_one_guest", median("release_us_one_guest"))
	bar("fabric.reconnect_ms", median("reconnect_ms"))
	for (name in names)
		measured = measured sprintf("%s\n    \"%s\": %s", \
			measured == "" ? "" : ",", name, median(name))
	printf "{\n  \"kind\": \"%s\",\n  \"bars\": {%s\n  },\n  \"medians\": {%s\n  }\n}\n", \
		kind, bars, measured >json
}' "$results"
echo "fabric: $folder/fabric.json"
