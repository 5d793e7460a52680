"""`mic@1`, read and written."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from ptir_tools.core.arrays import from_literal
from ptir_tools.core.collector import collector_paused
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import PROFILE, Format, Options, Program
from ptir_tools.core.dtypes import F32, SI32, DType
from ptir_tools.core.ir import Function, Literal, Op, Value
from ptir_tools.core.lazy import np
from ptir_tools.core.source import Source
from ptir_tools.core.types import TensorType
from ptir_tools.dialects.mind.mic.reader import Reader
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

    def lines(self) -> Iterator[str]:
        """The lines of the text."""
        results = [x for x in self.function.results if isinstance(x, Value)]
        shown = [f"O N{self.ids[x]}\n" for x in results]
        order = [*self.ids]
        places = [order.index(x) for x in results]
        after = dict(zip(results, shown, strict=True)) if places == sorted({*places}) else {}  # an output follows its instruction
        body = []
        for p in self.function.params:
            body += [f"N{self.ids[p]} const.tensor {self.type(p.type)}\n", after.get(p, "")]
        for op in self.function.body:
            body += [self.instruction(op), after.get(op.result, "")]
        yield "mic@1\n"
        for text, number in self.types.items():
            yield f"T{number} {text}\n"
        yield from (line for line in body if line)
        yield from () if after else shown

    def type(self, t: object) -> str:
        """The reference to a type, which is put in the table."""
        assert isinstance(t, TensorType)
        return self.named(t.dtype, t.static_shape)

    def named(self, dtype: DType, shape: Sequence[int] = ()) -> str:
        text = f"[{dtype_text(dtype)};{','.join(map(str, shape))}]" if shape else dtype_text(dtype)
        return f"T{self.types.setdefault(text, len(self.types))}"

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
        shape = op.result.type.static_shape if kind == "Reshape" and isinstance(op.result.type, TensorType) else ()
        return f"{own} {word} {given}{f' {more}' if more else ''} {self.named(F32, shape)}\n"

    def form(self, op: Op, kind: str) -> tuple[str, str] | None:
        """The word of an instruction, and what follows its operands; None where there is none."""
        attrs = op.defn.named(op.attrs)
        if kind in (*_BINARY, "Relu", "Dot", "MatMul"):
            return kind.lower(), ""
        if kind in ("Sum", "Mean"):
            return kind.lower(), f"{_listed(attrs['axes'])} kd={int(attrs['keepdims'])}"
        if kind == "Reshape":
            t = op.result.type
            return "reshape", _listed(t.static_shape if isinstance(t, TensorType) else attrs["new_shape"])
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
        array = from_literal(value)
        if len({*np.unstack(array.reshape(-1).view(f"u{array.itemsize}"))}) != 1:
            self.diagnostics.error("NotTranslatable", "mic@1 has no constant of different numbers", op.loc)
            return ""
        number = array.reshape(-1)[0]
        if op.defn.short == "ConstI64" or (not array.shape and self.is_next_to_its_dtype(op, number)):
            return f"{own} const.i64 {int(number)} {self.named(SI32)}\n"
        return f"{own} const.tensor fill={_decimal(number)} {self.type(value.type)}\n"

    def is_next_to_its_dtype(self, op: Op, number: np.generic) -> bool:
        """Whether a scalar is an integer that reads back with its dtype: it is used, and only next to values of that dtype."""
        users = self.uses.get(op.result, [])
        exact = float(number)
        if not users or not exact.is_integer() or abs(exact) >= 2**53 or (exact == 0 and np.signbit(number)):
            return False
        others = [[x for x in user.values() if x is not op.result] for user in users]
        fits = all(u.defn.short in _BINARY and len(x) == 1 and x[0].op is not None for u, x in zip(users, others, strict=True))
        return fits and all(not x[0].op.defn.is_constant for x in others if x[0].op is not None)


def _listed(numbers: Sequence[int]) -> str:
    return "[" + ",".join(map(str, numbers)) + "]"


def _decimal(number: np.generic) -> str:
    """A number as the tool writes it: the shortest decimal, without a fraction of 0."""
    exact = float(number)
    if not math.isfinite(exact):
        return str(exact).replace("nan", "NaN")
    return np.format_float_positional(np.float32(exact) if number.dtype == np.float32 else exact, trim="-")


FORMAT = Format("mic", "mind", read, write)
