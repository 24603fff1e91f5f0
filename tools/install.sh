#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# make install and make uninstall: library, headers, pkg-config file, tools,
# their man pages and completions, the unit of the exporter, and for people pages, boards and
# examples. The folder has the library and the tools, and their debug files in .debug if they
# are stripped.
# install.sh install|uninstall <destdir> <prefix> <libdir> <folder> <version> <tool>...
cd "$(dirname "$0")/.." || exit 1
action=$1
prefix=$3
libdir=$4
build=$5
version=$6
root=$2$3
lib=$2$4
shift 6

if [ "$action" = uninstall ]; then
	rm -f "$lib/libkvpull.so" "$lib/libkvpull.so.1" "$lib/libkvpull.so.$version" \
		"$lib/.debug/libkvpull.so.1.debug" "$lib/pkgconfig/kvpull.pc"
	for header in include/kvpull/*.h; do
		rm -f "$root/$header"
	done
	for tool in "$@"; do
		name=$(basename "$tool")
		rm -f "$root/bin/$name" "$root/bin/.debug/$name.debug" "$root/share/man/man1/$name.1" \
			"$root/share/bash-completion/completions/$name" \
			"$root/share/zsh/site-functions/_$name" \
			"$root/share/fish/vendor_completions.d/$name.fish"
	done
	rm -f "$root/share/man/man5/kvpull.conf.5" "$root/share/man/man7/kvpull.7" \
		"$root/share/man/man3/kvpull_connector.3" \
		"$root/share/man/man3/kvpull_reader.3" \
		"$root/lib/systemd/system/kvpull-top@.service"
	rm -rf "$root/share/kvpull" "$root/share/doc/kvpull"
	rmdir "$root/include/kvpull" "$lib/.debug" "$root/bin/.debug" 2>/dev/null
	exit 0
fi

# A tool that was built for another machine cannot write its own.
completion() { # tool, shell, file below the root
	text=$("$1" --completion "$2" 2>/dev/null) || return 0
	install -d "$(dirname "$root/$3")"
	printf '%s\n' "$text" >"$root/$3"
	chmod 644 "$root/$3"
}

# A stripped file's other half.
debug_file() { # name, folder
	[ ! -e "$build/.debug/$1.debug" ] ||
		install -D -m 644 "$build/.debug/$1.debug" "$2/.debug/$1.debug"
}

set -e
install -d "$lib/pkgconfig" "$root/include/kvpull"
install -m 755 "$build/libkvpull.so.1" "$lib/libkvpull.so.$version"
debug_file libkvpull.so.1 "$lib"
ln -sf "libkvpull.so.$version" "$lib/libkvpull.so.1"
ln -sf libkvpull.so.1 "$lib/libkvpull.so"
install -m 644 include/kvpull/*.h "$root/include/kvpull"
cat >"$lib/pkgconfig/kvpull.pc" <<END
prefix=$prefix
libdir=$libdir
includedir=\${prefix}/include

Name: kvpull
Description: KV-cache blocks pulled between inference engines
Version: $version
Libs: -L\${libdir} -lkvpull
Cflags: -I\${includedir}
END
chmod 644 "$lib/pkgconfig/kvpull.pc"
for tool in "$@"; do
	name=$(basename "$tool")
	install -D -m 755 "$build/$name" "$root/bin/$name"
	debug_file "$name" "$root/bin"
	[ ! -e "tools/$name.1" ] ||
		install -D -m 644 "tools/$name.1" "$root/share/man/man1/$name.1"
	completion "$tool" bash "share/bash-completion/completions/$name"
	completion "$tool" zsh "share/zsh/site-functions/_$name"
	completion "$tool" fish "share/fish/vendor_completions.d/$name.fish"
done
install -D -m 644 tools/kvpull.conf.5 "$root/share/man/man5/kvpull.conf.5"
install -D -m 644 tools/kvpull.7 "$root/share/man/man7/kvpull.7"
install -D -m 644 tools/kvpull_connector.3 "$root/share/man/man3/kvpull_connector.3"
install -D -m 644 tools/kvpull_reader.3 "$root/share/man/man3/kvpull_reader.3"
install -d "$root/lib/systemd/system"
sed "s|/usr/bin/|$prefix/bin/|" tools/units/kvpull-top@.service \
	>"$root/lib/systemd/system/kvpull-top@.service"
install -D -m 644 -t "$root/share/kvpull" tools/units/kvpull-engine.conf tools/boards/*
install -D -m 644 -t "$root/share/doc/kvpull" tools/pages/*.md
find examples -type f ! -name '*.pyc' | while IFS= read -r file; do
	install -D -m 644 "$file" "$root/share/doc/kvpull/$file"
done
