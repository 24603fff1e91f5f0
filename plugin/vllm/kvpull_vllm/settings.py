# SPDX-License-Identifier: Apache-2.0
"""The keys of kv_connector_extra_config.

The keys named here are the package's own; every other key goes to the library
as it is, which refuses what it does not know.
"""

from __future__ import annotations

import difflib
import json
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from kvpull_vllm import inside

_TEXTS = ("library", "model", "revision", "weights", "engine", "memory")
OWN_KEYS = (*_TEXTS, "ticket_only")
# "weight" for "weights"; no key of the library is so near to one of ours.
_NEAR = 0.8
# Connectors whose answers have the usual keys of kv_transfer_params.
_ANSWERING = ("Nixl", "MooncakeConnector", "MoRIIO", "KVPull")

# Torch's allocator is configured by either; vLLM looks at the first alone.
_ALLOC_CONF = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
_EXPANDABLE = re.compile(r"expandable_segments\s*:\s*True")
NO_SLEEP = (
    "KVPullConnector: sleep mode is not supported: consumers read the KV cache "
    "where it lies, and it cannot go away; do not call sleep, wake_up or discard"
)


class ConfigError(ValueError):
    """A configuration that is refused; the text says why and what to do."""


@dataclass(frozen=True)
class Settings:
    """The package's own keys, and the library's."""

    library: str | None = None
    model: str | None = None
    revision: str | None = None
    weights: str | None = None
    engine: str | None = None
    ticket_only: bool = False
    memory: str = "provided"
    config: dict[str, Any] = field(default_factory=dict)

    @property
    def config_json(self) -> str:
        """The library's keys as it reads them."""
        return json.dumps(self.config)

    def config_json_at(self, local_rank: int) -> str:
        """Return the library's keys for one of the workers of a node."""
        config = dict(self.config)
        if "KVPULL_VERBS_LOCAL_RANK" not in os.environ:
            config.setdefault("verbs_local_rank", local_rank)
        return json.dumps(config)


def check_spelling(
    keys: Iterable[str], own: Iterable[str], where: str
) -> None:
    """Refuse what is nearly a key of the package's own.

    The library, to which all others go, would name the nearest of its own.
    """
    for key in keys:
        for near in difflib.get_close_matches(key, own, 1, _NEAR):
            raise ConfigError(f"{where}: unknown key {key}: did you mean {near}")


def read(
    extra: dict[str, Any], prefix_caching: bool, has_states: bool = False
) -> Settings:
    """Return the settings of an engine; raise ConfigError."""
    own = {key: value for key, value in extra.items() if key in OWN_KEYS}
    config = {key: value for key, value in extra.items() if key not in OWN_KEYS}
    check_spelling(config, OWN_KEYS, "kv_connector_extra_config")
    for key in _TEXTS:
        if own.get(key) is not None and not isinstance(own[key], str):
            raise ConfigError(f"kv_connector_extra_config: {key} is no text")
    if not isinstance(own.get("ticket_only", False), bool):
        raise ConfigError(
            "kv_connector_extra_config: ticket_only is true or false"
        )
    if own.get("memory", "provided") not in ("provided", "foreign"):
        raise ConfigError(
            "kv_connector_extra_config: memory is provided (shared, the "
            f"default) or foreign, not {own['memory']!r}"
        )
    # An idle engine does not step, and a long step is no time for heartbeats.
    if config.setdefault("progress", "thread") == "caller":
        raise ConfigError(
            "kv_connector_extra_config: progress is thread with vLLM, which "
            "does not call the library while it computes or is idle"
        )
    # Siblings wait for the first one's pull only if a prefix cache serves them.
    # A cache of prefixes has no state after the tokens that were pulled.
    config.setdefault("share_prefix", prefix_caching and not has_states)
    if config["share_prefix"] and has_states:
        raise ConfigError(
            "kv_connector_extra_config: share_prefix is false with recurrent "
            "states: no prefix cache serves the siblings of a pull"
        )
    if config["share_prefix"] and not prefix_caching:
        raise ConfigError(
            "kv_connector_extra_config: share_prefix needs "
            "--enable-prefix-caching"
        )
    return Settings(config=config, **own)


def local_rank(parallel: Any) -> int:
    """Return a worker's place among those of its node, as its GPU's."""
    nodes = inside.option(parallel, "nnodes_within_dp", 1)
    here = inside.option(parallel, "data_parallel_rank_local", None)
    if here is None:
        here = parallel.data_parallel_rank
    size = max(parallel.world_size // nodes, 1)
    return int(here * size + parallel.rank % size)


# Methods whose drafts are looked up in the text: the KV cache has the model's
# layers alone.
_LOOKED_UP = ("ngram",)
# Methods whose drafts are computed by layers that have KV of their own.
_COMPUTED = ("eagle", "eagle3", "mtp", "draft_model")


def drafting(vllm_config: Any) -> Any:
    """Return the speculative configuration if drafts have KV, else None."""
    made = vllm_config.speculative_config
    is_looked_up = made is None or made.method in _LOOKED_UP
    return None if is_looked_up or made.draft_model_config is None else made


def _drafts_refused(vllm_config: Any) -> dict[str, bool]:
    """Return what is not taken of speculative decoding, by name."""
    speculative = vllm_config.speculative_config
    if speculative is None or speculative.method in _LOOKED_UP:
        return {}
    method = f"--speculative-config of method {speculative.method}"
    if speculative.method not in _COMPUTED:
        return {method: True}
    model, draft = vllm_config.model_config, speculative.draft_model_config
    ranks = vllm_config.parallel_config.tensor_parallel_size
    own = speculative.draft_parallel_config.tensor_parallel_size
    heads, drafted = (
        1 if of.use_mla else of.get_total_num_kv_heads()
        for of in (model, draft)
    )
    return {
        # The KV that such layers have of a prompt's last tokens is that of
        # tokens which P has sampled, and D does not compute it again.
        f"{method} with several layers that draft": inside.option(
            vllm_config, "num_prefill_lookahead_tokens", 1
        )
        > 1,
        f"{method} with parallel_drafting": speculative.parallel_drafting,
        f"{method} with draft_tensor_parallel_size {own} of {ranks}": own
        != ranks,
        f"{method} whose draft layers have {drafted} KV heads beside {heads}": (
            heads != drafted or model.use_mla != draft.use_mla
        ),
    }


def check_engine(vllm_config: Any) -> None:
    """Refuse, by name, what this version does not do."""
    parallel = vllm_config.parallel_config
    refused = {
        "--pipeline-parallel-size > 1": parallel.pipeline_parallel_size > 1,
        "--decode-context-parallel-size > 1": inside.option(
            parallel, "decode_context_parallel_size", 1
        )
        > 1,
        "--prefill-context-parallel-size > 1": inside.option(
            parallel, "prefill_context_parallel_size", 1
        )
        > 1,
        **_drafts_refused(vllm_config),
        "enable_permute_local_kv": inside.option(
            vllm_config.kv_transfer_config, "enable_permute_local_kv", False
        ),
    }
    for name, wrong in refused.items():
        if wrong:
            raise ConfigError(
                f"KVPullConnector: {name} is not supported by this version; "
                "it serves one stage of tensor-parallel ranks"
            )
    model = vllm_config.model_config
    # vLLM turns cumem on for sleep mode, which is the one that was asked for.
    if inside.option(model, "enable_sleep_mode", False):
        raise ConfigError(NO_SLEEP)
    if inside.option(model, "enable_cumem_allocator", False):
        raise ConfigError(
            "KVPullConnector: --enable-cumem-allocator is not supported: the "
            "KV cache lies in the library's memory, not in that allocator's"
        )
    if model.use_mla and not inside.rotates_heads():
        raise ConfigError(
            "KVPullConnector: MLA is not supported with this vLLM: its CPU "
            "kernel rotary_embedding rotates as many heads as there are "
            "tokens, so that a token alone is computed otherwise than in a "
            "row, and no engine can go on from what another one computed"
        )


def check_device(device: str, own: Settings) -> None:
    """Refuse devices that this version does not serve, or is not told to."""
    if device == "cpu":
        return
    key = own.config.get("device", os.environ.get("KVPULL_DEVICE", "off"))
    if device != "cuda" or not inside.is_cuda():
        wrong = "serves KV caches in the memory of hosts and of CUDA's devices"
    elif own.memory != "provided":
        wrong = "takes a GPU's KV cache from the library: unset memory"
    elif any(_EXPANDABLE.search(os.getenv(name, "")) for name in _ALLOC_CONF):
        wrong = (
            "does not work beside expandable segments: unset "
            f"expandable_segments in {' and '.join(_ALLOC_CONF)}"
        )
    elif key == "off":
        wrong = (
            "was built against a fake driver of GPUs, and has never run on "
            'one: to try it set {"device": "required"} in '
            "kv_connector_extra_config"
        )
    else:
        return
    raise ConfigError(
        f"KVPullConnector: device {device} is not supported: this version "
        f"{wrong}"
    )


def names_media(vllm_config: Any) -> bool:
    """Say whether vLLM names media by their content: its caches need that."""
    media = getattr(vllm_config.model_config, "multimodal_config", None)
    return (
        media is None
        or media.mm_processor_cache_gb != 0
        or bool(vllm_config.cache_config.enable_prefix_caching)
    )


def check_neighbours(names: list[str], ticket_only: bool) -> None:
    """Refuse a child of MultiConnector whose answer would clash."""
    answering = [name for name in names if name.startswith(_ANSWERING)]
    if len(answering) > 1 and not ticket_only:
        raise ConfigError(
            f"KVPullConnector: {' and '.join(answering)} under one "
            "MultiConnector answer with the same keys of kv_transfer_params, "
            'which ends the engine: set {"ticket_only": true} in '
            "KVPullConnector's kv_connector_extra_config"
        )
