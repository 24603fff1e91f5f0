# SPDX-License-Identifier: Apache-2.0
"""The engine core, as far as it is watched: weights, pauses, prefix cache.

vLLM tells no connector of new weights, nor of a cleared prefix cache. Its engine
core passes every call on to the workers, and it keeps the version that
/finish_weight_update and /update_weight_version name.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from kvpull_vllm import inside, signatures
from kvpull_vllm.adapters import Adapters
from kvpull_vllm.logs import logger

# Calls of workers that leave weights as they are. Every other name counts as an
# update: those of vLLM that do update, and all that workers are extended by.
HARMLESS = frozenset(
    {
        "annotate_profile",
        "check_health",
        "compute_weight_checksums",
        "determine_available_memory",
        "execute_dummy_batch",
        "get_cache_block_size_bytes",
        "get_compilation_match_table",
        "get_encoder_timing_stats",
        "get_kv_cache_spec",
        "get_kv_connector_handshake_metadata",
        "get_model_inspection",
        "get_supported_kv_cache_layouts",
        "get_supported_tasks",
        "init_weight_transfer_engine",
        "list_loras",
        "pin_lora",
        "profile",
        "release_late_interaction_query_cache",
        "reset_encoder_cache",
        "reset_mm_cache",
        "save_sharded_state",
        "save_tensorized_model",
        "shutdown_weight_transfer_engine",
        "supports_draft_weight_updates",
        "synchronize_device",
        "update_max_model_len",
    }
)


class Core:
    """The engine core, in whose constructor a connector is made.

    Listeners are told of a change of weights before its first byte, and of a new
    name of the weights. Weights that were changed and not named since are like
    none anywhere.
    """

    def __init__(self) -> None:
        self._core: Any = inside.engine_core()
        if self._core is None:
            inside.lacks(
                "EngineCore with a _weight_version, where this is made",
                "new weights and adapters in a running engine are not seen; "
                "restart it instead",
            )
        self._unnamed = False
        self._unpaused: Any = None
        self.listeners: list[Callable[[], None]] = []
        self.adapters = self._adapters_of()
        self._watch("collective_rpc", before=self._asked)
        self._watch("set_weight_version", after=self._named)
        if self.adapters is not None:
            self._watch("remove_lora", after=self.adapters.forget)

    def _adapters_of(self) -> Adapters | None:
        """Return what workers have loaded; of one core always the same."""
        executor = getattr(self._core, "model_executor", None)
        config = getattr(self._core, "vllm_config", None)
        if executor is None or getattr(config, "lora_config", None) is None:
            return None
        if not hasattr(self._core, "_kvpull_adapters"):
            self._core._kvpull_adapters = Adapters(executor)
        return self._core._kvpull_adapters

    def adapter(self, request: Any) -> tuple[int, str]:
        """Return a request's adapter: its number, 0 for none, and content.

        The content is "" where it is not known.
        """
        lora = getattr(request, "lora_request", None)
        if lora is None:
            return 0, ""
        number = lora.lora_int_id
        return number, self.adapters.name(number) if self.adapters else ""

    def _watch(
        self,
        name: str,
        before: Callable[..., None] | None = None,
        after: Callable[[], None] | None = None,
    ) -> None:
        call = getattr(self._core, name, None)
        if call is None:
            if self._core is not None:
                logger.warning(
                    "kvpull: this vLLM's engine core has no %s: new weights in "
                    "a running engine are not seen; restart engines instead",
                    name,
                )
            return

        # vLLM compares the arguments of a call with its method's signature.
        @functools.wraps(call)
        def watched(*args: Any, **kwargs: Any) -> Any:
            if before is not None:
                before(*args, **kwargs)
            answer = call(*args, **kwargs)
            if after is not None:
                after()
            return answer

        setattr(self._core, name, watched)

    def _asked(self, method: Any = None, *_: Any, **__: Any) -> None:
        """Tell of an update before it begins: a call that raises counts, too.

        What is no name is a function, which may do anything.
        """
        if isinstance(method, str) and method in HARMLESS:
            return
        if not self._unnamed:
            logger.warning(
                "kvpull: the call %.80s of workers may change the weights: no "
                "KV is shared until /update_weight_version names them",
                method if isinstance(method, str) else "of a function",
            )
        self._unnamed = True
        self._tell()

    def _named(self) -> None:
        self._unnamed = False
        self._tell()
        logger.info("kvpull: the weights are version %s now", self.version)

    def _tell(self) -> None:
        if self.adapters is not None:
            self.adapters.forget()
        for listener in self.listeners:
            listener()

    @property
    def are_unnamed(self) -> bool:
        """Whether the weights were changed and not named since."""
        return self._unnamed

    @property
    def version(self) -> str:
        """The name of the weights, where it is not are_unnamed."""
        return str(getattr(self._core, "_weight_version", ""))

    @property
    def name(self) -> str | None:
        """The name of the weights, None where they have none."""
        return None if self._unnamed else self.version

    @property
    def scheduler(self) -> Any:
        """vLLM's scheduler; None while it is being made."""
        return getattr(self._core, "scheduler", None)

    def request(self, name: str) -> Any:
        """Return one of the scheduler's requests, None if it has no such."""
        return getattr(self.scheduler, "requests", {}).get(name)

    def _block_pool(self) -> Any:
        manager = getattr(self.scheduler, "kv_cache_manager", None)
        return getattr(manager, "block_pool", None)

    def cached(self) -> Any:
        """Return an object that is another one when the cache was cleared.

        vLLM clears its prefix cache only when no request has a block, and by
        a new table.
        """
        pool = self._block_pool()
        cached = getattr(pool, "cached_block_hash_to_block", None)
        if cached is None and self.scheduler is not None:
            inside.lacks(
                "BlockPool.cached_block_hash_to_block",
                "after an update of weights nothing is held that hits the "
                "prefix cache",
            )
        return cached

    def is_cache_empty(self) -> bool:
        """Say whether nothing is cached and no request has a block."""
        pool, cached = self._block_pool(), self.cached()
        if cached is None:
            return False
        # The null block is in use always.
        is_unused = pool.num_gpu_blocks - pool.get_num_free_blocks() == 1
        return is_unused and not len(cached)

    def waits_for_holds(self) -> bool:
        """Say whether a pause waits for nothing but blocks that are held."""
        scheduler = self.scheduler
        paused = getattr(scheduler, "pause_state", None)
        if paused is None and scheduler is not None:
            inside.lacks(
                "Scheduler.pause_state", "a pause waits for leases of holds"
            )
        if paused is self._unpaused:  # an enumeration's name takes long
            return False
        if getattr(paused, "name", "UNPAUSED") == "UNPAUSED":
            self._unpaused = paused
            return False
        return not scheduler.has_unfinished_requests()


def watch_output(scheduler: Any, tell: Callable[[Any], None]) -> None:
    """Have it told of what workers said before vLLM's scheduler acts on it.

    vLLM asks the connector after it has taken loads for done.
    """
    call = scheduler.update_from_output

    def watched(scheduler_output: Any, model_runner_output: Any) -> Any:
        tell(model_runner_output)
        return call(scheduler_output, model_runner_output)

    signatures.check_call(watched, type(scheduler), call)
    scheduler.update_from_output = functools.wraps(call)(watched)
