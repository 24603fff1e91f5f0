# SPDX-License-Identifier: Apache-2.0
"""Engines' sides of the tier, with vLLM's own tiering manager, for tests."""

from __future__ import annotations

import os
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

from engine import environment

os.environ.update(environment())
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")

from doubles import EngineDouble, scheduler_double  # noqa: E402
from kvpull_vllm import inside, policy, primary  # noqa: E402
from kvpull_vllm.halves import Model  # noqa: E402
from vllm.v1.kv_offload.base import (  # noqa: E402
    LookupResult,
    ReqContext,
    ScheduleEndContext,
)
from vllm.v1.kv_offload.cpu.shared_offload_region import (  # noqa: E402
    SharedOffloadRegion,
)
from vllm.v1.kv_offload.tiering.factory import (  # noqa: E402
    SecondaryTierFactory,
)
from vllm.v1.kv_offload.tiering.manager import (  # noqa: E402
    CPUPrimaryTierOffloadingManager,
    TieringOffloadingManager,
)

PAGE = 4096
CHUNKS = 8
FOLDER = Path()
LIBRARY = os.environ.get("LIBKVPULL")
MODEL = Model("m", "", "files 1", "float32", "LBHNC", "", 1, 1, PAGE, False)
MISS, HIT = LookupResult.MISS, LookupResult.HIT


class Config(SimpleNamespace):
    """The parts of vLLM's configuration that the tier looks at."""

    def __init__(self, algorithm: str = "sha256", nodes: int = 1) -> None:
        super().__init__(
            cache_config=SimpleNamespace(prefix_caching_hash_algo=algorithm),
            parallel_config=SimpleNamespace(
                nnodes_within_dp=nodes, tensor_parallel_size=1
            ),
        )


class Side(EngineDouble):
    """An engine's scheduler side of offloading, without the scheduler."""

    def __init__(
        self,
        folder: Path,
        name: str,
        model: Model = MODEL,
        config: Config | None = None,
        chunks: int = CHUNKS,
        eviction: str = "KVPullLRU",
        beside: tuple[str, ...] = (),
        adapters: bool = False,
        **own: Any,
    ) -> None:
        super().__init__(adapters=adapters)
        self.scheduler = scheduler_double()
        policy.Publishing.newest = None
        name_of_memory = f"kvpull-test-{uuid.uuid4()}"
        # A worker makes the file, before there is a scheduler.
        self.worker = SharedOffloadRegion(name_of_memory, chunks, 0, PAGE, PAGE)
        self.region = SharedOffloadRegion(
            name_of_memory, chunks, None, PAGE, PAGE
        )
        ours = eviction.startswith("KVPull")
        self.primary = CPUPrimaryTierOffloadingManager(
            chunks,
            self.region,
            cache_policy=eviction,
            cache_policy_module_path="kvpull_vllm.tier" if ours else None,
        )
        tier = {
            "type": "kvpull",
            "module_path": "kvpull_vllm.tier",
            "socket_dir": str(folder),
            "deadline_ms": 4000,
            "library": LIBRARY,
            "name": name,
            **own,
        }
        self.spec = SimpleNamespace(
            config=SimpleNamespace(engine_id=name),
            secondary_tier_configs=[tier, *({"type": t} for t in beside)],
            _scheduler_mmap=self.region,
        )
        self.view = self.primary.get_kv_memoryview()
        try:
            with (
                mock.patch.object(
                    inside, "configurations", lambda: (config or Config(), None)
                ),
                mock.patch.object(primary, "model", lambda *_: model),
            ):
                self.tier: Any = SecondaryTierFactory.create_secondary_tier(
                    tier, self.view, self.spec
                )
        except BaseException:
            self.primary.shutdown()  # workers are killed: they tidy nothing up
            raise
        self.manager = TieringOffloadingManager(self.primary, [self.tier])
        self.policy = self.tier._policy

    def close(self) -> None:
        """End it as vLLM does."""
        self.manager.shutdown()
        self.worker._creator = False  # it would warn that the name is gone
        self.worker.cleanup()

    def step(self) -> None:
        """End a step of the scheduler."""
        self.manager.on_schedule_end(ScheduleEndContext((), ()))

    def reset(self) -> None:
        """Reset as vLLM's scheduler does where no worker copies."""
        self.scheduler.kv_cache_manager.block_pool.reset_prefix_cache()
        self.manager.reset_cache()
        if self.promotes_late:
            self.manager.on_reset_flushed()

    @property
    def promotes_late(self) -> bool:
        """Whether vLLM lets no tier write behind a reset, as from 0.33 on.

        It waits until the workers' copies of before the reset have ended.
        """
        return hasattr(self.manager, "on_reset_flushed")

    def computes(self) -> Any:
        """Have a block of a request that fills no chunk; see has_computed()."""
        pool = self.scheduler.kv_cache_manager.block_pool
        (block,) = pool.get_new_blocks(1)
        return block

    def has_computed(self, block: Any) -> None:
        """Cache a request's block in the workers, and give it back."""
        pool = self.scheduler.kv_cache_manager.block_pool
        pool.cached_block_hash_to_block.insert(b"x" * 36, block)
        pool.free_blocks([block])

    def request(self, **params: Any) -> ReqContext:
        """Begin a request."""
        made = ReqContext(str(uuid.uuid4()), kv_transfer_params=params)
        self.manager.on_new_request(made)
        return made

    def begin(self, keys: list[bytes], asked: ReqContext) -> list[int]:
        """Have the workers begin to store; return the chunks."""
        out = self.manager.prepare_store(keys, asked)
        assert out is not None and out.keys_to_store == keys
        return [int(chunk) for chunk in out.store_spec.chunk_ids]

    def store(self, keys: list[bytes], fill: int = 0) -> list[int]:
        """Store pages that say their key, or are filled; return the chunks."""
        asked = self.request()
        chunks = self.begin(keys, asked)
        for key, chunk in zip(keys, chunks, strict=True):
            self.write(chunk, key, fill)
        self.manager.complete_store(keys, asked)
        self.manager.on_request_finished(asked)
        self.step()
        self.step()
        until = time.monotonic() + 5
        while self.tier._spills:
            self.step()
            assert time.monotonic() < until
        self.step()
        assert not self.manager.has_pending_work()
        return chunks

    def write(self, chunk: int, key: bytes, fill: int = 0) -> None:
        """Write a page as a worker does."""
        self.view.cast("B")[chunk * PAGE : (chunk + 1) * PAGE] = page(key, fill)

    def bytes_of(self, key: bytes) -> bytes:
        """Return what the primary has under a key."""
        first = self.policy.get(key).chunk_id * PAGE
        return bytes(self.view.cast("B")[first : first + PAGE])

    def load(
        self, keys: list[bytes], limit_s: float = 5.0, **params: Any
    ) -> list[LookupResult]:
        """Look keys up as the scheduler does until all are told."""
        asked = self.request(**params)
        until = time.monotonic() + limit_s
        while True:
            found = [self.manager.lookup(key, asked) for key in keys]
            self.step()
            if set(found) <= {MISS, HIT}:
                break
            assert time.monotonic() < until, found
            time.sleep(0.001)
        self.manager.on_request_finished(asked)
        return found

    def count(self, name: str) -> int:
        """Return how often something was counted."""
        return self.policy.counts.get(name, 0)

    def meets(self, others: int, limit_s: float = 5.0) -> None:
        """Wait until so many engines are read from."""
        until = time.monotonic() + limit_s
        own = self.tier._is_spilling
        while len(self.tier._peers.ready) != others + own:
            assert time.monotonic() < until, self.tier._peers.ready
            time.sleep(0.005)


def page(key: bytes, fill: int = 0) -> bytes:
    """Return a page's bytes."""
    return bytes([fill or key[0]]) * PAGE


def keys(count: int, first: int = 1) -> list[bytes]:
    """Return keys as long as vLLM's."""
    return [bytes([first + at]) * 36 for at in range(count)]


@contextmanager
def sides(*names: str, **more: Any) -> Iterator[list[Side]]:
    """Engines that have met."""
    with tempfile.TemporaryDirectory(dir=FOLDER) as made:
        folder = Path(made)
        folder.chmod(0o700)
        found = [Side(folder, name, **more) for name in names or ("a", "b")]
        try:
            for one in found:
                one.meets(len(found) - 1)
            yield found
        finally:
            for one in found:
                one.close()
