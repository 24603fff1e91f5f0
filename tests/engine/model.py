# SPDX-License-Identifier: Apache-2.0
"""Makes a tiny Llama whose answers depend on every token's KV.

Weights near zero would give the same greedy tokens with garbage in the cache;
these gains make attention matter, so that a wrong block is a wrong answer.
model.py FOLDER SEED [states|recurrent]: with such a word a Qwen3-Next, a Mamba2.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, models, pre_tokenizers

LAYERS, HIDDEN, HEADS, KV_HEADS, HEAD_DIM = 2, 256, 4, 2, 64
WORDS, INNER, LENGTH = 512, 512, 4096

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": HIDDEN,
    "intermediate_size": INNER,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "head_dim": HEAD_DIM,
    "vocab_size": WORDS,
    "max_position_embeddings": LENGTH,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "torch_dtype": "float32",
    "bos_token_id": 0,
    "eos_token_id": 1,
}


QUERY, KEY = HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM


def matrices(seed: int) -> Callable[[int, int, float], torch.Tensor]:
    """Return what draws matrices of so many rows, columns and gain."""
    random = torch.Generator().manual_seed(seed)

    def matrix(rows: int, columns: int, gain: float) -> torch.Tensor:
        made = torch.randn(rows, columns, generator=random)
        return made * (gain / columns**0.5)

    return matrix


def layer(
    at: str, matrix: Callable[[int, int, float], torch.Tensor]
) -> dict[str, torch.Tensor]:
    """Return a layer whose names begin so."""
    return {
        f"{at}self_attn.q_proj.weight": matrix(QUERY, HIDDEN, 1.6),
        f"{at}self_attn.k_proj.weight": matrix(KEY, HIDDEN, 1.6),
        f"{at}self_attn.v_proj.weight": matrix(KEY, HIDDEN, 3.0),
        f"{at}self_attn.o_proj.weight": matrix(HIDDEN, QUERY, 3.0),
        f"{at}mlp.gate_proj.weight": matrix(INNER, HIDDEN, 1.0),
        f"{at}mlp.up_proj.weight": matrix(INNER, HIDDEN, 1.0),
        f"{at}mlp.down_proj.weight": matrix(HIDDEN, INNER, 1.0),
        f"{at}input_layernorm.weight": torch.ones(HIDDEN),
        f"{at}post_attention_layernorm.weight": torch.ones(HIDDEN),
    }


def weights(seed: int) -> dict[str, torch.Tensor]:
    """Return all weights, from a seed."""
    matrix = matrices(seed)
    made = {
        "model.embed_tokens.weight": matrix(WORDS, HIDDEN, 0.5 * HIDDEN**0.5),
        "model.norm.weight": torch.ones(HIDDEN),
        "lm_head.weight": matrix(WORDS, HIDDEN, 1.0),
    }
    for number in range(LAYERS):
        made |= layer(f"model.layers.{number}.", matrix)
    return made


# Latent attention, in the one size that vLLM's CPU kernel has.
LATENT, ROTATED = 512, 64
MLA_CONFIG = {
    **CONFIG,
    "architectures": ["DeepseekV2ForCausalLM"],
    "model_type": "deepseek_v2",
    "num_key_value_heads": HEADS,
    "kv_lora_rank": LATENT,
    "q_lora_rank": None,
    "qk_rope_head_dim": ROTATED,
    "qk_nope_head_dim": HEAD_DIM,
    "v_head_dim": HEAD_DIM,
    # All layers are dense: none has experts.
    "first_k_dense_replace": LAYERS,
    "n_routed_experts": 4,
    "n_shared_experts": 1,
    "moe_intermediate_size": 64,
    "moe_layer_freq": 1,
}


def mla_weights(seed: int) -> dict[str, torch.Tensor]:
    """Return the weights of the model with latent attention."""
    matrix = matrices(seed)
    made = weights(seed)
    query, value = HEADS * (HEAD_DIM + ROTATED), HEADS * HEAD_DIM
    for layer in range(LAYERS):
        at = f"model.layers.{layer}.self_attn"
        for name in ("k_proj", "v_proj"):
            del made[f"{at}.{name}.weight"]
        made |= {
            f"{at}.q_proj.weight": matrix(query, HIDDEN, 1.6),
            f"{at}.kv_a_proj_with_mqa.weight": matrix(
                LATENT + ROTATED, HIDDEN, 1.6
            ),
            f"{at}.kv_a_layernorm.weight": torch.ones(LATENT),
            f"{at}.kv_b_proj.weight": matrix(2 * value, LATENT, 2.0),
            f"{at}.o_proj.weight": matrix(HIDDEN, value, 3.0),
        }
    return made


def make_mla(folder: Path, seed: int) -> None:
    """Write a folder of the model with latent attention."""
    make(folder, seed)
    (folder / "config.json").write_text(json.dumps(MLA_CONFIG))
    save_file(mla_weights(seed), str(folder / "model.safetensors"))


# Recurrent layers beside attention, in sizes that vLLM's CPU kernels have.
STATE_LAYERS, STATE_HEADS, STATE_DIM = 3, 2, 128
SHARPNESS = 2  # of the attention beside these layers: 1 more is its scale


def make_states(folder: Path, seed: int) -> None:
    """Write a Qwen3-Next whose first layers keep a recurrent state."""
    from transformers import Qwen3NextConfig, Qwen3NextForCausalLM
    from transformers.utils.logging import disable_progress_bar

    make(folder, seed)
    count = STATE_LAYERS + 1
    config = Qwen3NextConfig(
        vocab_size=WORDS,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=count,
        num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS,
        head_dim=HEAD_DIM,
        linear_key_head_dim=STATE_DIM,
        linear_value_head_dim=STATE_DIM,
        linear_num_key_heads=STATE_HEADS,
        linear_num_value_heads=STATE_HEADS,
        layer_types=["linear_attention"] * STATE_LAYERS + ["full_attention"],
        # vLLM wants a layer of experts; no more of them matter here.
        mlp_only_layers=list(range(STATE_LAYERS)),
        num_experts=4,
        num_experts_per_tok=2,
        moe_intermediate_size=64,
        shared_expert_intermediate_size=64,
        max_position_embeddings=LENGTH,
        tie_word_embeddings=False,
        bos_token_id=0,
        eos_token_id=1,
        dtype="bfloat16",
    )
    torch.manual_seed(seed)
    made = Qwen3NextForCausalLM(config)
    for name, tensor in made.state_dict().items():
        if tensor.dim() > 1 and tensor.is_floating_point():
            gain = 3 if "embed" not in name else HIDDEN**0.5
            tensor.normal_(0, gain * tensor[0].numel() ** -0.5)
        elif name.endswith(("q_norm.weight", "k_norm.weight")):
            # Qwen3-Next scales by 1 + weight. With 0, a query looks at all
            # tokens alike, and answers hardly depend on what the KV is.
            tensor.fill_(SHARPNESS)
    disable_progress_bar()
    made.bfloat16().save_pretrained(folder)


def make_recurrent(folder: Path, seed: int) -> None:
    """Write a Mamba2: all its layers keep a state, and none looks back."""
    from transformers import Mamba2Config, Mamba2ForCausalLM
    from transformers.utils.logging import disable_progress_bar

    make(folder, seed)
    config = Mamba2Config(
        vocab_size=WORDS,
        hidden_size=128,
        num_heads=HEADS,
        head_dim=HEAD_DIM,
        n_groups=1,
        state_size=64,
        chunk_size=256,
        num_hidden_layers=STATE_LAYERS,
        tie_word_embeddings=False,
        bos_token_id=0,
        eos_token_id=1,
    )
    torch.manual_seed(seed)
    made = Mamba2ForCausalLM(config)
    for name, tensor in made.state_dict().items():
        if name.endswith(("_proj.weight", "head.weight")):
            tensor.normal_(0, 2 * tensor[0].numel() ** -0.5)
    disable_progress_bar()
    made.save_pretrained(folder)


RANK = 8


def make_adapter(folder: Path, seed: int) -> None:
    """Write an adapter (LoRA) that changes the keys and values of the model."""
    random = torch.Generator().manual_seed(seed)
    made = {}
    for layer in range(LAYERS):
        for name in ("k_proj", "v_proj"):
            at = f"base_model.model.model.layers.{layer}.self_attn.{name}"
            for part, shape in (
                ("A", (RANK, HIDDEN)),
                ("B", (KV_HEADS * HEAD_DIM, RANK)),
            ):
                drawn = torch.randn(shape, generator=random)
                made[f"{at}.lora_{part}.weight"] = drawn * shape[1] ** -0.5
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "r": RANK,
        "lora_alpha": RANK,
        "target_modules": ["k_proj", "v_proj"],
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "adapter_config.json").write_text(json.dumps(config))
    save_file(made, str(folder / "adapter_model.safetensors"))


def make_sinks(folder: Path, seed: int, window: int) -> None:
    """Write a model with sinks, whose last layer has a sliding window."""
    make(folder, seed, window)
    config = json.loads((folder / "config.json").read_text())
    config |= {
        "architectures": ["GraniteForCausalLM"],
        "model_type": "granite",
        "attention_multiplier": HEAD_DIM**-0.5,
        "residual_multiplier": 1.0,
        "embedding_multiplier": 1.0,
        "logits_scaling": 1.0,
    }
    (folder / "config.json").write_text(json.dumps(config))
    made = weights(seed)
    for layer in range(LAYERS):
        # As much as a few tokens: without them the answers are others.
        made[f"model.layers.{layer}.self_attn.sinks"] = torch.linspace(
            0, 3, HEADS
        )
    save_file(made, str(folder / "model.safetensors"))


IMAGE, IMAGE_TOKENS, IMAGE_SIZE = WORDS - 1, 32, 56


def make_media(folder: Path, seed: int) -> None:
    """Write a model that takes pictures: a Blip-2, whose text is ours."""
    from transformers import (
        Blip2Config,
        Blip2ForConditionalGeneration,
        Blip2Processor,
        Blip2QFormerConfig,
        Blip2VisionConfig,
        LlamaConfig,
        PreTrainedTokenizerFast,
    )
    from transformers.models.blip.image_processing_pil_blip import (
        BlipImageProcessorPil,
    )
    from transformers.utils.logging import disable_progress_bar

    tower = {
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
    }
    text = {k: v for k, v in CONFIG.items() if k != "model_type"}
    config = Blip2Config(
        vision_config=Blip2VisionConfig(
            **tower, image_size=IMAGE_SIZE, patch_size=14
        ),
        qformer_config=Blip2QFormerConfig(**tower, encoder_hidden_size=64),
        text_config=LlamaConfig(**text),
        num_query_tokens=IMAGE_TOKENS,
        image_token_index=IMAGE,
    )
    torch.manual_seed(seed)
    made = Blip2ForConditionalGeneration(config).float()
    state = made.state_dict()
    for name, tensor in weights(seed).items():
        state[f"language_model.{name}"].copy_(tensor)
    for name, tensor in state.items():
        if not name.startswith("language_model.") and tensor.dim() > 1:
            tensor.normal_(0, 3 * tensor[0].numel() ** -0.5)
    disable_progress_bar()
    made.save_pretrained(folder)
    Blip2Processor(
        image_processor=BlipImageProcessorPil(
            size={"height": IMAGE_SIZE, "width": IMAGE_SIZE}
        ),
        tokenizer=PreTrainedTokenizerFast(
            tokenizer_object=_tokenizer({IMAGE: "<image>"}),
            bos_token="w0",
            eos_token="w1",
            unk_token="w2",
            additional_special_tokens=["<image>"],
        ),
        num_query_tokens=IMAGE_TOKENS,
        chat_template="{% for m in messages %}{{ m.content }} {% endfor %}",
    ).save_pretrained(folder)


def _tokenizer(others: dict[int, str] | None = None) -> Tokenizer:
    """Return a tokenizer of words w0, w1 ..., some of them called otherwise."""
    names = {n: f"w{n}" for n in range(WORDS)} | (others or {})
    words = {name: number for number, name in names.items()}
    made = Tokenizer(models.WordLevel(words, unk_token="w2"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return made


def make(folder: Path, seed: int, window: int = 0) -> None:
    """Write the model's folder; window: its last layer looks at so many."""
    folder.mkdir(parents=True, exist_ok=True)
    _tokenizer().save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "w0",
        "eos_token": "w1",
        "unk_token": "w2",
        # Refuses what some models' templates refuse.
        "chat_template": "{% for m in messages %}{% if m.role == 'system' %}"
        "{{ raise_exception('no system prompt') }}{% endif %}"
        "{{ m.content }} {% endfor %}",
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    kinds = ["full_attention"] * (LAYERS - 1) + ["sliding_attention"]
    slides = {"sliding_window": window, "layer_types": kinds} if window else {}
    (folder / "config.json").write_text(json.dumps({**CONFIG, **slides}))
    save_file(weights(seed), str(folder / "model.safetensors"))


if __name__ == "__main__":
    kinds = {"": make, "states": make_states, "recurrent": make_recurrent}
    kinds[(sys.argv[3:] or [""])[0]](Path(sys.argv[1]), int(sys.argv[2]))
