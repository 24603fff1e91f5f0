# SPDX-License-Identifier: Apache-2.0
"""A cache policy of vLLM's primary tier that shares what is in it.

A chunk is listed when it is complete, and withdrawn before its first byte is
written again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, NamedTuple

from vllm.v1.kv_offload.cpu.policies.arc import ARCCachePolicy
from vllm.v1.kv_offload.cpu.policies.lru import LRUCachePolicy

from kvpull_vllm.abi import CONST
from kvpull_vllm.jobs import Origin
from kvpull_vllm.muted import Muted
from kvpull_vllm.pool import Pool, Put


class _Fill(NamedTuple):
    """A chunk that is being written, or was and is not listed yet."""

    chunk: int
    generation: int


class Publishing:
    """Lists a chunk when it is complete, and withdraws it before its reuse.

    Beside a policy of vLLM's: this has what is being written or was written
    and not listed, that has the rest.
    """

    newest: ClassVar[Publishing | None] = None

    def __init__(self, cache_capacity: int) -> None:
        super().__init__(cache_capacity)
        self.pool: Pool | None = None
        self.counts: dict[str, int] = {}
        # Chunks that a write or a read of the workers may reach after a reset:
        # nothing is read into them, until a later store of theirs has ended.
        self.held: set[int] = set()
        self.muted: Muted | None = None
        self._filling: dict[bytes, _Fill] = {}
        self._promoted: dict[bytes, Origin | None] = {}
        self._stored: dict[bytes, _Fill] = {}
        self._pinned: dict[bytes, int] = {}
        self._count = 0
        Publishing.newest = self

    def insert(self, key: bytes, chunk: Any, *more: Any) -> None:
        """A chunk will be written; vLLM 0.33 says for which request, too."""
        super().insert(key, chunk, *more)
        self._count += 1
        if self.pool is not None:
            place = int(chunk.chunk_id)
            self._filling[key] = _Fill(place, self.pool.begin(place))

    def promote(self, keys: Iterable[bytes], origin: Origin | None) -> None:
        """Note that chunks come from another engine; None: nothing comes."""
        self._promoted.update((key, origin) for key in keys)

    def mark_evictable(self, key: bytes) -> None:
        """The first time: its bytes are complete."""
        super().mark_evictable(key)
        self._pinned.pop(key, None)
        fill = self._filling.pop(key, None)
        if fill is None or self.pool is None:
            return
        self.pool.end(fill.chunk)
        is_promoted = key in self._promoted
        origin = self._promoted.pop(key, None)
        if not is_promoted:
            # The workers' writes keep their order, and this was the last of them.
            self.held.discard(fill.chunk)
            self._stored[key] = fill
        elif origin is not None:
            self._put(key, fill, origin)

    def publish(
        self, keys: Iterable[bytes], origin: Origin | None
    ) -> list[Put]:
        """List what workers stored of a request.

        Return what was: it may be spilled while it is pinned.
        """
        puts = []
        for key in keys:
            fill = self._stored.pop(key, None)
            if fill and origin and not self._is_muted(origin.adapter):
                puts.append(self._put(key, fill, origin))
        return puts

    def _is_muted(self, adapter: int) -> bool:
        return self.muted is not None and self.muted.has(adapter)

    def _put(self, key: bytes, fill: _Fill, origin: Origin) -> Put:
        made = Put(origin.name(key), fill.chunk, fill.generation, origin.epoch)
        code = self.pool.put(*made)
        if code == 0:
            self.count("published")
        elif code == CONST["KVPULL_EFULL"]:
            self.count("unpublished")
        return made

    def count(self, name: str, more: int = 1) -> None:
        self.counts[name] = self.counts.get(name, 0) + more

    def mark_non_evictable(self, key: bytes) -> None:
        """A worker or a tier will read it."""
        super().mark_non_evictable(key)
        self._pinned[key] = int(self.get(key).chunk_id)

    def evict(self, n: int, protected: set[Any]) -> Any:
        """Withdraw what is given away."""
        evicted = super().evict(n, protected)
        if evicted:
            self._withdraw((k, int(c.chunk_id)) for k, c in evicted)
        return evicted

    def remove(self, key: bytes) -> None:
        """Withdraw what could not be written."""
        chunk = int(self.get(key).chunk_id)
        super().remove(key)
        if self._filling.pop(key, None) and self.pool is not None:
            # A worker's write that failed may still be under way.
            if key not in self._promoted:
                self.held.add(chunk)
            elif chunk not in self.held:
                self.pool.end(chunk)
        self._promoted.pop(key, None)
        self._withdraw([(key, chunk)])

    def _withdraw(self, places: Iterable[tuple[bytes, int]]) -> None:
        chunks = []
        for key, chunk in places:
            self._stored.pop(key, None)
            self._pinned.pop(key, None)
            chunks.append(chunk)
        self._count -= len(chunks)
        self.count("withdrawn", len(chunks))
        if self.pool is not None:
            self.pool.bump(chunks)

    def clear(self) -> None:
        """Withdraw all, and hold what is written or read at this moment."""
        super().clear()
        self.held.update(fill.chunk for fill in self._filling.values())
        self.held.update(self._pinned.values())
        for kept in (self._filling, self._promoted, self._stored, self._pinned):
            kept.clear()
        self.count("withdrawn", self._count)
        self._count = 0
        if self.muted is not None:
            self.muted.cleared()
        if self.pool is not None:
            self.pool.bump_all()

    def changed(self, adapter: int = 0) -> bool:
        """The weights change, or an adapter; say whether something is cached."""
        return self.muted is not None and self.muted.changed(
            adapter, self._count > 0
        )


class KVPullLRU(Publishing, LRUCachePolicy):
    """vLLM's LRU that publishes."""


class KVPullARC(Publishing, ARCCachePolicy):
    """vLLM's ARC that publishes."""
