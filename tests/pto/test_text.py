"""PTO text: what is read, how it is printed, where errors are told."""

import re
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptir_tools.core.diagnostics import Diagnostics, Severity
from ptir_tools.core.dialect import Options
from ptir_tools.core.limits import LimitExceeded
from ptir_tools.core.source import Source
from ptir_tools.core.violations import Violation
from ptir_tools.dialects.pto import HAZARDS
from ptir_tools.dialects.pto.text import format as text
from ptir_tools.dialects.pto.text.types import parse_type
from ptir_tools.dialects.pto.types import type_text
from tests.pto.programs import KERNELS, SAMPLES, check, codes, event, good, module, printed

LEGAL = sorted(p.name for p in SAMPLES.glob("*.pto") if "_bad_" not in p.name and "a3_bf16" not in p.name)
M, T = "pto.memref<32x32xf32>", "tile<32x32xf32>"
LOAD = f"%t = pto.tile.load %a[%c0, %c0] : {M}, {T}"


@pytest.mark.parametrize("name", LEGAL)
def test_print_and_read_are_inverse(name):
    once = printed(good((SAMPLES / name).read_text()))
    assert printed(good(once)) == once


@pytest.mark.parametrize(
    "spelled, canonical",
    [
        ("tile<8xf16>", None),
        ("!pto.tile<32x32xf32>", "tile<32x32xf32>"),
        ("tile<1x4x32x16xf8e4m3fn>", None),
        ("tile<4x4xf8E5M2>", "tile<4x4xf8e5m2>"),
        ("tile<16x16xf16, #pto.tile_info<loc=left, layout=ZZ>>", "tile<16x16xf16, #pto.tile_info<loc=Left, layout=Zz>>"),
        ("tile<16x16xu64, loc=Scaling>", "tile<16x16xu64, #pto.tile_info<loc=Scale>>"),
        ("tile<16x16xf16, {valid = [3, ?]}>", "tile<16x16xf16, #pto.tile_info<valid=[3, ?]>>"),
        ("tile<?x32xf32>", None),
        ("tile<32 x 32 x f32>", "tile<32x32xf32>"),
        ("pto.memref<32x?xf32, {space = #pto.space<gm>, layout = #pto.layout<DN>}>", None),
        ("!pto.memref<32x32xf32, strided<[1024, 1], offset: ?>>", "pto.memref<32x32xf32, strided<[1024, 1], offset: ?>>"),
        ("pto.memref<8xsi32>", "pto.memref<8xi32>"),
        ("!pto.event<producer = #pto.op<TLOAD>, scope = #pto.scope<intra>, eid = 3>", None),
        ("!pto.event", None),
        ("vector<4xi16>", None),
        ("index", None),
        ("bf16", None),
    ],
)
def test_types(spelled, canonical):
    assert type_text(parse_type(spelled)) == (canonical or spelled)
    assert parse_type(canonical or spelled) is parse_type(spelled)


@pytest.mark.parametrize(
    "spelled, says",
    [
        ("tile<MxKxTa>", "placeholder"),
        ("pto.memref<32x32xf32, ...>", "placeholder"),
        ("tile<16x16xf16, #pto.tile_info<loc=Left|Right>>", "placeholder"),
        ("tile<32x32xf64>", "element type"),
        ("tile<0x4xf32>", "positive"),
        ("tile<f32>", "one extent"),
        ("tile<4x4xf32, #pto.tile_info<loc=Here>>", "not a loc"),
        ("tile<4x4xf32, #pto.tile_info<place=Vec>>", "unknown"),
        ("tile<4x4xf32, #pto.tile_info<loc=Vec, loc=Vec>>", "twice"),
        ("pto.memref<4x4xf32, strided<[1]>>", "strides"),
        ("!pto.event<producer = #pto.op<TLOAD>, eid = x>", "number"),
        ("!pto.event<scope = #pto.scope<all>>", "not a scope"),
        ("tile<4x4>", "not a type"),
    ],
)
def test_bad_types(spelled, says):
    with pytest.raises(Violation, match=says):
        parse_type(spelled)


def test_the_missing_colon_is_told_in_its_place():
    _, found = check((SAMPLES / "38_bad_syntax.pto").read_text())
    (error,) = found
    assert (error.code, error.where[1:]) == ("ParseError", (7, 33))
    assert "expected `:`" in error.message


def test_reading_goes_on_at_the_next_statement():
    source = module(
        f"%a: {M}",
        "%x = pto.tile.add %t %t : tile<4xf32>",
        "%y = pto.tile.exp %x : tile<4xf32>",  # silent: %x was lost
        "%z = pto.foo %c0 : index",
        "scf.for %i = %c0 to {",
        "  %w = pto.tile.exp %q : tile<4xf32>",
        "}",
        "%v = pto.tile.load %a[%c0] : pto.memref<32x32xf32>, tile<32x32xf32>",
        "%u = pto.addi %c0, %c0 :",
    )
    _, found = check(source)
    assert [(d.code, d.where[1]) for d in found.sorted()] == [
        ("ParseError", 4),
        ("UnknownOp", 6),
        ("ParseError", 7),
        ("RankMismatch", 10),
        ("ParseError", 12),
    ]


@pytest.mark.parametrize(
    "lines",
    [
        ("%x = arith.addi %c0, %c0 : index", "%y = pto.divi %x, %x : index", "%z = arith.index_cast %y : index to i32"),
        ("%p = arith.cmpi slt, %c0, %c0 : index", "%s = arith.select %p, %c0, %c0 : index"),
        (
            '%x = pto.constant 1 : i32 loc("kernel.py":3:1)',
            "%y = pto.constant 0x7F : i8 ; a comment",
            "%z = pto.constant true : i1",
        ),
        ("%n = pto.constant 0x7FC00000 : f32", "%m = pto.constant -1.5e-3 : bf16", "%o = pto.constant 0.1 : f16"),
        (LOAD, "%u = pto.tile.add %t, %t", f"    : {T}, {T} -> {T}"),
        (LOAD, f"%u = pto.tile.exp %t : {T} -> {T}"),
        (f"%t = pto.tile.load %a[0, 4] {{valid = [32, 28], loc = #pto.loc<Vec>}} wait(%e) : !{M}, !pto.tile<32x32xf32>",),
        (
            f"%t, %f = pto.tile.load %a[0, 0] wait(%e) {{layout = #pto.layout<ND>}} : {M}, {T}, {event('TLOAD')}",
            "pto.sync wait(%f)",
        ),
        ("pto.sync.op #pto.op<TADD>",),
        ("%k = pto.constant 2.0 : f32", LOAD, f"%d = pto.tile.divs %k, %t : f32, {T}", f"%g = pto.tile.divs %t, %k : {T}, f32"),
        (
            LOAD,
            f"%m = pto.tile.cmp %t, %t {{cmpMode = #pto.cmp<LT>}} : {T} -> tile<32x32xi8>",
            f"%s = pto.tile.sel %m, %t, %t : {T}",
        ),
        ("%i = pto.tile.ci %one {descending = true} : tile<1x32xi32>",),
    ],
)
def test_spellings(lines):
    source = module(f"%a: {M}, %e: !pto.event, %one: i32", *lines)
    once = printed(good(source))
    assert printed(good(once)) == once


@pytest.mark.parametrize(("kind", "bits"), [("f16", 16), ("bf16", 16), ("f32", 32), ("i8", 8), ("u16", 16), ("i32", 32)])
def test_bits_of_a_constant_are_those_of_its_type(kind, bits):
    for text_, fits in ((f"0x{(1 << bits) - 1:X}", True), (f"0x{1 << bits:X}", False), (f"0x{'F' * 40}", False)):
        found = codes(module("", f"%n = pto.constant {text_} : {kind}"))
        assert ("TypeMismatch" in found) is not fits, (kind, text_)


@pytest.mark.parametrize("source", ["%c = pto.constant 1 : index", "func.func @f() {\n return\n}", "// nothing\nmodule {\n}"])
def test_a_module_may_be_implied(source):
    assert printed(good(source)).startswith("module {\n  func.func @")


@pytest.mark.parametrize(
    "lines, code",
    [
        (("%x = pto.constant 1.5 : i32",), "TypeMismatch"),
        (("%x = pto.constant 1 : f32",), "TypeMismatch"),
        (("%x = pto.constant 200 : i8",), "TypeMismatch"),
        (("%x = pto.constant 1e9 : f16",), "TypeMismatch"),
        (("%x = pto.constant 1 : tile<4xf32>",), "TypeMismatch"),
        (("%x = pto.addi %c0 : index",), "TypeMismatch"),
        (("%x, %y = pto.addi %c0, %c0 : index",), "TypeMismatch"),
        (("pto.sync",), "ParseError"),
        (("return", "%x = pto.addi %c0, %c0 : index"), "ParseError"),
        (("scf.yield",), "ParseError"),
        (("%x = pto.tile.exp %undefined : tile<4xf32>",), "UndefinedValue"),
        ((LOAD, f"%u = pto.tile.exp %t {{valid = 4}} : {T}"), "ParseError"),
        ((LOAD, f"%u = pto.tile.exp %t {{valid = [4]}} : {T}"), "RankMismatch"),
        ((LOAD, f"%u, %e = pto.tile.exp %t : {T}"), "TypeMismatch"),
        ((LOAD, f"%u = pto.tile.exp %t : {T}, {event('TEXP')}"), "TypeMismatch"),
        ((f"%t = pto.tile.load %a : {M}, {T}",), "ParseError"),
        ((f"%t = pto.tile.load %a[%c0, %c0] {{loc = #pto.loc<Nowhere>}} : {M}, {T}",), "InvalidLocation"),
        (
            (f"%t = pto.tile.load %a[%c0, %c0] {{loc = #pto.loc<Mat>}} : {M}, tile<32x32xf32, #pto.tile_info<loc=Vec>>",),
            "InvalidLocation",
        ),
        (("%v = pto.memref.subview %a[0, 0] [4, 4] : pto.memref<32x32xf32> to pto.memref<4x4xf32>",), "ParseError"),
        ((LOAD, "%u = pto.tile.exp %t : tile<16x64xf32>"), "ShapeMismatch"),
        ((LOAD, "%u = pto.tile.trans %t : tile<32x32xf16> -> tile<32x32xf16>"), "TypeMismatch"),
        (("scf.for %i = %c0 to %c0 step %c0 {", "  return", "}"), "ParseError"),
    ],
)
def test_statements_in_error(lines, code):
    assert code in codes(module(f"%a: {M}", *lines))


SMALL = "pto.memref<4x4xf32>"
TYPED = [
    ("%v = pto.memref.subview %a[0, 0] [4, 4] [1, 1]", [M], "to", [SMALL]),
    ("%k = pto.constant 3", ["index"], "", []),
    ("%t = pto.tile.load %a[0, 0]", [M, T], "", []),
    ("%j = pto.addi %c0, %c0", ["index"], "", []),
    ("%u = pto.tile.rowsum %s", [T], "->", ["tile<32x1xf32>"]),
    ("%u = pto.tile.exp %s", [T], "", []),
    ("pto.tile.store %s, %a[0, 0]", [M, T], "", []),
]


def of_types(head: str, before: list[str], arrow: str, after: list[str]) -> list[str]:
    """A statement that another one follows on its line, as codes see it."""
    types = f" : {', '.join(before)}" * bool(before) + f" {arrow} {', '.join(after)}" * bool(after)
    return codes(module(f"%a: {M}", f"%s = pto.tile.load %a[0, 0] : {M}, {T}", head + types))


@pytest.mark.parametrize(
    ("head", "before", "arrow", "after"), TYPED, ids=[row[0].split(" %")[0].split(" = ")[-1] for row in TYPED]
)
def test_a_statement_has_as_many_types_as_its_form_says(head: str, before: list[str], arrow: str, after: list[str]) -> None:
    assert of_types(head, before, arrow, after) == []
    assert of_types(head, [*before, *before[-1:] * 3], arrow, after)
    assert of_types(head, [], arrow, after)
    if arrow:
        assert of_types(head, before, arrow, [*after, after[-1]])
        assert of_types(head, before, arrow, [])


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(LEGAL), st.integers(0, 2**32))
def test_mutated_text_never_raises(name, seed):
    rng = Random(seed)
    source = (SAMPLES / name).read_text()
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(source))
        cut = source[at : at + rng.randrange(1, 12)]
        piece = rng.choice(["", "%", "{", "}", " : ", "tile<", ">", ",", "\n", "wait(", "0", "@", cut * 2, "%c0", "x"])
        source = source[:at] + piece + source[at + len(cut) :]
    program, found = check(source)
    assert program is not None or found.errors
    if program is not None and not found.errors:
        assert printed(good(printed(program))) == printed(program)


@pytest.mark.parametrize("name", [p.name for p in sorted(SAMPLES.glob("*.pto")) if "syntax" not in p.name])
def test_format_changes_layout_only(name):
    source = (SAMPLES / name).read_text()
    squeezed = re.sub(r"^ +", "", source, flags=re.M)
    once = formatted(squeezed)
    assert formatted(once) == once
    assert formatted(source) == once
    assert once.split() == source.split()


def formatted(source):
    made = text.format_text(Source("x.pto", source), Diagnostics(Source("x.pto", source)))
    assert made is not None
    return made


def test_format_keeps_comments_and_refuses_bad_text():
    source = "// one\nmodule   {   // two\n\n\n  func.func @f() { return } // three\n}\n"
    assert formatted(source) == "// one\nmodule { // two\n\n  func.func @f() { return } // three\n}\n"
    found = Diagnostics(Source("x.pto", "module {"))
    assert text.format_text(found.source, found) is None and found.errors


@pytest.mark.parametrize(
    "constant, said, column",
    [
        ("pto.constant 0 index", "expected `:` before the type", 23),
        ("pto.constant 0.0 f32", "expected `:` before the type", 25),
        ("pto.constant 0,", "an operand is missing at the end of this statement", 22),
        ("pto.constant", "an operand is missing at the end of this statement", 19),
        ("pto.constant  // the first row", "an operand is missing at the end of this statement", 19),
    ],
)
def test_a_statement_that_takes_the_next_one_for_its_own_is_the_only_one_in_error(constant, said, column):
    _, found = check(f"func.func @f(%a: {M}) {{\n%one = {constant}\n%t = pto.tile.load %a[%one, %one] : {M}, {T}\nreturn\n}}\n")
    assert [(d.code, d.message, d.where[1:]) for d in found if d.severity is Severity.ERROR] == [
        ("ParseError", said, (2, column))
    ]


@pytest.mark.parametrize("word", ["func.fun", "func.fucn", "fun.func", "function.func", "pto.func", "fn"])
def test_a_misspelt_function_is_underlined_where_it_is_wrong(word):
    _, found = check(f"module {{\n  {word} @f(%a: {M}) {{\n    return\n  }}\n}}\n")
    (error,) = list(found)
    assert (error.code, error.where[1:], len(word)) == ("ParseError", (2, 3), error.span.end - error.span.start)
    assert "`func.func`" in error.message


def test_every_error_of_a_file_is_told_once():
    source = module(f"%a: {M}", "%x = pto.tile.exp %no : tile<4xf32>", "%y = pto.tile.exp %x : tile<4xf32>", LOAD, LOAD)
    assert codes(source) == ["UndefinedValue", "RedefinedValue"]
    assert Options()[HAZARDS]


@pytest.mark.parametrize("part", ["eid = -1", "eid = x", "scope = #pto.scope<outer>"])
def test_an_event_type_in_error_is_told_once(part):
    t = f"!pto.event<producer = #pto.op<TLOAD>, {part}>"
    assert codes(module(f"%a: {M}", f"%t, %e = pto.tile.load %a[%c0, %c0] : {M}, {T}, {t}", "pto.sync wait(%e)")) == [
        "ParseError"
    ]


@pytest.mark.parametrize("key", ["foo", "to", "event", "segments"])
def test_unknown_attributes_name_those_that_there_are(key):
    found = check(module(f"%a: {M}", f"%t = pto.tile.load %a[%c0, %c0] {{{key} = 5}} : {M}, {T}"))[1]
    assert [(d.code, d.message) for d in found] == [
        ("UnknownAttribute", f"tile.load has no attribute `{key}` (it has: loc, layout, valid)")
    ]
    for line in (f"%x = pto.constant 3 {{{key} = 3}} : index", f"pto.sync.op #pto.op<TADD> {{{key} = 3}}"):
        assert codes(module("", line)) == ["UnknownAttribute"]


def nested(depth):
    return module(
        "%n: index",
        "%c1 = pto.constant 1 : index",
        *(f"scf.for %i{k} = %c0 to %n step %c1 {{" for k in range(depth)),
        "}" * depth,
    )


def test_deep_nesting():
    assert codes(nested(100)) == []
    with pytest.raises(LimitExceeded):
        check(nested(300))


@pytest.mark.parametrize("line", [f"%u = pto.tile.expands %k : {T}", f"%u = pto.tile.muls %t, %k : {T}"])
def test_one_type_may_stand_for_all(line):
    good(module(f"%a: {M}, %k: f32", LOAD, line))


def test_several_results_of_one_name():
    source = (KERNELS / "several_results.pto").read_text()
    program = good(source)
    assert printed(good(printed(program))) == printed(program) and "%r#0, %r#1 = scf.for" in printed(program)
    assert printed(good(source.replace("%r:2", "%r#0, %r#1"))) == printed(program)
    for count in ("3", "0", "2000", "99999999999999999999"):
        assert codes(source.replace("%r:2", f"%r:{count}"))[0] in ("ParseError", "TypeMismatch")
    broken = source.replace("iter_args(", "iter_args[")
    assert codes(broken) == ["ParseError"]


@pytest.mark.parametrize("prefix", ["pto", "arith"])
@pytest.mark.parametrize("name", ["scf.for", "scf.if", "scf.while", "func.call"])
def test_control_flow_behind_a_prefix_is_no_op(prefix: str, name: str) -> None:
    source = f"func.func @f(%a: pto.memref<4x4xf32>) {{\n  %x = {prefix}.{name} %a, %a : i32\n  return\n}}\n"
    assert codes(source) == ["UnknownOp"]
