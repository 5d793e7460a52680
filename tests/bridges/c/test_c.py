"""The C of random programs, compiled with sanitizers, gives the results of the reference engine within its bounds."""

from __future__ import annotations

import random
import subprocess
import warnings
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

import ptir_tools
from ptir_tools import convert
from ptir_tools.bridges.c import complexes
from ptir_tools.bridges.c.format import KNOWN
from ptir_tools.bridges.c.scalars import MEMORY, NIBBLES
from ptir_tools.bridges.c.steps import SEVERAL
from ptir_tools.core.arrays import numpy_dtype
from ptir_tools.core.choices import Seeded
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Options, Program
from ptir_tools.core.dtypes import F64, FP8_E4M3
from ptir_tools.dialects import load_dialect
from ptir_tools.dialects.ptir.generate import generate
from ptir_tools.engines.compare import compare, reference_outputs
from ptir_tools.engines.inputs import random_inputs
from ptir_tools.engines.options import RunOptions
from tests.bridges.c.running import COMPILERS, FAST, SEED, STRICT, run, unbounded, written
from tests.conftest import run_ptir
from tests.ptir.loop_programs import Carries, loops
from tests.ptir.oracle import DTYPES

pytestmark = pytest.mark.skipif(not COMPILERS, reason="there is no C compiler")


def agrees(program: Program, folder: Path, seed: int, compiler: str = "gcc", flags: list[str] | None = None) -> bool:
    """Whether there is C for the program. Asserts that its results are those of the reference."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if (text := written(program)) is None:
            return False
        inputs = random_inputs(program, seed, special=seed % 3 == 0)
        expected, tolerances = reference_outputs(program, inputs, RunOptions(seed=SEED))
    status, found = run(program, text, inputs, expected, folder, compiler, flags)
    assert status == 0
    assert not compare(expected, found, tolerances), text
    return True


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("seed", range(12))
def test_random_programs_of_ptir(seed: int, compiler: str, tmp_path: Path) -> None:
    size = random.Random(seed).randint(2, 10)
    program = generate(Seeded(seed), dtypes=list(MEMORY), size=size, only=sorted(KNOWN), symbols=False)
    assert agrees(program, tmp_path, seed, compiler)


@pytest.mark.parametrize("ir", ["mind", "tiny"])
@pytest.mark.parametrize("seed", [*range(1, 4), *range(5, 8)])
def test_random_programs_of_other_irs(ir: str, seed: int, tmp_path: Path) -> None:
    before = load_dialect(ir).random(Seeded(seed), size=8, symbols=False)
    program = convert.translate(before, "ptir", Diagnostics(before.source), Options())
    assert program is not None
    assert agrees(program, tmp_path, seed)


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("seed", range(4))
def test_loops_and_branches(seed: int, compiler: str, tmp_path: Path) -> None:
    assert agrees(loops(seed), tmp_path, seed, compiler)
    assert agrees(Carries(seed).program, tmp_path, seed, compiler)


@pytest.mark.parametrize("seed", range(8))
def test_rankings_and_scatters(seed: int, tmp_path: Path) -> None:
    program = generate(Seeded(seed), dtypes=list(MEMORY), size=5, only=sorted(SEVERAL), symbols=False)
    assert agrees(program, tmp_path, seed)


ROWS = """program @f (spec_version = ptir.v0.4) {
  func @f(%x: tensor<f32, ?Tx3>, %h: tensor<f32, 3>, %w: tensor<f32, 3x3>) -> (tensor<f32, 3>, tensor<f32, ?Tx3>) {
    %r = scan(%h, %w, %x) body_region[^step] carry_count[2] scan_output_count[1]
      -> (tensor<f32, 3>, tensor<f32, 3x3>, tensor<f32, ?Tx3>)
    return %r[0], %r[2]
  }
  region ^step(%h: tensor<f32, 3>, %w: tensor<f32, 3x3>, %x: tensor<f32, 3>)
      -> (tensor<f32, 3>, tensor<f32, 3x3>, tensor<f32, 3>) {
    %p = dot_general(%w, %h) batch_lhs[] batch_rhs[] contract_lhs[1] contract_rhs[0] -> tensor<f32, 3>
    %s = add(%p, %x) -> tensor<f32, 3>
    %n = tanh(%s) -> tensor<f32, 3>
    return %n, %w, %h
  }
}
"""


@pytest.mark.parametrize("steps", [0, 1, 5])
def test_a_scan_over_a_symbol(steps: int, tmp_path: Path) -> None:
    program = ptir_tools.read(ROWS)
    text = written(program)
    assert text is not None and "memcpy" in text
    assert "w_" not in text, "a carry that never changes is not copied"
    draw = np.random.default_rng(1)
    inputs = {name: draw.standard_normal(n).astype(np.float32) for name, n in (("x", (steps, 3)), ("h", 3), ("w", (3, 3)))}
    expected, tolerances = reference_outputs(program, inputs, RunOptions())
    status, found = run(program, text, inputs, expected, tmp_path)
    assert status == 0
    assert not compare(expected, found, tolerances)


SYMBOLIC = """func @f(%x: tensor<f32, ?Nx?M>, %i: tensor<si32, ?K>) -> (tensor<f32, ?Kx?M>, tensor<f32, ?D>) where ?D = ?N + 2 {
  %y = take(%x, %i) -> tensor<f32, ?Kx?M>
  %e = exp(%y) -> tensor<f32, ?Kx?M>
  %s = reduce_sum(%x) axes[1] -> tensor<f32, ?N>
  %p = pad(%s) low[1] high[1] pad_value[0.5] -> tensor<f32, ?D>
  return %e, %p
}
"""


@pytest.mark.parametrize(("n", "m", "k"), [(3, 40, 2), (1, 1, 5), (2, 0, 1), (2, 3, 0)])
def test_symbols_are_arguments(n: int, m: int, k: int, tmp_path: Path) -> None:
    program = ptir_tools.read(SYMBOLIC)
    text = written(program)
    assert text is not None and "int64_t K, int64_t M, int64_t N" in text
    x, i = np.random.default_rng(0).standard_normal((n, m)).astype(np.float32), np.arange(k, dtype=np.int32) % n
    inputs = {"x": x, "i": i}
    expected, tolerances = reference_outputs(program, inputs, RunOptions())
    status, found = run(program, text, inputs, expected, tmp_path)
    assert status == 0
    assert not compare(expected, found, tolerances)


SHARED = """func @f(%x: tensor<DTYPE, ?Bx4x24>) -> (tensor<DTYPE, ?Bx4x24>, tensor<DTYPE, ?B>, OTHERS) {
  %m = reduce_max(%x) axes[2] keepdims[true] -> tensor<DTYPE, ?Bx4x1>
  %mb = broadcast_to(%m) result_shape[?B, 4, 24] -> tensor<DTYPE, ?Bx4x24>
  %d = sub(%x, %mb) -> tensor<DTYPE, ?Bx4x24>
  %e = exp(%d) -> tensor<DTYPE, ?Bx4x24>
  %z = reduce_sum(%e) axes[2] keepdims[true] -> tensor<DTYPE, ?Bx4x1>
  %zb = broadcast_to(%z) result_shape[?B, 4, 24] -> tensor<DTYPE, ?Bx4x24>
  %p = div(%e, %zb) -> tensor<DTYPE, ?Bx4x24>
  %s = reduce_sum(%p) axes[1, 2] -> tensor<DTYPE, ?B>
  LAST
  return %p, %s, %q
}
"""
# A product reads rows as a whole, a transpose other rows than its own.
LAST = {
    "own": ("tensor<DTYPE, ?Bx4x24>", "%q = mul(%e, %zb) -> tensor<DTYPE, ?Bx4x24>"),
    "columns": ("tensor<DTYPE, ?Bx24x4>", "%t = transpose(%e) perm[0, 2, 1] -> tensor<DTYPE, ?Bx24x4>\n"
                "  %q = neg(%t) -> tensor<DTYPE, ?Bx24x4>"),
    "others": ("tensor<DTYPE, 4x?Bx24>", "%t = transpose(%zb) perm[1, 0, 2] -> tensor<DTYPE, 4x?Bx24>\n"
               "  %q = exp(%t) -> tensor<DTYPE, 4x?Bx24>"),
}  # fmt: skip


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("dtype", ["f32", "f64", "bf16"])
@pytest.mark.parametrize("last", LAST)
def test_steps_that_share_rows(last: str, dtype: str, compiler: str, tmp_path: Path) -> None:
    others, line = LAST[last]
    program = ptir_tools.read(SHARED.replace("OTHERS", others).replace("LAST", line).replace("DTYPE", dtype))
    text = written(program)
    assert text is not None and text.count("; i1++)") == 1, "the loop over rows is shared"
    assert ("e[i1*96" in text) is (last == "columns"), "of a value that only these steps read there is one row"
    x = np.random.default_rng(0).standard_normal((3, 4, 24)).astype(numpy_dtype(program.main.params[0].type.dtype))  # type: ignore[union-attr]
    expected, tolerances = reference_outputs(program, {"x": x}, RunOptions())
    status, found = run(program, text, {"x": x}, expected, tmp_path, compiler)
    assert status == 0
    assert not compare(expected, found, tolerances)


DIVIDED = """func @f(%x: tensor<si32, 3>, %y: tensor<si32, 3>) -> tensor<si32, 3> {
  %z = div(%x, %y) -> tensor<si32, 3>
  return %z
}
"""
TAKEN = """func @f(%x: tensor<si32, 3>, %y: tensor<si32, 3>) -> tensor<si32, 3> {
  %z = take(%x, %y) -> tensor<si32, 3>
  return %z
}
"""
SPLIT = """func @f(%x: tensor<si32, ?N>, %y: tensor<si32, 3>) -> tensor<si32, 2x?M> where ?M = ?N floordiv 2 {
  %z = reshape(%x) new_shape[2, ?M] -> tensor<si32, 2x?M>
  return %z
}
"""


@pytest.mark.parametrize(("source", "last", "status"), [(DIVIDED, 0, 1), (TAKEN, 3, 2), (TAKEN, -1, 2), (SPLIT, 1, 3)])
def test_what_fails_when_it_runs_is_the_status(source: str, last: int, status: int, tmp_path: Path) -> None:
    program = ptir_tools.read(source)
    text = written(program)
    assert text is not None
    inputs = {"x": np.arange(3, dtype=np.int32), "y": np.array([1, 2, last], np.int32)}
    like = {"z": np.zeros((2, 1) if source is SPLIT else 3, np.int32)}
    assert run(program, text, inputs, like, tmp_path)[0] == status


ATTENTION = """func @f(%q: tensor<f32, 2x37x16>, %k: tensor<f32, 2x37x16>, %v: tensor<f32, 2x37x16>) -> tensor<f32, 2x37x16> {
  %s = dot_general(%q, %k) batch_lhs[0] batch_rhs[0] contract_lhs[2] contract_rhs[2] -> tensor<f32, 2x37x37>
  %m = reduce_max(%s) axes[2] keepdims[true] -> tensor<f32, 2x37x1>
  %mb = broadcast_to(%m) result_shape[2, 37, 37] -> tensor<f32, 2x37x37>
  %d = sub(%s, %mb) -> tensor<f32, 2x37x37>
  %e = exp(%d) -> tensor<f32, 2x37x37>
  %z = reduce_sum(%e) axes[2] keepdims[true] -> tensor<f32, 2x37x1>
  %zb = broadcast_to(%z) result_shape[2, 37, 37] -> tensor<f32, 2x37x37>
  %p = div(%e, %zb) -> tensor<f32, 2x37x37>
  %o = dot_general(%p, %v) batch_lhs[0] batch_rhs[0] contract_lhs[2] contract_rhs[1] -> tensor<f32, 2x37x16>
  return %o
}
"""
CONVOLUTION = """func @f(%x: tensor<f32, 1x9x8x3>, %w: tensor<f32, 27x5>) -> tensor<f32, 1x5x4x5> {
  %p = extract_patches(%x) window[3, 3] strides[2, 2] dilation[1, 1] padding[[1, 1], [1, 1]] -> tensor<f32, 1x5x4x27>
  %y = dot_general(%p, %w) batch_lhs[] batch_rhs[] contract_lhs[3] contract_rhs[0] -> tensor<f32, 1x5x4x5>
  %r = maximum(%y, dense<0.0> : tensor<f32, 1x5x4x5>) -> tensor<f32, 1x5x4x5>
  return %r
}
"""


@pytest.mark.parametrize("flags", [None, FAST], ids=["sanitized", "fast"])
@pytest.mark.parametrize("source", [ATTENTION, CONVOLUTION], ids=["attention", "convolution"])
def test_layers(source: str, flags: list[str] | None, tmp_path: Path) -> None:
    assert agrees(ptir_tools.read(source), tmp_path, 1, flags=flags)


@pytest.mark.parametrize("source", ["f32", "f64", "f16", "si64", "ui64", "si32"])
@pytest.mark.parametrize("target", ["fp8_e4m3", "fp8_e5m2", "f16", "bf16"])
def test_casts_to_short_floats(source: str, target: str, tmp_path: Path) -> None:
    """Next to every number of 8 bits, to the middle of two of them, and to the ends."""
    every = np.arange(256, dtype=np.uint8).view(numpy_dtype(FP8_E4M3)).astype(np.float64)
    steps = [every, every * 2.0**-7, every * 2.0**7, np.ldexp(1.0, np.arange(-30, 70)), [447.9, 464, 464.1, 57344, 61440, 61441]]
    near = np.concatenate([np.asarray(x, np.float64) * s for x in steps for s in (1, 1 + 2**-20, 1 - 2**-20, 17 / 16, -1)])
    kind = numpy_dtype(DTYPES[source])
    if source in ("si64", "ui64", "si32"):
        ends = np.iinfo(kind)
        whole = [int(v) for v in near[np.isfinite(near)]] + [2**k + d for k in range(52, 64) for d in (-1, 0, 1, 2**40)]
        x = np.array([min(max(v, int(ends.min)), int(ends.max)) for v in whole], kind)
    else:
        with np.errstate(all="ignore"):
            x = near.astype(kind)
    t, out = f"tensor<{source}, {x.size}>", f"tensor<{target}, {x.size}>"
    program = ptir_tools.read(f"func @f(%x: {t}) -> {out} {{\n  %y = cast(%x) -> {out}\n  return %y\n}}\n")
    text = written(program)
    assert text is not None
    expected, _ = reference_outputs(program, {"x": x}, RunOptions())
    status, found = run(program, text, {"x": x}, expected, tmp_path)
    assert status == 0
    np.testing.assert_array_equal(found["y"].astype(np.float64), expected["y"].astype(np.float64))


# Shorter and longer than the partial results of a reduction, and not a multiple of them.
SHAPES = [(), (1,), (15,), (16,), (37,), (33, 3), (3, 33), (2, 17, 5), (4, 3, 35)]


@pytest.mark.parametrize("kind", ["sum", "max", "min"])
@pytest.mark.parametrize("dtype", ["f32", "si32"])
def test_reductions_over_all_axes(dtype: str, kind: str, tmp_path: Path) -> None:
    """Of every shape over every choice of axes: numbers whose sums are exact, so the results are equal."""
    rng = np.random.default_rng(len(kind))
    inputs = {f"x{i}": rng.integers(-99, 99, shape).astype(numpy_dtype(DTYPES[dtype])) for i, shape in enumerate(SHAPES)}
    lines, types, expected = [], [], {}
    for (name, x), shape in zip(inputs.items(), SHAPES, strict=True):
        for axes in (a for n in range(1, len(shape) + 1) for a in combinations(range(len(shape)), n)):
            wanted = np.asarray(getattr(np, kind)(x, axis=axes)).astype(x.dtype)
            t = f"tensor<{dtype}{''.join(', ' + 'x'.join(map(str, wanted.shape)) if wanted.shape else '')}>"
            lines.append(f"%y{len(lines)} = reduce_{kind}(%{name}) axes{list(axes)} keepdims[false] -> {t}")
            types.append(t)
            expected[f"y{len(types) - 1}"] = wanted
    params = ", ".join(
        f"%{name}: tensor<{dtype}{', ' + 'x'.join(map(str, x.shape)) if x.shape else ''}>" for name, x in inputs.items()
    )
    returned = ", ".join(f"%{name}" for name in expected)
    program = ptir_tools.read(f"func @f({params}) -> ({', '.join(types)}) {{\n" + "\n".join(lines) + f"\nreturn {returned}\n}}\n")
    text = written(program)
    assert text is not None
    status, found = run(program, text, inputs, expected, tmp_path)
    assert status == 0 and len(found) == 24
    for name, wanted in expected.items():
        np.testing.assert_array_equal(found[name], wanted, err_msg=name)


def test_a_planned_arena_is_smaller_than_its_buffers() -> None:
    text = written(ptir_tools.read(ATTENTION))
    assert text is not None
    size = int(text.partition("return (size_t)(")[2].partition(")")[0])
    assert 0 < size < 3 * 2 * 37 * 37 * 4


NEW = ["quantize", "requantize", "dequantize", "pow", "lgamma", "digamma", "erf_inv", "bitcast", "shift_left", "popcount",
       "shift_right_logical", "shift_right_arithmetic", "count_leading_zeros", "nextafter", "reduce_precision", "rng_uniform",
       "rng_normal", "real", "imag", "complex"]  # fmt: skip


@pytest.mark.parametrize("name", NEW)
def test_each_of_these_ops(name: str, tmp_path: Path) -> None:
    dtypes = [d for d in MEMORY if d is not F64 or name not in ("digamma", "erf_inv")]
    found = [generate(Seeded(seed), dtypes=dtypes, size=3, only=[name], symbols=False) for seed in range(12)]
    found = [p for p in found if any(op.defn.short == name for op in p.main.body)]
    assert len(found) >= 4 and all(agrees(p, tmp_path, seed) for seed, p in enumerate(found[:5]))


@pytest.mark.parametrize("seed", range(6))
def test_integers_of_4_bits(seed: int, tmp_path: Path) -> None:
    assert agrees(generate(Seeded(seed), dtypes=list(NIBBLES), size=6, only=sorted(KNOWN), symbols=False), tmp_path, seed)


@pytest.mark.parametrize("dtype", ["si4", "ui4", "f16", "bf16"])
def test_a_product_is_rounded_to_the_dtype_in_which_it_is_summed(dtype: str, tmp_path: Path) -> None:
    """Sums of 4 bits wrap before they become a wider result."""
    wide = {"si4": "si32", "ui4": "ui8"}.get(dtype, dtype)
    source = f"""func @f(%x: tensor<{dtype}, 3x5>, %y: tensor<{dtype}, 5x2>) -> tensor<{wide}, 3x2> {{
  %r = dot_general(%x, %y) contract_lhs[1] contract_rhs[0] accum_dtype[{dtype}] out_dtype[{wide}] -> tensor<{wide}, 3x2>
  return %r
}}
"""
    assert agrees(ptir_tools.read(source), tmp_path, 1)


SEGMENTS = """func @f(%x: tensor<fp8_e4m3, 3>, %i: tensor<si32, 3>) -> tensor<fp8_e4m3, 4> {
  %y = segment_reduce(%x, %i) kind[max] num_segments[4] -> tensor<fp8_e4m3, 4>
  return %y
}
"""


def test_the_largest_of_a_dtype_without_infinity(tmp_path: Path) -> None:
    assert agrees(ptir_tools.read(SEGMENTS), tmp_path, 1)


PARTS = [0.0, -0.0, 1.0, -2.5, 3e-5, 700.0, np.inf, -np.inf, np.nan]


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("dtype", ["cf32", "cf64"])
@pytest.mark.parametrize("name", sorted(complexes.NAMES))
def test_functions_of_complex_numbers(name: str, dtype: str, compiler: str, tmp_path: Path) -> None:
    """On all pairs of special parts. The first operand is an array of constants, too."""
    kind = numpy_dtype(DTYPES[dtype])
    x = np.empty(len(PARTS) ** 2, kind)
    x.real, x.imag = (a.reshape(-1) for a in np.meshgrid(PARTS, PARTS))
    y = np.resize(np.array([2 - 1j, 0, 1e-3 + 4j, 1j], kind), x.size)
    t, pair = f"tensor<{dtype}, {x.size}>", name in ("add", "sub", "mul", "div", "pow")
    source = f"func @f(%x: {t}, %y: {t}) -> {t} {{\n  %z = {name}(%x{', %y' * pair}) -> {t}\n  return %z\n}}\n"
    program = ptir_tools.read(source)
    text = written(program)
    assert text is not None
    inputs = {"x": x, "y": y}
    with np.errstate(all="ignore"):
        expected, tolerances = reference_outputs(program, inputs, RunOptions())
    status, found = run(program, text, inputs, expected, tmp_path, compiler)
    assert status == 0
    finite = np.isfinite(expected["z"])
    assert np.array_equal(finite, np.isfinite(found["z"]))  # which of the parts is NaN differs between C and NumPy
    assert not compare(*({"z": np.where(finite, side["z"], 0)} for side in (expected, found)), tolerances)


DRAWN = """program @f (spec_version = ptir.v0.4) {
  func @f(%n: tensor<si32>) -> (tensor<si32>, tensor<f32, 5>, tensor<f64, 3>) {
    %z = rng_uniform() -> tensor<f32, 5>
    %w = while(%n, %z) cond_region[^test] body_region[^step] -> (tensor<si32>, tensor<f32, 5>)
    %r = rng_normal() stream[5000000000] -> tensor<f64, 3>
    return %w[0], %w[1], %r
  }
  region ^test(%n: tensor<si32>, %x: tensor<f32, 5>) -> (tensor<i1>, tensor<si32>, tensor<f32, 5>) {
    %c = compare_gt(%n, dense<0> : tensor<si32>) -> tensor<i1>
    return %c, %n, %x
  }
  region ^step(%n: tensor<si32>, %x: tensor<f32, 5>) -> (tensor<si32>, tensor<f32, 5>) {
    %m = sub(%n, dense<1> : tensor<si32>) -> tensor<si32>
    %i = iota() axis[0] -> tensor<si32, 3>
    %s = scan(%x, %i) body_region[^row] carry_count[1] scan_output_count[1] -> (tensor<f32, 5>, tensor<si32, 3>)
    return %m, %s[0]
  }
  region ^row(%x: tensor<f32, 5>, %i: tensor<si32>) -> (tensor<f32, 5>, tensor<si32>) {
    %u = rng_uniform() -> tensor<f32, 5>
    %y = add(%x, %u) -> tensor<f32, 5>
    return %y, %i
  }
}
"""


@pytest.mark.parametrize("turns", [0, 1, 3])
def test_numbers_are_drawn_anew_in_each_iteration(turns: int, tmp_path: Path) -> None:
    program = ptir_tools.read(DRAWN)
    text = written(program)
    assert text is not None and "(void *arena, uint64_t seed, const int32_t" in text
    inputs = {"n": np.int32(turns)}
    expected, tolerances = reference_outputs(program, inputs, RunOptions(seed=SEED))
    status, found = run(program, text, {"n": np.asarray(inputs["n"])}, expected, tmp_path)
    assert status == 0 and not compare(expected, found, tolerances)
    first, *_ = (x for name, x in expected.items() if x.shape == (5,))
    assert len({*first.tolist()}) == 5


TUPLES = """program @f (spec_version = ptir.v0.4) {
  func @f(%p: tensor<i1>, %x: tensor<f32, 4>) -> (tensor<f32, 4>, (tensor<f32, 2>, tensor<si32, 2>)) {
    %t = cond(%p, %x) true_region[^r] false_region[^s] -> (tensor<f32, 4>, (tensor<f32, 2>, tensor<si32, 2>))
    return %t[0], %t[1]
  }
  region ^r(%x: tensor<f32, 4>) -> (tensor<f32, 4>, (tensor<f32, 2>, tensor<si32, 2>)) {
    %k = top_k(%x) k[2] -> (tensor<f32, 2>, tensor<si32, 2>)
    return %x, %k
  }
  region ^s(%x: tensor<f32, 4>) -> (tensor<f32, 4>, (tensor<f32, 2>, tensor<si32, 2>)) {
    %k = top_k(%x) k[2] largest[false] -> (tensor<f32, 2>, tensor<si32, 2>)
    return %x, %k
  }
}
"""


def test_what_c_has_not_is_refused() -> None:
    with pytest.raises(ptir_tools.Rejected, match="tuple"):
        ptir_tools.write(ptir_tools.read(TUPLES), "c")


def test_weights_may_be_in_a_file(tmp_path: Path) -> None:
    source = """func @f(%x: tensor<f32, 3>) -> tensor<f32, 3> {
  %y = add(%x, dense<[0.5, 1.5, -2.0]> : tensor<f32, 3>) -> tensor<f32, 3>
  return %y
}
"""
    (tmp_path / "f.ptir").write_text(source)
    made = run_ptir("translate", str(tmp_path / "f.ptir"), "--to", "c", "--external-data", "-o", str(tmp_path / "f.c"))
    assert made.status == 0, made.err
    text = (tmp_path / "f.c").read_text()
    assert "int f(void *arena, const void *weights, const float *restrict x" in text
    assert "table0[]" not in text
    main = """
#include <stdio.h>
int main(void)
{
    float x[3] = {1, 2, 3}, y[3], weights[16];
    FILE *file = fopen("f.c.data", "rb");
    if (fread(weights, 1, 64, file) != 64 || fclose(file) || f(0, weights, x, y)) return 1;
    printf("%g %g %g", y[0], y[1], y[2]);
    return 0;
}
"""
    (tmp_path / "main.c").write_text(text + main)
    command = [COMPILERS[0], *STRICT, "-DPTIR_PLAIN", "-fsanitize=address,undefined", "-o", "main", "main.c", "-lm"]
    subprocess.run(command, cwd=tmp_path, check=True)
    made = subprocess.run(["./main"], cwd=tmp_path, capture_output=True, text=True, preexec_fn=unbounded)
    assert made.stdout == "1.5 3.5 1"
