# SPDX-License-Identifier: Apache-2.0
"""The tier with vLLM's own tiering manager and no engine: chunks are pages.

test_tier.py: prints the result line of the other test programs.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any
from unittest import mock

import tier_side
from kvpull_vllm import inside, peers, tier
from kvpull_vllm.halves import KvpullError
from kvpull_vllm.pool import Pool
from kvpull_vllm.settings import ConfigError, check_spelling
from runner import test
from tier_side import (
    CHUNKS,
    HIT,
    MISS,
    MODEL,
    PAGE,
    Side,
    config_of,
    found_and_not_loaded,
    keys,
    main,
    page,
    sides,
)


@test
def what_one_stores_another_loads() -> None:
    """All chunks load with the right bytes; an unknown key is a miss."""
    with sides() as (a, b):
        own = keys(5)
        assert os.path.exists(a.region.mmap_path)
        a.store(own)
        assert b.load([*own, b"x" * 36]) == [HIT] * 5 + [MISS]
        assert [b.bytes_of(key) for key in own] == list(map(page, own))
        assert a.count("published") == 5, a.policy.counts
        assert b.count("chunks_read") == 5 and b.count("keys_found") == 5
        # The reader lists there what it has read, too.
        assert b.count("published") == 5
        assert not b.manager.has_pending_work()
        assert not a.manager.has_pending_work()
        # An engine that is killed from here on leaves no memory behind.
        assert not os.path.exists(a.region.mmap_path)


@test
def arc_publishes_too() -> None:
    """vLLM's other policy."""
    with sides(eviction="KVPullARC") as (a, b):
        a.store(keys(3))
        assert b.load(keys(3)) == [HIT] * 3


@test
def what_is_evicted_is_not_found() -> None:
    """Withdrawn, and its chunk's new bytes are found under their own key."""
    with sides() as (a, b):
        a.store(keys(CHUNKS))
        a.store(keys(2, 50))
        gone = [key for key in keys(CHUNKS) if a.policy.get(key) is None]
        assert len(gone) == 2 and a.count("withdrawn") == 2
        assert b.load(gone) == [MISS] * 2
        assert b.load(keys(2, 50)) == [HIT] * 2
        assert [b.bytes_of(k) for k in keys(2, 50)] == [
            page(k) for k in keys(2, 50)
        ]


@test
def what_is_reused_between_probe_and_read_is_not_believed() -> None:
    """B has found keys; A writes other bytes there; partial success."""
    with sides() as (a, b):
        own = keys(CHUNKS)
        a.store(own)
        asked = b.request()
        until = time.monotonic() + 5
        loads = found_and_not_loaded(b, own, asked)
        a.store(keys(3, 50))
        gone = {key for key in own if a.policy.get(key) is None}
        for load in loads:
            b.tier.submit_load(load)
        while b.manager.has_pending_work():
            b.step()
            assert time.monotonic() < until
        found = [b.manager.lookup(key, asked) for key in own]
        for key, said in zip(own, found, strict=True):
            assert said is (MISS if key in gone else HIT), (key[0], said)
            if said is HIT:
                assert b.bytes_of(key) == page(key)
        assert b.count("chunks_stale") == 3 == len(gone)


def _spilling(**more: Any) -> dict[str, Any]:
    """Return what a side with a file of slots is told."""
    return {"spill_dir": str(tier_side.FOLDER), "spill_bytes": 4 * CHUNKS * PAGE, **more}


@test
def what_is_evicted_is_read_from_the_disk() -> None:
    """By another engine, and by its own, which evicts for it."""
    with sides(**_spilling()) as (a, b):
        own = keys(CHUNKS)
        a.store(own)
        assert a.count("chunks_spilled") == CHUNKS
        a.store(keys(CHUNKS, 50))
        assert all(a.policy.get(key) is None for key in own)
        assert b.load(own) == [HIT] * CHUNKS
        assert [b.bytes_of(key) for key in own] == list(map(page, own))
        assert a.load(own) == [HIT] * CHUNKS
        assert [a.bytes_of(key) for key in own] == list(map(page, own))
        assert a.count("chunks_read") == b.count("chunks_read") == CHUNKS


@test
def a_slot_that_was_reused_is_not_found() -> None:
    """The file has room for the newest; what a reset withdraws is gone."""
    with sides(**_spilling(spill_bytes=CHUNKS * PAGE)) as (a, b):
        for first in (1, 50, 90):
            a.store(keys(CHUNKS, first))
        # Neither the memory nor the file has chunks of the second any more.
        assert b.load(keys(CHUNKS, 50)) == [MISS] * CHUNKS
        assert b.load(keys(CHUNKS, 90)) == [HIT] * CHUNKS
        a.store(keys(CHUNKS, 130))
        a.store(keys(CHUNKS, 1))
        a.reset()
        assert b.load(keys(CHUNKS, 1)) == [MISS] * CHUNKS


@test
def a_store_that_the_disk_does_not_end_is_ended() -> None:
    """By a reset, which waits for no disk."""
    with sides(**_spilling()) as (a, b):
        asked = a.request()
        chunks = a.begin(keys(2), asked)
        for key, chunk in zip(keys(2), chunks, strict=True):
            a.write(chunk, key)
        with mock.patch.object(a.tier._pool, "_poll"):
            a.manager.complete_store(keys(2), asked)
            a.step()
            assert a.tier._spills and a.manager.has_pending_work()
        a.reset()
        assert not a.tier._spills
        assert b.load(keys(2)) == [MISS] * 2
        a.store(keys(2), fill=77)
        assert b.load(keys(2)) == [HIT] * 2
        assert b.bytes_of(keys(1)[0]) == page(b"", 77)


@test
def a_file_that_cannot_be_is_refused() -> None:
    """By name, at the start."""
    for wrong in (
        {"spill_dir": str(tier_side.FOLDER)},
        {"spill_bytes": PAGE},
        _spilling(spill_bytes=-1),
        _spilling(spill_dir="/proc"),
    ):
        with tempfile.TemporaryDirectory(dir=tier_side.FOLDER) as made:
            try:
                Side(Path(made), "a", **wrong).close()
            except (ConfigError, KvpullError):
                continue
            raise AssertionError(wrong)


@test
def a_misspelt_key_is_refused_by_the_name_that_was_meant() -> None:
    """The tier suggests its own keys, which the library does not know."""
    with tempfile.TemporaryDirectory(dir=tier_side.FOLDER) as made:
        try:
            Side(Path(made), "a", peer=["b"]).close()
        except ConfigError as error:
            assert "peer: did you mean peers" in str(error), error
        else:
            raise AssertionError("not refused")
    page = Path(__file__).parents[2] / "tools" / "kvpull.conf.5"
    known = re.findall(r"^\.It Cm ([a-z_]+)", page.read_text(), re.M)
    check_spelling(known, tier._OWN_KEYS, "")


@test
def what_is_reused_between_copy_and_check_is_not_believed() -> None:
    """The chunk is dropped though its copy is right: the check cannot tell."""
    with sides() as (a, b):
        own, right = keys(CHUNKS), []
        a.store(own)
        pool, poll, submit = b.tier._pool, b.tier._pool._poll, b.tier.submit_load

        def stall(load: Any) -> None:
            with mock.patch.object(pool, "_poll"):
                submit(load)
                poll()  # begins all copies; the next one looks at guards
                time.sleep(0.1)
                a.store(keys(3, 50))
                assert not all(ask.is_probe for ask in pool._asks.values())
                poll()
            right.extend(b.bytes_of(key) == page(key) for key in load.keys)

        with mock.patch.object(b.tier, "submit_load", stall):
            found = b.load(own)
        assert right == [True] * CHUNKS, right
        gone = [a.policy.get(key) is None for key in own]
        assert found == [MISS if one else HIT for one in gone], found
        assert b.count("chunks_stale") == 3 == sum(gone)


@test
def an_end_ends_reads_in_flight() -> None:
    """Closed in the middle of them: each job ends, and a reset waits for none."""
    with sides() as (a, b):
        own = keys(CHUNKS)
        a.store(own)
        loads = found_and_not_loaded(b, own)
        with mock.patch.object(b.tier._pool, "_poll", lambda: None):
            for load in loads:
                b.tier.submit_load(load)
            assert b.tier._reads and b.tier._pool._asks
            b.tier.shutdown()
        assert not b.tier._pool._asks, "none that a reset would wait for"
        b.manager.reset_cache()
        assert not b.manager.has_pending_work()


@test
def other_weights_are_refused_by_name() -> None:
    """At start: both say what differs; nobody waits."""
    with tempfile.TemporaryDirectory(dir=tier_side.FOLDER) as made:
        folder = Path(made)
        folder.chmod(0o700)
        said: list[str] = []
        log = mock.patch.object(
            peers.logger, "handle", lambda line: said.append(line.getMessage())
        )
        with log:
            a = Side(folder, "a")
            b = Side(folder, "b", replace(MODEL, weights="files 2"))
            try:
                a.store(keys(2))
                until = time.monotonic() + 5
                while not any("files 1" in line and "files 2" in line for line in said):
                    assert time.monotonic() < until, said
                    time.sleep(0.01)
                assert b.load(keys(2)) == [MISS] * 2
                time.sleep(1.5)
                # Each calls again after a second, and then later and later.
                lines = [line for line in said if "refused us" in line]
                assert len(lines) <= 4, lines
            finally:
                a.close()
                b.close()


@test
def who_is_not_named_any_more_is_let_go() -> None:
    """Its file is gone: another one may have its name next."""
    with sides() as (a, b):
        a.tier._peers.withdraw()
        b.meets(0)
        assert len(a.tier._peers.ready) == 1


@test
def an_engine_that_ends_is_a_miss() -> None:
    """Closed, and started again: under its name at a new address."""
    with sides() as (a, b):
        a.store(keys(2))
        a.close()
        began = time.monotonic()
        assert b.load(keys(2)) == [MISS] * 2
        assert time.monotonic() - began < 3
        b.meets(0)
        again = Side(a.region and Path(b.tier._peers._folder).parent, "a")
        try:
            b.meets(1)
            again.store(keys(2), fill=5)
            assert b.load(keys(2)) == [HIT] * 2
            assert b.bytes_of(keys(1)[0]) == page(b"", 5)
        finally:
            again.close()
            a.manager = mock.create_autospec(type(a.manager), instance=True)


@test
def a_request_may_name_its_source() -> None:
    """By address, by name, as llm-d does; unknown ones are counted."""
    with _unmet() as (a, b):
        a.store(keys(3))
        assert b.load(keys(1)) == [MISS]
        source = {"remote_host": "10.0.0.1", "remote_port": 5600}
        assert b.load(keys(1, 99), remote_kv_source=source) == [MISS]
        assert b.load(keys(3), remote_kv_source=source) == [HIT] * 3
        assert b.count("hints_unknown") == 0
        for bad in ("nobody", "../a", "", 7, {"a": 1}, "x" * 5000):
            assert b.load(keys(1, 70), kvpull_pool=bad) == [MISS]
        assert b.count("hints_unknown") == 6
        assert b.load(keys(1, 71), remote_kv_source="x") == [MISS]
    with _unmet() as (a, b):
        a.store(keys(3))
        address = a.tier._pool.address()
        assert b.load(keys(3), kvpull_pool=address) == [HIT] * 3


@test
def names_that_clients_make_up_leave_room_for_engines() -> None:
    """A flood of hints takes some of a pool's places, not all."""
    numbers = count()
    pool = mock.create_autospec(Pool, instance=True)
    pool.peer_add.side_effect = lambda address: next(numbers)
    pool.address.return_value, pool.peers.return_value = "", {}
    known = peers.Peers(pool, tier_side.FOLDER / "pool", "b", [])
    for number in range(200):
        known.hint(f"verbs:10.0.0.{number}:18600")
    known.look()
    assert len(known._numbers) == peers.PEERS_MAX // 4
    # The library, not the package, says which routes there are.
    assert known.resolve("tcp:[::1]:18600") == "tcp:[::1]:18600"
    assert known.resolve("engine0:5600") is None


@contextmanager
def _unmet() -> Iterator[tuple[Side, Side]]:
    with tempfile.TemporaryDirectory(dir=tier_side.FOLDER) as made:
        folder = Path(made)
        folder.chmod(0o700)
        a = Side(folder, "10.0.0.1:5600", peers=[])
        b = Side(folder, "b", peers=[])
        try:
            yield a, b
        finally:
            a.close()
            b.close()


@test
def what_cannot_be_shared_is_refused_by_name() -> None:
    """At start, and nothing of it stays behind."""
    with tempfile.TemporaryDirectory(dir=tier_side.FOLDER) as made:
        folder = Path(made)
        folder.chmod(0o700)
        before = set(os.listdir("/dev/shm"))
        for words, more in {
            "xxhash": {"config": config_of("xxhash")},
            "nodes": {"config": config_of(nodes=2)},
            "tier p2p": {"beside": ("p2p",)},
            "eviction_policy": {"eviction": "lru"},
            "no_such_key": {"no_such_key": 1},
            "peers": {"peers": "a"},
            "name": {"name": "../a"},
            "hint_wait_s": {"hint_wait_s": "1"},
            "hint_wait_s is a number": {"hint_wait_s": None},
            "hint_wait_s is": {"hint_wait_s": -1},
        }.items():
            try:
                Side(folder, **{"name": "a", **more})
            except (ConfigError, KvpullError, ValueError) as error:
                assert words in str(error), error
            else:
                raise AssertionError(words)
            assert set(os.listdir("/dev/shm")) == before, words


@test
def an_engine_that_ends_unasked_leaves_no_memory_behind() -> None:
    """Another tier of it was refused, say: its worker is killed then."""
    before = set(os.listdir("/dev/shm"))
    with sides("a") as (a,):
        assert os.path.exists(a.region.mmap_path)
        a.manager.shutdown()
        assert set(os.listdir("/dev/shm")) == before


@test
def what_the_dead_left_is_swept() -> None:
    """Nobody has it locked; what is no name is left alone."""
    with sides() as (a, b):
        folder = Path(a.tier._peers._folder)
        (folder / "dead").write_text("shm:kvpull-0.sock")
        (folder / ".other").write_text("x")
        (folder / "a").unlink()
        until = time.monotonic() + 5
        while (folder / "dead").exists() or not (folder / "a").exists():
            assert time.monotonic() < until
            time.sleep(0.01)
        assert sorted(os.listdir(folder)) == [".other", "a", "b"]
        a.meets(1)
        b.meets(1)


@test
def what_is_no_address_stays_and_stops_nobody() -> None:
    """The folder may have files of others, and a pipe that nobody writes."""
    with sides() as (a, b):
        folder = Path(a.tier._peers._folder)
        (folder / "notes.txt").write_text("shm: is no address alone")
        a.tier._peers.look(at_once=True)
        assert (folder / "notes.txt").exists()
        os.mkfifo(folder / "pipe")
        a.tier._peers.look(at_once=True)
        assert b.load(keys(1, 70), kvpull_pool="pipe") == [MISS]
        assert {"notes.txt", "pipe"} < set(os.listdir(folder))
        a.meets(1)


@test
def a_folder_that_is_gone_ends_no_engine() -> None:
    """Nor one that cannot be made again: it is said once, and tried again."""
    said: list[str] = []
    log = mock.patch.object(
        peers.logger, "handle", lambda line: said.append(line.getMessage())
    )
    with sides() as (a, b), log:
        folder = Path(a.tier._peers._folder)
        shutil.rmtree(folder)
        folder.write_text("a file")
        for side in (a, b):
            for _ in range(2):
                side.tier._peers.look(at_once=True)
            assert side.load(keys(1, 70)) == [MISS]
        assert sum("whose address was removed" in line for line in said) == 2
        folder.unlink()
        a.meets(1)
        b.meets(1)


@test
def a_child_that_ends_takes_nothing_from_its_parent() -> None:
    """One that was forked runs what its parent registered for the exit."""
    with sides() as (a, b):
        child = os.fork()
        if not child:
            a.tier.shutdown()
            os._exit(0)
        os.waitpid(child, 0)
        assert (Path(a.tier._peers._folder) / "a").exists()
        a.tier._pool._thread.join(0.2)
        assert a.tier._pool._thread.is_alive()
        a.store(keys(1))
        assert b.load(keys(1)) == [HIT]


@test
def a_chunk_that_is_written_untold_is_withdrawn() -> None:
    """A vLLM that gives it away in a manner that the policy knows not."""
    with sides() as (a, b):
        (chunk,) = a.store(keys(1))
        a.policy.pool.begin(chunk)
        assert b.load(keys(1)) == [MISS]


@test
def a_successor_keeps_its_name() -> None:
    """Who ends late does not take away what the next one wrote."""
    with sides() as (a, b):
        folder = Path(a.tier._peers._folder)
        again = Side(folder.parent, "a")
        a.tier.shutdown()
        assert (folder / "a").read_text() == again.tier._pool.address()
        again.close()
        assert not (folder / "a").exists()


@test
def private_names_of_vllm_are_there() -> None:
    """Each with a line for a vLLM that lacks it."""
    for call in (inside.configurations, lambda: inside.primary_file(object())):
        try:
            call()
        except LookupError as error:
            assert "vLLM" in str(error)
        else:
            raise AssertionError(call)


@test
def an_idle_engine_does_nothing() -> None:
    """0.2 s of CPU in 10 s at the most, two tiers together."""
    with sides() as (a, b):
        a.store(keys(2))
        assert b.load(keys(2)) == [HIT] * 2
        before, began = time.process_time(), time.monotonic()
        time.sleep(1)
        used = (time.process_time() - before) / (time.monotonic() - began)
        print(f"  idle: {used * 1e3:.1f} ms of CPU a second, two tiers")
        assert used < 0.04, used
        assert not a.manager.has_pending_work()


if __name__ == "__main__":
    sys.exit(main())
