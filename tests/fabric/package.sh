# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
# Debian's kernel packages for kernel.sh and uml.sh. Sourced with
# $package_set, the set of deps.sh that has the tools.

: "${package_set:?}"

# Say what is missing, and end.
lacks() {
	echo "fabric: $*: make deps WITH=$package_set"
	exit 1
}

# Fetch into a folder what a metapackage depends on first; its path is $deb.
package_get() { # metapackage, folder
	command -v apt-get >/dev/null || lacks "no apt-get to get a kernel with"
	package=$(package_of "$1")
	if [ -z "$package" ]; then
		apt-get -qq -o Acquire::Retries=3 update
		package=$(package_of "$1")
	fi
	[ -n "$package" ] || lacks "apt knows no $1"
	echo "fabric: downloading $package"
	(cd "$2" && apt-get -qq -o Acquire::Retries=3 \
		-o "APT::Sandbox::User=$(id -un)" download "$package") ||
		lacks "$package cannot be downloaded"
	# shellcheck disable=SC2034 # for who sources this
	deb=$(ls "$2"/*.deb)
}

package_of() { # metapackage
	apt-cache depends "$1" 2>/dev/null |
		awk '$1 == "Depends:" { print $2; exit }'
}
