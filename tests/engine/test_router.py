# SPDX-License-Identifier: Apache-2.0
"""Tests of the router between servers that stand for P and D.

test_router.py: prints the result line of the other test programs.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import logging
import socket
import time
from typing import Any

from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from kvpull_vllm.bodies import GIVEN_BACK
from kvpull_vllm.pairs import Pairs, Told
from kvpull_vllm.router import Router, main
from router_side import (
    PULL,
    TICKET,
    D,
    P,
    resets,
    routed,
    says,
    slow,
    speaks_no_http,
    stands,
    stands_but_refuses,
    streams,
    text,
)
from runner import run_all, test


@test
def ticket_goes_from_p_to_d() -> None:
    """P is asked for one token and to hold; D gets what P answered."""
    seen = routed({"p0": P, "d0": D}, {"max_tokens": 9, "stream": True})
    assert seen.status == 200 and seen.names == ["p0", "d0"]
    assert seen.calls[0][1]["max_tokens"] == 1
    assert not seen.calls[0][1]["stream"]
    assert seen.params("p0")["do_remote_decode"] is True
    assert seen.params("d0") == PULL
    assert seen.calls[1][1]["max_tokens"] == 9


@test
def prefill_that_fails_is_no_failure() -> None:
    """The next P is asked where one fails; without any, D computes."""
    for wrong in (text, resets, says({}, status=500)):
        seen = routed({"p0": wrong, "p1": P, "d0": D})
        assert (seen.status, seen.names) == (200, ["p0", "p1", "d0"]), seen
        assert seen.params("d0") == PULL
    for wrong in (
        says([1]),
        says({"kv_transfer_params": "t"}),
        says({"kv_transfer_params": None}),
        says({}, status=400),
    ):
        seen = routed({"p0": wrong, "d0": D})
        assert (seen.status, seen.names) == (200, ["p0", "d0"]), seen
        assert seen.params("d0") is None


@test
def producer_without_tickets_is_named_once_a_minute() -> None:
    """A kv_consumer in P's place, or an engine without a connector."""
    said = io.StringIO()
    handler = logging.StreamHandler(said)
    log = logging.getLogger("kvpull.router")
    level = log.level
    log.addHandler(handler)
    log.setLevel(logging.WARNING)
    try:
        seen = routed({"p0": says({"choices": []}), "d0": D}, calls=3)
        assert (seen.status, seen.names) == (200, ["p0", "d0"] * 3), seen
        (line,) = said.getvalue().splitlines()
        assert "without kv_transfer_params" in line, line
        seen = routed({"p0": P, "d0": D})
        assert said.getvalue().count("\n") == 1, said.getvalue()
    finally:
        log.removeHandler(handler)
        log.setLevel(level)


@test
def prefill_has_a_limit() -> None:
    """A P that stands does not hold a request for ever."""
    seen = routed({"p0": stands, "p1": P, "d0": D}, prefill_timeout_s=2)
    assert (seen.status, seen.names) == (200, ["p0", "p1", "d0"]), seen


@test
def decode_that_ends_before_an_answer_is_asked_of_the_next() -> None:
    """A D that was killed, with its connection open."""
    seen = routed({"p0": P, "d0": resets, "d1": D})
    assert (seen.status, seen.names) == (200, ["p0", "d0", "d1"]), seen
    assert seen.params("d1") == PULL
    seen = routed({"p0": P, "d0": resets})
    assert seen.status == 503, seen
    for method, path in (("POST", "/v1/completions"), ("GET", "/v1/models")):
        engines = {"d0": speaks_no_http, "d1": D}
        seen = routed(engines, method=method, path=path)
        assert (seen.status, seen.names[-1]) == (200, "d1"), seen


@test
def producer_is_asked_only_for_what_d_can_pull() -> None:
    """No P prefills a request that D cannot pull: nobody would read it."""
    for body in (
        {"use_beam_search": True, "n": 2},
        {"prompt_embeds": "AAAA"},
        {"prompt": [[1, 2], [3, 4]]},
        {"prompt": ["a", "b"]},
        {"prompt_logprobs": 0, "stream": True},
        {"echo": True, "logprobs": 1},
    ):
        seen = routed({"p0": P, "d0": D}, body)
        assert (seen.status, seen.names) == (200, ["d0"]), seen
        assert seen.params("d0") is None


@test
def what_needs_no_prefill_is_answered_by_d() -> None:
    """Models, responses, tokens; the router's own counts are its metrics."""
    for method, path in (
        ("GET", "/v1/models"),
        ("GET", "/version"),
        ("POST", "/v1/responses"),
        ("POST", "/v1/messages"),
        ("POST", "/v1/messages/count_tokens"),
        ("POST", "/tokenize"),
        ("POST", "/detokenize"),
    ):
        body = {"kv_transfer_params": {"kvpull_ticket": "other"}}
        seen = routed({"p0": P, "d0": D}, body, path=path, method=method)
        assert (seen.status, seen.names) == (200, ["d0"]), seen
        assert seen.paths == [path] and seen.params("d0") is None, seen
        ends = {"p0": P, "d0": resets, "d1": D}
        seen = routed(ends, path=path, method=method)
        # aiohttp asks the same engine once more for what it may ask twice.
        assert (seen.status, seen.names[-1]) == (200, "d1"), seen
    seen = routed({"p0": P, "d0": D}, path="/v1/models", method="HEAD")
    assert (seen.status, seen.names) == (405, []), seen
    seen = routed({"p0": P, "d0": D}, path="/metrics", method="GET")
    assert (seen.status, seen.names) == (200, []), seen
    assert "\nkvpull_router_given_back_total 0\n" in seen.text, seen.text


@test
def trace_goes_through_p_and_d() -> None:
    """P and D get the client's trace and its key, and no other header."""
    passed = {
        "traceparent": "00-a-b-01",
        "tracestate": "k=v",
        "Authorization": "x",
    }
    seen = routed({"p0": P, "d0": D}, headers={**passed, "X-Other": "1"})
    assert seen.names == ["p0", "d0"], seen
    for headers in seen.headers:
        assert passed.items() <= headers.items(), headers
        assert "X-Other" not in headers, headers


@test
def idle_connections_end_before_engines_end_them() -> None:
    """vLLM ends them after 5 s: what is sent just then has no answer."""

    async def idle() -> float:
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[float] = loop.create_future()

        async def serve(
            reader: asyncio.StreamReader, writer: asyncio.StreamWriter
        ) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
            began = time.monotonic()
            while await reader.read(4096):
                pass
            ended.set_result(time.monotonic() - began)
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        router = Router([], [f"http://127.0.0.1:{port}"])
        async with TestClient(TestServer(router.app())) as client:
            answer = await client.get("/version")
            assert answer.status == 200, answer
            took = await asyncio.wait_for(ended, 60)
        server.close()
        return took

    assert 1 < asyncio.run(idle()) < 4.5


@test
def ticket_that_no_d_took_is_given_back() -> None:
    """D refused it in its own way, or there is no D: P does it itself."""
    refuses = says({}, status=422)
    seen = routed({"p0": P, "d0": refuses})
    assert (seen.status, seen.names) == (422, ["p0", "d0", "d0"]), seen
    assert seen.given_back == [("d0", PULL)], seen
    seen = routed({"p0": P, "d0": resets})
    assert seen.status == 503, seen
    assert seen.given_back == [("d0", PULL), ("p0", PULL)], seen
    # Nor is what was taken, or never was, given back.
    for p in (P, says({}, status=400)):
        seen = routed({"p0": p, "d0": D})
        assert (seen.status, seen.given_back) == (200, []), seen
    seen = routed({"p0": says({}, status=400), "d0": refuses})
    assert (seen.status, seen.given_back) == (422, []), seen


@test
def ticket_of_a_stream_that_is_an_error_is_given_back() -> None:
    """vLLM answers 200, then refuses: a full queue, log probabilities."""
    error, done = 'data: {"error": {"code": 503}}', "data: [DONE]"
    for lines in ((error, done), (": keep-alive", error, done), ()):
        seen = routed({"p0": P, "d0": streams(*lines)}, {"stream": True})
        assert (seen.status, seen.given_back) == (200, [("d0", PULL)]), seen
        assert seen.text == "".join(f"{line}\n\n" for line in lines), seen
    # A request that fails after a token was taken, and so was a slow one.
    token = 'data: {"choices": []}'
    for lines in ((token, error, done), (": keep-alive", token, done)):
        seen = routed({"p0": P, "d0": streams(*lines)}, {"stream": True})
        assert (seen.status, seen.given_back) == (200, []), seen


@test
def ticket_of_a_client_that_left_is_given_back() -> None:
    """Before D answered, and between the two ends of P's answer."""
    seen = routed({"p0": P, "d0": stands_but_refuses}, leaves_s=1)
    assert seen.given_back == [("d0", PULL)], seen
    seen = routed({"p0": slow, "d0": stands_but_refuses}, leaves_s=1)
    assert seen.names == ["p0", "d0"], seen
    assert seen.given_back == [("d0", PULL)], seen
    # P was not done: it ends by itself, and there is no ticket.
    seen = routed({"p0": stands, "d0": D}, leaves_s=1)
    assert (seen.names, seen.given_back) == (["p0"], []), seen


def _computed(**more: Any) -> dict[str, Any]:
    return {"kv_transfer_params": {"kvpull_computed": "why", **more}}


FAILED = _computed(kvpull_peer_failed=True)


@test
def a_d_that_could_not_pull_is_parted_from_its_p() -> None:
    """D says so in an answer or a stream: it computed, or an error."""
    whole = f"data: {json.dumps(FAILED)}"
    for wrong in (
        says(FAILED),
        says({}, status=500),
        streams("data: {}", whole),
        streams('data: {"error": {"message": "x", "code": 500}}'),
    ):
        seen = routed({"p0": P, "d0": wrong}, calls=3)
        names = [n for n, body in seen.calls if body.get("model") != GIVEN_BACK]
        assert names == ["p0", "d0", "d0", "d0"], (seen, wrong)
        assert seen.count("pairs_failed") == 1, seen.metrics
        assert seen.count("unpaired") == 2, seen.metrics
        assert seen.count("prefills") == 1, seen.metrics


@test
def what_a_d_says_is_found_wherever_its_answer_is_cut() -> None:
    """A network cuts it anywhere."""
    whole = json.dumps({"choices": [{"text": "x" * 99}], **FAILED}).encode()
    for at in range(1, len(whole)):
        told = Told(200, "application/json")
        told.look(whole[:at])
        told.look(whole[at:])
        assert told.has_failed and not told.has_pulled, at
    for wide in ('{"kvpull_peer_failed":   true}', '{"kvpull_peer_failed":true}'):
        told = Told(200, "text/event-stream")
        told.look(wide.encode())
        assert told.has_failed, wide


@test
def a_d_that_computed_for_another_reason_stays_paired() -> None:
    """A short prompt, an expired hold, a bad request, a text that says so."""
    quoted = {"choices": [{"text": json.dumps(FAILED)}]}
    for answer in (
        says(_computed()),
        says({}, status=400),
        says(quoted),
        streams(f"data: {json.dumps(quoted)}"),
        streams('data: {"error": {"message": "x", "code": 400}}'),
        streams("data: {}", f"data: {json.dumps(_computed())}"),
    ):
        seen = routed({"p0": P, "d0": answer}, calls=2)
        assert seen.names.count("p0") == 2, seen
        assert seen.count("pairs_failed") == 0, seen.metrics


@test
def engines_are_parted_pair_by_pair() -> None:
    """A D goes on with another P, and a P with another D."""
    seen = routed({"p0": P, "d0": says(FAILED), "d1": D}, calls=4)
    assert seen.names == ["p0", "d0"] + ["p0", "d1"] * 3, seen.names
    other = says({"kv_transfer_params": {**TICKET, "kvpull_ticket": "u"}})

    async def only_of_p1(request: web.Request) -> web.StreamResponse:
        asked = (await request.json())["kv_transfer_params"]
        is_p1 = asked["kvpull_ticket"] == "u"
        return web.json_response({} if is_p1 else FAILED)

    seen = routed({"p0": P, "p1": other, "d0": only_of_p1}, calls=4)
    assert seen.names == ["p0", "d0"] + ["p1", "d0"] * 3, seen.names
    assert seen.count("unpaired") == 0 and seen.count("prefills") == 4


@test
def a_pair_is_tried_again_after_a_time_that_doubles() -> None:
    """Up to a bound; a pull that goes well ends it."""
    now = 100.0
    pairs = Pairs(lambda: now)
    waited = []
    for _ in range(9):
        waited.append(pairs.fail("p", "d"))
        assert pairs.are_apart("p", "d") and not pairs.are_apart("d", "p")
        # A request that was on its way when they were parted fails, too.
        assert pairs.fail("p", "d") == 0
        now += waited[-1]
        assert not pairs.are_apart("p", "d")
    assert waited == [1, 2, 4, 8, 16, 32, 64, 64, 64], waited
    pairs.succeed("p", "d")
    assert pairs.fail("p", "d") == 1


@test
def bodies_that_are_no_object_are_refused() -> None:
    """The client's fault, and no traceback in the log."""
    for data in (b"", b"{", b"[1]", b"\xff", b"[" * 100_000):
        seen = routed({"p0": P, "d0": D}, data=data)
        assert (seen.status, seen.names) == (400, []), (data[:9], seen)
    packed = {"Content-Encoding": "gzip"}
    seen = routed({"p0": P, "d0": D}, data=b"{}", headers=packed)
    assert (seen.status, seen.names) == (400, []), seen


@test
def clients_have_no_say_in_the_transfer() -> None:
    """kv_transfer_params of a client, also in vllm_xargs, reach no engine."""
    body = {
        "kv_transfer_params": {"kvpull_ticket": "other"},
        "vllm_xargs": {"kv_transfer_params": "abc", "x": 1},
    }
    seen = routed({"p0": P, "d0": D}, body)
    assert [call["vllm_xargs"] for _, call in seen.calls] == [{"x": 1}] * 2
    assert seen.params("d0") == PULL
    seen = routed({"d0": D}, body)
    assert seen.params("d0") is None
    seen = routed({"d0": D}, {"vllm_xargs": "abc"})
    assert seen.status == 200


def refused(*options: str) -> tuple[Any, str]:
    """Return the status and the last line of a router that does not start."""
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        try:
            main(list(options))
        except SystemExit as end:
            return end.code, said.getvalue().splitlines()[-1]
    raise AssertionError(options)


@test
def router_that_cannot_start_says_why_in_one_line() -> None:
    """A URL that would fail every request, and a port that is taken."""
    d = ("--decode", "http://127.0.0.1:1")
    for url in ("localhost:8100", "127.0.0.1:8100", "http://", "p0", "http://p0:99999",
                "http://p0:x", "http://p0:8100?x"):
        status, line = refused("--prefill", url, *d)
        assert status == 2 and "say http://HOST:PORT" in line, (status, line)
    for limit in ("0", "-1", "nan", "inf"):
        status, line = refused(*d, "--port", "80000", "--prefill-timeout", limit)
        assert status == 2 and "above 0" in line, (status, line)
    status, line = refused("--decode", "http://127.0.0.1:1/v1/")
    assert status == 2 and "without /v1" in line, (status, line)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        status, line = refused(*d, "--port", port)
    assert status == 1 and f"--port {port}: " in line, (status, line)
    assert "in use" in line, line
    status, line = refused(*d, "--port", "80000")
    assert status == 1 and "0-65535" in line, (status, line)


if __name__ == "__main__":
    logging.getLogger("kvpull.router").setLevel(logging.ERROR)
    raise SystemExit(run_all())
