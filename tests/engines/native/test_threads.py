"""Steps on several threads: parts cover the whole once, and give what one thread gives."""

import os
import subprocess
import sys
import threading
import time
from collections import Counter

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ptir_tools as ptir
from ptir_tools.engines.native import available, threads
from ptir_tools.engines.thresholds import at

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


RESIDUAL = """func @f(%x: tensor<f32, 403x72>, %w: tensor<f32, 72x40>, %v: tensor<f32, 40x72>) -> tensor<f32, 403x72> {
  %a = dot_general(%x, %w) contract_lhs[1] contract_rhs[0] -> tensor<f32, 403x40>
  %t = tanh(%a) -> tensor<f32, 403x40>
  %b = dot_general(%t, %v) contract_lhs[1] contract_rhs[0] -> tensor<f32, 403x72>
  %y = add(%b, %x) -> tensor<f32, 403x72>
  %z = mul(%y, %y) -> tensor<f32, 403x72>
  return %z
}"""
PROGRAMS = {"product": PRODUCT, "products": PRODUCTS, "chain": CHAIN, "rows": ROWS, "residual": RESIDUAL}


@given(length=st.integers(0, 1000), parts=st.integers(1, 20))
def test_cuts_cover_everything_once(length: int, parts: int) -> None:
    cuts = threads.cuts(length, parts)
    assert [i for s in cuts for i in range(s.start, s.stop)] == list(range(length))
    assert len(cuts) <= parts and (length == 0 or all(s.start < s.stop for s in cuts))


@given(rows=st.integers(1, 5000), workers=st.integers(1, 9), much=st.booleans())
def test_shares_of_a_product_cover_everything_once_in_whole_blocks(rows: int, workers: int, much: bool) -> None:
    shares = threads.shares(rows, workers, at.long_product if much else 1)
    assert [i for s in shares for i in range(s.start, s.stop)] == list(range(rows))
    assert all(s.start % threads.ROWS == 0 and s.start < s.stop for s in shares)


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


def drawn(program: ptir.Program) -> dict[str, np.ndarray]:
    draw = np.random.default_rng(0)
    return {p.name: draw.standard_normal(p.type.static_shape).astype(np.float32) for p in program.main.params}


def same_bits(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> bool:
    return all(np.array_equal(one[name].view(np.uint32), other[name].view(np.uint32)) for name in one)


@pytest.mark.parametrize("name", PROGRAMS)
def test_threads_change_no_bit(name: str) -> None:
    """Where the kernels were not built the engine is `numpy`, for which the law holds, too."""
    program = ptir.read(PROGRAMS[name])
    inputs, engine = drawn(program), "native" if available() else "numpy"
    one = ptir.run(program, inputs, engine=engine, threads=1)
    for count in (2, 3, 7):
        assert same_bits(one, ptir.run(program, inputs, engine=engine, threads=count))


def test_threads_change_no_bit_of_products_with_subnormal_sums() -> None:
    """Rows whose products may be subnormal take another way than the others: which ones is not the threads' choice."""
    program = ptir.read("""func @f(%x: tensor<bf16, 333x200>, %w: tensor<bf16, 200x150>) -> tensor<bf16, 333x150> {
  %y = dot_general(%x, %w) contract_lhs[1] contract_rhs[0] -> tensor<bf16, 333x150>
  return %y
}""")
    inputs = {name: x.astype(ml_dtypes.bfloat16) for name, x in drawn(program).items()}
    inputs["x"][170:200:7] *= ml_dtypes.bfloat16(2.0**-126)
    engine = "native" if available() else "numpy"
    one, *others = (ptir.run(program, inputs, engine=engine, threads=n)["y"] for n in (1, 2, 3, 7))
    assert all(np.array_equal(one.view(np.uint16), other.view(np.uint16)) for other in others)


def test_several_python_threads_run_programs_at_once() -> None:
    """One has the pool, the others go on alone: all results are right, again and again."""
    programs = [ptir.read(text) for text in PROGRAMS.values()]
    engine = "native" if available() else "numpy"
    wrong: list[int] = []

    def work(i: int) -> None:
        program = programs[i % len(programs)]
        inputs = drawn(program)
        call = ptir.compile(program, engine=engine, threads=2 + i % 3)
        first = ptir.run(program, inputs, engine=engine, threads=1)
        wrong.extend(i for _ in range(10) if not same_bits(first, call(inputs)))

    workers = [threading.Thread(target=work, args=(i,)) for i in range(2 * len(programs))]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_child_of_fork_has_threads_of_its_own() -> None:
    program = ptir.read(PRODUCT)
    inputs, engine = drawn(program), "native" if available() else "numpy"
    call = ptir.compile(program, engine=engine, threads=2)
    here = call(inputs)
    child = os.fork()
    if child == 0:
        os._exit(0 if all(same_bits(here, call(inputs)) for _ in range(5)) else 1)
    deadline = time.monotonic() + 60
    while (ended := os.waitpid(child, os.WNOHANG))[0] == 0 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert ended == (child, 0)
    assert same_bits(here, call(inputs))


def test_threads_that_have_nothing_to_do_sleep() -> None:
    program = ptir.read(PRODUCT)
    call, inputs = ptir.compile(program, engine="native" if available() else "numpy", threads=2), drawn(program)
    call(inputs)
    time.sleep(0.05)
    busy = time.process_time()
    time.sleep(0.5)
    assert time.process_time() - busy < 0.1


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="processors cannot be chosen here")
def test_one_processor_is_enough() -> None:
    program = ptir.read(PRODUCT)
    call, inputs = ptir.compile(program, engine="native" if available() else "numpy", threads=2), drawn(program)
    here, usable = call(inputs), os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(usable)})
    try:
        time.sleep(0.01)  # helpers sleep by now: processors are counted again before one is woken
        assert same_bits(here, call(inputs))
    finally:
        os.sched_setaffinity(0, usable)


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="which processors a thread may use cannot be asked here")
def test_helpers_that_wait_for_a_busy_processor_change_no_bit() -> None:
    """They are moved to where the caller waits for them, and are placed again for the next work."""
    program = ptir.read(PRODUCTS)
    inputs, engine = drawn(program), "native" if available() else "numpy"
    one = ptir.run(program, inputs, engine=engine, threads=1)
    call = ptir.compile(program, engine=engine, threads=2)
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in os.sched_getaffinity(0)]
    try:
        assert all(same_bits(one, call(inputs)) for _ in range(60))
    finally:
        for other in others:
            other.kill()
            other.wait()
    assert all(same_bits(one, call(inputs)) for _ in range(5))
    assert len(os.sched_getaffinity(0)) == len(others)
