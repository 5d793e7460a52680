"""Debugging of the driver: the expensive checks of each step, and the step log. Specification: PTIR rewrite system, "Verification
and debug"."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ptir_tools.core.ir import Element, Literal, Op, Operand, Region, Value, exact
from ptir_tools.core.typed import Any
from ptir_tools.rewrite.constants import element_of, number
from ptir_tools.rewrite.inspector import Inspector

Record = dict[str, Any]  # a step, as a line of the log has it in JSON
Log = Callable[[Record], None]
Unnamed = dict[Value, int]  # values that are named when the pass ends, numbered in order of appearance


class BrokenPattern(Exception):
    """The pattern `rule` broke a rule of the driver: a fault of the pattern, found by the expensive checks."""

    def __init__(self, message: str, rule: str) -> None:
        super().__init__(message)
        self.rule = rule


class Watch:
    """Checks and logs every step. `checks`: a success changes the block, a failure does not, replaced values have the identical
    type, and no step adds verifier errors. `log` is called with a record per step."""

    def __init__(self, rw: Inspector, checks: bool, log: Log | None) -> None:
        self.rw = rw
        self.checks = checks
        self.log = log
        self.changed: list[Op] = []  # by the step being watched
        self.unnamed: Unnamed = {}
        self.known = set(rw.verify()) if checks else set[str]()  # an index that binding symbols has put out of bounds, for one

    def step(self, name: str, root: Op, action: Callable[[], bool]) -> bool:
        """Run `action`, which returns whether it changed anything. Raises BrokenPattern when it breaks a check."""
        before, text = fingerprint(self.rw) if self.checks else None, op_text(root, self.unnamed)
        self.changed.clear()
        returned = self.returned() if self.log is not None else ""
        try:
            success = action()
        except TypeError as error:
            raise BrokenPattern(f"`{name}`: {error}", name) if self.checks else error from error
        if self.checks and not isinstance(success, bool):
            raise BrokenPattern(f"`{name}` returned {success!r}, not True or False", name)
        if self.checks:
            self._check(name, success, before)
        if success and self.log is not None:
            after = [op_text(op, self.unnamed) for op in dict.fromkeys(self.changed) if self.rw.alive(op)]
            after += [now] if (now := self.returned()) != returned else []
            event = "folded" if name == "fold" else "changed op"
            self.log({"event": event, "pattern": name, "root": text, "before": text, "after": after, "loc": root.loc})
        return success

    def returned(self) -> str:
        """The results of the block as text."""
        return f"return {', '.join(_operand_text(x, self.unnamed) for x in self.rw.block.results)}"

    def swept(self, ops: Iterable[Op]) -> None:
        """Log those of `ops` that are gone because no one used them."""
        if self.log is not None:
            for op in ops:
                if not self.rw.alive(op):
                    self.log(erased(op, self.unnamed))

    def _check(self, name: str, success: bool, before: object) -> None:
        if success is not (fingerprint(self.rw) != before):
            how = "succeeded and changed nothing" if success else "failed and changed the program"
            raise BrokenPattern(f"`{name}` {how}", name)
        if success and (faults := [fault for fault in self.rw.verify() if fault not in self.known]):
            raise BrokenPattern(f"after `{name}`: {faults[0]}", name)


def fingerprint(rw: Inspector) -> tuple[object, ...]:
    """Equal for equal blocks: ops by declaration, exact attributes, operands by position, types; names do not count."""
    numbers: dict[Value, int] = {}

    def key(x: Operand) -> object:
        if isinstance(x, Literal):
            return x.key
        return numbers.setdefault(x, len(numbers)) if isinstance(x, Value) else (key(x.value), x.index)

    def of(block: Region) -> tuple[object, ...]:
        parts: list[object] = [key(p) for p in block.params]
        for op in rw.body(block):
            regions = tuple(id(r) if r.isolated else of(r) for r in op.regions)
            operands, results = tuple(map(key, op.operands)), tuple((key(v), v.type) for v in op.results)
            parts.append((op.defn, exact(op.attrs), operands, results, regions))
        return (*parts, tuple(map(key, block.results)))

    return of(rw.block)


def erased(op: Op, unnamed: Unnamed | None = None) -> dict[str, object]:
    """The record of a dead op that is gone; it belongs to the step before."""
    text = op_text(op, unnamed)
    return {"event": "erased", "pattern": None, "root": text, "before": text, "after": [], "loc": op.loc}


def op_text(op: Op, unnamed: Unnamed | None = None) -> str:
    """The op in one line, for logs: `%y = add(%x, dense<…> : tensor<f32, 4>) -> tensor<f32, 4>`. Numbers are rounded. A value
    that has no name yet is called `%~0`, `%~1` … as `unnamed` has it."""
    unnamed = {} if unnamed is None else unnamed
    attrs = "".join(f" {a.name}[{_attr_text(v)}]" for a, v in zip(op.defn.attrs, op.attrs, strict=True) if v != a.default)
    regions = "".join(f" {name}[^{r.name}]" for name, r in zip(op.defn.regions, op.regions, strict=False) if r.isolated)
    results = ", ".join(_operand_text(v, unnamed) for v in op.results)
    types = ", ".join(str(v.type) for v in op.results)
    operands = ", ".join(_operand_text(x, unnamed) for x in op.operands)
    return f"{results} = {op.defn.short}({operands}){attrs}{regions} -> {types}"


def _operand_text(x: Operand, unnamed: Unnamed) -> str:
    if isinstance(x, Literal):
        return f"{literal_text(x)} : {x.type}"
    if isinstance(x, Element):
        return f"{_operand_text(x.value, unnamed)}[{x.index}]"
    return f"%{x.name}" if x.name else f"%~{unnamed.setdefault(x, len(unnamed))}"


def literal_text(x: Literal) -> str:
    """A constant in short: `dense<2.0>`, or `dense<…>` for one with different elements."""
    data = element_of(x)
    return "dense<…>" if data is None else f"dense<{_attr_text(number(x.type.dtype, data))}>"


def _attr_text(x: object, nested: bool = False) -> str:
    if isinstance(x, Literal):
        return literal_text(x)
    if isinstance(x, tuple):
        items = ", ".join(_attr_text(e, nested=True) for e in x)
        return f"[{items}]" if nested else items
    if isinstance(x, float):
        return repr(float(f"{x:.7g}"))
    return str(x).lower() if isinstance(x, bool) else str(x)
