"""The table of a function that says which of its symbols are expressions: `where ?T = ?past + ?new`.

In a program such an extent is the expression itself, so that equal expressions are one extent; `symbols.DERIVED` of the function
has the names. Formats that spell names only write a program of plain symbols (`spelled`), and readers put the expressions back
(`put_in`). Where nothing says it, the op that computes an extent defines the symbol that its type declares (`define`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from ptir_tools.core import extents
from ptir_tools.core.definers import reached
from ptir_tools.core.dialect import Program, clone
from ptir_tools.core.expressions import of_dim, symbols_in
from ptir_tools.core.ir import MEASURES, Function, Op, Region, operand_type
from ptir_tools.core.symbols import DERIVED, Lookup, mentioned, rewrite_types, substitute, symbolic
from ptir_tools.core.types import POISON, UNKNOWN, UNTYPED, Dim, Sym, TensorType, TupleType, Type, sym
from ptir_tools.core.violations import Violation, require

Table = Mapping[str, Dim]


def types_of(blocks: Iterable[Region]) -> dict[Type, None]:
    """The types of parameters, op results and block results, each once, in order."""
    seen: dict[Type, None] = {}
    for block in blocks:
        seen.update(dict.fromkeys([p.type for p in block.params]))
        seen.update(dict.fromkeys(block.result_types))
        seen.update(dict.fromkeys([v.type for op in block.body for v in op.results]))
    return seen


def expressions_in(blocks: Iterable[Region]) -> list[Sym]:
    """The extents in types of `blocks` that are expressions, each once, in order of first use."""
    return list(dict.fromkeys(s for t in types_of(blocks) for s in symbolic(t) if s.poly is not None))


# ---- writing


def spelled(program: Program) -> Program:
    """A copy in which every expression is a plain symbol, with the tables of the functions; the program itself if it has none.
    A table keeps what no type uses if it can be negative, since the program must not run then."""
    if not expressions_in(program.blocks()) and not any(DERIVED in f.attrs for f in program.functions):
        return program
    result = clone(program)
    names = _names(result)
    tables = [_table(f, names) for f in result.functions]
    for block in result.blocks():
        rewrite_types(block, lambda s: names.get(s, s))
    for f, table in zip(result.functions, tables, strict=True):
        f.attrs[DERIVED] = table
    return result


def _table(function: Function, names: Mapping[Sym, Sym]) -> dict[str, Sym]:
    """The names of the expressions in a function's types, and its checks: others in its table that may be negative."""
    used = expressions_in(reached([function]))
    others = ((name, d) for name, d in function.attrs.get(DERIVED, {}).items() if isinstance(d, Sym) and d not in used)
    checks = {name: d for name, d in others if extents.bounds(of_dim(d))[0] < 0}
    return {names[s].name: s for s in used} | checks


def _names(program: Program) -> dict[Sym, Sym]:
    """A name for every expression: that of a function's table, else the next free one of ?D0, ?D1, …."""
    used = {s.name for t in types_of(program.blocks()) for s in mentioned(t)}
    names: dict[Sym, Sym] = {}
    for f in program.functions:
        for name, d in f.attrs.get(DERIVED, {}).items():
            if isinstance(d, Sym) and d.poly is not None and d not in names and name not in used:
                names[d] = sym(name)
                used.add(name)
    fresh = (name for n in range(1 << 30) if (name := f"D{n}") not in used)
    for s in expressions_in(program.blocks()):
        if s not in names:
            names[s] = sym(next(fresh))
    return names


# ---- reading


def put_in(function: Function, table: Table) -> None:
    """Replace the symbols of `table` in a function, and in the regions that it runs, by their expressions, which may have symbols
    of the table. Raises Violation("InvalidArg") when one depends on itself."""
    if not table:
        return
    resolved: dict[str, Dim] = {}
    for name in table:
        _resolve(name, table, resolved, ())
    for block in reached([function]):
        rewrite_types(block, _lookup(resolved))
    function.attrs[DERIVED] = resolved


def _resolve(name: str, table: Table, resolved: dict[str, Dim], outer: tuple[str, ...]) -> None:
    require(name not in outer, "InvalidArg", f"?{name} depends on itself", at=name)
    d = table[name]
    if name in resolved:
        return
    for s in symbols_in(d) if isinstance(d, Sym) else ():
        if s.name in table:
            _resolve(s.name, table, resolved, (*outer, name))
    resolved[name] = extents.put(d, resolved)


def _lookup(table: Table) -> Lookup:
    return lambda s: s if s is UNKNOWN else extents.put(s, table)


# ---- inference


def define(program: Program) -> None:
    """Give the symbols that only the types of results declare the expressions that the ops compute, in place."""
    if program.dialect.extents is not None:
        return
    shared = _shared(program) if len(program.functions) > 1 else set()
    for f in program.functions:
        blocks = reached([f])
        named = {s for t in types_of(blocks) for s in mentioned(t)}
        if open_ := named - {s for p in f.params for s in mentioned(p.type)} - shared:
            table = _defined(blocks, open_)
            if table:
                known = f.attrs.get(DERIVED, {})
                put_in(f, table)
                f.attrs[DERIVED] = {**{name: extents.put(d, f.attrs[DERIVED]) for name, d in known.items()}, **f.attrs[DERIVED]}


def _shared(program: Program) -> set[Sym]:
    """The symbols in regions that several functions run."""
    seen: set[Region] = set()
    found: set[Sym] = set()
    for f in program.functions:
        regions = {b for b in reached([f]) if b is not f}
        found.update(s for t in types_of(regions & seen) for s in mentioned(t))
        seen |= regions
    return found


def _defined(blocks: list[Region], open_: set[Sym]) -> dict[str, Dim]:
    """The symbols of `open_` that ops define, each with its expression."""
    table: dict[str, Dim] = {}
    lookup = _lookup(table)
    for op in (op for block in reversed(blocks) for op in block.body):
        if MEASURES not in op.defn.traits:
            continue
        fresh = {s for v in op.results for s in mentioned(v.type) if s in open_ and s.name not in table}
        if not fresh:
            continue
        for s, d in _equations(op, lookup, fresh):
            d = extents.put(d, table)
            if s in fresh and s.name not in table and s not in set(mentioned((d,))):
                table[s.name] = d
    return table


def _equations(op: Op, lookup: Lookup, fresh: set[Sym]) -> Iterator[tuple[Sym, Dim]]:
    """The symbols of `fresh` in the declared result types of `op`, each with an extent that the type rule or `solve` gives."""
    try:
        types = tuple(substitute(operand_type(x), lookup) for x in op.operands)
        if POISON in types or UNTYPED in types:
            return
        attrs = substitute(op.attrs, lookup)
        if op.defn.solve is not None:
            given = set(mentioned(attrs)) - fresh
            yield from ((sym(name), d) for name, d in op.defn.solve(types, op.defn.named(attrs), given).items())
        inferred = op.defn.result_types(types, attrs, op.regions)
    except Violation:  # the verifier reports it
        return
    for v, t in zip(op.results, inferred, strict=False):
        yield from _pairs(v.type, t)


def _pairs(declared: Type, inferred: Type) -> Iterator[tuple[Sym, Dim]]:
    if isinstance(declared, TupleType) and isinstance(inferred, TupleType):
        for a, b in zip(declared.elements, inferred.elements, strict=False):
            yield from _pairs(a, b)
    elif isinstance(declared, TensorType) and isinstance(inferred, TensorType):
        for d, n in zip(declared.shape, inferred.shape, strict=False):
            if isinstance(d, Sym) and d is not UNKNOWN and d.poly is None and n is not UNKNOWN and n is not d:
                yield d, n
