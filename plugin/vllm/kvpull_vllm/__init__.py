# SPDX-License-Identifier: Apache-2.0
"""kvpull for vLLM: the connector class and its registration."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kvpull_vllm.connector import KVPullConnector

__all__ = ["KVPullConnector", "register"]


def __getattr__(name: str) -> Any:
    """Import the connector when it is asked for: it needs vLLM."""
    if name != "KVPullConnector":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from kvpull_vllm.connector import KVPullConnector

    return KVPullConnector


def register() -> None:
    """Make the name KVPullConnector known; a vllm.general_plugins entry."""
    from vllm.distributed.kv_transfer.kv_connector.factory import (
        KVConnectorFactory,
    )

    # The second time it is known already.
    with contextlib.suppress(ValueError):
        KVConnectorFactory.register_connector(
            "KVPullConnector", "kvpull_vllm.connector", "KVPullConnector"
        )
