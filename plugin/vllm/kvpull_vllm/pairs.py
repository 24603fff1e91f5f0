# SPDX-License-Identifier: Apache-2.0
"""Pairs of P and D that the router makes.

A D that could not pull from a P says so in its answer. Each further request of
the two would cost a prefill at P that nobody reads: they are kept apart for a
time that doubles.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable

APART_S, APART_S_MAX = 1.0, 64.0
# In D's answer, or in a line of its stream. A text that a model wrote has its
# quotes escaped, so it cannot say so.
_PEER_FAILED = re.compile(rb'"kvpull_peer_failed":\s*true')
_COMPUTED = re.compile(rb'"kvpull_computed":')
# vLLM's answer in a stream for a request that its policy ended.
_ERROR = re.compile(rb'^data: \{"error".*"code":\s*5\d\d')
_OVERLAP = 64  # bytes: more than the longest of these names takes


class Told:
    """Reads in an answer of a D what became of its pull."""

    def __init__(self, status: int, content_type: str) -> None:
        self.has_failed = status >= 500
        # vLLM before 0.33 has no kv_transfer_params in a stream.
        self.has_pulled = status == 200 and "json" in content_type
        self._tail = b""

    def look(self, chunk: bytes) -> None:
        """Take a part of the answer."""
        text = self._tail + chunk
        self.has_failed |= bool(_PEER_FAILED.search(text) or _ERROR.match(chunk))
        self.has_pulled &= not _COMPUTED.search(text)
        self._tail = text[-_OVERLAP:]


class Pairs:
    """Pairs that are kept apart."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._apart: dict[tuple[str, str], tuple[float, float]] = {}

    def are_apart(self, p: str, d: str) -> bool:
        """Say whether a P is not to prefill for a D now."""
        until, _ = self._apart.get((p, d), (0.0, 0.0))
        return self._clock() < until

    def fail(self, p: str, d: str) -> float:
        """Keep two apart; return for how many seconds, 0 if they are."""
        if self.are_apart(p, d):
            return 0.0
        _, last_s = self._apart.get((p, d), (0.0, 0.0))
        wait_s = min(last_s * 2 or APART_S, APART_S_MAX)
        self._apart[p, d] = self._clock() + wait_s, wait_s
        return wait_s

    def succeed(self, p: str, d: str) -> None:
        """Forget that two were kept apart."""
        self._apart.pop((p, d), None)
