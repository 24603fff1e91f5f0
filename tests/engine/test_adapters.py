# SPDX-License-Identifier: Apache-2.0
"""Adapters that change in running engines, without a model.

vLLM's own schedulers compute numbers that name weights, adapter and tokens (see
core.py), so that KV of other ones is found at the first token that looks at it.
test_adapters.py: prints the result line of the other test programs.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from engine import environment

os.environ.update(environment())
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")

import tensors  # noqa: E402
from adapted import (  # noqa: E402
    ALONE,
    PULLED,
    adapted,
    count,
    folders,
    loads_unheard,
    lora,
    main,
    through,
)
from core import HOLD, run  # noqa: E402
from doubles import Worker  # noqa: E402
from kvpull_vllm import adapters  # noqa: E402
from runner import test  # noqa: E402
from test_core import prompt_of  # noqa: E402


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
            found = through(p, d, f"{number}", mine, at_d, number)
            assert found == computed, number
        assert count(d, "mismatches") == 2


@test
def adapters_that_nobody_has_loaded_are_computed() -> None:
    """The first request loads it, at P and at D; the next one is pulled."""
    with adapted() as (p, d, folder):
        mine = lora(folder / "a")
        p.ask("first", prompt_of(100), HOLD, lora=mine)
        run([p], lambda: "first" in p.answers)
        assert p.answers["first"].kv_transfer_params is None
        assert through(p, d, "second", mine, mine, 1) == ALONE
        assert through(p, d, "third", mine, mine, 2) == PULLED
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
def large_adapters_are_sampled_only() -> None:
    """200 MB: 8 MiB each time, and less time than reading all of it once."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        (folder / "adapter_config.json").write_text('{"r": 8}')
        path = folder / "adapter_model.safetensors"
        tensors.write(path, 448, 200_000_000 // 448 // 2 * 2)
        with tensors.reads() as sizes:
            adapters.fingerprint(made)
        assert len(sizes) >= 448
        assert sum(sizes) <= 8 << 20, sum(sizes)
        ratios = []
        for _ in range(5):
            began = time.process_time()
            hashlib.blake2b(path.read_bytes())
            whole = time.process_time() - began
            adapters.fingerprint(made)
            adapters.fingerprint(made)
            ratios.append((time.process_time() - began - whole) / whole)
    print(f"  200 MB of an adapter, twice: {min(ratios):.2f} of reading it")
    assert min(ratios) < 0.5, ratios


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

        def once_more() -> int:
            seed = next(seeds)
            return through(p, d, f"{seed}", lora(at[p]), lora(at[d]), seed)

        assert once_more() == PULLED
        for side, computed in ((p, ALONE), (d, PULLED)):
            shutil.copytree(folder / "b", at[side], dirs_exist_ok=True)
            side.load(lora(at[side], load_inplace=True))
            assert once_more() == computed
        # An adapter that D's own request loads is not known before its turn.
        assert through(p, d, "x", lora(at[p]), lora(at[d], load_inplace=True),
                       next(seeds)) == ALONE  # fmt: skip


@test
def requests_of_p_over_a_new_adapter_are_not_held() -> None:
    """The adapter was evicted; a step of theirs loads other files of its name."""
    with adapted() as (p, d, folder):
        mine = lora(folder / "a")
        for side in (p, d):
            side.load(mine)
        assert through(p, d, "old", mine, mine) == PULLED
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
        assert through(p, d, "new", mine, mine, 5) == PULLED
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
            loads_unheard(p, d)
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


if __name__ == "__main__":
    sys.exit(main())
