# SPDX-License-Identifier: Apache-2.0
"""A store of vLLM's OffloadingConnector for engines without a GPU; they load
it (offloaded.py).
"""

from __future__ import annotations

from typing import Any

import torch
from vllm.v1.kv_offload.base import OffloadingWorker, TransferResult
from vllm.v1.kv_offload.cpu.spec import CPUOffloadingSpec


class HostWorker(OffloadingWorker):
    """Copies blocks to a tensor beside the cache and back, at once."""

    def __init__(self, caches: Any, chunks: int) -> None:
        self._near = [cache.tensor for cache in caches.tensors]
        self._far = [
            torch.zeros((chunks, *near.shape[1:]), dtype=near.dtype)
            for near in self._near
        ]
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
        return HostWorker(kv_caches, self.num_chunks)
