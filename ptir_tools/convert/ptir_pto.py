"""PTIR to PTO: elementwise programs, reductions of rows and products of parameters, tiled for a target.

Blocks of the program's largest shape are looped over (`ptir_pto_frame`): what a block needs is loaded, computed tile by tile
and stored. Everything must be a part of that shape; what PTO has no tile op for, or what would need memory between two ops, is
refused at every op at once (`NotTranslatable`). The largest blocks that fit the target are taken.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ptir_tools.convert.ptir_pto_emit import NOT_TRANSLATABLE, Emit, Piece, Rule
from ptir_tools.convert.ptir_pto_frame import COLUMN, FULL, SCALAR, Blocks, Frame, frame_of, unfit
from ptir_tools.convert.ptir_pto_matrix import dot_general
from ptir_tools.core.diagnostics import Diagnostics, Severity, require
from ptir_tools.core.dialect import Options
from ptir_tools.core.dtypes import F16, F32, I1, SI8, DType
from ptir_tools.core.ir import Literal, Op, Operand, Program
from ptir_tools.core.types import tensor
from ptir_tools.core.verify import verify
from ptir_tools.dialects.pto.targets import A3, find
from ptir_tools.passes import PassContext, run_pipeline

PIPELINE = "pto-canonicalize,pto-insert-events"
TOO_LARGE = "CapacityExceeded"


def convert(program: Program, diagnostics: Diagnostics, options: Options) -> Program | None:
    """The PTO program that stores what the entry of `program` returns into memrefs behind its parameters; None after
    reporting what cannot be said. The target is that of `options`, else a3."""
    before = diagnostics.errors
    for other in program.functions:
        if other is not program.main:
            diagnostics.error(NOT_TRANSLATABLE, f"only the entry is tiled; @{other.name} is another function", other.loc)
    target = find(options.target) if options.target else A3
    if target is None:
        diagnostics.error("UnknownTarget", f"`{options.target}` is no target", help="the targets are a3 and a5")
    if (frame := frame_of(program)) is None:
        reasons = [unfit(p.type) for p in program.main.params]
        message = next(filter(None, reasons), "there is no tensor with elements to tile")
        diagnostics.error(NOT_TRANSLATABLE, message, program.main.loc)
    if frame is None or target is None or diagnostics.errors > before:
        return None
    for made, report in attempts(program, frame, target.name):
        if made is not None and not report.errors:
            return made
        if any(d.code != TOO_LARGE for d in report if d.severity is Severity.ERROR):
            break
    for d in dict.fromkeys(replace(d, code=NOT_TRANSLATABLE) for d in report if d.severity is Severity.ERROR):
        diagnostics.add(d)
    return None


def attempts(program: Program, frame: Frame, target: str) -> Iterator[tuple[Program | None, Diagnostics]]:
    """The program with blocks of every size, the largest first, and what is wrong with it."""
    for blocks in frame.blocks():
        yield tiled(program, frame, blocks, target)


def tiled(program: Program, frame: Frame, blocks: Blocks, target: str) -> tuple[Program | None, Diagnostics]:
    """The program with blocks of one size, with events; nothing when something cannot be said."""
    report = Diagnostics(program.source)
    made = Emit(program, frame, blocks, RULES, report).run()
    if report.errors:
        return None, report
    made.attrs["pto.target"] = f"#pto.target<{target}>"
    run_pipeline(made, PIPELINE, PassContext(verify_each=False))
    verify(made, report)
    return made, report


# Rules


def joint(*pieces: Piece) -> str:
    """The kind of what is computed of pieces element by element."""
    kinds = {p.kind for p in pieces} - {SCALAR}
    require(bool(kinds), NOT_TRANSLATABLE, "arithmetic of scalars alone is no tile op", help="`ptir opt` folds constants")
    return kinds.pop() if len(kinds) == 1 else FULL


def binary(short: str, commutes: bool = False) -> Rule:
    """A tile op of two tiles, of tile and scalar, or of a tile and one row or column."""

    def rule(emit: Emit, op: Op, x: Operand, y: Operand) -> Piece:
        a, b = emit.piece(x), emit.piece(y)
        kind = joint(a, b)
        if SCALAR in (a.kind, b.kind):
            return emit.make(f"{short}s", kind, a.dtype, a.value, b.value)
        if commutes and b.kind == FULL:
            a, b = b, a
        if a.kind == FULL and b.kind != FULL and a.dtype in (F16, F32):
            prefix = "rowexpand" if b.kind == COLUMN else "colexpand"
            return emit.make(prefix + short, FULL, a.dtype, a.value, b.value)
        return emit.make(short, kind, a.dtype, emit.spread(a, kind).value, emit.spread(b, kind).value)

    return rule


def unary(short: str) -> Rule:
    """A tile op of one tile."""

    def rule(emit: Emit, op: Op, x: Operand) -> Piece:
        piece = emit.piece(x)
        return emit.make(short, joint(piece), piece.dtype, piece.value)

    return rule


def comparison(mode: str) -> Rule:
    """A mask of i8."""

    def rule(emit: Emit, op: Op, x: Operand, y: Operand) -> Piece:
        a, b = emit.piece(x), emit.piece(y)
        kind = joint(a, b)
        left = emit.spread(a, kind).value
        if b.kind == SCALAR:
            return emit.make("cmps", kind, SI8, left, b.value, cmpMode=mode)
        return emit.make("cmp", kind, SI8, left, emit.spread(b, kind).value, cmpMode=mode)

    return rule


def select(emit: Emit, op: Op, condition: Operand, x: Operand, y: Operand) -> Piece:
    """A mask and two tiles."""
    pieces = [emit.piece(v) for v in (condition, x, y)]
    require(pieces[0].kind != SCALAR, NOT_TRANSLATABLE, "a select on one condition for all elements is no tile op")
    kind = joint(*pieces)
    return emit.make("sel", kind, pieces[1].dtype, *(emit.spread(p, kind).value for p in pieces))


def clamp(emit: Emit, op: Op, x: Operand, low: Operand, high: Operand) -> Piece:
    """The larger of tile and lower bound, the smaller of that and the upper one."""
    emit.pieces[op.result] = binary("max")(emit, op, x, low)
    return binary("min")(emit, op, op.result, high)


def cast(emit: Emit, op: Op, x: Operand) -> Piece:
    """A conversion; floats to integers truncate and saturate in both IRs, integers that do not fit saturate in PTIR alone."""
    piece, source, to = emit.piece(x), _dtype(x), _dtype(op.result)
    if source is to:
        return piece
    kind = joint(piece)
    if to is I1:
        zero = emit.constant(Literal(tensor(piece.dtype, ()), bytes(piece.dtype.size)))
        return emit.make("cmps", kind, SI8, piece.value, zero, cmpMode="NE")
    wraps = source.is_integer and to.is_integer and not (to.min <= source.min and source.max <= to.max)
    require(not wraps, NOT_TRANSLATABLE, f"a cast from {source} to {to} saturates, pto.tile.cvt wraps")
    rmode = "CAST_TRUNC" if source.is_float and to.is_integer else "CAST_RINT"
    return emit.make("cvt", kind, to, piece.value, rmode=rmode)


def reduction(short: str) -> Rule:
    """A reduction of rows: sums go in f32, as PTIR's do by default."""

    def rule(emit: Emit, op: Op, x: Operand) -> Piece:
        rank, piece = len(emit.frame.shape), emit.piece(x)
        axes = tuple(a % rank for a in op.attr("axes"))
        whole = FULL in emit.frame.kinds(x.type) and rank > 1 and axes == (rank - 1,)  # type: ignore[arg-type, union-attr]
        require(whole, NOT_TRANSLATABLE, f"only rows of {list(emit.frame.shape)} are reduced, over the last axis")
        accum = op.attr("accum_dtype")
        same = _dtype(op.result) is piece.dtype and accum in (None, F32 if piece.dtype.is_float else piece.dtype)
        require(same, NOT_TRANSLATABLE, f"a row of {piece.dtype} is reduced in f32 to {piece.dtype}, not in {accum}")
        return emit.make(short, COLUMN, piece.dtype, emit.spread(piece).value)

    return rule


def restated(emit: Emit, op: Op, x: Operand) -> Piece:
    """The same elements under another shape: rows stay rows, columns columns."""
    piece = emit.piece(x)
    kinds = emit.frame.kinds(op.result.type)  # type: ignore[arg-type]
    message = f"{x.type} to {op.result.type} moves elements between rows and columns"  # type: ignore[union-attr]
    require(piece.kind in (*kinds, SCALAR), NOT_TRANSLATABLE, message)
    return piece


def broadcast_to(emit: Emit, op: Op, x: Operand) -> Piece:
    """Kept as it is until a tile needs it in full; the last axis is aligned with the columns."""
    piece, frame = emit.piece(x), emit.frame
    shape = x.type.shape  # type: ignore[union-attr]
    upright = piece.kind != COLUMN or shape[-1:] == (1,) or shape == frame.shape
    message = f"{x.type} to {op.result.type} makes rows of a column"  # type: ignore[union-attr]
    require(upright, NOT_TRANSLATABLE, message, help="reshape it to a last extent of 1 before")
    return piece


def constant(emit: Emit, op: Op) -> Piece:
    """One number for all elements."""
    return Piece(SCALAR, emit.constant(op.attr("value")))


def _dtype(x: Operand) -> DType:
    found: DType = x.type.dtype  # type: ignore[union-attr]
    return found


RULES: dict[str, Rule] = {
    "add": binary("add", commutes=True),
    "sub": binary("sub"),
    "mul": binary("mul", commutes=True),
    "div": binary("div"),
    "maximum": binary("max", commutes=True),
    "minimum": binary("min", commutes=True),
    "neg": unary("neg"),
    "abs": unary("abs"),
    "exp": unary("exp"),
    "log": unary("log"),
    "rsqrt": unary("rsqrt"),
    "reciprocal": unary("recip"),
    **{f"compare_{mode.lower()}": comparison(mode) for mode in ("EQ", "NE", "LT", "LE", "GT", "GE")},
    "select": select,
    "clamp": clamp,
    "cast": cast,
    "reduce_sum": reduction("rowsum"),
    "reduce_max": reduction("rowmax"),
    "reduce_min": reduction("rowmin"),
    "reshape": restated,
    "stop_gradient": restated,
    "broadcast_to": broadcast_to,
    "constant": constant,
    "dot_general": dot_general,
}
