# SPDX-License-Identifier: Apache-2.0
"""The library's log lines, without its threads waiting for the interpreter."""

from __future__ import annotations

import logging
import os
import struct
import threading
from pathlib import Path
from typing import Any

from kvpull_vllm.abi import CONST, ffi

logger = logging.getLogger("vllm.kvpull")


def _one_line(record: logging.LogRecord) -> bool:
    """Keep a line one line: clients name their requests as they like."""
    text = record.getMessage()
    if not text.isprintable():
        record.msg = "".join(c if c.isprintable() else "?" for c in text)
        record.args = None
    return True


logger.addFilter(_one_line)

_LEVELS = {
    CONST["KVPULL_LOG_ERROR"]: logging.ERROR,
    CONST["KVPULL_LOG_WARN"]: logging.WARNING,
    CONST["KVPULL_LOG_INFO"]: logging.INFO,
    CONST["KVPULL_LOG_DEBUG"]: logging.DEBUG,
}
_LIBRARY = Path(__file__).resolve().parent / "libkvpull_log.so"
_LINE = struct.Struct("=QII512s")
_READ_BYTES = 64 * _LINE.size

ffi.cdef("void kvpull_vllm_log(void *, uint32_t, const char *);")


def write(level: int, text: str, time_ns: int = 0) -> None:
    """Log a line of the library, as of a time."""
    own = _LEVELS.get(level, logging.ERROR)
    if not logger.isEnabledFor(own):
        return
    record = logger.makeRecord(
        logger.name, own, __file__, 0, "kvpull: %s", (text,), None
    )
    if time_ns:
        record.created = time_ns / 1e9
        record.msecs = time_ns // 1_000_000 % 1000
    logger.handle(record)


class Pipe:
    """Lines of threads that are not Python's; see log.c."""

    def __init__(self) -> None:
        self._library = ffi.dlopen(str(_LIBRARY))
        self.callback = ffi.addressof(self._library, "kvpull_vllm_log")
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._writer, False)
        self.context = ffi.cast("void *", self._writer)
        self._thread = threading.Thread(
            target=self._run, name="kvpull log", daemon=True
        )
        self._thread.start()

    def _run(self) -> None:
        kept = b""
        while found := os.read(self._reader, _READ_BYTES):
            kept += found
            whole = len(kept) // _LINE.size * _LINE.size
            for time_ns, level, size, text in _LINE.iter_unpack(kept[:whole]):
                write(level, text[:size].decode(errors="replace"), time_ns)
            kept = kept[whole:]
        os.close(self._reader)

    def close(self) -> None:
        """Write out what is in the pipe; nobody calls back any more."""
        os.close(self._writer)
        self._thread.join(1)


def pipe() -> Pipe | None:
    """Return a pipe, None in a source tree that was not installed."""
    return Pipe() if _LIBRARY.exists() else None


def direct(_context: Any, level: int, message: Any) -> None:
    """Log from a thread of Python's own."""
    write(level, ffi.string(message).decode(errors="replace"))
