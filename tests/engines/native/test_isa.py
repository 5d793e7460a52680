"""The kernels of every instruction set that this machine has, each in a process of its own: `PTIR_ISA` chooses at load."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

native = pytest.importorskip("ptir_tools._native")

# Products of odd sizes, strides and stacks, packed or not, against float64.
PRODUCTS = """
import itertools, sys
import numpy as np
from ptir_tools import _native as native

assert native.ISA == sys.argv[1], native.ISA
rng = np.random.default_rng(3)
room = np.empty(native.GEMM_SCRATCH, np.float32)
sizes = [*itertools.product((1, 2, 3, 5, 7, 8, 9, 17), (1, 3, 15, 16, 17, 47, 48, 49, 97), (0, 1, 2, 9, 64))]
sizes += [(97, 1009, 5), (101, 50, 300), (9, 64, 770), *((9, n, 3) for n in (32, 64, 65, 112, 1024, 1056, 1057, 2080))]
for m, n, k in sizes:
    for turned in range(4):
        a = rng.standard_normal((2, k, m) if turned & 1 else (2, m, k)).astype(np.float32)
        b = rng.standard_normal((2, n, k) if turned & 2 else (2, k, n)).astype(np.float32)
        a, b = (a.swapaxes(1, 2) if turned & 1 else a), (b.swapaxes(1, 2) if turned & 2 else b)
        out = np.full((2, m, n), np.nan, np.float32)
        native.gemm(out, a, b, room)
        bound = (k + 2) * 2.0**-24 * (abs(a).astype(float) @ abs(b).astype(float)) + 1e-38
        assert (abs(out - a.astype(float) @ b.astype(float)) <= bound).all(), (m, n, k, turned)
        packed = np.empty(native.packed_size(b[0]), np.float32)
        native.pack(packed, b[0])
        native.gemm(out, np.ascontiguousarray(a[:1]).repeat(2, 0), packed, room)
        assert (abs(out - a[0].astype(float) @ b[0].astype(float)) <= bound[0]).all(), (m, n, k, turned, "packed")
"""

# Products of 8-bit integers, which wrap in 32 bits.
BYTES = """
import itertools, sys
import numpy as np
from ptir_tools import _native as native

rng = np.random.default_rng(3)
room = np.empty(native.IGEMM_SCRATCH, np.float32)
sizes = [*itertools.product((1, 7, 9), (0, 1, 3, 4, 5), (1, 15, 49, 64)), (193, 513, 50)]
sizes += [(1, 514, 1030), (9, 1030, 1030), (9, 5, 1057)]
for left, right, turned in itertools.product((np.int8, np.uint8), (np.int8, np.uint8), range(4)):
    for m, k, n in sizes:
        shapes = [(2, k, m) if turned & 1 else (2, m, k), (2, n, k) if turned & 2 else (2, k, n)]
        ends = [np.iinfo(t) for t in (left, right)]
        a, b = (rng.choice([e.min, e.max, *range(-5 * (e.min < 0), 6)], s).astype(e.dtype) for e, s in zip(ends, shapes))
        a, b = (a.swapaxes(1, 2) if turned & 1 else a), (b.swapaxes(1, 2) if turned & 2 else b)
        out = np.full((2, m, n), -1, np.int32)
        native.igemm(out, a, b, room)
        assert (out == a.astype(np.int64) @ b.astype(np.int64)).all(), (left, right, turned, m, k, n)
        packed = np.full(native.packed_size(b[0]), -1).astype(np.int32 if right is np.int8 else np.uint32)
        for columns in ((0, n // 2), (n // 2, n)):
            native.pack(packed, b[0], columns)
        native.igemm(out, a, packed, room)
        assert (out == a.astype(np.int64) @ b[:1].astype(np.int64)).all(), (left, right, turned, m, k, n, "packed")
"""

# What is made of the sums of bytes, by the definition in float64: also sums that wrap, ties, and quotients that f32 has not.
QUANTIZED = """
import itertools, sys
import numpy as np
from ptir_tools import _native as native

rng = np.random.default_rng(5)
room = np.empty(native.IGEMM_SCRATCH, np.float32)
sizes = [(1, 1, 1), (3, 4, 15), (9, 5, 49), (33, 70, 33), (193, 513, 50), (40, 2100, 70), (9, 33, 1057)]
scales = [(2.0**-7, 1.0, 0.0), (0.001, 0.3, 0.0), (3e-12, 1e-9, 0.0), (0.37, 17.1, 5.0), (1e300, 1e-300, 0.0), (1e-42, 1.0, 0.0)]
made = [(np.int8, -128, 127), (np.int8, 0, 127), (np.uint8, 0, 255), (np.uint8, 7, 7), (np.float32, 0, 0)]
adding = itertools.cycle((0, 1, 2, 1, 0, 2, 2))
for (m, k, n), (scale, output, zero), (dtype, low, high), along in itertools.product(sizes, scales, made, (0, 1)):
    more = next(adding)
    a, b = rng.integers(-128, 128, (1, m, k), np.int8), rng.integers(0, 256, (1, k, n), np.uint8)
    scaling = np.array([[scale], [zero], [output], [0 if dtype is np.float32 else 3]]) * np.ones(n if along else 1)
    if along:
        scaling[0] *= 2.0 ** rng.integers(-3, 4, n)
        scaling[2] *= rng.uniform(0.5, 2, n) if dtype is not np.float32 else 1
    with np.errstate(all="ignore"):
        factor = (scaling[0] / scaling[2]).astype(np.float32)
    is_near = int((np.isfinite(factor) & (factor >= 2.0**-126)).all() and zero == 0)
    added = np.broadcast_to(rng.integers(-99, 99, n, np.int32), (m, n))
    added = rng.integers(-2**31, 2**31, (m, n), np.int32) if more == 2 else added
    sums = a.astype(np.int64) @ b.astype(np.int64) + (added if more else 0)
    wide = (sums.astype(np.int32)[0] - scaling[1]) * scaling[0]
    with np.errstate(all="ignore"):
        expected = wide.astype(np.float32) if dtype is np.float32 else np.clip(np.rint(wide / scaling[2]) + scaling[3], low, high)
    packed = np.full(native.packed_size(b[0]), -1).astype(np.uint32)
    native.pack(packed, b[0])
    for right in (b, packed):
        out = np.full((1, m, n), 77, dtype)
        native.igemm(out, a, right, room, (added if more else None, scaling, along, factor, is_near, low, high))
        assert np.array_equal(out[0], expected.astype(dtype)), (m, k, n, scale, dtype, low, along, more, right is packed)
"""

# Steps in f32 on sums of bytes, of products and of convolutions, bit for bit by the definition of each step in f32.
STEPS = """
import itertools, sys
import numpy as np
from ptir_tools import _native as native

rng = np.random.default_rng(7)
f = np.float32
number = native.OPS.index

def truncated(x, dtype):
    ends = np.iinfo(dtype)
    return np.trunc(np.clip(np.where(np.isnan(x), f(0), x), f(ends.min), f(ends.max)))

def chains(m, n):
    row = np.broadcast_to(rng.standard_normal(n).astype(f), (m, n))
    whole = rng.standard_normal((m, n)).astype(f)
    one = lambda x: np.broadcast_to(f(x), (m, n))
    other = rng.integers(0, 256, (m, n)).astype(np.uint8), rng.integers(-128, 128, (m, n)).astype(np.int8)
    tiny = np.broadcast_to(f(2.0) ** rng.integers(-140, 100, n).astype(f), (m, n))
    quantized = [("mul", abs(row) * f(1e-3)), ("add", row), ("div", one(0.0173)), ("round_even",), ("add", one(3))]
    quantized.append(("nearest_ui8",))
    yield [], 0
    yield [("mul", row), ("maximum", one(0)), ("minimum", one(6))], 0
    yield [*quantized], 0
    yield [*quantized, ("sub", one(3)), ("mul", one(0.0173)), ("add", other[0], 128.0, 0.01), ("add", other[1], -5.0, 0.02),
           ("maximum", one(0)), ("div", one(0.031)), ("round_even",), ("nearest_si8",)], 0
    yield [("mul", one(1e-3)), ("div", one(0.0625)), ("round_even",)], 0  # ties
    yield [("mul", tiny), ("div", one(3)), ("sub", whole)], 0  # subnormal, infinite and far quotients
    yield [("mul", tiny), ("div", one(1e-38)), ("div", whole), ("add", one(np.nan)), ("nearest_ui8",)], 0
    yield [("mul", one(-0.0)), ("div", one(3)), ("mul", one(0.1))], 0
    yield [("mul", one(5e4)), ("div", one(0.7)), ("round_even",)], 1  # beyond 1024

def expected(sums, steps, dtype):
    x = sums.astype(np.int32).astype(f)
    with np.errstate(all="ignore"):
        for name, *more in steps:
            y = more[0] if more else None
            if len(more) == 3:
                y = (y.astype(f) - f(more[1])) * f(more[2])
            if name == "round_even":
                x = np.rint(x)
            elif name[:8] == "nearest_":
                x = truncated(x, np.int8 if name[8] == "s" else np.uint8)
            else:
                x = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "maximum": np.maximum,
                     "minimum": np.minimum}[name](x, y)
        return x if dtype is f else truncated(x, dtype).astype(dtype)

def epilogue(added, steps, s=slice(None)):
    made = tuple((number(name), *([more[0][s], *more[1:]] if more else [None])) for name, *more in steps)
    return None if added is None else added[s], made

def check(found, wanted, *what):
    same = np.array_equal(found, wanted, equal_nan=found.dtype == f)
    assert same and (found.dtype != f or (np.signbit(found) == np.signbit(wanted))[~np.isnan(wanted)].all()), what

room = np.empty(native.IGEMM_SCRATCH, f)
made = itertools.cycle([np.uint8, np.int8, f])
sizes = [(1, 1, 1), (3, 4, 15), (9, 5, 49), (33, 70, 64), (193, 513, 50), (5, 2100, 70), (9, 33, 1057), (7, 8, 130)]
for (m, k, n), (left, right), packs in itertools.product(sizes, itertools.product((np.int8, np.uint8), repeat=2), (0, 1)):
    a, b = (rng.integers(-128, 128, s).astype(t) for t, s in ((left, (1, m, k)), (right, (1, k, n))))
    a[:, 0] = 0
    added = np.broadcast_to(rng.integers(-99, 99, n).astype(np.int32), (m, n)) if m % 2 else None
    sums = a[0].astype(np.int64) @ b[0].astype(np.int64) + (0 if added is None else added)
    given = b
    if packs:
        given = np.full(native.packed_size(b[0]), -1).astype(np.int32 if right is np.int8 else np.uint32)
        native.pack(given, b[0])
    for steps, _ in chains(m, n):
        out = np.full((1, m, n), 77, next(made))
        native.igemm(out, a, given, room, epilogue(added, steps))
        check(out[0], expected(sums, steps, out.dtype.type), m, k, n, left, right, [name for name, *_ in steps])

cases = itertools.product(((1, 1), (3, 3), (1, 5)), ((1, 1), (2, 2)), ((1, 1), (2, 1)), (1, 3, 16), (1, 17, 64), (0, 1))
for (window, stride, dilation, channels, n, padded), left in itertools.product(cases, (np.int8, np.uint8)):
    low = [w // 2 * padded for w in window]
    high = [w // 2 * padded + 1 for w in window]
    extent, pad = (9, 11), 3 if left is np.uint8 else 250
    x = rng.integers(-128, 128, (2, *extent, channels)).astype(left)
    fill = np.array(pad, np.uint8).astype(left) if left is np.uint8 else np.array(pad, np.uint8).view(np.int8)
    wide = np.pad(x, [(0, 0), *zip(low, high), (0, 0)], constant_values=fill)
    places = [(e + a + b - (w - 1) * d - 1) // s + 1 for e, a, b, w, d, s in zip(extent, low, high, window, dilation, stride)]
    if min(places) < 1:
        continue
    ends = [n * s for n, s in zip(places, stride)]
    taps = [wide[:, s * dilation[0] :, t * dilation[1] :][:, : ends[0] : stride[0], : ends[1] : stride[1]]
            for s, t in itertools.product(*map(range, window))]
    patches = np.concatenate(taps, -1).reshape(-1, len(taps) * channels)
    w = rng.integers(-128, 128, (patches.shape[1], n)).astype(np.int8)
    packed = np.zeros(native.packed_size(w), np.int32)
    native.pack(packed, w)
    m = len(patches)
    added = np.broadcast_to(rng.integers(-99, 99, n).astype(np.int32), (m, n))
    sums = patches.astype(np.int64) @ w.astype(np.int64) + added
    scratch = np.empty(native.iconv_scratch(len(w)), f)
    for steps, _ in list(chains(m, n))[2:4]:
        out = np.full((m, n), 77, next(made))
        geometry = (*places, *window, *stride, *dilation, *low, 1)
        for s in (slice(0, m // 3), slice(m // 3, m)):
            native.iconv(out[s], x, packed, geometry, s.start, pad, scratch, epilogue(added, steps, s))
        check(out, expected(sums, steps, out.dtype.type), window, stride, dilation, channels, n, padded, left)
"""

# Products of bf16 by pairs, also of numbers so small that the instruction for them would take them, or their products, for 0.
PAIRS = """
import itertools, sys
import ml_dtypes
import numpy as np
from ptir_tools import _native as native

rng = np.random.default_rng(3)
room = np.empty(native.BGEMM_SCRATCH, np.float32)
sizes = [*itertools.product((1, 7, 9), (0, 1, 2, 5, 33), (1, 15, 49, 64)), (97, 513, 50), (9, 1030, 1030), (9, 5, 1057)]
sizes += [(270, 530, 40)]
sizes = sizes if native.BGEMM_SCRATCH else []
for (m, k, n), turned, small in itertools.product(sizes, range(4), (1.0, 2.0**-64, 2.0**-130)):
    shapes = [(2, k, m) if turned & 1 else (2, m, k), (2, n, k) if turned & 2 else (2, k, n)]
    a, b = (rng.standard_normal(s).astype(ml_dtypes.bfloat16) for s in shapes)
    a = (a.astype(float) * small).astype(ml_dtypes.bfloat16)
    b = (b.astype(float) * (small if small > 2.0**-100 else 1.0)).astype(ml_dtypes.bfloat16)
    a, b = (a.swapaxes(1, 2) if turned & 1 else a), (b.swapaxes(1, 2) if turned & 2 else b)
    out, other = np.full((2, 2, m, n), np.nan, np.float32)
    native.bgemm(out, a.view(np.uint16), b.view(np.uint16), room)
    x, y = a.astype(float), b.astype(float)
    bound = (k + 2) * 2.0**-24 * (abs(x) @ abs(y)) + k * 2.0**-149
    assert (abs(out - x @ y) <= bound).all(), (m, k, n, turned, small)
    packed = np.zeros(native.packed_size(b[0].view(np.uint16)), np.uint32)
    native.pack(packed, b[0].view(np.uint16))
    native.bgemm(other, a.view(np.uint16), packed, room)
    assert (abs(other - x @ y[:1]) <= (k + 2) * 2.0**-24 * (abs(x) @ abs(y[:1])) + k * 2.0**-149).all(), (m, k, n, "packed")
    for wide in (out, other) if native.BGEMM_ROUNDS else ():  # results in bf16 are those in f32, rounded
        narrow = np.full((2, m, n), 7, ml_dtypes.bfloat16)
        native.bgemm(narrow.view(np.uint16), a.view(np.uint16), packed if wide is other else b.view(np.uint16), room)
        assert np.array_equal(narrow.view(np.uint16), wide.astype(ml_dtypes.bfloat16).view(np.uint16)), (m, k, n, small, "narrow")
# Rows are the same however they are cut at multiples of eight, also where the products of some of them are subnormal.
for m, k, n in [(m, k, n) for m in (24, 67) for k in (5, 64, 600) for n in (3, 33, 80)] if sizes else []:
    a, b = (rng.standard_normal(s).astype(ml_dtypes.bfloat16) for s in ((1, m, k), (1, k, n)))
    a[0, 9], a[0, m - 1] = (a[0, i].astype(float) * 2.0**-128 for i in (9, m - 1))
    packed = np.zeros(native.packed_size(b[0].view(np.uint16)), np.uint32)
    for columns in ((0, n // 2), (n // 2, n)):
        native.pack(packed, b[0].view(np.uint16), columns)
    out, room = np.full((1, m, n), np.nan, np.float32), np.empty(native.BGEMM_SCRATCH, np.float32)
    native.bgemm(out, a.view(np.uint16), b.view(np.uint16), room)
    x, y = a.astype(float), b.astype(float)
    assert (abs(out - x @ y) <= (k + 2) * 2.0**-24 * (abs(x) @ abs(y)) + k * 2.0**-149).all(), (m, k, n)
    for first, last in ((0, m), (0, 8), (8, 16), (8, m), (16, m), (m // 8 * 8, m)):
        for right in (b.view(np.uint16), packed):
            piece = np.full((1, last - first, n), np.nan, np.float32)
            native.bgemm(piece, a[:, first:last].view(np.uint16), right, room)
            assert np.array_equal(piece, out[:, first:last]), (m, k, n, first, last, right is packed)
for strange in (np.nan, np.inf, -np.inf):
    a, b = (rng.standard_normal((1, 20, 20)).astype(ml_dtypes.bfloat16) for _ in range(2)) if sizes else (None, None)
    if sizes:
        a[0, 3, 5], b[0, 7, 2], b[0, 0, 4] = strange, strange, 0
        out = np.empty((1, 20, 20), np.float32)
        native.bgemm(out, a.view(np.uint16), b.view(np.uint16), room)
        with np.errstate(all="ignore"):
            exact = np.einsum("bik,bkj->bij", a.astype(np.float32), b.astype(np.float32))
        strangers = ~np.isfinite(exact)
        assert (np.isfinite(out) == ~strangers).all()
        assert np.array_equal(out[strangers], exact[strangers], equal_nan=True)
        if native.BGEMM_ROUNDS:
            narrow = np.empty((1, 20, 20), ml_dtypes.bfloat16)
            native.bgemm(narrow.view(np.uint16), a.view(np.uint16), b.view(np.uint16), room)
            assert np.array_equal(narrow.astype(np.float32), out.astype(ml_dtypes.bfloat16).astype(np.float32), equal_nan=True)
"""

# Products and convolutions with numbers for which a kernel may not use all of its instructions: subnormal ones, or with such
# products, large ones, NaN and infinities; the others of a few bits. Results do not depend on how rows are cut.
RANGES = """
import itertools, sys
import numpy as np
from ptir_tools import _native as native

rng = np.random.default_rng(3)
room = np.empty(native.PACKED_SCRATCH, np.float32)

def check(out, a, b, what):
    x, y = a.astype(float), b.astype(float)
    with np.errstate(all="ignore"):
        exact, size = x @ y, abs(x) @ abs(y)
        finite = abs(np.nan_to_num(x, nan=0, posinf=0, neginf=0)) @ abs(np.nan_to_num(y, nan=0, posinf=0, neginf=0))
        far = finite < 2.0**127  # from where f32 ends
        bound = a.shape[1] * 2.0**-24 * size + a.shape[1] * 2.0**-149
        assert (abs(out - exact) <= bound)[far & np.isfinite(size)].all(), what
        strange = far & ~np.isfinite(size)
        assert np.array_equal(out[strange].astype(float), exact[strange], equal_nan=True), what

for (m, k, n), scale, few_bits in itertools.product(
    [(40, 48, 48), (33, 64, 65), (270, 100, 70), (67, 1030, 50), (10, 70, 1100)],
    [(1, 1), (2.0**-60, 2.0**-60), (2.0**-135, 1), (1, 2.0**-135), (2.0**122, 2.0**-20)],
    (None, np.float16),
):
    if few_bits and scale != (1, 1):
        continue
    a, b = ((rng.standard_normal(s).astype(few_bits or float) * c).astype(np.float32) for s, c in zip(((m, k), (k, n)), scale))
    for number in (None, 1e-40, 3.4e38, np.nan, np.inf) if scale == (1, 1) else (None,):
        x = a.copy()
        if number is not None:
            x[9, 5], x[m - 1, k - 1] = number, -number
        packed = np.empty(native.packed_size(b), np.float32)
        for columns in ((0, n // 2), (n // 2, n)):
            native.pack(packed, b, columns)
        out = np.full((1, m, n), np.nan, np.float32)
        native.gemm(out, x[None], packed, room)
        check(out[0], x, b, (m, k, n, scale, number))
        few = np.empty(native.packed_size(b, True), np.float32)
        native.pack(few, b)
        native.gemm(turned := np.empty_like(out), x[None], few, room)
        check(turned[0], x, b, (m, k, n, scale, number, "few"))
        native.gemm(turned := np.empty_like(out), np.asfortranarray(x)[None], packed, room)
        check(turned[0], x, b, (m, k, n, scale, number, "turned"))
        for first in range(0, m, 24):
            piece = np.empty((1, min(24, m - first), n), np.float32)
            native.gemm(piece, x[None, first : first + 24], packed, room)
            assert np.array_equal(piece[0], out[0, first : first + 24], equal_nan=True), (m, k, n, scale, number, "cut")
        if number is None:
            continue
        y = b.copy()
        y[7, 40] = number
        native.pack(packed, y)
        native.gemm(out, a[None], packed, room)
        check(out[0], a, y, (m, k, n, scale, number, "right"))
for (h, width), channels, n, window, stride, dilation, number in itertools.product(
    ((9, 10), (1, 300)), (20, 64), (48, 70), (1, 3), (1, 2), (1, 2, 70), (None, 1e-40, 3e38, np.nan, np.inf)
):
    tall = window if h > 1 else 1
    x = rng.standard_normal((2, h, width, channels), np.float32)
    w = rng.standard_normal((tall * window * channels, n), np.float32)
    if number is not None:
        x[1, h // 3, width // 2 - 1, 5] = number
    low, span = window // 2, (window - 1) * dilation + 1
    if min(h if tall > 1 else width, width) + 2 * low < span:
        continue
    above, high = (low, span) if tall > 1 else (0, 1)
    padded = np.pad(x, ((0, 0), (above, above), (low, low), (0, 0)))
    seen = np.lib.stride_tricks.sliding_window_view(padded, (high, span), (1, 2))
    seen = seen[:, ::stride, ::stride, :, ::dilation, ::dilation]
    patches = seen.reshape(-1, channels, tall * window).swapaxes(1, 2).reshape(-1, len(w))
    geometry = (*seen.shape[1:3], tall, window, stride, stride, dilation, dilation, above, low, 1)
    packed, out = np.empty(native.packed_size(w), np.float32), np.full((len(patches), 1, n), np.nan, np.float32)
    native.pack(packed, w)
    native.conv(out, x, packed, geometry, 0, room)
    check(out[:, 0], patches, w, (geometry, channels, n, number))
    for first in range(0, len(out), 24):
        piece = np.empty_like(out[first : first + 24])
        native.conv(piece, x, packed, geometry, first, room)
        assert np.array_equal(piece, out[first : first + 24], equal_nan=True), (geometry, channels, n, number, first)
"""

# Convolutions and pooling of odd sizes, a part of the places at a time.
WINDOWS = """
import itertools, sys
import numpy as np
from ptir_tools import _native as native

rng = np.random.default_rng(3)
room = np.empty(native.PACKED_SCRATCH, np.float32)
for groups, each, n, stride, low in itertools.product((1, 3), (1, 5, 8, 300), (1, 2, 17, 49, 64), (1, 2), (0, 1)):
    x = rng.standard_normal((2, 7, 11, groups * each)).astype(np.float32)
    w = rng.standard_normal((groups, 9 * each, n)).astype(np.float32)
    padded = np.pad(x, ((0, 0), (low, 1), (low, 1), (0, 0)))
    seen = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (1, 2))[:, ::stride, ::stride].astype(float)
    m, size = seen[..., 0, 0, 0].size, native.packed_size(w[0])
    geometry = (*seen.shape[1:3], 3, 3, stride, stride, 1, 1, low, low, groups)
    packed, out = np.empty(groups * size, np.float32), np.full((m, groups, n), np.nan, np.float32)
    for g in range(groups):
        native.pack(packed[g * size :][:size], w[g])
    for first in range(0, m, 13):
        native.conv(out[first : first + 13], x, packed, geometry, first, room)
        row = rng.standard_normal((1, groups * n)).astype(np.float32).repeat(len(out[first : first + 13]), 0)
        epilogue = ((native.OPS.index("add"), row), (native.OPS.index("maximum"), row * 0), (native.OPS.index("mul"), row))
        ended = np.full(out[first : first + 13].shape, np.nan, np.float32)
        native.conv(ended, x, packed, geometry, first, room, epilogue)
        one_by_one = np.maximum(out[first : first + 13] + row.reshape(ended.shape), 0) * row.reshape(ended.shape)
        assert (ended == one_by_one).all(), geometry
        whole = np.full_like(ended, np.nan)
        native.conv(whole, x, packed, (*geometry, True), first, room)  # finite weights: padding is left out, with the same bits
        assert (whole == out[first : first + 13]).all(), geometry
    patches = seen.reshape(m, groups, each, 9).swapaxes(2, 3).reshape(m, groups, 9 * each)
    bound = 1e-5 * np.einsum("mgk,gkn->mgn", abs(patches), abs(w)) + 1e-30
    assert (abs(out - np.einsum("mgk,gkn->mgn", patches, w)) <= bound).all(), geometry
# Lines of places that are a multiple of 7: with finite weights whole blocks of padding are left out.
for (high, wide), each, n in itertools.product(((7, 7), (14, 14), (3, 21), (9, 16)), (8, 100), (16, 31, 48, 300, 530)):
    x, w = rng.standard_normal((2, high, wide, each)).astype(np.float32), rng.standard_normal((9 * each, n)).astype(np.float32)
    packed, out = np.empty(native.packed_size(w), np.float32), np.full((2, 2 * high * wide, 1, n), np.nan, np.float32)
    native.pack(packed, w)
    for is_finite in (False, True):
        native.conv(out[int(is_finite)], x, packed, (high, wide, 3, 3, 1, 1, 1, 1, 1, 1, 1, is_finite), 0, room)
    assert (out[0] == out[1]).all(), (high, wide, each, n)
    seen = np.lib.stride_tricks.sliding_window_view(np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0))), (3, 3), (1, 2)).astype(float)
    patches = np.moveaxis(seen, 3, 5).reshape(-1, 9 * each)
    assert (abs(out[1, :, 0] - patches @ w) <= 1e-5 * (abs(patches) @ abs(w))).all(), (high, wide, each, n)
for channels, stride, low in itertools.product((1, 15, 16, 17, 33, 144), (1, 2), (0, 1)):
    x = rng.standard_normal((2, 7, 11, channels)).astype(np.float32)
    w = rng.standard_normal((9, channels)).astype(np.float32)
    for kind, start in ((native.WEIGHTED, 0), (native.SUM, 0), (native.MAX, -np.inf), (native.MIN, np.inf)):
        padded = np.pad(x, ((0, 0), (low, 1), (low, 1), (0, 0)), constant_values=start)
        seen = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (1, 2))[:, ::stride, ::stride].astype(float)
        places, seen = seen.shape[1:3], seen.reshape(-1, channels, 9)
        out = np.full(seen.shape[:2], np.nan, np.float32)
        geometry = (*places, 3, 3, stride, stride, 1, 1)
        for first in range(0, len(out), 13):
            native.windows(out[first : first + 13], x, w, (*geometry, low, low, channels), first, kind)
        if kind in (native.MAX, native.MIN):
            assert (out == (seen.max(-1) if kind == native.MAX else seen.min(-1))).all(), geometry
            continue
        terms = seen * w.T if kind == native.WEIGHTED else seen
        assert (abs(out - terms.sum(-1)) <= 1e-5 * abs(terms).sum(-1)).all(), geometry
"""

# Reductions of columns, turned copies, rows by number; what goes past the cache is what goes through it, bit by bit.
ROWS = """
import itertools, sys
import numpy as np
from ptir_tools import _native as native

rng = np.random.default_rng(3)

def placed(shape, offset):
    raw = np.empty(int(np.prod(shape)) + 32, np.float32)
    start = (-raw.ctypes.data // 4) % 16 + offset
    return raw[start:][: int(np.prod(shape))].reshape(shape)

for b, m, n in itertools.product((1, 3), (1, 2, 4, 7, 33), (1, 5, 16, 17, 67, 4099)):
    x = placed((b, m, n), 1)
    x[:] = rng.standard_normal((b, m, n))
    for some in (0.0, 0.05):
        x[rng.random(x.shape) < some] = np.nan
        x[rng.random(x.shape) < some / 5] = np.inf
        out = placed((b, n), 1)
        for kind, exact in ((native.MAX, np.max), (native.MIN, np.min)):
            native.fold(out, x, kind)
            assert np.array_equal(out, exact(x, 1), equal_nan=True), (b, m, n, kind)
    x[:] = rng.standard_normal((b, m, n))
    native.fold(out, x, native.SUM)
    assert (abs(out - x.sum(1, dtype=float)) <= m * 2.0**-24 * abs(x).sum(1, dtype=float)).all(), (b, m, n)
for b, m, n in itertools.product((1, 3), (1, 7, 16, 31, 64, 80, 129), (1, 8, 15, 16, 17, 72, 144)):
    for offset, large in itertools.product((0, 1), (False, True)):
        x, out = rng.standard_normal((b, n, m), np.float32), placed((b, m, n), offset)
        out[:] = np.nan
        native.transpose(out, x.swapaxes(1, 2), large)
        assert (out == x.swapaxes(1, 2)).all(), (b, m, n, offset, large)
for letter in "bBhHiIlLqQ":
    x = rng.integers(0, 256, (100, 37), np.uint8)
    numbers = rng.integers(0, 100, 33).astype(letter)
    out = np.zeros((33, 37), np.uint8)
    native.take(out, x, numbers)
    assert (out == x[numbers]).all(), letter
    out[-1] = 7
    for wrong in [100] if letter.isupper() else [100, -1]:
        numbers[-1] = wrong
        native.take(out, x, numbers)
        assert (out[-1] == 7).all() and (out[:-1] == x[numbers[:-1]]).all(), letter
code = {name: i for i, name in enumerate(native.OPS)}
for rows, columns, offset in itertools.product((1, 3, 40), (1, 5, 16, 64, 65, 128, 200), (0, 1)):
    x = rng.standard_normal((rows, columns), np.float32) * np.float32(30)
    x[rng.random(x.shape) < 0.1] = rng.choice(np.float32([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-40, 88.5, -104.0, 3e38]))
    for names in (["exp"], ["neg"], ["erf", "abs"]):
        steps = [("on_elements", 0), ("load", 0), *((n, 0) for n in names), ("store", 1)]
        program = bytes(b for n, r in steps for b in (code[n], r, 0))
        kinds = bytes([native.FULL, native.FULL])
        room = np.empty(native.tile_floats(kinds, rows, columns, False), np.float32)
        outs = [placed((rows, columns), offset) for _ in range(2)]
        for out, large in zip(outs, (False, True)):
            native.tiles(program, kinds, (x, out), 1, rows, columns, False, room, large)
        assert (outs[0].view(np.uint32) == outs[1].view(np.uint32)).all(), (names, rows, columns, offset)
        if names == ["exp"]:
            with np.errstate(all="ignore"):
                exact = np.exp(x.astype(float))
            near = abs(outs[0].astype(float) - exact) <= 2 * np.spacing(exact.astype(np.float32)).astype(float) + 2.0**-149
            assert (near | (outs[0] == exact.astype(np.float32)) | (np.isnan(outs[0]) & np.isnan(x))).all(), (rows, columns)
"""

# Attention of odd sizes, with and without kept columns, a program on the scores, rounding, NaN and infinities.
ATTENTION = """
import itertools, sys
import ml_dtypes
import numpy as np
from ptir_tools import _native as native

rng = np.random.default_rng(3)
code = {name: i for i, name in enumerate(native.OPS)}
steps = [("on_elements", 0), ("load", 0), ("mul", 1), ("add", 2), ("store", 3)]
program = bytes(b for n, r in steps for b in (code[n], r, 0))
whole = bytes([native.FULL] * 4)
narrow = {native.F16: np.float16, native.BF16: ml_dtypes.bfloat16}
sizes = [(1, 1, 1, 1, 1), (2, 7, 5, 3, 9), (1, 17, 512, 64, 64), (2, 49, 513, 8, 8), (1, 97, 1100, 17, 33), (1, 9, 40, 0, 5)]
kinds = (native.FLOAT, native.F16, native.BF16)
for (heads, rows, columns, depth, width), kind, has_program in itertools.product(sizes, kinds, (False, True)):
    t = narrow.get(kind, np.float32)
    shapes = (heads, rows, depth), (columns, depth), (columns, width)
    q, k, v = (rng.standard_normal(s).astype(t).astype(np.float32) for s in shapes)
    scale, bias = np.float32(0.25), rng.standard_normal((heads, rows, columns)).astype(t).astype(np.float32)
    i = np.arange(rows)
    for low, (first, last) in itertools.product((-1e9, -np.inf, -3.0), ((0, columns), (0, i + 1), (i - 3, i + 1), (0, i - 2))):
        kept = np.stack(np.broadcast_arrays(np.clip(first, 0, columns), np.clip(last, 0, columns), i)[:2], 1).astype(np.int32)
        limits = kept if np.ndim(last) else np.empty((0, 2), np.int32)
        arrays = (None, np.broadcast_to(scale, bias.shape), bias) if has_program and kind == native.FLOAT else ()
        run = (program, whole) if arrays else (b"", b"")
        room = np.empty(native.attention_floats(columns, depth, width, run[1], False), np.float32)
        for strange in (None, np.nan, np.inf):
            a, b, c = q.copy(), k.copy(), v.copy()
            if strange is not None:
                x = (a, b, c)[rng.integers(3)]
                if x.size:
                    x.reshape(-1)[rng.integers(x.size)] = strange
            out = np.full((heads, rows, width), 7, np.float32)
            native.attention(out, a, b, c, room, limits, low, kind, *run, arrays)
            with np.errstate(all="ignore"):
                s = (a.astype(float) @ b.astype(float).T).astype(t).astype(float)
                s = s * scale + bias if arrays else s
                j = np.arange(columns)
                s = np.where((j >= kept[:, :1]) & (j < kept[:, 1:]), s, low)
                e = np.exp(s - s.max(2, keepdims=True))
                p = e / e.sum(2, keepdims=True)
                exact, size = p @ c.astype(float), p @ abs(c.astype(float))
            u = 2.0**-24 if kind == native.FLOAT else float(ml_dtypes.finfo(t).eps)
            same = ~np.isfinite(out) if kind != native.FLOAT else (out == exact) | (np.isnan(out) & np.isnan(exact))
            finite = np.isfinite(exact)
            close = abs(np.where(finite, out, 0) - np.where(finite, exact, 0)) <= u * (200 + columns) * size
            assert np.where(finite, close, same).all(), (shapes, kind, has_program, low, strange)
"""

# Attention of bf16 by instructions for it, next to the definition in float64, rounded after every step. Operands are of few bits,
# so that scores are exact and round alike. Some numbers, products or weights are subnormal, some are NaN or infinite.
PAIR_ATTENTION = """
import itertools, sys
import ml_dtypes
import numpy as np
from ptir_tools import _native as native

assert native.ISA == sys.argv[1], native.ISA
assert native.PAIR_PANEL or native.ISA not in ("amxf32", "amxbf16")
rng = np.random.default_rng(3)
code = {name: i for i, name in enumerate(native.OPS)}
bf16 = ml_dtypes.bfloat16
nearest = lambda x: np.asarray(x).astype(np.float32).astype(bf16).astype(float)

def program(*steps):
    return bytes(b for n, r in (("on_elements", 0), ("load", 0), *steps) for b in (code[n], r, 0))

scaled = program(("mul", 1), ("nearest_bf16", 0), ("store", 2)), bytes([native.FULL] * 3)
biased = program(("mul", 1), ("nearest_bf16", 0), ("add", 2), ("nearest_bf16", 0), ("store", 3)), bytes([native.FULL] * 4)
sizes = [(1, 1, 1, 1, 1), (2, 7, 5, 3, 9), (1, 17, 512, 64, 64), (2, 49, 513, 8, 8), (1, 97, 1100, 17, 33), (1, 9, 40, 0, 5)]
sizes += [(3, 33, 31, 32, 16), (2, 1, 300, 64, 64), (1, 64, 33, 65, 15), (1, 40, 544, 2, 65)]
# Of queries, keys and values the factors.
factors = [(1, 1, 1), (16, 1, 1), (1, 4, 2.0**-110), (2.0**-70, 2.0**-70, 1), (1, 2.0**-133, 2.0**-131)]
factors += [(2.0**60, 2.0**30, 2.0**120)]
turned = itertools.cycle(itertools.product((False, True), repeat=3))
for (heads, rows, columns, depth, width), run, factor in itertools.product(
    sizes if native.PAIR_PANEL else (), ((b"", b""), scaled, biased), factors
):
    shapes = (heads, rows, depth), (columns, depth), (columns, width)
    given = [(rng.integers(-3, 4, s) * f).astype(bf16) for s, f in zip(shapes, factor)]
    given = [np.ascontiguousarray(x.swapaxes(-1, -2)).swapaxes(-1, -2) if t else x for x, t in zip(given, next(turned))]
    bias = (rng.integers(-64, 65, (heads, rows, columns)) * 0.125).astype(bf16)
    scale = bf16(rng.choice([0.25, 0.177, -3.0, 1e9]))
    arrays = (None, np.broadcast_to(scale, bias.shape), bias)[: max(0, len(run[1]) - 1)]
    i = np.arange(rows)
    limits = [(0, columns), (0, i + 1), (i - 3, i + 1), (0, i - 2)]
    for low, (first, last), strange in zip(
        itertools.cycle((-1e9, -np.inf, -3.0)), limits * 2, (None, None, None, np.nan, np.inf, -np.inf, 1e-40, 3e38)
    ):
        a, b, c = (x.copy(order="K") for x in given)
        x = (a, b, c)[int(rng.integers(3))]
        if strange is not None and x.size:
            x[tuple(int(rng.integers(n)) for n in x.shape)] = strange
        kept = np.stack(np.broadcast_arrays(np.clip(first, 0, columns), np.clip(last, 0, columns), np.arange(rows))[:2], 1)
        kept = kept.astype(np.int32)
        room = np.full(native.attention_floats(columns, depth, width, run[1], True), np.nan, np.float32)
        whole = np.full((rows, heads, width), 7, bf16)  # rows of a head do not lie one after the other
        views = [x.view(np.uint16) for x in (whole.swapaxes(0, 1), a, b, c)]
        told = kept if np.ndim(last) else kept[:0]
        shown = tuple(x if x is None else x.view(np.uint16) for x in arrays)
        low = float(nearest(low))
        native.attention(*views, room, told, low, native.BF16, *run, shown)
        out = whole.swapaxes(0, 1).astype(float)
        with np.errstate(all="ignore"):
            s = nearest(a.astype(float) @ b.astype(float).T)
            s = nearest(s * float(scale)) if arrays else s
            s = nearest(s + bias.astype(float)) if len(arrays) == 3 else s
            j = np.arange(columns)
            s = np.where((j >= kept[:, :1]) & (j < kept[:, 1:]), s, low)
            top = s.max(2, keepdims=True)
            e = nearest(np.exp(nearest(s - top)))
            p = nearest(e / nearest(e.sum(2, keepdims=True)))
            exact, size = p @ c.astype(float), p @ abs(c.astype(float))
        what = (shapes, len(arrays), factor, low, strange, scale)
        finite = np.isfinite(exact) & (abs(exact) < 3e38)
        bound = 2.0**-5 * size + 2.0**-133  # the sum of weights, and the scores of a panel, may round to another bf16
        assert (abs(np.where(finite, out, 0) - np.where(finite, exact, 0)) <= np.where(finite, bound, 0)).all(), what
        assert (np.isnan(out) == np.isnan(exact))[~finite & (abs(exact) != np.inf)].all(), what
        assert (~np.isfinite(out) | (abs(out) > 3e38))[~finite].all(), what
"""

# Loops, branches and decoding as one call, against the reference.
LOOPS = """
import sys
import numpy as np
import ptir_tools as ptir
from ptir_tools import _native as native
from ptir_tools.engines import RunOptions, compare, run
from ptir_tools.engines.inputs import random_inputs

assert native.ISA == sys.argv[1], native.ISA
programs = [ptir.read(f"testdata/models/gpt2_{name}.ptir") for name in ("greedy", "cached")]
for width in (1, 5, 16, 67, 200):
    g = ptir.Graph()
    c, x = g.input("c", "f32", (width,)), g.input("x", "f32", (9, width))
    y = g.scan([c], [x], lambda c, x: ((c * 0.5 + x).tanh(), c.exp() - x))
    i = g.input("i", "si32")
    z = g.while_([i * 0, y[0], c], lambda i, y, c: (i < 7, i, c, y), lambda i, y, c: (i + 1, y * 0.5, (c + y).erf()))
    sums = (z[1] * z[2]).reduce_sum([0]) > 0.0
    last = g.cond(sums, [z[1], c], lambda a, b: a.maximum(b), lambda a, b: a - b)
    programs.append(g.returns(*(v.named(f"r{n}") for n, v in enumerate([*y, *z, last]))))
for program in programs:
    inputs = random_inputs(program, 1)
    expected, bounds = compare.reference_outputs(program, inputs, RunOptions())
    for threads in (1, 2):
        found = run(program, inputs, RunOptions(engine="native", threads=threads))
        assert compare.compare(expected, found, bounds) == [], program
"""

# What is packed comes back bit for bit: any bits, among them NaN, infinities, subnormal numbers and both zeros.
UNPACKED = """
import itertools, sys
import numpy as np
from ptir_tools import _native as native

assert native.ISA == sys.argv[1], native.ISA
rng = np.random.default_rng(3)
sizes = [*itertools.product((0, 1, 2, 3, 5, 31, 33, 48, 65), (0, 1, 15, 16, 17, 47, 48, 49, 97, 130))]
sizes += [(1100, 50), (521, 1100), (50, 1057), (64, 2080)]
ends = np.array([0, 1 << 31, 1, 0x7f800000, 0x7f800001, 0xff800000, 0x7fc00000, 0x00800000, 0x7f7fffff, 0x80000001], np.uint32)
for (k, n), turned, strange in itertools.product(sizes, (0, 1), (0, 1, 2)):
    bits = rng.integers(0, 1 << 32, (n, k) if turned else (k, n), np.uint32)
    if strange < 2:  # what tiles take
        bits = rng.standard_normal(bits.shape).astype(np.float32).view(np.uint32)
        bits[rng.random(bits.shape) < 0.2] &= 0x80000000
    if strange == 1 and bits.size:  # some panels are not
        bits[:, rng.integers(bits.shape[1])] = rng.choice(ends, bits.shape[0])
    bits = bits.T if turned else bits
    for few in (False, True):
        packed = np.full(native.packed_size(bits.view(np.float32), few), 7, np.float32)
        found = np.full((k, n), 1, np.float32)
        native.pack(packed, bits.view(np.float32))
        native.unpack(found, packed)
        assert (found.view(np.uint32) == bits).all(), (k, n, turned, strange, few)
    kinds = [np.int8, np.uint8] + [np.uint16] * bool(native.BGEMM_SCRATCH)
    for kind in kinds:
        own = bits.astype(kind)
        packed = np.full(native.packed_size(own), 7, np.int32 if kind is np.int8 else np.uint32)
        found = np.full((k, n), 1, kind)
        native.pack(packed, own)
        native.unpack(found, packed)
        assert (found == own).all(), (k, n, turned, kind)
for bad in (np.empty((64, 64), np.float32), np.empty((65, 64), np.float32)[::2], np.empty((64, 65), np.uint8)):
    try:
        native.unpack(bad, np.empty(5, np.float32))
    except ValueError:
        continue
    raise AssertionError("what does not fit was unpacked")
"""


# Quotients of a row by one number are rounded correctly: also next to the middle between two floats, subnormal or not finite.
QUOTIENTS = """
import sys
import numpy as np
from ptir_tools import _native as native

assert native.ISA == sys.argv[1], native.ISA
rng = np.random.default_rng(7)
names = {name: i for i, name in enumerate(native.OPS)}
code = bytes(b for n, r in (("on_elements", 0), ("load", 0), ("div", 1), ("store", 2)) for b in (names[n], r, 0))
kinds = bytes([native.FULL, native.ROWS, native.FULL])
below = np.nextafter(np.float32(2), np.float32(0))
by = [1.0, below, 1.5, 3.0, 1 + 2.0**-23, 2.0**30, 2.0**30 * 1.5, 2.0**-30, 2.0**-31, 2.0**100, 1e-40, 0.0, -3.0, np.inf, np.nan]
by = np.concatenate([by, 1 + rng.random(600), 2 - 2.0**-18 * rng.random(200), np.exp(rng.uniform(-60, 60, 100))])
by = by.astype(np.float32)[:, None]
middles = (rng.integers(1 << 23, 1 << 24, (len(by), 1024)) + 0.5) * 2.0**-24
with np.errstate(all="ignore"):
    x = (middles * by.astype(float)).astype(np.float32)
    x = np.concatenate([x, np.nextafter(x, np.float32(0)), np.nextafter(x, np.float32(np.inf))], 1)
    x[:, -64:] = rng.choice([0.0, -0.0, 1e-42, 1e-30, 2.0**-60, 2.0**60, 3e38, -1.5, np.inf, -np.inf, np.nan], (len(by), 64))
    x[:, 64:1024:3] *= np.exp(rng.uniform(-41, 41, x[:, 64:1024:3].shape)).astype(np.float32)
    x[:, 1024:1088] = 0
    for given in (x, x[:, :2111], x[:, 1::2]):
        out = np.empty(given.shape, np.float32)
        for is_large in (False, True):
            room = np.empty(native.tile_floats(kinds, *given.shape, False), np.float32)
            native.tiles(code, kinds, (given, by, out), 2, *given.shape, False, room, is_large)
            want = given / by
            same = (out.view(np.int32) == want.view(np.int32)) | (np.isnan(out) & np.isnan(want))
            assert same.all(), (given[~same][:3], np.broadcast_to(by, want.shape)[~same][:3], out[~same][:3], want[~same][:3])
"""

# A softmax of many rows is that of each row for itself, bit for bit, and right; rows anywhere, the last tile not full.
SOFTMAX = """
import sys
import ml_dtypes
import numpy as np
from ptir_tools import _native as native

assert native.ISA == sys.argv[1], native.ISA
rng = np.random.default_rng(9)
names = {name: i for i, name in enumerate(native.OPS)}
steps = [("on_elements", 0, 0), ("load", 0, 0), ("reduce_max", 2, 0)]
steps += [("on_elements", 0, 0), ("load", 0, 0), ("sub", 2, 0), ("exp", 0, 0), ("store", 4, 0), ("reduce_sum", 3, 1)]
steps += [("on_elements", 0, 0), ("load", 4, 0), ("div", 3, 0), ("store", 1, 0)]
steps += [("on_rows", 0, 0), ("load", 3, 0), ("log", 0, 0), ("store", 5, 0)]
code = bytes(b for n, r, c in steps for b in (names[n], r, c))
order = bytes([0, 1, 2, 3, 5, 4])  # registers of arrays come first: x, out, most, sum, log of the sum
code = bytes(order[b] if i % 3 == 1 else b for i, b in enumerate(code))
kinds = bytes([native.FULL, native.FULL, native.ROWS, native.ROWS, native.ROWS, native.FULL])

def run(x, outs):
    room = np.full(native.tile_floats(kinds, *x.shape, True), np.nan, np.float32)
    native.tiles(code, kinds, (x, *outs), 1, *x.shape, True, room, True)

bits = lambda x: x.view(np.uint16) if x.dtype.itemsize == 2 else x
for rows, columns in ((37, 2048), (11, 640), (5, 4096), (3, 5000), (50, 129), (300, 20), (1, 64), (0, 7)):
    for dtype in (np.float32, np.float16, ml_dtypes.bfloat16):
        x = (rng.standard_normal((rows, columns + 3)) * 5).astype(dtype)[:, 2:-1]
        if rows > 2:
            x[1, columns // 2], x[2, :9], x[0, :12] = np.nan, -np.inf, -80
        given = bits(x) if dtype is ml_dtypes.bfloat16 else x
        outs, each = ([np.zeros((rows, n), np.float32) for n in (columns, 1, 1, 1)] for _ in range(2))
        run(given, outs)
        for i in range(rows):
            run(given[i : i + 1], [o[i : i + 1] for o in each])
        for a, b in zip(outs, each):
            assert np.array_equal(a, b, equal_nan=True), (rows, columns, dtype)
        with np.errstate(all="ignore"):
            wide = x.astype(float)
            e = np.exp(wide - wide.max(1, keepdims=True, initial=-np.inf))
            want = e / e.sum(1, keepdims=True)
        np.testing.assert_allclose(outs[0], want, rtol=1e-5, atol=1e-40)
"""

PROGRAMS = {
    "quotients": QUOTIENTS,
    "softmax": SOFTMAX,
    "f32": PRODUCTS,
    "unpacked": UNPACKED,
    "bytes": BYTES,
    "quantized": QUANTIZED,
    "steps": STEPS,
    "bf16": PAIRS,
    "ranges": RANGES,
    "windows": WINDOWS,
    "rows": ROWS,
}
PROGRAMS |= {"attention": ATTENTION, "attention of bf16": PAIR_ATTENTION, "loops": LOOPS}


def _run(isa: str, program: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", program, isa]
    return subprocess.run(command, env={**os.environ, "PTIR_ISA": isa}, capture_output=True, text=True)


@pytest.mark.parametrize("isa", native.ISAS)
@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_products(isa: str, program: str) -> None:
    done = _run(isa, program)
    assert done.returncode == 0, done.stderr


def test_the_fastest_is_used_and_another_can_be_chosen() -> None:
    assert os.environ.get("PTIR_ISA", native.ISAS[0]) == native.ISA
    assert native.ISAS[-1] == "baseline"


def test_an_instruction_set_that_the_machine_lacks_is_refused() -> None:
    done = _run("vax", "import ptir_tools._native")
    assert done.returncode == 1
    assert "PTIR_ISA=vax" in done.stderr
