# SPDX-License-Identifier: Apache-2.0
"""An engine on torch: a small transformer over a paged KV cache of a device.

It computes as vLLM does on a GPU. Work is queued on a stream; the next step is
prepared while one is in flight; newly allocated blocks are zeroed before the
step that uses them; a request that ends gives its blocks away at once, though a
step in flight may still write them. Marks order pulls against all of that, in
the calls that kvpull_vllm makes.

A device is CUDA's, or the fake driver's. There a stream is a thread that runs
the engine's kernels, and a kernel finds the cache, whose addresses no CPU may
touch, in the fake's own mapping of it.
"""

from __future__ import annotations

import ctypes
import hashlib
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from kvpull_vllm.abi import CONST, Library, address
from kvpull_vllm.halves import (
    Geometry,
    Model,
    Opening,
    Report,
    SchedulerHalf,
    WorkerHalf,
)
from kvpull_vllm.memory import ProvidedMemory

LAYERS, HIDDEN, HEADS, KV_HEADS, HEAD = 2, 64, 4, 2, 16
WORDS, INNER = 256, 128
BLOCK = 16  # tokens
HEAD_BYTES = 2 * HEAD * 2  # K and V of a token, fp16
BLOCK_BYTES = KV_HEADS * BLOCK * HEAD_BYTES
CHUNK = 40  # tokens of a prompt in one step: no multiple of a block
RUNNING_MAX = 8
LONGEST = 2048  # tokens of a request

Kernel = Callable[[], "torch.Tensor | None"]
Pending = Callable[[], list[int]]


class CudaDevice:
    """A GPU: a stream of its own, as vLLM's runner has one."""

    place = "cuda:0"
    kind = CONST["KVPULL_DEVICE_CUDA"], 0

    def __init__(self) -> None:
        torch.cuda.init()
        self._stream = torch.cuda.Stream()
        self._cycles = 1000 * 1500  # of a clock near 1.5 GHz: a millisecond
        self.handle = int(self._stream.cuda_stream)

    def memory(self, worker: WorkerHalf) -> ProvidedMemory:
        """Return the context in which the KV cache is allocated."""
        return ProvidedMemory(worker, "cuda")

    def put(self, numbers: list[int]) -> torch.Tensor:
        """Return numbers on the device, in a kernel; no call waits for it."""
        made = torch.tensor(numbers, dtype=torch.int64).pin_memory()
        return made.to(self.place, non_blocking=True)

    def run(self, kernel: Kernel) -> Pending:
        """Queue a kernel; return what waits for it and gives its numbers."""
        with torch.cuda.stream(self._stream):
            made, host = kernel(), None
            if made is not None:
                host = torch.empty(
                    made.shape, dtype=made.dtype, pin_memory=True
                )
                host.copy_(made, non_blocking=True)
            event = torch.cuda.Event()
            event.record(self._stream)

        def wait() -> list[int]:
            event.synchronize()
            return [] if host is None else host.tolist()

        return wait

    def idle(self, ms: float) -> None:
        """Queue so much time, in which the stream does nothing."""
        with torch.cuda.stream(self._stream):
            torch.cuda._sleep(int(self._cycles * ms))

    def synchronize(self) -> None:
        """Wait until nothing is queued."""
        self._stream.synchronize()

    def close(self) -> None:
        """Give everything back."""
        self.synchronize()


_KERNEL = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class FakeMemory(ProvidedMemory):
    """The KV cache where the fake's kernels find it."""

    def __init__(self, worker: WorkerHalf, driver: ctypes.CDLL) -> None:
        super().__init__(worker, "cuda")
        self._driver = driver

    def tensor_at(
        self, base: int, byte_count: int, device: Any
    ) -> torch.Tensor:
        """Return the tensor over the fake's own mapping."""
        view = self._driver.fake_view(base, byte_count)
        assert view
        kept = (ctypes.c_char * byte_count).from_address(view)
        return torch.frombuffer(kept, dtype=torch.int8)


class FakeDevice:
    """The fake driver's GPU, whose kernels are torch's on the CPU."""

    place = "cpu"
    kind = CONST["KVPULL_DEVICE_CUDA"], 0

    def __init__(self, driver: Path) -> None:
        # Once: the library finds the driver that is loaded under its name.
        self._driver = calls = ctypes.CDLL(str(driver.resolve()))
        calls.fake_view.restype = ctypes.c_void_p
        calls.fake_view.argtypes = [ctypes.c_uint64, ctypes.c_uint64]
        pointer = ctypes.c_void_p
        calls.fake_run.argtypes = [pointer, _KERNEL, pointer]
        for call in (calls.cuStreamSynchronize, calls.cuStreamDestroy):
            call.argtypes = [ctypes.c_void_p]
        context, stream = ctypes.c_void_p(), ctypes.c_void_p()
        self._call("cuInit", 0)
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        self._call("cuCtxPushCurrent", context)
        self._call("cuStreamCreate", ctypes.byref(stream), 1)
        self.handle = int(stream.value or 0)
        self._kernels: deque[Callable[[], None]] = deque()
        self._next = _KERNEL(lambda _: self._kernels.popleft()())

    def _call(self, name: str, *arguments: Any) -> None:
        code = getattr(self._driver, name)(*arguments)
        if code:
            raise RuntimeError(f"fake cuda: {name}: {code}")

    def memory(self, worker: WorkerHalf) -> ProvidedMemory:
        """Return the context in which the KV cache is allocated."""
        return FakeMemory(worker, self._driver)

    def put(self, numbers: list[int]) -> torch.Tensor:
        """Return numbers on the device, in a kernel."""
        return torch.tensor(numbers, dtype=torch.int64)

    def run(self, kernel: Kernel) -> Pending:
        """Queue a kernel; return what waits for it and gives its numbers."""
        ended, made, failed = threading.Event(), [], []

        def call() -> None:
            try:
                numbers = kernel()
                made.extend([] if numbers is None else numbers.tolist())
            except Exception as error:  # C has no way to pass it on
                failed.append(error)
            ended.set()

        self._kernels.append(call)
        self._call("fake_run", self.handle, self._next, None)

        def wait() -> list[int]:
            ended.wait()
            if failed:
                raise failed[0]
            return made

        return wait

    def idle(self, ms: float) -> None:
        """Queue so much time, in which the stream does nothing."""
        self.run(lambda: time.sleep(ms / 1000))

    def synchronize(self) -> None:
        """Wait until nothing is queued."""
        self._call("cuStreamSynchronize", self.handle)

    def close(self) -> None:
        """Give everything back, and end: the fake looks for what is left."""
        self._call("cuStreamDestroy", self.handle)
        self._call("cuCtxPopCurrent", ctypes.byref(ctypes.c_void_p()))
        self._call("cuDevicePrimaryCtxRelease", 0)
        ctypes.CDLL(None).exit(0)


Device = CudaDevice | FakeDevice


class Transformer:
    """The model: float64, so that an order of sums changes no token.

    Its last bits depend on how many tokens are computed at once. They are gone
    where K and V are rounded to fp16.
    """

    def __init__(self, seed: int, device: str) -> None:
        random = torch.Generator().manual_seed(seed)

        def matrix(rows: int, columns: int, gain: float) -> torch.Tensor:
            made = torch.randn(
                rows, columns, generator=random, dtype=torch.float64
            )
            return (made * (gain / columns**0.5)).to(device).T

        # Gains as in model.py: attention matters, so a wrong block is a wrong
        # token.
        self._words = matrix(WORDS, HIDDEN, 0.5 * HIDDEN**0.5).T
        self._head = matrix(WORDS, HIDDEN, 1.0)
        self._layers = [
            {
                "q": matrix(HEADS * HEAD, HIDDEN, 1.6),
                "k": matrix(KV_HEADS * HEAD, HIDDEN, 1.6),
                "v": matrix(KV_HEADS * HEAD, HIDDEN, 3.0),
                "o": matrix(HIDDEN, HEADS * HEAD, 3.0),
                "up": matrix(INNER, HIDDEN, 1.0),
                "down": matrix(HIDDEN, INNER, 1.0),
            }
            for _ in range(LAYERS)
        ]
        places = torch.arange(LONGEST, dtype=torch.float64)[:, None]
        turns = torch.arange(HEAD // 2, dtype=torch.float64) * 2 / HEAD
        angles = places * 10000.0**-turns
        self._cos = angles.cos().to(device)[:, None]
        self._sin = angles.sin().to(device)[:, None]
        self._places = torch.arange(LONGEST, device=device)

    @staticmethod
    def _norm(x: torch.Tensor) -> torch.Tensor:
        return x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt()

    def _turned(self, x: torch.Tensor, first: int, end: int) -> torch.Tensor:
        cos, sin = self._cos[first:end], self._sin[first:end]
        low, high = x[..., : HEAD // 2], x[..., HEAD // 2 :]
        return torch.cat((low * cos - high * sin, high * cos + low * sin), -1)

    def scores(
        self,
        kv: torch.Tensor,
        words: torch.Tensor,
        table: torch.Tensor,
        first: int,
        end: int,
    ) -> torch.Tensor:
        """Compute tokens [first, end) of a request, whose words are told.

        Their K and V go into the cache, [layer, block, head, token, K and V],
        and attention sees that of all tokens before. Return the next word's
        scores.
        """
        count, at = end - first, self._places[first:end]
        blocks, rows = table[at // BLOCK], at % BLOCK
        is_seen = self._places[:end] <= at[:, None]
        x = self._words[words[first:end]]
        for number, layer in enumerate(self._layers):
            y = self._norm(x)
            q = (y @ layer["q"]).view(count, HEADS, HEAD)
            k = (y @ layer["k"]).view(count, KV_HEADS, HEAD)
            v = (y @ layer["v"]).view(count, KV_HEADS, HEAD)
            k = self._turned(k, first, end)
            kv[number][blocks, :, rows] = torch.cat((k, v), -1).half()
            seen = kv[number][table[: -(-end // BLOCK)]].transpose(1, 2)
            seen = seen.reshape(-1, KV_HEADS, 2 * HEAD)[:end].double()
            seen = seen.repeat_interleave(HEADS // KV_HEADS, 1).transpose(0, 1)
            q = self._turned(q, first, end).transpose(0, 1)
            weights = q @ seen[..., :HEAD].transpose(1, 2) * HEAD**-0.5
            weights = weights.masked_fill(~is_seen, float("-inf")).softmax(-1)
            y = (weights @ seen[..., HEAD:]).transpose(0, 1)
            x = x + y.reshape(count, -1) @ layer["o"]
            y = self._norm(x) @ layer["up"]
            x = x + torch.nn.functional.silu(y) @ layer["down"]
        return self._norm(x[-1]) @ self._head


@dataclass(eq=False)
class Request:
    """A request, as the router asks for it."""

    name: str
    prompt: list[int]
    count: int  # of tokens to make
    nth: int = 0  # a sibling's: its first token is the nth best one
    family: int = 0  # the key that siblings share; 0: it has none
    holds: bool = False
    ticket: bytes = b""
    # The engine's own from here on.
    key: int = 0
    table: list[int] = field(default_factory=list)
    words: Any = None  # all of its tokens, on the device
    computed: int = 0  # tokens whose KV is written, or queued to be
    queued: int = 0  # tokens of its answer that are queued
    made: list[int] = field(default_factory=list)
    is_gone: bool = False
    ends: bool = False  # the engine has told the library of its end
    fate: str = ""  # of its pull: loaded, failed or refused
    asked_at: float = 0.0
    first_at: float = 0.0

    @property
    def most(self) -> int:
        """Tokens whose KV it needs at most."""
        return len(self.prompt) + self.count - 1


@dataclass
class Lies:
    """What an engine does wrongly: the negative controls."""

    marks: bool = False  # it says that nothing is queued, always
    belief: bool = False  # it goes on with a pull that has failed


class Connector:
    """Both halves of kvpull in one engine, and its blocks' memory."""

    def __init__(
        self, device: Device, name: str, blocks: int, folder: str, library: str
    ) -> None:
        model = Model(
            "gpu model", "", "alike", "float16", "LBHNC", "", LAYERS, KV_HEADS,
            HEAD_BYTES, False,
        )  # fmt: skip
        config = (
            f'{{"socket_dir": "{folder}", "route": "shm", "device": '
            '"required", "share_prefix": false}'
        )
        groups = [(BLOCK, CONST["KVPULL_GROUP_FULL"])]
        told = (config, model, name, 1, 0, 0, groups)
        self.library = Library(library or None)
        self.worker = WorkerHalf(
            self.library, Opening(*told, device=device.kind)
        )
        self.scheduler = SchedulerHalf(self.library, Opening(*told))
        layer_bytes = blocks * BLOCK_BYTES
        with device.memory(self.worker) as context:
            self.tensor = torch.zeros(
                LAYERS * layer_bytes, dtype=torch.int8, device="cuda:0"
            )
        base = address(context.memory.base)
        self.worker.regions_register(
            (CONST["KVPULL_REGION_DEVICE"], base, context.memory.bytes),
            [
                Geometry(
                    0, 0, LAYERS, base, layer_bytes, BLOCK_BYTES, 0,
                    BLOCK * HEAD_BYTES, blocks, 1, KV_HEADS,
                    BLOCK * HEAD_BYTES, HEAD_BYTES,
                )
            ],
            0,
        )  # fmt: skip
        self.scheduler.rank_info(self.worker.rank_info())

    def count(self, name: str) -> int:
        """Return the value of a counter of the worker half."""
        names = [counter.name for counter in self.worker.counters]
        self.worker._seen = ()
        values = self.worker.counts()
        assert values is not None
        return values[names.index(name)]

    def close(self) -> None:
        """Close both halves; the tensor's memory is the worker's."""
        self.tensor = None
        self.scheduler.close()
        self.worker.close()


class Engine:
    """A scheduler and its one worker; without a connector it is alone."""

    def __init__(
        self,
        device: Device,
        seed: int,
        blocks: int,
        connector: Connector | None = None,
        lies: Lies | None = None,
        idle_ms: float = 0.0,
    ) -> None:
        self._device = device
        self._model = Transformer(seed, device.place)
        self.connector, self._lies = connector, lies or Lies()
        self.idle_ms = idle_ms  # before each zeroing: it comes late
        size = LAYERS * blocks * BLOCK_BYTES
        tensor = connector.tensor if connector else None
        if tensor is None:
            tensor = torch.zeros(size, dtype=torch.int8, device=device.place)
        self._kv = tensor.view(torch.float16).view(
            LAYERS, blocks, KV_HEADS, BLOCK, 2 * HEAD
        )
        self.block_count = blocks
        # The last ones that were freed go first: whoever still writes them is
        # found out.
        self.free = list(range(blocks))
        self._fresh: list[int] = []  # blocks to be zeroed before the next step
        self._waiting: deque[Request] = deque()
        self._loading: dict[int, Request] = {}
        self._running: list[Request] = []
        self._holds: dict[int, list[int]] = {}
        self._unready: list[int] = []  # holds whose writes are queued
        self._in_flight: deque[tuple[list[Request], Pending]] = deque()
        self._then: list[Request] = []  # to be asked when no hold is left
        self._next_key = 1
        self._steps = 0
        self.answers: list[tuple[Request, bytes]] = []
        self.begun: list[str] = []  # whose pulls were commanded
        self.seen: Counter[str] = Counter()

    def ask(self, request: Request) -> None:
        """Take a request."""
        request.key, self._next_key = self._next_key, self._next_key + 1
        request.asked_at = time.monotonic()
        self._waiting.append(request)
        if self.connector is None:
            return
        pull, hold = (
            CONST[f"KVPULL_REQUEST_{kind}"] for kind in ("PULL", "WANTS_HOLD")
        )
        words = b"".join(word.to_bytes(2, "little") for word in request.prompt)
        digest = hashlib.blake2b(words, digest_size=16).digest()
        code = self.connector.scheduler.request_new(
            request.key,
            request.family,
            request.ticket,
            (len(request.prompt), digest),
            (pull if request.ticket else 0) | (hold if request.holds else 0),
            request.name,
        )
        assert code == 0, self.connector.library.error_text(code)

    def abort(self, name: str) -> None:
        """End a request as that of a client that has gone."""
        known = (*self._waiting, *self._loading.values(), *self._running)
        for request in known:
            if request.name != name:
                continue
            request.is_gone = True
            if request in self._waiting:
                self._waiting.remove(request)
            if request in self._running:
                self._running.remove(request)
            self.seen["aborted"] += 1
            self._end(request, "ABORT")
            # The blocks of a pull are the library's until it is reported.
            if request.key not in self._loading:
                self._give_back(request)

    def revoke(self, then: Request) -> None:
        """End all holds at once; compute a request in their blocks."""
        assert self.connector is not None
        self.connector.scheduler.reset(CONST["KVPULL_RESET_REVOKE"])
        self._then.append(then)

    @property
    def is_idle(self) -> bool:
        """Whether no request has blocks, and no step is in flight."""
        return not (self._waiting or self._running or self._in_flight)

    # ---- blocks ----

    def _take(self, request: Request) -> bool:
        wanted = -(-request.most // BLOCK)
        if wanted > len(self.free):
            return False
        taken = [self.free.pop() for _ in range(wanted)]
        request.table = taken
        self._fresh += taken
        return True

    def _give_back(self, request: Request) -> None:
        self.free += request.table
        request.table = []

    # ---- a step ----

    def _admit(self) -> None:
        while self._then and not self._holds:
            self.ask(self._then.pop())
        while self._waiting:
            request = self._waiting[0]
            if len(self._running) + len(self._loading) >= RUNNING_MAX:
                return
            offered = self._offered(request)
            if offered < 0 or not self._take(request):
                return
            self._waiting.popleft()
            text = list(request.prompt)
            request.words = [0]
            self._device.run(lambda r=request, t=text: self._begin(r, t))
            if offered:
                self._loading[request.key] = request
                self.begun.append(request.name)
            else:
                self._running.append(request)
            if request.ticket:
                self._allocated(request, offered)

    def _begin(self, request: Request, text: list[int]) -> None:
        request.words = torch.nn.functional.pad(
            self._device.put(text), (0, request.count)
        )

    def _offered(self, request: Request) -> int:
        """Return how many tokens can be pulled; -1: that is not known yet."""
        if not request.ticket:
            return 0
        assert self.connector is not None
        answer, tokens = self.connector.scheduler.matched_tokens(request.key, 0)
        if answer == CONST["KVPULL_MATCH_WAIT"]:
            return -1
        # The prompt's last token is computed here.
        return min(tokens, len(request.prompt) - 1)

    def _allocated(self, request: Request, tokens: int) -> None:
        assert self.connector is not None
        blocks = request.table[: -(-tokens // BLOCK)]
        code = self.connector.scheduler.allocated(
            request.key, tokens, [(0, blocks)] if tokens else []
        )
        # A ticket that brings no tokens is given back.
        assert code == 0 or not tokens, self.connector.library.error_text(code)
        request.computed = tokens

    def _zero(self) -> None:
        """Queue the zeroing of blocks that are used from this step on."""
        if not self._fresh:
            return
        fresh, self._fresh = self._fresh, []
        if self.idle_ms:
            self._device.idle(self.idle_ms)

        def kernel() -> None:
            self._kv[:, self._device.put(fresh)] = 0

        self._device.run(kernel)

    def _mark(self, worker: WorkerHalf) -> int:
        """Let this step's loads land behind what is queued by now."""
        if self._lies.marks:
            return worker.engine_mark((1 << 64) - 1)
        self._steps += 1
        if self._steps % 4 == 0:
            self._device.synchronize()
            self.seen["synchronized"] += 1
            return worker.engine_mark((1 << 64) - 1)
        return worker.engine_mark(self._device.handle)

    def _tell(self) -> None:
        """Take this step to the worker half, before the forward pass."""
        assert self.connector is not None
        worker, said = self.connector.worker, self.connector.scheduler
        mark, step = self._mark(worker), said.step_build()
        if step:
            code = worker.step(step)
            assert code == 0, self.connector.library.error_text(code)
        unready, self._unready = self._unready, []
        for key in unready:
            code = worker.hold_ready_after(key, mark)
            if code == CONST["KVPULL_EAGAIN"]:
                self._unready.append(key)
            self.seen["ready_after"] += code == 0

    def _forward(self) -> bool:
        """Queue the forward pass of all that run; False: there is none."""
        chosen = []
        for request in self._running:
            first, length = request.computed, len(request.prompt)
            if request.queued == request.count:
                continue
            end = min(first + CHUNK, length) if first < length else first + 1
            request.computed = end
            has_word = end >= length
            request.queued += has_word
            chosen.append((request, list(request.table), first, end, has_word))
        if not chosen:
            return False

        def kernel() -> torch.Tensor | None:
            made = []
            for request, table, first, end, has_word in chosen:
                scores = self._model.scores(
                    self._kv, request.words, self._device.put(table), first, end
                )
                if has_word:
                    nth = request.nth if end == len(request.prompt) else 0
                    word = scores.topk(nth + 1).indices[nth : nth + 1]
                    request.words[end : end + 1] = word
                    made.append(word)
            return torch.cat(made) if made else None

        told = [request for request, *_, has_word in chosen if has_word]
        self._in_flight.append((told, self._device.run(kernel)))
        for request in told:
            # The end is known before it is computed. Every other hold is made
            # now; its blocks are written later.
            if request.holds and request.key % 2:
                self._finish(request, CONST["KVPULL_FINISH_READY_NEEDED"])
        return True

    def step(self) -> None:
        """Schedule, queue, and hear of the step before."""
        self._admit()
        self._zero()
        if self.connector is not None:
            self._tell()
        is_busy = self._forward()
        if self.connector is not None:
            self.connector.worker.start_loads()
            reports = self.connector.worker.poll()
            result = self.connector.worker.result_build()
            if result:
                self.connector.scheduler.result_take(result)
            for report in reports:
                self._report(report)
        if len(self._in_flight) > 1 or not is_busy:
            self._hear()

    def _hear(self) -> None:
        """Wait for the oldest step in flight, and take its tokens."""
        if not self._in_flight:
            return
        told, pending = self._in_flight.popleft()
        for request, word in zip(told, pending(), strict=True):
            if request.is_gone:
                continue
            request.first_at = request.first_at or time.monotonic()
            request.made.append(word)
            if len(request.made) < request.count:
                continue
            self._running.remove(request)
            if not request.ends:
                self._finish(request, 0)

    def _end(
        self, request: Request, reason: str, flags: int = 0
    ) -> tuple[bool, bytes]:
        if self.connector is None or request.ends:
            return False, b""
        request.ends = True
        keeps = request.holds and reason == "STOP"
        blocks = request.table[: -(-len(request.prompt) // BLOCK)]
        return self.connector.scheduler.request_finished(
            request.key,
            CONST[f"KVPULL_FINISH_{reason}"],
            request.computed,
            [(0, blocks)] if keeps else [],
            flags=flags,
        )

    def _finish(self, request: Request, flags: int) -> None:
        held, ticket = self._end(request, "STOP", flags)
        if held:
            self._holds[request.key] = request.table
            request.table = []
            if flags:
                self._unready.append(request.key)
        else:
            self._give_back(request)
        self.answers.append((request, ticket))

    def _report(self, report: Report) -> None:
        if report.kind == CONST["KVPULL_POLL_SENT"]:
            self.free += self._holds.pop(report.key)
            self.seen["sent"] += 1
            return
        request = self._loading.pop(report.key)
        if request.is_gone:
            self.seen["left"] += 1
            self._give_back(request)
            return
        request.fate = "loaded"
        if report.kind != CONST["KVPULL_POLL_LOADED"]:
            # Refused: all of its bytes came, and the check said no.
            request.fate = "refused" if report.came_ns else "failed"
            if not self._lies.belief:
                request.computed = 0
        self.seen[request.fate] += 1
        self._running.append(request)
