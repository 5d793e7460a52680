"""The attribute `pto.extents` of a function: the index parameters that give the extents written as `?` in types of others.

`attributes { pto.extents = {x = [M, 64]} }` means that the parameter `%M: index` is the number of rows of
`%x: pto.memref<?x64xf32>`. In a program such an extent is a symbol, so that a run can be given `--bind M=100`. `K = "2*M"` means
that the parameter `%K: index` follows from it. A symbol in such a text need not be a parameter.
"""

from __future__ import annotations

import re

from ptir_tools.core import expressions
from ptir_tools.core.ir import Function, Value
from ptir_tools.core.symbols import DERIVED
from ptir_tools.core.types import UNKNOWN, Dim, sym
from ptir_tools.core.violations import Violation
from ptir_tools.dialects.pto.text import literals
from ptir_tools.dialects.pto.text.syntax import elements_of, value_of
from ptir_tools.dialects.pto.types import INDEX_TYPE, MemRefType
from ptir_tools.grammars.parser import Node, Token

KEY = "pto.extents"
_DIGITS = 19  # more are no 64-bit number
_WORD = re.compile(r"[A-Za-z_][\w$]*(\.[A-Za-z0-9_$]+)*")


def written(function: Function) -> dict[str, str]:
    """The attribute of a function. There is none if no memref has a symbol and no parameter follows from one."""
    found = [(p.name, p.type.shape) for p in function.params if isinstance(p.type, MemRefType) and _named(p.type.shape)]
    texts = ((name, [str(n) if isinstance(n, int) else n.name or "?" for n in shape]) for name, shape in found)
    lists = [f"{_key(name)} = [{', '.join(shape)}]" for name, shape in texts]
    lists += [f'{_key(name)} = "{expressions.of_dim(d)}"' for name, d in function.attrs.get(DERIVED, {}).items()]
    return {KEY: "{" + ", ".join(lists) + "}"} if lists else {}


def _key(name: str) -> str:
    """A name as a key, with quotes if it is not a word."""
    return name if _WORD.fullmatch(name) else f'"{name}"'


def _named(shape: tuple[Dim, ...]) -> bool:
    return any(not isinstance(n, int) and n is not UNKNOWN for n in shape)


def read(function: Function, entry: Node) -> None:
    """Write the symbols of the attribute into the types of the parameters. Raises Violation("ParseError") if it is no such
    list, and "TypeMismatch" if it contradicts a type."""
    value = value_of(entry)
    if value is None:
        return
    listed = [(literals.unquoted(e.token()), e) for e in value.parts("entry")] if isinstance(value, Node) else []
    shapes = [(name, found) for name, e in listed if (found := elements_of(e)) is not None]
    texts = [(name, text) for name, e in listed if isinstance(text := value_of(e), Token) and text[:1] == '"']
    if not isinstance(value, Node) or value.data != "attributes" or len(shapes) + len(texts) < len(listed):
        raise Violation("ParseError", f'{KEY} is {{NAME = [EXTENT, …], NAME = "EXPRESSION", …}}, not {literals.attribute(entry)}')
    params = {p.name: p for p in function.params}
    if texts:
        function.attrs[DERIVED] = {name: _expression(params, name, literals.unquoted(text)) for name, text in texts}
    for name, shape in ((name, [*map(str, tokens)]) for name, tokens in shapes):
        t = params[name].type if name in params else None
        if not isinstance(t, MemRefType):
            raise _wrong(f"%{name} is not a memref parameter")
        if any(n.isdecimal() and len(n) > _DIGITS for n in shape):
            raise _wrong(f"an extent of %{name} has more than {_DIGITS} digits")
        extents = tuple(UNKNOWN if n == "?" else int(n) if n.isdecimal() else sym(n) for n in shape)
        if len(extents) != len(t.shape) or not _same(t.shape, extents):
            raise _wrong(f"[{', '.join(shape)}] is not the shape of %{name}")
        for n in shape:
            if n != "?" and not n.isdecimal():
                _index(params, n)
        params[name].type = t.with_shape(extents)


def _wrong(message: str) -> Violation:
    return Violation("TypeMismatch", f"{KEY}: {message}")


def _index(params: dict[str, Value], name: str) -> None:
    if name not in params or params[name].type is not INDEX_TYPE:
        raise _wrong(f"%{name} is not a parameter of type index")


def _expression(params: dict[str, Value], name: str, text: str) -> Dim:
    """What the parameter is. Raises Violation("TypeMismatch") when it is no index, or depends on itself."""
    _index(params, name)
    try:
        found = expressions.parse(text)
    except Violation as violation:
        raise _wrong(violation.message) from None
    if name in found.names():
        raise _wrong(f"%{name} depends on itself")
    return expressions.to_dim(found)


def _same(stated: tuple[Dim, ...], extents: tuple[Dim, ...]) -> bool:
    return all(d is UNKNOWN or d == n for d, n in zip(stated, extents, strict=True))
