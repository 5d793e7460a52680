"""Random PTO kernels: they verify, they print and read back the same, they hold the whole op table, harm is found."""

from collections import Counter

import numpy as np
import pytest

import ptir_tools
from ptir_tools.core.choices import Seeded
from ptir_tools.core.declare import OPS
from ptir_tools.core.ir import may_fail
from ptir_tools.dialects.pto import generate
from ptir_tools.dialects.pto.types import EventType, TileType
from ptir_tools.engines.inputs import random_inputs
from tests.pto.harm import harm
from tests.pto.programs import check, printed

SEEDS = range(90)


@pytest.fixture(scope="module")
def kernels():
    return [generate.generate(Seeded(seed), size=14) for seed in SEEDS]


def test_they_verify_and_read_back(kernels):
    for seed, kernel in zip(SEEDS, kernels, strict=True):
        text = printed(kernel)
        again, found = check(text)
        assert again is not None and not found.errors, seed
        assert printed(again) == text
        assert printed(generate.generate(Seeded(seed), size=14)) == text


def test_every_tile_op_can_be_drawn():
    none = [name for name in generate.tile_ops() if not generate.signatures(name)]
    assert not none


def test_they_hold_what_kernels_hold(kernels):
    ops = [op for kernel in kernels for op in kernel.main.ops()]
    names = Counter(op.name for op in ops)
    assert len([n for n in generate.tile_ops() if n in names]) >= 0.9 * len(generate.tile_ops())
    assert {"pto.scf.for", "pto.scf.if", "pto.sync", "pto.sync.op", "pto.tile.assign", "pto.memref.subview"} <= set(names)
    types = {v.type for op in ops for v in op.results}
    assert {t.loc for t in types if isinstance(t, TileType)} >= {None, "Mat", "Left", "Right", "Acc"}
    assert len({t.dtype for t in types if isinstance(t, TileType)}) >= 10
    assert any(isinstance(t, EventType) for op in ops if op.defn is OPS["pto.scf.for"] for t in [v.type for v in op.results])


def test_harm_is_found(kernels):
    """A wait taken away is often implied by another; where it is not, the check says so."""
    found = 0
    for seed in SEEDS:
        kernel = generate.generate(Seeded(seed), size=14)
        if harm(kernel, Seeded(seed)) is not None:
            found += bool({d.code for d in check(printed(kernel))[1]} & {"MissingWait", "MemoryHazard"})
    assert found >= 5


@pytest.mark.parametrize("seed", [2, 3, 4])
def test_they_grow_with_their_steps(seed):
    """Loops and branches have blocks of a few steps, whatever there is around them; an op waits for few others."""
    kernel = generate.generate(Seeded(seed), size=2000)
    ops = list(kernel.main.ops())
    assert len(ops) < 60 * 2000
    assert max(len(op.operands) for op in ops) < 300


def test_large_ones_verify():
    assert check(printed(generate.generate(Seeded(4), size=1000)))[0] is not None


def ran(text: str) -> str:
    """`ok`, or the name of the op at which a run on random inputs ends."""
    program = ptir_tools.read(text, "pto")
    assert program.source is not None
    try:
        ptir_tools.run(program, random_inputs(program, 0))
    except ptir_tools.Rejected as rejected:
        at = rejected.diagnostics[0].span
        (failed,) = [op for op in program.main.ops() if program.source.span(op.loc) == at]
        only_signals = all(isinstance(v.type, EventType) for v in failed.results)  # an op that stays anyway
        assert may_fail(failed) or only_signals, (failed.defn.name, rejected.diagnostics[0])
        return failed.defn.short
    return "ok"


def test_nearly_all_kernels_run_to_their_end(capfd):
    """A campaign of kernels that all fail would compare nothing. A value that fails has declared that it may."""
    outcomes = Counter(ran(printed(generate.generate(Seeded(seed)))) for seed in range(100))
    assert outcomes["ok"] >= 98, outcomes


def test_every_draw_of_concat_holds_both_operands():
    """Columns that do not fit are an error of the program, which random kernels are to be without."""
    for signature in generate.signatures("pto.tile.concat"):
        (left,), (right,) = signature.operands
        assert isinstance(left, TileType) and isinstance(right, TileType)
        assert left.shape[1] + right.shape[1] <= signature.results[0].shape[1]


def test_kernels_with_faults_end_at_ops_that_may_fail(capfd):
    outcomes = Counter(ran(printed(generate.generate(Seeded(seed), faults=True))) for seed in range(60))
    assert 5 <= outcomes["ok"] <= 50 and len(outcomes) >= 5, outcomes


@pytest.mark.parametrize(("op", "divisors"), [("rowexpanddiv", (8, 1)), ("colexpanddiv", (1, 8))])
def test_a_repeated_divisor_of_zero_counts_where_it_is_defined(op, divisors, capfd):
    """What is not valid is 0 and divides nothing; a 0 that is valid is an error, which the op declares."""
    few = tuple(min(4, n) for n in divisors)
    whole, part, b_type = "tile<8x8xi32>", [f"%c{n}" for n in few], "x".join(map(str, divisors))
    text = f"""func.func @f(%a: pto.memref<8x8xi32>, %b: pto.memref<{b_type}xi32>, %o: pto.memref<8x8xi32>) {{
  %c0 = pto.constant 0 : index
  %c1 = pto.constant 1 : index
  %c4 = pto.constant 4 : index
  %c8 = pto.constant 8 : index
  %x = pto.tile.load %a[%c0, %c0] : pto.memref<8x8xi32>, {whole}
  %y = pto.tile.load %b[%c0, %c0] {{valid = [{", ".join(part)}]}} : pto.memref<{b_type}xi32>, tile<{b_type}xi32>
  %z = pto.tile.{op} %x, %y {{valid = [%c8, %c8]}} : {whole}, tile<{b_type}xi32> -> {whole}
  pto.tile.store %z, %o[%c0, %c0] {{valid = [%c4, %c4]}} : pto.memref<8x8xi32>, {whole}
  return
}}
"""
    program = ptir_tools.read(text, "pto")
    a, b = np.arange(-32, 32, dtype=np.int32).reshape(8, 8), np.arange(3, 11, dtype=np.int32).reshape(divisors)
    o = ptir_tools.run(program, [a, b, np.zeros((8, 8), np.int32)])["o"]
    np.testing.assert_array_equal(o[:4, :4], np.trunc(a / b)[:4, :4].astype(np.int32))
    b.flat[2] = 0
    with pytest.raises(ptir_tools.Rejected, match="division by zero"):
        ptir_tools.run(program, [a, b, o])
    assert may_fail(next(x for x in program.main.body if x.defn.short == f"tile.{op}"))
