"""Ensembles of decision trees: the walk of rows down all trees in one kernel."""

from __future__ import annotations

from collections.abc import Sequence

from ptir_tools.core.arrays import Array
from ptir_tools.core.evaluate import Data
from ptir_tools.core.ir import Op
from ptir_tools.core.lazy import np
from ptir_tools.dialects.ptir.kernels.targets import values_of
from ptir_tools.dialects.ptir.kernels.targets.trees import (
    EQ,
    FEATURE,
    GE,
    GT,
    LEAF,
    LT,
    MISSING,
    MODE,
    NE,
    NO,
    YES,
    are_sound,
    tables_of,
)
from ptir_tools.engines.native import threads
from ptir_tools.engines.native.library import kernels
from ptir_tools.engines.numpy.steps import Step, Workshop, declared, dense
from ptir_tools.engines.thresholds import at

EQUAL, NAN = 1 << 30, 1 << 29  # of `trees.h`
WALKS = 8  # of `trees.c`
COST = 16  # element operations of a walk


def ensemble(op: Op, ins: Sequence[Data], outs: Sequence[Array], shop: Workshop) -> list[Step]:
    """The steps of a call of `ptir.tree_ensemble.v1` by constant trees, cut by rows for the threads; others by the body, which
    reports tables that are not sound."""
    x, (out,), tables = ins[0], outs, tables_of(op)
    how = values_of(op.attr("target"), op.attr("attrs"))["aggregate"]
    if tables is None or not are_sound(op) or 0 in (*x.shape, *map(len, tables)):
        return declared(op, ins, outs, shop)
    if how != "sum" and np.isnan(tables[-1]).any():
        return declared(op, ins, outs, shop)
    roots, nodes, splits, targets, weights = map(np.ascontiguousarray, tables)  # equal elements are stored once
    key = (op, "trees")
    made = shop.kept((*key, "nodes"), lambda: packed(nodes, splits))
    entries = shop.kept((*key, "leaves"), lambda: leaves_of(nodes))
    steps: list[Step] = []
    source = dense(x, shop, steps)
    kind = {"sum": kernels().SUM, "min": kernels().MIN, "max": kernels().MAX}[how]
    work = COST * len(x) * len(roots)
    pieces = threads.cuts(len(x), 2 * shop.threads if shop.threads > 1 and work >= at.work else 1, WALKS)
    parts: list[Step] = [(kernels().trees, (out[s], source[s], made, roots, entries, targets, weights, kind)) for s in pieces]
    return [*steps, *threads.together(parts, shop.threads)]


def packed(nodes: Array, splits: Array) -> Array:
    """The nodes as the kernel reads them: whether a feature is at most, or equal to, a split. A bound that a feature is below is
    the next smaller number; `>` and `>=` are the opposite answer, except for a NaN."""
    mode, missing, own = nodes[:, MODE], nodes[:, MISSING] != 0, np.arange(len(nodes))
    leaf, equal, never = mode == LEAF, (mode == EQ) | (mode == NE), np.isnan(splits)
    below = np.where(np.isneginf(splits), np.nan, np.nextafter(splits, splits.dtype.type(-np.inf)))
    bounds = np.where((mode == LT) | ((mode == GE) & ~never), below, splits)
    turned = (mode == NE) | (((mode == GE) | (mode == GT)) & ~never)
    to_yes = (missing != turned) & (mode != NE)
    flags = np.where(equal, EQUAL, 0) | np.where(to_yes, NAN, 0)
    yes, no = (np.where(turned, nodes[:, a], nodes[:, b]) for a, b in ((NO, YES), (YES, NO)))
    wide = splits.itemsize // 4
    result = np.zeros((len(nodes), 4 if wide == 1 else 6), np.int32)
    result[:, :wide] = np.where(leaf, 0, bounds).astype(splits.dtype).view(np.int32).reshape(-1, wide)
    result[:, wide] = np.where(leaf, 0, nodes[:, FEATURE] | flags)
    result[:, wide + 1], result[:, wide + 2] = np.where(leaf, own, yes), np.where(leaf, own, no)
    return result


def leaves_of(nodes: Array) -> Array:
    """The first entry of each node and the one after its last."""
    return np.ascontiguousarray(np.where(nodes[:, [MODE]] == LEAF, nodes[:, [YES, NO]], 0), np.int32)
