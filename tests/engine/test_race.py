# SPDX-License-Identifier: Apache-2.0
"""A race of vLLM's tiers, without kvpull: a reset overtakes a store.

vLLM's worker half submits a step's stores in the next step. A reset between
the two frees their chunks, a promotion takes them, and the store lands there.
"""

from __future__ import annotations

import sys
import uuid
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from runner import TESTS, run_all, test
from test_tier import CHUNKS, HIT, PAGE, Side, keys, page
from tier_side import begin_store, offloading_config
from vllm.v1.kv_offload.cpu.shared_offload_region import SharedOffloadRegion
from vllm.v1.kv_offload.tiering.example.manager import (
    ExampleSecondaryTierManager,
)
from vllm.v1.kv_offload.tiering.manager import (
    CPUPrimaryTierOffloadingManager,
    TieringOffloadingManager,
)
from vllm.v1.kv_offload.tiering.spec import TieringOffloadingSpec

TESTS.clear()  # test_tier.py's, which runs them itself


class Keeping(ExampleSecondaryTierManager):
    """vLLM's example of a tier, with bytes."""

    def __init__(self, spec: Any, view: memoryview) -> None:
        super().__init__(spec, view, "keeping")
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
        name = f"kvpull-test-{uuid.uuid4()}"
        self.worker = SharedOffloadRegion(name, CHUNKS, 0, PAGE, PAGE)
        self.region = SharedOffloadRegion(name, CHUNKS, None, PAGE, PAGE)
        self.spec = TieringOffloadingSpec(
            offloading_config(name, cpu_bytes_to_use=CHUNKS * PAGE)
        )
        self.primary = CPUPrimaryTierOffloadingManager(
            CHUNKS, self.region, cache_policy="lru"
        )
        self.view = self.primary.get_kv_memoryview()
        self.manager = TieringOffloadingManager(
            self.primary, [Keeping(self.spec, self.view)]
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
