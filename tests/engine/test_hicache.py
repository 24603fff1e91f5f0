# SPDX-License-Identifier: Apache-2.0
"""examples/hicache.py between two processes, loaded by SGLang's own factory.

test_hicache.py: prints the result line of the other test programs. The class
that it derives from is SGLang's, of the folder SGLANG; SGLang's other modules,
which want a GPU's packages, are not imported.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import torch

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parents[1] / "examples"))
for part in ("sglang", "sglang.srt", "sglang.srt.mem_cache"):
    shell = ModuleType(part)  # without its __init__.py
    shell.__path__ = [os.path.join(os.environ["SGLANG"], *part.split("."))]
    sys.modules[part] = shell

from runner import run_all, test  # noqa: E402
from sglang.srt.mem_cache import hicache_storage  # noqa: E402
from sglang.srt.mem_cache.storage.backend_factory import (  # noqa: E402
    StorageBackendFactory,
)

FOLDER = Path()
ELEMENTS = 3000  # of a page: its bytes are no multiple of a chunk's
PAGES = 8
PATIENCE_S = 30


class Host:
    """The members of a HostKVCache that the plain interface needs."""

    layout, page_size, layer_num = "layer_first", 64, 2

    @staticmethod
    def get_dummy_flat_data_page() -> torch.Tensor:
        """Return a page to be filled."""
        return torch.zeros(ELEMENTS, dtype=torch.bfloat16)


def backend(folder: Path, weights: str = "w", rank: int = 0) -> Any:
    """Return the storage as HiCache's controller makes it."""
    config = hicache_storage.HiCacheStorageConfig(
        tp_rank=rank,
        tp_size=2,
        pp_rank=0,
        pp_size=1,
        attn_cp_rank=0,
        attn_cp_size=1,
        is_mla_model=False,
        enable_storage_metrics=False,
        is_page_first_layout=False,
        model_name="m",
        extra_config={
            "backend_name": "kvpull",
            "module_path": "hicache",
            "class_name": "KVPullHiCache",
            "weights": weights,
            "pages": PAGES,
            "deadline_ms": int(PATIENCE_S * 1000),  # a busy machine is no miss
            "socket_dir": str(folder),
            "library": os.environ.get("LIBKVPULL"),
        },
    )
    made = StorageBackendFactory.create_backend("dynamic", config, Host)
    made.register_mem_pool_host(Host)
    made.on_host_pools_registered()
    return made


def page(key: str, more: str = "") -> torch.Tensor:
    """Return what a page of that key has."""
    seed = hashlib.sha256((key + more).encode()).digest()[:4]
    random = torch.Generator().manual_seed(int.from_bytes(seed, "big"))
    bits = torch.randint(0, 1 << 15, (ELEMENTS,), generator=random)
    return bits.to(torch.int16).view(torch.bfloat16)


def is_page(got: torch.Tensor, key: str) -> bool:
    """Say whether all bits are right."""
    return torch.equal(got.view(torch.int16), page(key).view(torch.int16))


def asked(storage: Any, keys: list[str]) -> list[torch.Tensor | None]:
    """Get pages as the controller does."""
    targets = [Host.get_dummy_flat_data_page() for _ in keys]
    return storage.batch_get(keys, targets)


def serve(folder: Path) -> None:
    """Another engine: shares what its standard input names, a line a call."""
    storage = backend(folder)
    print("ready", flush=True)
    for line in sys.stdin:
        keys = line.split()
        if keys == ["clear"]:
            storage.clear()
        else:
            assert storage.batch_set(keys, [page(key) for key in keys])
        print("done", flush=True)
    storage.close()


class Other:
    """The other engine, in a process of its own."""

    def __init__(self, folder: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__, "--serve", str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout and self._process.stdin
        assert self._process.stdout.readline() == "ready\n"

    def say(self, *words: str) -> None:
        """Have it done."""
        self._process.stdin.write(" ".join(words) + "\n")
        self._process.stdin.flush()
        assert self._process.stdout.readline() == "done\n"

    def end(self) -> None:
        """Close it, or end it."""
        self._process.stdin.close()
        try:
            self._process.wait(PATIENCE_S)
        finally:
            self._process.kill()


@contextmanager
def pair(**own: Any) -> Iterator[tuple[Any, Other]]:
    """Give this engine's storage and another engine."""
    with tempfile.TemporaryDirectory(dir=FOLDER) as name:
        other = Other(Path(name))
        storage = backend(Path(name), **own)
        try:
            yield storage, other
        finally:
            storage.close()
            other.end()


def meets(storage: Any) -> None:
    """Wait until the other engine is read from."""
    until = time.monotonic() + PATIENCE_S
    while not storage._peers.ready:
        assert time.monotonic() < until, "the other engine is not there"
        time.sleep(0.005)


@test
def derives_from_the_real_class() -> None:
    """Nothing abstract is left, and nothing of ours has other parameters."""
    from hicache import KVPullHiCache

    base = hicache_storage.HiCacheStorage
    assert issubclass(KVPullHiCache, base)
    assert not KVPullHiCache.__abstractmethods__
    for name in (*base.__abstractmethods__, "batch_exists", "clear"):
        theirs = getattr(base, name).__code__
        own = getattr(KVPullHiCache, name).__code__
        count = theirs.co_argcount
        assert own.co_varnames[:count] == theirs.co_varnames[:count], name


@test
def pages_of_another_engine_are_read() -> None:
    """All their bytes; the first that nobody has ends a prefix."""
    with pair() as (storage, other):
        meets(storage)
        keys = [f"{i:064x}" for i in range(PAGES)]
        other.say(*keys)
        assert storage.batch_exists([*keys, "f"]) == PAGES
        assert storage.batch_exists(["f", *keys]) == 0
        got = asked(storage, [*keys, "f"])
        assert got.pop() is None
        assert all(map(is_page, got, keys))
        alone = storage.get(keys[3], Host.get_dummy_flat_data_page())
        assert is_page(alone, keys[3])
        other.say("clear")
        assert not storage.exists(keys[0])
        assert asked(storage, keys) == [None] * PAGES


@test
def own_pages_are_read() -> None:
    """And the one that was shared longest ago goes for another."""
    with pair() as (storage, _):
        keys = [f"{i:064x}" for i in range(PAGES + 1)]
        assert storage.batch_set(keys, [page(key) for key in keys])
        assert [storage.exists(key) for key in keys] == [False] + [True] * PAGES
        assert all(map(is_page, asked(storage, keys[1:]), keys[1:]))
        storage.clear()
        assert storage.batch_exists(keys[1:]) == 0


@test
def page_that_was_used_again_is_a_miss() -> None:
    """Between the probe and the read the other engine writes others there."""
    with pair() as (storage, other):
        meets(storage)
        keys = [f"{i:064x}" for i in range(PAGES)]
        other.say(*keys)
        find, others = storage._find, [f"{i:x}a" for i in range(PAGES // 2)]

        def find_and_stall(named: list[bytes]) -> Any:
            found = find(named)
            other.say(*others)  # in the chunks of the first half
            return found

        storage._find = find_and_stall
        got = asked(storage, keys)
        assert got[: PAGES // 2] == [None] * (PAGES // 2)
        assert all(map(is_page, got[PAGES // 2 :], keys[PAGES // 2 :]))


@test
def other_weights_and_ranks_are_others() -> None:
    """An engine that differs is not read, nor another rank's page of a key."""
    with pair(weights="x") as (storage, other):
        other.say("a")
        time.sleep(1)  # twice as long as it takes to look around
        assert not storage._peers.ready and not storage.exists("a")
    with pair(rank=1) as (storage, other):
        meets(storage)
        other.say("a")
        assert not storage.exists("a")


@test
def weights_are_named() -> None:
    """Or nobody could tell pages of two models apart."""
    from hicache import KVPullHiCache

    config = SimpleNamespace(extra_config={})
    try:
        KVPullHiCache(config)
    except ValueError as error:
        assert "name the weights" in str(error)
    else:
        raise AssertionError("not refused")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve(Path(sys.argv[2]))
        sys.exit()
    with tempfile.TemporaryDirectory() as made:
        FOLDER = Path(made)
        sys.exit(run_all())
