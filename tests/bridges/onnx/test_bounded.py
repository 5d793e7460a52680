"""Results whose extent depends on data: their rows and their count are those of ONNX Runtime, or of NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ptir_tools as ptir
from tests.suites.onnx_nodes import counted

pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")
from tests.bridges.onnx.test_import import I64, F, evaluated, model, node  # noqa: E402

B = 9  # the number of BOOL


def held(m: Any, feeds: dict[str, Any], **options: Any) -> None:
    """Every engine gives the outputs of ONNX's evaluator, cut to their counts."""
    wanted, program = evaluated(m, feeds), ptir.from_onnx(m, **options)
    for engine in ("reference", "numpy", "native"):
        found = counted(ptir.run(program, feeds, engine=engine), wanted)
        for x, y in zip(found, wanted, strict=True):
            assert x.dtype == y.dtype
            np.testing.assert_allclose(x, y, rtol=1e-6)


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("shape", [[7], [3, 4], [2, 3, 2]])
def test_places_that_are_not_zero(shape: list[int], share: float) -> None:
    m = model([node("NonZero", "x", "y"), node("Transpose", "y", "t"), node("Cast", "t", "c", to=6)], {"x": shape}, ["y", "c"])
    rng = np.random.default_rng(len(shape))
    held(m, {"x": ((rng.random(shape) < share) * rng.standard_normal(shape)).astype(np.float32)})


def test_places_over_a_symbol() -> None:
    m = model([node("NonZero", "x", "y")], {"x": (B, ["n", 3])}, ["y"])
    for n in (1, 4):
        held(m, {"x": np.random.default_rng(n).random((n, 3)) < 0.5})


def test_elements_by_flags_and_rows_by_their_places() -> None:
    nodes = [
        node("Compress", "x k", "kept", axis=1), node("NonZero", "k", "at"), node("Squeeze", "at zero", "flat"),
        node("Gather", "x flat", "rows", axis=1), node("Mul", "rows two", "twice"),
        node("ReduceSum", "twice zero", "sum", keepdims=0), node("Slice", "flat zero three", "first"),
        node("Reshape", "sum whole", "again"), node("Unsqueeze", "sum zero", "new"),
    ]  # fmt: skip
    weights = {"zero": np.array([0]), "three": np.array([3]), "two": np.float32([2]), "whole": np.array([-1, 1])}
    m = model(nodes, {"x": (F, [2, 6]), "k": (B, [6])}, ["kept", "twice", "sum", "first", "again", "new"], weights)
    rng = np.random.default_rng(0)
    for flags in (rng.random(6) < 0.5, np.ones(6, bool), np.zeros(6, bool), np.arange(6) == 5):
        held(m, {"x": rng.standard_normal((2, 6)).astype(np.float32), "k": flags})


@pytest.mark.parametrize(("what", "nodes"), [
    ("ReduceSum", [node("ReduceSum", "at", "y")]),
    ("Shape", [node("Shape", "at", "y")]),
    ("Concat", [node("Concat", "at at", "y", axis=1)]),
    ("Add", [node("Add", "at other", "y")]),
    ("TopK", [node("TopK", "at one", "y i")]),
])  # fmt: skip
def test_rows_that_do_not_count_are_never_summed(what: str, nodes: list[Any]) -> None:
    m = model([node("NonZero", "x", "at"), *nodes], {"x": [4], "other": (I64, [1, 4])}, ["y"], {"one": np.array([1])})
    with pytest.raises(ptir.Rejected, match=f"{what} of rows whose count depends on data"):
        ptir.from_onnx(m)


@pytest.mark.parametrize("centered", [0, 1])
@pytest.mark.parametrize("most", [2, 9])
def test_boxes_that_overlap_no_better_one(centered: int, most: int) -> None:
    """Against ONNX Runtime: equal scores, boxes without area, boxes with turned corners."""
    m = model(
        [node("NonMaxSuppression", "b s most iou low", "y", center_point_box=centered), node("Gather", "y one", "boxes", axis=1)],
        {"b": [2, 7, 4], "s": [2, 3, 7]}, ["y", "boxes"],
        {"most": np.array([most]), "iou": np.float32([0.3]), "low": np.float32([0.2]), "one": np.array(2)},
    )  # fmt: skip
    for y in m.graph.output:
        y.type.tensor_type.elem_type = I64
    session, program = runtime.InferenceSession(m.SerializeToString()), ptir.from_onnx(m)
    for seed in range(12):
        rng = np.random.default_rng(seed)
        b, s = rng.integers(0, 6, (2, 7, 4)).astype(np.float32), (rng.integers(0, 9, (2, 3, 7)) / 8).astype(np.float32)
        wanted = session.run(None, {"b": b, "s": s})
        for engine in ("numpy", "native"):
            found = counted(ptir.run(program, [b, s], engine=engine), wanted)
            for x, y in zip(found, wanted, strict=True):
                np.testing.assert_array_equal(x, y)


def test_inputs_that_are_sequences_or_optional() -> None:
    from onnx import helper

    m = model(
        [node("SequenceAt", "s one", "a"), node("OptionalGetElement", "o", "b"), node("Add", "a b", "y")],
        {},
        ["y"],
        {"one": np.array(1)},
    )
    tensor_type = helper.make_tensor_type_proto(F, [None])
    m.graph.input.append(helper.make_value_info("s", helper.make_sequence_type_proto(tensor_type)))
    m.graph.input.append(helper.make_value_info("o", helper.make_optional_type_proto(helper.make_tensor_type_proto(F, [2]))))
    with pytest.raises(ptir.Rejected, match="input `s` is a sequence"):
        ptir.from_onnx(m)
    program = ptir.from_onnx(m, shapes={"s.0": [3], "s.1": [2]})
    x, y, z = np.ones(3, np.float32), np.float32([1, 2]), np.float32([3, 4])
    (found,) = ptir.run(program, {"s.0": x, "s.1": y, "o": z}).values()
    np.testing.assert_array_equal(found, y + z)


def test_declared_types_are_checked() -> None:
    """`value_info`: another dtype is an error, another shape a warning."""
    from onnx import helper

    from ptir_tools.bridges.onnx import format as onnx_format
    from ptir_tools.core.diagnostics import Diagnostics
    from ptir_tools.core.dialect import Options

    def read(dtype: int, shape: list[Any]) -> tuple[Any, Diagnostics]:
        m = model([node("Exp", "x", "y"), node("Neg", "y", "z")], {"x": ["n", 3]}, ["z"])
        m.graph.value_info.append(helper.make_tensor_value_info("y", dtype, shape))
        found = Diagnostics()
        return onnx_format.program(m, found, Options()), found

    assert not [*read(F, ["k", 3])[1]]
    program, found = read(I64, ["n", 3])
    assert program is None and "`y` is declared si64, and is tensor<f32, ?nx3>" in next(iter(found)).message
    program, found = read(F, [2, 4])
    assert program is not None and "is declared [2, 4]" in next(iter(found)).message
    assert ptir.run(program, [np.zeros((2, 3), np.float32)])["z"].shape == (2, 3)
