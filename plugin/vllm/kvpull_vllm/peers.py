# SPDX-License-Identifier: Apache-2.0
"""The engines that are read from, by address, without a word of vLLM.

An address is of one life of an engine, so nobody can write it into a
configuration. Each engine keeps its own in a file of its name in a folder, and
looks there for the others. It has the file locked as long as it lives: one that
nobody has locked is a dead engine's, and is swept.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import threading
import time
from pathlib import Path
from typing import Any

from kvpull_vllm.logs import logger
from kvpull_vllm.pool import EAGAIN, PEERS_MAX, Pool

_NAME = re.compile(r"[A-Za-z0-9_\[][A-Za-z0-9_.:\[\]-]{0,127}")
# "route:text" of any route; "host:port" is a name.
_ADDRESS = re.compile(r"[a-z][a-z0-9]{0,15}:(?!:|\d+$)[!-~]{1,1023}")
_LOOK_S = 0.5
# After a peer was given up: it may have been stopped, or change its weights.
_AGAIN_S, _AGAIN_S_MAX = 1.0, 60.0
# Clients say whom requests name: they leave places to those of the folder.
_HINTED_MAX = PEERS_MAX // 4


def _open(path: str, flags: int) -> int:
    """Open what may be a pipe, at which open() would wait for a writer."""
    return os.open(path, flags | os.O_NONBLOCK)


class Peers:
    """The peers of a pool; look() is called by any thread, again and again."""

    def __init__(
        self,
        pool: Pool,
        folder: Path,
        name: str,
        only: list[str] | None,
        itself: bool = False,
    ) -> None:
        """only: addresses, or names in the folder; None: all that are there.

        itself: this engine, too, which reads back what it spilled.
        """
        if not _NAME.fullmatch(name):
            raise ValueError(f"tier kvpull: name {name!r} is no file's name")
        if only is not None and not isinstance(only, list):
            raise ValueError("tier kvpull: peers is a list of names")
        self._pool, self._folder, self._only = pool, folder, only
        self._own, self._address = folder / name, ""
        self._itself = itself
        self._file: Any = None
        self._is_lost = False  # and said so
        self._lock = threading.Lock()
        self._numbers: dict[str, int] = {}  # by address
        self._hinted: set[str] = set()
        self._again: dict[str, tuple[float, float]] = {}  # when, and how late
        self._next_look = 0.0
        self.ready: list[int] = []

    def publish(self) -> None:
        """Say where this engine is."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._address = self._pool.address()
        made = self._own.with_name(f".{self._own.name}.{os.getpid()}")
        self._file = made.open("w")
        fcntl.flock(self._file, fcntl.LOCK_EX)
        self._file.write(self._address)
        self._file.flush()
        made.replace(self._own)

    def _publish_again(self) -> None:
        """Write the address anew where a sweep took it; try later if that fails.

        An engine goes on without: those who know it read from it.
        """
        try:
            if self._file is not None and not self._own.exists():
                self.publish()
            self._is_lost = False
        except OSError as error:
            if not self._is_lost:
                logger.warning(
                    "kvpull: pool: new engines do not find this one, whose "
                    "address was removed: %s; make that possible", error,
                )  # fmt: skip
            self._is_lost = True

    def withdraw(self) -> None:
        """Say it no more; a successor of this name goes on to."""
        if self._file is None:
            return
        with contextlib.suppress(OSError):
            if self._own.read_text() == self._address:
                self._own.unlink()
        self._file.close()
        self._file = None

    def _read(self, name: str) -> str:
        """Return the address of an engine that lives, or nothing."""
        path = self._folder / name
        with (
            contextlib.suppress(OSError, ValueError),
            open(path, "rb", buffering=0, opener=_open) as file,
        ):
            text = (file.read(1024) or b"").decode("ascii")
            if not _ADDRESS.fullmatch(text):
                return ""  # no file of ours: neither read nor swept
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return text
            if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                path.unlink()
        return ""

    def resolve(self, text: object) -> str | None:
        """Return the address that is named or given, None if it is none."""
        if not isinstance(text, str):
            return None
        if _NAME.fullmatch(text):
            text = self._read(text) or text
        return text if _ADDRESS.fullmatch(text) else None

    def _wanted(self) -> list[str]:
        named = self._only
        if named is None:
            try:
                named = os.listdir(self._folder)
            except OSError:
                named = []
        known = (self.resolve(text) for text in named)
        others = [a for a in known if a and a != self._address]
        return [self._address] * self._itself + others[: PEERS_MAX - 1]

    @property
    def others(self) -> int:
        """How many are read from beside this engine."""
        own = self._numbers.get(self._address)
        return len(self.ready) - (own in self.ready)

    def hint(self, address: str) -> None:
        """Read from an engine that a request names."""
        with self._lock:
            if (
                address not in (self._address, *self._numbers)
                and len(self._hinted) < _HINTED_MAX
            ):
                self._hinted.add(address)
                self._add(address)

    def _add(self, address: str) -> None:
        when, _ = self._again.get(address, (0.0, 0.0))
        if address in self._numbers or time.monotonic() < when:
            return
        number = self._pool.peer_add(address)
        if number < 0:
            self._give_up(address)
        else:
            self._numbers[address] = number

    def _give_up(self, address: str) -> None:
        self._numbers.pop(address, None)
        self._hinted.discard(address)
        _, late = self._again.get(address, (0.0, _AGAIN_S / 2))
        late = min(late * 2, _AGAIN_S_MAX)
        self._again[address] = (time.monotonic() + late, late)

    def is_awaited(self, address: str) -> bool:
        """Say whether an engine that was named may be ready yet."""
        number = self._numbers.get(address)
        return number is not None and number not in self.ready

    def look(self, at_once: bool = False) -> None:
        """Connect who is new, let go who is gone; twice a second."""
        with self._lock:
            self._look_at_states()
            now = time.monotonic()
            if now < self._next_look and not at_once:
                return
            self._next_look = now + _LOOK_S
            self._publish_again()
            wanted = {*self._wanted(), *self._hinted}
            for address in set(self._numbers) - wanted:
                self._pool.peer_remove(self._numbers.pop(address))
            for address in wanted:
                self._add(address)
            for address in set(self._again) - wanted:
                del self._again[address]

    def _look_at_states(self) -> None:
        states = self._pool.peers() if self._numbers else {}
        for address, number in list(self._numbers.items()):
            code = states.get(number, 0)
            if code not in (0, EAGAIN):
                logger.info("kvpull: pool: %s is given up (%d)", address, code)
                self._pool.peer_remove(number)
                self._give_up(address)
        ready = []
        for address, number in self._numbers.items():
            if states.get(number) == 0:
                ready.append(number)
                self._again.pop(address, None)
        self.ready = ready

    def again(self) -> None:
        """Connect all of them anew: the namespace is another."""
        with self._lock:
            for number in self._numbers.values():
                self._pool.peer_remove(number)
            self._numbers.clear()
            self._again.clear()
            self._next_look, self.ready = 0.0, []
