# SPDX-License-Identifier: Apache-2.0
"""Requests that ask for a pull and get none end by kv_load_failure_policy.

With vLLM's own scheduler and no model: see core.py. For each reason D runs with
both policies: fail ends the request with an error and computes nothing,
recompute computes it and says why in the answer.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from engine import environment

os.environ.update(environment())
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")

import core  # noqa: E402
import torch  # noqa: E402
from core import BLOCK, Core, run  # noqa: E402
from kvpull_vllm.logs import logger  # noqa: E402
from runner import run_all, test  # noqa: E402
from vllm.v1.engine import FinishReason  # noqa: E402

LENGTH = 100
PROMPT = [3 + i * 5 % 500 for i in range(LENGTH)]
OTHER = [4 + i * 5 % 500 for i in range(LENGTH)]
PEER = "kvpull_peer_failed"


@contextmanager
def pair(
    policy: str, d_extra: dict[str, Any] | None = None, **more: Any
) -> Iterator[tuple[Core, Core, list[str]]]:
    """P, D, and what D's package logs from warnings on."""
    said: list[str] = []
    level = logger.level
    own = {"policy": policy, "extra": d_extra}
    with core.pair(own, is_judged=False, **more) as (p, d):
        logger.setLevel(logging.WARNING)
        with mock.patch.object(
            logger, "handle", lambda line: said.append(line.getMessage())
        ):
            yield p, d, said
        logger.setLevel(level)


def prefilled(p: Core, prompt: list[int], name: str = "p") -> dict[str, Any]:
    """Return what P answers."""
    return core.prefilled(p, name, prompt)


def judged(d: Core, name: str, policy: str, said: list[str], why: str) -> Any:
    """Say whether a request ended by the policy; return what is told of it."""
    answer = d.answers[name]
    if policy == "fail":
        assert answer.finish_reason is FinishReason.ERROR, answer
        assert name not in d.computed, d.computed
        assert d.used() == 0
        lines = [line for line in said if "ends with an error" in line]
    else:
        assert answer.finish_reason is FinishReason.LENGTH, answer
        lines = [line for line in said if "is computed here" in line]
        told = answer.kv_transfer_params
        assert why in told["kvpull_computed"], told
    own = [line for line in lines if f"request {name} " in line]
    assert len(own) == 1 and why in own[0], said
    return answer.kv_transfer_params


def of_both(
    why: str,
    params: Callable[[Core, Core], Any],
    by_peer: bool = False,
    d_extra: dict[str, Any] | None = None,
    more: dict[str, Any] | None = None,
    **asked: Any,
) -> None:
    """Ask D with such params under both policies."""
    for policy in ("fail", "recompute"):
        with pair(policy, d_extra, **(more or {})) as (p, d, said):
            d.ask("d", PROMPT, params(p, d), 2, **asked)
            run([p, d], lambda: "d" in d.answers)
            told = judged(d, "d", policy, said, why)
            if policy == "recompute":
                assert told.get(PEER, False) == by_peer, told
            # D serves on, and what asks for no pull is computed.
            d.ask("next", OTHER, None, 2)
            run([p, d], lambda: "next" in d.answers)
            assert d.computed["next"] == LENGTH + 1
            assert d.answers["next"].kv_transfer_params is None


@test
def a_request_without_a_ticket() -> None:
    """A request that asks for a pull and has no ticket ends by the policy."""
    asked = {"do_remote_prefill": True}
    for params in (asked, {**asked, "kvpull_ticket": 7}):
        of_both("no kvpull_ticket", lambda *_, own=params: own)


@test
def a_ticket_that_was_cut() -> None:
    """Or that never was one of kvpull's."""
    of_both(
        "no complete ticket",
        lambda p, _: {"kvpull_ticket": prefilled(p, PROMPT)["kvpull_ticket"][:-9]},
        True,
    )
    of_both("not a kvpull ticket", lambda *_: {"kvpull_ticket": "nixl"}, True)


@test
def a_ticket_of_another_prompt() -> None:
    """A router mixed two answers up."""
    of_both("another prompt", lambda p, _: prefilled(p, OTHER), True)


@test
def a_ticket_of_another_model() -> None:
    """D was rolled out before P."""
    of_both(
        "another model",
        lambda p, _: prefilled(p, PROMPT),
        True,
        {"weights": "of another version"},
    )


@test
def a_ticket_whose_hold_has_ended() -> None:
    """P revoked it; D's load fails."""

    def revoked(p: Core, _: Core) -> Any:
        params = prefilled(p, PROMPT)
        run([p], lambda: p.count("worker_holds_taken") == 1)
        p.scheduler.reset_prefix_cache(reset_connector=True)
        run([p], lambda: p.used() == 0)
        return params

    for policy in ("fail", "recompute"):
        with pair(policy) as (p, d, _):
            d.ask("d", PROMPT, revoked(p, d), 2)
            run([p, d], lambda: "d" in d.answers)
            answer = d.answers["d"]
            if policy == "fail":
                assert answer.finish_reason is FinishReason.ERROR
                continue
            assert d.computed["d"] == LENGTH + 1
            told = answer.kv_transfer_params
            assert "hold ended" in told["kvpull_computed"] and PEER not in told


@test
def a_sibling_of_a_pull_that_failed() -> None:
    """The prefix cache has nothing for it, and it must not try again."""
    for policy in ("fail", "recompute"):
        with pair(policy) as (p, d, said):
            params = prefilled(p, PROMPT)
            run([p], lambda: p.count("worker_holds_taken") == 1)
            p.scheduler.reset_prefix_cache(reset_connector=True)
            run([p], lambda: p.used() == 0)
            for name in ("0_d", "1_d"):
                d.ask(name, PROMPT, dict(params), 2)
            run([p, d], lambda: {"0_d", "1_d"} <= d.answers.keys())
            if policy == "fail":
                judged(d, "1_d", policy, said, "hold ended")
            assert d.count("worker_pulls_failed") == 1


@test
def a_ticket_that_was_used_before() -> None:
    """A router tries again, and D's prefix cache was emptied meanwhile."""
    for policy in ("fail", "recompute"):
        with pair(policy) as (p, d, said):
            params = prefilled(p, PROMPT)
            for name, is_cached in (("a", False), ("b", True), ("c", False)):
                if not is_cached:
                    assert d.scheduler.reset_prefix_cache()
                d.ask(name, PROMPT, dict(params), 2)
                run([p, d], lambda name=name: name in d.answers)
            for name in ("a", "b"):
                assert d.answers[name].finish_reason is FinishReason.LENGTH
                assert d.answers[name].kv_transfer_params is None
            judged(d, "c", policy, said, "was used before")


@test
def a_ticket_that_a_reset_gave_back() -> None:
    """Weights or caches were changed while it waited."""

    def reset(p: Core, d: Core) -> Any:
        params = prefilled(p, PROMPT)
        d.ask("early", PROMPT, dict(params), 2)
        d.scheduler.reset_prefix_cache(
            reset_running_requests=True, reset_connector=True
        )
        return params

    for policy in ("fail", "recompute"):
        with pair(policy) as (p, d, said):
            reset(p, d)
            run([p, d], lambda: "early" in d.answers)
            judged(d, "early", policy, said, "caches were reset")


@test
def a_prompt_that_has_no_name() -> None:
    """Embeddings: the ticket is given back."""
    of_both(
        "embeddings",
        lambda p, _: prefilled(p, PROMPT),
        embeddings=torch.ones(LENGTH, 8),
    )


@test
def a_window_that_its_producer_has_left() -> None:
    """D lacks a block that the last token looks at."""
    window = 2 * BLOCK
    assert (LENGTH - 5 - window + 1) % BLOCK == 0
    for policy in ("fail", "recompute"):
        with pair(policy, window=window) as (p, d, said):
            d.ask("d", PROMPT[:-5], prefilled(p, PROMPT[:-5]), 2)
            run([p, d], lambda: "d" in d.answers)
            judged(d, "d", policy, said, "P has freed")


@test
def what_vllm_computes_whatever_it_is_offered_says_so() -> None:
    """Log probabilities of the prompt: no load can fail."""
    with pair("fail") as (p, d, said):
        d.ask("d", PROMPT, prefilled(p, PROMPT), 2, prompt_logprobs=1)
        run([p, d], lambda: "d" in d.answers)
        assert d.computed["d"] == LENGTH + 1
        told = d.answers["d"].kv_transfer_params
        assert "prompt_logprobs" in told["kvpull_computed"]
        assert any("is computed here: vLLM reads no KV" in line for line in said)
        run([p, d], lambda: p.count("worker_holds_released") == 1)


@test
def a_prompt_shorter_than_a_block_is_computed() -> None:
    """No block can be promised for it, nor for the rest of a cached one."""
    with pair("fail") as (p, d, said):
        short = OTHER[: BLOCK - 1]
        d.ask("short", short, prefilled(p, PROMPT), 2)
        d.ask("cached", PROMPT[:98], None)  # 96 tokens are in the prefix cache
        run([p, d], lambda: {"short", "cached"} <= d.answers.keys())
        rest = [*PROMPT[:96], 9, 9]
        d.ask("rest", rest, prefilled(p, PROMPT, "q"), 2)
        run([p, d], lambda: "rest" in d.answers)
        for name, count in (("short", BLOCK), ("rest", 3)):
            assert d.computed[name] == count, d.computed
            told = d.answers[name].kv_transfer_params
            assert "another prompt" in told["kvpull_computed"]
            assert any(
                f"request {name} is computed here" in line for line in said
            ), said


@test
def a_dead_producer() -> None:
    """D cannot reach it."""
    for policy in ("fail", "recompute"):
        with pair(policy) as (p, d, _):
            params = prefilled(p, PROMPT)
            p.worker.shutdown()
            d.ask("d", PROMPT, params, 2)
            run([d], lambda: "d" in d.answers)
            answer = d.answers["d"]
            if policy == "fail":
                assert answer.finish_reason is FinishReason.ERROR
                continue
            told = answer.kv_transfer_params
            assert told[PEER] and "peer" in told["kvpull_computed"], told


@test
def siblings_that_come_one_by_one_pull_each() -> None:
    """Without a prefix cache; vLLM sends them one behind the other."""
    with pair("fail", caches=False) as (p, d, said):
        params = prefilled(p, PROMPT)
        for number in range(4):
            d.ask(f"{number}_d", PROMPT, dict(params), 2)
            for _ in range(5):
                d.step()
        names = {f"{number}_d" for number in range(4)}
        run([p, d], lambda: names <= d.answers.keys())
        for name in names:
            assert d.answers[name].finish_reason is FinishReason.LENGTH, said
            assert d.answers[name].kv_transfer_params is None
        assert d.count("worker_pulls_done") == 4
        run([p, d], lambda: p.count("worker_holds_released") == 1)
        d.ask("4_d", PROMPT, dict(params), 2)
        run([p, d], lambda: "4_d" in d.answers)
        judged(d, "4_d", "fail", said, "was used before")


@test
def what_is_pulled_says_nothing() -> None:
    """Nor do siblings, nor a request whose tokens are all local."""
    with pair("fail") as (p, d, said):
        params = prefilled(p, PROMPT)
        for name in ("0_d", "1_d"):
            d.ask(name, PROMPT, dict(params), 2)
        run([p, d], lambda: {"0_d", "1_d"} <= d.answers.keys())
        d.ask("again", PROMPT, prefilled(p, PROMPT, "q"), 2)
        run([p, d], lambda: "again" in d.answers)
        for name in ("0_d", "1_d", "again"):
            assert d.answers[name].finish_reason is FinishReason.LENGTH
            assert d.answers[name].kv_transfer_params is None
        assert not said, said


if __name__ == "__main__":
    sys.exit(run_all())
