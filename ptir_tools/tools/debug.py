"""--check-nan: the op that computes the first NaN or infinity, and those in inputs and constants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ptir_tools.core import arrays
from ptir_tools.core.arrays import Array
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Program
from ptir_tools.core.ir import WRITES, Element, Literal, Op, Operand, Value, operand_type
from ptir_tools.core.lazy import np
from ptir_tools.core.types import flatten, is_memory, nest
from ptir_tools.core.violations import Violation
from ptir_tools.engines.signature import entry, signature


class NonFinite:
    """Gets the inputs and every op that ran; an error goes to `diagnostics` and is raised as Rejected.

    An op is reported if its result is the first with a NaN, or if its result has an infinity and no operand does. A NaN in an
    input or a constant is an error, too. An infinity there is not, because masks begin with infinities.
    """

    def __init__(self, program: Program, function: str | None, diagnostics: Diagnostics) -> None:
        self.diagnostics = diagnostics
        self.ports = signature(program, function)
        self.params = entry(program, function).params
        self.infinite: set[Value] = set()  # values with an infinity when last computed
        self.origins = _origins(program)

    def given(self, inputs: Mapping[str, Array]) -> None:
        """Check the inputs, by name; an infinity is a warning."""
        held = []
        for p in self.ports:
            nan, infinity = _holds(inputs.get(p.name))
            came = f"was in the input `{p.name}`; no op made it"
            if nan:
                self.diagnostics.violation(Violation("NonFinite", f"a NaN {came}", at=f"%{p.name}:", loc=p.loc), None)
            elif infinity:
                self.diagnostics.warning("NonFinite", f"an infinity {came}", p.loc)
            held.append(infinity)
        self.diagnostics.raise_if_errors()
        leaves = iter(held)
        self.infinite.update(p for p in self.params if any(flatten(nest(p.type, leaves))))

    def ran(self, op: Op, results: Sequence[object]) -> None:
        """Check the results of `op`."""
        for v, data in zip(op.results, results, strict=False):
            nan, infinity = _holds(data)
            if nan:
                self._stop(op, v, "a NaN", constant=any(_holds(x)[0] for x in _constants(op)))
            if infinity and not any(map(self._infinite, op.values())) and not any(_holds(x)[1] for x in _constants(op)):
                self._stop(op, v, "an infinity")
            (self.infinite.add if infinity else self.infinite.discard)(v)
        if WRITES in op.defn.traits and any(map(self._infinite, op.operands)):
            self.infinite.update(x for x in op.values() if is_memory(operand_type(x)))

    def _stop(self, op: Op, v: Value, what: str, constant: bool = False) -> None:
        if constant:
            message = f"%{v.name} holds {what} of a constant; no op made it"
        else:
            message = f"%{v.name} holds {what}, which `{op.defn.short}` made"
        read = dict.fromkeys(f"%{x.name}" for x in op.values() if self._infinite(x))
        notes = [f"{name}, which it reads, holds an infinity" for name in read]
        self.diagnostics.error("NonFinite", message, op.loc, notes=notes)
        self.diagnostics.raise_if_errors()

    def _infinite(self, x: Operand, seen: frozenset[Value] = frozenset()) -> bool:
        """Whether `x` may have an infinity. A parameter may when one of its operands may."""
        if isinstance(x, Literal):
            return _holds(arrays.from_literal(x))[1]
        v = x.value if isinstance(x, Element) else x
        if v in self.infinite:
            return True
        if v.op is not None or v in seen:
            return False
        if v not in self.origins:  # the value belongs to another program than the one that was read
            return bool(self.infinite)
        return any(self._infinite(y, seen | {v}) for y in self.origins[v])


def _origins(program: Program) -> dict[Value, list[Operand]]:
    """The sources of each parameter: of a region, its op's last operands, and the results of the op's regions at its position."""
    sources: dict[Value, list[Operand]] = {p: [] for f in program.functions for p in f.params}
    for op in (op for block in program.blocks() for op in block.body):
        for region in op.regions:
            first = len(op.operands) - len(region.params)
            for k, p in enumerate(region.params):
                origins = sources.setdefault(p, [])
                origins += op.operands[first + k : first + k + 1] if first + k >= 0 else ()
                origins += [r.results[k] for r in op.regions if k < len(r.results)]
    return sources


def _constants(op: Op) -> list[Array]:
    """The constants in the op itself: inline operands, and attributes that are values."""
    written = [arrays.from_literal(x) for x in (*op.operands, *op.attrs) if isinstance(x, Literal)]
    return written + [np.asarray(x) for x in op.attrs if isinstance(x, float)]


def _holds(data: object) -> tuple[bool, bool]:
    """Whether there is a NaN, and whether an infinity, in an array, or in a tuple of them."""
    if isinstance(data, tuple):
        pairs = [_holds(x) for x in data]
        return any(nan for nan, _ in pairs), any(infinity for _, infinity in pairs)
    if not hasattr(data, "dtype"):
        return False, False
    wide = arrays.widen(np.asarray(data))
    if wide.dtype.kind not in "fc" or bool(np.isfinite(wide).all()):
        return False, False
    return bool(np.isnan(wide).any()), bool(np.isinf(wide).any())
