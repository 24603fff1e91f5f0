# SPDX-License-Identifier: Apache-2.0
"""Tests of fingerprints of weights, which are made of the model's files."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

from engine import environment

os.environ.update(environment())
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")

import model  # noqa: E402
import tensors  # noqa: E402
import torch  # noqa: E402
from kvpull_vllm import files  # noqa: E402
from runner import run_all, test  # noqa: E402
from safetensors.torch import save_file  # noqa: E402


@test
def fingerprints_are_of_weights_not_of_files() -> None:
    """Each tensor tells; how they are spread over files does not."""
    one, two = model.weights(1), model.weights(2)
    with tempfile.TemporaryDirectory() as made:
        paths = [Path(made) / f"{n}.safetensors" for n in range(3)]
        save_file(one, str(paths[0]))
        names = sorted(one)
        for path, some in ((paths[1], names[:5]), (paths[2], names[5:])):
            save_file({name: one[name] for name in some}, str(path))
        ours = files.fingerprint(paths[:1])
        assert files.fingerprint(paths[1:]) == ours
        drawn = [n for n in names if not torch.equal(one[n], two[n])]
        assert len(drawn) >= 16
        for name in drawn:
            save_file({**one, name: two[name]}, str(paths[0]))
            assert files.fingerprint(paths[:1]) != ours, name


@test
def large_weights_are_sampled_only() -> None:
    """100 GB in 20 files: some of each tensor, at most 64 MiB in all."""
    count = 50
    with tempfile.TemporaryDirectory() as made:
        paths = [Path(made) / f"{n}.safetensors" for n in range(20)]
        for path in paths:
            tensors.write(path, count, (5 << 30) // count)
        began = time.monotonic()
        files.fingerprint(paths)
        took = time.monotonic() - began
        with tensors.reads() as sizes:
            files.fingerprint(paths)
    assert len(sizes) >= len(paths) * count
    assert sum(sizes) <= 64 << 20, sum(sizes)
    print(f"  100 GB of weights: {sum(sizes) >> 20} MiB read in {took:.2f} s")


if __name__ == "__main__":
    raise SystemExit(run_all())
