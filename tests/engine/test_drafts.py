# SPDX-License-Identifier: Apache-2.0
"""Tests of speculative decoding with vLLM's own scheduler: see core.py.

test_drafts.py: prints the result line of the other test programs.
"""

from __future__ import annotations

import os
import sys
from typing import Any
from unittest import mock

from engine import environment

os.environ.update(environment())
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")

from core import (  # noqa: E402
    BLOCK,
    HOLD,
    SAMPLED,
    WINDOW,
    Core,
    eagle,
    home,
    ngrams,
    pair,
    place,
    prefilled,
    prompt_of,
    run,
)
from kvpull_vllm.settings import ConfigError, check_engine  # noqa: E402
from runner import run_all, test  # noqa: E402
from vllm.engine.arg_utils import EngineArgs  # noqa: E402
from vllm.v1.core.sched.interface import PauseState  # noqa: E402


@test
def drafts_are_never_among_what_is_pulled() -> None:
    """Of each length: P guesses on behind the prompt, and so does D."""
    kinds: tuple[dict[str, Any], ...] = ({}, {"window": WINDOW}, {"chunk": WINDOW})
    for kind in kinds:
        with pair(drafts=4, **kind) as (p, d):
            for length in range(2 * BLOCK - 2, 3 * BLOCK + 3):
                prompt, name = prompt_of(length), f"{length}"
                # A window moves on with each token of P's.
                params = prefilled(p, name, prompt, 1 if kind else 12)
                d.ask(name, prompt, params, 40)
                run([p, d], lambda name=name: name in d.answers)
                assert d.answers[name].finish_reason is not None
            assert d.count("worker_pulls_done") > 30
            assert d.count("scheduler_pulls_failed") == 0
            for core in (d,) if kind else (p, d):
                assert core.kept > 100 < core.refused, (core.kept, core.refused)


@test
def who_guesses_and_who_does_not_pull_from_each_other() -> None:
    """Drafts that are looked up are no part of the KV, at either end."""
    for at_p, at_d in ((4, 0), (0, 4)):
        with pair({"drafts": at_d}, drafts=at_p) as (p, d):
            prompt = prompt_of(100)
            d.ask("one", prompt, prefilled(p, "one", prompt, 12), 40)
            run([p, d], lambda: "one" in d.answers)
            assert d.count("worker_pulls_done") == 1


@test
def a_prompt_that_is_left_while_it_is_guessed_is_held_as_far_as_it_is() -> None:
    """An abort revokes by default; what a held one names are prompt tokens."""
    with pair(drafts=4) as (p, d):
        prompt = prompt_of(100)
        p.ask("left", prompt, HOLD, 200)
        run([p], lambda: p.refused > 8 and p.kept > 8)
        p.leave("left")
        run([p], lambda: p.used() == 0)
        d.ask("next", prompt, prefilled(p, "next", prompt), 40)
        run([p, d], lambda: "next" in d.answers)
        assert d.count("worker_pulls_done") == 1


@test
def layers_that_draft_are_pulled_with_the_others() -> None:
    """Of each length, and of prompts that go on behind one in the cache.

    P makes another first token than D, and what its layer has of the last
    token of a prompt is of that one: D computes it again. The numbers of drafts
    differ.
    """
    # vLLM has no EAGLE beside attention in chunks.
    kinds: tuple[dict[str, Any], ...] = ({}, {"window": WINDOW})
    for kind in kinds:
        with pair({"drafts": 5}, drafts=3, drafter={}, **kind) as (p, d):
            d.sampled = SAMPLED + 2
            for length in range(2 * BLOCK - 2, 3 * BLOCK + 3):
                for name, behind in (("first", 0), ("second", 40)):
                    prompt = prompt_of(length) + [11] * behind
                    name = f"{name}-{length}"
                    params = prefilled(p, name, prompt, 1 if kind else 12)
                    d.ask(name, prompt, params, 40)
                    run([p, d], lambda name=name: name in d.answers)
            assert d.count("worker_pulls_done") > 60
            assert d.count("scheduler_pulls_failed") == 0
            for core in (d,) if kind else (p, d):
                assert core.kept > 100 < core.refused, (core.kept, core.refused)


def _sees(core: Core, prompts: list[list[int]], what: str) -> None:
    """Assert that an engine is seen to use KV that is not the request's."""
    try:
        for number, prompt in enumerate(prompts):
            core.ask(f"{number}", prompt, None, 40)
            run([core], lambda number=number: f"{number}" in core.answers)
    except AssertionError as error:
        assert what in str(error), error
    else:
        raise AssertionError("nothing was seen")


@test
def what_a_layer_that_drafts_must_not_see_is_seen() -> None:
    """The controls: vLLM's dropped block kept, its refused drafts counted."""
    with place() as folder:
        kept = {"disable_eagle_block_drop": True}
        core = Core(folder, "kv_both", drafts=3, drafter=kept)
        prompt = prompt_of(2 * BLOCK)
        _sees(core, [prompt, prompt + [11] * 40], "a draft behind token")
        core.close()
        core = Core(folder, "kv_both", drafts=3, drafter={})
        update = core.scheduler.update_from_output

        def counts_all(said: Any, made: Any) -> Any:
            found = update(said, made)
            for name, drafts in said.scheduled_spec_decode_tokens.items():
                if request := core.scheduler.requests.get(name):
                    sampled = made.sampled_token_ids[made.req_id_to_index[name]]
                    request.num_computed_tokens += len(drafts) + 1 - len(sampled)
            return found

        core.scheduler.update_from_output = counts_all
        _sees(core, [prompt], "sees another token")
        core.close()


@test
def tickets_name_no_token_behind_the_prompt() -> None:
    """P decodes on; drafts of its last step are refused, and left unnamed."""
    for drafter in (None, {}):
        with pair(drafts=4, drafter=drafter) as (p, _):
            half, told = p.connector._scheduler.half, {}
            finished = half.request_finished

            def tell(
                key: int, reason: int, tokens: int, blocks: Any, payload: bytes
            ) -> Any:
                told[key] = tokens, sum(len(ids) for _, ids in blocks)
                return finished(key, reason, tokens, blocks, payload)

            half.request_finished = tell
            refused = 0
            for number in range(24):
                name, prompt = f"{number}", prompt_of(90 + number)
                p.ask(name, prompt, HOLD, 12 + number)
                run([p], lambda name=name: name in p.answers)
                refused += p.refused_last[name] > 0
                (key,) = {*told}
                groups = len(p.caches.kv_cache_groups)
                blocks = -(-len(prompt) // BLOCK) * groups
                assert told.pop(key) == (len(prompt), blocks)
            assert refused > 4, refused
            p.scheduler.set_pause_state(PauseState.PAUSED_NEW)


@test
def layers_that_draft_at_one_end_are_refused() -> None:
    """At P alone, at D alone, or with other weights: D computes, both count."""
    layer, none = {"drafts": 3, "drafter": {}}, {"drafts": 0, "drafter": None}
    other = {"drafts": 3, "drafter": {"model": str(home() / "other-drafter")}}
    for at_p, at_d in ((layer, none), (none, layer), (layer, other)):
        with pair(at_d, **at_p) as (p, d):
            prompt = prompt_of(100)
            d.ask("one", prompt, prefilled(p, "one", prompt), 2)
            run([p, d], lambda: "one" in d.answers)
            assert d.computed["one"] > 100
            run([p, d], lambda: p.count("worker_consumers_refused") >= 1)
            assert d.count("scheduler_mismatches") == 1
            p.scheduler.set_pause_state(PauseState.PAUSED_NEW)


@test
def speculation_that_is_not_taken_is_refused_by_name() -> None:
    """Methods that nobody has run, and layers whose KV lies otherwise."""

    def made(method: str) -> Any:
        config = EngineArgs(
            model=str(home() / "model"),
            speculative_config=eagle(home(), 3) if method else ngrams(4),
        ).create_engine_config()
        config.speculative_config.method = method or "ngram"
        return config

    def refused(config: Any, what: str) -> None:
        try:
            check_engine(config)
        except ConfigError as error:
            assert f"--speculative-config of method {what}" in str(error), error
        else:
            raise AssertionError(f"{what} is taken")

    for method in ("", "eagle", "eagle3", "mtp", "draft_model"):
        check_engine(made(method))
    for method in ("medusa", "suffix", "dflash", "ngram_gpu"):
        refused(made(method), method)
    several = made("mtp")
    several.speculative_config.draft_model_config.hf_config.update(
        {"num_nextn_predict_layers": 2}
    )
    refused(several, "mtp with several layers that draft")
    parallel = made("eagle")
    parallel.speculative_config.parallel_drafting = True
    refused(parallel, "eagle with parallel_drafting")
    ranks = made("eagle")
    ranks.speculative_config.draft_parallel_config.tensor_parallel_size = 2
    refused(ranks, "eagle with draft_tensor_parallel_size 2 of 1")
    heads = made("draft_model")
    draft = heads.speculative_config.draft_model_config
    with mock.patch.object(draft, "get_total_num_kv_heads", lambda: 8):
        refused(heads, "draft_model whose draft layers have 8 KV heads beside 2")


if __name__ == "__main__":
    sys.exit(run_all())
