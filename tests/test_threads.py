"""Steps on several threads: parts cover the whole once, and give what one thread gives."""

import threading
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ptir_tools as ptir
from ptir_tools.engines.native import available, threads

PRODUCT = """func @f(%x: tensor<f32, 301x257>, %w: tensor<f32, 257x999>) -> tensor<f32, 301x999> {
  %y = dot_general(%x, %w) contract_lhs[1] contract_rhs[0] -> tensor<f32, 301x999>
  return %y
}"""
PRODUCTS = """func @f(%x: tensor<f32, 5x330x150>, %w: tensor<f32, 5x150x330>) -> tensor<f32, 5x330x330> {
  %y = dot_general(%x, %w) batch[0] contract_lhs[2] contract_rhs[1] -> tensor<f32, 5x330x330>
  return %y
}"""
CHAIN = """func @f(%x: tensor<f32, 2000003>) -> tensor<f32, 2000003> {
  %a = tanh(%x) -> tensor<f32, 2000003>
  %b = mul(%a, %x) -> tensor<f32, 2000003>
  return %b
}"""
ROWS = """func @f(%x: tensor<f32, 2501x1000>) -> tensor<f32, 2501x1000> {
  %m = reduce_max(%x) axes[1] keepdims[true] -> tensor<f32, 2501x1>
  %b = broadcast_to(%m) result_shape[2501, 1000] -> tensor<f32, 2501x1000>
  %s = sub(%x, %b) -> tensor<f32, 2501x1000>
  %e = exp(%s) -> tensor<f32, 2501x1000>
  return %e
}"""


@given(length=st.integers(0, 1000), parts=st.integers(1, 20))
def test_cuts_cover_everything_once(length: int, parts: int) -> None:
    cuts = threads.cuts(length, parts)
    assert [i for s in cuts for i in range(s.start, s.stop)] == list(range(length))
    assert len(cuts) <= parts and (length == 0 or all(s.start < s.stop for s in cuts))


def test_every_part_runs_once_and_more_than_one_thread_can_help() -> None:
    ran: Counter[int] = Counter()
    meeting = threading.Barrier(2, timeout=10)

    def part(i: int) -> None:
        ran[i] += 1
        meeting.wait()  # two threads must be here at the same time

    (step,) = threads.together([(part, (i,)) for i in range(6)], 2)
    step[0](*step[1])
    assert ran == Counter(range(6))


def test_a_failing_part_is_told() -> None:
    def part(fails: bool) -> None:
        if fails:
            raise ArithmeticError("part")

    (step,) = threads.together([(part, (i == 3,)) for i in range(5)], 2)
    with pytest.raises(ArithmeticError):
        step[0](*step[1])


@pytest.mark.parametrize("text", [PRODUCT, PRODUCTS, CHAIN, ROWS], ids=["product", "products", "chain", "rows"])
def test_threads_change_no_bit(text: str) -> None:
    """Where the kernels were not built the engine is `numpy`, for which the law holds, too."""
    program = ptir.read(text)
    draw = np.random.default_rng(0)
    inputs = {p.name: draw.standard_normal(p.type.static_shape).astype(np.float32) for p in program.main.params}
    engine = "native" if available() else "numpy"
    one, three = (ptir.run(program, inputs, engine=engine, threads=n) for n in (1, 3))
    for name in one:
        assert np.array_equal(one[name].view(np.uint32), three[name].view(np.uint32))
