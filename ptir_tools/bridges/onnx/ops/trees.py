"""Ensembles of decision trees (`ai.onnx.ml`). All rows go down all trees, one level at a time."""

from __future__ import annotations

from collections.abc import Sequence

from ptir_tools.bridges.onnx.ops.elementwise import sigmoid
from ptir_tools.bridges.onnx.ops.shape import cut
from ptir_tools.bridges.onnx.table import Node, handles, plus, refused, stretched
from ptir_tools.core.arrays import Array
from ptir_tools.core.dtypes import F32, F64, SI32, SI64
from ptir_tools.core.lazy import np
from ptir_tools.dialects.ptir.builder.build import Tensor
from ptir_tools.dialects.ptir.composites import layers

ML = "ai.onnx.ml"
DEEPEST = 256  # levels; each is a few ops
_COMPARED = {
    "BRANCH_LEQ": "compare_le", "BRANCH_LT": "compare_lt", "BRANCH_GTE": "compare_ge", "BRANCH_GT": "compare_gt",
    "BRANCH_EQ": "compare_eq", "BRANCH_NEQ": "compare_ne",
}  # fmt: skip


def _words(values: Sequence[str | bytes] | None) -> list[str]:
    return [v.decode() if isinstance(v, bytes) else str(v) for v in values or []]


def _word(value: str | bytes) -> str:
    return _words([value])[0]


def leaves(node: Node, x: Tensor) -> tuple[Tensor, dict[tuple[int, int], int]]:
    """The leaf of each row in each tree, [rows, trees], as a node number, and the number of nodes."""
    node.idle("nodes_hitrates", "nodes_hitrates_as_tensor")  # how often a node is reached
    lists = ("nodes_treeids", "nodes_nodeids", "nodes_truenodeids", "nodes_falsenodeids", "nodes_featureids")
    trees, ids, yes, no, features = (list(node.attr(name) or []) for name in lists)
    modes, limits = _words(node.attr("nodes_modes")), np.asarray(node.attr("nodes_values") or [], np.float32)
    if node.attr("nodes_values") is None or not len(trees) == len(ids) == len(yes) == len(no) == len(modes) == len(limits):
        raise refused("trees whose lists of nodes are not alike")
    numbers = {key: i for i, key in enumerate(zip(trees, ids, strict=True))}
    inner = [i for i, mode in enumerate(modes) if mode != "LEAF"]
    if unknown := {modes[i] for i in inner} - _COMPARED.keys():
        raise refused(f"a tree that branches by {min(unknown)}")
    after = {side: np.arange(len(ids)) for side in ("yes", "no")}
    for side, children in (("yes", yes), ("no", no)):
        for i in inner:
            after[side][i] = numbers[trees[i], children[i]]
    targets = {int(after[side][i]) for side in after for i in inner}
    roots = [next(i for i, t in enumerate(trees) if t == tree and i not in targets) for tree in dict.fromkeys(trees)]
    tracked = node.attr("nodes_missing_value_tracks_true")
    return walked(node, x, roots, modes, limits, features, (after["yes"], after["no"]), tracked), numbers


def walked(
    node: Node,
    x: Tensor,
    roots: Sequence[int],
    modes: Sequence[str],
    limits: Array,
    features: Sequence[int],
    after: tuple[Array, Array],
    tracked: Sequence[int] | None,
    members: Array | None = None,
) -> Tensor:
    """The leaf of each row in each tree, [rows, trees]. Every node has a mode, which may be LEAF, a bound, a feature, and the
    nodes after it. `members` has the set of each node, filled up with NaN."""
    level, depth = set(roots), 0
    while level := {int(side[i]) for i in level if modes[i] != "LEAF" for side in after}:
        if (depth := depth + 1) > DEEPEST:
            raise refused(f"a tree of more than {DEEPEST} levels")
    used = sorted({mode for mode in modes if mode != "LEAF"})
    shape = (x.shape[0], len(roots))
    at = stretched(node.constant(np.asarray([roots], np.int64)), shape)
    where = node.constant(np.where([m == "LEAF" for m in modes], 0, features).astype(np.int64))
    bounds = node.constant(limits)
    paths = [node.constant(side.astype(np.int64)) for side in after]

    def compared(mode: str, value: Tensor, bound: Tensor) -> Tensor:
        if mode != "BRANCH_MEMBER":
            return node.op(_COMPARED[mode], value, bound)
        sets = node.constant(members).take(at)
        return sets.compare_eq(value.reshape([*shape, 1])).cast(SI32).reduce_max([2]).compare_ne(0)

    for _ in range(depth):
        value, bound = x.gather(where.take(at), axis=1), bounds.take(at)
        flag = compared(used[0], value, bound)
        for mode in used[1:]:
            here = node.constant(np.asarray([m == mode for m in modes])).take(at)
            flag = here.select(compared(mode, value, bound), flag)
        if tracked and any(tracked):
            missing = value.compare_ne(value)
            marked = node.constant(np.asarray(tracked, np.bool_)).take(at)
            flag = flag.bitwise_or(missing.bitwise_and(marked))
        at = flag.select(*(path.take(at) for path in paths))
    return at


@handles("TreeEnsemble", domain=ML)
def ensemble(node: Node) -> Tensor:
    """TreeEnsemble: the leaf weights of all trees, aggregated per target."""
    node.idle("nodes_hitrates")
    x = node[0]
    yes, no, features, roots = (
        list(node.attr(f"{name}")) for name in ("nodes_truenodeids", "nodes_falsenodeids", "nodes_featureids", "tree_roots")
    )
    leaf = {name: list(node.attr(f"nodes_{name}leafs")) for name in ("true", "false")}
    splits, modes, weights = (node.scope.importer.array(node.attr(k)) for k in ("nodes_splits", "nodes_modes", "leaf_weights"))
    inner, targets = len(yes), list(node.attr("leaf_targetids"))
    own = np.arange(inner, inner + len(targets))
    ends = [np.where(flags, np.asarray(to) + inner, to) for to, flags in ((yes, leaf["true"]), (no, leaf["false"]))]
    named = [(*_COMPARED, "BRANCH_MEMBER")[m] for m in modes] + ["LEAF"] * len(targets)
    limits = np.concatenate([splits, np.zeros(len(targets), splits.dtype)])
    tracked = [*(node.attr("nodes_missing_value_tracks_true") or [0] * inner), *[0] * len(targets)]
    after = (np.concatenate([ends[0], own]), np.concatenate([ends[1], own]))
    members = _members(node, named, splits.dtype)
    at = walked(node, x, roots, named, limits, [*features, *[0] * len(targets)], after, tracked, members)
    how = ("AVERAGE", "SUM", "MIN", "MAX")[node.attr("aggregate_function", 1)]
    none = {"MIN": np.inf, "MAX": -np.inf}.get(how, 0.0)  # a leaf has one target
    table = np.full((inner + len(targets), node.attr("n_targets")), none, weights.dtype)
    table[own, targets] = weights
    y = aggregated(node, node.constant(table).take(at), how, len(roots))
    y = y if not none else y.compare_eq(none).select(0.0, y)
    return transformed(node, y, ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")[node.attr("post_transform", 0)])


def _members(node: Node, modes: Sequence[str], dtype: np.dtype) -> Array | None:
    """The set of each node that asks for one, [nodes, most], filled up with NaN. The file has them in order, NaN after each."""
    if "BRANCH_MEMBER" not in modes:
        return None
    values = node.scope.importer.array(node.attr("membership_values"))
    sets = np.split(values, np.flatnonzero(np.isnan(values)))
    found = iter([part[~np.isnan(part)] for part in sets])
    chosen = [next(found) if mode == "BRANCH_MEMBER" else values[:0] for mode in modes]
    result = np.full((len(modes), max(map(len, chosen))), np.nan, dtype)
    for row, part in zip(result, chosen, strict=True):
        row[: len(part)] = part
    return result


def summed(node: Node, kind: str, count: int) -> tuple[Tensor, list[int], list[float]]:
    """The leaf weights of each row, aggregated per target or class, [rows, count]; the target and the weight of each entry."""
    x = node[0]
    if x.dtype is F64:
        raise refused(f"{node.name} of f64, whose bounds are f32")
    x = x if x.dtype is F32 else x.cast(F32)
    trees, ids = (list(node.attr(f"{kind}_{name}") or []) for name in ("treeids", "nodeids"))
    whose, weights = list(node.attr(f"{kind}_ids") or []), list(node.attr(f"{kind}_weights") or [])
    at, numbers = leaves(node, x)
    table = np.zeros((len(numbers), count), np.float32)
    for tree, leaf, target, weight in zip(trees, ids, whose, weights, strict=True):
        table[numbers[tree, leaf], target] += weight
    how = _word(node.attr("aggregate_function", "SUM"))
    return aggregated(node, node.constant(table).take(at), how, len(set(node.attr("nodes_treeids")))), whose, weights


def aggregated(node: Node, weights: Tensor, how: str, trees: int) -> Tensor:
    """The weights of the leaves of all trees, [rows, trees, targets], as one for each target."""
    reduced = {"SUM": "reduce_sum", "AVERAGE": "reduce_sum", "MIN": "reduce_min", "MAX": "reduce_max"}.get(how)
    if reduced is None:
        raise refused(f"{node.name} that aggregates by {how}")
    y = node.op(reduced, weights, axes=[1])
    return y / float(trees) if how == "AVERAGE" else y


@handles("TreeEnsembleRegressor", domain=ML)
def regressor(node: Node) -> Tensor:
    """TreeEnsembleRegressor: sums of leaf weights."""
    y, _, _ = summed(node, "target", node.attr("n_targets", 1))
    return transformed(node, based(node, y), _word(node.attr("post_transform", "NONE")))


def based(node: Node, y: Tensor) -> Tensor:
    """The sum with the base values."""
    base = node.attr("base_values")
    return plus(y, node.constant(np.asarray([base], np.float32)) if base else None)


def transformed(node: Node, y: Tensor, how: str) -> Tensor:
    """Scores after a transformation."""
    if how not in ("NONE", "SOFTMAX", "LOGISTIC"):
        raise refused(f"{node.name} with the transformation {how}")
    return layers.softmax(y, 1) if how == "SOFTMAX" else sigmoid(y) if how == "LOGISTIC" else y


@handles("TreeEnsembleClassifier", domain=ML)
def classifier(node: Node) -> list[Tensor | None]:
    """TreeEnsembleClassifier: the class of the highest score, and all scores. If one of two classes has all weights, its score
    decides."""
    labels = node.attr("classlabels_int64s")
    if not labels:
        raise refused("TreeEnsembleClassifier with labels that are strings")
    names = node.constant(np.asarray(labels, np.int64))
    y, whose, weights = summed(node, "class", len(labels))
    if len(labels) > 2 or len(set(whose)) > 1:
        y = based(node, y)
        best = names.take(y.argmax(axis=1, output_dtype=SI64)) if node.wants(0) else None
        return [best, transformed(node, y, _word(node.attr("post_transform", "NONE")))]
    if node.attr("base_values") and len(node.attr("base_values")) != 1:
        raise refused("TreeEnsembleClassifier with two base values and weights of one class")
    positive, how = min(weights) >= 0, _word(node.attr("post_transform", "NONE"))
    if whose[0] == 1:  # ONNX Runtime does not transform the other score
        y = based(node, y)
        return [_second(node, names, cut(y, 1, 1, 1), positive), transformed(node, y, how)]
    score = based(node, cut(y, 1, 0, 1))
    if how not in ("NONE", "LOGISTIC") or (positive and how != "NONE"):
        raise refused(f"TreeEnsembleClassifier of two classes with the transformation {how}")
    pair = [1.0 - score if positive else -score, score]
    results = [sigmoid(v) for v in pair] if how == "LOGISTIC" else pair
    return [_second(node, names, score, positive), node.concat(results, axis=1)]


def _second(node: Node, names: Tensor, score: Tensor, positive: bool) -> Tensor | None:
    """The second class if its score is above the middle, else the first."""
    over = (score > (0.5 if positive else 0.0)).reshape([score.shape[0]])
    return names.take(over.cast(SI64)) if node.wants(0) else None
