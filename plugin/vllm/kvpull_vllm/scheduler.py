# SPDX-License-Identifier: Apache-2.0
"""The connector's scheduler side: vLLM's calls to the library's."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorMetadata,
    KVConnectorWorkerMetadata,
)

from kvpull_vllm import requests, traces
from kvpull_vllm.abi import CONST
from kvpull_vllm.halves import NO_TRACE, KvpullError, SchedulerHalf, logger
from kvpull_vllm.inside import Core
from kvpull_vllm.layout import Window
from kvpull_vllm.requests import Entry
from kvpull_vllm.stats import KVPullStats, Moves

_NOTHING = (False, None)
# A pull takes milliseconds; who comes later computes.
_PAUSE_S = 1.0
_NO_DIGEST = bytes(CONST["KVPULL_DIGEST_BYTES"])
_WANTS_HOLD = CONST["KVPULL_REQUEST_WANTS_HOLD"]
_PULL = CONST["KVPULL_REQUEST_PULL"]
_ABORT = CONST["KVPULL_FINISH_ABORT"]
_REJECT = CONST["KVPULL_FINISH_REJECT"]
_DONE = (CONST["KVPULL_FINISH_LENGTH"], CONST["KVPULL_FINISH_STOP"])
# Tracers are set up once, and asking for them costs as much as the request.
_LOOK_S = 1.0


@dataclass
class KVPullMetadata(KVConnectorMetadata):
    """A step's bytes, and the names of the keys that first occur in it."""

    step: bytes = b""
    names: dict[int, str] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)
    places: dict[int, traces.Place] = field(default_factory=dict)


@dataclass
class KVPullWorkerMetadata(KVConnectorWorkerMetadata):
    """What workers tell the scheduler side, all ranks in one list."""

    infos: list[bytes] = field(default_factory=list)
    results: list[bytes] = field(default_factory=list)

    def aggregate(
        self, other: KVConnectorWorkerMetadata
    ) -> KVPullWorkerMetadata:
        """Add another rank's."""
        assert isinstance(other, KVPullWorkerMetadata)
        return KVPullWorkerMetadata(
            self.infos + other.infos, self.results + other.results
        )


class SchedulerSide:
    """One a scheduler process."""

    def __init__(
        self,
        half: SchedulerHalf,
        group_ids: tuple[int, ...],
        block_tokens: list[int],
        answer: dict[str, Any],
        windows: list[Window],
        names_media: bool,
        core: Core,
        produces: bool,
    ) -> None:
        self.half = half
        self._core = core
        self._paused_since = 0.0
        self._produces = produces
        self._version = core.weights()
        self._names_media = names_media
        self._windows = windows
        self._group_ids = group_ids
        self._block_tokens = block_tokens
        self._answer = answer  # the usual keys of kv_transfer_params
        self._entries: dict[str, Entry] = {}
        self._next_key = 1
        self._silent = False
        self._are_exported = False
        self._look_at = 0.0
        # What a worker does for the first time takes it tens of milliseconds:
        # it does so in a step of its own, before any request.
        self._has_stepped = False
        self._meta = KVPullMetadata()
        self._stats = KVPullStats()
        self._moves = Moves(half)

    def rank_info(self, info: bytes) -> None:
        """Take a worker's introduction."""
        code = self.half.rank_info(info)
        if code < 0:
            logger.error("kvpull: rank info: %s", self._text(code))

    def request_new(self, request: Any) -> None:
        """Tell of a request if it concerns the library."""
        params = request.kv_transfer_params
        if not params or request.request_id in self._entries:
            return
        self._look_at_weights()
        # A client may say so to a consumer, too: nobody comes for its blocks.
        holds = self._produces and bool(params.get("do_remote_decode"))
        pulls = requests.pulls(params)
        ticket = requests.ticket_of(params)
        if pulls and not ticket:
            logger.warning(
                "kvpull: request %s asks for remote KV but has no %s: it is "
                "computed here",
                request.request_id,
                requests.TICKET,
            )
            self._stats.count("shim_no_ticket", 1)
            pulls = False
        if not (holds or pulls):
            return
        nameless = requests.nameless(request, self._names_media)
        if nameless:
            logger.warning(
                "kvpull: request %s has a prompt with %s: no KV is moved",
                request.request_id,
                nameless,
            )
            if not pulls:
                return
            holds = False
        entry = Entry(
            self._next_key,
            holds,
            pulls,
            # Now, as the token ids are at hand: later it takes twice as long.
            _NO_DIGEST
            if nameless
            else requests.prompt_digest(request, self._version),
        )
        self._next_key += 1
        self._entries[request.request_id] = entry
        # What may be held concerns the library when it has finished.
        if not pulls:
            return
        code = self._tell(request, entry, ticket)
        if code < 0:
            logger.warning(
                "kvpull: request %s: %s", request.request_id, self._text(code)
            )
        elif nameless:
            self.half.allocated(entry.key, 0, [])  # gives the ticket back
        else:
            logger.debug(
                "kvpull: request %s pulls what %s holds as %s",
                request.request_id,
                params.get("remote_engine_id"),
                params.get("remote_request_id"),
            )

    def _tell(self, request: Any, entry: Entry, ticket: bytes) -> int:
        """Tell the library of a request; the answer is an error or 0."""
        headers = getattr(request, "trace_headers", None)
        trace = traces.of_headers(headers) if headers else NO_TRACE
        if ticket and self._exports():
            entry.place = traces.place(
                trace, self.half.library.ticket_peek(ticket)
            )
        return self.half.request_new(
            entry.key,
            requests.parent_key(request.request_id),
            ticket,
            (request.num_prompt_tokens, entry.digest),
            (_WANTS_HOLD if entry.holds else 0) | (_PULL if ticket else 0),
            request.request_id,
            trace,
        )

    def _exports(self) -> bool:
        """Say whether spans are exported: once they are they stay so."""
        now = time.monotonic()
        if not self._are_exported and now >= self._look_at:
            self._are_exported = traces.are_exported()
            self._look_at = now + _LOOK_S
        return self._are_exported

    def matched_tokens(
        self, request: Any, local_tokens: int
    ) -> tuple[int | None, bool]:
        """Answer how many tokens can be loaded beyond the local ones."""
        entry = self._entries.get(request.request_id)
        if entry is None or not entry.pulls:
            return 0, False
        answer, tokens = self.half.matched_tokens(entry.key, local_tokens)
        if answer == CONST["KVPULL_MATCH_WAIT"]:
            return None, False
        if answer != CONST["KVPULL_MATCH_LOAD"]:
            return 0, False
        tokens = self._beside_windows(request.num_tokens, local_tokens, tokens)
        if not tokens:
            return 0, False
        entry.local_tokens = local_tokens
        return tokens, True

    def _beside_windows(self, count: int, local: int, tokens: int) -> int:
        """Return how many of the tokens can be loaded where windows slide.

        vLLM computes the last of a request's tokens though it is loaded, but
        lays the blocks out for the token behind: the last one is left out.
        P has kept what the token behind its prompt looks at. Where the last
        one looks at a block before, which is not local either, vLLM computes.
        """
        if not self._windows:
            return tokens
        held = local + tokens
        end = min(held, count - 1)
        for window in self._windows:
            first = max(window.first_block(end), local // window.block_tokens)
            if first < window.first_block(held):
                return 0
        return max(end - local, 0)

    def allocated(self, request: Any, blocks: Any, tokens: int) -> None:
        """Start the load, or give the ticket back."""
        entry = self._entries.get(request.request_id)
        if entry is None or not entry.pulls or entry.parked:
            return
        if not tokens:
            self.half.allocated(entry.key, 0, [])
            return
        ids = blocks.get_block_ids(group_ids=self._group_ids)
        code = self.half.allocated(
            entry.key,
            tokens,
            requests.loaded_blocks(
                ids, self._block_tokens, entry.local_tokens, tokens
            ),
        )
        # The engine waits for this request from now on, whatever came of it.
        entry.parked = True
        if code in (CONST["KVPULL_EINVAL"], CONST["KVPULL_ENOKEY"]):
            logger.error(
                "kvpull: request %s: %s", request.request_id, self._text(code)
            )
            self._meta.failed.append(request.request_id)
        else:
            self._meta.names[entry.key] = request.request_id
            if entry.place:
                self._meta.places[entry.key] = entry.place

    def _look_at_weights(self) -> None:
        """Where they are others: nothing of the old ones is shared."""
        version = self._core.weights()
        if version == self._version:
            return
        self._version = version
        for entry in self._entries.values():
            entry.holds_no_more = True
        self.reset()
        if self._core.weights_are_unnamed:
            logger.warning(
                "kvpull: the weights were changed and not named since: no KV "
                "is shared until /update_weight_version names them"
            )
        else:
            logger.info("kvpull: the weights are version %s now", version)

    def _look_at_pause(self) -> None:
        """End what a pause waits for, when readers had time to be done."""
        now = time.monotonic()
        if not self._core.waits_for_holds():
            self._paused_since = now
        elif now - self._paused_since > _PAUSE_S:
            self._paused_since = now
            self.half.reset(CONST["KVPULL_RESET_REVOKE"])

    def build_meta(self) -> KVPullMetadata:
        """Return what the workers are told in this step."""
        self._look_at_weights()
        self._look_at_pause()
        meta, self._meta = self._meta, KVPullMetadata()
        meta.step = self.half.step_build()
        return meta

    def output(self, meta: Any) -> None:
        """Take what the workers said."""
        if not isinstance(meta, KVPullWorkerMetadata):
            return
        self._has_stepped = True
        for info in meta.infos:
            self.rank_info(info)
        for result in meta.results:
            code = self.half.result_take(result)
            if code < 0:
                logger.error("kvpull: result: %s", self._text(code))

    def request_finished(
        self, request: Any, ids: tuple[list[int], ...]
    ) -> tuple[bool, dict[str, Any] | None]:
        """Say who owns the blocks now, and what the client is told."""
        entry = self._entries.pop(request.request_id, None)
        if entry is None:
            return _NOTHING
        name = request.request_id
        reason = requests.finish_reason(request)
        if entry.holds_no_more:
            reason = _ABORT
        if not entry.pulls and (
            reason not in _DONE or not self._tells(request, entry)
        ):
            return _NOTHING
        if reason == _REJECT:
            logger.debug(
                "kvpull: request %s is rejected: its ticket is given back", name
            )
        tokens, blocks = 0, []
        if entry.holds:
            computed = request.num_computed_tokens - getattr(
                request, "num_in_flight_tokens", 0
            )
            tokens = max(min(request.num_prompt_tokens, computed), 0)
            blocks = requests.prompt_blocks(
                [ids[group] for group in self._group_ids],
                self._block_tokens,
                tokens,
            )
        held, ticket = self.half.request_finished(
            entry.key, reason, tokens, blocks
        )
        if held:
            logger.debug("kvpull: request %s is held", name)
            self._meta.names[entry.key] = name
        if not ticket or not entry.holds or entry.holds_no_more:
            return held, None
        params = {**self._answer, requests.TICKET: ticket.decode()}
        if self._answer:
            params["remote_request_id"] = name
            params["remote_num_tokens"] = tokens
        return held, params

    def _tells(self, request: Any, entry: Entry) -> bool:
        """Tell the library of a request that finished and may be held."""
        code = self._tell(request, entry, b"")
        if code < 0:
            logger.warning(
                "kvpull: request %s is not held: %s",
                request.request_id,
                self._text(code),
            )
        return code >= 0

    def has_pending_work(self) -> bool:
        """Say whether a step is needed though no request asks for one."""
        return bool(
            not self._has_stepped
            or self._meta.names
            or self._meta.failed
            or self.half.ranks_missing() > 0
            or self._pending() & CONST["KVPULL_PENDING_STEP"]
        )

    def _pending(self) -> int:
        try:
            return self.half.pending()
        except KvpullError as error:
            # A rank is silent; its holds stay, and nothing else is touched.
            if not self._silent:
                logger.error("%s", error)
            self._silent = True
            return 0

    def reset(self) -> bool:
        """Forget tickets and end holds: weights or the cache changed."""
        for entry in self._entries.values():
            if entry.pulls and not entry.parked:
                self.half.allocated(entry.key, 0, [])  # gives a ticket back
        self.half.reset(
            CONST["KVPULL_RESET_FORGET"] | CONST["KVPULL_RESET_REVOKE"]
        )
        return True

    def stats(self) -> KVPullStats | None:
        """Return what was counted since the last call, None if nothing."""
        stats, self._stats = self._stats, KVPullStats()
        self._moves.look(self.half.stats(), stats)
        return None if stats.is_empty() else stats

    def _text(self, code: int) -> str:
        return self.half.library.error_text(code)
