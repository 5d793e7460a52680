"""PTIR to Tiny and to MIND with numbers as operands: each elementwise op, of each dtype, with a number in each place, is held to
its row in docs/translation.md."""

from __future__ import annotations

import itertools
import re
from fnmatch import fnmatchcase
from pathlib import Path

import numpy as np
import pytest

from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Options
from ptir_tools.core.ir import ELEMENTWISE
from ptir_tools.core.source import Source
from ptir_tools.core.verify import verify
from ptir_tools.dialects import load_dialect, load_format
from ptir_tools.engines import RunOptions, run
from tests.convert.legality_rows import ptir
from tests.convert.translations import agree, parse, translated

DTYPES = {
    "tiny": ("f32", "f16", "bf16", "si32", "si16", "ui16", "si8", "ui8", "si4", "ui4", "i1"),
    "mind": ("f32", "f64", "si32", "si64", "i1"),
}
TITLES = {"tiny": "Tiny", "mind": "MIND"}
WIDE = ("si64", "ui32", "ui64")
NOT_HELD = {"cast", "stop_gradient", "complex", "real", "imag"}  # no operand can be a number next to a value
NUMBERS = {"f": ("2.0", "0.5", "3.0"), "b": ("2.0", "0.5", "3.0"), "s": ("2", "1", "3"), "u": ("2", "1", "3"),
           "i": ("true", "false", "true")}  # fmt: skip
OPS = sorted(op.short for op in load_dialect("ptir").ops.values() if ELEMENTWISE in op.traits and op.short not in NOT_HELD)
TEXT = (Path(__file__).parents[2] / "docs" / "translation.md").read_text(encoding="utf-8")


def marks(op: str, target: str) -> set[str]:
    """The marks of the rows that name the op. N marks what the page refuses elsewhere: ops, and remainders of floats."""
    found: set[str] = set()
    for row in TEXT.split(f"## PTIR to {TITLES[target]}")[1].split("\n## ")[0].splitlines():
        cells = [cell.strip() for cell in row.strip("| ").split("|")]
        names = re.findall(r"`([^`()]+)`", cells[0])
        if len(cells) == 3 and any(fnmatchcase(op, name) for name in " ".join(names).split() if name != "reduce_*"):
            found |= {"Y" if mark == "=" else mark for mark in re.findall(r"=|\b[YCLN]\b", cells[2])}
    nowhere = TEXT.split("Some ops have no form in MIND or Tiny:")[1].split("In Core v1")[0]
    return found | ({"N"} if f"`{op}`" in nowhere or re.search(rf"`[^`]*\b{op}\b[^`]*`", nowhere) else set())


def program(op: str, dtype: str, numbers: tuple[bool, ...], target: str = "tiny") -> str:
    """One op on values and numbers. A module has no i1 as a result, so that becomes numbers."""
    operands, types = [], []
    for k, number in enumerate(numbers):
        own = "i1" if op == "select" and k == 0 else dtype
        operands.append(f"dense<{NUMBERS[own[0]][k]}> : tensor<{own}, 5>" if number else f"%{'xyz'[len(types)]}")
        types += [] if number else [f"{own}, 5"]
    result = "i1" if op.startswith("compare") or op == "is_finite" else dtype
    attrs = " exponent_bits[5] mantissa_bits[7]" if op == "reduce_precision" else ""
    line = f"{op}({', '.join(operands)}){attrs}"
    if target == "tiny" or result != "i1":
        return ptir(line, f"{result}, 5", *types)
    kept = "si32" if dtype == "i1" else dtype
    return ptir("cast(%m)", f"{kept}, 5", *types, more=f"%m = {line} -> tensor<i1, 5>\n  ")


def is_legal(text: str) -> bool:
    diagnostics = Diagnostics(Source("t", text))
    found = load_format("ptir").read(diagnostics.source, diagnostics, Options())
    return found is not None and verify(found, diagnostics) and not diagnostics.errors


def seen(text: str, target: str = "tiny") -> str:
    """The mark of what happens to a program, which is run on both sides."""
    before = parse(text, "ptir")
    for lossy, pool in ((False, False), (False, True), (True, True)):
        there = translated(before, target, lossy=lossy, pool=pool)
        if there.program is not None:
            if not lossy or target == "tiny":  # how much a lossy formula of MIND is off, `test_functions` and others measure
                agree(before, there.program, there.constants)
            notes = [
                d.message
                for d in there.diagnostics
                if d.code == "ConditionalTranslation" and not re.search("is carried as|is i32, 0 for false", d.message)
            ]
            return "L" if lossy else "C" if (pool and target == "tiny") or notes else "Y"
    return "N"


# The marks that ask for an operand of a known sign or for `--profile current`: `test_rows_of_mind` and `test_integers` have them.
CONDITIONED = {("reciprocal", "mind"): {"C", "Y"}, ("rsqrt", "mind"): {"C"}}


@pytest.mark.parametrize("target", TITLES)
@pytest.mark.parametrize("op", OPS)
def test_the_table_tells_what_translates(op: str, target: str) -> None:
    """Of every dtype, and with a number in every place but one."""
    arity = _arity(op)
    allowed, found = marks(op, target), set()
    assert allowed, f"docs/translation.md has no row for {op}"
    for dtype, numbers in itertools.product(DTYPES[target], itertools.product((False, True), repeat=arity)):
        if all(numbers) or not is_legal(text := program(op, dtype, numbers, target)):
            continue
        mark = seen(text, target)
        assert mark in allowed, (op, dtype, numbers, mark, allowed)
        found.add(mark)
    assert allowed - found == CONDITIONED.get((op, target), set()), (op, found, allowed)


def _arity(op: str) -> int:
    return next(n for n in (1, 2, 3) if any(is_legal(program(op, d, (False,) * n)) for d in ("f32", "si32")))


@pytest.mark.parametrize("dtype", WIDE)
@pytest.mark.parametrize("op", ["compare_lt", "select", "maximum", "add"])
def test_wide_integers_need_the_option(op: str, dtype: str) -> None:
    """They are inputs, of which the range is not known."""
    numbers = (False, False, True) if op == "select" else (False, True)
    assert seen(program(op, dtype, numbers)) == "L"


SPECIAL = np.array(
    [0.0, -0.0, np.nan, np.inf, -np.inf, 1e-45, -1e-45, 1.2e-38, 3.4028235e38, -3.4028235e38, 1.0, -2.5], np.float32
)
SHOWN = ("0.0", "-0.0", "nan", "inf", "-inf", "1e-45", "3.4028235e38", "-2.5")
COMPARED = {"lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "eq": np.equal, "ne": np.not_equal}
INTEGERS = np.array([0, 1, -1, 7, 2**31 - 1, -(2**31), 2**31 - 2], np.int32)


@pytest.mark.parametrize("engine", ["reference", "numpy", "native"])
@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("kind", COMPARED)
def test_comparisons_with_special_numbers(kind: str, swapped: bool, engine: str) -> None:
    """As NumPy compares, with the number on either side."""
    for x, numbers, dtype in ((SPECIAL, SHOWN, "f32"), (INTEGERS, [str(n) for n in INTEGERS], "si32")):
        for shown in numbers:
            n = f"{dtype}, {len(x)}"
            sides = [f"dense<{shown}> : tensor<{n}>", "%x"] if swapped else ["%x", f"dense<{shown}> : tensor<{n}>"]
            there = translated(parse(ptir(f"compare_{kind}({', '.join(sides)})", f"i1, {len(x)}", n), "ptir"), "tiny", pool=False)
            assert there.program is not None, there.errors
            value = np.array(float(shown) if dtype == "f32" else int(shown)).astype(x.dtype)
            with np.errstate(all="ignore"):
                (found,) = run(there.program, {"x": x}, RunOptions(engine=engine)).values()
            wanted = COMPARED[kind](value, x) if swapped else COMPARED[kind](x, value)
            np.testing.assert_array_equal(found, wanted, str((kind, shown, swapped)))


@pytest.mark.parametrize("dtype", ["f32", "f16", "si32", "si8", "i1"])
def test_select_between_numbers(dtype: str) -> None:
    """Each pair comes out bit for bit, with the sign of a zero and NaN."""
    some = {"f": ["0.0", "-0.0", "1.0", "nan", "-inf", "2.5"], "s": ["0", "1", "-7"], "i": ["true", "false"]}[dtype[0]]
    for a, b in itertools.product(some, repeat=2):
        sides = ", ".join(f"dense<{number}> : tensor<{dtype}, 2>" for number in (a, b))
        before = parse(ptir(f"select(%x, {sides})", f"{dtype}, 2", "i1, 2"), "ptir")
        there = translated(before, "tiny", pool=False)
        assert there.program is not None, there.errors
        found, wanted = (
            next(iter(run(p, {"x": np.array([True, False])}, RunOptions(engine="reference")).values()))
            for p in (there.program, before)
        )
        assert found.astype(wanted.dtype).tobytes() == wanted.tobytes(), (a, b, found)
