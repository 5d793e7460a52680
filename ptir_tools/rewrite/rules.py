"""Rewrite rules as text, compiled to data.

    name: left => right if condition  [effect]

A rule begins with its name and may go on over further lines; blank lines and `#` comments are skipped.

The left side is an op with operands and attributes: a name binds an operand, after `attribute=` an attribute. The same name
twice must bind the same thing, or equal constants, at the root results of equal ops, too; `_` binds nothing; a number matches a
constant all of whose elements are that number, also through broadcasts; `(y := op(x))` names an inner result. Before an operand,
`const` asks for a constant, `var` for none, `once` for a value that is used here only. An attribute that is not mentioned has
its default. The op may be a family (`elementwise_unary`): on the right the same name is the op that was matched, with its
attributes. A commutative op matches both orders. The right side is a name, a number (a constant of the root's type) or ops whose
attributes are Python expressions over what was bound, as is the condition. Both see the words of `rewrite.vocabulary` and the
functions given as `helpers`. The effect says what may change in floating point (`rewrite.patterns.Effect`); none is EXACT. The
type of the right side must be that of the root.

Each rule becomes rows (`rewrite.rule_pattern.Row`), kept in a module (`rewrite.rule_files`): a start parses nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from itertools import product

from ptir_tools.core.dialect import Dialect
from ptir_tools.core.ir import ONE, REQUIRED, Derived, Op, OpDef, Value, exact
from ptir_tools.core.lazy import lazy, regex
from ptir_tools.core.typed import TYPE_CHECKING, Any
from ptir_tools.core.types import TensorType
from ptir_tools.rewrite import rule_files
from ptir_tools.rewrite.constants import is_number, same_operand, scalar_of
from ptir_tools.rewrite.patterns import Effect, Pattern, named
from ptir_tools.rewrite.rule_pattern import CONST, Number, RowLook, RuleList, RulePattern, Symbol
from ptir_tools.rewrite.vocabulary import COMMON, constant, has_one_use

if TYPE_CHECKING:
    import ast
else:
    ast = lazy("ast")

Splat = Callable[[TensorType, Number], list[Op]]  # ops the last of which makes a constant with all elements equal
_NAME = regex(r"[\w-]+:(?!=)")
_RULE = regex(
    r"(?P<name>[\w-]+):\s*(?P<left>.*?)\s*=>\s*(?P<right>.*?)(?:\s+if\s+(?P<cond>.*?))?\s*(?:\[(?P<effect>[a-z-]+)\])?\s*$"
)
_MARK = regex(r"\b(const|var|once)\s+(?=[\w(])")
_READING: dict[str, object] = {f.__name__: f for f in (Value, constant, exact, has_one_use, is_number, same_operand, scalar_of)}


def rules(text: str, dialect: Dialect, helpers: Mapping[str, object], splat: Splat, benefit: int = 1) -> list[Pattern]:
    """The patterns of a rule list. Raises ValueError for a rule that makes no sense."""
    made_of = RuleList(dialect, _READING | COMMON | dict(helpers), splat)
    return [RulePattern(row, made_of, benefit) for row in rule_files.rows(text, dialect, compiled)]


def compiled(text: str, dialect: Dialect) -> list[str]:
    """The rows of a rule list, each as the fields of a `Row` in Python. Raises ValueError for a rule that makes no sense."""
    rows: list[str] = []
    for rule in split(text):
        if (m := _RULE.match(rule)) is None:
            raise ValueError(f"not a rule: {rule}")
        rows += _Compiler(m["name"], dialect).rows(m)
    return rows


def split(text: str) -> list[str]:
    """The rules of `text`, each in one line."""
    listed: list[str] = []
    for line in map(str.strip, text.splitlines()):
        if not line or line.startswith("#"):
            continue
        if _NAME.match(line) or not listed:
            listed.append(line)
        else:
            listed[-1] += " " + line
    return listed


def left_side(text: str) -> ast.expr:
    """The syntax of a left side. A marked operand, `const c`, is the product `const @ c`."""
    node: ast.expr = _parse(_MARK.sub(r"\1 @ ", text))
    return node


def unmarked(node: ast.expr) -> tuple[ast.expr, tuple[str, ...]]:
    """An operand of a left side without its marks, and those."""
    marks: tuple[str, ...] = ()
    if isinstance(node, ast.NamedExpr):
        inner, marks = unmarked(node.value)
        return (ast.NamedExpr(node.target, inner), marks) if marks else (node, ())
    while isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
        left = node.left
        while isinstance(left, ast.BinOp):  # `once @ const @ c` is (once @ const) @ c
            marks += (_name(left.right),)
            left = left.left
        marks += (_name(left),)
        node = node.right
    return node, marks


class _Compiler:
    """Compiles one rule; the orders of commutative ops that look different from the root give a row each."""

    def __init__(self, name: str, dialect: Dialect) -> None:
        self.name = name
        self.dialect = dialect
        self.bound: set[str] = {"root", "rw"}
        self.inner: set[str] = set()  # those of them that are operands below the root's
        self.symbols: dict[str, Symbol] = {}  # the symbols of a row's code, besides the vocabulary

    def error(self, message: str) -> ValueError:
        return ValueError(f"rule {self.name}: {message}")

    def rows(self, m: re.Match[str]) -> Iterator[str]:
        left, right, condition = left_side(m["left"]), _parse(m["right"]), m["cond"] or ""
        if not isinstance(left, ast.Call):
            raise self.error("the left side is not an op")
        effect = Effect[(m["effect"] or "exact").upper().replace("-", "_")]
        asks = any(
            isinstance(n, ast.Name) and n.id in ("once", "rw") for n in (*ast.walk(left), *ast.walk(_parse(condition or "0")))
        )
        alike: dict[tuple[tuple[str | None, ...], tuple[tuple[int, float], ...]], list[ast.Call]] = {}
        for call in self.orders(left):
            alike.setdefault((tuple(map(self.wanted, call.args)), tuple(_numbers(call))), []).append(call)
        for (wants, numbers), calls in alike.items():
            self.symbols = {}
            call, stands = calls[0], _name(right)
            tests = [self.left(c, condition) for c in calls]
            if stands and stands not in self.bound:
                raise self.error(f"`{stands}` is not bound")
            names = [stands] if stands else sorted(self.bound - {"root", "rw"})
            result = f"[{stands}]" if stands else f"(root, rw, {''.join(f'{n}, ' for n in names)})"
            match = f"lambda root, rw: {' or '.join(f'{test} and {result}' for test in tests)}"
            build = (
                "None" if stands else f"lambda site, root, rw, {''.join(f'{n}, ' for n in names)}: {self.right(right, top=True)}"
            )
            looks, same = list(dict.fromkeys(x for c in calls for x in self.looks(c))), _same(call)
            depth, looks = max(_depth(call), 2 * bool(same)), [*looks, (None, self.full(call), 0)] if same else looks
            plain = (self.name, self.full(call), int(effect), depth, wants, numbers, tuple(looks), asks, same)
            yield f"{repr((*plain, tuple(self.symbols.values())))[1:-1]}, {match}, {build}"

    # Left sides

    def full(self, call: ast.Call) -> str:
        """The full name of the op or family of `call`."""
        if not isinstance(call.func, ast.Name):
            raise self.error("an op is a plain name")
        return f"{self.dialect.name}.{call.func.id}"

    def defns(self, call: ast.Call) -> list[OpDef]:
        try:
            return named(self.full(call))
        except KeyError:
            raise self.error(f"no op or family `{self.full(call).partition('.')[2]}`") from None

    def orders(self, node: ast.expr) -> list[Any]:
        """`node` with the operands of commutative ops in every order."""
        if isinstance(node, ast.NamedExpr):
            return [ast.NamedExpr(node.target, x) for x in self.orders(node.value)]
        if isinstance(node, ast.BinOp):
            return [ast.BinOp(node.left, node.op, x) for x in self.orders(node.right)]
        if not isinstance(node, ast.Call):
            return [node]
        commutes = len(node.args) == 2 and all(d.commutes for d in self.defns(node))
        commutes = commutes and len({*map(ast.dump, node.args)}) == 2
        ways = [way for args in product(*map(self.orders, node.args)) for way in ([args, args[::-1]] if commutes else [args])]
        return [ast.Call(node.func, list(way), node.keywords) for way in ways] if len(ways) > 1 else [node]

    def wanted(self, node: ast.expr) -> str | None:
        """What may define an operand that `node` matches: an op, a family, a constant; None is anything."""
        node, marks = unmarked(node)
        node = node.value if isinstance(node, ast.NamedExpr) else node
        if isinstance(node, ast.Call):
            self.defns(node)
            return self.full(node)
        return CONST if "const" in marks or not isinstance(node, ast.Name) else None

    def looks(self, call: ast.Call, level: int = 0) -> Iterator[RowLook]:
        """The edges along which the left side looks down."""
        for a in call.args:
            if (below := self.wanted(a)) is not None:
                yield below, self.full(call), level
            inner, _ = unmarked(a)
            inner = inner.value if isinstance(inner, ast.NamedExpr) else inner
            if isinstance(inner, ast.Call):
                yield from self.looks(inner, level + 1)

    def left(self, call: ast.Call, condition: str) -> str:
        """The code of the match: tests joined by `and`."""
        self.bound, self.inner = {"root", "rw"}, set()
        tests = [*self.op(call, "root"), *([f"({condition})"] if condition else [])]
        return " and ".join(tests) or "True"

    def know(self, kind: str, value: object) -> str:
        """The name in the code for a symbol of `rewrite.rule_pattern.RuleList.meaning`."""
        return self.symbols.setdefault(repr((kind, value)), (f"_{len(self.symbols)}", kind, value))[0]

    def op(self, call: ast.Call, op: str) -> Iterator[str]:
        """The tests of the operands and attributes of `op`, which is already known to be one of the right ones."""
        defns = self.defns(call)
        family = call.func.id if len(defns) > 1 and isinstance(call.func, ast.Name) else ""
        if any(g.kind != ONE for d in defns for g in d.groups):  # else it has as many
            yield f"len({op}.operands) == {len(call.args)}"
        yield from self.attributes(call, defns[0], op, bool(family))
        if family:
            self.bound.add(family)
            yield f"[{family} := {op}]"
        checks: list[str] = []  # expensive checks come last
        for i, a in enumerate(call.args):
            yield from self.operand(a, op, f"{op}.operands[{i}]", checks)
        yield from checks

    def operand(self, node: ast.expr, user: str, x: str, checks: list[str]) -> Iterator[str]:
        """The tests of `x`, an operand of `user`; those of its marks are added to `checks`."""
        node, marks = unmarked(node)
        if isinstance(node, ast.NamedExpr):
            yield from self.operand(node.value, user, x, checks)
            yield from self.operand(node.target, user, x, checks)
        elif isinstance(node, ast.Name):
            top = user == "root" and node.id not in self.inner
            if not top and node.id not in self.bound:
                self.inner.add(node.id)
            yield from self.variable(node.id, x, "same_operand({}, {})" if top else "same_operand({}, {}, 0)")
        elif isinstance(node, ast.Call):
            known = self.know("op", self.full(node))
            op = f"{known}_{len(x)}_{x.count('[')}_{sum(map(ord, x))}_op"
            test = "in" if len(self.defns(node)) > 1 else "is"
            yield f"{x}.__class__ is Value and ({op} := {x}.op) and {op}.defn {test} {known}"
            yield from self.op(node, op)
        else:
            yield f"is_number(scalar_of({x}), {self.know('number', ast.literal_eval(node))})"
        for mark in marks:
            checks.append(_MARKS[mark].format(x=x, user=user))

    def variable(self, name: str, x: str, same: str) -> Iterator[str]:
        """Bind `name` to `x`, or test that it is bound to the same."""
        if name in self.bound:
            yield same.format(name, x)
        elif name != "_":
            self.bound.add(name)
            yield f"[{name} := {x}]"  # a list of one is true, whatever it holds

    def attributes(self, call: ast.Call, d: OpDef, op: str, family: bool) -> Iterator[str]:
        given = {k.arg: k.value for k in call.keywords if k.arg}
        if unknown := given.keys() - d.attr_index.keys():
            raise self.error(f"{d.short} has no attribute `{min(unknown)}`")
        for i, a in enumerate(d.attrs):
            node, x = given.get(a.name), f"{op}.attrs[{i}]"
            if isinstance(node, ast.Name):
                yield from self.variable(node.id, x, "exact({}) == exact({})")
            elif node is not None:
                yield f"exact({x}) == {self.know('exact', exact(ast.literal_eval(node)))}"
            elif not family:
                if a.default is REQUIRED or isinstance(a.default, Derived):
                    raise self.error(f"`{d.short}` needs its attribute `{a.name}` here")
                yield f"exact({x}) == {self.know('default', (d.name, a.name))}"

    # Right sides

    def right(self, node: ast.expr, top: bool = False) -> str:
        """The code that builds a right side."""
        if isinstance(node, ast.Name):
            if node.id not in self.bound:
                raise self.error(f"`{node.id}` is not bound")
            return node.id
        if isinstance(node, ast.Call):
            return self.new_op(node)
        if not top:
            raise self.error("a number inside the right side has no type")
        return f"site.number({self.know('number', ast.literal_eval(node))})"

    def new_op(self, call: ast.Call) -> str:
        defns = self.defns(call)
        family = call.func.id if len(defns) > 1 and isinstance(call.func, ast.Name) else ""
        if family and family not in self.bound:
            raise self.error(f"the family `{family}` is not matched on the left")
        operands = "".join(f"{self.right(a)}, " for a in call.args)
        attributes = ", ".join(f"{k.arg!r}: {ast.unparse(k.value)}" for k in call.keywords if k.arg)
        result = f"site.like({family}" if family else f"site.op({self.know('op', self.full(call))}"
        return f"{result}, ({operands}), {{{attributes}}})"


_MARKS = {"const": "constant({x})", "var": "not constant({x})", "once": "has_one_use(rw, {x}, {user})"}


def _parse(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def _name(node: ast.AST) -> str:
    return node.id if isinstance(node, ast.Name) else ""


def _numbers(call: ast.Call) -> Iterator[tuple[int, float]]:
    """The operands of the root, by position, that must be a number."""
    for i, a in enumerate(call.args):
        if not isinstance(a, (ast.Name, ast.NamedExpr, ast.Call, ast.BinOp)):
            yield i, ast.literal_eval(a)


def _same(call: ast.Call) -> tuple[tuple[int, int], ...]:
    """The operands of the root that a name is repeated at."""
    names = {i: a.id for i, a in enumerate(call.args) if isinstance(a, ast.Name) and a.id != "_"}
    return tuple((i, j) for i in names for j in names if i < j and names[i] == names[j])


def _depth(node: ast.expr) -> int:
    """The number of levels of definitions that a left side reads."""
    node, marks = unmarked(node)
    if isinstance(node, ast.NamedExpr):
        return _depth(node.value)
    if isinstance(node, ast.Call):
        return 1 + max(map(_depth, node.args), default=0)
    return 1 if "const" in marks or not isinstance(node, ast.Name) else 0
