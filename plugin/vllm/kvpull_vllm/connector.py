# SPDX-License-Identifier: Apache-2.0
"""KVPullConnector: vLLM's connector interface over libkvpull.so.

It translates calls and keeps names; every decision about holds, leases,
tickets and pulls is the library's.
"""

from __future__ import annotations

import atexit
from dataclasses import dataclass
from typing import Any

import torch
from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorHandshakeMetadata,
    KVConnectorMetadata,
    KVConnectorRole,
    KVConnectorTransferResults,
    SupportsHMA,
)

from kvpull_vllm import (
    check_version,
    identity,
    inside,
    layout,
    media,
    settings,
    signatures,
)
from kvpull_vllm.abi import CONST, Library
from kvpull_vllm.core import Core, watch_output
from kvpull_vllm.halves import Model, Opening, SchedulerHalf, WorkerHalf, logger
from kvpull_vllm.scheduler import (
    KVPullMetadata,
    KVPullWorkerMetadata,
    Manner,
    SchedulerSide,
)
from kvpull_vllm.stats import KVPullPromMetrics, KVPullStats
from kvpull_vllm.worker import WorkerSide

LAYOUT = "LBHNC"
media.rename()
# Calls of each request and step to which the connector adds nothing: the side
# is called in its place, as a call in between takes longer than most of them.
_SCHEDULER_CALLS = {
    "on_new_request": "request_new",
    "get_num_new_matched_tokens": "matched_tokens",
    "update_state_after_alloc": "allocated",
    "build_connector_meta": "build_meta",
    "update_connector_output": "output",
    "request_finished_all_groups": "request_finished",
    "has_pending_push_work": "has_pending_work",
    "get_kv_connector_stats": "stats",
}
_WORKER_CALLS = {
    "start_load_kv": "start_loads",
    "get_transfer_results": "results",
    "get_kv_connector_stats": "stats",
    "build_connector_worker_meta": "worker_meta",
}


@dataclass
class KVPullHandshake(KVConnectorHandshakeMetadata):
    """A rank's word to the scheduler side of its own engine."""

    info: bytes


def _dtype(vllm_config: Any, kv_cache_config: Any) -> str:
    """Return what the caches' numbers are, of attention and of states."""
    states = layout.state_dtypes(kv_cache_config)
    attention = layout.attention_groups(kv_cache_config)
    plain = vllm_config.model_config.dtype
    if attention:
        plain = layout.layer_spec(attention[0]).dtype
    text = _attention_dtype(vllm_config.cache_config, plain)
    return "+".join([text, *(f"state {name}" for name in states)])


def _attention_dtype(cache_config: Any, dtype: Any) -> str:
    """Return what an attention's numbers are: quantized ones are all uint8."""
    text = str(dtype).removeprefix("torch.")
    kind = cache_config.cache_dtype
    if kind in ("auto", text):
        return text
    kind = "fp8_e4m3" if kind == "fp8" else kind
    # Layers whose numbers are the model's all the same.
    plain = getattr(cache_config, "kv_cache_dtype_skip_layers", ())
    return "/".join([text, kind, *sorted(plain)])


def _attention(vllm_config: Any, kv_cache_config: Any) -> str:
    """Return the backend's kernels: each lays a block out in its own way."""
    args = {
        (
            vllm_config.model_config.dtype,
            group.kv_cache_spec.block_size,
            layout.layer_spec(group, name).head_size,
            vllm_config.cache_config.cache_dtype,
        )
        for group in layout.attention_groups(kv_cache_config)
        for name in group.layer_names
    }
    return "+".join(sorted({inside.kernels(*arg) for arg in args}))


def _model(vllm_config: Any, kv_cache_config: Any, own: Any) -> Model:
    model = vllm_config.model_config
    replicated = bool(getattr(model, "use_mla", False))
    same = identity.identity(
        vllm_config, kv_cache_config, own, inside.version()
    )
    return Model(
        **same._asdict(),
        dtype=_dtype(vllm_config, kv_cache_config),
        layout=kv_cache_config.kv_cache_layout or LAYOUT,
        attention=_attention(vllm_config, kv_cache_config),
        layer_count=len(layout.layer_order(kv_cache_config)),
        # A model of recurrent layers alone has no KV head.
        head_count=1 if replicated else model.get_total_num_kv_heads() or 1,
        head_bytes=layout.head_bytes(kv_cache_config),
        replicated=replicated,
    )


def _opening(
    vllm_config: Any, kv_cache_config: Any, own: Any, role: KVConnectorRole
) -> Opening:
    parallel = vllm_config.parallel_config
    is_worker = role == KVConnectorRole.WORKER
    # First, as it refuses kinds of cache that have none of the rest.
    groups = [
        (group.kv_cache_spec.block_size, layout.group_kind(group))
        for group in layout.groups(kv_cache_config)
    ]
    return Opening(
        config_json=own.config_json_at(settings.local_rank(parallel))
        if is_worker
        else own.config_json,
        model=_model(vllm_config, kv_cache_config, own),
        engine_id=vllm_config.kv_transfer_config.engine_id,
        tp_size=parallel.tensor_parallel_size,
        tp_rank=parallel.rank % parallel.tensor_parallel_size
        if is_worker
        else 0,
        dp_rank=parallel.data_parallel_rank,
        groups=groups,
        device=_device(vllm_config) if is_worker else (0, 0),
    )


def _device(vllm_config: Any) -> tuple[int, int]:
    """Return where this worker computes, as the library knows it."""
    if vllm_config.device_config.device_type == "cpu":
        return 0, 0
    return CONST["KVPULL_DEVICE_CUDA"], torch.cuda.current_device()


def _answer(vllm_config: Any, own: Any) -> dict[str, Any]:
    """Return the usual keys that routers pass from P to D."""
    if own.ticket_only:
        return {}
    return {
        "do_remote_prefill": True,
        "do_remote_decode": False,
        "remote_engine_id": vllm_config.kv_transfer_config.engine_id,
        "remote_block_ids": [],
        "remote_host": None,
        "remote_port": None,
        "tp_size": vllm_config.parallel_config.tensor_parallel_size,
    }


def _check_signatures() -> None:
    """Refuse a vLLM whose calls are others than those written here."""
    signatures.check(
        KVPullConnector,
        KVPullHandshake,
        KVPullMetadata,
        KVPullPromMetrics,
        KVPullStats,
        KVPullWorkerMetadata,
    )
    for side, calls in (
        (SchedulerSide, _SCHEDULER_CALLS),
        (WorkerSide, _WORKER_CALLS),
    ):
        signatures.check_calls(
            KVPullConnector, {n: getattr(side, c) for n, c in calls.items()}
        )


class KVPullConnector(KVConnectorBase_V1, SupportsHMA):
    """Decode from KV that another engine computed and still holds."""

    _cache_hit_source = inside.hit_source()

    def __init__(
        self,
        vllm_config: Any,
        role: KVConnectorRole,
        kv_cache_config: Any,
    ) -> None:
        _check_signatures()
        super().__init__(vllm_config, role, kv_cache_config)
        transfer = vllm_config.kv_transfer_config
        settings.check_engine(vllm_config)
        own = settings.read(
            transfer.kv_connector_extra_config,
            bool(vllm_config.cache_config.enable_prefix_caching),
            any(map(layout.is_state, layout.groups(kv_cache_config))),
        )
        settings.check_device(vllm_config.device_config.device_type, own)
        neighbours = inside.neighbours()
        settings.check_neighbours(neighbours, own.ticket_only)
        self._is_alone = len(neighbours) < 2
        library = Library(own.library)
        opening = _opening(vllm_config, kv_cache_config, own, role)
        self._scheduler: SchedulerSide | None = None
        self._worker: WorkerSide | None = None
        if role == KVConnectorRole.SCHEDULER:
            transferred = kv_cache_config.transfer_group_ids
            tokens = [block_tokens for block_tokens, _ in opening.groups]
            self._scheduler = SchedulerSide(
                SchedulerHalf(library, opening),
                list(zip(transferred, tokens, strict=True)),
                _answer(vllm_config, own),
                layout.windows(kv_cache_config),
                layout.states(opening.groups),
                settings.names_media(vllm_config),
                Core(),
                Manner(
                    transfer.is_kv_producer,
                    inside.fails_lost_loads(transfer),
                    own.config["share_prefix"],
                    vllm_config.model_config.get_vocab_size(),
                    vllm_config.scheduler_config.policy == "priority",
                ),
            )
            watch_output(inside.scheduler(), self._scheduler.step_ends)
            model = opening.model
            logger.info("kvpull: %s", check_version(inside.version()))
            logger.info(
                "kvpull %s: engine %s: %s, configuration %s, weights %s, %s",
                library.version,
                opening.engine_id,
                model.model,
                model.config,
                model.weights or "unknown: compared by name",
                model.engine,
            )
            if transfer.is_kv_consumer and inside.fails_lost_loads(transfer):
                logger.warning(
                    "kvpull: kv_load_failure_policy is fail: a request that "
                    "asks for a pull and gets none ends with an error; with "
                    "recompute it is prefilled here"
                )
        else:
            self._worker = WorkerSide(
                WorkerHalf(library, opening),
                kv_cache_config,
                self._head_first(opening),
                own.memory == "provided",
                vllm_config.device_config.device_type,
            )
            atexit.register(self.shutdown)
        side, calls = (
            (self._scheduler, _SCHEDULER_CALLS)
            if self._scheduler is not None
            else (self._worker, _WORKER_CALLS)
        )
        for name, call in calls.items():
            setattr(self, name, getattr(side, call))

    @staticmethod
    def _head_first(opening: Opening) -> int:
        if opening.model.replicated:
            return 0
        return opening.tp_rank * opening.model.head_count // opening.tp_size

    # ---- worker side ----

    def get_mem_pool_context(self) -> Any:
        """Return the context in which the KV cache is allocated."""
        assert self._worker is not None
        return self._worker.memory_context()

    def register_kv_caches(self, kv_caches: dict[str, torch.Tensor]) -> None:
        """Tell the library where the blocks lie."""
        assert self._worker is not None
        self._worker.register(kv_caches)

    @classmethod
    def supports_sleep_mode(cls, kv_transfer_config: Any) -> bool:
        """Say no: consumers read the KV cache where it lies (vLLM 0.33)."""
        return False

    def unregister_kv_caches(self) -> None:
        """Refuse: vLLM asks before its KV cache goes away (0.33)."""
        raise settings.ConfigError(settings.NO_SLEEP)

    def restore_kv_caches(self) -> None:
        """Refuse, as unregister_kv_caches() does."""
        raise settings.ConfigError(settings.NO_SLEEP)

    def get_handshake_metadata(self) -> KVConnectorHandshakeMetadata | None:
        """Introduce this rank to the scheduler side.

        Not under MultiConnector, which hands the first child's introduction
        to all of them, and some refuse what is not theirs: there the first
        step's answer says it.
        """
        assert self._worker is not None
        if not self._is_alone:
            return None
        return KVPullHandshake(self._worker.half.rank_info())

    def bind_connector_metadata(
        self, connector_metadata: KVConnectorMetadata
    ) -> None:
        """Take the step before the forward pass."""
        super().bind_connector_metadata(connector_metadata)
        assert self._worker is not None
        self._worker.step(connector_metadata)

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        """Start the loads of this step."""
        assert self._worker is not None
        self._worker.start_loads(forward_context)

    def wait_for_layer_load(self, layer_name: str) -> None:
        """Do nothing: loads are of whole requests, between steps."""

    def save_kv_layer(
        self,
        layer_name: str,
        kv_layer: torch.Tensor,
        attn_metadata: Any,
        **kwargs: Any,
    ) -> None:
        """Do nothing: consumers read the blocks where they are."""

    def wait_for_save(self) -> None:
        """Do nothing: see save_kv_layer."""

    def get_transfer_results(
        self, finished_req_ids: set[str]
    ) -> KVConnectorTransferResults:
        """Return what ended since the last call."""
        assert self._worker is not None
        return self._worker.results(finished_req_ids)

    def build_connector_worker_meta(self) -> KVPullWorkerMetadata | None:
        """Return what the scheduler side is told."""
        assert self._worker is not None
        return self._worker.worker_meta()

    # ---- scheduler side ----

    def set_xfer_handshake_metadata(
        self, metadata: dict[int, KVConnectorHandshakeMetadata]
    ) -> None:
        """Take the ranks' introductions; another connector's are not ours."""
        assert self._scheduler is not None
        for item in metadata.values():
            if isinstance(item, KVPullHandshake):
                self._scheduler.rank_info(item.info)

    def on_new_request(self, request: Any) -> None:
        """Take note of a request: heartbeats begin."""
        assert self._scheduler is not None
        self._scheduler.request_new(request)

    def get_loaded_kv_cache_group_ids(self, request: Any) -> tuple[int, ...]:
        """Name the groups that a load fills: vLLM zeroes none of them."""
        return tuple(self._kv_cache_config.transfer_group_ids)

    def get_num_new_matched_tokens(
        self, request: Any, num_computed_tokens: int
    ) -> tuple[int | None, bool]:
        """Answer how many tokens can be loaded."""
        assert self._scheduler is not None
        return self._scheduler.matched_tokens(request, num_computed_tokens)

    def update_state_after_alloc(
        self, request: Any, blocks: Any, num_external_tokens: int
    ) -> None:
        """Load into the blocks, or give the ticket back."""
        assert self._scheduler is not None
        self._scheduler.allocated(request, blocks, num_external_tokens)

    def build_connector_meta(self, scheduler_output: Any) -> KVPullMetadata:
        """Return this step's message to the workers."""
        assert self._scheduler is not None
        return self._scheduler.build_meta(scheduler_output)

    def update_connector_output(self, connector_output: Any) -> None:
        """Take what the workers said."""
        assert self._scheduler is not None
        self._scheduler.output(connector_output)

    def request_finished(
        self, request: Any, block_ids: list[int]
    ) -> tuple[bool, dict[str, Any] | None]:
        """Say who owns the blocks now (one cache group)."""
        return self.request_finished_all_groups(request, (block_ids,))

    def request_finished_all_groups(
        self, request: Any, block_ids: tuple[list[int], ...]
    ) -> tuple[bool, dict[str, Any] | None]:
        """Say who owns the blocks now."""
        assert self._scheduler is not None
        return self._scheduler.request_finished(request, block_ids)

    def has_pending_push_work(self) -> bool:
        """Say whether the idle engine must step once more."""
        assert self._scheduler is not None
        return self._scheduler.has_pending_work()

    def reset_cache(self) -> bool | None:
        """End holds and forget tickets."""
        assert self._scheduler is not None
        return self._scheduler.reset()

    # ---- both ----

    def get_kv_connector_stats(self) -> KVPullStats | None:
        """Return what this side counted since the last call."""
        side = self._scheduler or self._worker
        assert side is not None
        return side.stats()

    def shutdown(self) -> None:
        """Revoke, release, close."""
        if self._scheduler is not None:
            self._scheduler.half.close()
        if self._worker is not None:
            self._worker.close()

    @classmethod
    def get_required_kvcache_layout(cls, vllm_config: Any) -> str | None:
        """Return the layout in which unlike tensor parallel sizes meet."""
        return LAYOUT

    @classmethod
    def build_kv_connector_stats(
        cls, data: dict[str, Any] | None = None
    ) -> KVPullStats:
        """Rebuild stats in the API server's process."""
        return KVPullStats(data=data or {})

    @classmethod
    def build_prom_metrics(
        cls,
        vllm_config: Any,
        metric_types: dict[Any, Any],
        labelnames: list[str],
        per_engine_labelvalues: dict[int, list[object]],
    ) -> KVPullPromMetrics:
        """Register the Prometheus metrics."""
        return KVPullPromMetrics(
            vllm_config, metric_types, labelnames, per_engine_labelvalues
        )
