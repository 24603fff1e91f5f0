# SPDX-License-Identifier: Apache-2.0
"""Recurrent states: a model that keeps them beside attention is pulled whole.

P computes a prompt up to its last token and holds the state after that; D loads
it with all blocks of attention, and computes the last token itself. A third
engine spoils what it has pulled, as spoiled.py says: its tokens must differ.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import model
from engine import Engine, kvpull_config, tokens
from scenarios import Scenario
from world import LEASE_S, SLOTS, Delta, World

OPTIONS = ["--dtype", "bfloat16", "--enable-prefix-caching"]
LEASE = {"lease_ms": int(LEASE_S * 1000)}
LENGTHS = 7, 100, 288, 289, 290, 600, 1200, 1500, 2000
ANSWER = 24
TWICE = {"n": 2, "temperature": 1, "top_k": 1}
CROWD, CROWD_PROMPTS = 200, 16
# Tokens of the prompts that the controls pull.
SPOILED_LENGTHS = 100, 600, 1500
# Tokens of a step's chunk, at P and at D: neither is a whole number of blocks.
CHUNKS = {"p": 1100, "d": 700}


def _pair(folder: Path, made: str, options: dict[str, list[str]]) -> World:
    """Return P, D and a D that spoils, each with its options, of a model."""
    engines = []
    for name, role, like in (
        ("p", "kv_producer", "p"),
        ("d", "kv_consumer", "d"),
        ("spoiler", "kv_consumer", "d"),
    ):
        transfer = kvpull_config(folder, role, LEASE)
        if name == "spoiler":
            transfer["kv_connector_module_path"] = "spoiled"
        engines.append(
            Engine(
                name, folder, folder / made, transfer,
                ["--max-num-seqs", str(2 * SLOTS), *options[like]],
            )
        )  # fmt: skip
    p, d, spoiler = engines
    return World(folder, p, d, [spoiler])


def states(folder: Path) -> World:
    """Return engines with recurrent layers, not started."""
    model.make_states(folder / "states", 1)
    return _pair(folder, "states", {
        name: [*OPTIONS, "--max-num-batched-tokens", str(tokens_a_step)]
        for name, tokens_a_step in CHUNKS.items()
    })  # fmt: skip


def recurrent(folder: Path) -> World:
    """Return engines whose layers all keep a state, not started.

    vLLM's CPU code for it ends at a prompt of several chunks where there is a
    prefix cache. Without one a request has one slot, whatever its length.
    """
    model.make_recurrent(folder / "recurrent", 1)
    options = ["--no-enable-prefix-caching"]
    return _pair(folder, "recurrent", {"p": options, "d": options})


def _asked(world: World, length: int) -> tuple[list[int], list[list[int]]]:
    """Return a prompt, and what follows it by one engine.

    Kernels that compute a row of tokens and those that compute one differ in the
    last bits of bfloat16. D computes the prompt's last token alone, so it is one
    that P has made, and has computed alone, too.
    """
    begin = world.prompt(length - 1)
    status, answer = world.p.complete(begin, max_tokens=ANSWER + 1)
    assert status == 200, answer
    (made,) = tokens(answer)
    world.p.reset_prefix_cache()
    return begin + made[:1], [made[1:]]


def _pulled(world: World, prompt: list[int], **more: Any) -> list[list[int]]:
    """Prefill at P, decode at D, with nothing in the prefix caches."""
    for engine in (world.p, world.d):
        engine.reset_prefix_cache()
    params = world.prefill(prompt, **more)
    return world.decode(prompt, params, max_tokens=ANSWER, **more)


def states_give_the_same_tokens(world: World) -> None:
    """Each length, and two answers of one prompt."""
    at_d, first = Delta(world.d), Counter[bool]()
    for length in LENGTHS:
        prompt, right = _asked(world, length)
        found = _pulled(world, prompt)
        assert found == right, f"{length}: {found}, {right}"
        for one in _pulled(world, prompt, **TWICE):
            first[one[0] == right[0][0]] += 1
    _judge(world, first)
    world.settled()
    at_d.check(
        worker_pulls_done=3 * len(LENGTHS),
        worker_pulls_failed=0,
        scheduler_mismatches=0,
    )


def _spoiled(world: World, prompt: list[int], fault: str) -> list[list[int]]:
    """Pull to the engine that spoils; return its tokens."""
    (spoiler,) = world.others
    for engine in (world.p, spoiler):
        engine.reset_prefix_cache()
    params = {**world.prefill(prompt), "spoiled": fault}
    status, answer = spoiler.complete(
        prompt, kv_transfer_params=params, max_tokens=ANSWER
    )
    assert status == 200, answer
    return tokens(answer)


def spoiled_states_give_other_tokens(world: World) -> None:
    """The control: zeroed states, and states of a token less.

    The engine gives the right tokens where it spoils nothing, and where it
    writes a state over by the state of an earlier pull of the same tokens.
    """
    at_spoiler = Delta(world.others[0])
    for length in SPOILED_LENGTHS:
        prompt, right = _asked(world, length)
        for fault, of, differs in (
            ("", prompt, False),
            ("states kept", prompt, False),
            ("states of kept", prompt, False),
            ("states kept", prompt[:-1], None),
            ("states of kept", prompt, True),
            ("states zeroed", prompt, True),
        ):
            found = _spoiled(world, of, fault)
            said = f"{length}, {fault or 'no fault'}: {found}, {right}"
            assert differs is None or (found != right) == differs, said
    world.settled()
    at_spoiler.check(
        worker_pulls_done=6 * len(SPOILED_LENGTHS), worker_pulls_failed=0
    )


def spoiled_attention_gives_other_tokens(world: World) -> None:
    """The control: blocks of attention zeroed, beside states that are right."""
    at_spoiler = Delta(world.others[0])
    for length in SPOILED_LENGTHS:
        prompt, right = _asked(world, length)
        found = _spoiled(world, prompt, "attention zeroed")
        assert found != right, f"{length}: {found}"
        assert _spoiled(world, prompt, "") == right, length
    world.settled()
    at_spoiler.check(
        worker_pulls_done=2 * len(SPOILED_LENGTHS), worker_pulls_failed=0
    )


def _judge(world: World, first: Counter[bool]) -> None:
    """Judge first tokens of requests that were computed beside others.

    Rows of a batch differ in the last bits, too, and seldom in a token. Of a
    state that is another one hardly any first token is right: test_states.py.
    """
    asked = first.total()
    assert first[True] >= 0.9 * asked, first
    world.say(f"{first[True]} of {asked} first tokens are alike in batches")


def crowds_with_states_are_right(world: World) -> None:
    """200 requests, some of which leave."""
    asked = [_asked(world, 40 + 97 * n) for n in range(CROWD_PROMPTS)]
    draw = random.Random(world.seed)
    left, first = Counter[str](), Counter[bool]()

    def ask(number: int, delay_s: float) -> None:
        prompt, right = asked[number % CROWD_PROMPTS]
        time.sleep(delay_s)
        params = world.prefill(prompt)
        if number % 5 == 4:
            world.d.leave(prompt, 0.01, kv_transfer_params=params)
            left["left"] += 1
            return
        found = world.decode(prompt, params, max_tokens=ANSWER)
        first[found[0][0] == right[0][0]] += 1

    with ThreadPoolExecutor(16) as pool:
        made = [
            pool.submit(ask, number, draw.random() * 0.1)
            for number in range(CROWD)
        ]
        for one in made:
            one.result()
    world.settled(2 * LEASE_S)
    assert left["left"] + first.total() == CROWD
    _judge(world, first)


RECURRENT: list[Scenario] = [
    states_give_the_same_tokens,
    spoiled_states_give_other_tokens,
    crowds_with_states_are_right,
]
STATES: list[Scenario] = [*RECURRENT, spoiled_attention_gives_other_tokens]
