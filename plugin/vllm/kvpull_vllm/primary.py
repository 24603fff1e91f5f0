# SPDX-License-Identifier: Apache-2.0
"""The facts of an engine that decide who may share its primary tier."""

from __future__ import annotations

from typing import Any

from kvpull_vllm import identity, inside, layout
from kvpull_vllm.halves import Model
from kvpull_vllm.logs import logger
from kvpull_vllm.settings import ConfigError, Settings

# Tiers whose peers write the primary, as the library's readers never do.
_WRITTEN_BY_PEERS = ("p2p", "kvcr")
_TRIED = ("0.32.", "0.33.")  # vLLM's versions
_HINT_WAIT_S, _HINT_WAIT_S_MAX = 1.0, 3600


def check(vllm_config: Any, spec: Any, policy: Any, chunks: int) -> None:
    """Refuse, by name, what cannot be shared."""
    algorithm = vllm_config.cache_config.prefix_caching_hash_algo
    others = [str(t.get("type")) for t in spec.secondary_tier_configs]
    writers = [name for name in others if name in _WRITTEN_BY_PEERS]
    refused = {
        f"--prefix-caching-hash-algo {algorithm}: names that a stranger can "
        "make alike are no names for others' bytes; use sha256": (
            "xxhash" in algorithm
        ),
        f"tier {' and '.join(writers)} beside it: its peers write into the "
        "memory that is shared here": bool(writers),
        "an engine over several nodes: its primary is a file on each": (
            inside.option(vllm_config.parallel_config, "nnodes_within_dp", 1)
            > 1
        ),
        'the eviction policy: set "eviction_policy": "KVPullLRU" (or '
        'KVPullARC) and "cache_policy_module_path": "kvpull_vllm.tier"; one '
        "tier of this type": policy is None or policy.cache_capacity != chunks,
    }
    if not inside.version().startswith(_TRIED):
        logger.warning(
            "kvpull: pool: vLLM's tiers are an experiment of vLLM's; this was "
            "tried with %s, not with %s",
            " and ".join(f"{one}x" for one in _TRIED), inside.version(),
        )  # fmt: skip
    for name, wrong in refused.items():
        if wrong:
            raise ConfigError(f"tier kvpull: {name}")


def spill(config: dict[str, Any]) -> tuple[str | None, int]:
    """Take the folder of the file that chunks are spilled to, and its bytes."""
    folder = config.pop("spill_dir", None)
    size = config.pop("spill_bytes", 0)
    if (folder is None) != (size == 0) or not isinstance(size, int) or size < 0:
        raise ConfigError(
            "tier kvpull: spill_dir, a folder of a local disk, and spill_bytes "
            "come together"
        )
    return folder, size


def hint_wait(config: dict[str, Any]) -> float:
    """Take how long a request waits for the source that it names."""
    wait_s = config.pop("hint_wait_s", _HINT_WAIT_S)
    if type(wait_s) not in (int, float) or not 0 <= wait_s <= _HINT_WAIT_S_MAX:
        raise ConfigError(
            "tier kvpull: hint_wait_s is a number of seconds, "
            f"0 .. {_HINT_WAIT_S_MAX}"
        )
    return float(wait_s)


def model(vllm_config: Any, caches: Any, spec: Any, own: Settings) -> Model:
    """Return what must be equal for a chunk's bytes to mean the same."""
    config, device = spec.config, vllm_config.device_config.device_type
    same = identity.identity(vllm_config, caches, own, inside.version())
    if not same.weights:
        raise ConfigError(
            "tier kvpull: the weights' files are not on this machine: name "
            'them, "weights": "..."'
        )
    names = [n for group in layout.groups(caches) for n in group.layer_names]
    cache = vllm_config.cache_config
    specs = [layout.layer_spec(group) for group in layout.groups(caches)]
    kernels = [device]
    if device == "cpu":
        kernels += {
            inside.kernels(
                vllm_config.model_config.dtype,
                one.block_size,
                one.head_size,
                cache.cache_dtype,
            )
            for one in specs
            if hasattr(one, "head_size")
        }
    else:
        chosen = getattr(vllm_config, "attention_config", None)
        kernels += [str(getattr(chosen, "backend", "")), inside.device()]
    tokens = "+".join(str(group.tokens_per_block) for group in config.groups)
    return Model(
        **same._asdict(),
        dtype=f"{config.model.dtype} {getattr(specs[0], 'dtype', '')}",
        layout=f"{config.kv_cache_layout} {tokens} tokens x "
        f"{config.cache.blocks_per_chunk}, {config.parallel.world_size} ranks"
        f"{' replicated' * spec.replicated_layout}"
        f"{' canonical' * config.canonical_layout}",
        attention=" ".join(sorted(kernels)),
        layer_count=len(names),
        head_count=config.parallel.world_size,
        head_bytes=config.worker_kv_bytes_per_block,
        replicated=bool(spec.replicated_layout),
    )
