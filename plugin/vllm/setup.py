# SPDX-License-Identifier: Apache-2.0
"""Puts the library and its headers into the package.

The library is the one that LIBKVPULL names at build time, else it is built
from the C sources: those beside this package in kvpull's own tree, or those
that a source distribution carries in native/. Nothing else is built from,
wherever this folder was unpacked.
"""

import os
import posixpath
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from setuptools import Distribution, setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:  # setuptools before 70.1
    from wheel.bdist_wheel import bdist_wheel

HERE = Path(__file__).resolve().parent
CARRIED = HERE / "native"
RELATIVE_LINK = re.compile(r"\]\((?![a-z]+:|#)([^)\s]+)\)")
# A header of each package that it needs, and Debian's name of the package.
NEEDED = {
    "jansson.h": "libjansson-dev",
    "sodium.h": "libsodium-dev",
    "liburing.h": "liburing-dev",
    "infiniband/verbs.h": "libibverbs-dev",
    "rdma/rdma_cma.h": "librdmacm-dev",
}


def sources() -> Path:
    """Return the folder of the C sources."""
    if CARRIED.is_dir():
        return CARRIED
    tree = HERE.parents[1]
    # Some stranger's Makefile may stand there.
    if HERE == tree / "plugin/vllm" and (tree / "plugin/kvpull.map").exists():
        return tree
    sys.exit(
        f"kvpull-vllm: no C sources in {CARRIED} and no kvpull tree around "
        f"{HERE}: build from the sdist or a whole checkout, or set LIBKVPULL "
        "to a built libkvpull.so.1 and KVPULL_INCLUDE to its headers"
    )


def folders(tree: Path) -> list[str]:
    """Return the names of those that the Makefile compiles."""
    routes = {path.parent.name for path in tree.glob("*/*.c")} - {"examples", "tools"}
    return ["include", "plugin", *sorted(routes)]


def check_tools(compiler: list[str]) -> None:
    """End with the names of what is missing to build the library."""
    missing = [
        tool
        for tool in (compiler[0], "make")
        if shutil.which(tool) is None
    ]
    if not missing:
        missing = [
            package
            for header, package in NEEDED.items()
            if subprocess.run(
                [*compiler, "-E", "-include", header, "-"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                check=False,
            ).returncode
        ]
    if missing:
        sys.exit(
            "kvpull-vllm: to build libkvpull these are missing (names of "
            f"Debian's packages): {' '.join(missing)}; a wheel needs none of "
            "them"
        )


def library(compiler: list[str]) -> Path:
    """Return libkvpull.so.1, built and stripped unless LIBKVPULL names one."""
    named = os.environ.get("LIBKVPULL")
    if named:
        return Path(named)
    check_tools(compiler)
    tree = sources()
    stripped = "build/release/stripped/libkvpull.so.1"
    # Said in full: a make that runs pip may have another folder.
    subprocess.run(
        [
            *("make", "-C", str(tree), f"-j{os.cpu_count()}"),
            *(stripped, "B=build/release", "STRIP=1"),
        ],
        check=True,
    )
    return tree / stripped


def headers() -> Path:
    """Return the folder of the public headers."""
    named = os.environ.get("KVPULL_INCLUDE")
    return Path(named) if named else sources() / "include/kvpull"


class BuildPy(build_py):
    """build_py that adds what is not Python."""

    def run(self) -> None:
        """Copy the modules, then the library and the headers."""
        if getattr(self, "editable_mode", False):
            sys.exit(
                "kvpull-vllm: an editable install leaves no library beside "
                f"the modules: say pip install {HERE} without -e"
            )
        super().run()
        compiler = shlex.split(os.environ.get("CC", "cc"))
        target = Path(self.build_lib) / "kvpull_vllm"
        shutil.copy(library(compiler), target / "libkvpull.so.1")
        for header in ("common.h", "connector.h", "reader.h"):
            shutil.copy(headers() / header, target)
        made = target / "libkvpull_log.so"
        # The path is given relative, so that no folder's name gets into it.
        subprocess.run(
            [
                *compiler,
                *("-O2", "-fPIC", "-shared", "-Wl,-s,-z,relro,-z,now,-z,nodelete"),
                *("-Wl,--build-id=none", "log.c", "-o", made.resolve()),
            ],
            cwd=HERE,
            check=True,
        )


class Sdist(sdist):
    """sdist that carries the C sources, too."""

    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        """Copy the Python side, then what the library is built from."""
        super().make_release_tree(base_dir, files)
        tree = sources()
        native = Path(base_dir) / "native"
        shutil.copy(tree / "LICENSE", base_dir)
        for name in ("Makefile", *folders(tree)):
            source = tree / name
            if source.is_dir():
                shutil.copytree(
                    source,
                    native / name,
                    ignore=shutil.ignore_patterns("vllm", "build"),
                )
            else:
                native.mkdir(parents=True, exist_ok=True)
                shutil.copy(source, native / name)


class BinaryDistribution(Distribution):
    """A distribution of one platform."""

    def parse_config_files(self, *args: Any, **more: Any) -> None:
        """Read pyproject.toml, and lead README.md's links from PyPI's page."""
        super().parse_config_files(*args, **more)
        facts = self.metadata
        base = f"{facts.project_urls['Source']}/blob/v{facts.version}"
        facts.long_description = RELATIVE_LINK.sub(
            lambda link: "](" + posixpath.join(
                base, posixpath.normpath(f"plugin/vllm/{link[1]}")
            ) + ")",
            facts.long_description,
        )

    def has_ext_modules(self) -> bool:
        """Say that the wheel is not for every platform."""
        return True


class Wheel(bdist_wheel):
    """A wheel of one platform and every Python: cffi opens the library."""

    def get_tag(self) -> tuple[str, str, str]:
        """Return the tag of any Python 3, without an ABI of its own."""
        return ("py3", "none", super().get_tag()[2])


setup(
    cmdclass={"build_py": BuildPy, "sdist": Sdist, "bdist_wheel": Wheel},
    distclass=BinaryDistribution,
)
