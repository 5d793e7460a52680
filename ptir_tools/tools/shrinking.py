"""Edits that make programs smaller, for `reduce`. Each works on a copy and returns whether it changed anything."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import count

from ptir_tools.core import arrays
from ptir_tools.core.dialect import Program
from ptir_tools.core.ir import Element, Function, Literal, Op, Operand, Region, Value
from ptir_tools.core.lazy import regex
from ptir_tools.core.typed import TYPE_CHECKING, Any, TypeVar
from ptir_tools.core.types import TensorType, TupleType, Type, leaves, tuple_of
from ptir_tools.core.violations import Violation
from ptir_tools.rewrite.rewriter import Rewriter

if TYPE_CHECKING:
    import re

T = TypeVar("T")

Edit = Callable[[Program], bool]
Replace = Callable[[Rewriter, Op, Value], "Operand | None"]


def numbered(program: Program, number: int) -> Region:
    """The block with that number; copies have the same numbers."""
    return next(block for i, block in enumerate(program.blocks()) if i == number)


def _around(program: Program, block: Region) -> Region:
    """The function or shared region that is or contains `block`."""
    if block.isolated:
        return block
    return next(top for top in (*program.functions, *program.regions) if any(block in op.regions for op in top.ops()))


def without_functions(span: range) -> Edit:
    """Drop the functions and shared regions with those numbers, except the entry. Ops that refer to one are invalid then."""

    def edit(program: Program) -> bool:
        gone = {b for i, b in enumerate([*program.functions, *program.regions]) if i in span}
        gone = {b for b in gone if not (isinstance(b, Function) and b.name == program.entry)}
        used = {r for b in program.blocks() if b not in gone for op in b.body for r in op.regions}
        gone -= used
        program.functions = [f for f in program.functions if f not in gone]
        program.regions = [r for r in program.regions if r not in gone]
        return bool(gone)

    return edit


def without_hints(program: Program) -> bool:
    """Drop all fusion hints."""
    changed = any(f.annotations for f in program.functions)
    for f in program.functions:
        f.annotations.clear()
    return changed


def without_results(number: int, span: range) -> Edit:
    """Drop results of a function, but not all."""

    def edit(program: Program) -> bool:
        block = numbered(program, number)
        keep = [i for i in range(len(block.results)) if i not in span]
        if not isinstance(block, Function) or len(keep) in (0, len(block.results)):
            return False
        _return(program, block, [block.results[i] for i in keep], keep)
        return True

    return edit


def returning(number: int, at: int) -> Edit:
    """Let a function return only the first result of its op number `at`; drop ops that are then dead."""

    def edit(program: Program) -> bool:
        block = numbered(program, number)
        if not isinstance(block, Function) or not block.results or not (result := block.body[at].results):
            return False
        changed = block.results != [result[0]]
        _return(program, block, [result[0]], [0])
        return changed

    return edit


def _return(program: Program, block: Function, results: list[Operand], named_as: list[int]) -> None:
    """Let `block` return `results`, with the names of its current results number `named_as`; drop ops that are then dead."""
    names = block.attrs.get("output_names")
    with Rewriter(block, program.dialect) as rw:
        rw.set_results(block, results)
        rw.erase_dead()
    if names:
        block.attrs["output_names"] = [names[i] for i in named_as]
    if "outputs" in program.attrs:
        program.attrs["outputs"] = True


def without_parameters(number: int, span: range) -> Edit:
    """Drop parameters of a function that nothing uses."""

    def edit(program: Program) -> bool:
        block = numbered(program, number)
        if not isinstance(block, Function):
            return False
        used = {v for op in block.ops() for v in op.values()} | {x.value if isinstance(x, Element) else x for x in block.results}
        keep = [i for i, p in enumerate(block.params) if i not in span or p in used]
        names = block.attrs.get("input_names")
        if names:
            block.attrs["input_names"] = [names[i] for i in keep]
        changed = len(keep) < len(block.params)
        block.params[:] = [block.params[i] for i in keep]
        return changed

    return edit


def without_ops(number: int, replace: Replace, span: range) -> Edit:
    """Drop the ops of a block at those positions. Users get the value that `replace` finds; without one the op stays."""

    def edit(program: Program) -> bool:
        block, changed = numbered(program, number), False
        with Rewriter(_around(program, block), program.dialect) as rw:
            for op in reversed([op for i, op in enumerate(block.body) if i in span]):
                try:
                    changed |= _drop(rw, op, replace)
                except (
                    Violation,
                    TypeError,
                    KeyError,
                ):  # the dialect has no such constant, or an element of an element would be needed
                    continue
        return changed

    return edit


def _drop(rw: Rewriter, op: Op, replace: Replace) -> bool:
    for v in op.results:
        if not rw.uses(v):
            continue
        if (by := replace(rw, op, v)) is not None:
            rw.replace_all_uses(v, by)
        elif not (isinstance(v.type, TupleType) and rw.replace_elements(v, _elements(rw, op, v.type, replace))):
            return False
    rw.erase(op)
    return True


def _elements(rw: Rewriter, op: Op, t: TupleType, replace: Replace) -> list[Operand]:
    """Replacements of the elements of a tuple. Raises TypeError if one has none."""
    replaced = [replace(rw, op, Value(e)) for e in t.elements]
    if None in replaced:
        raise TypeError(t)
    return [x for x in replaced if x is not None]


def by_operand(rw: Rewriter, op: Op, v: Value) -> Operand | None:
    """An operand of the same type, or a parameter of the block."""
    own = next((x for x in op.operands if isinstance(x, Value) and x.type is v.type), None)
    return own if own is not None else next((p for p in rw.block.params if p.type is v.type), None)


def by_constant(rw: Rewriter, op: Op, v: Value) -> Operand | None:
    """Zeros; None for a constant."""
    zeros = _zeros(v.type)
    return None if zeros is None or op.defn.is_constant else rw.materialize_constant(op, zeros)


def by_parameter(rw: Rewriter, op: Op, v: Value) -> Operand | None:
    """A new parameter of the function; None for a constant."""
    block = rw.block
    if (
        not isinstance(block, Function)
        or rw.block_of(op) is not block
        or op.defn.is_constant
        or not isinstance(v.type, TensorType)
    ):
        return None
    used = {p.name for p in block.params} | {x.name for o in block.ops() for x in o.results}
    name = next(str(k) for k in count(len(block.params)) if str(k) not in used)
    if "input_names" in block.attrs:
        block.attrs["input_names"] = [*block.attrs["input_names"], f"in{name}"]
    block.params.append(result := Value(v.type, name))
    return result


def zeroed(number: int, span: range) -> Edit:
    """Replace the constants of the ops of a block at those positions, inline ones too, by zeros."""

    def edit(program: Program) -> bool:
        changed = False
        for op in (op for i, op in enumerate(numbered(program, number).body) if i in span):
            operands, attrs = tuple(map(_zero, op.operands)), tuple(map(_zero, op.attrs))
            changed |= operands != op.operands or any(a is not b for a, b in zip(attrs, op.attrs, strict=True))
            op.operands, op.attrs = operands, attrs
        return changed

    return edit


def _zero(x: T) -> T | Literal:
    """A literal of zeros for a literal with other values; anything else unchanged."""
    zeros = _zeros(x.type) if isinstance(x, Literal) else None
    return x if zeros is None or not isinstance(x, Literal) or zeros.key == x.key else zeros


def _zeros(t: Type) -> Literal | None:
    if not isinstance(t, TensorType) or not t.is_static or t.count == 0:
        return None
    return Literal(t, bytes(t.dtype.packed_bytes(1)), splat=t.count > 1)


def resized(old: int, new: int, attributes: bool) -> Edit:
    """Make every extent `old` in the types of a program `new`, with constants cut to size. `attributes`: also those equal to
    `old`."""

    def edit(program: Program) -> bool:
        changed = False
        for block in program.blocks():
            for v in block.values():
                changed |= v.type is not (t := _resized(v.type, old, new))
                v.type = t
            for op in block.body:
                op.operands = tuple(_resized(x, old, new) if isinstance(x, Literal) else x for x in op.operands)
                op.attrs = tuple(_resized(x, old, new) if attributes or isinstance(x, Literal) else x for x in op.attrs)
            block.results = [_resized(x, old, new) if isinstance(x, Literal) else x for x in block.results]
            block.result_types = [_resized(t, old, new) for t in block.result_types]
        return changed

    return edit


def extents(program: Program) -> list[int]:
    """The extents above 1 in the types of a program, biggest first."""
    types = (v.type for b in program.blocks() for v in b.values())
    tensors = (leaf for t in types for leaf in leaves(t) if isinstance(leaf, TensorType))
    return sorted({d for t in tensors for d in t.shape if isinstance(d, int) and d > 1}, reverse=True)


def _resized(x: object, old: int, new: int) -> Any:
    """A type, a literal or an attribute with `new` for each `old`."""
    if isinstance(x, tuple):
        return tuple(_resized(e, old, new) for e in x)
    if isinstance(x, TensorType):
        return x.with_shape(_resized(x.shape, old, new)) if old in x.shape else x
    if isinstance(x, TupleType):
        return tuple_of(_resized(t, old, new) for t in x.elements)
    if not isinstance(x, Literal):
        return new if x == old and isinstance(x, int) and not isinstance(x, bool) else x
    t = _resized(x.type, old, new)
    if t is x.type or x.data is None or not x.type.count:
        return Literal(t, x.data, x.splat)
    if x.splat:
        return Literal(t, x.data, splat=t.count > 1)
    return arrays.to_literal(arrays.from_literal(x)[tuple(map(slice, t.shape))], t)


_INTEGER = regex(r"(?<![\w.%?^@-])[0-9]{1,9}(?![\w.])|(?<=x)[0-9]{1,9}(?=[x>,\s])|(?<![\w.%?^@-])[0-9]{1,9}(?=x)")


def _changed(n: int, to: int, found: re.Match[str]) -> str:
    return str(to) if int(found[0]) == n else found[0]


def smaller_numbers(text: str) -> Iterator[tuple[str, str]]:
    """(edit, text) with one number made smaller, at all its places that look like extents; the biggest first."""
    matches = sorted({int(m[0]) for m in _INTEGER.finditer(text)} - {0, 1}, reverse=True)
    for n in matches:
        for smaller in below(n):
            yield f"{n} as {smaller}", _INTEGER.sub(partial(_changed, n, smaller), text)


def below(n: int) -> list[int]:
    """The numbers to try instead of `n`, smallest first."""
    return sorted({k for k in (1, 2, n // 2) if 0 < k < n})
