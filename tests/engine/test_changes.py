# SPDX-License-Identifier: Apache-2.0
"""Weights that change in running engines, and whatever else may, without a model.

vLLM's own schedulers compute numbers that name weights, adapter and tokens (see
core.py), so that KV of other ones is found at the first token that looks at it.
test_changes.py: prints the result line of the other test programs.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import shutil
import sys
from pathlib import Path
from typing import Any

from engine import environment

os.environ.update(environment())
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")

from adapted import (  # noqa: E402
    ALONE,
    PULLED,
    UNSEEN,
    count,
    folders,
    loads_unheard,
    lora,
    main,
)
from core import (  # noqa: E402
    BLOCK,
    HOLD,
    SAMPLED,
    Core,
    pair,
    prefilled,
    prompt_of,
    run,
)
from doubles import EngineDouble  # noqa: E402
from kvpull_vllm import core  # noqa: E402
from runner import test  # noqa: E402
from vllm.v1.core.sched.interface import PauseState  # noqa: E402
from vllm.v1.worker.cpu_worker import CPUWorker  # noqa: E402
from vllm.v1.worker.gpu_worker import Worker as GPUWorker  # noqa: E402

SEEDS, STEPS = int(os.environ.get("SEEDS", "6")), 1200


class Watched(EngineDouble):
    """An engine core whose calls are watched, and what was told when."""

    def __init__(self, adapters: bool = False) -> None:
        super().__init__(adapters=adapters)
        self.order: list[str] = []
        self.in_call = lambda: self.order.append("called")
        self.seen = core.Core()
        self.seen.listeners.append(lambda: self.order.append("told"))


@test
def calls_of_a_server_pass_as_before() -> None:
    """vLLM looks at the signature of what it calls for a client."""
    engine = Watched()
    assert engine.rpc("check_health") == [None]
    assert engine.utility("collective_rpc", "check_health") == [None]
    engine.name_weights("7")
    assert engine.seen.version == "7"
    assert engine.called == ["check_health"] * 2


@test
def what_may_change_weights_is_told_before_it_does() -> None:
    """A call of any name, a function, and a call that raises."""

    def any_function(_worker: Any) -> None:
        """Do as a client of LLM.collective_rpc() likes."""

    for how in (*UNSEEN, "update_weights", any_function):
        engine = Watched()
        engine.rpc(how)
        assert engine.order == ["told", "called"], (how, engine.order)
        assert engine.seen.are_unnamed and engine.seen.name is None
        engine.name_weights("7")
        assert engine.order[2:] == ["told"] and engine.seen.name == "7"
    engine = Watched()

    def fails() -> None:
        engine.order.append("called")
        raise RuntimeError("half of them are there")

    engine.in_call = fails
    try:
        engine.rpc("update_weights")
    except RuntimeError:
        pass
    assert engine.order == ["told", "called"] and engine.seen.are_unnamed


@test
def harmless_calls_are_vllms_own() -> None:
    """Each is a method of its workers, and none is told of."""
    engine = Watched()
    for name in core.HARMLESS:
        assert hasattr(GPUWorker, name) or hasattr(CPUWorker, name), name
        engine.rpc(name)
    assert "told" not in engine.order and engine.seen.name == "default"
    for name in ("update_weights", "reload_weights", "wake_up", "apply_model",
                 "load_model", "start_weight_update", "reset_weights",
                 "finish_weight_update", "update_config"):  # fmt: skip
        assert hasattr(GPUWorker, name) and name not in core.HARMLESS, name


@test
def an_engine_core_that_is_not_found_changes_nothing() -> None:
    """Where a connector is made by something else."""
    seen = core.Core()
    assert seen.name == "" and not seen.are_unnamed
    assert seen.cached() is None and not seen.waits_for_holds()


# ---- weights ----


@test
def requests_of_p_that_run_over_an_update_are_not_held() -> None:
    """Named at once, at both ends: their KV is of both weights."""
    with pair() as (p, d):
        prompt = prompt_of(100)
        p.ask("over", prompt, HOLD, 3)
        run([p], lambda: p.computed.get("over", 0) >= 100)
        for one in (p, d):
            one.learn("b", "refit")
            one.name_weights("2")
        run([p], lambda: "over" in p.answers)
        assert p.answers["over"].kv_transfer_params is None
        assert count(p, "changed") == 1
        # Later requests are held, unless it begins with cached KV of before.
        other = prompt_of(90, 1)
        d.ask("new", other, prefilled(p, "new", other), 2)
        run([p, d], lambda: "new" in d.answers)
        assert d.computed["new"] == PULLED


@test
def hits_of_before_an_update_are_not_held() -> None:
    """Judged at the hit: the cache is cleared before they finish."""
    with pair() as (p, d):
        old = prompt_of(100)
        params = prefilled(p, "old", old)
        d.ask("old", old, params, 2)
        run([p, d], lambda: "old" in d.answers and p.used() == 0)
        for one in (p, d):
            one.learn("b", "sync_params")
            one.name_weights("2")
        long = old + prompt_of(40, 3)
        p.mixed.add("hit")  # vLLM's own cache has KV of before
        p.ask("hit", long, HOLD, 3)
        run([p], lambda: p.computed.get("hit", 0) >= 44)
        assert p.computed["hit"] < 60, "it hit what is cached"
        p.scheduler.reset_prefix_cache(reset_running_requests=True)
        run([p], lambda: "hit" in p.answers)
        assert p.answers["hit"].kv_transfer_params is None
        # The cache is clean: what hits it now is held, and right at D.
        d.scheduler.reset_prefix_cache()
        first = prefilled(p, "clean", old)
        assert first is not None
        p.ask("again", long, HOLD)
        run([p], lambda: "again" in p.answers)
        d.ask("again", long, p.answers["again"].kv_transfer_params, 2)
        run([p, d], lambda: "again" in d.answers)
        assert d.computed["again"] == PULLED
        d.ask("clean", old, first, 2)
        run([p, d], lambda: "clean" in d.answers)


@test
def blocks_that_are_filled_over_an_update_are_not_held() -> None:
    """Nothing is cached at its call: the first block is full only behind it."""
    with pair() as (p, _):
        first = prompt_of(BLOCK - 2)
        p.ask("over", first, None, 8)
        run([p], lambda: p.computed.get("over", 0) >= BLOCK - 2)
        assert not len(p.scheduler.kv_cache_manager.block_pool
                       .cached_block_hash_to_block)  # fmt: skip
        p.learn("b", "refit")
        p.name_weights("2")
        run([p], lambda: "over" in p.answers and p.used() == 0)
        p.mixed.add("hit")
        more = [SAMPLED] * 2 + prompt_of(BLOCK, 1)
        p.ask("hit", first + more, HOLD)
        run([p], lambda: "hit" in p.answers)
        assert p.computed["hit"] == BLOCK, "it hit what is cached"
        assert p.answers["hit"].kv_transfer_params is None


@test
def an_update_behind_a_pause_costs_no_hold() -> None:
    """As README says: the caches are empty when the first byte changes."""
    with pair() as (p, d):
        old = prompt_of(100)
        d.ask("old", old, prefilled(p, "old", old), 2)
        run([p, d], lambda: "old" in d.answers and p.used() == 0)
        for one in (p, d):
            one.scheduler.set_pause_state(PauseState.PAUSED_NEW)
            assert one.scheduler.reset_prefix_cache(reset_connector=True)
            for call in ("start_weight_update", "update_weights"):
                one.learn("b", call)
            one.rpc("finish_weight_update")
            one.name_weights("2")
            one.scheduler.set_pause_state(PauseState.UNPAUSED)
        long = old + prompt_of(40, 3)
        for name, prompt in (("short", old), ("long", long)):
            d.ask(name, prompt, prefilled(p, name, prompt), 2)
            run([p, d], lambda name=name: name in d.answers)
            assert d.computed[name] == PULLED, name


@test
def pulls_that_d_waits_for_fail_with_its_update() -> None:
    """Workers reported LOADED, and the scheduler has not heard of it."""
    for how in ("refit", "update_weights"):
        with pair() as (p, d):
            prompt = prompt_of(100)
            d.ask("one", prompt, prefilled(p, "one", prompt), 2)
            loads_unheard(p, d)
            d.learn("b", how)
            d.mixed.clear()
            d.name_weights("2")
            run([p, d], lambda: "one" in d.answers)
            assert d.computed["one"] == ALONE, d.computed
            assert count(d, "pulls_failed") == 1
            assert count(d, "changed") == 1


@test
def an_update_of_d_gives_back_what_waits() -> None:
    """P hears of it, though D's request is still in its queue."""
    with pair() as (p, d):
        prompt = prompt_of(100)
        params = prefilled(p, "one", prompt)
        d.scheduler.set_pause_state(PauseState.PAUSED_ALL)
        d.ask("one", prompt, params, 2)
        d.learn("b", "receive")
        d.mixed.clear()
        run([p, d], lambda: p.count("worker_holds_released") == 1)
        d.scheduler.set_pause_state(PauseState.UNPAUSED)
        run([p, d], lambda: "one" in d.answers)
        assert d.computed["one"] == ALONE


# ---- whatever comes ----


class Roll:
    """P and D that change at random beside requests; D looks at each token.

    P looks at none: what it computes of KV of before is for itself. D has no
    prefix cache, so that all that it looks at is its own or P's.
    """

    def __init__(self, p: Core, d: Core, folder: Path, seed: int) -> None:
        self.p, self.d, self.folder = p, d, folder
        self.draw = random.Random(seed)
        self.count = 0
        self.asked: dict[str, tuple[list[int], Any]] = {}  # at P
        p.is_lax = True

    def _adapter(self, side: Core) -> Any:
        number = self.draw.choice((0, 0, 1, 2))
        if not number:
            return None
        return lora(self.folder / f"{side is self.p}-{number}", "n", number)

    def ask(self) -> None:
        """Begin a prompt at P, whose beginning others share."""
        self.count += 1
        name = f"{self.count}"
        prompt = prompt_of(64, self.draw.randrange(2))
        prompt += prompt_of(20 + self.count % 50, self.count)
        self.p.ask(name, prompt, HOLD, self.draw.choice((1, 1, 3)),
                   lora=(adapter := self._adapter(self.p)))  # fmt: skip
        self.asked[name] = prompt, adapter and adapter.lora_int_id

    def decode(self) -> None:
        """Give D what P has answered."""
        for name in [n for n in self.asked if n in self.p.answers]:
            prompt, number = self.asked.pop(name)
            params = self.p.answers[name].kv_transfer_params
            at_d = number and lora(self.folder / f"False-{number}", "n", number)
            self.d.ask(name, prompt, params, 2, lora=at_d or None)

    def learn(self) -> None:
        """Get weights at one side or both, by a call of any name."""
        text = self.draw.choice("ab")
        how = self.draw.choice((*UNSEEN, "update_weights"))
        both = [self.p, self.d]
        for side in self.draw.choice((both, both, [self.p], [self.d])):
            if side is self.d:  # its workers are ahead of what it has heard
                for _ in range(self.draw.randrange(8)):
                    self._step_ahead(side)
            side.learn(text, how)
            if self.draw.random() < 0.9:
                side.name_weights(text)

    def replace(self) -> None:
        """Get other files of an adapter, now or when a step loads them."""
        side, number = self.draw.choice((self.p, self.d)), self.draw.choice((1, 2))
        folder = self.folder / f"{side is self.p}-{number}"
        shutil.copytree(
            self.folder / self.draw.choice("ab"), folder, dirs_exist_ok=True
        )
        if self.draw.random() < 0.5:
            side.workers[0].evict(number)
        else:
            side.load(lora(folder, "n", number, load_inplace=True))

    def clear(self) -> None:
        """Clear P's prefix cache: of what runs, too, if it can be."""
        with contextlib.suppress(RuntimeError):  # vLLM's: blocks are held
            self.p.scheduler.reset_prefix_cache(
                reset_running_requests=self.draw.random() < 0.5
            )

    def step(self) -> None:
        """Step one of both, or D up to what its scheduler has not heard."""
        one = self.draw.choice((self.p, self.d))
        if one is self.p or self.draw.random() < 0.5:
            one.step()
        else:
            self._step_ahead(one)

    @staticmethod
    def _step_ahead(one: Core) -> None:
        if one.scheduler.has_requests():
            said = one.scheduler.schedule()
            one._unheard.append((said, one._execute(said)))

    def run(self, steps: int) -> None:
        """Do what is drawn; then all that is open ends."""
        does = [self.ask, self.decode, self.step]
        likely = [20, 30, 200]
        for change, weight in (
            (self.learn, 0.6), (self.replace, 1.5), (self.clear, 4.0),
        ):  # fmt: skip
            does.append(change)
            likely.append(weight)
        for one in self.draw.choices(does, likely, k=steps):
            one()
        self.decode()
        run([self.p], lambda: self.asked.keys() <= self.p.answers.keys())
        self.decode()
        run([self.p, self.d], lambda: not self.d.scheduler.requests)


@test
def no_token_sees_kv_of_before_whatever_changes() -> None:
    """Weights, adapters, caches at either end, beside requests in any state."""
    pulled = changed = 0
    for seed in range(SEEDS):
        with (
            folders() as folder,
            pair({"caches": False}, adapters=True) as (p, d),
        ):
            for side, number in itertools.product((p, d), (1, 2)):
                own = folder / f"{side is p}-{number}"
                shutil.copytree(folder / "a", own)
                side.load(lora(own, "n", number))
            try:
                Roll(p, d, folder, seed).run(STEPS)
            except BaseException:
                print(f"  seed {seed}: SEEDS={seed + 1} to see it")
                raise
            pulled += sum(n == PULLED for n in d.computed.values())
            changed += count(d, "changed") + count(p, "changed")
    assert pulled > 9 * SEEDS and changed > SEEDS, (pulled, changed)
    print(f"  {SEEDS} seeds: {pulled} pulled and used, {changed} changed")


if __name__ == "__main__":
    sys.exit(main())
