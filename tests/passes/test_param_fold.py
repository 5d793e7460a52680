"""Parameters of known value folded: into constants, into parameters with a new file."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from ptir_tools.core import arrayfiles
from ptir_tools.core.diagnostics import UsageError
from ptir_tools.core.dialect import Program, clone
from ptir_tools.engines import run
from ptir_tools.passes import PassContext, run_pipeline
from ptir_tools.passes.ptir.param_fold import fold
from tests.rewrite.test_rules import read, write

TEXT = """func @f(%x: tensor<f32, 2x3>, %w: tensor<f32, 4x3>, %b: tensor<f32, 4>, %u: tensor<f32, 4>) -> tensor<f32, 2x4> {
  %two = broadcast_to(dense<2.0> : tensor<f32>) result_shape[4, 3] -> tensor<f32, 4x3>
  %scaled = mul(%w, %two) -> tensor<f32, 4x3>
  %turned = transpose(%scaled) perm[1, 0] -> tensor<f32, 3x4>
  %y = dot_general(%x, %turned) contract_lhs[1] contract_rhs[0] -> tensor<f32, 2x4>
  %both = add(%b, %u) -> tensor<f32, 4>
  %wide = broadcast_to(%both) result_shape[2, 4] -> tensor<f32, 2x4>
  %z = add(%y, %wide) -> tensor<f32, 2x4>
  return %z
}
"""
VALUES = {
    "w": np.arange(12, dtype=np.float32).reshape(4, 3),
    "b": np.ones(4, np.float32),
    "u": np.full(4, 0.5, np.float32),
    "unknown": np.zeros(3),
}
X = np.array([[1, 2, 3], [4, 5, 6]], np.float32)


def folded(text: str, values: dict[str, np.ndarray], **options: bool) -> tuple[Program, dict[str, np.ndarray]]:
    program = read(text)
    return program, fold(program, values, PassContext(), **options)


def test_subgraphs_of_one_parameter_become_parameters() -> None:
    program, known = folded(TEXT, VALUES)
    assert [p.name for p in program.main.params] == ["x", "b", "u", "turned"]
    assert [op.defn.short for op in program.main.body] == ["dot_general", "add", "broadcast_to", "add"]
    assert np.array_equal(known["turned"], VALUES["w"].T * 2) and sorted(known) == ["b", "turned", "u"]
    want = X @ (VALUES["w"].T * 2) + 1.5
    assert np.array_equal(run(program, {"x": X, **known})["z"], want)
    assert folded(write(program), known)[1].keys() == known.keys()


def test_subgraphs_of_one_parameter_become_constants() -> None:
    program, known = folded(TEXT, VALUES, constants=True)
    assert [p.name for p in program.main.params] == ["x", "b", "u"] and sorted(known) == ["b", "u"]
    assert program.main.body[0].defn.short == "constant"
    assert np.array_equal(run(program, {"x": X, **known})["z"], X @ (VALUES["w"].T * 2) + 1.5)


@pytest.mark.parametrize("suffix", ["npz", "safetensors"])
def test_pass_reads_and_writes_files(tmp_path: Path, suffix: str) -> None:
    source, output = (str(tmp_path / f"{name}.{suffix}") for name in ("in", "out"))
    text = TEXT.replace("f32", "bf16")
    values = {k: v.astype(ml_dtypes.bfloat16) for k, v in VALUES.items()}
    with open(source, "wb") as file:
        arrayfiles.save(source, file, values)
    program = read(text)
    context = PassContext()
    run_pipeline(program, f'param-fold{{params="{source}",output="{output}"}}', context)
    made = arrayfiles.load_all(output)
    assert sorted(made) == ["b", "turned", "u"] and context.statistics["param-fold"]["folded"] == 1
    assert np.array_equal(made["turned"].astype(np.float32), VALUES["w"].T * 2)
    before = clone(program)
    run_pipeline(program, f'param-fold{{params="{output}"}}')
    assert write(program) == write(before)


@pytest.mark.parametrize(
    "line",
    [
        "%y = broadcast_to(%w) result_shape[2, 2] -> tensor<f32, 2x2>",
        "%r = rng_uniform() -> tensor<f32, 2>\n  %s = mul(%w, %r) -> tensor<f32, 2>\n  "
        "%y = broadcast_to(%s) result_shape[2, 2] -> tensor<f32, 2x2>",
        '%c = custom_call(%w) target["ns.op.v1"] -> tensor<f32, 2>\n  '
        "%y = broadcast_to(%c) result_shape[2, 2] -> tensor<f32, 2x2>",
        "%c = add(%w, dense<?> : tensor<f32, 2>) -> tensor<f32, 2>\n  "
        "%y = broadcast_to(%c) result_shape[2, 2] -> tensor<f32, 2x2>",
        "%o = constant() value[dense<[0, 3]>] -> tensor<si32, 2>\n  %m = add(%o, %o) -> tensor<si32, 2>\n  "
        "%t = take(%w, %m) -> tensor<f32, 2>\n  %y = broadcast_to(%t) result_shape[2, 2] -> tensor<f32, 2x2>",
    ],
)
def test_what_stays(line: str) -> None:
    text = f"func @f(%w: tensor<f32, 2>) -> tensor<f32, 2x2> {{\n  {line}\n  return %y\n}}\n"
    program, known = folded(text, {"w": np.ones(2, np.float32)})
    assert write(program) == text and list(known) == ["w"]


def test_what_refuses_a_constant_may_read_a_parameter() -> None:
    """An integer divisor that is a constant with a 0 is refused; a parameter that holds it is not, and is folded into."""
    text = "func @f(%w: tensor<si32, 2>, %x: tensor<si32, 2>) -> tensor<si32, 2> {\n"
    text += "  %d = add(%w, %w) -> tensor<si32, 2>\n  %y = div(%x, %d) -> tensor<si32, 2>\n  return %y\n}\n"
    values = {"w": np.array([0, 3], np.int32)}
    program, known = folded(text, values)
    assert [op.defn.short for op in program.main.body] == ["div"] and known["d"].tolist() == [0, 6]
    program, _ = folded(text, values, constants=True)
    assert [op.defn.short for op in program.main.body] == ["add", "div"]


def test_values_that_do_not_fit_are_wrong_usage(tmp_path: Path) -> None:
    for bad in (np.ones(12, np.float32), np.ones((4, 3)), np.ones((3, 4), np.float32)):
        with pytest.raises(UsageError, match="parameter `w`"):
            folded(TEXT, {"w": bad})
    with pytest.raises(UsageError, match=r"cannot hold 0\.1"):
        folded(TEXT.replace("f32", "bf16"), {"w": np.full((4, 3), 0.1, np.float32)})
    with pytest.raises(UsageError, match="params=FILE"):
        run_pipeline(read(TEXT), "param-fold")
