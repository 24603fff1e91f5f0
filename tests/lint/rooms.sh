#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Check the symbols of each room's object files: no files of a room call each
# other in a circle, and a room that calls itself pure imports no clock, I/O,
# allocation or thread. (layers.sh checks which room may include which.)
# rooms.sh <build folder>
cd "$(dirname "$0")/../.." || exit 1
build=$1

# Rooms and files that the simulation runs: all that they know they are told.
pure="plugin/bytes plugin/counters plugin/hold plugin/pool plugin/scheduler plugin/progress/plan plugin/progress/layers plugin/progress/cache_facts plugin/progress/overlap plugin/reads plugin/session/retry plugin/share/reader"
# Memory that they were given, text, arithmetic, digests.
allowed="memcpy memmove memset memcmp memchr strlen strnlen strcmp strncmp strchr
	strchrnul snprintf vsnprintf qsort
	__snprintf_chk __vsnprintf_chk __memcpy_chk __memset_chk __stack_chk_fail
	__popcountdi2 __cpu_model _GLOBAL_OFFSET_TABLE_
	crypto_generichash_blake2b_init_salt_personal crypto_generichash_blake2b_update
	crypto_generichash_blake2b_final crypto_generichash_blake2b_salt_personal
	crypto_shorthash crypto_shorthash_siphashx24 crypto_verify_16 sodium_bin2hex
	sodium_memzero"

objects=$(tests/lint/files.sh c | grep -vE '^(tests|tools|build)/' |
	grep -v '^plugin/vllm/' | sed "s|^|$build/|; s|c\$|o|")
# shellcheck disable=SC2086 # names without blanks
nm -A -P $objects | awk -v root="$build" -v pure="$pure" \
	-v allowed="$(echo "$allowed" | tr '\n\t' '  ')" -f tests/lint/rooms.awk
