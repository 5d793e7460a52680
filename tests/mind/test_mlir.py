"""The linalg lowering of MIND as text; tests/mind/test_iree.py compiles and runs it."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Options, Program
from ptir_tools.dialects.mind.mlir.format import FORMAT
from tests.mind.programs import good, random_program


def lowered(program: Program) -> str:
    return "".join(FORMAT.write(program, Diagnostics(), Options()))


LAYER = """%0 = Input {name=x} : tensor<f32[3, 4]>
%1 = Input {name=w} : tensor<f32[4, 5]>
%2 = Input {name=b} : tensor<f32[5]>
%3 = MatMul (%0, %1) : tensor<f32[3, 5]>
%4 = Add (%3, %2) : tensor<f32[3, 5]>
outputs: %4
"""
LAYER_MLIR = """module {
  func.func @main(%0: tensor<3x4xf32>, %1: tensor<4x5xf32>, %2: tensor<5xf32>) -> (tensor<3x5xf32>) {
    %t.0 = arith.constant 0.000000e+00 : f32
    %t.1 = tensor.empty() : tensor<3x5xf32>
    %t.2 = linalg.fill ins(%t.0 : f32) outs(%t.1 : tensor<3x5xf32>) -> tensor<3x5xf32>
    %3 = linalg.matmul ins(%0, %1 : tensor<3x4xf32>, tensor<4x5xf32>) outs(%t.2 : tensor<3x5xf32>) -> tensor<3x5xf32>
    %t.3 = tensor.empty() : tensor<3x5xf32>
    %4 = linalg.generic {indexing_maps = [MAPS], iterator_types = ["parallel", "parallel"]} \
ins(%3, %2 : tensor<3x5xf32>, tensor<5xf32>) outs(%t.3 : tensor<3x5xf32>) {
    ^bb0(%in.0: f32, %in.1: f32, %out: f32):
      %t.4 = arith.addf %in.0, %in.1 : f32
      linalg.yield %t.4 : f32
    } -> tensor<3x5xf32>
    return %4 : tensor<3x5xf32>
  }
}
"""
MAPS = ", ".join(f"affine_map<(d0, d1) -> ({m})>" for m in ("d0, d1", "d1", "d0, d1"))


def test_a_layer() -> None:
    assert lowered(good(LAYER)) == LAYER_MLIR.replace("MAPS", MAPS)


def one(t: str, line: str) -> str:
    return lowered(good(f"%0 = Input {{name=x}} : tensor<{t}>\n%1 = {line}\noutputs: %1\n"))


def test_constants() -> None:
    text = lowered(good("%0 = ConstTensor([1e-7, inf, -2]) : tensor<f32[3]>\n%1 = ConstI64(-1)\noutputs: %0, %1\n"))
    assert "arith.constant dense<[1.0e-07, 0x7F800000, -2.0]> : tensor<3xf32>" in text
    assert "arith.constant dense<-1> : tensor<i64>" in text
    assert "return %0, %1 : tensor<3xf32>, tensor<i64>" in text


WORDS = [
    (
        "f32[2, 3]",
        "Mean(%0, [1], true)",
        ["-> (d0, 0)>", '"parallel", "reduction"', "arith.divf", "dense<3.0>"],
    ),
    ("i32[2, 3]", "Mean(%0, [], false)", ["-> ()>", "arith.addi", "arith.divsi"]),
    ("f32[2, 3]", "Reshape(%0, [3, -1])", ["[[0, 1]] : tensor<2x3xf32> into tensor<6xf32>", "output_shape [3, 2]"]),
    ("f32[2, 3]", "Transpose(%0, [1, 0])", ["linalg.transpose", "permutation = [1, 0]"]),
    ("f32[7]", "Slice(%0, [-1:9:2])", ["tensor.extract_slice %0[0] [4] [2] : tensor<7xf32> to tensor<4xf32>"]),
    ("f32[7]", "Slice(%0, [7:9:2])", ["%1 = tensor.empty() : tensor<0xf32>"]),
    ("f32[]", "Transpose(%0, [])", ["tensor.extract %0[] : tensor<f32>"]),
    ("f32[2, 3]", "Index(%0, [1, 2])", ["tensor.extract %0[%t.0, %t.1]", "tensor.from_elements"]),
    ("i64[2]", "Gather(%0, %0)", ["arith.index_cast", "tensor.extract %0["]),
    ("f32[2]", "Relu(%0)", ["arith.cmpf ogt", "arith.select"]),
    ("i64[2]", "Neg(%0)", ["arith.subi"]),
    ("f32[2]", "Exp(%0)", ["math.exp %0 : tensor<2xf32>"]),
    ("f32[1, 2, 2, 2]", "MatMul(%0, %0)", ['"parallel", "parallel", "parallel", "parallel", "reduction"', "(d0, d1, d2, d4)"]),
    ("f32[4]", "Dot(%0, %0)", ["-> (d0)>", "-> ()>", '["reduction"]']),
]


@pytest.mark.parametrize(("t", "line", "words"), WORDS)
def test_operations(t, line, words) -> None:
    text = one(t, line)
    for word in words:
        assert word in text


def test_convolution() -> None:
    head = "%0 = Input {name=x} : tensor<f32[1, 4, 4, 2]>\n%1 = Input {name=f} : tensor<f32[3, 3, 2, 1]>\n"
    text = lowered(good(f"{head}%2 = Conv2d(%0, %1, [1, 2], Custom([[1, 0], [0, 1]]))\noutputs: %2\n"))
    assert "tensor.pad %0 low[0, 1, 0, 0] high[0, 0, 1, 0] {" in text
    assert "{dilations = dense<1> : tensor<2xi64>, strides = dense<[1, 2]> : tensor<2xi64>}" in text
    assert "extract_slice" not in text


def test_a_convolution_sees_only_what_its_windows_reach() -> None:
    """Rows 3 and columns 3 of the input are beyond the last window; where an extent of the result is 1, tools mistake them."""
    head = "%0 = Input {name=x} : tensor<f32[1, 4, 4, 2]>\n%1 = Input {name=f} : tensor<f32[2, 3, 2, 1]>\n"
    text = lowered(good(f"{head}%2 = Conv2d(%0, %1, [3, 2], Valid)\noutputs: %2\n"))
    assert "tensor.extract_slice %0[0, 0, 0, 0] [1, 2, 3, 2] [1, 1, 1, 1] : tensor<1x4x4x2xf32> to tensor<1x2x3x2xf32>" in text


@given(st.integers(0, 2**32))
@settings(max_examples=50, deadline=None)
def test_every_name_is_defined_once_and_before_its_use(seed) -> None:
    text = lowered(random_program(seed))
    assert text == lowered(random_program(seed))
    defined = set(re.findall(r"(%\w+): tensor", text.splitlines()[1]))
    for line in text.splitlines()[2:]:
        if line.lstrip().startswith("^bb0"):
            defined.update(re.findall(r"%[\w.]+", line))
            continue
        name, equals, rest = line.strip().partition(" = ")
        names = re.findall(r"%[\w.]+", rest if name.startswith("%") and equals else line)
        assert set(names) <= defined, line
        if name.startswith("%") and equals:
            assert name not in defined
            defined.add(name)
