# SPDX-License-Identifier: Apache-2.0
"""kvpull for vLLM: the connector class and its registration."""

from __future__ import annotations

import contextlib
import re
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kvpull_vllm.connector import KVPullConnector

__all__ = ["KVPullConnector", "check_version", "register"]

# vLLM's versions, and what is known of each. Older ones have another
# connector interface.
VERSIONS = {
    (0, 31): "loads the connector",
    (0, 32): "is what the connector is tested with",
    (0, 33): "was tried with the connector and the tier",
}


def check_version(version: str) -> str:
    """Refuse a vLLM whose connector interface is another one.

    Return what is known of it: a line for the log.
    """
    numbers = re.match(r"(\d+)\.(\d+)", version)
    # A tree without tags says nothing of itself: it is taken.
    if not numbers or version.startswith("0.1.dev"):
        return f"vLLM {version or 'of no version'}: not known here"
    found = int(numbers[1]), int(numbers[2])
    if found < min(VERSIONS):
        oldest = ".".join(map(str, min(VERSIONS)))
        raise ImportError(
            f"kvpull_vllm: vLLM {version} is not supported: it needs "
            f"{oldest} or later"
        )
    known = VERSIONS.get(found, "is newer than all that was tried")
    return f"vLLM {version} {known}"


# vLLM is there when it loads the connector, or a plugin.
check_version(str(getattr(sys.modules.get("vllm"), "__version__", "")))


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
    _register_with_dynamo()


def _register_with_dynamo() -> None:
    """Let Dynamo speak to us as to NIXL: it refuses names that it lacks.

    Both ends have the same bodies: P is asked for do_remote_decode, and D gets
    what P answered.
    """
    module = sys.modules.get("dynamo.vllm.kv_connector_protocols")
    known = getattr(module, "KV_CONNECTOR_PROTOCOLS", None)
    if isinstance(known, dict) and "NixlConnector" in known:
        known.setdefault("KVPullConnector", known["NixlConnector"])
