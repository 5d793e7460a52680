"""PTIR as ONNX: models checked by `onnx`, run on ONNX Runtime, held to the reference within its bounds and to NumPy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ptir_tools as ptir
from ptir_tools.core.choices import Seeded
from ptir_tools.core.dialect import Program
from ptir_tools.core.dtypes import PTIR_DTYPES
from ptir_tools.core.records import replace
from ptir_tools.dialects import load_dialect
from ptir_tools.engines import RunOptions, compare
from ptir_tools.engines.inputs import random_inputs
from tests.conftest import run_ptir
from tests.models import FOLDER, MODULES, hold, inputs, program

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
from ptir_tools.bridges.onnx import runtime  # noqa: E402
from ptir_tools.bridges.onnx.computed import COMPUTED  # noqa: E402
from ptir_tools.bridges.onnx.lowerings import COMPOSED, LOWERINGS  # noqa: E402

OPS = sorted(
    load_dialect("ptir").ops[name.removeprefix("ptir.")].short for name in {*LOWERINGS, *(f"ptir.{name}" for name in COMPOSED)}
)
COMPLEX = ("real", "imag", "complex")  # ONNX has complex numbers and no op on them
NEWEST = onnx.defs.onnx_opset_version()


def made(p: Program, **options: Any) -> Any:
    """The model of a program, which `onnx` accepts."""
    model = ptir.to_onnx(p, **options)
    onnx.checker.check_model(model, full_check=True)
    return model


def ran(p: Program, *arrays: Any, **options: Any) -> list[Any]:
    """What ONNX Runtime gives for a program."""
    names = [p.name for p in p.main.params]
    return list(runtime.run(made(p, **options), dict(zip(names, arrays, strict=True))).values())


def func(signature: str, *lines: str) -> Program:
    return ptir.read(f"func @f{signature} {{\n" + "\n".join(lines) + "\n}\n")


def ops(model: Any) -> list[str]:
    return [node.op_type for node in model.graph.node]


def drawn(seed: int, only: tuple[str, ...] = (), size: int = 8) -> Program:
    dtypes = [d for d in PTIR_DTYPES if not d.is_complex]
    found: Program = load_dialect("ptir").generate(Seeded(seed), size=size, only=only, symbols=seed % 3 == 0, dtypes=dtypes)  # type: ignore[misc]
    return found


def held(p: Program, seed: int) -> str:
    """Whether the model of a generated program gives what the reference gives: `right`, or why it was not asked."""
    try:
        model = made(p)
    except ptir.Rejected:
        return "refused"
    sizes = compare.small_sizes(p, {})
    options = replace(RunOptions(), bindings=sizes)
    try:
        given = random_inputs(p, seed, {}, None, sizes)
        expected, tolerances = compare.reference_outputs(p, given, options)
    except (ptir.Rejected, ptir.Violation):
        return "fails"
    try:
        found = runtime.run(model, given)
    except ptir.UsageError as error:
        # its LayerNormalization does not find a constant without elements
        assert any(w in str(error) for w in ("NOT_IMPLEMENTED", "Scan", "Missing Input")), error
        return "no kernel"
    assert not compare.compare(expected, found, tolerances), ptir.write(p)
    return "right"


# ---- programs


@pytest.mark.parametrize("name", sorted(MODULES))
def test_models_give_what_torch_gives(name: str) -> None:
    p = program(name)
    hold(name, runtime.run(made(p), inputs(name)), "f32")


@pytest.mark.parametrize("op", [o for o in OPS if o not in COMPLEX])
def test_ops_give_what_the_reference_gives(op: str) -> None:
    """Two generated programs of each op, in any dtype; one at least is not refused, and right."""
    found = [held(drawn(seed, (op,), 5), seed) for seed in (1, 2, 3)]
    assert "right" in found or op in ("bitcast", "reduce_precision"), found


@pytest.mark.slow
def test_generated_programs_give_what_the_reference_gives() -> None:
    chosen = tuple(o for o in OPS if o not in (*COMPLEX, "bitcast", "reduce_precision"))
    found = [held(drawn(seed, chosen, 14), seed) for seed in range(1000, 1150)]
    assert found.count("right") > 0.75 * len(found)


def test_an_extent_that_nothing_gives_is_refused() -> None:
    t = "tensor<f32, ?N>"
    with pytest.raises(ptir.Rejected, match="not that of a value"):
        made(func(f"() -> {t}", f"  %y = broadcast_to(dense<1.0> : tensor<f32>) result_shape[?N] -> {t}", "  return %y"))


def test_the_least_of_64_bits() -> None:
    """ONNX Runtime takes the low halves of a tensor and a scalar."""
    t = "tensor<si64, 3>"
    p = func(f"(%x: {t}) -> {t}", f"  %y = minimum(%x, dense<4294967295> : {t}) -> {t}", "  return %y")
    x = np.array([0, 1 << 40, -5])
    np.testing.assert_array_equal(ran(p, x)[0], np.minimum(x, 4294967295))


@pytest.mark.parametrize("opset", [13, 15, 17, 18, 20, 22, NEWEST])
def test_operator_sets(opset: int) -> None:
    """What an older set has no operator for is composed; in none the numbers are others."""
    for name in ("gpt2_prefill", "resnet", "quantized_mlp", "gpt2_cached"):
        model = made(program(name), opset=opset)
        assert model.opset_import[0].version == opset
        if opset <= 23:  # ONNX Runtime of the day may not know the newest
            hold(name, runtime.run(model, inputs(name)), "f32")


def test_every_op_is_a_form_or_refused_with_its_reason(tmp_path: Path) -> None:
    source = (
        "func @f(%x: tensor<f32, 3>, %c: tensor<cf32, 3>) -> (tensor<f32, 3>, tensor<f32, 3>, tensor<f32>, tensor<cf32, 3>) {\n"
        "  %a = lgamma(%x) -> tensor<f32, 3>\n  %b = add(%a, %x) -> tensor<f32, 3>\n  %d = digamma(%x) -> tensor<f32, 3>\n"
        "  %r = rng_normal() -> tensor<f32>\n  %e = add(%c, %c) -> tensor<cf32, 3>\n  return %b, %d, %r, %e\n}\n"
    )
    path = tmp_path / "f.ptir"
    path.write_text(source)
    found = run_ptir("translate", str(path), "--to", "onnx", "--diagnostics", "short")
    assert found.status == 1 and not found.text
    assert [line.partition(": error[NotTranslatable]: ")[::2] for line in found.err.splitlines()[:4]] == [
        (f"{path}:2:3", "lgamma: ONNX has no such op"),
        (f"{path}:4:3", "digamma: ONNX has no such op"),
        (f"{path}:5:3", "rng_normal: the numbers that it draws are others in ONNX"),
        (f"{path}:6:3", "add: Add of operator set 21 takes no cf32"),
    ]


def test_an_older_operator_set_is_refused_with_one_that_has_the_operator() -> None:
    t = "tensor<si32, 3>"
    p = func(f"(%x: {t}, %z: {t}) -> {t}", f"%y = bitwise_and(%x, %z) -> {t}", "return %y")
    with pytest.raises(ptir.Rejected, match="operator set 13 has no BitwiseAnd") as error:
        ptir.to_onnx(p, opset=13)
    assert error.value.diagnostics[0].help == "--opset 18 has it"
    with pytest.raises(ptir.UsageError, match="operator sets from 13 to"):
        ptir.to_onnx(p, opset=12)


@pytest.mark.parametrize(
    "count",
    ["?A - 2", "2 * ?A * ?B + 1", "(?A + 1) floordiv 2", "?A ceildiv 3", "max(?A, ?B)", "min(?A, 2 * ?B)", "(?A + 5) mod ?B"],
)
def test_an_extent_that_no_operand_has_is_computed(count: str) -> None:
    p = ptir.read(f"""func @f(%x: tensor<f32, ?A>, %z: tensor<f32, ?B>) -> tensor<si64, ?N> where ?N = {count} {{
  %i = iota() axis[0] -> tensor<si64, ?N>
  return %i
}}
""")
    model = made(p)
    for a, b in ((3, 2), (4, 5), (7, 3), (2, 1)):
        given = {"x": np.zeros(a, np.float32), "z": np.zeros(b, np.float32)}
        np.testing.assert_array_equal(runtime.run(model, given)["i"], ptir.run(p, given)["i"])


def test_axes_of_extent_1_are_exchanged_for_nothing() -> None:
    """The shape is the same, so nothing is written; what reads it still knows the order."""
    p = func(
        "(%x: tensor<f32, 1x1x3x4>) -> (tensor<f32, 1x1x3x4>, tensor<f32, 3x1x1x4>)",
        "%a = exp(%x) -> tensor<f32, 1x1x3x4>",
        "%t = transpose(%a) perm[1, 0, 2, 3] -> tensor<f32, 1x1x3x4>",
        "%u = transpose(%t) perm[1, 0, 2, 3] -> tensor<f32, 1x1x3x4>",
        "%v = transpose(%t) perm[2, 0, 1, 3] -> tensor<f32, 3x1x1x4>",
        "return %u, %v",
    )
    x = np.arange(12, dtype=np.float32).reshape(1, 1, 3, 4) / 8
    found = runtime.run(made(p), {"x": x})
    np.testing.assert_allclose(found["u"], np.exp(x), rtol=1e-6)
    np.testing.assert_allclose(found["v"], np.exp(x).transpose(2, 0, 1, 3), rtol=1e-6)


# ---- names, types, shapes


def test_names_symbols_and_constants_are_kept() -> None:
    p = func(
        "(%tokens: tensor<si32, ?Bx?T>, %scale: tensor<f32>) -> (tensor<f32, ?Bx?Tx4>, tensor<si32, ?Bx?T>)",
        "%table.weight = constant() value[dense<[[1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0]]>] -> tensor<f32, 2x4>",
        "%rows = take(%table.weight, %tokens) -> tensor<f32, ?Bx?Tx4>",
        "%wide = broadcast_to(%scale) result_shape[?B, ?T, 4] -> tensor<f32, ?Bx?Tx4>",
        "%y = mul(%rows, %wide) -> tensor<f32, ?Bx?Tx4>",
        'return %y as "out/0", %tokens',
    )
    model = made(p)
    dims = [[d.dim_param or d.dim_value for d in v.type.tensor_type.shape.dim] for v in (*model.graph.input, *model.graph.output)]
    assert dims == [["B", "T"], [], ["B", "T", 4], ["B", "T"]]
    assert [v.name for v in model.graph.input] == ["tokens", "scale"]
    assert [v.name for v in model.graph.output] == ["out/0", "tokens_1"]
    assert [t.name for t in model.graph.initializer] == ["table.weight"]
    assert ops(model) == ["Gather", "Mul", "Identity"]  # ONNX broadcasts by itself
    assert model.graph.node[0].output[0] == "rows"
    tokens = np.array([[1, 0, 1]], np.int32)
    found = runtime.run(model, {"tokens": tokens, "scale": np.float32(2)})
    np.testing.assert_array_equal(found["out/0"], 2 * np.arange(1, 9, dtype=np.float32).reshape(2, 4)[tokens])


def test_extents_are_measured_where_they_are_needed() -> None:
    p = func(
        "(%x: tensor<f32, ?Nx?Mx2>, %c: tensor<f32, 1x2>) -> (tensor<f32, ?Mx?Nx2>, tensor<f32, ?Nx?Mx2>)",
        "%t = transpose(%x) perm[1, 0, 2] -> tensor<f32, ?Mx?Nx2>",
        "%r = reshape(%t) new_shape[?N, ?M, 2] -> tensor<f32, ?Nx?Mx2>",
        "%b = broadcast_to(%c) result_shape[?M, ?N, 2] -> tensor<f32, ?Mx?Nx2>",
        "return %b, %r",
    )
    x = np.arange(12, dtype=np.float32).reshape(2, 3, 2)
    b, r = ran(p, x, np.array([[1, 2]], np.float32))
    np.testing.assert_array_equal(b, np.broadcast_to(np.array([1, 2], np.float32), (3, 2, 2)))
    np.testing.assert_array_equal(r, x.transpose(1, 0, 2).reshape(2, 3, 2))


def test_tuples_are_flattened_and_regions_are_graphs() -> None:
    p = ptir.read("""program @main (spec_version = ptir.v0.4) {
  func @main(%p: tensor<i1>, %x: tensor<f32, 4>)
      -> ((tensor<f32, 2>, tensor<si32, 2>), tensor<f32, 4>, (tensor<si32>, tensor<f32, 4>)) {
    %t = top_k(%x) k[2] -> (tensor<f32, 2>, tensor<si32, 2>)
    %c = cond(%p, %x) true_region[^r0] false_region[^r1] -> tensor<f32, 4>
    %n = constant() value[dense<0>] -> tensor<si32>
    %w = while(%n, %x) cond_region[^r2] body_region[^r3] -> (tensor<si32>, tensor<f32, 4>)
    return %t, %c, %w
  }
  region ^r0(%a: tensor<f32, 4>) -> tensor<f32, 4> {
    return %a
  }
  region ^r1(%a: tensor<f32, 4>) -> tensor<f32, 4> {
    %e = neg(%a) -> tensor<f32, 4>
    return %e
  }
  region ^r2(%i: tensor<si32>, %a: tensor<f32, 4>) -> (tensor<i1>, tensor<si32>, tensor<f32, 4>) {
    %l = compare_lt(%i, dense<3> : tensor<si32>) -> tensor<i1>
    return %l, %i, %a
  }
  region ^r3(%i: tensor<si32>, %a: tensor<f32, 4>) -> (tensor<si32>, tensor<f32, 4>) {
    %j = add(%i, dense<1> : tensor<si32>) -> tensor<si32>
    %b = add(%a, %a) -> tensor<f32, 4>
    return %j, %b
  }
}
""")
    model = made(p)
    assert [v.name for v in model.graph.output] == ["t.0", "t.1", "c", "w.0", "w.1"]
    assert {"If", "Loop", "TopK"} <= set(ops(model))
    x = np.array([3, -1, 7, 2], np.float32)
    for flag in (True, False):
        top, at, c, n, doubled = runtime.run(model, {"p": np.array(flag), "x": x}).values()
        np.testing.assert_array_equal(top, [7, 3])
        np.testing.assert_array_equal(at, np.array([2, 0], np.int32))
        np.testing.assert_array_equal(c, x if flag else -x)
        assert n == 3
        np.testing.assert_array_equal(doubled, 8 * x)


def test_kernels_become_the_operators_of_onnx() -> None:
    assert {"Gelu", "LayerNormalization", "Softmax"} <= set(ops(made(program("gpt2_prefill"))))
    assert ops(made(program("resnet"))).count("Conv") == 9
    assert not {"Gelu", "LayerNormalization"} & set(ops(made(program("gpt2_prefill"), opset=13)))


# ---- numbers where ONNX, or ONNX Runtime, does otherwise than PTIR


NAN, INF = float("nan"), float("inf")
HARD = np.array([[1, NAN, 3, -INF], [INF, 0, NAN, INF], [2, 5, 5, -1]], np.float32)


@pytest.mark.parametrize("lossy", [False, True])
def test_a_nan_stays_one(lossy: bool) -> None:
    p = func(
        "(%x: tensor<f32, 3x4>) -> (tensor<f32, 3>, tensor<f32, 3>, tensor<si32, 3>, tensor<si64, 3>, tensor<f32, 3x4>)",
        "%a = reduce_max(%x) axes[1] -> tensor<f32, 3>", "%b = reduce_min(%x) axes[1] -> tensor<f32, 3>",
        "%c = argmax(%x) axis[1] -> tensor<si32, 3>", "%d = argmin(%x) axis[1] output_dtype[si64] -> tensor<si64, 3>",
        "%e = sort(%x) axis[1] -> tensor<f32, 3x4>", "return %a, %b, %c, %d, %e",
    )  # fmt: skip
    if lossy:
        assert sorted(ops(made(p, lossy=True)))[:4] == ["ArgMax", "ArgMin", "Cast", "GatherElements"]
        return
    a, b, c, d, e = ran(p, HARD)
    np.testing.assert_array_equal(a, HARD.max(1))
    np.testing.assert_array_equal(b, HARD.min(1))
    np.testing.assert_array_equal(c, HARD.argmax(1))  # NumPy, too, finds the first NaN
    np.testing.assert_array_equal(d, HARD.argmin(1))
    np.testing.assert_array_equal(e, np.sort(HARD, 1))
    assert c.dtype == np.int32 and d.dtype == np.int64


@pytest.mark.parametrize("op", ["log1p", "expm1", "cbrt", "sign", "round_away", "floor", "sin", "neg"])
def test_a_zero_keeps_its_sign(op: str) -> None:
    p = func("(%x: tensor<f32, 5>) -> tensor<f32, 5>", f"%y = {op}(%x) -> tensor<f32, 5>", "return %y")
    x = np.array([-0.0, 0.0, NAN, INF, -INF], np.float32)
    exact = {"cbrt": np.cbrt, "neg": np.negative, "round_away": np.trunc}.get(op) or getattr(np, op)
    with np.errstate(all="ignore"):
        wanted = np.copysign(exact(x), x * (-1 if op == "neg" else 1)) if op != "log1p" else np.log1p(x)
    (found,) = ran(p, x)
    np.testing.assert_array_equal(found, wanted)
    np.testing.assert_array_equal(np.signbit(found[:2]), np.signbit(wanted[:2]))


def test_the_least_integer_divided_by_minus_one_wraps() -> None:
    p = func(
        "(%x: tensor<si32, 4>, %y: tensor<si32, 4>) -> (tensor<si32, 4>, tensor<si32, 4>, tensor<si32, 4>)",
        "%a = div(%x, %y) -> tensor<si32, 4>", "%b = rem(%x, %y) -> tensor<si32, 4>", "%c = mod(%x, %y) -> tensor<si32, 4>",
        "return %a, %b, %c",
    )  # fmt: skip
    x, y = np.array([-(2**31), -7, 7, -8], np.int32), np.array([-1, 2, -2, -1], np.int32)
    a, b, c = ran(p, x, y)
    assert a.tolist() == [-(2**31), -3, -3, 8]
    assert b.tolist() == [0, -1, 1, 0]
    assert c.tolist() == [0, 1, -1, 0]


@pytest.mark.parametrize("target", ["si4", "ui4", "si8", "ui8", "si16", "ui16", "si32", "ui32", "si64", "ui64", "i1"])
def test_casts_saturate(target: str) -> None:
    values = np.array([NAN, INF, -INF, 2.7, -2.7, 300.0, 7.5, -9.0, 3e9, -3e9, 1e19, 2.0**63, 2.0**64, 1e30], np.float64)
    p = func(f"(%x: tensor<f64, 14>) -> tensor<{target}, 14>", f"%y = cast(%x) -> tensor<{target}, 14>", "return %y")
    (found,) = ran(p, values)
    if target == "i1":
        assert found.tolist() == [True] * 14
        return
    bits, signed = int(target[2:]), target[0] == "s"
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    clear = [0 if v != v else max(low, min(high, v if abs(v) == INF else int(v))) for v in values.tolist()]
    assert [int(v) for v in found] == clear


def test_powers_of_integers_are_exact() -> None:
    p = func("(%x: tensor<si64, 5>, %n: tensor<si64, 5>) -> tensor<si64, 5>", "%y = pow(%x, %n) -> tensor<si64, 5>", "return %y")
    (found,) = ran(p, np.array([3, -1, 2, 0, 7]), np.array([39, -3, -1, 0, 2]))
    assert found.tolist() == [3**39, -1, 0, 1, 49]


def test_narrow_floats_are_rounded_once() -> None:
    """bf16 has no kernels on a CPU: computed in f32, and each op rounded."""
    p = func("(%x: tensor<bf16, 4>) -> tensor<bf16, 4>", "%y = mul(%x, %x) -> tensor<bf16, 4>", "return %y")
    import ml_dtypes

    x = np.array([1.0078125, 3.0, -0.3, 1e15], ml_dtypes.bfloat16)
    (found,) = ran(p, x)
    np.testing.assert_array_equal(found.view(np.uint16), (x.astype(np.float64) ** 2).astype(ml_dtypes.bfloat16).view(np.uint16))


# ---- there and back


def test_onnx_to_ptir_to_onnx_to_ptir(tmp_path: Path) -> None:
    from tests.bridges.onnx.test_import import small

    first = small()
    p = ptir.from_onnx(first)
    second = made(p)
    assert [v.name for v in second.graph.output] == ["y/out"] and [v.name for v in second.graph.input] == ["x"]
    q = ptir.from_onnx(second)
    x = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
    for engine in ("reference", "native"):
        a, b = (ptir.run(r, {"x": x}, engine=engine)["y/out"] for r in (p, q))
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)
    third = made(q)
    assert sorted(ops(third)) == sorted(ops(made(ptir.from_onnx(third))))


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_a_convolution_comes_back_as_it_was(groups: int) -> None:
    from tests.bridges.onnx.test_import import evaluated, model, node, noise

    m = model(
        [node("Conv", "x w b", "y", group=groups, strides=[2, 1], dilations=[1, 2], pads=[1, 0, 2, 1], kernel_shape=[3, 3])],
        {"x": ["N", 4, 8, 9]}, ["y"], {"w": noise(8, 4 // groups, 3, 3), "b": noise(8)},
    )  # fmt: skip
    again = made(ptir.from_onnx(m))
    (conv,) = [n for n in again.graph.node if n.op_type == "Conv"]
    weight = next(t for t in again.graph.initializer if t.name == conv.input[1])
    np.testing.assert_array_equal(onnx.numpy_helper.to_array(weight), noise(8, 4 // groups, 3, 3))
    assert "Transpose" not in ops(again)
    x = noise(2, 4, 8, 9)
    np.testing.assert_allclose(runtime.run(again, {"x": x})["y"], evaluated(m, {"x": x})[0], rtol=1e-5, atol=1e-5)


def test_a_network_leaves_without_moving_elements() -> None:
    """Batch normalization is in the weights. Convolutions, silu and squeeze-excite need no Transpose and no Reshape."""
    from tests.bridges.onnx.test_import import evaluated, model, node, noise

    weights = {
        "w": noise(8, 3, 3, 3), "s": noise(8), "t": noise(8), "m": noise(8), "v": np.abs(noise(8)) + 0.5,
        "a": noise(2, 8, 1, 1), "b": noise(8, 2, 1, 1), "d": noise(8, 1, 3, 3), "n": noise(8, 1, 1),
    }  # fmt: skip
    nodes = [
        node("Conv", "x w", "c", pads=[1, 1, 1, 1]), node("BatchNormalization", "c s t m v", "e"), node("Sigmoid", "e", "f"),
        node("Mul", "e f", "g"), node("GlobalAveragePool", "g", "h"), node("Conv", "h a", "i"), node("Relu", "i", "j"),
        node("Conv", "j b", "k"), node("Add", "k n", "l"), node("Sigmoid", "l", "o"), node("Mul", "g o", "p"),
        node("Conv", "p d", "q", group=8), node("Relu", "q", "y"),
    ]  # fmt: skip
    m = model(nodes, {"x": [1, 3, 6, 7]}, ["y"], weights)
    x = noise(1, 3, 6, 7)
    again = made(ptir.optimize(ptir.from_onnx(m)))
    assert ops(again) == [n.op_type for n in nodes if n.op_type not in ("BatchNormalization", "Add")]
    np.testing.assert_allclose(runtime.run(again, {"x": x})["y"], evaluated(m, {"x": x})[0], rtol=1e-4, atol=1e-5)


_SPREAD: list[tuple[dict[str, Any], int]] = [
    ({"strides": [2, 2]}, 1), ({"strides": [2, 3], "pads": [1, 0, 1, 1], "output_padding": [1, 2]}, 1),
    ({"strides": [3, 2], "pads": [0, 2, 1, 1], "dilations": [1, 2]}, 2), ({"strides": [1, 2]}, 4),
]  # fmt: skip


@pytest.mark.parametrize(("attrs", "groups"), _SPREAD, ids=[str(k) for k in range(len(_SPREAD))])
def test_a_transposed_convolution_comes_back(attrs: dict[str, Any], groups: int) -> None:
    from tests.bridges.onnx.test_import import model, node, noise

    weights = {"w": noise(4, 3, 3, 2), "b": noise(3 * groups)}
    m = model([node("ConvTranspose", "x w b", "y", group=groups, **attrs)], {"x": [2, 4, 5, 6]}, ["y"], weights)
    m.graph.output[0].ClearField("type")
    x = noise(2, 4, 5, 6)
    for p in (ptir.from_onnx(m), ptir.optimize(ptir.from_onnx(m))):
        again = made(p)
        assert ops(again) == ["ConvTranspose"]
        np.testing.assert_allclose(runtime.run(again, {"x": x})["y"], runtime.run(m, {"x": x})["y"], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("state", [False, True])
def test_a_recurrent_network_comes_back(direction: str, state: bool) -> None:
    """One node for each direction. A recurrence with other functions stays a loop."""
    from tests.bridges.onnx.test_import import model, node, noise

    n = 1 + (direction == "bidirectional")
    weights = {"w": noise(n, 12, 5), "r": noise(n, 12, 3), "b": noise(n, 24)}
    weights |= {"h": noise(n, 2, 3), "c": noise(n, 2, 3)} if state else {}

    def network(**more: Any) -> Any:
        lstm = node("LSTM", "x w r b", "y l k", direction=direction, hidden_size=3, **more)
        lstm.input.extend(["", "h", "c"] if state else [])
        m = model([lstm], {"x": [4, 2, 5]}, ["y", "l", "k"], weights)
        for output in m.graph.output:
            output.ClearField("type")
        return m

    m, x = network(), noise(4, 2, 5)
    for p in (ptir.from_onnx(m), ptir.optimize(ptir.from_onnx(m))):
        again = made(p)
        assert ops(again).count("LSTM") == n and not {"Scan", "Gather"}.intersection(ops(again))
        for a, b in zip(runtime.run(again, {"x": x}).values(), runtime.run(m, {"x": x}).values(), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    other = network(activations=["Sigmoid", "Relu", "Tanh"] * n)
    assert "LSTM" not in ops(made(ptir.from_onnx(other))) and "Scan" in ops(made(ptir.from_onnx(other)))


_CELLS: list[tuple[str, dict[str, Any], str]] = [  # what an operator has, and its operands after the weights
    ("LSTM", {}, "b n h c p"), ("LSTM", {"input_forget": 1}, "b n h c"), ("LSTM", {}, ""), ("GRU", {}, "b n h"), ("GRU", {}, ""),
    ("GRU", {"linear_before_reset": 1}, "b"), ("GRU", {"linear_before_reset": 1}, "b n"), ("GRU", {"linear_before_reset": 1}, ""),
    ("RNN", {}, "b n"), ("RNN", {}, ""),
]  # fmt: skip


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize(("name", "attrs", "operands"), _CELLS, ids=[f"{n}{len(a)}-{o}" for n, a, o in _CELLS])
def test_every_recurrent_operator_comes_back(name: str, attrs: dict[str, Any], operands: str, direction: str) -> None:
    from tests.bridges.onnx.test_import import model, node, noise

    n, gates = 1 + (direction == "bidirectional"), {"LSTM": 4, "GRU": 3, "RNN": 1}[name]
    shapes = {"w": (gates * 3, 5), "r": (gates * 3, 3), "b": (gates * 6,), "h": (2, 3), "c": (2, 3), "p": (9,)}
    weights = {k: noise(n, *shape) for k, shape in shapes.items() if k in ["w", "r", *operands.split()]}
    weights |= {"n": np.array([4, 2], np.int32)} if "n" in operands else {}
    given = [k if k in weights else "" for k in ("w", "r", "b", "n", "h", "c", "p")[: 7 if name == "LSTM" else 5]]
    cell = node(name, "x", "y l", direction=direction, hidden_size=3, **attrs)
    cell.input.extend(given)
    m, x = model([cell], {"x": [4, 2, 5]}, ["y", "l"], weights), noise(4, 2, 5)
    for output in m.graph.output:
        output.ClearField("type")
    for p in (ptir.from_onnx(m), ptir.optimize(ptir.from_onnx(m))):
        again = made(p)
        assert ops(again).count(name) == n and not {"Scan", "Gemm", "MatMul"}.intersection(ops(again))
        for a, b in zip(runtime.run(again, {"x": x}).values(), runtime.run(m, {"x": x}).values(), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("directions", [1, 2])
@pytest.mark.parametrize("state", [False, True])
@pytest.mark.parametrize("name", ["LSTM", "GRU", "GRU linear", "GRU without bias", "RNN"])
def test_a_recurrent_network_of_one_step_comes_back(name: str, state: bool, directions: int, batch: int) -> None:
    """Its loop is gone."""
    from tests.bridges.onnx.test_import import model, node, noise

    kind, _, how = name.partition(" ")
    rows, n = {"LSTM": 12, "GRU": 9, "RNN": 3}[kind], directions
    weights = {"w": noise(n, rows, 5), "r": noise(n, rows, 3), "b": noise(n, 2 * rows)}
    operands = ["x", "w", "r", "" if how == "without bias" else "b", "", *(["h", "c"][: 1 + (kind == "LSTM")] if state else [])]
    attrs = {"linear_before_reset": 1} if how else {}
    direction = "bidirectional" if n == 2 else "forward"
    cell = node(kind, "x", "y l k" if kind == "LSTM" else "y l", hidden_size=3, direction=direction, **attrs)
    cell.input[:] = operands
    states = {k: [n, batch, 3] for k in operands[5:]}
    outputs = ["y", "l", "k"] if kind == "LSTM" else ["y", "l"]
    m = model([cell], {"x": [1, batch, 5], **states}, outputs, {k: v for k, v in weights.items() if k in operands})
    for output in m.graph.output:
        output.ClearField("type")
    given = {"x": noise(1, batch, 5), **{k: noise(*shape) for k, shape in states.items()}}
    again = made(ptir.optimize(ptir.from_onnx(m)))
    if state:  # states of zeros leave less of a step
        assert ops(again).count(kind) == n
        assert set(ops(again)) <= {kind, "Reshape", "Slice", "Concat"}
    for a, b in zip(runtime.run(again, given).values(), runtime.run(m, given).values(), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("zero", [0, 7])
@pytest.mark.parametrize("kind", ["MatMulInteger", "ConvInteger", "DynamicQuantizeLSTM"])
def test_a_product_of_bytes_comes_back(kind: str, zero: int) -> None:
    """The range of the floats is found once, though they are read in two shapes."""
    from tests.bridges.onnx.test_import import model, node, noise

    rng = np.random.default_rng(zero)
    weights: dict[str, Any] = {"t": np.array([-1, 2, 6] if kind == "MatMulInteger" else [1, 2, 2, 6])}
    if kind == "DynamicQuantizeLSTM":
        shapes = {"w": (1, 5, 64), "r": (1, 16, 64)}
        weights = {k: rng.integers(-56, 57, shape).astype(np.int8) for k, shape in shapes.items()}  # AVX2 adds pairs in 16 bits
        weights |= {"s": np.array([0.01], np.float32), "z": np.array([zero], np.int8), "b": noise(1, 128)}
        nodes = [node(kind, "x w r b", "y", domain="com.microsoft", hidden_size=16)]
        nodes[0].input.extend(["", "", "", "", "s", "z", "s", "z"])
        extents = [4, 1, 5]
    else:
        weights |= {"z": np.array(zero, np.uint8)}
        weights["w"] = rng.integers(0, 255, (6, 64) if kind == "MatMulInteger" else (3, 2, 3, 3)).astype(np.uint8)
        nodes = [node("Reshape", "x t", "s"), node("DynamicQuantizeLinear", "s", "q a o"), node(kind, "q w o z", "p")]
        if kind == "ConvInteger":
            nodes[-1].attribute.extend(node(kind, "", "p", pads=[1, 1, 1, 1]).attribute)
            nodes.append(node("Add", "p i", "r"))
            weights["i"] = np.array([100, -2000, 30000], np.int32).reshape(1, 3, 1, 1)
        nodes += [node("Cast", nodes[-1].output[0], "f", to=1), node("Mul", "f a", "y")]
        extents = [4, 6, 1]
    m, x = model(nodes, {"x": extents}, ["y"], weights, opset=17), noise(*extents)
    m.graph.output[0].ClearField("type")
    if kind == "DynamicQuantizeLSTM":
        m.opset_import.add(domain="com.microsoft", version=1)
    for p in (ptir.from_onnx(m), ptir.optimize(ptir.from_onnx(m))):
        again = made(p)
        biases = {"Reshape", "Add", "Concat"}
        assert set(ops(again)) - biases == {n.op_type for n in nodes} - biases
        np.testing.assert_allclose(runtime.run(again, {"x": x})["y"], runtime.run(m, {"x": x})["y"], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", ["f32", "si32", "f16"])
def test_repeated_elements_are_a_resize_and_others_a_slice_a_border_or_a_gather(dtype: str) -> None:
    """Which is exact. ONNX Runtime resizes no f16."""
    x = np.arange(24).reshape(1, 2, 3, 4)
    taken: list[tuple[list[int], str]] = [
        ([0, 0, 1, 1, 2, 2], "Gather" if dtype == "f16" else "Resize"), ([2, 1, 0], "Slice"), ([0, 2], "Slice"), ([1], "Slice"),
        ([0, 0, 2], "Gather"), ([2, 2, 1, 1, 0, 0], "Gather"), ([1, 0, 1, 0, 1, 2], "Gather"),
        ([0, 0, 1, 2], "Pad"), ([0, 0, 1], "Pad"),
        ([0, 1, 2, 2, 2], "Pad"), ([1, 0, 1, 2, 1, 0], "Pad"), ([2, 1, 0, 1, 2], "Pad"),
    ]  # fmt: skip
    for at, name in taken:
        p = func(
            f"(%x: tensor<{dtype}, 1x2x3x4>) -> tensor<{dtype}, 1x2x{len(at)}x4>",
            f"  %t = transpose(%x) perm[2, 0, 1, 3] -> tensor<{dtype}, 3x1x2x4>",
            f"  %k = take(%t, dense<{at}> : tensor<si64, {len(at)}>) -> tensor<{dtype}, {len(at)}x1x2x4>",
            f"  %y = transpose(%k) perm[1, 2, 0, 3] -> tensor<{dtype}, 1x2x{len(at)}x4>", "  return %y",
        )  # fmt: skip
        assert ops(made(p)) == [name]
        given = x.astype({"f32": np.float32, "si32": np.int32, "f16": np.float16}[dtype])
        np.testing.assert_array_equal(ran(p, given)[0], given[:, :, at])


def test_a_resize_of_two_axes_and_a_slice_with_steps_come_back() -> None:
    from tests.bridges.onnx.test_import import model, node, noise

    how = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    numbers = {"s": np.float32([1, 1, 2, 3]), "f": np.array([1, 0]), "g": np.array([9, 5]), "a": np.array([3, 2])}
    numbers["h"] = np.array([2, 3])
    resize, slice_ = node("Resize", "x  s", "r", **how), node("Slice", "r f g a h", "y")
    resize.input[:] = ["x", "", "s"]
    m = model([resize, slice_], {"x": [1, 2, 3, 4]}, ["y"], numbers)
    m.graph.output[0].ClearField("type")
    x = noise(1, 2, 3, 4)
    for p in (ptir.from_onnx(m), ptir.optimize(ptir.from_onnx(m))):
        again = made(p)
        assert ops(again) == ["Resize", "Slice"]
        np.testing.assert_array_equal(runtime.run(again, {"x": x})["y"], runtime.run(m, {"x": x})["y"])


# ---- the command


_TWO: dict[str, Any] = {"kernel_shape": [2, 2], "strides": [2, 2]}
_THREE: dict[str, Any] = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}
RETURNING: list[tuple[str, dict[str, Any], dict[str, Any], str]] = [
    ("Relu", {}, {}, ""), ("Sigmoid", {}, {}, ""), ("LeakyRelu", {"alpha": 0.1}, {}, ""), ("HardSwish", {}, {}, ""),
    ("HardSigmoid", {"alpha": 0.25, "beta": 0.5}, {}, ""), ("Elu", {"alpha": 2.0}, {}, ""), ("Softplus", {}, {}, ""),
    ("PRelu", {}, {"slope": np.array([[[0.5]], [[-2.0]], [[0.25]]], np.float32)}, ""),
    ("PRelu", {}, {"slope": np.linspace(-1, 2, 9, dtype=np.float32)}, ""),
    ("Sqrt", {}, {}, ""), ("Clip", {}, {"low": np.float32(-0.5), "high": np.float32(0.5)}, ""), ("IsNaN", {}, {}, ""),
    ("MaxPool", _TWO, {}, ""), ("MaxPool", {**_THREE, "dilations": [2, 1]}, {}, ""),
    ("MaxPool", {**_TWO, "ceil_mode": 1}, {}, ""),
    ("AveragePool", _TWO, {}, ""), ("AveragePool", _THREE, {}, ""), ("AveragePool", {**_THREE, "count_include_pad": 1}, {}, ""),
    ("GlobalAveragePool", {}, {}, ""), ("ReduceMean", {}, {"axes": np.array([1, -1])}, ""),
    ("ReduceSumSquare", {}, {"axes": np.array([1, -1])}, ""), ("ReduceSumSquare", {"keepdims": 0}, {"axes": np.array([2])}, ""),
    ("Pad", {"mode": "reflect"}, {"pads": np.array([0, 0, 0, 3, 0, 0, 0, 8])}, ""),
    ("Pad", {"mode": "reflect"}, {"pads": np.array([0, 0, 6, 0, 0, 0, 0, 0])}, ""),
    ("Pad", {"mode": "edge"}, {"pads": np.array([0, 0, 2, 0, 0, 0, 1, 0])}, ""),
    ("Gather", {"axis": 0}, {"at": np.array([[-1, 0], [1, -2]])}, ""), ("Softmax", {"axis": 1}, {}, ""),
    ("QuantizeLinear", {}, {"scale": np.float32(0.1), "zero": np.uint8(7)}, ""),
    ("QuantizeLinear", {"axis": 1}, {"scale": np.array([0.1, 0.2, 0.3], np.float32), "zero": np.array([1, -2, 0], np.int8)}, ""),
]  # fmt: skip


@pytest.mark.parametrize(("op", "attrs", "constants", "becomes"), RETURNING, ids=[f"{k}-{r[0]}" for k, r in enumerate(RETURNING)])
def test_an_operator_comes_back_as_one(op: str, attrs: dict[str, Any], constants: dict[str, Any], becomes: str) -> None:
    from tests.bridges.onnx.test_import import model, node

    m = model([node(op, " ".join(["x", *constants]), "y", **attrs)], {"x": [2, 3, 7, 9]}, ["y"], constants)
    m.graph.output[0].ClearField("type")  # ONNX Runtime infers it
    p = ptir.from_onnx(m)
    x = np.random.default_rng(1).standard_normal((2, 3, 7, 9)).astype(np.float32)
    x = np.abs(x) if op == "Sqrt" else x
    for q in (p, ptir.optimize(p)):
        again = made(q)
        assert ops(again) == [becomes or op]
        (wanted,), (found,) = (runtime.run(each, {"x": x}).values() for each in (m, again))
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_a_convolution_over_symbols_comes_back_as_one(groups: int) -> None:
    """Of all extents but that of the channels; with one output per channel of a group it is depthwise."""
    from tests.bridges.onnx.test_import import model, node, noise

    w = noise(4, 4 // groups, 3, 3)
    how: dict[str, Any] = {"kernel_shape": [3, 3], "strides": [2, 1], "pads": [1, 0, 1, 2], "group": groups}
    m = model([node("Conv", "x w b", "y", **how)], {"x": ["N", 4, "H", "W"]}, ["y"], {"w": w, "b": noise(4)})
    m.graph.output[0].ClearField("type")
    for p in (ptir.from_onnx(m), ptir.optimize(ptir.from_onnx(m))):
        again = made(p)
        assert ops(again) == ["Conv"]
        for shape in ((1, 4, 7, 9), (3, 4, 4, 3)):
            x = noise(*shape)
            (wanted,), (found,) = (runtime.run(each, {"x": x}).values() for each in (m, again))
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


def test_dequantized_integers_come_back() -> None:
    from tests.bridges.onnx.test_import import model, node

    scale = np.array([0.1, 0.2, 0.3], np.float32)
    for dtype, number, zero in ((np.int8, 3, np.array([1, 0, -2], np.int8)), (np.int32, 6, np.zeros(3, np.int32))):
        m = model([node("DequantizeLinear", "x s z", "y", axis=1)], {"x": (number, [2, 3, 4])}, ["y"], {"s": scale, "z": zero})
        q = np.random.default_rng(1).integers(-128, 128, (2, 3, 4)).astype(dtype)
        again = made(ptir.optimize(ptir.from_onnx(m)))
        assert ops(again) == ["DequantizeLinear"]
        wanted = (q.astype(np.float32) - zero.astype(np.float32)[:, None]) * scale[:, None]
        np.testing.assert_array_equal(runtime.run(again, {"x": q})["y"], wanted)


def test_a_peer_may_approximate_to_some_units_of_the_largest_value() -> None:
    """ONNX Runtime's logistic function is 0 from -18 on, which is right to 2 units in the last place of 1."""
    from ptir_tools.tools.compare import across_engines
    from tests.bridges.onnx.test_import import model, node

    p = ptir.from_onnx(model([node("Sigmoid", "x", "y")], {"x": [1001]}, ["y"]))
    given = {"x": np.linspace(-25, 25, 1001, dtype=np.float32)}
    found = ptir.run(p, given)
    assert across_engines(ptir.read(ptir.write(p)), given, found, runtime.NAME, RunOptions())[0] == []
    expected, tolerances = compare.reference_outputs(p, given, RunOptions())
    moved = {"y": expected["y"] + np.float32(1e-6)}
    assert compare.compare(expected, moved, compare.for_peer(expected, tolerances))
    assert not compare.compare(expected, {"y": expected["y"] + np.float32(1e-7)}, compare.for_peer(expected, tolerances))


def test_quantized_models_are_compared_as_they_are_written(tmp_path: Path) -> None:
    """ONNX Runtime would fuse the product with the steps around it, which rounds otherwise."""
    from tests.bridges.onnx.test_import import model, node

    rng = np.random.default_rng(0)
    weights = {
        "s": np.float32(0.03), "z": np.uint8(120), "ws": np.float32(0.01), "wz": np.int8(0), "os": np.float32(0.2),
        "oz": np.uint8(3),
        "w": rng.integers(-127, 128, (16, 16)).astype(np.int8),
    }  # fmt: skip
    nodes = [
        node("QuantizeLinear", "x s z", "q"), node("DequantizeLinear", "q s z", "d"), node("DequantizeLinear", "w ws wz", "wd"),
        node("MatMul", "d wd", "m"), node("QuantizeLinear", "m os oz", "mq"), node("DequantizeLinear", "mq os oz", "y"),
    ]  # fmt: skip
    m = model(nodes, {"x": [32, 16]}, ["y"], weights)
    m.graph.output[0].type.tensor_type.elem_type = 1
    path = tmp_path / "m.onnx"
    path.write_bytes(m.SerializeToString())
    run_ptir("run", path, "--random", "0", "--compare", "onnxruntime")
    assert ops(made(ptir.from_onnx(m))) == [n.op_type for n in m.graph.node]


def test_a_pool_of_a_program_that_is_not_from_onnx_keeps_a_nan() -> None:
    t = "tensor<f32, 1x1x4x4>"
    window = "window_dims[1, 1, 2, 2] strides[1, 1, 2, 2] padding[[0, 0], [0, 0], [0, 0], [0, 0]] base_dilation[1, 1, 1, 1]"
    line = f"%y = reduce_window(%x) {window} window_dilation[1, 1, 1, 1] reduce[max] -> tensor<f32, 1x1x2x2>"
    p = func(f"(%x: {t}) -> tensor<f32, 1x1x2x2>", line, "return %y")
    x = np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4)
    x[0, 0, 0, 0] = NAN
    assert ops(made(p)).count("MaxPool") == 2 and ops(made(p, lossy=True)) == ["MaxPool"]
    np.testing.assert_array_equal(ran(p, x)[0][0, 0], [[NAN, 7], [13, 15]])


def test_the_command_writes_checks_and_keeps_constants_outside(tmp_path: Path) -> None:
    source, out = str(FOLDER / "resnet.ptir"), tmp_path / "r.onnx"
    assert run_ptir("translate", source, "--to", "onnx", "-o", str(out), "--check").status == 0
    whole = out.read_bytes()
    assert run_ptir("translate", source, "--to", "onnx", "-o", str(out), "--external-data", "--check").status == 0
    data = tmp_path / "r.onnx.data"
    assert data.stat().st_size > 10_000 and out.stat().st_size < len(whole) - 10_000
    onnx.checker.check_model(str(out), full_check=True)
    assert run_ptir("run", str(out), "--random", "0", "--compare", "onnxruntime").status == 0
    hold("resnet", runtime.run(str(out), inputs("resnet")), "f32")
    info = run_ptir("info", str(out))
    assert info.text.startswith("format    onnx\n")
    assert '"format": "onnx"' in run_ptir("info", "--json", str(out)).text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--external-data",), "--external-data writes a file next to the model"),
        (("--opset", "12"), "operator sets from 13 to"),
        (("--weights-to", "w.safetensors"), "--weights-to is for text PTIR"),
    ],
)
def test_wrong_usage(options: tuple[str, ...], message: str) -> None:
    found = run_ptir("translate", str(FOLDER / "resnet.ptir"), "--to", "onnx", *options)
    assert found.status == 2 and message in found.err and not found.text


def test_other_irs_become_onnx_through_ptir(tmp_path: Path) -> None:
    path = tmp_path / "net.mind.ir"
    made_ = run_ptir("gen", "--seed", "3", "--ir", "mind", "--ops", "4")
    path.write_text(made_.text)
    found = run_ptir("translate", str(path), "--to", "onnx", "-o", str(tmp_path / "m.onnx"), "--check")
    assert found.status == 0, found.err


def test_any_program_is_compared_with_onnx_runtime() -> None:
    found = run_ptir("run", str(FOLDER / "quantized_mlp.ptir"), "--random", "0", "--bind", "N=3", "--compare", "onnxruntime")
    assert found.status == 0, found.err


def test_a_wrong_model_fails_the_check(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "f.ptir"
    path.write_text("func @f(%x: tensor<f32, 3>) -> tensor<f32, 3> {\n  %y = exp(%x) -> tensor<f32, 3>\n  return %y\n}\n")
    monkeypatch.setitem(LOWERINGS, "ptir.exp", lambda e, op, x: e("Abs", x))
    found = run_ptir("translate", str(path), "--to", "onnx", "--check", "-o", str(tmp_path / "f.onnx"))
    assert found.status == 1 and "CheckFailed" in found.err and "--compare onnxruntime" in found.err
    assert not (tmp_path / "f.onnx").exists()


def test_the_table_names_operators_that_exist() -> None:
    for name in COMPUTED:
        onnx.defs.get_schema(name, 21, "")


# ---- options that users of ONNX expect


def branched() -> Any:
    """A model with a name that text PTIR cannot spell, metadata, and an operator that PTIR has not."""
    from tests.bridges.onnx.test_import import model, node, noise

    m = model(
        [node("MatMul", "in/x w", "h/0"), node("Relu", "h/0", "r"), node("Unique", "r", "z"), node("Exp", "r", "y")],
        {"in/x": ["N", 4]}, ["y", "z"], {"w": noise(4, 3)},
    )  # fmt: skip
    m.doc_string = "a model"
    m.metadata_props.add(key="author", value="someone")
    m.graph.output[0].type.tensor_type.elem_type, m.graph.output[1].type.tensor_type.elem_type = 1, 7
    return m


def test_a_part_of_a_model(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(branched(), path)
    assert run_ptir("verify", str(path)).status == 1  # Unique
    whole = run_ptir("info", str(path), "--to-value", "y")
    assert whole.status == 0 and "input   in/x  tensor<f32, ?Nx4>" in whole.text and "output  y  tensor<f32, ?Nx3>" in whole.text
    tail = run_ptir("info", str(path), "--from-value", "h/0", "--to-value", "y")
    assert "input   h/0  tensor<f32, ?Nx3>" in tail.text and "2 ops" not in whole.text.splitlines()[1]
    ran_ = run_ptir(
        "run", str(path), "--from-value", "h/0", "--to-value", "y", "--random", "0", "--bind", "N=2", "--compare", "onnxruntime"
    )
    assert ran_.status == 0, ran_.err
    wrong = run_ptir("info", str(path), "--to-value", "yy")
    assert wrong.status == 2 and "yy" in wrong.err
    assert run_ptir("info", str(FOLDER / "resnet.ptir"), "--to-value", "y").status == 2
    assert list(ptir.run(ptir.from_onnx(branched(), to_values=["r"]), [np.zeros((1, 4), np.float32)])) == ["r"]


def test_a_constant_of_equal_elements_takes_no_name_of_another_block() -> None:
    p = ptir.read("""program @main (spec_version = ptir.v0.4) {
  func @main(%p: tensor<i1>, %w: tensor<f32, 2>) -> (tensor<f32, 2>, tensor<f32, 2>) {
    %t = tile(%w) repeats[1] -> tensor<f32, 2>
    %z = cond(%p, %w) true_region[^r0] false_region[^r0] -> tensor<f32, 2>
    return %z, %t
  }
  region ^r0(%a: tensor<f32, 2>) -> tensor<f32, 2> {
    %t = constant() value[dense<[1.0, 1.0]>] -> tensor<f32, 2>
    %i = constant() value[dense<[0, 1]>] -> tensor<si32, 2>
    %s = gather(%t, %i) axis[0] -> tensor<f32, 2>
    return %s
  }
}
""")
    w = np.array([5, 6], np.float32)
    for got in (ran(p, np.array(True), w), list(ptir.run(ptir.from_onnx(made(p)), [np.array(True), w]).values())):
        np.testing.assert_array_equal(got, [[1, 1], [5, 6]])


def test_metadata_and_names_are_kept() -> None:
    again = made(ptir.from_onnx(branched(), to_values=["y"]))
    assert again.doc_string == "a model" and {p.key: p.value for p in again.metadata_props} == {"author": "someone"}
    assert [v.name for v in again.graph.input] == ["in/x"]


def test_the_first_value_that_differs_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ptir_tools.bridges.onnx.table import HANDLERS

    path = tmp_path / "m.onnx"
    m = branched()
    onnx.save(m, path)
    how = ("run", str(path), "--to-value", "y", "--random", "0", "--bind", "N=2", "--compare", "onnxruntime", "--all-values")
    assert run_ptir(*how).status == 0
    monkeypatch.setitem(HANDLERS, ("", "Relu"), lambda node: node[0].block.op("abs", node[0]))
    found = run_ptir(*how)
    assert found.status == 1 and "m.onnx:3:1" in found.err, found.err
    assert "the first value that differs on onnxruntime: r[" in found.err, found.err
    alone = run_ptir("run", str(FOLDER / "resnet.ptir"), "--random", "0", "--all-values")
    assert alone.status == 2 and "it needs --compare" in alone.err
    assert run_ptir("run", str(FOLDER / "resnet.ptir"), "--random", "0", "--compare", "native", "--all-values").status == 0


# ---- idioms in programs that were never ONNX

_ODD = np.float32([np.nan, 0.0, -0.0, np.inf, -np.inf, 1e-8, -1e-8, 0.25, -0.25, 1, -1, 2.5, -2.5, 3, -3, 17, -17, 88, -88, 1e30])
IDIOMS: list[tuple[str, str, Any]] = [
    ("Sqrt", "z = compare_eq(x, 0); i = compare_eq(inf, x); r = rsqrt(x); p = mul(x, r); s = select(i, x, p);"
     "y = select(z, x, s)", np.sqrt),
    ("LeakyRelu", "f = compare_lt(x, 0); m = mul(x, 0.25); y = select(f, m, x)", lambda x: np.where(x < 0, x * 0.25, x)),
    ("LeakyRelu", "f = compare_lt(x, 0); m = div(x, 4); y = select(f, m, x)", lambda x: np.where(x < 0, x / 4, x)),
    ("IsNaN", "y = compare_ne(x, x)", np.isnan),
    ("Sigmoid", "n = neg(x); e = exp(n); s = add(e, 1); y = reciprocal(s)", lambda x: 1 / (1 + np.exp(-x))),
    ("Sigmoid", "n = neg(x); e = exp(n); s = add(1, e); y = div(1, s)", lambda x: 1 / (1 + np.exp(-x))),
    ("HardSigmoid", "s = mul(x, 0.25); a = add(s, 0.5); l = maximum(a, 0); y = minimum(l, 1)",
     lambda x: np.clip(x * 0.25 + 0.5, 0, 1)),
    ("HardSigmoid", "s = mul(0.5, x); a = add(0.25, s); y = clamp(a, 0, 1)", lambda x: np.clip(x * 0.5 + 0.25, 0, 1)),
    ("HardSwish", "s = div(x, 6); a = add(s, 0.5); l = maximum(a, 0); u = minimum(l, 1); y = mul(x, u)",
     lambda x: x * np.clip(x / 6 + 0.5, 0, 1)),
    ("Clip", "l = maximum(x, -0.5); y = minimum(l, 2)", lambda x: np.clip(x, -0.5, 2)),
    ("Clip", "u = minimum(x, 2); y = maximum(u, -0.5)", lambda x: np.clip(x, -0.5, 2)),
    ("Clip", "y = clamp(x, -0.5, 2)", lambda x: np.clip(x, -0.5, 2)),
    ("Relu", "y = maximum(x, 0)", lambda x: np.maximum(x, 0)),
    ("Relu", "y = maximum(0, x)", lambda x: np.maximum(x, 0)),
]  # fmt: skip


def written(lines: str, shape: str) -> Program:
    """A function of %x by statements `name = op(operands)`; numbers are constants of the shape."""
    t = f"tensor<f32, {shape}>"

    def operand(text: str) -> str:
        return f"%{text}" if text.isalpha() and text != "inf" else f"dense<{float(text)}> : {t}"

    made_of = []
    for statement in lines.split(";"):
        name, _, rest = statement.strip().partition(" = ")
        op, _, xs = rest.rstrip(")").partition("(")
        result = t.replace("f32", "i1") if op.startswith("compare") else t
        made_of.append(f"  %{name} = {op}({', '.join(operand(x.strip()) for x in xs.split(','))}) -> {result}")
    return func(f"(%x: {t}) -> {result}", *made_of, "  return %y")


@pytest.mark.parametrize(("operator", "lines", "oracle"), IDIOMS, ids=[f"{k}-{r[0]}" for k, r in enumerate(IDIOMS)])
def test_idioms_of_programs_that_were_never_onnx(operator: str, lines: str, oracle: Any) -> None:
    """They are one operator, and it gives NaN, infinities and signs of zero as the ops do, to NumPy in float64."""
    p = written(lines, f"{len(_ODD)}")
    assert ops(made(p)) == [operator]
    with np.errstate(all="ignore"):
        wanted = np.asarray(oracle(_ODD.astype(np.float64)))
    for q in (p, ptir.optimize(p)):
        (found,) = ran(q, _ODD)
        own = next(iter(ptir.run(q, {"x": _ODD}, engine="reference").values()))
        for y in (found, own):
            np.testing.assert_allclose(y, wanted.astype(y.dtype), rtol=1e-6, atol=3e-7)
        if found.dtype == np.float32 and operator != "Relu":  # ONNX does not say which zero that gives
            zero = (found == 0) & (own == 0)
            np.testing.assert_array_equal(np.signbit(found[zero]), np.signbit(own[zero]), err_msg=f"{_ODD[zero]}")


def test_idioms_of_windows_means_indices_and_steps() -> None:
    """Programs that were never ONNX: numbers of NumPy in float64, a NaN among them."""
    t = "tensor<f32, 2x3x6x8>"
    x = np.random.default_rng(3).standard_normal((2, 3, 6, 8)).astype(np.float32)
    x[0, 0, 0, 0], x[0, 1, 2, 3], x[1, 2, 5, 7] = np.nan, -0.0, np.inf
    small = "tensor<f32, 2x3x3x4>"
    window = "window_dims[1, 1, 2, 2] strides[1, 1, 2, 2] padding[[0, 0], [0, 0], [0, 0], [0, 0]]"
    window += " base_dilation[1, 1, 1, 1] window_dilation[1, 1, 1, 1]"
    cases: list[tuple[list[str], str, str, Any]] = [
        (["MaxPool", "IsNaN", "MaxPool", "Greater", "Where"], small, f"%y = reduce_window(%x) {window} reduce[max] -> {small}",
         lambda v: v.reshape(2, 3, 3, 2, 4, 2).max((3, 5))),
        (["AveragePool"], small, f"%s = reduce_window(%x) {window} reduce[sum] -> {small}\n"
         f"  %y = div(%s, dense<4.0> : {small}) -> {small}", lambda v: v.reshape(2, 3, 3, 2, 4, 2).mean((3, 5))),
        (["ReduceMean"], "tensor<f32, 2x6x8>", "%s = reduce_sum(%x) axes[1] -> tensor<f32, 2x6x8>\n"
         "  %y = div(%s, dense<3.0> : tensor<f32, 2x6x8>) -> tensor<f32, 2x6x8>", lambda v: v.mean(1)),
        (["GlobalAveragePool"], "tensor<f32, 2x3x1x1>", "%s = reduce_sum(%x) axes[2, 3] keepdims[true] -> tensor<f32, 2x3x1x1>\n"
         "  %y = div(%s, dense<48.0> : tensor<f32, 2x3x1x1>) -> tensor<f32, 2x3x1x1>", lambda v: v.mean((2, 3), keepdims=True)),
        (["QuantizeLinear", "IsNaN", "Where"], "tensor<si8, 2x3x6x8>", f"%d = div(%x, dense<0.1> : {t}) -> {t}\n"
         "  %y = quantize(%d) scales[1.0] zero_points[3] output_dtype[si8] -> tensor<si8, 2x3x6x8>",
         lambda v: np.nan_to_num(np.clip(np.rint(v.astype(np.float32) / np.float32(0.1)) + 3, -128, 127), nan=0)),
    ]  # fmt: skip
    for names, result, lines, oracle in cases:
        p = func(f"(%x: {t}) -> {result}", "  " + lines, "  return %y")
        assert [n for n in ops(made(p)) if n != "Cast"] == names
        with np.errstate(all="ignore"):
            wanted = oracle(x.astype(np.float64))
        own = next(iter(ptir.run(p, {"x": x}, engine="reference").values()))
        for found in (ran(p, x)[0], own):
            np.testing.assert_allclose(found, wanted.astype(found.dtype), rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize(("left", "right"), [(0, 0), (0, 1), (1, 0), (1, 1)])
@pytest.mark.parametrize("bias", ["8", "1x8", "5x1", "5x8", "1"])
def test_a_product_of_matrices_and_what_is_added_is_one_operator(left: int, right: int, bias: str) -> None:
    a, b, t = ("4x5", "5x4")[left], ("4x8", "8x4")[right], "tensor<f32, 5x8>"
    p = func(
        f"(%a: tensor<f32, {a}>, %b: tensor<f32, {b}>, %c: tensor<f32, {bias}>) -> {t}",
        f"  %d = dot_general(%a, %b) contract_lhs[{left}] contract_rhs[{right}] -> {t}",
        f"  %h = mul(dense<0.5> : {t}, %d) -> {t}", f"  %w = broadcast_to(%c) result_shape[5, 8] -> {t}",
        f"  %y = add(%w, %h) -> {t}", "  return %y",
    )  # fmt: skip
    assert ops(made(p)) == ["Gemm"]
    rng = np.random.default_rng(left)
    x, y, c = (rng.standard_normal(tuple(map(int, s.split("x")))).astype(np.float32) for s in (a, b, bias))
    x[0, 0], c.flat[0] = np.inf, np.nan
    with np.errstate(all="ignore"):
        wanted = 0.5 * (np.float64(x if left else x.T) @ np.float64(y.T if right else y)) + c
    np.testing.assert_allclose(ran(p, x, y, c)[0], wanted, rtol=1e-5, atol=1e-6)


def test_what_is_no_product_and_sum_stays_two() -> None:
    """A product that is read twice is computed once; a factor 0 would hide a NaN; f64 has factors that ONNX rounds."""

    def by(factor: str, dtype: str = "f32", result: str = "%y") -> Program:
        t = f"tensor<{dtype}, 3x3>"
        return func(
            f"(%a: {t}, %c: {t}) -> ({t}, {t})", f"  %d = dot_general(%a, %a) contract_lhs[1] contract_rhs[0] -> {t}",
            f"  %h = mul(%d, dense<{factor}> : {t}) -> {t}", f"  %y = add(%h, %c) -> {t}", f"  return %y, {result}",
        )  # fmt: skip

    assert "Gemm" in ops(made(by("0.5")))
    for p in (by("0.5", result="%d"), by("0.5", result="%h"), by("0.0"), by("inf"), by("0.1", "f64")):
        assert "Gemm" not in ops(made(p))
        a = np.float64([[np.nan, 1, 2], [3, 4, 5], [6, 7, np.inf]]).astype(np.float64 if "f64" in ptir.write(p) else np.float32)
        found, wanted = ran(p, a, a), ptir.run(p, {"a": a, "c": a}, engine="reference").values()
        for x, y in zip(found, wanted, strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-6)


@pytest.mark.parametrize("axes", [1, 3])
def test_convolutions_of_one_and_three_axes_come_back(axes: int) -> None:
    from tests.bridges.onnx.test_import import evaluated, model, node, noise

    how: dict[str, Any] = {"strides": [2, 1, 1], "dilations": [1, 2, 1], "pads": [1, 0, 2, 2, 1, 0]}
    some = {k: [*v[:axes], *v[3 : 3 + axes]] for k, v in how.items()}
    extents, taps = [9, 8, 7][:axes], [3, 2, 2][:axes]
    for bias in ("", " b"):
        weights = {"w": noise(8, 4, *taps), **({"b": noise(8)} if bias else {})}
        m = model([node("Conv", "x w" + bias, "y", kernel_shape=taps, **some)], {"x": ["N", 4, *extents]}, ["y"], weights)
        x = noise(2, 4, *extents)
        for p in (ptir.from_onnx(m), ptir.optimize(ptir.from_onnx(m))):
            again = made(p)
            assert [n for n in ops(again) if n != "Identity"] == ["Conv"]
            np.testing.assert_allclose(runtime.run(again, {"x": x})["y"], evaluated(m, {"x": x})[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("length", [64, 25])
@pytest.mark.parametrize("batch", [2, "B"])
@pytest.mark.parametrize("windowed", [False, True])
def test_spectra_come_back(length: int, batch: int | str, windowed: bool) -> None:
    """`STFT`, also of a part of the frames, and `DFT` of a padded signal."""
    from tests.bridges.onnx.test_import import evaluated, model, node, noise

    window = np.hanning(length).astype(np.float32)
    numbers = {"step": np.int64(7), "n": np.int64(length), **({"w": window} if windowed else {})}
    short = {"first": np.array([0]), "last": np.array([-1]), "one": np.array([1])}
    stft = onnx.helper.make_node("STFT", ["x", "step", "w" if windowed else "", "n"], ["y"], onesided=1)
    for nodes, more in (([stft], {}), ([stft, node("Slice", "y first last one", "z")], short)):
        m = model(nodes, {"x": [batch, 200, 1]}, ["z" if more else "y"], {**numbers, **more})
        m.graph.output[0].ClearField("type")
        x = noise(2, 200, 1)
        for p in (ptir.from_onnx(m), ptir.optimize(ptir.from_onnx(m))):
            again = made(p)
            assert "STFT" in ops(again) and "MatMul" not in ops(again) and len(ops(again)) < 8
            np.testing.assert_allclose(
                next(iter(runtime.run(again, {"x": x}).values())), evaluated(m, {"x": x})[0], rtol=1e-4, atol=1e-4
            )
    dft = node("DFT", "x n axis", "y", onesided=1)
    m = model([dft], {"x": [batch, 3, 20, 1]}, ["y"], {"n": np.int64(length), "axis": np.int64(2)}, opset=20)
    m.graph.output[0].ClearField("type")
    x = noise(2, 3, 20, 1)
    for p in (ptir.from_onnx(m), ptir.optimize(ptir.from_onnx(m))):
        again = made(p)
        assert "DFT" in ops(again) and "MatMul" not in ops(again)
        np.testing.assert_allclose(runtime.run(again, {"x": x})["y"], evaluated(m, {"x": x})[0], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("extent", [40, "T"])
def test_long_windows_are_read_by_their_indices(extent: int | str) -> None:
    g = ptir.Graph()
    y = g.input("x", "f32", (2, extent, 3)).extract_patches([12], strides=[5], dilation=[2], padding=[[3, 1]])
    p = g.returns((y + 1.0).named("y"))
    again = made(p)
    assert "Gather" in ops(again) and "Slice" not in ops(again)
    x = np.random.default_rng(4).standard_normal((2, 40, 3)).astype(np.float32)
    np.testing.assert_array_equal(runtime.run(again, {"x": x})["y"], ptir.run(p, {"x": x})["y"])


def test_padding_that_no_convolution_has_stays_a_composition() -> None:
    t = "tensor<f32, 1x6x2>"
    for value, names in (("0.0", 1), ("1.0", 0)):
        p = func(
            f"(%x: {t}, %w: tensor<f32, 6x4>, %b: tensor<f32, 4>) -> tensor<f32, 1x7x4>",
            f"  %p = extract_patches(%x) window[3] padding[[2, 1]] pad_value[{value}] -> tensor<f32, 1x7x6>",
            "  %d = dot_general(%p, %w) contract_lhs[2] contract_rhs[0] -> tensor<f32, 1x7x4>",
            "  %s = broadcast_to(%b) result_shape[1, 7, 4] -> tensor<f32, 1x7x4>",
            "  %y = add(%s, %d) -> tensor<f32, 1x7x4>", "  return %y",
        )  # fmt: skip
        assert ops(made(p)).count("Conv") == names
        rng = np.random.default_rng(0)
        x, w, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((1, 6, 2), (6, 4), (4,)))
        padded = np.pad(x.astype(np.float64), ((0, 0), (2, 1), (0, 0)), constant_values=float(value))
        wanted = np.stack([padded[:, k : k + 3].reshape(1, 6) @ w + b for k in range(7)], 1)
        np.testing.assert_allclose(ran(p, x, w, b)[0], wanted, rtol=1e-5, atol=1e-6)
