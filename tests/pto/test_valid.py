"""What is valid in a tile: by the rule of its op, before a run and in it; and what follows from it for order."""

from collections import Counter
from contextlib import suppress

import pytest

from ptir_tools import engines
from ptir_tools.core.choices import Seeded
from ptir_tools.core.diagnostics import Diagnostics, Rejected, Severity
from ptir_tools.core.dialect import Options
from ptir_tools.dialects.pto import DIALECT, generate, valid
from ptir_tools.dialects.pto.affine import number
from ptir_tools.dialects.pto.facts import facts_of
from ptir_tools.dialects.pto.ops.memory import static_valid
from ptir_tools.dialects.pto.run import machine
from ptir_tools.dialects.pto.valid import of_shape
from ptir_tools.engines.inputs import random_inputs
from ptir_tools.engines.options import RunOptions
from ptir_tools.passes import PassContext, run_pipeline
from tests.pto.programs import check, event, good, module, printed

PAIRS = ("add", "sub", "mul", "div", "max", "min", "expdif")
FACTORS = {"": "lr", ".acc": "alr", ".bias": "lrb", ".mx": "lsrt", ".mx.acc": "alsrt", ".mx.bias": "lsrtb"}
FACTOR = {"l": (5, 6), "r": (6, 9), "a": (7, 7), "b": (1, 8), "s": (5, 1), "t": (1, 9)}
BY_OPERANDS = {  # what is valid in the operands, the shape of the result, and what is valid there
    "load": ([], (8, 8), (8, 8)),
    "expands": ([], (8, 8), (8, 8)),
    "add": ([(5, 6), (3, 7)], (8, 8), (3, 6)),
    "sel": ([(5, 6), (3, 7), (8, 2)], (8, 8), (3, 2)),
    "relu": ([(5, 6)], (8, 8), (5, 6)),
    "mov.v2v": ([(5, 6)], (8, 8), (5, 6)),
    "mov.fp": ([(5, 6), (1, 4)], (8, 8), (5, 6)),
    "trans": ([(5, 6)], (8, 9), (6, 5)),
    "concat": ([(5, 6), (3, 7)], (8, 16), (3, 13)),
    "scatter": ([(5, 6), (3, 7)], (9, 8), (9, 8)),
    "sort32": ([(1, 40)], (1, 64), (1, 40)),
    "mrgsort": ([(1, 40), (1, 20), (1, 3)], (1, 128), (1, 63)),
    **{f"fillpad{x}": ([(5, 6)], (9, 16), (9, 16)) for x in ("", ".inplace", ".expand")},
    **{f"part{x}": ([(5, 6), (3, 7)], (8, 8), (5, 7)) for x in ("add", "mul", "max", "min")},
    **{f"partarg{x}": ([(5, 6), (5, 8), (3, 7), (2, 8)], (8, 8), (5, 7)) for x in ("max", "min")},
    **{f"row{x}": ([(5, 6)], (8, 1), (5, 1)) for x in ("sum", "max", "min", "prod", "argmax", "argmin")},
    **{f"col{x}": ([(5, 6)], (1, 8), (1, 6)) for x in ("sum", "max", "min", "prod", "argmax", "argmin")},
    "rowexpand": ([(5, 1)], (8, 9), (5, 9)),
    "colexpand": ([(1, 6)], (8, 9), (8, 6)),
    **{f"rowexpand{x}": ([(5, 6), (4, 1)], (8, 8), (4, 6)) for x in PAIRS},
    **{f"colexpand{x}": ([(5, 6), (1, 4)], (8, 8), (5, 4)) for x in PAIRS},
    **{
        f"{p}{kind}": ([FACTOR[x] for x in names], (8, 16), (5, 9)) for p in ("matmul", "gemv") for kind, names in FACTORS.items()
    },
}
BY_MORE = ("extract", "extract.vec", "insert", "insert.fp", "gather", "gatherb", "reshape", "pop")


@pytest.mark.parametrize("name", BY_OPERANDS)
def test_what_is_valid_by_default(name):
    operands, shape, wanted = BY_OPERANDS[name]
    rule = facts_of(DIALECT.ops[f"tile.{name}"]).valid or valid.everywhere
    found = rule(None, [of_shape(x) for x in operands], of_shape(shape), number)
    assert found == of_shape(wanted)


def test_every_op_is_valid_as_said_here():
    """The others are valid where all of their tiles are."""
    makes = {d.short.removeprefix("tile."): facts_of(d) for d in DIALECT.ops.values() if d.own and "to" in d.attr_index}
    others = makes.keys() - {*BY_OPERANDS, *BY_MORE}
    assert len(others) > 50 and not any(makes[x].valid for x in others)


def loads(**tiles):
    """A tile per name: its type, and what is valid in it."""
    return [
        f"%{name} = pto.tile.load %{name}m[0, 0] {{valid = {list(region)}}} : pto.memref<64x64x{t[5:-1].split('x')[-1]}>, {t}"
        for name, (t, region) in tiles.items()
    ]


T8, I8, T2 = "tile<8x8xf32>", "tile<8x8xi32>", "tile<2x3xf32>"
PROGRAMS = [
    ((4, 16), {"x": (T8, (5, 6))}, f"%y = pto.tile.reshape %x : {T8} -> tile<4x16xf32>"),
    ((16, 4), {"x": ("tile<4x16xf32>", (3, 5))}, "%y = pto.tile.reshape %x : tile<4x16xf32> -> tile<16x4xf32>"),
    ((1, 5), {"x": ("tile<8x1xf32>", (5, 1))}, "%y = pto.tile.reshape %x : tile<8x1xf32> -> tile<1x8xf32>"),
    ((5, 1), {"x": ("tile<1x8xf32>", (1, 5))}, "%y = pto.tile.reshape %x : tile<1x8xf32> -> tile<8x1xf32>"),
    ((3, 6), {"x": (T8, (5, 6))}, f"%y = pto.tile.extract %x[2, 0] : {T8} -> tile<4x8xf32, loc=Left>"),
    ((4, 5), {"x": (T8, (5, 6))}, f"%y = pto.tile.extract %x[0, 1] : {T8} -> tile<4x7xf32, loc=Left>"),
    ((3, 6), {"x": (T8, (5, 6))}, f"%y = pto.tile.extract.vec %x[2, 0] : {T8} -> tile<4x8xf32>"),
    ((4, 7), {"x": (T2, (2, 1)), "z": (T8, (3, 7))}, f"%y = pto.tile.insert %x[2, 5], %z : {T2}, {T8} -> {T8}"),
    ((3, 8), {"x": (T2, (2, 3)), "z": (T8, (3, 7))}, f"%y = pto.tile.insert %x[0, 5], %z : {T2}, {T8} -> {T8}"),
    ((3, 7), {"x": (T8, (8, 8)), "i": (I8, (3, 7))}, f"%y = pto.tile.gather %x, %i : {T8}, {I8} -> {T8}"),
    ((5, 2), {"x": (T8, (5, 6))}, f"%y = pto.tile.gather %x {{maskPattern = #pto.mask_pattern<P0010>}} : {T8} -> {T8}"),
    ((5, 1), {"x": (T8, (5, 6))}, f"%y = pto.tile.gather %x {{maskPattern = #pto.mask_pattern<P1000>}} : {T8} -> {T8}"),
    ((5, 2), {"x": (T8, (5, 7))}, f"%y = pto.tile.gather %x {{maskPattern = #pto.mask_pattern<P1111>}} : {T8} -> tile<8x2xf32>"),
    (
        (3, 16), {"x": (T8, (8, 8)), "i": ("tile<8x3xi32>", (3, 2))},
        f"%y = pto.tile.gatherb %x, %i : {T8}, tile<8x3xi32> -> tile<8x20xf32>",
    ),
    (
        (3, 20), {"x": (T8, (8, 8)), "i": ("tile<8x3xi32>", (3, 3))},
        f"%y = pto.tile.gatherb %x, %i : {T8}, tile<8x3xi32> -> tile<8x20xf32>",
    ),
]  # fmt: skip


@pytest.mark.parametrize("wanted, tiles, line", PROGRAMS)
def test_what_is_valid_by_offsets_and_indices(wanted, tiles, line):
    memories = ", ".join(f"%{x}m: pto.memref<64x64x{t[5:-1].split('x')[-1]}>" for x, (t, _) in tiles.items())
    program = good(module(memories, *loads(**tiles), line))
    assert static_valid(next(v for op in program.main.ops() for v in op.results if v.name == "y")) == wanted


def test_what_is_valid_where_scaled_elements_are_put():
    kinds = "tile<2x3xf32, loc=Acc, valid=[2, 1]>", "tile<1x3xf32, loc=Scale>", "tile<8x8xf16, loc=Mat, valid=[3, 7]>"
    line = f"%y = pto.tile.insert.fp %x[2, 5], %s, %z : {', '.join(kinds)} -> tile<8x8xf16, loc=Mat>"
    program = good(module(", ".join(f"%{name}: {t}" for name, t in zip("xsz", kinds, strict=True)), line))
    assert static_valid(program.main.body[-1].results[0]) == (4, 7)


def compared(program, seed, monkeypatch):
    """The ops that a run reaches; their results are valid where that was known before."""
    seen = Counter()
    access = machine.Machine.access

    def checked(self, task, clock, made, memory):
        for value, tile in zip(task.op.results, made, strict=False):
            told = static_valid(value)
            assert all(a == b for a, b in zip(told, tile.valid, strict=True) if isinstance(a, int)), (task.op.defn.short, seed)
            seen[task.op.defn.short] += all(isinstance(d, int) for d in told)
        access(self, task, clock, made, memory)

    with monkeypatch.context() as patch:
        patch.setattr(machine.Machine, "access", checked)
        with suppress(Rejected):
            engines.run(program, random_inputs(program, seed), RunOptions(undef="zero"), Diagnostics(program.source))
    return +seen


def test_what_is_known_before_a_run_is_what_the_run_has(monkeypatch):
    """Nearly every op of the table that makes a tile is reached."""
    seen = Counter()
    for seed in range(120):
        program = good(printed(generate.any_ops(Seeded(seed), size=12)), Options(hazards=False))
        seen += compared(program, seed, monkeypatch)
    assert len(seen) > 100


M, T = "pto.memref<64x16xf32>", "tile<16x16xf32>"
SIGNALS = {x: event(x) for x in ("TLOAD", "TRELU", "TSTORE_VEC")}


def hazards(body, parameters="%n: index, %p: i1"):
    source = f"func.func @f(%a: {M}, %b: {M}, {parameters}) {{\n%c0 = pto.constant 0 : index\n{body}\nreturn\n}}\n"
    program, found = check(source)
    assert program is not None, [d.message for d in found]
    return sorted((d.severity.name, d.code) for d in found if d.severity in (Severity.ERROR, Severity.WARNING))


STORED = f"%e = pto.tile.store %y, %b[%c0, %c0] : {M}, {T}, {SIGNALS['TSTORE_VEC']}\n"
READ = f"%z = pto.tile.load %b[%row, %c0] : {M}, {T}\npto.tile.store %z, %a[%c0, %c0] wait(%e) : {M}, {T}\n"
ERROR = [("ERROR", "MemoryHazard")]


def loaded(name, rows):
    return f"%{name} = pto.tile.load %a[%c0, %c0] {{valid = [{rows}, 16]}} : {M}, {T}\n"


def at(row):
    return f"%row = pto.constant {row} : index\n"


@pytest.mark.parametrize("row, wanted", [(8, []), (7, ERROR)])
@pytest.mark.parametrize(
    "made",
    [
        loaded("x", 8) + f"%y = pto.tile.relu %x : {T}\n",
        loaded("x", 8) + loaded("w", 12) + f"%y = pto.tile.add %w, %x : {T}\n",
        loaded("x", 5) + loaded("w", 8) + f"%y = pto.tile.partadd %w, %x : {T} -> {T}\n",
        f"%x = pto.tile.load %a[%c0, %c0] {{valid = [16, 8]}} : {M}, {T}\n%y = pto.tile.trans %x : {T} -> {T}\n",
        loaded("x", 12)
        + "%c4 = pto.constant 4 : index\n"
        + "%v = pto.addi %c4, %c4 : index\n"
        + f"%y = pto.tile.relu %x {{valid = [%v, 16]}} : {T}\n",
        # a loop carries it
        "%c1 = pto.constant 1 : index\n%c3 = pto.constant 3 : index\n"
        + loaded("x", 8)
        + f"%y = scf.for %i = %c0 to %c3 step %c1 iter_args(%v = %x) -> ({T}) {{\n"
        + f"  %u = pto.tile.relu %v : {T}\n  scf.yield %u : {T}\n}}\n",
    ],
)
def test_what_is_valid_in_a_tile_says_what_its_store_touches(made, row, wanted):
    assert hazards(made + at(row) + STORED + READ) == wanted


@pytest.mark.parametrize("row, wanted", [(12, []), (10, ERROR), (4, ERROR)])
def test_a_branch_gives_tiles_of_which_different_parts_are_valid(row, wanted):
    """Under %p rows 0 to 7 are stored, else 0 to 11; what is read from row 8 on is a hazard in one of the two ways."""
    made = (
        f"%y = scf.if %p -> ({T}) {{\n{loaded('s', 8)}scf.yield %s : {T}\n}} else {{\n{loaded('t', 12)}scf.yield %t : {T}\n}}\n"
    )
    assert hazards(made + at(row) + STORED + READ) == wanted
    guarded = f"scf.if %p {{\n{READ}}} else {{\n}}\n"
    assert hazards(made + at(row) + STORED + guarded) == (wanted if row < 8 else [])


@pytest.mark.parametrize("row, wanted", [(3, []), (2, ERROR)])
def test_rows_that_follow_the_counter(row, wanted):
    """The rounds of a loop store 1, 2 and 3 rows."""
    body = f"""%c1 = pto.constant 1 : index
    %c3 = pto.constant 3 : index
    %x = pto.tile.load %a[%c0, %c0] : {M}, {T}
    scf.for %i = %c0 to %c3 step %c1 {{
      %k = pto.addi %i, %c1 : index
      %y = pto.tile.relu %x {{valid = [%k, 16]}} : {T}
      %e = pto.tile.store %y, %b[%c0, %c0] : {M}, {T}, {SIGNALS["TSTORE_VEC"]}
    }}
    %z = pto.tile.load %b[%row, %c0] : {M}, {T}
    """
    found = [x for x in hazards(at(row) + body) if x[1] != "UnwaitedEvent"]
    assert found == wanted


@pytest.mark.parametrize("start, wanted", [(4, "MemoryHazard"), (20, "MemoryHazard"), (200, "Unproved")])
def test_rows_that_grow_late_are_not_taken_for_few(start, wanted):
    """In round `i` as many rows as `i` is above `start` are stored, at least one; the loop has `n` rounds."""
    body = f"""%c1 = pto.constant 1 : index
    %late = pto.constant {start} : index
    %x = pto.tile.load %a[%c0, %c0] : {M}, {T}
    %f = pto.tile.store %x, %a[%c0, %c0] : {M}, {T}, {SIGNALS["TSTORE_VEC"]}
    %r = scf.for %i = %c0 to %n step %c1 iter_args(%e = %f) -> (!pto.event) {{
      %k = pto.subi %i, %late : index
      %v = pto.maxsi %k, %c1 : index
      %z = pto.tile.load %b[%row, %c0] : {M}, {T}
      %g = pto.tile.store %z, %b[%c0, %c0] {{valid = [%v, 16]}} : {M}, {T}, {SIGNALS["TSTORE_VEC"]}
      scf.yield %g : {SIGNALS["TSTORE_VEC"]}
    }}
    """
    found = {x[1] for x in hazards(at(8) + body)}
    assert wanted in found


def test_no_type_says_that_nothing_is_valid():
    """Of one column the mask keeps none: the type says nothing of it."""
    source = (
        "module {\n  func.func @f(%a: pto.memref<8x8xf32>) {\n    %c = pto.constant 0 : index\n"
        "    %t = pto.tile.load %a[%c, %c] : pto.memref<8x8xf32>, tile<8x1xf32>\n"
        "    %g = pto.tile.gather %t {maskPattern = #pto.mask_pattern<P0100>} : tile<8x1xf32> -> tile<8x1xf32>\n"
        "    %e = pto.tile.exp %g : tile<8x1xf32>\n    return\n  }\n}\n"
    )
    program = good(source)
    run_pipeline(program, "pto-infer-tile-info", PassContext(diagnostics=Diagnostics(program.source)))
    text = printed(program)
    assert not check(text)[1].errors and "valid" not in text
