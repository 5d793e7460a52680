"""`ptoas DIR`: files in the assembler's text: whether they verify, and what flags, barriers and bytes each side needs.

`--assembler 'COMMAND {source} {output}'` writes C++ of a file, with flags of its own. The counts of its text are printed next to
those of `--to pto-cpp`, with and without loading ahead. None of the assembler is here.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import tempfile
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from ptir_tools import api
from ptir_tools.core.diagnostics import Diagnostics, Rejected
from ptir_tools.core.dialect import Options
from ptir_tools.core.verify import verify
from ptir_tools.dialects.pto.targets import A3, retarget, target_of
from ptir_tools.dialects.pto.text.cpp import write
from ptir_tools.passes import PassContext, run_pipeline
from tests.suites.report import Report

PREPARED = "pto-canonicalize,pto-canonicalize-views,pto-infer-tile-info,pto-legalize,pto-canonicalize"
PLACED = f"{PREPARED},pto-bufferize,pto-canonicalize,pto-insert-events"  # without loading ahead
ARCH = re.compile(r"--pto-arch[= ](a3|a5)|pto\.target_arch\s*=\s*\"(a3|a5)\"")
STARTS = re.compile(r"^(?:__global__ |static |inline )*AICORE (?:inline )?void (\w+)", re.MULTILINE)
SIZES = {"float": 4, "half": 2, "bfloat16_t": 2, "int64_t": 8, "uint64_t": 8, "double": 8}
TILE = re.compile(r"Tile<TileType::(\w+), (\w+), (\d+), (\d+), [^>]*> (\w+)(?:\([^)]*\))?;")
OWN_TAIL = "ptoas_auto_sync_tail"  # the assembler's function for the last barrier


@dataclass(slots=True)
class Counts:
    """What a text in C++ needs: flags in a core and between cores, barriers, and the end of the last tile of each space."""

    flags: int = 0
    between: int = 0
    barriers: int = 0
    bytes: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, text: str) -> Counts:
        """The counts of a text."""
        made = cls()
        starts = [*STARTS.finditer(text)]
        for m, following in zip(starts, [*(x.start() for x in starts[1:]), len(text)], strict=True):
            if m[1] != OWN_TAIL:
                made.add(text[m.start() : following])
        return made

    def add(self, function: str) -> None:
        """Add those of one function."""
        self.flags += len(re.findall(r"\bset_flag\(", function))
        self.between += len(re.findall(r"\b(?:ffts_cross_core_sync|set_intra_block)\(", function))
        self.barriers += len(re.findall(rf"\b(?:pipe_barrier|{OWN_TAIL})\(", function))
        numbers = {m[1]: int(m[2]) for m in re.finditer(r"const \w+ (\w+) = (-?\d+);", function)}
        tiles = {m[5]: (m[1], int(m[3]) * int(m[4]) * size(m[2])) for m in TILE.finditer(function)}
        for name, at in re.findall(r"TASSIGN\((\w+), (?:\(\w+\) )?(\w+)\);", function):
            start = int(at) if at.isdecimal() else numbers.get(at)
            if name in tiles and start is not None:
                space, extent = tiles[name]
                self.bytes[space] = max(self.bytes.get(space, 0), start + extent)


def size(element: str) -> int:
    """The bytes of an element, by its name in C++."""
    bits = re.search(r"\d+", element)
    return SIZES.get(element) or (int(bits[0]) // 8 if bits else 1)


def ours(file: Path, pipeline: str, target: str) -> Counts | None:
    """The counts of `--to pto-cpp`; None where that refuses the file."""
    try:
        program = api.read(file.read_text(), "ptoas")
        retarget(program, target)
        found = Diagnostics(program.source)
        run_pipeline(program, pipeline.replace("NAME", target), PassContext(diagnostics=found))
        text = "".join(write(program, found, Options(target=target)))
    except Rejected:
        return None
    return Counts.of(text) if not found.errors else None


def theirs(file: Path, assembler: str) -> Counts | None:
    """The counts of the assembler's C++; None where it refuses the file."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder, "out.cpp")
        words = [w.format(source=file, output=output) for w in shlex.split(assembler)]
        ran = subprocess.run(words, capture_output=True, check=False)
        return Counts.of(output.read_text()) if ran.returncode == 0 and output.exists() else None


def verified(file: Path) -> str:
    """Nothing if a file verifies, else the first error."""
    program = api.read(file.read_text(), "ptoas")
    verify(program, found := Diagnostics(program.source), Options(target=(target_of(program, Options()) or A3).name))
    return next((f"{d.code}: {d.message}" for d in found if d.severity == "error"), "")


def run(only: str, every: int, folder: str, assembler: str) -> Report:
    """All files of a folder."""
    report = Report("ptoas")
    files = [f for f in sorted(Path(folder).rglob("*.pto")) if only in str(f)][::every]
    rows = list[tuple[str, Counts, Counts, Counts]]()
    for file in files:
        name = str(file.relative_to(folder))
        try:
            why = verified(file)
        except Rejected as rejected:
            first = rejected.diagnostics[0]
            why = f"{first.code}: {first.message}"
        if why:
            report.refused[name] = why
            continue
        report.right.append(name)
        if assembler and (other := theirs(file, assembler)) is not None:
            stated = ARCH.search(file.read_text())
            target = next(filter(None, stated.groups()), "a3") if stated else "a3"
            plain, ahead = ours(file, PLACED, target), ours(file, "pto{target=NAME}", target)
            if plain is not None and ahead is not None:
                rows.append((name, plain, ahead, other))
    print("\n".join(table(rows)))
    return report


def table(rows: list[tuple[str, Counts, Counts, Counts]]) -> list[str]:
    """The counts side by side: ours, ours with loads ahead, the assembler's."""
    if not rows:
        return []
    lines = [
        "flags (+ those between cores), barriers and bytes of `--to pto-cpp`, of that with loads ahead, and of the assembler"
    ]
    totals: list[Counter[str]] = [Counter(), Counter(), Counter()]
    worse: dict[str, list[str]] = defaultdict(list)
    for name, *counts in rows:
        shown = []
        for total, c in zip(totals, counts, strict=True):
            total.update({"flags": c.flags, "between cores": c.between, "barriers": c.barriers, "bytes": sum(c.bytes.values())})
            listed = " ".join(f"{space}={n}" for space, n in sorted(c.bytes.items()))
            shown.append(f"{c.flags:3}{f' + {c.between}' if c.between else ''}, {c.barriers:2} {listed}")
        plain, _, other = counts
        if plain.between > other.between:  # one of the two cores does not wait for the other
            worse["flags between cores, that is more"].append(name)
            continue
        lines.append(f"  {name}: " + " | ".join(shown))
        worse["flags"] += [name] * (plain.flags > other.flags)
        worse["barriers"] += [name] * (plain.barriers > other.barriers)
        worse["bytes"] += [name] * any(n > other.bytes.get(space, 0) for space, n in plain.bytes.items())
    lines.append(f"  {len(rows)} programs: " + " | ".join(", ".join(f"{n} {what}" for what, n in t.items()) for t in totals))
    lines += [f"  more {what} than the assembler: {len(names)}: {', '.join(names)}" for what, names in worse.items() if names]
    return lines
