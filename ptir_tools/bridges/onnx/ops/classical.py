"""Operators of classical machine learning (`ai.onnx.ml`), except trees: scaling, linear models, missing values, features."""

from __future__ import annotations

from ptir_tools.bridges.onnx.ops.elementwise import sigmoid
from ptir_tools.bridges.onnx.ops.matrix import matmul
from ptir_tools.bridges.onnx.ops.trees import ML, narrow, transformed
from ptir_tools.bridges.onnx.table import Node, handles, refused
from ptir_tools.core.arrays import Array
from ptir_tools.core.dtypes import SI64
from ptir_tools.core.lazy import np
from ptir_tools.core.violations import Violation
from ptir_tools.dialects.ptir.builder.build import Tensor


def _each(node: Node, name: str, x: Tensor) -> Array:
    """An attribute of one number for all features of `x`, or one for each. Raises Violation."""
    found: Array = np.asarray(node.attr(name, []), np.float32)
    if found.size != 1 and (not x.rank or x.shape[-1] != found.size):
        raise Violation("InvalidModel", f"`{name}` of {node.name} has {found.size} numbers, and the operand is {x.type}")
    return found


@handles("Scaler", domain=ML)
def scaler(node: Node) -> Tensor:
    """Scaler: (x - offset) * scale."""
    x = node[0]
    offset, scale = (node.constant(_each(node, name, x)) for name in ("offset", "scale"))
    return (narrow(x) - offset) * scale


@handles("Normalizer", domain=ML)
def normalizer(node: Node) -> Tensor:
    """Normalizer: rows divided by their largest element, the sum of magnitudes, or the root of the sum of squares; a row for
    which this is 0 stays."""
    x, norm = narrow(node[0]), node.choice("norm", ("MAX", "L1", "L2"))
    last = [x.rank - 1]
    if norm == "MAX":
        size = x.reduce_max(last, keepdims=True)
    else:
        size = (x.abs() if norm == "L1" else x * x).reduce_sum(last, keepdims=True)
    return x / (size.compare_eq(0.0)).select(1.0, size.sqrt() if norm == "L2" else size)


@handles("Binarizer", domain=ML)
def binarizer(node: Node) -> Tensor:
    """Binarizer: 1 above the threshold, else 0."""
    x = node[0]
    return (x > node.constant(np.float32(node.attr("threshold", 0.0)), x.dtype)).cast(x.dtype)


_REPLACEMENTS = ("imputed_value_floats", "replaced_value_float", "imputed_value_int64s", "replaced_value_int64")


@handles("Imputer", domain=ML)
def imputer(node: Node) -> Tensor:
    """Imputer: elements that are equal to one value, or not a number, are replaced."""
    x = node[0]
    kind, values = ("float", "floats") if x.dtype.is_float else ("int64", "int64s")
    node.idle(*_REPLACEMENTS)
    new: Array = np.asarray(node.attr(f"imputed_value_{values}", []))
    if new.size != 1 and x.shape[-1:] != (new.size,):
        raise Violation("InvalidModel", f"`imputed_value_{values}` of Imputer has {new.size} values, and the operand is {x.type}")
    old = node.attr(f"replaced_value_{kind}", 0)
    gone = x.compare_ne(x) if old != old else x.compare_eq(node.constant(old, x.dtype))
    return gone.select(node.constant(new, x.dtype), x)


def _scores(node: Node, rows: int) -> Tensor:
    """The products of [n, features] with the coefficients, plus the intercepts: [n, rows]. Raises Violation."""
    x = narrow(node.ranked(0, 2))
    factors: Array = np.asarray(node.attr("coefficients"), np.float32)
    shifts: Array = np.asarray(node.attr("intercepts") or [0.0] * rows, np.float32)
    if not rows or factors.size % rows or shifts.size != rows:
        counts = f"{factors.size} coefficients and {shifts.size} intercepts for {rows} results"
        raise Violation("InvalidModel", f"{node.name} has {counts}")
    return matmul(x, node.constant(factors.reshape(rows, -1).T)) + node.constant(shifts)


@handles("LinearRegressor", domain=ML)
def linear_regressor(node: Node) -> Tensor:
    """LinearRegressor: a linear map of rows."""
    targets, how = node.attr("targets", 1), node.attr("post_transform", "NONE")
    if targets == 1 and how != "NONE":  # ONNX Runtime does not transform a single score
        raise refused(f"LinearRegressor of one target with the transformation {how}")
    return transformed(_scores(node, targets), how)


@handles("LinearClassifier", domain=ML)
def linear_classifier(node: Node) -> list[Tensor | None]:
    """LinearClassifier: the class of the highest score, and all scores. With one row of coefficients for two classes, the score
    is that of the second."""
    labels: list[int] = list(node.attr("classlabels_ints") or [])
    if not labels and node.attr("classlabels_strings"):
        raise refused("LinearClassifier with labels that are strings")
    node.idle("multi_class")  # how it was trained
    how = node.attr("post_transform", "NONE")
    rows = len(node.attr("intercepts") or labels)
    y = _scores(node, rows)
    names = node.constant(np.asarray(labels, np.int64))
    if rows == 1 and len(labels) == 2:
        if how not in ("NONE", "LOGISTIC"):
            raise refused(f"LinearClassifier of one score with the transformation {how}")
        at = (y > 0.0).reshape([y.shape[0]]).cast(SI64)
        pair = [sigmoid(-y), sigmoid(y)] if how == "LOGISTIC" else [1.0 - y, y]
        scores = y.block.op("concat", pair, axis=1)
    elif rows == len(labels) > 1:
        at, scores = y.argmax(axis=1, output_dtype=SI64), transformed(y, how)
    else:
        raise Violation("InvalidModel", f"LinearClassifier has {rows} intercepts and {len(labels)} classes")
    return [names.take(at) if node.wants(0) else None, scores]


def _kernels(node: Node, x: Tensor, vectors: Array) -> Tensor:
    """The kernel of each row of `x` with each support vector: [n, vectors]."""
    kind = node.choice("kernel_type", ("LINEAR", "POLY", "RBF", "SIGMOID"), "LINEAR")
    params: list[float] = [*(node.attr("kernel_params") or []), 0.0, 0.0, 0.0]
    gamma, shift, degree = params[:3]
    if kind == "RBF":
        n, features = x.shape
        gap = x.reshape([n, 1, features]) - node.constant(vectors)
        return ((gap * gap).reduce_sum([2]) * -gamma).exp()
    dots = matmul(x, node.constant(np.ascontiguousarray(vectors.T)))
    if kind == "LINEAR":
        return dots
    whole = dots * gamma + shift
    return whole.tanh() if kind == "SIGMOID" else whole**degree


@handles("SVMRegressor", domain=ML)
def svm_regressor(node: Node) -> Tensor:
    """SVMRegressor: kernels with the support vectors, weighed and summed. For `one_class` the result is the sign."""
    x, how, count = narrow(node.ranked(0, 2)), node.attr("post_transform", "NONE"), node.attr("n_supports", 0)
    if how != "NONE":  # ONNX Runtime does not transform a single score
        raise refused(f"SVMRegressor with the transformation {how}")
    factors: Array = np.asarray(node.attr("coefficients") or [], np.float32)
    vectors: Array = np.asarray(node.attr("support_vectors") or [], np.float32)
    rho: Array = np.asarray(node.attr("rho") or [0.0], np.float32)
    if count <= 0 or factors.size != count or vectors.size % count or x.shape[1] != vectors.size // count or rho.size != 1:
        raise Violation(
            "InvalidModel",
            f"SVMRegressor has {count} supports, {factors.size} coefficients and {vectors.size} numbers of vectors",
        )
    y = matmul(_kernels(node, x, vectors.reshape(count, -1)), node.constant(factors.reshape(count, 1))) + node.constant(rho)
    return (y > 0.0).select(1.0, y.block.full(-1.0, y)) if node.attr("one_class", 0) else y


@handles("ArrayFeatureExtractor", domain=ML)
def array_feature_extractor(node: Node) -> Tensor:
    """ArrayFeatureExtractor: the columns at some places."""
    x, at = node[0], node[1]
    wide = x.reshape([1, *x.shape]) if x.rank == 1 else x
    return wide.taken(at.reshape([-1]), wide.rank - 1)


@handles("FeatureVectorizer", domain=ML)
def feature_vectorizer(node: Node) -> Tensor:
    """FeatureVectorizer: all columns side by side."""
    given = [x.reshape([x.shape[0], 1]) if x.rank == 1 else x for x in map(narrow, node.all())]
    for x, n in zip(given, node.attr("inputdimensions") or [], strict=False):
        if x.rank != 2 or x.shape[1] != n:
            raise refused(f"FeatureVectorizer with {n} columns of {x.type}")
    return given[0] if len(given) == 1 else given[0].block.op("concat", given, axis=1)


@handles("ZipMap", domain=ML)
def zip_map(node: Node) -> Tensor:
    """ZipMap names the columns of scores; the result is these columns."""
    node.idle("classlabels_int64s", "classlabels_strings")
    return node[0]
