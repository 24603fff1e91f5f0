# SPDX-License-Identifier: Apache-2.0
"""Pulls of one block where every core is busy, kvpull's and NIXL's in turns.

busy.py FOLDER OUT.json --nixl FOLDER, where ib_pull is in the current one. A
loop a core runs meanwhile. Each side is a process of its own and reads 4 KiB at
a time, the next when the last is there: kvpull by ib_pull in its default mode,
NIXL (UCX) by its own calls from transfer() until check_xfer_state() says DONE.
What comes before is in neither: admission and claim, descriptors and handles.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import mmap
import os
import pickle
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from beside import nixl_environment
from engine import wait_for

TURNS, PULLS, WARM = 5, 3000, 200
BYTES, BLOCKS = 4096, 256
RATIO_MAX = 0.5
SHAPE = ("--size", str(BYTES), "--count", "1", "--layers", "1",
         "--blocks", str(BLOCKS), "--thread")  # fmt: skip
LIMIT_S = 60.0


@contextmanager
def running(*command: str, **more: Any) -> Iterator[subprocess.Popen[str]]:
    """Run a process until the block is left."""
    started = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, text=True, **more
    )
    try:
        yield started
    finally:
        started.kill()
        started.wait()


def kvpull_p99_us(folder: Path) -> float:
    """Return it for one turn of ib_pull."""
    folder.mkdir(mode=0o700)
    with running("./ib_pull", "--dir", str(folder), *SHAPE,
                 stderr=subprocess.DEVNULL):  # fmt: skip
        wait_for("ib_pull", (folder / "ib_pull.control").exists)
        said = subprocess.run(
            ["./ib_pull", *SHAPE, "--requests", str(PULLS), "--one-by-one",
             "--json", str(folder)],
            stdout=subprocess.PIPE, timeout=LIMIT_S, check=True,
        )  # fmt: skip
    return float(json.loads(said.stdout)["latency_us_p99"])


def _agent(name: str) -> tuple[Any, mmap.mmap, int]:
    from nixl._api import nixl_agent, nixl_agent_config

    memory = mmap.mmap(-1, BLOCKS * BYTES)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    agent = nixl_agent(name, nixl_agent_config(backends=["UCX"]))
    agent.register_memory([(address, len(memory), 0, "")], "DRAM")
    return agent, memory, address


def nixl_serve(folder: Path) -> None:
    """Be NIXL's source until killed."""
    agent, memory, address = _agent("source")
    for block in range(BLOCKS):
        memory[block * BYTES : (block + 1) * BYTES] = bytes([block]) * BYTES
    new = folder / "new"
    new.write_bytes(pickle.dumps((agent.get_agent_metadata(), address)))
    new.rename(folder / "serves")
    time.sleep(2 * LIMIT_S)


def nixl_read(folder: Path) -> None:
    """Be NIXL's reader, and print its p99 in us."""
    agent, memory, address = _agent("reader")
    wait_for("NIXL's source", (folder / "serves").exists)
    metadata, remote = pickle.loads((folder / "serves").read_bytes())  # noqa: S301
    name = agent.add_remote_agent(metadata)
    name = name.decode() if isinstance(name, bytes) else name
    took_us = []
    for at in range(WARM + PULLS):
        block = at % BLOCKS * BYTES
        handle = agent.initialize_xfer(
            "READ",
            agent.get_xfer_descs([(address + block, BYTES, 0)], "DRAM"),
            agent.get_xfer_descs([(remote + block, BYTES, 0)], "DRAM"),
            name,
            b"",
        )
        began = time.perf_counter_ns()
        state = agent.transfer(handle)
        while state != "DONE":
            assert state != "ERR"
            state = agent.check_xfer_state(handle)
        took_us.append((time.perf_counter_ns() - began) / 1e3)
        agent.release_xfer_handle(handle)
        assert memory[block] == at % BLOCKS
    print(sorted(took_us[WARM:])[int(PULLS * 0.99)], flush=True)
    os._exit(0)


def nixl_p99_us(folder: Path, nixl: Path) -> float:
    """Return it for one turn of NIXL."""
    folder.mkdir()
    more = {"env": {**os.environ, **nixl_environment(nixl)}}
    me = (sys.executable, __file__, str(folder), "-")
    with running(*me, "--side", "serve", stderr=subprocess.DEVNULL, **more):
        said = subprocess.run(
            [*me, "--side", "read"], stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, timeout=LIMIT_S, check=True, **more,
        )  # fmt: skip
    return float(said.stdout.split()[-1])


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--nixl", type=Path)
    parser.add_argument("--side", choices=("serve", "read"))
    options = parser.parse_args()
    if options.side:
        {"serve": nixl_serve, "read": nixl_read}[options.side](options.folder)
        return
    shutil.rmtree(options.folder, ignore_errors=True)
    options.folder.mkdir(parents=True)
    found: dict[str, list[float]] = {"kvpull": [], "nixl": []}
    loops = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"])
        for _ in range(os.cpu_count() or 1)
    ]
    try:
        for turn in range(TURNS):
            own = options.folder / f"kvpull{turn}"
            other = options.folder / f"nixl{turn}"
            found["kvpull"].append(kvpull_p99_us(own))
            found["nixl"].append(nixl_p99_us(other, options.nixl))
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()
    options.out.write_text(json.dumps(found, indent=1) + "\n")
    medians = [statistics.median(of) for of in found.values()]
    for name, of in found.items():
        print(f"busy cores, p99 of 4 KiB, {name}: {statistics.median(of):.1f} "
              f"us ({min(of):.1f} to {max(of):.1f})")  # fmt: skip
    print(f"bar engine.busy_p99_ratio {medians[0] / medians[1]:.3f} "
          f"(bar: {RATIO_MAX:g})")  # fmt: skip


if __name__ == "__main__":
    main()
