"""erf_inv, lgamma and digamma on tiles, next to their meaning by hand: whole domains, zeros, poles, and what is no number."""

import numpy as np
import pytest

from ptir_tools.convert import translate
from ptir_tools.core.arrays import numpy_dtype
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Options
from ptir_tools.core.dtypes import BF16, F16, F32
from ptir_tools.engines import run
from ptir_tools.engines.compare import check
from ptir_tools.engines.options import RunOptions
from tests.convert.ptir_to_pto.programs import TARGETS, reread, single
from tests.oracles.extension_by_hand import _erf_inv, _gamma

MEANING = {"erf_inv": _erf_inv, "lgamma": _gamma(0), "digamma": _gamma(1)}
TYPES = {"f32": F32, "f16": F16, "bf16": BF16}
EDGES = (0.0, -0.0, 1.0, -1.0, 2.0, -2.0, np.inf, -np.inf, np.nan, -7.0, -(2.0**24), -3e38, 3e38, 1.25, -1.5)


def arguments(short, t):
    """The domain in steps that grow, both sides of every zero and pole near 0, and the edges."""
    rng, size = np.random.default_rng(2), np.geomspace(1e-37, 1, 400)
    if short == "erf_inv":
        found = [1 - np.geomspace(2.0**-24, 1, 300), size, rng.uniform(0, 1, 300)]
    else:
        near = np.concatenate([n + s * np.geomspace(1e-6, 0.5, 20) for n in range(7) for s in (1, -1)])
        large = np.geomspace(1, 3e38, 200)
        roots = 1.4616321449683622 + np.geomspace(1e-7, 0.1, 30)
        found = [size, near, large, roots, rng.uniform(0, 8, 300), rng.uniform(0, 500, 200)]
    positive = np.concatenate(found)
    with np.errstate(over="ignore"):
        x = np.concatenate([positive, -positive, EDGES]).astype(numpy_dtype(t))
    return np.concatenate([x, np.resize(x, -len(x) % 64)])


def on_tiles(short, t, n, target):
    before = single(f"%x: tensor<{t}, {n}>", f"tensor<{t}, {n}>", f"%y = {short}(%x) -> tensor<{t}, {n}>")
    after = translate(before, "pto", found := Diagnostics(before.source), Options(target=target))
    assert after is not None, found.items
    return before, reread(after)


@pytest.mark.parametrize("t, target", [("f32", "a3"), ("f32", "a5"), ("f16", "a3"), ("bf16", "a3"), ("bf16", "a5")])
@pytest.mark.parametrize("short", MEANING)
def test_to_a_few_units(short, t, target):
    """4 units of the last place; on the negative axis, next to whose zeros nothing is known, 10 of what is no less than 1."""
    dtype = TYPES[t]
    x = arguments(short, dtype)
    _, after = on_tiles(short, t, len(x), target)
    given = [x if p.name == "x" else np.zeros(p.type.shape, numpy_dtype(p.type.dtype)) for p in after.main.params]
    got = run(after, given, RunOptions())["y"].astype(np.float64)
    with np.errstate(all="ignore"):
        exact = np.array([MEANING[short](float(v)) for v in x])
        want = exact.astype(x.dtype).astype(np.float64)
    ends = ~np.isfinite(want)
    np.testing.assert_array_equal(got[ends], want[ends])
    unit = 2.0 ** (1 - dtype.precision) * np.abs(exact) + float(np.nextafter(x.dtype.type(0), x.dtype.type(1)))
    unit = unit + 1e-13  # of the oracle
    loose = 10 * 2.0 ** (1 - dtype.precision) * (1 + np.abs(exact))
    bound = np.where(np.signbit(x.astype(np.float64)) & (short != "erf_inv"), loose, 4 * unit)
    x, got, exact, bound = x[~ends], got[~ends], exact[~ends], bound[~ends]
    off = ~(np.abs(got - exact) <= bound)
    assert not off.any(), (x[off][:5], got[off][:5], exact[off][:5])


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("t", TYPES)
@pytest.mark.parametrize("short", MEANING)
def test_within_what_the_declaration_allows(short, t, target):
    x = arguments(short, TYPES[t])
    found = check(*on_tiles(short, t, len(x), target), runs=1, constants={"x": x}, options=RunOptions(order="adversarial"))
    assert not found.diverged, list(map(str, found.diverged))


@pytest.mark.parametrize("short", MEANING)
def test_along_a_symbol(short):
    before, after = on_tiles(short, "f32", "3x?N", "a3")
    found = check(before, after, runs=2)
    assert not found.diverged, list(map(str, found.diverged))


@pytest.mark.parametrize("short", MEANING)
def test_not_in_f64(short):
    before = single("%x: tensor<f64, 4>", "tensor<f64, 4>", f"%y = {short}(%x) -> tensor<f64, 4>")
    assert translate(before, "pto", found := Diagnostics(), Options()) is None
    assert all("PTO has no elements of f64" in d.message for d in found)
