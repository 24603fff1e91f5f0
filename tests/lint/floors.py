#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Print the structure of the product as figures, and refuse a worse one.

A place is a folder. Its rooms are its subfolders, or its files, where a source
and its header are one room. An arrow leads from a room to a room that it
includes or calls. The floor of a room is the longest path of such arrows between
the files below it. An arrow that leads to a higher floor runs upward. Rooms that
call each other in a loop are a circle.

floors.py FOLDER   FOLDER has the objects of a build (build/release)
"""
import collections
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"', re.M)
# place: most upward arrows and circles; a limit only goes down
LIMITS = {
    ".": (0, 0),
    "plugin": (0, 0),
    "plugin/hold": (0, 0),
    "plugin/progress": (0, 0),
    "plugin/scheduler": (0, 0),
    "plugin/share": (0, 0),
    "plugin/worker": (0, 0),
    "shm": (0, 0),
    "verbs": (0, 0),
    "cuda": (0, 0),
    "tools": (0, 0),
}


def sources():
    output = subprocess.run([ROOT / "tests/lint/files.sh", "c", "h"], check=True,
                            capture_output=True, text=True).stdout
    return [path for path in output.split() if not path.startswith(("examples/", "tests/"))]


def included(path, known):
    for name in INCLUDE.findall((ROOT / path).read_text()):
        for candidate in (name, "include/" + name):
            if candidate in known:
                yield candidate


def called(build, paths):
    """Pairs (file, file that defines a name that the first one wants)."""
    objects = {path: f"{build}/{path[:-2]}.o" for path in paths if path.endswith(".c")}
    objects = {path: name for path, name in objects.items() if os.path.exists(name)}
    home, wanted = {}, collections.defaultdict(set)
    for path, name in objects.items():
        output = subprocess.run(["nm", "-P", name], check=True, capture_output=True,
                                text=True).stdout
        for line in output.splitlines():
            symbol, kind = line.split()[:2]
            if kind == "U":
                wanted[path].add(symbol)
            elif kind in "TDRB" and symbol != "main":
                home[symbol] = path
    for path, symbols in wanted.items():
        for symbol in symbols:
            if home.get(symbol, path) != path:
                yield path, home[symbol]


def room(place, path):
    """The room of a file in a place; None: the file lies elsewhere."""
    inside = path if place == "." else path[len(place) + 1:]
    if place != "." and not path.startswith(place + "/"):
        return None
    first = inside.split("/")[0]
    return re.sub(r"\.[ch]$", "", first)


def arrows(place, pairs):
    found = set()
    for source, target in pairs:
        ends = room(place, source), room(place, target)
        if None not in ends and ends[0] != ends[1]:
            found.add(ends)
    return found


def circles(edges):
    """Sets of rooms that reach each other."""
    after = collections.defaultdict(set)
    for source, target in edges:
        after[source].add(target)

    def reached(start):
        seen, left = set(), [start]
        while left:
            for target in after[left.pop()] - seen:
                seen.add(target)
                left.append(target)
        return seen

    reach = {name: reached(name) for edge in edges for name in edge}
    return {frozenset(other for other in reach[name] if name in reach[other])
            for name in reach if name in reach[name]}


def floors(place, paths, pairs):
    """Longest path inside the place, from each room down."""
    below = collections.defaultdict(set)
    for source, target in pairs:
        if room(place, source) and room(place, target):
            below[source].add(target)
    known = {}

    def floor(path):
        if path not in known:
            known[path] = 1  # of a file that is met again on its own path
            own = room(place, path)
            known[path] = max((floor(target) + (room(place, target) != own)
                               for target in below[path]), default=1)
        return known[path]

    height = collections.defaultdict(int)
    for path in paths:
        if room(place, path):
            height[room(place, path)] = max(height[room(place, path)], floor(path))
    return height


def main(build):
    paths = sources()
    known = set(paths)
    includes = {(path, name) for path in paths for name in included(path, known)}
    calls = set(called(build, paths))
    failures = 0
    print(f"{'place':<18} rooms floors arrows upward circles")
    for place, (upward_max, circles_max) in LIMITS.items():
        edges = arrows(place, includes | calls)
        height = floors(place, paths, includes | calls)
        upward = sorted(edge for edge in edges if height[edge[1]] > height[edge[0]])
        loops = sorted(sorted(loop) for loop in circles(arrows(place, calls)))
        print(f"{place:<18} {len(height):5d} {max(height.values(), default=0):6d} {len(edges):6d} "
              f"{len(upward):6d} {len(loops):7d}")
        if len(upward) > upward_max:
            failures += 1
            print(f"layers: {place}: at most {upward_max} arrows may run upward: "
                  + ", ".join(f"{source} -> {target}" for source, target in upward))
        if len(loops) > circles_max:
            failures += 1
            print(f"layers: {place}: a circle of " + "; ".join(" ".join(loop) for loop in loops))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
