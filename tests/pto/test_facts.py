"""The op table against the list of operations of the instruction set, each with the pipe that executes it."""

import pytest

from ptir_tools.core.dtypes import F32, UI8
from ptir_tools.dialects.pto import DIALECT
from ptir_tools.dialects.pto.facts import facts_of

# Name (`tile.` left out) of every operation that is not out of scope for the specification, by pipe.
from ptir_tools.dialects.pto.memory.spare import mask_and_block, two_rows
from ptir_tools.dialects.pto.pipes import PIPES, opcodes_of, pipes_of_opcode
from ptir_tools.dialects.pto.types import tile

OPERATIONS = {
    "MTE2": "load prefetch pop",
    "MTE3": "store push",
    "FIX": "store.fp mov.m2s mov.a2v mov.fp mov.v2m mov.a2m insert insert.fp",
    "MTE1": "mov.m2l mov.m2r mov.m2b extract",
    "M": "matmul matmul.acc matmul.bias gemv gemv.acc gemv.bias matmul.mx matmul.mx.acc matmul.mx.bias gemv.mx",
    "S": "ci",
    "V": """extract.vec mov.v2v reshape trans concat fillpad fillpad.inplace fillpad.expand
        add sub mul div max min rem fmod pow and or xor not shl shr exp sqrt rsqrt abs neg log recip relu addc subc
        muladddst fusedmuladd fusedmuladdrelu subrelu adddeqrelu axpy prelu lrelu
        adds muls divs mins expands subs maxs rems fmods pows ands ors xors shls shrs addsc subsc
        cmp cmps sel sels cvt partadd partmax partmin partmul partargmax partargmin
        rowsum rowmax rowmin rowprod rowargmax rowargmin colsum colmax colmin colprod colargmax colargmin
        rowexpand rowexpandsub rowexpandmul rowexpanddiv rowexpandadd rowexpandmax rowexpandmin rowexpandexpdif
        colexpand colexpandadd colexpandsub colexpandmul colexpanddiv colexpandmax colexpandmin colexpandexpdif
        gather gatherb scatter sort32 mrgsort tri print""",
}
NO_PIPE = ("tile.assign", "tile.undef", "memref.subview", "sync", "sync.op")
ABSENT = ("tile.subview",)  # a window of a tile in place


@pytest.mark.parametrize("pipe", OPERATIONS)
def test_every_operation_is_declared_in_its_pipe(pipe):
    ops = DIALECT.ops
    for name in OPERATIONS[pipe].split():
        assert f"tile.{name}" in ops, name
        assert facts_of(ops[f"tile.{name}"]).pipe == pipe and pipe in PIPES, name


def test_the_list_is_whole():
    listed = {f"tile.{name}" for names in OPERATIONS.values() for name in names.split()}
    more = {name for name in DIALECT.ops if name.startswith("tile.")} - listed - set(NO_PIPE)
    assert more <= {"tile.gemv.mx.acc", "tile.gemv.mx.bias"}
    assert not set(ABSENT) & set(DIALECT.ops) and set(NO_PIPE) <= set(DIALECT.ops)


def test_opcodes_follow_from_names():
    ops = DIALECT.ops
    for name in {f"tile.{name}" for names in OPERATIONS.values() for name in names.split()}:
        assert opcodes_of(ops[name])[-1].startswith("T")
    assert opcodes_of(ops["tile.store"])[:3] == ("TSTORE_VEC", "TSTORE_ACC", "TSTORE_MAT")
    assert opcodes_of(ops["tile.mov.m2l"]) == ("TMOV_M2L",)
    assert [pipes_of_opcode(f"TSTORE_{loc}") for loc in ("VEC", "ACC", "MAT")] == [("MTE3",), ("FIX",), ("MTE3",)]
    assert set(pipes_of_opcode("TPUSH")) == {"MTE3", "FIX"}


def test_scratch_is_of_the_types_that_the_headers_want():
    """`TPrelu.hpp`: bytes, with one more row than the mask. `TRem.hpp`: elements, two more than a row for each 2048 of it."""
    t = tile(F32, (32, 64), "Vec", "ND")
    assert mask_and_block([t, t]) == [tile(UI8, (33, 32), "Vec", "ND")]
    assert two_rows([t, t]) == [tile(F32, (2, 72), "Vec", "ND")]
    ops = {name: facts_of(DIALECT.ops[f"tile.{name}"]).spare for name in ("prelu", "rem", "rems")}
    assert ops == {"prelu": mask_and_block, "rem": two_rows, "rems": two_rows}
