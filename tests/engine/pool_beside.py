# SPDX-License-Identifier: Apache-2.0
"""The pool and vLLM's built-in P2P tier (NIXL): the same model, load, machine.

pool_beside.py FOLDER OUT.json --nixl FOLDER. Two engines of each, all of them
in one run, turn by turn; the pair whose turn it is not is stopped, because an
idle engine of the P2P tier takes a core.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import statistics
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import model
import pooled
from beside import nixl_environment
from engine import Engine, complete, free_port, wait_for
from pooled import CACHED, CHUNKS, EXTERNAL, PREFIX, PUBLISHED, Moved
from world import TOKEN_BYTES, World

TURNS, PULLS = 4, 3  # 12 pulls of each kind
PRIMARY_CHUNKS = 8192  # what keeps a source busy must not evict the prefixes
STEP_TOKENS = 2048  # vLLM's default
BUSY, BUSY_TOKENS = 4, 3000  # prompts at once, each of a token more
IDLE_S = 10.0
STORED = "vllm:kv_offload_store_bytes_total"
RATIO_MIN, IDLE_CPU_MAX_S = 5.0, 0.2


class Pair(World):
    """A source p and a reader d, whatever their tier."""

    hint: dict[str, Any] | None = None
    stored = (PUBLISHED, CHUNKS)


def _pair(folder: Path, nixl: Path | None) -> Pair:
    """Return a pair of engines, not started; of the P2P tier with nixl."""
    folder.mkdir(parents=True)
    model.make(folder / "model", 1)
    ports = [free_port(), free_port()]
    engines = []
    for name, port in zip("pd", ports, strict=True):
        config = pooled.pool_config(folder, PRIMARY_CHUNKS)
        if nixl:
            extra = config["kv_connector_extra_config"]
            del extra["eviction_policy"], extra["cache_policy_module_path"]
            tier = {"type": "p2p", "host": "127.0.0.1", "port": port}
            extra["secondary_tiers"] = [tier]
        made = Engine(
            name, folder, folder / "model", config, [],
            nixl_environment(nixl) if nixl else {},
        )  # fmt: skip
        made.use(max_num_batched_tokens=str(STEP_TOKENS))
        engines.append(made)
    pair = Pair(folder, *engines)
    if nixl:
        pair.hint = {"remote_host": "127.0.0.1", "remote_port": ports[0]}
        pair.stored = (STORED, CHUNKS * 32 * TOKEN_BYTES)
    return pair


@contextmanager
def _stopped(pair: Pair) -> Iterator[None]:
    """Stop all processes of a pair: for less than ZMQ's heartbeat, 10 s."""
    for engine in pair.engines:
        os.killpg(engine.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for engine in pair.engines:
            os.killpg(engine.pid, signal.SIGCONT)


@contextmanager
def _busy(pair: Pair) -> Iterator[None]:
    """Have the source compute prompts, and never run out of them."""
    end = threading.Event()

    def work(seed: int) -> None:
        for number in range(1 << 30):
            if end.is_set():
                return
            first = [3 + seed, 3 + number % 500, 3 + number // 500]
            complete(pair.p.url, first + pair.prompt(BUSY_TOKENS), max_tokens=1)

    running = "vllm:num_requests_running"
    with ThreadPoolExecutor(BUSY) as threads:
        asked = [threads.submit(work, seed) for seed in range(BUSY)]
        try:
            wait_for("a busy source", lambda: pair.p.metrics()[running] > 0)
            yield
        finally:
            end.set()
            for one in asked:
                one.result()


def _computed(pair: Pair) -> tuple[list[int], list[list[int]]]:
    """Have the source compute and keep a prompt; return it and its token."""
    prompt, moved = pair.prompt(PREFIX), Moved(pair.p)
    found = complete(pair.p.url, prompt, max_tokens=1)

    def said() -> bool:
        pair.p.complete([3], max_tokens=2)
        return moved(pair.stored[0]) >= pair.stored[1]

    wait_for("the source's chunks", said, 10, 0.02)
    return prompt, found


def _pull(
    pair: Pair, prompt: list[int], token: list[list[int]]
) -> tuple[float, int]:
    """Return the time to the reader's first token in ms, and what was cached."""
    more: dict[str, Any] = {}
    if pair.hint:
        source = {**pair.hint, "kv_request_id": f"r{time.monotonic_ns()}"}
        more = {"kv_transfer_params": {"remote_kv_source": source}}
    moved, began = Moved(pair.d), time.monotonic()
    found = complete(pair.d.url, prompt, max_tokens=1, **more)
    took = time.monotonic() - began
    assert found == token, "another token than the source's"
    return took * 1e3, moved(EXTERNAL)


def _turn(pair: Pair, found: dict[str, Any]) -> None:
    """Some pulls from an idle source, then as many from a busy one."""
    for how in ("idle", "busy"):
        prompts = [_computed(pair) for _ in range(PULLS)]
        with _busy(pair) if how == "busy" else nullcontext():
            pulls = [_pull(pair, *prompt) for prompt in prompts]
        found[f"{how}_ms"] += [took for took, _ in pulls]
        found[f"{how}_cached"] += [cached for _, cached in pulls]


def _idle_cpu(pairs: dict[str, Pair]) -> dict[str, list[float]]:
    """Return the CPU seconds of each engine while nobody asks for anything."""
    time.sleep(2)  # for a second after a step workers spin
    before = {k: [e.cpu_s() for e in p.engines] for k, p in pairs.items()}
    time.sleep(IDLE_S)
    return {
        k: [e.cpu_s() - b for e, b in zip(p.engines, before[k], strict=True)]
        for k, p in pairs.items()
    }


def measure(pairs: dict[str, Pair]) -> dict[str, Any]:
    """Return what was found of each pair."""
    found: dict[str, Any] = {
        name: {f"{how}_{what}": [] for how in ("idle", "busy")
               for what in ("ms", "cached")}
        for name in pairs
    }  # fmt: skip
    for turn in range(-1, TURNS):
        for name, pair in pairs.items():
            other = next(p for n, p in pairs.items() if n != name)
            with _stopped(other):
                if turn >= 0:
                    _turn(pair, found[name])
                else:  # they meet
                    _pull(pair, *_computed(pair))
    for name, used in _idle_cpu(pairs).items():
        found[name]["idle_cpu_s"] = used
    return found


def rows(found: dict[str, Any]) -> Iterator[list[str]]:
    """Return the table's rows."""

    def spread(values: list[float]) -> str:
        middle = statistics.median(values)
        return f"{middle:.0f} ({min(values):.0f} to {max(values):.0f})"

    yield ["", *found]
    yield ["---"] * (len(found) + 1)
    for how in ("idle", "busy"):
        title = f"source {how}: first token, median (range), ms"
        yield [title, *(spread(of[f"{how}_ms"]) for of in found.values())]
        title = f"the same: tokens cached of {PREFIX}, KiB moved, a pull"
        cells = (statistics.mean(of[f"{how}_cached"]) for of in found.values())
        yield [title, *(f"{n:.0f}, {n * TOKEN_BYTES / 1024:.0f}" for n in cells)]
    title = f"CPU of an idle engine in {IDLE_S:.0f} s, the larger, s"
    yield [title, *(f"{max(of['idle_cpu_s']):.2f}" for of in found.values())]


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--nixl", type=Path, required=True)
    options = parser.parse_args()
    shutil.rmtree(options.folder, ignore_errors=True)
    folder = options.folder.resolve()
    pairs = {
        "kvpull": _pair(folder / "kvpull", None),
        "p2p": _pair(folder / "p2p", options.nixl),
    }
    try:
        for pair in pairs.values():
            pair.start()
        found = measure(pairs)
    finally:
        for pair in pairs.values():
            pair.stop()
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(found, indent=1) + "\n")
    for row in rows(found):
        print(f"| {' | '.join(row)} |")
    busy = [statistics.median(of["busy_ms"]) for of in found.values()]
    cpu = max(found["kvpull"]["idle_cpu_s"])
    print(f"busy: {busy[1] / busy[0]:.1f} x sooner (bar: {RATIO_MIN:g}); idle: "
          f"{cpu:.2f} s (bar: {IDLE_CPU_MAX_S:g})")  # fmt: skip
    assert all(n == CACHED for n in found["kvpull"]["idle_cached"])


if __name__ == "__main__":
    main()
