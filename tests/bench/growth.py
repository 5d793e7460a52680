"""How many ops a program becomes in another IR: a program of each op on integers and flags in PTIR, and all generated integer
programs of an IR together. Constants and inputs are not counted. The column of the peer has the ops before."""

from __future__ import annotations

from collections.abc import Iterator

from ptir_tools.convert import translate
from ptir_tools.core.choices import Seeded
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Options, Program
from ptir_tools.core.dtypes import I1, SI32, DType
from ptir_tools.dialects import load_dialect
from tests.bench.ir import Row
from tests.convert.translations import IRS, parse

PROGRAMS = 60  # of each IR
X, FLAGS = "tensor<si32, 4x6>", "tensor<i1, 4x6>"
PAIRS = [
    "add",
    "sub",
    "mul",
    "maximum",
    "minimum",
    "bitwise_and",
    "bitwise_or",
    "bitwise_xor",
    "shift_left",
    "shift_right_arithmetic",
    "div",
    "rem",
    "mod",
]
KINDS = ["lt", "le", "eq", "ne", "gt", "ge"]
NUMBERS = (
    ("div", 7), ("rem", 7), ("mod", 7), ("shift_left", 3), ("shift_right_arithmetic", 3), ("bitwise_and", 15), ("bitwise_or", 15),
    ("bitwise_xor", -1), ("maximum", 0), ("minimum", 100), *((f"compare_{k}", 5) for k in KINDS),
)  # fmt: skip
REDUCED = ("sum", "prod", "max", "min", "and", "or", "xor")
OPS = {
    **{name: f"{name}(%x, %y)" for name in (*PAIRS, *(f"compare_{k}" for k in KINDS))},
    **{f"{name} by {n}": f"{name}(%x, dense<{n}> : {X})" for name, n in NUMBERS},
    "clamp to 0 … 255": f"clamp(%x, dense<0> : {X}, dense<255> : {X})",
    **{name: f"{name}(%x)" for name in ("neg", "abs", "sign", "bitwise_not", "popcount", "count_leading_zeros")},
    "select": "select(%p, %x, %y)",
    **{f"{name} of i1": f"{name}(%p, %q)" for name in ("bitwise_and", "bitwise_or", "bitwise_xor", "compare_eq")},
    "bitwise_not of i1": "bitwise_not(%p)", "cast of i1": "cast(%p)", "cast to f32": "cast(%x)",
    **{f"reduce_{k}": f"reduce_{k}(%x) axes[0] keepdims[true]" for k in REDUCED},
    **{f"cum{k}": f"cum{k}(%x) axis[0]" for k in ("sum", "prod", "max", "min")},
    "sort": "sort(%x) axis[0]", "gather": "gather(%x, %y) axis[0]", "concat": "concat(%x, %y) axis[0]",
}  # fmt: skip


def program(name: str, call: str) -> Program:
    """A program of one op; flags leave as integers."""
    flag = ("i1" in name.split() and not name.startswith("cast")) or name.startswith("compare")
    rows = 1 if name.startswith("reduce") else 8 if name == "concat" else 4
    result = f"tensor<{'f32' if name.endswith('f32') else 'si32'}, {rows}x6>"
    body = f"  %c = {call} -> {FLAGS}\n  %r = cast(%c) -> {X}\n" if flag else f"  %r = {call} -> {result}\n"
    return parse(f"func @f(%x: {X}, %y: {X}, %p: {FLAGS}, %q: {FLAGS}) -> {result} {{\n{body}  return %r\n}}\n", "ptir")


def length(made: Program) -> int:
    """The ops that compute something."""
    return sum(not op.defn.is_constant and op.defn.short not in ("INPUT", "Input") for b in made.blocks() for op in b.body)


def moved(before: Program, target: str, profile: str = "seed") -> Program | None:
    """The translation, if the target takes the program."""
    return translate(before, target, Diagnostics(before.source), Options(profile=profile, constants={}))


def rows() -> Iterator[Row]:
    """A row per op and target, and one per pair of IRs."""
    targets = (("mind", "seed"), ("mind", "current"), ("tiny", "seed"))
    for name, call in OPS.items():
        before = program(name, call)
        for target, profile in targets:
            if (made := moved(before, target, profile)) is not None:
                yield f"{name} in {target}{' current' * (profile == 'current')}", length(made), length(before), "ops"
    dtypes: dict[str, list[DType]] = {"ptir": [SI32, I1]}
    for ir in IRS:
        generate = load_dialect(ir).generate
        assert generate is not None
        programs = [generate(Seeded(seed), size=12, dtypes=dtypes.get(ir, [SI32])) for seed in range(PROGRAMS)]
        for target, profile in (("ptir", "seed"), *targets):
            pairs = [(before, moved(before, target, profile)) for before in programs if target != ir]
            done = [(length(made), length(before)) for before, made in pairs if made is not None]
            if done:
                after, own = map(sum, zip(*done, strict=True))
                yield f"{len(done)} programs, {ir} to {target}{' current' * (profile == 'current')}", after, own, "ops"
