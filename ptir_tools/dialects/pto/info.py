"""Location and layout of every tile, where the program leaves them open (seed 8, step 3; facts 3.4)."""

from __future__ import annotations

from functools import cache

from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.ir import Function, Op, Value
from ptir_tools.dialects.pto.targets import A5, ALIGNMENT, Target
from ptir_tools.dialects.pto.types import TileType, tile

# Where the result of an op is; everything else computes in Vec.
_RESULTS = {
    "tile.mov.m2l": "Left",
    "tile.mov.m2r": "Right",
    "tile.mov.m2b": "Bias",
    "tile.mov.m2s": "Scale",
    "tile.extract": "Left",
    "tile.matmul": "Acc",
    "tile.matmul.acc": "Acc",
    "tile.matmul.bias": "Acc",
}
SAME_BYTES = ("tile.reshape",)  # ops whose result is the bytes of operand 0, which stays

# Operands whose place an op fixes, the first ones: a value without a location that is used so is there.
_OPERANDS = {
    "tile.mov.m2l": ("Mat",),
    "tile.mov.m2r": ("Mat",),
    "tile.mov.m2b": ("Mat",),
    "tile.mov.m2s": ("Mat",),
    "tile.mov.a2v": ("Acc",),
    "tile.mov.v2v": ("Vec",),
    "tile.mov.fp": ("Acc", "Scale"),
    "tile.store.fp": ("Acc", "Scale"),
    "tile.extract": ("Mat",),
    "tile.matmul": ("Left", "Right"),
    "tile.matmul.acc": ("Acc", "Left", "Right"),
    "tile.matmul.bias": ("Left", "Right", "Bias"),
}


def infer(function: Function, target: Target | None = None) -> dict[Value, TileType]:
    """The type of every tile value of `function` with location and layout filled in. What the program says stands.

    A result is where its op puts it, a load where its uses need it (Mat for moves to the matrix buffers, else Vec).
    """
    uses = _uses(function)
    made: dict[Value, TileType] = {}
    for p in function.params:
        _fill(p, None, uses, made, target)
    for op in function.ops():
        for v in op.results:
            _fill(v, op, uses, made, target)
        for r in op.regions:
            for p in r.params:
                _fill(p, None, uses, made, target)
    return made


def _fill(v: Value, op: Op | None, uses: dict[Value, set[str]], made: dict[Value, TileType], target: Target | None) -> None:
    t = v.type
    if not isinstance(t, TileType):
        return
    loc = t.loc or _location(v, op, uses, made)
    made[v] = _filled(t, loc, target)


@cache
def _filled(t: TileType, loc: str, target: Target | None) -> TileType:
    return tile(t.dtype, t.shape, loc, t.layout or default_layout(t, loc, target), t.valid)


def _location(v: Value, op: Op | None, uses: dict[Value, set[str]], made: dict[Value, TileType]) -> str:
    wanted = uses.get(v, set())
    if op is not None and op.defn.short == "tile.extract" and "Right" in wanted:
        return "Right"
    if op is not None and (found := _RESULTS.get(op.defn.short)) is not None:
        return found
    if op is not None and op.defn.short in SAME_BYTES and isinstance(x := op.operands[0], Value) and x in made:
        return made[x].loc or "Vec"
    if op is None or op.defn.short in ("tile.load", "scf.for", "scf.while", "scf.if", "func.call"):
        return min(wanted) if len(wanted) == 1 else "Vec"
    return "Vec"


def fixed(short: str) -> tuple[tuple[str, ...], str | None]:
    """Where an op wants its operands, the first ones, and where its result is; empty and None where it leaves that open."""
    return _OPERANDS.get(short, ()), _RESULTS.get(short)


def check(function: Function, diagnostics: Diagnostics) -> None:
    """Report tiles that one op puts, or needs, in one location and another op in another."""
    if not any(op.defn.short in _OPERANDS for op in function.ops()):
        return
    made = infer(function)
    for op in function.ops():
        for i, (x, place) in enumerate(zip(op.operands, _OPERANDS.get(op.defn.short, ()), strict=False)):
            if isinstance(x, Value) and x in made and made[x].loc != place:
                name = op.defn.short.removeprefix("tile.")
                message = f"operand {i} of {name} must be loc={place}, and %{x.name} is in {made[x].loc}"
                labels = [(x.op.loc, "made here")] if x.op is not None else []
                diagnostics.error("InvalidLocation", message, op.loc, labels=labels, help="move it there, or load it twice")
                break


def _uses(function: Function) -> dict[Value, set[str]]:
    """The locations in which uses need a value, where they fix one."""
    found: dict[Value, set[str]] = {}
    for op in function.ops():
        short = op.defn.short
        for x, place in zip(op.operands, _OPERANDS.get(short, ()), strict=False):
            if isinstance(x, Value):
                found.setdefault(x, set()).add(place)
    return found


def default_layout(t: TileType, loc: str, target: Target | None) -> str:
    """The layout that a location has by default: a column vector is DN, a row in Mat is ND."""
    rows, columns = extents(t)
    if loc == "Vec":
        return "DN" if columns == 1 and rows != 1 else "ND"
    if loc == "Mat" and rows == 1:
        return "ND"
    return (target or A5).layouts[loc][0]


def extents(t: TileType) -> tuple[int, int]:
    """Rows and columns of a tile: leading dimensions count as rows; unknown extents as 0."""
    known = [d if isinstance(d, int) else 0 for d in t.shape]
    rows = 1
    for d in known[:-1]:
        rows *= d
    return rows, known[-1] if known else 1


def tile_bytes(t: TileType) -> int:
    """Bytes of the whole static shape; `valid` does not shrink it."""
    rows, columns = extents(t)
    return rows * columns * t.dtype.size


def box_of(t: TileType, layout: str) -> tuple[int, int]:
    """Rows and columns of a layout's box: 512 bytes, in Acc 16 x 16 elements (facts 3.3)."""
    if t.loc == "Acc":
        return 16, 16
    per = ALIGNMENT // t.dtype.size
    return (16, per) if layout in ("Nz", "Zz") else (per, 16)
