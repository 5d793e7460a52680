"""The constants of time: op by op those of the public simulator, and as the manual says them."""

from __future__ import annotations

import pytest

from ptir_tools.core.declare import OPS
from ptir_tools.dialects.pto import DIALECT
from ptir_tools.dialects.pto.costs import A3_COSTS, Costs, Work
from ptir_tools.dialects.pto.facts import facts_of
from ptir_tools.dialects.pto.targets import A3, A5
from tests.conftest import ROOT

# What perf_sim says for one op of a3: rows, columns and bytes of an element; cycles.
VECTOR = {
    "add": ((16, 64, 4, 42), (64, 128, 4, 266), (64, 128, 2, 138)),
    "mul": ((16, 64, 4, 42), (64, 128, 4, 266), (8, 1024, 4, 266)),
    "div": ((16, 64, 4, 75), (64, 128, 4, 523), (64, 128, 2, 267)),
    "muls": ((16, 64, 4, 27), (64, 128, 4, 139), (64, 128, 2, 75)),
    "divs": ((16, 64, 4, 116), (64, 128, 4, 701), (64, 128, 2, 356)),
    "exp": ((16, 64, 4, 45), (64, 128, 4, 269), (64, 96, 4, 205)),
    "sqrt": ((16, 64, 4, 46), (64, 128, 4, 270), (64, 128, 2, 142)),
    "rsqrt": ((16, 64, 4, 26), (64, 128, 4, 138), (64, 96, 4, 106)),
    "abs": ((16, 64, 4, 29), (64, 128, 4, 141), (64, 96, 4, 109)),
    "cvt": ((16, 64, 4, 48), (64, 128, 4, 272), (64, 64, 4, 144)),
    "cmp": ((16, 64, 4, 40), (64, 128, 4, 264), (64, 128, 2, 136)),
    "sel": ((16, 64, 4, 558), (64, 128, 4, 2190), (8, 1024, 4, 286)),
    "trans": ((64, 64, 4, 130), (64, 128, 4, 266)),
    "rowsum": ((16, 64, 4, 51), (64, 128, 4, 80), (32, 512, 4, 254), (16, 768, 4, 370), (8, 1024, 4, 486)),
    "rowmax": ((16, 64, 4, 11), (64, 128, 4, 40), (32, 512, 4, 214), (8, 1024, 4, 446)),
    "colsum": ((16, 64, 4, 380), (64, 128, 4, 1580), (256, 32, 4, 6380), (8, 1024, 4, 186)),
    "rowexpandsub": ((16, 64, 4, 61), (64, 128, 4, 285), (64, 128, 2, 157)),
    "rowexpanddiv": ((16, 64, 4, 94), (64, 128, 4, 542), (32, 512, 4, 1054)),
    "rowexpandexpdif": ((16, 64, 4, 121), (64, 64, 4, 313), (32, 128, 4, 313)),
    "colexpandmul": ((16, 64, 4, 14), (64, 128, 4, 14), (16, 768, 4, 14)),
}
MOVES = {  # pipe, from, to: elements, bytes of an element; cycles
    ("MTE2", "gm", "Vec"): ((16 * 64, 4, 69), (16 * 512, 4, 559), (64 * 512, 2, 1119)),
    ("MTE2", "gm", "Mat"): ((256 * 256, 2, 1672), (128 * 256, 4, 1672), (256 * 16, 4, 209)),
    ("MTE3", "Vec", "gm"): ((16 * 64, 4, 37), (16 * 512, 4, 299), (64 * 512, 2, 599)),
    ("MTE1", "Mat", "Left"): ((256 * 64, 2, 129), (128 * 64, 4, 65)),
    ("MTE1", "Mat", "Right"): ((64 * 64, 2, 65), (64 * 64, 4, 65), (64 * 16, 4, 17)),
    ("FIX", "Acc", "gm"): ((256 * 64, 4, 807), (128 * 64, 4, 404), (128 * 16, 4, 101)),
}
PRODUCTS = ((256, 64, 64, 2, 262), (128, 64, 64, 4, 518), (128, 64, 16, 4, 134), (128, 128, 64, 2, 262))


def near(ours: int, theirs: int) -> bool:
    """Within a tenth, or three cycles."""
    return abs(ours - theirs) <= max(0.1 * theirs, 3)


@pytest.mark.parametrize("name", VECTOR)
def test_vector_ops_take_as_long_as_the_simulator_says(name: str) -> None:
    work = A3_COSTS.work(kind(name), 2 if name in ("add", "mul") else 1)
    for rows, columns, size, cycles in VECTOR[name]:
        assert near(work.cycles(rows, columns * size), cycles), (rows, columns, size)


@pytest.mark.parametrize("route", MOVES, ids="-".join)
def test_moves_take_as_long_as_the_simulator_says(route: tuple[str, str, str]) -> None:
    for elements, size, cycles in MOVES[route]:
        assert near(A3_COSTS.moved(*route, elements, size), cycles)


def test_products_take_as_long_as_the_simulator_says() -> None:
    for m, k, n, size, cycles in PRODUCTS:
        assert A3_COSTS.multiplied(m, k, n, size) == cycles


def kind(name: str) -> str:
    """The kind of work that an op declares."""
    return facts_of(OPS[f"pto.tile.{name}"]).work


@pytest.mark.parametrize("costs", [A3.costs, A5.costs], ids=["a3", "a5"])
def test_every_kind_has_costs_and_a_larger_tile_never_takes_less(costs: Costs) -> None:
    kinds = {facts_of(d).work for d in DIALECT.ops.values()}
    assert costs.vector.keys() - {"two tiles"} == kinds
    for work in costs.vector.values():
        for taken in (
            [work.cycles(rows, 512) for rows in (1, 8, 64, 512)],
            [work.cycles(16, size) for size in (4, 256, 1024, 4096)],
        ):
            assert taken == sorted(taken) and taken[0] > 0
    assert set(costs.start) == set(costs.rates) | {"M"} and set(costs.products) == {1, 2, 4}


def test_the_manual_has_the_costs_of_the_targets() -> None:
    rows = [line.split("|")[1:-1] for line in (ROOT / "docs/pto.md").read_text("utf-8").splitlines() if line.startswith("|")]
    table = {name.strip(): [c.strip() for c in cells] for name, *cells in rows}
    shown = dict(zip(table["cycles"], zip(table["start"], table["bytes per cycle"], strict=True), strict=True))
    spaces = {"gm", *A3.capacity}
    routes = {tuple(name.split(" to ")): cells[0] for name, cells in table.items() if {*name.split(" to ")} <= spaces and cells}
    for costs in (A3.costs, A5.costs):
        own = {p: (str(costs.start[p]), f"{costs.rates[p]:.1f}" if p in costs.rates else "") for p in costs.start}
        assert shown == own
        assert {r: rate for r, rate in routes.items() if len(r) > 1} == {
            route: f"{rate:.1f}" for route, rate in costs.routes.items() if not route[1].startswith("Scale")
        }
    assert [table["another op of one tile"], table["another op of several"]] == [
        [formula(t.costs.vector[name]) for t in (A3, A5)] for name in ("", "two tiles")
    ]
    for d in DIALECT.ops.values():
        if own := facts_of(d).work:
            (cells,) = (c for names, c in table.items() if d.short.removeprefix("tile.") in names.split(", "))
            assert cells == [formula(t.costs.vector[own]) for t in (A3, A5)], d.short


def formula(work: Work) -> str:
    """As the manual writes the work of an op."""
    terms = [(work.block, "blocks"), (work.row, "rows"), (work.width, "width")]
    return " + ".join([str(work.start), *(f"{n:g} {what}" for n, what in terms if n)]).replace("-", "−")
