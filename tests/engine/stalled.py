# SPDX-License-Identifier: Apache-2.0
"""Tiers for tests: one that stalls before it reads or before it checks, and
one that believes whatever it read. Engines load them (pooled.py).
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from kvpull_vllm import tier

POLL_S, COPY_S = 0.002, 0.1


class StalledTier(tier.KVPullTier):
    """Waits while its file is there, at the place that the file names.

    "probe": between probe and copy. "copy": between copy and check; says
    whether the read was open when the wait began.
    """

    def __init__(self, *args: Any, stall: str, **named: Any) -> None:
        super().__init__(*args, **named)
        self._stall = Path(stall)

    def submit_load(self, job_metadata: Any) -> None:
        """Read, and wait."""
        place = self._stall.read_text() if self._stall.exists() else ""
        if place == "copy":
            self._load_unchecked(job_metadata)
            return
        if place:
            self._wait(False)
        super().submit_load(job_metadata)

    def _wait(self, is_open: bool) -> None:
        said = self._stall.with_suffix(".new")
        said.write_text("open" * is_open)
        said.rename(self._stall.with_suffix(".reached"))
        while self._stall.exists():
            time.sleep(POLL_S)

    def _load_unchecked(self, job: Any) -> None:
        """The first poll() begins all copies, a later one looks at guards."""
        pool, poll = self._pool, self._pool._poll
        pool._poll = lambda: None
        with pool._lock:
            pass  # a poll that had begun has ended
        super().submit_load(job)
        poll()
        time.sleep(COPY_S)
        self._wait(not all(ask.is_probe for ask in pool._asks.values()))
        pool._poll = poll


class BelievingTier(StalledTier):
    """The negative control: what the guards say is not looked at."""

    def _take(self) -> None:
        ends = self._pool.ends

        def believed() -> list[Any]:
            ended = ends()
            for ask in ended:
                ask.codes = [0] * len(ask.codes)
            return ended

        self._pool.ends = believed
        try:
            super()._take()
        finally:
            self._pool.ends = ends
