#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Seeds of the fuzzers out of the golden bytes: each message of tests/golden/ is
# one, in the spelling that its target reads. tests/fuzz/corpus/ has the others.
# seeds.sh <folder>: one folder a target in it.
set -u
cd "$(dirname "$0")/../.." || exit 1
out=$1

write() { # target, prefix of hex digits
	local path

	mkdir -p "$out/$1"
	path=$out/$1/$kind-$number
	# shellcheck disable=SC2059,SC2001 # the format is the bytes, two digits each
	printf "$(sed 's/../\\x&/g' <<<"$2$hex")" >"$path"
}

# The kind's own target; frames stand behind two bytes of their length.
seed() {
	local bytes=$((${#hex} / 2))

	[ -n "$hex" ] || return
	number=$((number + 1))
	case $kind in
	ticket)
		hex=${hex:0:$((${#hex} - 32))} # its checksum is made anew
		write ticket 01
		;;
	challenge | hello | welcome | refusal | reader | share) write handshake 01 ;;
	step) write step '' ;;
	result | rank) write result '' ;;
	give) write give '' ;;
	frame | greeting) write frame "$(printf '%02x00' $bytes)" ;;
	note | keys) write frame "$(frame_head)" ;;
	esac
}

# A note, or keys, as one frame: length, magic, version, kind, acked, total, 0.
frame_head() {
	local total=0
	local frame_kind=03

	[ "$kind" = keys ] && total=$((${#hex} / 2)) && frame_kind=02
	printf '%02x004b56%02x%s00000000%02x00000000000000' \
		$((${#hex} / 2 + 16)) "$version" "$frame_kind" "$total"
}

for file in tests/golden/*.txt; do
	kind=
	hex=
	number=0
	while read -r word rest; do
		if [ "$word" = message ]; then
			seed
			kind=${rest%% *}
			version=${rest##* }
			hex=
		elif [[ $word =~ ^[0-9a-f]{4}:$ ]]; then
			hex+=${rest// /}
		fi
	done <"$file"
	seed
done
