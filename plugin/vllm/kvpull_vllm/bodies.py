# SPDX-License-Identifier: Apache-2.0
"""What the router asks P and D for."""

from __future__ import annotations

from typing import Any

# A model that no engine serves: it refuses the request, and tells P.
GIVEN_BACK = "kvpull-ticket-given-back"
# In P's kv_transfer_params: the first token, where D may go on from it.
FIRST_TOKEN = "kvpull_first_token"
# In D's: the prompt is that of the ticket, and P's first token behind.
CONTINUES = "kvpull_continues"


def without_params(body: dict[str, Any]) -> dict[str, Any]:
    """Return the body without what a client says of the engines' affairs."""
    kept = {k: v for k, v in body.items() if k != "kv_transfer_params"}
    more = kept.get("vllm_xargs")
    if isinstance(more, dict):
        kept["vllm_xargs"] = {
            k: v for k, v in more.items() if k != "kv_transfer_params"
        }
    return kept


def prefill_body(
    body: dict[str, Any], is_shown: bool = False
) -> dict[str, Any]:
    """Return P's request: the same prompt, one token, blocks to be kept.

    Where P's token is shown to the client, P names it and the prompt's tokens.
    """
    asked = {
        **without_params(body),
        "max_tokens": 1,
        "stream": False,
        "n": 1,
        "kv_transfer_params": {
            "do_remote_decode": True,
            "do_remote_prefill": False,
        },
    }
    if "max_completion_tokens" in body:
        asked["max_completion_tokens"] = 1
    for key in ("stream_options", "min_tokens", "best_of", "use_beam_search"):
        asked.pop(key, None)
    if is_shown:
        asked["return_token_ids"] = True
    return asked


def is_pulled(body: dict[str, Any]) -> bool:
    """Say whether a prefill at P is of use to D.

    vLLM gives the beams of a search no kv_transfer_params, and moves no KV of
    embeddings; their ticket would end by its lease. Log probabilities of the
    prompt make D compute it, but where P's can stand in D's answer.
    """
    echoes = body.get("echo") and body.get("logprobs") is not None
    return not (
        is_batch(body)
        or body.get("use_beam_search")
        or body.get("prompt_embeds") is not None
        or (body.get("prompt_logprobs") is not None and body.get("stream"))
        or echoes
    )


def is_batch(body: dict[str, Any]) -> bool:
    """Say whether one call has several prompts: one ticket is no good then."""
    prompt = body.get("prompt")
    return (
        isinstance(prompt, list)
        and len(prompt) > 1
        and not all(isinstance(item, int) for item in prompt)
    )


def decode_body(
    body: dict[str, Any], params: dict[str, Any] | None
) -> dict[str, Any]:
    """Return D's request: what P answered goes along, and nothing else."""
    asked = without_params(body)
    if params:
        # A ticket alone asks for a pull, too; this key lets vLLM tell the
        # connector of requests that it refuses.
        asked["kv_transfer_params"] = {"do_remote_prefill": True, **params}
    return asked


def refused_body(params: dict[str, Any]) -> dict[str, Any]:
    """Return a request that an engine refuses, which gives the ticket back."""
    asked = {"model": GIVEN_BACK, "prompt": [0], "max_tokens": 1}
    return decode_body(asked, params)
