"""The canonical print of MIND: for every program that the public tool can print, the same bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from ptir_tools.core.arrays import from_literal
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import OUTSIDE, Options, Program
from ptir_tools.core.dtypes import F32
from ptir_tools.core.ir import Function, Literal, Op, Value
from ptir_tools.core.lazy import regex
from ptir_tools.core.typed import Any
from ptir_tools.core.types import UNTYPED, Type
from ptir_tools.dialects.mind.text.attributes import SCALARS
from ptir_tools.dialects.mind.text.syntax import Call
from ptir_tools.dialects.mind.types import dtype_text, type_text

_WORD = regex(r"[A-Za-z_][A-Za-z0-9_.]*")
_NOT_WORDS = {"true", "false", "True", "False", "inf", "nan"}
_ESCAPES = str.maketrans({"\n": "\\n", "\r": "\\r", "\t": "\\t", "\\": "\\\\", '"': '\\"'})


def write(program: Program, diagnostics: Diagnostics, options: Options) -> Iterator[str]:
    """The text of `program`, a line at a time, parameters first."""
    function, outside = program.main, options[OUTSIDE]
    for v, name in zip(function.params, input_names(function), strict=True):
        yield instruction(v.name, "Input", (), {"name": value_text(name)} | extras(function, v), v.type) + "\n"
    for op in function.body:
        v = op.result
        operands = [x.name for x in op.operands if isinstance(x, Value)]
        yield instruction(v.name, op.defn.short, operands, attribute_texts(op, outside) | extras(function, v), v.type) + "\n"
    results = [x.name for x in function.results if isinstance(x, Value)]
    yield outputs(results) + "\n"


def input_names(function: Function) -> list[str]:
    """The `name` of each Input: that of the value if no other is kept."""
    return list(function.attrs.get("input_names") or [p.name for p in function.params])


def extras(function: Function, v: Value) -> dict[str, str]:
    """The unknown attributes of the instruction that defines `v`, as text."""
    return {k: value_text(raw) for k, raw in function.attrs.get("extra", {}).get(v.name, ())}


def instruction(name: str, opcode: str, operands: list[str] | tuple[str, ...], attributes: dict[str, str], t: Type | None) -> str:
    """One line, without its end. An unknown type (None, or of a program in error) is not printed."""
    arguments = f" ({', '.join(f'%{x}' for x in operands)})" if operands else ""
    return f"%{name} = {opcode}{arguments}{tail(attributes, t)}"


def tail(attributes: dict[str, str], t: Type | None) -> str:
    """The text after the operands of an instruction: its attributes and its type."""
    braces = f" {{{', '.join(f'{k}={attributes[k]}' for k in sorted(attributes))}}}" if attributes else ""
    return f"{braces}{f' : {type_text(t)}' if t not in (None, UNTYPED) else ''}"


def outputs(names: list[str]) -> str:
    """The last line, without its end."""
    return f"outputs: {', '.join(f'%{x}' for x in names)}"


def attribute_texts(op: Op, outside: Mapping[Literal, str]) -> dict[str, str]:
    """The attributes of `op` by name, as text. Constants `outside` are in files, under these names."""
    return {k: text for k, v in op.defn.named(op.attrs).items() for k, text in _spelled(op, k, v, outside).items()}


def _spelled(op: Op, key: str, value: object, outside: Mapping[Literal, str]) -> dict[str, str]:
    if not isinstance(value, Literal):
        return {key: padding_text(value) if key == "padding" else value_text(list(value) if isinstance(value, tuple) else value)}
    if op.defn.short in SCALARS:
        return {key: element_texts(value)[0]}
    t, place = value.type, outside.get(value)
    shown = nested(element_texts(value), t.static_shape) if place is None else _string(place)
    return {"dtype": dtype_text(t.dtype), "shape": str(t.static_shape), "value": shown}


def padding_text(padding: Any) -> str:
    """`Valid`, `Same` or `Custom([[top, bottom], [left, right]])`."""
    return padding if isinstance(padding, str) else f"Custom({value_text([list(pair) for pair in padding])})"


def value_text(value: object) -> str:
    """Any attribute value as text."""
    return _TEXTS[type(value)](value)


def _string(value: str) -> str:
    bare = _WORD.fullmatch(value) and value not in _NOT_WORDS
    return value if bare else f'"{value.translate(_ESCAPES)}"'


def _tuple(value: tuple[object, ...]) -> str:
    return f"({', '.join(map(value_text, value))}{',' if len(value) == 1 else ''})"


_TEXTS: dict[type, Callable[[Any], str]] = {
    bool: lambda v: "true" if v else "false",
    int: str,
    float: repr,
    str: _string,
    list: lambda v: f"[{', '.join(map(value_text, v))}]",
    tuple: _tuple,
    Call: lambda v: f"{v.word}({value_text(v.value)})",
    slice: lambda v: f"{v.start}:{v.stop}:{v.step}",
}


def element_texts(literal: Literal) -> list[str]:
    """The elements, row-major: integers plain, floats the shortest decimal that reads back to the same value."""
    array = from_literal(literal).reshape(-1)
    if literal.type.dtype is F32:
        return [repr(float(str(x))) for x in array]
    return [repr(x) for x in array.tolist()]


def nested(elements: list[str], shape: tuple[int, ...]) -> str:
    """Element texts in nested brackets of `shape`; a scalar has none."""
    for extent in reversed(shape[1:]):
        elements = [f"[{', '.join(elements[i : i + extent])}]" for i in range(0, len(elements), extent)]
    return f"[{', '.join(elements)}]" if shape else elements[0]
