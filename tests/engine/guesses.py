# SPDX-License-Identifier: Apache-2.0
"""Speculative decoding: engines that look up what may come next, and those that don't.

Drafts of the ngram method are no part of what P holds: who guesses and who does
not pull from each other, and no answer changes.
"""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import kinds
from engine import Engine, begin, kvpull_config, tokens, wait_for
from scenarios import Scenario
from world import HOLD, LEASE_S, SLOTS, Delta, World

NGRAM = {
    "method": "ngram",
    "num_speculative_tokens": 4,
    "prompt_lookup_max": 3,
    "prompt_lookup_min": 1,
}
SPECULATES = ["--speculative-config", json.dumps(NGRAM)]
LENGTHS = 7, 32, 95, 500, 1500
ANSWER = 48
CROWD, CROWD_PROMPTS = 200, 25


def guesses(folder: Path) -> World:
    """Return P and another D that guess, and a D that does not, not started."""
    made = []
    for name, role, chunk, options in (
        ("p", "kv_producer", 256, SPECULATES),
        ("d", "kv_both", 512, []),
        ("guessing", "kv_consumer", 128, SPECULATES),
    ):
        made.append(
            Engine(
                name, folder, folder / "model",
                kvpull_config(folder, role, {"lease_ms": int(LEASE_S * 1000)}),
                [
                    "--max-num-seqs", str(2 * SLOTS),
                    "--max-num-batched-tokens", str(chunk),
                    *options,
                ],
            )  # fmt: skip
        )
    return World(folder, made[0], made[1], others=made[2:])


def guessing_crowd(folder: Path) -> World:
    """Return a pair that guesses at both ends and has to preempt, not started."""
    return kinds.few_blocks(folder, SPECULATES)


def _pairs(world: World) -> list[tuple[Engine, Engine]]:
    """Return who prefills and who decodes: one guesses, the other, both."""
    guessing = world.others[0]
    return [(world.p, world.d), (world.d, guessing), (world.p, guessing)]


def repeating(world: World, length: int) -> list[int]:
    """Return a prompt that says some things twice, so that drafts are found."""
    part = world.prompt(-(-length // 3))
    return (world.prompt(length % 5) + part * 3)[:length]


def alone(engine: Engine, prompt: list[int]) -> list[list[int]]:
    """Return what an engine that never guesses answers by itself."""
    status, answer = engine.complete(prompt, max_tokens=ANSWER)
    assert status == 200, answer
    engine.reset_prefix_cache()
    return tokens(answer)


def answered(
    p: Engine, d: Engine, prompt: list[int], **more: object
) -> dict[str, Any]:
    """Prefill at one engine, decode at another one; return its answer."""
    own = {**more, "max_tokens": 1, "kv_transfer_params": HOLD}
    status, answer = p.complete(prompt, **own)
    assert status == 200, answer
    status, answer = d.complete(
        prompt,
        max_tokens=ANSWER,
        kv_transfer_params=answer["kv_transfer_params"],
        **more,
    )
    assert status == 200, answer
    return answer


def through(
    p: Engine, d: Engine, prompt: list[int], **more: object
) -> list[list[int]]:
    """Return the tokens that answered() has."""
    return tokens(answered(p, d, prompt, **more))


def drafts_of(engine: Engine) -> tuple[float, float]:
    """Return how many drafts an engine has had, and has accepted."""
    found = engine.metrics()
    return (
        found["vllm:spec_decode_num_draft_tokens_total"],
        found["vllm:spec_decode_num_accepted_tokens_total"],
    )


def guesses_change_no_token(world: World) -> None:
    """Each length, at one end, the other, both; two answers of a prompt, too."""
    # As good as greedy, of which vLLM refuses two; but 0.32 samples otherwise
    # where it guesses, and ends at a step with top_k and no draft.
    twice = {"n": 2, "temperature": 1, "top_p": 1e-9}
    for p, d in _pairs(world):
        at_d = Delta(d)
        for length in LENGTHS:
            prompt = repeating(world, length)
            own = alone(world.d, prompt)
            for more in ({}, twice):
                for engine in (p, d):
                    engine.reset_prefix_cache()
                found = through(p, d, prompt, **more)
                if more and d is not world.d:
                    assert [len(one) for one in found] == [ANSWER] * 2
                    continue
                assert found == own * len(found), (
                    f"{p.name} to {d.name}, {length}: {found}, {own}"
                )
        count = 2 * len(LENGTHS)
        at_d.check(
            worker_pulls_done=count,
            worker_pulls_failed=0,
            scheduler_pulls_failed=0,
        )
        world.say(f"{p.name} to {d.name}: {count} pulled")
    drafts, kept = drafts_of(world.others[0])
    assert 0 < kept < drafts, f"{kept} of {drafts} drafts were right"
    world.say(f"{kept:.0f} of {drafts:.0f} drafts accepted")


def crowds_are_right(
    world: World, pairs: list[tuple[Engine, Engine]], reference: Engine
) -> None:
    """Ask 200 times at once of each pair; some clients leave."""
    prompts = [repeating(world, 40 + 13 * n) for n in range(CROWD_PROMPTS)]
    own = [alone(reference, prompt) for prompt in prompts]
    draw = random.Random(world.seed)
    ended: Counter[str] = Counter()

    def ask(p: Engine, d: Engine, number: int, delay_s: float) -> None:
        which = number % CROWD_PROMPTS
        # No prefix cache answers for a pull.
        more = {"cache_salt": f"{p.name} {d.name} {number}"}
        if number % 8 == 7:
            with begin(
                p.port, prompts[which], kv_transfer_params=HOLD, **more
            ):
                time.sleep(delay_s)
            ended["left"] += 1
            return
        found = through(p, d, prompts[which], **more)
        ended["right" if found == own[which] else "wrong"] += 1

    for p, d in pairs:
        at_d = Delta(d)
        with ThreadPoolExecutor(CROWD) as pool:
            asked = [
                pool.submit(ask, p, d, number, draw.uniform(0, 0.3))
                for number in range(CROWD)
            ]
            for one in asked:
                one.result()
        at_d.check(
            worker_pulls_done=CROWD * 7 // 8,
            worker_pulls_failed=0,
            scheduler_pulls_failed=0,
        )
    right = len(pairs) * CROWD * 7 // 8
    assert not ended["wrong"] and ended["right"] == right, ended
    for engine in world.engines:
        wait_for(
            f"{engine.name}'s blocks",
            lambda engine=engine: engine.cache_usage() == 0,
            4 * LEASE_S,
        )
        assert engine.counter("shim_dropped") == 0
        assert not engine.logged(r"ERROR \S+ kvpull")
    world.say(f"{dict(ended)}")


def crowds_that_guess_are_right(world: World) -> None:
    """200 requests of each pair, some of which leave."""
    crowds_are_right(world, _pairs(world), world.d)


GUESSES: list[Scenario] = [
    guesses_change_no_token,
    crowds_that_guess_are_right,
]
