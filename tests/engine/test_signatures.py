# SPDX-License-Identifier: Apache-2.0
"""All that the package touches in vLLM is as it was when it was written.

test_signatures.py: prints the result line of the other test programs.
"""

from __future__ import annotations

import importlib
import inspect
import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

from engine import environment

os.environ.update(environment())
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")

import signatures as table  # noqa: E402
import vllm  # noqa: E402
from kvpull_vllm import (  # noqa: E402
    connector,
    core,
    inside,
    signatures,
    tier,
)
from kvpull_vllm.logs import logger  # noqa: E402
from kvpull_vllm.settings import ConfigError  # noqa: E402
from runner import run_all, test  # noqa: E402
from vllm.distributed.kv_transfer.kv_connector.v1.base import (  # noqa: E402
    KVConnectorBase_V1,
)
from vllm.v1.kv_offload.cpu.policies.lru import LRUCachePolicy  # noqa: E402

INSTALLED = Path(vllm.__file__).parents[1]


class Changed(table.Source):
    """The vLLM that is installed, with a text in place of another one."""

    def __init__(self, old: str, new: str) -> None:
        super().__init__(INSTALLED)
        self._old, self._new, self.count = old, new, 0

    def _text(self, path: str) -> str | None:
        text = super()._text(path)
        if text is None:
            return None
        self.count += text.count(self._old)
        return text.replace(self._old, self._new)


@test
def the_installed_vllm_is_as_the_table_says() -> None:
    """A vLLM that is new here is compared with the newest in the table."""
    said = table.differences(table.Source(INSTALLED), table.TABLE.read_text())
    assert not said, "\n".join(said)


@test
def what_changes_is_named() -> None:
    """An argument more, a field less, a private name that is gone."""
    for old, new, name in (
        (
            "def mark_evictable(self, key: OffloadKey)",
            "def mark_evictable(self, key: OffloadKey, now: float)",
            "LRUCachePolicy.mark_evictable",
        ),
        ("    def wait_for_save(self)", "    def waits(self)", "wait_for_save"),
        ("_weight_version", "_weights", "EngineCore._weight_version"),
        ("_get_attn_isa", "_isa_of", "cpu_attn._get_attn_isa"),
        ("mmap_path", "path", "SharedOffloadRegion.mmap_path"),
        ("    is_3d_lora_weight", "    is_3d", "LoRARequest.is_3d_lora_weight"),
    ):
        changed = Changed(old, new)
        said = table.differences(changed, table.TABLE.read_text())
        assert changed.count, old
        assert any(name in line for line in said), (name, said)


@test
def a_name_that_the_package_begins_to_touch_is_missed() -> None:
    """The table has to be written anew for it."""
    text = table.TABLE.read_text()
    name = "vllm.v1.kv_offload.tiering.base.JobResult"
    assert f"{name}\n" in text
    without = text.replace(f"{name}\n", "other\n")
    said = table.differences(table.Source(INSTALLED), without)
    assert f"{name}: the table lacks it" in said, said


def _call(text: str) -> Callable[..., Any]:
    """Return a function with such a signature."""
    scope: dict[str, Any] = {}
    exec(f"def made({text}): ...", scope)  # noqa: S102: written here
    return scope["made"]


@test
def ours_has_to_take_all_that_vllm_may_give() -> None:
    """By place, by name, and what may be left out."""
    for ours, theirs, why in (
        ("self, a", "self, a", ""),
        ("self, a, *more", "self, a, b", ""),
        ("self, a=1, **more", "self, a=1, *, b", ""),
        ("self, a, b=1", "self, a", ""),
        ("self, *args, **kwargs", "self, a, b=1, *, c, d=2", ""),
        ("self, a", "self, a, b", "too many positional"),
        ("self, a", "self, a, b=1", "too many positional"),
        ("self, a", "self, b", "'a'"),
        ("self, a", "self, a=1", "'a'"),
        ("self, a, b", "self, a", "'b'"),
        ("self, a", "self, a, *, b", "'b'"),
        ("self, a, *, b", "self, a", "'b'"),
    ):
        found = signatures.misfit(_call(ours), _call(theirs))
        assert (why in found) if why else not found, (ours, theirs, found)


@test
def a_method_that_vllm_calls_otherwise_is_refused_by_name() -> None:
    """A changed method of a tier's policy, or of the connector, is named."""

    def evict(self: Any, n: int, protected: Any, req_context: Any) -> None: ...

    def save_kv_layer(self: Any, layer_name: str) -> None: ...

    for owner, later, refuse, words in (
        (
            LRUCachePolicy,
            evict,
            lambda: signatures.check(tier.KVPullLRU),
            ("LRUCachePolicy.evict(", "req_context", "Publishing.evict"),
        ),
        (
            KVConnectorBase_V1,
            save_kv_layer,
            connector._check_signatures,
            ("KVConnectorBase_V1.save_kv_layer(", "KVPullConnector"),
        ),
    ):
        refuse()
        with mock.patch.object(owner, later.__name__, later):
            try:
                refuse()
            except ConfigError as error:
                for word in (*words, vllm.__version__):
                    assert word in str(error), (word, error)
            else:
                raise AssertionError(later)


@test
def all_that_is_overridden_is_compared() -> None:
    """As the sources have it, which the table is made of."""
    found = set()
    for kind in (
        connector.KVPullConnector,
        connector.KVPullStats,
        connector.KVPullPromMetrics,
        connector.KVPullWorkerMetadata,
        tier.KVPullTier,
        tier.KVPullLRU,
        tier.KVPullARC,
    ):
        found |= {
            f"{kind.__mro__.index(base) > 0}.{theirs.__name__}"
            for _, base, theirs in signatures.overridden(kind)
        }
    names = {name.rsplit(".", 1)[1] for name in table.overridden(
        [table.Source(INSTALLED)]
    )}  # fmt: skip
    missed = names - {one.split(".")[1] for one in found}
    # These are made by dataclass, or are no functions.
    assert missed <= {"__init__", "__post_init__"}, missed
    assert len(found) > 30, found


@test
def sides_stand_for_methods_of_the_same_signature() -> None:
    """vLLM may call them by the names of their arguments."""
    for side, calls in (
        (connector.SchedulerSide, connector._SCHEDULER_CALLS),
        (connector.WorkerSide, connector._WORKER_CALLS),
    ):
        for name, call in calls.items():
            theirs = inspect.signature(getattr(connector.KVPullConnector, name))
            ours = inspect.signature(getattr(side, call))
            assert list(theirs.parameters) == list(ours.parameters), name


@test
def a_private_name_that_is_gone_is_a_line() -> None:
    """Once, with what comes of it; none is an empty text of an identity."""
    platform = importlib.import_module("vllm.platforms").current_platform
    attention = importlib.import_module("vllm.v1.attention.backends.cpu_attn")
    scheduler = SimpleNamespace(kv_cache_manager=SimpleNamespace(block_pool=1))

    def no_name(*_args: Any) -> str:
        raise NotImplementedError

    said: list[str] = []
    own = core.Core()
    own._core = SimpleNamespace(scheduler=scheduler)
    hits = "vllm.v1.metrics.cache_hit_source"
    with (
        mock.patch.object(
            logger, "handle", lambda line: said.append(line.getMessage())
        ),
        mock.patch.object(logger, "level", logging.WARNING),
        mock.patch.object(inside, "_said", set()),
        mock.patch.dict(sys.modules, {hits: None}),
        mock.patch.object(type(platform), "get_device_name", no_name),
        mock.patch.object(attention, "_get_attn_isa"),
    ):
        del attention._get_attn_isa
        logger._cache.clear()
        for _ in range(2):
            assert inside.hit_source() is None
            assert inside.kernels("float32", 32, 64, "auto")
            assert inside.device()
            assert inside.option(scheduler, "nnodes", 1) == 1
            inside.forget_primary_name(object())
            core.Core()
            assert own.cached() is None
            assert not own.waits_for_holds()
    logger._cache.clear()
    for name in (
        "CacheHitSource",
        "_get_attn_isa",
        "get_device_name()",
        "mmap_path",
        "nnodes in its SimpleNamespace",
        "EngineCore with a _weight_version",
        "BlockPool.cached_block_hash_to_block",
        "Scheduler.pause_state",
    ):
        lines = [line for line in said if f"has no {name}" in line]
        assert len(lines) == 1, (name, said)
        assert vllm.__version__ in lines[0] and ": " in lines[0], lines


@test
def sleep_mode_is_refused_by_name() -> None:
    """vLLM 0.33 asks the class, and calls what is not to be called."""
    assert connector.KVPullConnector.supports_sleep_mode(None) is False
    own = connector.KVPullConnector.__new__(connector.KVPullConnector)
    for call in (own.unregister_kv_caches, own.restore_kv_caches):
        try:
            call()
        except ConfigError as error:
            assert "sleep mode" in str(error), error
        else:
            raise AssertionError(call)


if __name__ == "__main__":
    sys.exit(run_all())
