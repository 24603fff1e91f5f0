#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares a pool's file of slots with fio on the same file system.

disk.py PROGRAM [ROUNDS] [MIB] [FOLDER]: in each round kvpull_bench spills and
reads back MIB, and fio writes and reads a file of that size. fio uses blocks of
a chunk, io_uring with O_DIRECT, and as many in flight; the order changes. The
output has the medians, and the median of the rounds' ratios.
"""
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile

from status import leaves

BLOCK = "1M"  # CHUNK_BYTES of disk.c
DEPTH = 32  # KVPULL_SLOTS_DEPTH


def ours(program, folder, mib):
    environment = {k: v for k, v in os.environ.items()
                   if not k.startswith("KVPULL_")}
    environment |= {"KVPULL_TEST_DISK": folder, "KVPULL_TEST_DISK_MIB": str(mib)}
    with tempfile.NamedTemporaryFile(suffix=".json") as out:
        subprocess.run(
            [program, "--runs", "1", "--parts", "disk", "--json", out.name],
            env=environment, stdout=subprocess.DEVNULL, check=True)
        numbers = dict(leaves(json.load(out)))
    found = {path.rsplit(".", 1)[-1]: value for path, value in numbers.items()
             if ".disk." in path}
    return found["write_gb_s"], found["read_gb_s"]


def fio(folder, mib):
    path = os.path.join(folder, "kvpull-fio")
    rates = []
    for way in ("write", "read"):
        said = subprocess.run(
            ["fio", "--name=a", f"--filename={path}", f"--rw={way}",
             f"--bs={BLOCK}", f"--size={mib}M", "--direct=1",
             "--ioengine=io_uring", f"--iodepth={DEPTH}",
             "--fallocate=native", "--output-format=json"],
            stdout=subprocess.PIPE, check=True).stdout
        rates.append(json.loads(said)["jobs"][0][way]["bw_bytes"] / 1e9)
    os.unlink(path)
    return tuple(rates)


def main():
    program = sys.argv[1]
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    mib = int(sys.argv[3]) if len(sys.argv) > 3 else 4096
    folder = sys.argv[4] if len(sys.argv) > 4 else "/var/tmp"
    if not shutil.which("fio"):
        sys.exit("fio is missing: make deps WITH=bench")
    rows = []
    for turn in range(rounds):
        sides = [lambda: ours(program, folder, mib), lambda: fio(folder, mib)]
        took = {}
        for at in ((0, 1), (1, 0))[turn % 2]:
            took[at] = sides[at]()
        rows.append((took[0], took[1]))
    for at, way in enumerate(("write", "read")):
        mine = [row[0][at] for row in rows]
        theirs = [row[1][at] for row in rows]
        ratios = [a / b for a, b in zip(mine, theirs)]
        print(f"{way:5}  kvpull {statistics.median(mine):.2f} GB/s "
              f"({min(mine):.2f} to {max(mine):.2f})  "
              f"fio {statistics.median(theirs):.2f} "
              f"({min(theirs):.2f} to {max(theirs):.2f})  "
              f"ratio {statistics.median(ratios):.3f} "
              f"({min(ratios):.3f} to {max(ratios):.3f}), {rounds} rounds")


if __name__ == "__main__":
    main()
