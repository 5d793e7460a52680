"""Helpers of the type rules of Tiny's ops: spelling of types, dtype groups, equality and alignment of shapes."""

from __future__ import annotations

from collections.abc import Sequence

from ptir_tools.core.dtypes import BF16, F16, F32, I1, SI32, DType
from ptir_tools.core.ir import Op, Value
from ptir_tools.core.types import Dim, Shape, Sym, TensorType, Type
from ptir_tools.core.violations import Violation, operand, require

DTYPES: dict[str, DType] = {"fp16": F16, "bf16": BF16, "fp32": F32, "i32": SI32, "bool": I1}
SPELLED: dict[DType, str] = {d: text for text, d in DTYPES.items()}
FLOATS = (F16, BF16, F32)
NUMBERS = (*FLOATS, SI32)

# The types of attributes, by annotation; dialects/tiny/text/args.py reads and writes each of them.
Scalar = int | float | bool
Ints = tuple[int, ...]
Axes = tuple[int | str, ...]  # a text names the only axis with that written extent
Destination = tuple[int | None, ...]  # result axis per operand axis; None for one whose extent is written 1
Pads = tuple[tuple[Dim, Dim], ...]
Map = tuple[Dim, ...]  # expressions over the result's axes `@0`, `@1`, … and symbols
Result = TensorType  # in a body: the type of the result


def dim_text(d: Dim) -> str:
    """An extent as Tiny writes it."""
    return d.name if isinstance(d, Sym) else str(d)


def shape_text(shape: Sequence[Dim]) -> str:
    """`[M, 1, K]`."""
    return f"[{', '.join(map(dim_text, shape))}]"


def type_text(t: Type) -> str:
    """`fp16[M, K]`."""
    return f"{SPELLED.get(t.dtype, t.dtype)}{shape_text(t.shape)}" if isinstance(t, TensorType) else str(t)


def require_dtype(uop: str, t: TensorType, allowed: Sequence[DType]) -> None:
    """`t`, the first operand, has one of the dtypes, else DtypeMismatch."""
    listed = ", ".join(SPELLED[d] for d in allowed)
    require(t.dtype in allowed, "DtypeMismatch", f"{uop} takes {listed}, not {type_text(t)}", at=operand(0))


def aligned(shapes: Sequence[Shape]) -> Shape | None:
    """The shape that `shapes` broadcast to, right-aligned by their written extents, or None."""
    rank = max(map(len, shapes))
    rows = [(1,) * (rank - len(s)) + s for s in shapes]
    result: list[Dim] = []
    for column in zip(*rows, strict=True):
        wide = {d for d in column if d != 1}
        if len(wide) > 1:
            return None
        result.append(wide.pop() if wide else 1)
    return tuple(result)


def mismatch(uop: str, shapes: Sequence[Shape], at: int) -> Violation:
    """The violation for shapes that differ: operand `at` needs an EXPAND, or the shapes do not fit at all."""
    listed = " and ".join(map(shape_text, shapes))
    if (target := aligned(shapes)) is not None:
        help = f"EXPAND to {shape_text(target)} first"
        message = f"the operands of {uop} have shapes {listed}, not the same"
        return Violation("ExpandMissing", message, help=help, at=operand(at))
    return Violation("BroadcastMismatch", f"the shapes {listed} of {uop} do not align from the right", at=operand(at))


def same_shape(uop: str, types: Sequence[TensorType]) -> Shape:
    """The one shape of the operands; scalars adapt (the op's check distinguishes immediates from values of rank 0)."""
    shapes = list(dict.fromkeys(t.shape for t in types if t.rank)) or [()]
    if len(shapes) > 1:
        raise mismatch(uop, shapes, next(k for k, t in enumerate(types) if t.shape == shapes[1]))
    return shapes[0]


def same_dtype(uop: str, types: Sequence[TensorType], start: int = 0) -> DType:
    """The one dtype of the operands from number `start` on, else DtypeMismatch."""
    first = types[0].dtype
    for k, t in enumerate(types, start):
        message = f"{uop} of {SPELLED.get(first, first)} and {SPELLED.get(t.dtype, t.dtype)}"
        require(t.dtype is first, "DtypeMismatch", message, help="CAST one operand first", at=operand(k))
    return first


def check_scalars(op: Op) -> None:
    """A value of rank 0 is not an immediate: it needs an EXPAND, like any other value (3.1)."""
    shape = op.result.type.shape if isinstance(op.result.type, TensorType) else ()
    for k, x in enumerate(op.operands):
        if shape and isinstance(x, Value) and isinstance(x.type, TensorType) and not x.type.rank:
            raise mismatch(op.defn.short, [shape, ()], k)
