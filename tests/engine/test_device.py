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

from engine import environment, kvpull_config

os.environ.update(environment())
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")

import core  # noqa: E402
import torch  # noqa: E402
from kvpull_vllm import KVPullConnector, halves, inside, settings  # noqa: E402
from kvpull_vllm.abi import CONST, Library, address  # noqa: E402
from kvpull_vllm.memory import ProvidedMemory  # noqa: E402
from kvpull_vllm.scheduler import KVPullMetadata  # noqa: E402
from kvpull_vllm.worker import WorkerSide  # noqa: E402
from runner import run_all, test  # noqa: E402
from vllm.config import KVTransferConfig  # noqa: E402
from vllm.engine.arg_utils import EngineArgs  # noqa: E402

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


@test
def expandable_segments_are_refused_beside_a_gpus_cache() -> None:
    """Torch has two names for the same configuration."""
    tried = settings.Settings(config={"device": "required"})
    rows = [
        ("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True", True),
        ("PYTORCH_ALLOC_CONF", "max_split:9,expandable_segments: True", True),
        ("PYTORCH_ALLOC_CONF", "expandable_segments:False", False),
    ]
    for name, value, is_refused in rows:
        with (
            mock.patch.dict(os.environ, {name: value}),
            mock.patch.object(inside, "is_cuda", lambda: True),
        ):
            settings.check_device("cpu", tried)
            text = ""
            try:
                settings.check_device("cuda", tried)
            except settings.ConfigError as error:
                text = str(error)
            assert is_refused == ("unset expandable_segments" in text), value


@test
def engines_are_refused_by_name() -> None:
    """Each of vLLM's own configurations that this version does not serve."""
    made = EngineArgs(
        model=str(core.home() / "model"),
        dtype="float32",
        enforce_eager=True,
        kv_transfer_config=KVTransferConfig(
            **kvpull_config(Path("."), "kv_both", {})
        ),
    ).create_engine_config()
    settings.check_engine(made)
    rows = [
        ("parallel_config.pipeline_parallel_size", 2, "--pipeline-parallel"),
        ("parallel_config.decode_context_parallel_size", 2, "--decode-context"),
        ("parallel_config.prefill_context_parallel_size", 2, "--prefill-cont"),
        ("kv_transfer_config.enable_permute_local_kv", True, "enable_permute"),
        ("model_config.enable_sleep_mode", True, "sleep mode"),
        ("model_config.enable_cumem_allocator", True, "--enable-cumem-alloc"),
    ]
    for path, value, text in rows:
        owner, name = path.split(".")
        part = getattr(made, owner)
        before = getattr(part, name)
        setattr(part, name, value)
        try:
            settings.check_engine(made)
        except settings.ConfigError as error:
            assert text in str(error), (path, error)
        else:
            raise AssertionError(f"{path} is not refused")
        setattr(part, name, before)


@test
def memory_that_consumers_read_stays() -> None:
    """VLLM 0.33 asks whether it may go, and says that it goes."""
    assert not KVPullConnector.supports_sleep_mode(None)
    for name in ("unregister_kv_caches", "restore_kv_caches"):
        try:
            getattr(KVPullConnector, name)(None)
        except settings.ConfigError as error:
            assert "sleep mode is not supported" in str(error)
        else:
            raise AssertionError(name)


@test
def blocks_of_a_load_are_not_zeroed_by_vllm() -> None:
    """Of all groups: vLLM's scheduler asks the connector which are loaded."""
    states = core.with_states(core.BLOCK, "none")
    for layers in (None, states):
        prompt = core.prompt_of(4 * core.BLOCK + 1)
        with (
            # Some kinds are in no prefix cache; vLLM's own answer lacks these.
            mock.patch.object(
                core.MambaSpec, "prefix_cacheable", property(lambda _: False)
            ),
            core.pair(layers=layers, caches=layers is None) as (p, d),
        ):
            params = core.prefilled(p, "p", prompt)
            manager, told = d.scheduler.kv_cache_manager, []
            allocate = manager.allocate_slots

            def spied(*args: Any, call: Any = allocate, **kwargs: Any) -> Any:
                told.append(kwargs.get("skip_zeroing_group_ids"))
                return call(*args, **kwargs)

            manager.allocate_slots = spied
            d.ask("d", prompt, params)
            core.run([p, d], lambda: "d" in d.answers)
            assert told[0] == tuple(d.caches.transfer_group_ids), told
            assert len(told[0]) == (1 if layers is None else 3), told


if __name__ == "__main__":
    raise SystemExit(run_all())
