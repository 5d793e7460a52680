"""Programs to text, in the seed's spelling. One op per line; what `print` gives, `read` reads back to the same program."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Options, Program
from ptir_tools.core.dtypes import INDEX
from ptir_tools.core.ir import Attribute, Function, Literal, Op, Operand, Region, Value, operand_type
from ptir_tools.core.symbols import DERIVED
from ptir_tools.core.types import Type
from ptir_tools.dialects.pto.text import extents, literals
from ptir_tools.dialects.pto.text.forms import ELSEWHERE, form_of
from ptir_tools.dialects.pto.types import EventType, TileType, type_text

STEP = "  "
# Attributes that are written `key = #dotted<VALUE>`; all others are plain numbers, words and booleans.
_OPAQUE = {
    "cmpMode": "#pto.cmp",
    "rmode": "#pto.round_mode",
    "maskPattern": "#pto.mask_pattern",
    "pad": "#pto.pad",
    "atomic": "#pto.atomic",
}


def write(program: Program, diagnostics: Diagnostics, options: Options) -> Iterator[str]:
    """The text of a program, line by line."""
    attrs = {k: v for k, v in program.attrs.items() if v is not None}
    shown = f" attributes {_dictionary(attrs)}" if attrs else ""
    yield f"module{shown} {{\n"
    for function in program.functions:
        yield from _function(function)
    yield "}\n"


def _dictionary(attrs: dict[str, object]) -> str:
    return "{ " + ", ".join(f"{_key(k)} = {v}" if v is not None else _key(k) for k, v in attrs.items()) + " }"


def _key(key: str) -> str:
    return key if key.replace(".", "").replace("_", "").isalnum() else f'"{key}"'


def _function(f: Function) -> Iterator[str]:
    params = ", ".join(f"%{p.name}: {type_text(p.type)}" for p in f.params)
    results = f.result_types
    shown = "" if not results else f" -> {type_text(results[0])}" if len(results) == 1 else f" -> ({_types(results)})"
    given = {k: v for k, v in f.attrs.items() if k != DERIVED} | extents.written(f)
    attrs = f" attributes {_dictionary(given)}" if given else ""
    yield f"{STEP}func.func @{_symbol(f.name)}({params}){shown}{attrs} {{\n"
    yield from _block(f, STEP * 2)
    yield f"{STEP * 2}{_terminator('return', f.results)}\n{STEP}}}\n"


def _symbol(name: str) -> str:
    plain = name.replace("_", "a").replace("$", "a").replace(".", "a").replace("-", "a")
    return name if plain.isalnum() and plain.isascii() and not name[0].isdigit() and name[0] != "-" else f'"{name}"'


def _terminator(name: str, results: Sequence[Operand]) -> str:
    if not results:
        return name
    return f"{name} {_list(results)} : {_types(x.type for x in results if isinstance(x, (Value, Literal)))}"


def _types(types: Iterable[Type]) -> str:
    return ", ".join(map(type_text, types))


def operand_text(x: Operand) -> str:
    """An operand: `%name`, or a number."""
    if isinstance(x, Value):
        return f"%{x.name}"
    assert isinstance(x, Literal)
    return literals.scalar_text(x)


def _list(xs: Iterable[Operand]) -> str:
    return ", ".join(map(operand_text, xs))


def _block(block: Region, indent: str) -> Iterator[str]:
    for op in block.body:
        results = ", ".join(f"%{v.name}" for v in op.results)
        head = f"{indent}{results} = " if results else indent
        special = _SPECIAL.get(op.defn.short)
        if special is not None:
            yield from special(op, head, indent)
        else:
            yield f"{head}{statement_text(op)}\n"


def statement_text(op: Op) -> str:
    """An ordinary op without its results: `pto.tile.add %a, %b : T`."""
    form, groups, attrs = form_of(op.defn), grouped(op), op.defn.named(op.attrs)
    words = " ".join([_text_name(op.defn.short), *clauses(op)])
    types = _signature(form.types, form.results, groups, attrs, attrs.get("event"))
    return f"{words} : {types}" if types else words


def _text_name(short: str) -> str:
    """How an op is spelled: everything but `scf` and `func` is in `pto`."""
    return short if short.startswith(("scf.", "func.")) else f"pto.{short}"


def grouped(op: Op) -> dict[str, Sequence[Operand]]:
    """The operands of an op by group."""
    parts = zip(op.defn.groups, op.defn.split(op.attrs, op.operands), strict=True)
    return {g.name: part if isinstance(part, tuple) else () if part is None else (part,) for g, part in parts}


def clauses(op: Op, *, waits: bool = True) -> list[str]:
    """What is between an op's name and its types: operands, attributes, `wait(…)` unless `waits` is false."""
    form, groups, attrs = form_of(op.defn), grouped(op), op.defn.named(op.attrs)
    operands = _operands(form.operands, form.subscripts, groups, attrs)
    entries = [f"valid = [{_list(groups['valid'])}]"] if groups.get("valid") else []
    for a in op.defn.attrs:
        if a.name not in ELSEWHERE and attrs.get(a.name) != a.default:
            entries.append(f"{a.name} = {_attribute(a.name, attrs[a.name])}")
    words = [operands] if operands else []
    words += [f"{{{', '.join(entries)}}}"] if entries else []
    return words + ([f"wait({_list(groups['wait'])})"] if waits and groups.get("wait") else [])


def _operands(
    names: Sequence[str], subscripts: dict[str, tuple[str, ...]], groups: dict[str, Sequence[Operand]], attrs: dict[str, object]
) -> str:
    shown = []
    for name in names:
        if name in attrs:
            shown.append(str(attrs[name]))
            continue
        for x in groups.get(name, ()):
            lists = " ".join(f"[{_list(groups[n])}]" for n in subscripts.get(name, ()))
            shown.append(operand_text(x) + lists)
    return ", ".join(shown)


def _attribute(name: str, value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{_OPAQUE[name]}<{value}>" if name in _OPAQUE else str(value)


def _signature(
    types: Sequence[str],
    results: Sequence[str] | None,
    groups: dict[str, Sequence[Operand]],
    attrs: dict[str, Attribute],
    event: EventType | None,
) -> str:
    def of(name: str) -> list[Type]:
        if name in groups:
            return [x.type for x in groups[name] if isinstance(x, (Value, Literal))]
        return [] if attrs[name] is None else [attrs[name]]

    left = [type_text(t) for name in types for t in of(name)]
    if types == ("a", "b") and "to" in attrs and results is None:  # tile and scalar: the tile's type is the result's
        left = [type_text(attrs["to"] if isinstance(t, TileType) else t) for name in types for t in of(name)]
    stands_for_all = results is None and ("to" in types or types == ("a", "b")) and "to" in attrs
    if stands_for_all and _differ(groups, attrs["to"]):
        left = [type_text(t) for name in groups if name not in ("valid", "wait") for t in of(name)]
        results = ("to",)
    if results is None:
        return ", ".join(left + ([type_text(event)] if event is not None else []))
    made = [type_text(t) for name in results for t in of(name)]
    right = f"({', '.join(made)})" if len(made) > 1 else made[0]
    arrow = "->" if "event" in attrs else "to"  # conversions of scalars are spelled as in arith
    return f"{', '.join(left)} {arrow} {right}" + (f", {type_text(event)}" if event is not None else "")


def _differ(groups: dict[str, Sequence[Operand]], to: TileType) -> bool:
    """Whether one type cannot be that of the result and of every tile operand: they say different locations."""
    tiles = [operand_type(x) for name, xs in groups.items() if name not in ("valid", "wait") for x in xs]
    return any(isinstance(t, TileType) and not to.accepts(t) for t in tiles)


# Ops with a form of their own


def _constant(op: Op, head: str, indent: str) -> Iterator[str]:
    yield f"{head}pto.constant {literals.scalar_text(op.attr('value'))} : {type_text(op.result.type)}\n"


def _for(op: Op, head: str, indent: str) -> Iterator[str]:
    lower, upper, step, inits = op.defn.split(op.attrs, op.operands)
    body = op.regions[0]
    pairs = ", ".join(f"%{p.name} = {operand_text(x)}" for p, x in zip(body.params[1:], inits, strict=True))
    carried = f" iter_args({pairs}) -> ({_types(p.type for p in body.params[1:])})" if inits else ""
    shown = [operand_text(x) for x in (lower, upper, step)]
    index = body.params[0]
    of = "" if getattr(index.type, "dtype", INDEX) is INDEX else f" : {type_text(index.type)}"
    yield f"{head}scf.for %{index.name} = {shown[0]} to {shown[1]} step {shown[2]}{carried}{of} {{\n"
    yield from _nested(body, indent)
    yield f"{indent}}}\n"


def _if(op: Op, head: str, indent: str) -> Iterator[str]:
    then, otherwise = op.regions
    types = f" -> ({_types(then.result_types)})" if then.result_types else ""
    yield f"{head}scf.if {operand_text(op.operands[0])}{types} {{\n"
    yield from _nested(then, indent)
    if otherwise.body or otherwise.results:
        yield f"{indent}}} else {{\n"
        yield from _nested(otherwise, indent)
    yield f"{indent}}}\n"


def _while(op: Op, head: str, indent: str) -> Iterator[str]:
    before, body = op.regions
    pairs = ", ".join(f"%{p.name} = {operand_text(x)}" for p, x in zip(before.params, op.operands, strict=True))
    types = f"({_types(p.type for p in before.params)}) -> ({_types(v.type for v in op.results)})"
    yield f"{head}scf.while ({pairs}) : {types} {{\n"
    yield from _block(before, indent + STEP)
    condition, *given = before.results
    passed = f" {_list(given)} : {_types(operand_type(x) for x in given)}" if given else ""
    yield f"{indent}{STEP}scf.condition({operand_text(condition)}){passed}\n"
    yield f"{indent}}} do {{\n"
    if body.params:
        yield f"{indent}{STEP}^bb0({', '.join(f'%{p.name}: {type_text(p.type)}' for p in body.params)}):\n"
    yield from _nested(body, indent)
    yield f"{indent}}}\n"


def _nested(block: Region, indent: str) -> Iterator[str]:
    yield from _block(block, indent + STEP)
    if block.results:
        yield f"{indent}{STEP}{_terminator('scf.yield', block.results)}\n"


def _call(op: Op, head: str, indent: str) -> Iterator[str]:
    types = _types(x.type for x in op.operands if isinstance(x, (Value, Literal)))
    results = op.attr("to")
    shown = type_text(results[0]) if len(results) == 1 else f"({_types(results)})"
    yield f"{head}func.call @{_symbol(op.attr('callee'))}({_list(op.operands)}) : ({types}) -> {shown}\n"


def _sync(op: Op, head: str, indent: str) -> Iterator[str]:
    yield f"{head}pto.sync wait({_list(op.operands)}) : {_types(x.type for x in op.operands if isinstance(x, Value))}\n"


def _sync_op(op: Op, head: str, indent: str) -> Iterator[str]:
    yield f"{head}pto.sync.op #pto.op<{op.attr('opcode')}>\n"


_SPECIAL = {
    "constant": _constant,
    "scf.for": _for,
    "scf.if": _if,
    "scf.while": _while,
    "func.call": _call,
    "sync": _sync,
    "sync.op": _sync_op,
}
