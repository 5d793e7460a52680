"""Strides against NumPy's: which arrays lie without gaps, and where their elements are."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptir_tools.core.strides import dense_strides, is_dense, restrided

_EXTENTS = st.lists(st.integers(0, 3), max_size=4)


@settings(max_examples=200, deadline=None)
@given(_EXTENTS, st.data())
def test_an_array_is_dense_where_numpy_calls_it_contiguous(extents: list[int], data: st.DataObject) -> None:
    shape = tuple(extents)
    strides = list(dense_strides(shape))
    for axis in data.draw(st.lists(st.integers(0, max(len(shape) - 1, 0)), max_size=2)) if shape else ():
        strides[axis] = data.draw(st.sampled_from([0, 1, 2, *dense_strides(shape)]))
    memory = np.zeros(200, np.float32)
    seen = np.lib.stride_tricks.as_strided(memory, shape, [4 * s for s in strides])
    assert is_dense(shape, tuple(strides)) is bool(seen.flags.c_contiguous)


@pytest.mark.parametrize("shape", [(), (1,), (4,), (2, 3), (3, 1, 2), (2, 3, 4, 5)])
def test_elements_are_counted_row_by_row(shape: tuple[int, ...]) -> None:
    places = [sum(i * s for i, s in zip(at, dense_strides(shape), strict=True)) for at in np.ndindex(shape)]
    assert places == list(range(prod(shape)))


@settings(max_examples=300, deadline=None)
@given(st.lists(st.integers(1, 4), max_size=4), st.data())
def test_an_array_has_another_shape_without_a_copy_where_numpy_says_so(extents: list[int], data: st.DataObject) -> None:
    """Of arrays that are turned, cut, repeated or read backwards, and shapes with axes of one element anywhere."""
    order = data.draw(st.permutations(range(len(extents))))
    whole = np.zeros([n + data.draw(st.integers(0, 1)) for n in extents], np.float32)
    view = whole[tuple(slice(n) for n in extents)].transpose(order)
    for axis in range(view.ndim):
        how = data.draw(st.sampled_from(["as it is", "as it is", "backwards", "repeated"]))
        if how == "backwards":
            view = np.flip(view, axis)
        elif how == "repeated":
            view = np.broadcast_to(np.take(view, [0], axis), view.shape)
    factors = [p for n in view.shape for p in ((2, 2) if n == 4 else (n,))] + [1] * data.draw(st.integers(0, 2))
    out = [1] * data.draw(st.integers(0, 3))
    for p in data.draw(st.permutations(factors)) if data.draw(st.booleans()) else factors:
        if out and data.draw(st.booleans()):
            out[-1] *= p
        else:
            out.append(p)
    out = out if prod(out) == view.size else [view.size]
    found = restrided(view.shape, tuple(s // 4 for s in view.strides), tuple(out))
    (seen := view[...]).flags.writeable = False
    try:
        seen.shape = tuple(out)
    except AttributeError:
        assert found is None
        return
    assert found is not None
    assert [s for n, s in zip(out, found, strict=True) if n > 1] == [
        s // 4 for n, s in zip(seen.shape, seen.strides, strict=True) if n > 1
    ]
