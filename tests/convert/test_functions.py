"""Functions that Tiny has not, written as formulas: their values in fp32 against float64, at special values too."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from ptir_tools.core.arrays import from_literal
from ptir_tools.core.dialect import Program
from ptir_tools.engines import run
from ptir_tools.engines.options import RunOptions
from tests.convert.legality_rows import ptir
from tests.convert.translations import parse, translated

RNG = np.random.default_rng(3)
SPECIAL = [0.0, -0.0, 1.0, -1.0, 1e-45, -1e-45, 1.2e-38, 3.4e38, -3.4e38, np.inf, -np.inf, np.nan, 88.72, 88.73, -103.9, -104.5]


def logarithm(x: float) -> float:
    return -math.inf if x == 0 else math.log(x) if x > 0 else math.nan


def exponential(x: float) -> float:
    return math.inf if x > 700 else math.exp(x)


# name -> (in float64, arguments, units in the last place)
CASES: dict[str, tuple[Callable[[float], float], np.ndarray, float]] = {
    "exp": (exponential, np.concatenate([RNG.uniform(-104, 89, 5000), RNG.normal(0, 1, 5000)]), 2),
    "log": (logarithm, np.concatenate([np.exp(RNG.uniform(-103, 88, 5000)), 1 + RNG.normal(0, 1e-3, 5000)]), 4),
    "tanh": (math.tanh, np.concatenate([RNG.normal(0, 1, 5000), RNG.uniform(-1e-3, 1e-3, 500), RNG.uniform(-20, 20, 500)]), 4),
    "erf": (math.erf, np.concatenate([RNG.normal(0, 1, 5000), RNG.uniform(-1e-3, 1e-3, 500), RNG.uniform(-6, 6, 500)]), 4),
}


def outputs(source: str, *inputs: np.ndarray) -> list[np.ndarray]:
    """What the Tiny graph of a program gives, by the reference."""
    there = translated(parse(source, "ptir"), "tiny")
    assert there.program is not None, there.errors
    graph: Program = there.program
    given = dict(zip("xyz", inputs, strict=False)) | {name: from_literal(x) for name, x in there.constants.items()}
    with np.errstate(all="ignore"):
        return list(run(graph, given, RunOptions(engine="reference")).values())


@pytest.mark.parametrize("name", CASES)
def test_functions(name: str) -> None:
    exact, drawn, units = CASES[name]
    x = np.concatenate([drawn, SPECIAL]).astype(np.float32)
    n = f"f32, {len(x)}"
    (found,) = outputs(ptir(f"{name}(%x)", n, n), x)
    want = np.array([exact(v) for v in x.tolist()])
    with np.errstate(over="ignore"):
        single = want.astype(np.float32)
    assert np.array_equal(np.isnan(found), np.isnan(single)) and np.array_equal(np.isinf(found), np.isinf(single))
    assert np.array_equal(found[np.isinf(single)], single[np.isinf(single)])
    told = np.isfinite(single)
    off = np.abs(found[told] - want[told]) / np.spacing(np.abs(single[told])).astype(np.float64)
    assert off.max() <= units, x[told][off.argmax()]


ORDERED = np.array([[3, np.nan, 1, np.inf, 3, np.nan, -np.inf, 0], [-np.inf, -np.inf, -0.0, 0.0, -1, -1, 2, 2]], np.float32)


@pytest.mark.parametrize("x", [ORDERED, ORDERED[1:, :2], np.full((2, 3), np.nan, np.float32)], ids=["mixed", "low", "nan"])
def test_argmax(x: np.ndarray) -> None:
    """The first of the largest, and of NaNs where there is one."""
    shape = f"f32, {x.shape[0]}x{x.shape[1]}"
    (found,) = outputs(ptir("argmax(%x) axis[1]", f"si32, {x.shape[0]}", shape), x)
    np.testing.assert_array_equal(found, np.argmax(x, 1))


@pytest.mark.parametrize("largest", [True, False])
def test_top_k(largest: bool) -> None:
    """Stable, and a NaN is above all."""
    word = str(largest).lower()
    top = f"%t = top_k(%x) k[8] largest[{word}] -> (tensor<f32, 2x8>, tensor<si32, 2x8>)\n  "
    (values,) = outputs(ptir("neg(%t[0])", "f32, 2x8", "f32, 2x8", more=top), ORDERED)
    (places,) = outputs(ptir("neg(%t[1])", "si32, 2x8", "f32, 2x8", more=top), ORDERED)
    for row, got, at in zip(ORDERED.tolist(), -values, (-places).tolist(), strict=True):
        keys = [(math.isnan(v), 0.0 if math.isnan(v) else v) for v in row]
        order = sorted(range(8), key=lambda i: ([-keys[i][0], -keys[i][1]] if largest else keys[i], i))
        assert at == order
        np.testing.assert_array_equal(got, np.array(row, np.float32)[order])


def test_what_is_not_chosen_does_not_matter() -> None:
    """Infinities and NaNs of other rows stay out of the row that is taken."""
    table = np.array([[1, 2], [np.inf, np.nan], [3, -np.inf]], np.float32)
    (found,) = outputs(ptir("take(%x, %y)", "f32, 3x2", "f32, 3x2", "si32, 3"), table, np.array([2, 0, 1], np.int32))
    np.testing.assert_array_equal(found, table[[2, 0, 1]])


@pytest.mark.parametrize("start", [(-5, 7), (0, 0), (1, 2), (99, -1), (-(2**31), 2**31 - 1)])
def test_windows_are_moved_inside(start: tuple[int, int]) -> None:
    x, u = np.arange(20, dtype=np.float32).reshape(4, 5), -np.arange(1, 5, dtype=np.float32).reshape(2, 2)
    at = np.array(start, np.int32)
    a, b = max(0, min(start[0], 2)), max(0, min(start[1], 3))
    (found,) = outputs(ptir("dynamic_slice(%x, %y) sizes[2, 2]", "f32, 2x2", "f32, 4x5", "si32, 2"), x, at)
    np.testing.assert_array_equal(found, x[a : a + 2, b : b + 2])
    want = x.copy()
    want[a : a + 2, b : b + 2] = u
    source = ptir("dynamic_update_slice(%x, %y, %z) sizes[2, 2]", "f32, 4x5", "f32, 4x5", "f32, 2x2", "si32, 2")
    (found,) = outputs(source, x, u, at)
    np.testing.assert_array_equal(found, want)


SCALES = (0.02, 0.1, 3.0000000000000004, 1e-3, 7.0)


@pytest.mark.parametrize("dtype", ["si8", "ui8", "si4"])
@pytest.mark.parametrize("axis", [None, 0])
def test_quantize(axis: int | None, dtype: str) -> None:
    """The same steps as PTIR's float64, at ties and next to them, at the ends, at infinities and NaN."""
    scales, zeros = (SCALES, (0, 5, 3, 1, 2)) if axis is not None else (SCALES[:1], (5,))
    rows = []
    for scale in SCALES:
        ties = ((np.arange(-140, 140) + 0.5) * scale).astype(np.float32)
        rows.append(np.concatenate([ties, np.nextafter(ties, 9e9, dtype=np.float32), np.nextafter(ties, -9e9, dtype=np.float32),
                                    np.array(SPECIAL, np.float32)]))  # fmt: skip
    x = np.stack(rows)
    shape = f"{x.shape[0]}x{x.shape[1]}"
    given = f"output_dtype[{dtype}] {'' if axis is None else 'axis[0] '}scales{list(scales)} zero_points{list(zeros)}"
    source = ptir(f"quantize(%x) {given}", f"{dtype}, {shape}", f"f32, {shape}")
    (want,) = run(parse(source, "ptir"), {"x": x}, RunOptions(engine="reference")).values()
    np.testing.assert_array_equal(outputs(source, x)[0], want.astype(np.int32))


@pytest.mark.parametrize("scale", [1e-12, 4.7e-5, 0.3, 1.0, 2.5])
def test_requantize(scale: float) -> None:
    x = np.concatenate([RNG.integers(-(2**31), 2**31, 2000), RNG.integers(-2000, 2000, 2000), [2**31 - 1, -(2**31), 0]]).astype(
        np.int32
    )
    n = f"{len(x)}"
    given = f"output_dtype[si8] scales[{scale}] zero_points[3] output_scales[0.5] output_zero_points[-7]"
    source = ptir(f"requantize(%x) {given}", f"si8, {n}", f"si32, {n}")
    (want,) = run(parse(source, "ptir"), {"x": x}, RunOptions(engine="reference")).values()
    np.testing.assert_array_equal(outputs(source, x)[0], want.astype(np.int32))
