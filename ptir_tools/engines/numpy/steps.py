"""Steps: prepared calls on preallocated arrays, and the interface between builders and frames."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence

from ptir_tools.core.arrays import Array, holds
from ptir_tools.core.dtypes import BF16, F16, F32, FP8_E4M3, FP8_E5M2, DType
from ptir_tools.core.evaluate import Context, Data, evaluate
from ptir_tools.core.extremes import MAXIMUM, MINIMUM, Extreme
from ptir_tools.core.ir import Op, Operand, Region, Value, operand_type
from ptir_tools.core.lazy import np
from ptir_tools.core.records import dataclass
from ptir_tools.core.typed import Protocol
from ptir_tools.core.types import TensorType, flatten
from ptir_tools.plan.liveness import Unit

# A call without a result: it writes into arrays among its arguments.
Step = tuple[Callable[..., object], tuple[object, ...]]


class Running(Protocol):
    """The part of the current run that steps may access. A step never refers to a frame, because a frame refers to its steps:
    it would outlive its run."""

    context: Context


class Runs(Protocol):
    """The frame of a region, as steps see it."""

    parameters: list[Array]
    results: list[Array]

    def run(self) -> None:
        """Run its steps."""


class Workshop(Protocol):
    """The interface of a frame for builders of steps."""

    @property
    def running(self) -> Running:
        """The context that steps may keep."""

    @property
    def threads(self) -> int:
        """The number of threads that a step may use."""

    def scratch(self, shape: tuple[int, ...], dtype: DType) -> Array:
        """A scratch array for the step until it ends."""

    def scratch_like(self, x: Array) -> Array:
        """A scratch array of the shape and dtype of `x`, row-major."""

    def kept(self, key: Hashable, make: Callable[[], Array]) -> Array:
        """The result of `make`, which depends only on constants and on `key`, computed once for the program."""

    def copied(self, out: Array, x: Array) -> list[Step]:
        """The steps that copy `x`, of any strides, to the dense `out`, which may have another dtype."""

    def frames(self, op: Op, carried: Sequence[Array] = ()) -> Sequence[Runs]:
        """A frame for each region of `op` (one for equal regions); their first parameters are `carried`."""


# (op, operands, leaves of the results, frame): the steps that compute the op.
Builder = Callable[[Op, Sequence[Data], Sequence["Array"], Workshop], list[Step]]

# The data of an operand that a unit reads.
Look = Callable[[Operand], Data]


class Recognized(Protocol):
    """A pattern that an engine recognized in the ops of a unit; it builds their steps."""

    def steps(self, look: Look, outs: Mapping[Value, Array], shop: Workshop) -> list[Step]:
        """The steps: operands by `look`, each value that others use written to its array in `outs`."""


class Fused(Unit):
    """A unit of several ops and the pattern that was recognized in them."""

    found: Recognized


def fused(found: Recognized, ops: Sequence[Op], again: Sequence[Op] = ()) -> Fused:
    """The unit of `ops`, recognized as `found`, that also computes `again`."""
    made = Fused(ops)
    made.found, made.again = found, tuple(again)
    return made


# The linked steps, each with the number of built steps done after it. A step without arguments runs without Python.
Linked = list[tuple[Step, int]]


def unlinked(steps: Sequence[Step]) -> Linked:
    """All steps, not linked."""
    return [(step, done) for done, step in enumerate(steps, 1)]


@dataclass(slots=True, frozen=True)
class Target:
    """The hooks of an engine: builders of ops, the partition of a block into units, copies, and linking of consecutive steps."""

    builder: Callable[[Op], Builder]
    partition: Callable[[Region], list[Unit]]
    copied: Callable[[Array, Array, Workshop], list[Step]] = lambda out, x, shop: [(np.copyto, (out, x, "unsafe"))]
    linked: Callable[[Sequence[Step]], Linked] = unlinked
    threads: int = 1
    packed: Callable[[Op, DType], int] | None = None  # the bytes of a packed constant right operand


NARROW = (F16, BF16, FP8_E4M3, FP8_E5M2)  # floats that are computed in f32 and rounded once
_DIRECT = (F16, BF16)  # narrow floats whose own loops round once, too


def is_direct(dtype: DType) -> bool:
    """Whether NumPy's loops for basic arithmetic on `dtype` round correctly."""
    return dtype.bits != 4 and (dtype not in NARROW or dtype in _DIRECT)


def declared(op: Op, ins: Sequence[Data], outs: Sequence[Array], shop: Workshop) -> list[Step]:
    """The op by its declared body."""
    return [(run_declared, (op, ins, outs, shop.running))]


def function_of(op: Op) -> np.ufunc:
    """The universal function that the declaration of `op` names."""
    assert op.defn.inplace is not None
    result: np.ufunc = getattr(np, op.defn.inplace.function)
    return result


def extreme_of(op: Op) -> Extreme:
    """`maximum` or `minimum`, whichever the declaration of `op` names."""
    assert op.defn.inplace is not None
    return MAXIMUM if op.defn.inplace.function == "maximum" else MINIMUM


def run_declared(op: Op, ins: Sequence[Data], outs: Sequence[Array], running: Running) -> None:
    """Evaluate the body of `op` and copy its results to `outs`. Raises its Violations."""
    for out, result in zip(outs, flatten(evaluate(op, ins, running.context)), strict=True):
        np.copyto(out, result)


def in_f32(build: Builder) -> Builder:
    """`build`, with narrow floats widened to f32 before and rounded after."""

    def wrapped(op: Op, ins: Sequence[Data], outs: Sequence[Array], shop: Workshop) -> list[Step]:
        before: list[Step] = []
        wide: list[Data] = []
        for x in ins:
            if is_narrow(x):
                copy = shop.scratch(x.shape, F32)
                before += shop.copied(copy, x)
                x = copy
            wide.append(x)
        (out,) = outs
        if not is_narrow(out):
            return [*before, *build(op, wide, outs, shop)]
        result = shop.scratch(out.shape, F32)
        return [*before, *build(op, wide, [result], shop), *shop.copied(out, result)]

    return wrapped


def is_narrow(array: Array) -> bool:
    """Whether the elements of `array` are of one of NARROW."""
    return holds(array, *NARROW)


def tensor_of(op: Op, operand: int = 0) -> TensorType:
    """The type of a tensor operand."""
    t = operand_type(op.operands[operand])
    assert isinstance(t, TensorType)
    return t


def overlaps(x: object, out: Array) -> bool:
    """Whether `x` may share memory with the written `out`."""
    return bool(np.may_share_memory(x, out))


def dense(x: Array, shop: Workshop, steps: list[Step]) -> Array:
    """`x` if it is row-major without gaps, else a copy in scratch (a step)."""
    if x.flags.c_contiguous:
        return x
    copy = shop.scratch_like(x)
    steps += shop.copied(copy, x)
    return copy
