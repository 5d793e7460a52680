"""Custom calls: gpt.rs's fused kernels against NumPy float64, names, attributes, and targets that no one knows."""

import math

import numpy as np
import pytest

from ptir_tools.core.violations import Violation
from tests.ptir.oracle import code, run, same, ty

F32 = np.float32


def i64s(**lists):
    return {k: ("I64Array", tuple(v)) for k, v in lists.items()}


def call(target, *xs, result=None, **attrs):
    """Run a custom call; keyword arguments are (kind, value)."""
    return run("custom_call", [*xs], result=result, target=target, attrs=tuple(sorted(attrs.items())))


def refused(target, *types, result=None, **attrs):
    return code("custom_call", [*types], result=result, target=target, attrs=tuple(sorted(attrs.items())))


def rng(*shape, seed=0):
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(F32)


GEOMETRY = i64s(window=(2, 3), strides=(2, 1), dilation=(1, 2), padding=(1, 0, 0, 2))


def convolved(x, weight, bias, groups):
    """NHWC by OIHW, loops over everything."""
    n, h, w, _ = x.shape
    oh, ow = (h + 1 - 2) // 2 + 1, (w + 2 - 5) // 1 + 1
    o, ci, kh, kw = weight.shape
    out = np.zeros((n, oh, ow, o)) + (0 if bias is None else bias.astype(np.float64))
    for b, i, j, c, a, d, e in np.ndindex(n, oh, ow, o, ci, kh, kw):
        y, z = i * 2 - 1 + d, j + e * 2
        if 0 <= y < h and 0 <= z < w:
            source = c if groups else a
            out[b, i, j, c] += float(x[b, y, z, source]) * float(weight[c, a, d, e])
    return out


@pytest.mark.parametrize("backend", ["c", "faer"])
@pytest.mark.parametrize("with_bias", [False, True])
def test_conv2d(backend, with_bias):
    x, w, b = rng(2, 4, 5, 3), rng(4, 3, 2, 3), rng(4)
    packed = np.ascontiguousarray(w.transpose(2, 3, 1, 0)).reshape(-1, 4)
    extra = {"static_operands": ("I64Array", (1,))}
    got = call(f"gpt_rs.{backend}.conv2d.nhwc.f32.v1", x, packed, *[b] * with_bias, **GEOMETRY, **extra)
    np.testing.assert_allclose(got, convolved(x, w, b if with_bias else None, False), rtol=1e-6, atol=1e-6)


def test_depthwise_conv2d():
    x, w, b = rng(2, 4, 5, 3), rng(3, 1, 2, 3), rng(3)
    got = call("gpt_rs.faer.depthwise_conv2d.nhwc.f32.v1", x, w.reshape(3, 6), b, **GEOMETRY)
    np.testing.assert_allclose(got, convolved(x, w, b, True), rtol=1e-6, atol=1e-6)


def test_fused_elementwise():
    x, y = rng(2, 3), rng(3, seed=1)
    nodes = i64s(ops_kind=(0, 1, 1, 0), ops_code=(2, 0, 3, 5), lhs=(0, 2, 3, 4), rhs=(-1, 1, 0, -1))
    got = call("gpt_rs.c.fused_elementwise.f32.v1", x, y, result=ty("f32", 2, 3), **nodes)
    wide = x.astype(np.float64)
    want = np.vectorize(math.erf)((np.exp(wide) + y.astype(np.float64)) / wide)
    same(got, want.astype(F32))
    kinds = {"fusion_kind": ("String", "elementwise_dag_v1"), "fusion_version": ("I64", 1)}
    same(call("gpt_rs.triton.fused_elementwise.f32.v1", x, y, result=ty("f32", 2, 3), **nodes, **kinds), got)
    types = (ty("f32", 2, 3), ty("f32", 3))
    assert refused("gpt_rs.c.fused_elementwise.f32.v1", *types, result=ty("f32", 3, 2), **nodes) == "BroadcastDimsInvalid"


def test_fused_dot_softmax_and_layer_norm():
    x, w, b = rng(2, 3), rng(3, 4), rng(4)
    dot = i64s(dot_batch_lhs=(), dot_batch_rhs=(), dot_contract_lhs=(1,), dot_contract_rhs=(0,))
    wide = x.astype(np.float64) @ w.astype(np.float64) + b.astype(np.float64)
    same(call("gpt_rs.triton.fused_dot_bias.f32.v1", x, w, b, **dot), wide.astype(F32))
    power = np.exp(x.astype(np.float64))
    want = power / power.sum(-1, keepdims=True)
    np.testing.assert_allclose(call("gpt_rs.triton.fused_softmax_last_axis.f32.v1", x, axis=("I64", 1)), want, rtol=1e-7)
    g, h = rng(3, seed=1), rng(3, seed=2)
    v = x.astype(np.float64)
    normal = (v - v.mean(1, keepdims=True)) / np.sqrt(v.var(1, keepdims=True) + 1e-5) * g + h
    got = call("gpt_rs.triton.fused_layer_norm.f32.v1", x, g, h, axis=("I64", 1), eps=("F64", 1e-5))
    np.testing.assert_allclose(got, normal, rtol=1e-6)


def test_targets_have_namespaced_versioned_names():
    for name in ("fastgelu", "gelu.v1x", "ns.op", "ns..op.v1", "1ns.op.v1", "ns.op.v", "v1", ""):
        assert refused(name, ty("f32", 2), result=ty("f32", 2)) == "InvalidAttributeValue", name
    assert refused("my_lib.gelu.v12", ty("f32", 2), result=ty("f32", 2)) is None
    with pytest.raises(Violation) as info:
        call("my_lib.gelu.v12", rng(2), result=ty("f32", 2))
    assert info.value.code == "Unimplemented"


def test_an_unknown_target_needs_a_declared_type():
    assert refused("my_lib.gelu.v12", ty("f32", 2)) == "ResultTypeMismatch"


ATTRS = {
    "kind": (("a", ("Int", 1)),),
    "value": (("a", ("I64", 1.0)),),
    "bool is no integer": (("a", ("I64", True)),),
    "array": (("a", ("I64Array", 1)),),
    "element": (("a", ("F64Array", (1.0, 2))),),
    "no key": (("", ("I64", 1)),),
    "twice": (("a", ("I64", 1)), ("a", ("I64", 2))),
}


@pytest.mark.parametrize("case", ATTRS)
def test_malformed_attributes(case):
    assert (
        code("custom_call", [ty("f32", 2)], result=ty("f32", 2), target="ns.op.v1", attrs=ATTRS[case]) == "InvalidAttributeValue"
    )


def test_known_targets_check_operands_and_attributes():
    conv = "gpt_rs.c.conv2d.nhwc.f32.v1"
    x, w = ty("f32", 2, 4, 5, 3), ty("f32", 18, 4)
    assert refused(conv, x, w, **GEOMETRY) is None
    assert refused(conv, x, ty("f32", 17, 4), **GEOMETRY) == "OperandShapeMismatch"
    assert refused(conv, x, w, ty("f32", 5), **GEOMETRY) == "OperandShapeMismatch"
    assert refused(conv, x, **GEOMETRY) == "OperandCountMismatch"
    assert refused(conv, ty("f16", 2, 4, 5, 3), w, **GEOMETRY) == "DTypeNotSupported"
    assert refused(conv, ty("f32", 4, 5, 3), w, **GEOMETRY) == "OperandRankMismatch"
    assert refused(conv, x, w, **{k: v for k, v in GEOMETRY.items() if k != "window"}) == "InvalidAttributeValue"
    assert refused(conv, x, w, **GEOMETRY, groups=("I64", 1)) == "InvalidAttributeValue"
    assert refused(conv, x, w, **(GEOMETRY | {"padding": ("I64Array", (1, 1))})) == "InvalidAttributeValue"
    assert refused(conv, x, w, **(GEOMETRY | {"window": ("I64", 2)})) == "InvalidAttributeValue"
    assert refused(conv, x, w, result=ty("f32", 2, 9, 9, 4), **GEOMETRY) == "ResultTypeMismatch"
    dag = "gpt_rs.c.fused_elementwise.f32.v1"
    for lhs, rhs, op in (((1,), (-1,), (2,)), ((0,), (0,), (2,)), ((0,), (-1,), (9,))):
        nodes = i64s(ops_kind=(0,), ops_code=op, lhs=lhs, rhs=rhs)
        assert refused(dag, ty("f32", 2), result=ty("f32", 2), **nodes) == "InvalidAttributeValue"
    assert refused("gpt_rs.triton.fused_softmax_last_axis.f32.v1", ty("f32", 2, 3), axis=("I64", 0)) == "InvalidAttributeValue"
