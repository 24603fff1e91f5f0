# SPDX-License-Identifier: Apache-2.0
"""P's first token, which P's engine tells D's in the payload of a ticket.

D computes its own first token from P's KV and compares the two: vLLM gives a
connector no way to hand a token to a request. The bytes come from another
process: D checks all of them before it uses one.
"""

from __future__ import annotations

import math
import struct
from typing import Any, NamedTuple

from kvpull_vllm import inside
from kvpull_vllm.halves import SchedulerHalf
from kvpull_vllm.logs import logger
from kvpull_vllm.requests import Entry
from kvpull_vllm.stats import Tally

# The payload, little endian: version, kind of sampling, zero (2 bytes), token,
# log probability (NaN: not known), top_k, seed, temperature, top_p, min_p.
_FORM = struct.Struct("<BBHIfiqddd")
_VERSION = 1
DRAWN, GREEDY, SEEDED = range(3)
# vLLM takes less for greedy.
_TEMPERATURE_MIN = 1e-5
# Parameters that change which first token is chosen. A router may strip them
# from P's request, or P's single token may make them void (min_tokens).
_BENDING = (
    "allowed_token_ids",
    "bad_words",
    "logit_bias",
    "min_tokens",
    "structured_outputs",
    "thinking_token_budget",
)


class PayloadError(ValueError):
    """A payload cannot be used; the text says why."""


class Sampling(NamedTuple):
    """How a token was chosen: tokens of equal choices are comparable.

    A token that was drawn without a seed is comparable with none.
    """

    kind: int = DRAWN
    top_k: int = 0
    seed: int = 0
    temperature: float = 0.0
    top_p: float = 0.0
    min_p: float = 0.0


class First(NamedTuple):
    """A first token, its log probability if that is known, its choice."""

    token: int
    logprob: float | None = None
    sampling: Sampling = Sampling()

    def pack(self) -> bytes:
        """Return the payload, b"" if a client's number is too large for it."""
        logprob = math.nan if self.logprob is None else self.logprob
        kind, *state = self.sampling
        try:
            return _FORM.pack(_VERSION, kind, 0, self.token, logprob, *state)
        except struct.error:
            return b""

    def __str__(self) -> str:
        """Return the words for a log line."""
        if self.logprob is None:
            return f"{self.token}"
        return f"{self.token} (log probability {self.logprob:.4f})"


def unpack(payload: bytes, vocabulary: int) -> First:
    """Return what a payload tells; raise PayloadError."""
    if not payload or payload[0] != _VERSION:
        version = payload[0] if payload else "missing"
        raise PayloadError(
            f"its version is {version}, and this package reads {_VERSION}"
        )
    if len(payload) != _FORM.size:
        raise PayloadError(
            f"it has {len(payload)} bytes, and version {_VERSION} has "
            f"{_FORM.size}"
        )
    _, kind, zero, token, logprob, *state = _FORM.unpack(payload)
    if kind > SEEDED or zero:
        raise PayloadError(f"its kind of sampling is {kind}, {zero}")
    if token >= vocabulary:
        raise PayloadError(
            f"its token is {token}, and the vocabulary has {vocabulary}"
        )
    if math.isnan(logprob):
        return First(token, None, Sampling(kind, *state))
    if not -math.inf < logprob <= 0:
        raise PayloadError(f"its log probability is {logprob}")
    return First(token, logprob, Sampling(kind, *state))


def sampling_of(request: Any) -> Sampling:
    """Return how a request's first token is chosen."""
    params = request.sampling_params
    if params.repetition_penalty != 1 or any(
        getattr(params, name, None) for name in _BENDING
    ):
        return Sampling()
    if params.temperature < _TEMPERATURE_MIN:
        return Sampling(GREEDY)
    if params.seed is None:
        return Sampling()
    return Sampling(
        SEEDED,
        params.top_k,
        params.seed,
        params.temperature,
        params.top_p,
        params.min_p,
    )


def made(request: Any, outcome: Any) -> First | None:
    """Return the first token of a request of P's that ends, None without one.

    outcome is the worker's answer to the step in which the request ended.
    """
    tokens = request.output_token_ids
    if not tokens or request.sampling_params is None:
        return None
    logprob = None
    if len(tokens) == 1:
        logprob = inside.sampled_logprob(outcome, request.request_id)
    if logprob is not None and not -math.inf < logprob <= 0:
        logprob = None  # of a --logprobs-mode that tells logits
    return First(tokens[0], logprob, sampling_of(request))


class Comparer:
    """Compares D's first tokens with P's, counts and logs differences."""

    def __init__(
        self, half: SchedulerHalf, tally: Tally, vocabulary: int
    ) -> None:
        self._half = half
        self._tally = tally
        self._vocabulary = vocabulary

    def look(self, request: Any, entry: Entry) -> None:
        """Compare a request's first token, when the request ends.

        A payload is told for a request whose pull was LOADED, and for no other.
        """
        payload = self._half.payload(entry.key)
        tokens = request.output_token_ids
        if not payload or not (entry.continues or tokens):
            return
        try:
            told = unpack(payload, self._vocabulary)
        except PayloadError as error:
            self._tally.own.count("shim_payloads_refused", 1)
            logger.warning(
                "kvpull: request %s: the payload of its ticket is refused: %s",
                request.request_id,
                error,
            )
            return
        if entry.continues:
            # The client has it: a router took it from P's answer.
            self._count(request, told, request.prompt_token_ids[-1])
        elif (
            told.sampling.kind != DRAWN
            and request.sampling_params is not None
            and told.sampling == sampling_of(request)
        ):
            self._count(request, told, tokens[0])

    def _count(self, request: Any, told: First, token: int) -> None:
        self._tally.own.count("shim_first_tokens_compared", 1)
        if token == told.token:
            return
        self._tally.own.count("shim_first_tokens_differ", 1)
        logger.warning(
            "kvpull: request %s: its first token is %d, and P's was %s",
            request.request_id,
            token,
            told,
        )
