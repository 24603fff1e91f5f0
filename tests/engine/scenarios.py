# SPDX-License-Identifier: Apache-2.0
"""What must hold with real engines; each function is one claim.

They run in this order against one pair of engines. P's own counters judge
what became of its blocks.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from engine import is_running, post, tokens, wait_for
from world import HOLD, LEASE_S, Delta, World, busy, pulled_bytes

Scenario = Callable[[World], None]
SLOTS = 4  # D's --max-num-seqs
TOO_LONG = 5000  # tokens; --max-model-len is 4096
# vLLM refuses n > 1 when it is greedy; this is as good.
SIBLINGS = {"n": 8, "temperature": 1, "top_k": 1}


def reject_at_first_contact_frees_p(world: World) -> None:
    """D refuses a request of a P that it never spoke to; both are idle."""
    at_p = Delta(world.p)
    params = world.prefill(world.prompt(100))
    body = {
        "model": "unknown",
        "prompt": [5, 6],
        "kv_transfer_params": params,
    }
    status, _ = post(f"{world.d.url}/v1/completions", body)
    assert status == 404, status
    world.settled()
    world.say(f"revoked after {world.revoked_after(params) * 1e3:.1f} ms")
    assert world.d.logged("connected by shm"), "not by the shared mapping"
    at_p.check(worker_holds_released=1, worker_holds_expired=0)


def rejects_before_admission_free_p(world: World) -> None:
    """Too long a prompt, and n = 8: refused by D, freed by P."""
    at_p = Delta(world.p)
    for more in ({}, SIBLINGS):
        params = world.prefill(world.prompt(100), **more)
        status, _ = world.d.complete(
            world.prompt(TOO_LONG), kv_transfer_params=params, **more
        )
        assert status == 400, status
        world.settled()
        world.say(f"revoked after {world.revoked_after(params) * 1e3:.1f} ms")
    at_p.check(worker_holds_released=2, worker_holds_expired=0)
    assert world.d.is_alive()


def request_without_ticket_is_served(world: World) -> None:
    """Incomplete parameters are a warning: the engine lives and computes."""
    prompt = world.prompt(60)
    alone = world.alone(prompt)
    at_d = Delta(world.d)
    for params in (
        {"do_remote_prefill": True},
        {"do_remote_prefill": True, "kvpull_ticket": "kvp1.nonsense"},
        {"do_remote_prefill": True, "kvpull_ticket": 7},
    ):
        assert world.decode(prompt, params) == alone
        world.d.reset_prefix_cache()
    status, _ = world.d.complete(
        world.prompt(TOO_LONG), kv_transfer_params={"do_remote_prefill": True}
    )
    assert status == 400
    assert world.d.is_alive()
    at_d.check(scheduler_pulls_commanded=0)


def tokens_equal_those_of_one_engine(world: World) -> None:
    """F10: short and 2,048-token prompts, in chunks at P, by the router."""
    for length in (7, 32, 100, 2048):
        prompt = world.prompt(length)
        alone = world.alone(prompt)
        at_p, at_d = Delta(world.p), Delta(world.d)
        status, answer = post(
            f"{world.router_url}/v1/completions",
            {
                "model": "tiny",
                "prompt": prompt,
                "max_tokens": 24,
                "temperature": 0,
                "ignore_eos": True,
                "return_token_ids": True,
            },
        )
        assert status == 200, answer
        assert tokens(answer) == alone, f"{length}: {answer}, {alone}"
        world.settled()
        at_d.check(
            worker_pulls_done=1,
            worker_pulls_failed=0,
            worker_bytes_pulled=pulled_bytes(length),
        )
        at_p.check(worker_holds_taken=1, worker_holds_released=1)
        world.say(f"{length}")


def router_serves_chat_and_streams(world: World) -> None:
    """A chat completion through P and D, its answer as a stream."""
    at_d = Delta(world.d)
    words = " ".join(f"w{token}" for token in world.prompt(80))
    body = {
        "model": "tiny",
        "messages": [{"role": "user", "content": words}],
        "max_completion_tokens": 8,
        "temperature": 0,
        "stream": True,
    }
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
    at_d = Delta(world.d)
    whole = prompt[:193]  # its six full blocks are all there is but one token
    alone = tokens(world.d.complete(whole)[1])
    assert world.decode(whole, world.prefill(whole)) == alone
    world.settled()
    world.say(f"full hit: {at_d('worker_bytes_pulled'):.0f} bytes")
    assert at_d("worker_bytes_pulled") <= pulled_bytes(32)


def siblings_share_one_pull(world: World) -> None:
    """n = 8 on P and on D: one pull, right tokens, all of P's blocks free."""
    prompt = world.prompt(100)
    alone = world.alone(prompt)[0]
    at_p, at_d = Delta(world.p), Delta(world.d)
    params = world.prefill(prompt, **SIBLINGS)
    answers = world.decode(prompt, params, **SIBLINGS)
    assert answers == [alone] * 8, answers
    world.settled()
    wait_for("P's cache to drain", lambda: world.p.cache_usage() < 0.05)
    at_p.check(worker_holds_taken=1, worker_holds_released=1)
    at_d.check(worker_pulls_done=1, worker_pulls_failed=0)


def disconnects_strand_nothing(world: World) -> None:
    """Clients leave around the finish, at P and at D."""
    at_p, count = Delta(world.p), 500 if world.full else 60

    def leave(number: int) -> None:
        prompt = world.prompt(40 + number % 60)
        delay_s = 0.002 * (number % 25)
        if number % 2:
            body = {"max_tokens": 1, "kv_transfer_params": HOLD}
            world.p.leave(prompt, delay_s, **body)
        else:
            params = world.prefill(prompt)
            world.d.leave(prompt, delay_s, kv_transfer_params=params)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(leave, range(count)))
    # Where the client left P in time nobody has the ticket: its lease ends it.
    world.say(f"{count}, free after {world.settled(4 * LEASE_S):.1f} s")
    for engine in (world.p, world.d):
        assert engine.is_alive(), engine.tail()
        wait_for(
            f"{engine.name}'s blocks",
            lambda engine=engine: engine.cache_usage() == 0,
        )
        assert engine.counter("shim_dropped") == 0
    assert at_p("worker_holds_taken") >= count / 2
    prompt = world.prompt(100)
    alone = world.alone(prompt)
    assert world.decode(prompt, world.prefill(prompt)) == alone


def late_reader_recomputes(world: World) -> None:
    """The lease ended and P used the blocks again: the tokens are right."""
    tries = 100 if world.full else 10
    prompts = [world.prompt(60) for _ in range(tries)]
    alone = [world.alone(prompt, max_tokens=8) for prompt in prompts]
    at_p, at_d = Delta(world.p), Delta(world.d)
    late = [world.prefill(prompt) for prompt in prompts]
    time.sleep(LEASE_S)
    world.settled(2 * LEASE_S)
    at_p.check(worker_holds_expired=tries)
    for _ in range(10):
        world.p.complete(world.prompt(3500), max_tokens=1)
    for prompt, params, answer in zip(prompts, late, alone, strict=True):
        assert world.decode(prompt, params, max_tokens=8) == answer
    at_d.check(worker_pulls_done=0, worker_pulls_expired=tries)
    world.say(f"{tries} tries")


def busy_consumer_keeps_its_claim(world: World) -> None:
    """D queues a request for three leases: nothing expires."""
    prompt = world.prompt(100)
    alone = world.alone(prompt)
    at_p = Delta(world.p)
    params = world.prefill(prompt)
    with ThreadPoolExecutor(1) as pool:
        with busy(world, SLOTS):
            queued = pool.submit(world.decode, prompt, params)
            time.sleep(3 * LEASE_S)
            assert not queued.done()
            assert world.p.holds_live() == 1
        assert queued.result() == alone
    world.settled()
    at_p.check(worker_holds_expired=0, worker_holds_released=1)


def restarted_p_is_met_again(world: World) -> None:
    """Kill -9 of P; another P with other weights under the same name.

    The negative control: its KV must give other tokens, so the tokens of the
    scenarios before came from P's KV.
    """
    prompt = world.prompt(100)
    alone = world.alone(prompt)
    stale = world.prefill(prompt)
    world.p.stop(signal.SIGKILL)
    assert world.decode(prompt, stale) == alone, "P is dead: recompute"
    world.d.reset_prefix_cache()
    world.p.use_model(world.folder / "other")
    world.p.start()
    world.p.wait_ready()
    at_d = Delta(world.d)
    assert world.decode(prompt, stale) == alone, "an old ticket: recompute"
    world.d.reset_prefix_cache()
    wrong = world.decode(prompt, world.prefill(prompt))
    at_d.check(worker_pulls_done=1)
    assert wrong != alone, "other weights' KV gave the same tokens"
    world.d.reset_prefix_cache()
    world.settled()
    if world.full:
        world.p.stop(signal.SIGKILL)
        world.p.use_model(world.folder / "model")
        world.p.start()
        world.p.wait_ready()
        assert world.decode(prompt, world.prefill(prompt)) == alone
        at_d.check(worker_pulls_done=2)
        world.settled()


def killed_consumer_frees_p(world: World) -> None:
    """Kill -9 of D's processes while it has claims: P waits for no lease.

    In full: each process of D in turn, and D is started again.
    """
    victims = ["Worker"]
    if world.full:
        victims = ["EngineCore", "APIServer", "Worker"]
    for count, victim in enumerate(victims):
        if count:
            world.d.stop(signal.SIGKILL)
            world.d.start()
            world.d.wait_ready()
            prompt = world.prompt(100)
            alone = world.alone(prompt)
            at_d = Delta(world.d)
            assert world.decode(prompt, world.prefill(prompt)) == alone
            at_d.check(worker_pulls_done=1)
            world.settled()
        _kill(world, victim)


def _kill(world: World, victim: str) -> None:
    at_p = Delta(world.p)
    tickets = []
    for _ in range(SLOTS):
        prompt = world.prompt(200)
        tickets.append((prompt, world.prefill(prompt)))
    with ThreadPoolExecutor(SLOTS) as pool, busy(world, SLOTS):
        for prompt, params in tickets:
            pool.submit(world.d.complete, prompt, kv_transfer_params=params)
        wait_for("claims", lambda: at_p("worker_claims") >= SLOTS)
        worker = world.d.process("Worker")
        os.kill(world.d.process(victim), signal.SIGKILL)
        # vLLM ends its own workers when it notices; that is its time.
        gone = wait_for("D's worker to end", lambda: not is_running(worker), 60)
        freed = world.settled()
        world.say(f"{victim}: worker gone after {gone * 1e3:.0f} ms")
        world.say(f"free {freed * 1e3:.0f} ms later")
        at_p.check(worker_holds_released=SLOTS, worker_holds_expired=0)


ALL: list[Scenario] = [
    reject_at_first_contact_frees_p,
    rejects_before_admission_free_p,
    request_without_ticket_is_served,
    tokens_equal_those_of_one_engine,
    router_serves_chat_and_streams,
    prefix_hits_pull_the_rest_only,
    siblings_share_one_pull,
    disconnects_strand_nothing,
    late_reader_recomputes,
    busy_consumer_keeps_its_claim,
    restarted_p_is_met_again,
    killed_consumer_frees_p,
]
