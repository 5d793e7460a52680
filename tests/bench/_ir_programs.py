"""Generated programs for the table `ir`: one dataflow as text PTIR and as MLIR, and shapes that a rewriter must not choke on."""

from __future__ import annotations

import random
from collections.abc import Callable

TENSOR = {"si32": "tensor<si32>", "f32": "tensor<f32, 8x8>"}
ARITH = {"add": "addi", "mul": "muli", "sub": "subi"}
Line = tuple[str, str, tuple[int, ...]]  # op, what it needs beside, operands: numbers of values, two parameters first


def mixed(n: int, kind: str, number: int = 0) -> list[Line]:
    """About `n` ops: 15 % constants, 10 % exact duplicates, 15 % foldable, 10 % chains that come to nothing, 20 % dead, the rest
    a live chain. Of `si32` scalars, or of `f32` 8x8. Each `number` is another program."""
    draw = random.Random(n + number)
    lines: list[Line] = []
    live, constants, acc, last = [0, 1], list[int](), 0, ("add", "", (0, 1))

    def emit(op: str, beside: str, *operands: int) -> int:
        lines.append((op, beside, operands))
        return len(lines) + 1

    while len(lines) < n:
        p, recent = draw.random(), live[-200:]
        op = draw.choice(list(ARITH))
        if p < 0.15 or len(constants) < 2:
            constants = [*constants[-49:], emit("constant", str(draw.randrange(1, 50)))]
        elif p < 0.25:
            acc = emit("add", "", acc, emit(*last[:2], *last[2]))
        elif p < 0.35:
            acc = emit("add", "", acc, emit(op, "", draw.choice(constants), draw.choice(constants)))
        elif p < 0.40:
            live.append(emit("add", "", acc, emit("constant", "0")))
        elif p < 0.50:
            acc = emit("add", "", _nothing(emit, acc, kind), draw.choice(recent))
        elif p < 0.70:
            emit(op, "", draw.choice(recent), draw.choice(recent))
        else:
            last = (op, "", (draw.choice(recent), acc))
            acc = emit(*last[:2], *last[2])
            live.append(acc)
    return [*lines, ("return", "", (acc,))]


def _nothing(emit: Callable[..., int], acc: int, kind: str) -> int:
    """Ops after which `acc` is what it was."""
    if kind == "si32":
        return emit("add", "", acc, emit("sub", "", acc, acc))
    return emit("cast", "", emit("transpose", " perm[1, 0]", emit("transpose", " perm[1, 0]", acc)))


def as_ptir(lines: list[Line], kind: str) -> str:
    """The dataflow as text PTIR."""
    t, dot = TENSOR[kind], ".0" if kind == "f32" else ""
    body = []
    for i, (op, beside, operands) in enumerate(lines[:-1], 2):
        attribute = f" value[dense<{beside}{dot}>]" if op == "constant" else beside
        body.append(f"  %v{i} = {op}({', '.join(f'%v{x}' for x in operands)}){attribute} -> {t}\n")
    return f"func @f(%v0: {t}, %v1: {t}) -> {t} {{\n{''.join(body)}  return %v{lines[-1][2][0]}\n}}\n"


def as_arith(lines: list[Line]) -> str:
    """The same of `si32` in MLIR's `arith`."""
    body = []
    for i, (op, beside, operands) in enumerate(lines[:-1], 2):
        said = f"constant {beside}" if op == "constant" else f"{ARITH[op]} {', '.join(f'%v{x}' for x in operands)}"
        body.append(f"  %v{i} = arith.{said} : i32\n")
    return f"func.func @f(%v0: i32, %v1: i32) -> i32 {{\n{''.join(body)}  func.return %v{lines[-1][2][0]} : i32\n}}\n"


def _function(lines: list[str], result: str, t: str = "tensor<si32, 2>", out: str = "") -> str:
    body = "".join(f"  {line}\n" for line in lines)
    return f"func @f(%x: {t}) -> {out or t} {{\n{body}  return {result}\n}}\n"


def chain(n: int) -> str:
    """One op after the other, each of which the next undoes."""
    t = "tensor<si32, 2>"
    lines = [f"%v{i} = neg(%{f'v{i - 1}' if i else 'x'}) -> {t}" for i in range(n)]
    return _function(lines, f"%v{n - 1}")


def fan_out(n: int) -> str:
    """One value with `n` users, each of which goes."""
    t = "tensor<si32, 2>"
    lines = ["%z = constant() value[dense<0>] -> " + t, f"%h = abs(%x) -> {t}", f"%a0 = neg(%h) -> {t}"]
    for i in range(n // 2):
        lines += [f"%u{i} = add(%h, %z) -> {t}", f"%a{i + 1} = mul(%a{i}, %u{i}) -> {t}"]
    return _function(lines, f"%a{n // 2}")


def nested(n: int) -> str:
    """Rewrites inside rewrites: pairs within pairs, which go from the innermost out."""
    t = "tensor<f32, 2x2>"
    half = n // 2
    names = ["x", *(f"v{i}" for i in range(2 * half))]
    ops = ["neg(%{}) -> " + t if i % 2 else "transpose(%{}) perm[1, 0] -> " + t for i in range(half)]
    lines = [f"%{names[i + 1]} = {op.format(names[i])}" for i, op in enumerate([*ops, *ops[::-1]])]
    return _function(lines, f"%{names[-1]}", t)


def constant_users(n: int) -> str:
    """One constant with `n` users, each of which is folded."""
    t = "tensor<si32, 2>"
    lines = [f"%c = constant() value[dense<3>] -> {t}", f"%a0 = neg(%x) -> {t}"]
    for i in range(n // 2):
        lines += [f"%u{i} = mul(%c, %c) -> {t}", f"%a{i + 1} = add(%a{i}, %u{i}) -> {t}"]
    return _function(lines, f"%a{n // 2}")


def wide_concats(n: int) -> str:
    """Concats of 1000 operands, each of which is rewritten."""
    t = "tensor<si32, 2>"
    lines, parts = [], []
    for i in range(n // 2):
        lines += [f"%u{i} = neg(%x) -> {t}", f"%w{i} = neg(%u{i}) -> {t}"]
    for k in range(0, n // 2, 1000):
        names = [f"%w{i}" for i in range(k, min(k + 1000, n // 2))]
        lines.append(f"%c{k} = concat({', '.join(names)}) axis[0] -> tensor<si32, {2 * len(names)}>")
        lines.append(f"%s{k} = slice(%c{k}) starts[0] sizes[2] -> {t}")
        parts.append(f"%s{k}")
    return _function(lines, ", ".join(parts), t, "(" + ", ".join([t] * len(parts)) + ")")


PATHOLOGICAL = {
    "chain": chain,
    "fan-out": fan_out,
    "nested rewrites": nested,
    "users of a constant": constant_users,
    "wide concats": wide_concats,
}
