#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# run.sh PROGRAM FOLDER [--full|--quick]: the benchmark of one node; its JSON
# goes into FOLDER/samenode.json. Three runs, of which a bar shows the median;
# --quick is one short run. A benchmark is not a test: this always exits 0.
set -u
program=$1
folder=$2
case ${3:-} in
--quick) quick=--quick ;;
*) quick= ;;
esac
mkdir -p "$folder"
# An engine's settings in the environment are not what is measured.
for name in $(env | sed -n 's/^\(KVPULL_[A-Z_]*\)=.*/\1/p'); do
	unset "$name"
done
"$program" $quick --json "$folder/samenode.json" ||
	echo "bench: $program ended with $?" >&2
exit 0
