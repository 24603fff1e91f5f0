# SPDX-License-Identifier: Apache-2.0
"""vLLM's API server in a guest of user-mode Linux.

A page that such a guest touches by itself is a mapping of its own in the
process that runs it, and vLLM's imports touch more than a process may have
(vm.max_map_count): all memory is locked, which maps it in large pieces. The
engine's process is forked, so that it imports nothing again.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import multiprocessing.context
import os
import runpy
from typing import Any

CURRENT_AND_FUTURE = 3


def lock() -> None:
    """Lock what is mapped and what will be; a child inherits none of it."""
    if ctypes.CDLL(None, use_errno=True).mlockall(CURRENT_AND_FUTURE):
        raise OSError(ctypes.get_errno(), "mlockall")


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

runpy.run_module("vllm.entrypoints.openai.api_server", run_name="__main__")
