# SPDX-License-Identifier: Apache-2.0
"""Two P, two D, clients that choose among them at random, and engines that
are killed, stopped for longer than a lease, and started again.

No answer is wrong, in the end no block is held, and no engine is dead that
was not killed. chaos.py FOLDER [--seconds N] [--control]: by hand, for as long
as wanted; as a control with other weights at one P, which nobody compares:
then there are wrong answers.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import shutil
import signal
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import model
from engine import (
    Engine,
    completion,
    kvpull_config,
    of_group,
    post,
    tokens,
    wait_for,
)
from scenarios import Scenario
from world import HOLD, World

LEASE_S = 3.0
CLIENTS = 6
PROMPTS = 40
SECONDS = 40.0
CALM_S = 2.0  # between one end and the next
TOKENS = 4
VICTIMS = ("EngineCore", "Worker", "APIServer")
ENDINGS = ("stopped", "killed")
TURNS = 4  # each ending at each side


def engines(folder: Path, control: bool = False) -> World:
    """Return two P and two D, not started."""
    own: dict[str, Any] = {"lease_ms": int(LEASE_S * 1000)}
    if control:
        own["weights"] = "named alike"
    other = folder / "other" if control else folder / "model"
    made = [
        Engine(
            name, folder, other if name == "p2" else folder / "model",
            kvpull_config(folder, role, own),
        )
        for name, role in (
            ("p", "kv_producer"), ("d", "kv_consumer"),
            ("p2", "kv_producer"), ("d2", "kv_consumer"),
        )
    ]  # fmt: skip
    return World(folder, made[0], made[1], others=made[2:], full=True)


class Chaos:
    """Clients, and what ends engines under them."""

    def __init__(self, world: World, seconds: float) -> None:
        self.sides = [
            [e for e in world.engines if e.name.startswith(side)]
            for side in "pd"
        ]
        self.ended: Counter[str] = Counter()
        self.wrong: list[Any] = []
        self._world = world
        self._draw = random.Random(world.seed)
        self._until = time.monotonic() + seconds
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._asked = [
            (prompt, world.alone(prompt, max_tokens=TOKENS))
            for prompt in (world.prompt(20 + 7 * n) for n in range(PROMPTS))
        ]

    def _ask(self, engine: Engine, prompt: list[int], **more: Any) -> Any:
        """Return a completion, None of an engine that gives none."""
        try:
            status, answer = post(
                f"{engine.url}/v1/completions",
                completion(prompt, **more),
                20 * LEASE_S,
            )
        except (OSError, ValueError):
            return None
        return answer if status == 200 else None

    def client(self, number: int) -> None:
        """Ask a P, then a D, each chosen at random, again and again."""
        draw = random.Random(number)
        count = 0
        while not self._over.is_set():
            count += 1
            prompt, alone = draw.choice(self._asked)
            # The salt keeps D's prefix cache from answering for P.
            more = {"max_tokens": TOKENS, "cache_salt": f"{number}-{count}"}
            held = self._ask(
                draw.choice(self.sides[0]), prompt,
                **{**more, "max_tokens": 1}, kv_transfer_params=HOLD,
            )  # fmt: skip
            if held:
                more["kv_transfer_params"] = held["kv_transfer_params"]
            if held and draw.random() < 0.02:
                time.sleep(LEASE_S * 1.2)  # a ticket that comes too late
            found = None
            for d in draw.sample(self.sides[1], len(self.sides[1])):
                found = found or self._ask(d, prompt, **more)
            with self._lock:
                self._judge(found, alone, bool(held))

    def _judge(self, found: Any, alone: Any, held: bool) -> None:
        if found is None:
            self.ended["unanswered"] += 1
        elif tokens(found) != alone:
            self.wrong.append((tokens(found), alone))
        else:
            self.ended["right" if held else "right, without P"] += 1

    def trouble(self) -> None:
        """End an engine of a side and then one of the other, in turn."""
        turn = 0
        while turn < TURNS or time.monotonic() < self._until:
            time.sleep(CALM_S)
            victim = self._draw.choice(self.sides[turn % 2])
            how = ENDINGS[turn // 2 % 2]
            turn += 1
            with self._lock:
                self.ended[f"{victim.name[0]} {how}"] += 1
            if how == "stopped":
                self._stop(victim)
            else:
                self._kill(victim)
        time.sleep(2 * CALM_S)

    def _stop(self, victim: Engine) -> None:
        """Stop an engine for longer than a lease."""
        stopped = of_group(victim.pid)
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        time.sleep(self._draw.uniform(0.2, 2) * LEASE_S)
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)

    def _kill(self, victim: Engine) -> None:
        """Kill one of an engine's processes; start the engine again."""
        name = self._draw.choice(VICTIMS)
        with contextlib.suppress(LookupError):
            os.kill(victim.process(name), signal.SIGKILL)
        time.sleep(0.2)
        victim.stop(signal.SIGKILL)
        victim.start()
        victim.wait_ready()

    def run(self) -> None:
        """Run all; raise what trouble ran into."""
        with ThreadPoolExecutor(CLIENTS) as pool:
            clients = [pool.submit(self.client, n) for n in range(CLIENTS)]
            try:
                self.trouble()
            finally:
                self._over.set()
        for client in clients:
            client.result()


def chaos(world: World, seconds: float = SECONDS) -> None:
    """No wrong answer, no block held in the end, nobody dead beside."""
    made = Chaos(world, seconds)
    made.run()
    assert not made.wrong, made.wrong[:3]
    for engine in world.engines:
        assert engine.is_alive(), engine.name
        wait_for(
            f"{engine.name}'s blocks",
            lambda engine=engine: engine.cache_usage() == 0,
            4 * LEASE_S,
        )
        assert engine.counter("shim_dropped") == 0
    pulled = sum(d.counter("worker_pulls_done") for d in made.sides[1])
    # A D that was started anew counts anew.
    assert pulled > made.ended["right"] / 8, (pulled, made.ended)
    world.say(f"0 wrong, {dict(made.ended)}")
    world.say(f"{pulled:.0f} pulled since the last starts of D")


CHAOS: list[Scenario] = [chaos]


def main() -> None:
    """Run it for as long as asked for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--control", action="store_true")
    options = parser.parse_args()
    folder = options.folder.resolve()
    shutil.rmtree(folder, ignore_errors=True)
    for name, seed in (("model", 1), ("other", 2)):
        model.make(folder / name, seed)
    world = engines(folder, options.control)
    world.start()
    try:
        chaos(world, options.seconds)
        print(", ".join(world.said))
    finally:
        world.stop()


if __name__ == "__main__":
    main()
