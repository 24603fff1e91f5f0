#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What tools/pages and tools/boards say is there: tests that reproduce a row of
# troubleshooting.md, lines of the log, findings, keys and calls, metrics and
# their labels, alerts, options; cluster.md as a whole. words.sh <build folder with kvpull_top>
# shellcheck disable=SC2016 # single quotes are for marks of code in the pages
cd "$(dirname "$0")/../.." || exit 1
build=$1
rules=tools/boards/kvpull.rules.yaml
board=tools/boards/kvpull.json
page=tools/pages/troubleshooting.md
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
bad=$work/bad
: >"$bad"
miss() { echo "pages: $*" | tee -a "$bad"; }
sources() { grep -rqF --include='*.[ch]' --exclude-dir=build --exclude-dir=tests "$@" .; }

# A histogram has three names.
"$build/kvpull_top" --prometheus --folder "$work" 2>/dev/null | awk '/^# TYPE/ { print $3
	if ($4 == "histogram") print $3 "_bucket\n" $3 "_sum\n" $3 "_count" }' >"$work/names"
[ -s "$work/names" ] || miss "kvpull_top --prometheus names nothing"

grep -ohE '\bkvpull_(worker|consumer|reader)_[a-z_]+' $rules $board | sort -u >"$work/used"
[ -s "$work/used" ] || miss "the boards name no metric"
grep -vxF -f "$work/names" "$work/used" | while read -r name; do
	miss "the boards name $name, which kvpull_top does not export"
done
# by (a, b), on (a, b), {{a}}, $labels.a, a=~
{
	grep -ohE '\b(by|on) \([a-z_, ]+\)' $rules $board | sed 's/^[a-z]* (//; s/)//' | tr -d ' ' | tr , '\n'
	grep -ohE '\{\{[a-z_]+\}\}|labels\.[a-z_]+|[a-z_]+=~' $rules $board | tr -d '{}=~' | sed 's/labels\.//'
} | sort -u | while read -r label; do
	grep -qE "[{,\"]$label=" tools/kvpull_top_prometheus.c ||
		grep -qE "[0-9], \"$label\", NO, " tools/kvpull_top_columns.h ||
		miss "the boards name the label $label, which kvpull_top does not export"
done

sed -n 's/^      - alert: //p' $rules | sort >"$work/alerts"
for part in '        expr: ' '        labels: {severity: ' '          summary: "'; do
	[ "$(grep -c "^$part" $rules)" -eq "$(wc -l <"$work/alerts")" ] ||
		miss "an alert of $rules has no line '$part'"
done
sed -n 's/^| \(Kvpull[A-Za-z]*\) .*/\1/p' tools/pages/metrics.md | sort |
	diff "$work/alerts" - >"$work/diff" || miss "metrics.md has other alerts: $(cat "$work/diff")"

# Rows: symptom | meaning | what to do | tests.
awk -F ' *[|] *' 'NF == 6 && $5 != "---" && $5 != "reproduced by" { print $5 }' $page |
	sed 's/, /\n/g' >"$work/tests"
[ -s "$work/tests" ] || miss "$page has no rows"
while read -r test; do
	case $test in
	[A-Z][0-9][a-z]) grep -qF "{ \"$test\"" tests/scenario/*.c ;;
	test_*:*)
		name=${test#*: }
		grep -qE "(TEST(_[A-Z_]+)?\\(${name}[,)]|${name}\\(void)" \
			tests/unit/*/"${test%%:*}.c"
		;;
	doctor_causes.sh:*) grep -qE "(cause|peer|configured|path) ${test#*: } " tests/doctor_causes.sh ;;
	doctor.sh:*) grep -qE "(claim|in_folder) ${test#*: } " tests/doctor.sh ;;
	*) false ;;
	esac 2>"$work/log" || miss "$page: no test '$test'"
done <"$work/tests"
awk -F ' *[|] *' 'NF == 6 { print $2 }' $page | grep -oE '"[^"]+"' | tr -d '"' |
	while read -r words; do
		sources -e "$words" || miss "$page: nothing says '$words'"
	done
awk -F ' *[|] *' 'NF == 6 { print $2 }' $page | grep -oE 'finding `[a-z-]+`' | cut -d'`' -f2 |
	while read -r finding; do
		grep -qF "\"$finding\"" tools/kvpull_top_model.c || miss "$page: no finding $finding"
	done

grep -ohE '`[a-z][a-z0-9]*_[a-z0-9_]+(\(\))?`' tools/pages/*.md | tr -d '`()' | sort -u |
	while read -r word; do
		grep -qxF "$word" "$work/names" || sources -w "$word" ||
			miss "tools/pages: there is no $word"
	done
# Keys: variables of the environment, and the second column of tuning.md. A
# Service called kvpull sets KVPULL_PORT.
grep -ohE '^#define KVPULL_[A-Z_]+' include/kvpull/*.h | sed 's/.* //' >"$work/constants"
sed -n 's/^\tX(\([a-z_]*\), .*/\1/p' plugin/config/keys.h | sort -u >"$work/keys"
{
	grep -ohE '\bKVPULL_[A-Z_]+\b' tools/pages/*.md examples/*.md | grep -vxF -f "$work/constants" |
		sed 's/^KVPULL_//' | tr '[:upper:]' '[:lower:]'
	awk -F ' *[|] *' 'NF == 5 { print $3 }' tools/pages/tuning.md | grep -oE '`[a-z]+(_[a-z_]+)?`' | tr -d '`'
} | sort -u >"$work/used"
[ -s "$work/keys" ] || miss "keys.h has no row"
grep -vxF -f "$work/keys" -e port "$work/used" | while read -r key; do
	miss "tools/pages: there is no key $key"
done
# Options behind a tool's name, up to the end of the code.
for tool in ib_pull kvpull_doctor kvpull_top; do
	"$build/$tool" --help >"$work/help"
	grep -ohE "\\b$tool [^\`|;&]*" tools/pages/*.md | grep -oE '(^| )--[a-z-]+' | tr -d ' ' | sort -u |
		while read -r option; do
			grep -qE -- "^ .*$option\b" "$work/help" || miss "tools/pages: $tool has no $option"
		done
done

# cluster.md: settings that a worker takes, commands that are there, lines that
# tests of the choice and of a refusal have, findings of the doctor.
cluster=tools/pages/cluster.md
block() { # kind: the lines of such blocks
	awk -v kind="$1" '/^```/ { on = $0 == "```" kind; next } on' $cluster
}
head -c 32 /dev/zero >"$work/key"
chmod 600 "$work/key"
block sh | sed 's/ *#.*//' >"$work/lines"
block text >>"$work/lines"
for word in export verbs:; do
	grep -q "^$word " "$work/lines" || miss "$cluster has no line '$word'"
done
${CC:-gcc} -E -P -D_GNU_SOURCE -Iinclude -I. tests/unit/verbs/test_verbs_topology.c \
	tests/unit/tools/test_doctor_causes.c | tr '\n' ' ' | sed 's/" *"//g' >"$work/said"
while read -r word words; do
	case $word in
	export)
		env "$(echo "$words" | sed "s|/etc/kvpull/key|$work/key|")" KVPULL_SOCKET_DIR="$work" \
			"$build/kvpull_doctor" --no-probe --root "$work" >"$work/log" 2>&1
		! grep '^FAIL *configuration' "$work/log" || miss "$cluster: $words"
		;;
	dcb)
		option=$(echo "$words" | grep -oE '[a-z]+-prio|prio-[a-z]+')
		! command -v dcb >/dev/null || dcb "${words%% *}" help 2>&1 | grep -qF " $option " ||
			miss "$cluster: dcb $words"
		;;
	ip)
		option=$(echo "$words" | awk '{ print $(NF - 1) }')
		! command -v ip >/dev/null || ip "${words%% *}" help 2>&1 | grep -qF " $option " ||
			miss "$cluster: ip $words"
		;;
	*)
		grep -qF -e "\"$word $words" -e "\\n$word $words" "$work/said" ||
			miss "$cluster: no test has the line '$word $words'"
		;;
	esac
done <"$work/lines"
grep -oE 'findings? `[a-z]+`((,| and) `[a-z]+`)*' $cluster | grep -oE '`[a-z]+`' | tr -d '`' | sort -u |
	while read -r finding; do
		grep -qE "(^|[ (,])\"$finding\"," tools/kvpull_doctor_texts.h || miss "$cluster: no finding $finding"
	done

for link in $(grep -ohE '\]\([^):]*\)' tools/pages/*.md | tr -d '])('); do
	[ -e "tools/pages/$link" ] || miss "tools/pages: $link is not there"
done
[ ! -s "$bad" ]
