# SPDX-License-Identifier: Apache-2.0
"""Latent attention (MLA): refused where vLLM's CPU kernel is wrong, right
where it is not.

The wheel's kernel rotates as many heads as there are tokens, and an engine
contradicts itself: what it computes of a token alone is not what it computes
of it in a row. A plugin of vLLM, which these engines load, gives the kernel
what it can take; then all tokens are right, the pulled ones too.
"""

from __future__ import annotations

import re
from pathlib import Path

import model
from engine import Engine, kvpull_config
from scenarios import Scenario
from world import Delta, World

BLOCK_TOKENS = 16  # the only one that the CPU's kernel for MLA has
BLOCK_BYTES = model.LAYERS * BLOCK_TOKENS * (model.LATENT + model.ROTATED) * 4

PLUGIN = """
from vllm import _custom_ops as ops

broken = ops.rotary_embedding


def rotary_embedding(positions, query, key, *more):
    flat = [part.flatten(1).clone() for part in (query, key)]
    broken(positions, *flat, *more)
    for part, copy in zip((query, key), flat):
        part.copy_(copy.view(part.shape))


def register():
    ops.rotary_embedding = rotary_embedding
"""


def _plugin(folder: Path) -> dict[str, str]:
    """Return the environment in which vLLM's kernel is right."""
    made = folder / "plugin"
    info = made / "rotated-1.dist-info"
    info.mkdir(parents=True)
    (made / "rotated.py").write_text(PLUGIN)
    (info / "METADATA").write_text("Name: rotated\nVersion: 1\n")
    (info / "entry_points.txt").write_text(
        "[vllm.general_plugins]\nrotated = rotated:register\n"
    )
    return {"PYTHONPATH": str(made)}


def latent(folder: Path) -> World:
    """Return a pair whose kernel is right, and one that is not started."""
    model.make_mla(folder / "latent", 1)
    right = _plugin(folder)
    made = [
        Engine(
            name,
            folder,
            folder / "latent",
            kvpull_config(folder, role, {}),
            environment=right,
        )
        for name, role in (("p", "kv_producer"), ("d", "kv_consumer"))
    ]
    return World(folder, *made)


def latent_attention_gives_the_same_tokens(world: World) -> None:
    """Each length is pulled whole, and the tokens are those of one engine."""
    at_d, blocks = Delta(world.d), 0
    lengths = (1, 7, 15, 16, 17, 40, 100, 300, 1000)
    for length in lengths:
        prompt = world.prompt(length)
        alone = world.alone(prompt)
        found = world.decode(prompt, world.prefill(prompt))
        assert found == alone, f"{length}: {found}, {alone}"
        world.settled(30)
        blocks += -(-length // BLOCK_TOKENS)
    at_d.check(
        worker_pulls_done=len(lengths),
        worker_pulls_failed=0,
        worker_bytes_pulled=blocks * BLOCK_BYTES,
    )


def wrong_kernel_is_refused_at_start(world: World) -> None:
    """Without the plugin the engine does not start, and says why."""
    engine = Engine(
        "refused",
        world.folder,
        world.folder / "latent",
        kvpull_config(world.folder, "kv_consumer", {}),
    )
    engine.start()
    try:
        engine.wait_ready()
    except RuntimeError:
        text = engine.log.read_text(errors="replace")
        line = "ConfigError: KVPullConnector: MLA is not supported"
        assert re.search(line, text), text
        return
    finally:
        engine.stop()
    raise AssertionError("an engine serves whose tokens are wrong")


LATENT: list[Scenario] = [
    latent_attention_gives_the_same_tokens,
    wrong_kernel_is_refused_at_start,
]
