"""Outputs compared with those of another engine, of a file and of an observed run: which are different, and which are not."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import ptir_tools as ptir
from ptir_tools.core.diagnostics import UsageError
from ptir_tools.core.dialect import Program
from ptir_tools.core.limits import LimitExceeded, Limits, using
from ptir_tools.engines import RunOptions, run
from ptir_tools.engines import compare as bounds
from ptir_tools.engines.options import ENGINES
from ptir_tools.tools import compare

BF16 = np.dtype(ml_dtypes.bfloat16)
TEXT = """func @f(%x: tensor<f32, 2x3>, %n: tensor<si32, 3>) -> (tensor<f32, 2x3>, tensor<si32, 3>) {
  %a = exp(%x) -> tensor<f32, 2x3>
  %y = add(%a, %x) -> tensor<f32, 2x3>
  %m = mul(%n, %n) -> tensor<si32, 3>
  return %y, %m
}
"""
INPUTS = {"x": np.float32([[0, 1, 2], [-1, 0.5, 3]]), "n": np.int32([1, 2, 3])}


@pytest.fixture
def program() -> Program:
    return ptir.read(TEXT)


@pytest.fixture
def outputs(program: Program) -> dict[str, np.ndarray]:
    return run(program, INPUTS, RunOptions(engine="reference"))


# ---- another engine


@pytest.mark.parametrize("other", ["reference", "numpy"])
@pytest.mark.parametrize("wrong", ["", "y", "m"])
def test_outputs_are_held_to_the_reference_whatever_the_other_engine_is(
    program: Program, outputs: dict[str, np.ndarray], other: str, wrong: str
) -> None:
    if wrong:
        outputs[wrong] = outputs[wrong].copy()
        outputs[wrong].flat[1] += 1
    found, verdict = compare.across_engines(program, INPUTS, outputs, other, RunOptions(engine="numpy"))
    assert [str(d).partition("[")[0] for d in found] == [wrong] * bool(wrong)
    assert verdict.elements == {"y": 6, "m": 3} and not verdict.compared_nothing


def test_the_other_engine_is_held_to_the_reference(
    program: Program, outputs: dict[str, np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[str] = []

    def faulty(program: Program, inputs: object, options: RunOptions) -> dict[str, np.ndarray]:
        ran.append(options.engine)
        return {name: x + (name == "m") for name, x in outputs.items()}

    monkeypatch.setattr(compare, "run", faulty)
    assert compare.across_engines(program, INPUTS, outputs, "reference", RunOptions())[0] == [] and not ran
    found, _ = compare.across_engines(program, INPUTS, outputs, "numpy", RunOptions(engine="native"))
    assert [str(d).partition("[")[0] for d in found] == ["m"] and ran == ["numpy"]


@pytest.mark.parametrize("engine", ["numpy", "native"])
def test_the_first_value_that_differs_is_named(engine: str, program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine of the run is looked at before the other one, and the reference never."""
    if engine not in ENGINES:
        pytest.skip("not built")
    assert compare.first_diverging(program, INPUTS, "reference", RunOptions(engine=engine)) is None
    assert compare.first_diverging(program, INPUTS, engine, RunOptions(engine="reference")) is None
    exact = bounds.reference_outputs

    def off(program: Program, *given: object) -> object:
        expected, tolerances = exact(program, *given)
        return {name: x + (name in ("y", "m")) for name, x in expected.items()}, tolerances

    monkeypatch.setattr(bounds, "reference_outputs", off)
    found = compare.first_diverging(program, INPUTS, "reference", RunOptions(engine=engine))
    assert found is not None and found.engine == engine and found.op.result.name in ("y", "m")
    assert str(found.divergence).startswith(found.op.result.name)
    assert compare.first_diverging(program, INPUTS, "reference", RunOptions(engine="reference")) is None


def test_values_of_pto_are_not_compared_one_by_one() -> None:
    text = "module {\n  func.func @k() {\n    return\n  }\n}\n"
    with pytest.raises(UsageError, match="--all-values is not for pto"):
        compare.first_diverging(ptir.read(text, format="pto"), {}, "reference", RunOptions())


# ---- an observed run


@pytest.mark.parametrize(
    ("dtype", "step", "alike"),
    [
        (np.float32, 1e-5, True),
        (np.float32, 3e-3, False),
        (np.float64, 1e-9, True),
        (np.float64, 1e-7, False),
        (BF16, 0.0625, True),
        (BF16, 0.5, False),
        (np.complex64, 1e-5, True),
        (np.complex64, 3e-3, False),
        (np.int32, 0, True),
        (np.int32, 1, False),
        (bool, 1, False),
    ],
)
def test_runs_are_alike_where_half_of_the_digits_agree(dtype: type, step: float, alike: bool) -> None:
    """Digits of the largest number that is finite; a NaN is like a NaN alone."""
    if np.dtype(dtype).kind in "iub":
        x = np.array([0, 0, 1]).astype(dtype)
        assert compare._alike(x, (x + step).astype(dtype)) is alike
        return
    x = np.array([0, 1, -4, np.inf, -np.inf, np.nan]).astype(dtype)
    y = np.array([4 * step, 1 - 4 * step, -4, np.inf, -np.inf, np.nan]).astype(dtype)
    assert compare._alike(x, y) is alike and compare._alike(y, x) is alike
    for k, other in ((3, 1.0), (4, np.inf), (5, 0.0), (0, np.nan)):
        wrong = x.copy()
        wrong[k] = other
        assert not compare._alike(x, wrong) and not compare._alike(wrong, x)


def test_an_observed_run_is_compared_within_bounds_only_where_it_is_not_alike(
    program: Program, outputs: dict[str, np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[object] = []
    exact = bounds.reference_outputs
    monkeypatch.setattr(bounds, "reference_outputs", lambda *given: calls.append(given[2].observe) or exact(*given))
    options = RunOptions(observe=lambda op, results: None)
    near = {"y": outputs["y"] * np.float32(1 + 1e-6), "m": outputs["m"]}
    assert compare.observed_as_run(program, INPUTS, outputs, near, options) == [] and not calls
    wrong = {"y": outputs["y"] + np.float32(0.5), "m": outputs["m"]}
    assert compare.observed_as_run(program, INPUTS, outputs, wrong, options) == [] and calls == [None]
    (found,) = compare.observed_as_run(program, INPUTS, wrong, outputs, options)
    assert str(found).startswith("y[")


def test_a_fault_of_fused_ops_alone_is_one_that_goes_op_by_op(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    good = run(program, INPUTS, RunOptions(engine="reference"))
    faulty = {"y": good["y"] + 1, "m": good["m"]}
    for single, only in ((good, True), (faulty, False)):
        asked: list[RunOptions] = []
        monkeypatch.setattr(compare, "run", lambda p, i, o, asked=asked, single=single: asked.append(o) or single)
        assert compare.only_fused(program, INPUTS, "numpy", RunOptions(engine="native")) is only
        assert asked[0].engine == "numpy" and asked[0].observe is not None


# ---- how far outputs move


def test_outputs_that_move_are_told_by_the_largest_distance() -> None:
    head = "func @f(%x: tensor<f32, 4>, %n: tensor<si32, 3>) -> (tensor<f32, 4>, tensor<si32, 3>) {\n"
    before = ptir.read(head + "  return %x, %n\n}\n")
    after = ptir.read(
        head + "  %y = mul(%x, dense<[1.0, 1.0, -1.0, 0.5]> : tensor<f32, 4>) -> tensor<f32, 4>\n"
        "  %m = add(%n, dense<[0, 1, 1]> : tensor<si32, 3>) -> tensor<si32, 3>\n  return %y, %m\n}\n"
    )
    options = RunOptions(seed=3)
    x = run(before, bounds.random_inputs(before, 3, {}, None, {}), options)["x"]
    gap, size = np.abs(x - x * np.float32([1, 1, -1, 0.5])).max(), np.abs(x).max()
    assert compare.moved(before, after, options) == [
        f"x: off by {gap:.3g} at most, where the largest value is {size:.3g}",
        "n: 2 of 3 elements differ",
    ]
    assert compare.moved(before, before, options)[0].startswith("x: off by 0 at most")


# ---- a file


def saved(folder: Path, name: str, arrays: dict[str, np.ndarray]) -> str:
    path = folder / name
    np.savez(path, **arrays) if name.endswith(".npz") else np.save(path, next(iter(arrays.values())))
    return str(path)


def against(
    path: str, outputs: dict[str, np.ndarray], atol: float = 0, rtol: float = 0, **how: bool
) -> tuple[list[str], bounds.Verdict]:
    verdict = bounds.Verdict()
    found = compare.against_file(path, outputs, bounds.Tolerance(atol, rtol), verdict, **how)
    return [str(d).partition("[")[0].partition(":")[0] for d in found], verdict


def test_outputs_are_matched_with_a_file_by_name(tmp_path: Path) -> None:
    outputs = {"a": np.float32([1, 2]), "b": np.float32([3, 4]), "c": np.float32([5])}
    path = saved(tmp_path, "x.npz", {"b": outputs["b"], "a": outputs["a"] + np.float32(0.25)})
    found, verdict = against(path, outputs)
    assert found == ["a"] and verdict.elements == {"a": 2, "b": 2}
    assert against(path, outputs, atol=0.25)[0] == [] and against(path, outputs, atol=0.2)[0] == ["a"]
    assert against(path, outputs, rtol=0.25)[0] == [] and against(path, outputs, rtol=0.1)[0] == ["a"]
    for name in ("d", "bb"):
        with pytest.raises(UsageError, match=f"no output `{name}`"):
            against(saved(tmp_path, "y.npz", {name: outputs["a"]}), outputs)


def test_outputs_are_matched_with_a_file_by_position_when_there_are_as_many(tmp_path: Path) -> None:
    outputs = {"a": np.float32([1, 2]), "b": np.float32([3, 4])}
    as_many = saved(tmp_path, "x.npz", {"p": outputs["a"], "q": outputs["b"] + 1})
    assert against(as_many, outputs, by_position=True)[0] == ["b"]
    with pytest.raises(UsageError, match="no output `p`"):
        against(as_many, outputs)
    with pytest.raises(UsageError, match="no output `p`"):
        against(saved(tmp_path, "y.npz", {"p": outputs["a"]}), outputs, by_position=True)
    assert against(saved(tmp_path, "z.npz", {"b": outputs["b"]}), outputs, by_position=True)[0] == []


def test_a_single_array_is_the_single_output(tmp_path: Path) -> None:
    path = saved(tmp_path, "x.npy", {"": np.float32([1, 3])})
    assert against(path, {"a": np.float32([1, 2])})[0] == ["a"] and against(path, {"a": np.float32([1, 3])})[0] == []
    with pytest.raises(UsageError):
        against(path, {"a": np.float32([1, 2]), "b": np.float32([1, 2])})


def test_floats_of_a_file_are_compared_in_the_precision_of_the_output(tmp_path: Path) -> None:
    """Those of a dtype that the file cannot have are widened; another kind of number differs."""
    tenth = np.float64([0.1])
    path = saved(tmp_path, "x.npz", {"a": tenth})
    assert against(path, {"a": tenth.astype(np.float32)})[0] == [] and against(path, {"a": tenth})[0] == []
    assert against(path, {"a": tenth + 1e-9})[0] == ["a"]
    assert against(saved(tmp_path, "y.npz", {"a": tenth.astype(BF16).astype(np.float32)}), {"a": tenth.astype(BF16)})[0] == []
    assert against(saved(tmp_path, "z.npz", {"a": np.float32([1])}), {"a": np.int32([1])})[0] == ["a"]


def test_a_file_beyond_the_memory_is_not_read(tmp_path: Path) -> None:
    path = saved(tmp_path, "x.npz", {"a": np.zeros((100, 100), np.float32)})
    for memory, fits in ((40_000, True), (39_999, False)):
        with using(Limits(memory=memory)):
            if fits:
                assert against(path, {"a": np.zeros((100, 100), np.float32)})[0] == []
            else:
                with pytest.raises(LimitExceeded):
                    against(path, {"a": np.zeros((100, 100), np.float32)})
