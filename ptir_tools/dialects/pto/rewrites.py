"""The rules of PTO: folding of index arithmetic, branches with a known condition, loops of zero or one trip.

Float tile arithmetic is never folded, and no op on tiles is rewritten.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import count
from weakref import WeakKeyDictionary

from ptir_tools.core import arrays
from ptir_tools.core.evaluate import Context, computed
from ptir_tools.core.ir import PURE, Literal, Op, Operand, Region, Value, operand_type
from ptir_tools.core.typed import Any
from ptir_tools.core.types import tensor
from ptir_tools.dialects.pto import DIALECT
from ptir_tools.dialects.pto.types import ScalarType
from ptir_tools.rewrite.constants import literal_of, scalar_of
from ptir_tools.rewrite.pattern_set import PatternSet
from ptir_tools.rewrite.patterns import OpView, rewrites
from ptir_tools.rewrite.rewriter import Rewriter
from ptir_tools.rewrite.rules import rules

RULES = """
    add-zero:           addi(x, 0)              => x
    sub-zero:           subi(x, 0)              => x
    mul-one:            muli(x, 1)              => x
    mul-zero:           muli(_, z := 0)         => z
    div-one:            divsi(x, 1)             => x
    and-zero:           andi(_, z := 0)         => z
    or-zero:            ori(x, 0)               => x
    xor-zero:           xori(x, 0)              => x
    shift-by-zero:      shli(x, 0)              => x
    select-true:        select(True, x, _)      => x
    select-false:       select(False, _, x)     => x
    cast-of-type:       index_cast(x, to=_)     => x
"""


def of_no_tensors(t: object, number: object) -> Any:
    """Refuse a number on the right side of a rule, because it would need a tensor type."""
    raise NotImplementedError


@rewrites(
    *(d.name for d in DIALECT.ops.values() if d.traits & PURE and not d.is_constant and not d.regions),
    operands=("pto.constant",),
    every=True,
)
def fold_scalars(op: OpView) -> bool:
    """A scalar op on constants is a constant. A division by zero stays, and is reported at run time."""
    root, t = op.root, op.result.type
    literals = [x for x in map(literal_of, root.operands) if x is not None]
    if not literals or len(literals) < len(root.operands) or not isinstance(t, ScalarType):
        return False
    data = computed(root, [arrays.from_literal(x) for x in literals], Context())
    if data is None:
        return False
    value = arrays.to_literal(data, tensor(t.dtype))
    return op.replace(op.rw.build(root, "constant", value=value))


@rewrites("pto.scf.if", operands=("pto.constant",), at=0)
def decided_branch(op: OpView) -> bool:
    """A branch with a constant condition is its block, inlined."""
    taken = scalar_of(op.condition)
    if taken is None:
        return False
    chosen = op.root.regions[0 if taken else 1]
    if not _fit(op, chosen.results, op.root.results):
        return False
    _unnest(op.rw, op.root, chosen)
    return _give(op, list(chosen.results))


@rewrites("pto.scf.for", operands=("pto.constant",), at=0)
def loop_that_never_runs(op: OpView) -> bool:
    """A loop of zero trips is its initial values. A step that is not positive stays, and is reported at run time."""
    lower, upper, step = map(scalar_of, op.root.operands[:3])
    if (
        lower is None
        or upper is None
        or step is None
        or step <= 0
        or lower < upper
        or not _fit(op, op.root.operands[3:], op.root.results)
    ):
        return False
    return _give(op, op.root.operands[3:])


@rewrites("pto.scf.for", operands=("pto.constant",), at=0)
def loop_that_runs_once(op: OpView) -> bool:
    """A loop of one trip is its block, inlined."""
    bounds, inits = op.root.operands[:3], op.root.operands[3:]
    lower, upper, step = map(scalar_of, bounds)
    if lower is None or upper is None or step is None or not lower < upper <= lower + step:
        return False
    body = op.root.regions[0]
    at = bounds[0]
    given, wanted = (*inits, *body.results), (*body.params[1:], *op.root.results)
    if not _fit(op, given, wanted, (body.params[0], at)):
        return False
    if isinstance(at, Literal):
        at = op.rw.build(op.root, "constant", value=at)
    for p, x in zip(body.params, (at, *inits), strict=True):
        op.rw.replace_all_uses(p, x)
    _unnest(op.rw, op.root, body)
    return _give(op, list(body.results))


def _fit(op: OpView, given: Sequence[Operand], wanted: Sequence[Value], *before: tuple[Value, Operand]) -> bool:
    """Whether `given` have the types of `wanted`, which they replace. A tile or event with more known facts has another type.
    And whether the dialect allows it; `before` is put in, too."""
    if [operand_type(x) for x in given] != [v.type for v in wanted]:
        return False
    return op.rw.allows([*before, *zip(wanted, given, strict=True)])


def _give(op: OpView, results: Sequence[Operand]) -> bool:
    """Replace the results of `op` by `results`, and erase it."""
    for v, x in zip(op.root.results, results, strict=True):
        op.rw.replace_all_uses(v, x)
    op.rw.erase(op.root)
    return True


_names: WeakKeyDictionary[Rewriter, Counter[str]] = WeakKeyDictionary()  # how many values of the function have a name


def _unnest(rw: Rewriter, at: Op, block: Region) -> None:
    """Move the ops of a block before `at`; names that other blocks use, too, are made unique."""
    if (names := _names.get(rw)) is None:
        values = (v for b in rw.blocks() for v in (*b.params, *(v for op in rw.body(b) for v in op.results)))
        names = _names[rw] = Counter(v.name for v in values)
    for op in rw.body(block):
        rw.move_before(at, op)
        for v in op.results:
            if names[stem := v.name] > 1:
                names[stem] -= 1
                v.name = next(n for k in count(names[stem]) if (n := f"{stem}_{k}") not in names)
                names[v.name] += 1


FOLDING = PatternSet(
    [
        *rules(RULES, DIALECT, {}, of_no_tensors),
        fold_scalars,
        decided_branch,
        loop_that_never_runs,
        loop_that_runs_once,
    ]
).freeze()
