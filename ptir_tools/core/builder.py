"""A builder of programs: appends ops and infers result types."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from ptir_tools.core.declare import OPS
from ptir_tools.core.dialect import Dialect, Program
from ptir_tools.core.ir import Argument, Attribute, Function, Operand, Region, Value, create, operand_type
from ptir_tools.core.source import Loc
from ptir_tools.core.types import UNTYPED, Type


class Builder:
    """Appends ops of one dialect to a block. Names are made unique: `x` becomes `x_1` if it exists. `spelled` converts
    requested names to the letters that the dialect allows."""

    def __init__(self, dialect: Dialect, block: Region, spelled: Callable[[str], str] = str) -> None:
        dialect.declare()
        self.dialect = dialect
        self.block = block
        self.loc: Loc = 0  # the location of the ops that follow
        self._taken = {v.name for v in block.params}
        self._taken.update(v.name for op in block.body for v in op.results)
        self._next = 0
        self._spelled = spelled

    def name(self, wish: str = "") -> str:
        """An unused name: `wish`, or `wish_1`, `wish_2`, … if it exists; `vN` if no name is requested."""
        wish = self._spelled(wish)
        name, n = wish or f"v{self._next}", 0
        while name in self._taken:
            n += 1
            name = f"{wish}_{n}" if wish else f"v{self._next + n}"
        if not wish:
            self._next += n + 1
        self._taken.add(name)
        return name

    def param(self, t: Type, name: str = "") -> Value:
        """A new parameter of the block."""
        v = Value(t, self.name(name))
        self.block.params.append(v)
        return v

    def op(
        self,
        short: str,
        *groups: Argument,
        name: str = "",
        regions: Sequence[Region] = (),
        types: Sequence[Type] | None = None,
        **attrs: Attribute,
    ) -> Value:
        """Append the op and return its (first) result. Raises Violation when it is not well typed."""
        defn = OPS[f"{self.dialect.name}.{short}"]
        new = create(defn, groups, attrs, regions=regions, types=types, loc=self.loc)
        for v in new.results:
            v.name = self.name(name)
        self.block.body.append(new)
        return new.results[0] if new.results else Value(UNTYPED, "", new)

    @contextmanager
    def inside(self, block: Region) -> Iterator[None]:
        """Append to another block, until the end or an exception."""
        outer, self.block = self.block, block
        try:
            yield
        finally:
            self.block = outer

    def results(self, *values: Operand) -> None:
        """Set what the block returns, and declare those types."""
        self.block.results = list(values)
        self.block.result_types = [operand_type(x) for x in values]


def single_function(dialect: Dialect, name: str = "main") -> tuple[Program, Builder]:
    """An empty program with one entry function, and a builder at its end."""
    function = Function(name)
    return Program(dialect, [function], entry=name), Builder(dialect, function)
