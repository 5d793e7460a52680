"""Ensembles of decision trees in ops: all rows go down all trees, one level at a time."""

from __future__ import annotations

from ptir_tools.core import arrays
from ptir_tools.core.arrays import Array
from ptir_tools.core.ir import Op
from ptir_tools.core.lazy import np
from ptir_tools.core.types import tensor
from ptir_tools.dialects.ptir.builder.build import Tensor
from ptir_tools.dialects.ptir.builder.site import Site
from ptir_tools.dialects.ptir.kernels.targets import Values, values_of
from ptir_tools.dialects.ptir.kernels.targets.trees import (
    EQ,
    FEATURE,
    GE,
    GT,
    LE,
    LEAF,
    LT,
    MISSING,
    MODE,
    NE,
    NO,
    YES,
    are_sound,
    each,
    tables_of,
)
from ptir_tools.dialects.ptir.ops.numerics import dtype_of

TARGET = "ptir.tree_ensemble.v1"
DEEPEST = 256  # levels; each is a few ops
_COMPARED = {
    LE: "compare_le", LT: "compare_lt", GE: "compare_ge", GT: "compare_gt", EQ: "compare_eq", NE: "compare_ne",
}  # fmt: skip


def depth(roots: Array, nodes: Array) -> int:
    """The most nodes that a walk asks."""
    level, count = roots, 0
    while (level := level[nodes[level, MODE] != LEAF]).size:
        level, count = each(nodes[level][:, [YES, NO]], len(nodes)), count + 1
    return count


def expandable(op: Op) -> bool:
    """Whether the tables are known and sound, and no tree is too deep."""
    return are_sound(op) and (tables := tables_of(op)) is not None and depth(*tables[:2]) <= DEEPEST


def call(site: Site, *operands: Tensor) -> Tensor | None:
    """The result of a custom call of trees; None for others."""
    op = site.root
    if op.attr("target") != TARGET or not expandable(op):
        return None
    return ensemble(site, operands[0], values_of(TARGET, op.attr("attrs")))


def ensemble(call: Site, x: Tensor, values: Values) -> Tensor:
    """The result of the call."""
    tables = tables_of(call.root)
    assert tables is not None
    roots, nodes, splits, targets, weights = tables
    leaf, own = nodes[:, MODE] == LEAF, np.arange(len(nodes))

    def constant(a: Array) -> Tensor:
        return call(call.rw.materialize_constant(call.root, arrays.to_literal(a, tensor(dtype_of(a), a.shape))))

    used = [m for m in _COMPARED if (nodes[:, MODE] == m).any()]
    features = constant(np.where(leaf, 0, nodes[:, FEATURE]).astype(np.int32))
    bounds = constant(splits.astype(arrays.numpy_dtype(x.dtype)))
    paths = [constant(np.where(leaf, own, nodes[:, side]).astype(np.int32)) for side in (YES, NO)]
    at = constant(roots.astype(np.int32)).broadcast_to((x.shape[0], len(roots)))
    for _ in range(depth(roots, nodes)):
        value, bound = x.gather(features.take(at), axis=1), bounds.take(at)
        flag = call.op(_COMPARED[used[0]], value, bound)
        for mode in used[1:]:
            flag = constant(nodes[:, MODE] == mode).take(at).select(call.op(_COMPARED[mode], value, bound), flag)
        if nodes[~leaf, MISSING].any():
            flag = flag.bitwise_or(value.compare_ne(value).bitwise_and(constant(nodes[:, MISSING] != 0).take(at)))
        at = flag.select(*(path.take(at) for path in paths))
    how, outputs = values["aggregate"], values["outputs"]
    none = {"sum": 0.0, "min": np.inf, "max": -np.inf}[how]
    table = np.full((len(nodes), outputs), none, np.float64)
    counts = np.where(leaf, nodes[:, NO] - nodes[:, YES], 0)
    for k in range(int(counts.max(initial=0))):
        rows = np.flatnonzero(counts > k)
        entry = nodes[rows, YES] + k
        combine = {"sum": np.add, "min": np.minimum, "max": np.maximum}[how]
        combine.at(table, (rows, targets[entry]), weights[entry].astype(np.float64))
    reached = constant(table.astype(arrays.numpy_dtype(x.dtype))).take(at)
    total = call.op(f"reduce_{how}", reached, axes=(1,))
    if how == "sum":
        return total
    given = np.zeros(table.shape, np.int32)
    for k in range(int(counts.max(initial=0))):
        rows = np.flatnonzero(counts > k)
        given[rows, targets[nodes[rows, YES] + k]] = 1
    if given[leaf].all():
        return total
    return constant(given).take(at).reduce_max([1]).compare_ne(0).select(total, 0.0)
