# SPDX-License-Identifier: Apache-2.0
"""What of vLLM is touched beside its connector interface.

Each name stands here alone, with what is done where a vLLM lacks it. A vLLM
that does not have what the package cannot do without is one line at start.
"""

from __future__ import annotations

import torch


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
