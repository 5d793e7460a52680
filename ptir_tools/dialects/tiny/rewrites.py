"""The rules of Tiny: its canonical form (docs/tiny.md), and the rules of `simplify`.

The canonical form has no POOL and no movement op without effect, and merges chains of RESHAPE and of PERMUTE. `simplify`
removes operations that cancel. The label of a rule says what it may change in floats.
"""

from __future__ import annotations

from collections.abc import Sequence

from ptir_tools.core import expressions as ex
from ptir_tools.core.dtypes import lossless
from ptir_tools.core.ir import Operand
from ptir_tools.core.symbols import mentioned
from ptir_tools.core.typed import NoReturn
from ptir_tools.core.types import Dim, Shape
from ptir_tools.dialects.tiny import DIALECT
from ptir_tools.dialects.tiny.ops.movement import resolve_axes, result_axes
from ptir_tools.dialects.tiny.ops.rules import Axes, Destination, Pads
from ptir_tools.dialects.tiny.ops.view import pool_map
from ptir_tools.rewrite.fold import ReplacedBy, declared_fold
from ptir_tools.rewrite.pattern_set import PatternSet
from ptir_tools.rewrite.patterns import OpView, rewrites
from ptir_tools.rewrite.rules import rules
from ptir_tools.rewrite.vocabulary import extents, products, rank, shape, static, tensor_type

# The canonical form


@rewrites("tiny.POOL", depth=1)
def pool_as_view(op: OpView) -> bool:
    """The VIEW with the index map of a POOL, which the vocabulary does not have."""
    ones = (1,) * len(op.kernel)
    entries = pool_map(rank(op.x), op.stride or ones, op.dilation or ones)
    return op.replace(op.rw.build(op.root, "VIEW", op.x, result_shape=shape(op.root), map=entries))


@rewrites(*(d.name for d in DIALECT.ops.values() if d.fold is not None), depth=1)
def no_op(op: OpView) -> bool:
    """The operand of an op without effect (its fold). An output keeps its node."""
    found = declared_fold(op.root)
    return isinstance(found, ReplacedBy) and not op.rw.is_result(op.result) and op.replace(found.operand)


def of_no_constants(t: object, number: object) -> NoReturn:
    """Refuses a number on the right side of a rule, because Tiny has no constant op."""
    raise NotImplementedError


def named(sizes: Shape) -> set[str]:
    """The symbols in `sizes`."""
    return {name for d in sizes for s in mentioned(d) for name in ex.names(s.name)}


def decided(x: Operand, y: Operand, s: Shape) -> bool:
    """Whether one RESHAPE of `x` to `s` determines the symbols that two, by way of `y`, determine. A RESHAPE with more than
    one unknown pairs it with the extents opposite (docs/tiny.md), and no count determines the extents next to a 0. Where `y`
    has no symbol of its own, its count is that of `x` whatever the symbols are, so it determines nothing else."""
    known, made, between = named(shape(x)), named(s), named(shape(y))
    most = 0 if 0 in (*shape(y), *s) else 1
    settled = not between <= known or ex.product(shape(x)) == ex.product(shape(y))
    return settled and len(made - known) <= most and between <= known | made


CHAINS = """
    reshape-chain:      RESHAPE(y := RESHAPE(x, result_shape=_), result_shape=s) => RESHAPE(x, result_shape=s) if decided(x, y, s)
    permute-chain:      PERMUTE(PERMUTE(x, perm=p), perm=q)                    => PERMUTE(x, perm=compose(p, q))
"""
MERGED = rules(CHAINS, DIALECT, {"decided": decided}, of_no_constants)
NORMALIZATION = PatternSet([pool_as_view]).freeze()
CANONICALIZATION = PatternSet([pool_as_view, *MERGED, no_op]).freeze()

# Simplification


def flips(x: Operand, a: Axes, b: Axes) -> Axes:
    """The axes reversed by `a`, then `b`."""
    first, second = (set(resolve_axes("FLIP", tensor_type(x), axes)) for axes in (a, b))
    return tuple(sorted(first ^ second))


def numbers(pads: Pads) -> bool:
    """Whether no padding is symbolic."""
    return all(isinstance(d, int) for pair in pads for d in pair)


def padded_twice(p: Pads, q: Pads) -> Pads:
    """The sum of the paddings `p` and `q`, which are numbers."""
    return tuple((a + c, b + d) for (a, b), (c, d) in zip(p, q, strict=True))  # type: ignore[operator]


def undoes(lo: Shape, step: Sequence[Dim] | None, pad: Pads) -> bool:
    """Whether a SHRINK to the original number of elements removes exactly the padding."""
    return lo == tuple(low for low, _ in pad) and all(s == 1 for s in step or ())


def spread(x: Operand, inner: Operand, a: Destination | None, root: Operand, b: Destination | None) -> Destination | None:
    """The axes of `root` for those of `x` after an EXPAND to `inner`, then another; None aligns from the right."""
    if a is None and b is None:
        return None
    to, further = result_axes(shape(x), shape(inner), a), result_axes(shape(inner), shape(root), b)
    return tuple(None if i is None else further[i] for i in to)


def among(y: Operand, root: Operand) -> bool:
    """Whether every symbol of the shape of `y` is in that of `root`, so that no check is lost without `y`."""
    return all(isinstance(d, int) or d in shape(root) for d in shape(y))


RULES = """
    neg-neg:            NEG(NEG(x))                  => x
    relu-relu:          RELU(y := RELU(_))           => y
    add-negative-zero:  ADD(x, -0.0)                 => x
    add-zero:           ADD(x, 0)                    => x                                 [zero-sign]
    sub-positive-zero:  SUB(x, 0.0)                  => x
    sub-zero:           SUB(x, 0)                    => x                                 [zero-sign]
    mul-one:            MUL(x, 1)                    => x
    div-one:            FDIV(x, 1)                   => x
    mul-minus-one:      MUL(x, -1)                   => NEG(x)                            [nan-payload]
    div-minus-one:      FDIV(x, -1)                  => NEG(x)                            [nan-payload]
    minus-zero-sub:     SUB(-0.0, x)                 => NEG(x)                            [nan-payload]
    zero-sub:           SUB(0, x)                    => NEG(x)                            [zero-sign]
    sub-neg:            SUB(x, NEG(y))               => ADD(x, y)                         [nan-payload]
    add-neg:            ADD(x, NEG(y))               => SUB(x, y)                         [nan-payload]
    neg-sub:            NEG(SUB(x, y))               => SUB(y, x)                         [zero-sign]
    mul-neg-neg:        MUL(NEG(x), NEG(y))          => MUL(x, y)                         [nan-payload]
    div-neg-neg:        FDIV(NEG(x), NEG(y))         => FDIV(x, y)                        [nan-payload]
    relu-again:         MAX(y := RELU(_), 0)         => y                                 [zero-sign]
    max-self:           MAX(x, x)                    => x
    min-self:           MIN(x, x)                    => x
    where-either:       WHERE(_, x, x)               => x
    max-again:          MAX(m := MAX(x, y), y)       => m                                 [nan-payload]
    min-again:          MIN(m := MIN(x, y), y)       => m                                 [nan-payload]
    sub-of-add:         SUB(ADD(x, y), y)            => x                                 [range]
    add-of-sub:         ADD(SUB(x, y), y)            => x                                 [range]
    sub-of-sub:         SUB(x, SUB(x, y))            => y                                 [range]

    cast-chain:         CAST(CAST(x, to=d), to=e)    => CAST(x, to=e)  if lossless(dtype(x), d)  [nan-payload]
    flip-chain:         FLIP(FLIP(x, axes=a), axes=b)  => FLIP(x, axes=flips(x, a, b))
    pad-chain:          PAD(PAD(x, pad=p, value=v), pad=q, value=v)  => PAD(x, pad=padded_twice(p, q), value=v)
                        if numbers(p) and numbers(q)
    shrink-of-pad:      SHRINK(PAD(x, pad=p, value=_), lo=l, hi=_, step=s)  => x  if undoes(l, s, p)
    expand-chain:       EXPAND(y := EXPAND(x, result_shape=_, broadcast_dimensions=a), result_shape=s, broadcast_dimensions=b)
                        => EXPAND(x, result_shape=s, broadcast_dimensions=spread(x, y, a, root, b))
                        if among(y, root)
"""


@rewrites("tiny.SHRINK", operands=("tiny.SHRINK",))
def shrink_chain(op: OpView) -> bool:
    """A SHRINK of a SHRINK, both by numbers, is one."""
    inner = op.defined_by(op.x, "SHRINK")
    if inner is None or not static(inner.x, op.x, op.root) or not all(isinstance(d, int) for d in (*inner.lo, *op.lo)):
        return False
    steps, further = (v.step or (1,) * len(v.lo) for v in (inner, op))
    if not all(isinstance(s, int) for s in (*steps, *further)):
        return False
    step = products(steps, further)
    sizes = extents(op.root)
    lo = [a + s * b if n else 0 for a, s, b, n in zip(inner.lo, steps, op.lo, sizes, strict=True)]
    hi = [a + s * (n - 1) + 1 if n else 0 for a, s, n in zip(lo, step, sizes, strict=True)]
    by = None if all(s == 1 for s in step) else step
    return op.replace(op.rw.build(op.root, "SHRINK", inner.x, lo=tuple(lo), hi=tuple(hi), step=by))


_HELPERS = {f.__name__: f for f in (lossless, flips, numbers, padded_twice, undoes, spread, among)}
SIMPLIFY = [pool_as_view, *MERGED, *rules(RULES, DIALECT, _HELPERS, of_no_constants), shrink_chain]
SIMPLIFICATION = PatternSet(SIMPLIFY).freeze()
