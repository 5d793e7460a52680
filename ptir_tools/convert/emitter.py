"""The emitter that all conversions share.

A conversion is an `Emit` of its target and a table of rules, one per op of the source:

    rule(emit, op, *operands) -> what the result of `op` becomes

`operands` are the converted operands of `op`. A rule appends ops by calling `emit`, and the last one by `emit.last`, which names
the result. A Violation in a rule refuses that op. The conversion goes on, so that all refusals are reported at once; ops that
read a refused value are not reported.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ptir_tools.convert.legality import NOT_TRANSLATABLE as NOT_TRANSLATABLE
from ptir_tools.convert.naming import Names
from ptir_tools.core.builder import single_function
from ptir_tools.core.definers import Definers, reached
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Options
from ptir_tools.core.ir import (
    Argument,
    Attribute,
    Element,
    Function,
    Literal,
    Op,
    Operand,
    Region,
    Value,
    result_names,
)
from ptir_tools.core.records import dataclass
from ptir_tools.core.source import Loc
from ptir_tools.core.typed import Any, ClassVar, Generic, TypeVar, cast
from ptir_tools.core.types import Shape, TensorType, Type
from ptir_tools.core.violations import Violation
from ptir_tools.dialects import load_dialect
from ptir_tools.rewrite.expression import Sink
from ptir_tools.rewrite.vocabulary import tensor_type

D = TypeVar("D")  # a converted value
Rule = Callable[..., Any]  # converts an op of the source


@dataclass(slots=True)
class Match:
    """A match of a pattern: `rule` makes the result from the converted `needs`; `note` is the condition to report."""

    needs: tuple[Operand, ...]
    rule: Rule
    note: str = ""


Pattern = Callable[[Op, Options], Match | None]  # reads definitions only; an absorbed op stays where it has other uses


class InError(Exception):
    """An operand was refused before, so the op that reads it is not reported."""


class Emit(Sink, Generic[D]):
    """Builds a program of the target. `values` maps source values to converted ones (None: refused)."""

    dialect: ClassVar[str]  # of the target
    title: ClassVar[str]  # its name in messages
    origin: ClassVar[str] = ""  # the source's dialect, if the target computes symbols alike: ops that define symbols are kept
    help: ClassVar[Mapping[str, str]] = {}  # help texts, by short names of the source's ops

    def __init__(
        self,
        rules: Mapping[str, Rule],
        function: Function,
        diagnostics: Diagnostics,
        options: Options,
        *,
        patterns: Mapping[str, Sequence[Pattern]] | None = None,
        name: str = "main",
    ) -> None:
        self.rules = rules
        self.patterns = patterns or {}  # matches of several source ops that become one op, by the last of them
        self.source = function
        self.diagnostics = diagnostics
        self.options = options
        self.program, self.builder = single_function(load_dialect(self.dialect), name)
        self.program.main.loc = function.loc
        self.values: dict[Value, D | None] = {}
        self.refused: set[object] = set()  # the ops or other locations that were reported
        self.matches: dict[Op, Match | None] = {}
        self.respelled = self._result_names()
        self.fresh = Names(self.name_of(v) for block in reached([function]) for v in block.values())
        self._tell_apart()
        self.op: Op | None = None  # the current op
        self.place: Loc = function.loc  # of the current parameter

    # Names

    def spelled(self, name: str) -> str:
        """`name` spelled for the target."""
        return name

    def name_of(self, v: Value) -> str:
        """The name of `v` in the target."""
        return self.respelled.get(v) or self.spelled(v.name)

    def _tell_apart(self) -> None:
        """A new name for each value that the target would spell like an earlier one."""
        used = set[str]()
        for v in self.source.values():
            if (name := self.name_of(v)) in used:
                self.respelled[v] = self.fresh.between(name)
            used.add(name)

    def _result_names(self) -> dict[Value, str]:
        """The results whose names differ from their values' names, once each, if no other value has the name."""
        labels: dict[Value, str] = {}
        own = {self.spelled(v.name) for v in self.source.values()}
        for x, name in zip(self.source.results, result_names(self.source), strict=True):
            fits = isinstance(x, Value) and x.op is not None and self.source.results.count(x) == 1
            if fits and (label := self.spelled(name)) not in own:
                assert isinstance(x, Value)
                labels[x] = label
                own.add(label)
        return labels

    @property
    def name(self) -> str:
        """The name of the current op's result."""
        return self.name_of(self.op.result) if self.op is not None else "output"

    # The op at hand

    @property
    def type(self) -> TensorType:
        """The type of the current op's result."""
        assert self.op is not None
        return tensor_type(self.op.result)

    @property
    def shape(self) -> Shape:
        """The shape of that result."""
        return self.type.shape

    @property
    def loc(self) -> Loc:
        """The location of the current op, else that of the current parameter or of the function."""
        return self.place if self.op is None else self.op.loc

    def note(self, message: str, loc: Loc | None = None) -> None:
        """Report the condition under which the current op (or that at `loc`) was translated."""
        self.diagnostics.note("ConditionalTranslation", message, self.loc if loc is None else loc)

    # Building

    def __call__(self, short: str, *operands: Argument, **attrs: Attribute) -> Value:
        """Append an op that is not the last, under a new name."""
        return self.builder.op(short, *operands, name=self.fresh.between(self.name), **attrs)

    def last(self, short: str, *operands: Argument, **attrs: Attribute) -> Value:
        """The op that gives the result, under its name."""
        return self.builder.op(short, *operands, name=self.name, **attrs)

    # Converting

    def parameters(self) -> None:
        """The converted parameters, by label."""
        labels = self.source.attrs.get("input_names") or [p.name for p in self.source.params]
        places = self.source.attrs.get("input_locs", {})
        for p, label in zip(self.source.params, labels, strict=True):
            self.place = places.get(label, self.source.loc)
            try:
                self.values[p] = self.parameter(p, label)
            except Violation as violation:
                message = f"parameter %{p.name}: {violation.message}"
                self.diagnostics.error(NOT_TRANSLATABLE, message, self.place, help=violation.help)
                self.values[p] = None
        self.place = self.source.loc

    def parameter(self, p: Value, label: str) -> D:
        """The translation of a parameter. Raises Violation if the target has no such type."""
        raise NotImplementedError

    def body(self, block: Region) -> None:
        """Convert the live ops of a block, in order."""
        for op in self.needed(block):
            self.values[op.results[0]] = self.convert(op)

    def needed(self, block: Region) -> list[Op]:
        """The live ops in order, and those that define their symbols. Patterns are matched from the last op to the first, so that
        ops that only a pattern absorbs are left out."""
        wanted, ops = _values_of(block.results), list[Op]()
        definers = Definers.of(block, load_dialect(self.origin)) if self.origin else None
        for op in reversed(block.body):
            if any(v in wanted for v in op.results) or (definers is not None and definers.needed(op)):
                patterns = self.patterns.get(op.defn.short, ())
                self.matches[op] = match = next((m for p in patterns if (m := p(op, self.options))), None)
                wanted |= _values_of(match.needs if match else op.operands)
                ops.append(op)
            elif definers is not None:
                definers.remove(op)
        return ops[::-1]

    def convert(self, op: Op) -> D | None:
        """The translation of the result of `op` by its rule; None if it is refused, or reads a refused value. Regions may be
        nested in it."""
        outer, self.op = self.op, op
        self.builder.loc = op.loc
        try:
            return self.translated(op)
        except InError:
            return None
        except Violation as violation:
            self.refuse(violation)
            return None
        finally:
            self.op = outer
            self.builder.loc = self.loc

    def translated(self, op: Op) -> D:
        """The translation of the result of `op`. Raises Violation, or InError if an operand is in error."""
        rule = self.rule(op)
        operands = self.operands(op)
        for v in op.results:
            self.require_fit(v.type)
        result: D = rule(self, op, *operands)
        return result

    def rule(self, op: Op) -> Rule:
        """The rule of the pattern that `op` matches, else that for ops of its name. Raises Violation when there is none."""
        if (match := self.matches.get(op)) is not None:
            return match.rule
        if (rule := self.rules.get(op.defn.short)) is None:
            raise Violation(NOT_TRANSLATABLE, f"{self.title} has no `{op.defn.short}`")
        return rule

    def operands(self, op: Op) -> Sequence[D | None]:
        """The converted operands, or those of the pattern. Raises InError."""
        match = self.matches.get(op)
        read = [self.read(x) for x in (op.operands if match is None else match.needs)]
        if match is not None and match.note:
            self.note(match.note)
        return read

    def require_fit(self, t: Type) -> None:
        """Raise Violation unless the target has a value of type `t`."""

    def read(self, x: Operand) -> D:
        """The converted operand. Raises InError."""
        if isinstance(x, Literal):
            return self.literal(x)
        entry = self.values.get(x.value if isinstance(x, Element) else x)
        if entry is None:
            raise InError
        return self.element(entry, x.index) if isinstance(x, Element) else entry

    def literal(self, x: Literal) -> D:
        """The converted inline literal."""
        return cast("D", x)

    def element(self, x: D, index: int) -> D:
        """The converted element of a tuple."""
        raise Violation(NOT_TRANSLATABLE, f"{self.title} has no tuples")

    def refuse(self, violation: Violation) -> None:
        """Report why the current op is refused, once even where it is inlined several times."""
        op = self.op
        assert op is not None
        short, at = op.defn.short, violation.loc or op.loc
        if (key := violation.loc or op) in self.refused:
            return
        self.refused.add(key)
        codes = load_dialect(op.defn.name.partition(".")[0]).codes
        if violation.code in (
            codes.unbound,
            *codes.run_time.values(),
        ):  # an error of the program itself: the target would report it, too
            self.diagnostics.violation(violation, at)
            return
        named = violation.loc or f"`{short}`" in violation.message  # an op at another location has another name
        message = violation.message if named else f"`{short}`: {violation.message}"
        self.diagnostics.error(NOT_TRANSLATABLE, message, at, help=violation.help or self.help.get(short))

    def refuse_results(self, violation: Violation) -> None:
        """Report why the results cannot be those of the target's program."""
        at = violation.loc or self.source.return_loc or self.source.loc
        if (key := violation.loc or self.source) not in self.refused:
            self.refused.add(key)
            self.diagnostics.error(NOT_TRANSLATABLE, f"a result: {violation.message}", at, help=violation.help)


def _values_of(operands: Sequence[Operand]) -> set[Value]:
    return {x.value if isinstance(x, Element) else x for x in operands if not isinstance(x, Literal)}
