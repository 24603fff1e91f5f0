# SPDX-License-Identifier: Apache-2.0
"""The connector's scheduler side: vLLM's calls to the library's."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorMetadata,
    KVConnectorWorkerMetadata,
)

from kvpull_vllm import bodies, failures, first, requests, traces
from kvpull_vllm.abi import CONST
from kvpull_vllm.core import Core
from kvpull_vllm.failures import Failure
from kvpull_vllm.halves import NO_TRACE, KvpullError, SchedulerHalf, logger
from kvpull_vllm.layout import Window
from kvpull_vllm.requests import Entry
from kvpull_vllm.stats import KVPullStats, Tally

_NOTHING = (False, None)
# A pull takes milliseconds; who comes later computes.
_PAUSE_S = 1.0
_NO_DIGEST = bytes(CONST["KVPULL_DIGEST_BYTES"])
_WANTS_HOLD = CONST["KVPULL_REQUEST_WANTS_HOLD"]
_PULL = CONST["KVPULL_REQUEST_PULL"]
_WAIT = CONST["KVPULL_MATCH_WAIT"]
_NOT_TAKEN = (CONST["KVPULL_EINVAL"], CONST["KVPULL_ENOKEY"])
_PENDING_STEP = CONST["KVPULL_PENDING_STEP"]
_REJECT = CONST["KVPULL_FINISH_REJECT"]
_CLEARED, _REVOKE = CONST["KVPULL_RESET_CLEARED"], CONST["KVPULL_RESET_REVOKE"]
_EMISMATCH = CONST["KVPULL_EMISMATCH"]
_SIBLINGS_S = 0.05
_LINES_MAX = 256  # adapters that are named in the log, each once
# Tracers are set up once, and asking for them costs as much as the request.
_LOOK_S = 1.0


@dataclass
class KVPullMetadata(KVConnectorMetadata):
    """A step's bytes, and the names of the keys that first occur in it."""

    step: bytes = b""
    names: dict[int, str] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)
    places: dict[int, traces.Place] = field(default_factory=dict)


# Most steps say nothing; nobody writes into it.
QUIET = KVPullMetadata()


@dataclass
class KVPullWorkerMetadata(KVConnectorWorkerMetadata):
    """The workers' words to the scheduler side, all ranks in one list."""

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


class Manner(NamedTuple):
    """The side of an engine in the transfer, and what it promises."""

    produces: bool
    fails: bool  # what is not pulled ends with an error: a policy of vLLM's
    shares: bool  # siblings are served by one pull and the prefix cache
    vocabulary: int  # tokens that the model has
    ranks: bool = False  # pulls go by priority, as vLLM's requests do


class SchedulerSide:
    """The scheduler side: each scheduler process has one."""

    def __init__(
        self,
        half: SchedulerHalf,
        groups: list[tuple[int, int]],
        answer: dict[str, Any],
        windows: list[Window],
        states: list[int],
        names_media: bool,
        core: Core,
        manner: Manner,
    ) -> None:
        self.half = half
        self._core = core
        self._paused_since = 0.0
        self._manner = manner
        # When the last sibling of a family came, where each of them pulls.
        self._came: dict[int, float] = {}
        core.listeners.append(self._weights_changed)
        if core.adapters is not None:
            core.adapters.listeners.append(self._change)
        self._unknown: set[str] = set()  # adapters of which a line was said
        # The prefix cache in which there may be KV of before a change.
        self._suspect: Any = None
        self._names_media = names_media
        self._windows = windows
        self._groups = groups  # place among the engine's, tokens a block
        self._states = states  # which of these are slots of a recurrent state
        self._block = max(tokens for _, tokens in groups)
        self._answer = answer  # the usual keys of kv_transfer_params
        self._entries: dict[str, Entry] = {}
        self._next_key = 1
        self._silent = False
        self._are_exported = traces.are_exported()
        self._look_at = 0.0
        self._packed = bytearray()
        # As the library's own level: what it was when this half was opened.
        self._debugs = logger.isEnabledFor(logging.DEBUG)
        # The first step of a worker takes tens of milliseconds: it has one of
        # its own, before any request.
        self._has_stepped = False
        self._meta = KVPullMetadata()
        self._tally = Tally(half)
        self._comparer = first.Comparer(half, self._tally, manner.vocabulary)
        self._outcome: Any = None  # of the step that vLLM looks at now

    def rank_info(self, info: bytes) -> None:
        """Take a worker's introduction."""
        code = self.half.rank_info(info)
        if code < 0:
            logger.error("kvpull: rank info: %s", self._text(code))

    def request_new(self, request: Any) -> None:
        """Tell of a request if it concerns the library: heartbeats begin."""
        params = request.kv_transfer_params
        if params is None:
            return
        if not isinstance(params, dict):
            # A client's, in vllm_xargs, which vLLM does not look at; it takes
            # it for a dictionary, too, and its engine would end.
            logger.warning(
                "kvpull: request %s: kv_transfer_params are no object: ignored",
                request.request_id,
            )
            request.kv_transfer_params = None
            return
        if not params or request.request_id in self._entries:
            return
        # A client may say so to a consumer, too: nobody comes for its blocks.
        holds = self._manner.produces and bool(params.get("do_remote_decode"))
        pulls = requests.pulls(params)
        if not (holds or pulls):
            return
        ticket = requests.ticket_of(params) if pulls else b""
        adapter, content = self._core.adapter(request)
        nameless = self._nameless(request, pulls, content)
        if nameless:
            if not pulls:
                return
            holds = False
        if holds and self._states:
            holds = requests.can_be_shortened(request)
        # A hold needs the digest of the whole prompt, and a state cannot be
        # taken at a token before its last one.
        continues = not (holds or self._states) and requests.continues(
            request, params
        )
        entry = Entry(
            self._next_key,
            holds,
            pulls,
            # Now, as the token ids are at hand: later it takes twice as long.
            _NO_DIGEST
            if nameless
            else requests.prompt_digest(
                request, self._core.version, content, self._packed, continues
            ),
            adapter,
            content,
            continues=continues,
        )
        self._next_key += 1
        self._entries[request.request_id] = entry
        self._tally.is_busy = True
        code = self._tell(request, entry, ticket)
        if holds and self._states:
            requests.shorten(request)
        if not pulls:
            if code < 0:
                logger.warning(
                    "kvpull: request %s is not held: %s",
                    request.request_id,
                    self._text(code),
                )
            return
        entry.has_ticket = bool(ticket) and code == 0
        parent = requests.parent_key(request.request_id)
        if parent and not self._manner.shares:
            self._came[parent] = time.monotonic()
        if not ticket:
            self._tally.own.count("shim_no_ticket", 1)
            entry.failure = failures.NO_TICKET
        elif code < 0:
            entry.failure = failures.of_code(self.half.library, code, False)
        elif nameless:
            self._give_back(entry, Failure(nameless))
        elif request.skip_reading_prefix_cache:
            self._give_back(entry, failures.UNREAD)
        elif self._debugs:
            logger.debug(
                "kvpull: request %s pulls what %s holds as %s",
                request.request_id,
                params.get("remote_engine_id"),
                params.get("remote_request_id"),
            )

    def _nameless(self, request: Any, pulls: bool, content: str) -> str:
        """Say what that its KV depends on has no name; "" if nothing."""
        unnamed = requests.nameless(request, self._names_media)
        if unnamed:
            logger.warning(
                "kvpull: request %s has a prompt with %s: no KV is moved",
                request.request_id,
                unnamed,
            )
            return f"its prompt has {unnamed}"
        lora = request.lora_request
        # A consumer's request loads its adapter behind the pull.
        replaces = pulls and getattr(lora, "load_inplace", False)
        if lora is None or (content and not replaces):
            return "the weights have no name" * self._core.are_unnamed
        why = "loaded in place by it" if content else "not known yet"
        name, told = lora.lora_name, self._unknown
        if name not in told and len(told) < _LINES_MAX:
            told.add(name)
            logger.info(
                "kvpull: request %s: the adapter %.80s is %s: no KV of such "
                "requests is moved",
                request.request_id,
                name,
                why,
            )
        return f"its adapter is {why}"

    def _give_back(self, entry: Entry, failure: Failure | None) -> None:
        """Give a ticket back, if there is one: nothing is pulled with it."""
        entry.failure = failure
        if entry.has_ticket:
            entry.has_ticket = False
            self.half.allocated(entry.key, 0, [])

    @staticmethod
    def _say(request: Any, failure: Failure, tokens: int) -> None:
        """Say why a request is not pulled: of one that is to fail, or not."""
        if tokens:
            logger.error(
                "kvpull: request %s ends with an error, as "
                "kv_load_failure_policy is fail: %s",
                request.request_id,
                failure.text,
            )
        else:
            logger.warning(
                "kvpull: request %s is computed here: %s",
                request.request_id,
                failure.text,
            )

    def _tell(self, request: Any, entry: Entry, ticket: bytes) -> int:
        """Tell the library of a request; the answer is an error or 0."""
        headers = request.trace_headers
        trace = traces.of_headers(headers) if headers else NO_TRACE
        if ticket and self._are_exported:
            entry.place = traces.place(
                trace, self.half.library.ticket_peek(ticket)
            )
        name = request.request_id
        flags = (_WANTS_HOLD if entry.holds else 0) | (_PULL if ticket else 0)
        return self.half.request_new(
            entry.key,
            requests.parent_key(name),
            ticket,
            (request.num_prompt_tokens, entry.digest),
            flags,
            name,
            trace,
            entry.adapter,
            requests.priority(request) if self._manner.ranks else 0,
        )

    def matched_tokens(
        self, request: Any, num_computed_tokens: int
    ) -> tuple[int | None, bool]:
        """Answer how many tokens can be loaded beyond the local ones."""
        entry = self._entries.get(request.request_id)
        if entry is None:
            return 0, False
        if num_computed_tokens:
            self._look_at_cache()
        if entry.has_ticket and self._awaits_siblings(request.request_id):
            return None, False
        # A hit of the cache concerns what is held, too.
        if entry.has_ticket or num_computed_tokens:
            answer, offered = self.half.matched_tokens(
                entry.key, num_computed_tokens
            )
            if answer == _WAIT:
                return None, False
            tokens = offered
            # vLLM computes the last token, of which a state knows already.
            if self._states and num_computed_tokens + offered >= request.num_tokens:
                tokens = 0
            elif self._windows:
                tokens = self._beside_windows(
                    request.num_tokens, num_computed_tokens, offered
                )
            if tokens:
                entry.failure, entry.local_tokens = None, num_computed_tokens
                return tokens, True
            if entry.has_ticket:
                entry.failure = self._failure(
                    request, entry, num_computed_tokens, offered
                )
        return self._promised(request, entry, num_computed_tokens)

    def _awaits_siblings(self, name: str) -> bool:
        """Say whether more requests by the same ticket may be on their way.

        vLLM sends the n of a request one by one. Where each of them pulls, the
        ticket is given back with the last one that is known.
        """
        came = self._came.get(requests.parent_key(name)) if self._came else None
        return came is not None and time.monotonic() - came < _SIBLINGS_S

    def _failure(
        self, request: Any, entry: Entry, local_tokens: int, offered: int
    ) -> Failure | None:
        """Return why nothing is loaded, None if nothing failed."""
        code = self.half.match_failure(entry.key)
        if code < 0:
            return failures.of_code(self.half.library, code, entry.parked)
        if offered:
            return failures.WINDOW
        # Nothing is pulled where all that is missing is less than a block, nor
        # for a request that was pulled once and preempted: D computes.
        if entry.parked or request.num_tokens - local_tokens <= self._block:
            return None
        ticket = requests.ticket_of(request.kv_transfer_params)
        held = self.half.library.ticket_peek(ticket).prompt_tokens
        return failures.USED if held - local_tokens > self._block else None

    def _promised(
        self, request: Any, entry: Entry, local_tokens: int
    ) -> tuple[int, bool]:
        """Answer for a request that nothing is loaded for.

        vLLM fails it if a load failed, and a load has to be promised before.
        """
        rest = request.num_tokens - local_tokens
        if (
            self._manner.fails
            and entry.failure is not None
            and not entry.parked
            and rest >= self._block
        ):
            return self._block, True
        return 0, False

    def _beside_windows(self, count: int, local: int, tokens: int) -> int:
        """Return how many of the tokens can be loaded where windows slide.

        vLLM computes the last of a request's tokens though it is loaded, but
        lays the blocks out for the token behind: the last one is left out.
        P has kept what the token behind its prompt looks at. Where the last
        one looks at a block before, which is not local either, vLLM computes.
        """
        held = local + tokens
        end = min(held, count - 1)
        for window in self._windows:
            first = max(window.first_block(end), local // window.block_tokens)
            if first < window.first_block(held):
                return 0
        return max(end - local, 0)

    def allocated(
        self, request: Any, blocks: Any, num_external_tokens: int
    ) -> None:
        """Start the load, or give the ticket back."""
        entry = self._entries.get(request.request_id)
        if entry is None or not entry.pulls:
            return
        if entry.failure is not None and not entry.is_said:
            entry.is_said = True
            self._say(request, entry.failure, num_external_tokens)
        if entry.parked:
            return
        self._tally.is_busy = True
        if entry.failure is not None and num_external_tokens:  # as promised
            entry.parked = True
            self._meta.failed.append(request.request_id)
        if entry.failure is not None or not num_external_tokens:
            self._give_back(entry, entry.failure)
            return
        ids = blocks.get_block_ids()
        code = self.half.allocated(
            entry.key,
            num_external_tokens,
            requests.blocks_of(
                ids,
                self._groups,
                entry.local_tokens,
                entry.local_tokens + num_external_tokens,
            ),
        )
        # The engine waits for this request from now on, whatever came of it.
        entry.parked = True
        if code in _NOT_TAKEN:
            logger.error(
                "kvpull: request %s: %s", request.request_id, self._text(code)
            )
            entry.failure = failures.of_code(self.half.library, code, True)
            self._meta.failed.append(request.request_id)
        else:
            self._meta.names[entry.key] = request.request_id
            if entry.place:
                self._meta.places[entry.key] = entry.place

    def _weights_changed(self) -> None:
        """Share nothing of the old weights; the holds give memory back."""
        self._change()
        self.half.reset(_REVOKE)

    def _change(self, adapter: int = 0) -> None:
        """Tell the library of a change, and what the prefix cache has."""
        self._tally.is_busy = True
        self._look_at_cache()
        self.half.changed(adapter)
        self._suspect = self._core.cached()
        if self._core.is_cache_empty():
            self._clear()

    def _look_at_cache(self) -> None:
        """See whether the prefix cache was cleared since the last change."""
        suspect = self._suspect
        if suspect is not None and self._core.cached() is not suspect:
            self._clear()

    def _clear(self) -> None:
        """Nothing of before the last change can be hit any more."""
        self._suspect = None
        self.half.reset(_CLEARED)

    def step_ends(self, outcome: Any) -> None:
        """Take what the workers made of a step, before vLLM acts on it."""
        self._outcome = outcome
        said = outcome.kv_connector_output
        if said is not None and said.finished_recving:
            self._loads_end(said)

    def _loads_end(self, said: Any) -> None:
        """Fail loads of before a change, before vLLM takes them for done."""
        for name in said.finished_recving - said.failed_recving:
            entry = self._entries.get(name)
            if entry is None or not entry.parked:
                continue
            code = self._used(entry)
            if code < 0:
                entry.has_ticket = False
                entry.failure = failures.of_code(self.half.library, code, True)
                said.failed_recving.add(name)
                logger.warning(
                    "kvpull: request %s is not used: %s", name, self._text(code)
                )

    def _used(self, entry: Entry) -> int:
        """Ask whether what was loaded may be used: an error or 0."""
        adapters = self._core.adapters
        if entry.adapter and adapters is not None:
            if adapters.name(entry.adapter) != entry.content:
                return _EMISMATCH
        return self.half.loaded(entry.key)

    def _look_at_pause(self, now: float) -> None:
        """End what a pause waits for, when readers had time to be done."""
        if not self._core.waits_for_holds():
            self._paused_since = now
        elif now - self._paused_since > _PAUSE_S:
            self._paused_since = now
            self.half.reset(_REVOKE)

    def _look_at_tracers(self, now: float) -> None:
        """See whether spans are exported, which they are for ever from then on."""
        self._look_at = now + _LOOK_S
        self._are_exported = self._are_exported or traces.are_exported()

    def build_meta(self, scheduler_output: Any) -> KVPullMetadata:
        """Return what the workers are told in this step."""
        now = time.monotonic()
        self._look_at_pause(now)
        if now >= self._look_at:
            self._look_at_tracers(now)
        meta, step = self._meta, self.half.step_build()
        if not (step or meta.names or meta.failed):
            return QUIET
        self._tally.is_busy = True
        # Made here, where nobody waits for what is in it.
        self._meta = KVPullMetadata()
        meta.step = step
        return meta

    def output(self, connector_output: Any) -> None:
        """Take what the workers said."""
        meta = connector_output.kv_connector_worker_meta
        if not isinstance(meta, KVPullWorkerMetadata):
            return
        self._has_stepped = True
        for info in meta.infos:
            self.rank_info(info)
        for result in meta.results:
            self._tally.is_busy = True
            code = self.half.result_take(result)
            if code < 0:
                logger.error("kvpull: result: %s", self._text(code))

    def request_finished(
        self, request: Any, block_ids: tuple[list[int], ...]
    ) -> tuple[bool, dict[str, Any] | None]:
        """Say who owns the blocks now, and what the client is told."""
        name = request.request_id
        entry = self._entries.pop(name, None)
        if entry is None:
            return _NOTHING
        if self._came:
            self._came.pop(requests.parent_key(name), None)
        reason = requests.finish_reason(request)
        self._tally.is_busy = True
        told = entry.failure.answer() if entry.failure else {}
        if reason == _REJECT:
            logger.debug(
                "kvpull: request %s is rejected: its ticket is given back", name
            )
        tokens, blocks, token = 0, [], None
        if entry.parked and entry.failure is None:
            self._comparer.look(request, entry)
        if entry.holds:
            if entry.adapter and self._core.adapters is not None:
                self._core.adapters.look()
            computed = request.num_computed_tokens - getattr(
                request, "num_in_flight_tokens", 0
            )
            tokens = request.num_prompt_tokens
            if computed < tokens:
                tokens = max(computed, 0)
            if self._states:
                tokens, blocks = self._with_states(block_ids, tokens, computed)
            else:
                blocks = requests.blocks_of(block_ids, self._groups, 0, tokens)
                # Where a state is held, P has left the prompt's last token out,
                # and the token that it made is not the model's.
                token = first.made(request, self._outcome)
        held, ticket = self.half.request_finished(
            entry.key, reason, tokens, blocks, token.pack() if token else b""
        )
        if held:
            if self._debugs:
                logger.debug("kvpull: request %s is held", name)
            self._meta.names[entry.key] = name
        if not ticket or not entry.holds:
            return held, told or None
        told[requests.TICKET] = ticket.decode()
        if self._answer:
            told |= self._answer
            # Not with a ticket alone: a connector beside this one would take
            # P's blocks for those of D's longer prompt.
            if token and tokens == request.num_prompt_tokens:
                told[bodies.FIRST_TOKEN] = token.token
            told["remote_request_id"] = name
            told["remote_num_tokens"] = tokens
        return held, told

    def _with_states(
        self, ids: tuple[list[int], ...], tokens: int, computed: int
    ) -> tuple[int, list[tuple[int, list[int]]]]:
        """Return how many tokens can be held, and their blocks.

        A request's slot has the state after all tokens that are computed, so it
        is held where these are prompt tokens: requests.shorten() sees to it.
        """
        if not 0 < computed == tokens:
            return 0, []
        blocks = requests.blocks_of(ids, self._groups, 0, tokens)
        for at in self._states:
            place, size = self._groups[at]
            slot = (tokens - 1) // size
            if len(ids[place]) <= slot or not ids[place][slot]:
                return 0, []
            blocks[at] = (slot, [ids[place][slot]])
        return tokens, blocks

    def has_pending_work(self) -> bool:
        """Say whether a step is needed though no request asks for one."""
        return bool(
            not self._has_stepped
            or self._meta.names
            or self._meta.failed
            or self._tally.is_untold()
            or self.half.ranks_missing() > 0
            or self._pending() & _PENDING_STEP
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
        """Forget tickets and end holds: the cache is being cleared."""
        self._tally.is_busy = True
        for entry in self._entries.values():
            if entry.has_ticket and not entry.parked:
                self._give_back(entry, failures.RESET)
        self.half.reset(CONST["KVPULL_RESET_FORGET"] | _REVOKE)
        return True

    def stats(self) -> KVPullStats | None:
        """Return what was counted since the last call, None if nothing."""
        return self._tally.take()

    def _text(self, code: int) -> str:
        return self.half.library.error_text(code)
