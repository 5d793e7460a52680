"""FIFOs, through which the cores of a kernel pass tiles: a core pushes, another one pops. Extension.

A kernel on several cores has a function per core, all called by its entry. A core is a vector or the cube core: FIFOs of
direction `c2v` go from the cube core to the vector cores, those of direction `v2c` back. There are two vector cores where a tile
is split between them, by `rows` or by `columns`.
"""

from __future__ import annotations

from ptir_tools.core.arrays import Array
from ptir_tools.core.declare import ASKS_NOTHING, Many, op
from ptir_tools.core.evaluate import Context
from ptir_tools.core.ir import READS, WRITES
from ptir_tools.core.lazy import np
from ptir_tools.core.types import Type
from ptir_tools.core.violations import attribute, require, result
from ptir_tools.dialects.pto import elements, rules
from ptir_tools.dialects.pto.facts import Facts, Form
from ptir_tools.dialects.pto.ops import kit
from ptir_tools.dialects.pto.run.machine import Results, Tile, core, issue, made_region, taken_region
from ptir_tools.dialects.pto.types import EventType, ScalarType, TileType, type_text
from ptir_tools.dialects.pto.valid import whole

DIRECTIONS = ("c2v", "v2c")
SPLITS = ("none", "rows", "columns")


def open_types(*, fifo: str, direction: str, slots: int, slotSize: int) -> tuple[Type, ...]:
    """A direction, and a positive number of slots of a positive size."""
    rules.one_of("direction", direction, DIRECTIONS)
    for name, value in (("slots", slots), ("slotSize", slotSize)):
        require(value > 0, "TypeMismatch", f"{name} is {value}, must be positive", at=attribute(name))
    return ()


@op("pto.fifo.open", infer=open_types, traits=READS | WRITES, asks=ASKS_NOTHING)
def open_(*, fifo: str, direction: str, slots: int, slotSize: int, context: Context) -> None:
    """Declare that the function uses a FIFO of `slots` tiles of at most `slotSize` bytes.

    `pto.fifo.open {fifo = f, direction = c2v, slots = 8, slotSize = 1024}`. Extension.
    """


def push_types(tile: Type, *, fifo: str, split: str) -> None:
    """A tile of Acc or Vec."""
    rules.at_loc("operand 0", rules.need_tile("operand 0", tile), "Acc", "Vec")
    rules.one_of("split", split, SPLITS)


@kit.tile_op(
    "push",
    push_types,
    traits=READS | WRITES,
    facts=Facts(
        opcodes=("TPUSH",),
        stores={"Vec": ("TPUSH", "MTE3"), "Acc": ("TPUSH", "FIX")},
        pipe="MTE3",
        vector=False,
        elements=elements.MEMORY,
        form=Form(family="pass"),
    ),
)
def push(
    tile: Tile, valid: Many, wait: Many, *, fifo: str, split: str = "none", event: EventType | None = None, context: Context
) -> Results:
    """Put a tile into a FIFO, and wait while that is full. A vector core pushes its part of a split tile.

    `pto.tile.push %t {fifo = f, split = rows} : T`. Extension.
    """
    extents = taken_region(context, tile)
    return issue(context, wait, event, lambda: core(context).push(fifo, split, tile, extents))


def pop_types(*, to: TileType, fifo: str, split: str) -> None:
    """A tile of Vec or Mat."""
    known = to.loc in (None, "Vec", "Mat")
    require(known, "InvalidLocation", f"a pop makes a tile of Vec or Mat, not {type_text(to)}", at=result())
    rules.one_of("split", split, SPLITS)


@kit.tile_op(
    "pop",
    pop_types,
    "to",
    traits=READS | WRITES,
    facts=Facts(
        pipe="MTE2",
        opcodes=("TPOP",),
        gives=("Vec", "Mat"),
        vector=False,
        elements=elements.MEMORY,
        valid=whole,
        form=Form(family="pass"),
    ),
)
def pop(
    valid: Many,
    wait: Many,
    *,
    to: TileType,
    fifo: str,
    split: str = "none",
    event: EventType | None = None,
    context: Context,
) -> Results:
    """The next tile of a FIFO; it is waited for. A vector core gets its part of a split tile, the cube core all parts.

    `%t = pto.tile.pop {fifo = f, split = rows} : T`. Extension.
    """
    made = Tile(to, made_region(context, to))

    def action() -> None:
        values, defined = core(context).pop(fifo, split, made)
        made.fill(values[made.box], defined[made.box])

    return issue(context, wait, event, action, made)


def free_types(*, fifo: str) -> tuple[Type, ...]:
    """A FIFO."""
    return ()


@op("pto.fifo.free", infer=free_types, traits=READS | WRITES, asks=ASKS_NOTHING)
def free(*, fifo: str, context: Context) -> None:
    """Give the slot of the tile that was popped first back to the producer: `pto.fifo.free {fifo = f}`. Extension."""
    core(context).free(fifo)


@op("pto.subblock", infer=rules.core_number, traits=READS, asks=ASKS_NOTHING)
def subblock(*, to: ScalarType, context: Context) -> Array:
    """Which of the vector cores runs, 0 or 1: `%i = pto.subblock : i64`. Extension."""
    return np.asarray(core(context).number, np.int64)
