"""The modelled machine: tiles in the bytes of a space, what is lost there, and races, held to a checker of its own."""

import random
import re
from dataclasses import dataclass, field

import numpy as np
import pytest

from ptir_tools import engines
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Options
from ptir_tools.core.limits import LimitExceeded, Limits
from ptir_tools.core.violations import Violation
from ptir_tools.engines.options import ORDERS, RunOptions
from ptir_tools.passes import PassContext, run_pipeline
from tests.pto.programs import KERNELS, check, codes, event, good, module, printed, run

M, T = "pto.memref<64x8xf32>", "tile<8x8xf32>"
ROWS = {"a": np.arange(512, dtype=np.float32).reshape(64, 8), "out": np.zeros((64, 8), np.float32)}


def loaded(name, row, address=None):
    lines = [f"%{name} = pto.tile.load %a[{row}, 0] : {M}, {T}"]
    if address is not None:
        lines += [f"%k_{name} = pto.constant {address} : index", f"pto.tile.assign %{name}, %k_{name} : {T}, index"]
    return lines


def stored(name, row):
    return [f"pto.tile.store %{name}, %out[{row}, 0] : {M}, {T}"]


def program(*parts, target="a3", parameters=f"%a: {M}, %out: {M}"):
    return good(module(parameters, *(line for p in parts for line in p), target=target), Options(hazards=False))


def violation(*parts, inputs=ROWS, **options):
    with pytest.raises(Violation) as error:
        run(program(*parts), inputs, **options)
    return error.value


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("second, clobbers", [(0, True), (224, True), (256, False)])
def test_a_tile_is_bytes_of_its_space(second, clobbers, order):
    parts = [loaded("t", 0, 0), loaded("u", 8, second), stored("t", 0)]
    if clobbers:
        error = violation(*parts, order=order)
        assert error.code == "TileOverwritten" and error.labels
    else:
        assert (run(program(*parts), ROWS, order=order)["out"][:8] == ROWS["a"][:8]).all()


def test_what_is_not_read_again_may_be_overwritten():
    made = run(program(loaded("t", 0, 0), stored("t", 0), loaded("u", 8, 32), stored("u", 8)), ROWS)["out"]
    assert (made[:16] == ROWS["a"][:16]).all()


def test_bytes_outside_the_new_tile_are_poison():
    half = [f"%u = pto.tile.load %a[8, 0] {{valid = [4, 8]}} : {M}, {T}", "%k = pto.constant 0 : index"]
    parts = [*half, f"pto.tile.assign %u, %k : {T}, index", f"pto.tile.store %u, %out[0, 0] {{valid = [8, 8]}} : {M}, {T}"]
    assert violation(loaded("t", 0, 0), stored("t", 0), parts).code == "UndefinedElement"


def test_an_address_may_be_computed_and_must_be_in_the_space():
    lines = [
        f"%t = pto.tile.load %a[0, 0] : {M}, {T}",
        "%k = pto.constant 32 : index",
        "%at = pto.muli %n, %k : index",
        f"pto.tile.assign %t, %at : {T}, index",
        *stored("t", 0),
    ]
    made = program(lines, parameters=f"%a: {M}, %out: {M}, %n: index")
    last = (192 * 1024 - 256) // 32
    assert (run(made, {**ROWS, "n": np.int64(last)})["out"][:8] == ROWS["a"][:8]).all()
    for n in (last + 1, -1, 1 << 40):
        with pytest.raises(Violation, match="OutOfBounds"):
            run(made, {**ROWS, "n": np.int64(n)})


def test_slots_of_a_ring_by_a_computed_address():
    source = (KERNELS / "ping_dynamic_addr.pto").read_text()
    inputs = {"a": np.arange(64 * 32, dtype=np.float32).reshape(64, 32), "out": np.zeros((64, 32), np.float32)}
    racing = good(source, Options(hazards=False))
    found = Diagnostics(racing.source)
    engines.run(racing, inputs, RunOptions(), found)
    assert [(d.code, d.message[:3]) for d in found] == [("MemoryHazard", "WAR")]
    synchronous = source.replace("%e2 = pto.tile.store", "pto.tile.store").replace(
        ", !pto.event<producer = #pto.op<TSTORE_VEC>>", ""
    )
    for order in ORDERS:
        assert (run(good(synchronous, Options(hazards=False)), inputs, order=order)["out"] == inputs["a"]).all()


def test_the_scratch_of_a3_is_written_by_the_ops_that_use_it():
    wide = "tile<32x32xf32>"
    memory = "pto.memref<64x32xf32>"

    def lines(address):
        return [
            f"%x = pto.tile.load %a[0, 0] : {memory}, {wide}",
            f"%y = pto.tile.load %a[32, 0] : {memory}, {wide}",
            f"%k = pto.constant {address} : index",
            f"pto.tile.assign %y, %k : {wide}, index",
            f"%m = pto.tile.rowmax %x : {wide} -> tile<32x1xf32>",
            f"%z = pto.tile.rowexpandsub %x, %m : {wide}, tile<32x1xf32> -> {wide}",
            f"pto.tile.store %z, %out[0, 0] : {memory}, {wide}",
            f"pto.tile.store %y, %out[32, 0] : {memory}, {wide}",
        ]

    inputs = {"a": np.arange(2048, dtype=np.float32).reshape(64, 32), "out": np.zeros((64, 32), np.float32)}
    for target, address, lost in (("a3", 180 * 1024, False), ("a3", 184 * 1024 - 32, True), ("a5", 190 * 1024, False)):
        made = program(lines(address), target=target, parameters=f"%a: {memory}, %out: {memory}")
        if lost:
            with pytest.raises(Violation, match="scratch of rowexpandsub"):
                run(made, inputs)
        else:
            assert (run(made, inputs)["out"][32:] == inputs["a"][32:]).all()


@pytest.mark.parametrize("name", ["crash_nested_if", "crash_nested_for"])
def test_blocks_within_blocks_see_what_is_outside(name):
    a = np.arange(64, dtype=np.float32).reshape(8, 8)
    inputs = {"a": a, "out": np.zeros((8, 8), np.float32)}
    inputs |= {"p": np.True_, "q": np.False_} if name.endswith("if") else {}
    assert (run((KERNELS / f"{name}.pto").read_text(), inputs)["out"] == a).all()


# Random programs against a happens-before checker that knows nothing of clocks


@dataclass
class Step:
    """An op of the model: its pipe, whether later ops wait for it, the steps it waits for, and the cells it touches."""

    pipe: str
    asynchronous: bool
    waits: list[int]
    reads: set = field(default_factory=set)
    writes: set = field(default_factory=set)


def conflicts(steps):
    """The pairs of steps that touch one cell, one writing, and that no chain of edges orders."""
    before = []  # per step, those that are complete when it starts
    for i, s in enumerate(steps):
        known = set()
        for j in range(i):
            if not steps[j].asynchronous or steps[j].pipe == s.pipe or j in s.waits:
                known |= {j} | before[j]
        for j in range(i):  # an op that completes before the next is issued has what it waited for complete, too
            if not steps[j].asynchronous:
                known |= {j} | before[j]
        before.append(known)
    return {
        (i, j)
        for i, s in enumerate(steps)
        for j in range(i)
        if j not in before[i]
        and ((s.writes & (steps[j].reads | steps[j].writes)) or (s.reads & steps[j].writes))
        and s.pipe != steps[j].pipe
    }


def generated(rng):
    """A program of loads, exps and stores at random windows and addresses with random waits; its model."""
    lines, steps, tiles, events = [], [], {}, {}
    for i in range(rng.randint(2, 10)):
        kind = rng.choice(["load", "exp", "store"]) if tiles else "load"
        row, waits = rng.randrange(0, 33, 4), [e for e in events if rng.random() < 0.35]
        step = Step({"load": "MTE2", "exp": "V", "store": "MTE3"}[kind], rng.random() < 0.75, waits)
        memory = rng.choice("ab")
        rows = {(memory, row + k) for k in range(8)}
        source = rng.choice(list(tiles)) if kind != "load" else None
        wait = f" wait({', '.join(f'%e{e}' for e in waits)})" if waits else ""
        opcode = {"load": "TLOAD", "exp": "TEXP", "store": "TSTORE_VEC"}[kind]
        signal = f", {event(opcode)}" if step.asynchronous else ""
        if source is not None:
            step.reads |= tiles[source]
        if kind == "store":
            step.writes |= rows
            head = f"%e{i} = " if step.asynchronous else ""
            lines.append(f"{head}pto.tile.store %t{source}, %{memory}[{row}, 0]{wait} : {M}, {T}{signal}")
        else:
            address = rng.choice([None, 0, 128, 256, 512])
            cells = {("ub", address + k) for k in range(256)} if address is not None else {("private", i)}
            step.writes |= cells
            head = f"%t{i}, %e{i} = " if step.asynchronous else f"%t{i} = "
            if kind == "load":
                step.reads |= rows
                lines.append(f"{head}pto.tile.load %{memory}[{row}, 0]{wait} : {M}, {T}{signal}")
            else:
                lines.append(f"{head}pto.tile.exp %t{source}{wait} : {T}{signal}")
            if address is not None:
                lines += [f"%k{i} = pto.constant {address} : index", f"pto.tile.assign %t{i}, %k{i} : {T}, index"]
            tiles = {n: c for n, c in tiles.items() if not c & cells} | {i: cells}
        if step.asynchronous:
            events[i] = None
        steps.append(step)
    return module(f"%a: {M}, %b: {M}", *lines), steps


def agree(seed):
    source, steps = generated(random.Random(seed))
    made = good(source, Options(hazards=False))
    starts = [m.start() for m in re.finditer(r"(?m)(?<=^    ).*pto\.tile\.(?!assign)", source)]
    inputs = {"a": np.ones((64, 8), np.float32), "b": np.ones((64, 8), np.float32)}
    want = conflicts(steps)
    for order in ORDERS:
        found = Diagnostics(made.source)
        engines.run(made, inputs, RunOptions(order=order, seed=seed), found)
        pairs = {(d.span.start, d.labels[0].span.start) for d in found}
        known = {(starts[i], starts[j]) for i, j in want}
        assert pairs <= known, (source, order)
        assert bool(pairs) == bool(known), (source, order)
        assert {p[0] for p in pairs} == {k[0] for k in known}, (source, order)
    return bool(want)


def test_races_are_those_of_the_model():
    assert 0.2 < np.mean([agree(seed) for seed in range(200)]) < 0.95


@pytest.mark.campaign
@pytest.mark.slow
@pytest.mark.parametrize("share", range(10))
def test_races_are_those_of_the_model_at_length(share):
    for seed in range(200 + 500 * share, 700 + 500 * share):
        agree(seed)


WHILE = f"""module attributes {{ pto.target = #pto.target<a3> }} {{
  func.func @f(%a: {M}, %out: {M}, %n: index) {{
    %c0 = pto.constant 0 : index
    %c1 = pto.constant 1 : index
    %c8 = pto.constant 8 : index
    %s = pto.tile.load %a[%c0, %c0] : {M}, {T}
    %r, %k, %last = scf.while (%x = %s, %i = %c0) : ({T}, index) -> ({T}, index, {T}) {{
      %c = arith.cmpi slt, %i, %n : index
      %d = pto.tile.neg %x : {T}
      scf.condition(%c) %x, %i, %d : {T}, index, {T}
    }} do {{
    ^bb0(%y: {T}, %j: index, %e: {T}):
      %o = pto.muli %j, %c8 : index
      %t = pto.tile.load %a[%o, %c0] : {M}, {T}
      %z = pto.tile.sub %t, %y : {T}
      %m = pto.addi %j, %c1 : index
      scf.yield %z, %m : {T}, index
    }}
    pto.tile.store %r, %out[%c0, %c0] : {M}, {T}
    pto.tile.store %last, %out[%c8, %c0] : {M}, {T}
    return
  }}
}}
"""


@pytest.mark.parametrize("n", [0, 1, 5])
def test_scf_while_is_read_printed_placed_and_run(n):
    want = ROWS["a"][:8]
    for j in range(n):
        want = ROWS["a"][8 * j : 8 * j + 8] - want
    made = good(WHILE)
    text = printed(made)
    assert printed(good(text)) == text and text.count("^bb0(") == 1
    for pipeline in ("", made.dialect.pipeline, "pto", "pto-bufferize"):
        after = good(WHILE)
        run_pipeline(after, pipeline, PassContext())
        shown = printed(after)
        for order in ORDERS:
            out = run(shown, {**ROWS, "n": np.int64(n)}, order=order)["out"]
            assert (out[:8] == want).all() and (out[8:16] == -want).all(), (pipeline, shown)


@pytest.mark.parametrize(
    "old, new, code",
    [
        ("scf.condition(%c) %x, %i, %d", "scf.condition(%i) %x, %i, %d", "TypeMismatch"),
        ("scf.condition(%c) %x, %i, %d : tile<8x8xf32>, index, tile<8x8xf32>", "scf.condition(%c)", "TypeMismatch"),
        ("scf.yield %z, %m : tile<8x8xf32>, index", "scf.yield %m : index", "TypeMismatch"),
        ("scf.yield %z, %m : tile<8x8xf32>, index", "scf.condition(%m)", "ParseError"),
        ("%y: tile<8x8xf32>, ", "", "TypeMismatch"),
        ("} do {", "} else {", "ParseError"),
    ],
)
def test_a_wrong_while_is_reported(old, new, code):
    assert old in WHILE
    assert code in codes(WHILE.replace(old, new, 1))


def test_a_while_without_end_is_stopped():
    source = WHILE.replace("slt, %i", "sge, %i")
    with pytest.raises(LimitExceeded):
        run(good(source), {**ROWS, "n": np.int64(0)}, limits=Limits(iterations=5))


def test_an_index_that_is_made_of_itself_twice_is_computed_once():
    """Sixty sums of an index with itself are the address of a tile: a walk of every path would not end."""
    sums = [f"%k{i + 1} = pto.addi %k{i}, %k{i} : index" for i in range(60)]
    lines = ["%k0 = pto.constant 0 : index", *sums, f"%x = pto.tile.load %a[0, 0] : {M}, {T}"]
    lines += [f"pto.tile.assign %x, %k60 : {T}, index", *stored("x", 8)]
    out = run(program(lines), ROWS)["out"]
    np.testing.assert_array_equal(out[8:16], ROWS["a"][:8])


def moved(source: str) -> list[str]:
    """How bad each tile that is bound elsewhere is."""
    return [d.severity.value for d in check(source)[1] if d.code == "TileMoved"]


@pytest.mark.parametrize(
    "trips, inside, given, found",
    [
        ("n", 0, 0, []), ("n", 1024, 0, ["error"]), ("n", 0, 1024, ["warning"]), ("n", 1024, 1024, ["error"]),
        ("c1", 0, 1024, []), ("c2", 0, 1024, ["error"]), ("c0", 1024, 0, []),
    ],
)  # fmt: skip
def test_a_tile_that_is_bound_elsewhere_needs_no_run_to_be_seen(trips, inside, given, found):
    """What a loop carries lies at 0 before it, at `inside` in it, and what it hands on at `given`."""
    source = module(
        f"%a: {M}, %out: {M}, %n: index",
        *[f"%c{k} = pto.constant {k} : index" for k in (1, 2, 1024)],
        f"%x = pto.tile.load %a[0, 0] : {M}, {T}",
        f"pto.tile.assign %x, %c0 : {T}, index",
        f"%r = scf.for %i = %c0 to %{trips} step %c1 iter_args(%t = %x) -> ({T}) {{",
        f"  pto.tile.assign %t, %c{inside} : {T}, index",
        f"  pto.tile.store %t, %out[0, 0] : {M}, {T}",
        f"  %y = pto.tile.load %a[8, 0] : {M}, {T}",
        f"  pto.tile.assign %y, %c{given} : {T}, index",
        f"  scf.yield %y : {T}",
        "}",
    )
    assert moved(source) == found


@pytest.mark.parametrize("first, second, after, found", [
    (0, 1024, None, []), (0, 1024, 0, ["warning"]), (1024, 1024, 0, ["error"]), (0, 0, 0, []),
])  # fmt: skip
def test_a_tile_of_two_branches_lies_where_the_branch_puts_it(first, second, after, found):
    """Each branch loads a tile and binds it; the same tile may be bound in one branch here and in the other there."""
    source = module(
        f"%a: {M}, %out: {M}, %p: i1",
        "%c1024 = pto.constant 1024 : index",
        f"%t = pto.tile.load %a[0, 0] : {M}, {T}",
        f"%r = scf.if %p -> ({T}) {{",
        f"  pto.tile.assign %t, %c{first} : {T}, index",
        f"  scf.yield %t : {T}",
        "} else {",
        f"  pto.tile.assign %t, %c{second} : {T}, index",
        f"  scf.yield %t : {T}",
        "}",
        *([] if after is None else [f"pto.tile.assign %r, %c{after} : {T}, index"]),
        f"pto.tile.store %r, %out[0, 0] : {M}, {T}",
    )
    assert moved(source) == found


def test_a_tile_that_is_bound_twice_is_moved_in_every_run():
    lines = [f"%t = pto.tile.load %a[0, 0] : {M}, {T}", "%c1024 = pto.constant 1024 : index"]
    twice = [f"pto.tile.assign %t, %{c} : {T}, index" for c in ("c0", "c1024")]
    assert moved(module(f"%a: {M}", *lines, *twice)) == ["error"]
    assert moved(module(f"%a: {M}", *lines, twice[0], twice[0])) == []
