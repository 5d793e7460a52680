"""Ensembles of decision trees as the operators of `ai.onnx.ml`, with what the reader makes after their sums."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache, partial

from ptir_tools.bridges.onnx.emitter import READY, Emitter
from ptir_tools.bridges.onnx.graph import Out
from ptir_tools.bridges.onnx.idioms import GROUPS
from ptir_tools.bridges.onnx.lowerings import calls
from ptir_tools.bridges.onnx.ops.trees import ML, MODES, TARGET, decided
from ptir_tools.bridges.onnx.protocols import Attribute
from ptir_tools.core import arrays
from ptir_tools.core.arrays import Array
from ptir_tools.core.dtypes import F32, SI64
from ptir_tools.core.ir import Op, Operand, Region, Value
from ptir_tools.core.lazy import np
from ptir_tools.core.records import NamedTuple
from ptir_tools.core.types import TensorType, tensor
from ptir_tools.dialects.ptir.builder.build import Graph
from ptir_tools.dialects.ptir.kernels.targets import values_of
from ptir_tools.dialects.ptir.kernels.targets.trees import FEATURE, LEAF, MISSING, MODE, NO, YES, are_sound, each, tables_of
from ptir_tools.passes import PassContext, run_pipeline
from ptir_tools.rewrite.constants import literal_of, scalar_of
from ptir_tools.rewrite.templates import matched
from ptir_tools.rewrite.vocabulary import made_by

_NAMES = {code: name for name, code in MODES.items()}
_READY = READY.format("")
_PIPELINES = (_READY, f"canonicalize,cse,dce,{_READY}")  # of a program as it was read, and of an optimized one
TRANSFORMS = ("SOFTMAX", "LOGISTIC", "NONE")  # the last one always fits


class Trees(NamedTuple):
    """The tables of a call, and the tree of each node."""

    roots: Array
    nodes: Array
    splits: Array
    targets: Array
    weights: Array
    trees: Array
    outputs: int
    aggregate: str


def found(op: Op) -> Trees | None:
    """The trees of a call, if an operator has them: constants, each node in one tree, and a weight in each leaf whose lack would
    change a minimum or maximum."""
    tables = tables_of(op) if op.attr("target") == TARGET and are_sound(op) else None
    if tables is None or not all(a.size for a in tables):
        return None
    roots, nodes, splits, targets, weights = tables
    tree = np.full(len(nodes), -1)
    level, own, owner = roots, np.arange(len(roots)), np.full(len(nodes), -1)
    while level.size:
        earlier = tree[level]
        tree[level] = own
        if np.any((tree[level] != own) | ((earlier >= 0) & (earlier != own))):
            return None
        inner = nodes[level, MODE] != LEAF
        after, own = nodes[level[inner]][:, [YES, NO]].T.reshape(-1), np.tile(own[inner], 2)
        owner[after] = own
        if np.any(owner[after] != own):
            return None
        level = each(after, len(nodes))
        own = owner[level]
    values = values_of(TARGET, op.attr("attrs"))
    leaf = (nodes[:, MODE] == LEAF) & (tree >= 0)
    if values["aggregate"] != "sum" and np.any((nodes[:, NO] == nodes[:, YES])[leaf]):
        return None
    return Trees(roots, nodes, splits, targets, weights, tree, values["outputs"], values["aggregate"])


def _fits(op: Op, opset: int) -> bool:
    t = op.result.type
    return isinstance(t, TensorType) and t.dtype is F32 and found(op) is not None


@calls(TARGET, _fits)
def _regressor(e: Emitter, op: Op, values: dict[str, Attribute], x: Out, *tables: Out) -> Out:
    trees = found(op)
    assert trees is not None
    return _node(e, op, trees, {"aggregate_function": trees.aggregate.upper()})


def _node(e: Emitter, op: Op, trees: Trees, more: dict[str, Attribute]) -> Out:
    """The regressor with these attributes."""
    lists = _lists(trees, "target") | more | {"n_targets": trees.outputs}
    (y,) = e.node("TreeEnsembleRegressor", [e.tensor(op.operands[0])], [_plain(op)], domain=ML, **lists)
    return y


def _plain(op: Op) -> TensorType:
    assert isinstance(op.result.type, TensorType)
    return op.result.type


def _lists(trees: Trees, kind: str) -> dict[str, Attribute]:
    """The attributes of nodes and of weights, which are called `kind`."""
    order = np.lexsort((np.arange(len(trees.nodes)), trees.trees))
    order = order[trees.trees[order] >= 0]
    nodes, own = trees.nodes[order], trees.trees[order]
    leaf = nodes[:, MODE] == LEAF
    lists: dict[str, Attribute] = {
        "nodes_treeids": own.tolist(),
        "nodes_nodeids": order.tolist(),
        "nodes_featureids": np.where(leaf, 0, nodes[:, FEATURE]).tolist(),
        "nodes_values": np.where(leaf, 0, trees.splits[order]).tolist(),
        "nodes_modes": [_NAMES[m] for m in nodes[:, MODE].tolist()],
        "nodes_truenodeids": np.where(leaf, 0, nodes[:, YES]).tolist(),
        "nodes_falsenodeids": np.where(leaf, 0, nodes[:, NO]).tolist(),
    }
    if np.any(nodes[~leaf, MISSING]):
        lists["nodes_missing_value_tracks_true"] = np.where(leaf, 0, nodes[:, MISSING] != 0).astype(np.int64).tolist()
    first, last = nodes[leaf, YES], nodes[leaf, NO]
    counts = last - first
    entries = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts) + np.repeat(first, counts)
    leaves, targets, weights = np.repeat(order[leaf], counts), trees.targets[entries], trees.weights[entries]
    if trees.aggregate == "sum" and (kind == "target" or trees.outputs > 2):
        lacking = _lacking(trees, order[leaf], leaves, targets)
        leaves, targets = (np.concatenate(pair) for pair in zip((leaves, targets), lacking.T, strict=True))
        weights = np.concatenate([weights, np.zeros(len(lacking), weights.dtype)])
    columns = {"treeids": trees.trees[leaves], "nodeids": leaves, "ids": targets, "weights": weights}
    return lists | {f"{kind}_{name}": column.tolist() for name, column in columns.items()}


def _lacking(trees: Trees, every: Array, leaves: Array, targets: Array) -> Array:
    """Leaves and targets that get a weight of 0. Each leaf needs one. ONNX Runtime adds no base value to a target without any, so
    the leaves of the first tree have all targets."""
    first, n = every[trees.trees[every] == 0], trees.outputs
    wanted = (first[:, None] * n + np.arange(n)).reshape(-1)
    wanted = wanted[~np.isin(wanted, leaves * n + targets)]
    has = np.zeros(len(trees.nodes), np.bool_)
    has[leaves] = has[wanted // n] = True
    empty = every[~has[every]]
    return np.stack([np.concatenate([wanted // n, empty]), np.concatenate([wanted % n, np.zeros_like(empty)])], 1)


# ---- with what comes after the sums


def _ending(e: Emitter, op: Op, block: Region) -> None:
    """A regressor with an average and base values, or a classifier."""
    trees = found(op) if e.as_onnx and op.attr("target") == TARGET and _fits(op, e.opset) else None
    if trees is None:
        return
    y, how, attrs = op.result, trees.aggregate.upper(), dict[str, Attribute]()
    users = [user for user in block.body if y in user.operands]
    if how == "SUM" and e.reads[y] == 1 and users and users[0].defn.short == "div" and _is_count(users[0].operands[1], trees):
        y, how = users[0].result, "AVERAGE"
        users = [user for user in block.body if y in user.operands]
    bases = None
    if e.reads[y] == 1 and users and users[0].defn.short == "add":
        a, b = users[0].operands
        bases = _base(b if a is y else a, trees.outputs)
        if bases is not None and how in ("SUM", "AVERAGE"):
            y, attrs["base_values"] = users[0].result, bases.tolist()
    attrs["aggregate_function"] = how
    equal = bases is None or np.ptp(bases) == 0
    if how == "SUM" and (classes := _classifier(trees, y, block, bases is not None, equal)) is not None:
        label, scores, names, transform, only = classes
        if only >= 0 and bases is not None:  # one number, which is for the class with weights
            attrs["base_values"] = bases[:1].tolist()
        attrs |= {"post_transform": transform, "classlabels_int64s": names}
        del attrs["aggregate_function"]
        outs: list[Out] = []

        def made(k: int) -> Out:
            if not outs:
                lists = _lists(trees, "class") | attrs
                types = [tensor(SI64, _plain(op).shape[:1]), tensor(F32, _plain(op).shape)]
                outs.extend(e.node("TreeEnsembleClassifier", [e.tensor(op.operands[0])], types, domain=ML, **lists))
            return outs[k]

        e.parts[label], e.parts[scores] = partial(made, 0), partial(made, 1)
    elif y is not op.result:
        e.parts[y] = partial(_node, e, op, trees, attrs)


GROUPS.setdefault("ptir.custom_call", []).append(_ending)


def _is_count(x: Operand, trees: Trees) -> bool:
    return bool(scalar_of(x) == len(trees.roots))


def _base(x: Operand, outputs: int) -> Array | None:
    """Base values: a constant for each target."""
    while (op := made_by(x, "broadcast_to", "reshape")) is not None:
        x = op.operands[0]
    if (literal := literal_of(x)) is None or literal.data is None:
        return None
    array = arrays.from_literal(literal).reshape(-1)
    return np.broadcast_to(array, (outputs,)) if array.size in (1, outputs) else None


Template = tuple[list[Value], Sequence[Operand]]


@cache
def _templates(t: TensorType, only: int, positive: bool, transform: str, named: bool) -> list[Template]:
    """The parameters, and the label and the scores, of a classifier as the reader makes it."""
    made = list[Template]()
    for pipeline in _PIPELINES:
        graph = Graph("classes")
        y = graph.input("y", t.dtype, t.shape)
        names = graph.input("names", "si64", (t.shape[1],)) if named else None
        program = graph.returns(*decided(y, names, only, positive, transform))
        run_pipeline(program, pipeline, PassContext(verify_each=False))
        made.append((program.main.params, program.main.results))
    return made


def _forms(trees: Trees, t: TensorType, only: int) -> Iterator[tuple[str, list[Value], Sequence[Operand]]]:
    positive = bool((trees.weights >= 0).all())
    for transform in TRANSFORMS:
        for named in (True, False):
            if only != 0 or transform == "NONE" or (transform == "LOGISTIC" and not positive):
                for params, results in _templates(t, only, positive, transform, named):
                    yield transform, params, results


def _classifier(
    trees: Trees, y: Value, block: Region, based: bool, equal: bool
) -> tuple[Value, Value, list[int], str, int] | None:
    """The label and the scores that the sums `y` become, the labels of the classes, the transformation, and the only class that
    has weights, or -1. There must be one base value (`equal`) for two classes of which one has weights."""
    if not isinstance(y.type, TensorType) or trees.outputs < 2:
        return None
    t, whose = y.type, {*trees.targets.tolist()}
    only = whose.pop() if trees.outputs == 2 and len(whose) == 1 else -1
    leaf = (trees.nodes[:, MODE] == LEAF) & (trees.trees >= 0)
    empty = bool(np.any((trees.nodes[:, NO] == trees.nodes[:, YES])[leaf]))
    # Of two classes ONNX Runtime chooses the second if its score is above 0, and a single base value is for the first.
    able = (equal, not based)[only] and not empty if only >= 0 else trees.outputs > 2
    labels = [op.result for op in block.body if op.result.type is tensor(SI64, t.shape[:1])]
    scores = [y, *(op.result for op in block.body if op.result.type is t and op.result is not y)]
    for transform, params, (label, score) in _forms(trees, t, only) if labels and able else ():
        for found_label in labels:
            bound = matched(label, found_label, params)
            if bound is None or bound.get(params[0]) is not y:
                continue
            for found_score in scores:
                if found_score is not y and (params[0] is score or matched(score, found_score, params, bound) is None):
                    continue
                if found_score is y and params[0] is not score:
                    continue
                names = bound.get(params[1]) if len(params) > 1 else None
                numbers = _labels(names) if len(params) > 1 else [*range(trees.outputs)]
                if numbers is not None:
                    return found_label, found_score, numbers, transform, only
    return None


def _labels(x: Operand | None) -> list[int] | None:
    literal = literal_of(x) if x is not None else None
    return [int(n) for n in arrays.from_literal(literal)] if literal is not None and literal.data is not None else None
