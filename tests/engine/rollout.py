# SPDX-License-Identifier: Apache-2.0
"""A roll-out: P and D that are not alike, for a while or from P's start.

Each row changes one thing. D answers as it does alone, P's blocks are free
within a second of D's refusal although a lease is 30 s, and both logs name what
differs. Rows of P's start come from the identity itself: struct kvpull_model
and the cache groups. Rows in running engines are parts of a prompt's digest.
"""

from __future__ import annotations

import base64
import dataclasses
import io
import json
import random
import re
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import model
import updates
from engine import (
    Engine,
    chat,
    complete,
    kvpull_config,
    metrics_of,
    post,
    tokens,
    wait_for,
)
from kvpull_vllm.halves import Model
from PIL import Image
from scenarios import Scenario
from world import HOLD, Delta, World

FREE_S = 1.0  # from D's refusal to the end of P's hold
CLIENTS, FEW_BLOCKS = 12, 40
NOT_HELD = "P holds nothing"


def _engine(
    folder: Path, name: str, options: list[str] | None = None, **more: Any
) -> Engine:
    """Return an engine with the default lease.

    more: "weights" are its model's folder, "extra" is of the connector's
    configuration, "odd" of odd.py, "address" where it serves; all others are
    options of the command.
    """
    role = {"p": "kv_producer", "d": "kv_consumer"}[name]
    transfer = kvpull_config(folder, role, more.pop("extra", {}))
    environment = {"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1"}
    if "odd" in more:
        transfer["kv_connector_module_path"] = "odd"
        environment["ODD"] = json.dumps(more.pop("odd"))
    path = folder / more.pop("weights", "model")
    address = more.pop("address", None)
    engine = Engine(
        name, folder, path, transfer, options, environment, address=address
    )
    engine.use(**more)
    return engine


def rollout(folder: Path) -> World:
    """Return a pair whose weights and adapters can be changed, not started."""
    for name, seed in (("p", 1), ("d", 1), ("2", 2)):
        model.make_adapter(folder / f"adapter-{name}", seed)
    made = [
        _engine(
            folder, name,
            [
                "--enable-lora", "--max-lora-rank", str(model.RANK),
                "--lora-modules", f"adapted={folder / f'adapter-{name}'}",
                *updates.EXTENSION,
            ],
        )
        for name in ("p", "d")
    ]  # fmt: skip
    return World(folder, *made)


def _free_at_once(world: World, name: str) -> None:
    """Assert that P's hold of a request ended when D computed it."""
    line = rf"request {re.escape(name)}: its hold ended"
    wait_for(
        "the end of P's hold", lambda: bool(world.p.logged(line)), 5 * FREE_S
    )
    refused = world.d.logged("is computed here")[-1]
    took = world.p.logged(line)[0] - refused
    assert took < FREE_S, f"free {took:.1f} s after D's refusal"


def through(world: World, prompt: list[int], **more: Any) -> str:
    """Go through P and D as a router does; return why D computed, "" if not.

    D's tokens are those of D alone, and nothing is held or expires.
    """
    alone = world.alone(prompt, **more)
    at_p, at_d = Delta(world.p), Delta(world.d)
    asked = {"max_tokens": 1, "kv_transfer_params": HOLD, **more}
    status, answer = world.p.complete(prompt, **asked)
    assert status == 200, answer
    params = answer["kv_transfer_params"]
    why = NOT_HELD
    status, answer = world.d.complete(
        prompt, kv_transfer_params=params, **more
    )
    assert status == 200, answer
    found = tokens(answer)
    assert found == alone, f"{found}, alone {alone}"
    if params:
        told = answer["kv_transfer_params"] or {}
        why = told.get("kvpull_computed", "")
        if why:
            _free_at_once(world, params["remote_request_id"])
    world.settled()
    at_p.check(worker_holds_expired=0)
    at_d.check(worker_pulls_done=int(not why))
    world.d.reset_prefix_cache()
    return why


# ---- in running engines: a row for each part of a prompt's digest ----


def weights_that_differ_for_a_while(world: World) -> None:
    """P gets new ones and a name for them, then D does."""
    for engine, (unnamed, named) in (
        (world.p, (NOT_HELD, "another prompt")),
        (world.d, ("the weights have no name", "")),
    ):
        status, answer = updates.call_workers(engine, "refit", 2)
        assert status == 200, answer
        assert unnamed in through(world, world.prompt(100))
        updates.name_weights(engine, "new")
        world.p.reset_prefix_cache()
        why = through(world, world.prompt(100))
        assert named in why if named else not why, why


def weights_are_named_behind_a_pause(world: World) -> None:
    """As README says: what hits a cache of after the pause is held."""
    for engine in (world.p, world.d):
        assert post(f"{engine.url}/pause?mode=wait", None)[0] == 200
        assert updates.call_workers(engine, "refit", 1)[0] == 200
        updates.name_weights(engine, "paused")
        assert post(f"{engine.url}/resume", None)[0] == 200
    prompt = world.prompt(100)
    assert not through(world, prompt)
    assert not through(world, prompt + world.prompt(40))


def _load_adapter(engine: Engine, path: Path, in_place: bool) -> None:
    """Load an adapter under the name that is served."""
    body: dict[str, Any] = {"lora_name": "adapted"}
    if not in_place:
        assert post(f"{engine.url}/v1/unload_lora_adapter", body)[0] == 200
    body |= {"lora_path": str(path), "load_inplace": in_place}
    status, answer = post(f"{engine.url}/v1/load_lora_adapter", body)
    assert status == 200, answer


def adapters_of_one_name(world: World) -> None:
    """P's has other files under the same name; then D's has the same ones."""
    adapted = partial(through, world, model="adapted")
    assert not adapted(world.prompt(100))
    _load_adapter(world.p, world.folder / "adapter-2", False)
    assert "another prompt" in adapted(world.prompt(100))
    assert not through(world, world.prompt(100)), "without an adapter"
    _load_adapter(world.d, world.folder / "adapter-2", False)
    assert not adapted(world.prompt(100))
    for engine in (world.p, world.d):
        _load_adapter(engine, world.folder / f"adapter-{engine.name}", False)
    world.p.reset_prefix_cache()
    assert not adapted(world.prompt(100))


def adapters_loaded_in_place(world: World) -> None:
    """Files are replaced at P and loaded again, then at D.

    vLLM's server has each later request of such an adapter load it again: D
    pulls for none of them until the adapter is loaded anew.
    """
    adapted = partial(through, world, model="adapted")
    first = world.prompt(100)
    assert not adapted(first)
    for engine, why in (
        (world.p, "another prompt"),
        (world.d, "loaded in place by it"),
    ):
        path = world.folder / f"adapter-{engine.name}"
        shutil.copytree(world.folder / "adapter-2", path, dirs_exist_ok=True)
        _load_adapter(engine, path, True)
        assert why in adapted(world.prompt(100))
        # P's prefix cache goes by name and path: it has the adapter of before.
        assert adapted(first) == NOT_HELD
    _load_adapter(world.d, world.folder / "adapter-d", False)
    assert not adapted(world.prompt(100))
    world.p.reset_prefix_cache()
    assert not adapted(first)


IN_RUNNING = {
    "weights": (
        weights_that_differ_for_a_while,
        weights_are_named_behind_a_pause,
    ),
    "adapter": (adapters_of_one_name, adapters_loaded_in_place),
}

# ---- from P's start: a row for each member of the identity ----


def _shape(**overrides: int) -> dict[str, Any]:
    """Return a P with a cache of another shape.

    Such a P has other weights and another configuration, too. It says that it
    has D's, or those would be named before the shape.
    """
    return {"hf_overrides": overrides, "load_format": "dummy", "is_as_d": True}


FROM_START: dict[str, dict[str, Any]] = {
    "model": {"extra": {"model": "another"}},
    "revision": {"extra": {"revision": "another"}},
    "weights": {"weights": "other"},
    "dtype": {"dtype": "bfloat16"},
    "layout": {"odd": {"record": {"layout": "LBNHC"}}},
    "attention": {"odd": {"kernels": "vec9"}},
    "config": {
        "hf_overrides": {
            "rope_parameters": {"rope_type": "default", "rope_theta": 5000.0}
        }
    },
    "engine": {"odd": {"version": "0.32.9"}},
    "layer_count": _shape(num_hidden_layers=3),
    "head_count": _shape(num_key_value_heads=4),
    "head_bytes": _shape(head_dim=32),
    "replicated": {"odd": {"record": {"replicated": True}}},
    "groups": {"block_size": "64"},
}


def identity() -> list[str]:
    """Return the members that are compared when D meets P."""
    return [*(field.name for field in dataclasses.fields(Model)), "groups"]


def _roll(world: World, is_as_d: bool = False, **more: Any) -> None:
    """Put another P in the place of P."""
    if is_as_d:
        line = r"kvpull \S+: engine .* configuration (.+, weights files \w+),"
        config, weights = world.d.log_words(line)[-1].split(", weights ")
        more["extra"] = {"weights": weights}
        more["odd"] = {"record": {"config": config}}
    world.p.stop()
    address = ("127.0.0.1", world.p.port)  # the router goes on with this one
    world.p = _engine(world.folder, "p", address=address, **more)
    world.p.start()
    world.p.wait_ready()


def _differs(member: str) -> Scenario:
    def differs(world: World) -> None:
        line = rf"({member}\S* is .+ (?:here|there) and .+ (?:here|there))"
        before = [len(engine.log_words(line)) for engine in world.engines]
        _roll(world, **FROM_START[member])
        at_p, at_d = Delta(world.p), Delta(world.d)
        for _ in range(2):  # the first contact, and a later request
            why = through(world, world.prompt(100))
            assert "another model, configuration or layout" in why, why
        assert at_p("worker_consumers_refused") and at_d("worker_peer_failures")
        for engine, count in zip(world.engines, before, strict=True):
            told = engine.log_words(line)[count:]
            assert told, f"{engine.name} does not name {member}"
            world.say(f"{engine.name}: {told[0]}")

    differs.__name__ = f"another_{member}_of_p_is_refused"
    return differs


def clients_of_an_unlike_p_wait_for_no_lease(world: World) -> None:
    """P has blocks for 10 of 12 clients, and D refuses it: D's own time."""
    _roll(
        world,
        num_gpu_blocks_override=str(FEW_BLOCKS),
        max_model_len="1024",
        **FROM_START["config"],
    )
    prompts = [world.prompt(100) for _ in range(CLIENTS)]

    def alone(prompt: list[int]) -> tuple[float, Any]:
        began = time.monotonic()
        answer = complete(world.d.url, prompt)
        return time.monotonic() - began, answer

    def unlike(prompt: list[int]) -> tuple[float, Any]:
        began = time.monotonic()
        answer = world.decode(prompt, world.prefill(prompt))
        return time.monotonic() - began, answer

    with ThreadPoolExecutor(CLIENTS) as pool:
        expected = list(pool.map(alone, prompts))
        world.d.reset_prefix_cache()
        found = list(pool.map(unlike, prompts))
    late = [
        took - own
        for (took, answer), (own, right) in zip(found, expected, strict=True)
        if answer == right
    ]
    assert len(late) == CLIENTS, "wrong tokens"
    world.say(
        f"{CLIENTS} clients: at most {max(own for own, _ in expected):.2f} s "
        f"at D alone, {max(took for took, _ in found):.2f} s by P"
    )
    assert max(late) < FREE_S, late
    world.settled()


def router_parts_an_unlike_pair(world: World) -> None:
    """The package's router asks P in vain, then has D compute, both right."""
    _roll(world, **FROM_START["config"])
    for _ in range(4):
        prompt = world.prompt(100)
        alone = world.alone(prompt)
        assert complete(world.router_url, prompt) == alone
        world.d.reset_prefix_cache()
    counts = metrics_of(world.router_url)
    for name in ("pairs_failed", "unpaired"):
        world.say(f"{name} {counts[f'kvpull_router_{name}_total']:.0f}")
        assert counts[f"kvpull_router_{name}_total"], name
    world.settled()


# ---- media ----


def media(folder: Path) -> World:
    """Return P and D whose models take pictures, in folders of other names."""
    made = []
    for name in ("p", "d"):
        model.make_media(folder / f"media-of-{name}", 1)
        made.append(_engine(folder, name, weights=f"media-of-{name}"))
    return World(folder, *made)


def _picture(seed: int) -> str:
    """Return a picture as a URL."""
    pixels = random.Random(seed).randbytes(32 * 32 * 3)
    file = io.BytesIO()
    Image.frombytes("RGB", (32, 32), pixels).save(file, "png")
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"


def _show(
    engine: Engine,
    picture: int,
    words: str,
    max_completion_tokens: int = 16,
    **more: Any,
) -> Any:
    """Ask about a picture; return the answer."""
    content = [
        {"type": "image_url", "image_url": {"url": _picture(picture)}},
        {"type": "text", "text": words},
    ]
    body = chat(
        content,
        max_completion_tokens=max_completion_tokens,
        ignore_eos=True,
        return_token_ids=True,
        **more,
    )
    status, answer = post(f"{engine.url}/v1/chat/completions", body)
    assert status == 200, answer
    return answer


def pictures_are_pulled_between_folders(world: World) -> None:
    """The same picture is pulled, another one at the same words is not."""
    words = " ".join(f"w{token}" for token in world.prompt(60))
    alone = {}
    for picture in (1, 2):
        alone[picture] = tokens(_show(world.d, picture, words))
        world.d.reset_prefix_cache()
    assert alone[1] != alone[2], "the picture changes nothing"
    for picture, why in ((1, None), (2, "another prompt")):
        at_d = Delta(world.d)
        params = _show(
            world.p, 1, words, max_completion_tokens=1, kv_transfer_params=HOLD
        )["kv_transfer_params"]
        answer = _show(world.d, picture, words, kv_transfer_params=params)
        assert tokens(answer) == alone[picture], picture
        if why:
            assert why in answer["kv_transfer_params"]["kvpull_computed"]
            _free_at_once(world, params["remote_request_id"])
        world.settled()
        at_d.check(worker_pulls_done=int(not why))
        world.d.reset_prefix_cache()


MEDIA: list[Scenario] = [pictures_are_pulled_between_folders]
SMOKE: list[Scenario] = [
    weights_that_differ_for_a_while,
    adapters_loaded_in_place,
    _differs("config"),
]
FULL: list[Scenario] = [
    *(row for rows in IN_RUNNING.values() for row in rows),
    *map(_differs, identity()),
    clients_of_an_unlike_p_wait_for_no_lease,
    router_parts_an_unlike_pair,
]
