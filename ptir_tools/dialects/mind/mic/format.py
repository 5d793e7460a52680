"""`mic@1`, read and written."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate

from ptir_tools.core.arrays import from_literal
from ptir_tools.core.collector import collector_paused
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import PROFILE, Format, Options, Program
from ptir_tools.core.dtypes import F32, SI32, DType
from ptir_tools.core.ir import Function, Literal, Op, Value
from ptir_tools.core.lazy import np
from ptir_tools.core.source import Source
from ptir_tools.core.types import TensorType
from ptir_tools.dialects.mind.mic.reader import OUTPUTS_LAST, Reader
from ptir_tools.dialects.mind.ops.common import CURRENT
from ptir_tools.dialects.mind.types import dtype_text

_BINARY = ("Add", "Sub", "Mul", "Div")


def read(source: Source, diagnostics: Diagnostics, options: Options) -> Program | None:
    """The program in `source`; with errors it is partial, and what is in error has the type POISON."""
    with collector_paused():
        return Reader(source, diagnostics, "mic", options[PROFILE] == CURRENT).read()


def write(program: Program, diagnostics: Diagnostics, options: Options) -> Iterator[str]:
    """The text of `program`, a line at a time, as the tool writes it: the table of types, then instructions and outputs.

    The tool gives f32 as the type of every instruction but constants and reshapes. An operation that `mic@1` lacks is reported
    as NotTranslatable.
    """
    yield from _Writer(program.main, diagnostics).lines()


class _Writer:
    """One program on its way to text. `types` numbers the types in the order in which they are needed."""

    def __init__(self, function: Function, diagnostics: Diagnostics) -> None:
        self.function, self.diagnostics = function, diagnostics
        values = [*function.params, *(op.result for op in function.body)]
        plain = all(v.name.isdecimal() and len(v.name) < 10 for v in values)
        self.ids = {v: int(v.name) if plain else i for i, v in enumerate(values)}
        self.uses: dict[Value, list[Op]] = {}
        for op in function.body:
            for x in op.values():
                self.uses.setdefault(x, []).append(op)
        self.types: dict[str, int] = {}
        for x in (ordered := self.ordered()):
            self.types.setdefault(self.entry(x), len(self.types))
        self.order = ordered

    def ordered(self) -> list[Value]:
        """Inputs and instructions as the tool orders them: by their ids, but an input is before what reads it."""
        ops = [op.result for op in self.function.body]
        first = {x: at for at, op in reversed([*enumerate(self.function.body)]) for x in op.values()}
        highest = [*accumulate((self.ids[x] for x in ops), max)]
        at = [min(first.get(p, len(ops)), bisect_right(highest, self.ids[p])) for p in self.function.params]
        before: list[list[Value]] = [[] for _ in range(len(ops) + 1)]
        for p, here in zip(self.function.params, at, strict=True):
            before[here].append(p)
        return [x for i, inputs in enumerate(before) for x in (*inputs, *ops[i : i + 1])]

    def lines(self) -> Iterator[str]:
        """The lines of the text. An output follows its instruction, if the outputs are in the order of the instructions."""
        results = [x for x in self.function.results if isinstance(x, Value)]
        shown = [f"O N{self.ids[x]}\n" for x in results]
        places = [self.order.index(x) for x in results]
        follow = places == sorted({*places}) and not self.function.attrs.get(OUTPUTS_LAST)
        after = dict(zip(results, shown, strict=True)) if follow else {}
        yield "mic@1\n"
        for text, number in self.types.items():
            yield f"T{number} {text}\n"
        for x in self.order:
            yield self.instruction(x.op) if x.op else f"N{self.ids[x]} const.tensor T{self.types[self.entry(x)]}\n"
            yield after.get(x, "")
        yield from () if after else shown

    def entry(self, x: Value) -> str:
        """The type that the tool puts in the table for a value. Only some are the type of the value."""
        kind, t = x.op.defn.short if x.op else "Input", x.type
        assert isinstance(t, TensorType)
        if kind == "Transpose":
            return _type_text(F32, ["?"] * len(t.shape))
        if x.op is not None and kind == "Reshape":
            return _type_text(F32, _new_shape(x.op))
        if x.op is not None and isinstance(value := x.op.defn.named(x.op.attrs).get("value"), Literal):
            return _type_text(SI32) if self.is_integer(x.op, value) else _type_text(t.dtype, t.static_shape)
        return _type_text(F32) if x.op else _type_text(t.dtype, t.static_shape)

    def instruction(self, op: Op) -> str:
        """The line of an instruction; empty after reporting one that cannot be written."""
        kind, own = op.defn.short, f"N{self.ids[op.result]}"
        if isinstance(value := op.defn.named(op.attrs).get("value"), Literal):
            return self.constant(op, own, value)
        given = " ".join(f"N{self.ids[x]}" for x in op.values())
        form = self.form(op, kind)
        if form is None:
            self.diagnostics.error("NotTranslatable", f"mic@1 has no {kind}", op.loc)
            return ""
        word, more = form
        number = self.types.get(
            _type_text(F32) if kind == "Transpose" else self.entry(op.result), 0
        )  # without f32 the tool writes T0
        between = f" {more}" if more or kind == "Slice" else ""  # the tool writes two blanks for a slice of a scalar
        return f"{own} {word} {given}{between} T{number}\n"

    def form(self, op: Op, kind: str) -> tuple[str, str] | None:
        """The word of an instruction, and what follows its operands; None where there is none."""
        attrs = op.defn.named(op.attrs)
        if kind in (*_BINARY, "Relu", "Dot", "MatMul"):
            return kind.lower(), ""
        if kind in ("Sum", "Mean"):
            return kind.lower(), f"{_listed(attrs['axes'])} kd={int(attrs['keepdims'])}"
        if kind == "Reshape":
            return "reshape", _listed(_new_shape(op))
        if kind in ("ExpandDims", "Squeeze", "Transpose") and (kind != "ExpandDims" or len(attrs["axes"]) == 1):
            word = {"ExpandDims": "expand", "Squeeze": "squeeze", "Transpose": "transpose"}[kind]
            return word, _listed(attrs["permutation" if kind == "Transpose" else "axes"])
        if kind == "Conv2d" and isinstance(attrs["padding"], str):
            return "conv2d", f"s={_listed(attrs['strides'])} p={attrs['padding'].lower()}"
        if kind == "Index":
            return "index", "[" + ",".join(f"{axis}:{i}" for axis, i in enumerate(attrs["indices"])) + "]"
        if kind == "Slice":
            spans = zip(attrs["starts"], attrs["ends"], attrs["steps"], strict=True)
            return "slice", ",".join(f"{a}:{b}:{c}" for a, b, c in spans)
        return ("gather", "ax=0") if kind == "Gather" else None

    def constant(self, op: Op, own: str, value: Literal) -> str:
        """A constant: an integer, or a tensor of one number."""
        array, number = from_literal(value), self.types[self.entry(op.result)]
        if len({*np.unstack(array.reshape(-1).view(f"u{array.itemsize}"))}) != 1:
            self.diagnostics.error("NotTranslatable", "mic@1 has no constant of different numbers", op.loc)
            return ""
        only = array.reshape(-1)[0]
        if self.is_integer(op, value):
            return f"{own} const.i64 {int(only)} T{number}\n"
        if array.dtype.kind == "i" and int(only) != int(float(only)):
            self.diagnostics.error("NotTranslatable", f"mic@1 has no tensor of {int(only)}, which a double does not hold", op.loc)
            return ""
        return f"{own} const.tensor fill={_decimal(only)} T{number}\n"

    def is_integer(self, op: Op, value: Literal) -> bool:
        """Whether a constant is written as an integer."""
        array = from_literal(value)
        if array.shape or op.defn.short == "ConstI64":
            return not array.shape
        number = array.reshape(-1)[0]
        return (number.dtype == np.int64 and abs(int(number)) > 2**53) or self.is_next_to_its_dtype(op, number)

    def is_next_to_its_dtype(self, op: Op, number: np.generic) -> bool:
        """Whether a scalar is an integer that reads back with its dtype: it is used, and only next to values of that dtype."""
        users = self.uses.get(op.result, [])
        exact = float(number)
        if not users or not exact.is_integer() or abs(exact) >= 2**53 or (exact == 0 and np.signbit(number)):
            return False
        others = [[x for x in user.values() if x is not op.result] for user in users]
        fits = all(u.defn.short in _BINARY and len(x) == 1 and x[0].op is not None for u, x in zip(users, others, strict=True))
        return fits and all(not x[0].op.defn.is_constant for x in others if x[0].op is not None)


def _new_shape(op: Op) -> Sequence[int]:
    """The extents of a Reshape, as numbers. A result without elements keeps its -1, because an extent may not be 0."""
    t, given = op.result.type, op.defn.named(op.attrs)["new_shape"]
    return t.static_shape if isinstance(t, TensorType) and 0 not in t.static_shape else given


def _type_text(dtype: DType, shape: Sequence[int | str] = ()) -> str:
    return f"[{dtype_text(dtype)};{','.join(map(str, shape))}]" if shape else dtype_text(dtype)


def _listed(numbers: Sequence[int]) -> str:
    return "[" + ",".join(map(str, numbers)) + "]"


def _decimal(number: np.generic) -> str:
    """A number as the tool writes it: the shortest decimal, without a fraction of 0."""
    exact = float(number)
    if not math.isfinite(exact):
        return str(exact).replace("nan", "NaN")
    return np.format_float_positional(np.float32(exact) if number.dtype == np.float32 else exact, trim="-")


FORMAT = Format("mic", "mind", read, write)
