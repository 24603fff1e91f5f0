# SPDX-License-Identifier: Apache-2.0
"""Weights that change in served engines, by POST /collective_rpc.

Engines whose workers have Updates are asked as a trainer asks them.
"""

from __future__ import annotations

from typing import Any

import model
from engine import Engine, post
from world import HOLD, Delta, World

EXTENSION = ["--worker-extension-cls", "updates.Updates"]
# A call of the workers, the HTTP status of its answer, the seed of the new
# weights and their name. The second round puts the first weights back.
ROUNDS = (("refit", 200, 2, "2"), ("refit_and_raise", 500, 1, "default"))


class Updates:
    """Extends vLLM's worker with updates whose names vLLM does not have."""

    model_runner: Any

    def refit(self, seed: int) -> None:
        """Take the embeddings of a seed: all KV is another one."""
        weights = model.weights(seed)["model.embed_tokens.weight"]
        layer = self.model_runner.get_model().model.embed_tokens
        layer.weight.data.copy_(weights)

    def refit_and_raise(self, seed: int) -> None:
        """Change the weights and fail, as an update that breaks off."""
        self.refit(seed)
        raise RuntimeError("this update fails behind its last byte")


def call_workers(engine: Engine, method: str, *args: Any) -> tuple[int, Any]:
    """Have an engine's workers called; return the status and the answer."""
    body = {"method": method, "args": args}
    return post(f"{engine.url}/collective_rpc", body)


def name_weights(engine: Engine, version: str) -> None:
    """Name an engine's weights."""
    url = f"{engine.url}/update_weight_version"
    status, answer = post(url, {"new_version": version})
    assert status == 200, answer


def updated_weights_pull_nothing_old(world: World) -> None:
    """Calls by HTTP: a harmless one, an update of any name, one that raises."""
    for engine in world.engines:
        status, answer = call_workers(engine, "check_health")
        assert status == 200, answer
    for method, status, seed, version in ROUNDS:
        prompt = world.prompt(100)
        before = world.alone(prompt)
        at_d = Delta(world.d)
        assert world.decode(prompt, world.prefill(prompt)) == before
        at_d.check(worker_pulls_done=1)  # also behind a harmless call
        world.settled()
        ticket = world.prefill(prompt)
        at_d = Delta(world.d)

        # D has new weights, P has not.
        answer = call_workers(world.d, method, seed)
        assert answer[0] == status, answer
        world.d.reset_prefix_cache()
        after = world.alone(prompt)
        assert after != before, "the weights are alike: this proves nothing"
        for params in (ticket, world.prefill(prompt)):
            assert world.decode(prompt, params) == after, method
            world.d.reset_prefix_cache()

        # P has them, too, and its prefix cache is of the old ones.
        at_p = Delta(world.p)
        answer = call_workers(world.p, method, seed)
        assert answer[0] == status, answer
        for is_named in (False, True):
            if is_named:
                for engine in world.engines:
                    name_weights(engine, version)
            found, answer = world.p.complete(
                prompt, max_tokens=1, kv_transfer_params=HOLD
            )
            assert found == 200, answer
            assert not answer.get("kv_transfer_params"), (is_named, answer)
            assert world.decode(prompt, ticket) == after, (method, is_named)
            world.d.reset_prefix_cache()
        at_p.check(worker_holds_taken=0)
        at_d.check(worker_pulls_done=0)
        world.settled()

        world.p.reset_prefix_cache()
        at_d = Delta(world.d)
        assert world.decode(prompt, world.prefill(prompt)) == after
        at_d.check(worker_pulls_done=1)
        world.d.reset_prefix_cache()
        world.settled()
    world.say(f"{len(ROUNDS)} updates")
