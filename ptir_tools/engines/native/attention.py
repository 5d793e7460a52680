"""Two products with a cluster between them, as in attention, block of rows by block of rows: what is between is never there as
a whole, and stays in cache."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from ptir_tools.core.dtypes import F32
from ptir_tools.core.evaluate import Data
from ptir_tools.core.ir import Op, Operand, Region, Value
from ptir_tools.core.lazy import lazy
from ptir_tools.engines.native import clusters, threads
from ptir_tools.engines.native.library import kernels
from ptir_tools.engines.native.tiles import lowered
from ptir_tools.engines.numpy.linalg import axes_of, stack, work_dtype
from ptir_tools.engines.numpy.steps import Step, Workshop, tensor_of

if TYPE_CHECKING:
    import numpy as np

    from ptir_tools.core.arrays import Array
else:
    np = lazy("numpy")

BLOCK = 1 << 16  # elements of what is between, for one block of rows
ROWS = 96  # of a block, at least: the right operands are packed anew for each
LEAST = 1 << 14  # elements of what is between from which on blocks pay


def joined(block: Region, steps: list[tuple[Op, ...]]) -> list[tuple[Op, ...]]:
    """`steps` with the products before and after a cluster taken into its step, where nothing else uses what they pass on."""
    uses = Counter(v for op in block.body for v in op.values())
    uses.update(x for x in block.results if isinstance(x, Value))
    users = {v: op for op in block.body for v in op.values()}
    for ops in [s for s in steps if len(s) > 1]:
        if not _domain(ops).reduces:
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
    shape = _domain(ops).shape
    for x in _domain(ops).inputs:
        if uses[x] != sum(v is x for op in ops for v in op.values()):
            continue
        path: list[Op] = []
        while x.op is not None and x.op not in inside and clusters.shape_of(x.type)[-2:] == shape[-2:]:
            path.insert(0, x.op)
            if _is_product(x.op, shape):
                return path
            if x.op.name != "ptir.reshape" or not isinstance(x.op.operands[0], Value) or uses[x.op.operands[0]] != 1:
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
    shape = _domain(ops).shape
    while x in users and clusters.shape_of(x.type)[-2:] == shape[-2:] and uses[x] == 1:
        op = users[x]
        path.append(op)
        rank = len(clusters.shape_of(x.type))
        if op.name == "ptir.dot_general":
            batch, rows, contract, *_ = axes_of(op)
            fits = op.operands[0] is x and (batch, rows, contract) == ([*range(rank - 2)], [rank - 2], [rank - 1])
            return path if fits and _is_product(op, None) else None
        if op.name != "ptir.reshape":
            return None
        x = op.result
    return None


def _domain(ops: Sequence[Op]) -> clusters.Cluster:
    cluster = clusters.started(ops[0])
    assert cluster is not None
    for op in ops[1:]:
        cluster.accepts(op)
    return cluster


def _is_product(op: Op, shape: clusters.Shape | None) -> bool:
    """Whether `op` is a stack of products of f32 matrices, of one axis of rows and one of columns."""
    if op.name != "ptir.dot_general" or work_dtype(op) is not F32 or tensor_of(op).dtype is not F32:
        return False
    _, rows, _, _, columns, _ = axes_of(op)
    made = clusters.shape_of(op.result.type)
    single = len(rows) == len(columns) == 1 and op.attr("out_dtype") in (None, F32)
    return single and (shape is None or (prod(made) == prod(shape) >= LEAST and made[-1] <= clusters.MAX_COLUMNS))


def assemble(ops: Sequence[Op], data: Callable[[Operand], Data], outs: Mapping[Value, Array], shop: Workshop) -> list[Step]:
    """The steps of a joined step: products of blocks of rows, the cluster on each, and products again."""
    products = [op for op in ops if op.name == "ptir.dot_general"]
    first, last = products
    inner = ops[_after_reshapes(ops) : -1]
    inner = inner[: next(i for i in range(len(inner), 0, -1) if inner[i - 1].name != "ptir.reshape")]
    steps: list[Step] = []
    left, right = _operands(first, data(first.operands[0]), data(first.operands[1]), shop, steps)
    (out,) = outs.values()
    value = _right(last, data(last.operands[1]), shop, steps)
    blocks = _Blocks(_domain(inner), ops, data, left.shape[0])
    rows = max(ROWS, BLOCK // right.shape[2] // 6 * 6)
    places = [(b, s) for b in range(len(left)) for s in threads.cuts(left.shape[1], -(-left.shape[1] // rows))]
    out = out.reshape(len(left), left.shape[1], value.shape[2])
    workers = shop.threads if out.size * right.shape[2] >= threads.PRODUCT_WORTH else 1
    chains = []
    for w in range(workers):
        made = blocks.room(rows, shop)
        chain = [step for b, s in places[w::workers] for step in blocks.steps(b, s, left, right, value, out, made)]
        chains.append((_in_turn, (chain,)))
    return [*steps, *threads.together(chains, workers)]


def _after_reshapes(ops: Sequence[Op]) -> int:
    """Where the cluster begins: after the first product and its reshapes."""
    return next(i for i, op in enumerate(ops) if i and op.name != "ptir.reshape")


def _operands(op: Op, x: Array, y: Array, shop: Workshop, steps: list[Step]) -> tuple[Array, Array]:
    batch, rows, contract, *_ = axes_of(op)
    return stack(x, (batch, rows, contract), 0, shop, F32, steps), _right(op, y, shop, steps)


def _right(op: Op, y: Array, shop: Workshop, steps: list[Step]) -> Array:
    *_, batch, columns, contract = axes_of(op)
    return stack(y, (batch, contract, columns), 0, shop, F32, steps)


def _in_turn(steps: Sequence[Step]) -> None:
    for function, arguments in steps:
        function(*arguments)


class _Blocks:
    """The cluster on a block of rows of one matrix of the stack. `between` is the input that the first product makes."""

    def __init__(self, cluster: clusters.Cluster, ops: Sequence[Op], data: Callable[[Operand], Data], count: int) -> None:
        made = {op.result for op in ops}
        self.cluster = cluster
        self.height, self.columns = cluster.shape[-2:]
        self.batch = cluster.shape[:-2]
        self.arrays: list[Any] = [None if v in made else _spread(data(v), cluster.shape) for v in cluster.inputs]
        result = next(op.result for op in reversed(ops[:-1]) if op.result in cluster.kinds)
        scalar = [a is not None and a.shape[-1] == 1 for a in self.arrays]
        self.code, self.registers = lowered(cluster, [result], [*scalar, False])

    def room(self, rows: int, shop: Workshop) -> tuple[Array, Array, Array]:
        """Scratch for what is between, for the cluster's registers, and for the products."""
        floats = kernels().tile_floats(rows, self.columns, True)
        sizes = (rows * self.columns, self.registers * floats, kernels().GEMM_SCRATCH)
        between, registers, packed = (shop.scratch((n,), F32) for n in sizes)
        return between, registers, packed

    def steps(
        self, b: int, rows: slice, left: Array, right: Array, value: Array, out: Array, room: tuple[Array, Array, Array]
    ) -> Iterator[Step]:
        """Product, cluster (in place), product."""
        between, registers, packed = room
        height = rows.stop - rows.start
        scores = between[: height * self.columns].reshape(height, self.columns)
        at = np.unravel_index(b, self.batch)
        arrays = [scores if a is None else _block(a, at, rows) for a in self.arrays]
        kernel = kernels()
        yield kernel.gemm, (scores[None], left[b : b + 1, rows], right[b : b + 1], packed)
        call = (self.code, (*arrays, scores), len(arrays), self.registers, height, self.columns, True, registers)
        yield kernel.tiles, call
        yield kernel.gemm, (out[b : b + 1, rows], scores[None], value[b : b + 1], packed)


def _spread(x: Array, shape: clusters.Shape) -> Array:
    """`x`, which is full or has one element per row, with all axes of the domain; the last has extent 1 where it is repeated."""
    found = x.reshape((*shape[:-1], x.shape[-1] if x.ndim == len(shape) else 1)) if x.size != prod(shape) else x.reshape(shape)
    return found[..., :1] if found.strides[-1] == 0 else found


def _block(x: Array, at: tuple[Any, ...], rows: slice) -> Array:
    matrix: Array = x[at]
    return matrix[rows]
