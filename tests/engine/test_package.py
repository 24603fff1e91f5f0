# SPDX-License-Identifier: Apache-2.0
"""Tests of the package that need no engine: the binding, the halves, layouts.

test_package.py [FOLDER]: prints the result line of the other test programs.
"""

from __future__ import annotations

import ctypes
import json
import logging
import os
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import kvpull_vllm
import model
import torch
from kvpull_vllm import (
    abi,
    connector,
    halves,
    identity,
    inside,
    layout,
    logs,
    requests,
    settings,
    stats,
    traces,
)
from kvpull_vllm.abi import CONST, ffi
from prometheus_client import Counter, Gauge, Histogram
from safetensors.torch import save_file

PROMPT = (16, bytes(16))


def binding_has_the_sizes_and_offsets_of_c() -> None:
    """A compiler and the binding agree on every struct and constant."""
    lines = []
    for name in abi.structs():
        kind = ffi.typeof(f"struct {name}")
        lines.append((f"sizeof(struct {name})", ffi.sizeof(kind)))
        lines += [
            (f"offsetof(struct {name}, {member})", member_type.offset)
            for member, member_type in kind.fields
        ]
    lines += [(f"(long long){name}", value) for name, value in CONST.items()]
    checks = "\n".join(
        f'_Static_assert({what} == {value}, "{what}");' for what, value in lines
    )
    # One behind the other: what includes the first has it.
    text = abi.headers().replace('#include "kvpull/', "//") + checks + "\n"
    subprocess.run(
        ["cc", "-std=c11", "-fsyntax-only", "-x", "c", "-"],
        input=text.encode(),
        check=True,
    )
    assert len(lines) > 250, len(lines)


class Pair:
    """Both halves of an engine with 8 blocks of 16 tokens."""

    def __init__(self, library: abi.Library, folder: str, name: str) -> None:
        model = halves.Model(
            "m", "", "", "float32", "LBHNC", "", 1, 1, 256, False
        )
        config = f'{{"socket_dir": "{folder}/s", "max_holds": 64}}'
        opening = halves.Opening(config, model, name, 1, 0, 0, [(16, 0)])
        self.scheduler = halves.SchedulerHalf(library, opening)
        self.worker = halves.WorkerHalf(library, opening)
        memory = self.worker.memory_alloc(8 * 4096, False)
        base = int(ffi.cast("uintptr_t", memory.base))
        cache = layout.Geometry(0, 0, 1, base, 0, 4096, 0, 4096, 8, 1, 1, 4096)
        self.worker.regions_register((0, base, memory.bytes), [cache], 0)
        assert self.scheduler.rank_info(self.worker.rank_info()) == 0
        self.kv = ffi.buffer(memory.base, 8 * 4096)

    def hold(self, key: int, block: int) -> bytes:
        """Finish a request of one block; return its ticket."""
        wants = CONST["KVPULL_REQUEST_WANTS_HOLD"]
        said = self.scheduler.request_new(key, 0, b"", PROMPT, wants, "one")
        assert said == 0
        held, ticket = self.scheduler.request_finished(
            key, CONST["KVPULL_FINISH_LENGTH"], 16, [(0, [block])]
        )
        assert held and ticket
        return ticket

    def pull(self, key: int, ticket: bytes, block: int) -> None:
        """Begin to load a ticket's block."""
        pull, half = CONST["KVPULL_REQUEST_PULL"], self.scheduler
        assert half.request_new(key, 0, ticket, PROMPT, pull, "two") == 0
        loads = (CONST["KVPULL_MATCH_LOAD"], 16)
        assert half.matched_tokens(key, 0) == loads
        assert half.allocated(key, 16, [(0, [block])]) == 0

    def step(self) -> list[halves.Report]:
        """Step once; return the reports."""
        assert self.worker.step(self.scheduler.step_build()) == 0
        self.worker.start_loads()
        reports = self.worker.poll()
        result = self.worker.result_build()
        if result:
            assert self.scheduler.result_take(result) == 0
        return reports

    def close(self) -> None:
        """Close both."""
        self.worker.close()
        self.scheduler.close()


def block_travels_between_two_pairs_of_halves() -> None:
    """P holds, D pulls, both report, the bytes are there."""
    library = abi.Library()
    with tempfile.TemporaryDirectory() as folder:
        p, d = (Pair(library, folder, name) for name in "pd")
        p.kv[3 * 4096 : 4 * 4096] = b"k" * 4096
        d.pull(2, p.hold(1, 3), 6)
        reports: list[halves.Report] = []
        end = time.monotonic() + 10
        while len(reports) < 2 and time.monotonic() < end:
            reports += p.step() + d.step()
        kinds = {report.key: report.kind for report in reports}
        assert kinds == {
            1: CONST["KVPULL_POLL_SENT"],
            2: CONST["KVPULL_POLL_LOADED"],
        }
        assert bytes(d.kv[6 * 4096 : 7 * 4096]) == b"k" * 4096
        p.close()
        d.close()
        d.close()


def the_end_of_a_long_request_id_names_it() -> None:
    """The library keeps an id's end, so it has to be given that."""
    library = abi.Library()
    wants = CONST["KVPULL_REQUEST_WANTS_HOLD"]
    with tempfile.TemporaryDirectory() as folder:
        pair = Pair(library, folder, "p")
        half = pair.scheduler
        for key, name in ((1, "x" * 300 + "-tail"), (2, "short")):
            assert half.request_new(key, 0, b"", PROMPT, wants, name) == 0
            told = ffi.string(half._request.label).decode()
            assert told == name[-127:], told
        pair.close()


def pull_does_not_wait_for_python() -> None:
    """The library's thread connects, logs and pulls while C has the lock."""
    library = abi.Library()
    with tempfile.TemporaryDirectory() as folder:
        p, d = (Pair(library, folder, name) for name in "pd")
        ticket = p.hold(1, 3)
        d.pull(2, ticket, 6)
        p.step()
        reports = d.step()
        # PyDLL keeps Python's lock while C runs, as an engine's step may.
        ctypes.PyDLL(None).usleep(2_000_000)
        end = time.monotonic() + 10
        while not reports and time.monotonic() < end:
            reports += d.step()
        assert [r.kind for r in reports] == [CONST["KVPULL_POLL_LOADED"]]
        assert reports[0].seconds < 1, reports
        phases = reports[0].phases()
        assert len(phases) == len(halves.PHASES), reports
        assert all(0 < phase < 1 for phase in phases), reports
        assert abs(sum(phases) - reports[0].seconds) < 1e-9, reports
        p.close()
        d.close()


class _Metric:
    """A Prometheus metric of each label, as far as ours are used."""

    made: dict[str, Any] = {}

    def __init__(self, name: str, documentation: str, **_: Any) -> None:
        assert name not in self.made and documentation.endswith(".")
        self.made[name] = self
        self.value = 0

    def labels(self, *_: Any) -> _Metric:
        return self

    def inc(self, more: int) -> None:
        assert more > 0
        self.value += more

    set = observe = lambda self, value: setattr(self, "value", value)


def metrics_are_what_the_library_lists() -> None:
    """Totals add up, what is now is each rank's last word."""
    library = abi.Library()
    kinds = (Gauge, Counter, Histogram)
    extra = SimpleNamespace(kv_connector_extra_config={})
    made = _Metric.made = {}
    prom = stats.KVPullPromMetrics(
        SimpleNamespace(kv_transfer_config=extra),
        dict.fromkeys(kinds, _Metric),
        ["engine"],
        {0: ["0"]},
    )
    for half in ("scheduler", "worker"):
        for counter in library.counters(half):
            assert f"vllm:kvpull_{half}_{counter.name}" in made
    with tempfile.TemporaryDirectory() as folder:
        p = Pair(library, folder, "p")
        moves = [stats.Moves(p.worker) for _ in range(2)]
        moves[1]._source = "worker 1"
        for key in (1, 2, 3):
            p.hold(key, key)
            p.step()
            said = stats.KVPullStats()
            for move in moves:
                told = stats.KVPullStats()
                p.worker._seen = b""
                move.look(p.worker.stats(), told)
                said.aggregate(told)
            prom.observe(said.data)
            assert made["vllm:kvpull_worker_holds_live"].value == 2 * key
        assert made["vllm:kvpull_worker_holds_taken"].value == 6
        said = stats.KVPullStats()
        said.data["pulls"].append([4096, 1.0, 0.4, 0.3, 0.2, 0.1])
        prom.observe(said.data)
        phases = zip(halves.PHASES, (0.4, 0.3, 0.2, 0.1), strict=True)
        for phase, took in phases:
            assert made[f"vllm:kvpull_pull_{phase}_seconds"].value == took
        p.worker._seen = b""
        counts = p.worker.stats() or {}
        for move, live, peak in zip(moves, (3, 1), (8, 5), strict=True):
            told = stats.KVPullStats()
            counts.update(holds_live=live, poll_ns_max=peak)
            move.look(counts, told)
            assert not told.is_empty()
            prom.observe(told.data)
        assert made["vllm:kvpull_worker_holds_live"].value == 4
        assert made["vllm:kvpull_worker_poll_ns_max"].value == 8
        p.close()


def lines_of_the_library_have_its_time() -> None:
    """A line is logged as of when it was said, at its own level."""
    made, seen = logs.pipe(), []
    assert made is not None, "libkvpull_log.so is not installed"
    handler = logging.Handler()
    handler.emit = seen.append  # type: ignore[method-assign]
    logs.logger.addHandler(handler)
    level, before = CONST["KVPULL_LOG_WARN"], time.time()
    made.callback(made.context, level, ffi.new("char[]", b"100 % of it"))
    after = time.time()
    made.close()
    logs.logger.removeHandler(handler)
    assert [line.getMessage() for line in seen] == ["kvpull: 100 % of it"]
    assert seen[0].levelno == logging.WARNING
    assert before - 0.001 <= seen[0].created <= after


def refusal_names_the_key_and_the_library_says_it() -> None:
    """An unknown key of the library is refused at open, by its name."""
    own = settings.read({"lease_sm": 5, "model": "tiny"}, True)
    model = halves.Model("m", "", "", "f", "LBHNC", "", 1, 1, 256, False)
    opening = halves.Opening(own.config_json, model, "e", 1, 0, 0, [(16, 0)])
    try:
        halves.SchedulerHalf(abi.Library(), opening)
    except halves.KvpullError as error:
        assert "lease_sm" in str(error) and "lease_ms" in str(error), error
        assert error.code == CONST["KVPULL_ECONFIG"]
    else:
        raise AssertionError("not refused")


def long_names_are_not_just_cut() -> None:
    """Paths that differ behind the record's room are different models."""
    path = "/weights/é" * 20
    names = [halves.fitting(path + end) for end in ("a", "b")]
    assert names[0] != names[1]
    for name in names:
        assert len(name) < CONST["KVPULL_TEXT_BYTES_MAX"]
        assert path.startswith(name.decode()[:-17])
    assert halves.fitting("tiny") == b"tiny"


def own_keys_are_checked() -> None:
    """The package's keys are typed, and share_prefix needs a prefix cache."""
    for extra in (
        {"memory": "disk"},
        {"ticket_only": "yes"},
        {"model": 5},
        {"share_prefix": True},
        {"progress": "caller"},
    ):
        try:
            settings.read(extra, False)
        except settings.ConfigError as error:
            assert next(iter(extra)) in str(error)
        else:
            raise AssertionError(f"{extra} is not refused")
    own = {"progress": "thread", "share_prefix": False}
    assert settings.read({}, False).config == own


class MultiConnector:
    """Looks to its children as vLLM's does."""

    def __init__(self, vllm_config: Any) -> None:
        self.seen = inside.neighbours()


def clashing_neighbours_are_refused() -> None:
    """Two connectors that answer with the same keys end the engine."""
    children = [{"kv_connector": name} for name in ("KVPullConnector", "Nixl")]
    extra = {"connectors": children}
    transfer = SimpleNamespace(kv_connector_extra_config=extra)
    config = SimpleNamespace(kv_transfer_config=transfer)
    names = MultiConnector(config).seen
    assert names == ["KVPullConnector", "Nixl"], names
    assert inside.neighbours() == []
    settings.check_neighbours(names, ticket_only=True)
    settings.check_neighbours(["KVPullConnector", "OffloadingConnector"], False)
    try:
        settings.check_neighbours(names, ticket_only=False)
    except settings.ConfigError as error:
        assert "ticket_only" in str(error)
    else:
        raise AssertionError("not refused")


def _group(names: list[str], tokens: int, heads: int) -> Any:
    spec = SimpleNamespace(
        block_size=tokens,
        num_kv_heads=heads,
        page_size_bytes=heads * tokens * 128 * 4,
    )
    return SimpleNamespace(layer_names=names, kv_cache_spec=spec)


def layers_of_one_distance_are_one_cache() -> None:
    """[L, B, H, N, C] of vLLM is one cache; layers are in numeric order."""
    names = [f"model.layers.{number}.attn" for number in range(12)]
    config = SimpleNamespace(transfer_groups=[_group(names[::-1], 32, 2)])
    memory = torch.zeros(12, 5, 2, 32, 128)
    tensors = dict(zip(names, memory, strict=True))
    (cache,) = layout.caches(config, tensors)
    assert cache.layer_count == 12 and cache.layer_first == 0
    assert cache.address == memory.data_ptr()
    assert cache.layer_stride == 5 * 2 * 32 * 128 * 4
    assert cache.block_stride == 2 * 32 * 128 * 4
    assert cache.head_stride == cache.head_bytes == 32 * 128 * 4
    assert (cache.row_count, cache.head_count) == (1, 2)
    assert layout.head_bytes(config) == 512


def other_layouts_are_rows() -> None:
    """Token-major blocks, and kernel blocks smaller than the engine's."""
    config = SimpleNamespace(transfer_groups=[_group(["l.0"], 32, 2)])
    tokens_first = torch.zeros(5, 32, 2, 128).transpose(1, 2)
    (cache,) = layout.caches(config, {"l.0": tokens_first})
    assert (cache.row_count, cache.row_stride) == (32, 2 * 512)
    assert cache.head_bytes == cache.head_stride == 512
    small = torch.zeros(10, 2, 16, 128)
    (cache,) = layout.caches(config, {"l.0": small})
    assert (cache.block_count, cache.row_count) == (5, 2)
    assert cache.block_stride == 2 * cache.row_stride == 2 * 2 * 16 * 512
    assert cache.head_bytes == 16 * 512


def only_known_kinds_of_cache_are_taken() -> None:
    """A kind derived from a known one may give blocks away otherwise."""
    for name, base, kind in (
        ("FullAttentionSpec", object, "FULL"),
        ("SlidingWindowSpec", object, "SLIDING"),
        ("RSWASpec", type("FullAttentionSpec", (), {}), None),
        ("SlidingWindowMLASpec", type("SlidingWindowSpec", (), {}), None),
        ("MambaSpec", object, None),
    ):
        group = SimpleNamespace(kv_cache_spec=type(name, (base,), {})())
        try:
            found = layout.group_kind(group)
        except settings.ConfigError as error:
            assert kind is None and name in str(error), error
        else:
            assert kind and found == CONST[f"KVPULL_GROUP_{kind}"], name


def blocks_are_told_by_their_index_in_the_prompt() -> None:
    """Null blocks of a sliding window and local prefixes are left out."""
    ids = ([0, 0, 7, 8, 9],)
    assert requests.prompt_blocks(ids, [16], 64) == [(2, [7, 8])]
    assert requests.loaded_blocks(([4, 5, 6, 7],), [16], 32, 17) == [
        (2, [6, 7])
    ]


def siblings_have_one_parent_and_their_prompt_one_digest() -> None:
    """Keys that both halves of a family derive alike."""
    first, second = "0_cmpl-x-0-ab", "7_cmpl-x-0-ab"
    assert requests.parent_key(first) == requests.parent_key(second) > 0
    assert requests.parent_key("cmpl-x-0-ab") == 0
    assert len(requests.prompt_digest(_prompt())) == 16


def _prompt(**more: Any) -> Any:
    plain = {
        "prompt_token_ids": [1, 2],
        "prompt_embeds": None,
        "cache_salt": None,
        "lora_request": None,
        "mm_features": [],
    }
    return SimpleNamespace(**{**plain, **more})


def _media(name: str, offset: int) -> Any:
    place = SimpleNamespace(offset=offset)
    return SimpleNamespace(identifier=name, mm_position=place)


def all_that_kv_depends_on_is_in_the_digest() -> None:
    """A name is of one kind: an adapter's is no image's."""
    prompts = [
        _prompt(),
        _prompt(prompt_token_ids=[1, 3]),
        _prompt(cache_salt="x"),
        _prompt(lora_request=SimpleNamespace(lora_name="x")),
        _prompt(mm_features=[_media("x", 0)]),
        _prompt(mm_features=[_media("x", 1)]),
        _prompt(mm_features=[_media("y", 0)]),
    ]
    digests = {requests.prompt_digest(prompt) for prompt in prompts}
    assert len(digests) == len(prompts)


def what_a_digest_cannot_name_is_not_moved() -> None:
    """Embeddings, also beside token ids, and media that vLLM did not hash."""
    for named, prompt, word in (
        (True, _prompt(), None),
        (True, _prompt(prompt_token_ids=None), "embeddings"),
        (True, _prompt(prompt_embeds=torch.zeros(2, 4)), "embeddings"),
        (True, _prompt(mm_features=[_media("x", 0)]), None),
        (False, _prompt(), None),
        (False, _prompt(mm_features=[_media("x", 0)]), "media"),
    ):
        found = requests.nameless(prompt, named)
        assert found is None if word is None else word in found, found
    for gigabytes, prefix, named in (
        (0, False, False),
        (0, True, True),
        (4, False, True),
    ):
        media = SimpleNamespace(mm_processor_cache_gb=gigabytes)
        config = SimpleNamespace(
            model_config=SimpleNamespace(multimodal_config=media),
            cache_config=SimpleNamespace(enable_prefix_caching=prefix),
        )
        assert settings.names_media(config) == named
    config.model_config.multimodal_config = None
    assert settings.names_media(config)


def _engine_of(folder: Path, **more: Any) -> Any:
    """Return the parts of an engine's configuration that are looked at."""
    model = SimpleNamespace(
        **{
            "model": str(folder),
            "revision": None,
            "use_mla": False,
            "dtype": torch.float32,
            "quantization": None,
            "hf_overrides": {},
            "hf_config": SimpleNamespace(architectures=["Tiny"]),
            "get_total_num_kv_heads": lambda: 2,
            **more,
        }
    )
    return SimpleNamespace(
        model_config=model,
        cache_config=SimpleNamespace(cache_dtype="auto"),
        load_config=SimpleNamespace(load_format="auto", download_dir=None),
    )


def _caches(cell: torch.dtype = torch.float32) -> Any:
    group = _group(["l.0"], 32, 2)
    group.kv_cache_spec.dtype = cell
    group.kv_cache_spec.head_size = 64
    return SimpleNamespace(transfer_groups=[group], kv_cache_layout=None)


def _record(kind: str, dtype: torch.dtype, cell: torch.dtype) -> halves.Model:
    """Return an engine's model record, as of a machine with AMX."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text('{"hidden_size": 8}')
        config = _engine_of(Path(folder), dtype=dtype)
        config.cache_config.cache_dtype = kind
        own = settings.read({"model": "m"}, True)
        with mock.patch.object(
            inside,
            "kernels",
            lambda dtype, *_: "amx" if dtype == torch.bfloat16 else "vec",
        ):
            made = connector._model(config, _caches(cell), own)
    # Its digest has them, too; here each part is to tell them by itself.
    return replace(made, config="")


def caches_that_differ_are_two_models() -> None:
    """Two kinds of fp8 are uint8 both; kernels lay blocks out by themselves."""
    half, whole, cell = torch.bfloat16, torch.float32, torch.uint8
    records = [
        _record("fp8_e4m3", half, cell),
        _record("fp8_e5m2", half, cell),
        _record("fp8_e4m3", whole, cell),
        _record("auto", half, half),
        _record("auto", whole, whole),
    ]
    assert len(set(records)) == len(records), records
    assert _record("fp8", half, cell) == _record("fp8_e4m3", half, cell)
    assert _record("bfloat16", half, half) == _record("auto", half, half)


def _text(folder: Path, **more: Any) -> str:
    return identity.config_text(_engine_of(folder, **more), _caches())


def overrides_are_in_the_configuration() -> None:
    """What decides KV is named, however it came there; a path is not."""
    with tempfile.TemporaryDirectory() as made:
        folders = [Path(made) / name for name in "abc"]
        for folder, theta in zip(folders, (1e4, 1e4, 5e3), strict=True):
            folder.mkdir()
            rope = {"rope_type": "default", "rope_theta": theta}
            found = {"hidden_size": 8, "rope_parameters": rope, "_x": made}
            (folder / "config.json").write_text(json.dumps(found))
        plain = _text(folders[0])
        assert plain == _text(folders[1])
        other = {"rope_parameters": {"rope_theta": 5e3}}
        assert _text(folders[2]) == _text(folders[0], hf_overrides=other)
        texts = [
            plain,
            _text(folders[2]),
            _text(folders[0], hf_overrides={"hidden_size": 16}),
            _text(folders[0], dtype=torch.bfloat16),
            _text(folders[0], quantization="fp8"),
            _text(folders[0], hf_overrides=_text),
        ]
        assert len(set(texts)) == len(texts), texts


def fingerprints_are_of_weights_not_of_files() -> None:
    """Each tensor tells; how they are spread over files does not."""
    one, two = model.weights(1), model.weights(2)
    with tempfile.TemporaryDirectory() as made:
        paths = [Path(made) / f"{n}.safetensors" for n in range(3)]
        save_file(one, str(paths[0]))
        names = sorted(one)
        for path, some in ((paths[1], names[:5]), (paths[2], names[5:])):
            save_file({name: one[name] for name in some}, str(path))
        ours = identity.fingerprint(paths[:1])
        assert identity.fingerprint(paths[1:]) == ours
        drawn = [n for n in names if not torch.equal(one[n], two[n])]
        assert len(drawn) >= 16
        for name in drawn:
            save_file({**one, name: two[name]}, str(paths[0]))
            assert identity.fingerprint(paths[:1]) != ours, name


def _sparse(path: Path, tensors: int, each: int) -> None:
    header = {
        f"{path.name}.{n}": {
            "dtype": "BF16",
            "shape": [each // 2],
            "data_offsets": [n * each, (n + 1) * each],
        }
        for n in range(tensors)
    }
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + tensors * each)


def large_weights_are_sampled_only() -> None:
    """100 GB in 20 files: some of each tensor, at most 64 MiB in all."""
    read, tensors = [], 50
    with tempfile.TemporaryDirectory() as made:
        paths = [Path(made) / f"{n}.safetensors" for n in range(20)]
        for path in paths:
            _sparse(path, tensors, (5 << 30) // tensors)
        began = time.monotonic()
        identity.fingerprint(paths)
        took = time.monotonic() - began
        pread = os.pread

        def counted(file: int, size: int, offset: int) -> bytes:
            read.append(size)
            return pread(file, size, offset)

        with mock.patch.object(os, "pread", counted):
            identity.fingerprint(paths)
    assert len(read) >= len(paths) * tensors
    assert sum(read) <= identity.READ_BYTES_MAX, sum(read)
    print(f"  100 GB of weights: {sum(read) >> 20} MiB read in {took:.2f} s")


class _Core:
    """Looks as vLLM's engine core, in whose constructor connectors are."""

    def __init__(self) -> None:
        self._weight_version = "default"
        self.seen = inside.Core()

    def collective_rpc(self, method: Any) -> None:
        """Do nothing."""

    def set_weight_version(self, version: str) -> None:
        """Name the weights."""
        self._weight_version = version


def updated_weights_are_others() -> None:
    """What was changed and not named is like nothing; a name makes it equal."""
    first, second = _Core(), _Core()
    assert first.seen.weights() == second.seen.weights()
    first.collective_rpc("compute_weight_checksums")
    assert first.seen.weights() == second.seen.weights()
    for core in (first, second):
        core.collective_rpc("update_weights")
        assert core.seen.weights_are_unnamed
    assert first.seen.weights() != second.seen.weights()
    for core in (first, second):
        core.set_weight_version("7")
    assert first.seen.weights() == second.seen.weights()
    assert first.seen.weights() != _Core().seen.weights()
    assert inside.Core().weights() == ""


def unfit_vllm_is_one_line() -> None:
    """What is older than the interface is refused by its number.

    Of all others a line at start says whether anybody has tried them.
    """
    for version, said in (
        ("0.31.0", "loads"),
        ("0.32.0+cpu", "tested"),
        ("0.33.1rc1.dev3+gabc", "loads"),
        ("0.34.0", "newer"),
        ("1.0", "newer"),
        ("dev", "not known"),
        ("0.1.dev1+gabc", "not known"),
        ("", "not known"),
    ):
        line = kvpull_vllm.check_version(version)
        assert said in line and version in line, line
    for version in ("0.30.0", "0.9.2"):
        try:
            kvpull_vllm.check_version(version)
        except ImportError as error:
            assert version in str(error) and "\n" not in str(error)
        else:
            raise AssertionError(f"{version} is taken")


def dynamo_knows_the_connector() -> None:
    """Its table of protocols has an entry more, where there is one."""
    name = "dynamo.vllm.kv_connector_protocols"
    table = {"NixlConnector": object()}
    fake = SimpleNamespace(KV_CONNECTOR_PROTOCOLS=table)
    with mock.patch.dict(sys.modules, {name: fake}):
        for _ in range(2):
            kvpull_vllm.register()
    assert table["KVPullConnector"] is table["NixlConnector"]


def parameters_say_who_pulls() -> None:
    """A ticket alone pulls; do_remote_prefill has the last word."""
    assert requests.pulls({"kvpull_ticket": "t"})
    assert requests.pulls({"do_remote_prefill": True})
    assert not requests.pulls(
        {"do_remote_prefill": False, "kvpull_ticket": "t"}
    )
    assert not requests.pulls({"do_remote_decode": True})


def only_sampled_traces_of_right_headers_are_kept() -> None:
    """A client's header decides nothing but its own trace."""
    good = f"{'0' * 31}7-{'0' * 15}8-01"
    ids = bytes(15) + b"\7" + bytes(7) + b"\10"
    for header in (f"00-{good}", f"01-{good}-more of a later version"):
        assert traces.of_headers({"traceparent": header}) == ids, header
    zero, none = "0" * 32, bytes(len(ids))
    for header in (
        f"ff-{good}",
        f"00-{good[:-2]}00",
        f"00-{zero}-{'1' * 16}-01",
        f"00-{'1' * 32}-{zero[:16]}-01",
        f"00-{'G' * 32}-{'1' * 16}-01",
        f"00-{good[:-1]}",
        "",
        5,
        None,
    ):
        assert traces.of_headers({"traceparent": header}) == none, header
    assert traces.of_headers(None) == traces.of_headers({}) == none


def nothing_is_imported_without_a_trace_or_its_package() -> None:
    """Of a pull in no trace; and where OpenTelemetry is not installed."""
    check = """if True:
        import sys
        from types import SimpleNamespace
        if sys.argv[1] == "absent":
            sys.modules["opentelemetry"] = None
        from kvpull_vllm import traces
        pulls, ended = traces.Pulls(0), SimpleNamespace(
            key=1, byte_count=4096, reached=(1, 2, 3, 4, 5)
        )
        pulls.end(ended, "one", None)
        loaded = [name for name in sys.modules if "opentelemetry" in name]
        assert loaded == ["opentelemetry"] * (sys.argv[1] == "absent"), loaded
        pulls.begin({1: traces.Place(bytes(23) + b"1", b"", 0, 1)})
        pulls.end(ended, "one", None)
        assert ("opentelemetry.trace" in sys.modules) == (sys.argv[1] != "absent")
    """
    for package in ("absent", "there"):
        subprocess.run([sys.executable, "-c", check, package], check=True)


TESTS: list[Callable[[], None]] = [
    binding_has_the_sizes_and_offsets_of_c,
    block_travels_between_two_pairs_of_halves,
    the_end_of_a_long_request_id_names_it,
    pull_does_not_wait_for_python,
    metrics_are_what_the_library_lists,
    lines_of_the_library_have_its_time,
    refusal_names_the_key_and_the_library_says_it,
    long_names_are_not_just_cut,
    own_keys_are_checked,
    clashing_neighbours_are_refused,
    layers_of_one_distance_are_one_cache,
    other_layouts_are_rows,
    only_known_kinds_of_cache_are_taken,
    blocks_are_told_by_their_index_in_the_prompt,
    siblings_have_one_parent_and_their_prompt_one_digest,
    all_that_kv_depends_on_is_in_the_digest,
    what_a_digest_cannot_name_is_not_moved,
    caches_that_differ_are_two_models,
    overrides_are_in_the_configuration,
    fingerprints_are_of_weights_not_of_files,
    large_weights_are_sampled_only,
    updated_weights_are_others,
    unfit_vllm_is_one_line,
    dynamo_knows_the_connector,
    parameters_say_who_pulls,
    only_sampled_traces_of_right_headers_are_kept,
    nothing_is_imported_without_a_trace_or_its_package,
]


def main() -> int:
    """Run all; 0 if all hold."""
    failed = 0
    for test in TESTS:
        try:
            test()
        except Exception:  # every failure of a test is its own
            failed += 1
            print(f"FAILED {test.__name__}\n{traceback.format_exc()}")
    print(f"{len(TESTS) - failed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    raise SystemExit(main())
