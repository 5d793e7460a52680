"""PTO assembly: one instruction a line, and what it cannot say."""

import re

import pytest
from pto_programs import SAMPLES, event, good, module

from ptir_tools import api
from ptir_tools.convert import translate
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Options
from ptir_tools.dialects.pto.text.assembly import write
from ptir_tools.passes import PassContext, run_pipeline

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
            "%t, %e = tload %a[%c0, 0] {valid = [%r, 32]}"
            " : (!pto.memref<32x32xf32>, index, index) -> (!pto.tile<32x32xf32>, !pto.event);",
            ".const %two = 2.0 : f32;",
            "%u = tmuls %t, %two wait(%e) : (!pto.tile<32x32xf32>, f32) -> !pto.tile<32x32xf32>;",
            "%m = tcmps %u, %two {cmpMode = #pto.cmp<GT>} : (!pto.tile<32x32xf32>, f32) -> !pto.tile<32x32xi8>;",
            "%f = tstore %u, %out[%c0, %c0] : (!pto.tile<32x32xf32>, !pto.memref<32x32xf32>, index, index) -> !pto.event;",
            "tsync wait(%f) : !pto.event;",
            "tsync.op #pto.op<TADD>;",
        ],
        [],
    )


STRAIGHT = ("01_vector_add_subview", "04_matmul_bias_a3", "08_async_pipeline", "09_dynamic_valid", "12_elementwise_chain")


@pytest.mark.parametrize("name", STRAIGHT)
def test_every_op_is_one_line_and_every_name_defined_before_it_is_used(name):
    source = (SAMPLES / f"{name}.pto").read_text()
    main = good(source).main
    lines, found = assembled(source)
    assert not found and len(lines) == len(main.params) + len(main.body)
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
    before = """func @f(%a: tensor<f16, 200x600>, %b: tensor<f16, 600x300>) -> tensor<f32, 200x300> {
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
    assert not found.items and "tmatmul" in text and "tassign" in text and "br.ge" in text and "eid = " in text
    jumps = set(re.findall(r"(\.L\d+);", text))
    assert jumps and jumps <= {line[:-1] for line in lines if line.endswith(":")}
