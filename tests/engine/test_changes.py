# SPDX-License-Identifier: Apache-2.0
"""Weights and adapters that change in running engines, without a model.

vLLM's own schedulers compute numbers that name weights, adapter and tokens (see
core.py), so that KV of other ones is found at the first token that looks at it.
test_changes.py: prints the result line of the other test programs.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

from engine import environment

os.environ.update(environment())
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")

import model  # noqa: E402
import test_core  # noqa: E402
import tier_side  # noqa: E402
from core import BLOCK, HOLD, SAMPLED, Core, run  # noqa: E402
from doubles import EngineDouble, Worker  # noqa: E402
from kvpull_vllm import adapters, core, inside  # noqa: E402
from runner import TESTS, run_all, test  # noqa: E402
from test_core import pair, prefilled, prompt_of  # noqa: E402
from tier_side import CHUNKS, HIT, MISS, Side, keys, page, sides  # noqa: E402
from vllm.lora.request import LoRARequest  # noqa: E402
from vllm.v1.core.sched.interface import PauseState  # noqa: E402
from vllm.v1.worker.cpu_worker import CPUWorker  # noqa: E402
from vllm.v1.worker.gpu_worker import Worker as GPUWorker  # noqa: E402

TESTS.clear()  # test_core's have a program of their own
FOLDER = Path()
# Names that people give to updates of their own.
# Tokens that D computes of 100, for two more: what was pulled lacks the last.
PULLED, ALONE = 2, 101
SEEDS, STEPS = int(os.environ.get("SEEDS", "6")), 1200
UNSEEN = ("refit", "sync_params", "broadcast_model", "receive")


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


def _count(core: Core, name: str) -> int:
    return core.count(f"scheduler_{name}")


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
        assert _count(p, "changed") == 1
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


def _loads_unheard(p: Core, d: Core) -> None:
    """Step until D's workers have loaded, and its scheduler has not heard."""
    until = time.monotonic() + 10
    while d.count("worker_pulls_done") == 0:
        assert time.monotonic() < until
        said = d.scheduler.schedule()
        d._unheard.append((said, d._execute(said)))
        p.step()


@test
def pulls_that_d_waits_for_fail_with_its_update() -> None:
    """Workers reported LOADED, and the scheduler has not heard of it."""
    for how in ("refit", "update_weights"):
        with pair() as (p, d):
            prompt = prompt_of(100)
            d.ask("one", prompt, prefilled(p, "one", prompt), 2)
            _loads_unheard(p, d)
            d.learn("b", how)
            d.mixed.clear()
            d.name_weights("2")
            run([p, d], lambda: "one" in d.answers)
            assert d.computed["one"] == ALONE, d.computed
            assert _count(d, "pulls_failed") == 1
            assert _count(d, "changed") == 1


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


# ---- adapters ----


def lora(folder: Path, name: str = "one", number: int = 1, **more: Any) -> Any:
    """Return a request's adapter."""
    return LoRARequest(name, number, str(folder), **more)


@contextmanager
def folders() -> Iterator[Path]:
    """A folder with the adapters "a", its copy "copy", and another one "b"."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        for name, seed in (("a", 1), ("copy", 1), ("b", 2)):
            model.make_adapter(folder / name, seed)
        yield folder


@contextmanager
def adapted() -> Iterator[tuple[Core, Core, Path]]:
    """P and D with adapters."""
    with folders() as folder, pair(adapters=True) as (p, d):
        yield p, d, folder


def _through(
    p: Core, d: Core, name: str, at_p: Any, at_d: Any, seed: int = 0
) -> int:
    """Prefill at P, decode at D; return how many tokens D computed."""
    prompt = prompt_of(100, seed)
    p.ask(name, prompt, HOLD, lora=at_p)
    run([p], lambda: name in p.answers)
    params = p.answers[name].kv_transfer_params
    d.ask(name, prompt, params, 2, lora=at_d)
    run([p, d], lambda: name in d.answers)
    return d.computed[name]


@test
def adapters_are_known_by_content() -> None:
    """Equal files of any name are pulled; other files of the same name not."""
    with adapted() as (p, d, folder):
        mine = lora(folder / "a")
        for number, (at_d, computed) in enumerate(
            (
                (lora(folder / "copy", "another", 7), PULLED),
                (lora(folder / "b", "one", 8), ALONE),
                (None, ALONE),
            )
        ):
            p.load(mine)
            if at_d:
                d.load(at_d)
            found = _through(p, d, f"{number}", mine, at_d, number)
            assert found == computed, number
        assert _count(d, "mismatches") == 2


@test
def adapters_that_nobody_has_loaded_are_computed() -> None:
    """The first request loads it, at P and at D; the next one is pulled."""
    with adapted() as (p, d, folder):
        mine = lora(folder / "a")
        p.ask("first", prompt_of(100), HOLD, lora=mine)
        run([p], lambda: "first" in p.answers)
        assert p.answers["first"].kv_transfer_params is None
        assert _through(p, d, "second", mine, mine, 1) == ALONE
        assert _through(p, d, "third", mine, mine, 2) == PULLED
        run([p], lambda: p.count("worker_holds_released") == 2)


@test
def files_that_change_while_they_are_loaded_are_unknown() -> None:
    """Tensors, configuration, the same bytes written again."""
    with folders() as folder:
        worker = Worker()
        kept = adapters.Kept(worker.manager)
        mine = lora(folder / "a", load_inplace=True)
        worker.step(mine)
        first = kept.loaded()[1]
        worker.step(mine)
        assert kept.loaded()[1] == first and first.fingerprint
        for name in ("adapter_model.safetensors", "adapter_config.json"):
            path = folder / "a" / name

            def again(path: Path = path) -> None:
                time.sleep(0.01)  # two times of a file that differ
                path.write_bytes(path.read_bytes())

            def replaced(path: Path = path) -> None:
                shutil.copy(path, path.with_suffix(".new"))
                path.with_suffix(".new").replace(path)

            for change in (again, replaced):
                worker.while_loading = change
                worker.step(mine)
                assert kept.loaded()[1].fingerprint == "", (name, change)
        worker.while_loading = lambda: None
        worker.step(mine)
        last = kept.loaded()[1]
        assert last.fingerprint == first.fingerprint
        assert last.serial > first.serial
        worker.evict(1)
        assert kept.loaded() == {}


@test
def fingerprints_of_adapters_are_of_their_content() -> None:
    """Each tensor, the configuration, how it is loaded; no name."""
    with folders() as folder:

        def text(name: str, settings: str = "") -> str:
            return adapters.fingerprint(str(folder / name), settings)[1]

        plain = text("a")
        assert plain == text("copy") != text("b")
        assert text("a", "2d") != plain
        path = folder / "copy" / "adapter_config.json"
        config = json.loads(path.read_text())
        path.write_text(json.dumps(config | {"base_model_name_or_path": "/m"}))
        assert text("copy") == plain
        for key, value in (("lora_alpha", 4), ("use_rslora", True)):
            path.write_text(json.dumps(config | {key: value}))
            assert text("copy") != plain, key


@test
def large_adapters_are_read_in_time() -> None:
    """200 MB: 50 ms for both times that they are read."""
    tensors, each = 448, 200_000_000 // 448 // 2 * 2
    header = {
        f"base.layers.{n}.lora.weight": {
            "dtype": "BF16",
            "shape": [each // 2],
            "data_offsets": [n * each, (n + 1) * each],
        }
        for n in range(tensors)
    }
    text = json.dumps(header).encode()
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        (folder / "adapter_config.json").write_text('{"r": 8}')
        with (folder / "adapter_model.safetensors").open("wb") as file:
            file.write(len(text).to_bytes(8, "little") + text)
            file.write(os.urandom(1 << 20) * (tensors * each >> 20))
            file.truncate(8 + len(text) + tensors * each)
        took = []
        for _ in range(5):
            began = time.process_time()
            adapters.fingerprint(made)
            adapters.fingerprint(made)
            took.append(time.process_time() - began)
    assert min(took) < 0.05, took
    print(f"  200 MB of an adapter, twice: {min(took) * 1e3:.0f} ms")


@test
def an_adapter_loaded_in_place_is_another_one() -> None:
    """At P, at D, at both: pulled where both have the same."""
    with adapted() as (p, d, folder):
        at = {}
        for side in (p, d):
            shutil.copytree(folder / "a", folder / f"at-{id(side)}")
            at[side] = folder / f"at-{id(side)}"
            side.load(lora(at[side]))
        seeds = iter(range(9))

        def through() -> int:
            seed = next(seeds)
            return _through(p, d, f"{seed}", lora(at[p]), lora(at[d]), seed)

        assert through() == PULLED
        for side, computed in ((p, ALONE), (d, PULLED)):
            shutil.copytree(folder / "b", at[side], dirs_exist_ok=True)
            side.load(lora(at[side], load_inplace=True))
            assert through() == computed
        # An adapter that D's own request loads is not known before its turn.
        assert _through(p, d, "x", lora(at[p]), lora(at[d], load_inplace=True),
                        next(seeds)) == ALONE  # fmt: skip


@test
def requests_of_p_over_a_new_adapter_are_not_held() -> None:
    """The adapter was evicted; a step of theirs loads other files of its name."""
    with adapted() as (p, d, folder):
        mine = lora(folder / "a")
        for side in (p, d):
            side.load(mine)
        assert _through(p, d, "old", mine, mine) == PULLED
        p.workers[0].evict(1)
        shutil.copytree(folder / "b", folder / "a", dirs_exist_ok=True)
        long = prompt_of(100) + prompt_of(40, 3)
        other = prompt_of(90, 4)
        # Known, until a step loads it: the page tells of nothing else.
        p.mixed.add("hit")
        for name, prompt in (("hit", long), ("over", other)):
            p.ask(name, prompt, HOLD, lora=mine)
        run([p], lambda: {"hit", "over"} <= p.answers.keys())
        for name in ("hit", "over"):
            assert p.answers[name].kv_transfer_params is None, name
        # The new one is held, where it hits nothing of before.
        p.ask("hits", long, HOLD, lora=mine)
        p.mixed.add("hits")
        run([p], lambda: "hits" in p.answers)
        assert p.answers["hits"].kv_transfer_params is None
        d.workers[0].evict(1)
        d.load(mine)
        d.scheduler.reset_prefix_cache()
        assert _through(p, d, "new", mine, mine, 5) == PULLED
        assert p.scheduler.reset_prefix_cache()
        p.ask("cleared", long, HOLD, lora=mine)
        run([p], lambda: "cleared" in p.answers)
        params = p.answers["cleared"].kv_transfer_params
        d.ask("cleared", long, params, 2, lora=mine)
        run([p, d], lambda: "cleared" in d.answers)
        assert d.computed["cleared"] == PULLED


@test
def pulls_of_an_adapter_that_d_loses_fail() -> None:
    """Evicted, or loaded in place, before D hears of the pull's end."""
    for lose in ("evicts", "replaces", "is told"):
        with adapted() as (p, d, folder):
            mine, other = lora(folder / "a"), lora(folder / "b", "b", 2)
            theirs = lora(folder / "copy")
            for side, adapter in ((p, mine), (d, theirs)):
                side.load(adapter)
            prompt = prompt_of(100)
            p.ask("one", prompt, HOLD, lora=mine)
            run([p], lambda: "one" in p.answers)
            params = p.answers["one"].kv_transfer_params
            d.ask("one", prompt, params, 2, lora=theirs)
            _loads_unheard(p, d)
            if lose == "evicts":
                d.workers[0].evict(1)
                d.load(other)
            elif lose == "replaces":
                shutil.copytree(
                    folder / "b", folder / "copy", dirs_exist_ok=True
                )
                d.load(lora(folder / "copy", load_inplace=True))
            else:
                d.workers[0].evict(1)
                d.utility("remove_lora", 1)
            run([p, d], lambda: "one" in d.answers)
            assert d.computed["one"] == ALONE, (lose, d.computed)


def _ranks(*answers: dict[int, Any]) -> Any:
    """Return an executor of as many ranks, and what they say next."""
    said = SimpleNamespace(next=list(answers), asked=0)

    def call(method: Any, args: tuple[Any, ...] = ()) -> list[Any]:
        if method is adapters.watch:
            said.page = open(args[0], "r+b")
            return [True for _ in said.next]
        said.asked += 1
        return said.next

    return SimpleNamespace(collective_rpc=call), said


@test
def ranks_must_have_loaded_the_same() -> None:
    """A rank lacks it, has another one, or files that changed."""
    one, other = ("x", 1), ("y", 1)
    for ranks, name in (
        (({1: one}, {1: one}), "x"),
        (({1: one}, {1: other}), ""),
        (({1: one}, {}), ""),
        (({}, {1: one}), ""),
        (({1: ("", 1)}, {1: ("", 1)}), ""),
        (({}, {}), ""),
    ):
        executor, said = _ranks(*ranks)
        found = adapters.Adapters(executor)
        assert found.name(1) == name, ranks
        assert found.name(1) == name and said.asked <= 1, "asked once a load"


@test
def changes_of_adapters_are_told_once() -> None:
    """An adapter's first load is none; the same content again is none."""
    executor, said = _ranks({1: ("x", 1)})
    found = adapters.Adapters(executor)
    told: list[int] = []
    found.listeners.append(told.append)
    for answer, expected in (
        ({1: ("x", 1)}, []),
        ({}, []),
        ({1: ("x", 1), 2: ("z", 2)}, []),
        ({1: ("y", 3), 2: ("z", 2)}, [1]),
        ({2: ("z", 2)}, []),
        ({1: ("y", 3), 2: ("x", 4)}, [2]),
    ):
        said.next = [answer]
        said.page.seek(0)
        said.page.write(os.urandom(8))
        said.page.flush()
        told.clear()
        found.look()
        assert told == expected, (answer, told)


@test
def unseen_workers_know_no_adapter() -> None:
    """Workers of another executor, another node, another vLLM know none."""
    for answers in ([], [False], [True, False]):
        executor = SimpleNamespace(
            collective_rpc=lambda *_, answers=answers, **__: answers
        )
        assert adapters.Adapters(executor).name(1) == ""
    worker = SimpleNamespace(model_runner=SimpleNamespace())
    assert not adapters.watch(worker, "/dev/null")
    assert not adapters.watch(Worker().made, "/nowhere/at/all")


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
            pair(adapters=True, d_caches=False) as (p, d),
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
            changed += _count(d, "changed") + _count(p, "changed")
    assert pulled > 9 * SEEDS and changed > SEEDS, (pulled, changed)
    print(f"  {SEEDS} seeds: {pulled} pulled and used, {changed} changed")


# ---- the pool ----


def _asks(side: Side, adapter: Any) -> Any:
    """Begin a request with an adapter."""
    made = tier_side.ReqContext(f"r{time.monotonic_ns()}")
    request = SimpleNamespace(lora_request=adapter)
    side.scheduler.requests[made.req_id] = request
    side.manager.on_new_request(made)
    return made


def _stores(side: Side, asked: Any, some: list[bytes], fill: int = 0) -> None:
    """Store pages of a request."""
    for key, chunk in zip(some, side.begin(some, asked), strict=True):
        side.write(chunk, key, fill)
    side.manager.complete_store(some, asked)
    for _ in range(3):
        side.step()


def _finds(side: Side, asked: Any, some: list[bytes]) -> list[Any]:
    """Look keys up for a request until all are told."""
    until = time.monotonic() + 5
    while True:
        found = [side.manager.lookup(key, asked) for key in some]
        side.step()
        if set(found) <= {MISS, HIT}:
            return found
        assert time.monotonic() < until, found
        time.sleep(0.001)


@contextmanager
def adapted_sides() -> Iterator[tuple[Side, Side, Path]]:
    """Two engines of a pool, with adapters."""
    with folders() as folder, sides(adapters=True) as (a, b):
        yield a, b, folder


@test
def pools_know_adapters_by_content() -> None:
    """The same keys of vLLM's, of the same content, another one, of none."""
    with adapted_sides() as (a, b, folder):
        mine = lora(folder / "a")
        _load_at(a, mine)
        _stores(a, _asks(a, mine), keys(2))
        for adapter, found in (
            (lora(folder / "copy", "another", 7), HIT),
            (lora(folder / "b", "b", 8), MISS),
            (lora(folder / "b", "unknown", 9), MISS),
            (None, MISS),
        ):
            if adapter and adapter.lora_int_id != 9:
                _load_at(b, adapter)
            assert _finds(b, _asks(b, adapter), keys(2)) == [found] * 2, adapter
            b.reset()
        # Nothing of it is put where nobody knows what it is.
        before = a.count("published")
        _stores(a, _asks(a, lora(folder / "b", "unknown", 9)), keys(2, 50))
        assert a.count("published") == before


def _load_at(side: Side, adapter: Any) -> None:
    side.workers[0].step(adapter)


@test
def a_new_adapter_is_not_put_beside_kv_of_before() -> None:
    """Requests hit what is cached, or ran over the change."""
    with adapted_sides() as (a, b, folder):
        mine = lora(folder / "a")
        _load_at(a, mine)
        over = _asks(a, mine)
        _stores(a, _asks(a, mine), keys(2))
        shutil.copytree(folder / "b", folder / "a", dirs_exist_ok=True)
        _load_at(a, lora(folder / "a", load_inplace=True))
        new = lora(folder / "b", "b", 8)
        _load_at(b, new)
        _stores(a, over, keys(1, 20))
        _stores(a, _asks(a, mine), keys(2, 30))
        assert _finds(b, _asks(b, new), keys(1, 20) + keys(2, 30)) == [MISS] * 3
        a.reset()
        _stores(a, _asks(a, mine), keys(2, 40))
        assert _finds(b, _asks(b, new), keys(2, 40)) == [HIT] * 2
        # The old one's chunks are its own, as long as they are there.


@test
def requests_that_began_before_a_new_adapter_are_put_under_neither() -> None:
    """The old adapter's requests computed and cached nothing; all KV is new."""
    with adapted_sides() as (a, b, folder):
        mine = lora(folder / "a")
        _load_at(a, mine)
        over = _asks(a, mine)
        shutil.copytree(folder / "b", folder / "a", dirs_exist_ok=True)
        _load_at(a, lora(folder / "a", load_inplace=True))
        _asks(a, mine)
        _stores(a, over, keys(1, 20))
        for adapter in (
            lora(folder / "copy", "old", 7), lora(folder / "b", "new", 8),
        ):  # fmt: skip
            _load_at(b, adapter)
            assert _finds(b, _asks(b, adapter), keys(1, 20)) == [MISS], adapter
            b.reset()


@test
def chunks_of_before_a_change_end_with_both_caches() -> None:
    """The tier's is cleared, the workers' not, as with requests in it."""
    with adapted_sides() as (a, b, folder):
        mine, new = lora(folder / "a"), lora(folder / "b", "b", 8)
        _load_at(a, mine)
        _load_at(b, new)
        _asks(a, mine)
        a.has_computed(a.computes())
        shutil.copytree(folder / "b", folder / "a", dirs_exist_ok=True)
        _load_at(a, lora(folder / "a", load_inplace=True))
        block = a.computes()
        _asks(a, mine)
        a.reset()
        _stores(a, _asks(a, mine), keys(1, 20))
        assert _finds(b, _asks(b, new), keys(1, 20)) == [MISS]
        a.has_computed(block)
        a.reset()
        _stores(a, _asks(a, mine), keys(1, 30))
        assert _finds(b, _asks(b, new), keys(1, 30)) == [HIT]


@test
def reads_of_before_a_change_fail() -> None:
    """Weights and adapter, told of while they run, or ended and not heard."""
    for change in ("weights", "adapter"):
        for is_ended in (False, True):
            with adapted_sides() as (a, b, folder):
                mine = lora(folder / "a")
                for side in (a, b):
                    _load_at(side, lora(folder / ("a", "copy")[side is b]))
                _stores(a, _asks(a, mine), keys(4))
                asked = _asks(b, lora(folder / "copy"))
                until = time.monotonic() + 5
                with mock.patch.object(b.tier, "submit_load") as kept:
                    while not kept.called:
                        for key in keys(4):
                            b.manager.lookup(key, asked)
                        b.step()
                        assert time.monotonic() < until
                    loads = [call.args[0] for call in kept.call_args_list]
                for load in loads:
                    b.tier.submit_load(load)
                while is_ended and b.tier._reads:
                    b.tier._take()
                    assert time.monotonic() < until
                if change == "weights":
                    b.rpc("receive")
                else:
                    shutil.copytree(
                        folder / "b", folder / "copy", dirs_exist_ok=True
                    )
                    _load_at(b, lora(folder / "copy", load_inplace=True))
                    b.tier._core.adapters.look()
                while b.manager.has_pending_work():
                    b.step()
                    assert time.monotonic() < until
                gone = [b.policy.get(key) for key in keys(4)]
                assert gone == [None] * 4, (change, is_ended)


@test
def places_that_were_found_before_an_update_are_forgotten() -> None:
    """A later request asks again, also for what an earlier one waits for."""
    with sides() as (a, b):
        a.store(keys(2))
        first, until = b.request(), time.monotonic() + 5
        while b.tier.lookup(keys(1)[0], first) is not HIT:
            b.step()
            assert time.monotonic() < until
        for side in (a, b):
            side.name_weights("2")
        assert b.tier.lookup(keys(1)[0], first) is MISS
        b.meets(1)
        assert b.tier.lookup(keys(1)[0], b.request()) is not HIT


@test
def a_pool_tells_of_an_update_before_it_begins() -> None:
    """Nothing that was listed is found from the first new byte on."""
    for how in UNSEEN:
        with sides() as (a, b):
            a.store(keys(2))
            found: list[Any] = []
            a.in_call = lambda: found.append(b.load(keys(2)))
            a.rpc(how)
            assert found == [[MISS] * 2], (how, found)
            # Not named: neither put nor asked for.
            before = a.count("published"), a.count("keys_asked")
            a.reset()
            a.store(keys(2, 50))
            a.load(keys(2, 60))
            assert (a.count("published"), a.count("keys_asked")) == before


def main() -> int:
    """Run all; 0 if all hold."""
    global FOLDER
    with tempfile.TemporaryDirectory() as made:
        FOLDER = Path(made)
        test_core.FOLDER = tier_side.FOLDER = FOLDER
        model.make(FOLDER / "model", 1)
        return run_all()


if __name__ == "__main__":
    sys.exit(main())
