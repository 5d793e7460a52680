"""One kernel on several cores: the numbers are those of one core, in every order, and nothing is split that depends on itself."""

from __future__ import annotations

import random
import re
from itertools import count

import numpy as np
import pytest

import ptir_tools as ptir
from ptir_tools.convert import translate
from ptir_tools.core.diagnostics import Diagnostics, UsageError
from ptir_tools.core.dialect import Options, Program
from ptir_tools.dialects.pto.run.timeline import Timeline
from ptir_tools.dialects.pto.structure import block_dim
from ptir_tools.engines.inputs import random_inputs
from ptir_tools.passes import PassContext, run_pipeline
from tests.conftest import run_ptir
from tests.convert.ptir_to_pto.programs import TARGETS, agree, program, reread
from tests.pto.by_hand import CASES
from tests.pto.programs import KERNELS, check, good, printed, run

ORDERS = ("sequential", "adversarial")
T, M = "tile<8x16xf32>", "pto.memref<64x16xf32>"
SPLIT = {
    *(
        "bufferize_nested_yield",
        "carried_invariant",
        "hand_branches",
        "hand_eids",
        "hand_flash",
        "hand_mixed_valid",
        "hand_weights",
    ),
}


def split(text: str | Program, cores: int, pipeline: str = "pto-split-cores{{cores={0}}}") -> tuple[Program, list[str]]:
    """The program after a pipeline, and what it says of functions that stay on one core."""
    made = good(text) if isinstance(text, str) else text
    run_pipeline(made, pipeline.format(cores), PassContext(diagnostics=(found := Diagnostics())))
    assert not found.errors, found.items
    return good(printed(made)), [d.message for d in found if "one core" in d.message]


def loop(body: str, head: str = "scf.for %i = %c0 to %c64 step %c8 {", tail: str = "}", more: str = "") -> str:
    numbers = "\n".join(f"%c{n} = pto.constant {n} : index" for n in (0, 1, 8, 16, 64))
    return f"func.func @k(%a: {M}, %b: {M}, %out: {M}) {{\n{numbers}\n{more}{head}\n{body}\n{tail}\nreturn\n}}\n"


def load(memory: str, at: str, name: str = "t") -> str:
    return f"%{name} = pto.tile.load %{memory}[{at}] : {M}, {T}"


def store(memory: str, at: str, name: str = "t") -> str:
    return f"pto.tile.store %{name}, %{memory}[{at}] : {M}, {T}"


ROWS = loop(f"{load('a', '%i, %c0')}\n%u = pto.tile.exp %t : {T}\n{store('out', '%i, %c0', 'u')}")


def same(before: Program, after: Program, inputs: dict[str, np.ndarray]) -> None:
    """Both leave the same bits in memory, in every order; a race between cores is an error of the run."""
    wanted = run(before, inputs)
    for order in ORDERS:
        for name, made in run(after, inputs, order=order).items():
            np.testing.assert_array_equal(made, wanted[name], err_msg=f"{name}, {order}")


@pytest.mark.parametrize("cores", [2, 3, 8, 13])
def test_rows_are_split_evenly_or_not(cores: int) -> None:
    made, kept = split(ROWS, cores)
    assert block_dim(made.main) == min(cores, 8 if cores > 4 else 4 if cores > 3 else cores) and not kept
    same(good(ROWS), made, random_inputs(made))


@pytest.mark.parametrize("path", sorted(KERNELS.glob("*.pto")), ids=lambda p: p.stem)
def test_kernels_give_the_numbers_of_one_core(path) -> None:
    before, found = check(path.read_text("utf-8"))
    name = path.stem
    if found.errors:
        assert name in {"ping_dynamic_addr"}
        return
    inputs = CASES[name[5:]]().inputs if name[5:] in CASES and name.startswith("hand") else random_inputs(before)
    target = "a5" if name.endswith("a5") else "a3"
    for pipeline in ("pto-split-cores{{cores={0}}}", f"pto{{{{target={target},cores={{0}}}}}}"):
        made, kept = split(good(path.read_text("utf-8")), 3, pipeline)
        assert (block_dim(made.main) > 1) == (name in SPLIT) != bool(kept), kept
        if not kept:
            same(before, made, inputs)


KEPT = {
    "carried": (
        loop(f"%u = pto.tile.add %s, %t : {T}\nscf.yield %u : {T}", f"{load('a', '%c0, %c0')}\n%r = scf.for %i = %c0 to %c64 "
             f"step %c8 iter_args(%s = %t) -> ({T}) {{", f"}}\n{store('out', '%c0, %c0', 'r')}"),
        "its stores are not in one loop",
    ),
    "overlapping": (loop(f"{load('a', '%i, %c0')}\n{store('out', '%i, %c0')}", "scf.for %i = %c0 to %c16 step %c1 {"), "overlap"),
    "the same place": (loop(f"{load('a', '%i, %c0')}\n{store('out', '%c0, %c0')}"), "overlap"),
    "a neighbor": (
        loop(f"%j = pto.addi %i, %c8 : index\n{load('out', '%j, %c0')}\n{store('out', '%i, %c0')}",
             "scf.for %i = %c0 to %c16 step %c8 {"),
        "overlap",
    ),
    "read behind it": (
        loop(f"{load('a', '%i, %c0')}\n{store('out', '%i, %c0')}", tail=f"}}\n{load('out', '%c0, %c0', 'v')}"),
        "read before or behind",
    ),
    "two loops": (
        loop(f"{load('a', '%i, %c0')}\n{store('out', '%i, %c0')}",
             tail=f"}}\nscf.for %i = %c0 to %c64 step %c8 {{\n{load('b', '%i, %c0')}\n{store('out', '%i, %c0')}\n}}"),
        "its stores are not in one loop",
    ),
    "one iteration": (loop(f"{load('a', '%i, %c0')}\n{store('out', '%i, %c0')}", "scf.for %i = %c0 to %c8 step %c8 {"), "one it"),
    "nothing": (loop(load("a", "%i, %c0")), "stores nothing"),
}  # fmt: skip


@pytest.mark.parametrize("name", KEPT)
def test_what_depends_on_itself_stays_on_one_core(name: str) -> None:
    text, why = KEPT[name]
    made, kept = split(text, 4)
    assert block_dim(made.main) == 1 and len(kept) == 1 and why in kept[0], kept
    assert printed(made) == printed(good(text))


def nest(seed: int) -> str:
    """Nested loops with windows that are linear in their counters: some overlap, some do not."""
    draw = random.Random(seed)
    names, lines, depth = count(), [], draw.randint(1, 3)
    numbers, counters = dict[int, str](), list[tuple[str, int]]()

    def number(n: int) -> str:
        return numbers.setdefault(n, f"%n{n}")

    for level in range(depth):
        step = draw.choice((1, 2, 4, 8))
        low, trips = draw.choice((0, 0, step, 3)), draw.randint(1, 5)
        high = low + step * trips - draw.randint(0, step - 1)
        lines.append(f"scf.for %i{level} = {number(low)} to {number(high)} step {number(step)} {{")
        counters.append((f"%i{level}", high))

    def index(size: int) -> str:
        at, room = number(0), 64 - size
        for name, high in draw.sample(counters, len(counters)):
            if (factor := draw.choice((0, 1, 1, 2, 4, 8))) and factor * high <= room:
                room -= factor * high
                a, b = f"%x{next(names)}", f"%x{next(names)}"
                lines.append(f"{a} = pto.muli {name}, {number(factor)} : index\n{b} = pto.addi {at}, {a} : index")
                at = b
        return at

    memory, tile = "pto.memref<64x64xf32>", f"tile<{draw.choice((1, 2, 8))}x{draw.choice((8, 16))}xf32>"
    rows, columns = map(int, re.findall(r"(\d+)x(\d+)", tile)[0])
    for k in range(draw.randint(1, 2)):
        source = draw.choice(("a", "a", "out"))
        lines.append(f"%t{k} = pto.tile.load %{source}[{index(rows)}, {index(columns)}] : {memory}, {tile}")
        lines.append(f"%u{k} = pto.tile.add %t{k}, %t{k} : {tile}")
        lines.append(f"pto.tile.store %u{k}, %out[{index(rows)}, {index(columns)}] : {memory}, {tile}")
    constants = [f"{name} = pto.constant {n} : index" for n, name in numbers.items()]
    return "\n".join([f"func.func @k(%a: {memory}, %out: {memory}) {{", *constants, *lines, "}\n" * depth, "return", "}"])


def test_loops_of_any_windows_give_the_numbers_of_one_core() -> None:
    counts = {True: 0, False: 0}
    for seed in range(60):
        text = nest(seed)
        before = check(text, Options(hazards=False))[0]
        assert before is not None, text
        made = check(text, Options(hazards=False))[0]
        run_pipeline(made, f"pto-split-cores{{cores={2 + seed % 4}}}", PassContext(diagnostics=Diagnostics(), verify_each=False))
        made = check(printed(made), Options(hazards=False))[0]
        counts[block_dim(made.main) > 1] += 1
        same(before, made, random_inputs(before, seed))
    assert min(counts.values()) > 8, counts


def test_symbolic_loops_are_split_for_any_number_of_rows() -> None:
    text = f"""func.func @k(%a: pto.memref<?x16xf32>, %out: pto.memref<?x16xf32>, %n: index) {{
    %c0 = pto.constant 0 : index
    %c8 = pto.constant 8 : index
    scf.for %i = %c0 to %n step %c8 {{
    %left = pto.subi %n, %i : index
    %rows = pto.minsi %left, %c8 : index
    %t = pto.tile.load %a[%i, %c0] {{valid = [%rows, 16]}} : pto.memref<?x16xf32>, {T}
    pto.tile.store %t, %out[%i, %c0] : pto.memref<?x16xf32>, {T}
    }}
    return
    }}"""
    made, kept = split(text, 4)
    assert block_dim(made.main) == 4 and not kept
    for n in (1, 8, 9, 31, 33, 64, 65):
        a = np.arange(n * 16, dtype=np.float32).reshape(n, 16)
        same(good(text), made, {"a": a, "out": np.zeros_like(a), "n": np.int64(n)})


# Programs of several functions


def calls(*lines: str) -> str:
    """An entry that calls @f, which is split, and @g, which adds up all rows on one core."""
    body = f"{load('x', '%i, %c0')}\n%u = pto.tile.exp %t : {T}\n{store('y', '%i, %c0', 'u')}"
    f = loop(body).replace("@k", "@f").replace(f"%a: {M}, %b: {M}, %out", f"%x: {M}, %y")
    g = KEPT["carried"][0]
    every = ("%u =", f"{load('a', '%i, %c0', 'v')}\n%u ="), ("%s, %t", "%s, %v"), (f"%b: {M}, ", ""), ("@k", "@g")
    for old, new in every:
        g = g.replace(old, new)
    listed = [x if len(x) > 3 or x == "}" else f"func.call @{x[0]}(%{x[1]}, %{x[2]}) : ({M}, {M}) -> ()" for x in lines]
    head = f"func.func @main(%a: {M}, %b: {M}, %c: {M}) attributes {{pto.entry}} {{\n%c0 = pto.constant 0 : index\n"
    entry = head + "\n".join(listed)
    return f"module {{\n{entry}\nreturn\n}}\n{f}{g}}}\n"


@pytest.mark.parametrize(
    "lines, meetings",
    [(("fab",), 0), (("fab", "fbc"), 1), (("fab", "fac"), 0), (("fab", "gbc"), 1), (("gab", "fbc"), 1), (("fab", "fba"), 1),
     (("fab", "fac", "fcb"), 1), (("fab", "%n = pto.constant 3 : index\n%s = pto.constant 1 : index",
      "scf.for %i = %c0 to %n step %s {", "fbc", "fcb", "}"), 2)],
)  # fmt: skip
def test_cores_meet_between_calls_that_depend_on_each_other(lines: tuple[str, ...], meetings: int) -> None:
    text = calls(*lines)
    made, _ = split(text, 3)
    shown = printed(made)
    assert block_dim(made.main) == 3 and shown.count("SYNCALL") == meetings
    assert ("scf.if" in shown) == any(line.startswith("g") for line in lines)
    inputs = random_inputs(made)
    same(good(text), made, inputs)
    if "gbc" in lines:  # core 0 reads what all have written: without the barrier the run reports a race
        with pytest.raises(Exception, match="different cores"):
            run(good(re.sub(r" *pto.sync.op #pto.op<SYNCALL>\n", "", shown)), inputs)


def test_a_core_that_does_not_come_to_the_barrier_is_a_deadlock() -> None:
    text = f"""func.func @k(%a: {M}) attributes {{ pto.block_dim = 2 }} {{
    %b = pto.block_idx : i64
    %zero = pto.constant 0 : i64
    %first = pto.cmpi eq, %b, %zero : i64
    scf.if %first {{
    pto.sync.op #pto.op<SYNCALL>
    }}
    return
    }}"""
    with pytest.raises(Exception, match="wait for each other"):
        run(text, random_inputs(good(text)))


@pytest.mark.parametrize("number", ["0", "many", "1025", "-1"])
def test_a_launch_has_a_number_of_cores(number: str) -> None:
    text = ROWS.replace(") {", f") attributes {{ pto.block_dim = {number} }} {{", 1)
    assert [d.code for d in check(text)[1]] == ["TypeMismatch"]


def test_the_report_shows_each_core(tmp_path) -> None:
    made, _ = split(calls("fab", "fbc"), 3)
    run(made, random_inputs(made), timeline=(timeline := Timeline()))
    alone = run(good(calls("fab", "fbc")), random_inputs(made), timeline=(one := Timeline()))
    assert alone and len(timeline.cores) == 3 and timeline.makespan == max(c.makespan for c in timeline.cores)
    assert one.makespan / 3 < timeline.makespan < one.makespan / 2
    title, _, rows = next(iter(timeline.report()))
    assert title == f"{timeline.makespan} cycles on 3 cores" and [row[0] for row in rows] == ["0", "1", "2"]
    assert {e["pid"] for e in timeline.chrome_trace()["traceEvents"]} == {0, 1, 2}
    met = [c.syncs[-1] for c in timeline.cores if c.syncs]
    assert met and len({span.end for span in met}) == 1  # the core with less to do waits for the others


# From PTIR

PROGRAMS = {
    "softmax": """func @main(%x: tensor<f32, 250x96>) -> (tensor<f32, 250x96>) {
  %m = reduce_max(%x) axes[1] keepdims[true] -> tensor<f32, 250x1>
  %mb = broadcast_to(%m) result_shape[250, 96] -> tensor<f32, 250x96>
  %d = sub(%x, %mb) -> tensor<f32, 250x96>
  %e = exp(%d) -> tensor<f32, 250x96>
  %s = reduce_sum(%e) axes[1] keepdims[true] -> tensor<f32, 250x1>
  %sb = broadcast_to(%s) result_shape[250, 96] -> tensor<f32, 250x96>
  %y = div(%e, %sb) -> tensor<f32, 250x96>
  return %y
}
""",
    "product": """func @main(%a: tensor<f32, 100x64>, %b: tensor<f32, 64x96>) -> (tensor<f32, 100x96>, tensor<f32, 96>) {
  %p = dot_general(%a, %b) batch_lhs[] batch_rhs[] contract_lhs[1] contract_rhs[0] -> tensor<f32, 100x96>
  %y = abs(%p) -> tensor<f32, 100x96>
  %s = reduce_sum(%y) axes[0] keepdims[false] -> tensor<f32, 96>
  return %y, %s
}
""",
    "heads": """func @main(%q: tensor<f32, 6x64x32>, %k: tensor<f32, 6x64x32>) -> (tensor<f32, 6x64x32>) {
  %s = dot_general(%q, %k) batch_lhs[0] batch_rhs[0] contract_lhs[2] contract_rhs[2] -> tensor<f32, 6x64x64>
  %e = exp(%s) -> tensor<f32, 6x64x64>
  %y = dot_general(%e, %k) batch_lhs[0] batch_rhs[0] contract_lhs[2] contract_rhs[1] -> tensor<f32, 6x64x32>
  return %y
}
""",
    "columns": """func @main(%x: tensor<f32, 1000x96>) -> (tensor<f32, 1000x96>) {
  %r = reduce_sum(%x) axes[1] keepdims[true] -> tensor<f32, 1000x1>
  %rb = broadcast_to(%r) result_shape[1000, 96] -> tensor<f32, 1000x96>
  %q = add(%x, %rb) -> tensor<f32, 1000x96>
  %c = reduce_max(%q) axes[0] keepdims[true] -> tensor<f32, 1x96>
  %cb = broadcast_to(%c) result_shape[1000, 96] -> tensor<f32, 1000x96>
  %y = sub(%q, %cb) -> tensor<f32, 1000x96>
  return %y
}
""",
    "sum": """func @main(%x: tensor<f32, 7000>) -> (tensor<f32>) {
  %y = reduce_sum(%x) axes[0] keepdims[false] -> tensor<f32>
  return %y
}
""",
}
PROGRAMS["symbols"] = PROGRAMS["columns"].replace("1000x", "?Nx").replace("1000,", "?N,")


@pytest.mark.parametrize("cores", [2, 5])
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_of_ptir_are_split(name: str, target: str, cores: int) -> None:
    before = program(PROGRAMS[name])
    after = translate(before, "pto", found := Diagnostics(before.source), Options(target=target, cores=cores))
    assert after is not None and not found.items, found.items
    assert (block_dim(after.main) > 1) == (name != "sum"), printed(after)
    assert ("SYNCALL" in printed(after)) == (name in ("heads", "columns", "symbols"))
    for bindings in [{"N": n} for n in (1, 40, 131)] if name == "symbols" else [{}]:
        agree(before, reread(after), bindings=bindings)


def test_the_assembler_has_the_number_of_the_core(tmp_path) -> None:
    made, _ = split(ROWS, 3, "pto{{target=a3,cores={0}}}")
    (tmp_path / "k.pto").write_text(printed(made))
    found = run_ptir("translate", tmp_path / "k.pto", "--to", "ptoas", "-o", tmp_path / "k_as.pto")
    assert found.status == 0, found.err
    text = (tmp_path / "k_as.pto").read_text()
    assert "= pto.get_block_idx" in text and "pto.block_dim = 3 : i32" in text
    again = ptir.read(tmp_path / "k_as.pto")
    assert block_dim(again.main) == 3 and [p.name for p in again.main.params] == ["a", "b", "out"]
    same(good(ROWS), again, random_inputs(good(ROWS)))


def test_a_number_of_cores_that_is_none_is_refused() -> None:
    for number in ("0", "1025"):
        with pytest.raises(UsageError, match="cores"):
            split(ROWS, int(number))
