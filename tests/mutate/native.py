"""The extension with one file of C changed, or with the tiles of AMX made in C (tests/tiles.h)."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from zlib import crc32

from .rooms import ROOT

NATIVE = ROOT / "ptir_tools" / "native"
PLACE = ROOT / "ptir_tools" / "_native.so"  # what the hook replaces
FLAGS = ["-O1", "-std=gnu11", "-w", "-fPIC", "-fwrapv", "-fno-math-errno", "-fno-trapping-math", "-DPy_LIMITED_API=0x030B0000"]
TILES = [f'-DPTIR_TILES="{ROOT / "tests" / "tiles.h"}"']


def extension(folder: Path, changed: Path | None, kept: Path, more: Sequence[str] = (), every: bool = False) -> Path | None:
    """The extension, built in `folder` with `more` flags and with one file `changed`; None when that does not compile.

    What does not include the file is compiled once and `kept`; kernels of other instruction sets, too, unless `every` is asked.
    """
    objects = kept / f"objects-{stamp():08x}-{crc32(' '.join(more).encode()):08x}"
    objects.mkdir(exist_ok=True, parents=True)
    tree = folder / "native"
    tree.mkdir(exist_ok=True)
    name = changed.name if changed is not None else ""
    for file in (f for end in ("c", "h", "inl") for f in NATIVE.glob(f"*.{end}")):
        (tree / file.name).unlink(missing_ok=True)
        (tree / file.name).symlink_to(changed if changed is not None and file.name == name else file)
    parts = []
    for source in sorted(NATIVE.glob("*.c")):
        made = objects / f"{source.stem}.o"
        if name in includes(source.name) and (every or source.stem not in others() or not made.exists()):
            made = folder / made.name
        if not made.exists():
            from_tree = NATIVE if made.parent == objects else tree
            include = ["-I", str(from_tree), "-I", sysconfig.get_path("include")]
            command = ["gcc", *FLAGS, *more, *include, "-c", str(from_tree / source.name), "-o", str(made)]
            if subprocess.run(command, capture_output=True, check=False).returncode:
                return None
        parts.append(str(made))
    library = folder / "_native.abi3.so"
    command = ["gcc", "-shared", "-pthread", *more, *parts, "-o", str(library), "-lm"]
    return None if subprocess.run(command, capture_output=True, check=False).returncode else library


@cache
def others() -> frozenset[str]:
    """The kernels of those instruction sets that the tests of the parts do not run on this machine."""
    asked = [sys.executable, "-c", "from ptir_tools.engines import native; print(native.kernels().ISA)"]
    used = f"isa_{subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()}"
    apart = {"isa_avx2", "isa_baseline"}  # the faster ones take kernels from each other
    return frozenset({p.stem for p in NATIVE.glob("isa_*.c")} - {used} if used in apart else apart)


def has_compiler() -> bool:
    """Whether the extension can be built here."""
    return shutil.which("gcc") is not None


@cache
def stamp() -> int:
    """Another one when a source changes."""
    return crc32(b"".join(p.read_bytes() for p in [*sorted(NATIVE.iterdir()), ROOT / "tests" / "tiles.h"] if p.is_file()))


@cache
def includes(name: str) -> frozenset[str]:
    """A C file and what it includes."""
    found = re.findall(r'^#include "([^"]+)"', (NATIVE / name).read_text("utf-8"), re.MULTILINE)
    return frozenset([name]).union(*map(includes, found))
