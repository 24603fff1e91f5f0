# SPDX-License-Identifier: Apache-2.0
"""The time that the connector takes of vLLM's own threads, call by call.

Figures to look at, not a test: vLLM's scheduler and the connector without a
model (core.py), prompts of 1,024 tokens, the median of each call. The first
ones are not looked at: each touches memory that no earlier one has. A step is
busy if something is told to the workers or by them in it. Counters are read
now and then (stats.Tally), mostly in a step that is not busy: those are a line
of their own.
micro.py [LIBRARY]
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from engine import environment

os.environ.update(environment())
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")

import model  # noqa: E402
from core import HOLD, Core, run  # noqa: E402
from kvpull_vllm.scheduler import (  # noqa: E402
    KVPullMetadata,
    KVPullWorkerMetadata,
)
from kvpull_vllm.stats import KVPullStats  # noqa: E402

TOKENS, EARLIER, REQUESTS = 1024, 600, 200
SCHEDULER = (
    "on_new_request",
    "get_num_new_matched_tokens",
    "update_state_after_alloc",
    "request_finished_all_groups",
)
STEP = (
    "build_connector_meta",
    "update_connector_output",
    "bind_connector_metadata",
    "start_load_kv",
    "get_transfer_results",
    "get_kv_connector_stats",
    "build_connector_worker_meta",
)


class Times:
    """How long each call of an engine's connector took, in us."""

    def __init__(self, core: Core) -> None:
        self.of: dict[str, list[float]] = {}
        self.busy: list[float] = []
        self.told: list[float] = []
        self.steps = 0
        self._step, self._is_busy, self._is_told = 0.0, False, False
        for owner in (core.connector, core.worker):
            for name in (*SCHEDULER, *STEP):
                setattr(owner, name, self._timed(name, getattr(owner, name)))

    def _timed(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **named: Any) -> Any:
            began = time.perf_counter_ns()
            answer = call(*args, **named)
            took = (time.perf_counter_ns() - began) / 1000
            self.of.setdefault(name, []).append(took)
            if name in STEP:
                self._add(name, took, answer)
            return answer

        return timed

    def _add(self, name: str, took: float, answer: Any) -> None:
        """Add a call to its step."""
        if name == STEP[0]:
            self.steps += 1
            if self._is_busy:
                self.busy.append(self._step)
            if self._is_told:
                self.told.append(self._step)
            self._step, self._is_busy, self._is_told = 0.0, False, False
        self._step += took
        if isinstance(answer, KVPullMetadata):
            self._is_busy |= bool(answer.step)
        elif isinstance(answer, KVPullWorkerMetadata):
            self._is_busy = True
        elif isinstance(answer, KVPullStats):
            self._is_told = True

    def line(self, names: tuple[str, ...]) -> str:
        """Return the medians, and their sum."""
        found = {
            name: statistics.median(self.of[name])
            for name in names
            if name in self.of
        }
        parts = ", ".join(f"{name} {us:.1f}" for name, us in found.items())
        return f"{sum(found.values()):6.1f} us: {parts}"


def main() -> None:
    """Let D pull what P computed, one after the other."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        model.make(folder / "model", 1)
        extra = {"library": sys.argv[1]} if len(sys.argv) > 1 else {}
        p = Core(folder, "kv_producer", extra=extra)
        d = Core(folder, "kv_consumer", extra=extra)
        # The values do not matter here, and to compute them takes long.
        p._compute = d._compute = lambda *_: None
        times = {"P": Times(p), "D": Times(d)}
        for number in range(EARLIER + REQUESTS):
            if number == EARLIER:
                for side in times.values():
                    side.of.clear()
                    side.busy.clear()
                    side.told.clear()
                    side.steps = 0
            name = f"{number}"
            prompt = [3 + (number * 7 + i * 5) % 500 for i in range(TOKENS)]
            p.ask(name, prompt, HOLD)
            run([p], lambda name=name: name in p.answers)
            d.ask(name, prompt, p.answers[name].kv_transfer_params, 2)
            run([p, d], lambda name=name: name in d.answers)
        for side, of in times.items():
            print(f"  {side}, a request {of.line(SCHEDULER)}")
            print(f"  {side}, a step    {of.line(STEP)}")
            busy = statistics.median(of.busy)
            print(f"  {side}, a busy step {busy:.1f} us: all its calls")
            told = statistics.median(of.told)
            print(
                f"  {side}, a step that tells counters {told:.1f} us: "
                f"{len(of.told)} of {of.steps}"
            )
        p.close()
        d.close()


if __name__ == "__main__":
    main()
