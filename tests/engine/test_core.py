# SPDX-License-Identifier: Apache-2.0
"""Tests with vLLM's own scheduler and no model: see core.py.

test_core.py: prints the result line of the other test programs.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any
from unittest import mock

from engine import environment

os.environ.update(environment())
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")

import torch  # noqa: E402
from core import (  # noqa: E402
    BLOCK,
    HOLD,
    WINDOW,
    Core,
    overheard,
    pair,
    place,
    prefilled,
    prompt_of,
    run,
)
from kvpull_vllm.settings import ConfigError  # noqa: E402
from opentelemetry import trace  # noqa: E402
from opentelemetry.sdk.trace import TracerProvider  # noqa: E402
from opentelemetry.sdk.trace.export import SimpleSpanProcessor  # noqa: E402
from opentelemetry.sdk.trace.export.in_memory_span_exporter import (  # noqa: E402
    InMemorySpanExporter,
)
from runner import run_all, test  # noqa: E402
from vllm.v1.core.sched.interface import PauseState  # noqa: E402

SPANS = InMemorySpanExporter()


def _of_each_length(p: Core, d: Core, lengths: range) -> list[int]:
    """Decode prompts of all lengths; the lengths that D computed itself."""
    alone = []
    for length in lengths:
        prompt, name = prompt_of(length), f"{length}"
        d.ask(name, prompt, prefilled(p, name, prompt), 2)
        run([p, d], lambda name=name: name in d.answers)
        if d.computed[name] > 2:
            alone.append(length)
    assert d.count("worker_pulls_done") == len(lengths) - len(alone)
    assert d.count("scheduler_pulls_failed") == 0
    return alone


@test
def sliding_windows_have_all_that_they_look_at() -> None:
    """Each length; D computes one in a block, whose window P has left."""
    with pair(window=WINDOW) as (p, d):
        lengths = range(WINDOW - 2, WINDOW + 2 * BLOCK + 2)
        alone = _of_each_length(p, d, lengths)
        assert alone == [
            n for n in lengths if n >= WINDOW and (n - WINDOW + 1) % BLOCK == 0
        ], alone


@test
def chunks_have_all_that_they_look_at() -> None:
    """The same with attention in chunks: P leaves a whole one at its end."""
    with pair(chunk=WINDOW) as (p, d):
        lengths = range(WINDOW - 2, 2 * WINDOW + 3)
        alone = _of_each_length(p, d, lengths)
        assert alone == [n for n in lengths if n % WINDOW == 0], alone


@test
def windows_with_a_local_prefix_are_whole() -> None:
    """D has the prompt's first blocks, or all of them."""
    alone = []
    with pair(window=WINDOW) as (p, d):
        for length in (159, 160, 161):
            for cached in (32, 64, 96, 128, 158):
                prompt, name = prompt_of(length, cached), f"{length}-{cached}"
                d.ask(f"{name}-first", prompt[:cached], None)
                run([d], lambda name=name: f"{name}-first" in d.answers)
                d.ask(name, prompt, prefilled(p, name, prompt), 2)
                run([p, d], lambda name=name: name in d.answers)
                if d.computed[name] > 2:
                    alone.append(name)
        # P has left their window, and D has not got it either.
        assert alone == ["159-32", "159-64", "159-96"], alone
        assert d.count("scheduler_pulls_failed") == 0


@test
def pulls_have_the_priority_that_vllm_orders_by() -> None:
    """Without its policy priority vLLM looks at no number, nor do pulls."""
    asked, most = (3, -3, 1 << 40, -1 << 40), (1 << 31) - 1
    for ranks in (False, True):
        with pair(ranks=ranks) as (p, d):
            half, told = d.connector._scheduler.half, []

            def tell(*given: Any, half=half, told=told) -> int:
                told.append(given[-1])
                return type(half).request_new(half, *given)

            with mock.patch.object(half, "request_new", tell):
                for at, priority in enumerate(asked):
                    prompt, name = prompt_of(100 + at), f"{at}"
                    ticket = prefilled(p, name, prompt)
                    d.ask(name, prompt, ticket, 2, priority=priority)
                    run([p, d], lambda name=name: name in d.answers)
            wanted = [3, -3, most, -most - 1] if ranks else [0] * 4
            assert told == wanted, told
            assert d.count("worker_pulls_done") == 4


@test
def tickets_of_before_a_reset_are_given_back() -> None:
    """Weights were changed: D loads nothing, P is told."""
    with pair() as (p, d):
        prompt = prompt_of(100)
        d.ask("one", prompt, prefilled(p, "one", prompt), 2)
        assert d.scheduler.reset_prefix_cache(
            reset_running_requests=True, reset_connector=True
        )
        run([p, d], lambda: "one" in d.answers)
        assert d.count("worker_pulls_done") == 0
        assert d.computed["one"] == 101
        run([p, d], lambda: p.count("worker_holds_released") == 1)
        d.ask("two", prompt, prefilled(p, "two", prompt), 2)
        run([p, d], lambda: "two" in d.answers)
        # D has computed the prompt since, so its prefix cache has it.
        assert d.count("worker_pulls_done") == 1


@test
def held_blocks_are_reset_when_asked_twice() -> None:
    """vLLM says no while blocks are held; the first try has ended the holds."""
    with pair() as (p, d):
        prompt = prompt_of(100)
        params = prefilled(p, "one", prompt)
        run([p], lambda: p.count("worker_holds_taken") == 1)
        reset = p.scheduler.reset_prefix_cache
        try:
            reset(reset_running_requests=True, reset_connector=True)
        except RuntimeError:  # vLLM's own, and it has told nobody
            pass
        else:
            raise AssertionError("blocks that are held were reset")
        assert not reset(reset_connector=True)
        run([p], lambda: p.used() == 0)
        assert p.count("worker_holds_revoked") == 1
        assert reset(reset_connector=True)
        d.ask("one", prompt, params, 2)
        run([p, d], lambda: "one" in d.answers)
        assert d.computed["one"] == 101
        assert d.count("worker_pulls_done") == 0


@test
def weights_of_another_version_are_not_pulled() -> None:
    """An update at P, unnamed, then named as D's: D pulls again."""
    with pair() as (p, d):
        old = prefilled(p, "old", prompt_of(100, 1))
        p.rpc("update_weights")
        run([p], lambda: p.count("worker_holds_revoked") == 1)
        d.ask("old", prompt_of(100, 1), old, 2)
        new = prefilled(p, "new", prompt_of(100, 2))
        assert new is None, "what has no name is not held"
        d.ask("new", prompt_of(100, 2), new, 2)
        run([p, d], lambda: {"old", "new"} <= d.answers.keys())
        assert d.count("worker_pulls_done") == 0
        assert d.computed["old"] == d.computed["new"] == 101
        for core in (p, d):
            core.name_weights("2")
        d.ask("two", prompt_of(100, 3), prefilled(p, "two", prompt_of(100, 3)))
        run([p, d], lambda: "two" in d.answers)
        assert d.count("worker_pulls_done") == 1


@test
def schedulers_ahead_of_workers_are_right() -> None:
    """Asynchronous scheduling at both ends: steps overlap, some clients leave.

    Few blocks: what one request gives back the next one overwrites.
    """
    prompts = {
        f"{number}": prompt_of(40 + 37 * (number % 8), number)
        for number in range(48)
    }
    with pair(ahead=1, cache_bytes=3 << 20) as (p, d):
        assert d.scheduler.defer_block_free
        left: list[str] = []

        def said() -> bool:
            for name in p.answers.keys() - asked:
                params = p.answers[name].kv_transfer_params
                d.ask(name, prompts[name], params, 5)
                asked.append(name)
                if len(asked) % 6 == 0:  # one that began a while ago
                    left.append(asked[-3])
                    d.leave(asked[-3])
            return d.answers.keys() | set(left) == prompts.keys()

        asked: list[str] = []
        for name, prompt in prompts.items():
            p.ask(name, prompt, HOLD)
        run([p, d], said)
        # The last token of a prompt, four more, and one ahead.
        assert max(d.computed.values()) <= 6, d.computed
        assert d.count("scheduler_pulls_failed") == 0
        assert d.count("worker_pulls_done") >= 40


@test
def pauses_do_not_wait_for_leases() -> None:
    """P is paused, and nobody comes for its ticket: its blocks are free."""
    with pair() as (p, d):
        params = prefilled(p, "one", prompt_of(100))
        p.scheduler.set_pause_state(PauseState.PAUSED_NEW)
        began = time.monotonic()
        run([p, d], lambda: p.used() == 0)
        assert time.monotonic() - began < 5
        assert p.count("worker_holds_revoked") == 1
        p.scheduler.set_pause_state(PauseState.UNPAUSED)
        d.ask("one", prompt_of(100), params, 2)
        run([p, d], lambda: "one" in d.answers)
        assert d.computed["one"] == 101


@test
def consumers_hold_nothing() -> None:
    """A client asks D to hold: its blocks are free at the finish."""
    with pair() as (_, d):
        d.ask("one", prompt_of(100), HOLD)
        run([d], lambda: "one" in d.answers)
        assert d.answers["one"].kv_transfer_params is None
        run([d], lambda: d.used() == 0)
        assert d.count("worker_holds_taken") == 0


@test
def unlike_blocks_are_counted_at_first_contact() -> None:
    """D has other blocks: it computes, and both ends count the refusal."""
    with pair({"block": 2 * BLOCK}) as (p, d):
        prompt = prompt_of(100)
        d.ask("one", prompt, prefilled(p, "one", prompt), 2)
        run([p, d], lambda: "one" in d.answers)
        assert d.computed["one"] == 101
        run([p, d], lambda: p.count("worker_consumers_refused") >= 1)
        run([p, d], lambda: d.count("worker_peer_failures") >= 1)
        assert d.count("scheduler_mismatches") == 1
        # Nobody could give the ticket back.
        p.scheduler.set_pause_state(PauseState.PAUSED_NEW)


@test
def quantized_caches_are_pulled_by_their_like() -> None:
    """Both in fp8: right. P in fp8 and D not: D computes, both count it."""
    # Only the kernels want it, and none of them runs here.
    with mock.patch("torch.cpu._is_avx512_supported", lambda: True):
        with pair(cache_dtype="fp8") as (p, d):
            assert _of_each_length(p, d, range(60, 70)) == []
        with pair({"cache_dtype": "auto"}, cache_dtype="fp8") as (p, d):
            prompt = prompt_of(100)
            d.ask("one", prompt, prefilled(p, "one", prompt), 2)
            run([p, d], lambda: "one" in d.answers)
            assert d.computed["one"] == 101
            run([p, d], lambda: d.count("worker_peer_failures") >= 1)
            p.scheduler.set_pause_state(PauseState.PAUSED_NEW)


# What llm-d's sidecar (nixlv2), Dynamo's NIXL protocol and Ray Serve's
# prefill router send to P; D gets P's whole object from all of them.
NIXL_BODY = {
    "do_remote_decode": True,
    "do_remote_prefill": False,
    "remote_engine_id": None,
    "remote_block_ids": None,
    "remote_host": None,
    "remote_port": None,
}


@test
def bodies_of_other_routers_are_pulled() -> None:
    """P holds, and answers with what they look for; D pulls."""
    with pair() as (p, d):
        prompt = prompt_of(100)
        p.ask("one", prompt, dict(NIXL_BODY))
        run([p], lambda: "one" in p.answers)
        params = json.loads(json.dumps(p.answers["one"].kv_transfer_params))
        assert NIXL_BODY.keys() <= params.keys(), params
        assert params["do_remote_prefill"] and not params["do_remote_decode"]
        d.ask("one", prompt, params, 2)
        run([p, d], lambda: "one" in d.answers)
        assert d.count("worker_pulls_done") == 1
        run([p, d], lambda: p.count("worker_holds_released") == 1)


@test
def parameters_of_any_kind_leave_the_engine_alive() -> None:
    """A client's vllm_xargs reach the scheduler unchecked."""
    with pair() as (_, d):
        for number, params in enumerate(("abc", ["x"], 5, 0.5, "", [], {})):
            d.ask(f"{number}", prompt_of(40, number), params)
        run([d], lambda: len(d.answers) == 7)


@test
def long_names_of_requests_are_held() -> None:
    """A client names its request as it likes."""
    with pair() as (p, d):
        prompt, name = prompt_of(100), "x" * 9000
        params = prefilled(p, name, prompt)
        d.ask(name, prompt, params, 2)
        run([p, d], lambda: name in d.answers)
        assert d.count("worker_pulls_done") == 1


@test
def embeddings_beside_token_ids_are_computed() -> None:
    """Embeddings have equal token ids; a ticket for them is given back."""
    with pair() as (p, d):
        prompt = [5] * 100
        p.ask("e", prompt, HOLD, embeddings=torch.ones(100, 8))
        run([p], lambda: "e" in p.answers)
        assert p.answers["e"].kv_transfer_params is None
        params = prefilled(p, "ids", prompt)
        d.ask("e", prompt, params, 2, embeddings=torch.zeros(100, 8))
        run([p, d], lambda: "e" in d.answers)
        assert d.count("worker_pulls_done") == 0
        assert d.count("scheduler_mismatches") == 0
        run([p, d], lambda: p.count("worker_holds_released") == 1)


def _headers(trace: int, span: int) -> dict[str, str]:
    return {"traceparent": f"00-{trace:032x}-{span:016x}-01"}


def _pulled(p: Core, d: Core, name: str, at_p: Any, at_d: Any) -> Any:
    """Return D's span of a request that is part of these traces, if any."""
    SPANS.clear()
    prompt = prompt_of(100, len(name))
    p.ask(name, prompt, HOLD, trace_headers=at_p)
    run([p], lambda: name in p.answers)
    params = p.answers[name].kv_transfer_params
    d.ask(name, prompt, params, 2, trace_headers=at_d)
    run([p, d], lambda: name in d.answers)
    spans = SPANS.get_finished_spans()
    assert len(spans) <= 1, spans
    return spans[0] if spans else None


@test
def pulls_are_spans_of_their_traces() -> None:
    """Below D's request where it has a trace, else below P's; none at all."""
    with pair() as (p, d):
        before = time.time_ns()
        span = _pulled(p, d, "a", _headers(7, 8), None)
        assert span.name == "kvpull.pull" and span.status.is_ok
        assert (span.parent.trace_id, span.parent.span_id) == (7, 8)
        assert span.context.trace_id == 7 and not span.links
        # As kvpull_top --trace names the request.
        assert span.attributes["kvpull.request"] == "a"
        assert int(span.attributes["kvpull.generation"]) > 0
        assert span.attributes["kvpull.bytes"] > 0
        assert [event.name for event in span.events] == [
            *("taken up", "connected", "first byte", "last byte", "checked")
        ]
        times = [event.timestamp for event in span.events]
        times = [before, span.start_time, *times, span.end_time]
        assert times == sorted(times) and times[-1] < time.time_ns(), times
        span = _pulled(p, d, "bb", _headers(7, 8), _headers(7, 9))
        assert (span.parent.trace_id, span.parent.span_id) == (7, 9)
        assert [link.context.span_id for link in span.links] == [8]
        span = _pulled(p, d, "ccc", _headers(7, 8), _headers(7, 8))
        assert span.parent.span_id == 8 and not span.links
        span = _pulled(p, d, "dddd", None, _headers(5, 6))
        assert (span.parent.span_id, len(span.links)) == (6, 0)
        assert _pulled(p, d, "eeeee", None, None) is None
        assert d.count("worker_pulls_done") == 5


@test
def failed_pulls_are_spans_with_their_error() -> None:
    """P ends its hold before D comes."""
    with pair() as (p, d):
        SPANS.clear()
        prompt = prompt_of(100)
        p.ask("one", prompt, HOLD, trace_headers=_headers(7, 8))
        run([p], lambda: "one" in p.answers)
        params = p.answers["one"].kv_transfer_params
        p.rpc("update_weights")
        run([p], lambda: p.count("worker_holds_revoked") == 1)
        d.ask("one", prompt, params, 2)
        run([p, d], lambda: "one" in d.answers)
        (span,) = SPANS.get_finished_spans()
        assert span.parent.span_id == 8 and not span.status.is_ok
        assert span.status.description, span.status
        assert "checked" not in [event.name for event in span.events]


@test
def all_is_told_before_an_engine_rests() -> None:
    """Counters are not read in each step; none is behind when no step comes."""
    counted = {
        "p": ("scheduler_holds_taken", "worker_holds_taken",
              "scheduler_holds_ended", "worker_holds_released",
              "scheduler_steps_built"),
        "d": ("scheduler_tickets_seen", "scheduler_pulls_commanded",
              "scheduler_pulls_done", "worker_pulls_done",
              "worker_bytes_pulled", "scheduler_steps_built"),
    }  # fmt: skip
    with pair() as (p, d):
        told = {"p": overheard(p), "d": overheard(d)}
        for number in range(3):
            name, prompt = f"{number}", prompt_of(90 + number)
            d.ask(name, prompt, prefilled(p, name, prompt), 2)
            run([p, d], lambda name=name: name in d.answers)
            run(
                [p, d],
                lambda: not p.scheduler.has_requests()
                and not d.scheduler.has_requests(),
            )
        for core, (side, names) in zip((p, d), counted.items(), strict=True):
            counts = told[side].data["counts"]
            for name in names:
                now = core.count(name)
                assert counts.get(name) == now > 0, (side, name, counts, now)
        assert len(told["d"].data["pulls"]) == 3
        held = told["p"].data["now"]["worker 0"].get("holds_live", 0)
        assert held == 0, "what was told of it last"


def main() -> int:
    """Run all; 0 if all hold."""
    tracer = TracerProvider()
    tracer.add_span_processor(SimpleSpanProcessor(SPANS))
    trace.set_tracer_provider(tracer)
    return run_all()


if __name__ == "__main__":
    sys.exit(main())
