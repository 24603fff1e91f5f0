#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The two commands of README's quick start, whole, as a newcomer types them: in
# roots of Debian 12 and 13 that have make and the sources alone, in a chroot and
# with the rights that Docker gives a container. Root on x86-64, Debian's mirrors;
# some ten minutes for each of the four.
# newcomer.sh <version> [bookworm|trixie]...
set -u
cd "$(dirname "$0")/../.." || exit 1
version=$1
shift
work=$(mktemp -d) || exit 1
chmod 755 "$work"
trap 'rm -rf "$work"' EXIT
. tests/claim.sh
. tests/package/roots.sh

# In all of the output: what failed, and the sum.
newcomer_types() { # inside or contained, suite, target
	check bare_make "$1" "$work/$2-$1" "make $3"
	grep -E '^FAILED|^demo: |^[0-9]+ passed, ' "$work/checked" | sed "s/^/$2, $1, make $3: /"
}

check tools/package.sh dist "$version"
[ $# -gt 0 ] || set -- bookworm trixie
for suite in "$@"; do
	for way in inside contained; do
		check root_make_bare "$suite" "build/dist/kvpull-$version.tar.gz" "$work/$suite-$way"
		[ $way = inside ] || check contained_is_denied "$work/$suite-$way"
		newcomer_types $way "$suite" demo
		newcomer_types $way "$suite" check
		rm -rf "${work:?}/$suite-$way"
	done
done
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
