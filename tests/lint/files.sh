#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Print the project's files that end in one of the given suffixes ("c h sh"),
# one a line; all of them without arguments. Works without git too.
cd "$(dirname "$0")/../.." || exit 1
if ! git ls-files -co --exclude-standard >/dev/null 2>&1; then
	list() { find . -type f ! -path './.git/*' ! -path './build/*' | sed 's|^\./||'; }
else
	list() { git ls-files -co --exclude-standard; }
fi
pattern='.'
if [ $# -gt 0 ]; then
	pattern="\\.($(echo "$*" | tr ' ' '|'))\$"
fi
list | sort -u | grep -E "$pattern" | while IFS= read -r file; do
	[ -f "$file" ] && printf '%s\n' "$file"
done
