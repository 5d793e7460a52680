"""`layout` and `fold-scales`: fewer transposes, no batch normalization, equal numbers."""

from __future__ import annotations

import numpy as np
import pytest

import ptir_tools as ptir

CONVOLUTION = """
  %{o}p = extract_patches(%{x}) window[3, 3] padding[[1, 1], [1, 1]] -> tensor<f32, 2x5x6x36>
  %{o} = dot_general(%{o}p, %w) contract_lhs[3] contract_rhs[0] -> tensor<f32, 2x5x6x4>
"""
T, C = "tensor<f32, 2x4x5x6>", "tensor<f32, 2x5x6x4>"


def text(between: str, scale: str = "[0.5, 2.0, -1.5, 3.0]") -> str:
    """Two convolutions on NCHW images with the ops `between` from %a to %b."""
    weights = np.random.default_rng(0).uniform(-1, 1, (36, 4)).astype("<f4").tobytes().hex()
    return f"""func @main(%x: {T}) -> {T} {{
  %w = constant() value[dense<"0x{weights}">] -> tensor<f32, 36x4>
  %s = constant() value[dense<{scale}>] -> tensor<f32, 4>
  %x1 = transpose(%x) perm[0, 2, 3, 1] -> {C}
  {CONVOLUTION.format(o="c1", x="x1")}
  %a = transpose(%c1) perm[0, 3, 1, 2] -> {T}
  {between}
  %x2 = transpose(%b) perm[0, 2, 3, 1] -> {C}
  {CONVOLUTION.format(o="c2", x="x2")}
  %y = transpose(%c2) perm[0, 3, 1, 2] -> {T}
  return %y
}}
"""


NORM = f"""%m = reshape(%s) new_shape[4, 1, 1] -> tensor<f32, 4x1x1>
  %k = broadcast_to(%m) result_shape[2, 4, 5, 6] -> {T}
  %d = sub(%a, %k) -> {T}
  %e = mul(%d, %k) -> {T}
  %b = OP(%k, %e) -> {T}"""
POOLED = f"""%p = reduce_window(%a) window_dims[1, 1, 3, 3] strides[1, 1, 1, 1] padding[[0, 0], [0, 0], [1, 1], [1, 1]] \
base_dilation[1, 1, 1, 1] window_dilation[1, 1, 1, 1] reduce[max] -> {T}
  %m = reduce_sum(%p) axes[2, 3] keepdims[true] -> tensor<f32, 2x4x1x1>
  %k = broadcast_to(%m) result_shape[2, 4, 5, 6] -> {T}
  %h = slice(%p) starts[0, 0, 0, 0] sizes[2, 2, 5, 6] -> tensor<f32, 2x2x5x6>
  %j = concat(%h, %h) axis[1] -> {T}
  %u = mul(%j, %k) -> {T}
  %b = add(%u, %a) -> {T}"""
CASES = {"subtracted": NORM.replace("OP", "sub"), "added": NORM.replace("OP", "add"), "pooled": POOLED}


def ops(program: ptir.Program) -> list[str]:
    """The names of the ops."""
    return [op.defn.short for op in program.main.body]


@pytest.mark.parametrize("between", CASES.values(), ids=list(CASES))
def test_transposes_are_left_only_at_the_ends_and_numbers_stay(between: str) -> None:
    program = ptir.read(text(between))
    made = ptir.optimize(program)
    assert ops(made).count("transpose") == 2 and ops(made).count("custom_call") == 2
    x = np.random.default_rng(1).uniform(-1, 1, (2, 4, 5, 6)).astype(np.float32)
    (want,) = ptir.run(program, [x], engine="reference").values()
    for engine in ("reference", "numpy", "auto"):
        (got,) = ptir.run(made, [x], engine=engine).values()
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4 * np.abs(want).max())


FOLDED = "convolutions,fold-scales{range=true},canonicalize,cse,dce"


def test_scales_and_shifts_become_weights_and_a_bias() -> None:
    for case in ("subtracted", "added"):
        program = ptir.read(text(CASES[case]))
        for made in (ptir.optimize(program, FOLDED), ptir.optimize(program, floats="fast")):
            assert not {"sub", "mul", "add"}.intersection(ops(made))


def test_a_sum_that_overflows_before_its_scale_stays_infinite() -> None:
    """Only with `range`, or under fast floats, an infinity may become a number."""
    program = ptir.read(text(CASES["added"], "[1e-15, 1e-15, 1e-15, 1e-15]"))
    x = np.full((2, 4, 5, 6), 3e38, np.float32)
    (want,) = ptir.run(program, [x], engine="reference").values()
    assert not np.isfinite(want).all()
    made = ptir.optimize(program)
    assert "mul" in ops(made) and "sub" not in ops(made)  # the first shift is the bias
    (got,) = ptir.run(made, [x], engine="reference").values()
    np.testing.assert_array_equal(np.isfinite(got), np.isfinite(want))
    assert "mul" not in ops(ptir.optimize(program, floats="fast"))


def test_strict_floats_keep_scales() -> None:
    strict = ptir.optimize(ptir.read(text(CASES["added"])), floats="strict")
    assert ops(strict).count("mul") == 1 and "custom_call" not in ops(strict)


@pytest.mark.parametrize(
    "scale", ["[1e30, 1.0, 1.0, 3e38]", "[1e-40, 1.0, 1.0, 1.0]", "[inf, 1.0, 1.0, 1.0]", "[0.0, 1.0, 1.0, 1.0]"]
)
def test_a_scale_out_of_range_stays(scale: str) -> None:
    made = ptir.optimize(ptir.read(text(CASES["added"].replace("sub(%a, %k)", "mul(%a, %k)"), scale)), FOLDED)
    assert "mul" in ops(made)


def test_a_convolution_that_is_an_output_too_keeps_its_weights() -> None:
    source = text(CASES["added"]).replace(f"-> {T} {{", f"-> ({T}, {T}) {{").replace("return %y", "return %y, %a")
    assert "mul" in ops(ptir.optimize(ptir.read(source), FOLDED))


def test_a_take_from_a_symbolic_extent_stays() -> None:
    program = ptir.read("""func @f(%x: tensor<f32, 1x?Tx3>) -> tensor<f32, 1x4x3> {
  %i = constant() value[dense<[0, 0, 1, 2]>] -> tensor<si32, 4>
  %t = transpose(%x) perm[1, 0, 2] -> tensor<f32, ?Tx1x3>
  %c = take(%t, %i) -> tensor<f32, 4x1x3>
  %u = transpose(%c) perm[1, 0, 2] -> tensor<f32, 1x4x3>
  %y = neg(%u) -> tensor<f32, 1x4x3>
  return %y
}
""")
    x = np.arange(12, dtype=np.float32).reshape(1, 4, 3)
    (got,) = ptir.run(ptir.optimize(program, "layout"), [x]).values()
    np.testing.assert_array_equal(got, -x[:, [0, 0, 1, 2]])
