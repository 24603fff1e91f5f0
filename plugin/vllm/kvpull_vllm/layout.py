# SPDX-License-Identifier: Apache-2.0
"""Where vLLM's KV blocks lie, in the ABI's words."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

from kvpull_vllm.abi import CONST
from kvpull_vllm.halves import Geometry
from kvpull_vllm.settings import ConfigError

# By name, not by base class: a kind of cache derived from one of these may
# give blocks away in its own manner.
_WHOLE = ("FullAttentionSpec", "MLAAttentionSpec")
_SLIDING = ("SlidingWindowSpec", "ChunkedLocalAttentionSpec")
_STATE = "MambaSpec"
_STATE_MODES = ("align", "none")
_DRAFTS = "draft_model."  # vLLM's prefix of a draft model's layers


@dataclass(frozen=True)
class Window:
    """The tokens of a cache group that the next token of a request looks at.

    They are its last ones, itself counted, or those of its own chunk; vLLM
    frees the blocks before.
    """

    block_tokens: int
    tokens: int
    in_chunks: bool

    def first_block(self, computed: int) -> int:
        """Return the first block that stays when so much is computed."""
        if self.in_chunks:
            first = computed - computed % self.tokens
        else:
            first = max(0, computed - self.tokens + 1)
        return first // self.block_tokens


def layer_spec(group: Any, name: str | None = None) -> Any:
    """Return the spec of a layer of a group, the first by default."""
    spec = group.kv_cache_spec
    if hasattr(spec, "kv_cache_specs"):
        return spec.kv_cache_specs[name or group.layer_names[0]]
    return spec


def group_kind(group: Any) -> int:
    """Return the ABI's kind of a cache group; raise ConfigError."""
    name = type(layer_spec(group)).__name__
    if name in _WHOLE:
        return CONST["KVPULL_GROUP_FULL"]
    if name in _SLIDING:
        return CONST["KVPULL_GROUP_SLIDING"]
    if name == _STATE:
        _check_state(group)
        return CONST["KVPULL_GROUP_STATE"]
    raise ConfigError(
        f"KVPullConnector: the cache of layer {group.layer_names[0]} is a "
        f"{name}, which this version does not pull; it pulls "
        f"{', '.join((*_WHOLE, *_SLIDING, _STATE))}. Serve this model without "
        "KVPullConnector in --kv-transfer-config"
    )


def _check_state(group: Any) -> None:
    """Refuse recurrent layers that lay their slots out in a way not known."""
    spec, name = layer_spec(group), group.layer_names[0]
    if spec.mamba_cache_mode not in _STATE_MODES:
        raise ConfigError(
            f"KVPullConnector: layer {name} keeps a recurrent state in "
            f"mamba_cache_mode {spec.mamba_cache_mode}, in which this version "
            f"pulls none; serve with --mamba-cache-mode {_STATE_MODES[0]}"
        )
    if spec.num_speculative_blocks:
        raise ConfigError(
            f"KVPullConnector: layer {name} keeps a recurrent state, which is "
            "not pulled beside speculative decoding; serve without "
            "--speculative-config"
        )


def is_state(group: Any) -> bool:
    """Say whether a group's blocks are slots of a recurrent state."""
    return type(layer_spec(group)).__name__ == _STATE


def states(groups_told: list[tuple[int, int]]) -> list[int]:
    """Return which of (tokens a block, kind) are states; raise ConfigError."""
    found = [
        at
        for at, (_, kind) in enumerate(groups_told)
        if kind == CONST["KVPULL_GROUP_STATE"]
    ]
    sizes = sorted({groups_told[at][0] for at in found})
    if len(sizes) > 1:
        raise ConfigError(
            "KVPullConnector: recurrent states are kept at boundaries of "
            f"{' and '.join(map(str, sizes))} tokens: one number is expected; "
            "set --mamba-block-size"
        )
    return found


def attention_groups(kv_cache_config: Any) -> list[Any]:
    """Return the transferred groups whose blocks have tokens of their own."""
    return [one for one in groups(kv_cache_config) if not is_state(one)]


def state_dtypes(kv_cache_config: Any) -> list[str]:
    """Return what the numbers of recurrent states are."""
    return sorted(
        {
            str(dtype).removeprefix("torch.")
            for group in groups(kv_cache_config)
            if is_state(group)
            for name in group.layer_names
            for dtype in layer_spec(group, name).dtypes
        }
    )


def windows(kv_cache_config: Any) -> list[Window]:
    """Return the windows of the cache groups that have one."""
    found = []
    for group in groups(kv_cache_config):
        spec = layer_spec(group)
        size = group.kv_cache_spec.block_size
        name = type(spec).__name__
        if name == "SlidingWindowSpec":
            more = getattr(spec, "extra_retained_tokens", 0)
            found.append(Window(size, spec.sliding_window + more, False))
        elif name == "ChunkedLocalAttentionSpec":
            found.append(Window(size, spec.attention_chunk_size, True))
    return found


def groups(kv_cache_config: Any) -> list[Any]:
    """Return the cache groups whose blocks are transferred."""
    return list(kv_cache_config.transfer_groups)


def layer_order(kv_cache_config: Any) -> dict[str, int]:
    """Return each layer's index in the model, the same at every engine.

    The layers of a draft model are numbered as the model's are, and lie behind
    them.
    """

    def place(name: str) -> tuple[bool, list[int], str]:
        numbers = [int(digits) for digits in re.findall(r"\d+", name)]
        return name.startswith(_DRAFTS), numbers, name

    names = [n for group in groups(kv_cache_config) for n in group.layer_names]
    return {name: index for index, name in enumerate(sorted(names, key=place))}


def token_bytes(group: Any, name: str) -> int:
    """Return the bytes of one head of one token of a layer, K and V.

    By the layer's spec alone: the library compares them with its tensor.
    """
    spec = layer_spec(group, name)
    page = getattr(spec, "real_page_size_bytes", spec.page_size_bytes)
    heads = getattr(spec, "num_heads", spec.num_kv_heads)
    found, rest = divmod(page, spec.block_size * heads)
    if rest:
        raise ConfigError(
            f"KVPullConnector: layer {name} has pages of {page} bytes for "
            f"{spec.block_size} tokens of {heads} heads: not a whole number "
            "of bytes each"
        )
    return found


def head_bytes(kv_cache_config: Any) -> int:
    """Return the bytes of one head of one token, 0 where layers differ."""
    found = {
        token_bytes(group, name)
        for group in attention_groups(kv_cache_config)
        for name in group.layer_names
    }
    return found.pop() if len(found) == 1 else 0


def geometry(name: str, tensor: Any, group: Any) -> Geometry:
    """Return one layer's geometry from its view [B, H, N, C]."""
    block_tokens = group.kv_cache_spec.block_size
    if tensor.dim() != 4:
        raise ConfigError(
            f"KVPullConnector: layer {name} has a cache of {tensor.dim()} "
            "dimensions, 4 are expected"
        )
    blocks, heads, tokens, width = tensor.shape
    size = tensor.element_size()
    block, head, token, unit = (stride * size for stride in tensor.stride())
    ratio, rest = divmod(block_tokens, tokens)
    if is_state(group):
        ratio, rest = 1, tokens - 1
    if rest or unit != size or token < width * size:
        raise ConfigError(
            f"KVPullConnector: layer {name} has strides {tensor.stride()} for "
            f"shape {tuple(tensor.shape)}: not a layout of heads in blocks"
        )
    base = Geometry(
        group=0,
        layer_first=0,
        layer_count=1,
        address=tensor.data_ptr(),
        layer_stride=0,
        block_stride=block * ratio,
        row_stride=0,
        head_stride=head,
        block_count=blocks // ratio,
        row_count=1,
        head_count=heads,
        head_bytes=tokens * width * size,
        token_bytes=0 if is_state(group) else token_bytes(group, name),
        is_state=is_state(group),
    )
    if token == width * size:  # [head][token]: a row a kernel block
        if ratio == 1:
            return base
        return replace(base, row_count=ratio, row_stride=block)
    if ratio != 1:
        raise ConfigError(
            f"KVPullConnector: layer {name}: kernel blocks of {tokens} tokens "
            f"in blocks of {block_tokens} need the layout LBHNC"
        )
    return replace(
        base, row_count=tokens, row_stride=token, head_bytes=width * size
    )


def _follows(last: Geometry, item: Geometry) -> bool:
    """Say whether item is the layer after last, at the same distance."""
    if item.layer_first != last.layer_first + last.layer_count:
        return False
    step = item.address - (
        last.address + (last.layer_count - 1) * last.layer_stride
    )
    if step <= 0 or (last.layer_count > 1 and step != last.layer_stride):
        return False
    same = replace(
        item,
        layer_first=last.layer_first,
        layer_count=last.layer_count,
        address=last.address,
        layer_stride=last.layer_stride,
    )
    return same == last


def caches(kv_cache_config: Any, tensors: dict[str, Any]) -> list[Geometry]:
    """Return the caches of all transferred layers, runs of layers merged."""
    order = layer_order(kv_cache_config)
    found: list[Geometry] = []
    for index, group in enumerate(groups(kv_cache_config)):
        for name in sorted(group.layer_names, key=order.__getitem__):
            if name not in tensors:
                raise ConfigError(f"KVPullConnector: no cache of layer {name}")
            item = replace(
                geometry(name, tensors[name], group),
                group=index,
                layer_first=order[name],
            )
            last = found[-1] if found else None
            if last is not None and _follows(last, item):
                stride = item.address - (
                    last.address + (last.layer_count - 1) * last.layer_stride
                )
                found[-1] = replace(
                    last,
                    layer_count=last.layer_count + 1,
                    layer_stride=stride,
                )
            else:
                found.append(item)
    return found
