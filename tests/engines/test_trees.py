"""Ensembles of decision trees: every engine and the decomposition, held to a walk of one row at a time in Python."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ptir_tools as ptir
from ptir_tools.core.diagnostics import Diagnostics, Rejected
from ptir_tools.dialects.ptir.kernels.targets import TARGETS
from ptir_tools.engines import RunOptions, native
from ptir_tools.engines.choose import prepare
from ptir_tools.passes import run_pipeline

COMPARED: dict[int, Any] = {
    1: lambda x, s: x <= s, 2: lambda x, s: x < s, 3: lambda x, s: x >= s,
    4: lambda x, s: x > s, 5: lambda x, s: x == s, 6: lambda x, s: x != s,
}  # fmt: skip
TARGET = "ptir.tree_ensemble.v1"
EDGES = [0.0, -0.0, 1.0, -1.5, 1e-45, -1e-45, np.inf, -np.inf, 3e38]
Tables = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def grown(rng: np.random.Generator, kind: type, trees: int, features: int, outputs: int, modes: list[int], dense: bool) -> Tables:
    """Random trees; in some, two nodes have the same child, and leaves have no entry."""
    nodes, roots, targets, splits = list[list[int]](), [], list[int](), list[float]()
    for _ in range(trees):
        roots.append(len(nodes))
        todo = [(roots[-1], 0)]
        nodes.append([0] * 5)
        while todo:
            at, depth = todo.pop(0)
            splits += [0.0] * (len(nodes) - len(splits))
            if depth < 5 and rng.random() < 0.8:
                own = [len(nodes), len(nodes) + int(rng.random() < 0.9)]
                nodes += [[0] * 5 for _ in range(own[1] - own[0] + 1)]
                todo += [(child, depth + 1) for child in range(own[0], own[1] + 1)]
                nodes[at] = [int(rng.choice(modes)), int(rng.integers(features)), *own, int(rng.random() < 0.3)]
                splits += [0.0] * (len(nodes) - len(splits))
                splits[at] = float(rng.choice([*EDGES, np.nan, *rng.standard_normal(9)]))
            else:
                own_targets = [*range(outputs)] if dense else rng.integers(0, outputs, rng.integers(0, 4)).tolist()
                nodes[at] = [0, 0, len(targets), len(targets) + len(own_targets), 0]
                targets += own_targets
    weights = rng.standard_normal(len(targets)).astype(kind)
    tables = np.array(roots, np.int32), np.array(nodes, np.int32), np.array(splits, kind)
    return *tables, np.array(targets, np.int32), weights


def walked(x: np.ndarray, tables: Tables, outputs: int, how: str) -> np.ndarray:
    """Row by row, tree by tree."""
    roots, nodes, splits, targets, weights = tables
    result = np.zeros((len(x), outputs), x.dtype)
    for r, row in enumerate(x):
        found: list[list[float]] = [[] for _ in range(outputs)]
        for at in roots.tolist():
            while nodes[at, 0]:
                mode, feature, yes, no, missing = nodes[at].tolist()
                value = row[feature]
                at = yes if COMPARED[mode](value, splits[at]) or (missing and np.isnan(value)) else no
            for entry in range(nodes[at, 2], nodes[at, 3]):
                found[targets[entry]].append(float(weights[entry]))
        for k, values in enumerate(found):
            if values:
                result[r, k] = {"sum": sum, "min": min, "max": max}[how](values)
    return result


def program(tables: Tables, kind: str, rows: int | str, features: int, outputs: int, how: str, **open_: Any) -> ptir.Program:
    g = ptir.Graph()
    x = g.input("x", kind, (rows, features))
    attrs = (("aggregate", ("String", how)), ("outputs", ("I64", outputs)))
    given = [
        g.input(f"t{i}", {"i": "si32"}.get(t.dtype.kind, kind), t.shape) if open_ else g.constant(t) for i, t in enumerate(tables)
    ]
    return g.returns(g.op("custom_call", [x, *given], target=TARGET, attrs=attrs).named("y"))


@pytest.mark.parametrize("seed", range(24))
def test_every_engine_walks_as_python_does(seed: int) -> None:
    rng = np.random.default_rng(seed)
    kind = [np.float32, np.float64][seed % 2]
    features, outputs, trees = int(rng.integers(1, 6)), int(rng.integers(1, 5)), int(rng.integers(1, 20))
    modes = rng.choice(6, int(rng.integers(1, 7)), replace=False) + 1
    how = ["sum", "sum", "min", "max"][seed // 2 % 4]
    tables = grown(rng, kind, trees, features, outputs, modes.tolist(), seed % 3 == 0)
    rows = [1, 7, 8, 41][seed % 4]
    x = np.where(
        rng.random((rows, features)) < 0.5, rng.choice([*EDGES, np.nan], (rows, features)), rng.standard_normal((rows, features))
    )
    x = x.astype(kind)
    for t in (tables[2],):  # a feature that is exactly a split
        x[0, 0] = t[rng.integers(len(t))]
    wanted = walked(x, tables, outputs, how)
    p = program(tables, {4: "f32", 8: "f64"}[x.itemsize], rows, features, outputs, how)
    smaller = program(tables, {4: "f32", 8: "f64"}[x.itemsize], rows, features, outputs, how)
    run_pipeline(smaller, "decompose")
    assert all(op.defn.short != "custom_call" for op in smaller.main.body)
    for engine in ("reference", "numpy", "native"):
        for each in (p, smaller):
            (found,) = ptir.run(each, [x], engine=engine).values()
            np.testing.assert_allclose(found, wanted, 1e-5, 1e-5, err_msg=engine)
    (found,) = ptir.run(p, [x], engine="native", threads=2).values()
    np.testing.assert_allclose(found, wanted, 1e-5, 1e-5)
    opened = program(tables, {4: "f32", 8: "f64"}[x.itemsize], rows, features, outputs, how, open_=True)
    for engine in ("reference", "numpy", "native"):
        (found,) = ptir.run(opened, [x, *tables], engine=engine).values()
        np.testing.assert_allclose(found, wanted, 1e-5, 1e-5, err_msg=engine)


def test_engines_run_trees_as_one_kernel() -> None:
    tables = grown(np.random.default_rng(0), np.float32, 3, 2, 1, [1], True)
    p = program(tables, "f32", 9, 2, 1, "sum")
    seen = prepare(p, RunOptions(engine="native"), Diagnostics()).function.body
    assert [op.defn.short for op in seen if not op.defn.is_constant] == ["custom_call"]


SOUND: Tables = (
    np.array([0], np.int32),
    np.array([[1, 0, 1, 2, 0], [0, 0, 0, 1, 0], [0, 0, 1, 2, 0]], np.int32),
    np.zeros(3, np.float32),
    np.array([0, 0], np.int32),
    np.ones(2, np.float32),
)


@pytest.mark.parametrize("opened", [False, True])
@pytest.mark.parametrize(
    ("table", "at", "value", "message"),
    [
        (0, 0, 3, "a root is none of 3 nodes, at 0"),
        (0, 0, -1, "a root is none of 3 nodes, at 0"),
        (1, (0, 0), 7, "a node has an unknown mode, at 0"),
        (1, (0, 1), 2, "a node asks for none of 2 features, at 0"),
        (1, (0, 2), 0, "a child of a node does not come after it, at 0"),
        (1, (0, 3), 3, "a child of a node does not come after it, at 0"),
        (1, (2, 3), 3, "a leaf has entries that are none of 2, at 2"),
        (1, (1, 2), 2, "a leaf has entries that are none of 2, at 1"),
        (1, (1, 2), -1, "a leaf has entries that are none of 2, at 1"),
        (3, 1, 1, "a target is none of 1, at 1"),
    ],
)
def test_unsound_tables_are_refused_before_they_are_read(table: int, at: Any, value: int, message: str, opened: bool) -> None:
    """Constant ones when the program is verified, others when it runs, on every engine."""
    tables = [t.copy() for t in SOUND]
    tables[table][at] = value
    if opened:
        p = program(SOUND, "f32", 4, 2, 1, "sum", open_=True)
        for engine in ("reference", "numpy", "native"):
            with pytest.raises(Rejected, match=message):
                ptir.run(p, [np.zeros((4, 2), np.float32), *tables], engine=engine)
        return
    with pytest.raises((Rejected, ptir.Violation), match=message):
        ptir.verify(program((tables[0], tables[1], tables[2], tables[3], tables[4]), "f32", 4, 2, 1, "sum"))


def test_the_kernel_checks_what_it_is_given() -> None:
    """Also numbers that no program lets through."""
    native = pytest.importorskip("ptir_tools._native")
    out, x = np.zeros((1, 1), np.float32), np.zeros((1, 2), np.float32)
    nodes = np.array([[0, 0, 1, 2], [0, 0, 1, 1], [0, 0, 2, 2]], np.int32)
    leaves, roots = np.array([[0, 0], [0, 1], [1, 2]], np.int32), np.zeros(1, np.int32)
    targets, weights = np.zeros(2, np.int32), np.array([3, 5], np.float32)
    native.trees(out, x, nodes, roots, leaves, targets, weights, native.SUM)
    assert out[0, 0] == 3
    for place, value in (((0, 1), 2), ((0, 2), 0), ((0, 3), 3), ((0, 2), -1), ((0, 1), -1)):
        wrong = nodes.copy()
        wrong[place] = value
        with pytest.raises(ValueError, match="not sound"):
            native.trees(out, x, wrong, roots, leaves, targets, weights, native.SUM)
    for k, value in ((3, 3), (3, -1), (4, 3), (4, -1), (5, 1), (5, -1)):
        arguments = [out, x, nodes, roots, leaves, targets, weights]
        arguments[k] = arguments[k].copy()
        arguments[k].reshape(-1)[-1] = value
        with pytest.raises(ValueError, match="not sound"):
            native.trees(*arguments, native.SUM)


def test_calls_that_stay_for_the_engines_are_those_with_steps_of_their_own() -> None:
    """A call without them would run its body, which is written for exactness, and is slow."""
    assert {name for name, target in TARGETS.items() if target.has_kernel} == native._CALLS.keys()
