"""Laws of every PTIR op, on random signatures: a type rule answers or refuses with an explained code, and a body gives what
its type rule says, without warnings."""

import random
from contextlib import suppress
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.evaluate import Context, run_block
from ptir_tools.core.ir import MANY, REQUIRED, Literal
from ptir_tools.core.types import TensorType, leaves, sym, tuple_of
from ptir_tools.core.verify import verify
from ptir_tools.core.violations import Violation
from ptir_tools.dialects.ptir import DIALECT
from ptir_tools.dialects.ptir.codes import EXPLAIN
from ptir_tools.dialects.ptir.ops.kinds import ENUMERATIONS
from ptir_tools.dialects.ptir.ops.scalars import Scalar
from tests.ptir.oracle import ALL, DTYPES, check_type, program, run, same, sample, ty

OPS = {n: d for n, d in DIALECT.ops.items() if not d.regions and n not in ("constant", "custom_call")}
CODES = {c.code for c in EXPLAIN}
N = sym("N")


def some_type(rng, like):
    """A tensor type, often that of another operand, now and then a tuple."""
    if like and rng.random() < 0.6:
        t = rng.choice(like)
        return t if rng.random() < 0.7 else t.with_dtype(DTYPES[rng.choice(("si32", "si64", "i1"))])
    if rng.random() < 0.02:
        return tuple_of((ty("f32"), ty("f32")))
    extents = (0, 1, 2, 2, 3, 3, 4, N) if rng.random() < 0.5 else (1, 2, 2, 3)
    shape = [rng.choice(extents) for _ in range(rng.choice((0, 1, 2, 2, 3, 4)))]
    return ty(rng.choice(ALL), *shape)


SCALARS = (Scalar("Float", -0.0), Scalar("Signed", -1), Scalar("I1", True), Scalar("Complex", 1j), Scalar("Float", -np.inf))
VALUES = {
    "int": lambda r, k: r.choice((0, 0, 1, 1, 2, -1, 5, -7)),
    "int | None": lambda r, k: r.choice((None, 0, 1, -1, 3)),
    "bool": lambda r, k: r.random() < 0.5,
    "float": lambda r, k: r.choice((0.0, 1e-5, -1.0, float("nan"), float("inf"))),
    "DType": lambda r, k: DTYPES[r.choice(ALL)],
    "DType | None": lambda r, k: r.choice((None, None, DTYPES[r.choice(ALL)])),
    "tuple[int, ...]": lambda r, k: tuple(r.choice((0, 1, 1, 2, 2, -1)) for _ in range(k)),
    "tuple[float, ...]": lambda r, k: r.choice(((), (0.5,), (0.5,) * k, (-1.0,))),
    "tuple[tuple[int, int], ...]": lambda r, k: tuple((r.choice((0, 0, 1)), r.choice((0, 1, 2))) for _ in range(k)),
    "Shape": lambda r, k: tuple(r.choice((0, 1, 2, 3, N, -1)) for _ in range(k)),
    "NewShape": lambda r, k: tuple(r.choice((1, 2, 3, 4, N, -1)) for _ in range(k)),
    "Scalar": lambda r, k: r.choice(SCALARS),
}


def some_attrs(rng, defn, rank):
    attrs = {}
    for a in defn.attrs:
        if a.default is not REQUIRED and rng.random() < 0.5:
            continue
        if a.kind in ENUMERATIONS:
            attrs[a.name] = rng.choice((*ENUMERATIONS[a.kind], "mean"))
        else:
            length = rank if rng.random() < 0.7 else max(0, rank + rng.choice((-2, -1, 1)))
            attrs[a.name] = VALUES[a.kind](rng, length)
    return attrs


A, ROW = ty("bf16", 2, 3), ty("bf16", 3)
# A right case of each op that random operands seldom fit; half of the cases change one thing in it.
SEEDS = {
    "select": ((ty("i1", 2, 3), A, A), {}),
    "segment_reduce": ((A, ty("si32", 2)), {"num_segments": 3}),
    "layer_norm": ((A, ROW, ROW), {"epsilon": 0.1}),
    "extract_patches": ((ty("ui4", 1, 3, 3, 2),), {"window": (2, 2)}),
    "dynamic_slice": ((A, ty("si32", 2)), {"sizes": (1, 2)}),
    "dynamic_update_slice": ((A, ty("bf16", 1, 2), ty("si64", 2)), {"sizes": (1, 2)}),
    "scatter_reduce": ((A, ty("si64", 2, 3), A), {"axis": 1}),
    "scatter_add": (
        (A, ty("si32", 4, 1), ty("bf16", 4, 3)),
        {
            "update_window_dims": (1,),
            "inserted_window_dims": (0,),
            "scatter_dims_to_operand_dims": (0,),
            "index_vector_dim": 1,
        },
    ),
    "scatter": (
        (A, ty("si32", 4, 1), ty("bf16", 4, 3)),
        {
            "update_window_dims": (1,),
            "inserted_window_dims": (0,),
            "scatter_dims_to_operand_dims": (0,),
            "index_vector_dim": 1,
        },
    ),
    "reduce_window": (
        (ty("cf64", 4, 3),),
        {
            "window_dims": (2, 2),
            "strides": (1, 2),
            "padding": ((0, 1), (1, 0)),
            "base_dilation": (1, 2),
            "window_dilation": (2, 1),
        },
    ),
}


def changed(rng, defn):
    """The seed of an op with one operand or attribute replaced."""
    types, attrs = SEEDS[defn.short]
    types, attrs = list(types), dict(attrs)
    if rng.random() < 0.5:
        types[rng.randrange(len(types))] = some_type(rng, types)
    else:
        other = some_attrs(rng, defn, len(types[0].shape))
        attrs |= dict(rng.sample(list(other.items()), min(1, len(other))))
    return types, types, attrs


def some_case(rng, defn):
    if defn.short in SEEDS and rng.random() < 0.5:
        return changed(rng, defn)
    types, groups = [], []
    for g in defn.groups:
        count = rng.choice((0, 1, 2, 3)) if g.kind == MANY else 1
        part = []
        for _ in range(count):
            part.append(some_type(rng, [t for t in types if isinstance(t, TensorType)]))
            types.append(part[-1])
        groups.append(part if g.kind == MANY else part[0])
    rank = len(types[0].shape) if types and isinstance(types[0], TensorType) else rng.choice((1, 2))
    return groups, types, some_attrs(rng, defn, rank)


def static(*types):
    return all(isinstance(leaf, TensorType) and leaf.is_static for t in types for leaf in leaves(t))


@pytest.mark.parametrize("name", OPS)
def test_rules_answer_or_refuse_and_bodies_keep_their_word(name):
    rng = random.Random(name)
    defn, accepted = OPS[name], 0
    for seed in range(4000):
        if seed >= 200 and accepted >= 5:
            break
        groups, types, attrs = some_case(rng, defn)
        try:
            p = program(name, groups, attrs)
        except Violation as violation:
            assert violation.code in CODES, (violation.code, types, attrs)
            continue
        t = p.main.results[0].type
        diagnostics = Diagnostics()
        assert verify(p, diagnostics), [d.message for d in diagnostics]
        if not static(t, *types):
            continue
        accepted += 1
        data = [sample(x.dtype.name, x.static_shape, seed) for x in types]
        try:
            (out,) = run_block(p.main, data, Context())
        except Violation as violation:
            assert violation.code in ("IntegerDivideByZero", "GatherIndexOutOfBounds", "ScatterIndexOutOfBounds"), violation
            continue
        check_type(out, t)
    assert accepted >= 5, accepted


@pytest.mark.parametrize("name", OPS)
def test_bodies_leave_their_operands_alone(name):
    rng = random.Random(name)
    for seed in range(60):
        groups, types, attrs = some_case(rng, OPS[name])
        try:
            p = program(name, groups, attrs)
        except Violation:
            continue
        if not static(p.main.results[0].type, *types):
            continue
        data = [sample(x.dtype.name, x.static_shape, seed) for x in types]
        for x in data:
            x.flags.writeable = False
        try:
            run_block(p.main, data, Context())
        except Violation:
            pass


SHAPES = st.lists(st.integers(0, 4), max_size=4).map(tuple)


@settings(max_examples=50, deadline=None)
@given(SHAPES, st.randoms(use_true_random=False), st.sampled_from(ALL))
def test_transposes_undo_each_other(shape, rng, dtype):
    perm = list(range(len(shape)))
    rng.shuffle(perm)
    back = tuple(perm.index(i) for i in range(len(perm)))
    x = sample(dtype, shape)
    same(run("transpose", run("transpose", x, perm=tuple(perm)), perm=back), x)
    same(run("reshape", run("reshape", x, new_shape=(x.size,)), new_shape=shape), x)


@settings(max_examples=50, deadline=None)
@given(SHAPES, st.data(), st.sampled_from(ALL))
def test_slices_put_together_are_the_whole(shape, data, dtype):
    shape = (data.draw(st.integers(1, 5)), *shape)
    cut = data.draw(st.integers(0, shape[0]))
    x, rest = sample(dtype, shape), shape[1:]
    zeros = (0,) * len(rest)
    first = run("slice", x, starts=(0, *zeros), sizes=(cut, *rest))
    second = run("slice", x, starts=(cut, *zeros), sizes=(shape[0] - cut, *rest))
    same(run("concat", [first, second], axis=0), x)
    padded = run("pad", first, low=(0, *zeros), high=(shape[0] - cut, *zeros))
    start = np.array([cut, *zeros], np.int64)
    sizes = (shape[0] - cut, *rest)
    same(run("dynamic_update_slice", padded, second, start, sizes=sizes), x)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 5), st.integers(0, 5), st.integers(0, 5), st.sampled_from(("si8", "ui32", "f32", "cf64")))
def test_a_contraction_is_a_sum_of_products(m, k, n, dtype):
    if dtype == "f32":
        x, y = (np.random.default_rng([m, k, n]).integers(-9, 9, s).astype(np.float32) for s in ((m, k), (k, n)))
    else:
        x, y = sample(dtype, (m, k)), sample(dtype, (k, n), 1)
    dot = run("dot_general", x, y, contract_lhs=(1,), contract_rhs=(0,))
    wide = run("broadcast_to", run("reshape", x, new_shape=(m, k, 1)), result_shape=(m, k, n))
    tall = run("broadcast_to", y, result_shape=(m, k, n))
    total = run("reduce_sum", run("mul", wide, tall), axes=(1,))
    if dtype == "cf64":
        np.testing.assert_allclose(dot, total, rtol=1e-13, atol=1e-13)
    else:
        same(dot, total)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(-(2**31), 2**31 - 1), min_size=1, max_size=8), st.sampled_from(("si4", "ui4", "si8", "ui8", "si16")))
def test_narrowing_casts_saturate_and_are_idempotent(values, dtype):
    x = np.array(values, np.int32)
    d = DTYPES[dtype]
    got = run("cast", x, dtype=d)
    assert got.astype(object).tolist() == [min(max(v, d.min), d.max) for v in values]
    same(run("cast", run("cast", got, dtype=DTYPES["si32"]), dtype=d), got)


def test_literals_of_every_dtype_run():
    for dtype in ALL:
        bits = DTYPES[dtype].packed_bytes(3)
        run("constant", value=Literal(ty(dtype, 3), bytes(bits)))


LAWFUL = {n: d for n, d in OPS.items() if d.algebra.laws()}
NUMBERS = {
    "f64": np.array([-7.5, -2.0, -1.0, -0.25, 0.0, 0.5, 1.0, 3.0, 11.0]),
    "si32": np.arange(-6, 7, dtype=np.int32),
    "cf64": np.array([1 + 2j, -3 - 0.5j, 2j, -1.5]),
}


@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.parametrize("name", LAWFUL)
def test_the_laws_that_an_op_declares_hold(name, dtype):
    law, count = LAWFUL[name].algebra, len(LAWFUL[name].groups)
    x, f = NUMBERS[dtype][NUMBERS[dtype] != 0], partial(run, name)
    try:
        y = f(*[x] * count)
    except Violation:  # a dtype that the op does not take
        return
    with suppress(Violation):  # of a division of integers by 0
        x, y = NUMBERS[dtype], f(*[NUMBERS[dtype]] * count)
    x, y = x[~np.isnan(y)], y[~np.isnan(y)]  # where it has a number
    assert len(x) > 2
    if law.parity:
        np.testing.assert_array_equal(f(-x), -y if law.parity == "odd" else y)
    if law.monotone and dtype != "cf64":
        steps = np.diff(y.astype(np.float64))
        assert (steps >= 0).all() if law.monotone == "increasing" else (steps <= 0).all()
    if law.idempotent:
        np.testing.assert_array_equal(f(y) if count == 1 else y, y if count == 1 else x)
    if law.involution:
        np.testing.assert_array_equal(f(y), x)
    if law.identity is not None:
        np.testing.assert_array_equal(f(x, np.full_like(x, law.identity)), x)
    if law.absorbing is not None:
        np.testing.assert_array_equal(f(x, np.full_like(x, law.absorbing)), np.full_like(x, law.absorbing))


def test_no_law_is_lost():
    """What is declared of these ops is no more and no less than what is listed. Others are held to the numbers."""
    listed = {
        "neg": ["odd", "decreasing", "involution"],
        "abs": ["even", "idempotent"],
        "exp": ["increasing"],
        "log": ["increasing"],
        "tanh": ["odd", "increasing"],
        "erf": ["odd", "increasing"],
        "rsqrt": ["decreasing"],
        "reciprocal": ["odd"],
        "add": ["increasing", "identity 0"],
        "sub": ["identity 0"],
        "mul": ["identity 1", "absorbing 0"],
        "div": ["identity 1"],
        "maximum": ["increasing", "idempotent"],
        "minimum": ["increasing", "idempotent"],
        "clamp": ["increasing", "idempotent"],
        **{name: ["odd"] for name in ("sin", "tan")},
        **{name: ["even"] for name in ("cos", "cosh")},
        **{name: ["odd", "increasing"] for name in ("asin", "atan", "sinh", "asinh", "atanh", "cbrt", "erf_inv")},
        **{name: ["increasing"] for name in ("acosh", "log1p", "expm1")},
        "acos": ["decreasing"],
        **{name: ["increasing", "idempotent"] for name in ("floor", "ceil")},
        "sign": ["increasing", "idempotent"],  # not odd: the least integer has no negative
        **{name: ["odd", "increasing", "idempotent"] for name in ("round_even", "round_away", "reduce_precision")},
        "bitwise_and": ["idempotent", "identity -1", "absorbing 0"],
        "bitwise_or": ["idempotent", "identity 0", "absorbing -1"],
        "bitwise_xor": ["identity 0"],
        "bitwise_not": ["involution"],
    }
    assert {n: OPS[n].algebra.laws() for n in listed} == listed
