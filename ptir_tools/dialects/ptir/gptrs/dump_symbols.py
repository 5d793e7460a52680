"""Where symbols end in gpt.rs's dump: `?axx2` is `?ax` and 2, or the symbol `axx2`.

A payload spells the symbols of its shape one by one. The same text means the same symbols in the whole program. Where no payload
spells a text, its division is a guess.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Program
from ptir_tools.core.ir import Op, Value
from ptir_tools.core.lazy import regex
from ptir_tools.core.limits import integer
from ptir_tools.core.types import Dim, Shape, Sym, TensorType, TupleType, Type, leaves, sym, tensor, tuple_of
from ptir_tools.dialects.ptir.gptrs.dump_writer import shape_text, type_text
from ptir_tools.dialects.ptir.gptrs.forms import Malformed

_ENDED = regex(r"x[0-9?]|$")
_DIM = regex(r"(?:([0-9]+)|\?(.+?))(?=x[0-9?]|$)")


def read_dims(text: str, names: Collection[str] = ()) -> list[Dim]:
    """Extents as the dump prints them: `2x?Nx4`, `[]`. A symbol is the longest of `names` that can be there, else it ends
    at the first x that a digit or `?` follows. Raises Malformed."""
    if text == "[]":
        return []
    dims: list[Dim] = []
    at = 0
    while True:
        m = _DIM.match(text, at)
        if m is None:
            raise Malformed(f"`{text}` is not a shape")
        symbol = _longest(text, at + 1, names) or m[2] if m[2] else None
        dims.append(sym(symbol) if symbol else integer(m[1]))
        at = at + 1 + len(symbol) if symbol else m.end()
        if at == len(text):
            return dims
        at += 1


def _longest(text: str, at: int, names: Collection[str]) -> str | None:
    """The longest of `names` that is in `text` at `at` and may end there."""
    return max((n for n in names if text.startswith(n, at) and _ENDED.match(text, at + len(n))), key=len, default=None)


def settle(program: Program, diagnostics: Diagnostics) -> None:
    """Give every type of a program read from a dump the symbols as the payloads spell them. Warn (AmbiguousSymbol) if the result
    of an op keeps a symbol whose name may end at another place."""
    spelling = _Spelling(op for block in program.blocks() for op in block.body)
    for block in program.blocks():
        for p in block.params:
            p.type = spelling.settled(p.type)
        for op in block.body:
            for v in op.results:
                v.type = spelling.result(op, v.type)
                if (unsure := spelling.unsure(v.type)) is not None:
                    message = f"the symbol in {type_text(v.type)} is taken for {unsure}; the dump does not tell where it ends"
                    diagnostics.warning("AmbiguousSymbol", message, op.loc)
        for i, x in enumerate(block.results[: len(block.result_types)]):
            same = isinstance(x, Value) and type_text(x.type) == type_text(block.result_types[i])
            block.result_types[i] = x.type if isinstance(x, Value) and same else spelling.settled(block.result_types[i])


class _Spelling:
    """What the payloads of `ops` spell: `names` of symbols, and the shapes behind texts."""

    def __init__(self, ops: Iterable[Op]) -> None:
        self.names: set[str] = set()
        self.shapes: dict[str, Shape] = {}
        self.types: dict[Type, Type] = {}
        for op in ops:
            for shape in _shapes(op):
                self.names.update(d.name for d in shape if isinstance(d, Sym))
                if (t := _agreed(op.results[0].type, shape)) is not None:
                    self.shapes.setdefault(shape_text(t), shape)

    def result(self, op: Op, t: Type) -> Type:
        """The type of the result of `op`, declared as `t`: as its own payload spells it, else as others do."""
        said = (_agreed(t, shape) for shape in _shapes(op))
        return next((s for s in said if s is not None), None) or self.settled(t)

    def settled(self, t: Type) -> Type:
        """The type that was printed as `t` was."""
        found = self.types.get(t)
        if found is None:
            found = self.types[t] = self._settled(t)
        return found

    def _settled(self, t: Type) -> Type:
        if isinstance(t, TupleType):
            return tuple_of(map(self.settled, t.elements))
        if not isinstance(t, TensorType) or t.is_static:
            return t
        text = shape_text(t)
        return t.with_shape(self.shapes[text] if text in self.shapes else read_dims(text, self.names))

    def unsure(self, t: Type) -> Sym | None:
        """A symbol of `t` that is a guess: no payload spells it, and an x is in it."""
        dims = (d for leaf in leaves(t) if isinstance(leaf, TensorType) and not leaf.is_static for d in leaf.shape)
        return next((d for d in dims if isinstance(d, Sym) and "x" in d.name and d.name not in self.names), None)


def _shapes(op: Op) -> list[Shape]:
    """The attributes of `op` that are shapes with symbols."""
    return [a for a in op.attrs if isinstance(a, tuple) and any(isinstance(d, Sym) for d in a)]


def _agreed(t: Type, shape: Shape) -> TensorType | None:
    """The type of the dtype of `t` and of `shape`, if that is what is printed like `t`."""
    if not isinstance(t, TensorType):
        return None
    made = tensor(t.dtype, shape)
    return made if shape_text(made) == shape_text(t) else None
