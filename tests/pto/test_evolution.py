"""How long a loop is followed: programs whose addresses change in many ways, against what a run of many iterations shows."""

import random
from contextlib import suppress

import numpy as np
import pytest

import ptir_tools
from ptir_tools import engines
from ptir_tools.core.diagnostics import Diagnostics, Rejected, Severity
from ptir_tools.core.dialect import Options
from ptir_tools.core.ir import Value
from ptir_tools.core.limits import Limits
from ptir_tools.dialects.pto.affine import Linear, Natural, constant, linear
from ptir_tools.dialects.pto.order.hazards import HazardAnalysis
from ptir_tools.dialects.pto.types import INDEX_TYPE
from ptir_tools.engines.options import RunOptions
from tests.pto.programs import check, codes, event, good, module

ROWS = 1024
M, T, STORE = f"pto.memref<{ROWS}x8xf32>", "tile<1x8xf32>", event("TSTORE_VEC")
TRIPS = 45


class Loops:
    """A loop that stores at one place and loads at another, or passes one by: places follow from its counter in any way."""

    def __init__(self, seed):
        self.draw = random.Random(seed)
        self.lines = []
        self.count = 0

    def op(self, text):
        self.count += 1
        self.lines.append(f"%v{self.count} = {text}")
        return f"%v{self.count}"

    def number(self, n):
        return self.op(f"pto.constant {n} : index")

    def index(self, atoms, depth=2):
        """An index value made of `atoms`."""
        draw, x = self.draw, self.draw.choice(atoms)
        kind = draw.choice(("atom", "addi", "muli", "remsi", "divsi", "minsi", "maxsi", "select", "sum"))
        if kind == "atom" or not depth:
            return x
        x = self.index(atoms, depth - 1)
        if kind == "select":
            c = self.op(f"arith.cmpi {draw.choice(('eq', 'slt'))}, {x}, {self.number(draw.choice((0, 1, 3, 20)))} : index")
            return self.op(f"pto.select {c}, {self.index(atoms, 0)}, {self.number(draw.randrange(4))} : index")
        if kind == "sum":
            return self.op(f"pto.addi {x}, {self.index(atoms, 0)} : index")
        n = self.number(draw.choice({"addi": (1, 2, 30), "minsi": (3, 25), "maxsi": (3, 25)}.get(kind, (2, 3))))
        return self.op(f"pto.{kind} {x}, {n} : index")

    def access(self, atoms):
        row = self.op(f"pto.addi {self.index(atoms)}, {self.number(100)} : index")
        if self.draw.random() < 0.5:
            self.count += 1
            self.lines.append(f"%e{self.count} = pto.tile.store %t, %w[{row}, %c0] : {M}, {T}, {STORE}")
        else:
            self.op(f"pto.tile.load %w[{row}, %c0] : {M}, {T}")

    def body(self, atoms):
        for _ in range(self.draw.randint(1, 3)):
            kind = self.draw.random()
            if kind < 0.2:
                c = self.op(f"arith.cmpi {self.draw.choice(('eq', 'sgt'))}, {self.index(atoms)}, {self.number(9)} : index")
                self.lines.append(f"scf.if {c} {{")
                self.access(atoms)
                self.lines.append("}")
            elif kind < 0.35:
                self.count += 1
                j, upper = f"%j{self.count}", self.number(self.draw.choice((2, 12)))
                self.lines.append(f"scf.for {j} = %c0 to {upper} step %c1 {{")
                self.access([*atoms, j])
                self.lines.append("}")
            else:
                self.access(atoms)
        if self.draw.random() < 0.2:
            self.lines.append("pto.sync.op #pto.op<ALL>")

    def program(self, bound):
        self.lines += ["%c1 = pto.constant 1 : index", f"%k = pto.constant {TRIPS} : index"]
        self.lines.append(f"%t = pto.tile.load %a[0, 0] : {M}, {T}")
        start = self.number(self.draw.randrange(3))
        self.lines.append(f"%r = scf.for %i = %c0 to {bound} step %c1 iter_args(%x = {start}) -> (index) {{")
        self.body(["%i", "%x"])
        next_ = self.draw.choice(("%x", self.op("pto.addi %x, %c1 : index"), self.op("pto.subi %c1, %x : index"), "%i"))
        self.lines += [f"scf.yield {next_} : index", "}"]
        if self.draw.random() < 0.5:
            self.op(f"pto.tile.load %w[{self.number(self.draw.choice((100, 107, 140)))}, %c0] : {M}, {T}")
        return module(f"%a: {M}, %w: {M}, %n: index", *self.lines)


def races(source):
    """Whether a run of TRIPS iterations has a race; None where it leaves the memory."""
    made = good(source, Options(hazards=False))
    found = Diagnostics(made.source)
    memory = {name: np.ones((ROWS, 8), np.float32) for name in "aw"}
    with suppress(Rejected):
        engines.run(made, memory | {"n": np.int64(TRIPS)}, RunOptions(undef="zero"), found)
    return None if any(d.code == "OutOfBounds" for d in found) else bool(found.errors)


def agrees(seed):
    """What runs shows is found before, or it is said that it may not be; a loop of known length is judged exactly."""
    source = Loops(seed).program("%k")
    raced = races(source)
    if raced is None:
        return None
    _, counted = check(source)
    errors = {d.code for d in counted if d.severity is Severity.ERROR}
    assert bool(errors) == raced and not any(d.code == "Unproved" for d in counted), (seed, source)
    _, open_ = check(Loops(seed).program("%n"))
    said = [d for d in open_ if d.severity is Severity.ERROR or d.code in ("Unproved", "MemoryHazard")]
    assert said or not raced, (seed, source)
    return raced


@pytest.mark.parametrize("share", range(4))
def test_no_race_of_a_long_loop_is_missed(share):
    found = [agrees(seed) for seed in range(60 * share, 60 * share + 60)]
    assert found.count(True) > 10 and found.count(False) > 5


@pytest.mark.parametrize("seed", [0, 12, 17, 22])
def test_the_limit_says_how_long_a_loop_is_followed(seed):
    source = Loops(seed).program("%k")
    assert not any(d.code == "Unproved" for d in check(source)[1])
    followed = ptir_tools.verify(check(source)[0], limits=Limits(unrolled=1))
    assert any(d.code == "Unproved" for d in followed)


LOAD = event("TLOAD")


def carries(count, passed, wait):
    """A loop that carries `count` loaded tiles with their events, uses the first, and gives each the place that `passed` says;
    the last place is that of a new tile."""
    places = range(count)
    names = [*(f"%x{k} = %u{k}" for k in places), *(f"%e{k} = %f{k}" for k in places)]
    new = [f"{v}{passed[k]}" if passed[k] < count else f"{v}" for v in ("%x", "%e") for k in places]
    types, results = ", ".join([T] * count + [LOAD] * count), ", ".join(f"%r{k}" for k in range(2 * count))
    return module(
        f"%a: {M}, %w: {M}, %n: index",
        "%c1 = pto.constant 1 : index",
        *(f"%u{k}, %f{k} = pto.tile.load %a[{k}, 0] : {M}, {T}, {LOAD}" for k in places),
        "pto.sync.op #pto.op<ALL>",
        f"{results} = scf.for %i = %c0 to %n step %c1 iter_args({', '.join(names)}) -> ({types}) {{",
        f"  %y = pto.tile.abs %x0 {wait} : {T}",
        f"  pto.tile.store %y, %w[%i, 0] : {M}, {T}",
        f"  %x, %e = pto.tile.load %a[%i, 0] : {M}, {T}, {LOAD}",
        f"  scf.yield {', '.join(new)} : {types}",
        "}",
    )


@pytest.mark.parametrize("count", [1, 4, 9])
def test_a_tile_is_followed_as_long_as_the_loop_carries_it(count):
    passed = range(1, count + 1)  # each tile moves up by one place
    assert "MissingWait" in codes(carries(count, passed, ""))
    assert "MissingWait" not in codes(carries(count, passed, "wait(%e0)"))


def test_more_tiles_are_not_carried_longer():
    program = good(carries(9, [9, *range(1, 9)], "wait(%e0)"))
    assert HazardAnalysis(program, None).run(program.main).max_window == 4


CALLS = """func.func @k({parameters}) {{
  %c0 = pto.constant 0 : index
  %c1 = pto.constant 1 : index
  %c5 = pto.constant 5 : index
  %t = pto.tile.load %a[%c0, %c0] : {M}, {T}
  {body}
  return
}}
func.func @main(%a: {M}, %w: {M}, %n: index) {{
  %c0 = pto.constant 0 : index
  %c1 = pto.constant 1 : index
  {main}
  return
}}
"""
LEAVES = f"""scf.for %i = %c0 to %n step %c1 {{
    %e = pto.tile.store %t, %w[%i, %c0] : {M}, {T}, {STORE}
  }}"""
AHEAD = f"""%j = pto.addi %n, %c5 : index
  %e = pto.tile.store %t, %w[%j, %c0] : {M}, {T}, {STORE}
  %u = pto.tile.load %w[%n, %c0] : {M}, {T}"""
CALL = f"func.call @k(%a, %w, %n) : ({M}, {M}, index) -> ()"
EACH = f"scf.for %i = %c0 to %n step %c1 {{\n  func.call @k(%a, %w, %i) : ({M}, {M}, index) -> ()\n}}"
LOADS = f"%u = pto.tile.load %w[%j, %c0] : {M}, {T}"
SYNC = "pto.sync.op #pto.op<ALL>"


@pytest.mark.parametrize(
    "body, main, code",
    [
        (LEAVES, f"{CALL}\n%u = pto.tile.load %w[50, 0] : {M}, {T}", "Unproved"),
        (LEAVES + "\n" + SYNC, f"{CALL}\n%u = pto.tile.load %w[50, 0] : {M}, {T}", None),
        (AHEAD, EACH, "Unproved"),
        (SYNC + "\n" + AHEAD + "\n" + SYNC, EACH, None),
        (AHEAD, f"{CALL}\n%c5 = pto.constant 5 : index\n%j = pto.addi %n, %c5 : index\n{LOADS}", "MemoryHazard"),
        (AHEAD.replace("%w[%n", "%a[%j"), CALL, None),
        (AHEAD.replace("%w[%n", "%a[%j"), f"func.call @k(%a, %a, %n) : ({M}, {M}, index) -> ()", "MemoryHazard"),
    ],
)
def test_what_functions_leave_under_way_is_not_forgotten(body, main, code):
    _, found = check(CALLS.format(M=M, T=T, body=body, main=main, parameters=f"%a: {M}, %w: {M}, %n: index"))
    codes = [d.code for d in found if d.code in ("Unproved", "MemoryHazard")]
    assert (code in codes) if code else not codes, found.items
    assert len({(d.code, d.span.start, d.message) for d in found}) == len(found.items)  # once each


def test_a_function_that_leaves_nothing_is_followed_once(monkeypatch):
    from ptir_tools.dialects.pto.order import hazards

    steps = []
    kept = hazards.HazardWalk.task
    monkeypatch.setattr(hazards.HazardWalk, "task", lambda self, op, role: (steps.append(op), kept(self, op, role)))
    source = CALLS.format(
        M=M, T=T, body=AHEAD + "\n" + SYNC, main="\n".join([CALL] * 50), parameters=f"%a: {M}, %w: {M}, %n: index"
    )
    assert not check(source)[1].errors
    assert len(steps) == 3


@pytest.mark.parametrize(
    "kind, depth, code", [("andi", 60, None), ("xori", 60, None), ("andi", 3000, "Unproved"), ("divi", 3000, "Unproved")]
)
def test_a_condition_or_index_that_is_made_of_others_many_times(kind, depth, code):
    """Of itself twice: a walk of every path would not end. As deep as thousands: it is left unknown, which is reported."""
    first = "pto.remi %i, %c2 : index" if kind == "divi" else "pto.cmpi eq, %r, %c0 : index"
    chain = [f"%p{k + 1} = pto.{kind} %p{k}, {'%c2 : index' if kind == 'divi' else f'%p{k} : i1'}" for k in range(depth)]
    row = f"%p{depth}" if kind == "divi" else "0"
    work = [
        f"%x, %e = pto.tile.load %a[{row}, 0] : {M}, {T}, {event('TLOAD')}",
        f"pto.tile.store %x, %out[0, 0] wait(%e) : {M}, {T}",
    ]
    body = work if kind == "divi" else [f"scf.if %p{depth} {{", *work, "}"]
    loop = ["scf.for %i = %c0 to %n step %c1 {", "%r = pto.remi %i, %c2 : index", f"%p0 = {first}", *chain, *body, "}"]
    _, found = check(
        module(f"%a: {M}, %out: {M}, %n: index", "%c1 = pto.constant 1 : index", "%c2 = pto.constant 2 : index", *loop)
    )
    codes = [d.code for d in found if d.code != "UnwaitedEvent"]
    assert codes == ([code] if code else []), found.items


@pytest.mark.parametrize("name", ["divsi", "floordivsi", "ceildivsi", "remsi"])
def test_quotients_of_what_is_known_in_part(name):
    """Of `8 * n + c`, where `n` is a natural number or any: never wrong, and known where it is a whole multiple."""
    exact = {
        "divsi": lambda a, b: abs(a) // b * (1 if a >= 0 else -1),
        "floordivsi": lambda a, b: a // b,
        "ceildivsi": lambda a, b: -(-a // b),
        "remsi": lambda a, b: abs(a) % b * (1 if a >= 0 else -1),
    }[name]
    for c in (-12, -8, -3, 0, 3, 8):
        source = module(
            "%n: index",
            "%c8 = pto.constant 8 : index",
            "%c4 = pto.constant 4 : index",
            f"%c = pto.constant {c} : index",
            "%m = pto.muli %n, %c8 : index",
            "%a = pto.addi %m, %c : index",
            f"%q = pto.{name} %a, %c4 : index",
            f"%k = pto.{name} %c, %c4 : index",
        )
        program = good(source)
        values = {v.name: v for op in program.main.ops() for v in op.results}
        assert constant(values["k"]) == exact(c, 4)
        for unknown, ways in ((Natural(INDEX_TYPE, "n"), range(5)), (Value(INDEX_TYPE, "n"), range(-5, 5))):
            found = linear(values["q"], {program.main.params[0]: Linear(0, {unknown: 1})})
            known = set(found.terms) <= {unknown}
            assert known or c % 4
            for n in ways:
                assert not known or found.const + sum(k * n for k in found.terms.values()) == exact(8 * n + c, 4)
