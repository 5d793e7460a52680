"""An index of annotations by the values that they name, so that an edit can drop and report those that it invalidates."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.ir import Annotation, Function, Region, Value


class Annotations:
    """The annotations of `block`, if it is a function, by the values that they name. Dropped ones are reported."""

    def __init__(self, block: Region, diagnostics: Diagnostics | None) -> None:
        self.listed = block.annotations if isinstance(block, Function) else []
        self.diagnostics = diagnostics
        self.naming: defaultdict[Value, list[Annotation]] = defaultdict(list)  # empty when there are none
        for a in self.listed:
            for v in _named_by(a):
                self.naming[v].append(a)

    def all(self) -> list[Annotation]:
        """The current annotations."""
        return list(self.listed)

    def drop_naming(self, values: Iterable[Value], why: str) -> None:
        """Drop the annotations that name any of `values`."""
        for v in values:
            for a in list(self.naming.get(v, ())):
                self.drop(a, v, why)

    def drop(self, annotation: Annotation, v: Value, why: str) -> None:
        """Drop `annotation` because of `v`, a value that it names; `why` is the reason."""
        self.listed.remove(annotation)
        for named in _named_by(annotation):
            self.naming[named].remove(annotation)
        if self.diagnostics is not None:
            self.diagnostics.dropped(annotation, f"%{v.name} {why}")


def _named_by(annotation: Annotation) -> dict[Value, None]:
    inner = (v for op in annotation.body for v in (*op.values(), *op.results))
    return dict.fromkeys((*annotation.inputs, *annotation.exports, *inner))
