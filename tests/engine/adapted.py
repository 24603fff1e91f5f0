# SPDX-License-Identifier: Apache-2.0
"""Adapters and prompts of P and D, for tests of changes without a model."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import model
import test_core
from core import HOLD, Core, run
from runner import TESTS, run_all
from test_core import pair, prompt_of
from vllm.lora.request import LoRARequest

TESTS.clear()  # test_core's have a program of their own
# Tokens that D computes of 100, for two more: what was pulled lacks the last.
PULLED, ALONE = 2, 101
# Names that people give to updates of their own.
UNSEEN = ("refit", "sync_params", "broadcast_model", "receive")


def lora(folder: Path, name: str = "one", number: int = 1, **more: Any) -> Any:
    """Return a request's adapter."""
    return LoRARequest(name, number, str(folder), **more)


@contextmanager
def folders() -> Iterator[Path]:
    """A folder with the adapters "a", its copy "copy", and another one "b"."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        for name, seed in (("a", 1), ("copy", 1), ("b", 2)):
            model.make_adapter(folder / name, seed)
        yield folder


@contextmanager
def adapted() -> Iterator[tuple[Core, Core, Path]]:
    """P and D with adapters."""
    with folders() as folder, pair(adapters=True) as (p, d):
        yield p, d, folder


def through(
    p: Core, d: Core, name: str, at_p: Any, at_d: Any, seed: int = 0
) -> int:
    """Prefill at P, decode at D; return how many tokens D computed."""
    prompt = prompt_of(100, seed)
    p.ask(name, prompt, HOLD, lora=at_p)
    run([p], lambda: name in p.answers)
    params = p.answers[name].kv_transfer_params
    d.ask(name, prompt, params, 2, lora=at_d)
    run([p, d], lambda: name in d.answers)
    return d.computed[name]


def count(core: Core, name: str) -> int:
    """Return a counter of an engine's scheduler."""
    return core.count(f"scheduler_{name}")


def loads_unheard(p: Core, d: Core) -> None:
    """Step until D's workers have loaded, and its scheduler has not heard."""
    until = time.monotonic() + 10
    while d.count("worker_pulls_done") == 0:
        assert time.monotonic() < until
        said = d.scheduler.schedule()
        d._unheard.append((said, d._execute(said)))
        p.step()


def main() -> int:
    """Run the tests of a program beside a model; 0 if all hold."""
    with tempfile.TemporaryDirectory() as made:
        test_core.FOLDER = Path(made)
        model.make(Path(made) / "model", 1)
        return run_all()
