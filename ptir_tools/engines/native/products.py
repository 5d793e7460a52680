"""Products with their fusion groups: a block of rows is computed, then the group runs on it in cache.

A product here is a convolution, or a contraction whose right operand stays in cache from block to block.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from functools import partial
from math import prod

from ptir_tools.core.arrays import Array, numpy_dtype
from ptir_tools.core.dtypes import F32, SI8, DType
from ptir_tools.core.evaluate import Data
from ptir_tools.core.ir import Op, Value
from ptir_tools.core.lazy import np
from ptir_tools.core.records import NamedTuple
from ptir_tools.core.types import TensorType
from ptir_tools.engines.native import convolution, fusion, threads
from ptir_tools.engines.native.convolution import Convolution, Epilogue
from ptir_tools.engines.native.library import kernels
from ptir_tools.engines.native.lowering import INSTRUCTION, lowered
from ptir_tools.engines.native.tiles import bits, matrix, register_kinds
from ptir_tools.engines.numpy.constants import constant
from ptir_tools.engines.numpy.control import is_same
from ptir_tools.engines.numpy.frame import aligned
from ptir_tools.engines.numpy.linalg import axes_of, is_constant, stack, work_dtype
from ptir_tools.engines.numpy.steps import Fused, Look, Step, Workshop, fused, overlaps, tensor_of
from ptir_tools.engines.thresholds import at
from ptir_tools.plan.liveness import Unit

ENDING = ("add", "sub", "mul", "div", "maximum", "minimum")
LONGEST_ENDING = 8
MOST_SUMS = 2  # that a kernel does in registers


# The steps that write rows of a product, given as a slice, to an array [rows, columns] of f32, with scratch and an epilogue.
Into = Callable[[slice, "Array", "Array", Epilogue], list[Step]]


class Product(NamedTuple):
    """A contraction with what runs in the same step: its convolution, and the fusion group that uses the result after
    reshapes."""

    dot: Op
    conv: Convolution | None
    reshapes: tuple[Op, ...]
    group: fusion.Group | None

    @property
    def ops(self) -> tuple[Op, ...]:
        """All ops, in order."""
        own = (self.dot,) if self.conv is None else self.conv.ops
        return (*own, *self.reshapes, *(self.group.ops if self.group is not None else ()))

    @property
    def made(self) -> Value:
        """The value before the group."""
        after = (self.dot, *(self.conv.after if self.conv is not None else ()), *self.reshapes)
        return after[-1].result

    @property
    def may_end(self) -> bool:
        """Whether the group, if there is one, may be an epilogue."""
        return self.group is None or all(map(may_end, self.group.ops))

    def steps(self, look: Look, outs: Mapping[Value, Array], shop: Workshop) -> list[Step]:
        """The steps of a convolution, or of a product with its fusion group."""
        return assemble(self, look, outs, shop)


def joined(units: list[Unit], uses: fusion.Uses) -> list[Unit]:
    """`units` with each convolution as one, and each product with the fusion group that has the only uses of its result.
    A product whose right operand does not stay in cache reads it once for all rows, so its group has to be an epilogue."""
    dots = [u[0] for u in units if u.is_single and fusion.role(u[0]) == "product"]
    convolutions = convolution.recognized(dots, uses)
    groups = {op: u.found for u in units if isinstance(u, Fused) and isinstance(u.found, fusion.Group) for op in u}
    ends: dict[Op, Unit] = {}  # the new units, by last op
    gone: set[Op] = set()
    for op in dots:
        conv = convolutions.get(op)
        found = Product(op, conv, (), None)
        if conv.is_natural if conv is not None else is_one(op):
            more = _with_group_after(found, conv.width if conv is not None else extents(op)[1], groups, uses)
            is_free = more.group is None or more.group.ops[-1] not in ends  # another product may have taken the group
            if is_free and (conv is not None or _is_small(op) or more.may_end):
                found = more
        if len(ops := found.ops) > 1:
            ends[ops[-1]] = fused(found, [x for x in ops if x not in gone], [x for x in ops if x in gone])
            gone.update(ops)
    return [ends.get(u[-1], u) for u in units if u[-1] in ends or u[0] not in gone]


def extents(op: Op) -> tuple[int, int, int]:
    """The rows, columns and summed products of a contraction without batch axes."""
    _, rows, contract, _, columns, _ = axes_of(op)
    left, right = tensor_of(op).static_shape, tensor_of(op, 1).static_shape
    return prod(left[a] for a in rows), prod(right[a] for a in columns), prod(left[a] for a in contract)


def is_one(op: Op) -> bool:
    """Whether a contraction is one product of f32 matrices with a packed right operand."""
    if axes_of(op)[0] or work_dtype(op) is not F32 or tensor_of(op).dtype is not F32 or tensor_of(op, 1).dtype is not F32:
        return False
    rows, columns, depth = extents(op)
    constant = is_constant(op.operands[1])
    return rows >= at.fewest and columns >= at.narrowest and depth > 0 and (constant or packs(op, rows, columns, depth))


def _is_small(op: Op) -> bool:
    """Whether the right operand of a contraction stays in cache between blocks of rows."""
    rows, columns, depth = extents(op)
    return rows >= at.rows_of_block and depth * columns <= at.cached_right


def may_end(op: Op) -> bool:
    """Whether `op` may be part of an epilogue, or a view before one."""
    return fusion.role(op) == "reshape" or (fusion.role(op) == "map" and fusion.instruction(op) in (*ENDING, "clamp"))


def _with_group_after(found: Product, columns: int, groups: Mapping[Op, fusion.Group], uses: fusion.Uses) -> Product:
    """`found` with the fusion group on rows of `columns` elements that has the only uses of the result, after reshapes."""
    x, path = found.made, list[Op]()
    if not isinstance(x.type, TensorType) or x.type.dtype is not F32 or columns == 1:
        return found
    while (user := uses.only(x)) is not None and fusion.role(user) == "reshape" and user not in groups:
        path.append(user)
        x = user.result
    group = next((groups[op] for op in uses.users.get(x, ()) if op is not None and op in groups), None)
    if group is None:
        return found
    shape = group.shape
    fits = shape[-1] == columns and fusion.shape_of(x.type) == shape
    return Product(found.dot, found.conv, tuple(path), group) if fits and uses.are_by(group.ops, x) else found


def assemble(found: Product, look: Look, outs: Mapping[Value, Array], shop: Workshop) -> list[Step]:
    """The steps of a convolution, or of a product with its fusion group."""
    steps: list[Step] = []
    conv, group = found.conv, found.group
    if conv is not None:
        rows, columns, work = conv.places, conv.width, conv.work
        over = conv.groups == 1 and conv.taps * conv.channels <= kernels().GEMM_DEPTH
        into = convolution.into(conv, look, shop, steps)
    else:
        rows, columns, depth = extents(found.dot)
        over = depth <= kernels().GEMM_DEPTH
        work, (_, into) = rows * columns * depth, contraction(found.dot, look, shop, steps)
    least = at.work if conv is not None and conv.is_depthwise else at.multiplications
    workers = shop.threads if work >= least else 1
    if group is not None:
        few = max(1, at.block // columns // at.rows_of_block) * at.rows_of_block
        height = few if conv is not None or _is_small(found.dot) else rows
        steps += _with_group(group, found.made, (rows, columns), into, over, height, workers, look, outs, shop)
        return steps
    (out,) = outs.values()
    is_natural = conv is None or conv.is_natural
    wide = out if out.dtype == np.float32 and is_natural else shop.scratch((rows, columns), F32)
    target = wide.reshape(rows, columns)
    pieces = threads.shares(rows, workers, work)
    room = [shop.scratch((kernels().PACKED_SCRATCH,), F32) for _ in pieces]
    parts = [step for s, own in zip(pieces, room, strict=True) for step in into(s, target[s], own, ())]
    steps += threads.together(parts, workers)
    made = target if conv is None else conv.unnatural(target)
    return steps if wide is out else [*steps, *shop.copied(out, made.reshape(out.shape))]


def packed(op: Op, right: Callable[[], Data], dtype: DType, shop: Workshop, steps: list[Step], workers: int = 0) -> Array:
    """The packed right operand of a contraction without batch axes, as `dtype`. A constant is packed now and kept; another
    operand is packed in every run, by all threads or by `workers`."""
    _, rows, _, _, columns, contract = axes_of(op)
    few = prod(tensor_of(op).static_shape[a] for a in rows) < at.fewest
    if (found := constant(op.operands[1])) is not None:
        how = _Packed(found.shape, tuple(contract), tuple(columns), few, dtype, kernels().ISA)
        return found.once(how, right, shop)
    matrix = bits(stack(right(), ([], contract, columns), 0, shop, dtype, steps)[0])
    out = shop.scratch((kernels().packed_size(matrix, few),), F32).view(_words(dtype))
    workers = workers or (shop.threads if matrix.size >= at.packed_by_all else 1)
    pieces = threads.cuts(matrix.shape[1], workers)
    steps += threads.together([(kernels().pack, (out, matrix, (s.start, s.stop))) for s in pieces], workers)
    return out


def _words(dtype: DType) -> np.dtype:
    """The words of packed operands."""
    return np.dtype(np.float32 if dtype is F32 else np.int32 if dtype is SI8 else np.uint32)


class _Packed(NamedTuple):
    """A conversion of a right operand of this shape, with its contracted axes and columns, to the layout of the kernels, for
    few rows or many."""

    shape: tuple[int, ...]
    contract: tuple[int, ...]
    columns: tuple[int, ...]
    few: bool
    dtype: DType
    isa: str

    @property
    def width(self) -> int:
        """The columns."""
        return prod(self.shape[a] for a in self.columns)

    def converted(self, x: Array) -> Array:
        """A new array of words."""
        moved = x.astype(numpy_dtype(self.dtype), copy=False).transpose((*self.contract, *self.columns))
        matrix, words = bits(moved.reshape(-1, self.width)), _words(self.dtype)
        out = aligned(kernels().packed_size(matrix, self.few) * words.itemsize).view(words)
        kernels().pack(out, matrix)
        return out

    def restored(self, x: Array) -> Array:
        """The operand, in `dtype`."""
        order = (*self.contract, *self.columns)
        moved = [self.shape[a] for a in order]
        out = np.empty((prod(moved) // max(self.width, 1), self.width), numpy_dtype(self.dtype))
        kernels().unpack(bits(out), x)
        return out.reshape(moved).transpose(np.argsort(order))


def packed_bytes(op: Op, dtype: DType) -> int:
    """The bytes, at most, of a constant right operand that `packed` keeps as `dtype`."""
    _, _, _, _, columns, contract = axes_of(op)
    extents = tensor_of(op, 1).static_shape
    shape = [prod(extents[a] for a in axes) for axes in (contract, columns)]
    like = np.broadcast_to(np.zeros((), np.int8 if dtype.size == 1 else np.float32), shape)
    most: int = max(kernels().packed_size(like, few) for few in (False, True))
    return 4 * most


def packs(op: Op, height: int, width: int, depth: int) -> bool:
    """Whether all threads pack the right operand of a contraction first: if the product has many rows and the operand is not too
    large."""
    return not axes_of(op)[0] and height >= at.some and width >= at.narrowest and 0 < width * depth <= at.packed_each_run


def each_packs(op: Op, size: int, workers: int) -> bool:
    """Whether each thread packs its own copy of a right operand of this size: it is faster than reading what another one
    packed."""
    return workers > 1 and size <= at.packed_by_each and not is_constant(op.operands[1])


def narrow(op: Op, ins: Sequence[Data], shop: Workshop, steps: list[Step], may_pack: bool = True) -> tuple[Array, Array, int]:
    """Both operands as stacks of matrices, and the columns of the result; the right one may be packed."""
    batch, height, contract, other_batch, columns, other_contract = axes_of(op)
    width = prod(tensor_of(op, 1).static_shape[a] for a in columns)
    left = bits(stack(ins[0], (batch, height, contract), 0, shop, tensor_of(op).dtype, steps))
    dtype = tensor_of(op, 1).dtype
    if may_pack and ((not batch and is_constant(op.operands[1])) or packs(op, left.shape[1], width, left.shape[2])):
        return left, packed(op, partial(ins.__getitem__, 1), dtype, shop, steps), width
    return left, bits(stack(ins[1], (other_batch, other_contract, columns), 0, shop, dtype, steps)), width


def cut(out: Array, left: Array, right: Array, shop: Workshop) -> list[tuple[Array, Array, Array]]:
    """A stack of products divided among the threads: by matrix, or by row if there is one matrix."""
    work = out.size * left.shape[2]
    workers = shop.threads if work >= at.multiplications else 1
    if len(out) == 1:
        return [(out[:, s], left[:, s], right) for s in threads.shares(out.shape[1], workers, work)]
    return [(out[s], left[s], right[s]) for s in threads.cuts(len(out), workers)]


def contraction(op: Op, look: Look, shop: Workshop, steps: list[Step]) -> tuple[Array, Into]:
    """The left matrix of one f32 product, and the function that multiplies it. A constant right operand is packed once."""
    _, rows, contract, *_ = axes_of(op)
    left = stack(look(op.operands[0]), ([], rows, contract), 0, shop, F32, steps)
    right = packed(op, partial(look, op.operands[1]), F32, shop, steps)

    def into(rows: slice, out: Array, room: Array, end: Epilogue) -> list[Step]:
        return [(kernels().gemm, (out[None], left[:, rows], right, room, end))]

    return left[0], into


def _with_group(
    group: fusion.Group,
    made: Value,
    shape: tuple[int, int],
    into: Into,
    over: bool,
    height: int,
    workers: int,
    look: Look,
    outs: Mapping[Value, Array],
    shop: Workshop,
) -> list[Step]:
    """The steps of a product whose result `made` is an input of `group`: some rows at a time, in the memory of an output if one
    fits. The output may be an operand of an epilogue, if its elements are computed at once (`over`). If the whole group is not an
    epilogue, its first sums may be: then the tile program runs on the rows as on one long row."""
    rows, columns = shape
    steps: list[Step] = []
    arrays = [None if v is made else matrix(look(v), rows, columns, shop, steps) for v in group.inputs]
    targets = [bits(a.reshape(rows, -1)) for a in outs.values()]
    code, kinds = lowered(group, list(outs), register_kinds(group, arrays, list(outs)))
    fitting = [a for a in targets if a.dtype == np.float32 and a.shape[1] == columns]
    taken = [a for a in fitting if not any(x is not None and overlaps(x, a) for x in arrays)]
    if fitting and (end := epilogue(code, arrays, columns)) is not None:
        if over and all(x is None or is_same(x, fitting[0]) or not overlaps(x, fitting[0]) for x in arrays):
            taken = fitting[:1]
        pieces = threads.cuts(rows, workers if taken else max(workers, -(-rows // height)), threads.ROWS)
        parts: list[list[Step]] = [[] for _ in range(workers)]
        for w in range(workers):
            packing = shop.scratch((kernels().PACKED_SCRATCH,), F32)
            own = None if taken else shop.scratch((height, columns), F32)
            for s in pieces[w::workers]:
                operands = tuple((op, x[s]) for op, x in end)
                if own is None:
                    parts[w] += into(s, taken[0][s], packing, operands)
                else:  # the result overwrites an operand
                    block = own[: s.stop - s.start]
                    parts[w] += [*into(s, block, packing, operands), (np.copyto, (fitting[0][s], block))]
        return [*steps, *threads.together([(threads.in_turn, (part,)) for part in parts], workers)]
    first, rest = _first_sums(group, made, outs)
    start: list[tuple[int, Array]] = []
    more = [np.broadcast_to(matrix(look(v), rows, columns, shop, steps), shape) for v in first.values()]
    if more and all(x.dtype == np.float32 and x.strides[1] in (0, x.itemsize) for x in more):
        group, made = rest, [*first][-1].result
        start = [(kernels().OPS.index("add"), x) for x in more]
        arrays = [None if v is made else matrix(look(v), rows, columns, shop, steps) for v in group.inputs]
        code, kinds = lowered(group, list(outs), register_kinds(group, arrays, list(outs)))
    pieces = threads.cuts(rows, max(workers, -(-rows // height)), threads.ROWS)
    chains = []
    for w in range(workers):
        room = shop.scratch((kernels().tile_floats(kinds, height, columns, group.reduces),), F32)
        packing = shop.scratch((kernels().PACKED_SCRATCH,), F32)
        own = None if taken else shop.scratch((height, columns), F32)
        chain: list[Step] = []
        for s in pieces[w::workers]:
            block = taken[0][s] if own is None else own[: s.stop - s.start]
            piece = tuple(block if a is None else a[s] for a in arrays) + tuple(a[s] for a in targets)
            call = (code, kinds, piece, len(arrays), s.stop - s.start, columns, group.reduces, room)
            chain += [*into(s, block, packing, tuple((op, x[s]) for op, x in start)), (kernels().tiles, call)]
        chains.append((threads.in_turn, (chain,)))
    return [*steps, *threads.together(chains, workers)]


def _first_sums(group: fusion.Group, made: Value, outs: Container[Value]) -> tuple[dict[Op, Value], fusion.Group]:
    """Up to two sums that begin `group`, each the only user of what was made before it, with their other operands; and the group
    of the other ops. None of them, if they compute one of `outs` or the others would form no group."""
    first: dict[Op, Value] = {}
    while len(first) < MOST_SUMS and made not in outs:
        users = [op for op in group.ops for v in op.values() if v is made]
        others = [v for v in users[0].values() if v is not made] if len(users) == 1 else []
        if len(others) != 1 or others[0] in group.kinds or fusion.instruction(users[0]) != "add":
            break
        first[users[0]], made = others[0], users[0].result
    if first and made not in outs and (rest := fusion.grouped([op for op in group.ops if op not in first])) is not None:
        return first, rest
    return {}, group


def epilogue(code: bytes, arrays: Sequence[Array | None], columns: int) -> Epilogue | None:
    """The epilogue of a tile program: a chain of operations on its only array without data, each with one operand. `arrays` are
    the inputs. None if the program is not such a chain."""
    names = kernels().OPS
    steps = [(names[code[i]], code[i + 1], code[i + 2]) for i in range(0, len(code), INSTRUCTION)]
    product = next(i for i, x in enumerate(arrays) if x is None)
    if [name for name, _, _ in steps[:2]] != ["on_elements", "load"] or steps[-1] != ("store", len(arrays), 0):
        return None
    if steps[1][1] != product and steps[2] in (("add", product, 0), ("mul", product, 0)):  # whose operands may be swapped
        steps[1], steps[2] = ("load", product, 0), (steps[2][0], steps[1][1], 0)
    found: list[tuple[int, Array]] = []
    for name, a, b in steps[2:-1]:
        parts = [("maximum", a), ("minimum", b)] if name == "clamp" else [(name, a)]
        for part, number in parts:
            x = arrays[number] if number < len(arrays) else None
            if part not in ENDING or x is None or x.dtype != np.float32:
                return None
            found.append((names.index(part), np.broadcast_to(x, (len(x), columns))))
    fits = steps[1][1] == product and len(found) <= LONGEST_ENDING
    return tuple(found) if fits and all(x.strides[1] in (0, x.itemsize) for _, x in found) else None
