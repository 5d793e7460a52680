"""PTO assembly: one instruction a line, and what it cannot say."""

import re
from itertools import pairwise

import pytest

from ptir_tools import api
from ptir_tools.convert import translate
from ptir_tools.core.choices import Seeded
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Options
from ptir_tools.dialects.pto.generate import any_ops, loops
from ptir_tools.dialects.pto.text.assembly import write
from ptir_tools.dialects.pto.types import EventType, MemRefType
from ptir_tools.passes import PassContext, run_pipeline
from tests.pto.flags import Judge
from tests.pto.programs import SAMPLES, check, event, good, module, printed

M, T = "pto.memref<32x32xf32>", "tile<32x32xf32>"


def assembled(source):
    program = good(source)
    found = Diagnostics(program.source)
    return "".join(write(program, found, Options())).splitlines(), [d.code for d in found]


def test_instructions():
    source = module(
        f"%a: {M}, %out: {M}, %r: index",
        f"%t, %e = pto.tile.load %a[%c0, 0] {{valid = [%r, 32]}} : {M}, {T}, {event('TLOAD')}",
        "%two = pto.constant 2.0 : f32",
        f"%u = pto.tile.muls %t, %two wait(%e) : {T}, f32",
        f"%m = pto.tile.cmps %u, %two {{cmpMode = #pto.cmp<GT>}} : {T} -> tile<32x32xi8>",
        f"%f = pto.tile.store %u, %out[%c0, %c0] : {M}, {T}, {event('TSTORE_VEC')}",
        f"pto.sync wait(%f) : {event('TSTORE_VEC')}",
        "pto.sync.op #pto.op<TADD>",
    )
    assert assembled(source) == (
        [
            ".arg %a : !pto.memref<32x32xf32>;",
            ".arg %out : !pto.memref<32x32xf32>;",
            ".arg %r : index;",
            ".const %c0 = 0 : index;",
            "%t = tload %a[%c0, 0] {valid = [%r, 32]} : (!pto.memref<32x32xf32>, index, index) -> !pto.tile<32x32xf32>;",
            "set_flag[PIPE_MTE2, PIPE_V, EVENT_ID0];",
            ".const %two = 2.0 : f32;",
            "wait_flag[PIPE_MTE2, PIPE_V, EVENT_ID0];",
            "%u = tmuls %t, %two : (!pto.tile<32x32xf32>, f32) -> !pto.tile<32x32xf32>;",
            "%m = tcmps %u, %two {cmpMode = #pto.cmp<GT>} : (!pto.tile<32x32xf32>, f32) -> !pto.tile<32x32xi8>;",
            "set_flag[PIPE_V, PIPE_MTE3, EVENT_ID0];",  # the ops of V are synchronous
            "wait_flag[PIPE_V, PIPE_MTE3, EVENT_ID0];",
            "tstore %u, %out[%c0, %c0] : (!pto.tile<32x32xf32>, !pto.memref<32x32xf32>, index, index) -> ();",
            "set_flag[PIPE_MTE3, PIPE_S, EVENT_ID0];",
            "wait_flag[PIPE_MTE3, PIPE_S, EVENT_ID0];",
            "set_flag[PIPE_V, PIPE_S, EVENT_ID0];",  # pto.sync.op #pto.op<TADD>
            "wait_flag[PIPE_V, PIPE_S, EVENT_ID0];",
            "pipe_barrier[PIPE_ALL];",
        ],
        [],
    )


STRAIGHT = ("01_vector_add_subview", "04_matmul_bias_a3", "08_async_pipeline", "09_dynamic_valid", "12_elementwise_chain")


@pytest.mark.parametrize("name", STRAIGHT)
def test_every_op_is_one_line_and_every_name_defined_before_it_is_used(name):
    source = (SAMPLES / f"{name}.pto").read_text()
    main = good(source).main
    lines, found = assembled(source)
    flags = [line for line in lines if re.match(r"(set_flag|wait_flag|pipe_barrier)\[", line)]
    ops = [op for op in main.body if op.defn.short not in ("sync", "sync.op")]
    assert not found and len(lines) == len(main.params) + len(ops) + len(flags)
    known = set()
    for line in lines:
        assert line.endswith(";") and "\n" not in line
        left, equals, right = line.partition(" = ") if not line.startswith(".arg") else (line.split(" : ")[0], "=", "")
        left, right = (left, right) if equals else ("", left)
        assert {*re.findall(r"%[\w.$-]+", right)} <= known, line
        known |= {*re.findall(r"%[\w.$-]+", left)}


def test_what_returns_values_is_refused_at_every_function():
    source = """module {
  func.func @g() -> index {
    %c = pto.constant 1 : index
    return %c : index
  }
  func.func @f(%n: index) -> index {
    %r = func.call @g() : () -> index
    return %n : index
  }
}
"""
    assert assembled(source) == ([], ["NotTranslatable"] * 2)


FLOW = f"""module {{
  func.func @g(%m: {M}, %at: index) {{
    %t = pto.tile.load %m[%at, 0] {{valid = [1, 32]}} : {M}, {T}
    return
  }}
  func.func @f(%a: {M}, %n: index, %p: i1) {{
    %c0 = pto.constant 0 : index
    %c1 = pto.constant 1 : index
    %c3 = pto.constant 3 : index
    %x, %y = scf.for %i = %c0 to %n step 2 iter_args(%u = %c0, %v = %c1) -> (index, index) {{
      func.call @g(%a, %i) : ({M}, index) -> ()
      %s = scf.if %p -> (index) {{
        %q = pto.addi %u, %v : index
        scf.yield %q : index
      }} else {{
        scf.yield %v : index
      }}
      scf.if %p {{
        func.call @g(%a, %c3) : ({M}, index) -> ()
      }}
      scf.yield %v, %s : index, index
    }}
    func.call @g(%a, %x) : ({M}, index) -> ()
    func.call @g(%a, %y) : ({M}, index) -> ()
    %z = scf.while (%w = %c0) : (index) -> (index) {{
      %less = pto.cmpi slt, %w, %c3 : index
      scf.condition(%less) %w : index
    }} do {{
      ^bb0(%k: index):
      %l = pto.addi %k, %c1 : index
      func.call @g(%a, %l) : ({M}, index) -> ()
      scf.yield %l : index
    }}
    func.call @g(%a, %z) : ({M}, index) -> ()
    return
  }}
}}
"""


def executed(lines, entry, given):
    """Run assembly of index arithmetic: the rows that `tload` reads, in order."""
    starts = {line[6:-1]: k for k, line in enumerate(lines) if line.startswith(".func ")}
    rows = []

    def run(at, arguments):
        end = next(k for k in range(at, len(lines)) if lines[k] == "ret;")
        labels = {line[:-1]: k for k, line in enumerate(lines[:end]) if line.endswith(":") and k > at}
        registers, left, k = {}, list(arguments), at + 1

        def value(text):
            return registers[text] if text.startswith("%") else int(text)

        for _ in range(10_000):
            line = lines[k].rstrip(";")
            k += 1
            head, _, _ = line.partition(" : ")
            to, _, what = head.partition(" = ") if " = " in head else ("", "", head)
            name, _, rest = what.partition(" ")
            operands = [x.strip() for x in rest.split(",")]
            if line == "ret":
                return
            if name == ".arg":
                registers[operands[0]] = left.pop(0)
            elif head.startswith(".const"):
                registers[head.split()[1]] = int(what)
            elif name == "br":
                k = labels[operands[0]]
            elif name == "br.ge" and value(operands[0]) >= value(operands[1]):
                k = labels[operands[2]]
            elif name == "br.not" and not value(operands[0]):
                k = labels[operands[1]]
            elif name == "mov":
                registers.update(zip(to.split(", "), [value(x) for x in operands], strict=True))
            elif name == "addi":
                registers[to] = value(operands[0]) + value(operands[1])
            elif name == "cmpi":
                registers[to] = value(operands[1]) < value(operands[2])
            elif name == "call":
                callee, arguments = re.fullmatch(r"(@\w+)\((.*)\)", rest).groups()
                run(starts[callee], [value(x) for x in arguments.split(", ")])
            elif name == "tload":
                rows.append(value(re.search(r"\[([^,]*),", rest).group(1)))
        raise AssertionError("it does not end")

    run(starts[entry], given)
    return rows


def by_hand(n, p):
    u, v, rows = 0, 1, []
    for i in range(0, n, 2):
        rows += [i] + [3] * p
        u, v = v, u + v if p else v
    return [*rows, u, v, 1, 2, 3, 3]


@pytest.mark.parametrize("p", [False, True])
@pytest.mark.parametrize("n", [0, 1, 2, 7, 8])
def test_loops_branches_and_calls_go_the_same_way(n, p):
    lines, found = assembled(FLOW)
    assert not found
    assert executed(lines, "@f", ["memory", n, p]) == by_hand(n, p)


@pytest.mark.parametrize("target", ["a3", "a5"])
def test_kernels_of_the_translator_reach_assembly(target):
    before = """func @f(%a: tensor<f16, 200x2400>, %b: tensor<f16, 2400x300>) -> tensor<f32, 200x300> {
  %c = dot_general(%a, %b) contract_lhs[1] contract_rhs[0] out_dtype[f32] -> tensor<f32, 200x300>
  %d = exp(%c) -> tensor<f32, 200x300>
  return %d
}
"""
    program = translate(api.read(before, "ptir"), "pto", Diagnostics(), Options(target=target))
    assert program is not None
    run_pipeline(program, f"pto{{target={target}}},pto-allocate-event-ids", PassContext(diagnostics=Diagnostics()))
    found = Diagnostics()
    lines = "".join(write(program, found, Options())).splitlines()
    text = "\n".join(lines)
    assert (
        not found.items
        and "tmatmul" in text
        and "tassign" in text
        and "br.ge" in text
        and "set_flag[PIPE_MTE2, PIPE_MTE1, EVENT_ID0, cube]" in text
    )
    jumps = set(re.findall(r"(\.L\d+);", text))
    assert jumps and jumps <= {line[:-1] for line in lines if line.endswith(":")}


# Flags


def flagged(program, target=None):
    """The assembly of a program for a target, and arguments for its judge."""
    if target:
        program.attrs["pto.target"] = f"#pto.target<{target}>"
    found = Diagnostics()
    lines = "".join(write(program, found, Options())).splitlines()
    assert not found.items
    return lines, {f"%{p.name}": 3 for p in program.main.params if not isinstance(p.type, MemRefType)}


def generated(seed):
    program = api.read(printed(any_ops(Seeded(seed), size=20)), "pto")
    run_pipeline(program, "pto-infer-tile-info", PassContext(diagnostics=Diagnostics()))
    return program


def judge_all(seeds):
    for seed in seeds:
        for target in (None, "a3"):
            lines, given = flagged(generated(seed), target)
            assert Judge(lines, given, target == "a3").run() == [], seed


def test_flags_order_what_events_order():
    judge_all(range(5))


def judge_loops(seeds):
    """Kernels whose loops carry events and rotate addresses. The judge knows no windows, so that only flags are judged."""
    carried = 0
    for seed in seeds:
        program = api.read(printed(loops(Seeded(seed), size=12, events=True)), "pto")
        run_pipeline(program, "pto-infer-tile-info", PassContext(diagnostics=Diagnostics()))
        carried += any(isinstance(v.type, EventType) for op in program.main.ops() if op.regions for v in op.results)
        for target in (None, "a3"):
            lines, given = flagged(program, target)
            assert not [p for p in Judge(lines, given, target == "a3").run() if not p.startswith("not ordered")], seed
    assert carried > len(seeds) // 3


def test_flags_that_loops_carry_are_set_and_waited_for_in_turn():
    judge_loops([*range(30), 283])  # 283: both blocks of a branch depend on an op of V before it


@pytest.mark.campaign
def test_flags_that_loops_carry_at_length():
    judge_loops(range(30, 400))


@pytest.mark.slow
def test_flags_order_what_events_order_in_many_programs():
    judge_all(range(5, 45))


@pytest.mark.campaign
@pytest.mark.parametrize("share", range(10))
def test_flags_order_what_events_order_at_length(share):
    judge_all(range(45 + 50 * share, 95 + 50 * share))


def test_the_judge_sees_flags_that_are_gone():
    """A flag is taken out that is set and waited for in one place; many are for ops that have nothing to do with each other."""
    found = tried = 0
    for seed in range(12, 17):
        lines, given = flagged(generated(seed))
        for k, (a, b) in enumerate(pairwise(lines)):
            if a.startswith("set_flag[") and b == a.replace("set_flag", "wait_flag"):
                tried += 1
                found += bool(Judge(lines[:k] + lines[k + 2 :], given, False).run())
    assert tried > 150 and found > 20


def test_the_judge_sees_barriers_that_are_gone():
    lines = [f"%t0 = pto.tile.load %a[0, 0] : {M}, {T}", *(f"%t{i + 1} = pto.tile.exp %t{i} : {T}" for i in range(4))]
    made, given = flagged(good(module(f"%a: {M}", *lines)), "a3")
    barriers = [k for k, line in enumerate(made) if line.startswith("pipe_barrier[PIPE_V")]
    assert len(barriers) == 3 and not Judge(made, given, True).run()
    for k in barriers:
        assert any("no barrier" in problem for problem in Judge(made[:k] + made[k + 1 :], given, True).run())


def test_what_is_known_of_another_pipe_needs_no_flag_of_its_own():
    """The store waits for the sum alone, which has waited for the load."""
    lines = [
        f"%t = pto.tile.load %a[0, 0] : {M}, {T}",
        f"%u = pto.tile.exp %t : {T}",
        f"pto.tile.store %u, %a[0, 0] : {M}, {T}",
    ]
    made, _ = flagged(good(module(f"%a: {M}", *lines)))
    assert len([line for line in made if line.lstrip().startswith("set_flag[")]) == 2, made


def test_flags_balance_on_every_way():
    """An event of before a loop, awaited in it; one that a loop carries; one that one branch waits for."""
    lines = [
        "%c1 = pto.constant 1 : index",
        f"%t, %e = pto.tile.load %a[0, 0] : {M}, {T}, {event('TLOAD')}",
        f"%u, %f = pto.tile.load %a[0, 0] : {M}, {T}, {event('TLOAD')}",
        f"%l, %g = scf.for %i = %c0 to %n step %c1 iter_args(%x = %t, %ex = %e) -> ({T}, {event('TLOAD')}) {{",
        f"  %y, %z = pto.tile.exp %x wait(%ex, %f) : {T}, {event('TEXP')}",
        "  scf.if %p {",
        f"    pto.sync wait(%z) : {event('TEXP')}",
        "  }",
        f"  %w, %h = pto.tile.load %a[0, 0] : {M}, {T}, {event('TLOAD')}",
        f"  scf.yield %w, %h : {T}, {event('TLOAD')}",
        "}",
        f"%r = pto.tile.exp %l wait(%g) : {T}",
    ]
    program = good(module(f"%a: {M}, %n: index, %p: i1", *lines))
    text, given = flagged(program)
    for n in range(4):
        for p in (0, 1):
            assert Judge(text, given | {"%n": n, "%p": p}, False).run() == []
    again = [k for k, line in enumerate(text) if line.startswith("br .L0")]
    body = text[text.index(".L0:") : again[0]]
    assert "set_flag[PIPE_MTE2, PIPE_V, EVENT_ID0];" in body and "wait_flag[PIPE_MTE2, PIPE_V, EVENT_ID0];" in body


def test_too_many_flags_are_waited_for_at_once():
    loads = [f"%t{i}, %e{i} = pto.tile.load %a[0, 0] : {M}, {T}, {event('TLOAD')}" for i in range(12)]
    uses = [f"%u{i} = pto.tile.exp %t{i} wait(%e{i}) : {T}" for i in range(12)]
    text, given = flagged(good(module(f"%a: {M}", *loads, *uses)))
    assert Judge(text, given, False).run() == []
    assert sum(line.startswith("set_flag[PIPE_MTE2, PIPE_V") for line in text) == 12


def test_an_id_that_an_event_states_is_kept():
    load = f"%t, %e = pto.tile.load %a[0, 0] : {M}, {T}, !pto.event<producer = #pto.op<TLOAD>, eid = 5>"
    text, _ = flagged(good(module(f"%a: {M}", load, f"%u = pto.tile.exp %t wait(%e) : {T}")))
    assert "set_flag[PIPE_MTE2, PIPE_V, EVENT_ID5];" in text


def test_barriers_are_between_dependents_of_v_where_the_target_needs_them():
    lines = [f"%t = pto.tile.load %a[0, 0] : {M}, {T}", f"%u = pto.tile.exp %t : {T}", f"%v = pto.tile.neg %t : {T}"]
    program = good(module(f"%a: {M}", *lines, f"%w = pto.tile.add %u, %v : {T}"))
    assert sum(line == "pipe_barrier[PIPE_V];" for line in flagged(program, "a3")[0]) == 1
    assert sum(line == "pipe_barrier[PIPE_V];" for line in flagged(program, "a5")[0]) == 0


@pytest.mark.parametrize("before", [[], ["scf.for %i = %c0 to %n step %c1 {", "}"]])
@pytest.mark.parametrize("sync", [False, True])
def test_after_a_barrier_of_all_pipes_none_of_v_is_needed(sync, before):
    """A loop may have done anything in V; one op of V depends on another."""
    ops = [f"%u = pto.tile.exp %t : {T}", *["pto.sync.op #pto.op<ALL>"] * sync, f"%v = pto.tile.neg %u : {T}"]
    if before:
        ops = [
            before[0],
            f"%q = pto.tile.exp %t : {T}",
            before[1],
            *["pto.sync.op #pto.op<ALL>"] * sync,
            f"%w = pto.tile.neg %t : {T}",
        ]
    lines = ["%c1 = pto.constant 1 : index", f"%t = pto.tile.load %a[0, 0] : {M}, {T}", *ops]
    text, _ = flagged(good(module(f"%a: {M}, %n: index", *lines)), "a3")
    (last,) = [i for i, line in enumerate(text) if "tneg" in line]
    assert text[last - 1] == ("pipe_barrier[PIPE_ALL];" if sync else "pipe_barrier[PIPE_V];")


def test_flags_between_the_cores_are_inter():
    program = good((SAMPLES / "kernels" / "flash_a3.pto").read_text())
    run_pipeline(program, "pto{target=a3}", PassContext(diagnostics=Diagnostics()))
    text, given = flagged(program, "a3")
    assert any(re.match(r"set_flag\[PIPE_FIX, PIPE_V, EVENT_ID\d+, inter, cube\];", line) for line in text)
    for n in (0, 32, 64):
        assert Judge(text, given | {"%n": n}, True).run() == []


def test_an_event_is_no_argument():
    source = f"""module {{
  func.func @g(%e: {event("TLOAD")}) {{
    pto.sync wait(%e) : {event("TLOAD")}
    return
  }}
  func.func @f(%a: {M}) {{
    %t, %e = pto.tile.load %a[0, 0] : {M}, {T}, {event("TLOAD")}
    func.call @g(%e) : ({event("TLOAD")}) -> ()
    return
  }}
}}
"""
    program, found = check(source)
    if program is not None and not found.errors:
        assert assembled(source) == ([], ["NotTranslatable"])


@pytest.mark.parametrize("bound, barriers", [("", 0), ("t", 1), ("u", 1), ("tu", 0)])
def test_a_tile_without_an_address_may_lie_where_one_with_an_address_does(bound, barriers):
    """Two ops of V on tiles of their own: known to be apart where both have addresses, or none has."""
    places = {"t": 0, "u": 8192}
    lines = [f"%{x}_at = pto.constant {places[x]} : index\npto.tile.assign %{x}, %{x}_at : {T}, index" for x in bound]
    ops = [f"%t = pto.tile.expands %one : f32, {T}", *lines[:1], f"%u = pto.tile.expands %one : f32, {T}", *lines[1:]]
    if bound == "u":
        ops = [ops[0], ops[2], ops[1]]
    text, _ = assembled(module(f"%a: {M}", "%one = pto.constant 1.0 : f32", *ops, target="a3"))
    assert text.count("pipe_barrier[PIPE_V];") == barriers


# Addresses that are computed behind the op that makes the tile


def rotated(*address, at="%at"):
    """A loop whose tile lies in one of two places, which is said behind its load."""
    return module(
        f"%a: {M}, %out: {M}, %n: index",
        *("%c2 = pto.constant 2 : index", "%c1 = pto.constant 1 : index", "%size = pto.constant 4096 : index"),
        "scf.for %i = %c0 to %n step %c1 {",
        f"  %t = pto.tile.load %a[0, 0] : {M}, {T}",
        *address,
        f"  pto.tile.assign %t, {at} : {T}, index",
        f"  pto.tile.store %t, %out[0, 0] : {M}, {T}",
        "}",
        target="a3",
    )


SLOT = "  %slot = pto.remsi %i, %c2 : index", "  %at = pto.muli %slot, %size : index"


def test_an_address_is_set_before_its_tile_is_written():
    lines, found = assembled(rotated(*SLOT))
    starts = [line.partition(" ")[0] if line.startswith("tassign") else line.partition(" :")[0] for line in lines]
    body = [x for x in starts if not x.startswith((".", "br", "set_flag", "wait_flag", "pipe_barrier"))]
    assert not found
    assert body[1:5] == ["%slot = remsi %i, %c2", "%at = muli %slot, %size", "tassign", "%t = tload %a[0, 0]"]
    assert len({*lines}) == len(lines)


def test_an_address_that_comes_too_late_is_refused():
    """A branch is not done before its time."""
    late = (
        "  %p = pto.cmpi eq, %i, %c1 : index",
        "  %at = scf.if %p -> (index) {",
        "    scf.yield %size : index",
        "  } else {",
        "    scf.yield %c0 : index",
        "  }",
    )
    program = good(rotated(*late))
    found = Diagnostics(program.source)
    assert not "".join(write(program, found, Options()))
    assert [(d.code, d.message) for d in found] == [("NotTranslatable", "%t is written before scf.if gives its address")]


def test_every_address_of_drawn_kernels_is_set_before_the_tile_is_written():
    moved = 0
    for seed in range(30):
        program = loops(Seeded(seed))
        lines = "".join(write(program, Diagnostics(program.source), Options())).splitlines()
        for k, line in enumerate(lines):
            if m := re.match(r"tassign (%[\w.$-]+),", line):
                made = [n for n, other in enumerate(lines) if other.startswith(f"{m[1]} = t")]
                assert not made or k < made[0], line
                moved += bool(made)
    assert moved
