# SPDX-License-Identifier: Apache-2.0
"""KVPullConnector and NixlConnector on the same model, load and machine.

bench.py FOLDER OUT.json [--nixl FOLDER]: without the folder of nixl's wheel
KVPullConnector alone. Outcomes are judged by what any user sees: answers, and
the share of P's blocks in use.
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
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import model
from beside import nixl_environment
from engine import Engine, is_running, kvpull_config, tokens, wait_for
from rejects import HOWS, TOO_LONG, paced, refuse
from world import HOLD, SIBLINGS, SLOTS, World, busy

LEASE_S = 8
BLOCKS = 1024
COUNT = 20
LENGTHS = (128, 1024, 2000)
AT_ONCE, ROUNDS = 16, 5
PAUSE_S = 3  # for a second after a step workers spin
TRANSFER = {
    "kvpull": ("vllm:kvpull_pull_seconds", "vllm:kvpull_pull_bytes"),
    "nixl": ("vllm:nixl_xfer_time_seconds", "vllm:nixl_bytes_transferred"),
}

NUMBERS = {
    "first_token_at_d_ms_median": "first token at D, median, ms",
    "transfer_ms_mean": "transfer, mean, ms",
    "p_block_seconds": "P's block-seconds held",
}
EXPIRED = (
    "vllm:kvpull_worker_holds_expired_total",
    "vllm:nixl_num_kv_expired_reqs_total",
)


class Bench(World):
    """A pair of engines, whatever their connector."""

    def transfers(self) -> float:
        """Return how many transfers D has made."""
        name = f"{TRANSFER[self.connector][0]}_count"
        return self.d.metrics().get(name, 0.0)


def make(name: str, folder: Path, nixl: Path | None) -> Bench:
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
            assert nixl
            environment = nixl_environment(nixl)
        options = ["--max-num-seqs", str(SLOTS)] if engine == "d" else []
        made.append(
            Engine(
                engine, folder, folder / "model", config, options, environment
            )
        )
    world = Bench(folder, *made)
    world.connector = name
    return world


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


def load(world: Bench, length: int) -> dict[str, Any]:
    """Send requests one after the other."""
    first: list[float] = []
    before = world.d.metrics()
    held = Held(world.p)
    for _ in range(COUNT):
        prompt = world.prompt(length)
        params = world.prefill(prompt)
        ready = time.monotonic()
        status, answer = world.d.complete(
            prompt, max_tokens=1, kv_transfer_params=params
        )
        assert status == 200, answer
        first.append(time.monotonic() - ready)
    wait_for("P to drain", lambda: world.p.cache_usage() == 0, 3 * LEASE_S)
    after = world.d.metrics()
    seconds, size = TRANSFER[world.connector]

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


def at_once(world: Bench) -> str:
    """So many tickets come to D at once, each for one token."""
    took = []
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for _ in range(ROUNDS):
            prompts = [world.prompt(1024) for _ in range(AT_ONCE)]
            params = [world.prefill(prompt) for prompt in prompts]
            began = time.monotonic()
            asked = [
                pool.submit(
                    world.d.complete, prompt, max_tokens=1,
                    kv_transfer_params=of,
                )
                for prompt, of in zip(prompts, params, strict=True)
            ]  # fmt: skip
            assert all(one.result()[0] == 200 for one in asked)
            took.append(time.monotonic() - began)
            drained(world)
    return f"all answered after {statistics.median(took):.2f} s, median"


def expired(world: Bench) -> float:
    """Return how many holds of P ended by their lease."""
    found = world.p.metrics()
    return sum(found.get(name, 0.0) for name in EXPIRED)


def drained(world: Bench) -> str:
    """Say when P's blocks were free, and whether a lease ended them."""
    before, began = expired(world), time.monotonic()
    wait_for("P to drain", lambda: world.p.cache_usage() == 0, 3 * LEASE_S)
    took = time.monotonic() - began
    word = "by its lease" if expired(world) > before else "released"
    return f"free after {took:.2f} s, {word}"


def refused(world: Bench) -> str:
    """D refuses a request that P holds; both are idle."""
    time.sleep(PAUSE_S)
    params = world.prefill(world.prompt(100))
    refuse(world, world.d, HOWS[2], params)
    return drained(world)


def refused_while_busy(world: Bench) -> str:
    """The same while both compute for others: the slowest of ten tries."""
    took = []
    with paced(world, world.p, 1), paced(world, world.d, 1):
        for _ in range(10):
            # Far less than the 63 blocks of the prompt.
            own = world.p.cache_usage() + 0.02
            params = world.prefill(world.prompt(2000))
            refuse(world, world.d, HOWS[2], params)
            took.append(
                wait_for(
                    "P's blocks",
                    lambda own=own: world.p.cache_usage() < own,
                    3 * LEASE_S,
                    0.005,
                )
            )
    drained(world)
    return f"free after {max(took):.2f} s at most"


def siblings_at_p(world: Bench) -> str:
    """n = 8 at P, one answer pulled by D."""
    prompt = world.prompt(100)
    params = world.prefill(prompt, **SIBLINGS)
    world.d.complete(prompt, max_tokens=1, kv_transfer_params=params)
    return drained(world)


def siblings_at_d(world: Bench) -> str:
    """n = 8 at D from one ticket."""
    prompt = world.prompt(100)
    alone = world.alone(prompt)[0]
    params = world.prefill(prompt)
    before = world.transfers()
    status, answer = world.d.complete(
        prompt, kv_transfer_params=params, **SIBLINGS
    )
    right = sum(found == alone for found in tokens(answer))
    free = drained(world)
    pulls = world.transfers() - before
    return f"HTTP {status}, {right} of 8 right, {pulls:.0f} transfers, {free}"


def clients_leave(world: Bench) -> str:
    """100 clients disconnect: at P at once or with the answer unread, and at D.

    So as many prefills are finished, however long a connector's take.
    """
    before = expired(world)

    def leave(number: int) -> None:
        if number % 2 == 0:
            world.leave(number)
            return
        body = {"max_tokens": 1, "kv_transfer_params": HOLD}
        if number % 4 == 1:
            world.p.leave(world.prompt(60), 0, **body)
        else:
            world.p.leave_answered(world.prompt(60), **body)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(leave, range(100)))
    free = drained(world)
    count = expired(world) - before
    alive = world.p.is_alive() and world.d.is_alive()
    said = "live" if alive else "died"
    return f"engines {said}, {count:.0f} leases expired, {free}"


def busy_for_three_leases(world: Bench) -> str:
    """D queues a request behind others for three leases."""
    prompt = world.prompt(100)
    alone = world.alone(prompt)
    before = expired(world)
    params = world.prefill(prompt)
    with ThreadPoolExecutor(1) as pool:
        with busy(world, SLOTS):
            queued = pool.submit(
                world.d.complete, prompt, kv_transfer_params=params
            )
            time.sleep(3 * LEASE_S)
        status, answer = queued.result()
    right = status == 200 and tokens(answer) == alone
    count = expired(world) - before
    drained(world)
    return f"{'right' if right else 'wrong'}, {count:.0f} leases expired"


def late_reader(world: Bench) -> str:
    """The lease ended and P used the blocks again."""
    verdicts = {"right": 0, "wrong": 0, "error": 0}
    prompts = [world.prompt(300) for _ in range(5)]
    alone = [world.alone(prompt, max_tokens=8) for prompt in prompts]
    late = [world.prefill(prompt) for prompt in prompts]
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


def incomplete(world: Bench) -> str:
    """A refused request with nothing but do_remote_prefill."""
    world.d.complete(
        world.prompt(TOO_LONG), kv_transfer_params={"do_remote_prefill": True}
    )
    time.sleep(3)
    return "D lives" if world.d.is_alive() else "D is dead"


def consumer_killed(world: Bench) -> str:
    """Kill -9 of D's worker while requests of P's wait there."""
    with ThreadPoolExecutor(SLOTS) as pool, busy(world, SLOTS):
        for _ in range(SLOTS):
            prompt = world.prompt(200)
            params = world.prefill(prompt)
            pool.submit(world.d.complete, prompt, kv_transfer_params=params)
        time.sleep(2)
        worker = world.d.process("Worker")
        os.kill(worker, signal.SIGKILL)
        # The kernel first takes its memory down, which may take time.
        took = wait_for("its end", lambda: not is_running(worker), 30, 0.002)
        free = drained(world)
        world.d.stop(signal.SIGKILL)
    return f"gone after {took:.2f} s, then {free}"


def producer_restarted(world: Bench) -> str:
    """Kill -9 of P, which comes back; D goes on."""
    world.p.stop(signal.SIGKILL)
    world.p.start()
    world.p.wait_ready()
    prompt = world.prompt(100)
    alone = world.alone(prompt)
    before = world.transfers()
    params = world.prefill(prompt)
    status, answer = world.d.complete(prompt, kv_transfer_params=params)
    right = status == 200 and tokens(answer) == alone
    count = world.transfers() - before
    return f"{'right' if right else 'wrong'}, {count:.0f} transfers"


OUTCOMES: dict[str, Callable[[Bench], str]] = {
    "D refuses a request at first contact": refused,
    "D refuses a request later": refused,
    f"{AT_ONCE} tickets of 1,024 tokens at once": at_once,
    "D refuses a request while both compute": refused_while_busy,
    "n = 8 at P, one answer pulled": siblings_at_p,
    "n = 8 at D": siblings_at_d,
    "100 clients leave, 25 of them P with its answer unread": clients_leave,
    "D is busy for three leases": busy_for_three_leases,
    "the lease ended, P used the blocks again, 5 tries": late_reader,
    "a refused request with do_remote_prefill alone": incomplete,
    "P is killed and comes back": producer_restarted,
    "D's worker is killed while it has claims": consumer_killed,
}
LOAD_AFTER = 1  # what comes before is first contact


def judged(world: Bench, claim: Callable[[Bench], str]) -> str:
    """Return what came of it; start D again if it died of it."""
    try:
        said = claim(world)
    except Exception as error:  # an outcome, too
        said = f"{type(error).__name__}: {error}"
    if claim is not consumer_killed:
        world.revive()
    return said


def measure(name: str, folder: Path, nixl: Path | None) -> dict[str, Any]:
    """Return everything of one connector."""
    folder.mkdir(parents=True)
    model.make(folder / "model", 1)
    world = make(name, folder, nixl)
    outcomes: dict[str, str] = {}
    loads: list[dict[str, Any]] = []
    try:
        world.start()
        for what, claim in OUTCOMES.items():
            if len(outcomes) == LOAD_AFTER:
                loads = [load(world, length) for length in LENGTHS]
            outcomes[what] = judged(world, claim)
            print(f"  {name} {what}: {outcomes[what]}", flush=True)
    finally:
        world.stop()
    return {"outcomes": outcomes, "loads": loads}


def rows(found: dict[str, Any]) -> Iterator[list[str]]:
    """Return the table's rows: what, then one cell a connector."""
    yield ["scenario", *found]
    yield ["---"] * (len(found) + 1)
    for what in OUTCOMES:
        yield [what, *(all_of["outcomes"][what] for all_of in found.values())]
    for number, of in enumerate(next(iter(found.values()))["loads"]):
        at = [all_of["loads"][number] for all_of in found.values()]
        title = f"{of['prompt_tokens']} tokens, {COUNT} requests"
        for key, text in NUMBERS.items():
            yield [f"{title}: {text}", *(f"{each[key]:.1f}" for each in at)]


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
    for row in rows(found):
        print(f"| {' | '.join(row)} |")


if __name__ == "__main__":
    main()
