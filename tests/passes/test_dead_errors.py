"""Which errors at run time may vanish: those of dead ops, on every engine and after passes, and no other (docs/ptir.md)."""

from __future__ import annotations

import numpy as np
import pytest

from ptir_tools.core.diagnostics import Rejected
from ptir_tools.core.dialect import clone
from ptir_tools.core.limits import LimitExceeded, Limits
from ptir_tools.engines import RunOptions, compare, native, run
from ptir_tools.passes import run_pipeline
from tests.rewrite.test_rules import read

GIVEN = {"x": np.arange(4, dtype=np.int32), "i": np.array([0, 9], np.int32)}
HEAD = "func @f(%x: tensor<si32, 4>, %i: tensor<si32, 2>) -> tensor<si32, {}> {{\n"
DIV = "  %d = div(%x, %x) -> tensor<si32, 4>\n"
TAKE = "  %d = take(%x, %i) -> tensor<si32, 2>\n"
ZERO = "  %z = broadcast_to(dense<0> : tensor<si32>) result_shape[4] -> tensor<si32, 4>\n"
DEAD = {
    "div": HEAD.format(4) + DIV + "  return %x\n}\n",
    "take": HEAD.format(4) + TAKE + "  return %x\n}\n",
    "what a dead op reads": HEAD.format(4) + DIV + "  %n = neg(%d) -> tensor<si32, 4>\n  return %x\n}\n",
}
LIVE = {
    "div": HEAD.format(4) + DIV + "  return %d\n}\n",
    "slice of div": HEAD.format(1) + DIV + "  %s = slice(%d) starts[1] sizes[1] -> tensor<si32, 1>\n  return %s\n}\n",
    "slice of take": HEAD.format(1) + TAKE + "  %s = slice(%d) starts[0] sizes[1] -> tensor<si32, 1>\n  return %s\n}\n",
    "slice of a chain": HEAD.format(1)
    + DIV
    + "  %n = neg(%d) -> tensor<si32, 4>\n  %s = slice(%n) starts[1] sizes[1] -> tensor<si32, 1>\n  return %s\n}\n",
    "slice of reshape": HEAD.format("1x1")
    + DIV
    + "  %r = reshape(%d) new_shape[4, 1] -> tensor<si32, 4x1>\n"
    + "  %s = slice(%r) starts[1, 0] sizes[1, 1] -> tensor<si32, 1x1>\n  return %s\n}\n",
    "times zero": HEAD.format(4) + DIV + ZERO + "  %m = mul(%d, %z) -> tensor<si32, 4>\n  return %m\n}\n",
    "minus itself": HEAD.format(4) + DIV + "  %m = sub(%d, %d) -> tensor<si32, 4>\n  return %m\n}\n",
    "slice of concat": HEAD.format(4)
    + DIV
    + "  %c = concat(%d, %x) axis[0] -> tensor<si32, 8>\n"
    + "  %s = slice(%c) starts[4] sizes[4] -> tensor<si32, 4>\n  return %s\n}\n",
    "select of one": HEAD.format(4)
    + DIV
    + "  %t = broadcast_to(dense<true> : tensor<i1>) result_shape[4] -> tensor<i1, 4>\n"
    + "  %s = select(%t, %x, %d) -> tensor<si32, 4>\n  return %s\n}\n",
}
LIVE |= {
    "fold of select": HEAD.format(4)
    + DIV
    + "  %t = constant() value[dense<true>] -> tensor<i1, 4>\n"
    + "  %s = select(%t, %x, %d) -> tensor<si32, 4>\n  return %s\n}\n",
    "compared with itself": HEAD.format(4).replace("-> tensor<si32, 4>", "-> tensor<i1, 4>")
    + DIV
    + "  %n = neg(%d) -> tensor<si32, 4>\n  %c = compare_eq(%n, %n) -> tensor<i1, 4>\n  return %c\n}\n",
    "overwritten": HEAD.format(4)
    + DIV
    + "  %z = constant() value[dense<0>] -> tensor<si32, 1>\n"
    + "  %u = dynamic_update_slice(%d, %x, %z) sizes[4] -> tensor<si32, 4>\n  return %u\n}\n",
    "no elements of it": HEAD.format(0) + DIV + "  %s = slice(%d) starts[1] sizes[0] -> tensor<si32, 0>\n  return %s\n}\n",
    "what a branch that is known does not ask": "program @f (spec_version = ptir.v0.4) {\n"
    + HEAD.format(4)
    + DIV
    + "  %a = reduce_max(%d) axes[0] -> tensor<si32>\n  %p = compare_lt(%a, %a) -> tensor<i1>\n"
    + "  %c = cond(%p, %x) true_region[^r] false_region[^r] -> tensor<si32, 4>\n  return %c\n}\n"
    + "region ^r(%v: tensor<si32, 4>) -> tensor<si32, 4> {\n  %n = neg(%v) -> tensor<si32, 4>\n  return %n\n}\n}\n",
}
USED = [e for e in ("reference", "numpy", "native") if e != "native" or native.available()]


@pytest.mark.parametrize("engine", USED)
@pytest.mark.parametrize("title", DEAD)
def test_the_error_of_a_dead_op_vanishes(title: str, engine: str) -> None:
    for pipeline in ("dce", "canonicalize,cse,dce"):
        program = read(DEAD[title])
        after = clone(program)
        run_pipeline(after, pipeline)
        for p in (program, after):
            (found,) = run(p, GIVEN, RunOptions(engine=engine)).values()
            np.testing.assert_array_equal(found, GIVEN["x"])


@pytest.mark.parametrize("engine", USED)
@pytest.mark.parametrize("title", LIVE)
def test_the_error_of_a_live_op_stays(title: str, engine: str) -> None:
    program = read(LIVE[title])
    after = clone(program)
    run_pipeline(after, "canonicalize,cse,dce")
    for p in (program, after):
        with pytest.raises(Rejected):
            run(p, GIVEN, RunOptions(engine=engine))


@pytest.mark.parametrize("title", DEAD)
def test_a_comparison_leaves_dead_ops_out_as_a_run_does(title: str) -> None:
    program = read(DEAD[title])
    expected, _ = compare.reference_outputs(program, GIVEN, RunOptions())
    np.testing.assert_array_equal(*expected.values(), GIVEN["x"])


# What a region does not know: an index that is out of range, or that it fails. The rest of the line names the regions' ops.
TOP = (
    "program @f (spec_version = ptir.v0.4) {{\nfunc @f(%x: tensor<si32, 4>, %i: tensor<si32, 2>) -> {0} {{\n{1}\n"
    "  return {2}\n}}\n{3}\n}}\n"
)
NINE = "  %k = constant() value[dense<9>] -> tensor<si32, 2>\n"
READS = (
    "region ^r(%v: tensor<si32, 4>, %j: tensor<si32, 2>) -> tensor<si32, 2> {\n"
    "  %t = take(%v, %j) -> tensor<si32, 2>\n  return %t\n}\n"
)
KEEPS = "region ^s(%v: tensor<si32, 4>, %j: tensor<si32, 2>) -> tensor<si32, 2> {\n  return %j\n}\n"
PAIR = "tensor<si32, 2>"
KNOWN = "  %p = constant() value[dense<{}>] -> tensor<i1>\n"
FLAG = "  %m = reduce_max(%x) axes[0] -> tensor<si32>\n  %p = compare_lt(%m, dense<{}> : tensor<si32>) -> tensor<i1>\n"


def choice(predicate: str, arguments: str = "%x, %k") -> str:
    return predicate + NINE + f"  %c = cond(%p, {arguments}) true_region[^r] false_region[^s] -> {PAIR}"


COUNTED = """region ^c(%n: tensor<si32>, %v: tensor<si32, 4>, %j: tensor<si32, 2>, %a: tensor<si32, 2>)
 -> (tensor<i1>, tensor<si32>, tensor<si32, 4>, tensor<si32, 2>, tensor<si32, 2>) {
  %l = compare_lt(%n, dense<TRIPS> : tensor<si32>) -> tensor<i1>
  return %l, %n, %v, %j, %a
}
region ^b(%n: tensor<si32>, %v: tensor<si32, 4>, %j: tensor<si32, 2>, %a: tensor<si32, 2>)
 -> (tensor<si32>, tensor<si32, 4>, tensor<si32, 2>, tensor<si32, 2>) {
  %o = add(%n, dense<1> : tensor<si32>) -> tensor<si32>
  %t = take(%v, %j) -> tensor<si32, 2>
  %b = add(%t, %a) -> tensor<si32, 2>
  return %o, %v, %j, %b
}"""
LOOP = (
    NINE
    + "  %w = while(dense<0> : tensor<si32>, %x, %k, %i) cond_region[^c] body_region[^b]"
    + " -> (tensor<si32>, tensor<si32, 4>, tensor<si32, 2>, tensor<si32, 2>)"
)
ROWS = """region ^b(%j: tensor<si32, 2>, %v: tensor<si32, 4>) -> (tensor<si32, 2>, tensor<si32, 2>) {
  %r = reshape(%j) new_shape[2] -> tensor<si32, 2>
  %t = take(%v, %r) -> tensor<si32, 2>
  return %j, %t
}"""
SCAN = (
    "  %y = reshape(%x) new_shape[{0}, 4] -> tensor<si32, {0}x4>\n"
    + NINE
    + "  %w = scan(%k, %y) body_region[^b] carry_count[1] scan_output_count[1] -> (tensor<si32, 2>, tensor<si32, {0}x2>)"
)
REGIONS = {
    "a branch taken, unknown": (TOP.format(PAIR, choice(FLAG.format(100)), "%c", READS + KEEPS), True),
    "a branch not taken, unknown": (TOP.format(PAIR, choice(FLAG.format(0)), "%c", READS + KEEPS), False),
    "a branch taken, known": (TOP.format(PAIR, choice(KNOWN.format("true")), "%c", READS + KEEPS), True),
    "a branch not taken, known": (
        TOP.format(PAIR, choice(KNOWN.format("false")), "%c", READS + KEEPS), False
    ),
    "a literal given to a branch": (
        TOP.format(PAIR, choice(FLAG.format(0), "%x, dense<9> : tensor<si32, 2>"), "%c", READS + KEEPS), False
    ),
    "an error before a branch that does not need it": (
        TOP.format(PAIR, FLAG.format(0) + "  %k = div(%i, %i) -> tensor<si32, 2>\n"
                   f"  %c = cond(%p, %x, %k, %i) true_region[^r] false_region[^s] -> {PAIR}", "%c",
                   "".join(f"region ^{name}(%v: tensor<si32, 4>, %j: {PAIR}, %i: {PAIR}) -> {PAIR} {{\n  return %{result}\n}}\n"
                           for name, result in ("rj", "si"))),
        True,
    ),
    "a loop of two trips": (TOP.format(PAIR, LOOP, "%w[3]", COUNTED.replace("TRIPS", "2")), True),
    "a loop of one trip": (TOP.format(PAIR, LOOP, "%w[3]", COUNTED.replace("TRIPS", "1")), True),
    "a loop of no trip": (TOP.format(PAIR, LOOP, "%w[3]", COUNTED.replace("TRIPS", "0")), False),
    "a scan of one step": (TOP.format("tensor<si32, 1x2>", SCAN.format(1), "%w[1]", ROWS), True),
    "an index that a scan repeats": (
        TOP.format("tensor<si32, 1x2>",
                   "  %y = reshape(%x) new_shape[1, 4] -> tensor<si32, 1x4>\n" + NINE
                   + "  %w = scan(%k, %y) body_region[^b] carry_count[1] scan_output_count[2]"
                   + " -> (tensor<si32, 2>, tensor<si32, 1x2>, tensor<si32, 1x4>)\n"
                   "  %t = take(%x, %w[1]) -> tensor<si32, 1x2>", "%t",
                   "region ^b(%j: tensor<si32, 2>, %v: tensor<si32, 4>)"
                   " -> (tensor<si32, 2>, tensor<si32, 2>, tensor<si32, 4>) {\n  return %j, %j, %v\n}"),
        True,
    ),
}  # fmt: skip
PIPELINES = (
    "canonicalize,cse,dce",
    "sink",
    "licm",
    "simplify-regions",
    "inference,min-peak",
    "fixpoint(licm,sink,canonicalize,cse)",
)


@pytest.mark.parametrize("pipeline", PIPELINES)
@pytest.mark.parametrize("title", REGIONS)
def test_what_regions_do_not_know_fails_as_before(title: str, pipeline: str) -> None:
    text, fails = REGIONS[title]
    after = clone(program := read(text))
    run_pipeline(after, pipeline)
    for p in (program, after):
        for engine in USED:
            if fails:
                with pytest.raises(Rejected):
                    run(p, GIVEN, RunOptions(engine=engine))
            else:
                np.testing.assert_array_equal(
                    *run(p, GIVEN, RunOptions(engine=engine)).values(), [9, 9] if "branch" in title else [0, 9]
                )


def endless(carried: str, result: str) -> str:
    """A program whose result is what a loop that never ends carries unchanged. The types are those of its carries."""
    types = carried.split("; ")
    params = ", ".join(f"%a{k}: {t}" for k, t in enumerate(types))
    names = ", ".join(f"%a{k}" for k in range(len(types)))
    listed = ", ".join(types)
    returned = f"({listed})"
    value = listed if len(types) == 1 else f"({listed})"
    return f"""program @f (spec_version = ptir.v0.4) {{
  func @f(%x: {carried.replace("; ", ", %y: ")}) -> tensor<f32> {{
    %w = while({", ".join(["%x", "%y"][: len(types)])}) cond_region[^test] body_region[^step] -> {value}
    return {result}
  }}
  region ^test({params}) -> (tensor<i1>, {listed}) {{
    return dense<true> : tensor<i1>, {names}
  }}
  region ^step({params}) -> {returned} {{
    return {names}
  }}
}}
"""


UNCHANGED = {
    "one value": endless("tensor<f32>", "%w"),
    "an element": endless("tensor<si32>; tensor<f32>", "%w[1]"),
    "a tuple": endless("(tensor<si32>, tensor<f32>)", "%w[1]"),
}


@pytest.mark.parametrize("engine", USED)
@pytest.mark.parametrize("title", UNCHANGED)
def test_a_loop_that_never_ends_is_not_what_it_carries_unchanged(title: str, engine: str) -> None:
    program = read(UNCHANGED[title])
    after = clone(program)
    run_pipeline(after, "canonicalize,cse,dce,simplify-regions,licm,canonicalize")
    given = [np.array(1, t) for t in ([np.float32] if title == "one value" else [np.int32, np.float32])]
    for p in (program, after):
        with pytest.raises(LimitExceeded):
            run(p, given, RunOptions(engine=engine, limits=Limits(iterations=50)))
