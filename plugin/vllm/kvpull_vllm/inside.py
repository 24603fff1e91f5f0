# SPDX-License-Identifier: Apache-2.0
"""The parts of vLLM that are touched beside its connector interface.

Each name stands here alone, with what is done where a vLLM lacks it: names
of one version may be gone in the next.
"""

from __future__ import annotations

import contextlib
import os
import platform
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

import torch

from kvpull_vllm.logs import logger

_FRAMES = 16
_FRAMES_OF_IMPORT = 64  # those of the import itself among them
_said: set[str] = set()


def lacks(name: str, hence: str) -> None:
    """Say once that this vLLM has no such name, and what comes of it."""
    if name not in _said:
        _said.add(name)
        logger.warning("kvpull: vLLM %s has no %s: %s", version(), name, hence)


def version() -> str:
    """Return vLLM's version."""
    import vllm

    return str(getattr(vllm, "__version__", "unknown"))


def option(config: Any, name: str, default: Any) -> Any:
    """Return a field of vLLM's configuration."""
    if not hasattr(config, name):
        lacks(
            f"{name} in its {type(config).__name__}",
            f"it is taken for {default}",
        )
    return getattr(config, name, default)


def hit_source() -> Any:
    """Return what vLLM's statistics call a hit at another engine."""
    try:
        from vllm.v1.metrics.cache_hit_source import CacheHitSource
    except ImportError:  # before 0.32
        lacks("CacheHitSource", "its metrics do not tell whose KV was a hit")
        return None
    return CacheHitSource.P2P


def own_tokens(request: Any) -> list[int] | None:
    """Return the tokens of a request that vLLM computes, as its own list."""
    found = getattr(request, "_all_token_ids", None)
    if not isinstance(found, list):
        lacks(
            "_all_token_ids of a request",
            "models with recurrent states hold nothing: their prompts cannot "
            "be shortened",
        )
        return None
    return found


def sampled_logprob(outcome: Any, name: str) -> float | None:
    """Return the log probability of a request's token in a step's outcome.

    vLLM's workers tell it in steps where a request asks for log probabilities,
    and its scheduler passes it on to the client alone.
    """
    found = getattr(outcome, "logprobs", None)
    at = None if found is None else outcome.req_id_to_index.get(name)
    if at is None:
        return None
    # The first column is that of the token that was sampled.
    return float(found.slice_request(at, 1).logprobs[0][0])


def kernels(dtype: Any, block: int, head: int, cache_dtype: str) -> str:
    """Return the CPU backend's kernels: each lays a block out in its way."""
    try:
        from vllm.v1.attention.backends.cpu_attn import _get_attn_isa
    except ImportError:  # what it chooses by, then
        machine = f"{platform.machine()}/{dtype}"
        lacks(
            "_get_attn_isa",
            f"engines are taken for alike where they are {machine}, whatever "
            "kernels they have",
        )
        return machine
    return _get_attn_isa(dtype, block, head, cache_dtype)


def is_cuda() -> bool:
    """Say whether vLLM's devices are those of CUDA, not of ROCm's like names."""
    from vllm.platforms import current_platform

    return bool(current_platform.is_cuda())


def device() -> str:
    """Return the name of this machine's devices: they choose kernels by it."""
    from vllm.platforms import current_platform

    try:
        return str(current_platform.get_device_name())
    except Exception:  # of a platform without names
        lacks(
            "get_device_name() of this platform",
            "engines are taken for alike whatever devices they have",
        )
        return "unknown"


def _frames(count: int = _FRAMES) -> Iterator[FrameType]:
    """Yield the callers' frames, the nearest first."""
    frame: FrameType | None = sys._getframe(1)
    for _ in range(count):
        if frame is None:
            return
        yield frame
        frame = frame.f_back


def configurations() -> tuple[Any, Any]:
    """Return the vllm_config and kv_cache_config of the connector being made.

    vLLM tells a tier a part of the first one only; the caller's are looked up
    where they are: in its constructor.
    """
    for frame in _frames():
        found = [
            frame.f_locals.get(name)
            for name in ("vllm_config", "kv_cache_config")
        ]
        if None not in found:
            return found[0], found[1]
    raise LookupError(
        "vLLM's OffloadingConnector has no vllm_config and kv_cache_config "
        "where it makes its tiers"
    )


def primary_file(offloading_spec: Any) -> int:
    """Return the descriptor of the primary tier's memory.

    vLLM hands a tier the mapping of it alone.
    """
    region = getattr(offloading_spec, "_scheduler_mmap", None)
    fd = getattr(region, "fd", None)
    if not isinstance(fd, int):
        raise LookupError(
            "vLLM's TieringOffloadingSpec has no _scheduler_mmap with an fd"
        )
    return fd


def forget_primary_name(offloading_spec: Any) -> None:
    """Take the name of the primary tier's memory away; all have it mapped.

    vLLM leaves it where an engine is killed, and its memory with it. A worker
    that made it warns at its own end that the name is gone.
    """
    region = getattr(offloading_spec, "_scheduler_mmap", None)
    path = getattr(region, "mmap_path", None)
    if path is None:
        lacks(
            "mmap_path of _scheduler_mmap",
            "the file of an engine that is killed stays in /dev/shm",
        )
        return
    with contextlib.suppress(OSError):
        os.unlink(path)
        region._creator = False


def _transfer_of_all() -> Any:
    """Return MultiConnector's kv_transfer_config, None if there is none.

    It shows its children their own part of the configuration only, so the
    caller's is looked up where it is: in its constructor.
    """
    for frame in _frames():
        caller = frame.f_locals.get("self")
        config = frame.f_locals.get("vllm_config")
        transfer = getattr(config, "kv_transfer_config", None)
        if type(caller).__name__ == "MultiConnector" and transfer is not None:
            return transfer
    return None


def neighbours() -> list[str]:
    """Return the names of the connectors beside this one, itself included."""
    transfer = _transfer_of_all()
    if transfer is None:
        return []
    children = transfer.kv_connector_extra_config.get("connectors", [])
    return [str(child.get("kv_connector")) for child in children]


def fails_lost_loads(transfer: Any) -> bool:
    """Say whether vLLM ends a request whose load failed with an error.

    It asks the engine's kv_transfer_config; a child of MultiConnector has one
    of its own.
    """
    return (_transfer_of_all() or transfer).kv_load_failure_policy == "fail"


def _caller_with(name: str) -> Any:
    """Return the nearest caller's object that has an attribute, or None."""
    for frame in _frames():
        caller = frame.f_locals.get("self")
        if hasattr(caller, name):
            return caller
    return None


def configuration_being_made() -> Any:
    """Return the VllmConfig in whose constructor a connector is imported."""
    for frame in _frames(_FRAMES_OF_IMPORT):
        caller = frame.f_locals.get("self")
        if type(caller).__name__ == "VllmConfig":
            return caller
    return None


def processing_info() -> Any:
    """Return vLLM's class that says what stands for a model in media's names."""
    try:
        from vllm.multimodal.processing import BaseProcessingInfo
    except ImportError:
        return None
    found = getattr(BaseProcessingInfo, "model_id", None)
    return BaseProcessingInfo if isinstance(found, property) else None


def engine_core() -> Any:
    """Return the engine core in whose constructor this is, None outside."""
    return _caller_with("_weight_version")


def scheduler() -> Any:
    """Return the scheduler in whose constructor this is.

    What workers said is looked at there before vLLM acts on it.
    """
    found = _caller_with("update_from_output")
    if found is None:
        raise LookupError(
            "vLLM's connector is not made by a Scheduler with an "
            "update_from_output: this vLLM is not supported"
        )
    return found


def rotates_heads() -> bool:
    """Say whether the CPU's kernel rotates [token][head][number].

    MLA gives it such tensors. vLLM 0.32's takes the last two dimensions for
    tokens and the numbers of all their heads: it rotates as many heads as
    there are tokens, and what P computed of a token in a row is not what D
    computes of it alone. Both ends are wrong, each in its own way.
    """
    from vllm import _custom_ops as ops

    tokens, heads, size = 2, 2, 16
    numbers = torch.arange(tokens * heads * size, dtype=torch.float32)
    angles = torch.arange(4.0)[:, None] / torch.arange(1, 1 + size // 2)
    cache = torch.cat([angles.cos(), angles.sin()], dim=-1)
    by_head = numbers.reshape(tokens, heads, size).clone()
    flat = numbers.reshape(tokens, heads * size).clone()
    positions = torch.arange(1, 1 + tokens)
    for query in (by_head, flat):
        ops.rotary_embedding(
            positions, query, query.clone(), size, cache, False
        )
    return torch.allclose(by_head.flatten(1), flat)
