#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# bench.sh BUILD FOLDER: pulls beside ib_read_bw -e and ib_read_lat in one
# guest and one run, interleaved; JSON into FOLDER/fabric.json, and a line
# "bar NAME VALUE" for each. Only ratios and counts mean something on soft RDMA.
# FABRIC_KIND, FABRIC_UML: see fabric.sh. A benchmark is no test: exit 0, but
# for 77 where this machine lacks something.
build=${1:?folder of the build}
folder=${2:?folder for the results}
# shellcheck source=tests/fabric/fabric.sh
. "$(dirname "$0")/fabric.sh"
FABRIC_BUILD=$(cd "$build" && pwd) || exit 2
FABRIC_OUT=$FABRIC_OUT/bench
FABRIC_MEMORY_MIB=2048
rounds=${FABRIC_ROUNDS:-3}
trap 'fabric_close' EXIT
trap 'exit 130' INT TERM
mkdir -p "$folder"
fabric_open 1 1
status=$?
[ $status -eq 0 ] || exit $status

give_up() {
	echo "bench: $*" >&2
	fabric_last_words 0 >&2
	exit 0
}

# shellcheck disable=SC2016 # for the guest
perftest='-F -d rxe0 -x 1 -u 14 -p 18511'

# In $peer: of ib_read_bw -e the average MiB/s, of ib_read_lat the typical
# microseconds.
peer_bandwidth() { # bytes, reads
	fabric_run 1 120 "ib_read_bw $perftest -e -s $1 -n $2 >/dev/null 2>&1 &
		listens 18511 20
		ib_read_bw $perftest -e -s $1 -n $2 \$(address 1); code=\$?
		wait; exit \$code" || give_up "ib_read_bw failed"
	peer=$(awk -v size="$1" '$1 == size { print $4 }' \
		"$(fabric_output "$job")")
}

peer_latency() {
	fabric_run 1 120 "ib_read_lat $perftest -s 4096 -n 500 >/dev/null 2>&1 &
		listens 18511 20
		ib_read_lat $perftest -s 4096 -n 500 \$(address 1); code=\$?
		wait; exit \$code" || give_up "ib_read_lat failed"
	peer=$(awk '$1 == 4096 { print $5 }' "$(fabric_output "$job")")
}

# One round of pulls; its report and counters are in the job's output.
pull() { # block bytes, blocks, requests, further words
	words="--size $1 --count $2 --pool $(($2 * 4)) --layers 1"
	fabric_run 1 180 "export KVPULL_ROUTE=verbs
		\$FABRIC_BUILD/ib_pull $words --port 18515 --dir /tmp/p 2>/dev/null &
		server=\$!
		listens 18515 60
		\$FABRIC_BUILD/ib_pull $words --requests $3 --dir /tmp/c --json \
			--verbose $4 \$(address 1); code=\$?
		kill \$server; wait \$server; exit \$code" ||
		give_up "ib_pull failed"
}

number() { # key of the pull's report
	awk -v key="\"$1\":" '$1 == key { sub(",", "", $2); print $2 }' \
		"$(fabric_output "$job")"
}

# What the verbs route counted, a MiB: word of its line at close.
counted() { # word
	tr ',;' '[\n*]' <"$(fabric_output "$job")" |
		awk -v word="$1" '
		/verbs: read/ { bytes = $3; n["requests"] = $6 }
		$2 == "doorbells" || $2 == "completions" { n[$2] = $1 }
		END { if (bytes) printf "%.4f\n", n[word] / (bytes / 1048576) }'
}

results=$FABRIC_OUT/results
: >"$results"
note() { # name, value
	case $2 in
	'' | *[!0-9.]*) give_up "no value of $1: $2" ;;
	esac
	echo "$1 $2" >>"$results"
	echo "fabric: $1 $2"
}

round=0
while [ $round -lt "$rounds" ]; do
	round=$((round + 1))
	peer_bandwidth 65536 512
	note read_bw_64k "$peer"
	pull 65536 256 8 --thread
	note pull_gb_s_64k_scattered "$(number bandwidth_gb_s)"
	note doorbells_64k "$(counted doorbells)"
	note completions_64k "$(counted completions)"
	note work_requests_64k "$(counted requests)"
	peer_bandwidth 4096 2000
	note read_bw_4k "$peer"
	pull 4096 1024 8 --thread
	note pull_gb_s_4k_scattered "$(number bandwidth_gb_s)"
	peer_bandwidth 1048576 64
	note read_bw_1m "$peer"
	pull 1048576 64 4 --thread
	note pull_gb_s_1m_scattered "$(number bandwidth_gb_s)"
	peer_latency
	note read_lat_4k "$peer"
	# Spinning, as ib_read_lat does.
	pull 4096 1 200 ''
	note pull_us_4k "$(number latency_us_p50)"
done

# Bars: medians over the rounds. Blocks have scattered ids in all of them.
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
function ratio(size) {
	# perftest says MiB/s.
	return median("pull_gb_s_" size "_scattered") * 1e9 / \
		(median("read_bw_" size) * 1048576)
}
{ value[$1, ++count[$1]] = $2 + 0; names[$1] }
END {
	bar("fabric.bw_ratio.4k_scattered", ratio("4k"))
	bar("fabric.bw_ratio.64k_scattered", ratio("64k"))
	bar("fabric.bw_ratio.1m_scattered", ratio("1m"))
	bar("fabric.doorbells_per_mib.64k", median("doorbells_64k"))
	bar("fabric.completions_per_mib.64k", median("completions_64k"))
	bar("fabric.lat_ratio.4k", median("pull_us_4k") / median("read_lat_4k"))
	for (name in names)
		measured = measured sprintf("%s\n    \"%s\": %s", \
			measured == "" ? "" : ",", name, median(name))
	printf "{\n  \"kind\": \"%s\",\n  \"bars\": {%s\n  },\n  \"medians\": {%s\n  }\n}\n", \
		kind, bars, measured >json
}' "$results"
echo "fabric: $folder/fabric.json"
