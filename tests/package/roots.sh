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

# The sources of a bare root with none of our variables.
bare_make() { # inside or contained, root, words of env
	"$1" "$2" "cd /kvpull && exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root \
		MAKEFLAGS=-j$(nproc) $3"
}

# As Docker runs it: namespaces of its own but for the network, few devices, 64 MiB
# of /dev/shm, a /proc of its own, a /sys to read. container.py takes the rights.
contained() { # folder, command
	unshare --mount --pid --fork --kill-child --ipc --uts sh -c '
		mount --make-rprivate / &&
			mount -t tmpfs -o mode=755 tmpfs "$1/dev" &&
			mkdir -p "$1/dev/pts" "$1/dev/shm" "$1/dev/mqueue" "$1/sys" &&
			for name in null zero full random urandom tty; do
				: >"$1/dev/$name" && mount --bind "/dev/$name" "$1/dev/$name" || exit 1
			done &&
			ln -s /proc/self/fd "$1/dev/fd" && ln -s pts/ptmx "$1/dev/ptmx" &&
			mount -t devpts -o newinstance,ptmxmode=666,mode=620,gid=5 devpts "$1/dev/pts" &&
			mount -t tmpfs -o size=64m,mode=1777 tmpfs "$1/dev/shm" &&
			mount -t mqueue mqueue "$1/dev/mqueue" &&
			mount -t proc proc "$1/proc" && mount --rbind "$1/proc/sys" "$1/proc/sys" &&
			mount -o remount,bind,ro "$1/proc/sys" &&
			mount --bind /sys "$1/sys" && mount -o remount,bind,ro "$1/sys" &&
			exec "$0" "$1" "$2"' "$PWD/tests/package/container.py" "$1" "$2"
}

# Docker's capabilities, no namespaces, no io_uring, no clone3() (for which libc has
# clone()), no sockets of the kernel's ciphers; an ordinary socket.
contained_is_denied() { # root
	contained "$1" 'grep -x "CapEff:.00000000a80425fb" /proc/self/status && ! unshare -U true &&
		perl -e "sub fails { my (\$error, \$number, @rest) = @_; \$! = 0;
				syscall(\$number, @rest) < 0 && \$! == \$error or die qq(\$number: \$!\n) }
			fails(1, 425, 8, 0); fails(38, 435, 0, 0); fails(1, 41, 38, 5, 0);
			syscall(41, 2, 1, 0) >= 0 or die \$!"'
}
