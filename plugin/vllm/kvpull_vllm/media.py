# SPDX-License-Identifier: Apache-2.0
"""Names of pictures, sounds and videos that are alike at P and at D.

vLLM hashes a picture together with the text of --model. P and D whose models lie
in folders of other names would have two names for one picture.
"""

from __future__ import annotations

import functools
import hashlib
import json
from pathlib import Path
from typing import Any

from kvpull_vllm import configuration, inside
from kvpull_vllm.logs import logger


@functools.cache
def _of_folder(folder: Path) -> str:
    """Return a name of what makes numbers of media, wherever it lies."""
    paths = [folder / "config.json", *folder.glob(configuration.PROCESSORS)]
    content = configuration.content([p for p in paths if p.is_file()])
    text = json.dumps(content).encode()
    return f"kvpull {hashlib.blake2b(text, digest_size=16).hexdigest()}"


def model_id(model: str) -> str:
    """Return what stands for a model in the names of its media."""
    folder = Path(model)
    return _of_folder(folder) if folder.is_dir() else model


def rename() -> None:
    """Have vLLM name media so in this process.

    The process is an API server's, whose configuration names the connector.
    An engine that gets embeddings from another one, by vLLM's names, keeps them.
    """
    config = inside.configuration_being_made()
    if config is None or config.ec_transfer_config is not None:
        return
    info = inside.processing_info()
    if info is None:
        logger.warning(
            "kvpull: this vLLM names media otherwise: they are moved where "
            "--model has the same text at P and at D"
        )
        return
    info.model_id = property(lambda self: model_id(self.ctx.model_config.model))
