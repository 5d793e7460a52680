"""A MIND module in the making: what the rules and patterns of `ptir_mind` build with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ptir_tools.convert.naming import Names, spelled
from ptir_tools.convert.ptir_to_mind.patterns import PATTERNS, Match
from ptir_tools.core.arrays import numpy_dtype, pack
from ptir_tools.core.builder import single_function
from ptir_tools.core.diagnostics import Diagnostics, Violation, require
from ptir_tools.core.dialect import Options
from ptir_tools.core.ir import Element, Literal, Op, Operand, Program, Value
from ptir_tools.core.limits import Limits
from ptir_tools.core.types import TensorType, Type, tensor
from ptir_tools.dialects import load_dialect
from ptir_tools.dialects.mind.text.attributes import SCALARS
from ptir_tools.dialects.mind.types import NAMES

NOT_TRANSLATABLE = "NotTranslatable"

_SCALAR_OPCODES = {dtype: opcode for opcode, dtype in SCALARS.items()}
_NO_CONTROL_FLOW = "Core v1 has no control flow"
_LOSSY = "--lossy translates it, within rounding and but for NaN and range"

# Why an op cannot be translated, where more can be said than that MIND has nothing like it.
HELP = {
    "layer_norm": "`ptir opt -p decompose` makes it smaller ops, and --lossy translates their rsqrt",
    "tanh": "of the functions of floats, Core v1 has Exp, Log and Relu",
    "erf": "of the functions of floats, Core v1 has Exp, Log and Relu",
    "concat": "Core v1 makes no tensor larger but by broadcasting",
    "pad": "Core v1 makes no tensor larger but by broadcasting",
    "gather": "Gather of Core v1 indexes the first axis alone, as take does",
    "cond": _NO_CONTROL_FLOW,
    "while": _NO_CONTROL_FLOW,
    "scan": _NO_CONTROL_FLOW,
    "maximum": "--lossy translates `maximum(x, 0)` to Relu, which gives 0 for a NaN",
    "abs": _LOSSY,
    "reciprocal": _LOSSY,
    "rsqrt": _LOSSY,
    "div": "by a constant power of two it is a product; --lossy takes the reciprocal of any constant; by a count, a Mean",
    "extract_patches": "with a dot_general by a constant or reshaped filter it is a Conv2d",
}

Rule = Callable[..., Value | None]  # of an Emit, the operands, and the attributes by name


class Translation:
    """A MIND module in the making. `values` holds what PTIR values became (None: in error), `narrow` broadcasts not yet made."""

    def __init__(self, program: Program, rules: Mapping[str, Rule], diagnostics: Diagnostics, options: Options) -> None:
        self.function = program.main
        self.rules = rules
        self.diagnostics = diagnostics
        self.options = options
        self.program, self.builder = single_function(load_dialect("mind"))
        self.program.main.loc = self.function.loc
        self.values: dict[Value, Value | None] = {}
        self.narrow: dict[Value, Value] = {}
        self.fresh = Names(
            spelled(v.name) for v in (*self.function.params, *(v for op in self.function.body for v in op.results))
        )

    def refuse(self, message: str, loc: int, help: str | None = None) -> None:
        """Report what cannot be translated."""
        self.diagnostics.error(NOT_TRANSLATABLE, message, loc, help=help)

    def parameters(self) -> None:
        """An Input for each parameter, under its name."""
        names = self.function.attrs.get("input_names") or [p.name for p in self.function.params]
        places = self.function.attrs.get("input_locs", {})
        for p, name in zip(self.function.params, names, strict=True):
            reason = unfit(p.type) or ("an extent is 0" if 0 in p.type.shape else "")  # type: ignore[attr-defined]
            made = self.builder.param(p.type, spelled(p.name))
            self.values[p] = None if reason else made
            if reason:
                self.refuse(f"parameter %{p.name}: {reason}", places.get(name, self.function.loc))
        self.program.main.attrs["input_names"] = list(names)

    def body(self) -> None:
        """Plan from the last op to the first, so that what no result needs or a pattern absorbs is not asked for; then build
        in order."""
        wanted = _named(self.function.results)
        planned: dict[Op, Match | None] = {}
        for op in reversed(self.function.body):
            if not any(v in wanted for v in op.results):
                continue
            planned[op] = match = next((m for p in PATTERNS.get(op.defn.short, ()) if (m := p(op, self.options))), None)
            wanted |= _named(match.needs if match else op.operands)
        for op in self.function.body:
            if op in planned:
                self.op(op, planned[op])

    def op(self, op: Op, match: Match | None) -> None:
        """Translate one op, unless an operand is in error or the op has no counterpart."""
        self.builder.loc = op.loc
        emit = Emit(self, op)
        needs = match.needs if match else op.operands
        for v in op.results:
            self.values[v] = None
        short = op.defn.short
        if match is None and short not in self.rules:
            self.refuse(f"MIND has no `{short}`", op.loc, HELP.get(short))
        elif any(v not in self.narrow and self.values.get(v) is None for v in _named(needs)):
            return  # in error already
        elif reason := unfit(op.result.type):
            self.refuse(f"`{short}`: {reason}", op.loc)
        else:
            self.build(emit, op, match)

    def build(self, emit: Emit, op: Op, match: Match | None) -> None:
        """Run the rule of an op, or the pattern that matched; a constraint of MIND that it breaks is a refusal."""
        try:
            if match is None:
                self.values[op.result] = self.rules[op.defn.short](emit, *op.operands, **op.defn.named(op.attrs))
                return
            if match.note:
                self.diagnostics.note("ConditionalTranslation", match.note, op.loc)
            self.values[op.result] = match.build(emit)
        except Violation as violation:
            self.refuse(f"`{op.defn.short}`: {violation.message}", op.loc, violation.help)

    def results(self) -> Program:
        """The module, its outputs set when all of them are there."""
        results = self.function.results
        if not results:
            self.refuse("a MIND module has an output", self.function.loc)
        if all(map(self.known, results)):
            try:
                self.builder.results(*map(self.named, results))
            except Violation as violation:
                self.refuse(f"a result: {violation.message}", self.function.loc, violation.help)
        return self.program

    def named(self, x: Operand) -> Value:
        """A result under its name: where an op left none, it is a Reshape to the same shape."""
        v = Emit(self, None).value(x)
        shape = v.type.static_shape  # type: ignore[attr-defined]
        if not isinstance(x, Value) or v.name == spelled(x.name) or 0 in shape:
            return v
        self.values[x] = made = self.builder.op("Reshape", v, new_shape=shape, name=spelled(x.name))
        return made

    def known(self, x: Operand) -> bool:
        """Whether an operand was translated."""
        return isinstance(x, Literal) or (isinstance(x, Value) and (x in self.narrow or self.values.get(x) is not None))


def _named(operands: Sequence[Operand]) -> set[Value]:
    return {x.value if isinstance(x, Element) else x for x in operands if not isinstance(x, Literal)}


def unfit(t: Type) -> str | None:
    """Why MIND has no such type; None when it has."""
    if not isinstance(t, TensorType):
        return "MIND has no tuples"
    if t.dtype not in NAMES:
        return f"MIND has no {t.dtype}; it has f32, f64, si32, si64"
    return None if t.is_static else f"{t} has symbolic extents; give them with --bind"


class Emit:
    """Builds what one op becomes. `last` makes its final instruction, which takes its name."""

    def __init__(self, translation: Translation, op: Op | None) -> None:
        self.to = translation
        self.result = op.result if op else None
        self.name = spelled(op.result.name) if op else "output"

    @property
    def type(self) -> TensorType:
        """The type of the result."""
        t: Any = self.result.type if self.result else None
        return tensor(t.dtype, t.shape)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the result."""
        return self.type.static_shape

    @property
    def limits(self) -> Limits:
        """What may be asked of the tool."""
        return self.to.options.limits

    def __call__(self, opcode: str, *operands: Value, **attrs: Any) -> Value:
        """An instruction before the last."""
        return self.to.builder.op(opcode, *operands, name=self.to.fresh.between(self.name), **attrs)

    def last(self, opcode: str, *operands: Value, **attrs: Any) -> Value:
        """The instruction that gives the result."""
        return self.to.builder.op(opcode, *operands, name=self.name, **attrs)

    def note(self, x: Value | None, message: str) -> None:
        """Say at the op that defines `x` under which condition it was translated."""
        loc = x.op.loc if x is not None and x.op is not None else self.to.function.loc
        self.to.diagnostics.note("ConditionalTranslation", message, loc)

    def value(self, x: Operand) -> Value:
        """What an operand became, in its own shape: a broadcast is made now."""
        if isinstance(x, Literal):
            return self.constant(x)
        assert isinstance(x, Value)
        if (found := self.to.values.get(x)) is not None:
            return found
        ones = self.constant(filled(x.type, 1))  # type: ignore[arg-type]
        self.note(x, "the broadcast becomes a product with ones")
        made = self.to.builder.op("Mul", self.to.narrow[x], ones, name=spelled(x.name))
        self.to.values[x] = made
        return made

    def slim(self, x: Operand) -> Value:
        """What an operand became, not broadcast: for operations that broadcast by themselves."""
        if isinstance(x, Literal):
            return self.constant(Literal(tensor(x.type.dtype), x.data) if x.splat else x)
        assert isinstance(x, Value)
        return self.to.narrow[x] if x in self.to.narrow else self.value(x)

    def constant(self, literal: Literal, *, last: bool = False) -> Value:
        """A constant: of its own opcode where it is a scalar of i64, f32 or f64."""
        require(literal.data is not None, NOT_TRANSLATABLE, "the payload of the constant is not in the file")
        opcode = "ConstTensor" if literal.type.shape else _SCALAR_OPCODES.get(literal.type.dtype, "ConstTensor")
        return (self.last if last else self)(opcode, value=literal)


def filled(t: TensorType, value: int) -> Literal:
    """A literal of type `t` whose elements are all `value`."""
    return Literal(t, pack(numpy_dtype(t.dtype).type(value), t.dtype), splat=True)
