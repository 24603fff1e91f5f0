#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Print the lines of the product whose branches were not all taken.

  coverage.py BUILD [ROOM...]     BUILD: a folder with counts of gcov

A line of the list: file:line: branch [how often each was taken] source, or NEVER
where the line did not run at all. The number of lines of each room comes first.
"""

import collections
import json
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Conditions that no input makes false.
CHECK = re.compile(r"kvpull_check\b|assert\b")


def counts_of(build):
    """({(file, line): times}, {(file, line): [times of each branch]})"""
    lines = collections.Counter()
    branches = {}
    for path in sorted(pathlib.Path(build).rglob("*.gcda")):
        if path.relative_to(build).parts[0] in ("tests", "tools"):
            continue
        told = subprocess.run(
            ["gcov", "--branch-probabilities", "--json-format", "--stdout", path],
            cwd=ROOT,
            capture_output=True,
            check=True,
        )
        for file in json.loads(told.stdout)["files"]:
            if file["file"].startswith(("/", "tests")):
                continue
            for line in file["lines"]:
                place = (file["file"], line["line_number"])
                times = [branch["count"] for branch in line["branches"]]
                lines[place] += line["count"]
                before = branches.setdefault(place, times)
                # An inline function's branches differ by where it stands.
                if before is not times and len(before) == len(times):
                    branches[place] = [a + b for a, b in zip(before, times)]
    return lines, branches


def missing(build):
    """[(file, line, words)]"""
    lines, branches = counts_of(build)
    sources = {}
    found = []
    for file, number in sorted(lines):
        if file not in sources:
            sources[file] = (ROOT / file).read_text().split("\n")
        source = sources[file][number - 1].strip()
        times = branches[file, number]
        if CHECK.search(source):
            continue
        if not lines[file, number]:
            found.append((file, number, f"NEVER {source}"))
        elif times and min(times) == 0:
            found.append((file, number, f"branch {times} {source}"))
    return found


def main(build, rooms):
    found = [
        (str(pathlib.PurePath(file).parent), file, number, words)
        for file, number, words in missing(build)
    ]
    if rooms:
        found = [row for row in found if {row[0], row[0].split("/")[-1]} & set(rooms)]
    for room, count in collections.Counter(row[0] for row in found).most_common():
        print(f"{count:5} {room}")
    for _, file, number, words in found:
        print(f"{file}:{number}: {words}")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main(pathlib.Path(sys.argv[1]).resolve(), sys.argv[2:])
