#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The library's ABI against the committed baseline: anything that abidiff calls
# a change fails, additions too, and without a suppression file. bless renews
# the baseline; do it in the commit that raises KVPULL_ABI_MINOR and says in
# CHANGELOG.md what was added.
# compare.sh compare|bless <libkvpull.so>
cd "$(dirname "$0")/../.." || exit 1
action=$1
library=$2
baseline=tests/abi/baseline.abi

for tool in abidw abidiff; do
	if ! command -v $tool >/dev/null; then
		echo "abi: $tool is missing: make deps"
		echo "0 passed, 1 failed, 0 skipped"
		exit 1
	fi
done
if [ ! -e "$library" ]; then
	echo "abi: there is no $library"
	echo "0 passed, 1 failed, 0 skipped"
	exit 1
fi

now=$(mktemp) || exit 1
trap 'rm -f "$now"' EXIT
# Public types alone, no paths and lines: the file says what an engine sees.
abidw --headers-dir include/kvpull --drop-private-types --no-corpus-path \
	--no-comp-dir-path --no-show-locs --no-elf-needed \
	--exported-interfaces-only --no-write-default-sizes \
	--type-id-style hash --out-file "$now" "$library" || exit 1
machine=$(sed -n "s/.* architecture='\([^']*\)'.*/\1/p" "$now" | head -n 1)

if [ "$action" = bless ]; then
	cp "$now" "$baseline" && chmod 644 "$baseline"
	echo "abi: $baseline is the ABI of $library ($machine)"
	exit 0
fi
if [ ! -e "$baseline" ]; then
	echo "abi: there is no $baseline: make abi-bless"
	echo "0 passed, 1 failed, 0 skipped"
	exit 1
fi
if ! grep -q "architecture='$machine'" "$baseline"; then
	echo "refused: the baseline is not of $machine; tests/abi/test_abi.c still holds"
	echo "0 passed, 0 failed, 1 skipped"
	exit 0
fi
if abidiff "$baseline" "$now"; then
	echo "1 passed, 0 failed, 0 skipped"
	exit 0
fi
echo "abi: the ABI is not that of $baseline. A change or removal needs a new"
echo "abi: major. An addition: raise KVPULL_ABI_MINOR, make abi-bless, CHANGELOG.md."
echo "0 passed, 1 failed, 0 skipped"
exit 1
