"""What an op costs: arithmetic, and bytes of each dtype, counted here from the extents alone."""

from __future__ import annotations

import pytest

from ptir_tools import read
from ptir_tools.core import costs
from ptir_tools.core.dtypes import PTIR_DTYPES, DType
from ptir_tools.core.expressions import constant
from ptir_tools.core.types import sym, tensor, tuple_of

PTIR = "%a: tensor<f32, 2x3x5>, %b: tensor<f32, 2x5x7>, %c: tensor<si8, ?Nx4>, %d: tensor<si8, 4x?M>, %w: tensor<f16, 6x8>"
PTIR_OPS = {
    # an op, its result: the operations, the bytes (4 for each f32, 2 for f16, 1 for si8)
    "add(%a, %a) -> tensor<f32, 2x3x5>": ("30", "360"),
    "exp(%a) -> tensor<f32, 2x3x5>": ("30", "240"),
    "transpose(%a) perm[2, 0, 1] -> tensor<f32, 5x2x3>": ("0", "240"),
    "dot_general(%a, %b) batch_lhs[0] batch_rhs[0] contract_lhs[2] contract_rhs[1] -> tensor<f32, 2x3x7>": ("420", "568"),
    "dot_general(%c, %d) contract_lhs[1] contract_rhs[0] -> tensor<si8, ?Nx?M>": ("8*M*N", "4*M + M*N + 4*N"),
    "reduce_sum(%a) axes[1] keepdims[false] -> tensor<f32, 2x5>": ("30", "160"),
    "reduce_max(%c) axes[0] keepdims[false] -> tensor<si8, 4>": ("4*N", "4 + 4*N"),
    "cumsum(%a) axis[1] -> tensor<f32, 2x3x5>": ("30", "240"),
    "reduce_window(%w) window_dims[3, 2] strides[1, 2] padding[[0, 0], [0, 0]] base_dilation[1, 1] window_dilation[1, 1]"
    " reduce[max] -> tensor<f16, 4x4>": (f"{4 * 4 * 3 * 2}", f"{2 * (48 + 16)}"),
}


@pytest.mark.parametrize("text", PTIR_OPS)
def test_arithmetic_and_bytes_of_an_op(text: str) -> None:
    result = text.rpartition("->")[2]
    program = read(f"func @f({PTIR}) ->{result} {{\n%r = {text}\nreturn %r\n}}", format="ptir")
    op = program.functions[0].body[0]
    assert (costs.text(costs.operations(op)), costs.text(costs.traffic(op))) == PTIR_OPS[text]


@pytest.mark.parametrize(
    ("shape", "shown"),
    [((), "1"), ((3, 4), "12"), ((0, "N"), "0"), (("N", 2, "A"), "2*A*N"), (("H*D", 3), "3*(H*D)"), (("", "", 2), "2*?*?")],
)
def test_the_elements_of_a_shape_are_one_term(shape: tuple[int | str, ...], shown: str) -> None:
    assert costs.text(costs.count(sym(d) if isinstance(d, str) else d for d in shape)) == shown


def test_a_tuple_counts_each_of_its_tensors() -> None:
    one, other = tensor(PTIR_DTYPES[0], (2, 3)), tensor(PTIR_DTYPES[0], (5,))
    assert costs.elements(tuple_of([one, tuple_of([other, one])])) == constant(17)


@pytest.mark.parametrize("dtype", PTIR_DTYPES, ids=str)
def test_an_element_has_the_bytes_of_its_dtype(dtype: DType) -> None:
    assert costs.size(tensor(dtype, (3,)), tensor(dtype, (2, 2))) == constant(7 * dtype.size)
