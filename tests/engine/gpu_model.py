# SPDX-License-Identifier: Apache-2.0
"""P and D with their KV caches on one GPU: their tokens are one engine's.

P and D are processes, each an engine of gpu_engine.py, and this program has the
router's place. A third engine is alone; it says which tokens are right. Four
pairs do something wrong, and their tokens must differ. No vLLM is needed.

gpu_model.py --device cpu DRIVER: DRIVER is the fake libcuda.so.1
gpu_model.py --device cuda: the GPU of this machine
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import logging
import multiprocessing
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, NamedTuple

import torch
from gpu_engine import (
    BLOCK,
    Connector,
    CudaDevice,
    Engine,
    FakeDevice,
    Lies,
    Request,
)
from runner import run_all, test

# A few seconds of work, in time slices of a busy machine.
PATIENCE_S = 60.0 * int(os.environ.get("TEST_PATIENCE", "1"))
SEED, OTHER_SEED = 1, 2
WORDS_MADE = 6
P_BLOCKS, D_BLOCKS = 192, 72
PROMPTS, CONTROL_PROMPTS, SPOILT_MIN, SPOILT = 60, 16, 5, 40
LONG = 480  # tokens of the prompts whose first token is timed
# The streams of P and D are idle so long before each zeroing. P's are later than
# its ticket is at D.
IDLE_P_MS, IDLE_D_MS = 20.0, 2.0
LATE_MS = 60.0  # as long as P needs to end a hold and use its blocks again


@dataclass
class Options:
    """Where engines run."""

    device: str = "cpu"
    driver: str = ""
    library: str = ""
    is_json: bool = False


OPTIONS = Options()


# ---- an engine as a process ----


class Answer(NamedTuple):
    """What an engine answers to a request."""

    name: str
    words: list[int]
    ticket: bytes
    took_s: float  # to its first token
    fate: str  # of its pull


def serve(
    pipe: Connection, name: str, seed: int, blocks: int, folder: str, lies: Lies
) -> None:
    """Be an engine; without a folder it is alone."""
    torch.set_num_threads(1)
    device = (
        CudaDevice()
        if OPTIONS.device == "cuda"
        else FakeDevice(Path(OPTIONS.driver))
    )
    connector = None
    if folder:
        connector = Connector(device, name, blocks, folder, OPTIONS.library)
    engine = Engine(device, seed, blocks, connector, lies)
    while not _obeyed(pipe, engine):
        _step(pipe, engine)
    pipe.send(("ended", _left(pipe, engine)))
    del engine
    device.synchronize()  # a mark that is not reached stays open
    if connector is not None:
        connector.close()
    device.close()


def _obeyed(pipe: Connection, engine: Engine) -> bool:
    """Do what the router says; True: it says that this is all."""
    while pipe.poll(0.0005 if engine.is_idle else 0):
        verb, what = pipe.recv()
        if verb == "end":
            return True
        if verb == "idle":
            engine.idle_ms = what
        else:
            getattr(engine, verb)(what)  # ask, abort, revoke
    return False


def _step(pipe: Connection, engine: Engine) -> None:
    engine.step()
    for name in engine.begun:
        pipe.send(("begun", name))
    engine.begun.clear()
    told, engine.answers = engine.answers, []
    for request, ticket in told:
        took = request.first_at - request.asked_at
        answer = Answer(request.name, request.made, ticket, took, request.fate)
        pipe.send(("answer", answer))


def _left(pipe: Connection, engine: Engine) -> dict[str, int]:
    """Step until all blocks are free; return what was counted."""
    end = time.monotonic() + PATIENCE_S
    while len(engine.free) < engine.block_count and time.monotonic() < end:
        _step(pipe, engine)
        time.sleep(0.0005)
    told = dict(engine.seen)
    told["blocks_left"] = engine.block_count - len(engine.free)
    if engine.connector is not None:
        told["expired"] = engine.connector.count("holds_expired")
    return told


class Process:
    """An engine's process, as the router sees it."""

    def __init__(
        self, name: str, seed: int, blocks: int, folder: str, lies: Lies
    ) -> None:
        self.pipe, other = multiprocessing.Pipe()
        self._process = multiprocessing.get_context("fork").Process(
            target=serve,
            args=(other, name, seed, blocks, folder, lies),
            daemon=True,
        )
        self._process.start()
        other.close()

    def say(self, verb: str, what: Any = None) -> None:
        """Tell it to do something."""
        self.pipe.send((verb, what))

    def hear(self) -> tuple[str, Any]:
        """Wait for its next word."""
        if not self.pipe.poll(PATIENCE_S):
            raise TimeoutError(f"no word in {PATIENCE_S:g} s")
        return self.pipe.recv()

    def end(self) -> dict[str, int]:
        """End it; return what it counted."""
        self.say("end")
        while (word := self.hear())[0] != "ended":
            pass
        self._process.join(PATIENCE_S)
        assert self._process.exitcode == 0, self._process.exitcode
        return word[1]

    def kill(self) -> None:
        """End it, however it is."""
        self._process.kill()
        self._process.join()


# ---- what is asked ----


def drawn(count: int, seed: int) -> list[Request]:
    """Return requests: of lengths beside those of blocks, and siblings."""
    draw, made = random.Random(seed), []
    lengths = [1, 2, 15, 16, 17, 31, 32, 33, 48, 49, 95, 96, 97]
    lengths += [draw.randrange(20, 120) for _ in range(count)]
    for number, length in enumerate(lengths[:count]):
        prompt = [draw.randrange(256) for _ in range(length)]
        name = f"{seed}-{number}"
        made.append(Request(name, prompt, WORDS_MADE))
        if number % 3 == 0:
            sibling = Request(f"{name}-b", prompt, WORDS_MADE, nth=1)
            sibling.family = made[-1].family = number + 1
            made.append(sibling)
    return made


def at_p(request: Request) -> Request:
    """Return what P is asked for it."""
    family = request.family
    return Request(
        request.name, request.prompt, 1, family=family, holds=True
    )


def at_d(request: Request, ticket: bytes) -> Request:
    """Return what D is asked for it."""
    return Request(
        request.name,
        request.prompt,
        request.count,
        request.nth,
        request.family,
        ticket=ticket,
    )


@functools.cache
def right(count: int, seed: int) -> dict[str, list[int]]:
    """Return the tokens of an engine that is alone."""
    alone = Process("alone", SEED, D_BLOCKS, "", Lies())
    asked, made = drawn(count, seed), {}
    try:
        for request in asked:
            alone.say("ask", request)
        while len(made) < len(asked):
            _, answer = alone.hear()
            made[answer.name] = answer.words
        alone.end()
    finally:
        alone.kill()
    return made


# ---- P, D and the router ----


@dataclass
class Outcome:
    """What became of a run."""

    answers: dict[str, Answer] = field(default_factory=dict)
    at_p: dict[str, int] = field(default_factory=dict)
    at_d: dict[str, int] = field(default_factory=dict)

    def wrong(self, wanted: dict[str, list[int]]) -> list[str]:
        """Return the answers that are not those."""
        return [n for n, one in self.answers.items() if one.words != wanted[n]]


class Router:
    """P and D, and what is said between them."""

    def __init__(self, p: Process, d: Process) -> None:
        self.p, self.d = p, d
        self.outcome = Outcome()
        self._asked: dict[str, Request] = {}
        self._tickets: dict[str, bytes] = {}  # what P has answered
        self._awaited: set[str] = set()
        # By name: when P has answered, or D has begun a pull, D's client goes.
        self.leaves: dict[str, str] = {}
        self.on_begun: Any = None

    def ask(self, requests: list[Request]) -> None:
        """Ask P for all of them, and D once P has answered."""
        self._asked |= {request.name: request for request in requests}
        for request in requests:
            self._awaited.add(request.name)
            self.p.say("ask", at_p(request))
            if self.leaves.get(request.name) == "p":
                self._gone(self.p, request.name)
        self.run()

    def _gone(self, engine: Process, name: str) -> None:
        self._awaited.discard(name)
        engine.say("abort", name)

    def run(self) -> None:
        """Pass words on until all that are awaited have their answers."""
        while self._awaited:
            heard = wait([self.p.pipe, self.d.pipe], PATIENCE_S)
            if not heard:
                raise TimeoutError(f"no answer: {sorted(self._awaited)}")
            for pipe in heard:
                verb, what = pipe.recv()
                if verb == "begun":
                    self._begun(what)
                elif pipe is self.p.pipe:
                    self._of_p(what)
                else:
                    self.outcome.answers[what.name] = what
                    self._awaited.discard(what.name)

    def _of_p(self, answer: Answer) -> None:
        asked = self._asked.get(answer.name)
        if asked is None:
            return  # P was asked for itself
        # D gives a ticket back with the last sibling that it knows: it is asked
        # for all of them at once.
        self._tickets[asked.name] = answer.ticket
        siblings = [
            one
            for one in self._asked.values()
            if one is asked or one.family == asked.family != 0
        ]
        if any(one.name not in self._tickets for one in siblings):
            return
        for one in siblings:
            self.d.say("ask", at_d(one, self._tickets[one.name]))
            # D gives the ticket of a client that has gone back.
            if self.leaves.get(one.name) in ("p", "d"):
                self._gone(self.d, one.name)

    def _begun(self, name: str) -> None:
        if self.leaves.get(name) == "pull":
            self._gone(self.d, name)
        if self.on_begun:
            self.on_begun(name)

    def compute(self, request: Request) -> None:
        """Ask D alone."""
        self._awaited.add(request.name)
        self.d.say("ask", request)
        self.run()

    def spoil(self, request: Request) -> None:
        """Have P end the hold while D reads, and use the blocks at once."""
        words = [255 - word for word in request.prompt]
        other = Request(f"over {request.name}", words, 1)

        def spoilt(_: str) -> None:
            # D's copy is queued by then, behind what its stream does.
            time.sleep(LATE_MS / 3000)
            self.p.say("revoke", other)

        self.on_begun = spoilt
        self.ask([request])


@contextmanager
def router(
    seed_p: int = SEED, of_p: Lies | None = None, of_d: Lies | None = None
) -> Iterator[Router]:
    """Give P, D and a router; at the end both have all their blocks again."""
    with tempfile.TemporaryDirectory() as folder:
        where = f"{folder}/sockets"
        p = Process("p", seed_p, P_BLOCKS, where, of_p or Lies())
        d = Process("d", SEED, D_BLOCKS, where, of_d or Lies())
        try:
            made = Router(p, d)
            p.say("idle", IDLE_P_MS)
            d.say("idle", IDLE_D_MS)
            yield made
            made.outcome.at_d, made.outcome.at_p = d.end(), p.end()
        finally:
            p.kill()
            d.kill()
    for told in (made.outcome.at_p, made.outcome.at_d):
        assert not told["blocks_left"] and not told["expired"], told


def say(name: str, value: str) -> None:
    """Print a fact of this run."""
    text = json.dumps({"name": name, "value": value})
    print(text if OPTIONS.is_json else f"  {name}: {value}", file=STDOUT)


STDOUT = sys.stdout


def differ(name: str, outcome: Outcome, wanted: dict[str, list[int]]) -> None:
    """Want some answers of a pair that does something wrong to be wrong."""
    wrong = outcome.wrong(wanted)
    say(name, f"{len(wrong)} of {len(outcome.answers)} answers differ")
    assert wrong, name


# ---- the tests ----


@test
def tokens_are_those_of_one_engine() -> None:
    """Lengths beside blocks, siblings, clients that go at each moment."""
    asked, wanted = drawn(PROMPTS, 1), right(PROMPTS, 1)
    with router() as made:
        alone = [request.name for request in asked if not request.family]
        for at, name in enumerate(alone[5:]):
            if at % 5 < 3:
                made.leaves[name] = ("p", "d", "pull")[at % 5]
        made.ask(asked)
    outcome = made.outcome
    assert not outcome.wrong(wanted), outcome.wrong(wanted)
    answered = len(outcome.answers)
    gone = outcome.at_p["aborted"], outcome.at_d["aborted"]
    say("tokens", f"{answered} of {answered} answers are one engine's")
    say("pulls", f"{outcome.at_d['loaded']} loaded, {gone} aborted at P, at D")
    assert not outcome.at_d.get("failed"), outcome.at_d
    # All but those of a single token, and of clients that went before.
    assert outcome.at_d["loaded"] > answered * 0.9, outcome.at_d
    assert min(gone) > 2 and outcome.at_p["ready_after"] > 5, outcome
    assert outcome.at_d["synchronized"], outcome


def spoilt(lies: Lies, is_shown: Callable[[Answer], bool]) -> Outcome:
    """Return what became of requests whose holds P ends while D reads.

    A busy machine may be too late for some of them: they are tried until one
    shows what is looked for.
    """
    # The first ones are so short that nothing is pulled, or siblings.
    asked = [one for one in drawn(SPOILT, 2)[5:] if not one.family]
    with router(of_d=lies) as made:
        made.d.say("idle", LATE_MS)
        for at, request in enumerate(asked):
            made.spoil(request)
            answers = made.outcome.answers.values()
            if at + 1 >= SPOILT_MIN and any(map(is_shown, answers)):
                break
    return made.outcome


@test
def what_fails_the_check_is_computed() -> None:
    """P ends a hold and uses the blocks again while D reads them."""
    outcome = spoilt(Lies(), lambda answer: answer.fate == "refused")
    assert not outcome.wrong(right(SPOILT, 2)), outcome
    say("refused", f"{outcome.at_d['refused']} pulls whose bytes had come")
    assert outcome.at_d["refused"], outcome


@test
def check_that_is_ignored_gives_other_tokens() -> None:
    """The control: an engine that goes on with a pull that has failed."""
    wanted = right(SPOILT, 2)
    outcome = spoilt(
        Lies(belief=True),
        lambda answer: answer.fate == "refused"
        and answer.words != wanted[answer.name],
    )
    differ("check_off", outcome, wanted)
    assert outcome.at_d["refused"], outcome


def asked_of(**how: Any) -> Outcome:
    """Return what became of requests at a pair."""
    with router(**how) as made:
        made.p.say("idle", LATE_MS if how.get("of_p") else IDLE_P_MS)
        made.ask(drawn(CONTROL_PROMPTS, 1))
    return made.outcome


@test
def other_weights_give_other_tokens() -> None:
    """The control: P computes with weights that have D's name."""
    wanted = right(PROMPTS, 1)
    differ("other_weights", asked_of(seed_p=OTHER_SEED), wanted)


@test
def marks_that_lie_give_other_tokens() -> None:
    """The control: D says that nothing is queued, and zeroings come late."""
    wanted = right(PROMPTS, 1)
    differ("mark_off", asked_of(of_d=Lies(marks=True)), wanted)


@test
def holds_that_are_ready_too_early_give_other_tokens() -> None:
    """The control: P says that nothing is queued, and it computes late."""
    wanted = right(PROMPTS, 1)
    differ("ready_off", asked_of(of_p=Lies(marks=True)), wanted)


@test
def first_tokens_are_timed() -> None:
    """Figures: D's time to a first token, pulled and computed."""
    draw = random.Random(4)
    prompts = [[draw.randrange(256) for _ in range(LONG)] for _ in range(6)]
    times: dict[str, list[float]] = {"pulled": [], "computed": []}
    with router() as made:
        made.p.say("idle", 0.0)
        made.d.say("idle", 0.0)
        for at, prompt in enumerate(prompts):
            made.ask([Request(f"pulled-{at}", prompt, 1)])
            made.compute(Request(f"computed-{at}", prompt, 1))
            pulled, computed = (
                made.outcome.answers[f"{kind}-{at}"] for kind in times
            )
            assert pulled.fate == "loaded" and pulled.words == computed.words
            times["pulled"].append(pulled.took_s * 1000)
            times["computed"].append(computed.took_s * 1000)
    for kind, took in times.items():
        took = took[1:]  # the first has kernels to be made ready
        middle = statistics.median(took)
        name = f"first_token.{kind}_{LONG}"
        if OPTIONS.is_json:
            figure = {
                "name": name, "unit": "ms", "median": round(middle, 3),
                "low": round(min(took), 3), "high": round(max(took), 3),
                "count": len(took),
            }  # fmt: skip
            print(json.dumps(figure), file=STDOUT)
        else:
            say(name, f"{middle:.1f} ms ({min(took):.1f} to {max(took):.1f})")


def main() -> int:
    """Read the arguments and run the tests."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--library", default="", help="libkvpull.so.1")
    parser.add_argument("--json", action="store_true", help="facts as JSON")
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("driver", nargs="?", default="cuda/libcuda.so.1")
    told = parser.parse_args()
    OPTIONS.device, OPTIONS.driver = told.device, told.driver
    OPTIONS.library, OPTIONS.is_json = told.library, told.json
    sys.argv[1:] = told.only
    # Pulls are made to fail: a line of each says so.
    logging.getLogger("vllm.kvpull").setLevel(logging.ERROR)
    if not told.json:
        return run_all()
    with contextlib.redirect_stdout(sys.stderr):
        return run_all()


if __name__ == "__main__":
    raise SystemExit(main())
