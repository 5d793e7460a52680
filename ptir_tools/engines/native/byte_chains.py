"""Products of signed bytes and constant ones with the elementwise ops in f32 that follow, up to bytes again: one step.

The sums are never in memory. In a quantized network these ops are a scale per column, a bias, a residual that was quantized, a
clamp, and the quantization of the result. The left operand may be patches of an image (a convolution), which are copied some rows
at a time. It may also be unsigned bytes minus 128. The kernel reads the unsigned ones.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from functools import partial
from itertools import takewhile

from ptir_tools.core import arrays
from ptir_tools.core.arrays import Array
from ptir_tools.core.dtypes import F32, SI8, SI32, UI8, DType
from ptir_tools.core.ir import Op, Operand, Region, Value
from ptir_tools.core.lazy import np
from ptir_tools.core.records import NamedTuple
from ptir_tools.engines.native import byte_products, convolution, fusion, products, threads
from ptir_tools.engines.native.convolution import Convolution
from ptir_tools.engines.native.library import kernels
from ptir_tools.engines.native.lowering import ROUNDING
from ptir_tools.engines.native.tiles import matrix
from ptir_tools.engines.numpy.control import is_same
from ptir_tools.engines.numpy.linalg import axes_of, stack
from ptir_tools.engines.numpy.steps import Look, Step, Workshop, fused, overlaps, tensor_of
from ptir_tools.engines.thresholds import at
from ptir_tools.plan.liveness import Unit
from ptir_tools.rewrite.constants import literal_of, scalar_of, source
from ptir_tools.rewrite.vocabulary import tensor_type

LONGEST = 16  # steps of the kernel
_HALF = 128  # from unsigned to signed bytes
_BINARY = ("add", "sub", "mul", "div", "maximum", "minimum")


class Stage(NamedTuple):
    """A step of f32: an instruction and its other operand. If the operand is bytes, it is read as `(x - zero) * scale`."""

    name: str
    operand: Operand | None = None
    zero: float = 0.0
    scale: float = 1.0


class Bytes(NamedTuple):
    """The left operand: bytes, or with `is_moved` unsigned bytes from which `moves` subtract 128."""

    value: Operand
    moves: tuple[Op, ...]

    @property
    def is_moved(self) -> bool:
        """Whether 128 is subtracted."""
        return bool(self.moves)


class Chain(NamedTuple):
    """A product of bytes and the stages on its sums. `added` is a row of numbers in 32 bits, or None; `ops` are those after the
    product, and `again` those that other steps compute, too."""

    dot: Op
    conv: Convolution | None
    left: Bytes
    added: Array | None
    stages: tuple[Stage, ...]
    ops: tuple[Op, ...]
    again: tuple[Op, ...]

    @property
    def product(self) -> tuple[Op, ...]:
        """The ops of the product."""
        return (self.dot,) if self.conv is None else self.conv.ops

    def steps(self, look: Look, outs: Mapping[Value, Array], shop: Workshop) -> list[Step]:
        """The steps of the product with its stages."""
        steps: list[Step] = []
        (out,) = outs.values()
        dot, conv = self.dot, self.conv
        rows, columns, depth = products.extents(dot) if conv is None else (conv.places, conv.width, conv.taps * conv.channels)
        out = out.reshape(rows, columns)
        added = self._added((rows, columns))
        stages = [self._stage(stage, out, look, shop, steps) for stage in self.stages]
        into = self._multiplied(look, shop, steps)
        workers = shop.threads if rows * columns * depth >= at.multiplications else 1

        def part(s: slice) -> Step:
            ends = tuple((name, *(x[s] if isinstance(x, np.ndarray) else x for x in more)) for name, *more in stages)
            return into(s, out[s], (None if added is None else added[s], ends))

        return [*steps, *threads.together([part(s) for s in threads.shares(rows, workers, rows * columns * depth)], workers)]

    def _added(self, shape: tuple[int, int]) -> Array | None:
        row = self.added
        if self.left.is_moved:  # the kernel multiplies unsigned bytes
            known = literal_of(self.dot.operands[1])
            assert known is not None
            sums = arrays.from_literal(known).sum(axis=tuple(axes_of(self.dot)[5]), dtype=np.int32).reshape(-1)
            row = (0 if row is None else row) - _HALF * sums
        return None if row is None else np.broadcast_to(row, shape)

    def _stage(
        self, stage: Stage, out: Array, look: Look, shop: Workshop, steps: list[Step]
    ) -> tuple[int, Array | None, float, float]:
        name = kernels().OPS.index(stage.name)
        if stage.operand is None:
            return name, None, 0.0, 1.0
        rows, columns = out.shape
        x = np.broadcast_to(matrix(look(stage.operand), rows, columns, shop, steps), out.shape)
        in_order = columns == 1 or x.strides[1] == x.itemsize or (x.dtype == np.float32 and not x.strides[1])
        if not in_order or (overlaps(x, out) and not is_same(x, out)):
            steps.append((np.copyto, (copy := shop.scratch_like(x), x)))
            x = copy
        return name, x, stage.zero, stage.scale

    def _multiplied(self, look: Look, shop: Workshop, steps: list[Step]) -> Callable[[slice, Array, object], Step]:
        """A function that returns the step which writes some rows of the result."""
        image, kernel = look(self.left.value), kernels()
        if self.conv is None:
            _, rows, contract, *_ = axes_of(self.dot)
            dtype: DType = UI8 if self.left.is_moved else tensor_of(self.dot).dtype
            left = stack(image, ([], rows, contract), 0, shop, dtype, steps)
            right = products.packed(self.dot, partial(look, self.dot.operands[1]), SI8, shop, steps)

            def multiplied(s: slice, out: Array, end: object) -> Step:
                return kernel.igemm, (out[None], left[:, s], right, shop.scratch((kernel.IGEMM_SCRATCH,), F32), end)

            return multiplied
        conv = self.conv
        image, geometry = convolution.windows_over(image, conv, shop, steps)
        packed = convolution.weights(conv, look, shop, steps, SI8)
        padding = (int(np.asarray(convolution.padding(conv.patches))) + (_HALF if self.left.is_moved else 0)) % 256
        room = kernel.iconv_scratch(conv.taps * conv.channels)

        def convolved(s: slice, out: Array, end: object) -> Step:
            return kernel.iconv, (out, image, packed, geometry, s.start, padding, shop.scratch((room,), F32), end)

        return convolved


def found(block: Region, uses: fusion.Uses) -> list[Unit]:
    """The units of products of bytes in `block` that have ops in f32 after them."""
    chains: list[Chain] = []
    taken: set[Op] = set()
    for op in reversed(block.body):  # the last product that an op follows takes it
        if (made := _chain(op, uses, taken)) is not None:
            chains.insert(0, made)
            taken.update(made.ops)
    firsts = {made.product[0] for made in chains}
    free = {x for x in map(_read, chains) if all(user in firsts for user in uses.users[x])}
    units: list[Unit] = []
    gone: set[Op] = set()
    for made in chains:
        moves = made.left.moves
        before = () if _read(made) not in free or gone.issuperset(moves) else moves
        own = [op for op in (*before, *made.product, *made.ops) if op not in gone]
        units.append(fused(made, own, (*(() if before else moves), *made.again)))
        gone.update(own)
    return units


def _read(made: Chain) -> Value:
    """The value that the product reads as it is written."""
    x = made.product[0].operands[0]
    assert isinstance(x, Value)
    return x


def _chain(dot: Op, uses: fusion.Uses, taken: Container[Op]) -> Chain | None:
    """The longest chain that begins with `dot`; None if there is none."""
    if not byte_products.wraps_in_si32(dot) or tensor_of(dot).dtype is not SI8 or tensor_type(dot.result).dtype is not SI32:
        return None
    if axes_of(dot)[0] or literal_of(dot.operands[1]) is None or 0 in products.extents(dot):
        return None
    conv = convolution.of_side(dot, 0, uses)
    if conv is not None and not _is_alone(conv, uses):
        conv = None
    first = dot if conv is None else conv.patches
    if not isinstance(first.operands[0], Value):
        return None
    walk = _Walk((dot if conv is None else conv.ops[-1]).result, uses, taken)
    added = walk.added_row(products.extents(dot)[1])
    if not walk.casts():
        return None
    walk.run()
    return Chain(dot, conv, _bytes(first.operands[0], uses), added, tuple(walk.stages), tuple(walk.ops), tuple(walk.again))


def _is_alone(conv: Convolution, uses: fusion.Uses) -> bool:
    """Whether the kernel computes a convolution: of one group, and nothing else reads its patches."""
    return conv.groups == 1 and conv.is_natural and all(uses.only(op.result) is not None for op in conv.before)


def _bytes(x: Value, uses: fusion.Uses) -> Bytes:
    """`x`, or the unsigned bytes from which it is made by subtracting 128, if nothing else reads what is between."""
    cast = x.op
    if cast is None or fusion.form(cast) != "bits" or not isinstance(turned := cast.operands[0], Value):
        return Bytes(x, ())
    turn = turned.op
    is_turn = turn is not None and turn.defn.inplace is not None and turn.defn.inplace.function == "bitwise_xor"
    if turn is None or not is_turn or tensor_of(turn).dtype is not UI8 or uses.only(turned) is None:
        return Bytes(x, ())
    return Bytes(turn.operands[0], (turn, cast)) if scalar_of(turn.operands[1]) == _HALF else Bytes(x, ())


class _Walk:
    """The ops after a value, each the only user of the one before."""

    def __init__(self, x: Value, uses: fusion.Uses, taken: Container[Op]) -> None:
        self.x, self.uses, self.taken = x, uses, taken
        self.ops: list[Op] = []
        self.again: list[Op] = []
        self.stages: list[Stage] = []

    @property
    def is_bytes(self) -> bool:
        """Whether the chain has ended in bytes."""
        return tensor_type(self.x).dtype in fusion.BYTES

    def _next(self) -> Op | None:
        user = self.uses.only(self.x)
        return user if user is not None and user not in self.taken and len(user.results) == 1 else None

    def run(self) -> None:
        """Follow the ops as far as possible. Bytes that are only made floats again stay bytes: who reads those does that."""
        ends = (self.x, 0, 0)
        while self.follows():
            if self.is_bytes:
                ends = (self.x, len(self.ops), len(self.stages))
        _, ops, stages = ends
        if ops and all(stage.name in ("sub", "mul") and _is_number(stage.operand) for stage in self.stages[stages:]):
            self.x, self.ops[ops:], self.stages[stages:] = ends[0], [], []

    def _take(self, op: Op, *stages: Stage) -> bool:
        if len(self.stages) + len(stages) > LONGEST:
            return False
        self.ops.append(op)
        self.stages += stages
        self.x = op.result
        return True

    def added_row(self, columns: int) -> Array | None:
        """The constant row of so many columns that is added to the sums, if there is one."""
        op = self._next()
        if op is None or fusion.instruction(op) != "add":
            return None
        literal, shape = literal_of(source(op.operands[1])), tensor_type(op.operands[1]).static_shape
        if literal is None or literal.is_missing or literal.type.count != columns:
            return None
        if not literal.type.static_shape[-1:] == shape[-1:] == (columns,):
            return None
        self._take(op)
        row: Array = arrays.from_literal(literal).reshape(-1)
        return row

    def casts(self) -> bool:
        """Whether the integers become f32."""
        op = self._next()
        return op is not None and fusion.form(op) == "cast" and tensor_type(op.result).dtype is F32 and self._take(op)

    def follows(self) -> bool:
        """Whether one more op is part of the chain."""
        op = self._next()
        if op is None:
            return False
        if self.is_bytes:  # what follows is part of the chain if it makes them floats again
            return self.casts()
        if fusion.role(op) == "reshape":
            return self._take(op)
        if fusion.role(op) != "map":
            return False
        name, shape = fusion.instruction(op), tensor_type(self.x).static_shape
        if fusion.form(op) == "cast":
            name = ROUNDING.get(tensor_type(op.result).dtype, "")
            return tensor_type(op.result).dtype in fusion.BYTES and self._take(op, Stage(name))
        if name == "round_even":
            return self._take(op, Stage(name))
        if name == "clamp" and op.operands[0] is self.x:
            return self._take(op, Stage("maximum", op.operands[1]), Stage("minimum", op.operands[2]))
        if name not in _BINARY or op.operands.count(self.x) != 1:
            return False
        other = op.operands[1 if op.operands[0] is self.x else 0]
        if op.operands[0] is not self.x and name in ("sub", "div"):
            return False
        if not isinstance(other, Value) or tensor_type(other).static_shape != shape:
            return False
        ops, stage = _dequantized(name, other)
        if not self._take(op, stage):
            return False
        own = [*takewhile(lambda made: self.uses.only(made.result) is not None, reversed(ops))]
        self.ops[-1:] = [*reversed(own), op]
        self.again += ops[: len(ops) - len(own)]
        return True


def _is_number(x: Operand | None) -> bool:
    return x is not None and scalar_of(x) is not None


def _dequantized(name: str, x: Value) -> tuple[list[Op], Stage]:
    """The stage that reads `x`, and the ops that it computes: casts of bytes, perhaps minus a number and times a number."""
    ops: list[Op] = []
    zero, scale, y = 0.0, 1.0, x
    for made, wanted in (("mul", "scale"), ("sub", "zero")):
        op = y.op
        if op is None or fusion.instruction(op) != made or not isinstance(op.operands[0], Value):
            continue
        if (number := scalar_of(op.operands[1])) is None:
            return [], Stage(name, x)
        zero, scale = (zero, float(number)) if wanted == "scale" else (float(number), scale)
        ops.insert(0, op)
        y = op.operands[0]
    cast = y.op
    if cast is None or fusion.form(cast) != "cast" or tensor_of(cast).dtype not in fusion.BYTES:
        return [], Stage(name, x)
    return [cast, *ops], Stage(name, cast.operands[0], zero, scale)
