# SPDX-License-Identifier: Apache-2.0
"""Tests of the package that need no engine: the binding, the halves, layouts.

test_package.py: prints the result line of the other test programs.
"""

from __future__ import annotations

import ctypes
import json
import logging
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import kvpull_vllm
from kvpull_vllm import (
    abi,
    connector,
    halves,
    inside,
    layout,
    logs,
    requests,
    settings,
    stats,
    traces,
)
from kvpull_vllm.abi import CONST, ffi
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from runner import run_all, test
from vllm import plugins
from vllm.config import KVTransferConfig, VllmConfig
from vllm.distributed.kv_transfer.kv_connector.factory import (
    KVConnectorFactory,
)
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorRole
from vllm.distributed.kv_transfer.kv_connector.v1.multi_connector import (
    MultiConnector,
)
from vllm.v1.kv_cache_interface import KVCacheConfig

PROMPT = (16, bytes(16))
KINDS = (Gauge, Counter, Histogram)


@test
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
    # The text has the headers in the order in which they include each other.
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
        cache = layout.Geometry(
            0, 0, 1, base, 0, 4096, 0, 4096, 8, 1, 1, 4096, 256
        )
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


@test
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


@test
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


@test
def structs_at_once_are_what_cffi_reads() -> None:
    """Each member has its place, width and sign."""
    for kind in ("kvpull_request", "kvpull_allocation", "kvpull_finish"):
        _, *fields = ffi.typeof(f"struct {kind}").fields
        made, fill = abi.packed(kind, *(name for name, _ in fields))
        told: dict[str, Any] = {}
        for at, (name, member) in enumerate(fields):
            size = ffi.sizeof(member.type)
            is_bytes = member.type.kind == "array"
            told[name] = bytes([at]) * size if is_bytes else 7 + (at << 24)
        fill(*told.values())
        for name, member in fields:
            found = getattr(made, name)
            if member.type.kind == "array":
                found = bytes(ffi.buffer(found))
            elif member.type.kind == "pointer":
                found = abi.address(found)
            assert found == told[name], (kind, name, found)
        assert made.struct_size == ffi.sizeof(made[0])
    records = ffi.new("struct kvpull_poll_record[]", 2)
    record = records[1]
    names = [name for name, _ in ffi.typeof(record).fields]
    for at, name in enumerate(names):
        setattr(record, name, -5 if name == "reason" else 9 + at)
    read = abi.layout("kvpull_poll_record").iter_unpack(ffi.buffer(records))
    _, told_last = map(halves.Report._make, read)
    names[names.index("bytes")] = "byte_count"
    for at, name in enumerate(names):
        expected = -5 if name == "reason" else 9 + at
        assert getattr(told_last, name) == expected, (name, told_last)
    counters = ffi.new(f"{abi.COUNTER}[]", 3)
    for at, counter in enumerate(counters):
        counter.value = (1 << 40) + at
    values = abi.layout("kvpull_counter", "value", count=3)
    assert values.unpack(ffi.buffer(counters)) == tuple(
        (1 << 40) + at for at in range(3)
    )


@test
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
        ctypes.PyDLL(None).usleep(5_000_000)
        end = time.monotonic() + 10
        while not reports and time.monotonic() < end:
            reports += d.step()
        assert [r.kind for r in reports] == [CONST["KVPULL_POLL_LOADED"]]
        assert reports[0].seconds < 4, reports
        phases = reports[0].phases()
        assert len(phases) == len(halves.PHASES), reports
        assert all(0 < phase < 4 for phase in phases), reports
        assert abs(sum(phases) - reports[0].seconds) < 1e-9, reports
        p.close()
        d.close()


@test
def metrics_are_what_the_library_lists() -> None:
    """Totals add up, what is now is each rank's last word."""
    library = abi.Library()
    registry = CollectorRegistry()
    config = VllmConfig()
    config.kv_transfer_config = KVTransferConfig(
        kv_connector="KVPullConnector", kv_role="kv_both"
    )
    prom = stats.KVPullPromMetrics(
        config,
        {kind: partial(kind, registry=registry) for kind in KINDS},
        ["engine"],
        {0: ["0"]},
    )

    def value(name: str) -> float | None:
        return registry.get_sample_value(
            f"vllm:kvpull_{name}", {"engine": "0"}
        )

    listed = {one.name: one for one in registry.collect()}
    for half in ("scheduler", "worker"):
        for counter in library.counters(half):
            one = listed[f"vllm:kvpull_{half}_{counter.name}"]
            assert one.documentation.endswith("."), one
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
                p.worker._seen = ()
                move.look(p.worker.counts(), told)
                said.aggregate(told)
            prom.observe(said.data)
            assert value("worker_holds_live") == 2 * key
        assert value("worker_holds_taken_total") == 6
        said = stats.KVPullStats()
        said.data["pulls"].append([4096, 1.0, 0.4, 0.3, 0.2, 0.1])
        prom.observe(said.data)
        phases = zip(halves.PHASES, (0.4, 0.3, 0.2, 0.1), strict=True)
        for phase, took in phases:
            assert value(f"pull_{phase}_seconds_sum") == took
        p.worker._seen = ()
        counts = list(p.worker.counts() or ())
        names = [counter.name for counter in p.worker.counters]
        for move, live, peak in zip(moves, (3, 1), (8, 5), strict=True):
            told = stats.KVPullStats()
            counts[names.index("holds_live")] = live
            counts[names.index("poll_ns_max")] = peak
            move.look(tuple(counts), told)
            assert not told.is_empty()
            prom.observe(told.data)
        assert value("worker_holds_live") == 4
        assert value("worker_poll_ns_max") == 8
        p.close()


@test
def counters_are_read_now_and_then() -> None:
    """Not in each busy step, and in the first quiet one behind it."""

    total = CONST["KVPULL_COUNTER_TOTAL"]

    class Half:
        kind, rank = "scheduler", 0
        counters = (abi.Counter("steps_built", "", total),)
        now, reads = 0, 0

        def counts(self) -> tuple[int, ...]:
            self.reads += 1
            return (self.now,)

    def step(is_busy: bool) -> int | None:
        half.now += is_busy
        tally.is_busy |= is_busy
        said = tally.take()
        return said and said.data["counts"]["scheduler_steps_built"]

    half = Half()
    with mock.patch("kvpull_vllm.stats.time.monotonic") as clock:
        clock.return_value = 100.0
        tally = stats.Tally(half)
        assert step(True) == 1, "the first one is long due"
        assert tally.is_untold(), "the step itself may have gone on"
        assert step(False) is None and not tally.is_untold()
        assert [step(True) for _ in range(5)] == [None] * 5
        assert tally.is_untold() and half.reads == 2
        assert step(False) == 5 and not tally.is_untold()
        assert [step(False) for _ in range(5)] == [None] * 5
        assert half.reads == 3, "a quiet one behind a quiet one reads nothing"
        assert step(True) is None
        clock.return_value += 0.2
        assert step(True) == 2, "busy without end"
        clock.return_value += 0.2
        reads = half.reads
        assert step(False) is None and half.reads == reads + 1


@test
def closed_libraries_stay_mapped() -> None:
    """The library's threads run on while Python frees modules at its end."""
    check = """if True:
        from kvpull_vllm import abi, logs
        abi.ffi.dlclose(abi.Library()._handle)
        abi.ffi.dlclose(logs.pipe()._library)
        with open("/proc/self/maps") as maps:
            mapped = maps.read()
        for name in ("libkvpull.so.1", "libkvpull_log.so"):
            assert name in mapped, name
    """
    subprocess.run([sys.executable, "-c", check], check=True)


@test
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


@test
def names_of_requests_forge_no_lines() -> None:
    """A client may name its request with the start of another line."""
    said: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(  # type: ignore[method-assign]
        record.getMessage()
    )
    halves.logger.addHandler(handler)
    try:
        halves.logger.error("kvpull: request %s", "a\n\x1b[2K\u2028ERROR é")
    finally:
        halves.logger.removeHandler(handler)
    assert said == ["kvpull: request a??[2K?ERROR é"], said


@test
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


@test
def worker_has_the_place_of_its_gpu_on_the_node() -> None:
    """Equal devices are shared out by it, and so are ports."""

    def place(rank: int, here: int | None, nodes: int = 1) -> int:
        return settings.local_rank(
            SimpleNamespace(
                world_size=4,
                nnodes_within_dp=nodes,
                data_parallel_rank=3,
                data_parallel_rank_local=here,
                rank=rank,
            )
        )

    assert [place(rank, 0) for rank in range(4)] == [0, 1, 2, 3]
    assert place(1, 1) == 5  # the second engine of the node
    assert place(1, None) == 13  # nobody says which: all have one number
    assert place(3, 0, nodes=2) == 1  # two of four ranks a node
    own = settings.read({"model": "tiny"}, True)
    assert json.loads(own.config_json_at(5))["verbs_local_rank"] == 5
    own = settings.read({"model": "tiny", "verbs_local_rank": 7}, True)
    assert json.loads(own.config_json_at(5))["verbs_local_rank"] == 7


@test
def long_names_are_not_just_cut() -> None:
    """Paths that differ behind the record's room are different models."""
    path = "/weights/é" * 20
    names = [halves.fitting(path + end) for end in ("a", "b")]
    assert names[0] != names[1]
    for name in names:
        assert len(name) < CONST["KVPULL_TEXT_BYTES_MAX"]
        assert path.startswith(name.decode()[:-17])
    assert halves.fitting("tiny") == b"tiny"
    odd = [halves.fitting(f"1{end}") for end in ("", "\0", "\0a", "\n", "\ud800")]
    assert len(set(odd)) == len(odd) and not any(set(one) & {0, 10} for one in odd)


@test
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


@test
def nearest_name_may_be_one_of_the_package() -> None:
    """The library would name one of its own keys."""
    for key, meant in (("weight", "weights"), ("memry", "memory")):
        try:
            settings.read({key: "x"}, True)
        except settings.ConfigError as error:
            assert f"{key}: did you mean {meant}" in str(error), error
        else:
            raise AssertionError(f"{key} is not refused")
    page = Path(__file__).parents[2] / "tools" / "kvpull.conf.5"
    keys = re.findall(r"^\.It Cm ([a-z_]+)", page.read_text(), re.M)
    assert "lease_ms" in keys and len(keys) > 40, keys
    settings.check_spelling(keys, settings.OWN_KEYS, "")


def _seen_by_children(names: list[str], policy: str) -> list[Any]:
    """Return what children of vLLM's MultiConnector see around them."""
    config = VllmConfig()
    config.kv_transfer_config = KVTransferConfig(
        kv_connector="MultiConnector",
        kv_role="kv_both",
        kv_load_failure_policy=policy,
        kv_connector_extra_config={
            "connectors": [
                {"kv_connector": name, "kv_role": "kv_both"} for name in names
            ]
        },
    )
    seen = []

    def look(
        self: Any, vllm_config: Any, role: Any, kv_cache_config: Any
    ) -> None:
        own = vllm_config.kv_transfer_config
        assert "connectors" not in own.kv_connector_extra_config
        seen.append((inside.neighbours(), inside.fails_lost_loads(own)))

    kind = connector.KVPullConnector
    with (
        mock.patch.object(
            KVConnectorFactory, "get_connector_class", lambda config: kind
        ),
        mock.patch.object(kind, "__init__", look),
    ):
        MultiConnector(config, KVConnectorRole.SCHEDULER, KVCacheConfig(1, [], []))
    return seen


@test
def clashing_neighbours_are_refused() -> None:
    """Two connectors that answer with the same keys end the engine."""
    names = ["KVPullConnector", "NixlConnector"]
    assert inside.neighbours() == []
    # The engine's policy counts, not that of a child's own configuration.
    for policy in ("fail", "recompute"):
        seen = _seen_by_children(names, policy)
        assert seen == [(names, policy == "fail")] * 2, seen
    settings.check_neighbours(names, ticket_only=True)
    settings.check_neighbours(["KVPullConnector", "OffloadingConnector"], False)
    try:
        settings.check_neighbours(names, ticket_only=False)
    except settings.ConfigError as error:
        assert "ticket_only" in str(error)
    else:
        raise AssertionError("not refused")


@test
def blocks_are_told_by_their_index_in_the_prompt() -> None:
    """Null blocks of a sliding window and local prefixes are left out."""
    ids = ([0, 0, 7, 8, 9],)
    assert requests.blocks_of(ids, [(0, 16)], 0, 64) == [(2, [7, 8])]
    ids = ([], [4, 5, 6, 7])
    assert requests.blocks_of(ids, [(1, 16)], 32, 49) == [(2, [6, 7])]


@test
def unfit_vllm_is_one_line() -> None:
    """A vLLM that is older than the interface is refused by its number.

    Of all others a line at start says whether anybody has tried them.
    """
    for version, said in (
        ("0.31.0", "loads"),
        ("0.32.0+cpu", "tested"),
        ("0.33.1rc1.dev3+gabc", "tried"),
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


@test
def editable_install_is_refused() -> None:
    """An editable install is refused: it would lack the library."""
    folder = Path(__file__).resolve().parents[2] / "plugin/vllm"
    with tempfile.TemporaryDirectory() as made:
        shutil.copytree(folder, made, dirs_exist_ok=True)
        built = subprocess.run(
            [sys.executable, "setup.py", "editable_wheel", "--dist-dir", made],
            cwd=made,
            env={**os.environ, "LIBKVPULL": "/lib.so", "KVPULL_INCLUDE": "/"},
            capture_output=True,
            text=True,
            check=False,
        )
    assert built.returncode, built.stdout
    assert "pip install" in built.stderr and "-e" in built.stderr, built.stderr


@test
def name_alone_finds_the_connector() -> None:
    """vLLM loads the installed entry point, unless VLLM_PLUGINS leaves it out."""
    config = KVTransferConfig(kv_connector="KVPullConnector", kv_role="kv_both")
    for listed, found in ((None, True), ("a,kvpull", True), ("a", False)):
        with (
            mock.patch.dict(KVConnectorFactory._registry),
            mock.patch.dict(os.environ),
            mock.patch.object(plugins, "plugins_loaded", False),
        ):
            KVConnectorFactory._registry.pop("KVPullConnector", None)
            os.environ.pop("VLLM_PLUGINS", None)
            if listed:
                os.environ["VLLM_PLUGINS"] = listed
            plugins.load_general_plugins()
            try:
                kind = KVConnectorFactory.get_connector_class(config)
            except ValueError as error:
                assert not found and "Unsupported connector type" in str(error), error
            else:
                assert found and kind is connector.KVPullConnector, listed


@test
def dynamo_knows_the_connector() -> None:
    """The connector adds itself to Dynamo's table of protocols."""
    name = "dynamo.vllm.kv_connector_protocols"
    table = {"NixlConnector": object()}
    fake = SimpleNamespace(KV_CONNECTOR_PROTOCOLS=table)
    with mock.patch.dict(sys.modules, {name: fake}):
        for _ in range(2):
            kvpull_vllm.register()
    assert table["KVPullConnector"] is table["NixlConnector"]


@test
def parameters_say_who_pulls() -> None:
    """A ticket alone pulls; do_remote_prefill has the last word."""
    assert requests.pulls({"kvpull_ticket": "t"})
    assert requests.pulls({"do_remote_prefill": True})
    assert not requests.pulls(
        {"do_remote_prefill": False, "kvpull_ticket": "t"}
    )
    assert not requests.pulls({"do_remote_decode": True})


@test
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


@test
def nothing_is_imported_without_a_trace_or_its_package() -> None:
    """A pull in no trace imports no OpenTelemetry, which may be missing."""
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


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    raise SystemExit(run_all())
