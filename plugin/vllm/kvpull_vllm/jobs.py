# SPDX-License-Identifier: Apache-2.0
"""The tier's records of keys, requests and jobs, and its counters."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from vllm.v1.kv_offload.tiering.base import JobResult

from kvpull_vllm.pool import Place

COUNTERS = {
    "published": "Chunks that others can find",
    "unpublished": "Chunks for which the directory had no room",
    "withdrawn": "Chunks withdrawn before they were written again",
    "keys_asked": "Keys that peers were asked for",
    "keys_found": "Keys that a peer had",
    "chunks_read": "Chunks read and unchanged after the read",
    "chunks_stale": "Chunks that their owner reused before they were read",
    "chunks_failed": "Chunks not read: a peer was lost, late or busy",
    "chunks_spilled": "Chunks that are in the file when their store ends",
    "chunks_unspilled": "Chunks that are not: the disk is late, full or broken",
    "chunks_held": "Chunks not read because a reset left a write in flight",
    "hints_unknown": "Hints of requests that name no engine known here",
}


@dataclass(slots=True)
class Found:
    """The tier's knowledge of a key that was asked for and is not here."""

    waits: int = 0  # probes that have not ended
    is_asked: bool = False
    place: Place | None = None
    requests: int = 0


class Origin(NamedTuple):
    """Weights and adapter that compute a request's KV; vLLM's keys lack them."""

    epoch: int  # when the request began
    adapter: int  # vLLM's number of it, 0: none
    content: str  # of the adapter

    def name(self, key: bytes) -> bytes:
        """Return the key under which the pool knows a key of vLLM's."""
        return self.content.encode() + key


@dataclass(slots=True)
class Request:
    """A request of vLLM's, as long as it lives."""

    origin: Origin | None  # None: nothing of it is put or asked for
    hint: str | None = None
    until: float = 0.0
    keys: set[bytes] = field(default_factory=set)


@dataclass(slots=True)
class Load:
    """A job of vLLM's: a promotion, or a store that is spilled."""

    job: Any
    is_store: bool
    waits: int = 0
    good: list[bytes] = field(default_factory=list)
    is_stale: bool = False  # what it reads is of before a change
    ended: float = 0.0

    @property
    def origin(self) -> Origin | None:
        """Origin of the job's request."""
        request = self.job.req_context.get_state(Request)
        return request.origin if request else None

    def end(self) -> None:
        """Note that no byte of it can land any more."""
        self.ended = time.monotonic()

    def result(self, chunk_bytes: int) -> JobResult:
        """Return what vLLM is told."""
        if self.is_store:
            return JobResult(self.job.job_id, True, None, 0.0, 0)
        good = [] if self.is_stale else self.good
        return JobResult(
            self.job.job_id,
            len(good) == len(self.job.keys),
            good,
            self.ended - self.job.submit_time,
            len(good) * chunk_bytes,
        )
