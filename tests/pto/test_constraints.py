"""What single ops ask of sizes, offsets and layouts on a target, and how tiles share memory in place."""

import pytest

from ptir_tools.dialects.pto.memory import capacity
from ptir_tools.dialects.pto.targets import A3
from tests.pto.programs import codes, good, module


def tile(shape, dtype, **info):
    more = ", ".join(f"{k}={v}" for k, v in info.items())
    return f"tile<{shape}x{dtype}{f', #pto.tile_info<{more}>' if more else ''}>"


def mat(shape, dtype, layout="Nz"):
    return tile(shape, dtype, loc="Mat", layout=layout)


def acc(shape, dtype="f32"):
    return tile(shape, dtype, loc="Acc", layout="Nz")


def left(shape, dtype):
    return tile(shape, dtype, loc="Left", layout="Zz")


def right(shape, dtype):
    return tile(shape, dtype, loc="Right", layout="Zn")


def load(memory, t):
    return f"%x: {memory}", f"%t = pto.tile.load %x[0, 0] : {memory}, {t}"


def store(t, memory, how=""):
    return f"%x: {t}, %m: {memory}", f"pto.tile.store %x, %m[0, 0] {{{how}}} : {memory}, {t}"


def extract(at, source, to):
    return f"%x: {source}", f"%t = pto.tile.extract %x[{at}] : {source} -> {to}"


def move(kind, source, to):
    return f"%x: {source}", f"%t = pto.tile.mov.{kind} %x : {source} -> {to}"


def assign(at):
    t = tile("32x32", "f32")
    return f"%x: {t}", f"%k = pto.constant {at} : index\n    pto.tile.assign %x, %k : {t}, index"


def memref(shape, dtype, layout):
    return f"pto.memref<{shape}x{dtype}, {{space = #pto.space<gm>, layout = #pto.layout<{layout}>}}>"


ND, DN, VEC = memref("32x32", "f32", "ND"), memref("32x32", "f32", "DN"), {"loc": "Vec"}


@pytest.mark.parametrize(
    "case, code",
    [
        (load(ND, tile("32x32", "f32", loc="Vec", layout="ND")), None),
        (load(DN, tile("32x32", "f32", loc="Vec", layout="ND")), "InvalidLayout"),
        (load(DN, tile("32x32", "f32", loc="Vec", layout="DN")), None),
        (load(memref("32x1", "f32", "ND"), tile("32x1", "f32", loc="Vec", layout="DN")), None),  # a column is both
        (load(ND, mat("32x32", "f32")), None),
        (load(ND, mat("32x32", "f32", "Zn")), "InvalidLayout"),
        (load(DN, mat("32x32", "f32", "Zn")), None),
        (load("pto.memref<4096x8xi8>", tile("4096x32", "i8", valid="[4096, 8]")), "IllegalOnTarget"),
        (load("pto.memref<32x32xi64>", tile("32x32", "i64", loc="Vec", layout="ND")), None),
        (load("pto.memref<32x32xi64>", mat("32x32", "i64")), "InvalidLayout"),
        (store(tile("32x32", "f32", loc="Vec", layout="ND"), ND), None),
        (store(tile("32x32", "f32", loc="Vec", layout="ND"), DN), "InvalidLayout"),
        (store(tile("32x1", "f32", loc="Vec", layout="DN"), memref("32x1", "f32", "ND")), None),
        (store(acc("32x32"), ND), None),
        (store(acc("32x32"), DN), "InvalidLayout"),
        (store(acc("16x16"), "pto.memref<16x16xf16>"), None),
        (store(acc("16x16"), "pto.memref<16x16xi8>"), "IllegalOnTarget"),
        (store(acc("16x16", "i32"), "pto.memref<16x16xi32>"), None),
        (store(tile("32x32", "f32"), ND, "atomic = #pto.atomic<AtomicAdd>"), None),
        (store(tile("32x32", "f32"), ND, "atomic = #pto.atomic<AtomicMax>"), "IllegalOnTarget"),
        (store(tile("32x32", "u32"), "pto.memref<32x32xu32>", "atomic = #pto.atomic<AtomicAdd>"), "IllegalOnTarget"),
        (store(acc("32x32"), ND, "relu = true"), None),
        (store(tile("32x32", "f32"), ND, "relu = true"), "IllegalOnTarget"),
        (extract("16, 16", mat("64x64", "f16"), left("32x32", "f16")), None),
        (extract("8, 0", mat("64x64", "f16"), left("32x32", "f16")), "Misaligned"),
        (extract("16, 8", mat("64x64", "f32"), left("32x32", "f32")), None),  # boxes of f32 are 16 x 8
        (extract("8, 16", mat("64x64", "f32"), right("32x32", "f32")), None),
        (extract("16, 8", mat("64x64", "f32"), right("32x32", "f32")), "Misaligned"),
        (move("m2b", mat("1x32", "f32", "ND"), tile("1x32", "f32", loc="Bias", layout="ND")), None),
        (move("m2b", mat("1x8", "f32", "ND"), tile("1x8", "f32", loc="Bias", layout="ND")), "Misaligned"),
        (move("m2s", mat("1x8", "u64", "ND"), tile("1x8", "u64", loc="Scale", layout="ND")), "Misaligned"),
        (move("m2s", mat("1x16", "u64", "ND"), tile("1x16", "u64", loc="Scale", layout="ND")), None),
        (assign(64), None),
        (assign(3), "Misaligned"),
        (assign(192 * 1024 - 4096), None),
        (assign(192 * 1024), "CapacityExceeded"),
        (assign(-32), "CapacityExceeded"),
        (("%s: i32", f"%t = pto.tile.ci %s : {tile('1x32', 'i32')}"), None),
        (("%s: i32", f"%t = pto.tile.ci %s : {tile('1x1', 'i32')}"), "IllegalOnTarget"),
        *(
            ((f"%x: {tile('1x512', 'f32')}", f"%t = pto.tile.mrgsort %x {{blockLen = {n}}} : {tile('1x512', 'f32')}"), code)
            for n, code in ((64, None), (128, None), (32, "IllegalOnTarget"), (192, "IllegalOnTarget"))
        ),
    ],
)
def test_constraints(case, code):
    parameters, line = case
    found = codes(module(parameters, line, target="a3"))
    assert [c for c in found if code is None or c != code or found.count(c) > 1] == []
    assert code is None or code in found


def test_an_offset_that_varies_is_not_judged():
    parameters, line = extract("%i, 0", mat("64x64", "f16"), left("32x32", "f16"))
    assert codes(module(f"{parameters}, %i: index", line, target="a3")) == []


@pytest.mark.parametrize("makes", ["load", "add", "store"])
def test_only_what_may_be_in_acc_is_stored_to_other_elements(makes):
    f32, half = "pto.memref<16x16xf32>", "pto.memref<16x16xf16>"
    lines = [f"%t = pto.tile.load %a[0, 0] : {f32}, tile<16x16xf32>", "%u = pto.tile.add %t, %t : tile<16x16xf32>"]
    end = f"pto.tile.store {'%t' if makes == 'load' else '%u'}, %o[0, 0] : {half}, tile<16x16xf32>"
    if makes == "store":
        operands = "tile<16x16xf16>"
        lines = [f"%u = pto.tile.matmul %l, %r : {operands}, {operands} -> tile<16x16xf32>"]
    found = codes(module(f"%a: {f32}, %o: {half}, %l: tile<16x16xf16>, %r: tile<16x16xf16>", *lines, end))
    assert found == ([] if makes == "store" else ["TypeMismatch"])


# In place


def storage(parameters, *lines):
    program = good(module(parameters, *lines))
    made = capacity.buffers(program.main, A3)
    return {b.value.name: b.parent and b.parent.value.name for b in made}, {s.name: s.peak for s in capacity.spaces(program.main)}


def test_an_accumulator_is_written_in_place():
    t, product = acc("128x256"), f"{left('128x32', 'f16')}, {right('32x256', 'f16')} -> {acc('128x256')}"
    parents, peaks = storage(
        f"%l: {left('128x32', 'f16')}, %r: {right('32x256', 'f16')}, %o: pto.memref<128x256xf32>",
        f"%p = pto.tile.matmul %l, %r : {product}",
        f"%q = pto.tile.matmul.acc %p, %l, %r : {t}, {product}",
        f"pto.tile.store %q, %o[0, 0] : pto.memref<128x256xf32>, {t}",
    )
    assert parents["q"] == "p" and peaks["Acc"] == A3.capacity["Acc"] == 128 * 256 * 4


@pytest.mark.parametrize(
    "line, dies, place",
    [
        ("%r = pto.tile.add %x, %x : tile<8x8xf32>", True, "x"),
        ("%r = pto.tile.add %x, %x : tile<8x8xf32>", False, None),
        ("%r = pto.tile.rsqrt %x : tile<8x8xf32>", True, None),
        ("%r = pto.tile.cvt %x : tile<8x8xf32> -> tile<8x8xi32>", True, "x"),
        ("%r = pto.tile.cvt %x : tile<8x8xf32> -> tile<8x8xf16>", True, None),
        ("%r = pto.tile.trans %x : tile<8x8xf32> -> tile<8x8xf32>", True, None),
        ("%r = pto.tile.reshape %x : tile<8x8xf32> -> tile<4x16xf32>", False, "x"),
        ("%r = pto.tile.sel %m, %y, %x : tile<8x8xf32>", True, "x"),
        ("%r = pto.tile.rowexpandadd %x, %c : tile<8x8xf32>, tile<8x1xf32> -> tile<8x8xf32>", True, "x"),
    ],
)
def test_a_result_lies_where_an_operand_of_its_size_dies(line, dies, place):
    m = "pto.memref<8x8xf32>"
    after = "%z = pto.tile.add %x, %y : tile<8x8xf32>"
    parents, _ = storage(
        f"%a: {m}, %m: tile<8x8xi8>, %y: tile<8x8xf32>, %c: tile<8x1xf32>",
        f"%x = pto.tile.load %a[0, 0] : {m}, tile<8x8xf32>",
        line,
        *(() if dies else (after,)),
        "%w = pto.tile.add %y, %y : tile<8x8xf32>",
        "%v = pto.tile.add %w, %y : tile<8x8xf32>",
    )
    assert parents["r"] == place
