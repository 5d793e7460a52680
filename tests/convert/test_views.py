"""Guarded VIEWs of Tiny in PTIR: a pad where the guard says no more than that a read lies inside, else a select."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ptir_tools
from ptir_tools.core.arrays import numpy_dtype
from ptir_tools.core.dtypes import BF16, F16, F32, I1, SI32, DType
from tests.convert.translations import parse, translated
from tests.tiny.graphs import graph, node, run, source

LINE = np.arange(1, 6)
INSIDE = ["i0+i1>=1", "i0+i1<=5"]


def view(shape: list, map: list, guard: list[str], fill: Any = 0, extents: tuple[int, ...] = (5,), dtype: str = "fp32") -> str:
    """A graph of one VIEW."""
    index_map = {"map": map, "guard": guard, "fill": fill}
    return graph(source(extents, dtype), node("VIEW", result_shape=shape, index_map=index_map))


def in_ptir(text: str, x: np.ndarray) -> tuple[list[str], np.ndarray]:
    """The ops of the translation, and what it gives."""
    made = translated(parse(text, "tiny"), "ptir").program
    assert made is not None
    return [op.defn.short for op in made.main.body], run(made, [x])[0]


@pytest.mark.parametrize(
    ("dtype", "spelled", "fill"),
    [(F32, "fp32", "nan"), (F16, "fp16", 0.1), (BF16, "bf16", "-inf"), (SI32, "i32", -(1 << 31)), (I1, "bool", True)],
)
def test_windows_over_the_edge_are_taken_from_a_pad(dtype: DType, spelled: str, fill: Any) -> None:
    x = (LINE % 2 if dtype is I1 else LINE).astype(numpy_dtype(dtype))
    ops, given = in_ptir(view([5, 3], ["i0+i1-1"], INSIDE, fill, dtype=spelled), x)
    edge = np.array([float(fill)]).astype(x.dtype)
    padded = np.concatenate([edge, x, edge])
    assert "select" not in ops and ops[0] == "pad"
    np.testing.assert_array_equal(given, np.lib.stride_tricks.sliding_window_view(padded, 3))


def test_a_shifted_axis_is_a_pad_alone() -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    text = view([4, 5], ["i0-1", "i1-2"], ["i0>=1", "i0<3", "i1>=2"], 7, (2, 3))
    ops, given = in_ptir(text, x)
    assert ops == ["pad", "reshape"]
    np.testing.assert_array_equal(given, np.pad(x, ((1, 1), (2, 0)), constant_values=7))


@pytest.mark.parametrize(
    ("shape", "map", "guard", "want"),
    [
        ([5, 3], ["i0+i1-1"], [*INSIDE, "i0>=1"], None),  # excludes what lies inside
        ([5], ["i0"], ["i0<3"], [1, 2, 3, 0, 0]),
        ([3], ["i0*1000"], ["i0<1"], [1, 0, 0]),  # a pad of 1995 for three elements
        ([2, 2], ["i0"], ["i1>=1"], [[0, 1], [0, 2]]),  # about another axis
        ([2], ["i0"], ["-1>=0"], [0, 0]),
        ([0, 3], ["i0+i1-1"], INSIDE, np.zeros((0, 3))),
    ],
)
def test_other_guards_select(shape: list, map: list, guard: list[str], want: Any) -> None:
    ops, given = in_ptir(view(shape, map, guard), LINE.astype(np.float32))
    assert "select" in ops and "pad" not in ops
    if want is None:
        want = np.lib.stride_tricks.sliding_window_view(np.pad(LINE, 1), 3) * (np.arange(5) >= 1)[:, None]
    np.testing.assert_array_equal(given, np.asarray(want, np.float32))


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_index_maps_come_back(data: st.DataObject) -> None:
    """Every map of one source axis that is a sum of steps and quotients over the result's axes survives PTIR."""
    shape = data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=3))
    terms = [(data.draw(st.integers(-3, 3)), data.draw(st.integers(1, 3)), k) for k in range(len(shape))]
    entry = "+".join(f"({c})*(i{k}//{q})" for c, q, k in terms)
    grid = np.indices(shape)
    reads = sum(c * (grid[k] // q) for c, q, k in terms)
    first, extent = -int(reads.min()), int(np.ptp(reads)) + 1
    text = view(shape, [f"{entry}+{first}"], [], extents=(extent,))
    there = translated(parse(text, "tiny"), "ptir").program
    assert there is not None
    back = translated(there, "tiny").program
    assert back is not None
    x = np.arange(extent, dtype=np.float32)
    np.testing.assert_array_equal(run(back, [x])[0], x[reads + first])


LOWER = {"map": ["i0", "0", "i1-i2"], "guard": ["i1>=i2", "i1<=i2+1"], "fill": 7}
OPEN = {
    "reversed": (node("FLIP", axes=[0, 2]), lambda x, n, m: x[::-1, :, ::-1]),
    "rows reversed": (node("FLIP", axes=[0]), lambda x, n, m: x[::-1]),
    "rows, then their neighbors": (
        node(
            "VIEW",
            result_shape=["N", 3, 2, "M"],
            index_map={"map": ["i0+i1-1", "i2", "i3"], "guard": ["i0+i1>=1", "i0+i1<=N"], "fill": 7},
        ),
        lambda x, n, m: np.stack([np.pad(x, ((1, 1), (0, 0), (0, 0)), constant_values=7)[k : k + n] for k in range(3)], 1),
    ),
    "every second": (node("VIEW", result_shape=["M"], index_map={"map": ["0", "1", "i0"]}), lambda x, n, m: x[0, 1]),
    "last first": (node("VIEW", result_shape=["M"], index_map={"map": ["N-1", "0", "M-1-i0"]}), lambda x, n, m: x[-1, 0, ::-1]),
    "rows joined": (
        node("VIEW", result_shape=["N", "2*M"], index_map={"map": ["i0", "i1//M", "i1%M"]}),
        lambda x, n, m: x.reshape(n, 2 * m),
    ),
    "padded": (
        node("PAD", pad=[[0, 0], [0, 0], ["M", 0]], value=3),
        lambda x, n, m: np.pad(x, ((0, 0), (0, 0), (m, 0)), constant_values=3),
    ),
    "all but the first": (node("SHRINK", lo=[0, 1, 1], hi=["N", 2, "M"]), lambda x, n, m: x[:, 1:, 1:]),
    "an index that counts an axis": (
        node("VIEW", result_shape=["N-1", "M"], index_map={"map": ["N-1-i0", "1", "i1"]}),
        lambda x, n, m: x[:0:-1, 1],
    ),
    "windows": (
        node("POOL", kernel=[1], stride=[2]),
        lambda x, n, m: x[:, :, ::2, None],
    ),
    "windows of a symbol": (
        node("POOL", kernel=["M"], stride=["M"]),
        lambda x, n, m: x[:, :, None],
    ),
    "a band": (
        node("VIEW", result_shape=["N", "M", "M"], index_map=LOWER),
        lambda x, n, m: np.array(
            [[[x[a, 0, i - j] if 0 <= i - j <= 1 else 7 for j in range(m)] for i in range(m)] for a in range(n)]
        ),
    ),
}


@pytest.mark.parametrize("name", OPEN)
@pytest.mark.parametrize(("n", "m"), [(3, 4), (1, 1), (2, 1)])
def test_indices_of_symbols_are_computed(name: str, n: int, m: int) -> None:
    """One translation is right for all extents."""
    made, want = OPEN[name]
    extra = source(["2*M"], id="w")
    program = parse(graph(source(["N", 2, "M"]), extra, {**made, "src": ["x"]}), "tiny")
    after = translated(program, "ptir").program
    assert after is not None
    x = np.arange(n * 2 * m, dtype=np.float32).reshape(n, 2, m)
    (found,) = ptir_tools.run(after, [x, np.zeros(2 * m, np.float32)]).values()
    np.testing.assert_array_equal(found, want(x, n, m))


def test_last_axes_that_stay_have_no_indices() -> None:
    """No index counts more elements than the axes that are read have."""
    after = translated(parse(graph(source(["N", 2, "M"]), {**node("FLIP", axes=[0]), "src": ["x"]}), "tiny"), "ptir").program
    assert after is not None
    take = next(op for op in after.main.body if op.defn.short == "take")
    assert [v.type.rank for v in take.operands] == [3, 1]  # type: ignore[union-attr]


@pytest.mark.parametrize("extent", ["2*N", "2*N+1", "3*N-1", "N+2", "N-1"])
@pytest.mark.parametrize("entry", ["N-1-i0", "i0+N-3", "i0-N+2", "2*N-i0-2", "i0%N", "i0//N", "3-i0+N//2"])
def test_a_symbol_that_an_extent_determines_is_computed_from_it(extent: str, entry: str) -> None:
    """Reads outside are the fill, so any entry may be read; N itself is the extent of nothing."""
    guard = [f"{entry}>=0", f"{entry}<{extent}"]
    made = node("VIEW", result_shape=[extent], index_map={"map": [entry], "guard": guard, "fill": -1})
    after = translated(parse(graph(source([extent]), made), "tiny"), "ptir")
    if after.program is None:
        assert {code for code, _ in after.errors} == {"NotTranslatable"}
        return
    for n in (2, 3, 5):
        count = eval(extent, {"N": n})
        x = np.arange(count, dtype=np.float32)
        reads = [eval(entry, {"N": n, "i0": i}) for i in range(count)]
        (found,) = ptir_tools.run(after.program, [x]).values()
        np.testing.assert_array_equal(found, [r if 0 <= r < count else -1 for r in reads])


def test_an_extent_that_nothing_gives_is_asked_for() -> None:
    made = node("VIEW", result_shape=["K-1"], index_map={"map": ["i0"]})
    found = translated(parse(graph(source(["N"]), made), "tiny"), "ptir")
    assert [code for code, _ in found.errors] == ["UnboundSymbol"]


@pytest.mark.parametrize("open_", ["a new axis", "an axis of the source"])
def test_a_pad_has_axes_of_any_number(open_: str) -> None:
    """A new axis repeats what is padded. An axis that is a symbol is not padded itself."""
    extents = ["N"] if open_ == "a new axis" else ["N", 4]
    maps = ["i1-1"] if open_ == "a new axis" else ["i0", "i1-1"]
    index_map = {"map": maps, "guard": ["i1>=1", "i1<=4"], "fill": 5.0}
    program = parse(json.dumps({"uops": [
        {"id": "n", "uop": "INPUT", "arg": {"tensor_id": "n", "dtype": "fp32", "shape": extents}},
        {"id": "x", "uop": "INPUT", "arg": {"tensor_id": "x", "dtype": "fp32", "shape": [4]}},
        {"id": "v", "uop": "VIEW", "src": ["x" if open_ == "a new axis" else "n"],
         "arg": {"result_shape": ["N", 6], "index_map": index_map}},
    ], "outputs": ["v", "n"]}), "tiny")  # fmt: skip
    made = translated(program, "ptir").program
    assert made is not None
    n = np.arange(12, dtype=np.float32).reshape((3, 4))[:, 0] if open_ == "a new axis" else np.arange(12.0).reshape(3, 4)
    x = np.array([1, np.nan, 3, np.inf], np.float32)
    found, *_ = ptir_tools.run(made, [n.astype(np.float32), x]).values()
    rows = np.tile(x, (3, 1)) if open_ == "a new axis" else n
    np.testing.assert_array_equal(found, np.pad(rows, ((0, 0), (1, 1)), constant_values=5))
    assert ("pad" in {op.defn.short for op in made.main.body}) is (open_ == "a new axis")
