"""`python -m tests.mutate [--room ROOM] [--count N] [--seed N]`: plant faults, run the tests of each part, list what survives.

The sources stay as they are: a changed file is imported in place of one (a changed extension is built in a scratch folder), in
every process that the tests start. A fault is killed when a test fails or the tests take too long. The same seed gives the same
faults, as long as the sources are the same. With `--results FILE` a run goes on where another one ended. Exit code 1 when some
survive that `survivors.md` does not name.
"""

from __future__ import annotations

import argparse
import difflib
import json
import os
import random
import re
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from zlib import crc32

from .faults import Fault, of_c, of_python
from .rooms import ROOMS, ROOT, Part

HOOK = Path(__file__).parent / "hook"
ACCEPTED = Path(__file__).parent / "survivors.md"
SECONDS = 240.0  # for the tests of one part
BY_TIME = "killed by time"
UNDECIDED = "undecided"  # the tests take too long without a fault, too: no result is kept
_NO_SUCH_TEST = 4  # of pytest
NATIVE = ROOT / "ptir_tools" / "native"
OTHER_ISAS = ("isa_avx2", "isa_baseline")  # kernels of the instruction sets that the tests of the parts do not ask for
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
    return tuple((of_python if path.suffix == ".py" else of_c)(path.read_bytes()))


def outcome(part: Part, path: Path, fault: Fault, folder: Path) -> str:
    """`survived`, `undecided`, or `killed by` a test, time or the compiler."""
    changed = folder / path.name
    changed.write_bytes(fault.put(path.read_bytes()))
    if path.suffix == ".py":
        return judged(part, path, changed)
    built = extension(folder, changed)
    return "killed by the compiler" if built is None else judged(part, path, built)


def judged(part: Part, path: Path, changed: Path) -> str:
    """What the tests of a part say with one file changed: a source, or the extension; those named like the file come first."""
    words = set(re.split(r"[^a-z]+", path.stem)) - {"rules", "ops", "isa"}
    names = sorted(part.tests, key=lambda name: words.isdisjoint(name.split("_")))
    tests = [f"tests/test_{name}.py" for name in names]
    said = tested(tests, path, changed)
    if said == BY_TIME and tested(tests, Path(__file__), Path(__file__)) == BY_TIME:
        return UNDECIDED
    if said.startswith("tests/"):
        require_sound(said, path if path.suffix == ".py" else NATIVE / "kernels.h", changed.parent.parent)
        return f"killed by {said}"
    return said or "survived"


def tested(tests: list[str], path: Path, changed: Path) -> str:
    """The first test that fails, with one file changed; `killed by time`, or nothing when all pass."""
    source = path if path.suffix == ".py" else ROOT / "ptir_tools" / "_native.so"
    env = {**os.environ, "PTIR_MUTANT": f"{source.resolve()}{os.pathsep}{changed}", "PYTHONPATH": str(HOOK)}
    env |= {"HYPOTHESIS_STORAGE_DIRECTORY": str(changed.parent / "hypothesis"), "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-m", "not slow", "-p", "no:cacheprovider", "--tb=no", *tests]
    try:
        ran = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, timeout=SECONDS, check=False, text=True)
    except subprocess.TimeoutExpired:
        return BY_TIME
    if ran.returncode in (0, _NO_SUCH_TEST):
        return ""
    failed = re.search(r"^(?:FAILED|ERROR) (tests/.*?)(?: - .*)?$", ran.stdout, re.MULTILINE)
    return failed[1] if failed else tests[0]


def require_sound(test: str, path: Path, scratch: Path) -> None:
    """Raise SystemExit for a test that fails without a fault. An extension is built as those with a fault are."""
    if (test, path) in _SOUND:
        return
    same = path
    if path.suffix != ".py":
        (folder := scratch / "sound").mkdir(exist_ok=True)
        same = folder / "_native.abi3.so"
        if not same.exists() and extension(folder, path) is None:
            sys.exit("the extension is not built")
    if tested([test], path, same):
        sys.exit(f"without a fault this fails or takes too long: {test}")
    _SOUND.add((test, path))


_SOUND: set[tuple[str, Path]] = set()


def extension(folder: Path, changed: Path) -> Path | None:
    """The extension with one file changed; None when that does not compile. What does not include the file is compiled once."""
    objects = folder.parent / "objects"
    objects.mkdir(exist_ok=True)
    tree = folder / "native"
    tree.mkdir()
    for file in (f for end in ("c", "h", "inl") for f in NATIVE.glob(f"*.{end}")):
        (tree / file.name).symlink_to(changed if file.name == changed.name else file)
    parts = []
    for source in sorted(NATIVE.glob("*.c")):
        made = objects / f"{source.stem}.o"
        if changed.name in includes(source.name) and (source.stem not in OTHER_ISAS or not made.exists()):
            made = folder / made.name
        if not made.exists():
            from_tree = NATIVE if made.parent == objects else tree
            include = ["-I", str(from_tree), "-I", sysconfig.get_path("include")]
            command = ["gcc", *FLAGS, *include, "-c", str(from_tree / source.name), "-o", str(made)]
            if subprocess.run(command, capture_output=True, check=False).returncode:
                return None
        parts.append(str(made))
    library = folder / "_native.abi3.so"
    command = ["gcc", "-shared", "-pthread", *parts, "-o", str(library), "-lm"]
    return None if subprocess.run(command, capture_output=True, check=False).returncode else library


@cache
def includes(name: str) -> frozenset[str]:
    """A C file and what it includes."""
    found = re.findall(r'^#include "([^"]+)"', (NATIVE / name).read_text("utf-8"), re.MULTILINE)
    return frozenset([name]).union(*map(includes, found))


def shown(path: Path, fault: Fault) -> str:
    """The lines that a fault changes, as a diff."""
    before = path.read_bytes()
    lines = (text.decode().splitlines() for text in (before, fault.put(before)))
    return "\n".join(line for line in difflib.unified_diff(*lines, n=0, lineterm="") if line[:2] not in ("--", "++", "@@"))


def key(path: Path, fault: Fault) -> str:
    """How `survivors.md` names a fault: the file and the changed lines, not their number; a statement left out by itself."""
    lines = shown(path, fault).splitlines()
    before, after = ("; ".join(line[1:].strip() for line in lines if line.startswith(sign)) for sign in "-+")
    return f"{path.relative_to(ROOT)}: `{f'without {before}' if after == 'pass' else after}`"


def identity(path: Path, fault: Fault) -> str:
    """What a results file knows a fault by: it is another one when its file changes."""
    return f"{path.relative_to(ROOT)} {crc32(path.read_bytes()):08x} {fault.start} {fault.end} {fault.text}"


def main() -> int:
    """Exit code 1 when there are survivors that no one has accepted. Raises SystemExit when a test fails without a fault."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutate", description=__doc__)
    parser.add_argument("--room", choices=ROOMS, action="append")
    parser.add_argument("--count", type=int, default=20, help="faults per room")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--list", action="store_true", help="show the faults and run nothing")
    parser.add_argument("--results", type=Path, help="keep what was found in this file, and do not do again what is in it")
    parser.add_argument("--again", action="store_true", help="judge what survived before once more")
    parser.add_argument("--minutes", type=float, default=1e9, help="stop after so many")
    asked = parser.parse_args()
    rooms, end = asked.room or list(ROOMS), time.monotonic() + 60 * asked.minutes
    before = dict(_results(asked.results)) if asked.results else {}
    accepted, left, totals, killed = ACCEPTED.read_text("utf-8"), [], Counter[str](), Counter[str]()
    faults = [[(room, *found) for found in drawn(room, asked.count, asked.seed)] for room in rooms]
    # A run that is stopped has some of each room.
    in_turn = [row[i] for i in range(asked.count) for row in faults if i < len(row)]
    with tempfile.TemporaryDirectory() as scratch:
        for i, (room, part, path, fault) in enumerate(in_turn):
            said = before.get(identity(path, fault), "")
            if not said or (said == "survived" and asked.again):
                if time.monotonic() > end:
                    break
                start, folder = time.monotonic(), Path(scratch) / str(i)
                folder.mkdir()
                said = "drawn" if asked.list else outcome(part, path, fault, folder)
                print(
                    f"{said:>10} {time.monotonic() - start:4.0f} s  {room} {fault.kind}: {path.relative_to(ROOT)}:{fault.line}",
                    flush=True,
                )
                if said == UNDECIDED:
                    continue
                if asked.results and not asked.list:
                    with open(asked.results, "a", encoding="utf-8") as file:
                        print(json.dumps([identity(path, fault), said]), file=file)
                if said == "survived" or asked.list:
                    print(shown(path, fault), flush=True)
            totals[room] += 1
            killed[room] += said != "survived"
            if said == "survived" and key(path, fault) not in accepted:
                left.append(key(path, fault))
    print(*(f"{room}: {killed[room]} of {totals[room]} killed" for room in totals), sep="\n")
    print(f"{totals.total()} faults, {killed.total()} killed; not killed and not accepted: {len(left)}", *left, sep="\n- ")
    return int(bool(left))


def _results(path: Path) -> Iterator[tuple[str, str]]:
    """What a results file says of each fault, the last word last."""
    if path.exists():
        for line in path.read_text("utf-8").splitlines():
            found, said = json.loads(line)
            yield found, said


if __name__ == "__main__":
    sys.exit(main())
