# SPDX-License-Identifier: Apache-2.0
"""KVPullConnector and NixlConnector under one MultiConnector.

Both answer P's client. With the usual keys in both answers vLLM ends the
engine, so that is refused at start; with the ticket alone both hold, the first
child that can load does, and the other gives its blocks back.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from engine import Engine, free_port, kvpull_config, tokens, wait_for
from rejects import HOWS, refuse
from scenarios import Scenario
from world import LEASE_S, Delta, World, pulled_bytes

ENDS_S = 3 * LEASE_S


def _engine(
    folder: Path, nixl: Path, name: str, first: str, own: dict[str, Any]
) -> Engine:
    ours = kvpull_config(folder, "kv_both", own)
    other = {
        "kv_connector": "NixlConnector",
        "kv_role": "kv_both",
        "kv_buffer_device": "cpu",
        "kv_connector_extra_config": {"kv_lease_duration": int(LEASE_S)},
    }
    config = {
        "kv_connector": "MultiConnector",
        "kv_role": "kv_both",
        "kv_buffer_device": "cpu",
        "kv_load_failure_policy": "recompute",
        "kv_connector_extra_config": {
            "connectors": [ours, other] if first == "kvpull" else [other, ours]
        },
    }
    return Engine(
        name, folder, folder / "model", config, [], nixl_environment(nixl)
    )


def nixl_environment(nixl: Path) -> dict[str, str]:
    """Return what an engine with nixl's wheel in a folder needs."""
    return {
        "VLLM_NIXL_SIDE_CHANNEL_HOST": "127.0.0.1",
        "VLLM_NIXL_SIDE_CHANNEL_PORT": str(free_port()),
        "PYTHONPATH": str(nixl),
    }


def beside(folder: Path, nixl: Path) -> World:
    """Return P and a D in each order of the children, not started."""
    ticket = {"ticket_only": True}
    return World(
        folder,
        _engine(folder, nixl, "p", "nixl", ticket),
        _engine(folder, nixl, "d", "kvpull", ticket),
        others=[_engine(folder, nixl, "d2", "nixl", ticket)],
        nixl=nixl,
    )


def _pulled(world: World, d: Engine) -> tuple[float, float]:
    """Return the bytes that each of the connectors has read at D."""
    found = d.metrics()
    return (
        found.get("vllm:kvpull_worker_bytes_pulled_total", 0.0),
        found.get("vllm:nixl_bytes_transferred_sum", 0.0),
    )


def either_connector_moves_the_blocks(world: World) -> None:
    """The first child loads, tokens are right, both end their holds."""
    for d, own in ((world.d, 0), (world.others[0], 1)):
        prompt = world.prompt(100)
        status, answer = d.complete(prompt)
        assert status == 200, answer
        d.reset_prefix_cache()
        at_p, before = Delta(world.p), _pulled(world, d)
        params = world.prefill(prompt)
        assert params["remote_block_ids"], params
        status, found = d.complete(prompt, kv_transfer_params=params)
        assert status == 200, found
        assert tokens(found) == tokens(answer), d.name
        took = wait_for(
            "P's blocks", lambda: world.p.cache_usage() == 0, ENDS_S
        )
        # D's counters come with its steps.
        wait_for(
            "D's counters",
            lambda d=d, before=before: _pulled(world, d) != before,
        )
        moved = [b - a for a, b in zip(before, _pulled(world, d), strict=True)]
        assert moved[own] == pulled_bytes(100) and not moved[1 - own], moved
        at_p.check(
            worker_holds_taken=1,
            worker_holds_released=1,
            worker_holds_expired=0,
        )
        world.say(f"{d.name}: P's blocks free after {took:.1f} s")


def refusals_free_p_beside_another(world: World) -> None:
    """Each refusal releases kvpull's hold; the other's may wait its lease.

    P's own counters say whose hold a lease has ended.
    """
    theirs = "vllm:nixl_num_kv_expired_reqs_total"
    before, slowest = world.p.metrics().get(theirs, 0.0), 0.0
    for d in world.consumers:
        for how in HOWS:
            at_p = Delta(world.p)
            params = world.prefill(world.prompt(100))
            refuse(world, d, how, params)
            slowest = max(slowest, world.settled())
            at_p.check(
                worker_holds_taken=1,
                worker_holds_released=1,
                worker_holds_expired=0,
            )
        assert d.is_alive()
    took = wait_for("P's blocks", lambda: world.p.cache_usage() == 0, ENDS_S)
    expired = world.p.metrics().get(theirs, 0.0) - before
    world.say(f"6 holds of kvpull's released, after {slowest:.2f} s at most")
    world.say(f"{expired:.0f} of 6 of NIXL's expired")
    world.say(f"P's blocks free {took:.1f} s later")


def usual_keys_are_refused_at_start(world: World) -> None:
    """Without "ticket_only" the engine does not start, and says why."""
    assert world.nixl
    engine = _engine(world.folder, world.nixl, "clash", "kvpull", {})
    engine.start()
    try:
        engine.wait_ready()
    except RuntimeError:
        text = engine.log.read_text(errors="replace")
        assert "answer with the same keys of kv_transfer_params" in text
        assert '{"ticket_only": true}' in text
    else:
        raise AssertionError("it started")
    finally:
        engine.stop()


BESIDE: list[Scenario] = [
    either_connector_moves_the_blocks,
    refusals_free_p_beside_another,
    usual_keys_are_refused_at_start,
]
