# SPDX-License-Identifier: Apache-2.0
"""Adapters (LoRA) by their content, as the workers have loaded them.

A name and a path say nothing of the files behind them. The process that loads an
adapter takes a fingerprint of its files, before and after: files that changed
meanwhile make an adapter that nobody knows. Workers load whenever a step needs
it, and tell nobody: they count what they load in a page that the scheduler's
process looks at, which asks them when the count moved.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from kvpull_vllm import files, signatures
from kvpull_vllm.logs import logger

# Bytes that are read of an adapter's tensors. Smaller ones are read whole.
READ_BYTES_MAX = 8 << 20
ADAPTERS_MAX = 4096  # that are remembered
_CONFIG = "adapter_config.json"
_CONFIG_BYTES_MAX = 1 << 20
# As vLLM: the first one that is there.
_TENSORS = ("adapter_model.safetensors", "adapter_model.bin", "adapter_model.pt")
# Names of what it was made from and with.
_NAMES = ("base_model_name_or_path", "revision", "peft_version")
_PAGE_BYTES = 4096
_RANKS_MAX = _PAGE_BYTES // 8


class Content(NamedTuple):
    """An adapter as one rank has it."""

    fingerprint: str  # "": its files changed while they were loaded
    serial: int  # another one when an adapter of this number has other content


Stat = tuple[int, int, int, int]


def _stat(path: Path) -> Stat:
    """Return what tells a file from one that took its place."""
    found = path.stat()
    return found.st_dev, found.st_ino, found.st_size, found.st_ctime_ns


def _config_of(path: Path) -> str:
    """Return an adapter's configuration, without the names in it."""
    with path.open("rb") as file:
        found = json.loads(file.read(_CONFIG_BYTES_MAX))
    for name in _NAMES:
        found.pop(name, None)
    return json.dumps(found, sort_keys=True)


def fingerprint(folder: str, settings: str = "") -> tuple[list[Stat], str]:
    """Return what names an adapter's files and their content.

    settings: how it is loaded. Raise OSError or ValueError: no such files.
    """
    config = Path(folder) / _CONFIG
    paths = [Path(folder) / name for name in _TENSORS]
    tensors = next((path for path in paths if path.is_file()), paths[0])
    stats = [_stat(config), _stat(tensors)]
    content = files.fingerprint([tensors], READ_BYTES_MAX)
    digest = hashlib.blake2b(digest_size=12)
    for text in (settings, _config_of(config), content):
        digest.update(f"{len(text)}:{text}".encode())
    return stats, digest.hexdigest()


# ---- in a worker's process ----


class Kept:
    """Adapters that this worker's manager has loaded."""

    def __init__(self, manager: Any) -> None:
        self.manager = manager
        self._found: dict[int, Content] = {}
        self._serial = 0
        self._count = 0
        self._pages: list[tuple[memoryview, int]] = []
        self._load = manager._load_adapter
        signatures.check_call(self._watched, type(manager), self._load)
        manager._load_adapter = self._watched

    def count_in(self, path: str, rank: int) -> None:
        """Count loads in a page of a file from now on."""
        with open(path, "r+b") as file:
            page = mmap.mmap(file.fileno(), _PAGE_BYTES)
        self._pages.append((memoryview(page).cast("Q"), rank % _RANKS_MAX))
        self._tell()

    def _tell(self) -> None:
        self._count += 1
        for page, place in self._pages:
            page[place] = self._count

    def _read(self, request: Any) -> tuple[list[Stat], str] | None:
        config = self.manager.lora_config
        settings = [
            getattr(request, "is_3d_lora_weight", False),
            *(
                str(getattr(config, name, None))
                for name in (
                    "lora_dtype",
                    "target_modules",
                    "enable_tower_connector_lora",
                    "enable_mixed_moe_lora_format",
                    "enable_moe_shared_loras",
                )
            ),
        ]
        try:
            from vllm.lora.utils import get_adapter_absolute_path

            folder = get_adapter_absolute_path(request.lora_path)
            return fingerprint(folder, json.dumps(settings))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def _watched(self, lora_request: Any) -> Any:
        """Load an adapter; vLLM calls it in place of its own method."""
        self._tell()
        try:
            before = self._read(lora_request)
            made = self._load(lora_request)
            is_same = before is not None and before == self._read(lora_request)
            text = before[1] if before and is_same else ""
            self._note(lora_request.lora_int_id, text)
        finally:
            self._tell()
        return made

    def _note(self, number: int, text: str) -> None:
        last = self._found.pop(number, None)
        if last is None or last.fingerprint != text or not text:
            self._serial += 1
            last = Content(text, self._serial)
        self._found[number] = last
        if len(self._found) > ADAPTERS_MAX:  # the oldest; if it comes it is new
            del self._found[next(iter(self._found))]

    def loaded(self) -> dict[int, Content]:
        """Return what is loaded now, by vLLM's numbers."""
        there = self.manager.list_adapters()
        return {n: c for n, c in self._found.items() if n in there}


def _manager_of(worker: Any) -> Any:
    runner = getattr(worker, "model_runner", None)
    return getattr(runner, "lora_manager", None)


def watch(worker: Any, path: str) -> bool:
    """Watch a worker's adapters; say whether it can be done."""
    manager = _manager_of(worker)
    if not hasattr(manager, "_load_adapter"):
        return False
    if not hasattr(manager, "_kvpull_kept"):
        manager._kvpull_kept = Kept(manager)
    try:
        manager._kvpull_kept.count_in(path, worker.rank)
    except OSError:  # it is on another node
        return False
    return True


def loaded(worker: Any) -> dict[int, tuple[str, int]]:
    """Return what a worker has loaded."""
    return dict(_manager_of(worker)._kvpull_kept.loaded())


# ---- in the scheduler's process ----

Ranks = tuple[Content | None, ...]


class Adapters:
    """Adapters that the workers have loaded, as the scheduler sees them."""

    def __init__(self, executor: Any) -> None:
        self._executor = executor
        self._page: mmap.mmap | None = None
        self._counts = b""
        self._loaded: dict[int, Ranks] = {}
        self._last: dict[int, Ranks] = {}  # of those that are not, too
        self._has_forgotten = False
        self.listeners: list[Callable[[int], None]] = []
        self._watch()

    def _watch(self) -> None:
        file = os.memfd_create("kvpull-adapters", os.MFD_CLOEXEC)
        try:
            os.ftruncate(file, _PAGE_BYTES)
            path = f"/proc/{os.getpid()}/fd/{file}"
            answers = self._ask(watch, (path,))
            if answers and all(answers):
                self._page = mmap.mmap(file, _PAGE_BYTES)
        finally:
            os.close(file)
        if self._page is None:
            logger.warning(
                "kvpull: what this vLLM's workers load as adapters is not seen: "
                "requests with an adapter are computed, no KV of theirs is moved"
            )

    def _ask(self, call: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        return self._executor.collective_rpc(call, args=args)

    def forget(self) -> None:
        """Ask again: the workers may have dropped all of them."""
        self._counts = b""

    def look(self) -> None:
        """See what was loaded since; tell of each that has other content."""
        if self._page is None:
            return
        counts = self._page[:]
        if counts == self._counts:
            return
        ranks = [
            {number: Content(*one) for number, one in rank.items()}
            for rank in self._ask(loaded, ())
        ]
        self._counts = counts
        numbers = {number for rank in ranks for number in rank}
        self._loaded = {
            number: tuple(rank.get(number) for rank in ranks)
            for number in numbers
        }
        for number in sorted(numbers):
            self._compare(number, self._loaded[number])

    def _compare(self, number: int, now: Ranks) -> None:
        last = self._last.pop(number, None)
        self._last[number] = now
        is_other = self._has_forgotten if last is None else last != now
        if len(self._last) > ADAPTERS_MAX:
            del self._last[next(iter(self._last))]
            self._has_forgotten = True
        if is_other:
            logger.info("kvpull: adapter number %d has other content", number)
            for listener in self.listeners:
                listener(number)

    def name(self, number: int) -> str:
        """Return the content of an adapter, "" where it is not known."""
        self.look()
        texts = {one and one.fingerprint for one in self._loaded.get(number, ())}
        return (texts.pop() or "") if len(texts) == 1 else ""
