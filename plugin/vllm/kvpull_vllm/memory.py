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

from kvpull_vllm.abi import address, ffi
from kvpull_vllm.halves import WorkerHalf, logger


class _Place:
    """Bytes of a device, as torch takes them from other libraries."""

    def __init__(self, base: int, byte_count: int) -> None:
        self.__cuda_array_interface__ = {
            "version": 3,
            "shape": (byte_count,),
            "typestr": "|i1",
            "data": (base, False),
        }


class ProvidedMemory(TorchFunctionMode):
    """The context; .memory is struct kvpull_memory once it was asked for.

    device: the type of the device that the KV cache is asked for on.
    """

    def __init__(self, worker: WorkerHalf, device: str = "cpu") -> None:
        super().__init__()
        self._worker = worker
        self._device = device
        self._place: _Place | None = None  # torch is said to keep it, too
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
            and torch.device(kwargs.get("device") or "cpu").type == self._device
        ):
            if self._device == "cpu":
                return self._provide(args[0])
            return self._provide_there(args[0], kwargs["device"])
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

    def _provide_there(self, byte_count: int, device: Any) -> torch.Tensor:
        # Memory that torch caches for later tensors is missing here.
        torch.cuda.empty_cache()
        self.memory = self._worker.memory_alloc(byte_count, False, device=True)
        logger.info(
            "kvpull: %d bytes of KV cache in memory of %s that consumers on "
            "this node can map, in %.2f s",
            byte_count,
            device,
            self.memory.took_ns / 1e9,
        )
        return self.tensor_at(address(self.memory.base), byte_count, device)

    def tensor_at(
        self, base: int, byte_count: int, device: Any
    ) -> torch.Tensor:
        """Return the tensor over memory of a device."""
        self._place = _Place(base, byte_count)
        return torch.as_tensor(self._place, device=device)
