# SPDX-License-Identifier: Apache-2.0
"""Runs the scenarios against real engines.

run.py FOLDER [--smoke] [--nixl FOLDER] [--only NAME]...; one of the names is
readme: the lines of README.md.
"""

from __future__ import annotations

import argparse
import shutil
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path

import beside
import chaos
import drafts
import firsts
import fleet
import guesses
import kinds
import latent
import model
import offloaded
import pooled
import readme
import rollout
import runner
import scenarios
import state_crowds
import states
import updates
from engine import Engine, kvpull_config
from world import SLOTS, World


Group = tuple[str, Callable[[Path], World], list[scenarios.Scenario]]


def pair(folder: Path, full: bool) -> World:
    """Return one P and one D with few slots, not started."""
    made = [
        Engine(
            name,
            folder,
            folder / "model",
            kvpull_config(folder, role, fleet.LEASE),
            options,
        )
        for name, role, options in (
            ("p", "kv_producer", updates.EXTENSION),
            (
                "d",
                "kv_consumer",
                ["--max-num-seqs", str(SLOTS), *updates.EXTENSION],
            ),
        )
    ]
    return World(folder, *made, full=full)


def judge(world: World, scenario: scenarios.Scenario) -> bool:
    """Run one scenario; print its line; say whether it holds."""
    began = time.monotonic()
    world.said.clear()
    name = scenario.__name__
    try:
        scenario(world)
    except Exception:  # every failure of a scenario is its own
        said = traceback.format_exc()
        for engine in world.engines:
            said += f"---- {engine.name}: {engine.counters_or_none()}\n"
            said += engine.tail() + "\n"
        print(runner.failure(name, said), flush=True)
        world.revive()
        return False
    took = time.monotonic() - began
    text = ", ".join(world.said)
    print(f"  ok {name} ({took:.1f} s) {text}", flush=True)
    return True


def run(
    folder: Path,
    make: Callable[[Path], World],
    claims: list[scenarios.Scenario],
) -> list[bool]:
    """Start engines and run the scenarios on them; what holds."""
    if not claims:
        return []
    folder.mkdir(parents=True)
    for name, seed in (("model", 1), ("other", 2)):
        model.make(folder / name, seed)
    world = make(folder)
    began = time.monotonic()
    try:
        world.start()
    except Exception:  # an engine that does not start fails all its claims
        name = f"to start {folder.name}"
        print(runner.failure(name, traceback.format_exc()), flush=True)
        return [False] * len(claims)
    took = time.monotonic() - began
    print(f"  {folder.name}: engines serve after {took:.0f} s", flush=True)
    try:
        return [judge(world, claim) for claim in claims]
    finally:
        world.stop()


def readme_runs(folder: Path) -> bool:
    """Run README.md's lines; say whether they do what they should."""
    began = time.monotonic()
    try:
        readme.run(folder)
    except Exception:  # whatever it was, a reader cannot use them
        print(runner.failure("readme", traceback.format_exc()), flush=True)
        return False
    took = time.monotonic() - began
    print(f"  ok readme: its lines run ({took:.1f} s)", flush=True)
    return True


def groups(smoke: bool, nixl: Path | None) -> list[Group]:
    """Return what is run: a folder's name, its engines, their scenarios."""
    short: list[Group] = [
        (
            "pair",
            partial(pair, full=not smoke),
            scenarios.SMOKE if smoke else scenarios.FULL,
        ),
        ("kinds", kinds.kinds, kinds.KINDS),
        ("pooled", pooled.pool, pooled.POOLED),
        ("rollout", rollout.rollout, rollout.SMOKE if smoke else rollout.FULL),
    ]
    if smoke:
        return short
    long: list[Group] = [
        ("first", firsts.firsts, firsts.FIRST),
        ("media", rollout.media, rollout.MEDIA),
        ("crowd", kinds.few_blocks, kinds.CROWDS),
        ("guesses", guesses.guesses, guesses.GUESSES),
        ("states", states.states, states.STATES + state_crowds.CROWDS),
        (
            "states-uncached",
            partial(states.states, caching=states.UNCACHED),
            states.STATES,
        ),
        (
            "recurrent",
            states.recurrent,
            states.RECURRENT + state_crowds.CROWDS,
        ),
        ("few-states", state_crowds.few_blocks, state_crowds.FEW),
        ("guessing", guesses.guessing_crowd, kinds.CROWDS),
        *drafts.GROUPS,
        ("fleet", fleet.fleet, fleet.FLEET),
        ("sliding", fleet.sliding, fleet.SLIDING),
        ("sinks", kinds.sinks, kinds.SINKS),
        ("reused", pooled.reused, pooled.REUSED),
        ("spilled", pooled.spilled, pooled.SPILLED),
        ("both", pooled.both, pooled.BOTH),
        ("offloaded", offloaded.offloading, offloaded.OFFLOADING),
        ("chaos", chaos.engines, chaos.CHAOS),
        ("latent", latent.latent, latent.LATENT),
    ]
    if nixl:
        long.append(
            ("nixl", partial(beside.beside, nixl=nixl), beside.BESIDE)
        )
    for p, d in ((1, 2), (2, 1)):
        ranks = partial(fleet.unlike, p_ranks=p, d_ranks=d)
        long.append((f"tp{p}to{d}", ranks, fleet.UNLIKE))
    return short + long


def main() -> int:
    """Run what was asked for; 0 if all of it holds."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--nixl", type=Path)
    parser.add_argument("--only", action="append", default=[])
    options = parser.parse_args()
    folder = options.folder.resolve()
    shutil.rmtree(folder, ignore_errors=True)

    def asked(
        group: str, claims: list[scenarios.Scenario]
    ) -> list[scenarios.Scenario]:
        if not options.only or group in options.only:
            return claims
        return [claim for claim in claims if claim.__name__ in options.only]

    held = [
        one
        for name, make, claims in groups(options.smoke, options.nixl)
        for one in run(folder / name, make, asked(name, claims))
    ]
    # Last: it installs the package anew, as a reader would.
    if not options.only or "readme" in options.only:
        held.append(readme_runs(folder / "readme"))
    passed = sum(held)
    print(f"{passed} passed, {len(held) - passed} failed, 0 skipped")
    return 0 if held and all(held) else 1


if __name__ == "__main__":
    raise SystemExit(main())
