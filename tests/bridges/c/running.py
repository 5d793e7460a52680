"""Compiles a program's C with sanitizers and runs it as a process of its own."""

from __future__ import annotations

import resource
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from ptir_tools.bridges.c import format as c_format
from ptir_tools.core import symbols
from ptir_tools.core.arrays import numpy_dtype
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Options, Program
from ptir_tools.core.types import TensorType, TupleType, Type

COMPILERS = [c for c in ("gcc", "clang") if shutil.which(c)]
STRICT = ["-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-D_POSIX_C_SOURCE=200112L"]
SANITIZED = ["-O1", "-g", "-DPTIR_PLAIN", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
FAST = ["-O2"]


def unbounded() -> None:
    """Let a new process take address space, of which a sanitizer reserves terabytes, where a soft limit is set."""
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (hard, hard))


def written(program: Program) -> str | None:
    """The C of a verified program of PTIR; None where C cannot express it."""
    diagnostics = Diagnostics(program.source)
    text = "".join(c_format.write(program, diagnostics, Options()))
    return None if diagnostics.errors else text


SEED = 7


def harness(program: Program, entry: str, seeded: bool, numbers: Mapping[str, int], shapes: list[tuple[int, ...]]) -> str:
    """A `main` that reads the inputs from standard input and writes the results."""
    params = flat([p.type for p in program.main.params])
    names = sorted(symbols.symbols(program))
    sizes = [f"INT64_C({numbers[n]})" for n in names]
    lines = ["#include <stdio.h>", "#include <stdlib.h>", "int main(void)", "{"]
    args = []
    types = [t.dtype for t in (*params, *flat(program.main.result_types))]
    for i, (dtype, shape) in enumerate(zip(types, shapes, strict=True)):
        n = int(np.prod(shape, dtype=object)) * dtype.size
        lines.append(f"    char *b{i} = malloc({n} ? {n} : 1);")
        if i < len(params):
            lines.append(f"    if (fread(b{i}, 1, {n}, stdin) != {n}) return 9;")
        args.append(f"(void *)b{i}")
    lines.append(f"    size_t size = {entry}_arena({', '.join(sizes)});")
    lines += ["    void *arena;", "    if (posix_memalign(&arena, 64, size ? size : 1)) return 9;"]
    lines.append(f"    int bad = {entry}({', '.join(['arena', *[f'{SEED}'] * seeded, *sizes, *args])});")
    lines.append("    if (bad) return bad;")
    for i, shape in enumerate(shapes[len(params) :], len(params)):
        n = int(np.prod(shape, dtype=object)) * types[i].size
        lines.append(f"    fwrite(b{i}, 1, {n}, stdout);")
    lines += [f"    free(b{i});" for i in range(len(shapes))]
    return "\n".join([*lines, "    free(arena);", "    return 0;", "}", ""])


def run(
    program: Program,
    text: str,
    inputs: Mapping[str, np.ndarray],
    expected: Mapping[str, np.ndarray],
    folder: Path,
    compiler: str = "gcc",
    flags: list[str] | None = None,
) -> tuple[int, dict[str, np.ndarray]]:
    """The status and the results of the compiled program."""
    numbers: dict[str, int] = {}
    for (name, x), t in zip(inputs.items(), flat([p.type for p in program.main.params]), strict=True):
        symbols.unify(t, t.with_shape(x.shape), numbers, name)
    shapes = [x.shape for x in (*inputs.values(), *expected.values())]
    entry = text.split("_arena(")[0].rpartition(" ")[2]
    source = folder / "program.c"
    source.write_text(text + harness(program, entry, "uint64_t seed" in text.split("_arena(")[-1], numbers, shapes))
    command = [compiler, *(STRICT if flags is None else []), *(SANITIZED if flags is None else flags)]
    made = subprocess.run([*command, "-o", folder / "program", source, "-lm"], capture_output=True, text=True)
    assert made.returncode == 0, made.stderr[:3000]
    data = b"".join(np.ascontiguousarray(x).tobytes() for x in inputs.values())
    settings = {"ASAN_OPTIONS": "detect_leaks=0"}
    done = subprocess.run([folder / "program"], input=data, capture_output=True, timeout=60, env=settings, preexec_fn=unbounded)
    assert done.returncode in (0, 1, 2, 3), done.stderr[:3000]
    results, at = {}, 0
    if done.returncode == 0:
        for (name, x), t in zip(expected.items(), flat(program.main.result_types), strict=True):
            kind = numpy_dtype(t.dtype)
            results[name] = np.frombuffer(done.stdout, kind, x.size, at).reshape(x.shape)
            at += x.size * kind.itemsize
    return done.returncode, results


def flat(types: Sequence[Type]) -> list[TensorType]:
    """The tensors of these types, in order."""
    return [part for t in types for part in (flat(t.elements) if isinstance(t, TupleType) else [t])]  # type: ignore[list-item]
