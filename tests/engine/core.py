# SPDX-License-Identifier: Apache-2.0
"""vLLM's own scheduler, KV cache and connector of one engine, without a model.

What a model would compute of a token is a number that names the token and all
before it. It is written where the scheduler says, in each layer, and each of a
step's tokens reads it of all tokens that it looks at: a block that is missing,
another request's, or of other weights is found at once. A recurrent layer's slot
has the name of the last token: a state of another count is found likewise. With drafts, a step
computes some more tokens that are drawn: those behind the first wrong one were
written for nothing, and are never to be seen. A layer that drafts writes a
number that names the next token, too, as the layers of EAGLE and MTP do.
"""

from __future__ import annotations

import atexit
import functools
import math
import random
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import drafted
import model
import numpy as np
import torch
from doubles import EngineDouble
from engine import kvpull_config
from kvpull_vllm.stats import KVPullStats
from vllm.config import KVTransferConfig, set_current_vllm_config
from vllm.distributed.kv_transfer.kv_connector.factory import (
    KVConnectorFactory,
)
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorRole
from vllm.engine.arg_utils import EngineArgs
from vllm.lora.request import LoRARequest
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core import kv_cache_utils
from vllm.v1.core.kv_cache_utils import (
    generate_scheduler_kv_cache_config,
    get_request_block_hasher,
    init_none_hash,
)
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import (
    ChunkedLocalAttentionSpec,
    FullAttentionSpec,
    MambaSpec,
    SlidingWindowSpec,
)
from vllm.v1.kv_cache_layout import KVCacheLayout
from vllm.v1.outputs import (
    DraftTokenIds,
    KVConnectorOutput,
    LogprobsLists,
    ModelRunnerOutput,
)
from vllm.v1.request import Request, RequestStatus
from vllm.v1.structured_output import StructuredOutputManager
from vllm.v1.worker.utils import allocate_kv_cache

try:  # its place, and its arguments, from vLLM 0.33 on
    from vllm.v1.core import kv_cache_planning
except ImportError:
    kv_cache_planning = None

BLOCK = 32
LONGEST = 2048
WINDOW = 2 * BLOCK
HOLD = {"do_remote_decode": True}
SAMPLED = 7  # what every token is that is made
DRAFTER = "model.layers.2.attn"  # the layer that drafts


def with_states(
    block: int, mode: str, attention: bool = True
) -> dict[str, Any]:
    """Return a layer with full attention, and two that keep a state.

    In mode none a request of any length has one slot.
    """
    state = MambaSpec(
        block_size=block if mode == "align" else LONGEST,
        # As many bytes as the other layer's block has.
        shapes=((block * 2 * 64 * 2,),),
        dtypes=(torch.float32,),
        mamba_cache_mode=mode,
    )
    made = _specs(0, 0, False, block, torch.float32) if attention else {}
    return made | {f"model.layers.{n}.mixer": state for n in (1, 2)}


def _specs(
    window: int, chunk: int, drafts: bool, block: int, numbers: torch.dtype
) -> dict[str, Any]:
    """Return a layer that sees all, and those that are asked for.

    One sees a window or a chunk, one drafts.
    """
    same = {
        "block_size": block,
        "num_kv_heads": 2,
        "head_size": 64,
        "dtype": numbers,
    }
    made: dict[str, Any] = {"model.layers.0.attn": FullAttentionSpec(**same)}
    if window:
        made["model.layers.1.attn"] = SlidingWindowSpec(
            sliding_window=window, **same
        )
    if chunk:
        made["model.layers.1.attn"] = ChunkedLocalAttentionSpec(
            attention_chunk_size=chunk, **same
        )
    if drafts:
        made[DRAFTER] = FullAttentionSpec(**same)
    return made


def _planned(config: Any, specs: dict[str, Any], size: int) -> list[Any]:
    """Return the caches of one worker, as vLLM's core plans them."""
    if kv_cache_planning is None:
        return kv_cache_utils.get_kv_cache_configs(config, [specs], [size])
    groups = kv_cache_planning.get_global_kv_cache_groups(config, [specs])
    made = kv_cache_planning.get_kv_cache_configs(
        config, [specs], [size], groups
    )
    for caches in made:
        caches.kv_cache_layout = config.cache_config.kv_cache_layout
    return made


def ngrams(drafts: int) -> dict[str, Any] | None:
    """Return the configuration of so many drafts of a step."""
    if not drafts:
        return None
    return {
        "method": "ngram",
        "num_speculative_tokens": drafts,
        "prompt_lookup_max": 2,
    }


def eagle(folder: Path, drafts: int, **more: Any) -> dict[str, Any]:
    """Return the configuration of so many drafts of a step, by a layer."""
    return {
        "method": "eagle",
        "model": str(folder / "drafter"),
        "num_speculative_tokens": drafts,
        **more,
    }


def first_seen(spec: Any, token: int) -> int:
    """Return the first token that a token looks at."""
    if isinstance(spec, SlidingWindowSpec):
        return max(0, token - spec.sliding_window + 1)
    if isinstance(spec, ChunkedLocalAttentionSpec):
        return token - token % spec.attention_chunk_size
    return 0


class Core(EngineDouble):
    """An engine: a scheduler and one worker's side of the connector."""

    def __init__(
        self,
        folder: Path,
        role: str,
        window: int = 0,
        chunk: int = 0,
        block: int = BLOCK,
        extra: dict[str, Any] | None = None,
        ahead: int = 0,
        cache_bytes: int = 16 << 20,
        cache_dtype: str = "auto",
        layers: dict[str, Any] | None = None,
        adapters: bool = False,
        caches: bool = True,
        policy: str = "recompute",
        drafts: int = 0,
        drafter: dict[str, Any] | None = None,
        ranks: bool = False,
    ) -> None:
        super().__init__(adapters=adapters)
        self._block = block
        self._drafts = drafts  # of a step, for each request that decodes
        self._draw = random.Random(1)
        self.kept = self.refused = 0  # drafts
        self.refused_last: dict[str, int] = {}  # of a request's last step
        self.sampled = SAMPLED
        self.logprob: float | None = None  # of each token that is made
        # So many steps are computed before the scheduler hears of the first:
        # vLLM's asynchronous scheduling, which its CPU platform turns off.
        self._ahead = ahead
        self._unheard: list[tuple[Any, ModelRunnerOutput]] = []
        transfer = kvpull_config(
            folder, role, {"lease_ms": 20000, **(extra or {})}
        )
        transfer["kv_load_failure_policy"] = policy
        made = EngineArgs(
            model=str(folder / "model"),
            dtype="float32",
            kv_cache_dtype=cache_dtype,
            enforce_eager=True,
            max_model_len=LONGEST,
            block_size=block,
            enable_prefix_caching=caches,
            max_num_seqs=8,
            scheduling_policy="priority" if ranks else "fcfs",
            kv_transfer_config=KVTransferConfig(engine_id=role, **transfer),
            speculative_config=ngrams(drafts)
            if drafter is None
            else eagle(folder, drafts, **drafter),
        ).create_engine_config()
        made.cache_config.num_gpu_blocks = 0
        made.cache_config.kv_cache_layout = "LBHNC"
        for spec in (layers or {}).values():
            if isinstance(spec, MambaSpec):
                made.cache_config.mamba_cache_mode = spec.mamba_cache_mode
        made.scheduler_config.async_scheduling = bool(ahead)
        numbers = torch.float32 if cache_dtype == "auto" else torch.uint8
        # Numbers of this cache tell this many names of tokens apart.
        self._names = 1 << 23 if cache_dtype == "auto" else 251
        with set_current_vllm_config(made):
            caches = _planned(
                made,
                layers
                or _specs(window, chunk, drafter is not None, block, numbers),
                cache_bytes,
            )
            self.caches = generate_scheduler_kv_cache_config(caches)
            made.cache_config.num_gpu_blocks = self.caches.num_blocks
            init_none_hash(sha256)
            self._hasher = get_request_block_hasher(block, sha256)
            self.scheduler = (AsyncScheduler if ahead else Scheduler)(
                vllm_config=made,
                kv_cache_config=self.caches,
                structured_output_manager=StructuredOutputManager(made),
                block_size=math.lcm(
                    *(
                        group.kv_cache_spec.block_size
                        for group in self.caches.kv_cache_groups
                    )
                ),
                hash_block_size=block,
            )
            self.worker = KVConnectorFactory.create_connector(
                made, KVConnectorRole.WORKER, caches[0]
            )
            with self.worker.get_mem_pool_context():
                self.kv = allocate_kv_cache(
                    caches[0], torch.device("cpu"), KVCacheLayout.LBHNC
                )
        self.worker.register_kv_caches(self.kv)
        self.connector = self.scheduler.connector
        self.connector.set_xfer_handshake_metadata(
            {0: self.worker.get_handshake_metadata()}
        )
        self.answers: dict[str, Any] = {}
        self.computed: dict[str, int] = {}
        # Weights that truly compute, whatever their name; and requests that ran
        # while they changed, whose KV is of both.
        self.weights = "a"
        self.mixed: set[str] = set()
        self.is_lax = False  # nobody looks at what it reads

    def ask(
        self,
        name: str,
        prompt: list[int],
        params: Any,
        count: int = 1,
        embeddings: torch.Tensor | None = None,
        trace_headers: dict[str, str] | None = None,
        lora: LoRARequest | None = None,
        priority: int = 0,
        **sampling: Any,
    ) -> None:
        """Add a request for so many tokens.

        Embeddings stand in the place of all token ids but the first ten.
        """
        asked = SamplingParams(
            max_tokens=count,
            ignore_eos=True,
            extra_args={"kv_transfer_params": params},
            **sampling,
        )
        of_embeddings: dict[str, Any] = {}
        if embeddings is not None:
            of_embeddings = {
                "prompt_embeds": embeddings,
                "prompt_is_token_ids": [i < 10 for i in range(len(prompt))],
            }
        self.scheduler.add_request(
            Request(
                request_id=name,
                prompt_token_ids=list(prompt),
                sampling_params=asked,
                pooling_params=None,
                block_hasher=self._hasher,
                trace_headers=trace_headers,
                lora_request=lora,
                priority=priority,
                **of_embeddings,
            )
        )

    def learn(self, weights: str, how: Any = "update_weights") -> None:
        """Get other weights by a call of the workers."""
        self.in_call = lambda: setattr(self, "weights", weights)
        self.mixed.update(self._begun())
        self.rpc(how)
        self.in_call = lambda: None

    def _begun(self) -> list[str]:
        """Return requests that have KV: not those that wait for a pull."""
        waits = RequestStatus.WAITING_FOR_REMOTE_KVS
        heard = self.scheduler.finished_recving_kv_req_ids
        return [
            name
            for name, request in self.scheduler.requests.items()
            if request.num_computed_tokens
            and (request.status != waits or name in heard)
        ]

    def load(self, adapter: LoRARequest) -> None:
        """Load an adapter if need be, as POST /v1/load_lora_adapter, or a step."""
        worker, number = self.workers[0], adapter.lora_int_id
        before = worker.content.get(number)
        worker.step(adapter)
        if worker.content[number] != before is not None:
            self.mixed.update(
                name
                for name in self._begun()
                if (own := self.scheduler.requests[name].lora_request)
                and own.lora_int_id == number
            )

    def leave(self, name: str) -> None:
        """End a request as a client that has gone."""
        self.scheduler.finish_requests(name, RequestStatus.FINISHED_ABORTED)

    def _compute(self, name: str, count: int, drafts: list[int]) -> None:
        request = self.scheduler.requests[name]
        end = request.num_computed_tokens
        self.computed[name] = self.computed.get(name, 0) + count - len(drafts)
        tokens, names = list(request.all_token_ids), []
        sampled = end - len(drafts) - len(tokens)  # and not heard of yet
        tokens += [self.sampled] * sampled + drafts
        lora = request.lora_request
        adapter = self.workers[0].content[lora.lora_int_id] if lora else 0
        first = zlib.crc32(f"{self.weights} {adapter}".encode())
        for token in tokens[:end]:
            before = names[-1] if names else first
            named = token.to_bytes(4, "little", signed=True)
            names.append(zlib.crc32(named, before))
        tables = self.scheduler.kv_cache_manager.get_block_ids(name)
        groups = self.caches.kv_cache_groups
        for table, group in zip(tables, groups, strict=True):
            if isinstance(group.kv_cache_spec, MambaSpec):
                for layer in group.layer_names:
                    size = group.kv_cache_spec.block_size
                    self._advance(layer, table, size, names, end - count)
                continue
            for layer in group.layer_names:
                if layer == DRAFTER:
                    step = range(end - count, end)
                    self._draft_layer(name, table, tokens, names, step, drafts)
                    continue
                for token in range(end - count, end):
                    block = table[token // self._block]
                    self.kv[layer][block, :, token % self._block] = (
                        names[token] % self._names
                    )
                first = first_seen(group.kv_cache_spec, end - count)
                is_lax = self.is_lax or name in self.mixed
                for token in range(first, 0 if is_lax else end):
                    block = table[token // self._block]
                    found = self.kv[layer][block, 0, token % self._block, 0]
                    assert block and int(found) == names[token] % self._names, (
                        f"{name} of {request.num_prompt_tokens} tokens: token "
                        f"{end - count} of {layer} sees another token {token} "
                        f"in block {block} of {table}"
                    )

    def _slot(self, layer: str, block: int) -> torch.Tensor:
        assert block, f"no slot of {layer}"
        return self.kv[layer][block].view(torch.int32)

    def _advance(
        self,
        layer: str,
        table: list[int],
        size: int,
        names: list[int],
        start: int,
    ) -> None:
        """Go on from the state after so many tokens, as vLLM's workers do.

        It lies in the slot of its last token's block, and goes on in that of the
        step's last one.
        """
        end = len(names)
        if start:
            block = table[(start - 1) // size]
            found = self._slot(layer, block).unique().tolist()
            wanted = names[start - 1] % self._names
            assert found == [wanted], (
                f"the state of {layer} after {start} tokens is another one: "
                f"{found}, {wanted} in block {block} of {table}"
            )
        block = table[(end - 1) // size]
        self._slot(layer, block).fill_(names[end - 1] % self._names)

    def _draft_layer(
        self,
        name: str,
        table: list[int],
        tokens: list[int],
        names: list[int],
        step: range,
        drafts: list[int],
    ) -> None:
        """Do as a layer that drafts with a step's tokens.

        It takes those that were no wrong drafts, each with the next token, and
        writes on behind them for its own guesses.
        """
        end = step.stop - len(drafts) + self._right(drafts)
        known = self.scheduler.requests[name].all_token_ids
        seen = tokens[:end] + [known[end] if end < len(known) else self.sampled]
        layer = self.kv[DRAFTER]
        made = [
            zlib.crc32(after.to_bytes(4, "little", signed=True), named)
            % self._names
            for named, after in zip(names[:end], seen[1:], strict=True)
        ]
        for token in range(step.start, end):
            block = table[token // self._block]
            layer[block, :, token % self._block] = made[token]
        for token in range(end, end + self._drafts - 1):
            if token // self._block < len(table):
                layer[table[token // self._block], :, token % self._block] = -1
        is_lax = self.is_lax or name in self.mixed
        for token in range(end if is_lax else 0, end):
            block = table[token // self._block]
            found = int(layer[block, 0, token % self._block, 0])
            assert block and found == made[token], (
                f"{name}: a draft behind token {end - 1} sees another token "
                f"{token} in block {block} of {table}"
            )

    def step(self) -> None:
        """Schedule, compute, report."""
        if self.scheduler.has_requests():
            said = self.scheduler.schedule()
            self._unheard.append((said, self._execute(said)))
            if len(self._unheard) <= self._ahead:
                return
        elif not self._unheard:
            time.sleep(0.001)
            return
        outputs = self.scheduler.update_from_output(*self._unheard.pop(0))
        for output in outputs.values():
            for answer in output.outputs:
                if answer.finish_reason is not None:
                    self.answers[answer.request_id] = answer
        if self._drafts:
            self._draft()

    def _execute(self, said: Any) -> ModelRunnerOutput:
        """Do as a worker with a step."""
        self.worker.bind_connector_metadata(said.kv_connector_metadata)
        for name, count in said.num_scheduled_tokens.items():
            if adapter := self.scheduler.requests[name].lora_request:
                self.load(adapter)
            drafts = said.scheduled_spec_decode_tokens.get(name, [])
            self._compute(name, count, drafts)
        self.worker.start_load_kv(None)
        moved = self.worker.get_transfer_results(said.finished_req_ids)
        counted = self.worker.get_kv_connector_stats()
        meta = self.worker.build_connector_worker_meta()
        self.worker.clear_connector_metadata()
        names = list(said.num_scheduled_tokens)
        requests = [self.scheduler.requests[name] for name in names]
        whole = [r.num_computed_tokens >= r.num_tokens for r in requests]
        made = ModelRunnerOutput(
            req_ids=names,
            req_id_to_index={name: i for i, name in enumerate(names)},
            sampled_token_ids=[
                self._sampled(said, name) if last else []
                for name, last in zip(names, whole, strict=True)
            ],
            logprobs=self._logprobs(len(names)),
            prompt_logprobs_dict={},
            pooler_output=[],
        )
        made.kv_connector_output = KVConnectorOutput(
            finished_sending=moved.finished_sending,
            finished_recving=moved.finished_recving,
            failed_recving=moved.failed_recving,
            kv_connector_stats=counted,
            kv_connector_worker_meta=meta,
        )
        return made

    def _logprobs(self, count: int) -> LogprobsLists | None:
        """Return the log probabilities of a step's tokens, None if untold."""
        if self.logprob is None:
            return None
        return LogprobsLists(
            np.full((count, 1), self.sampled),
            np.full((count, 1), self.logprob),
            np.zeros(count),
        )

    def _sampled(self, said: Any, name: str) -> list[int]:
        """Return a request's new tokens: drafts up to a wrong one, and one."""
        drafts = said.scheduled_spec_decode_tokens.get(name, [])
        kept = self._right(drafts)
        self.kept += kept
        self.refused += len(drafts) - kept
        self.refused_last[name] = len(drafts) - kept
        return [self.sampled] * (kept + 1)

    def _right(self, drafts: list[int]) -> int:
        """Return how many drafts come before the first wrong one."""
        kept = 0
        while kept < len(drafts) and drafts[kept] == self.sampled:
            kept += 1
        return kept

    def _draft(self) -> None:
        """Draw what may come next of each request that decodes."""
        names = [r.request_id for r in self.scheduler.running]
        made = [
            self._draw.choices(
                (self.sampled, self.sampled + 1), (4, 1), k=self._drafts
            )
            for _ in names
        ]
        self.scheduler.update_draft_token_ids(DraftTokenIds(names, made))

    def used(self) -> int:
        """Return the blocks that requests have."""
        pool = self.scheduler.kv_cache_manager.block_pool
        return pool.num_gpu_blocks - pool.get_num_free_blocks() - 1

    def count(self, name: str) -> int:
        """Return a half's counter, by its name in the metrics."""
        kind, name = name.split("_", 1)
        owner = self.worker if kind == "worker" else self.connector
        half = getattr(owner, f"_{kind}").half
        half._seen = ()
        names = [counter.name for counter in half.counters]
        return half.counts()[names.index(name)]

    def close(self) -> None:
        """Close both sides."""
        self.worker.shutdown()
        self.scheduler.shutdown()


def run(cores: list[Core], said: Callable[[], bool]) -> None:
    """Step all until said() holds.

    On a busy machine 20 s may be a few hundred steps.
    """
    end, steps = time.monotonic() + 20, 0
    while not said():
        steps += 1
        assert time.monotonic() < end or steps < 10_000, "not within 20 s"
        for core in cores:
            core.step()


@functools.cache
def home() -> Path:
    """Return a folder with the models; it goes when the process ends."""
    made = tempfile.TemporaryDirectory()
    atexit.register(made.cleanup)
    folder = Path(made.name)
    model.make(folder / "model", 1)
    for name, seed in (("drafter", 2), ("other-drafter", 3)):
        drafted.make_eagle(folder / name, seed)
    return folder


@contextmanager
def place() -> Iterator[Path]:
    """Make the folder of some engines, with the models in it."""
    with tempfile.TemporaryDirectory(dir=home()) as made:
        for name in ("model", "drafter", "other-drafter"):
            (Path(made) / name).symlink_to(home() / name)
        yield Path(made)


@contextmanager
def pair(
    at_d: dict[str, Any] | None = None, is_judged: bool = True, **both: Any
) -> Iterator[tuple[Core, Core]]:
    """P and D with the same options, but for those that D has of its own.

    At the end nothing is held and nothing is in use. A control that leaves an
    engine broken is not judged.
    """
    with place() as folder:
        p = Core(folder, "kv_producer", **both)
        d = Core(folder, "kv_consumer", **both | (at_d or {}))
        yield p, d
        if is_judged:
            run([p, d], lambda: p.used() == 0 and d.used() == 0)
            assert p.count("worker_holds_expired") == 0
        p.close()
        d.close()


def prompt_of(length: int, seed: int = 0) -> list[int]:
    """Return a prompt of a length that no other one begins with."""
    return [3 + (length * 31 + seed * 7 + i * 5) % 500 for i in range(length)]


def overheard(core: Core) -> KVPullStats:
    """Return what both sides of an engine tell from now on, added up."""
    told = KVPullStats()

    def listen(owner: Any) -> None:
        call = owner.get_kv_connector_stats

        def heard() -> Any:
            said = call()
            if said is not None:
                told.aggregate(said)
            return said

        owner.get_kv_connector_stats = heard

    listen(core.connector)
    listen(core.worker)
    return told


def prefilled(
    p: Core, name: str, prompt: list[int], count: int = 1, **sampling: Any
) -> dict[str, Any]:
    """Return what P answers to a request for so many tokens."""
    p.ask(name, prompt, HOLD, count, **sampling)
    run([p], lambda: name in p.answers)
    return p.answers[name].kv_transfer_params
