"""Statements to ops: names, results, blocks, ops with a form of their own. What is wrong with one leaves the others alone."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache

from ptir_tools.core.declare import OPS
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dtypes import I1
from ptir_tools.core.ir import Attribute, Function, Literal, Op, OpDef, Operand, Region, Value, operand_type
from ptir_tools.core.lazy import regex
from ptir_tools.core.limits import LimitExceeded, Limits
from ptir_tools.core.source import pack
from ptir_tools.core.spelling import did_you_mean, near_names
from ptir_tools.core.typed import TypeAlias
from ptir_tools.core.types import POISON, UNTYPED, Type
from ptir_tools.core.violations import OP_NAME, Violation, key, require
from ptir_tools.dialects.pto import ops as _ops  # noqa: F401  (declares them)
from ptir_tools.dialects.pto.names import inner
from ptir_tools.dialects.pto.text import extents, literals, operands
from ptir_tools.dialects.pto.text.forms import short_name
from ptir_tools.dialects.pto.text.scope import FunctionScope
from ptir_tools.dialects.pto.text.syntax import File, Plan, Statement, entries, parse_piece
from ptir_tools.dialects.pto.text.types import parse_type
from ptir_tools.dialects.pto.types import INDEX_TYPE, scalar
from ptir_tools.dialects.synonyms import same_op
from ptir_tools.grammars.parser import Node, Token, token

Defined: TypeAlias = "list[tuple[Token, Token | Type]]"  # what is defined, and its type as written or known
DEPTH = 192  # of blocks: what the evaluator's recursion can follow
# What differs between statements that are alike: a name without its `%`, a number in a list.
_HOLE = regex(r"((?<=%)[A-Za-z0-9_$.-]+(?:#\d+)?|(?<=\[)-?[0-9]+(?=[,\]])|(?<=, )-?[0-9]+(?=[,\]]))")
_NAMES = regex(r"%[^\s,]+(?:, %[^\s,]+)*")
_NUMBER = regex(r"-?[0-9]+(?:\.[0-9]+)?")


class Reader(FunctionScope):
    """Reads one function, of statements and runs of usual ones. Of usual statements that differ only in names and indices, the
    grammar reads one: it is the plan of all."""

    __slots__ = ("depth", "limits")

    def __init__(self, diagnostics: Diagnostics, file: File, limits: Limits) -> None:
        super().__init__(diagnostics, file)
        self.limits = limits
        self.depth = -1  # the body of the function is not in a block

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
        self.report_unknown()
        return made

    def take(self, into: Region, takes: Defined) -> None:
        """Define what a function or a block takes."""
        for name, t in takes:
            value = Value(self.type(t) if isinstance(t, Token) else t, str(name)[1:])
            into.params.append(value)
            self.bind(value, name)

    def block(self, into: Region, statements: list[Node], end: str, takes: Defined | None = None) -> Region:
        """What a block takes, and its ops. Its last statement may be the terminator `end`, which gives its results.

        Names defined within are not seen after. Raises LimitExceeded where blocks nest too deep.
        """
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
                if (op := self.usual(m)) is not None:
                    into.body.append(op)
                elif (file := parse_piece(m.string, m.start(), m.end("types"))) is not None:
                    self.one(Statement(file.statements[0]), into, end, last=last and m is run[-1])
        self.depth -= 1
        while len(self.values) > outer:
            self.values.popitem()  # the last that was defined
        return into

    def one(self, s: Statement, into: Region, end: str, *, last: bool) -> None:
        """The op of a statement that the grammar has read; what is wrong with it is reported."""
        try:
            s.results = _count(s)
            if s.name in TERMINATORS:
                self.terminator(s, into, end, last=last)
            elif (op := self.statement(s)) is not None:
                into.body.append(op)
        except Violation as violation:
            self.diagnostics.violation(violation, s.loc)
            self.poison(s)
        except LimitExceeded as limit:
            raise limit.at(s.loc) from None

    def poison(self, s: Statement) -> None:
        """Bind the results of a statement in error, so that their uses stay silent."""
        for t in s.results:
            if str(t)[1:] not in self.values:
                self.bind(Value(POISON, str(t)[1:]), t)

    def terminator(self, s: Statement, into: Region, end: str, *, last: bool) -> None:
        """`return` or `scf.yield`: results, each of the type it is declared with."""
        name = s.name
        shown = "return" if end == "return" else end
        require(
            name.rpartition(".")[2] == end.rpartition(".")[2], "ParseError", f"`{name}` does not end this block; `{shown}` does"
        )
        require(last, "ParseError", f"`{name}` must be the last statement of its block")
        require(not s.results, "ParseError", f"`{name}` has no results")
        values = self.operands(s.operands)
        into.results, into.return_loc = list(values), s.loc
        declared = self.types(s.before)
        if end == "scf.condition":
            values = values[1:]  # the condition itself is an i1
        require(not declared or len(declared) == len(values), "TypeMismatch", f"{len(values)} values, {len(declared)} types")
        for x, t in zip(values, declared, strict=False):
            operands.agree(f"`{operands.shown(x)}`", x, t)

    # Statements

    def statement(self, s: Statement) -> Op | None:
        """The op of a statement. Raises Violation."""
        name = s.name
        short = short_name(name)
        special = _SPECIAL.get(short)
        if special is not None:
            for entry in s.entries:
                name = literals.unquoted(entry.token())
                raise Violation("UnknownAttribute", f"{short} has no attribute `{name}`", at=key(name))
            return special(self, s)
        defn = OPS.get(f"pto.{short}")
        if defn is None or not name.startswith(("pto.", "arith.")):
            near = _nearest(name)
            help, instead = did_you_mean(near, "`ptir ops` lists the operations"), near[0] if len(near) == 1 else None
            raise Violation("UnknownOp", f"`{name}` is not an op of PTO", help=help, at=OP_NAME, instead=instead)
        return self.finish(s, defn, *operands.read(self, s, defn))

    def finish(
        self, s: Statement, defn: OpDef, args: list[Operand], attrs: dict[str, Attribute], regions: tuple[Region, ...] = ()
    ) -> Op | None:
        """The op with its results bound, and typed as far as can be decided; what the op's rule refuses, the verifier reports.

        Raises Violation for attributes that the op does not have.
        """
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
        """Give results the types that the op states, so that uses further down can be compared with them."""
        try:
            inferred = op.defn.result_types(types, op.attrs, op.regions)
        except Violation:
            return
        if len(inferred) == len(op.results):
            for v, t in zip(op.results, inferred, strict=True):
                v.type = t

    # Usual statements

    def usual(self, m: re.Match[str]) -> Op | None:
        """The op of a statement, its results bound; None when there is something to report, or it ends a block."""
        listed, name, given, types = m.group("results", "op", "given", "types")
        names = listed[1:].split(", %") if listed else []
        if listed and "," in listed and not _NAMES.fullmatch(listed):
            return None
        known = self.values
        if not known.keys().isdisjoint(names) or (len(names) > 1 and len({*names}) < len(names)):
            return None
        parts = _HOLE.split(given)
        operands = [_operand(before, text, known) for before, text in zip(parts[::2], parts[1::2], strict=False)]
        if None in operands:
            return None
        key = (len(names), name, types, *parts[::2], *[x.type for x in operands if x])
        plan = self.file.plans.get(key)
        if plan is None:
            if (plan := self.plan(m, parts, [x.type for x in operands if x], len(names))) is None:
                return None
            self.file.plans[key] = plan
        start = m.start("results" if listed else "op")
        op = Op(plan.defn, tuple([operands[x] if isinstance(x, int) else x for x in plan.operands]), plan.attrs)  # type: ignore[misc]
        op.loc = pack(start, m.end("types"))
        op.results = tuple([Value(t, n, op) for t, n in zip(plan.types, names, strict=True)])
        for v in op.results:
            end = start + 1 + len(v.name)
            known[v.name], self.places[v.name] = v, pack(start, end)
            start = end + 2
        self.ever.update(names)
        return op

    def plan(self, m: re.Match[str], parts: list[str], operands: list[Type], results: int) -> Plan | None:
        """What a statement makes of operands of these types; None when there is something to report, or one is not an operand of
        the op. The grammar reads it with a name for each, its number."""
        name, given, types = m.group("op", "given", "types")
        if name in TERMINATORS:
            return None
        named = ", ".join(f"%r{k}" for k in range(results)) + " = " * (results > 0)
        filled = "".join(f"{before.removesuffix('%')}%{k}" for k, before in enumerate(parts[:-1:2])) + parts[-1]
        reader, values = Reader(Diagnostics(), File([], [], []), self.limits), [Value(t, str(k)) for k, t in enumerate(operands)]
        reader.values = {v.name: v for v in values}
        holes: dict[Operand, int] = {v: k for k, v in enumerate(values)}
        try:
            if short_name(name) == "constant" and _NUMBER.fullmatch(given):
                return _constant_plan(m)
            file = parse_piece(f"{named}{name} {filled} : {types}")
            op = None if file is None else reader.statement(Statement(file.statements[0]))
        except Violation:
            return None
        if op is None or reader.diagnostics.items or not holes.keys() <= {*op.operands}:
            return None
        made = tuple([x if isinstance(x, Literal) else holes[x] for x in op.operands])
        return Plan(op.defn, made, op.attrs, tuple(v.type for v in op.results))


def _constant_plan(m: re.Match[str]) -> Plan:
    """The plan of a constant. Raises Violation."""
    listed, given, types = m.group("results", "given", "types")
    if not listed or "," in listed:
        raise Violation("ParseError", "a constant has one result")
    defn = OPS["pto.constant"]
    attrs = defn.fill({"value": literals.scalar(token("NUMBER", given, 0, 0), parse_type(types))})
    return Plan(defn, (), attrs, tuple(defn.result_types((), attrs, ())))


def _operand(before: str, text: str, known: dict[str, Value]) -> Value | Literal | None:
    """The value or number in a hole; None for a name that is not defined, and for what is not an index."""
    if before.endswith("%"):
        return known.get(text)
    try:
        return literals.index(text)
    except Violation:
        return None


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
    """The ops that may be meant: one that is written without its prefix is."""
    known = [("" if d.startswith(("pto.scf", "pto.func")) else "pto.") + d[4:] for d in OPS if d.startswith("pto.")]
    tail = name.rpartition(".")[2]
    whole = [k for k in (f"pto.{name}", f"pto.tile.{name}", f"pto.tile.{tail}", f"pto.{tail}", f"scf.{tail}") if k in known]
    return whole[:1] or ([same] if (same := same_op(name, known)) is not None else near_names(name, known))


# Statements with a form of their own


def _parameters(node: Node) -> Defined:
    """The names and types that a function or a label lists."""
    found = node.part("parameters")
    return [(x.token("SSA"), x.token("TYPE")) for x in (found.parts("parameter") if found else ())]


def _agreeing(r: Reader, what: str, given: list[Operand], listed: list[Token] | None, nouns: str) -> None:
    """Each operand has the type that is listed for it. Raises Violation."""
    declared = r.types(listed)
    require(len(declared) == len(given), "TypeMismatch", f"{len(given)} {nouns}, {len(declared)} types")
    for i, (x, t) in enumerate(zip(given, declared, strict=True)):
        operands.agree(f"{what} {i}", x, t)


def _carried(r: Reader, bindings: list[Node], listed: list[Token] | None) -> tuple[list[Operand], list[Type], Defined]:
    """What a loop carries: the values to begin with, their types, and the names in its body. Raises Violation."""
    given, types = r.operands(x.parts("operand")[0] for x in bindings), r.types(listed)
    message = f"{len(given)} values are carried, {len(types)} types are declared"
    require(len(types) == len(given), "TypeMismatch", message)
    return given, types, [(x.token("SSA"), t) for x, t in zip(bindings, types, strict=True)]


def _constant(r: Reader, s: Statement) -> Op | None:
    require(len(s.operands) == 1 and len(s.before or []) == 1, "ParseError", "a constant is written `pto.constant VALUE : TYPE`")
    t = r.type((s.before or [])[0])
    return r.finish(s, OPS["pto.constant"], [], {"value": literals.scalar(s.operands[0].token(), t)})


def _block(name: str, s: Statement, gives: list[Type]) -> Region:
    """A block of a statement, still empty."""
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
    _agreeing(r, "argument", arguments, s.before, "arguments")
    attrs = {"callee": literals.unquoted(s.node.token("SYMBOL")[1:]), "to": tuple(r.types(s.after))}
    return r.finish(s, OPS["pto.func.call"], arguments, attrs)


def _sync(r: Reader, s: Statement) -> Op | None:
    events = [r.operand(t) for t in s.node.tokens("wait")]
    require(bool(events), "ParseError", "pto.sync needs `wait(%event)`; `pto.sync.op` is the barrier")
    if s.before:
        _agreeing(r, "event", events, s.before, "events")
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
