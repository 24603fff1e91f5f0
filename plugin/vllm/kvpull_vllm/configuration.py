# SPDX-License-Identifier: Apache-2.0
"""The configuration that decides KV, part by part.

Every field of vLLM's configurations that is not known to be of no weight on KV
is a part by itself: one that a new vLLM brings is compared, not overlooked.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kvpull_vllm import files, layout, settings

_LLAMA4_TUNED_ABOVE = 32768
# Keys of config.json that leave KV as it is, and differ between machines.
_UNIMPORTANT = frozenset({
    "dtype",
    "torch_dtype",
    "transformers_version",
    "id2label",
    "label2id",
    "bos_token_id",
    "eos_token_id",
    "pad_token_id",
    "use_cache",
    "return_dict",
    "output_attentions",
    "output_hidden_states",
    "problem_type",
    "task_specific_params",
})
_QUANTIZED = "quantization_config"
# Fields that leave KV as it is, or that another part covers; P and D may set
# them each in its way. All other fields are compared.
ASIDE = {
    "model_config": {
        # The model's name and place: its weights and config.json say more.
        "model", "model_weights", "revision", "hf_config", "hf_config_path",
        "hf_text_config", "hf_overrides", "config_format", "dtype",
        "is_submodel_config", "word_embeddings_untied_by_checkpoint",
        "multimodal_config", "pooler_config", "trust_remote_code",
        "runner", "convert",
        # Before the token ids.
        "tokenizer", "tokenizer_mode", "tokenizer_revision",
        "skip_tokenizer_init", "enable_prompt_embeds", "hf_token",
        "allowed_local_media_path", "allowed_media_domains",
        "io_processor_plugin", "renderer_num_workers",
        # Behind the KV.
        "seed", "max_logprobs", "logprobs_mode", "use_fp64_gumbel",
        "return_sampling_mask", "enable_trace_replay", "generation_config",
        "override_generation_config", "logits_processors",
        "served_model_name",
        # How it runs.
        "max_model_len", "spec_target_max_model_len", "enforce_eager",
        "allow_deprecated_quantization", "disable_cascade_attn",
        "enable_sleep_mode", "sleep_preserve_parameter_names",
        "sleep_mode_backend", "sleep_mode_offload_cudagraph",
        "enable_nccl_comm_suspend", "enable_cumem_allocator",
    },
    "multimodal_config": {
        "language_model_only", "limit_per_prompt", "enable_mm_embeds",
        "allow_missing_mm_embeddings", "mm_encoder_only",
        "interleave_mm_strings", "mm_hasher_algorithm",
        "mm_processor_cache_gb", "mm_processor_cache_type",
        "mm_shm_cache_max_object_size_mb", "mm_encoder_tp_mode",
        "mm_encoder_fp8_scale_path", "mm_encoder_fp8_scale_save_path",
        "mm_encoder_fp8_scale_save_margin", "skip_mm_profiling",
        "mm_tensor_ipc", "mm_ipc_gpu_memory_gb",
    },
    "cache_config": {
        # Compared as the cache's layout, and in the pool's namespace.
        "block_size", "user_specified_block_size", "kv_cache_layout",
        "mamba_block_size",
        "prefix_caching_hash_algo", "hash_block_size", "prefix_match_unit",
        # Room, and what is kept for how long.
        "gpu_memory_utilization", "kv_cache_memory_bytes",
        "num_gpu_blocks_override", "num_gpu_blocks", "num_cpu_blocks",
        "simple_cpu_offload_num_blocks",
        "kv_cache_size_tokens", "kv_cache_max_concurrency",
        "enable_prefix_caching", "prefix_cache_retention_interval",
        "enable_mamba_shared_prefix_checkpoint", "swa_bounded_replay",
        "kv_offloading_size", "kv_offloading_backend",
        "simple_cpu_offload_num_blocks",
        "cpu_kvcache_space_bytes", "effective_attention_block_size",
        "cache_hit_alignment_tokens", "mamba_page_size_padded",
        "skip_page_size_padded", "is_attention_free", "_block_size_resolved",
    },
    "attention_config": {
        # Kernels are named by the cache's layout and the device.
        "backend", "backend_per_kind", "minimax_m3_msa_decode_backend",
        "mla_prefill_backend", "flash_attn_version", "use_trtllm_attention",
        "trtllm_ragged_backend", "indexer_tp_shard_min_rows",
        "minimax_m3_indexer_cp",
        "flash_attn_max_num_splits_for_cuda_graph",
        "tokenspeed_mla_min_split_kv", "tq_max_kv_splits_for_cuda_graph",
        "sparse_mla_force_mqa", "sparse_mla_prefill_workspace_factor",
        "flex_attn_block_m", "flex_attn_block_n", "flex_attn_q_block_size",
        "flex_attn_kv_block_size",
    },
    "speculative_config": {
        # Their weights, config.json and options are parts by themselves.
        "model", "revision", "code_revision", "quantization",
        "draft_model_config", "draft_load_config", "draft_parallel_config",
        "target_model_config", "target_parallel_config",
        "draft_tensor_parallel_size", "tensor_parallel_size",
        # Choices of drafts, which are made from KV and change none.
        "num_speculative_tokens", "num_speculative_tokens_per_batch_size",
        "rejection_sample_method", "synthetic_acceptance_rates",
        "synthetic_acceptance_length", "enable_adaptive_verification",
        "draft_sample_method", "use_local_argmax_reduction",
        "use_heterogeneous_vocab", "dspark_draft_topk",
        # How it runs.
        "enforce_eager", "moe_backend", "attention_backend", "max_model_len",
        "disable_padded_drafter_batch", "disable_eagle_block_drop",
        # Options of methods that look drafts up.
        "prompt_lookup_max", "prompt_lookup_min",
        "suffix_decoding_max_tree_depth",
        "suffix_decoding_max_cached_requests",
        "suffix_decoding_max_spec_factor", "suffix_decoding_min_token_prob",
    },
}  # fmt: skip
# Files that say how media become numbers.
PROCESSORS = "*processor*.json"


def _plain(value: Any, aside: frozenset[str] = frozenset()) -> Any:
    """Return a value as JSON has it, and the same in every process.

    aside: keys that are left out, but of what says how weights are quantized.
    """
    if hasattr(value, "to_dict"):
        value = value.to_dict()
    if isinstance(value, dict):
        return {
            str(key): _plain(
                item, frozenset() if key == _QUANTIZED else aside
            )
            for key, item in value.items()
            if key not in aside and not str(key).startswith("_")
        }
    if isinstance(value, list | tuple):
        return [_plain(item, aside) for item in value]
    if isinstance(value, set | frozenset):
        return sorted(str(item) for item in value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    text = str(value)
    return type(value).__name__ if " at 0x" in text else text


def _merged(base: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    """Return a dictionary with another one's values, in depth."""
    made = dict(base)
    for key, value in more.items():
        old = made.get(key)
        both = isinstance(old, dict) and isinstance(value, dict)
        made[key] = _merged(old, value) if both else value
    return made


def _overridden(model: Any, more: Any) -> Any:
    """Return a model's configuration with --hf-overrides.

    As it stands in its file: the object that vLLM has is changed by some
    models while they are built, which is in the workers' processes only.
    """
    from transformers import PretrainedConfig

    try:
        found, _ = PretrainedConfig.get_config_dict(
            getattr(model, "hf_config_path", None) or model.model,
            revision=model.revision,
        )
    except Exception:  # of another format, which vLLM could read
        found = {}
    if not found:
        found = model.hf_config.to_dict()
    if callable(more):
        return [found, f"{more.__module__}.{more.__qualname__}"]
    return _merged(found, more or {})


def _trained_lengths(config: Any, above: Any = None) -> Iterator[Any]:
    """Yield the length that each long rope of a configuration was made for."""
    if isinstance(config, list):
        for item in config:
            yield from _trained_lengths(item, above)
    if not isinstance(config, dict):
        return
    length = config.get("original_max_position_embeddings") or above
    if config.get("rope_type", config.get("type")) in ("longrope", "su"):
        yield length
    for item in config.values():
        yield from _trained_lengths(item, length)


def _by_length(model: Any) -> list[Any]:
    """Return what vLLM chooses by --max-model-len, once for all tokens.

    The factors of each long rope: the long ones where that is more than the
    length of training. Llama 4's temperatures, where nothing else says so.
    Where it fits the length to its memory it has chosen before, by one that
    nobody has kept.
    """
    fitted = getattr(model, "original_max_model_len", None) == -1

    def above(length: int) -> Any:
        return "fitted" if fitted else model.max_model_len > length

    chosen = [
        above(length or 0)
        for length in _trained_lengths(_plain(model.hf_config))
    ]
    names = getattr(model.hf_config, "architectures", None) or []
    if any(name.startswith("Llama4") for name in names):
        said = {
            **(model.try_get_generation_config() or {}),
            **(model.override_generation_config or {}),
        }
        tuned = said.get("attn_temperature_tuning")
        chosen.append(above(_LLAMA4_TUNED_ABOVE) if tuned is None else tuned)
    return chosen


def _fields(
    name: str, config: Any, called: str = ""
) -> Iterator[tuple[str, Any]]:
    """Yield the fields of a configuration of vLLM's that are compared."""
    if not dataclasses.is_dataclass(config):
        return
    for field in dataclasses.fields(config):
        if field.name not in ASIDE[name]:
            value = getattr(config, field.name, None)
            yield f"{called or name}.{field.name}", value


def _drafts(vllm_config: Any) -> Iterator[tuple[str, Any]]:
    """Yield the parts of layers that draft.

    The text of an engine without such layers has no part for them.
    """
    drafting = settings.drafting(vllm_config)
    if drafting is None:
        return
    draft = drafting.draft_model_config
    # vLLM gives a draft model overrides of its own, or the model's function.
    yield "drafts.config.json", _plain(_overridden(draft, {}), _UNIMPORTANT)
    yield "drafts.lengths", _by_length(draft)
    yield "drafts.numbers", draft.dtype
    yield from _fields("model_config", draft, "drafts")
    for name, value in _fields("speculative_config", drafting):
        if name.endswith(".kv_cache_dtype"):  # None: as the model's
            value = value or vllm_config.cache_config.cache_dtype
        yield name, value


def content(paths: list[Path]) -> list[list[str]]:
    """Return names and digests of files."""
    found = []
    for path in sorted(paths):
        data = path.read_bytes()
        with contextlib.suppress(ValueError):  # no JSON: its bytes, then
            is_models = path.name == "config.json"
            plain = _plain(
                json.loads(data), _UNIMPORTANT if is_models else frozenset()
            )
            data = json.dumps(plain, sort_keys=True).encode()
        digest = hashlib.blake2b(data, digest_size=8).hexdigest()
        found.append([path.name, digest])
    return found


def _files(vllm_config: Any, pattern: str) -> list[list[str]]:
    """Return what files of the model's folder hold, where it is here."""
    folder = files.folder_of(vllm_config.model_config, vllm_config.load_config)
    if folder is None or not folder.is_dir():
        return []
    return content(list(folder.glob(pattern)))


def parts(vllm_config: Any, kv_cache_config: Any) -> dict[str, Any]:
    """Return the configuration that decides KV, overrides applied."""
    model = vllm_config.model_config
    overridden = _overridden(model, model.hf_overrides)
    media = getattr(model, "multimodal_config", None)
    scales = getattr(media, "mm_encoder_fp8_scale_path", None)
    found: dict[str, Any] = {
        "config.json": _plain(overridden, _UNIMPORTANT),
        "lengths": _by_length(model),
        "numbers": model.dtype,
        "layers": [
            [type(spec).__name__, getattr(spec, "sliding_window", None)]
            for spec in map(layout.layer_spec, layout.groups(kv_cache_config))
        ],
        "processors": _files(vllm_config, PROCESSORS) if media else [],
        "scales": content([Path(scales)]) if scales else [],
        "code": _files(vllm_config, "*.py")
        if getattr(model, "trust_remote_code", False)
        else [],
    }
    for name in ASIDE:
        owner = model if name == "multimodal_config" else vllm_config
        if name != "speculative_config":
            found.update(_fields(name, getattr(owner, name, None)))
    found.update(_drafts(vllm_config))
    return found


def text(vllm_config: Any, kv_cache_config: Any) -> str:
    """Return all parts as JSON."""
    return json.dumps(_plain(parts(vllm_config, kv_cache_config)), sort_keys=True)
