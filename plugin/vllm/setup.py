# SPDX-License-Identifier: Apache-2.0
"""Puts the library and its headers into the package.

The library is the one that LIBKVPULL names at build time, else that of
this source tree, which is built if it is not there.
"""

import os
import shlex
import shutil
import subprocess
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.build_py import build_py

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]


def library() -> Path:
    """Return libkvpull.so.1, built if need be."""
    named = os.environ.get("LIBKVPULL")
    if named:
        return Path(named)
    # Said in full: a make that runs pip may have another folder.
    subprocess.run(
        ["make", "-C", str(ROOT), "lib", "B=build/release"], check=True
    )
    return ROOT / "build/release/libkvpull.so.1"


class BuildPy(build_py):
    """build_py that adds what is not Python."""

    def run(self) -> None:
        """Copy the modules, then the library and the headers."""
        super().run()
        target = Path(self.build_lib) / "kvpull_vllm"
        shutil.copy(library(), target / "libkvpull.so.1")
        for header in ("common.h", "connector.h"):
            shutil.copy(ROOT / "include/kvpull" / header, target)
        source, made = HERE / "log.c", target / "libkvpull_log.so"
        compiler = shlex.split(os.environ.get("CC", "cc"))
        subprocess.run(
            [*compiler, "-O2", "-fPIC", "-shared", source, "-o", made],
            check=True,
        )


class BinaryDistribution(Distribution):
    """A distribution of one platform."""

    def has_ext_modules(self) -> bool:
        """Say that the wheel is not for every platform."""
        return True


setup(cmdclass={"build_py": BuildPy}, distclass=BinaryDistribution)
