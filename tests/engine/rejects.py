# SPDX-License-Identifier: Apache-2.0
"""Requests that D refuses before they reach its scheduler.

P's hold has to end within one step of D, 10 ms, and one step of P; where both
are idle within 20 ms: each time, not in the mean. The time runs from the
refusal as the client or D's scheduler sees it, whichever is first, to P's own
line on its hold. A step is the longest pause of a stream of tokens of that
engine in that time. Over its bar, a refusal is measured again if the machine
stood meanwhile (watchdog.py), at most AGAIN times, and the line says so. A bar is
of a quiet machine, and is multiplied by how busy this one is (patience.sh).
"""

from __future__ import annotations

import socket
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from engine import Engine, patience, post, wait_for
from world import SIBLINGS, Delta, World

TOO_LONG = 5000  # tokens; --max-model-len is 4096
STREAM = {"max_tokens": 3900}
IDLE_S, SLACK_S = 0.020, 0.010
AGAIN = 2
HOWS = ("too long a prompt", "bad template", "unknown model")


def refuse(
    world: World, engine: Engine, how: str, params: dict[str, Any], **more: Any
) -> float:
    """Send what the engine refuses; return when the client was told."""
    completions, chat = "/v1/completions", "/v1/chat/completions"
    words = [{"role": "system", "content": "w5 w6"}]
    path, body, expected = {
        HOWS[0]: (completions, {"prompt": world.prompt(TOO_LONG)}, 400),
        HOWS[1]: (chat, {"messages": words}, 400),
        HOWS[2]: (completions, {"model": "unknown", "prompt": [5, 6]}, 404),
    }[how]
    body = {"model": "tiny", "max_tokens": 4, **body, **more}
    status, answer = post(
        f"{engine.url}{path}", {**body, "kv_transfer_params": params}
    )
    told = time.time()
    assert status == expected, f"{how}: {status} {answer}"
    return told


class Pace:
    """A stream of tokens: when its client read each of them."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self.times: list[float] = []
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        while True:
            try:
                if not self._connection.recv(1 << 16):
                    return
            except OSError:
                return
            self.times.append(time.time())

    def stop(self) -> None:
        """Leave."""
        self._connection.shutdown(socket.SHUT_RDWR)
        self._thread.join()

    def longest(self, since: float, until: float) -> float:
        """Return the longest pause that began before and ended after."""
        wait_for("a token", lambda: self.times[-1] > until)
        times = list(self.times)
        return max(
            later - earlier
            for earlier, later in zip(times, times[1:], strict=False)
            if later > since and earlier < until
        )


@contextmanager
def paced(world: World, engine: Engine, count: int) -> Iterator[Pace]:
    """Keep an engine busy with streams; watch one of them."""
    with ExitStack() as stack:
        streams = [
            stack.enter_context(engine.stream(world.prompt(200), **STREAM))
            for _ in range(count)
        ]
        pace = Pace(streams[0])
        stack.callback(pace.stop)
        wait_for(
            f"{engine.name} to be busy",
            lambda: engine.metrics()["vllm:num_requests_running"] >= count,
        )
        wait_for("tokens", lambda: len(pace.times) > 3)
        yield pace


@dataclass(frozen=True)
class Refusal:
    """How long a revocation took, and the steps beside it, in seconds."""

    told: float  # when
    took: float
    steps: tuple[float, float] | None = None  # D's, P's

    @property
    def bar(self) -> float:
        """Return the seconds that a refusal may take."""
        return sum(self.steps) + SLACK_S if self.steps else IDLE_S


@dataclass
class Refusals:
    """Measured refusals, and how often once more."""

    world: World
    made: list[Refusal] = field(default_factory=list)
    again: int = 0

    def add(
        self, measure: Callable[[], Refusal], before: Callable[[], None]
    ) -> None:
        """Measure; again, after something, if the machine stood."""
        found = measure()
        for _ in range(AGAIN):
            if found.took < found.bar or not self._stood(found):
                break
            self.again += 1
            before()
            found = measure()
        self.made.append(found)

    def _stood(self, found: Refusal) -> bool:
        assert self.world.watchdog
        late = self.world.watchdog.late(
            found.told - found.took, found.told + found.took
        )
        if late:
            self.world.say(
                f"{found.took * 1e3:.1f} ms while the machine stood for "
                f"{late * 1e3:.0f} ms"
            )
        return late > 0

    def check(self) -> None:
        """Say what was measured; in the full set each is within its bar."""

        def text(values: list[float]) -> str:
            middle, most = statistics.median(values), max(values)
            return f"{middle * 1e3:.1f} (at most {most * 1e3:.1f}) ms"

        took = text([each.took for each in self.made])
        self.world.say(f"{len(self.made)} revoked after {took}")
        steps = [each.steps for each in self.made if each.steps]
        if steps:
            self.world.say(f"D's step {text([d for d, _ in steps])}")
            self.world.say(f"P's step {text([p for _, p in steps])}")
            left = min(each.bar - each.took for each in self.made)
            self.world.say(f"{left * 1e3:.1f} ms left to the bar at least")
        if self.again:
            self.world.say(f"{self.again} measured again")
        over = [each for each in self.made if each.took >= each.bar]
        if over and self.world.full:
            times = patience()
            self.world.say(f"{times} times the bar on this busy machine")
            over = [each for each in over if each.took >= times * each.bar]
            assert not over, over


def _idle(
    world: World, engine: Engine, how: str, **more: Any
) -> Callable[[], Refusal]:
    def measure() -> Refusal:
        params = world.prefill(world.prompt(100), **more)
        told = refuse(world, engine, how, params, **more)
        world.settled()
        return Refusal(told, world.revoked_after(params, told, engine))

    return measure


def _busy(world: World, how: str, d: Pace, p: Pace) -> Callable[[], Refusal]:
    def measure() -> Refusal:
        params = world.prefill(world.prompt(100))
        told = refuse(world, world.d, how, params)
        took = world.revoked_after(params, told)
        span = (told - took, told + took)
        return Refusal(told, took, (d.longest(*span), p.longest(*span)))

    return measure


def _nothing() -> None:
    """Do nothing before the next measurement."""


def _released(world: World, at_p: Delta, found: Refusals) -> None:
    world.settled()
    count = len(found.made) + found.again
    at_p.check(
        worker_holds_released=count,
        worker_holds_revoked=0,
        worker_holds_expired=0,
    )
    found.check()


def _afresh(world: World, engine: Engine) -> None:
    world.restart(engine)
    world.idle()


def first_contact_frees_p(world: World) -> None:
    """D refuses a request of a P that it never spoke to; both are idle."""
    at_p, found = Delta(world.p), Refusals(world)
    assert not world.d.logged("connected by shm"), "no first contact"
    world.idle()
    found.add(_idle(world, world.d, HOWS[2]), partial(_afresh, world, world.d))
    assert world.d.logged("connected by shm"), "not by the shared mapping"
    _released(world, at_p, found)


def rejects_while_idle_free_p(world: World) -> None:
    """Each way to be refused, also with n = 8; both engines are idle."""
    at_p, found = Delta(world.p), Refusals(world)
    for how in HOWS * (5 if world.full else 1):
        for more in ({}, SIBLINGS):
            found.add(_idle(world, world.d, how, **more), _nothing)
    _released(world, at_p, found)
    assert world.d.is_alive()
    assert world.p.cache_usage() == 0


def rejects_while_busy_free_p(world: World) -> None:
    """Each way to be refused while P and D compute for others."""
    at_p, found = Delta(world.p), Refusals(world)
    with paced(world, world.p, 2) as p, paced(world, world.d, 2) as d:
        for how in HOWS * (10 if world.full else 1):
            found.add(_busy(world, how, d, p), _nothing)
    _released(world, at_p, found)
    assert world.d.is_alive()


def first_contact_while_busy(world: World, how: str) -> None:
    """A D that has just started meets P by a refusal; both compute."""
    at_p, found = Delta(world.p), Refusals(world)

    def measure() -> Refusal:
        # Streams of their own: none outlasts a restart of D.
        with paced(world, world.p, 2) as p, paced(world, world.d, 2) as d:
            return _busy(world, how, d, p)()

    found.add(measure, lambda: world.restart(world.d))
    _released(world, at_p, found)


def first_contact_of_each_consumer_frees_p(world: World) -> None:
    """Three D that never spoke to P, each refuses in its own way."""
    at_p, found = Delta(world.p), Refusals(world)
    for engine, how in zip(world.consumers, HOWS, strict=True):
        world.idle()
        found.add(
            _idle(world, engine, how),
            partial(_afresh, world, engine),
        )
    _released(world, at_p, found)
