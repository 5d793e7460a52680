"""The grammar's side of reading text PTIR: what the rules of grammars/ptir.lark make."""

from __future__ import annotations

import builtins
import re
from collections.abc import Callable
from functools import cache

from ptir_tools import grammars
from ptir_tools.core.diagnostics import Diagnostics, Fix
from ptir_tools.core.dialect import Options
from ptir_tools.core.extents import parse_table
from ptir_tools.core.ir import Operand, Region, operand_type
from ptir_tools.core.records import NamedTuple
from ptir_tools.core.source import Loc, Source, Span, pack
from ptir_tools.core.spelling import nearest
from ptir_tools.core.typed import TypeVar
from ptir_tools.core.types import POISON, TensorType, Type, tuple_of
from ptir_tools.core.violations import Violation
from ptir_tools.dialects.ptir.text.assembly import CODES, Assembly
from ptir_tools.dialects.ptir.text.attributes import FROM_RESULT, Given
from ptir_tools.dialects.ptir.text.forms import Call, Items, Payload, Plain, atom
from ptir_tools.dialects.ptir.text.spelling import read_tensor, unquote
from ptir_tools.grammars import Fault
from ptir_tools.grammars.mistakes import HERE, Mistake, reported
from ptir_tools.grammars.parser import Node, Nodes, Parser, Refused, Token, located

T = TypeVar("T")
# Terminals in the words of a diagnostic.
NAMES = {
    "VALUE": "a value", "WORD": "a word", "NUMBER": "a number", "TENSOR": "a type", "TUPLE": "a tuple type", "DENSE": "a literal",
    "REGION": "a region", "SYMBOL": "a symbol", "STRING": "a string", "FUNC": "a function name", "FUNCTION_KEYWORD": "`func`",
}  # fmt: skip


class Ended(Exception):
    """Everything that was opened is closed."""


def parse(assembly: Assembly, start: int, end: int) -> tuple[int, bool]:
    """Read text[start:end], whole items, into `assembly`, up to the brace that closes the last that is open.

    Returns where what was read ends, and whether an item with a syntax error follows, which is reported.
    """
    text = assembly.source.text[start:end]
    grammars.check_depth(text, assembly.limits, start)
    items, parser = _parser()
    items.assembly, items.whole = assembly, start
    try:
        parser.parse(assembly.source.text, "items", keep=True, at=start, end=end)
    except Ended:
        return items.whole, False
    except Refused:
        whole, code = items.whole, text.rstrip()
        fault = grammars.refused("ptir", text[whole - start :], "items")
        last = start + len(code) if end < len(assembly.source.text) else None
        if not _usual_mistake(assembly, whole, start + len(code), fault):
            found, help = assembly.diagnostics, _help(fault)
            grammars.report("ptir", fault, found, CODES.syntax, NAMES, offset=whole, end=last, help=help)
        return whole, True
    return end, False


def attributes(assembly: Assembly, start: int, end: int) -> Given:
    """The attributes of a statement, which the line reader takes, in text[start:end]."""
    items, parser = _parser()
    items.assembly = assembly
    found: Given = parser.parse(assembly.source.text, "attributes", at=start, end=end)
    return found


@cache
def _parser() -> tuple[_Items, Parser]:
    return (items := _Items()), grammars.parser("ptir", items)


_RESULT_TYPE = "a statement ends with its result type: -> tensor<f32, 4>"
# What people write in other ways.
_TYPE = r"[Tt]ensor\s*<"
_OPERATORS = {"+": "add", "-": "sub", "*": "mul", "/": "div"}
_MISTAKES = (
    Mistake(rf"^\s*return\b[^\n]*{HERE}(?P<wrong>:[^\n]*)", "`return` lists values, without their types", ""),
    Mistake(rf'=\s*{HERE}(?P<wrong>"(?P<name>[\w.]+)")(?=\s*\()', "the name of an operation has no quotes", r"\g<name>"),
    Mistake(rf"[\])%\w]\s*{HERE}(?P<wrong>:|=>)(?=\s*{_TYPE})", "a result type follows `->`", "->"),
    Mistake(rf"[\])]\s*(?P<wrong>){HERE}(?={_TYPE})", "`->` is missing before the result type", "-> "),
    Mistake(
        rf"^\s*(?:func|region)\b[^{{]*[(,]\s*%[\w.$]+\s*(?P<wrong>){HERE}(?={_TYPE})", "`:` is missing before the type", ": "
    ),
    Mistake(
        rf"=\s*{HERE}(?P<wrong>(?P<x>%[\w.$]+)\s*(?P<op>[-+*/])\s*(?P<y>%[\w.$]+))",
        "an operation is written by its name",
        lambda m: f"{_OPERATORS[m['op']]}({m['x']}, {m['y']})",
        guessed=True,
    ),
    Mistake(rf"\w\s*={HERE}(?P<wrong>=)", "a name and its operation are joined by one `=`", ""),
    Mistake(rf"{HERE}(?P<wrong>;)", "statements need no semicolon", ""),
    Mistake(rf"\w\[[^\[\]]*{HERE}(?P<wrong>x)(?=[\d?])", "extents in brackets are separated by commas", ", "),
    Mistake(rf"\w\s*{HERE}(?P<wrong>=\s*)(?=\[)", "an attribute is written name[value], without `=`", ""),
    Mistake(rf"{HERE}(?P<wrong>#(?P<text>[^\n]*))", "a comment begins with //", r"//\g<text>"),
    Mistake(rf"{HERE}(?P<wrong>ret)\b", "a function ends with `return`", "return"),
    Mistake(rf"dense{HERE}<[^<>:\n]*[^<>:\s](?P<wrong>)(?=\s*:)", "`>` is missing at the end of the value", ">"),
    Mistake(rf"[\])](?P<wrong>\s+)(?P<shown>[Tt]ensor)\s*{HERE}(?:->|<)", "`->` is missing before the result type", " -> "),
    Mistake(rf"\(\s*%[^()]*[\w\]](?P<wrong>)\s*{HERE}(?:->|<)", "`)` is missing after the operands", ")", "RPAR"),
    Mistake(rf"[^\W_](?P<wrong>)[ \t]*\n*{HERE}%", "`,` is missing between two operands", ",", "COMMA"),
    Mistake(rf"\[[^\[\]]*\w(?P<wrong>)\s+{HERE}(?:-?\d|\?)", "`,` is missing between two entries", ",", "COMMA"),
    Mistake(rf"^\s*(?P<wrong>\w+)\s+{HERE}%", r"there is no statement `\g<wrong>`", lambda m: nearest(m["wrong"], ("return",))),
    Mistake(rf"^\s*(?P<wrong>\w+)\s+{HERE}@", "a function begins with `func`", "func"),
    Mistake(
        rf"{HERE}{_TYPE}\s*\w+\s*,\s*(?P<wrong>\((?P<listed>[\d\s,?\w]*)\))\s*>",
        r"`\g<wrong>` is a list of extents",
        lambda m: _extents(m["listed"]),
    ),
    Mistake(
        rf"(?::|->|,|\()\s*{HERE}(?P<wrong>(?P<dtype>[a-z]\w*)\[(?P<listed>[\d?\w\s,]*)\])",
        r"`\g<wrong>` is not a type",
        lambda m: f"tensor<{m['dtype']}{', ' if m['listed'].strip() else ''}{_extents(m['listed'])}>",
    ),
    Mistake(
        rf'{HERE}{_TYPE}\s*\w+(?:\s*,\s*[\w?]+)?(?![\w?])(?P<wrong>(?:,(?=\s*\Z))?)(?!\s*[>,x("?])',
        "`>` is missing at the end of the type",
        ">",
    ),
)


def _extents(listed: str) -> str:
    """Extents that commas separate, as types have them."""
    return "x".join(part.strip() for part in listed.split(",") if part.strip())


def _usual_mistake(assembly: Assembly, start: int, end: int, fault: Fault) -> bool:
    """Report a mistake that people make, in their words, with its edit; False when it is another."""
    at = min(start + fault.at, end)
    before = assembly.source.text[start:at].rstrip("\n")
    if at == end and _wants_type(fault) and re.search(r"=\s*\w+\s*\(.*[)\]]\s*\Z", before):
        implied, last = _implied_type(assembly, before), Span(max(start, end - 1), end)
        help = f"write `-> {implied}`" if implied else _RESULT_TYPE
        fix = Fix(Span(end, end), f" -> {implied}", safe=True) if implied else None
        assembly.error(CODES.syntax, "`->` and the result type are missing", last, help=help, fix=fix)
        return True
    return reported(_MISTAKES, fault, assembly.diagnostics, CODES.syntax, start, end, at)


def _wants_type(fault: Fault) -> bool:
    """Whether a statement could go on with its result type."""
    return "__ANON_0" in fault.expected and "EQUAL" not in fault.expected


def _implied_type(assembly: Assembly, statement: str) -> Type | None:
    """The type that the type rule of an op gives for a statement without one; None where it alone does not say it."""
    source = Source("", f"{statement} -> tensor<f32>")
    trial = Assembly(source, Diagnostics(source), Options())
    trial.block, trial.values = Region(), {**assembly.values}
    parse(trial, 0, len(source.text))
    op = trial.body[0] if len(trial.body) == 1 and not trial.diagnostics.items else None
    if op is None or op.defn.regions or op.defn.short in FROM_RESULT or op.defn.is_constant:
        return None
    try:
        (found,) = op.defn.result_types(tuple(map(operand_type, op.operands)), op.attrs)
    except (Violation, ValueError):
        return None
    return None if found is POISON else found


def _help(fault: Fault) -> str | None:
    """What to write instead of other mistakes."""
    if not fault.found and _wants_type(fault):
        return _RESULT_TYPE
    if fault.found == "%":
        return "a name follows the %"
    if fault.found == "{" and "WORD" in fault.expected:
        return "attributes are written name[value]"
    return None


class _Types(tuple[Type | None, ...]):
    """The types in parentheses: in a header the list of results, elsewhere a tuple type. None is one in error."""


_Attr = tuple[str, "list[Plain]"]
_Read = Callable[[Loc], "Operand | None"]  # gives an operand of the item at a place; None when it is in error


class _Label(NamedTuple):
    """The name of a result; None when it is in error."""

    name: str | None


class _Items(Nodes):
    """What the rules of the grammar make; an item is given to the assembly, a rule without a method is a Node, and part of it."""

    assembly: Assembly
    whole: int  # where the last whole item ends

    def item(self, start: int, end: int) -> Loc:
        """The place of a whole item."""
        self.whole = end
        return pack(start, end)

    def guarded(self, token: Token, read: Callable[[Token], T], otherwise: T) -> T:
        """What `read` makes of the token, or `otherwise` after reporting what is wrong with it."""
        try:
            return read(token)
        except Violation as violation:
            self.assembly.violation(violation, token.loc)
            return otherwise

    # ---- types

    def tensor(self, children: list[Token]) -> TensorType | None:
        return self.guarded(children[0], read_tensor, None)

    def parenthesized(self, children: tuple[*tuple[Type | _Types | None, ...], Token]) -> _Types:
        *types, _ = children
        return _Types(map(_one, types))

    def tuple_type(self, children: tuple[*tuple[Type | _Types | None, ...], Token]) -> Type | None:
        return _one(self.parenthesized(children))

    # ---- headers

    @located
    def program(self, children: list[Token | Node], start: int, end: int) -> None:
        name = next((_function_name(c) for c in children if isinstance(c, Token) and c.type == "FUNC"), None)
        version = next((str(c.children[-1]) for c in children if isinstance(c, Node)), None)
        self.assembly.open_program(name, version, self.item(start, end))

    @located
    def function(
        self, children: tuple[Token, Token, Node, Type | _Types | None, *tuple[Token, ...], Token], start: int, end: int
    ) -> None:
        keyword, name, params, results, *where, _ = children
        if keyword.type == "FUNCTION_KEYWORD":
            span = Span(keyword.start_pos, keyword.end_pos)
            self.assembly.error(
                CODES.syntax, "a function begins with `func`", span, help="write func", fix=Fix(span, "func", safe=True)
            )
        self.open(self.assembly.open_function, _function_name(name), params, results, self.item(start, end))
        for clause in where:
            self.assembly.where(self.guarded(clause, lambda t: parse_table(str(t).removeprefix("where")), {}), clause.loc)

    @located
    def region(self, children: tuple[Token, Token, Node, Type | _Types | None, Token], start: int, end: int) -> None:
        _, name, params, results, _ = children
        self.open(self.assembly.open_region, str(name)[1:], params, results, self.item(start, end))

    def open(self, opener: Callable[..., None], name: str, params: Node, results: Type | _Types | None, at: Loc) -> None:
        listed = results if isinstance(results, _Types) else _Types((results,))
        whole = [(n, t) for n, t in params.children if t is not None]
        opener(name, whole, [] if None in listed else listed, at)
        self.assembly.damaged = len(whole) < len(params.children) or None in listed

    def param(self, children: tuple[Token, Type | _Types | None]) -> tuple[str, Type | None]:
        return _name(children[0]), _one(children[1])

    @located
    def hint(self, children: tuple[Token, Token, Token, Token, *tuple[_Attr, ...], Token], start: int, end: int) -> None:
        _, ident, kind, policy, *given, _ = children
        self.assembly.open_hint(ident.natural, str(kind), str(policy), given, self.item(start, end))

    @located
    def close(self, children: list[Token], start: int, end: int) -> None:
        self.assembly.close(self.item(start, end))
        if self.assembly.ended:
            raise Ended

    # ---- statements

    def name(self, children: list[Token]) -> Token:
        return children[0]

    @located
    def statement(
        self,
        children: tuple[Token, Token, *tuple[_Read | _Attr, ...], Type | _Types | None],
        start: int,
        end: int,
    ) -> None:
        target, op, *arguments, typed = children
        at = self.item(start, end)
        given = [x for x in arguments if type(x) is tuple]
        operands = [x(at) for x in arguments if callable(x)]
        whole = tuple(x for x in operands if x is not None)
        t = _one(typed) if len(whole) == len(operands) else None
        self.assembly.instruction(_name(target), str(op), whole, given, t, at)

    @located
    def returned(self, children: list[Token | _Label | _Read], start: int, end: int) -> None:
        at = self.item(start, end)
        results: list[Operand | None] = []
        names: list[str | None] = []
        for x in children[1:]:
            if isinstance(x, _Label):
                names[-1] = x.name
            elif callable(x):
                results.append(x(at))
                names.append(None)
        self.assembly.returns(results, at, names)

    def label(self, children: list[Token]) -> _Label:
        name = children[-1]
        return _Label(self.guarded(name, unquote, None) if name.type == "STRING" else str(name))

    def operand(self, children: list[Token]) -> _Read:
        name, element = _name(children[0]), children[1].natural if len(children) > 1 else None
        return lambda at: self.assembly.operand(name, element, at)

    def bare(self, children: list[Token]) -> _Read:
        if len(children) > 1:
            message = "an element of a tuple is an operand in parentheses only"
            shown = f"{children[0]}[{children[1]}]"
            self.assembly.error(CODES.syntax, message, children[0].to(children[-1]), help=f"write ({shown})")
            return lambda at: None
        return self.operand(children)

    def literal(self, children: list[Token]) -> _Read:
        payload, t = _payload(children[0]), self.guarded(children[1], read_tensor, None)
        return lambda at: None if t is None else self.assembly.literal(payload, t, at)

    # ---- attributes

    def attributes(self, children: builtins.list[tuple[str, builtins.list[Plain]]]) -> Given:
        return children

    def attr(self, children: tuple[Token, *tuple[Plain, ...]]) -> tuple[str, list[Plain]]:
        name, *values = children
        return str(name), values

    def atom(self, children: list[Token]) -> Plain:
        otherwise: Plain = 0.0
        return self.guarded(children[0], atom, otherwise)

    def value_name(self, children: list[Token]) -> str:
        return _name(children[0])

    def string(self, children: list[Token]) -> str:
        return str(self.guarded(children[0], unquote, ""))

    def payload(self, children: list[Token]) -> Payload:
        return Payload(_payload(children[0]))

    def list(self, children: list[Plain]) -> list[Plain]:
        return children

    def group(self, children: builtins.list[Plain]) -> tuple[Plain, ...]:
        return tuple(children)

    def call(self, children: tuple[Token, *tuple[Plain, ...]]) -> Call:
        return Call(str(children[0]), tuple(children[1:]))

    def entries(self, children: builtins.list[tuple[str, Plain, str | None]]) -> Items:
        return Items(tuple(children))

    def entry(self, children: tuple[Token, Plain, *tuple[Token, ...]]) -> tuple[str, Plain, str | None]:
        key, value, *said = children
        name = str(self.guarded(key, unquote, "")) if key.type == "STRING" else str(key)
        return name, value, str(said[0]) if said else None


def _one(t: Type | _Types | None) -> Type | None:
    """Types in parentheses as the type of a tuple; None when one of them is in error."""
    if not isinstance(t, _Types):
        return t
    types = [x for x in t if x is not None]
    return tuple_of(types) if len(types) == len(t) else None


def _name(token: Token) -> str:
    return str(token).removeprefix("%")


def _function_name(token: Token) -> str:
    text = _name(token).removeprefix("@")
    return unquote(text) if text.startswith('"') else text


def _payload(token: Token) -> str:
    return str(token)[token.index("<") + 1 : -1]
