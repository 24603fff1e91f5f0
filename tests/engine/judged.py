# SPDX-License-Identifier: Apache-2.0
"""Answers compared whole, also those of models that compute in bfloat16.

Kernels that compute a row of tokens, one token, or one row of a batch differ in
the last bits. In float32 no token shows it, and an answer is right or wrong. In
bfloat16 two words may be as likely as each other, and the answer goes on from
either. There the engine that has the prompt alone judges: it computes prompt and
answer once more, without a pull, and says how much less likely than the likeliest
word each token of the answer was, given all tokens before it.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from engine import Engine, tokens
from world import World

ANSWER = 24
TWICE = {"n": 2, "temperature": 1, "top_k": 1}

# Logits of the bfloat16 models lie between 8 and 16, where numbers are 1/16
# apart. An answer may fall short by four such steps in each token. Those of one
# engine fall short by two; those of a zeroed state by sixty and more.
NEAR = 0.25

Asked = tuple[list[int], list[list[int]]]  # a prompt, and its answer


def asked_of(world: World, length: int) -> Asked:
    """Return a prompt, and what follows it by one engine.

    Kernels that compute a row of tokens and those that compute one differ in the
    last bits of bfloat16. D computes the prompt's last token alone, so it is one
    that P has made, and has computed alone, too.
    """
    begin = world.prompt(length - 1)
    status, answer = world.p.complete(begin, max_tokens=ANSWER + 1)
    assert status == 200, answer
    (made,) = tokens(answer)
    world.p.reset_prefix_cache()
    return begin + made[:1], [made[1:]]


def pulled(
    world: World, prompt: list[int], fault: str = "", **more: Any
) -> list[list[int]]:
    """Prefill at P, decode at D, with nothing in the prefix caches.

    With a fault, D's connector is that of spoiled.py.
    """
    for engine in (world.p, world.d):
        engine.reset_prefix_cache()
    params = {**world.prefill(prompt, **more), "spoiled": fault}
    return world.decode(prompt, params, max_tokens=ANSWER, **more)


def shortfall(engine: Engine, prompt: list[int], answer: list[int]) -> float:
    """Return the most by which a token is less likely than the likeliest."""
    status, said = engine.complete(
        prompt + answer, max_tokens=1, prompt_logprobs=1
    )
    assert status == 200, said
    places = said["choices"][0]["prompt_logprobs"][len(prompt) :]
    return max(
        max(word["logprob"] for word in place.values())
        - place[str(token)]["logprob"]
        for place, token in zip(places, answer, strict=True)
    )


def verdicts(
    world: World, asked: list[Asked], found: list[list[int]]
) -> Counter[str]:
    """Return how many answers are right, near or wrong.

    Answer n is to the prompt n, modulo their number. The engines are idle.
    """
    counts: Counter[str] = Counter()
    for number, answer in enumerate(found):
        prompt, (right,) = asked[number % len(asked)]
        if answer == right:
            counts["right"] += 1
        elif not world.near or len(answer) != len(right):
            counts["wrong"] += 1
        else:
            short = shortfall(world.p, prompt, answer)
            counts["near" if short <= world.near else "wrong"] += 1
    return counts
