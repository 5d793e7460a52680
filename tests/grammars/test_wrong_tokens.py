"""A diagnostic points at the token that is wrong, not at the statement or node around it; one fault is reported once."""

import pytest

from ptir_tools.core.diagnostics import Diagnostics, Severity
from ptir_tools.core.dialect import Options
from ptir_tools.core.source import Source
from ptir_tools.core.verify import verify
from ptir_tools.dialects import reading

M, T, E = "pto.memref<64x32xf32>", "tile<8x8xf32>", "!pto.event<producer = #pto.op<TLOAD>{}>"
LOAD = f"%t = pto.tile.load %a[%c0, %c0] : {M}, {T}"
STORE = f"pto.tile.store %t, %o[%c0, %c0] : {M}, {T}"
CARRIED = f"%r = scf.for %i = %c0 to %c9 step %c9 iter_args(%x = %t) -> ({T}) {{"
X = '{"id":"x","uop":"INPUT","arg":{"tensor_id":"X","dtype":"fp32","shape":[2,3]}}'
Z = '{"id":"z","uop":"INPUT","arg":{"tensor_id":"Z","dtype":"fp32","shape":[2,4]}}'
N = '{"id":"x","uop":"INPUT","arg":{"tensor_id":"X","dtype":"i32","shape":[2,3]}}'


def pto(*lines, target=""):
    attributes = f" attributes {{ pto.target = #pto.target<{target}> }}" if target else ""
    body = ("%c0 = pto.constant 0 : index", "%c9 = pto.constant 9 : index", "%f = pto.constant 1.0 : f32", *lines, "return")
    head = f"module{attributes} {{\n  func.func @f(%a: {M}, %o: {M}, %p: i1) {{\n"
    return head + "".join(f"    {line}\n" for line in body) + "  }\n}\n"


def load(*, at="%c0, %c0", more="", t=T):
    return pto(f"%t = pto.tile.load %a[{at}]{more} : {M}, {t}")


def waited(*events):
    loads = [f"%t{k}, %e{k} = pto.tile.load %a[%c0, %c0] : {M}, {T}, {E.format(event)}" for k, event in enumerate(events)]
    used = ", ".join(f"%e{k}" for k in range(len(events)))
    return pto(*loads, f"%u = pto.tile.add %t0, %t{len(events) - 1} wait({used}) : {T}")


def tiny(first, uop, src, arg=None):
    node = f'{{"id":"y","uop":"{uop}","src":{src}' + (f',"arg":{arg}}}' if arg else "}")
    return f'{{"uops":[{first},{node}]}}'


def mind(line, given="%0 = Input {name=x} : tensor<f32[2, 3]>"):
    return f"{given}\n%1 = {line}\noutputs: %1\n"


FAULTS = [
    (load(at="60, %c0"), "OutOfBounds", "60"),
    (load(at="%c0, -1"), "OutOfBounds", "-1"),
    (load(at="%f, %c0"), "TypeMismatch", "%f"),
    (load(more=" {valid = [8, %c9]}"), "InvalidValid", "%c9"),
    (load(t="tile<8x8xf32, #pto.tile_info<loc=Vec, valid=[8, 0]>>"), "InvalidValid", "0"),
    (waited(", eid = 8"), "EventIdsExhausted", "8"),
    (waited(", eid = 3", ", eid = 3"), "EventIdReused", "3"),
    (pto(LOAD, f"pto.tile.store %t, %o[%c0, %c0] wait(%t) : {M}, {T}"), "TypeMismatch", "%t"),
    (pto("scf.for %i = %c0 to %f step %c9 {", "}"), "TypeMismatch", "%f"),
    (pto("scf.for %i = %c9 to %c9 step %c0 {", "}"), "InvalidStep", "%c0"),
    (pto(LOAD, f"pto.tile.assign %t, %c9 : {T}, index", STORE, target="a3"), "Misaligned", "%c9"),
    (pto(LOAD, f"%m = pto.tile.matmul %t, %t : {T}, {T} -> {T}"), "InvalidLocation", "%t"),
    (pto(LOAD.replace("%t =", "%t, %e =") + f", {E.format('')}", STORE), "MissingWait", "%t"),
    (pto(LOAD, CARRIED, "scf.yield", "}"), "TypeMismatch", "scf.yield"),
    (tiny(X, "RESHAPE", '["x"]', '{"result_shape":[2.0,3]}'), "InvalidArg", "2.0"),
    (tiny(X, "PAD", '["x"]', '{"pad":[[0,0],[1,1]],"value":true}'), "DtypeMismatch", "true"),
    (tiny(X, "SHRINK", '["x"]', '{"lo":[0,0],"hi":[2,4]}'), "InvalidArg", "4"),
    (tiny(X, "SHRINK", '["x"]', '{"lo":[0,0],"hi":[2]}'), "InvalidArg", "[2]"),
    (tiny(X, "CAST", '["x"]', '{"to":"f32"}'), "UnknownDtype", '"f32"'),
    (tiny(X, "POOL", '["x"]', '{"kernel":[2,2],"stride":[1,0]}'), "InvalidArg", "0"),
    (tiny(X, "VIEW", '["x"]', '{"result_shape":[2,3],"index_map":{"map":["i0","i1+1"]}}'), "UnguardedAccess", '"i1+1"'),
    (tiny(N, "REDUCE", '["x"]', '{"op":"SUM","axes":[0],"dtype":"i32","init":"inf"}'), "NeutralInvalid", '"inf"'),
    (tiny(N, "ADD", '["x",0.5]'), "DtypeMismatch", "0.5"),
    (tiny(N, "EXP2", '["x"]'), "DtypeMismatch", '"x"'),
    (tiny(X + "," + N.replace('"x"', '"z"').replace("X", "Z"), "ADD", '["x","z"]'), "DtypeMismatch", '"z"'),
    (tiny(X + "," + Z, "ADD", '["x","z"]'), "BroadcastMismatch", '"z"'),
    (mind("Neg (%0) : tensor<f32[2, 0]>"), "E3006", "0"),
    (mind("Neg (%0)", "%0 = Input {name=x} : tensor<f32[2, ?]>"), "E4004", "?"),
    (mind("Input {name=x} : tensor<f32[2]>"), "E4004", "name"),
    ("outputs: %1\n%1 = ConstI64 {value=1} : tensor<i64[]>\n", "E1007", "%1 = ConstI64 {value=1} : tensor<i64[]>"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "code", "token"), FAULTS, ids=range(len(FAULTS)))
def test_the_token_that_is_wrong_is_reported_once(text, code, token):
    found = Diagnostics(Source("test", text))
    program = reading.read(found.source, found, Options())
    if program is not None:
        verify(program, found, Options())
    (error,) = [d for d in found.sorted() if d.severity is Severity.ERROR]
    assert (error.code, text[error.span.start : error.span.end]) == (code, token)


def test_what_the_target_lacks_is_reported_next_to_other_errors():
    """Each op by itself; one that is in error, and what uses it, is not."""
    text = pto(
        "%t = pto.tile.load %a[%c0, %c0] : pto.memref<64x32xf32>, tile<8x8xf32>",
        "%h = pto.tile.cvt %t : tile<8x8xf32> -> tile<8x8xbf16>",
        "%u = pto.tile.add %h, %h : tile<8x8xbf16>",
        "%v = pto.tile.add %h, %nothing : tile<8x8xbf16>",
        "%w = pto.tile.exp %v : tile<8x8xbf16>",
        "%x = pto.tile.rowsum %t : tile<8x8xf32> -> tile<1x8xf32>",
        target="a3",
    )
    found = Diagnostics(Source("test", text))
    program = reading.read(found.source, found, Options())
    assert program is not None
    verify(program, found, Options())
    lines = [text.count("\n", 0, d.span.start) - text.count("\n", 0, text.index("%t =")) for d in found.sorted()]
    assert [(d.code, line) for d, line in zip(found.sorted(), lines, strict=True)] == [
        ("IllegalOnTarget", 2),
        ("UndefinedValue", 3),
        ("ShapeMismatch", 5),
    ]
