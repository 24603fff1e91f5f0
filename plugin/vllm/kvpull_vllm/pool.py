# SPDX-License-Identifier: Apache-2.0
"""The reader's table as an object, without a word of vLLM.

A handle is of one thread at a time, and lives in poll() alone: a thread that
sleeps on its descriptor polls where the engine does not, or nobody new would
be let in.
"""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from kvpull_vllm import logs
from kvpull_vllm.abi import CONST, Library, ffi, new
from kvpull_vllm.halves import Model, checked, host_record, model_record

ITEMS_MAX = CONST["KVPULL_READER_ITEMS_MAX"]
PEERS_MAX = CONST["KVPULL_READER_PEERS_MAX"]
NONE = 0xFFFFFFFF  # KVPULL_READER_NONE
EAGAIN = CONST["KVPULL_EAGAIN"]
_EINVAL = CONST["KVPULL_EINVAL"]
_EABORTED = CONST["KVPULL_EABORTED"]
_RECORDS = 64
_SLEEP_MS = 500  # between two looks at who is there
_DRAIN_S = 0.0005


class Naming(NamedTuple):
    """The facts that must be equal for bytes to mean the same."""

    model: Model
    hash: str
    seed: str
    tp_size: int


class Share(NamedTuple):
    """Memory of the engine's own: a file, and where it is mapped.

    Without them it is the library's, sealed, which is read faster.
    """

    chunk_bytes: int
    chunk_count: int
    fd: int = -1
    base: int = 0
    slot_folder: str | None = None  # of a file that chunks are spilled to
    slot_count: int = 0


class Place(NamedTuple):
    """Where a probe found a key."""

    peer: int
    incarnation: int
    in_file: int
    chunk: int
    generation: int


class Put(NamedTuple):
    """A chunk under a key."""

    key: bytes
    chunk: int
    generation: int
    epoch: int


class Ask:
    """A probe, a read or a spill; .found or .codes when it has ended."""

    def __init__(self, items: Sequence[Any], out: Any, is_probe: bool) -> None:
        self.items = items
        self.is_probe = is_probe
        self.peer = 0
        self.found: list[Place | None] = []
        self.codes: list[int] = []
        self._out = out

    def end(self, record: Any) -> None:
        """Take what was written."""
        if not self.is_probe:
            self.codes = list(self._out)
            return
        self.found = [
            None
            if record.code or place.chunk == NONE
            else Place(
                self.peer,
                record.incarnation,
                place.in_file,
                place.chunk,
                place.generation,
            )
            for place in self._out
        ]


    def give_up(self) -> None:
        """End the call as aborted: the handle is closed, so no record comes."""
        if self.is_probe:
            self.found = [None] * len(self.items)
        else:
            self.codes = [_EABORTED] * len(self.items)


class Pool:
    """A handle of the library, which is an owner and a reader."""

    def __init__(
        self,
        library: Library,
        config_json: str,
        naming: Naming,
        engine_id: str,
    ) -> None:
        self._library, self._ops = library, library.reader
        self._pipe = logs.pipe()
        self._kept: list[Any] = []
        self._lock = threading.Lock()
        self._asks: dict[int, Ask] = {}
        self._ended: list[Ask] = []
        self._records = ffi.new("struct kvpull_reader_record[]", _RECORDS)
        self._number = ffi.new("uint32_t *")
        self._long = ffi.new("uint64_t *")
        self._stop = os.eventfd(0, os.EFD_CLOEXEC)
        self._handle: Any = None
        self.idle: Callable[[], None] | None = None  # what the thread does, too
        texts = [
            ffi.new("char[]", text.encode()) for text in (config_json, engine_id)
        ]
        params = new(
            "kvpull_reader_params",
            host=host_record(self._pipe, self._kept),
            config_json=texts[0],
            naming=self._naming(naming),
            engine_id=texts[1],
        )
        made, detail = ffi.new("struct kvpull_reader **"), self._detail()
        code = self._ops.open(params, made, detail)
        if code < 0:
            os.close(self._stop)
            if self._pipe is not None:
                self._pipe.close()
        checked(library, "pool refused", code, detail)
        self._handle = made[0]
        self._thread = threading.Thread(
            target=self._run, name="kvpull pool", daemon=True
        )
        self._thread.start()

    @staticmethod
    def _detail() -> Any:
        return new("kvpull_error_detail")

    def _naming(self, naming: Naming) -> Any:
        texts = [
            ffi.new("char[]", text.encode())
            for text in (naming.hash, naming.seed)
        ]
        made = new(
            "kvpull_reader_naming",
            model=model_record(naming.model, self._kept),
            hash=texts[0],
            seed=texts[1],
            tp_size=naming.tp_size,
        )
        self._kept += [texts, made]
        return made

    def _call(self, name: str, *args: Any) -> int:
        with self._lock:
            if not self._handle:
                return _EINVAL
            return getattr(self._ops, name)(self._handle, *args)

    def _run(self) -> None:
        waits = select.poll()
        waits.register(self._stop, select.POLLIN)
        if (own := self._call("event_fd")) >= 0:
            waits.register(own, select.POLLIN)
        while (self._stop, select.POLLIN) not in waits.poll(_SLEEP_MS):
            self._poll()
            if self.idle is not None:
                self.idle()

    def _poll(self) -> None:
        with self._lock:
            count = _RECORDS if self._handle else 0
            while count == _RECORDS:
                size = ffi.sizeof("struct kvpull_reader_record")
                count = self._ops.poll(
                    self._handle, self._records, _RECORDS, size
                )
                for record in self._records[0 : max(count, 0)]:
                    ask = self._asks.pop(record.id)
                    ask.end(record)
                    self._ended.append(ask)

    def close(self) -> None:
        """End what is in flight, unshare, and free all."""
        if not self._handle:
            return
        os.eventfd_write(self._stop, 1)
        self._thread.join()
        with self._lock:
            handle, self._handle = self._handle, None
            self._ops.close(handle)
            for ask in self._asks.values():
                ask.give_up()
                self._ended.append(ask)
            self._asks.clear()
        os.close(self._stop)
        if self._pipe is not None:
            self._pipe.close()

    # ---- the owner ----

    def share(self, share: Share) -> Any:
        """Let readers in; return the chunks' bytes, or raise KvpullError."""
        params = new(
            "kvpull_reader_share",
            chunk_bytes=share.chunk_bytes,
            chunk_count=share.chunk_count,
        )
        if share.slot_folder is not None:
            folder = ffi.new("char[]", os.fsencode(share.slot_folder))
            params.slot_folder, params.slot_count = folder, share.slot_count
        if share.fd >= 0:
            params.flags = CONST["KVPULL_READER_SHARE_FD"]
            params.fd = share.fd
            params.base = ffi.cast("void *", share.base)
        memory, detail = new("kvpull_memory"), self._detail()
        code = self._call("share", params, memory, detail)
        checked(self._library, "no memory is shared", code, detail)
        return ffi.buffer(memory.base, share.chunk_bytes * share.chunk_count)

    def address(self) -> str:
        """Return what others' peer_add() takes."""
        text, count = ffi.new("char[]", 4096), ffi.new("size_t *")
        code = self._call("address", text, len(text), count)
        checked(self._library, "no address", code)
        return ffi.string(text).decode()

    def bump(self, chunks: Sequence[int]) -> None:
        """Before their first byte is written again."""
        self._call(
            "guard_bump", ffi.new("uint32_t[]", chunks), len(chunks), ffi.NULL
        )

    def bump_all(self, naming: Naming | None = None) -> None:
        """End all guards, and name keys by another namespace from here on."""
        detail = self._detail()
        record = ffi.NULL if naming is None else self._naming(naming)
        code = self._call("guard_bump_all", record, detail)
        if self._handle:
            checked(self._library, "namespace refused", code, detail)

    def begin(self, chunk: int) -> int:
        """Say that a chunk will be written; return its generation."""
        if self._call("write_begin", chunk) == _EINVAL:
            self.bump([chunk])  # listed yet: vLLM has told us of no end
            self._call("write_begin", chunk)
        self._call("generation", chunk, self._long)
        return self._long[0]

    def end(self, chunk: int) -> None:
        """No byte of the write can land any more."""
        self._call("write_end", chunk)

    def epoch(self) -> int:
        """Return what becomes more at each bump_all()."""
        self._call("epoch", self._long)
        return self._long[0]

    def put(self, key: bytes, chunk: int, generation: int, epoch: int) -> int:
        """List a chunk; return 0 or an error."""
        record, _texts = self._puts([Put(key, chunk, generation, epoch)])
        return self._call("put", record)

    @staticmethod
    def _puts(puts: Sequence[Put]) -> tuple[Any, list[Any]]:
        """Return them as records, and what those point to."""
        array = ffi.new("struct kvpull_reader_put[]", len(puts))
        texts = [ffi.from_buffer(put.key) for put in puts]
        for to, text, put in zip(array, texts, puts, strict=True):
            to.struct_size = ffi.sizeof("struct kvpull_reader_put")
            to.key.bytes, to.key.byte_count = text, len(put.key)
            to.chunk, to.generation, to.epoch = put[1:]
        return array, texts

    def spill(self, puts: Sequence[Put]) -> tuple[Ask, int]:
        """Copy chunks to the file; the code is 0 if an end will come."""
        array, _texts = self._puts(puts)
        codes = ffi.new("int32_t[]", len(puts))
        params = new(
            "kvpull_reader_spill",
            puts=array,
            put_bytes=ffi.sizeof("struct kvpull_reader_put"),
            codes=codes,
            put_count=len(puts),
        )
        ask = Ask(puts, codes, False)
        return ask, self._begun(ask, "spill", params, NONE)

    # ---- the reader ----

    def local_add(self, base: int, block_bytes: int, block_count: int) -> int:
        """Add own memory that is read into; return its number."""
        code = self._call(
            "local_add",
            ffi.cast("void *", base),
            block_bytes,
            block_count,
            self._number,
        )
        checked(self._library, "no memory to read into", code)
        return self._number[0]

    def peer_add(self, address: str) -> int:
        """Begin to connect; return its number or an error."""
        number = ffi.new("uint32_t *")
        code = self._call("peer_add", address.encode(), number)
        return code or number[0]

    def peer_remove(self, peer: int) -> None:
        """End what is in flight there."""
        self._call("peer_remove", peer)

    def peers(self) -> dict[int, int]:
        """Return each peer's state: 0, EAGAIN, or why it was given up."""
        array = ffi.new("struct kvpull_reader_peer[]", PEERS_MAX)
        size = ffi.sizeof("struct kvpull_reader_peer")
        count = max(0, self._call("peers", array, PEERS_MAX, size))
        return {one.peer: one.code for one in array[0:count]}

    def _begun(self, ask: Ask, name: str, params: Any, peer: int) -> int:
        """Begin it; nobody polls before it is known."""
        identity = ffi.new("uint64_t *")
        with self._lock:
            code = _EINVAL
            if self._handle:
                call = getattr(self._ops, name)
                code = call(self._handle, params, identity)
            if code == 0:
                ask.peer = peer
                self._asks[identity[0]] = ask
        return code

    def probe(self, peer: int, keys: Sequence[bytes]) -> tuple[Ask, int]:
        """Ask a peer for keys; the code is 0 if an end will come."""
        texts = [ffi.from_buffer(key) for key in keys]
        array = ffi.new("struct kvpull_reader_key[]", len(keys))
        for to, text in zip(array, texts, strict=True):
            to.bytes, to.byte_count = text, len(text)
        places = ffi.new("struct kvpull_reader_place[]", len(keys))
        params = new(
            "kvpull_reader_probe",
            peer=peer,
            key_count=len(keys),
            keys=array,
            key_bytes=ffi.sizeof("struct kvpull_reader_key"),
            places=places,
            place_bytes=ffi.sizeof("struct kvpull_reader_place"),
        )
        ask = Ask(keys, places, True)
        return ask, self._begun(ask, "probe", params, peer)

    def read(
        self, local: int, pieces: Sequence[tuple[Place, int]]
    ) -> tuple[Ask, int]:
        """Read places of one peer into own blocks."""
        first = pieces[0][0]
        array = ffi.new("struct kvpull_reader_piece[]", len(pieces))
        for to, (place, block) in zip(array, pieces, strict=True):
            to.chunk, to.block = place.chunk, block
            to.generation = place.generation
        codes = ffi.new("int32_t[]", len(pieces))
        params = new(
            "kvpull_reader_read",
            peer=first.peer,
            local=local,
            pieces=array,
            piece_bytes=ffi.sizeof("struct kvpull_reader_piece"),
            codes=codes,
            piece_count=len(pieces),
            incarnation=first.incarnation,
        )
        ask = Ask(pieces, codes, False)
        return ask, self._begun(ask, "read", params, first.peer)

    def ends(self) -> list[Ask]:
        """Return what has ended."""
        self._poll()
        with self._lock:
            ended, self._ended = self._ended, []
        return ended

    def stop_reads(self) -> None:
        """Wait until no byte of a read can land; give up spills."""
        while reads := [
            number
            for number, ask in list(self._asks.items())
            if not ask.is_probe
        ]:
            for number in reads:
                self._call("cancel", number)
            self._poll()
            time.sleep(_DRAIN_S)
