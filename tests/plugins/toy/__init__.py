"""A fifth IR, for the tests: vectors of f32, one op a line, `;` comments.

toy
x = input 3
y = twice x
out y
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ptir_tools import plugins
from ptir_tools.core.builder import single_function
from ptir_tools.core.declare import OPS, op
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Code, Codes, Dialect, Format, FormatEntry, Machine, Option, Options, Program
from ptir_tools.core.dtypes import F32
from ptir_tools.core.ir import COMMUTES, ELEMENTWISE, PURE, Value, create
from ptir_tools.core.source import Source, Span, pack
from ptir_tools.core.types import POISON, Type, tensor
from ptir_tools.rewrite.pattern_set import FrozenPatternSet
from ptir_tools.rewrite.patterns import OpView, rewrites

if TYPE_CHECKING:
    from ptir_tools.core.declare import Many  # noqa: F401


def same(*types: Type) -> Type:
    """The type of the operands, which is one."""
    return types[0]


@op("toy.add", infer=same, traits=PURE | ELEMENTWISE | COMMUTES)
def add(x, y):
    """The sum of `x` and `y`."""
    return x + y


@op("toy.twice", infer=same, traits=PURE | ELEMENTWISE)
def twice(x):
    """`x` and `x`."""
    return x + x


@op("toy.flip", infer=same, traits=PURE)
def flip(x):
    """`x`, the last element first."""
    return x[::-1]


LENGTH = Option("toy_length", 3, flag="--toy-length", metavar="N", parse=int, help="Toy: the length of an input without one (3).")
SHORTEST = Option("shortest", 0, flag="--shortest", parse=int, commands=("verify",), help="Toy: the least length of an input.")
CODES = Codes(syntax="ToySyntax", unknown_op="ToyOp", undefined="ToyName")
_LINE = re.compile(r"(?P<name>\w+)\s*=\s*(?P<op>\w+)(?P<rest>(?:\s+\w+)*)|out(?P<out>(?:\s+\w+)+)")


def _lines(source: Source) -> Iterator[tuple[int, str]]:
    at = 0
    for line in source.text.split("\n"):
        text = line.partition(";")[0].strip()
        if text and text != "toy":
            yield at + line.index(text), text
        at += len(line) + 1


def read(source: Source, diagnostics: Diagnostics, options: Options) -> Program | None:
    """The program in `source`."""
    program, builder = single_function(DIALECT)
    program.format = "toy"
    names: dict[str, Value] = {}
    for at, text in _lines(source):
        span = Span(at, at + len(text))
        m = _LINE.fullmatch(text)
        words = [] if m is None else (m["out"] or m["rest"]).split()
        if m is None:
            diagnostics.error(CODES.syntax, f"no statement: {text}", span)
        elif m["op"] == "input" and (not words or (len(words) == 1 and words[0].isdigit())):
            length = int(words[0]) if words else options[LENGTH]
            if length < options[SHORTEST]:
                diagnostics.error("ToyShort", f"{m['name']} has {length} elements", span)
            names[m["name"]] = builder.param(tensor(F32, (length,)), m["name"])
        elif missing := [w for w in words if w not in names]:
            diagnostics.error(CODES.undefined, f"{missing[0]} is not defined", span)
        elif m["out"]:
            builder.results(*(names[w] for w in words))
        elif (defn := OPS.get(f"toy.{m['op']}")) is None:
            diagnostics.error(CODES.unknown_op, f"there is no op {m['op']}", span)
            names[m["name"]] = Value(POISON, m["name"])
        else:
            new = create(defn, [names[w] for w in words], names=(m["name"],), loc=pack(at, at + len(text)))
            builder.block.body.append(new)
            names[m["name"]] = new.result
    return program


def write(program: Program, diagnostics: Diagnostics, options: Options) -> Iterator[str]:
    """The lines of a program."""
    function = program.main
    yield "toy\n"
    yield from (f"{p.name} = input {p.type.shape[0]}\n" for p in function.params)
    for each in function.body:
        yield f"{each.result.name} = {each.defn.short} {' '.join(v.name for v in each.values())}\n"
    yield f"out {' '.join(v.name for v in function.results)}\n"


def layout(source: Source, diagnostics: Diagnostics) -> str | None:
    """One blank between words; comments stay."""
    return "\n".join(" ".join(line.split()) for line in source.text.split("\n")).strip("\n") + "\n"


def generate(choices: Any, *, size: int = 4, only: Any = (), symbols: bool = True, faults: bool = False) -> Program:
    """A random program."""
    program, builder = single_function(DIALECT)
    known = [builder.param(tensor(F32, (3,)), "x")]
    for _ in range(size):
        name = choices.one(list(only) or ["add", "flip", "twice"])
        known.append(builder.op(name, *(choices.one(known) for _ in OPS[f"toy.{name}"].groups)))
    builder.results(known[-1])
    return program


DIALECT = Dialect(
    "toy",
    formats=(
        FormatEntry("toy", Format("toy", "toy", read, write, layout), named=False, comment=";", suffix=".toy", begins=r"toy\b"),
    ),
    codes=CODES,
    options=(LENGTH, SHORTEST),
    pipeline="canonicalize,cse,dce",
    explain=lambda: (Code("ToyOp", "There is no op of that name.", "toy\nx = input 3\ny = half x\nout y\n", "", "toy"),),
    generate=generate,
    targets=lambda: {"toy3": Machine("3 registers", lambda: iter(["flip takes two cycles"]))},
)
plugins.add_dialect(DIALECT)


@rewrites("toy.flip", operands=["toy.flip"])
def flip_of_flip(view: OpView) -> bool:
    """Two flips are none."""
    first = view.defined_by(view.x, "flip")
    return first is not None and view.replace(first.x)


PATTERNS = FrozenPatternSet([flip_of_flip])


def canonicalize(program: Program, context: Any) -> None:
    """Drop flips of flips."""
    for rw in context.rewriters(program):
        stats = context.drive(rw, PATTERNS, context.greedy())
        context.count("rewrites", stats.rewrites)


plugins.add_pass("canonicalize", "toy", canonicalize)
