# SPDX-License-Identifier: Apache-2.0
"""KVPullConnector and vLLM's OffloadingConnector under one MultiConnector.

Both keep P's blocks at a finish, each until it has done with them. vLLM's own
store in a CPU's memory wants a GPU beside it: host_store.py is one without.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from engine import Engine, kvpull_config, tokens, wait_for
from scenarios import Scenario
from world import LEASE_S, Delta, World, pulled_bytes

MIB = 1 << 20
LOADED = "vllm:kv_offload_load_bytes_total"


def _engine(folder: Path, name: str, kvpull_first: bool) -> Engine:
    ours = kvpull_config(
        folder, "kv_both", {"lease_ms": int(LEASE_S * 1000)}
    )
    other = {
        "kv_connector": "OffloadingConnector",
        "kv_role": "kv_both",
        "kv_connector_extra_config": {
            "spec_name": "HostSpec",
            "spec_module_path": "host_store",
            "cpu_bytes_to_use": 64 * MIB,
        },
    }
    config = {
        "kv_connector": "MultiConnector",
        "kv_role": "kv_both",
        "kv_load_failure_policy": "recompute",
        "kv_connector_extra_config": {
            "connectors": [ours, other] if kvpull_first else [other, ours]
        },
    }
    return Engine(name, folder, folder / "model", config)


def offloading(folder: Path) -> World:
    """Return P and a D in each order of the children, not started."""
    return World(
        folder,
        _engine(folder, "p", True),
        _engine(folder, "d", True),
        others=[_engine(folder, "d2", False)],
    )


def pulled_and_offloaded_blocks_are_right(world: World) -> None:
    """D pulls what it never saw; what it has kept it takes from there.

    D with kvpull first pulls both times; the other one gives its ticket back.
    """
    for d, pulls in ((world.d, 2), (world.others[0], 1)):
        prompt = world.prompt(97)  # three blocks and the token to compute
        alone = tokens(world.p.complete(prompt)[1])
        world.p.reset_prefix_cache()
        at_p, at_d = Delta(world.p), Delta(d)
        loaded = d.metrics().get(LOADED, 0.0)
        for _ in range(2):
            params = world.prefill(prompt)
            status, found = d.complete(prompt, kv_transfer_params=params)
            assert status == 200, found
            assert tokens(found) == alone, d.name
            world.settled()
            d.reset_prefix_cache()
        at_p.check(
            worker_holds_taken=2,
            worker_holds_released=2,
            worker_holds_expired=0,
        )
        at_d.check(
            worker_pulls_done=pulls,
            worker_pulls_failed=0,
            worker_bytes_pulled=pulls * pulled_bytes(97),
        )
        loaded = d.metrics().get(LOADED, 0.0) - loaded
        assert bool(loaded) == (pulls == 1), loaded
        world.say(f"{d.name}: {pulls} pulls, {loaded:.0f} bytes from its store")
        for engine in (world.p, d):
            wait_for(
                f"{engine.name}'s blocks",
                lambda engine=engine: engine.cache_usage() == 0,
            )
            assert engine.is_alive()


OFFLOADING: list[Scenario] = [pulled_and_offloaded_blocks_are_right]
