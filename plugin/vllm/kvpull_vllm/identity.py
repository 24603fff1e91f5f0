# SPDX-License-Identifier: Apache-2.0
"""The identity of a model: it must be equal at both ends, as the layout must.

A name says little: the same one may stand for other weights, or for the same
ones under another rope_theta. Compared are a digest of the configuration as it
runs, a fingerprint of the weights' files and vLLM's version.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any, NamedTuple

from kvpull_vllm import configuration, files, settings
from kvpull_vllm.settings import Settings


class Identity(NamedTuple):
    """Texts of the model record; see struct kvpull_model."""

    model: str
    revision: str
    weights: str
    config: str
    engine: str


def _digest(*texts: str) -> str:
    digest = hashlib.blake2b(digest_size=8)
    for text in texts:
        digest.update(f"{len(text)}:{text}".encode())
    return digest.hexdigest()


def _weights(vllm_config: Any) -> str | None:
    """Return what names all weights, None if nothing names the model's.

    Layers that draft have KV of their own: their method and their weights are
    named, too, by their files where these are not the model's.
    """
    model, load = vllm_config.model_config, vllm_config.load_config
    weights = files.weights_text(model, load)
    drafting = settings.drafting(vllm_config)
    if weights is None or drafting is None:
        return weights
    draft, own = drafting.draft_model_config, drafting.method
    if draft.model != model.model:
        of_draft = drafting.draft_load_config or load
        own += f" {files.weights_text(draft, of_draft) or draft.model}"
    return f"{weights}, drafts by {own}"


def identity(
    vllm_config: Any, kv_cache_config: Any, own: Settings, version: str
) -> Identity:
    """Return what is compared; what the operator names is taken as it is."""
    model = vllm_config.model_config
    names = getattr(model.hf_config, "architectures", None) or ["?"]
    weights = own.weights or _weights(vllm_config)
    # Without files to look at a name is all that there is.
    name = names[0] if weights else model.model
    revision = "" if weights else getattr(model, "revision", None) or ""
    digest = _digest(configuration.text(vllm_config, kv_cache_config))
    return Identity(
        model=own.model or name,
        revision=own.revision or revision,
        weights=weights or "",
        config=f"{names[0]} {digest}",
        # A local part names a build of the same code, as +cpu does.
        engine=own.engine or f"vllm {re.sub(r'[+].*', '', version)}",
    )
