#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Build the library with files changed: mutant.sh BUILD NAME "FILE ..." SED. BUILD
# is a build folder of this tree; its objects are taken over, so that make
# compiles only what the change reaches. Prints the library's path. Exit status
# 77: no source tree here.
set -eu
build=$1 name=$2 files=$3 script=$4
cd "$(dirname "$0")/../.." && test -d plugin && test -f Makefile || exit 77
build=$(cd "$build" && pwd)
tree=$build/mutants/$name

rm -rf "$tree"
mkdir -p "$tree/obj"
# The routes as the Makefile finds them.
folders='include plugin'
for file in */*.c; do
	case " $folders tools " in
	*" ${file%/*} "*) ;;
	*) folders="$folders ${file%/*}" ;;
	esac
done
# shellcheck disable=SC2086 # words
cp -pr Makefile $folders "$tree"
for folder in $folders; do
	cp -pr "$build/$folder" "$tree/obj" 2>/dev/null || :
done
# The flags they were made with, else make would compile them all anew.
cp -p "$build/flags" "$tree/obj"
find "$tree/obj" -name '*.d' \
	-exec sed -i "s#^[^ ]*/\(\($(echo "$folders" | sed 's/ /\\|/g')\)/[a-z_0-9/]*\.o\):#obj/\1:#" {} +
for file in $files; do
	sed "$script" "$file" >"$tree/$file"
	if cmp -s "$file" "$tree/$file"; then
		echo "$file: the mutation changes nothing" >&2
		exit 1
	fi
done

# Objects tell which sanitizer they want.
variant=release
needs=$(nm -u "$build/plugin/progress/pull.o" 2>/dev/null) || :
case $needs in
*__tsan_*) variant=tsan ;;
*__asan_*) variant=asan ;;
esac
env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL \
	make -s -C "$tree" B=obj VARIANT=$variant V=0 WERROR=0 lib >"$tree/log" 2>&1 ||
	{ cat "$tree/log" >&2; exit 1; }
# A full build takes half a minute, which is the time of the calling test.
compiled=$(grep -c '^  CC' "$tree/log") || :
if [ "$compiled" -gt 3 ]; then
	echo "$compiled files were compiled for a change of $files" >&2
	exit 1
fi
echo "$tree/obj/libkvpull.so.1"
