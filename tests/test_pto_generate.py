"""Random PTO kernels: they verify, they print and read back the same, they hold the whole op table, harm is found."""

from collections import Counter

import pytest
from pto_programs import check, printed

from ptir_tools.core.choices import Seeded
from ptir_tools.core.declare import OPS
from ptir_tools.dialects.pto import generate
from ptir_tools.dialects.pto.types import EventType, TileType

SEEDS = range(60)


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
        if generate.harm(kernel, Seeded(seed)) is not None:
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
