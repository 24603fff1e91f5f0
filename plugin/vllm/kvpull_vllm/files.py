# SPDX-License-Identifier: Apache-2.0
"""A model's files by their content, of which a sample is read.

The result does not depend on where the files lie or how they were cut.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
from pathlib import Path
from typing import Any, NamedTuple

# Bytes that are read of all files together, headers included.
READ_BYTES_MAX = 64 << 20
# Each tensor gives pieces that lie evenly over it. Where there are so many
# tensors that little is read of each, one piece in its middle is read.
_PIECES = 4
_PIECE_BYTES_MAX = 4096
_PIECE_BYTES_MIN = 512
_HEADER_BYTES_MAX = 32 << 20  # of one file
_FILES_MAX = 4096
_PATTERNS = ("*.safetensors", "*.bin", "*.pt", "*.pth", "*.gguf")
_INDEX = "model.safetensors.index.json"


class _Part(NamedTuple):
    """A run of a file's bytes that is sampled, and its name among all."""

    name: str
    offset: int
    size: int


def folder_of(model: Any, load: Any) -> Path | None:
    """Return where the weights' files lie, None if not on this machine."""
    name = getattr(model, "model_weights", None) or model.model
    if os.path.exists(name):
        return Path(name)
    try:
        from huggingface_hub import snapshot_download

        return Path(
            snapshot_download(
                name,
                revision=model.revision,
                cache_dir=load.download_dir,
                local_files_only=True,
            )
        )
    except Exception:  # a bucket, another hub: whatever it is, no files here
        return None


def _files_of(folder: Path, load_format: str) -> list[Path]:
    """Return the files that vLLM reads of a folder."""
    if folder.is_file():
        return [folder]
    index = folder / _INDEX
    if index.exists() and load_format != "mistral":
        names = set(json.loads(index.read_text())["weight_map"].values())
        return [folder / name for name in sorted(names)]
    for pattern in _PATTERNS:
        found = sorted(folder.glob(pattern))
        # The same weights once more, as one format of them is published.
        if load_format != "mistral":
            found = [
                path
                for path in found
                if not path.name.startswith("consolidated")
            ] or found
        if found:
            return found
    return []


def _tensors_of(path: Path) -> list[_Part]:
    """Return a safetensors file's tensors; raise ValueError if it is none."""
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        (header_bytes,) = struct.unpack("<Q", file.read(8).ljust(8, b"\0"))
        if header_bytes > min(_HEADER_BYTES_MAX, size):
            raise ValueError(f"{path}: its header has {header_bytes} bytes")
        header = json.loads(file.read(header_bytes))
    found = []
    for name, tensor in header.items():
        if name == "__metadata__":
            continue
        begin, end = tensor["data_offsets"]
        shape = f"{name} {tensor['dtype']} {tensor['shape']}"
        found.append(_Part(shape, 8 + header_bytes + begin, end - begin))
    return sorted(found, key=lambda part: part.offset)


def _sample(file: int, part: _Part, most: int) -> bytes:
    """Return up to so many bytes of a part, from places all over it."""
    if part.size <= most:
        return os.pread(file, part.size, part.offset)
    if most < _PIECES * _PIECE_BYTES_MIN:
        return os.pread(file, most, part.offset + part.size // 2)
    size = most // _PIECES
    step = (part.size - size) // (_PIECES - 1)
    return b"".join(
        os.pread(file, size, part.offset + place * step)
        for place in range(_PIECES)
    )


def _parts_of(path: Path) -> list[_Part]:
    """Return what is sampled of a file."""
    if path.suffix == ".safetensors":
        return _tensors_of(path)
    return [_Part("", 0, path.stat().st_size)]


def fingerprint(paths: list[Path], budget: int = 0) -> str:
    """Return a fingerprint of the weights in files.

    Names, kinds, shapes and a sample of each tensor, in the order of their
    names: how they are spread over files says nothing. budget: so many bytes
    are read of all of them, or all.
    """
    files = [(path, _parts_of(path)) for path in paths[:_FILES_MAX]]
    spent = sum(parts[0].offset for _, parts in files if parts)
    count = sum(len(parts) for _, parts in files)
    left = max((budget or READ_BYTES_MAX) - spent, 0)
    most = min(left // max(count, 1), _PIECES * _PIECE_BYTES_MAX)
    if budget:
        whole = sum(part.size for _, parts in files for part in parts)
        most = left // max(count, 1) if whole > left else whole
    most = max(1, most)
    sampled = []
    for path, parts in files:
        with path.open("rb", buffering=0) as opened:
            file = opened.fileno()
            # A page for each piece, not those behind it as well.
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_RANDOM)
            for part in parts:
                data = _sample(file, part, most)
                sampled.append((part.name, part.size, data))
    digest = hashlib.blake2b(digest_size=12)
    for name, size, data in sorted(sampled):
        digest.update(f"{len(name)}:{name}{size}:".encode())
        digest.update(data)
    return digest.hexdigest()


def weights_text(model: Any, load: Any) -> str | None:
    """Return what names the weights, None if nothing here can."""
    load_format = str(getattr(load, "load_format", "auto"))
    if load_format == "dummy":
        return "dummy"
    folder = folder_of(model, load)
    if folder is None:
        return None
    try:
        paths = _files_of(folder, load_format)
        return f"files {fingerprint(paths)}" if paths else None
    except (OSError, ValueError, KeyError, TypeError):
        return None
