# SPDX-License-Identifier: Apache-2.0
"""Doubles of vLLM's engine core and its workers, made of vLLM's own classes.

What is called has vLLM's signature, and is called as vLLM's server does it: a
double that takes less than the original would hide that ours does.
"""

from __future__ import annotations

import copy
import zlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

from vllm.config import LoRAConfig, VllmConfig
from vllm.lora.lora_model import LoRAModel
from vllm.lora.request import LoRARequest
from vllm.lora.worker_manager import LRUCacheWorkerLoRAManager
from vllm.v1.core.block_pool import BlockPool
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.core.sched.interface import PauseState
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.engine.core import EngineCore, EngineCoreProc
from vllm.v1.executor.abstract import Executor
from vllm.v1.worker.worker_base import WorkerBase

Call = Callable[..., Any]


@cache
def _configuration() -> VllmConfig:
    return VllmConfig()


class Worker:
    """A worker's process: its adapters, and calls that do as told."""

    def __init__(self, rank: int = 0) -> None:
        made = mock.create_autospec(WorkerBase, instance=True)
        made.rank = rank
        manager = mock.create_autospec(LRUCacheWorkerLoRAManager, instance=True)
        manager.lora_config = LoRAConfig(lora_dtype="bfloat16")
        self.there: set[int] = set()
        self.content: dict[int, int] = {}  # of adapters, as they were loaded
        self.while_loading: Call = lambda: None
        manager.list_adapters.side_effect = lambda: set(self.there)

        def load(lora_request: LoRARequest) -> Any:
            tensors = Path(lora_request.lora_path) / "adapter_model.safetensors"
            self.content[lora_request.lora_int_id] = zlib.crc32(
                tensors.read_bytes()
            )
            self.while_loading()
            return mock.create_autospec(LoRAModel, instance=True)

        manager._load_adapter.side_effect = load
        made.model_runner = SimpleNamespace(lora_manager=manager)
        self.made, self.manager = made, manager

    def step(self, request: LoRARequest) -> None:
        """Do as vLLM's manager with an adapter that a step needs."""
        if request.lora_int_id not in self.there or request.load_inplace:
            self.manager._load_adapter(request)
        self.there.add(request.lora_int_id)

    def evict(self, number: int) -> None:
        """Lose an adapter, as the least recently used one."""
        self.there.discard(number)


class EngineDouble:
    """vLLM's engine core without a model, and its executor."""

    collective_rpc = EngineCore.collective_rpc
    set_weight_version = EngineCore.set_weight_version
    remove_lora = EngineCore.remove_lora

    def __init__(self, ranks: int = 1, adapters: bool = False) -> None:
        self._weight_version = "default"
        self.workers = [Worker(rank) for rank in range(ranks)]
        self.called: list[Any] = []
        self.in_call: Call = lambda: None
        self.model_executor = mock.create_autospec(Executor, instance=True)
        self.model_executor.collective_rpc.side_effect = self._call_workers
        self.vllm_config = copy.copy(_configuration())
        self.vllm_config.lora_config = LoRAConfig() if adapters else None

    def _call_workers(
        self,
        method: Any,
        timeout: float | None = None,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
        **_more: Any,
    ) -> list[Any]:
        if getattr(method, "__module__", "").startswith("kvpull_vllm"):
            return [method(worker.made, *args) for worker in self.workers]
        self.called.append(method)
        self.in_call()
        return [None for _ in self.workers]

    def utility(self, name: str, *args: Any) -> Any:
        """Be called by a client, as vLLM's server calls its core."""
        method = getattr(self, name)
        return method(*EngineCoreProc._convert_msgspec_args(method, args))

    def rpc(self, method: Any) -> Any:
        """Be asked to call the workers: POST /collective_rpc."""
        return self.utility("collective_rpc", method, None, (), {})

    def name_weights(self, version: str) -> None:
        """Be told a version: POST /update_weight_version."""
        self.utility("set_weight_version", version)


def scheduler_double(blocks: int = 8) -> Any:
    """Return what of vLLM's scheduler its prefix cache is looked at by."""
    manager = mock.create_autospec(KVCacheManager, instance=True)
    manager.block_pool = BlockPool(
        blocks, enable_caching=True, hash_block_size=32
    )
    made = mock.create_autospec(Scheduler, instance=True)
    made.kv_cache_manager, made.requests = manager, {}
    made.pause_state = PauseState.UNPAUSED
    return made
