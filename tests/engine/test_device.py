# SPDX-License-Identifier: Apache-2.0
"""Tests of the package with a KV cache in a GPU's memory, and no GPU.

The library calls the fake driver. What torch would make of the memory is looked
at where torch is asked for it.
"""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

from engine import environment

os.environ.update(environment())
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")

import torch  # noqa: E402
from kvpull_vllm import halves, inside, settings  # noqa: E402
from kvpull_vllm.abi import CONST, Library, address  # noqa: E402
from kvpull_vllm.memory import ProvidedMemory  # noqa: E402
from kvpull_vllm.scheduler import KVPullMetadata  # noqa: E402
from kvpull_vllm.worker import WorkerSide  # noqa: E402
from runner import run_all, test  # noqa: E402

BYTES = 8 * 4096
# Once: the library finds the driver that is loaded under its name.
DRIVER = ctypes.CDLL(str(Path("cuda/libcuda.so.1").resolve()))


@contextmanager
def worker(device: tuple[int, int]) -> Iterator[halves.WorkerHalf]:
    """Give a worker half that was opened with such a device."""
    model = halves.Model("m", "", "", "float32", "LBHNC", "", 1, 1, 256, False)
    with tempfile.TemporaryDirectory() as folder:
        config = (
            f'{{"socket_dir": "{folder}/s", "route": "shm", '
            '"copy_threads": 0, "device": "auto"}'
        )
        opening = halves.Opening(
            config, model, "e", 1, 0, 0, [(16, 0)], device=device
        )
        half = halves.WorkerHalf(Library(None), opening)
        try:
            yield half
        finally:
            half.close()


@contextmanager
def on_cuda() -> Iterator[halves.WorkerHalf]:
    """Give a worker half on the fake's first device."""
    with worker((CONST["KVPULL_DEVICE_CUDA"], 0)) as half:
        yield half


@test
def a_kv_cache_on_a_gpu_lies_in_the_librarys_memory() -> None:
    """Torch is given the address, and asked for it on the same device."""
    with (
        on_cuda() as half,
        mock.patch.object(torch.cuda, "empty_cache") as emptied,
        mock.patch.object(torch, "as_tensor") as made,
        ProvidedMemory(half, "cuda") as context,
    ):
        here = torch.zeros(BYTES, dtype=torch.int8, device="cpu")
        assert here.numel() == BYTES and context.memory is None
        there = torch.zeros(BYTES, dtype=torch.int8, device="cuda:0")
        assert there is made.return_value
        emptied.assert_called_once()
        (place,), options = made.call_args
        base = address(context.memory.base)
        assert context.memory.bytes == 2 << 20
        assert options == {"device": "cuda:0"}
        assert place.__cuda_array_interface__ == {
            "version": 3,
            "shape": (BYTES,),
            "typestr": "|i1",
            "data": (base, False),
        }
        side = WorkerSide(half, None, 0, True, "cuda")
        side._context = context
        storage = SimpleNamespace(data_ptr=lambda: base, nbytes=lambda: BYTES)
        tensors: Any = {"k": SimpleNamespace(untyped_storage=lambda: storage)}
        kind = CONST["KVPULL_REGION_DEVICE"]
        assert side._region(tensors) == (kind, base, 2 << 20)


@test
def loads_land_behind_what_the_gpu_has_by_then() -> None:
    """A mark before each step; again at the next one after a capture."""
    calls: list[Any] = []

    def marked(stream: int) -> int:
        calls.append(stream)
        return len(calls) - 1  # 0, at first: a graph is captured

    def stepped(step: bytes) -> int:
        calls.append(step)
        return 0

    stream = SimpleNamespace(cuda_stream=77)
    with (
        on_cuda() as half,
        mock.patch.object(torch.cuda, "current_stream", lambda: stream),
        mock.patch.object(half, "engine_mark", marked),
        mock.patch.object(half, "step", stepped),
    ):
        side = WorkerSide(half, None, 0, True, "cuda")
        side.step(KVPullMetadata())
        assert calls == []
        side.step(KVPullMetadata(step=b"pull"))
        assert calls == [77, b"pull"]
        side.step(KVPullMetadata())
        side.step(KVPullMetadata())
        assert calls == [77, b"pull", 77]


@test
def a_mark_is_one_of_the_library() -> None:
    """The real call: of a stream, and where there is no device."""
    with on_cuda() as half:
        assert half.engine_mark((1 << 64) - 1) == 1
        assert half.engine_mark((1 << 64) - 1) == 2
    with worker((0, 0)) as half:
        try:
            half.engine_mark(0)
        except halves.KvpullError as error:
            assert "engine_mark" in str(error), error
        else:
            raise AssertionError("a mark without a device")


@test
def holds_are_ready_after_marks_that_were_made() -> None:
    """The real call: of a hold that no step had, and of no mark."""
    with on_cuda() as half:
        mark = half.engine_mark((1 << 64) - 1)
        assert half.hold_ready_after(1, mark) == CONST["KVPULL_ENOKEY"]
        for unmade in (0, mark + 1):
            assert half.hold_ready_after(1, unmade) == CONST["KVPULL_EINVAL"]


@test
def binding_and_its_memory_import_no_vllm() -> None:
    """What tests/gpu/pack.sh packs is all that the model engine imports."""
    tests = Path(__file__).resolve().parent.parent
    (packed,) = re.findall(
        r"^for module in (.*); do$", (tests / "gpu/pack.sh").read_text(), re.M
    )
    code = (
        f"import sys; sys.path.append({str(tests / 'engine')!r})\n"
        "import gpu_engine\n"
        "print(*(name for name in sys.modules if 'vllm' in name))"
    )
    said = subprocess.check_output([sys.executable, "-c", code], text=True)
    wanted = {f"kvpull_vllm.{name}" for name in packed.split()[1:]}
    assert set(said.split()) == wanted | {"kvpull_vllm"}, said


@test
def devices_are_refused_by_name() -> None:
    """All but the CPU, and CUDA where a key says so."""
    tried = settings.Settings(config={"device": "required"})
    foreign = settings.Settings(memory="foreign", config=tried.config)
    rows = [
        ("cpu", settings.Settings(), True, ""),
        ("cuda", tried, True, ""),
        ("cuda", settings.Settings(), True, '"device": "required"'),
        ("cuda", foreign, True, "unset memory"),
        ("cuda", tried, False, "of CUDA's devices"),
        ("xpu", tried, True, "device xpu is not supported"),
    ]
    for device, own, is_cuda, text in rows:
        with mock.patch.object(inside, "is_cuda", lambda is_=is_cuda: is_):
            try:
                settings.check_device(device, own)
                assert not text, device
            except settings.ConfigError as error:
                assert text and text in str(error), (device, error)
    with mock.patch.dict(os.environ, {"KVPULL_DEVICE": "auto"}):
        settings.check_device("cpu", settings.Settings())


if __name__ == "__main__":
    raise SystemExit(run_all())
