"""Symbolic extents: those of a program, and their replacement by numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from ptir_tools.core import extents
from ptir_tools.core.dialect import Program, Stop, clone
from ptir_tools.core.expressions import of_dim, solve_linear, symbols_in
from ptir_tools.core.ir import Branch, Function, Op, Region, operand_type
from ptir_tools.core.records import fields
from ptir_tools.core.source import Loc
from ptir_tools.core.typed import TypeVar, cast
from ptir_tools.core.types import UNKNOWN, Dim, ShapedType, Sym, TensorType, TupleType, Type, interned, tuple_of
from ptir_tools.core.violations import Violation, require

Lookup = Callable[[Sym], Dim | None]
T = TypeVar("T")
DERIVED = "derived"  # attribute of a function: the names of symbols that follow from others, each with its expression


def substitute(x: T, lookup: Lookup) -> T:
    """`x` (an attribute value or a type) with every symbol replaced by the result of `lookup`."""
    return cast("T", _substituted(x, lookup))


def _substituted(x: object, lookup: Lookup) -> object:
    if isinstance(x, Sym):
        return x if x is UNKNOWN else lookup(x)
    if isinstance(x, tuple):
        return tuple(_substituted(e, lookup) for e in x)
    if isinstance(x, Type) and not _is_static(x):
        parts = [getattr(x, f.name) for f in fields(x) if f.init]
        new = [_substituted(p, lookup) for p in parts]
        return x if new == parts else interned(type(x), *new)
    return x


def _is_static(x: Type) -> bool:
    return isinstance(x, TensorType) and x.is_static


def lookup_in(program: Program, numbers: Mapping[str, int]) -> Lookup:
    """The `lookup` of `substitute` that puts `numbers` into extents of `program`."""
    extents = program.dialect.extents
    return numbered(numbers) if extents is None else (lambda s: extents.value(s, numbers))


def numbered(numbers: Mapping[str, int]) -> Lookup:
    """The `lookup` of `substitute` that puts numbers into expressions. `numbers` may grow."""
    found: dict[Sym, Dim] = {}

    def lookup(s: Sym) -> Dim:
        if s is UNKNOWN or s in found:
            return found.get(s, s)
        result = _value(s, numbers)
        if isinstance(result, int):
            found[s] = result
        return result

    return lookup


def _value(s: Sym, numbers: Mapping[str, int]) -> Dim:
    """A symbol, or its number where `numbers` determine it. Raises Violation("DynamicDimensionMismatch") for a negative one."""
    if s.poly is None:
        return numbers.get(s.name, s)
    result = extents.put(s, numbers)
    if isinstance(result, int) and not 0 <= result <= extents.LARGEST:
        values = ", ".join(f"?{n.name} = {numbers[n.name]}" for n in symbols_in(s) if n.name in numbers)
        raise Violation("DynamicDimensionMismatch", f"the extent {extents.text(s)} would be {result} ({values})")
    return result


def infer(program: Program, numbers: dict[str, int]) -> None:
    """Add to `numbers` the symbols that they determine in `program`. Raises Violation if they break a rule."""
    if program.dialect.extents is not None:
        program.dialect.extents.infer(program, numbers)
    elif any(name not in numbers for name in symbols(program)):
        try:
            specialize(clone(program), numbers)
        except Violation as violation:
            if violation.code != "UnboundSymbol":
                raise


def mentioned(x: object) -> Iterator[Sym]:
    """The named symbols in an attribute value or a type, those in its expressions included, in order."""
    for s in symbolic(x):
        yield from (s,) if s.poly is None else symbols_in(s)


def symbolic(x: object) -> Iterator[Sym]:
    """The extents in an attribute value or a type that are symbols or expressions, in order."""
    if isinstance(x, Sym):
        if x is not UNKNOWN:
            yield x
    elif isinstance(x, tuple):
        for e in x:
            yield from symbolic(e)
    elif isinstance(x, Type) and not _is_static(x):
        for f in fields(x):
            yield from symbolic(getattr(x, f.name))


def derive(function: Function, numbers: dict[str, int], code: str = "DynamicDimensionMismatch") -> None:
    """Add to `numbers` the extents that DERIVED of `function` computes from them, and the symbols that follow from the numbers of
    expressions. Raises Violation(code) if an extent would be negative, beyond 64 bits, or need two values."""
    equations: dict[str, Dim] = dict(function.attrs.get(DERIVED, {}))
    equations.update((s.name, s) for p in function.params for s in symbolic(p.type) if s.poly is not None)
    known = -1
    while equations and known != len(numbers):
        known = len(numbers)
        for name, d in equations.items():
            result, total = extents.put(d, numbers), numbers.get(name)
            what = name if name == str(of_dim(d)) else f"{name}, which is {of_dim(d)},"
            if isinstance(result, int):
                require(0 <= result <= extents.LARGEST, code, f"the extent {what} would be {result}")
                require(numbers.setdefault(name, result) == result, code, f"{name} is {total}, but {of_dim(d)} is {result}")
            elif total is not None and (solved := solve_linear(of_dim(result), total)) is not None:
                unknown, number = solved
                require(number is not None, code, f"no integer {unknown} makes {of_dim(d)} equal to {total}")
                numbers[unknown] = number or 0


def symbols(program: Program) -> list[str]:
    """The names of the program's symbols, in order of first appearance."""
    if program.dialect.extents is not None:
        return program.dialect.extents.symbols(program)
    names: dict[str, None] = {}
    for x in _everything(program):
        names.update((s.name, None) for s in mentioned(x))
    for f in program.functions:
        names.update((s.name, None) for s in mentioned(tuple(f.attrs.get(DERIVED, {}).values())))
    return list(names)


def _everything(program: Program) -> dict[object, None]:
    """Attributes and types of a program, each once, in order."""
    seen: dict[object, None] = {}
    for block in program.blocks():
        seen.update(dict.fromkeys([p.type for p in block.params]))
        for op in block.body:
            for x in op.attrs:
                seen[x] = None
            for v in op.results:
                seen[v.type] = None
        seen.update(dict.fromkeys(block.result_types))
    return seen


def bind(program: Program, numbers: Mapping[str, int]) -> None:
    """Replace symbols by numbers in the program, in place. Unknown names are ignored."""
    if program.dialect.extents is not None:
        return program.dialect.extents.bind(program, numbers)
    for block in program.blocks() if numbers else ():
        rewrite_types(block, numbered(numbers))
    for f in program.functions if numbers else ():
        if derived := f.attrs.get(DERIVED):
            f.attrs[DERIVED] = {name: extents.put(d, numbers) for name, d in derived.items()}


def rewrite_types(block: Region, lookup: Lookup) -> None:
    """Replace symbols in the types and attributes of a block by the results of `lookup`."""
    for p in block.params:
        p.type = substitute(p.type, lookup)
    for op in (op for a in block.annotations for op in a.body) if isinstance(block, Function) else ():
        op.attrs = substitute(op.attrs, lookup)
    for op in block.body:
        _bind_op(op, lookup)
    block.result_types = [substitute(t, lookup) for t in block.result_types]


def _bind_op(op: Op, lookup: Lookup) -> None:
    op.attrs = substitute(op.attrs, lookup)
    for v in op.results:
        v.type = substitute(v.type, lookup)


def unify(declared: Type, actual: Type, numbers: dict[str, int], what: str, code: str = "DynamicDimensionMismatch") -> None:
    """Add to `numbers` the symbols that make `declared` equal to the static type `actual`. Raises Violation(code) if a symbol
    would need two values or an extent differs."""
    if isinstance(declared, TupleType) and isinstance(actual, TupleType):
        for a, b in zip(declared.elements, actual.elements, strict=True):
            unify(a, b, numbers, what, code)
    if not (isinstance(declared, ShapedType) and isinstance(actual, ShapedType)):
        return
    for axis, (d, n) in enumerate(zip(declared.shape, actual.shape, strict=True)):
        if not isinstance(n, int) or d is UNKNOWN:
            continue
        want = numbers.setdefault(d.name, n) if isinstance(d, Sym) else d
        if want != n:
            which = f"{d} is {want}" if isinstance(d, Sym) else str(d)
            raise Violation(code, f"{what}: axis {axis} has extent {n}, expected {which}")


def specialize(program: Program, numbers: dict[str, int]) -> None:
    """Make every type of the entry function and of what it reaches static, in place, starting from `numbers` (which grows).

    Raises Violation: "DynamicDimensionMismatch" for a clash, "UnboundSymbol" for a symbol that nothing determines, and
    whatever a type rule finds once it sees the numbers. A branch in which it finds an error stops the run when it is taken.
    """
    if program.dialect.extents is not None:
        program.dialect.extents.specialize(program, numbers)
        return

    derive(program.main, numbers, program.dialect.codes.extent)
    known = -1
    while known != len(numbers):  # an op may mention a symbol that a later one defines
        known, done = len(numbers), dict[Region, None]()
        _specialize_block(program.main, numbers, done, program.dialect.stop)
        left = {s.name: loc for b in reversed(done) for x, loc in reversed(_block_types(b)) for s in mentioned(x)}
        if not left:
            return
    names, loc = ", ".join(reversed(left)), next(reversed(left.values()))
    raise Violation("UnboundSymbol", f"no value for {names}", help="give it with --bind NAME=INT", loc=loc)


def _specialize_block(block: Region, numbers: dict[str, int], done: dict[Region, None], stop: Stop | None) -> None:
    """Replace the symbols of `block`, and of the regions that its ops run, by `numbers`, which grows. Blocks in `done` are
    finished."""
    done[block] = None
    lookup = numbered(numbers)
    _specialize_signature(block, lookup)
    for op in block.body:
        try:
            _specialize_regions(op, numbers, done, stop)
            _specialize_op(op, numbers, lookup)
        except Violation as violation:
            violation.loc = violation.loc or op.loc
            raise
    _specialize_signature(block, lookup)


def _specialize_regions(op: Op, numbers: dict[str, int], done: dict[Region, None], stop: Stop | None) -> None:
    """The regions of `op`. A branch that its type rules refuse becomes one that stops the run, unless all are."""
    refused: dict[Region, Violation] = {}
    for r in op.regions:
        before = len(numbers)
        try:
            if r not in done:
                _specialize_block(r, numbers, done, stop)
            _specialize_signature(r, numbered(numbers))
        except Violation as violation:
            refused[r] = violation
            if stop is None or not isinstance(op.defn.control, Branch) or len(refused) == len(set(op.regions)):
                raise
            for name in list(numbers)[before:]:
                del numbers[name]
    for r, why in refused.items():
        assert stop is not None
        r.result_types = next(other.result_types for other in op.regions if other not in refused)
        r.body = [stop(why, t) for t in r.result_types]
        r.results = [x.result for x in r.body]


def _specialize_signature(block: Region, lookup: Lookup) -> None:
    for p in block.params:
        p.type = substitute(p.type, lookup)
    block.result_types = [substitute(t, lookup) for t in block.result_types]


def _specialize_op(op: Op, numbers: dict[str, int], lookup: Lookup) -> None:
    """Give `op` the result types for its static operand types, and add to `numbers` the symbols that they determine."""
    op.attrs = substitute(op.attrs, lookup)
    for v in op.values():
        v.type = substitute(v.type, lookup)
    types = tuple(map(operand_type, op.operands))
    if op.defn.solve is not None and any(True for _ in mentioned(op.attrs)):
        solved = op.defn.solve(types, op.defn.named(op.attrs))
        numbers.update((name, n) for name, n in solved.items() if isinstance(n, int))
        op.attrs = substitute(op.attrs, lookup)
    for v, t in zip(op.results, op.defn.result_types(types, op.attrs, op.regions), strict=True):
        unify(v.type, t, numbers, f"result of {op.defn.short}")
        v.type = substitute(_known(v.type, t), lookup)


def _known(declared: Type, inferred: Type) -> Type:
    """`declared`, with the inferred extent wherever its own is unknown."""
    if isinstance(declared, TupleType) and isinstance(inferred, TupleType):
        return tuple_of(map(_known, declared.elements, inferred.elements))
    if isinstance(declared, TensorType) and isinstance(inferred, TensorType) and UNKNOWN in declared.shape:
        return declared.with_shape(n if d is UNKNOWN else d for d, n in zip(declared.shape, inferred.shape, strict=True))
    return declared


def _block_types(b: Region) -> list[tuple[Type, Loc]]:
    """The types of parameters and results, each with the place that names it."""
    return [(p.type, b.loc) for p in b.params] + [(v.type, op.loc) for op in b.body for v in op.results]
