"""PTIR from Python: what is built verifies, prints as expected and runs to the numbers of NumPy."""

import re

import numpy as np
import pytest

import ptir_tools
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Options
from ptir_tools.core.dtypes import F32
from ptir_tools.core.evaluate import Context, run_block
from ptir_tools.core.symbols import specialize
from ptir_tools.core.types import UNKNOWN, sym, tensor, tuple_of
from ptir_tools.core.verify import verify
from ptir_tools.core.violations import Violation
from ptir_tools.dialects.ptir import DIALECT
from ptir_tools.dialects.ptir.builder.build import Graph
from ptir_tools.dialects.ptir.text.format import FORMAT
from tests.conftest import ROOT
from tests.ptir.builder_stub import stub

SOFTMAX = """func @main(%x: tensor<f32, ?Nx4>) -> tensor<f32, ?Nx4> {
  %v0 = reduce_max(%x) axes[-1] keepdims[true] -> tensor<f32, ?Nx1>
  %v1 = broadcast_to(%v0) result_shape[?N, 4] -> tensor<f32, ?Nx4>
  %v2 = sub(%x, %v1) -> tensor<f32, ?Nx4>
  %v3 = exp(%v2) -> tensor<f32, ?Nx4>
  %v4 = reduce_sum(%v3) axes[-1] keepdims[true] -> tensor<f32, ?Nx1>
  %v5 = broadcast_to(%v4) result_shape[?N, 4] -> tensor<f32, ?Nx4>
  %y = div(%v3, %v5) -> tensor<f32, ?Nx4>
  return %y
}
"""


def softmax(x):
    e = (x - x.reduce_max([-1], keepdims=True).broadcast_like(x)).exp()
    return e / e.reduce_sum([-1], keepdims=True).broadcast_like(e)


def run(program, *inputs, **numbers):
    diagnostics = Diagnostics()
    assert verify(program, diagnostics), [d.message for d in diagnostics]
    specialize(program, numbers)
    return run_block(program.main, inputs, Context())


def text(program):
    return "".join(FORMAT.write(program, Diagnostics(), Options()))


def normal(*shape):
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)


def test_softmax_reads_as_it_is_written():
    g = Graph()
    x = g.input("x", "f32", ("N", 4))
    assert (x.rank, x.shape, x.dtype.name) == (2, (sym("N"), 4), "f32")
    p = g.returns(softmax(x).named("y"))
    assert text(p) == SOFTMAX
    v = normal(3, 4)
    power = np.exp(v.astype(np.float64))
    np.testing.assert_allclose(run(p, v, N=3)[0], power / power.sum(1, keepdims=True), rtol=1e-6)


def test_operators_and_numbers():
    g = Graph()
    x = g.input("x", "f32", (2, 3))
    y = -((2 * x + 1 - x / 4) * 0.5)
    p = g.returns(y, x < 0, x >= 0.5, 1 / x, 3 - x, x <= x, x > 0)
    v = normal(2, 3)
    w = v.astype(np.float64)
    got = run(p, v)
    np.testing.assert_allclose(got[0], -((2 * w + 1 - w / 4) * 0.5), rtol=1e-6)
    np.testing.assert_array_equal(got[1], v < 0)
    np.testing.assert_array_equal(got[2], v >= 0.5)
    np.testing.assert_allclose(got[3], 1 / w, rtol=1e-6)
    np.testing.assert_array_equal(got[6], v > 0)


def test_roots_means_powers_and_parts():
    g = Graph()
    x = g.input("x", "f32", (3, 4))
    p = g.returns(
        x.abs().sqrt(), x.mean(), x.mean([-1], keepdims=True), x**2, x.T, x[1], x[:, ::2], x[..., -1], x[-2:, None, 1:3], x[2, 3]
    )
    v = normal(3, 4)
    wanted = [
        np.sqrt(abs(v)), v.mean(), v.mean(-1, keepdims=True), v**2, v.T, v[1], v[:, ::2], v[..., -1], v[-2:, None, 1:3], v[2, 3]
    ]  # fmt: skip
    for got, want in zip(run(p, v), wanted, strict=True):
        assert got.shape == np.shape(want)
        np.testing.assert_allclose(got, want, rtol=1e-6)


def test_a_mean_over_a_symbol_divides_by_its_extent():
    g = Graph()
    x = g.input("x", "f32", ("N", 2))
    v = normal(5, 2)
    np.testing.assert_allclose(run(g.returns(x.mean([0])), v, N=5)[0], v.mean(0), rtol=1e-6)


@pytest.mark.parametrize(
    ("index", "code"),
    [(3, "InvalidAttributeValue"), ((0, 0, 0), "OperandRankMismatch"), ((0, slice(1, 2)), "DynamicDimensionMismatch")],
)
def test_a_part_that_is_not_there_is_refused(index, code):
    x = Graph().input("x", "f32", (3, "N"))
    with pytest.raises(Violation) as error:
        x[index]
    assert error.value.code == code
    assert x[1].shape == (sym("N"),)


def test_attention():
    g = Graph()
    q, k, v = (g.input(n, "f32", (2, 5, 4)) for n in "qkv")
    p = g.returns(softmax(q @ k.transpose([0, 2, 1]) * 0.5) @ v)
    a, b, c = (normal(2, 5, 4) * s for s in (1, 2, 3))
    scores = np.einsum("bik,bjk->bij", a, b, dtype=np.float64) * 0.5
    power = np.exp(scores - scores.max(-1, keepdims=True))
    want = power / power.sum(-1, keepdims=True) @ c.astype(np.float64)
    np.testing.assert_allclose(run(p, a, b, c)[0], want, rtol=1e-5, atol=1e-6)


def test_scan_cond_and_while_build_regions():
    g = Graph()
    x = g.input("x", "f32", (4, 3))
    total, sums = g.scan([g.constant(np.zeros(3, np.float32))], [x], lambda c, row: (c + row, c + row))
    positive = total.reduce_sum([0]) > 0
    chosen = g.cond(positive, [total], lambda t: t.exp(), lambda t: -t)
    count, doubled = g.while_(
        [g.constant(0, "si32"), chosen],
        lambda i, t: (i < 3, i, t),
        lambda i, t: (i + 1, t + t),
    )
    v = normal(4, 3)
    got = run(g.returns(sums, count, doubled), v)
    np.testing.assert_allclose(got[0], np.cumsum(v, 0), rtol=1e-5, atol=1e-6)
    last = v.astype(np.float64).sum(0)
    np.testing.assert_allclose(got[2], 8 * (np.exp(last) if last.sum() > 0 else -last), rtol=1e-5)
    assert got[1] == 3


def test_ops_without_operands_and_attributes_of_every_kind():
    g = Graph()
    i = g.iota(["N", 2], "si32", 0)
    u = g.rng_uniform([2], "f16", stream=4)
    padded = i.pad([1, 0], [0, 0], pad_value=-1)
    values, indices = u.top_k(1)
    patches = g.constant(np.ones((1, 3, 3, 1), np.int8)).extract_patches([2, 2], padding=[[0, 1], [0, 1]], pad_value=5)
    joined = g.concat([u, u], 0)
    called = g.custom_call([u], "ns.op.v1", attrs={"b": True, "f": [1.5], "s": "x", "n": 3}, types=[u.type])
    cast = u.cast("bf16").reshape([1, -1])
    p = g.returns(padded, values, indices, patches, joined, cast)
    assert 'attrs[{b = true, f = [1.5], n = 3, s = "x"}]' in text(p) and called.type is u.type
    assert cast.shape == (1, 2) and patches.shape == (1, 3, 3, 4)
    assert run(_without_custom(p), N=2)[0].tolist() == [[-1, -1], [0, 0], [1, 1]]


def _without_custom(p):
    p.main.body = [op for op in p.main.body if op.defn.short != "custom_call"]
    return p


def refused(build):
    g = Graph()
    x = g.input("x", "f32", (2, 3))
    with pytest.raises(Violation) as info:
        build(g, x)
    return info.value.code


def test_rules_are_checked_at_the_call():
    assert refused(lambda g, x: x.reduce_max([2])) == "InvalidAttributeValue"
    assert refused(lambda g, x: x + x.cast("f16")) == "OperandDTypeMismatch"
    assert refused(lambda g, x: x + x.transpose([1, 0])) == "OperandShapeMismatch"
    assert refused(lambda g, x: x.reduce_sum([0], axis=1)) == "UnknownAttribute"
    assert refused(lambda g, x: x.reduce_sum()) == "MissingAttribute"
    assert refused(lambda g, x: x.exp(1)) == "UnknownAttribute"
    assert refused(lambda g, x: g.input("i", "si9")) == "DTypeNotSupported"
    assert refused(lambda g, x: g.input("i", "si8", (2,)) + 300) == "InvalidLiteral"
    assert refused(lambda g, x: g.input("i", "si8", (2,)) + 0.5) == "InvalidLiteral"
    assert refused(lambda g, x: g.constant([1, 300], "si8")) == "InvalidLiteral"
    assert refused(lambda g, x: x[9]) == "InvalidAttributeValue"
    assert refused(lambda g, x: list(x)) == "TupleIndexOutOfRange"
    assert refused(lambda g, x: x.top_k(1)[2]) == "TupleIndexOutOfRange"
    assert refused(lambda g, x: x.top_k(1).rank) == "OperandTypeMismatch"
    assert refused(lambda g, x: x.add()) == "OperandCountMismatch"
    assert refused(lambda g, x: g.scan([], [x], lambda row: row + x)) == "UndefinedValue"
    with pytest.raises(AttributeError):
        refused(lambda g, x: x.softmax())
    with pytest.raises(AttributeError):
        refused(lambda g, x: g.softmax())
    with pytest.raises(TypeError):
        refused(lambda g, x: x.take(1))


def test_what_is_refused_leaves_no_trace():
    g = Graph()
    x = g.input("x", "f32", (2, 3))
    i = g.input("i", "si32")
    before = text(g.returns(x))
    for build in (
        lambda: x.add(2, 1),
        lambda: i / 0,
        lambda: g.cond(x, [x], lambda t: t, lambda t: t),
        lambda: g.scan([], [x], lambda row: (row + 1, row.reduce_sum([1]))),
        lambda: g.while_([x], lambda t: (t.reduce_max([0, 1]) < 9, t), lambda t: t.cast("f16")),
    ):
        with pytest.raises(Violation):
            build()
        assert text(g.program) == before


@pytest.mark.parametrize(
    ("build", "code", "said"),
    [
        (lambda g, x: x.reduce_sum(-1), "InvalidAttributeValue", "axes is -1; a list of integers is wanted"),
        (lambda g, x: x.reduce_sum([0], keepdims=1), "InvalidAttributeValue", "keepdims is 1; True or False is wanted"),
        (lambda g, x: x.reshape([True, 6]), "InvalidAttributeValue", "a list of integers and names"),
        (lambda g, x: g.iota("N", "f32", 0), "InvalidAttributeValue", "shape is 'N'"),
        (lambda g, x: x.pad([0, 0], [1, 1], pad_value="a"), "InvalidAttributeValue", "pad_value is 'a'; a number is wanted"),
        (lambda g, x: x.scatter_reduce(x.cast("si32"), x, 0, reduce="mean"), "InvalidAttributeValue", "add or max or min"),
        (lambda g, x: g.custom_call([x], "a.b.v1", attrs={"k": [1, 2.0]}), "InvalidAttributeValue", "attrs is"),
        (lambda g, x: x.dot_general(x, [1], [1]), "UnknownAttribute", "takes 0 attributes by position, got 2"),
        (lambda g, x: x @ g.input("s", "f32"), "OperandRankMismatch", "2 and 0"),
        (lambda g, x: x * True, "InvalidLiteral", "True does not fit f32"),
        (lambda g, x: x + Graph().input("z", "f32", (2, 3)), "UndefinedValue", "another Graph"),
        (lambda g, x: g.constant([[1], [1, 2]]), "InvalidLiteral", "not an array"),
        (lambda g, x: g.constant(["a"]), "InvalidLiteral", "not an array"),
        (lambda g, x: g.input("n", "f32", (-1,)), "NegativeDimension", "-1"),
        (lambda g, x: g.op("softmax", x), "UnknownOp", "softmax"),
        (lambda g, x: g.input("i", "si32", (3,)) / 0, "IntegerDivideByZero", "zero"),
    ],
)
def test_what_does_not_fit_is_named(build, code, said):
    g = Graph()
    x = g.input("x", "f32", (2, 3))
    with pytest.raises(Violation, match=f"{code}: .*{re.escape(said)}"):
        build(g, x)


@pytest.mark.parametrize(
    ("build", "error"),
    [
        (lambda g, x: x + None, TypeError),
        (lambda g, x: np.ones((2, 3), np.float32) * x, TypeError),
        (lambda g, x: bool(x < 0), TypeError),
        (lambda g, x: x.top_k(1)["a"], TypeError),
        (lambda g, x: g.cond(x.reduce_max([0, 1]) > 0, [x], lambda t: None, lambda t: None), TypeError),
        (lambda g, x: g.input("a b", "f32"), ValueError),
        (lambda g, x: x.named(""), ValueError),
    ],
)
def test_what_is_no_program_at_all(build, error):
    g = Graph()
    with pytest.raises(error):
        build(g, g.input("x", "f32", (2, 3)))


def test_what_goes_wrong_at_run_time_points_at_the_call():
    g = Graph()
    x, i = g.input("x", "f32", (3,)), g.input("i", "si32", (2,))
    program = g.returns((x + 1).take(i).exp())
    with pytest.raises(ptir_tools.Rejected) as info:
        ptir_tools.run(program, [np.zeros(3, np.float32), np.array([0, 9], np.int32)])
    (found,) = info.value.diagnostics
    assert found.code == "GatherIndexOutOfBounds" and found.source.name == __file__
    assert found.source.text[found.span.start : found.span.end] == "(x + 1).take(i)"


def test_an_op_of_a_helper_is_where_the_helper_is_called():
    g = Graph()
    x = g.input("x", "f32", (3,))
    other = {}
    exec(compile("def helper(t):\n    return t * 2", "helper.py", "exec"), other)
    other["helper"](x)
    spans = [g.program.source.span(op.loc) for op in g.region.body]
    assert {g.program.source.text[s.start : s.end] for s in spans} == {'other["helper"](x)'}


def test_without_a_file_there_is_no_place():
    made = {}
    exec(compile("g = Graph()\ny = g.input('x', 'f32') + 1", "<typed>", "exec"), {"Graph": Graph}, made)
    assert made["g"].program.source is None and [op.loc for op in made["g"].region.body] == [0, 0]


def test_numbers_stand_for_tensors_of_the_same_type():
    g = Graph()
    x, i = g.input("x", "bf16", (2, 3)), g.input("i", "ui8", (4,))
    made = [x.clamp(0, 6), (x < 1).select(x, float("-inf")), (x < 1).select(0.5, x), np.float32(2) * x, 3 - i, i.maximum(7)]
    assert [t.type for t in made] == [x.type] * 4 + [i.type] * 2
    assert re.findall(r"dense<(.*?)>", text(g.returns(*made))) == ["0.0", "6.0", "1.0", "-inf", "1.0", "0.5", "2.0", "3", "7"]


def test_regions_name_their_parameters_as_the_functions_do():
    g = Graph()
    total = g.scan([g.constant(0.0, "f32")], [g.input("x", "f32", (4,))], lambda total, each: total + each)
    assert "region ^r0(%total: tensor<f32>, %each: tensor<f32>)" in text(g.returns(total))


def test_every_op_is_a_method():
    for name, defn in DIALECT.ops.items():
        if not defn.regions:
            method = getattr(Graph, name)
            assert method.__doc__ == defn.doc or name == "constant"


def test_the_stub_is_fresh(bless):
    path = ROOT / "ptir_tools" / "dialects" / "ptir" / "builder" / "methods.pyi"
    if bless:
        path.write_text(stub(), "utf-8")
    assert path.read_text("utf-8") == stub(), "pytest tests/ptir/test_build.py --bless rewrites it"


def test_extents_that_are_left_open_become_symbols() -> None:
    """One after the other, in tuples, too; what is known stays."""
    g = Graph()
    x = g.input("x", "f32", ("N", 3))
    one = g.custom_call([x], "ns.op.v1", attrs={}, types=[tensor(F32, (UNKNOWN, 3, UNKNOWN))])
    pair = g.custom_call(
        [x], "ns.op.v1", attrs={}, types=[tuple_of([tensor(F32, (sym("N"), 2)), tuple_of([tensor(F32, (UNKNOWN,))])])]
    )
    known = g.custom_call([x], "ns.op.v1", attrs={}, types=[tensor(F32, (sym("N"), 3))])
    assert [str(y.type) for y in (one, pair, known)] == [
        "tensor<f32, ?open0x3x?open1>", "(tensor<f32, ?Nx2>, (tensor<f32, ?open2>))", "tensor<f32, ?Nx3>"
    ]  # fmt: skip


@pytest.mark.parametrize("axis", range(3))
def test_elements_are_taken_along_an_axis(axis: int) -> None:
    g = Graph()
    x = g.input("x", "f32", (3, 3, 3))
    program = g.returns(x.taken(g.constant(np.int32([2, 0, 0])), axis).named("y"))
    data = np.arange(27, dtype=np.float32).reshape(3, 3, 3)
    np.testing.assert_array_equal(ptir_tools.run(program, [data])["y"], np.take(data, [2, 0, 0], axis))
