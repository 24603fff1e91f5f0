# SPDX-License-Identifier: Apache-2.0
"""Time to the client's first token, with P's first token and without: a table.

first_token.py FOLDER OUT.json [--requests N]: each prompt goes through both of
firsts.py's routers, in turns. Both answers must be those of D alone, both must
have been pulled, and D must count no first token unlike P's. D then starts with
other weights under the same name, a control: D must count such tokens there, and
answers must differ. The program fails where either does not hold.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

import model
from engine import metrics_of
from firsts import firsts, streamed
from runner import failure
from world import Delta, World

REQUESTS = 12  # of a length, of each router
LENGTHS = 128, 512, 1024, 2000
WARM = 2  # requests of a length that are not in its row
CONTROL_LENGTH, CONTROL_REQUESTS = 128, 6
ANSWER = 8
HEAD = (
    "prompt",
    "requests, each",
    "with P's first token",
    "without",
    "tokens equal",
    "first tokens compared",
    "unlike P's",
)


@dataclass
class Row:
    """The requests of one length, each through both routers."""

    prompt_tokens: int
    requests: int
    with_ms: list[float] = field(default_factory=list)
    without_ms: list[float] = field(default_factory=list)
    equal: int = 0  # requests whose answers are both those of D alone
    begun: float = 0  # streams that the router began with P's token
    pulled: float = 0
    compared: float = 0
    differ: float = 0

    def is_whole(self) -> bool:
        """Say whether all were pulled and compared, and P began its half."""
        both = 2 * self.requests
        return (self.begun, self.pulled, self.compared) == (
            self.requests,
            both,
            both,
        )

    def cells(self) -> Iterator[str]:
        """Return the table's row."""
        yield f"{self.prompt_tokens:,} tokens"
        yield f"{self.requests}"
        for took in (self.with_ms, self.without_ms):
            yield (
                f"{statistics.median(took):.1f} ms "
                f"({min(took):.1f} to {max(took):.1f})"
            )
        yield f"{self.equal} of {self.requests}"
        yield f"{self.compared:.0f}"
        yield f"{self.differ:.0f}"


class Routers:
    """The two routers between P and D, and the prompts that go through both."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._url = {
            True: world.another_router("--first-token"),
            False: world.router_url,
        }

    def row(self, length: int, requests: int) -> Row:
        """Ask so many times; the first ones are not counted."""
        self._ask(Row(length, WARM))
        row = Row(length, requests)
        at_d, begun = Delta(self._world.d), self._begun()
        self._ask(row)
        row.begun = self._begun() - begun
        row.pulled = at_d("worker_pulls_done")
        row.compared = at_d("shim_first_tokens_compared")
        row.differ = at_d("shim_first_tokens_differ")
        return row

    def _begun(self) -> float:
        """Return how many streams either router began with P's token."""
        return sum(
            metrics_of(url)["kvpull_router_first_tokens_total"]
            for url in self._url.values()
        )

    def _ask(self, row: Row) -> None:
        """Ask for each prompt by one router, then by the other one."""
        for number in range(row.requests):
            prompt = self._world.prompt(row.prompt_tokens)
            answers = self._world.alone(prompt, max_tokens=ANSWER)
            for begins in (True, False)[:: 1 if number % 2 else -1]:
                found = streamed(self._url[begins], prompt, max_tokens=ANSWER)
                took = row.with_ms if begins else row.without_ms
                took.append(found.first_s * 1e3)
                answers.append(found.tokens)
                self._world.settled()
                for engine in self._world.engines:
                    engine.reset_prefix_cache()
            row.equal += answers.count(answers[0]) == len(answers)


def measure(folder: Path, requests: int) -> tuple[list[Row], Row]:
    """Return a row for each length, and that of the control."""
    for name, seed in (("model", 1), ("other", 2)):
        model.make(folder / name, seed)
    world = firsts(folder, weights="the same")
    try:
        world.start()
        routers = Routers(world)
        rows = [routers.row(length, requests) for length in LENGTHS]
        world.d.use(model=str(folder / "other"))
        world.restart(world.d)
        return rows, routers.row(CONTROL_LENGTH, CONTROL_REQUESTS)
    finally:
        world.stop()


def failures(rows: list[Row], control: Row) -> Iterator[str]:
    """Return a line for each thing that does not hold."""
    for row in [*rows, control]:
        if not row.is_whole():
            yield failure("all pulled and compared", f"{row}")
    for row in rows:
        if row.equal < row.requests or row.differ:
            yield failure("tokens equal", f"{row}")
    if control.equal == control.requests or not control.differ:
        yield failure("the control's tokens differ", f"{control}")


def main() -> int:
    """Measure, print, write; 0 if what must hold does."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--requests", type=int, default=REQUESTS)
    options = parser.parse_args()
    folder = options.folder.resolve()
    shutil.rmtree(folder, ignore_errors=True)
    rows, control = measure(folder, options.requests)
    found = {"rows": [*map(asdict, rows)], "control": asdict(control)}
    options.out.write_text(json.dumps(found, indent=1) + "\n")
    for cells in (HEAD, ["---"] * len(HEAD), *(row.cells() for row in rows)):
        print(f"| {' | '.join(cells)} |")
    print(
        f"other weights at D: {control.differ:.0f} of {control.requests} first "
        f"tokens unlike P's, {control.equal} of {control.requests} answers equal"
    )
    failed = [*failures(rows, control)]
    for line in failed:
        print(line)
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
