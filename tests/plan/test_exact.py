"""The search for placements: against brute force, its two implementations against each other, instances packed without a gap."""

from __future__ import annotations

import csv
import itertools
import random
from array import array
from pathlib import Path

import pytest

from ptir_tools.plan import exact, placement, search, skyline
from ptir_tools.plan.exact import Budget, improve
from ptir_tools.plan.joining import join
from ptir_tools.plan.placement import Interval, lower_bound, peak, place
from ptir_tools.plan.search import Outcome
from ptir_tools.plan.validate import conflicts
from tests.conftest import ROOT


def drawn(rng: random.Random, n: int, time: int, size: int) -> list[Interval]:
    """Random intervals."""
    starts = [rng.randrange(time) for _ in range(n)]
    return [Interval(a, a + rng.randint(1, max(1, time // 2)), rng.randint(1, size)) for a in starts]


def least_peak(found: list[Interval]) -> int:
    """The optimum, by putting the intervals down in every order, each on the ground or on one that is down already."""
    best = sum(x.size for x in found)
    for order in itertools.permutations(range(len(found))):
        at: dict[int, int] = {}
        for i in order:
            x = found[i]
            below = [(at[j], at[j] + found[j].size) for j in at if found[j].lower < x.upper and x.lower < found[j].upper]
            tops = sorted({0, *(top for _, top in below)})
            at[i] = next(h for h in tops if all(h >= top or h + x.size <= bottom for bottom, top in below))
        best = min(best, max(at[i] + found[i].size for i in at))
    return best


@pytest.mark.parametrize("seed", range(40))
def test_optimum_of_small_problems(seed: int) -> None:
    rng = random.Random(seed)
    given = drawn(rng, rng.randint(2, 6), 6, 6)
    found = improve(given, place(given), Budget(100_000))
    assert peak(given, found.offsets) == least_peak(given) == found.bound
    assert conflicts(given, found.offsets, limit=found.bound) == []


@pytest.mark.parametrize("seed", range(30))
def test_kernel_takes_the_same_steps_as_python(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    given = sorted(drawn(rng, rng.randint(3, 40), rng.randint(4, 30), 30), key=lambda x: (x.lower, x.upper, x.size))
    buffers = placement.timeline(given).sections
    rank = rng.sample(range(len(given)), len(given))
    for capacity in {lower_bound(given), lower_bound(given) * 9 // 8, lower_bound(given) - 1}:
        found = search.search(buffers, rank, capacity, 300)
        with monkeypatch.context() as patched:
            patched.setattr(search, "kernel", lambda: None)
            outcome, offsets, steps = search.search(buffers, rank, capacity, 300)
        assert (found[0], found[2]) == (outcome, steps)
        if outcome is Outcome.PLACED:
            assert found[1] == offsets and conflicts(given, offsets, limit=capacity) == []


def packed(rng: random.Random, n: int, time: int, height: int) -> list[Interval]:
    """Intervals that fill a rectangle without a gap: it is cut in two, again and again."""
    parts = [(0, time, height)]
    while len(parts) < n:
        start, end, size = parts.pop(
            max(range(len(parts)), key=lambda i: (parts[i][1] - parts[i][0]) * parts[i][2] * rng.random())
        )
        if (rng.random() < 0.5 and end - start > 1) or size == 1:
            cut = rng.randint(start + 1, end - 1) if end - start > 1 else end
            parts += [(start, cut, size), (cut, end, size)] if cut < end else [(start, end, size)]
        else:
            cut = rng.randint(1, size - 1)
            parts += [(start, end, cut), (start, end, size - cut)]
    rng.shuffle(parts)
    return [Interval(*part) for part in parts]


@pytest.mark.parametrize("seed", range(6))
def test_what_fills_a_rectangle_is_packed_into_it(seed: int) -> None:
    given = packed(random.Random(seed), 60 + 10 * seed, 60, 4096)
    greedy = place(given)
    found = improve(given, greedy, Budget(1_000_000))
    assert peak(given, greedy) > 4096 == lower_bound(given) == peak(given, found.offsets) == found.bound
    assert conflicts(given, found.offsets, limit=4096) == []


@pytest.mark.parametrize("seed", range(4))
def test_skyline_takes_the_same_steps_in_python(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ptir_tools._native")
    rng = random.Random(seed)
    given = sorted([*packed(rng, 100, 90, 999), *drawn(rng, 60, 80, 300)], key=lambda x: (x.lower, x.upper, x.size))
    buffers, alive = placement.timeline(given).sections, [x.upper - x.lower for x in given]
    for setting, looks in ((setting, looks) for setting in skyline.SETTINGS for looks in (1, 2000, 10**6)):
        found = skyline.stack(buffers, alive, setting, looks)
        with monkeypatch.context() as patched:
            patched.setattr(skyline, "kernel", lambda: None)
            again = skyline.stack(buffers, alive, setting, looks)
        assert (found[0], found[2]) == (again[0], again[2])
        if found[0] is Outcome.PLACED:
            assert found[1] == again[1] and conflicts(given, list(found[1])) == []
    assert found[0] is Outcome.PLACED


@pytest.mark.parametrize("seed", range(3))
def test_what_is_cut_from_a_rectangle_is_joined_to_it(seed: int) -> None:
    rng = random.Random(seed)
    given = packed(rng, 400, 1 << 40, 1 << 40)
    assert len(join(given).whole) == 1
    tight = packed(rng, 400, 60, 4096)
    blocks = join(tight)
    whole = [blocks.intervals[i] for i in blocks.whole]
    assert len(whole) < 100 and sum((x.upper - x.lower) * x.size for x in whole) == 60 * 4096
    apart = list(itertools.accumulate((x.size for x in whole), initial=0))[:-1]
    assert conflicts(tight, blocks.expanded(apart, len(tight))) == []


def test_many_pieces_of_a_rectangle_are_packed_into_it() -> None:
    given = packed(random.Random(3), exact.LARGEST + 1, 1 << 40, 1 << 40)
    found = improve(given, place(given), Budget(50_000))
    assert peak(given, found.offsets) == found.bound == 1 << 40 and conflicts(given, found.offsets, limit=1 << 40) == []


def test_target_ends_the_search() -> None:
    given = packed(random.Random(7), 60, 60, 4096)
    greedy = place(given)
    assert improve(given, greedy, Budget(1_000_000, target=peak(given, greedy))).offsets == greedy
    assert improve(given, greedy, Budget(0)).offsets == greedy


@pytest.mark.parametrize("seed", range(5))
def test_first_fit_is_that_of_the_greedy_placement(seed: int) -> None:
    pytest.importorskip("ptir_tools._native")
    rng = random.Random(seed)
    given = sorted(drawn(rng, 300, 200, 50), key=lambda x: (x.lower, x.upper, x.size))
    order, offsets = rng.sample(range(300), 300), array("q", bytes(8 * 300))
    for start in (0, 120, 240):
        search.fit(placement.timeline(given).sections, order, offsets, start, min(start + 120, 300))
    neighbors = placement.overlapping(given, 10**6)
    assert neighbors is not None and list(offsets) == placement._greedy(given, neighbors, order, placement._first_fit)


def test_many_intervals_are_placed_by_first_fit() -> None:
    given = drawn(random.Random(1), exact.LARGEST + 100, 40, 64)
    given = [Interval(40 * (i // 100) + x.lower, 40 * (i // 100) + x.upper, x.size) for i, x in enumerate(given)]
    greedy = [at + 1 for at in place(given)]
    found = improve(given, greedy, Budget(100_000, 5.0))
    assert peak(given, found.offsets) <= peak(given, greedy) and conflicts(given, found.offsets) == []
    assert (peak(given, found.offsets) < peak(given, greedy)) == (search.kernel() is not None)


def test_sections_are_the_largest_sets_alive_at_once() -> None:
    given = [Interval(0, 4, 2), Interval(7, 7, 9), Interval(2, 9, 6), Interval(1, 2, 4), Interval(5, 6, 2)]
    found = placement.timeline(given)
    assert list(found.order) == [0, 3, 2, 4] and found.bound == 8
    b = found.sections
    assert list(zip(b.lower, b.upper, b.size, strict=True)) == [(0, 2, 2), (0, 1, 4), (1, 3, 6), (2, 3, 2)]


@pytest.mark.parametrize("seed", range(20))
def test_kernel_and_python_see_one_timeline(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    given = [Interval(a - 9, a - 9 + rng.randint(0, 9), rng.randint(0, 5)) for a in rng.choices(range(30), k=rng.randint(0, 60))]
    found = placement.timeline(given)
    monkeypatch.setattr(placement, "kernel", lambda: None)
    assert found == placement.timeline(given)
    alive = [sum(x.size for x in given if x.lower <= t < x.upper) for t in range(-9, 40)]
    assert found.bound == max(alive) == lower_bound(given)


def test_more_bytes_than_are_counted_are_left_where_they_are() -> None:
    given = [Interval(i % 7, i % 7 + 1 + i % 5, 10**18 - 1 - 7 * i) for i in range(40)]
    offsets = place(given)
    assert conflicts(given, offsets) == []
    assert improve(given, offsets, Budget(1000)).offsets == offsets


def test_kernel_refuses_what_it_cannot_hold() -> None:
    native = pytest.importorskip("ptir_tools._native")
    two = array("q", [0, 0])
    with pytest.raises(ValueError, match="differ in length"):
        native.place(two, two, two, two[:1], 9, 9, two)
    with pytest.raises(ValueError, match="empty range"):
        native.place(two, two, two, two, 9, 9, two)
    with pytest.raises(ValueError, match="range of no buffers"):
        native.fit(two, array("q", [1, 1]), two, two, 0, 3, False, two)
    with pytest.raises(ValueError, match="names no buffer"):
        native.fit(two, array("q", [1, 1]), two, array("q", [0, 2]), 0, 2, False, two)
    with pytest.raises(ValueError, match="no buffer begins"):
        native.stack(two, array("q", [1, 3]), two, array("d", [0, 0]), 0.5, 1.0, 99, two)


INSTANCES = sorted((ROOT / "testdata" / "plan" / "data" / "minimalloc").glob("*.csv"))


@pytest.mark.skipif(search.kernel() is None, reason="no C compiler at installation")
@pytest.mark.parametrize("path", INSTANCES, ids=lambda path: path.name[0])
def test_published_instances_fit_their_capacity_by_default(path: Path) -> None:
    """Held to the capacity in the file's name by looking at every pair. The steps are what F needs; others take a few."""
    with path.open() as file:
        given = [Interval(int(r["lower"]), int(r["upper"]), int(r["size"])) for r in csv.DictReader(file)]
    capacity = int(path.name.split(".")[1])
    found = improve(given, place(given), Budget(5_000_000, target=capacity)).offsets
    assert all(0 <= at <= capacity - x.size for x, at in zip(given, found, strict=True))
    for i, (x, p) in enumerate(zip(given, found, strict=True)):
        for y, q in zip(given[:i], found[:i], strict=True):
            assert x.upper <= y.lower or y.upper <= x.lower or p + x.size <= q or q + y.size <= p


def test_a_search_is_watched_without_a_change_to_it() -> None:
    given = packed(random.Random(3), 60, 40, 1000)
    seen: list[tuple[int, int]] = []
    found = improve(given, place(given), Budget(2000, watch=lambda *at: seen.append(at)))
    assert found == improve(given, place(given), Budget(2000))
    peaks, bounds = zip(*seen, strict=True)
    assert list(peaks) == sorted(peaks, reverse=True) and list(bounds) == sorted(bounds)
    assert (peaks[-1], bounds[-1]) == (peak(given, found.offsets), found.bound)
