# SPDX-License-Identifier: Apache-2.0
"""P's first token at D, with vLLM's own scheduler and no model: see core.py.

test_first.py: prints the result line of the other test programs.
"""

from __future__ import annotations

import logging
import math
import os
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from unittest import mock

from engine import environment

os.environ.update(environment())
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")

import core  # noqa: E402
from core import (  # noqa: E402
    BLOCK,
    SAMPLED,
    WINDOW,
    Core,
    overheard,
    place,
    prefilled,
    prompt_of,
    run,
    with_states,
)
from kvpull_vllm import first  # noqa: E402
from kvpull_vllm.first import (  # noqa: E402
    GREEDY,
    SEEDED,
    First,
    PayloadError,
    Sampling,
)
from kvpull_vllm.logs import logger  # noqa: E402
from runner import run_all, test  # noqa: E402
from vllm.sampling_params import (  # noqa: E402
    SamplingParams,
    StructuredOutputsParams,
)

OTHER = SAMPLED + 1
GREEDILY = {"temperature": 0}
SEED = {"temperature": 0.7, "top_p": 0.9, "top_k": 40, "seed": 3}
CONTINUES = {"kvpull_continues": True}


class Pair:
    """P and D, and what D's package counts and logs."""

    def __init__(self, p: Core, d: Core, said: list[str]) -> None:
        self.p, self.d, self.said = p, d, said
        self._told = overheard(d)
        self._count = 0

    def rest(self) -> None:
        """Step until nothing is left to do, and all counters are told."""
        run(
            [self.p, self.d],
            lambda: not (
                self.p.scheduler.has_requests()
                or self.d.scheduler.has_requests()
            ),
        )

    def through(
        self,
        at_p: dict[str, Any],
        at_d: dict[str, Any],
        length: int = 100,
        behind: list[int] | None = None,
        **params: Any,
    ) -> str:
        """Prefill at P, decode at D; return the request's name."""
        self._count += 1
        name, prompt = f"r{self._count}", prompt_of(length, self._count)
        given = prefilled(self.p, name, prompt, **at_p)
        asked = [*prompt, *(behind or [])]
        self.d.ask(name, asked, {**given, **params}, 2, **at_d)
        run([self.p, self.d], lambda: name in self.d.answers)
        self.rest()
        return name

    def counts(self) -> tuple[int, int, int]:
        """Return how many were compared, how many differ, are refused."""
        counts = self._told.data["counts"]
        return tuple(
            counts.get(f"shim_{name}", 0)
            for name in (
                "first_tokens_compared",
                "first_tokens_differ",
                "payloads_refused",
            )
        )


@contextmanager
def pair(**more: Any) -> Iterator[Pair]:
    """P and D: see core.pair()."""
    said: list[str] = []
    level = logger.level
    with core.pair(**more) as (p, d):
        logger.setLevel(logging.WARNING)
        with mock.patch.object(
            logger, "handle", lambda line: said.append(line.getMessage())
        ):
            yield Pair(p, d, said)
        logger.setLevel(level)


@test
def payload_has_one_form() -> None:
    """The form is fixed: 48 bytes, little endian, in this order."""
    told = First(513, -0.5, Sampling(SEEDED, 40, -3, 0.7, 0.9, 0.05))
    payload = told.pack()
    assert payload == bytes([1, 2, 0, 0, 1, 2, 0, 0]) + struct.pack(
        "<fiqddd", -0.5, 40, -3, 0.7, 0.9, 0.05
    )
    assert len(payload) == 48
    assert first.unpack(payload, 514) == told
    unknown = First(7, None, Sampling(GREEDY))
    assert first.unpack(unknown.pack(), 512) == unknown


@test
def numbers_of_clients_that_do_not_fit_are_not_told() -> None:
    """A seed of more than 64 bits, a top_k of more than 32: no payload."""
    for state in (Sampling(SEEDED, 0, 1 << 63), Sampling(SEEDED, 1 << 31, 1)):
        assert First(7, None, state).pack() == b"", state


@test
def payloads_are_refused_by_name() -> None:
    """Each field of a payload that another process has made up is checked."""
    good = First(7, -0.5, Sampling(GREEDY)).pack()

    def changed(at: int, form: str, value: Any) -> bytes:
        made = bytearray(good)
        struct.pack_into(form, made, at, value)
        return bytes(made)

    for payload, why in (
        (changed(0, "<B", 2), "its version is 2, and this package reads 1"),
        (changed(0, "<B", 0), "its version is 0"),
        (good[:-1], "it has 47 bytes, and version 1 has 48"),
        (good + b"x", "it has 49 bytes"),
        (b"\1", "it has 1 bytes"),
        (changed(1, "<B", 3), "its kind of sampling is 3"),
        (changed(2, "<H", 1), "its kind of sampling is 1, 1"),
        (changed(4, "<I", 512), "its token is 512, and the vocabulary has 512"),
        (changed(4, "<I", 0xFFFFFFFF), "its token is 4294967295"),
        (changed(8, "<f", 0.25), "its log probability is 0.25"),
        (changed(8, "<f", math.inf), "its log probability is inf"),
        (changed(8, "<f", -math.inf), "its log probability is -inf"),
    ):
        try:
            first.unpack(payload, 512)
        except PayloadError as error:
            assert why in str(error), (why, error)
        else:
            raise AssertionError(why)


@test
def first_token_of_p_is_compared_at_d() -> None:
    """P tells its token in its answer and in the ticket; D's is the same."""
    with pair() as both:
        name = both.through(GREEDILY, GREEDILY)
        answer = both.p.answers[name].kv_transfer_params
        assert answer["kvpull_first_token"] == SAMPLED, answer
        assert both.counts() == (1, 0, 0)
        assert both.d.computed[name] == 2
        assert both.said == []


@test
def difference_is_counted_and_logged() -> None:
    """D makes another token: the answer is D's, and one line has both."""
    with pair() as both:
        both.d.sampled = OTHER
        both.through(GREEDILY, GREEDILY)
        assert both.counts() == (1, 1, 0)
        (line,) = both.said
        assert f"its first token is {OTHER}, and P's was {SAMPLED}" in line
        assert "log probability" not in line, line
        both.p.logprob = -0.25
        both.through(GREEDILY, GREEDILY)
        assert both.counts() == (2, 2, 0)
        assert "P's was 7 (log probability -0.2500)" in both.said[-1], both.said
        # A --logprobs-mode that tells logits: no log probability is above 0.
        both.p.logprob = 3.5
        both.through(GREEDILY, GREEDILY)
        assert both.counts() == (3, 3, 0)
        assert "log probability" not in both.said[-1], both.said


@test
def log_probability_is_that_of_the_first_token() -> None:
    """P makes more tokens than one: the last one's is not the first one's."""
    with pair() as both:
        both.d.sampled, both.p.logprob = OTHER, -0.25
        prompt = prompt_of(100)
        given = prefilled(both.p, "three", prompt, 3, **GREEDILY)
        both.d.ask("three", prompt, given, 2, **GREEDILY)
        run([both.p, both.d], lambda: "three" in both.d.answers)
        both.rest()
        assert both.counts() == (1, 1, 0)
        assert "log probability" not in both.said[-1], both.said


@test
def tokens_of_unlike_choices_are_not_compared() -> None:
    """Greedy ones are, and seeded ones with all of P's parameters."""
    cases: list[tuple[dict[str, Any], dict[str, Any], bool]] = [
        (GREEDILY, GREEDILY, True),
        (SEED, SEED, True),
        # A presence_penalty changes no first token.
        (GREEDILY, {**GREEDILY, "presence_penalty": 1}, True),
        ({}, {}, False),
        ({}, GREEDILY, False),
        (GREEDILY, {}, False),
        (GREEDILY, SEED, False),
        (SEED, {**SEED, "seed": 4}, False),
        (SEED, {**SEED, "temperature": 0.8}, False),
        (SEED, {**SEED, "top_p": 0.8}, False),
        (SEED, {**SEED, "top_k": 41}, False),
        (SEED, {**SEED, "min_p": 0.1}, False),
        ({**SEED, "seed": 1 << 63}, {**SEED, "seed": 1 << 63}, False),
    ]
    for more in (
        {"repetition_penalty": 1.1},
        {"min_tokens": 1},
        {"logit_bias": {5: 1.0}},
        {"allowed_token_ids": [5, 6]},
        {"bad_words": ["w5"]},
        {"thinking_token_budget": 5},
    ):
        cases += [(GREEDILY, {**GREEDILY, **more}, False)]
        cases += [({**GREEDILY, **more}, GREEDILY, False)]
    with pair() as both:
        both.d.sampled = OTHER
        compared = 0
        for at_p, at_d, is_compared in cases:
            both.through(at_p, at_d)
            compared += is_compared
            assert both.counts() == (compared, compared, 0), (at_p, at_d)
    grammar = StructuredOutputsParams(regex="w5")
    greedy = SamplingParams(temperature=0, structured_outputs=grammar)
    request = SimpleNamespace(sampling_params=greedy)
    assert first.sampling_of(request) == Sampling(), "a grammar chooses"


@test
def payload_that_is_refused_harms_no_request() -> None:
    """P's package is another one, or not itself: D answers, and counts."""
    for payload, why in (
        (b"\2" + bytes(47), "its version is 2"),
        (First(512).pack(), "its token is 512, and the vocabulary has 512"),
        (bytes([1]) * 4096, "it has 4096 bytes"),
    ):
        with (
            mock.patch.object(First, "pack", lambda _, of=payload: of),
            pair() as both,
        ):
            name = both.through(GREEDILY, GREEDILY)
            assert both.d.computed[name] == 2
            assert both.counts() == (0, 0, 1)
            (line,) = both.said
            assert f"payload of its ticket is refused: {why}" in line, line


@test
def payload_of_a_ticket_that_was_not_pulled_is_not_believed() -> None:
    """P's hold has ended before D came: D computes, and compares nothing."""
    with pair() as both:
        p, d = both.p, both.d
        d.sampled = OTHER
        prompt = prompt_of(100)
        given = prefilled(p, "late", prompt, **GREEDILY)
        p.rpc("update_weights")
        run([p], lambda: p.count("worker_holds_revoked") == 1)
        d.ask("late", prompt, given, 2, **GREEDILY)
        run([p, d], lambda: "late" in d.answers)
        assert d.computed["late"] == 101
        both.rest()
        assert both.counts() == (0, 0, 0)


@test
def states_have_no_first_token() -> None:
    """P leaves the prompt's last token out: its one token is nobody's."""
    with pair(layers=with_states(BLOCK, "align")) as both:
        name = both.through(GREEDILY, GREEDILY)
        assert both.d.count("worker_pulls_done") == 1
        answer = both.p.answers[name].kv_transfer_params
        assert "kvpull_first_token" not in answer, answer
        assert both.counts() == (0, 0, 0)
        # A router that says so all the same gets what it had before.
        name = both.through(GREEDILY, GREEDILY, behind=[SAMPLED], **CONTINUES)
        assert both.d.computed[name] == 102, both.d.computed
        assert both.d.count("worker_pulls_done") == 1


@test
def ticket_alone_is_no_offer_to_go_on() -> None:
    """Another connector beside counts P's blocks by D's prompt."""
    with pair(extra={"ticket_only": True}) as both:
        more = {"do_remote_prefill": True}
        name = both.through(GREEDILY, GREEDILY, **more)
        params = both.p.answers[name].kv_transfer_params
        assert params.keys() == {"kvpull_ticket"}, params
        assert both.counts() == (1, 0, 0)


@test
def d_goes_on_from_the_first_token_of_p() -> None:
    """The prompt and P's token: D pulls, and computes that token alone."""
    for more in ({}, {"window": WINDOW}, {"chunk": WINDOW}):
        with pair(**more) as both:
            lengths = [1, 2, *range(BLOCK - 2, BLOCK + 3), *range(94, 130)]
            for length in lengths:
                name = both.through(
                    {}, {}, length, behind=[SAMPLED], **CONTINUES
                )
                assert both.d.computed[name] == 2, (more, length)
            pulled = both.d.count("worker_pulls_done")
            assert pulled == len(lengths), (more, pulled)
            # By the ticket, too, it is the token that the router was told.
            assert both.counts() == (pulled, 0, 0), both.counts()


@test
def d_goes_on_with_drafts_as_well() -> None:
    """P's layer that drafts has seen the same token behind the last one."""
    for more in ({"drafts": 3}, {"drafts": 3, "drafter": {}}):
        with pair(**more) as both:
            lengths = [2, 31, 32, 33, 100]
            for length in lengths:
                name = both.through(
                    {}, {}, length, behind=[SAMPLED], **CONTINUES
                )
                assert both.d.computed[name] <= 2, (more, length)
            assert both.d.count("worker_pulls_done") == len(lengths), more
            assert both.counts() == (len(lengths), 0, 0), both.counts()


@test
def first_token_that_a_router_mixed_up_is_counted() -> None:
    """D goes on from what the client has, and counts the difference."""
    with pair() as both:
        name = both.through({}, {}, behind=[OTHER], **CONTINUES)
        assert both.d.computed[name] == 2
        assert both.counts() == (1, 1, 0)


@test
def prompt_that_is_longer_pulls_where_a_router_says_so() -> None:
    """Otherwise the ticket is another prompt's, whoever asks."""
    with pair() as both:
        for number, params in enumerate(
            ({}, {"kvpull_continues": 1}, {"kvpull_continues": "yes"}), 1
        ):
            name = both.through({}, {}, behind=[SAMPLED], **params)
            assert both.d.computed[name] == 102, params
            assert both.d.count("scheduler_mismatches") == number
        # Nor is a prompt that is as long as the ticket's, or two longer.
        for behind in ([], [SAMPLED, SAMPLED]):
            name = both.through({}, {}, behind=behind, **CONTINUES)
            assert both.d.computed[name] == 101 + len(behind), behind
        assert both.d.count("worker_pulls_done") == 0
        assert both.counts() == (0, 0, 0)


@test
def prompt_that_is_held_is_named_whole() -> None:
    """An engine of both roles is asked to go on, and to hold as well."""
    with place() as folder:
        p, d = Core(folder, "kv_producer"), Core(folder, "kv_both")
        prompt = prompt_of(100)
        given = prefilled(p, "one", prompt)
        asked = {**given, **CONTINUES, "do_remote_decode": True}
        d.ask("one", [*prompt, SAMPLED], asked, 1)
        run([p, d], lambda: "one" in d.answers)
        assert d.computed["one"] == 101, "the ticket is another prompt's"
        assert d.count("scheduler_mismatches") == 1
        d.close()
        p.close()


@test
def what_d_has_of_a_prompt_is_not_pulled_to_go_on() -> None:
    """D's cache has some blocks of the prompt, or all of them."""
    with pair() as both:
        p, d = both.p, both.d
        prompt = prompt_of(4 * BLOCK)
        for name, own in (("some", 2 * BLOCK), ("all", 4 * BLOCK)):
            d.ask(f"{name}-own", [*prompt[:own], 5], None)
            run([d], lambda name=name: f"{name}-own" in d.answers)
            given = prefilled(p, name, prompt)
            d.ask(name, [*prompt, SAMPLED], {**given, **CONTINUES}, 2)
            run([p, d], lambda name=name: name in d.answers)
            assert d.computed[name] == 2, d.computed
        both.rest()
        assert d.count("worker_pulls_done") == 1
        assert both.counts() == (1, 0, 0)


if __name__ == "__main__":
    sys.exit(run_all())
