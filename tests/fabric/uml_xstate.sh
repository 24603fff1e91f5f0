#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# uml_xstate.sh FOLDER: raise the FP buffer of user-mode Linux in a kernel's
# source from 2,696 bytes to 12,288. The xstate of a CPU with AMX has 11,008, and
# ptrace() refuses a smaller buffer. Fails where the source has no such line.
set -eu
file=${1:?folder}/arch/x86/um/user-offsets.c
sed -i 's/DEFINE_LONGS(HOST_FP_SIZE, 2696)/DEFINE_LONGS(HOST_FP_SIZE, 12288)/' "$file"
grep -q 'HOST_FP_SIZE, 12288)' "$file"
