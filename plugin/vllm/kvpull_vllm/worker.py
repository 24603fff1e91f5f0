# SPDX-License-Identifier: Apache-2.0
"""The connector's worker side: memory, steps, reports."""

from __future__ import annotations

import os
from typing import Any

import torch
from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorTransferResults,
)

from kvpull_vllm import layout, traces
from kvpull_vllm.abi import CONST, address
from kvpull_vllm.halves import Report, WorkerHalf, logger
from kvpull_vllm.memory import ProvidedMemory
from kvpull_vllm.scheduler import KVPullMetadata, KVPullWorkerMetadata
from kvpull_vllm.settings import ConfigError
from kvpull_vllm.stats import KVPullStats, Tally

_SENT, _LOADED = CONST["KVPULL_POLL_SENT"], CONST["KVPULL_POLL_LOADED"]
_FAILED = CONST["KVPULL_POLL_FAILED"]
_PULLED = (
    "kvpull: request %s: %d bytes in %.6f s: queue %.6f, connect %.6f, "
    "read %.6f, check %.6f"
)
_ENDS = {
    CONST["KVPULL_END_RELEASED"]: "released",
    CONST["KVPULL_END_EXPIRED"]: "expired",
    CONST["KVPULL_END_ABORTED"]: "aborted",
    CONST["KVPULL_END_REVOKED"]: "revoked",
    CONST["KVPULL_END_RANK"]: "on another rank",
    CONST["KVPULL_END_GIVEN_BACK"]: "given back",
}


class WorkerSide:
    """The worker side: each rank has one."""

    def __init__(
        self,
        half: WorkerHalf,
        kv_cache_config: Any,
        head_first: int,
        provided: bool,
        device: str = "cpu",
    ) -> None:
        self.half = half
        self._kv_cache_config = kv_cache_config
        self._head_first = head_first
        self._device = device
        self._context = ProvidedMemory(half, device) if provided else None
        self._awaits_mark = False
        self._names: dict[int, str] = {}
        self._failed: list[str] = []
        self._pulls = traces.Pulls(half.rank)
        self._introduced = False
        self._tally = Tally(half)
        self._pid = os.getpid()

    def memory_context(self) -> ProvidedMemory | None:
        """Return the context in which the KV cache is allocated."""
        return self._context

    def register(self, tensors: dict[str, torch.Tensor]) -> None:
        """Tell the library where the blocks lie."""
        caches = layout.caches(self._kv_cache_config, tensors)
        self.half.regions_register(
            self._region(tensors), caches, self._head_first
        )
        logger.info(
            "kvpull: %d caches of %d blocks registered",
            len(caches),
            caches[0].block_count,
        )

    def _region(self, tensors: dict[str, torch.Tensor]) -> tuple[int, int, int]:
        storages = {
            storage.data_ptr(): storage.nbytes()
            for tensor in tensors.values()
            if (storage := tensor.untyped_storage())
        }
        if self._context is None:
            if len(storages) != 1:
                raise ConfigError(
                    f"KVPullConnector: the KV cache lies in {len(storages)} "
                    "allocations, one is expected"
                )
            base, byte_count = next(iter(storages.items()))
            return CONST["KVPULL_REGION_FOREIGN"], base, byte_count
        memory = self._context.memory
        base = address(memory.base) if memory is not None else 0
        end = base + memory.bytes if memory is not None else 0
        for start, byte_count in storages.items():
            if not base <= start <= start + byte_count <= end:
                raise ConfigError(
                    "KVPullConnector: the engine did not take its KV cache "
                    "from the connector's memory; with "
                    '{"memory": "foreign"} in kv_connector_extra_config '
                    "consumers read it by process_vm_readv"
                )
        kind = "PROVIDED" if self._device == "cpu" else "DEVICE"
        return CONST[f"KVPULL_REGION_{kind}"], base, memory.bytes

    def _mark(self) -> None:
        """Let this step's loads land behind what is queued by now.

        That is the zeroing of their blocks, and each step in flight, which may
        use blocks of requests that have ended.
        """
        stream = torch.cuda.current_stream().cuda_stream
        # While a graph is captured there is none, and loads wait for the next.
        self._awaits_mark = not self.half.engine_mark(stream)

    def step(self, meta: Any) -> None:
        """Take a step, before the forward pass."""
        if not isinstance(meta, KVPullMetadata):
            return
        self._names.update(meta.names)
        self._failed += meta.failed
        if meta.places:
            self._pulls.begin(meta.places)
        if self._device != "cpu" and (meta.step or self._awaits_mark):
            self._mark()
        if meta.step:
            self._tally.is_busy = True
            code = self.half.step(meta.step)
            if code < 0:
                logger.error(
                    "kvpull: step: %s", self.half.library.error_text(code)
                )

    def start_loads(self, forward_context: Any, **kwargs: Any) -> None:
        """Start the loads, after the forward pass."""
        self.half.start_loads()

    def results(self, finished_req_ids: set[str]) -> KVConnectorTransferResults:
        """Return what ended: each request once a direction."""
        results = KVConnectorTransferResults()
        if self._failed:
            results.finished_recving.update(self._failed)
            results.failed_recving.update(self._failed)
            self._failed.clear()
        for report in self.half.poll():
            self._tally.is_busy = True
            if report.kind not in (_SENT, _LOADED, _FAILED):
                continue  # of a later version
            name = self._names.pop(report.key, None)
            if name is None:
                logger.error(
                    "kvpull: report of kind %d for key %d, which no step named",
                    report.kind,
                    report.key,
                )
                self._tally.own.count("shim_dropped", 1)
                continue
            self._sort(report, name, results)
        return results

    def _sort(
        self, report: Report, name: str, results: KVConnectorTransferResults
    ) -> None:
        if report.kind == _SENT:
            results.finished_sending.add(name)
            # For a hold that expired the library names those who claimed it.
            logger.debug(
                "kvpull: request %s: its hold ended, %s",
                name,
                _ENDS.get(report.reason, report.reason),
            )
            return
        results.finished_recving.add(name)
        if report.kind == _LOADED:
            pulled = [report.byte_count, report.seconds, *report.phases()]
            self._tally.own.data["pulls"].append(pulled)
            self._pulls.end(report, name, None)
            logger.debug(_PULLED, name, *pulled)
            return
        results.failed_recving.add(name)
        error = self.half.library.error_text(report.reason)
        self._pulls.end(report, name, error)
        logger.warning("kvpull: request %s was not loaded: %s", name, error)

    def worker_meta(self) -> KVPullWorkerMetadata | None:
        """Return what the scheduler side is told."""
        result = self.half.result_build()
        if self._introduced and not result:
            return None
        meta = KVPullWorkerMetadata()
        if result:
            self._tally.is_busy = True
            meta.results.append(result)
        if not self._introduced:
            # Again what get_handshake_metadata() said: MultiConnector forwards
            # the handshake of one child only.
            meta.infos.append(self.half.rank_info())
            self._introduced = True
        return meta

    def stats(self) -> KVPullStats | None:
        """Return what was counted since the last call, None if nothing."""
        return self._tally.take()

    def close(self) -> None:
        """Close in the process that opened."""
        if os.getpid() == self._pid:
            self.half.close()
