# SPDX-License-Identifier: Apache-2.0
"""Parts of P's answer that the router gives to the client.

P has computed a prompt's first token and, where they are asked for, the log
probabilities of the prompt. D would compute them once more. For what cannot be
right in every case nothing is taken from P: D answers, as without this module.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

from kvpull_vllm.bodies import CONTINUES, FIRST_TOKEN

_COMPLETIONS = "/v1/completions"
_MAX_TOKENS = 16  # of a completion that does not say
_LINE_MAX = 64 << 20
# Lines of D's stream that are not passed on as they are. A text that the model
# wrote has its quotes escaped, so it cannot have these.
_CHANGED = (b'"usage"', b'"prompt_token_ids"')
_DATA = b"data: "
# An unfinished character.
_BROKEN = "\ufffd"


def _is_any(_value: Any) -> bool:
    return True


def _is_none(value: Any) -> bool:
    return value is None or value == [] or value == ""


def _is_off(value: Any) -> bool:
    return value is None or value is False


def _is_zero(value: Any) -> bool:
    return value is None or (value == 0 and value is not False)


def _is_flag(value: Any) -> bool:
    return value is None or isinstance(value, bool)


def _is_true(value: Any) -> bool:
    return value is None or value is True


def _is_one(value: Any) -> bool:
    return value is None or value == 1


def _has_usage_alone(value: Any) -> bool:
    return value is None or (
        isinstance(value, dict) and value.keys() <= {"include_usage"}
    )


# Parameters of a completion with which D goes on from P's token as if D had
# made it: they concern each token by itself, or prompt and answer in the same
# way. Others are left out: penalties and bad_words count tokens of the answer
# alone, a seed begins anew at D, a stop text may begin in the first token, a
# grammar begins with the answer, and n answers have first tokens of their own.
# A parameter that this table lacks, such as a newer vLLM's, has to be empty.
_SAME: dict[str, Callable[[Any], bool]] = {
    **dict.fromkeys(
        (
            "add_special_tokens",
            "allowed_token_ids",
            "cache_salt",
            "ignore_eos",
            "include_stop_str_in_output",
            "logit_bias",
            "max_tokens",
            "min_p",
            "model",
            "priority",
            "prompt",
            "repetition_penalty",
            "request_id",
            "session_id",
            "stop_token_ids",
            "stream",
            "temperature",
            "top_k",
            "top_p",
            "user",
        ),
        _is_any,
    ),
    **dict.fromkeys(("best_of", "n"), _is_one),
    **dict.fromkeys(("echo", "use_beam_search"), _is_off),
    **dict.fromkeys(
        ("frequency_penalty", "min_tokens", "presence_penalty"), _is_zero
    ),
    "return_token_ids": _is_flag,
    "skip_special_tokens": _is_true,
    "spaces_between_special_tokens": _is_true,
    "stream_options": _has_usage_alone,
}


def _tokens_asked(body: dict[str, Any]) -> int:
    """Return how many tokens a completion may have, 0 if it says nonsense."""
    count = body.get("max_tokens")
    if count is None:
        return _MAX_TOKENS
    return count if type(count) is int else 0


def begins_with_p(path: str, body: dict[str, Any]) -> bool:
    """Say whether P's first token can begin the client's answer.

    An answer in one piece comes with its last token, whoever made the first.
    A chat cannot be gone on with: vLLM takes no token ids as the beginning of
    an answer, and renders a text anew.
    """
    return (
        path == _COMPLETIONS
        and body.get("stream") is True
        and _tokens_asked(body) > 1
        and all(_SAME.get(k, _is_none)(value) for k, value in body.items())
    )


def _are_tokens(value: Any) -> bool:
    return isinstance(value, list) and all(type(item) is int for item in value)


class Beginning:
    """The first token of an answer, from P, and D's lines behind it."""

    def __init__(
        self,
        body: dict[str, Any],
        answer: dict[str, Any],
        choice: dict[str, Any],
    ) -> None:
        self._body = body
        self._head = {name: answer[name] for name in ("id", "created", "model")}
        self._choice = choice
        self._rest = b""

    @classmethod
    def of(cls, body: dict[str, Any], answer: Any) -> Beginning | None:
        """Return P's answer as a beginning, None where D is to begin.

        A token without a text of its own may be a part of a character, or one
        that is not shown. A token that ends the answer is D's to make.
        """
        try:
            (choice,) = answer["choices"]
            (token,) = choice["token_ids"]
            text, prompt = choice["text"], choice["prompt_token_ids"]
            told = answer["kv_transfer_params"][FIRST_TOKEN]
            is_whole = (
                choice["finish_reason"] == "length"
                and {"id", "created", "model"} <= answer.keys()
            )
        except (KeyError, TypeError, ValueError):
            return None
        if (
            not is_whole
            or not _are_tokens([token, told])
            or token != told
            or not (_are_tokens(prompt) and prompt)
            or not (isinstance(text, str) and text)
            or _BROKEN in text
        ):
            return None
        return cls(body, answer, choice)

    def decode(self, params: dict[str, Any]) -> tuple[dict[str, Any], Any]:
        """Return D's request, which goes on, and its kv_transfer_params."""
        tokens = self._choice["prompt_token_ids"] + self._choice["token_ids"]
        count = _tokens_asked(self._body) - 1
        asked = {**self._body, "prompt": tokens, "max_tokens": count}
        return asked, {**params, CONTINUES: True}

    def chunk(self) -> bytes:
        """Return the stream's first line: P's token, as vLLM would say it."""
        shows = bool(self._body.get("return_token_ids"))
        prompt, tokens = (
            self._choice[name] if shows else None
            for name in ("prompt_token_ids", "token_ids")
        )
        told = {
            **self._head,
            "object": "text_completion",
            "choices": [
                {
                    "index": 0,
                    "text": self._choice["text"],
                    "logprobs": None,
                    "finish_reason": None,
                    "stop_reason": None,
                    "prompt_token_ids": prompt,
                    "token_ids": tokens,
                }
            ],
        }
        return _DATA + json.dumps(told).encode() + b"\n\n"

    def take(self, chunk: bytes) -> bytes:
        """Return what the client gets of a part of D's stream."""
        whole, newline, self._rest = (self._rest + chunk).rpartition(b"\n")
        if len(self._rest) > _LINE_MAX:
            raise ValueError(f"a line of D has more than {_LINE_MAX} bytes")
        lines = (whole + newline).split(b"\n")
        return b"\n".join(self._line(line) for line in lines)

    def end(self) -> bytes:
        """Return what D said behind its last whole line."""
        return self._rest

    @staticmethod
    def _line(line: bytes) -> bytes:
        """Return a line as if P's token were no part of the prompt."""
        if not any(name in line for name in _CHANGED):
            return line
        try:
            told = json.loads(line.removeprefix(_DATA))
            for choice in told["choices"]:
                choice.pop("prompt_token_ids", None)  # the first line had it
            usage = told.get("usage")
            if usage:
                usage["prompt_tokens"] -= 1
                usage["completion_tokens"] += 1
        except (ValueError, KeyError, TypeError, AttributeError):
            return line  # an error's, which is no line of an answer
        return _DATA + json.dumps(told).encode()


class PromptLogprobs(NamedTuple):
    """The log probabilities of a prompt, from P, for D's answer.

    D pulls: where it is asked for them, vLLM computes the prompt again. A chat
    has them beside its choices, a completion in each of them.
    """

    is_chat: bool
    found: list[Any]

    @classmethod
    def of(
        cls, path: str, body: dict[str, Any], answer: Any
    ) -> PromptLogprobs | None:
        """Return those of P's answer, None where there are none."""
        if body.get("prompt_logprobs") is None:
            return None
        is_chat = path != _COMPLETIONS
        try:
            found = answer if is_chat else answer["choices"][0]
            told = found["prompt_logprobs"]
        except (KeyError, IndexError, TypeError):
            return None
        return cls(is_chat, told) if told and isinstance(told, list) else None

    @staticmethod
    def decode(body: dict[str, Any]) -> dict[str, Any]:
        """Return D's request: without them."""
        return {k: v for k, v in body.items() if k != "prompt_logprobs"}

    def merged(self, raw: bytes) -> bytes:
        """Return D's answer with them; raise ValueError if it is none."""
        answer = json.loads(raw)
        try:
            for place in [answer] if self.is_chat else answer["choices"]:
                place["prompt_logprobs"] = self.found
        except (KeyError, TypeError) as error:
            raise ValueError(f"no answer: {error}") from error
        return json.dumps(answer).encode()
