"""Statements to ops: results, blocks, ops with a form of their own. What is wrong with one statement leaves the others alone."""

from __future__ import annotations

import re

from ptir_tools.core.declare import OPS
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dtypes import I1
from ptir_tools.core.ir import Function, Literal, Op, OpDef, Operand, Region, Value, operand_type
from ptir_tools.core.lazy import regex
from ptir_tools.core.source import pack
from ptir_tools.core.spelling import did_you_mean, near_names
from ptir_tools.core.typed import TYPE_CHECKING, Any
from ptir_tools.core.types import POISON, UNTYPED, Type
from ptir_tools.core.violations import OP_NAME, Violation, key, require
from ptir_tools.dialects.pto import ops as _ops  # noqa: F401  (declares them)
from ptir_tools.dialects.pto.text import extents, literals, operands
from ptir_tools.dialects.pto.text.forms import short_name
from ptir_tools.dialects.pto.text.lines import Plan, Usual
from ptir_tools.dialects.pto.text.scope import Scope
from ptir_tools.dialects.pto.text.syntax import FunctionText, Lines, Statement, parse_piece
from ptir_tools.dialects.pto.text.types import parse_type
from ptir_tools.dialects.pto.types import INDEX_TYPE, scalar
from ptir_tools.dialects.synonyms import same_op
from ptir_tools.grammars.parser import token

if TYPE_CHECKING:
    from ptir_tools.core.limits import Limits
    from ptir_tools.grammars.parser import Token

# What differs between statements that are alike: a name without its `%`, a number in a list.
_HOLE = regex(r"((?<=%)[A-Za-z0-9_$.-]+(?:#\d+)?|(?<=\[)-?[0-9]+(?=[,\]])|(?<=, )-?[0-9]+(?=[,\]]))")
_NAMES = regex(r"%[^\s,]+(?:, %[^\s,]+)*")
_NUMBER = regex(r"-?[0-9]+(?:\.[0-9]+)?")


class Reader(Scope):
    """Reads one function, of statements and runs of usual ones. Of usual statements that differ only in names and indices, the
    grammar reads one: it is the plan of all."""

    def __init__(self, diagnostics: Diagnostics, lost: set[str], limits: Limits, lines: Usual) -> None:
        super().__init__(diagnostics, lost, limits)
        self.lines = lines

    # Functions and blocks

    def function(self, text: FunctionText) -> Function:
        """A function; its return is its last statement."""
        name = literals.unquoted(str(text.name)[1:])
        made = Function(name, loc=pack(text.start, text.end))
        given = {literals.unquoted(e.key): e for e in text.attributes}
        symbols = given.pop(extents.KEY, None)
        made.attrs = {key: literals.attribute(e) for key, e in given.items()}
        made.result_types = self.types(text.results)
        for ssa, t in text.parameters:
            value = Value(self.type(t), str(ssa)[1:])
            made.params.append(value)
            self.bind(value, ssa)
        try:
            if symbols is not None:
                extents.read(made, symbols)
        except Violation as violation:
            self.diagnostics.violation(violation, made.loc)
        self.block(text.body, made, "return")
        self.report_unknown()
        return made

    def block(self, statements: list[Statement | Lines], into: Region, end: str) -> None:
        """The ops of a block. Its last statement may be the terminator `end`, which gives its results."""
        for i, s in enumerate(statements):
            last = i == len(statements) - 1
            if isinstance(s, Statement):
                self.one(s, into, end, last=last)
                continue
            run = self.lines.runs[s.taken]
            for m in run:
                whole = m is not run[0] or m.start() == s.start  # else some of its results are before what was taken
                if whole and (op := self.usual(m)) is not None:
                    into.body.append(op)
                else:
                    self.one(_statement(m, m.start() if whole else s.start), into, end, last=last and m is run[-1])

    def one(self, s: Statement, into: Region, end: str, *, last: bool) -> None:
        """The op of a statement that the grammar has read; what is wrong with it is reported."""
        try:
            _count(s)
            if str(s.name) in TERMINATORS:
                self.terminator(s, into, end, last=last)
            elif (op := self.statement(s)) is not None:
                into.body.append(op)
        except Violation as violation:
            self.diagnostics.violation(violation, s.loc)
            self.poison(s)

    def poison(self, s: Statement) -> None:
        """Bind the results of a statement in error, so that their uses stay silent."""
        for t in s.results:
            if str(t)[1:] not in self.values:
                self.bind(Value(POISON, str(t)[1:]), t)

    def terminator(self, s: Statement, into: Region, end: str, *, last: bool) -> None:
        """`return` or `scf.yield`: results, each of the type it is declared with."""
        name = str(s.name)
        shown = "return" if end == "return" else end
        require(
            name.rpartition(".")[2] == end.rpartition(".")[2], "ParseError", f"`{name}` does not end this block; `{shown}` does"
        )
        require(last, "ParseError", f"`{name}` must be the last statement of its block")
        require(not s.results, "ParseError", f"`{name}` has no results")
        values = [self.use(x.token) if x.token.type == "SSA" else literals.index(x.token) for x in s.operands]
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
        name = str(s.name)
        short = short_name(name)
        special = _SPECIAL.get(short)
        if special is not None:
            for name in self.entries(s):
                raise Violation("UnknownAttribute", f"{short} has no attribute `{name}`", at=key(name))
            return special(self, s)
        defn = OPS.get(f"pto.{short}")
        if defn is None or not name.startswith(("pto.", "arith.")):
            near = _nearest(name)
            help, instead = did_you_mean(near, "`ptir ops` lists the operations"), near[0] if len(near) == 1 else None
            raise Violation("UnknownOp", f"`{name}` is not an op of PTO", help=help, at=OP_NAME, instead=instead)
        return self.finish(s, defn, *operands.read(self, s, defn))

    def finish(
        self, s: Statement, defn: OpDef, args: list[Operand], attrs: dict[str, Any], regions: tuple[Region, ...] = ()
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
        if any(n in known for n in names) or (len(names) > 1 and len({*names}) < len(names)):
            return None
        parts = _HOLE.split(given)
        operands = [_operand(before, text, known) for before, text in zip(parts[::2], parts[1::2], strict=False)]
        if None in operands:
            return None
        key = (len(names), name, types, *parts[::2], *[x.type for x in operands if x])
        plan = self.lines.plans.get(key)
        if plan is None:
            if (plan := self.plan(m, parts, [x.type for x in operands if x], len(names))) is None:
                return None
            self.lines.plans[key] = plan
        start = _start(m)
        op = Op(plan.defn, tuple([operands[x] if isinstance(x, int) else x for x in plan.operands]), plan.attrs)  # type: ignore[misc]
        op.loc = pack(start, m.end("types"))
        op.results = tuple([Value(t, n, op) for t, n in zip(plan.types, names, strict=True)])
        for v in op.results:
            end = start + 1 + len(v.name)
            known[v.name] = (v, pack(start, end))
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
        reader, values = Reader(Diagnostics(), set(), self.limits, Usual()), [Value(t, str(k)) for k, t in enumerate(operands)]
        reader.values = {v.name: (v, 0) for v in values}
        holes: dict[Operand, int] = {v: k for k, v in enumerate(values)}
        try:
            if short_name(name) == "constant" and _NUMBER.fullmatch(given):
                return _constant_plan(m)
            file = parse_piece(f"{named}{name} {filled} : {types}")
            op = reader.statement(file.statements[0]) if file is not None and isinstance(file.statements[0], Statement) else None
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


def _operand(before: str, text: str, known: dict[str, tuple[Value, Any]]) -> Value | Literal | None:
    """The value or number in a hole; None for a name that is not defined, and for what is not an index."""
    if before.endswith("%"):
        bound = known.get(text)
        return None if bound is None else bound[0]
    try:
        return literals.index(text)
    except Violation:
        return None


def _start(m: re.Match[str]) -> int:
    """Where a usual statement begins."""
    return m.start("results") if m["results"] else m.start("op")


def _statement(m: re.Match[str], start: int) -> Statement:
    """A usual statement that begins at `start`, as the grammar reads it."""
    file = parse_piece(m.string, start, m.end("types"))
    assert file is not None
    statement = file.statements[0]
    assert isinstance(statement, Statement)
    return statement


def _count(s: Statement) -> None:
    """Give each of the results of `%r:2 = ...` its own name: `%r#0` and `%r#1`. Raises Violation for a number out of range."""
    named: list[Token] = []
    for t in s.results:
        if t.type != "COUNT":
            named.append(t)
            continue
        n, first = int(t[1:]) if len(t) < 8 else 0, named.pop()
        s.results = [first, *(x for x in s.results if x.type != "COUNT" and x is not first)]
        require(0 < n <= _MOST, "ParseError", f"{first}{t} is between 1 and {_MOST} results", at=str(t))
        names = [f"{first}#{k}" for k in range(n)] if n > 1 else [str(first)]
        named += [token("SSA", name, first.start_pos, first.end_pos) for name in names]
    s.results = named


_MOST = 1024  # results of one name


def _nearest(name: str) -> list[str]:
    """The ops that may be meant: one that is written without its prefix is."""
    known = [("" if d.startswith(("pto.scf", "pto.func")) else "pto.") + d[4:] for d in OPS if d.startswith("pto.")]
    tail = name.rpartition(".")[2]
    whole = [k for k in (f"pto.{name}", f"pto.tile.{name}", f"pto.tile.{tail}", f"pto.{tail}", f"scf.{tail}") if k in known]
    return whole[:1] or ([same] if (same := same_op(name, known)) is not None else near_names(name, known))


# Statements with a form of their own


def _constant(r: Reader, s: Statement) -> Op | None:
    require(len(s.operands) == 1 and len(s.before or []) == 1, "ParseError", "a constant is written `pto.constant VALUE : TYPE`")
    t = r.type((s.before or [])[0])
    literal = literals.scalar(s.operands[0].token, t)
    return r.finish(s, OPS["pto.constant"], [], {"value": literal})


def _subview(r: Reader, s: Statement) -> Op | None:
    form = "a view is written `pto.memref.subview %m[offsets] [sizes] [strides] : MEMREF to MEMREF`"
    require(len(s.operands) == 1 and len(s.operands[0].subscripts) == 3, "ParseError", form)
    require(len(s.before or []) == 1 and len(s.after or []) == 1, "ParseError", form)
    source = r.use(s.operands[0].token)
    operands.agree("operand 0", source, r.types(s.before)[0])
    parts = [[r.operand(t) for t in part] for part in s.operands[0].subscripts]
    lengths = (1, *map(len, parts))
    defn = OPS["pto.memref.subview"]
    to = r.types(s.after)[0]
    return r.finish(s, defn, [source, *parts[0], *parts[1], *parts[2]], {"to": to, "segments": lengths})


def _for(r: Reader, s: Statement) -> Op | None:
    bounds = [r.operand(x.token) for x in s.operands]
    inits = [r.operand(x.token) for _, x in s.carried]
    types = r.types(s.before) if s.carried else []
    require(len(types) == len(inits), "TypeMismatch", f"{len(inits)} values are carried, {len(types)} types are declared")
    body = Region("body", isolated=False, loc=s.loc, result_types=list(types))
    assert s.induction is not None
    with r.inside():
        first = operand_type(bounds[0])
        index = Value(INDEX_TYPE if first is UNTYPED or isinstance(bounds[0], Literal) else first, str(s.induction)[1:])
        for token, t in [(s.induction, None), *[(token, t) for (token, _), t in zip(s.carried, types, strict=True)]]:
            value = index if t is None else Value(t, str(token)[1:])
            body.params.append(value)
            r.bind(value, token)
        r.block(s.blocks[0], body, "scf.yield")
    defn = OPS["pto.scf.for"]
    return r.finish(s, defn, [*bounds, *inits], {}, (body,))


def _if(r: Reader, s: Statement) -> Op | None:
    condition = r.operand(s.operands[0].token)
    types = r.types(s.after)
    blocks = []
    for name, statements in zip(("then", "otherwise"), [*s.blocks, []], strict=False):
        block = Region(name, isolated=False, loc=s.loc, result_types=list(types))
        with r.inside():
            r.block(statements, block, "scf.yield")
        blocks.append(block)
    return r.finish(s, OPS["pto.scf.if"], [condition], {}, tuple(blocks))


def _while(r: Reader, s: Statement) -> Op | None:
    inits = [r.operand(x.token) for _, x in s.carried]
    takes, gives = r.types(s.before), r.types(s.after)
    require(len(takes) == len(inits), "TypeMismatch", f"{len(inits)} values are carried, {len(takes)} types are declared")
    require(
        len(s.parameters) == len(gives), "TypeMismatch", f"the block takes {len(s.parameters)} values, {len(gives)} are given"
    )
    blocks = []
    params = ([(token, t) for (token, _), t in zip(s.carried, takes, strict=True)], [(n, r.type(t)) for n, t in s.parameters])
    ends, results = ("scf.condition", "scf.yield"), ([scalar(I1), *gives], list(takes))
    for name, statements, own, end, given in zip(("before", "body"), s.blocks, params, ends, results, strict=True):
        block = Region(name, isolated=False, loc=s.loc, result_types=given)
        with r.inside():
            for token, t in own:
                block.params.append(value := Value(t, str(token)[1:]))
                r.bind(value, token)
            r.block(statements, block, end)
        blocks.append(block)
    return r.finish(s, OPS["pto.scf.while"], list(inits), {}, tuple(blocks))


def _call(r: Reader, s: Statement) -> Op | None:
    assert s.symbol is not None
    arguments = [r.operand(x.token) for x in s.operands]
    declared = r.types(s.before)
    require(len(declared) == len(arguments), "TypeMismatch", f"{len(arguments)} arguments, {len(declared)} types")
    for i, (x, t) in enumerate(zip(arguments, declared, strict=True)):
        operands.agree(f"argument {i}", x, t)
    attrs = {"callee": literals.unquoted(str(s.symbol)[1:]), "to": tuple(r.types(s.after))}
    return r.finish(s, OPS["pto.func.call"], arguments, attrs)


def _sync(r: Reader, s: Statement) -> Op | None:
    events = [r.use(t) for t in s.waits]
    require(bool(events), "ParseError", "pto.sync needs `wait(%event)`; `pto.sync.op` is the barrier")
    declared = r.types(s.before)
    require(not declared or len(declared) == len(events), "TypeMismatch", f"{len(events)} events, {len(declared)} types")
    for i, (x, t) in enumerate(zip(events, declared, strict=False)):
        operands.agree(f"event {i}", x, t)
    return r.finish(s, OPS["pto.sync"], list(events), {})


def _sync_op(r: Reader, s: Statement) -> Op | None:
    require(len(s.operands) == 1, "ParseError", "a barrier is written `pto.sync.op #pto.op<TADD>`")
    return r.finish(s, OPS["pto.sync.op"], [], {"opcode": literals.plain(s.operands[0].token)})


TERMINATORS = ("return", "func.return", "scf.yield", "scf.condition")
_SPECIAL = {
    "constant": _constant,
    "memref.subview": _subview,
    "scf.for": _for,
    "scf.if": _if,
    "scf.while": _while,
    "func.call": _call,
    "sync": _sync,
    "sync.op": _sync_op,
}
