#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Does a patch of tests/mutants/ apply, and does what it makes of the tree's
# sources compile? CI builds a quarter of them a commit: a stale one would be
# seen days later.
# tests/lint/mutant.sh PATCH        FLAGS: as `make lint` sets them
set -u
cd "$(dirname "$0")/../.." || exit 1
patch=$PWD/$1
copy=$(mktemp -d) || exit 1
trap 'rm -rf "$copy"' EXIT
# The copy is of no working tree of git.
export GIT_CEILING_DIRECTORIES=$copy

stale() { # what it does not
	echo "mutants: $1 does not $2 any more: renew it"
	exit 1
}

mapfile -t touched < <(sed -n 's,^--- a/,,p' "$1")
[ ${#touched[@]} -gt 0 ] || stale "$1" "name a file"
cp --parents "${touched[@]}" "$copy" 2>/dev/null || stale "$1" apply
(cd "$copy" && git apply --whitespace=nowarn "$patch") 2>/dev/null ||
	stale "$1" apply
for file in "${touched[@]}"; do
	[ "${file%.c}" != "$file" ] || continue
	eval "gcc -I'$copy' -I'$copy/include' $FLAGS -fsyntax-only" \
		"'$copy/$file'" || stale "$1" compile
done
