"""Convolutions: contractions of patches that nothing else uses, computed from the image, so that patches are never in memory.

Reshapes and transposes may lie between the patches and the contraction. Its contracted axes are the taps and the channels, or the
channels of a group. Its batch axis is that of the groups. Views of the result that put the places first and the groups before the
columns are part of the convolution. If several convolutions use the same patches, each reads the image.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from functools import partial
from math import prod

from ptir_tools.core.arrays import Array, numpy_dtype
from ptir_tools.core.dtypes import F32, DType
from ptir_tools.core.ir import Op, Operand, Value
from ptir_tools.core.lazy import np
from ptir_tools.core.records import NamedTuple
from ptir_tools.core.strides import dense_strides
from ptir_tools.dialects.ptir.ops.scalars import element
from ptir_tools.engines.native import fusion
from ptir_tools.engines.native.library import kernels
from ptir_tools.engines.numpy.constants import constant
from ptir_tools.engines.numpy.frame import aligned
from ptir_tools.engines.numpy.linalg import axes_of, work_dtype
from ptir_tools.engines.numpy.steps import Look, Step, Workshop, dense, tensor_of

# Ops of a kernel on a product: numbers of instructions, each with its operand [rows, columns].
Epilogue = tuple[tuple[int, "Array"], ...]

Layout = list[tuple[int, int]]  # (extent, stride); axes of extent 1 are dropped, contiguous axes merged


class Convolution(NamedTuple):
    """The contraction `dot` of the patches. `before` is the op that extracts the patches and the views after it. `after` are
    views of the result.

    There are `places` rows of `groups` times `columns`; each element is the sum of `taps` times `channels` products.
    `is_natural`: the result is in the order [places, groups, columns].
    """

    before: tuple[Op, ...]
    dot: Op
    after: tuple[Op, ...]
    side: int  # number of the contraction's operand that has the patches
    places: int
    taps: int
    groups: int
    channels: int
    columns: int
    is_natural: bool

    @property
    def ops(self) -> tuple[Op, ...]:
        """All ops, in order."""
        return (*self.before, self.dot, *self.after)

    @property
    def patches(self) -> Op:
        """The op that extracts the patches."""
        return self.before[0]

    @property
    def work(self) -> int:
        """The number of multiplications."""
        return self.places * self.groups * self.columns * self.taps * self.channels

    @property
    def width(self) -> int:
        """The columns of all groups."""
        return self.groups * self.columns

    def unnatural(self, x: Array) -> Array:
        """`x`, [places, groups * columns], in the axis order of the contraction's result."""
        apart = x.reshape(self.places, self.groups, self.columns)
        return apart.transpose((1, 0, 2) if self.side == 0 else (1, 2, 0)) if not self.is_natural else apart

    @property
    def is_depthwise(self) -> bool:
        """Whether every one of several channels is a group with one column."""
        return self.channels == self.columns == 1 < self.groups


def recognized(products: Iterable[Op], uses: fusion.Uses) -> dict[Op, Convolution]:
    """The convolutions among contractions, by contraction. If another op also uses the patches, they are in memory, and a plain
    contraction reads them."""
    found = {op: made for op in products if (made := _recognized(op, uses)) is not None}
    while True:
        views = {op for made in found.values() for op in made.before[1:]}  # other patches of a result read it from memory
        kept = {op: made for op, made in found.items() if all(_is_inside(x.result, views, found, uses) for x in made.before)}
        if len(kept) == len(found):
            return found
        found = kept


def _is_inside(x: Value, views: Set[Op], found: Mapping[Op, Convolution], uses: fusion.Uses) -> bool:
    """Whether only the convolutions `found` and the `views` before them use `x`; the other operand of a convolution is in
    memory."""
    for op in uses.users[x]:
        if op is None:
            return False
        if op not in views and (op not in found or found[op].before[-1].result is not x or op.values().count(x) != 1):
            return False
    return True


def _recognized(dot: Op, uses: fusion.Uses) -> Convolution | None:
    """The convolution of `dot`, if only convolutions use its patches; or None."""
    out = dot.attr("out_dtype")
    if work_dtype(dot) is not F32 or tensor_of(dot).dtype.is_integer or out not in (None, tensor_of(dot).dtype):
        return None
    return next((found for side in (0, 1) if (found := of_side(dot, side, uses)) is not None), None)


def of_side(dot: Op, side: int, uses: fusion.Uses) -> Convolution | None:
    """The convolution whose patches are an operand of `dot`; None if it is something else. Bytes may have any padding."""
    before = _views_before(dot.operands[side])
    patches = before[0] if before else None
    if patches is not None and _is_patches(patches) and (made := _match_axes(dot, side, patches, before[1:])):
        groups, channels = made
        return _with_result(dot, side, before, groups, channels, uses)
    return None


def _views_before(x: Operand) -> list[Op]:
    """The op that defines `x`, through views, and those views."""
    path: list[Op] = []
    while isinstance(x, Value) and x.op is not None:
        path.insert(0, x.op)
        if x.op.defn.view is None:
            return path
        x = x.op.operands[0]
    return []


def _is_patches(op: Op) -> bool:
    """Whether `op` extracts patches of one or two spatial axes, with zero padding or of bytes. Spatial axes before them may have
    a window of 1: they have the role of the batch axis."""
    if op.defn.inplace is None or op.defn.inplace.form != "patches":
        return False
    fields = [op.attr(name) for name in ("window", "strides", "padding")]
    if any(field != (1, 1, (0, 0)) for field in [*zip(*fields, strict=True)][:-2]):
        return False
    t = tensor_of(op)
    is_filled = t.count > 0 and prod(fusion.shape_of(op.result.type)) > 0
    return is_filled and (t.dtype in fusion.BYTES or not np.asarray(padding(op)).astype(np.float64).any())


def padding(patches: Op) -> object:
    """The element in the padding of patches."""
    return element(patches.attr("pad_value"), tensor_of(patches).dtype)


def _strides_after(path: Sequence[Op], shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """The strides of a dense array of `shape` after the views of `path`; None if one would copy."""
    strides = dense_strides(shape)
    for op in path:
        after = fusion.shape_of(op.result.type)
        assert op.defn.view is not None
        found = op.defn.view.seen(op, shape, strides, after)
        if found is None or found[0]:
            return None
        shape, strides = after, found[1]
    return tuple(strides)


def _merged(axes: Sequence[tuple[int, int]]) -> Layout:
    merged: Layout = []
    for n, stride in axes:
        if n == 1:
            continue
        if merged and merged[-1][1] == n * stride:
            merged[-1] = (merged[-1][0] * n, stride)
        else:
            merged.append((n, stride))
    return merged


def _match_axes(dot: Op, side: int, patches: Op, path: Sequence[Op]) -> tuple[int, int] | None:
    """The groups and the channels per group, if the axes of the operand are those of a convolution."""
    shape = fusion.shape_of(patches.result.type)
    strides = _strides_after(path, shape)
    if strides is None:
        return None
    extents = tensor_of(dot, side).static_shape
    batch, rows, contract = ([(extents[a], strides[a]) for a in axes] for axes in axes_of(dot)[3 * side : 3 * side + 3])
    taps, all_channels = prod(patches.attr("window")), tensor_of(patches).static_shape[-1]
    groups = prod(n for n, _ in batch)
    if all_channels % groups:
        return None
    channels = all_channels // groups
    found = (_merged(rows), _merged(batch), _merged(sorted(contract, key=lambda axis: -axis[1])))
    wanted = ([(prod(shape[:-1]), shape[-1])], [(groups, channels)], [(taps, all_channels), (channels, 1)])
    return (groups, channels) if found == tuple(map(_merged, wanted)) else None


def _with_result(dot: Op, side: int, before: list[Op], groups: int, channels: int, uses: fusion.Uses) -> Convolution:
    """The convolution with as many views of its result as keep the natural order."""
    shape, patches = fusion.shape_of(dot.result.type), before[0]
    places, taps = prod(fusion.shape_of(patches.result.type)[:-1]), prod(patches.attr("window"))
    columns = prod(shape) // (places * groups)
    row, column = (columns, 1) if side == 0 else (1, places)
    wanted = _merged([(places, row), (groups, places * columns), (columns, column)])
    path: list[Op] = []
    best = 0 if _merged([(prod(shape), 1)]) == wanted else None
    while (user := uses.only((path[-1] if path else dot).result)) is not None and user.defn.view is not None:
        path.append(user)
        strides = _strides_after(path, shape)
        if strides is None:
            break
        if _merged([*zip(fusion.shape_of(path[-1].result.type), strides, strict=True)]) == wanted:
            best = len(path)
    after = tuple(path[: best or 0])
    return Convolution(tuple(before), dot, after, side, places, taps, groups, channels, columns, best is not None)


def into(
    found: Convolution, look: Look, shop: Workshop, steps: list[Step]
) -> Callable[[slice, Array, Array, Epilogue], list[Step]]:
    """A function of some places that returns the steps which write them to an array [rows, groups * columns], with scratch and
    an epilogue. Steps that are needed before are added to `steps`."""
    image = look(found.patches.operands[0])
    if image.dtype != np.float32:
        wide = shop.scratch(image.shape, F32)
        steps += shop.copied(wide, image)
        image = wide
    image, geometry = windows_over(image, found, shop, steps)
    packed = weights(found, look, shop, steps)
    is_constant = constant(found.dot.operands[1 - found.side]) is not None
    geometry += (is_constant and packed.size > 0 and bool(np.isfinite([packed.min(), packed.max()]).all()),)

    def written(rows: slice, out: Array, room: Array, epilogue: Epilogue) -> list[Step]:
        if found.is_depthwise:
            return [(kernels().windows, (out, image, packed, geometry, rows.start, kernels().WEIGHTED, epilogue))]
        target = out.reshape(len(out), found.groups, found.columns)
        return [(kernels().conv, (target, image, packed, geometry, rows.start, room, epilogue))]

    return written


def windows_over(image: Array, found: Convolution, shop: Workshop, steps: list[Step]) -> tuple[Array, tuple[int, ...]]:
    """The image as [batch, height, width, channels], the channels in order, and the geometry of the windows over it."""
    patches = found.patches
    line = (1,) * (2 - len(patches.attr("window")))  # one spatial axis is a line of an image with one line
    shape = (-1, *line, *image.shape[-len(patches.attr("window")[-2:]) - 1 :])
    if image.shape[-1] > 1 and image.strides[-1] != image.itemsize:
        image = dense(image, shop, steps)
    try:
        image = image.reshape(shape, copy=False)
    except ValueError:
        image = dense(image, shop, steps).reshape(shape)
    places = fusion.shape_of(patches.result.type)[1:-1]
    lows = [low for low, _ in patches.attr("padding")]
    fields = (places, *(patches.attr(name) for name in ("window", "strides", "dilation")))
    geometry = [n for values in fields for n in (*line, *values[-2:])]
    return image, (*geometry, *(0 for _ in line), *lows[-2:], found.groups)


def weights(found: Convolution, look: Look, shop: Workshop, steps: list[Step], dtype: DType = F32) -> Array:
    """The other operand, converted as `_Weights` says; a constant once."""
    batch, columns, contract = axes_of(found.dot)[3 * (1 - found.side) :][:3]
    contracted = axes_of(found.dot)[3 * found.side + 2]
    strides = _strides_after(found.before[1:], fusion.shape_of(found.patches.result.type))
    assert strides is not None
    order = (*batch, *(contract[i] for i in sorted(range(len(contract)), key=lambda i: (-strides[contracted[i]], i))), *columns)
    x = found.dot.operands[1 - found.side]
    moved = tuple(tensor_of(found.dot, 1 - found.side).static_shape[a] for a in order)
    how = _Weights(
        order,
        moved,
        found.groups,
        found.taps * found.channels,
        found.columns,
        dtype is F32 and found.is_depthwise,
        kernels().ISA,
        dtype,
    )
    if (given := constant(x)) is not None:
        return given.once(how, partial(look, x), shop)
    out = shop.scratch(how.extents, F32)
    steps.append((how.fill, (out, look(x))))
    return out


class _Weights(NamedTuple):
    """Converts weights: transposed to `order`, then reshaped to `moved` = [groups, depth, columns]. For a depthwise convolution
    the result is [taps, groups], else the packed operand of each group."""

    order: tuple[int, ...]
    moved: tuple[int, ...]
    groups: int
    depth: int
    columns: int
    is_depthwise: bool
    isa: str
    dtype: DType = F32

    @property
    def size(self) -> int:
        """The packed elements of a group."""
        return int(kernels().packed_size(np.broadcast_to(numpy_dtype(self.dtype).type(0), (self.depth, self.columns))))

    @property
    def extents(self) -> tuple[int, ...]:
        """The shape of the result."""
        return (self.depth, self.groups) if self.is_depthwise else (self.groups * self.size,)

    def fill(self, out: Array, x: Array) -> None:
        """Convert to `out`."""
        moved = x.transpose(self.order).astype(numpy_dtype(self.dtype), copy=False)
        matrices = moved.reshape(self.groups, self.depth, self.columns)
        if self.is_depthwise:
            np.copyto(out, matrices[:, :, 0].T)
            return
        for own, matrix in zip(out.reshape(self.groups, -1), matrices, strict=True):
            kernels().pack(own, matrix)

    def converted(self, x: Array) -> Array:
        """A new array."""
        words = np.float32 if self.dtype is F32 else np.int32
        out = aligned(4 * prod(self.extents)).view(words).reshape(self.extents)
        self.fill(out, x)
        return out

    def restored(self, x: Array) -> Array:
        """The weights, unpacked."""
        if self.is_depthwise:
            return x.T.reshape(self.moved).transpose(np.argsort(self.order))
        out = np.empty((self.groups, self.depth, self.columns), numpy_dtype(self.dtype))
        for matrix, own in zip(out, x.reshape(self.groups, -1), strict=True):
            kernels().unpack(matrix, own)
        return out.reshape(self.moved).transpose(np.argsort(self.order))
