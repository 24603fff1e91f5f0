# SPDX-License-Identifier: Apache-2.0
"""Counters of both halves for vLLM's log line and for Prometheus.

Counters only: ranks are added up, and so are steps. What is live now is a
difference, e.g. holds taken - released - expired - revoked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.metrics import (
    KVConnectorPromMetrics,
    KVConnectorStats,
)
from vllm.v1.metrics.utils import create_metric_per_engine

from kvpull_vllm.abi import ffi

_NOW = ("arena_bytes", "poll_ns_max", "releases_queued")  # no counters
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
}


def counters(kind: str) -> list[str]:
    """Return the names of a half's counters."""
    return [
        name
        for name, _ in ffi.typeof(f"struct kvpull_{kind}_stats").fields
        if name != "struct_size"
        and not name.endswith("_live")
        and name not in _NOW
    ]


SHIM = ("shim_dropped", "shim_no_ticket")
NAMES = (
    *(f"scheduler_{name}" for name in counters("scheduler")),
    *(f"worker_{name}" for name in counters("worker")),
    *SHIM,
)


class Moves:
    """By how much a half's counters moved since the last look."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._names = counters(kind)
        self._last = dict.fromkeys(self._names, 0)

    def look(self, counts: dict[str, int] | None, stats: KVPullStats) -> None:
        """Add what moved to stats; None: nothing did."""
        if counts is None:
            return
        for name in self._names:
            stats.count(f"{self._kind}_{name}", counts[name] - self._last[name])
            self._last[name] = counts[name]


@dataclass
class KVPullStats(KVConnectorStats):
    """{"counts": {name: more}, "pulls": [[bytes, seconds], ...]}."""

    def __post_init__(self) -> None:
        """Give an empty one its keys."""
        if not self.data:
            self.reset()

    def reset(self) -> None:
        """Forget everything."""
        self.data: dict[str, Any] = {"counts": {}, "pulls": []}

    def count(self, name: str, more: int) -> None:
        """Add to one counter."""
        if more:
            own = self.data["counts"]
            own[name] = own.get(name, 0) + more

    def aggregate(self, other: KVConnectorStats) -> KVPullStats:
        """Add another rank's or another step's."""
        for name, more in other.data["counts"].items():
            self.count(name, more)
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
            total = sum(size for size, _ in pulls)
            times = sorted(seconds for _, seconds in pulls)
            said["MB pulled"] = round(total / 1e6, 3)
            said["median pull ms"] = round(times[len(times) // 2] * 1e3, 3)
            said["slowest pull ms"] = round(times[-1] * 1e3, 3)
        return said or {"moves": sum(counts.values())}

    def is_empty(self) -> bool:
        """Say whether nothing was counted."""
        return not self.data["counts"] and not self.data["pulls"]


class KVPullPromMetrics(KVConnectorPromMetrics):
    """vllm:kvpull_<half>_<counter>_total and two histograms of pulls."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Register the metrics of each engine."""
        super().__init__(*args, **kwargs)
        self._counters = {
            name: self._counter(name, f"kvpull counter {name}, all ranks.")
            for name in NAMES
        }
        self._bytes = self._histogram(
            "pull_bytes",
            "Bytes that a rank read for one request.",
            [4.0**power for power in range(6, 18)],
        )
        self._seconds = self._histogram(
            "pull_seconds",
            "Time from a pull's command to its end, one rank.",
            [1e-4 * 2**power for power in range(18)],
        )

    def _counter(self, name: str, text: str) -> dict[int, Any]:
        made = self._counter_cls(
            name=f"vllm:kvpull_{name}",
            documentation=text,
            labelnames=self._labelnames,
        )
        return create_metric_per_engine(made, self.per_engine_labelvalues)

    def _histogram(
        self, name: str, text: str, buckets: list[float]
    ) -> dict[int, Any]:
        made = self._histogram_cls(
            name=f"vllm:kvpull_{name}",
            documentation=text,
            buckets=buckets,
            labelnames=self._labelnames,
        )
        return create_metric_per_engine(made, self.per_engine_labelvalues)

    def observe(
        self, transfer_stats_data: dict[str, Any], engine_idx: int = 0
    ) -> None:
        """Take one step's counts."""
        for name, more in transfer_stats_data["counts"].items():
            if name in self._counters:
                self._counters[name][engine_idx].inc(more)
        for size, seconds in transfer_stats_data["pulls"]:
            self._bytes[engine_idx].observe(size)
            self._seconds[engine_idx].observe(seconds)
