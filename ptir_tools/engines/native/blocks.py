"""The steps of two products with a cluster between them: product, cluster in place, product, for a block of rows at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from ptir_tools.core.dtypes import F32
from ptir_tools.core.evaluate import Data
from ptir_tools.core.ir import Op, Operand, Value
from ptir_tools.core.lazy import lazy
from ptir_tools.engines.native import fusion as clusters
from ptir_tools.engines.native import threads
from ptir_tools.engines.native.causal import LANES, causal
from ptir_tools.engines.native.library import kernels
from ptir_tools.engines.native.lowering import lowered
from ptir_tools.engines.native.tiles import bits, in_turn, register_kinds
from ptir_tools.engines.numpy.linalg import axes_of, stack
from ptir_tools.engines.numpy.steps import Step, Workshop

if TYPE_CHECKING:
    import numpy as np

    from ptir_tools.core.arrays import Array
else:
    np = lazy("numpy")

BLOCK = 1 << 16  # elements of what is between, for one block of rows
ROWS = 96  # of a block, at least: the right operands are packed anew for each


def assemble(ops: Sequence[Op], data: Callable[[Operand], Data], outs: Mapping[Value, Array], shop: Workshop) -> list[Step]:
    """The steps of a joined step: products of blocks of rows, the cluster on each, and products again."""
    products = [op for op in ops if clusters.role(op) == "product"]
    first, last = products
    inner = ops[_after_reshapes(ops) : -1]
    inner = inner[: next(i for i in range(len(inner), 0, -1) if clusters.role(inner[i - 1]) != "reshape")]
    steps: list[Step] = []
    left, right = _operands(first, data(first.operands[0]), data(first.operands[1]), shop, steps)
    (out,) = outs.values()
    value = _right(last, data(last.operands[1]), shop, steps)
    blocks = _Blocks(clusters.domain(inner), ops, data)
    rows = max(ROWS, BLOCK // right.shape[2] // 6 * 6) if blocks.causal is None else ROWS
    places = [(b, s) for b in range(len(left)) for s in threads.cuts(left.shape[1], -(-left.shape[1] // rows))]
    out = out.reshape(len(left), left.shape[1], value.shape[2])
    workers = shop.threads if out.size * right.shape[2] >= threads.PRODUCT_WORTH else 1
    finite = [False] * len(value)
    if blocks.causal is not None:
        steps.append((_look, (value, finite)))
    chains = []
    for w in range(workers):
        made = blocks.room(rows, shop)
        chain = [step for b, s in places[w::workers] for step in blocks.steps(b, s, left, right, value, out, made, finite)]
        chains.append((in_turn, (chain,)))
    return [*steps, *threads.together(chains, workers)]


def _look(value: Array, finite: list[bool]) -> None:
    """Note which matrices have neither NaN nor infinity."""
    finite[:] = [bool(np.isfinite(v).all()) for v in value]


def _narrowed(
    narrow: Sequence[Step], last: Step, whole: Sequence[Step], top: Array, least: float, finite: list[bool], b: int
) -> None:
    """The steps of a block without the columns that weigh nothing; all of it where they might."""
    if finite[b]:
        in_turn(narrow)
        if (top >= least).all():
            last[0](*last[1])
            return
    in_turn(whole)


def _after_reshapes(ops: Sequence[Op]) -> int:
    """Where the cluster begins: after the first product and its reshapes."""
    return next(i for i, op in enumerate(ops) if i and clusters.role(op) != "reshape")


def _operands(op: Op, x: Array, y: Array, shop: Workshop, steps: list[Step]) -> tuple[Array, Array]:
    batch, rows, contract, *_ = axes_of(op)
    return stack(x, (batch, rows, contract), 0, shop, F32, steps), _right(op, y, shop, steps)


def _right(op: Op, y: Array, shop: Workshop, steps: list[Step]) -> Array:
    *_, batch, columns, contract = axes_of(op)
    return stack(y, (batch, contract, columns), 0, shop, F32, steps)


class _Blocks:
    """The cluster on a block of rows of one matrix of the stack. `between` is the input that the first product makes."""

    def __init__(self, cluster: clusters.Cluster, ops: Sequence[Op], data: Callable[[Operand], Data]) -> None:
        made = {op.result for op in ops}
        self.cluster = cluster
        self.height, self.columns = cluster.shape[-2:]
        self.batch = cluster.shape[:-2]
        self.arrays: list[Any] = [None if v in made else _spread(data(v), cluster.shape) for v in cluster.inputs]
        result = next(op.result for op in reversed(ops[:-1]) if op.result in cluster.kinds)
        assert result.op is not None
        self.causal = causal(result.op)
        self.whole = self.lowered([result])
        self.told = self.whole if self.causal is None else self.lowered([result, self.causal.top])

    def lowered(self, outs: list[Value]) -> tuple[bytes, bytes]:
        """The code that makes `outs`, and the kinds of its registers."""
        return lowered(self.cluster, outs, register_kinds(self.cluster, self.arrays, outs))

    def room(self, rows: int, shop: Workshop) -> tuple[Array, Array, Array, Array]:
        """Scratch for what is between, for the cluster's registers, for the products, and for the largest of the rows."""
        widths = [self.columns] if self.causal is None else [self.columns, *range(LANES, self.columns, LANES)]
        floats = max(kernels().tile_floats(kinds, rows, width, True) for width in widths for _, kinds in (self.whole, self.told))
        sizes = (rows * self.columns, floats, kernels().GEMM_SCRATCH, rows)
        between, registers, packed, top = (shop.scratch((n,), F32) for n in sizes)
        return between, registers, packed, top

    def steps(
        self,
        b: int,
        rows: slice,
        left: Array,
        right: Array,
        value: Array,
        out: Array,
        room: tuple[Array, ...],
        finite: list[bool],
    ) -> list[Step]:
        """Product, cluster (in place), product."""
        operands = left[b : b + 1, rows], right[b : b + 1], value[b : b + 1], out[b : b + 1, rows]
        whole = self.wide(b, rows, *operands, room, self.columns)
        if self.causal is None or (width := self.causal.width(rows, self.columns)) in (0, self.columns):
            return whole
        *narrow, last = self.wide(b, rows, *operands, room, width)
        top = room[-1][: rows.stop - rows.start]
        return [(_narrowed, (narrow, last, whole, top, self.causal.least, finite, b))]

    def wide(
        self, b: int, rows: slice, left: Array, right: Array, value: Array, out: Array, room: tuple[Array, ...], width: int
    ) -> list[Step]:
        """The steps on the first `width` columns of what is between; where there are more, the largest of the rows is counted."""
        between, registers, packed, top = room
        height = rows.stop - rows.start
        scores = between[: height * width].reshape(height, width)
        at = np.unravel_index(b, self.batch)
        arrays = [scores if a is None else _block(a, at, rows)[:, :width] for a in self.arrays]
        program, outs = self.whole, [scores]
        if width < self.columns:
            program, outs = self.told, [scores, top[:height, None]]
        kernel = kernels()
        call = (*program, (*arrays, *outs), len(arrays), height, width, True, registers)
        return [
            (kernel.gemm, (scores[None], left, right[:, :, :width], packed)),
            (kernel.tiles, call),
            (kernel.gemm, (out, scores[None], value[:, :width], packed)),
        ]


def _spread(x: Array, shape: clusters.Shape) -> Array:
    """`x`, which is full or has one element per row, with all axes of the domain; the last has extent 1 where it is repeated."""
    found = x.reshape((*shape[:-1], x.shape[-1] if x.ndim == len(shape) else 1)) if x.size != prod(shape) else x.reshape(shape)
    return bits(found[..., :1] if found.strides[-1] == 0 else found)


def _block(x: Array, at: tuple[Any, ...], rows: slice) -> Array:
    matrix: Array = x[at]
    return matrix[rows]
