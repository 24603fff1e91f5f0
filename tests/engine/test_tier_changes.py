# SPDX-License-Identifier: Apache-2.0
"""Caches, weights and adapters that change beside the tier, without an engine.

vLLM's own tiering manager: see test_tier.py. What a change makes old is not put,
not listed, not found and not read into.
test_tier_changes.py: prints the result line of the other test programs.
"""

from __future__ import annotations

import os
import shutil
import sys
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

import tier_side  # noqa: E402
from adapted import UNSEEN, folders, lora  # noqa: E402
from runner import test  # noqa: E402
from tier_side import (  # noqa: E402
    CHUNKS,
    HIT,
    MISS,
    Side,
    begin_store,
    found_and_not_loaded,
    keys,
    main,
    page,
    sides,
)


# ---- caches ----


@test
def a_reset_withdraws_all() -> None:
    """Nothing that A had before is found, what it stores later is."""
    with sides() as (a, b):
        a.store(keys(4))
        a.reset()
        assert b.load(keys(4)) == [MISS] * 4
        a.store(keys(4), fill=77)
        assert b.load(keys(4)) == [HIT] * 4
        assert b.bytes_of(keys(1)[0]) == page(b"", 77)


@test
def what_was_computed_before_a_reset_is_not_listed() -> None:
    """A request that began before it; its store begins and ends after."""
    with sides() as (a, b):
        asked = a.request()
        a.reset()
        a.begin(keys(2), asked)
        a.manager.complete_store(keys(2), asked)
        assert a.count("published") == 0
        assert b.load(keys(2)) == [MISS] * 2


@test
def a_chunk_in_a_write_at_a_reset_is_not_read_into() -> None:
    """Until a store that was begun after the reset has ended there."""
    with sides() as (a, b):
        own = keys(2)
        a.store(own)
        late = b.begin(keys(2, 90), b.request())
        b.manager.reset_cache()
        assert b.load(own) == [MISS] * 2
        if not b.promotes_late:
            assert b.count("chunks_held") == 2
        assert b.policy.held == set(late)
        # The write of before the reset lands in what is another key's by now.
        asked = b.request()
        new = keys(CHUNKS, 60)
        later = b.begin(new, asked)
        assert set(late) < set(later)
        for chunk, key in zip(late, keys(2, 90), strict=True):
            b.write(chunk, key)
        assert a.load(new) == [MISS] * CHUNKS
        for chunk, key in zip(later, new, strict=True):
            b.write(chunk, key)
        b.manager.complete_store(new, asked)
        assert not b.policy.held
        assert a.load(new) == [HIT] * CHUNKS
        assert [a.bytes_of(key) for key in new] == list(map(page, new))


@test
def a_store_deferred_over_a_reset_spoils_no_promotion() -> None:
    """vLLM's own worker begins it a step later, in a chunk that is another's.

    The second time without the note of such chunks: a hit, of wrong bytes.
    """
    for is_noted in (True, False):
        with sides() as (a, b):
            own, old = keys(2), keys(2, 90)
            a.store(own)
            step = begin_store(b, old)
            b.manager.reset_cache()
            if not is_noted:
                b.policy.held.clear()
            found = b.load(own)
            step()
            is_safe = is_noted or b.promotes_late
            assert found == [MISS if is_safe else HIT] * 2
            if not is_safe:
                assert [b.bytes_of(key) for key in own] == list(map(page, old))


@test
def what_workers_read_at_a_reset_is_not_read_into() -> None:
    """A load of theirs is under way."""
    with sides() as (a, b):
        a.store(keys(1))
        (chunk,) = b.store(keys(1, 90))
        b.manager.prepare_load(keys(1, 90), b.request())
        b.manager.reset_cache()
        assert b.policy.held == {chunk}
        assert b.load(keys(1)) == [MISS]


@test
def a_reset_ends_reads_in_flight() -> None:
    """It waits for their end, and no byte lands after it."""
    with sides() as (a, b):
        own = keys(CHUNKS)
        a.store(own)
        pool = b.tier._pool
        loads = found_and_not_loaded(b, own)
        poll, late = pool._poll, iter(range(5))
        with mock.patch.object(
            pool, "_poll", lambda: next(late, None) is None and poll()
        ):
            for load in loads:
                b.tier.submit_load(load)
            assert b.tier._reads
            b.manager.reset_cache()
        assert not b.tier._reads and not b.manager.has_pending_work()
        before = b.view.tobytes()
        time.sleep(0.05)
        assert b.view.tobytes() == before
        assert a.load(own) == [HIT] * CHUNKS, "A's own"


# ---- weights ----


@test
def new_weights_are_another_namespace() -> None:
    """In a running engine; those who have them alike meet again.

    Whatever a client of vLLM's control names them.
    """
    with sides() as (a, b):
        a.store(keys(2))
        for side in (a, b):
            side.reset()
            side.name_weights("2\n\0")
            if side is a:  # B has the old ones yet
                a.store(keys(2, 30))
                assert b.load(keys(2, 30)) == [MISS] * 2
        a.meets(1)
        b.meets(1)
        assert b.load(keys(2)) == [MISS] * 2
        a.store(keys(2), fill=99)
        assert b.load(keys(2)) == [HIT] * 2
        assert b.bytes_of(keys(1)[0]) == page(b"", 99)


@test
def new_weights_without_a_reset_share_nothing() -> None:
    """vLLM keeps its caches then; they are the old weights'."""
    with sides() as (a, b):
        a.store(keys(2))
        for side in (a, b):
            side.name_weights("2")
        a.meets(1)
        b.meets(1)
        a.store(keys(2, 50))
        assert b.load(keys(2) + keys(2, 50)) == [MISS] * 4
        a.reset()
        a.store(keys(2, 60))
        assert b.load(keys(2, 60)) == [HIT] * 2


@test
def what_workers_alone_have_of_old_weights_is_not_shared() -> None:
    """Blocks of a prompt that filled no chunk; a reset clears them, too.

    Not while one of them is in use: vLLM resets the chunks all the same.
    """
    with sides() as (a, b):
        for number, ends_late in enumerate((False, True)):
            block = a.computes()
            if not ends_late:
                a.has_computed(block)
            for side in (a, b):
                side.name_weights(f"{number}")
            a.meets(1)
            b.meets(1)
            # The first blocks are those of the short request, of old weights.
            a.store(keys(2, 50))
            if ends_late:
                a.reset()
                a.has_computed(block)
                a.store(keys(2, 55))
            assert b.load(keys(2, 50) + keys(2, 55)) == [MISS] * 4, ends_late
            a.reset()
            a.store(keys(2, 60))
            assert b.load(keys(2, 60)) == [HIT] * 2
            for side in (a, b):
                side.reset()


# ---- weights and adapters, by calls ----


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


if __name__ == "__main__":
    sys.exit(main())
