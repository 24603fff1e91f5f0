# SPDX-License-Identifier: Apache-2.0
"""The two halves of the ABI as Python objects, without a word of vLLM."""

from __future__ import annotations

import hashlib
import logging
import os
import re
from array import array
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple

from kvpull_vllm import logs
from kvpull_vllm.abi import (
    CONST,
    COUNTER,
    Library,
    address,
    ffi,
    layout,
    new,
    packed,
)
from kvpull_vllm.logs import logger

_RECORDS = 256
_RECORD_BYTES = ffi.sizeof("struct kvpull_poll_record")
_BLOCKS_BYTES = ffi.sizeof("struct kvpull_blocks")
_TEXT_MAX = CONST["KVPULL_TEXT_BYTES_MAX"] - 1
_CONTROL = re.compile(r"[\0-\x1f\x7f]")
_LABEL_BYTES = 128  # the library keeps less: the end
_MATCH_LOAD = CONST["KVPULL_MATCH_LOAD"]
_COUNTER_BYTES = ffi.sizeof(COUNTER)
_ETOOSMALL = CONST["KVPULL_ETOOSMALL"]
_HELD = CONST["KVPULL_FINISH_HELD"]
_PAYLOAD_MAX = CONST["KVPULL_PAYLOAD_BYTES_MAX"]
# A rank's state is one head of its group: nothing here says how to split it.
_STATE = CONST["KVPULL_GROUP_STATE"]
NO_TRACE = bytes(CONST["KVPULL_TRACE_BYTES"])
PHASES = ("queue", "connect", "read", "check")


class KvpullError(RuntimeError):
    """A call of the library failed; .code is an enum kvpull_error."""

    def __init__(self, what: str, code: int, text: str) -> None:
        super().__init__(f"kvpull: {what}: {text} ({code})")
        self.code = code


@dataclass(frozen=True)
class Model:
    """The facts that must be equal at both ends; see struct kvpull_model."""

    model: str
    revision: str
    weights: str
    dtype: str
    layout: str
    attention: str
    layer_count: int
    head_count: int
    head_bytes: int
    replicated: bool
    config: str = ""
    engine: str = ""


@dataclass(frozen=True)
class Opening:
    """The parameters of open; see struct kvpull_open_params."""

    config_json: str
    model: Model
    engine_id: str
    tp_size: int
    tp_rank: int
    dp_rank: int
    groups: list[tuple[int, int]]  # tokens a block, kind
    device: tuple[int, int] = (0, 0)  # of a worker: KVPULL_DEVICE_*, which


@dataclass(frozen=True)
class Geometry:
    """A layer's blocks; strides in bytes. See struct kvpull_cache."""

    group: int
    layer_first: int
    layer_count: int
    address: int
    layer_stride: int
    block_stride: int
    row_stride: int
    head_stride: int
    block_count: int
    row_count: int
    head_count: int
    head_bytes: int
    token_bytes: int
    is_state: bool = False


class Report(NamedTuple):
    """A record of poll(): struct kvpull_poll_record."""

    key: int
    kind: int
    reason: int
    byte_count: int
    took_ns: int
    begun_ns: int
    connected_ns: int
    asked_ns: int
    came_ns: int

    @property
    def seconds(self) -> float:
        """Since its command."""
        return self.took_ns / 1e9

    @property
    def reached(self) -> tuple[int, int, int, int, int]:
        """When it was taken up, connected, asked, came, was checked: ns."""
        return (*self[5:], self.took_ns)

    def phases(self) -> list[float]:
        """Return the seconds of each of PHASES; of one that is LOADED."""
        begun, _, asked, came, checked = self.reached
        ends = (begun, asked, came, checked)
        return [
            (end - start) / 1e9
            for start, end in zip((0, *ends), ends, strict=False)
        ]


def fitting(name: str) -> bytes:
    """Return a name of the model record; with a digest where it is not whole.

    Paths of weights differ at their ends: they are not just cut. What the
    library refuses, or C takes for the end, is replaced: a running engine is
    told the version of its weights.
    """
    whole, most = name.encode(errors="surrogatepass"), _TEXT_MAX
    text = _CONTROL.sub("?", name).encode(errors="replace")
    if text == whole and len(text) <= most:
        return text
    digest = hashlib.blake2b(whole, digest_size=8).hexdigest().encode()
    kept = text[: most - len(digest) - 1].decode(errors="ignore").encode()
    return kept + b"#" + digest


def model_record(model: Model, kept: list[Any]) -> Any:
    """Return struct kvpull_model; kept gets what it points to."""
    names = (
        "model", "revision", "weights", "dtype",
        "layout", "attention", "config", "engine",
    )  # fmt: skip
    texts = {
        name: ffi.new("char[]", fitting(value))
        for name in names
        if (value := getattr(model, name))
    }
    made = new(
        "kvpull_model",
        layer_count=model.layer_count,
        head_count=model.head_count,
        head_bytes=model.head_bytes,
        replicated=int(model.replicated),
        **texts,
    )
    kept += [texts, made]
    return made


def host_record(pipe: logs.Pipe | None, kept: list[Any]) -> Any:
    """Return struct kvpull_host, which logs; kept gets what it points to."""
    fatal = ffi.callback("kvpull_fatal_fn", _fatal)
    if pipe is not None:
        log, context = pipe.callback, pipe.context
    else:
        log, context = ffi.callback("kvpull_log_fn", logs.direct), ffi.NULL
    made = new("kvpull_host", log=log, fatal=fatal, context=context)
    is_told = logger.isEnabledFor(logging.DEBUG)
    made.log_level = CONST[f"KVPULL_LOG_{'DEBUG' if is_told else 'INFO'}"]
    kept += [log, fatal, made]
    return made


def checked(library: Library, what: str, code: int, detail: Any = None) -> int:
    """Return a code that is no error; raise KvpullError."""
    if code >= 0:
        return code
    text = library.error_text(code)
    if detail is not None and ffi.string(detail.message):
        name = ffi.string(detail.field).decode()
        text = f"{name}: " if name else ""
        text += ffi.string(detail.message).decode(errors="replace")
    raise KvpullError(what, code, text)


class _Blocks:
    """struct kvpull_blocks[], made once and filled for each call."""

    def __init__(self, count: int) -> None:
        made = ffi.new("struct kvpull_blocks[]", count)
        self.address, self._kept = address(made), made
        self._buffer = ffi.buffer(made)
        self._write = layout("kvpull_blocks").pack_into
        self._ids: list[Any] = [None] * count

    def fill(self, block_lists: list[tuple[int, list[int]]]) -> int:
        """Take (first index, ids) a group; return how many groups."""
        group = 0
        for first, ids in block_lists:
            self._ids[group] = kept = array("I", ids)
            at, count = kept.buffer_info()
            self._write(self._buffer, group * _BLOCKS_BYTES, first, count, at)
            group += 1
        return group


class _Half:
    """The base of both halves: opening, errors, growing buffers, counters."""

    def __init__(self, library: Library, kind: str, opening: Opening) -> None:
        self.library = library
        ops = getattr(library, kind)
        # Looked up once: a member of cffi's costs more than one of Python's.
        self._ops = SimpleNamespace(
            **{name: getattr(ops, name) for name in dir(ops)}
        )
        self.kind = kind
        self.rank = opening.tp_rank
        self.counters = library.counters(kind)
        count = len(self.counters)
        self._counters = ffi.new(f"{COUNTER}[]", count)
        read = layout("kvpull_counter", "value", count=count).unpack_from
        self._values = partial(read, ffi.buffer(self._counters))
        self._seen: tuple[int, ...] = ()
        # The scheduler half has no thread of its own.
        self._pipe = logs.pipe() if kind == "worker" else None
        self._kept: list[Any] = []  # what C points to while it is open
        self._bytes = ffi.new("char[]", 1 << 16)
        self._count = ffi.new("size_t *")
        made = ffi.new(f"struct kvpull_{kind} **")
        detail = new("kvpull_error_detail")
        code = self._ops.open(self._params(opening), made, detail)
        if code < 0 and self._pipe is not None:
            self._pipe.close()
        self._check(f"{kind} half refused", code, detail)
        self._handle = made[0]

    def _params(self, opening: Opening) -> Any:
        model = model_record(opening.model, self._kept)
        host = host_record(self._pipe, self._kept)
        groups = ffi.new("struct kvpull_group[]", len(opening.groups))
        for to, (tokens, kind) in zip(groups, opening.groups, strict=True):
            to.block_tokens, to.kind = tokens, kind
            if kind == _STATE:
                to.head_count = opening.tp_size
        config = ffi.new("char[]", opening.config_json.encode())
        engine_id = ffi.new("char[]", opening.engine_id.encode())
        self._kept += [groups, config, engine_id]
        return new(
            "kvpull_open_params",
            host=host,
            config_json=config,
            model=model,
            engine_id=engine_id,
            tp_size=opening.tp_size,
            tp_rank=opening.tp_rank,
            dp_rank=opening.dp_rank,
            groups=groups,
            group_bytes=ffi.sizeof("struct kvpull_group"),
            group_count=len(opening.groups),
            device_kind=opening.device[0],
            device_index=opening.device[1],
        )

    def _check(self, what: str, code: int, detail: Any = None) -> int:
        return checked(self.library, what, code, detail)

    def _take_bytes(self, what: str, call: Any) -> bytes:
        """Call (handle, bytes, capacity, count), with more room if it asks."""
        while True:
            code = call(
                self._handle, self._bytes, len(self._bytes), self._count
            )
            count = self._count[0]
            if code != _ETOOSMALL:
                break
            self._bytes = ffi.new("char[]", count)
        if code < 0:
            self._check(what, code)
        return ffi.unpack(self._bytes, count) if count else b""

    def counts(self) -> tuple[int, ...] | None:
        """Return the values of the counters, None if all are as last time."""
        code = self._ops.counters(
            self._handle, self._counters, len(self.counters), _COUNTER_BYTES
        )
        if code < 0:
            self._check("counters", code)
        values = self._values()
        if values == self._seen:
            return None
        self._seen = values
        return values

    def close(self) -> None:
        """Close; the second time a no-op."""
        if self._handle:
            handle, self._handle = self._handle, None
            self._ops.close(handle)
            if self._pipe is not None:
                self._pipe.close()

    @property
    def is_open(self) -> bool:
        """Whether close() was not called yet."""
        return bool(self._handle)


def _fatal(_context: Any, message: Any) -> None:
    text = ffi.string(message).decode(errors="replace")
    logger.critical("kvpull: %s: this process ends now", text)
    os.abort()


class SchedulerHalf(_Half):
    """The scheduler's table."""

    def __init__(self, library: Library, opening: Opening) -> None:
        super().__init__(library, "scheduler", opening)
        self._tokens = ffi.new("uint32_t *")
        # Made once: a struct costs as much as the call that it is for.
        self._request, self._fill_request = packed(
            "kvpull_request", "key", "parent_key", "ticket", "ticket_bytes",
            "prompt_tokens", "flags", "prompt_digest", "label", "trace",
            "adapter", "priority", "reserved", behind=f"{_LABEL_BYTES - 1}sx",
        )  # fmt: skip
        self._label_at = address(self._request + 1)
        self._blocks = _Blocks(len(opening.groups))
        self._allocation, self._fill_allocation = packed(
            "kvpull_allocation", "key", "external_tokens", "group_count",
            "groups", "group_bytes",
        )  # fmt: skip
        self._finish, self._fill_finish = packed(
            "kvpull_finish", "key", "reason", "flags", "computed_tokens",
            "last_block_bytes", "group_count", "payload_bytes", "groups",
            "group_bytes", "payload", "ticket", "ticket_capacity",
            "ticket_bytes",
        )  # fmt: skip
        self._payload = ffi.new("char[]", _PAYLOAD_MAX)
        self._make_room(1 << 14)

    def _make_room(self, byte_count: int) -> None:
        """Make room for a ticket, in or out."""
        self._ticket = ffi.buffer(ffi.new("char[]", byte_count))
        self._ticket_at = address(ffi.from_buffer(self._ticket))
        self._room = byte_count

    def rank_info(self, info: bytes) -> int:
        """Take a worker's rank info; the answer is an error or 0."""
        return self._ops.rank_info(self._handle, info, len(info))

    def ranks_missing(self) -> int:
        """Ranks that were not told of."""
        return self._ops.ranks_missing(self._handle)

    def request_new(
        self,
        key: int,
        parent_key: int,
        ticket: bytes,
        prompt: tuple[int, bytes],
        flags: int,
        label: str,
        trace: bytes = NO_TRACE,
        adapter: int = 0,
        priority: int = 0,
    ) -> int:
        """Tell of a request; prompt is (tokens, digest)."""
        tokens, digest = prompt
        at, count = 0, len(ticket)
        if 0 < count <= self._room:
            self._ticket[:count] = ticket
            at = self._ticket_at
        elif count:  # a client's: our own are as long as the room
            kept = ffi.from_buffer(ticket)
            at = address(kept)
        self._fill_request(
            key, parent_key, at, count, tokens, flags, digest, self._label_at,
            trace, adapter, priority, 0, label.encode()[1 - _LABEL_BYTES :],
        )  # fmt: skip
        return self._ops.request_new(self._handle, self._request)

    def matched_tokens(self, key: int, local_tokens: int) -> tuple[int, int]:
        """Return (KVPULL_MATCH_*, tokens)."""
        answer = self._ops.matched_tokens(
            self._handle, key, local_tokens, self._tokens
        )
        if answer == _MATCH_LOAD:
            return answer, self._tokens[0]
        return self._check("matched_tokens", answer), 0

    def match_failure(self, key: int) -> int:
        """Return why nothing is loaded: an error, 0 if nothing failed."""
        return self._ops.match_failure(self._handle, key)

    def allocated(
        self, key: int, tokens: int, block_lists: list[tuple[int, list[int]]]
    ) -> int:
        """Tell which blocks were taken; the answer is an error or 0."""
        count = self._blocks.fill(block_lists)
        self._fill_allocation(
            key, tokens, count, self._blocks.address, _BLOCKS_BYTES
        )
        return self._ops.allocated(self._handle, self._allocation)

    def request_finished(
        self,
        key: int,
        reason: int,
        tokens: int,
        block_lists: list[tuple[int, list[int]]],
        payload: bytes = b"",
        flags: int = 0,
    ) -> tuple[bool, bytes]:
        """Return (held, ticket); D's engine can have the payload.

        flags: KVPULL_FINISH_READY_NEEDED if blocks are written later.
        """
        count, finish = self._blocks.fill(block_lists), self._finish
        kept = ffi.from_buffer(payload)
        while True:
            self._fill_finish(
                key, reason, flags, tokens, 0, count, len(payload),
                self._blocks.address, _BLOCKS_BYTES, address(kept),
                self._ticket_at, self._room, 0,
            )  # fmt: skip
            answer = self._ops.request_finished(self._handle, finish)
            if answer != _ETOOSMALL:
                break
            self._make_room(finish.ticket_bytes)
        if answer < 0:
            self._check("request_finished", answer)
        return answer == _HELD, self._ticket[: finish.ticket_bytes]

    def payload(self, key: int) -> bytes:
        """Return the payload of the ticket that was pulled, b"" without one."""
        code = self._ops.payload_get(
            self._handle, key, self._payload, _PAYLOAD_MAX, self._count
        )
        return ffi.unpack(self._payload, self._count[0]) if code == 0 else b""

    def step_build(self) -> bytes:
        """Return this step's bytes for all workers."""
        return self._take_bytes("step_build", self._ops.step_build)

    def result_take(self, result: bytes) -> int:
        """Take a worker's bytes; the answer is an error or 0."""
        return self._ops.result_take(self._handle, result, len(result))

    def pending(self) -> int:
        """Return KVPULL_PENDING_* bits."""
        code = self._ops.has_pending(self._handle)
        return code if code >= 0 else self._check("has_pending", code)

    def reset(self, flags: int) -> None:
        """Forget, or revoke: KVPULL_RESET_*."""
        self._check("reset", self._ops.reset(self._handle, flags))

    def changed(self, adapter: int = 0) -> None:
        """Weights change, or an adapter, before its first byte does."""
        self._check("changed", self._ops.changed(self._handle, adapter))

    def loaded(self, key: int) -> int:
        """Ask whether what was LOADED may be used: an error or 0."""
        return self._ops.loaded(self._handle, key)


class WorkerHalf(_Half):
    """A worker's table."""

    def __init__(self, library: Library, opening: Opening) -> None:
        super().__init__(library, "worker", opening)
        self._records = ffi.new("struct kvpull_poll_record[]", _RECORDS)
        self._buffer = ffi.buffer(self._records)
        self._unpack = layout("kvpull_poll_record").iter_unpack

    def memory_alloc(
        self, byte_count: int, huge: bool, device: bool = False
    ) -> Any:
        """Return struct kvpull_memory of memory that consumers can map.

        device: of the device that the opening named; huge is False then.
        """
        memory = new("kvpull_memory")
        flags = CONST["KVPULL_MEMORY_HUGE"] if huge else 0
        flags |= CONST["KVPULL_MEMORY_DEVICE"] if device else 0
        self._check(
            f"memory for {byte_count} bytes of KV cache",
            self._ops.memory_alloc(self._handle, byte_count, flags, memory),
        )
        return memory

    def regions_register(
        self,
        region: tuple[int, int, int],
        caches: list[Geometry],
        head_first: int,
    ) -> None:
        """Tell where the blocks lie; region is (kind, base, bytes)."""
        kind, base, byte_count = region
        of = new(
            "kvpull_region",
            kind=kind,
            fd=-1,
            base=ffi.cast("void *", base),
            bytes=byte_count,
        )
        made = ffi.new("struct kvpull_cache[]", len(caches))
        for to, cache in zip(made, caches, strict=True):
            to.struct_size = ffi.sizeof("struct kvpull_cache")
            to.group_index = cache.group
            to.layer_first = cache.layer_first
            to.layer_count = cache.layer_count
            to.offset = cache.address - base
            to.layer_stride = cache.layer_stride
            to.block_stride = cache.block_stride
            to.row_stride = cache.row_stride
            to.head_stride = cache.head_stride
            to.block_count = cache.block_count
            to.row_count = cache.row_count
            to.head_first = self.rank if cache.is_state else head_first
            to.head_count = cache.head_count
            to.head_bytes = cache.head_bytes
            to.token_bytes = cache.token_bytes
        regions = new(
            "kvpull_regions",
            regions=of,
            caches=made,
            region_count=1,
            cache_count=len(caches),
        )
        detail = new("kvpull_error_detail")
        self._check(
            "the KV cache cannot be registered",
            self._ops.regions_register(self._handle, regions, detail),
            detail,
        )

    def rank_info(self) -> bytes:
        """Return the bytes for the scheduler half."""
        return self._take_bytes("rank_info", self._ops.rank_info)

    def step(self, step: bytes) -> int:
        """Take a step's bytes; the answer is an error or 0."""
        return self._ops.step(self._handle, step, len(step))

    def start_loads(self) -> None:
        """Start the loads of the last steps."""
        code = self._ops.start_loads(self._handle, ffi.NULL)
        if code < 0:
            self._check("start_loads", code)

    def engine_mark(self, stream: int) -> int:
        """Say that loads land behind what the stream has; 0: it cannot now."""
        mark = self._ops.engine_mark(self._handle, stream)
        return mark if mark >= 0 else self._check("engine_mark", mark)

    def hold_ready_after(self, key: int, mark: int) -> int:
        """Say that the mark is behind all writes of a hold's blocks.

        The answer is an error or 0: ENOKEY before the step with the hold,
        EAGAIN while too many holds wait.
        """
        return self._ops.hold_ready_after(self._handle, key, mark)

    def poll(self) -> list[Report]:
        """Return what ended."""
        reports: list[Report] = []
        while True:
            count = self._ops.poll(
                self._handle, self._records, _RECORDS, _RECORD_BYTES
            )
            if count < 0:
                self._check("poll", count)
            if count:
                made = self._buffer[: count * _RECORD_BYTES]
                reports += map(Report._make, self._unpack(made))
            if count < _RECORDS:
                return reports

    def result_build(self) -> bytes:
        """Return the bytes for the scheduler half's result_take()."""
        return self._take_bytes("result_build", self._ops.result_build)

    def revoke_all(self) -> int:
        """End every hold; return how many."""
        return self._check("revoke_all", self._ops.revoke_all(self._handle))
