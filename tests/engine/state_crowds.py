# SPDX-License-Identifier: Apache-2.0
"""Crowds of requests whose model keeps recurrent states, some preempted.

Each answer is compared whole with that of an engine that had the prompt alone:
see judged.py. Each request has a salt of its own, so that no prefix cache
answers for a pull.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

import model
import states
from engine import Engine, kvpull_config, post, tokens, wait_for
from judged import ANSWER, NEAR, Asked, asked_of, verdicts
from kinds import BEFORE, BEHIND, ROLES, preempted
from scenarios import Scenario
from world import LEASE_S, Delta, World

CROWD, CROWD_PROMPTS, LEAVING = 200, 50, 40
SPOILED = 40
# Every so often all that runs at P and at D is preempted; so many times, since
# on a slow machine nothing would come to its end in between.
EVERY_S, RESETS_MAX = 0.2, 20
EVICTED, EVICTED_PROMPTS = 30, 10
# A prompt of the crowd has a block of attention and three states, and as many
# more when its answer goes beyond the block, of 288 tokens.
FEW_BLOCKS, FEW_CROWD, FEW_PROMPTS = {"p": 44, "d": 64}, 100, 16
# P's own requests leave their blocks one after the other, and not all at once.
HOG_PROMPT, HOG_STEP, HOG_TOKENS = 460, 14, 900
HOGS_MIN = 5  # that run before others come, which go before most of them
# Crowds at most, until each engine has preempted so often.
ROUNDS_MAX, OFTEN = 8, 3


def few_blocks(folder: Path) -> World:
    """Return P and D whose blocks do not hold what runs, not started."""
    model.make_states(folder / "states", 1)
    made = [
        Engine(
            name, folder, folder / "states",
            kvpull_config(folder, role, {"lease_ms": 30000}),
            [
                *states.BFLOAT16, *states.CACHED,
                "--num-gpu-blocks-override", str(FEW_BLOCKS[name]),
                "--max-num-seqs", "64",
                "--scheduling-policy", "priority",
            ],
        )
        for name, role in ROLES
    ]  # fmt: skip
    return World(folder, *made, near=NEAR)


def prompts(world: World, lengths: list[int]) -> list[Asked]:
    """Return prompts of these lengths, and what follows each by one engine."""
    return [asked_of(world, length) for length in lengths]


def answers(
    world: World,
    d: Engine,
    asked: list[Asked],
    numbers: range,
    leaving: int = 0,
    fault: str = "",
) -> list[list[int]]:
    """Return answers that are asked for at once by P and this D, all pulled.

    Clients that are leaving ask beside them, and leave D before it answers.
    """

    def ask(number: int) -> list[int]:
        prompt, _ = asked[number % len(asked)]
        salt = {"cache_salt": f"{fault} {number}"}
        params = {**world.prefill(prompt, **salt), "spoiled": fault}
        more = {"kv_transfer_params": params, "max_tokens": ANSWER, **salt}
        if number >= numbers.stop:
            d.leave(prompt, 0.01, **more)
            return []
        status, answer = d.complete(prompt, **more)
        assert status == 200, answer
        told = answer["kv_transfer_params"] or {}
        assert "kvpull_computed" not in told, told
        (found,) = tokens(answer)
        return found

    count = len(numbers) + leaving
    everybody = range(numbers.start, numbers.start + count)
    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(ask, everybody))[: len(numbers)]


def judge(world: World, asked: list[Asked], found: list[list[int]]) -> None:
    """Assert that no answer is wrong."""
    world.settled(2 * LEASE_S)
    counts = verdicts(world, asked, found)
    assert not counts["wrong"], counts
    world.say(f"{len(found)} answers: {dict(counts)}")


def crowds_with_states_are_right(world: World) -> None:
    """200 requests at once; 40 clients more leave when they have asked D."""
    asked = prompts(world, [40 + 13 * n for n in range(CROWD_PROMPTS)])
    at_d = Delta(world.d)
    found = answers(world, world.d, asked, range(CROWD), LEAVING)
    judge(world, asked, found)
    assert at_d("worker_pulls_done") >= CROWD
    at_d.check(scheduler_mismatches=0)


def spoiled_crowds_are_wrong(world: World) -> None:
    """The control: with zeroed states each answer of a crowd is wrong."""
    asked = prompts(world, [40 + 17 * n for n in range(SPOILED)])
    (spoiler,) = world.others
    found = answers(
        world, spoiler, asked, range(SPOILED), fault="states zeroed"
    )
    counts = verdicts(world, asked, found)
    assert counts == {"wrong": SPOILED}, counts


def preempted_crowds_are_right(
    world: World,
    asked: list[Asked],
    count: int,
    beside: Callable[[World], AbstractContextManager[None]],
) -> None:
    """Ask for crowds, one after the other, until both engines have preempted.

    Each has something beside it that takes the blocks.
    """
    engines = world.p, world.d
    found: list[list[int]] = []
    before = [preempted(engine) for engine in engines]
    at_d = Delta(world.d)
    for _ in range(ROUNDS_MAX):
        with beside(world):
            numbers = range(len(found), len(found) + count)
            found += answers(world, world.d, asked, numbers)
        now = [preempted(engine) for engine in engines]
        often = [a - b for a, b in zip(now, before, strict=True)]
        if min(often) >= OFTEN:
            break
    assert min(often) >= OFTEN, f"preempted at P and D: {often}"
    world.say(f"preempted {often[0]:.0f} at P, {often[1]:.0f} at D")
    judge(world, asked, found)
    at_d.check(worker_pulls_done=len(found), worker_pulls_failed=0)
    for engine in engines:
        wait_for(
            f"{engine.name}'s blocks",
            lambda engine=engine: engine.cache_usage() == 0,
        )
        assert engine.counter("shim_dropped") == 0


@contextmanager
def preempting(world: World) -> Iterator[None]:
    """Have P and D preempt all that they run, again and again.

    vLLM answers 500 where blocks are held, but has preempted by then.
    """
    over = threading.Event()

    def preempt(engine: Engine) -> None:
        reset = "reset_prefix_cache?reset_running_requests=true"
        for _ in range(RESETS_MAX):
            if over.wait(EVERY_S):
                return
            post(f"{engine.url}/{reset}", None)

    with ThreadPoolExecutor(2) as pool:
        asked = [pool.submit(preempt, one) for one in (world.p, world.d)]
        try:
            yield
        finally:
            over.set()
        for one in asked:
            one.result()


@contextmanager
def hogs(world: World) -> Iterator[None]:
    """Have P decode what alone is more than its blocks hold."""
    with ExitStack() as streams:
        for number, priority in enumerate(BEFORE + BEHIND):
            streams.enter_context(
                world.p.stream(
                    world.prompt(HOG_PROMPT + HOG_STEP * number),
                    max_tokens=HOG_TOKENS,
                    priority=priority,
                )
            )
        wait_for(
            "P to run them",
            lambda: world.p.metrics()["vllm:num_requests_running"] >= HOGS_MIN,
            60,
        )
        yield


def preempted_states_are_right(world: World) -> None:
    """P is preempted while it prefills, D while it decodes what it pulled.

    vLLM is asked to. By itself it never preempts a model of recurrent layers
    alone: each request has one slot, which does not grow.
    """
    asked = prompts(world, [300 + 97 * n for n in range(EVICTED_PROMPTS)])
    preempted_crowds_are_right(world, asked, EVICTED, preempting)


def crowds_preempt_states(world: World) -> None:
    """Blocks are short at both engines, which preempt by themselves.

    At D all pulled prompts grow out of their last block at once.
    """
    asked = prompts(world, [270 + n for n in range(FEW_PROMPTS)])
    preempted_crowds_are_right(world, asked, FEW_CROWD, hogs)


CROWDS: list[Scenario] = [
    crowds_with_states_are_right,
    spoiled_crowds_are_wrong,
    preempted_states_are_right,
]
FEW: list[Scenario] = [crowds_preempt_states]
