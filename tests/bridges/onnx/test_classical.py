"""Operators of classical machine learning, held to ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ptir_tools as ptir

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
from onnx import helper  # noqa: E402

from ptir_tools.core.diagnostics import Rejected  # noqa: E402

X = np.array([[1.0, -2.0, 3.0, 0.5], [0.0, 0.0, 0.0, 0.0], [-1.0, -4.0, -2.0, -0.5], [2.0, np.inf, -0.0, 1e-3]], np.float32)
HOLES = np.where(X < 0, np.float32(np.nan), X)
WHOLE = np.array([[1, -2, 3, 0], [0, 0, 0, 7], [-4, 5, -4, 2]], np.int64)
SOME = (X[:3], X[0], WHOLE, X[:3].astype(np.float64))
PLACES = np.array([[2, 0, 3]], np.int64)
LINEAR = {"coefficients": [0.5, -0.25, 0.1, 1.0, -0.5, 0.75, 0.3, -1.0, 0.0, 1.5, -2.0, 0.25]}
ROWS = np.random.default_rng(0).standard_normal((9, 4)).astype(np.float32)

# An operator, its operands, its number of results, and its attributes.
CASES: list[tuple[str, list[Any], int, dict[str, Any]]] = [
    *[("Normalizer", [x], 1, {"norm": norm}) for norm in ("MAX", "L1", "L2") for x in SOME],
    *[("Scaler", [x], 1, {"offset": [1.0, 2, -3, 0.5], "scale": [2.0, 3, 4, -1]}) for x in SOME],
    ("Scaler", [X], 1, {"offset": [1.5], "scale": [2.0]}),
    ("Binarizer", [X], 1, {"threshold": 0.5}),
    ("Binarizer", [X], 1, {}),
    ("Imputer", [HOLES], 1, {"imputed_value_floats": [9.0, 8, 7, 6], "replaced_value_float": float("nan")}),
    ("Imputer", [HOLES], 1, {"imputed_value_floats": [9.0], "replaced_value_float": 3.0}),
    ("Imputer", [WHOLE], 1, {"imputed_value_int64s": [9], "replaced_value_int64": -4}),
    ("Imputer", [WHOLE], 1, {"imputed_value_int64s": [9, 8, 7, 6], "replaced_value_int64": 0}),
    *[("ArrayFeatureExtractor", [x, at], 1, {}) for x in (X, X[0], WHOLE) for at in (PLACES, PLACES[0])],
    ("FeatureVectorizer", [X, ROWS[:4, :2].copy()], 1, {"inputdimensions": [4, 2]}),
    *[
        ("LinearRegressor", [ROWS], 1, {**LINEAR, "intercepts": [0.2, -0.1, 0.3], "targets": 3, "post_transform": how})
        for how in ("NONE", "LOGISTIC", "SOFTMAX")
    ],
    ("LinearRegressor", [ROWS], 1, {"coefficients": LINEAR["coefficients"][:4]}),
    *[
        ("SVMRegressor", [ROWS], 1, {"coefficients": [0.5, -1.0, 0.75], "support_vectors": LINEAR["coefficients"],
         "n_supports": 3, "rho": [0.125], "kernel_type": kind, "kernel_params": [0.3, 0.7, 3.0], "one_class": one})
        for kind in ("LINEAR", "RBF", "POLY", "SIGMOID") for one in (0, 1)
    ],
    *[
        ("LinearClassifier", [x], 2, {**LINEAR, "intercepts": [0.2, -0.1, 0.3], "classlabels_ints": names, "post_transform": how})
        for how in ("NONE", "LOGISTIC", "SOFTMAX")
        for x, names in ((ROWS, [0, 1, 2]), (WHOLE, [7, -3, 5]))
    ],
    *[
        ("LinearClassifier", [ROWS], 2, {"coefficients": LINEAR["coefficients"][: 4 * n], "intercepts": [0.2] * n,
         "classlabels_ints": [3, 7], "post_transform": how, "multi_class": 1})
        for n in (1, 2) for how in ("NONE", "LOGISTIC")
    ],
]  # fmt: skip


def model(op: str, operands: list[Any], results: int, attrs: dict[str, Any]) -> Any:
    names = [f"x{i}" for i in range(len(operands))]
    outputs = [f"y{i}" for i in range(results)]
    types = [helper.np_dtype_to_tensor_dtype(x.dtype) for x in operands]
    rows = operands[0].shape[0] if operands[0].ndim > 1 else None
    shapes = [["n", *x.shape[1:]] if x.shape[0] == rows else x.shape for x in operands]
    given = list(map(helper.make_tensor_value_info, names, types, shapes))
    node = helper.make_node(op, names, outputs, domain="ai.onnx.ml", **attrs)
    graph = helper.make_graph([node], "g", given, [onnx.ValueInfoProto(name=name) for name in outputs])
    sets = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(graph, opset_imports=sets, ir_version=9)


@pytest.mark.parametrize("case", range(len(CASES)), ids=lambda i: f"{CASES[i][0]}-{i}")
def test_operators_are_those_of_onnx_runtime(case: int) -> None:
    op, operands, results, attrs = CASES[case]
    proto = model(op, operands, results, attrs)
    feeds = {f"x{i}": x for i, x in enumerate(operands)}
    wanted = onnxruntime.InferenceSession(proto.SerializeToString()).run(None, feeds)
    program = ptir.from_onnx(proto)
    for engine in ("reference", "numpy", "native"):
        for found, y in zip(ptir.run(program, feeds, engine=engine).values(), wanted, strict=True):
            assert found.dtype == y.dtype and found.shape == y.shape
            np.testing.assert_allclose(found, y, 2e-6, 1e-6, err_msg=engine)


def test_the_map_of_scores_is_its_columns() -> None:
    names = [4, 1, 9, 2]
    proto = model("ZipMap", [ROWS], 1, {"classlabels_int64s": names})
    (maps,) = onnxruntime.InferenceSession(proto.SerializeToString()).run(None, {"x0": ROWS})
    (found,) = ptir.run(ptir.from_onnx(proto), {"x0": ROWS}).values()
    np.testing.assert_array_equal(found, [[row[name] for name in names] for row in maps])


@pytest.mark.parametrize(
    ("op", "attrs", "says"),
    [
        ("LinearRegressor", {"coefficients": [1.0] * 4, "post_transform": "LOGISTIC"}, "of one target"),
        ("LinearRegressor", {"coefficients": [1.0] * 4, "targets": 3}, "4 coefficients and 3 intercepts"),
        ("LinearClassifier", {"coefficients": [1.0] * 4, "classlabels_strings": ["a", "b"]}, "strings"),
        ("LinearClassifier", {"coefficients": [1.0] * 4, "intercepts": [0.0], "classlabels_ints": [1, 2, 3]}, "3 classes"),
        ("LinearClassifier", {"coefficients": [1.0] * 4, "intercepts": [0.0], "classlabels_ints": [1, 2],
                              "post_transform": "SOFTMAX"}, "SOFTMAX"),
        ("SVMRegressor", {"coefficients": [1.0] * 4, "n_supports": 0}, "0 supports"),
        ("SVMRegressor", {"coefficients": [1.0], "n_supports": 1, "support_vectors": [1.0] * 3}, "1 supports"),
        ("SVMRegressor", {"coefficients": [1.0], "n_supports": 1, "post_transform": "LOGISTIC"}, "LOGISTIC"),
        ("Scaler", {"offset": [1.0, 2.0], "scale": [1.0]}, "2 numbers"),
        ("Imputer", {"imputed_value_floats": [1.0, 2.0]}, "2 values"),
        ("FeatureVectorizer", {"inputdimensions": [3]}, "3 columns"),
        ("Normalizer", {"norm": "L3"}, "not one of"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_said(op: str, attrs: dict[str, Any], says: str) -> None:
    with pytest.raises(Rejected, match=says):
        ptir.from_onnx(model(op, [ROWS], 2 if "Classifier" in op else 1, attrs))
