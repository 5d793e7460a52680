"""PTIR from Python: what is built verifies, prints as expected and runs to the numbers of NumPy."""

import numpy as np
import pytest
from builder_stub import stub
from conftest import ROOT

from ptir_tools.core.diagnostics import Diagnostics, Violation
from ptir_tools.core.dialect import Options
from ptir_tools.core.evaluate import Context, run_block
from ptir_tools.core.symbols import specialize
from ptir_tools.core.types import sym
from ptir_tools.core.verify import verify
from ptir_tools.dialects.ptir.build import Graph
from ptir_tools.dialects.ptir.text import FORMAT

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
    assert refused(lambda g, x: x[0]) == "TupleIndexOutOfRange"
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


def test_the_stub_is_fresh(bless):
    path = ROOT / "ptir_tools" / "dialects" / "ptir" / "build_methods.pyi"
    if bless:
        path.write_text(stub(), "utf-8")
    assert path.read_text("utf-8") == stub(), "pytest tests/test_ptir_build.py --bless rewrites it"
