"""Plug-ins to begin with: for each kind a file of Python and a test, both of which work as they are."""

from __future__ import annotations

import re

from ptir_tools.core.diagnostics import UsageError

_PROGRAM = """\
func @f(%x: tensor<f32, 3>) -> tensor<f32, 3> {
  %a = neg(%x) -> tensor<f32, 3>
  %y = exp(%a) -> tensor<f32, 3>
  return %y
}
"""
_PASS = '''\
"""The pass `NAME`. Run it: ptir opt --load FILE.py -p NAME model.ptir"""

from ptir_tools import plugins
from ptir_tools.rewriting import PassContext


def run(program, context: PassContext) -> None:
    """Name every value by its op and a number."""  # the help of `ptir opt --list-passes`
    for block in program.blocks():
        for number, op in enumerate(block.body):
            for value in op.results:
                value.name = f"{context.options['prefix']}{op.defn.short}{number}"
                context.count("renamed")


plugins.add_pass("NAME", "ptir", run, options={"prefix": "my_"})
'''
_PASS_TEST = (
    """\
// RUN: ptir opt -p NAME %s | filecheck %s
// CHECK: %my_neg0 = neg(%x)
// CHECK-NEXT: %my_exp1 = exp(%my_neg0)
// CHECK-NEXT: return %my_exp1
"""
    + _PROGRAM
)
_RULE = '''\
"""The rule `NAME`: exp(-x) is 1 / exp(x). `ptir opt --load FILE.py model.ptir` uses it, in canonicalize."""

from ptir_tools import plugins
from ptir_tools.rewriting import OpView, rewrites


@rewrites("ptir.exp", operands=["ptir.neg"])
def FUNCTION(op: OpView) -> bool:
    """True if the op was replaced."""
    inner = op.defined_by(op.x, "neg")
    if inner is None:
        return False
    return op.replace(op.rw.build(op.root, "reciprocal", op.rw.build(op.root, "exp", inner.x)))


plugins.add_rules("ptir", FUNCTION)
'''
_RULE_TEST = (
    """\
// RUN: ptir opt %s | filecheck %s
// RUN: ptir opt --check %s -o %t/after.ptir 2>&1 | filecheck %s --check-prefix=SAME
// SAME: 3 runs agree
// CHECK: [[E:%\\w+]] = exp(%x)
// CHECK-NEXT: reciprocal([[E]])
// CHECK-NOT: neg
"""
    + _PROGRAM
)
_OP = '''\
"""The op `NAME`, as a custom call: NAME(x) = x * sigmoid(scale * x). See `ptir run --load FILE.py`."""

import numpy as np

from ptir_tools import plugins
from ptir_tools.dialects.ptir.kernels.targets import Target


def result_type(types, values):
    """The type of the result, from the operands' types and the attributes."""
    return types[0]


def body(xs, values, result):
    """The result, from operands in float64; it is rounded once."""
    return xs[0] / (1 + np.exp(-values["scale"] * xs[0]))


# At least and at most one operand; the attributes that a call must have, and those that it may have.
plugins.add_kernel("my.FUNCTION.v1", Target((1, 1), result_type, body, {"scale": "F64"}, {}))
'''
_OP_TEST = """\
// RUN: ptir run %s --input x=[0,1] | filecheck %s
// CHECK: [0. {{ *}}0.731059]
func @f(%x: tensor<f32, 2>) -> tensor<f32, 2> {
  %y = custom_call(%x) target["my.FUNCTION.v1"] attrs[{scale = 1.0}] -> tensor<f32, 2>
  return %y
}
"""
_DIALECT = '''\
"""The IR `NAME`: a line per op, such as `y = twice x`. Its programs begin with `NAME`; `;` begins a comment."""

import re

from ptir_tools import plugins
from ptir_tools.core.builder import single_function
from ptir_tools.core.declare import OPS, op
from ptir_tools.core.dialect import Codes, Dialect, Format, FormatEntry
from ptir_tools.core.dtypes import F32
from ptir_tools.core.ir import ELEMENTWISE, PURE, create
from ptir_tools.core.source import Span, pack
from ptir_tools.core.types import tensor


def same(*types):
    """The type of the operands, which is one."""
    return types[0]


@op("NAME.add", infer=same, traits=PURE | ELEMENTWISE)
def add(x, y):
    """The sum of `x` and `y`."""
    return x + y


@op("NAME.twice", infer=same, traits=PURE | ELEMENTWISE)
def twice(x):
    """`x` and `x`."""
    return x + x


_LINE = re.compile(r"(\\w+) *= *(\\w+)((?: +\\w+)*)|out((?: +\\w+)+)")


def read(source, diagnostics, options):
    """The program in `source`; errors go to `diagnostics`."""
    program, builder = single_function(DIALECT)
    program.format, names = "NAME", {}
    for m in re.finditer(r"^[ ]*([^;\\n]*[^;\\n ])[ ]*(?:;.*)?$", source.text, re.MULTILINE):
        span = Span(*m.span(1))
        if m[1] == "NAME":
            continue
        line = _LINE.fullmatch(m[1])
        words = (line[3] or line[4] or "").split() if line else []
        unknown = [word for word in words if word not in names]
        if line is None:
            diagnostics.error("SyntaxError", "this is no statement", span)
        elif line[2] == "input" and len(words) == 1 and words[0].isdigit():
            names[line[1]] = builder.param(tensor(F32, (int(words[0]),)), line[1])
        elif unknown:
            diagnostics.error("UndefinedValue", f"{unknown[0]} is not defined", span)
        elif line[4]:
            builder.results(*(names[word] for word in words))
        elif f"NAME.{line[2]}" not in OPS:
            diagnostics.error("UnknownOp", f"there is no op {line[2]}", span)
        else:
            new = create(OPS[f"NAME.{line[2]}"], [names[w] for w in words], names=(line[1],), loc=pack(*m.span(1)))
            builder.block.body.append(new)
            names[line[1]] = new.result
    return program


def write(program, diagnostics, options):
    """The lines of a program."""
    yield "NAME\\n"
    yield from (f"{p.name} = input {p.type.shape[0]}\\n" for p in program.main.params)
    for each in program.main.body:
        yield f"{each.result.name} = {each.defn.short} {' '.join(v.name for v in each.values())}\\n"
    yield f"out {' '.join(v.name for v in program.main.results)}\\n"


DIALECT = Dialect(
    "NAME",
    formats=(FormatEntry("NAME", Format("NAME", "NAME", read, write), comment=";", suffix=".NAME", begins=r"NAME\\b"),),
    codes=Codes(syntax="SyntaxError", unknown_op="UnknownOp", undefined="UndefinedValue"),
    pipeline="cse,dce",
)
plugins.add_dialect(DIALECT)
'''
_DIALECT_TEST = """\
; RUN: ptir opt %s | filecheck %s
; RUN: ptir run %s --input x=[1,2,3] | filecheck %s --check-prefix=VALUES
; CHECK: a = twice x
; CHECK-NEXT: y = add a a
; CHECK-NEXT: out y
; VALUES: [ 4. 8. 12.]
NAME
x = input 3
a = twice x
b = twice x
y = add a b
out y
"""
KINDS = {
    "pass": (_PASS, _PASS_TEST, "ptir"),
    "rule": (_RULE, _RULE_TEST, "ptir"),
    "op": (_OP, _OP_TEST, "ptir"),
    "dialect": (_DIALECT, _DIALECT_TEST, "NAME"),
}


def files(kind: str, name: str) -> dict[str, str]:
    """The files of a plug-in, by their paths. Raises UsageError for a name that is none."""
    if not re.fullmatch(r"[a-z][a-z0-9]*(?:[-_][a-z0-9]+)*", name):
        raise UsageError(f"{name!r} is not a name: small letters and digits, with - or _ between")
    function = name.replace("-", "_")
    named = function if kind == "dialect" else name
    code, test, suffix = KINDS[kind]
    paths = {f"{function}.py": code, f"tests/{function}.{suffix.replace('NAME', function)}": test}
    return {
        path: text.replace("NAME", named).replace("FUNCTION", function).replace("FILE", function) for path, text in paths.items()
    }
