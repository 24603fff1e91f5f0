# SPDX-License-Identifier: Apache-2.0
"""A host that is not vLLM: a pool of pages behind SGLang's HiCache.

HiCache keeps KV pages in host memory, and behind that in a storage, by the hash
of their tokens. Here that storage is a pool: this engine's pages, which others
read without asking, and theirs. For SGLang 0.5:

    --hicache-storage-backend dynamic --hicache-storage-backend-extra-config
    '{"backend_name": "kvpull", "module_path": "hicache",
      "class_name": "KVPullHiCache", "weights": "NAME", "pages": 4096}'

A sketch: it has HiCache's plain interface, so a page is copied into the pool
and out of it; new weights want engines that are started again.
"""

from __future__ import annotations

import json
import mmap
import os
import threading
import time
from collections import OrderedDict
from pathlib import Path
from typing import Any

import torch
from kvpull_vllm.abi import Library, ffi
from kvpull_vllm.halves import Model
from kvpull_vllm.peers import Peers
from kvpull_vllm.pool import Ask, Naming, Place, Pool, Share
from sglang.srt.mem_cache.hicache_storage import HiCacheStorage

BATCH = 128  # keys of a call of HiCache's
CHUNK = 4096  # what a chunk's bytes are a multiple of


def rows(memory: Any, size: int) -> torch.Tensor:
    """Return memory as rows of so many bytes."""
    return torch.frombuffer(memory, dtype=torch.uint8).view(-1, size)


class KVPullHiCache(HiCacheStorage):
    """HiCache's storage: the pages of all engines of a node."""

    def __init__(self, config: Any, _kwargs: Any = None) -> None:
        self._config, self._own = config, dict(config.extra_config or {})
        if not self._own.get("weights"):
            raise ValueError('kvpull: name the weights, "weights": "..."')
        self._turn = threading.Lock()  # HiCache calls by several threads

    def register_mem_pool_host(self, host: Any) -> None:
        """Open the pool: what a page is like is known now."""
        super().register_mem_pool_host(host)
        own, config = self._own, self._config
        page = host.get_dummy_flat_data_page()
        size = -(-page.nbytes // CHUNK) * CHUNK
        count = int(own.get("pages", 4096))
        deadline_ms = int(own.get("deadline_ms", 1000))
        # The model record: members that must be equal for bytes to mean the
        # same.
        model = Model(
            str(config.model_name), "", own["weights"], str(page.dtype),
            f"{host.layout}, {host.page_size} tokens",
            "MLA" if config.is_mla_model else "", host.layer_num, 1,
            page.nbytes, config.is_mla_model,
        )  # fmt: skip
        ranks = f"{config.pp_rank}/{config.pp_size} {config.attn_cp_rank}"
        ranks += "" if config.is_mla_model else f" {config.tp_rank}"
        self._rank = ranks.encode()
        folder = own.get("socket_dir") or f"/tmp/kvpull-{os.getuid()}"
        name = f"hicache-{os.getpid()}"
        self._pool = Pool(
            Library(own.get("library")),
            json.dumps({"socket_dir": folder, "deadline_ms": deadline_ms}),
            Naming(model, "sha256", "", config.tp_size),
            name,
        )
        self._pages = rows(self._pool.share(Share(size, count)), size)
        self._chunks: OrderedDict[bytes, int] = OrderedDict()
        self._free = list(range(count))
        landing = mmap.mmap(-1, BATCH * size)
        self._landing = rows(landing, size)
        base = int(ffi.cast("uintptr_t", ffi.from_buffer(landing)))
        self._local = self._pool.local_add(base, size, BATCH)
        self._peers = Peers(self._pool, Path(folder, "hicache"), name, None)
        self._peers.publish()
        self._pool.idle = self._peers.look

    def close(self) -> None:
        """End what is in flight; nobody reads here any more."""
        self._peers.withdraw()
        self._pool.close()

    def _key(self, key: str) -> bytes:
        return self._rank + b" " + key.encode()

    def _wait(self, asks: list[tuple[Ask, int]]) -> list[Ask]:
        """Wait for what was begun: the library ends it by its deadline."""
        begun = [ask for ask, code in asks if code == 0]
        while not all(ask.found or ask.codes for ask in begun):
            self._pool.ends()
            time.sleep(50e-6)
        return begun

    def _find(self, keys: list[bytes]) -> list[Place | None]:
        """Ask all peers at once, without their help."""
        asks = [self._pool.probe(peer, keys) for peer in self._peers.ready]
        answers = [ask.found for ask in self._wait(asks)]
        found = zip(*answers, strict=True) if answers else [()] * len(keys)
        return [next(filter(None, places), None) for places in found]

    def batch_exists(self, keys: list[str], extra_info: Any = None) -> int:
        """Return how many of the first keys somebody has."""
        named = [self._key(key) for key in keys]
        with self._turn:
            found = self._find(named)
            for index, key in enumerate(named):
                if key not in self._chunks and found[index] is None:
                    return index
        return len(keys)

    def batch_get(
        self,
        keys: list[str],
        target_locations: Any = None,
        target_sizes: Any = None,
    ) -> list[torch.Tensor | None]:
        """Copy pages; None for what is not there, or was not any more."""
        named = [self._key(key) for key in keys]
        got: list[torch.Tensor | None] = [None] * len(keys)

        def take(index: int, source: torch.Tensor) -> None:
            target = target_locations[index]
            target.view(torch.uint8).copy_(source[: target.nbytes])
            got[index] = target

        with self._turn:
            pieces: dict[tuple[int, int], list[tuple[Place, int]]] = {}
            for index, place in enumerate(self._find(named)):
                if named[index] in self._chunks:
                    take(index, self._pages[self._chunks[named[index]]])
                elif place is not None:
                    pieces.setdefault(place[:2], []).append((place, index))
            reads = [self._pool.read(self._local, p) for p in pieces.values()]
            for ask in self._wait(reads):
                for (_, index), code in zip(ask.items, ask.codes, strict=True):
                    if code == 0:  # its owner had not used the chunk again
                        take(index, self._landing[index])
        return got

    def batch_set(
        self,
        keys: list[str],
        values: Any = None,
        target_locations: Any = None,
        target_sizes: Any = None,
    ) -> bool:
        """Share pages; what was not shared anew for longest goes for them."""
        with self._turn:
            for key, page in zip(map(self._key, keys), values, strict=True):
                if key in self._chunks:
                    self._chunks.move_to_end(key)
                    continue
                if not self._free:
                    self._free.append(self._chunks.popitem(last=False)[1])
                chunk = self._free.pop()
                epoch = self._pool.epoch()
                generation = self._pool.begin(chunk)  # no read of before counts
                self._pages[chunk, : page.nbytes] = page.view(torch.uint8)
                self._pool.end(chunk)
                if self._pool.put(key, chunk, generation, epoch) == 0:
                    self._chunks[key] = chunk
                else:  # no room in the directory: it can be shared again
                    self._free.append(chunk)
        return True

    def clear(self) -> None:
        """Take back all that is shared here."""
        with self._turn:
            self._pool.bump_all()
            self._free += self._chunks.values()
            self._chunks.clear()

    def get(
        self, key: str, target_location: Any = None, target_sizes: Any = None
    ) -> torch.Tensor | None:
        """As batch_get()."""
        return self.batch_get([key], [target_location])[0]

    def set(
        self,
        key: str,
        value: Any = None,
        target_location: Any = None,
        target_sizes: Any = None,
    ) -> bool:
        """As batch_set()."""
        return self.batch_set([key], [value])

    def exists(self, key: str) -> bool:
        """As batch_exists()."""
        return self.batch_exists([key]) == 1
