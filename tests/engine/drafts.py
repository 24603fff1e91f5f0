# SPDX-License-Identifier: Apache-2.0
"""Speculative decoding by layers with KV of their own.

These are EAGLE's, EAGLE3's, MTP's, and those of draft models.

P and D have the same layers and other numbers of drafts. A third engine has no
such layers: its tokens are those that have to come, and P and D refuse it.
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import drafted
import guesses
import model
from engine import Engine, kvpull_config, tokens
from guesses import alone, answered, drafts_of, through
from scenarios import Scenario
from world import LEASE_S, SLOTS, Delta, World

LENGTHS = 7, 32, 64, 95, 500, 1500
# So much of the share of right drafts that an engine has by itself is right
# where the draft model's KV was pulled; of another one's KV less than LOST is.
KEPT, LOST = 0.85, 0.7
SHARES = 12  # prompts of which the shares are


def _options(folder: Path, kind: str, layers: str, count: int) -> list[str]:
    """Return the options of an engine with so many drafts a step."""
    found: dict[str, Any] = {"method": kind, "num_speculative_tokens": count}
    if kind != "mtp":
        found["model"] = str(folder / layers)
    return ["--speculative-config", json.dumps(found)]


def drafts(folder: Path, kind: str) -> World:
    """Return P and D whose layers draft, and who has none, not started."""
    if kind == "mtp":
        drafted.make_mtp(folder / "model", 1)
    elif kind == "draft_model":
        drafted.make_near(folder / "layers", 1)
        model.make(folder / "other-layers", 3)
    elif kind == "eagle3":
        drafted.make_eagle3(folder / "layers", 2)
    else:
        drafted.make_eagle(folder / "layers", 2)
    engines = [
        ("p", "kv_producer", 256, _options(folder, kind, "layers", 3)),
        ("d", "kv_consumer", 128, _options(folder, kind, "layers", 5)),
        ("plain", "kv_both", 512, []),
    ]
    extra: dict[str, Any] = {"lease_ms": int(LEASE_S * 1000)}
    if kind == "draft_model":
        # Another draft model by the same name: the negative control.
        extra["weights"] = "named alike"
        other = _options(folder, kind, "other-layers", 3)
        engines.append(("wrong", "kv_producer", 256, other))
    made = [
        Engine(
            name, folder, folder / "model",
            kvpull_config(folder, role, extra),
            [
                "--max-num-seqs", str(2 * SLOTS),
                "--max-num-batched-tokens", str(chunk),
                *options,
            ],
        )
        for name, role, chunk, options in engines
    ]  # fmt: skip
    return World(folder, made[0], made[1], others=made[2:])


def layers_that_draft_change_no_token(world: World) -> None:
    """Each length; the draft layers' blocks are pulled with the others."""
    plain, at_d = world.others[0], Delta(world.d)
    for length in LENGTHS:
        prompt = guesses.repeating(world, length)
        own = alone(plain, prompt)
        for engine in (world.p, world.d):
            engine.reset_prefix_cache()
        found = through(world.p, world.d, prompt)
        assert found == own, f"{length}: {found}, {own}"
    at_d.check(
        worker_pulls_done=len(LENGTHS),
        worker_pulls_failed=0,
        scheduler_pulls_failed=0,
    )
    count, kept = drafts_of(world.d)
    assert count > 0
    world.say(f"{len(LENGTHS)} pulled, {kept:.0f} of {count:.0f} drafts accepted")


def crowds_that_draft_are_right(world: World) -> None:
    """200 requests, some of which leave."""
    guesses.crowds_are_right(world, [(world.p, world.d)], world.others[0])


def _told(engine: Engine) -> list[str]:
    """Return what an engine's log says of weights that differ."""
    line = r"(weights\S* is .+ (?:here|there) and .+ (?:here|there))"
    return engine.log_words(line)


def layers_that_draft_at_one_end_are_refused(world: World) -> None:
    """At P alone, at D alone: D computes, and both logs say what differs."""
    plain = world.others[0]
    for p, d in ((world.p, plain), (plain, world.d)):
        before = [len(_told(engine)) for engine in (p, d)]
        for _ in range(2):  # the first contact, and a later request
            prompt = world.prompt(100)
            own = alone(plain, prompt)
            answer = answered(p, d, prompt)
            assert tokens(answer) == own
            why = answer["kv_transfer_params"]["kvpull_computed"]
            assert "another model, configuration or layout" in why, why
        for engine, count in zip((p, d), before, strict=True):
            told = _told(engine)[count:]
            assert told, f"{engine.name} does not name what differs"
            assert "drafts by" in told[0], told
        world.say(f"{p.name} to {d.name}: {told[0]}")


def a_draft_model_has_its_own_kv(world: World) -> None:
    """Pulled KV drafts as well as computed KV does; KV of another model does not.

    No token is wrong in either case: the share of right drafts tells them apart.
    """
    plain, wrong = world.others
    prompts = [world.prompt(200 + 9 * n) for n in range(SHARES)]
    shares = {}
    for name, p in (("alone", None), ("pulled", world.p), ("wrong", wrong)):
        count, kept = drafts_of(world.d)
        for prompt in prompts:
            world.d.reset_prefix_cache()
            own = alone(plain, prompt)
            found = through(p, world.d, prompt) if p else alone(world.d, prompt)
            assert found == own, f"{name}: {found}, {own}"
        after = drafts_of(world.d)
        shares[name] = (after[1] - kept) / (after[0] - count)
    world.say(", ".join(f"{name} {one:.2f}" for name, one in shares.items()))
    assert shares["pulled"] > KEPT * shares["alone"], shares
    assert shares["wrong"] < LOST * shares["alone"], shares


_ALL: list[Scenario] = [
    layers_that_draft_change_no_token,
    crowds_that_draft_are_right,
]
DRAFTS = {
    "eagle": [*_ALL, layers_that_draft_at_one_end_are_refused],
    "eagle3": [*_ALL, layers_that_draft_at_one_end_are_refused],
    "mtp": [*_ALL, layers_that_draft_at_one_end_are_refused],
    "draft_model": [*_ALL, a_draft_model_has_its_own_kv],
}
GROUPS = [
    (kind, partial(drafts, kind=kind), claims)
    for kind, claims in DRAFTS.items()
]
