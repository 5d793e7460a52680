"""`pto-legalize`: what a target lacks is refused by `verify` and rewritten by the pass, with the same numbers."""

import ml_dtypes
import numpy as np
import pytest

from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Options
from ptir_tools.dialects.pto.targets import find
from ptir_tools.dialects.pto.text.cpp import write
from ptir_tools.passes import PassContext, run_pipeline
from tests.pto.programs import check, codes, good, module, printed, run

STRICT = Options(forms=True)
T, WHOLE, COLUMN = "tile<16x64xf32>", "tile<16x64xi32>", "tile<16x1xf32>"
X, N = "pto.memref<16x64xf32>", "pto.memref<16x64xi32>"
DN = "pto.memref<16x1xf32, {layout = #pto.layout<DN>}>"
LOAD = f"%t = pto.tile.load %x[0, 0] : {X}, {T}"


def legal(source):
    """A program after the pass, which `verify` with every rule accepts."""
    program = good(source)
    run_pipeline(program, "pto-infer-tile-info,pto-legalize,pto-canonicalize", PassContext(diagnostics=Diagnostics()))
    assert codes(printed(program), STRICT) == []
    return program


def same(source, **inputs):
    """The pass changes no bit."""
    before, after = run(source, inputs), run(legal(source), inputs)
    for name, wanted in before.items():
        found = [x.astype(np.float64) if x.dtype == ml_dtypes.bfloat16 else x for x in (after[name], wanted)]
        np.testing.assert_array_equal(*found, err_msg=name)


@pytest.mark.parametrize("target", ["a3", "a5"])
@pytest.mark.parametrize("valid", ["", " {valid = [%n, 64]}"])
def test_elementwise_on_columns(target, valid):
    lines = [
        LOAD.replace(" : ", f"{valid} : "),
        f"%s = pto.tile.rowsum %t : {T} -> {COLUMN}",
        "%k = pto.constant 0.125 : f32",
        f"%u = pto.tile.muls %s, %k : {COLUMN}, f32",
        f"%e = pto.tile.exp %u : {COLUMN}",
        f"%m = pto.tile.cmp %e, %s {{cmpMode = #pto.cmp<LT>}} : {COLUMN} -> tile<16x1xi8>",
        f"%w = pto.tile.sel %m, %e, %s : tile<16x1xi8>, {COLUMN}, {COLUMN} -> {COLUMN}",
        f"%y = pto.tile.rowexpandmul %t, %w : {T}, {COLUMN} -> {T}",
        f"pto.tile.store %y, %o[0, 0] : {X}, {T}",
    ]
    source = module(f"%x: {X}, %o: {X}, %n: index", *lines, target=target).replace("tile<16x1xi8>", "tile<32x1xi8>")
    source = source.replace("16x", "32x")
    assert codes(source, STRICT) == ["InvalidLayout"] * 4 and codes(source) == []
    x = np.random.default_rng(1).standard_normal((32, 64)).astype(np.float32)
    same(source, x=x, o=np.zeros_like(x), n=np.int64(13))
    assert "tile<32x1xf32" not in printed(legal(source)).partition("tile.exp")[2].partition("\n")[0]


def test_columns_that_a_loop_carries():
    lines = [
        LOAD,
        f"%s = pto.tile.rowmax %t : {T} -> {COLUMN}",
        "%c1 = pto.constant 1 : index",
        f"%r = scf.for %i = %c0 to %n step %c1 iter_args(%p = %s) -> ({COLUMN}) {{",
        f"  %q = pto.tile.add %p, %s : {COLUMN}",
        f"  scf.yield %q : {COLUMN}",
        "}",
        f"pto.tile.store %r, %o[0, 0] : {DN}, {COLUMN}",
    ]
    source = module(f"%x: {X}, %o: {DN}, %n: index", *lines, target="a3")
    x = np.random.default_rng(2).standard_normal((16, 64)).astype(np.float32)
    for n in (0, 1, 5):
        same(source, x=x, o=np.zeros((16, 1), np.float32), n=np.int64(n))


@pytest.mark.parametrize("op", ["adds", "subs", "muls", "maxs", "mins", "lrelu", "rems", "divs"])
def test_the_scalar_first(op):
    lines = [LOAD, "%k = pto.constant 1.5 : f32", f"%r = pto.tile.{op} %k, %t : f32, {T}"]
    lines += [f"pto.tile.store %r, %o[0, 0] : {X}, {T}"]
    source = module(f"%x: {X}, %o: {X}", *lines, target="a3")
    assert codes(source, STRICT) == ([] if op == "divs" else ["IllegalOnTarget"])
    x = np.random.default_rng(3).standard_normal((16, 64)).astype(np.float32)
    x[0, :3] = 1.5, -1.5, 0.25
    same(source, x=x, o=np.zeros_like(x))


ENDS = np.array([-(2**31), -(2**31) + 1, -1, 0, 1, 7, 2**24 + 1, 2**31 - 1], np.int32)


@pytest.mark.parametrize("scalar", [False, True])
@pytest.mark.parametrize("mode", ["EQ", "NE", "LT", "LE", "GT", "GE"])
def test_comparisons_of_integers(mode, scalar):
    """Every pair of the ends of the range, of zero and of neighbors."""
    for number in ENDS if scalar else ENDS[:1]:
        own = "cmps %a, %k" if scalar else "cmp %a, %b"
        types = f"{WHOLE}, i32" if scalar else WHOLE
        lines = [
            f"%a = pto.tile.load %x[0, 0] : {N}, {WHOLE}",
            f"%b = pto.tile.load %y[0, 0] : {N}, {WHOLE}",
            f"%k = pto.constant {number} : i32",
            f"%m = pto.tile.{own} {{cmpMode = #pto.cmp<{mode}>}} : {types} -> tile<16x64xi8>",
            f"%r = pto.tile.sel %m, %a, %b : tile<16x64xi8>, {WHOLE}, {WHOLE} -> {WHOLE}",
            f"pto.tile.store %r, %o[0, 0] : {N}, {WHOLE}",
        ]
        source = module(f"%x: {N}, %y: {N}, %o: {N}", *lines, target="a3")
        assert codes(source, STRICT) == ([] if mode == "EQ" else ["IllegalOnTarget"])
        assert codes(source.replace("a3", "a5"), STRICT) == []
        x, y = (np.resize(v.reshape(-1), (16, 64)) for v in np.meshgrid(ENDS, ENDS))
        same(source, x=x.copy(), y=y.copy(), o=np.zeros((16, 64), np.int32))


def test_acc_to_vec():
    half, left, right = (f"tile<16x16xf16, #pto.tile_info<loc={at}>>" for at in ("Mat", "Left", "Right"))
    acc = "tile<16x16xf32, #pto.tile_info<loc=Acc>>"
    lines = [
        f"%a = pto.tile.load %x[0, 0] : pto.memref<16x16xf16>, {half}",
        f"%l = pto.tile.mov.m2l %a : {half} -> {left}",
        f"%r = pto.tile.mov.m2r %a : {half} -> {right}",
        f"%p = pto.tile.matmul %l, %r : {left}, {right} -> {acc}",
        f"%v = pto.tile.mov.a2v %p : {acc} -> tile<16x16xf32>",
        "pto.tile.store %v, %o[0, 0] : pto.memref<16x16xf32>, tile<16x16xf32>",
    ]
    source = module("%x: pto.memref<16x16xf16>, %o: pto.memref<16x16xf32>", *lines, target="a3")
    found = check(source, STRICT)[1]
    assert [d.code for d in found] == ["InvalidLocation"] and "to Mat, not to Vec" in found.items[0].message
    assert codes(source.replace("a3", "a5"), STRICT) == codes(source) == []


ADDRESSED = [
    "%c1 = pto.constant 1 : index",
    "%k = pto.constant 0.125 : f32",
    "%a = pto.constant 0 : index",
    "%b = pto.constant 8192 : index",
    "%d = pto.constant 8448 : index",
    "%s = pto.tile.expands %k : f32, tile<16x1xf32>",
    "pto.tile.assign %s, %b : tile<16x1xf32>, index",
    f"%r = scf.for %i = %c0 to %n step %c1 iter_args(%p = %s) -> ({COLUMN}) {{",
    f"  {LOAD}",
    f"  pto.tile.assign %t, %a : {T}, index",
    f"  %m = pto.tile.rowmax %t : {T} -> {COLUMN}",
    f"  pto.tile.assign %m, %d : {COLUMN}, index",
    f"  %u = pto.tile.muls %k, %m : f32, {COLUMN}",
    f"  pto.tile.assign %u, %d : {COLUMN}, index",
    f"  %q = pto.tile.add %p, %u : {COLUMN}",
    f"  pto.tile.assign %q, %b : {COLUMN}, index",
    f"  scf.yield %q : {COLUMN}",
    "}",
    f"pto.tile.store %r, %o[0, 0] : {DN}, {COLUMN}",
]


def test_columns_with_addresses():
    """A row has the address of its column: one that is stated, or that of what a loop carries."""
    source = module(f"%x: {X}, %o: {DN}, %n: index", *ADDRESSED, target="a3")
    x = np.random.default_rng(4).standard_normal((16, 64)).astype(np.float32)
    assert set(codes(source, STRICT)) == {"InvalidLayout"}
    for n in (0, 1, 4):
        same(source, x=x, o=np.zeros((16, 1), np.float32), n=np.int64(n))
    found = Diagnostics()
    assert "TADD(" in "".join(write(legal(source), found, Options())) and not list(found)


def test_a_column_without_a_known_address_stays():
    """What a loop carries has no row where its bytes are not the same in every iteration, as far as is known."""
    lines = [x for x in ADDRESSED if "assign %q" not in x]
    program = good(module(f"%x: {X}, %o: {DN}, %n: index", *lines, target="a3"))
    run_pipeline(program, "pto-infer-tile-info,pto-legalize", PassContext(diagnostics=Diagnostics()))
    assert f"pto.tile.add %p, %u : {COLUMN[:-1]}" in printed(program)


@pytest.mark.parametrize("op", ["subs", "shls", "adds"])
def test_the_event_of_a_rewritten_op(op):
    event = f"!pto.event<producer = #pto.op<T{op.upper()}>>"
    lines = [
        f"%t = pto.tile.load %x[0, 0] : {N}, {WHOLE}",
        "%k = pto.constant 2 : i32",
        f"%y, %e = pto.tile.{op} %k, %t : i32, {WHOLE}, {event}",
        "%c1 = pto.constant 1 : index",
        f"%f = scf.for %i = %c0 to %c1 step %c1 iter_args(%g = %e) -> ({event}) {{",
        f"scf.yield %g : {event}",
        "}",
        f"pto.tile.store %y, %o[0, 0] wait(%f) : {N}, {WHOLE}",
    ]
    x = np.random.default_rng(1).integers(0, 9, (16, 64)).astype(np.int32)
    same(module(f"%x: {N}, %o: {N}", *lines, target="a3"), x=x, o=np.zeros_like(x))


FLOATS = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}
ELEMENTS = FLOATS | {
    d: np.dtype(d.replace("u", "uint").replace("i", "int", d[0] == "i")) for d in ("i8", "u8", "i16", "u16", "i32", "u32")
}
EDGES = (
    0,
    -0.5,
    0.5,
    1.5,
    2.5,
    -1.5,
    127,
    128,
    -129,
    255.5,
    300,
    -300,
    32768,
    65535,
    65536,
    1e9,
    -1e9,
    2**31,
    4e9,
    2**32,
    1e10,
    np.nan,
)


def given(dtype):
    """Random elements, with the ends of ranges among them."""
    kind, rng = np.dtype(ELEMENTS[dtype]), np.random.default_rng(3)
    if dtype in FLOATS:
        with np.errstate(over="ignore"):
            made = (rng.standard_normal((16, 64)) * 10 ** rng.uniform(-1, 6, (16, 64))).astype(kind)
            made.flat[: len(EDGES)] = np.array(EDGES).astype(kind)
        return made
    least, most = np.iinfo(kind).min, np.iinfo(kind).max
    made = rng.integers(least, int(most) + 1, (16, 64)).astype(kind)
    made.flat[:6] = (least, most, 0, 1, most - 1, least + 1)
    return made


@pytest.mark.parametrize("target", ["a3", "a5"])
@pytest.mark.parametrize("source", ELEMENTS)
def test_conversions(source, target):
    """All of them, with the bits that the op has: those that the target lacks, through other elements."""
    known = find(target).conversions.get(source, "").split()
    for to in ELEMENTS:
        x, made, mode = f"tile<16x64x{source}>", f"tile<16x64x{to}>", "{rmode = #pto.round_mode<CAST_FLOOR>}"
        text = module(
            f"%x: pto.memref<16x64x{source}>, %o: pto.memref<16x64x{to}>",
            f"%t = pto.tile.load %x[0, 0] {{valid = [13, 60]}} : pto.memref<16x64x{source}>, {x}",
            f"%r, %e = pto.tile.cvt %t {mode} : {x} -> {made}, !pto.event<producer = #pto.op<TCVT>>",
            f"pto.tile.store %r, %o[0, 0] wait(%e) : pto.memref<16x64x{to}>, {made}",
            target=target,
        )
        assert codes(text, STRICT) == ([] if to in known else ["IllegalOnTarget"]), to
        same(text, x=given(source), o=np.zeros((16, 64), ELEMENTS[to]))
