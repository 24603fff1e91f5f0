#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Run the tutorial, and compare its output with what the page says.

A block of `sh` is run as it stands, all of them in one shell. The block of `text`
behind it has lines that the output must have, in their order. 0 matches 0, other
numbers match any number, blanks any blanks, and `...` anything. Folders are of
this run.

tutorial.py BUILD   prints the result line of the other test programs
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGE = ROOT / "tools/pages/tutorial.md"
FOLDER = "/dev/shm/tutorial"
LIMIT_S = 60
MARK = "-- end of block"


def blocks():
    """Yield the commands of each block of sh, and the lines expected of it."""
    found = re.findall(r"^```(sh|text)\n(.*?)^```$", PAGE.read_text(), re.S | re.M)
    for at, (kind, text) in enumerate(found):
        if kind == "sh":
            following = found[at + 1] if at + 1 < len(found) else ("", "")
            yield text, following[1].splitlines() if following[0] == "text" else []


def pattern(line):
    """Return a line of the page as a regular expression."""
    made = []
    for part in re.split(r"(\s*\.\.\.\s*|\s+|\d+(?:\.\d+)?)", line.strip()):
        if part.strip() == "...":
            made.append(".*")
        elif part[:1].isdigit():
            made.append(r"0(?![\d.])" if part == "0" else r"\d+(?:\.\d+)?")
        else:
            made.append(r"\s+" if part.isspace() else re.escape(part))
    return re.compile("".join(made))


def missing(lines, output):
    """Return the first expected line that the output lacks."""
    rest = iter(output)
    for line in lines:
        if not any(pattern(line).search(said) for said in rest):
            return line
    return None


def main(build):
    patience = int(os.environ.get("TEST_PATIENCE") or subprocess.check_output(ROOT / "tests/patience.sh"))
    wanted = list(blocks())
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="kvpull-tutorial-") as work:
        script = "".join(f"{commands}echo; echo '{MARK}'\n" for commands, _ in wanted)
        script = re.sub(r"\bsleep (\d+)", lambda m: f"sleep {int(m[1]) * patience}", script)
        script = script.replace(FOLDER, f"{work}/tutorial").replace("build/release", build)
        script = "trap 'kill $(jobs -p) 2>/dev/null' EXIT\n" + script
        done = subprocess.run(["bash", "-c", script], stdout=subprocess.PIPE, cwd=ROOT,
                              stderr=subprocess.STDOUT, text=True, timeout=LIMIT_S * patience)
        said = done.stdout.replace(f"{work}/tutorial", FOLDER).split(MARK)
    failed = 0
    for (commands, lines), output in zip(wanted, said):
        line = missing(lines, output.splitlines())
        if line is not None:
            failed += 1
            print(f"FAILED tutorial: no line like: {line}")
            print("".join(f"\t{row}\n" for row in (commands + output).splitlines()), end="")
    failed += len(said) != len(wanted) + 1
    print(f"{len(wanted) - failed} passed, {failed} failed, 0 skipped")
    return failed != 0


sys.exit(main(sys.argv[1]))
