# SPDX-License-Identifier: Apache-2.0
"""Recurrent states, with vLLM's own scheduler and no model: see core.py.

test_states.py: prints the result line of the other test programs.
"""

from __future__ import annotations

import os
import sys
from typing import Any
from unittest import mock

from engine import environment

os.environ.update(environment())
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")

import core  # noqa: E402
import torch  # noqa: E402
from core import (  # noqa: E402
    BLOCK,
    Core,
    place,
    prefilled,
    prompt_of,
    run,
    with_states,
)
from kvpull_vllm.scheduler import SchedulerSide  # noqa: E402
from kvpull_vllm.settings import ConfigError  # noqa: E402
from runner import run_all, test  # noqa: E402
from vllm.v1.kv_cache_interface import MambaSpec  # noqa: E402

MIXERS = "model.layers.1.mixer", "model.layers.2.mixer"


def pair(mode: str = "align", attention: bool = True, **more: Any) -> Any:
    """P and D with recurrent layers: see core.pair()."""
    return core.pair(layers=with_states(BLOCK, mode, attention), **more)


def through(
    p: Core, d: Core, name: str, prompt: list[int], at_p: int = 1, at_d: int = 2
) -> int:
    """Prefill at P, decode at D; return the tokens of the prompt D computed."""
    d.ask(name, prompt, prefilled(p, name, prompt, at_p), at_d)
    run([p, d], lambda: name in d.answers)
    return d.computed[name] - (at_d - 1)


@test
def states_are_pulled_with_all_tokens_before_them() -> None:
    """Each length: D computes the last token of the prompt, and no other."""
    with pair() as (p, d):
        lengths = [2, 3, *range(BLOCK - 1, BLOCK + 3), *range(95, 99), 200, 500]
        for length in lengths:
            found = through(p, d, f"{length}", prompt_of(length))
            assert found == 1, (length, found)
        assert d.count("worker_pulls_done") == len(lengths)
        assert through(p, d, "one", prompt_of(1)) == 1
        assert d.count("worker_pulls_done") == len(lengths)
        assert d.count("scheduler_pulls_failed") == 0


@test
def what_d_has_of_a_prompt_is_not_pulled_again() -> None:
    """D has computed what a prompt begins with: the state is pulled whole."""
    with pair() as (p, d):
        prompt = prompt_of(400)
        assert through(p, d, "all", prompt) == 1
        whole = d.count("worker_bytes_pulled")
        other = prompt_of(400, 1)
        d.ask("own", other[:200], None)
        run([d], lambda: "own" in d.answers)
        assert through(p, d, "rest", other) == 1
        rest = d.count("worker_bytes_pulled") - whole
        # Blocks of attention and a slot of each layer have as many bytes.
        count = 13 + len(MIXERS)
        assert rest * count == whole * (count - 199 // BLOCK), (rest, whole)


@test
def p_computes_no_more_than_the_prompt_before_its_end() -> None:
    """Whatever a client asks P for, its slot stays that of the prompt."""
    with pair() as (p, d):
        for length in range(60, 70):
            name = f"{length}"
            assert through(p, d, name, prompt_of(length), 40, at_d=40) == 1
            assert p.computed[name] == length - 1, p.computed


@test
def siblings_pull_a_state_each() -> None:
    """No prefix cache has the state after what was pulled."""
    with pair() as (p, d):
        prompt = prompt_of(300)
        params = prefilled(p, "held", prompt)
        names = [f"{n}_child" for n in range(3)]
        for name in names:
            d.ask(name, prompt, params, 20)
        run([p, d], lambda: all(name in d.answers for name in names))
        assert d.count("worker_pulls_done") == 3
        assert [d.computed[name] for name in names] == [20] * 3


@test
def engines_without_a_prefix_cache_pull_states() -> None:
    """One slot a request, whatever its length."""
    with pair(caches=False, mode="none") as (p, d):
        for length in (2, 31, 32, 33, 200, 500):
            assert through(p, d, f"{length}", prompt_of(length)) == 1
        assert d.count("worker_pulls_done") == 6


@test
def models_of_recurrent_layers_alone_are_pulled() -> None:
    """No block of attention goes along."""
    with pair(attention=False) as (p, d):
        for length in (2, 33, 200):
            assert through(p, d, f"{length}", prompt_of(length)) == 1
        assert d.count("worker_pulls_done") == 3


def _goes_wrong(p: Core, d: Core) -> bool:
    """Say whether D sees that what it goes on from is another state."""
    try:
        through(p, d, "one", prompt_of(200))
    except AssertionError as error:
        assert "is another one" in str(error), error
        return True
    return False


@test
def state_of_another_count_is_seen() -> None:
    """A control: P says that its slot is of a token less."""
    right = SchedulerSide._with_states

    def wrong(side: Any, ids: Any, tokens: int, computed: int) -> Any:
        found, blocks = right(side, ids, tokens, computed)
        return found - 1, blocks

    with (
        pair(is_judged=False) as (p, d),
        mock.patch.object(SchedulerSide, "_with_states", wrong),
    ):
        assert _goes_wrong(p, d)


@test
def prompt_that_is_not_shortened_is_not_loaded() -> None:
    """A state that knows D's last token already: D computes all of it."""
    with (
        mock.patch("kvpull_vllm.requests.shorten"),
        pair() as (p, d),
    ):
        assert through(p, d, "one", prompt_of(200)) == 200
        assert d.count("worker_pulls_done") == 0


@test
def state_that_is_written_again_is_seen() -> None:
    """A control: P's engine writes a slot that is held."""
    held = []
    right = SchedulerSide._with_states

    def seen(side: Any, *told: Any) -> Any:
        held.append(right(side, *told))
        return held[-1]

    with (
        pair(is_judged=False) as (p, d),
        mock.patch.object(SchedulerSide, "_with_states", seen),
    ):
        prompt = prompt_of(200)
        params = prefilled(p, "one", prompt)
        for layer, (_, slots) in zip(MIXERS, held[0][1][1:], strict=True):
            p.kv[layer][slots[0]].zero_()
        d.ask("one", prompt, params, 2)
        try:
            run([p, d], lambda: "one" in d.answers)
        except AssertionError as error:
            assert "is another one" in str(error), error
        else:
            raise AssertionError("D takes any state")


@test
def states_of_other_modes_are_refused_by_name() -> None:
    """At start: which layer, which mode, and what to do."""
    state = MambaSpec(
        block_size=2048,
        shapes=((4, 16), (8, 16)),
        dtypes=(torch.float32,) * 2,
        mamba_cache_mode="all",
    )
    with place() as folder:
        try:
            Core(
                folder, "kv_producer", layers={"backbone.layers.0.mixer": state}
            )
        except ConfigError as error:
            for word in (
                "backbone.layers.0.mixer",
                "mamba_cache_mode all",
                "--mamba-cache-mode align",
            ):
                assert word in str(error), error
        else:
            raise AssertionError("not refused")


if __name__ == "__main__":
    sys.exit(run_all())
