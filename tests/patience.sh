#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Print how many times as long as alone on this machine a program takes now: 1 on
# a quiet machine, 10 beside twenty busy processes on two processors. Limits of
# tests are multiplied by it (TEST_PATIENCE), so that a busy machine fails none.
#
# A loop of some 0.1 s of CPU time is timed by the clock, which sees a quota and
# a machine that is shared, too; the load of the last minute sees work that comes
# in bursts. The greater of both counts. At most 20: what hangs ends some day.
spin() {
	local i
	for ((i = 0; i < 40000; i++)); do :; done
}
TIMEFORMAT='%R %U %S'
read -r took user system < <({ time spin; } 2>&1)
read -r load _ </proc/loadavg
awk -v took="$took" -v cpu="$user $system" -v load="$load" -v cpus="$(nproc)" 'BEGIN {
	split(cpu, part, " ")
	slow = took / (part[1] + part[2] + 0.001)
	busy = load / cpus
	times = int((slow > busy ? slow : busy) + 0.7)
	print (times < 1 ? 1 : times > 20 ? 20 : times)
}'
