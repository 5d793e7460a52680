"""`python -m tests.mutate [--room ROOM] [--count N] [--seed N]`: plant faults, run the tests of each part, list what survives.

The sources stay as they are: a changed file is imported in place of one (a changed extension is built in a scratch folder), in
every process that the tests start. A fault is killed when a test fails or the tests take too long. The same seed gives the same
faults, as long as the sources are the same. With `--keep FOLDER` a run goes on where another one ended. Exit code 1 when some
survive that `survivors.md` does not name.
"""

from __future__ import annotations

import argparse
import difflib
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from zlib import crc32

from .faults import Fault, of_c, of_python
from .native import PLACE, TILES, extension, stamp
from .rooms import ROOMS, ROOT, Part
from .tests import killed_by

ACCEPTED = Path(__file__).parent / "survivors.md"


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


def of_line(name: str, line: str) -> Iterator[tuple[str, Part, Path, Fault]]:
    """The faults of a line, for the first part that has its file."""
    path = ROOT / name
    room, part = next((room, part) for room, parts in ROOMS.items() for part in parts if path in part.files())
    yield from ((room, part, path, fault) for fault in _faults(path) if fault.line == int(line))


def outcome(part: Part, path: Path, fault: Fault, folder: Path, kept: Path) -> str:
    """`survived`, or `killed by` a test, time, a signal or the compiler."""
    changed, sound = folder / path.name, None
    changed.write_bytes(fault.put(path.read_bytes()))
    if path.suffix != ".py":
        more = TILES if part.isa else []
        sound = PLACE, _without_fault(kept, more)
        if (changed := extension(folder, changed, kept, more)) is None:
            return "killed by the compiler"
    said = killed_by(part, kept, path, fault.line, changed, sound)
    return f"killed by {said}" if said else "survived"


def _without_fault(kept: Path, more: Sequence[str]) -> Path:
    """The extension built as those with a fault are."""
    (folder := kept / f"sound-{stamp():08x}{'-with-tiles' if more else ''}").mkdir(exist_ok=True)
    made = folder / "_native.abi3.so"
    if not made.exists() and extension(folder, None, kept, more) is None:
        sys.exit("the extension is not built")
    return made


def shown(path: Path, fault: Fault) -> str:
    """The lines that a fault changes, as a diff."""
    before = path.read_bytes()
    lines = (text.decode().splitlines() for text in (before, fault.put(before)))
    return "\n".join(line for line in difflib.unified_diff(*lines, n=0, lineterm="") if line[:2] not in ("--", "++", "@@"))


def key(path: Path, fault: Fault) -> str:
    """How `survivors.md` names a fault: the file and the changed lines, not their number; a statement left out by itself."""
    lines = shown(path, fault).splitlines()
    before, after = ("; ".join(line[1:].strip() for line in lines if line.startswith(sign)) for sign in "-+")
    return f"{path.relative_to(ROOT)}: `{f'without {before}' if after in ('pass', ';') else after}`"


def identity(path: Path, fault: Fault) -> str:
    """What a results file knows a fault by: it is another one when its file changes."""
    return f"{path.relative_to(ROOT)} {crc32(path.read_bytes()):08x} {fault.start} {fault.end} {fault.text}"


def main() -> int:
    """Exit code 1 when there are survivors that no one has accepted."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutate", description=__doc__)
    parser.add_argument("--room", choices=ROOMS, action="append")
    parser.add_argument("--count", type=int, default=20, help="faults per room")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--at", action="append", metavar="FILE:LINE", help="the faults of this line, all of them, and no others")
    parser.add_argument("--list", action="store_true", help="show the faults and run nothing")
    parser.add_argument("--keep", type=Path, help="keep what was found in this folder, and do not do again what is in it")
    parser.add_argument("--again", action="store_true", help="judge what survived before once more")
    parser.add_argument("--minutes", type=float, default=1e9, help="stop after so many")
    asked = parser.parse_args()
    rooms, end = asked.room or list(ROOMS), time.monotonic() + 60 * asked.minutes
    accepted, left, totals, killed = ACCEPTED.read_text("utf-8"), [], Counter[str](), Counter[str]()
    drawn_of = [] if asked.at else rooms
    faults = [[(room, *found) for found in drawn(room, asked.count, asked.seed)] for room in drawn_of]
    # A run that is stopped has some of each room.
    in_turn = [row[i] for i in range(asked.count) for row in faults if i < len(row)]
    if asked.at:
        in_turn = [found for place in asked.at for found in of_line(*place.rsplit(":", 1))]
    if asked.list:
        for room, _, path, fault in in_turn:
            print(f"{room} {fault.kind}: {path.relative_to(ROOT)}:{fault.line}", shown(path, fault), sep="\n")
        return 0
    with tempfile.TemporaryDirectory() as scratch:
        kept = (asked.keep or Path(scratch)).resolve()
        kept.mkdir(exist_ok=True)
        results = kept / "results"
        before = dict(_results(results))
        for room, part, path, fault in in_turn:
            said = before.get(identity(path, fault), "")
            if not said or (said == "survived" and asked.again):
                if time.monotonic() > end:
                    break
                start = time.monotonic()
                with tempfile.TemporaryDirectory(dir=scratch) as folder:
                    said = outcome(part, path, fault, Path(folder), kept)
                took, at = time.monotonic() - start, f"{path.relative_to(ROOT)}:{fault.line}"
                print(f"{took:4.0f} s  {room} {fault.kind}: {at}: {said}", flush=True)
                with open(results, "a", encoding="utf-8") as file:
                    print(json.dumps([identity(path, fault), said]), file=file)
                if said == "survived":
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
