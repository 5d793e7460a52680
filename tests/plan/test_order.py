"""Orders with a low peak: against every order of small programs, and the pass that writes them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from time import process_time

import pytest

from ptir_tools import api
from ptir_tools.core.builder import single_function
from ptir_tools.core.dialect import Program
from ptir_tools.core.dtypes import F32
from ptir_tools.core.ir import Op, Region, Value
from ptir_tools.core.types import tensor
from ptir_tools.dialects import load_dialect
from ptir_tools.plan import order as plan_order
from ptir_tools.plan.liveness import analyze
from ptir_tools.plan.order import _peak, least_peak


def drawn(seed: int, n: int) -> Program:
    """Elementwise ops, sums and broadcasts over vectors of several lengths."""
    rng = random.Random(seed)
    program, b = single_function(load_dialect("ptir"))
    values: list[Value] = [b.param(tensor(F32, (k,))) for k in (16, 64)]
    for _ in range(n):
        x = rng.choice(values)
        (k,) = x.type.static_shape  # type: ignore[attr-defined]
        kind = rng.randrange(3)
        if kind == 0:
            values.append(b.op("exp", x))
        elif kind == 1:
            values.append(b.op("concat", (x, rng.choice(values)), axis=0))
        else:
            values.append(b.op("slice", b.op("neg", x), starts=(0,), sizes=(max(k // 4, 1),)))
    b.results(b.op("concat", tuple(v for v in values[2:] if not _used(program, v)), axis=0))
    return program


def _used(program: Program, v: Value) -> bool:
    return any(v in op.values() for op in program.main.body)


def orders(block: Region, done: tuple[Op, ...] = ()) -> Iterator[tuple[Op, ...]]:
    """Every order in which the ops of `block` can run."""
    left = [op for op in block.body if op not in done]
    if not left:
        yield done
    known = {*block.params, *(v for op in done for v in op.results)}
    for op in left:
        if all(v in known for v in op.values()):
            yield from orders(block, (*done, op))


def peak_of(block: Region, order: list[Op] | tuple[Op, ...]) -> int:
    """The peak of `block` with its ops in that order."""
    before = list(block.body)
    block.body[:] = order
    found = _peak(block, analyze(block))
    block.body[:] = before
    return found


@pytest.mark.parametrize("seed", range(25))
def test_small_blocks_get_the_best_order(seed: int) -> None:
    block = drawn(seed, 4).main
    best = min(peak_of(block, order) for order in orders(block))
    found = least_peak(block)
    assert peak_of(block, found or block.body) == best
    assert (found is None) == (best == peak_of(block, block.body))


@pytest.mark.parametrize("looks", [0, 2000])
@pytest.mark.parametrize("seed", range(10))
def test_order_is_legal_and_never_worse(seed: int, looks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the search gives up, soon or at once."""
    monkeypatch.setattr(plan_order, "_STATES", looks)
    block = drawn(seed, 40).main
    before = list(block.body)
    found = least_peak(block)
    assert block.body == before, "the block keeps its order"
    if found is not None:
        assert set(found) == set(before) and peak_of(block, found) < peak_of(block, before)
        known = set(block.params)
        for op in found:
            assert all(v in known for v in op.values())
            known.update(op.results)


def test_ten_thousand_ops_are_put_into_order() -> None:
    """Chains that the program runs side by side; one after the other they need a fraction."""
    program, b = single_function(load_dialect("ptir"))
    x = b.param(tensor(F32, (64,)))
    chains = [x] * 100
    for _ in range(50):
        chains = [b.op("concat", (b.op("slice", v, starts=(0,), sizes=(32,)),) * 2, axis=0) for v in chains]
    ends = [b.op("neg", b.op("slice", v, starts=(0,), sizes=(1,))) for v in chains]
    b.results(b.op("concat", tuple(ends), axis=0))
    assert len(program.main.body) > 10_000
    start = process_time()
    found = least_peak(program.main)
    assert process_time() - start < 20, "ten times what it takes, for slow machines"
    before = peak_of(program.main, program.main.body)
    assert found is not None and set(found) == set(program.main.body) and peak_of(program.main, found) <= before * 0.6
    known = {*program.main.params}
    for op in found:
        assert all(v in known for v in op.values())
        known.update(op.results)


@pytest.mark.parametrize("seed", range(5))
def test_greedy_orders_take_the_least_of_all_that_may_run(seed: int) -> None:
    """Against looking at every op that may run, each time, with what the model says of whole sets."""
    model = plan_order._Model(block := drawn(seed, 60).main, analyze(block))
    for key in (plan_order._freed, plan_order._grown):
        state, order = plan_order._State(0, 0), []
        while len(order) < len(model.ops):
            moves = [(i, *model.run(state, i)) for i in model.ready(state.done)]
            i, state, _ = min(moves, key=lambda m: (key(m[2] - state.live, m[1].live - state.live), m[0]))
            order.append(i)
        assert model.greedy(key) == order


def test_pass_writes_the_order_once() -> None:
    program = next(p for p in (drawn(seed, 12) for seed in range(99)) if least_peak(p.main))
    made = api.optimize(program, "min-peak")
    assert [op.name for op in made.main.body] != [op.name for op in program.main.body]
    assert least_peak(made.main) is None
    assert api.plan(made).functions["main"].lower_bound <= api.plan(program).functions["main"].lower_bound


def test_a_function_without_ops_has_the_order_that_it_has() -> None:
    text = "func @f(%x: tensor<f32, 3>) -> tensor<f32, 3> {\n  return %x\n}\n"
    assert api.write(api.optimize(api.read(text), "min-peak")) == text
