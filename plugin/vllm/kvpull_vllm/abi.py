# SPDX-License-Identifier: Apache-2.0
"""Both ABIs, read from common.h, connector.h and reader.h themselves.

cffi takes the headers' own declarations, so that no struct is written down a
second time. What C's preprocessor would do is little: constants and the list
of errors, which are read here.
"""

from __future__ import annotations

import functools
import os
import re
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import cffi

_PACKAGE = Path(__file__).resolve().parent
_ERROR = re.compile(r"X\((\w+), (-?\d+),")
_HEADERS = ("common.h", "connector.h", "reader.h")
_CONSTANT = re.compile(
    r"^#define (KVPULL_\w+) +\(?(-?\w+?)u?(?: << (\d+))?\)?(?: |$)"
)


class AbiError(RuntimeError):
    """The library or its header cannot be used; the text says why."""


def headers() -> str:
    """Return the headers' text: of the installed copies, else the source's."""
    for folder in (_PACKAGE, _PACKAGE.parents[2] / "include" / "kvpull"):
        paths = [folder / name for name in _HEADERS]
        if all(path.exists() for path in paths):
            return "".join(path.read_text() for path in paths)
    raise AbiError(
        f"{', '.join(_HEADERS)} are neither in {_PACKAGE} nor in a source tree"
    )


def constants(text: str) -> dict[str, int]:
    """Return the headers' numeric #defines and their errors."""
    values: dict[str, int] = {}
    for line in text.splitlines():
        match = _CONSTANT.match(line)
        if match:
            try:
                values[match[1]] = int(match[2], 0) << int(match[3] or 0)
            except ValueError:
                continue
    for name, value in _ERROR.findall(text):
        values[f"KVPULL_{name}"] = int(value)
    return values


def declarations(text: str) -> str:
    """Return the headers as cffi reads them, without directives."""
    known = constants(text)
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    text = text.replace("\\\n", " ")
    text = re.sub(r"^\s*#.*$", "", text, flags=re.M)
    text = re.sub(r"enum kvpull_error \{.*?\};", "", text, flags=re.S)
    text = re.sub(r'extern "C" \{', "", text)
    text = re.sub(r"^\}\s*$", "", text, flags=re.M)
    return re.sub(r"\[(KVPULL_\w+)\]", lambda m: f"[{known[m[1]]}]", text)


_TEXT = headers()
CONST = constants(_TEXT)
ffi = cffi.FFI()
ffi.cdef(declarations(_TEXT))


COUNTER = "struct kvpull_counter"


def structs() -> list[str]:
    """Return the names of the headers' complete structs."""
    return re.findall(r"^struct (kvpull_\w+) \{", _TEXT, flags=re.M)


def new(kind: str, /, **members: Any) -> Any:
    """Return a struct with struct_size and the given members set."""
    made = ffi.new(f"struct {kind} *", members)
    made.struct_size = ffi.sizeof(f"struct {kind}")
    return made


def _form(kind: Any) -> str:
    size = ffi.sizeof(kind)
    if kind.kind == "array":
        return f"{size}s"
    return "i" if kind.cname == "int32_t" else {4: "I", 8: "Q"}[size]


def layout(kind: str, *members: str, count: int = 1) -> struct.Struct:
    """Return the layout of so many structs: of some members, or of all.

    All of them are written or read at once so, in the time that cffi takes for
    one or two.
    """
    text, end = "", 0
    for name, member in ffi.typeof(f"struct {kind}").fields:
        if not members or name in members:
            text += f"{member.offset - end}x{_form(member.type)}"
            end = member.offset + ffi.sizeof(member.type)
    text += f"{ffi.sizeof(f'struct {kind}') - end}x"
    return struct.Struct("=" + text * count)


def packed(
    kind: str, *members: str, behind: str = ""
) -> tuple[Any, Callable[..., None]]:
    """Return a struct, and what writes all its members but struct_size.

    behind is the format of what is written behind it in the same call: memory
    that the struct may point to.
    """
    names = [name for name, _ in ffi.typeof(f"struct {kind}").fields]
    assert ["struct_size", *members] == names, names
    form = struct.Struct(layout(kind).format + behind)
    room, size = ffi.new("char[]", form.size), ffi.sizeof(f"struct {kind}")
    # The buffer keeps the memory.
    write = functools.partial(form.pack_into, ffi.buffer(room), 0, size)
    return ffi.cast(f"struct {kind} *", room), write


def address(made: Any) -> int:
    """Return where memory of cffi's lies."""
    return int(ffi.cast("uintptr_t", made))


def _candidates(named: str | None) -> list[str]:
    if named:
        return [named]
    return [
        path
        for path in (str(_PACKAGE / "libkvpull.so.1"), "libkvpull.so.1")
        if "/" not in path or os.path.exists(path)
    ]


class Counter(NamedTuple):
    """A counter of a half: its name, its text, its KVPULL_COUNTER_*."""

    name: str
    help: str
    kind: int


class Library:
    """libkvpull.so.1, opened."""

    def __init__(self, named: str | None = None) -> None:
        errors = []
        self._handle = None
        for path in _candidates(named):
            try:
                self._handle = ffi.dlopen(path)
                break
            except OSError as error:
                errors.append(str(error))
        if self._handle is None:
            raise AbiError(
                f"libkvpull.so.1 cannot be loaded: {'; '.join(errors)}"
            )
        self.ops = self._handle.kvpull_connector_v1()
        if self.ops.abi_major != CONST["KVPULL_ABI_MAJOR"]:
            raise AbiError(
                f"libkvpull has ABI {self.ops.abi_major}, this package is made "
                f"for {CONST['KVPULL_ABI_MAJOR']}: install both of one version"
            )
        self.scheduler = self.ops.scheduler
        self.worker = self.ops.worker
        self.reader = self._handle.kvpull_reader_v1()
        if self.reader.abi_major != CONST["KVPULL_READER_ABI_MAJOR"]:
            raise AbiError(
                f"libkvpull has reader ABI {self.reader.abi_major}, this "
                f"package is made for {CONST['KVPULL_READER_ABI_MAJOR']}: "
                "install both of one version"
            )

    @property
    def version(self) -> str:
        """The library's version."""
        return ffi.string(self.ops.version).decode()

    def counters(self, kind: str) -> list[Counter]:
        """Return what a half counts, in the order of its counters()."""
        call, size = getattr(self, kind).counters, ffi.sizeof(COUNTER)
        count = call(ffi.NULL, ffi.NULL, 0, size)
        array = ffi.new(f"{COUNTER}[]", count)
        call(ffi.NULL, array, count, size)
        return [
            Counter(
                ffi.string(one.name).decode(),
                ffi.string(one.help).decode(),
                one.kind,
            )
            for one in array
        ]

    def ticket_peek(self, ticket: bytes) -> Any:
        """Return struct kvpull_ticket_info, None if it is no ticket."""
        info = new("kvpull_ticket_info")
        code = self.ops.ticket_peek(ticket, len(ticket), info)
        return None if code < 0 else info

    def error_text(self, code: int) -> str:
        """Return the library's text of an error: its meaning and the remedy."""
        return ffi.string(self.ops.error_text(code)).decode()
