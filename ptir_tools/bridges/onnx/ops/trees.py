"""Ensembles of decision trees (`ai.onnx.ml`): one custom call, and ops on the sums."""

from __future__ import annotations

from ptir_tools.bridges.onnx.ops.elementwise import sigmoid
from ptir_tools.bridges.onnx.ops.shape import cut
from ptir_tools.bridges.onnx.table import Node, handles, plus, refused
from ptir_tools.core.arrays import Array
from ptir_tools.core.dtypes import F32, F64, SI64
from ptir_tools.core.lazy import np
from ptir_tools.core.records import NamedTuple
from ptir_tools.core.violations import Violation
from ptir_tools.dialects.ptir.builder.build import Tensor
from ptir_tools.dialects.ptir.composites import layers
from ptir_tools.dialects.ptir.kernels.targets.trees import EQ, GE, GT, LE, LEAF, LT, NE, each

ML = "ai.onnx.ml"
TARGET = "ptir.tree_ensemble.v1"
MODES = {
    "BRANCH_LEQ": LE, "BRANCH_LT": LT, "BRANCH_GTE": GE, "BRANCH_GT": GT, "BRANCH_EQ": EQ, "BRANCH_NEQ": NE, "LEAF": LEAF,
}  # fmt: skip
_MEMBER = len(MODES)


class Forest(NamedTuple):
    """Nodes in any order. Entry i adds `weights[i]` to `targets[i]` at the leaf `owners[i]`."""

    roots: Array
    modes: Array
    features: Array
    children: Array  # [2, nodes]: of yes and no
    missing: Array
    splits: Array
    owners: Array
    targets: Array
    weights: Array

    def tables(self) -> tuple[Array, Array, Array, Array, Array]:
        """The tables of the custom call: the nodes that a walk may reach, children after parents, tree by tree."""
        count = len(self.modes)
        inner = self.modes != LEAF
        depth, tree = np.full(count, -1), np.zeros(count, np.int64)
        tree[self.roots] = np.arange(len(self.roots))
        level, steps = self.roots, 0
        while level.size:
            depth[level] = steps
            if (steps := steps + 1) > count:
                raise Violation("InvalidModel", "a walk down a tree does not end")
            further = level[inner[level]]
            after = self.children[:, further].reshape(-1)
            tree[after] = np.tile(tree[further], 2)
            level = each(after, count)
        order = np.lexsort((np.arange(count), depth, tree))
        order = order[depth[order] >= 0]
        number = np.zeros(count, np.int64)
        number[order] = np.arange(len(order))
        if np.any((number[self.children] <= number)[:, inner & (depth >= 0)]):  # a node is in several trees
            order = order[np.argsort(depth[order], kind="stable")]
            number[order] = np.arange(len(order))
        kept = (depth[self.owners] >= 0) & ~inner[self.owners]
        entries = np.flatnonzero(kept)[np.argsort(number[self.owners[kept]], kind="stable")]
        edges = np.searchsorted(number[self.owners[entries]], np.arange(len(order) + 1))
        yes = np.where(inner[order], number[self.children[0, order]], edges[:-1])
        no = np.where(inner[order], number[self.children[1, order]], edges[1:])
        columns = (self.modes[order], np.where(inner, self.features, 0)[order], yes, no, np.where(inner, self.missing, 0)[order])
        nodes = np.ascontiguousarray(np.stack(columns, 1), np.int32)
        splits = np.where(inner, self.splits, 0)[order].astype(self.splits.dtype)
        return number[self.roots].astype(np.int32), nodes, splits, self.targets[entries].astype(np.int32), self.weights[entries]


def combined(node: Node, x: Tensor, forest: Forest, outputs: int, how: str) -> Tensor:
    """The weights of the leaves of all trees as one for each target, [rows, outputs]."""
    aggregate = {"SUM": "sum", "AVERAGE": "sum", "MIN": "min", "MAX": "max"}.get(how)
    if aggregate is None:
        raise refused(f"{node.name} that aggregates by {how}")
    attrs = (("aggregate", ("String", aggregate)), ("outputs", ("I64", outputs)))
    y = node.op("custom_call", [x, *map(node.constant, forest.tables())], target=TARGET, attrs=attrs)
    return y / float(len(forest.roots)) if how == "AVERAGE" else y


def _integers(node: Node, name: str) -> Array:
    return np.asarray(node.attr(name) or [], np.int64)


def _numbers(node: Node, name: str) -> Array | None:
    """Numbers in f32, or of an attribute that is a tensor."""
    whole = node.attr(f"{name}_as_tensor")
    if whole is not None:
        found: Array = node.scope.importer.stored.array(whole).reshape(-1)
        return found
    values = node.attr(name)
    return np.asarray(values, np.float32) if values is not None else None


def grown(node: Node, kind: str) -> Forest:
    """The trees of an operator of set 3, whose entries are called `kind`."""
    node.idle("nodes_hitrates", "nodes_hitrates_as_tensor")  # how often a node is reached
    trees, ids, yes, no, features = (
        _integers(node, f"nodes_{name}") for name in ("treeids", "nodeids", "truenodeids", "falsenodeids", "featureids")
    )
    words, splits = [*(node.attr("nodes_modes") or [])], _numbers(node, "nodes_values")
    if splits is None or len({len(a) for a in (trees, ids, yes, no, features, words, splits)}) != 1:
        raise refused("trees whose lists of nodes are not alike")
    if unknown := set(words) - MODES.keys():
        raise refused(f"a tree that branches by {min(unknown)}")
    modes = np.asarray([MODES[w] for w in words], np.int64)
    names, first = np.unique(trees, return_index=True)
    low, span = (int(ids.min()), int(np.ptp(ids)) + 1) if len(ids) else (0, 1)

    def places(trees: Array, ids: Array, what: str) -> Array:
        wanted = np.searchsorted(names, trees) * span + ids - low
        at = np.minimum(np.searchsorted(keys[order], wanted), len(keys) - 1)
        found = order[at] if len(keys) else np.zeros(len(wanted), np.int64)
        if np.any((keys[found] != wanted) | (trees != names[np.minimum(np.searchsorted(names, trees), len(names) - 1)])):
            raise Violation("InvalidModel", f"{what} is a node that its tree does not have")
        return found

    keys = np.searchsorted(names, trees) * span + ids - low
    order = np.argsort(keys, kind="stable")
    inner = modes != LEAF
    children = np.tile(np.arange(len(ids)), (2, 1))
    for side, numbers in enumerate((yes, no)):
        children[side, inner] = places(trees[inner], numbers[inner], "a child")
    is_child = np.zeros(len(ids), np.bool_)
    is_child[children[:, inner]] = True
    tops = np.flatnonzero(~is_child)
    chosen, at = np.unique(trees[tops], return_index=True)
    if len(chosen) != len(names):
        raise Violation("InvalidModel", "a tree has no root")
    tracked = _integers(node, "nodes_missing_value_tracks_true")
    owners = places(_integers(node, f"{kind}_treeids"), _integers(node, f"{kind}_nodeids"), "a leaf")
    weights = _numbers(node, f"{kind}_weights")
    if weights is None or not len(owners) == len(weights) == len(targets := _integers(node, f"{kind}_ids")):
        raise refused("trees whose lists of weights are not alike")
    return Forest(
        tops[at][np.argsort(first)],
        modes,
        features,
        children,
        tracked if len(tracked) else np.zeros(len(ids), np.int64),
        splits,
        owners,
        targets,
        weights,
    )


def summed(node: Node, kind: str, count: int) -> tuple[Tensor, Forest]:
    """The leaf weights of each row, aggregated per target or class, [rows, count]; and the trees."""
    x, forest = node[0], grown(node, kind)
    wide = forest.splits.dtype == np.float64
    if x.dtype is F64 and not wide:
        raise refused(f"{node.name} of f64, whose bounds are f32")
    dtype = F64 if wide else F32
    x = x if x.dtype is dtype else x.cast(dtype)
    forest = forest._replace(weights=forest.weights.astype(forest.splits.dtype))
    return combined(node, x, forest, count, node.attr("aggregate_function", "SUM")), forest


@handles("TreeEnsemble", domain=ML)
def ensemble(node: Node) -> Tensor:
    """TreeEnsemble: the leaf weights of all trees, aggregated per target."""
    node.idle("nodes_hitrates")
    yes, no, features = (_integers(node, f"nodes_{name}") for name in ("truenodeids", "falsenodeids", "featureids"))
    ends = (_integers(node, "nodes_trueleafs"), _integers(node, "nodes_falseleafs"))
    splits, modes, weights = (
        node.scope.importer.stored.array(node.attr(k)) for k in ("nodes_splits", "nodes_modes", "leaf_weights")
    )
    inner, targets = len(yes), _integers(node, "leaf_targetids")
    tracked = _integers(node, "nodes_missing_value_tracks_true")
    children = np.stack([np.where(leaf, to + inner, to) for to, leaf in zip((yes, no), ends, strict=True)])
    own = np.arange(inner, inner + len(targets))
    forest = Forest(
        _integers(node, "tree_roots"),
        np.concatenate([np.asarray([*MODES.values(), _MEMBER])[[*range(6), 7]][modes], np.full(len(own), LEAF)]),
        np.concatenate([features, np.zeros(len(own), np.int64)]),
        np.concatenate([children, [own, own]], 1),
        np.concatenate([tracked if len(tracked) else np.zeros(inner, np.int64), np.zeros(len(own), np.int64)]),
        np.concatenate([splits, np.zeros(len(own), splits.dtype)]),
        own,
        targets,
        weights,
    )
    if np.any(forest.modes == _MEMBER):
        forest = _asked(forest, node.scope.importer.stored.array(node.attr("membership_values")))
    how = ("AVERAGE", "SUM", "MIN", "MAX")[node.attr("aggregate_function", 1)]
    y = combined(node, node[0], forest, node.attr("n_targets"), how)
    return transformed(y, ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")[node.attr("post_transform", 0)])


def _asked(forest: Forest, values: Array) -> Forest:
    """Nodes that ask for a set ask for one number after the other. The file has the sets in order, NaN after each."""
    sets = iter([part[~np.isnan(part)] for part in np.split(values, np.flatnonzero(np.isnan(values)))])
    fields = [a.T.tolist() for a in (forest.modes, forest.features, forest.children, forest.missing)]
    modes, features, children, missing = fields
    splits = [*forest.splits]
    for i in np.flatnonzero(forest.modes == _MEMBER).tolist():
        numbers, at = next(sets), i
        modes[i], splits[i] = EQ, numbers[0] if len(numbers) else np.nan  # a number equal to NaN is in no set
        for number in numbers[1:]:
            modes.append(EQ)
            features.append(features[i])
            children.append(children[at])
            missing.append(missing[i])
            splits.append(number)
            children[at] = [children[at][0], len(modes) - 1]
            at = len(modes) - 1
    return forest._replace(
        modes=np.asarray(modes, np.int64),
        features=np.asarray(features, np.int64),
        children=np.asarray(children, np.int64).T,
        missing=np.asarray(missing, np.int64),
        splits=np.asarray(splits, forest.splits.dtype),
    )


@handles("TreeEnsembleRegressor", domain=ML)
def regressor(node: Node) -> Tensor:
    """TreeEnsembleRegressor: sums of leaf weights."""
    y, _ = summed(node, "target", node.attr("n_targets", 1))
    return narrow(transformed(based(node, y), node.attr("post_transform", "NONE")))


def narrow(x: Tensor) -> Tensor:
    """`x` in f32."""
    return x if x.dtype is F32 else x.cast(F32)


def based(node: Node, y: Tensor) -> Tensor:
    """The sum with the base values."""
    base = _numbers(node, "base_values")
    if base is None or not base.size:
        return y
    return plus(y, node.constant(base.reshape(1, -1).astype(np.float64 if y.dtype is F64 else np.float32)))


def transformed(y: Tensor, how: str) -> Tensor:
    """Scores after a transformation."""
    if how not in ("NONE", "SOFTMAX", "LOGISTIC"):
        raise refused(f"trees with the transformation {how}")
    return layers.softmax(y, 1) if how == "SOFTMAX" else sigmoid(y) if how == "LOGISTIC" else y


@handles("TreeEnsembleClassifier", domain=ML)
def classifier(node: Node) -> list[Tensor | None]:
    """TreeEnsembleClassifier: the class of the highest score, and all scores. If one of two classes has all weights, its score
    decides."""
    labels = node.attr("classlabels_int64s")
    if not labels:
        raise refused("TreeEnsembleClassifier with labels that are strings")
    y, forest = summed(node, "class", len(labels))
    whose, how = {*forest.targets.tolist()}, node.attr("post_transform", "NONE")
    only = whose.pop() if len(labels) == 2 and len(whose) == 1 else -1
    positive = bool((forest.weights >= 0).all())
    base = _numbers(node, "base_values")
    if only >= 0 and base is not None and base.size > 1:
        raise refused("TreeEnsembleClassifier with two base values and weights of one class")
    if only == 0 and (how not in ("NONE", "LOGISTIC") or (positive and how != "NONE")):
        raise refused(f"TreeEnsembleClassifier of two classes with the transformation {how}")
    names = None if [*labels] == [*range(len(labels))] else node.constant(np.asarray(labels, np.int64))
    label, scores = decided(based(node, y), names, only, positive, how)
    return [label if node.wants(0) else None, narrow(scores)]


def decided(y: Tensor, names: Tensor | None, only: int, positive: bool, how: str) -> tuple[Tensor, Tensor]:
    """The labels and the scores of sums [rows, classes]. `names` are the labels, if they are not the places. With `only` = 0 or
    1 there are two classes, and this one has all weights, which are `positive` or not."""
    scores = None if only == 0 else transformed(y, how)
    if only < 0:
        at = y.argmax(axis=1, output_dtype=SI64)
    else:
        score = cut(y, 1, only, 1)
        at = (score > (0.5 if positive else 0.0)).reshape([y.shape[0]]).cast(SI64)
        if scores is None:  # ONNX Runtime transforms the other score here only
            pair = [1.0 - score if positive else -score, score]
            scores = y.block.op("concat", [sigmoid(v) for v in pair] if how == "LOGISTIC" else pair, axis=1)
    assert scores is not None
    return at if names is None else names.take(at), scores
