"""What is said to be valid in a tile before a run is what a run has; and what follows from it for order."""

from collections import Counter
from contextlib import suppress

import pytest
from pto_programs import check, event, good, printed

from ptir_tools import engines
from ptir_tools.core.choices import Seeded
from ptir_tools.core.diagnostics import Diagnostics, Rejected, Severity
from ptir_tools.core.dialect import Options
from ptir_tools.core.ir import Value
from ptir_tools.dialects.pto import generate, machine
from ptir_tools.dialects.pto.affine import number
from ptir_tools.dialects.pto.types import TileType
from ptir_tools.dialects.pto.valid import valid_of
from ptir_tools.engines.inputs import random_inputs
from ptir_tools.engines.options import RunOptions
from ptir_tools.passes import PassContext, run_pipeline


def compared(program, seed, monkeypatch):
    """The ops that a run reaches; all of their results are valid where the rules say."""
    seen = Counter()
    access = machine.Machine.access

    def checked(self, task, clock, made, memory):
        op, env = task.op, self.context.env
        tiles = [env[x] for x in op.operands if isinstance(x, Value) and isinstance(x.type, TileType)]
        if made:
            found = valid_of(op, [tuple(map(number, t.valid)) for t in tiles], lambda x: number(int(env[x])))
            assert not any(e.terms for e in found), op.defn.short
            for t in made:
                assert tuple(e.const for e in found) == t.valid, (op.defn.short, seed)
            seen[op.defn.short] += 1
        access(self, task, clock, made, memory)

    with monkeypatch.context() as patch:
        patch.setattr(machine.Machine, "access", checked)
        with suppress(Rejected):
            engines.run(program, random_inputs(program, seed), RunOptions(undef="zero"), Diagnostics(program.source))
    return seen


def test_ops_are_valid_where_they_are_said_to_be(monkeypatch):
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
