"""Builds PTIR: what the conversions from MIND and from Tiny share."""

from __future__ import annotations

from collections.abc import Sequence

from ptir_tools.convert.emitter import Emit, Rule
from ptir_tools.convert.naming import in_ptir
from ptir_tools.core.dialect import Program
from ptir_tools.core.dtypes import DType
from ptir_tools.core.ir import Op, Operand, Region, Value, result_names
from ptir_tools.core.types import Shape
from ptir_tools.dialects.tiny.immediates import immediate


class PtirEmit(Emit[Value]):
    """Builds a PTIR function. A value of the source becomes a value of PTIR."""

    dialect, title = "ptir", "PTIR"

    def spelled(self, name: str) -> str:
        """`name` with `_` for what PTIR cannot spell."""
        return in_ptir(name)

    def parameter(self, p: Value, label: str) -> Value:
        """A parameter under its label."""
        return self.builder.param(p.type, in_ptir(label))

    def needed(self, block: Region) -> list[Op]:
        """All ops, since an error of one that no result needs is one."""
        return block.body

    def run(self) -> Program | None:
        """The program; None after reporting what cannot be said. Names that PTIR cannot spell are kept as labels."""
        before, main = self.diagnostics.errors, self.program.main
        self.parameters()
        self.body(self.source)
        if self.diagnostics.errors > before:
            return None
        self.builder.results(*(self.values[x] for x in self.source.results if isinstance(x, Value)))  # type: ignore[arg-type]
        labels = self.labels()
        main.attrs["input_locs"] = self.source.attrs.get("input_locs", {})
        if labels != [p.name for p in main.params]:
            main.attrs["input_names"] = labels
        if (names := result_names(self.source)) != result_names(main):
            main.attrs["output_names"] = names
        return self.program

    def labels(self) -> Sequence[str]:
        """The external names of the parameters."""
        return self.source.attrs.get("input_names") or [p.name for p in self.source.params]

    def full(self, x: Operand, shape: Shape | None = None) -> Value:
        """`x` in `shape` (None: that of the result): what has another is broadcast."""
        wanted = self.shape if shape is None else shape
        if isinstance(x, Value) and x.type.shape == wanted:  # type: ignore[attr-defined]
            return x
        return self("broadcast_to", x, result_shape=wanted)

    def filled(self, value: float, dtype: DType | None = None) -> Value:
        """A tensor in the shape of the result whose elements are all `value`, in its dtype or another."""
        return self.full(immediate(value, dtype or self.type.dtype))

    def stepped(self, x: Operand, starts: Sequence[int], counts: Sequence[int], steps: Sequence[int]) -> Value:
        """Of each axis `counts` elements, every `steps`-th one: the window is padded so that each step is a row, of which the
        first column is kept."""
        steps = [s if n > 1 else 1 for n, s in zip(counts, steps, strict=True)]
        sizes = tuple((n - 1) * s + 1 if n else 0 for n, s in zip(counts, steps, strict=True))
        if all(s == 1 for s in steps):
            return self.last("slice", x, starts=starts, sizes=sizes)
        zeros = (0,) * len(counts)
        window = self("slice", x, starts=starts, sizes=sizes)
        padded = self("pad", window, low=zeros, high=tuple(s - 1 if n else 0 for n, s in zip(counts, steps, strict=True)))
        rows = self("reshape", padded, new_shape=tuple(d for row in zip(counts, steps, strict=True) for d in row))
        firsts = self("slice", rows, starts=zeros * 2, sizes=tuple(d for n in counts for d in (n, 1)))
        return self.last("reshape", firsts, new_shape=tuple(counts))


def same(short: str) -> Rule:
    """One instruction on the same operands, broadcast to the result's shape."""
    return lambda emit, op, *operands: emit.last(short, *map(emit.full, operands))
