#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A C file has at most 700 lines, a function at most 60 from its brace to its
# brace. Tables of tests/abi do not count.
cd "$(dirname "$0")/../.." || exit 1
# shellcheck disable=SC2016 # $0 is awk's
tests/lint/files.sh c h | xargs awk '
function complain(text)
{
	print "sizes: " text
	bad[FILENAME] = 1
}
FNR == 1 {
	files++
	begin = 0
}
# Kernel style: a function, and only a function, has its braces in column 0.
/^\{/ {
	begin = FNR
}
/^\}/ {
	if (begin && FNR - begin - 1 > 60)
		complain(FILENAME ":" begin " function of " FNR - begin - 1 " lines, at most 60")
	begin = 0
}
FNR == 701 && FILENAME !~ /^tests\/abi\// {
	complain(FILENAME " has more than 700 lines")
}
END {
	for (file in bad)
		failed++
	printf "%d passed, %d failed, 0 skipped\n", files - failed, failed
	exit failed > 0
}'
