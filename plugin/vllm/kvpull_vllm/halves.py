# SPDX-License-Identifier: Apache-2.0
"""The two halves of the ABI as Python objects, without a word of vLLM."""

from __future__ import annotations

import hashlib
import logging
import os
from dataclasses import dataclass
from typing import Any

from kvpull_vllm import logs
from kvpull_vllm.abi import CONST, COUNTER, Library, ffi, new
from kvpull_vllm.layout import Geometry
from kvpull_vllm.logs import logger

_RECORDS = 256
_IDS = ffi.typeof("uint32_t[]")
_LABEL_BYTES = 128  # the library keeps less: the end
_MATCH_LOAD = CONST["KVPULL_MATCH_LOAD"]
_ETOOSMALL = CONST["KVPULL_ETOOSMALL"]
_HELD = CONST["KVPULL_FINISH_HELD"]
NO_TRACE = bytes(CONST["KVPULL_TRACE_BYTES"])
PHASES = ("queue", "connect", "read", "check")


class KvpullError(RuntimeError):
    """A call of the library failed; .code is an enum kvpull_error."""

    def __init__(self, what: str, code: int, text: str) -> None:
        super().__init__(f"kvpull: {what}: {text} ({code})")
        self.code = code


@dataclass(frozen=True)
class Model:
    """What must be equal at both ends; see struct kvpull_model."""

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
    """What a half is opened with; see struct kvpull_open_params."""

    config_json: str
    model: Model
    engine_id: str
    tp_size: int
    tp_rank: int
    dp_rank: int
    groups: list[tuple[int, int]]  # tokens a block, kind


@dataclass(frozen=True)
class Report:
    """A record of poll()."""

    key: int
    kind: int
    reason: int
    byte_count: int
    seconds: float
    # ns after its command, 0: not so far: taken up by a thread, connected, first
    # byte asked for, last byte, checked.
    reached: tuple[int, int, int, int, int]

    def phases(self) -> list[float]:
        """Return the seconds of each of PHASES; of one that is LOADED."""
        begun, _, asked, came, checked = self.reached
        ends = (begun, asked, came, checked)
        return [
            (end - start) / 1e9
            for start, end in zip((0, *ends), ends, strict=False)
        ]


def fitting(name: str) -> bytes:
    """Return a name of the model record; of a long one its digest, too.

    Paths of weights differ at their ends: they are not just cut.
    """
    text, most = name.encode(), CONST["KVPULL_TEXT_BYTES_MAX"] - 1
    if len(text) <= most:
        return text
    digest = hashlib.blake2b(text, digest_size=8).hexdigest().encode()
    kept = text[: most - len(digest) - 1].decode(errors="ignore").encode()
    return kept + b"#" + digest


class _Blocks:
    """struct kvpull_blocks[], made once and filled for each call."""

    def __init__(self, count: int) -> None:
        self.array = ffi.new("struct kvpull_blocks[]", count)
        self._groups = [self.array[index] for index in range(count)]
        self._ids: list[Any] = [None] * count

    def fill(self, block_lists: list[tuple[int, list[int]]]) -> int:
        """Take (first index, ids) a group; return how many groups."""
        count = 0
        for first, ids in block_lists:
            group = self._groups[count]
            group.first_index = first
            group.block_count = len(ids)
            group.block_ids = self._ids[count] = ffi.new(_IDS, ids)
            count += 1
        return count


class _Half:
    """What both halves share: opening, errors, growing buffers, counters."""

    def __init__(self, library: Library, kind: str, opening: Opening) -> None:
        self.library = library
        self._ops = getattr(library, kind)
        self.kind = kind
        self.rank = opening.tp_rank
        self.counters = library.counters(kind)
        self._counts = ffi.new(f"{COUNTER}[]", len(self.counters))
        self._seen = b""
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
        texts = {
            name: ffi.new("char[]", fitting(value))
            for name in (
                "model",
                "revision",
                "weights",
                "dtype",
                "layout",
                "attention",
                "config",
                "engine",
            )
            if (value := getattr(opening.model, name))
        }
        model = new(
            "kvpull_model",
            layer_count=opening.model.layer_count,
            head_count=opening.model.head_count,
            head_bytes=opening.model.head_bytes,
            replicated=int(opening.model.replicated),
            **texts,
        )
        groups = ffi.new("struct kvpull_group[]", len(opening.groups))
        for to, (tokens, kind) in zip(groups, opening.groups, strict=True):
            to.block_tokens, to.kind = tokens, kind
        fatal = ffi.callback("kvpull_fatal_fn", _fatal)
        if self._pipe is not None:
            log, context = self._pipe.callback, self._pipe.context
        else:
            log = ffi.callback("kvpull_log_fn", logs.direct)
            context = ffi.NULL
        host = new("kvpull_host", log=log, fatal=fatal, context=context)
        host.log_level = CONST[
            "KVPULL_LOG_DEBUG"
            if logger.isEnabledFor(logging.DEBUG)
            else "KVPULL_LOG_INFO"
        ]
        config = ffi.new("char[]", opening.config_json.encode())
        engine_id = ffi.new("char[]", opening.engine_id.encode())
        self._kept += [
            texts,
            model,
            groups,
            log,
            fatal,
            host,
            config,
            engine_id,
        ]
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
        )

    def _check(self, what: str, code: int, detail: Any = None) -> int:
        if code >= 0:
            return code
        text = self.library.error_text(code)
        if detail is not None and ffi.string(detail.message):
            name = ffi.string(detail.field).decode()
            text = f"{name}: " if name else ""
            text += ffi.string(detail.message).decode(errors="replace")
        raise KvpullError(what, code, text)

    def _take_bytes(self, what: str, call: Any) -> bytes:
        """Call (handle, bytes, capacity, count), with more room if it asks."""
        while True:
            code = call(
                self._handle, self._bytes, len(self._bytes), self._count
            )
            if code != CONST["KVPULL_ETOOSMALL"]:
                break
            self._bytes = ffi.new("char[]", self._count[0])
        self._check(what, code)
        return ffi.unpack(self._bytes, self._count[0])

    def stats(self) -> dict[str, int] | None:
        """Return what is counted, None if all is as last time."""
        counts, size = self._counts, ffi.sizeof(COUNTER)
        self._check(
            "counters",
            self._ops.counters(self._handle, counts, len(counts), size),
        )
        seen = bytes(ffi.buffer(counts))
        if seen == self._seen:
            return None
        self._seen = seen
        return {
            counter.name: count.value
            for counter, count in zip(self.counters, counts, strict=True)
        }

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
        self._ticket = ffi.new("char[]", 1 << 14)
        self._tokens = ffi.new("uint32_t *")
        # Made once: a struct costs as much as the call that it is for.
        text = ffi.new("char[]", _LABEL_BYTES)
        self._kept.append(text)
        self._label = ffi.buffer(text)
        self._request = new("kvpull_request", label=text)
        self._digest = ffi.buffer(self._request.prompt_digest)
        self._trace = ffi.buffer(self._request.trace)
        self._blocks = _Blocks(len(opening.groups))
        groups = {
            "groups": self._blocks.array,
            "group_bytes": ffi.sizeof("struct kvpull_blocks"),
        }
        self._allocation = new("kvpull_allocation", **groups)
        self._finish = new(
            "kvpull_finish",
            ticket=self._ticket,
            ticket_capacity=len(self._ticket),
            **groups,
        )

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
    ) -> int:
        """Tell of a request; prompt is (tokens, digest)."""
        request = self._request
        request.key = key
        request.parent_key = parent_key
        request.ticket = ffi.from_buffer(ticket) if ticket else ffi.NULL
        request.ticket_bytes = len(ticket)
        request.prompt_tokens = prompt[0]
        request.flags = flags
        self._digest[:] = prompt[1]
        self._trace[:] = trace
        text = label.encode()[1 - _LABEL_BYTES :] + b"\0"
        self._label[: len(text)] = text
        return self._ops.request_new(self._handle, request)

    def matched_tokens(self, key: int, local_tokens: int) -> tuple[int, int]:
        """Return (KVPULL_MATCH_*, tokens)."""
        answer = self._check(
            "matched_tokens",
            self._ops.matched_tokens(
                self._handle, key, local_tokens, self._tokens
            ),
        )
        return answer, self._tokens[0] if answer == _MATCH_LOAD else 0

    def allocated(
        self, key: int, tokens: int, block_lists: list[tuple[int, list[int]]]
    ) -> int:
        """Tell which blocks were taken; the answer is an error or 0."""
        allocation = self._allocation
        allocation.key = key
        allocation.external_tokens = tokens
        allocation.group_count = self._blocks.fill(block_lists)
        return self._ops.allocated(self._handle, allocation)

    def request_finished(
        self,
        key: int,
        reason: int,
        tokens: int,
        block_lists: list[tuple[int, list[int]]],
    ) -> tuple[bool, bytes]:
        """Return (held, ticket)."""
        finish = self._finish
        finish.key = key
        finish.reason = reason
        finish.computed_tokens = tokens
        finish.group_count = self._blocks.fill(block_lists)
        while True:
            answer = self._ops.request_finished(self._handle, finish)
            if answer != _ETOOSMALL:
                break
            self._ticket = ffi.new("char[]", finish.ticket_bytes)
            finish.ticket = self._ticket
            finish.ticket_capacity = len(self._ticket)
        self._check("request_finished", answer)
        return (
            answer == _HELD,
            ffi.unpack(self._ticket, finish.ticket_bytes),
        )

    def step_build(self) -> bytes:
        """Return this step's bytes for all workers."""
        return self._take_bytes("step_build", self._ops.step_build)

    def result_take(self, result: bytes) -> int:
        """Take a worker's bytes; the answer is an error or 0."""
        return self._ops.result_take(self._handle, result, len(result))

    def pending(self) -> int:
        """Return KVPULL_PENDING_* bits."""
        return self._check("has_pending", self._ops.has_pending(self._handle))

    def reset(self, flags: int) -> None:
        """Forget, or revoke: KVPULL_RESET_*."""
        self._check("reset", self._ops.reset(self._handle, flags))


class WorkerHalf(_Half):
    """A worker's table."""

    def __init__(self, library: Library, opening: Opening) -> None:
        super().__init__(library, "worker", opening)
        self._records = ffi.new("struct kvpull_poll_record[]", _RECORDS)

    def memory_alloc(self, byte_count: int, huge: bool) -> Any:
        """Return struct kvpull_memory of memory that consumers can map."""
        memory = new("kvpull_memory")
        flags = CONST["KVPULL_MEMORY_HUGE"] if huge else 0
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
            to.head_first = head_first
            to.head_count = cache.head_count
            to.head_bytes = cache.head_bytes
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
        self._check(
            "start_loads", self._ops.start_loads(self._handle, ffi.NULL)
        )

    def poll(self) -> list[Report]:
        """Return what ended."""
        reports: list[Report] = []
        while True:
            count = self._check(
                "poll",
                self._ops.poll(
                    self._handle,
                    self._records,
                    _RECORDS,
                    ffi.sizeof("struct kvpull_poll_record"),
                ),
            )
            for record in self._records[0:count]:
                reports.append(
                    Report(
                        record.key,
                        record.kind,
                        record.reason,
                        record.bytes,
                        record.took_ns / 1e9,
                        (
                            record.begun_ns,
                            record.connected_ns,
                            record.asked_ns,
                            record.came_ns,
                            record.took_ns,
                        ),
                    )
                )
            if count < _RECORDS:
                return reports

    def result_build(self) -> bytes:
        """Return the bytes for the scheduler half's result_take()."""
        return self._take_bytes("result_build", self._ops.result_build)

    def revoke_all(self) -> int:
        """End every hold; return how many."""
        return self._check("revoke_all", self._ops.revoke_all(self._handle))
