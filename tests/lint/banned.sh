#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Words that we do not use, each with what to use instead. Comments and strings
# do not count, but for TODO and its kin, which count everywhere. Arguments:
# the files to look at; without, all of the project's.
cd "$(dirname "$0")/../.." || exit 1
# shellcheck disable=SC2046 # names without blanks
[ $# -gt 0 ] || set -- $(tests/lint/files.sh)

# This folder names the words; corpora and licence are not ours to word.
files=
for file in "$@"; do
	case $file in
	tests/lint/* | tests/fuzz/corpus/* | LICENSE | *.abi | *.png) ;;
	*) files="$files $file" ;;
	esac
done
# shellcheck disable=SC2086 # names without blanks
exec awk -f tests/lint/banned.awk $files
