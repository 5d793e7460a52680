"""Programs near a given one: another number, dtype, word or operand here and there, and the types that follow from it.

A rule, a pass or a translation that forgot a condition meets in them what its own cases leave out.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np

from ptir_tools.core import arrays
from ptir_tools.core.declare import OPS
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Program, clone
from ptir_tools.core.dtypes import BF16, F16, F32, F64, FP8_E5M2, I1, SI4, SI8, SI32, SI64, UI4, UI8, DType
from ptir_tools.core.ir import Literal, Op, Operand, Value, create, operand_type
from ptir_tools.core.source import Source
from ptir_tools.core.types import TensorType, Type
from ptir_tools.core.verify import verify
from ptir_tools.core.violations import Violation
from ptir_tools.dialects.ptir.ops.kinds import ENUMERATIONS
from ptir_tools.dialects.ptir.ops.scalars import Scalar

# Nine is more than si4 counts.
NUMBERS = (0, 1, 2, 3, 9, -1)
DTYPES = (F16, BF16, F32, F64, FP8_E5M2, SI4, SI4, UI4, SI8, UI8, SI32, SI64)
TRIES = 40


def near(program: Program, count: int, seed: object) -> Iterator[Program]:
    """`count` programs that verify, with one to three edits each; fewer where edits seldom give a program."""
    rng = random.Random(repr(seed))
    for _ in range(count):
        for _ in range(TRIES):
            made = clone(program)
            grows = made.main.params and not rng.randrange(3)
            if grows and not _grown(rng, made):
                continue
            if all(_edited(rng, made) for _ in range(rng.choice((1, 1, 2, 3)))) and not _errors(made):
                yield made
                break


def _errors(program: Program) -> int:
    found = Diagnostics(Source("edited", ""))
    verify(program, found)
    return found.errors


def _grown(rng: random.Random, program: Program) -> bool:
    """Whether a parameter could have a longer axis, so that windows may move."""
    p = rng.choice(program.main.params)
    if not isinstance(p.type, TensorType) or not p.type.rank:
        return False
    shape = list(p.type.static_shape)
    shape[rng.randrange(len(shape))] += rng.choice((1, 2))
    p.type = p.type.with_shape(shape)
    return _retyped(program, program.main.body)


def _edited(rng: random.Random, program: Program) -> bool:
    """Whether one edit in the body was possible."""
    body = program.main.body
    if not body:
        return False
    at = rng.randrange(len(body))
    op = body[at] if rng.randrange(2) else _twin(rng, body, at)
    slots = [*range(len(op.attrs)), *(-1 - i for i in range(len(op.operands)))]
    if not slots:
        return False
    slot = rng.choice(slots)
    if slot < 0:
        op.operands = tuple(_operand(rng, program, at, x) if i == -1 - slot else x for i, x in enumerate(op.operands))
    else:
        if (changed := _other(rng, op.attrs[slot], op.defn.attrs[slot].name)) is None:
            return False
        op.attrs = tuple(changed if i == slot else x for i, x in enumerate(op.attrs))
    return _retyped(program, body[body.index(op) :])


def _operand(rng: random.Random, program: Program, at: int, x: Operand) -> Operand:
    """Another operand: one of its own, so that what was one value is two; a counter or a constant; another value."""
    body, t = program.main.body, operand_type(x)
    known = [*program.main.params, *(v for o in body[:at] for v in o.results)]
    how = rng.randrange(4)
    if (
        how == 0
        and program.dialect.name == "ptir"
        and isinstance(t, TensorType)
        and t.dtype is not I1
        and t.rank
        and not t.dtype.is_complex
    ):
        attrs = {"shape": t.shape, "dtype": t.dtype, "axis": rng.randrange(t.rank)}
        body.insert(0, create(OPS["ptir.iota"], (), attrs, types=(t,), names=[f"counter{len(body)}"]))
        return body[0].result
    if how == 1 or not known:
        return _own(program, t)
    return rng.choice(known)


def _own(program: Program, t: Type, v: Value | None = None) -> Value:
    """A new parameter."""
    program.main.params.append(v := v or Value(t, f"own{len(program.main.params)}"))
    if "input_names" in program.main.attrs:
        program.main.attrs["input_names"] = [*program.main.attrs["input_names"], v.name]
    return v


def _twin(rng: random.Random, body: list[Op], at: int) -> Op:
    """A second op like the one at `at`, for one use of its result: there are two where a pattern may expect one."""
    op = body[at]
    if len(op.results) != 1 or op.regions:
        return op
    uses = [(user, i) for user in body[at + 1 :] for i, x in enumerate(user.operands) if operand_type(x) is op.result.type]
    if not uses:
        return op
    twin = Op(op.defn, op.operands, op.attrs, (), op.regions, op.loc)
    twin.results = (Value(op.result.type, f"{op.result.name}_twin", twin),)
    body.insert(at, twin)
    user, at = rng.choice(uses)
    user.operands = tuple(twin.result if i == at else x for i, x in enumerate(user.operands))
    return twin


def _other(rng: random.Random, x: object, name: str) -> object:
    """Another value of an attribute; None where there is none."""
    if isinstance(x, bool):
        return not x
    if isinstance(x, DType) or (x is None and name.endswith("dtype")):
        return rng.choice(DTYPES)
    if isinstance(x, int):
        return rng.choice((*NUMBERS, x - 1, x + 1, x - 1, x + 1))
    if isinstance(x, tuple) and x:
        at = rng.randrange(len(x))
        inner = _other(rng, x[at], name)
        return None if inner is None else (*x[:at], inner, *x[at + 1 :])
    if isinstance(x, Literal):
        return _numbers(rng, x)
    if isinstance(x, Scalar) and x.kind != "Complex":
        return Scalar(x.kind, type(x.value)(rng.choice(NUMBERS[:-1])))
    words = [w for words in ENUMERATIONS.values() if x in words for w in words]
    return rng.choice(words) if words else None


def _numbers(rng: random.Random, x: Literal) -> Literal | None:
    """A constant with another number at one place, or everywhere."""
    if x.data is None or not x.type.is_static or not x.type.count or x.type.dtype.is_complex:
        return None
    array = np.broadcast_to(arrays.from_literal(x), x.type.static_shape).copy()
    d = x.type.dtype
    ends = (d.min, d.max, d.max - 1) if d.is_integer else (0.5, -0.0, np.nan, np.inf) if d.is_float else ()
    number = rng.choice((0, 1, *(() if d is I1 else (2, *ends)), *((-1,) if d.is_signed else ())))
    if rng.randrange(2):
        array[...] = number
    else:
        array.reshape(-1)[rng.randrange(array.size)] = number
    return arrays.to_literal(array, x.type)


def _retyped(program: Program, ops: list[Op]) -> bool:
    """Give values the types that follow, and to an op that refuses them other operands; False where it refuses all."""
    for op in ops:
        types = _types(op)
        if types is None and (fitting := _fitting(program, op)) is not None:
            op.operands, types = fitting
        if types is None:
            return False
        for v, t in zip(op.results, types, strict=True):
            v.type = t
    program.main.result_types = [operand_type(x) for x in program.main.results]
    tensors = [t for t in program.main.result_types if isinstance(t, TensorType)]
    return all(t.is_static and t.count < 1 << 12 for t in tensors)


def _types(op: Op) -> tuple[Type, ...] | None:
    try:
        return op.defn.result_types(tuple(map(operand_type, op.operands)), op.attrs, op.regions)
    except (Violation, TypeError, ValueError, IndexError):
        return None


def _fitting(program: Program, op: Op) -> tuple[tuple[Operand, ...], tuple[Type, ...]] | None:
    """Operands, one of them a parameter of another shape or dtype, that the op takes, and the types of its results."""
    kept = op.operands
    tensors = [t for t in map(operand_type, kept) if isinstance(t, TensorType)]
    shapes = [*(t.shape for t in tensors), *(a for a in op.attrs if isinstance(a, tuple) and all(type(d) is int for d in a))]
    for i, t in enumerate(map(operand_type, kept)):
        wanted = (
            [t.with_shape(s) for s in shapes if min(s, default=0) >= 0] + [t.with_dtype(o.dtype) for o in tensors]
            if isinstance(t, TensorType)
            else []
        )
        for other in dict.fromkeys(wanted):
            op.operands = (*kept[:i], v := Value(other, f"own{len(program.main.params)}"), *kept[i + 1 :])
            if (types := _types(op)) is not None:
                _own(program, other, v)
                return op.operands, types
    op.operands = kept
    return None
