"""PTIR to PTO: time per op of the source, of layers that repeat and of ops that do not, in milliseconds of processor time."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator

from ptir_tools import read
from ptir_tools.convert import translate
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Options, Program

SIZES = (400, 1_600, 6_400)
VARIED = SIZES
FULL, COLUMN = "tensor<f32, 64x96>", "tensor<f32, 64x1>"


def rows() -> Iterator[tuple[str, float, float | None, str]]:
    """(what, milliseconds per op, None, unit)."""
    for name, make, sizes in (("layers", layers, SIZES), ("varied", varied, VARIED)):
        _seconds(make(50))  # what is loaded once does not count
        for n in sizes:
            program = make(n)
            yield f"{name}, {len(program.main.body)} ops", _seconds(program) / len(program.main.body) * 1e3, None, "ms per op"


def _seconds(program: Program) -> float:
    start = time.process_time()
    assert translate(program, "pto", Diagnostics(), Options(target="a3")) is not None
    return time.process_time() - start


def _program(lines: list[str], result: str) -> Program:
    head = f"func @main(%x: {FULL}, %w: tensor<f32, 96x96>) -> {FULL} {{"
    return read("\n".join([head, *lines, f"return %{result}", "}"]))


def layers(n: int) -> Program:
    """About `n` ops: products with a row maximum taken off and the input added, again and again."""
    lines, x = [], "x"
    for k in range(n // 5):
        lines += [
            f"%p{k} = dot_general(%{x}, %w) contract_lhs[1] contract_rhs[0] -> {FULL}",
            f"%m{k} = reduce_max(%p{k}) axes[1] keepdims[true] -> {COLUMN}",
            f"%n{k} = broadcast_to(%m{k}) result_shape[64, 96] -> {FULL}",
            f"%d{k} = sub(%p{k}, %n{k}) -> {FULL}",
            f"%y{k} = add(%d{k}, %{x}) -> {FULL}",
        ]
        x = f"y{k}"
    return _program(lines, x)


def varied(n: int) -> Program:
    """About `n` ops of which no long run repeats."""
    rng, lines, values = random.Random(0), list[str](), ["x"]
    for i in range(n):
        a, b, kind = rng.choice(values[-6:]), rng.choice(values[-6:]), rng.random()
        if kind < 0.5:
            lines.append(f"%v{i} = {rng.choice(('add', 'sub', 'mul', 'maximum'))}(%{a}, %{b}) -> {FULL}")
        elif kind < 0.8:
            lines.append(f"%v{i} = {rng.choice(('neg', 'abs', 'exp'))}(%{a}) -> {FULL}")
        elif kind < 0.9:
            lines.append(f"%r{i} = reduce_max(%{a}) axes[1] keepdims[true] -> {COLUMN}")
            lines.append(f"%v{i} = broadcast_to(%r{i}) result_shape[64, 96] -> {FULL}")
        else:
            lines.append(f"%v{i} = dot_general(%{a}, %w) contract_lhs[1] contract_rhs[0] -> {FULL}")
        values.append(f"v{i}")
    return _program(lines, values[-1])
