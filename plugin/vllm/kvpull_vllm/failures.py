# SPDX-License-Identifier: Apache-2.0
"""Why a request that asked for a pull gets none, and what D's client is told.

vLLM fails a request for a load that failed, and for nothing else. With
kv_load_failure_policy fail the connector therefore promises a block of such a
request, and reports it as not loaded.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from kvpull_vllm.abi import CONST, Library

# In D's answer: why it computed, and whether its producer is the reason.
COMPUTED = "kvpull_computed"
PEER_FAILED = "kvpull_peer_failed"
_EREJECTED = CONST["KVPULL_EREJECTED"]
# Errors that the next request to this producer would have, too: a peer's, and
# those of tickets that are not for this engine.
_OF_PEERS = {
    *(value for value in CONST.values() if -59 <= value <= -40),
    CONST["KVPULL_ENOTICKET"],
    CONST["KVPULL_ENOTMINE"],
    CONST["KVPULL_EMISMATCH"],
}


class Failure(NamedTuple):
    """A reason, and whether the producer is it."""

    text: str
    by_peer: bool = False

    def answer(self) -> dict[str, Any]:
        """Return what kv_transfer_params say of it."""
        told: dict[str, Any] = {COMPUTED: self.text}
        if self.by_peer:
            told[PEER_FAILED] = True
        return told


NO_TICKET = Failure("it has no kvpull_ticket")
RESET = Failure("the engine's caches were reset")
USED = Failure(
    "its ticket was used before, and the prefix cache has not got its tokens"
)
WINDOW = Failure("its last token looks at a block that P has freed")
UNREAD = Failure("vLLM reads no KV for it, as for prompt_logprobs")
_UNLIKE = Failure("its ticket is for another model, configuration or layout", True)


def of_code(library: Library, code: int, was_pulled: bool) -> Failure:
    """Return what an enum kvpull_error means."""
    if code == _EREJECTED and not was_pulled:
        return _UNLIKE
    # Behind the colon stands what to do, which is the policy's to say.
    text = library.error_text(code).partition(":")[0]
    return Failure(text, code in _OF_PEERS)
