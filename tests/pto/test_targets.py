"""Legality on a3 and a5: element types, places, layouts, alignment, capacities."""

import pytest

from ptir_tools.core.dialect import Options
from ptir_tools.dialects.pto.memory import capacity
from ptir_tools.dialects.pto.targets import A3, A5, TARGETS, find
from ptir_tools.plan import plan
from tests.pto.programs import SAMPLES, check, codes, good, module


def tile(dtype, rows=32, columns=32, **info):
    shown = ", ".join(f"{k}={v}" for k, v in info.items())
    return f"tile<{rows}x{columns}x{dtype}{f', #pto.tile_info<{shown}>' if info else ''}>"


def of(target, parameters, *lines):
    return codes(module(parameters, *lines, target=target))


@pytest.mark.parametrize(
    "name, target", [("a3", A3), ("a2", A3), ("a2a3", A3), ("A5", A5), ("Ascend910B1", A3), ("Ascend950", A5), ("a4", None)]
)
def test_names(name, target):
    assert find(name) is target


def test_the_command_line_overrides_the_module():
    source = (SAMPLES / "11_target_a3_bf16_add.pto").read_text()
    _, found = check(source, Options(target="a5"))
    assert [(d.severity, d.code) for d in found] == [("warning", "TargetOverridden")]
    assert codes(source, Options(target="a2")) == ["IllegalOnTarget"]
    assert codes(source, Options(target="b7")) == ["UnknownTarget"]
    assert codes(source.replace("#pto.target<a3>", '"b7"')) == ["UnknownTarget"]


@pytest.mark.parametrize("name", ["32_bad_alignment_a3", "25_bad_ub_overflow_a3", "11_target_a3_bf16_add"])
def test_without_a_target_only_the_ir_counts(name):
    source = (SAMPLES / f"{name}.pto").read_text()
    good(source.replace(" attributes { pto.target = #pto.target<a3> }", ""))


BF16 = f"%r = pto.tile.add %x, %x : {tile('bf16')}"


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    "dtype, statement, legal",
    [
        ("bf16", "%r = pto.tile.add %x, %x : {t}", ["a5"]),
        ("i8", "%r = pto.tile.max %x, %x : {t}", ["a5"]),
        ("i8", "%r = pto.tile.mul %x, %x : {t}", []),
        ("u16", "%r = pto.tile.shr %x, %x : {t}", ["a3", "a5"]),
        ("f16", "%r = pto.tile.fmod %x, %x : {t}", ["a5"]),
        ("i32", "%r = pto.tile.muladddst %x, %x, %x : {t}", []),
        (
            "i32",
            "%s = pto.tile.rowsum %x : {t} -> tile<32x1xi32>\n%r = pto.tile.rowexpandadd %x, %s : {t}, tile<32x1xi32> -> {t}",
            ["a3", "a5"],
        ),
        ("i32", "%r = pto.tile.div %x, %x : {t}", ["a5"]),
        ("bf16", "%r = pto.tile.exp %x : {t}", []),
        ("f16", "%r = pto.tile.exp %x : {t}", ["a3", "a5"]),
        ("i32", "%r = pto.tile.and %x, %x : {t}", ["a5"]),
        ("i32", "%r = pto.tile.cvt %x : {t} -> tile<32x32xf32>", ["a3", "a5"]),
        ("f8e4m3fn", "%r = pto.tile.cvt %x : {t} -> tile<32x32xf32>", ["a5"]),
    ],
)
def test_element_types(target, dtype, statement, legal):
    t = tile(dtype)
    assert of(target, f"%x: {t}", statement.format(t=t)) == ([] if target in legal else ["IllegalOnTarget"])


def test_products():
    for dtype, acc, legal in (("i8", "i32", 2), ("f16", "f32", 2), ("f8e5m2", "f32", 1), ("i16", "i32", 0)):
        left, right, out = tile(dtype, loc="Left"), tile(dtype, loc="Right"), tile(acc, loc="Acc")
        statement = f"%r = pto.tile.matmul %x, %y : {left}, {right} -> {out}"
        assert sum(of(t, f"%x: {left}, %y: {right}", statement) == [] for t in TARGETS) == legal


@pytest.mark.parametrize(
    "t, code",
    [
        (tile("f32", 4, 5), "Misaligned"),
        (tile("f32", 4, 8), None),
        (tile("f32", 8, 1), None),  # a column is DN by default
        (tile("f32", 7, 1), "Misaligned"),
        (tile("f16", 8, 16, loc="Mat", layout="Nz"), "Misaligned"),
        (tile("f16", 16, 16, loc="Mat", layout="Nz"), None),
        (tile("f16", 16, 16, loc="Mat", layout="Zz"), "InvalidLayout"),
        (tile("f32", 512, 128), "CapacityExceeded"),
        (tile("f32", 128, 128), None),
    ],
)
def test_single_tiles(t, code):
    rows, columns = t[5:].split("x")[:2]
    dtype = t.split("x")[2].rstrip(">").partition(",")[0]
    memory = f"pto.memref<{rows}x{columns}x{dtype}>"
    assert of("a3", f"%m: {memory}", f"%t = pto.tile.load %m[0, 0] : {memory}, {t}") == ([code] if code else [])


def test_places():
    mat = tile("f32", loc="Mat", layout="Nz")
    assert of("a3", f"%x: {mat}", f"%r = pto.tile.add %x, %x : {mat}") == ["InvalidLocation"]
    left = tile("f32", loc="Left")
    assert of("a3", "%m: pto.memref<32x32xf32>", f"%r = pto.tile.load %m[0, 0] : pto.memref<32x32xf32>, {left}") == [
        "InvalidLocation"
    ]
    store = f"pto.tile.store %x, %m[0, 0] : pto.memref<32x32xf32>, {mat}"
    assert of("a3", f"%m: pto.memref<32x32xf32>, %x: {mat}", store) == []
    assert of("a5", f"%m: pto.memref<32x32xf32>, %x: {mat}", store) == ["InvalidLocation"]
    column = tile("f32", loc="Vec", layout="DN")
    assert of("a3", f"%x: {column}", f"%r = pto.tile.add %x, %x : {column}") == ["InvalidLayout"]


def peak(source, space="Vec"):
    program = good(source)
    return {s.name: s.peak for s in capacity.spaces(program.main, A3)}[space]


def test_peaks():
    assert peak((SAMPLES / "16_ub_exact_fit_a3.pto").read_text()) == A3.capacity["Vec"]
    source = (SAMPLES / "25_bad_ub_overflow_a3.pto").read_text().replace(" attributes { pto.target = #pto.target<a3> }", "")
    assert peak(source) == 4 * 128 * 128 * 4


def test_what_a_loop_uses_lives_as_long_as_the_loop():
    size = 32 * 32 * 4
    loop = (
        "%c1 = pto.constant 1 : index",
        "%x = pto.tile.load %m[0, 0] : pto.memref<32x32xf32>, tile<32x32xf32>",
        "scf.for %i = %c0 to %n step %c1 {",
        "  %y = pto.tile.exp %x : tile<32x32xf32>",
        "  %z = pto.tile.add %y, %y : tile<32x32xf32>",
        "  pto.tile.store %z, %m[0, 0] : pto.memref<32x32xf32>, tile<32x32xf32>",
        "}",
    )
    assert peak(module("%m: pto.memref<32x32xf32>, %n: index", *loop)) == 2 * size
    straight = [line for line in loop if "scf" not in line and line != "}"]
    assert peak(module("%m: pto.memref<32x32xf32>, %n: index", *straight)) == size


def test_carried_tiles_take_the_place_of_what_they_start_from():
    source = module(
        "%m: pto.memref<32x32xf32>, %n: index",
        "%c1 = pto.constant 1 : index",
        "%x = pto.tile.load %m[0, 0] : pto.memref<32x32xf32>, tile<32x32xf32>",
        "%r = scf.for %i = %c0 to %n step %c1 iter_args(%a = %x) -> (tile<32x32xf32>) {",
        "  %y = pto.tile.exp %a : tile<32x32xf32>",
        "  scf.yield %y : tile<32x32xf32>",
        "}",
        "pto.tile.store %r, %m[0, 0] : pto.memref<32x32xf32>, tile<32x32xf32>",
    )
    assert peak(source) == 32 * 32 * 4


def test_the_plan_has_an_arena_per_space():
    made = plan(good((SAMPLES / "16_ub_exact_fit_a3.pto").read_text()))
    (space,) = made.functions.values()
    assert space.peak == space.lower_bound == space.capacity == A3.capacity["Vec"]
    assert not space.faults()
    names = plan(good((SAMPLES / "04_matmul_bias_a3.pto").read_text())).functions
    assert [n.split()[1] for n in names] == ["Mat", "Left", "Right", "Bias", "Acc"]


def test_barriers_are_for_the_vector_pipe_alone():
    """Two of its tiles are in one space, which `signals` counts on."""
    assert {pipe for target in TARGETS.values() for pipe in target.barriers} == {"V"}


@pytest.mark.parametrize(
    "target, source, made, line, legal",
    [
        ("a3", "f32", "f16", "mov.a2m", True),
        ("a3", "f32", "f32", "mov.a2m", False),
        ("a5", "f32", "f32", "mov.a2m", True),
        ("a3", "i32", "f16", "mov.a2m", False),
        ("a5", "i32", "i32", "mov.a2m", True),
        ("a3", "f32", "f16", "insert", True),
        ("a3", "f32", "f32", "insert", False),
        ("a3", "f32", "i8", "mov.fp", True),
        ("a3", "f32", "f16", "mov.fp", False),
        ("a5", "f32", "f16", "mov.fp", True),
        ("a3", "i32", "f16", "store.fp", True),
        ("a3", "f32", "f16", "store.fp", False),
    ],
)
def test_what_elements_of_acc_become(target, source, made, line, legal):
    acc, mat, scale = tile(source, loc="Acc"), tile(made, loc="Mat"), tile("u64", 1, 32, loc="Scale")
    memory = f"pto.memref<32x32x{made}>"
    lines = {
        "mov.a2m": f"%r = pto.tile.mov.a2m %x : {acc} -> {mat}",
        "insert": f"%r = pto.tile.insert %x[0, 0], %d : {acc}, {mat} -> {mat}",
        "mov.fp": f"%r = pto.tile.mov.fp %x, %s : {acc}, {scale} -> {mat}",
        "store.fp": f"pto.tile.store.fp %x, %s, %o[0, 0] : {acc}, {scale}, {memory}",
    }
    found = of(target, f"%x: {acc}, %d: {mat}, %s: {scale}, %o: {memory}", lines[line])
    assert found == ([] if legal else ["IllegalOnTarget"])


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("columns, at, part, legal", [(512, 256, 256, True), (512, 128, 256, False), (256, 0, 64, False)])
def test_a_single_row_goes_to_left_by_512_bytes(target, columns, at, part, legal):
    whole, left = tile("f16", 1, columns, loc="Mat"), tile("f16", 1, part, loc="Left")
    line = f"%r = pto.tile.extract %x[0, {at}] : {whole} -> {left}"
    assert of(target, f"%x: {whole}", line) == ([] if legal else ["Misaligned"])
    short = (tile("f16", 1, part, loc="Mat"), left)
    assert of(target, f"%x: {short[0]}", f"%r = pto.tile.mov.m2l %x : {short[0]} -> {short[1]}") == (
        [] if part == 256 else ["Misaligned"]
    )
