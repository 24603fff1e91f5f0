# SPDX-License-Identifier: Apache-2.0
"""Adapters, and weights, whose cached KV may be older than their last change."""

from __future__ import annotations

from typing import Any

from kvpull_vllm.core import Core


class Muted:
    """Adapters that changed, 0 for the weights, while something was cached.

    New requests hit what is cached, here or by the workers, and compute on from
    there: of such a request nothing may be shared. That ends when both caches
    were cleared, the workers' first.
    """

    def __init__(self, core: Core) -> None:
        self._core = core
        self._adapters: set[int] = set()
        self._cached: Any = None  # the workers' cache at the last change

    def changed(self, adapter: int, has_chunks: bool) -> bool:
        """Take note of a change; say whether something was cached."""
        if not has_chunks and self._core.is_cache_empty():
            return False
        self._adapters.add(adapter)
        self._cached = self._core.cached()
        return True

    def cleared(self) -> None:
        """The chunks are withdrawn; the workers' cache was cleared before."""
        cached = self._core.cached()
        if cached is not None and cached is not self._cached:
            self._adapters.clear()

    def has(self, adapter: int) -> bool:
        """Say whether what is computed with an adapter is not shared."""
        return bool(self._adapters) and not self._adapters.isdisjoint(
            (0, adapter)
        )
