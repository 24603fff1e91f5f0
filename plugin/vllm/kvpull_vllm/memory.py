# SPDX-License-Identifier: Apache-2.0
"""KV memory from the library.

vLLM allocates the KV cache by one torch.zeros(n, dtype=int8) inside the
context that the connector returns: that call is answered with a tensor over
memory that consumers on this node can map.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from kvpull_vllm.abi import ffi
from kvpull_vllm.halves import WorkerHalf, logger


class ProvidedMemory(TorchFunctionMode):
    """The context; .memory is struct kvpull_memory once it was asked for."""

    def __init__(self, worker: WorkerHalf) -> None:
        super().__init__()
        self._worker = worker
        self.memory: Any = None

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Answer the one allocation; pass everything else on."""
        kwargs = kwargs or {}
        if (
            func is torch.zeros
            and self.memory is None
            and len(args) == 1
            and isinstance(args[0], int)
            and kwargs.get("dtype") == torch.int8
            and torch.device(kwargs.get("device") or "cpu").type == "cpu"
        ):
            return self._provide(args[0])
        return func(*args, **kwargs)

    def _provide(self, byte_count: int) -> torch.Tensor:
        memory = self._worker.memory_alloc(byte_count, huge=True)
        self.memory = memory
        logger.info(
            "kvpull: %d bytes of KV cache in shared memory, %d of them on "
            "huge pages, in %.2f s",
            byte_count,
            memory.huge_bytes,
            memory.took_ns / 1e9,
        )
        return torch.frombuffer(
            ffi.buffer(memory.base, byte_count), dtype=torch.int8
        )
