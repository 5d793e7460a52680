"""Precomputes values that depend on constants and one parameter of known value: prepared weights.

`params=FILE` (.npz or .safetensors) has values by parameter name; other parameters are arguments. With `output=FILE` each
result becomes a new parameter, and FILE gets the values of all remaining known parameters. Without it the result becomes a
constant. Unused parameters are dropped. Random ops, ops that fail, tuples, and movement with a result larger than its operand
stay.
"""

from __future__ import annotations

from collections.abc import Mapping

from ptir_tools.core import arrayfiles, arrays
from ptir_tools.core.diagnostics import UsageError
from ptir_tools.core.dialect import Program
from ptir_tools.core.evaluate import Context, Data, computed, read
from ptir_tools.core.files import replacing
from ptir_tools.core.ir import MOVEMENT, Element, Literal, Op, Value
from ptir_tools.core.typed import TYPE_CHECKING
from ptir_tools.core.types import TensorType
from ptir_tools.dialects.ptir.rewrites.speculation import draws
from ptir_tools.passes import PassContext
from ptir_tools.passes.ptir.dce import drop_parameters
from ptir_tools.rewrite.rewriter import Rewriter

if TYPE_CHECKING:
    from ptir_tools.core.arrays import Array

OPTIONS = {"params": "", "output": ""}
WRITES = ("output",)


def run(program: Program, context: PassContext) -> None:
    """Precompute values that depend on one parameter whose value a file gives: as constants, or as parameters in a new file."""
    source, output = context.options["params"], context.options["output"]
    if not source:
        raise UsageError("pass `param-fold` needs the values of parameters: param-fold{params=FILE}")
    known = fold(program, arrayfiles.load_all(source), context, constants=not output)
    if output:
        with replacing(output) as file:
            arrayfiles.save(output, file, known)


def fold(program: Program, given: Mapping[str, Array], context: PassContext, *, constants: bool = False) -> dict[str, Array]:
    """Fold the entry of `program` with the values `given`. The values of the remaining known parameters. `constants`: results
    become constants, not parameters. Raises UsageError for a value of another dtype or shape."""
    function = program.main
    known = {p: _value(p, given[p.name]) for p in function.params if p.name in given}
    context.known.update({p.name: x for p, x in known.items()})
    with context.rewriter(program, function) as rw:
        computed = _Computed(known, context, constants)
        for op in rw.body():
            computed.add(op)
        for op in [op for op in rw.body() if computed.leaves(op, rw)]:
            if not context.step("fold", op):
                break
            v, array = op.result, computed.values[op.result]
            context.count("folded")
            if constants:
                assert isinstance(v.type, TensorType)
                rw.replace_all_uses(v, rw.materialize_constant(op, arrays.to_literal(array, v.type)))
            else:
                known[p := Value(v.type, v.name)] = context.known[v.name] = array
                rw.replace_all_uses(v, p)
                function.params.append(p)
        context.count("erased", rw.erase_dead() if rw.edits else 0)
        drop_parameters(function, {p for p in computed.read if not rw.uses(p)})
    context.edits += rw.edits
    return {p.name: known[p] for p in function.params if p in known}


class _Computed:
    """The values that depend on at most one known parameter. `origin` is that parameter (None: only constants), `values` the
    value. `read` are the parameters on which moved results depend."""

    def __init__(self, known: Mapping[Value, Array], context: PassContext, constants: bool) -> None:
        self.values: dict[Value, Data] = dict(known)
        self.origin: dict[Value, Value | None] = {p: p for p in known}
        self.read: dict[Value, None] = {}
        self.context = context
        self.constants = constants  # whether results become constants

    def add(self, op: Op) -> None:
        """Compute `op` if its operands are known."""
        origins = {self.origin.get(x) for x in op.operands if isinstance(x, Value)} - {None}
        here = all(isinstance(x, Literal) or (isinstance(x, Value) and x in self.origin) for x in op.operands)
        if not here or len(origins) > 1 or not _computable(op) or (origins and _grows(op)):
            return
        operands = [read(x, self.values) for x in op.operands]
        if (result := computed(op, operands, Context())) is None:
            return
        self.values[op.result] = result
        self.origin[op.result] = next(iter(origins), None)

    def leaves(self, op: Op, rw: Rewriter) -> bool:
        """Whether `op` depends on a parameter, and its result is used by something that depends on more."""
        v = op.result if len(op.results) == 1 else None
        if v is None or (origin := self.origin.get(v)) is None or (self.constants and not self._suits(v, rw)):
            return False
        if not rw.is_result(v) and all(self.origin.get(u.results[0]) is origin for u in rw.users_of(v)):
            return False
        self.read[origin] = None
        return True

    def _suits(self, v: Value, rw: Rewriter) -> bool:
        """Whether the users of `v` accept a constant."""
        assert isinstance(v.type, TensorType)
        by = arrays.to_literal(self.values[v], v.type)
        return rw.users_accept(v, lambda x: by if x is v else x)


def _computable(op: Op) -> bool:
    """Whether `op` may be computed in advance."""
    t = op.results[0].type if len(op.results) == 1 else None
    if not isinstance(t, TensorType) or not t.is_static or not op.defn.is_pure or draws(op):
        return False
    return not any(isinstance(x, Literal) and x.data is None for x in (*op.operands, *op.attrs))


def _grows(op: Op) -> bool:
    """Whether `op` is movement with a result larger than its operand."""
    return MOVEMENT in op.defn.traits and _count(op.result) > sum(map(_count, op.operands))


def _count(x: Value | Element | Literal) -> int:
    t = None if isinstance(x, Element) else x.type
    return t.count if isinstance(t, TensorType) and t.is_static else 0


def _value(p: Value, array: Array) -> Array:
    """`array` as a value of the parameter `p`. Raises UsageError if it has another dtype or shape."""
    t = p.type
    try:
        result = arrayfiles.as_dtype(array, t.dtype) if isinstance(t, TensorType) else None
    except ValueError as bad:
        raise UsageError(f"parameter `{p.name}` is {t}, which cannot hold {bad}") from None
    if result is None or not isinstance(t, TensorType):
        raise UsageError(f"parameter `{p.name}` is {t}, its value is an array of {array.dtype}")
    if len(t.shape) != array.ndim or any(isinstance(d, int) and d != n for d, n in zip(t.shape, array.shape, strict=True)):
        raise UsageError(f"parameter `{p.name}` is {t}, its value has the shape {list(array.shape)}")
    return result
