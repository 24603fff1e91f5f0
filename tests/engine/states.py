# SPDX-License-Identifier: Apache-2.0
"""Recurrent states: a model that keeps them beside attention is pulled whole.

P computes a prompt up to its last token and holds the state after that; D loads
it with all blocks of attention, and computes the last token itself. A third
engine spoils what it has pulled, as spoiled.py says: its tokens must differ.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import model
from engine import Engine, kvpull_config, tokens
from judged import ANSWER, NEAR, TWICE, asked_of, pulled, verdicts
from scenarios import Scenario
from world import LEASE_S, SLOTS, Delta, World

BFLOAT16 = ["--dtype", "bfloat16"]
CACHED, UNCACHED = ["--enable-prefix-caching"], ["--no-enable-prefix-caching"]
LEASE = {"lease_ms": int(LEASE_S * 1000)}
LENGTHS = 7, 100, 288, 289, 290, 600, 1200, 1500, 2000
# Tokens of the prompts that the controls pull.
SPOILED_LENGTHS = 100, 600, 1500
# Tokens of a step's chunk, at P and at D: neither is a whole number of blocks.
CHUNKS = {"p": 1100, "d": 700}


def _pair(
    folder: Path, made: str, options: dict[str, list[str]], near: float = 0
) -> World:
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
                ["--max-num-seqs", str(8 * SLOTS), *options[like]],
            )
        )  # fmt: skip
    p, d, spoiler = engines
    return World(folder, p, d, [spoiler], near=near)


def states(folder: Path, caching: list[str] = CACHED) -> World:
    """Return engines with recurrent layers, not started."""
    model.make_states(folder / "states", 1)
    return _pair(folder, "states", {
        name: [*BFLOAT16, *caching, "--max-num-batched-tokens", str(chunk)]
        for name, chunk in CHUNKS.items()
    }, NEAR)  # fmt: skip


def recurrent(folder: Path) -> World:
    """Return engines whose layers all keep a state, not started.

    vLLM's CPU code for it ends at a prompt of several chunks where there is a
    prefix cache. Without one a request has one slot, whatever its length.
    """
    model.make_recurrent(folder / "recurrent", 1)
    return _pair(folder, "recurrent", {"p": UNCACHED, "d": UNCACHED})


def states_give_the_same_tokens(world: World) -> None:
    """Each length, and two answers of one prompt."""
    at_d, asked, twice = Delta(world.d), [], []
    for length in LENGTHS:
        prompt, right = asked_of(world, length)
        found = pulled(world, prompt)
        assert found == right, f"{length}: {found}, {right}"
        asked += [(prompt, right)] * 2
        twice += pulled(world, prompt, **TWICE)
    world.settled()
    counts = verdicts(world, asked, twice)
    assert not counts["wrong"], counts
    world.say(f"two answers of a prompt: {dict(counts)}")
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
        prompt, right = asked_of(world, length)
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
        prompt, right = asked_of(world, length)
        found = _spoiled(world, prompt, "attention zeroed")
        assert found != right, f"{length}: {found}"
        assert _spoiled(world, prompt, "") == right, length
    world.settled()
    at_spoiler.check(
        worker_pulls_done=2 * len(SPOILED_LENGTHS), worker_pulls_failed=0
    )


RECURRENT: list[Scenario] = [
    states_give_the_same_tokens,
    spoiled_states_give_other_tokens,
]
STATES: list[Scenario] = [*RECURRENT, spoiled_attention_gives_other_tokens]
