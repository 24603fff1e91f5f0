#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures the cost of the status file: the benchmark with and without it, in turns.

status.py PROGRAM [ROUNDS] [PARTS] [OTHER-PROGRAM]: each round runs both, the
order changing; of each measure it prints the median of the rounds' ratios, and
the interval of that median (95 %, by order statistics). With another program,
an older build, that one is compared and not the key.
"""
import json
import os
import statistics
import subprocess
import sys
import tempfile

MEASURES = (
    "core.release_median_ns",
    "core.idle_poll.caller_0_holds_0_rings_ns",
    "core.idle_poll.thread_65536_holds_8_rings_ns",
    "core.idle_poll.caller_65536_holds_64_rings_ns",
    "pull_4k.caller.worker_median_us",
    "pull_4k.caller.median_us",
)


def leaves(node, path=""):
    """Every number of a result, by its dotted name."""
    if isinstance(node, dict):
        for key, value in node.items():
            yield from leaves(value, f"{path}.{key}" if path else key)
    elif isinstance(node, list):
        for index, value in enumerate(node):
            yield from leaves(value, f"{path}[{index}]")
    elif isinstance(node, (int, float)):
        yield path, float(node)


def measure(program, status, parts):
    environment = {k: v for k, v in os.environ.items()
                   if not k.startswith("KVPULL_")}
    if status:
        environment["KVPULL_STATUS"] = status
    with tempfile.NamedTemporaryFile(suffix=".json") as out:
        subprocess.run(
            [program, "--quick", "--parts", parts, "--json", out.name],
            env=environment, stdout=subprocess.DEVNULL, check=True)
        numbers = dict(leaves(json.load(out)))
    found = {}
    for name in MEASURES:
        for path, value in numbers.items():
            if path.endswith(name) and value > 0:
                found[name] = value
                break
    return found


def interval(ratios):
    """Interval of the median: ranks of the binomial, 95 %."""
    ratios = sorted(ratios)
    count = len(ratios)
    low = max(0, int((count - 1.96 * count ** 0.5) / 2))
    return ratios[low], ratios[count - 1 - low]


def main():
    program = sys.argv[1]
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 15
    parts = sys.argv[3] if len(sys.argv) > 3 else "small,core"
    other = sys.argv[4] if len(sys.argv) > 4 else None
    ratios = {}
    values = {}
    for turn in range(rounds):
        sides = [("on", program, "on" if not other else None),
                 ("off", other or program, "off" if not other else None)]
        if turn % 2:
            sides.reverse()
        took = {name: measure(path, status, parts)
                for name, path, status in sides}
        for name in took["on"].keys() & took["off"].keys():
            ratios.setdefault(name, []).append(
                took["on"][name] / took["off"][name])
            values.setdefault(name, []).append(
                (took["on"][name], took["off"][name]))
    print(f"{'measure':48} {'with':>9} {'without':>9} {'ratio':>7} interval")
    for name in MEASURES:
        if name not in ratios:
            continue
        low, high = interval(ratios[name])
        print(f"{name:48} "
              f"{statistics.median(v[0] for v in values[name]):9.1f} "
              f"{statistics.median(v[1] for v in values[name]):9.1f} "
              f"{statistics.median(ratios[name]):7.3f} "
              f"{low:.3f} .. {high:.3f}, {len(ratios[name])} rounds")


if __name__ == "__main__":
    main()
