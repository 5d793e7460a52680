"""Ensembles of decision trees, held to ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ptir_tools as ptir

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
from onnx import helper  # noqa: E402

ENGINES = ("reference", "numpy", "native")
BRANCHES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT")


def grown(seed: int, trees: int, features: int, modes: tuple[str, ...]) -> tuple[dict[str, Any], list[tuple[int, int]]]:
    """The lists of random trees, and the leaves."""
    rng = np.random.default_rng(seed)
    names = ("treeids", "nodeids", "featureids", "values", "modes", "truenodeids", "falsenodeids")
    lists: dict[str, list[Any]] = {f"nodes_{name}": [] for name in names}
    leaves = []
    for tree in range(trees):
        size, todo = 1, [(0, 0)]
        while todo:
            at, depth = todo.pop()
            inner = depth < 2 or (depth < 5 and rng.random() < 0.5)
            row = [tree, at, 0, 0.0, "LEAF", 0, 0]
            if inner:
                row = [
                    tree,
                    at,
                    int(rng.integers(features)),
                    float(rng.integers(-2, 3)) / 2,
                    str(rng.choice(modes)),
                    size,
                    size + 1,
                ]
                todo += [(size, depth + 1), (size + 1, depth + 1)]
                size += 2
            else:
                leaves.append((tree, at))
            for values, value in zip(lists.values(), row, strict=True):
                values.append(value)
    return lists, leaves


def check(op: str, outputs: list[str], modes: tuple[str, ...] = BRANCHES[:1], missing: bool = False, **attrs: Any) -> None:
    lists, leaves = grown(len(attrs), 3, 4, modes)
    kind, rng = "class" if "Classifier" in op else "target", np.random.default_rng(7)
    count = len(attrs.get("classlabels_int64s", [0] * attrs.get("n_targets", 1)))
    ids = [i for _ in leaves for i in range(count)] if not (one := attrs.pop("one", False)) else [one - 1] * len(leaves)
    own = [leaf for leaf in leaves for _ in range(count if not one else 1)]
    weights = rng.random(len(ids)) / 3 if attrs.pop("positive", False) else rng.standard_normal(len(ids))
    lists |= {f"{kind}_treeids": [t for t, _ in own], f"{kind}_nodeids": [n for _, n in own], f"{kind}_ids": ids}
    lists[f"{kind}_weights"] = [float(w) for w in weights]
    if missing:
        lists["nodes_missing_value_tracks_true"] = [int(b) for b in rng.integers(0, 2, len(lists["nodes_modes"]))]
    node = helper.make_node(op, ["x"], outputs, domain="ai.onnx.ml", **lists, **attrs)
    given = [helper.make_tensor_value_info("x", 1, ["n", 4])]
    graph = helper.make_graph([node], "g", given, [onnx.ValueInfoProto(name=name) for name in outputs])
    sets = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", 3)]
    proto = helper.make_model(graph, opset_imports=sets, ir_version=9)
    x = (rng.integers(-4, 5, (40, 4)) / 2).astype(np.float32)
    if missing:
        x[rng.random(x.shape) < 0.3] = np.nan
    wanted = onnxruntime.InferenceSession(proto.SerializeToString()).run(None, {"x": x})
    program = ptir.from_onnx(proto)
    for engine in ENGINES:
        for found, y in zip(ptir.run(program, {"x": x}, engine=engine).values(), wanted, strict=True):
            assert found.dtype == y.dtype and found.shape == y.shape
            np.testing.assert_allclose(found, y, 1e-5, 1e-6, err_msg=engine)


@pytest.mark.parametrize("modes", [*((m,) for m in BRANCHES), BRANCHES], ids=str)
def test_a_regressor_branches_as_its_nodes_say(modes: tuple[str, ...]) -> None:
    check("TreeEnsembleRegressor", ["y"], modes, n_targets=2, base_values=[0.5, -1.0])


@pytest.mark.parametrize("how", ["SUM", "AVERAGE", "MIN", "MAX"])
def test_a_regressor_aggregates(how: str) -> None:
    check("TreeEnsembleRegressor", ["y"], n_targets=1, aggregate_function=how, base_values=[0.5])


def test_a_value_that_is_missing_may_go_either_way() -> None:
    check("TreeEnsembleRegressor", ["y"], missing=True, n_targets=1)


@pytest.mark.parametrize("how", ["NONE", "SOFTMAX", "LOGISTIC"])
def test_a_classifier_of_several_classes(how: str) -> None:
    check("TreeEnsembleClassifier", ["label", "scores"], classlabels_int64s=[3, 5, 9], post_transform=how)


@pytest.mark.parametrize(("how", "positive"), [("NONE", True), ("NONE", False), ("LOGISTIC", False)])
def test_a_classifier_of_two_classes(how: str, positive: bool) -> None:
    attrs = {"classlabels_int64s": [0, 1], "post_transform": how, "positive": positive}
    for one in (1, 2):
        check("TreeEnsembleClassifier", ["label", "scores"], one=one, **attrs)


def test_labels_that_are_strings_are_refused() -> None:
    labels = {"classlabels_strings": ["a", "b"]}
    node = helper.make_node("TreeEnsembleClassifier", ["x"], ["label", "scores"], domain="ai.onnx.ml", **labels)
    given = [helper.make_tensor_value_info("x", 1, ["n", 4])]
    graph = helper.make_graph([node], "g", given, [onnx.ValueInfoProto(name=name) for name in node.output])
    sets = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", 3)]
    with pytest.raises(ptir.Rejected, match="labels that are strings"):
        ptir.from_onnx(helper.make_model(graph, opset_imports=sets, ir_version=9))
