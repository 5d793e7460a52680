"""Facts about tile ops that only PTO needs: `facts(op)`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache

from ptir_tools.core.ir import Op, OpDef, Operand, Value
from ptir_tools.core.records import dataclass, field
from ptir_tools.dialects.pto import DIALECT
from ptir_tools.dialects.pto.affine import Linear
from ptir_tools.dialects.pto.structure import value_of
from ptir_tools.dialects.pto.targets import Target
from ptir_tools.dialects.pto.types import TileType

Tiles = dict[Value, TileType]
Extents = tuple[Linear, ...]
Numbers = Callable[[Operand], Linear]  # what an index is
ValidRule = Callable[[Op, Sequence[Extents], Extents, Numbers], Extents]  # of the tile operands and the result's shape


def tile_at(op: Op, tiles: Tiles, i: int) -> TileType:
    """The inferred type of operand `i`, which is a tile."""
    x = value_of(op.operands[i])
    return tiles[x]


@dataclass(slots=True, frozen=True, eq=False, kw_only=True)
class Form:
    """How the C++ library calls an op.

    `family` is the kind of call (`text.cpp.instructions`). `name` is the function, if it is not the opcode. With `accumulates`,
    the operand that the op is written over is passed, too. With `packs`, the result is a mask of packed bits.
    """

    family: str = "call"
    name: str = ""
    accumulates: bool = False
    packs: bool = False


CALL = Form()


@dataclass(slots=True, frozen=True, eq=False, kw_only=True)
class Facts:
    """The facts of one tile op. The defaults are those of most ops: elementwise on row-major tiles in Vec, on the vector pipe.

    Locations: `takes` are the fixed locations of the first operands. `gives` are the possible locations of the result, the
    default first. Without `gives`, the result is where the tile is that it is written over, or else in Vec. With None (for a
    load), the uses of the result decide.

    Bytes: The result is written over the tile operand `over`. With `renames`, it is the bytes of operand 0. It may be written
    over the tile operands `reuses`; None allows any operand of an elementwise op. With `scratch`, the op uses the target's
    scratch memory. `spare` gives the extra tiles that the library's implementation needs. `memory` is the index of the memref
    operand that the op loads or stores.

    Targets: `elements` are the element types of the first tile, per target; empty allows any. With `masked`, the first tile is a
    mask. With `converts`, the element types apply to the result, too. With `vector`, the op works only in Vec, on row-major
    tiles. `work` is its kind in the costs of V (empty: by the number of its tiles). `legal` raises Violation if the op exceeds
    the target. `form` is its call in C++. `valid` gives the valid region of the result; None: where all tile operands are valid.
    With `turns`, tiles of one column may be seen as rows, as those of elementwise ops. With `scalar_first`, the library has the
    form with the scalar first.
    """

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
    work: str = ""
    legal: Callable[[Op, Tiles, Target], None] | None = None
    form: Form = CALL
    valid: ValidRule | None = None
    turns: bool = False
    scalar_first: bool = False


VECTOR = Facts()  # of an op of which nothing else is declared
OTHER = Facts(pipe="S", gives=None, reuses=(), vector=False)  # of ops that are no tile ops


def facts_of(d: OpDef) -> Facts:
    """The facts of a declared op; OTHER for one that is not a tile op."""
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
