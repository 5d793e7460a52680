"""raise-contractions: which sums of products become dot_general, and that the numbers stay."""

from __future__ import annotations

import numpy as np
import pytest

from ptir_tools import optimize, run
from ptir_tools.core import arrays
from ptir_tools.core.dialect import clone
from ptir_tools.core.evaluate import Context, run_block
from ptir_tools.dialects.ptir.builder.build import Graph
from ptir_tools.dialects.ptir.rewrites.raising import JOINING
from ptir_tools.passes import Floats, PassContext, run_pipeline
from ptir_tools.rewrite.patterns import Effect
from tests.passes.test_passes import f, shorts
from tests.rewrite.test_rules import read

PRODUCT = ["%p = mul(%a, %b) -> tensor<f32, 2x4x3>", "%s = reduce_sum(%p) axes[2] -> tensor<f32, 2x4>", "return %s"]
SPREAD = ["%c = reshape(%x) new_shape[2, 1, 3] -> tensor<f32, 2x1x3>",
          "%a = broadcast_to(%c) result_shape[2, 4, 3] -> tensor<f32, 2x4x3>",
          "%b = broadcast_to(%y) result_shape[2, 4, 3] -> tensor<f32, 2x4x3>"]  # fmt: skip
MATMUL = f(*SPREAD, *PRODUCT, params="%x: tensor<f32, 2x3>, %y: tensor<f32, 4x3>", ret="tensor<f32, 2x4>")


def contracted(text: str, **context: object) -> tuple[list[str], float]:
    """Op names after raising, and the greatest difference of the results."""
    before = read(text)
    program = clone(before)
    run_pipeline(program, "raise-contractions", PassContext(**context))  # type: ignore[arg-type]
    rng = np.random.default_rng(0)
    inputs = [rng.normal(size=p.type.static_shape).astype(arrays.numpy_dtype(p.type.dtype)) for p in before.main.params]
    (want,), (got,) = (run_block(p.main, inputs, Context()) for p in (before, program))
    return shorts(program), float(np.abs(arrays.widen(want) - arrays.widen(got)).max())


def test_sum_of_a_product_of_repeated_operands_is_a_contraction():
    found, error = contracted(MATMUL)
    assert found == ["dot_general"] and error < 1e-6
    assert "dot_general" not in contracted(MATMUL, floats=Floats.STRICT)[0]


@pytest.mark.parametrize("order", ["%p, %k", "%k, %p"])
def test_a_scale_of_the_product_is_one_of_the_smaller_factor(order: str) -> None:
    scaled = ["%k = broadcast_to(%scale) result_shape[2, 4, 3] -> tensor<f32, 2x4x3>", PRODUCT[0],
              f"%q = mul({order}) -> tensor<f32, 2x4x3>", "%s = reduce_sum(%q) axes[2] -> tensor<f32, 2x4>",
              "return %s"]  # fmt: skip
    text = f(*SPREAD, *scaled, params="%x: tensor<f32, 2x3>, %y: tensor<f32, 4x3>, %scale: tensor<f32>", ret="tensor<f32, 2x4>")
    found, error = contracted(text)
    assert "dot_general" in found and "reduce_sum" not in found and error < 1e-6


@pytest.mark.parametrize(
    ("axes", "keepdims", "result"), [("[1]", "true", "2x1x3"), ("[0]", "false", "4x3"), ("[0, 1]", "false", "3")]
)
def test_sum_over_a_repeated_axis_stays(axes: str, keepdims: str, result: str) -> None:
    text = f(*SPREAD, PRODUCT[0], f"%s = reduce_sum(%p) axes{axes} keepdims[{keepdims}] -> tensor<f32, {result}>", "return %s",
             params="%x: tensor<f32, 2x3>, %y: tensor<f32, 4x3>", ret=f"tensor<f32, {result}>")  # fmt: skip
    assert "dot_general" not in contracted(text)[0]


@pytest.mark.parametrize("order", ["ab", "ba"])
@pytest.mark.parametrize(
    ("spread", "axes"), [((1, 3), "[0]"), ((0, 2), "[1]"), ((2, 0), "[1]"), ((2, 3), "[0, 1]"), ((0, 3), "[2]")]
)
def test_contractions_of_every_layout(order: str, spread: tuple[int, int], axes: str) -> None:
    def shape(axis: int) -> str:
        return "x".join(str(1 if i == axis else d) for i, d in enumerate((2, 3, 4, 5)))

    full = "tensor<f64, 2x3x4x5>"
    summed = {int(a) for a in axes.strip("[]").split(",")}
    kept = "x".join(str(d) for i, d in enumerate((2, 3, 4, 5)) if i not in summed)
    ret = f"tensor<f64, {kept}>"
    text = f(*(f"%{n} = broadcast_to(%{v}) result_shape[2, 3, 4, 5] -> {full}" for n, v in ("ax", "by")),
             f"%p = mul(%{order[0]}, %{order[1]}) -> {full}", f"%s = reduce_sum(%p) axes{axes} -> {ret}", "return %s",
             params=", ".join(f"%{v}: tensor<f64, {shape(s)}>" for v, s in zip("xy", spread, strict=True)), ret=ret)  # fmt: skip
    found, error = contracted(text)
    assert "dot_general" in found and error < 1e-12


def test_integer_products_are_contracted_only_where_they_wrap_alike():
    def text(accum: str) -> str:
        return MATMUL.replace("f32", "si8").replace("axes[2] ->", f"axes[2] accum_dtype[{accum}] ->")

    assert contracted(text("si8")) == (["dot_general"], 0.0)
    assert "mul" in contracted(text("si32"))[0]


# ---- regions, hints, training


PADS = {
    "rows": ("low[0, 0] high[2, 0]", "low[3, 0] high[0, 0]", "3x4", "2x4", True),
    "columns": ("low[0, 3] high[0, 0]", "low[0, 0] high[0, 1]", "5x1", "5x3", True),
    "two axes": ("low[0, 0] high[2, 1]", "low[3, 0] high[0, 0]", "3x3", "2x4", False),
    "no axis": ("low[0, 0] high[0, 0]", "low[0, 0] high[0, 0]", "5x4", "5x4", False),
    "over each other": ("low[0, 0] high[2, 0]", "low[2, 0] high[0, 0]", "3x4", "3x4", False),
    "a gap between": ("low[0, 0] high[3, 0]", "low[3, 0] high[0, 0]", "2x4", "2x4", False),
    "both ends": ("low[1, 0] high[2, 0]", "low[3, 0] high[0, 0]", "2x4", "2x4", False),
    "another number": ("low[0, 0] high[2, 0] pad_value[1.0]", "low[3, 0] high[0, 0]", "3x4", "2x4", False),
    "between elements": ("low[0, 0] high[2, 0] interior[1, 0]", "low[3, 0] high[0, 0]", "2x4", "2x4", False),
}


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("name", PADS)
def test_a_sum_of_two_pads_is_a_concat_where_each_has_what_the_other_has_not(name: str, turned: bool) -> None:
    first, second, x, y, joined = PADS[name]
    whole = "5x4"
    lines = [f"%p = pad(%x) {first} -> tensor<f32, {whole}>", f"%q = pad(%y) {second} -> tensor<f32, {whole}>",
             f"%s = add({'%q, %p' if turned else '%p, %q'}) -> tensor<f32, {whole}>", "return %s"]  # fmt: skip
    before = read(f(*lines, params=f"%x: tensor<f32, {x}>, %y: tensor<f32, {y}>", ret=f"tensor<f32, {whole}>"))
    program = clone(before)
    PassContext().apply(program, JOINING, effect=Effect.ORDER, enable_constant_fold=False)
    assert ("concat" in shorts(program)) is joined
    rng = np.random.default_rng(0)
    inputs = [rng.normal(size=p.type.static_shape).astype(np.float32) for p in before.main.params]
    (want,), (got,) = (run_block(p.main, inputs, Context()) for p in (before, program))
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("window", [(2,), (2, 3), (1, 4)])
@pytest.mark.parametrize("what", ["spread", "overlapping", "not finite"])
def test_windows_that_see_one_element_of_a_spread_image(window, what):
    """A transposed convolution is one product where windows do not overlap and the weights are finite."""
    g, rng, n = Graph(), np.random.default_rng(1), len(window)
    x = rng.standard_normal((2, *(5, 4)[:n], 6)).astype(np.float32)
    w = rng.standard_normal((*window, 6, 7)).astype(np.float32)
    w[(0,) * n] = np.inf if what == "not finite" else w[(0,) * n]
    taps = [k + (what == "overlapping") for k in window]
    w = np.concatenate([w] * 4).reshape(-1)[: np.prod(taps) * 42].reshape(-1, 7) if what == "overlapping" else w.reshape(-1, 7)
    none = [0] * (n + 2)
    spread = g.input("x", "f32", x.shape).pad(low=none, high=none, interior=[0, *(k - 1 for k in window), 0])
    y = spread.extract_patches(taps, padding=[[k - 1, k - 1] for k in taps])
    program = g.returns(y.dot_general(g.constant(w), contract_lhs=[n + 1], contract_rhs=[0]).named("y"))
    raised = optimize(program, "raise-contractions,dce")
    assert ("extract_patches" in [op.defn.short for op in raised.main.body]) == (what != "spread")
    strict = optimize(program, "raise-contractions,dce", floats="strict")
    assert "extract_patches" in [op.defn.short for op in strict.main.body]
    want, *found = (run(p, {"x": x}, engine=e)["y"] for p, e in ((program, "reference"), (raised, "numpy"), (program, "auto")))
    for y in found:
        np.testing.assert_allclose(y, want, 1e-5, 1e-5)
