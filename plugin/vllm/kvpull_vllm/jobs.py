# SPDX-License-Identifier: Apache-2.0
"""What the tier keeps of keys, requests and jobs, and what it counts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

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
    """What is known of a key; of one that was asked for and is not here."""

    waits: int = 0  # probes that have not ended
    is_asked: bool = False
    place: Place | None = None
    requests: int = 0


@dataclass(slots=True)
class Request:
    """What a request brought."""

    epoch: int
    hint: str | None = None
    until: float = 0.0
    keys: set[bytes] = field(default_factory=set)


@dataclass(slots=True)
class Load:
    """A job of vLLM's: a promotion, or a store that is spilled."""

    job: Any
    waits: int = 0
    good: list[bytes] = field(default_factory=list)
