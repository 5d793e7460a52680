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


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("how", [0, 1, 2, 3])
def test_ensembles_of_set_5(kind: type, how: int) -> None:
    """Every comparison, sets of values, and missing values, against ONNX Runtime, which numbers transformations otherwise."""
    rng = np.random.default_rng(how)
    yes, no, yes_leaf, no_leaf, targets, roots = [], [], [], [], [], []
    for _ in range(6):  # two levels: the second branch of a root is a leaf
        roots.append(len(yes))
        yes += [len(yes) + 1, len(targets)]
        no += [len(targets) + 2, len(targets) + 1]
        yes_leaf, no_leaf = [*yes_leaf, 0, 1], [*no_leaf, 1, 1]
        targets += [int(t) for t in rng.integers(0, 3, 3)]
    modes = np.array([0, 1, 2, 3, 4, 5, 6, 0, 6, 1, 4, 3], np.uint8)
    node = helper.make_node(
        "TreeEnsemble", ["x"], ["y"], domain="ai.onnx.ml", n_targets=3, aggregate_function=how,
        tree_roots=roots, nodes_featureids=[int(k) for k in rng.integers(0, 4, 12)], nodes_truenodeids=yes,
        nodes_falsenodeids=no, nodes_trueleafs=yes_leaf, nodes_falseleafs=no_leaf, leaf_targetids=targets,
        nodes_missing_value_tracks_true=[int(k) for k in rng.integers(0, 2, 12)],
        nodes_modes=onnx.numpy_helper.from_array(modes),
        nodes_splits=onnx.numpy_helper.from_array((rng.integers(-2, 3, 12) / 2).astype(kind)),
        leaf_weights=onnx.numpy_helper.from_array(rng.standard_normal(len(targets)).astype(kind)),
        membership_values=onnx.numpy_helper.from_array(np.array([1, 2, np.nan, 1, 3, 4, np.nan], kind)),
    )  # fmt: skip
    dtype = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    infos = [helper.make_tensor_value_info(n, dtype, s) for n, s in (("x", ["n", 4]), ("y", ["n", 3]))]
    graph = helper.make_graph([node], "g", infos[:1], infos[1:])
    sets = [helper.make_opsetid("", 21), helper.make_opsetid("ai.onnx.ml", 5)]
    m = helper.make_model(graph, opset_imports=sets, ir_version=10)
    x = (rng.integers(-3, 8, (40, 4)) / 2).astype(kind)
    x[rng.random(x.shape) < 0.1] = np.nan
    transforms = {1: lambda y: np.exp(y) / np.exp(y).sum(1, keepdims=True), 2: lambda y: 1 / (1 + np.exp(-y))}
    (wanted,) = onnxruntime.InferenceSession(m.SerializeToString()).run(None, {"x": x})
    for engine in ENGINES:
        (found,) = ptir.run(ptir.from_onnx(m), [x], engine=engine).values()
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
    for number, transform in transforms.items():
        node.attribute.append(helper.make_attribute("post_transform", number))
        m.graph.node[0].CopyFrom(node)
        (found,) = ptir.run(ptir.from_onnx(m), [x]).values()
        np.testing.assert_allclose(found, transform(wanted), rtol=1e-5, atol=1e-6)
        node.attribute.pop()


def test_what_came_in_as_one_operator_goes_out_as_one() -> None:
    """With base values, the average, the classes and their transformation; a target without weights keeps its base value."""
    rng = np.random.default_rng(3)
    for op, outputs, attrs in (
        ("TreeEnsembleRegressor", ["y"], {"n_targets": 1}),
        ("TreeEnsembleRegressor", ["y"], {"n_targets": 3, "base_values": [0.5, -1.0, 2.0], "aggregate_function": "AVERAGE"}),
        ("TreeEnsembleRegressor", ["y"], {"n_targets": 2, "aggregate_function": "MIN"}),
        ("TreeEnsembleClassifier", ["label", "scores"], {"classlabels_int64s": [0, 1, 2], "base_values": [0.5, -1.0, 2.0]}),
        ("TreeEnsembleClassifier", ["label", "scores"], {"classlabels_int64s": [5, 1, 9], "post_transform": "SOFTMAX"}),
        ("TreeEnsembleClassifier", ["label", "scores"], {"classlabels_int64s": [0, 1, 2], "post_transform": "LOGISTIC"}),
        ("TreeEnsembleClassifier", ["label", "scores"], {"classlabels_int64s": [0, 1], "one": 0, "base_values": [0.25]}),
        ("TreeEnsembleClassifier", ["label", "scores"], {"classlabels_int64s": [4, 1], "one": 0, "post_transform": "LOGISTIC"}),
        ("TreeEnsembleClassifier", ["label", "scores"], {"classlabels_int64s": [0, 1], "one": 1}),
    ):
        lists, leaves = grown(5, 4, 4, BRANCHES)
        kind, one = "class" if "Classifier" in op else "target", attrs.pop("one", None)
        count = len(attrs.get("classlabels_int64s", [0] * attrs.get("n_targets", 1)))
        entries = [(t, n, k if one is None else one) for t, n in leaves for k in (range(count) if one is None else (one,))]
        if "base_values" in attrs and one is None:
            entries = [entry for entry in entries if entry[2] != 1 or entry[0] == 2]
        trees, nodes, ids = zip(*entries, strict=True)
        weights = [float(w) for w in rng.standard_normal(len(ids))]
        named = {f"{kind}_{k}": [*v] for k, v in {"treeids": trees, "nodeids": nodes, "ids": ids, "weights": weights}.items()}
        node = helper.make_node(op, ["x"], outputs, domain="ai.onnx.ml", **lists, **named, **attrs)
        given = [helper.make_tensor_value_info("x", 1, ["n", 4])]
        graph = helper.make_graph([node], "g", given, [onnx.ValueInfoProto(name=name) for name in outputs])
        sets = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", 3)]
        program = ptir.from_onnx(helper.make_model(graph, opset_imports=sets, ir_version=9))
        back = ptir.to_onnx(program)
        assert [n.op_type for n in back.graph.node] == [op], attrs
        x = (rng.integers(-4, 5, (40, 4)) / 2).astype(np.float32)
        wanted = ptir.run(program, {"x": x}, engine="reference").values()
        found = onnxruntime.InferenceSession(back.SerializeToString()).run(None, {"x": x})
        for a, b in zip(found, wanted, strict=True):
            np.testing.assert_allclose(a, b, 1e-5, 1e-6)
        again = ptir.run(ptir.from_onnx(back), {"x": x}, engine="native").values()
        for a, b in zip(again, wanted, strict=True):
            np.testing.assert_allclose(a, b, 1e-5, 1e-6)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"nodes_truenodeids": [1, 0, 0]}, None),
        ({"nodes_truenodeids": [7, 0, 0]}, "a child is a node that its tree does not have"),
        ({"nodes_modes": ["BRANCH_LEQ", "BRANCH_LT", "LEAF"], "nodes_truenodeids": [1, 0, 0]}, "a tree has no root"),
        ({"nodes_featureids": [4, 0, 0]}, "a node asks for none of 4 features, at 0"),
        ({"target_ids": [0, 3]}, "a target is none of 1, at 1"),
        ({"target_nodeids": [1, 9]}, "a leaf is a node that its tree does not have"),
        ({"nodes_modes": ["BRANCH_LEQ", "LEAF", "NONE"]}, "a tree that branches by NONE"),
        ({"nodes_values": [0.5, 0.0]}, "trees whose lists of nodes are not alike"),
    ],
)
def test_trees_that_are_not_sound_are_refused(change: dict[str, Any], message: str | None) -> None:
    lists = {
        "nodes_treeids": [0, 0, 0], "nodes_nodeids": [0, 1, 2], "nodes_featureids": [1, 0, 0], "nodes_values": [0.5, 0.0, 0.0],
        "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"], "nodes_truenodeids": [1, 0, 0], "nodes_falsenodeids": [2, 2, 0],
        "target_treeids": [0, 0], "target_nodeids": [1, 2], "target_ids": [0, 0], "target_weights": [1.0, 2.0],
    }  # fmt: skip
    node = helper.make_node("TreeEnsembleRegressor", ["x"], ["y"], domain="ai.onnx.ml", n_targets=1, **(lists | change))
    given = [helper.make_tensor_value_info("x", 1, ["n", 4])]
    graph = helper.make_graph([node], "g", given, [onnx.ValueInfoProto(name="y")])
    sets = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", 3)]
    m = helper.make_model(graph, opset_imports=sets, ir_version=9)
    if message is None:
        ptir.from_onnx(m)
        return
    with pytest.raises(ptir.Rejected, match=message):
        ptir.from_onnx(m)
