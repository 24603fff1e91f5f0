# SPDX-License-Identifier: Apache-2.0
"""Runs the lines of "Use it with vLLM" in README.md, as they stand.

Replaced are MODEL and the three ports. `vllm serve` is a function here: the
CPU wheel does not bring the command, and the tiny model wants options.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import model
from engine import (
    START_S,
    complete,
    environment,
    free_port,
    is_well,
    kill_group,
    metrics_of,
    post,
    wait_for,
)

ROOT = Path(__file__).resolve().parents[2]
TITLE = "Use it with vLLM"
# Folders at the top that have C sources are routes, devices and tools.
FOLDERS = {path.parent.name for path in ROOT.glob("*/*.c")} - {"examples"}
COPIED = ("Makefile", "README.md", "include", "plugin", *sorted(FOLDERS))

VLLM = """
set -e
vllm() {
	[ "$1" = serve ] || return 2
	local model=$2
	shift 2
	python -m vllm.entrypoints.openai.api_server --model "$model" \\
		--dtype float32 --enforce-eager --block-size 32 \\
		--max-model-len 4096 --num-gpu-blocks-override 1024 "$@"
}
"""


def lines_of(path: Path) -> str:
    """Return the first fenced block after the title."""
    text = path.read_text()
    found = re.search(
        rf"{TITLE}.*?^```[a-z]*\n(.*?)^```$", text, re.DOTALL | re.MULTILINE
    )
    if not found:
        raise ValueError(f"{path} has no lines after {TITLE!r}")
    return found[1]


def copy_of_tree(folder: Path) -> Path:
    """Return a copy of the sources: pip leaves its own files beside them."""
    for name in COPIED:
        kind = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        kind(ROOT / name, folder / name)
    shutil.rmtree(folder / "plugin/vllm/build", ignore_errors=True)
    return folder


def filled_in(text: str, folder: Path, ports: dict[str, int]) -> str:
    """Return the lines with this run's model and ports."""
    made = text.replace("MODEL", shlex.quote(str(folder)))
    for said, port in ports.items():
        made = re.sub(rf"\b{said}\b", str(port), made)
    return made


def check(folder: Path, ports: dict[str, int], shell: subprocess.Popen) -> None:
    """Ask the router: P and D take part, and the tokens are those of D alone."""

    def serves() -> bool:
        assert shell.poll() is None, "the lines have ended"
        return all(is_well(f"http://127.0.0.1:{p}") for p in ports.values())

    took = wait_for("P, D and router", serves, START_S, 0.5)
    print(f"  README: P, D and router serve after {took:.0f} s", flush=True)
    prompt = [5 + (7 * i) % 500 for i in range(100)]

    def ask(port: str) -> list[list[int]]:
        url = f"http://127.0.0.1:{ports[port]}"
        return complete(url, prompt, model=str(folder), max_tokens=16)

    found = ask("8000")
    for port, name in (("8100", "holds_released"), ("8200", "pulls_done")):
        key = f"vllm:kvpull_worker_{name}_total"
        url = f"http://127.0.0.1:{ports[port]}"
        wait_for(key, lambda k=key, u=url: metrics_of(u).get(k) == 1, 20)
    post(f"http://127.0.0.1:{ports['8200']}/reset_prefix_cache", None)
    assert found == ask("8200")


def run(folder: Path) -> None:
    """Run the lines, then check what they started; raise if they do not."""
    folder.mkdir(parents=True)
    text = lines_of(ROOT / "README.md")
    assert text == lines_of(ROOT / "plugin/vllm/README.md"), (
        "the two README differ"
    )
    count = len(text.splitlines())
    assert count <= 10, f"{count} lines"
    model.make(folder / "model", 1)
    tree = folder / "tree"
    tree.mkdir()
    ports = {said: free_port() for said in ("8000", "8100", "8200")}
    lines = VLLM + filled_in(text, folder / "model", ports)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    with (folder / "readme.log").open("wb") as log:
        shell = subprocess.Popen(
            ["bash", "-c", lines],
            cwd=copy_of_tree(tree),
            stdout=log,
            stderr=log,
            env={**os.environ, **environment(), "PATH": path},
            process_group=0,
        )
    try:
        check(folder / "model", ports, shell)
    except Exception as error:
        said = (folder / "readme.log").read_text(errors="replace")
        said = re.sub(r".*GET /health.*\n", "", said)
        raise AssertionError(f"{error}\n{said[-3000:]}") from error
    finally:
        kill_group(shell.pid)
        shell.wait()
