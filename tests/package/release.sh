#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# make release-check and make release, in a small repository whose packages are
# empty files: each thing that is missing is said, nothing is tagged before all is
# built, sums and tag are signed where gpg has a key.
set -u
cd "$(dirname "$0")/../.." || exit 1
work=$(mktemp -d) || exit 1
export GNUPGHOME="$work/gnupg" GIT_CONFIG_GLOBAL="$work/gitconfig" GIT_CONFIG_NOSYSTEM=1
trap 'gpgconf --kill gpg-agent; rm -rf "$work"' EXIT
. tests/claim.sh

tree=$work/tree
mkdir -m 700 "$GNUPGHOME"
mkdir -p "$tree/tools/debian" "$tree/plugin/vllm"
cp tools/release.sh "$tree/tools"
cat >"$tree/tools/package.sh" <<'END_OF_FILE'
#!/bin/sh
[ ! -e ../broken ] || [ -z "${3:-}" ] || exit 1
case $1 in
dist) name=kvpull-$2.tar.gz ;;
wheel) name=kvpull_vllm-$2-${3:-here}.whl ;;
deb) name=libkvpull1_$2.deb ;;
sbom) name=kvpull-$2.spdx.json ;;
esac
mkdir -p build/dist && echo "$1" >"build/dist/$name"
END_OF_FILE
chmod +x "$tree/tools/package.sh"
echo build/ >"$tree/.gitignore"
printf '# Changelog\n\n## %s\n\n### Tools\n- a tool\n\n## 1.2.2 (2026-01-01)\n- old\n' \
	'Unreleased (1.2.3, ABI 1.0)' >"$tree/CHANGELOG.md"
echo 'Nothing is released yet: the newest commit is mended.' >"$tree/SECURITY.md"
echo 'Maintainer: somebody <somebody@example.org>' >"$tree/tools/debian/control"
echo 'version = "1.2.2"' >"$tree/plugin/vllm/pyproject.toml"

tool=$tree/tools/release.sh
repository() { # words for git
	git -C "$tree" "$@"
}
commit() {
	repository add --all && repository commit --quiet --message "$1"
}
no_tag() { [ -z "$(repository tag)" ]; }
git config --global user.name tester
git config --global user.email tester@localhost
claim 'outside of git' 1 'this is no git repository: release from a checkout' -- "$tool" check 1.2.3
repository init --quiet && commit first
echo more >>"$tree/SECURITY.md"
for action in check release; do
	claim "$action says all that is missing" 1 '^missing: files differ from the commit: ' \
		'^missing: plugin/vllm/pyproject\.toml has another version: write 1\.2\.3 there' \
		"^missing: CHANGELOG\\.md has no section of 1\\.2\\.3: write the head '## 1\\.2\\.3 \\(YYYY" \
		'^missing: SECURITY\.md says that nothing is released: ' \
		'^missing: tools/debian/control names example\.org: ' \
		'^note: gpg has no secret key: ' '^1\.2\.3: 5 missing$' -- "$tool" $action 1.2.3
done
check no_tag

sed -i 's/^## Unreleased (1.2.3,/## 1.2.3 (2026-12-01,/' "$tree/CHANGELOG.md"
echo 'The newest minor of each major.' >"$tree/SECURITY.md"
sed -i 's/example\.org/kvpull.test/' "$tree/tools/debian/control"
echo 'version = "1.2.3"' >"$tree/plugin/vllm/pyproject.toml"
commit second
claim 'nothing is missing' 0 '^1\.2\.3: 0 missing$' -- "$tool" check 1.2.3
claim 'a package that stands for 1x2x3' 1 'no section of 1\.2x3: ' -- "$tool" check 1.2x3

: >"$work/broken"
claim 'a wheel that cannot be built' 1 -- "$tool" release 1.2.3
check no_tag
rm "$work/broken"

# Left by another version: it is in no sum.
echo old >"$tree/build/dist/libkvpull1_1.2.2.deb"
claim 'release without a key' 0 '^note: gpg has no secret key: ' \
	'^v1\.2\.3 is tagged, build/dist has 5 files' 'git push origin v1\.2\.3$' \
	'twine upload build/dist/kvpull_vllm-1\.2\.3\.tar\.gz' -- "$tool" release 1.2.3
sums_are_right() {
	(cd "$tree/build/dist" && sha256sum --strict --check SHA256SUMS &&
		[ "$(wc -l <SHA256SUMS)" -eq 5 ] && ! grep 1.2.2 SHA256SUMS)
}
notes_are_those_of_the_version() {
	printf '\n### Tools\n- a tool\n\n' | cmp - "$tree/build/dist/NOTES.md" &&
		repository tag --list --format='%(contents)' v1.2.3 | grep -x '### Tools'
}
is_unsigned() {
	[ ! -e "$tree/build/dist/SHA256SUMS.asc" ] && [ "$(repository cat-file -t v1.2.3)" = tag ]
}
check sums_are_right
check notes_are_those_of_the_version
check is_unsigned
claim 'the same version again' 1 '^missing: the tag v1\.2\.3 exists: raise VERSION in Makefile$' -- \
	"$tool" release 1.2.3

repository tag --delete v1.2.3 >/dev/null
is_signed() {
	gpg --verify "$tree/build/dist/SHA256SUMS.asc" "$tree/build/dist/SHA256SUMS" &&
		repository tag --verify v1.2.3
}
if may 2 'gpg' -- gpg --batch --passphrase '' --quick-generate-key tester@localhost ed25519 sign; then
	claim 'release with a key' 0 '^v1\.2\.3 is tagged' -- "$tool" release 1.2.3
	check is_signed
fi
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
