#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Prints the branches that no unit test takes and no simulated run, those of a
# room together and the number of each room first. For development alone: nothing
# passes or fails by it. tests/README.md says how to read the list.
# coverage.sh [ROOM...]   folders (hold, plugin/hold); none: the whole product
set -eu
cd "$(dirname "$0")/.."
build=$PWD/build/coverage
# Not our parent's: its jobserver is not for ours.
unset MAKEFLAGS MFLAGS MAKELEVEL
mkdir -p "$build"
# Tests fork, and their children end by _exit(), which keeps no counts.
cat >"$build/exit.c" <<'END'
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

void __gcov_dump(void);

void _exit(int status)
{
	struct rlimit limit;

	/* A write beyond a limit would end the child by a signal. */
	if (!getrlimit(RLIMIT_FSIZE, &limit) && limit.rlim_cur == RLIM_INFINITY)
		__gcov_dump();
	for (;;)
		(void)syscall(SYS_exit_group, status);
}
END
${CC:-cc} -c -o "$build/exit.o" "$build/exit.c"
find "$build" -name '*.gcda' -delete
# Counts of threads that are not atomic are lost. A test that fails is counted, too.
{
	make -k -j"$(nproc)" B=build/coverage LDFLAGS="--coverage $build/exit.o" \
		CFLAGS='-O1 --coverage -fprofile-update=atomic' \
		unit build/coverage/kvpull_sim
	build/coverage/kvpull_sim --seeds "${SEEDS:-60}"
	build/coverage/kvpull_sim --pool --seeds "${SEEDS:-60}"
} >"$build/run.log" 2>&1 || true
grep -E 'FAILED|error:' "$build/run.log" || true
exec python3 tests/coverage.py "$build" "$@"
