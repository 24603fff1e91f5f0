# SPDX-License-Identifier: Apache-2.0
"""A tier of vLLM that is the primary tiers of all other engines.

It finds chunks there by their keys and reads them into its own primary, which
the policy shares (policy.py). Nobody is asked: what was read is believed where
its guard is unchanged after the read.
"""

from __future__ import annotations

import atexit
import json
import os
import time
import uuid
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.offloading.metrics import (
    OffloadingConnectorStats,
)
from vllm.v1.kv_offload.base import (
    LookupResult,
    Medium,
    OffloadingCounterMetadata,
    OffloadingGaugeMetadata,
    RequestOffloadingContext,
)
from vllm.v1.kv_offload.tiering.base import JobResult, SecondaryTierManager

from kvpull_vllm import inside, primary, signatures
from kvpull_vllm.abi import CONST, Library, ffi
from kvpull_vllm.core import Core
from kvpull_vllm.halves import Model
from kvpull_vllm.jobs import COUNTERS, Found, Load, Origin, Request
from kvpull_vllm.logs import logger
from kvpull_vllm.muted import Muted
from kvpull_vllm.peers import Peers
from kvpull_vllm.policy import KVPullARC, KVPullLRU, Publishing
from kvpull_vllm.pool import ITEMS_MAX, Ask, Naming, Place, Pool, Share
from kvpull_vllm.settings import Settings, check_spelling

__all__ = ["KVPullARC", "KVPullLRU", "KVPullTier", "kvpull"]

_IDENTITY = ("library", "model", "revision", "weights", "engine")
_OWN_KEYS = (
    *_IDENTITY,
    *("addresses", "name", "peers", "hint_wait_s", "spill_dir", "spill_bytes"),
)
_DEADLINE_MS = 2000
_METRIC = "vllm:kvpull_pool_"


class KVPullTier(SecondaryTierManager):
    """Finds chunks in others' primaries and reads them into this one."""

    medium = Medium.CPU

    def __init__(
        self,
        offloading_spec: Any,
        primary_kv_view: memoryview,
        tier_type: str,
        backpressure_detector: Any = None,
        **config: Any,
    ) -> None:
        super().__init__(
            offloading_spec, primary_kv_view, tier_type, backpressure_detector
        )
        self._is_named = True
        try:
            self._open(offloading_spec, primary_kv_view, config)
        except BaseException:
            self._forget_name()
            raise

    def _open(
        self,
        offloading_spec: Any,
        primary_kv_view: memoryview,
        config: dict[str, Any],
    ) -> None:
        policy, Publishing.newest = Publishing.newest, None
        signatures.check(KVPullTier, KVPullLRU, KVPullARC)
        vllm_config, caches = inside.configurations()
        chunk_count = len(primary_kv_view)
        primary.check(vllm_config, offloading_spec, policy, chunk_count)
        config.pop("locality", None)
        own = {name: config.pop(name, None) for name in _IDENTITY}
        name = config.pop("name", None) or offloading_spec.config.engine_id
        only = config.pop("peers", None)
        spill, spill_bytes = primary.spill(config)
        folder = config.pop("addresses", None) or os.path.join(
            config.get("socket_dir")
            or os.environ.get("KVPULL_SOCKET_DIR")
            or f"/tmp/kvpull-{os.getuid()}",
            "pool",
        )
        self._hint_wait_s = primary.hint_wait(config)
        check_spelling(config, _OWN_KEYS, "tier kvpull")
        config.setdefault("deadline_ms", _DEADLINE_MS)
        self._policy: Any = policy
        self._core = Core()
        self._weights = self._core.name
        self._model = primary.model(
            vllm_config, caches, offloading_spec, Settings(**own)
        )
        self._tp = vllm_config.parallel_config.tensor_parallel_size
        self._hash = vllm_config.cache_config.prefix_caching_hash_algo
        self._found: dict[bytes, Found] = {}
        self._batch: list[bytes] = []
        self._probes: dict[Ask, list[Found]] = {}
        self._reads: dict[Ask, tuple[Load, list[bytes]]] = {}
        self._spills: dict[Ask, Load] = {}
        self._done: list[Load] = []
        self._live: dict[str, Request] = {}
        self._peer_count = -1
        self._is_spilling = spill is not None
        self._pid = os.getpid()
        buffer = ffi.from_buffer(primary_kv_view)
        base = int(ffi.cast("uintptr_t", buffer))
        del buffer  # the view is released at the end
        self._pool = Pool(
            Library(own["library"]), json.dumps(config), self._naming(), name
        )
        try:
            size = self.block_size_bytes
            fd = inside.primary_file(offloading_spec)
            self._pool.share(
                Share(size, chunk_count, fd, base, spill, spill_bytes // size)
            )
            self._local = self._pool.local_add(base, size, chunk_count)
            self._peers = Peers(
                self._pool, Path(folder), name, only, spill is not None
            )
            self._peers.publish()
        except BaseException:
            self._pool.close()
            raise
        policy.pool, policy.muted = self._pool, Muted(self._core)
        self._core.listeners.append(self._weights_changed)
        if self._core.adapters is not None:
            self._core.adapters.listeners.append(self._changed)
        self._pool.idle = self._peers.look
        atexit.register(self.shutdown)
        logger.info(
            "kvpull: pool: engine %s shares %d chunks of %d bytes: %s, %s",
            name, chunk_count, size, self._model.weights, self._model.layout,
        )  # fmt: skip

    def _forget_name(self) -> None:
        """Take away the name of the primary's memory, once.

        A worker made it and is killed where this engine does not start: vLLM
        would leave the file, and its memory with it.
        """
        if self._is_named:
            self._is_named = False
            inside.forget_primary_name(self._offloading_spec)

    def _naming(self) -> Naming:
        seed = os.environ.get("PYTHONHASHSEED", "vLLM's")
        own, name = self._model, self._weights
        if name is None:  # like no other ones anywhere
            name = f"not named {uuid.uuid4().hex}"
        weights = f"{own.weights} {name}".strip()
        named = Model(**{**vars(own), "weights": weights})
        return Naming(named, self._hash, seed, self._tp)

    def _changed(self, adapter: int = 0) -> bool:
        """Use and share nothing of before a change of an adapter, 0 for weights.

        Say whether there is some in the caches.
        """

        def is_of(origin: Origin | None) -> bool:
            return origin is not None and adapter in (0, origin.adapter)

        for load in [*self._done, *(load for load, _ in self._reads.values())]:
            load.is_stale = load.is_stale or is_of(load.origin)
        for request in self._live.values():
            if is_of(request.origin):
                request.origin = None
        return self._policy.changed(adapter)

    def _weights_changed(self) -> None:
        """Share nothing of the old ones; before the first byte is new."""
        is_muted = self._changed()
        was, self._weights = self._weights, self._core.name
        if was is None and self._weights is None:
            return  # a further call of an update
        self._pool.bump_all(self._naming())
        self._take()  # probes that ended before it
        for found in self._found.values():
            found.place = None
        self._peers.again()
        if self._weights is not None:
            logger.info(
                "kvpull: pool: the weights are version %s now%s", self._weights,
                ": nothing is shared until the caches are reset "
                "(/reset_prefix_cache?reset_external=true)" * is_muted,
            )  # fmt: skip

    # ---- requests ----

    def on_new_request(self, req_context: Any) -> RequestOffloadingContext:
        """Take note of when it began, and of who it names."""
        self._forget_name()  # all ranks have it open when one comes
        self._peers.look()
        request = Request(self._origin(req_context.req_id))
        self._live[req_context.req_id] = request
        params = req_context.kv_transfer_params
        named = params.get("kvpull_pool") if isinstance(params, dict) else None
        source = None if named or not isinstance(params, dict) else (
            params.get("remote_kv_source")
        )
        if isinstance(source, dict):
            named = f"{source.get('remote_host')}:{source.get('remote_port')}"
        if named is not None:
            request.hint = self._peers.resolve(named)
            if request.hint is None:
                self._policy.count("hints_unknown")
                logger.debug(
                    "kvpull: pool: request %s names %.80r, which is neither an "
                    "address nor a file in the folder of addresses",
                    req_context.req_id, named,
                )  # fmt: skip
            else:
                self._peers.hint(request.hint)
                request.until = time.monotonic() + self._hint_wait_s
        req_context.set_state(request)
        return RequestOffloadingContext()

    def _origin(self, name: str) -> Origin | None:
        """Return what a request is computed with; None: it has no name."""
        if self._core.are_unnamed:
            return None
        asked = self._core.request(name)
        adapter, content = self._core.adapter(asked)
        if adapter and (not content or getattr(
            asked.lora_request, "load_inplace", False
        )):
            return None
        return Origin(self._pool.epoch(), adapter, content)

    def on_request_finished(self, req_context: Any) -> None:
        """Forget what it asked for."""
        self._live.pop(req_context.req_id, None)
        request = req_context.get_state(Request)
        for key in request.keys if request else ():
            found = self._found[key]
            found.requests -= 1
            if not found.requests:
                del self._found[key]
        if request:
            request.keys.clear()

    def lookup(self, key: Any, req_context: Any) -> LookupResult:
        """Answer, or have it asked at the end of this step."""
        request = req_context.get_state(Request)
        if request is None or request.origin is None:
            return LookupResult.MISS
        key = request.origin.name(key)
        if key not in request.keys:
            if request.hint and self._peers.is_awaited(request.hint):
                if time.monotonic() < request.until:
                    self._peers.look()
                    return LookupResult.RETRY
                request.hint = None
            if not self._peers.ready:
                return LookupResult.MISS
            request.keys.add(key)
            found = self._found.setdefault(key, Found())
            found.requests += 1
            # A key that another request missed may be there by now.
            if not (found.place or found.waits):
                found.is_asked = False
                self._batch.append(key)
        found = self._found[key]
        if found.place:
            return LookupResult.HIT
        is_open = found.waits or not found.is_asked
        return LookupResult.RETRY if is_open else LookupResult.MISS

    def on_schedule_end(self, context: Any) -> None:
        """Ask all peers for what this step looked up."""
        batch = list(dict.fromkeys(k for k in self._batch if k in self._found))
        self._batch.clear()
        for at in range(0, len(batch), ITEMS_MAX):
            keys = batch[at : at + ITEMS_MAX]
            asked = [self._found[key] for key in keys]
            for found in asked:
                found.is_asked = True
            for peer in self._peers.ready:
                ask, code = self._pool.probe(peer, keys)
                if code:
                    continue
                self._probes[ask] = asked
                self._policy.count("keys_asked", len(keys))
                for found in asked:
                    found.waits += 1

    # ---- jobs ----

    def submit_store(self, job_metadata: Any) -> None:
        """List it; what is spilled is pinned until the disk has it."""
        job = Load(job_metadata, is_store=True)
        puts = self._policy.publish(job_metadata.keys, self._current(job))
        for at in range(0, len(puts) if self._is_spilling else 0, ITEMS_MAX):
            some = puts[at : at + ITEMS_MAX]
            ask, code = self._pool.spill(some)
            if code:
                self._policy.count("chunks_unspilled", len(some))
            else:
                self._spills[ask] = job
                job.waits += 1
        if not job.waits:
            self._end(job)

    def _current(self, load: Load) -> Origin | None:
        """Return its request's origin, if the adapter is still the same."""
        if load.origin and load.origin.adapter and self._core.adapters:
            self._core.adapters.look()
        return load.origin

    def submit_load(self, job_metadata: Any) -> None:
        """Read what was found into the primary's chunks."""
        load = Load(job_metadata, is_store=False)
        origin = self._current(load)
        if origin is None:
            # Weights or adapter changed since the lookup: nothing is read.
            self._policy.promote(job_metadata.keys, None)
            self._end(load)
            return
        self._policy.promote(
            job_metadata.keys, origin._replace(epoch=self._pool.epoch())
        )
        by_peer: dict[Any, list[tuple[bytes, Place, int]]] = {}
        chunks = map(int, job_metadata.chunk_ids)
        for key, chunk in zip(job_metadata.keys, chunks, strict=True):
            found = self._found.get(origin.name(key))
            if chunk in self._policy.held:
                self._policy.count("chunks_held")
                self._miss(origin.name(key))
            elif found is not None and found.place is not None:
                place = found.place
                piece = (key, place, chunk)
                by_peer.setdefault(place[:3], []).append(piece)
        for pieces in by_peer.values():
            for at in range(0, len(pieces), ITEMS_MAX):
                self._read(load, pieces[at : at + ITEMS_MAX])
        if not load.waits:
            self._end(load)

    def _read(self, load: Load, pieces: list[tuple[bytes, Place, int]]) -> None:
        keys = [key for key, _, _ in pieces]
        ask, code = self._pool.read(
            self._local, [(place, chunk) for _, place, chunk in pieces]
        )
        if code:
            self._policy.count("chunks_failed", len(keys))
            for key in keys:
                self._miss(load.origin.name(key))
            return
        self._reads[ask] = (load, keys)
        load.waits += 1

    def _miss(self, key: bytes) -> None:
        """Let its requests compute it, or they would try it for ever."""
        found = self._found.get(key)
        if found is not None:
            found.place = None

    def _end(self, load: Load) -> None:
        load.end()
        self._done.append(load)

    def _take(self) -> None:
        """Take what has ended."""
        for ask in self._pool.ends():
            if ask.is_probe:
                asked = self._probes.pop(ask)
                for found, place in zip(asked, ask.found, strict=True):
                    found.waits -= 1
                    if place and (not found.place or found.place.in_file):
                        found.place = place
                    self._policy.count("keys_found", place is not None)
                continue
            if ask in self._spills:
                job = self._spills.pop(ask)
                good = ask.codes.count(0)
                self._policy.count("chunks_spilled", good)
                self._policy.count("chunks_unspilled", len(ask.codes) - good)
                job.waits -= 1
                if not job.waits:
                    self._end(job)
                continue
            load, keys = self._reads.pop(ask)
            origin = self._current(load)
            for key, code in zip(keys, ask.codes, strict=True):
                if code == 0 and origin and not load.is_stale:
                    load.good.append(key)
                    self._policy.count("chunks_read")
                    continue
                is_stale = code in (0, CONST["KVPULL_ESTALE"])
                self._policy.count("chunks_stale" if is_stale else "chunks_failed")
                if origin:
                    self._miss(origin.name(key))
            load.waits -= 1
            if not load.waits:
                self._end(load)

    def get_finished_jobs(self) -> Collection[JobResult]:
        """Return what has ended since the last call."""
        self._take()
        done, self._done = self._done, []
        return [load.result(self.block_size_bytes) for load in done]

    def has_pending_work(self) -> bool:
        """Whether an answer is on its way: not in an idle engine."""
        return bool(self._probes or self._reads or self._spills or self._done)

    def drain_jobs(self) -> None:
        """End all reads: no byte lands in the primary after it."""
        self._pool.stop_reads()
        self._take()

    def shutdown(self) -> None:
        """Let nobody read here any more; a second call does nothing."""
        if os.getpid() != self._pid:
            return  # a child ends: what it would stop is its parent's
        self._forget_name()  # another tier may have been refused
        self._peers.withdraw()
        self._pool.close()

    # ---- metrics ----

    @classmethod
    def build_metric_definitions(cls, extra_config: Any) -> dict[str, Any]:
        """Return vllm:kvpull_pool_*."""
        made: dict[str, Any] = {
            _METRIC + name: OffloadingCounterMetadata(documentation=f"{text}.")
            for name, text in COUNTERS.items()
        }
        text = "Engines that are read from."
        made[f"{_METRIC}peers"] = OffloadingGaugeMetadata(documentation=text)
        return made

    def get_stats(self) -> OffloadingConnectorStats | None:
        """Return what was counted since the last call."""
        stats = OffloadingConnectorStats()
        for name, more in self._policy.counts.items():
            if more:
                stats.increase_counter(_METRIC + name, more)
        self._policy.counts.clear()
        if self._peers.others != self._peer_count:
            self._peer_count = self._peers.others
            stats.set_gauge(f"{_METRIC}peers", self._peer_count)
        return None if stats.is_empty() else stats


kvpull = KVPullTier  # "type": "kvpull"
