"""PTO text: reading by lines and reading by the grammar alone give the same program and say the same."""

import re
from random import Random

import pytest

from ptir_tools import grammars
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Options, Program
from ptir_tools.core.ir import Literal, Op, Region
from ptir_tools.core.limits import LimitExceeded
from ptir_tools.core.source import Source
from ptir_tools.dialects.pto.text import format as text
from ptir_tools.dialects.pto.text import syntax
from tests.pto.programs import SAMPLES, event

TEXTS = [p.read_text() for p in sorted(SAMPLES.glob("*.pto"))]
M, T, LOAD, ADD = "pto.memref<64x64xf32>", "tile<8x8xf32>", event("TLOAD"), event("TADD")
# Statements that use names defined and not, each in several spellings; `{i}` is a number, `{a}` and `{b}` are old values.
STATEMENTS = (
    "%k{i} = pto.constant {i} : index",
    "%k{i} = pto.constant {i}.5 : f32",
    "%k{i} = arith.constant {i} : i8",
    "%k{i} = pto.addi %k{a}, %k{b} : index",
    "%t{i} = pto.tile.load %m[%k{a}, {b}] : {M}, {T}",
    "%t{i}, %e{i} = pto.tile.load %m[0, {b}] \n  : {M}, {T}, {LOAD}  // note %x {i}",
    "%t{i} = pto.tile.add %t{a}, %t{b} : {T}",
    "%t{i}, %e{i} = pto.tile.add %t{a}, %t{a} wait(%e{b}) : {T}, {ADD}",
    "%t{i} = pto.tile.exp %t{a} {{valid = [%k{a}, {b}]}} : {T} ; trailing",
    "%t{i} = pto.tile.exp %t{a} {{valid = [8, 007], loc = Vec}} : {T} loc(\"f\":{i}:{a})",
    "pto.tile.store %t{a}, %m[%k{b}, %k{a}] : {M}, {T}",
    "%v{i} = pto.memref.subview %m[{a}, %k{b}] [8, 8] [1, 1] : {M} to pto.memref<8x8xf32>",
    "%t{i}, %e{i} = pto.tile.load %m[0, {b}]  // note %x {i}\n   : {M}, {T}, {LOAD}",
    "pto.sync wait(%e{a}, %e{b}) : {LOAD}, {LOAD}",
    "pto.sync.op #pto.op<TADD>",
    "%t{i}, %t{i} = pto.tile.sort32 %t{a} : {T} -> {T}, tile<8x8xi32>",
    "%q{i} = pto.cmpi slt, %k{a}, %k{b} : index",
    "scf.for %i{i} = %k{a} to {b} step %k{a} {{",
    "%t{i} = scf.for %i{i} = %k{a} to %k{b} step %k{a} iter_args(%s{i} = %t{a}) -> ({T}) {{",
    "scf.if %q{a} {{",
    "scf.yield %t{a} : {T}",
    "scf.if %q{a} {{ pto.sync.op #pto.op<TADD> }}",
    "}} else {{",
    "}}",
    "return",
    "func.call @f(%k{a}, {b}) : (index, index) -> ()",
    "pto.tile.frob %t{a} : {T}",
)  # fmt: skip


def told(source: Source, *, whole: bool) -> tuple[object, ...]:
    """What reading says and makes of a text, by the grammar alone (`whole`) or not."""
    found = Diagnostics(source)
    with pytest.MonkeyPatch.context() as patch:
        if whole:
            patch.setattr(grammars, "lines", lambda _: re.compile(r"(?!)"))
        try:
            program = text.read(source, found, Options())
        except LimitExceeded as limit:
            return (str(limit),)
    return found.items, program and shown(program)


def shown(program: Program) -> list[object]:
    """Everything that a program holds, values by number."""
    numbers: dict[object, int] = {}

    def operand(x: object) -> object:
        return x.key if isinstance(x, Literal) else (numbers.setdefault(x, len(numbers)), x.name, x.type)

    def op(o: Op) -> object:
        attrs = [a.key if isinstance(a, Literal) else a for a in o.attrs]
        return o.name, [*map(operand, o.operands)], attrs, [*map(operand, o.results)], [*map(block, o.regions)], o.loc

    def block(b: Region) -> object:
        inside = [*map(operand, b.params)], [*map(op, b.body)], [*map(operand, b.results)]
        return b.name, *inside, b.result_types, b.loc, getattr(b, "attrs", None)

    return [program.attrs, program.entry, *map(block, program.functions)]


def same(source: str) -> None:
    made = Source("x", source)
    assert told(made, whole=False) == told(made, whole=True)


@pytest.mark.parametrize("source", TEXTS)
def test_samples_read_the_same(source):
    same(source)


def test_usual_statements_are_not_given_to_the_grammar():
    rows = [s.format(i=i + 10, a=0, b=0, M=M, T=T, LOAD=LOAD, ADD=ADD) for i, s in enumerate(STATEMENTS[:12])]
    source = Source("x", "%k0 = pto.constant 1 : index\n" + "\n".join(rows))
    file = syntax.parse(source, Diagnostics(source))
    assert file is not None
    assert [s.data for s in file.statements] == ["lines"] and len(file.statements[0].children[0]) == 13


@pytest.mark.parametrize("seed", range(50))
def test_generated_text_reads_the_same(seed):
    draw = Random(seed)
    chosen = [(draw.choice(STATEMENTS), draw.randrange(10), draw.randrange(10)) for _ in range(draw.randrange(25))]
    rows = ["%c0 = pto.constant 0 : index", "%k0 = pto.constant 1 : index", f"%t0 = pto.tile.load %m[0, %c0] : {M}, {T}"]
    rows += [s.format(i=i + 10, a=a, b=b, M=M, T=T, LOAD=LOAD, ADD=ADD) for i, (s, a, b) in enumerate(chosen)]
    rows += ["}"] * max(0, sum(r.count("{") - r.count("}") for r in rows))
    body = "\n  ".join(rows)
    same(f"module {{\nfunc.func @f(%m: {M}, %n: index) {{\n  {body}\n  return\n}}\n}}\n" if seed % 2 else body)


@pytest.mark.parametrize("seed", range(80))
def test_mutated_text_reads_the_same(seed):
    draw = Random(seed)
    source = draw.choice(TEXTS)
    pieces = [
        "",
        "%",
        "{",
        "}",
        " : ",
        "tile<",
        ">",
        ",",
        "\n",
        "wait(",
        "7",
        "@",
        '"',
        "//",
        ";",
        "loc(",
        "%c0",
        "x",
        "return\n",
    ]
    for _ in range(draw.randrange(1, 4)):
        at = draw.randrange(len(source))
        cut = source[at : at + draw.randrange(1, 12)]
        source = source[:at] + draw.choice([*pieces, cut * 2]) + source[at + len(cut) :]
    same(source)


@pytest.mark.parametrize(
    "source",
    [
        "return\n%a = pto.constant 0 : index",
        "%a = pto.constant 0 : index\n  to index",
        "pto.foo {\n  pto.bar\n}",
        "module {\nmodule {}\n}",
        "func.func @f() attributes {\n pto.entry\n} {\n return }",
        "%a = pto.constant 1\u00a0: index",
        "module attributes {a = #pto.x<b//c>} {\n%a = pto.constant 1 : index\n}",
        "scf.if %a {\n} else {\n} else {\n}",
        "scf.for %a = %a to %a step %a {\n} else {\n}",
        "}\n",
        "pto.foo % : index\npto.foo %a : index",
        "",
        f"pto.foo\n%t = pto.tile.exp %m : {T}",
        "func.func @f() {\nreturn\n}\n%a = pto.constant 1 : index\n%b = pto.constant 2 : index",
        f"pto.foo\npto.tile.store %t, %m[%a] : {M}, {T}",
        f"pto.foo {{a =\npto.tile.store %t, %m[%a] : {M}, {T}\n}}",
        f"pto.foo {{\n%t = pto.tile.exp %m : {T}\n}}",
        "%a = pto.constant 1 : index %b = pto.addi %a, %a : index\n%a ,%c = pto.addi %a, %a : index",
        "%a, //,\n %b = pto.constant 1 : index\n%c,\n%d = pto.addi %a, %b : index",
        f"%t;\n, %u = pto.tile.load %m[0, 00] : {M}, {T}",
        "%a, %b = pto.constant 1 : index\npto.constant 2 : index\n%c = pto.constant 1.5 : index\n%d = pto.constant 7 : blob",
        "%1 = pto.constant 1 : index\n%10 = pto.addi %1, %1 : index\n%pto.foo = pto.addi %1, %10 : index",
        "%a = pto.constant 1 : index\n%b = pto.addi %a, %c : index\n%c = pto.addi %a, %b : index\n%b = pto.addi %a, %a : index",
        "func.func @f(%q: i1) {\nscf.if %q {\n%a = pto.constant 1 : index\n}\n%b = pto.addi %a, %a : index\nreturn %b : index\n}",
        "%a = pto.constant 1 : index\nscf.yield %a : index\n%b = pto.addi %a, %a : index",
        f"%t = pto.tile.exp %t {{valid = [1, 2], valid = [1]}} : {T}\n%u = pto.tile.exp %t {{x = [%t], loc = []}} : {T}",
    ],
)
def test_odd_text_reads_the_same(source):
    same(source)
