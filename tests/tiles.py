"""`python -m tests.tiles [pytest arguments]`: the native tests on the kernels for AMX, with its tiles made in C (tests/tiles.h).

It runs on any x86-64 with AVX-512 and its products of bf16. The extension is built into `build/tiles`. The tests run once for
each instruction set with tiles.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from ptir_tools.engines import native
from tests.mutate.native import PLACE, TILES, extension, has_compiler
from tests.mutate.rooms import ROOT

ISAS = ("amxf32", "amxbf16", "amxint8")
TESTS = ("tests/engines/native/test_sizes.py", "-k", "not instruction_set", "-m", "not campaign")


def is_possible() -> bool:
    """Whether this machine runs everything of these kernels but tiles, and can build them."""
    return native.available() and "avx512bf16" in native.kernels().ISAS and has_compiler()


def built(folder: Path) -> Path:
    """The extension with tiles in C. Raises SystemExit when it does not compile."""
    folder.mkdir(parents=True, exist_ok=True)
    if (made := extension(folder, None, folder, TILES)) is None:
        raise SystemExit("the extension was not built")
    return made


def environment(library: Path, isa: str) -> dict[str, str]:
    """The variables with which a process uses this extension and this instruction set, besides those of this one."""
    hook = str(ROOT / "tests" / "mutate" / "hook")
    return {"PYTHONPATH": hook, "PTIR_MUTANT": f"{PLACE}{os.pathsep}{library}", "PTIR_ISA": isa}


def main(args: list[str]) -> int:
    """Build, run, and give the largest exit code of the tests."""
    if not is_possible():
        raise SystemExit(__doc__)
    library = built(ROOT / "build" / "tiles")
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", *(args or TESTS)]
    variables = [{**os.environ, **environment(library, isa)} for isa in ISAS]
    return max(subprocess.run(command, cwd=ROOT, env=v, check=False).returncode for v in variables)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
