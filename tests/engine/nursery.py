# SPDX-License-Identifier: Apache-2.0
"""vLLM's API servers, forked from one process that has imported all of it.

nursery.py: reads a line for each server, {"argv": [...], "env": {...},
"log": path}, and answers with its pid. To import vLLM takes most of an
engine's start. A server is a process group of its own and no session: Linux
shares cores among sessions first, and one engine then stands for a second
behind another. Its engine core and workers are forked in turn. Nothing here
may compute before it forks: OpenMP's threads are not inherited.
"""

from __future__ import annotations

import gc
import importlib
import json
import multiprocessing
import os
import signal
import sys
from typing import Any

import setproctitle

SERVER = "vllm.entrypoints.launchers.api_server.entry"
IMPORTS = (
    SERVER,
    "vllm.engine.arg_utils",
    "vllm.model_executor.models.llama",
    "vllm.v1.engine.async_llm",
    "vllm.v1.engine.core",
    "vllm.v1.executor.multiproc_executor",
    "vllm.v1.executor.uniproc_executor",
    "vllm.v1.structured_output.backend_xgrammar",
    "vllm.v1.worker.cpu_worker",
    "uvloop",
)


def fork_always() -> None:
    """Have vLLM fork its processes, whatever it asks for."""
    get = multiprocessing.get_context

    def fork(method: str | None = None) -> Any:
        return get("fork")

    multiprocessing.get_context = fork  # type: ignore[assignment]


def become(order: dict[str, Any]) -> None:
    """Be the server that was ordered; returns when it has ended."""
    os.setpgid(0, 0)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    log = os.open(order["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for made, place in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(made, place)
    os.close(log)
    os.close(nothing)
    os.environ.clear()
    os.environ.update(order["env"])
    sys.path[:0] = order["env"].get("PYTHONPATH", "").split(":")
    sys.argv = ["api_server", *order["argv"]]
    importlib.import_module(SERVER).main()


def main() -> None:
    """Import, then fork a server for each line."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them
    fork_always()
    for name in IMPORTS:
        importlib.import_module(name)
    setproctitle.getproctitle()  # finds its place before the environment moves
    gc.freeze()
    while line := sys.stdin.readline():
        pid = os.fork()
        if not pid:
            become(json.loads(line))
            return
        print(pid, flush=True)


if __name__ == "__main__":
    main()
