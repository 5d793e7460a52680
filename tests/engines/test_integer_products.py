"""Products of integers that are known to be small are computed by BLAS, exactly."""

from __future__ import annotations

import numpy as np
import pytest

from ptir_tools import read, run
from ptir_tools.convert.ranges import nearby


def program(depth: int, zero: int) -> str:
    """The product of bytes, minus their zero point, and of small integers."""
    return f"""func @f(%a: tensor<ui8, 3x{depth}>, %b: tensor<si8, {depth}x5>) -> tensor<si32, 3x5> {{
  %x = cast(%a) -> tensor<si32, 3x{depth}>
  %z = broadcast_to(dense<{zero}> : tensor<si32>) result_shape[3, {depth}] -> tensor<si32, 3x{depth}>
  %c = sub(%x, %z) -> tensor<si32, 3x{depth}>
  %y = cast(%b) -> tensor<si32, {depth}x5>
  %d = dot_general(%c, %y) contract_lhs[1] contract_rhs[0] -> tensor<si32, 3x5>
  return %d
}}
"""


@pytest.mark.parametrize("engine", ["numpy", "native", "reference"])
@pytest.mark.parametrize(("depth", "zero"), [(1, 0), (300, 128), (65_000, 0), (70_000, 255), (66_000, 40_000)])
def test_sums_are_those_of_integers_that_wrap(engine: str, depth: int, zero: int) -> None:
    """Sums within 2**24, within 2**31, and beyond, with all elements at their limits."""
    for a, b in ((255, -128), (0, 127), (255, 127)):
        given = {"a": np.full((3, depth), a, np.uint8), "b": np.full((depth, 5), b, np.int8)}
        exact = (depth * (a - zero) * b + 2**31) % 2**32 - 2**31
        (found,) = run(read(program(depth, zero)), given, engine=engine).values()
        assert (found == exact).all()


def test_the_range_of_a_value_is_that_of_the_ops_before_it() -> None:
    ops = {op.results[0].name: op for op in read(program(4, 128)).main.body}
    assert nearby(ops["c"].results[0]) == (-128, 127)
    assert nearby(ops["d"].results[0]) == (-128 * 127 * 4, 128 * 128 * 4)
    assert nearby(ops["c"].results[0], 0) == (-(2**31), 2**31 - 1)
