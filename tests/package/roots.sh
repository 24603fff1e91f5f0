# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
# shellcheck disable=SC2016 # single quotes are for the shell in the root
# Bare roots of Debian, and commands in them, of root alone.

# A root with the library's run-time needs, Python, and no compiler.
root_make() { # suite, folder
	mmdebstrap --quiet --variant=apt \
		--include=python3-venv,libjansson4,libsodium23,liburing2 "$1" "$2" &&
		chmod 755 "$2"
}

# A newcomer's machine: make, the sources, and nothing else.
root_make_bare() { # suite, sources, folder
	mmdebstrap --quiet --variant=apt --include=make "$1" "$3" &&
		chmod 755 "$3" && mkdir "$3/kvpull" &&
		tar -xf "$2" --strip-components=1 -C "$3/kvpull"
}

# With /proc and /dev of ours in a namespace that ends with the command.
inside() { # folder, command
	unshare --mount sh -c 'mount --make-rprivate / && mount --rbind /proc "$0/proc" &&
		mount --rbind /dev "$0/dev" && exec chroot "$0" sh -c "$1"' "$1" "$2"
}
