"""Symbols of a graph: their names, their binding, and the inference of those that RESHAPE and EXPAND determine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from functools import partial
from math import prod

from ptir_tools.core import expressions as ex
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Program, clone
from ptir_tools.core.extents import put
from ptir_tools.core.ir import Function, Op, Value, operand_type
from ptir_tools.core.records import dataclass
from ptir_tools.core.symbols import mentioned, substitute, symbolic
from ptir_tools.core.types import POISON, Dim, Sym, TensorType, Type, sym
from ptir_tools.core.violations import Violation, require
from ptir_tools.dialects.tiny.ops.movement import result_axes
from ptir_tools.dialects.tiny.ops.rules import dim_text
from ptir_tools.rewrite.vocabulary import tensor_type


@dataclass(slots=True, frozen=True)
class Inferred:
    """A symbol that the node `op` determines."""

    name: str
    value: int
    op: Op


def _everything(function: Function) -> Iterator[object]:
    yield from (p.type for p in function.params)
    for op in function.body:
        yield from op.attrs
        yield from (v.type for v in op.results)


def symbols(program: Program) -> list[str]:
    """The names in the extents of `program` that no binding replaces, in order of first appearance."""
    found: dict[str, None] = {}
    for function in program.functions:
        for x in _everything(function):
            for s in mentioned(x):
                found.update((n, None) for n in ex.names(s.name))
    return [n for n in found if n not in program.attrs.get("bindings", {})]


def bind(program: Program, numbers: Mapping[str, int]) -> None:
    """Bind symbols to numbers, which replace those of the program's "dims". They are applied after legalization, because
    `broadcast_dimensions` and implicit EXPANDs depend on the extents as written."""
    program.attrs["bindings"] = program.attrs.get("bindings", {}) | dict(numbers)
    dims = program.attrs.get("dims", {})
    program.attrs["dims"] = {k: v for k, v in dims.items() if k not in numbers}


def bind_now(program: Program, diagnostics: Diagnostics) -> None:
    """Apply pending bindings. An op whose attributes become illegal is reported and becomes poison."""
    numbers = program.attrs.pop("bindings", {})
    if not numbers:
        return
    for function in program.functions:
        for p in function.params:
            p.type = substitute(p.type, lambda s: _put(s, numbers))
        for op in function.body:
            try:
                _bind_op(op, numbers)
            except Violation as violation:
                diagnostics.violation(violation, op.loc)
                op.result.type = POISON
        function.body = [op for op in function.body if op.result.type is not POISON]
        known = {v for op in function.body for v in op.results} | set(function.params)
        lost = dict.fromkeys(v for op in function.body for v in op.values() if v not in known)
        lost.update(dict.fromkeys(x for x in function.results if isinstance(x, Value) and x not in known))
        function.params.extend(lost)
        function.result_types = [operand_type(x) for x in function.results]


def _bind_op(op: Op, numbers: Mapping[str, int]) -> None:
    """Apply bindings to the attributes and the result type. Raises Violation("InvalidArg") for a negative extent."""
    attrs = []
    for a, value in zip(op.defn.attrs, op.attrs, strict=True):
        put = ex.put if a.kind == "Map" else _put
        attrs.append(substitute(value, partial(put, numbers=numbers)))
    op.attrs = tuple(attrs)
    for v in op.results:
        v.type = substitute(v.type, lambda s: _put(s, numbers))


def _put(s: Sym, numbers: Mapping[str, int]) -> Dim:
    found = ex.put(s, numbers)
    require(isinstance(found, Sym) or found >= 0, "InvalidArg", f"the extent {s.name} would be {found}")
    return found


def specialize(program: Program, numbers: dict[str, int]) -> list[Inferred]:
    """Bind every symbol of the entry function, in place: `numbers` (which grows), then "dims", then the symbols that the graph
    determines, which are returned. Every type rule is checked again on the numbers.

    Raises Violation: "AxisAlignmentMismatch" when two sources disagree, "UnboundSymbol" for symbols without a value, and
    whatever a type rule finds.
    """
    inferred = put_dims(program, numbers)
    left = symbols(program)
    help = " ".join(f"--bind {n}=INT" for n in left)
    require(not left, "UnboundSymbol", f"no value for {', '.join(left)}", help=f"give it with {help}")
    return inferred


def put_dims(program: Program, numbers: dict[str, int]) -> list[Inferred]:
    """As `specialize`, for the symbols whose numbers are known."""
    function = program.main
    _merge(numbers, program.attrs.get("dims", {}))
    inferred = infer(function, numbers)
    known = {k: v for k, v in numbers.items() if ex.names(k) == (k,)}
    for p in function.params:
        p.type = substitute(p.type, lambda s: _put(s, known))
    for op in function.body:
        recheck(op, known)
    function.result_types = [operand_type(x) for x in function.results]
    program.attrs["dims"] = {}
    return inferred


def complete(program: Program, numbers: dict[str, int]) -> None:
    """Add to `numbers` the symbols that follow from them and from "dims"; the program is not changed. Raises Violation."""
    put_dims(clone(program), numbers)


def recheck(op: Op, numbers: Mapping[str, int]) -> None:
    """Apply `numbers` to `op` and check its type rule. Raises Violation, located."""
    try:
        _bind_op(op, numbers)
        op.defn.result_types(tuple(map(operand_type, op.operands)), op.attrs)
    except Violation as v:
        raise Violation(v.code, v.message, help=v.help, at=v.at, loc=op.loc) from None


def _merge(numbers: dict[str, int], dims: Mapping[str, int]) -> None:
    """Add "dims" to `numbers`, and the symbols that known extents such as `H*D` determine."""
    for n, value in dims.items():
        other = numbers.setdefault(n, value)
        require(other == value, "AxisAlignmentMismatch", f'{n} is {value} by "dims", but {other} by the inputs')
    for text, value in list(numbers.items()):
        p = ex.parse(text).put({k: ex.constant(v) for k, v in numbers.items() if k != text})
        if ex.names(text) == (text,):
            continue
        if p.value is not None:
            require(p.value == value, "AxisAlignmentMismatch", f"{text} is {value} by the inputs, but {p} by its symbols")
        elif (found := ex.solve_linear(p, value)) is not None:
            name, number = found
            require(number is not None, "AxisAlignmentMismatch", f"no whole {name} makes {text} equal to {value}")
            numbers[name] = number or 0


def given(types: Sequence[Type]) -> set[Sym]:
    """The symbols that INPUTs of these types determine: names, and the unknown in an extent such as `2*N`."""
    known: set[str] = set()
    extents = {s.name: {*ex.names(s.name)} for t in types for s in symbolic(t)}
    while found := {n for text, own in extents.items() if len(own - known) == 1 and _linear(text, known) for n in own - known}:
        known |= found
    return {sym(n) for n in known}


def _linear(text: str, known: set[str]) -> bool:
    """Whether an extent determines its only unknown name."""
    return ex.solve_linear(ex.parse(text).put({n: ex.constant(1) for n in known}), 1) is not None


def determined(op: Op) -> set[Sym]:
    """The symbols that a RESHAPE or an EXPAND may determine, whatever the numbers are."""
    if op.defn.short not in _SOLVERS:
        return set()
    made = op.attr("result_shape")
    if op.defn.short == "EXPAND":
        source = operand_type(op.operands[0])
        places = _places(op, source) if isinstance(source, TensorType) else ()
        made = tuple(made[axis] for d, axis in places if axis is not None and d != 1)
    return {n for s in mentioned(made) for n in ex.symbols_in(s)}


def _equation(op: Op) -> Hashable:
    """A key of the equation of a node: nodes with equal keys determine the same."""
    return op.defn, operand_type(op.operands[0]), op.attrs


def infer(function: Function, numbers: dict[str, int]) -> list[Inferred]:
    """Add to `numbers` the symbols that RESHAPE and EXPAND determine. Sweep in order for certain ones until nothing changes,
    then let the first RESHAPE pair an unknown with the extent opposite, and repeat.

    Raises Violation("AxisSizeMismatch") when a RESHAPE would need a fraction.
    """
    found: list[Inferred] = []
    alike: dict[object, Op] = {}  # ops with equal equations, which determine the same symbols
    for op in function.body:
        if op.defn.short in _SOLVERS:
            alike.setdefault(_equation(op), op)
    waiting = [op for op in alike.values() if any(True for _ in mentioned(op.attrs))]
    changed = True
    while changed and waiting:
        before = len(found)
        for op in waiting:
            found += _learn(op, _SOLVERS[op.defn.short], numbers)
        if len(found) == before:
            pairing = (p for op in waiting if op.defn.short == "RESHAPE" and (p := _learn(op, _pair_opposite, numbers)))
            found += next(pairing, [])
        waiting = [op for op in waiting if any(n not in numbers for s in mentioned(op.attrs) for n in ex.names(s.name))]
        changed = len(found) > before
    return found


Solver = Callable[[Op, TensorType, Mapping[str, int]], Iterator[tuple[str, int]]]


def _learn(op: Op, solver: Solver, numbers: dict[str, int]) -> list[Inferred]:
    source = operand_type(op.operands[0])
    found = [Inferred(n, value, op) for n, value in solver(op, source, numbers)] if isinstance(source, TensorType) else []
    numbers.update((i.name, i.value) for i in found)
    return found


def _sides(op: Op, source: TensorType, numbers: Mapping[str, int]) -> tuple[list[Dim], list[Dim], set[str]]:
    """The extents of a RESHAPE that are not 1, before and after, and the unknown symbols after."""
    before = [d for d in (ex.put(d, numbers) for d in source.shape) if d != 1]
    after = [d for d in (ex.put(d, numbers) for d in op.attr("result_shape")) if d != 1]
    return before, after, {n for d in after if isinstance(d, Sym) for n in ex.names(d.name)}


def _solve_reshape(op: Op, source: TensorType, numbers: Mapping[str, int]) -> Iterator[tuple[str, int]]:
    """A single unknown is a quotient, after equal extents cancel."""
    before, after, _ = _sides(op, source, numbers)
    for d in list(before):
        if d in after:
            before.remove(d)
            after.remove(d)
    unknown = {n for d in after if isinstance(d, Sym) for n in ex.names(d.name)}
    if len(unknown) == 1:
        yield from _divide(op, before, after)


def _pair_opposite(op: Op, source: TensorType, numbers: Mapping[str, int]) -> Iterator[tuple[str, int]]:
    """Of several unknowns: from the right, equal extents cancel, and the first single unknown gets the extent opposite."""
    before, after, unknown = _sides(op, source, numbers)
    for s, d in zip(reversed(before), reversed(after), strict=False):
        if s == d:
            continue
        if len(unknown) > 1 and isinstance(s, int) and isinstance(d, Sym) and d.name in unknown:
            yield d.name, s
        return


def paired(function: Function) -> tuple[dict[str, Dim], set[str]]:
    """The extents that symbols of the graph get by `infer`, and those of them that do so only where no extent is 1."""
    extents: dict[str, Dim] = {}
    known = {s.name for s in given([p.type for p in function.params])}
    waiting, chosen = [op for op in function.body if op.defn.short in _SOLVERS], set[str]()
    while waiting:
        left = [op for op in waiting if not _decided(op, extents, known)]
        if len(left) == len(waiting):
            pair = next((p for op in left if op.defn.short == "RESHAPE" and (p := _opposite(op, extents, known))), None)
            if pair is None:
                break
            extents.update((pair,))
            chosen.add(pair[0])
            known.add(pair[0])
        waiting = left
    return extents, chosen


def _decided(op: Op, extents: dict[str, Dim], known: set[str]) -> bool:
    """Whether all symbols in the result of `op` are known, with those that it determines without a choice."""
    source, made = tensor_type(op.operands[0]), op.attr("result_shape")
    if op.defn.short == "EXPAND":
        pairs = [(d, made[axis]) for d, axis in _places(op, source) if axis is not None and d != 1]
    else:
        before, after = Counter(put(d, extents) for d in source.shape), Counter(put(d, extents) for d in made)
        before, after = before - after - Counter({1: before[1]}), after - before - Counter({1: after[1]})
        pairs = [*zip(before.elements(), after.elements(), strict=True)] if before.total() == after.total() == 1 else []
    for d, s in pairs:
        if isinstance(s, Sym) and s.poly is None and s.name not in known:
            extents[s.name] = put(d, extents)
            known.add(s.name)
    unknown = {n for s in mentioned(made) for n in ex.names(s.name)} - known
    if op.defn.short == "RESHAPE" and len(unknown) == 1:  # PTIR solves it, too
        known |= unknown
        return True
    return not unknown


def _opposite(op: Op, extents: Mapping[str, Dim], known: set[str]) -> tuple[str, Dim] | None:
    """The rightmost symbol of a RESHAPE that is unknown, with the extent opposite; None where others differ before."""
    shapes = tensor_type(op.operands[0]).shape, op.attr("result_shape")
    before, after = ([d for d in (put(d, extents) for d in shape) if d != 1] for shape in shapes)
    for s, d in zip(reversed(before), reversed(after), strict=False):
        if s != d:
            return (d.name, s) if isinstance(d, Sym) and d.poly is None and d.name not in known else None
    return None


def _divide(op: Op, before: list[Dim], after: list[Dim]) -> Iterator[tuple[str, int]]:
    if not all(isinstance(d, int) for d in before):
        return
    total = prod(d for d in before if isinstance(d, int))
    solved = ex.solve_linear(whole := ex.product(after), total) or ex.solve_power(whole, total)
    if solved is None:
        return
    name, value = solved
    if value is None:
        shapes = " x ".join(map(dim_text, after))
        message = f"{total} elements are not {shapes} for any whole {name}"
        raise Violation("AxisSizeMismatch", message, at="result_shape", loc=op.loc)
    yield name, value


def _solve_expand(op: Op, source: TensorType, numbers: Mapping[str, int]) -> Iterator[tuple[str, int]]:
    """An unknown extent of the result gets the known one of its operand axis, unless that is 1."""
    shape = op.attr("result_shape")
    for d, axis in _places(op, source):
        have, want = ex.put(d, numbers), None if axis is None else ex.put(shape[axis], numbers)
        if isinstance(want, Sym) and isinstance(have, int) and have != 1 and ex.names(want.name) == (want.name,):
            yield want.name, have


def _places(op: Op, source: TensorType) -> Iterator[tuple[Dim, int | None]]:
    """Each extent of the operand of an EXPAND with its result axis. A graph that is not legalized may leave these out."""
    return zip(source.shape, result_axes(source.shape, op.attr("result_shape"), op.attr("broadcast_dimensions")), strict=True)


_SOLVERS: dict[str, Solver] = {"RESHAPE": _solve_reshape, "EXPAND": _solve_expand}
