"""Which hints name which values of a block, so that an edit drops those that it makes untrue, and says so."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.ir import Function, Hint, Region, Value


class HintTable:
    """The hints of `block`, if it is a function, by the values that they name. A hint that is dropped is reported: a warning
    where it is required, else a note."""

    def __init__(self, block: Region, diagnostics: Diagnostics | None) -> None:
        self.hints = block.hints if isinstance(block, Function) else []
        self.diagnostics = diagnostics
        self.naming: defaultdict[Value, list[Hint]] = defaultdict(list)  # empty when there are no hints
        for hint in self.hints:
            for v in _named_by(hint):
                self.naming[v].append(hint)

    def all(self) -> list[Hint]:
        """The hints that stand now."""
        return list(self.hints)

    def drop_naming(self, values: Iterable[Value], why: str) -> None:
        """Drop the hints that name any of `values`."""
        for v in values:
            for hint in list(self.naming.get(v, ())):
                self.drop(hint, v, why)

    def drop(self, hint: Hint, v: Value, why: str) -> None:
        """Drop `hint`, because `v`, which it names, is what `why` says."""
        self.hints.remove(hint)
        for named in _named_by(hint):
            self.naming[named].remove(hint)
        if self.diagnostics is not None:
            report = self.diagnostics.warning if hint.policy == "Required" else self.diagnostics.note
            report("HintDropped", f"hint {hint.id} is dropped: %{v.name} {why}", hint.loc)


def _named_by(hint: Hint) -> dict[Value, None]:
    inner = (v for op in hint.body for v in (*op.values(), *op.results))
    return dict.fromkeys((*hint.inputs, *hint.exports, *inner))
