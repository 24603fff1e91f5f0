# SPDX-License-Identifier: Apache-2.0
"""Engines that read each other's host memory by content: kvpull_vllm.tier.

Each has vLLM's OffloadingConnector with a primary tier of its own; P and D are
alike. vLLM's own worker wants a GPU beside it: host_store.py has one without.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import updates
from engine import Engine, complete, kvpull_config, post, wait_for
from scenarios import Scenario
from world import Delta, World

PREFIX = 2000
CHUNKS = PREFIX // 32
CACHED = CHUNKS * 32
DEADLINE_S = 2.0
TRIES = 20
STALL_MAX_S = 60.0
ALL = PREFIX + 64  # tokens in all chunks of a small P
IDLE_S, IDLE_SHARE_MAX = 2.0, 0.05
POOL = "vllm:kvpull_pool_"
PUBLISHED = f"{POOL}published_total"
READ = f"{POOL}chunks_read_total"
LOCAL = "vllm:prefix_cache_hits_total"
EXTERNAL = "vllm:external_prefix_cache_hits_total"


def pool_config(
    folder: Path, chunks: int = 1024, **tier: Any
) -> dict[str, Any]:
    """Return --kv-transfer-config of an engine of the pool."""
    return {
        "kv_connector": "OffloadingConnector",
        "kv_role": "kv_both",
        "kv_connector_extra_config": {
            "spec_name": "TieredHostSpec",
            "spec_module_path": "host_store",
            "cpu_bytes_to_use": chunks << 16,
            "eviction_policy": "KVPullLRU",
            "cache_policy_module_path": "kvpull_vllm.tier",
            "secondary_tiers": [
                {
                    "type": "kvpull",
                    "module_path": "kvpull_vllm.tier",
                    "socket_dir": str(folder / "sockets"),
                    "deadline_ms": int(DEADLINE_S * 1000),
                    **tier,
                }
            ],
        },
    }


def _engine(folder: Path, name: str, **config: Any) -> Engine:
    transfer = pool_config(folder, **config)
    return Engine(
        name, folder, folder / "model", transfer, updates.EXTENSION
    )


def pool(folder: Path) -> World:
    """Return two engines of one pool, not started."""
    return World(folder, _engine(folder, "a"), _engine(folder, "b"))


def reused(folder: Path) -> World:
    """Return P with few chunks, D that stalls, one that believes all."""
    stalled = {
        "module_path": "stalled",
        "stall": str(folder / "stall"),
        "deadline_ms": int(STALL_MAX_S * 1000),
    }
    return World(
        folder,
        _engine(folder, "a", chunks=ALL // 32),
        _engine(folder, "b", type="StalledTier", **stalled),
        others=[_engine(folder, "c", type="BelievingTier", **stalled)],
    )


def spilled(folder: Path) -> World:
    """Return P with few chunks and a file for what it evicts, and D."""
    disk = {"spill_dir": str(folder), "spill_bytes": 1024 << 16}
    return World(
        folder,
        _engine(folder, "a", chunks=CHUNKS + 2, **disk),
        _engine(folder, "b"),
    )


def both(folder: Path) -> World:
    """Return two engines with tickets and the pool."""

    def config() -> dict[str, Any]:
        ours = kvpull_config(folder, "kv_both", {})
        return {
            "kv_connector": "MultiConnector",
            "kv_role": "kv_both",
            "kv_load_failure_policy": "recompute",
            "kv_connector_extra_config": {
                "connectors": [ours, pool_config(folder)]
            },
        }

    return World(
        folder,
        *(
            Engine(name, folder, folder / "model", config())
            for name in ("p", "d")
        ),
    )


@dataclass
class Read:
    """A read that stood still, and what came of it."""

    alone: list[list[int]]
    moved: Moved
    was_open: bool = False  # when it stood
    is_right: bool = False
    believed: int = 0  # tokens


class Moved:
    """How an engine's metrics moved since this was made."""

    def __init__(self, engine: Engine) -> None:
        self._engine, self._before = engine, engine.metrics()

    def __call__(self, name: str) -> int:
        """Return how much this metric has grown."""
        now = self._engine.metrics().get(name, 0.0)
        return int(now - self._before.get(name, 0.0))

    def cached(self) -> int:
        """Return the prompt's tokens that were not computed."""
        return self(LOCAL) + self(EXTERNAL)


def _reset(engine: Engine) -> None:
    """Forget the prefix cache and the primary tier."""
    post(f"{engine.url}/reset_prefix_cache?reset_external=true", None)


def _signal(engine: Engine, number: signal.Signals) -> None:
    """Send it to all processes of an engine."""
    os.killpg(engine.pid, number)


def _met(world: World) -> None:
    """Wait until all read from each other; metrics come with steps."""
    count = len(world.engines) - 1

    def said() -> bool:
        for engine in world.engines:
            engine.complete([3], max_tokens=2)
        return all(
            engine.metrics().get(f"{POOL}peers", 0) == count
            for engine in world.engines
        )

    wait_for("engines that have met", said, 20, 0.1)


def _computed(world: World, prompt: list[int]) -> list[list[int]]:
    """Have P compute a prompt and share it; return its tokens."""
    moved = Moved(world.p)
    found = complete(world.p.url, prompt)
    assert moved.cached() == 0, "P had it: it is no reference"

    def said() -> bool:
        world.p.complete([3], max_tokens=2)
        return moved(PUBLISHED) >= len(prompt) // 32

    wait_for("P's chunks", said, 10, 0.05)
    return found


def another_engine_reads_a_prefix(world: World) -> None:
    """First request, after a reset of D, and with another first token."""
    _met(world)
    prompt = world.prompt(PREFIX)
    alone = _computed(world, prompt)
    for why in ("first", "reset"):
        moved = Moved(world.d)
        began = time.monotonic()
        assert complete(world.d.url, prompt) == alone, why
        took = time.monotonic() - began
        assert moved(EXTERNAL) == CACHED, (why, moved(EXTERNAL))
        assert moved(READ) == CHUNKS, (why, moved(READ))
        world.say(f"{why}: {CACHED} of {PREFIX} cached, {took * 1e3:.0f} ms")
        _reset(world.d)
    other = [prompt[0] ^ 1, *prompt[1:]]
    moved = Moved(world.d)
    found = complete(world.d.url, other)
    assert moved.cached() == 0 and moved(READ) == 0
    assert found != alone
    # D shares what it computed, and what it read.
    moved = Moved(world.p)
    _reset(world.p)
    assert complete(world.p.url, other) == found
    assert moved(EXTERNAL) == CACHED and moved(READ) == CHUNKS


def what_a_source_resets_is_computed(world: World) -> None:
    """P forgets all; D finds nothing there, and is right."""
    prompt = world.prompt(PREFIX)
    alone = _computed(world, prompt)
    _reset(world.p)
    moved = Moved(world.d)
    assert complete(world.d.url, prompt) == alone
    assert moved.cached() == 0 and moved(READ) == 0
    _reset(world.d)


def _unread(engine: Engine, prompt: list[int]) -> list[list[int]]:
    """Have an engine compute a prompt; it reads nothing, and forgets it."""
    moved = Moved(engine)
    found = complete(engine.url, prompt)
    assert moved.cached() == 0 and moved(READ) == 0
    _reset(engine)
    return found


def updated_weights_read_nothing_old(world: World) -> None:
    """What P put before an update is read by no engine that has had it."""
    for method, status, seed, version in updates.ROUNDS:
        prompt = world.prompt(PREFIX)
        before = _computed(world, prompt)
        answers = []
        for engine in (world.d, world.p):
            answer = updates.call_workers(engine, method, seed)
            assert answer[0] == status, answer
            answers.append(_unread(world.d, prompt))
        for engine in world.engines:
            updates.name_weights(engine, version)
        answers.append(_unread(world.d, prompt))
        after = answers[0]
        assert answers == [after] * 3, method
        assert after != before, "the weights are alike: this proves nothing"
        # P's caches are of before: nothing is shared until they are cleared.
        _reset(world.p)
        assert _computed(world, prompt) == after
        moved = Moved(world.d)
        assert complete(world.d.url, prompt) == after
        assert moved(READ) == CHUNKS, moved(READ)
        for engine in world.engines:
            _reset(engine)


def a_killed_source_delays_nobody(world: World) -> None:
    """D computes, within the deadline and its own time; P comes back."""
    prompt = world.prompt(PREFIX)
    alone = _computed(world, prompt)
    _reset(world.d)
    began = time.monotonic()
    complete(world.d.url, world.prompt(PREFIX))
    own = time.monotonic() - began
    world.p.stop(signal.SIGKILL)
    moved = Moved(world.d)
    began = time.monotonic()
    assert complete(world.d.url, prompt) == alone
    took = time.monotonic() - began
    assert took < own * 2 + DEADLINE_S, (took, own)
    world.say(f"killed: {took:.2f} s, alone {own:.2f} s")
    _reset(world.d)
    world.p.start()
    world.p.wait_ready()
    _met(world)
    alone = _computed(world, world.prompt(64) + prompt[64:])
    assert moved.cached() in (0, CACHED), moved.cached()


def a_stopped_source_delays_nobody(world: World) -> None:
    """Memory of a stopped process is read as ever: nobody is asked."""
    prompt = world.prompt(PREFIX)
    alone = _computed(world, prompt)
    _reset(world.d)
    _signal(world.p, signal.SIGSTOP)
    try:
        moved = Moved(world.d)
        began = time.monotonic()
        assert complete(world.d.url, prompt) == alone
        took = time.monotonic() - began
        assert moved(EXTERNAL) == CACHED, moved(EXTERNAL)
        world.say(f"stopped: {CACHED} cached, {took * 1e3:.0f} ms")
    finally:
        _signal(world.p, signal.SIGCONT)


def other_weights_are_refused_by_name(world: World) -> None:
    """P starts again with other weights: both logs say so, D computes."""
    prompt = world.prompt(PREFIX)
    alone = complete(world.d.url, prompt)
    _reset(world.d)
    world.p.use(model=str(world.folder / "other"))
    world.restart(world.p)
    line = r"weights.*files [0-9a-f]+.*files [0-9a-f]+"
    for engine in world.engines:
        wait_for(
            f"{engine.name}'s line of weights",
            lambda engine=engine: bool(engine.logged(line)),
        )
    other = complete(world.p.url, prompt)
    assert other != alone, "the models are alike: this proves nothing"
    moved = Moved(world.d)
    assert complete(world.d.url, prompt) == alone
    assert moved.cached() == 0 and moved(READ) == 0


def idle_engines_use_no_cpu(world: World) -> None:
    """2 s in which nobody asks for anything."""
    world.idle()
    before = [engine.cpu_s() for engine in world.engines]
    time.sleep(IDLE_S)
    for engine, used in zip(world.engines, before, strict=True):
        share = (engine.cpu_s() - used) / IDLE_S
        world.say(f"{engine.name}: {share * 100:.1f} % of a core")
        assert share < IDLE_SHARE_MAX, share


@contextmanager
def _stalled(world: World, reader: Engine, place: str) -> Iterator[Read]:
    """Have P compute a prompt, and a reader stand still in reading it."""
    stall = world.folder / "stall"
    reached = stall.with_suffix(".reached")
    prompt = world.prompt(PREFIX)
    read = Read(_computed(world, prompt), Moved(reader))
    reached.unlink(missing_ok=True)
    stall.write_text(place)
    with ThreadPoolExecutor() as pool:
        answer = pool.submit(complete, reader.url, prompt)
        try:
            wait_for("the reader's stall", reached.exists, 20)
            read.was_open = bool(reached.read_text())
            yield read
        finally:
            stall.unlink()
        read.is_right = answer.result() == read.alone
    read.believed = read.moved(EXTERNAL)


def _read_while_reused(
    world: World, reader: Engine, place: str, tokens: int
) -> Read:
    """Have P compute so many tokens, in the chunks that are being read."""
    with _stalled(world, reader, place) as read:
        _computed(world, world.prompt(tokens))
    assert read.was_open == (place == "copy"), read
    return read


def what_is_reused_meanwhile_is_not_believed(world: World) -> None:
    """20 times at each place, all or the end of it; who believes is wrong."""
    _met(world)
    for place in ("probe", "copy"):
        reads = [
            _read_while_reused(
                world, world.d, place, (ALL, PREFIX // 2)[number % 2]
            )
            for number in range(TRIES)
        ]
        assert all(read.is_right for read in reads), place
        assert not any(read.believed for read in reads[::2]), place
        parts = [read.believed for read in reads[1::2]]
        assert all(0 < part < CACHED for part in parts), (place, parts)
        where = "after the probe" if place == "probe" else "in an open read"
        world.say(f"{TRIES} stalls {where}: 0 wrong, {parts} tokens")
    read = _read_while_reused(world, world.others[0], "probe", ALL)
    assert read.believed == CACHED and not read.is_right, read
    world.say("without guards: wrong")


def a_source_may_end_at_any_moment(world: World) -> None:
    """Reset, stopped, killed, of other weights, at both places of a read."""
    _met(world)

    def is_killed() -> None:
        world.p.stop(signal.SIGKILL)

    def has_other_weights() -> None:
        world.p.use(model=str(world.folder / "other"))
        world.restart(world.p)

    ends: dict[str, tuple[Callable[[], None], bool]] = {
        "reset": (lambda: _reset(world.p), False),
        "stopped": (lambda: _signal(world.p, signal.SIGSTOP), True),
        "killed": (is_killed, False),
        "other weights": (has_other_weights, False),
    }
    for place in ("probe", "copy"):
        for how, (end, is_good) in ends.items():
            with _stalled(world, world.d, place) as read:
                end()
                began = time.monotonic()
            took = time.monotonic() - began
            if how == "stopped":
                _signal(world.p, signal.SIGCONT)
            assert read.is_right, (place, how)
            assert read.believed == is_good * CACHED, (place, how, read)
            assert took < DEADLINE_S, (place, how, took)
            if not is_good and how != "reset":
                world.p.use(model=str(world.folder / "model"))
                world.restart(world.p)
                _met(world)
    world.say("8 reads: right")


def a_source_resets_while_it_is_read(world: World) -> None:
    """At a moment of chance; and the reader resets before it reads."""
    some = 0
    for _ in range(TRIES):
        prompt = world.prompt(PREFIX)
        alone = _computed(world, prompt)
        # A store of this one may be under way at the reset after it.
        complete(world.d.url, world.prompt(100), max_tokens=30)
        _reset(world.d)
        moved = Moved(world.d)
        with ThreadPoolExecutor() as pool:
            answer = pool.submit(complete, world.d.url, prompt)
            time.sleep(world.random.uniform(0, 0.06))
            _reset(world.p)
            assert answer.result() == alone
        some += moved(EXTERNAL) > 0
    world.say(f"{TRIES} resets: right, {some} times something was read before")


def tickets_and_the_pool_serve_side_by_side(world: World) -> None:
    """D pulls what it has a ticket for, and finds the rest in the pool."""
    _met(world)
    prompt = world.prompt(PREFIX)
    alone = _computed(world, prompt)
    moved = Moved(world.d)
    assert complete(world.d.url, prompt) == alone
    assert moved(READ) == CHUNKS and moved(EXTERNAL) == CACHED
    _reset(world.d)
    at_d = Delta(world.d)
    other = world.prompt(100)
    params = world.prefill(other)
    found = world.decode(other, params)
    at_d.check(worker_pulls_done=1, worker_pulls_failed=0)
    world.settled()
    for engine in world.engines:
        _reset(engine)
        _reset(engine)  # vLLM looks at its blocks before it tells connectors
    assert complete(world.p.url, other) == found


POOLED: list[Scenario] = [
    another_engine_reads_a_prefix,
    what_a_source_resets_is_computed,
    updated_weights_read_nothing_old,
    idle_engines_use_no_cpu,
    a_stopped_source_delays_nobody,
    a_killed_source_delays_nobody,
    other_weights_are_refused_by_name,
]
def a_busy_source_delays_nobody(world: World) -> None:
    """P computes prompts meanwhile: D reads all the same, and asks nobody."""
    prompt = world.prompt(PREFIX)
    alone = _computed(world, prompt)
    _reset(world.d)
    long = [world.prompt(4000) for _ in range(4)]
    running = "vllm:num_requests_running"
    with ThreadPoolExecutor() as pool:
        work = [
            pool.submit(complete, world.p.url, one, max_tokens=1) for one in long
        ]
        wait_for("P to be busy", lambda: world.p.metrics()[running] > 0)
        moved = Moved(world.d)
        began = time.monotonic()
        assert complete(world.d.url, prompt) == alone
        took = time.monotonic() - began
        is_busy = not all(one.done() for one in work)
        assert moved(EXTERNAL) == CACHED, moved(EXTERNAL)
        for one in work:
            one.result()
    world.say(f"{took * 1e3:.0f} ms, P busy to the end: {is_busy}")


def what_was_evicted_is_read_from_the_disk(world: World) -> None:
    """By D from P's file, and by P itself."""
    _met(world)
    prompt = world.prompt(PREFIX)
    moved = Moved(world.p)
    alone = _computed(world, prompt)
    _computed(world, world.prompt(PREFIX))

    def on_disk() -> bool:
        world.p.complete([3], max_tokens=2)
        return moved(f"{POOL}chunks_spilled_total") >= 2 * CHUNKS

    wait_for("chunks on P's disk", on_disk, 10, 0.05)
    assert moved(f"{POOL}withdrawn_total") >= CHUNKS - 2
    for engine, others in ((world.d, "of another"), (world.p, "of its own")):
        post(f"{engine.url}/reset_prefix_cache", None)
        moved = Moved(engine)
        began = time.monotonic()
        assert complete(engine.url, prompt) == alone, others
        took = time.monotonic() - began
        assert moved(EXTERNAL) == CACHED, (others, moved(EXTERNAL))
        assert moved(READ) >= CHUNKS - 2, (others, moved(READ))
        world.say(f"{others} disk: {CACHED} cached, {took * 1e3:.0f} ms")


SPILLED: list[Scenario] = [what_was_evicted_is_read_from_the_disk]
REUSED: list[Scenario] = [
    what_is_reused_meanwhile_is_not_believed,
    a_source_resets_while_it_is_read,
    a_source_may_end_at_any_moment,
]
BOTH: list[Scenario] = [
    tickets_and_the_pool_serve_side_by_side,
    a_busy_source_delays_nobody,
]
