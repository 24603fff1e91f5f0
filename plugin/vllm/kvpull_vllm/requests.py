# SPDX-License-Identifier: Apache-2.0
"""The library's view of a vLLM request: keys, digests, parameters."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from vllm.v1.request import RequestStatus

from kvpull_vllm import inside
from kvpull_vllm.abi import CONST
from kvpull_vllm.bodies import CONTINUES
from kvpull_vllm.failures import Failure
from kvpull_vllm.traces import Place

# Equal values pack into equal bytes, in half the time of an array of token ids.
_PACK = msgspec.msgpack.Encoder().encode_into
_DIGEST = hashlib.sha256
_DIGEST_BYTES = CONST["KVPULL_DIGEST_BYTES"]
TICKET = "kvpull_ticket"
_REASONS = {
    RequestStatus.FINISHED_LENGTH_CAPPED: CONST["KVPULL_FINISH_LENGTH"],
    RequestStatus.FINISHED_STOPPED: CONST["KVPULL_FINISH_STOP"],
    RequestStatus.FINISHED_ABORTED: CONST["KVPULL_FINISH_ABORT"],
}
_REJECT, _ERROR = CONST["KVPULL_FINISH_REJECT"], CONST["KVPULL_FINISH_ERROR"]


@dataclass(slots=True)
class Entry:
    """A request that the scheduler half knows."""

    key: int
    holds: bool
    pulls: bool
    digest: bytes  # of its prompt
    adapter: int = 0  # vLLM's number of it, 0: none
    content: str = ""  # of the adapter
    has_ticket: bool = False  # which the library has, and was not given back
    failure: Failure | None = None  # why it is not pulled, as of the last look
    is_said: bool = False
    local_tokens: int = 0
    parked: bool = False
    place: Place | None = None  # of its pull, if that is part of a trace
    continues: bool = False  # its prompt is P's, and P's first token


def ticket_of(params: dict[str, Any]) -> bytes:
    """Return the ticket in kv_transfer_params, b"" if there is none."""
    ticket = params.get(TICKET)
    return ticket.encode(errors="replace") if isinstance(ticket, str) else b""


def pulls(params: dict[str, Any]) -> bool:
    """Say whether the parameters ask to pull."""
    asked = params.get("do_remote_prefill")
    return bool(params.get(TICKET) if asked is None else asked)


def continues(request: Any, params: dict[str, Any]) -> bool:
    """Say whether a prompt is that of the ticket and P's first token behind.

    A router says so, which has given the client that token already.
    """
    return (
        params.get(CONTINUES) is True
        and request.num_prompt_tokens > 1
        and request.prompt_token_ids is not None
        and not request.mm_features
    )


def priority(request: Any) -> int:
    """Return a request's priority as the library takes it: 32 bits."""
    return max(-(1 << 31), min((1 << 31) - 1, request.priority))


def parent_key(request_id: str) -> int:
    """Return a number that siblings (n > 1) share, 0 for no child.

    vLLM names children "<index>_<parent>"; the parent's name is unique.
    """
    if "_" not in request_id:  # of most requests
        return 0
    index, _, parent = request_id.partition("_")
    if not (parent and index.isdecimal()):
        return 0
    digest = hashlib.blake2b(parent.encode(), digest_size=8).digest()
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


def prompt_digest(
    request: Any,
    weights: str,
    adapter: str,
    packed: bytearray,
    is_longer: bool = False,
) -> bytes:
    """Return 16 bytes that name the prompt and all that its KV depends on.

    packed is written over: new memory each time would take as long again.
    A prompt that is_longer than the ticket's is named without its last token.
    """
    media, tokens = request.mm_features, request.prompt_token_ids
    parts = (
        tokens[:-1] if is_longer else tokens,
        request.cache_salt or "",
        weights,
        adapter,
        # Not the identifier, which may have the adapter's name in it.
        [
            (
                getattr(one, "mm_hash", None) or one.identifier,
                one.mm_position.offset,
            )
            for one in media
        ]
        if media
        else None,
    )
    _PACK(parts, packed)
    return _DIGEST(packed).digest()[:_DIGEST_BYTES]


def finish_reason(request: Any) -> int:
    """Return KVPULL_FINISH_* of a finished request."""
    if getattr(request, "abort_immediately", False):
        return _REJECT
    return _REASONS.get(request.status, _ERROR)


def can_be_shortened(request: Any) -> bool:
    """Say whether D can compute the last token of P's prompt.

    It computes all of them where log probabilities of the prompt are asked for.
    """
    return (
        request.num_prompt_tokens > 1
        and request.prompt_token_ids is not None
        and not request.skip_reading_prefix_cache
        and inside.own_tokens(request) is not None
    )


def shorten(request: Any) -> None:
    """Leave the last token of a prompt to D, as vLLM's own connector does.

    A recurrent state is that of all tokens that were computed. D computes one at
    least, and needs the state before it. What P makes of the rest is one token,
    which is nobody's answer.
    """
    request.prompt_token_ids.pop()
    own = inside.own_tokens(request)
    assert own is not None  # see can_be_shortened()
    own.pop()
    request.num_prompt_tokens -= 1
    request.max_tokens = 1


def blocks_of(
    ids: Sequence[list[int]],
    groups: list[tuple[int, int]],
    first: int,
    end: int,
) -> list[tuple[int, list[int]]]:
    """Return (first index, ids) a group of the blocks of tokens first to end.

    groups are (place in ids, tokens a block). Null blocks that stand before the
    others are left out.
    """
    found = []
    for group, size in groups:
        index = first // size
        kept = ids[group][index : -(-end // size)]
        if kept and not kept[0]:
            # Block 0 is vLLM's null block: it stands where a sliding window
            # has passed.
            others = (at for at, block in enumerate(kept) if block)
            skipped = next(others, len(kept))
            index, kept = index + skipped, kept[skipped:]
        found.append((index, kept))
    return found
