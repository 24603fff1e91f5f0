# SPDX-License-Identifier: Apache-2.0
"""Large files of tensors, and how much of them is read."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock


def write(path: Path, tensors: int, tensor_bytes: int) -> None:
    """Make a safetensors file of so many tensors; it takes no disk space."""
    header = {
        f"{path.name}.{n}": {
            "dtype": "BF16",
            "shape": [tensor_bytes // 2],
            "data_offsets": [n * tensor_bytes, (n + 1) * tensor_bytes],
        }
        for n in range(tensors)
    }
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + tensors * tensor_bytes)


@contextmanager
def reads() -> Iterator[list[int]]:
    """Give the bytes of each read of tensors that is made meanwhile."""
    sizes: list[int] = []
    pread = os.pread

    def counted(file: int, size: int, offset: int) -> bytes:
        sizes.append(size)
        return pread(file, size, offset)

    with mock.patch.object(os, "pread", counted):
        yield sizes
