"""Decompositions of ops that gpt.rs does not have: clamp, layer norm."""

from __future__ import annotations

from collections.abc import Sequence

from ptir_tools.core.dialect import Program
from ptir_tools.dialects.ptir.builder.site import Site, cast, wide
from ptir_tools.dialects.ptir.composites import layers
from ptir_tools.rewrite.driver import GreedyConfig, apply_patterns_and_fold_greedily
from ptir_tools.rewrite.expression import maximum, minimum
from ptir_tools.rewrite.pattern_set import PatternSet
from ptir_tools.rewrite.patterns import Effect, OpView, Pattern, rewrites
from ptir_tools.rewrite.rewriter import Rewriter


@rewrites("ptir.clamp", depth=1)
def decompose_clamp(op: OpView) -> bool:
    """`minimum(maximum(x, lo), hi)`, as the contract defines it."""
    x, low, high = Site(op.root, op.rw).operands
    return op.replace(minimum(maximum(x, low), high).operand)


@rewrites("ptir.layer_norm", depth=1, effect=Effect.ROUNDING)
def decompose_layer_norm(op: OpView) -> bool:
    """Mean, centered, mean of squares, rsqrt, scale, shift. Dtypes narrower than f32 are computed in f32."""
    site = Site(op.root, op.rw)
    dtype = site.result.dtype
    x, gamma, beta = (cast(v, wide(dtype)) for v in site.operands)
    return op.replace(cast(layers.layer_norm(x, gamma, beta, op.feature_axis % x.rank, op.epsilon), dtype).operand)


DECOMPOSITION: Sequence[Pattern] = (decompose_clamp, decompose_layer_norm)
DECOMPOSED = PatternSet(list(DECOMPOSITION)).freeze()


def decompose(program: Program) -> list[str]:
    """Decompose, in place, every op that gpt.rs does not have. The result is the short names of those found. New values have no
    name."""
    found = dict.fromkeys(op.defn.short for block in program.blocks() for op in block.body if op.defn in DECOMPOSED.by_root)
    config = GreedyConfig(enable_constant_fold=False, enable_dce=False, effect=Effect.RANGE)
    for block in (*program.functions, *program.regions) if found else ():
        rw = Rewriter(block, program.dialect)
        apply_patterns_and_fold_greedily(rw, DECOMPOSED, config)
        rw.finish(naming=False)
    return list(found)
