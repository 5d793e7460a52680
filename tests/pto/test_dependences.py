"""What has to wait for what: windows of memory that are compared once, however often they are accessed."""

import random
from itertools import product

from ptir_tools.core.ir import Value
from ptir_tools.dialects.pto.affine import Linear, Natural
from ptir_tools.dialects.pto.memory import windows as places
from ptir_tools.dialects.pto.memory.windows import Access, covers, overlap
from ptir_tools.dialects.pto.order.dependences import RecordingWalk, dependences
from ptir_tools.dialects.pto.types import INDEX_TYPE
from tests.pto.programs import good, module

M, T = "pto.memref<1x4096xf32>", "tile<1x32xf32>"


def windows(seed):
    """Windows of one memory of two dimensions, small and large, at constant places and others, with steps, some of them again."""
    draw = random.Random(seed)
    root, terms = Value(INDEX_TYPE, "a"), ({}, {}, {}, {Value(INDEX_TYPE, "i"): 1}, {Natural(INDEX_TYPE, "n"): 4})
    side = draw.choice((4, 40))
    made = []
    for _ in range(60):
        if made and draw.random() < 0.3:
            made.append(draw.choice(made))
            continue
        sizes = [(n, n) if draw.random() < 0.9 else (1, n if draw.random() < 0.5 else None) for n in draw.choices(range(5), k=2)]
        starts = tuple(Linear(draw.randrange(side), draw.choice(terms)) for _ in range(2))
        steps = tuple(draw.choice((1, 1, 1, 2, 3, None)) for _ in range(2))
        made.append(Access(root, starts, steps, tuple(n for n, _ in sizes), tuple(n for _, n in sizes)))
    return made


def test_windows_know_those_that_they_meet_and_cover():
    for seed in range(60):
        found = places.Windows()
        accesses = windows(seed)
        pairs = list({id(window): (window, access) for access in accesses for window in [found.of(access)]}.values())
        assert len(pairs) < len(accesses)
        for window, access in pairs:
            same = found.of(access) is window and window.access == access
            met = {id(other) for other, x in pairs if overlap(access, x) is not None}
            within = {id(other) for other, x in pairs if covers(access, x)} & met
            meets, inside = {id(other) for other in window.meets}, {id(other) for other in window.covers} & met
            assert same and meets == met and inside == within, seed  # of numbers: a window shows all that it meets


def test_whether_windows_meet_is_what_their_elements_say():
    """True for any values of what is open, and None for none of them, in one dimension."""
    draw, i, n = random.Random(3), Value(INDEX_TYPE, "i"), Natural(INDEX_TYPE, "n")

    def window():
        least = draw.randrange(1, 5)
        most = draw.choice((least, least, least + draw.randrange(3), None))
        step, terms = draw.choice((1, 1, 2, 3, 4, 6, None)), draw.choice(({}, {}, {i: 1}, {n: 2}, {i: 1, n: 2}))
        return Access(i, (Linear(draw.randrange(-4, 14), terms),), (step,), (least,), (most,))

    def elements(x, values):
        first = x.starts[0].const + sum(values[v] * k for v, k in x.starts[0].terms.items())
        for size, step in product({x.least[0], x.most[0] or x.least[0] + 6}, (x.steps[0],) if x.steps[0] else (1, 5)):
            yield {first + k * step for k in range(size)}

    seen = set()
    for _ in range(3000):
        a, b = window(), window()
        given = [
            {i: k, n: m} for k, m in product((0, 3) if a.starts[0].terms == b.starts[0].terms else range(-9, 10, 3), range(5))
        ]
        ways = [pair for values in given for pair in product(elements(a, values), elements(b, values))]
        met, within = overlap(a, b), covers(a, b)
        seen |= {(met, within)}
        assert met is not True or all(x & y for x, y in ways), (a, b)
        assert met is not None or not any(x & y for x, y in ways), (a, b)
        assert not within or all(y <= x for x, y in ways), (a, b)
    assert {met for met, _ in seen} == {True, False, None} and {within for _, within in seen} == {True, False}


def in_turn(outer):
    """A load and a store take the same bytes in turn, in a loop of which the trips are not known."""
    lines = [f"%n: index, %a: {M}, %out: {M}", "%c1 = pto.constant 1 : index", f"%c{outer} = pto.constant {outer} : index"]
    body = []
    for k in range(4):
        body += [
            f"    %p{k} = pto.constant {128 * k} : index",
            f"    %x{k} = pto.tile.load %a[0, {32 * k}] : {M}, {T}",
            f"    pto.tile.assign %x{k}, %p{k} : {T}, index",
            f"    pto.tile.store %x{k}, %out[0, {32 * k}] : {M}, {T}",
        ]
    loops = [f"scf.for %i = %c0 to %c{outer} step %c1 {{", "  scf.for %j = %c0 to %n step %c1 {", *body, "  }", "}"]
    return good(module(*lines, *loops))


def test_tiles_at_the_same_addresses_are_compared_once_in_all_iterations(monkeypatch):
    def count(outer):
        program, asked = in_turn(outer), []
        monkeypatch.setattr(places, "overlap", lambda a, b: asked.append(1) or overlap(a, b))
        found = dependences(program, program.main)
        assert found.same and found.again
        return len(asked)

    assert 0 < count(2) == count(7)


def test_accesses_behind_the_last_ones_are_not_looked_at(monkeypatch):
    """What an access meets under every condition says all that earlier ones say: the work does not grow with their square."""

    def count(outer):
        program, asked = in_turn(outer), []
        meets = RecordingWalk.add_conflict
        monkeypatch.setattr(RecordingWalk, "add_conflict", lambda self, *args: asked.append(1) or meets(self, *args))
        dependences(program, program.main)
        monkeypatch.undo()
        return len(asked)

    assert 0 < count(4) < 3 * count(2)
