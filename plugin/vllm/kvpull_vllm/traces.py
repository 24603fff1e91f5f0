# SPDX-License-Identifier: Apache-2.0
"""Traces: a request's traceparent (W3C) to its ticket, a pull to a span.

OpenTelemetry is imported when the first pull that is part of a trace has ended;
where it is not installed there are no spans.
"""

from __future__ import annotations

import re
import sys
import time
from dataclasses import dataclass
from functools import cache
from typing import Any

from kvpull_vllm.abi import CONST, ffi

_PARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
_NONE = bytes(CONST["KVPULL_TRACE_BYTES"])
_ID_BYTES = 16  # of the trace; the parent's follows
# Report.reached, as the events of a span.
_REACHED = ("taken up", "connected", "first byte", "last byte", "checked")


@dataclass(frozen=True)
class Place:
    """Where the span of a pull belongs, and the names of its other side."""

    parent: bytes
    link: bytes  # P's, where D's own request has another; else empty
    slot: int
    generation: int


def of_headers(headers: Any) -> bytes:
    """Return the ids of a request's traceparent, zeros if there is none.

    The header is the client's: what is not right is no trace. Nor is one that
    is not sampled, of which no span is to be made.
    """
    header = headers.get("traceparent") if headers else None
    found = _PARENT.match(header) if isinstance(header, str) else None
    if not found or header.startswith("ff") or not int(found[3], 16) & 1:
        return _NONE
    ids = bytes.fromhex(found[1] + found[2])
    return ids if any(ids[:_ID_BYTES]) and any(ids[_ID_BYTES:]) else _NONE


def place(own: bytes, ticket: Any) -> Place | None:
    """Return the place of a pull: below D's request, else below P's."""
    if ticket is None:
        return None
    producer = bytes(ffi.buffer(ticket.trace))
    parent = own if any(own) else producer
    if not any(parent):
        return None
    is_linked = any(producer) and producer != parent
    return Place(
        parent, producer if is_linked else b"", ticket.slot, ticket.generation
    )


def are_exported() -> bool:
    """Tell whether this process has a provider of tracers: else spans go nowhere.

    Where one is set its interface was imported; it is not imported to see.
    """
    api = sys.modules.get("opentelemetry.trace")
    return api is not None and not isinstance(
        api.get_tracer_provider(), api.ProxyTracerProvider
    )


@cache
def _api() -> Any:
    try:
        from opentelemetry import trace
    except ImportError:
        return None
    return trace


def _context(api: Any, ids: bytes) -> Any:
    return api.SpanContext(
        int.from_bytes(ids[:_ID_BYTES], "big"),
        int.from_bytes(ids[_ID_BYTES:], "big"),
        is_remote=True,
        trace_flags=api.TraceFlags(api.TraceFlags.SAMPLED),
    )


class Pulls:
    """The pulls of a rank that are parts of traces."""

    def __init__(self, rank: int) -> None:
        self._rank = rank
        # By key: its place, and when it was commanded.
        self._begun: dict[int, tuple[Place, int]] = {}

    def begin(self, places: dict[int, Place]) -> None:
        """Take the places of the pulls that a step commands now."""
        now = time.time_ns()
        self._begun.update((key, (place, now)) for key, place in places.items())

    def end(self, report: Any, name: str, error: str | None) -> None:
        """Export the span of a pull, if it has one; error: why it failed."""
        begun = self._begun.pop(report.key, None)
        api = _api() if begun else None
        if begun is None or api is None:
            return
        place, start = begun
        parent = api.NonRecordingSpan(_context(api, place.parent))
        span = api.get_tracer("kvpull_vllm").start_span(
            "kvpull.pull",
            context=api.set_span_in_context(parent),
            kind=api.SpanKind.CLIENT,
            attributes={
                "kvpull.request": name,
                "kvpull.rank": self._rank,
                "kvpull.slot": place.slot,
                "kvpull.generation": f"{place.generation}",
                "kvpull.bytes": report.byte_count,
            },
            links=[api.Link(_context(api, place.link))] if place.link else [],
            start_time=start,
        )
        for reached, after in zip(_REACHED, report.reached, strict=True):
            # The last one of a failure is its end alone.
            if after and not (error and reached == _REACHED[-1]):
                span.add_event(reached, timestamp=start + after)
        if error:
            span.set_status(api.StatusCode.ERROR, error)
        span.end(start + report.reached[-1])
