"""Which ops only look: reshapes of views agree with NumPy's, evenly spaced takes are windows, slices by steps become takes."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptir_tools.core import arrays
from ptir_tools.core.builder import single_function
from ptir_tools.core.dialect import clone
from ptir_tools.core.dtypes import F32, SI32
from ptir_tools.core.strides import restrided
from ptir_tools.core.types import tensor
from ptir_tools.dialects import load_dialect
from ptir_tools.dialects.ptir.ops.indexing import affine_indices
from ptir_tools.engines import RunOptions, run
from ptir_tools.passes import run_pipeline
from ptir_tools.plan import plan


def build(shape):
    program, b = single_function(load_dialect("ptir"))
    return program, b, b.param(tensor(F32, shape), "x")


@st.composite
def seen(draw):
    """An array of odd strides, and a shape of as many elements."""
    x = np.zeros(draw(st.lists(st.integers(1, 4), min_size=1, max_size=4)), np.float32)
    x = x.transpose(draw(st.permutations(range(x.ndim))))
    x = x[tuple(slice(draw(st.integers(0, n - 1)), None) for n in x.shape)]
    if draw(st.booleans()):
        x = np.broadcast_to(x, (draw(st.integers(1, 3)), *x.shape))
    left, shape = x.size, []
    while left > 1:
        shape.append(draw(st.sampled_from([d for d in range(2, left + 1) if left % d == 0])))
        left //= shape[-1]
    for _ in range(draw(st.integers(0, 2))):
        shape.insert(draw(st.integers(0, len(shape))), 1)
    return x, tuple(shape)


@settings(max_examples=200, deadline=None)
@given(seen())
def test_a_reshape_is_a_view_where_numpy_says_so(case):
    x, shape = case
    strides = tuple(s // 4 for s in x.strides)
    found = restrided(x.shape, strides, shape)
    try:
        expected = x.reshape(shape, copy=False)
    except ValueError:
        assert found is None
        return
    assert found is not None
    assert [s for n, s in zip(shape, found, strict=True) if n > 1] == [
        s // 4 for n, s in zip(shape, expected.strides, strict=True) if n > 1
    ]


def test_evenly_spaced_indices_are_told():
    assert affine_indices(np.arange(5)) == (0, (1,))
    assert affine_indices(np.arange(9, 0, -2)) == (9, (-2,))
    assert affine_indices(np.add.outer(np.arange(3) * 2, np.arange(4)) + 1) == (1, (2, 1))
    assert affine_indices(np.array(7)) == (7, ())
    assert affine_indices(np.array([3])) == (3, (0,))
    assert affine_indices(np.array([0, 1, 3])) is None
    assert affine_indices(np.array([[0, 1], [1, 3]])) is None
    assert affine_indices(np.zeros((0,), np.int32)) is None


@pytest.mark.parametrize(
    "indices,view",
    [([[0, 1, 2], [1, 2, 3]], True), ([3, 2, 1, 0], True), ([0, 0, 0], True), ([2, 0, 1], False), ([], False)],
)
@pytest.mark.parametrize("engine", ["reference", "numpy", "auto"])
def test_a_take_with_even_indices_is_a_view(indices, view, engine):
    program, b, x = build((4, 3))
    at = np.array(indices, np.int32)
    constant = b.op("constant", value=arrays.to_literal(at, tensor(SI32, at.shape)))
    b.results(b.op("neg", b.op("take", b.op("exp", x), constant)))
    kinds = {buffer.alias for buffer in plan(program).functions["main"].buffers}
    assert ("view" in kinds) == view
    data = np.arange(12, dtype=np.float32).reshape(4, 3)
    (found,) = run(program, [data], RunOptions(engine=engine)).values()
    np.testing.assert_allclose(found, -np.exp(data[at]), rtol=1e-6)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 4), st.integers(1, 4)), min_size=1, max_size=3), st.booleans(), st.data())
def test_slices_by_steps_become_takes(axes, pads, data):
    """Rows of which one column stays, split from axes that may be padded behind."""
    split = tuple(d for pair in axes for d in pair)
    full = tuple(n * s for n, s in axes)
    high = tuple(data.draw(st.integers(0, s - 1)) if pads else 0 for _, s in axes)
    program, b, x = build(tuple(n - h for n, h in zip(full, high, strict=True)))
    y = b.op("pad", x, low=(0,) * len(axes), high=high) if pads else x
    y = b.op("reshape", y, new_shape=split)
    starts = [data.draw(st.integers(0, d - 1)) for d in split]
    sizes = [1 if i % 2 else data.draw(st.integers(1, d - starts[i])) for i, d in enumerate(split)]
    b.results(b.op("slice", y, starts=tuple(starts), sizes=tuple(sizes)))
    raised = clone(program)
    run_pipeline(raised, "raise-strides")
    given_x = np.random.default_rng(0).standard_normal(x.type.static_shape).astype(np.float32)
    (expected,), (found,) = (run(p, [given_x], RunOptions(engine="reference")).values() for p in (program, raised))
    np.testing.assert_array_equal(found, expected)
    reached = all(
        s + (n - 1) * d < f - h for s, n, d, f, h in zip(starts[1::2], sizes[0::2], split[1::2], full, high, strict=True)
    )
    if any(n > 1 and d > 1 for n, d in zip(sizes[0::2], split[1::2], strict=True)):
        assert any(op.name == "ptir.take" for op in raised.main.body)
        assert not (pads and reached and not any(starts)) or not any(op.name == "ptir.pad" for op in raised.main.body)
    assert prod(found.shape) == prod(sizes)
