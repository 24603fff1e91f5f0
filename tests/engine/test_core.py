# SPDX-License-Identifier: Apache-2.0
"""Tests with vLLM's own scheduler and no model: see core.py.

test_core.py: prints the result line of the other test programs.
"""

from __future__ import annotations

import os
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from engine import environment

os.environ.update(environment())
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")

import model  # noqa: E402
from core import BLOCK, HOLD, Core, run  # noqa: E402

WINDOW = 2 * BLOCK
FOLDER = Path()


@contextmanager
def pair(**layers: int) -> Iterator[tuple[Core, Core]]:
    """P and D; at the end nothing is held and nothing is in use."""
    with tempfile.TemporaryDirectory(dir=FOLDER) as made:
        folder = Path(made)
        (folder / "model").symlink_to(FOLDER / "model")
        p = Core(folder, "kv_producer", **layers)
        d = Core(folder, "kv_consumer", **layers)
        yield p, d
        run([p, d], lambda: p.used() == 0 and d.used() == 0)
        assert p.count("worker_holds_expired") == 0
        p.close()
        d.close()


def prompt_of(length: int, seed: int = 0) -> list[int]:
    """Return a prompt of a length that no other one begins with."""
    return [3 + (length * 31 + seed * 7 + i * 5) % 500 for i in range(length)]


def prefilled(p: Core, name: str, prompt: list[int]) -> dict[str, object]:
    """Return what P answers."""
    p.ask(name, prompt, HOLD)
    run([p], lambda: name in p.answers)
    return p.answers[name].kv_transfer_params


def _of_each_length(p: Core, d: Core, lengths: range) -> list[int]:
    """Decode prompts of all lengths; the lengths that D computed itself."""
    alone = []
    for length in lengths:
        prompt, name = prompt_of(length), f"{length}"
        d.ask(name, prompt, prefilled(p, name, prompt), 2)
        run([p, d], lambda name=name: name in d.answers)
        if d.computed[name] > 2:
            alone.append(length)
    assert d.count("worker_pulls_done") == len(lengths) - len(alone)
    assert d.count("scheduler_pulls_failed") == 0
    return alone


def sliding_windows_have_all_that_they_look_at() -> None:
    """Each length; D computes one in a block, whose window P has left."""
    with pair(window=WINDOW) as (p, d):
        lengths = range(WINDOW - 2, WINDOW + 2 * BLOCK + 2)
        alone = _of_each_length(p, d, lengths)
        assert alone == [
            n for n in lengths if n >= WINDOW and (n - WINDOW + 1) % BLOCK == 0
        ], alone


def chunks_have_all_that_they_look_at() -> None:
    """The same with attention in chunks: P leaves a whole one at its end."""
    with pair(chunk=WINDOW) as (p, d):
        lengths = range(WINDOW - 2, 2 * WINDOW + 3)
        alone = _of_each_length(p, d, lengths)
        assert alone == [n for n in lengths if n % WINDOW == 0], alone


def windows_with_a_local_prefix_are_whole() -> None:
    """D has the prompt's first blocks, or all of them."""
    alone = []
    with pair(window=WINDOW) as (p, d):
        for length in (159, 160, 161):
            for cached in (32, 64, 96, 128, 158):
                prompt, name = prompt_of(length, cached), f"{length}-{cached}"
                d.ask(f"{name}-first", prompt[:cached], None)
                run([d], lambda name=name: f"{name}-first" in d.answers)
                d.ask(name, prompt, prefilled(p, name, prompt), 2)
                run([p, d], lambda name=name: name in d.answers)
                if d.computed[name] > 2:
                    alone.append(name)
        # P has left their window, and D has not got it either.
        assert alone == ["159-32", "159-64", "159-96"], alone
        assert d.count("scheduler_pulls_failed") == 0


TESTS: list[Callable[[], None]] = [
    sliding_windows_have_all_that_they_look_at,
    chunks_have_all_that_they_look_at,
    windows_with_a_local_prefix_are_whole,
]


def main() -> int:
    """Run all; 0 if all hold."""
    global FOLDER
    failed = 0
    with tempfile.TemporaryDirectory() as made:
        FOLDER = Path(made)
        model.make(FOLDER / "model", 1)
        for test in TESTS:
            try:
                test()
            except Exception:  # every failure of a test is its own
                failed += 1
                print(f"FAILED {test.__name__}\n{traceback.format_exc()}")
    print(f"{len(TESTS) - failed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
