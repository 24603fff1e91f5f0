# SPDX-License-Identifier: Apache-2.0
"""KVPullConnector and NixlConnector on the same model, load and machine.

bench.py FOLDER OUT.json [--nixl FOLDER]: without the folder of nixl's wheel
KVPullConnector alone. Outcomes are judged by what any user sees: answers, and
the share of P's blocks in use.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import threading
import time
from pathlib import Path
from typing import Any

import model
from engine import Engine, free_port, kvpull_config, post, tokens, wait_for
from scenarios import SIBLINGS, TOO_LONG
from world import HOLD, World

LEASE_S = 8
BLOCKS = 1024
COUNT = 30
TRANSFER = {
    "kvpull": ("vllm:kvpull_pull_seconds", "vllm:kvpull_pull_bytes"),
    "nixl": ("vllm:nixl_xfer_time_seconds", "vllm:nixl_bytes_transferred"),
}

EXPIRED = (
    "vllm:kvpull_worker_holds_expired_total",
    "vllm:nixl_num_kv_expired_reqs_total",
)


def make(name: str, folder: Path, nixl: Path | None) -> World:
    """Return a pair of engines with a connector, not started."""
    made = []
    for engine, role in (("p", "kv_producer"), ("d", "kv_consumer")):
        config = kvpull_config(folder, role, {"lease_ms": LEASE_S * 1000})
        environment: dict[str, str] = {}
        if name == "nixl":
            config = {
                "kv_connector": "NixlConnector",
                "kv_role": "kv_both",
                "kv_buffer_device": "cpu",
                "kv_load_failure_policy": "recompute",
                "kv_connector_extra_config": {"kv_lease_duration": LEASE_S},
            }
            environment = {
                "VLLM_NIXL_SIDE_CHANNEL_HOST": "127.0.0.1",
                "VLLM_NIXL_SIDE_CHANNEL_PORT": str(free_port()),
                "PYTHONPATH": str(nixl),
            }
        made.append(
            Engine(engine, folder, folder / "model", config, [], environment)
        )
    return World(folder, *made)


class Held:
    """Integrates the share of P's blocks in use, in block-seconds."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._stop = threading.Event()
        self.block_seconds = 0.0
        self._thread = threading.Thread(target=self._sample)
        self._thread.start()

    def _sample(self) -> None:
        last = time.monotonic()
        while not self._stop.wait(0.02):
            usage = self._engine.cache_usage()
            now = time.monotonic()
            self.block_seconds += usage * BLOCKS * (now - last)
            last = now

    def stop(self) -> float:
        """Stop; return the sum."""
        self._stop.set()
        self._thread.join()
        return self.block_seconds


def prefill(world: World, prompt: list[int], **more: Any) -> dict[str, Any]:
    """Return P's kv_transfer_params, whatever the connector."""
    status, answer = world.p.complete(
        prompt, **{"max_tokens": 1, "kv_transfer_params": HOLD, **more}
    )
    assert status == 200, answer
    return answer["kv_transfer_params"]


def load(world: World, name: str, length: int) -> dict[str, Any]:
    """One request after the other."""
    first: list[float] = []
    before = world.d.metrics()
    held = Held(world.p)
    for _ in range(COUNT):
        prompt = world.prompt(length)
        params = prefill(world, prompt)
        ready = time.monotonic()
        status, answer = world.d.complete(
            prompt, max_tokens=1, kv_transfer_params=params
        )
        assert status == 200, answer
        first.append(time.monotonic() - ready)
    wait_for("P to drain", lambda: world.p.cache_usage() == 0, 3 * LEASE_S)
    after = world.d.metrics()
    seconds, size = TRANSFER[name]

    def moved(metric: str) -> float:
        return after.get(metric, 0.0) - before.get(metric, 0.0)

    count = moved(f"{seconds}_count")
    return {
        "prompt_tokens": length,
        "requests": COUNT,
        "transfers": count,
        "bytes": moved(f"{size}_sum"),
        "transfer_ms_mean": moved(f"{seconds}_sum") / max(count, 1) * 1e3,
        "first_token_at_d_ms_median": statistics.median(first) * 1e3,
        "p_block_seconds": held.stop(),
    }


def drained(world: World) -> str:
    """Say when P's blocks were free, and whether a lease ended them."""

    def expired() -> float:
        found = world.p.metrics()
        return sum(found.get(name, 0.0) for name in EXPIRED)

    before, began = expired(), time.monotonic()
    wait_for("P to drain", lambda: world.p.cache_usage() == 0, 3 * LEASE_S)
    took = time.monotonic() - began
    word = "by its lease" if expired() > before else "released"
    return f"free after {took:.2f} s, {word}"


def rejected(world: World) -> str:
    """D refuses a request that P holds."""
    params = prefill(world, world.prompt(100))
    body = {"model": "unknown", "prompt": [5], "kv_transfer_params": params}
    status, _ = post(f"{world.d.url}/v1/completions", body)
    assert status == 404, status
    return drained(world)


def siblings_at_p(world: World) -> str:
    """n = 8 at P, one answer pulled by D."""
    prompt = world.prompt(100)
    params = prefill(world, prompt, **SIBLINGS)
    world.d.complete(prompt, max_tokens=1, kv_transfer_params=params)
    return drained(world)


def siblings_at_d(world: World) -> str:
    """n = 8 at D from one ticket."""
    prompt = world.prompt(100)
    alone = world.alone(prompt)[0]
    params = prefill(world, prompt)
    status, answer = world.d.complete(
        prompt, kv_transfer_params=params, **SIBLINGS
    )
    right = sum(found == alone for found in tokens(answer))
    return f"HTTP {status}, {right} of 8 right, {drained(world)}"


def late_reader(world: World) -> str:
    """The lease ended and P used the blocks again."""
    verdicts = {"right": 0, "wrong": 0, "error": 0}
    prompts = [world.prompt(300) for _ in range(5)]
    alone = [world.alone(prompt, max_tokens=8) for prompt in prompts]
    late = [prefill(world, prompt) for prompt in prompts]
    wait_for("the leases", lambda: world.p.cache_usage() == 0, 3 * LEASE_S)
    for _ in range(10):
        world.p.complete(world.prompt(3500), max_tokens=1)
    for prompt, params, answer in zip(prompts, late, alone, strict=True):
        status, found = world.d.complete(
            prompt, max_tokens=8, kv_transfer_params=params
        )
        if status != 200:
            verdicts["error"] += 1
        else:
            verdicts["right" if tokens(found) == answer else "wrong"] += 1
    return ", ".join(f"{count} {word}" for word, count in verdicts.items())


def incomplete(world: World) -> str:
    """A refused request with nothing but do_remote_prefill."""
    world.d.complete(
        world.prompt(TOO_LONG), kv_transfer_params={"do_remote_prefill": True}
    )
    time.sleep(3)
    return "D lives" if world.d.is_alive() else "D is dead"


def measure(name: str, folder: Path, nixl: Path | None) -> dict[str, Any]:
    """Return everything of one connector."""
    folder.mkdir(parents=True)
    model.make(folder / "model", 1)
    world = make(name, folder, nixl)
    outcomes: dict[str, str] = {}
    try:
        world.start()
        outcomes["rejected at first contact"] = rejected(world)
        loads = [load(world, name, length) for length in (60, 2048)]
        claims = (
            rejected,
            siblings_at_p,
            siblings_at_d,
            late_reader,
            incomplete,
        )
        for claim in claims:
            try:
                outcomes[claim.__name__] = claim(world)
            except Exception as error:  # an outcome, too
                outcomes[claim.__name__] = f"{type(error).__name__}: {error}"
    finally:
        world.stop()
    return {"outcomes": outcomes, "loads": loads}


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--nixl", type=Path)
    options = parser.parse_args()
    shutil.rmtree(options.folder, ignore_errors=True)
    names = ["nixl"] if options.nixl else []
    found = {
        name: measure(name, options.folder.resolve() / name, options.nixl)
        for name in [*names, "kvpull"]
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(found, indent=1) + "\n")
    for name, all_of in found.items():
        for what, outcome in all_of["outcomes"].items():
            print(f"{name:7} {what}: {outcome}")
        for line in all_of["loads"]:
            print(f"{name:7} {json.dumps(line)}")


if __name__ == "__main__":
    main()
