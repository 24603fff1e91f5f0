# SPDX-License-Identifier: Apache-2.0
"""Claims that must hold with real engines; each function is one.

They run in this order against one pair of engines. P's own counters judge
what became of its blocks.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import rejects
import restarts
import updates
from engine import Engine, chat, complete, post, tokens, wait_for
from rejects import TOO_LONG
from world import (
    LEASE_S,
    SIBLINGS,
    SLOTS,
    Delta,
    World,
    busy,
    pulled_bytes,
)

Scenario = Callable[[World], None]


def request_without_ticket_is_served(world: World) -> None:
    """Incomplete parameters, policy recompute: D computes, and says why."""
    prompt = world.prompt(60)
    alone = world.alone(prompt)
    at_d = Delta(world.d)
    for ticket, why in (
        (None, "no kvpull_ticket"),
        ("kvp2.nonsense", "no complete ticket"),
        (7, "no kvpull_ticket"),
    ):
        params = {"do_remote_prefill": True, "kvpull_ticket": ticket}
        status, answer = world.d.complete(prompt, kv_transfer_params=params)
        assert status == 200 and tokens(answer) == alone, answer
        told = answer["kv_transfer_params"]
        assert why in told["kvpull_computed"], told
        world.d.reset_prefix_cache()
    status, _ = world.d.complete(
        world.prompt(TOO_LONG), kv_transfer_params={"do_remote_prefill": True}
    )
    assert status == 400
    assert world.d.is_alive()
    at_d.check(scheduler_pulls_commanded=0)
    # The refused one was not to be computed.
    assert len(world.d.logged("computed here: it has no kvpull_ticket")) == 2


def tokens_equal_those_of_one_engine(world: World) -> None:
    """F10: short and 2,048-token prompts, in chunks at P, by the router."""
    for length in (7, 32, 100, 2048):
        prompt = world.prompt(length)
        alone = world.alone(prompt)
        at_p, at_d = Delta(world.p), Delta(world.d)
        found = complete(world.router_url, prompt)
        assert found == alone, f"{length}: {found}, {alone}"
        world.settled()
        at_d.check(
            worker_pulls_done=1,
            worker_pulls_failed=0,
            worker_bytes_pulled=pulled_bytes(length),
        )
        at_p.check(worker_holds_taken=1, worker_holds_released=1)
        world.say(f"{length} tokens: equal, {pulled_bytes(length)} bytes")
    cache = world.p.maps("kvpull-kv") & world.d.maps("kvpull-kv")
    assert cache, "P's KV cache is not mapped at D"
    world.say("D has P's KV cache mapped")


def router_serves_chat_and_streams(world: World) -> None:
    """A chat completion through P and D, its answer as a stream."""
    at_d = Delta(world.d)
    words = " ".join(f"w{token}" for token in world.prompt(80))
    body = chat(words, max_completion_tokens=8, stream=True)
    status, answer = post(f"{world.router_url}/v1/chat/completions", body)
    assert status == 200, answer
    assert "[DONE]" in answer["text"], answer
    world.settled()
    at_d.check(worker_pulls_done=1, worker_pulls_failed=0)


def prefix_hits_pull_the_rest_only(world: World) -> None:
    """D has a part of the prompt, or all of it, in its prefix cache."""
    prompt = world.prompt(200)
    alone = world.alone(prompt)
    world.d.complete(prompt[:100], max_tokens=1)  # 96 tokens are cached
    at_d = Delta(world.d)
    assert world.decode(prompt, world.prefill(prompt)) == alone
    world.settled()
    at_d.check(worker_bytes_pulled=pulled_bytes(200, 96), worker_pulls_done=1)
    world.say(f"96 of 200 tokens cached: {pulled_bytes(200, 96)} bytes pulled")
    at_d = Delta(world.d)
    # All but the last token is cached, which vLLM never takes from there.
    whole = prompt[:193]
    alone = tokens(world.d.complete(whole)[1])
    assert world.decode(whole, world.prefill(whole)) == alone
    world.settled()
    at_d.check(worker_bytes_pulled=pulled_bytes(193, 192), worker_pulls_done=1)
    world.say(f"192 of 193: {pulled_bytes(193, 192)}")


def siblings_share_one_pull(world: World) -> None:
    """n = 8 on P and on D: one pull, right tokens, all of P's blocks free.

    Batch after batch: between them P's cache is empty.
    """
    batches, used = 5 if world.full else 2, []
    for _ in range(batches):
        prompt = world.prompt(100)
        alone = world.alone(prompt)[0]
        at_p, at_d = Delta(world.p), Delta(world.d)
        params = world.prefill(prompt, **SIBLINGS)
        answers = world.decode(prompt, params, **SIBLINGS)
        assert answers == [alone] * 8, answers
        world.settled()
        used.append(world.p.cache_usage())
        at_p.check(
            worker_holds_taken=1,
            worker_holds_released=1,
            worker_holds_expired=0,
        )
        at_d.check(worker_pulls_done=1, worker_pulls_failed=0)
    assert max(used) < 0.05, used
    world.say(f"{batches} batches, one pull each, tokens equal")
    world.say(f"at most {max(used):.1%} of P's blocks used between them")


def disconnects_strand_nothing(world: World) -> None:
    """Clients leave around the finish, at P and at D.

    A ticket that D was told of is given back; one that nobody has is ended by
    its lease, and those are tickets of clients that left P.
    """
    told = r"pulls what \S+ holds as (\S+)"
    before = set(world.d.log_words(told))
    at_p, count = Delta(world.p), 500 if world.full else 60
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(world.leave, range(count)))
    world.say(f"{count}, free after {world.settled(4 * LEASE_S):.1f} s")
    for engine in (world.p, world.d):
        assert engine.is_alive(), engine.tail()
        wait_for(
            f"{engine.name}'s blocks",
            lambda engine=engine: engine.cache_usage() == 0,
        )
        assert engine.counter("shim_dropped") == 0
        assert not engine.logged(r"ERROR \S+ kvpull")
    taken, expired = at_p("worker_holds_taken"), at_p("worker_holds_expired")
    assert taken >= count / 2
    given = len(set(world.d.log_words(told)) - before)
    at_p.check(worker_holds_released=given, worker_holds_revoked=0)
    world.say(f"{taken:.0f} holds, {given} released, {expired:.0f} expired")
    prompt = world.prompt(100)
    alone = world.alone(prompt)
    assert world.decode(prompt, world.prefill(prompt)) == alone


def late_answers(world: World, d: Engine) -> Counter[str]:
    """Let D read after the leases ended and P used the blocks for others.

    Counts its answers: right, wrong, error.
    """
    tries = 100 if world.full else 10
    prompts = [world.prompt(60) for _ in range(tries)]
    alone = [tokens(d.complete(p, max_tokens=8)[1]) for p in prompts]
    d.reset_prefix_cache()
    at_p, at_d = Delta(world.p), Delta(d)
    late = [world.prefill(prompt) for prompt in prompts]
    time.sleep(LEASE_S)
    world.settled(2 * LEASE_S)
    at_p.check(worker_holds_expired=tries)
    for _ in range(10):
        world.p.complete(world.prompt(3500), max_tokens=1)
    found: Counter[str] = Counter()
    for prompt, params, expected in zip(prompts, late, alone, strict=True):
        status, answer = d.complete(
            prompt, max_tokens=8, kv_transfer_params=params
        )
        if status != 200 or answer["choices"][0]["finish_reason"] == "error":
            found["error"] += 1
            continue
        found["right" if tokens(answer) == expected else "wrong"] += 1
    at_d.check(worker_pulls_done=0, worker_pulls_expired=tries)
    world.say(f"{tries} tries: {dict(found)}")
    return found


def late_reader_recomputes(world: World) -> None:
    """The lease ended, P used the blocks again, policy recompute: right."""
    assert set(late_answers(world, world.d)) == {"right"}


def busy_consumer_keeps_its_claim(world: World) -> None:
    """D queues a request for three leases: nothing expires."""
    prompt = world.prompt(100)
    alone = world.alone(prompt)
    at_p = Delta(world.p)
    params = world.prefill(prompt)
    with ThreadPoolExecutor(1) as pool:
        # 3,900 tokens have taken 9 s on a fast machine.
        with busy(world, SLOTS, 6 * SLOTS):
            queued = pool.submit(world.decode, prompt, params)
            time.sleep(3 * LEASE_S)
            assert not queued.done()
            assert world.p.holds_live() == 1
        assert queued.result() == alone
    world.settled()
    at_p.check(worker_holds_expired=0, worker_holds_released=1)
    world.say(
        f"queued for {3 * LEASE_S:.0f} s, lease {LEASE_S:.0f} s, none expired"
    )
    # The logs of P and D name the request alike.
    name = re.escape(params["remote_request_id"])
    assert world.d.logged(f"pulls what .* holds as {name}")
    assert world.p.logged(f"request {name}: its hold ended")


def held_blocks_are_reset_when_asked_twice(world: World) -> None:
    """reset_external: no while blocks are held; the holds end; then yes."""
    prompt = world.prompt(100)
    alone = world.alone(prompt)
    at_p = Delta(world.p)
    params = world.prefill(prompt)
    wait_for("P's hold", lambda: world.p.holds_live() == 1)
    reset = f"{world.p.url}/reset_prefix_cache?reset_external=true"
    assert post(reset, None) == (200, {"success": False})
    took = world.settled()
    wait_for("P's blocks", lambda: world.p.cache_usage() == 0)
    at_p.check(worker_holds_revoked=1, worker_holds_expired=0)
    assert post(reset, None) == (200, {"success": True})
    assert world.decode(prompt, params) == alone
    world.d.reset_prefix_cache()
    world.say(f"free after {took:.2f} s")


SMOKE: list[Scenario] = [
    rejects.first_contact_frees_p,
    rejects.rejects_while_idle_free_p,
    rejects.rejects_while_busy_free_p,
    request_without_ticket_is_served,
    tokens_equal_those_of_one_engine,
    router_serves_chat_and_streams,
    prefix_hits_pull_the_rest_only,
    siblings_share_one_pull,
    disconnects_strand_nothing,
    late_reader_recomputes,
    busy_consumer_keeps_its_claim,
    held_blocks_are_reset_when_asked_twice,
    updates.updated_weights_pull_nothing_old,
    restarts.restarted_p_is_met_again,
    restarts.killed_worker_of_d_frees_p,
]
# P has other weights from the last but one on.
FULL: list[Scenario] = [
    *SMOKE[:-2],
    restarts.p_restarts_under_load,
    restarts.d_restarts_under_load,
    restarts.killed_core_or_server_of_d_frees_p,
    *SMOKE[-2:],
]
