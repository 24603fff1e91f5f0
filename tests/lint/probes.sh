#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The probes that kvpull(7) lists are those of the library, with as many
# arguments, and scripts look at no others. probes.sh LIBRARY
set -u
cd "$(dirname "$0")/../.." || exit 1
library=$1
passed=0
failed=0
check() { # what, good: 1
	if [ "$2" -eq 1 ]; then
		passed=$((passed + 1))
	else
		echo "probes: $1"
		failed=$((failed + 1))
	fi
}

if ! echo '#include <sys/sdt.h>' | ${CC:-gcc} -E - >/dev/null 2>&1; then
	echo "refused: sys/sdt.h (systemtap-sdt-dev) is not here: no probes"
	echo "0 passed, 0 failed, 1 skipped"
	exit 0
fi
# "name count", as the page says, and as the notes do.
listed=$(sed -n '/^\.\\" probes/,/^\.El/s/^\.It Cm //p' tools/kvpull.7 |
	awk '{ print $1, NF - 1 }' | sort)
built=$(readelf -n "$library" | awk '
	$1 == "Provider:" { ours = $2 == "kvpull" }
	$1 == "Name:" { name = $2 }
	$1 == "Arguments:" && ours { print name, NF - 1 }' | sort -u)
same=0
[ -n "$listed" ] && [ "$listed" = "$built" ] && same=1
check "kvpull(7) lists '$listed', $library has '$built'" $same
for script in tools/*.bt; do
	wrong=$(echo "$built" | awk '
		NR == FNR { count[$1] = $2; next }
		/^usdt:/ {
			n = split($1, part, ":")
			name = part[n]
			if (n != 4 || part[3] != "kvpull" || !(name in count))
				print FILENAME ": " $1 " is no probe"
			probes++
		}
		{
			text = $0
			while (match(text, /arg[0-9]+/)) {
				if (substr(text, RSTART + 3, RLENGTH - 3) + 0 >= count[name])
					print FILENAME ":" FNR ": " name " has no " substr(text, RSTART, RLENGTH)
				text = substr(text, RSTART + RLENGTH)
			}
		}
		END { if (!probes) print "no probe" }' - "$script")
	good=0
	[ -z "$wrong" ] && good=1
	check "$wrong" $good
done
echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
