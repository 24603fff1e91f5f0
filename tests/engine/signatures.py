# SPDX-License-Identifier: Apache-2.0
"""A table of all that the package touches in vLLM, version by version.

signatures.py --check WHEEL...|FOLDER...: compare with signatures.txt what these
have; print what differs. FOLDER is one with vllm in it, as site-packages.
signatures.py --write WHEEL...: write the table anew.

Sources are parsed and not imported, so that no wheel has to be installed. A row
is a name, the versions that have it so, and its signature: a function's, a
class's fields or constructor, an attribute's annotation. A version that a name
has no row for lacks it.
"""

from __future__ import annotations

import ast
import functools
import re
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
PACKAGE = HERE.parents[1] / "plugin/vllm/kvpull_vllm"
TABLE = HERE / "signatures.txt"
HEAD = """\
# SPDX-License-Identifier: Apache-2.0
# What kvpull_vllm touches in vLLM: name, versions, signature. Written by
# signatures.py; "make signatures" compares the wheels with it.
"""
# Members that are reached through objects that vLLM hands over, by their class.
# Names that are imported, subclassed or overridden are found in the package.
REACHED = {
    "vllm.config.cache.CacheConfig": (
        "cache_dtype enable_prefix_caching kv_cache_dtype_skip_layers "
        "prefix_caching_hash_algo"
    ),
    "vllm.config.device.DeviceConfig": "device_type",
    "vllm.config.kv_transfer.KVTransferConfig": (
        "enable_permute_local_kv engine_id is_kv_consumer is_kv_producer "
        "kv_connector_extra_config kv_load_failure_policy"
    ),
    "vllm.config.load.LoadConfig": "download_dir load_format",
    "vllm.config.model.ModelConfig": (
        "dtype enable_cumem_allocator enable_sleep_mode get_total_num_kv_heads get_vocab_size "
        "hf_config hf_config_path hf_overrides max_model_len model model_weights "
        "multimodal_config original_max_model_len override_generation_config "
        "revision trust_remote_code try_get_generation_config use_mla"
    ),
    "vllm.config.multimodal.MultiModalConfig": (
        "mm_encoder_fp8_scale_path mm_processor_cache_gb"
    ),
    "vllm.config.parallel.ParallelConfig": (
        "data_parallel_rank data_parallel_rank_local "
        "decode_context_parallel_size nnodes_within_dp "
        "pipeline_parallel_size prefill_context_parallel_size rank "
        "tensor_parallel_size world_size"
    ),
    "vllm.config.scheduler.SchedulerConfig": "policy",
    "vllm.config.speculative.SpeculativeConfig": (
        "draft_load_config draft_model_config draft_parallel_config method "
        "parallel_drafting"
    ),
    "vllm.config.vllm.VllmConfig": (
        "attention_config cache_config device_config ec_transfer_config "
        "kv_transfer_config "
        "load_config lora_config model_config num_prefill_lookahead_tokens "
        "parallel_config scheduler_config speculative_config"
    ),
    "vllm.distributed.kv_transfer.kv_connector.v1.base.KVConnectorBase_V1": (
        "_kv_cache_config"
    ),
    "vllm.distributed.kv_transfer.kv_connector.v1.metrics."
    "KVConnectorPromMetrics": (
        "_counter_cls _gauge_cls _histogram_cls _kv_transfer_config "
        "_labelnames per_engine_labelvalues"
    ),
    "vllm.distributed.kv_transfer.kv_connector.v1.multi_connector."
    "MultiConnector": "__init__",
    "vllm.distributed.kv_transfer.kv_connector.v1.offloading_connector."
    "OffloadingConnector": "__init__",
    "vllm.lora.request.LoRARequest": (
        "is_3d_lora_weight load_inplace lora_int_id lora_name lora_path"
    ),
    "vllm.lora.worker_manager.LRUCacheWorkerLoRAManager": (
        "_load_adapter list_adapters lora_config"
    ),
    "vllm.multimodal.inputs.MultiModalFeatureSpec": (
        "identifier mm_hash mm_position"
    ),
    "vllm.multimodal.inputs.PlaceholderRange": "offset",
    "vllm.multimodal.processing.BaseProcessingInfo": "ctx model_id",
    "vllm.platforms.interface.Platform": "get_device_name is_cuda",
    "vllm.sampling_params.SamplingParams": (
        "allowed_token_ids bad_words logit_bias min_p min_tokens "
        "repetition_penalty seed structured_outputs temperature "
        "thinking_token_budget top_k top_p"
    ),
    "vllm.v1.core.block_pool.BlockPool": (
        "cached_block_hash_to_block get_num_free_blocks num_gpu_blocks"
    ),
    "vllm.v1.core.kv_cache_manager.KVCacheBlocks": "get_block_ids",
    "vllm.v1.core.kv_cache_manager.KVCacheManager": "block_pool",
    "vllm.v1.core.sched.interface.PauseState": "UNPAUSED",
    "vllm.v1.core.sched.scheduler.Scheduler": (
        "has_unfinished_requests kv_cache_manager pause_state requests "
        "update_from_output"
    ),
    "vllm.v1.engine.core.EngineCore": (
        "_weight_version collective_rpc model_executor remove_lora scheduler "
        "set_weight_version vllm_config"
    ),
    "vllm.v1.executor.abstract.Executor": "collective_rpc",
    "vllm.v1.kv_cache_interface.ChunkedLocalAttentionSpec": (
        "attention_chunk_size"
    ),
    "vllm.v1.kv_cache_interface.FullAttentionSpec": (
        "block_size dtype head_size num_kv_heads page_size_bytes "
        "real_page_size_bytes"
    ),
    "vllm.v1.kv_cache_interface.KVCacheConfig": (
        "kv_cache_layout transfer_group_ids transfer_groups"
    ),
    "vllm.v1.kv_cache_interface.KVCacheGroupSpec": "kv_cache_spec layer_names",
    "vllm.v1.kv_cache_interface.MLAAttentionSpec": "block_size",
    "vllm.v1.kv_cache_interface.SlidingWindowSpec": (
        "extra_retained_tokens sliding_window"
    ),
    "vllm.v1.kv_cache_interface.UniformTypeKVCacheSpecs": "kv_cache_specs",
    "vllm.v1.kv_offload.base.ReqContext": (
        "get_state kv_transfer_params req_id set_state"
    ),
    "vllm.v1.kv_offload.config.OffloadingConfig": (
        "cache canonical_layout engine_id groups kv_cache_layout model parallel "
        "worker_kv_bytes_per_block"
    ),
    "vllm.v1.kv_offload.cpu.policies.base.CachePolicy": "get",
    "vllm.v1.kv_offload.cpu.policies.base.ChunkStatus": "chunk_id",
    "vllm.v1.kv_offload.cpu.shared_offload_region.SharedOffloadRegion": (
        "_creator fd mmap_path"
    ),
    "vllm.v1.kv_offload.tiering.base.SecondaryTierManager": (
        "_offloading_spec block_size_bytes"
    ),
    "vllm.v1.kv_offload.tiering.base.TransferJob": (
        "chunk_ids job_id keys req_context submit_time"
    ),
    "vllm.v1.kv_offload.tiering.spec.TieringOffloadingSpec": (
        "_scheduler_mmap config replicated_layout secondary_tier_configs"
    ),
    "vllm.v1.outputs.KVConnectorOutput": (
        "failed_recving finished_recving kv_connector_worker_meta"
    ),
    "vllm.v1.outputs.LogprobsLists": "logprobs slice_request",
    "vllm.v1.outputs.ModelRunnerOutput": (
        "kv_connector_output logprobs req_id_to_index"
    ),
    "vllm.v1.request.Request": (
        "abort_immediately cache_salt kv_transfer_params lora_request "
        "mm_features num_computed_tokens num_in_flight_tokens "
        "num_prompt_tokens num_tokens output_token_ids priority prompt_embeds "
        "prompt_token_ids request_id sampling_params skip_reading_prefix_cache "
        "status trace_headers"
    ),
    "vllm.v1.request.RequestStatus": (
        "FINISHED_ABORTED FINISHED_LENGTH_CAPPED FINISHED_STOPPED"
    ),
    "vllm.v1.worker.worker_base.WorkerBase": "model_runner rank",
}
Row = tuple[str, str]  # a name and its signature


class Source:
    """vLLM's modules, in a wheel or a folder."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self._wheel = zipfile.ZipFile(place) if place.is_file() else None
        self._names = set(self._wheel.namelist()) if self._wheel else set()

    def _text(self, path: str) -> str | None:
        if self._wheel:
            return self._wheel.read(path).decode() if path in self._names else None
        file = self.place / path
        return file.read_text() if file.is_file() else None

    @functools.cached_property
    def version(self) -> str:
        """Major and minor, as 0.32."""
        found = re.search(
            r"^(?:__version__ = )?version = ['\"](\d+\.\d+)|"
            r"__version__ = .*['\"](\d+\.\d+)",
            self._text("vllm/_version.py") or "",
            re.M,
        )
        assert found, f"{self.place} has no version"
        return found[1] or found[2]

    @functools.cache  # noqa: B019: as long as the program
    def module(self, name: str) -> dict[str, ast.AST]:
        """Return what a module defines or imports, by name."""
        path = name.replace(".", "/")
        text = self._text(f"{path}.py")
        is_package = text is None
        if is_package:
            text = self._text(f"{path}/__init__.py")
        found: dict[str, ast.AST] = {}
        for node in _flat(ast.parse(text or "").body):
            if isinstance(node, ast.ImportFrom):
                parts = name.split(".")
                up = len(parts) - node.level + is_package
                start = ".".join(parts[:up]) + "." if node.level else ""
                node.module = (start + (node.module or "")).rstrip(".")
                for one in node.names:
                    found[one.asname or one.name] = node
            elif isinstance(node, ast.Assign):
                for target in node.targets:
                    if isinstance(target, ast.Name):
                        found[target.id] = node
            elif isinstance(node, ast.AnnAssign):
                if isinstance(node.target, ast.Name):
                    found[node.target.id] = node
            elif hasattr(node, "name"):
                found[node.name] = node
        return found

    def find(self, module: str, name: str) -> tuple[str, ast.AST] | None:
        """Return where a name is defined, and its node, through imports."""
        for _ in range(8):
            node = self.module(module).get(name)
            if not isinstance(node, ast.ImportFrom):
                return None if node is None else (module, node)
            for one in node.names:
                if name == (one.asname or one.name):
                    name = one.name
                    break
            module = node.module or ""
        return None

    def bases(self, module: str, node: ast.ClassDef) -> Iterator[ast.ClassDef]:
        """Yield a class and the classes of vLLM that it is made of."""
        yield node
        for base in node.bases:
            if isinstance(base, ast.Subscript):
                base = base.value
            found = (
                self.find(module, base.id) if isinstance(base, ast.Name) else None
            )
            if found and isinstance(found[1], ast.ClassDef):
                yield from self.bases(found[0], found[1])

    def signature(self, name: str) -> str | None:
        """Return what a dotted name of vLLM's is, None if it is not there."""
        parts = name.split(".")
        for at in range(len(parts) - 1, 0, -1):
            found = self.find(".".join(parts[:at]), parts[at])
            if found is None:
                if at == len(parts) - 1 and self.module(name):
                    return "module"
                continue
            module, node = found
            if at == len(parts) - 1:
                return _shown(node)
            assert isinstance(node, ast.ClassDef) and at == len(parts) - 2
            for kind in self.bases(module, node):
                member = _member(kind, parts[-1])
                if member:
                    return member
            return None
        return None

    def has_method(self, module: str, name: str, method: str) -> bool:
        """Say whether a class or its bases of vLLM's have a method."""
        found = self.find(module, name)
        return (
            found is not None
            and isinstance(found[1], ast.ClassDef)
            and any(_member(k, method) for k in self.bases(*found))
        )


def _flat(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield statements, those within if and try at the same level."""
    for node in body:
        yield node
        for part in ("body", "orelse", "finalbody"):
            if isinstance(node, ast.If | ast.Try):
                yield from _flat(getattr(node, part, []))


def _shown(node: ast.AST) -> str:
    """Return a definition as one line."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        made = "".join(
            f"@{ast.unparse(one)} "
            for one in node.decorator_list
            if ast.unparse(one).split(".")[0]
            in ("property", "classmethod", "staticmethod", "cached_property")
        )
        returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
        return f"{made}({ast.unparse(node.args)}){returns}"
    if isinstance(node, ast.ClassDef):
        fields = [
            ast.unparse(one)
            for one in node.body
            if isinstance(one, ast.AnnAssign) and not one.simple == 0
        ]
        is_data = any("dataclass" in ast.unparse(d) for d in node.decorator_list)
        bases = ", ".join(map(ast.unparse, node.bases))
        inside = f" {{{'; '.join(fields)}}}" if is_data else ""
        return f"class({bases}){inside}"
    if isinstance(node, ast.AnnAssign):
        value = f" = {ast.unparse(node.value)}" if node.value else ""
        return f": {ast.unparse(node.annotation)}{value}"
    return "value"


def _member(kind: ast.ClassDef, name: str) -> str | None:
    """Return what a class has of a name: a method, a field, an attribute."""
    for node in _flat(kind.body):
        if getattr(node, "name", None) == name:
            return _shown(node)
        targets = getattr(node, "targets", [getattr(node, "target", None)])
        if any(isinstance(t, ast.Name) and t.id == name for t in targets):
            return _shown(node)
    for node in ast.walk(kind):
        targets = getattr(node, "targets", [getattr(node, "target", None)])
        for target in targets:
            if (
                isinstance(target, ast.Attribute)
                and target.attr == name
                and isinstance(target.value, ast.Name)
                and target.value.id == "self"
            ):
                return _shown(node)
    return None


# ---- what the package touches ----


def _modules() -> dict[str, ast.Module]:
    return {p.stem: ast.parse(p.read_text()) for p in PACKAGE.glob("*.py")}


def imported(tree: ast.Module) -> dict[str, tuple[str, str]]:
    """Return what a module of ours imports of vLLM: its module and name."""
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[
            0
        ] == "vllm":
            for one in node.names:
                found[one.asname or one.name] = (node.module or "", one.name)
    return found


def overridden(sources: list[Source]) -> Iterator[str]:
    """Yield the names of methods of vLLM's that classes of ours stand for."""
    for tree in _modules().values():
        own = {n.name: n for n in tree.body if isinstance(n, ast.ClassDef)}
        known = imported(tree)
        for node in own.values():
            bases = [b.id for b in node.bases if isinstance(b, ast.Name)]
            methods = {
                one.name
                for kind in [node, *(own[b] for b in bases if b in own)]
                for one in kind.body
                if isinstance(one, ast.FunctionDef)
            }
            for module, name in (known[b] for b in bases if b in known):
                for method in methods:
                    if any(s.has_method(module, name, method) for s in sources):
                        yield f"{module}.{name}.{method}"


def touched(sources: list[Source]) -> set[str]:
    """Return all names of vLLM's that the package touches."""
    names = set(overridden(sources))
    for tree in _modules().values():
        names.update(f"{m}.{n}" for m, n in imported(tree).values())
    for owner, members in REACHED.items():
        names.update(f"{owner}.{member}" for member in members.split())
    return names


# ---- the table ----


def made(sources: list[Source]) -> str:
    """Return the table of these versions."""
    lines = []
    for name in sorted(touched(sources)):
        rows: dict[str, list[str]] = {}
        for source in sources:
            found = source.signature(name)
            if found is not None:
                rows.setdefault(found, []).append(source.version)
        if not rows:
            raise SystemExit(f"signatures: no version has {name}")
        lines += [
            f"{name}\n\t{' '.join(versions)}\t{signature}\n"
            for signature, versions in rows.items()
        ]
    return HEAD + "".join(lines)


def rows(text: str) -> dict[str, dict[str, str]]:
    """Return the table as name: {version: signature}."""
    found: dict[str, dict[str, str]] = {}
    name = ""
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        if not line.startswith("\t"):
            name = line
            continue
        _, versions, signature = line.split("\t", 2)
        for version in versions.split():
            found.setdefault(name, {})[version] = signature
    return found


def differences(source: Source, text: str) -> list[str]:
    """Return what a vLLM has otherwise than the table, a line each.

    A version that the table lacks is compared with the newest that it has.
    """
    table = rows(text)
    versions = {v for row in table.values() for v in row}
    number = max(versions, key=lambda v: [int(n) for n in v.split(".")])
    version = source.version if source.version in versions else number
    said = []
    for name in sorted(table.keys() | touched([source])):
        told = table.get(name, {}).get(version)
        found = source.signature(name)
        if name not in table:
            said.append(f"{name}: the table lacks it")
        elif found != told:
            said.append(f"{name}: {found or 'gone'}, the table has {told or 'none'}")
    return said


def main(arguments: list[str]) -> int:
    """Do as the first argument says; 0 if nothing differs."""
    sources = [Source(Path(one)) for one in arguments[1:]]
    if not sources or arguments[0] not in ("--check", "--write"):
        raise SystemExit(__doc__)
    if arguments[0] == "--write":
        TABLE.write_text(made(sources))
        return 0
    failed = 0
    for source in sources:
        found = differences(source, TABLE.read_text())
        failed += bool(found)
        print(f"  vLLM {source.version}: {len(found)} differences")
        print("".join(f"    {line}\n" for line in found), end="")
    if len(sources) > 1 and made(sources) != TABLE.read_text():
        print('  the table is not of these: WRITE=1 writes it anew')
        failed += 1
    print(f"{len(sources) - failed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
