# SPDX-License-Identifier: Apache-2.0
"""KVPullConnector of a consumer that spoils what it has pulled: a control.

A request chooses its fault by "spoiled" in its kv_transfer_params. The worker
commits the fault between the end of the pull and the first step that uses the
blocks. A request without a fault is served as KVPullConnector serves it.

"attention zeroed", "states zeroed": the memory of what was pulled is zeroed.
"states kept": the states are copied aside, and left as they are.
"states of kept": the states are written over by those that were kept last.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from kvpull_vllm import connector, layout, requests
from kvpull_vllm.scheduler import KVPullMetadata

__all__ = ["KVPullConnector"]

# The ids of the blocks that were pulled, a list for each transferred group.
Blocks = list[list[int]]


@dataclass
class SpoiledMetadata(KVPullMetadata):
    """A step's message, and the faults of the requests whose pulls begin."""

    faults: dict[str, tuple[str, Blocks]] = field(default_factory=dict)


class KVPullConnector(connector.KVPullConnector):
    """Wraps the calls that the base class takes from its sides."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._faults: dict[str, tuple[str, Blocks]] = {}
        self._tensors: dict[str, torch.Tensor] = {}
        self._kept: list[torch.Tensor] = []
        if self._scheduler is not None:
            self._right_alloc = self.update_state_after_alloc
            self._right_meta = self.build_connector_meta
            self.update_state_after_alloc = self._allocated
            self.build_connector_meta = self._build_meta
        else:
            self._right_results = self.get_transfer_results
            self.get_transfer_results = self._results

    # ---- scheduler side ----

    def _allocated(self, request: Any, blocks: Any, tokens: int) -> None:
        """Note which blocks a request with a fault pulls into."""
        self._right_alloc(request, blocks, tokens)
        fault = (request.kv_transfer_params or {}).get("spoiled")
        if not fault or not tokens:
            return
        local = self._scheduler._entries[request.request_id].local_tokens
        assert not local, f"{local} tokens are not pulled, but cached"
        pulled = requests.blocks_of(
            blocks.get_block_ids(), self._scheduler._groups, 0, tokens
        )
        self._faults[request.request_id] = fault, [ids for _, ids in pulled]

    def _build_meta(self, scheduler_output: Any) -> KVPullMetadata:
        """Add the faults to a copy: the base class shares one empty message."""
        meta = self._right_meta(scheduler_output)
        if not self._faults:
            return meta
        faults, self._faults = self._faults, {}
        return SpoiledMetadata(**vars(meta), faults=faults)

    # ---- worker side ----

    def register_kv_caches(self, kv_caches: dict[str, torch.Tensor]) -> None:
        """Keep the tensors, in which the faults are committed."""
        super().register_kv_caches(kv_caches)
        self._tensors = kv_caches

    def bind_connector_metadata(self, connector_metadata: Any) -> None:
        """Take the faults of a step."""
        super().bind_connector_metadata(connector_metadata)
        self._faults |= getattr(connector_metadata, "faults", {})

    def _results(self, finished_req_ids: set[str]) -> Any:
        """Commit the faults of the pulls that have ended."""
        results = self._right_results(finished_req_ids)
        for name in results.finished_recving - results.failed_recving:
            if name in self._faults:
                self._commit(*self._faults.pop(name))
        return results

    def _commit(self, fault: str, blocks: Blocks) -> None:
        views = list(self._views(blocks, fault != "attention zeroed"))
        assert views, f"{fault}: this model has none"
        if fault in ("attention zeroed", "states zeroed"):
            for view in views:
                view.zero_()
        elif fault == "states kept":
            self._kept = [view.clone() for view in views]
        elif fault == "states of kept":
            for view, kept in zip(views, self._kept, strict=True):
                view.copy_(kept)
        else:
            raise ValueError(f"{fault}: no such fault")

    def _views(self, blocks: Blocks, states: bool) -> Iterator[torch.Tensor]:
        """Return the memory of the blocks in each layer, as [B, H, N, C].

        A kernel's block may be a part of a block of the cache manager. A state
        has one slot, behind the slots that vLLM has let go.
        """
        config = self._kv_cache_config
        for group, ids in zip(layout.groups(config), blocks, strict=True):
            if layout.is_state(group) != states:
                continue
            for name in group.layer_names:
                tensor = self._tensors[name]
                ratio = tensor.shape[0] // config.num_blocks
                for block in ids[-1:] if states else ids:
                    yield tensor[block * ratio : (block + 1) * ratio]
