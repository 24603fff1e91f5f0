# SPDX-License-Identifier: Apache-2.0
"""Engines' sides of the tier, with vLLM's own tiering manager, for tests."""

from __future__ import annotations

import os
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any
from unittest import mock

from engine import environment

os.environ.update(environment())
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")

from doubles import EngineDouble, scheduler_double  # noqa: E402
from kvpull_vllm import policy, primary  # noqa: E402
from kvpull_vllm.halves import Model  # noqa: E402
from runner import run_all  # noqa: E402
from vllm.config import CacheConfig, ParallelConfig, VllmConfig  # noqa: E402
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.common import (  # noqa: E402
    OffloadingConnectorMetadata,
    TransferJob,
)
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.worker import (  # noqa: E402
    OffloadingConnectorWorker,
)
from vllm.v1.kv_cache_interface import KVCacheConfig  # noqa: E402
from vllm.v1.kv_offload.base import (  # noqa: E402
    GPULoadStoreSpec,
    LookupResult,
    OffloadingWorker,
    ReqContext,
    ScheduleEndContext,
)
from vllm.v1.kv_offload.config import (  # noqa: E402
    OffloadingCacheConfig,
    OffloadingConfig,
    OffloadingGroupConfig,
    OffloadingModelConfig,
    OffloadingParallelConfig,
)
from vllm.v1.kv_offload.cpu.shared_offload_region import (  # noqa: E402
    SharedOffloadRegion,
)
from vllm.v1.kv_offload.tiering.spec import (  # noqa: E402
    TieringOffloadingSpec,
)

PAGE = 4096
CHUNKS = 8
FOLDER = Path()
LIBRARY = os.environ.get("LIBKVPULL")
MODEL = Model("m", "", "files 1", "float32", "LBHNC", "", 1, 1, PAGE, False)
MISS, HIT = LookupResult.MISS, LookupResult.HIT


@cache
def config_of(algorithm: str = "sha256", nodes: int = 1) -> VllmConfig:
    """Return vLLM's configuration of an engine."""
    return VllmConfig(
        cache_config=CacheConfig(prefix_caching_hash_algo=algorithm),
        parallel_config=ParallelConfig(
            nnodes=nodes,
            tensor_parallel_size=nodes,
            distributed_executor_backend="mp",
        ),
    )


def offloading_config(engine_id: str, **extra: Any) -> OffloadingConfig:
    """Return what vLLM tells its offloading of an engine, of pages."""
    return OffloadingConfig(
        groups=(OffloadingGroupConfig(32, ("l.0",), 0),),
        worker_kv_bytes_per_block=PAGE,
        enable_kv_cache_events=False,
        extra_config=extra,
        engine_id=engine_id,
        model=OffloadingModelConfig("m", "float32"),
        cache=OffloadingCacheConfig(32, 1),
        parallel=OffloadingParallelConfig(0, 1, 1, 1, 1, 1, 0, 1, None, False),
    )


class Side(EngineDouble):
    """An engine's scheduler side of offloading, without the scheduler."""

    def __init__(
        self,
        folder: Path,
        name: str,
        model: Model = MODEL,
        config: VllmConfig | None = None,
        chunks: int = CHUNKS,
        eviction: str = "KVPullLRU",
        beside: tuple[str, ...] = (),
        adapters: bool = False,
        **own: Any,
    ) -> None:
        super().__init__(adapters=adapters)
        self.scheduler = scheduler_double()
        policy.Publishing.newest = None
        tier = {
            "type": "kvpull",
            "module_path": "kvpull_vllm.tier",
            "socket_dir": str(folder),
            "deadline_ms": 4000,
            "library": LIBRARY,
            "name": name,
            **own,
        }
        extra = {
            "cpu_bytes_to_use": chunks * PAGE,
            "eviction_policy": eviction,
            "secondary_tiers": [tier, *({"type": t} for t in beside)],
        }
        if eviction.startswith("KVPull"):
            extra["cache_policy_module_path"] = "kvpull_vllm.tier"
        engine_id = f"kvpull-test-{uuid.uuid4()}"
        self.spec = TieringOffloadingSpec(offloading_config(engine_id, **extra))
        # A worker makes the file, before there is a scheduler.
        self.worker = SharedOffloadRegion(engine_id, chunks, 0, PAGE, PAGE)
        with mock.patch.object(primary, "model", lambda *_: model):
            self.manager = self._made(
                config or config_of(), KVCacheConfig(1, [], [])
            )
        self.region = self.spec._scheduler_mmap
        self.view = self.manager.primary_tier.get_kv_memoryview()
        self.tier: Any = self.manager.secondary_tiers[0]
        self.policy = self.tier._policy

    def _made(self, vllm_config: Any, kv_cache_config: Any) -> Any:
        """Have vLLM make its tiers, where these two are at hand."""
        return self.spec.get_manager()

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


def begin_store(side: Side, own: list[bytes]) -> Callable[[], None]:
    """Begin a store; return the step in which vLLM's worker half submits it."""
    asked = side.request()
    out = side.manager.prepare_store(own, asked)
    assert out is not None and out.keys_to_store == own
    submitted = []

    def copy(job_id: int, src_spec: Any, dst_spec: Any) -> bool:
        for chunk, key in zip(dst_spec.chunk_ids, own, strict=True):
            side.write(int(chunk), key)
        submitted.append(job_id)
        return True

    half = OffloadingConnectorWorker(side.spec, None, None)
    half.worker = mock.create_autospec(OffloadingWorker, instance=True)
    half.worker.submit_store.side_effect = copy
    blocks = GPULoadStoreSpec([0] * len(own), [len(own)], [0])
    stores = {1: TransferJob(asked.req_id, blocks, out.store_spec)}
    half.prepare_store_kv(OffloadingConnectorMetadata({}, stores))
    assert not submitted

    def step() -> None:
        # After a reset vLLM's scheduler half has all that is open flushed.
        half.handle_preemptions(OffloadingConnectorMetadata({}, {}, {1}))
        assert submitted == [1]

    return step


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


def found_and_not_loaded(
    side: Side, own: list[bytes], asked: Any = None
) -> list[Any]:
    """Return the jobs that vLLM has begun for keys, before they are read.

    A request is begun for them, if there is none.
    """
    asked = asked or side.request()
    until = time.monotonic() + 5
    with mock.patch.object(side.tier, "submit_load") as kept:
        while not kept.called:
            for key in own:
                side.manager.lookup(key, asked)
            side.step()
            assert time.monotonic() < until
    return [call.args[0] for call in kept.call_args_list]


def main() -> int:
    """Run the tests of a program in a folder of its own; 0 if all hold."""
    global FOLDER
    with tempfile.TemporaryDirectory() as made:
        FOLDER = Path(made)
        return run_all()
