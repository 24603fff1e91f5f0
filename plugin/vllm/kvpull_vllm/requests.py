# SPDX-License-Identifier: Apache-2.0
"""What of a vLLM request the library is told: keys, digests, parameters."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from kvpull_vllm.abi import CONST
from kvpull_vllm.traces import Place

# One form for one value, made twice as fast as an array of the token ids.
_PACK = msgspec.msgpack.Encoder()
_DIGEST_BYTES = CONST["KVPULL_DIGEST_BYTES"]
TICKET = "kvpull_ticket"
_CHILD = re.compile(r"^\d+_(.+)$")
_REASONS = {
    "FINISHED_LENGTH_CAPPED": CONST["KVPULL_FINISH_LENGTH"],
    "FINISHED_STOPPED": CONST["KVPULL_FINISH_STOP"],
    "FINISHED_ABORTED": CONST["KVPULL_FINISH_ABORT"],
}


@dataclass(slots=True)
class Entry:
    """A request that the scheduler half knows."""

    key: int
    holds: bool
    pulls: bool
    digest: bytes  # of its prompt
    local_tokens: int = 0
    parked: bool = False
    holds_no_more: bool = False  # the weights are others since
    place: Place | None = None  # of its pull, if that is part of a trace


def ticket_of(params: dict[str, Any]) -> bytes:
    """Return the ticket in kv_transfer_params, b"" if there is none."""
    ticket = params.get(TICKET)
    return ticket.encode(errors="replace") if isinstance(ticket, str) else b""


def pulls(params: dict[str, Any]) -> bool:
    """Say whether the parameters ask to pull."""
    asked = params.get("do_remote_prefill")
    return bool(params.get(TICKET) if asked is None else asked)


def parent_key(request_id: str) -> int:
    """Return a number that siblings (n > 1) share, 0 for no child.

    vLLM names children "<index>_<parent>"; the parent's name is unique.
    """
    match = request_id[:1].isdigit() and _CHILD.match(request_id)
    if not match:
        return 0
    digest = hashlib.blake2b(match[1].encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") or 1


def nameless(request: Any, names_media: bool) -> str | None:
    """Return what of a prompt a digest cannot name, None if nothing."""
    # Beside embeddings there may be token ids, the same for all embeddings.
    if (
        request.prompt_token_ids is None
        or getattr(request, "prompt_embeds", None) is not None
    ):
        return "embeddings"
    if request.mm_features and not names_media:
        return "media, which vLLM names in its caches only"
    return None


def prompt_digest(request: Any, weights: str = "") -> bytes:
    """Return 16 bytes that name the prompt and all that its KV depends on."""
    lora = request.lora_request
    media = request.mm_features
    packed = _PACK.encode(
        (
            request.prompt_token_ids,
            request.cache_salt or "",
            weights,
            lora and lora.lora_name,
            [(one.identifier, one.mm_position.offset) for one in media]
            if media
            else None,
        )
    )
    return hashlib.sha256(packed).digest()[:_DIGEST_BYTES]


def finish_reason(request: Any) -> int:
    """Return KVPULL_FINISH_* of a finished request."""
    if getattr(request, "abort_immediately", False):
        return CONST["KVPULL_FINISH_REJECT"]
    return _REASONS.get(request.status.name, CONST["KVPULL_FINISH_ERROR"])


def _nulls(ids: list[int]) -> int:
    """Return how many null blocks stand before the others.

    Block 0 is vLLM's null block: it stands where a sliding window has passed.
    """
    if ids and ids[0]:
        return 0
    return next((i for i, block in enumerate(ids) if block), len(ids))


def prompt_blocks(
    ids: Sequence[list[int]], block_tokens: list[int], tokens: int
) -> list[tuple[int, list[int]]]:
    """Return (first index, ids) a group of the blocks of the first tokens."""
    found = []
    for group, size in zip(ids, block_tokens, strict=True):
        kept = group[: -(-tokens // size)]
        first = _nulls(kept)
        found.append((first, kept[first:] if first else kept))
    return found


def loaded_blocks(
    ids: tuple[list[int], ...],
    block_tokens: list[int],
    local_tokens: int,
    tokens: int,
) -> list[tuple[int, list[int]]]:
    """Return (first index, ids) a group of the blocks that a pull fills."""
    found = []
    for group, size in zip(ids, block_tokens, strict=True):
        first = local_tokens // size
        kept = group[first : -(-(local_tokens + tokens) // size)]
        nulls = _nulls(kept)
        found.append((first + nulls, kept[nulls:] if nulls else kept))
    return found
