#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What tools/pages and tools/boards say is there: tests that reproduce a row of
# troubleshooting.md, lines of the log, findings, keys and calls, metrics and
# their labels, alerts. words.sh <build folder with kvpull_top>
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
	grep -qE "[{,\"]$label(=|\")" tools/kvpull_top_prometheus.c ||
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
		grep -qE "(TEST(_WITH)?\\(${name}[,)]|${name}\\(void)" \
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
for link in $(grep -ohE '\]\([^):]*\)' tools/pages/*.md | tr -d '])('); do
	[ -e "tools/pages/$link" ] || miss "tools/pages: $link is not there"
done
[ ! -s "$bad" ]
