# SPDX-License-Identifier: Apache-2.0
"""Kinds of requests: adapters, grammars, priorities, events, crowds.

One pair of engines has an adapter, publishes what becomes of its blocks and
keeps priorities; another one has so few blocks that both its engines preempt.
"""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import model
import msgspec
import zmq
from engine import (
    Engine,
    begin,
    complete,
    kvpull_config,
    tokens,
    wait_for,
)
from scenarios import Scenario
from world import BLOCK_TOKENS, LEASE_S, SLOTS, Delta, World, busy, pulled_bytes

ROLES = (("p", "kv_producer"), ("d", "kv_consumer"))
LEASE = {"lease_ms": int(LEASE_S * 1000)}
# Blocks of an engine in a crowd: what a tenth of it wants at once.
FEW_BLOCKS = 160
CROWD, CROWD_PROMPTS, FAMILIES = 200, 40, 8
# Each of the crowd grows by four blocks: D, whose work that is, lags behind P.
CROWD_TOKENS = 4 * BLOCK_TOKENS
# Beside it P decodes what alone is more than its blocks hold. What goes before
# the crowd leaves it room; the rest gives way to it.
BEFORE, BEHIND = (-10,) * 2, (10,) * 6
HOG_PROMPT, HOG_TOKENS = 500, 1000


def kinds(folder: Path) -> World:
    """Return a pair with an adapter, priorities and events, not started."""
    model.make_adapter(folder / "adapter", 1)
    made = []
    for name, role in ROLES:
        events = {
            "enable_kv_cache_events": True,
            "endpoint": f"ipc://{folder / name}.events",
        }
        engine = Engine(
            name, folder, folder / "model", kvpull_config(folder, role, LEASE),
            [
                "--enable-lora", "--max-lora-rank", str(model.RANK),
                "--lora-modules", f"adapted={folder / 'adapter'}",
                "--scheduling-policy", "priority",
                "--max-num-seqs", str(SLOTS),
                "--kv-events-config", json.dumps(events),
            ],
            {"PYTHONHASHSEED": "0"},  # else each engine has its own names
        )  # fmt: skip
        engine.events = events["endpoint"]
        made.append(engine)
    return World(folder, *made)


def few_blocks(folder: Path, options: Iterable[str] = ()) -> World:
    """Return a pair that has to preempt, not started."""
    return World(
        folder,
        *(
            Engine(
                name, folder, folder / "model",
                kvpull_config(folder, role, {"lease_ms": 30000}),
                [
                    "--num-gpu-blocks-override", str(FEW_BLOCKS),
                    "--max-num-seqs", "64",
                    "--scheduling-policy", "priority",
                    *options,
                ],
            )
            for name, role in ROLES
        ),
    )  # fmt: skip


def sinks(folder: Path) -> World:
    """Return a pair whose last layer has a window and sinks, not started."""
    model.make_sinks(folder / "sinks", 1, 64)
    return World(
        folder,
        *(
            Engine(
                name, folder, folder / "sinks",
                kvpull_config(folder, role, LEASE),
            )
            for name, role in ROLES
        ),
    )  # fmt: skip


def adapters_have_their_own_kv(world: World) -> None:
    """An adapter's KV is pulled for the adapter alone."""
    prompt = world.prompt(100)
    plain, own = world.alone(prompt), world.alone(prompt, model="adapted")
    assert plain != own, "the adapter changes nothing"
    at_d = Delta(world.d)
    params = world.prefill(prompt, model="adapted")
    assert world.decode(prompt, params, model="adapted") == own
    world.settled()
    at_d.check(worker_pulls_done=1, scheduler_mismatches=0)
    world.d.reset_prefix_cache()
    params = world.prefill(prompt, model="adapted")
    assert world.decode(prompt, params) == plain
    at_d.check(worker_pulls_done=1, scheduler_mismatches=1)
    world.settled()
    world.d.reset_prefix_cache()


def grammars_hold_after_a_pull(world: World) -> None:
    """A grammar limits D's tokens, from the first token behind P's KV on."""
    # No other word begins with one of these: a grammar has dead ends else.
    for more in (
        {"structured_outputs": {"choice": ["w5", "w7", "w9"]}},
        {"structured_outputs": {"regex": "(w5|w7|w9){5}"}},
    ):
        more = {**more, "ignore_eos": False}
        prompt = world.prompt(100)
        status, answer = world.d.complete(prompt, **more)
        assert status == 200, answer
        world.d.reset_prefix_cache()
        at_d = Delta(world.d)
        found = world.decode(prompt, world.prefill(prompt), **more)
        assert found == tokens(answer), f"{found}, {answer}"
        assert set(found[0]) <= {1, 5, 7, 9}, found
        world.settled()
        at_d.check(worker_pulls_done=1, worker_pulls_failed=0)


def urgent_requests_go_first(world: World) -> None:
    """D's slots are taken and others queue: an urgent ticket passes them."""
    prompts = [world.prompt(100 + number) for number in range(4)]
    alone = [world.alone(prompt) for prompt in prompts]
    ended: list[int] = []

    def ask(number: int, priority: int) -> None:
        found = world.decode(prompts[number], params[number], priority=priority)
        ended.append(number)
        assert found == alone[number], number

    at_d = Delta(world.d)
    params = [world.prefill(prompt) for prompt in prompts]
    with ThreadPoolExecutor(4) as pool, busy(world, SLOTS) as streams:
        asked = [
            pool.submit(ask, number, -5 if number == 3 else 5)
            for number in range(4)
        ]
        wait_for(
            "all four to wait",
            lambda: world.d.metrics()["vllm:num_requests_waiting"] >= 4,
        )
        streams[0].close()
        for one in asked:
            one.result()
    assert ended[0] == 3, ended
    world.settled()
    at_d.check(worker_pulls_done=4, worker_pulls_failed=0)


def events_name_what_was_pulled(world: World) -> None:
    """D publishes the blocks of a pull as stored, by the names P gave them."""
    prompt = world.prompt(100)
    with zmq.Context() as context:
        ears = {}
        for engine in (world.p, world.d):
            ears[engine.name] = ear = context.socket(zmq.SUB)
            ear.connect(engine.events)
            ear.subscribe(b"")
        heard: dict[str, dict[Any, list[int]]] = {"p": {}, "d": {}}

        def listen() -> bool:
            for name, ear in ears.items():
                while ear.poll(0):
                    _take(heard[name], ear.recv_multipart()[-1])
            return all(len(blocks) >= 3 for blocks in heard.values())

        time.sleep(0.5)  # who subscribes late hears nothing of before
        world.decode(prompt, world.prefill(prompt), max_tokens=1)
        wait_for("both engines' events", listen)
        for ear in ears.values():
            ear.close()
    whole = prompt[: len(prompt) // BLOCK_TOKENS * BLOCK_TOKENS]
    assert sum(heard["d"].values(), []) == whole, heard["d"]
    assert heard["d"] == heard["p"], heard
    world.d.reset_prefix_cache()
    world.settled()


def _take(blocks: dict[Any, list[int]], message: bytes) -> None:
    """Add the blocks that a batch of events says were stored."""
    for event in msgspec.msgpack.decode(message)[1]:
        if event["type"] != "BlockStored":
            continue
        size, ids = event["block_size"], event["token_ids"]
        for number, name in enumerate(event["block_hashes"]):
            blocks[name] = ids[number * size : (number + 1) * size]


def preempted(engine: Engine) -> float:
    """Return how often an engine has preempted a request."""
    return engine.metrics()["vllm:num_preemptions_total"]


def pulled_kv_is_preempted(world: World) -> None:
    """All begin at once, by pulls, and as they grow they fit no more."""
    count, length, grown = 10, 14 * BLOCK_TOKENS, 10 * BLOCK_TOKENS
    prompts = [world.prompt(length - 5) for _ in range(count)]
    with ThreadPoolExecutor(count) as pool:
        ask = partial(complete, world.d.url, max_tokens=grown)
        alone = list(pool.map(ask, prompts))
        world.d.reset_prefix_cache()
        params = list(pool.map(world.prefill, prompts))
        at_d, before = Delta(world.d), preempted(world.d)
        decode = partial(world.decode, max_tokens=grown)
        assert list(pool.map(decode, prompts, params)) == alone
    world.settled()
    at_d.check(worker_pulls_done=count, worker_pulls_failed=0)
    often = preempted(world.d) - before
    assert often, "they fitted"
    world.say(f"{count} pulled, {often:.0f} preempted")
    world.d.reset_prefix_cache()


def crowds_preempt_and_are_right(world: World) -> None:
    """200 at once with shared beginnings, some leave: D and P preempt."""
    families = [world.prompt(64 + 32 * number) for number in range(FAMILIES)]
    prompts = [
        families[number % FAMILIES] + world.prompt(5 + 7 * number)
        for number in range(CROWD_PROMPTS)
    ]
    draw = random.Random(world.seed)
    port = int(world.router_url.rsplit(":", 1)[1])
    answered = partial(complete, max_tokens=CROWD_TOKENS)
    with ThreadPoolExecutor(8) as pool:
        alone = list(pool.map(partial(answered, world.d.url), prompts))
    world.d.reset_prefix_cache()
    ended: Counter[str] = Counter()

    def ask(number: int, delay_s: float, priority: int) -> None:
        which = number % CROWD_PROMPTS
        more = {"priority": priority, "cache_salt": f"{number // 50}"}
        if number % 8 == 7:
            with begin(port, prompts[which], **more):
                time.sleep(delay_s)
            ended["left"] += 1
            return
        found = answered(world.router_url, prompts[which], **more)
        ended["right" if found == alone[which] else "wrong"] += 1

    at_p, at_d = Delta(world.p), Delta(world.d)
    before = [preempted(engine) for engine in world.engines]
    with ExitStack() as streams, ThreadPoolExecutor(CROWD) as pool:
        for priority in BEFORE + BEHIND:
            streams.enter_context(
                world.p.stream(
                    world.prompt(HOG_PROMPT),
                    max_tokens=HOG_TOKENS,
                    priority=priority,
                )
            )
        wait_for("P to preempt", lambda: preempted(world.p) > before[0], 60)
        asked = [
            pool.submit(ask, n, draw.uniform(0, 4), draw.randrange(-5, 5))
            for n in range(CROWD)
        ]
        for one in asked:
            one.result()
    world.settled(60)
    for engine in world.engines:
        wait_for(
            f"{engine.name}'s blocks",
            lambda engine=engine: engine.cache_usage() == 0,
        )
        assert engine.counter("shim_dropped") == 0
    assert ended["wrong"] == 0 and ended["right"] == CROWD * 7 // 8, ended
    often = [
        preempted(engine) - count
        for engine, count in zip(world.engines, before, strict=True)
    ]
    assert all(often), f"preempted at P and D: {often}"
    world.say(
        f"{dict(ended)}; preempted {often[0]:.0f} at P, {often[1]:.0f} at D; "
        f"{at_d('worker_pulls_done'):.0f} pulled, "
        f"{at_p('worker_holds_expired'):.0f} expired"
    )


def windows_with_sinks_give_the_same_tokens(world: World) -> None:
    """As windows do; each head has a sink beside."""
    at_d = Delta(world.d)
    for length in (40, 94, 96, 128, 300):
        prompt = world.prompt(length)
        alone = world.alone(prompt)
        found = world.decode(prompt, world.prefill(prompt))
        assert found == alone, f"{length}: {found}, {alone}"
        world.settled()
    at_d.check(
        worker_pulls_done=5, worker_pulls_failed=0, scheduler_pulls_failed=0
    )


KINDS: list[Scenario] = [
    adapters_have_their_own_kv,
    grammars_hold_after_a_pull,
    urgent_requests_go_first,
    events_name_what_was_pulled,
]
CROWDS: list[Scenario] = [
    pulled_kv_is_preempted,
    crowds_preempt_and_are_right,
]
SINKS: list[Scenario] = [windows_with_sinks_give_the_same_tokens]
