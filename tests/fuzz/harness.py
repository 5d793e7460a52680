"""What is tried on a broken program, and what counts as a fault."""

from __future__ import annotations

import io
import os
import random
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from ptir_tools import passes
from ptir_tools.bridges.xla.function import require_jax
from ptir_tools.cli import invoke
from ptir_tools.core import render
from ptir_tools.core.diagnostics import Diagnostics, UsageError
from ptir_tools.core.dialect import Options
from ptir_tools.core.limits import LimitExceeded, Limits
from ptir_tools.core.source import Source
from ptir_tools.core.verify import verify
from ptir_tools.dialects import FORMATS, OWNERS, load_format, reading
from ptir_tools.tools.isolation import Announce, Died, isolated

from .artifacts import artifacts, one_artifact
from .models import one_client, one_model
from .mutations import READABLE, corpus, dictionary, mutated

BATCH = 5_000
GOOD = (0, 1, 2, 3)
_TARGETS = tuple(f.name for f in FORMATS.values())


def read(form: str, text: bytes, limits: Limits | None = None) -> None:
    """Read, verify, and write what verifies. What it raises is a fault, limits excepted."""
    found, options = Diagnostics(), Options(limits=limits or Limits())
    try:
        source = reading.decode(text, "<fuzz>", found, options.limits)
        program = source and reading.read(source, found, options, form)
        if program is None:
            assert found.errors, "no program and no diagnostics"
            return
        verify(program, found, options)
        if not found.errors and (write := load_format(form).write) is not None:
            again = Source("<again>", "".join(write(program, found, options)))
            assert found.errors or reading.read(again, found, options, form) is not None
        for d in found.sorted()[:20]:
            render.text(d)
    except (LimitExceeded, UsageError):
        pass


def one_reader(seed: int) -> str | None:
    """Broken program number `seed` through its reader, at times another; what is wrong, if anything."""
    form, text = mutated(seed)
    draw = random.Random(~seed)
    limits = Limits(nesting=draw.choice((3, 3000))) if draw.random() < 0.05 else None
    read(draw.choice(READABLE) if draw.random() < 0.03 else form, text, limits)
    return None


def command_line(seed: int, form: str) -> list[str]:
    """A command for a program of a format on standard input."""
    draw = random.Random(f"command {seed}")
    ir = OWNERS[form].name
    chosen = ",".join(draw.choices(passes.names(ir), k=draw.randint(1, 3)))
    small = ["--random", "0", "--timeout", "2", "--max-memory", "64M", "--max-iterations", "1000"]
    return draw.choice((
        ["verify"], ["verify", "--diagnostics", "json"], ["verify", "--max-nesting", "5000"], ["fmt"], ["info", "--json"],
        ["stats"], ["hash"], ["plan"], ["plan", "--order", "min-peak"], ["graph", "--to", "dot"], ["fix"], ["canonicalize"],
        ["fix", "--unsafe"],
        ["opt"], ["opt", "-p", chosen], ["lit"],
        ["opt", "--check", "--check-runs", "1", "--max-iterations", "1000"], ["verify", "--split-input"],
        ["run", *small], ["run", "--engine", "reference", *small], ["verify", "--from", draw.choice(READABLE)],
        ["translate", "--to", draw.choice(_TARGETS)], ["translate", "--to", draw.choice(_TARGETS), "--lossy"],
        ["verify", "--strict", "--profile", "strict"],
    ))  # fmt: skip


def one_command(seed: int) -> str | None:
    """Broken program number `seed` through a command; what is wrong, if anything."""
    form, text = mutated(seed)
    words = command_line(seed, form)
    before = sys.stdin, sys.stdout, sys.stderr
    streams = [io.TextIOWrapper(io.BytesIO(b), encoding="utf-8", errors="backslashreplace") for b in (text, b"", b"")]
    sys.stdin, sys.stdout, sys.stderr = streams
    try:
        status = invoke([*words, "-"])
        said = streams[2].buffer.getvalue().decode("utf-8", "replace")  # type: ignore[attr-defined]
    finally:
        sys.stdin, sys.stdout, sys.stderr = before
    if status in GOOD and "Traceback" not in said:
        return None
    return f"`ptir {' '.join(words)}`: exit status {status}: {' '.join(said.split())[:300]}"


TRIALS: dict[str, Callable[[int], str | None]] = {
    "readers": one_reader,
    "commands": one_command,
    "models": one_model,
    "clients": one_client,
    "artifacts": one_artifact,
}


@dataclass(slots=True)
class Outcome:
    """How many inputs were tried in how long, and the seeds of faults by what they have in common."""

    inputs: int = 0
    seconds: float = 0.0
    faults: dict[str, list[int]] = field(default_factory=dict)


def fuzz(what: str, seed: int, count: int, minutes: float | None = None) -> Outcome:
    """Try `count` inputs from `seed` on, in child processes."""
    for form in READABLE:  # once, not in each child
        corpus(), dictionary(form)
        read(form, corpus()[form][0])
    with suppress(UsageError):  # it takes more address space than a child may
        require_jax("StableHLO")
        artifacts()
    found, start = Outcome(), time.monotonic()
    end, last = start + 60 * (minutes or 1e9), seed + count
    while seed < last and time.monotonic() < end:
        stop = min(seed + BATCH, last)
        for said in isolated(lambda announce, first=seed, stop=stop: _work(announce, what, first, stop)):  # type: ignore[misc]
            if isinstance(said, Died):
                _note(found, int(said.during), f"{said.kind}: {said.message}")
                seed = int(said.during) + 1
                break
            if isinstance(said, tuple):
                _note(found, *said)
            else:
                seed = said
        found.seconds = time.monotonic() - start
        found.inputs = seed - (last - count)
    return found


def _work(announce: Announce, what: str, first: int, stop: int) -> Iterator[Any]:
    for seed in range(first, stop):
        announce(str(seed))
        try:
            if (said := TRIALS[what](seed)) is not None:
                yield seed, said
        except MemoryError:
            raise
        except Exception as error:
            frames = [f for f in traceback.extract_tb(error.__traceback__) if "tests" not in f.filename]
            place = f"{os.path.basename(frames[-1].filename)}:{frames[-1].lineno}" if frames else "?"
            yield seed, f"{type(error).__name__} at {place}: {str(error)[:200]}"
    yield stop


def _note(found: Outcome, seed: int, said: str) -> None:
    found.faults.setdefault(said[:80], []).append(seed)
