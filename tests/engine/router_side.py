# SPDX-License-Identifier: Apache-2.0
"""Servers that stand for P and D, and a router between them, for its tests."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from kvpull_vllm.bodies import GIVEN_BACK
from kvpull_vllm.router import Router

TICKET = {"kvpull_ticket": "t", "remote_request_id": "r"}
PULL = {"do_remote_prefill": True, **TICKET}
Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


def says(value: Any, status: int = 200) -> Answer:
    """Return an engine that answers with JSON."""

    async def answer(_request: web.Request) -> web.StreamResponse:
        return web.json_response(value, status=status)

    return answer


async def text(_request: web.Request) -> web.StreamResponse:
    """Answer with no JSON, but say that it is."""
    return web.Response(text="<html>", content_type="application/json")


async def resets(request: web.Request) -> web.StreamResponse:
    """End as a process that is killed: the peer's connection is reset."""
    assert request.transport is not None
    made = request.transport.get_extra_info("socket")
    at_once = struct.pack("ii", 1, 0)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, at_once)
    request.transport.abort()
    return web.Response()


async def speaks_no_http(request: web.Request) -> web.StreamResponse:
    """Answer as what listens at a port that was mistaken for an engine's."""
    assert request.transport is not None
    request.transport.write(b"SSH-2.0-OpenSSH_9.2\r\n")
    request.transport.close()
    return web.Response()


async def stands(_request: web.Request) -> web.StreamResponse:
    """Never answer."""
    await asyncio.sleep(3600)
    return web.Response()


async def stands_but_refuses(request: web.Request) -> web.StreamResponse:
    """Never answer but to refuse, as for a model that is not served."""
    if (await request.json()).get("model") == GIVEN_BACK:
        return web.json_response({}, status=404)
    return await stands(request)


async def slow(request: web.Request) -> web.StreamResponse:
    """Begin P's answer, and end it later; a refusal comes at once."""
    if (await request.json()).get("model") == GIVEN_BACK:
        return web.json_response({}, status=404)
    answer = web.StreamResponse(headers={"Content-Type": "application/json"})
    await answer.prepare(request)
    await asyncio.sleep(2)
    await answer.write(json.dumps({"kv_transfer_params": TICKET}).encode())
    return answer


def streams(*lines: str) -> Answer:
    """Return an engine that answers 200 and these lines; it refuses at once."""

    async def answer(request: web.Request) -> web.StreamResponse:
        if (await request.json()).get("model") == GIVEN_BACK:
            return web.json_response({}, status=404)
        made = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await made.prepare(request)
        for line in lines:
            await made.write(line.encode() + b"\n\n")
            await asyncio.sleep(0.05)
        return made

    return answer


P, D = says({"kv_transfer_params": TICKET}), says({"choices": []})


@dataclass
class Seen:
    """The client's answer, and the engines that were asked, with the bodies."""

    status: int = 0
    text: str = ""
    paths: list[str] = field(default_factory=list)
    calls: list[tuple[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    metrics: str = ""

    @property
    def names(self) -> list[str]:
        """The engines, in the order in which they were asked."""
        return [name for name, _ in self.calls]

    def params(self, name: str) -> Any:
        """Return the kv_transfer_params of an engine's only call."""
        (body,) = (body for called, body in self.calls if called == name)
        return body.get("kv_transfer_params")

    def count(self, name: str) -> int:
        """Return one of the router's counters."""
        metric = f"kvpull_router_{name}_total "
        (line,) = (
            one for one in self.metrics.splitlines() if one.startswith(metric)
        )
        return int(line.removeprefix(metric))

    @property
    def given_back(self) -> list[tuple[str, Any]]:
        """The engines that were to give a ticket back, and the ticket."""
        return [
            (name, body["kv_transfer_params"])
            for name, body in self.calls
            if body.get("model") == GIVEN_BACK
        ]


async def _routed(
    engines: dict[str, Answer],
    body: dict[str, Any],
    leaves_s: float | None = None,
    path: str = "/v1/completions",
    method: str = "POST",
    calls: int = 1,
    data: bytes | None = None,
    headers: dict[str, str] | None = None,
    **more: Any,
) -> Seen:
    seen = Seen()
    async with contextlib.AsyncExitStack() as stack:
        urls: dict[str, str] = {}
        for name, answer in engines.items():

            async def serve(
                request: web.Request, name: str = name, answer: Answer = answer
            ) -> web.StreamResponse:
                body = await request.json() if request.can_read_body else {}
                seen.calls.append((name, body))
                seen.paths.append(request.path)
                seen.headers.append(dict(request.headers))
                return await answer(request)

            app = web.Application()
            app.router.add_route("*", "/{path:.*}", serve)
            server = TestServer(app, handler_cancellation=True)
            await stack.enter_async_context(server)
            urls[name] = str(server.make_url("")).rstrip("/")
        router = Router(
            [url for name, url in urls.items() if name.startswith("p")],
            [url for name, url in urls.items() if name.startswith("d")],
            **more,
        )
        client = TestClient(
            TestServer(router.app(), handler_cancellation=True)
        )
        await stack.enter_async_context(client)
        if data is None and method == "POST":
            data = json.dumps(body).encode()
        for _ in range(calls - 1):
            await (await client.request(method, path, data=data)).read()
        asking = client.request(method, path, data=data, headers=headers)
        if leaves_s is None:
            answer = await asking
            seen.status, seen.text = answer.status, await answer.text()
            seen.metrics = str((await router.metrics(None)).text)
            return seen
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(asking, leaves_s)
        # The ticket is given back soon after; later if P is slow.
        for _ in range(300):
            if seen.given_back:
                break
            await asyncio.sleep(0.01)
    return seen


def routed(
    engines: dict[str, Answer], body: dict[str, Any] | None = None, **more: Any
) -> Seen:
    """Send one request through a router to these engines."""
    asked = {"prompt": [1, 2, 3], **(body or {})}
    return asyncio.run(
        asyncio.wait_for(_routed(engines, asked, **more), timeout=60)
    )
