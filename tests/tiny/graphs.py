"""Tiny graphs for tests: reading, verifying, running, random ones."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ptir_tools.core import symbols
from ptir_tools.core.arrays import numpy_dtype
from ptir_tools.core.choices import Seeded
from ptir_tools.core.diagnostics import Diagnostics, Severity
from ptir_tools.core.dialect import Options, Program, clone
from ptir_tools.core.evaluate import Context, run_block
from ptir_tools.core.source import Source
from ptir_tools.core.verify import verify
from ptir_tools.dialects import load_format
from tests.conftest import TESTDATA
from tests.tiny.grown import GROWERS, exponential, generate

SAMPLES = sorted((TESTDATA / "tiny").glob("*.json"))
SIZES = {"M": 4, "K": 6, "N": 5, "B": 2, "H": 3, "D": 8}
_ONES, _TWOS = dict.fromkeys(("pt", "pb", "pl", "pr", "Dh", "Dw"), 1), dict.fromkeys(("N", "Cin", "Sh", "Sw"), 2)
CONV = {"H": 9, "W": 8, "Ct": 4, "Cin_total": 4, "Cout": 6, "Kh": 3, "Kw": 3, **_ONES, **_TWOS}


def sample(name: str) -> str:
    """The text of a sample."""
    return Path(TESTDATA / "tiny" / f"{name}.json").read_text("utf-8")


def read(text: str, profile: str = "seed", bind: dict[str, int] | None = None) -> tuple[Program | None, Diagnostics]:
    """The program of a text, verified in a profile, and everything that was said about it."""
    diagnostics = Diagnostics(Source("graph.json", text))
    options = Options(profile=profile)
    program = load_format("tiny").read(diagnostics.source, diagnostics, options)
    if program is not None:
        symbols.bind(program, bind or {})
        verify(program, diagnostics, options)
    return program, diagnostics


def codes(text: str, profile: str = "seed", severity: Severity = Severity.ERROR) -> list[str]:
    """The codes that a text provokes."""
    return [d.code for d in read(text, profile)[1] if d.severity is severity]


def good(text: str, profile: str = "seed", bind: dict[str, int] | None = None) -> Program:
    """The program of a text without errors."""
    program, diagnostics = read(text, profile, bind)
    assert program is not None and not diagnostics.errors, [(d.code, d.message) for d in diagnostics]
    return program


def printed(program: Program) -> str:
    """The canonical text of a program."""
    diagnostics = Diagnostics()
    text = "".join(load_format("tiny").write(program, diagnostics, Options()))
    assert not diagnostics.items
    return text


def run(program: Program, inputs: Sequence[Any], numbers: dict[str, int] | None = None) -> list[np.ndarray]:
    """The outputs of a program, by the bodies of its ops."""
    static = clone(program)
    symbols.specialize(static, dict(numbers or {}))
    return [np.asarray(x) for x in run_block(static.main, list(inputs), Context())]


def inputs_of(program: Program, seed: int = 0, special: bool = False) -> list[np.ndarray]:
    """Random inputs of a program without open symbols; `special` mixes in NaN, infinities and signed zeros."""
    rng = np.random.default_rng(seed)
    static = clone(program)
    symbols.specialize(static, {})
    made = []
    for p in static.main.params:
        dtype, shape = numpy_dtype(p.type.dtype), p.type.static_shape
        x = rng.uniform(-2, 2, shape)
        if dtype == np.bool_:
            made.append(x > 0)
        elif dtype.kind == "i":
            made.append(rng.integers(-100, 100, shape).astype(dtype))
        else:
            odd = rng.choice([np.nan, np.inf, -np.inf, -0.0, 0.0, 1e30], shape)
            with np.errstate(over="ignore"):
                made.append(np.where(rng.random(shape) < 0.1, odd, x).astype(dtype) if special else x.astype(dtype))
    return made


def graph(*nodes: dict[str, Any], **rest: Any) -> str:
    """The text of a graph."""
    return json.dumps({"uops": list(nodes), **rest})


def source(shape: Sequence[Any], dtype: str = "fp32", id: str = "x") -> dict[str, Any]:
    """An INPUT node whose tensor_id is its id."""
    return {"id": id, "uop": "INPUT", "arg": {"tensor_id": id, "dtype": dtype, "shape": list(shape)}}


def node(uop: str, *src: Any, id: str = "y", **arg: Any) -> dict[str, Any]:
    """A node; without sources it takes x."""
    made = {"id": id, "uop": uop, "src": list(src) or ["x"]}
    return made | ({"arg": arg} if arg else {})


def random_text(seed: int, size: int = 12) -> str:
    """A random graph of static shapes, its nodes listed in any order, its outputs named. Nothing in it is equal within
    rounding alone in another IR."""
    program = generate(Seeded(seed), size=size, growers=[g for g in GROWERS if g is not exponential])
    program.attrs["outputs"] = True
    value = json.loads(printed(program))
    random.Random(seed).shuffle(value["uops"])
    return json.dumps(value)
