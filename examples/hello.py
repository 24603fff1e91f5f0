#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Two processes: P holds a block of KV memory, and D pulls it; see hello.c.

The pipe has the router's place. The package's binding needs no engine:
    pip install ./plugin/vllm && python hello.py P | python hello.py D
"""

import sys
import time

from kvpull_vllm.abi import CONST, Library, ffi
from kvpull_vllm.halves import Geometry, Model, Opening
from kvpull_vllm.halves import SchedulerHalf, WorkerHalf

KEY, TOKENS, BYTES = 1, 16, 4096
prompt = TOKENS, bytes(16)  # a digest of its tokens, or zeros
blocks = [(0, [0])]  # of each group: the index of its first block, block ids

# The KV cache, alike at both ends: a layer with one head, and one block.
role = sys.argv[1]
model = Model("hello", "", "", "u8", "LBHNC", "", 1, 1, BYTES // TOKENS, False)
opening = Opening("{}", model, role, 1, 0, 0, [(TOKENS, 0)])
library = Library()
scheduler = SchedulerHalf(library, opening)  # keeps the books
worker = WorkerHalf(library, opening)  # has memory and peers
base = worker.memory_alloc(BYTES, huge=False).base
at = int(ffi.cast("uintptr_t", base))
block = Geometry(0, 0, 1, at, 0, BYTES, 0, BYTES, 1, 1, 1, BYTES, 0)
worker.regions_register((CONST["KVPULL_REGION_PROVIDED"], at, BYTES), [block], 0)
scheduler.rank_info(worker.rank_info())

if role == "P":  # computes the block, and keeps it for who has the ticket
    ffi.memmove(base, b"hello from the memory of P", 26)
    wants = CONST["KVPULL_REQUEST_WANTS_HOLD"]
    scheduler.request_new(KEY, 0, b"", prompt, wants, "")
    stop = CONST["KVPULL_FINISH_STOP"]
    held, ticket = scheduler.request_finished(KEY, stop, TOKENS, blocks)
    print(ticket.decode(), flush=True)
else:  # takes the ticket, and a block of its own that the bytes land in
    ticket = sys.stdin.readline().strip().encode()
    pull = CONST["KVPULL_REQUEST_PULL"]
    if code := scheduler.request_new(KEY, 0, ticket, prompt, pull, ""):
        sys.exit("D: " + library.error_text(code))
    _, tokens = scheduler.matched_tokens(KEY, 0)
    scheduler.allocated(KEY, tokens, blocks)

ended = []  # SENT at P, LOADED or FAILED at D
while not ended:  # a step: decisions go to the worker half, reports come back
    worker.step(scheduler.step_build())
    worker.start_loads()
    ended = worker.poll()
    scheduler.result_take(worker.result_build())
    time.sleep(0.001)
if ended[0].kind == CONST["KVPULL_POLL_LOADED"]:
    print("D:", ffi.string(ffi.cast("char *", base)).decode())
worker.close()  # at D that releases the ticket: P's hold ends
scheduler.close()
