"""Products of 8-bit integers in 32 bits, followed by quantization: the sums are never in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import inf

from ptir_tools.core.arrays import Array
from ptir_tools.core.dtypes import F32, SI8, SI32, UI8, UI32
from ptir_tools.core.evaluate import Data
from ptir_tools.core.ir import Op, Value
from ptir_tools.core.lazy import lazy, np
from ptir_tools.core.records import NamedTuple
from ptir_tools.core.typed import TYPE_CHECKING
from ptir_tools.engines.native import fusion, threads
from ptir_tools.engines.native.library import kernels
from ptir_tools.engines.native.products import cut, narrow
from ptir_tools.engines.native.tiles import matrix
from ptir_tools.engines.numpy.constants import Operands
from ptir_tools.engines.numpy.linalg import axes_of
from ptir_tools.engines.numpy.steps import Look, Step, Workshop, fused, tensor_of
from ptir_tools.plan.liveness import Unit
from ptir_tools.rewrite.constants import scalar_of
from ptir_tools.rewrite.vocabulary import tensor_type

if TYPE_CHECKING:
    from ptir_tools.engines.native import quantize
else:
    quantize = lazy("ptir_tools.engines.native.quantize")

# Added rows or None, scalings by quantize.scalings, whether they are per column, scale over output scale,
# whether f32 is accurate enough, the smallest and the largest result.
Epilogue = tuple["Array | None", "Array", int, "Array", int, float, float]


def wraps_in_si32(op: Op) -> bool:
    """Whether a contraction has 8-bit integers and a 32-bit accumulator."""
    if fusion.role(op) != "product":
        return False
    accum, out = op.attr("accum_dtype"), op.attr("out_dtype")
    return tensor_of(op).dtype in (SI8, UI8) and accum in (SI32, UI32) and out is accum


def product(
    op: Op, ins: Sequence[Data], out: Array, shop: Workshop, group: Sequence[Op] = (), more: Array | None = None
) -> list[Step]:
    """The steps of a product in 32 bits, which wrap, or of `group` on it with the addend `more`."""
    steps: list[Step] = []
    left, right, width = narrow(op, ins, shop, steps)
    pieces = cut(out.reshape(len(left), left.shape[1], width), left, right, shop)
    added, *others = _epilogue(group, more, (left.shape[1], width), shop, steps) if group else (None, None)
    parts, first = list[Step](), 0
    for piece in pieces:
        last = first + piece[0].shape[1]
        epilogue = ((None if added is None else added[first:last], *others),) if group else ()
        parts.append((kernels().igemm, (*piece, shop.scratch((kernels().IGEMM_SCRATCH,), F32), *epilogue)))
        first = last
    return [*steps, *threads.together(parts, shop.threads)]


class Rescaled(NamedTuple):
    """A product and the ops that quantize it."""

    dot: Op
    group: tuple[Op, ...]

    def steps(self, look: Look, outs: Mapping[Value, Array], shop: Workshop) -> list[Step]:
        """The steps of a product and its quantization."""
        dot, group = self
        more = next((look(x) for x in group[0].operands if x is not dot.result), None) if _adds(group[0]) else None
        (out,) = outs.values()
        return product(dot, Operands(dot, look), out, shop, group, more)


def joined(units: list[Unit], uses: fusion.Uses) -> list[Unit]:
    """`units` with each product and its quantization as one."""
    products = [u[0] for u in units if u.is_single and wraps_in_si32(u[0])]
    groups = [(op, *found) for op in products if (found := _group_after(op, uses))]
    ends = {ops[-1]: fused(Rescaled(ops[0], ops[1:]), ops) for ops in groups}
    gone = {op for ops in groups for op in ops}
    return [ends.get(u[-1], u) for u in units if u[-1] in ends or u[0] not in gone]


def _group_after(op: Op, uses: fusion.Uses) -> list[Op]:
    """The ops that quantize a product, in order, each the only user of the previous one; empty if they do not quantize. An
    addition may come before, and constants may bound the result."""
    x, found = op.result, list[Op]()
    shape = tensor_type(x).static_shape
    if tensor_type(x).dtype is not SI32 or axes_of(op)[0] or not shape or 0 in (*shape, *tensor_of(op).static_shape):
        return []

    def takes(is_wanted: Callable[[Op], bool]) -> bool:
        nonlocal x
        if (user := uses.only(x)) is None or not is_wanted(user):
            return False
        found.append(user)
        x = user.result
        return True

    takes(_adds)
    if not takes(_quantizes):
        return []
    while tensor_type(x).dtype is not F32 and takes(lambda user: _bounds(user) is not None):
        pass
    return found


def _adds(op: Op) -> bool:
    return fusion.instruction(op) == "add"


def _quantizes(op: Op) -> bool:
    """Whether `op` converts integers to bytes or f32, by one scaling or one per column, and one zero point of the result."""
    form = op.defn.inplace.form if op.defn.inplace is not None else ""
    made = {"requantize": (SI8, UI8), "dequantize": (F32,)}.get(form, ())
    t = tensor_type(op.result)
    if t.dtype not in made or not quantize.is_scaled(op):
        return False
    zeros = quantize.numbers(op, "output_zero_points", 0.0)
    return op.attr("axis") in (None, -1, t.rank - 1) and bool((zeros == zeros[0]).all())


def _bounds(op: Op) -> tuple[float, float] | None:
    """The constants between which `op` clamps its other operand, if that is all it does."""
    name, constants = fusion.instruction(op), [scalar_of(x) for x in op.operands]
    if name == "clamp" and None not in constants[1:]:
        return min(constants[1:]), constants[2]
    bounds = [x for x in constants if x is not None]
    if name not in ("maximum", "minimum") or len(bounds) != 1:
        return None
    return (bounds[0], inf) if name == "maximum" else (-inf, bounds[0])


def _epilogue(group: Sequence[Op], more: Array | None, shape: tuple[int, int], shop: Workshop, steps: list[Step]) -> Epilogue:
    """The parameters of igemm for `group` on sums of this shape."""
    if more is not None:
        more = np.broadcast_to(matrix(more, *shape, shop, steps), shape)
        if shape[1] > 1 and not more.strides[1]:
            steps.append((np.copyto, (copy := shop.scratch_like(more), more)))
            more = copy
    op = group[_adds(group[0])]
    scaling = quantize.scalings(op)
    ratio = scaling[0] / scaling[2]
    with np.errstate(over="ignore", under="ignore"):
        factor = ratio.astype(np.float32)
    is_near = bool((np.isfinite(factor) & (factor >= np.finfo(np.float32).tiny)).all() and not scaling[1].any())
    dtype = tensor_type(op.result).dtype
    low, high = {SI8: (-128.0, 127.0), UI8: (0.0, 255.0)}.get(dtype, (0.0, 0.0))
    for bound in map(_bounds, group[1 + _adds(group[0]) :]):
        assert bound is not None
        low, high = (min(max(x, bound[0]), bound[1]) for x in (low, high))
    return more, scaling, int(scaling.shape[1] > 1), factor, int(is_near), low, high
