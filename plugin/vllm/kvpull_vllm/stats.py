# SPDX-License-Identifier: Apache-2.0
"""Counters of both halves for vLLM's log line and for Prometheus.

The library says what it counts (abi.Library.counters). Totals of ranks and of
steps are added up. What is now is kept by its source, a half of a rank: the
last word of each counts, and ranks are added up when it is shown.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.metrics import (
    KVConnectorPromMetrics,
    KVConnectorStats,
)
from vllm.v1.metrics.utils import create_metric_per_engine

from kvpull_vllm.abi import CONST, Library
from kvpull_vllm.halves import PHASES, SchedulerHalf, WorkerHalf

_TOTAL = CONST["KVPULL_COUNTER_TOTAL"]
_PEAK = CONST["KVPULL_COUNTER_PEAK"]
_LOGGED = {
    "worker_pulls_done": "pulls",
    "worker_pulls_failed": "failed",
    "worker_pulls_expired": "expired before read",
    "worker_holds_taken": "holds",
    "worker_holds_released": "released",
    "worker_holds_expired": "expired",
    "worker_holds_revoked": "revoked",
    "scheduler_mismatches": "mismatches",
    "scheduler_no_slot": "without slot",
    "scheduler_rejects": "rejects",
    "shim_no_ticket": "without ticket",
    "shim_dropped": "dropped reports",
    "shim_first_tokens_differ": "first tokens unlike P's",
    "shim_payloads_refused": "payloads refused",
}


_EACH_S = 0.1

SHIM = {
    "shim_dropped": "Reports of requests that the package does not know",
    "shim_no_ticket": "Requests that should have pulled and had no ticket",
    "shim_first_tokens_compared": "First tokens that were compared with P's",
    "shim_first_tokens_differ": "First tokens that differ from P's",
    "shim_payloads_refused": "Payloads of tickets that cannot be used",
}


class Moves:
    """The change of a half's counters since the last look."""

    def __init__(self, half: SchedulerHalf | WorkerHalf) -> None:
        self._source = f"{half.kind} {half.rank}"
        self._counters = [
            (f"{half.kind}_{counter.name}", counter.kind == _TOTAL)
            for counter in half.counters
        ]
        self._last = (0,) * len(half.counters)

    def look(self, counts: tuple[int, ...] | None, stats: KVPullStats) -> None:
        """Add what moved to stats; None: nothing did."""
        if counts is None:
            return
        last, self._last = self._last, counts
        for index, (value, before) in enumerate(zip(counts, last, strict=True)):
            if value == before:
                continue
            name, is_total = self._counters[index]
            if is_total:
                stats.count(name, value - before)
            else:
                stats.tell(self._source, name, value)


@dataclass
class KVPullStats(KVConnectorStats):
    """{"counts": {name: more}, "now": {source: {name: value}},
    "pulls": [[bytes, seconds, those of each phase], ...]}."""

    def __post_init__(self) -> None:
        """Give an empty one its keys."""
        if not self.data:
            self.reset()

    def reset(self) -> None:
        """Forget everything."""
        self.data: dict[str, Any] = {
            "counts": {},
            "now": {},
            "pulls": [],
        }

    def count(self, name: str, more: int) -> None:
        """Add to one counter."""
        if more:
            own = self.data["counts"]
            own[name] = own.get(name, 0) + more

    def tell(self, source: str, name: str, value: int) -> None:
        """Say what is now at a source."""
        self.data["now"].setdefault(source, {})[name] = value

    def aggregate(self, other: KVConnectorStats) -> KVPullStats:
        """Add another rank's or a later step's."""
        for name, more in other.data["counts"].items():
            self.count(name, more)
        _update(self.data["now"], other.data["now"])
        self.data["pulls"].extend(other.data["pulls"])
        return self

    def reduce(self) -> dict[str, int | float]:
        """Return what the log line says."""
        counts, pulls = self.data["counts"], self.data["pulls"]
        said: dict[str, int | float] = {
            text: counts[name]
            for name, text in _LOGGED.items()
            if name in counts
        }
        if pulls:
            total = sum(pull[0] for pull in pulls)
            times = sorted(pull[1] for pull in pulls)
            said["MB pulled"] = round(total / 1e6, 3)
            said["median pull ms"] = round(times[len(times) // 2] * 1e3, 3)
            said["slowest pull ms"] = round(times[-1] * 1e3, 3)
        return said or {"moves": sum(counts.values())}

    def is_empty(self) -> bool:
        """Say whether nothing was counted."""
        return not any(self.data.values())


class Tally:
    """The counters of one side and of its half, told now and then.

    To read all counters takes longer than a busy step's other calls together:
    they are read ten times a second, and in the first quiet step behind busy
    ones, so that all is told before an engine rests.
    """

    def __init__(self, half: SchedulerHalf | WorkerHalf) -> None:
        self.own = KVPullStats()
        # Set where something may move: this step is a busy one.
        self.is_busy = False
        self._is_moved = False  # and was not told
        self._half = half
        self._moves = Moves(half)
        self._next = 0.0

    def is_untold(self) -> bool:
        """Say whether a step is needed to tell what may have moved."""
        return self.is_busy or self._is_moved

    def take(self) -> KVPullStats | None:
        """Return what was counted and not told yet, at the end of a step."""
        is_busy, self.is_busy = self.is_busy, False
        now = time.monotonic()
        if now < self._next and (is_busy or not self._is_moved):
            self._is_moved |= is_busy
            return None
        self._is_moved = is_busy
        self._next = now + _EACH_S
        self._moves.look(self._half.counts(), self.own)
        if self.own.is_empty():
            return None
        stats, self.own = self.own, KVPullStats()
        return stats


def _update(now: dict[str, Any], later: dict[str, Any]) -> None:
    for source, values in later.items():
        now.setdefault(source, {}).update(values)


class KVPullPromMetrics(KVConnectorPromMetrics):
    """vllm:kvpull_<half>_<counter>, with _total if it is one, and
    histograms of pulls."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Register the metrics of each engine."""
        super().__init__(*args, **kwargs)
        extra = self._kv_transfer_config.kv_connector_extra_config or {}
        library = Library(extra.get("library"))
        self._now: dict[int, dict[str, dict[str, int]]] = {}
        self._counters = {
            name: self._made(self._counter_cls, name, text)
            for name, text in SHIM.items()
        }
        self._gauges: dict[str, dict[int, Any]] = {}
        self._peaks: set[str] = set()
        for half in ("scheduler", "worker"):
            for counter in library.counters(half):
                self._add(f"{half}_{counter.name}", counter.help, counter.kind)
        self._bytes = self._histogram(
            "pull_bytes",
            "Bytes that a rank read for one request",
            [4.0**power for power in range(6, 18)],
        )
        self._seconds = self._histogram(
            "pull_seconds",
            "Time from a pull's command to its end, one rank",
            [1e-4 * 2**power for power in range(18)],
        )
        self._phases = [
            self._histogram(
                f"pull_{phase}_seconds",
                f"Time of a pull that was spent in {text}, one rank",
                [1e-6 * 4**power for power in range(13)],
            )
            for phase, text in zip(
                PHASES,
                (
                    "waiting for a thread",
                    "connecting, and waiting until P has written",
                    "reading",
                    "reading whether the blocks are still P's",
                ),
                strict=True,
            )
        ]

    def _add(self, name: str, text: str, kind: int) -> None:
        if kind == _TOTAL:
            self._counters[name] = self._made(self._counter_cls, name, text)
            return
        self._gauges[name] = self._made(
            self._gauge_cls, name, text, multiprocess_mode="mostrecent"
        )
        if kind == _PEAK:
            self._peaks.add(name)

    def _made(
        self, kind: Any, name: str, text: str, **more: Any
    ) -> dict[int, Any]:
        made = kind(
            name=f"vllm:kvpull_{name}",
            documentation=f"{text}.",
            labelnames=self._labelnames,
            **more,
        )
        return create_metric_per_engine(made, self.per_engine_labelvalues)

    def _histogram(
        self, name: str, text: str, buckets: list[float]
    ) -> dict[int, Any]:
        return self._made(self._histogram_cls, name, text, buckets=buckets)

    def observe(
        self, transfer_stats_data: dict[str, Any], engine_idx: int = 0
    ) -> None:
        """Take one step's counts."""
        for name, more in transfer_stats_data["counts"].items():
            if name in self._counters:
                self._counters[name][engine_idx].inc(more)
        self._show(transfer_stats_data["now"], engine_idx)
        for size, seconds, *phases in transfer_stats_data["pulls"]:
            self._bytes[engine_idx].observe(size)
            self._seconds[engine_idx].observe(seconds)
            for histogram, took in zip(self._phases, phases, strict=True):
                histogram[engine_idx].observe(took)

    def _show(self, later: dict[str, Any], engine_idx: int) -> None:
        """Set the gauges that moved to what all sources said last."""
        now = self._now.setdefault(engine_idx, {})
        _update(now, later)
        for name in {name for values in later.values() for name in values}:
            if name in self._gauges:
                said = [v[name] for v in now.values() if name in v]
                fold = max if name in self._peaks else sum
                self._gauges[name][engine_idx].set(fold(said))
