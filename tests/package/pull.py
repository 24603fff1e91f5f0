# SPDX-License-Identifier: Apache-2.0
"""Two processes on an installed kvpull_vllm, without vLLM: one pulls from one.

pull.py FOLDER starts its other side by itself. Exit 0: every byte was right and
the producer had its blocks back.
"""

import json
import os
import select
import subprocess
import sys
from typing import Any

from kvpull_vllm.abi import CONST, Library, ffi, new

COUNT, BYTES, TOKENS = 32, 4096, 16
PROMPT = 16  # blocks


class Engine:
    """A scheduler half, a worker half, and a pool of blocks."""

    def __init__(self, folder: str, name: str) -> None:
        self.library = Library()
        self.kept: list[Any] = []
        text = {
            "config_json": json.dumps({"socket_dir": folder}),
            "engine_id": name,
        }
        model = self.keep(
            new(
                "kvpull_model",
                model=self.text("toy"),
                dtype=self.text("u8"),
                layout=self.text("LBHNC"),
                layer_count=1,
                head_count=1,
                head_bytes=BYTES // TOKENS,
            )
        )
        group = self.keep(
            ffi.new("struct kvpull_group *", {"block_tokens": TOKENS})
        )
        params = new(
            "kvpull_open_params",
            model=model,
            tp_size=1,
            groups=group,
            group_bytes=ffi.sizeof("struct kvpull_group"),
            group_count=1,
            **{key: self.text(value) for key, value in text.items()},
        )
        why = new("kvpull_error_detail")
        made = ffi.new("struct kvpull_scheduler **")
        self.must(self.library.scheduler.open(params, made, why))
        self.scheduler = made[0]
        made = ffi.new("struct kvpull_worker **")
        self.must(self.library.worker.open(params, made, why))
        self.worker = made[0]
        self.register(why)

    def keep(self, made: Any) -> Any:
        """Hold what C only points to."""
        self.kept.append(made)
        return made

    def text(self, words: str) -> Any:
        """Return a string of C that stays."""
        return self.keep(ffi.new("char[]", words.encode()))

    def must(self, code: int) -> int:
        """Return an answer that is no error."""
        if code < 0:
            sys.exit(ffi.string(self.library.ops.error_text(code)).decode())
        return code

    def register(self, why: Any) -> None:
        """Give the worker its pool, and the scheduler the worker's words."""
        worker = self.library.worker
        memory = new("kvpull_memory")
        self.must(worker.memory_alloc(self.worker, COUNT * BYTES, 0, memory))
        self.pool = ffi.buffer(memory.base, COUNT * BYTES)
        region = new(
            "kvpull_region", base=memory.base, bytes=COUNT * BYTES, fd=-1
        )
        cache = new(
            "kvpull_cache",
            layer_count=1,
            block_stride=BYTES,
            block_count=COUNT,
            row_count=1,
            head_count=1,
            head_stride=BYTES,
            head_bytes=BYTES,
        )
        regions = new(
            "kvpull_regions",
            regions=region,
            region_count=1,
            caches=cache,
            cache_count=1,
        )
        self.must(worker.regions_register(self.worker, regions, why))
        info, count = ffi.new("char[]", 4096), ffi.new("size_t *")
        self.must(worker.rank_info(self.worker, info, 4096, count))
        self.must(
            self.library.scheduler.rank_info(self.scheduler, info, count[0])
        )

    def blocks(self, first: int) -> Any:
        """Return the prompt's blocks from a place of the pool on."""
        ids = self.keep(ffi.new("uint32_t[]", list(range(first, first + PROMPT))))
        return self.keep(
            ffi.new(
                "struct kvpull_blocks *",
                {"block_count": PROMPT, "block_ids": ids},
            )
        )

    def step(self) -> list[tuple[int, int]]:
        """Make a step; return the kinds and reasons of what was told."""
        scheduler, worker = self.library.scheduler, self.library.worker
        room, count = ffi.new("char[]", 1 << 16), ffi.new("size_t *")
        record = ffi.new("struct kvpull_poll_record *")
        told = []
        self.must(scheduler.step_build(self.scheduler, room, 1 << 16, count))
        self.must(worker.step(self.worker, room, count[0]))
        self.must(worker.start_loads(self.worker, ffi.NULL))
        while self.must(
            worker.poll(self.worker, record, 1, ffi.sizeof(record[0]))
        ):
            told.append((record.kind, record.reason))
        self.must(worker.result_build(self.worker, room, 1 << 16, count))
        if count[0]:
            self.must(scheduler.result_take(self.scheduler, room, count[0]))
        select.select([self.library.worker.event_fd(self.worker)], [], [], 0.1)
        return told

    def until(self, kind: str) -> int:
        """Step until something was told; its reason."""
        for _ in range(600):
            for told, reason in self.step():
                if told == CONST[kind]:
                    return reason
                sys.exit(f"told {told}, reason {reason}, not {kind}")
        sys.exit(f"nothing was told, not {kind}")


def produce(folder: str) -> None:
    """Hold a prompt, print its ticket, wait until it was pulled."""
    engine = Engine(folder, "p")
    for at in range(PROMPT):
        engine.pool[at * BYTES : (at + 1) * BYTES] = bytes([at + 1]) * BYTES
    request = new(
        "kvpull_request",
        key=1,
        prompt_tokens=PROMPT * TOKENS,
        flags=CONST["KVPULL_REQUEST_WANTS_HOLD"],
    )
    scheduler = engine.library.scheduler
    engine.must(scheduler.request_new(engine.scheduler, request))
    ticket = ffi.new("char[]", 1 << 16)
    finish = new(
        "kvpull_finish",
        key=1,
        computed_tokens=PROMPT * TOKENS,
        groups=engine.blocks(0),
        group_bytes=ffi.sizeof("struct kvpull_blocks"),
        group_count=1,
        ticket=ticket,
        ticket_capacity=1 << 16,
    )
    engine.must(scheduler.request_finished(engine.scheduler, finish))
    print(ffi.string(ticket, finish.ticket_bytes).decode(), flush=True)
    if engine.until("KVPULL_POLL_SENT") != CONST["KVPULL_END_RELEASED"]:
        sys.exit("the hold was not released")


def consume(folder: str, words: str) -> int:
    """Pull what a ticket names; return how many bytes are wrong."""
    engine = Engine(folder, "d")
    scheduler = engine.library.scheduler
    text = engine.text(words)
    request = new(
        "kvpull_request",
        key=1,
        prompt_tokens=PROMPT * TOKENS,
        flags=CONST["KVPULL_REQUEST_PULL"],
        ticket=text,
        ticket_bytes=len(words),
    )
    engine.must(scheduler.request_new(engine.scheduler, request))
    tokens = ffi.new("uint32_t *")
    while True:
        answer = engine.must(
            scheduler.matched_tokens(engine.scheduler, 1, 0, tokens)
        )
        if answer != CONST["KVPULL_MATCH_WAIT"]:
            break
        engine.step()
    if answer != CONST["KVPULL_MATCH_LOAD"]:
        sys.exit("the ticket was of no use")
    allocation = new(
        "kvpull_allocation",
        key=1,
        external_tokens=tokens[0],
        groups=engine.blocks(COUNT - PROMPT),
        group_bytes=ffi.sizeof("struct kvpull_blocks"),
        group_count=1,
    )
    engine.must(scheduler.allocated(engine.scheduler, allocation))
    engine.until("KVPULL_POLL_LOADED")
    finish = new("kvpull_finish", key=1)
    engine.must(scheduler.request_finished(engine.scheduler, finish))
    for _ in range(3):
        engine.step()  # the release goes out
    mine = bytes(engine.pool[(COUNT - PROMPT) * BYTES :])
    right = b"".join(bytes([at + 1]) * BYTES for at in range(PROMPT))
    return sum(a != b for a, b in zip(mine, right, strict=True))


def main() -> None:
    """Run the side that is asked for."""
    folder = sys.argv[1]
    if sys.argv[2:] == ["produce"]:
        produce(folder)
        return
    os.makedirs(folder, mode=0o700, exist_ok=True)
    with subprocess.Popen(
        [sys.executable, __file__, folder, "produce"],
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        wrong = consume(folder, other.stdout.readline().strip())
        code = other.wait(60)
    print(f"python {sys.version.split()[0]}: {PROMPT} blocks, {wrong} wrong")
    sys.exit(code or wrong != 0)


if __name__ == "__main__":
    main()
