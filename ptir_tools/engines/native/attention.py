"""Two products with a cluster between them, as in attention, block of rows by block of rows: what is between is never there as
a whole, and stays in cache."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from math import prod

from ptir_tools.core.dtypes import F32
from ptir_tools.core.ir import Op, Region, Value
from ptir_tools.engines.native import fusion as clusters
from ptir_tools.engines.numpy.linalg import axes_of, work_dtype
from ptir_tools.engines.numpy.steps import tensor_of

LEAST = 1 << 14  # elements of what is between from which on blocks pay


def joined(block: Region, steps: list[tuple[Op, ...]]) -> list[tuple[Op, ...]]:
    """`steps` with the products before and after a cluster taken into its step, where nothing else uses what they pass on."""
    uses = Counter(v for op in block.body for v in op.values())
    uses.update(x for x in block.results if isinstance(x, Value))
    users = {v: op for op in block.body for v in op.values()}
    for ops in [s for s in steps if len(s) > 1]:
        if not clusters.domain(ops).reduces:
            continue
        before, after = _product_before(ops, uses), _product_after(ops, uses, users)
        if before is None or after is None:
            continue
        gone = {*before, *ops, *after}
        last = steps.index((after[-1],))
        steps[last] = (*before, *ops, *after)
        steps = [s for s in steps if s is steps[last] or s[0] not in gone]
    return steps


def _product_before(ops: Sequence[Op], uses: Counter[Value]) -> list[Op] | None:
    """The product whose result is an input of the cluster and of nothing else, and reshapes on the way."""
    inside = set(ops)
    shape = clusters.domain(ops).shape
    for x in clusters.domain(ops).inputs:
        if uses[x] != sum(v is x for op in ops for v in op.values()):
            continue
        path: list[Op] = []
        while x.op is not None and x.op not in inside and clusters.shape_of(x.type)[-2:] == shape[-2:]:
            path.insert(0, x.op)
            if _is_product(x.op, shape):
                return path
            if clusters.role(x.op) != "reshape" or not isinstance(x.op.operands[0], Value) or uses[x.op.operands[0]] != 1:
                break
            x = x.op.operands[0]
    return None


def _product_after(ops: Sequence[Op], uses: Counter[Value], users: Mapping[Value, Op]) -> list[Op] | None:
    """The product whose left operand is all that leaves the cluster, and reshapes on the way."""
    made = [op.result for op in ops]
    leaving = [v for v in made if uses[v] != sum(u is v for op in ops for u in op.values())]
    if len(leaving) != 1 or uses[leaving[0]] != 1:
        return None
    x, path = leaving[0], list[Op]()
    shape = clusters.domain(ops).shape
    while x in users and clusters.shape_of(x.type)[-2:] == shape[-2:] and uses[x] == 1:
        op = users[x]
        path.append(op)
        rank = len(clusters.shape_of(x.type))
        if clusters.role(op) == "product":
            batch, rows, contract, *_ = axes_of(op)
            fits = op.operands[0] is x and (batch, rows, contract) == ([*range(rank - 2)], [rank - 2], [rank - 1])
            return path if fits and _is_product(op, None) else None
        if clusters.role(op) != "reshape":
            return None
        x = op.result
    return None


def _is_product(op: Op, shape: clusters.Shape | None) -> bool:
    """Whether `op` is a stack of products of f32 matrices, of one axis of rows and one of columns."""
    if clusters.role(op) != "product" or work_dtype(op) is not F32 or tensor_of(op).dtype is not F32:
        return False
    _, rows, _, _, columns, _ = axes_of(op)
    made = clusters.shape_of(op.result.type)
    single = len(rows) == len(columns) == 1 and op.attr("out_dtype") in (None, F32)
    return single and (shape is None or (prod(made) == prod(shape) >= LEAST and made[-1] <= clusters.MAX_COLUMNS))
