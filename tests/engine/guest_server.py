# SPDX-License-Identifier: Apache-2.0
"""vLLM's API server in a guest of user-mode Linux.

A page that such a guest touches by itself is a mapping of its own in the
process that runs it, and vLLM's imports touch more than a process may have
(vm.max_map_count): all memory is locked, which maps it in large pieces. The
engine's process is forked, so that it imports nothing again. With MEMLOCK in
its environment the worker may lock no more bytes than that for its devices.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import multiprocessing.context
import os
import resource
import runpy
from typing import Any

CURRENT_AND_FUTURE = 3
CAPABILITIES_3, IPC_LOCK = 0x20080522, 1 << 14


def lock() -> None:
    """Lock what is mapped and what will be; a child inherits none of it."""
    if ctypes.CDLL(None, use_errno=True).mlockall(CURRENT_AND_FUTURE):
        raise OSError(ctypes.get_errno(), "mlockall")


def limit(most: int) -> None:
    """Be as one who may lock so many bytes: who is root may lock all."""
    libc = ctypes.CDLL(None, use_errno=True)
    head = (ctypes.c_uint32 * 2)(CAPABILITIES_3, 0)
    sets = (ctypes.c_uint32 * 6)()  # effective, permitted, inheritable, twice
    failed = libc.munlockall() or libc.capget(head, sets)
    sets[0] &= ~IPC_LOCK
    sets[1] &= ~IPC_LOCK
    if failed or libc.capset(head, sets):
        raise OSError(ctypes.get_errno(), "capset")
    resource.setrlimit(resource.RLIMIT_MEMLOCK, (most, most))


def fork(method: str | None = None) -> Any:
    """Return what starts processes by fork, whatever was asked for."""
    return _get_context("fork")


lock()
os.register_at_fork(after_in_child=lock)
_get_context = multiprocessing.get_context
multiprocessing.get_context = fork  # type: ignore[assignment]

from vllm.utils import cpu_resource_utils  # noqa: E402

# A guest's /proc says nothing of the nodes that memory may come from.
cpu_resource_utils.get_memory_affinity = lambda pid=0: [0]

if "MEMLOCK" in os.environ:
    from kvpull_vllm import connector

    class Limited(connector.WorkerHalf):
        """A worker's half in a process of few rights."""

        def __init__(self, *args: Any) -> None:
            limit(int(os.environ["MEMLOCK"]))
            super().__init__(*args)

    connector.WorkerHalf = Limited

runpy.run_module("vllm.entrypoints.openai.api_server", run_name="__main__")
