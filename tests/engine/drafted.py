# SPDX-License-Identifier: Apache-2.0
"""Makes layers that draft for the tiny Llama of model.py.

An EAGLE or MTP layer of drawn weights drafts hardly a right token. A draft
model that is nearly the model drafts right ones as long as its own KV is right.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import model
import torch
from model import CONFIG, HIDDEN, KEY, QUERY, WORDS
from safetensors.torch import save_file

NOISE = 0.02  # of the model's weights, in a draft model that is right at times


def _mix(parts: int, seed: int) -> torch.Tensor:
    """Return what makes one hidden state of several."""
    return model.matrices(seed)(HIDDEN, parts * HIDDEN, 1.0)


def configure(folder: Path, **config: Any) -> None:
    """Write what describes a layer that drafts, with options of its own."""
    text = json.dumps({**CONFIG, "num_hidden_layers": 1, **config})
    (folder / "config.json").write_text(text)


def _write(
    folder: Path, made: dict[str, torch.Tensor], **config: Any
) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    configure(folder, **config)
    save_file(made, str(folder / "model.safetensors"))


def make_eagle(folder: Path, seed: int) -> None:
    """Write an EAGLE layer: it takes a hidden state and the next token."""
    made = model.layer("layers.0.", model.matrices(seed)) | {"fc.weight": _mix(2, seed)}
    del made["layers.0.input_layernorm.weight"]  # its first layer has none
    _write(folder, made)


def make_eagle3(folder: Path, seed: int) -> None:
    """Write an EAGLE3 layer: it takes hidden states of three layers.

    These are what the model's first layer is given, and what each of its two
    layers makes.
    """
    matrix = model.matrices(seed)
    made = model.layer("midlayer.", matrix) | {
        "midlayer.hidden_norm.weight": torch.ones(HIDDEN),
        "norm.weight": torch.ones(HIDDEN),
        "fc.weight": _mix(3, seed),
        "lm_head.weight": matrix(WORDS, HIDDEN, 1.0),
    }
    # EAGLE3's attention looks at a token's embedding beside the hidden state.
    for name, rows in (("q", QUERY), ("k", KEY), ("v", KEY)):
        made[f"midlayer.self_attn.{name}_proj.weight"] = matrix(
            rows, 2 * HIDDEN, 1.6
        )
    _write(folder, made, eagle_aux_hidden_state_layer_ids=[0, 1, 2])


def make_near(folder: Path, seed: int) -> None:
    """Write a draft model that is nearly the model of a seed."""
    model.make(folder, seed)
    random = torch.Generator().manual_seed(seed)
    made = {
        name: tensor
        + NOISE * tensor.std(correction=0) * torch.randn(
            tensor.shape, generator=random
        )
        for name, tensor in model.weights(seed).items()
    }
    save_file(made, str(folder / "model.safetensors"))


def make_mtp(folder: Path, seed: int) -> None:
    """Write a model with an MTP layer in its own files: a MiMo, a Qwen2."""
    model.make(folder, seed)
    made = model.weights(seed)
    at = "model.mtp_layers.0."
    made |= model.layer(at, model.matrices(seed + 1)) | {
        f"{at}{name}_layernorm.weight": torch.ones(HIDDEN)
        for name in ("token", "hidden", "final")
    }
    made[f"{at}input_proj.weight"] = _mix(2, seed)
    layers = [f"model.layers.{number}." for number in range(model.LAYERS)]
    for layer in (*layers, at):
        for name, size in (("q", QUERY), ("k", KEY), ("v", KEY)):
            made[f"{layer}self_attn.{name}_proj.bias"] = torch.zeros(size)
    config = {
        **CONFIG,
        "architectures": ["MiMoForCausalLM"],
        "model_type": "qwen2",
        "num_nextn_predict_layers": 1,
    }
    (folder / "config.json").write_text(json.dumps(config))
    save_file(made, str(folder / "model.safetensors"))
