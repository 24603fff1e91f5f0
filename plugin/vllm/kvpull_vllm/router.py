# SPDX-License-Identifier: Apache-2.0
"""A small router: prefill at P, then decode at D from what P holds.

    python -m kvpull_vllm.router --port 8000 \
        --prefill http://127.0.0.1:8100 --decode http://127.0.0.1:8200

Both options may be repeated; engines are taken in turn. A prefill that fails,
or has no answer within --prefill-timeout, is no failure of the request: the
next P is asked, then D computes by itself. A ticket that no D took is given
back, so that P does not hold its blocks for a lease. A D that could not pull from
a P is not paired with it for a while. With --first-token a stream of
/v1/completions begins with P's token as soon as D has taken the request.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import logging
import math
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import aiohttp
from aiohttp import web

from kvpull_vllm.answers import Beginning, PromptLogprobs, begins_with_p
from kvpull_vllm.bodies import (
    decode_body,
    is_pulled,
    prefill_body,
    refused_body,
    without_params,
)
from kvpull_vllm.pairs import Pairs, Told

logger = logging.getLogger("kvpull.router")

_PATHS = ("/v1/completions", "/v1/chat/completions")
# Served by a D as they are.
_POSTS = (
    "/v1/responses",
    "/v1/messages",
    "/v1/messages/count_tokens",
    "/tokenize",
    "/detokenize",
)
_GETS = ("/v1/models", "/version")
# A client's headers that P and D get. A trace goes through both: see traces.py.
_PASSED = ("Authorization", "traceparent", "tracestate")
_BODY_MAX = 64 << 20
_CONNECT_S = 5.0
# vLLM ends a connection that is idle for 5 s (VLLM_HTTP_TIMEOUT_KEEP_ALIVE), and
# a request that is sent at that moment has no answer: ours ends before.
_IDLE_S = 2.0
# A P that stands must not hold requests for ever; a queue before it is none.
PREFILL_TIMEOUT_S = 300.0
# The rest of P's answer is short once its first byte has come.
_ANSWER_S = 5.0
# To give a ticket back; then its lease ends it. So many at once.
_GIVE_BACK_S = 5.0
_GIVE_BACKS_MAX = 1024
_TICKET = "kvpull_ticket"
_COUNTED = {
    "requests": "Requests that came",
    "prefills": "Requests that a P prefilled",
    "prefills_failed": "Requests for which no P gave a ticket: D computes",
    "given_back": "Tickets that no D took, given back",
    "stranded": "Tickets that could not be given back: a lease ends them",
    "no_decode": "Requests that no D answered",
    "pairs_failed": "Times that a P and a D were parted, as D could not pull",
    "unpaired": "Requests for which all P and D are parted: D computes",
    "first_tokens": "Streams that began with P's first token",
    "prompt_logprobs": "Answers with a prompt's log probabilities from P",
}
_SAID_S = 60.0  # between two lines of one kind
# Lines of a stream that do not say that the request runs: vLLM answers 200
# before it has checked everything for which it may refuse a request.
_NOT_RUNNING = (b":", b'data: {"error"', b"data: [DONE]")
# Before an answer began. An engine that was killed may reset the connection.
_NO_ANSWER = (
    aiohttp.ClientOSError,
    aiohttp.ClientResponseError,  # it speaks no HTTP
    aiohttp.ServerDisconnectedError,
    aiohttp.ServerTimeoutError,
)


class Prefilled(NamedTuple):
    """The P that answered, and its answer; both empty where none did."""

    url: str = ""
    answer: Any = None

    @property
    def params(self) -> dict[str, Any] | None:
        """P's kv_transfer_params, None if it has none."""
        return _params(self.answer)


class Order(NamedTuple):
    """D's request, and the parts of P's answer that go into D's."""

    asked: dict[str, Any]
    beginning: Beginning | None = None
    logprobs: PromptLogprobs | None = None


def _passed(request: web.Request) -> dict[str, str]:
    return {
        name: request.headers[name]
        for name in _PASSED
        if name in request.headers
    }


class Router:
    """Engines and the calls to them."""

    def __init__(
        self,
        prefill: list[str],
        decode: list[str],
        prefill_timeout_s: float = PREFILL_TIMEOUT_S,
        shows_first: bool = False,
    ) -> None:
        self._shows_first = shows_first
        self._prefill_timeout = aiohttp.ClientTimeout(
            total=prefill_timeout_s, sock_connect=_CONNECT_S
        )
        self._prefill = prefill
        self._decode = decode
        self._turn: dict[str, Iterator[int]] = {
            "prefill": itertools.count(),
            "decode": itertools.count(),
        }
        self._session: aiohttp.ClientSession | None = None
        self._give_backs: set[asyncio.Task[None]] = set()
        self._counts = dict.fromkeys(_COUNTED, 0)
        self._said_at: dict[str, float] = {}  # of a P without tickets
        self._pairs = Pairs()

    async def session(self, _app: web.Application) -> AsyncIterator[None]:
        """Keep one client session while the server runs."""
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S)
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=_IDLE_S)
        async with aiohttp.ClientSession(
            timeout=timeout, connector=connector
        ) as made:
            self._session = made
            yield
            if self._give_backs:
                await asyncio.wait(self._give_backs, timeout=_GIVE_BACK_S)

    def _in_turn(self, kind: str, urls: list[str]) -> list[str]:
        if not urls:
            return []
        first = next(self._turn[kind]) % len(urls)
        return urls[first:] + urls[:first]

    def _paired(self, decode: list[str]) -> tuple[list[str], list[str]]:
        """Return the P that may be asked, and all D, the first of them theirs."""
        prefill = self._in_turn("prefill", self._prefill)
        for d in decode:
            paired = [p for p in prefill if not self._pairs.are_apart(p, d)]
            if paired:
                return paired, [d, *(one for one in decode if one != d)]
        return [], decode

    def _judge(self, p: str, d: str, told: Told) -> None:
        """Take note of what a D's answer says of its pull."""
        if told.has_pulled:
            self._pairs.succeed(p, d)
        elif told.has_failed and (wait_s := self._pairs.fail(p, d)):
            self._counts["pairs_failed"] += 1
            logger.warning(
                "%s could not pull from %s: its log says why; they are not "
                "paired for %g s",
                d,
                p,
                wait_s,
            )

    async def prefill(
        self,
        path: str,
        body: dict[str, Any],
        headers: dict[str, str],
        urls: list[str],
        is_shown: bool = False,
    ) -> Prefilled:
        """Return which P answered, and what."""
        assert self._session is not None
        made = Prefilled()
        for url in urls:
            try:
                async with self._session.post(
                    url + path,
                    json=prefill_body(body, is_shown),
                    headers=headers,
                    timeout=self._prefill_timeout,
                ) as answer:
                    if answer.status == 200:
                        found = await self._answered(answer, headers)
                        made = Prefilled(url, found)
                        self._look_at(url, made.params)
                        return made
                    text = (await answer.text())[:200]
                    logger.warning("%s: %d %s", url, answer.status, text)
                    if answer.status < 500:
                        return Prefilled(url)  # D says it in its own words
            except (aiohttp.ClientError, ValueError) as error:
                logger.warning("%s: %s", url, error)
            except asyncio.TimeoutError:
                total = self._prefill_timeout.total
                logger.warning("%s: no answer within %g s", url, total)
            except asyncio.CancelledError:
                self._give_back(made.params, headers)
                raise
        return Prefilled()

    def _look_at(self, url: str, params: dict[str, Any] | None) -> None:
        """Say once a minute that a P holds nothing: D computes it again."""
        now = time.monotonic()
        if not params and now - self._said_at.get(url, -math.inf) > _SAID_S:
            self._said_at[url] = now
            logger.warning(
                "%s: answered without kv_transfer_params, D computes: is it a "
                "kv_producer? its log says what it does not hold",
                url,
            )

    async def _answered(
        self, answer: aiohttp.ClientResponse, headers: dict[str, str]
    ) -> Any:
        """Return what P answered; if the client leaves, give it back.

        P is done when its answer begins, and holds the blocks: leaving now
        would end nothing there.
        """
        reading = asyncio.ensure_future(answer.json())
        try:
            return await asyncio.shield(reading)
        except asyncio.CancelledError:
            await asyncio.wait({reading}, timeout=_ANSWER_S)
            if not reading.done():
                reading.cancel()
            elif not reading.cancelled() and reading.exception() is None:
                self._give_back(_params(reading.result()), headers)
            raise

    def _give_back(
        self, params: dict[str, Any] | None, headers: dict[str, str]
    ) -> None:
        """Begin to give a ticket back; it may be done already at D."""
        if not params or _TICKET not in params:
            return
        if len(self._give_backs) >= _GIVE_BACKS_MAX:
            logger.warning("too many tickets to give back: a lease ends one")
            self._counts["stranded"] += 1
            return
        task = asyncio.ensure_future(self._refuse(params, headers))
        self._give_backs.add(task)
        task.add_done_callback(self._give_backs.discard)

    async def _refuse(
        self, params: dict[str, Any], headers: dict[str, str]
    ) -> None:
        """Show the ticket in a request that is refused, until one answers.

        To a D first; where none is left, to P, which gives it to itself.
        """
        assert self._session is not None
        timeout = aiohttp.ClientTimeout(
            total=_GIVE_BACK_S, sock_connect=_CONNECT_S
        )
        for url in self._in_turn("decode", self._decode) + self._prefill:
            try:
                async with self._session.post(
                    url + _PATHS[0],
                    json=refused_body(params),
                    headers=headers,
                    timeout=timeout,
                ) as answer:
                    if answer.status < 500:
                        self._counts["given_back"] += 1
                        return
            except (aiohttp.ClientError, asyncio.TimeoutError) as error:
                logger.info("%s: %s", url, error)
        self._counts["stranded"] += 1
        logger.warning("a ticket could not be given back: its lease ends it")

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Serve one request."""
        try:
            body = json.loads(await request.read())
            if not isinstance(body, dict):
                raise ValueError("no object")
        except (
            ValueError,
            RecursionError,  # too many brackets in one another
            web.RequestPayloadError,  # not of its Content-Encoding
        ) as error:
            return web.json_response({"error": str(error)}, status=400)
        headers = {
            "X-Request-Id": request.headers.get("X-Request-Id")
            or uuid.uuid4().hex
        }
        headers |= _passed(request)
        prefilled = Prefilled()
        body = without_params(body)
        decode = self._in_turn("decode", self._decode)
        self._counts["requests"] += 1
        is_shown = self._shows_first and begins_with_p(request.path, body)
        if request.path in _PATHS and is_pulled(body):
            prefill, decode = self._paired(decode)
            prefilled = await self.prefill(
                request.path, body, headers, prefill, is_shown
            )
            self._counts["unpaired"] += bool(self._prefill and not prefill)
            kind = "prefills" if prefilled.params else "prefills_failed"
            self._counts[kind] += 1
        order = self._order(request.path, body, prefilled, is_shown)
        if order.asked.get("kv_transfer_params") is None:
            self._give_back(prefilled.params, headers)
        answer = await self._forward(
            request, order, headers, decode, prefilled.url
        )
        if answer is None:
            order = Order(decode_body(body, None))
            answer = await self._forward(request, order, headers, decode, "")
        assert answer is not None
        return answer

    @staticmethod
    def _order(
        path: str,
        body: dict[str, Any],
        prefilled: Prefilled,
        is_shown: bool,
    ) -> Order:
        """Return what D is asked for, behind a prefill at P or without one."""
        params = prefilled.params
        if not params:
            return Order(decode_body(body, None))
        beginning = Beginning.of(body, prefilled.answer) if is_shown else None
        if beginning is not None:
            return Order(decode_body(*beginning.decode(params)), beginning)
        if body.get("prompt_logprobs") is None:
            return Order(decode_body(body, params))
        logprobs = PromptLogprobs.of(path, body, prefilled.answer)
        if logprobs is None:  # D computes the prompt for them
            return Order(decode_body(body, None))
        asked = decode_body(logprobs.decode(body), params)
        return Order(asked, logprobs=logprobs)

    async def ask(self, request: web.Request) -> web.StreamResponse:
        """Let a D answer what has no body."""
        assert self._session is not None
        headers = _passed(request)
        for url in self._in_turn("decode", self._decode):
            try:
                async with self._session.get(
                    url + request.path, headers=headers
                ) as answer:
                    return await self._relay(request, answer)
            except _NO_ANSWER as failed:
                logger.warning("%s: %s", url, failed)
        return web.json_response({"error": "no decode engine"}, status=503)

    async def metrics(self, _request: web.Request | None) -> web.Response:
        """Say what the router has done; the engines have their own."""
        lines = []
        for name, text in _COUNTED.items():
            metric = f"kvpull_router_{name}_total"
            lines += [
                f"# HELP {metric} {text}.",
                f"# TYPE {metric} counter",
                f"{metric} {self._counts[name]}",
            ]
        return web.Response(text="\n".join(lines) + "\n")

    async def _forward(
        self,
        request: web.Request,
        order: Order,
        headers: dict[str, str],
        decode: list[str],
        source: str,
    ) -> web.StreamResponse | None:
        """Let a D answer; source is the P whose ticket goes along.

        Return None where D is to be asked once more, without anything of P's.
        """
        assert self._session is not None
        error: Exception | None = None
        params = order.asked.get("kv_transfer_params")
        is_taken = False

        def look(chunk: bytes) -> None:
            # vLLM tells no connector of some of what it refuses.
            nonlocal is_taken
            is_taken |= answer.status < 400 and not chunk.startswith(
                _NOT_RUNNING
            )
            told.look(chunk)

        try:
            for url in decode:
                try:
                    answer = await self._session.post(
                        url + request.path, json=order.asked, headers=headers
                    )
                except _NO_ANSWER as failed:  # the client has seen nothing yet
                    error = failed
                    continue
                told = Told(answer.status, answer.content_type)
                relayed: web.StreamResponse | None
                async with answer:
                    if order.logprobs is not None and answer.status == 200:
                        raw = await answer.read()
                        look(raw)
                        relayed = self._merged(raw, order.logprobs, told)
                    else:
                        relayed = await self._relay(
                            request, answer, look, order.beginning
                        )
                if params:
                    self._judge(source, url, told)
                return relayed
        finally:
            if not is_taken:
                self._give_back(params, headers)
        self._counts["no_decode"] += 1
        return web.json_response(
            {"error": f"no decode engine: {error}"}, status=503
        )

    async def _relay(
        self,
        request: web.Request,
        answer: aiohttp.ClientResponse,
        look: Callable[[bytes], None] | None = None,
        beginning: Beginning | None = None,
    ) -> web.StreamResponse:
        """Pass on a D's answer, behind P's first token if that begins it."""
        if answer.status != 200:
            beginning = None
        elif beginning and answer.content_type != "text/event-stream":
            error = {"error": "the decode engine answered with no stream"}
            return web.json_response(error, status=502)
        relayed = web.StreamResponse(
            status=answer.status,
            headers={
                "Content-Type": answer.headers.get(
                    "Content-Type", "application/json"
                )
            },
        )
        await relayed.prepare(request)
        if beginning:
            self._counts["first_tokens"] += 1
            await relayed.write(beginning.chunk())
        async for chunk in answer.content.iter_any():
            if look:
                look(chunk)
            await relayed.write(beginning.take(chunk) if beginning else chunk)
        if beginning:
            await relayed.write(beginning.end())
        await relayed.write_eof()
        return relayed

    def _merged(
        self, raw: bytes, logprobs: PromptLogprobs, told: Told
    ) -> web.StreamResponse | None:
        """Return a D's answer with P's log probabilities of the prompt.

        None where D did not pull: nobody has checked then that P and D are of
        the same weights.
        """
        if not told.has_pulled:
            return None
        try:
            merged = logprobs.merged(raw)
        except ValueError as error:
            return web.json_response(
                {"error": f"the decode engine answered strangely: {error}"},
                status=502,
            )
        self._counts["prompt_logprobs"] += 1
        return web.Response(body=merged, content_type="application/json")

    def app(self) -> web.Application:
        """Return the web application."""
        app = web.Application(client_max_size=_BODY_MAX)
        app.cleanup_ctx.append(self.session)
        for path in (*_PATHS, *_POSTS):
            app.router.add_post(path, self.handle)
        for path in _GETS:
            # To a HEAD a D's body would be relayed, as the next answer.
            app.router.add_get(path, self.ask, allow_head=False)
        app.router.add_get("/metrics", self.metrics)
        app.router.add_get("/health", _health)
        return app


def _params(answer: Any) -> dict[str, Any] | None:
    """Return the kv_transfer_params of P's answer, None if it has none."""
    found = None
    if isinstance(answer, dict):
        found = answer.get("kv_transfer_params")
    return found if isinstance(found, dict) else None


async def _health(_request: web.Request) -> web.Response:
    return web.Response(text="ok\n")


def _engine(url: str) -> str:
    """Return an engine's URL; a wrong one would fail every request later."""
    url = url.rstrip("/")
    parts = urlsplit(url)
    try:
        is_port = parts.port != 0
    except ValueError:  # it is out of range, or no number
        is_port = False
    if (
        parts.scheme not in ("http", "https")
        or not (parts.hostname and is_port)
        or parts.query
        or parts.fragment
    ):
        raise argparse.ArgumentTypeError(
            f"{url!r}: say http://HOST:PORT, as http://127.0.0.1:8100"
        )
    if parts.path.endswith("/v1"):
        raise argparse.ArgumentTypeError(f"{url!r}: say it without /v1")
    return url


def _seconds(text: str) -> float:
    """Return a time; aiohttp takes 0 and less for no limit."""
    seconds = float(text)
    if not 0 < seconds < math.inf:
        raise argparse.ArgumentTypeError(f"{text}: say a time above 0")
    return seconds


def main(arguments: list[str] | None = None) -> None:
    """Run the router."""
    parser = argparse.ArgumentParser(
        prog="python -m kvpull_vllm.router",
        description=__doc__.splitlines()[0],
    )
    parser.add_argument(
        "--host",
        default="127.0.0.1",
        help="where clients connect; 0.0.0.0: from everywhere "
        "(default %(default)s)",
    )
    parser.add_argument(
        "--port", type=int, default=8000, help="(default %(default)s)"
    )
    parser.add_argument(
        "--prefill",
        action="append",
        default=[],
        type=_engine,
        metavar="URL",
        help="a P, as http://127.0.0.1:8100; may be repeated",
    )
    parser.add_argument(
        "--decode",
        action="append",
        required=True,
        type=_engine,
        metavar="URL",
        help="a D, likewise",
    )
    parser.add_argument(
        "--prefill-timeout",
        type=_seconds,
        default=PREFILL_TIMEOUT_S,
        metavar="SECONDS",
        help="for a prefill, its wait at P counted (default %(default)g)",
    )
    parser.add_argument(
        "--first-token",
        action="store_true",
        help="begin streams with P's first token; P and D must have the same "
        "weights: nobody has compared them by then",
    )
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO)
    router = Router(
        options.prefill,
        options.decode,
        options.prefill_timeout,
        shows_first=options.first_token,
    )
    try:
        web.run_app(
            router.app(),
            host=options.host,
            port=options.port,
            handler_cancellation=True,  # a client that leaves ends D's request
        )
    except (OSError, OverflowError) as error:  # the port is taken, or is none
        where = f"--host {options.host} --port {options.port}"
        parser.exit(1, f"{parser.prog}: {where}: {error}\n")


if __name__ == "__main__":
    main()
