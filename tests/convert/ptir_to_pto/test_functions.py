"""Programs of several functions: each is an entry of its own in PTO, with its kernels."""

import numpy as np
import pytest

from ptir_tools.convert import translate
from ptir_tools.core.diagnostics import Diagnostics, Severity
from ptir_tools.core.dialect import Options
from ptir_tools.dialects.pto.text import cpp
from ptir_tools.engines import run
from ptir_tools.engines.options import RunOptions
from tests.convert.ptir_to_pto.programs import TARGETS, agree, program, reread

ROWS = "tensor<f32, ?Nx4>"
MAIN = f"""  func @main(%x: {ROWS}) -> ({ROWS}) {{
    %y = exp(%x) -> {ROWS}
    return %y
  }}"""
TWO_KERNELS = f"""(%x: {ROWS}, %w: tensor<f32, 4x3>) -> (tensor<f32, 1x3>) {{
    %p = dot_general(%x, %w) contract_lhs[1] contract_rhs[0] -> tensor<f32, ?Nx3>
    %s = reduce_sum(%p) axes[0] keepdims[true] -> tensor<f32, 1x3>
    return %s
  }}"""


def several(*functions):
    return program("\n".join(["program @main (spec_version = ptir.v0.4) {", *functions, "}"]))


def translated(before, target="a3", constants=None):
    found = Diagnostics(before.source)
    after = translate(before, "pto", found, Options(target=target, constants=constants))
    assert after is not None, found.items
    return after, found


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("n", [0, 1, 127, 128, 129, 1000])
def test_every_function_is_an_entry(n, target):
    before = several(MAIN, "  func @other" + TWO_KERNELS, "  func @main_0" + TWO_KERNELS)
    after = reread(translated(before, target)[0])
    assert after.main.name == "main" and {"other", "main_0"} < {f.name for f in after.functions}
    for name in ("main", "other", "main_0"):
        before.entry = after.entry = name
        agree(before, after, bindings={"N": n})


def test_names_of_kernels_are_no_names_of_functions():
    before = several(*(f"  func @{name}" + TWO_KERNELS for name in ("main", "main_0", "main_1", "main_0_0", "main_0_")))
    names = [f.name for f in reread(translated(before)[0]).functions]
    assert len(set(names)) == len(names) > 5 and {"main", "main_0", "main_1", "main_0_0", "main_0_"} <= set(names)


def test_a_function_that_cannot_be_is_left_out():
    random = """  func @other() -> (tensor<f32, 4>) {
    %y = rng_uniform() -> tensor<f32, 4>
    return %y
  }"""
    after, found = translated(several(MAIN, random))
    assert [f.name for f in after.functions] == ["main"]
    (warning,) = found.items
    assert warning.severity is Severity.WARNING and "@other is left out: no tile op computes rng_uniform" in warning.message


def test_constants_of_functions_are_not_mixed_up():
    def shifted(name, numbers):
        return f"""  func @{name}(%x: tensor<f32, 3>) -> (tensor<f32, 3>) {{
    %c = constant() value[dense<{numbers}>] -> tensor<f32, 3>
    %y = add(%x, %c) -> tensor<f32, 3>
    return %y
  }}"""

    constants = {}
    before = several(shifted("main", [1.0, 2.0, 3.0]), shifted("other", [4.0, 5.0, 6.0]))
    after, found = translated(before, constants=constants)
    assert not found.items and len(constants) == 2
    for name, least in (("main", 1), ("other", 4)):
        function = after.function(name)
        given = {p.name: constants[p.name] for p in function.params if p.name in constants}
        (c,) = (np.frombuffer(literal.data, np.float32) for literal in given.values())
        x, y = np.float32([10, 20, 30]), np.zeros(3, np.float32)
        arrays = {p.name: c if p.name in given else x if p.name == "x" else y for p in function.params}
        made = run(after, arrays, RunOptions(function=name))
        np.testing.assert_array_equal(list(made.values())[-1], x + np.arange(least, least + 3, dtype=np.float32))


def test_functions_that_nothing_calls_are_kernels_of_cpp():
    after, _ = translated(several(MAIN, "  func @other" + TWO_KERNELS))
    text = "".join(cpp.write(after, found := Diagnostics(), Options()))
    assert not found.errors
    heads = [line for line in text.splitlines() if line.endswith("{") and "AICORE" in line]
    names = {line.split("(")[0].split()[-1] for line in heads if line.startswith("__global__")}
    assert names == {"main_kernel", "other"} and len(heads) > len(names)
