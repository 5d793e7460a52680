"""PTIR to PTO: time per op of the source, of layers that repeat and of ops that do not, in milliseconds of processor time.

Then the cycles of kernels on a3 next to those of their busiest pipe."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator

from ptir_tools import read
from ptir_tools.convert import translate
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Options, Program
from ptir_tools.dialects.pto.run.timeline import Timeline
from ptir_tools.tools.inputs import Inputs
from tests.pto.programs import run

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

    for name, text in kernels():
        timeline = _run(text)
        busy = timeline.busy()
        pipe = max(busy, key=lambda p: busy[p])
        yield name, timeline.makespan, busy[pipe], f"cycles, next to those of {pipe}"


def _run(text: str) -> Timeline:
    """The timeline of a run of a program on a3."""
    made = translate(read(text), "pto", Diagnostics(), Options(target="a3"))
    assert made is not None
    run(made, Inputs((), (), 0).arrays(made), timeline=(timeline := Timeline()))
    return timeline


def kernels() -> Iterator[tuple[str, str]]:
    """The kernels of which the manual has the cycles, and their programs."""
    for n, dtype in ((512, "f32"), (512, "f16"), (1024, "f32"), (1024, "f16")):
        t = f"tensor<{dtype}, {n}x{n}>"
        line = f"%o = dot_general(%x, %y) contract_lhs[1] contract_rhs[0] -> {t}"
        yield f"product {n} x {n} x {n}, {dtype}", _function(f"%x: {t}, %y: {t}", t, line)
    for rows, columns in ((256, 512), (1024, 4096)):
        t = f"tensor<f32, {rows}x{columns}>"
        yield f"softmax {rows} x {columns}", _function(f"%c: {t}", t, *_softmax((rows, columns), "%o"))
    for rows, columns in ((256, 768), (1024, 768)):
        t, w = f"tensor<f32, {rows}x{columns}>", f"tensor<f32, {columns}>"
        line = f"%o = layer_norm(%x, %g, %b) feature_axis[1] epsilon[1e-5] -> {t}"
        yield f"layer norm {rows} x {columns}", _function(f"%x: {t}, %g: {w}, %b: {w}", t, line)
    for heads, length in ((2, 256), (12, 256)):
        t, s = f"tensor<f32, {heads}x{length}x64>", f"tensor<f32, {heads}x{length}x{length}>"
        axes = "batch_lhs[0] batch_rhs[0] contract_lhs[2]"
        lines = [
            f"%s = dot_general(%q, %k) {axes} contract_rhs[2] -> {s}",
            f"%c = mul(%s, dense<0.25> : {s}) -> {s}",
            *_softmax((heads, length, length), "%w"),
            f"%o = dot_general(%w, %v) {axes} contract_rhs[1] -> {t}",
        ]
        yield f"attention {heads} x {length} x 64", _function(f"%q: {t}, %k: {t}, %v: {t}", t, *lines)


def _function(parameters: str, result: str, *lines: str) -> str:
    return "\n".join([f"func @main({parameters}) -> {result} {{", *lines, "return %o", "}"])


def _softmax(shape: tuple[int, ...], result: str) -> list[str]:
    """The lines of a softmax of `%c` along the last axis."""
    t, axis = f"tensor<f32, {'x'.join(map(str, shape))}>", len(shape) - 1
    column, spread = f"tensor<f32, {'x'.join(map(str, shape[:-1]))}x1>", f"result_shape[{', '.join(map(str, shape))}]"
    return [
        f"%m = reduce_max(%c) axes[{axis}] keepdims[true] -> {column}",
        f"%mb = broadcast_to(%m) {spread} -> {t}",
        f"%d = sub(%c, %mb) -> {t}",
        f"%e = exp(%d) -> {t}",
        f"%t = reduce_sum(%e) axes[{axis}] keepdims[true] -> {column}",
        f"%tb = broadcast_to(%t) {spread} -> {t}",
        f"{result} = div(%e, %tb) -> {t}",
    ]


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
