#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Do the checks of language, rooms, circles, purity, sizes and mutants see what they are
# for? Each row plants one violation in a small tree of its own, which passes
# without it; the check must fail and say the words of the row. A part of `make
# mutants`.
set -u
cd "$(dirname "$0")/../.." || exit 1
root=$PWD
work=$root/build/planted
export GIT_CEILING_DIRECTORIES=$root/build
. tests/result.sh
passed=0
failed=0

# Two files of one pure room, one of another and one of the ground floor.
tree() {
	rm -rf "$work"
	mkdir -p "$work"/{include/base,shm,verbs,plugin/{hold,scheduler,bytes,route},tests/{lint,mutants},build} ||
		exit 1
	cp tests/lint/{files,layers,rooms,sizes}.sh tests/lint/{language,floors}.py tests/lint/rooms.awk "$work/tests/lint"
	cp tests/mutants.py "$work/tests"
	cd "$work" || exit 1
	: >tests/mutants/survivors
	printf 'adds_one | a sum is of another number | test_hold\n\tplugin/hold/two.c | hold_two | base_sum(a, 2) => base_sum(a, 1)\n' >tests/mutants/hold.txt
	echo 'int base_sum(int a, int b);' >include/base/sum.h
	printf '#include "base/sum.h"\nint base_sum(int a, int b)\n{\n\treturn a + b;\n}\n' >include/base/sum.c
	echo 'int hold_one(int a); int hold_two(int a);' >plugin/hold/hold.h
	printf '#include "plugin/hold/hold.h"\nint hold_one(int a)\n{\n\treturn hold_two(a);\n}\n' >plugin/hold/one.c
	printf '#include "base/sum.h"\n#include "plugin/hold/hold.h"\nint hold_two(int a)\n{\n\treturn base_sum(a, 2);\n}\n' >plugin/hold/two.c
	echo 'int scheduler_run(void);' >plugin/scheduler/scheduler.h
	printf '#include "plugin/scheduler/scheduler.h"\nint scheduler_run(void)\n{\n\treturn 1;\n}\n' >plugin/scheduler/scheduler.c
	echo 'int shm_open_it(void);' >shm/shm.h
	echo 'int verbs_open_it(void);' >verbs/verbs.h
	printf '#include "shm/shm.h"\n#include "verbs/verbs.h"\n' >plugin/route/ways.c
}

check() { # language, layers, rooms, sizes or mutants
	local source

	if [ "$1" = rooms ] || [ "$1" = floors ]; then
		for source in $(tests/lint/files.sh c); do
			mkdir -p "build/$(dirname "$source")" &&
				gcc -w -O1 -fno-builtin -I. -Iinclude -c -o "build/${source%.c}.o" "$source" ||
				return 2
		done
	fi
	case $1 in
	language) python3 tests/lint/language.py ;;
	floors) python3 tests/lint/floors.py build ;;
	mutants) tests/mutants.py check ;;
	*) "tests/lint/$1.sh" build ;;
	esac
}

result() { # name, 0 or not, what was printed
	if [ "$2" -eq 0 ]; then
		echo "caught: $1"
		passed=$((passed + 1))
	else
		failed_say "$1 is not seen" <<<"$3"
		failed=$((failed + 1))
	fi
}

planted() { # check, words that it must say, file, what is added to it
	local output status

	tree
	mkdir -p "$(dirname "$3")"
	printf '%b' "$4" >>"$3"
	output=$(check "$1" 2>&1)
	status=$?
	[ "$status" -ne 0 ] && grep -qF "$2" <<<"$output"
	result "$1: $2" $? "$output"
	cd "$root" || exit 1
}

for name in language layers rooms sizes mutants; do
	tree
	output=$(check $name 2>&1)
	result "$name: a tree without a fault" $? "$output"
	cd "$root" || exit 1
done
vague='/* Who calls has no descriptor. */\n/* Of those one is kept. */\n'
long="/* $(printf 'word %.0s' {1..36}). */\n"
rows=(
	language 'begin without naming their subject' plugin/hold/hold.h "$vague"
	language 'plugin/hold/hold.h:2 comment: Who calls has no descriptor.' plugin/hold/hold.h "$vague"
	language 'sentences of more than 35 words' include/kvpull/connector.h "$long"
	language 'include/kvpull: 1 sentences' include/kvpull/connector.h "$long"
	floors '.: at most 0 arrows may run upward: include -> plugin' include/base/sum.h '#include "plugin/hold/hold.h"\n'
	floors 'plugin/hold: a circle of one two' plugin/hold/two.c 'int hold_back(int a)\n{\n\treturn hold_one(a);\n}\n'
	layers 'shm may include' shm/shm.h '#include "verbs/verbs.h"\n'
	layers 'verbs may include' verbs/verbs.h '#include "shm/shm.h"\n'
	layers 'include may include' include/base/sum.h '#include "plugin/hold/hold.h"\n'
	layers 'plugin/hold may include' plugin/hold/hold.h '#include "plugin/scheduler/scheduler.h"\n'
	layers 'examples may include' examples/hello.c '#include "plugin/hold/hold.h"\n'
	layers 'is in no known folder' plugin/attic/attic.h 'int attic;\n'
	layers 'write the path from the root' plugin/hold/hold.h '#include "../scheduler/scheduler.h"\n'
	rooms 'a circle of files in plugin/hold' plugin/hold/two.c 'int hold_back(int a)\n{\n\treturn hold_one(a);\n}\n'
	rooms 'plugin/hold/two calls itself pure and asks for clock_gettime' plugin/hold/two.c
	'#include <time.h>\nint hold_now(void)\n{\n\tstruct timespec t;\n\treturn clock_gettime(1, &t);\n}\n'
	rooms 'asks for malloc' plugin/hold/two.c '#include <stdlib.h>\nvoid *hold_more(void)\n{\n\treturn malloc(8);\n}\n'
	rooms 'asks for write' plugin/scheduler/scheduler.c '#include <unistd.h>\nlong hold_say(void)\n{\n\treturn write(2, "x", 1);\n}\n'
	rooms 'asks for pthread_create' plugin/bytes/thread.c
	'#include <pthread.h>\nint bytes_run(pthread_t *t, void *(*f)(void *))\n{\n\treturn pthread_create(t, 0, f, 0);\n}\n'
	rooms 'asks for shm_open_it' plugin/hold/two.c 'int shm_open_it(void);\nint hold_shm(void)\n{\n\treturn shm_open_it();\n}\n'
	mutants 'hold_two: nowhere' tests/mutants/hold.txt 'b | breaks | test_hold\n\tplugin/hold/two.c | hold_two | return 7; =>\n'
	mutants 'hold_two: 2 times' tests/mutants/hold.txt 'b | breaks | test_hold\n\tplugin/hold/two.c | hold_two | a => 7\n'
	mutants 'has no function hold_six' tests/mutants/hold.txt 'b | breaks | test_hold\n\tplugin/hold/two.c | hold_six | return 7; =>\n'
	mutants 'b does not compile' tests/mutants/hold.txt 'b | breaks | test_hold\n\tplugin/hold/two.c | hold_two | base_sum(a, 2) => sum_of(a +)\n'
	mutants 'adds_one stands also at' tests/mutants/hold.txt 'adds_one | breaks | test_hold\n\tplugin/hold/two.c | hold_two | a, 2 => a, 3\n'
	sizes 'function of' plugin/hold/one.c "int hold_long(void)\n{\n$(printf 'a;\\n%.0s' {1..61})}\n"
	sizes 'has more than' plugin/hold/hold.h "$(printf '/* */\\n%.0s' {1..701})"
)
for ((at = 0; at < ${#rows[@]}; at += 4)); do
	planted "${rows[@]:at:4}"
done
rm -rf "$work"
echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
