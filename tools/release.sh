#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# make release-check and make release. `check` says what is missing before this
# commit can be released. `release` checks, builds all packages anew, writes the
# notes and sums into build/dist, signs the sums, and makes the tag last. It pushes
# and uploads nothing: its last lines are the commands that do.
# release.sh check|release <version>
set -eu
cd "$(dirname "$0")/.."
what=$1
version=$2
tag=v$version
dist=build/dist
missing=0

lacks() { # what is so, what to do
	missing=$((missing + 1))
	echo "missing: $1: $2"
}

# The key that git signs with, else the first one; empty without any.
signing_key() {
	git config user.signingkey ||
		gpg --list-secret-keys --with-colons 2>/dev/null |
		awk -F: '$1 == "sec" { print $5; exit }'
}

# The section of this version, without its head.
notes() {
	awk -v head="## $version (" '/^## / { on = index($0, head) == 1; next } on' CHANGELOG.md
}

check() {
	git rev-parse --git-dir >/dev/null 2>&1 || {
		echo "release: this is no git repository: release from a checkout" >&2
		exit 1
	}
	[ -z "$(git status --porcelain)" ] ||
		lacks "files differ from the commit" "commit or remove what git status lists"
	! git rev-parse --quiet --verify "refs/tags/$tag" >/dev/null ||
		lacks "the tag $tag exists" "raise VERSION in Makefile"
	grep -qx "version = \"$version\"" plugin/vllm/pyproject.toml ||
		lacks "plugin/vllm/pyproject.toml has another version" "write $version there, as in Makefile"
	grep -qE "^## $(echo "$version" | sed 's/\./\\./g') \([0-9]{4}-[0-9]{2}-[0-9]{2}[,)]" CHANGELOG.md ||
		lacks "CHANGELOG.md has no section of $version" \
			"write the head '## $version (YYYY-MM-DD, ABI ...)' in place of Unreleased"
	! grep -q '^Nothing is released yet' SECURITY.md ||
		lacks "SECURITY.md says that nothing is released" "name the versions that are mended"
	for file in tools/debian/control plugin/vllm/pyproject.toml; do
		! grep -q 'example\.org' "$file" ||
			lacks "$file names example.org" "write the maintainer's address and the repository's"
	done
	[ -n "$(signing_key)" ] ||
		echo "note: gpg has no secret key: sums and tag will not be signed"
	echo "$version: $missing missing"
	[ $missing -eq 0 ]
}

build() {
	rm -rf "$dist"
	for words in dist wheel deb; do
		tools/package.sh $words "$version"
	done
	tools/package.sh wheel "$version" aarch64
	tools/package.sh sbom "$version"
}

release() {
	check
	build
	notes >"$dist/NOTES.md"
	(cd "$dist" && sha256sum -- *.tar.gz *.whl *.deb *.spdx.json >SHA256SUMS)
	key=$(signing_key)
	if [ -n "$key" ]; then
		gpg --yes --local-user "$key" --armor --detach-sign "$dist/SHA256SUMS"
		signed="--local-user=$key"
	else
		signed=--annotate
	fi
	{ echo "kvpull $version" && echo && cat "$dist/NOTES.md"; } |
		git -c gpg.format=openpgp tag "$signed" --cleanup=whitespace --file=- "$tag"
	echo "$tag is tagged, $dist has $(wc -l <"$dist/SHA256SUMS") files, their sums and NOTES.md. To publish:"
	echo "	git push origin $tag"
	echo "	twine upload $dist/kvpull_vllm-$version.tar.gz $dist/*.whl"
	echo "	put the files of $dist beside the tag, with NOTES.md as text"
}

case $what in
check | release) "$what" ;;
*)
	echo "release.sh: check or release, not '$what'" >&2
	exit 2
	;;
esac
