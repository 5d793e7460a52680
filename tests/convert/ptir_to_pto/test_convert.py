"""PTIR to PTO: the tiled program is legal on its target and computes the same, whatever the size of its blocks."""

import json
from math import prod
from time import process_time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptir_tools import read
from ptir_tools.convert import route, translate
from ptir_tools.convert.options import CONSTANTS
from ptir_tools.convert.ptir_to_pto.layout import layouts
from ptir_tools.convert.ptir_to_pto.link import linked
from ptir_tools.convert.ptir_to_pto.partition import Partition, Tiler
from ptir_tools.convert.ptir_to_pto.prepare import prepared
from ptir_tools.core import arrays, symbols
from ptir_tools.core.choices import Seeded
from ptir_tools.core.diagnostics import Diagnostics, Rejected
from ptir_tools.core.dialect import Options
from ptir_tools.core.dtypes import F16, F32, SI32
from ptir_tools.core.source import Source
from ptir_tools.dialects.pto.affine import constant
from ptir_tools.dialects.pto.run.timeline import Timeline
from ptir_tools.dialects.pto.targets import find
from ptir_tools.dialects.pto.text import format as pto_text
from ptir_tools.dialects.pto.types import TileType
from ptir_tools.engines import RunOptions, run
from ptir_tools.engines.compare import check, compare, reference_outputs
from ptir_tools.passes import PassContext, run_pipeline
from ptir_tools.tools.inputs import Inputs
from tests.conftest import TESTDATA
from tests.convert.ptir_to_pto.programs import TARGETS, agree, function, program, reread, single, written
from tests.ptir import grown as grown_ptir
from tests.ptir.programs import Shown

SOFTMAX = (
    "%m = reduce_max(%x) axes[{axis}] keepdims[true] -> tensor<{t}, {column}>",
    "%mb = broadcast_to(%m) result_shape[{dims}] -> tensor<{t}, {shape}>",
    "%d = sub(%x, %mb) -> tensor<{t}, {shape}>",
    "%e = exp(%d) -> tensor<{t}, {shape}>",
    "%s = reduce_sum(%e) axes[-1] keepdims[true] -> tensor<{t}, {column}>",
    "%sb = broadcast_to(%s) result_shape[{dims}] -> tensor<{t}, {shape}>",
    "%y = div(%e, %sb) -> tensor<{t}, {shape}>",
)


def softmax(t, *extents):
    shape, column = "x".join(map(str, extents)), "x".join(map(str, (*extents[:-1], 1)))
    words = {"t": t, "shape": shape, "column": column, "dims": ", ".join(map(str, extents)), "axis": len(extents) - 1}
    lines = [line.format(**words) for line in SOFTMAX]
    return function(f"%x: tensor<{t}, {shape}>", f"tensor<{t}, {shape}>", *lines, returns="%y")


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("t", ["f32", "f16"])
@pytest.mark.parametrize("extents", [(5, 7), (130, 33), (2, 3, 40, 24), (3, 5, 1), (1, 9), (1, 1)])
def test_softmax(t, extents, target):
    before = softmax(t, *extents)
    after = translate(before, "pto", found := Diagnostics(before.source), Options(target=target))
    assert after is not None, found.items
    agree(before, reread(after))


def matmul(m, k, n, t, out):
    """`max(x @ w + b, 0)`."""
    r, zero = f"tensor<{out}, {m}x{n}>", "0" if out == "si32" else "0.0"
    accum = "si32" if out == "si32" else "f32"
    lines = [
        f"%p = dot_general(%x, %w) contract_lhs[1] contract_rhs[0] accum_dtype[{accum}] out_dtype[{out}] -> {r}",
        f"%bb = broadcast_to(%b) result_shape[{m}, {n}] -> {r}",
        f"%y = add(%p, %bb) -> {r}",
        f"%z = maximum(%y, dense<{zero}> : {r}) -> {r}",
    ]
    return function(f"%x: tensor<{t}, {m}x{k}>, %w: tensor<{t}, {k}x{n}>, %b: tensor<{out}, {n}>", r, *lines, returns="%z")


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("t, out", [("f16", "f32"), ("f32", "f32"), ("bf16", "f32"), ("f16", "f16"), ("si8", "si32")])
@pytest.mark.parametrize("m, k, n", [(16, 16, 16), (5, 300, 70), (200, 40, 33)])
def test_products_of_parameters_and_what_follows(m, k, n, t, out, target):
    before = matmul(m, k, n, t, out)
    after = translate(before, "pto", found := Diagnostics(before.source), Options(target=target))
    assert after is not None, found.items
    agree(before, reread(after))


MIXED = """func @main(%x: tensor<f32, 6x6>, %r: tensor<f32, 6>, %c: tensor<f32, 6>, %s: tensor<f32>)
    -> (tensor<f32, 6x6>, tensor<f32, 6>, tensor<si32, 6x6>) {
  %rb = broadcast_to(%r) result_shape[6, 6] -> tensor<f32, 6x6>
  %c1 = reshape(%c) new_shape[6, 1] -> tensor<f32, 6x1>
  %cb = broadcast_to(%c1) result_shape[6, 6] -> tensor<f32, 6x6>
  %sb = broadcast_to(%s) result_shape[6, 6] -> tensor<f32, 6x6>
  %a = sub(%rb, %x) -> tensor<f32, 6x6>
  %b = sub(%cb, %a) -> tensor<f32, 6x6>
  %o = mul(%rb, %cb) -> tensor<f32, 6x6>
  %d = sub(%sb, %b) -> tensor<f32, 6x6>
  %m = compare_lt(%d, %o) -> tensor<i1, 6x6>
  %z = select(%m, %rb, %d) -> tensor<f32, 6x6>
  %k = clamp(%z, dense<-0.5> : tensor<f32, 6x6>, %sb) -> tensor<f32, 6x6>
  %t = reduce_min(%k) axes[1] -> tensor<f32, 6>
  %i = cast(%m) -> tensor<si32, 6x6>
  return %k, %t, %i
}"""


@pytest.mark.parametrize("target", TARGETS)
def test_rows_columns_and_scalars_of_a_square(target):
    before = program(MIXED)
    after = translate(before, "pto", found := Diagnostics(before.source), Options(target=target))
    assert after is not None, found.items
    agree(before, reread(after))


# Random programs, with blocks of every size

_BINARY = ("add", "sub", "mul", "maximum", "minimum")
_UNARY = ("neg", "abs", "exp")


@st.composite
def programs(draw):
    """Elementwise ops on values of the whole shape, rows, columns and scalars, with reductions between."""
    extents = draw(st.lists(st.integers(1, 40), min_size=1, max_size=3))
    t = draw(st.sampled_from(["f32", "f16"]))
    shape, dims = "x".join(map(str, extents)), ", ".join(map(str, extents))
    full = f"tensor<{t}, {shape}>"
    parameters, lines, values = [f"%x: {full}"], [], ["x"]
    if len(extents) > 1 and draw(st.booleans()):
        parameters.append(f"%r: tensor<{t}, {extents[-1]}>")
        lines.append(f"%rb = broadcast_to(%r) result_shape[{dims}] -> {full}")
        values.append("rb")
    if draw(st.booleans()):
        parameters.append(f"%s: tensor<{t}>")
        lines.append(f"%sb = broadcast_to(%s) result_shape[{dims}] -> {full}")
        values.append("sb")
    for i in range(draw(st.integers(1, 8))):
        kind = draw(st.sampled_from(["unary", "binary", "reduce"]))
        a = draw(st.sampled_from([v for v in values if v != "sb"]))
        if kind == "reduce" and len(extents) > 1:
            column = "x".join(map(str, (*extents[:-1], 1)))
            op = draw(st.sampled_from(["max", "min", "sum"]))
            lines.append(f"%c{i} = reduce_{op}(%{a}) axes[-1] keepdims[true] -> tensor<{t}, {column}>")
            lines.append(f"%v{i} = broadcast_to(%c{i}) result_shape[{dims}] -> {full}")
        elif kind == "unary":
            op = draw(st.sampled_from(_UNARY))
            lines.append(f"%v{i} = {op}(%{a}) -> {full}")
        else:
            b = draw(st.sampled_from(values))
            pair = (a, b) if draw(st.booleans()) else (b, a)
            lines.append(f"%v{i} = {draw(st.sampled_from(_BINARY))}(%{pair[0]}, %{pair[1]}) -> {full}")
        values.append(f"v{i}")
    made = function(", ".join(parameters), full, *lines, returns=f"%{values[-1]}")
    return Shown(made.dialect, made.functions, made.regions, made.entry, source=made.source)


class AnyBlocks(Tiler):
    """Takes any rows and columns, in blocks of any size that fits."""

    def __init__(self, target, source, data):
        super().__init__(target, source)
        self.data = data

    def largest(self, shapes, *ports):
        layout = self.data.draw(st.sampled_from(layouts(shapes)))
        blocks = self.data.draw(st.sampled_from(list(layout.blocks(self.target))))
        made, report = self.made(shapes, layout, blocks, *ports)
        return super().largest(shapes, *ports) if report.errors else self.finished(made)


@settings(max_examples=40, deadline=None)
@given(programs(), st.data(), st.sampled_from(TARGETS))
def test_random_programs_with_blocks_of_every_size(before, data, target):
    outline, found = prepared(before, find(target), Options(), Diagnostics()), Diagnostics(before.source)
    partition = Partition(outline, AnyBlocks(find(target), before.source, data), found)
    partition.run()
    assert not found.errors, found.items
    agree(before, reread(linked(partition, set())))


def test_blocks_shrink_until_they_fit():
    before = softmax("f32", 300, 4004)  # in rows that have no equal parts
    after = translate(before, "pto", Diagnostics(before.source), Options(target="a3"))
    assert "tile<8x4004xf32" not in written(after) and "tile<8x4008xf32" in written(after)
    assert "tile<16x4008xf32>" not in written(after)


def test_long_rows_are_tiles_of_several_rows():
    """Half as many rows then leave room to load the next ones."""
    before = softmax("f32", 300, 4000)
    after = translate(before, "pto", Diagnostics(before.source), Options(target="a3"))
    assert "tile<8x2000xf32" in written(after) and "tile<8x4000xf32" not in written(after)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("parts", [2, 4, 8])
def test_rows_in_parts(parts, target):
    class InParts(Tiler):
        def largest(self, shapes, *ports):
            (layout,) = [x for x in layouts(shapes) if x.row is not None and x.column in x.reduced]
            (blocks,) = [b for b in layout.blocks(self.target) if b.parts == parts]
            made, report = self.made(shapes, layout, blocks, *ports)
            assert not report.errors, report.items
            return self.finished(made)

    before = softmax("f32", 24, 128)
    outline, found = prepared(before, find(target), Options(), Diagnostics()), Diagnostics(before.source)
    partition = Partition(outline, InParts(find(target), before.source), found)
    partition.run()
    agree(before, reread(linked(partition, set())))


def test_mind_reaches_pto_through_ptir():
    assert [(s.source, s.target) for s in route("mind", "pto")] == [("mind", "ptir"), ("ptir", "pto")]


# What cannot be said

F = "tensor<f32, 4x8>"
WIDE = "tensor<f32, 4x16>"
LOST = "%c = constant() value[dense<?>] -> tensor<f32, 4>"
TABLE = "%c = constant() value[dense<[1.0, 2.0, 3.0, 4.0]>] -> tensor<f32, 4>"


@pytest.mark.parametrize(
    "parameters, result, lines, says",
    [
        (f"%x: {F}", F, ["%i = top_k(%x) k[2] -> (tensor<f32, 4x2>, tensor<si32, 4x2>)", f"%y = neg(%x) -> {F}"], None),
        (f"%x: {F}", WIDE, ["%y = concat(%x, %x) axis[1] -> tensor<f32, 4x16>"], None),
        ("%x: tensor<f64, 4x8>", "tensor<f64, 4x8>", ["%y = neg(%x) -> tensor<f64, 4x8>"], "no elements of f64"),
        ("%x: tensor<f32, ?Nx8>", "tensor<f32, ?Nx8>", ["%y = neg(%x) -> tensor<f32, ?Nx8>"], None),
        ("%x: tensor<f32, ?Nx8>", "tensor<f32, 8x?N>", ["%y = reshape(%x) new_shape[8, ?N] -> tensor<f32, 8x?N>"], None),
        ("%x: tensor<i1, 4x8>", "tensor<f32, 4x8>", [f"%y = cast(%x) -> {F}"], None),
        (f"%x: {F}", "tensor<i1, 4x8>", ["%y = compare_lt(%x, %x) -> tensor<i1, 4x8>"], None),
        ("%x: tensor<f32, 6x4>", "tensor<f32, 8x3>", ["%y = reshape(%x) new_shape[8, 3] -> tensor<f32, 8x3>"], None),
        ("%x: tensor<si32, 4x8>", "tensor<si8, 4x8>", ["%y = cast(%x) -> tensor<si8, 4x8>"], None),
        ("%x: tensor<ui32, 4x8>", "tensor<ui32, 4x8>", ["%y = add(%x, %x) -> tensor<ui32, 4x8>"], None),
        ("%x: tensor<f32, 4x99991>", "tensor<f32, 4>", ["%y = reduce_sum(%x) axes[1] -> tensor<f32, 4>"], None),
        ("%x: tensor<f32, 4>", "tensor<f32, 4>", [TABLE, "%y = add(%x, %c) -> tensor<f32, 4>"], None),
        ("%x: tensor<f32, 4>", "tensor<f32, 4>", [LOST, "%y = add(%x, %c) -> tensor<f32, 4>"], "payload"),
    ],
)  # fmt: skip
def test_refusals(parameters, result, lines, says):
    before = function(parameters, result, *lines, returns="%y")
    found = Diagnostics(before.source)
    made = translate(before, "pto", found, Options())
    assert (made is None) == (says is not None)
    if says is not None:
        assert [d.code for d in found if d.severity == "error"] == ["NotTranslatable"]
        assert any(says in d.message for d in found), [d.message for d in found]


# Lookups in tables that are stretched: what is in memory has fewer rows or columns than what is looked up in.

STRETCHED = [
    ("1", "5"),
    ("1x3", "5x3"),
    ("5x1", "5x4"),
    ("1x1", "5x4"),
    ("6x1x4", "6x3x4"),
    ("600x1", "600x40"),
    ("1x40", "600x40"),
]


@pytest.mark.parametrize(("shape", "full"), STRETCHED)
def test_tables_that_are_stretched(shape, full):
    made = "tensor<f32, " + "x".join(["4", *full.split("x")[1:]]) + ">"
    lines = [
        f"%b = broadcast_to(%t) result_shape[{full.replace('x', ', ')}] -> tensor<f32, {full}>",
        f"%y = take(%b, %i) -> {made}",
    ]
    before = function(f"%i: tensor<si32, 4>, %t: tensor<f32, {shape}>", made, *lines, returns="%y")
    after = reread(translate(before, "pto", Diagnostics(before.source), Options()))
    t = np.arange(prod(map(int, shape.split("x"))), dtype=np.float32).reshape([int(d) for d in shape.split("x")])
    i = np.array([0, 1, 4, 0], np.int32)
    want = np.broadcast_to(t, [int(d) for d in full.split("x")])[i]
    found = run(after, [i, t, np.zeros(want.shape, np.float32)], RunOptions(engine="reference"))
    np.testing.assert_array_equal(list(found.values())[-1], want)
    with pytest.raises(Rejected):  # an index is held to the rows that are seen
        run(after, [i + 600, t, np.zeros(want.shape, np.float32)], RunOptions(engine="reference"))


LONG = [
    ("%y = reduce_max(%x) axes[0, 1] out_dtype[f16] -> tensor<f16>", "?Nx?N", "tensor<f16>"),
    ("%y = reduce_min(%x) axes[0] -> tensor<f32>", "?N", "tensor<f32>"),
    ("%y = reduce_sum(%x) axes[0] keepdims[true] -> tensor<f32, 1>", "?N", "tensor<f32, 1>"),
]


@pytest.mark.parametrize(("line", "shape", "result"), LONG)
def test_one_number_next_to_extents_that_no_block_has_all_of(line, shape, result):
    """What is not of the loop over such an extent is computed before or after it, in tiles that have one of it."""
    lines = [line, f"%b = maximum(%p, dense<0.5> : {result}) -> {result}", f"%z = add(%y, %b) -> {result}"]
    before = function(f"%x: tensor<f32, {shape}>, %p: {result}", result, *lines, returns="%z")
    after = translate(before, "pto", found := Diagnostics(before.source), Options())
    if after is not None:
        agree(before, reread(after))
    else:
        assert all(d.code == "NotTranslatable" for d in found)


@pytest.mark.parametrize("n", [1, 3])
def test_a_part_of_one_number_has_its_own_extents(n):
    lines = (
        "%f = broadcast_to(dense<2.0> : tensor<f32>) result_shape[?N, 8] -> tensor<f32, ?Nx8>",
        f"%y = slice(%f) starts[0, 1] sizes[{n}, 3] -> tensor<f32, {n}x3>",
    )
    before = function("%x: tensor<f32, ?Nx8>", f"tensor<f32, {n}x3>", *lines, returns="%y")
    after = translate(before, "pto", found := Diagnostics(before.source), Options())
    assert after is not None, list(found)
    assert check(before, reread(after), options=RunOptions(bindings={"N": 7})).diverged == []


def test_a_table_of_64_bits_is_no_place():
    """Places are narrowed, what is looked up is not: numbers beyond 32 bits would be others."""
    t = "tensor<si64, 3>"
    before = function(f"%x: {t}, %i: {t}", t, f"%y = take(%x, %i) -> {t}", returns="%y")
    assert translate(before, "pto", found := Diagnostics(before.source), Options()) is None
    assert [d.message.partition(" on ")[0] for d in found if d.severity == "error"] == ["gather has no i64"]


def test_every_offending_op_is_told_at_once():
    lines = ("%a = rng_uniform() -> tensor<f32, 4x8>", "%b = rng_normal() -> tensor<f32, 4x8>")
    before = function(f"%x: {F}", f"{F}, {F}", *lines, returns="%a, %b")
    found = Diagnostics(before.source)
    assert translate(before, "pto", found, Options()) is None
    assert [d.where[1] for d in found] == [2, 3]


def test_what_reads_something_refused_stays_silent():
    before = function(
        "%x: tensor<f64, 2x4>", "tensor<f64, 2x4>",
        "%t = top_k(%x) k[4] -> (tensor<f64, 2x4>, tensor<si32, 2x4>)",
        "%m = reduce_max(%t[0]) axes[1] keepdims[true] -> tensor<f64, 2x1>",
        "%y = broadcast_to(%m) result_shape[2, 4] -> tensor<f64, 2x4>",
        returns="%y",
    )  # fmt: skip
    found = Diagnostics()
    assert translate(before, "pto", found, Options()) is None
    assert [d.message for d in found] == ["parameter %x: PTO has no elements of f64"]


# The whole way to a target


def attention(heads, length, width):
    """Softmax of `q @ k`, times `v`."""
    whole, scores = f"tensor<f16, {heads}x{length}x{width}>", f"tensor<f16, {heads}x{length}x{length}>"
    dims, column = f"{heads}, {length}, {length}", f"tensor<f16, {heads}x{length}x1>"
    lines = [
        f"%s = dot_general(%q, %k) batch_lhs[0] batch_rhs[0] contract_lhs[2] contract_rhs[2] -> {scores}",
        f"%m = reduce_max(%s) axes[2] keepdims[true] -> {column}",
        f"%mb = broadcast_to(%m) result_shape[{dims}] -> {scores}",
        f"%d = sub(%s, %mb) -> {scores}",
        f"%e = exp(%d) -> {scores}",
        f"%t = reduce_sum(%e) axes[2] keepdims[true] -> {column}",
        f"%tb = broadcast_to(%t) result_shape[{dims}] -> {scores}",
        f"%p = div(%e, %tb) -> {scores}",
        f"%o = dot_general(%p, %v) batch_lhs[0] batch_rhs[0] contract_lhs[2] contract_rhs[1] -> {whole}",
    ]
    return function(f"%q: {whole}, %k: {whole}, %v: {whole}", whole, *lines, returns="%o")


def layered(depth):
    """Layers of a product, a bias, a softmax and what was there before."""
    t, column = "tensor<f32, 16x16>", "tensor<f32, 16x1>"
    lines, x = [], "x"
    for k in range(depth):
        lines += [
            f"%p{k} = dot_general(%{x}, %w) contract_lhs[1] contract_rhs[0] -> {t}",
            f"%m{k} = reduce_max(%p{k}) axes[1] keepdims[true] -> {column}",
            f"%n{k} = broadcast_to(%m{k}) result_shape[16, 16] -> {t}",
            f"%d{k} = sub(%p{k}, %n{k}) -> {t}",
            f"%y{k} = add(%d{k}, %{x}) -> {t}",
        ]
        x = f"y{k}"
    return function(f"%x: {t}, %w: {t}", t, *lines, returns=f"%{x}")


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    "before",
    [
        *(matmul(m, k, n, t, out) for t, out in (("f16", "f32"), ("si8", "si32")) for m, k, n in ((5, 300, 70), (200, 40, 33))),
        matmul(700, 300, 500, "f32", "f32"),
        matmul(64, 2048, 64, "bf16", "f32"),
        attention(2, 48, 16),
        layered(3),
        softmax("f32", 130, 33),
    ],
    ids=[f"kernel{i}" for i in range(9)],
)
def test_every_kernel_reaches_the_target(before, target):
    after = translate(before, "pto", found := Diagnostics(before.source), Options(target=target))
    assert after is not None and not found.items, found.items
    made = [op for f in after.functions for op in f.ops()]
    tiles = [v for op in made for v in op.results if isinstance(v.type, TileType)]
    assert {op.operands[0] for op in made if op.defn.short == "tile.assign"}.issuperset(tiles)
    run_pipeline(after, f"pto{{target={target}}}", context := PassContext(diagnostics=Diagnostics(after.source)))
    assert not context.diagnostics.items
    assert [op.defn for f in after.functions for op in f.ops()] == [op.defn for op in made]
    agree(before, reread(after))


def test_equal_kernels_are_one_function():
    after = translate(layered(40), "pto", Diagnostics(), Options(target="a5"))
    assert after is not None and len(after.functions) <= 8 and len(after.main.body) >= 40


def test_memory_between_kernels_is_used_again():
    before = layered(40)
    after = translate(before, "pto", Diagnostics(), Options(target="a5"))
    calls = [op for op in after.main.body if op.defn.short == "func.call"]
    assert len(after.main.params) <= 8 and all(len(set(op.operands)) == len(op.operands) for op in calls)
    short = layered(4)
    agree(short, reread(translate(short, "pto", Diagnostics(), Options(target="a5"))))


def test_the_time_grows_with_the_length():
    def seconds(depth):
        before = layered(depth)
        start = process_time()
        assert translate(before, "pto", Diagnostics(), Options(target="a5")) is not None
        return process_time() - start

    seconds(2)
    short, long = seconds(100), seconds(400)
    assert long < 8 * short and long < 400 * 5 * 2e-3


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("t", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("name", ["argmax", "argmin"])
@pytest.mark.parametrize(
    ("axis", "shape", "out"),
    [(0, "1x4", "4"), (1, "40x70", "40"), (0, "40x70", "70"), (2, "3x20x9", "3x20"), (1, "3x20x9", "3x9"), (1, "5x1", "5")],
)
def test_where_the_extreme_is(axis, shape, out, name, t, target):
    lines = [f"%i = {name}(%x) axis[{axis}] -> tensor<si32, {out}>"]
    before = function(f"%x: tensor<{t}, {shape}>", f"tensor<si32, {out}>", *lines, returns="%i")
    after = translate(before, "pto", found := Diagnostics(before.source), Options(target=target))
    assert after is not None, found.items
    agree(before, reread(after))


# Ops that move, look up, order and round

I2, I23 = "tensor<si32, 2>", "tensor<si32, 2x3>"
T, X = "tensor<{t}, 5x9>", "%x: tensor<{t}, 5x9>"
INSIDE = "%j = clamp(%i, dense<0> : tensor<si32, 2x9>, dense<4> : tensor<si32, 2x9>) -> tensor<si32, 2x9>"
ROWS = "%j = clamp(%i, dense<0> : tensor<si32, 2x3>, dense<4> : tensor<si32, 2x3>) -> tensor<si32, 2x3>"
WINDOW = "window_dims[2, 3] strides[2, 1] padding[[1, 0], [0, 2]] base_dilation[2, 1] window_dilation[1, 2]"
OPS = {
    "concat": (X, "tensor<{t}, 5x18>", ["%n = neg(%x) -> " + T, "%y = concat(%x, %n) axis[1] -> tensor<{t}, 5x18>"]),
    "pad": (X, "tensor<{t}, 12x9>", ["%y = pad(%x) low[1, 0] high[2, 0] interior[1, 0] -> tensor<{t}, 12x9>"]),
    "tile": (X, "tensor<{t}, 10x27>", ["%y = tile(%x) repeats[2, 3] -> tensor<{t}, 10x27>"]),
    "reshape": (X, "tensor<{t}, 3x15>", ["%y = reshape(%x) new_shape[3, 15] -> tensor<{t}, 3x15>"]),
    "slice of a view": (
        X, "tensor<{t}, 4x2>",
        ["%r = transpose(%x) perm[1, 0] -> tensor<{t}, 9x5>", "%s = slice(%r) starts[2, 1] sizes[6, 4] -> tensor<{t}, 6x4>",
         "%p = transpose(%s) perm[1, 0] -> tensor<{t}, 4x6>", "%y = slice(%p) starts[0, 3] sizes[4, 2] -> tensor<{t}, 4x2>"],
    ),
    "dynamic_slice by data": (
        X + f", %s: {I2}", "tensor<{t}, 2x4>", ["%y = dynamic_slice(%x, %s) sizes[2, 4] -> tensor<{t}, 2x4>"],
    ),
    "dynamic_update_slice by data": (
        X + f", %u: tensor<{{t}}, 2x4>, %s: {I2}", T, ["%y = dynamic_update_slice(%x, %u, %s) sizes[2, 4] -> " + T],
    ),
    "dynamic_slice by a number": (
        X + ", %a: tensor<si32>", "tensor<{t}, 2x4>",
        ["%r = reshape(%a) new_shape[1] -> tensor<si32, 1>", f"%s = concat(%r, %r) axis[0] -> {I2}",
         "%y = dynamic_slice(%x, %s) sizes[2, 4] -> tensor<{t}, 2x4>"],
    ),
    "take": (X + f", %i: {I23}", "tensor<{t}, 2x3x9>", [ROWS, "%y = take(%x, %j) -> tensor<{t}, 2x3x9>"]),
    "take of a vector": (
        "%x: tensor<{t}, 5>, %i: " + I23, "tensor<{t}, 2x3>", [ROWS, "%y = take(%x, %j) -> tensor<{t}, 2x3>"],
    ),
    "take of one number": (
        "%x: tensor<{t}, 5x9>", "tensor<{t}, 9>", ["%y = take(%x, dense<3> : tensor<si32>) -> tensor<{t}, 9>"],
    ),
    "take of a large table": (
        "%x: tensor<{t}, 900x9>, %i: " + I23, "tensor<{t}, 2x3x9>",
        ["%c = clamp(%i, dense<-400> : tensor<si32, 2x3>, dense<400> : tensor<si32, 2x3>) -> tensor<si32, 2x3>",
         "%j = add(%c, dense<450> : tensor<si32, 2x3>) -> tensor<si32, 2x3>", "%y = take(%x, %j) -> tensor<{t}, 2x3x9>"],
    ),
    "gather": (X + ", %i: tensor<si32, 2x9>", "tensor<{t}, 2x9>", [INSIDE, "%y = gather(%x, %j) axis[0] -> tensor<{t}, 2x9>"]),
    "top_k": (X, "tensor<{t}, 5x4>", ["%t = top_k(%x) k[4] -> (tensor<{t}, 5x4>, tensor<si32, 5x4>)"], "%t[0]"),
    "top_k, where": (X, "tensor<si32, 2x9>",
                     ["%t = top_k(%x) k[2] axis[0] largest[false] -> (tensor<{t}, 2x9>, tensor<si32, 2x9>)"], "%t[1]"),
    "sort": (X, T, ["%y = sort(%x) axis[0] descending[true] -> " + T]),
    "cumsum": (X, T, ["%y = cumsum(%x) axis[1] exclusive[true] -> " + T]),
    "cummax": (X, T, ["%y = cummax(%x) axis[0] reverse[true] -> " + T]),
    "sign": (X, T, ["%y = sign(%x) -> " + T]),
    "argmin": (X, "tensor<si32, 9>", ["%y = argmin(%x) axis[0] -> tensor<si32, 9>"]),
    "a long row": ("%x: tensor<{t}, 3x7001>", "tensor<{t}, 3>", ["%y = reduce_max(%x) axes[1] -> tensor<{t}, 3>"]),
    "windows": (X, "tensor<{t}, 5x7>", [f"%y = reduce_window(%x) {WINDOW} reduce[max] -> tensor<{{t}}, 5x7>"]),
    "patches": (
        "%x: tensor<{t}, 2x7x6x3>", "tensor<{t}, 2x3x6x18>",
        ["%y = extract_patches(%x) window[3, 2] strides[2, 1] dilation[1, 2] padding[[0, 0], [1, 1]] -> tensor<{t}, 2x3x6x18>"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("t", ["f32", "f16", "si32"])
@pytest.mark.parametrize("name", OPS)
def test_ops_that_move_look_up_and_order(name, t, target):
    parameters, result, lines, *returns = OPS[name]
    texts = [line.replace("{t}", t) for line in lines]
    before = function(parameters.replace("{t}", t), result.replace("{t}", t), *texts, returns=(returns or ["%y"])[0])
    after = translate(before, "pto", found := Diagnostics(before.source), Options(target=target))
    assert after is not None, found.items
    agree(before, reread(after))


@pytest.mark.parametrize("name", ["floor", "ceil", "round_even", "round_away"])
def test_rounding_holds_where_i32_ends(name):
    before = function("%x: tensor<f32, 3x9>", "tensor<f32, 3x9>", f"%y = {name}(%x) -> tensor<f32, 3x9>", returns="%y")
    after = reread(translate(before, "pto", Diagnostics(before.source), Options(target="a3")))
    x = np.resize(np.array([0.5, 1.5, -0.5, 2.5, -2.5, 3e9, -3e38, np.inf, 8388609.0, 0.49999997], np.float32), (3, 9))
    exact = {
        "floor": np.floor,
        "ceil": np.ceil,
        "round_even": np.rint,
        "round_away": lambda v: np.copysign(np.floor(abs(v) + 0.5), v),
    }
    found = run(after, {"x": x, "y": np.zeros_like(x)}, RunOptions(engine="reference"))["y"]
    np.testing.assert_array_equal(found, exact[name](x.astype(np.float64)).astype(np.float32))


def test_masks_have_bits_and_memory():
    m = "tensor<i1, 3x9>"
    lines = [
        f"%a = bitwise_and(%x, %z) -> {m}", f"%b = bitwise_not(%a) -> {m}", f"%c = bitwise_xor(%b, %z) -> {m}",
        f"%d = bitwise_or(%c, %x) -> {m}", "%y = reduce_and(%d) axes[1] -> tensor<i1, 3>",
    ]  # fmt: skip
    before = function(f"%x: {m}, %z: {m}", f"tensor<i1, 3>, {m}", *lines, returns="%y, %d")
    for target in TARGETS:
        after = translate(before, "pto", found := Diagnostics(before.source), Options(target=target))
        assert after is not None, found.items
        agree(before, reread(after))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("t", ["si8", "ui8", "si16", "si32"])
@pytest.mark.parametrize(
    "left, right", [("5x7", "5x7"), ("5x7", "5x1"), ("5x7", "1x7"), ("33", "33"), ("40x1", "40x1"), ("3x2000", "2000")]
)
def test_bits_of_elements_that_the_target_takes_apart(left, right, t, target):
    """On a3 bits of 32 are those of two halves."""
    rng, values = np.random.default_rng(1), {}
    for name, shape in (("x", left), ("z", right)):
        kind = np.dtype(t.removeprefix("s").replace("i", "int"))
        ends = np.iinfo(kind)
        values[name] = rng.integers(ends.min, ends.max, tuple(map(int, shape.split("x"))), dtype=kind, endpoint=True)
    x, z = values["x"], values["z"]
    out = "x".join(map(str, np.broadcast_shapes(x.shape, z.shape)))
    m = f"tensor<{t}, {out}>"
    lines = [
        f"%p = broadcast_to(%x) result_shape[{out.replace('x', ', ')}] -> {m}",
        f"%q = broadcast_to(%z) result_shape[{out.replace('x', ', ')}] -> {m}",
    ]
    lines += [f"%a = bitwise_and(%p, %q) -> {m}", f"%n = bitwise_not(%p) -> {m}", f"%c = bitwise_xor(%n, %q) -> {m}"]
    lines += [f"%k = bitwise_or(%c, dense<77> : {m}) -> {m}", f"%y = bitwise_or(%k, %a) -> {m}"]
    before = single(f"%x: tensor<{t}, {left}>, %z: tensor<{t}, {right}>", m, *lines)
    after = translate(before, "pto", found := Diagnostics(before.source), Options(target=target))
    assert after is not None, found.items
    given = {**values, "y": np.zeros(np.broadcast_shapes(x.shape, z.shape), x.dtype)}
    made = run(reread(after), given, RunOptions(order="adversarial"))["y"]
    np.testing.assert_array_equal(made, (((~x) ^ z) | x.dtype.type(77)) | (x & z))


@pytest.mark.parametrize("scale", [0.02, 0.1, 0.25, 1 / 3])
def test_numbers_next_to_the_middle_of_two_steps_are_rounded_exactly(scale):
    n = np.arange(-128, 128, dtype=np.float64)
    x = np.concatenate([((n + 0.5) * scale), (n * scale)]).astype(np.float32).reshape(4, 128)
    x = np.stack([x, np.nextafter(x, np.float32(np.inf)), np.nextafter(x, np.float32(-np.inf))]).reshape(12, 128)
    t = "tensor<si8, 12x128>"
    lines = [f"%y = quantize(%x) output_dtype[si8] scales[{scale!r}] zero_points[3] -> {t}"]
    before = function("%x: tensor<f32, 12x128>", t, *lines, returns="%y")
    after = reread(translate(before, "pto", Diagnostics(before.source), Options(target="a3")))
    found = run(after, {"x": x, "y": np.zeros(x.shape, np.int8)}, RunOptions(engine="reference"))["y"]
    np.testing.assert_array_equal(found, np.clip(np.rint(x.astype(np.float64) / scale) + 3, -128, 127).astype(np.int8))


# Control flow

SCAN = """func @main(%x: tensor<f32, 3x4>, %a: tensor<f32, 4>, %b: tensor<f32, 4>)
    -> (tensor<f32, 4>, tensor<f32, 4>, tensor<f32, 3x4>) {
  %i = iota() axis[0] -> tensor<si32, 3>
  %r = scan(%a, %b, %x, %i) body_region[^r0] carry_count[2] scan_output_count[1]
    -> (tensor<f32, 4>, tensor<f32, 4>, tensor<f32, 3x4>)
  return %r[0], %r[1], %r[2]
}
region ^r0(%a: tensor<f32, 4>, %b: tensor<f32, 4>, %x: tensor<f32, 4>, %i: tensor<si32>)
    -> (tensor<f32, 4>, tensor<f32, 4>, tensor<f32, 4>) {
  %f = cast(%i) -> tensor<f32>
  %g = broadcast_to(%f) result_shape[4] -> tensor<f32, 4>
  %y = mul(%x, %g) -> tensor<f32, 4>
  %z = add(%y, %a) -> tensor<f32, 4>
  return %b, %z, %y
}"""
WHILE = """func @main(%x: tensor<f32, 6x4>, %n: tensor<si32>) -> (tensor<f32, 6x4>, tensor<si32>) {
  %r = while(%n, %x) cond_region[^r0] body_region[^r1] -> (tensor<si32>, tensor<f32, 6x4>)
  return %r[1], %r[0]
}
region ^r0(%i: tensor<si32>, %x: tensor<f32, 6x4>) -> (tensor<i1>, tensor<si32>, tensor<f32, 6x4>) {
  %go = COMPARE(%i, dense<LIMIT> : tensor<si32>) -> tensor<i1>
  return %go, %i, %x
}
region ^r1(%i: tensor<si32>, %x: tensor<f32, 6x4>) -> (tensor<si32>, tensor<f32, 6x4>) {
  %j = add(%i, dense<STEP> : tensor<si32>) -> tensor<si32>
  %o = reshape(%i) new_shape[1] -> tensor<si32, 1>
  %s = concat(%o, dense<[0]> : tensor<si32, 1>) axis[0] -> tensor<si32, 2>
  %p = dynamic_slice(%x, %s) sizes[1, 4] -> tensor<f32, 1x4>
  %q = broadcast_to(%p) result_shape[6, 4] -> tensor<f32, 6x4>
  %y = maximum(%x, %q) -> tensor<f32, 6x4>
  return %j, %y
}"""
COND = """func @main(%x: tensor<f32, 3x4>PARAMETER) -> (tensor<f32, 3x4>, tensor<f32, 3x4>) {
  %m = reduce_max(%x) axes[0, 1] -> tensor<f32>
  %d = compare_gt(%m, dense<0.5> : tensor<f32>) -> tensor<i1>
  %r = cond(FLAG, %x) true_region[^r0] false_region[^r1] -> (tensor<f32, 3x4>, tensor<f32, 3x4>)
  return %r[0], %r[1]
}
region ^r0(%x: tensor<f32, 3x4>) -> (tensor<f32, 3x4>, tensor<f32, 3x4>) {
  %y = exp(%x) -> tensor<f32, 3x4>
  return %y, %x
}
region ^r1(%x: tensor<f32, 3x4>) -> (tensor<f32, 3x4>, tensor<f32, 3x4>) {
  %y = neg(%x) -> tensor<f32, 3x4>
  return %x, %y
}"""


def looping(compare, limit, step):
    return WHILE.replace("COMPARE", compare).replace("LIMIT", str(limit)).replace("STEP", str(step))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    "source",
    [
        SCAN,
        *(looping(*how) for how in (("compare_lt", 4, 1), ("compare_le", 5, 2), ("compare_gt", -3, -1), ("compare_ge", -4, -2))),
        COND.replace("PARAMETER", ", %p: tensor<i1>").replace("FLAG", "%p"),
        COND.replace("PARAMETER", "").replace("FLAG", "%d"),
    ],
    ids=["scan", "lt", "le", "gt", "ge", "by a number", "by data"],
)
def test_control_flow(source, target):
    before = program(source)
    after = translate(before, "pto", found := Diagnostics(before.source), Options(target=target))
    assert after is not None, found.items
    agree(before, reread(after))


def test_a_loop_whose_end_is_data_is_refused():
    source = looping("compare_lt", 4, 1).replace("%j = add(%i, dense<1> : tensor<si32>)", "%j = add(%i, %i)")
    assert translate(program(source), "pto", found := Diagnostics(), Options()) is None
    assert ["the trip count of the loop is data" in d.message for d in found] == [True]


# Random programs of many ops


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("seed", range(12))
def test_random_programs_agree_or_are_refused_with_a_reason(seed, target):
    before = grown_ptir.generate(Seeded(seed), dtypes=(F32, F32, F16, SI32), size=14)
    after = translate(before, "pto", found := Diagnostics(), options := Options(target=target, constants={}))
    if after is None:
        assert {d.code for d in found} == {"NotTranslatable"} and all(d.message for d in found)
        return
    constants = {name: arrays.from_literal(x) for name, x in options[CONSTANTS].items()}
    assert not check(before, reread(after), runs=1, constants=constants).diverged


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("t", ["ui8", "si8", "si32"])
@pytest.mark.parametrize("kind", ["sum", "prod", "max", "min"])
def test_integers_are_reduced_in_those_that_the_target_has(kind, t, target):
    lines = (f"%y = reduce_{kind}(%x) axes[1] -> tensor<{t}, 3>", f"%z = reduce_{kind}(%x) axes[0] -> tensor<{t}, 40>")
    before = function(f"%x: tensor<{t}, 3x40>", f"tensor<{t}, 3>, tensor<{t}, 40>", *lines, returns="%y, %z")
    after = translate(before, "pto", found := Diagnostics(before.source), Options(target=target))
    assert after is not None, found.items
    agree(before, reread(after))


# What is moved


def moved(function):
    """The elements that loads to Mat move when a function runs: the size of every tile, once for each iteration around it."""

    def of(block, times):
        found = 0
        for op in block.body:
            if op.defn.short == "scf.for":
                lower, upper, step = (constant(x) for x in op.operands[:3])
                found += of(op.regions[0], times * len(range(lower, upper, step)))
            elif op.defn.short == "tile.load" and op.result.type.loc == "Mat":
                found += times * prod(op.result.type.shape)
        return found

    return of(function, 1)


@pytest.mark.parametrize("m, k, n", [(1024, 1024, 1024), (512, 2048, 768), (1000, 1000, 1000)])
@pytest.mark.parametrize("target", TARGETS)
def test_products_move_little_more_than_the_best_blocks_would(m, k, n, target):
    lines = [f"%y = dot_general(%x, %w) contract_lhs[1] contract_rhs[0] -> tensor<f32, {m}x{n}>"]
    before = function(f"%x: tensor<f32, {m}x{k}>, %w: tensor<f32, {k}x{n}>", f"tensor<f32, {m}x{n}>", *lines, returns="%y")
    after = translate(before, "pto", Diagnostics(before.source), Options(target=target))
    accumulated = find(target).capacity["Acc"] // 4
    assert moved(after.main) <= 1.2 * 2 * m * n * k / accumulated**0.5


# Indices of 64 bits

EDGE = 2**31
FAR = np.array([0, 1, -1, 127, 128, -129, 2**32, 2**32 + 5, -(2**32) - 3, 2**40, -(2**40), 2**62, -(2**62), 2**63 - 1, -(2**63),
                EDGE - 1, EDGE - 64, EDGE, EDGE + 1, EDGE + 200, -EDGE, -EDGE - 1, -EDGE + 1, -EDGE - 300])  # fmt: skip


@pytest.mark.parametrize("target", TARGETS)
def test_64_bits_saturate_to_fewer(target):
    lines = ("%y = cast(%x) -> tensor<si32, 3x8>", "%z = cast(%x) -> tensor<si8, 3x8>")
    before = function("%x: tensor<si64, 3x8>", "tensor<si32, 3x8>, tensor<si8, 3x8>", *lines, returns="%y, %z")
    after = reread(translate(before, "pto", Diagnostics(before.source), Options(target=target)))
    x = FAR.reshape(3, 8)
    found = run(after, {"x": x, "y": np.zeros((3, 8), np.int32), "z": np.zeros((3, 8), np.int8)}, RunOptions(engine="reference"))
    np.testing.assert_array_equal(found["y"], np.clip(x, -(2**31), 2**31 - 1))
    np.testing.assert_array_equal(found["z"], np.clip(x, -128, 127))


def test_places_of_64_bits_are_computed_in_32():
    i = "tensor<si64, 2x3>"
    lines = [
        f"%n = add(%i, dense<5> : {i}) -> {i}", f"%b = compare_lt(%i, dense<0> : {i}) -> tensor<i1, 2x3>",
        f"%j = select(%b, %n, %i) -> {i}", "%y = take(%x, %j) -> tensor<f32, 2x3x9>",
    ]  # fmt: skip
    before = function(f"%x: tensor<f32, 5x9>, %i: {i}", "tensor<f32, 2x3x9>", *lines, returns="%y")
    after = reread(translate(before, "pto", Diagnostics(before.source), Options(target="a3")))
    x, at = np.arange(45, dtype=np.float32).reshape(5, 9), np.array([[0, -1, 4], [-5, 2, -3]])
    memory = {p.name: np.zeros(p.type.shape, np.float32 if p.type.dtype is F32 else np.int32) for p in after.main.params}
    found = run(after, memory | {"x": x, "i": at}, RunOptions(engine="reference"))
    np.testing.assert_array_equal(list(found.values())[-1], x[at])


def open_softmax():
    full, column = "tensor<f32, ?Mx?N>", "tensor<f32, ?Mx1>"
    return function(
        "%x: tensor<f32, ?Mx64>, %w: tensor<f32, 64x?N>", full,
        f"%c = dot_general(%x, %w) contract_lhs[1] contract_rhs[0] -> {full}",
        f"%m = reduce_max(%c) axes[1] keepdims[true] -> {column}",
        f"%mb = broadcast_to(%m) result_shape[?M, ?N] -> {full}",
        f"%d = sub(%c, %mb) -> {full}",
        f"%e = exp(%d) -> {full}",
        f"%s = reduce_sum(%e) axes[1] keepdims[true] -> {column}",
        f"%sb = broadcast_to(%s) result_shape[?M, ?N] -> {full}",
        f"%y = div(%e, %sb) -> {full}",
        returns="%y",
    )  # fmt: skip


def open_product():
    attrs = "contract_lhs[1] contract_rhs[0] accum_dtype[f32] out_dtype[f32]"
    lines = [f"%y = dot_general(%x, %w) {attrs} -> tensor<f32, ?Mx40>"]
    return function("%x: tensor<f16, ?Mx?N>, %w: tensor<f16, ?Nx40>", "tensor<f32, ?Mx40>", *lines, returns="%y")


def open_norm():
    full = "tensor<f32, ?Mx64>"
    line = f"%y = layer_norm(%x, %g, %b) feature_axis[1] epsilon[0.00001] -> {full}"
    return function(f"%x: {full}, %g: tensor<f32, 64>, %b: tensor<f32, 64>", full, line, returns="%y")


def open_reductions():
    return function(
        "%x: tensor<f16, ?Mx?N>", "tensor<f16, ?M>, tensor<f16, ?N>, tensor<f16>, tensor<si32, ?M>, tensor<f16, ?M>",
        "%a = reduce_sum(%x) axes[1] keepdims[false] -> tensor<f16, ?M>",
        "%b = reduce_max(%x) axes[0] keepdims[false] -> tensor<f16, ?N>",
        "%c = reduce_sum(%x) axes[0, 1] keepdims[false] -> tensor<f16>",
        "%d = argmax(%x) axis[1] keepdims[false] -> tensor<si32, ?M>",
        "%e = neg(%a) -> tensor<f16, ?M>",
        returns="%a, %b, %c, %d, %e",
    )  # fmt: skip


def open_views():
    return function(
        "%x: tensor<f32, ?Mx?Nx4x12>, %t: tensor<f32, 50x4>, %i: tensor<si32, ?Mx?N>",
        "tensor<f32, ?Mx4x12x?N>, tensor<f32, ?Mx?Nx4>, tensor<f32, ?Mx?Nx5>",
        "%y = transpose(%x) perm[0, 2, 3, 1] -> tensor<f32, ?Mx4x12x?N>",
        "%z = take(%t, %i) -> tensor<f32, ?Mx?Nx4>",
        "%p = pad(%z) low[0, 0, 1] high[0, 0, 0] interior[0, 0, 0] pad_value[2.0] -> tensor<f32, ?Mx?Nx5>",
        returns="%y, %z, %p",
    )


OPEN = (open_softmax, open_product, open_norm, open_reductions, open_views)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("make", OPEN, ids=[f.__name__ for f in OPEN])
def test_extents_that_are_parameters(make, target):
    before = make()
    after = translate(before, "pto", found := Diagnostics(before.source), Options(target=target))
    assert after is not None and not found.items, found.items
    after = reread(after)
    for m, n in ((1, 1), (33, 70), (8, 520)):  # whole blocks, and ragged ones
        agree(before, after, bindings={"M": m, "N": n})


def test_an_extent_that_no_kernel_needs():
    line = "%y = neg(%x) -> tensor<f32, ?Mx4>"
    for unused in ("?N", "?Nx?M"):  # the second is said in part: `[?, M]`
        before = function(f"%x: tensor<f32, ?Mx4>, %u: tensor<f32, {unused}>", "tensor<f32, ?Mx4>", line, returns="%y")
        after = reread(translate(before, "pto", Diagnostics(before.source), Options(target="a3")))
        agree(before, after, bindings={"M": 9, "N": 5})


@pytest.mark.parametrize("name", ["5", "x.1", "i32", "module"])
def test_open_memory_of_any_name(name):
    before = function(f"%{name}: tensor<f32, ?M>", "tensor<f32, ?M>", f"%y = neg(%{name}) -> tensor<f32, ?M>", returns="%y")
    after = reread(translate(before, "pto", Diagnostics(before.source), Options(target="a3")))
    agree(before, after, bindings={"M": 9})


@pytest.mark.parametrize("rows", [1, 16, 17, 32, 33, 64, 100])
def test_a_kernel_of_open_extents_loads_ahead(rows):
    """Its loop has a steady state in which the next loads are under way, and any number of rows is right."""
    full = "tensor<f32, ?Mx1024>"
    before = function(f"%x: {full}", full, f"%y = exp(%x) -> {full}", returns="%y")
    after = reread(translate(before, "pto", Diagnostics(before.source), Options(target="a3")))
    carried = [op for op in after.main.ops() if op.defn.short == "scf.for" and len(op.results) > 1]
    assert len(carried) == 1 and any("event" in str(v.type) for v in carried[0].results)
    agree(before, after, bindings={"M": rows})


def test_a_run_of_open_memory_is_given_its_extents():
    before = open_product()
    after = reread(translate(before, "pto", Diagnostics(before.source), Options(target="a3")))
    assert {"x": "memref<?Mx?Nxf16>", "M": "index"}.items() <= {p.name: str(p.type) for p in after.main.params}.items()
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(shape).astype(np.float16) for shape in ((70, 300), (300, 40)))
    bound = reread(after)
    symbols.bind(bound, {"M": 70, "N": 300})  # as the command line does, before it makes inputs
    for program_ in (after, bound):
        made = Inputs(given=(("y", "0"),), bindings={"M": 70, "N": 300}, random=0).arrays(program_)
        assert made["M"] == 70 and made["N"] == 300 and made["y"].shape == (70, 40)
    left = run(after, {**made, "x": x, "w": w}, RunOptions(engine="reference"))["y"]
    assert np.allclose(left, x.astype(np.float64) @ w.astype(np.float64), atol=1e-3)


WRONG = ["x", "{x = [M]}", "{x = [M, 9]}", "{z = [M]}", "{x = [K, 64]}", '{M = "M+1"}', '{M = "2*"}', '{x = "K"}']


@pytest.mark.parametrize("text", WRONG)
def test_extents_that_are_said_wrongly(text):
    source = f"func.func @f(%x: pto.memref<?x64xf32>, %M: index) attributes {{ pto.extents = {text} }} {{\n  return\n}}\n"
    found = Diagnostics(Source("test.pto", source))
    pto_text.read(found.source, found, Options())
    assert [d.code for d in found.items] in (["TypeMismatch"], ["ParseError"])


def test_rows_that_no_block_holds_are_reduced_in_one_pass():
    lines = ["%n = neg(%x) -> tensor<f32, 3x70001>", "%s = reduce_sum(%n) axes[1] keepdims[false] -> tensor<f32, 3>"]
    before = function("%x: tensor<f32, 3x70001>", "tensor<f32, 3>", *lines, "%y = neg(%s) -> tensor<f32, 3>", returns="%y")
    after = translate(before, "pto", Diagnostics(before.source), Options(target="a3"))
    assert after is not None and len(after.functions) == 1
    agree(before, reread(after))


def test_a_part_with_gaps_of_a_memory_that_is_larger():
    line = "%y = pad(%n) low[2, 1] high[0, 0] interior[0, 1] pad_value[0.0] -> tensor<f32, 6x10>"
    before = function("%x: tensor<f32, 4x5>", "tensor<f32, 6x10>", "%n = neg(%x) -> tensor<f32, 4x5>", line, returns="%y")
    agree(before, reread(translate(before, "pto", Diagnostics(before.source), Options(target="a3"))))


@pytest.mark.parametrize("bad", [-1, 9, 6000, 2**31 - 1, -(2**31)])
@pytest.mark.parametrize("rows", [9, 6000])
@pytest.mark.parametrize("name", ["take", "gather"])
def test_an_index_outside_is_an_error(name, rows, bad):
    if name == "take":
        parameters, lines = f"%x: tensor<f32, {rows}x4>, %i: tensor<si32, 3>", ["%y = take(%x, %i) -> tensor<f32, 3x4>"]
        shape, out = (3,), "tensor<f32, 3x4>"
    else:
        parameters, out = f"%x: tensor<f32, 2x{rows // 8}>, %i: tensor<si32, 2x3>", "tensor<f32, 2x3>"
        shape, lines = (2, 3), [f"%y = gather(%x, %i) axis[1] -> {out}"]
    before = function(parameters, out, *lines, returns="%y")
    after = reread(translate(before, "pto", Diagnostics(before.source), Options(target="a3")))
    extent = rows if name == "take" else rows // 8
    given = Inputs(random=0, given=(("i", "0"),)).arrays(after)
    for index in (0, extent - 1, bad):
        given["i"] = np.zeros(shape, np.int32)
        given["i"].reshape(-1)[-1] = index
        if 0 <= index < extent:
            x, left = given["x"], run(after, given, RunOptions(engine="reference"))["y"]
            expected = x[given["i"]] if name == "take" else np.take_along_axis(x, given["i"], 1)
            assert np.array_equal(left, expected)
            continue
        with pytest.raises(Rejected, match="reads index"):
            run(after, given, RunOptions(engine="reference"))


@pytest.mark.parametrize("target", TARGETS)
def test_a_product_keeps_its_busiest_pipe_busy(target):
    out = "tensor<f32, 128x256>"
    line = f"%y = dot_general(%x, %w) contract_lhs[1] contract_rhs[0] -> {out}"
    before = function("%x: tensor<f32, 128x1024>, %w: tensor<f32, 1024x256>", out, line, returns="%y")
    after = translate(before, "pto", Diagnostics(), Options(target=target))
    given = {p.name: np.ones(p.type.shape, np.float32) for p in after.main.params}
    run(after, given, RunOptions(engine="reference", timeline=(line := Timeline())))
    makespan, busiest = line.makespan, max(line.busy().values())
    assert makespan <= 1.15 * busiest


def test_blocks_of_a_product_and_a_softmax_overlap():
    """Products of the next blocks are under way while the vector unit works on one: their accumulators are slots with events.
    On a3 there is no way from Acc to Vec but memory."""
    words = {"t": "f32", "shape": "2x512x512", "column": "2x512x1", "dims": "2, 512, 512", "axis": 2}
    lines = [line.format(**words) for line in SOFTMAX]
    product = "%x = dot_general(%q, %k) batch_lhs[0] batch_rhs[0] contract_lhs[2] contract_rhs[1] -> tensor<f32, 2x512x512>"
    parameters = "%q: tensor<f32, 2x512x64>, %k: tensor<f32, 2x64x512>"
    before = function(parameters, "tensor<f32, 2x512x512>", product, *lines, returns="%y")
    after = translate(before, "pto", Diagnostics(), Options(target="a5"))
    given = {p.name: np.ones(p.type.shape, np.float32) for p in after.main.params}
    run(after, given, RunOptions(engine="reference", timeline=(line := Timeline())))
    makespan, busiest = line.makespan, max(line.busy().values())
    assert makespan <= 1.2 * busiest


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    "name, t",
    [
        *((name, t) for name in ("rem", "mod") for t in ("f32", "f16", "si32", "si16")),
        ("pow", "f32"),
        *((f"shift_{kind}", t) for kind in ("left", "right_logical", "right_arithmetic") for t in ("si8", "si16", "si32")),
        *((f"shift_{kind}", t) for kind in ("left", "right_logical") for t in ("ui8", "ui16")),
    ],
)
def test_remainders_powers_and_shifts(name, t, target):
    """Against NumPy in Python's integers or in doubles, with every sign, and shifts by less than 0 and by more than the width."""
    full = f"tensor<{t}, 9x40>"
    parameters = f"%x: {full}, %y: {full}"
    before = function(parameters, full, f"%z = {name}(%x, %y) -> {full}", returns="%z")
    after = translate(before, "pto", found := Diagnostics(before.source), Options(target=target))
    assert after is not None, found.items
    rng, dtype = np.random.default_rng(5), np.dtype({"f": "f", "s": "i", "u": "u"}[t[0]] + str(int(t.lstrip("fsui")) // 8))
    bits = 8 * dtype.itemsize
    if t[0] == "f":
        x, y = (rng.uniform(low, 9, (9, 40)).astype(dtype) for low in ((0.1, -3) if name == "pow" else (-9, -9)))
        wide = [x.astype(np.float64), y.astype(np.float64)]
        want = {"rem": np.fmod, "mod": np.mod, "pow": np.power}[name](*wide).astype(dtype)
    else:
        edges = np.iinfo(dtype)
        x = rng.integers(edges.min, edges.max, (9, 40), dtype, endpoint=True)
        low, high = (-7, bits + 3) if t[0] == "s" else (0, bits + 3)
        y = rng.integers(low, high, (9, 40)).astype(dtype)
        if name in ("rem", "mod"):
            y[y == 0] = -1
            x[0, 0], y[0, 0] = edges.min, -1

        def one(a, b):
            if name == "mod":
                return a % b
            if name == "rem":
                return abs(a) % abs(b) * (-1 if a < 0 else 1)
            if name == "shift_right_arithmetic":
                return a >> (b if 0 <= b < bits else bits)
            if not 0 <= b < bits:
                return 0
            return a << b if name == "shift_left" else a % 2**bits >> b

        exact = [one(int(a), int(b)) % 2**bits for a, b in zip(x.ravel(), y.ravel(), strict=True)]
        want = np.array(exact, f"u{dtype.itemsize}").view(dtype).reshape(x.shape)
    for order in ("sequential", "adversarial"):
        given = {"x": x, "y": y, "z": np.zeros_like(x)}
        made = run(reread(after), given, RunOptions(engine="reference", order=order))["z"]
        if t[0] == "f":
            np.testing.assert_allclose(made, want, rtol=2.0**-8 if t == "f16" else 1e-5, atol=2.0**-8 if t == "f16" else 1e-5)
        else:
            np.testing.assert_array_equal(made, want)


OTHERS = [
    *(f"mind/{n}.mind.ir" for n in ("01_add_tool_style", "02_mlp_relu", "07_dot_variants", "60_mlp_loss", "61_cnn_loss")),
    *(f"tiny/{n}.json" for n in ("04_gemm_no_permute", "10_where_mask", "13_reduce_init")),
]


@pytest.mark.parametrize("name", OTHERS)
def test_programs_of_other_dialects_run_on_tiles(name):
    before = read(TESTDATA / name)
    after = translate(before, "pto", found := Diagnostics(before.source), options := Options(target="a3", constants={}))
    assert after is not None, found.items
    constants = {name: arrays.from_literal(x) for name, x in options[CONSTANTS].items()}
    assert not check(before, reread(after), runs=1, constants=constants).diverged


def test_constants_that_no_file_takes_are_parameters_of_their_own():
    """As many steps of quantization, of other values: told apart by what they are, where nothing else keeps them."""
    lines = [f"%{y} = quantize(%x) output_dtype[si8] axis[1] scales[{s}] -> tensor<si8, 4x3>"
             for y, s in (("a", "0.5, 0.25, 2.0"), ("b", "0.125, 4.0, 8.0"), ("c", "0.5, 0.25, 2.0"))]  # fmt: skip
    before = function("%x: tensor<f32, 4x3>", ", ".join(["tensor<si8, 4x3>"] * 3), *lines, returns="%a, %b, %c")
    kept = {}
    told = translate(before, "pto", Diagnostics(before.source), Options(target="a3", constants=kept))
    left = translate(before, "pto", Diagnostics(before.source), Options(target="a3"))
    assert len(kept) == 2
    for made in (told, left):
        assert len([p for p in made.main.params if p.name.startswith("steps")]) == 2


@pytest.mark.parametrize(
    "lines",
    [["%a = concat(%x, %x) axis[0] -> tensor<f32, ?M>", "%y = broadcast_to(dense<2.0> : tensor<f32>) result_shape[?M] -> {m}"],
     ["%y = iota() axis[0] -> {m}", "%a = tile(%x) repeats[3] -> tensor<f32, ?M>"]],
)  # fmt: skip
def test_an_extent_that_only_a_dead_op_defines(lines):
    """The extents that the kernel is given are those of the program before, which has the op."""
    m = "tensor<f32, ?M>"
    before = function("%x: tensor<f32, ?N>", m, *(line.format(m=m) for line in lines), returns="%y")
    after = reread(translate(before, "pto", Diagnostics(before.source), Options(target="a3")))
    found = check(before, after, runs=1)
    assert not found.diverged and found.elements["y"] in (4, 6)


def test_constants_next_to_inputs_of_names_that_ptir_cannot_spell():
    before = function("%_: tensor<f32, 3>, %x: tensor<f32, 7x5>", "tensor<f32, 3x5>",
                      "%y = take(%x, dense<[0, 5, 3]> : tensor<si32, 3>) -> tensor<f32, 3x5>", returns="%y")  # fmt: skip
    before.main.attrs["input_names"] = ["\n", "a b"]
    after = reread(translate(before, "pto", Diagnostics(before.source), Options(target="a3")))
    assert [p.name for p in after.main.params][:2] == ["_", "a_b"] and len(after.main.params) == 4


FLIPPED = """{"uops":[{"id":"1", "uop":"INPUT", "arg":{"tensor_id":"in", "dtype":"bf16", "shape":[2, 2, 1]}},
  {"id":"٣", "uop":"FLIP", "src":["1"], "arg":{"axes":[1, 2, 0]}}], "outputs":["٣"]}"""
IN_PARTS = """{"uops":[{"id":"a", "uop":"INPUT", "arg":{"tensor_id":"a", "dtype":"bf16", "shape":[1]}},
  {"id":"x", "uop":"INPUT", "arg":{"tensor_id":"x", "dtype":"bf16", "shape":[1, 1]}},
  {"id":"p", "uop":"PAD", "src":["x"], "arg":{"pad":[[0, 0], [1, 1]]}},
  {"id":"m", "uop":"REDUCE", "src":["a"], "arg":{"op":"MIN", "axes":[], "dtype":"i32", "init":2}},
  {"id":"v", "uop":"VIEW", "src":["p"], "arg":{"result_shape":[2], "index_map":{"map":["i0//2", "i0%3"], "fill":0.5}}}],
  "outputs":["m", "v"]}"""


@pytest.mark.parametrize("text", [FLIPPED, IN_PARTS])
def test_memory_between_kernels(text):
    """A name there that PTO cannot spell; and what is written in parts, where the minimum joins the kernel of the first part when
    a later one has the second."""
    before = read(text, "tiny")
    after = reread(translate(before, "pto", Diagnostics(before.source), Options(target="a3", constants=(kept := {}))))
    constants = {name: arrays.from_literal(x) for name, x in kept.items()}
    assert not check(before, after, runs=1, constants=constants).diverged


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16"])
def test_a_sum_that_begins_with_a_number(dtype, target):
    """Within the bound of the node, also where a partial sum is beyond the largest number, and of infinities and NaN."""
    x = {"id": "x", "uop": "INPUT", "arg": {"tensor_id": "x", "dtype": dtype, "shape": [5, 6]}}
    big = 2e38 if dtype != "fp16" else 4e4
    y = {"id": "y", "uop": "REDUCE", "src": ["x"], "arg": {"op": "SUM", "axes": [1], "dtype": dtype, "init": -big / 2}}
    before = read(json.dumps({"uops": [x, y]}), "tiny")
    after = reread(translate(before, "pto", Diagnostics(before.source), Options(target=target)))
    assert not check(before, after, runs=1).diverged
    given = np.zeros((5, 6), arrays.numpy_dtype(before.main.params[0].type.dtype))
    given[:, :2] = [[big, big], [big, 1], [np.inf, 0], [np.nan, 0], [-big / 2, -big]]
    expected, tolerances = reference_outputs(before, {"x": given}, RunOptions())
    out = {p.name: np.zeros(5, given.dtype) for p in after.main.params[1:]}
    made = run(after, {"x": given, **out}, RunOptions(engine="reference"))
    assert not compare(expected, {"y": list(made.values())[-1]}, tolerances)


@pytest.mark.parametrize("t", ["f32", "f16", "si32"])
@pytest.mark.parametrize(
    "shape, window, steps, padding, base, dilation, kind",
    [
        ((20, 30), (12, 13), (1, 1), ((0, 0), (0, 0)), (1, 1), (1, 1), "sum"),
        ((20, 30), (12, 13), (2, 3), ((1, 2), (0, 5)), (1, 2), (2, 1), "max"),
        ((700,), (300,), (7,), ((3, 4),), (1,), (2,), "sum"),
        ((2, 20, 20), (1, 20, 20), (1, 1, 1), ((0, 0),) * 3, (1, 1, 1), (1, 1, 1), "min"),
    ],
)
def test_windows_of_many_elements(shape, window, steps, padding, base, dilation, kind, t):
    """Against NumPy's sum or extreme of each window, in doubles or Python's integers."""
    wide = [(n - 1) * b + 1 + sum(p) for n, b, p in zip(shape, base, padding, strict=True)]
    reach = [(n - 1) * d + 1 for n, d in zip(window, dilation, strict=True)]
    out = tuple((n - r) // s + 1 for n, r, s in zip(wide, reach, steps, strict=True))
    words = [[*map(str, x)] for x in (window, steps, map(list, padding), base, dilation)]
    names = ("window_dims", "strides", "padding", "base_dilation", "window_dilation")
    line = " ".join(f"{name}[{', '.join(x)}]" for name, x in zip(names, words, strict=True))
    full, small = (f"tensor<{t}, {'x'.join(map(str, s))}>" for s in (shape, out))
    before = function(f"%x: {full}", small, f"%y = reduce_window(%x) {line} reduce[{kind}] -> {small}", returns="%y")
    after = translate(before, "pto", found := Diagnostics(before.source), Options(target="a3"))
    assert after is not None, found.items
    rng, dtype = np.random.default_rng(3), np.dtype({"f32": "f4", "f16": "f2", "si32": "i4"}[t])
    x = rng.integers(-9, 9, shape).astype(dtype)
    exact = x.astype(np.int64)
    low = {"sum": 0, "max": -(2**40), "min": 2**40}[kind]
    spread = np.full(wide, low, np.int64)
    spread[tuple(np.s_[p[0] : p[0] + (n - 1) * b + 1 : b] for n, b, p in zip(shape, base, padding, strict=True))] = exact
    want = np.empty(out, np.int64)
    for at in np.ndindex(out):
        part = spread[tuple(np.s_[i * s : i * s + r : d] for i, s, r, d in zip(at, steps, reach, dilation, strict=True))]
        want[at] = getattr(part, kind)()
    after = reread(after)
    made = run(after, {**Inputs(random=0).arrays(after), "x": x}, RunOptions(engine="reference"))["y"]
    np.testing.assert_array_equal(made.astype(np.int64), want)


@pytest.mark.parametrize("last", ["neg(%t)", "rng_uniform()"])
def test_constants_of_a_function_have_no_name_that_memory_of_another_one_has(last):
    """A file has the constants of all functions; those of a function that is left out are not in it."""
    text = f"""program @main (spec_version = ptir.v0.4) {{
  func @main(%x: tensor<f32, 3x4>) -> tensor<f32, 5x4> {{
    %v0 = pad(%x) low[1, 0] high[1, 0] interior[0, 0] pad_value[1.0] -> tensor<f32, 5x4>
    %y = cumsum(%v0) axis[0] -> tensor<f32, 5x4>
    return %y
  }}
  func @other(%p: tensor<f32, 3>) -> tensor<f32, 2> {{
    %v0 = constant() value[dense<[2, 0]>] -> tensor<si32, 2>
    %t = take(%p, %v0) -> tensor<f32, 2>
    %z = {last} -> tensor<f32, 2>
    %y = add(%t, %z) -> tensor<f32, 2>
    return %y
  }}
}}
"""
    before = read(text)
    after = reread(translate(before, "pto", Diagnostics(before.source), Options(target="a3", constants=(kept := {}))))
    params = {p.name for p in after.main.params}
    assert "v0" in params and kept.keys().isdisjoint(params)
    assert bool(kept) is (after.function("other") is not None)
    assert not check(before, after, runs=1, constants={name: arrays.from_literal(x) for name, x in kept.items()}).diverged


@pytest.mark.parametrize(
    "call",
    [
        'custom_call(%x) target["ptir.softmax.v1"] attrs[{axis = 1}]',
        'custom_call(%x) target["ptir.gelu.v1"] attrs[{approximate = "tanh"}]',
        'custom_call(%x) target["ptir.silu.v1"] attrs[{}]',
        'custom_call(%x, %x, %x) target["ptir.attention.v1"] attrs[{scale = 0.25}]',
    ],
)
def test_a_refused_call_names_the_pass_that_helps(call: str) -> None:
    t = "tensor<f32, 8x8>"
    called = read(f"func @f(%x: {t}) -> {t} {{\n  %y = {call} -> {t}\n  return %y\n}}\n")
    found = Diagnostics()
    assert translate(called, "pto", found) is None
    (error,) = found
    assert error.help is not None and error.help.endswith("ptir opt -p decompose")
    run_pipeline(called, "decompose")
    assert translate(called, "pto", found) is not None
