"""Broken models of the kinds that people make: the cause in the words of ONNX, at the piece of the node that is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
from onnx import NodeProto, TensorProto, helper, save

from tests.conftest import run_ptir

node = helper.make_node
BROKEN = {
    "operator": ([node("Relue", ["x"], ["y"])], "there is no operator Relue", "Relue", "did you mean `Relu`?"),
    "attribute": ([node("Softmax", ["x"], ["y"], axes=1)], "has no attribute `axes`", "axes=1", "did you mean `axis`?"),
    "value": ([node("Add", ["x", "ww"], ["y"])], "nothing defines `ww`", "ww", "did you mean `w`?"),
    "count": ([node("Add", ["x"], ["y"])], "takes 2 operands, got 1", "Add", ""),
    "axis": ([node("Softmax", ["x"], ["y"], axis=5)], "axis 5 is not one of a tensor of rank 2", "axis=5", ""),
    "perm": ([node("Transpose", ["x"], ["y"], perm=[0, 2])], "perm: 2 is not an axis", "2", "did you mean `1`?"),
    "kind": ([node("LeakyRelu", ["x"], ["y"], alpha="0.1")], "is float, not string", 'alpha="0.1"', ""),
    "shapes": ([node("Add", ["x", "w"], ["y"])], "shapes do not broadcast", "w", ""),
    "too_many": ([node("Relu", ["x", "w"], ["y"])], "takes 1 operands, got 2", "w", ""),
    "older": ([node("Clip", ["x"], ["y"], min=0.0)], "has no attribute `min`", "min=0", "`min` is an operand"),
    "library": ([node("Linear", ["x", "w"], ["y"])], "no operator Linear", "Linear", "did you mean `Gemm`?"),
    "begun": ([node("BatchNorm", ["x"], ["y"])], "no operator BatchNorm", "BatchNorm", "did you mean `BatchNormalization`?"),
    "equation": ([node("Einsum", ["x", "w"], ["y"], equation="ij,kj")], "j is 4 in one", 'equation="ij,kj"', ""),
    "term": ([node("Einsum", ["x", "w"], ["y"], equation="ijk,kj")], "for 3 axes", 'equation="ijk,kj"', ""),
    "terms": ([node("Einsum", ["x", "w"], ["y"], equation="ij")], "has 1 terms for 2", 'equation="ij"', ""),
    "rank": ([node("Conv", ["x", "w"], ["y"])], "expected batch, spatial and channel axes", "x", ""),
    "flat": ([node("Flatten", ["x"], ["y"], axis=3)], "axis 3 is not one", "axis=3", ""),
    "parts": (
        [node("Constant", [], ["s"], value_ints=[1, 2]), node("Split", ["x", "s"], ["y", "z"], axis=1)],
        "parts of 1, 2 of axis 1, which has 4 elements", "s", "",
    ),
    "bias": (
        [node("Constant", [], ["c"], value_floats=[1.0] * 5), node("Gemm", ["x", "w", "c"], ["y"])],
        "does not broadcast to [2, 3]", "c", "",
    ),
    "domain": ([node("Fused", ["x"], ["y"], domain="com.acme")], "no operators of domain `com.acme`", "Fused", ""),
    "columns": ([node("MatMul", ["w", "x"], ["y"])], "have 3 elements, and columns of tensor<f32, 2x4> have 2", "x", ""),
    "indices": ([node("Gather", ["x", "w"], ["y"])], "`w` is f32, and Gather takes integers", "w", ""),
    "flags": ([node("Where", ["w", "w", "w"], ["y"])], "`w` is f32, and Where takes truth values", "w", ""),
    "type": ([node("Cast", ["x"], ["y"], to=99)], "there is no type 99", "99", ""),
    "order": (
        [node("Add", ["x", "b"], ["y"]), node("Exp", ["x"], ["b"], name="second")],
        "`b` is used before the node `second` of Exp",
        "b",
        "sort the nodes",
    ),
}  # fmt: skip


def verified(path: Path, nodes: list[NodeProto]) -> str:
    inputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", [2, 4]), ("w", [4, 3]))]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    graph = helper.make_graph(nodes, "g", inputs, outputs)
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    ran = run_ptir("verify", path)
    assert ran.status == 1
    return ran.err


@pytest.mark.parametrize("name", BROKEN)
def test_the_piece_that_is_wrong_is_underlined(tmp_path: Path, name: str) -> None:
    nodes, message, piece, help = BROKEN[name]
    first, _, _, line, marks, *rest = verified(tmp_path / "m.onnx", nodes).splitlines()
    assert message in first and help in "\n".join(rest)
    start = marks.index("^")
    assert line[start : start + marks.count("^")] == piece


def test_an_output_that_nothing_computes_is_named(tmp_path: Path) -> None:
    said = verified(tmp_path / "m.onnx", [node("Exp", ["x"], ["z"])])
    assert said.startswith("error[InvalidModel]: the output `y`: nothing defines `y`")


def test_both_errors_of_a_model_are_reported(tmp_path: Path) -> None:
    said = verified(
        tmp_path / "m.onnx", [node("Relue", ["x"], ["a"]), node("Add", ["x", "q"], ["b"]), node("Mul", ["a", "b"], ["y"])]
    )
    assert said.count("error[") == 2 and "no operator Relue" in said and "nothing defines `q`" in said
