# SPDX-License-Identifier: Apache-2.0
"""Runs the scenarios against real engines.

run.py FOLDER [--smoke] [--only NAME]...
"""

from __future__ import annotations

import argparse
import shutil
import time
import traceback
from pathlib import Path

import model
import scenarios
from engine import Engine
from world import LEASE_S, World


def start(folder: Path, disconnects: int) -> World:
    """Return a pair of engines that serve, and their router."""
    model.make(folder / "model", 1)
    model.make(folder / "other", 2)
    lease = {"lease_ms": int(LEASE_S * 1000)}
    slots = ["--max-num-seqs", str(scenarios.SLOTS)]
    world = World(
        folder,
        Engine("p", folder, folder / "model", "kv_producer", lease),
        Engine("d", folder, folder / "model", "kv_consumer", lease, slots),
        disconnects=disconnects,
    )
    try:
        world.p.start()
        world.d.start()
        world.p.wait_ready()
        world.d.wait_ready()
        world.start_router()
    except BaseException:
        world.stop()
        raise
    return world


def judge(world: World, scenario: scenarios.Scenario) -> bool:
    """Run one scenario; print its line; say whether it holds."""
    began = time.monotonic()
    world.said.clear()
    name = scenario.__name__
    try:
        scenario(world)
    except Exception:  # every failure of a scenario is its own
        print(f"  FAILED {name}\n{traceback.format_exc()}", flush=True)
        for engine in (world.p, world.d):
            print(f"---- {engine.name}: {engine.counters_or_none()}")
            print(engine.tail(), flush=True)
        return False
    took = time.monotonic() - began
    text = ", ".join(world.said)
    print(f"  ok {name} ({took:.1f} s) {text}", flush=True)
    return True


def main() -> int:
    """Run what was asked for; 0 if all of it holds."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--only", action="append")
    options = parser.parse_args()
    shutil.rmtree(options.folder, ignore_errors=True)
    options.folder.mkdir(parents=True)
    began = time.monotonic()
    world = start(options.folder.resolve(), 60 if options.smoke else 500)
    print(f"  engines serve after {time.monotonic() - began:.0f} s", flush=True)
    passed = failed = 0
    try:
        for scenario in scenarios.ALL:
            if options.only and scenario.__name__ not in options.only:
                continue
            if judge(world, scenario):
                passed += 1
            else:
                failed += 1
    finally:
        world.stop()
    print(f"{passed} passed, {failed} failed, 0 skipped", flush=True)
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    raise SystemExit(main())
