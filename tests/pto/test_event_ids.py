"""Event ids: as few as can be, never one for two events at a time between the same pipes."""

import re
from itertools import product

import pytest

from ptir_tools.core.choices import Seeded
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.dialects.pto import generate
from ptir_tools.passes import PassContext, run_pipeline
from tests.pto import order_oracle as oracle
from tests.pto import replay
from tests.pto.programs import SAMPLES, check, event, good, module, printed
from tests.pto.test_order import WAYS

M, T = "pto.memref<64x32xf32>", "tile<32x32xf32>"
LOAD, STORE, EXP = event("TLOAD"), event("TSTORE_VEC"), event("TEXP")
PIPES = {"TLOAD": "MTE2", "TSTORE_VEC": "MTE3", "TEXP": "V"}


def allocated(source, pipeline="pto-allocate-event-ids"):
    program = good(source)
    context = PassContext(diagnostics=Diagnostics(program.source))
    run_pipeline(program, pipeline, context)
    text = printed(program)
    assert not check(text)[1].errors
    return text, context.diagnostics


def ids(text):
    """The id of every event, by name, where its op is written."""
    found = re.findall(r"%(\w+) = pto\.tile.*!pto\.event<producer = #pto\.op<\w+>(?:, eid = (\d))?>$", text, re.M)
    return {name: int(eid) if eid else None for name, eid in found}


def spans(text):
    """(pipes it goes between, first line, last line, id) of every event of a program without blocks, from its text."""
    lines = text.splitlines()
    made = []
    for i, line in enumerate(lines):
        if (m := re.search(r"%(\w+) = pto\.tile\..*#pto\.op<(\w+)>(?:, eid = (\d))?>$", line)) is None:
            continue
        name, producer, eid = m.groups()
        uses = [k for k, other in enumerate(lines) if re.search(rf"wait\([^)]*%{name}\b", other)]
        targets = {_pipe(lines[k]) for k in uses} - {PIPES.get(producer, "V")}
        made.append(({(PIPES.get(producer, "V"), b) for b in targets}, i, max(uses, default=i), eid))
    return made


def _pipe(line):
    name = re.search(r"pto\.(tile\.)?([\w.]+)", line)[2]
    return {"load": "MTE2", "store": "MTE3", "sync": "S"}.get(name, "V")


@pytest.mark.parametrize("name", ["01_vector_add_subview", "08_async_pipeline", "12_elementwise_chain", "16_ub_exact_fit_a3"])
def test_events_under_way_together_have_different_ids(name):
    text, _ = allocated((SAMPLES / f"{name}.pto").read_text(), "pto-insert-events,pto-allocate-event-ids")
    found = spans(text)
    assert found
    for k, (pairs, start, end, eid) in enumerate(found):
        assert (eid is None) == (not pairs)
        for others, first, last, other in found[k + 1 :]:
            if pairs & others and first < end and start < last:
                assert eid != other


def test_the_pass_is_idempotent_and_replaces_ids():
    source = (SAMPLES / "08_async_pipeline.pto").read_text()
    text, _ = allocated(source)
    assert {eid for *_, eid in spans(text)} == {"0", "1"}
    assert allocated(text)[0] == text
    assert allocated(source.replace("eid = 2", "eid = 7"))[0] == text


LOADS = [f"%t{i}, %e{i} = pto.tile.load %a[0, 0] : {M}, {T}, {LOAD}" for i in range(9)]
EXPS = [f"%u{i} = pto.tile.exp %t{i} wait(%e{i}) : {T}" for i in range(9)]


def test_a_pair_of_pipes_has_eight():
    text, found = allocated(module(f"%a: {M}", *LOADS[:8], *EXPS[:8]))
    assert [ids(text)[f"e{i}"] for i in range(8)] == list(range(8)) and not found.items
    _, found = allocated(module(f"%a: {M}", *LOADS, *EXPS))
    assert [d.code for d in found] == ["EventIdsExhausted"] and "9 events from MTE2 to V" in found.items[0].message
    interleaved = [line for pair in zip(LOADS, EXPS, strict=True) for line in pair]
    assert set(ids(allocated(module(f"%a: {M}", *interleaved))[0]).values()) == {0}


def test_the_pair_of_pipes_that_has_too_many_is_told():
    """The vector unit also waits for one to eight of the loads."""
    stores = [f"pto.tile.store %t{i}, %b[0, 0] wait(%e{i}) : {M}, {T}" for i in range(9)]
    for others in ([0], [8], [3, 4, 5]):
        source = module(f"%a: {M}, %b: {M}", *LOADS, *(EXPS[i] for i in others), *stores)
        _, found = allocated(source)
        assert [d.code for d in found] == ["EventIdsExhausted"] and "9 events from MTE2 to MTE3" in found.items[0].message


def loop(*body, carried="%t, %e", after="pto.sync wait(%g) : {LOAD}"):
    return module(
        f"%a: {M}, %b: {M}, %n: index",
        "%c1 = pto.constant 1 : index",
        f"%t, %e = pto.tile.load %a[0, 0] : {M}, {T}, {LOAD}",
        f"%r, %g = scf.for %i = %c0 to %n step %c1 iter_args(%x = %t, %p = %e) -> ({T}, {LOAD}) {{",
        *body,
        f"  scf.yield %z, %q : {T}, {LOAD}",
        "}",
        after.format(LOAD=LOAD),
    )


WAIT = f"%y = pto.tile.exp %x wait(%p) : {T}"
NEXT = f"%z, %q = pto.tile.load %a[0, 0] : {M}, {T}, {LOAD}"


def test_what_a_loop_carries_is_one_event():
    text, found = allocated(loop(WAIT, NEXT))
    assert not found.items and text.count("eid = 0") == text.count("!pto.event")


def test_a_carried_event_is_not_signaled_again_before_it_was_waited_for():
    _, found = allocated(loop(NEXT, WAIT))
    assert [d.code for d in found] == ["EventIdsExhausted"] and "%q is signaled before %p" in found.items[0].message


def test_an_event_of_before_that_each_round_waits_for_is_not_signaled_by_a_round():
    """`%e` is what `%q` takes the place of, and the second round waits for both."""
    for rounds in ((f"%w = pto.tile.neg %t wait(%e) : {T}", WAIT, NEXT), (WAIT, f"%w = pto.tile.neg %t wait(%e) : {T}", NEXT)):
        _, found = allocated(loop(*rounds))
        assert [d.code for d in found] == ["EventIdsExhausted"] and "%q is signaled before %e" in found.items[0].message


def test_an_event_that_a_block_replaces_is_not_waited_for_afterwards():
    """`%e` is one event with `%q`, which the loop or the branch signals before the last op waits for `%e`."""
    late = f"%w = pto.tile.neg %t wait(%e) : {T}"
    branch = module(
        f"%a: {M}, %c: i1",
        f"%t, %e = pto.tile.load %a[0, 0] : {M}, {T}, {LOAD}",
        f"%g = scf.if %c -> ({LOAD}) {{",
        NEXT,
        f"  scf.yield %q : {LOAD}",
        "} else {",
        f"  scf.yield %e : {LOAD}",
        "}",
        late,
        f"%v = pto.tile.exp %t wait(%g) : {T}",
    )
    for source in (loop(WAIT, NEXT, after=late), branch):
        _, found = allocated(source)
        assert [d.code for d in found] == ["EventIdsExhausted"] and "%q is signaled before %e" in found.items[0].message


def test_an_event_of_before_that_each_round_gives_to_an_inner_loop_is_not_signaled_there():
    """The inner loop waits for `%e` in each round of the outer one, and signals `%q` in its place."""
    source = module(
        f"%a: {M}, %n: index",
        "%c1 = pto.constant 1 : index",
        f"%t, %e = pto.tile.load %a[0, 0] : {M}, {T}, {LOAD}",
        "scf.for %i = %c0 to %n step %c1 {",
        f"  %r, %g = scf.for %j = %c0 to %n step %c1 iter_args(%x = %t, %p = %e) -> ({T}, {LOAD}) {{",
        WAIT,
        NEXT,
        f"    scf.yield %z, %q : {T}, {LOAD}",
        "  }",
        "  pto.sync.op #pto.op<ALL>",
        "}",
    )
    _, found = allocated(source)
    assert [d.code for d in found] == ["EventIdsExhausted"] and "%q is signaled before %p" in found.items[0].message


def test_what_a_loop_waits_for_is_under_way_until_it_ends():
    inner = f"  %v, %w = pto.tile.load %b[0, 0] : {M}, {T}, {LOAD}", f"  %s = pto.tile.exp %v wait(%w) : {T}"
    source = module(
        f"%a: {M}, %b: {M}, %n: index",
        "%c1 = pto.constant 1 : index",
        f"%t, %e = pto.tile.load %a[0, 0] : {M}, {T}, {LOAD}",
        "scf.for %i = %c0 to %n step %c1 {",
        f"  %u = pto.tile.exp %t wait(%e) : {T}",
        *inner,
        "}",
        f"%k, %l = pto.tile.load %b[0, 0] : {M}, {T}, {LOAD}",
        f"%m = pto.tile.exp %k wait(%l) : {T}",
    )
    assert ids(allocated(source)[0]) == {"e": 0, "w": 1, "l": 0}


def test_what_a_branch_gave_is_under_way_while_a_loop_waits_for_it():
    """Under the name that the branch gives it, and under the one that an outer loop gives it."""
    inner = (
        "  scf.for %k = %c0 to %n step %c1 {",
        f"    %u = pto.tile.exp %t wait({{event}}) : {T}",
        f"    %v, %w = pto.tile.load %b[0, 0] : {M}, {T}, {LOAD}",
        f"    %s = pto.tile.exp %v wait(%w) : {T}",
        "  }",
    )
    start = ("%c1 = pto.constant 1 : index", f"%t, %e = pto.tile.load %a[0, 0] : {M}, {T}, {LOAD}")
    branch = (f"%g = scf.if %c -> ({LOAD}) {{", f"  scf.yield %e : {LOAD}", "} else {", NEXT, f"  scf.yield %q : {LOAD}", "}")
    outer = f"%r = scf.for %i = %c0 to %n step %c1 iter_args(%p = %e) -> ({LOAD}) {{"
    for lines in (
        (*branch, *(line.format(event="%g") if "wait({event})" in line else line for line in inner)),
        (
            outer,
            *(line.format(event="%p") if "wait({event})" in line else line for line in inner),
            f"  scf.yield %p : {LOAD}",
            "}",
        ),
    ):
        text, found = allocated(module(f"%a: {M}, %b: {M}, %c: i1, %n: index", *start, *lines))
        assert not found.items and ids(text)["e"] == 0 and ids(text)["w"] == 1


def repeated(before, body, after="%f"):
    """A while loop that carries a load and its event; `after` is waited for behind it."""
    return module(
        f"%a: {M}, %b: {M}, %n: index",
        f"%t, %e = pto.tile.load %a[0, 0] : {M}, {T}, {LOAD}",
        "%c1 = pto.constant 1 : index",
        f"%r, %f, %k = scf.while (%x = %t, %p = %e, %i = %c0) : ({T}, {LOAD}, index) -> ({T}, {LOAD}, index) {{",
        "  %c = arith.cmpi slt, %i, %n : index",
        *before,
        f"  scf.condition(%c) %x, %p, %i : {T}, {LOAD}, index",
        "} do {",
        f"^bb0(%y: {T}, %q: {LOAD}, %j: index):",
        "  %m = pto.addi %j, %c1 : index",
        *body,
        f"  scf.yield %z, %s, %m : {T}, {LOAD}, index",
        "}",
        f"pto.sync wait({after}) : {LOAD}",
    )


READS = f"  %u = pto.tile.exp %y wait(%q) : {T}"
AGAIN = f"  %z, %s = pto.tile.load %a[0, 0] : {M}, {T}, {LOAD}"


def test_what_a_while_carries_is_one_event():
    text, found = allocated(repeated((), (READS, AGAIN)))
    assert not found.items and text.count("eid = 0") == text.count("!pto.event") > 5
    _, found = allocated(repeated((), (AGAIN, READS)))
    assert [d.code for d in found] == ["EventIdsExhausted"] and "%s is signaled before %q" in found.items[0].message
    early = f"  %u = pto.tile.exp %x wait(%p) : {T}"
    other = (f"  %v, %w = pto.tile.load %b[0, 0] : {M}, {T}, {LOAD}", f"  %o = pto.tile.exp %v wait(%w) : {T}")
    text, found = allocated(repeated((early,), (*other, AGAIN), "%e"))
    assert not found.items and ids(text) == {"e": 0, "w": 1, "s": 0}  # %p may still be waited for in the next round


# Ids that are written by hand


def ided(opcode, eid, scope=""):
    return f"!pto.event<producer = #pto.op<{opcode}>{scope and f', scope = #pto.scope<{scope}>'}, eid = {eid}>"


def load(k, e, wait=""):
    return f"%t{k}, %e{k} = pto.tile.load %a[%c0, %c0] {wait}: {M}, {T}, {e}"


def reused(*lines):
    """The lines, from 0, of the events whose id is taken."""
    found = check(module(f"%a: {M}, %out: {M}, %n: index", *lines))[1]
    assert {d.code for d in found.items if d.severity == "error"} <= {"EventIdReused"}, found.items
    return [d.where[1] - 4 for d in found if d.code == "EventIdReused"]


L0, L1, I0 = ided("TLOAD", 0), ided("TLOAD", 1), ided("TLOAD", 0, "inter")
X0, X1 = ided("TEXP", 0), ided("TEXP", 1)


def both(*events):
    return f"pto.sync wait(%e0, %e1) : {', '.join(events)}"


def test_an_id_is_taken_until_the_event_is_awaited():
    assert reused(load(0, L0), load(1, L0), both(L0, L0)) == [1]
    assert reused(load(0, L0), load(1, L1), both(L0, L1)) == []
    assert reused(load(0, L0), load(1, I0), both(L0, I0)) == []  # between cores, other flags
    assert reused(load(0, L0), f"pto.sync wait(%e0) : {L0}", load(1, L0), f"pto.sync wait(%e1) : {L0}") == []
    assert reused(load(0, LOAD), load(1, LOAD), both(LOAD, LOAD)) == []  # ids are open


def test_an_id_is_of_one_pair_of_pipes():
    """The second load is for the sync alone, the first for the vector pipe."""
    exp = f"%u, %f = pto.tile.exp %t0 wait(%e0) : {T}, {X0}"
    assert reused(load(0, L0), load(1, L0), exp, f"pto.sync wait(%e1, %f) : {L0}, {X0}") == []
    assert reused(load(0, L0), load(1, L0), exp, f"pto.sync wait(%e0, %e1, %f) : {L0}, {L0}, {X0}") == [1]


def test_an_id_that_a_loop_carries_is_free_between_wait_and_next_signal():
    loop = (
        f"%r = scf.for %i = %c0 to %n step %c1 iter_args(%c = %e0) -> ({L0}) {{",
        f"  pto.sync wait(%c) : {L0}",
        f"  {load(1, L1)}",
        f"  pto.sync wait(%e1) : {L1}",
        f"  %t2, %e2 = pto.tile.load %a[%c0, %c0] : {M}, {T}, {L0}",
        f"  scf.yield %e2 : {L0}",
        "}",
        f"pto.sync wait(%r) : {L0}",
    )
    one = "%c1 = pto.constant 1 : index"
    assert reused(one, load(0, L0), *loop) == []
    assert reused(one, load(0, L0), *(line.replace(L1, L0) for line in loop)) == []
    late = (*loop[:1], *loop[2:5], loop[1], *loop[5:])  # the carried one is waited for when its id is set again
    assert set(reused(one, load(0, L0), *late)) == {5}


S0, S1 = ided("TSTORE_VEC", 0), ided("TSTORE_VEC", 1)


@pytest.mark.parametrize(("first", "second", "taken"), [(S0, S0, [3]), (S0, S1, [])])
def test_an_id_of_an_op_whose_one_result_is_its_event(first, second, taken):
    """A store; on what the other pipes wait for in the order of the events or against it."""
    t0 = f"%c32 = pto.constant 32 : index\n    %t0 = pto.tile.load %a[%c0, %c0] : {M}, {T}"
    stores = [f"%e{k} = pto.tile.store %t0, %out[{at}, %c0] : {M}, {T}, {e}"
              for k, (at, e) in enumerate([("%c0", first), ("%c32", second)])]  # fmt: skip
    assert reused(t0, *stores, f"pto.sync wait(%e0, %e1) : {first}, {second}") == taken
    assert reused(t0, stores[0], f"pto.sync wait(%e0) : {first}", stores[1], f"pto.sync wait(%e1) : {second}") == []


def reused_in_a_run(program, scalars):
    """The ids that a run sets again although a pipe that waits for them still waits for the event before, by a judge that only
    knows the straight line of the run."""
    line = replay.Replay(program, scalars)
    sets, waits = {}, {}
    for at, x in enumerate(line.line):
        pipe = oracle.PIPE[x.kind] if isinstance(x, oracle.Do) else "S"
        for e in getattr(x, "waits", ()):
            if oracle.PIPE[sets[e][1].kind] != pipe:
                waits.setdefault(e, {})[pipe] = at
        if isinstance(x, oracle.Do) and x.event:
            sets[x.event] = at, x

    def key(e, target):
        t = line.ops[e].results[-1].type
        return oracle.PIPE[sets[e][1].kind], target, t.eid

    found = set()
    for e, targets in waits.items():
        for target, last in targets.items():
            assert key(e, target)[2] is not None
            others = [f for f in waits if f != e and target in waits[f] and key(f, target) == key(e, target)]
            found |= {(e, f) for f in others if sets[e][0] < sets[f][0] < last}
    return found


def test_ids_of_random_loops_are_free_in_every_run():
    """In programs that get ids no run takes one that is in use; if no run needs a ninth, most get them."""
    refused = 0
    for seed in range(40):
        source = printed(generate.loops(Seeded(seed), size=6, events=True, counted=True))
        text, found = allocated(source)
        if found.errors:
            refused += 1
            continue
        program = good(text)
        used = [p.name for p in program.main.params if p.name in WAYS]
        for picks in product(*[WAYS[name] for name in used]):
            assert not reused_in_a_run(program, dict(zip(used, picks, strict=True))), seed
    assert refused < 20
