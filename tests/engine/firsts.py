# SPDX-License-Identifier: Apache-2.0
"""Streams that begin with P's first token, and P's prompt_logprobs.

Two routers stand between the same P and D: one begins streams with P's first
token, the other has clients wait for D's. The last line of the first scenarios
has the time to the client's first token of both.
"""

from __future__ import annotations

import json
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine import (
    CALL_S,
    Engine,
    chat,
    completion,
    kvpull_config,
    metrics_of,
    post,
    tokens,
    wait_for,
)
from fleet import LEASE
from scenarios import Scenario
from world import SLOTS, Delta, World

OTHERS = 1000  # tokens of each request that has a slot of D
NEAR = 1e-4  # log probabilities of P's chunks of a prompt and of D's
SEEDED = {"temperature": 0.8, "top_p": 0.95, "seed": 11}


def firsts(folder: Path, **more: str) -> World:
    """Return P and D, with more keys in the configuration of both, not started."""
    made = [
        Engine(
            name, folder, folder / "model",
            kvpull_config(folder, role, {**LEASE, **more}),
            ["--max-num-seqs", str(SLOTS)],
        )
        for name, role in (("p", "kv_producer"), ("d", "kv_consumer"))
    ]  # fmt: skip
    return World(folder, *made, full=True)


@dataclass
class Streamed:
    """A stream, as a client sees it."""

    first_s: float = 0.0
    second_s: float = 0.0
    tokens: list[int] = field(default_factory=list)
    prompt: list[int] = field(default_factory=list)
    text: str = ""
    finish: str | None = None
    usage: dict[str, Any] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)

    def take(self, choice: dict[str, Any], took_s: float) -> None:
        """Take a line's choice."""
        if choice["token_ids"] and not self.tokens:
            self.first_s = took_s
        elif choice["token_ids"] and not self.second_s:
            self.second_s = took_s
        self.tokens += choice["token_ids"]
        self.text += choice["text"]
        self.prompt += choice.get("prompt_token_ids") or []
        self.finish = choice["finish_reason"] or self.finish


def streamed(url: str, prompt: Any, **more: Any) -> Streamed:
    """Ask for a completion as a stream."""
    body = completion(
        prompt, stream=True, stream_options={"include_usage": True}, **more
    )
    asked = urllib.request.Request(
        f"{url}/v1/completions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    found, began = Streamed(), time.monotonic()
    with urllib.request.urlopen(asked, timeout=CALL_S) as answer:
        for line in answer:
            if not line.startswith(b"data: {"):
                continue
            told = json.loads(line[6:])
            assert "error" not in told, told
            found.names.add(told["id"])
            for choice in told["choices"]:
                found.take(choice, time.monotonic() - began)
            found.usage = told.get("usage") or found.usage
    return found


def _alone(world: World, prompt: Any, **more: Any) -> Any:
    """Return D's own answer; D forgets the prompt then."""
    status, answer = world.d.complete(prompt, **more)
    assert status == 200, answer
    world.d.reset_prefix_cache()
    return answer


def _begun(url: str) -> float:
    return metrics_of(url)["kvpull_router_first_tokens_total"]


def streams_begin_with_the_first_token_of_p(world: World) -> None:
    """Tokens, text and usage are those of one engine, with and without."""
    begins = world.another_router("--first-token")
    at_d, count = Delta(world.d), 0
    words = " ".join(f"w{token}" for token in world.prompt(70))
    for prompt in (*map(world.prompt, (7, 31, 32, 33, 500, 2048)), words):
        alone = _alone(world, prompt)
        (choice,) = alone["choices"]
        for url in (begins, world.router_url):
            before = _begun(url)
            found = streamed(url, prompt)
            assert found.tokens == choice["token_ids"], found
            assert found.text == choice["text"], found
            assert len(found.names) == 1, found
            assert found.prompt == choice["prompt_token_ids"], found
            assert found.finish == choice["finish_reason"], found
            for name in ("prompt_tokens", "completion_tokens"):
                assert found.usage[name] == alone["usage"][name], found.usage
            assert _begun(url) - before == (url == begins), prompt
            count += 1
            world.settled()
            world.d.reset_prefix_cache()
    at_d.check(
        worker_pulls_done=count,
        worker_pulls_failed=0,
        scheduler_mismatches=0,
        shim_first_tokens_compared=count,
        shim_first_tokens_differ=0,
        shim_payloads_refused=0,
    )
    world.say(f"{count} streams equal, each pulled")


def drawn_tokens_are_right_as_well(world: World) -> None:
    """A seeded request is begun by D, and equal; an unseeded one by P."""
    begins = world.another_router("--first-token")
    at_d = Delta(world.d)
    for _ in range(4):
        prompt = world.prompt(100)
        (choice,) = _alone(world, prompt, **SEEDED)["choices"]
        before = _begun(begins)
        found = streamed(begins, prompt, **SEEDED)
        assert found.tokens == choice["token_ids"], found
        assert _begun(begins) == before
        # As good as greedy.
        prompt = world.prompt(100)
        more = {"temperature": 1, "top_k": 1}
        (choice,) = _alone(world, prompt, **more)["choices"]
        found = streamed(begins, prompt, **more)
        assert found.tokens == choice["token_ids"], found
        assert _begun(begins) == before + 1
    world.settled()
    at_d.check(
        worker_pulls_done=8,
        shim_first_tokens_compared=8,
        shim_first_tokens_differ=0,
    )


def answers_of_every_kind_are_those_of_one_engine(world: World) -> None:
    """Requests that P cannot begin go the usual way, and are equal."""
    begins = world.another_router("--first-token")
    for more in (
        {"max_tokens": 1},
        {"max_tokens": 2},
        {"stop": ["w5", "w6 "]},
        {"seed": 3},
        {"min_tokens": 3},
        {"presence_penalty": 1.5},
        {"repetition_penalty": 1.5},
        {"bad_words": ["w9"]},
        {"logit_bias": {"9": 5}},
        {"allowed_token_ids": list(range(9, 99))},
        {"ignore_eos": False},
        {"skip_special_tokens": False},
        {"truncate_prompt_tokens": 40},
    ):
        prompt = world.prompt(90)
        (choice,) = _alone(world, prompt, **more)["choices"]
        found = streamed(begins, prompt, **more)
        assert found.tokens == choice["token_ids"], (more, found, choice)
        assert found.text == choice["text"], (more, found, choice)
        assert found.finish == choice["finish_reason"], (more, found, choice)
    world.settled()


def first_token_does_not_wait_for_d(world: World) -> None:
    """D is busy with others: the client has P's token all the same."""
    begins = world.another_router("--first-token")
    with ExitStack() as open_ones, ThreadPoolExecutor(2) as pool:
        for _ in range(SLOTS):
            own = world.d.stream(world.prompt(16), max_tokens=OTHERS)
            open_ones.enter_context(own)
        wait_for(
            "D to be busy",
            lambda: world.d.metrics()["vllm:num_requests_running"] >= SLOTS,
        )
        begun, waits = (
            pool.submit(streamed, url, world.prompt(128), max_tokens=4)
            for url in (begins, world.router_url)
        )
        found, other = begun.result(), waits.result()
    assert found.first_s < found.second_s / 2, found
    world.settled()
    world.say(
        f"D has no slot: {found.first_s:.2f} s, the second token after "
        f"{found.second_s:.2f} s; without {other.first_s:.2f} s"
    )


def _near(found: Any, expected: Any) -> None:
    """Check log probabilities of a prompt, token by token."""
    assert len(found) == len(expected), (len(found), len(expected))
    assert found[0] is None and expected[0] is None
    for one, other in zip(found[1:], expected[1:], strict=True):
        assert one.keys() == other.keys(), (one, other)
        for token, told in one.items():
            assert abs(told["logprob"] - other[token]["logprob"]) < NEAR
            assert told["rank"] == other[token]["rank"], (one, other)


def log_probabilities_of_a_prompt_come_from_p(world: World) -> None:
    """D pulls, and the client has what D alone would answer."""
    for length in (40, 700):
        prompt = world.prompt(length)
        alone = _alone(world, prompt, prompt_logprobs=0)
        at_d = Delta(world.d)
        status, answer = post(
            f"{world.router_url}/v1/completions",
            completion(prompt, prompt_logprobs=0),
        )
        assert status == 200 and tokens(answer) == tokens(alone), answer
        (found,), (expected,) = answer["choices"], alone["choices"]
        _near(found["prompt_logprobs"], expected["prompt_logprobs"])
        world.settled()
        at_d.check(worker_pulls_done=1, worker_pulls_failed=0)
    words = " ".join(f"w{token}" for token in world.prompt(80))
    body = chat(words, max_completion_tokens=8, prompt_logprobs=0)
    path = "/v1/chat/completions"
    status, alone = post(f"{world.d.url}{path}", body)
    assert status == 200, alone
    world.d.reset_prefix_cache()
    at_d = Delta(world.d)
    status, answer = post(f"{world.router_url}{path}", body)
    assert status == 200, answer
    _near(answer["prompt_logprobs"], alone["prompt_logprobs"])
    for one, other in zip(answer["choices"], alone["choices"], strict=True):
        assert one["message"] == other["message"], (answer, alone)
    world.settled()
    at_d.check(worker_pulls_done=1)
    counts = metrics_of(world.router_url)
    assert counts["kvpull_router_prompt_logprobs_total"] == 3, counts
    world.say("3 answers equal, each pulled")


FIRST: list[Scenario] = [
    streams_begin_with_the_first_token_of_p,
    drawn_tokens_are_right_as_well,
    answers_of_every_kind_are_those_of_one_engine,
    log_probabilities_of_a_prompt_come_from_p,
    first_token_does_not_wait_for_d,
]
