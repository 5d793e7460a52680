"""Rewrite rules as text, compiled to patterns.

    name: left => right if condition  [effect]

A rule begins with its name and may go on over further lines; blank lines and `#` comments are skipped.

The left side is an op with operands and attributes: a name binds an operand, after `attribute=` an attribute; the same name
twice must bind the same thing, or equal constants, at the root results of equal ops, too; `_` binds nothing; a number matches a
constant all of whose elements are that number, also through broadcasts; `(y := op(x))` names an inner result. An attribute that
is not mentioned has its default. The op may be a family (`elementwise_unary`): on the right the same name is the op that was
matched, with its attributes. A commutative op matches both orders. The right side is a name, a number (a constant of the root's
type) or ops whose attributes are Python expressions over what was bound, as is the condition; both see the functions given as
`helpers`. The effect says what may change in floating point (`rewrite.patterns.Effect`); none is EXACT. The type of the right
side must be that of the root.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from itertools import product
from typing import Any

from ptir_tools.core.diagnostics import Violation
from ptir_tools.core.dialect import Dialect
from ptir_tools.core.ir import Literal, Op, Operand, Value
from ptir_tools.core.opdef import COMMUTES, ONE, OPS, REQUIRED, Derived, OpDef, create, exact
from ptir_tools.core.types import TensorType
from ptir_tools.rewrite.constants import is_number, same_operand, scalar_of
from ptir_tools.rewrite.patterns import Effect, Look, Pattern, named, variadic
from ptir_tools.rewrite.rule_pattern import Env, RulePattern, Site, compiled

Splat = Callable[[TensorType, Any], list[Op]]  # ops the last of which makes a constant with all elements equal
_NAME = re.compile(r"[\w-]+:(?!=)")
_RULE = re.compile(
    r"(?P<name>[\w-]+):\s*(?P<left>.*?)\s*=>\s*(?P<right>.*?)(?:\s+if\s+(?P<cond>.*?))?\s*(?:\[(?P<effect>[a-z-]+)\])?\s*$"
)


def rules(text: str, dialect: Dialect, helpers: Mapping[str, Any], splat: Splat, benefit: int = 1) -> list[Pattern]:
    """The patterns of a rule list. Raises ValueError for a rule that makes no sense."""
    patterns: list[Pattern] = []
    for rule in _split(text):
        if (m := _RULE.match(rule)) is None:
            raise ValueError(f"not a rule: {rule}")
        patterns += _Compiler(m["name"], dialect, helpers, splat).patterns(m, benefit)
    return patterns


def _split(text: str) -> list[str]:
    """The rules of `text`, each in one line."""
    found: list[str] = []
    for line in map(str.strip, text.splitlines()):
        if not line or line.startswith("#"):
            continue
        if _NAME.match(line) or not found:
            found.append(line)
        else:
            found[-1] += " " + line
    return found


class _Compiler:
    """Compiles one rule; the orders of commutative ops that look different from the root give a pattern each."""

    def __init__(self, name: str, dialect: Dialect, helpers: Mapping[str, Any], splat: Splat) -> None:
        self.name = name
        self.dialect = dialect
        self.helpers = dict(helpers)
        self.splat = splat
        self.bound: set[str] = {"root", "rw"}
        self.inner: set[str] = set()  # those of them that are operands below the root's
        self.known: dict[str, Any] = {}
        self.constant = _constants(dialect.name)

    def error(self, message: str) -> ValueError:
        return ValueError(f"rule {self.name}: {message}")

    def patterns(self, m: re.Match[str], benefit: int) -> Iterator[Pattern]:
        left = _parse(m["left"])
        if not isinstance(left, ast.Call):
            raise self.error("the left side is not an op")
        right, condition = _parse(m["right"]), m["cond"] or ""
        effect = Effect[(m["effect"] or "exact").upper().replace("-", "_")]
        constants, asked = _calls(condition)
        alike: dict[Any, list[ast.Call]] = {}
        for call in self.orders(left):
            wants = tuple(self.constant if _name(a) in constants else self.wanted(a) for a in call.args)
            alike.setdefault((wants, tuple(_numbers(call))), []).append(call)
        for (wants, numbers), calls in alike.items():
            self.known = _READING | self.helpers
            text = " or ".join(self.left(call, condition) for call in calls)
            call = calls[0]
            roots = tuple(d.name for d in self.defns(call))
            build, stands = self.right(right, top=True), _name(right)
            looks, further = [x for c in calls for x in self.looks(c)], list(self.further_looks(call, bool(constants)))
            uses = [*(looks if asked else ()), *(further if asked & constants else ())]
            yield RulePattern(
                name=self.name, roots=roots, benefit=benefit, depth=max(_depth(call), 2 * bool(further)), effect=effect,
                wants=wants, numbers=numbers, looks=[*looks, *further], uses=uses, same=_same(call),
                text=f"lambda root, rw: {text}", known=self.known, build=build, stands=stands,
            )  # fmt: skip

    # Left sides

    def defns(self, call: ast.Call) -> list[OpDef]:
        if not isinstance(call.func, ast.Name):
            raise self.error("an op is a plain name")
        try:
            return named(f"{self.dialect.name}.{call.func.id}")
        except KeyError:
            raise self.error(f"no op or family `{call.func.id}`") from None

    def orders(self, node: ast.expr) -> list[Any]:
        """`node` with the operands of commutative ops in every order."""
        if isinstance(node, ast.NamedExpr):
            return [ast.NamedExpr(node.target, x) for x in self.orders(node.value)]
        if not isinstance(node, ast.Call):
            return [node]
        commutes = len(node.args) == 2 and all(COMMUTES in d.traits for d in self.defns(node))
        commutes = commutes and len({*map(ast.dump, node.args)}) == 2
        ways = [way for args in product(*map(self.orders, node.args)) for way in ([args, args[::-1]] if commutes else [args])]
        return [ast.Call(node.func, list(way), node.keywords) for way in ways] if len(ways) > 1 else [node]

    def wanted(self, node: ast.expr) -> frozenset[Any] | None:
        """What may define an operand that `node` matches; None is anything."""
        node = node.value if isinstance(node, ast.NamedExpr) else node
        if isinstance(node, ast.Call):
            return frozenset(self.defns(node))
        return None if isinstance(node, ast.Name) else self.constant

    def looks(self, call: ast.Call, level: int = 0) -> Iterator[Look]:
        """From where to where the left side looks."""
        for a in call.args:
            inner = a.value if isinstance(a, ast.NamedExpr) else a
            below = self.wanted(inner) or ()
            yield from ((d, user, level) for d in below if isinstance(d, OpDef) for user in self.defns(call))
            if isinstance(inner, ast.Call):
                yield from self.looks(inner, level + 1)

    def further_looks(self, call: ast.Call, constants: bool) -> Iterator[Look]:
        """From the root to what makes the operands that must be equal, or a constant that a condition asks for."""
        below: list[OpDef | None] = [None] if _same(call) else [d for d in self.constant if isinstance(d, OpDef)]
        if _same(call) or constants:
            yield from ((d, user, 0) for d in below for user in self.defns(call))

    def left(self, call: ast.Call, condition: str) -> str:
        """The text of the match: tests joined by `and`, the last of which is what they bound."""
        self.bound, self.inner = {"root", "rw"}, set()
        tests = [*self.op(call, "root"), *([f"({condition})"] if condition else [])]
        names = ", ".join(f"{n!r}: {n}" for n in sorted(self.bound))
        return f"{' and '.join(tests)} and {{{names}}}"

    def know(self, value: Any) -> str:
        """How the text calls `value`."""
        name = f"_{len(self.known)}"
        self.known[name] = value
        return name

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
        for i, a in enumerate(call.args):
            yield from self.operand(a, f"{op}.operands[{i}]")

    def operand(self, node: ast.expr, x: str) -> Iterator[str]:
        if isinstance(node, ast.Name):
            top = x.startswith("root.") and node.id not in self.inner
            if not top and node.id not in self.bound:
                self.inner.add(node.id)
            yield from self.variable(node.id, x, "same_operand({}, {})" if top else "same_operand({}, {}, 0)")
        elif isinstance(node, ast.NamedExpr):
            yield from self.operand(node.value, x)
            yield from self.operand(node.target, x)
        elif isinstance(node, ast.Call):
            defns = self.defns(node)
            known = self.know(frozenset(defns) if len(defns) > 1 else defns[0])
            op = f"{known}_op"
            yield f"{x}.__class__ is Value and ({op} := {x}.op) and {op}.defn {'in' if len(defns) > 1 else 'is'} {known}"
            yield from self.op(node, op)
        else:
            yield f"is_number(scalar_of({x}), {self.know(ast.literal_eval(node))})"

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
                yield f"exact({x}) == {self.know(exact(ast.literal_eval(node)))}"
            elif not family:
                if a.default is REQUIRED or isinstance(a.default, Derived):
                    raise self.error(f"`{d.short}` needs its attribute `{a.name}` here")
                yield f"exact({x}) == {self.know(exact(a.default))}"

    # Right sides and conditions

    def expression(self, node: ast.expr) -> Callable[[Env], Any]:
        """A Python expression over what the left side binds, compiled when first wanted."""
        bound = self.bound

        @cache
        def made() -> tuple[Callable[..., Any], list[str]]:
            used = sorted({n.id for n in ast.walk(node) if isinstance(n, ast.Name)} & bound)
            return compiled(f"lambda {', '.join(used)}: {ast.unparse(node)}", self.name, self.helpers), used

        def value(env: Env) -> Any:
            function, used = made()
            return function(*[env[n] for n in used])

        return value

    def right(self, node: ast.expr, top: bool = False) -> Callable[[Env, Site], Operand]:
        if isinstance(node, ast.Name):
            name = node.id
            if name not in self.bound:
                raise self.error(f"`{name}` is not bound")
            return lambda env, site: env[name]
        if isinstance(node, ast.Call):
            return self.new_op(node)
        if not top:
            raise self.error("a number inside the right side has no type")
        return self.number(ast.literal_eval(node))

    def number(self, number: Any) -> Callable[[Env, Site], Operand]:
        def build(env: Env, site: Site) -> Operand:
            if not isinstance(site.result.type, TensorType):
                raise Violation("TypeMismatch", "a number needs a tensor type")
            site.ops += self.splat(site.result.type, number)
            return site.ops[-1].results[0]

        return build

    def new_op(self, call: ast.Call) -> Callable[[Env, Site], Operand]:
        defns = self.defns(call)
        family = call.func.id if len(defns) > 1 and isinstance(call.func, ast.Name) else ""
        if family and family not in self.bound:
            raise self.error(f"the family `{family}` is not matched on the left")
        operands = [self.right(a) for a in call.args]
        attributes = {k.arg: self.expression(k.value) for k in call.keywords if k.arg}

        def build(env: Env, site: Site) -> Operand:
            d = env[family].defn if family else defns[0]
            given = d.named(env[family].attrs) if family else {}
            given |= {name: f(env) for name, f in attributes.items()}
            built = [b(env, site) for b in operands]
            new = create(d, [built] if variadic(d) else built, given)
            site.ops.append(new)
            return new.results[0]

        return build


@cache
def _constants(dialect: str) -> frozenset[Any]:
    """What a constant of a dialect may come from."""
    made = (d for d in OPS.values() if d.name.startswith(f"{dialect}."))
    return frozenset((Literal, *(d for d in made if d.is_constant or d.short == "broadcast_to")))


def _parse(text: str) -> Any:
    return ast.parse(text, mode="eval").body


def _calls(condition: str) -> tuple[set[str], set[str]]:
    """The names that a condition asks to be constants (`constant(a) and …`), and those of which it asks the rewriter something
    (`alone(rw, y, root)`)."""
    if "constant(" not in condition and "rw" not in condition:
        return set(), set()
    node = _parse(condition)
    parts = node.values if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And) else [node]
    constants = {_name(n.args[0]) for n in parts if isinstance(n, ast.Call) and _name(n.func) == "constant"}
    arguments = [{*map(_name, n.args)} for n in ast.walk(node) if isinstance(n, ast.Call)]
    return constants, {name for names in arguments if "rw" in names for name in names} - {"rw", ""}


def _name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else ""


def _numbers(call: ast.Call) -> Iterator[tuple[int, Any]]:
    """The operands of the root, by position, that must be a number."""
    for i, a in enumerate(call.args):
        if not isinstance(a, (ast.Name, ast.NamedExpr, ast.Call)):
            yield i, ast.literal_eval(a)


def _same(call: ast.Call) -> list[tuple[int, int]]:
    """The operands of the root that a name is repeated at."""
    names = {i: a.id for i, a in enumerate(call.args) if isinstance(a, ast.Name) and a.id != "_"}
    return [(i, j) for i in names for j in names if i < j and names[i] == names[j]]


def _depth(node: ast.expr) -> int:
    """Levels of definitions that a left side looks at."""
    if isinstance(node, ast.NamedExpr):
        return _depth(node.value)
    if isinstance(node, ast.Call):
        return 1 + max(map(_depth, node.args), default=0)
    return 0 if isinstance(node, ast.Name) else 1


_READING: dict[str, Any] = {f.__name__: f for f in (Value, exact, is_number, same_operand, scalar_of)}
