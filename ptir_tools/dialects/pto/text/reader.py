"""Statements to ops: names, results, blocks, and ops with their own form. An error in one statement does not affect others."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from operator import attrgetter

from ptir_tools.core.declare import OPS
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Scope
from ptir_tools.core.dtypes import I1
from ptir_tools.core.ir import Attribute, Function, Literal, Op, OpDef, Operand, Region, Value, operand_type
from ptir_tools.core.lazy import regex
from ptir_tools.core.limits import LimitExceeded, Limits
from ptir_tools.core.source import LENGTH_BITS, Loc, pack
from ptir_tools.core.spelling import did_you_mean, near_names
from ptir_tools.core.typed import Any, TypeAlias
from ptir_tools.core.types import POISON, UNTYPED, Type
from ptir_tools.core.violations import OP_NAME, Violation, key, require
from ptir_tools.dialects.pto import DIALECT
from ptir_tools.dialects.pto import ops as _ops  # noqa: F401  (declares them)
from ptir_tools.dialects.pto.names import inner
from ptir_tools.dialects.pto.text import extents, literals, operands
from ptir_tools.dialects.pto.text.forms import short_name
from ptir_tools.dialects.pto.text.syntax import File, Plan, Statement, entries, parse_piece
from ptir_tools.dialects.pto.text.types import parse_type
from ptir_tools.dialects.pto.types import INDEX_TYPE, scalar
from ptir_tools.dialects.synonyms import same_op
from ptir_tools.grammars.parser import Node, Token, token

Defined: TypeAlias = "list[tuple[Token, Token | Type]]"  # what is defined, and its type as written or known
DEPTH = 192  # of blocks, for the evaluator's recursion
# What differs between statements that are alike: a name, a number in a list, which has no other spelling.
_NUMBER = r"(?:0|-?[1-9][0-9]{0,17})(?=[,\]])"
_HOLE = regex(rf"(%[A-Za-z0-9_$.-]+(?:#\d+)?|(?<=\[){_NUMBER}|(?<=, ){_NUMBER})")
_DECIMAL = regex(r"-?[0-9]+(?:\.[0-9]+)?")
_type = attrgetter("type")
_NAMES = regex(r"%[^\s,]+(?:, %[^\s,]+)*")


class Reader(Scope):
    """Reads one function. A name may be used before its definition; missing ones are reported at the end. Of usual statements
    that differ only in names and indices the grammar reads the first, which becomes the plan of all."""

    __slots__ = ("depth", "ever", "file", "limits", "number", "unknown")

    def __init__(self, diagnostics: Diagnostics, file: File, limits: Limits) -> None:
        super().__init__(DIALECT.codes, diagnostics)
        self.file, self.limits = file, limits
        self.depth = -1  # the body of the function is not in a block
        self.ever: set[str] = set()  # all names that the function defines, except in usual statements
        self.number = cache(literals.index)
        self.unknown: list[tuple[Value, Loc]] = []

    # Names, operands and types

    def bind(self, value: Value, token: Token) -> None:
        """Define a value by its name. A name that is already visible is reported."""
        self.ever.add(value.name)
        self.define(value, token.loc)

    def has(self, name: str) -> bool:
        """Whether a value has this name, which has no `%`."""
        return name in self.values

    def use(self, token: Token) -> Value:
        """The value that a token names. If it is not defined yet, it is checked at the end of the function."""
        name = str(token)[1:]
        if (found := self.values.get(name)) is not None:
            return found
        if name.partition("#")[0] in self.file.lost:
            return Value(POISON, name)
        value = Value(UNTYPED, name)
        self.unknown.append((value, token.loc))
        return value

    def report_unknown(self, function: Function) -> None:
        """Report names that no statement defines. The verifier reports those that are defined too late."""
        if self.unknown:
            self.ever.update(v.name for op in function.ops() for v in op.results)
        known = sorted(self.ever)
        for value, at in self.unknown:
            if value.name not in self.ever and value.name.partition("#")[0] not in self.file.lost:
                help, instead = self.diagnostics.proposed(value.name, known)
                self.diagnostics.error("UndefinedValue", f"%{value.name} is not defined", at, help=help, instead=instead)
                value.type = POISON

    def operand(self, token: Token) -> Operand:
        """A value, or a literal of type index."""
        return self.use(token) if token.type == "SSA" else literals.index(token)

    def operands(self, nodes: Iterable[Node]) -> list[Operand]:
        """The operands of nodes that begin with one."""
        return [self.operand(x.token()) for x in nodes]

    def type(self, token: Token) -> Type:
        """The type of a token; POISON after reporting an error."""
        try:
            return parse_type(str(token))
        except Violation as v:
            at = v.loc + (token.start_pos << LENGTH_BITS) if v.loc else token.loc
            self.diagnostics.error(v.code, v.message, at, help=v.help, instead=v.instead)
            return POISON

    def types(self, tokens: Iterable[Token] | None) -> list[Type]:
        """The types of a list of tokens."""
        return [self.type(t) for t in tokens or ()]

    # Functions and blocks

    def function(self, text: Node) -> Function:
        """A function; its return is its last statement."""
        made = Function(literals.unquoted(text.token("SYMBOL")[1:]), loc=text.loc)
        given = {literals.unquoted(e.token()): e for e in entries(text)}
        symbols = given.pop(extents.KEY, None)
        made.attrs = {key: literals.attribute(e) for key, e in given.items()}
        made.result_types = self.types(text.tokens("types"))
        self.take(made, _parameters(text))
        if symbols is not None:
            try:
                extents.read(made, symbols)
            except Violation as violation:
                self.diagnostics.violation(violation, made.loc)
        self.block(made, text.parts("block")[0].children, "return")
        self.report_unknown(made)
        return made

    def take(self, into: Region, takes: Defined) -> None:
        """Define the parameters of a function or block."""
        for name, t in takes:
            value = Value(self.type(t) if isinstance(t, Token) else t, str(name)[1:])
            into.params.append(value)
            self.bind(value, name)

    def block(self, into: Region, statements: list[Node], end: str, takes: Defined | None = None) -> Region:
        """The parameters and ops of a block. Its last statement may be the terminator `end`, which gives its results. Names
        that are defined inside are not visible afterwards. Raises LimitExceeded where blocks nest too deep."""
        outer, deepest = len(self.values), min(self.limits.nesting, DEPTH)
        self.depth += 1
        if self.depth > deepest:
            raise LimitExceeded(f"blocks nest deeper than {deepest}")
        self.take(into, takes or [])
        for node in statements:
            last = node is statements[-1]
            if node.data != "lines":
                self.one(Statement(node), into, end, last=last)
                continue
            run: list[re.Match[str]] = node.children[0]
            for m in run:
                self.usual(m, into, end, last=last and m is run[-1])
        self.depth -= 1
        while len(self.values) > outer:
            self.values.popitem()  # the last that was defined
        return into

    def one(self, s: Statement, into: Region, end: str, *, last: bool) -> None:
        """The op of a statement that the grammar has read. Errors are reported."""
        try:
            s.results = _count(s)
            if s.name in TERMINATORS:
                self.terminator(s, into, end, last=last)
            elif (op := self.statement(s)) is not None:
                into.body.append(op)
        except Violation as violation:
            if isinstance(violation.at, str) and (place := self.places.get(violation.at.removeprefix("%"))) is not None:
                violation.labels += ((place, f"{violation.at} is defined here"),)
            self.diagnostics.violation(violation, s.loc)
            self.poison(s)
        except LimitExceeded as limit:
            raise limit.at(s.loc) from None

    def poison(self, s: Statement) -> None:
        """Bind the results of a statement with an error, so that no other error follows from it."""
        for t in s.results:
            if str(t)[1:] not in self.values:
                self.bind(Value(POISON, str(t)[1:]), t)

    def terminator(self, s: Statement, into: Region, end: str, *, last: bool) -> None:
        """`return` or `scf.yield`: its results, each of its declared type."""
        expected = "return" if end == "return" else end
        ends = s.name.rpartition(".")[2] == end.rpartition(".")[2]
        require(ends, "ParseError", f"`{s.name}` does not end this block; `{expected}` does")
        require(last, "ParseError", f"`{s.name}` must be the last statement of its block")
        require(not s.results, "ParseError", f"`{s.name}` has no results")
        values = self.operands(s.operands)
        into.results, into.return_loc = list(values), s.loc
        if s.before is not None:
            self.agreeing(values[end == "scf.condition" :], s.before, "values")  # the condition itself is an i1

    def agreeing(self, given: list[Operand], listed: list[Token] | None, nouns: str) -> list[Type]:
        """The types that are listed for operands, which have them. Raises Violation."""
        declared = self.types(listed)
        require(len(declared) == len(given), "TypeMismatch", f"{len(given)} {nouns}, {len(declared)} types")
        for x, t in zip(given, declared, strict=True):
            operands.agree(x, t)
        return declared

    # Statements

    def statement(self, s: Statement) -> Op | None:
        """The op of a statement. Raises Violation."""
        name = s.name
        short = short_name(name)
        prefixed = name.startswith(("pto.", "arith."))
        known = not (prefixed and short.startswith(("scf.", "func.")))  # these have no prefix, and blocks
        special = _SPECIAL.get(short)
        if special is not None and known:
            for entry in s.entries:
                name = literals.unquoted(entry.token())
                raise Violation("UnknownAttribute", f"{short} has no attribute `{name}`", at=key(name))
            return special(self, s)
        defn = OPS.get(f"pto.{short}")
        if defn is None or not prefixed or not known:
            near = _nearest(name)
            help, instead = did_you_mean(near, "`ptir ops` lists the operations"), near[0] if len(near) == 1 else None
            raise Violation("UnknownOp", f"`{name}` is not an op of PTO", help=help, at=OP_NAME, instead=instead)
        return self.finish(s, defn, *operands.read(self, s, defn))

    def finish(
        self, s: Statement, defn: OpDef, args: list[Operand], attrs: dict[str, Attribute], regions: tuple[Region, ...] = ()
    ) -> Op | None:
        """The op with its results bound, and typed as far as possible. The verifier reports what the op's rule refuses. Raises
        Violation for attributes that the op does not have."""
        op = Op(defn, tuple(args), defn.fill(attrs), (), regions, s.loc)
        op.results = tuple(Value(UNTYPED, str(t)[1:], op) for t in s.results)
        if any(a is POISON or (isinstance(a, tuple) and POISON in a) for a in op.attrs):
            self.poison(s)
            return None
        types = tuple(operand_type(x) for x in op.operands)
        if POISON not in types and UNTYPED not in types:
            self.type_results(op, types)
        for value, t in zip(op.results, s.results, strict=True):
            self.bind(value, t)
        return op

    def type_results(self, op: Op, types: tuple[Type, ...]) -> None:
        """Give results the types that the op states, so that later uses can be compared with them."""
        try:
            inferred = op.defn.result_types(types, op.attrs, op.regions)
        except Violation:
            return
        if len(inferred) == len(op.results):
            for v, t in zip(op.results, inferred, strict=True):
                v.type = t

    # Usual statements

    def usual(self, m: re.Match[str], into: Region, end: str, *, last: bool) -> None:
        """The op of a usual statement, by the plan of an earlier one or by the grammar."""
        listed, name, given, types = m.group("results", "op", "given", "types")
        names = listed[1:].split(", %") if listed else []
        known = self.values
        parts = _HOLE.split(given)
        holes = parts[1::2]
        operands: list[Any] = [known.get(x[1:]) if x[0] == "%" else self.number(x) for x in holes]
        clear = None not in operands and known.keys().isdisjoint(names)
        if listed and "," in listed and (len({*names}) < len(names) or not _NAMES.fullmatch(listed)):
            clear = False
        key: tuple[object, ...] = ()
        if clear:
            parts[1::2] = map(_type, operands)
            same = map(holes.index, holes) if len({*holes}) < len(holes) else ()
            key = (len(names), name, types, *parts, *same)
        plan = self.file.plans.get(key)
        if plan is None and clear and name == "pto.constant" and len(names) == 1:
            plan = _constant_plan(given, types)
        if plan is None:
            reported, size = len(self.diagnostics.items), len(into.body)
            if (file := parse_piece(m.string, m.start(), m.end("types"))) is not None:
                self.one(Statement(file.statements[0]), into, end, last=last)
            if clear and len(into.body) > size and len(self.diagnostics.items) == reported:
                self.learn(key, operands, into.body[-1])
            return
        start, made = m.start(), map(operands.__getitem__, plan.operands)
        op = Op(plan.defn, tuple(made), plan.attrs, (), (), pack(start, m.end("types")))
        op.results = tuple([Value(t, n, op) for t, n in zip(plan.types, names, strict=True)])
        for n, v in zip(names, op.results, strict=True):
            known[n], self.places[n] = v, pack(start, start + 1 + len(n))
            start += len(n) + 3
        into.body.append(op)

    def learn(self, key: tuple[object, ...], operands: Sequence[Operand], op: Op) -> None:
        """Keep the result of the grammar for a statement as a plan, if its operands are in the holes."""
        numbers = {_same(x): k for k, x in enumerate(operands)}
        made = [numbers[_same(x)] for x in op.operands if _same(x) in numbers]
        if len(made) == len(op.operands) == len(operands):
            self.file.plans[key] = Plan(op.defn, tuple(made), op.attrs, tuple(v.type for v in op.results))


def _constant_plan(given: str, types: str) -> Plan | None:
    """The plan of a constant, most of which occur once; None when something may have to be reported."""
    if not _DECIMAL.fullmatch(given):
        return None
    defn = OPS["pto.constant"]
    try:
        attrs = defn.fill({"value": literals.scalar(token("NUMBER", given, 0, 0), parse_type(types))})
    except Violation:
        return None
    return Plan(defn, (), attrs, tuple(defn.result_types((), attrs, ())))


def _same(x: Operand) -> object:
    """The common part of two equal operands."""
    return x.key if isinstance(x, Literal) else x


def _count(s: Statement) -> list[Token]:
    """The results, each of those of `%r:2 = ...` with its own name: `%r#0` and `%r#1`. Raises Violation for a number out of
    range."""
    named: list[Token] = []
    for first, *count in s.counted:
        n = 1 if not count else int(count[0][1:]) if len(count[0]) < 8 else 0
        require(0 < n <= _MOST, "ParseError", f"{first}{''.join(count)} is between 1 and {_MOST} results", at="".join(count))
        names = [f"{first}#{k}" for k in range(n)] if n > 1 else [str(first)]
        named += [token("SSA", name, first.start_pos, first.end_pos) for name in names]
    return named


_MOST = 1024  # results of one name


@cache
def _nearest(name: str) -> list[str]:
    """The ops that may be meant. An op may be spelled without its prefix."""
    known = [("" if d.startswith(("pto.scf", "pto.func")) else "pto.") + d[4:] for d in OPS if d.startswith("pto.")]
    tail = name.rpartition(".")[2]
    spelled = (f"pto.{name}", f"pto.tile.{name}", f"pto.tile.{tail}", f"pto.{tail}", f"scf.{tail}", f"pto.tile.{tail[1:]}")
    whole = [k for k in spelled if k in known and (k != spelled[-1] or tail.startswith("t"))]
    whole += [k for k in known if k.endswith(f".{tail}")]
    return whole[:1] or ([same] if (same := same_op(name, known)) is not None else near_names(name, known))


# Statements with a form of their own


def _parameters(node: Node) -> Defined:
    """The names and types that a function or a label lists."""
    found = node.part("parameters")
    return [(x.token("SSA"), x.token("TYPE")) for x in (found.parts("parameter") if found else ())]


def _carried(r: Reader, bindings: list[Node], listed: list[Token] | None) -> tuple[list[Operand], list[Type], Defined]:
    """The values that a loop carries: the initial ones, their types, and the names in its body. Raises Violation."""
    given, types = r.operands(x.parts("operand")[0] for x in bindings), r.types(listed)
    require(len(types) == len(given), "TypeMismatch", f"{len(given)} carried values, {len(types)} types")
    return given, types, [(x.token("SSA"), t) for x, t in zip(bindings, types, strict=True)]


def _constant(r: Reader, s: Statement) -> Op | None:
    require(len(s.operands) == 1 and len(s.before or []) == 1, "ParseError", "a constant is written `pto.constant VALUE : TYPE`")
    t = r.type((s.before or [])[0])
    return r.finish(s, OPS["pto.constant"], [], {"value": literals.scalar(s.operands[0].token(), t)})


def _block(name: str, s: Statement, gives: list[Type]) -> Region:
    """A block of a statement, without ops."""
    return Region(name, isolated=False, loc=s.loc, result_types=gives)


def _for(r: Reader, s: Statement) -> Op | None:
    bounds = r.operands(s.operands)
    bindings = [x for carried in s.node.parts("carried") for x in carried.parts("binding")]
    inits, types, names = _carried(r, bindings, s.node.tokens("carried", "types"))
    first = operand_type(bounds[0])
    index = INDEX_TYPE if first is UNTYPED or isinstance(bounds[0], Literal) else first
    takes = [(s.node.token("SSA"), index), *names]
    body = r.block(_block("body", s, types), s.node.parts("block")[0].children, "scf.yield", takes)
    return r.finish(s, OPS["pto.scf.for"], [*bounds, *inits], {}, (body,))


def _if(r: Reader, s: Statement) -> Op | None:
    condition, types = r.operands(s.operands), r.types(s.before)
    then, otherwise = [*(x.children for x in s.node.parts("block")), []][:2]
    blocks = (
        r.block(_block("then", s, [*types]), then, "scf.yield"),
        r.block(_block("otherwise", s, types), otherwise, "scf.yield"),
    )
    return r.finish(s, OPS["pto.scf.if"], condition, {}, blocks)


def _while(r: Reader, s: Statement) -> Op | None:
    gives = r.types(s.after)
    inits, takes, names = _carried(r, s.node.parts("binding"), s.before)
    label = s.node.part("label")
    params = [] if label is None else _parameters(label)
    require(len(params) == len(gives), "TypeMismatch", f"the block takes {len(params)} values, {len(gives)} are given")
    before, body = (x.children for x in s.node.parts("block"))
    first = r.block(_block("before", s, [scalar(I1), *gives]), before, "scf.condition", names)
    return r.finish(s, OPS["pto.scf.while"], inits, {}, (first, r.block(_block("body", s, takes), body, "scf.yield", params)))


def _call(r: Reader, s: Statement) -> Op | None:
    arguments = r.operands(s.operands)
    r.agreeing(arguments, s.before, "arguments")
    attrs = {"callee": literals.unquoted(s.node.token("SYMBOL")[1:]), "to": tuple(r.types(s.after))}
    return r.finish(s, OPS["pto.func.call"], arguments, attrs)


def _sync(r: Reader, s: Statement) -> Op | None:
    events = [r.operand(t) for t in s.node.tokens("wait")]
    require(bool(events), "ParseError", "pto.sync needs `wait(%event)`; `pto.sync.op` is the barrier")
    if s.before:
        r.agreeing(events, s.before, "events")
    return r.finish(s, OPS["pto.sync"], events, {})


def _sync_op(r: Reader, s: Statement) -> Op | None:
    require(len(s.operands) == 1, "ParseError", "a barrier is written `pto.sync.op #pto.op<TADD>`")
    return r.finish(s, OPS["pto.sync.op"], [], {"opcode": inner(s.operands[0].token())})


TERMINATORS = ("return", "func.return", "scf.yield", "scf.condition")
_SPECIAL: dict[str, Callable[[Reader, Statement], Op | None]] = {
    "constant": _constant,
    "scf.for": _for,
    "scf.if": _if,
    "scf.while": _while,
    "func.call": _call,
    "sync": _sync,
    "sync.op": _sync_op,
}
