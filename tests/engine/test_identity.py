# SPDX-License-Identifier: Apache-2.0
"""Tests of what tells KV apart: layouts, digests, the configuration."""

from __future__ import annotations

import copy
import inspect
import json
import os
import re
import tempfile
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

from engine import environment

os.environ.update(environment())
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")

import drafted  # noqa: E402
import model  # noqa: E402
import rollout  # noqa: E402
import torch  # noqa: E402
from PIL import Image  # noqa: E402
from core import eagle  # noqa: E402
from kvpull_vllm import (  # noqa: E402
    configuration,
    connector,
    halves,
    identity,
    inside,
    layout,
    media,
    requests,
    settings,
)
from kvpull_vllm.abi import CONST, ffi  # noqa: E402
from runner import run_all, test  # noqa: E402
from vllm.config import MultiModalConfig  # noqa: E402
from vllm.engine.arg_utils import EngineArgs  # noqa: E402
from vllm.multimodal.parse import (  # noqa: E402
    ImageProcessorItems,
    MultiModalDataItems,
)
from vllm.multimodal.processing import (  # noqa: E402
    BaseMultiModalProcessor,
    BaseProcessingInfo,
    ProcessorInputs,
)
from vllm.multimodal.inputs import (  # noqa: E402
    MultiModalFeatureSpec,
    PlaceholderRange,
)
from vllm.sampling_params import SamplingParams  # noqa: E402
from vllm.v1 import kv_cache_interface  # noqa: E402
from vllm.v1.request import Request  # noqa: E402


def _config(
    *layers: tuple[str, int], cell: torch.dtype = torch.float32
) -> kv_cache_interface.KVCacheConfig:
    """Return vLLM's cache of layers, each with the size of its heads."""
    sizes = {size for _, size in layers}
    groups = [
        kv_cache_interface.KVCacheGroupSpec(
            [name for name, own in layers if own == size],
            kv_cache_interface.FullAttentionSpec(
                block_size=32, num_kv_heads=2, head_size=size, dtype=cell
            ),
        )
        for size in sorted(sizes, reverse=True)
    ]
    return kv_cache_interface.KVCacheConfig(8, [], groups)


@test
def layers_of_one_distance_are_one_cache() -> None:
    """[L, B, H, N, C] of vLLM is one cache; layers are in numeric order."""
    names = [f"model.layers.{number}.attn" for number in range(12)]
    config = _config(*((name, 64) for name in names[::-1]))
    memory = torch.zeros(12, 5, 2, 32, 128)
    tensors = dict(zip(names, memory, strict=True))
    (cache,) = layout.caches(config, tensors)
    assert cache.layer_count == 12 and cache.layer_first == 0
    assert cache.address == memory.data_ptr()
    assert cache.layer_stride == 5 * 2 * 32 * 128 * 4
    assert cache.block_stride == 2 * 32 * 128 * 4
    assert cache.head_stride == cache.head_bytes == 32 * 128 * 4
    assert (cache.row_count, cache.head_count) == (1, 2)
    assert layout.head_bytes(config) == cache.token_bytes == 512


@test
def unlike_layers_say_their_own_bytes() -> None:
    """Pages come from each layer's spec, padding left out."""
    config = _config(("l.0", 64), ("l.1", 32))
    tensors = {
        "l.0": torch.zeros(5, 2, 32, 128),
        "l.1": torch.zeros(5, 2, 32, 64),
    }
    first, second = layout.caches(config, tensors)
    assert (first.token_bytes, second.token_bytes) == (512, 256)
    assert layout.head_bytes(config) == 0
    odd = property(lambda self: 2 * self.head_size * 32 * 2 * 4 + 1)
    kind = kv_cache_interface.FullAttentionSpec
    with mock.patch.object(kind, "real_page_size_bytes", odd):
        try:
            layout.caches(config, tensors)
        except settings.ConfigError as error:
            assert "l.0 has pages of 32769 bytes" in str(error), error
        else:
            raise AssertionError("a page of no whole number was taken")


@test
def other_layouts_are_rows() -> None:
    """Token-major blocks, and kernel blocks smaller than the engine's."""
    config = _config(("l.0", 64))
    tokens_first = torch.zeros(5, 32, 2, 128).transpose(1, 2)
    (cache,) = layout.caches(config, {"l.0": tokens_first})
    assert (cache.row_count, cache.row_stride) == (32, 2 * 512)
    assert cache.head_bytes == cache.head_stride == 512
    small = torch.zeros(10, 2, 16, 128)
    (cache,) = layout.caches(config, {"l.0": small})
    assert (cache.block_count, cache.row_count) == (5, 2)
    assert cache.block_stride == 2 * cache.row_stride == 2 * 2 * 16 * 512
    assert cache.head_bytes == 16 * 512


@test
def only_known_kinds_of_cache_are_taken() -> None:
    """All of vLLM's: one derived from a known one may free blocks otherwise."""
    kinds = {
        "FullAttentionSpec": "FULL",
        "MLAAttentionSpec": "FULL",
        "SlidingWindowSpec": "SLIDING",
        "ChunkedLocalAttentionSpec": "SLIDING",
        "MambaSpec": "STATE",
    }
    seen = set()
    for kind in _kinds(kv_cache_interface.KVCacheSpec):
        group = kv_cache_interface.KVCacheGroupSpec(
            ["l.0"], object.__new__(kind)
        )
        name = kind.__name__
        try:
            found = layout.group_kind(group)
        except settings.ConfigError as error:
            assert name not in kinds, name
            assert name in str(error) and "l.0" in str(error), error
        else:
            assert found == CONST[f"KVPULL_GROUP_{kinds[name]}"], name
        seen.add(name)
    assert seen > kinds.keys(), seen
    # README has a row for each of them, which says the same.
    rows = re.findall(r"^\| (`\w+Spec`.*) \| (run|refused)\b", _readme(), re.M)
    said = {
        name: verdict
        for names, verdict in rows
        for name in re.findall(r"\w+", names)
    }
    bases = {"AttentionSpec", "UniformTypeKVCacheSpecs"}
    assert said == {
        name: "run" if name in kinds else "refused" for name in seen - bases
    }, said


def _readme() -> str:
    path = Path(__file__).parents[2] / "plugin/vllm/README.md"
    return path.read_text()


def _kinds(base: type) -> Iterator[type]:
    for kind in base.__subclasses__():
        yield kind
        yield from _kinds(kind)


def _prompt(**more: Any) -> Request:
    plain = {
        "request_id": "r",
        "prompt_token_ids": [1, 2],
        "sampling_params": SamplingParams(),
        "pooling_params": None,
    }
    return Request(**{**plain, **more})


def _digest(prompt: Request, adapter: str = "") -> bytes:
    return requests.prompt_digest(prompt, "", adapter, bytearray(9000))


@test
def siblings_have_one_parent_and_their_prompt_one_digest() -> None:
    """Keys that both halves of a family derive alike."""
    first, second = "0_cmpl-x-0-ab", "7_cmpl-x-0-ab"
    assert requests.parent_key(first) == requests.parent_key(second) > 0
    assert requests.parent_key("cmpl-x-0-ab") == 0
    assert len(_digest(_prompt())) == 16


def _media(name: str, offset: int) -> Any:
    place = PlaceholderRange(offset=offset, length=1)
    return MultiModalFeatureSpec(
        data=None, modality="image", identifier=name, mm_position=place
    )


@test
def all_that_kv_depends_on_is_in_the_digest() -> None:
    """A name is of one kind: an adapter's is no image's."""
    prompts = [
        _prompt(),
        _prompt(prompt_token_ids=[1, 3]),
        _prompt(cache_salt="x"),
        _prompt(mm_features=[_media("x", 0)]),
        _prompt(mm_features=[_media("x", 1)]),
        _prompt(mm_features=[_media("y", 0)]),
    ]
    digests = {_digest(prompt) for prompt in prompts}
    digests.add(_digest(_prompt(), adapter="x"))
    assert len(digests) == len(prompts) + 1


@test
def what_a_digest_cannot_name_is_not_moved() -> None:
    """Embeddings, also beside token ids, and media that vLLM did not hash."""
    for named, prompt, word in (
        (True, _prompt(), None),
        (
            True,
            _prompt(prompt_token_ids=None, prompt_embeds=torch.zeros(2, 4)),
            "embeddings",
        ),
        (True, _prompt(prompt_embeds=torch.zeros(2, 4)), "embeddings"),
        (True, _prompt(mm_features=[_media("x", 0)]), None),
        (False, _prompt(), None),
        (False, _prompt(mm_features=[_media("x", 0)]), "media"),
    ):
        found = requests.nameless(prompt, named)
        assert found is None if word is None else word in found, found
    for gigabytes, prefix, named in (
        (0, False, False),
        (0, True, True),
        (4, False, True),
    ):
        config = _engine_of(
            Path("m"),
            multimodal_config=MultiModalConfig(mm_processor_cache_gb=gigabytes),
        )
        config.cache_config.enable_prefix_caching = prefix
        assert settings.names_media(config) == named
    config.model_config.multimodal_config = None
    assert settings.names_media(config)


def _engine_of(folder: Path, **more: Any) -> Any:
    """Return an engine's configuration: vLLM's own, some of it changed.

    What is looked at has vLLM's fields, so that none is looked at in vain.
    """
    if not _ENGINES:
        model.make(Path(_MADE.name), 1)
        drafted.make_eagle(Path(_MADE.name) / "drafter", 2)
        _ENGINES.append(
            EngineArgs(
                model=_MADE.name,
                dtype="float32",
                block_size=32,
                speculative_config=eagle(Path(_MADE.name), 3),
            ).create_engine_config()
        )
        _DRAFTING.append(_ENGINES[0].speculative_config)
        _ENGINES[0].speculative_config = None
    made = copy.copy(_ENGINES[0])
    made.cache_config = copy.copy(made.cache_config)
    made.model_config = copy.copy(made.model_config)
    tiny = SimpleNamespace(architectures=["Tiny"], to_dict=dict)
    of_model = {"model": str(folder), "hf_config": tiny, **more}
    for name, value in of_model.items():
        setattr(made.model_config, name, value)
    return made


_MADE = tempfile.TemporaryDirectory()
_ENGINES: list[Any] = []
_DRAFTING: list[Any] = []


def _with_drafts(made: Any, folder: Path, **more: Any) -> Any:
    """Give an engine an EAGLE layer, whose files are in a folder."""
    speculative = copy.copy(_DRAFTING[0])
    draft = copy.copy(speculative.draft_model_config)
    for name, value in {"model": str(folder), **more}.items():
        setattr(draft, name, value)
    speculative.draft_model_config = draft
    made.speculative_config = speculative
    return made


def _caches(cell: torch.dtype = torch.float32) -> Any:
    return _config(("l.0", 64), cell=cell)


def _record(kind: str, dtype: torch.dtype, cell: torch.dtype) -> halves.Model:
    """Return an engine's model record, as of a machine with AMX."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text('{"hidden_size": 8}')
        config = _engine_of(Path(folder), dtype=dtype)
        config.cache_config.cache_dtype = kind
        own = settings.read({"model": "m"}, True)
        with mock.patch.object(
            inside,
            "kernels",
            lambda dtype, *_: "amx" if dtype == torch.bfloat16 else "vec",
        ):
            made = connector._model(config, _caches(cell), own)
    # The digest differs, too; here each other part has to differ by itself.
    return replace(made, config="")


@test
def caches_that_differ_are_two_models() -> None:
    """Two kinds of fp8 are uint8 both; kernels lay blocks out by themselves."""
    half, whole, cell = torch.bfloat16, torch.float32, torch.uint8
    records = [
        _record("fp8_e4m3", half, cell),
        _record("fp8_e5m2", half, cell),
        _record("fp8_e4m3", whole, cell),
        _record("auto", half, half),
        _record("auto", whole, whole),
    ]
    assert len(set(records)) == len(records), records
    assert _record("fp8", half, cell) == _record("fp8_e4m3", half, cell)
    assert _record("bfloat16", half, half) == _record("auto", half, half)


def _text(folder: Path, **more: Any) -> str:
    return configuration.text(_engine_of(folder, **more), _caches())


@test
def overrides_are_in_the_configuration() -> None:
    """The digest has every override that decides KV, and no path."""
    with tempfile.TemporaryDirectory() as made:
        folders = [Path(made) / name for name in "abc"]
        for folder, theta in zip(folders, (1e4, 1e4, 5e3), strict=True):
            folder.mkdir()
            rope = {"rope_type": "default", "rope_theta": theta}
            found = {"hidden_size": 8, "rope_parameters": rope, "_x": made}
            (folder / "config.json").write_text(json.dumps(found))
        plain = _text(folders[0])
        assert plain == _text(folders[1])
        other = {"rope_parameters": {"rope_theta": 5e3}}
        assert _text(folders[2]) == _text(folders[0], hf_overrides=other)
        texts = [
            plain,
            _text(folders[2]),
            _text(folders[0], hf_overrides={"hidden_size": 16}),
            _text(folders[0], dtype=torch.bfloat16),
            _text(folders[0], quantization="fp8"),
            _text(folders[0], hf_overrides=_text),
        ]
        assert len(set(texts)) == len(texts), texts


def _other(value: Any) -> Any:
    """Return another value of a field."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 1
    if isinstance(value, list | tuple):
        return [*value, "other"]
    if isinstance(value, dict):
        return {**value, "other": {"dtype": "x"}}
    return "other"


def _rows(folder: Path) -> dict[str, Any]:
    """Return what changes each part of the configuration that is no field.

    Of those that are fields one is made for each field.
    """

    def writes(name: str, text: str) -> Any:
        return lambda made: (folder / name).write_text(text)

    def sets(**fields: Any) -> Any:
        return lambda made: made.model_config.__dict__.update(fields)

    def sets_draft(**fields: Any) -> Any:
        return lambda made: _owner(made, "drafts").__dict__.update(fields)

    def sets_spec(made: Any) -> None:
        group = made.caches.transfer_groups[0]
        group.kv_cache_spec = replace(group.kv_cache_spec, sliding_window=64)

    return {
        "config.json": writes("config.json", '{"hidden_size": 16}'),
        "lengths": sets(hf_config=_rope(), max_model_len=2048),
        "numbers": sets(dtype=torch.bfloat16),
        "layers": sets_spec,
        "processors": writes("preprocessor_config.json", '{"size": 2}'),
        "scales": writes("scales.json", '{"q": 2}'),
        "code": writes("modeling.py", "x = 2"),
        "drafts.config.json": writes("drafter/config.json", '{"layers": 2}'),
        "drafts.lengths": sets_draft(hf_config=_rope(), max_model_len=2048),
        "drafts.numbers": sets_draft(dtype=torch.bfloat16),
    }


def _rope() -> Any:
    rope = {"rope_type": "longrope", "original_max_position_embeddings": 1024}
    return SimpleNamespace(
        architectures=["Tiny"], to_dict=lambda: {"rope_parameters": rope}
    )


def _whole(folder: Path) -> Any:
    """Return a configuration in which each part says something."""
    (folder / "drafter").mkdir()
    for name, text in (
        ("config.json", '{"hidden_size": 8}'),
        ("drafter/config.json", '{"layers": 1}'),
        ("preprocessor_config.json", '{"size": 1, "_name": "x"}'),
        ("scales.json", '{"q": 1}'),
        ("modeling.py", "x = 1"),
    ):
        (folder / name).write_text(text)
    made = _engine_of(
        folder,
        multimodal_config=MultiModalConfig(),
        trust_remote_code=True,
        hf_config=_rope(),
        max_model_len=512,
    )
    of_media = made.model_config.multimodal_config
    of_media.mm_encoder_fp8_scale_path = str(folder / "scales.json")
    made.attention_config = copy.copy(made.attention_config)
    made.caches = _caches()
    _with_drafts(
        made, folder / "drafter", hf_config=_rope(), max_model_len=512
    )
    made.speculative_config.kv_cache_dtype = "auto"
    return made


def _owner(made: Any, name: str) -> Any:
    if name == "drafts":
        return made.speculative_config.draft_model_config
    is_media = name == "multimodal_config"
    return getattr(made.model_config if is_media else made, name)


@test
def each_part_of_the_configuration_is_compared_by_itself() -> None:
    """A new part is a new row here; and what stands aside changes nothing."""
    with tempfile.TemporaryDirectory() as first:
        base = _whole(Path(first))
        parts = configuration.parts(base, base.caches)
        plain = configuration.text(base, base.caches)
        with tempfile.TemporaryDirectory() as other:  # a folder has any name
            found = _whole(Path(other))
            assert configuration.text(found, found.caches) == plain
        rows = _rows(Path(first))
        owned = [name for name in parts if "." in name and name not in rows]
        assert {*rows, *owned} == {*parts}, [*parts]
        for name in parts:
            with tempfile.TemporaryDirectory() as folder:
                made = _whole(Path(folder))
                if name in owned:
                    owner, field = name.split(".")
                    of = _owner(made, owner)
                    of.__dict__[field] = _other(getattr(of, field, None))
                else:
                    _rows(Path(folder))[name](made)
                now = configuration.parts(made, made.caches)
                differ = [part for part in parts if now[part] != parts[part]]
                assert differ == [name], differ
                assert configuration.text(made, made.caches) != plain, name
        for owner, aside in configuration.ASIDE.items():
            of = _owner(base, owner)
            for field in aside & {*vars(of)} - _TOLD:
                with mock.patch.dict(of.__dict__, {field: _other(vars(of)[field])}):
                    text = configuration.text(base, base.caches)
                assert text == plain, f"{owner}.{field}"


@test
def drafts_that_have_kv_are_named_with_the_weights() -> None:
    """By method and files; the digest of who has none is what it was."""
    own = settings.read({}, True)
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        model.make(folder / "model", 1)
        for name, seed in (("a", 2), ("b", 2), ("c", 3)):
            drafted.make_eagle(folder / name, seed)

        def named(name: str, **more: Any) -> identity.Identity:
            engine = _engine_of(folder / "model")
            if name:
                _with_drafts(engine, folder / name)
                engine.speculative_config.__dict__.update(more)
            return identity.identity(engine, _caches(), own, "0")

        none, one = named(""), named("a")
        text = re.fullmatch(
            r"(files \w{24}), drafts by eagle files \w{24}", one.weights
        )
        assert text and text[1] == none.weights, one
        assert one.config != none.config
        assert named("a", num_speculative_tokens=7) == one == named("b")
        assert named("c").weights != one.weights
        assert named("a", method="ngram") == none
        # EAGLE3 takes hidden states of the layers that its config.json names.
        takes = [named("a", method="eagle3").config]
        for layers in ([0, 1, 2], [0, 2, 1]):
            ids = {"eagle_aux_hidden_state_layer_ids": layers}
            drafted.configure(folder / "a", **ids)
            takes.append(named("a", method="eagle3").config)
        assert len({one.config, *takes}) == 4, takes
        ours = named("model", method="mtp")  # MTP: in the model's own files
        assert ours.weights == f"{none.weights}, drafts by mtp", ours
        # A name of the operator's is of all weights.
        own = settings.read({"weights": "mine"}, True)
        assert named("a").weights == named("c").weights == "mine"
        parts = configuration.parts(_engine_of(folder / "model"), _caches())
        assert not any("draft" in name or "specul" in name for name in parts)


# Told by another part, which is changed by it.
_TOLD = {
    *("model", "model_weights", "revision", "hf_config", "hf_config_path"),
    *("hf_overrides", "dtype", "multimodal_config", "trust_remote_code"),
    *("max_model_len", "mm_encoder_fp8_scale_path", "draft_model_config"),
}


@test
def media_are_named_by_what_makes_numbers_of_them() -> None:
    """Where there are none, files that say how say nothing."""
    with tempfile.TemporaryDirectory() as folder:
        made = _whole(Path(folder))
        made.model_config.multimodal_config = None
        plain = configuration.text(made, made.caches)
        (Path(folder) / "preprocessor_config.json").write_text('{"size": 2}')
        assert configuration.text(made, made.caches) == plain
        made.model_config.trust_remote_code = False
        plain = configuration.text(made, made.caches)
        (Path(folder) / "modeling.py").write_text("x = 2")
        assert configuration.text(made, made.caches) == plain


def _hashes(folder: Path, picture: Image.Image) -> Any:
    """Return vLLM's names of a picture, as its processors make them."""
    info = BaseProcessingInfo.__new__(BaseProcessingInfo)
    of_media = SimpleNamespace(mm_hasher_algorithm="blake3")
    info.ctx = SimpleNamespace(
        model_config=SimpleNamespace(model=str(folder)),
        get_mm_config=lambda: of_media,
    )
    items = MultiModalDataItems({"image": ImageProcessorItems([picture])})
    inputs = ProcessorInputs(prompt=[1], mm_data_items=items)
    processor = SimpleNamespace(info=info)
    return BaseMultiModalProcessor._get_mm_hashes(processor, inputs)


@test
def pictures_have_one_name_in_folders_of_any_name() -> None:
    """Another picture, another processor, another model: other names."""
    one, two = (Image.new("RGB", (4, 4), color) for color in ("red", "blue"))
    with tempfile.TemporaryDirectory() as made:
        folders = [Path(made) / name for name in "abcd"]
        for folder, size, hidden in zip(
            folders, (1, 1, 2, 1), (8, 8, 8, 16), strict=True
        ):
            folder.mkdir()
            text = json.dumps({"hidden_size": hidden, "_name_or_path": made})
            (folder / "config.json").write_text(text)
            (folder / "processor_config.json").write_text(f'{{"size": {size}}}')
        plain = _hashes(folders[0], one)
        assert _hashes(folders[1], one) != plain, "vLLM's own names"
        config = SimpleNamespace(ec_transfer_config=None)
        with (
            mock.patch.object(inside, "configuration_being_made", lambda: config),
            mock.patch.object(
                BaseProcessingInfo, "model_id", BaseProcessingInfo.model_id
            ),
        ):
            config.ec_transfer_config = "embeddings of another engine"
            media.rename()
            assert _hashes(folders[0], one) == plain
            config.ec_transfer_config = None
            media.rename()
            found = [_hashes(folder, one) for folder in folders]
            assert found[0] == found[1] != plain
            assert found[0] not in found[2:] and found[2] != found[3]
            assert _hashes(folders[0], two) != found[0]
            of_hub = _hashes(Path("owner/name"), one)
            assert of_hub not in found
    # Elsewhere, as in an engine without the connector, names are vLLM's.
    assert inside.configuration_being_made() is None


@test
def readme_lists_what_is_compared() -> None:
    """Each part of the configuration, each text of the model record."""
    section = _readme().split("## What P and D must agree on")[1]
    table = section.split("\n## ")[0]
    said = {*re.findall(r"`([^` ]+)`", table)}
    with tempfile.TemporaryDirectory() as folder:
        made = _whole(Path(folder))
        names = {*configuration.parts(made, made.caches)}
    names |= {field.name for field in fields(halves.Model)}
    names |= {*identity.Identity._fields}
    assert names <= said, f"not in README: {sorted(names - said)}"


@test
def all_that_is_compared_has_a_row_in_the_roll_out() -> None:
    """A member of the identity, or a part of a prompt's digest, is a new row."""
    assert {*rollout.identity()} == {*rollout.FROM_START}
    digest = inspect.signature(requests.prompt_digest).parameters
    others = {"request", "packed", "is_longer"}
    assert {*digest} - others == {*rollout.IN_RUNNING}
    ran = [row.__name__ for row in rollout.FULL]
    for member in rollout.FROM_START:
        assert any(member in name for name in ran), member


@test
def what_vllm_chooses_by_length_is_in_the_configuration() -> None:
    """Long ropes and Llama 4's temperatures, by --max-model-len."""
    rope = {"rope_type": "longrope", "original_max_position_embeddings": 1024}
    inside_it = {"text_config": {"rope_parameters": rope}}
    above_it = {
        "original_max_position_embeddings": 1024,
        "rope_scaling": {"type": "su"},
    }
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)

        def text(config: dict[str, Any], length: int, **more: Any) -> str:
            (folder / "config.json").write_text(json.dumps(config))
            names = config.get("architectures", ["Tiny"])
            seen = SimpleNamespace(
                to_dict=lambda: config, architectures=names
            )
            more = {"hf_config": seen, "max_model_len": length, **more}
            return _text(folder, **more)

        for config in (inside_it, above_it):
            short = text(config, 1024)
            assert short == text(config, 512)
            long = text(config, 1025)
            assert long == text(config, 4096) != short
            fitted = text(config, 4096, original_max_model_len=-1)
            assert fitted not in (short, long)
        llama = {"architectures": ["Llama4ForConditionalGeneration"]}
        said: dict[str, Any] = {
            "try_get_generation_config": dict,
            "override_generation_config": {},
        }
        assert text(llama, 32768, **said) != text(llama, 32769, **said)
        said["override_generation_config"] = {"attn_temperature_tuning": True}
        assert text(llama, 1024, **said) == text(llama, 32769, **said)
        # All others are as good for any length.
        assert text({"a": 1}, 1024) == text({"a": 1}, 4096)


if __name__ == "__main__":
    raise SystemExit(run_all())
