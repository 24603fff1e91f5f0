# SPDX-License-Identifier: Apache-2.0
"""A race of vLLM's tiers, without kvpull: a reset overtakes a store.

vLLM's worker half submits a step's stores in the next step. A reset between
the two frees their chunks, a promotion takes them, and the store lands there.
"""

from __future__ import annotations

import sys
import uuid
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

from runner import TESTS, run_all, test
from test_tier import CHUNKS, HIT, PAGE, Side, keys, page
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.common import (
    OffloadingConnectorMetadata,
    TransferJob,
)
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.worker import (
    OffloadingConnectorWorker,
)
from vllm.v1.kv_offload.base import GPULoadStoreSpec
from vllm.v1.kv_offload.cpu.shared_offload_region import SharedOffloadRegion
from vllm.v1.kv_offload.tiering.example.manager import (
    ExampleSecondaryTierManager,
)
from vllm.v1.kv_offload.tiering.manager import (
    CPUPrimaryTierOffloadingManager,
    TieringOffloadingManager,
)

TESTS.clear()  # test_tier.py's, which runs them itself


def begin_store(side: Side, own: list[bytes]) -> Callable[[], None]:
    """Begin a store; return the step in which vLLM's worker half submits it."""
    asked = side.request()
    out = side.manager.prepare_store(own, asked)
    assert out is not None and out.keys_to_store == own
    submitted = []

    def copy(job: int, _src: Any, dst: Any) -> bool:
        for chunk, key in zip(dst.chunk_ids, own, strict=True):
            side.write(int(chunk), key)
        submitted.append(job)
        return True

    half = OffloadingConnectorWorker(
        SimpleNamespace(replicated_layout=False), None, None
    )
    half.worker = SimpleNamespace(submit_store=copy, wait=lambda _: None)
    blocks = GPULoadStoreSpec([0] * len(own), [len(own)], [0])
    stores = {1: TransferJob(asked.req_id, blocks, out.store_spec)}
    half.prepare_store_kv(OffloadingConnectorMetadata({}, stores))
    assert not submitted

    def step() -> None:
        # After a reset vLLM's scheduler half has all that is open flushed.
        half.handle_preemptions(OffloadingConnectorMetadata({}, {}, {1}))
        assert submitted == [1]

    return step


class Keeping(ExampleSecondaryTierManager):
    """vLLM's example of a tier, with bytes."""

    def __init__(self, view: memoryview) -> None:
        super().__init__(SimpleNamespace(), view, "keeping")
        self._kept: dict[bytes, bytes] = {}

    def _rows(self, job: Any) -> Iterator[tuple[bytes, memoryview]]:
        rows = self._primary_kv_view.cast("B")
        for key, chunk in zip(job.keys, map(int, job.chunk_ids), strict=True):
            yield key, rows[chunk * PAGE : (chunk + 1) * PAGE]

    def submit_store(self, job_metadata: Any) -> None:
        """Copy, at once."""
        for key, row in self._rows(job_metadata):
            self._kept[key] = bytes(row)
        super().submit_store(job_metadata)

    def submit_load(self, job_metadata: Any) -> None:
        """Copy back, at once."""
        for key, row in self._rows(job_metadata):
            row[:] = self._kept[key]
        super().submit_load(job_metadata)


class Stock(Side):
    """vLLM's own manager, primary tier and policy, and a tier that copies."""

    def __init__(self) -> None:
        self.region = SharedOffloadRegion(
            f"kvpull-test-{uuid.uuid4()}", CHUNKS, None, PAGE, PAGE
        )
        self.primary = CPUPrimaryTierOffloadingManager(
            CHUNKS, self.region, cache_policy="lru"
        )
        self.view = self.primary.get_kv_memoryview()
        self.manager = TieringOffloadingManager(
            self.primary, [Keeping(self.view)]
        )
        self.policy = self.primary._policy
        self.tier = SimpleNamespace(_spills=())


@test
def vllm_hits_with_another_keys_bytes() -> None:
    """Where it does not any more, the policy need hold no chunks."""
    side, own, other = Stock(), keys(CHUNKS), keys(CHUNKS, 90)
    try:
        side.store(own)
        side.manager.reset_cache()
        step = begin_store(side, other)
        side.manager.reset_cache()
        assert side.load(own) == [HIT] * CHUNKS
        assert [side.bytes_of(key) for key in own] == list(map(page, own))
        step()
        assert side.load(own) == [HIT] * CHUNKS
        assert [side.bytes_of(key) for key in own] == list(map(page, other))
    finally:
        side.close()


if __name__ == "__main__":
    sys.exit(run_all())
