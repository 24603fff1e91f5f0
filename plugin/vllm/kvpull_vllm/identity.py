# SPDX-License-Identifier: Apache-2.0
"""What must be equal at both ends, beside what the cache's layout says.

A name says little: the same one may stand for other weights, or for the same
ones under another rope_theta. Compared are a digest of the configuration as it
runs, a fingerprint of the weights' files and vLLM's version; each is made alike
wherever the files lie, and however a repository cut them.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from kvpull_vllm import layout
from kvpull_vllm.settings import Settings

# What is read of all files together, their headers counted.
READ_BYTES_MAX = 64 << 20
# Of one tensor: pieces that lie evenly over it, or one in its middle where
# there are so many tensors that little is read of each.
_PIECES = 4
_PIECE_BYTES_MAX = 4096
_PIECE_BYTES_MIN = 512
_HEADER_BYTES_MAX = 32 << 20  # of one file
_FILES_MAX = 4096
_PATTERNS = ("*.safetensors", "*.bin", "*.pt", "*.pth", "*.gguf")
_INDEX = "model.safetensors.index.json"
_LLAMA4_TUNED_ABOVE = 32768
# Of no weight on KV, and not alike on all machines.
_UNIMPORTANT = {
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
}


class Identity(NamedTuple):
    """Texts of the model record; see struct kvpull_model."""

    model: str
    revision: str
    weights: str
    config: str
    engine: str


class _Part(NamedTuple):
    """A run of a file's bytes that is sampled, and its name among all."""

    name: str
    offset: int
    size: int


def _digest(*texts: str) -> str:
    digest = hashlib.blake2b(digest_size=8)
    for text in texts:
        digest.update(f"{len(text)}:{text}".encode())
    return digest.hexdigest()


# ---- configuration ----


def _plain(value: Any) -> Any:
    """Return a value as JSON has it, and the same in every process."""
    if hasattr(value, "to_dict"):
        value = value.to_dict()
    if isinstance(value, dict):
        return {
            str(key): _plain(item)
            for key, item in value.items()
            if key not in _UNIMPORTANT and not str(key).startswith("_")
        }
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
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


def _overridden(model: Any) -> Any:
    """Return the model's configuration with --hf-overrides.

    As it stands in its file: the object that vLLM has is changed by some
    models while they are built, which is in the workers' processes only.
    """
    from transformers import PretrainedConfig

    more = model.hf_overrides
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


def config_text(vllm_config: Any, kv_cache_config: Any) -> str:
    """Return the configuration that decides KV, overrides applied, as JSON."""
    model, cache = vllm_config.model_config, vllm_config.cache_config
    parts = {
        "model": _overridden(model),
        "by length": _by_length(model),
        "numbers": model.dtype,
        "quantization": model.quantization,
        "media": getattr(
            getattr(model, "multimodal_config", None),
            "mm_processor_kwargs",
            None,
        ),
        "cache": [
            cache.cache_dtype,
            getattr(cache, "kv_cache_dtype_skip_layers", ()),
            getattr(cache, "kv_sharing_fast_prefill", False),
        ],
        "layers": [
            [type(spec).__name__, getattr(spec, "sliding_window", None)]
            for spec in map(layout.layer_spec, layout.groups(kv_cache_config))
        ],
    }
    return json.dumps(_plain(parts), sort_keys=True)


# ---- weights ----


def _folder_of(model: Any, load: Any) -> Path | None:
    """Return where the weights' files lie, None if not on this machine."""
    name = getattr(model, "model_weights", None) or model.model
    if os.path.exists(name):
        return Path(name)
    try:
        from huggingface_hub import snapshot_download

        return Path(
            snapshot_download(
                name,
                revision=model.revision,
                cache_dir=load.download_dir,
                local_files_only=True,
            )
        )
    except Exception:  # a bucket, another hub: whatever it is, no files here
        return None


def _files_of(folder: Path, load_format: str) -> list[Path]:
    """Return the files that vLLM reads of a folder."""
    if folder.is_file():
        return [folder]
    index = folder / _INDEX
    if index.exists() and load_format != "mistral":
        names = set(json.loads(index.read_text())["weight_map"].values())
        return [folder / name for name in sorted(names)]
    for pattern in _PATTERNS:
        found = sorted(folder.glob(pattern))
        # The same weights once more, as one format of them is published.
        if load_format != "mistral":
            found = [
                path
                for path in found
                if not path.name.startswith("consolidated")
            ] or found
        if found:
            return found
    return []


def _tensors_of(path: Path) -> list[_Part]:
    """Return a safetensors file's tensors; raise ValueError if it is none."""
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        (header_bytes,) = struct.unpack("<Q", file.read(8).ljust(8, b"\0"))
        if header_bytes > min(_HEADER_BYTES_MAX, size):
            raise ValueError(f"{path}: its header has {header_bytes} bytes")
        header = json.loads(file.read(header_bytes))
    found = []
    for name, tensor in header.items():
        if name == "__metadata__":
            continue
        begin, end = tensor["data_offsets"]
        shape = f"{name} {tensor['dtype']} {tensor['shape']}"
        found.append(_Part(shape, 8 + header_bytes + begin, end - begin))
    return sorted(found, key=lambda part: part.offset)


def _sample(file: int, part: _Part, most: int) -> bytes:
    """Return up to so many bytes of a part, from places all over it."""
    if part.size <= most:
        return os.pread(file, part.size, part.offset)
    if most < _PIECES * _PIECE_BYTES_MIN:
        return os.pread(file, most, part.offset + part.size // 2)
    size = most // _PIECES
    step = (part.size - size) // (_PIECES - 1)
    return b"".join(
        os.pread(file, size, part.offset + place * step)
        for place in range(_PIECES)
    )


def _parts_of(path: Path) -> list[_Part]:
    """Return what is sampled of a file."""
    if path.suffix == ".safetensors":
        return _tensors_of(path)
    return [_Part("", 0, path.stat().st_size)]


def fingerprint(paths: list[Path]) -> str:
    """Return a fingerprint of the weights in files.

    Names, kinds, shapes and a sample of each tensor, in the order of their
    names: how they are spread over files says nothing.
    """
    files = [(path, _parts_of(path)) for path in paths[:_FILES_MAX]]
    spent = sum(parts[0].offset for _, parts in files if parts)
    count = sum(len(parts) for _, parts in files)
    left = max(READ_BYTES_MAX - spent, 0) // max(count, 1)
    most = max(1, min(left, _PIECES * _PIECE_BYTES_MAX))
    sampled = []
    for path, parts in files:
        with path.open("rb", buffering=0) as opened:
            file = opened.fileno()
            # A page for each piece, not those behind it as well.
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_RANDOM)
            for part in parts:
                data = _sample(file, part, most)
                sampled.append((part.name, part.size, data))
    digest = hashlib.blake2b(digest_size=12)
    for name, size, data in sorted(sampled):
        digest.update(f"{len(name)}:{name}{size}:".encode())
        digest.update(data)
    return digest.hexdigest()


def weights_text(model: Any, load: Any) -> str | None:
    """Return what names the weights, None if nothing here can."""
    load_format = str(getattr(load, "load_format", "auto"))
    if load_format == "dummy":
        return "dummy"
    folder = _folder_of(model, load)
    if folder is None:
        return None
    try:
        paths = _files_of(folder, load_format)
        return f"files {fingerprint(paths)}" if paths else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


# ---- all of it ----


def identity(
    vllm_config: Any, kv_cache_config: Any, own: Settings, version: str
) -> Identity:
    """Return what is compared; what the operator names is taken as it is."""
    model = vllm_config.model_config
    names = getattr(model.hf_config, "architectures", None) or ["?"]
    weights = own.weights or weights_text(model, vllm_config.load_config)
    # Without files to look at a name is all that there is.
    name = names[0] if weights else model.model
    revision = "" if weights else getattr(model, "revision", None) or ""
    digest = _digest(config_text(vllm_config, kv_cache_config))
    return Identity(
        model=own.model or name,
        revision=own.revision or revision,
        weights=weights or "",
        config=f"{names[0]} {digest}",
        # A local part names a build of the same code, as +cpu does.
        engine=own.engine or f"vllm {re.sub(r'[+].*', '', version)}",
    )
