# SPDX-License-Identifier: Apache-2.0
"""More consumers, MultiConnector, sliding windows, unlike parallel sizes.

The fleet: P and two consumers under MultiConnector with a connector that
writes files, in both orders, and a consumer without prefix caching whose
policy is to fail.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import model
from engine import Engine, complete, kvpull_config, tokens, wait_for
from rejects import TOO_LONG, first_contact_of_each_consumer_frees_p
from scenarios import Scenario, late_answers
from world import LEASE_S, SIBLINGS, Delta, World, pulled_bytes

WINDOW = 64
LEASE = {"lease_ms": int(LEASE_S * 1000)}


def _multi(folder: Path, name: str, first: str) -> Engine:
    files = folder / f"{name}-files"
    files.mkdir()
    ours = kvpull_config(folder, "kv_both", LEASE)
    other = {
        "kv_connector": "ExampleConnector",
        "kv_role": "kv_both",
        "kv_connector_extra_config": {"shared_storage_path": str(files)},
    }
    children = [ours, other] if first == "kvpull" else [other, ours]
    config: dict[str, Any] = {
        "kv_connector": "MultiConnector",
        "kv_role": "kv_both",
        "kv_load_failure_policy": "recompute",
        "kv_connector_extra_config": {"connectors": children},
    }
    return Engine(name, folder, folder / "model", config)


def fleet(folder: Path) -> World:
    """Return P and three consumers, not started."""
    strict = kvpull_config(folder, "kv_consumer", LEASE)
    strict["kv_load_failure_policy"] = "fail"
    return World(
        folder,
        _multi(folder, "p", "other"),
        _multi(folder, "d", "kvpull"),
        others=[
            _multi(folder, "d2", "other"),
            Engine(
                "d3", folder, folder / "model", strict,
                ["--no-enable-prefix-caching"],
            ),
        ],
        full=True,
    )  # fmt: skip


def unlike(folder: Path, p_ranks: int, d_ranks: int) -> World:
    """Return a pair of unlike tensor parallel sizes, not started."""
    made = []
    for name, role, ranks in (
        ("p", "kv_producer", p_ranks),
        ("d", "kv_consumer", d_ranks),
    ):
        # Ranks that spin for each other want a core each.
        bind = "|".join(str(core) for core in range(ranks))
        made.append(
            Engine(
                name, folder, folder / "model",
                kvpull_config(folder, role, {}),
                [
                    "--tensor-parallel-size", str(ranks),
                    *(["--no-enable-prefix-caching"] if name == "p" else []),
                ],
                {"VLLM_CPU_OMP_THREADS_BIND": bind} if ranks > 1 else {},
            )
        )  # fmt: skip
    return World(folder, *made)


def sliding(folder: Path) -> World:
    """Return a pair whose model has a sliding window, not started."""
    model.make(folder / "sliding", 1, WINDOW)
    made = [
        Engine(
            name, folder, folder / "sliding", kvpull_config(folder, role, {})
        )
        for name, role in (("p", "kv_producer"), ("d", "kv_consumer"))
    ]
    return World(folder, *made)


def windows_give_the_same_tokens(world: World) -> None:
    """D pulls what the window looks at; one length in a block it computes."""
    at_d = Delta(world.d)
    for length in (40, 94, 95, 96, 127, 128, 300):
        prompt = world.prompt(length)
        alone = world.alone(prompt)
        found = world.decode(prompt, world.prefill(prompt))
        assert found == alone, f"{length}: {found}, {alone}"
        world.settled(30)
    # P has freed a block of the last token's window for 95 and 127 tokens.
    at_d.check(
        worker_pulls_done=5, worker_pulls_failed=0, scheduler_pulls_failed=0
    )


def router_spreads_over_three_consumers(world: World) -> None:
    """1 P + 3 D: each D pulls its share, all tokens are right."""
    consumers = world.consumers
    strict = world.others[-1]
    deltas = [Delta(engine) for engine in consumers]
    at_p = Delta(world.p)
    for length in (60, 2048):
        for _ in consumers:
            prompt = world.prompt(length)
            status, answer = strict.complete(prompt)  # it keeps no prefix
            assert status == 200, answer
            found = complete(world.router_url, prompt)
            assert found == tokens(answer)
    world.settled()
    expected = pulled_bytes(60) + pulled_bytes(2048)
    for delta in deltas:
        delta.check(
            worker_pulls_done=2,
            worker_pulls_failed=0,
            worker_bytes_pulled=expected,
        )
    at_p.check(worker_holds_taken=6, worker_holds_released=6)


def rejections_under_multi_connector_free_p(world: World) -> None:
    """Both orders of children: a refused request gives its ticket back."""
    at_p = Delta(world.p)
    for engine in (world.d, world.others[0]):
        params = world.prefill(world.prompt(100))
        status, _ = engine.complete(
            world.prompt(TOO_LONG), kv_transfer_params=params
        )
        assert status == 400
        world.settled()
    at_p.check(worker_holds_released=2, worker_holds_expired=0)


def siblings_without_prefix_cache_are_right(world: World) -> None:
    """n = 8 at a D that cannot share blocks: tokens right, P free.

    Each sibling pulls: one that comes 50 ms behind the others fails the
    request, by this engine's policy.
    """
    strict = world.others[-1]
    prompt = world.prompt(100)
    alone = tokens(strict.complete(prompt)[1])[0]
    at_p, at_d = Delta(world.p), Delta(strict)
    params = world.prefill(prompt, **SIBLINGS)
    status, answer = strict.complete(
        prompt, kv_transfer_params=params, **SIBLINGS
    )
    assert status == 200, answer
    assert tokens(answer) == [alone] * 8
    world.settled()
    at_p.check(
        worker_holds_taken=1, worker_holds_released=1, worker_holds_expired=0
    )
    wait_for("P's blocks", lambda: world.p.cache_usage() == 0)
    # D's counters come with its steps.
    wait_for(
        "all pulls",
        lambda: (
            0 < at_d("worker_pulls_done") == at_d("scheduler_pulls_commanded")
        ),
    )
    at_d.check(worker_pulls_failed=0)
    world.say(f"{at_d('worker_pulls_done'):.0f} of 8 pulled")


def late_reader_fails_by_policy(world: World) -> None:
    """The lease ended, P used the blocks again, policy fail: an error."""
    strict = world.others[-1]
    assert set(late_answers(world, strict)) == {"error"}
    assert strict.is_alive()


def what_is_not_pulled_fails_by_policy(world: World) -> None:
    """No ticket, half of one, another prompt's; policy fail: an error."""
    d, prompt = world.others[-1], world.prompt(60)
    whole = world.prefill(world.prompt(60))
    for params, why in (
        ({}, "it has no kvpull_ticket"),
        ({"kvpull_ticket": whole["kvpull_ticket"][:-9]}, "no complete ticket"),
        (whole, "the ticket is for another prompt"),
    ):
        at_d = Delta(d)
        status, answer = d.complete(
            prompt, kv_transfer_params={"do_remote_prefill": True, **params}
        )
        assert status == 500, answer
        assert d.logged(f"kv_load_failure_policy is fail: {why}"), d.tail()
        at_d.check(scheduler_pulls_commanded=0)
    status, _ = d.complete(prompt)
    assert status == 200
    world.settled()


def unlike_ranks_give_the_same_tokens(world: World) -> None:
    """Tensor parallel sizes that differ: each rank reads its heads."""
    for length in (40, 300):
        prompt = world.prompt(length)
        alone = world.alone(prompt, max_tokens=6)
        at_d = Delta(world.d)
        params = world.prefill(prompt)
        assert world.decode(prompt, params, max_tokens=6) == alone
        world.settled(30)
        found = at_d("worker_bytes_pulled")
        assert found == pulled_bytes(length), found
        assert at_d("worker_pulls_failed") == 0


def siblings_of_unlike_ranks_share_one_pull(world: World) -> None:
    """n = 8 at a P without prefix cache, and at D: one pull a rank."""
    prompt = world.prompt(100)
    alone = world.alone(prompt, max_tokens=6)[0]
    at_p, at_d = Delta(world.p), Delta(world.d)
    params = world.prefill(prompt, **SIBLINGS)
    answers = world.decode(prompt, params, max_tokens=6, **SIBLINGS)
    assert answers == [alone] * 8, answers
    world.settled(30)
    taken, pulls = at_p("worker_holds_taken"), at_d("worker_pulls_done")
    world.say(f"{taken:.0f} holds of P's ranks, {pulls:.0f} pulls of D's")
    assert {taken, pulls} == {1, 2}
    at_p.check(worker_holds_released=taken, worker_holds_expired=0)
    assert at_d("scheduler_pulls_commanded") == 1


FLEET: list[Scenario] = [
    first_contact_of_each_consumer_frees_p,
    router_spreads_over_three_consumers,
    rejections_under_multi_connector_free_p,
    siblings_without_prefix_cache_are_right,
    late_reader_fails_by_policy,
    what_is_not_pulled_fails_by_policy,
]
SLIDING: list[Scenario] = [windows_give_the_same_tokens]
UNLIKE: list[Scenario] = [
    unlike_ranks_give_the_same_tokens,
    siblings_of_unlike_ranks_share_one_pull,
]
