# SPDX-License-Identifier: Apache-2.0
"""Says when the machine stood: a process that only sleeps, and notes when it
was woken late.

A time over its bar is measured again only if the machine stood meanwhile.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

SLEEP_S = 0.002
LATE_S = 0.010


class Watchdog:
    """The process, and what it has noted."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "watchdog.log"
        with self._path.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, __file__], stdout=log
            )

    def late(self, since: float, until: float) -> float:
        """Return how late it was woken at most between two times."""
        lines = [line.split() for line in self._path.read_text().splitlines()]
        return max(
            (
                float(late)
                for began, ended, late in (line for line in lines if line[2:])
                if float(ended) > since and float(began) < until
            ),
            default=0.0,
        )

    def stop(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()


def main() -> None:
    """Sleep until the parent is gone."""
    parent = os.getppid()
    while os.getppid() == parent:
        began = time.time()
        time.sleep(SLEEP_S)
        ended = time.time()
        late = ended - began - SLEEP_S
        if late > LATE_S:
            print(f"{began:.6f} {ended:.6f} {late:.6f}", flush=True)


if __name__ == "__main__":
    main()
