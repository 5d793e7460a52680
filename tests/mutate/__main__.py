"""`python -m tests.mutate [--room ROOM] [--count N] [--seed N]`: plant faults, run the tests of each part, list what survives.

The sources stay as they are: a changed file is imported in place of one (a changed extension is built beside), in every process
that the tests start. A fault is killed when a test fails or the tests take too long. The same seed gives the same faults, as
long as the sources are the same. Exit code 1 when some survive that `survivors.md` does not name.
"""

from __future__ import annotations

import argparse
import difflib
import os
import random
import subprocess
import sys
import sysconfig
import tempfile
import time
from functools import cache
from pathlib import Path

from .faults import Fault, of_c, of_python
from .rooms import ROOMS, ROOT, Part

HOOK = Path(__file__).parent / "hook"
ACCEPTED = Path(__file__).parent / "survivors.md"
SECONDS = 150.0  # for the tests of one part
NATIVE = ROOT / "ptir_tools" / "native"
FLAGS = ["-O1", "-std=gnu11", "-w", "-fPIC", "-fwrapv", "-fno-math-errno", "-fno-trapping-math", "-DPy_LIMITED_API=0x030B0000"]


def drawn(room: str, count: int, seed: int) -> list[tuple[Part, Path, Fault]]:
    """The faults of a seed: a part, then a file by its number of faults, then a kind, then a place."""
    rng = random.Random(f"{room} {seed}")
    parts = [(part, {path: list(_faults(path)) for path in part.files()}) for part in ROOMS[room]]
    found: dict[tuple[Path, Fault], Part] = {}
    for _ in range(50 * count):
        part, files = rng.choice(parts)
        path = rng.choices(list(files), [len(f) for f in files.values()])[0]
        kind = rng.choice(sorted({f.kind for f in files[path]}))
        found.setdefault((path, rng.choice([f for f in files[path] if f.kind == kind])), part)
        if len(found) == count:
            break
    return [(part, path, fault) for (path, fault), part in found.items()]


@cache
def _faults(path: Path) -> tuple[Fault, ...]:
    return tuple((of_c if path.suffix == ".c" else of_python)(path.read_bytes()))


def outcome(part: Part, path: Path, fault: Fault, folder: Path) -> str:
    """`killed`, `killed by time`, `killed by the compiler`, or `survived`."""
    changed = folder / path.name
    changed.write_bytes(fault.put(path.read_bytes()))
    if path.suffix == ".c":
        built = extension(folder, changed)
        if built is None:
            return "killed by the compiler"
        changed = built
    source = path if path.suffix == ".py" else ROOT / "ptir_tools" / "_native.so"
    env = {**os.environ, "PTIR_MUTANT": f"{source.resolve()}{os.pathsep}{changed}", "PYTHONPATH": str(HOOK)}
    env |= {"HYPOTHESIS_STORAGE_DIRECTORY": str(folder / "hypothesis"), "OPENBLAS_NUM_THREADS": "1"}
    return judged(part, env)


def judged(part: Part, env: dict[str, str]) -> str:
    """What the tests of a part say in this environment."""
    tests = [str(p) for name in part.tests if (p := ROOT / "tests" / f"test_{name}.py").exists()]
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-m", "not slow", "-p", "no:cacheprovider", "--tb=no", *tests]
    try:
        code = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, timeout=SECONDS, check=False).returncode
    except subprocess.TimeoutExpired:
        return "killed by time"
    return "killed" if code else "survived"


def extension(folder: Path, changed: Path | None) -> Path | None:
    """The extension with one file changed; None when that does not compile."""
    objects = folder.parent / "objects"
    objects.mkdir(exist_ok=True)
    include = ["-I", str(NATIVE), "-I", sysconfig.get_path("include")]
    parts = []
    for source in sorted(NATIVE.glob("*.c")):
        is_changed = changed is not None and source.name == changed.name
        made = (folder if is_changed else objects) / f"{source.stem}.o"
        if is_changed or not made.exists():
            command = ["gcc", *FLAGS, *include, "-c", str(changed if is_changed else source), "-o", str(made)]
            if subprocess.run(command, capture_output=True, check=False).returncode:
                return None
        parts.append(str(made))
    library = folder / "_native.abi3.so"
    linked = subprocess.run(["gcc", "-shared", *parts, "-o", str(library), "-lm"], capture_output=True, check=False)
    return None if linked.returncode else library


def shown(path: Path, fault: Fault) -> str:
    """The lines that a fault changes, as a diff."""
    before = path.read_bytes()
    lines = (text.decode().splitlines() for text in (before, fault.put(before)))
    return "\n".join(line for line in difflib.unified_diff(*lines, n=0, lineterm="") if line[:2] not in ("--", "++", "@@"))


def key(path: Path, fault: Fault) -> str:
    """How `survivors.md` names a fault: the file and the changed lines, not their number."""
    said = "; ".join(line[1:].strip() for line in shown(path, fault).splitlines() if line.startswith("+"))
    return f"{path.relative_to(ROOT)}: `{said}`"


def main() -> int:
    """Exit code 1 when there are survivors that no one has accepted, 2 when tests fail without a fault."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutate", description=__doc__)
    parser.add_argument("--room", choices=ROOMS, action="append")
    parser.add_argument("--count", type=int, default=20, help="faults per room")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--list", action="store_true", help="show the faults and run nothing")
    asked = parser.parse_args()
    accepted, left, total = ACCEPTED.read_text("utf-8"), [], 0
    with tempfile.TemporaryDirectory() as scratch:
        for room in asked.room or ROOMS:
            survivors, sound = 0, dict[Part, bool]()
            faults = drawn(room, asked.count, asked.seed)
            for i, (part, path, fault) in enumerate(faults):
                start, folder = time.monotonic(), Path(scratch) / f"{room}{i}"
                folder.mkdir()
                if not asked.list and part not in sound:
                    sound[part] = judged(part, dict(os.environ)) == "survived"
                if not sound.get(part, True):
                    print(f"without a fault these fail or take too long: {' '.join(part.tests)}")
                    return 2
                said = "drawn" if asked.list else outcome(part, path, fault, folder)
                place = f"{path.relative_to(ROOT)}:{fault.line}"
                print(f"{said:>10} {time.monotonic() - start:4.0f} s  {room} {fault.kind}: {place}", flush=True)
                if said == "survived" or asked.list:
                    print(shown(path, fault), flush=True)
                if said == "survived" and key(path, fault) not in accepted:
                    left.append(key(path, fault))
                survivors += said == "survived"
            total += len(faults)
            print(f"{room}: {len(faults) - survivors} of {len(faults)} killed", flush=True)
    print(f"{total} faults; not killed and not accepted: {len(left)}", *left, sep="\n- ")
    return int(bool(left))


if __name__ == "__main__":
    sys.exit(main())
