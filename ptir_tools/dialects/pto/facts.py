"""What is true of a tile op beyond what every op declares, and who asks it: `facts(op)`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache

from ptir_tools.core.ir import Op, OpDef, Operand, Value
from ptir_tools.core.records import dataclass, field
from ptir_tools.dialects.pto import DIALECT
from ptir_tools.dialects.pto.affine import Linear
from ptir_tools.dialects.pto.targets import Target
from ptir_tools.dialects.pto.types import TileType

Tiles = dict[Value, TileType]
Extents = tuple[Linear, ...]
Numbers = Callable[[Operand], Linear]  # what an index is
ValidRule = Callable[[Op, Sequence[Extents], Extents, Numbers], Extents]  # of the tile operands and the result's shape


@dataclass(slots=True, frozen=True, eq=False, kw_only=True)
class Facts:
    """The facts of one tile op. What is left out is as for most: elementwise on row-major tiles of Vec, by the vector pipe.

    Places: `takes` are the locations that it fixes of its operands, the first ones, and `gives` those that its result may have,
    the default first. Without them the result is where the tile is that it is written over, or else in Vec; with None, as that of
    a load, where its uses want it.

    Bytes: the result is written over the tile operand `over`, is the bytes of operand 0 (`renames`), or may lie over the tile
    operands `reuses` (None: over any, if the op is elementwise). `scratch`: it uses the target's scratch. `spare` gives the tiles
    that the library's form of it takes beyond its own, by those. `memory` is the number of the memref that it loads or stores.

    Targets: `elements` are the element types per target, of its first tile, without them any; `masked` says that the first tile
    is a mask, `converts` that they hold for the result as well. `vector`: it works in Vec alone, on row-major tiles. It goes over
    its elements `passes` times. `legal` raises Violation where it asks for more than a target gives."""

    pipe: str = "V"
    opcodes: tuple[str, ...] = ()  # of its events, the preferred one first, where they do not follow from the name
    stores: Mapping[str, tuple[str, str]] = field(default_factory=dict)  # opcode and pipe, by the location of what it stores
    takes: tuple[str, ...] = ()
    gives: tuple[str, ...] | None = ()
    over: int | None = None
    renames: bool = False
    reuses: tuple[int, ...] | None = None
    scratch: bool = False
    spare: Callable[[Sequence[TileType]], list[TileType]] | None = None
    memory: int | None = None
    elements: Mapping[str, frozenset[str]] | None = None
    masked: bool = False
    converts: bool = False
    vector: bool = True
    passes: int = 1
    legal: Callable[[Op, Tiles, Target], None] | None = None
    valid: ValidRule | None = None  # where the result is valid; None: where all tile operands are


VECTOR = Facts()  # of an op of which nothing else is declared
OTHER = Facts(pipe="S", gives=None, reuses=(), vector=False)  # of ops that are no tile ops


def facts_of(d: OpDef) -> Facts:
    """The facts of a declared op; OTHER for one that is no tile op."""
    return d.own if isinstance(d.own, Facts) else OTHER


def facts(op: Op) -> Facts:
    """The facts of an op."""
    own = op.defn.own
    return own if isinstance(own, Facts) else OTHER


@cache
def element_types(target: Target) -> dict[str, frozenset[str]]:
    """The element types that each op declares for a target, by its name without `tile.`, spelled as PTO does."""
    declared = {d.short.removeprefix("tile."): facts_of(d).elements for d in DIALECT.ops.values()}
    return {short: known[target.name] for short, known in declared.items() if known is not None}
