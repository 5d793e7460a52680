"""The rules of MIND: the canonical form of Core v1 (specification, Canonicalisation), and the rules of `simplify`.

The canonical form uses no algebra: it only normalizes attributes and folds additions, subtractions and multiplications of
integers. `simplify` removes operations that cancel. The label of a rule says what it may change in floats.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from ptir_tools.core import arrays
from ptir_tools.core.declare import OPS
from ptir_tools.core.dtypes import SI64
from ptir_tools.core.evaluate import Context, computed, evaluate
from ptir_tools.core.ir import Literal, Op, create
from ptir_tools.core.lazy import np
from ptir_tools.core.limits import current
from ptir_tools.core.types import TensorType, tensor
from ptir_tools.core.violations import require
from ptir_tools.dialects.mind import DIALECT
from ptir_tools.dialects.mind.ops.indexing import clamped
from ptir_tools.rewrite.constants import literal_of
from ptir_tools.rewrite.pattern_set import FrozenPatternSet, PatternSet
from ptir_tools.rewrite.patterns import OpView, Origin, Pattern, is_constant, rewrites
from ptir_tools.rewrite.rewriter import Rewriter
from ptir_tools.rewrite.rules import rules
from ptir_tools.rewrite.vocabulary import extents, products, rank, shape, tensor_type

# The canonical form


@rewrites("mind.Sum", "mind.Mean", depth=1)
def reduction_axes(op: OpView) -> bool:
    """Axes are ascending and not negative. Without axes, `keepdims` has no effect and is left out."""
    axes = tuple(sorted(a % rank(op.input) for a in op.axes))
    return _spelled(op, axes=axes, keepdims=op.keepdims and bool(axes))


@rewrites("mind.Reshape", depth=1)
def reshape_extents(op: OpView) -> bool:
    """-1 is resolved, except where it is 0, which cannot be written."""
    return 0 not in shape(op.root) and _spelled(op, new_shape=shape(op.root))


@rewrites("mind.ExpandDims", depth=1)
def expanded_axes(op: OpView) -> bool:
    """Axes are ascending."""
    return _spelled(op, axes=tuple(sorted(op.axes)))


def _spelled(op: OpView, **attrs: object) -> bool:
    """Replace the attributes of `op` by equivalent ones; False when it has them already."""
    if all(getattr(op, name) == value for name, value in attrs.items()):
        return False
    op.rw.set_attrs(op.root, **attrs)
    return True


class FoldArithmetic(Pattern):
    """Folds Add, Sub and Mul of constants where nothing wraps and nothing is rounded; with `floats`, those of floats, too."""

    roots = ("mind.Add", "mind.Sub", "mind.Mul")

    def __init__(self, floats: bool) -> None:
        self.floats = floats

    def admits(self, origins: Sequence[Origin]) -> bool:
        return all(map(is_constant, origins))

    def match_and_rewrite(self, root: Op, rw: Rewriter) -> bool:
        literals = [x for x in map(literal_of, root.operands) if x is not None]
        folded = self.folded(root, tensor_type(root), literals)
        if folded is None:
            return False
        constant = "ConstI64" if folded.type is tensor(SI64) else "ConstTensor"
        rw.replace(root, rw.build(root, constant, value=folded))
        return True

    def folded(self, op: Op, t: TensorType, literals: Sequence[Literal]) -> Literal | None:
        """The literal that `op` computes; None when it is too large, or its declaration does not allow folding."""
        if t.nbytes > max(current().fold_bytes, *(x.type.nbytes for x in literals)):
            return None
        operands = [arrays.from_literal(x) for x in literals]
        floats = t.dtype.is_float and self.floats
        result = evaluate(op, operands, Context())[0] if floats else computed(op, operands, Context())
        return None if result is None else arrays.to_literal(result, t)


@cache
def canonicalization(floats: bool) -> FrozenPatternSet:
    """The rules of the canonical form; `floats`: fold constants of floats, too."""
    return PatternSet([reduction_axes, reshape_extents, expanded_axes, FoldArithmetic(floats)]).freeze()


# Simplification

RULES = """
    neg-neg:            Neg(Neg(x))                  => x
    relu-relu:          Relu(y := Relu(_))           => y
    add-negative-zero:  Add(x, -0.0)                 => x
    add-zero:           Add(x, 0)                    => x                                 [zero-sign]
    sub-positive-zero:  Sub(x, 0.0)                  => x
    sub-zero:           Sub(x, 0)                    => x                                 [zero-sign]
    mul-one:            Mul(x, 1)                    => x
    mul-zero:           Mul(x, 0)                    => 0                                 [range]
    mul-minus-one:      Mul(x, -1)                   => Neg(x)                            [nan-payload]
    minus-zero-sub:     Sub(-0.0, x)                 => Neg(x)                            [nan-payload]
    zero-sub:           Sub(0, x)                    => Neg(x)                            [zero-sign]
    sub-neg:            Sub(x, Neg(y))               => Add(x, y)                         [nan-payload]
    add-neg:            Add(x, Neg(y))               => Sub(x, y)                         [nan-payload]
    neg-sub:            Neg(Sub(x, y))               => Sub(y, x)                         [zero-sign]
    mul-neg-neg:        Mul(Neg(x), Neg(y))          => Mul(x, y)                         [nan-payload]
    sub-self:           Sub(x, x)                    => 0                                 [range]
    sub-of-add:         Sub(Add(x, y), y)            => x                                 [range]
    add-of-sub:         Add(Sub(x, y), y)            => x                                 [range]
    sub-of-sub:         Sub(x, Sub(x, y))            => y                                 [range]
    log-exp:            Log(Exp(x))                  => x                                 [range]
    exp-log:            Exp(Log(x))                  => x                                 [range]

    # Reshape, ExpandDims and Squeeze are reshapes, each of another spelling; one that does nothing folds.
    reshape-chain:      reshaping(reshaping(x))      => Reshape(x, new_shape=shape(root))
    transpose-chain:    Transpose(Transpose(x, permutation=p), permutation=q)  => Transpose(x, permutation=compose(p, q))
"""


@rewrites("mind.Slice", operands=("mind.Slice",))
def slice_chain(op: OpView) -> bool:
    """`slice(slice(x))` is one slice of `x`."""
    inner = op.defined_by(op.input, "Slice")
    if inner is None:
        return False
    bounds, further = (clamped(extents(v.input), v.starts, v.ends) for v in (inner, op))
    first = [a + s * b for (a, _), s, (b, _) in zip(bounds, inner.steps, further, strict=True)]
    steps = products(inner.steps, op.steps)
    ends = [a + s * (n - 1) + 1 if n else a for a, s, n in zip(first, steps, extents(op.root), strict=True)]
    return op.replace(op.rw.build(op.root, "Slice", inner.input, starts=tuple(first), ends=tuple(ends), steps=steps))


def splat(t: TensorType, number: object) -> list[Op]:
    """The constant of type `t` with all elements `number`. Raises Violation for one whose text would be too long."""
    require(t.nbytes <= current().fold_bytes, "LimitExceeded", f"a constant of {t.nbytes} bytes")
    scalar = arrays.to_literal(np.asarray(number), tensor(t.dtype))
    return [create(OPS[DIALECT.constant], (), {"value": Literal(t, scalar.data, splat=t.count > 1)})]


SIMPLIFY = [*rules(RULES, DIALECT, {}, splat), slice_chain]
SIMPLIFICATION = PatternSet(SIMPLIFY).freeze()
