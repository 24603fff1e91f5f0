# SPDX-License-Identifier: Apache-2.0
"""Engines that die: kill -9, and what the other side makes of it."""

from __future__ import annotations

import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any

from engine import Engine, complete, is_running, kvpull_config, wait_for
from rejects import HOWS, first_contact_while_busy
from world import LEASE_S, SLOTS, Delta, World, busy

CLIENTS = 2
PULLS = 10
# vLLM's engine core may outlive its API server; who watches it ends it then.
ORPHAN_S = 5.0
KILLED_S = 1.0  # from the worker's end to that of P's holds


class Load:
    """Clients that ask the router again and again, and know the answers."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._asked = [
            (prompt, world.alone(prompt, max_tokens=8))
            for prompt in (world.prompt(40 + 30 * i) for i in range(6))
        ]
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(number,))
            for number in range(CLIENTS)
        ]
        self.right = 0
        self.wrong: list[Any] = []
        self.failed: list[float] = []  # when

    def __enter__(self) -> Load:
        """Begin."""
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End."""
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _run(self, number: int) -> None:
        count = 0
        while not self._stop.wait(0.05):
            count += 1
            prompt, answer = self._asked[count % len(self._asked)]
            # The salt keeps D's prefix cache from answering for P.
            self._ask(prompt, answer, f"{number}-{count}")

    def _ask(self, prompt: list[int], expected: Any, salt: str) -> None:
        try:
            found = complete(
                self._world.router_url, prompt, max_tokens=8, cache_salt=salt
            )
        except (AssertionError, OSError, KeyError):
            found = None
        if found is None:
            self.failed.append(time.monotonic())
            time.sleep(0.5)
        elif found == expected:
            self.right += 1
        else:
            self.wrong.append((prompt, expected, found))

    def wait_pulls(self, what: str) -> None:
        """Wait until D, as it is now, has pulled some more."""
        at_d = Delta(self._world.d)
        wait_for(what, lambda: at_d("worker_pulls_done") >= PULLS, 12 * LEASE_S)

    def check(self, down: tuple[float, float] = (0, 0)) -> None:
        """Assert that no answer was wrong, and none failed but while down."""
        assert not self.wrong, self.wrong[:2]
        others = [at for at in self.failed if not down[0] <= at <= down[1]]
        assert not others, f"{len(others)} failed, {down}"
        self._world.say(f"{self.right} right, {len(self.failed)} refused")


def _restart(world: World, engine: Engine) -> tuple[float, float]:
    """Kill -9 and start again; return when it was down."""
    began = time.monotonic()
    engine.stop(signal.SIGKILL)
    time.sleep(1)
    engine.start()
    engine.wait_ready()
    world.say(f"down for {time.monotonic() - began:.0f} s")
    return began, time.monotonic()


def p_restarts_under_load(world: World) -> None:
    """D computes by itself meanwhile, then pulls from the new P."""
    pid = world.d.pid
    with Load(world) as load:
        load.wait_pulls("pulls before")
        _restart(world, world.p)
        load.wait_pulls("pulls from the new P")
    load.check()
    world.settled(2 * LEASE_S)
    assert world.d.pid == pid and world.d.is_alive()


def d_restarts_under_load(world: World) -> None:
    """Requests fail while there is no D, and go on with the new one."""
    pid, at_p = world.p.pid, Delta(world.p)
    with Load(world) as load:
        load.wait_pulls("pulls before")
        down = _restart(world, world.d)
        load.wait_pulls("pulls of the new D")
    load.check((down[0] - 1, down[1] + 1))
    # Tickets of which no D was told end by their lease.
    world.settled(2 * LEASE_S)
    assert world.p.pid == pid and world.p.is_alive()
    assert at_p("worker_holds_released") >= 2 * PULLS
    wait_for("P's blocks", lambda: world.p.cache_usage() == 0)


def _other_kv_is_refused(
    world: World, prompt: list[int], alone: Any, what: str
) -> None:
    """D computes, and the lines of both ends name what differs, and how."""
    line = rf"{what} is (\S.*) (?:here|there) and (?:\S.*) (?:here|there)"
    before = [len(engine.log_words(line)) for engine in (world.p, world.d)]
    assert world.decode(prompt, world.prefill(prompt)) == alone
    for engine, count in zip((world.p, world.d), before, strict=True):
        wait_for(
            f"{engine.name}'s line on {what}",
            lambda engine=engine, count=count: (
                len(engine.log_words(line)) > count
            ),
            LEASE_S,
        )
    world.say(f"other {what} at P: refused, {world.d.log_words(line)[-1]}")
    world.d.reset_prefix_cache()
    world.settled()


def restarted_p_is_met_again(world: World) -> None:
    """Kill -9 of P; another P with other weights under the same name.

    They are refused by name at both ends, and D computes. The negative
    control: where an operator says that they are D's, their KV must give other
    tokens, so the tokens of the scenarios before came from P's KV.
    """
    prompt = world.prompt(100)
    alone = world.alone(prompt)
    stale = world.prefill(prompt)
    world.p.stop(signal.SIGKILL)
    assert world.decode(prompt, stale) == alone, "P is dead: recompute"
    world.d.reset_prefix_cache()
    world.p.use(model=str(world.folder / "other"))
    world.p.start()
    world.p.wait_ready()
    at_d = Delta(world.d)
    assert world.decode(prompt, stale) == alone, "an old ticket: recompute"
    world.d.reset_prefix_cache()
    _other_kv_is_refused(world, prompt, alone, "weights")
    at_d.check(worker_pulls_done=0)
    ours = world.d.log_words(r"kvpull \S+: engine .* weights (files \w+),")[-1]
    config = kvpull_config(
        world.folder, "kv_producer", {"lease_ms": int(LEASE_S * 1000)}
    )
    config["kv_connector_extra_config"]["weights"] = ours
    world.p.use(kv_transfer_config=config)
    world.restart(world.p)
    wrong = world.decode(prompt, world.prefill(prompt))
    at_d.check(worker_pulls_done=1)
    assert wrong != alone, "other weights' KV gave the same tokens"
    world.say("tokens differ with other weights at P")
    world.d.reset_prefix_cache()
    world.settled()


def _kill(world: World, victim: str) -> None:
    at_p = Delta(world.p)
    tickets = []
    for _ in range(SLOTS):
        prompt = world.prompt(200)
        tickets.append((prompt, world.prefill(prompt)))
    with ThreadPoolExecutor(SLOTS) as pool, busy(world, SLOTS):
        for prompt, params in tickets:
            pool.submit(world.d.complete, prompt, kv_transfer_params=params)
        wait_for("claims", lambda: at_p("worker_claims") >= SLOTS)
        worker = world.d.process("Worker")
        os.kill(world.d.process(victim), signal.SIGKILL)
        try:
            wait_for(
                "the end of D's worker or of P's holds",
                lambda: not is_running(worker) or not world.p.holds_live(),
                ORPHAN_S,
                0.002,
            )
        except TimeoutError:
            world.say(f"{victim} killed, the worker lives on: killed, too")
            os.kill(worker, signal.SIGKILL)
            wait_for("its end", lambda: not is_running(worker), 5, 0.002)
        # A worker that ends by itself gives all back before it is gone.
        died = time.time()
        world.settled()
        took = max(world.p.logged("its hold ended")[-SLOTS:]) - died
        world.say(f"{victim}: free {took * 1e3:.1f} ms after the worker")
        at_p.check(worker_holds_released=SLOTS, worker_holds_expired=0)
        world.d.stop(signal.SIGKILL)
    assert took < KILLED_S, f"P's blocks were free after {took} s only"
    wait_for("P's blocks", lambda: world.p.cache_usage() == 0)


def killed_core_or_server_of_d_frees_p(world: World) -> None:
    """Kill -9 of D's engine core, of its API server; D starts again.

    The new D refuses first, then pulls.
    """
    for victim, how in (("EngineCore", HOWS[0]), ("APIServer", HOWS[1])):
        _kill(world, victim)
        world.d.start()
        world.d.wait_ready()
        first_contact_while_busy(world, how)
        prompt = world.prompt(100)
        alone = world.alone(prompt)
        at_d = Delta(world.d)
        assert world.decode(prompt, world.prefill(prompt)) == alone
        at_d.check(worker_pulls_done=1)
        world.settled()


def killed_worker_of_d_frees_p(world: World) -> None:
    """Kill -9 of D's worker while it has claims: P waits for no lease."""
    _kill(world, "Worker")
