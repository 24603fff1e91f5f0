# SPDX-License-Identifier: Apache-2.0
"""Tests of what the router gives the client of P's answer.

test_answers.py: prints the result line of the other test programs.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from functools import partial
from typing import Any

from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from kvpull_vllm.answers import Beginning
from kvpull_vllm.bodies import GIVEN_BACK
from kvpull_vllm.router import Router
from router_side import (
    PULL,
    TICKET,
    Answer,
    D,
    P,
    Seen,
    resets,
    says,
    streams,
)
from router_side import routed as routed_by
from runner import run_all, test

CHAT = "/v1/chat/completions"
TOKEN, TEXT = 7, " w7"
HEAD = {"id": "cmpl-x", "object": "text_completion", "created": 5, "model": "m"}
CHOICE = {
    "index": 0,
    "text": TEXT,
    "finish_reason": "length",
    "token_ids": [TOKEN],
    "prompt_token_ids": [1, 2, 3],
}
ASKED = {"prompt": [1, 2, 3], "max_tokens": 9, "stream": True}
SHOWN = {"kvpull_first_token": TOKEN}
routed = partial(routed_by, shows_first=True)
GOES_ON = {**PULL, **SHOWN, "kvpull_continues": True}


def given(params: Any = None, **choice: Any) -> dict[str, Any]:
    """Return P's answer with its first token, changed where it is told."""
    shown = SHOWN if params is None else params
    return {
        **HEAD,
        "choices": [{**CHOICE, **choice}],
        "kv_transfer_params": {**TICKET, **shown},
    }


def line(told: dict[str, Any]) -> str:
    """Return a line of a stream."""
    return f"data: {json.dumps(told)}"


def said(token: int, finish: Any = None, **more: Any) -> str:
    """Return D's line of a token."""
    choice = {"index": 0, "text": f" w{token}", "finish_reason": finish}
    return line({**HEAD, "choices": [{**choice, "token_ids": [token], **more}]})


USAGE = {"prompt_tokens": 4, "total_tokens": 6, "completion_tokens": 2}
LINES = [
    said(8, prompt_token_ids=[1, 2, 3, TOKEN]),
    said(9, "length", prompt_token_ids=None),
    line({**HEAD, "choices": [], "usage": USAGE}),
    "data: [DONE]",
]


def events(text: str) -> list[Any]:
    """Return what the lines of a stream say."""
    lines = [one for one in text.split("\n\n") if one]
    assert lines[-1] == "data: [DONE]", text
    return [json.loads(one.removeprefix("data: ")) for one in lines[:-1]]


def asked_of(seen: Seen, name: str) -> dict[str, Any]:
    """Return the body of an engine's one call, give-backs left out."""
    (body,) = (
        body
        for called, body in seen.calls
        if called == name and body.get("model") != GIVEN_BACK
    )
    return body


@test
def stream_begins_with_the_first_token_of_p() -> None:
    """D goes on from it: no token twice, and usage as of one engine."""
    more = {"return_token_ids": True, "stream_options": {"include_usage": True}}
    engines = {"p0": says(given()), "d0": streams(*LINES)}
    seen = routed(engines, {**ASKED, **more})
    assert seen.status == 200 and seen.names == ["p0", "d0"], seen
    assert asked_of(seen, "p0")["return_token_ids"] is True
    at_d = asked_of(seen, "d0")
    assert at_d["prompt"] == [1, 2, 3, TOKEN] and at_d["max_tokens"] == 8, at_d
    assert at_d["kv_transfer_params"] == GOES_ON, at_d
    first, *rest, usage = events(seen.text)
    assert {name: first[name] for name in HEAD} == HEAD, first
    (choice,) = first["choices"]
    assert choice["text"] == TEXT and choice["token_ids"] == [TOKEN], choice
    assert choice["prompt_token_ids"] == [1, 2, 3], choice
    assert choice["finish_reason"] is None, choice
    shown = [one["choices"][0] for one in rest]
    assert [one["token_ids"] for one in shown] == [[8], [9]], shown
    assert all(one.get("prompt_token_ids") is None for one in shown), shown
    assert usage["usage"] == {
        "prompt_tokens": 3,
        "total_tokens": 6,
        "completion_tokens": 3,
    }, usage
    assert seen.count("first_tokens") == 1 and not seen.given_back


@test
def clients_that_ask_for_no_token_ids_get_none() -> None:
    """P names them to the router; D is not asked for them either."""
    for more in ({}, {"return_token_ids": False}, {"max_tokens": None}):
        engines = {"p0": says(given()), "d0": streams(*LINES)}
        seen = routed(engines, {**ASKED, **more})
        (choice,) = events(seen.text)[0]["choices"]
        assert choice["text"] == TEXT, choice
        assert choice["token_ids"] is None, choice
        assert choice["prompt_token_ids"] is None, choice
        assert asked_of(seen, "p0")["return_token_ids"] is True, seen
        at_d = asked_of(seen, "d0")
        assert not at_d.get("return_token_ids"), at_d
        assert at_d["max_tokens"] == (15 if "max_tokens" in more else 8), at_d


@test
def first_token_comes_before_d_has_made_one() -> None:
    """D has taken the request, and waits until the client has the token."""

    async def stream() -> tuple[bytes, bytes]:
        has_token = asyncio.Event()

        async def waits(request: web.Request) -> web.StreamResponse:
            made = web.StreamResponse(
                headers={"Content-Type": "text/event-stream"}
            )
            await made.prepare(request)
            await asyncio.wait_for(has_token.wait(), 20)
            await made.write(b"data: [DONE]\n\n")
            return made

        async with contextlib.AsyncExitStack() as stack:
            urls = []
            for answer in (says(given()), waits):
                app = web.Application()
                app.router.add_route("*", "/{path:.*}", answer)
                server = TestServer(app)
                await stack.enter_async_context(server)
                urls.append(str(server.make_url("")).rstrip("/"))
            router = Router(urls[:1], urls[1:], shows_first=True)
            client = TestClient(TestServer(router.app()))
            await stack.enter_async_context(client)
            answer = await client.post("/v1/completions", json=ASKED)
            first = await answer.content.readuntil(b"\n\n")
            has_token.set()
            return first, await answer.read()

    first, rest = asyncio.run(asyncio.wait_for(stream(), 60))
    assert json.loads(first[6:])["choices"][0]["text"] == TEXT, first
    assert rest == b"data: [DONE]\n\n", rest


def begins(
    engines: dict[str, Answer], body: dict[str, Any], **more: Any
) -> bool:
    """Say whether a stream begins with P's token; D's is as today if not."""
    seen = routed(engines, body, **more)
    assert seen.status == 200, seen
    at_d = asked_of(seen, "d0")
    if seen.count("first_tokens"):
        assert at_d["prompt"] == [1, 2, 3, TOKEN], at_d
        return True
    assert at_d["kv_transfer_params"].items() >= PULL.items(), at_d
    assert "kvpull_continues" not in at_d["kv_transfer_params"], at_d
    for name in ("prompt", "max_tokens"):
        assert at_d.get(name) == body.get(name), at_d
    assert TEXT not in seen.text, seen.text
    return False


@test
def requests_that_p_cannot_begin_are_answered_by_d() -> None:
    """Parameters that concern the answer as a whole, and unknown ones."""
    engines = {"p0": says(given()), "d0": streams("data: [DONE]")}
    for more in (
        {"stream": False},
        {"stream": None},
        {"max_tokens": 1},
        {"max_tokens": 0},
        {"max_tokens": "9"},
        {"max_tokens": 9.0},
        {"n": 2},
        {"best_of": 2},
        {"echo": True},
        {"logprobs": 0},
        {"logprobs": 3},
        {"stop": "x"},
        {"stop": ["x"]},
        {"seed": 0},
        {"seed": 3},
        {"seed": False},
        {"min_tokens": 1},
        {"presence_penalty": 0.5},
        {"frequency_penalty": -0.5},
        {"bad_words": ["x"]},
        {"suffix": "x"},
        {"response_format": {"type": "json_object"}},
        {"structured_outputs": {"regex": "a"}},
        {"truncate_prompt_tokens": 2},
        {"thinking_token_budget": 0},
        {"repetition_detection": {}},
        {"skip_special_tokens": False},
        {"spaces_between_special_tokens": False},
        {"stream_options": {"continuous_usage_stats": True}},
        {"stream_interval": 4},
        {"return_token_ids": "true"},
        {"vllm_xargs": {"x": 1}},
        {"logits_processors": ["x"]},
        {"of_a_newer_vllm": 0},
    ):
        assert not begins(engines, {**ASKED, **more}), more
    assert not begins(engines, ASKED, path=CHAT)
    assert not begins(engines, ASKED, shows_first=False)
    seen = routed_by(engines, ASKED)
    assert seen.count("first_tokens") == 0, "nobody asked the router for it"


@test
def requests_that_p_can_begin_are_begun() -> None:
    """A parameter that concerns each token by itself changes nothing."""
    engines = {"p0": says(given()), "d0": streams("data: [DONE]")}
    for more in (
        {"prompt": "a b c"},
        {"prompt": [[1, 2, 3]]},
        {"n": 1, "best_of": None, "echo": False, "logprobs": None},
        {"temperature": 0.7, "top_p": 0.9, "top_k": 40, "min_p": 0.1},
        {"repetition_penalty": 1.1, "logit_bias": {"5": 1}},
        {"stop": [], "seed": None, "min_tokens": 0, "presence_penalty": 0.0},
        {"stop_token_ids": [5], "ignore_eos": True, "user": "x"},
        {"stream_options": {"include_usage": True}},
        {"kv_transfer_params": {"kvpull_ticket": "other"}},
    ):
        assert begins(engines, {**ASKED, **more}), more


@test
def answers_of_p_that_begin_nothing_are_left() -> None:
    """A half character, the end, or what no P with this package says."""
    for wrong in (
        given(text=""),
        given(text="\ufffd"),
        given(text=None),
        given(finish_reason="stop"),
        given(token_ids=[]),
        given(token_ids=[TOKEN, 8]),
        given(token_ids=None),
        given(token_ids=["7"]),
        given(prompt_token_ids=None),
        given(prompt_token_ids=[]),
        given(prompt_token_ids=[1, "2", 3]),
        given(params={}),
        given(params={"kvpull_first_token": 8}),
        given(params={"kvpull_first_token": 7.0}),
        {**given(), "choices": []},
        {**given(), "choices": [CHOICE, CHOICE]},
        {"choices": [CHOICE], "kv_transfer_params": {**TICKET, **SHOWN}},
        {"kv_transfer_params": {**TICKET, **SHOWN}},
    ):
        engines = {"p0": says(wrong), "d0": streams("data: [DONE]")}
        assert not begins(engines, ASKED), wrong
    assert not begins({"p0": P, "d0": streams("data: [DONE]")}, ASKED)


@test
def a_d_that_refuses_is_what_the_client_sees() -> None:
    """The status is D's: no token was given before D took the request."""
    refuses = says({"error": "too long"}, status=422)
    seen = routed({"p0": says(given()), "d0": refuses}, ASKED)
    assert seen.status == 422 and TEXT not in seen.text, seen
    assert seen.count("first_tokens") == 0, seen.metrics
    assert seen.given_back == [("d0", GOES_ON)], seen
    seen = routed(
        {"p0": says(given()), "d0": resets, "d1": streams(*LINES)}, ASKED
    )
    assert seen.status == 200 and len(events(seen.text)) == 4, seen
    assert seen.count("first_tokens") == 1, seen.metrics
    seen = routed({"p0": says(given()), "d0": resets}, ASKED)
    assert seen.status == 503 and TEXT not in seen.text, seen
    # The rest of an answer alone would be a wrong one.
    seen = routed({"p0": says(given()), "d0": D}, ASKED)
    assert seen.status == 502 and "no stream" in seen.text, seen


@test
def errors_in_a_stream_are_passed_on() -> None:
    """D fails behind the first token, and its ticket is given back."""
    error = 'data: {"error": {"message": "\\"usage\\"", "code": 503}}'
    engines = {"p0": says(given()), "d0": streams(error, "data: [DONE]")}
    seen = routed(engines, ASKED)
    first, failed = events(seen.text)
    assert first["choices"][0]["text"] == TEXT, first
    assert error in seen.text and failed["error"]["code"] == 503, seen.text
    assert seen.given_back == [("d0", GOES_ON)], seen


def beginning() -> Beginning:
    """Return one, as the router makes it."""
    made = Beginning.of(ASKED, given())
    assert made is not None
    return made


@test
def lines_are_the_same_wherever_a_stream_is_cut() -> None:
    """A network cuts it anywhere."""
    quoted = said(8, text='"usage": {"prompt_tokens": 4} "prompt_token_ids"')
    whole = "".join(f"{one}\n\n" for one in [*LINES[:2], quoted, *LINES[2:]])
    raw = whole.encode() + b"data: half"
    once = beginning()
    expected = once.take(raw) + once.end()
    assert expected.endswith(b"[DONE]\n\ndata: half"), expected
    assert quoted.encode() in expected, "a text of the model is no part of it"
    for at in range(1, len(raw)):
        cut = beginning()
        found = cut.take(raw[:at]) + cut.take(raw[at:]) + cut.end()
        assert found == expected, at


@test
def lines_without_an_end_are_bounded() -> None:
    """An engine that is not itself does not fill the router's memory."""
    cut = beginning()
    piece = b"x" * (32 << 20)
    assert cut.take(piece) == b"" and cut.take(piece) == b""
    try:
        cut.take(piece)
    except ValueError as error:
        assert "a line of D has more than" in str(error), error
    else:
        raise AssertionError("not bounded")


LOGPROBS = [None, {"2": {"logprob": -0.5, "rank": 1, "decoded_token": "w2"}}]
WANTS = {"prompt": [1, 2], "prompt_logprobs": 0, "max_tokens": 4}


def computed(**more: Any) -> dict[str, Any]:
    """Return P's answer with log probabilities of the prompt."""
    return {
        "choices": [{"text": "a", "prompt_logprobs": LOGPROBS}],
        "kv_transfer_params": TICKET,
        **more,
    }


@test
def log_probabilities_of_a_prompt_are_from_p() -> None:
    """D is not asked for them, so it pulls; each choice has them."""
    answer = {
        "choices": [
            {"text": "b", "prompt_logprobs": None},
            {"text": "c", "prompt_logprobs": None},
        ],
        "usage": USAGE,
    }
    engines = {"p0": says(computed()), "d0": says(answer)}
    seen = routed(engines, {**WANTS, "n": 2})
    assert seen.status == 200 and seen.names == ["p0", "d0"], seen
    assert asked_of(seen, "p0")["prompt_logprobs"] == 0
    at_d = asked_of(seen, "d0")
    assert "prompt_logprobs" not in at_d and at_d["n"] == 2, at_d
    assert at_d["kv_transfer_params"] == PULL, at_d
    found = json.loads(seen.text)
    assert found["usage"] == USAGE, found
    assert [one["text"] for one in found["choices"]] == ["b", "c"], found
    for one in found["choices"]:
        assert one["prompt_logprobs"] == LOGPROBS, found
    assert seen.count("prompt_logprobs") == 1, seen.metrics


@test
def log_probabilities_of_a_chat_stand_beside_its_choices() -> None:
    """As vLLM answers a chat."""
    at_p = {"choices": [{}], "prompt_logprobs": LOGPROBS}
    at_p["kv_transfer_params"] = TICKET
    at_d = {"choices": [{"message": {"content": "b"}}], "prompt_logprobs": None}
    seen = routed({"p0": says(at_p), "d0": says(at_d)}, WANTS, path=CHAT)
    assert json.loads(seen.text) == {**at_d, "prompt_logprobs": LOGPROBS}, seen


@test
def log_probabilities_of_a_p_that_was_not_pulled_are_not_believed() -> None:
    """D computed: it is asked once more, for them too, and without a ticket."""
    why = {"kvpull_computed": "why"}
    bodies: list[dict[str, Any]] = []

    async def computes(request: web.Request) -> web.StreamResponse:
        body = await request.json()
        bodies.append(body)
        params = body.get("kv_transfer_params")
        own = None if params else ["own"]
        return web.json_response(
            {
                "choices": [{"text": "b", "prompt_logprobs": own}],
                "kv_transfer_params": why if params else None,
            }
        )

    seen = routed({"p0": says(computed()), "d0": computes}, WANTS)
    assert seen.names == ["p0", "d0", "d0"], seen
    assert json.loads(seen.text)["choices"][0]["prompt_logprobs"] == ["own"]
    assert "prompt_logprobs" not in bodies[0] and bodies[1] == WANTS, bodies
    assert seen.count("prompt_logprobs") == 0, seen.metrics


@test
def a_p_without_log_probabilities_leaves_them_to_d() -> None:
    """D computes them; the ticket goes back, as vLLM reads no KV for them."""
    for wrong in (
        computed(choices=[]),
        computed(choices=[{"prompt_logprobs": None}]),
        computed(choices=[{"prompt_logprobs": "x"}]),
        computed(choices=None),
    ):
        engines = {"p0": says(wrong), "d0": says({"choices": []})}
        seen = routed(engines, WANTS)
        assert asked_of(seen, "d0") == WANTS, seen
        assert seen.given_back == [("d0", PULL)], seen
    # Nor has a P a ticket where it holds nothing.
    engines = {"p0": says(computed(kv_transfer_params=None)), "d0": D}
    seen = routed(engines, WANTS)
    assert asked_of(seen, "d0") == WANTS and not seen.given_back, seen


@test
def answers_without_choices_are_no_answers() -> None:
    """An error is D's own; an answer that is none is said to be so."""
    refuses = says({"error": "x"}, status=400)
    seen = routed({"p0": says(computed()), "d0": refuses}, WANTS)
    assert seen.status == 400 and "x" in seen.text, seen
    seen = routed({"p0": says(computed()), "d0": says([1])}, WANTS)
    assert seen.status == 502 and "strangely" in seen.text, seen


if __name__ == "__main__":
    logging.getLogger("kvpull.router").setLevel(logging.ERROR)
    raise SystemExit(run_all())
