#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Everything in examples/ does what its first lines say: compiled as they say, and
# run. host.c and host.cpp have a stage of their own (host.sh), hicache.py runs
# with SGLang's class in check-engine. Argument: the build folder with libkvpull.so.
set -u
cd "$(dirname "$0")/.." || exit 1
build=$(cd "$1" && pwd)
out=$build/examples
mkdir -p "$out"
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
. tests/claim.sh
export KVPULL_SOCKET_DIR="$work/s" PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
export PYTHONPATH="$PWD/plugin/vllm" LD_LIBRARY_PATH="$build"
mkdir -m 700 "$KVPULL_SOCKET_DIR"

# The user's Python, or Debian's, for which deps.sh installs both modules.
for python in "${PYTHON:-python3}" /usr/bin/python3; do
	"$python" -c 'import cffi, yaml' 2>/dev/null && break
done

compile() { # name
	# shellcheck disable=SC2086 # "ccache gcc"
	${CC:-cc} -Wall -Wextra -Werror -Iinclude "examples/$1.c" -L"$build" -lkvpull \
		-Wl,-rpath,"$build" -o "$out/$1"
}

# Lines of code: neither blank nor a comment.
is_short() { # file, lines
	lines=$(awk '/^[ \t]*$/ { next }
		/^[ \t]*#/ && FILENAME !~ /[.]c$/ { next }
		/^[ \t]*"""/ { text = !text; if (gsub(/"""/, "") == 1) next; text = 0; next }
		/^[ \t]*\/\*/ { text = 1 }
		text { if (/\*\/[ \t]*$/) text = 0; next }
		{ count++ }
		END { print count }' "$1")
	echo "$1: $lines lines of code" && [ "$lines" -le "$2" ]
}

piped() { # commands of both processes; the status is the second one's
	# shellcheck disable=SC2086 # commands are words
	within 60 $1 2>"$work/first" | within 60 $2
	status=$?
	cat "$work/first" >&2
	return $status
}

for name in hello pool calls; do
	claim "examples/$name.c does not compile" 0 -- compile $name
done
claim "hello.c: P and D" 0 '^D: hello from the memory of P$' '^P: success$' -- \
	piped "$out/hello P" "$out/hello D"
claim "hello.py: P and D" 0 '^D: hello from the memory of P$' -- \
	piped "$python examples/hello.py P" "$python examples/hello.py D"
claim "hello.c to hello.py" 0 '^D: hello from the memory of P$' -- \
	piped "$out/hello P" "$python examples/hello.py D"
claim "hello.py to hello.c" 0 '^D: hello from the memory of P$' -- \
	piped "$python examples/hello.py P" "$out/hello D"
claim "hello.c takes a ticket that is none" 1 '^D has no ticket' -- \
	piped "echo ticket" "$out/hello D"
claim "pool.c: owner and reader" 0 '^reader: hello from chunk 3$' -- \
	piped "$out/pool owner" "$out/pool reader"
claim "calls.c" 0 '^pulled$' '^0 holds left$' '^done$' -- within 60 "$out/calls" "$work"
check is_short examples/hello.c 60
check is_short examples/hello.py 60
check is_short examples/router.py 40
claim "router.py" 0 '^3 passed, 0 failed' -- "$python" tests/examples/engines.py examples/router.py
claim "hicache.py is no Python" 0 -- "$python" -c \
	'import ast, sys; ast.parse(open(sys.argv[1]).read())' examples/hicache.py

names_all() {
	for file in $(tests/lint/files.sh | grep '^examples/'); do
		grep -qF "](${file#examples/})" examples/README.md || [ "$file" = examples/README.md ] ||
			{ echo "examples/README.md does not link ${file#examples/}"; return 1; }
	done
}
check names_all

# YAML: the manifests, and the forms and the workflow of .github.
yaml() { # script and its arguments
	"$python" "$@" >"$work/log" 2>&1
	result_read "$work/log" $?
	[ "$bad" -eq 0 ] || failed_say "$1" <"$work/log"
	passed=$((passed + ok))
	failed=$((failed + bad))
}
# shellcheck disable=SC2046 # names without blanks
yaml tests/examples/manifests.py $(find examples -name '*.yaml')
yaml tests/examples/forge.py
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
