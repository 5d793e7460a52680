"""Ensembles of decision trees: each row goes down all trees, and the weights of the leaves that it reaches are combined.

A row of the table of nodes is [mode, feature, yes, no, missing]. The mode compares the feature of the row with the node's split;
with `missing`, a NaN means yes. A leaf has the mode LEAF, and its entries are those from `yes` to `no` of targets and weights.
"""

from __future__ import annotations

from collections.abc import Sequence

from ptir_tools.core import arrays
from ptir_tools.core.arrays import Array
from ptir_tools.core.ir import Op, operand_type
from ptir_tools.core.lazy import np
from ptir_tools.core.types import TensorType, Type
from ptir_tools.core.violations import Violation, operand, require
from ptir_tools.dialects.ptir.kernels.targets.fused import Values
from ptir_tools.dialects.ptir.ops.typerules import agree, attribute
from ptir_tools.rewrite.constants import literal_of

LEAF, LE, LT, GE, GT, EQ, NE = range(7)
MODE, FEATURE, YES, NO, MISSING = range(5)
AGGREGATES = ("sum", "min", "max")
TABLES = (1, 2, 4)  # the operands of si32: roots, nodes, targets
_AT_ONCE = 1 << 16  # walks


def ensemble_type(types: tuple[TensorType, ...], values: Values) -> Type:
    """x [N, F], roots [T], nodes [M, 5], splits [M], targets [E], weights [E]."""
    x, _, nodes, splits, targets, weights = types
    for i, (t, rank) in enumerate(zip(types, (2, 1, 2, 1, 1, 1), strict=True)):
        require(t.rank == rank, "OperandRankMismatch", f"this operand has {rank} axes, got {t}", at=operand(i))
    agree(nodes.shape[1], 5, "OperandShapeMismatch", "a node has five numbers", operand(2))
    agree(nodes.shape[0], splits.shape[0], "OperandShapeMismatch", "each node has a split", operand(3))
    agree(targets.shape[0], weights.shape[0], "OperandShapeMismatch", "each target has a weight", operand(5))
    attribute(values["outputs"] >= 1, f"outputs is {values['outputs']}, expected 1 or more", "outputs")
    attribute(values["aggregate"] in AGGREGATES, f"aggregate is {', '.join(AGGREGATES)}; got {values['aggregate']}", "aggregate")
    return x.with_shape((x.shape[0], values["outputs"]))


def check_tables(roots: Array, nodes: Array, targets: Array, features: int, outputs: int) -> None:
    """Raise Violation("InvalidAttributeValue") unless every root, child, feature, entry and target is there, and children come
    after their parents, so that every walk ends."""
    rows, own = nodes.astype(np.int64), np.arange(len(nodes))
    leaf = rows[:, MODE] == LEAF
    entries = np.where(leaf, rows[:, NO], 0)

    def sound(good: Array, k: int, what: str) -> None:
        at = np.flatnonzero(~good)
        require(not at.size, "InvalidAttributeValue", f"{what}, at {at[:1].sum()}", at=operand(k))

    sound((rows[:, MODE] >= LEAF) & (rows[:, MODE] <= NE), 2, "a node has an unknown mode")
    sound(leaf | ((rows[:, FEATURE] >= 0) & (rows[:, FEATURE] < features)), 2, f"a node asks for none of {features} features")
    for side in (YES, NO):
        good = (rows[:, side] > own) & (rows[:, side] < len(rows))
        sound(leaf | good, 2, "a child of a node does not come after it")
    good = (rows[:, YES] >= 0) & (rows[:, YES] <= entries) & (entries <= len(targets))
    sound(~leaf | good, 2, f"a leaf has entries that are none of {len(targets)}")
    sound((roots >= 0) & (roots < len(rows)), 1, f"a root is none of {len(rows)} nodes")
    sound((targets >= 0) & (targets < outputs), 4, f"a target is none of {outputs}")


def each(numbers: Array, count: int) -> Array:
    """Each of the numbers, which are below `count`, once and in order."""
    there = np.zeros(count, np.bool_)
    there[numbers] = True
    return np.flatnonzero(there)


def tables_of(op: Op) -> list[Array] | None:
    """Roots, nodes, splits, targets and weights, where they are constants."""
    found = [literal_of(x) for x in op.operands[1:]]
    known = [arrays.from_literal(x) for x in found if x is not None and x.data is not None]
    return known if len(known) == len(found) else None


def check_constants(op: Op) -> None:
    """Check the tables of a call where they are constants. Raises Violation."""
    x, tables = operand_type(op.operands[0]), tables_of(op)
    if tables is not None and isinstance(x, TensorType):
        roots, nodes, _, targets, _ = tables
        outputs = dict(op.attr("attrs"))["outputs"][1]
        check_tables(roots, nodes, targets, features if isinstance(features := x.shape[1], int) else 1 << 31, outputs)


def are_sound(op: Op) -> bool:
    """Whether no check of the tables fails that needs no run."""
    try:
        check_constants(op)
    except Violation:
        return False
    return True


def answers(mode: Array, x: Array, split: Array) -> Array:
    """The answers of nodes by their modes."""
    flags = [x <= split, x < split, x >= split, x > split, x == split, x != split]
    return np.select([mode == m for m in (LE, LT, GE, GT, EQ, NE)], flags)


def ensemble(xs: tuple[Array, ...], values: Values, result: TensorType) -> Array:
    """The sum, minimum or maximum of the weights of each target; 0 without any. Raises Violation for unsound tables."""
    x, roots, nodes, *_, targets, _ = xs
    check_tables(roots, nodes, targets, x.shape[1], values["outputs"])
    step = max(_AT_ONCE // max(len(roots), 1), 1)
    parts = [_combined(x[i : i + step], xs[1:], values) for i in range(0, len(x), step)]
    return np.concatenate(parts) if parts else np.zeros((0, values["outputs"]))


def _combined(x: Array, tables: Sequence[Array], values: Values) -> Array:
    roots, nodes, splits, targets, weights = tables
    at = np.broadcast_to(roots, (len(x), len(roots)))
    rows = np.broadcast_to(np.arange(len(x))[:, None], at.shape)
    while (inner := nodes[at, MODE] != LEAF).any():
        here = at[inner]
        mode, feature, yes, no, missing = nodes[here].T
        value = x[rows[inner], feature]
        flag = answers(mode, value, splits[here]) | ((missing != 0) & np.isnan(value))
        at = at.copy()
        at[inner] = np.where(flag, yes, no)
    how = values["aggregate"]
    combine = {"sum": np.add, "min": np.minimum, "max": np.maximum}[how]
    total = np.full((len(x), values["outputs"]), {"sum": 0.0, "min": np.inf, "max": -np.inf}[how])
    given = np.zeros(total.shape, np.bool_)
    first, last = nodes[at, YES], nodes[at, NO]
    for k in range(int((last - first).max(initial=0))):
        some = k < last - first
        entry = first[some] + k
        combine.at(total, (rows[some], targets[entry]), weights[entry])
        given[rows[some], targets[entry]] = True
    return np.where(given, total, 0.0)
