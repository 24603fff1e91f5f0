# SPDX-License-Identifier: Apache-2.0
"""Runs the tests of a program that needs no engine, in the order of its file."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable

Test = Callable[[], None]
TESTS: list[Test] = []


def test(function: Test) -> Test:
    """Enter a test where it stands, so that none is written and never run."""
    TESTS.append(function)
    return function


def failure(name: str, output: str) -> str:
    """Return what says that a test failed, in the form of tests/result.sh."""
    lines = "".join(f"\n\t{line}" for line in output.splitlines())
    return f"FAILED {name}{lines}"


def run_all() -> int:
    """Run all, or those that arguments name; print the result line.

    Return 0 if all hold.
    """
    failed, named = 0, set(sys.argv[1:])
    chosen = [one for one in TESTS if not named or one.__name__ in named]
    for function in chosen:
        try:
            function()
        except Exception:  # every failure of a test is its own
            failed += 1
            print(failure(function.__name__, traceback.format_exc()))
    print(f"{len(chosen) - failed} passed, {failed} failed, 0 skipped")
    return 1 if failed or not chosen else 0
