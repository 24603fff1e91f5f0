# SPDX-License-Identifier: Apache-2.0
"""Whether vLLM calls what is subclassed and replaced as it is written here.

vLLM's interfaces grow: a method of ours that lacks an argument of a later vLLM
ends the engine at its first call. Compared at start, it is refused by name.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterator
from typing import Any

from kvpull_vllm import inside
from kvpull_vllm.settings import ConfigError

_PACKAGE = __name__.partition(".")[0]
_BY_PLACE = (
    inspect.Parameter.POSITIONAL_ONLY,
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
)
_NAMED = inspect.Parameter.KEYWORD_ONLY


def misfit(ours: Callable[..., Any], theirs: Callable[..., Any]) -> str:
    """Return why a call that fits theirs does not fit ours, "" if all do.

    What goes into a *args of ours is taken by its place alone.
    """
    own = inspect.signature(ours)
    asked = list(inspect.signature(theirs).parameters.values())
    placed = [one for one in asked if one.kind in _BY_PLACE]
    named = {one.name: one for one in asked if one.kind == _NAMED}
    needed = [one for one in placed if one.default is one.empty]
    needed_names = {n: p for n, p in named.items() if p.default is p.empty}
    calls = [(placed, named), (needed, needed_names)]
    if not any(one.kind == one.VAR_POSITIONAL for one in own.parameters.values()):
        by_name = {one.name: one for one in asked if one.kind == _BY_PLACE[1]}
        calls.append((placed[: len(placed) - len(by_name)], by_name | named))
    for args, kwargs in calls:
        try:
            own.bind(*args, **kwargs)
        except TypeError as error:
            return str(error)
    return ""


def _plain(member: Any) -> Any:
    """Return a class's member as a function, None if it is none."""
    if isinstance(member, classmethod | staticmethod):
        member = member.__func__
    return member if inspect.isfunction(member) else None


def overridden(kind: type) -> Iterator[tuple[Any, type, Any]]:
    """Yield each method of ours in vLLM's place: ours, its class, vLLM's."""
    seen: set[str] = set()
    for at, own in enumerate(kind.__mro__):
        if own.__module__.partition(".")[0] != _PACKAGE:
            continue
        for name, member in vars(own).items():
            ours = _plain(member)
            is_made = name == "__init__" and dataclasses.is_dataclass(own)
            if ours is None or name in seen or is_made:
                continue
            seen.add(name)
            for base in kind.__mro__[at + 1 :]:
                theirs = _plain(vars(base).get(name))
                if theirs and base.__module__.startswith("vllm."):
                    yield ours, base, theirs
                    break


def check_call(ours: Any, base: type, theirs: Any) -> None:
    """Refuse a vLLM that calls one method of a class otherwise."""
    why = misfit(ours, theirs)
    if why:
        raise ConfigError(
            f"kvpull_vllm: vLLM {inside.version()} calls "
            f"{base.__name__}.{theirs.__name__}{inspect.signature(theirs)}, "
            f"which {ours.__qualname__} is not written for ({why}): use a vLLM "
            "that this kvpull_vllm knows, or a later kvpull_vllm"
        )


def check(*kinds: type) -> None:
    """Refuse a vLLM that calls these classes of ours otherwise."""
    for kind in kinds:
        for ours, base, theirs in overridden(kind):
            check_call(ours, base, theirs)
        for name in sorted(getattr(kind, "__abstractmethods__", ())):
            raise ConfigError(
                f"kvpull_vllm: vLLM {inside.version()} wants a method {name} of "
                f"{kind.__name__}, which has none: use a vLLM that this "
                "kvpull_vllm knows, or a later kvpull_vllm"
            )


def check_calls(base: type, calls: dict[str, Callable[..., Any]]) -> None:
    """Refuse a vLLM that calls otherwise what stands in methods' places."""
    for name, ours in calls.items():
        check_call(ours, base, getattr(base, name))
