# SPDX-License-Identifier: Apache-2.0
"""Shared by scenarios: engines, prompts, the reference, the judging."""

from __future__ import annotations

import random
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine import Engine, free_port, is_well, tokens, wait_for
from watchdog import Watchdog

BLOCK_TOKENS = 32
# Two layers, K and V of two heads of 64 floats, a token.
TOKEN_BYTES = 2 * 2 * 2 * 64 * 4
LEASE_S = 6.0
TOLD_S = 0.15  # by then an engine that steps has told its counters
IDLE_LOOK_S, IDLE_SHARE = 0.4, 0.2  # of one core, all engines together
SLOTS = 4  # D's --max-num-seqs
HOLD = {"do_remote_decode": True}
# vLLM refuses n > 1 when it is greedy; this is as good.
SIBLINGS = {"n": 8, "temperature": 1, "top_k": 1}


def pulled_bytes(prompt_tokens: int, local_tokens: int = 0) -> int:
    """Return the bytes of the blocks that a pull has to move."""
    blocks = -(-prompt_tokens // BLOCK_TOKENS) - local_tokens // BLOCK_TOKENS
    return blocks * BLOCK_TOKENS * TOKEN_BYTES


@dataclass
class World:
    """A producer, a consumer, a router, and what they answer alone."""

    connector = "kvpull"

    folder: Path
    p: Engine
    d: Engine
    others: list[Engine] = field(default_factory=list)
    nixl: Path | None = None  # where its wheel is
    full: bool = False  # counts of the full set, not of the short one
    near: float = 0  # where numbers are rounded: see judged.py
    seed: int = 1
    said: list[str] = field(default_factory=list)
    router_url: str = ""
    watchdog: Watchdog | None = None
    _routers: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)

    def prompt(self, length: int) -> list[int]:
        """Return token ids that no earlier prompt began with."""
        return [self.random.randrange(3, 512) for _ in range(length)]

    def say(self, text: str) -> None:
        """Add to the scenario's line."""
        self.said.append(text)

    def alone(self, prompt: list[int], **more: Any) -> list[list[int]]:
        """Return what one engine answers by itself; D forgets it then."""
        status, answer = self.d.complete(prompt, **more)
        assert status == 200, answer
        self.d.reset_prefix_cache()
        return tokens(answer)

    def prefill(self, prompt: list[int], **more: Any) -> dict[str, Any]:
        """Return the kv_transfer_params of a prefill that P holds."""
        more = {"max_tokens": 1, "kv_transfer_params": HOLD, **more}
        status, answer = self.p.complete(prompt, **more)
        assert status == 200, answer
        params = answer["kv_transfer_params"]
        assert params, answer
        assert self.connector != "kvpull" or params["kvpull_ticket"], answer
        return params

    def decode(
        self, prompt: list[int], params: dict[str, Any], **more: Any
    ) -> list[list[int]]:
        """Return D's tokens for a prefill's parameters."""
        status, answer = self.d.complete(
            prompt, kv_transfer_params=params, **more
        )
        assert status == 200, answer
        return tokens(answer)

    def settled(self, limit_s: float = LEASE_S / 2) -> float:
        """Wait until P holds nothing; return the seconds.

        Twice: a hold that was just taken is told a little later.
        """

        def nothing_held() -> bool:
            if self.p.holds_live():
                return False
            time.sleep(TOLD_S)
            return self.p.holds_live() == 0

        return wait_for("P's holds to end", nothing_held, limit_s) - TOLD_S

    def revoked_after(
        self, params: dict[str, Any], told: float, d: Engine | None = None
    ) -> float:
        """Return the time from a refusal to the end of P's hold.

        told is when the client had its answer; D's scheduler may be earlier.
        """
        # The hold of siblings is that of one of them.
        name = re.sub(r"^\d+_", "", params["remote_request_id"])
        line = rf"request (?:\d+_)?{re.escape(name)}: its hold ended"
        # The worker counts the end before its engine's next step logs it.
        wait_for(
            "P's line on the hold", lambda: bool(self.p.logged(line)), LEASE_S
        )
        refused = (d or self.d).logged("is rejected: its ticket")[-1]
        return self.p.logged(line)[0] - min(refused, told)

    @property
    def consumers(self) -> list[Engine]:
        """All D."""
        return [self.d, *self.others]

    @property
    def engines(self) -> list[Engine]:
        """All engines."""
        return [self.p, self.d, *self.others]

    def start(self) -> None:
        """Start everything; end it if that fails."""
        try:
            self.watchdog = Watchdog(self.folder)
            for engine in self.engines:
                engine.start()
            for engine in self.engines:
                engine.wait_ready()
            self.start_router()
        except BaseException:
            self.stop()
            raise

    def start_router(self) -> None:
        """Start the package's router between the two."""
        self.router_url = self.another_router()

    def another_router(self, *options: str) -> str:
        """Start a router between the two, and return its URL."""
        port = free_port()
        url = f"http://127.0.0.1:{port}"
        with (self.folder / "router.log").open("ab") as log:
            made = subprocess.Popen(
                [
                    sys.executable, "-m", "kvpull_vllm.router",
                    "--port", str(port),
                    "--prefill", self.p.url,
                    *(word for engine in self.consumers
                      for word in ("--decode", engine.url)),
                    *options,
                ],
                stdout=log,
                stderr=log,
            )  # fmt: skip
        self._routers.append(made)
        wait_for("router", lambda: is_well(url), 60)
        return url

    def revive(self) -> None:
        """Start what a scenario has left dead."""
        dead = [engine for engine in self.engines if not engine.is_alive()]
        for engine in dead:
            engine.stop(signal.SIGKILL)
            engine.start()
        for engine in dead:
            engine.wait_ready()

    def idle(self) -> None:
        """Wait until the engines leave the cores alone.

        For a second after a step their workers spin.
        """

        def said() -> bool:
            before = sum(engine.cpu_s() for engine in self.engines)
            time.sleep(IDLE_LOOK_S)
            after = sum(engine.cpu_s() for engine in self.engines)
            return after - before < IDLE_SHARE * IDLE_LOOK_S

        wait_for("idle engines", said)

    def restart(self, engine: Engine) -> None:
        """End an engine and start it again."""
        engine.stop()
        engine.start()
        engine.wait_ready()

    def leave(self, number: int) -> None:
        """Be a client that leaves around the finish, at P or at D."""
        prompt, delay_s = self.prompt(40 + number % 60), 0.002 * (number % 25)
        if number % 2:
            body = {"max_tokens": 1, "kv_transfer_params": HOLD}
            self.p.leave(prompt, delay_s, **body)
        else:
            params = self.prefill(prompt)
            self.d.leave(prompt, delay_s, kv_transfer_params=params)

    def stop(self) -> None:
        """End everything."""
        for router in self._routers:
            router.kill()
            router.wait()
        for engine in self.engines:
            engine.stop()
        if self.watchdog is not None:
            self.watchdog.stop()


def at_rest(engine: Engine) -> dict[str, float]:
    """Return counters that stand: they are told ten times a second.

    Those of an engine that is busy never stand: the last ones then.
    """
    counts = engine.counters()
    for _ in range(8):
        time.sleep(TOLD_S)
        last, counts = counts, engine.counters()
        if counts == last:
            break
    return counts


class Delta:
    """How an engine's counters moved since this was made."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._before = at_rest(engine)

    def __call__(self, name: str) -> float:
        """Return how far a counter moved."""
        return at_rest(self._engine).get(name, 0) - self._before.get(name, 0)

    def check(self, **expected: float) -> None:
        """Assert how counters moved."""
        now = at_rest(self._engine)
        found = {
            name: now.get(name, 0) - self._before.get(name, 0)
            for name in expected
        }
        assert found == expected, f"{found}, expected {expected}"


@contextmanager
def busy(
    world: World, count: int, behind: int = 0
) -> Iterator[list[socket.socket]]:
    """Keep D's running slots taken by requests of its own; their streams.

    Those behind them take the slots when they end, on a machine that is fast.
    """
    with ExitStack() as open_ones:

        def stream() -> socket.socket:
            made = world.d.stream(world.prompt(16), max_tokens=3900)
            return open_ones.enter_context(made)

        streams = [stream() for _ in range(count)]
        wait_for(
            "D to be busy",
            lambda: world.d.metrics()["vllm:num_requests_running"] >= count,
        )
        streams += [stream() for _ in range(behind)]
        wait_for(
            "D to have more",
            lambda: world.d.metrics()["vllm:num_requests_waiting"] >= behind,
        )
        yield streams
