#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Install what is missing to build and test kvpull on Debian 12 or 13, or Ubuntu; say
# what is needed elsewhere. deps.sh [lint] [clang] [fabric] [fabric-uml] [engine]
# [wheel] [deb] [packages] [aarch64] [probes] [bench] [docs]: their tools as well.
# setarch (thread sanitizer) and setpriv are in util-linux.
packages="gcc g++ make python3 binutils libc6-dev pkg-config util-linux procps
	libjansson-dev libsodium-dev libcmocka-dev liburing-dev
	libibverbs-dev librdmacm-dev abigail-tools systemtap-sdt-dev zsh fish"
lint="python3 clang-format clang-tidy cppcheck shellcheck codespell mandoc"
clang="clang libclang-rt-14-dev"
engine="python3 python3-venv"
wheel="python3 python3-venv"
deb="build-essential debhelper dpkg-dev fakeroot"
packages_tools="$wheel $deb lintian devscripts mmdebstrap buildah systemd git gpg gpg-agent"
fabric="qemu-system-x86 busybox-static cpio kmod iproute2 perftest rdmacm-utils
	ibverbs-providers"

# The libraries of the other architecture, beside ours.
aarch64="gcc-aarch64-linux-gnu qemu-user libjansson-dev:arm64 libsodium-dev:arm64
	libcmocka-dev:arm64 liburing-dev:arm64 libibverbs-dev:arm64 librdmacm-dev:arm64"

probes="bpftrace"
bench="python3 fio"
docs="python3 python3-venv mandoc"
fabric_uml="flex bison bc xz-utils"

sets="$*"
for extra in "$@"; do
	case $extra in
	lint) packages="$packages $lint" ;;
	clang) packages="$packages $clang" ;;
	engine) packages="$packages $engine" ;;
	wheel) packages="$packages $wheel" ;;
	deb) packages="$packages $deb" ;;
	packages) packages="$packages $packages_tools" ;;
	aarch64) packages="$packages $aarch64" ;;
	probes) packages="$packages $probes" ;;
	bench) packages="$packages $bench" ;;
	docs) packages="$packages $docs" ;;
	fabric) packages="$packages $fabric" ;;
	fabric-uml) packages="$packages $fabric $fabric_uml" ;;
	*)
		echo "deps: unknown set '$extra': lint, clang, fabric, fabric-uml, engine, wheel, deb, packages, aarch64, probes, bench, docs are known" >&2
		exit 2
		;;
	esac
done

# Modules of Python that examples and their tests need. A Python of the user's own
# may have them already.
modules=
for module in cffi yaml; do
	"${PYTHON:-python3}" -c "import $module" 2>/dev/null || modules="$modules python3-$module"
done
packages="$packages$modules"

# Install a program from PyPI into an environment of its own.
pypi_tool() { # set that wants it, folder, program, version
	case " $sets " in
	*" $1 "*) ;;
	*) return ;;
	esac
	venv=$(dirname "$0")/../build/$2
	[ -x "$venv/bin/$3" ] && return
	"${PYTHON:-python3}" -m venv "$venv" &&
		"$venv/bin/pip" --quiet --disable-pip-version-check install "$3==$4"
}

# Debian 12 has older ones.
pypi_tools() {
	pypi_tool docs docs/venv mkdocs 1.6.1 && pypi_tool packages package/twine twine 7.0.0
}

if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
	missing=$modules
	for tool in cc make pkg-config abidw; do
		command -v $tool >/dev/null || missing="$missing $tool"
	done
	for library in jansson libsodium cmocka liburing libibverbs librdmacm; do
		pkg-config --exists $library 2>/dev/null || missing="$missing $library"
	done
	if [ -z "$missing" ]; then
		pypi_tools
		exit
	fi
	echo "deps: this is not Debian; please install:$missing" >&2
	# shellcheck disable=SC2086 # a list of names
	echo "deps: on Debian the packages are" $packages >&2
	exit 1
fi

missing=
for package in $packages; do
	# libfoo:amd64 and libfoo:i386 print one word each; not-installed is one, too.
	status=$(dpkg-query -W -f '${db:Status-Status} ' "$package" 2>/dev/null)
	case " $status" in
	*" installed "*) ;;
	*) missing="$missing $package" ;;
	esac
done
if [ -z "$missing" ]; then
	pypi_tools
	exit
fi

sudo=
if [ "$(id -u)" -ne 0 ]; then
	sudo=sudo
	if ! sudo -n true 2>/dev/null; then
		echo "deps: packages are missing and this is not root; please run:" >&2
		echo "	sudo apt-get update && sudo apt-get install --no-install-recommends -y$missing" >&2
		exit 1
	fi
fi
echo "deps: installing$missing"
case $missing in
*:arm64*) $sudo dpkg --add-architecture arm64 || exit 1 ;;
esac
# A mirror that is slow to answer deserves another try.
# shellcheck disable=SC2086 # a list of names
$sudo apt-get -qq -o Acquire::Retries=3 update &&
	$sudo env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Acquire::Retries=3 \
		install --no-install-recommends -y $missing >/dev/null &&
	pypi_tools
