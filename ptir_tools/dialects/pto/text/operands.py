"""Operands, attributes and types of an ordinary statement, by its form."""

from __future__ import annotations

from ptir_tools.core.ir import SEGMENTS, Attribute, Literal, OpDef, Operand, Value
from ptir_tools.core.spelling import attribute_meant, nearest
from ptir_tools.core.typed import TYPE_CHECKING, Protocol
from ptir_tools.core.types import POISON, UNTYPED, Type
from ptir_tools.core.types import agree as parts_agree
from ptir_tools.core.violations import OP_NAME, Violation, require, result
from ptir_tools.core.violations import attribute as place
from ptir_tools.core.violations import key as place_of
from ptir_tools.dialects.pto import rules
from ptir_tools.dialects.pto.names import LAYOUTS, LOCS, inner, layout_of, loc_of
from ptir_tools.dialects.pto.text import literals
from ptir_tools.dialects.pto.text.forms import ELSEWHERE, Form, form_of
from ptir_tools.dialects.pto.text.syntax import elements_of
from ptir_tools.dialects.pto.types import EventType, MemRefType, TileType, tile, type_text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ptir_tools.dialects.pto.text.syntax import Statement
    from ptir_tools.grammars.parser import Node, Token

Groups = dict[str, list[Operand]]
RESULTS = ("to", "order", "counts")  # the attributes that hold the types of results


class Names(Protocol):
    """The values and types that tokens of the function name."""

    def use(self, token: Token) -> Value:
        """The value of this name."""

    def has(self, name: str) -> bool:
        """Whether a value has this name."""

    def operand(self, token: Token) -> Operand:
        """The value of this name, or the literal of type index."""

    def types(self, tokens: Iterable[Token] | None) -> list[Type]:
        """The types that tokens spell."""


def read(scope: Names, s: Statement, d: OpDef) -> tuple[list[Operand], dict[str, Attribute]]:
    """The operands and attributes of a statement. Raises Violation."""
    form = form_of(d)
    attrs: dict[str, Attribute] = {}
    groups = _operands(scope, s, d, form, attrs)
    entries = _entries(s)
    _clauses(scope, s, d, groups, entries)
    _types(scope, s, d, form, groups, attrs, entries)
    kinds = {a.name: a.kind for a in d.attrs if a.name not in ELSEWHERE}
    for key, e in entries.items():
        if key in kinds:
            attrs[key] = literals.typed(kinds[key], e)
        elif key not in (known := _of_every_op(d)):
            names = (*known, *kinds)
            message = f"{d.short} has no attribute `{key}` (it has: {', '.join(names) or 'none'})"
            raise Violation("UnknownAttribute", message, at=place_of(key), instead=attribute_meant(key, names))
    if SEGMENTS in d.attr_index:
        attrs[SEGMENTS] = tuple(len(groups.get(g.name, [])) for g in d.groups)
    return [x for g in d.groups for x in groups.get(g.name, [])], attrs


def _entries(s: Statement) -> dict[str, Node]:
    """The attributes of a statement by key. Raises Violation for a repeated key."""
    found: dict[str, Node] = {}
    for e in s.entries:
        key = literals.unquoted(e.token())
        require(key not in found, "ParseError", f"`{key}` is there twice", at=key)
        found[key] = e
    return found


def _of_every_op(d: OpDef) -> tuple[str, ...]:
    """The attributes that any op may have: those of results and of valid regions."""
    return ("loc", "layout") * ("to" in d.attr_index) + ("valid",) * any(g.name == "valid" for g in d.groups)


def _operands(scope: Names, s: Statement, d: OpDef, form: Form, attrs: dict[str, Attribute]) -> Groups:
    wanted = [n for n in form.operands if n not in form.optional]
    least, most = len(wanted), None if form.many else len(form.operands)
    fits = len(s.operands) >= least and (most is None or len(s.operands) <= most)
    if not fits:
        takes = f"{least} or {most}" if most not in (None, least) else f"at least {least}" if most is None else str(least)
        noun = "operand" if takes.endswith("1") else "operands"
        surplus = most is not None and len(s.operands) > most
        at = str(s.operands[most or 0].token()) if surplus else OP_NAME
        raise Violation("TypeMismatch", f"{d.short} takes {takes} {noun}, got {len(s.operands)}", at=at)
    groups: Groups = {}
    names = [*form.operands, *form.operands[-1:] * (len(s.operands) - len(form.operands))]
    for name, x in zip(names, s.operands, strict=False):
        token, lists, subscripts = x.token(), x.parts("subscript"), form.subscripts.get(name, ())
        if name in d.attr_index:
            attrs[name] = inner(token)
            continue
        known = token.type == "SSA"
        if not known:
            named, message = scope.has(str(token)), f"operand `{token}` is not a value"
            help = None if named else "define it with pto.constant"
            raise Violation("ParseError", message, at=str(token), help=help, instead=f"%{token}" if named else None)
        groups.setdefault(name, []).append(scope.use(token))
        require(len(lists) == len(subscripts), "ParseError", _subscripts(str(token), subscripts), at=str(token))
        for subscript, listed in zip(subscripts, lists, strict=True):
            groups[subscript] = [scope.operand(t) for t in listed.tokens()]
    return groups


def _subscripts(name: str, groups: tuple[str, ...]) -> str:
    """The message of an operand that has too many or too few lists of subscripts."""
    if len(groups) > 1:
        return f"`{name}` needs {len(groups)} lists: {', '.join(f'[{x}]' for x in groups)}"
    return f"`{name}` needs one list of indices, such as [%i, %j]" if groups else f"`{name}` takes no subscripts here"


def _clauses(scope: Names, s: Statement, d: OpDef, groups: Groups, entries: dict[str, Node]) -> None:
    names = {g.name for g in d.groups}
    if waits := s.node.parts("wait"):
        require("wait" in names, "TypeMismatch", f"{d.short} does not wait for events", at="wait")
        groups["wait"] = [scope.use(t) for x in waits for t in x.tokens()]
    if (e := entries.get("valid")) is not None:
        require("valid" in names, "UnknownAttribute", f"{d.short} has no `valid`", at="valid")
        listed = elements_of(e)
        if listed is None:
            raise Violation("ParseError", "`valid` is a list such as [%r, 32]", at="valid")
        groups["valid"] = [scope.operand(t) for t in listed]
        require(bool(listed), "RankMismatch", "valid has no entries", at="valid")


def _types(
    scope: Names,
    s: Statement,
    d: OpDef,
    form: Form,
    groups: Groups,
    attrs: dict[str, Attribute],
    entries: dict[str, Node],
) -> None:
    before, after = scope.types(s.before), None if s.after is None else scope.types(s.after)
    require(s.before is not None or not form.types, "ParseError", f"{d.short} needs its types after `:`", at=OP_NAME)
    if "event" in d.attr_index:
        attrs["event"] = _event(s, d, before if after is None else after)
    elif after is None and before and isinstance(before[-1], EventType):
        raise Violation("TypeMismatch", f"{d.short} cannot be asynchronous: it has no event result")
    declared = _declared(d, form, before, after, groups)
    for name, t in declared:
        if name in d.attr_index:
            attrs[name] = _with_info(t, entries) if name == "to" else t
    left = {name: iter(given) for name, given in groups.items()}
    for name, t in declared:
        if (x := next(left.get(name, iter(())), None)) is not None:
            agree(x, t, _types_of(form) if form.subscripts else None)


def _event(s: Statement, d: OpDef, listed: list[Type]) -> Type | None:
    """Remove the event type from the list. It is there exactly if there is one more result than the op makes. It may be a type
    with an error, which was reported."""
    t = listed[-1] if listed else None
    plain = _plain_results(d, len(s.operands))
    wants = len(s.results) == plain + 1
    good = len(s.results) in (plain, plain + 1)
    require(good, "TypeMismatch", f"{d.short} has {plain} results, or {plain + 1} with its event; {len(s.results)} are named")
    if not isinstance(t, EventType) and not (wants and t is POISON):
        named = str(s.results[-1]) if s.results else ""
        message = (
            f"{named} is the event of {d.short}; its type is missing"
            if plain
            else f"{d.short} gives an event alone, of type !pto.event"
        )
        require(not wants, "TypeMismatch", message, at=named or OP_NAME)
        return None
    require(wants, "TypeMismatch", f"{d.short} lists an event type, but no result takes it")
    listed.pop()
    return t


def _plain_results(d: OpDef, operands: int) -> int:
    """The number of results besides the event: the merge of one list gives no counts."""
    return sum(n in d.attr_index for n in RESULTS) - ("counts" in d.attr_index and operands == 1)


def _declared(d: OpDef, form: Form, before: list[Type], after: list[Type] | None, groups: Groups) -> list[tuple[str, Type]]:
    """(operand group or attribute, type) for every type of the signature. A list may name one input or all of them."""
    inputs = [n for n in form.operands if n in groups for _ in groups[n]]
    if after is not None:
        results = form.results or tuple(n for n in form.types if n in d.attr_index) or ("to",) * ("to" in d.attr_index)
        fits = len(after) in (len(results), len(results) - ("counts" in d.attr_index))
        require(fits, "TypeMismatch", _count(d, "results", len(results), len(after)))
        return [*_inputs(d, form, inputs, before), *zip(results, after, strict=False)]
    if form.results is not None:  # without an arrow one type is that of operands and result
        one = len(before) == 1 and _plain_results(d, len(inputs)) == 1
        require(one, "ParseError", f"{d.short} needs `-> TYPE` for its result")
        return [("to", before[0])]
    if len(before) == len(form.types):
        pairs = list(zip(form.types, before, strict=True))
        if "to" in d.attr_index and "to" not in form.types:  # tile and scalar: the tile's type is the result's
            pairs.append(("to", next((t for t in before if isinstance(t, TileType)), before[0])))
        return pairs
    if len(before) == 1 and "to" in d.attr_index and not form.subscripts:
        return [("to", before[0])]
    if form.types == ("to",) and len(before) in (len(inputs), len(inputs) + 1):
        made = before[-1] if len(before) > len(inputs) else next((t for t in before if isinstance(t, TileType)), before[0])
        return [*zip(inputs, before, strict=False), ("to", made)]
    fits = len(before) == len(inputs) and "to" not in form.types
    require(fits, "TypeMismatch", _count(d, "types", len(form.types), len(before)), at=result(), help=_types_of(form))
    return list(zip(inputs, before, strict=True))


def _inputs(d: OpDef, form: Form, inputs: list[str], before: list[Type]) -> list[tuple[str, Type]]:
    names = [n for n in form.types if n not in d.attr_index]
    if len(before) == len(inputs):
        return list(zip(inputs, before, strict=True))
    require(len(before) in (1, len(names)), "TypeMismatch", _count(d, "types before `->`", len(names), len(before)))
    return list(zip(names or inputs[:1], before, strict=False))


def _types_of(form: Form) -> str:
    """The help that shows with which types an op is written."""
    kinds = {"source": "the memref's", "target": "the memref's", "tile": "the tile's", "to": "the result's"}
    return f"write {', then '.join(kinds.get(n, f'that of `{n}`') for n in form.types)} type"


def _count(d: OpDef, what: str, want: int, got: int) -> str:
    return f"{d.short} has {want} {what}, got {got}"


def _with_info(t: Type, entries: dict[str, Node]) -> Type:
    """The result type with the attributes `loc` and `layout`. Raises Violation when they contradict it."""
    if not isinstance(t, TileType):
        return t
    parts: dict[str, str | None] = {"loc": t.loc, "layout": t.layout}
    for key, named, code, known in (("loc", loc_of, "InvalidLocation", LOCS), ("layout", layout_of, "InvalidLayout", LAYOUTS)):
        if (e := entries.get(key)) is None:
            continue
        text = str(literals.typed("str", e))
        found = named(text)
        if found is None:
            meant, choices = nearest(text, known), f"one of {', '.join(known)}"
            raise Violation(code, f"`{text}` is not a {key}", help=None if meant else choices, at=text, instead=meant)
        require(parts_agree(parts[key], found), code, f"{key} is {found}, the type says {parts[key]}", at=place(key))
        parts[key] = found
    return tile(t.dtype, t.shape, parts["loc"], parts["layout"], t.valid)


def shown(x: Operand) -> str:
    """An operand as text."""
    return f"%{x.name}" if isinstance(x, Value) else literals.scalar_text(x) if isinstance(x, Literal) else "?"


def agree(x: Operand, declared: Type, help: str | None = None) -> None:
    """Check that the type at a use agrees with the value's, as far as both are known. Raises Violation, with `help` if one is of
    a memref and the other of a tile."""
    actual = x.type if isinstance(x, (Value, Literal)) else UNTYPED
    if actual in (POISON, UNTYPED) or declared is POISON or declared.accepts(actual):
        return
    if isinstance(x, Literal) and rules.is_index(declared):
        return
    message = f"operand `{shown(x)}` is {type_text(actual)}, declared {type_text(declared)}"
    at = shown(x) if isinstance(x, Value) else None
    code = _clash(declared, actual)
    raise Violation(code, message, at=at, help=help if code == "TypeMismatch" and type(actual) is not type(declared) else None)


def _clash(declared: Type, actual: Type) -> str:
    """The code for two types that do not agree, by their first difference."""
    a, b = declared, actual
    if not (isinstance(a, (TileType, MemRefType)) and isinstance(b, (TileType, MemRefType)) and type(a) is type(b)):
        return "TypeMismatch"
    if a.rank != b.rank:
        return "RankMismatch"
    if a.dtype is b.dtype and a.shape != b.shape:
        return "ShapeMismatch"
    if a.dtype is not b.dtype or not (isinstance(a, TileType) and isinstance(b, TileType)):
        return "TypeMismatch"
    if not parts_agree(a.loc, b.loc):
        return "InvalidLocation"
    return "InvalidValid" if parts_agree(a.layout, b.layout) else "InvalidLayout"
