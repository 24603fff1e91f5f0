# SPDX-License-Identifier: Apache-2.0
"""Requests that D refuses before they reach its scheduler.

P's hold has to end within one step of D, 10 ms, and one step of P; where both
are idle within 20 ms. The time runs from the refusal as the client or D's
scheduler sees it, whichever is first, to P's own line on its hold. A step is
the longest pause of a stream of tokens of that engine in that time.
"""

from __future__ import annotations

import os
import socket
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from engine import Engine, post, wait_for
from world import SIBLINGS, Delta, World

TOO_LONG = 5000  # tokens; --max-model-len is 4096
STREAM = {"max_tokens": 3900}
IDLE_S, SLACK_S = 0.020, 0.010
QUIET_S = 0.002
HOWS = ("too long a prompt", "bad template", "unknown model")


def refuse(
    world: World, engine: Engine, how: str, params: dict[str, Any]
) -> float:
    """Send what the engine refuses; return when the client was told."""
    completions, chat = "/v1/completions", "/v1/chat/completions"
    words = [{"role": "system", "content": "w5 w6"}]
    path, body, expected = {
        HOWS[0]: (completions, {"prompt": world.prompt(TOO_LONG)}, 400),
        HOWS[1]: (chat, {"messages": words}, 400),
        HOWS[2]: (completions, {"model": "unknown", "prompt": [5, 6]}, 404),
    }[how]
    body = {"model": "tiny", "max_tokens": 4, **body}
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


def is_quiet() -> bool:
    """Say whether a thread that has slept runs at once, with cores to spare."""
    if os.getloadavg()[0] > 2 * (os.cpu_count() or 1):
        return False
    late = []
    for _ in range(100):
        began = time.monotonic()
        time.sleep(0.002)
        late.append(time.monotonic() - began - 0.002)
    return sorted(late)[-3] < QUIET_S


@dataclass
class Times:
    """How long revocations took, and the steps beside them, in seconds."""

    took: list[float] = field(default_factory=list)
    steps: list[tuple[float, float]] = field(default_factory=list)
    quiet: bool = field(default_factory=is_quiet)

    def say(self, world: World) -> None:
        """Add them to the scenario's line."""

        def text(values: list[float]) -> str:
            middle, most = statistics.median(values), max(values)
            return f"{middle * 1e3:.1f} (at most {most * 1e3:.1f}) ms"

        world.say(f"{len(self.took)} revoked after {text(self.took)}")
        if not self.quiet:
            world.say("the machine is busy with other work")
        if self.steps:
            world.say(f"D's step {text([d for d, _ in self.steps])}")
            world.say(f"P's step {text([p for _, p in self.steps])}")

    def check(self) -> None:
        """Assert that the median of them is within the bar.

        On a machine that has no core to spare the best quarter has to be.
        """
        over = [took - IDLE_S for took in self.took]
        if self.steps:
            over = [
                took - d - p - SLACK_S
                for took, (d, p) in zip(self.took, self.steps, strict=True)
            ]
        judged = len(over) // (2 if self.quiet else 4)
        assert sorted(over)[judged] < 0, f"{self}"


def first_contact_frees_p(world: World) -> None:
    """D refuses a request of a P that it never spoke to; both are idle."""
    at_p, times = Delta(world.p), Times()
    params = world.prefill(world.prompt(100))
    told = refuse(world, world.d, HOWS[2], params)
    world.settled()
    times.took.append(world.revoked_after(params, told))
    times.say(world)
    assert world.d.logged("connected by shm"), "not by the shared mapping"
    at_p.check(worker_holds_released=1, worker_holds_expired=0)
    if world.full and times.quiet:
        times.check()


def rejects_while_idle_free_p(world: World) -> None:
    """Each way to be refused, and n = 8; both engines are idle."""
    at_p, times = Delta(world.p), Times()
    for how in HOWS * (5 if world.full else 1):
        for more in ({}, SIBLINGS):
            params = world.prefill(world.prompt(100), **more)
            told = refuse(world, world.d, how, params)
            world.settled()
            times.took.append(world.revoked_after(params, told))
    times.say(world)
    at_p.check(
        worker_holds_released=len(times.took),
        worker_holds_revoked=0,
        worker_holds_expired=0,
    )
    assert world.d.is_alive()
    assert world.p.cache_usage() == 0
    if world.full:
        times.check()


def _refuse_while_busy(world: World, hows: tuple[str, ...]) -> Times:
    at_p, times = Delta(world.p), Times()
    with paced(world, world.p, 2) as p, paced(world, world.d, 2) as d:
        for how in hows:
            params = world.prefill(world.prompt(100))
            told = refuse(world, world.d, how, params)
            took = world.revoked_after(params, told)
            span = (told - took, told + took)
            times.took.append(took)
            times.steps.append((d.longest(*span), p.longest(*span)))
    times.say(world)
    world.settled()
    at_p.check(worker_holds_released=len(hows), worker_holds_expired=0)
    assert world.d.is_alive()
    return times


def rejects_while_busy_free_p(world: World) -> None:
    """Each way to be refused while P and D compute for others."""
    times = _refuse_while_busy(world, HOWS * (10 if world.full else 1))
    if world.full:
        times.check()


def first_contact_while_busy(world: World, how: str) -> None:
    """A D that has just started meets P by a refusal; both compute."""
    _refuse_while_busy(world, (how,))


def first_contact_of_each_consumer_frees_p(world: World) -> None:
    """Three D that never spoke to P, each refuses in its own way."""
    at_p, times = Delta(world.p), Times()
    for engine, how in zip(world.consumers, HOWS, strict=True):
        params = world.prefill(world.prompt(100))
        told = refuse(world, engine, how, params)
        world.settled()
        times.took.append(world.revoked_after(params, told, engine))
    times.say(world)
    at_p.check(worker_holds_released=3, worker_holds_expired=0)
    if times.quiet:
        times.check()
