"""How many cycles an op takes in its pipe: the constants of the targets, with their sources.

The source is the cost model of the public PTO ISA library (`include/pto/costmodel`), which its simulator `perf_sim` adds up:

* moves: `kA2A3ArchConfig` in `arch_config.hpp`, its fields `GM_TO_UB` and so on in GiB/s, at `kMainFrequencyHz`;
* products: `mad` in `cce_costmodel_cube.hpp`. A box of 16 x 16 x 32 bytes takes a cycle, and two if it is of f32;
* vector ops of a3: heads and slopes per 256 bytes in `cce_costmodel_vector_compute.hpp`, as they add up in each op;
* vector ops of a5: `linear` in `a5/formula_costmodel/formula_params.csv`. It has no moves and no products: they are those of a3.

Where the library limits an op by a count of elements, the source charges nothing per element. Ops that are always limited so,
such as reductions, cost what the source says; others cost as much as without the limit. An op that no source has is counted as
the nearest one of its kind.
"""

from __future__ import annotations

from collections.abc import Mapping

from ptir_tools.core.records import dataclass

BLOCK = 256  # bytes that the vector unit takes at once
_NARROW = 2  # the source counts elements of 4 bytes as 2 on the way to the matrix unit, and all that leave it


@dataclass(slots=True, frozen=True, eq=False)
class Work:
    """The cycles of a vector op: to `start`, then per 256 bytes of its largest tile, per row of it, and per 256 bytes of a row.

    `start` may be below 0, where the first row costs less than the others."""

    start: int
    block: float = 0
    row: int = 0
    width: int = 0

    def cycles(self, rows: int, row_bytes: int) -> int:
        """The cycles of a tile of `rows` rows of as many bytes, at least 1."""
        blocks = -(-rows * row_bytes // BLOCK)
        return max(self.start + round(self.block * blocks) + self.row * rows + self.width * -(-row_bytes // BLOCK), 1)


@dataclass(slots=True, frozen=True, eq=False)
class Costs:
    """The cycles of a target. An op takes those to `start` in its pipe, and then as many as its bytes take at a rate.

    `rates` are bytes per cycle by pipe; `routes` are those between two spaces where they differ (`gm` is memory). The matrix unit
    does `products` per cycle of elements of so many bytes, in whole boxes of 16 x 16 x 32 bytes. `vector` is the work of ops
    of V, by the kind that they declare."""

    start: Mapping[str, int]
    rates: Mapping[str, float]
    routes: Mapping[tuple[str, str], float]
    products: Mapping[int, int]
    vector: Mapping[str, Work]

    def moved(self, pipe: str, source: str, to: str, elements: float, size: int) -> int:
        """The cycles in which a pipe moves so many elements of `size` bytes from one space to another."""
        if source == "Acc":
            size = _NARROW
        elif to in ("Left", "Right"):
            size = min(size, _NARROW)
        return self.start[pipe] + int(elements * size / self.routes.get((source, to), self.rates[pipe]))

    def multiplied(self, rows: float, inner: float, columns: float, size: int) -> int:
        """The cycles of a product of elements of `size` bytes; the extents are whole boxes."""
        return self.start["M"] + int(rows * inner * columns / self.products[size])

    def work(self, kind: str, tiles: int) -> Work:
        """The work of a vector op of a kind that reads so many tiles."""
        return self.vector[kind or ("two tiles" if tiles > 1 else "")]


def _rate(gib: float) -> float:
    """Bytes per cycle, from GiB per second."""
    return gib * 1024**3 / 1.85e9


_START = {"S": 8, "M": 6, "MTE1": 1, "MTE2": 1, "MTE3": 1, "FIX": 1}
_RATES = {"S": 8, "MTE1": _rate(441), "MTE2": _rate(100.9), "MTE3": _rate(188.46), "FIX": _rate(70)}
_ROUTES = {
    ("gm", "Mat"): _rate(135),
    ("Mat", "gm"): _rate(32),
    ("Mat", "Right"): _rate(220.5),
    ("Mat", "Bias"): _rate(32),
    **{("Mat", scale): _rate(32) for scale in ("Scale", "ScaleLeft", "ScaleRight")},
    **{("Acc", to): _rate(128) for to in ("Mat", "Vec")},
}
_PRODUCTS = {1: 8192, 2: 4096, 4: 1024}


_A3 = {
    "": Work(12, 1),
    "two tiles": Work(10, 2),
    "root": Work(14, 2),
    "inverse root": Work(10, 1),
    "quotient": Work(11, 4),
    "inverse": Work(32, 5.2),
    "power": Work(14, 8),
    "conversion": Work(14, 2),
    "comparison": Work(8, 2),
    "choice": Work(14, row=34),
    "two sums": Work(20, 4),
    "copy": Work(14, 2),
    "fill": Work(15),
    "column": Work(29, 2),
    "column quotient": Work(30, 4),
    "column exponential": Work(57, 4),
    "row": Work(14),
    "row quotient": Work(14),
    "row exponential": Work(30, 2),
    "row sum": Work(22, width=29),
    "row fold": Work(-18, width=29),
    "column fold": Work(-20, row=25),
    "indexed": Work(12, row=46),
    "order": Work(20, 8),
}
_A5 = {
    "": Work(54, 1.06),
    "two tiles": Work(55, 1.25),
    "root": Work(63, 1.97),
    "inverse root": Work(76, 4.03),
    **dict.fromkeys(("quotient", "inverse", "column quotient", "row quotient"), Work(65, 1.91)),
    "power": Work(63, 8),
    "conversion": Work(52, 1.32),
    "comparison": Work(55, 1.25),
    "choice": Work(59, 1.93),
    "two sums": Work(70, 2.5),
    **dict.fromkeys(("copy", "fill", "row sum", "row fold", "column fold"), Work(54, 1.06)),
    **dict.fromkeys(("column", "row"), Work(55, 1.25)),
    **dict.fromkeys(("column exponential", "row exponential"), Work(63, 3.2)),
    **dict.fromkeys(("indexed", "order"), Work(65, 8)),
}
A3_COSTS = Costs(_START, _RATES, _ROUTES, _PRODUCTS, _A3)
A5_COSTS = Costs(_START, _RATES, _ROUTES, _PRODUCTS, _A5)
