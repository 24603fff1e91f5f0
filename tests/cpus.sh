#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs unit tests of vector code on CPUs with fewer vectors: under qemu-user, as
# an x86-64 of 2008 (SSE4.2) and one of 2013 (AVX2).
# cpus.sh <build folder> test...
set -u
cd "$(dirname "$0")/.." || exit 1
build=$1
shift
log=$build/cpus.log
. tests/result.sh
passed=0
failed=0
case $(uname -m) in
x86_64) ;;
*)
	echo "cpus: $(uname -m) has no older models here"
	echo "0 passed, 0 failed, $# skipped"
	exit 0
	;;
esac
for test in "$@"; do
	for cpu in Nehalem Haswell; do
		if qemu-x86_64 -cpu "$cpu" "$build/unit/$test" >"$log" 2>&1 &&
			grep -q '^\[  PASSED  \] [1-9]' "$log"; then
			passed=$((passed + 1))
			continue
		fi
		failed=$((failed + 1))
		failed_say "$test on $cpu" <"$log"
	done
done
echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
