"""`layout` and `fold-scales`: fewer transposes, no batch normalization, equal numbers."""

from __future__ import annotations

import math

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


KINDS = (
    "add", "scale", "max", "concat", "pad", "slice", "reduce", "drop", "take", "window", "row", "turn", "cast", "twist", "grid",
)  # fmt: skip


def drawn(seed: int) -> tuple[ptir.Program, list[np.ndarray]]:
    """Ops in one order of axes between transposes, on small integers, whose sums are exact. Extents are alike or all differ."""
    rng = np.random.default_rng(seed)
    shape = tuple(map(int, rng.permutation([2, 3, 4, 5]))) if rng.random() < 0.6 else (3, 3, 3, 3)
    there = tuple(map(int, rng.permutation(4)))
    g = ptir.Graph()
    x, z = g.input("x", "f32", shape), g.input("z", "f32", shape)
    given = [rng.integers(-3, 4, shape).astype(np.float32) for _ in range(2)]
    values = [x.transpose(there), z.transpose(there)]
    results = []
    for _ in range(int(rng.integers(2, 7))):
        y = values[int(rng.integers(len(values)))]
        other = next((v for v in reversed(values) if v.shape == y.shape and v is not y), y)
        axis, n = int(rng.integers(4)), y.shape
        kind = rng.choice(KINDS)
        if kind == "add":
            y = y + other
        elif kind == "scale":
            part = rng.integers(1, 4, [n[a] if a >= axis and rng.random() < 0.7 else 1 for a in range(int(rng.integers(4)), 4)])
            y = y * g.constant(part.astype(np.float32)).broadcast_to(n)
        elif kind == "max":
            y = y.maximum(other)
        elif kind == "concat":
            y = g.op("concat", [y, other], axis=axis)
        elif kind == "pad":
            low, high = ([int(rng.integers(3)) if a == axis else 0 for a in range(4)] for _ in range(2))
            y = y.pad(low, high, pad_value=2)
        elif kind == "slice":
            starts = [int(a == axis and n[a] > 1) for a in range(4)]
            y = y.slice(starts, [d - s for d, s in zip(n, starts, strict=True)])
        elif kind == "reduce":
            y = y.reduce_sum(sorted({axis, int(rng.integers(4))}), keepdims=True).broadcast_to(n)
        elif kind == "drop":
            results.append(y.reduce_max(sorted({axis, int(rng.integers(4))})))
        elif kind == "take":
            y = y.taken(g.constant(rng.integers(0, n[axis], 4).astype(np.int32)), axis)
        elif kind == "twist":
            order = tuple(map(int, rng.permutation(4)))
            picked = y.transpose(order).take(g.constant(rng.integers(0, n[order[0]], n[order[0]]).astype(np.int32)))
            y = picked.transpose(tuple(map(int, rng.permutation(4))))
        elif kind == "grid":
            order = tuple(map(int, rng.permutation(4)))
            places = g.constant(rng.integers(0, n[order[0]], (2, 3)).astype(np.int32))
            results.append(y.transpose(order).take(places).transpose(tuple(map(int, rng.permutation(5)))))
        elif kind == "window":
            sizes = [2 if a == axis and n[a] > 1 else 1 for a in range(4)]
            y = y.reduce_window(
                sizes,
                strides=[1] * 4,
                padding=[(int(a == axis), 0) for a in range(4)],
                base_dilation=[1] * 4,
                window_dilation=[1] * 4,
            )
        elif kind == "row":
            y = y + g.constant(rng.integers(-3, 4, n[3:]).astype(np.float32)).broadcast_to(n)
        elif kind == "turn":
            order = tuple(map(int, rng.permutation(4)))
            results.append(y.transpose(order))
            continue
        else:
            y = y.cast("f64").cast("f32")
        values.append(y)
    back = tuple(there.index(a) for a in range(4)) if rng.random() < 0.8 else tuple(map(int, rng.permutation(4)))
    results.append(values[-1].transpose(back))
    if rng.random() < 0.2:
        results.append(values[int(rng.integers(len(values)))])
    return g.returns(*results), given


def moved(program: ptir.Program) -> int:
    """The elements that transposes move; one that leaves all elements in their order moves none."""
    count = 0
    for op in (op for op in program.main.body if op.defn.short == "transpose"):
        shape, perm = op.operands[0].type.shape, op.attr("perm")
        places = np.arange(math.prod(shape)).reshape(shape)
        count += places.size * (not np.array_equal(places.transpose(perm).reshape(-1), places.reshape(-1)))
    return count


def test_random_ops_between_transposes_keep_their_numbers() -> None:
    turned = before = after = 0
    for seed in range(300):
        program, given = drawn(seed)
        made = ptir.optimize(program, "layout")
        turned += ops(made) != ops(program)
        plain, clean = (ptir.optimize(program, f"{first}canonicalize,cse,dce") for first in ("", "canonicalize,cse,dce,layout,"))
        before, after = before + moved(plain), after + moved(clean)
        for want, got in zip(*(ptir.run(p, given, engine="reference").values() for p in (program, made)), strict=True):
            np.testing.assert_array_equal(got, want, err_msg=f"seed {seed}\n{ptir.write(program)}\n{ptir.write(made)}")
    assert turned > 80 and after < 0.69 * before, (before, after)


CHANNELS = {
    # what is between two convolutions, and the extents that its ops have for images that are channels first
    "%b = add(%c1, %c1) -> C": {"add": [2, 4, 5, 6]},
    "%k = abs(%c1) -> C\n%b = mul(%k, %c1) -> C": {"abs": [2, 4, 5, 6], "mul": [2, 4, 5, 6]},
    "%k = reduce_max(%c1) axes[1, 2] keepdims[true] -> tensor<f32, 2x1x1x4>\n%j = neg(%k) -> tensor<f32, 2x1x1x4>\n"
    "%m = broadcast_to(%j) result_shape[2, 5, 6, 4] -> C\n%b = add(%m, %c1) -> C": {"add": [2, 4, 5, 6]},
}


@pytest.mark.parametrize("between", CHANNELS)
def test_images_are_channels_first_between_convolutions_where_asked_for(between: str) -> None:
    """As ONNX has them, so that no transpose is between. Their numbers stay, and without the option nothing moves."""
    weights = np.random.default_rng(0).uniform(-1, 1, (36, 4)).astype("<f4").tobytes().hex()
    program = ptir.read(
        f'func @main(%x: {C}) -> {C} {{\n  %w = constant() value[dense<"0x{weights}">] -> tensor<f32, 36x4>\n'
        f"{CONVOLUTION.format(o='c1', x='x')}{between.replace('C', C)}\n{CONVOLUTION.format(o='c2', x='b')}  return %c2\n}}\n"
    )
    x = np.random.default_rng(1).uniform(-1, 1, (2, 5, 6, 4)).astype(np.float32)
    (want,) = ptir.run(program, [x], engine="reference").values()
    for called in ("", "convolutions,"):
        for option, first in (("", False), ("{channels-first=true}", True)):
            made = ptir.optimize(program, f"{called}layout{option},cse,dce")
            (got,) = ptir.run(made, [x], engine="reference").values()
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5 * np.abs(want).max())
            for name, shape in CHANNELS[between].items():
                (op,) = [op for op in made.main.body if op.defn.short == name]
                assert list(op.result.type.shape) == (shape if first else [2, 5, 6, 4]), ptir.write(made)
            assert moved(made) == (2 * x.size if first else 0)
