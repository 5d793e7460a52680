"""Tiny graphs for tests: reading, verifying, running, and random ones that use the whole vocabulary."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from conftest import TESTDATA

from ptir_tools.core import symbols
from ptir_tools.core.arrays import numpy_dtype
from ptir_tools.core.diagnostics import Diagnostics, Severity
from ptir_tools.core.dialect import Options
from ptir_tools.core.evaluate import Context, run_block
from ptir_tools.core.ir import Program, clone
from ptir_tools.core.source import Source
from ptir_tools.core.verify import verify
from ptir_tools.dialects import load_format

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


class RandomGraph:
    """A valid graph of static shapes, for a seed."""

    def __init__(self, seed: int, count: int = 8) -> None:
        self.rng = random.Random(seed)
        self.nodes: list[dict[str, Any]] = []
        self.types: list[tuple[str, tuple[int, ...], str]] = []
        for i in range(2):
            self.input(tuple(self.rng.choice((1, 2, 3, 4)) for _ in range(self.rng.randint(0, 3))), i)
        for _ in range(count):
            self.grow()

    def text(self) -> str:
        """The graph, its nodes in any order."""
        nodes = list(self.nodes)
        self.rng.shuffle(nodes)
        used = {s for n in nodes for s in n.get("src", []) if isinstance(s, str)}
        sinks = [n["id"] for n in self.nodes if n["id"] not in used]
        return graph(*nodes, outputs=sinks)

    def input(self, shape: tuple[int, ...], i: int) -> None:
        dtype = self.rng.choice(("fp32", "fp32", "fp16", "bf16", "i32", "bool"))
        self.nodes.append(source(shape, dtype, f"in{i}"))
        self.types.append((f"in{i}", shape, dtype))

    def add(self, shape: tuple[int, ...], result: str, uop: str, *src: Any, **arg: Any) -> None:
        name = f"n{len(self.nodes)}"
        self.nodes.append(node(uop, *src, id=name, **arg))
        self.types.append((name, shape, result))

    def grow(self) -> None:
        """One more node on a random earlier one; kinds that do not take it become a CAST."""
        x, shape, dtype = self.rng.choice(self.types)
        kinds = ["unary", "binary", "where", "reduce", "reshape", "permute", "expand", "pad", "shrink", "flip", "view", "pool"]
        self.rng.shuffle(kinds)
        if not any(getattr(self, kind)(x, shape, dtype) for kind in ["cast", *kinds][self.rng.random() > 0.1 :]):
            raise AssertionError("a reshape always fits")

    def cast(self, x: str, shape: tuple[int, ...], dtype: str) -> bool:
        to = self.rng.choice(("fp32", "fp16", "bf16", "i32", "bool"))
        self.add(shape, to, "CAST", x, to=to)
        return True

    def unary(self, x: str, shape: tuple[int, ...], dtype: str) -> bool:
        uop = self.rng.choice(("NEG", "RELU", "EXP2", "RSQRT"))
        if dtype == "bool" or (dtype == "i32" and uop in ("EXP2", "RSQRT")):
            return False
        self.add(shape, dtype, uop, x)
        return True

    def binary(self, x: str, shape: tuple[int, ...], dtype: str) -> bool:
        uop = self.rng.choice(("ADD", "SUB", "MUL", "MAX", "MIN", "FDIV"))
        if dtype == "bool" or (dtype == "i32" and uop == "FDIV"):
            return False
        same = [n for n, s, d in self.types if s == shape and d == dtype]
        number = self.rng.choice((2, -3, 0)) if dtype == "i32" else self.rng.choice((0.5, 3, -1.25, "inf"))
        other = self.rng.choice((self.rng.choice(same), number))
        operands = [x, other]
        self.rng.shuffle(operands)
        self.add(shape, dtype, uop, *operands)
        return True

    def where(self, x: str, shape: tuple[int, ...], dtype: str) -> bool:
        flags = [n for n, s, d in self.types if s == shape and d == "bool"]
        if not flags:
            return False
        zero = False if dtype == "bool" else 0
        self.add(shape, dtype, "WHERE", self.rng.choice(flags), *self.rng.sample([x, zero], 2))
        return True

    def reduce(self, x: str, shape: tuple[int, ...], dtype: str) -> bool:
        axes = self.rng.sample(range(len(shape)), self.rng.randint(0, len(shape)))
        to = self.rng.choice(("fp32", "i32", "fp16", "bf16"))
        init = {} if self.rng.random() < 0.7 else {"init": self.rng.choice((1, -2))}
        left = tuple(d for i, d in enumerate(shape) if i not in axes)
        self.add(left, to, "REDUCE", x, op=self.rng.choice(("SUM", "MAX", "MIN")), axes=axes, dtype=to, **init)
        return True

    def reshape(self, x: str, shape: tuple[int, ...], dtype: str) -> bool:
        flat = [d for d in shape if d != 1]
        while len(flat) > 1 and self.rng.random() < 0.5:
            i = self.rng.randrange(len(flat) - 1)
            flat[i : i + 2] = [flat[i] * flat[i + 1]]
        for _ in range(self.rng.randint(0, 2)):
            flat.insert(self.rng.randint(0, len(flat)), 1)
        self.add(tuple(flat), dtype, "RESHAPE", x, result_shape=flat)
        return True

    def permute(self, x: str, shape: tuple[int, ...], dtype: str) -> bool:
        perm = self.rng.sample(range(len(shape)), len(shape))
        self.add(tuple(shape[p] for p in perm), dtype, "PERMUTE", x, perm=perm)
        return True

    def expand(self, x: str, shape: tuple[int, ...], dtype: str) -> bool:
        if len(shape) > 3:
            return False
        result = [self.rng.choice((2, 3)) if d == 1 and self.rng.random() < 0.5 else d for d in shape]
        axes = sorted(self.rng.sample(range(len(shape) + 1), len(shape)))
        full = [2] * (len(shape) + 1)
        for a, d in zip(axes, result, strict=True):
            full[a] = d
        if self.rng.random() < 0.5:
            axes = [a for a, d in zip(axes, shape, strict=True) if d != 1]
        self.add(tuple(full), dtype, "EXPAND", x, result_shape=full, broadcast_dimensions=axes)
        return True

    def pad(self, x: str, shape: tuple[int, ...], dtype: str) -> bool:
        if max(shape, default=0) > 6:
            return False
        pairs = [[self.rng.randint(0, 1), self.rng.randint(0, 2)] for _ in shape[:2]] + [[0, 0]] * len(shape[2:])
        value = {"bool": True, "i32": -7}.get(dtype, self.rng.choice((0.1, "nan", "-inf", 2)))
        padded = tuple(d + a + b for d, (a, b) in zip(shape, pairs, strict=True))
        self.add(padded, dtype, "PAD", x, pad=pairs, **self.rng.choice(({}, {"value": value})))
        return True

    def shrink(self, x: str, shape: tuple[int, ...], dtype: str) -> bool:
        lo = [self.rng.randint(0, max(0, d - 1)) for d in shape]
        hi = [self.rng.randint(a, d) if self.rng.random() < 0.2 else d for a, d in zip(lo, shape, strict=True)]
        step = [self.rng.choice((1, 2, 3)) for _ in shape]
        result = tuple(len(range(a, b, s)) for a, b, s in zip(lo, hi, step, strict=True))
        self.add(result, dtype, "SHRINK", x, lo=lo, hi=hi, step=step)
        return True

    def flip(self, x: str, shape: tuple[int, ...], dtype: str) -> bool:
        axes = self.rng.sample(range(len(shape)), self.rng.randint(0, len(shape)))
        self.add(shape, dtype, "FLIP", x, axes=[a - len(shape) if self.rng.random() < 0.3 else a for a in axes])
        return True

    def view(self, x: str, shape: tuple[int, ...], dtype: str) -> bool:
        if len(shape) != 2 or 0 in shape:
            return False
        a, b = shape
        fill = {"bool": True, "i32": 9}.get(dtype, -0.5)
        choices: list[tuple[list[int], dict[str, Any]]] = [
            ([b, a, 2], {"map": ["i1", "i0"]}),
            ([b], {"map": [0, f"{b - 1}-i0"]}),
            ([min(a, b)], {"map": ["i0", "i0"]}),
            ([a * b], {"map": [f"i0//{b}", f"i0%{b}"]}),
            ([a + 2, b], {"map": ["i0-1", "i1"], "guard": ["i0>=1", f"i0<{a + 1}"], "fill": fill}),
            ([a, b], {"map": ["i0", "i1+1"], "guard": [f"i1+i0<{b - 1}"]}),
        ]
        result, index_map = self.rng.choice(choices)
        if dtype == "bool" and "guard" in index_map:
            index_map["fill"] = True
        self.add(tuple(result), dtype, "VIEW", x, result_shape=result, index_map=index_map)
        return True

    def pool(self, x: str, shape: tuple[int, ...], dtype: str) -> bool:
        if not shape or len(shape) > 3 or shape[-1] < 3:
            return False
        stride, dilation = self.rng.choice((1, 2)), self.rng.choice((1, 2))
        out = (shape[-1] - dilation + stride - 1) // stride
        self.add((*shape[:-1], out, 2), dtype, "POOL", x, kernel=[2], stride=[stride], dilation=[dilation])
        return True
