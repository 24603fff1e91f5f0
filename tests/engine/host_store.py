# SPDX-License-Identifier: Apache-2.0
"""Stores of vLLM's OffloadingConnector for engines without a GPU; they load
them (offloaded.py, pooled.py).
"""

from __future__ import annotations

from typing import Any

import torch
from vllm.v1.kv_offload.base import OffloadingWorker, TransferResult
from vllm.v1.kv_offload.cpu.shared_offload_region import SharedOffloadRegion
from vllm.v1.kv_offload.cpu.spec import CPUOffloadingSpec
from vllm.v1.kv_offload.tiering.spec import TieringOffloadingSpec


class HostWorker(OffloadingWorker):
    """Copies blocks to tensors beside the cache and back, at once."""

    def __init__(self, caches: Any, far: list[torch.Tensor]) -> None:
        self._near = [cache.tensor for cache in caches.tensors]
        self._far = far
        self._ended: list[TransferResult] = []

    def submit_store(self, job_id: int, src_spec: Any, dst_spec: Any) -> bool:
        """Copy from the cache."""
        self._copy(job_id, self._near, src_spec, self._far, dst_spec)
        return True

    def submit_load(self, job_id: int, src_spec: Any, dst_spec: Any) -> bool:
        """Copy to the cache."""
        self._copy(job_id, self._far, src_spec, self._near, dst_spec)
        return True

    def _copy(self, job: int, old: Any, src: Any, new: Any, dst: Any) -> None:
        count = 0
        for read, written in zip(old, new, strict=True):
            data = read[torch.from_numpy(src.block_ids).long()]
            written[torch.from_numpy(dst.block_ids).long()] = data
            count += data.numel() * data.element_size()
        self._ended.append(TransferResult(job, True, count, 1e-6))

    def get_finished(self) -> list[TransferResult]:
        """Return what was copied since the last call."""
        ended, self._ended = self._ended, []
        return ended

    def wait(self, job_ids: set[int]) -> None:
        """Return: all is copied when it was asked for."""


class HostSpec(CPUOffloadingSpec):
    """vLLM's own store, with a worker that needs no GPU."""

    def get_worker(self, kv_caches: Any) -> OffloadingWorker:
        """Return the worker."""
        far = [
            torch.zeros(
                (self.num_chunks, *cache.tensor.shape[1:]),
                dtype=cache.tensor.dtype,
            )
            for cache in kv_caches.tensors
        ]
        return HostWorker(kv_caches, far)


class TieredHostSpec(TieringOffloadingSpec):
    """vLLM's tiers, with a worker that needs no GPU and chunks of a block."""

    def get_worker(self, kv_caches: Any) -> OffloadingWorker:
        """Return the worker, which copies to the primary tier's memory."""
        region = SharedOffloadRegion(
            engine_id=self._engine_id,
            num_chunks=self.num_chunks,
            rank=self.config.parallel.rank,
            kv_bytes_per_chunk=self.kv_bytes_per_chunk,
            cpu_page_size=self.cpu_page_size_per_worker,
        )
        far = [
            region.create_next_worker_view(cache.tensor[0].nbytes)
            .view(cache.tensor.dtype)
            .unflatten(1, cache.tensor.shape[1:])
            for cache in kv_caches.tensors
        ]
        return HostWorker(kv_caches, far)
